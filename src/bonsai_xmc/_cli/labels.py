"""``bonsai labels``: list the labels of a model, or write a model with other labels."""

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from .parser import LABELS, add_model, add_parameter, add_table, refuse

SUMMARY = "list the labels of a model, or write a model with other labels"
EXAMPLES = (
    "bonsai labels model.bonsai",
    "bonsai labels model.bonsai --rename bricks brickwork --merge heat heating -o new.bonsai",
)

_EDITS = ("restrict", "drop", "rename", "merge", "add")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    several = {"nargs": "+", "action": "append"}
    add_table(
        parser,
        f"""
-o --output NEW  model file to write; -: standard output
--list  print label, name and training rows of each label (default)
--restrict {LABELS}  keep only these labels; @FILE: one on each line
--drop {LABELS}  drop these labels
--rename OLD NEW|@FILE  rename a label; may be repeated; @FILE: lines OLD<TAB>NEW
--merge INTO LABEL|@FILE  make one label of several, whose classifiers stay: the highest score counts; may be
    repeated; @FILE: lines INTO<TAB>LABEL<TAB>LABEL… Edits are made in this order: {", ".join(_EDITS)}
--add FILE  add labels that have texts but no rows (text models): lines id<TAB>name<TAB>text|text,
    or JSON objects; labels that the model has stay as they are
""",
        restrict={"nargs": "+"},
        drop={"nargs": "+"},
        rename=several,
        merge=several,
    )
    add_parameter(parser, "n_jobs")


def run(args: argparse.Namespace) -> None:
    from . import models
    from .io import Inputs, save_model, writing
    from .report import count, in_bytes, show

    inputs = Inputs(args.model, args.add, output=args.output)
    edits = [name for name in _EDITS if getattr(args, name)]
    if edits and args.output is None:
        raise ValueError(f"--{edits[0]} needs a file for the new model: -o NEW")
    if args.output is not None and not edits:
        raise ValueError(
            f"-o {args.output}: there is nothing to change; see --drop, --rename, --merge, --add"
        )
    refuse(args, ["list"] if edits else ["n_jobs"], f"has no effect on {'edits' if edits else 'a list'}")
    model = models.load(args, inputs)
    if not edits:
        with writing(None) as file:
            file.writelines(line.encode() + b"\n" for line in _listed(model, args.json))
        return
    before = len(model.classes_)
    model = _edited(args, model)
    size = save_model(model, args.output)
    facts = {"labels before": before, "labels": len(model.classes_), "bytes": size}
    text = f"{args.output}: {count(facts['labels'], 'label')} instead of {before:,}, {in_bytes(size)}"
    show(args, facts, text)


def _edited(args: argparse.Namespace, model: Any) -> Any:
    """Apply the edits in the order of _EDITS."""
    from bonsai_xmc._model.labels import keys_of

    from .models import marked, words_of

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
        new = [pair[1] for pair in pairs]
        # a model of integer labels may get names for all of them
        all_named = len(new) == len(model.classes_) and not all(map(str.isdigit, new))
        if model.fitted_.labels.named or not all_named:
            new = keys_of(model.fitted_, new, "--rename")
        model = model.rename(dict(zip(old, new, strict=True)))
    for into, *labels in _groups(args.merge or [], "--merge"):
        key, *keys = keys_of(model.fitted_, [into, *labels], "--merge")
        model = model.merge(keys, into=key)
    if args.add:
        if not hasattr(model, "add_labels"):
            raise ValueError(f"--add needs a text model, but {args.model} is a matrix model")
        model = model.add_labels(args.add)
    return model


def _groups(given: Sequence[Sequence[str]], option: str) -> Iterator[Sequence[str]]:
    """Yield the arguments of each option; @FILE stands for one option with each line."""
    from .models import lines_of

    for group in given:
        if len(group) == 1 and group[0].startswith("@"):
            yield from lines_of(group[0][1:])
        elif len(group) == 1:
            raise ValueError(f"{option} needs two labels or more, or @FILE, but has {group[0]}")
        else:
            yield group


def _listed(model: Any, as_json: bool) -> Iterator[str]:
    """Yield label<TAB>name<TAB>training rows (– if unknown), also a file for --label-names."""
    clean = str.maketrans("\t\r\n", "   ")
    names = model.fitted_.labels.names or [""] * len(model.classes_)
    labels = model.classes_.tolist()
    counts = [None] * len(labels) if model.fitted_.imported else model.label_counts_.tolist()
    for label, n_rows, name in zip(labels, counts, names, strict=True):
        if as_json:
            yield json.dumps({"label": label, "name": name, "rows": n_rows}, ensure_ascii=False)
        else:
            cells = [str(label), name, "–" if n_rows is None else str(n_rows)]
            yield "\t".join(cell.translate(clean) for cell in cells)
