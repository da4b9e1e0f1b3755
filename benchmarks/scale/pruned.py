"""Leaf classifiers of many labels with `prune` of 0.1, and with that which held-out rows choose.

    python -m benchmarks.scale pruned  # 0.05 of Amazon-3M; 2 GB, ten core-minutes
    python -m benchmarks.scale pruned --shapes 'amazon-3m*0.025' 'amazon-3m*0.05' 'amazon-3m*0.1'

Three trees (`bonsai-i`), each model in a process of its own. Times are CPU times, which other work on the
machine affects less than elapsed times: of training with all threads, of 8,192 rows as a batch (the fastest
of three) and of 1,000 single rows with one thread. With several shapes, the last table has the exponents of
growth by pairs of a row and a label.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._runs import markdown
from benchmarks.scale.growth import _reset_peak, _resident
from bonsai_xmc import Bonsai, datasets, metrics
from bonsai_xmc._base.threads import threads_of

PRUNES: tuple[Any, ...] = (0.1, "auto")
N_TEST, N_BATCH, N_SINGLE, REPEATS = 20_000, 8192, 1000, 3
MEASURES = ("P@1", "P@3", "P@5", "PSP@5")
GROWING = ("training, s", "added, MB", "model, MB", "batch, ms a row", "single row, p50 ms")


def measure(shape: str, prune: Any, threads: int) -> dict[str, Any]:
    """Train and predict; runs in a fresh process."""
    name, _, scale = shape.partition("*")
    data = datasets.make_xmc(name, scale=float(scale or 1), n_test=N_TEST, random_state=0)
    before = _resident("VmRSS") or 0.0
    _reset_peak()
    start = time.process_time()
    model = Bonsai.preset("bonsai-i", prune=prune, n_jobs=threads).fit(data.X_train, data.Y_train)
    training, added = time.process_time() - start, (_resident("VmHWM") or 0.0) - before
    seconds = model.timings_
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bonsai"
        model.save(path)
        size = path.stat().st_size / 1e6
        model = Bonsai.load(path).set_params(n_jobs=1)
        X = data.X_test[:N_BATCH]
        batch = min(cpu_of(lambda: model.top_k(X, 5)) for _ in range(REPEATS)) / X.shape[0]
        single = [cpu_of(lambda row=X[[i]]: model.top_k(row, 5)) for i in range(min(N_SINGLE, X.shape[0]))]
        ids, _ = model.top_k(data.X_test, 5)
    figures = metrics.evaluate(data.Y_test, ids, Y_train=data.Y_train)
    forest = model.fitted_.linear.core.trees
    assert forest is not None
    arrays = forest.arrays()
    n_weights = sum(len(forest.weights(node)[0]) for node in range(len(arrays["is_leaf"])))
    chosen = ("pruning", "threshold")
    return {
        "prune": f"{model.fitted_.linear.strategy.prune:g}",
        "pairs": data.Y_train.nnz,
        "training, s": training,
        "prune and threshold, %": 100 * sum(seconds.get(c, 0.0) for c in chosen) / sum(seconds.values()),
        "added, MB": added,
        "model, MB": size,
        "weights a label": n_weights / np.count_nonzero(np.bincount(data.Y_train.indices)),
        "bytes a weight": (arrays["records"].nbytes + arrays["buckets"].nbytes) / n_weights,
        "batch, ms a row": 1e3 * batch,
        "single row, p50 ms": 1e3 * float(np.median(single)),
        "single row, p99 ms": 1e3 * float(np.quantile(single, 0.99)),
    } | {name: figures[name] for name in MEASURES}


def cpu_of(call: Any) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--shapes", nargs="+", default=["amazon-3m*0.05"])
    parser.add_argument("--threads", type=int, default=threads_of(None))
    args = parser.parse_args()
    runs: dict[Any, list[dict[str, Any]]] = {prune: [] for prune in PRUNES}
    for shape in args.shapes:
        for prune in PRUNES:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                runs[prune].append(pool.apply(measure, (shape, prune, args.threads)))
        last = [found[-1] for found in runs.values()]
        rows = [[name, *(shown(run[name]) for run in last)] for name in last[0] if name not in MEASURES]
        rows += [[name, *(f"{run[name]:.2f}" for run in last)] for name in MEASURES]
        print(f"\n{shape}\n\n" + markdown(["", *(f"prune={prune}" for prune in PRUNES)], rows), flush=True)
    if len(args.shapes) > 1:
        print("\n" + markdown(["exponent", *map(str, PRUNES)], [exponents(runs, name) for name in GROWING]))


def exponents(runs: dict[Any, list[dict[str, Any]]], name: str) -> list[str]:
    """The slopes of log(value) over log(pairs), by least squares."""
    slopes = []
    for found in runs.values():
        pairs, values = np.log([run["pairs"] for run in found]), np.log([run[name] for run in found])
        slopes.append(f"{np.polyfit(pairs, values, 1)[0]:.2f}")
    return [name, *slopes]


if __name__ == "__main__":
    main()
