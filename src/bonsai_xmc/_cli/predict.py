"""``bonsai predict``: the best labels of each row."""

import argparse
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from bonsai_xmc import TextBonsai
from bonsai_xmc._base.sniff import extension
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc.metrics._files import format_lines

from . import models, predict_texts
from .io import Inputs, UsageError, check_output, writing


def run(args: argparse.Namespace) -> None:
    inputs = Inputs(args.model, args.data, args.label_names)
    check_output(args.output, inputs.files(args.split))
    model = models.load(args, inputs)
    if isinstance(model, TextBonsai):
        return predict_texts.run(args, model, inputs)
    models.check_no_document_options(args)
    names = _label_names(args, model, inputs)
    named = names is not None and (args.names or args.label_names is not None)
    _check_extension(args.output, "jsonl" if args.json else "tsv" if named else "txt")
    X = inputs.features(args, models.expected(args, model))
    n_labels = len(model.classes_)
    ids, scores = models.top_k(args, model, X, min(args.k, n_labels))
    lines: Iterator[bytes]
    if args.json:
        lines = _json_lines(ids, scores, names)
    elif names is not None and named:
        lines = _tsv_lines(ids, scores, names)
    else:
        lines = format_lines(ids, scores, n_labels)
    with writing(args.output) as file:
        file.writelines(lines)


def _check_extension(path: str | None, written: str) -> None:
    """Refuse a name that promises another format than the one of the output."""
    end = extension(path or "")
    if end in (".csv", ".tsv", ".jsonl", ".ndjson") and end != f".{written}":
        raise UsageError(
            f"-o {path}: predictions of a model of matrices are scores (.txt), with --names a .tsv file, "
            "with --json a .jsonl file"
        )


def _label_names(args: argparse.Namespace, model: LabelRanker, inputs: Inputs) -> Sequence[str] | None:
    if args.label_names is None and (model.fitted_.labels.named or model.fitted_.labels.keyed):
        return [str(label) for label in model.classes_]
    if args.label_names is None and args.names:
        raise ValueError(
            f"{args.model} has no label names; give a file with one on each line as --label-names"
        )
    if args.label_names is None:
        return None
    source = inputs.source(args.label_names)
    try:
        names = io.TextIOWrapper(io.BytesIO(source.data), "utf-8").read().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source.name} is not UTF-8 text: {error}") from error
    if len(names) < len(model.classes_):
        raise ValueError(
            f"{source.name} has {len(names):,} names, but {args.model} {len(model.classes_):,} labels"
        )
    return names


def _rows(ids: Any, scores: Any, names: Sequence[str] | None) -> Iterator[list[dict[str, Any]]]:
    for labels, values in zip(ids.tolist(), scores.tolist(), strict=True):
        pairs = [(label, value) for label, value in zip(labels, values, strict=True) if label >= 0]
        if names is None:
            yield [{"label": label, "score": value} for label, value in pairs]
        else:
            yield [{"label": label, "name": names[label], "score": value} for label, value in pairs]


def _json_lines(ids: Any, scores: Any, names: Sequence[str] | None) -> Iterator[bytes]:
    for row in _rows(ids, scores, names):
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _tsv_lines(ids: Any, scores: Any, names: Sequence[str]) -> Iterator[bytes]:
    clean = str.maketrans("\t\r\n", "   ")
    for row in _rows(ids, scores, names):
        cells = (f"{entry['name'].translate(clean)}\t{entry['score']:.6g}" for entry in row)
        yield "\t".join(cells).encode() + b"\n"
