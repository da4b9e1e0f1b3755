"""``bonsai import``: convert models of other libraries."""

import argparse

from .parser import add_output, add_table, refuse

SUMMARY = "convert a model of omikuji 0.5"
EXAMPLES = (
    "bonsai import omikuji-model -o imported.bonsai",
    "bonsai import omikuji-model --label-names names.txt --quantise -o small.bonsai",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_table(parser, "model FOLDER  folder that omikuji wrote, with settings.json and tree0.cbor")
    add_output(parser)
    add_table(
        parser,
        """
--n-labels N  number of labels (default: the largest label + 1, if the trees have enough of them)
--label-names FILE  names of the labels, one on each line
--quantise  weights of 8 bits instead of 16: half the size
""",
        n_labels=int,
    )


def run(args: argparse.Namespace) -> None:
    import os

    from bonsai_xmc.compat._omikuji_files import is_omikuji, load_omikuji

    from .io import Inputs, save_model
    from .report import in_bytes, show

    if args.label_names is not None:
        refuse(args, ["n_labels"], "has no effect with --label-names: there are as many labels as names")
    if not os.path.isdir(args.model):
        raise ValueError(f"{args.model} is not a folder; a model of omikuji is one")
    if not is_omikuji(args.model):
        raise ValueError(f"{args.model} is not a model of omikuji: it has no settings.json")
    Inputs(output=args.output)
    names = None
    if args.label_names is not None:
        with open(args.label_names, encoding="utf-8") as file:
            names = file.read().removesuffix("\n").split("\n")
    model = load_omikuji(args.model, args.n_labels, names, args.quantise)
    before = sum(entry.stat().st_size for entry in os.scandir(args.model) if entry.is_file())
    size = save_model(model, args.output)
    facts = {
        "trees": len(model.trees_),
        "labels": len(model.classes_),
        "features": model.n_features_in_,
        "bytes before": before,
        "bytes": size,
    }
    show(
        args,
        facts,
        f"{facts['trees']} trees, {facts['labels']:,} labels, {facts['features']:,} features: "
        f"{in_bytes(before)} became {in_bytes(size)}",
    )
