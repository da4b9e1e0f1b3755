"""X and other matrices of numbers as users give them: checked here once, and not changed in place.

Imports the core to check a single row, where NumPy would take longer than its prediction.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.sparse import is_canonical, is_sparse, proven_csr

# From this share of non-zeros on, rows are handled as dense, in any container: less memory
# (4 bytes an entry against 8) and no gathering. The choice depends on the data alone, as the model does.
DENSE_FROM = 0.5

_FLOAT32_MAX = np.float64(np.finfo(np.float32).max)
_INT32_MAX = np.iinfo(np.int32).max


class SparseRows(NamedTuple):
    """Rows in CSR form, each with sorted, distinct, non-zero entries. The core takes it as it is."""

    indptr: Array  # int64
    indices: Array  # int32
    values: Array  # float32
    n_features: int

    @property
    def dense(self) -> bool:
        return False

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_entries(self) -> int:
        return len(self.values)

    @property
    def negative(self) -> bool:
        """Whether any value is below 0."""
        return bool(self.values.min(initial=0.0) < 0)

    @classmethod
    def from_scipy(cls, csr: sp.csr_array) -> "SparseRows":
        """Return the rows of a matrix in canonical form; borrows its arrays where the types are right."""
        indptr, indices = csr.indptr.astype(np.int64, copy=False), csr.indices.astype(np.int32, copy=False)
        return cls(indptr, indices, csr.data.astype(np.float32, copy=False), csr.shape[1])

    @classmethod
    def joined(cls, parts: Sequence["SparseRows"], n_features: int) -> "SparseRows":
        """Return all rows of the parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)])
        indices = np.concatenate([np.empty(0, np.int32), *(part.indices for part in parts)])
        values = np.concatenate([np.empty(0, np.float32), *(part.values for part in parts)])
        return cls(np.cumsum(sizes, dtype=np.int64), indices, values, n_features)

    def to_core(self) -> "SparseRows":
        return self

    def to_scipy(self) -> sp.csr_array:
        """Return the rows as a matrix that borrows indices and values."""
        # scipy would choose the wider of two index types and copy.
        indptr = self.indptr.astype(np.int32, copy=False) if self.n_entries < 2**31 else self.indptr
        matrix = sp.csr_array((self.values, self.indices, indptr), shape=(self.n_rows, self.n_features))
        matrix.has_canonical_format = True  # not to be checked again
        return matrix

    def to_dense(self) -> "DenseRows":
        return DenseRows(self.to_scipy().toarray())

    def to_sparse(self) -> "SparseRows":
        return self

    def unit(self) -> "SparseRows":
        """Return the rows scaled to length 1; a row of zeros stays as it is."""
        # Of an empty row, reduceat gives a number that is repeated 0 times.
        squares = np.add.reduceat(np.append(self.values.astype(np.float64) ** 2, 0.0), self.indptr[:-1])
        norms = np.repeat(np.sqrt(np.where(squares > 0, squares, 1.0)), np.diff(self.indptr))
        return self._replace(values=(self.values / norms).astype(np.float32))

    def take(self, rows: Array) -> "SparseRows":
        """Return some of the rows, in this order."""
        sizes = self.indptr[rows + 1] - self.indptr[rows]
        ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        indices, values = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.float32)
        step = 4096  # the places of all entries at once would take more memory than these themselves
        for begin in range(0, len(rows), step):
            part = slice(ptr[begin], ptr[min(len(rows), begin + step)])
            entries = select(self.indptr, rows[begin : begin + step])[1]
            indices[part], values[part] = self.indices[entries], self.values[entries]
        return SparseRows(ptr, indices, values, self.n_features)

    def batches(self, size: int) -> Iterator["SparseRows"]:
        """Yield the rows in parts of this size; one without rows if there are none."""
        for begin in range(0, max(1, self.n_rows), size):
            ptr = self.indptr[begin : begin + size + 1]
            entries = slice(ptr[0], ptr[-1])
            yield SparseRows(ptr - ptr[0], self.indices[entries], self.values[entries], self.n_features)

    def by_density(self) -> "Rows":
        """Return the same rows, dense if half of the entries or more are not 0."""
        return self if self.n_entries < DENSE_FROM * self.n_rows * self.n_features else self.to_dense()


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows with all of their entries."""

    values: Array  # float32, C-contiguous, (rows, features)

    @property
    def dense(self) -> bool:
        return True

    @property
    def n_rows(self) -> int:
        return self.values.shape[0]

    @property
    def n_features(self) -> int:
        return self.values.shape[1]

    @cached_property
    def n_entries(self) -> int:
        """Entries that are not 0."""
        return int(np.count_nonzero(self.values))

    @property
    def negative(self) -> bool:
        """Whether any value is below 0."""
        return bool(self.values.min(initial=0.0) < 0)

    def to_core(self) -> Array:
        return self.values

    def to_scipy(self) -> sp.csr_array:
        """Return the rows as a matrix."""
        return sp.csr_array(self.values)

    def to_dense(self) -> "DenseRows":
        return self

    def to_sparse(self) -> SparseRows:
        return _canonical(self.to_scipy())

    def unit(self) -> "DenseRows":
        """Return the rows scaled to length 1; a row of zeros stays as it is."""
        norms = np.sqrt(np.einsum("ij,ij->i", self.values, self.values, dtype=np.float64))
        return DenseRows((self.values / np.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32))

    def take(self, rows: Array) -> "DenseRows":
        """Return some of the rows, in this order."""
        return DenseRows(self.values[rows])

    def batches(self, size: int) -> Iterator["DenseRows"]:
        """Yield the rows in parts of this size; one without rows if there are none."""
        for begin in range(0, max(1, self.n_rows), size):
            yield DenseRows(self.values[begin : begin + size])

    def by_density(self) -> "Rows":
        """Return the same rows, sparse if less than half of the entries are not 0."""
        sparse = self.n_entries < DENSE_FROM * self.n_rows * self.n_features
        return self.to_sparse() if sparse else self


Rows = SparseRows | DenseRows


@dataclass(frozen=True, eq=False)
class FusedRows:
    """The same rows in the form that each member of a fusion reads; members may share one object."""

    parts: tuple[Any, ...]  # Rows, or FusedRows where a member is a fusion

    @property
    def n_rows(self) -> int:
        return int(self.parts[0].n_rows)

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self._distinct.values())

    @cached_property
    def _distinct(self) -> dict[int, Any]:
        return {id(part): part for part in self.parts}

    def take(self, rows: Array) -> "FusedRows":
        """Return some of the rows, in this order."""
        found = {key: part.take(rows) for key, part in self._distinct.items()}
        return FusedRows(tuple(found[id(part)] for part in self.parts))

    def batches(self, size: int) -> Iterator["FusedRows"]:
        """Yield the rows in parts of this size; one without rows if there are none."""
        for batch in zip(*(part.batches(size) for part in self._distinct.values()), strict=True):
            found = dict(zip(self._distinct, batch, strict=True))
            yield FusedRows(tuple(found[id(part)] for part in self.parts))


def training_rows(X: Any, estimator: str) -> tuple[Rows, Array | None]:
    """Return X of `fit`, sparse or dense by its entries, and the names of features."""
    from sklearn.base import BaseEstimator  # takes a second to import: predictions of texts do without

    reference = BaseEstimator()  # takes the attributes that the checks set: the estimator stays as it is
    rows = _as_rows(_checked(reference, X, estimator, reset=True)).by_density()
    names = getattr(reference, "feature_names_in_", None)
    if names is not None:
        check_names(names.tolist(), "X", "X holds the feature name")
    return rows, names


def check_names(names: Sequence[str], matrix: str, place: str) -> None:
    """Raise ValueError for names of columns that are not distinct, or that a file of a model cannot hold."""
    seen = set()
    for name in names:
        check_encodable(name, place)
        if name in seen:
            raise ValueError(f"{matrix} has two columns with the name {name!r}; names must differ")
        seen.add(name)


def check_encodable(text: str, place: str) -> None:
    """Raise ValueError for half of a surrogate pair: texts are stored as UTF-8, which has no place for it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place} {text!r}, which is not valid Unicode: {error}") from error


def prediction_rows(X: Any, estimator: Any, n_features: int, named: bool) -> Rows:
    """Return X of a fitted estimator, whose number and names of features it must have."""
    ready = None if named else _ready_csr(X, n_features)  # names are compared with those of X
    if ready is not None:
        return ready
    return _as_rows(_checked(estimator, X, type(estimator).__name__, reset=False))


def _checked(reference: Any, X: Any, estimator: str, reset: bool) -> Any:
    X = proven_csr(X, "X") if is_sparse(X) else X
    options: dict[str, Any] = {"dtype": "numeric", "accept_large_sparse": True, "estimator": estimator}
    from sklearn.utils.validation import validate_data

    return validate_data(reference, X, reset=reset, accept_sparse="csr", **options)


def _as_rows(X: Any) -> Rows:
    return _canonical(sp.csr_array(X)) if is_sparse(X) else DenseRows(as_float32(X))


def _ready_csr(X: Any, n_features: int) -> SparseRows | None:
    """Return the arrays of a CSR matrix that needs no conversion, or None.

    scikit-learn's checks of a single row take longer than its prediction, and those below a fifth of it.
    """
    if not isinstance(X, sp.csr_array | sp.csr_matrix) or X.shape[1:] != (n_features,) or X.shape[0] == 0:
        return None
    indptr, indices, data = X.indptr, X.indices, X.data
    if X.shape[0] == 1:
        ready = type(indptr) is np.ndarray and indptr.tolist() == [0, len(indices)]
        ready = ready and _core.is_row(indices, data, n_features)
        return SparseRows(indptr.astype(np.int64), indices, data, n_features) if ready else None
    if (
        data.dtype == np.float32
        and indices.dtype == np.int32
        and data.flags.c_contiguous
        and indices.flags.c_contiguous
        and is_canonical(indptr, indices, data, X.shape)
        # NaN and infinities propagate; a sum that overflows takes the longer way
        and math.isfinite(data.sum())
    ):
        return SparseRows(indptr.astype(np.int64), indices, data, n_features)
    return None


def bytes_beside(X: Any, rows: Rows | None = None) -> int:
    """Return the bytes of the caller's arrays, without those that `rows` shares."""
    parts = [getattr(X, name, None) for name in ("indptr", "indices", "data")] if is_sparse(X) else [X]
    used = [] if rows is None else [rows.values] if isinstance(rows, DenseRows) else list(rows[:3])
    return sum(
        part.nbytes
        for part in parts
        if isinstance(part, np.ndarray) and not any(np.may_share_memory(part, array) for array in used)
    )


def _canonical(csr: sp.csr_array) -> SparseRows:
    """Return sorted, distinct, non-zero entries of proven arrays; borrow these where they are so already."""
    if csr.shape[1] > _INT32_MAX:
        raise ValueError(f"X has {csr.shape[1]:,} features; the most that are possible is 2³¹ − 1")
    if not csr.has_canonical_format:
        # A copy, as sum_duplicates works in place; wide, as sums of small integers would wrap around.
        csr = csr.astype(np.bool_ if csr.dtype.kind == "b" else np.float64)
        csr.sum_duplicates()
    values = as_float32(csr.data)
    if not values.all():
        csr = sp.csr_array((values, csr.indices, csr.indptr), shape=csr.shape, copy=True)
        csr.eliminate_zeros()
        values = csr.data
    indices = np.ascontiguousarray(csr.indices, dtype=np.int32)
    return SparseRows(np.ascontiguousarray(csr.indptr, dtype=np.int64), indices, values, csr.shape[1])


def select(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """Return the row pointers of these rows, and the places of their entries."""
    sizes = indptr[rows + 1] - indptr[rows]
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return ptr, np.arange(ptr[-1]) + np.repeat(indptr[rows] - ptr[:-1], sizes)


def as_float32(values: Array) -> Array:
    """Convert to C-contiguous float32; ValueError for values that it cannot hold."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {values.dtype}, but must hold numbers")
    wide = values.dtype.kind == "f" and values.dtype.itemsize > 4
    if wide and values.size and max(abs(values.max()), abs(values.min())) > _FLOAT32_MAX:
        raise ValueError(
            f"X holds values beyond the range of float32 (±{_FLOAT32_MAX:.3g}); rescale the features"
        )
    return np.ascontiguousarray(values, dtype=np.float32)


def label_vectors(matrix: Any, n_labels: int) -> Rows:
    """Return a user's own label vectors, one row for each label, made unit-norm."""
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
    return _as_rows(vectors).by_density().unit()
