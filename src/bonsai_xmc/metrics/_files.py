"""Prediction files: a line for each row, with label ids and scores, best first."""

import os
import re
from array import array
from collections.abc import Iterator
from operator import index
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonsai_xmc._base.files import PathLike, opened, replacing_text

from ._ranking import Floats, Ints, best_first, check_ids, check_labels

_BLOCK_ROWS = 4096  # rows formatted at a time, which bounds memory

_HEADER = re.compile(rb"(\d{1,18})\s+(\d{1,10})")
_NUMBER = rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?"
_ENTRY = re.compile(rb"\d{1,18}:" + _NUMBER)
_LINE = re.compile(rb"\s*+(?:" + _ENTRY.pattern + rb"(?:\s++|$))*+")


class PredictionFile(NamedTuple):
    """The content of a prediction file, entries in the order of the file."""

    name: str
    row: Ints
    label: Ints
    score: Floats
    shape: tuple[int, int]


def read_predictions(path: PathLike, k: int | None = None) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Read label ids and scores from a prediction file, each (n, width), best first, padded with -1 and 0.

    The format is that of `write_predictions`. Labels are ranked by descending score, ties in the order of
    the file, so that rows may also be sorted by label id. The width is that of the longest row, at most `k`.
    A malformed line raises ValueError, which names file, line and error.

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
    file = parse(path)
    ids, scores = best_first(file.row, file.label, file.score, file.shape[0], k)
    return ids.astype(np.int32), scores.astype(np.float32)


def parse(path: PathLike) -> PredictionFile:
    with opened(path) as file:
        return parse_lines(file, os.fspath(path))


def parse_lines(file: BinaryIO, name: str) -> PredictionFile:
    """Parse an open prediction file; `name` is the file's name in error messages."""
    header = _HEADER.fullmatch(file.readline().strip())
    if header is None or int(header[2]) > np.iinfo(np.int32).max:
        raise ValueError(f"{name}, line 1: the header must be 'N L', the numbers of rows and of labels")
    n_rows, n_labels = int(header[1]), int(header[2])
    counts, labels, scores = array("q"), array("q"), array("d")
    for number, line in enumerate(file, start=2):
        if number > n_rows + 1:
            raise ValueError(
                f"{name}, line {number}: more lines than the {n_rows} rows that the header announces"
            )
        if not _LINE.fullmatch(line):
            bad = next(part for part in line.split() if not _ENTRY.fullmatch(part))
            raise ValueError(
                f"{name}, line {number}: {bad[:40].decode(errors='replace')!r} is not 'label:score'"
            )
        tokens = line.replace(b":", b" ").split()
        labels.extend(map(int, tokens[::2]))
        scores.extend(map(float, tokens[1::2]))
        counts.append(len(tokens) // 2)
    if len(counts) < n_rows:
        raise ValueError(
            f"{name}, line {len(counts) + 2}: the file ends after {len(counts)} of {n_rows} rows"
        )
    row = np.repeat(np.arange(n_rows), np.array(counts, dtype=np.int64))
    label, score = np.array(labels, dtype=np.int64), np.array(scores, dtype=np.float64)

    def in_line(row: int) -> str:
        return f"{name}, line {row + 2}"

    check_labels(row, label, n_labels, in_line)
    too_large = np.flatnonzero(np.abs(score) > np.finfo(np.float32).max)
    if too_large.size:
        raise ValueError(f"{in_line(int(row[too_large[0]]))}: a score is too large for a 32-bit number")
    return PredictionFile(name, row, label, score, (n_rows, n_labels))


def write_predictions(path: PathLike, ids: Any, scores: Any, n_labels: int) -> None:
    """Write label ids and scores, as `top_k` returns them, to a prediction file.

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
    lines = format_lines(ids, scores, n_labels)
    with replacing_text(path) as file:
        file.writelines(lines)


def format_lines(ids: Any, scores: Any, n_labels: int) -> Iterator[bytes]:
    """Return the lines of a prediction file; the arguments are checked before the first one."""
    ids, scores, n_labels = np.asarray(ids), np.asarray(scores, dtype=np.float64), index(n_labels)
    check_ids(ids, n_labels)
    if scores.shape != ids.shape:
        raise ValueError(f"ids and scores must have one shape, got {ids.shape} and {scores.shape}")
    filled = ids != -1
    if not np.isfinite(scores[filled]).all():
        raise ValueError("scores of predictions must be finite")
    ascending = np.argwhere(filled[:, 1:] & (scores[:, 1:] > scores[:, :-1]))
    if ascending.size:
        raise ValueError(f"predictions, row {ascending[0, 0]}: scores ascend; give the best label first")
    return _lines(ids, scores, n_labels)


def _lines(ids: Any, scores: Any, n_labels: int) -> Iterator[bytes]:
    yield f"{len(ids)} {n_labels}\n".encode()
    for start in range(0, len(ids), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        # + 0.0 turns −0 into 0
        for labels, values in zip(ids[block].tolist(), (scores[block] + 0.0).tolist(), strict=True):
            entries = zip(labels, values, strict=True)
            yield " ".join([f"{l}:{s:.6g}" for l, s in entries if l >= 0]).encode() + b"\n"
