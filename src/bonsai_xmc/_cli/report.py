"""What a model is, in words and numbers; and how a verb says what it has done."""

import argparse
import json
import sys
from collections.abc import Mapping
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

# Says nothing about a model that has no trees.
_OF_TREES = {
    "representation", "given_tree", "n_trees", "branching_factor", "max_leaf_size", "max_depth",
    "split_oversized", "balanced", "bounded", "kmeans_tol", "kmeans_max_iter", "kmeans_init", "node_C",
    "node_prune", "node_bias", "blend_weight",
}  # fmt: skip

# Likewise of trees over rows.
_OF_ROW_TREES = {"n_row_trees", "row_tree_weight"}

# All that is known of a model that was trained elsewhere.
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
    """Return facts about a model with its parameters of prediction, as JSON can hold them."""
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
    """Return what only the linear classifiers of a `Bonsai` have."""
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
    """Return the members of a fusion; none of any other model."""
    found = fitted.ranker.members if isinstance(fitted.ranker, FusionRanker) else ()
    return [
        {"name": one.name, "kind": one.model.ranker.kind, "weight": one.weight, "link": one.link}
        for one in found
    ]


def _texts(fitted: FittedModel) -> dict[str, Any]:
    """Return how texts become features, and labels names."""
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
    """Return the training parameters as they were given, for a parameter file to train again with."""
    text = fitted.words
    texts = {} if text is None or not text.given else params_to_json(text.given)
    own = {f"{OWN}{name}" if name in texts else name: value for name, value in fitted.given.items()}
    return texts | own


def rows_of(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the same as rows of a table."""
    size = f"{report['model']}, {in_bytes(report['bytes'])}"
    labels = f"{report['labels']:,}"
    if report["labels_with_rows"] is not None:
        labels += f", {report['labels_with_rows']:,} of them with rows"
    texts, kept = report["texts"], report["kept_rows"]
    if texts is not None and texts["label_names"]:
        labels += f", {texts['label_names']:,} with a name"
    elif report["named"] and texts is None:
        labels += ", with names"
    chosen = "chosen on held-out rows" if report["threshold_chosen"] else "as given"
    own = f"; {count(report['label_thresholds'], 'label')} with one of their own"
    return [
        ("model", size + f", format {report['format_version']}"),
        ("rows", "unknown" if report["rows"] is None else f"{report['rows']:,}"),
        ("features", f"{report['features']:,}"),
        *_blocks(texts),
        *_encoder(texts),
        ("labels", labels),
        *_label_texts(texts),
        ("ranked by", _ranked_by(report)),
        *(("", f"{m['name']}: {m['kind']}, {m['link']} × {m['weight']:.3g}") for m in report["members"]),
        *_probes(report["probes"]),
        *((f"tree {number}", _size(tree)) for number, tree in enumerate(report["trees"], 1)),
        *calibration_of(report["calibration"]),
        ("threshold", f"{report['threshold']:.4g}, {chosen}" + own * bool(report["label_thresholds"])),
        *([] if kept is None else [("kept rows", f"{kept['rows']:,}, {in_bytes(kept['bytes'])}")]),
    ]


def _probes(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return what a search by an index finds, as `fit` has measured it; nothing if it has not."""
    if found is None:
        return []
    said = [
        f"{found[f'n_probe_{k}'] or 'all'} blocks find {100 * found[f'recall_{k}']:.2f} % of the {k} best"
        for k in (5, 10)
    ]
    return [("n_probe", f"{', '.join(said)} labels ({found['n_rows']:,} rows)")]


def _encoder(texts: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Describe the encoder; nothing if there is none."""
    found = None if texts is None else texts["encoder"]
    if found is None:
        return []
    tokens = "" if found["max_tokens"] is None else f", the first {count(found['max_tokens'], 'token')}"
    return [("encoder", f"{found['name']} ({found['kind']}), {found['dimension']:,} dimensions{tokens}")]


def _label_texts(texts: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Describe the label-text prior; nothing if there is none."""
    prior = {} if texts is None else texts["prior"]
    if not prior:
        return []
    weights = prior["weights"]
    steps = [i for i in range(1, len(weights)) if weights[i] != weights[i - 1]]
    said = [f"× {weights[0]:g} without rows", *(f"{weights[i]:g} from {FEWEST_ROWS[i]}" for i in steps)]
    rows = [("label texts", ", ".join(said) + (" rows on" if steps else ""))]
    return rows + [("", line) for line in prior["evidence"].splitlines()]


def calibration_of(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return how scores were calibrated, and what that brought; nothing if they were not."""
    if found is None:
        return []
    maps = "one map for all labels" if found["groups"] is None else "maps for head, torso and tail labels"
    rows = [("calibrated", f"{found['method']}, {maps}, learnt from {found['n_rows']:,} rows")]
    if found["error_after"] is not None:
        before, after = (100 * found[name] for name in ("error_before", "error_after"))
        rows.append(("", f"calibration error of the five best labels: {after:.2f} %, before {before:.2f} %"))
    return rows


def tuning_of(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a search for weights has tried, a row for each candidate."""
    tried = [] if report["texts"] is None else report["texts"]["tuning"].get("tried", [])
    rows = [f"nDCG@5 {c['nDCG@5']:6.2f} {'*' if c['kept'] else ' '} {c['settings']}" for c in tried]
    return [("tuning" if i == 0 else "", row) for i, row in enumerate(rows)]


def _blocks(texts: dict[str, Any] | None) -> list[tuple[str, str]]:
    blocks = [] if texts is None else texts["blocks"]
    width = max((len(block["name"]) for block in blocks), default=0)
    rows = [
        ("texts" if i == 0 else "", f"{b['name']:<{width}}  {b['features']:>9,} features × {b['weight']:g}")
        for i, b in enumerate(blocks)
    ]
    return rows if texts is None or not texts["lengths"] else [*rows, ("", _why(**texts["lengths"]))]


def _why(rows: int, fields: list[dict[str, Any]], title: int | None) -> str:
    """Why a text has n-grams of its own, or none has."""
    what, measured = "no short field" if len(fields) > 1 else "long texts", fields
    if title is not None:
        name, measured = fields[title]["field"], [fields[title]]
        what = f"n-grams of {name}" if name else "n-grams"
    lengths = [
        f"{field['characters']:,}" + (f" ({field['field']})" if len(measured) > 1 else "")
        for field in measured
    ]
    return f"{what}: three of four have up to {', '.join(lengths)} characters (first {rows:,} rows)"


def _size(tree: dict[str, int]) -> str:
    nodes, leaves = count(tree["nodes"], "node"), count(tree["leaves"], "leaf", "leaves")
    return f"{nodes}, {leaves}, depth {tree['depth']}"


def show(args: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    """Print what a verb has done, as JSON or as text: not where the model itself is written."""
    out = sys.stderr if args.output == "-" else sys.stdout
    if args.json:
        print(json.dumps(facts, indent=2), file=out)
    elif not args.quiet:
        print(text, file=out)


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def table(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows)


def in_bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"
