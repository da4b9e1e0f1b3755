"""Rules for the estimator's parameters, and the named settings."""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

PRESETS: dict[str, dict[str, Any]] = {
    "best": {"ranker": "auto", "rare_power": 0.25, "prune": 0.05, "max_depth": 3},
    "bonsai-i": {"representation": "input", "max_depth": 3},
    "bonsai-o": {"representation": "output", "max_depth": 3},
    "bonsai-io": {"representation": "joint", "max_depth": 3},
    "parabel": {"branching": 2, "balanced": True, "max_leaf": 100},
    "parabel-o": {"representation": "output", "branching": 2, "balanced": True, "max_leaf": 100},
    "balanced": {"branching": 100, "balanced": True},
    "dismec": {"n_trees": 1, "max_depth": 1, "prune": 0.01, "beam": None},
}

Rule = tuple[Callable[[Any], bool], str]


def _whole(least: int) -> Rule:
    is_whole = lambda v: isinstance(v, Integral) and not isinstance(v, bool) and int(v) >= least
    return is_whole, f"a whole number of at least {least}"


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
    return lambda v: same(v) or holds(v), f"{word!r} or {text}"


_positive = _number(lambda v: v > 0, "a number above 0")
_not_negative = _number(lambda v: v >= 0, "a number of at least 0")
_representations = _one_of("input", "output", "joint")

RULES: Mapping[str, Rule] = {
    "representation": (
        lambda v: _representations[0](v) or (not isinstance(v, str) and hasattr(v, "shape")),
        f"{_representations[1]}, or a matrix with one row for each label",
    ),
    "n_trees": _whole(1),
    "branching": _whole(2),
    "max_leaf": _or(None, _whole(1)),
    "max_depth": _or(None, _whole(1)),
    "balanced": _flag(),
    "kmeans_tol": _not_negative,
    "kmeans_max_iter": _whole(1),
    "kmeans_init": _one_of("random", "k-means++"),
    "C": _positive,
    "loss": _one_of("squared_hinge", "logistic"),
    "solver": _one_of("dual", "newton"),
    "ranker": _one_of("node", "all", "auto"),
    "search": _one_of("trees", "exact", "auto"),
    "path_power": _not_negative,
    "rare_power": _not_negative,
    "tol": _positive,
    "max_iter": _whole(1),
    "prune": _not_negative,
    "bias": _or("auto", _or("learn", _number(lambda v: True, "a number"))),
    "normalize": _flag(),
    "beam": _or(None, _whole(1)),
    "keep": _whole(1),
    "threshold": _number(lambda v: 0 <= v <= 1, "a number from 0 to 1"),
    "n_jobs": _or(None, (lambda v: isinstance(v, Integral) and v != 0, "a whole number other than 0")),
}


def _at_most_minus_one(bias: Any) -> bool:
    return not isinstance(bias, str) and bias <= -1


def check_params(params: Mapping[str, Any]) -> None:
    """Raise ValueError for the first parameter that breaks its rule."""
    for name, (holds, text) in RULES.items():
        value = params[name]
        if not holds(value):
            shown = repr(value) if np.ndim(value) == 0 else f"of type {type(value).__name__}"
            raise ValueError(f"{name} is {shown}, but must be {text}")
    if params["ranker"] == "node" and params["search"] == "exact":
        raise ValueError("search='exact' needs ranker='all'; with ranker='node', beam=None follows all nodes")
    if params["rare_power"] > 0 and (params["loss"] != "squared_hinge" or params["solver"] != "dual"):
        raise ValueError("rare_power needs loss='squared_hinge' and solver='dual'")
    if params["rare_power"] > 0 and not (params["bias"] == "auto" or _at_most_minus_one(params["bias"])):
        raise ValueError(f"rare_power needs a bias held at −1 or below, but bias is {params['bias']!r}")
    seed = params["random_state"]
    if isinstance(seed, Integral) and not 0 <= int(seed) < 2**64:
        raise ValueError(f"random_state is {seed}, but a seed lies from 0 to 2⁶⁴ − 1")
