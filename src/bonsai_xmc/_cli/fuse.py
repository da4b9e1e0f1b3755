"""``bonsai fuse``: combine several models, with weights chosen on held-out rows."""

import argparse
from typing import Any

from .parser import add_data, add_output, add_parameter, add_table

SUMMARY = "make one model of several, with weights chosen on held-out rows"
EXAMPLES = (
    "bonsai fuse model.bonsai other.bonsai --on dev.csv -o fused.bonsai",
    "bonsai fuse model.bonsai other.bonsai --on dev.csv --link rank -o fused.bonsai --json",
)
COMMON = ("data", "output", "link", "json", "quiet")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_table(
        parser,
        "models MODEL  model files, or predictions of any system for DEV; two or more, one of them a model",
        models={"nargs": "+"},
    )
    # rows that no model was trained on, with labels
    add_data(parser, "DEV", "dev", option="--on")
    add_output(parser, "OUT")
    add_table(
        parser,
        """
--link auto|score|calibrated|rank  value of each model to add up: its score, its score after calibration, or
    its reciprocal rank (default: auto, the best one for each model)
""",
        link={"default": "auto"},
    )
    add_parameter(parser, "n_jobs")


def run(args: argparse.Namespace) -> None:
    from bonsai_xmc import Fusion, RankedList

    from . import predictions, source
    from .io import Inputs, distinct_names, save_model
    from .lists import Listed
    from .report import in_bytes, show

    if len(args.models) < 2:
        raise ValueError("fuse takes two models or more")
    inputs = Inputs(*args.models, args.data, output=args.output, split=args.split)
    names = distinct_names(args.models)
    paths = dict(zip(names, args.models, strict=True))
    kinds = {name: predictions.kind_of(inputs, path) for name, path in paths.items()}
    listed = [name for name in names if kinds[name] in ("labels", "columns")]
    models = {name: inputs.model(path) for name, path in paths.items() if name not in listed}
    if not models:
        raise ValueError("fuse takes at least one model beside ranked lists")
    args.model = next(path for name, path in paths.items() if name in models)
    beside = Fusion.beside(models)
    rows = source.for_model(args, beside, inputs)
    X, Y = rows.whole()
    own: dict[str, Any] = dict.fromkeys(models, X)
    for name in listed:
        labels = list(map(str, beside.classes_.tolist()))
        one = Listed.read(args, inputs, paths[name], labels)
        named = beside.fitted_.labels.named
        classes = list(dict.fromkeys([*labels, *one.labels])) if named else beside.classes_.tolist()
        own[name] = one.ranked(rows.numbers, args.data, {str(label): i for i, label in enumerate(classes)})
        models[name] = RankedList(classes).fit(own[name])
    models = {name: models[name] for name in names}
    X = own if listed else X
    fused = Fusion.of(models, X, Y, link=args.link, n_jobs=getattr(args, "n_jobs", None))
    size = save_model(fused, args.output)
    facts = {"model": args.output, "bytes": size, "weights": fused.weights_, "links": fused.links_}
    text = f"{_table(fused, models)}\n\n{args.output}: {in_bytes(size)}, threshold {fused.threshold_:g}"
    show(args, facts | {"chosen": fused.chosen_, "threshold": fused.threshold_}, text)


def _table(fused: Any, models: dict[str, Any]) -> str:
    chosen = fused.chosen_
    width = max(len("fusion"), *map(len, models))
    rows = [("", "weight", "link", [f"{measure:>6}" for measure in chosen["measures"]])]
    for name, figures in chosen["figures"].items():
        weight = f"{fused.weights_.get(name, 0.0):6.2f}" if name in models else ""
        link = fused.links_.get(name, "left out") if name in models else ""
        rows.append((name, weight, link, [f"{value:6.2f}" for value in figures]))
    lines = [f"{name:{width}} {weight:6} {link:10} {' '.join(rest)}" for name, weight, link, rest in rows]
    return "\n".join([f"{chosen['n_held_out']:,} held-out rows", *lines])
