"""Label sets of generated rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

_HEAD_SHARE = 0.08  # approximate share of rows with the most frequent label
_RARE_ROWS = 1.5  # expected training rows of the rarest label, if there are enough rows
_SPREAD = 1.7  # of label frequencies, on the log scale: EURLEX57K has 2.1, TIBKAT 1.7
_COVERED = 0.25  # largest share of all row labels that is given to labels that no row has drawn


def zipf_weights(rng: Generator, n_labels: int, n_rows: int, labels_per_row: float) -> np.ndarray:
    """Return the probability of each label: 1 / (rank + shift) with the ranks in random order.

    A shift limits the share of the most frequent label, and a floor keeps the rarest labels in use.
    """
    ranks = np.arange(1, n_labels + 1)
    shift = 1.0
    head = max(_HEAD_SHARE / labels_per_row, 2 / n_labels)
    while True:
        weights = 1 / (ranks + shift)
        weights /= weights.sum()
        if weights[0] <= head:
            break
        shift *= 1.5
    weights = np.maximum(weights, min(_RARE_ROWS / (n_rows * labels_per_row), 0.5 / n_labels))
    return rng.permutation(weights / weights.sum())


def lognormal_weights(rng: Generator, n_labels: int, labels_per_row: float) -> np.ndarray:
    """Return the probability of each label: lognormal, with an upper limit."""
    weights = np.sort(rng.lognormal(0.0, _SPREAD, n_labels))
    head = max(_HEAD_SHARE / labels_per_row, 2 / n_labels)
    for _ in range(20):  # the excess raises the other labels
        weights = np.minimum(weights / weights.sum(), head)
    return rng.permutation(weights / weights.sum())


def uneven_parts(rng: Generator, count: int, size: float, spread: float) -> np.ndarray:
    """Return the first item of each part of `count` items: about `size` each, `spread` on the log scale."""
    n_parts = max(1, round(count / size))
    ends = np.cumsum(rng.lognormal(0.0, spread, n_parts))
    starts = np.rint(np.concatenate(([0.0], ends[:-1])) * count / ends[-1]).astype(np.int64)
    return np.unique(np.minimum(starts, count - 1))


class LabelSets:
    """A generator of label sets in which neighbours in a hierarchy occur together.

    Labels of a group have consecutive ids, and so have the groups of a theme, and so on. A row has a main
    label, drawn by weight; each further one is drawn by weight from the main label's group, its theme, …, or
    all labels.

    Parameters
    ----------
    weights : array, shape (n_labels,)
        Probability of each label.
    levels : sequence of arrays
        First label of each group, of each theme, …: ascending from 0.
    near : sequence of float
        Probability that a further label comes from the group, from the theme, ….
    """

    def __init__(self, weights: np.ndarray, levels: Sequence[np.ndarray], near: Sequence[float]) -> None:
        self._cumulative = np.concatenate(([0.0], np.cumsum(weights)))
        self._cumulative /= self._cumulative[-1]
        self._starts = tuple(np.append(starts, len(weights)) for starts in levels)
        self._near = near
        self._extra: float = 0.0

    def calibrate(self, rng: Generator, labels_per_row: float) -> None:
        """Find the number of draws for a mean number of distinct labels, as some are drawn twice."""
        self._extra = labels_per_row - 1
        for _ in range(6):
            if self._extra <= 0:
                return
            indptr, _ = self.draw(rng, 4000)
            self._extra *= (labels_per_row - 1) / max(indptr[-1] / 4000 - 1, 0.1)

    def draw(self, rng: Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw label sets, as (indptr, labels); the main label of a row is its first one."""
        size = 1 + rng.poisson(self._extra, n_rows)
        row = np.repeat(np.arange(n_rows), size)
        first = np.cumsum(size) - size
        main = self._pick(rng.random(n_rows), 0.0, 1.0)
        low, high = np.zeros(len(row)), np.ones(len(row))
        level = np.searchsorted(np.cumsum(self._near), rng.random(len(row)))
        for nearness, starts in enumerate(self._starts):
            chosen = level == nearness
            unit = np.searchsorted(starts, main[row[chosen]], side="right") - 1
            low[chosen] = self._cumulative[starts[unit]]
            high[chosen] = self._cumulative[starts[unit + 1]]
        labels = self._pick(rng.random(len(row)), low, high)
        labels[first] = main
        # distinct labels, in the order in which they were drawn
        _, kept = np.unique(row * (len(self._cumulative) - 1) + labels, return_index=True)
        kept.sort()
        indptr = np.concatenate(([0], np.cumsum(np.bincount(row[kept], minlength=n_rows))))
        return indptr, labels[kept]

    def n_missing(self, n_rows: int, labels_per_row: float) -> float:
        """Return the expected number of labels that no row draws, limited to those that can be added."""
        undrawn = np.exp(-np.diff(self._cumulative) * n_rows * labels_per_row).sum()
        return float(min(undrawn, _COVERED * n_rows * labels_per_row))

    def join(
        self, rng: Generator, indptr: np.ndarray, labels: np.ndarray, more: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the label sets with `more` labels, none of which they contain: each is added to a row of
        its group, or else of its theme, …, as the last label."""
        n_rows = len(indptr) - 1
        by_main = np.argsort(labels[indptr[:-1]], kind="stable")
        main = labels[indptr[:-1]][by_main]
        row = np.full(len(more), -1)
        for starts in (*self._starts, np.array([0, len(self._cumulative) - 1])):
            unit = np.searchsorted(starts, more, side="right") - 1
            low, high = (np.searchsorted(main, starts[unit + end]) for end in (0, 1))
            found = (row < 0) & (low < high)
            at = low + (rng.random(len(more)) * (high - low)).astype(np.int64)
            row[found] = by_main[at[found]]
        order = np.argsort(
            np.concatenate((np.repeat(np.arange(n_rows), np.diff(indptr)), row)), kind="stable"
        )
        added = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=n_rows))))
        return indptr + added, np.concatenate((labels, more))[order]

    def missing(self, rng: Generator, labels: np.ndarray) -> np.ndarray:
        """Return labels that do not occur, in random order, limited to those that can be added."""
        unused = np.flatnonzero(np.bincount(labels, minlength=len(self._cumulative) - 1) == 0)
        return rng.permutation(unused)[: int(_COVERED / (1 - _COVERED) * len(labels))]

    def n_units(self) -> list[int]:
        """Return the numbers of labels, groups, themes, …."""
        return [len(self._cumulative) - 1, *(len(starts) - 1 for starts in self._starts)]

    def ancestors(self, labels: np.ndarray) -> list[np.ndarray]:
        """Return the group, theme, … of each label."""
        return [np.searchsorted(starts, labels, side="right") - 1 for starts in self._starts]

    def _pick(self, uniform: np.ndarray, low: Any, high: Any) -> np.ndarray:
        """Draw by weight among the labels whose intervals lie in [low, high)."""
        place = np.searchsorted(self._cumulative, low + uniform * (high - low), side="right") - 1
        return np.minimum(place, len(self._cumulative) - 2)
