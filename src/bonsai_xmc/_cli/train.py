"""``bonsai train``: a file of rows becomes a model."""

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bonsai_xmc import Bonsai, LabelTree
from bonsai_xmc._params import check_params
from bonsai_xmc._progress import ProgressBar
from bonsai_xmc.datasets._npz import read_npy
from bonsai_xmc.datasets._reading import Expected, read_matrix

from .arguments import PARAMETERS
from .io import STANDARD, Inputs, check_output, save_model
from .report import describe, in_bytes, rows_of, table

_REPRESENTATIONS = ("input", "output", "joint")


def run(args: argparse.Namespace) -> None:
    given = given_parameters(args)
    inputs = Inputs(args.data, args.labels, args.params, *_files_of(given))
    check_output(args.output, inputs.files(args.split))
    model = estimator(args.preset, given, inputs)
    # where the model itself is the output, reports go elsewhere
    out = sys.stderr if args.output == STANDARD else sys.stdout
    begin = time.perf_counter()
    rows = inputs.rows(args, Expected(args.n_features, args.n_labels))
    read = time.perf_counter() - begin
    estimate = model.memory_estimate(rows.X, rows.Y)
    if not args.quiet and not args.json:
        memory, disk = (in_bytes(estimate[name]) for name in ("training_bytes", "model_bytes"))
        print(f"about {memory} of memory to train, about {disk} for the model", flush=True, file=out)
    if model.verbose and not args.quiet:
        args.progress = ProgressBar()
    model.fit(rows.X, rows.Y, progress=args.progress)
    model.fitted_ = replace(model.fitted_, id_base=rows.id_base)
    fitted = time.perf_counter()
    size = save_model(model, args.output)
    seconds = {"reading": read, **model.timings_, "saving": time.perf_counter() - fitted}
    seconds["total"] = time.perf_counter() - begin
    report = describe(args.output, size, model) | {"seconds": seconds, "estimate": estimate}
    if args.json:
        print(json.dumps(report, indent=2), file=out)
    elif not args.quiet:
        times = [(name, f"{value:,.2f} s") for name, value in seconds.items()]
        print(table([*rows_of(report), *times]), file=out)


def given_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters of the parameter file and of the options, which win."""
    given = {} if args.params is None else _read_params(args.params)
    return given | {name: value for name, value in vars(args).items() if name in PARAMETERS}


def estimator(preset: str | None, given: dict[str, Any], inputs: Inputs) -> Bonsai:
    """The estimator that a preset and parameters describe; trees and label vectors are read from files."""
    if isinstance(given.get("tree"), str):
        given = given | {"tree": LabelTree.from_json(Path(given["tree"]))}
    for path in _vector_files(given):
        given = given | {"representation": _label_vectors(path, inputs)}
    model = Bonsai(**given) if preset is None else Bonsai.preset(preset, **given)
    check_params(model.get_params(deep=False))
    return model


def _files_of(given: dict[str, Any]) -> list[str]:
    tree = given.get("tree")
    return ([tree] if isinstance(tree, str) else []) + _vector_files(given)


def _vector_files(given: dict[str, Any]) -> list[str]:
    """The file with label vectors, if the representation is one."""
    path = given.get("representation")
    return [path] if isinstance(path, str) and path not in _REPRESENTATIONS and os.path.exists(path) else []


def _label_vectors(path: str, inputs: Inputs) -> Any:
    source = inputs.source(path)
    if source.kind != "npy":
        return read_matrix(source, "column")[0]
    try:
        return read_npy(source.data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_params(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError(f"{path} does not hold a JSON object of parameters")
    for name in given:
        if name not in PARAMETERS:
            raise ValueError(f"{path}: unknown parameter {name!r}; there are {', '.join(PARAMETERS)}")
    return given
