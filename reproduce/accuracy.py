"""Experiments that compare the accuracy of systems: precision, tail, coverage, output space, balance."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Self
from unittest.mock import patch

from bonsai_xmc import Bonsai
from bonsai_xmc._selection import strategy

from . import plots, remarks
from .bench import CUTOFFS, Bench, Factory, paper_depth, preset
from .comparisons import Comparisons
from .published import COVERAGE, NAMES, OUTPUT_SPACE, PRECISION, TAIL, precision_of, tail_of
from .results import (
    Experiment,
    Result,
    Table,
    flat,
    measured_table,
    plural,
    published_table,
    spread,
    title_of,
)
from .statistics import mean_and_sd

Runs = dict[str, list[dict[str, Any]]]


def at(*names: str) -> list[str]:
    """Return the names of metrics at all cutoffs."""
    return [f"{name}@{k}" for name in names for k in CUTOFFS]


def values(runs: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return a metric of all runs."""
    return [run["metrics"][key] for run in runs]


def all_pairs(runs: Runs, metrics: Sequence[str]) -> Comparisons:
    """Return the pairs of each system with each other one."""
    return _comparisons(runs, list(combinations(runs, 2)), metrics)


def _comparisons(
    runs: Runs, pairs: Sequence[tuple[str, str]], metrics: Sequence[str], tested_elsewhere: str = ""
) -> Comparisons:
    """Return the comparisons of those pairs of which both systems were run."""
    present = [(a, b) for a, b in pairs if a in runs and b in runs]
    return Comparisons(lambda name, key: values(runs[name], key), present, metrics, tested_elsewhere)


def _measured(bench: Bench, systems: Mapping[str, Factory]) -> Runs:
    return {name: bench.measure(name, factory) for name, factory in systems.items()}


def seeds_text(bench: Bench) -> str:
    """Return the beginning of a caption: the data, and what the numbers are."""
    return f"{bench.source.note} Mean ± standard deviation over {plural(bench.seeds, 'seed')}"


def _lines(runs: Runs, keys: Sequence[str]) -> list[dict[str, Any]]:
    return [line for name, of_system in runs.items() for line in flat(name, of_system, keys)]


def precision(bench: Bench) -> Result:
    """Run the experiment of Table 2."""
    runs, keys, paper = _measured(bench, bench.systems), at("P"), bench.source.reference
    best = {key: max(runs, key=lambda name: mean_and_sd(values(runs[name], key))[0]) for key in keys}
    compared = all_pairs(runs, keys)
    named = [("bonsai-i", "parabel"), ("bonsai-i", "bonsai-io"), ("bonsai-i", "dismec")]
    return Result(
        _lines(runs, at("P", "nDCG")),
        [
            measured_table("P@k in percent", runs, keys, paper, precision_of(paper)),
            compared.table(),
        ],
        [
            "Best: " + ", ".join(f"{title_of(best[key])} in {key}" for key in keys) + ".",
            *(compared.sentence(a, b, ["P@1", "P@5"]) for a, b in named if a in runs and b in runs),
        ],
        seeds_text(bench) + "; DiSMEC, ProXML and PPD-Sparse have nothing random and are run once.",
        lambda: plots.dots(runs, [at("P")]),
        f"Dots of P@1, P@3 and P@5 of {', '.join(map(title_of, runs))} on {bench.source.name}",
        remarks=remarks.single_leaf(bench.source.data) + remarks.equal_systems(runs, keys),
        comparisons=compared.records(),
    )


def tail(bench: Bench) -> Result:
    """Run the experiment of Figure 4."""
    runs, keys, paper = _measured(bench, bench.systems), at("PSP", "PSnDCG"), bench.source.reference
    published = tail_of(paper)
    A, B = bench.source.propensity
    compared = all_pairs(runs, at("PSP"))
    by_group = Table(
        "Recall at 5 by label frequency",
        ["", "head", "torso", "tail (fewer than 5 rows)"],
        [
            [
                title_of(name),
                *(
                    spread([r["metrics"][f"R@5 {group}"] for r in of if f"R@5 {group}" in r["metrics"]])
                    for group in ("head", "torso", "tail")
                ),
            ]
            for name, of in runs.items()
        ],
        "Share of a row's true labels of the group that are among its top five. Head: the most frequent "
        "labels, which make up half of all occurrences.",
    )
    return Result(
        _lines(runs, [*keys, *at("R")]),
        [
            measured_table(
                "Propensity-scored metrics in percent",
                runs,
                at("PSP"),
                paper,
                {n: v[:3] for n, v in published.items()},
            ),
            measured_table("", runs, at("PSnDCG"), paper, {n: v[3:] for n, v in published.items() if v[3:]}),
            by_group,
            compared.table(),
        ],
        [
            compared.sentence(a, b, ["PSP@1", "PSP@5"])
            for a, b in (("bonsai-i", "parabel"), ("bonsai-i", "dismec"))
            if a in runs and b in runs
        ],
        f"{seeds_text(bench)}. Propensities with A = {A}, B = {B}.",
        lambda: plots.dots(runs, [at("PSP"), at("PSnDCG")]),
        f"Dots of PSP and PSnDCG at 1, 3 and 5 on {bench.source.name}",
        remarks=remarks.no_tail(bench.source.data) + remarks.equal_systems(runs, keys),
        comparisons=compared.records(),
    )


def coverage(bench: Bench) -> Result:
    """Run the experiment of Table 3."""
    runs, paper, keys = _measured(bench, bench.systems), bench.source.reference, at("C", "CC")
    compared = _comparisons(runs, [("bonsai-i", "parabel")], keys)
    return Result(
        _lines(runs, keys),
        [
            measured_table("C@k in percent", runs, at("C"), paper, COVERAGE.get(paper or "")),
            measured_table(
                "Correct coverage (CC@k) in percent",
                runs,
                at("CC"),
                note="C@k counts wrong labels too, so that guessing rare labels at random raises it. CC@k "
                "counts the labels that are predicted correctly for at least one test row, in its top k.",
            ),
            *([compared.table("Differences")] if compared.pairs else []),
        ],
        [compared.sentence(a, b) for a, b in compared.pairs],
        seeds_text(bench) + ".",
        lambda: plots.dots(runs, [at("C"), at("CC")]),
        f"Dots of coverage at 1, 3 and 5 on {bench.source.name}",
        remarks=remarks.equal_systems(runs, keys),
        comparisons=compared.records(),
    )


def output_space(bench: Bench) -> Result:
    """Run the experiment of Figure 6."""
    shallow = bench.systems.get("bonsai-o", preset("bonsai-o"))
    runs = _measured(bench, {"bonsai-o": shallow, "parabel-o": preset("parabel-o")})
    others = _measured(bench, {n: bench.systems[n] for n in ("bonsai-i", "parabel") if n in bench.systems})
    known = OUTPUT_SPACE.get(bench.source.reference or "", {})
    compared = _comparisons(runs, [("bonsai-o", "parabel-o")], ["P@1", "P@5", "PSP@5"])
    shown = _comparisons(
        runs | others,
        [("bonsai-i", "bonsai-o"), ("bonsai-o", "parabel")],
        ["P@5", "PSP@5"],
        tested_elsewhere="precision and tail",
    )
    return Result(
        _lines(runs | others, at("P", "PSP")),
        [
            measured_table("P@k in percent", runs | others, at("P")),
            measured_table("PSP@k in percent", runs | others, at("PSP")),
            *(
                [
                    published_table(
                        f"Figure 6, {NAMES[bench.source.reference or '']}",
                        ["", "P@3", "P@5", "PSP@3", "PSP@5"],
                        [[title_of(n), *v] for n, v in known.items()],
                    )
                ]
                if known
                else []
            ),
        ],
        [each.sentence(a, b) for each in (compared, shown) for a, b in each.pairs],
        f"{seeds_text(bench)}. For comparison: Bonsai-i and Parabel, which cluster in the input space. "
        + compared.note,
        lambda: plots.dots(runs | others, [at("P"), at("PSP")]),
        f"Dots of P@k and PSP@k of Bonsai-o and Parabel-o on {bench.source.name}",
        remarks=remarks.no_cooccurrence(bench.source.data)
        + remarks.single_leaf(bench.source.data)
        + remarks.equal_systems(runs | others, at("P", "PSP")),
        comparisons=compared.records(),
    )


class PlusPlus(Bonsai):
    """Bonsai with the initial centres of the paper's footnote: k-means++."""

    def fit(self, *args: Any, **options: Any) -> Self:
        with patch.object(strategy, "KMEANS_INIT", "k-means++"):
            return super().fit(*args, **options)


#: {2, 100} children × {balanced, unbalanced}, and the footnote's k-means++.
_BALANCE: dict[str, dict[str, Any]] = {
    "2 balanced": {"branching_factor": 2, "balance": "equal", "max_leaf_size": 100},
    "2 unbalanced": {"branching_factor": 2, "balance": "none", "max_leaf_size": 100},
    "100 balanced": {"branching_factor": 100, "balance": "equal"},
    "100 unbalanced": {"branching_factor": 100, "balance": "none"},
    "100 unbalanced, k-means++": {"branching_factor": 100, "balance": "none"},
}


def balance(bench: Bench) -> Result:
    """Measure the effect of each of the two relaxations (Section 2.2)."""

    def factory(name: str, params: dict[str, Any]) -> Factory:
        wide = params["branching_factor"] == 100
        depth = paper_depth(bench.source.paper) if wide else {"max_depth": None}
        kind = PlusPlus if name.endswith("k-means++") else Bonsai
        return lambda seed: kind(classifiers="leaf", **params, **depth, random_state=seed)

    runs = _measured(bench, {name: factory(name, params) for name, params in _BALANCE.items()})
    binary, binary_unbalanced, wide_balanced, wide, plus_plus = runs
    keys = ["P@1", "P@5", "PSP@5"]
    effects = {
        "More children": (wide_balanced, binary),
        "No balance": (binary_unbalanced, binary),
        "k-means++": (plus_plus, wide),
    }
    compared = _comparisons(runs, list(effects.values()), keys)
    both = _comparisons(runs, [(wide, binary)], keys, tested_elsewhere="precision and tail")
    trees = Table(
        "Trees and cost",
        ["", "levels", "nodes", "largest leaf", "clustering, s", "training, CPU s"],
        [
            [
                name,
                spread([max(t["depth"] for t in r["trees"]) for r in of], 1),
                spread([float(sum(t["nodes"] for t in r["trees"])) for r in of], 0),
                spread([float(max(t["largest_leaf"] for t in r["trees"])) for r in of], 0),
                spread([r["phases_s"].get("trees", 0.0) for r in of]),
                spread([r["fit_cpu_s"] for r in of], 1),
            ]
            for name, of in runs.items()
        ],
        bench.when([r for of in runs.values() for r in of]),
    )
    return Result(
        _lines(runs, at("P", "PSP", "C", "CC")),
        [
            measured_table("In percent", runs, [*at("P"), "PSP@1", "PSP@5", "CC@5"]),
            trees,
            compared.table("Differences"),
        ],
        [
            *(f"{effect} alone. {compared.sentence(*pair)}" for effect, pair in effects.items()),
            f"Both. {both.sentence(wide, binary)}",
        ],
        f"{seeds_text(bench)}; three trees each, label vectors from the input space. “100 unbalanced” is "
        "Bonsai-i, “2 balanced” is Parabel.",
        lambda: plots.dots(runs, [at("P"), at("PSP")]),
        f"Dots of P@k and PSP@k for 2 or 100 children, balanced or not, on {bench.source.name}",
        remarks=remarks.single_leaf(bench.source.data) + remarks.equal_systems(runs, at("P", "PSP")),
        comparisons=compared.records(),
    )


def _published_precision() -> list[Table]:
    names = list(dict.fromkeys(name for systems in PRECISION.values() for name in systems))
    rows = [
        [f"{NAMES[data]}, P@{k}", *(systems[n][i] if n in systems else None for n in names)]
        for data, systems in PRECISION.items()
        for i, k in enumerate(CUTOFFS)
    ]
    return [
        published_table(
            "Table 2", ["", *map(title_of, names)], rows, "A dash: the method did not scale to the data set."
        )
    ]


def _published_tail() -> list[Table]:
    rows = [
        [NAMES[data], title_of(name), *psp, *ndcg]
        for data, systems in TAIL.items()
        for name, (psp, ndcg) in systems.items()
    ]
    note = "The bars of height 1 for PfastXML on Amazon-3M are placeholders and are omitted."
    return [published_table("Figure 4", ["", "", *at("PSP", "PSnDCG")], rows, note)]


def _published_coverage() -> list[Table]:
    rows = [[NAMES[d], title_of(n), *v] for d, systems in COVERAGE.items() for n, v in systems.items()]
    return [published_table("Table 3", ["", "", *at("C")], rows)]


def _published_output_space() -> list[Table]:
    rows = [[NAMES[d], title_of(n), *v] for d, systems in OUTPUT_SPACE.items() for n, v in systems.items()]
    return [published_table("Figure 6", ["", "", "P@3", "P@5", "PSP@3", "PSP@5"], rows)]


EXPERIMENTS = {
    "precision": Experiment(
        "Precision",
        "Table 2",
        "Bonsai is more accurate than Parabel on all six data sets. The joint representation is better than "
        "the input one where rows have many labels. DiSMEC is better than Bonsai on two data sets only.",
        precision,
        _published_precision,
    ),
    "tail": Experiment(
        "Tail labels",
        "Figure 4",
        "Bonsai is better than other trees in the propensity-scored metrics (PSP@5 is 6.7 % above Parabel on "
        "WikiLSHTC-325K). One-vs-rest is best on the tail.",
        tail,
        _published_tail,
    ),
    "balance": Experiment(
        "Branching factor and balance",
        "section 2.2",
        "Bonsai relaxes two constraints of Parabel: two children per node, and balance. The paper does not "
        "separate their effects. k-means++ gave no gain (footnote).",
        balance,
    ),
    "coverage": Experiment(
        "Unique labels",
        "Table 3",
        "Bonsai predicts more different labels than Parabel on all data sets, except for C@1 on EURLex.",
        coverage,
        _published_coverage,
    ),
    "output-space": Experiment(
        "Output space: shallow and deep trees",
        "Figure 6",
        "With labels represented by their co-occurrence, Bonsai is better than Parabel by a large margin: "
        "shallow trees matter more than the representation.",
        output_space,
        _published_output_space,
    ),
}
