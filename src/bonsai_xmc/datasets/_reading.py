"""Reading rows and labels: files of the Extreme Classification Repository, svmlight and ``.npz`` pairs.

Imports the core for its parsers.
"""

import contextlib
import operator
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc import _core
from bonsai_xmc._base.files import PathLike, opened
from bonsai_xmc._base.sniff import Source
from bonsai_xmc._data.labels import indicator

from ._folders import find_part
from ._mapped import is_mapped, read_mapped
from ._npz import read_npz
from ._types import check_choice, float_rows, to_csr

Base = Literal["auto", 0, 1]

_FROM_FILE = -1  # stands for the number in the text
_MAX_COLUMNS = 2**31 - 1  # ids are 32-bit numbers
# Columns that a header may announce whatever the length of its file: arrays over columns take a few hundred
# megabytes at most.
_PLAUSIBLE_COLUMNS = 2**24
# Why a single file of these kinds has no rows with labels.
_WITHOUT_LABELS = {
    "empty": "is empty",
    "model": "is a model, not a file of rows",
    "npy": "is an array of numpy.save; save sparse matrices with scipy.sparse.save_npz",
} | dict.fromkeys(
    ("npz", "matrix", "split"),
    "holds features only: give the file with the labels as the second argument",
)


class Options(NamedTuple):
    """Options of text; see `load_xc`."""

    format: str = "auto"
    base: Base = "auto"
    label_base: Literal[0, 1] = 0

    def checked(self, two_files: bool) -> "Options":
        check_choice("format", self.format, ("auto", "xc", "split", "svmlight"))
        check_choice("base", self.base, ("auto", 0, 1))
        check_choice("label_base", self.label_base, (0, 1))
        if two_files and self.format in ("xc", "svmlight"):
            raise ValueError(f"format={self.format!r} is a single file; labels must not be given")
        return self


class Expected(NamedTuple):
    """Requirements of a file, known before it is read."""

    n_features: int | None = None
    n_labels: int | None = None
    id_base: int | None = None  # base of the ids in the training file, if it was an svmlight file
    owner: str | None = None  # the model or file that sets the requirements

    def check(self, found: int, what: str, size: int | None = None) -> None:
        """Raise ValueError for a wrong number of columns, or one implausible for the size of the file."""
        wanted = self.n_labels if what == "label" else self.n_features
        if wanted is not None and found != wanted:
            known = f" instead of {wanted:,}" if self.owner is None else f", but {self.owner} has {wanted:,}"
            raise ValueError(f"there are {found:,} {what}s{known}")
        if found > _MAX_COLUMNS:
            raise ValueError(f"{found:,} {what}s by the header; at most {_MAX_COLUMNS:,} are possible")
        if wanted is None and size is not None and found > max(_PLAUSIBLE_COLUMNS, size):
            raise ValueError(
                f"{found:,} {what}s by the header or the largest id, but the whole file has {size:,} bytes; "
                f"if this is intended, pass n_{what}s={found} (on the command line --n-{what}s {found})"
            )


NOTHING_KNOWN = Expected()


class Rows(NamedTuple):
    """Features and labels; `id_base` is the id of the first feature if the format leaves it open."""

    X: csr_array
    Y: csr_array
    id_base: int | None


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

    Supported are

    - one file of the Extreme Classification Repository: a header ``rows features labels``, then a line
      ``l1,l2 f:v f:v`` for each row (nothing before the first blank = no labels);
    - its split files, features in `path` and labels in `labels`: a header ``rows columns``, then a line
      ``id:value id:value`` for each row, the value of a label being 1;
    - svmlight: lines as in the first case without a header, ``# comments`` allowed, empty lines skipped;
    - a pair of ``.npz`` files written by :func:`scipy.sparse.save_npz`;
    - a folder of arrays (:func:`save_mapped`), which are mapped into memory, not read;
    - a folder with any of these under their usual names (``trn_X_Xf.txt`` and ``trn_X_Y.txt``,
      ``X_trn.npz`` and ``Y_trn.npz``, ``X.trn.npz`` and ``Y.trn.npz``, ``train.txt``).

    Text may be compressed (gzip, bzip2, xz), have CRLF line ends or a byte order mark. Features of a row may
    come in any order, but not twice; a label that is repeated counts once.

    Parameters
    ----------
    path : path
        The file, the feature file, or the folder.
    labels : path, optional
        The label file of a split pair.
    format : {"auto", "xc", "split", "svmlight"}
        Format of text; "auto" detects it by the first line. ``.npz`` files are recognised by their content.
    base : {"auto", 0, 1}
        Id of the first feature in text. "auto": 0 where there is a header. An svmlight file has none: 0 if
        the id 0 occurs, 1 if `n_features` occurs as an id; otherwise it is unknown, which is an error.
    label_base : {0, 1}
        Id of the first label in text.
    n_features, n_labels : int, optional
        Columns that the file must have, so that a test file agrees with a training file. An svmlight file,
        which does not state its number of columns, gets this one. Default: that of the header; in svmlight,
        from the largest id that occurs.
    split : str
        Part of a folder: "trn", "tst", or another name in its files.

    Returns
    -------
    X : csr_array of float32, shape (rows, n_features)
        Features of the rows.
    Y : csr_array of float32, shape (rows, n_labels)
        1 where the row has the label.

    Raises
    ------
    ValueError
        If a file cannot be read; the message names file, line, column and error.

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
    check_columns("n_features", n_features)
    check_columns("n_labels", n_labels)
    expected = Expected(n_features, n_labels)
    rows = open_rows(path, labels, split, Options(format, base, label_base), expected)
    return rows.X, rows.Y


def load_sparse(path: PathLike, *, n_columns: int | None = None) -> csr_array:
    """Read one sparse matrix: features, label scores or predictions.

    Parameters
    ----------
    path : path
        Text with a header ``rows columns`` and a line ``id:value id:value`` for each row, which may be
        compressed, or a ``.npz`` file of :func:`scipy.sparse.save_npz`.
    n_columns : int, optional
        Columns that the file must have.

    Returns
    -------
    matrix : csr_array of float32
        With the shape that the file states.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "scores.txt")
    >>> _ = file.write_text("2 3\\n2:0.75 0:0.5\\n\\n")
    >>> datasets.load_sparse(file).toarray().tolist()
    [[0.5, 0.0, 0.75], [0.0, 0.0, 0.0]]
    """
    check_columns("n_columns", n_columns)
    return read_matrix(source(path), "column", expected=Expected(n_columns))[0]


def source(path: PathLike) -> Source:
    """Read the content of a file."""
    with opened(path) as file:
        return Source(os.fspath(path), file.read())


def open_rows(
    path: PathLike,
    labels: PathLike | None,
    split: str,
    options: Options,
    expected: Expected,
    read: Callable[[str], Source] = source,
) -> Rows:
    """Read features and labels from a folder, from one file or from two."""
    if Path(path).is_dir():
        if labels is not None:
            raise ValueError(f"{path} is a folder, so labels must not be given; it holds them itself")
        if is_mapped(path):
            return _mapped_rows(path, expected)
        path, labels = find_part(Path(path), split)
    options.checked(labels is not None)
    features = read(os.fspath(path))
    return read_rows(features, None if labels is None else read(os.fspath(labels)), options, expected)


def read_rows(features: Source, labels: Source | None, options: Options, expected: Expected) -> Rows:
    """Read features and labels from the content of one file or two."""
    format, base, label_base = options.checked(labels is not None)
    if labels is not None:
        X, id_base = read_matrix(features, "feature", base, expected)
        Y, _ = read_matrix(labels, "label", label_base, expected)
        if X.shape[0] != Y.shape[0]:
            raise ValueError(f"{features.name} has {X.shape[0]} rows, but {labels.name} has {Y.shape[0]}")
        return Rows(X, Y, id_base)
    kind = features.kind if format == "auto" else format
    if kind in _WITHOUT_LABELS:
        raise ValueError(f"{features.name} {_WITHOUT_LABELS[kind]}")
    with _naming(features.name):
        if kind == "svmlight":
            return _read_svmlight(features, base, label_base, expected)
        return _read_xc(features, base, label_base, expected)


def _mapped_rows(folder: PathLike, expected: Expected) -> Rows:
    X, Y, id_base = read_mapped(folder)
    with _naming(os.fspath(folder)):
        expected.check(X.shape[1], "feature")
        expected.check(Y.shape[1], "label")
    return Rows(X, Y, id_base)


def read_matrix(
    source: Source, what: str, base: Base = "auto", expected: Expected = NOTHING_KNOWN
) -> tuple[csr_array, int | None]:
    """Read one matrix, text or npz, and the base of its ids if it is not 0.

    `what` names the columns: "feature", "label" (of an indicator) or "column".
    """
    with _naming(source.name):
        if source.kind == "empty":
            raise ValueError("the file is empty")
        if source.kind == "npz":
            loaded = read_npz(source.data)
            expected.check(loaded.shape[1], what, len(source.data))
            if what == "label":
                return indicator(loaded).astype(np.float32), None
            return float_rows(loaded, "the matrix"), None
        _check_header(source, expected, what)
        first = 1 if base == 1 else 0
        parts = _core.parse_sparse(_bytes_of(source), first, _FROM_FILE, what == "label", what)
        indptr, indices, values, width = parts
        if what == "feature" and base == "auto":
            _check_header_base(indices, expected)
        return to_csr(indptr, indices, None if what == "label" else values, width), first or None


def _check_header(source: Source, expected: Expected, *columns: str) -> None:
    """Check the numbers of columns in a header; its parser reports a malformed one."""
    header = source.header or ()
    if len(header) == 1 + len(columns):
        for found, what in zip(header[1:], columns, strict=True):
            expected.check(found, what, len(source.data))


def _read_xc(source: Source, base: Base, label_base: int, expected: Expected) -> Rows:
    _check_header(source, expected, "feature", "label")
    first = 1 if base == 1 else 0
    parts = _core.parse_xc(_bytes_of(source), first, label_base, _FROM_FILE, _FROM_FILE)
    if base == "auto":
        _check_header_base(parts[1], expected)
    return _rows(parts, first or None)


def _read_svmlight(source: Source, base: Base, label_base: int, expected: Expected) -> Rows:
    n_features, n_labels = (_FROM_FILE if n is None else n for n in (expected.n_features, expected.n_labels))
    text = _bytes_of(source)
    first: int = 0 if base == "auto" else base
    width = _FROM_FILE if base == "auto" else n_features
    parts = list(_core.parse_svmlight(text, first, label_base, width, n_labels))
    if base == "auto":
        first = _svmlight_base(parts[1], expected)
        parts[1] -= first
        parts[3] -= first
        if n_features != _FROM_FILE and parts[3] > n_features:  # again, for a message with the place
            _core.parse_svmlight(text, first, label_base, n_features, n_labels)
        parts[3] = max(parts[3], n_features)
    expected.check(parts[3], "feature", len(source.data))
    expected.check(parts[6], "label", len(source.data))
    return _rows(tuple(parts), first)


def _svmlight_base(indices: np.ndarray, expected: Expected) -> int:
    """Return the base of ids that were read with base 0."""
    smallest, largest = indices.min(initial=_MAX_COLUMNS), indices.max(initial=-1)
    if smallest == 0:
        if expected.id_base == 1:
            raise ValueError(
                f"the feature id 0 occurs, so ids begin at 0 here, but they began at 1 in the training file "
                f"of {expected.owner}; if this is intended, pass --base 0"
            )
        return 0
    if len(indices) == 0 or expected.id_base is not None:
        return expected.id_base or 0
    if largest == expected.n_features:
        return 1
    raise ValueError(
        "feature ids may begin at 0 or at 1: there is no header, and the id 0 does not "
        "occur; pass base=0 or base=1 (on the command line --base 0 or --base 1)"
    )


def _check_header_base(indices: np.ndarray, expected: Expected) -> None:
    """Raise ValueError if ids may begin at 0, as in files with a header, or at 1, as in the training file."""
    if expected.id_base == 1 and len(indices) and indices.min() > 0:
        raise ValueError(
            f"feature ids begin at 0 in a file with a header, but they began at 1 in the training file of "
            f"{expected.owner}, and the id 0 does not occur; pass --base 0 or --base 1"
        )


def check_columns(name: str, value: int | None) -> None:
    if value is not None and not 0 < operator.index(value) <= _MAX_COLUMNS:
        raise ValueError(f"{name} must be between 1 and {_MAX_COLUMNS}, not {value}")


def _rows(parts: tuple[Any, ...], id_base: int | None) -> Rows:
    indptr, indices, values, width, label_indptr, label_indices, label_width = parts
    X = to_csr(indptr, indices, values, width)
    return Rows(X, to_csr(label_indptr, label_indices, None, label_width), id_base)


def _bytes_of(source: Source) -> np.ndarray:
    return np.frombuffer(source.data, np.uint8)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the file's name before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
