"""``bonsai explain``: explain why a row gets its labels, and why not others."""

import argparse
import json
import os
import sys
from typing import Any

from .parser import add_data, add_model, add_prediction_parameters, add_table, refuse

SUMMARY = "explain why a row gets its labels, and why not others"
EXAMPLES = (
    'bonsai explain model.bonsai "Thermal insulation of old brick houses" -k 1',
    "bonsai explain model.bonsai documents.csv --row 2 --html why.html",
)
COMMON = ("row", "label", "why_not", "k", "features", "html", "json", "quiet")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_data(parser, "INPUT", "tst", labels=False)
    add_table(
        parser,
        """
--row N  row of a file, as predict counts them: the line of a document, from 1 (default: the first)
--label NAME  explain this label; may be given more than once (default: the -k best)
--why-not NAME  explain why this label does not rank higher, next to the -k best; may be given more than once
-k K  number of labels to explain or to compare with (default: 3)
--features N  features in each table (default: 10; 5 with --why-not; twice as many on a page)
--html FILE  write a page instead of a table; -: standard output
""",
        row=int,
        label={"action": "append", "default": []},
        why_not={"action": "append", "default": []},
        k={"type": int, "default": 3},
        features=int,
    )
    add_prediction_parameters(parser)


def run(args: argparse.Namespace) -> None:
    from bonsai_xmc._explain import html
    from bonsai_xmc._explain.names import label_id
    from bonsai_xmc._explain.verbs import explained_row
    from bonsai_xmc._explain.why_not import why_not

    from . import models, source
    from .io import Inputs, writing

    if args.json:
        refuse(args, ["features"], "is for tables: JSON has all features")
    if args.k < 1:
        raise ValueError(f"-k is {args.k}, but must be at least 1")
    if args.row is not None and args.row < 1:
        raise ValueError(f"--row is {args.row}, but rows are counted from 1")
    inputs = Inputs(args.model, args.data, *args.list, output=args.html, split=args.split)
    model = models.load(args, inputs)
    row = explained_row(model, source.for_model(args, model, inputs, labels=False).row(args.row))
    labels = [label_id(row.fitted, label) for label in args.label]
    if not args.label and not args.why_not:
        labels = row.ids[: args.k]
    explained: list[Any] = [row.explain(label) for label in labels]
    refused: list[Any] = [why_not(row, label_id(row.fitted, label), args.k) for label in args.why_not]
    if args.html is not None:
        fragments = [answer.to_html(args.features) for answer in (*explained, *refused)]
        place = "" if args.row is None else f", row {args.row:,}"
        about = {"Model": args.model, "Data": f"{args.data:.300}{place}"}
        title = f"Labels of {os.path.basename(args.model)}, explained"
        with writing(args.html) as file:
            file.write(html.page(title, fragments, about).encode())
    if args.json:
        found = {
            "explanations": [why.to_dict() for why in explained],
            "why_not": [answer.to_dict() for answer in refused],
        }
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif args.html is None:
        print("\n\n".join(_shown(args, explained, refused)))


def _shown(args: argparse.Namespace, explained: list[Any], refused: list[Any]) -> list[str]:
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    shown = []
    for why in explained:
        beyond = why.rank is not None and why.rank > args.k
        more = f"\n  note: it is not among the {args.k} best labels (-k)" if beyond and args.label else ""
        shown.append(why.to_text(color, args.features) + more)
    shown += [answer.to_text(color, args.features) for answer in refused]
    return shown or ["no label: the row has no feature of the model"]
