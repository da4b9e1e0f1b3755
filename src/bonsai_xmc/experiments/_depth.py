"""Experiments that look into trees: accuracy by depth, and what the beam loses on the way down."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bonsai_xmc import Bonsai

from . import _beam, _plots
from ._accuracy import at
from ._bench import CUTOFFS, Bench, preset
from ._published import DEPTH, NAMES, STEP_PROBABILITY
from ._results import Experiment, Result, Table, p_text, printed, published_table, signed, spread, title_of
from ._statistics import mean_and_sd, paired_t_test

DEPTHS = (2, 3, 4, 5, 6)
_MANY_LABELS = 100_000  # from here on two levels would be far too wide, and the paper begins with three
BEAMS = (1, 2, 5, 10)
ROWS_COUNTED = 200  # whose classifiers are counted
ROWS_FOLLOWED = 1000  # whose paths are followed

#: The ways to read the curve: what a unit calls them, and what a person does.
CURVES = {
    "metrics": "equal beam (10)",
    "equal": "equal number of classifiers",
    "dropped": "equal beam, labels of early leaves dropped",
    "single": "one tree, equal beam",
    "single dropped": "one tree, labels of early leaves dropped",
}
_FOREST_CURVES = ("metrics", "equal", "dropped")


def branching_for(depth: int, n_labels: int) -> int:
    """The smallest K for which K^depth labels have room; 64 for 4,000 labels and depth 2.

    >>> branching_for(2, 4000), branching_for(3, 8), branching_for(6, 4108)
    (64, 2, 5)
    """
    k = max(2, math.ceil(n_labels ** (1 / depth)))
    return k - 1 if k > 2 and (k - 1) ** depth >= n_labels else k  # the root may come out a hair too large


def depth(bench: Bench) -> Result:
    """Figure 5."""
    n_labels = int(np.count_nonzero(bench.source.data.Y_train.sum(axis=0)))
    depths = [d for d in DEPTHS if (d > 2 or n_labels < _MANY_LABELS) and 2 ** (d - 1) < n_labels]
    runs: dict[int, list[dict[str, Any]]] = {d: [] for d in depths}
    for seed in range(bench.seeds):
        target = None
        for d in depths:
            model = Bonsai(branching=branching_for(d, n_labels), max_depth=d, random_state=seed)
            # The shallowest tree sets how many classifiers the others may look at.
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
            single = Bonsai(**model.get_params(deep=False) | {"n_trees": 1, "beam": 10})
            one = bench.unit("one tree", f"depth {d}, one tree", single, seed, partial(_one_tree, bench))
            runs[d].append({**run, **one})
    paper = bench.source.beside
    return Result(
        [
            {
                "depth": d,
                "seed": seed,
                "K": run["branching"],
                "curve": curve,
                "beam": run["beam"] if curve == "equal" else 10,
            }
            | {key: run[curve][key] for key in at("P", "nDCG", "PSP")}
            for d, of in runs.items()
            for seed, run in enumerate(of)
            for curve in CURVES
        ],
        [*(_curve_table(runs, curve, paper) for curve in _FOREST_CURVES), _one_tree_table(runs)],
        _depth_findings(runs),
        f"{bench.source.note} Three trees, labels by their rows, K the smallest number whose power of the "
        f"depth has room for all labels, {bench.seeds} seed(s). Depth counts levels of nodes with "
        "classifiers, the root being one, as the paper's example of K = 64 for 4,000 labels and depth two "
        "does; leaves of 100 K labels or more are split beyond it. Classifiers are counted in the first "
        f"tree, over {ROWS_COUNTED} test rows. An early leaf ends above that depth; the original "
        "implementation loses its labels, and the curves without them imitate that. In a forest another "
        "tree may still find them, in one tree none.",
        lambda: _plots.depth_curves(runs, DEPTH, paper),
        f"P@k and nDCG@k against tree depth on {bench.source.name}, the paper's curves beside",
    )


def _with_and_without(bench: Bench, model: Bonsai) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics as predicted, and with the labels of early leaves dropped."""
    X = bench.source.data.X_test
    metrics = bench.evaluate(model.top_k(X, max(CUTOFFS))[0])
    ids, scores = _beam.without_early_leaves(model).top_k(X, max(CUTOFFS))
    return metrics, bench.evaluate(np.where(scores > 0, ids, -1))


def _one_tree(bench: Bench, model: Bonsai) -> dict[str, Any]:
    bench.fit(model)
    metrics, dropped = _with_and_without(bench, model)
    return {"single": metrics, "single dropped": dropped}


def _measured(bench: Bench, target: float | None, model: Bonsai) -> dict[str, Any]:
    X = bench.source.data.X_test
    bench.fit(model)
    metrics, dropped = _with_and_without(bench, model)
    search = _beam.TreeSearch(model, X[bench.sample(ROWS_COUNTED)])
    beam = int(model.beam or 0)
    evaluated = search.run(beam).evaluated
    equal, equal_beam = metrics, beam
    if target is not None:
        equal_beam = search.beam_for(target)
        model.beam = equal_beam
        equal = bench.evaluate(model.top_k(X, max(CUTOFFS))[0])
    trees = model.trees_
    early = [len(_beam.early_labels(tree, model.max_depth)) / tree.n_labels for tree in trees]
    return {
        "branching": model.branching,
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
        "metrics": ("labels in early leaves, %", lambda run: 100 * run["early"]),
        "equal": ("beam", lambda run: run["beam"]),
        "dropped": ("labels in early leaves, %", lambda run: 100 * run["early"]),
    }[curve]
    columns = ["depth", "K", "levels reached", extra[0], "classifiers a row", *keys]
    columns += [f"{key}, {NAMES[paper or '']} †" for key in at("P")] if published else []
    rows = []
    for d, of in runs.items():
        count = "equal_evaluated" if curve == "equal" else "evaluated"
        reached = sorted({level for run in of for level in run["depths"]})
        row = [
            str(d),
            str(of[0]["branching"]),
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
    columns = ["depth", "labels in early leaves, %", *keys, *(f"{key}, early leaves dropped" for key in keys)]
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


def _depth_findings(runs: dict[int, list[dict[str, Any]]]) -> list[str]:
    shallow, deep = min(runs), max(runs)
    if shallow == deep:
        return ["The data have too few labels for more than one depth."]
    found = []
    for curve, title in CURVES.items():
        parts = []
        for key in ("P@1", "P@5", "PSP@5"):
            pair = [[run[curve][key] for run in runs[d]] for d in (deep, shallow)]
            change, p = paired_t_test(*pair)
            parts.append(f"{key} {signed(change)} ({p_text(p)})")
        found.append(f"{title.capitalize()}: from depth {shallow} to {deep}, {', '.join(parts)}.")
    return found


def propagation(bench: Bench) -> Result:
    """Section 2.4."""
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
        "survived, %",
        "survived, tail labels, %",
        "mean of a step",
        f"{STEP_PROBABILITY}^steps, % †",
    ]
    pairs = spread([float(run["pairs"]) for of in runs.values() for run in of], 0)
    return Result(
        numbers,
        [
            Table(
                "Share of true labels whose whole path survives",
                columns,
                rows,
                "Mean of a step: the geometric mean over the steps of a path.",
            )
        ],
        [_survival_finding(runs, beam) for beam in (10, 1)],
        f"{bench.source.note} One tree, {bench.seeds} seed(s), {ROWS_FOLLOWED} test rows at most, {pairs} "
        "pairs of row and true label for each. A step is one level down; a label survives it while the "
        "node above it is in the beam. Tail labels have fewer than 5 training rows.",
        lambda: _plots.survival(runs, STEP_PROBABILITY),
        f"Share of true labels whose path is still in the beam, by level, on {bench.source.name}",
    )


def _survival(bench: Bench, model: Bonsai) -> dict[str, Any]:
    data = bench.source.data
    bench.fit(model)
    rows = bench.sample(ROWS_FOLLOWED)
    search = _beam.TreeSearch(model, data.X_test[rows])
    counts = np.asarray(data.Y_train.sum(axis=0)).ravel()
    result: dict[str, Any] = {"steps": search.tree.depth - 1}
    for beam in BEAMS:
        survived, labels = _beam.path_survival(search.tree, search.run(beam).kept, data.Y_test[rows])
        tail = counts[labels] < 5
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
    return f"With a beam of {beam}, the paths that reach their leaf: {', '.join(parts)}."


def _published_depth() -> list[Table]:
    rows = [[NAMES[data], d, *p, *ndcg] for data, curve in DEPTH.items() for d, (p, ndcg) in curve.items()]
    return [published_table("Figure 5", ["", "depth", *at("P", "nDCG")], rows, "Averages over ten runs.")]


EXPERIMENTS = {
    "depth": Experiment(
        "Tree depth",
        "Figure 5",
        "The deeper the trees, the lower the accuracy: a little at first, by ten points on EURLex at depth "
        "5 and by eight on WikiLSHTC-325K at depth 6.",
        depth,
        _published_depth,
    ),
    "propagation": Experiment(
        "Errors on the way down",
        "section 2.4",
        "If each step is right with probability 0.95, sixteen steps of a binary tree leave 0.46; a shallow "
        "tree has few steps.",
        propagation,
    ),
}
