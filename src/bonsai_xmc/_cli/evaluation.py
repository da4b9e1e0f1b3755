"""What ``bonsai evaluate`` measures: rankings of models and of files, beside the true labels of rows."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import TextBonsai, metrics
from bonsai_xmc._data.labels import over_classes
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc.datasets import Document
from bonsai_xmc.datasets._reading import Expected
from bonsai_xmc.metrics._definitions import METRICS
from bonsai_xmc.metrics._ranking import Truth, best_first

from . import models, predictions, source
from .io import Inputs, writing
from .parser import OF_DOCUMENTS, refuse

_CUTOFFS = (1, 3, 5)
_DEPTH = 10  # labels of each row in a report
_UNKNOWN = (
    "the model does not know how frequent labels are in training, as it was imported: PSP, PSnDCG and C need "
    "--train, the training labels"
)


class Ranking(NamedTuple):
    """Rows with their best labels, as a model has predicted them, or as a file says."""

    rows: list[int]  # by their numbers, rows of several rankings belong together
    classes: Any  # what ids refer to
    counts: Any  # training rows of these; None: unknown
    ids: Any
    scores: Any
    truth: Any = None  # lists of labels, or a matrix
    texts: list[str] | None = None
    by: dict[str, list[str]] = {}  # noqa: RUF012 (never changed)


def evaluate(args: argparse.Namespace, inputs: Inputs, options: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a model or of predictions."""
    kind = predictions.kind_of(inputs, args.model)
    if kind in ("labels", "columns"):
        if args.exact:
            raise ValueError(f"--exact needs a model, but {args.model} holds predictions")
        return _of_predictions(args, inputs, kind, options)
    model = models.load(args, inputs)
    k = max(_cutoffs(args, len(model.classes_)))
    ranking = _of_model(args, model, inputs, k, args.exact)
    found = {}
    if args.exact:
        own = _of_model(args, model, inputs, k)
        found = {
            f"found@{k}": _overlap(own.ids[:, :k], ranking.ids[:, :k])
            for k in sorted(set(_cutoffs(args, len(model.classes_))))
        }
    Y = truth = ranking.truth
    if isinstance(model, TextBonsai):
        Y = over_classes(ranking.truth, model.classes_)
        if args.all_labels:
            options = options | {"classes": model.classes_}
        else:
            truth = Y
            _tell_left_out(inputs.name(args.data), sum(map(len, ranking.truth)), Y.nnz, model)
        if not model.fitted_.imported:
            _tell_recall_without_rows(ranking.ids, Y, model.label_counts_)
    unknown = model.fitted_.imported and args.train is None
    if unknown and args.by_frequency:
        raise ValueError(f"--by-frequency: {_UNKNOWN}")
    Y_train = _training_labels(args, inputs, Y.shape[1])
    if Y_train is None:
        Y_train = models.same_frequencies(model.label_counts_, model.n_rows_fit_)
    cutoffs = _cutoffs(args, Y.shape[1])
    result: dict[str, Any] = metrics.evaluate(truth, ranking.ids, Y_train, cutoffs, **options) | found
    if unknown:
        print(f"bonsai: {_UNKNOWN}", file=sys.stderr)
        return _with_unknown(result, cutoffs)
    return result


def show(args: argparse.Namespace, result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2) if args.json else metrics.format_table(result))


def _cutoffs(args: argparse.Namespace, n_labels: int) -> list[int]:
    """Those that were asked for; by default those of 1, 3 and 5 that make sense."""
    return args.k or [k for k in _CUTOFFS if k <= max(1, n_labels)]


def _training_labels(args: argparse.Namespace, inputs: Inputs, n_labels: int) -> Any:
    if args.train is None:
        return None
    return inputs.labels(args, args.train, "trn", Expected(n_labels=n_labels, owner=args.model))


def _of_model(
    args: argparse.Namespace, model: LabelRanker, inputs: Inputs, k: int, exact: bool = False
) -> Ranking:
    """The best labels of all rows, with the true ones."""
    k = min(k, len(model.classes_))
    by: dict[str, list[str]] = {name: [] for name in args.by or ()}
    rows = source.for_model(args, model, inputs, more=list(by))
    numbers: list[int] = []
    texts: list[str] = []
    truth: Any = []
    ids, scores = [np.empty((0, k), np.int32)], [np.empty((0, k), np.float32)]
    for part, of_part, values in models.rank(args, model, rows, k, exact):
        numbers += part.rows
        ids.append(of_part)
        scores.append(values)
        if part.documents is None:
            truth = part.Y
            continue
        truth += part.Y
        texts += [_shown(document, by, rows.name) for document in part.documents]
    if not numbers and isinstance(rows, source.Texts):
        raise ValueError(f"{args.data} holds no document with text and labels")
    ranked = np.concatenate(ids), np.concatenate(scores)
    return Ranking(numbers, model.classes_, model.label_counts_, *ranked, truth, texts or None, by)


def _shown(document: Document, by: dict[str, list[str]], name: str) -> str:
    """What examples show of a document; the values of `by` are noted."""
    if isinstance(document.text, str):
        if by:
            raise ValueError(f"{name} has no fields, so --by must not be given")
        return " ".join(document.text[:1000].split())
    for field, values in by.items():
        values.append(document.text[field])
    texts = [text for field, text in document.text.items() if text and field not in by]
    return " ".join(" — ".join(texts)[:1000].split())


# Predictions in files


def _of_predictions(
    args: argparse.Namespace, inputs: Inputs, kind: str, options: dict[str, Any]
) -> dict[str, Any]:
    """The metrics of predictions; of documents those that need no training labels."""
    if source.holds_documents(args, inputs):
        for name in ("train", "dataset", "propensity", "by_frequency"):
            if getattr(args, name):
                raise ValueError(
                    f"--{name.replace('_', '-')} needs a model, but {args.model} holds predictions"
                )
        found = _labels_by_row(args, inputs, args.model)
        truth = _true_labels(args, inputs)
        missing = next((row for row in truth if row not in found), None)
        if missing is not None:
            raise ValueError(
                f"{inputs.name(args.model)} has no predictions for line {missing} of "
                f"{inputs.name(args.data)}; are they those of another file?"
            )
        ranked = [[label for label, _ in found[row]] for row in truth]
        n_labels = len({label for row in (*truth.values(), *ranked) for label in row})
        return metrics.evaluate(list(truth.values()), ranked, k=_cutoffs(args, n_labels))
    refuse(args, OF_DOCUMENTS, f"documents, but {args.data} holds features")
    path = args.labels or args.data
    if kind == "columns":
        ranked = predictions.read_columns(inputs, args.model)
        known = Expected(n_labels=ranked.shape[1], owner=inputs.name(args.model))
        Y = inputs.labels(args, path, args.split or args.usual_split, known)
    else:
        Y = inputs.labels(args, path, args.split or args.usual_split, Expected())
        ranked = _columns(args, inputs, Y)
    Y_train = _training_labels(args, inputs, Y.shape[1])
    return metrics.evaluate(Y, ranked, Y_train, _cutoffs(args, Y.shape[1]), **options)


def _true_labels(args: argparse.Namespace, inputs: Inputs) -> dict[int, list[str]]:
    """The labels of documents by their lines."""
    truth = {document.line: document.labels for document in source.documents_of(args, inputs)}
    if not truth:
        raise ValueError(f"{inputs.name(args.data)} holds no document with text and labels")
    return truth


def _labels_by_row(args: argparse.Namespace, inputs: Inputs, path: str) -> dict[int, list[tuple[str, float]]]:
    """Predictions for documents; numbers of labels mean what ``--classes`` says."""
    if predictions.kind_of(inputs, path) == "labels":
        return predictions.read_labels(inputs, path)
    file = predictions.read_columns(inputs, path)
    if args.classes is None:
        raise ValueError(
            f"{inputs.name(path)} holds numbers of labels, but documents have labels: --classes MODEL "
            "says what they mean"
        )
    classes = _classes_of(inputs, args.classes)
    if isinstance(file, sp.csr_array):
        entries = file.tocoo()
        row, label, score = entries.row.astype(np.int64), entries.col, entries.data
    else:
        row, label, score = file.row, file.label, file.score
    if file.shape[1] != len(classes):
        raise ValueError(
            f"{inputs.name(path)} has {file.shape[1]:,} labels, but {args.classes} {len(classes):,}"
        )
    lines = [document.line for document in source.documents_of(args, inputs, complete=False)]
    if len(lines) != file.shape[0]:
        raise ValueError(f"{inputs.name(path)} has {file.shape[0]:,} rows, but {args.data} {len(lines):,}")
    found: dict[int, list[tuple[str, float]]] = {}
    ids, scores = best_first(row, label, score, len(lines))
    for line, of_row, values in zip(lines, ids.tolist(), scores.tolist(), strict=True):
        found[line] = [(classes[i], value) for i, value in zip(of_row, values, strict=True) if i >= 0]
    return found


def _classes_of(inputs: Inputs, path: str) -> list[str]:
    kind = inputs.kind(path)
    if kind == "model":
        return [str(label) for label in inputs.model(path).classes_.tolist()]
    lines = models.lines_of(path)
    return [str(json.loads(line)["label"]) if kind == "jsonl" else line for line, *_ in lines]


def _columns(args: argparse.Namespace, inputs: Inputs, Y: Any) -> Any:
    """Predictions with labels as ids of the columns of a matrix, a row for each of its rows."""
    found = predictions.read_labels(inputs, args.model)
    name, (n_rows, n_labels) = inputs.name(args.model), Y.shape
    classes = map(str, range(n_labels)) if args.classes is None else _classes_of(inputs, args.classes)
    place = {label: i for i, label in enumerate(classes)}
    if found.keys() != set(range(1, n_rows + 1)):
        raise ValueError(f"{name} has predictions for {len(found):,} rows, but {args.data} has {n_rows:,}")
    ids = np.full((n_rows, max(map(len, found.values()))), -1, np.int32)
    for row, labels in found.items():
        for rank, (label, _) in enumerate(labels):
            if label not in place:
                raise ValueError(
                    f"{name}: the label {label!r} is not the number of a column; --classes MODEL "
                    "says what labels mean"
                )
            ids[row - 1, rank] = place[label]
    return ids


# The report


def report(args: argparse.Namespace, inputs: Inputs, options: dict[str, Any]) -> None:
    """Write a page about one model, or about two side by side."""
    kind = predictions.kind_of(inputs, args.model)
    if kind != "model":
        raise ValueError(f"--report needs a model, but {inputs.name(args.model)} is none")
    model = models.load(args, inputs)
    cutoffs = args.k or list(_CUTOFFS)
    depth = max(_DEPTH, *cutoffs)
    found = {args.model: _of_model(args, model, inputs, depth, args.exact)}
    if args.against is not None:
        found[args.against] = _other(args, inputs, depth)
    Y_train = _training_labels(args, inputs, len(model.classes_))
    made = _report(args, model, list(found.values()), _short(list(found)), cutoffs, Y_train, options)
    with writing(args.report) as file:
        file.write(made.to_html().encode())
    _tell_left_out(inputs.name(args.data), made.n_true + made.left_out, made.n_true, model)
    _show_report(args, made)


def _other(args: argparse.Namespace, inputs: Inputs, depth: int) -> Ranking:
    """The second model, or the predictions of any system."""
    kind = predictions.kind_of(inputs, args.against)
    if kind == "model":
        return _of_model(args, models.load(args, inputs, args.against), inputs, depth, args.exact)
    if kind not in ("labels", "columns"):
        raise ValueError(
            f"--against needs a model, or predictions as JSON lines, CSV or TSV, but "
            f"{inputs.name(args.against)} is neither"
        )
    found = _labels_by_row(args, inputs, args.against)
    labels = sorted({label for row in found.values() for label, _ in row})
    place = {label: i for i, label in enumerate(labels)}
    k = max(1, min(depth, max(map(len, found.values()), default=1)))
    ids, scores = np.full((len(found), k), -1, np.int32), np.zeros((len(found), k), np.float32)
    for i, row in enumerate(found.values()):
        for rank, (label, score) in enumerate(row[:k]):
            ids[i, rank], scores[i, rank] = place[label], score
    return Ranking(list(found), np.array(labels, object), np.zeros(len(labels), np.int64), ids, scores)


def _short(paths: list[str]) -> list[str]:
    short = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    return short if len(set(short)) == len(short) else paths


def _report(
    args: argparse.Namespace,
    model: LabelRanker,
    found: Sequence[Ranking],
    names: list[str],
    cutoffs: list[int],
    Y_train: Any,
    options: dict[str, Any],
) -> metrics.Report:
    first = found[0]
    classes, counts = _all_classes(args, found)
    if Y_train is None and counts is not None:
        Y_train = models.same_frequencies(counts, max(model.n_rows_fit_, int(counts.max())))
    common = sorted(set.intersection(*(set(part.rows) for part in found)))
    if not common:
        raise ValueError(f"{args.against} has no predictions for the lines of {args.data}")
    place = {label: i for i, label in enumerate(classes.tolist())}
    ranked = {}
    for name, part in zip(names, found, strict=True):
        column = np.array([*(place[label] for label in part.classes.tolist()), -1])  # −1 stays what it is
        chosen = _places(part, common)
        ranked[name] = column[part.ids[chosen]], part.scores[chosen]
    chosen = _places(first, common)
    label_names = None
    if isinstance(model, TextBonsai):
        known = dict(zip(model.classes_.tolist(), model.label_names_, strict=True))
        label_names = [known.get(label, str(label)) for label in classes.tolist()]
    return metrics.Report(
        [first.truth[i] for i in chosen] if isinstance(first.truth, list) else first.truth,
        ranked,
        Y_train,
        k=[*cutoffs, _DEPTH],
        classes=classes,
        label_names=label_names,
        texts=None if first.texts is None else [first.texts[i] for i in chosen],
        by={name: [values[i] for i in chosen] for name, values in first.by.items()},
        title=f"{' and '.join(names)} on {os.path.basename(args.data)}",
        **options,
    )


def _places(part: Ranking, rows: list[int]) -> list[int]:
    place = {row: i for i, row in enumerate(part.rows)}
    return [place[row] for row in rows]


def _all_classes(args: argparse.Namespace, found: Sequence[Ranking]) -> tuple[Any, Any]:
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
        if counts is not None:
            more = np.zeros(len(other.classes), np.int64) if other.counts is None else other.counts
            counts = np.concatenate([counts, more[new]])
    return classes, counts


def _show_report(args: argparse.Namespace, made: metrics.Report) -> None:
    results: dict[str, Any] = dict(made.results)
    if made.label_counts is None:
        results = {name: _with_unknown(found, made.cutoffs) for name, found in results.items()}
        print(f"bonsai: {_UNKNOWN}", file=sys.stderr)
    out = sys.stderr if args.report == "-" else sys.stdout
    if args.json:
        by = {
            name: {value: part["results"] | {"rows": part["rows"]} for value, part in found.items()}
            for name, found in made.by.items()
        }
        content = {
            "true_labels": made.n_true,
            "left_out_labels": made.left_out,
            "results": results,
            "differences": {name: asdict(found) for name, found in made.differences.items()},
            "by": by,
            "calibration_error": {name: bins.error for name, bins in made.reliability.items()},
        }
        print(json.dumps(content, indent=2), file=out)
        return
    print(metrics.format_table(results if len(results) > 1 else next(iter(results.values()))), file=out)
    for name, found in made.differences.items():
        print(f"{name:<9} {found.value:+6.2f}  ({found.low:+.2f} to {found.high:+.2f})", file=out)
    if args.report != "-":
        print(f"report: {args.report}", file=out)


# What is said beside the metrics


def _with_unknown(result: dict[str, Any], cutoffs: list[int]) -> dict[str, Any]:
    """A result without training labels, where the metrics that need them are None."""
    every = [f"{name}@{k}" for name in METRICS for k in sorted(set(cutoffs))]
    known = {name: result.get(name) for name in every}
    return known | {name: value for name, value in result.items() if name not in known}


def _tell_left_out(name: str, total: int, known: int, model: LabelRanker) -> None:
    """Warn of true labels that the model does not have: the figures would be lower with them."""
    if total > known:
        only_rows = bool(model.fitted_.label_counts.all())
        why = "do not occur in training" if only_rows else "have neither training rows nor texts"
        print(
            f"bonsai: warning: {name}: {total - known:,} of {total:,} true labels "
            f"({100 * (total - known) / total:.1f} %) {why}; the figures leave them out, see --all-labels",
            file=sys.stderr,
        )


def _tell_recall_without_rows(ids: Any, Y: sp.csr_array, counts: Any) -> None:
    """Of true labels that the model knows by their texts alone, the share that is among the best."""
    found = Truth(Y.indptr, Y.indices).rank(ids).among(counts == 0)
    n_true = len(found.truth.indices)
    if not n_true:
        return
    print(
        f"bonsai: {n_true:,} of {Y.nnz:,} true labels have no training row, only texts: "
        f"R@{ids.shape[1]} is {100 * found.is_true.sum() / n_true:.1f} for these",
        file=sys.stderr,
    )


def _overlap(found: Any, wanted: Any) -> float:
    """Percentage of the labels in `wanted` that are in the same row of `found`."""
    there = wanted >= 0
    truth = Truth(np.concatenate([[0], np.cumsum(there.sum(axis=1))]), wanted[there])
    return 100.0 * int(truth.rank(found).is_true.sum()) / max(1, int(there.sum()))
