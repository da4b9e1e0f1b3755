"""The threshold of `predict`, chosen on predictions whose rightness is known."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc._base.params import check
from bonsai_xmc._model.strategy import is_auto

Array = npt.NDArray[Any]

FALLBACK = 0.5  # the threshold where nothing can be measured

# F1 is flat around its maximum: of all thresholds that come this close, the middle one is the steadiest.
_CLOSE = 0.998
# By which calibrated scores that are equal may differ in a row of labels.
_LAST_DIGITS = 1e-4


@dataclass(frozen=True)
class Judged:
    """Predictions of rows whose labels are known: for each its score, whether it is right, and its weight."""

    scores: Array
    right: Array
    weights: Array
    positives: float  # weight of all true labels, found or not


@dataclass(frozen=True)
class Curve:
    """A figure for each threshold that makes a difference: each distinct score, descending."""

    scores: Array
    values: Array

    def at(self, threshold: float) -> float:
        """Of the labels with at least this score."""
        place = int(np.searchsorted(-self.scores, -threshold, side="right")) - 1
        return float(self.values[place]) if place >= 0 else 0.0

    @property
    def below(self) -> Array:
        """The next lower score: a threshold may lie anywhere above it."""
        return np.append(self.scores[1:], self.scores[-1] / 2)


def _curve(scores: Array, values: Array) -> Curve:
    """Of values after each of the descending scores; equal scores are taken together."""
    last = np.append(scores[1:] < scores[:-1], True)[: len(scores)]
    return Curve(scores[last], values[last])


def micro_f1(judged: Judged) -> Curve:
    order = np.argsort(-judged.scores, kind="stable")
    weights = judged.weights[order]
    right = np.cumsum(weights * judged.right[order])
    return _curve(judged.scores[order], 2 * right / (np.cumsum(weights) + judged.positives))


def precision(scores: Array, right: Array) -> Curve:
    order = np.argsort(-scores, kind="stable")
    return _curve(scores[order], np.cumsum(right[order]) / np.arange(1, len(order) + 1))


def mean_f1(rows: Array, scores: Array, right: Array, sizes: Array) -> Curve:
    """Mean over rows of F1; `sizes` are the numbers of true labels. Rows without any count 0."""
    order = np.lexsort((-scores, rows))
    rows, scores, right = rows[order], scores[order], right[order]
    first = np.searchsorted(rows, rows)  # of the row's predictions, best first
    taken = np.arange(len(rows)) - first + 1
    hits = np.cumsum(right) - np.concatenate([[0], np.cumsum(right)])[first]
    f1 = 2 * hits / (taken + sizes[rows])
    gain = np.diff(f1, prepend=0.0)
    gain[taken == 1] = f1[taken == 1]
    order = np.argsort(-scores, kind="stable")
    return _curve(scores[order], np.cumsum(gain[order]) / max(1, len(sizes)))


def steadiest(curve: Curve, room: float = 0.0) -> float | None:
    """A threshold with the largest value, or close to it, and with as much room as possible around it.

    None where no value is above 0. `room` as in `_between`.
    """
    scores, values = curve.scores, curve.values
    if not len(values) or values.max() <= 0:
        return None
    below = curve.below
    close = np.flatnonzero(values >= _CLOSE * values.max())
    threshold = _between(below[close].min(), scores[close].max(), room)
    if curve.at(threshold) < _CLOSE**2 * values.max():  # two hills: the higher one
        best = int(values.argmax())
        threshold = _between(below[best], scores[best], room)
    return threshold


def lowest(curve: Curve, wanted: float, room: float = 0.0) -> float:
    """The lowest threshold whose value is at least the wanted one."""
    enough = np.flatnonzero(curve.values >= wanted)
    if not len(enough):
        best = curve.values.max() if len(curve.values) else 0.0
        raise ValueError(
            f"no threshold gives a precision of {wanted:g} on these rows; the highest is {best:.4g}"
        )
    return _between(curve.below[enough[-1]], curve.scores[enough[-1]], room)


def _between(low: float, high: float, room: float = 0.0) -> float:
    """The geometric middle, with no more digits than it needs to lie above `low` and not above `high`.

    And below `high` by `room`, a share, if there is so much.
    """
    high = high * (1 - room) if high * (1 - room) > low else high
    middle = float(np.sqrt(max(low, 1e-300) * high))
    for digits in range(2, 17):
        rounded = float(f"{middle:.{digits}g}")
        if low < rounded <= high:
            return rounded
    return float(high)


def resolve(threshold: Any, model: Any) -> float:
    """A threshold as a number; "auto" is the one of the model's `predict`."""
    for value in (threshold, model.classifier_.threshold, model.threshold_):
        check("threshold", value)
        if not is_auto(value):
            return float(value)
    raise AssertionError("threshold_ is a number")


def select(ids: Array, scores: Array, threshold: float) -> tuple[Array, Array]:
    """Rankings, as `top_k` has them, without the labels whose score is below the threshold."""
    low = scores < threshold
    ids, scores = np.where(low, -1, ids), np.where(low, 0, scores)
    if not (low[:, :-1] & ~low[:, 1:]).any():
        return ids, scores
    order = np.argsort(low, axis=1, kind="stable")  # with maps for groups, scores need not descend
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


Objective = tuple[str, float]  # "micro_f1", "f1_at" and k, or "precision" and the one that is wanted


def objective_of(given: Any) -> Objective:
    """What `choose_threshold` was asked for."""
    if given == "micro_f1":
        return "micro_f1", 0
    if isinstance(given, str) and (match := re.fullmatch(r"f1_at_([1-9]\d{0,5})", given)):
        return "f1_at", int(match[1])
    if isinstance(given, tuple | list) and len(given) == 2 and given[0] == "precision":
        if isinstance(given[1], int | float | np.number) and 0 < float(given[1]) <= 1:
            return "precision", float(given[1])
        raise ValueError(f"the wanted precision is {given[1]!r}, but must be a number above 0, and at most 1")
    raise ValueError(
        f'objective is {given!r}, but must be "micro_f1", "f1_at_5" (or another number of labels), or '
        '("precision", 0.8) with the precision that is wanted'
    )


def choose(ids: Array, scores: Array, right: Array, sizes: Array, objective: Objective) -> float:
    """The best threshold for ranked predictions; `sizes` are the numbers of true labels of the rows."""
    kind, number = objective
    if kind == "f1_at":
        ids, scores, right = (part[:, : int(number)] for part in (ids, scores, right))
    found = ids >= 0
    scores = scores.astype(np.float64)
    if kind == "precision":
        return lowest(precision(scores[found], right[found]), number, _LAST_DIGITS)
    if kind == "f1_at":
        curve = mean_f1(np.nonzero(found)[0], scores[found], right[found], sizes)
    else:
        weights = np.ones(int(found.sum()))
        curve = micro_f1(Judged(scores[found], right[found], weights, float(sizes.sum())))
    threshold = steadiest(curve, _LAST_DIGITS)
    if threshold is None:
        raise ValueError("none of the predictions is right: no threshold can be chosen on these rows")
    return threshold
