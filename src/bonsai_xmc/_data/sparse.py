"""Sparse matrices as users give them, whose arrays are proven to be consistent.

The arrays may have been changed since scipy made the matrix. scipy's operations do not check them, and read
and write out of bounds where they are wrong.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array

_INTEGERS, _NUMBERS = "iu", "biufc"  # kinds of types

# What is wrong with a matrix. Only the first flaw is reported: later checks rely on earlier ones.
Flaws = Iterator[str]


def is_sparse(X: Any) -> bool:
    """Return `scipy.sparse.issparse(X)`, by which type checkers would narrow to a base class."""
    return bool(sp.issparse(X))


def proven_csr(X: Any, name: str) -> sp.csr_array:
    """Return a matrix in CSR form, its arrays proven to describe one; it may share the caller's memory."""
    if X.ndim != 2:
        raise ValueError(f"{name} must be a matrix, but it has {X.ndim} dimension(s)")
    flaw = next(_FLAWS[X.format](X), None)
    if flaw is None and X.format in ("dia", "dok", "lil"):
        try:
            X = X.tocoo()
        except (TypeError, IndexError, OverflowError) as error:
            raise ValueError(f"{name} is not a valid sparse matrix: {error}") from error
        flaw = next(_coordinates(X), None)
    if flaw is not None:
        raise ValueError(f"{name} is not a valid sparse matrix: {flaw}")
    if X.format != "csr":
        return sp.csr_array(X)
    end = X.indptr[-1]  # arrays may be longer than what is used of them
    return sp.csr_array((X.data[:end], X.indices[:end], X.indptr), shape=X.shape)


def is_canonical(indptr: Array, indices: Array, data: Array, shape: tuple[int, int]) -> bool:
    """Return whether the arrays are a CSR matrix, indices ascending in each row, nothing beyond the last."""
    if any(compressed(indptr, indices, data, *shape)) or len(indices) != indptr[-1]:
        return False
    ascends = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    return bool(ascends.all())


def compressed(indptr: Any, indices: Any, data: Any, n_outer: int, n_inner: int, ndim: int = 1) -> Flaws:
    """Yield what keeps the arrays from being a compressed matrix. Values of blocks have 3 dimensions."""
    yield from _array(indptr, "indptr", _INTEGERS)
    yield from _array(indices, "indices", _INTEGERS)
    yield from _array(data, "data", _NUMBERS, ndim)
    if len(indptr) != n_outer + 1:
        yield f"indptr has {len(indptr):,} entries, but its shape needs {n_outer + 1:,}"
    if indptr[0] != 0:
        yield f"indptr begins with {indptr[0]:,} instead of 0"
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        yield f"indptr decreases at {int(falls.argmax()):,}"
    if len(data) != len(indices) or indptr[-1] > len(indices):
        there = f"{len(indices):,} indices and {len(data):,} values"
        yield f"indptr ends at {indptr[-1]:,}, but there are {there}"
    yield from _range(indices[: indptr[-1]], n_inner)


def _blocks(X: Any) -> Flaws:
    yield from _array(X.data, "data", _NUMBERS, 3)
    height, width = X.data.shape[1:]
    if height < 1 or width < 1 or X.shape[0] % height or X.shape[1] % width:
        yield f"blocks of {height} × {width} do not divide {X.shape[0]:,} × {X.shape[1]:,}"
    yield from compressed(X.indptr, X.indices, X.data, X.shape[0] // height, X.shape[1] // width, ndim=3)


def _diagonals(X: Any) -> Flaws:
    yield from _array(X.offsets, "offsets", _INTEGERS)
    yield from _array(X.data, "data", _NUMBERS, 2)
    if len(X.offsets) != len(X.data):
        yield f"it has {len(X.data):,} diagonals, but {len(X.offsets):,} offsets"
    if len(set(X.offsets.tolist())) < len(X.offsets):
        yield "two diagonals have the same offset"


def _lists(X: Any) -> Flaws:
    for array, called in ((X.rows, "rows"), (X.data, "data")):
        yield from _array(array, called, "O")
        if len(array) != X.shape[0] or not all(isinstance(row, list) for row in array):
            yield f"{called} is not a list for each of {X.shape[0]:,} rows"
    if any(len(row) != len(values) for row, values in zip(X.rows, X.data, strict=True)):
        yield "a row has more values than columns, or fewer"


def _coordinates(X: Any) -> Flaws:
    yield from _array(X.data, "data", _NUMBERS)
    for array, called, size in ((X.row, "row", X.shape[0]), (X.col, "col", X.shape[1])):
        yield from _array(array, called, _INTEGERS)
        if len(array) != len(X.data):
            yield f"it has {len(X.data):,} values, but {len(array):,} coordinates"
        yield from _range(array, size)


def _array(array: Any, called: str, kinds: str, ndim: int = 1) -> Flaws:
    if not isinstance(array, np.ndarray) or array.ndim != ndim or array.dtype.kind not in kinds:
        what = {_INTEGERS: "integers", _NUMBERS: "numbers"}.get(kinds, "lists")
        yield f"{called} is not an array of {what} with {ndim} dimension(s)"


def _range(indices: Array, size: int) -> Flaws:
    low, high = indices.min(initial=0), indices.max(initial=0)
    if len(indices) and (low < 0 or high >= size):
        yield f"the index {low if low < 0 else high:,} is not in 0 … {size - 1:,}"


_FLAWS: dict[str, Callable[[Any], Flaws]] = {
    "csr": lambda X: compressed(X.indptr, X.indices, X.data, *X.shape),
    "csc": lambda X: compressed(X.indptr, X.indices, X.data, *X.shape[::-1]),
    "bsr": _blocks,
    "coo": _coordinates,
    "dia": _diagonals,
    "lil": _lists,
    "dok": lambda X: iter(()),
}
