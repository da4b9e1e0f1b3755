"""Label sets as users give them, checked here once."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.rows import check_encodable, check_names, select
from bonsai_xmc._data.sparse import is_sparse, proven_csr

_INT64_MAX = np.iinfo(np.int64).max
_LARGEST_WEIGHT = 1e9


@dataclass(frozen=True)
class Labels:
    """Label sets of all rows: CSR without values, ids ascending in each row."""

    indptr: Array  # int64
    indices: Array  # int32: places in `classes`
    classes: Array  # names (objects) or integers, one for each id

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_labels(self) -> int:
        return len(self.classes)

    @cached_property
    def counts(self) -> Array:
        """Rows of each label."""
        counts = np.bincount(self.indices, minlength=self.n_labels)
        counts.flags.writeable = False
        return counts

    def matrix(self, dtype: Any = np.float32) -> sp.csr_array:
        """Return the label sets as a matrix of ones, (rows, labels)."""
        ones = np.ones(len(self.indices), dtype)
        return sp.csr_array((ones, self.indices, self.indptr), shape=(self.n_rows, self.n_labels))

    def take(self, rows: Array) -> "Labels":
        """Return the label sets of these rows, in this order."""
        indptr, entries = select(self.indptr, rows)
        return replace(self, indptr=indptr, indices=self.indices[entries])


def labels_of(Y: Any) -> Labels:
    """Read label sets from an indicator matrix or a data frame of one, or from lists of names or integers.

    Columns of a matrix are the integers 0, 1, …; names and integers in lists are keys: the classes are those
    that occur, in sorted order.
    """
    if Y is None:
        raise ValueError("Bonsai requires y to be passed, but the target y is None")
    if not is_matrix(Y):
        return _from_lists(label_rows(Y))
    if not is_sparse(Y) and not hasattr(Y, "columns") and np.ndim(Y) != 2:
        from sklearn.utils.multiclass import type_of_target  # takes a second to import

        raise ValueError(
            f"Y has {np.ndim(Y)} dimension(s) ({type_of_target(np.asarray(Y))} target), but must be an "
            "indicator matrix (rows × labels). For one class for each row, pass a list of one-element lists."
        )
    names, matrix = column_names(Y), indicator(Y)
    return _labels(matrix, np.arange(matrix.shape[1]) if names is None else names)


def _labels(matrix: sp.csr_array, classes: Array) -> Labels:
    return Labels(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), classes)


def column_names(Y: Any) -> Array | None:
    """Return the names of a data frame's columns, if all of them are strings."""
    if not hasattr(Y, "columns") or not all(isinstance(name, str) for name in Y.columns):
        return None
    names = [str(name) for name in Y.columns]
    check_names(names, "Y", "a column of Y holds the label")
    return _object_array(names)


def over_classes(Y: Any, classes: Array) -> sp.csr_array:
    """Return Y, of any kind that `fit` takes, as an indicator matrix over `classes`, without other labels.

    A matrix has a column for each class. Lists hold names or integers as `classes` does.
    """
    labels = labels_of(Y)
    columns = labels.indices
    shape = (labels.n_rows, len(classes))
    if is_matrix(Y) and not (labels.classes.dtype == object and classes.dtype == object):
        if labels.n_labels != len(classes):
            raise ValueError(
                f"Y has {labels.n_labels:,} columns, but the model has {len(classes):,} labels; a matrix "
                "needs a column for each of them"
            )
    elif len(labels.indices):
        if (labels.classes.dtype == object) != (classes.dtype == object):
            raise ValueError(
                "Y holds label names, but the model was fitted on labels without names"
                if labels.classes.dtype == object
                else "Y holds integers, but the model was fitted on label names"
            )
        place = {label: i for i, label in enumerate(classes.tolist())}
        columns = np.array([place.get(label, -1) for label in labels.classes.tolist()])[labels.indices]
    rows = np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr))
    known = columns >= 0
    return sp.csr_array((np.ones(known.sum(), np.int8), (rows[known], columns[known])), shape=shape)


def check_rows(n_rows: int, n_labelled: int) -> None:
    """Raise ValueError unless X and Y have the same number of rows."""
    if n_rows != n_labelled:
        raise ValueError(
            f"X has {n_rows:,} rows, but Y has {n_labelled:,}; they must have the same number of rows"
        )


def is_true(truth: Any, ids: Array) -> Array:
    """Return whether each of the ranked labels of each row is a true one; False for the id −1.

    `truth` has the true labels of row i in ``indices[indptr[i]:indptr[i + 1]]``, as `Labels` and sparse
    matrices do.
    """
    n_labels = np.int64(max(truth.indices.max(initial=0), ids.max(initial=0))) + 1
    rows = np.repeat(np.arange(len(ids)), np.diff(truth.indptr))
    # linear where the labels of each row ascend; the last one is for those beyond all others
    keys = np.append(np.sort(rows * n_labels + truth.indices, kind="stable"), -1)
    wanted = np.arange(len(ids))[:, None] * n_labels + ids
    return (keys[np.searchsorted(keys[:-1], wanted)] == wanted) & (ids >= 0)


def row_weights(sample_weight: Any, n_rows: int) -> Array | None:
    """Return the weights of the rows as float32, if there are any."""
    if sample_weight is None:
        return None
    if is_sparse(sample_weight):
        raise ValueError("sample_weight is a sparse matrix, but must be an array with a number for each row")
    from sklearn.utils.validation import _check_sample_weight

    try:
        weights = _check_sample_weight(
            sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True
        )
    except TypeError as error:
        raise ValueError(f"sample_weight holds what is no number: {error}") from error
    if not weights.any():
        raise ValueError("sample_weight is 0 for every row; there is nothing to learn")
    if weights.max() > _LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight[{weights.argmax()}] is {weights.max():.3g}, but weights are at most "
            f"{_LARGEST_WEIGHT:.0e}; divide all of them by the same number and multiply C by it"
        )
    return weights.astype(np.float32)


def is_matrix(Y: Any) -> bool:
    """Return whether `Y` has columns, as an indicator matrix has; otherwise it should be lists of labels."""
    if sp.issparse(Y) or hasattr(Y, "columns"):
        return True
    if not hasattr(Y, "__array__"):
        return False
    array = np.asarray(Y)
    return array.dtype != object or array.ndim == 2


def indicator(Y: Any, name: str = "Y") -> sp.csr_array:
    """Return a 0/1 matrix in canonical CSR form without explicit zeros; the caller's is not changed.

    Parameters
    ----------
    Y : sparse matrix, 2-D array or data frame
    name : str
        What error messages call it.
    """
    if hasattr(Y, "columns") and hasattr(Y, "to_numpy"):
        Y = Y.to_numpy()
    sparse = is_sparse(Y)
    matrix: Any = Y if sparse else np.asarray(Y)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be a matrix of rows × labels, but its shape is {matrix.shape}")
    if matrix.dtype == object:  # numbers of several types, as data frames hold them
        with contextlib.suppress(TypeError, ValueError):
            matrix = matrix.astype(np.float64)
    if matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has dtype {matrix.dtype}, but an indicator matrix holds the numbers 0 and 1"
        )
    if matrix.dtype == np.float16:  # scipy has no such sparse matrices
        matrix = matrix.astype(np.float32)
    if matrix.shape[1] > np.iinfo(np.int32).max:
        raise ValueError(f"{name} has {matrix.shape[1]:,} columns; the most that are possible is 2³¹ − 1")
    csr = proven_csr(matrix, name) if sparse else sp.csr_array(matrix)
    summed = sparse and (matrix.format == "coo" or not csr.has_canonical_format)
    if not csr.has_canonical_format:
        csr = csr.copy()  # it may share memory with the caller's matrix
        csr.sum_duplicates()
    wrong = (csr.data != 0) & (csr.data != 1)
    if wrong.any():
        at = int(wrong.argmax())
        row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
        why = " (entries that are stored twice add up)" if summed else ""
        raise ValueError(
            f"{name}[{row}, {csr.indices[at]}] is {csr.data[at]}{why}, but an indicator matrix holds only "
            f"0 and 1. Binarise it, e.g. {name} = ({name} > 0); weights of rows go into sample_weight."
        )
    if not csr.data.all():
        csr = csr.copy()
        csr.eliminate_zeros()
    return csr


def label_rows(Y: Any, name: str = "Y") -> list[list[Any]]:
    """Return the labels of each row, names (strings) or integers, not both, as Python's own types."""
    if not _is_list(Y):
        raise ValueError(
            f"{name} is of type {type(Y).__name__}; pass an indicator matrix, or one list of labels for each "
            "row"
        )
    rows: list[list[Any]] = []
    strings: bool | None = None
    ordered = True  # rows are sequences, not sets
    for i, row in enumerate(Y):
        if not _is_list(row):
            raise ValueError(
                f"{name}[{i}] is {row!r}; each row of {name} is a list of labels, e.g. [{row!r}] for a "
                "single one"
            )
        ordered = ordered and isinstance(row, Sequence | np.ndarray)
        labels = [
            label if type(label) is str and label.isascii() else _label(label, i, name) for label in row
        ]
        if labels and strings is None:
            strings = isinstance(labels[0], str)
        for label in labels:
            if isinstance(label, str) != strings:
                raise ValueError(
                    f"{name}[{i}] holds {label!r}; labels in lists are all names (strings) or all integers"
                )
        rows.append(labels)
    if ordered and not strings:
        _check_unambiguous(rows, name)
    return rows


def _is_list(value: Any) -> bool:
    """Return whether a value holds others; a string does not, nor an array without dimensions."""
    text = isinstance(value, str | bytes)
    return isinstance(value, Iterable) and not text and getattr(value, "ndim", 1) != 0


def label_key(label: Any, place: str) -> str | int:
    """Return a single label, a name or an integer, as Python's own type."""
    if isinstance(label, str):
        check_encodable(label, f"{place} holds the label")
        return str(label)
    if isinstance(label, bool | np.bool_) or not isinstance(label, int | np.integer):
        raise ValueError(f"{place}: {label!r} is neither a name (a string) nor an integer")
    if not 0 <= label <= _INT64_MAX:
        raise ValueError(f"{place} holds the label {label}; integer labels are from 0 to 2⁶³ − 1")
    return int(label)


def _label(label: Any, row: int, name: str) -> str | int:
    if isinstance(label, str | int | np.integer) and not isinstance(label, bool):
        return label_key(label, f"{name}[{row}]")
    matrix = isinstance(label, bool | np.bool_ | float | np.floating)
    raise ValueError(
        f"{name}[{row}] holds {label!r}; labels in lists are all names (strings) or all integers"
        + (f". If {name} is an indicator matrix, pass np.asarray({name})" if matrix else "")
    )


def _check_unambiguous(rows: list[list[int]], name: str) -> None:
    """Refuse rows of 0 and 1 of equal length: an indicator matrix, or lists of the labels 0 and 1."""
    width = len(rows[0]) if rows else 0
    if width >= 2 and all(len(row) == width and all(label in (0, 1) for label in row) for row in rows):
        raise ValueError(
            f"{name} may be an indicator matrix or lists of the labels 0 and 1. Pass np.asarray({name}) if "
            f"each entry says whether the row has the label of that column, or sets, "
            f"[set(row) for row in {name}], if the entries are labels"
        )


def _from_lists(rows: list[list[Any]]) -> Labels:
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = [label for row in rows for label in row]
    integers = flat and isinstance(flat[0], int)
    array = np.array(flat, dtype=np.int64) if integers else _object_array(flat)
    classes, ids = np.unique(array, return_inverse=True)
    owner = np.repeat(np.arange(len(rows)), sizes)
    matrix = sp.csr_array((np.ones(len(ids), np.int64), (owner, ids)), shape=(len(rows), len(classes)))
    matrix.sum_duplicates()
    return _labels(matrix, classes)


def _object_array(values: list[Any]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
