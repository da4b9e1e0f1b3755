"""Progress of a long call: reports to a callback, a bar on the terminal, records of `logging`."""

import contextlib
import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

#: Called as progress(phase, done, total), a few times a second and at the end of each phase; done and total
#: are in any unit, and a total of 0 stands for one that is not known yet. What the callback raises ends the
#: call.
Progress = Callable[[str, float, float], None]

LOG = logging.getLogger("bonsai_xmc")
NO_MEMORY = "not enough memory"  # what messages about it begin with


class memory_for:
    """A context that adds to a MemoryError what was being done: the core's is a bare std::bad_alloc.

    It is a class: a generator would take a fifth of the time that a single row's prediction takes.
    """

    __slots__ = ("_advice", "_doing")

    def __init__(self, doing: str, advice: str) -> None:
        self._doing, self._advice = doing, advice

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, where: Any) -> None:
        if isinstance(error, MemoryError) and not str(error).startswith(NO_MEMORY):
            raise MemoryError(f"{NO_MEMORY} {self._doing}; {self._advice}") from error


class Phases:
    """The phases of a long call, one after the other: each is timed, reported and logged."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self._together: str | None = None
        self._ended = False  # whether the last report of the phase was its end
        self.seconds: dict[str, float] = {}

    def name_of(self, phase: str) -> str:
        """Return the phase that this one is a part of, or its own name."""
        return phase if self._together is None else self._together

    def run(self, phase: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``call(*args, progress=…, **kwargs)``, which reports (done, total), as a phase."""
        result = self.run_part(phase, 0.0, 1.0, call, *args, **kwargs)
        self.end(phase)
        return result

    def run_part(
        self, phase: str, begin: float, end: float, call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Do as `run`, for a part of a phase: its share of the progress goes from `begin` to `end`."""
        report, together = self.progress, self._together
        ended = False

        def watch(done: float, total: float) -> None:
            assert report is not None
            nonlocal ended
            if together is not None:
                report(together, 0, 0)  # the progress of the whole is not known
            elif (begin, end) == (0.0, 1.0):
                report(phase, done, total)
                ended = 0 < total <= done
            else:
                report(phase, begin + (end - begin) * (done / total if total else 0.0), 1.0)

        start, within = time.perf_counter(), sum(self.seconds.values())
        where = f"in the phase {phase!r}" + ("" if together is None else f" of {together!r}")
        with memory_for(where, "memory_estimate(X, Y) returns what training takes"):
            result = call(*args, progress=None if report is None else watch, **kwargs)
        self._ended = ended
        if together is None:  # without the phases that were run within it
            elapsed = time.perf_counter() - start - (sum(self.seconds.values()) - within)
            self.seconds[phase] = self.seconds.get(phase, 0.0) + elapsed
        return result

    def end(self, phase: str) -> None:
        """End the phase."""
        if self._together is not None:
            return
        LOG.info("%s: %.2f s", phase, self.seconds.setdefault(phase, 0.0))
        if self.progress is not None and not self._ended:
            self.progress(phase, 1, 1)

    @contextlib.contextmanager
    def together(self, phase: str) -> Iterator[None]:
        """Make everything that is run inside one phase."""
        begin = time.perf_counter()
        self._together = phase
        try:
            yield
        finally:
            self._together = None
        self.seconds[phase] = time.perf_counter() - begin
        self._ended = False
        self.end(phase)


def phases_of(progress: Progress | bool | None) -> Phases:
    """Return phases that report to a callback, to a bar if it is True, or to nothing."""
    return Phases(progress if callable(progress) else ProgressBar() if progress else None)


class ProgressBar:
    """A `Progress` that draws a bar with the time left, and writes a line when a phase is over.

    Parameters
    ----------
    stream : text stream, optional
        Where to write; default: standard error. The bar is drawn on terminals only.
    lines : bool
        Leave a line with the time that it took for each finished phase, on a terminal or not.
    """

    def __init__(self, stream: TextIO | None = None, *, lines: bool = True) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._draws = self._stream.isatty()
        self._lines = lines
        self._phase = ""
        self._note = ""
        self._start = 0.0

    def __call__(self, phase: str, done: float, total: float) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self.finish()
            self._phase, self._start = phase, now
        if 0 < total <= done:
            self.finish()
        elif self._draws:
            self._write(f"\r{self._line(done, total, now - self._start)}\x1b[K")

    def note(self, text: str) -> None:
        """Show a text about the phase in place of the time left."""
        self._note = text

    def finish(self) -> None:
        """End the phase that is under way, if there is one; its bar disappears."""
        if not self._phase:
            return
        line = f"{self._phase:<14} {clock(time.monotonic() - self._start)}"
        line += f", {self._note}\n" if self._note else "\n"
        self._write(("\r\x1b[K" if self._draws else "") + (line if self._lines else ""))
        self._phase = self._note = ""

    def _line(self, done: float, total: float, elapsed: float) -> str:
        columns = shutil.get_terminal_size().columns
        if total <= 0:
            return f"{self._phase:<14} {clock(elapsed)}"[: columns - 1]
        width = min(40, max(10, columns - 50 - len(self._note)))
        bar = f"[{'=' * int(width * done / total):<{width}}]"
        line = f"{self._phase:<14} {bar} {int(100 * done / total):3d} %  {clock(elapsed)}"
        if self._note:
            line += f", {self._note}"
        elif done > 0:
            line += f", {clock(elapsed * (total - done) / done)} left"
        return line[: columns - 1]

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds, with hours if there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
