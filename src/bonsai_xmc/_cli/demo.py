"""``bonsai demo``: from texts to suggestions, on generated texts."""

import argparse
import contextlib
import io
import json

from bonsai_xmc import _demo


def run(args: argparse.Namespace) -> None:
    silent = args.json or args.quiet
    with contextlib.redirect_stdout(io.StringIO()) if silent else contextlib.nullcontext():
        report = _demo.main(verbose=not silent)
    if args.json:
        print(json.dumps(report, indent=2))
