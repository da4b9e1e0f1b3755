"""``bonsai evaluate --report``: a page about one model, or about two side by side."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc import TextBonsai, metrics
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc.datasets import Document
from bonsai_xmc.datasets._reading import Expected

from . import evaluate_texts, models
from .io import Inputs, writing
from .texts import of_model, texts_of

_DEPTH = 10  # labels of each row


class _Rows(NamedTuple):
    """Rows as a model has predicted them, or as a file says."""

    keys: list[int]  # by which rows of two models belong together
    classes: Any  # what ids refer to
    counts: Any  # training rows of these; None: unknown
    ids: Any
    scores: Any
    truth: Any = None  # lists of labels, or a matrix
    texts: list[str] | None = None
    by: dict[str, list[str]] = {}  # noqa: RUF012 (never changed)


def run(args: argparse.Namespace, inputs: Inputs, cutoffs: list[int]) -> None:
    if not os.path.isdir(args.model) and inputs.kind(args.model) != "model":
        raise ValueError(f"--report needs a model, but {inputs.name(args.model)} is none")
    inputs.hold(args.data)  # each model reads it
    model = models.load(args, inputs)
    depth = max(_DEPTH, *cutoffs)
    found = {args.model: _ranked(args, model, inputs, depth)}
    if args.against is not None:
        found[args.against] = _other(args, inputs, depth)
    Y_train = None
    if args.train is not None:
        known = Expected(n_labels=len(model.classes_), owner=args.model)
        Y_train = inputs.labels(args, args.train, "trn", known)
    report = _report(args, model, list(found.values()), _names(list(found)), cutoffs, Y_train)
    with writing(args.report) as file:
        file.write(report.to_html().encode())
    total = report.n_true + report.left_out
    evaluate_texts.tell_left_out(inputs.name(args.data), total, report.n_true, model)
    unknown = report.label_counts is None
    _show(args, report, unknown)
    if unknown:
        print(f"bonsai: {models.UNKNOWN}", file=sys.stderr)


def _other(args: argparse.Namespace, inputs: Inputs, depth: int) -> _Rows:
    """The second model, or the predictions of any system."""
    if evaluate_texts.holds_predictions(inputs, args.against):
        return _predicted(inputs, args.against, depth)
    if not os.path.isdir(args.against) and inputs.kind(args.against) != "model":
        raise ValueError(
            f"--against needs a model, or predictions as JSON lines, CSV or TSV, but "
            f"{inputs.name(args.against)} is neither"
        )
    return _ranked(
        args, models.load(argparse.Namespace(**vars(args) | {"model": args.against}), inputs), inputs, depth
    )


def _predicted(inputs: Inputs, path: str, depth: int) -> _Rows:
    rows = evaluate_texts.predictions(inputs, path)
    labels = sorted({label for row in rows.values() for label, _ in row})
    place = {label: i for i, label in enumerate(labels)}
    k = max(1, min(depth, max(map(len, rows.values()), default=1)))
    ids, scores = np.full((len(rows), k), -1, np.int32), np.zeros((len(rows), k), np.float32)
    for i, row in enumerate(rows.values()):
        for rank, (label, score) in enumerate(row[:k]):
            ids[i, rank], scores[i, rank] = place[label], score
    return _Rows(list(rows), np.array(labels, dtype=object), np.zeros(len(labels), np.int64), ids, scores)


def _names(paths: list[str]) -> list[str]:
    short = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    return short if len(set(short)) == len(short) else paths


def _ranked(args: argparse.Namespace, model: LabelRanker, inputs: Inputs, depth: int) -> _Rows:
    k = min(depth, len(model.classes_))
    if isinstance(model, TextBonsai):
        return _ranked_texts(args, model, inputs, k)
    models.check_no_document_options(args)
    if args.by:
        raise ValueError(f"--by is for documents, but {args.model} is a model of matrices")
    rows = inputs.rows(args, models.expected(args, model))
    ids, scores = models.top_k(args, model, rows.X, k, exact=args.exact)
    keys = list(range(len(ids)))
    return _Rows(keys, model.classes_, model.label_counts_, ids, scores, rows.Y)


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
    ranked = np.concatenate(ids), np.concatenate(scores)
    return _Rows(keys, model.classes_, model.label_counts_, *ranked, truth, texts, by)


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
    args: argparse.Namespace,
    model: LabelRanker,
    found: list[_Rows],
    names: list[str],
    cutoffs: list[int],
    Y_train: Any,
) -> metrics.Report:
    rows = found[0]
    classes, counts = _classes(args, found)
    if Y_train is None and counts is not None:
        Y_train = models.same_frequencies(counts, max(model.n_rows_fit_, int(counts.max())))
    common = sorted(set.intersection(*(set(part.keys) for part in found)))
    if not common:
        raise ValueError(f"{args.against} has no predictions for the lines of {args.data}")
    place = {label: i for i, label in enumerate(classes.tolist())}
    predictions = {}
    for name, part in zip(names, found, strict=True):
        column = np.array([*(place[label] for label in part.classes.tolist()), -1])  # −1 stays what it is
        chosen = _chosen(part, common)
        predictions[name] = column[part.ids[chosen]], part.scores[chosen]
    chosen = _chosen(rows, common)
    propensity = {} if args.propensity is None else dict(zip("AB", args.propensity, strict=True))
    label_names = None
    if isinstance(model, TextBonsai):
        known = dict(zip(model.classes_.tolist(), model.label_names_, strict=True))
        label_names = [known.get(label, str(label)) for label in classes.tolist()]
    return metrics.Report(
        [rows.truth[i] for i in chosen] if isinstance(rows.truth, list) else rows.truth,
        predictions,
        Y_train,
        k=[*cutoffs, _DEPTH],
        classes=classes,
        label_names=label_names,
        texts=None if rows.texts is None else [rows.texts[i] for i in chosen],
        by={name: [values[i] for i in chosen] for name, values in rows.by.items()},
        dataset=args.dataset,
        title=f"{' and '.join(names)} on {os.path.basename(args.data)}",
        **propensity,
    )


def _chosen(part: _Rows, keys: list[int]) -> list[int]:
    place = {key: i for i, key in enumerate(part.keys)}
    return [place[key] for key in keys]


def _classes(args: argparse.Namespace, found: list[_Rows]) -> tuple[Any, Any]:
    """All labels, and how frequent they are in training: by the first that has them."""
    classes, counts = found[0].classes, found[0].counts
    for other in found[1:]:
        if np.array_equal(other.classes, classes):
            continue
        if classes.dtype != object or other.classes.dtype != object:
            raise ValueError(f"{args.model} and {args.against} have different labels, which have no names")
        known = set(classes.tolist())
        new = [i for i, label in enumerate(other.classes.tolist()) if label not in known]
        classes = np.concatenate([classes, other.classes[new]])
        counts = None if counts is None else np.concatenate([counts, _known(other)[new]])
    return classes, counts


def _known(rows: _Rows) -> Any:
    """Training rows of labels, 0 where they are not known."""
    return np.zeros(len(rows.classes), np.int64) if rows.counts is None else rows.counts


def _show(args: argparse.Namespace, report: metrics.Report, unknown: bool) -> None:
    results: dict[str, Any] = dict(report.results)
    if unknown:
        results = {name: models.with_unknown(found, report.cutoffs) for name, found in results.items()}
    out = sys.stderr if args.report == "-" else sys.stdout
    if args.json:
        differences = {name: asdict(found) for name, found in report.differences.items()}
        by = {
            name: {value: part["results"] | {"rows": part["rows"]} for value, part in found.items()}
            for name, found in report.by.items()
        }
        errors = {name: bins.error for name, bins in report.reliability.items()}
        content = {
            "true_labels": report.n_true,
            "left_out_labels": report.left_out,
            "results": results,
            "differences": differences,
            "by": by,
            "calibration_error": errors,
        }
        print(json.dumps(content, indent=2), file=out)
        return
    print(metrics.format_table(results if len(results) > 1 else next(iter(results.values()))), file=out)
    for name, found in report.differences.items():
        print(f"{name:<9} {found.value:+6.2f}  ({found.low:+.2f} to {found.high:+.2f})", file=out)
    if args.report != "-":
        print(f"report: {args.report}", file=out)
