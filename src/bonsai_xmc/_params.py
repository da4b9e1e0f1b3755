"""Rules for the estimator's parameters, and the named settings."""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

PRESETS: dict[str, dict[str, Any]] = {
    "bonsai-i": {"classifiers": "leaf"},
    "bonsai-o": {"classifiers": "leaf", "representation": "output"},
    "bonsai-io": {"classifiers": "leaf", "representation": "joint"},
    "parabel": {
        "classifiers": "leaf",
        "branching_factor": 2,
        "balanced": True,
        "max_leaf_size": 100,
        "max_depth": None,
    },
    "parabel-o": {
        "classifiers": "leaf",
        "representation": "output",
        "branching_factor": 2,
        "balanced": True,
        "max_leaf_size": 100,
        "max_depth": None,
    },
    "balanced": {"classifiers": "leaf", "balanced": True, "max_depth": None},
    "dismec": {"classifiers": "leaf", "n_trees": 1, "max_depth": 1, "prune": 0.01, "beam_size": None},
}

Rule = tuple[Callable[[Any], bool], str]


def _integer(least: int, most: int = 2**31 - 1) -> Rule:
    holds = lambda v: isinstance(v, Integral) and not isinstance(v, bool) and least <= int(v) <= most
    return (
        holds,
        f"an integer of at least {least}" if most == 2**31 - 1 else f"an integer from {least} to {most:,}",
    )


def _number(holds: Callable[[float], bool], text: str) -> Rule:
    is_number = lambda v: (
        isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) and holds(float(v))
    )
    return is_number, text


def _one_of(*names: str) -> Rule:
    return lambda v: isinstance(v, str) and v in names, f"one of {', '.join(map(repr, names))}"


def _flag() -> Rule:
    return lambda v: isinstance(v, bool | np.bool_), "True or False"


def _or(word: Any, rule: Rule) -> Rule:
    holds, text = rule
    same = lambda v: v is None if word is None else isinstance(v, str) and v == word
    joint = ", " if text.startswith(("None", "'learn'")) else " or "
    return lambda v: same(v) or holds(v), f"{word!r}{joint}{text}"


_positive = _number(lambda v: v > 0, "a number above 0")
_not_negative = _number(lambda v: v >= 0, "a number of at least 0")
_representations = _one_of("input", "output", "joint")

RULES: Mapping[str, Rule] = {
    "representation": (
        lambda v: _representations[0](v) or (not isinstance(v, str) and hasattr(v, "shape")),
        f"{_representations[1]}, or a matrix with one row for each label",
    ),
    "n_trees": _or("auto", _integer(1)),
    "branching_factor": _integer(2),
    "max_leaf_size": _or(None, _integer(1)),
    "max_depth": _or("auto", _or(None, _integer(1))),
    "balanced": _flag(),
    "kmeans_tol": _not_negative,
    "kmeans_max_iter": _integer(1),
    "kmeans_init": _one_of("random", "k-means++"),
    "C": _or("auto", _positive),
    "loss": _one_of("squared_hinge", "logistic"),
    "solver": _one_of("dual", "newton"),
    "tol": _positive,
    "max_iter": _integer(1),
    "prune": _or("auto", _not_negative),
    "bias": _or("auto", _or("learn", _number(lambda v: True, "a number"))),
    "classifiers": _one_of("leaf", "one_vs_rest", "auto"),
    "search": _one_of("beam", "exact", "auto"),
    "path_weight": _or("auto", _not_negative),
    "tail_exponent": _or("auto", _not_negative),
    "normalize": _flag(),
    "beam_size": _or("auto", _or(None, _integer(1))),
    "max_labels": _integer(1),
    "threshold": _or("auto", _number(lambda v: 0 <= v <= 1, "a number from 0 to 1")),
    "n_jobs": _or(None, (lambda v: isinstance(v, Integral) and v != 0, "an integer other than 0")),
}


def check_params(params: Mapping[str, Any]) -> None:
    """Raise ValueError for the first parameter that breaks its rule; `_strategy` checks how they fit."""
    for name, (holds, text) in RULES.items():
        value = params[name]
        if not holds(value):
            shown = repr(value) if np.ndim(value) == 0 else f"of type {type(value).__name__}"
            raise ValueError(f"{name} is {shown}, but must be {text}")
    seed = params["random_state"]
    if isinstance(seed, Integral) and not 0 <= int(seed) < 2**64:
        raise ValueError(f"random_state is {seed}, but a seed lies from 0 to 2⁶⁴ − 1")
