"""Calibration: from raw scores to the share of predictions with such a score that are right.

A map is learnt on rows that training has not seen, from the best labels of each of them: an isotonic or a
logistic regression of "is right" on the log score. Maps never decrease. Labels are ranked by their raw
scores, before and after.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc.metrics._definitions import TAIL_ROWS, frequency_groups
from bonsai_xmc.metrics._ranking import Ranking
from bonsai_xmc.metrics._reliability import in_bins

METHODS = ("isotonic", "platt")
GROUPS = ("head", "torso", "tail")

# Labels of a row that a map is learnt from, and whose error is measured. A logistic curve cannot fit both
# those and the hundreds after them, of which hardly any is right.
DEPTH = 10
MEASURED = 5
# A group with fewer right predictions has the map of all labels.
_FEWEST_RIGHT = 20
# A score of 0 would mean that a label was not found at all.
_LEAST = 1e-6
_WEAK = 100.0  # C of the logistic regression: almost no penalty


@dataclass(frozen=True, eq=False)
class Calibration:
    """The maps of a model, with their errors. Immutable."""

    method: str  # one of METHODS
    maps: tuple[Array, ...]  # of all labels, or of each of GROUPS; float64 (n, 2), see `_mapped`
    head_rows: int  # with groups: labels of at least this many training rows are head labels
    n_rows: int  # that it was learnt from
    error_before: float | None  # expected calibration error at 5, on rows that did not make the map
    error_after: float | None

    @property
    def grouped(self) -> bool:
        return len(self.maps) > 1

    def scores(self, ids: Array, log_scores: Array, label_counts: Array, *, apart: bool = True) -> Array:
        """Return calibrated scores of ranked labels; 0 for the id −1.

        With one map, and `apart`, they descend strictly in a row, by the last digit where the map is flat, so
        that sorting by them gives the same ranking.
        """
        values = log_scores.astype(np.float64)
        if self.grouped:
            group = self._group(label_counts[ids])
            result = np.empty(values.shape)
            for number, of_group in enumerate(self.maps):
                result[group == number] = _mapped(self.method, of_group, values[group == number])
        else:
            result = _mapped(self.method, self.maps[0], values)
        scores = np.clip(result, _LEAST, 1.0).astype(np.float32)
        if apart and not self.grouped:
            for rank in range(1, scores.shape[1]):
                before = np.nextafter(scores[:, rank - 1], np.float32(0))
                np.minimum(scores[:, rank], before, out=scores[:, rank])
        scores[ids < 0] = 0
        return scores

    def _group(self, label_counts: Array) -> Array:
        group = np.where(label_counts >= self.head_rows, 0, 1)
        group[label_counts < TAIL_ROWS] = 2
        return group

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a description for JSON, and arrays."""
        description = {
            "method": self.method,
            "groups": "frequency" if self.grouped else None,
            "head_rows": self.head_rows,
            "tail_rows": TAIL_ROWS,
            "n_rows": self.n_rows,
            "error_before": self.error_before,
            "error_after": self.error_after,
        }
        ends = np.cumsum([0, *map(len, self.maps)]).astype(np.int64)
        return description, {"maps": np.concatenate(self.maps), "map_ptr": ends}

    @classmethod
    def from_arrays(cls, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> "Calibration":
        """Return the calibration that a file holds; ValueError if a map decreases."""
        method, grouped = description["method"], description["groups"] is not None
        ptr = arrays["map_ptr"]
        if len(ptr) != (len(GROUPS) if grouped else 1) + 1 or (np.diff(ptr) < 1).any():
            raise ValueError("the tensor calibration.map_ptr does not have a part for each map")
        maps = tuple(np.array(part) for part in np.split(arrays["maps"], ptr[1:-1]))
        for of_group in maps:
            _check_map(method, of_group)
        errors = description["error_before"], description["error_after"]
        return cls(method, maps, description["head_rows"], description["n_rows"], *errors)


def _check_map(method: str, of_group: Array) -> None:
    x, y = of_group.T
    if method == "platt" and (len(x) != 1 or x[0] <= 0):
        raise ValueError("a map of its calibration does not increase")
    rising = (np.diff(x) > 0).all() and (np.diff(y) >= 0).all() and y.min() >= 0 and y.max() <= 1
    if method == "isotonic" and not rising:
        raise ValueError("a map of its calibration does not increase from 0 to 1")


def _mapped(method: str, of_group: Array, log_scores: Array) -> Array:
    """Map scores. Isotonic: linear between points (log score, value); logistic: slope and intercept."""
    x, y = of_group.T
    if method == "isotonic":
        return np.interp(log_scores, x, y)
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-(x[0] * log_scores + y[0])))


# --- learning ---


def check_options(method: Any, groups: Any) -> None:
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, but must be one of {', '.join(map(repr, METHODS))}")
    if groups not in (None, "frequency"):
        raise ValueError(
            f"groups is {groups!r}, but must be None (one map for all labels) or 'frequency' (one for each "
            "of head, torso and tail labels)"
        )


def learn(ranking: Ranking, label_counts: Array, method: str, groups: str | None) -> Calibration:
    """Learn the maps of a ranking."""
    ids, log_scores, right = (part[:, :DEPTH] for part in (ranking.ids, ranking.scores, ranking.is_true))
    if not right.any():
        raise ValueError("none of the predictions is right on these rows: calibration needs some right ones")
    result = _learnt(ids, log_scores, right, label_counts, method, groups)
    odd, scores = np.arange(len(ids)) % 2 == 1, np.empty(ids.shape, np.float32)
    for part in (odd, ~odd):  # each half of the rows is measured with the map of the other
        if not right[~part].any() or not (ids[part] >= 0).any():
            return result
        try:
            other = _learnt(ids[~part], log_scores[~part], right[~part], label_counts, method, groups)
        except ValueError:  # no curve fits this half alone: the error is not known
            return result
        scores[part] = other.scores(ids[part], log_scores[part], label_counts)
    before, then = (_error(ids, s, right) for s in (np.exp(np.minimum(log_scores, 0)), scores))
    return replace(result, error_before=before, error_after=then)


def _error(ids: Array, scores: Array, right: Array) -> float:
    found = ids[:, :MEASURED] >= 0
    return in_bins(scores[:, :MEASURED][found], right[:, :MEASURED][found]).error


def _learnt(
    ids: Array, log_scores: Array, right: Array, label_counts: Array, method: str, groups: str | None
) -> Calibration:
    found = np.isfinite(log_scores) & (ids >= 0)
    x, y = log_scores[found].astype(np.float64), right[found]
    everything = _fitted_map(method, x, y)
    if groups is None:
        return Calibration(method, (everything,), 0, len(ids), None, None)
    of_label = frequency_groups(label_counts)
    head = label_counts[of_label == 0]
    head_rows = int(head.min()) if len(head) else int(label_counts.max()) + 1
    result = Calibration(method, (everything,) * len(GROUPS), head_rows, len(ids), None, None)
    group = result._group(label_counts)[ids[found]]
    maps = [_map_of_group(method, x[group == g], y[group == g], everything) for g in range(len(GROUPS))]
    return replace(result, maps=tuple(maps))


def _map_of_group(method: str, x: Array, y: Array, everything: Array) -> Array:
    if y.sum() < _FEWEST_RIGHT or y.all():
        return everything
    try:
        return _fitted_map(method, x, y)
    except ValueError:  # the higher the score, the fewer are right
        return everything


def _fitted_map(method: str, x: Array, y: Array) -> Array:
    # Imported where they are needed: predictions do without them.
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        regression = IsotonicRegression(y_min=0.0, y_max=1.0).fit(x, y)
        points = np.column_stack([regression.X_thresholds_, regression.y_thresholds_])
        return np.asarray(points[np.append(True, np.diff(points[:, 0]) > 0)], np.float64)
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    if y.all():
        raise ValueError("all predictions are right: a logistic curve needs wrong ones, too")
    with threadpool_limits(1):  # sums in one order, whatever the number of threads
        regression = LogisticRegression(C=_WEAK).fit(x[:, None], y)
    slope, intercept = float(regression.coef_[0, 0]), float(regression.intercept_[0])
    if slope <= 0:
        raise ValueError(
            "predictions with higher scores are right less often on these rows: no rising curve fits them"
        )
    return np.array([[slope, intercept]])
