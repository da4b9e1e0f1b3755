"""Results of loaders and generators, and their common checks."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc._data.rows import SparseRows
from bonsai_xmc._data.sparse import is_sparse, proven_csr


class Dataset(NamedTuple):
    """Matrices of a data set, split into train and test.

    Attributes
    ----------
    X_train, X_test : csr_array of float32, shape (rows, n_features)
        Features of the rows.
    Y_train, Y_test : csr_array of float32, shape (rows, n_labels)
        1 where the row has the label.
    label_names : list of str or None
        Name of each column of Y.
    feature_names : list of str or None
        Name of each column of X.
    """

    X_train: csr_array
    Y_train: csr_array
    X_test: csr_array
    Y_test: csr_array
    label_names: list[str] | None
    feature_names: list[str] | None


class TextDataset(NamedTuple):
    """Texts with the names of their labels, split into train and test.

    Attributes
    ----------
    texts_train, texts_test : list of str
        The texts.
    labels_train, labels_test : list of lists of str
        The labels of each text, most important first.
    label_names : list of str
        Every label that the data set may use.
    """

    texts_train: list[str]
    labels_train: list[list[str]]
    texts_test: list[str]
    labels_test: list[list[str]]
    label_names: list[str]


def to_csr(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray | None, columns: int) -> csr_array:
    """Return rows of ascending, unique ids, with ones unless values are given; the arrays are not copied."""
    values = np.ones(len(indices), np.float32) if values is None else values
    return SparseRows(indptr, indices, values, columns).to_scipy()


def float_rows(matrix: Any, name: str) -> csr_array:
    """Return canonical float32 rows, as a copy if anything has to change."""
    matrix = matrix if is_sparse(matrix) else np.atleast_2d(np.asarray(matrix))
    if matrix.dtype.kind not in "biuf" or matrix.ndim != 2:
        raise ValueError(f"{name} must be a matrix of real numbers, not {matrix.ndim}-D {matrix.dtype}")
    rows = proven_csr(matrix, name) if is_sparse(matrix) else csr_array(matrix)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    with np.errstate(over="ignore"):
        values = rows.data.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row = int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        raise ValueError(f"{name} has the value {rows.data[bad[0]]} in row {row}, no finite float32 number")
    return to_csr(rows.indptr, rows.indices, values, rows.shape[1])


def check_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed or isinstance(value, bool):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
