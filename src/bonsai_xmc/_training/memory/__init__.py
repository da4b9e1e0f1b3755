"""The memory of training: what it will need, and how it stays within a limit."""

from collections.abc import Callable, Sequence
from typing import Any

from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._training.memory.limit import SMALL_BATCH, Plan, available, plan, refusal
from bonsai_xmc._training.memory.sizes import by_phase, count, measure
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work

_RANKED = 8000  # bytes of the rankings of a row that weights are chosen on


def estimate(
    problem: Problem,
    strategy: Strategy,
    threads: int,
    *,
    given: float = 0.0,
    roughly: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Return bytes: {"training_bytes": …, "model_bytes": …, "phases": {name: …}}.

    `given` is the bytes of the caller's X and Y, as far as training does not use their arrays. `roughly`:
    with bounds of what is otherwise measured on some labels. `options` are those of `by_phase`.
    """
    sizes = count(problem, strategy) if roughly else measure(problem, strategy, Work(threads))
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


def together(members: Sequence[dict[str, Any]], n_held_out: int) -> dict[str, Any]:
    """Return the estimate of several models that are trained one after the other, with the rows of all.

    For the choice of weights, each is also trained on at most half of the rows and ranks `n_held_out` others.
    """
    rows = sum(one["phases"]["reading"] for one in members)
    phases: dict[str, int] = {}
    models = 0
    for one in members:
        beside = rows - one["phases"]["reading"] + models
        for name, size in one["phases"].items():
            phases[name] = max(phases.get(name, 0), size + beside)
        models += one["model_bytes"]
    phases["reading"] = rows
    halves = sum(one["model_bytes"] for one in members[:-1])
    again = max(max(one["training_bytes"] for one in members) // 2, rows // 2 + _RANKED * n_held_out)
    phases["weights"] = max(phases.get("weights", 0), rows + models + halves + again)
    found = {"training_bytes": max(phases.values()), "model_bytes": models, "phases": phases}
    if any("least" in one for one in members):
        found["least"] = together([one.get("least", one) for one in members], n_held_out)
    return found


def require(estimate: Callable[..., dict[str, Any]], max_memory: int | float | str | None) -> None:
    """Raise MemoryError if a limit leaves no room for a training with one thread.

    `estimate` returns an estimate for options of the function `estimate`.
    """
    room = available(max_memory)
    if room is None:
        return
    for roughly in (True, False):
        found = estimate(threads=1, batch_rows=SMALL_BATCH, roughly=roughly)
        found = found.get("least", found)
        more = {name: size - found["phases"]["reading"] for name, size in found["phases"].items()}
        if max(more.values()) <= room.size:
            return
    raise MemoryError(refusal(more, more, room.size, []))
