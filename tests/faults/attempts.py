"""Run operations of which one call fails; in a process that was started with `shim.cpp` before all libraries.

    LD_PRELOAD=shim.so python attempts.py FOLDER MOST

Each attempt is a forked process. It ends with the exit code

    0   the result is right although the call failed
    3   a MemoryError (of allocations) or an OSError (of others); nothing is half-written, and the same
        operation gives the right result afterwards
    4   anything else, which is printed

or by a signal. At most MOST of the calls of an operation fail, evenly spread. A line is printed for each
operation and kind of call: both names, the number of calls, and the exit codes. The kinds "killed at …" end
the process at the call instead, and another process goes on.
"""

import ctypes
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bonsai_xmc import Bonsai, TextBonsai, datasets
from bonsai_xmc.systems import FastXML

SHIM = ctypes.CDLL(None)
CALLS = {"allocation": 0, "write": 1, "fsync": 2, "rename": 3, "thread": 4}
KILLED = "killed at "

FOLDER = Path(sys.argv[1])
DATA = datasets.make_xmc(
    n_rows=150, n_test=20, n_features=80, n_labels=40, features_per_row=10, random_state=0
)
TEXTS = datasets.make_texts(80, n_test=5, random_state=0)
PARAMS = {
    "leaf": {"classifiers": "leaf", "branching_factor": 6},
    "index": {"classifiers": "one_vs_rest", "search": "index"},
    "blend": {"classifiers": "blend", "search": "index", "branching_factor": 6},
}


def model(kind: str, n_jobs: int = 1) -> Bonsai:
    return Bonsai(**PARAMS[kind], threshold=0.5, n_jobs=n_jobs)


def bytes_of(fitted: Any) -> bytes:
    fitted.save(FOLDER / "result")
    return (FOLDER / "result").read_bytes()


def fit(kind: str, n_jobs: int = 1, **options: Any) -> Callable[[], Any]:
    return lambda: model(kind, n_jobs).fit(DATA.X_train, DATA.Y_train, **options)


# --- operations: what is done, and what its result is as bytes ---

_FITTED = {kind: fit(kind, keep_rows=kind == "index")() for kind in PARAMS}
_FITTED["index"].save(FOLDER / "model")
_OTHER = _FITTED["index"].drop([3])
_TEXT_MODEL = TextBonsai(classifier=model("leaf")).fit(TEXTS.texts_train, TEXTS.labels_train)
_MANY = DATA.X_test[np.repeat(np.arange(20), 200)]


def _ranked(fitted: Any, X: Any) -> bytes:
    ids, scores = fitted.top_k(X, 5)
    return ids.tobytes() + scores.tobytes()


def _save() -> None:
    _FITTED["index"].save(FOLDER / "model")


def _whole_file(_: Any) -> bytes:
    """The file is either the older one or the new one, complete."""
    data = (FOLDER / "model").read_bytes()
    Bonsai.load(FOLDER / "model", mmap=False, verify=True)
    return data


Operation = tuple[Callable[[], Any], Callable[[Any], bytes]]
OPERATIONS: dict[str, Operation] = {
    "fit leaf": (fit("leaf"), bytes_of),
    "fit index": (fit("index"), bytes_of),
    "fit threads": (fit("index", n_jobs=3), bytes_of),
    "fit system": (
        lambda: FastXML(n_trees=2, threshold=0.5, n_jobs=1).fit(DATA.X_train, DATA.Y_train),
        bytes_of,
    ),
    "fit texts": (
        lambda: TextBonsai(classifier=model("leaf")).fit(TEXTS.texts_train, TEXTS.labels_train),
        bytes_of,
    ),
    "predict": (
        lambda: _FITTED["leaf"].top_k(_MANY, 5),
        lambda found: found[0].tobytes() + found[1].tobytes(),
    ),
    "predict texts": (lambda: _TEXT_MODEL.top_k(TEXTS.texts_test, 3), lambda found: found[1].tobytes()),
    "edit": (lambda: _FITTED["index"].drop([1]).merge([2, 3], 2), bytes_of),
    "learn": (lambda: _FITTED["index"].learn(DATA.X_test, DATA.Y_test), bytes_of),
    "explain": (lambda: str(_FITTED["leaf"].explain(DATA.X_test[[0]], 3)), str.encode),
    "save": (_save, _whole_file),
    "load": (
        lambda: Bonsai.load(FOLDER / "model", mmap=False, verify=True),
        lambda m: _ranked(m, DATA.X_test),
    ),
    "checkpoint": (
        lambda: fit("blend", checkpoint=FOLDER / "checkpoint")(),
        bytes_of,
    ),
}


# Which calls of which operations fail.
CASES = [
    *(("allocation", name) for name in OPERATIONS if name != "checkpoint"),
    *(("thread", name) for name in ("fit threads", "predict", "learn")),
    *(
        (kind, name)
        for kind in ("write", "fsync", "rename", f"{KILLED}write", f"{KILLED}fsync", f"{KILLED}rename")
        for name in ("save", "checkpoint")
    ),
]


def prepare(name: str) -> None:
    """Put the files of an operation into the state before it."""
    if name == "save":
        _OTHER.save(FOLDER / "model")
    if name == "checkpoint":
        for path in (FOLDER / "checkpoint").glob("*"):
            path.unlink()


def attempt(name: str, kind: str, nth: int, expected: bytes, kill: bool) -> int:
    operation, result = OPERATIONS[name]
    allowed = MemoryError if kind == "allocation" else OSError
    older = (FOLDER / "model").read_bytes() if name == "save" else b""
    try:
        SHIM.faults_arm(CALLS[kind], ctypes.c_long(nth), kill)
        try:
            found = operation()
        except allowed:
            SHIM.faults_disarm()
            if name == "save" and _whole_file(None) not in (older, expected):
                return 4
            return 3 if result(operation()) == expected else 4
        SHIM.faults_disarm()
        return 0 if result(found) == expected else 4
    except BaseException:
        SHIM.faults_disarm()
        traceback.print_exc()
        return 4


def in_child(run: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        code = 4
        try:
            code = run()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def continued(name: str, expected: bytes) -> int:
    """After a kill: files are complete, and the same operation gives the right result."""
    operation, result = OPERATIONS[name]
    if name == "save":
        _whole_file(None)
    return 3 if result(operation()) == expected else 4


def count(name: str, kind: str) -> int:
    """Return the number of calls of an operation."""
    reader, writer = os.pipe()

    def run() -> int:
        SHIM.faults_arm(CALLS[kind], ctypes.c_long(-1), 0)
        OPERATIONS[name][0]()
        os.write(writer, b"%d" % SHIM.faults_disarm())
        return 0

    prepare(name)
    assert in_child(run) == 0
    return int(os.read(reader, 20))


def run(kind: str, name: str, most: int) -> tuple[int, list[int]]:
    """Return the number of calls of an operation, and how the attempts in which one failed ended."""
    kill, kind = kind.startswith(KILLED), kind.removeprefix(KILLED)
    operation, result = OPERATIONS[name]
    for _ in range(2):  # the first one imports what is imported late
        prepare(name)
        expected = result(operation())
    n = count(name, kind)
    codes = []
    for nth in np.unique(np.linspace(0, n - 1, min(n, most)).astype(int)).tolist() if n else []:
        prepare(name)
        code = in_child(lambda nth=nth: attempt(name, kind, nth, expected, kill))
        codes.append(in_child(lambda: continued(name, expected)) if kill and code == -9 else code)
    return n, codes


def main() -> None:
    SHIM.faults_disarm.restype = ctypes.c_long
    for kind, name in CASES:
        n, codes = run(kind, name, int(sys.argv[2]))
        print(kind, name, n, *codes, sep="\t", flush=True)


if __name__ == "__main__":
    main()
