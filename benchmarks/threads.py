"""How training and prediction scale with threads.

    python -m benchmarks.threads                       # 1, 2, 4, … threads, up to the cores of the machine
    python -m benchmarks.threads --threads 1 8 16 --scale 0.1

Generated data of 69,045 rows, 135,909 features and 67,009 labels; one-vs-rest with exact search, and three
trees. Wall-clock times: the machine should be idle. "×" is the speed-up over the first number of threads.
"""

import argparse
import time
from typing import Any

from benchmarks._runs import markdown
from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._base.threads import threads_of

SIZE = {"n_rows": 69_045, "n_features": 135_909, "n_labels": 67_009}
MODELS: dict[str, dict[str, Any]] = {
    "one-vs-rest": {"classifiers": "one_vs_rest", "search": "exact", "threshold": 0.5},
    "three trees": {"classifiers": "leaf", "threshold": 0.5},
}
N_PREDICTED = 16_384
REPEATS = 3


def measure(params: dict[str, Any], data: datasets.Dataset, threads: int) -> dict[str, float]:
    """Seconds of the phases of training, of all of it, and of a batch."""
    begin = time.perf_counter()
    model = Bonsai(**params, n_jobs=threads).fit(data.X_train, data.Y_train)
    seconds = {"training": time.perf_counter() - begin, **model.timings_}
    rows, batches = data.X_test[:N_PREDICTED], []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        model.top_k(rows, 5)
        batches.append(time.perf_counter() - begin)
    return seconds | {"batch": min(batches)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    powers = [1 << i for i in range(10) if 1 << i <= threads_of(None)]
    parser.add_argument("--threads", type=int, nargs="+", default=powers)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for rows, features and labels")
    args = parser.parse_args()
    size = {name: int(n * args.scale) for name, n in SIZE.items()}
    data = datasets.make_xmc(**size, n_test=N_PREDICTED)
    for name, params in MODELS.items():
        found = {threads: measure(params, data, threads) for threads in args.threads}
        first = found[args.threads[0]]
        cells = [
            [phase, *(f"{of[phase]:.2f} s, {first[phase] / of[phase]:.1f} ×" for of in found.values())]
            for phase in first
        ]
        print(f"\n{name}, {min(N_PREDICTED, data.X_test.shape[0]):,} rows in a batch\n", flush=True)
        print(markdown(["", *(f"{threads} threads" for threads in found)], cells), flush=True)


if __name__ == "__main__":
    main()
