"""``bonsai calibrate``: write a model with calibrated scores and a new threshold."""

import argparse
from typing import Any

from .parser import add_data, add_model, add_output, add_prediction_parameters, add_table

SUMMARY = "calibrate the scores of a model, and choose its threshold"
EXAMPLES = (
    "bonsai calibrate model.bonsai dev.csv -o calibrated.bonsai",
    "bonsai calibrate model.bonsai dev.csv --method none --threshold precision=0.8 -o careful.bonsai",
)
COMMON = ("output", "method", "groups", "threshold", "json", "quiet")


def _objective(text: str) -> Any:
    """Parse ``micro_f1``, ``f1_at_5`` or ``precision=0.8`` for `choose_threshold`."""
    name, sign, value = text.partition("=")
    return (name, float(value)) if sign else text


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_data(parser, "DEV", "dev")
    add_output(parser, "OUT")
    add_table(
        parser,
        """
--method isotonic|platt|none  isotonic regression, or logistic regression of the log score; none: choose
    only the threshold (default: isotonic)
--groups none|frequency  one map for all labels, or one for each of head, torso and tail labels (default:
    none)
--threshold micro_f1|f1_at_5|precision=X  what the threshold of the model is chosen for (default: micro_f1)
""",
        method={"default": "isotonic"},
        groups={"default": "none"},
        threshold=_objective,
    )
    add_prediction_parameters(parser)


def run(args: argparse.Namespace) -> None:
    from bonsai_xmc._model.thresholds import resolve

    from . import models, source
    from .io import Inputs, save_model
    from .report import calibration_of, in_bytes, show, table

    inputs = Inputs(args.model, args.data, args.labels, output=args.output, split=args.split)
    inputs.hold(args.data)  # read twice
    model = models.load(args, inputs)
    if args.method == "none" and args.groups != "none":
        raise ValueError("--groups needs a --method of calibration")
    if args.method != "none":
        groups = None if args.groups == "none" else args.groups
        X, Y = source.for_model(args, model, inputs).labelled()
        model = model.calibrate(X, Y, method=args.method, groups=groups)
    if args.method == "none" or args.threshold is not None:
        # without a new calibration, for the present scores of the model
        X, Y = source.for_model(args, model, inputs).labelled()
        model.classifier_.threshold = model.choose_threshold(X, Y, args.threshold or "micro_f1")
    size = save_model(model, args.output)
    chosen = resolve(model.classifier_.threshold, model)
    threshold = chosen if isinstance(chosen, float) else model.threshold_
    aim = args.threshold or "micro_f1"
    facts = {"model": args.output, "bytes": size, "calibration": model.calibration_, "threshold": threshold}
    rows = [
        *calibration_of(model.calibration_),
        ("threshold", f"{threshold:g}, for {aim if isinstance(aim, str) else f'{aim[0]} {aim[1]:g}'}"),
        ("model", f"{args.output}, {in_bytes(size)}"),
    ]
    show(args, facts, table(rows))
