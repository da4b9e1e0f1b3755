"""The command line ``bonsai``: a module for each verb, which translates options into calls.

Results go to standard output; progress, warnings and at most one ``bonsai: error: …`` to standard error.
Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 output pipe closed, 143 terminated.

A verb is a module with ``SUMMARY``, ``EXAMPLES``, ``add_options(parser)`` and ``run(args)``, in the table
`parser.VERBS`. All imports outside ``run`` are light: help, usage errors and completion need neither NumPy
nor the core.
"""

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

_SILENT = 1.0  # seconds of CPU time within which an interrupt needs no message


class UsageError(ValueError):
    """A command with wrong usage; exit code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``--help`` and wrong usage exit from within."""
    ended: list[int] = []  # signals, as libraries may replace the exception
    args: Any = None
    try:
        with _ending_on_signals(ended), warnings.catch_warnings():
            from .parser import parse

            warnings.showwarning = lambda message, *_: print(f"bonsai: warning: {message}", file=sys.stderr)
            args = parse(argv)
            args.verb.run(args)
            sys.stdout.flush()
    except BrokenPipeError:
        # otherwise Python reports the error again when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (KeyboardInterrupt, Exception) as error:
        if ended or isinstance(error, KeyboardInterrupt):
            return _stopped(args, signal.SIGTERM in ended)
        return _failed(args, error)
    return 0


@contextlib.contextmanager
def _ending_on_signals(ended: list[int]) -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that no file stays half-written."""

    def end(number: int, _: object) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if before[signal.SIGINT] is not signal.default_int_handler:  # ignored, as for background jobs of a script
        del before[signal.SIGINT]
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped(args: Any, terminated: bool) -> int:
    import time

    how = "terminated" if terminated else "interrupted"
    if getattr(args, "checkpoint", None):
        how += f"; the same command continues from {args.checkpoint}"
    if args is not None and time.process_time() > _SILENT:
        _say(args, f"bonsai: {how}")
    return 143 if terminated else 130


def _failed(args: Any, error: Exception) -> int:
    text = _one_line(error)
    if isinstance(error, MemoryError):
        from bonsai_xmc._base.progress import NO_MEMORY

        text = text if text.startswith(NO_MEMORY) else f"{NO_MEMORY} ({text})"
    elif not isinstance(error, ValueError | OSError | ImportError):
        raise error
    _say(args, f"bonsai: error: {text}")
    return 2 if isinstance(error, UsageError) else 1


def _say(args: Any, line: str) -> None:
    if args is not None and args.progress is not None:
        args.progress.finish()
    print(line, file=sys.stderr)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        from bonsai_xmc._base.hints import similar_file

        missing = isinstance(error, FileNotFoundError) and isinstance(error.filename, str)
        return f"{error.filename}: {error.strerror}" + (similar_file(error.filename) if missing else "")
    return " ".join(str(error).split()) or type(error).__name__
