"""``bonsai train`` on documents: texts and labels become a `TextBonsai`."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bonsai_xmc import TextBonsai
from bonsai_xmc._text.blocks import is_title
from bonsai_xmc.datasets import Documents

from .io import Inputs
from .runner import runner_of
from .texts import documents_of, report


def open_training(args: argparse.Namespace, inputs: Inputs) -> Documents:
    """The documents to train on, and which fields hold what."""
    if args.labels is not None:
        raise ValueError(
            f"{args.data} holds documents with their labels, so LABELS must not be given; to name the field "
            f"of the labels: --labels {args.labels}"
        )
    documents = documents_of(args, inputs)
    if args.text and not documents.fields:
        raise ValueError(
            f"{args.data} is a file of {documents.kind} and has no fields, so --text must not be given"
        )
    return documents


def fields_of(args: argparse.Namespace, documents: Documents) -> Any:
    """The parameter `fields`: weights as given; without any, the title is known by its name."""
    weights = args.text or {}
    if args.tune:
        if any(weight is not None for weight in weights.values()):
            raise ValueError("--tune searches for the weights of fields, so --text must not give any")
        return dict.fromkeys(documents.fields, "auto") if documents.fields else "auto"
    if not documents.fields:
        return None
    if any(weight is not None for weight in weights.values()):
        default = {name: 1.0 if is_title(name) else 0.0 for name in weights}
        return {name: default[name] if weight is None else weight for name, weight in weights.items()}
    return list(documents.fields)


def fit(
    args: argparse.Namespace, model: TextBonsai, documents: Documents, **options: Any
) -> tuple[TextBonsai, float]:
    """The model, fitted to documents, which are read once, and the seconds that reading them took."""
    labels: list[list[str]] = []
    seconds, ended = 0.0, False

    def texts() -> Iterator[Any]:
        nonlocal seconds, ended
        iterator = iter(documents)
        while True:
            begin = time.perf_counter()
            document = next(iterator, None)
            seconds += time.perf_counter() - begin
            if document is None:
                ended = True
                return
            labels.append(document.labels)  # complete when `fit` looks at them, after the texts
            yield document.text

    try:
        with runner_of(args) as runner:
            model.fit(texts(), labels, runner=runner, **options)
    except ValueError as error:
        if labels or not ended:
            raise
        report(documents)
        raise ValueError(f"{documents.name} holds no document with text and labels") from error
    text = model.fitted_.text
    assert text is not None
    source = {"labels": documents.label_field, "separator": documents.separator}
    report(documents)
    text = replace(text, source=source if documents.fields else {})
    return model._with(replace(model.fitted_, text=text)), seconds
