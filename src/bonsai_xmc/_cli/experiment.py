"""``bonsai experiment``: the paper's tables and figures."""

import argparse
import json
import os
import sys


def run(args: argparse.Namespace) -> None:
    from bonsai_xmc import experiments  # not needed by the other commands, and not small

    def tell(line: str) -> None:
        if not args.quiet:
            print(line, file=sys.stderr, flush=True)

    report = experiments.run(
        args.names,
        args.data,
        args.output,
        seeds=args.seeds,
        quick=args.quick,
        n_jobs=getattr(args, "n_jobs", None),
        report=tell,
        bar=args.progress,
    )
    print(json.dumps({"report": os.fspath(report)}) if args.json else report)
