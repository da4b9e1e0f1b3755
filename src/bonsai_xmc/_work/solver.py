"""A process that makes stages from recipes and solves units of them. It imports little, to start soon."""

import os
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy.typing as npt

from bonsai_xmc import _core

VERSION = version("bonsai-xmc")


class Solver:
    """A process of a node. It keeps the last stage, whose preparation serves many batches."""

    def __init__(self, isa: str) -> None:
        os.environ["BONSAI_ISA"] = isa  # results of other kernels differ in the last bits
        self._key: Any = None
        self._stage: _core.Stage | None = None

    def about(self) -> tuple[str, str, int]:
        """(version, instruction set, process); ValueError if the processor lacks the instructions."""
        return VERSION, _core.isa(), os.getpid()

    def solve(
        self,
        key: Any,
        shared: Any,
        recipe: tuple[Callable[..., _core.Stage], Any],
        units: npt.NDArray[Any],
        n: int,
    ) -> tuple[list[tuple[int, bytes]], float, float]:
        """Solve units with n threads: (results, seconds, core-seconds). `shared` is mapped, not copied."""
        begin, core_begin = time.perf_counter(), time.process_time()
        if key != self._key:
            self.forget()
            make, own = recipe
            self._stage, self._key = make(shared, *own), key
        assert self._stage is not None
        results: list[tuple[int, bytes]] = []
        self._stage.solve_for_others(units, n, results.extend)
        return results, time.perf_counter() - begin, time.process_time() - core_begin

    def forget(self) -> None:
        """Free the stage, and with it the data."""
        self._key = self._stage = None
