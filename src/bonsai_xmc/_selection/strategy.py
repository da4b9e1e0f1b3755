"""Parameters and facts about the data → the values that training uses: every "auto" is resolved here.

Imports the core for the limits of its search, and for the usual C of a loss.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.params import PARAMETERS, TREES
from bonsai_xmc._model.strategy import Facts, Strategy, beam_size, is_auto, n_probe

# One-vs-rest: labels × entries of X up to which it takes minutes at most if all rows are scanned for each
# label. Dense rows take 0.8 to 1.7 seconds of a core for each 10⁹ of these, and have a limit of their own.
# The number of labels from which an index finds the rows instead, and of rows that it can hold; of pairs of a
# row and a label up to which that takes an hour or two. The number of labels up to which scoring all of them
# is fast enough, and of labels that an index over classifiers can hold (docs/performance.md).
MAX_PAIRS = 1e12
MAX_DENSE_PAIRS = 1e11
MIN_SEARCHED_LABELS = _core.MIN_SEARCHED_LABELS
MAX_SEARCHED_ROWS = _core.MAX_SEARCHED_ROWS
MAX_POSITIVES = 2e7
MAX_EXACT_LABELS = 50_000
MAX_INDEX_LABELS = _core.MAX_INDEX_LABELS
# Share of the rows above which a one-vs-rest classifier learns its own bias.
FREQUENT_SHARE = _core.FREQUENT_SHARE
_LOSSES: Mapping[str, Any] = _core.losses()
# The factor of C where rows are made of blocks of several texts. Rows have unit length, so that
# each block is shorter the more there are; C makes up for that. Blocks of one text are much alike, and need
# no such factor (chosen on titles of yso-sv and TIBKAT).
_C_OF_TEXTS = 1.5
# Points by which a larger logit adjustment must be better where there are several blocks: on all rows the
# best one is smaller than on the part of them that it is chosen on.
_CLEAR_GAIN = 0.05
# Share of the trees in a blend where there is no evidence: the best value for most data sets.
USUAL_BLEND_WEIGHT = 0.3

# What is tried on held-out rows: smaller C after the usual one, as long as they get better, and combinations
# of the others. With fewer rows, differences of a point would be noise.
MIN_ROWS = 1000
SMALLER_COSTS = (0.3, 0.1)
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
ADJUSTMENTS = (0.0, 0.0125, 0.025, 0.05, 0.1, 0.2)
# Trees over rows: how many, and what weights are tried. Larger ones are better on a part of the rows alone:
# linear classifiers gain more by further rows.
N_ROW_TREES = 50
ROW_TREE_WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)

# k-means. The paper starts at random labels, too, and stops at this gain of the mean similarity; between 10
# and 100 iterations, accuracy on EURLEX57K and TIBKAT differed by less than it does between seeds.
KMEANS_TOL = 1e-4
KMEANS_MAX_ITER = 10
KMEANS_INIT = "random"


# What only one-vs-rest classifiers have, and what messages call it.
_OF_ONE_VS_REST = {
    "tail_exponent": "tail_exponent",
    "logit_adjustment": "logit_adjustment",
    "row_tree_weight": "a weight of trees over rows, the second of blend_weight,",
}


class Setting(NamedTuple):
    """What held-out rows choose."""

    C: float
    blend_weight: float
    logit_adjustment: float
    row_tree_weight: float = 0.0


class Choice(NamedTuple):
    """The best setting on held-out rows, and its evidence: a table of figures."""

    setting: Setting
    evidence: str


class SearchSpace(NamedTuple):
    """The values to choose from on held-out rows, the usual value first where it matters."""

    costs: tuple[float, ...]
    weights: tuple[float, ...]
    adjustments: tuple[float, ...]
    row_tree_weights: tuple[float, ...] = ()  # besides 0; a single one is given


def blend_weights(given: Any) -> tuple[Any, Any]:
    """Return the two weights of the parameter `blend_weight`: of label trees, and of trees over rows."""
    trees, row_trees = given if isinstance(given, tuple | list) else (given, "auto")
    return trees, row_trees


def _apart(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, with both weights by a name of their own."""
    names = ("blend_weight", "row_tree_weight")
    return {**params, **dict(zip(names, blend_weights(params["blend_weight"]), strict=True))}


def search_space(params: Mapping[str, Any], facts: Facts) -> SearchSpace | None:
    """Return what to try on held-out rows; None where all is given, or follows from the size of the data."""
    params = _apart(params)
    classifiers = params["classifiers"]
    if classifiers == "auto" and not is_auto(params["blend_weight"]):
        classifiers = "blend"
    if classifiers not in ("auto", "blend") or facts.n_rows < MIN_ROWS:
        return None
    if classifiers == "auto" and _by_size(params, facts) is not None:
        return None
    needs_trees = classifiers == "blend" or bool(_of_trees(params, facts)) or _is_given(params, "beam_size")
    needs_one_vs_rest = (
        classifiers == "blend"
        or params["search"] == "exact"
        or facts.label_texts
        or bool(_one_vs_rest_params(params))
    )
    weights = tuple(
        weight
        for weight in WEIGHTS
        if not (weight == 0 and needs_trees) and not (weight == 1 and needs_one_vs_rest)
    )
    smaller = (_LOSSES[params["loss"]]["usual_C"] * share for share in SMALLER_COSTS)
    costs = (_usual_C(params, facts), *smaller)
    given = params["row_tree_weight"]
    row_trees = ROW_TREE_WEIGHTS if is_auto(given) else (float(given),) if given else ()
    tried = SearchSpace(
        costs if is_auto(params["C"]) else (float(params["C"]),),
        weights if is_auto(params["blend_weight"]) else (float(params["blend_weight"]),),
        ADJUSTMENTS if is_auto(params["logit_adjustment"]) else (float(params["logit_adjustment"]),),
        () if facts.dense and is_auto(given) else row_trees,
    )
    return None if all(len(values) == 1 for values in tried[:3]) else tried


def resolve(params: Mapping[str, Any], facts: Facts, choice: Choice | None = None) -> Strategy:
    """Resolve the strategy for these data. Given values that would have no effect are an error.

    `choice` is the one on held-out rows, where `search_space` returns values to try.
    """
    params = _apart(params)
    classifiers, search, reason = _choose(params, facts, choice)
    one_vs_rest = classifiers != "leaf"
    n_trees = 0 if classifiers == "one_vs_rest" else facts.given_trees or int(params["n_trees"])
    _check_given(params, facts, classifiers, search, reason)
    # A bias of −1 gives rows without evidence a margin at which the loss is 0.
    holds_bias = one_vs_rest and not facts.dense and _LOSSES[params["loss"]]["has_active_sets"]
    node_C = _LOSSES[params["loss"]]["usual_C"]
    C = _usual_C(params, facts) if one_vs_rest else node_C
    found = choice.setting if choice is not None and one_vs_rest else Setting(C, 0.0, 0.0)
    blend_weight = found.blend_weight if choice is not None else USUAL_BLEND_WEIGHT
    row_tree_weight = float(_or(params["row_tree_weight"], found.row_tree_weight))
    prune = float(_or(params["prune"], 0.05 if one_vs_rest else 0.1))
    max_depth = params["max_depth"]
    custom = not isinstance(params["representation"], str)
    return Strategy(
        classifiers=classifiers,
        search=search,
        representation="custom" if custom else params["representation"],
        given_tree=facts.given_trees > 0,
        n_trees=n_trees,
        branching_factor=int(params["branching_factor"]),
        max_leaf_size=int(params["max_leaf_size"] or params["branching_factor"]),
        max_depth=None if max_depth is None else int(_or(max_depth, 3)),
        split_oversized=is_auto(max_depth),
        balanced=params["balance"] == "equal",
        bounded=_bounded(params["balance"], facts),
        kmeans_tol=KMEANS_TOL,
        kmeans_max_iter=KMEANS_MAX_ITER,
        kmeans_init=KMEANS_INIT,
        node_C=float(_or(params["C"], node_C)),
        C=float(_or(params["C"], found.C)),
        loss=params["loss"],
        solver=params["solver"],
        tol=float(params["tol"]),
        max_iter=int(params["max_iter"]),
        node_prune=float(_or(params["prune"], 0.1)) if classifiers == "blend" else prune,
        prune=prune,
        node_bias="learn",
        bias=-1.0 if holds_bias else "learn",
        frequent_share=FREQUENT_SHARE,
        tail_exponent=_tail_exponent(params, facts, one_vs_rest),
        blend_weight=float(_or(params["blend_weight"], blend_weight)) if classifiers == "blend" else 0.0,
        logit_adjustment=float(_or(params["logit_adjustment"], found.logit_adjustment)),
        normalize=bool(params["normalize"]),
        reason=reason,
        evidence="" if choice is None else choice.evidence,
        n_row_trees=N_ROW_TREES if row_tree_weight > 0 else 0,
        row_tree_weight=row_tree_weight,
    )


def _choose(params: Mapping[str, Any], facts: Facts, choice: Choice | None) -> tuple[str, str, str]:
    """Choose classifiers and search, with the reason for both."""
    classifiers, search, reasons = params["classifiers"], params["search"], []
    if classifiers == "leaf" and search != "auto":
        raise ValueError(
            f'search="{search}" needs one-vs-rest classifiers; with classifiers="leaf", beam_size=None '
            "follows all nodes"
        )
    if classifiers == "auto":
        classifiers, reason = _by_size(params, facts) or _by_choice(facts, choice)
        reasons.append(reason)
    else:
        reasons.append(f'classifiers="{classifiers}" was given')
    if classifiers == "leaf":
        search = "beam"
    elif search == "auto":
        search, because = _choose_search(facts)
        reasons.append(because)
    else:
        reasons.append(f'search="{search}" was given')
    return classifiers, search, "; ".join(reasons)


def _choose_search(facts: Facts) -> tuple[str, str]:
    """Choose how one-vs-rest classifiers find a row's best labels, with the reason."""
    if facts.n_labels <= MAX_EXACT_LABELS:
        return "exact", f"exact search: {facts.n_labels:,} labels are no more than {MAX_EXACT_LABELS:,}"
    if facts.dense:
        return "exact", "exact search: X is dense, which makes an index useless"
    if facts.n_labels > MAX_INDEX_LABELS:
        return "exact", f"exact search: an index holds no more than {MAX_INDEX_LABELS:,} labels"
    return "index", f"search by an index: {facts.n_labels:,} labels are more than {MAX_EXACT_LABELS:,}"


def _by_size(params: Mapping[str, Any], facts: Facts) -> tuple[str, str] | None:
    """Return the classifiers that "auto" stands for, and why; None where held-out rows decide."""
    if not is_auto(params["blend_weight"]):
        return "blend", "blend_weight was given"
    if params["search"] == "index":
        return "one_vs_rest", 'search="index" needs one-vs-rest classifiers'
    cost = f"{facts.n_labels:,} labels × {facts.n_entries:,} entries of {'dense ' if facts.dense else ''}X"
    limit = MAX_DENSE_PAIRS if facts.dense else MAX_PAIRS
    if params["search"] != "exact" and not facts.label_texts:
        if facts.dense and params["search"] == "auto" and facts.n_labels > MAX_EXACT_LABELS:
            return "leaf", f"X is dense, and {facts.n_labels:,} labels are too many to score all of them"
        if facts.n_labels * facts.n_entries > limit and not _rows_are_searched(params, facts):
            return "leaf", f"{cost} are too many for one-vs-rest (limit {limit:.0e})"
        if facts.n_labels * facts.n_entries > limit and facts.n_positives > MAX_POSITIVES:
            pairs = f"{facts.n_positives:,} pairs of a row and a label"
            return "leaf", f"{pairs} are too many for one-vs-rest (limit {MAX_POSITIVES:.0e})"
    affordable = f"one-vs-rest is affordable: {cost} (limit {limit:.0e})"
    if _rows_are_searched(params, facts):
        affordable = f"one-vs-rest is affordable: an index finds the rows that {facts.n_labels:,} labels need"
    if params["search"] == "auto" and facts.n_labels > MAX_EXACT_LABELS:
        return "one_vs_rest", affordable
    if facts.n_rows < MIN_ROWS:
        few = f"{facts.n_rows:,} rows are too few to choose by (at least {MIN_ROWS:,})"
        return "one_vs_rest", f"{affordable}; {few}"
    return None


def _rows_are_searched(params: Mapping[str, Any], facts: Facts) -> bool:
    """Return whether training finds the rows that a label needs by an index, without a scan of all."""
    can_index = not facts.dense and not facts.negative and facts.n_rows <= MAX_SEARCHED_ROWS
    return facts.n_labels >= MIN_SEARCHED_LABELS and can_index and _active_set_problem(params) is None


def _usual_C(params: Mapping[str, Any], facts: Facts) -> float:
    """Return C of one-vs-rest where nothing else is chosen."""
    return _LOSSES[params["loss"]]["usual_C"] * (_C_OF_TEXTS if facts.n_texts > 1 else 1.0)


def clear_gain(facts: Facts) -> float:
    """Return the points by which a larger logit adjustment must be better than a smaller one."""
    return _CLEAR_GAIN if facts.n_blocks > 1 else 0.0


def _by_choice(facts: Facts, choice: Choice | None) -> tuple[str, str]:
    if choice is None:
        return "one_vs_rest", f"{facts.n_rows:,} rows with too few labels to choose by held-out rows"
    weight = choice.setting.blend_weight
    name = "one_vs_rest" if weight == 0 else "leaf" if weight == 1 else "blend"
    return name, "most accurate on held-out rows"


def _check_given(params: Mapping[str, Any], facts: Facts, classifiers: str, search: str, reason: str) -> None:
    because = f"({reason})"
    n_probe(params["n_probe"], search, 1, 1)
    if classifiers == "one_vs_rest":
        if useless := _of_trees(params, facts):
            raise ValueError(
                f"{_shown(params, useless[0])} would have no effect: this model has no trees {because}. "
                'Leave it out, or pass classifiers="leaf" for leaf classifiers, classifiers="blend" for both'
            )
        beam_size(params["beam_size"], 0, search)
    elif facts.given_trees and (clusters := _of_clustering(params)):
        raise ValueError(
            f"{_shown(params, clusters[0])} would have no effect: tree is given, so labels are not "
            "clustered. Leave out one of the two"
        )
    for name, said in _OF_ONE_VS_REST.items():
        if _positive(params[name]) and classifiers == "leaf":
            raise ValueError(
                f'{said} needs classifiers="one_vs_rest" or "blend", but this model has "leaf" {because}'
            )
    if not is_auto(params["blend_weight"]) and classifiers != "blend":
        raise ValueError(
            f'blend_weight needs classifiers="blend", but this model has "{classifiers}" {because}'
        )


def _is_given(params: Mapping[str, Any], name: str) -> bool:
    return bool(np.ndim(params[name])) or params[name] != PARAMETERS[name].default


def _of_clustering(params: Mapping[str, Any]) -> list[str]:
    """Return the parameters that only clustering uses, and that were given."""
    of_trees = (name for name, parameter in PARAMETERS.items() if parameter.group == TREES)
    return [name for name in of_trees if _is_given(params, name)]


def _of_trees(params: Mapping[str, Any], facts: Facts) -> list[str]:
    return _of_clustering(params) + ["tree"] * (facts.given_trees > 0)


def _one_vs_rest_params(params: Mapping[str, Any]) -> bool:
    return any(_positive(params[name]) for name in _OF_ONE_VS_REST)


def _active_set_problem(params: Mapping[str, Any]) -> str | None:
    """Return the settings that the solver on active sets needs, if these are others; else None."""
    active_set = params["loss"] == "squared_hinge" and params["solver"] == "dual"
    return None if active_set else 'loss="squared_hinge" and solver="dual"'


def _tail_exponent(params: Mapping[str, Any], facts: Facts, one_vs_rest: bool) -> float:
    given, problem = params["tail_exponent"], _active_set_problem(params)
    if problem is None and facts.dense:
        problem = "sparse X, but half of its entries or more are not 0"
    if _positive(given) and problem is not None:
        raise ValueError(f"tail_exponent needs {problem}")
    if not is_auto(given):
        return float(given)
    return 0.25 if one_vs_rest and problem is None else 0.0


def _bounded(balance: str, facts: Facts) -> bool:
    """Return whether large clusters are split again: with many labels, or if requested."""
    return balance == "bounded" or (balance == "auto" and facts.n_labels > MAX_EXACT_LABELS)


def _or(given: Any, default: Any) -> Any:
    return default if is_auto(given) else given


def _positive(given: Any) -> bool:
    return not isinstance(given, str) and given > 0


def _shown(params: Mapping[str, Any], name: str) -> str:
    """Return the parameter with its value, if that is short."""
    shown = repr(params.get(name))
    return name if name not in params or np.ndim(params[name]) or len(shown) > 60 else f"{name}={shown}"
