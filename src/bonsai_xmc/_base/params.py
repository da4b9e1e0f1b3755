"""The parameters of the estimators: one table, from which rules, messages, options and keys of files follow.

A new parameter is a row here, its place in the signature of `Bonsai`, and its use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from bonsai_xmc._base.rules import (
    Rule,
    flag,
    integer,
    is_flag,
    nonzero_integer,
    number,
    number_between,
    one_of,
)

MAX_THREADS = 1024
# Beyond these, products leave the range of float32.
_LARGE, _SMALL = 1e9, 1e-9
# The groups of the command line's help.
TEXTS, TREES, CLASSIFIERS = "documents", "label trees", "classifiers"
PREDICTION, RUN = "prediction", "run"


@dataclass(frozen=True)
class Parameter:
    """A parameter of the constructor.

    Attributes
    ----------
    default : object
        As in the signature of `Bonsai`.
    rule : Rule
    group : str
        TREES and CLASSIFIERS belong to training and are frozen by `fit`; PREDICTION is checked when it is
        used and when a model is saved; RUN does not belong to a model, except for the seed.
    help : str
        What it does, for the command line.
    """

    default: Any
    rule: Rule
    group: str
    help: str


# What labels are clustered by; "text": the vectors of their names, by themselves or with the others.
REPRESENTATIONS = ("input", "output", "joint", "text", "input+text", "output+text", "joint+text")
_representations = one_of(*REPRESENTATIONS)
_seed = Rule(lambda v: True, "a seed", int, "N", (None,))
_share = number(lambda v: 0 < v < 1, "a number above 0 and below 1", "auto")
_row_tree_share = number(lambda v: 0 <= v < 1, "a number from 0 to below 1", "auto")


def _are_shares(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return len(value) == 2 and _share.allows(value[0]) and _row_tree_share.allows(value[1])
    return _share.holds(value)


def _shares(text: str) -> Any:
    """Read ``0.3`` as a number, ``0.3,0.1`` and ``auto,0`` as a pair."""
    values = tuple(part if part == "auto" else float(part) for part in text.split(","))
    return values if len(values) > 1 else values[0]


_shares.__name__ = "number or pair"

PARAMETERS: Mapping[str, Parameter] = {
    "representation": Parameter(
        "input",
        Rule(
            lambda v: _representations.holds(v) or (not isinstance(v, str) and hasattr(v, "shape")),
            f"{_representations.must_be}, or a matrix with one row for each label",
            str,
            "NAME|FILE",
        ),
        TREES,
        "label vectors to cluster: input, output, joint, text (names, by --label-texts), input+text, …, "
        "or a matrix (.npz, .npy)",
    ),
    "n_trees": Parameter(3, integer(1), TREES, "number of trees"),
    "branching_factor": Parameter(100, integer(2), TREES, "maximum number of children of a node"),
    "max_leaf_size": Parameter(
        None, integer(1, None), TREES, "maximum number of labels in a leaf; none: --branching-factor"
    ),
    "max_depth": Parameter(
        "auto",
        integer(1, "auto", None),
        TREES,
        "maximum number of levels, 1 for a single leaf; none: no maximum; auto: 3, but very large leaves are "
        "split further",
    ),
    "balance": Parameter(
        "auto",
        one_of("auto", "none", "bounded", "equal"),
        TREES,
        "plain k-means, large clusters split again, or clusters of equal size; auto: none up to 50,000 "
        "labels, then bounded",
    ),
    "C": Parameter(
        "auto",
        number_between(_SMALL, _LARGE, "auto"),
        CLASSIFIERS,
        "inverse regularisation strength; auto: 1, 10 with the logistic loss, or set by training",
    ),
    "loss": Parameter("squared_hinge", one_of("squared_hinge", "logistic"), CLASSIFIERS, "loss function"),
    "solver": Parameter(
        "dual", one_of("dual", "newton"), CLASSIFIERS, "dual coordinate descent, or primal Newton method"
    ),
    "tol": Parameter(
        0.1,
        number(lambda v: 0 < v <= _LARGE, f"a number above 0 and at most {_LARGE:g}"),
        CLASSIFIERS,
        "tolerance of the stopping criterion",
    ),
    "max_iter": Parameter(20, integer(1), CLASSIFIERS, "maximum number of passes or Newton steps"),
    "prune": Parameter(
        "auto",
        number_between(0, _LARGE, "auto"),
        CLASSIFIERS,
        "drop weights of at most this absolute value; auto: 0.05 for one-vs-rest, 0.1 for leaf classifiers, "
        "of many labels up to 0.3",
    ),
    "classifiers": Parameter(
        "auto",
        one_of("auto", "leaf", "one_vs_rest", "blend"),
        CLASSIFIERS,
        "train a label's classifier on the rows of its leaf, on all rows, or both; auto: most accurate on "
        "held-out rows, where one_vs_rest is affordable",
    ),
    "search": Parameter(
        "auto",
        one_of("auto", "exact", "index"),
        CLASSIFIERS,
        "with one-vs-rest: score all labels, or the candidates of an inverted index; auto: exact up to "
        "50,000 labels, then index",
    ),
    "tail_exponent": Parameter(
        "auto",
        number_between(0, 10, "auto"),
        CLASSIFIERS,
        "with one-vs-rest: multiply C by (mean frequency / label frequency) to this power; auto: 0.25 where "
        "possible",
    ),
    "blend_weight": Parameter(
        "auto",
        Rule(
            _are_shares,
            "a number above 0 and below 1, or a pair of such a number and one from 0 to below 1",
            _shares,
            "X|X,X",
            ("auto",),
        ),
        CLASSIFIERS,
        "with blend: weight of the trees' scores against those of one-vs-rest; after a comma, of 50 "
        "trees over rows (FastXML) against all others, as in auto,0; auto: set by training",
    ),
    "logit_adjustment": Parameter(
        "auto",
        number_between(0, 10, "auto"),
        CLASSIFIERS,
        "with one-vs-rest or blend: divide scores by (label frequency) to this power; auto: set by training",
    ),
    "normalize": Parameter(True, flag(), CLASSIFIERS, "scale rows to unit Euclidean norm"),
    "beam_size": Parameter(
        10, integer(1, None), PREDICTION, "nodes that the beam search keeps at each level; none: all"
    ),
    "n_probe": Parameter(
        "auto",
        integer(1, "auto", None),
        PREDICTION,
        "blocks of 128 classifiers that a search by index scores; none: all; auto: as `fit` has measured",
    ),
    "max_labels": Parameter(
        100, integer(1, None), PREDICTION, "maximum number of labels of a row in predict_proba; none: all"
    ),
    "threshold": Parameter(
        "auto",
        number_between(0, 1, "auto", "per_label"),
        PREDICTION,
        "minimum score of a label in predict; auto: set by training; per_label: one for each label, too",
    ),
    "random_state": Parameter(0, _seed, RUN, "seed; none: a random one"),
    "n_jobs": Parameter(None, nonzero_integer(MAX_THREADS, None), RUN, "number of threads; none: all"),
}


def _ngram_orders(text: str) -> Any:
    """Read ``2`` as an integer, ``1=1,2=0.5,3-5=0.2`` as orders and their weights."""
    if text.isdigit():
        return int(text)
    orders: dict[Any, float] = {}
    for part in text.split(","):
        order, _, weight = part.partition("=")
        ends = tuple(map(int, order.split("-")))
        orders[ends[0] if len(ends) == 1 else ends] = float(weight)
    return orders


def _number_or_share(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


_ngram_orders.__name__, _number_or_share.__name__ = "list of orders", "number or share"


def _is_document_frequency(value: Any) -> bool:
    if isinstance(value, Integral):
        return not isinstance(value, bool) and int(value) >= 1
    return isinstance(value, Real) and 0 <= float(value) <= 1


# `_text.blocks` checks the values of these.
_ngrams = Rule(lambda v: True, "", _ngram_orders, "N|N=W,…", ("auto", None))
_document_frequency = Rule(
    _is_document_frequency,
    "a number of documents (an integer of at least 1) or a share of all (a float from 0 to 1)",
    _number_or_share,
    "N|X",
)

# The parameters of texts, in the order of `TextBonsai`'s signature, after the fields.
TEXT_PARAMETERS: Mapping[str, Parameter] = {
    "word_ngrams": Parameter(
        "auto",
        _ngrams,
        TEXTS,
        "word n-grams: the longest, or orders and weights as 1=1,2=0.5; auto: words, and n-grams of the only "
        "text if it is short",
    ),
    "char_ngrams": Parameter("auto", _ngrams, TEXTS, "the same for character n-grams, as 5=0.6"),
    "char_boundaries": Parameter(True, flag(), TEXTS, "character n-grams lie within words"),
    "min_df": Parameter(
        2, _document_frequency, TEXTS, "leave out terms in fewer documents (a number or a share)"
    ),
    "max_df": Parameter(
        1.0, _document_frequency, TEXTS, "leave out terms in more documents (a number or a share)"
    ),
    "max_features": Parameter(None, integer(1, None), TEXTS, "maximum number of terms in each block"),
    "lowercase": Parameter(True, flag(), TEXTS, "ignore case"),
    "min_word_length": Parameter(2, integer(1), TEXTS, "minimum length of words"),
    "sublinear_tf": Parameter(True, flag(), TEXTS, "1 + log(tf) instead of tf"),
    "smooth_idf": Parameter(True, flag(), TEXTS, "smooth document frequencies"),
    "power": Parameter(
        1.0,
        number(lambda v: 0 < v <= 10, "a number above 0, and at most 10"),
        TEXTS,
        "raise the values of features to this power",
    ),
    "max_ngrams": Parameter(
        "auto",
        integer(1, "auto", None),
        TEXTS,
        "maximum number of features in a block of n-grams, those most strongly associated with labels; auto: "
        "2 for each row, at least 20,000",
    ),
}

# The parameters that every system has.
COMMON: Mapping[str, Parameter] = {name: PARAMETERS[name] for name in ("threshold", "random_state", "n_jobs")}

DEFAULTS: Mapping[str, Any] = {name: parameter.default for name, parameter in PARAMETERS.items()}
# Saved with a model: those of training as `fit` used them, those of prediction as they are at that time.
OF_TRAINING = (
    *(name for name, parameter in PARAMETERS.items() if parameter.group in (TREES, CLASSIFIERS)),
    "random_state",
)
OF_PREDICTION = tuple(name for name, parameter in PARAMETERS.items() if parameter.group == PREDICTION)

_PARABEL = {
    "classifiers": "leaf",
    "branching_factor": 2,
    "balance": "equal",
    "max_leaf_size": 100,
    "max_depth": None,
}
PRESETS: dict[str, dict[str, Any]] = {
    "bonsai-i": {"classifiers": "leaf", "balance": "none"},
    "bonsai-o": {"classifiers": "leaf", "representation": "output", "balance": "none"},
    "bonsai-io": {"classifiers": "leaf", "representation": "joint", "balance": "none"},
    "parabel": _PARABEL,
    "parabel-o": {**_PARABEL, "representation": "output"},
    "balanced": {"classifiers": "leaf", "balance": "equal", "max_depth": None},
    "dismec": {"classifiers": "leaf", "n_trees": 1, "max_depth": 1, "prune": 0.01, "beam_size": None},
}


def is_by_names(representation: Any) -> bool:
    """Return whether labels are clustered by their names, by themselves or with other vectors."""
    return isinstance(representation, str) and representation.endswith("text")


def check(name: str, value: Any, table: Mapping[str, Parameter] = PARAMETERS) -> None:
    """Raise ValueError if the value breaks the rule of the parameter, of `Bonsai` or of another table."""
    rule = table[name].rule
    if name == "representation" and isinstance(value, str) and value == "custom":
        raise ValueError(
            "this model was trained with label vectors of your own, which its file does not hold: pass them "
            "again, as in model.set_params(representation=vectors), or choose another representation"
        )
    if not rule.allows(value):
        several = getattr(value, "ndim", isinstance(value, list))
        shown = f"of type {type(value).__name__}" if several else repr(value)
        raise ValueError(f"{name} is {shown}, but must be {rule.text}")


def plain(value: Any) -> Any:
    """Return numbers and words as Python's own types, which files can hold; anything else as it is."""
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    if is_flag(value):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    return str(value) if isinstance(value, str) else value


def check_params(params: Mapping[str, Any], table: Mapping[str, Parameter] = PARAMETERS) -> dict[str, Any]:
    """Return the parameters, numbers as Python's own; `_selection.strategy` checks how they fit.

    Raise ValueError for the first that breaks its rule.
    """
    for name in table:
        check(name, params[name], table)
    seed = params["random_state"]
    if isinstance(seed, Integral) and not 0 <= int(seed) < 2**64:
        raise ValueError(f"random_state is {seed}, but a seed is from 0 to 2⁶⁴ − 1")
    return {name: plain(value) for name, value in params.items()}
