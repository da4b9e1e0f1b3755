"""``bonsai evaluate``: the metrics of a model, or of predictions, on rows whose labels are known."""

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import TextBonsai, metrics
from bonsai_xmc._data.labels import over_classes
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc.datasets._reading import Expected, read_matrix
from bonsai_xmc.metrics._files import parse_lines

from . import evaluate_report, evaluate_texts, models
from .evaluate_texts import CUTOFFS, cutoffs_of
from .io import Inputs, check_output
from .texts import of_model, texts_of


def run(args: argparse.Namespace) -> None:
    inputs = Inputs(args.model, args.data, args.labels, args.train, args.against)
    if args.report is None and (args.against is not None or args.by):
        raise ValueError(f"--{'against' if args.by is None else 'by'} needs --report FILE")
    check_output(args.report, inputs.files(args.split))
    if args.report is None and evaluate_texts.holds_predictions(inputs, args.model):
        return _show(args, evaluate_texts.evaluate(args, inputs))
    if args.report is not None:
        return evaluate_report.run(args, inputs, args.k or list(CUTOFFS))
    found: dict[str, float] = {}
    unknown = False
    if _holds_predictions(args, inputs):
        predictions, Y, Y_train = _with_predictions(args, inputs)
    else:
        model = models.load(args, inputs)
        evaluated = _with_texts if isinstance(model, TextBonsai) else _with_model
        predictions, Y, Y_train, found = evaluated(args, model, inputs)
        unknown = model.fitted_.imported and args.train is None
    if unknown and args.by_frequency:
        raise ValueError(f"--by-frequency: {models.UNKNOWN}")
    if args.train is not None:
        Y_train = inputs.labels(args, args.train, "trn", Expected(n_labels=Y.shape[1], owner=args.model))
    propensity = {} if args.propensity is None else dict(zip("AB", args.propensity, strict=True))
    options = {"dataset": args.dataset, "by_frequency": args.by_frequency, **propensity}
    cutoffs = cutoffs_of(args, Y.shape[1])
    result = metrics.evaluate(Y, predictions, Y_train, cutoffs, **options) | found
    _show(args, models.with_unknown(result, cutoffs) if unknown else result)
    if unknown:
        print(f"bonsai: {models.UNKNOWN}", file=sys.stderr)


def _show(args: argparse.Namespace, result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2) if args.json else metrics.format_table(result))


def _holds_predictions(args: argparse.Namespace, inputs: Inputs) -> bool:
    kind = "model" if os.path.isdir(args.model) else inputs.kind(args.model)
    if kind in ("matrix", "npz") and args.exact:
        raise ValueError(f"--exact needs a model, but {args.model} holds predictions")
    return kind in ("matrix", "npz")


def _with_predictions(args: argparse.Namespace, inputs: Inputs) -> tuple[Any, Any, Any]:
    """What there is to evaluate: predictions, true labels, training labels."""
    source = inputs.source(args.model)
    predictions: Any
    if source.kind == "npz":
        predictions = read_matrix(source, "column")[0]
    else:
        predictions = parse_lines(io.BytesIO(source.data), source.name)
    known = Expected(n_labels=predictions.shape[1], owner=source.name)
    return predictions, inputs.labels(args, args.labels or args.data, args.split, known), None


def _with_model(
    args: argparse.Namespace, model: LabelRanker, inputs: Inputs
) -> tuple[Any, Any, Any, dict[str, float]]:
    """The same for a model; with ``--exact`` also the share of the best labels that its search finds."""
    models.check_no_document_options(args)
    rows = inputs.rows(args, models.expected(args, model))
    ids, found = _ranked(args, model, [rows.X])
    return ids, rows.Y, models.same_frequencies(model.label_counts_, model.n_rows_fit_), found


def _with_texts(
    args: argparse.Namespace, model: TextBonsai, inputs: Inputs
) -> tuple[Any, Any, Any, dict[str, float]]:
    """The same for a model of texts. True labels that are not in training are left out, with a warning."""
    if args.train is not None:
        raise ValueError("--train is for matrices; a model of texts knows how frequent its labels are")
    if args.labels is not None:
        raise ValueError("documents hold their labels themselves, so LABELS must not be given")
    truth: list[list[str]] = []

    def chunks() -> Iterator[Any]:
        for chunk in of_model(args, model, inputs, complete=True):
            truth.extend(document.labels for document in chunk)
            yield texts_of(chunk, model)

    ids, found = _ranked(args, model, chunks())
    if not truth:
        raise ValueError(f"{args.data} holds no document with text and labels")
    Y = over_classes(truth, model.classes_)
    evaluate_texts.tell_left_out(inputs.name(args.data), sum(map(len, truth)), Y.nnz, model)
    if not model.fitted_.imported:
        _tell_recall_without_rows(ids, Y, model.label_counts_)
    return ids, Y, models.same_frequencies(model.label_counts_, model.n_rows_fit_), found


def _tell_recall_without_rows(ids: Any, Y: sp.csr_array, counts: Any) -> None:
    """Of true labels that the model knows by their texts alone, the share that is among the best."""
    without = counts == 0
    true = int(without[Y.indices].sum())
    if not true:
        return
    row, place = np.nonzero((ids >= 0) & without[ids])
    hits = Y[row, ids[row, place]].sum() if len(row) else 0
    print(
        f"bonsai: {true:,} of {Y.nnz:,} true labels have no training row, only texts: "
        f"R@{ids.shape[1]} is {100 * hits / true:.1f} for these",
        file=sys.stderr,
    )


def _ranked(
    args: argparse.Namespace, model: LabelRanker, parts: Iterable[Any]
) -> tuple[Any, dict[str, float]]:
    """The best labels of all rows, and with ``--exact`` the share of these that the model's search finds."""
    cutoffs = cutoffs_of(args, len(model.classes_))
    k = max(cutoffs)
    ids: list[Any] = [np.empty((0, k), np.int32)]
    exact: list[Any] = [np.empty((0, k), np.int32)]
    for X in parts:
        ids.append(models.top_k(args, model, X, k)[0])
        if args.exact:
            exact.append(models.top_k(args, model, X, k, exact=True)[0])
    best = np.concatenate(ids)
    if not args.exact:
        return best, {}
    wanted = np.concatenate(exact)
    return wanted, {f"found@{k}": _overlap(best[:, :k], wanted[:, :k]) for k in sorted(set(cutoffs))}


def _overlap(found: Any, wanted: Any) -> float:
    """Percentage of the labels in `wanted` that are in the same row of `found`."""
    hits = ((wanted[:, :, None] == found[:, None, :]) & (wanted >= 0)[:, :, None]).any(axis=2)
    return 100.0 * float(hits.sum()) / max(1, int((wanted >= 0).sum()))
