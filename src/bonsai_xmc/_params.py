"""Rules for the estimator's parameters, and the named settings."""

import math
import secrets
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bonsai_xmc import _core

PRESETS: dict[str, dict[str, Any]] = {
    "bonsai-i": {"classifiers": "leaf", "balanced": False},
    "bonsai-o": {"classifiers": "leaf", "representation": "output", "balanced": False},
    "bonsai-io": {"classifiers": "leaf", "representation": "joint", "balanced": False},
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

# Checked when they are used and when a model is saved; all others belong to training and are frozen by `fit`.
PREDICTION = ("beam_size", "n_probe", "max_labels", "threshold")
MAX_THREADS = 1024
# Neither belongs to a model: the same data and seed give the same file whatever they are.
RUNTIME = ("n_jobs", "verbose")

Rule = tuple[Callable[[Any], bool], str]


def _integer(least: int) -> Rule:
    holds = lambda v: isinstance(v, Integral) and not isinstance(v, bool) and least <= int(v) < 2**31
    return holds, f"an integer from {least} to 2³¹ − 1"


def _nonzero(most: int) -> Rule:
    holds = lambda v: isinstance(v, Integral) and not isinstance(v, bool) and 0 < abs(int(v)) <= most
    return holds, f"an integer from −{most:,} to {most:,} other than 0"


def _number(holds: Callable[[float], bool], text: str) -> Rule:
    is_number = lambda v: (
        isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) and holds(float(v))
    )
    return is_number, text


def _from_to(least: float, most: float) -> Rule:
    return _number(lambda v: least <= v <= most, f"a number from {least:g} to {most:g}")


def _one_of(*names: str) -> Rule:
    return lambda v: isinstance(v, str) and v in names, f"one of {', '.join(map(repr, names))}"


def _flag() -> Rule:
    return lambda v: isinstance(v, bool | np.bool_), "True or False"


def _or(word: Any, rule: Rule) -> Rule:
    holds, text = rule
    same = lambda v: v is None if word is None else isinstance(v, str) and v == word
    joint = ", " if text.startswith(("None", "True", "'bounded'", "'learn'")) else " or "
    return lambda v: same(v) or holds(v), f"{word!r}{joint}{text}"


_representations = _one_of("input", "output", "joint")
# Beyond these, products leave the range of float32.
_LARGE, _SMALL = 1e9, 1e-9

RULES: Mapping[str, Rule] = {
    "representation": (
        lambda v: _representations[0](v) or (not isinstance(v, str) and hasattr(v, "shape")),
        f"{_representations[1]}, or a matrix with one row for each label",
    ),
    "n_trees": _or("auto", _integer(1)),
    "branching_factor": _integer(2),
    "max_leaf_size": _or(None, _integer(1)),
    "max_depth": _or("auto", _or(None, _integer(1))),
    "balanced": _or("auto", _or("bounded", _flag())),
    "kmeans_tol": _from_to(0, _LARGE),
    "kmeans_max_iter": _integer(1),
    "kmeans_init": _one_of("random", "k-means++"),
    "C": _or("auto", _from_to(_SMALL, _LARGE)),
    "loss": _one_of("squared_hinge", "logistic"),
    "solver": _one_of("dual", "newton"),
    "tol": _number(lambda v: 0 < v <= _LARGE, f"a number above 0 and at most {_LARGE:g}"),
    "max_iter": _integer(1),
    "prune": _or("auto", _from_to(0, _LARGE)),
    "bias": _or("auto", _or("learn", _from_to(-_LARGE, _LARGE))),
    "classifiers": _one_of("leaf", "one_vs_rest", "blend", "auto"),
    "search": _one_of("beam", "exact", "index", "auto"),
    "path_weight": _or("auto", _from_to(0, _LARGE)),
    "tail_exponent": _or("auto", _from_to(0, 10)),
    "blend_weight": _or("auto", _number(lambda v: 0 < v < 1, "a number above 0 and below 1")),
    "logit_adjustment": _or("auto", _from_to(0, 10)),
    "normalize": _flag(),
    "keep_rows": _flag(),
    "beam_size": _or("auto", _or(None, _integer(1))),
    "n_probe": _or("auto", _or(None, _integer(1))),
    "max_labels": _integer(1),
    "threshold": _or("auto", _from_to(0, 1)),
    "n_jobs": _or(None, _nonzero(MAX_THREADS)),
}
TRAINING = (*(name for name in RULES if name not in PREDICTION + RUNTIME), "tree", "random_state")


def check(name: str, value: Any) -> None:
    """Raise ValueError if the value breaks the rule of the parameter."""
    holds, text = RULES[name]
    if name == "representation" and isinstance(value, str) and value == "custom":
        raise ValueError(
            "this model was trained with label vectors of your own, which its file does not hold: pass them "
            "again, as in model.set_params(representation=vectors), or choose another representation"
        )
    if not holds(value):
        shown = repr(value) if np.ndim(value) == 0 else f"of type {type(value).__name__}"
        raise ValueError(f"{name} is {shown}, but must be {text}")


def plain(value: Any) -> Any:
    """A number or a word of any type as Python's own, which files can hold; anything else as it is."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    return str(value) if isinstance(value, str) else value


def check_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, numbers as Python's own; `_strategy` checks how they fit.

    Raise ValueError for the first that breaks its rule.
    """
    for name in RULES:
        check(name, params[name])
    seed = params["random_state"]
    if isinstance(seed, Integral) and not 0 <= int(seed) < 2**64:
        raise ValueError(f"random_state is {seed}, but a seed lies from 0 to 2⁶⁴ − 1")
    return {name: plain(value) for name, value in params.items()}


def seed_of(random_state: Any) -> int:
    """One integer that all randomness follows from."""
    if random_state is None:
        return secrets.randbits(32)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    return int(check_random_state(random_state).randint(2**31))


def threads_of(n_jobs: int | None) -> int:
    """Threads that `n_jobs` stands for."""
    if type(n_jobs) is int and n_jobs == 1:  # single rows: the rules take a microsecond
        return 1
    check("n_jobs", n_jobs)
    if n_jobs is None or n_jobs == -1:
        return _core.available_threads()
    return int(n_jobs) if n_jobs > 0 else max(1, _core.available_threads() + 1 + int(n_jobs))
