"""Predictions in every form that they take: label ids, scores, files. Each becomes a ranking."""

import os
import re
from array import array
from collections.abc import Callable
from operator import index
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bonsai_xmc._files import PathLike, opened, replacing_text

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Where = Callable[[int], str]  # row number -> how an error message names its place

_BLOCK_ROWS = 4096  # rows written at a time: few Python objects

_HEADER = re.compile(rb"(\d{1,18})\s+(\d{1,10})")
_NUMBER = rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?"
_ENTRY = re.compile(rb"\d{1,18}:" + _NUMBER)
_LINE = re.compile(rb"\s*+(?:" + _ENTRY.pattern + rb"(?:\s++|$))*+")


class Ranked(NamedTuple):
    """Parallel arrays with one entry for each ranked label, ordered by row, then rank (0 is the best)."""

    row: Ints
    rank: Ints
    label: Ints

    def select(self, mask: NDArray[np.bool_]) -> "Ranked":
        return Ranked(self.row[mask], self.rank[mask], self.label[mask])


def _in_row(row: int) -> str:
    return f"predictions, row {row}"


def _check_labels(row: Ints, label: Ints, n_labels: int, where: Where) -> None:
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
    """Ranks the entries of each row (ascending in `row`) by falling score; equal scores keep their order."""
    order = np.lexsort((-score, row))
    counts = np.bincount(row, minlength=n_rows)
    starts = np.cumsum(counts) - counts
    return Ranked(row, np.arange(row.size) - starts[row], label[order]), order


def _from_ids(ids: Any, n_labels: int, k: int | None = None) -> Ranked:
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"predictions must be integer label ids of shape (rows, k), got {ids.dtype} of shape "
            f"{ids.shape}; scores are taken as a sparse matrix"
        )
    top = ids[:, :k].astype(np.int64)
    filled = top != -1
    holes = np.argwhere(filled[:, 1:] & ~filled[:, :-1])
    if holes.size:
        row, rank = holes[0]
        raise ValueError(
            f"{_in_row(row)}: label id {top[row, rank + 1]} comes after -1; -1 may only fill the end"
        )
    rows, ranks = np.nonzero(filled)
    _check_labels(rows, top[filled], n_labels, _in_row)
    return Ranked(rows, ranks, top[filled])


def _from_scores(scores: Any) -> Ranked:
    if scores.ndim != 2:
        raise ValueError(f"predictions must have two dimensions, got shape {scores.shape}")
    coo = scores.tocoo()  # leaves duplicate entries apart, so that they can be refused
    if coo.data.dtype.kind not in "biuf" or np.isnan(coo.data).any():
        raise ValueError("predictions: scores must be real numbers without NaN")
    row, label = coo.row.astype(np.int64), coo.col.astype(np.int64)
    _check_labels(row, label, scores.shape[1], _in_row)
    by_label = np.lexsort((label, row))
    data = coo.data if coo.data.dtype.kind == "f" else coo.data.astype(np.float64)
    return by_score(row[by_label], label[by_label], data[by_label], scores.shape[0])[0]


def ranking(predictions: Any, shape: tuple[int, int], k: int) -> Ranked:
    """The k best labels of each row out of any of the accepted forms."""
    if isinstance(predictions, str | os.PathLike):
        file = _parse(predictions)
        given, what = file.shape, os.fspath(predictions)
        ranked = by_score(file.row, file.label, file.score, given[0])[0]
    elif sp.issparse(predictions):
        given, what = cast(Any, predictions).shape, "predictions"
        ranked = _from_scores(predictions)
    elif isinstance(predictions, tuple):
        raise ValueError(
            "predictions is a tuple; from top_k(X, k) take the first of the two arrays, the label ids"
        )
    else:
        try:
            ids = np.asarray(predictions)
        except ValueError:
            raise ValueError("predictions: rows differ in length; fill them up with -1") from None
        ranked = _from_ids(ids, shape[1], k)
        given, what = (ids.shape[0], shape[1]), "predictions"
    if given[0] != shape[0]:
        raise ValueError(f"{what} has {given[0]} rows, but Y_true has {shape[0]}")
    if given[1] != shape[1]:
        raise ValueError(f"{what} has {given[1]} labels, but Y_true has {shape[1]}")
    return ranked.select(ranked.rank < k)


class _PredictionFile(NamedTuple):
    """Entries in the order of the file."""

    row: Ints
    label: Ints
    score: Floats
    shape: tuple[int, int]


def read_predictions(path: PathLike, k: int | None = None) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Label ids and scores, each (n, width), best first, filled up with -1 and 0, from a prediction file.

    The format is that of `write_predictions`. Rows are put in order of falling score, equal scores as they
    come in the file: files whose rows are sorted by label id are read correctly, too. The width is that of
    the longest row, at most `k`. A malformed line is a ValueError with file, line number and fault.

    >>> import pathlib, tempfile
    >>> from bonsai_xmc import metrics
    >>> path = pathlib.Path(tempfile.mkdtemp(), "predictions.txt")
    >>> _ = path.write_text("2 9\\n4:0.5 7:0.25\\n\\n")
    >>> ids, scores = metrics.read_predictions(path)
    >>> ids.tolist()
    [[4, 7], [-1, -1]]
    """
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    file = _parse(path)
    ranked, order = by_score(file.row, file.label, file.score, file.shape[0])
    width = int(ranked.rank.max(initial=-1)) + 1
    top = ranked.rank < (k or width)
    place = ranked.row[top], ranked.rank[top]
    ids = np.full((file.shape[0], min(width, k or width)), -1, dtype=np.int32)
    scores = np.zeros(ids.shape, dtype=np.float32)
    ids[place], scores[place] = ranked.label[top], file.score[order][top]
    return ids, scores


def _parse(path: PathLike) -> _PredictionFile:
    with opened(path) as file:
        return _parse_lines(file, os.fspath(path))


def _parse_lines(file: BinaryIO, path: str) -> _PredictionFile:
    header = _HEADER.fullmatch(file.readline().strip())
    if header is None or int(header[2]) > np.iinfo(np.int32).max:
        raise ValueError(f"{path}, line 1: the header must be 'N L', the numbers of rows and of labels")
    n_rows, n_labels = int(header[1]), int(header[2])
    counts, labels, scores = array("q"), array("q"), array("d")
    for number, line in enumerate(file, start=2):
        if number > n_rows + 1:
            raise ValueError(
                f"{path}, line {number}: more lines than the {n_rows} rows that the header announces"
            )
        if not _LINE.fullmatch(line):
            bad = next(part for part in line.split() if not _ENTRY.fullmatch(part))
            raise ValueError(
                f"{path}, line {number}: {bad[:40].decode(errors='replace')!r} is not 'label:score'"
            )
        tokens = line.replace(b":", b" ").split()
        labels.extend(map(int, tokens[::2]))
        scores.extend(map(float, tokens[1::2]))
        counts.append(len(tokens) // 2)
    if len(counts) < n_rows:
        raise ValueError(
            f"{path}, line {len(counts) + 2}: the file ends after {len(counts)} of {n_rows} rows"
        )
    row = np.repeat(np.arange(n_rows), np.array(counts, dtype=np.int64))
    label, score = np.array(labels, dtype=np.int64), np.array(scores, dtype=np.float64)

    def in_line(row: int) -> str:
        return f"{path}, line {row + 2}"

    _check_labels(row, label, n_labels, in_line)
    too_large = np.flatnonzero(np.abs(score) > np.finfo(np.float32).max)
    if too_large.size:
        raise ValueError(f"{in_line(int(row[too_large[0]]))}: a score is too large for a 32-bit number")
    return _PredictionFile(row, label, score, (n_rows, n_labels))


def write_predictions(path: PathLike, ids: Any, scores: Any, n_labels: int) -> None:
    """Writes label ids and scores, as `top_k` returns them, to a prediction file.

    Text: a header `N L`, then a line for each row with `label:score` entries, best first, labels counted from
    0; a row without predictions is an empty line. Scores have six significant digits. A name that ends in
    `.gz` is compressed. The file appears under its name only when it is complete, and equal input gives equal
    bytes.

    >>> import pathlib, tempfile
    >>> from bonsai_xmc import metrics
    >>> path = pathlib.Path(tempfile.mkdtemp(), "predictions.txt")
    >>> metrics.write_predictions(path, [[4, 7], [2, -1]], [[0.5, 0.25], [1.0, 0.0]], n_labels=9)
    >>> path.read_text()
    '2 9\\n4:0.5 7:0.25\\n2:1\\n'
    """
    ids, scores, n_labels = np.asarray(ids), np.asarray(scores, dtype=np.float64), index(n_labels)
    _from_ids(ids, n_labels)
    if scores.shape != ids.shape:
        raise ValueError(f"ids and scores must have one shape, got {ids.shape} and {scores.shape}")
    filled = ids != -1
    if not np.isfinite(scores[filled]).all():
        raise ValueError("scores of predictions must be finite")
    rising = np.argwhere(filled[:, 1:] & (scores[:, 1:] > scores[:, :-1]))
    if rising.size:
        raise ValueError(f"predictions, row {rising[0, 0]}: scores rise; give the best label first")
    with replacing_text(path) as file:
        file.write(f"{len(ids)} {n_labels}\n".encode())
        for start in range(0, len(ids), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            for labels, values in zip(ids[block].tolist(), (scores[block] + 0.0).tolist(), strict=True):
                entries = zip(labels, values, strict=True)
                file.write(" ".join([f"{l}:{s:.6g}" for l, s in entries if l >= 0]).encode() + b"\n")
