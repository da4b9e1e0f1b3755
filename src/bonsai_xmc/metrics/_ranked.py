"""Ranked labels: the form that every kind of prediction is brought into, and its checks."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Where = Callable[[int], str]  # row number -> how an error message names its place


class Ranked(NamedTuple):
    """Parallel arrays with one entry for each ranked label, ordered by row, then rank (0 is the best)."""

    row: Ints
    rank: Ints
    label: Ints

    def select(self, mask: NDArray[np.bool_]) -> "Ranked":
        return Ranked(self.row[mask], self.rank[mask], self.label[mask])


def in_row(row: int) -> str:
    return f"predictions, row {row}"


def check_labels(row: Ints, label: Ints, n_labels: int, where: Where = in_row) -> None:
    """Every id is a label, and no row has one twice (it would count double)."""
    outside = np.flatnonzero((label < 0) | (label >= n_labels))
    if outside.size:
        i = outside[0]
        raise ValueError(f"{where(int(row[i]))}: label id {label[i]} is outside 0..{n_labels - 1}")
    keys = np.sort(row * n_labels + label, kind="stable")  # linear where the entries come in order
    twice = np.flatnonzero(keys[1:] == keys[:-1])
    if twice.size:
        at, double = divmod(int(keys[twice[0]]), n_labels)
        raise ValueError(
            f"{where(at)}: label id {double} occurs twice; each label may be predicted once a row"
        )


def by_score(row: Ints, label: Ints, score: NDArray[Any], n_rows: int) -> tuple[Ranked, Ints]:
    """Rank the entries of each row (ascending in `row`) by descending score; ties keep their order."""
    order = np.lexsort((-score, row))
    counts = np.bincount(row, minlength=n_rows)
    starts = np.cumsum(counts) - counts
    return Ranked(row, np.arange(row.size) - starts[row], label[order]), order


def from_ids(ids: Any, n_labels: int, k: int | None = None) -> Ranked:
    """Label ids of shape (rows, width), best first; −1 fills the end of a row."""
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"predictions must be integer label ids of shape (rows, k), got {ids.dtype} of shape "
            f"{ids.shape}; pass scores as a sparse matrix"
        )
    top = ids[:, :k].astype(np.int64)
    filled = top != -1
    gaps = np.argwhere(filled[:, 1:] & ~filled[:, :-1])
    if gaps.size:
        row, rank = gaps[0]
        raise ValueError(
            f"{in_row(row)}: label id {top[row, rank + 1]} comes after -1; -1 may only fill the end"
        )
    rows, ranks = np.nonzero(filled)
    check_labels(rows, top[filled], n_labels)
    return Ranked(rows, ranks, top[filled])
