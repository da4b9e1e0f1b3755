"""Which labels the rows of a generated data set get."""

from typing import Any

import numpy as np
from numpy.random import Generator

_HEAD_SHARE = 0.08  # of the rows that have the most frequent label, about
_RARE_ROWS = 1.5  # training rows that the rarest label may expect, where there are enough


def zipf_weights(rng: Generator, n_labels: int, n_rows: int, labels_per_row: float) -> np.ndarray:
    """Probability of each label: 1 / (rank + shift) with the ranks in random order.

    The shift keeps the most frequent label from being everywhere, a floor the rarest ones from being nowhere.
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


class LabelSets:
    """Draws label sets in which neighbours in a two-level hierarchy come together.

    Labels of a group have consecutive ids, and so have the groups of a theme. A row has a main label, drawn
    by weight; each further one is drawn by weight from the main label's group, its theme, or all labels.

    Parameters
    ----------
    weights : array, shape (n_labels,)
        Probability of each label.
    groups, themes : arrays
        First label of each group and of each theme, ascending from 0.
    near : pair of float
        Probability that a further label comes from the group, and from the theme.
    """

    def __init__(
        self, weights: np.ndarray, groups: np.ndarray, themes: np.ndarray, near: tuple[float, float]
    ) -> None:
        self._cumulative = np.concatenate(([0.0], np.cumsum(weights)))
        self._cumulative /= self._cumulative[-1]
        self._starts = (np.append(groups, len(weights)), np.append(themes, len(weights)))
        self._near = near
        self._extra: float = 0.0

    def calibrate(self, rng: Generator, labels_per_row: float) -> None:
        """Find how many further labels to draw, as some are drawn twice, for this mean of distinct ones."""
        self._extra = labels_per_row - 1
        for _ in range(6):
            if self._extra <= 0:
                return
            indptr, _ = self.draw(rng, 4000)
            self._extra *= (labels_per_row - 1) / max(indptr[-1] / 4000 - 1, 0.1)

    def draw(self, rng: Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Label sets as (indptr, labels); the main label of a row is its first one."""
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

    def ancestors(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Group and theme of each label."""
        group, theme = (np.searchsorted(starts, labels, side="right") - 1 for starts in self._starts)
        return group, theme

    def _pick(self, uniform: np.ndarray, low: Any, high: Any) -> np.ndarray:
        """By weight among the labels whose part of the unit interval lies in [low, high)."""
        place = np.searchsorted(self._cumulative, low + uniform * (high - low), side="right") - 1
        return np.minimum(place, len(self._cumulative) - 2)
