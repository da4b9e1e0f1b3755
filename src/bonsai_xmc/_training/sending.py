"""The units of one stage, sent to the workers of a cluster in batches, and their results."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import LOG, clock
from bonsai_xmc._training.cluster import Worker, Workers
from bonsai_xmc._training.recipes import Recipe
from bonsai_xmc._training.solver import Results, StageOf
from bonsai_xmc._training.work import Save, Watch

if TYPE_CHECKING:
    from bonsai_xmc import _core


_SECONDS_OF_A_WAIT = 0.1
# Workers that need longer than this wait for something.
_SECONDS_TO_START = 20.0
# Batches that a worker has at a time: the second waits there while it solves the first.
_IN_FLIGHT = 2
# Batches that the driver takes before it sends others.
_MOST_TAKEN = 16
# A unit whose workers die this often is likely to be the reason.
_MOST_LOSSES = 8
_KEYS = itertools.count()


_SHORTEST = 1 / 40  # of the time that a batch should take


class Batches:
    """The units of a stage that no worker has, the most costly first.

    Parameters
    ----------
    units : array of uint32
    costs : array
        Of all units of the stage, in any measure.
    seconds : float
        How long a batch should take.
    """

    def __init__(self, units: Array, costs: Array, seconds: float) -> None:
        # A unit without cost counts, too: it has to be sent.
        self._costs = np.maximum(costs.astype(np.float64), 1.0)
        self._seconds = seconds
        order = np.argsort(-self._costs[units], kind="stable")
        self._waiting = deque(units[order].tolist())
        self.waiting_cost = self.cost(units)

    def __len__(self) -> int:
        return len(self._waiting)

    def cost(self, units: Any) -> float:
        """Return the cost of some units."""
        return float(self._costs[np.asarray(units, np.int64)].sum())

    def take(self, rate: float | None, n_takers: int) -> Array:
        """Return a batch for one of `n_takers`, which solves units of this cost in a second.

        The batch is a single unit where the rate is not known. Batches become smaller towards the end, so
        that all takers end at about the same time, but not so small that sending them takes longer.
        """
        wanted = 0.0
        if rate is not None:
            longest, shortest = self._seconds * rate, self._seconds * rate * _SHORTEST
            wanted = min(longest, max(shortest, self.waiting_cost / (2 * max(1, n_takers))))
        taken: list[int] = []
        cost = 0.0
        while self._waiting and (not taken or cost + self._costs[self._waiting[0]] <= wanted):
            taken.append(self._waiting.popleft())
            cost += self._costs[taken[-1]]
        self.waiting_cost -= cost
        return np.array(taken, np.uint32)

    def give_back(self, units: Iterable[int]) -> None:
        """Put units that were taken and not solved in front of all others."""
        units = list(units)
        self._waiting.extendleft(reversed(units))
        self.waiting_cost += self.cost(units)


class Shared:
    """A value in Ray's object store. It is kept here, too, to recognise it by its identity."""

    def __init__(self, ray: Any, value: Any) -> None:
        self.value = value
        self.key = next(_KEYS)
        self.n_bytes = sum(array.nbytes for array in arrays_in(value))
        self.nodes: set[str] = set()  # that have it
        try:
            self.ref = ray.put(value)
        except ray.exceptions.ObjectStoreFullError:
            raise MemoryError(
                f"Ray's object store has no room for {self.n_bytes / 1e9:.1f} GB of data; start the nodes "
                "with a larger --object-store-memory"
            ) from None


@dataclass(eq=False)
class Run:
    """One stage, which `recipe` makes from what is shared, and the workers that solve its units."""

    ray: Any
    workers: Workers
    stage: _core.Stage
    recipe: Recipe
    shared: Shared
    queue: Batches
    progress: Watch
    save: Save
    tell: Callable[[str], None]
    n_threads: int

    def __post_init__(self) -> None:
        recipe = self.recipe
        basis_key = self.shared.key, recipe.derive.__name__, *recipe.how
        of = StageOf(next(_KEYS), recipe.make, recipe.own, basis_key, recipe.derive, recipe.how)
        self._own = Shared(self.ray, of)
        self._losses: Counter[int] = Counter()
        self._begin = time.monotonic()
        self._cost = self.queue.waiting_cost
        self._known_cost = self.queue.cost(range(self.stage.n_units)) - self._cost
        self._solved_cost = 0.0
        self._n_solved = 0
        self._warned = False

    def run(self) -> None:
        """Solve all units."""
        self._n_units = len(self.queue)
        for worker in self.workers.workers:
            worker.batches.clear()
            worker.rate = None  # costs of another stage are in another measure
        while self._n_solved < self._n_units:
            for worker in self.workers.look():
                self._lose(worker, "its node is gone")
            self._send()
            for ref in self._wait():
                self._take(ref)
            self._report()

    def _send(self) -> None:
        ready = self.workers.ready()
        for depth in range(_IN_FLIGHT):  # one batch for each worker, then a second
            for worker in ready:
                if len(worker.batches) == depth and len(self.queue):
                    self._give(worker, self.queue.take(worker.rate, len(ready)))

    def _give(self, worker: Worker, units: Array) -> None:
        """Send a batch to a worker."""
        for content in (self.shared, self._own):
            if worker.node not in content.nodes:
                content.nodes.add(worker.node)
                self.workers.usage[worker.node].bytes_in += content.n_bytes
        ref = worker.actor.solve.remote(self.shared.ref, self._own.ref, units, worker.cpus)
        worker.batches[ref] = units

    def _wait(self) -> list[Any]:
        workers = self.workers.workers
        refs = [ref for worker in workers for ref in worker.batches]
        refs += [worker.starting for worker in workers if worker.starting is not None]
        if not refs:
            time.sleep(_SECONDS_OF_A_WAIT)
            return []
        done, _ = self.ray.wait(refs, num_returns=1, timeout=_SECONDS_OF_A_WAIT)
        if done:  # take others with it, but not all at once: results take memory
            done, _ = self.ray.wait(refs, num_returns=min(len(refs), _MOST_TAKEN), timeout=0)
        return list(done)

    def _take(self, ref: Any) -> None:
        """Take a worker that has started, or a batch that is solved or lost."""
        workers = self.workers.workers
        worker = next((w for w in workers if w.starting == ref or ref in w.batches), None)
        if worker is None:  # it is lost already
            return
        if worker.starting == ref:
            self.workers.started(worker)
            return
        results = self._fetch(worker, ref)
        if results is None:
            return
        # By several threads, as this is what limits large clusters.
        self.stage.add_all(results.units, results.ptr, results.data, self.n_threads)
        if self.save is not None:
            data = results.data.data
            ends = itertools.pairwise(results.ptr.tolist())
            self.save([(u, data[b:e]) for u, (b, e) in zip(results.units.tolist(), ends, strict=True)])
        self._n_solved += len(results.units)
        self._solved_cost += self.queue.cost(results.units)

    def _fetch(self, worker: Worker, ref: Any) -> Results | None:
        """Return the results of a batch; None if it is lost."""
        try:
            results: Results = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:  # raised by this package in the worker
            raise error.as_instanceof_cause() from None
        except self.ray.exceptions.RayError as error:
            with contextlib.suppress(Exception):
                self.ray.kill(worker.actor)
            self._lose(worker, str(error).strip().splitlines()[0])
            return None
        units = worker.batches.pop(ref)
        latest = self.queue.cost(units) / max(results.seconds, 1e-3)
        worker.rate = latest if worker.rate is None else (worker.rate + latest) / 2
        usage = self.workers.usage[worker.node]
        usage.units += len(units)
        usage.batches += 1
        usage.seconds += results.seconds
        usage.core_seconds += results.core_seconds
        usage.bytes_out += results.data.nbytes
        return results

    def _lose(self, worker: Worker, why: str) -> None:
        """Put the units of a worker that is gone back into the queue."""
        self.workers.lost(worker)
        LOG.info("node %s: a worker is lost (%s)", worker.node[:8], why)
        # The batch that it was solving may be the reason; those behind it are not.
        for i, units in enumerate(worker.batches.values()):
            if i == 0:
                self._losses.update(units.tolist())
            self.queue.give_back(units.tolist())
        worker.batches.clear()
        if self._losses and self._losses.most_common(1)[0][1] >= _MOST_LOSSES:
            unit, times = self._losses.most_common(1)[0]
            raise RuntimeError(f"unit {unit} was given to workers {times} times, and all of them died: {why}")

    def _report(self) -> None:
        self.tell(self._text())
        if self.progress is not None:
            self.progress(self._known_cost + self._solved_cost, self._known_cost + self._cost)

    def _text(self) -> str:
        elapsed = time.monotonic() - self._begin
        n_nodes = self.workers.n_nodes
        if not n_nodes:
            if elapsed > _SECONDS_TO_START and not self._warned:
                self._warned = True
                LOG.warning(
                    "no node of the Ray cluster has free CPUs: other jobs, or other runners, hold them"
                )
            return "waiting for nodes with free CPUs"
        text = f"{n_nodes} node{'s' * (n_nodes != 1)}, {self._n_solved:,} of {self._n_units:,} units"
        if self._n_solved:
            rate = self._n_solved / elapsed
            text += f", {rate:,.{0 if rate >= 10 else 2}f} units/s"
        if 0 < self._n_solved < self._n_units:
            text += f", {clock(elapsed * (self._cost / self._solved_cost - 1))} left"
        return text


def arrays_in(value: Any) -> Iterator[Array]:
    """Yield all arrays in nested tuples and lists."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from arrays_in(item)
