"""``bonsai train``: a file of rows becomes a model."""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bonsai_xmc._base.hints import did_you_mean
from bonsai_xmc._base.params import (
    CLASSIFIERS,
    PARAMETERS,
    PREDICTION,
    PRESETS,
    REPRESENTATIONS,
    RUN,
    TEXT_PARAMETERS,
    TEXTS,
    TREES,
    Parameter,
    check_params,
)
from bonsai_xmc.systems import SYSTEMS
from bonsai_xmc.systems import system as find_system

from .parser import BONSAI, OWN, add_data, add_output, add_parameter, add_table

SUMMARY = "train a model on documents or matrices, and write it to a file"
EXAMPLES = (
    "bonsai train documents.csv -o model.bonsai",
    "bonsai train documents.csv --text title,abstract --labels subjects --keep-rows -o model.bonsai",
)
COMMON = (
    "output", "text", "label_field", "label_names", "label_texts", "system", "preset", "keep_rows", "n_jobs",
    "quiet",
)  # fmt: skip


_OF_BONSAI = """
--preset  parameters of a method of the paper (default: the best model)
--checkpoint DIR  folder for finished units of work: after a crash or an interrupt, the same command continues
--max-memory SIZE  bytes that training may take, such as 4GB: fewer threads where all would need more, or an
    error at the start (default: the limit of the container or of ulimit -v, if there is one)
--ray auto|ADDRESS|local  train on a Ray cluster: the one that runs here, at host:port, or a new one on this
    machine
--keep-rows  keep the training rows in the model, for bonsai learn
--tree FILE  JSON file with a label tree to use instead of clustering, or output of
    `bonsai info --tree --json`
"""
_OF_EVERY_SYSTEM = """
--verbose N  1: a line for each phase of training, even without a terminal (default: 0)
--params FILE  JSON object of parameters, as `bonsai info --json` prints them; overrides --preset, overridden
    by options
"""
_OF_TEXTS = """
--label-names FILE  names of the labels, to be kept in the model: lines id<TAB>name, or JSON objects
--label-texts FILE  names, synonyms and descriptions of labels, a prior for their classifiers, so that labels
    without rows can be suggested: lines id<TAB>name<TAB>text|text, or JSON objects
--encoder NAME  vectors of texts in addition to words: name or folder of a model for sentence-transformers,
    a folder in the format of model2vec, or wordllama; pip install 'bonsai-xmc[encoder]' or [encoder-static]
--tune  search for weights of fields and n-grams and for power on held-out rows: up to 34 trainings on samples
    of at most 16,000 rows
"""


def add_options(parser: Any) -> None:
    add_data(parser, "TRAIN", "trn", sizes=True)
    add_output(parser)
    own = parser.system == BONSAI
    add_table(
        parser,
        """
--system  what to train: bonsai, or a system that the paper compares it with, whose options
    `bonsai train --system NAME --help` shows (default: bonsai)
"""
        + _OF_BONSAI * own
        + _OF_EVERY_SYSTEM,
        system={"choices": (BONSAI, *SYSTEMS), "default": BONSAI},
        preset={"choices": PRESETS},
        max_memory={"default": "auto"},
        verbose={"type": int, "default": 0},
    )
    table = parameters_of(parser.system)
    if not own:
        parser.set_defaults(**dict.fromkeys(("preset", "checkpoint", "ray", "tree")), keep_rows=False)
        parser.common = (*COMMON, *map(_option, table))
    groups = {group.title: group for group in parser._action_groups}
    add_table(groups[TEXTS], _OF_TEXTS)
    for name in TEXT_PARAMETERS:
        add_parameter(groups[TEXTS], name)
    order = [CLASSIFIERS, TREES, PREDICTION, RUN]
    first = {"classifiers": 0, "search": 1}  # the choice of the method
    for name in sorted(table, key=lambda name: (order.index(table[name].group), first.get(name, 2))):
        group = table[name].group
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        add_parameter(groups[group], _option(name), parameter=table[name])


def parameters_of(system: str) -> Mapping[str, Parameter]:
    """Return the table of a system's parameters; that of `Bonsai` needs no heavy import."""
    return PARAMETERS if system == BONSAI else find_system(system).parameters


def _option(name: str) -> str:
    """Return the name of a parameter of the classifier, distinct from those of texts."""
    return f"{OWN}{name}" if name in TEXT_PARAMETERS else name


def class_of(system: str) -> Any:
    """Return the estimator of a system."""
    from bonsai_xmc import Bonsai

    return Bonsai if system == BONSAI else find_system(system)


def run(args: argparse.Namespace) -> None:
    from . import source
    from .io import STANDARD, Inputs, save_model
    from .report import describe, rows_of, show, table

    begin = time.perf_counter()
    given = given_parameters(args)
    files = args.params, args.label_names, args.label_texts, args.tree, _vector_file(given)
    inputs = Inputs(args.data, args.labels, *files, output=args.output, split=args.split)
    out = sys.stderr if args.output == STANDARD else sys.stdout
    names, texts = _label_files(args, inputs)
    rows = source.for_training(args, inputs)
    model: Any
    if isinstance(rows, source.Texts):
        model = _text_estimator(args, given | texts, rows, inputs)
        assert rows.documents is not None
        if not args.quiet and not args.json and rows.documents.fields:
            documents = rows.documents
            said = f"texts from {', '.join(documents.fields)}; labels from {documents.label_field}"
            print(said, flush=True, file=out)
    else:
        if names is not None:
            raise ValueError(f"--label-names is for documents, but {args.data} holds features")
        model = estimator(args, given, inputs)
    estimate: dict[str, Any] = {}
    X, Y = rows.labelled()
    with _runner(args) as runner:
        options = {"runner": runner, **_fit_options(args, estimate, out)} if args.system == BONSAI else {}
        model.fit(X, Y, progress=args.progress, **options)
    model = rows.remembered(model)
    if names is not None:
        model = model.name_labels(names)
    fitted = time.perf_counter()
    size = save_model(model, args.output)
    seconds = {"reading": rows.seconds, **model.timings_, "saving": time.perf_counter() - fitted}
    seconds["total"] = time.perf_counter() - begin
    described = describe(args.output, size, model.fitted_, model.classifier_._prediction())
    facts = described | {"seconds": seconds, "estimate": estimate}
    if isinstance(rows, source.Texts):
        facts["problems"] = rows.problems
    total = seconds["total"]
    parts = ", ".join(f"{name} {value:,.2f}" for name, value in seconds.items() if name != "total")
    show(args, facts, table([*rows_of(facts), ("time", f"{total:,.2f} s: {parts}")]))


@contextlib.contextmanager
def _runner(args: argparse.Namespace) -> Any:
    """Provide the runner of a cluster if one is given; None stands for threads of this process."""
    from bonsai_xmc._base.progress import ProgressBar

    if args.verbose and not args.quiet:
        args.progress = ProgressBar()
    if args.ray is None:
        yield None
        return
    from bonsai_xmc.ray import RayRunner

    status = args.progress.note if args.progress is not None else None
    with RayRunner(args.ray, status=status) as runner:
        yield runner


def _fit_options(args: argparse.Namespace, estimate: dict[str, Any], out: Any) -> dict[str, Any]:
    """Return the options of `fit`; the estimate of memory is stored in `estimate` and printed."""
    from .report import in_bytes

    def note(found: dict[str, Any]) -> None:
        estimate.update(found)
        if not args.quiet and not args.json:
            both = found.get("least", found), found
            sizes = ([in_bytes(one[name]) for one in both] for name in ("training_bytes", "model_bytes"))
            memory, disk = (" to ".join(dict.fromkeys(size)) for size in sizes)
            print(f"about {memory} of memory to train, about {disk} for the model", flush=True, file=out)

    return {
        "checkpoint": args.checkpoint,
        "max_memory": args.max_memory,
        "keep_rows": args.keep_rows,
        "tree": None if args.tree is None else _trees(args.tree),
        "on_estimate": None if args.quiet and not args.json else note,
    }


def _trees(path: str) -> Any:
    """Read a label tree from a file, or all trees of a model as `bonsai info --tree --json` prints them."""
    from bonsai_xmc import LabelTree
    from bonsai_xmc._data.nested import parse_json

    try:
        found = parse_json(Path(path).read_text(encoding="utf-8"))
        trees = found.get("structures") if isinstance(found, dict) else None
        return LabelTree.from_nested(found) if trees is None else [*map(LabelTree.from_nested, trees)]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _label_files(args: argparse.Namespace, inputs: Any) -> tuple[dict[str, str] | None, dict[str, Any]]:
    """Read names and texts of labels, before anything that takes longer."""
    from bonsai_xmc.datasets import read_label_names, read_label_texts

    names, texts = None, {}
    if args.label_names is not None:
        with inputs.file(args.label_names) as path:
            names = read_label_names(path)
    if args.label_texts is not None:
        with inputs.file(args.label_texts) as path:
            texts["label_texts"] = read_label_texts(path)
    return names, texts


def given_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of the parameter file, overridden by those of the options."""
    known = [*TEXT_PARAMETERS, *map(_option, parameters_of(args.system))]
    given = {} if args.params is None else _read_params(args.params, ["fields", *known])
    return given | {name: value for name, value in vars(args).items() if name in known}


def estimator(args: argparse.Namespace, given: dict[str, Any], inputs: Any) -> Any:
    """Return the estimator that the options describe; label vectors are read from files."""
    if (path := _vector_file(given)) is not None:
        given = given | {"representation": _label_vectors(path, inputs)}
    system = class_of(args.system)
    given = {name.removeprefix(OWN): value for name, value in given.items()}
    model = system(**given) if args.preset is None else system.preset(args.preset, **given)
    check_params(model.get_params(deep=False), parameters_of(args.system))
    return model


def _text_estimator(args: argparse.Namespace, given: dict[str, Any], rows: Any, inputs: Any) -> Any:
    """Return the estimator for documents, with a reader of texts in front of the classifier."""
    from bonsai_xmc import TextBonsai

    if args.text and not rows.documents.fields:
        raise ValueError(
            f"{args.data} is a file of {rows.documents.kind} and has no fields, so --text must not be given"
        )
    if "fields" not in given or args.text or args.tune:
        given = given | {"fields": _fields_of(args, rows.documents.fields)}
    of_texts = ("fields", *TEXT_PARAMETERS, "label_texts")
    texts = {name: given[name] for name in of_texts if name in given}
    rest = {name: value for name, value in given.items() if name not in of_texts}
    return TextBonsai(**texts, encoder=args.encoder, classifier=estimator(args, rest, inputs))


def _fields_of(args: argparse.Namespace, fields: tuple[str, ...]) -> Any:
    """Return the parameter `fields`, with given weights; a title is recognised by its name."""
    from bonsai_xmc._text.blocks import is_title

    weights = args.text or {}
    weighted = any(weight is not None for weight in weights.values())
    if args.tune and weighted:
        raise ValueError("--tune searches for the weights of fields, so --text must not give any")
    if args.tune:
        return dict.fromkeys(fields, "auto") if fields else "auto"
    if weighted and fields:
        default = {name: 1.0 if is_title(name) else 0.0 for name in weights}
        return {name: default[name] if weight is None else weight for name, weight in weights.items()}
    return list(fields) or None


def _vector_file(given: dict[str, Any]) -> str | None:
    """Return the file with label vectors, if the representation is one."""
    path: Any = given.get("representation")
    named = isinstance(path, str) and path not in REPRESENTATIONS
    return path if named and os.path.exists(path) else None


def _label_vectors(path: str, inputs: Any) -> Any:
    from bonsai_xmc.datasets._npz import read_npy
    from bonsai_xmc.datasets._reading import read_matrix

    source = inputs.source(path)
    if source.kind != "npy":
        return read_matrix(source, "column")[0]
    try:
        return read_npy(source.data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_params(path: str, known: list[str]) -> dict[str, Any]:
    from bonsai_xmc._text.blocks import params_from_json

    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError(f"{path} does not hold a JSON object of parameters")
    if isinstance(given.get("params"), dict):  # a report of `bonsai info` or `bonsai train`
        given = given["params"]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"{path}: unknown parameter {name!r}{hint}")
    return params_from_json(given)
