"""``bonsai learn``: a model that has learnt from further rows, as a new file."""

import argparse
import json
import sys
from typing import Any

from bonsai_xmc import TextBonsai
from bonsai_xmc._training.learn import check_can_learn

from . import models
from .io import STANDARD, Inputs, check_output, save_model
from .report import count, in_bytes
from .rows import labelled_rows


def run(args: argparse.Namespace) -> None:
    inputs = Inputs(args.model, args.data, args.labels)
    check_output(args.output, inputs.files(args.split))
    model = models.load(args, inputs)
    check_can_learn(model.fitted_)  # before anything is read
    X, Y = labelled_rows(args, model, inputs, new_labels=True)
    if isinstance(model, TextBonsai):
        X = list(X)  # labels are complete when all texts are read
    learnt = model.learn(X, Y, progress=args.progress)
    size = save_model(learnt, args.output)
    kept = learnt.fitted_.rows
    assert kept is not None
    report: dict[str, Any] = {
        "model": args.output,
        "bytes": size,
        "rows": learnt.n_rows_fit_,
        "new rows": learnt.n_rows_fit_ - model.n_rows_fit_,
        "labels": len(learnt.classes_),
        "new labels": len(learnt.classes_) - len(model.classes_),
        "bytes of kept rows": kept.n_bytes,
    }
    out = sys.stderr if args.output == STANDARD else sys.stdout
    if args.json:
        print(json.dumps(report, indent=2), file=out)
    elif not args.quiet:
        print(
            f"{args.output}: {count(report['new rows'], 'row')} more, {report['rows']:,} in all; "
            f"{count(report['new labels'], 'new label')}, {report['labels']:,} in all; {in_bytes(size)}, "
            f"{in_bytes(kept.n_bytes)} of them rows",
            file=out,
        )
