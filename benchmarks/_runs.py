"""Measured runs, shared by `compare` and `before_after`: data on disk, one process per task, accuracy, JSON.

How it is measured. Training: without reading text files, which only omikuji does and which has a column of
its own, and without saving, except for napkinXC, which saves while it trains. Memory: peak resident memory
of the training process, and its resident memory before training, with its libraries (without pandas, which
scikit-learn imports if it can) and, except for omikuji, the matrices. Throughput: the whole test set as one
batch, 5 labels per row, best of 5 (no further batch after a minute); omikuji through its C function from as
many Python threads. Single-row latency: one thread, 1000 rows one after another, p50 and p99, as called
from Python.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from reproduce import known
from sklearn.preprocessing import normalize

from bonsai_xmc import datasets, metrics

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
MATRICES = ("X_train", "Y_train", "X_test", "Y_test")
QUALITY = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
# Where a system has several prediction modes: the faster one, but the more accurate one of PECOS.
PREFERRED = {"pecos": "P@5"}

Run = dict[str, Any]


class Failure(Exception):
    """A process ended without a result; the text goes into the table."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def prepare(name: str, fresh: bool = False) -> Path:
    """Return the folder with the matrices of a data set: unit rows in float32, as .npz and as text."""
    folder = BUILD / "compare" / name.replace("*", "-x")
    ready = folder / "ready"
    if ready.exists() and not fresh:
        return folder
    say(f"{name}: preparing the data")
    data = generated(name) or known.load(name)
    folder.mkdir(parents=True, exist_ok=True)
    ready.unlink(missing_ok=True)
    for matrix in MATRICES:
        rows = sp.csr_matrix(getattr(data, matrix), dtype=np.float32)
        rows = normalize(rows) if matrix.startswith("X") else rows
        rows.sort_indices()
        sp.save_npz(folder / f"{matrix}.npz", rows, compressed=False)
    X, Y = (sp.csr_matrix(sp.load_npz(folder / f"{matrix}.npz")) for matrix in MATRICES[:2])
    text = folder / "train.txt"
    datasets.save_xc(text, X, Y)
    if not np.diff(X.indptr).all():  # omikuji rejects a line that ends in a space, as empty rows do
        text.write_bytes(text.read_bytes().replace(b" \n", b"\n"))
    ready.touch()
    return folder


def generated(name: str, **sizes: int) -> datasets.Dataset | None:
    """Return generated data of the shape "name" or "name*scale"; None if there is no such shape."""
    shape, _, scale = name.partition("*")
    if shape not in datasets.SHAPES:
        return None
    return datasets.make_xmc(shape, scale=float(scale or 1), **sizes, random_state=0)


def accuracy(name: str, folder: Path, ids_file: Path) -> dict[str, float]:
    shape = name.partition("*")[0]
    Y_train, Y_test = (sp.load_npz(folder / f"{matrix}.npz") for matrix in ("Y_train", "Y_test"))
    known = shape if shape in metrics.PROPENSITY else None
    scores = metrics.evaluate(Y_test, np.load(ids_file), Y_train=Y_train, dataset=known)
    return {measure: scores[measure] for measure in QUALITY}


def process(
    python: Path, task: str, row: str, folder: Path, work: Path, threads: int, seed: int, limit: float
) -> Any:
    """Run a system in a process by `python` and return its report; its output goes to a log file."""
    report, log = work / f"{task}.json", folder / f"{work.name}.{task}.log"
    script = Path(__file__).parent / "_system.py"
    arguments = [task, row, folder, work / "model", threads, seed, report]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with log.open("w") as output:
        child = subprocess.Popen(
            [python, script, *map(str, arguments)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"over {limit:.0f} s") from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if status:
        reason = signal.Signals(-status).name if status < 0 else last_line(log)
        raise Failure(f"{task} failed: {reason} ({log})")
    return json.loads(report.read_text())


def run(python: Path, name: str, row: str, seed: int, threads: int, limit: float, place: str = "") -> Run:
    """Train, predict and evaluate once; the result has an "error" if one of them failed.

    `place` tells apart runs of the same system by different interpreters.
    """
    folder = prepare(name)
    work = folder / f"{place}{row}-{seed}"
    shutil.rmtree(work, ignore_errors=True)
    (work / "model").mkdir(parents=True)
    result: Run = {"data": name, "system": row, "seed": seed, "threads": threads, "limit s": limit}
    result["date"] = now()
    try:
        result |= process(python, "train", row, folder, work, threads, seed, limit)
        result["added MB"] = result["peak MB"] - result["before MB"]
        modes = process(python, "predict", row, folder, work, threads, seed, limit)
        for mode in modes.values():
            mode |= accuracy(name, folder, work / mode.pop("ids"))
        measure = PREFERRED.get(row, "rows/s")
        chosen = max(modes, key=lambda mode: modes[mode][measure])
        result |= modes[chosen] | {"mode": chosen, "modes": modes}
    except Failure as failure:
        result["error"] = str(failure)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return result


def last_line(log: Path) -> str:
    """Return the last line of a log; progress bars end their lines with a carriage return."""
    lines = log.read_text(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "no output")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def markdown(header: list[str], body: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(threads: int) -> dict[str, Any]:
    """Return processor, threads, commit and date, which every table states."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "date": now(),
        "commit": commit(ROOT),
        "python": platform.python_version(),
    }


def commit(checkout: Path) -> str:
    git = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def save(path: Path, content: dict[str, Any]) -> None:
    """Update a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(load(path) | content, indent=1, ensure_ascii=False))
    part.replace(path)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
