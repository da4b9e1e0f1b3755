"""Files of the Extreme Classification Repository, svmlight and `.npz` pairs: reading and writing."""

import contextlib
import io
import operator
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array

from bonsai_xmc import _core
from bonsai_xmc._files import PathLike, opened, replacing_text
from bonsai_xmc._targets import indicator

from ._types import to_csr

Base = Literal["auto", 0, 1]
Layout = tuple[str, str | None]  # names of the files with features and labels, or of the one with both

_FROM_FILE = -1  # the core's "as the text says"
_MAX_COLUMNS = 2**31 - 1  # ids are 32-bit numbers
_BLOCK_ROWS = 4096  # rows formatted at a time: bounds the memory that writing takes

# Where a folder keeps the features and labels of a part; text files may end in .gz too.
LAYOUTS: tuple[Layout, ...] = (
    ("{part}_X_Xf.txt", "{part}_X_Y.txt"),
    ("X_{part}.npz", "Y_{part}.npz"),
    ("X.{part}.npz", "Y.{part}.npz"),
    ("{long}.txt", None),
)
LONG_NAMES = {"trn": "train", "tst": "test"}


def load_xc(
    path: PathLike,
    labels: PathLike | None = None,
    *,
    format: Literal["auto", "xc", "split", "svmlight"] = "auto",
    base: Base = "auto",
    label_base: Literal[0, 1] = 0,
    n_features: int | None = None,
    n_labels: int | None = None,
    split: str = "trn",
) -> tuple[csr_array, csr_array]:
    """Read rows with their labels.

    Understood are

    - one file of the Extreme Classification Repository: a header ``rows features labels``, then a line
      ``l1,l2 f:v f:v`` for each row (nothing before the first blank = no labels);
    - its split files, features in `path` and `labels` in the other: a header ``rows columns``, then a line
      ``id:value id:value`` for each row, the value of a label being 1;
    - svmlight: lines as in the first case without a header, ``# comments`` allowed, empty lines skipped;
    - a pair of ``.npz`` files written by :func:`scipy.sparse.save_npz`;
    - a folder with any of these under their usual names (``trn_X_Xf.txt`` and ``trn_X_Y.txt``,
      ``X_trn.npz`` and ``Y_trn.npz``, ``X.trn.npz`` and ``Y.trn.npz``, ``train.txt``).

    Text may be gzip-compressed, have CRLF line ends or a byte order mark. Features of a row may come in any
    order, but not twice; a label that is repeated counts once.

    Parameters
    ----------
    path : path
        The file, the feature file, or the folder.
    labels : path, optional
        The label file of a split pair.
    format : {"auto", "xc", "split", "svmlight"}
        What the text is; "auto" looks at its first line. ``.npz`` files are recognised by their content.
    base : {"auto", 0, 1}
        Id of the first feature in text. "auto": 0 where there is a header; in svmlight 0 if the id 0 occurs
        and else 1, so give the number if a file might not use its first feature.
    label_base : {0, 1}
        Id of the first label in text.
    n_features, n_labels : int, optional
        Columns of the results, so that a test file agrees with a training file. Default: as the header
        says, in svmlight the largest id that occurs.
    split : str
        Which part of a folder: "trn" or "tst", or another name that its files have.

    Returns
    -------
    X : csr_array of float32, shape (rows, n_features)
    Y : csr_array of float32, shape (rows, n_labels)
        1 where the row has the label.

    Raises
    ------
    ValueError
        For what cannot be read; the message holds file, line, column and what is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "train.txt")
    >>> _ = file.write_text("2 4 3\\n0,2 1:0.5 3:1\\n 0:2\\n")
    >>> X, Y = datasets.load_xc(file)
    >>> X.toarray().tolist()
    [[0.0, 0.5, 0.0, 1.0], [2.0, 0.0, 0.0, 0.0]]
    >>> Y.toarray().tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    _check_choice("format", format, ("auto", "xc", "split", "svmlight"))
    _check_choice("base", base, ("auto", 0, 1))
    _check_choice("label_base", label_base, (0, 1))
    _check_columns("n_features", n_features)
    _check_columns("n_labels", n_labels)
    if Path(path).is_dir():
        if labels is not None:
            raise ValueError(f"{path} is a folder, so labels must not be given; it holds them itself")
        path, labels = find_part(Path(path), split)
    if labels is not None and format in ("xc", "svmlight"):
        raise ValueError(f"format={format!r} is a single file; labels must not be given")

    data = _read(path)
    if labels is not None:
        X = _matrix(path, data, base, n_features, "feature")
        Y = _matrix(labels, _read(labels), label_base, n_labels, "label")
        if X.shape[0] != Y.shape[0]:
            raise ValueError(f"{path} has {X.shape[0]} rows, but {labels} has {Y.shape[0]}")
        return X, Y
    kind = _sniff(data) if format == "auto" else format
    if kind in ("npz", "split"):
        raise ValueError(f"{path} holds features only: give the file with the labels as the second argument")
    parse = _core.parse_xc if kind == "xc" else _core.parse_svmlight
    columns = (_FROM_FILE if n is None else n for n in (n_features, n_labels))
    with _naming(path):
        parts = parse(_bytes_array(data), _FROM_FILE if base == "auto" else base, label_base, *columns)
    indptr, indices, values, width, label_indptr, label_indices, label_width = parts
    return to_csr(indptr, indices, values, width), to_csr(label_indptr, label_indices, None, label_width)


def load_sparse(path: PathLike, *, n_columns: int | None = None) -> csr_array:
    """Read one sparse matrix: features, label scores or predictions.

    Parameters
    ----------
    path : path
        Text with a header ``rows columns`` and a line ``id:value id:value`` for each row (``.gz`` too), or a
        ``.npz`` file of :func:`scipy.sparse.save_npz`.
    n_columns : int, optional
        Columns of the result. Default: as the file says.

    Returns
    -------
    csr_array of float32

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "scores.txt")
    >>> _ = file.write_text("2 3\\n2:0.75 0:0.5\\n\\n")
    >>> datasets.load_sparse(file).toarray().tolist()
    [[0.5, 0.0, 0.75], [0.0, 0.0, 0.0]]
    """
    _check_columns("n_columns", n_columns)
    return _matrix(path, _read(path), 0, n_columns, "column")


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

    Values are written as the shortest decimals that give the same float32. Each file is complete or not
    there at all: it is written beside its place, flushed to the disk and renamed. Equal data give equal
    bytes.

    Parameters
    ----------
    path : path
        The file; ``.gz`` compresses text.
    X : sparse matrix or array-like, shape (rows, n_features)
        Finite values that fit in float32.
    Y : sparse matrix or array-like, shape (rows, n_labels)
        0 and 1.
    labels : path, optional
        Where labels go in a file of their own: `path` and `labels` become split files, or an ``.npz`` pair if
        both names end so.
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
    _check_choice("format", format, ("auto", "xc", "svmlight"))
    _check_choice("base", base, (0, 1))
    _check_choice("label_base", label_base, (0, 1))
    X, Y = _float_rows(X, "X"), indicator(Y).astype(np.float32)
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but Y has {Y.shape[0]}")
    if labels is not None:
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
        Text (``.gz`` compresses it), or ``.npz``.
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
    _save_matrix(path, _float_rows(matrix, "matrix"), 0)


def _check_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed or isinstance(value, bool):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _check_columns(name: str, value: int | None) -> None:
    if value is not None and not 0 < operator.index(value) <= _MAX_COLUMNS:
        raise ValueError(f"{name} must be between 1 and {_MAX_COLUMNS}, not {value}")


def find_part(folder: Path, part: str, layouts: tuple[Layout, ...] = LAYOUTS) -> tuple[Path, Path | None]:
    """The feature and label files of a part of a data set in a folder."""
    tried = []
    for names in layouts:
        wanted = [name.format(part=part, long=LONG_NAMES.get(part, part)) for name in names if name]
        found = [p for name in wanted for p in (folder / name, folder / f"{name}.gz") if p.is_file()]
        if len(found) > len(wanted):
            names_found = ", ".join(p.name for p in found)
            raise ValueError(f"{folder} has a file both with and without .gz: {names_found}")
        if len(found) == len(wanted):
            return found[0], found[1] if len(found) > 1 else None
        tried.append(" + ".join(wanted))
    raise FileNotFoundError(f"{folder} has no part {part!r}: looked for {', or '.join(tried)}")


def _read(path: PathLike) -> bytes:
    with opened(path) as file:
        return file.read()


def _bytes_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _sniff(data: bytes) -> str:
    """The format of a file by its beginning; a first line of several words without a colon is a header."""
    if data.startswith(b"PK\x03\x04"):
        return "npz"
    words = data[:4096].removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].split()
    if len(words) < 2 or any(b":" in word or b"#" in word for word in words):
        return "svmlight"
    return "split" if len(words) == 2 else "xc"


@contextlib.contextmanager
def _naming(path: PathLike) -> Iterator[None]:
    """Puts the file's name before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _matrix(path: PathLike, data: bytes, base: Base, columns: int | None, what: str) -> csr_array:
    """One matrix of a pair, text or npz; `what` is "label" for an indicator."""
    with _naming(path):
        if not data.startswith(b"PK\x03\x04"):
            text_base = 0 if base == "auto" else base
            width = _FROM_FILE if columns is None else columns
            parts = _core.parse_sparse(_bytes_array(data), text_base, width, what == "label", what)
            indptr, indices, values, width = parts
            return to_csr(indptr, indices, None if what == "label" else values, width)
        try:
            loaded: Any = sparse.load_npz(io.BytesIO(data))
            if loaded.format in ("csr", "csc", "bsr"):
                loaded.check_format(full_check=True)  # scipy itself trusts the indices in the file
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"not a file of scipy.sparse.save_npz ({error})") from error
        if what == "label":
            matrix = indicator(loaded).astype(np.float32)
        else:
            matrix = _float_rows(loaded, "the matrix")
        if columns is not None and columns != matrix.shape[1]:
            largest = matrix.indices.max(initial=-1)
            if largest >= columns:
                raise ValueError(f"{what} id {largest} is too large: there are {columns} {what}s")
            matrix = to_csr(matrix.indptr, matrix.indices, matrix.data, columns)
        return matrix


def _float_rows(matrix: Any, name: str) -> csr_array:
    """Canonical float32 rows with the given values, as a copy where anything had to change."""
    if not sparse.issparse(matrix):
        matrix = np.atleast_2d(np.asarray(matrix))
    if matrix.dtype.kind not in "biuf" or matrix.ndim != 2:
        raise ValueError(f"{name} must be a matrix of real numbers, not {matrix.ndim}-D {matrix.dtype}")
    rows = csr_array(matrix)
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


def _format(X: csr_array, Y: csr_array | None, base: int, label_base: int) -> Iterator[bytes]:
    """Lines of text for all rows, some at a time."""
    for start in range(0, X.shape[0], _BLOCK_ROWS):
        indptr, indices, values = _block(X, start)
        label_indptr, label_indices = (None, None) if Y is None else _block(Y, start)[:2]
        yield _core.format_rows(indptr, indices, values, label_indptr, label_indices, base, label_base)


def _block(matrix: csr_array, start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr, indices, values of some rows, in the types of the core."""
    indptr = matrix.indptr[start : start + _BLOCK_ROWS + 1]
    entries = slice(indptr[0], indptr[-1])
    indices = matrix.indices[entries].astype(np.int32, copy=False)
    return (indptr - indptr[0]).astype(np.int64), indices, matrix.data[entries]


def _save_matrix(path: PathLike, matrix: csr_array, base: int) -> None:
    with replacing_text(path) as file:
        if str(path).endswith(".npz"):
            sparse.save_npz(file, matrix)
        else:
            file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
            file.writelines(_format(matrix, None, base, 0))
