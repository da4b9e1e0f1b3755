"""``bonsai evaluate``: the metrics of a model, or of predictions, on rows whose labels are known."""

import argparse
from typing import Any

from .parser import add_data, add_model, add_prediction_parameters

SUMMARY = "measure the accuracy of a model, or of predictions, on rows whose labels are known"
EXAMPLES = (
    "bonsai evaluate model.bonsai test.csv",
    "bonsai evaluate model.bonsai test.csv --report report.html",
)
COMMON = (
    "k", "report", "against", "by", "by_frequency", "exact", "text", "label_field", "json", "quiet",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser, "MODEL|PREDICTIONS", "model, or output of `bonsai predict`")
    add_data(parser, "TEST", "tst")
    add("-k", type=int, nargs="+", help="cutoffs of the metrics (default: 1 3 5, up to the number of labels)")
    add("--by-frequency", action="store_true", help="add metrics of head, torso and tail labels")
    add(
        "--all-labels",
        action="store_true",
        help="count true labels of documents that the model does not have as missed (default: left out)",
    )
    add(
        "--exact",
        action="store_true",
        help="score all labels; found@k is the share of the exact top k that the model's own search finds",
    )
    add("--report", metavar="FILE", help="write a page (HTML): metrics, calibration, costly labels, examples")
    add(
        "--against",
        metavar="MODEL|PREDICTIONS",
        help="with --report: a second model, or predictions, beside it",
    )
    add(
        "--by",
        type=lambda text: list(filter(None, map(str.strip, text.split(",")))),
        metavar="FIELD,…",
        help="with --report: split the metrics by the values of fields of the documents, as a language",
    )
    add(
        "--classes",
        metavar="MODEL|FILE",
        help="what numbers of labels in PREDICTIONS mean: a model, or the output of `bonsai labels`",
    )
    add("--train", metavar="TRAIN", help="training labels for propensities (default: those of the model)")
    add("--dataset", metavar="NAME", help="take the propensity parameters of this data set")
    add(
        "--propensity",
        type=float,
        nargs=2,
        metavar=("A", "B"),
        help="propensity parameters (default: 0.55 1.5)",
    )
    add_prediction_parameters(parser)


def run(args: argparse.Namespace) -> None:
    from . import evaluation
    from .io import Inputs, check_output

    inputs = Inputs(args.model, args.data, args.labels, args.train, args.against, args.classes)
    if args.report is None and (args.against is not None or args.by):
        raise ValueError(f"--{'against' if args.by is None else 'by'} needs --report FILE")
    if args.report is not None and args.all_labels:
        raise ValueError("--all-labels has no effect on a --report, which says what it leaves out")
    check_output(args.report, inputs.files(args.split))
    inputs.hold(args.data)  # it may be read more than once
    options: dict[str, Any] = {"dataset": args.dataset}
    if args.propensity is not None:
        options |= dict(zip("AB", args.propensity, strict=True))
    if args.report is not None:
        evaluation.report(args, inputs, options)
    else:
        evaluation.show(
            args, evaluation.evaluate(args, inputs, options | {"by_frequency": args.by_frequency})
        )
