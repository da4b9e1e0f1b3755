"""The memory of training: what it will need, and how it stays within a limit."""

from typing import Any

from bonsai_xmc._memory.phases import by_phase
from bonsai_xmc._memory.sizes import count, measure
from bonsai_xmc._strategy import Strategy
from bonsai_xmc._training import Problem
from bonsai_xmc._work.work import Work


def estimate(
    problem: Problem, strategy: Strategy, threads: int, *, given: float = 0.0, tunes: bool, threshold: bool
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
