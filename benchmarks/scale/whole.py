"""A large data set, whole or in part: training by all threads, prediction by one and by all.

    python -m benchmarks.scale whole  # a twentieth of Amazon-3M; 2 GB, some five core-minutes
    python -m benchmarks.scale whole --shapes 'amazon-3m*0.05' 'amazon-3m*0.1' --models trees trees-0.1
    python -m benchmarks.scale whole --shapes amazon-670k --models trees one-vs-rest --found
    python -m benchmarks.scale whole --shapes amazon-3m --steps train --checkpoint --max-memory 20G
    python -m benchmarks.scale whole --shapes amazon-3m --steps measure --record sixteen-cores/amazon-3m

Steps leave their results in a folder, so that they can be run one by one, each in a process of its own:
`data` generates rows, `train` trains the models (three trees as `bonsai-i` has them, the same with `prune`
0.1, and one-vs-rest with its index), `measure` predicts. Training: elapsed and CPU time, also by phase,
and the peak of resident memory, data included. Prediction: with one thread in CPU time, which other work on
the machine affects less than elapsed time, 8,192 rows as a batch (the fastest of three) and 1,000 single
rows; with all threads, 20,000 rows in elapsed time. --found adds the share of the five best labels of exact
search, for 512 rows. With several shapes, the last table has the exponents of growth by pairs of a row and a
label. --record stores the table for the documents; rows of other data and models stay as they are.
"""

import argparse
import json
import multiprocessing
import shlex
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
    "one-vs-rest": ("one-vs-rest with an index", {"classifiers": "one_vs_rest", "threshold": 0.5}),
}
TITLES = {"amazon-3m": "Amazon-3M", "amazon-670k": "Amazon-670K", "wikilshtc-325k": "WikiLSHTC-325K"}
CHOICES = ("pruning", "threshold")  # phases that choose on held-out rows
N_TEST, N_BATCH, N_SINGLE, N_EXACT, REPEATS = 20_000, 8192, 1000, 512, 3
MEASURES = ("P@1", "P@3", "P@5", "PSP@5")
GROWING = ("CPU s", "peak GB", "model GB", "CPU ms a row")

Row = dict[str, Any]


def make_data(shape: str, folder: Path) -> None:
    begin = time.perf_counter()
    data = generated(shape, n_test=N_TEST) or known.load(shape)
    for name in ("X_train", "Y_train", "X_test", "Y_test"):
        rows = getattr(data, name)[: None if name.endswith("train") else N_TEST]
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(rows), compressed=False)
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
    begin = time.perf_counter()
    model.fit(X, Y, progress=watch, checkpoint=work, max_memory=max_memory or "auto")
    seconds = time.perf_counter() - begin
    watch.finish()
    begin = time.perf_counter()
    model.save(folder / f"{name}.bonsai")
    saving = time.perf_counter() - begin
    total = sum(watch.cpu.values())
    facts = {
        "threads": threads,
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


def in_fresh_process(step: Callable[..., None], *args: Any) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(step, args)


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
    add("--found", action="store_true", help="compare with exact search, too")
    add("--record", metavar="MACHINE/TABLE", help="store the figures in benchmarks/results")
    args = parser.parse_args()
    table = []
    for shape in args.shapes:
        folder = args.folder / shape.replace("*", "-x")
        folder.mkdir(parents=True, exist_ok=True)
        if "data" in args.steps:
            in_fresh_process(make_data, shape, folder)
        for name in args.models:
            if "train" in args.steps:
                in_fresh_process(train, shape, folder, name, args.threads, args.checkpoint, args.max_memory)
            if "measure" in args.steps:
                in_fresh_process(measure, shape, folder, name, args.threads, args.found)
            if (folder / f"{name}.json").exists():
                table.append(row_of(shape, folder, name))
    if table:
        report(table)
    if args.record:
        machine, _, name = args.record.partition("/")
        command = f"python -m benchmarks.scale whole {shlex.join(sys.argv[1:])}"
        figures.record(machine, name, command, table, beside=("data", "model"))


if __name__ == "__main__":
    main()
