"""A large data set, whole or in part: training by all threads, prediction by one and by all.

    python -m benchmarks.scale whole  # a twentieth of Amazon-3M; 2 GB, some five core-minutes
    python -m benchmarks.scale whole --shapes 'amazon-3m*0.05' 'amazon-3m*0.1' --models trees trees-0.1
    python -m benchmarks.scale whole --shapes amazon-670k --models trees one-vs-rest --found
    python -m benchmarks.scale whole --shapes amazon-3m --seconds 570 --record sixteen-cores/whole
    python -m benchmarks.scale whole --shapes 'amazon-3m*0.2' --models one-vs-rest --seconds 570

Each step runs in a process of its own and leaves its results in a folder: `data` generates rows, `train`
trains the models (three trees as `bonsai-i` has them, the same with `prune` 0.1 or with bounded clusters, and
one-vs-rest with its index), `measure` predicts. Steps that are done are not repeated: delete the folder to do
so. With --seconds, the call ends in time; the same command goes on where it ended, within a training by its
checkpoint, and times of its parts are added. Training: elapsed and CPU time, also by phase,
and the peak of resident memory, data included. Prediction: with one thread in CPU time, which other work on
the machine affects less than elapsed time, 8,192 rows as a batch (the fastest of three) and 1,000 single
rows; with all threads, 20,000 rows in elapsed time. --found adds the share of the five best labels of exact
search, for 512 rows. With several shapes, the last table has the exponents of growth by pairs of a row and a
label. --record stores the table for the documents; rows of other data and models stay as they are.
"""

import argparse
import json
import math
import multiprocessing
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from reproduce import known

from benchmarks import figures
from benchmarks._runs import generated, load, markdown, save
from benchmarks.scale.growth import _reset_peak, _resident
from bonsai_xmc import Bonsai, metrics
from bonsai_xmc._base.threads import threads_of

STEPS = ("data", "train", "measure")
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "trees": ("three trees", {"classifiers": "leaf", "balance": "none"}),
    "trees-0.1": ("three trees, prune=0.1", {"classifiers": "leaf", "balance": "none", "prune": 0.1}),
    "bounded": ("three trees, bounded clusters", {"classifiers": "leaf", "balance": "bounded"}),
    "one-vs-rest": ("one-vs-rest with an index", {"classifiers": "one_vs_rest", "threshold": 0.5}),
}
TITLES = {"amazon-3m": "Amazon-3M", "amazon-670k": "Amazon-670K", "wikilshtc-325k": "WikiLSHTC-325K"}
CHOICES = ("pruning", "threshold")  # phases that choose on held-out rows
N_TEST, N_BATCH, N_SINGLE, N_EXACT, REPEATS = 20_000, 8192, 1000, 512, 3
MEASURES = ("P@1", "P@3", "P@5", "PSP@5")
GROWING = ("CPU s", "peak GB", "model GB", "CPU ms a row")

Row = dict[str, Any]


class OutOfTimeError(Exception):
    """A step that did not end in time."""


def make_data(shape: str, folder: Path) -> None:
    begin = time.perf_counter()
    data = generated(shape, n_test=N_TEST) or known.load(shape)
    for name in ("X_train", "Y_train", "X_test", "Y_test"):
        rows = getattr(data, name)[: None if name.endswith("train") else N_TEST]
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(rows), compressed=False)
    save(folder / "data.json", {"seconds": time.perf_counter() - begin})
    print(f"{shape}: {data.X_train.shape[0]:,} rows, {data.Y_train.shape[1]:,} labels", end=", ")
    print(f"generated and written in {time.perf_counter() - begin:.0f} s", flush=True)


def matrix(folder: Path, name: str) -> sp.csr_array:
    return sp.csr_array(sp.load_npz(folder / f"{name}.npz"))


class Watch:
    """Progress of training that keeps the CPU time and the peak of memory of each phase."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.peak: dict[str, float] = {}
        self._phase, self._since = "reading", time.process_time()
        _reset_peak()

    def __call__(self, phase: str, done: float, total: float) -> None:
        now = time.process_time()
        self.cpu[phase] = self.cpu.get(phase, 0.0) + now - self._since
        self._since = now
        if phase != self._phase:
            self._see()
            self._phase = phase

    def _see(self) -> None:
        self.peak[self._phase] = max(self.peak.get(self._phase, 0.0), _resident("VmHWM") or 0.0)
        _reset_peak()

    def finish(self) -> None:
        self._see()
        self.cpu["rest"] = time.process_time() - self._since


def train(
    shape: str, folder: Path, name: str, threads: int, checkpoint: bool, max_memory: str | None
) -> None:
    X, Y = matrix(folder, "X_train"), matrix(folder, "Y_train")
    model, watch = Bonsai(**MODELS[name][1], n_jobs=threads), Watch()
    work = folder / f"{name}.work" if checkpoint else None
    so_far, earlier = folder / f"{name}.so-far.json", {"starts": 0, "seconds": 0.0, "cpu": {}, "peak": {}}
    if so_far.exists():
        earlier = load(so_far)
    begin = time.perf_counter()
    try:
        model.fit(X, Y, progress=watch, checkpoint=work, max_memory=max_memory or "auto")
    finally:
        watch.finish()
        for phase, cpu in earlier["cpu"].items():
            watch.cpu[phase] = watch.cpu.get(phase, 0.0) + cpu
        for phase, peak in earlier["peak"].items():
            watch.peak[phase] = max(watch.peak.get(phase, 0.0), peak)
        starts, seconds = earlier["starts"] + 1, earlier["seconds"] + time.perf_counter() - begin
        save(so_far, {"starts": starts, "seconds": seconds, "cpu": watch.cpu, "peak": watch.peak})
    begin = time.perf_counter()
    model.save(folder / f"{name}.bonsai")
    saving = time.perf_counter() - begin
    so_far.unlink()
    total = sum(watch.cpu.values())
    facts = {
        "threads": threads,
        "starts": starts,
        "pairs": Y.nnz,
        "training s": seconds,
        "saving s": saving,
        "CPU s": total,
        "choices %": 100 * sum(watch.cpu.get(phase, 0.0) for phase in CHOICES) / total,
        "peak GB": max(watch.peak.values()) / 1e3,
        "model GB": (folder / f"{name}.bonsai").stat().st_size / 1e9,
        "prune": model.fitted_.linear.strategy.prune,
        "phases s": model.timings_,
        "phases CPU s": watch.cpu,
        "phases peak MB": watch.peak,
        "evidence": model.fitted_.linear.strategy.evidence,
    }
    save(folder / f"{name}.json", facts)
    print(f"{shape}, {name}: {json.dumps(facts, indent=1)}", flush=True)


def measure(shape: str, folder: Path, name: str, threads: int, found: bool) -> None:
    X, Y, Y_train = (matrix(folder, part) for part in ("X_test", "Y_test", "Y_train"))
    model = Bonsai.load(folder / f"{name}.bonsai").set_params(n_jobs=threads)
    elapsed = best_of(time.perf_counter, lambda: model.top_k(X, 5))
    ids, _ = model.top_k(X, 5)
    facts = {m: v for m, v in metrics.evaluate(Y, ids, Y_train=Y_train).items() if m in MEASURES}
    if found:
        exact, _ = model.top_k(X[:N_EXACT], 5, exact=True)
        shared = [len(set(a) & set(b)) for a, b in zip(ids[:N_EXACT], exact, strict=True)]
        facts["found %"] = 100 * float(np.mean(shared)) / 5
    model.set_params(n_jobs=1)
    batch = X[:N_BATCH]
    cpu = best_of(time.process_time, lambda: model.top_k(batch, 5)) / batch.shape[0]
    rows = [X[[i]] for i in range(min(N_SINGLE, X.shape[0]))]
    single = [1e3 * seconds_of(time.process_time, lambda row=row: model.top_k(row, 5)) for row in rows]
    p50, p99 = np.quantile(single, [0.5, 0.99])
    facts |= {
        "CPU ms a row": 1e3 * cpu,
        "rows/s, 1 thread": 1 / cpu,
        "rows/s, all threads": X.shape[0] / elapsed,
        "one row, p50 / p99 ms": f"{p50:.2f} / {p99:.2f}",
    }
    forest = model.fitted_.linear.core.trees
    if forest is not None:
        weights, arrays = n_weights(forest), forest.arrays()
        facts["weights a label"] = weights / np.count_nonzero(np.bincount(Y_train.indices))
        facts["bytes a weight"] = (arrays["records"].nbytes + arrays["buckets"].nbytes) / weights
    save(folder / f"{name}.json", facts)


def n_weights(forest: Any) -> float:
    """The weights of all nodes; of the leaves, every eighth is counted."""
    is_leaf = forest.arrays()["is_leaf"].astype(bool)
    leaves = np.flatnonzero(is_leaf)
    count = lambda nodes: sum(len(forest.weights(node)[0]) for node in nodes.tolist())
    sampled = leaves[::8]
    return float(count(np.flatnonzero(~is_leaf)) + count(sampled) * len(leaves) / len(sampled))


def seconds_of(clock: Callable[[], float], call: Callable[[], Any]) -> float:
    begin = clock()
    call()
    return clock() - begin


def best_of(clock: Callable[[], float], call: Callable[[], Any]) -> float:
    return min(seconds_of(clock, call) for _ in range(REPEATS))


def row_of(shape: str, folder: Path, name: str) -> Row:
    """The row of the table in the documents."""
    facts = load(folder / f"{name}.json")
    base, _, scale = shape.partition("*")
    with np.load(folder / "Y_train.npz") as stored:
        rows, labels = stored["shape"]
    title = TITLES.get(base, base) + (f" × {scale}" if scale else "")
    row: Row = {"data": f"{title}, generated: {rows:,} rows, {labels:,} labels", "model": MODELS[name][0]}
    left_out = ("phases s", "phases CPU s", "phases peak MB", "evidence")
    return row | {name: value for name, value in facts.items() if name not in left_out}


def exponent(rows: list[Row], name: str) -> str:
    """The slope of log(value) over log(pairs), by least squares."""
    pairs, values = (np.log([row[of] for row in rows]) for of in ("pairs", name))
    return f"{np.polyfit(pairs, values, 1)[0]:.2f}"


def shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def report(rows: list[Row]) -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    body = [[column, *(shown(row.get(column, "–")) for row in rows)] for column in columns[1:]]
    print("\n" + markdown(["", *(row["data"] for row in rows)], body), flush=True)
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model and all(name in row for name in GROWING)]
        if len(mine) > 1:
            slopes = ", ".join(f"{name} {exponent(mine, name)}" for name in GROWING)
            print(f"\n{model}: exponents of growth by pairs: {slopes}")


def in_fresh_process(end: float, step: Callable[..., None], *args: Any) -> None:
    left = end - time.monotonic()
    if left <= 0:
        raise OutOfTimeError
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(in_time, (left, step, *args))


def in_time(seconds: float, step: Callable[..., None], *args: Any) -> None:
    """Call; raise OutOfTimeError after so many seconds."""

    def end(*_: Any) -> None:
        raise OutOfTimeError

    signal.signal(signal.SIGALRM, end)
    if seconds < math.inf:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    step(*args)


def do_steps(args: argparse.Namespace, shape: str, folder: Path, end: float) -> None:
    """Do the steps of a shape that are not done."""
    folder.mkdir(parents=True, exist_ok=True)
    if "data" in args.steps and not (folder / "data.json").exists():
        in_fresh_process(end, make_data, shape, folder)
    for name in args.models:
        facts = folder / f"{name}.json"
        if "train" in args.steps and not facts.exists():
            checkpoint = args.checkpoint or args.seconds < math.inf
            in_fresh_process(end, train, shape, folder, name, args.threads, checkpoint, args.max_memory)
        if "measure" in args.steps and "P@1" not in load(facts):
            in_fresh_process(end, measure, shape, folder, name, args.threads, args.found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--shapes", nargs="+", default=["amazon-3m*0.05"], metavar="NAME*SCALE")
    add("--models", nargs="+", choices=list(MODELS), default=["trees"])
    add("--steps", nargs="*", choices=STEPS, default=STEPS)
    add("--folder", type=Path, default=Path("build/whole"))
    add("--threads", type=int, default=threads_of(None))
    add("--checkpoint", action="store_true", help="train with one, in the folder; it is not deleted")
    add("--max-memory", help="of training, as `bonsai train` takes it")
    add("--seconds", type=float, default=math.inf, help="end in time; the same command goes on, if need be")
    add("--found", action="store_true", help="compare with exact search, too")
    add("--record", metavar="MACHINE/TABLE", help="store the figures in benchmarks/results")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    folders = {shape: args.folder / shape.replace("*", "-x") for shape in args.shapes}
    try:
        for shape, folder in folders.items():
            do_steps(args, shape, folder, end)
    except OutOfTimeError:
        print("out of time: the same command goes on", flush=True)
    done = [(shape, name) for shape in folders for name in args.models]
    done = [(shape, name) for shape, name in done if (folders[shape] / f"{name}.json").exists()]
    table = [row_of(shape, folders[shape], name) for shape, name in done]
    if table:
        report(table)
    if args.record:
        machine, _, name = args.record.partition("/")
        command = f"python -m benchmarks.scale whole {shlex.join(sys.argv[1:])}"
        figures.record(machine, name, command, table, beside=("data", "model"))


if __name__ == "__main__":
    main()
