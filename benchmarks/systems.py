"""Measure the systems of `bonsai_xmc.systems`: accuracy over seeds and splits, CPU time and memory.

    python -m benchmarks.systems accuracy --systems sleec leml --data bibtex delicious
    python -m benchmarks.systems splits --systems leml --data bibtex
    python -m benchmarks.systems choices --systems pd-sparse proxml --data bibtex delicious
    python -m benchmarks.systems cost --systems leml sleec robustxml --data eurlex57k
    python -m benchmarks.systems tail --data eurlex57k
    python -m benchmarks.systems neighbors --data delicious bibtex
    python -m benchmarks.systems forests --data delicious
    python -m benchmarks.systems nodes --data eurlex57k
    python -m benchmarks.systems sparse-labels --data eurlex57k
    python -m benchmarks.systems fusion --data delicious

`accuracy` trains on the usual split with five seeds, next to published figures; `splits` on random splits of
all rows, as many as there are seeds; both with published settings where there are any. `choices` compares
settings on held-out training rows. `cost` is CPU time of training and peak memory, each system in a process
of its own. `tail` compares LEML with RobustXML at several ranks. `neighbors` blends a vote of the nearest
rows, plain and SLEEC's, into the scores of `Bonsai`. `forests` varies FastXML's trees and what divides their
rows, and blends FastXML into `Bonsai`. `nodes` compares the L1 logistic regression of FastXML's nodes with
scikit-learn's LIBLINEAR, `sparse-labels` the L1 squared hinge of ProXML's labels. `fusion` compares a blend
with a `Fusion` of the same two models, and ranks by a fusion of two models of 456,599 labels. Needs the data
sets (see BONSAI_DATA in CONTRIBUTING.md).
"""

import argparse
import resource
import shlex
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from reproduce.bench import VARIANTS
from reproduce.bench import system as make
from reproduce.published import REPOSITORY
from reproduce.results import title_of
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from benchmarks._sets import Matrices, load
from benchmarks.figures import record
from bonsai_xmc import Bonsai, Fusion, _core, _core_testing, metrics
from bonsai_xmc.systems import FastXML
from bonsai_xmc.systems.pfastrexml import PfastreXMLRanker

# Settings to choose among on training rows: the defaults, and others.
CHOICES: dict[str, list[dict[str, Any]]] = {
    "fastxml": [{}, {"tol": 0.1}, {"tol": 0.01}, {"normalize": True}, {"normalize": True, "C": 10.0}],
    "pfastrexml": [{}, {"alpha": 0.9}],
    "leml": [{}],
    "pd-sparse": [{}, {"loss": "max"}, {"normalize": True}, {"normalize": False}],
    "pfastxml": [{}],
    "ppd-sparse": [{}, {"l1": 1.0}, {"normalize": True}, {"normalize": True, "l1": 1.0}],
    "proxml": [{}, {"l1": 0.1}, {"normalize": False}, {"normalize": False, "l1": 0.1}],
    "robustxml": [{}, {"l1": 0.5}],
    "sleec": [
        {"n_learners": 1} | more
        for more in (
            {},
            {"metric": "euclidean"},
            {"metric": "euclidean", "n_components": 300},
            {
                **{"metric": "euclidean", "n_label_neighbors": 15, "C": 0.1},
                **{"weight_sparsity": 0.8, "embedding_sparsity": 0.5},
            },
        )
    ],
}

MEASURES = [f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5)]

#: Stores a row in the table of this name, in place of the one that is equal in the columns of `KEYS`.
Keep = Callable[[str, dict[str, Any]], None]


KEYS = {
    "systems-accuracy": ("data", "system"),
    "systems-splits": ("data", "system"),
    "systems-cost": ("data", "system"),
    "fastxml-nodes": ("data", "rows"),
    "proxml-labels": ("data", "positive rows", "l1"),
}


def forget(table: str, row: dict[str, Any]) -> None:
    """Store nothing."""


def measure(model: Any, matrices: Matrices) -> list[float]:
    """Train and evaluate: the values of MEASURES."""
    X, Y, X_test, _ = matrices
    return figures(model.fit(X, Y).top_k(X_test, 5)[0], matrices)


def readings(model: Any, matrices: Matrices) -> dict[str, list[float]]:
    """Train and evaluate; of PfastreXML also with the alpha that is published for P@k, on the same trees."""
    found = {"": measure(model, matrices)}
    ranker = model.fitted_.ranker
    if isinstance(ranker, PfastreXMLRanker):
        facts, arrays = ranker.to_arrays()
        shape = ranker.n_features, ranker.n_labels
        other = PfastreXMLRanker.from_arrays(facts | {"alpha": 0.9}, arrays, *shape)
        model.fitted_ = replace(model.fitted_, ranker=other)
        found[", alpha 0.9"] = figures(model.top_k(matrices[2], 5)[0], matrices)
    return found


def show_spread(name: str, of: str, found: list[dict[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """Write means and standard deviations of readings; return them by variant, as rows of a table."""
    rows = {}
    for variant in found[0]:
        values = np.array([each[variant] for each in found])
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        show(f"{name}{variant}, mean of {len(found)} {of}", mean)
        show(f"{name}{variant}, standard deviation", deviation)
        rows[variant] = dict(zip(MEASURES, np.stack([mean, deviation], axis=1).tolist(), strict=True))
    return rows


def figures(ids: Any, matrices: Matrices) -> list[float]:
    """Return the values of MEASURES of rankings."""
    found = metrics.evaluate(matrices[3], ids, matrices[1])
    return [found[name] for name in MEASURES]


def show(name: str, values: Any) -> None:
    """Write a row of a table."""
    print(f"{name:<44}", *(f"{value:6.2f}" for value in values), flush=True)


def accuracy(systems: list[str], data: list[str], seeds: int, keep: Keep = forget) -> None:
    """Measure the usual split with several seeds, next to the published figures."""
    for name in data:
        matrices = load(name)
        show(f"{name}: {' '.join(MEASURES)}", [])
        for kind in systems:
            found = [readings(make(kind, name, random_state=s), matrices) for s in range(seeds)]
            title = title_of(kind)
            for variant, row in show_spread(f"  {kind}", "seeds", found).items():
                keep("systems-accuracy", {"data": name, "system": title + variant, **row, "seeds": seeds})
            if kind in REPOSITORY.get(name, {}):
                published = sum(REPOSITORY[name][kind], ())
                show(f"  {kind}, published", published)
                row = dict(zip(MEASURES, published, strict=True))
                keep("systems-accuracy", {"data": name, "system": f"{title}, published", **row})


def splits(systems: list[str], data: list[str], seeds: int, keep: Keep = forget) -> None:
    """Measure random splits of all rows with the sizes of the usual split."""
    for name in data:
        X, Y, X_test, Y_test = load(name)
        n_train = X.shape[0]
        X, Y = sp.csr_array(sp.vstack([X, X_test])), sp.csr_array(sp.vstack([Y, Y_test]))
        for kind in systems:
            found = []
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(X.shape[0])
                known, rest = np.sort(order[:n_train]), np.sort(order[n_train:])
                parts = X[known], Y[known], X[rest], Y[rest]
                found.append(readings(make(kind, name, random_state=seed), parts))
            for variant, row in show_spread(f"{name}, {kind}", "splits", found).items():
                system = title_of(kind) + variant
                keep("systems-splits", {"data": name, "system": system, "splits": seeds, **row})


def choices(systems: list[str], data: list[str], seeds: int) -> None:
    """Evaluate settings of each system on a fifth of 13,000 training rows, trained on the others."""
    for name in data:
        X, Y = load(name)[:2]
        order = np.random.default_rng(0).permutation(X.shape[0])[:13_000]
        n_held_out = len(order) // 5
        held_out, known = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
        parts = X[known], Y[known], X[held_out], Y[held_out]
        show(f"{name}, a fifth of the training rows: {' '.join(MEASURES)}", [])
        for kind in systems:
            for settings in CHOICES[kind]:
                chosen = ", ".join(f"{key}={value!r}" for key, value in settings.items())
                found = [measure(make(kind, name, random_state=s, **settings), parts) for s in range(seeds)]
                show(f"  {kind}({chosen})", np.mean(found, axis=0))


def cost(systems: list[str], data: list[str], seeds: int, keep: Keep = forget) -> None:
    """Measure CPU time of training and peak memory, each system in its own process."""
    if len(systems) * len(data) > 1:
        for name in data:
            for kind in systems:
                arguments = ["cost", "--systems", kind, "--data", name]
                if keep is not forget:
                    arguments += sys.argv[sys.argv.index("--record") :][:2]
                subprocess.run([sys.executable, "-m", "benchmarks.systems", *arguments], check=True)
        return
    matrices = load(data[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = time.process_time(), time.perf_counter()
    model = make(systems[0], data[0]).fit(*matrices[:2])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    predicting = time.process_time()
    ids = model.top_k(matrices[2], 5)[0]
    predicting = time.process_time() - predicting
    found = figures(ids, matrices)
    show(f"{data[0]}, {systems[0]}: {' '.join(MEASURES)}", found)
    keep(
        "systems-cost",
        {
            **{
                "data": data[0],
                "system": title_of(systems[0]),
                "training CPU s": cpu,
                "peak MB": peak / 1024,
            },
            **{"one row CPU ms": 1e3 * predicting / matrices[2].shape[0]},
            **dict(zip(MEASURES, found, strict=True)),
        },
    )
    print(
        f"  training {cpu:.0f} s of CPU, {wall:.0f} s elapsed; memory {before >> 10} MB before, "
        f"{peak >> 10} MB at most; prediction {1e3 * predicting / matrices[2].shape[0]:.2f} ms of CPU a row",
        flush=True,
    )


def tail(systems: list[str], data: list[str], seeds: int) -> None:
    """Compare LEML and RobustXML of equal rank: the gain by the sparse part, by label frequency."""
    groups = [f"R@5 {group}" for group in ("head", "torso", "tail")]
    for name in data:
        X, Y, X_test, Y_test = load(name)
        show(f"{name}: {' '.join(MEASURES + groups)}", [])
        for rank in (50, 100, 300):
            for kind in ("leml", "robustxml"):
                model = make(kind, name, n_components=min(rank, int(0.8 * Y.shape[1])), alpha=2.0)
                ids = model.fit(X, Y).top_k(X_test, 5)[0]
                found = metrics.evaluate(Y_test, ids, Y, by_frequency=True)
                show(f"  {kind}, rank {rank}", [found.get(measure, np.nan) for measure in MEASURES + groups])


def neighbors(systems: list[str], data: list[str], seeds: int) -> None:
    """Blend a vote of the nearest rows into the scores of `Bonsai`, with several weights."""
    for name in data:
        matrices = X, Y, X_test, _ = load(name)
        depth = min(100, Y.shape[1])
        own = scores_of(Bonsai(blend_weight=("auto", 0), threshold=0.5).fit(X, Y), X_test, depth)
        votes = {
            "50 nearest rows, cosine⁴": plain_vote(X, Y, X_test, 50),
            "SLEEC": scores_of(make("sleec", name).fit(X, Y), X_test, depth),
        }
        show(f"{name}: {' '.join(MEASURES)}", [])
        show("  Bonsai", figures(own, matrices))
        for title, vote in votes.items():
            show(f"  {title}", figures(vote, matrices))
            for weight in (0.1, 0.2, 0.3, 0.4, 0.5):
                blend = sp.csr_array((1 - weight) * own + weight * vote)
                show(f"  Bonsai + {weight} {title}", figures(blend, matrices))


def forests(systems: list[str], data: list[str], seeds: int) -> None:
    """Evaluate FastXML with fewer trees, without its ranking loss, and blended into `Bonsai`."""
    for name in data:
        matrices = X, Y, X_test, _ = load(name)
        depth = min(100, Y.shape[1])
        show(f"{name}: {' '.join(MEASURES)}", [])
        for title, n_trees, grow in FORESTS:
            with patch.object(_core, "train_fastxml", grow):
                fast = make("fastxml", name, n_trees=n_trees).fit(X, Y)
            show(f"  {title}, {n_trees} trees", figures(fast.top_k(X_test, 5)[0], matrices))
        own = scores_of(Bonsai(blend_weight=("auto", 0), threshold=0.5).fit(X, Y), X_test, depth)
        votes = scores_of(fast, X_test, depth)
        show("  Bonsai", figures(own, matrices))
        for weight in (0.1, 0.3, 0.5, 0.7, 0.9):
            blend = sp.csr_array((1 - weight) * own + weight * votes)
            show(f"  Bonsai + {weight} FastXML", figures(blend, matrices))


# FastXML, and the same trees with nodes that divide rows by 2-means of their labels instead of rankings.
FORESTS = [
    *(("FastXML by 2-means", n, partial(_core.train_fastxml, by_ranking=False)) for n in (10, 20, 50)),
    *(("FastXML", n, _core.train_fastxml) for n in (10, 20, 50)),
]


def fusion(systems: list[str], data: list[str], seeds: int) -> None:
    """Print accuracy and CPU time of a blend and of the same models as a fusion; then one of many labels."""
    fixed: Any = {"C": 1.0, "logit_adjustment": 0.0, "threshold": 0.5, "n_jobs": 1}
    for name in data:
        matrices = X, Y, X_test, _ = load(name)
        blend = Bonsai(classifiers="blend", blend_weight=(0.3, 0), **fixed).fit(X, Y)
        own = Bonsai(classifiers="one_vs_rest", **fixed).fit(X, Y)
        trees = Bonsai(classifiers="leaf", **fixed).fit(X, Y)
        options: Any = {"link": "score", "weights": [0.7, 0.3], "threshold": 0.5, "n_jobs": 1}
        fused = Fusion.of({"own": own, "trees": trees}, X_test, matrices[3], **options)
        for kind, model in (("blend", blend), ("fusion", fused)):
            show(f"{name}, {kind}", figures(model.top_k(X_test, 5)[0], matrices))
            batch, _ = least_seconds(partial(model.top_k, X_test, 5))
            rows = [X_test[[i]] for i in range(200)]
            single, _ = least_seconds(lambda model=model, rows=rows: [model.top_k(row, 5) for row in rows])
            each = 1e6 * batch / X_test.shape[0]
            print(f"  {each:.0f} µs a row in a batch, {1e6 * single / len(rows):.0f} µs for a single row")
    rng = np.random.default_rng(0)
    n_rows, n_labels = 10_000, 456_599
    X = sp.random_array((n_rows, 20_000), density=0.002, format="csr", dtype=np.float32, rng=rng)
    columns = np.sort(rng.integers(0, n_labels // 3, (n_rows, 3)) * 3 + np.arange(3), axis=1)
    indptr = np.arange(0, 3 * n_rows + 1, 3)
    Y = sp.csr_array((np.ones(3 * n_rows, np.float32), columns.ravel(), indptr), (n_rows, n_labels))
    trees = FastXML(n_trees=5, threshold=0.5).fit(X, Y)
    leaves = Bonsai(classifiers="leaf", n_trees=1, threshold=0.5, C=1.0).fit(X, Y)
    rank = Fusion.of(
        {"a": trees, "b": leaves}, X[:50], Y[:50], link="rank", weights=[1, 1], threshold=0.5
    ).top_k
    tracemalloc.start()
    seconds, _ = least_seconds(lambda: rank(X[:2000], 5))
    peak = tracemalloc.get_traced_memory()[1]
    print(f"{n_labels:,} labels, 2,000 rows: {seconds:.1f} CPU s, {peak / 1e6:.0f} MB of arrays at most")


def nodes(systems: list[str], data: list[str], seeds: int, keep: Keep = forget) -> None:
    """Compare L1 logistic regression, as in a node, by LIBLINEAR and by the core at equal objective.

    Both in CPU time from the rows of a node to its weights, the least of five runs; ours with the loosest
    tolerance that gives an objective as low, and with memory that nodes use one after the other. As in
    training, columns of a node are divided from those of a parent with twice the rows, together with those of
    its sibling: half of this time counts. The columns of all rows are shared by all trees. The rows of node
    and parent are random parts of all.
    """
    for name in data:
        X, Y = load(name)[:2]
        X.sort_indices()
        Y.sort_indices()
        rows = (X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.float32), X.shape[1])
        labels = (Y.indptr.astype(np.int64), Y.indices.astype(np.int32), Y.shape[1])
        dataset = _core.Dataset(rows, *labels, np.empty(0, np.float32), False)
        shared, _ = least_seconds(lambda dataset=dataset: _core_testing.NodeSolver(dataset, 1.0))
        print(f"{name}: {1e3 * shared:.0f} ms for the columns of all rows", flush=True)
        order = np.random.default_rng(0)
        for n_rows in (X.shape[0], X.shape[0] // 2, X.shape[0] // 8, 1000, 300, 100, 30):
            ratios, seconds = [], []
            for _ in range(1 if n_rows > 10_000 else 5):
                chosen = np.sort(order.choice(X.shape[0], n_rows, replace=False))
                sides = sides_of(Y[chosen], order)
                theirs, best = liblinear_seconds(X[chosen], sides)
                node = _core_testing.NodeSolver(dataset, 1.0)
                divided = divide_seconds(node, X.shape[0], chosen, order)
                for tol in (0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.003, 0.001, 1e-4, 1e-5):
                    ours, solved = least_seconds(partial(node.solve, sides, tol, 1000))
                    if solved[2] <= best * (1 + 1e-6):
                        break
                ours += divided / 2
                ratios.append(theirs / ours)
                seconds.append((ours, theirs))
            ours, theirs = 1e3 * np.median(seconds, axis=0)
            print(
                f"{name}, {n_rows} rows: LIBLINEAR {theirs:.2f} ms, ours {ours:.2f} ms, "
                f"ratio {np.median(ratios):.1f}",
                flush=True,
            )
            row = {"LIBLINEAR, CPU ms": theirs, "FastXML's node, CPU ms": ours, "ratio": np.median(ratios)}
            keep("fastxml-nodes", {"data": name, "rows": n_rows, **row})


def divide_seconds(node: Any, n: int, chosen: Any, order: np.random.Generator) -> float:
    """Make `node`, of n rows, that of the chosen ones; return the CPU seconds to divide its parent."""
    if len(chosen) == n:
        return 0.0
    others = order.permutation(np.setdiff1d(np.arange(n), chosen))[: len(chosen)]
    parent = np.sort(np.concatenate([chosen, others]))
    if len(parent) < n:
        node.set_parent()
        node.divide(np.isin(np.arange(n), parent).astype(np.uint8))
    node.set_parent()
    right = np.isin(parent, chosen).astype(np.uint8)
    return least_seconds(lambda: node.divide(right))[0]


def sides_of(Y: sp.csr_array, order: np.random.Generator) -> Any:
    """Return the sides of rows with these labels, as FastXML finds them from random ones."""
    labels = (Y.indptr.astype(np.int64), Y.indices.astype(np.int32), Y.shape[1])
    rows = (np.zeros(Y.shape[0] + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 1)
    dataset = _core.Dataset(rows, *labels, np.empty(0, np.float32), False)
    start = order.choice(np.array([-1, 1], np.int8), Y.shape[0])
    return _core_testing.divide_by_ranking(dataset, None, start)


def liblinear_seconds(X: sp.csr_array, sides: Any) -> tuple[float, float]:
    """Return the CPU seconds of LIBLINEAR, and its objective."""
    peer = LogisticRegression(penalty="l1", solver="liblinear", tol=0.01, max_iter=1000)
    seconds, fitted = least_seconds(lambda: peer.fit(X, sides))
    w, bias = fitted.coef_.ravel(), fitted.intercept_[0]
    return seconds, np.abs(w).sum() + abs(bias) + np.logaddexp(0, -sides * (X @ w + bias)).sum()


def sparse_labels(systems: list[str], data: list[str], seeds: int, keep: Keep = forget) -> None:
    """Compare CPU time for a ProXML label by LIBLINEAR and by the core at an equally low objective.

    Ours without the columns of the rows, which all labels share: what four copies of a label take beyond one.
    """
    for name in data:
        X, Y = load(name)[:2]
        X.sort_indices()
        for label in np.argsort(-np.asarray(Y.sum(axis=0)).ravel(), kind="stable")[
            [10, 100, 300, 1000, 3000]
        ]:
            signs = np.where(Y[:, [label]].toarray().ravel() > 0, 1, -1)
            for l1 in (1.0, 0.1):
                peer = LinearSVC(penalty="l1", dual=False, C=1 / l1, tol=1e-3, max_iter=1000)
                start = time.process_time()
                peer.fit(X, signs)
                theirs = time.process_time() - start
                best = hinge(X, signs, peer.coef_.ravel(), peer.intercept_[0], l1)
                for tol in (0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-6):
                    many, found = hinge_seconds(X, signs, 4, l1, tol)
                    if hinge(X, signs, *found, l1) <= best * (1 + 1e-6):
                        break
                ours = (many - hinge_seconds(X, signs, 1, l1, tol)[0]) / 3
                positives = int(np.sum(signs > 0))
                print(
                    f"{name}, {positives} positives, l1 {l1}: LIBLINEAR {1e3 * theirs:.0f} ms, "
                    f"ours {1e3 * ours:.0f} ms, ratio {theirs / ours:.1f}",
                    flush=True,
                )
                times = {"LIBLINEAR, CPU ms": 1e3 * theirs, "ProXML's label, CPU ms": 1e3 * ours}
                row = {"positive rows": positives, "l1": l1, **times, "ratio": theirs / ours}
                keep("proxml-labels", {"data": name, **row})


def hinge(X: sp.csr_array, signs: Any, w: Any, bias: float, l1: float) -> float:
    """Return ProXML's objective with C = 1."""
    slack = np.maximum(0, 1 - signs * (X @ w + bias))
    return float(l1 * (np.abs(w).sum() + abs(bias)) + (slack**2).sum())


def hinge_seconds(X: sp.csr_array, signs: Any, n: int, l1: float, tol: float) -> tuple[float, Any]:
    """Return CPU seconds for n equal labels, and the weights and bias of the first."""
    rows = (X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.float32), X.shape[1])
    Y = sp.csr_array(np.repeat((signs > 0)[:, None], n, axis=1))
    labels = (Y.indptr.astype(np.int64), Y.indices.astype(np.int32), n)
    dataset = _core.Dataset(rows, *labels, np.empty(0, np.float32), False)
    start = time.process_time()
    bias, ptr, feature, value, *_ = _core.train_l1_hinge(
        dataset, l1=l1, l2=0.0, c=1.0, tol=tol, max_rounds=50, threads=1
    )
    seconds = time.process_time() - start
    w = np.zeros(X.shape[1])
    w[feature[: ptr[1]]] = value[: ptr[1]]
    return seconds, (w, float(bias[0]))


def least_seconds(call: Any) -> tuple[float, Any]:
    """Return the least CPU time of five runs, and the result."""
    times = []
    for _ in range(5):
        begun = time.process_time()
        result = call()
        times.append(time.process_time() - begun)
    return min(times), result


def scores_of(model: Any, X: sp.csr_array, k: int) -> sp.csr_array:
    """Return the scores of the k best labels as a matrix."""
    ids, scores = model.top_k(X, k)
    rows, places = np.nonzero(ids >= 0)
    shape = X.shape[0], len(model.classes_)
    return sp.csr_array((scores[rows, places], (rows, ids[rows, places])), shape=shape)


def plain_vote(X: sp.csr_array, Y: sp.csr_array, X_test: sp.csr_array, n: int) -> sp.csr_array:
    """Return the shares of labels among the n rows of the largest cosine, which weigh cosine⁴."""
    unit, columns = normalize(X_test), normalize(X).T.tocsr()
    parts = []
    for begin in range(0, unit.shape[0], 256):
        cosine = (unit[begin : begin + 256] @ columns).toarray()
        near = np.argpartition(-cosine, n, axis=1)[:, :n]
        weights = np.take_along_axis(cosine, near, axis=1) ** 4
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
        indptr = np.arange(0, near.size + 1, n)
        parts.append(sp.csr_array((weights.ravel(), near.ravel(), indptr), (len(near), X.shape[0])) @ Y)
    return sp.csr_array(sp.vstack(parts))


COMPARISONS: dict[str, Any] = {
    "accuracy": accuracy,
    "splits": splits,
    "choices": choices,
    "cost": cost,
    "tail": tail,
    "neighbors": neighbors,
    "forests": forests,
    "fusion": fusion,
    "nodes": nodes,
    "sparse-labels": sparse_labels,
}

RECORDED = ("accuracy", "splits", "cost", "nodes", "sparse-labels")


def main() -> None:
    """Run a comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("comparison", choices=COMPARISONS)
    parser.add_argument("--systems", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--data", nargs="+", default=["bibtex", "delicious"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", metavar="MACHINE", help="store the figures in benchmarks/results")
    given = parser.parse_args()
    run = COMPARISONS[given.comparison]
    if given.record:
        if given.comparison not in RECORDED:
            parser.error(f"--record is for {', '.join(RECORDED)}, not for {given.comparison}")
        command = f"python -m benchmarks.systems {shlex.join(sys.argv[1:])}"
        keep = lambda table, row: record(given.record, table, command, [row], KEYS[table])
        run = partial(run, keep=keep)
    run(given.systems, given.data, given.seeds)


if __name__ == "__main__":
    main()
