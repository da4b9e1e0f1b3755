"""The options of the command line. Those for the method follow from the signature of `Bonsai`."""

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from bonsai_xmc import Bonsai, __version__
from bonsai_xmc._params import PRESETS


def _or(word: str, value: Any, convert: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return value if text == word else convert(text)

    read.__name__ = f"{convert.__name__} or {word!r}"  # for argparse's error messages
    return read


# How the text of an option becomes a parameter (bool: a switch; a tuple: one of these words), and its help.
# Defaults come from the signature of `Bonsai`.
PARAMETERS: dict[str, tuple[Any, str]] = {
    "representation": (str, "what labels are clustered by: input, output, joint, or a matrix (.npz, .npy)"),
    "n_trees": (_or("auto", "auto", int), "trees in the forest; auto: 3"),
    "branching_factor": (int, "most children of a node"),
    "max_leaf_size": (_or("none", None, int), "most labels in a leaf; none: as many as --branching-factor"),
    "max_depth": (
        _or("auto", "auto", _or("none", None, int)),
        "most levels of nodes, 1: no tree; none: split until --max-leaf-size; auto: 3, but very large leaves "
        "are split on",
    ),
    "balanced": (bool, "children of equal size"),
    "tree": (str, "JSON file with a tree to use instead of clustering"),
    "kmeans_tol": (float, "clustering stops when the mean similarity gains less"),
    "kmeans_max_iter": (int, "most iterations of clustering"),
    "kmeans_init": (("random", "k-means++"), "first centres"),
    "C": (_or("auto", "auto", float), "weight of the losses against the regularisation; auto: 1"),
    "loss": (("squared_hinge", "logistic"), "loss of the classifiers"),
    "solver": (("dual", "newton"), "how the classifiers are trained"),
    "tol": (float, "tolerance of the solver"),
    "max_iter": (int, "most passes of the solver"),
    "prune": (
        _or("auto", "auto", float),
        "drop weights of at most this size; auto: 0.05 for one-vs-rest, 0.1 for leaf classifiers",
    ),
    "bias": (
        _or("auto", "auto", _or("learn", "learn", float)),
        "of the classifiers: a fixed number, learn, or auto",
    ),
    "classifiers": (
        ("auto", "leaf", "one_vs_rest"),
        "what ranks labels: classifiers trained on the rows of a leaf, or each label against all rows; auto: "
        "one_vs_rest where it is affordable",
    ),
    "search": (
        ("auto", "exact", "beam"),
        "with one-vs-rest: score all labels, or those that a beam search of trees finds; auto: exact up to "
        "200,000 labels",
    ),
    "path_weight": (
        _or("auto", "auto", float),
        "with one-vs-rest and beam search: weight of the path's log score; auto: 0",
    ),
    "tail_exponent": (
        _or("auto", "auto", float),
        "with one-vs-rest: C grows by this power as labels get rarer; auto: 0.25 where possible",
    ),
    "normalize": (bool, "divide each row by its Euclidean norm"),
    "beam_size": (
        _or("auto", "auto", _or("none", None, int)),
        "nodes that a row follows at each level; none: all of them; auto: 10",
    ),
    "max_labels": (int, "most labels of a row in predict_proba"),
    "threshold": (_or("auto", "auto", float), "score from which predict takes a label; auto: 0.5"),
    "random_state": (_or("none", None, int), "seed; none: a fresh one"),
    "n_jobs": (_or("none", None, int), "threads; none: all"),
    "verbose": (int, "1: a line for each phase, on a terminal or not"),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command ``bonsai``; its result has the name of the subcommand in `command`."""
    parser = argparse.ArgumentParser(
        prog="bonsai",
        description="Extreme multi-label classification with diverse, shallow label trees.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bonsai-xmc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, add_options in (
        ("train", "train a model and write it to a file", _add_train),
        ("predict", "predict the best labels of each row", _add_predict),
        ("evaluate", "measure a model, or predictions, on rows whose labels are known", _add_evaluate),
        ("info", "say what a model is made of", _add_info),
        ("data", "turn a data set as it is published into the files that datasets.load reads", _add_data_set),
        ("experiment", "run experiments of the paper and write a report", _add_experiment),
    ):
        description = f"{text[0].upper()}{text[1:]}."
        command = commands.add_parser(name, help=text, description=description, allow_abbrev=False)
        add_options(command.add_argument)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument(
            "-q", "--quiet", action="store_true", help="no progress, no table of the training"
        )
    return parser


Add = Callable[..., argparse.Action]  # `add_argument` of a parser


def _add_train(add: Add) -> None:
    _add_data(add, "TRAIN", "trn")
    add("-o", "--output", metavar="MODEL", required=True, help="file to write the model to; - for the output")
    add("--n-features", type=int, metavar="N", help="number of features, if TRAIN does not say")
    add("--n-labels", type=int, metavar="N", help="number of labels, if TRAIN does not say")
    add(
        "--preset",
        choices=PRESETS,
        help="a member of the paper's family",
    )
    add(
        "--params",
        metavar="FILE",
        help="JSON object of parameters; wins over the preset, options win over it",
    )
    for name in PARAMETERS:
        _add_parameter(add, name, inspect.signature(Bonsai).parameters[name].default)


def _add_predict(add: Add) -> None:
    add("model", metavar="MODEL")
    _add_data(add, "INPUT", "tst", labels=False)
    add("-k", type=int, default=5, help="labels for each row, if there are as many (default: 5)")
    add("-o", "--output", metavar="OUT", help="file to write (default: standard output)")
    add("--names", action="store_true", help="write name<TAB>score<TAB>name<TAB>score… instead of ids")
    add("--label-names", metavar="FILE", help="the same with names from a file, one on each line")
    for name in ("beam_size", "n_jobs"):
        _add_parameter(add, name, "as the model says" if name == "beam_size" else None)


def _add_evaluate(add: Add) -> None:
    add("model", metavar="MODEL|PREDICTIONS", help="a model, or a file of `bonsai predict`")
    _add_data(add, "TEST", "tst")
    add("-k", type=int, nargs="+", help="cutoffs of the metrics (default: 1 3 5, up to the number of labels)")
    add(
        "--train",
        metavar="TRAIN",
        help="training labels for propensities (default: those that the model saw)",
    )
    add(
        "--exact",
        action="store_true",
        help="score all labels; found@k tells how many of the best the model's own search finds",
    )
    add("--by-frequency", action="store_true", help="split by head, torso and tail labels, too")
    add("--dataset", metavar="NAME", help="take the propensity parameters of this data set")
    add(
        "--propensity",
        type=float,
        nargs=2,
        metavar=("A", "B"),
        help="propensity parameters (default: 0.55 1.5)",
    )
    for name in ("beam_size", "n_jobs"):
        _add_parameter(add, name, "as the model says" if name == "beam_size" else None)


def _add_info(add: Add) -> None:
    add("model", metavar="MODEL")
    add("--verify", action="store_true", help="check the checksums of all data")
    add("--tree", action="store_true", help="show the levels of the trees; with --json all nodes")


def _add_data_set(add: Add) -> None:
    add("name", metavar="NAME", choices=["eurlex57k"], help="eurlex57k")
    add("source", metavar="SOURCE", help="folder that the published archive unpacks to")
    add("-o", "--output", metavar="DIR", help="folder to write to (default: where datasets.load looks)")


def _add_experiment(add: Add) -> None:
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
        help="a known data set (eurlex57k, amazon-670k, …), a folder with train and test files, TRAIN,TEST, "
        "or generated:SHAPE*FRACTION, a stand-in of this shape",
    )
    add("-o", "--output", metavar="DIR", required=True, help="folder for numbers, pictures and the report")
    add("--seeds", type=int, metavar="N", help="seeds of each system (default: 5, quick 2)")
    add("--quick", action="store_true", help="two seeds")
    _add_parameter(add, "n_jobs", None)


def _add_data(add: Add, name: str, split: str, labels: bool = True) -> None:
    add(
        "data",
        metavar=name,
        help="file or folder in a format of the XC repository, svmlight or .npz; - for standard input; text "
        "may be compressed by gzip, bzip2 or xz",
    )
    if labels:
        add("labels", metavar="LABELS", nargs="?", help="file with the labels, if they are not in " + name)
    add(
        "--format",
        choices=("auto", "xc", "split", "svmlight"),
        default="auto",
        help="of text (default: auto)",
    )
    add(
        "--base",
        type=_or("auto", "auto", int),
        default="auto",
        help="id of the first feature: 0, 1, or auto (the default): 0 if there is a header; in svmlight 0 if "
        "the id 0 occurs, else as in the model's training file, else an error",
    )
    add("--label-base", type=int, default=0, metavar="BASE", help="id of the first label (default: 0)")
    add("--split", default=split, help=f"part of a folder (default: {split})")


def _add_parameter(add: Add, name: str, default: Any) -> None:
    """An option for a parameter of `Bonsai`. If it is not given, it does not appear in the result at all."""
    convert, text = PARAMETERS[name]
    metavar = {int: "N", float: "X", str: "FILE"}.get(convert, "N")
    kind: dict[str, Any] = {"type": convert, "metavar": metavar}
    if convert is bool:
        kind = {"action": argparse.BooleanOptionalAction}
        default = "yes" if default else "no"
    elif isinstance(convert, tuple):
        kind = {"choices": convert}
    text += f" (default: {'none' if default is None else default})"
    add(f"--{name.replace('_', '-')}", dest=name, default=argparse.SUPPRESS, help=text, **kind)
