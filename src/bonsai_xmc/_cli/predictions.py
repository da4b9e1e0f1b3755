"""Predictions as files and tables, written by ``predict`` and read by ``evaluate``."""

import argparse
import csv
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc._base.hints import needed
from bonsai_xmc._base.sniff import extension, sniff
from bonsai_xmc.datasets import Document, read_label_names
from bonsai_xmc.datasets._documents.formats import READERS
from bonsai_xmc.datasets._documents.problems import Problems
from bonsai_xmc.datasets._reading import read_matrix
from bonsai_xmc.metrics._files import PredictionFile, format_lines, parse_lines

from . import UsageError
from .io import Inputs
from .models import Ranked

_BY_EXTENSION = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".xlsx": "xlsx", ".txt": "xc",
}  # fmt: skip
_COLUMNS = ("row", "id", "rank", "label", "name", "score")
_SHEET = ("row", "id", "title", "labels", "names", "scores")
_TITLE = 200  # characters of it
_TABLE = "columns row, label and score"
_READ = {
    "jsonl": '{"row": 1, "labels": [{"label": …, "score": …}]}', "csv": _TABLE, "tsv": _TABLE,
    "xlsx": "columns row, labels and scores",
}  # fmt: skip
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")  # which workbooks cannot hold
_BLANKS = str.maketrans("\t\r\n", "   ")


class Names(NamedTuple):
    """Labels and their names, "" without one."""

    labels: Any
    names: Sequence[str]

    def label(self, i: int) -> str:
        return str(self.labels[i])

    def name(self, i: int) -> str:
        return self.names[i] if self.names else ""


def names_of(model: Any, inputs: Inputs, path: str | None) -> Names:
    """Return the names of labels from a file, or those of the model."""
    labels = model.classes_
    if path is None:
        return Names(labels, model.fitted_.labels.names)
    with inputs.file(path) as file:
        known = read_label_names(file)
    names = [known.get(str(label), "") for label in labels.tolist()]
    if not any(names):
        raise ValueError(f"{inputs.name(path)} has no name for any label of the model")
    return Names(labels, names)


def format_of(args: argparse.Namespace, source: str) -> str:
    """Return the output format; `source` is "text", "documents" or "matrix"."""
    named = None if args.output in (None, "-") else _BY_EXTENSION.get(extension(args.output))
    if args.json and (args.output_format or named or "jsonl") != "jsonl":
        raise UsageError("--json writes JSON lines: leave it out, or the other format")
    if args.output_format is not None:
        return str(args.output_format)
    if args.json:
        return "jsonl"
    usual = "xc" if source == "matrix" and args.label_names is None else "jsonl"
    if args.output is None or args.output == "-":
        on_screen = source == "text" or (usual == "jsonl" and sys.stdout.isatty())
        return "table" if on_screen else usual
    end = extension(args.output)
    if end and end not in _BY_EXTENSION:
        known = ", ".join(_BY_EXTENSION)
        raise UsageError(f"-o {args.output}: a name ends with {known}, or give --output-format")
    return named or usual


def lines_of(
    format: str, ranked: Iterator[Ranked], names: Names, headings: bool, least: bool
) -> Iterator[bytes]:
    """Return predictions as lines, with `headings` of rows; `least`: a threshold was given."""
    if format == "xc":
        return _xc_lines(list(ranked), len(names.labels))
    rows = _rows(ranked)
    if format == "xlsx":
        return iter([_workbook(_sheet(rows, names))])
    lines: dict[str, Callable[[], Iterable[str]]] = {
        "table": lambda: _table_lines(rows, names, headings, least),
        "jsonl": lambda: _json_lines(rows, names),
        "sheet": lambda: map(
            _csv_line, _sheet(rows, names, "\ufeff")
        ),  # the mark by which Excel recognises UTF-8
        "csv": lambda: map(_csv_line, _cells(rows, names)),
        "tsv": lambda: map(_tsv_line, _cells(rows, names)),
    }
    # texts and ids may contain single surrogates
    return (line.encode(errors="replace") + b"\n" for line in lines[format]())


_Row = tuple[int, Document | None, list[tuple[int, float]]]  # number, document, labels with scores


def _rows(ranked: Iterator[Ranked]) -> Iterator[_Row]:
    for (_, _, rows, documents), ids, scores in ranked:
        for i, (row, of_row, values) in enumerate(zip(rows, ids.tolist(), scores.tolist(), strict=True)):
            found = [(label, score) for label, score in zip(of_row, values, strict=True) if label >= 0]
            yield row, None if documents is None else documents[i], found


def _table_lines(rows: Iterator[_Row], names: Names, headings: bool, least: bool) -> Iterator[str]:
    columns = shutil.get_terminal_size().columns
    for row, document, found in rows:
        if headings:
            yield _heading(row, document)[: columns - 1]
        if not found:
            known = "no score reaches the threshold" if least else "none of its words is in the model"
            yield f"  no label: {known}"
        width = max((len(names.label(i)) for i, _ in found), default=0)
        for i, score in found:
            yield f"  {score:.3f}  {names.label(i):<{width}}  {names.name(i)}".rstrip()
        if headings:
            yield ""


def _heading(row: int, document: Document | None) -> str:
    if document is None:
        return f"row {row}"
    text = document.text if isinstance(document.text, str) else " ".join(document.text.values())
    return " ".join([document.id or f"row {row}", *text[:500].split()])


def _json_lines(rows: Iterator[_Row], names: Names) -> Iterator[str]:
    for row, document, found in rows:
        labels = []
        for i, score in found:
            name = {"name": names.name(i)} if names.name(i) else {}
            labels.append({"label": names.label(i), **name, "score": float(f"{score:.6g}")})
        where = {} if document is None or document.id is None else {"id": document.id}
        yield json.dumps({"row": row, **where, "labels": labels}, ensure_ascii=False)


def _cells(rows: Iterator[_Row], names: Names) -> Iterator[list[str]]:
    """Yield a line for each label, and one without a label for rows without any."""
    yield list(_COLUMNS)
    for row, document, found in rows:
        where = [str(row), "" if document is None else document.id or ""]
        for rank, (i, score) in enumerate(found, 1):
            yield [*where, str(rank), names.label(i), names.name(i), f"{score:.6g}"]
        if not found:
            yield [*where, "", "", "", ""]


def _sheet(rows: Iterator[_Row], names: Names, mark: str = "") -> Iterator[list[str]]:
    """Yield a line for each row; cells of labels, names and scores have a line for each label."""
    yield [mark + _SHEET[0], *_SHEET[1:]]
    for row, document, found in rows:
        title = ""
        if document is not None:
            texts = [document.text] if isinstance(document.text, str) else document.text.values()
            title = " ".join(next(filter(None, texts), "")[: 4 * _TITLE].split())[:_TITLE]
        labels = "\n".join(names.label(i) for i, _ in found)
        shown = [" ".join(names.name(i).split()) for i, _ in found]
        scores = "\n".join(f"{score:.4g}" for _, score in found)
        identifier = "" if document is None else document.id or ""
        yield [str(row), identifier, title, labels, "\n".join(shown) if any(shown) else "", scores]


def _workbook(lines: Iterator[list[str]]) -> bytes:
    openpyxl = needed("openpyxl", "files of Excel need", "'bonsai-xmc[excel]'")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("labels")
    for line in lines:
        sheet.append([_UNPRINTABLE.sub(" ", cell) for cell in line])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def _csv_line(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)  # with its own line end, it quotes cells that contain one
    return line.getvalue().removesuffix("\r\n")


def _tsv_line(cells: list[str]) -> str:
    """Join cells for the reader of TSV, which removes quotes around whole cells."""
    plain = [cell.translate(_BLANKS) for cell in cells]
    quoted = [len(cell) >= 2 and cell[0] == cell[-1] == '"' for cell in plain]
    double = lambda cell: '"' + cell.replace('"', '""') + '"'
    return "\t".join(double(cell) if q else cell for cell, q in zip(plain, quoted, strict=True))


def _xc_lines(ranked: list[Ranked], n_labels: int) -> Iterator[bytes]:
    width = min((part.ids.shape[1] for part in ranked), default=1)
    ids = np.concatenate([np.empty((0, width), np.int32), *(part.ids for part in ranked)])
    scores = np.concatenate([np.empty((0, width), np.float32), *(part.scores for part in ranked)])
    return format_lines(ids, scores, n_labels)


# Reading


def kind_of(inputs: Inputs, path: str) -> str:
    """Return the kind of a file: "model", predictions as "labels" or "columns", or another kind.

    "labels": rows with labels. "columns": rows with numbers of labels, as in the Extreme Classification
    Repository.
    """
    if os.path.isdir(path):
        return "model"
    kind = _sniffed(inputs, path)
    return "labels" if kind in _READ else "columns" if kind in ("matrix", "npz") else kind


def _sniffed(inputs: Inputs, path: str) -> str:
    """Return the format of a file; a table of predictions is recognised by its columns."""
    beginning = inputs.beginning(path)
    kinds = [sniff(beginning, path, ("row", labels)) for labels in ("label", "labels")]
    return next((kind for kind in kinds if kind in _READ), kinds[0])


def read_columns(inputs: Inputs, path: str) -> PredictionFile:
    """Read predictions for `metrics.evaluate`."""
    source = inputs.source(path)
    if source.kind != "npz":
        return parse_lines(io.BytesIO(source.data), source.name)
    matrix = read_matrix(source, "column")[0].tocoo()
    return PredictionFile(
        source.name, matrix.row.astype(np.int64), matrix.col.astype(np.int64), matrix.data, matrix.shape
    )


def _entries(record: Any) -> list[Any]:
    """Return the labels of a record: a list, a single label, or the lines of a cell."""
    if "labels" not in record:
        return [record] if record["label"] else []
    labels = record["labels"]
    if not isinstance(labels, str):
        return list(labels)
    both = zip(labels.splitlines(), record["scores"].splitlines(), strict=True)
    return [{"label": label, "score": score} for label, score in both]


def read_labels(inputs: Inputs, path: str) -> dict[int, list[tuple[str, float]]]:
    """Return labels and scores, best first, by row; scores are 0 where the file has none."""
    name, kind = inputs.name(path), _sniffed(inputs, path)
    found: dict[int, list[tuple[str, float]]] = {}
    for number, record in READERS[kind](io.BytesIO(inputs.source(path).data), Problems(name, strict=True)):
        try:
            row: Any = record
            entries = _entries(row)
            scored = [(str(entry["label"]), float(entry.get("score") or 0.0)) for entry in entries]
            found.setdefault(int(row["row"]), []).extend(scored)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{name}, line {number}: not a prediction as `bonsai predict` writes it ({_READ[kind]})"
            ) from error
    return found
