"""``bonsai evaluate`` of predictions as ``bonsai predict`` writes them for documents."""

import argparse
import io
import os
import sys
from typing import Any

from bonsai_xmc import metrics
from bonsai_xmc._base.sniff import sniff
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc.datasets._documents.formats import READERS
from bonsai_xmc.datasets._documents.problems import Problems

from .io import Inputs
from .texts import documents_of, report

CUTOFFS = (1, 3, 5)
_TABLE = "columns line, label and score"
_KINDS = {
    "jsonl": '{"line": 1, "labels": [{"label": …, "score": …}]}',
    "csv": _TABLE,
    "tsv": _TABLE,
}


def cutoffs_of(args: argparse.Namespace, n_labels: int) -> list[int]:
    """Those that were asked for; by default those of 1, 3 and 5 that make sense."""
    return args.k or [k for k in CUTOFFS if k <= max(1, n_labels)]


def evaluate(args: argparse.Namespace, inputs: Inputs) -> dict[str, float]:
    """The metrics that need no training labels. Rows belong together by their lines."""
    for name in ("train", "exact", "dataset", "propensity", "by_frequency"):
        if getattr(args, name):
            raise ValueError(f"--{name.replace('_', '-')} needs a model, but {args.model} holds predictions")
    predicted = {line: [label for label, _ in row] for line, row in predictions(inputs, args.model).items()}
    documents = documents_of(args, inputs)
    truth, ranked = [], []
    for document in documents:
        if document.line not in predicted:
            raise ValueError(
                f"{inputs.name(args.model)} has no predictions for line {document.line} of "
                f"{documents.name}; are they those of another file?"
            )
        truth.append(document.labels)
        ranked.append(predicted[document.line])
    report(documents)
    if not truth:
        raise ValueError(f"{documents.name} holds no document with text and labels")
    n_labels = len({label for row in (*truth, *ranked) for label in row})
    return metrics.evaluate(truth, ranked, k=cutoffs_of(args, n_labels))


def tell_left_out(name: str, total: int, known: int, model: LabelRanker) -> None:
    """Warn of true labels that the model does not have: the figures would be lower with them."""
    if total > known:
        only_rows = bool(model.fitted_.label_counts.all())
        why = "do not occur in training" if only_rows else "have neither training rows nor texts"
        print(
            f"bonsai: warning: {name}: {total - known:,} of {total:,} true labels "
            f"({100 * (total - known) / total:.1f} %) {why}; the figures leave them out",
            file=sys.stderr,
        )


def holds_predictions(inputs: Inputs, path: str) -> bool:
    """Whether a file holds predictions of documents: JSON lines, or a table."""
    return not os.path.isdir(path) and _kind(inputs, path) in _KINDS


def _kind(inputs: Inputs, path: str) -> str:
    return sniff(inputs.beginning(path), path, ("line", "label"))


def predictions(inputs: Inputs, path: str) -> dict[int, list[tuple[str, float]]]:
    """Labels and their scores, best first, by the line of their document; 0 where there is no score."""
    name, kind = inputs.name(path), _kind(inputs, path)
    found: dict[int, list[tuple[str, float]]] = {}
    for number, record in READERS[kind](io.BytesIO(inputs.source(path).data), Problems(name, strict=True)):
        try:
            row: Any = record
            entries = row["labels"] if kind == "jsonl" else [row] if row["label"] else []
            scored = [(str(entry["label"]), float(entry.get("score") or 0.0)) for entry in entries]
            found.setdefault(int(row["line"]), []).extend(scored)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{name}, line {number}: not a prediction as `bonsai predict` writes it ({_KINDS[kind]})"
            ) from error
    return found
