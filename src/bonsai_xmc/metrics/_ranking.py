"""Rankings with their true labels, the input of metrics and of choices on held-out rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonsai_xmc._data.labels import is_true, labels_of, over_classes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Where = Callable[[int], str]  # row number -> its place in error messages


@dataclass(frozen=True, eq=False)
class Truth:
    """The true labels of rows: CSR without values, ids ascending in each row."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    weights: Floats | None = None  # of the rows; None for equal weights
    q: Floats | None = None  # inverse propensity of each label
    sizes: Ints | None = None  # true labels of each row, if some are not in `indices`

    @classmethod
    def of(cls, Y: Any, classes: NDArray[Any], q: Floats | None = None) -> "Truth":
        """Return labels as places in `classes`; labels outside `classes` count as missed."""
        known = over_classes(Y, classes)
        return cls(known.indptr, known.indices, q=q, sizes=np.diff(labels_of(Y).indptr))

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def n_true(self) -> Ints:
        """Return the number of true labels of each row."""
        return np.diff(self.indptr) if self.sizes is None else self.sizes

    @cached_property
    def rows(self) -> Ints:
        """Return the row of each true label."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.indptr))

    def rank(self, ids: NDArray[Any], scores: Any = None) -> "Ranking":
        """Return a ranking of these rows, with its labels marked as true or false."""
        return Ranking(self, ids, is_true(self, ids), scores)

    def best(self, k: int) -> "Ranking":
        """Rank each row's true labels by descending inverse propensity, ties by the smaller id."""
        if self.q is None:
            raise ValueError("this metric needs inv_propensity, see metrics.inverse_propensity")
        if k not in self._best:
            ids, _ = best_first(self.rows, self.indices, self.q[self.indices], self.n_rows, k)
            ids = np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)  # sums in the same order
            self._best[k] = Ranking(self, ids, ids >= 0)
        return self._best[k]

    @cached_property
    def _best(self) -> "dict[int, Ranking]":
        return {}

    def among(self, labels: NDArray[np.bool_]) -> "Truth":
        """Keep only some of the labels."""
        kept = labels[self.indices]
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        return replace(self, indptr=indptr, indices=self.indices[kept], sizes=None)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best labels of each row, best first: arrays of shape (n_rows, k)."""

    truth: Truth
    ids: NDArray[Any]  # −1 at the end of shorter rankings
    is_true: NDArray[np.bool_]
    scores: Any = None  # array of log scores, if known

    @cached_property
    def gains(self) -> Floats:
        """Return inverse propensities of true labels, 0 for false ones."""
        if self.truth.q is None:
            raise ValueError("this metric needs inv_propensity, see metrics.inverse_propensity")
        return np.where(self.is_true, self.truth.q[np.where(self.is_true, self.ids, 0)], 0.0)

    @property
    def best(self) -> "Ranking":
        """Return the best ranking of the same length."""
        return self.truth.best(self.ids.shape[1])

    def among(self, labels: NDArray[np.bool_]) -> "Ranking":
        """Count only some of the labels, at unchanged ranks."""
        return Ranking(self.truth.among(labels), self.ids, self.is_true & labels[self.ids], self.scores)


def in_row(row: int) -> str:
    return f"predictions, row {row}"


def check_labels(row: Ints, label: Ints, n_labels: int, where: Where = in_row) -> None:
    """Raise ValueError unless all ids are labels and no row repeats one."""
    outside = np.flatnonzero((label < 0) | (label >= n_labels))
    if outside.size:
        i = outside[0]
        raise ValueError(f"{where(int(row[i]))}: label id {label[i]} is outside 0..{n_labels - 1}")
    keys = np.sort(row * n_labels + label, kind="stable")  # linear time for sorted entries
    twice = np.flatnonzero(keys[1:] == keys[:-1])
    if twice.size:
        at, double = divmod(int(keys[twice[0]]), n_labels)
        raise ValueError(
            f"{where(at)}: label id {double} occurs twice; each label may be predicted once a row"
        )


def best_first(
    row: Ints, label: NDArray[Any], score: NDArray[Any], n_rows: int, k: int | None = None
) -> tuple[Ints, NDArray[Any]]:
    """Rank the entries of each row (ascending in `row`) by descending score; ties keep their order.

    Returns ids and scores of shape (n_rows, width), padded with −1 and 0. The width is that of the longest
    row, at most k.
    """
    order = np.lexsort((-score, row))
    counts = np.bincount(row, minlength=n_rows)
    rank = np.arange(row.size) - (np.cumsum(counts) - counts)[row]
    width = int(counts.max(initial=0))
    width = width if k is None else min(width, k)
    top = rank < width
    place = row[top], rank[top]
    ids, scores = np.full((n_rows, width), -1, np.int64), np.zeros((n_rows, width), score.dtype)
    ids[place], scores[place] = label[order][top], score[order][top]
    return ids, scores


def check_ids(ids: Any, n_labels: int, k: int | None = None) -> Ints:
    """Check label ids of shape (rows, width), best first, −1 at the end of a row; return the first k."""
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"predictions must be integer label ids of shape (rows, k), got {ids.dtype} of shape "
            f"{ids.shape}; pass scores as a sparse matrix"
        )
    top: Ints = ids[:, :k].astype(np.int64)
    filled = top != -1
    gaps = np.argwhere(filled[:, 1:] & ~filled[:, :-1])
    if gaps.size:
        row, rank = gaps[0]
        raise ValueError(
            f"{in_row(row)}: label id {top[row, rank + 1]} comes after -1; -1 may only fill the end"
        )
    check_labels(np.nonzero(filled)[0], top[filled], n_labels)
    return top
