"""Targets in Python: an input that was changed at random is refused by a ValueError, or gives a valid result.

    .venv/bin/python tests/fuzz/targets.py documents --runs 10000     # inputs 0, 1, …
    .venv/bin/python tests/fuzz/targets.py documents --only 4711      # one input again, with its traceback

`make fuzz` runs them, and `tests/test_fuzz.py` the first inputs of each. A target is a function of a folder
that returns ``attempt(rng)``, which makes an input, uses it, and says whether it was accepted. The number of
an input determines it. Any exception but ValueError, the end of the process, a minute of CPU time and
a gibibyte of memory are findings.
"""

import argparse
import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz import calls, data, models
from fuzz.mutate import Attempt

SECONDS = 60  # of the CPU, for one input
MEMORY_FOLDER = "/dev/shm"  # files there need no disk
MEMORY = 1 << 30  # beyond what the process has when the first input is made

TARGETS = {
    "header": models.header,
    "model": models.model,
    "foreign": models.foreign,
    "documents": data.documents,
    "matrices": data.matrices,
    "rows": data.rows,
    "labels": data.labels,
    "checkpoint": models.checkpoint,
    "commands": calls.commands,
    "requests": calls.requests,
}


def accepted(attempt: Attempt, target: str, number: int) -> bool:
    """Make an input by its number and use it; whether it was accepted. What is no ValueError is raised."""
    rng = np.random.default_rng([zlib.crc32(target.encode()), number])
    try:
        return attempt(rng)
    except ValueError:
        return False


def place_of(error: BaseException) -> str:
    """Return the innermost line of the package that an error passed through; findings differ by it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "bonsai_xmc" in f.filename]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "targets.py"
    return f"{type(error).__name__} at {where}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=1000, help="inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, help="one input")
    parser.add_argument(
        "--state", type=Path, default=os.devnull, help="file for the number of the input in use"
    )
    arguments = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})  # short calls gain nothing by threads
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if os.path.isdir(MEMORY_FOLDER) else None) as folder:
        attempt = TARGETS[arguments.target](Path(folder))
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        if "asan" not in os.environ.get("LD_PRELOAD", ""):
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        if arguments.only is not None:
            print("accepted" if accepted(attempt, arguments.target, arguments.only) else "refused")
            return
        sys.exit(0 if _fuzz(attempt, arguments) else 1)


def _fuzz(attempt: Attempt, arguments: argparse.Namespace) -> bool:
    """Make inputs, print a line about them, and each kind of finding once; whether there was none."""
    n_accepted, used, found = 0, time.process_time(), set[str]()
    state = os.open(arguments.state, os.O_WRONLY | os.O_CREAT)
    faulthandler.register(signal.SIGPROF, chain=True)  # after the traceback, the signal ends the process
    for number in range(arguments.first, arguments.first + arguments.runs):
        os.pwrite(state, b"%-12d" % number, 0)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            n_accepted += accepted(attempt, arguments.target, number)
        except Exception as error:
            if (place := place_of(error)) not in found:
                found.add(place)
                print(f"FOUND by --only {number}: {place}: {error!r:.300}", flush=True)
    signal.setitimer(signal.ITIMER_PROF, 0)
    used = time.process_time() - used
    print(f"{arguments.runs:,} inputs, {n_accepted:,} accepted, {used:,.2f} CPU seconds")
    return not found


if __name__ == "__main__":
    main()
