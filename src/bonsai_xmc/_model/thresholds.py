"""The threshold of `predict`, chosen on predictions with known labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import check
from bonsai_xmc.metrics._ranking import Ranking

FALLBACK = 0.5  # the threshold where nothing can be measured
PER_LABEL = "per_label"

# F1 is flat around its maximum: of all thresholds that come this close, the middle one is the steadiest.
_CLOSE = 0.998
# The largest relative difference between equal calibrated scores of a row, which differ in the last digits.
_LAST_DIGITS = 1e-4


class Scored(NamedTuple):
    """Predictions, right or wrong, and the weight of all true labels, found or not."""

    scores: Array
    is_true: Array
    weights: Array
    n_true: float

    @classmethod
    def of(cls, ranking: Ranking, scores: Array, label_weights: Array | None = None) -> "Scored":
        """Flatten a ranking with these scores; labels of weight 0 do not count."""
        truth = ranking.truth
        of_label = np.ones(int(max(ranking.ids.max(initial=0), truth.indices.max(initial=0))) + 1)
        of_label = of_label if label_weights is None else label_weights
        of_row = np.ones(truth.n_rows) if truth.weights is None else truth.weights
        row, place = np.nonzero(ranking.ids >= 0)
        weights = of_label[ranking.ids[row, place]] * of_row[row]
        row, place, weights = (part[weights > 0] for part in (row, place, weights))
        n_true = (of_label[truth.indices] * of_row[truth.rows]).sum()
        n_true += ((truth.n_true - np.diff(truth.indptr)) * of_row).sum()
        scored = scores[row, place].astype(np.float64)
        return cls(scored, ranking.is_true[row, place], weights, float(n_true))

    @classmethod
    def joined(cls, parts: "Sequence[Scored]") -> "Scored":
        """Return all predictions of several parts."""
        scores, is_true, weights, n_true = zip(*parts, strict=True)
        return cls(np.concatenate(scores), np.concatenate(is_true), np.concatenate(weights), sum(n_true))


@dataclass(frozen=True)
class Curve:
    """A figure for each threshold that makes a difference: each distinct score, descending."""

    scores: Array
    values: Array

    def at(self, threshold: float) -> float:
        """Return the figure of the labels with at least this score."""
        place = int(np.searchsorted(-self.scores, -threshold, side="right")) - 1
        return float(self.values[place]) if place >= 0 else 0.0

    @property
    def below(self) -> Array:
        """The next lower score: a threshold may lie anywhere above it."""
        return np.append(self.scores[1:], self.scores[-1] / 2)


def _curve(scores: Array, values: Array) -> Curve:
    """Return the curve of values after each of the descending scores; equal scores count once."""
    last = np.append(scores[1:] < scores[:-1], True)[: len(scores)]
    return Curve(scores[last], values[last])


def micro_f1(found: Scored) -> Curve:
    order = np.argsort(-found.scores, kind="stable")
    weights = found.weights[order]
    hits = np.cumsum(weights * found.is_true[order])
    return _curve(found.scores[order], 2 * hits / (np.cumsum(weights) + found.n_true))


def precision(found: Scored) -> Curve:
    order = np.argsort(-found.scores, kind="stable")
    return _curve(found.scores[order], np.cumsum(found.is_true[order]) / np.arange(1, len(order) + 1))


def mean_f1(ranking: Ranking, scores: Array, k: int) -> Curve:
    """Return the mean over rows of F1 of at most k labels; rows without true labels count 0."""
    rows, place = np.nonzero(ranking.ids[:, :k] >= 0)
    order = np.lexsort((-scores[rows, place], rows))
    rows, place = rows[order], place[order]
    values, is_true = scores[rows, place].astype(np.float64), ranking.is_true[rows, place]
    first = np.searchsorted(rows, rows)  # of the row's predictions, best first
    taken = np.arange(len(rows)) - first + 1
    hits = np.cumsum(is_true) - np.concatenate([[0], np.cumsum(is_true)])[first]
    f1 = 2 * hits / (taken + ranking.truth.n_true[rows])
    gain = np.diff(f1, prepend=0.0)
    gain[taken == 1] = f1[taken == 1]
    order = np.argsort(-values, kind="stable")
    return _curve(values[order], np.cumsum(gain[order]) / max(1, ranking.truth.n_rows))


def steadiest(curve: Curve, calibrated: bool = False) -> float | None:
    """Return a threshold whose value is about the largest, with as much room as possible around it.

    None where no value is above 0.
    """
    scores, values = curve.scores, curve.values
    if not len(values) or values.max() <= 0:
        return None
    below = curve.below
    close = np.flatnonzero(values >= _CLOSE * values.max())
    threshold = _between(below[close].min(), scores[close].max(), calibrated)
    if curve.at(threshold) < _CLOSE**2 * values.max():  # two maxima: take the higher one
        best = int(values.argmax())
        threshold = _between(below[best], scores[best], calibrated)
    return threshold


def lowest(curve: Curve, wanted: float, calibrated: bool = False) -> float:
    """Return the lowest threshold whose value is at least the wanted one."""
    enough = np.flatnonzero(curve.values >= wanted)
    if not len(enough):
        best = curve.values.max() if len(curve.values) else 0.0
        raise ValueError(
            f"no threshold gives a precision of {wanted:g} on these rows; the highest is {best:.4g}"
        )
    return _between(curve.below[enough[-1]], curve.scores[enough[-1]], calibrated)


def _between(low: float, high: float, calibrated: bool) -> float:
    """Return the middle, with no more digits than it needs to lie above `low` and not above `high`.

    Raw scores are products, so that their middle is the geometric one. Calibrated scores are probabilities,
    and where they part all right labels from all wrong ones, the geometric middle of 10⁻⁶ and 1 would lie
    next to the wrong ones: their middle is that of the log odds.
    """
    if calibrated:
        high = high * (1 - _LAST_DIGITS) if high * (1 - _LAST_DIGITS) > low else high
        ends = np.clip([low, high], _LAST_DIGITS, 1 - _LAST_DIGITS)
        middle = 1 / (1 + np.sqrt(np.prod(1 / ends - 1)))
    else:
        middle = np.sqrt(max(low, 1e-300) * high)
    for digits in range(2, 17):
        rounded = float(f"{middle:.{digits}g}")
        if low < rounded <= high:
            return rounded
    return float(high)


def resolve(threshold: Any, model: Any) -> float | Array:
    """Return a threshold as a number, or one for each label; "auto" is what the model's `predict` uses."""
    for value in (threshold, model.classifier_.threshold):
        check("threshold", value)
        if not isinstance(value, str):
            return float(value)
    return float(model.threshold_) if model.thresholds_ is None else np.asarray(model.thresholds_)


def select(ids: Array, scores: Array, threshold: float | Array) -> tuple[Array, Array]:
    """Return rankings as those of `top_k`, without the labels whose score is below the threshold."""
    low = scores < (threshold[ids] if isinstance(threshold, np.ndarray) else threshold)
    ids, scores = np.where(low, -1, ids), np.where(low, 0, scores)
    if not (low[:, :-1] & ~low[:, 1:]).any():
        return ids, scores
    order = np.argsort(low, axis=1, kind="stable")  # with maps for groups, scores need not descend
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


Objective = tuple[str, float]  # "micro_f1", "f1_at" and k, or "precision" and the one that is wanted


def objective_of(given: Any) -> Objective:
    """Read the objective of `choose_threshold`."""
    if given == "micro_f1":
        return "micro_f1", 0
    if isinstance(given, str) and (match := re.fullmatch(r"f1_at_([1-9]\d{0,5})", given)):
        return "f1_at", int(match[1])
    if isinstance(given, tuple | list) and len(given) == 2 and given[0] == "precision":
        if isinstance(given[1], int | float | np.number) and 0 < float(given[1]) <= 1:
            return "precision", float(given[1])
        raise ValueError(f"the target precision is {given[1]!r}, but must be a number above 0, and at most 1")
    raise ValueError(
        f'objective is {given!r}, but must be "micro_f1", "f1_at_5" (or another number of labels), or '
        '("precision", 0.8) with the precision that is wanted'
    )


def choose(ranking: Ranking, scores: Array, objective: Objective, calibrated: bool) -> float:
    """Choose the best threshold for the scores of a ranking."""
    kind, number = objective
    if kind == "precision":
        return lowest(precision(Scored.of(ranking, scores)), number, calibrated)
    by_row = kind == "f1_at"
    curve = mean_f1(ranking, scores, int(number)) if by_row else micro_f1(Scored.of(ranking, scores))
    threshold = steadiest(curve, calibrated)
    if threshold is None:
        raise ValueError("none of the predictions is right: no threshold can be chosen on these rows")
    return threshold
