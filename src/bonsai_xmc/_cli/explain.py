"""``bonsai explain``: why a row gets its labels, and why not others."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from bonsai_xmc import Explanation, TextBonsai, WhyNot
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._explain import html
from bonsai_xmc._explain.names import label_id
from bonsai_xmc._explain.verbs import explained_row
from bonsai_xmc._explain.why_not import why_not

from . import models
from .io import Inputs, check_output, writing
from .texts import is_file, of_model, texts_of


def run(args: argparse.Namespace) -> None:
    if args.k < 1:
        raise ValueError(f"-k is {args.k}, but must be at least 1")
    inputs = Inputs(args.model, args.data)
    check_output(args.html, inputs.files(args.split))
    model = models.load(args, inputs)
    x = _row(args, model, inputs)
    explained, refused = _answers(args, model, x)
    if args.html is not None:
        fragments = [why.to_html() for why in explained] + [answer.to_html() for answer in refused]
        with writing(args.html) as file:
            file.write(html.page(f"{args.model}: reasons", fragments).encode())
    if args.json:
        found = {
            "explanations": [why.to_dict() for why in explained],
            "why_not": [answer.to_dict() for answer in refused],
        }
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif args.html is None:
        print("\n\n".join(_shown(args, explained, refused)))


def _row(args: argparse.Namespace, model: LabelRanker, inputs: Inputs) -> Any:
    """The text, the record or the row of a matrix."""
    if args.row is not None and args.row < 1:
        raise ValueError(f"--row is {args.row}, but rows are counted from 1")
    if not isinstance(model, TextBonsai):
        models.check_no_document_options(args)
        X = inputs.features(args, models.expected(args, model))
        row = args.row or 1
        if row > X.shape[0]:
            raise ValueError(f"--row is {row}, but {inputs.name(args.data)} has {X.shape[0]:,} rows")
        return X[[row - 1]]
    if not is_file(args.data):
        if args.row is not None:
            raise ValueError("--row is for files, but a text was given")
        return args.data
    documents = (d for chunk in of_model(args, model, inputs, complete=False) for d in chunk)
    line = 0
    for document in documents:
        line = document.line
        if args.row is None or line == args.row:
            return texts_of([document], model)[0]
        if line > args.row:
            break
    name = inputs.name(args.data)
    if args.row is None:
        raise ValueError(f"{name} holds no document")
    near = "the next one is at" if line > args.row else "the last one is at"
    raise ValueError(f"--row is {args.row}, but {name} has no document at this line; {near} line {line}")


def _answers(args: argparse.Namespace, model: LabelRanker, x: Any) -> tuple[list[Explanation], list[WhyNot]]:
    """Of the labels that are asked for, or else of the k best."""
    row = explained_row(model, x)
    fitted = row.fitted
    labels = [label_id(fitted, label) for label in args.label]
    if not args.label and not args.why_not:
        labels = row.ids[: args.k]
    explained = [row.explain(label) for label in labels]
    return explained, [why_not(row, label_id(fitted, label), args.k) for label in args.why_not]


def _shown(args: argparse.Namespace, explained: list[Explanation], refused: list[WhyNot]) -> Iterator[str]:
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for why in explained:
        beyond = why.rank is not None and why.rank > args.k
        more = f"\n  note: it is not among the {args.k} best labels (-k)" if beyond and args.label else ""
        yield why.to_text(color, args.features) + more
    for answer in refused:
        yield answer.to_text(color, args.features)
    if not explained and not refused:
        yield "no label: the row has no feature that the model knows"
