"""Conversion of project settings, which are text, to parameters of `Bonsai` and the vectorizer."""

from collections.abc import Mapping
from typing import Any

from bonsai_xmc._base.params import PARAMETERS, check
from bonsai_xmc._base.rules import Rule
from bonsai_xmc.compat._omikuji_trees import parameters

# Further parameters of `annif.backend.omikuji` with their defaults. One of _ONLY_OMIKUJI in a project selects
# trees as in omikuji.
OMIKUJI = {"cluster_balanced": True, "cluster_k": 2, "max_depth": 20, "collapse_every_n_layers": 0}
_ONLY_OMIKUJI = ("cluster_balanced", "cluster_k", "collapse_every_n_layers")
_TRUE = ("1", "yes", "true", "on")  # as in Annif; all other values are false
_NOT_HERE = ("representation", "n_jobs")


def bonsai_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `Bonsai` that a project sets; ValueError for a wrong one."""
    return _like_omikuji(params) if is_like_omikuji(params) else _own(params)


def is_like_omikuji(params: Mapping[str, Any]) -> bool:
    """Return whether the settings of a project select trees as in omikuji."""
    return any(name in params for name in _ONLY_OMIKUJI)


def collapsed_layers(params: Mapping[str, Any]) -> int:
    """Return the number of layers to remove below each layer that is kept."""
    return 0 if int(params.get("cluster_k", 2)) < 2 else int(params.get("collapse_every_n_layers", 0))


def vectorizer_params(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "min_df": int(params["min_df"]),
        "ngram_range": (1, int(params["ngram"])),
        "sublinear_tf": _boolean(params.get("sublinear_tf", False)),
    }


def _own(params: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {}
    for name, parameter in PARAMETERS.items():
        if name in params and name not in _NOT_HERE:
            chosen[name] = _value(name, parameter.rule, params[name])
            if name != "random_state":
                check(name, chosen[name])
    return chosen


def _like_omikuji(params: Mapping[str, Any]) -> dict[str, Any]:
    given = OMIKUJI | {name: params[name] for name in OMIKUJI if name in params}
    k = int(given["cluster_k"])
    if k < 1:
        raise ValueError(f"cluster_k is {k}, but must be at least 1")
    trees = parameters(k, _boolean(given["cluster_balanced"]), int(given["max_depth"]))
    return trees | _own({name: value for name, value in params.items() if name not in OMIKUJI})


def _value(name: str, rule: Rule, value: Any) -> Any:
    if rule.read is None:
        return _boolean(value)
    if rule.choices:
        return str(value)
    parse = rule.options["type"]
    try:
        return parse(str(value))
    except ValueError:
        raise ValueError(f"{name} is {value!r}, but must be {parse.__name__}") from None


def _boolean(value: Any) -> bool:
    return str(value).lower() in _TRUE
