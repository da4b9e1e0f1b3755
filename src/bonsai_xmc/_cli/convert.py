"""``bonsai convert``: a file of rows becomes a folder of arrays, which other commands map."""

import argparse
import json

from bonsai_xmc.datasets import save_mapped
from bonsai_xmc.datasets._reading import Expected

from .io import Inputs


def run(args: argparse.Namespace) -> None:
    inputs = Inputs(args.data, args.labels)
    rows = inputs.rows(args, Expected(args.n_features, args.n_labels))
    save_mapped(args.output, rows.X, rows.Y, id_base=rows.id_base)
    (n_rows, n_features), n_labels = rows.X.shape, rows.Y.shape[1]
    facts = {"folder": args.output, "rows": n_rows, "features": n_features, "labels": n_labels}
    if args.json:
        print(json.dumps(facts))
    elif not args.quiet:
        print(f"{args.output}: {n_rows:,} rows, {n_features:,} features, {n_labels:,} labels")
