"""Label trees of plain k-means beside those of bounded clusters: sizes of leaves, time, accuracy over seeds.

    python -m benchmarks.trees                                    # delicious, eurlex57k, tibkat-core; minutes
    python -m benchmarks.trees --data 'amazon-670k*0.1' --seeds 0

Three trees; sizes are those of the first one. "label's leaf" is the mean size of a label's leaf: what a row
that reaches it has to score. Training is CPU time with two threads; prediction is CPU time with one, the
fastest of three runs.
"""

import argparse
import time
from typing import Any

import numpy as np
from reproduce import known

from benchmarks._runs import generated, markdown
from bonsai_xmc import Bonsai, metrics

DATA = ("delicious", "eurlex57k", "tibkat-core")
REPEATS = 3
QUALITY = ("P@1", "P@5", "PSP@1", "PSP@5")
HEADER = ["clusters", "children of the root", "leaves", "median leaf", "largest leaf", "label's leaf"]
HEADER += ["training, core-s", "rows/s", "single row, p50 ms", *QUALITY]


def measure(data: Any, balance: str, seed: int, n_rows: int, n_single: int) -> list[float]:
    """Everything that the header names."""
    begin = time.process_time()
    model = Bonsai(classifiers="leaf", balance=balance, threshold=0.5, n_jobs=2, random_state=seed)
    model.fit(data.X_train, data.Y_train)
    training = time.process_time() - begin
    tree = model.trees_[0]
    sizes = np.array([node.size for node in tree.nodes if node.is_leaf])
    model.n_jobs = 1
    X, Y = data.X_test[:n_rows], data.Y_test[:n_rows]
    batch, singles = np.inf, np.full(min(n_single, X.shape[0]), np.inf)
    ids = None
    for _ in range(REPEATS):
        begin = time.process_time()
        ids, _ = model.top_k(X, 5)
        batch = min(batch, time.process_time() - begin)
        for i in range(len(singles)):
            row = X[[i]]
            begin = time.process_time()
            model.top_k(row, 5)
            singles[i] = min(singles[i], time.process_time() - begin)
    scores = metrics.evaluate(Y, ids, Y_train=data.Y_train)
    leaf = float((sizes**2).sum() / sizes.sum())
    shape = [len(tree.children(0)), len(sizes), float(np.median(sizes)), sizes.max(), leaf]
    return [
        *shape,
        training,
        X.shape[0] / batch,
        1e3 * float(np.median(singles)),
        *(scores[q] for q in QUALITY),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--rows", type=int, default=4096, help="test rows of a batch")
    parser.add_argument("--single", type=int, default=200, help="test rows that are predicted one by one")
    args = parser.parse_args()
    for name in args.data:
        data = generated(name) or known.load(name)
        table = []
        for balance in ("none", "bounded"):
            found = [measure(data, balance, seed, args.rows, args.single) for seed in args.seeds]
            mean = np.mean(found, axis=0)
            digits = [0, 0, 0, 0, 0, 1, 0, 2, 2, 2, 2, 2]
            table.append([balance, *(f"{value:,.{d}f}" for value, d in zip(mean, digits, strict=True))])
        print(f"\n### {name}, mean of {len(args.seeds)} seeds\n\n" + markdown(HEADER, table), flush=True)


if __name__ == "__main__":
    main()
