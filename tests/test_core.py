"""The compiled core against the NumPy reference, step by step, on each instruction set of this machine."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import reference
import stages
from bonsai_xmc import _core, _core_testing
from bonsai_xmc._base.params import PARAMETERS
from helpers import random_csr
from reference import Node, Rng, derive, unit_rows
from stored import (
    as_array,
    as_rows,
    as_vectors,
    lattice_forest,
    linear_params,
    make_data,
    make_dataset,
    make_weights,
    pack,
    stored_classifiers,
    stored_forest,
    top_k,
)

on_each_isa = pytest.mark.usefixtures("isa")


def test_an_unknown_instruction_set_is_rejected(monkeypatch):
    monkeypatch.setenv("BONSAI_ISA", "mmx")
    with pytest.raises(ValueError, match="BONSAI_ISA=mmx is not one of portable, avx2, avx512, avx512vnni"):
        _core.isa()


# --- label vectors ---


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["input", "output", "joint"])
def test_label_vectors_equal_the_reference(kind, normalize, weighted, dense):
    X, Y = make_data(1, n=150, labels=80)
    Y[:, -1] = 0
    Y[10] = 0
    Y[10, -1] = 1  # a label on a row of its own: zero in the output space
    weights = make_weights(len(X)) if weighted else None
    rows = stages.label_vectors(make_dataset(X, Y, weights, normalize, dense), kind, 3).arrays()
    expected = reference.label_vectors(X, Y, kind, weights, normalize)
    np.testing.assert_allclose(as_array(rows), expected, atol=2e-6)
    assert isinstance(rows, tuple) == (not dense or kind != "input")
    assert kind != "output" or not as_array(rows)[-1].any()


@pytest.mark.parametrize("kind", ["input", "joint"])
@pytest.mark.parametrize("n_features", [63, 64, 65, 4095, 4096, 4097, 12_000])
@pytest.mark.parametrize("entries", [20, 300])
def test_label_vectors_of_many_features(kind, n_features, entries):
    """Columns are marked in words of 64, and words in groups of 64. If X has more features than entries, the
    columns are the features that occur."""
    rng = np.random.default_rng(n_features)
    X = np.zeros((60, n_features), np.float32)
    for row in X:
        row[rng.integers(n_features, size=entries)] = rng.random(entries) + 0.1
    X[:, [0, -1]] += rng.random((60, 2)) < 0.3  # the first and the last one, too
    Y = rng.random((60, 70)) < 0.05
    indptr, indices, *_ = rows = stages.label_vectors(make_dataset(X, Y), kind, 2).arrays()
    columns = X.any(axis=0) | (np.count_nonzero(X) >= n_features)
    np.testing.assert_allclose(as_array(rows), reference.label_vectors(X[:, columns], Y, kind), atol=2e-6)
    for begin, end in pairwise(indptr):
        assert (np.diff(indices[begin:end]) > 0).all()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kind", ["input", "joint"])
def test_label_vectors_of_rows_that_cancel(kind, dense):
    X = np.array([[1, 0, 2], [-1, 0, -2], [0, 1, 1]], dtype=np.float32)
    Y = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    vectors = as_array(stages.label_vectors(make_dataset(X, Y, dense=dense), kind, 1).arrays())
    np.testing.assert_allclose(vectors, reference.label_vectors(X, Y, kind), atol=1e-6)


# --- k-means ---


def kmeans_params(k, tol=1e-4, max_iter=100, init="random", balanced=False):
    return {
        "branching_factor": k,
        "kmeans_tol": tol,
        "kmeans_max_iter": max_iter,
        "plus_plus": init == "k-means++",
        "balanced": balanced,
    }


def check_partition(V, k, key, tol=1e-4, max_iter=100, init="random", balanced=False, dense=False, threads=1):
    params = kmeans_params(k, tol, max_iter, init, balanced)
    cluster, n_clusters, objectives = _core_testing.partition(as_rows(V, dense), params, key, threads)
    rng = Rng(derive(key, reference.CLUSTERING))
    expected = reference.kmeans(np.asarray(V, np.float64), k, rng, tol, max_iter, init, balanced)
    assert cluster.tolist() == expected.cluster.tolist()
    assert n_clusters == expected.cluster.max() + 1
    np.testing.assert_allclose(objectives, expected.objectives, atol=1e-6)
    return cluster


def unit_cloud(seed, n, d, n_topics=6):
    """Rows around a few directions, so that clustering takes several iterations."""
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((n_topics, d))[rng.integers(n_topics, size=n)] + rng.standard_normal((n, d))
    V[rng.random((n, d)) < 0.5] = 0
    return unit_rows(V).astype(np.float32)


@on_each_isa
@pytest.mark.parametrize(("n", "k"), [(60, 8), (400, 60), (300, 140)])
def test_kmeans_of_wide_rows(n, k):
    """Most of each centre is zero, and the rest is marked. More than 128 centres are two parts."""
    for key in range(3):
        rng = np.random.default_rng(key)
        topics = np.sort(rng.integers(3000, size=(40, 30)))
        V = np.zeros((n, 3000), np.float32)
        for row, topic in zip(V, topics[rng.integers(40, size=n)], strict=True):
            row[rng.choice(topic, 8)] = rng.standard_normal(8)
            row[rng.integers(3000, size=4)] = rng.standard_normal(4)
        V = unit_rows(V).astype(np.float32)
        assert np.count_nonzero(V) / k < 3000 / 8
        check_partition(V, k, key, threads=1 + 2 * key)


@on_each_isa
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("init", ["random", "k-means++"])
@pytest.mark.parametrize(("n", "d", "k"), [(90, 30, 7), (40, 50, 17), (300, 20, 2), (250, 12, 99), (5, 8, 9)])
def test_kmeans_equals_the_reference(n, d, k, init, balanced):
    for key in range(3):
        check_partition(unit_cloud(key, n, d), k, key, init=init, balanced=balanced, threads=1 + 2 * key)


@on_each_isa
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_kmeans_with_zero_rows(init, balanced):
    V = unit_cloud(5, 80, 25)
    V[[0, 7, 8, 9, 30, 31, 60, 79]] = 0
    for key in range(4):
        check_partition(V, 6, key, init=init, balanced=balanced)
        check_partition(V, 6, key, init=init, balanced=balanced, dense=True)


@on_each_isa
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_kmeans_with_zeros_that_are_stored(init, balanced):
    """As in the vector of a label whose rows cancel out."""
    V = unit_cloud(6, 30, 12)
    V[[3, 4, 20]] = 0
    indptr, indices, data = np.arange(31) * 12, np.tile(np.arange(12), 30), V.ravel()
    rows = (indptr.astype(np.int64), indices.astype(np.int32), data, 12)
    for key in range(3):
        params = kmeans_params(4, init=init, balanced=balanced)
        cluster = check_partition(V, 4, key, init=init, balanced=balanced)
        assert _core_testing.partition(rows, params, key, 1)[0].tolist() == cluster.tolist()


@on_each_isa
@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_kmeans_of_zero_rows_alone(init, balanced, n):
    cluster = check_partition(np.zeros((n, 4)), 3, 1, init=init, balanced=balanced)
    assert np.bincount(cluster).max() <= -(-n // 3)


@on_each_isa
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_kmeans_of_identical_rows(init, balanced):
    V = np.zeros((16, 10))
    V[:, :4] = 0.5
    alike = check_partition(V, 4, 3, init=init, balanced=balanced)
    assert alike.max() == (3 if balanced and init == "random" else 0)
    V[8:] = np.roll(V[8:], 5, axis=1)
    for key in range(4):  # two kinds of rows
        check_partition(V, 4, key, init=init, balanced=balanced)


@on_each_isa
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize(("tol", "max_iter"), [(1e-4, 1), (1e-4, 2), (1e-4, 3), (0.05, 100), (10.0, 100)])
def test_kmeans_stops_as_the_reference_does(tol, max_iter, balanced):
    V = unit_cloud(8, 120, 20)
    for key in range(3):
        check_partition(V, 8, key, tol=tol, max_iter=max_iter, balanced=balanced)


@on_each_isa
def test_kmeans_moves_singletons():
    V = unit_cloud(2, 30, 40, n_topics=15)
    sizes = [np.bincount(check_partition(V, 12, key)) for key in range(6)]
    assert all(s.min() >= 2 for s in sizes)
    assert any(len(s) < 12 for s in sizes)  # some cluster had a single label


@on_each_isa
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_kmeans_of_rows_that_cancel(dense, balanced):
    V = np.array([[1, 0], [-1, 0], [1, 0], [-1, 0], [0.6, 0.8], [-0.6, -0.8]])
    for key in range(12):
        check_partition(V, 2, key, balanced=balanced, dense=dense)
        check_partition(V[:4], 3, key, balanced=balanced, dense=dense)


@on_each_isa
@pytest.mark.parametrize("n", [300, 2000])  # in small clusters, similarities to centres that stay are kept
@pytest.mark.parametrize("dense", [False, True])
def test_kmeans_gives_each_row_its_best_centre(dense, n):
    """Centres are updated by rows that join and leave: after many of these, each row has its best centre."""
    V = unit_rows(np.abs(np.random.default_rng(4).standard_normal((n, 8))) + 1).astype(np.float32)
    for iteration in (4, 12, 40):
        steps = [kmeans_params(5, tol=-1.0, max_iter=i) for i in (iteration - 1, iteration)]
        before, after = (
            _core_testing.partition(as_rows(V, dense), params, 6, 2)[0].astype(int) for params in steps
        )
        assert np.bincount(before).min() > n / 20 and before.max() == 4  # none has vanished: same numbers
        centres = unit_rows(np.stack([np.float64(V)[before == c].sum(axis=0) for c in range(5)]))
        similarity = V @ centres.T
        assert (similarity[np.arange(len(V)), after] >= similarity.max(axis=1) - 1e-6).all()


# --- trees ---


@on_each_isa
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    "params",
    [
        {"branching": 5},
        {"branching": 3, "max_leaf": 2},
        {"branching": 4, "max_depth": 2},
        {"branching": 4, "max_depth": 1},
        {"branching": 2, "max_leaf": 5, "balanced": True},
        {"branching": 6, "kmeans_init": "k-means++", "kmeans_tol": 1e-3, "kmeans_max_iter": 3},
        {"branching": 200},
        {"branching": 5, "max_leaf": 2, "bounded": True},
        {"branching": 3, "max_leaf": 1, "max_depth": 3, "bounded": True, "kmeans_max_iter": 2},
    ],
)
def test_trees_equal_the_reference(params, dense):
    V = unit_cloud(3, 110, 30)
    V[[4, 50, 51]] = 0
    labels = np.setdiff1d(np.arange(110), [0, 60, 109])
    core_params = kmeans_params(
        params["branching"],
        params.get("kmeans_tol", 1e-4),
        params.get("kmeans_max_iter", 100),
        params.get("kmeans_init", "random"),
        params.get("balanced", False),
    )
    core_params |= {"max_leaf_size": params.get("max_leaf", params["branching"])}
    core_params |= {
        "max_depth": params.get("max_depth", 0),
        "split_oversized": params.get("max_depth", 0) > 1,
        "bounded": params.get("bounded", False),
    }
    trees = stages.build_trees(
        as_vectors(V, dense), labels.astype(np.uint32), len(V), 3, core_params, 99, 2
    ).arrays()
    assert len(trees) == 3
    for t, flat in enumerate(trees):
        root = reference.build_tree(np.float64(V), labels, reference.tree_key(99, t), **params)
        for part, expected in zip(flat, reference.flatten(root), strict=True):
            assert part.tolist() == expected.tolist()


@pytest.mark.parametrize("dense", [False, True])
def test_large_clusters_are_split_at_the_same_level(dense):
    """Most labels are nearly alike: k-means leaves them together. Equal ones are cut."""
    rng = np.random.default_rng(5)
    V = np.vstack([np.eye(40)[:20] + 0.01, np.ones((200, 40)) + rng.random((200, 40)), np.ones((180, 40))])
    V = (V / np.linalg.norm(V, axis=1, keepdims=True)).astype(np.float32)
    labels, sizes = np.arange(400), {}
    for bounded in (False, True):
        params = kmeans_params(10) | {"max_leaf_size": 5, "max_depth": 2, "split_oversized": False}
        params |= {"bounded": bounded}
        (flat,) = stages.build_trees(
            as_vectors(V, dense), labels.astype(np.uint32), len(V), 1, params, 7, 2
        ).arrays()
        root = reference.build_tree(
            np.float64(V), labels, reference.tree_key(7, 0), 10, 5, 2, bounded=bounded
        )
        for part, expected in zip(flat, reference.flatten(root), strict=True):
            assert part.tolist() == expected.tolist()
        sizes[bounded] = np.diff(flat[0])[1:]
    assert sizes[False].max() > 180 and len(sizes[False]) <= 10
    assert sizes[True].max() <= 160 and 10 < len(sizes[True]) <= 40
    assert sizes[True].sum() == 400


# --- solvers ---


def signs(Y, label):
    return np.where(Y[:, label] > 0, 1.0, -1.0)


def check_dual(X, Y, weights=None, normalize=True, dense=False, C=1.0, key=5, **params):
    dataset = make_dataset(X, Y, weights, normalize, dense)
    W, b, n_iter = _core_testing.solve(dataset, linear_params(C=C, **params), key)
    features = unit_rows(np.float64(X)) if normalize else np.float64(X)
    s = np.ones(len(X)) if weights is None else np.float64(weights)
    tol, max_iter, bias = params.get("tol", 0.1), params.get("max_iter", 20), params.get("bias", "learn")
    for label in range(Y.shape[1]):
        rng = Rng(derive(key, reference.SOLVER))
        args = (features, signs(Y, label), C, s, tol, max_iter, bias, rng)
        w, expected_bias, passes = reference.DUAL_SOLVERS[params.get("loss", "squared_hinge")](*args)
        np.testing.assert_allclose(W[label], w, atol=3e-5)
        assert b[label] == pytest.approx(expected_bias, abs=3e-5)
        assert n_iter[label] == passes
    return n_iter


@on_each_isa
def test_losses_are_those_of_the_parameter():
    assert PARAMETERS["loss"].rule.choices == tuple(_core.losses())


@pytest.mark.parametrize("loss", _core.losses())
def test_log_score_is_minus_the_loss(loss):
    margins = np.linspace(-30, 30, 242).reshape(2, 121)
    scores = _core.log_scores(loss, margins)
    assert scores.shape == margins.shape
    np.testing.assert_allclose(scores, -reference.loss_of(margins, loss), rtol=1e-12)
    assert _core.log_scores(loss, np.array(-np.inf)) == -np.inf


def test_log_scores_rejects_an_unknown_loss():
    with pytest.raises(ValueError, match="loss is 'hinge', but must be one of squared_hinge, logistic"):
        _core.log_scores("hinge", np.zeros(1))


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("max_iter", [1, 2, 3, 8])
def test_dual_pass_by_pass(max_iter, loss):
    X, Y = make_data(11)
    n_iter = check_dual(X, Y, tol=1e-9, max_iter=max_iter, loss=loss)
    assert (n_iter == max_iter).all()


@on_each_isa
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("bias", ["learn", 0.0, -0.75])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_dual_until_it_converges(loss, weighted, bias, dense):
    X, Y = make_data(12)
    weights = make_weights(len(X)) if weighted else None
    n_iter = check_dual(X, Y, weights, dense=dense, bias=bias, tol=0.02, max_iter=200, loss=loss)
    assert n_iter.max() < 200


@on_each_isa
@pytest.mark.parametrize(("C", "normalize"), [(0.01, True), (8.0, True), (0.5, False)])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_dual_with_other_costs_and_lengths(loss, C, normalize):
    X, Y = make_data(13, values="positive")
    check_dual(X, Y, normalize=normalize, C=C, tol=0.05, max_iter=30, loss=loss)


@on_each_isa
def test_dual_with_two_panels():
    X, Y = make_data(14, n=50, labels=70)
    n_iter = check_dual(X, Y, tol=0.1, max_iter=40)
    assert len(set(n_iter)) > 3


@on_each_isa
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_other_problems_in_the_panel_change_nothing(solver, loss, dense):
    """Lanes leave the panel at different times, and the rest is packed together."""
    X, Y = make_data(15, n=50, labels=70)
    params = linear_params(loss, solver, C=10.0, tol=1e-5, max_iter=200)
    W, b, n_iter = _core_testing.solve(make_dataset(X, Y, dense=dense), params, 3)
    counts = np.bincount(n_iter[:64])
    assert np.count_nonzero(counts) >= 3
    assert solver == "newton" or counts.max() <= 32  # the first panel is narrowed at least twice
    for label in range(Y.shape[1]):
        alone = _core_testing.solve(make_dataset(X, Y[:, [label]], dense=dense), params, 3)
        assert np.array_equal(alone[0][0], W[label])
        assert (alone[1][0], alone[2][0]) == (b[label], n_iter[label])


@on_each_isa
@pytest.mark.parametrize("bias", ["learn", 0.5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_solvers_reach_the_optimum(solver, loss, weighted, bias):
    X, Y = make_data(16, n=60, d=25, labels=6)
    weights = make_weights(len(X)) if weighted else None
    params = linear_params(loss, solver, C=2.0, tol=1e-5, max_iter=5000, bias=bias)
    W, b, _ = _core_testing.solve(make_dataset(X, Y, weights), params, 1)
    features = unit_rows(np.float64(X))
    for label in range(Y.shape[1]):
        y = signs(Y, label)
        terms = {"C": 2.0, "sample_weight": weights, "bias": bias, "loss": loss}
        w, best_bias, _ = reference.solve_exact(features, y, **terms)
        best = reference.objective(w, best_bias, features, y, **terms)
        found = reference.objective(np.float64(W[label]), float(b[label]), features, y, **terms)
        assert best * (1 - 1e-9) <= found <= best * (1 + 1e-4)
        np.testing.assert_allclose(W[label], w, atol=0.02)


@on_each_isa
@pytest.mark.parametrize("solver", ["dual", "newton"])
@pytest.mark.parametrize(
    ("loss", "other"),
    [
        ("squared_hinge", LinearSVC(C=0.7, tol=1e-8, max_iter=100_000, dual=True, random_state=0)),
        ("logistic", LogisticRegression(C=0.7, tol=1e-8, max_iter=10_000, solver="liblinear")),
    ],
)
def test_solvers_agree_with_scikit_learn(loss, other, solver):
    X, Y = make_data(17, n=120, d=15, labels=1, density=0.5)
    y = Y[:, 0] = np.random.default_rng(0).random(len(X)) < 0.3
    W, b, _ = _core_testing.solve(
        make_dataset(X, Y, normalize=False), linear_params(loss, solver, C=0.7, tol=1e-5, max_iter=5000), 1
    )
    other.fit(np.float64(X), y)
    np.testing.assert_allclose(W[0], other.coef_[0], atol=2e-3)
    assert b[0] == pytest.approx(other.intercept_[0], abs=2e-3)


@on_each_isa
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
@pytest.mark.parametrize("sign", [0, 1])
def test_labels_on_no_row_or_on_all(sign, solver, loss):
    X, _ = make_data(18)
    Y = np.full((len(X), 2), sign)
    W, b, _ = _core_testing.solve(
        make_dataset(X, Y), linear_params(loss, solver, tol=1e-4, max_iter=2000, prune=0.3), 1
    )
    y, features = signs(Y, 0), unit_rows(np.float64(X))
    w, best_bias, _ = reference.solve_exact(features, y, loss=loss)
    np.testing.assert_allclose(W[0], np.where(np.abs(w) <= 0.3, 0, w), atol=2e-3)
    assert np.array_equal(W[0], W[1])
    assert b[0] == pytest.approx(best_bias, abs=2e-3)


# --- the forest: stored arrays and beam search ---


def train_core(X, Y, weights=None, n_trees=2, branching=4, seed=7, dense=False, **params):
    dataset = make_dataset(X, Y, weights, dense=dense)
    vectors = stages.label_vectors(dataset, "input", 1)
    tree_params = kmeans_params(branching) | {
        "max_leaf_size": branching,
        "max_depth": 0,
        "split_oversized": False,
        "bounded": False,
    }
    present = np.flatnonzero(Y.any(axis=0)).astype(np.uint32)
    trees = stages.build_trees(vectors, present, Y.shape[1], n_trees, tree_params, seed, 1)
    params = linear_params(**{"prune": 0.1} | params)
    forest, report = stages.train_trees(dataset, trees, params, seed, 2)
    return trees.arrays(), forest.arrays(), report


@on_each_isa
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("bias", "prune"), [("learn", 0.1), (-1.0, 0.02)])
def test_trained_classifiers_are_optimal_and_pruned_as_in_the_reference(bias, prune, weighted, dense):
    X, Y = make_data(21, n=120, d=50, labels=40, density=0.15)
    Y[:, 25:] *= np.random.default_rng(0).random((120, 15)) < 0.2
    weights = make_weights(len(X)) if weighted else None
    options = {"bias": bias, "prune": prune, "max_iter": 6, "tol": 0.05}
    trees, arrays, report = train_core(X, Y, weights, dense=dense, **options)
    forest = reference.train(X, Y, weights, trees=trees, seed=7, **options | {"prune": -1})
    n_iter, n_kept = [], 0
    for t, root in enumerate(forest):
        for node in reference.breadth_first(root):
            W, scale, b = stored_classifiers(arrays, arrays["tree_ptr"][t] + node.id, X.shape[1])
            dropped, kept = np.abs(node.W) < prune - 1e-4, np.abs(node.W) > prune + 1e-4
            assert not W[dropped].any()
            assert (np.abs(W - node.W) <= scale[:, None] / 2 + 1e-4)[kept].all()
            n_kept += kept.sum()
            np.testing.assert_allclose(np.abs(W).max(axis=1), 127 * scale, rtol=1e-6)
            np.testing.assert_allclose(b, node.b, atol=1e-4)
            n_iter.extend(node.n_iter)
    assert n_kept > len(n_iter)
    assert (report["n_classifiers"], report["max_iter"]) == (len(n_iter), max(n_iter))
    assert 0 < report["n_unconverged"] <= n_iter.count(6)
    _core.Forest(arrays, X.shape[1], Y.shape[1]).verify()


@on_each_isa
def test_trained_node_of_several_blocks():
    X, Y = make_data(23, n=60, d=300, labels=150, density=0.05)
    trees, arrays, _ = train_core(X, Y, n_trees=1, branching=200, prune=0.01)
    forest = reference.train(X, Y, trees=trees, seed=7, prune=0.01)
    W, scale, b = stored_classifiers(arrays, 0, X.shape[1])
    assert np.diff(arrays["block_ptr"]).tolist() == [2]
    assert (np.abs(W - forest[0].W) <= np.maximum(scale[:, None] / 2, 0.01) + 1e-4).all()
    np.testing.assert_allclose(b, forest[0].b, atol=1e-4)
    check_prediction(arrays, X, 150, None)


def check_prediction(arrays, X, n_labels, beam, loss="squared_hinge", normalize=True, threads=1, dense=False):
    forest = stored_forest(arrays, X.shape[1])
    expected = reference.predict(forest, X, beam, loss, normalize)
    core = _core.Forest(arrays, X.shape[1], n_labels)
    ids, scores = top_k(core, None, as_rows(X, dense), n_labels, beam, loss, normalize, threads)
    for row, candidates in enumerate(expected):
        n = len(candidates)
        assert ids[row].tolist() == [c[0] for c in candidates] + [-1] * (n_labels - n)
        wanted = [c[1] for c in candidates] + [-np.inf] * (n_labels - n)
        np.testing.assert_allclose(scores[row], wanted, rtol=1e-5, atol=1e-5)
        few = top_k(core, None, as_rows(X[[row]], dense), 2, beam, loss, normalize)
        assert few[0].tolist() == ids[[row], :2].tolist()
        assert few[1].tolist() == scores[[row], :2].tolist()
    return expected


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("n_trees", [1, 3])
@pytest.mark.parametrize("beam", [1, 2, 5, None])
def test_beam_search_equals_the_reference(beam, n_trees, loss, dense):
    X, Y = make_data(22, n=90, d=40, labels=45, density=0.2)
    Y[:, 20:] *= np.random.default_rng(0).random((90, 25)) < 0.3
    trees, arrays, _ = train_core(X, Y, n_trees=n_trees, loss=loss)
    depths = {node.level for node in reference.breadth_first(reference.unflatten(*trees[0], 0))}
    assert max(depths) > 2
    expected = check_prediction(arrays, X, 45, beam, loss, threads=2, dense=dense)
    assert [row for row, candidates in enumerate(expected) if not candidates] == [2, 3]  # no features there


@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize("beam", [1, 2, 3, None])
def test_ties_go_by_margin_then_id(beam, n_trees):
    rng, ties = np.random.default_rng(31), 0
    for _ in range(12):
        arrays = pack(lattice_forest(rng, 30, 6, n_trees))
        X = rng.integers(-1, 3, (20, 6)).astype(np.float32)
        X[5] = 0
        expected = check_prediction(arrays, X, 30, beam, normalize=False)
        for candidates in expected:
            ties += sum(a[1:] == b[1:] for a, b in pairwise(candidates))
        assert expected[5] == []
    assert ties > 10


def test_equal_scores_rank_by_margin_then_by_label():
    root = Node(np.arange(6), W=np.zeros((6, 1)), b=np.array([0.5, 2.0, 3.0, 1.0, 3.0, 2.5]))
    ids, scores = top_k(_core.Forest(pack([root]), 1, 6), None, as_rows([[1.0]]), 6, 10)
    assert ids.tolist() == [[2, 4, 5, 1, 3, 0]]
    assert scores.tolist() == [[0, 0, 0, 0, 0, -0.25]]


def test_no_score_is_lost_by_underflow():
    biases = [np.array([-40.0, -39.0, -41.0]), np.array([-50.0, -60.0, -39.0])]
    roots = [Node(np.arange(3), W=np.zeros((3, 1)), b=b) for b in biases]
    ids, scores = top_k(_core.Forest(pack(roots), 1, 3), None, as_rows([[1.0]]), 3, 10)
    assert ids.tolist() == [[2, 1, 0]]  # 1 and 2 are at −40² in one tree; 2 has the larger mean margin
    np.testing.assert_allclose(scores, [[-1600 - np.log(2), -1600 - np.log(2), -1681 - np.log(2)]], rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_margins_beyond_the_range_of_the_scores(loss):
    """Rows that are not normalised can be long; losses that float32 cannot hold must not change the rank."""
    roots = [Node(np.arange(4), W=np.array([[-1], [1], [-2], [1]]), b=np.zeros(4)) for _ in range(2)]
    for length in (1e18, 1e25, 3e38):
        x = as_rows([[length]])
        ids, scores = top_k(_core.Forest(pack(roots), 1, 4), None, x, 4, 10, loss, False)
        assert ids[0, :2].tolist() == [1, 3] and sorted(ids[0]) == [0, 1, 2, 3]
        assert not np.isnan(scores).any()
        assert scores[0, 0] == scores[0, 1] == 0 > scores[0, 2] >= scores[0, 3]


@pytest.mark.parametrize("beam", [3, None])
def test_nodes_of_several_blocks(beam):
    """Weights are stored for 128 children at a time."""
    rng = np.random.default_rng(32)
    leaves = [Node(np.sort(part), level=2) for part in np.split(rng.permutation(900), [128, 257, 640])]
    forest = [Node(np.arange(900), children=leaves), Node(np.arange(900))]
    for node in (node for root in forest for node in reference.breadth_first(root)):
        n = len(node.children) or len(node.labels)
        node.W = rng.integers(-127, 128, (n, 20)) / 8 * (rng.random((n, 20)) < 0.3)
        node.b = rng.integers(-16, 17, n) / 8
    arrays = pack(forest)
    assert set(arrays["shift"] <= 8) == {True, False}  # lower bits of one byte, and of two
    _core.Forest(arrays, 20, 900).verify()
    X = rng.integers(-1, 2, (10, 20)).astype(np.float32)
    check_prediction(arrays, X, 900, beam, normalize=False)


def test_many_rows_at_once():
    """Many rows at a node share a table of its features, few rows search it; threads take blocks of rows."""
    rng = np.random.default_rng(33)
    arrays = pack(lattice_forest(rng, 40, 300, 2, density=0.5))
    X = random_csr((700, 300), density=0.02, rng=rng, dtype=np.float32).toarray()
    forest = _core.Forest(arrays, 300, 40)
    ids, scores = top_k(forest, None, as_rows(X), 5, 3)
    for threads in (2, 5):
        again = top_k(forest, None, as_rows(X), 5, 3, threads=threads)
        assert np.array_equal(again[0], ids) and np.array_equal(again[1], scores)
    check_prediction(arrays, X[:30], 40, 3)
    alone = [top_k(forest, None, as_rows(x[None]), 5, 3) for x in X]
    assert np.array_equal(np.concatenate([a[0] for a in alone]), ids)
    assert np.array_equal(np.concatenate([a[1] for a in alone]), scores)
