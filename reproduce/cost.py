"""The experiment on time: training and prediction times, and how training time divides into phases."""

from collections.abc import Mapping, Sequence
from typing import Any

from . import plots
from .accuracy import seeds_text
from .bench import Bench, RankedFile
from .results import Experiment, Result, Table, published_table, spread, title_of
from .statistics import mean_and_sd

Runs = Mapping[str, Sequence[Mapping[str, Any]]]

_CLOCKS = ("fit_s", "fit_cpu_s", "predict_ms", "one_row_ms", "threads")
_PHASES = ("label vectors", "trees", "classifiers")
_PLACES = ("root", "inner", "leaves")


def cost(bench: Bench) -> Result:
    """Run the experiment of Section 4.6 and the abstract."""
    runs = {
        name: bench.measure(name, factory, timed=True)
        for name, factory in bench.systems.items()
        if not isinstance(factory(0), RankedFile)
    }
    numbers = [
        {"system": name, "seed": seed, **{key: run[key] for key in _CLOCKS}}
        | {f"{phase}, s": seconds for phase, seconds in run.get("phases_s", {}).items()}
        | {f"{place}, pairs": work for place, work in _work(run).items()}
        for name, of in runs.items()
        for seed, run in enumerate(of)
    ]
    return Result(
        numbers,
        [_clock_table(runs, bench.when([run for of in runs.values() for run in of])), _work_table(runs)],
        [
            f"{title_of(a)} trains {_ratio(runs, a, b, 'fit_s')} times as long as {title_of(b)} "
            f"({_ratio(runs, a, b, 'fit_cpu_s')} times in CPU time)."
            for a, b in (("bonsai-i", "parabel"), ("dismec", "bonsai-i"))
            if a in runs and b in runs
        ],
        seeds_text(bench) + ". Prediction of the test rows as one batch, and single-row latency (p50 of 50).",
        lambda: plots.times(runs),
        f"Training and prediction times on {bench.source.name}",
    )


def _work(run: Mapping[str, Any]) -> dict[str, float]:
    """Return (row, classifier) pairs in all trees of a run, by kind of node; empty for other systems."""
    if "trees" not in run:
        return {}
    return {place: sum(tree["work"][place] for tree in run["trees"]) for place in _PLACES}


def _ratio(runs: Runs, a: str, b: str, key: str) -> str:
    if a not in runs or b not in runs:
        return "–"
    top, bottom = (mean_and_sd([run[key] for run in runs[name]])[0] for name in (a, b))
    return f"{top / bottom:.2f}"


def _clock_table(runs: Runs, note: str) -> Table:
    columns = ["", "training, s", "training, CPU s", "CPU ÷ Parabel", "CPU ÷ DiSMEC"]
    columns += ["batch prediction, ms per row", "single-row latency, ms"]
    rows = [
        [
            title_of(name),
            spread([run["fit_s"] for run in of], 1),
            spread([run["fit_cpu_s"] for run in of], 1),
            _ratio(runs, name, "parabel", "fit_cpu_s"),
            _ratio(runs, name, "dismec", "fit_cpu_s"),
            spread([run["predict_ms"] for run in of], 3),
            spread([run["one_row_ms"] for run in of], 2),
        ]
        for name, of in runs.items()
    ]
    return Table("Time", columns, rows, note)


def _work_table(runs: Runs) -> Table:
    columns = ["", *(f"{phase}, s" for phase in _PHASES), *(f"pairs, {place}, millions" for place in _PLACES)]
    rows = [
        [
            title_of(name),
            *(spread([run["phases_s"].get(phase, 0.0) for run in of], 1) for phase in _PHASES),
            *(spread([_work(run)[place] / 1e6 for run in of], 0) for place in _PLACES),
        ]
        for name, of in runs.items()
        if "trees" in of[0]
    ]
    note = (
        "Seconds of each phase, and (row, classifier) pairs of the training problems in the roots, in other "
        "inner nodes and in the leaves of all trees. The pairs do not depend on the machine."
    )
    return Table("Training time by phase, and its (row, classifier) pairs", columns, rows, note)


def _published() -> list[Table]:
    rows = [
        ["Bonsai ÷ Parabel, training", "2–3 (WikiLSHTC-325K: three hours to one, on three cores)"],
        ["one-vs-rest ÷ Bonsai, training", "about 200 (Amazon-3M)"],
        ["prediction of Bonsai", "“typically in milli-seconds”"],
    ]
    return [published_table("Section 4.6 and abstract", ["", ""], rows)]


EXPERIMENTS = {
    "time": Experiment(
        "Time",
        "section 4.6, abstract",
        "Bonsai trains two to three times as long as Parabel, and is 200 times faster to train than "
        "one-vs-rest on Amazon-3M; a prediction takes milliseconds.",
        cost,
        _published,
    ),
}
