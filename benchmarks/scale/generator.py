"""Compare generated data with real data of the same size: labels, features, clusters, classifiers.

    python -m benchmarks.scale generator  # tibkat-core, eurlex57k, delicious; minutes
    python -m benchmarks.scale generator --data eurlex57k --scale 0.2
    python -m benchmarks.scale generator --data 'amazon-670k*0.02'  # a shape by itself
    python -m benchmarks.scale generator --leaves --data tibkat-core acl-authors 'amazon-3m*0.02'
    python -m benchmarks.scale generator --clusters --data tibkat-core acl-authors 'amazon-3m*0.02'
    python -m benchmarks.scale generator --clusters --data acl-authors --trees 3 --seeds 3

A real set is compared with `make_xmc` of the same numbers of rows, features, labels and entries. --scale
takes that part of the real set's training rows first. --leaves compares what the cost of leaf classifiers
follows from, in one tree of `bonsai-i`; --clusters compares trees of that preset with others of smaller
leaves, in CPU time of one thread, --trees of them and the mean over --seeds; --record stores the figures.
Needs the data sets (see BONSAI_DATA in CONTRIBUTING.md).
"""

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from reproduce import known

from benchmarks import _sets, figures
from benchmarks.figures import Row
from benchmarks.scale.whole import MEASURES, n_weights
from bonsai_xmc import Bonsai, _core, datasets, metrics
from bonsai_xmc.datasets import Dataset

DATA = ("tibkat-core", "eurlex57k", "delicious")
N_SAMPLED = 1000  # labels whose nearest neighbour is searched
OFTEN = 5  # rows of a label whose companions are counted
CLUSTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bounded": {"balance": "bounded"},
    "plain, four levels": {"max_depth": 4},
}

Facts = dict[str, float]


def entropy_size(sizes: np.ndarray) -> float:
    """Return the number of equal parts with the same entropy."""
    shares = sizes[sizes > 0] / sizes.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def label_facts(Y: sp.csr_array) -> Facts:
    rows = np.sort(np.bincount(Y.indices, minlength=Y.shape[1]))[::-1]
    rows = rows[rows > 0]
    sizes = np.diff(Y.indptr)
    together = (Y.T @ Y).tocsr()
    together.setdiag(0)
    together.eliminate_zeros()
    count = np.asarray(Y.sum(axis=0)).ravel()
    often = np.flatnonzero(count >= OFTEN)
    closest = together[often].max(axis=1).toarray().ravel() / count[often]
    return {
        "labels with a row": len(rows),
        "… with one row, %": 100 * float((rows == 1).mean()),
        "… with up to 5 rows, %": 100 * float((rows <= 5).mean()),
        "occurrences in the first 1 % of labels, %": 100 * rows[: -(-len(rows) // 100)].sum() / rows.sum(),
        "rows of the most frequent label, %": 100 * rows[0] / Y.shape[0],
        "labels of a row, 90 % have at most": float(np.quantile(sizes, 0.9)),
        "companions of a label, median": float(np.median(np.diff(together.indptr)[often])),
        "rows with the closest companion, median %": 100 * float(np.median(closest)),
    }


def feature_facts(X: sp.csr_array) -> Facts:
    rows = np.bincount(X.indices, minlength=X.shape[1])
    used = rows[rows > 0]
    of_entry = rows[X.indices]
    return {
        "features in use, %": 100 * len(used) / X.shape[1],
        "… with up to 2 rows, %": 100 * float((used <= 2).mean()),
        "rows of an entry's feature, median": float(np.median(of_entry)),
        "… 90 %": float(np.quantile(of_entry, 0.9)),
        "entries of a row, median": float(np.median(np.diff(X.indptr))),
        "squares in the 10 largest entries, mean %": 100 * _largest(X, 10),
    }


def _largest(X: sp.csr_array, n: int) -> float:
    shares = []
    for begin, end in zip(X.indptr[:2000], X.indptr[1:2001], strict=False):
        squares = np.sort(X.data[begin:end].astype(float) ** 2)[::-1]
        if len(squares):
            shares.append(squares[:n].sum() / squares.sum())
    return float(np.mean(shares))


def vector_facts(X: sp.csr_array, Y: sp.csr_array) -> Facts:
    """Return how close the nearest other label is, by the vectors used for clustering."""
    V = sp.csr_array(Y.T @ X)
    norms = np.sqrt(np.asarray(V.multiply(V).sum(axis=1)).ravel())
    V = sp.csr_array(sp.diags_array(1 / np.maximum(norms, 1e-30)) @ V)
    present = np.flatnonzero(norms)
    sampled = np.random.default_rng(0).choice(present, min(N_SAMPLED, len(present)), replace=False)
    nearest = []
    for part in np.array_split(sampled, -(-len(sampled) // 50)):
        close = (V[part] @ V.T).toarray()
        close[np.arange(len(part)), part] = 0
        nearest.append(np.sort(close, axis=1)[:, -10:])
    best = np.concatenate(nearest)
    return {
        "entries of a label vector, mean": V.nnz / len(present),
        "similarity of the nearest label, median": float(np.median(best[:, -1])),
        "… of the 10th": float(np.median(best[:, 0])),
    }


def tree_facts(model: Bonsai) -> Facts:
    tree = model.trees_[0]
    sizes, levels = np.asarray(tree.sizes), np.asarray(tree.levels)
    facts: Facts = {}
    for level, name in ((1, "clusters of the root"), (2, "clusters below")):
        part = sizes[levels == level + levels.min()]
        if len(part) == 0:
            continue
        facts |= {
            name: len(part),
            f"{name}: as many equal ones": entropy_size(part),
            f"{name}: largest, % of labels": 100 * part.max() / sizes.max(),
        }
    leaves = sizes[[tree.is_leaf(v) for v in range(tree.n_nodes)]]
    return facts | {"labels of a leaf, median": float(np.median(leaves)), "… largest": float(leaves.max())}


def matrices(name: str, n_test: int) -> tuple[Any, sp.csr_array, Any, Any]:
    """Return X and Y for training, then for evaluation."""
    shape, _, scale = name.partition("*")
    if shape in datasets.SHAPES:
        X, Y, X_test, Y_test, *_ = datasets.make_xmc(shape, scale=float(scale or 1), n_test=n_test)
    else:
        X, Y, X_test, Y_test = _sets.load(name)
    return X, sp.csr_array(Y), X_test, Y_test


def leaves_of(model: Bonsai, Y: sp.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers of labels, of rows and of pairs of both, for each leaf of the first tree."""
    tree = model.trees_[0]
    leaves = [tree.labels(v) for v in range(tree.n_nodes) if tree.is_leaf(v)]
    sizes = np.array([len(leaf) for leaf in leaves])
    leaf_of = sp.csr_array(
        (np.ones(sizes.sum(), np.float32), np.concatenate(leaves), np.append(0, sizes.cumsum()))
    )
    leaf_of.resize(len(leaves), Y.shape[1])
    rows = np.bincount((Y.astype(np.float32) @ leaf_of.T.tocsr()).tocsr().indices, minlength=len(leaves))
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    return sizes, rows, np.array([counts[leaf].sum() for leaf in leaves])


def leaf_facts(name: str) -> list[Row]:
    """Return the cost of leaf classifiers: a leaf has as many problems as labels, each with all its rows."""
    X, Y, *_ = matrices(name, 1)
    model = Bonsai.preset("bonsai-i", n_trees=1, prune=0.1, threshold=0.5).fit(X, Y)
    forest = model.fitted_.linear.core.trees
    sizes, rows, pairs = leaves_of(model, Y)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    cost = rows * sizes
    weights = [n_weights(forest.pruned(prune, 1)) for prune in (0.1, 0.3)]
    of_labels = np.count_nonzero(counts)
    facts = {
        "set": name.replace("*", " × "),
        "labels": of_labels,
        "rows of a label": Y.nnz / of_labels,
        "labels with one row, %": 100 * float((counts == 1).sum()) / of_labels,
        "labels of a row": Y.nnz / Y.shape[0],
        "leaves of a row": rows.sum() / Y.shape[0],
        "labels of a pair's leaf": float((pairs * sizes).sum() / pairs.sum()),
        "rows × labels of leaves, 10⁶": cost.sum() / 1e6,
        "of the two largest, %": 100 * np.sort(cost)[-2:].sum() / cost.sum(),
        "of large leaves, %": 100 * cost[sizes >= _core.LARGE_LEAF].sum() / cost.sum(),
        "weights a label": weights[0] / of_labels,
        "above 0.3, %": 100 * weights[1] / weights[0],
    }
    return [facts]


def cluster_facts(name: str, n_trees: int, n_seeds: int) -> list[Row]:
    """Return what trees of other clusters cost, and how they rank test rows."""
    X, Y, X_test, Y_test = matrices(name, 20_000)
    found = []
    for clusters, params in CLUSTERS.items():
        runs: list[Row] = []
        for seed in range(n_seeds):
            fixed = {"n_trees": n_trees, "prune": 0.1, "threshold": 0.5, "n_jobs": 1, "random_state": seed}
            model = Bonsai.preset("bonsai-i", **fixed, **params)
            training, _ = timed(lambda model=model: model.fit(X, Y))
            predicting, (ids, _) = timed(lambda model=model: model.top_k(X_test, 5))
            sizes, rows, _ = leaves_of(model, Y)
            accuracy = metrics.evaluate(Y_test, ids, Y_train=Y)
            facts: Row = {
                "largest leaf": int(sizes.max()),
                "rows × labels of leaves, 10⁶": float((rows * sizes).sum()) / 1e6,
                "training, CPU s": training,
                "model MB": sum(a.nbytes for a in model.fitted_.linear.core.trees.arrays().values()) / 1e6,
                "ms a row": 1e3 * predicting / X_test.shape[0],
            }
            runs.append(facts | {measure: accuracy[measure] for measure in MEASURES})
        about: Row = {"set": name.replace("*", " × "), "trees": n_trees, "clusters": clusters}
        for fact in runs[0]:
            values = [run[fact] for run in runs]
            mean = float(np.mean(values))
            about[fact] = [mean, float(np.std(values))] if fact in MEASURES and n_seeds > 1 else mean
        found.append(about)
    return found


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of a call, and its result."""
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def classifier_facts(model: Bonsai, data: Dataset) -> Facts:
    label, feature, value = (np.asarray(part) for part in model.fitted_.linear.core.one_vs_rest.weights(0))
    n = np.bincount(label, minlength=np.count_nonzero(model.label_counts_))
    in_use = np.bincount(feature, minlength=data.X_train.shape[1])
    X = sp.csr_array(data.X_test)
    scores = metrics.evaluate(data.Y_test, model.top_k(X, k=5)[0], Y_train=data.Y_train)
    return {
        "weights of a classifier, mean": len(value) / len(n),
        "… median": float(np.median(n)),
        "… 99 %": float(np.quantile(n, 0.99)),
        "… positive, %": 100 * float((value > 0).mean()),
        "weights for the features of a row, mean": float(in_use[X.indices].sum() / X.shape[0]),
        "P@1": scores["P@1"],
        "P@5": scores["P@5"],
        "PSP@5": scores["PSP@5"],
    }


def facts_of(data: Dataset) -> Facts:
    X, Y = sp.csr_array(data.X_train), sp.csr_array(data.Y_train)
    print(f"{X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels …", flush=True)
    model = Bonsai(n_trees=1, classifiers="blend", blend_weight=0.3, C=1.0, logit_adjustment=0.0)
    model.fit(X, Y)
    data_facts = label_facts(Y) | feature_facts(X) | vector_facts(X, Y)
    return data_facts | tree_facts(model) | classifier_facts(model, data)


def real(name: str, scale: float) -> Dataset:
    data = known.load(name)
    X, Y = sp.csr_array(data.X_train, dtype=np.float32), sp.csr_array(data.Y_train)
    n = round(scale * X.shape[0])
    kept = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:n])
    labels = np.flatnonzero(np.bincount(Y[kept].indices, minlength=Y.shape[1]))
    features = np.flatnonzero(np.bincount(X[kept].indices, minlength=X.shape[1]))
    return data._replace(
        X_train=X[kept][:, features],
        Y_train=Y[kept][:, labels],
        X_test=sp.csr_array(data.X_test, dtype=np.float32)[:, features],
        Y_test=sp.csr_array(data.Y_test)[:, labels],
    )


def twin(data: Dataset) -> Dataset:
    """Return generated data of the same size."""
    X, Y = data.X_train, data.Y_train
    return datasets.make_xmc(
        n_rows=X.shape[0],
        n_test=data.X_test.shape[0],
        n_features=X.shape[1],
        n_labels=Y.shape[1],
        features_per_row=X.nnz / X.shape[0],
        labels_per_row=max(1.0, Y.nnz / Y.shape[0]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows of real sets (default: 1)")
    parser.add_argument("--leaves", action="store_true", help="what leaf classifiers cost")
    parser.add_argument("--clusters", action="store_true", help="what smaller leaves cost, and how they rank")
    parser.add_argument("--trees", type=int, default=1, help="trees of --clusters (default: 1)")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of --clusters (default: 1)")
    parser.add_argument("--record", metavar="MACHINE/TABLE", help="in benchmarks/results")
    args = parser.parse_args()
    if args.leaves or args.clusters:
        clusters = lambda name: cluster_facts(name, args.trees, args.seeds)
        rows = [row for name in args.data for row in (clusters if args.clusters else leaf_facts)(name)]
        keys = ("set", "trees", "clusters") if args.clusters else ("set",)
        show({" ".join(str(row[key]) for key in keys): row for row in rows})
        if args.record:
            machine, _, name = args.record.partition("/")
            rows = [{k: short(k, v) for k, v in row.items()} for row in rows]
            command = f"python -m benchmarks.scale generator {shlex.join(sys.argv[1:])}"
            figures.record(machine, name, command, rows, beside=keys)
        return
    columns: dict[str, Facts] = {}
    for name in args.data:
        shape, _, factor = name.partition("*")
        if shape in datasets.SHAPES:
            columns[name] = facts_of(datasets.make_xmc(shape, scale=float(factor or 1)))
        else:
            data = real(name, args.scale)
            columns[name] = facts_of(data)
            columns[f"as {name}"] = facts_of(twin(data))
    show(columns)


def show(columns: dict[str, Facts]) -> None:
    print("\n| | " + " | ".join(columns) + " |\n| --- " + "| ---: " * len(columns) + "|")
    names: dict[str, Any] = {}
    for facts in columns.values():
        names |= dict.fromkeys(facts)
    for name in names:
        values = (facts.get(name) for facts in columns.values())
        print(f"| {name} | " + " | ".join("–" if v is None else number(v) for v in values) + " |")


def short(name: str, value: Any) -> Any:
    """Return a value as results store it."""
    if isinstance(value, str | list | int) or name in MEASURES:
        return value
    return round(value) if value >= 100 else float(f"{value:.3g}")


def number(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"{value[0]:.2f} ± {value[1]:.2f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
