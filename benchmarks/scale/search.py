"""Compare exhaustive and index search of one-vs-rest classifiers, and a blend with label trees.

    python -m benchmarks.scale search                                     # some ten minutes on two cores
    python -m benchmarks.scale search --data 'amazon-670k*0.1' --n-probe 8 16 32 64
    python -m benchmarks.scale search --data tibkat-core --k 100 --n-probe 100 200 400

All searches use the same classifiers, trained once. A name of
`datasets.SHAPES`, optionally with a factor, means generated data; other names are real data sets (see
BONSAI_DATA in CONTRIBUTING.md). "found" is the share of the k best labels of exact search. One thread.
Batches are all rows at once; a single row is a call of its own. Both are measured in CPU time, and repeated
three times; the fastest one counts: other work on the machine disturbs that least.
"""

import argparse
import time
from typing import Any

import numpy as np
from reproduce import known

from benchmarks._runs import generated, markdown
from bonsai_xmc import Bonsai, _core, metrics
from bonsai_xmc._base.progress import Phases
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.rows import prediction_rows, training_rows
from bonsai_xmc._model.strategy import n_probe
from bonsai_xmc._selection.probes import measure as measure_probes
from bonsai_xmc._training.work import Work

DATA = ("eurlex57k", "tibkat-core", "amazon-670k*0.1", "amazon-670k*0.2")
REPEATS = 3
COLUMNS = ("rows/s", "p50 ms", "p99 ms", "found", "P@1", "P@5", "PSP@5")


class Searches:
    """The same classifiers with an index, and blended with trees."""

    def __init__(self, data: Any, threads: int) -> None:
        given = {"blend_weight": 0.3, "C": 1.0, "logit_adjustment": 0.0, "threshold": 0.5}
        fitted = Bonsai(classifiers="blend", search="index", n_jobs=threads, **given)
        fitted.fit(data.X_train, data.Y_train)
        core, self.seconds = fitted.fitted_.linear.core, fitted.timings_
        parts = {"one-vs-rest": core.one_vs_rest, "index": core.index, "trees": core.trees}
        self.megabytes = {
            name: sum(array.nbytes for array in part.arrays().values()) / 1e6 for name, part in parts.items()
        }
        self.blend = core
        self.index = _core.Model(None, core.one_vs_rest, core.loss, core.normalize, index=core.index)
        self.estimator = fitted
        rows, labels = training_rows(data.X_train, "Bonsai"), labels_of(data.Y_train)
        self.probes = measure_probes(self.index, rows, labels, 10, 0, Work(threads, Phases(None)))


def top_k(model: Any, rows: Any, k: int, probes: int, exact: bool = False) -> np.ndarray:
    options = {"beam_size": 10, "exact": exact, "n_probe": probes, "threads": 1}
    return np.asarray(model.top_k(rows, k, **options)[0])


def measure(data: Any, n_rows: int, n_single: int, k: int, probes: list[int], threads: int) -> None:
    searches = Searches(data, threads)
    X, Y = data.X_test[:n_rows], data.Y_test[:n_rows]
    to_core = lambda X: prediction_rows(X, searches.estimator, X.shape[1], False)
    rows, singles = to_core(X), [to_core(X[[i]]) for i in range(min(n_single, X.shape[0]))]
    n_labels = data.Y_train.shape[1]
    automatic = n_probe("auto", "index", k, n_labels, measured=searches.probes)
    cases: list[tuple[str, Any, int, bool]] = [("exact", searches.index, 0, True)]
    for number in sorted({*probes, *([automatic] if automatic else [])}):
        name = f"index, n_probe {number}" + (" (auto)" if number == automatic else "")
        cases.append((name, searches.index, number, False))
    cases.append(("blend with three trees", searches.blend, automatic, False))
    table, best = [], None
    for name, model, number, exact in cases:
        ids, seconds, latencies = None, np.inf, np.full(len(singles), np.inf)
        for _ in range(REPEATS):
            begin = time.process_time()
            ids = top_k(model, rows, k, number, exact)
            seconds = min(seconds, time.process_time() - begin)
            for i, row in enumerate(singles):
                begin = time.process_time()
                top_k(model, row, k, number, exact)
                latencies[i] = min(latencies[i], time.process_time() - begin)
        best = ids if best is None else best
        scores = metrics.evaluate(Y, ids, Y_train=data.Y_train)
        found = np.mean([len(set(a) & set(b)) for a, b in zip(ids, best, strict=True)]) / k
        values = (
            f"{len(ids) / seconds:,.0f}",
            *(f"{1e3 * np.quantile(latencies, q):.2f}" for q in (0.5, 0.99)),
        )
        quality = (f"{scores[name]:.2f}" for name in ("P@1", "P@5", "PSP@5"))
        table.append([name, *values, f"{100 * found:.1f} %", *quality])
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in searches.seconds.items())
    sizes = ", ".join(f"{name} {size:.1f} MB" for name, size in searches.megabytes.items())
    print(f"{n_labels:,} labels; {parts} with {threads} threads; {sizes}\n")
    print(markdown(["search", *COLUMNS], table) + "\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--n-probe", nargs="*", type=int, default=[16, 64], help="besides the automatic one")
    parser.add_argument("--rows", type=int, default=8192, help="test rows of a batch")
    parser.add_argument("--single", type=int, default=1000, help="test rows that are predicted one by one")
    parser.add_argument("--threads", type=int, default=2, help="of training")
    args = parser.parse_args()
    for name in args.data:
        print(f"\n### {name}\n", flush=True)
        data = generated(name) or known.load(name)
        measure(data, args.rows, args.single, args.k, args.n_probe, args.threads)


if __name__ == "__main__":
    main()
