"""Parts of all experiments: data, systems, seeds, and measurements that are computed once and stored."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from bonsai_xmc import Bonsai, metrics, systems
from bonsai_xmc._base.progress import ProgressBar
from bonsai_xmc.systems import ProXML

from . import beam, published
from .results import plural
from .source import Source
from .store import Store

#: The k of P@k and the other metrics.
CUTOFFS = (1, 3, 5)
_SINGLE_ROWS = 50  # rows that single-row latency is measured on
_NOT_IDENTIFYING = ("n_jobs", "random_state")  # parameters that do not change what a system is


class System(Protocol):
    """A system of an experiment: anything that fits and ranks labels."""

    def fit(self, X: Any, Y: Any, /) -> Any:
        """Learn from rows X, a csr_array, with labels Y, an indicator csr_array."""

    def top_k(self, X: Any, k: int, /) -> tuple[Any, Any]:
        """Return (ids, scores) of the k best labels of each row, best first, −1 where there are fewer."""


class RankedFile:
    """The rankings of another system, from a file with a line for each test row."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._ids, self._scores = metrics.read_predictions(path)

    def fit(self, X: Any, Y: Any, /) -> "RankedFile":
        return self

    def top_k(self, X: Any, k: int, /) -> tuple[Any, Any]:
        if X.shape[0] != len(self._ids):
            raise ValueError(
                f"{self.path} ranks {len(self._ids):,} rows, but there are {X.shape[0]:,} test rows"
            )
        return self._ids[:, :k], self._scores[:, :k]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the content, which identifies the rankings."""
        return {"digest": hashlib.sha256(self._ids.tobytes()).hexdigest()}


#: Makes an unfitted system for a seed.
Factory = Callable[[int], System]
Systems = Mapping[str, Factory]

PRESETS = ("bonsai-i", "bonsai-o", "bonsai-io", "parabel", "dismec")
# Systems of the package other than presets: their kind, and parameters that make a variant of it.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fastxml": ("fastxml", {}),
    "pfastxml": ("pfastrexml", {"tail": False}),
    "pfastrexml": ("pfastrexml", {}),
    "sleec": ("sleec", {}),
    "leml": ("leml", {}),
    "robustxml": ("robustxml", {}),
    "pd-sparse": ("pd-sparse", {}),
    "ppd-sparse": ("pd-sparse", {"variant": "ppd"}),
    "proxml": ("proxml", {}),
}


def preset(name: str, **overrides: Any) -> Factory:
    """Return a preset of the estimator."""
    return lambda seed: Bonsai.preset(name, random_state=seed, **overrides)


def paper_depth(paper: str | None) -> dict[str, Any]:
    """Return the paper's depth of wide trees on a data set, as a parameter."""
    return {"max_depth": 2} if paper in published.TWO_LEVELS else {}


def paper_systems(paper: str | None, data: str = "") -> dict[str, Factory]:
    """Return all systems: presets, the default model, and those that the paper compares Bonsai with.

    Settings are those that were published for the data set.
    """
    depth = paper_depth(paper)
    made: dict[str, Factory] = {
        name: preset(name, **depth if name.startswith("bonsai") else {}) for name in PRESETS
    }
    made["default"] = lambda seed: Bonsai(random_state=seed)
    return made | {name: _system(name, data) for name in VARIANTS}


def system(name: str, data: str = "", **params: Any) -> Any:
    """Return a system of the package with the settings that were published for the data set."""
    kind, variant = VARIANTS[name]
    settings = published.SETTINGS.get(name, {}).get(data, {})
    return systems.system(kind)(**{"threshold": 0.5} | variant | settings | params)


def _system(name: str, data: str) -> Factory:
    return lambda seed: system(name, data, random_state=seed)


@dataclass
class Bench:
    """A runner of systems on one data set, for all seeds, which stores its measurements.

    Attributes
    ----------
    source : Source
        The data.
    systems : mapping
        The systems that `precision`, `tail`, `coverage` and `time` compare.
    seeds : int
        Seeds 0 … seeds − 1.
    store : Store
        Where results are stored.
    threads : int
        Threads for training and prediction.
    report : callable
        Called with a line of text for each finished unit of work.
    bar : ProgressBar, optional
        Shows the progress of training.
    experiment : str
        The current experiment, for these lines.
    started : float
        When the run began; results that are older are reused ones.
    finished : callable
        Called with a system's name and its results by seed as soon as `measure` has all of them.
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
    finished: Callable[[str, list[dict[str, Any]]], None] = lambda name, runs: None
    _unit: str = ""  # the current unit of work, for the bar

    def measure(self, name: str, factory: Factory, *, timed: bool = False) -> list[dict[str, Any]]:
        """Return metrics and times of a system by seed. `timed`: reuse only times with as many threads."""
        runs = [
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
        self.finished(name, runs)
        return runs

    def seeds_of(self, factory: Factory) -> Sequence[int]:
        """Return the seeds to run: one-vs-rest has no random tree and needs one run only."""
        model = factory(0)
        own = getattr(model, "max_depth", None) == 1 or getattr(model, "variant", None) == "ppd"
        once = own or isinstance(model, ProXML | RankedFile)
        return range(1 if once else self.seeds)

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
        """Return `compute(model)`, or its stored result for equal data, parameters and seed."""
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
        """Fit on the training rows, with progress where the system reports it."""
        data, bar = self.source.data, self.bar
        if isinstance(model, Bonsai) and bar is not None:
            watch = lambda phase, done, total: bar(f"{self._unit}: {phase}", done, total)
            model.fit(data.X_train, data.Y_train, progress=watch)
        else:
            model.fit(data.X_train, data.Y_train)

    def evaluate(self, ids: Any) -> dict[str, float]:
        """Return all metrics of the ranked label ids of the test rows, in percent."""
        A, B = self.source.propensity
        data = self.source.data
        return metrics.evaluate(data.Y_test, ids, data.Y_train, CUTOFFS, A, B, by_frequency=True)

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
            "one_row_ms": 0.0 if isinstance(model, RankedFile) else _one_row_ms(model, data.X_test),
            "threads": self.threads,
        }
        return result | (_forest_facts(model, data.Y_train) if isinstance(model, Bonsai) else {})

    def sample(self, size: int) -> Any:
        """Return a random sample of `size` test rows (their indices), the same for every system."""
        n = self.source.data.X_test.shape[0]
        return np.sort(np.random.default_rng(0).choice(n, min(size, n), replace=False))

    def when(self, results: Sequence[Mapping[str, Any]]) -> str:
        """Return when times were measured, and how many of them are reused."""
        made = [result["made"] for result in results]
        first, last = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(t)) for t in (min(made), max(made)))
        reused = sum(t < self.started for t in made)
        text = f"Times were measured between {first} and {last} UTC with {plural(self.threads, 'thread')}"
        return text + (f"; {reused} of {len(made)} are reused from an earlier run." if reused else ".")


def _identity(name: str, model: Any) -> dict[str, Any]:
    """Return the identity of a system: its class and parameters, or its class and name without parameters."""
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    if not hasattr(model, "get_params"):
        return {"class": kind, "name": name}
    params = model.get_params(deep=False)
    return {"class": kind, "params": {k: v for k, v in params.items() if k not in _NOT_IDENTIFYING}}


def _one_row_ms(model: Any, X: Any) -> float:
    """Measure the single-row latency, the median over some rows."""
    times = []
    for row in range(min(_SINGLE_ROWS, X.shape[0])):
        one = X[[row]]
        begin = time.perf_counter()
        model.top_k(one, max(CUTOFFS))
        times.append(time.perf_counter() - begin)
    return 1000 * float(np.median(times)) if times else float("nan")


def _forest_facts(model: Bonsai, Y: Any) -> dict[str, Any]:
    """Return the shape of the trees, and the size of their training problems."""
    trees = model.trees_
    return {
        "phases_s": model.timings_,
        "trees": [
            {
                "depth": tree.depth,
                "nodes": tree.n_nodes,
                "largest_leaf": int(tree.sizes[tree.arrays["is_leaf"]].max()),
                "labels": tree.n_labels,
                "early_labels": len(beam.early_labels(tree, model.strategy_.max_depth)),
                "work": beam.training_work(tree, Y),
            }
            for tree in trees
        ],
    }
