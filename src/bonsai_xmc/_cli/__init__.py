"""The command line ``bonsai``: translates options into calls. A module for each command.

Results go to standard output; progress, warnings and at most one ``bonsai: error: …`` to standard error.
Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output went away,
143 terminated.
"""

import argparse
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence

from bonsai_xmc._base.progress import NO_MEMORY, ProgressBar

from . import (
    calibrate,
    convert,
    demo,
    evaluate,
    explain,
    import_,
    info,
    labels,
    learn,
    predict,
    serve,
    train,
)
from .arguments import make_parser
from .io import UsageError

_COMMANDS = {
    "train": train.run,
    "predict": predict.run,
    "explain": explain.run,
    "evaluate": evaluate.run,
    "calibrate": calibrate.run,
    "learn": learn.run,
    "info": info.run,
    "labels": labels.run,
    "convert": convert.run,
    "import": import_.run,
    "serve": serve.run,
    "demo": demo.run,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``--help`` and wrong usage exit from within."""
    args = make_parser().parse_args(argv)
    args.progress = ProgressBar(lines=False) if sys.stderr.isatty() and not args.quiet else None
    terminated = threading.Event()
    try:
        _end_on_sigterm(terminated)
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"bonsai: warning: {message}", file=sys.stderr)
            _COMMANDS[args.command](args)
            sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        how = "terminated" if terminated.is_set() else "interrupted"
        if getattr(args, "checkpoint", None):
            how += f"; the same command continues from {args.checkpoint}"
        return _fail(args, f"bonsai: {how}", 143 if terminated.is_set() else 130)
    except MemoryError as error:
        text = _one_line(error)
        return _fail(
            args, f"bonsai: error: {text if text.startswith(NO_MEMORY) else f'{NO_MEMORY} ({text})'}", 1
        )
    except UsageError as error:
        return _fail(args, f"bonsai: error: {_one_line(error)}", 2)
    except (ValueError, OSError, ImportError) as error:
        return _fail(args, f"bonsai: error: {_one_line(error)}", 1)
    return 0


def _end_on_sigterm(terminated: threading.Event) -> None:
    """SIGTERM ends a command as Ctrl-C does, so that nothing is left half-written."""

    def end(*_: object) -> None:
        terminated.set()  # libraries replace the exception by one of their own
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def _fail(args: argparse.Namespace, line: str, code: int) -> int:
    if args.progress is not None:
        args.progress.finish()
    print(line, file=sys.stderr)
    return code


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
