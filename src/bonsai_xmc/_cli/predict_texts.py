"""``bonsai predict`` with a model of texts: tables for people, lines for programs."""

import argparse
import csv
import io
import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc import TextBonsai
from bonsai_xmc._base.sniff import extension
from bonsai_xmc.datasets import Document, read_label_names
from bonsai_xmc.metrics._files import format_lines

from . import models
from .io import Inputs, UsageError, writing
from .texts import is_file, of_model, texts_of

OUTPUT_FORMATS = ("table", "jsonl", "csv", "tsv", "xc")
_BY_EXTENSION = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".txt": "xc"}
_COLUMNS = ("line", "id", "rank", "label", "name", "score")


class Predicted(NamedTuple):
    """A chunk of documents with their predictions."""

    documents: list[Document]
    ids: Any
    scores: Any
    selected: bool  # by a threshold


def run(args: argparse.Namespace, model: TextBonsai, inputs: Inputs) -> None:
    if args.label_names is not None:
        model = model.name_labels(read_label_names(args.label_names))
    if args.names:
        raise ValueError("--names is for models of matrices; labels of texts come with their names")
    one = [Document(1, None, args.data, [])]
    a_file = is_file(args.data)
    format = _format(args, a_file)
    chunks = of_model(args, model, inputs, complete=False) if a_file else iter([one])
    k = min(args.k, len(model.classes_))
    predicted = (_predict(args, model, chunk, k) for chunk in chunks)
    with writing(args.output) as file:
        file.writelines(_lines(format, predicted, model, a_file))


def _predict(args: argparse.Namespace, model: TextBonsai, chunk: list[Document], k: int) -> Predicted:
    ids, scores = models.top_k(args, model, texts_of(chunk, model), k)
    return Predicted(chunk, ids, scores, args.threshold is not None)


def _format(args: argparse.Namespace, a_file: bool) -> str:
    if args.output_format is not None:
        return args.output_format
    if args.json:
        return "jsonl"
    if args.output is not None and args.output != "-":
        end = extension(args.output)
        if end and end not in _BY_EXTENSION:
            known = ", ".join(_BY_EXTENSION)
            raise UsageError(f"-o {args.output}: a name ends with {known}, or give --output-format")
        return _BY_EXTENSION.get(end, "jsonl")
    return "table" if not a_file or sys.stdout.isatty() else "jsonl"


def _lines(format: str, predicted: Iterator[Predicted], model: TextBonsai, a_file: bool) -> Iterator[bytes]:
    if format == "xc":
        return _xc_lines(list(predicted), model)
    make = {"table": _table_lines, "jsonl": _json_lines, "csv": _csv_lines, "tsv": _tsv_lines}[format]
    # texts and ids may hold halves of surrogate pairs
    return (line.encode(errors="replace") + b"\n" for line in make(predicted, model, a_file))


def _rows(part: Predicted) -> Iterator[tuple[Document, list[tuple[int, float]]]]:
    for document, ids, scores in zip(part.documents, part.ids.tolist(), part.scores.tolist(), strict=True):
        yield document, [(i, score) for i, score in zip(ids, scores, strict=True) if i >= 0]


def _table_lines(predicted: Iterator[Predicted], model: TextBonsai, a_file: bool) -> Iterator[str]:
    labels, names = _labels(model), _names(model)
    columns = shutil.get_terminal_size().columns
    for part in predicted:
        for document, found in _rows(part):
            if a_file:
                yield _heading(document)[: columns - 1]
            if not found:
                known = "no score reaches the threshold" if part.selected else "none of its words is known"
                yield f"  no label: {known}"
            width = max((len(labels[i]) for i, _ in found), default=0)
            for i, score in found:
                name = names[i] if names is not None else ""
                yield f"  {score:.3f}  {labels[i]:<{width}}  {name}".rstrip()
            if a_file:
                yield ""


def _heading(document: Document) -> str:
    text = document.text if isinstance(document.text, str) else " ".join(document.text.values())
    return " ".join([document.id or f"line {document.line}", *text[:500].split()])


def _json_lines(predicted: Iterator[Predicted], model: TextBonsai, a_file: bool) -> Iterator[str]:
    labels, names = _labels(model), _names(model)
    for part in predicted:
        for document, found in _rows(part):
            suggestions = []
            for i, score in found:
                name = {"name": names[i]} if names is not None and names[i] else {}
                suggestions.append({"label": labels[i], **name, "score": round(score, 6)})
            where: dict[str, Any] = {"line": document.line} if a_file else {}
            if document.id is not None:
                where["id"] = document.id
            yield json.dumps({**where, "labels": suggestions}, ensure_ascii=False)


def _cells(predicted: Iterator[Predicted], model: TextBonsai) -> Iterator[list[str]]:
    """A row for each suggestion; of a document without any, one without a label."""
    labels, names = _labels(model), _names(model)
    yield list(_COLUMNS)
    for part in predicted:
        for document, found in _rows(part):
            where = [str(document.line), document.id or ""]
            for rank, (i, score) in enumerate(found, 1):
                yield [*where, str(rank), labels[i], names[i] if names is not None else "", f"{score:.6g}"]
            if not found:
                yield [*where, "", "", "", ""]


def _csv_lines(predicted: Iterator[Predicted], model: TextBonsai, a_file: bool) -> Iterator[str]:
    for cells in _cells(predicted, model):
        line = io.StringIO()
        csv.writer(line).writerow(cells)  # its own line end makes it quote cells that hold one
        yield line.getvalue().removesuffix("\r\n")


def _tsv_lines(predicted: Iterator[Predicted], model: TextBonsai, a_file: bool) -> Iterator[str]:
    clean = str.maketrans("\t\r\n", "   ")
    for cells in _cells(predicted, model):
        yield "\t".join(_quoted(cell.translate(clean)) for cell in cells)


def _quoted(cell: str) -> str:
    """As the reader of TSV takes it: quotes around a whole cell are not part of it."""
    inside = len(cell) >= 2 and cell[0] == cell[-1] == '"'
    return '"' + cell.replace('"', '""') + '"' if inside else cell


def _xc_lines(predicted: list[Predicted], model: TextBonsai) -> Iterator[bytes]:
    width = min((part.ids.shape[1] for part in predicted), default=1)
    ids = np.concatenate([np.empty((0, width), np.int32), *(part.ids for part in predicted)])
    scores = np.concatenate([np.empty((0, width), np.float32), *(part.scores for part in predicted)])
    return format_lines(ids, scores, len(model.classes_))


def _labels(model: TextBonsai) -> list[str]:
    return [str(label) for label in model.classes_.tolist()]


def _names(model: TextBonsai) -> tuple[str, ...] | None:
    """Names as they were given, "" where there is none."""
    return model.fitted_.labels.names or None
