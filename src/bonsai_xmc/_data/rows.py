"""X and other matrices of numbers from outside: checked once, here, before anything uses them.

Nothing of the caller's is changed in place.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from bonsai_xmc import _core

Array = npt.NDArray[Any]

# The rows of a matrix as the core takes them: (indptr int64, indices int32, values float32, n_features), or a
# dense C-contiguous float32 array.
CoreRows = tuple[Array, Array, Array, int] | Array

# From this share of non-zeros on, rows are handled as dense, whatever container they came in: less memory
# (4 bytes an entry against 8) and no gathering. The choice depends on the data alone, as the model does.
DENSE_FROM = 0.5

_FLOAT32_MAX = np.float64(np.finfo(np.float32).max)
_INT32_MAX = np.iinfo(np.int32).max


class TrainingRows(NamedTuple):
    """X of `fit`, checked and in the form that training uses."""

    rows: CoreRows
    n_rows: int
    n_features: int
    n_entries: int  # not 0
    feature_names: Array | None

    @property
    def dense(self) -> bool:
        return not isinstance(self.rows, tuple)

    @property
    def negative(self) -> bool:
        """Whether any value is below 0."""
        values = self.rows[2] if isinstance(self.rows, tuple) else self.rows
        return bool(values.min(initial=0.0) < 0)

    def take(self, rows: Array) -> "TrainingRows":
        """These rows, in this order. They stay dense or sparse: parts of X are trained as X is."""
        some: CoreRows
        if isinstance(self.rows, tuple):
            some = _some_rows(self.rows, rows)
            n_entries = len(some[1])
        else:
            some = self.rows[rows]
            n_entries = int(np.count_nonzero(some))
        return self._replace(rows=some, n_rows=len(rows), n_entries=n_entries)

    def by_density(self) -> "TrainingRows":
        """The same rows as `fit` would take them: dense or sparse."""
        return self._replace(rows=by_density(self.rows)[0])


def _some_rows(all_rows: tuple[Array, Array, Array, int], rows: Array) -> tuple[Array, Array, Array, int]:
    indptr, indices, values, width = all_rows
    ptr = np.concatenate([[0], np.cumsum(indptr[rows + 1] - indptr[rows])]).astype(np.int64)
    some = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.float32)
    step = 4096  # the places of all entries at once would take more memory than these themselves
    for begin in range(0, len(rows), step):
        part = slice(ptr[begin], ptr[min(len(rows), begin + step)])
        entries = select(indptr, rows[begin : begin + step])[1]
        some[0][part], some[1][part] = indices[entries], values[entries]
    return ptr, *some, width


class _Reference(BaseEstimator):
    """Takes the attributes that scikit-learn's checks set: no estimator changes before it is fitted."""


def training_rows(X: Any, estimator: str) -> TrainingRows:
    """X of `fit`: dense if half of its entries or more are not 0, otherwise CSR, whatever it comes as."""
    reference = _Reference()
    X = _checked(reference, X, estimator, reset=True)
    rows, n_entries = by_density(_as_core_rows(X))
    names = getattr(reference, "feature_names_in_", None)
    if names is not None:
        _check_names(names.tolist())
    return TrainingRows(rows, X.shape[0], X.shape[1], n_entries, names)


def _check_names(names: list[str]) -> None:
    """Names of features, as a file of a model can hold them."""
    seen = set()
    for name in names:
        check_encodable(name, "X holds the feature name")
        if name in seen:
            raise ValueError(f"X has two columns with the name {name!r}; names must differ")
        seen.add(name)


def check_encodable(text: str, place: str) -> None:
    """Raise ValueError for half of a surrogate pair: texts are stored as UTF-8, which has no place for it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place} {text!r}, which is not valid Unicode: {error}") from error


def prediction_rows(X: Any, estimator: Any, n_features: int, named: bool) -> CoreRows:
    """X of a fitted estimator, whose number and names of features it must have."""
    ready = None if named else _ready_csr(X, n_features)  # names are compared with those of X
    if ready is not None:
        return ready
    return _as_core_rows(_checked(estimator, X, type(estimator).__name__, reset=False))


def _checked(reference: Any, X: Any, estimator: str, reset: bool) -> Any:
    X = proven_csr(X, "X") if is_sparse(X) else X
    options: dict[str, Any] = {"dtype": "numeric", "accept_large_sparse": True, "estimator": estimator}
    return validate_data(reference, X, reset=reset, accept_sparse="csr", **options)


def _as_core_rows(X: Any) -> CoreRows:
    return _canonical(sp.csr_array(X)) if is_sparse(X) else as_float32(X)


def by_density(rows: CoreRows) -> tuple[CoreRows, int]:
    """The rows as dense array or as CSR, whichever fits them, and the number of their non-zeros."""
    if isinstance(rows, tuple):
        indptr, indices, values, width = rows
        if len(values) < DENSE_FROM * (len(indptr) - 1) * width:
            return rows, len(values)
        return sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1, width)).toarray(), len(values)
    n_entries = int(np.count_nonzero(rows))
    if n_entries < DENSE_FROM * rows.shape[0] * rows.shape[1]:
        return _canonical(sp.csr_array(rows)), n_entries
    return rows, n_entries


def _ready_csr(X: Any, n_features: int) -> tuple[Array, Array, Array, int] | None:
    """The arrays of a CSR matrix that needs no conversion, or None.

    scikit-learn's checks of a single row take longer than its prediction, and those below a fifth of it.
    """
    if not isinstance(X, sp.csr_array | sp.csr_matrix) or X.shape[1:] != (n_features,) or X.shape[0] == 0:
        return None
    indptr, indices, data = X.indptr, X.indices, X.data
    if X.shape[0] == 1:
        ready = type(indptr) is np.ndarray and indptr.tolist() == [0, len(indices)]
        ready = ready and _core.is_row(indices, data, n_features)
        return (indptr.astype(np.int64), indices, data, n_features) if ready else None
    if (
        data.dtype == np.float32
        and indices.dtype == np.int32
        and data.flags.c_contiguous
        and indices.flags.c_contiguous
        and _flaw(indptr, indices, data, *X.shape) is None
        and _is_canonical(indptr, indices)
        and math.isfinite(
            data.sum()
        )  # NaN and infinities propagate; a sum that overflows takes the longer way
    ):
        return indptr.astype(np.int64), indices, data, n_features
    return None


def batches(rows: CoreRows, size: int) -> Iterator[CoreRows]:
    """The rows in parts of this size; one without rows if there are none."""
    if not isinstance(rows, tuple):
        yield from (rows[begin : begin + size] for begin in range(0, max(1, len(rows)), size))
        return
    indptr, indices, values, width = rows
    for begin in range(0, max(1, len(indptr) - 1), size):
        ptr = indptr[begin : begin + size + 1]
        entries = slice(ptr[0], ptr[-1])
        yield ptr - ptr[0], indices[entries], values[entries], width


def bytes_beside(X: Any, rows: Any) -> int:
    """Bytes of the caller's arrays, as far as they are not the same as `rows`."""
    parts = [getattr(X, name, None) for name in ("indptr", "indices", "data")] if is_sparse(X) else [X]
    used = [r for r in (rows if isinstance(rows, tuple) else (rows,)) if isinstance(r, np.ndarray)]
    return sum(
        part.nbytes
        for part in parts
        if isinstance(part, np.ndarray) and not any(np.may_share_memory(part, array) for array in used)
    )


# --- sparse matrices ---


def is_sparse(X: Any) -> bool:
    """`scipy.sparse.issparse`, for type checkers that would narrow to a base class without attributes."""
    return bool(sp.issparse(X))


def proven_csr(X: Any, name: str) -> sp.csr_array:
    """A sparse matrix in CSR form whose arrays are proven to describe one; it may share the caller's memory.

    scipy's own operations trust the arrays, which may have been changed or made by hand since they were
    checked, if ever: they read and write out of bounds if the arrays lie.
    """
    if X.ndim != 2:
        raise ValueError(f"{name} must be a matrix, but it has {X.ndim} dimension(s)")
    n_rows, n_columns = X.shape
    flaw = None
    if X.format == "csr":
        flaw = _flaw(X.indptr, X.indices, X.data, n_rows, n_columns)
    elif X.format == "csc":
        flaw = _flaw(X.indptr, X.indices, X.data, n_columns, n_rows)
    elif X.format == "bsr":
        height, width = X.blocksize
        flaw = _flaw(X.indptr, X.indices, X.data, n_rows // height, n_columns // width)
    elif X.format == "coo":
        flaw = _coordinate_flaw(X)
    else:  # dok, lil and dia hold no pointers
        X = X.tocoo()
        flaw = _coordinate_flaw(X)
    if flaw is not None:
        raise ValueError(f"{name} is not a valid sparse matrix: {flaw}")
    if X.format != "csr":
        return sp.csr_array(X)
    end = X.indptr[-1]  # arrays may be longer than what is used of them
    return sp.csr_array((X.data[:end], X.indices[:end], X.indptr), shape=X.shape)


def _flaw(indptr: Any, indices: Any, data: Any, n_outer: int, n_inner: int) -> str | None:
    """What keeps the arrays from being a compressed matrix; None: nothing does."""
    for array, called in ((indptr, "indptr"), (indices, "indices")):
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
            return f"{called} is not a one-dimensional array of integers"
    if len(indptr) != n_outer + 1:
        return f"indptr has {len(indptr):,} entries, but its shape needs {n_outer + 1:,}"
    if indptr[0] != 0:
        return f"indptr begins with {indptr[0]:,} instead of 0"
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        return f"indptr decreases at {int(falls.argmax()):,}"
    if len(data) != len(indices) or indptr[-1] > len(indices):
        return (
            f"indptr ends at {indptr[-1]:,}, but there are {len(indices):,} indices and {len(data):,} values"
        )
    return _range_flaw(indices[: indptr[-1]], n_inner)


def _coordinate_flaw(X: Any) -> str | None:
    for array, size in ((X.row, X.shape[0]), (X.col, X.shape[1])):
        if len(array) != len(X.data):
            return f"it has {len(X.data):,} values, but {len(array):,} coordinates"
        if (flaw := _range_flaw(array, size)) is not None:
            return flaw
    return None


def _range_flaw(indices: Array, size: int) -> str | None:
    if not len(indices):
        return None
    low, high = indices.min(), indices.max()
    if low < 0 or high >= size:
        return f"the index {low if low < 0 else high:,} is not in 0 … {size - 1:,}"
    return None


def _is_canonical(indptr: Array, indices: Array) -> bool:
    """Whether the indices of each row ascend; of arrays without a flaw, with nothing beyond the last row."""
    if len(indices) != indptr[-1]:
        return False
    ascends = indices[1:] > indices[:-1]
    if ascends.all():  # at once for a single row
        return True
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    return bool(ascends.all())


def _canonical(csr: sp.csr_array) -> tuple[Array, Array, Array, int]:
    """Sorted, distinct, non-zero entries of proven arrays; borrows these where they are so already."""
    if csr.shape[1] > _INT32_MAX:
        raise ValueError(f"X has {csr.shape[1]:,} features; the most that are possible is 2³¹ − 1")
    if not csr.has_canonical_format:
        # A copy, as sum_duplicates works in place; wide, as sums of small integers would wrap around.
        csr = csr.astype(np.bool_ if csr.dtype.kind == "b" else np.float64)
        csr.sum_duplicates()
    values = as_float32(csr.data)
    if not values.all():
        csr = sp.csr_array((values.copy(), csr.indices, csr.indptr), shape=csr.shape, copy=True)
        csr.eliminate_zeros()
        values = csr.data
    indices = np.ascontiguousarray(csr.indices, dtype=np.int32)
    return np.ascontiguousarray(csr.indptr, dtype=np.int64), indices, values, csr.shape[1]


def select(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """Row pointers of these rows, and the places of their entries."""
    sizes = indptr[rows + 1] - indptr[rows]
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return ptr, np.arange(ptr[-1]) + np.repeat(indptr[rows] - ptr[:-1], sizes)


# --- numbers ---


def as_float32(values: Array, name: str = "X") -> Array:
    """C-contiguous float32; values that it cannot hold are an error instead of an infinity."""
    wide = values.dtype.kind == "f" and values.dtype.itemsize > 4
    if wide and values.size and max(abs(values.max()), abs(values.min())) > _FLOAT32_MAX:
        raise ValueError(
            f"{name} holds values beyond the range of float32 (±{_FLOAT32_MAX:.3g}); rescale the features"
        )
    return np.ascontiguousarray(values, dtype=np.float32)


def label_vectors(matrix: Any, n_labels: int) -> CoreRows:
    """A user's own label vectors, one row for each label, made unit-norm."""
    vectors: Any = proven_csr(matrix, "representation") if is_sparse(matrix) else np.asarray(matrix)
    if vectors.ndim != 2 or vectors.dtype.kind not in "biuf":
        raise ValueError(
            "representation must be one of its names, or a numeric matrix with one row for each label"
        )
    if vectors.shape[0] != n_labels:
        raise ValueError(
            f"representation has {vectors.shape[0]} rows, but Y has {n_labels} labels; "
            "one row for each label is needed"
        )
    entries = vectors.data if is_sparse(vectors) else vectors
    if not (np.abs(entries) <= _FLOAT32_MAX).all():
        raise ValueError("representation holds NaN, infinite values, or values beyond the range of float32")
    rows, _ = by_density(_as_core_rows(vectors))
    if not isinstance(rows, tuple):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        return (rows / np.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32)
    indptr, indices, values, width = rows
    squares = np.add.reduceat(np.append(values.astype(np.float64) ** 2, 0.0), indptr[:-1])
    norms = np.sqrt(np.where(np.diff(indptr) > 0, squares, 1.0))
    return indptr, indices, (values / np.repeat(norms, np.diff(indptr))).astype(np.float32), width
