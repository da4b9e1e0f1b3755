"""``bonsai data``: a data set as it is published becomes what `datasets.load` reads."""

import argparse
import json
import os

from bonsai_xmc import datasets


def run(args: argparse.Namespace) -> None:
    folder = os.fspath(datasets.prepare(args.name, args.source, args.output))
    if args.json:
        print(json.dumps({"folder": folder}))
    elif not args.quiet:
        print(folder)
