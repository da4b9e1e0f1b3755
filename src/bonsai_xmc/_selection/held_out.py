"""Model selection on held-out rows: which C, blend weight and logit adjustment rank labels best.

Models trained on a part of the rows score held-out rows. Every combination of blend weight and logit
adjustment is then evaluated without further training. The objective, and why, is in docs/default.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bonsai_xmc._data.labels import Labels
from bonsai_xmc.metrics import _propensity

Array = npt.NDArray[Any]

MIN_ROWS = 1000  # fewer rows say too little: differences of a point would be noise
SMALLER_COSTS = (0.3, 0.1)  # after the usual C, as long as they get better
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
ADJUSTMENTS = (0.0, 0.0125, 0.025, 0.05, 0.1, 0.2)
MEASURES = ("P@1", "P@5", "PSP@1", "PSP@5")

_K = 5
_SHARPNESS = 10.0  # of the soft minimum, per point: differences of a tenth begin to matter
# Points that a blend must gain, as it takes the time and the space of two models: on small data, less.
_PRICE_OF_BLEND, _SMALL = 0.1, 1e10


class Ranked(NamedTuple):
    """The best labels of held-out rows, best first: ids (−1 where there are fewer) and log scores."""

    ids: Array
    scores: Array


class Setting(NamedTuple):
    C: float
    blend_weight: float
    logit_adjustment: float


@dataclass(frozen=True)
class Evidence:
    """What was chosen on held-out rows, and why."""

    setting: Setting
    table: str


def price_of_blend(n_labels: int, n_entries: int, growth: Array) -> Array:
    """Points by which a blend must be better than either model alone, given the size of the data.

    They count for models of all rows. The gain of a blend grows as the measures do: on a part of the rows,
    whose measures are `growth` times smaller, it need not be as large.
    """
    return _PRICE_OF_BLEND * min(1.0, n_labels * n_entries / _SMALL) / growth


def remaining_counts(labels: Labels, held_out: Array) -> Array:
    """Rows of each label, estimated without those held out: what a logit adjustment would see."""
    rest = labels.counts - labels.take(held_out).counts
    return np.maximum(rest * (labels.n_rows / (labels.n_rows - len(held_out))), 1.0)


class HeldOut:
    """Held-out rows, and the measures of any ranking of their candidates."""

    def __init__(self, labels: Labels, rows: Array, weights: Array | None) -> None:
        self.truth = labels.take(rows)
        self.counts = remaining_counts(labels, rows)
        self.inverse_propensity = _propensity.from_counts(labels.counts, labels.n_rows, *_propensity.OTHERS)
        self.weights = np.ones(len(rows)) if weights is None else weights[rows].astype(np.float64)
        self._ideal = [self._ideal_gain(k) for k in (1, _K)]

    @property
    def n_rows(self) -> int:
        return self.truth.n_rows

    def _ideal_gain(self, k: int) -> float:
        """The largest possible sum of inverse propensities among k labels of each row."""
        row = np.repeat(np.arange(self.n_rows), np.diff(self.truth.indptr))
        gain = self.inverse_propensity[self.truth.indices]
        order = np.lexsort((-gain, row))
        rank = np.arange(len(row)) - self.truth.indptr[row]
        best = order[rank < k]
        return float((gain[best] * self.weights[row[best]]).sum())

    def measures(self, hit: Array, gain: Array, first: Array, best: Array) -> Array:
        """P@1, P@5, PSP@1, PSP@5 in percent, of columns `first` and `best` of each row."""
        r = np.arange(self.n_rows)
        top = r[:, None], best
        weights, total = self.weights, self.weights.sum()
        first_hit, hits = hit[r, first], hit[top].sum(1)
        first_gain, gains = gain[r, first], gain[top].sum(1)
        # Not "@": for these short sums the threads of a BLAS would cost more than they save.
        sums = [float((weights * values).sum()) for values in (first_hit, hits, first_gain, gains)]
        ideals = (total, _K * total, *self._ideal)
        return 100 * np.array([value / max(ideal, 1e-30) for value, ideal in zip(sums, ideals, strict=True)])


class Candidates:
    """The best labels of two models for held-out rows, side by side; empty columns have no label."""

    def __init__(self, held_out: HeldOut, one_vs_rest: Ranked, trees: Ranked) -> None:
        n, n_labels = held_out.n_rows, held_out.truth.n_labels
        ids = np.concatenate([one_vs_rest.ids, trees.ids], axis=1).astype(np.int64)
        own = [np.exp(ranked.scores) * (ranked.ids >= 0) for ranked in (one_vs_rest, trees)]
        width = one_vs_rest.ids.shape[1]
        code = np.where(ids >= 0, np.arange(n)[:, None] * n_labels + ids, -1)
        self.of_one_vs_rest, self.of_trees = np.zeros((2, *ids.shape), np.float32)
        self.of_one_vs_rest[:, :width], self.of_trees[:, width:] = own
        twin = _find(code[:, :width], code[:, width:])  # of each candidate of the trees, or −1
        both = twin >= 0
        flat = np.zeros(n * width, np.float32)
        flat[twin[both]] = own[1][both]
        self.of_trees[:, :width] = flat.reshape(n, width)
        valid = ids >= 0
        valid[:, width:] &= ~both
        self._empty = ~valid
        truth = held_out.truth
        row = np.repeat(np.arange(n), np.diff(truth.indptr))
        true_codes = row * n_labels + truth.indices
        self.hit = (_find(true_codes, code) >= 0) & valid
        label = np.maximum(ids, 0)
        self.gain = np.where(self.hit, held_out.inverse_propensity[label], 0.0)
        self.log_count = np.log(held_out.counts).astype(np.float32)[label]
        self._held_out = held_out

    def _adjusted(self, adjustment: float) -> tuple[Array, Array]:
        factor = np.exp(np.float32(-adjustment) * self.log_count)
        return self.of_one_vs_rest * factor, self.of_trees * factor

    def _blend(self, weight: float, one_vs_rest: Array, trees: Array) -> Array:
        scores = one_vs_rest * np.float32(1 - weight)
        scores += trees * np.float32(weight)
        scores[self._empty] = -1
        return scores

    def grid(self, weights: Sequence[float], adjustments: Sequence[float]) -> Array:
        """Measures of shape (weights, adjustments, 4)."""
        result = np.empty((len(weights), len(adjustments), len(MEASURES)))
        k = min(_K, self.hit.shape[1])
        for a, adjustment in enumerate(adjustments):
            parts = self._adjusted(adjustment)
            for w, weight in enumerate(weights):
                scores = self._blend(weight, *parts)
                # Ties, as between scores of 1, are for the better rank: columns are in that order.
                best = np.argpartition(scores, -k, axis=1)[:, -k:]
                result[w, a] = self._held_out.measures(self.hit, self.gain, scores.argmax(1), best)
        return result


def _find(codes: Array, wanted: Array) -> Array:
    """The place of each wanted code among the (flattened) codes, −1 if it is not there or negative."""
    flat = codes.ravel()
    order = np.argsort(flat, kind="stable")
    if not len(flat):
        return np.full(wanted.shape, -1)
    place = np.minimum(np.searchsorted(flat, wanted, sorter=order), len(flat) - 1)
    found = order[place]
    return np.where((flat[found] == wanted) & (wanted >= 0), found, -1)


def soft_minimum(gains: Array) -> Array:
    """Over the last axis; below the mean, and near the minimum where one is far below the others."""
    low = gains.min(-1, keepdims=True)
    mean = np.exp(-_SHARPNESS * (gains - low)).mean(-1)
    return low[..., 0] - np.log(mean) / _SHARPNESS


def extrapolated(half: Array, part: Array, doublings: float) -> Array:
    """Measures, or their differences, for all rows: about linear in the logarithm of the number of rows."""
    return part + doublings * (part - half)


def growth(half: Array, part: Array, doublings: float) -> Array:
    """How many times larger measures are for all rows than for a part of them; at least 1."""
    of_all = np.minimum(extrapolated(half, part, doublings), 100.0)
    return np.maximum(of_all / np.maximum(part, 1e-9), 1.0)


class _Next(NamedTuple):
    C: float
    measures: Array  # (weights, adjustments, 4)


class _Best(NamedTuple):
    objective: float
    setting: Setting
    measures: Array


class Trials:
    """Blends of one-vs-rest classifiers, at one C after the other, with the same trees.

    The best setting has the largest soft minimum, over the measures, of the gain over the best of three at
    the first C: one-vs-rest alone, trees alone, and both with equal weights. A blend must be better than
    either alone by `price`, of each measure, and a larger adjustment than smaller ones by `clear_gain`.
    """

    def __init__(
        self,
        held_out: HeldOut,
        weights: Sequence[float],
        adjustments: Sequence[float],
        price: Array | float = 0.0,
        clear_gain: float = 0.0,
    ) -> None:
        self._held_out = held_out
        self._weights, self._adjustments, self._price = weights, adjustments, price
        self._clear_gain = clear_gain
        self._simple = np.empty((0, len(MEASURES)))
        self._best: _Best | None = None
        self._next: _Next | None = None

    def add(self, C: float, candidates: Candidates) -> bool:
        """Whether one of the settings at this C is better than those before; `accept` takes it."""
        if self._best is None:
            self._simple = candidates.grid((0.0, 1.0, 0.5), (0.0,))[:, 0]
        self._next = _Next(C, candidates.grid(self._weights, self._adjustments))
        return self._best is None or self._best_of(self._next.measures)[0] > self._best.objective

    def accept(self, trend: Array | float = 0.0) -> bool:
        """Whether the settings that were added last are better even if this is added to their gains.

        `trend` is for one-vs-rest alone. The less weight one-vs-rest has in a blend, the less C matters.
        """
        assert self._next is not None
        C, measures = self._next
        objective, (w, a) = self._best_of(measures, trend)
        if self._best is not None and objective <= self._best.objective:
            return False
        setting = Setting(C, self._weights[w], self._adjustments[a])
        self._best = _Best(objective, setting, measures[w, a])
        return True

    def _best_of(self, measures: Array, trend: Array | float = 0.0) -> tuple[float, tuple[int, int]]:
        weights = np.array(self._weights)
        gains = measures - self._simple.max(0) + (1 - weights)[:, None, None] * trend
        gains[(weights > 0) & (weights < 1)] -= self._price
        objective = soft_minimum(gains)
        objective[weights == 1, 1:] = -np.inf  # trees alone: their scores are not adjusted
        w, a = np.unravel_index(objective.argmax(), objective.shape)
        best = objective[w, a]
        enough = np.flatnonzero(objective[w] >= best - self._clear_gain)
        return float(best), (int(w), int(enough[np.argmin(np.array(self._adjustments)[enough])]))

    def evidence(self, n_training: int) -> Evidence:
        assert self._best is not None
        _, setting, measures = self._best
        lines = [f"{self._held_out.n_rows:,} held-out rows, models of {n_training:,} others:"]
        lines.append(" " * 13 + "".join(f"{measure:>7}" for measure in MEASURES))
        names = ("one-vs-rest", "trees", "equal weights", "chosen")
        for name, values in zip(names, [*self._simple, measures], strict=True):
            lines.append(f"{name:13}" + "".join(f"{value:7.2f}" for value in values))
        return Evidence(setting, "\n".join(lines))


def alone(held_out: HeldOut, ranked: Ranked) -> Array:
    """The measures of one model."""
    nothing = Ranked(np.full((len(ranked.ids), 1), -1, np.int32), np.zeros((len(ranked.ids), 1), np.float32))
    return Candidates(held_out, ranked, nothing).grid((0.0,), (0.0,))[0, 0]
