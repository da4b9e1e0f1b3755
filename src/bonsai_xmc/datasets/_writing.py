"""Writing rows and labels: files of the Extreme Classification Repository, svmlight and ``.npz`` pairs.

Imports the core, which formats numbers.
"""

import os
from collections.abc import Iterator
from itertools import repeat
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array

from bonsai_xmc import _core
from bonsai_xmc._base.files import PathLike, replacing_text
from bonsai_xmc._data.labels import indicator
from bonsai_xmc._data.rows import SparseRows

from ._types import check_choice, float_rows

_BLOCK_ROWS = 4096  # rows formatted at a time, which bounds memory


def save_xc(
    path: PathLike,
    X: Any,
    Y: Any,
    labels: PathLike | None = None,
    *,
    format: Literal["auto", "xc", "svmlight"] = "auto",
    base: Literal[0, 1] = 0,
    label_base: Literal[0, 1] = 0,
) -> None:
    """Write rows with their labels in a form that :func:`load_xc` reads back exactly.

    Values are written as the shortest decimals that give the same float32. Each file is written
    atomically: to a temporary file in the same folder, which is flushed to the disk and renamed. Equal data
    give equal bytes.

    Parameters
    ----------
    path : path
        The file; ``.gz``, ``.bz2`` and ``.xz`` compress text.
    X : sparse matrix or array-like, shape (rows, n_features)
        Finite values that fit in float32.
    Y : sparse matrix or array-like, shape (rows, n_labels)
        0 and 1.
    labels : path, optional
        A separate file for the labels: `path` and `labels` become split files, or an ``.npz`` pair if both
        names end in ``.npz``.
    format : {"auto", "xc", "svmlight"}
        Form of a single file; "auto" is "xc".
    base, label_base : {0, 1}
        Ids that the first feature and the first label get in text.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "train.txt")
    >>> datasets.save_xc(file, np.array([[0, 0.1], [2, 0]]), np.array([[1, 1, 0], [0, 0, 1]]))
    >>> print(file.read_text())
    2 2 3
    0,1 1:0.1
    2 0:2
    <BLANKLINE>
    """
    check_choice("format", format, ("auto", "xc", "svmlight"))
    check_choice("base", base, (0, 1))
    check_choice("label_base", label_base, (0, 1))
    X, Y = float_rows(X, "X"), indicator(Y).astype(np.float32)
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but Y has {Y.shape[0]}")
    if labels is not None:
        if os.path.realpath(path) == os.path.realpath(labels):
            raise ValueError(f"{path} cannot hold the features and the labels; give two names")
        if format != "auto":
            raise ValueError(f"format={format!r} is a single file; labels must not be given")
        _save_matrix(path, X, base)
        _save_matrix(labels, Y, label_base)
        return
    if str(path).endswith(".npz"):
        raise ValueError(f"{path}: an .npz pair needs a second path for the labels")
    with replacing_text(path) as file:
        if format != "svmlight":
            file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n".encode())
        file.writelines(_format(X, Y, base, label_base))


def save_sparse(path: PathLike, matrix: Any) -> None:
    """Write one sparse matrix in a form that :func:`load_sparse` reads back exactly.

    Parameters
    ----------
    path : path
        Text (``.gz``, ``.bz2`` and ``.xz`` compress it), or ``.npz``.
    matrix : sparse matrix or array-like
        Finite values that fit in float32.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "scores.txt")
    >>> datasets.save_sparse(file, [[0.5, 0, 0.75]])
    >>> print(file.read_text())
    1 3
    0:0.5 2:0.75
    <BLANKLINE>
    """
    _save_matrix(path, float_rows(matrix, "matrix"), 0)


def _format(X: csr_array, Y: csr_array | None, base: int, label_base: int) -> Iterator[bytes]:
    """Yield the text of all rows, in blocks."""
    labels = repeat(None) if Y is None else SparseRows.from_scipy(Y).batches(_BLOCK_ROWS)
    for x, y in zip(SparseRows.from_scipy(X).batches(_BLOCK_ROWS), labels, strict=False):
        ptr, ids = (None, None) if y is None else (y.indptr, y.indices)
        yield _core.format_rows(x.indptr, x.indices, x.values, ptr, ids, base, label_base)


def _save_matrix(path: PathLike, matrix: csr_array, base: int) -> None:
    with replacing_text(path) as file:
        if str(path).endswith(".npz"):
            sparse.save_npz(file, matrix)
        else:
            file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
            file.writelines(_format(matrix, None, base, 0))
