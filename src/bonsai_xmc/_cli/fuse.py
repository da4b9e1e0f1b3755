"""``bonsai fuse``: several models as one, with weights that are best on held-out rows."""

import argparse
from typing import Any

from .parser import add_data, add_output, add_parameter, add_table

SUMMARY = "make one model of several, weighted by what is best on held-out rows"
EXAMPLES = (
    "bonsai fuse model.bonsai other.bonsai --on dev.csv -o fused.bonsai",
    "bonsai fuse model.bonsai other.bonsai --on dev.csv --link rank -o fused.bonsai --json",
)
COMMON = ("on", "output", "link", "json", "quiet")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_table(parser, "models MODEL  model files, two or more", models={"nargs": "+"})
    _add_rows(parser)
    add_output(parser, "OUT")
    add_table(
        parser,
        """
--link auto|score|calibrated|rank  what of a model is added up: its score, its score after calibration, or its
    reciprocal rank (default: auto, the best one for each model)
""",
        link={"default": "auto"},
    )
    add_parameter(parser, "n_jobs")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    """Add the rows of the option --on, read as other verbs read DATA."""
    own = argparse.ArgumentParser(add_help=False)
    add_data(own, "DEV", "dev")
    on = {"dest": "data", "required": True}
    add_table(parser, "--on DEV  rows that no model was trained on, with labels", on=on)
    for group in own._action_groups:
        named = group.title in ("documents", "matrices")
        target: Any = parser.add_argument_group(group.title) if named else parser
        for action in group._group_actions:
            if action.option_strings:
                target._add_action(action)
    parser.set_defaults(usual_split="dev", labels=None)


def run(args: argparse.Namespace) -> None:
    from bonsai_xmc import Fusion

    from . import source
    from .io import Inputs, save_model
    from .report import in_bytes, show

    if len(args.models) < 2:
        raise ValueError("fuse takes two models or more")
    inputs = Inputs(*args.models, args.data, output=args.output, split=args.split)
    models = {_name(path, args.models): inputs.model(path) for path in args.models}
    args.model = args.models[0]
    X, Y = source.for_model(args, Fusion.beside(models), inputs).whole()
    fused = Fusion.of(models, X, Y, link=args.link, n_jobs=getattr(args, "n_jobs", None))
    size = save_model(fused, args.output)
    facts = {"model": args.output, "bytes": size, "weights": fused.weights_, "links": fused.links_}
    text = f"{_table(fused, models)}\n\n{args.output}: {in_bytes(size)}, threshold {fused.threshold_:g}"
    show(args, facts | {"chosen": fused.chosen_, "threshold": fused.threshold_}, text)


def _name(path: str, paths: list[str]) -> str:
    """The name of a member: that of its file, or the whole path where two files are called alike."""
    import os

    stem = lambda one: os.path.splitext(os.path.basename(one))[0]
    return path if [stem(one) for one in paths].count(stem(path)) > 1 else stem(path)


def _table(fused: Any, models: dict[str, Any]) -> str:
    chosen = fused.chosen_
    width = max(len("fusion"), *map(len, models))
    lines = [f"{chosen['n_held_out']:,} held-out rows"]
    lines.append(
        " ".join([f"{'':{width}}", "weight", f"{'link':10}", *(f"{m:>6}" for m in chosen["measures"])])
    )
    for name, figures in chosen["figures"].items():
        of = name in models
        weight = f"{fused.weights_.get(name, 0.0):6.2f}" if of else " " * 6
        link = (fused.links_.get(name, "left out") if of else "").ljust(10)
        lines.append(" ".join([f"{name:{width}}", weight, link, *(f"{value:6.2f}" for value in figures)]))
    return "\n".join(lines)
