"""How far a long call is, for people who wait: a bar with the time left, and a line when a phase is over."""

import shutil
import sys
import time
from typing import TextIO


class ProgressBar:
    """Takes reports ``(phase, done, total)``, in any unit; a total of 0 means that it is not known yet.

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

    def finish(self) -> None:
        """End the phase that is under way, if there is one; its bar disappears."""
        if not self._phase:
            return
        line = f"{self._phase:<14} {_clock(time.monotonic() - self._start)}\n" if self._lines else ""
        self._write(("\r\x1b[K" if self._draws else "") + line)
        self._phase = ""

    def _line(self, done: float, total: float, elapsed: float) -> str:
        columns = shutil.get_terminal_size().columns
        if total <= 0:
            return f"{self._phase:<14} {_clock(elapsed)}"[: columns - 1]
        width = min(40, max(10, columns - 50))
        bar = f"[{'=' * int(width * done / total):<{width}}]"
        line = f"{self._phase:<14} {bar} {int(100 * done / total):3d} %  {_clock(elapsed)}"
        if done > 0:
            line += f", {_clock(elapsed * (total - done) / done)} left"
        return line[: columns - 1]

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
