"""Accuracy of int8 weights: one-vs-rest ranked by float32 weights and by quantised ones.

    python -m benchmarks.quantised                       # EURLEX57K, Delicious, Bibtex; a few minutes

The same classifiers (squared hinge, C = 1, bias fixed at −1) are pruned, and labels are ranked by their
margins twice: with the float32 weights of the solver, and with the int8 weights of the model file, which
are multiples of max |w| / 127 for each label. Needs the data sets (see BONSAI_DATA in CONTRIBUTING.md), and
memory for labels × features floats.
"""

import argparse

import numpy as np
import scipy.sparse as sp
from reproduce import known
from sklearn.preprocessing import normalize

from bonsai_xmc import _core, _core_testing, metrics

DATA = ("eurlex57k", "delicious", "bibtex")
MEASURES = [f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5)]
SOLVER = {
    "loss": "squared_hinge",
    "solver": "dual",
    "C": 1.0,
    "tol": 0.1,
    "max_iter": 20,
    "learn_bias": False,
    "fixed_bias": -1.0,
    "prune": 0.0,
}
BATCH = 500


def solve(X: sp.csr_array, Y: sp.csr_array) -> np.ndarray:
    """Float32 weights of one-vs-rest classifiers, labels × features."""
    parts = []
    for matrix in (X, Y):
        csr = sp.csr_array(matrix).astype(np.float32)
        csr.sort_indices()
        parts.append((csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data, csr.shape[1]))
    rows, (label_ptr, labels, _, n_labels) = parts
    unweighted = np.empty(0, np.float32)
    dataset = _core.Dataset(rows, label_ptr, labels, n_labels, unweighted, True)
    return _core_testing.solve(dataset, SOLVER, 0)[0]


def best(X: sp.csr_array, W: sp.csr_array) -> np.ndarray:
    """The top five labels by margin; all biases are equal."""
    found = []
    for begin in range(0, X.shape[0], BATCH):
        margins = (X[begin : begin + BATCH] @ W.T).toarray()
        top = np.argpartition(-margins, 5, axis=1)[:, :5]
        order = np.argsort(-np.take_along_axis(margins, top, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(top, order, axis=1))
    return np.vstack(found).astype(np.int32)


def quantised(W: sp.csr_array) -> sp.csr_array:
    scale = np.repeat(abs(W).max(axis=1).toarray().ravel() / 127, np.diff(W.indptr))
    return sp.csr_array((np.rint(W.data / scale) * scale, W.indices, W.indptr), shape=W.shape)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--prune", nargs="+", type=float, default=[0.05, 0.02])
    args = parser.parse_args()
    print("| data, prune | weights | " + " | ".join(MEASURES) + " |\n" + "| --- " * (len(MEASURES) + 2) + "|")
    for name in args.data:
        data = known.load(name)
        weights = solve(data.X_train, data.Y_train)
        X = sp.csr_array(normalize(data.X_test))
        for prune in args.prune:
            kept = sp.csr_array(np.where(abs(weights) > prune, weights, 0))
            for kind, W in (("float32", kept), ("int8", quantised(kept))):
                scores = metrics.evaluate(data.Y_test, best(X, W), Y_train=data.Y_train, dataset=name)
                cells = " | ".join(f"{scores[measure]:.2f}" for measure in MEASURES)
                print(f"| {name}, {prune:g} | {kind} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
