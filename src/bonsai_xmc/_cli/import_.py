"""``bonsai import``: models of other libraries become ours."""

import argparse
import json
import os

from bonsai_xmc.compat._omikuji_files import is_omikuji, load_omikuji

from .io import check_output, save_model


def run(args: argparse.Namespace) -> None:
    if not os.path.isdir(args.model):
        raise ValueError(f"{args.model} is not a folder; a model of omikuji is one")
    if not is_omikuji(args.model):
        raise ValueError(f"{args.model} is not a model of omikuji: it has no settings.json")
    check_output(args.output, [])
    names = None
    if args.label_names is not None:
        with open(args.label_names, encoding="utf-8") as file:
            names = file.read().removesuffix("\n").split("\n")
    model = load_omikuji(args.model, args.n_labels, names, args.quantise)
    before = sum(entry.stat().st_size for entry in os.scandir(args.model) if entry.is_file())
    size = save_model(model, args.output)
    report = {
        "trees": len(model.trees_),
        "labels": len(model.classes_),
        "features": model.n_features_in_,
        "bytes before": before,
        "bytes": size,
    }
    if args.json:
        print(json.dumps(report, indent=2))
    elif not args.quiet and args.output != "-":
        print(
            f"{report['trees']} trees, {report['labels']:,} labels, {report['features']:,} features: "
            f"{before / 1e6:,.1f} MB became {size / 1e6:,.1f} MB"
        )
