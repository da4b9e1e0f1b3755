"""``bonsai evaluate`` of predictions in JSON lines, as ``bonsai predict`` writes them for documents."""

import argparse
import json
from typing import Any

from bonsai_xmc import metrics

from .io import Inputs
from .texts import documents_of, report


def evaluate(args: argparse.Namespace, inputs: Inputs, cutoffs: list[int]) -> dict[str, float]:
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
    return metrics.evaluate(truth, ranked, k=cutoffs)


def predictions(inputs: Inputs, path: str) -> dict[int, list[tuple[str, float]]]:
    """Labels and their scores, best first, by the line of their document; 0 where there is no score."""
    found: dict[int, list[tuple[str, float]]] = {}
    for number, line in enumerate(inputs.source(path).data.decode().splitlines(), 1):
        try:
            row: Any = json.loads(line)
            entries = [(str(entry["label"]), float(entry.get("score", 0.0))) for entry in row["labels"]]
            found[int(row["line"])] = entries
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{inputs.name(path)}, line {number}: not a prediction as `bonsai predict` writes it "
                f'({{"line": 1, "labels": [{{"label": …, "score": …}}]}})'
            ) from error
    return found
