"""A process that makes stages from recipes and solves units of them. It imports little, to start soon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.threads import instruction_set

if TYPE_CHECKING:
    from bonsai_xmc import _core

VERSION = version("bonsai-xmc")


class StageOf(NamedTuple):
    """A recipe without what is shared; its keys identify the stage and the basis."""

    key: int
    make: Callable[..., _core.Stage]
    own: tuple[Any, ...]
    basis_key: Any
    derive: Callable[..., Any]
    how: tuple[Any, ...]


class Results(NamedTuple):
    """The results of a batch: the bytes of units[i] are data[ptr[i] : ptr[i + 1]]."""

    units: Array
    ptr: Array
    data: Array
    seconds: float
    core_seconds: float


class Solver:
    """A process on a node. It keeps its last stage, which several batches use, and the stage's basis."""

    def __init__(self, isa: str) -> None:
        os.environ["BONSAI_ISA"] = isa  # results of other kernels differ in the last bits
        self._key: Any = None
        self._stage: _core.Stage | None = None
        self._basis_key: Any = None
        self._basis: Any = None

    def about(self) -> tuple[str, str, int]:
        """Return version, instruction set and process; ValueError if the processor lacks the instructions."""
        return VERSION, instruction_set(), os.getpid()

    def solve(self, shared: Any, stage: StageOf, units: Array, n: int) -> Results:
        """Solve units with n threads. `shared` is mapped, not copied."""
        begin, core_begin = time.perf_counter(), time.process_time()
        if stage.key != self._key:
            self.forget()
            if stage.basis_key != self._basis_key:
                self._basis_key = self._basis = None  # frees the old basis first
                self._basis = stage.derive(shared, n, *stage.how)
                self._basis_key = stage.basis_key
            self._stage, self._key = stage.make(self._basis, *stage.own), stage.key
        assert self._stage is not None
        results = self._stage.solve_for_others(units, n)
        return Results(*results, time.perf_counter() - begin, time.process_time() - core_begin)

    def forget(self) -> None:
        """Free the stage. The next one is likely to have the same basis."""
        self._key = self._stage = None
