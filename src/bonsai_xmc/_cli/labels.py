"""``bonsai labels``: list the labels of a model, or write a model with other labels."""

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from bonsai_xmc import TextBonsai
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._model.labels import keys_of

from .io import Inputs, check_output, save_model, writing
from .label_lists import lines_of, marked, words_of
from .report import count, in_bytes

_EDITS = ("restrict", "drop", "rename", "merge", "add")


def run(args: argparse.Namespace) -> None:
    inputs = Inputs(args.model, args.add)
    edits = [name for name in _EDITS if getattr(args, name)]
    if edits and args.output is None:
        raise ValueError(f"--{edits[0]} needs a file for the new model: -o NEW")
    if args.output is not None and not edits:
        raise ValueError(
            f"-o {args.output}: there is nothing to change; see --drop, --rename, --merge, --add"
        )
    check_output(args.output, inputs.files())
    model = inputs.model(args.model)
    if hasattr(args, "n_jobs"):
        model.classifier_.set_params(n_jobs=args.n_jobs)
    if not edits:
        with writing(None) as file:
            file.writelines(line.encode() + b"\n" for line in _listed(model, args.json))
        return
    before = len(model.classes_)
    model = _edited(args, model)
    size = save_model(model, args.output)
    report = {"labels before": before, "labels": len(model.classes_), "bytes": size}
    if args.json and args.output != "-":
        print(json.dumps(report, indent=2))
    elif not args.quiet and args.output != "-":
        print(f"{args.output}: {count(report['labels'], 'label')} instead of {before:,}, {in_bytes(size)}")


def _edited(args: argparse.Namespace, model: LabelRanker) -> LabelRanker:
    """In the order of _EDITS."""
    if args.restrict:
        model = model.restrict(marked(model, args.restrict, "--restrict"))
    if args.drop:
        model = model.drop(keys_of(model.fitted_, words_of(args.drop), "--drop"))
    if args.rename:
        pairs = list(_groups(args.rename, "--rename"))
        wrong = next((pair for pair in pairs if len(pair) != 2), None)
        if wrong is not None:
            raise ValueError(f"--rename needs an old and a new label, but has {' '.join(wrong)}")
        old = keys_of(model.fitted_, [pair[0] for pair in pairs], "--rename")
        if len(set(old)) < len(old):
            raise ValueError(f"--rename: {next(o for o in old if old.count(o) > 1)!r} is given twice")
        model = model.rename(dict(zip(old, _new_keys(model, pairs), strict=True)))
    for into, *labels in _groups(args.merge or [], "--merge"):
        key, *keys = keys_of(model.fitted_, [into, *labels], "--merge")
        model = model.merge(keys, into=key)
    if args.add:
        if not isinstance(model, TextBonsai):
            raise ValueError(f"--add needs a model of texts, but {args.model} is a model of matrices")
        model = model.add_labels(args.add)
    return model


def _new_keys(model: LabelRanker, pairs: Sequence[Sequence[str]]) -> list[Any]:
    """New labels; all labels of a model of integers may get names."""
    new = [pair[1] for pair in pairs]
    if (
        not model.fitted_.labels.named
        and len(pairs) == len(model.classes_)
        and not all(map(str.isdigit, new))
    ):
        return new
    return keys_of(model.fitted_, new, "--rename")


def _groups(given: Sequence[Sequence[str]], option: str) -> Iterator[Sequence[str]]:
    """The arguments of each option; @FILE stands for one option with each line."""
    for group in given:
        if len(group) == 1 and group[0].startswith("@"):
            yield from lines_of(group[0][1:])
        elif len(group) == 1:
            raise ValueError(f"{option} needs two labels or more, or @FILE, but has {group[0]}")
        else:
            yield group


def _listed(model: LabelRanker, as_json: bool) -> Iterator[str]:
    """label<TAB>training rows, or – if they are not known<TAB>name"""
    clean = str.maketrans("\t\r\n", "   ")
    names = model.fitted_.labels.names or [""] * len(model.classes_)
    labels = model.classes_.tolist()
    counts = [None] * len(labels) if model.fitted_.imported else model.label_counts_.tolist()
    for label, n_rows, name in zip(labels, counts, names, strict=True):
        if as_json:
            named = {"name": name} if name else {}
            yield json.dumps({"label": label, **named, "rows": n_rows}, ensure_ascii=False)
        else:
            cells = [str(label), "–" if n_rows is None else str(n_rows), *([name] if name else [])]
            yield "\t".join(cell.translate(clean) for cell in cells)
