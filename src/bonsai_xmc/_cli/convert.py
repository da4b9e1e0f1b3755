"""``bonsai convert``: convert a matrix into a folder of arrays, which other commands map."""

import argparse

from .parser import add_data, add_table

SUMMARY = "convert a matrix into a folder of arrays, which is mapped into memory"
EXAMPLES = (
    "bonsai convert train.txt -o rows",
    "bonsai convert X.npz Y.npz -o arrays --json",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_data(parser, "DATA", "trn", sizes=True, only_matrices=True)
    add_table(parser, "-o --output DIR  folder to make", output={"required": True})


def run(args: argparse.Namespace) -> None:
    from bonsai_xmc.datasets import save_mapped
    from bonsai_xmc.datasets._reading import Expected

    from .io import Inputs
    from .report import show
    from .source import holds_documents

    inputs = Inputs(args.data, args.labels)
    if holds_documents(args, inputs):
        raise ValueError(f"{args.data} holds documents, but only matrices can be converted")
    rows = inputs.rows(args, Expected(args.n_features, args.n_labels))
    save_mapped(args.output, rows.X, rows.Y, id_base=rows.id_base)
    (n_rows, n_features), n_labels = rows.X.shape, rows.Y.shape[1]
    facts = {"folder": args.output, "rows": n_rows, "features": n_features, "labels": n_labels}
    show(args, facts, f"{args.output}: {n_rows:,} rows, {n_features:,} features, {n_labels:,} labels")
