"""What every experiment stands on: data, systems and seeds, and measurements that are made once and kept."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from bonsai_xmc import Bonsai, metrics
from bonsai_xmc._params import check_params
from bonsai_xmc._progress import ProgressBar

from . import _beam, _published
from ._source import Source
from ._store import Store

#: What accuracy is measured at.
CUTOFFS = (1, 3, 5)
_ONE_BY_ONE = 50  # rows whose single prediction is timed
_NO_PARAMETER = ("n_jobs", "verbose", "random_state")  # they do not say what a system is


class System(Protocol):
    """What an experiment compares: anything that learns and ranks."""

    def fit(self, X: Any, Y: Any, /) -> Any:
        """Learn from rows X, a csr_array, with labels Y, an indicator csr_array."""

    def top_k(self, X: Any, k: int, /) -> tuple[Any, Any]:
        """(ids, scores) of the k best labels of each row, best first, −1 where there are fewer."""


#: Makes a system that is not fitted yet; the seed is what differs between runs.
Factory = Callable[[int], System]
Systems = Mapping[str, Factory]

PRESETS = ("bonsai-i", "bonsai-o", "bonsai-io", "parabel", "dismec")


def preset(name: str, **overrides: Any) -> Factory:
    """A member of the family."""
    return lambda seed: Bonsai.preset(name, random_state=seed, **overrides)


def paper_systems(paper: str | None) -> dict[str, Factory]:
    """The family with the paper's settings, which depend on the data set it is run on."""
    depth = {"max_depth": 2} if paper in _published.TWO_LEVELS else {}
    return {name: preset(name, **depth if name.startswith("bonsai") else {}) for name in PRESETS}


@dataclass
class Bench:
    """Runs systems on one data set, for all seeds, and keeps what it measures.

    Attributes
    ----------
    source : Source
        The data.
    systems : mapping
        What `precision`, `tail`, `coverage` and `time` compare.
    seeds : int
        Seeds 0 … seeds − 1.
    store : Store
        Where finished work is.
    threads : int
        Threads for training and prediction.
    report : callable
        Takes a line for people who wait.
    bar : ProgressBar, optional
        Shows how far a training is.
    experiment : str
        What is under way, for the lines.
    started : float
        When the run began; what was made earlier is reused.
    """

    source: Source
    systems: Systems
    seeds: int
    store: Store
    threads: int
    report: Callable[[str], None]
    bar: ProgressBar | None = None
    experiment: str = ""
    started: float = field(default_factory=time.time)
    _unit: str = ""  # what is under way, for the bar

    def measure(self, name: str, factory: Factory, *, timed: bool = False) -> list[dict[str, Any]]:
        """Metrics and times of a system for each seed. `timed`: only times with these threads will do."""
        return [
            self.unit(
                "measure",
                name,
                factory(seed),
                seed,
                self._measured,
                fresh=lambda result: not timed or result["threads"] == self.threads,
            )
            for seed in self.seeds_of(factory)
        ]

    def seeds_of(self, factory: Factory) -> Sequence[int]:
        """The seeds that make a difference: one-vs-rest has no tree to draw, and needs one run only."""
        return range(1 if getattr(factory(0), "max_depth", None) == 1 else self.seeds)

    def unit(
        self,
        kind: str,
        name: str,
        model: System,
        seed: int,
        compute: Callable[[Any], dict[str, Any]],
        fresh: Callable[[dict[str, Any]], bool] = lambda result: True,
        **more: Any,
    ) -> dict[str, Any]:
        """What `compute(model)` returns, or what it once returned for equal data, parameters and seed."""
        if hasattr(model, "n_jobs"):
            model.n_jobs = self.threads
        description = {
            "kind": kind,
            "data": self.source.digest,
            "system": _identity(name, model),
            "seed": seed,
            "propensity": self.source.propensity,
            **more,
        }
        self._unit = f"{name}, seed {seed}"
        begin, computed = time.perf_counter(), self.store.computed
        result = self.store.get(description, lambda: {**compute(model), "made": time.time()}, fresh)
        if self.store.computed > computed:
            if self.bar is not None:
                self.bar.finish()
            seconds = time.perf_counter() - begin
            self.report(f"{self.source.name}  {self.experiment}  {self._unit}  {seconds:.1f} s")
        return result

    def fit(self, model: Any) -> None:
        """Fit on the training rows; members of the family show how far they are."""
        data, bar = self.source.data, self.bar
        if isinstance(model, Bonsai) and bar is not None:
            watch = lambda phase, done, total: bar(f"{self._unit}: {phase}", done, total)
            model._fit(data.X_train, data.Y_train, progress=watch)
        else:
            model.fit(data.X_train, data.Y_train)

    def evaluate(self, ids: Any) -> dict[str, float]:
        """All metrics of ranked label ids of the test rows, in percent."""
        A, B = self.source.propensity
        data = self.source.data
        return metrics.evaluate(ids, data.Y_test, data.Y_train, CUTOFFS, A, B, by_frequency=True)

    def _measured(self, model: Any) -> dict[str, Any]:
        data = self.source.data
        begin, cpu = time.perf_counter(), time.process_time()
        self.fit(model)
        fitted, fitted_cpu = time.perf_counter(), time.process_time()
        ids, _ = model.top_k(data.X_test, max(CUTOFFS))
        predicted = time.perf_counter()
        result = {
            "metrics": self.evaluate(ids),
            "fit_s": fitted - begin,
            "fit_cpu_s": fitted_cpu - cpu,
            "predict_ms": 1000 * (predicted - fitted) / max(1, data.X_test.shape[0]),
            "one_row_ms": _one_row_ms(model, data.X_test),
            "threads": self.threads,
        }
        return result | (_forest_facts(model, data.Y_train) if isinstance(model, Bonsai) else {})

    def sample(self, size: int) -> Any:
        """Test rows to look at closely: numbers of `size` different ones, the same for every system."""
        n = self.source.data.X_test.shape[0]
        return np.sort(np.random.default_rng(0).choice(n, min(size, n), replace=False))

    def when(self, results: Sequence[Mapping[str, Any]]) -> str:
        """When times were measured, and whether this run did it."""
        made = [result["made"] for result in results]
        first, last = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(t)) for t in (min(made), max(made)))
        reused = sum(t < self.started for t in made)
        text = f"Times were measured between {first} and {last} UTC, {self.threads} thread(s)"
        return text + (f"; {reused} of {len(made)} are reused from an earlier run." if reused else ".")


def threads_of(n_jobs: int | None) -> int:
    """Threads that `n_jobs` stands for, as in the estimator."""
    model = Bonsai(n_jobs=n_jobs)
    check_params(model.get_params(deep=False))
    return model._threads()


def _identity(name: str, model: Any) -> dict[str, Any]:
    """What tells systems apart: class and parameters, or the name where a class does not tell those."""
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    if not hasattr(model, "get_params"):
        return {"class": kind, "name": name}
    params = model.get_params(deep=False)
    return {"class": kind, "params": {k: v for k, v in params.items() if k not in _NO_PARAMETER}}


def _one_row_ms(model: Any, X: Any) -> float:
    """Median time to predict a row that comes alone."""
    times = []
    for row in range(min(_ONE_BY_ONE, X.shape[0])):
        one = X[[row]]
        begin = time.perf_counter()
        model.top_k(one, max(CUTOFFS))
        times.append(time.perf_counter() - begin)
    return 1000 * float(np.median(times)) if times else float("nan")


def _forest_facts(model: Bonsai, Y: Any) -> dict[str, Any]:
    """What the trees look like, and what training them costs, beside any clock."""
    trees = model.trees_
    return {
        "phases_s": model.timings_,
        "trees": [
            {
                "depth": tree.depth,
                "nodes": tree.n_nodes,
                "largest_leaf": int(tree.sizes[tree.arrays["is_leaf"]].max()),
                "labels": tree.n_labels,
                "early_labels": len(_beam.early_labels(tree, model.max_depth)),
                "work": _beam.training_work(tree, Y),
            }
            for tree in trees
        ],
    }
