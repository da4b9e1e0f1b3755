"""The whole shape of a large data set: training by all threads, prediction by one.

    python -m benchmarks.scale whole  # amazon-670k; about 14 GB, an hour on two cores
    python -m benchmarks.scale whole --shape 'amazon-670k*0.2'
    python -m benchmarks.scale whole --folder /tmp/whole --step data one-vs-rest measure

Steps leave their results in a folder, so that they can be run one by one: `data` generates rows, `trees` and
`one-vs-rest` (with its index) train, `measure` predicts. "core min" is the CPU time of training. Prediction
is measured with one thread: batches, the fastest of three, and single rows; then batches with all threads.
"found" is the share of the five best labels of exact search.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from reproduce import known

from benchmarks._runs import generated, markdown
from bonsai_xmc import Bonsai, metrics
from bonsai_xmc._base.threads import threads_of

STEPS = ("data", "trees", "one-vs-rest", "measure")
MODELS: dict[str, dict[str, Any]] = {
    "trees": {"classifiers": "leaf", "threshold": 0.5},
    "one-vs-rest": {"classifiers": "one_vs_rest", "threshold": 0.5},
}
N_BATCH, N_SINGLE, N_EXACT, REPEATS = 8192, 1000, 512, 3


def make_data(shape: str, folder: Path) -> None:
    begin = time.perf_counter()
    data = generated(shape) or known.load(shape)
    rows = {"X_train": data.X_train, "Y_train": data.Y_train}
    rows |= {"X_test": data.X_test[:N_BATCH], "Y_test": data.Y_test[:N_BATCH]}
    for name, matrix in rows.items():
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(matrix), compressed=False)
    print(f"{shape}: {data.X_train.shape[0]:,} rows, {data.Y_train.shape[1]:,} labels", end=", ")
    print(f"generated in {time.perf_counter() - begin:.0f} s", flush=True)


def load(folder: Path) -> dict[str, Any]:
    return {p.stem: sp.csr_array(sp.load_npz(p)) for p in folder.glob("*.npz")}


def train(name: str, folder: Path, threads: int) -> None:
    data = load(folder)
    model = Bonsai(**MODELS[name], n_jobs=threads)
    begin, cpu = time.perf_counter(), time.process_time()
    model.fit(data["X_train"], data["Y_train"])
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    model.save(folder / f"{name}.bonsai")
    facts = {
        "training s": seconds,
        "core min": cpu / 60,
        "phases": model.timings_,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "model GB": (folder / f"{name}.bonsai").stat().st_size / 1e9,
        "threads": threads,
    }
    (folder / f"{name}.json").write_text(json.dumps(facts))
    print(f"{name}: {facts}", flush=True)


def measure(folder: Path, threads: int) -> None:
    data = load(folder)
    X, Y = data["X_test"], data["Y_test"]
    table = []
    for name in MODELS:
        if not (folder / f"{name}.bonsai").exists():
            continue
        facts = json.loads((folder / f"{name}.json").read_text())
        model = Bonsai.load(folder / f"{name}.bonsai").set_params(n_jobs=1)
        ids, seconds = best_of(lambda model=model: model.top_k(X, 5)[0])
        latencies = []
        for i in range(N_SINGLE):
            row = X[[i]]
            begin = time.perf_counter()
            model.top_k(row, 5)
            latencies.append(1e3 * (time.perf_counter() - begin))
        exact = model.top_k(X[:N_EXACT], 5, exact=True)[0]
        found = np.mean([len(set(a) & set(b)) for a, b in zip(ids, exact, strict=False)]) / 5
        of_exact = metrics.evaluate(Y[:N_EXACT], exact, Y_train=data["Y_train"])
        of_found = metrics.evaluate(Y[:N_EXACT], ids[:N_EXACT], Y_train=data["Y_train"])
        _, all_threads = best_of(lambda model=model: model.set_params(n_jobs=threads).top_k(X, 5)[0])
        row = [name, f"{facts['training s']:.0f} s, {facts['core min']:.1f}", f"{facts['peak GB']:.1f}"]
        row += [f"{facts['model GB']:.2f}", f"{len(ids) / seconds:,.0f}", f"{len(ids) / all_threads:,.0f}"]
        row += [
            f"{np.quantile(latencies, 0.5):.2f} / {np.quantile(latencies, 0.99):.2f}",
            f"{100 * found:.1f} %",
        ]
        row += [" ".join(f"{of[m]:.2f}" for m in ("P@1", "P@5", "PSP@5")) for of in (of_found, of_exact)]
        table.append(row)
    columns = [
        "",
        "training, core min",
        "peak GB",
        "model GB",
        "rows/s, 1 thread",
        f"rows/s, {threads} threads",
    ]
    columns += ["one row p50 / p99 ms", "found", "P@1, P@5, PSP@5", "exact"]
    print(markdown(columns, table), flush=True)


def best_of(call: Any) -> tuple[Any, float]:
    seconds, result = np.inf, None
    for _ in range(REPEATS):
        begin = time.perf_counter()
        result = call()
        seconds = min(seconds, time.perf_counter() - begin)
    return result, seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--shape", default="amazon-670k")
    parser.add_argument("--folder", type=Path, default=Path("build/whole"))
    parser.add_argument("--step", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--threads", type=int, default=threads_of(None))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for step in args.step:
        if step == "data":
            make_data(args.shape, args.folder)
        elif step == "measure":
            measure(args.folder, args.threads)
        else:
            train(step, args.folder, args.threads)


if __name__ == "__main__":
    main()
