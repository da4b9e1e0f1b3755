"""The computation of a score from margins, step by step.

Imports the core for the formulas of losses.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._explain.objects import Decision, ScoreStep, TreePath
from bonsai_xmc._model.fitted import FittedModel


def mean_path(paths: Sequence[TreePath], n_trees: int) -> float:
    """Return the mean score over all trees; paths that do not count contribute 0."""
    return sum(path.score for path in paths if path.counts) / n_trees


class Weights(NamedTuple):
    """Weights of the parts of a score."""

    own: float  # of the one-vs-rest score
    trees: float  # of the mean over the trees
    row_trees: float  # of trees over rows


def weights_of(fitted: FittedModel) -> Weights:
    if fitted.linear.strategy.classifiers == "leaf":
        return Weights(0.0, 1.0, 0.0)
    trees, row_trees = fitted.linear.core.blend_weight, fitted.linear.core.row_tree_weight
    return Weights((1 - row_trees) * (1 - trees), (1 - row_trees) * trees, row_trees)


def steps_of(
    fitted: FittedModel, slot: int, own: Decision | None, paths: Sequence[TreePath], row_share: float = 0.0
) -> tuple[ScoreStep, ...]:
    """Return all steps; the last value is the score. Adjustment and calibration come at the end.

    `row_share` is the score of the label by trees over rows.
    """
    weights, n_trees = weights_of(fitted), fitted.linear.strategy.n_trees
    steps: list[ScoreStep] = []
    value = 0.0
    if own is not None:
        steps += _own(fitted, own)
        value = weights.own * own.score
    if weights.trees > 0:
        steps += _trees(paths, n_trees)
        mean = mean_path(paths, n_trees)
        value += weights.trees * mean
    if weights.row_trees > 0:
        n = fitted.linear.strategy.n_row_trees
        steps.append(ScoreStep(f"row trees = mean share of the label in the row's {n} leaves", row_share))
        value += weights.row_trees * row_share
    if own is not None and weights.own < 1:
        named = zip(weights, ("one-vs-rest", "trees", "row trees"), strict=True)
        formula = " + ".join(f"{weight:g} × {name}" for weight, name in named if weight > 0)
        steps.append(ScoreStep(f"blend = {formula}", value))
    if own is not None and fitted.linear.strategy.logit_adjustment > 0:
        n, power = max(1, int(fitted.linear.slot_counts[slot])), fitted.linear.strategy.logit_adjustment
        value *= float(np.exp(np.asarray(fitted.linear.core.label_offsets)[slot]))
        steps.append(ScoreStep(f"logit adjustment: × {n:,}^−{power:g}, for {n:,} training rows", value))
    if fitted.calibration is not None:
        log = np.log(np.array([[max(value, 1e-300)]]))
        value = float(fitted.scores(np.array([[fitted.linear.label_of_slot[slot]]]), log)[0, 0])
        steps.append(ScoreStep(f"calibration: {fitted.calibration.method} map", value))
    return tuple(steps)


def _own(fitted: FittedModel, own: Decision) -> list[ScoreStep]:
    rest = own.margin - (own.integer_margin * own.unit * own.scale + own.bias)
    finer = (
        f" {signed(rest)} (weights of more than 8 bits)" if abs(rest) > 1e-5 * (1 + abs(own.margin)) else ""
    )
    return [
        ScoreStep(
            f"margin = {own.integer_margin:,} × {own.unit:.4g} × {own.scale:.4g} {signed(own.bias)}{finer}",
            own.margin,
        ),
        ScoreStep(f"one-vs-rest = {_core.losses()[fitted.linear.core.loss]['score_formula']}", own.score),
    ]


def signed(number: float) -> str:
    return f"{'−' if number < 0 else '+'} {abs(number):.4g}"


def _trees(paths: Sequence[TreePath], n_trees: int) -> list[ScoreStep]:
    """Return the steps of the trees; a path that the search left contributes 0."""
    steps = []
    for path in paths:
        factors = " × ".join(f"{decision.score:.3g}" for decision in path.decisions)
        reason = ""
        if not path.counts:
            left = f"its label is not among the {_core.FROM_TREES} best of the trees"
            reason = f", but {'the search leaves it' if path.dropped else left}: 0"
        steps.append(
            ScoreStep(f"tree {path.tree + 1} = {factors}{reason}", path.score if path.counts else 0.0)
        )
    if n_trees > 1:
        steps.append(ScoreStep(f"trees = sum / {n_trees}", mean_path(paths, n_trees)))
    return steps
