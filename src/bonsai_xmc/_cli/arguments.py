"""The options of the command line. Those for parameters follow from `_base.params`."""

import argparse
from typing import Any

from bonsai_xmc import __version__
from bonsai_xmc._base.params import (
    CLASSIFIERS,
    PARAMETERS,
    PREDICTION,
    PRESETS,
    RUN,
    TEXT_PARAMETERS,
    TEXTS,
    TREES,
)
from bonsai_xmc._base.rules import integer
from bonsai_xmc._model.calibration import METHODS
from bonsai_xmc.datasets._documents import FORMATS
from bonsai_xmc.datasets._documents.problems import MAX_LINE

from .calibrate import objective
from .predict_texts import OUTPUT_FORMATS

_LABELS = "LABEL|@FILE"  # what several options take


def _fields(text: str) -> dict[str, float | None]:
    """``title=0.7,abstract`` as names with weights; None: not given."""
    fields: dict[str, float | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, weight = part.rpartition("=")
        fields[name if sign else part] = float(weight) if sign else None
    if not fields:
        raise ValueError("no field")
    return fields


def _port(text: str) -> int:
    if not 0 <= int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"{text} is not a port; ports lie from 0 to 65535")
    return int(text)


_fields.__name__, _port.__name__ = "list of fields", "port"


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command ``bonsai``; its result has the name of the subcommand in `command`."""
    parser = argparse.ArgumentParser(
        prog="bonsai", description="Extreme multi-label classification.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"bonsai-xmc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, add_options in (
        ("train", "train a model and write it to a file", _add_train),
        ("predict", "predict the best labels of each row", _add_predict),
        ("explain", "explain why a row gets its labels, and why not others", _add_explain),
        ("evaluate", "evaluate a model, or predictions, on rows whose labels are known", _add_evaluate),
        ("calibrate", "calibrate the scores of a model, and choose its threshold", _add_calibrate),
        ("learn", "go on training a model with further rows", _add_learn),
        ("info", "describe a model", _add_info),
        ("labels", "list the labels of a model, or write a model with other labels", _add_labels),
        ("convert", "convert rows into a folder of arrays, which is mapped into memory", _add_convert),
        ("import", "convert a model of omikuji 0.5", _add_import),
        ("serve", "serve models of texts over HTTP, with a page to try them", _add_serve),
        ("demo", "train, evaluate and predict on generated texts", lambda command: None),
    ):
        description = f"{text[0].upper()}{text[1:]}."
        command = commands.add_parser(name, help=text, description=description, allow_abbrev=False)
        add_options(command)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("-q", "--quiet", action="store_true", help="print no progress and no summary")
    return parser


def _add_train(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    _add_rows(command, "TRAIN", "trn")
    add("-o", "--output", metavar="MODEL", required=True, help="model file to write; -: standard output")
    add("--n-features", type=int, metavar="N", help="number of features, if TRAIN does not say")
    add("--n-labels", type=int, metavar="N", help="number of labels, if TRAIN does not say")
    add("--preset", choices=PRESETS, help="parameters of a method of the paper")
    add(
        "--params",
        metavar="FILE",
        help="JSON object of parameters; overrides --preset, overridden by options",
    )
    add(
        "--checkpoint",
        metavar="DIR",
        help="folder for finished units of work: after a crash or an interrupt, the same command continues",
    )
    add(
        "--max-memory",
        metavar="SIZE",
        default="auto",
        help="bytes that training may take, such as 4GB: fewer threads where all would need more, or an "
        "error at the start (default: the limit of the container or of ulimit -v, if there is one)",
    )
    add(
        "--ray",
        metavar="auto|ADDRESS|local",
        help="train on a Ray cluster: the one that runs here, at host:port, or a new one on this machine",
    )
    names = (TEXTS, CLASSIFIERS, TREES, PREDICTION, RUN)
    groups = {name: command.add_argument_group(name) for name in names}
    _add_fields(groups[TEXTS])
    groups[TEXTS].add_argument(
        "--label-names",
        metavar="FILE",
        help="names of the labels, to be kept in the model: lines id<TAB>name, or JSON objects",
    )
    groups[TEXTS].add_argument(
        "--label-texts",
        metavar="FILE",
        help="names, synonyms and descriptions of labels, which their classifiers lean on, so that labels "
        "without rows can be suggested: lines id<TAB>name<TAB>text|text, or JSON objects",
    )
    groups[TEXTS].add_argument(
        "--tune",
        action="store_true",
        help="search for weights of fields and n-grams and for power on held-out rows: up to 34 trainings "
        "on samples of at most 16,000 rows",
    )
    for name in TEXT_PARAMETERS:
        _add_parameter(groups[TEXTS], name)
    for name in dict.fromkeys(["classifiers", "search", *PARAMETERS]):  # the choice of the method first
        _add_parameter(groups[PARAMETERS[name].group], name)


def _add_predict(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file; -: standard input")
    _add_rows(command, "INPUT", "tst", labels=False)
    add("-k", type=int, default=5, help="labels for each row, if the model has as many (default: 5)")
    add("-o", "--output", metavar="OUT", help="file to write (default: -, standard output)")
    add("--names", action="store_true", help="write name<TAB>score<TAB>name<TAB>score… instead of ids")
    add(
        "--label-names",
        metavar="FILE",
        help="names from a file: one on each line; with a model of texts lines id<TAB>name or JSON objects",
    )
    add(
        "--output-format",
        choices=OUTPUT_FORMATS,
        help="with a model of texts (default: table for a text and on a terminal, otherwise by the name of "
        "OUT: .jsonl, .csv, .tsv, or .txt for scores as of the Extreme Classification Repository)",
    )
    add(
        "--threshold",
        **PARAMETERS["threshold"].rule.options,
        help="only labels of at least this score; auto: the threshold of the model (default: the -k best)",
    )
    # one value each: with several, the text that follows would be one of them
    add(
        "--restrict",
        action="append",
        metavar=_LABELS,
        help="find only this label; may be repeated; @FILE: one on each line",
    )
    add("--exclude", action="append", metavar=_LABELS, help="do not find this label; likewise")
    _add_fields(command.add_argument_group(TEXTS), labels=False)
    _add_prediction_parameters(command)


def _add_explain(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file; -: standard input")
    _add_rows(command, "INPUT", "tst", labels=False)
    add(
        "--row",
        type=int,
        metavar="N",
        help="row of a file, as predict counts them: the line of a document, from 1 (default: the first)",
    )
    add(
        "--label",
        action="append",
        default=[],
        metavar="NAME",
        help="explain this label; may be given more than once (default: the -k best)",
    )
    add(
        "--why-not",
        action="append",
        default=[],
        metavar="NAME",
        help="explain why this label is not further ahead, beside the -k best; may be given more than once",
    )
    add("-k", type=int, default=3, help="number of labels to explain or to compare with (default: 3)")
    add("--features", type=int, default=10, metavar="N", help="features in each table (default: 10)")
    add("--html", metavar="FILE", help="write a page instead of a table; -: standard output")
    _add_fields(command.add_argument_group(TEXTS), labels=False)
    _add_prediction_parameters(command)


def _add_learn(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file, trained with --keep-rows; -: standard input")
    _add_rows(command, "NEW", "trn")
    add("-o", "--output", metavar="OUT", required=True, help="model file to write; -: standard output")
    _add_fields(command.add_argument_group(TEXTS))
    _add_parameter(command, "n_jobs")


def _add_labels(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file; -: standard input")
    add("-o", "--output", metavar="NEW", help="model file to write; -: standard output")
    add("--list", action="store_true", help="print label, training rows and name of each label (default)")
    add("--restrict", nargs="+", metavar=_LABELS, help="keep only these labels; @FILE: one on each line")
    add("--drop", nargs="+", metavar=_LABELS, help="drop these labels")
    add(
        "--rename",
        nargs="+",
        action="append",
        metavar="OLD NEW|@FILE",
        help="rename a label; may be repeated; @FILE: lines OLD<TAB>NEW",
    )
    add(
        "--merge",
        nargs="+",
        action="append",
        metavar="INTO LABEL|@FILE",
        help="make one label of several, whose classifiers stay: the highest score counts; may be repeated; "
        "@FILE: lines INTO<TAB>LABEL<TAB>LABEL… Edits are made in this order: restrict, drop, rename, merge, "
        "add",
    )
    add(
        "--add",
        metavar="FILE",
        help="add labels that are known by their texts alone (models of texts): lines "
        "id<TAB>name<TAB>text|text, or JSON objects; labels that the model has stay as they are",
    )
    _add_parameter(command, "n_jobs")


def _add_evaluate(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL|PREDICTIONS", help="model, or output of `bonsai predict`; -: standard input")
    _add_rows(command, "TEST", "tst")
    add("-k", type=int, nargs="+", help="cutoffs of the metrics (default: 1 3 5, up to the number of labels)")
    add("--train", metavar="TRAIN", help="training labels for propensities (default: those of the model)")
    add(
        "--exact",
        action="store_true",
        help="score all labels; found@k is the share of the exact top k that the model's own search finds",
    )
    _add_fields(command.add_argument_group(TEXTS))
    add("--by-frequency", action="store_true", help="add metrics of head, torso and tail labels")
    add("--dataset", metavar="NAME", help="take the propensity parameters of this data set")
    add(
        "--propensity",
        type=float,
        nargs=2,
        metavar=("A", "B"),
        help="propensity parameters (default: 0.55 1.5)",
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
    _add_prediction_parameters(command)


def _add_calibrate(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file; -: standard input")
    _add_rows(command, "DEV", "dev")
    add("-o", "--output", metavar="OUT", required=True, help="model file to write; -: standard output")
    add(
        "--method",
        choices=(*METHODS, "none"),
        default="isotonic",
        help="isotonic regression, or logistic regression of the log score; none: choose the threshold alone "
        "(default: isotonic)",
    )
    add(
        "--groups",
        choices=("none", "frequency"),
        default="none",
        help="one map for all labels, or one for each of head, torso and tail labels (default: none)",
    )
    add(
        "--threshold",
        type=objective,
        metavar="micro_f1|f1_at_5|precision=X",
        help="what the threshold of the model is chosen for (default: micro_f1)",
    )
    _add_fields(command.add_argument_group(TEXTS))
    _add_prediction_parameters(command)


def _add_info(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file; -: standard input")
    add("--verify", action="store_true", help="check all checksums and the contents")
    add("--tree", action="store_true", help="show the levels of the trees; with --json all nodes")


def _add_import(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="FOLDER", help="folder that omikuji wrote, with settings.json and tree0.cbor")
    add("-o", "--output", metavar="MODEL", required=True, help="model file to write; -: standard output")
    add(
        "--n-labels",
        type=int,
        metavar="N",
        help="number of labels (default: the largest label + 1, if the trees have enough of them)",
    )
    add("--label-names", metavar="FILE", help="names of the labels, one on each line")
    add("--quantise", action="store_true", help="weights of 8 bits instead of 16: half the size")


def _add_serve(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("models", metavar="MODEL", nargs="+", help="model files of texts; each is served under its file name")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine alone)")
    add("--port", type=_port, default=8000, metavar="N", help="port; 0: any free one (default: 8000)")
    add("--workers", type=int, default=1, metavar="N", help="processes, which share the models (default: 1)")
    add(
        "--api-key-file",
        metavar="FILE",
        help="file with a key that clients must send (default: BONSAI_API_KEY)",
    )
    add("--max-body", type=int, metavar="N", help="maximum size of a request in bytes (default: 10000000)")
    add("--max-texts", type=int, metavar="N", help="maximum number of texts in a request (default: 1000)")
    add("--max-requests", type=int, metavar="N", help="requests in progress in a process (default: 512)")
    add("--timeout", type=float, metavar="X", help="time limit of a request in seconds (default: 30)")
    add("--rate", type=float, metavar="X", help="requests a second of each client (default: no limit)")
    _add_parameter(command, "n_jobs", "all, shared by the processes")


def _add_convert(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    _add_rows(command, "DATA", "trn")
    add("-o", "--output", metavar="DIR", required=True, help="folder to make")
    add("--n-features", type=int, metavar="N", help="number of features, if DATA does not say")
    add("--n-labels", type=int, metavar="N", help="number of labels, if DATA does not say")


def _add_fields(group: Any, labels: bool = True) -> None:
    """How documents are read; a model knows how its training file was."""
    add = group.add_argument
    add(
        "--text",
        type=_fields,
        metavar="FIELD,…",
        help="fields that hold texts, optionally with weights as in title=0.7,abstract (default: detected, "
        "or those of the model)",
    )
    if labels:
        add("--labels", dest="label_field", metavar="FIELD", help="field that holds the labels")
        add(
            "--label-separator",
            metavar="TEXT",
            help="separator of labels in a string, or one of the words space, none (default: detected)",
        )
    add("--strict", action="store_true", help="stop with an error at the first faulty row")
    add(
        "--max-line",
        type=int,
        metavar="BYTES",
        help="maximum length of a line, or of a row of a CSV file; a longer one is an error "
        f"(default: {MAX_LINE})",
    )


def _add_rows(command: argparse.ArgumentParser, name: str, split: str, labels: bool = True) -> None:
    add = command.add_argument
    what = "file or folder: " if labels else "a text (with a model of texts), or a file or folder: "
    add(
        "data",
        metavar=name,
        help=what + "documents (JSON lines, CSV, TSV, Parquet, or as for Annif, PECOS, LibMultiLabel, "
        "fastText), or features in a format of the Extreme Classification Repository, svmlight or .npz; may "
        "be compressed by gzip, bzip2 or xz; -: standard input",
    )
    if labels:
        add("labels", metavar="LABELS", nargs="?", help=f"file with the labels, if they are not in {name}")
    add(
        "--format",
        choices=("auto", *FORMATS, "xc", "split", "svmlight"),
        default="auto",
        help="format of the file (default: auto, by its content and its name)",
    )
    # a model knows the base of the svmlight file that it was trained on
    fallback = "an error" if name == "TRAIN" else "as in the training file"
    add(
        "--base",
        default="auto",
        **integer(0, "auto").options | {"metavar": "0|1|auto"},
        help="id of the first feature (default: auto: 0 if there is a header or the id 0 occurs, otherwise "
        f"{fallback})",
    )
    add("--label-base", type=int, default=0, metavar="0|1", help="id of the first label (default: 0)")
    add("--split", default=split, metavar="NAME", help=f"part of a folder: trn, tst, … (default: {split})")


def _add_prediction_parameters(command: argparse.ArgumentParser) -> None:
    _add_parameter(command, "beam_size", "as in the model")
    _add_parameter(command, "n_probe", "as in the model")
    _add_parameter(command, "n_jobs")


def _add_parameter(command: Any, name: str, shown_default: str | None = None) -> None:
    """An option for a parameter. If it is not given, it does not appear in the result at all."""
    parameter = TEXT_PARAMETERS[name] if name in TEXT_PARAMETERS else PARAMETERS[name]
    words = {True: "yes", False: "no", None: "none"}
    default = parameter.default
    shown = words[default] if default is None or isinstance(default, bool) else default
    command.add_argument(
        f"--{name.replace('_', '-')}",
        dest=name,
        default=argparse.SUPPRESS,
        help=f"{parameter.help} (default: {shown_default or shown})",
        **parameter.rule.options,
    )
