"""The execution of the stages of training: results come from a checkpoint, or else from a runner.

Imports the core for its models, which predict as a phase.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import Phases
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._training.checkpoint import Checkpoint, Stored
from bonsai_xmc._training.recipes import Recipe

Watch = Callable[[float, float], None] | None  # (done, total)
Save = Callable[[list[tuple[int, bytes | memoryview]]], None] | None  # (unit, result) of some units


class Runner(Protocol):
    """An object that solves units of a stage."""

    def solve(
        self, stage: _core.Stage, recipe: Recipe, units: Array, threads: int, progress: Watch, save: Save
    ) -> None:
        """Solve `units` so that `stage` has all of them; `save` gets each result, if it is not None.

        ``recipe.prepare(stage)`` must be called before ``stage.solve``.
        """


class Threads:
    """A runner that solves units in threads of this process."""

    def solve(
        self, stage: _core.Stage, recipe: Recipe, units: Array, threads: int, progress: Watch, save: Save
    ) -> None:
        """See `Runner`."""
        recipe.prepare(stage)
        stage.solve(units, threads, progress, save)


class Work:
    """The means of a long call: threads, runner, checkpoint and progress."""

    def __init__(
        self,
        threads: int,
        phases: Phases | None = None,
        runner: Runner | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.threads = threads
        self.limit({})
        self.phases = Phases(None) if phases is None else phases
        self._runner: Runner = Threads() if runner is None else runner
        self._checkpoint = checkpoint
        self._n_stages = 0

    def limit(self, fewer: Mapping[str, int], batch_rows: int | None = None) -> None:
        """Give some phases fewer threads, and predict so many rows at once, from here on."""
        self._fewer, self._batch_rows = fewer, batch_rows

    def threads_for(self, phase: str) -> int:
        """Return the threads of a phase, or of the one that it is a part of."""
        return min(self.threads, self._fewer.get(self.phases.name_of(phase), self.threads))

    def predict(self, model: Any, rows: Rows, k: int, **options: Any) -> tuple[Array, Array]:
        """Call ``top_k`` of the core's model or of a ranker as a phase; in parts where memory is short.

        The core's model scores whatever it can find, unless `options` narrow its search.
        """
        threads, is_core = self.threads_for("predict"), isinstance(model, _core.Model)
        options = ({"beam_size": 0, "exact": False, "n_probe": 0} if is_core else {}) | options
        parts = [
            self.run(
                "predict", model.top_k, part.to_core() if is_core else part, k, threads=threads, **options
            )
            for part in rows.batches(self._batch_rows or max(1, rows.n_rows))
        ]
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(p) for p in zip(*parts, strict=True))  # type: ignore[return-value]

    def run(self, phase: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a phase that is a single call, and is repeated where training continues."""
        return self.phases.run(phase, call, *args, **kwargs)

    def solve(
        self,
        phase: str,
        stage: _core.Stage,
        recipe: Callable[[], Recipe],
        *,
        keep: bool = True,
        part: tuple[float, float] | None = None,
        finish: Callable[[Stored | None], Any] | None = None,
    ) -> Any:
        """Solve all units of a stage; return what `finish` returns.

        Parameters
        ----------
        recipe : callable
            Called if units are missing.
        keep : bool
            Whether results go to the checkpoint. Those that are quick to solve need not.
        part : pair of numbers between 0 and 1
            The share of the phase's progress; the phase continues after it.
        finish : callable, optional
            Finishes a stage of classifiers, whose weights are in the checkpoint alone if it has their place.
        """
        stored = None
        with contextlib.ExitStack() as stack:
            save: Save = None
            if self._checkpoint is not None and keep and stage.n_units:
                # The sequence of these stages follows from the data and the parameters: so do the numbers.
                self._n_stages += 1
                log = stack.enter_context(
                    self._checkpoint.stage(f"{self._n_stages:04d} {phase}", stage.n_units)
                )
                if isinstance(stage, _core.ClassifierStage) and finish is not None and stage.leave_weights():
                    stored = log.stored
                for unit, result in log.results():
                    stage.add(unit, result)
                save = log.save
            missing = np.ascontiguousarray(stage.missing())

            def solve(progress: Watch) -> None:
                if len(missing):
                    self._runner.solve(stage, recipe(), missing, self.threads_for(phase), progress, save)

            self.phases.run_part(phase, *(part or (0.0, 1.0)), solve)
            if part is None:
                self.phases.end(phase)
            return None if finish is None else finish(stored)
