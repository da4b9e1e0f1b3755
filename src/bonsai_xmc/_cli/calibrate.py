"""``bonsai calibrate``: calibrated scores and a threshold for a trained model, as a new file."""

import argparse
import json
import sys
from typing import Any

from bonsai_xmc._model.thresholds import resolve

from . import models
from .io import STANDARD, Inputs, check_output, save_model
from .report import calibration_of, in_bytes, table
from .rows import labelled_rows


def objective(text: str) -> Any:
    """``micro_f1``, ``f1_at_5`` or ``precision=0.8``, as `choose_threshold` takes them."""
    name, sign, value = text.partition("=")
    return (name, float(value)) if sign else text


def run(args: argparse.Namespace) -> None:
    inputs = Inputs(args.model, args.data, args.labels)
    check_output(args.output, inputs.files(args.split))
    inputs.hold(args.data)  # it is read twice
    model = models.load(args, inputs)
    if args.method == "none" and args.groups != "none":
        raise ValueError("--groups needs a --method of calibration")
    if args.method != "none":
        groups = None if args.groups == "none" else args.groups
        model = model.calibrate(*labelled_rows(args, model, inputs), method=args.method, groups=groups)
    if args.method == "none" or args.threshold is not None:
        # with the method none, of the scores that the model has: calibrated ones, if it was before
        given = labelled_rows(args, model, inputs)
        model.classifier_.threshold = model.choose_threshold(*given, args.threshold or "micro_f1")
    size = save_model(model, args.output)
    if args.quiet and not args.json:
        return
    out = sys.stderr if args.output == STANDARD else sys.stdout
    threshold = resolve(model.classifier_.threshold, model)
    found = {"model": args.output, "bytes": size, "calibration": model.calibration_, "threshold": threshold}
    if args.json:
        print(json.dumps(found, indent=2), file=out)
        return
    rows = [
        *calibration_of(model.calibration_),
        ("threshold", f"{threshold:g}, for {_told(args.threshold)}"),
        ("model", f"{args.output}, {in_bytes(size)}"),
    ]
    print(table(rows), file=out)


def _told(given: Any) -> str:
    return "micro_f1" if given is None else given if isinstance(given, str) else f"{given[0]} {given[1]:g}"
