"""The memory of training: what it will need, and how it stays within a limit."""

from typing import Any

from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._training.memory.limit import Plan, available, plan
from bonsai_xmc._training.memory.phases import by_phase, rows_and_labels
from bonsai_xmc._training.memory.sizes import at_most, count, count_at_most, measure
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work


def estimate(
    problem: Problem, strategy: Strategy, threads: int, *, given: float = 0.0, tunes: bool, threshold: Any
) -> dict[str, Any]:
    """Bytes: {"training_bytes": …, "model_bytes": …, "phases": {name: …}}.

    `given` is what X and Y take that the caller holds, and training does not use as they are.
    """
    sizes = measure(problem, count(problem), strategy, Work(threads))
    phases = by_phase(sizes, strategy, threads, tunes, threshold)
    return {
        "training_bytes": int(given + max(phases.values())),
        "model_bytes": int(sizes.model_bytes),
        "phases": {name: int(given + size) for name, size in phases.items()},
    }


def plan_for(
    problem: Problem,
    strategy: Strategy,
    threads: int,
    max_memory: int | float | str | None,
    *,
    tunes: bool,
    threshold: Any,
) -> Plan:
    """How training stays within a limit; MemoryError if it cannot."""
    room = available(max_memory)
    if room is None:
        return Plan()
    for count_sizes in count_at_most, count:
        sizes = count_sizes(problem)
        most = by_phase(at_most(sizes, strategy), strategy, threads, tunes, threshold)
        if 2 * (max(most.values()) - rows_and_labels(sizes)) + threads * room.per_thread <= room.size:
            return Plan()  # clearly enough, without counting more, or training a sample
    sizes = measure(problem, sizes, strategy, Work(threads))
    return plan(sizes, strategy, threads, room, tunes=tunes, threshold=threshold)
