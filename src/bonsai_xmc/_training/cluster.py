"""Workers on the nodes of a Ray cluster: the part in the process of the driver."""

import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import LOG
from bonsai_xmc._base.threads import instruction_set
from bonsai_xmc._training.solver import VERSION, Solver

_SECONDS_BETWEEN_LOOKS = 0.5
# A node is not used if its workers end this often before they solve anything.
_MOST_FAILED_STARTS = 3


@dataclass
class Usage:
    """The work of a node, and its traffic on the network."""

    cpus: int
    units: int = 0
    batches: int = 0
    seconds: float = 0.0  # of its workers
    core_seconds: float = 0.0
    bytes_in: int = 0  # rows, labels, trees, label vectors: once for each node
    bytes_out: int = 0  # results


@dataclass(eq=False)
class Worker:
    """A `Solver` on a node, as an object of the driver."""

    node: str
    cpus: int
    actor: Any
    starting: Any  # the reference of `about`, or None when it has answered
    pid: int = 0
    rate: float | None = None  # cost per second
    batches: dict[Any, Array] = field(default_factory=dict)  # the units of each reference, oldest first


class Workers:
    """The workers of all nodes that are alive; nodes may come and go.

    Parameters
    ----------
    ray : module
    cpus_per_worker : int, optional
        Threads of a worker; default: one worker for each node, with a thread for each CPU that Ray counts.
    """

    def __init__(self, ray: Any, cpus_per_worker: int | None) -> None:
        self._ray = ray
        self._cpus = cpus_per_worker
        self._solver = ray.remote(Solver)
        self._failed_starts: Counter[str] = Counter()
        self._looked = -np.inf
        self._why = "no node has a CPU"
        self.workers: list[Worker] = []
        self.usage: dict[str, Usage] = {}

    def ready(self) -> list[Worker]:
        """Return the workers that can be given units."""
        return [worker for worker in self.workers if worker.starting is None]

    @property
    def n_nodes(self) -> int:
        """Nodes with workers that are ready."""
        return len({worker.node for worker in self.ready()})

    def look(self) -> Iterator[Worker]:
        """Start workers on nodes without any; yield the workers whose nodes are gone."""
        now = time.monotonic()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked = now
        alive = {}
        for node in self._ray.nodes():
            cpus = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
            if cpus >= (self._cpus or 1):
                alive[node["NodeID"]] = cpus
        for worker in list(self.workers):
            if worker.node not in alive:
                self.workers.remove(worker)
                yield worker
        for node_id, cpus in alive.items():
            if self._failed_starts[node_id] < _MOST_FAILED_STARTS:
                self._start(node_id, cpus)
        if alive and not self.workers:
            raise RuntimeError(f"no node of the Ray cluster can be used: {self._why}")

    def _start(self, node: str, cpus: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        each = self._cpus or cpus
        self.usage.setdefault(node, Usage(cpus))
        have = sum(worker.node == node for worker in self.workers)
        for _ in range(cpus // each - have):
            place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            actor = self._solver.options(num_cpus=each, scheduling_strategy=place).remote(instruction_set())
            self.workers.append(Worker(node, each, actor, actor.about.remote()))

    def started(self, worker: Worker) -> None:
        """Record that a worker has answered, or failed to start."""
        try:
            version, isa, worker.pid = self._ray.get(worker.starting)
            if (version, isa) != (VERSION, instruction_set()):
                raise ValueError(
                    f"it has bonsai-xmc {version} ({isa}), "
                    f"but this process has {VERSION} ({instruction_set()})"
                )
        except (self._ray.exceptions.RayError, ValueError) as error:
            self.lost(worker)
            why = getattr(error, "cause", None) or error
            self._why = f"node {worker.node[:8]}: {_last_line(why)}"
            self._failed_starts[worker.node] += 1
            if isinstance(error, ValueError):  # another start would not help
                self._failed_starts[worker.node] = _MOST_FAILED_STARTS
            if self._failed_starts[worker.node] == _MOST_FAILED_STARTS:
                warnings.warn(f"a node of the Ray cluster is not used; {self._why}", stacklevel=2)
            return
        worker.starting = None
        LOG.info("node %s: a worker with %d threads", worker.node[:8], worker.cpus)

    def lost(self, worker: Worker) -> None:
        """Forget a worker that has died; `look` starts another one."""
        if worker in self.workers:
            self.workers.remove(worker)

    def forget(self) -> None:
        """Have idle workers free their memory."""
        for worker in self.ready():
            worker.actor.forget.remote()

    def stop(self) -> None:
        """End all workers at once."""
        for worker in self.workers:
            self._ray.kill(worker.actor)
        self.workers = []


def _last_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
