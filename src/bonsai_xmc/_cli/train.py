"""``bonsai train``: a file of rows becomes a model."""

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from bonsai_xmc import Bonsai, LabelTree, TextBonsai
from bonsai_xmc._base.params import PARAMETERS, TEXT_PARAMETERS, check_params
from bonsai_xmc._base.progress import ProgressBar
from bonsai_xmc._estimators.text import TEXT_PARAMS
from bonsai_xmc._text.blocks import params_from_json
from bonsai_xmc.datasets import read_label_names, read_label_texts
from bonsai_xmc.datasets._npz import read_npy
from bonsai_xmc.datasets._reading import Expected, read_matrix

from . import train_texts
from .io import STANDARD, Inputs, check_output, save_model
from .report import describe, in_bytes, rows_of, table, tuning_of
from .runner import runner_of
from .texts import holds_documents

_REPRESENTATIONS = ("input", "output", "joint")


def run(args: argparse.Namespace) -> None:
    given = given_parameters(args)
    own = [args.params, args.label_names, args.label_texts]
    inputs = Inputs(args.data, args.labels, *own, *_files_of(given))
    check_output(args.output, inputs.files(args.split))
    # where the model itself is the output, reports go elsewhere
    out = sys.stderr if args.output == STANDARD else sys.stdout
    begin = time.perf_counter()
    train = _on_documents if holds_documents(args, inputs) else _on_features
    model, report = train(args, given, inputs, out)
    fitted = time.perf_counter()
    size = save_model(model, args.output)
    seconds = {"reading": report.pop("reading"), **model.timings_, "saving": time.perf_counter() - fitted}
    seconds["total"] = time.perf_counter() - begin
    report = describe(args.output, size, model) | {"seconds": seconds} | report
    if args.json:
        print(json.dumps(report, indent=2), file=out)
    elif not args.quiet:
        times = [(name, f"{value:,.2f} s") for name, value in seconds.items()]
        print(table([*rows_of(report), *tuning_of(report), *times]), file=out)


def _on_features(
    args: argparse.Namespace, given: dict[str, Any], inputs: Inputs, out: TextIO
) -> tuple[Bonsai, dict[str, Any]]:
    for name in (
        "label_separator",
        "label_names",
        "label_texts",
        "strict",
        "max_line",
        "tune",
        *(n for n in TEXT_PARAMETERS if n in given),
    ):
        if getattr(args, name, None):
            raise ValueError(f"--{name.replace('_', '-')} is for documents, but {args.data} holds features")
    model = estimator(args.preset, given, inputs)
    begin = time.perf_counter()
    rows = inputs.rows(args, Expected(args.n_features, args.n_labels))
    reading = time.perf_counter() - begin
    estimate: dict[str, Any] = {}
    options = _options(args, model, estimate, out)
    with runner_of(args) as runner:
        model.fit(rows.X, rows.Y, runner=runner, **options)
    return model._with(replace(model.fitted_, id_base=rows.id_base)), {
        "reading": reading,
        "estimate": estimate,
    }


def _on_documents(
    args: argparse.Namespace, given: dict[str, Any], inputs: Inputs, out: TextIO
) -> tuple[TextBonsai, dict[str, Any]]:
    names = None if args.label_names is None else read_label_names(args.label_names)
    documents = train_texts.open_training(args, inputs)
    if "fields" not in given or args.text or args.tune:
        given = given | {"fields": train_texts.fields_of(args, documents)}
    if args.label_texts is not None:
        given = given | {"label_texts": read_label_texts(args.label_texts)}
    texts = {name: given.pop(name) for name in (*TEXT_PARAMS, "label_texts") if name in given}
    model = TextBonsai(**texts, classifier=estimator(args.preset, given, inputs))
    if not args.quiet and not args.json and documents.fields:
        said = f"texts from {', '.join(documents.fields)}; labels from {documents.label_field}"
        print(said, flush=True, file=out)
    estimate: dict[str, Any] = {}
    options = _options(args, model.classifier, estimate, out)
    model, reading = train_texts.fit(args, model, documents, **options)
    if names is not None:
        model = model.name_labels(names)
    return model, {"reading": reading, "estimate": estimate, "problems": documents.problems.counts}


def _options(
    args: argparse.Namespace, model: Bonsai, estimate: dict[str, Any], out: TextIO
) -> dict[str, Any]:
    """Options of `fit`. What training will need is noted in `estimate`, and printed."""
    if model.verbose and not args.quiet:
        args.progress = ProgressBar()

    def note(found: dict[str, Any]) -> None:
        estimate.update(found)
        if not args.quiet and not args.json:
            memory, disk = (in_bytes(found[name]) for name in ("training_bytes", "model_bytes"))
            print(f"about {memory} of memory to train, about {disk} for the model", flush=True, file=out)

    return {
        "checkpoint": args.checkpoint,
        "max_memory": args.max_memory,
        "progress": args.progress,
        "on_estimate": None if args.quiet and not args.json else note,
    }


def given_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters of the parameter file and of the options, which win."""
    given = {} if args.params is None else _read_params(args.params)
    known = PARAMETERS.keys() | TEXT_PARAMETERS.keys()
    return given | {name: value for name, value in vars(args).items() if name in known}


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
    known = ["fields", *TEXT_PARAMETERS, *PARAMETERS]
    for name in given:
        if name not in known:
            raise ValueError(f"{path}: unknown parameter {name!r}; there are {', '.join(known)}")
    return params_from_json(given)
