"""The options of the command line. Those for parameters follow from the signature of `Bonsai`."""

import argparse
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from bonsai_xmc import TextBonsai, __version__
from bonsai_xmc._calibration import METHODS
from bonsai_xmc._params import PRESETS
from bonsai_xmc.datasets._documents import FORMATS

from .calibrate import objective
from .predict_texts import OUTPUT_FORMATS

_LABELS = "LABEL|@FILE"  # what several options take
_KINDS = {"int": "N", "float": "X"}  # what stands for a value in the help


class _Number:
    """Reads a number or one of a few words, as the type of an option."""

    def __init__(self, kind: Callable[[str], Any], **words: Any) -> None:
        self._kind, self._words = kind, words
        # argparse shows this in its messages
        self.__name__ = " or ".join([kind.__name__, *map(repr, words)])
        self.metavar = "|".join([_KINDS[kind.__name__], *words])

    def __call__(self, text: str) -> Any:
        return self._words[text] if text in self._words else self._kind(text)


class _Parameter(NamedTuple):
    """How the text of an option becomes a parameter: a type, a tuple of words, or bool for a switch."""

    group: str
    kind: Any
    help: str
    metavar: str | None = None


_TREES, _SOLVER, _PREDICTION, _RUN = "label trees", "classifiers", "prediction", "run"

# In the order of the signature of `Bonsai`, which has the defaults.
PARAMETERS: dict[str, _Parameter] = {
    "representation": _Parameter(
        _TREES, str, "label vectors to cluster: input, output, joint, or a matrix (.npz, .npy)", "NAME|FILE"
    ),
    "n_trees": _Parameter(_TREES, _Number(int, auto="auto"), "number of trees; auto: 3"),
    "branching_factor": _Parameter(_TREES, int, "maximum number of children of a node"),
    "max_leaf_size": _Parameter(
        _TREES, _Number(int, none=None), "maximum number of labels in a leaf; none: --branching-factor"
    ),
    "max_depth": _Parameter(
        _TREES,
        _Number(int, auto="auto", none=None),
        "maximum number of levels, 1 for a single leaf; none: no maximum; auto: 3, but very large leaves are "
        "split further",
    ),
    "balanced": _Parameter(
        _TREES,
        bool,
        "clusters of equal size, or plain k-means; auto: large clusters are split again above 50,000 labels",
    ),
    "tree": _Parameter(_TREES, str, "JSON file with a tree to use instead of clustering", "FILE"),
    "kmeans_tol": _Parameter(_TREES, float, "k-means stops when the mean similarity improves by less"),
    "kmeans_max_iter": _Parameter(_TREES, int, "maximum number of k-means iterations"),
    "kmeans_init": _Parameter(_TREES, ("random", "k-means++"), "initial centroids"),
    "C": _Parameter(
        _SOLVER, _Number(float, auto="auto"), "inverse regularisation strength; auto: 1, or set by training"
    ),
    "loss": _Parameter(_SOLVER, ("squared_hinge", "logistic"), "loss function"),
    "solver": _Parameter(_SOLVER, ("dual", "newton"), "dual coordinate descent, or primal Newton method"),
    "tol": _Parameter(_SOLVER, float, "tolerance of the stopping criterion"),
    "max_iter": _Parameter(_SOLVER, int, "maximum number of passes or Newton steps"),
    "prune": _Parameter(
        _SOLVER,
        _Number(float, auto="auto"),
        "drop weights of at most this absolute value; auto: 0.05 for one-vs-rest, 0.1 for leaf classifiers",
    ),
    "bias": _Parameter(
        _SOLVER,
        _Number(float, auto="auto", learn="learn"),
        "bias of the classifiers: fixed or learnt; auto: learnt in trees, mostly fixed at -1 in one-vs-rest",
    ),
    "classifiers": _Parameter(
        _SOLVER,
        ("auto", "leaf", "one_vs_rest", "blend"),
        "train a label's classifier on the rows of its leaf, on all rows, or both; auto: most accurate on "
        "held-out rows, where one_vs_rest is affordable",
    ),
    "search": _Parameter(
        _SOLVER,
        ("auto", "exact", "index", "beam"),
        "with one-vs-rest: score all labels, the candidates of an inverted index, or those of a beam search "
        "in label trees; auto: exact up to 50,000 labels, then index",
    ),
    "path_weight": _Parameter(
        _SOLVER,
        _Number(float, auto="auto"),
        "with one-vs-rest and beam search: weight of the path's log score; auto: 0",
    ),
    "tail_exponent": _Parameter(
        _SOLVER,
        _Number(float, auto="auto"),
        "with one-vs-rest: multiply C by (mean frequency / label frequency) to this power; auto: 0.25 where "
        "possible",
    ),
    "blend_weight": _Parameter(
        _SOLVER,
        _Number(float, auto="auto"),
        "with blend: weight of the trees' scores beside those of one-vs-rest; auto: set by training",
    ),
    "logit_adjustment": _Parameter(
        _SOLVER,
        _Number(float, auto="auto"),
        "with one-vs-rest or blend: divide scores by (label frequency) to this power; auto: set by training",
    ),
    "normalize": _Parameter(_SOLVER, bool, "scale rows to unit Euclidean norm"),
    "keep_rows": _Parameter(_SOLVER, bool, "keep the training rows in the model, for bonsai learn"),
    "beam_size": _Parameter(
        _PREDICTION,
        _Number(int, auto="auto", none=None),
        "nodes that the beam search keeps at each level; none: all; auto: 10",
    ),
    "n_probe": _Parameter(
        _PREDICTION,
        _Number(int, auto="auto", none=None),
        "blocks of 128 classifiers that a search by index scores; none: all; auto: 16 + 4 k",
    ),
    "max_labels": _Parameter(_PREDICTION, int, "maximum number of labels of a row in predict_proba"),
    "threshold": _Parameter(
        _PREDICTION, _Number(float, auto="auto"), "minimum score of a label in predict; auto: set by training"
    ),
    "random_state": _Parameter(_RUN, _Number(int, none=None), "seed; none: a random one"),
    "n_jobs": _Parameter(_RUN, _Number(int, none=None), "number of threads; none: all"),
    "verbose": _Parameter(_RUN, int, "1: a line for each phase of training, even without a terminal"),
}


def _fields(text: str) -> dict[str, float | None]:
    """``title=0.7,abstract`` as names with weights; None: not given."""
    fields: dict[str, float | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, weight = part.rpartition("=")
        fields[name if sign else part] = float(weight) if sign else None
    if not fields:
        raise ValueError("no field")
    return fields


def _ngrams(text: str) -> Any:
    """``2`` as an integer, ``1=1,2=0.5,3-5=0.2`` as orders and their weights."""
    if text == "none":
        return None
    if text.isdigit():
        return int(text)
    orders: dict[Any, float] = {}
    for part in text.split(","):
        order, _, weight = part.partition("=")
        ends = tuple(map(int, order.split("-")))
        orders[ends[0] if len(ends) == 1 else ends] = float(weight)
    return orders


def _share(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


_TEXTS = "documents"
_fields.__name__, _ngrams.__name__, _share.__name__ = "list of fields", "list of orders", "number or share"

# The parameters of the texts, in the order of the signature of `TextBonsai`; its first one is --text.
TEXT_PARAMETERS: dict[str, _Parameter] = {
    "word_ngrams": _Parameter(
        _TEXTS, _ngrams, "word n-grams: the longest, or orders and weights as 1=1,2=0.5", "N|N=W,…"
    ),
    "char_ngrams": _Parameter(_TEXTS, _ngrams, "likewise character n-grams, as 5=0.6", "N|N=W,…|none"),
    "char_boundaries": _Parameter(_TEXTS, bool, "character n-grams lie within words"),
    "min_df": _Parameter(_TEXTS, _share, "leave out terms in fewer documents (a number or a share)", "N|X"),
    "max_df": _Parameter(_TEXTS, _share, "leave out terms in more documents (a number or a share)", "N|X"),
    "max_features": _Parameter(_TEXTS, _Number(int, none=None), "maximum number of terms in each block"),
    "lowercase": _Parameter(_TEXTS, bool, "ignore case"),
    "min_word_length": _Parameter(_TEXTS, int, "minimum length of words"),
    "sublinear_tf": _Parameter(_TEXTS, bool, "1 + log(tf) instead of tf"),
    "smooth_idf": _Parameter(_TEXTS, bool, "smooth document frequencies"),
    "power": _Parameter(_TEXTS, float, "raise the values of features to this power"),
    "max_ngrams": _Parameter(
        _TEXTS,
        _Number(int, auto="auto", none=None),
        "maximum number of features in a block of n-grams, those that tell most about the labels; auto: 2 "
        "for each row, at least 20,000",
    ),
}


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
        ("data", "convert a published data set into the files that datasets.load reads", _add_data_set),
        ("convert", "convert rows into a folder of arrays, which is mapped into memory", _add_convert),
        ("experiment", "run experiments of the Bonsai paper and write a report", _add_experiment),
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
    names = (_TEXTS, _SOLVER, _TREES, _PREDICTION, _RUN)
    groups = {name: command.add_argument_group(name) for name in names}
    signature = inspect.signature(TextBonsai).parameters
    _add_fields(groups[_TEXTS])
    groups[_TEXTS].add_argument(
        "--label-names",
        metavar="FILE",
        help="names of the labels, to be kept in the model: lines id<TAB>name, or JSON objects",
    )
    groups[_TEXTS].add_argument(
        "--label-texts",
        metavar="FILE",
        help="names, synonyms and descriptions of labels, which their classifiers lean on, so that labels "
        "without rows can be suggested: lines id<TAB>name<TAB>text|text, or JSON objects",
    )
    groups[_TEXTS].add_argument(
        "--tune",
        action="store_true",
        help="search for weights of fields and n-grams and for power on held-out rows: up to 34 trainings "
        "on samples of at most 16,000 rows",
    )
    for name in TEXT_PARAMETERS:
        _add_parameter(groups[_TEXTS], name, signature[name].default)
    for name in dict.fromkeys(["classifiers", "search", *PARAMETERS]):  # the choice of the method first
        _add_parameter(groups[PARAMETERS[name].group], name, signature[name].default)


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
        "OUT: .jsonl, .tsv, or .txt for scores as of the Extreme Classification Repository)",
    )
    add(
        "--threshold",
        type=_Number(float, auto="auto"),
        metavar="X|auto",
        help="only labels of at least this score; auto: the threshold of the model (default: the -k best)",
    )
    add("--restrict", nargs="+", metavar=_LABELS, help="find only these labels; @FILE: one on each line")
    add("--exclude", nargs="+", metavar=_LABELS, help="do not find these labels")
    _add_fields(command.add_argument_group(_TEXTS), labels=False)
    _add_prediction_parameters(command)


def _add_explain(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file; -: standard input")
    _add_rows(command, "INPUT", "tst", labels=False)
    add("--row", type=int, metavar="N", help="row of a file, counted from 0 (default: the first)")
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
    _add_fields(command.add_argument_group(_TEXTS), labels=False)
    _add_prediction_parameters(command)


def _add_learn(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("model", metavar="MODEL", help="model file, trained with --keep-rows; -: standard input")
    _add_rows(command, "NEW", "trn")
    add("-o", "--output", metavar="OUT", required=True, help="model file to write; -: standard output")
    _add_fields(command.add_argument_group(_TEXTS))
    _add_parameter(command, "n_jobs", None)


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
    _add_parameter(command, "n_jobs", None)


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
    _add_fields(command.add_argument_group(_TEXTS))
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
    _add_fields(command.add_argument_group(_TEXTS))
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
    add("--port", type=int, default=8000, metavar="N", help="port; 0: any free one (default: 8000)")
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
    _add_parameter(command, "n_jobs", "all, shared by the processes")


def _add_data_set(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("name", metavar="NAME", choices=["eurlex57k"], help="eurlex57k")
    add("source", metavar="SOURCE", help="folder that the published archive unpacks to")
    add("-o", "--output", metavar="DIR", help="folder to write to (default: where datasets.load searches)")


def _add_convert(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    _add_rows(command, "DATA", "trn")
    add("-o", "--output", metavar="DIR", required=True, help="folder to make")
    add("--n-features", type=int, metavar="N", help="number of features, if DATA does not say")
    add("--n-labels", type=int, metavar="N", help="number of labels, if DATA does not say")


def _add_experiment(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "names",
        metavar="NAME",
        nargs="+",
        help="datasets, powerlaw, partition, precision, tail, balance, coverage, depth, output-space, "
        "propagation, time, or all",
    )
    add(
        "--data",
        metavar="DATA",
        nargs="+",
        required=True,
        help="a known data set (eurlex57k, amazon-670k, …), a folder with training and test files, "
        "TRAIN,TEST, or generated:SHAPE*FRACTION, data generated in the shape of a known set",
    )
    add("-o", "--output", metavar="DIR", required=True, help="folder for numbers, figures and the report")
    add("--seeds", type=int, metavar="N", help="seeds of each system (default: 5, quick 2)")
    add("--quick", action="store_true", help="two seeds")
    _add_parameter(command, "n_jobs", None)


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
        type=_Number(int, auto="auto"),
        default="auto",
        metavar="0|1|auto",
        help="id of the first feature (default: auto: 0 if there is a header or the id 0 occurs, otherwise "
        f"{fallback})",
    )
    add("--label-base", type=int, default=0, metavar="0|1", help="id of the first label (default: 0)")
    add("--split", default=split, metavar="NAME", help=f"part of a folder: trn, tst, … (default: {split})")


def _add_prediction_parameters(command: argparse.ArgumentParser) -> None:
    _add_parameter(command, "beam_size", "as in the model")
    _add_parameter(command, "n_probe", "as in the model")
    _add_parameter(command, "n_jobs", None)


def _add_parameter(command: Any, name: str, default: Any) -> None:
    """An option for a parameter of `Bonsai`. If it is not given, it does not appear in the result at all."""
    parameter = (TEXT_PARAMETERS | PARAMETERS)[name]
    metavar = parameter.metavar or getattr(parameter.kind, "metavar", None)
    kind: dict[str, Any] = {"type": parameter.kind, "metavar": metavar}
    if parameter.kind is bool:
        kind = {"action": argparse.BooleanOptionalAction}
        default = default if isinstance(default, str) else "yes" if default else "no"
    elif isinstance(parameter.kind, tuple):
        kind = {"choices": parameter.kind}
    elif metavar is None:
        kind["metavar"] = _KINDS[parameter.kind.__name__]
    text = f"{parameter.help} (default: {'none' if default is None else default})"
    command.add_argument(
        f"--{name.replace('_', '-')}", dest=name, default=argparse.SUPPRESS, help=text, **kind
    )
