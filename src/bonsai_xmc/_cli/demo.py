"""``bonsai demo``: train, evaluate, predict and explain on generated texts."""

import argparse

SUMMARY = "train, evaluate, predict and explain on generated texts"
EXAMPLES = ("bonsai demo", "bonsai demo --json")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the demo has no options."""


def run(args: argparse.Namespace) -> None:
    import contextlib
    import io
    import json

    from bonsai_xmc import _demo

    silent = args.json or args.quiet
    with contextlib.redirect_stdout(io.StringIO()) if silent else contextlib.nullcontext():
        report = _demo.main(verbose=not silent)
    if args.json:
        print(json.dumps(report, indent=2))
