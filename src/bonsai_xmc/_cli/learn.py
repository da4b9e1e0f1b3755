"""``bonsai learn``: write a model that is trained further with new rows."""

import argparse
from typing import Any

from .parser import add_data, add_model, add_output, add_parameter

SUMMARY = "train a model further with new rows"
EXAMPLES = (
    "bonsai learn model.bonsai corrected.csv -o new.bonsai",
    "bonsai learn model.bonsai corrected.csv -o new.bonsai --json",
)
COMMON = ("output", "n_jobs", "json", "quiet")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, help="model file, trained with --keep-rows")
    add_data(parser, "NEW", "trn")
    add_output(parser, "OUT")
    add_parameter(parser, "n_jobs")


def run(args: argparse.Namespace) -> None:
    from bonsai_xmc._training.learn import check_can_learn

    from . import models, source
    from .io import Inputs, save_model
    from .report import count, in_bytes, show

    inputs = Inputs(args.model, args.data, args.labels, output=args.output, split=args.split)
    model = models.load(args, inputs)
    check_can_learn(model.fitted_)  # before anything is read
    X, Y = source.for_model(args, model, inputs, new_labels=True).whole()
    learnt = model.learn(X, Y, progress=args.progress)
    size = save_model(learnt, args.output)
    kept = learnt.fitted_.rows
    assert kept is not None
    facts: dict[str, Any] = {
        "model": args.output,
        "bytes": size,
        "rows": learnt.n_rows_fit_,
        "new rows": learnt.n_rows_fit_ - model.n_rows_fit_,
        "labels": len(learnt.classes_),
        "new labels": len(learnt.classes_) - len(model.classes_),
        "bytes of kept rows": kept.n_bytes,
    }
    show(
        args,
        facts,
        f"{args.output}: {count(facts['new rows'], 'row')} more, {facts['rows']:,} in all; "
        f"{count(facts['new labels'], 'new label')}, {facts['labels']:,} in all; {in_bytes(size)}, "
        f"{in_bytes(kept.n_bytes)} of them rows",
    )
