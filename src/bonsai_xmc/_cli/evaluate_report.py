"""``bonsai evaluate --report``: a page about one model, or about two side by side."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc import Bonsai, TextBonsai, metrics
from bonsai_xmc.datasets import Document

from . import models
from .io import Inputs, writing
from .texts import of_model, texts_of

_DEPTH = 10  # labels of each row


class _Rows(NamedTuple):
    """Rows as a model has predicted them."""

    keys: list[int]  # by which rows of two models belong together
    truth: Any  # lists of labels, or a matrix
    ids: Any
    scores: Any
    texts: list[str] | None
    by: dict[str, list[str]]


def run(args: argparse.Namespace, inputs: Inputs, cutoffs: list[int]) -> None:
    paths = [args.model] + ([] if args.against is None else [args.against])
    for path in paths:
        if not os.path.isdir(path) and inputs.kind(path) != "model":
            raise ValueError(f"--report needs a model, but {inputs.name(path)} is none")
    inputs.hold(args.data)  # each model reads it
    loaded = [models.load(argparse.Namespace(**vars(args) | {"model": path}), inputs) for path in paths]
    depth = max(_DEPTH, *cutoffs)
    found = [_ranked(args, model, inputs, depth) for model in loaded]
    report = _report(args, loaded, found, _names(paths), cutoffs)
    with writing(args.report) as file:
        file.write(report.to_html().encode())
    _show(args, report)


def _names(paths: list[str]) -> list[str]:
    short = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    return short if len(set(short)) == len(short) else paths


def _ranked(args: argparse.Namespace, model: Bonsai, inputs: Inputs, depth: int) -> _Rows:
    k = min(depth, len(model.classes_))
    if isinstance(model, TextBonsai):
        return _ranked_texts(args, model, inputs, k)
    models.check_no_document_options(args)
    if args.by:
        raise ValueError(f"--by is for documents, but {args.model} is a model of matrices")
    rows = inputs.rows(args, models.expected(args, model))
    ids, scores = models.top_k(args, model, rows.X, k, exact=args.exact)
    return _Rows(list(range(len(ids))), rows.Y, ids, scores, None, {})


def _ranked_texts(args: argparse.Namespace, model: TextBonsai, inputs: Inputs, k: int) -> _Rows:
    if args.train is not None or args.labels is not None:
        raise ValueError("--train and LABELS are for matrices; documents hold their labels themselves")
    by: dict[str, list[str]] = {name: [] for name in args.by or ()}
    text = model.fitted_.text
    assert text is not None
    added = [name for name in by if name not in text.plan.fields]
    keys, truth, texts = [], [], []
    ids, scores = [np.empty((0, k), np.int32)], [np.empty((0, k), np.float32)]
    for chunk in of_model(args, model, inputs, complete=True, more=list(by)):
        for document in chunk:
            keys.append(document.line)
            truth.append(document.labels)
            texts.append(_shown(document, by, added, inputs.name(args.data)))
        part = models.top_k(args, model, texts_of(chunk, model), k, exact=args.exact)
        ids.append(part[0])
        scores.append(part[1])
    if not truth:
        raise ValueError(f"{args.data} holds no document with text and labels")
    return _Rows(keys, truth, np.concatenate(ids), np.concatenate(scores), texts, by)


def _shown(document: Document, by: dict[str, list[str]], added: list[str], name: str) -> str:
    """What examples show of a document; the values of `by` are noted, and the `added` fields removed."""
    if isinstance(document.text, str):
        if by:
            raise ValueError(f"{name} has no fields, so --by must not be given")
        return " ".join(document.text[:1000].split())
    for field, values in by.items():
        values.append(document.text[field])
    for field in added:
        del document.text[field]
    return " ".join(" — ".join(filter(None, document.text.values()))[:1000].split())


def _report(
    args: argparse.Namespace, loaded: list[Bonsai], found: list[_Rows], names: list[str], cutoffs: list[int]
) -> metrics.Report:
    first, rows = loaded[0], found[0]
    classes, counts = _classes(args, loaded)
    place = {label: i for i, label in enumerate(classes.tolist())}
    common = sorted(set.intersection(*(set(part.keys) for part in found)))
    predictions = {}
    for name, model, part in zip(names, loaded, found, strict=True):
        column = np.array([*(place[label] for label in model.classes_.tolist()), -1])  # −1 stays what it is
        at = {key: i for i, key in enumerate(part.keys)}
        chosen = [at[key] for key in common]
        predictions[name] = column[part.ids[chosen]], part.scores[chosen]
    at = {key: i for i, key in enumerate(rows.keys)}
    chosen = [at[key] for key in common]
    propensity = {} if args.propensity is None else dict(zip("AB", args.propensity, strict=True))
    label_names = None
    if isinstance(first, TextBonsai):
        known = dict(zip(first.classes_.tolist(), first.label_names_, strict=True))
        label_names = [known.get(label, str(label)) for label in classes.tolist()]
    return metrics.Report(
        [rows.truth[i] for i in chosen] if isinstance(rows.truth, list) else rows.truth,
        predictions,
        models.same_frequencies(counts, max(model.n_rows_fit_ for model in loaded)),
        k=[*cutoffs, _DEPTH],
        classes=classes,
        label_names=label_names,
        texts=None if rows.texts is None else [rows.texts[i] for i in chosen],
        by={name: [values[i] for i in chosen] for name, values in rows.by.items()},
        dataset=args.dataset,
        title=f"{' and '.join(names)} on {os.path.basename(args.data)}",
        **propensity,
    )


def _classes(args: argparse.Namespace, loaded: list[Bonsai]) -> tuple[Any, Any]:
    """All labels of the models, and how frequent they are in training: by the first model that has them."""
    first = loaded[0]
    classes, counts = first.classes_, first.label_counts_
    for other in loaded[1:]:
        if np.array_equal(other.classes_, classes):
            continue
        if classes.dtype != object or other.classes_.dtype != object:
            raise ValueError(f"{args.model} and {args.against} have different labels, which have no names")
        new = [i for i, label in enumerate(other.classes_.tolist()) if label not in set(classes.tolist())]
        classes = np.concatenate([classes, other.classes_[new]])
        counts = np.concatenate([counts, other.label_counts_[new]])
    return classes, counts


def _show(args: argparse.Namespace, report: metrics.Report) -> None:
    out = sys.stderr if args.report == "-" else sys.stdout
    if args.json:
        differences = {name: asdict(found) for name, found in report.differences.items()}
        by = {
            name: {value: part["results"] | {"rows": part["rows"]} for value, part in found.items()}
            for name, found in report.by.items()
        }
        errors = {name: bins.error for name, bins in report.reliability.items()}
        content = {"results": report.results, "differences": differences, "by": by}
        print(json.dumps(content | {"calibration_error": errors}, indent=2), file=out)
        return
    results = report.results
    print(metrics.format_table(results if len(results) > 1 else next(iter(results.values()))), file=out)
    for name, found in report.differences.items():
        print(f"{name:<9} {found.value:+6.2f}  ({found.low:+.2f} to {found.high:+.2f})", file=out)
    if args.report != "-":
        print(f"report: {args.report}", file=out)
