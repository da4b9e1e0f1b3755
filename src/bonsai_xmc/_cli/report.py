"""Facts about a model as JSON and as a table, and the output of verbs."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.fusion import FusionRanker
from bonsai_xmc._model.label_prior import FEWEST_ROWS
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._modelfile.container import VERSION
from bonsai_xmc._text.blocks import params_to_json
from bonsai_xmc._text.fitted import FittedText

from .parser import OWN

# Parameters without effect on a model without trees.
_OF_TREES = {
    "representation", "given_tree", "n_trees", "branching_factor", "max_leaf_size", "max_depth",
    "split_oversized", "balanced", "bounded", "kmeans_tol", "kmeans_max_iter", "kmeans_init", "node_C",
    "node_prune", "node_bias", "blend_weight",
}  # fmt: skip

# Parameters without effect on a model without trees over rows.
_OF_ROW_TREES = {"n_row_trees", "row_tree_weight"}

# The known parameters of an imported model.
_OF_IMPORTED = ("classifiers", "search", "n_trees", "loss", "normalize", "strict_beam", "reason", "evidence")

_RANKED_BY = {
    ("leaf", "beam"): "leaf classifiers, found by beam search",
    ("one_vs_rest", "exact"): "one-vs-rest classifiers; all labels are scored",
    ("one_vs_rest", "index"): "one-vs-rest classifiers; an index over them finds the candidates",
    ("blend", "exact"): "one-vs-rest classifiers of all labels, and leaf classifiers, found by beam search",
    ("blend", "index"): "one-vs-rest classifiers, found by an index, and leaf ones, found by beam search",
}


def _ranked_by(report: dict[str, Any]) -> str:
    known = _RANKED_BY.get((report["classifiers"], report["search"]), report["system"])
    n_row_trees = report["strategy"].get("n_row_trees", 0)
    return known + f"; {n_row_trees} trees over rows" * bool(n_row_trees)


def describe(path: str, size: int, fitted: FittedModel, prediction: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts about a model and its prediction parameters as JSON values."""
    labels, kept, calibration = fitted.labels, fitted.rows, fitted.calibration
    given, own = prediction["threshold"], labels.thresholds
    chosen = isinstance(given, str)
    return {
        "model": path,
        "format_version": VERSION,
        "bytes": size,
        "rows": fitted.n_rows,
        "features": int(fitted.n_features),
        "labels": len(labels),
        "labels_with_rows": None if fitted.imported else int(np.count_nonzero(labels.counts)),
        "named": labels.named,
        "system": fitted.ranker.kind,
        "members": _members(fitted),
        **_linear(fitted),
        "trees": [
            {"nodes": tree.n_nodes, "leaves": tree.n_leaves, "depth": tree.depth, "labels": tree.n_labels}
            for tree in fitted.trees
        ],
        "texts": _texts(fitted) if fitted.encoded or isinstance(fitted.text, FittedText) else None,
        "calibration": None if calibration is None else calibration.to_arrays()[0],
        "threshold": fitted.threshold if chosen else float(given),
        "threshold_chosen": chosen,
        "label_thresholds": int(np.count_nonzero(own)) if chosen and own is not None else 0,
        "kept_rows": None if kept is None else {"rows": kept.n_rows, "bytes": kept.n_bytes},
        "params": _given(fitted) | dict(prediction),
    }


def _linear(fitted: FittedModel) -> dict[str, Any]:
    """Return the facts about the linear classifiers of a `Bonsai`."""
    ranker = fitted.ranker
    if not isinstance(ranker, LinearRanker):
        return {"classifiers": None, "search": None, "probes": None, "strategy": {}}
    values = asdict(ranker.strategy)
    unused = set() if ranker.strategy.n_trees > 0 else _OF_TREES
    unused = unused if ranker.strategy.n_row_trees > 0 else unused | _OF_ROW_TREES
    names = _OF_IMPORTED if fitted.imported else [name for name in values if name not in unused]
    return {
        "classifiers": ranker.strategy.classifiers,
        "search": ranker.strategy.search,
        "probes": None if ranker.probes is None else asdict(ranker.probes),
        "strategy": {name: values[name] for name in names},
    }


def _members(fitted: FittedModel) -> list[dict[str, Any]]:
    """Return the members of a fusion; an empty list for other models."""
    found = fitted.ranker.members if isinstance(fitted.ranker, FusionRanker) else ()
    return [
        {"name": one.name, "kind": one.model.ranker.kind, "weight": one.weight, "link": one.link}
        for one in found
    ]


def _texts(fitted: FittedModel) -> dict[str, Any]:
    """Return how texts are turned into features, and the number of named labels."""
    text, words, encoded = fitted.text, fitted.words, fitted.encoded
    assert text is not None
    blocks = () if words is None else zip(words.plan.blocks, words.core.block_sizes, strict=True)
    return {
        "fields": list(text.fields),
        "blocks": [{"name": block.name, "features": n, "weight": block.weight} for block, n in blocks],
        "encoder": None if encoded is None else encoded.encoder.identity.to_json(),
        "label_names": sum(map(bool, fitted.labels.names)),
        "source": dict(text.source),
        "lengths": {} if words is None else dict(words.lengths),
        "tuning": {} if words is None else dict(words.tuning),
        "prior": {} if words is None else dict(words.prior),
        "unicode_version": None if words is None else words.unicode_version,
    }


def _given(fitted: FittedModel) -> dict[str, Any]:
    """Return the training parameters as given, for a parameter file."""
    text = fitted.words
    texts = {} if text is None or not text.given else params_to_json(text.given)
    own = {f"{OWN}{name}" if name in texts else name: value for name, value in fitted.given.items()}
    return texts | own


def rows_of(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts of `describe` as rows of a table."""
    texts = report["texts"] or {}
    yield "model", f"{report['model']}, {in_bytes(report['bytes'])}, format {report['format_version']}"
    yield "rows", "unknown" if report["rows"] is None else f"{report['rows']:,}"
    yield "features", f"{report['features']:,}"
    width = max((len(block["name"]) for block in texts.get("blocks", ())), default=0)
    for i, block in enumerate(texts.get("blocks", ())):
        size = f"{block['features']:>9,} features × {block['weight']:g}"
        yield "" if i else "texts", f"{block['name']:<{width}}  {size}"
    if texts.get("lengths"):
        yield "", _why(**texts["lengths"])
    if found := texts.get("encoder"):
        tokens = "" if found["max_tokens"] is None else f", the first {count(found['max_tokens'], 'token')}"
        yield "encoder", f"{found['name']} ({found['kind']}), {found['dimension']:,} dimensions{tokens}"
    known, named = report["labels_with_rows"], texts.get("label_names")
    labels = f"{report['labels']:,}" + ("" if known is None else f", {known:,} of them with rows")
    names = f", {named:,} with a name" if named else ", with names" * (report["named"] and not texts)
    yield "labels", labels + names
    if prior := texts.get("prior"):
        weights = prior["weights"]
        steps = [i for i in range(1, len(weights)) if weights[i] != weights[i - 1]]
        said = [f"× {weights[0]:g} without rows", *(f"{weights[i]:g} from {FEWEST_ROWS[i]}" for i in steps)]
        yield "label texts", ", ".join(said) + " rows on" * bool(steps)
        yield from (("", line) for line in prior["evidence"].splitlines())
    yield "ranked by", _ranked_by(report)
    for member in report["members"]:
        yield "", f"{member['name']}: {member['kind']}, {member['link']} × {member['weight']:.3g}"
    if found := report["probes"]:  # what a search by the index finds, as measured by `fit`
        said = [
            f"{found[f'n_probe_{k}'] or 'all'} blocks find {100 * found[f'recall_{k}']:.2f} % of the {k} best"
            for k in (5, 10)
        ]
        yield "n_probe", f"{', '.join(said)} labels ({found['n_rows']:,} rows)"
    for number, tree in enumerate(report["trees"], 1):
        nodes, leaves = count(tree["nodes"], "node"), count(tree["leaves"], "leaf", "leaves")
        yield f"tree {number}", f"{nodes}, {leaves}, depth {tree['depth']}"
    yield from calibration_of(report["calibration"])
    chosen = "chosen on held-out rows" if report["threshold_chosen"] else "as given"
    own = f"; {count(report['label_thresholds'], 'label')} with thresholds of their own"
    yield "threshold", f"{report['threshold']:.4g}, {chosen}" + own * bool(report["label_thresholds"])
    if kept := report["kept_rows"]:
        yield "kept rows", f"{kept['rows']:,}, {in_bytes(kept['bytes'])}"
    for i, tried in enumerate(texts.get("tuning", {}).get("tried", ())):
        mark = "*" if tried["kept"] else " "
        yield "" if i else "tuning", f"nDCG@5 {tried['nDCG@5']:6.2f} {mark} {tried['settings']}"


def calibration_of(found: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the method of calibration and its effect; nothing without calibration."""
    if found is None:
        return
    maps = "one map for all labels" if found["groups"] is None else "maps for head, torso and tail labels"
    yield "calibrated", f"{found['method']}, {maps}, learnt from {found['n_rows']:,} rows"
    if found["error_after"] is not None:
        before, after = (100 * found[name] for name in ("error_before", "error_after"))
        yield "", f"calibration error of the five best labels: {after:.2f} %, before {before:.2f} %"


def _why(rows: int, fields: list[dict[str, Any]], title: int | None) -> str:
    """Return why a field has n-grams of its own, or why none has."""
    what, measured = "no short field" if len(fields) > 1 else "long texts", fields
    if title is not None:
        name, measured = fields[title]["field"], [fields[title]]
        what = f"n-grams of {name}" if name else "n-grams"
    lengths = [
        f"{field['characters']:,}" + (f" ({field['field']})" if len(measured) > 1 else "")
        for field in measured
    ]
    return f"{what}: 75 % of the texts have up to {', '.join(lengths)} characters (first {rows:,} rows)"


def show(args: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    """Print the result of a verb, as JSON or text; on standard error if the model goes to standard output."""
    out = sys.stderr if args.output == "-" else sys.stdout
    if args.json:
        print(json.dumps(facts, indent=2), file=out)
    elif not args.quiet:
        print(text, file=out)


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Align rows of names and texts."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows)


def in_bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"
