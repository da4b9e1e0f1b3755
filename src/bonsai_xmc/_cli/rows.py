"""Rows with labels for a trained model, as several commands read them."""

import argparse
from collections.abc import Iterator
from typing import Any

from bonsai_xmc import TextBonsai
from bonsai_xmc._estimators.base import LabelRanker

from . import models
from .io import Inputs
from .texts import of_model, texts_of


def labelled_rows(
    args: argparse.Namespace, model: LabelRanker, inputs: Inputs, *, new_labels: bool = False
) -> tuple[Any, Any]:
    """Rows and labels of the argument DATA; texts are read when the model asks for them, labels with them."""
    if not isinstance(model, TextBonsai):
        models.check_no_document_options(args)
        expected = models.expected(args, model)
        if new_labels and not model.fitted_.labels.named and not model.fitted_.labels.keyed:
            expected = expected._replace(n_labels=None)
        rows = inputs.rows(args, expected)
        return rows.X, rows.Y
    if args.labels is not None:
        raise ValueError("documents hold their labels themselves, so LABELS must not be given")
    labels: list[list[str]] = []

    def texts() -> Iterator[Any]:
        for chunk in of_model(args, model, inputs, complete=True):
            labels.extend(document.labels for document in chunk)
            yield from texts_of(chunk, model)
        if not labels:
            raise ValueError(f"{args.data} holds no document with text and labels")

    return texts(), labels
