"""``bonsai info``: describe a model."""

import argparse
import json
import os

from .parser import add_model, add_table

SUMMARY = "describe a model"
EXAMPLES = ("bonsai info model.bonsai", "bonsai info model.bonsai --verify --json")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_table(parser, "--verify  check all checksums and the contents")
    add_table(parser, "--tree  show the levels of the trees; with --json all nodes")


def run(args: argparse.Namespace) -> None:
    from .io import Inputs
    from .report import describe, rows_of, table

    inputs = Inputs(args.model)
    fitted, prediction = inputs.fitted(args.model, verify=args.verify)
    size = os.path.getsize(args.model) if os.path.isfile(args.model) else len(inputs.source(args.model).data)
    report = describe(args.model, size, fitted, prediction) | {"verified": args.verify}
    if args.json:
        text = json.dumps(report, indent=2)
        if args.tree:  # `to_json` has no limit of depth, unlike the json module
            structures = ",\n".join(tree.to_json() for tree in fitted.trees)
            text = text.removesuffix("\n}") + f',\n  "structures": [\n{structures}\n  ]\n}}'
        print(text)
        return
    strategy = report["strategy"]
    evidence = strategy.pop("evidence", "")
    verified = [("verified", "checksums and contents")] * args.verify
    chosen = ((name, json.dumps(value)) for name, value in strategy.items())
    print(table([*rows_of(report), *verified, ("", ""), *chosen]))
    if evidence:
        print(f"\n{evidence}")
    if args.tree:
        for number, tree in enumerate(fitted.trees, 1):
            print(f"\ntree {number}\n{tree.summary()}")
