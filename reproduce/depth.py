"""Experiments on tree depth: accuracy by depth, and true labels that the beam loses level by level."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bonsai_xmc import Bonsai
from bonsai_xmc.metrics import TAIL_ROWS

from . import plots, remarks
from .accuracy import at
from .beam import TreeSearch, early_labels, path_survival, without_early_leaves
from .bench import CUTOFFS, Bench, preset
from .comparisons import Comparisons
from .published import DEPTH, NAMES, STEP_PROBABILITY
from .results import Experiment, Result, Table, plural, printed, published_table, spread, title_of
from .statistics import mean_and_sd

DEPTHS = (2, 3, 4, 5, 6)
_MANY_LABELS = 100_000  # from here on two levels would be too wide; the paper starts with three
BEAMS = (1, 2, 5, 10)
ROWS_COUNTED = 200  # test rows in which evaluated classifiers are counted
ROWS_FOLLOWED = 1000  # test rows whose paths are followed
_SAME_CURVE = 0.05  # points; curves closer than this cannot be told apart in the figure

#: The curves: their keys in a unit of work, and their titles.
CURVES = {name: curve.title for name, curve in plots.DEPTH_CURVES.items()}
_FOREST_CURVES = ("metrics", "equal", "dropped")


def branching_for(depth: int, n_labels: int) -> int:
    """Return the smallest branching factor K with K^depth ≥ n_labels; 64 for 4,000 labels and depth 2.

    >>> branching_for(2, 4000), branching_for(3, 8), branching_for(6, 4108)
    (64, 2, 5)
    """
    k = max(2, math.ceil(n_labels ** (1 / depth)))
    # A root in floating point may be slightly too large.
    return k - 1 if k > 2 and (k - 1) ** depth >= n_labels else k


def depth(bench: Bench) -> Result:
    """Run the experiment of Figure 5."""
    n_labels = int(np.count_nonzero(bench.source.data.Y_train.sum(axis=0)))
    depths = [d for d in DEPTHS if (d > 2 or n_labels < _MANY_LABELS) and 2 ** (d - 1) < n_labels]
    runs: dict[int, list[dict[str, Any]]] = {d: [] for d in depths}
    for seed in range(bench.seeds):
        target = None
        for d in depths:
            factor = branching_for(d, n_labels)
            model = Bonsai(classifiers="leaf", branching_factor=factor, max_depth=d, random_state=seed)
            # The shallowest tree sets how many classifiers the others may evaluate.
            run = bench.unit(
                "depth",
                f"depth {d}",
                model,
                seed,
                partial(_measured, bench, target),
                target=target,
                rows=ROWS_COUNTED,
            )
            target = run["evaluated"] if target is None else target
            single = Bonsai(**model.get_params(deep=False) | {"n_trees": 1, "beam_size": 10})
            one = bench.unit("one tree", f"depth {d}, one tree", single, seed, partial(_one_tree, bench))
            runs[d].append({**run, **one})
    paper = bench.source.reference
    if not runs:
        return Result([], [], remarks=["The data have too few labels for a tree of two levels."])
    compared = _depth_comparisons(runs)
    return Result(
        [
            {
                "depth": d,
                "seed": seed,
                "K": run["branching_factor"],
                "curve": curve,
                "beam": run["beam"] if curve == "equal" else 10,
            }
            | {key: run[curve][key] for key in at("P", "nDCG", "PSP")}
            for d, of in runs.items()
            for seed, run in enumerate(of)
            for curve in CURVES
        ],
        [*(_curve_table(runs, curve, paper) for curve in _FOREST_CURVES), _one_tree_table(runs)],
        _depth_findings(runs, compared),
        f"{bench.source.note} Three trees (unless it says one), label vectors from the input space, K the "
        f"smallest branching factor with K^depth ≥ number of labels, {plural(bench.seeds, 'seed')}. Depth "
        "counts the levels of nodes that have classifiers, including the root, as in the paper's example "
        "(K = 64 for 4,000 labels and depth two). Classifiers per row are those of the first tree, over "
        f"{ROWS_COUNTED} test rows. An early leaf lies above the last level. The original implementation "
        "loses the labels of early leaves; the curves “early leaves dropped” reproduce that. In a forest "
        f"another tree may still find them. {compared.note}",
        lambda: plots.depth_curves(runs, DEPTH, paper),
        f"P@k and nDCG@k against tree depth on {bench.source.name}, with the paper's curves",
        remarks=_depth_remarks(runs),
        comparisons=compared.records(),
    )


def _depth_comparisons(runs: dict[int, list[dict[str, Any]]]) -> Comparisons:
    """Compare the deepest tree with the shallowest one, for each curve."""
    names = {f"{title}, depth {d}": (curve, d) for curve, title in CURVES.items() for d in runs}

    def values(name: str, metric: str) -> list[float]:
        curve, d = names[name]
        return [run[curve][metric] for run in runs[d]]

    shallow, deep = min(runs), max(runs)
    pairs = [(f"{title}, depth {deep}", f"{title}, depth {shallow}") for title in CURVES.values()]
    return Comparisons(values, pairs if deep > shallow else [], ["P@1", "P@5", "PSP@5"])


def _depth_remarks(runs: dict[int, list[dict[str, Any]]]) -> list[str]:
    if len(runs) == 1:
        return ["The data have too few labels for more than one depth."]
    curves = {
        title: [mean_and_sd([run[curve][key] for run in of])[0] for of in runs.values() for key in at("P")]
        for curve, title in CURVES.items()
    }
    return remarks.coinciding(curves, _SAME_CURVE)


def _with_and_without(bench: Bench, model: Bonsai) -> tuple[dict[str, float], dict[str, float]]:
    """Return metrics of the predictions, and with the labels of early leaves dropped."""
    X = bench.source.data.X_test
    metrics = bench.evaluate(model.top_k(X, max(CUTOFFS))[0])
    ids, scores = without_early_leaves(model).top_k(X, max(CUTOFFS))
    return metrics, bench.evaluate(np.where(scores > 0, ids, -1))


def _one_tree(bench: Bench, model: Bonsai) -> dict[str, Any]:
    bench.fit(model)
    metrics, dropped = _with_and_without(bench, model)
    return {"single": metrics, "single dropped": dropped}


def _measured(bench: Bench, target: float | None, model: Bonsai) -> dict[str, Any]:
    X = bench.source.data.X_test
    bench.fit(model)
    metrics, dropped = _with_and_without(bench, model)
    search = TreeSearch(model, X[bench.sample(ROWS_COUNTED)])
    beam = 10 if model.beam_size == "auto" else int(model.beam_size or 0)
    evaluated = search.run(beam).evaluated
    equal, equal_beam = metrics, beam
    if target is not None:
        equal_beam = search.beam_for(target)
        model.beam_size = equal_beam
        equal = bench.evaluate(model.top_k(X, max(CUTOFFS))[0])
    trees = model.trees_
    early = [len(early_labels(tree, model.strategy_.max_depth)) / tree.n_labels for tree in trees]
    return {
        "branching_factor": model.branching_factor,
        "metrics": metrics,
        "equal": equal,
        "dropped": dropped,
        "beam": equal_beam,
        "evaluated": evaluated,
        "equal_evaluated": search.run(equal_beam).evaluated,
        "depths": [tree.depth for tree in trees],
        "early": float(np.mean(early)),
    }


def _curve_table(runs: dict[int, list[dict[str, Any]]], curve: str, paper: str | None) -> Table:
    keys = [*at("P"), "nDCG@3", "nDCG@5", "PSP@5"]
    published = DEPTH.get(paper or "", {})
    extra = {
        "metrics": ("labels in early leaves %", lambda run: 100 * run["early"]),
        "equal": ("beam", lambda run: run["beam"]),
        "dropped": ("labels in early leaves %", lambda run: 100 * run["early"]),
    }[curve]
    columns = ["depth", "K", "levels reached", extra[0], "classifiers per row", *keys]
    columns += [f"{key}, {NAMES[paper or '']} †" for key in at("P")] if published else []
    rows = []
    for d, of in runs.items():
        count = "equal_evaluated" if curve == "equal" else "evaluated"
        reached = sorted({level for run in of for level in run["depths"]})
        row = [
            str(d),
            str(of[0]["branching_factor"]),
            ", ".join(map(str, reached)),
            spread([extra[1](run) for run in of], 1),
        ]
        row += [spread([run[count] for run in of], 0)]
        row += [spread([run[curve][key] for run in of]) for key in keys]
        row += [printed(v) for v in published[d][0]] if d in published else ["–"] * 3 * bool(published)
        rows.append(row)
    return Table(CURVES[curve].capitalize(), columns, rows)


def _one_tree_table(runs: dict[int, list[dict[str, Any]]]) -> Table:
    keys = [*at("P"), "PSP@5"]
    columns = ["depth", "labels in early leaves %", *keys, *(f"{key} without early leaves" for key in keys)]
    rows = [
        [
            str(d),
            spread([100 * run["early"] for run in of], 1),
            *(
                spread([run[curve][key] for run in of])
                for curve in ("single", "single dropped")
                for key in keys
            ),
        ]
        for d, of in runs.items()
    ]
    return Table("One tree", columns, rows)


def _depth_findings(runs: dict[int, list[dict[str, Any]]], compared: Comparisons) -> list[str]:
    shallow, deep = min(runs), max(runs)
    return [
        f"{title.capitalize()}: from depth {shallow} to {deep}, "
        + ", ".join(f"{metric} {compared[a, b, metric].text}" for metric in compared.metrics)
        + "."
        for (a, b), title in zip(compared.pairs, CURVES.values(), strict=False)
    ]


def propagation(bench: Bench) -> Result:
    """Run the experiment of Section 2.4."""
    systems = {name: preset(name, n_trees=1) for name in ("bonsai-i", "parabel")}
    runs = {
        name: [
            bench.unit(
                "propagation", name, factory(seed), seed, lambda m: _survival(bench, m), rows=ROWS_FOLLOWED
            )
            for seed in range(bench.seeds)
        ]
        for name, factory in systems.items()
    }
    numbers = [
        {"system": name, "seed": seed, "beam": beam, "labels": group, "step": step + 1, "survived": share}
        for name, of in runs.items()
        for seed, run in enumerate(of)
        for beam in BEAMS
        for group in ("all", "tail")
        for step, share in enumerate(run[f"beam {beam}"][group])
    ]
    rows = []
    for name, of in runs.items():
        steps = max(run["steps"] for run in of)
        for beam in BEAMS:
            last = [
                [run[f"beam {beam}"][group][-1] for run in of if run[f"beam {beam}"][group]]
                for group in ("all", "tail")
            ]
            each = [share ** (1 / run["steps"]) for share, run in zip(last[0], of, strict=False)]
            rows.append(
                [
                    title_of(name),
                    str(beam),
                    str(steps),
                    *(spread([100 * s for s in of_group]) for of_group in last),
                    spread(each, 4),
                    f"{100 * STEP_PROBABILITY**steps:.1f}",
                ]
            )
    columns = [
        "",
        "beam",
        "steps",
        "survived %",
        "tail labels survived %",
        "mean per step",
        f"{STEP_PROBABILITY}^steps, % †",
    ]
    pairs = spread([float(run["pairs"]) for of in runs.values() for run in of], 0)
    return Result(
        numbers,
        [
            Table(
                "Share of true labels whose path stays in the beam down to the leaf",
                columns,
                rows,
                "Mean per step: the geometric mean over the steps of a path.",
            )
        ],
        [_survival_finding(runs, beam) for beam in (10, 1)],
        f"{bench.source.note} One tree, {plural(bench.seeds, 'seed')}, up to {ROWS_FOLLOWED:,} test rows "
        f"with {pairs} (row, true label) pairs. A step is one level down the tree; a label survives it if "
        f"the node on its path is in the beam. Tail labels have fewer than {TAIL_ROWS} training rows.",
        lambda: plots.survival(runs, STEP_PROBABILITY),
        f"Share of true labels whose path is still in the beam, by level, on {bench.source.name}",
        remarks=_survival_remarks(bench, runs),
    )


def _survival_remarks(bench: Bench, runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    if not any(run["steps"] for of in runs.values() for run in of):
        return remarks.single_leaf(bench.source.data)
    curves = {
        f"{title_of(name)}, beam {beam}": [100 * mean_and_sd(step)[0] for step in zip(*of, strict=False)]
        for name, all_runs in runs.items()
        for beam in plots.SURVIVAL_BEAMS
        if all(of := [run[f"beam {beam}"]["all"] for run in all_runs])
    }
    tail_pairs = min(run["tail_pairs"] for of in runs.values() for run in of)
    return remarks.no_tail(bench.source.data, tail_pairs) + remarks.coinciding(curves, 10 * _SAME_CURVE)


def _survival(bench: Bench, model: Bonsai) -> dict[str, Any]:
    data = bench.source.data
    bench.fit(model)
    rows = bench.sample(ROWS_FOLLOWED)
    search = TreeSearch(model, data.X_test[rows])
    counts = remarks.label_counts(data)
    result: dict[str, Any] = {"steps": search.tree.depth - 1}
    for beam in BEAMS:
        survived, labels = path_survival(search.tree, search.run(beam).kept, data.Y_test[rows])
        tail = counts[labels] < TAIL_ROWS
        result[f"beam {beam}"] = {
            "all": survived.mean(axis=0).tolist() if len(survived) else [],
            "tail": survived[tail].mean(axis=0).tolist() if tail.any() else [],
        }
        result["pairs"], result["tail_pairs"] = len(labels), int(tail.sum())
    return result


def _survival_finding(runs: dict[str, list[dict[str, Any]]], beam: int) -> str:
    def last(name: str, group: str) -> str:
        shares: Sequence[float] = [
            run[f"beam {beam}"][group][-1] for run in runs[name] if run[f"beam {beam}"][group]
        ]
        return f"{100 * mean_and_sd(shares)[0]:.1f} %" if shares else "–"

    parts = [f"{title_of(n)} {last(n, 'all')} (tail {last(n, 'tail')})" for n in runs]
    return f"Paths that reach their leaf with a beam of {beam}: {', '.join(parts)}."


def _published_depth() -> list[Table]:
    rows = [[NAMES[data], d, *p, *ndcg] for data, curve in DEPTH.items() for d, (p, ndcg) in curve.items()]
    return [published_table("Figure 5", ["", "depth", *at("P", "nDCG")], rows, "Averages over ten runs.")]


EXPERIMENTS = {
    "depth": Experiment(
        "Tree depth",
        "Figure 5",
        "Accuracy decreases with depth: slightly at first, by ten points on EURLex at depth 5 and by eight "
        "on WikiLSHTC-325K at depth 6.",
        depth,
        _published_depth,
    ),
    "propagation": Experiment(
        "Error propagation",
        "section 2.4",
        "If each step is correct with probability 0.95, a path of sixteen steps in a binary tree is correct "
        "with probability 0.46. Shallow trees have few steps.",
        propagation,
    ),
}
