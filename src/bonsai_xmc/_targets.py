"""Label sets from outside: checked once, here, before anything uses them."""

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp


def is_matrix(Y: Any) -> bool:
    """Whether `Y` has columns, as an indicator matrix has; otherwise it should be lists of labels."""
    if sp.issparse(Y) or hasattr(Y, "columns"):
        return True
    if not hasattr(Y, "__array__"):
        return False
    array = np.asarray(Y)
    return array.dtype != object or array.ndim == 2


def indicator(Y: Any, name: str = "Y") -> sp.csr_array:
    """A 0/1 matrix in canonical CSR form without explicit zeros; the caller's matrix is not changed.

    Parameters
    ----------
    Y : sparse matrix, 2-D array or data frame
    name : str
        What error messages call it.
    """
    if hasattr(Y, "columns") and hasattr(Y, "to_numpy"):
        Y = Y.to_numpy()
    is_sparse = bool(sp.issparse(Y))  # a plain bool, as type checkers narrow to a class without attributes
    matrix: Any = Y if is_sparse else np.asarray(Y)
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
    if is_sparse and matrix.format in ("csr", "csc", "bsr"):
        # On a copy of the object, as the check trims its arrays; scipy itself trusts the indices.
        try:
            type(matrix)(matrix).check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"{name} is not a valid sparse matrix: {error}") from error
    csr = sp.csr_array(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()  # it may share memory with the caller's matrix
        csr.sum_duplicates()
    wrong = (csr.data != 0) & (csr.data != 1)
    if wrong.any():
        at = int(wrong.argmax())
        row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
        why = " (entries that are stored twice add up)" if is_sparse else ""
        raise ValueError(
            f"{name}[{row}, {csr.indices[at]}] is {csr.data[at]}{why}, but an indicator matrix holds only "
            f"0 and 1. Binarise it, e.g. {name} = ({name} > 0); weights of rows go into sample_weight."
        )
    if not csr.data.all():
        csr = csr.copy()
        csr.eliminate_zeros()
    return csr


def label_rows(Y: Any, name: str = "Y") -> list[list[Any]]:
    """Lists of labels, one for each row: names (strings) or integer keys, not both."""
    if isinstance(Y, str) or not isinstance(Y, Iterable):
        raise ValueError(
            f"{name} is of type {type(Y).__name__}; pass an indicator matrix, or one list of labels for each "
            "row"
        )
    rows, names, keys = [], 0, 0
    for i, row in enumerate(Y):
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise ValueError(
                f"{name}[{i}] is {row!r}; each row of {name} is a list of labels, e.g. [{row!r}] for a "
                "single one"
            )
        labels = list(row)
        for label in labels:
            is_key = isinstance(label, int | np.integer) and not isinstance(label, bool | np.bool_)
            names += isinstance(label, str)
            keys += is_key
            if (names and keys) or not (is_key or isinstance(label, str)):
                raise ValueError(
                    f"{name}[{i}] holds {label!r}; labels in lists are all names (strings) or all integers"
                )
        rows.append(labels)
    return rows
