"""``bonsai evaluate``: the metrics of a model, or of predictions, on rows whose labels are known."""

import argparse

from bonsai_xmc._base.params import PARAMETERS

from .parser import add_data, add_model, add_prediction_parameters, add_table, refuse

SUMMARY = "measure the accuracy of a model, or of predictions, on rows whose labels are known"
EXAMPLES = (
    "bonsai evaluate model.bonsai test.csv",
    "bonsai evaluate model.bonsai test.csv --report report.html",
)
COMMON = (
    "k", "report", "against", "threshold", "table", "by", "by_frequency", "exact", "json", "quiet",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "MODEL|PREDICTIONS", "model, or output of `bonsai predict`")
    add_data(parser, "TEST", "tst")
    add_table(
        parser,
        """
-k K  cutoffs of the metrics (default: 1 3 5, up to the number of labels)
--by-frequency  add metrics of head, torso and tail labels
--coverage  add C@k and CC@k: how many distinct labels are predicted
--all-labels  count true labels of documents that the model does not have as missed (default: left out)
--exact  score all labels; found@k is the share of the exact top k that the model's own search finds
--report FILE  write a page (HTML): metrics, calibration, costly labels, examples
--against MODEL|PREDICTIONS  further models, or predictions of any system, to compare with: differences, and
    their 95 % intervals by a paired bootstrap over rows
--threshold  add precision, recall and F1 of the labels of at least this score; auto: the threshold of the
    model; per_label: the one of each label
--table markdown|csv|latex  print the figures as such a table
--by FIELD,…  with --report: split the metrics by the values of fields of the documents, as a language
--classes MODEL|FILE  what numbers of labels in PREDICTIONS mean: a model, or the output of `bonsai labels`
--train TRAIN  training labels for propensities (default: those of the model)
--dataset NAME  take the propensity parameters of this data set
--propensity  propensity parameters (default: 0.55 1.5)
""",
        k={"type": int, "nargs": "+"},
        against={"nargs": "+", "default": []},
        threshold=PARAMETERS["threshold"].rule.options,
        by=lambda text: list(filter(None, map(str.strip, text.split(",")))),
        propensity={"type": float, "nargs": 2, "metavar": ("A", "B")},
    )
    add_prediction_parameters(parser)


def run(args: argparse.Namespace) -> None:
    from . import evaluation
    from .io import Inputs

    inputs = Inputs(
        args.model,
        args.data,
        args.labels,
        args.train,
        args.classes,
        *args.against,
        *args.list,
        output=args.report,
        split=args.split,
    )
    if args.report is None and args.by:
        raise ValueError("--by needs --report FILE")
    if args.report is not None and len(args.against) > 1:
        raise ValueError(
            "--report compares two systems at most; without it, any number is compared in a table"
        )
    if args.report is not None:
        refuse(args, ("threshold", "table", "all_labels"), "has no effect on a --report")
    if args.json:
        refuse(args, ["table"], "is another form than --json: leave one of them out")
    inputs.hold(args.data)  # may be read more than once
    with evaluation.noting() as notes:
        evaluation.Evaluation(args, inputs).run(notes)
