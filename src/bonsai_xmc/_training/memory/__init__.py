"""The memory of training: what it will need, and how it stays within a limit."""

from typing import Any

from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._training.memory.limit import Plan, available, plan
from bonsai_xmc._training.memory.sizes import by_phase, count, measure
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work


def estimate(
    problem: Problem, strategy: Strategy, threads: int, *, given: float = 0.0, **options: Any
) -> dict[str, Any]:
    """Return bytes: {"training_bytes": …, "model_bytes": …, "phases": {name: …}}.

    `given` is the bytes of the caller's X and Y, as far as training does not use their arrays. `options` are
    those of `by_phase`.
    """
    sizes = measure(problem, strategy, Work(threads))
    phases = {name: int(given + size) for name, size in by_phase(sizes, strategy, threads, **options).items()}
    return {
        "training_bytes": max(phases.values()),
        "model_bytes": int(sizes.model_bytes),
        "phases": phases,
    }


def plan_for(
    problem: Problem, strategy: Strategy, threads: int, max_memory: int | float | str | None, **options: Any
) -> Plan:
    """Return how training stays within a limit; MemoryError if it cannot."""
    room = available(max_memory)
    if room is None:
        return Plan()
    sizes = count(problem, strategy)
    most = max(by_phase(sizes, strategy, threads, **options).values()) - sizes.rows_and_labels
    if 2 * most + threads * room.per_thread <= room.size:
        return Plan()  # there is clearly enough room: no sample is trained
    return plan(measure(problem, strategy, Work(threads)), strategy, threads, room, **options)
