"""Experiments on the data and on the label trees: statistics, power law, partitions."""

from typing import Any

import numpy as np

from bonsai_xmc import Bonsai, LabelTree
from bonsai_xmc.metrics import TAIL_ROWS

from . import circles, plots, remarks
from .bench import Bench
from .repository import PAPER
from .repository import statistics as statistics_of
from .results import PUBLISHED, Experiment, Result, Table, published_table
from .statistics import fit_power_law

_FIGURES = {
    "n_rows": "training rows",
    "n_test": "test rows",
    "n_labels": "labels",
    "n_features": "features",
    "rows_per_label": "rows per label, train",
    "labels_per_row": "labels per row, train",
    "rows_per_label_all": "rows per label, train and test",
    "labels_per_row_all": "labels per row, train and test",
}


def statistics(bench: Bench) -> Result:
    """Run the experiment of Table 1."""
    source = bench.source
    found = statistics_of(source.data)
    used = int(np.count_nonzero(source.data.Y_train.sum(axis=0)))
    ours = {**{_FIGURES[name]: value for name, value in found._asdict().items()}, "labels with rows": used}
    rows = [[name, _figure(value)] for name, value in ours.items()]
    columns, findings = ["", source.name], []
    if source.paper:
        about = PAPER[source.paper]
        columns.append(f"Table 1, {about.title} {PUBLISHED}")
        averages = ("rows_per_label", "labels_per_row")
        # Table 1 counts either the training rows or all rows.
        printed = {_FIGURES[name + "_all" * about.counts_test]: getattr(about, name) for name in averages}
        printed |= {_FIGURES[name]: getattr(about, name) for name in _FIGURES if name.startswith("n_")}
        for row in rows:
            row.append(_figure(printed[row[0]]) if row[0] in printed else "–")
        differences = about.differences(found)
        if not source.generated:
            findings.append(
                f"Not the data of Table 1: {'; '.join(differences)}." if differences else "As in Table 1."
            )
    return Result([ours], [Table("Statistics", columns, rows)], findings, source.note)


def _figure(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def powerlaw(bench: Bench) -> Result:
    """Run the experiment of Figure 1 and equation 1."""
    counts = remarks.label_counts(bench.source.data)
    used = np.sort(counts[counts > 0])[::-1]
    law = fit_power_law(counts)
    rare, more = float(np.mean(used < TAIL_ROWS)), int(np.count_nonzero(used > TAIL_ROWS))
    numbers: dict[str, Any] = {
        "beta": law.exponent,
        "N_1": int(used[0]),
        "fitted N_1": law.scale,
        "R squared": law.r_squared,
        "labels with rows": len(used),
        "share with fewer than 5 rows": rare,
        "labels with more than 5 rows": more,
    }
    rows = [[name, f"{v:,.3f}" if isinstance(v, float) else f"{v:,}"] for name, v in numbers.items()]
    return Result(
        [numbers],
        [Table("Power law of label frequencies", ["", bench.source.name], rows)],
        [
            f"β = {law.exponent:.2f} (R² = {law.r_squared:.2f}); {100 * rare:.1f} % of the {len(used):,} "
            f"labels with training rows have fewer than 5, {more:,} have more than 5."
        ],
        f"{bench.source.note} Training rows of each label, by rank. The line is a least-squares fit of log "
        "N_r on log r; each decade of ranks has the same weight.",
        lambda: plots.power_law(used, law),
        f"Label frequency against rank on {bench.source.name}, log-log, with the fitted power law",
        remarks=remarks.no_tail(bench.source.data) + remarks.poor_fit(law.r_squared),
        seeds="",
    )


#: Figure 3 counts splits: two with K = 16, six with K = 2. A tree has one more level of nodes.
PARTITIONS: dict[str, dict[str, Any]] = {
    "Bonsai": {"branching_factor": 16, "max_depth": 3},
    "Parabel": {"branching_factor": 2, "balance": "equal", "max_leaf_size": 100, "max_depth": 7},
}


def partition(bench: Bench) -> Result:
    """Run the experiment of Figure 3."""
    names = bench.source.data.label_names
    counts = remarks.label_counts(bench.source.data)
    trees: dict[str, LabelTree] = {}
    for name, params in PARTITIONS.items():
        model = Bonsai(classifiers="leaf", n_trees=1, random_state=0, **params)
        arrays = bench.unit("tree", name, model, 0, lambda m: _tree_arrays(bench, m))
        tree = LabelTree(arrays["child_ptr"], arrays["children"], arrays["is_leaf"], names)
        trees[f"{name}: K = {model.branching_factor}, depth {tree.depth - 1}"] = tree
    known = names or [f"label {label}" for label in range(len(counts))]
    numbers = [
        {"tree": title, "node": node.id, "level": node.level, "labels": node.size, "leaf": node.is_leaf}
        for title, tree in trees.items()
        for node in tree.nodes
    ]
    rows = []
    for title, tree in trees.items():
        for level in range(2, tree.depth + 1):
            sizes = tree.sizes[tree.levels == level]
            rows.append(
                [
                    title,
                    str(level - 1),
                    f"{len(sizes):,}",
                    f"{sizes.min():,}",
                    f"{np.median(sizes):,.0f}",
                    f"{sizes.max():,}",
                    f"{sizes.std() / sizes.mean():.2f}",
                ]
            )
    columns = ["", "splits", "nodes", "smallest", "median", "largest", "sd ÷ mean"]
    return Result(
        numbers,
        [Table("Labels per node", columns, rows)] if rows else [],
        [],
        f"{bench.source.note} Seed 0. The area of a circle is its number of labels; darker circles are "
        "deeper. Depth counts splits, 2 and 6 as in the paper. The interactive page zooms, shows label "
        "names and searches them.",
        lambda: plots.partitions(trees),
        f"Nested circles of the label trees of Bonsai and Parabel on {bench.source.name}",
        {"html": circles.page(trees, known, counts, title=f"Label trees of {bench.source.name}")},
        remarks=[] if rows else ["The labels fit into one leaf. There is no partition to show."],
        seeds="seed 0",
    )


def _tree_arrays(bench: Bench, model: Bonsai) -> dict[str, Any]:
    bench.fit(model)
    return {name: array.tolist() for name, array in model.trees_[0].arrays.items()}


def _published_statistics() -> list[Table]:
    figures = ("n_rows", "n_test", "n_labels", "n_features", "rows_per_label", "labels_per_row")
    rows = [[about.title, *(_figure(getattr(about, name)) for name in figures)] for about in PAPER.values()]
    columns = ["", "training rows", "test rows", "labels", "features", "rows per label", "labels per row"]
    note = (
        "The last two count train and test for "
        + ", ".join(about.title for about in PAPER.values() if about.counts_test)
        + "; train only for the others."
    )
    return [published_table("Table 1", columns, rows, note)]


def _published_powerlaw() -> list[Table]:
    rows = [["WikiLSHTC-325K", "more than half", "~150,000 of 325,000"]]
    return [
        published_table(
            "Figure 1", ["", "labels with fewer than 5 rows", "labels with more than 5 rows"], rows
        )
    ]


EXPERIMENTS = {
    "datasets": Experiment(
        "Data sets",
        "Table 1",
        "Six public data sets with 4,000 to 2.8 million labels.",
        statistics,
        _published_statistics,
    ),
    "powerlaw": Experiment(
        "Label frequencies",
        "Figure 1, equation 1",
        "N_r = N_1 r^−β: a few labels have most of the rows, and more than half of the labels of "
        "WikiLSHTC-325K have fewer than 5.",
        powerlaw,
        _published_powerlaw,
    ),
    "partition": Experiment(
        "Partitions of the labels",
        "Figure 3",
        "Bonsai's partitions differ in size, Parabel's are perfectly balanced.",
        partition,
    ),
}
