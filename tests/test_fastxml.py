"""FastXML and PfastreXML: hand-worked steps, and whole models compared with plain NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

import reference_fastxml as reference
from bonsai_xmc import _core, _core_testing, metrics
from bonsai_xmc._data.rows import DenseRows, SparseRows
from bonsai_xmc.systems import FastXML, PfastreXML
from bonsai_xmc.systems.fastxml import FastXMLRanker
from bonsai_xmc.systems.pfastrexml import PfastreXMLRanker
from helpers import random_csr, says
from reference import derive


def dataset(X, Y, weights=(), normalize=False):
    X, Y = sp.csr_array(X, dtype=np.float32), sp.csr_array(Y)
    rows = (X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, X.shape[1])
    labels = (Y.indptr.astype(np.int64), Y.indices.astype(np.int32), Y.shape[1])
    return _core.Dataset(rows, *labels, np.array(weights, np.float32), normalize)


def divide(Y, side, q=None, weights=(), by_ranking=True):
    Y = np.asarray(Y)
    q = None if q is None else np.asarray(q, np.float32)
    data = dataset(np.ones((len(Y), 1)), Y, weights)
    return _core_testing.divide_by_ranking(data, q, np.array(side, np.int8), by_ranking).tolist()


def clustered(seed=0, n=150, d=40, n_labels=12, scale=1.0):
    """Return rows of six groups, on which features and labels depend."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 6, n)
    X = np.round(rng.random((n, d)) * 2, 2) * (
        rng.random((n, d)) < np.where(np.arange(d) % 6 == group[:, None], 0.5, 0.1)
    )
    Y = rng.random((n, n_labels)) < np.where(np.arange(n_labels) % 6 == group[:, None], 0.7, 0.05)
    return sp.csr_array((X * scale).astype(np.float32)), sp.csr_array(Y.astype(np.float32))


# --- the sides of a node ---


def test_rows_move_to_the_ranking_that_suits_them():
    # Side + ranks label 0 (2 rows) before 1 (1 row), side − label 1 (2 rows) before 0 (1 row). The rows of
    # label 0 gain 1 / log 2 on side + and 1 / log 3 on side −, those of label 1 the reverse.
    Y = [[1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [1, 0]]
    assert divide(Y, [1, 1, 1, -1, -1, -1]) == [1, 1, -1, -1, -1, 1]


def test_without_rankings_rows_move_to_the_nearer_mean_of_labels():
    # Unit means of labels: side + (2, 1) / √5, side − (1, 2) / √5. Rows of label 0 alone are nearer to +, and
    # the row of both labels is as near to one side as to the other: it stays.
    Y = [[1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [1, 0], [1, 1]]
    assert divide(Y[:6], [1, 1, 1, -1, -1, -1], by_ranking=False) == [1, 1, -1, -1, -1, 1]
    assert divide(Y, [1, 1, -1, -1, -1, 1, -1], by_ranking=False)[-1] == -1


@pytest.mark.parametrize("seed", range(3))
def test_sides_of_means_are_those_of_the_reference(seed):
    rng = np.random.default_rng(seed)
    Y = (rng.random((60, 15)) < rng.random(15) * 0.4).astype(float)
    side = rng.choice([-1, 1], 60)
    assert divide(Y, side, by_ranking=False) == reference.divide_by_means(Y, side).tolist()


def test_a_row_that_gains_the_same_on_both_sides_stays():
    assert divide([[1], [1], [1]], [1, -1, -1]) == [1, -1, -1]
    assert divide([[1, 0], [0, 0], [0, 1]], [1, -1, -1]) == [1, -1, -1]


def test_labels_of_rows_with_many_labels_count_less():
    # On side +, label 3 has the only row with it alone: 1 / (1 / log 2) = 0.693. Labels 0, 1 and 2 have two
    # rows with all three: 2 / (1 / log 2 + 1 / log 3 + 1 / log 4) = 0.651.
    Y = np.array([[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]])
    assert reference.ranking(Y, np.ones(3)) == [3, 0, 1, 2]
    # With equal weights instead, 2 rows come before 1.
    assert reference.ranking(Y, np.ones(3), np.ones(4)) == [0, 1, 2, 3]


def test_propensities_change_the_side_of_a_row():
    # Row 4 has both labels, each first on one side: the label with the larger weight decides.
    Y = [[1, 0], [1, 0], [0, 1], [0, 1], [1, 1]]
    assert divide(Y, [1, 1, -1, -1, -1], q=[1.0, 0.5])[-1] == 1
    assert divide(Y, [1, 1, -1, -1, 1], q=[0.5, 1.0])[-1] == -1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_sides_are_those_of_the_reference(seed, weighted):
    rng = np.random.default_rng(seed)
    Y = (rng.random((60, 15)) < rng.random(15) * 0.4).astype(float)
    side = rng.choice([-1, 1], 60)
    q = rng.random(15).astype(np.float32) if seed % 2 else None
    weights = rng.integers(1, 4, 60).astype(float) if weighted else np.ones(60)
    assert divide(Y, side, q, weights) == reference.divide(Y, side, q, weights).tolist()


# --- the classifier of a node ---


def node_of(solver, n, *divisions):
    """Divide a node of n rows as in a tree, into its rows at the given places, these again, and so on."""
    for places in divisions:
        right = np.zeros(n, np.uint8)
        right[places] = 1
        solver.set_parent()
        solver.divide(right)
        n = len(places)
    return solver


def l1_logistic(X, s, C=1.0, weights=(), tol=1e-7, max_iter=500, divisions=()):
    solver = _core_testing.NodeSolver(dataset(X, np.ones((X.shape[0], 1)), weights), C)
    return node_of(solver, X.shape[0], *divisions).solve(np.asarray(s, np.int8), tol, max_iter)


@pytest.mark.parametrize("density", [0.02, 0.2, 0.4, 1.0])  # sparse columns, both, both, dense ones
def test_columns_of_a_node_are_those_of_its_rows(density):
    rng = np.random.default_rng(int(100 * density))
    X = random_csr((200, 60), density=density, rng=rng).astype(np.float32)
    X.data[::3] *= -1
    least = 0.5  # 1 / (C × the largest weight)
    solver = _core_testing.NodeSolver(dataset(X, np.ones((200, 1)), [1.0] * 199 + [4.0]), 0.5)
    rows = X.toarray()
    for n in (200, 120, 119, 40, 3, 1):
        if n < 200:
            places = np.sort(rng.choice(len(rows), n, replace=False))
            node_of(solver, len(rows), places)
            rows = rows[places]
        kept = np.abs(rows.astype(np.float64)).sum(axis=0) > least
        assert np.array_equal(solver.matrix(), rows * kept)


def test_l1_logistic_of_a_bias_alone_has_a_closed_form():
    # 6 rows against 2: the derivative 1 − 6 / (1 + e^b) + 2 / (1 + e^−b) vanishes at e^b = 5 / 3.
    w, bias, objective, _ = l1_logistic(np.zeros((8, 3)), [1] * 6 + [-1] * 2)
    assert not w.any()
    assert bias == pytest.approx(np.log(5 / 3), rel=1e-6)
    expected = np.log(5 / 3) + 6 * np.log(1 + 3 / 5) + 2 * np.log(1 + 5 / 3)
    assert objective == pytest.approx(expected, rel=1e-6)


def test_features_that_no_solution_uses_stay_at_zero():
    X = np.zeros((8, 2))
    X[:4, 0], X[0, 1] = 0.25, 1.0  # their gradients reach 1 at most
    w, bias, _, _ = l1_logistic(X, [1] * 4 + [-1] * 4)
    assert not w.any() and bias == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("C", "negative"), [(1.0, False), (10.0, False), (3.0, True)])
def test_l1_logistic_reaches_the_objective_of_the_reference(seed, C, negative):
    rng = np.random.default_rng(seed)
    X = random_csr((80, 30), density=0.3, rng=rng).toarray() - (0.5 * (rng.random((80, 30)) < 0.1) * negative)
    s = np.where(X[:, :5].sum(axis=1) + 0.3 * rng.normal(size=80) > 0.6, 1, -1)
    weights = rng.integers(1, 3, 80).astype(float)
    w, bias, objective, _ = l1_logistic(X, s, C, weights)
    best = reference.l1_objective(X, s, C * weights, *reference.l1_logistic(X, s, C * weights))
    assert reference.l1_objective(X, s, C * weights, w.astype(float), bias) == pytest.approx(best, rel=1e-5)
    assert objective == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("sizes", [(40,), (12,), (60, 30), (70, 20, 12)])
def test_a_node_of_some_rows_is_solved_like_these_rows_alone(sizes):
    rng = np.random.default_rng(sum(sizes))
    X = random_csr((80, 30), density=0.4, rng=rng)
    rows, divisions = np.arange(80), []
    for n in sizes:
        divisions.append(np.sort(rng.choice(len(rows), n, replace=False)))
        rows = rows[divisions[-1]]
    s = np.where(rng.random(len(rows)) < 0.5, 1, -1)
    weights = rng.integers(1, 4, 80).astype(float)
    w, bias, objective, _ = l1_logistic(X, s, 5.0, weights, divisions=divisions)
    alone = l1_logistic(X[rows], s, 5.0, weights[rows])
    assert objective == pytest.approx(alone[2], rel=1e-6)
    found = reference.l1_objective(X[rows].toarray(), s, 5.0 * weights[rows], w.astype(float), bias)
    assert found == pytest.approx(objective, rel=1e-5)


def test_a_node_after_others_is_solved_like_the_first():
    X, Y = clustered(n=400)
    data = dataset(X, Y)
    used = _core_testing.NodeSolver(data, 1.0)
    used.set_parent()
    for part in (1, 4, 2, 4, 1):  # all rows, few of them, many of them
        rows = np.arange(0, 400, part)
        right = np.isin(np.arange(400), rows).astype(np.uint8)
        s = np.where(Y.toarray()[rows, part] > 0, 1, -1).astype(np.int8)
        used.divide(right)
        after = used.solve(s, 1e-3, 100)
        alone = node_of(_core_testing.NodeSolver(data, 1.0), 400, rows).solve(s, 1e-3, 100)
        assert after[0].any() and after[0].tobytes() == alone[0].tobytes() and after[1:] == alone[1:]


def test_l1_logistic_ends_where_nothing_is_left_to_gain():
    *_, n_iter = l1_logistic(np.full((101, 3), 0.01), [1] * 60 + [-1] * 41, max_iter=50)
    assert n_iter <= 1


def test_rows_of_tiny_weight_do_not_disturb_the_others():
    X, Y = clustered()
    s = np.where(Y.toarray()[:, 0] > 0, 1, -1)
    weights = np.where(np.arange(150) < 100, 1.0, 1e-37)
    w, bias, objective, _ = l1_logistic(X, s, weights=weights)
    alone = l1_logistic(X[:100], s[:100])
    assert objective == pytest.approx(alone[2], rel=1e-5)
    assert np.isfinite(w).all() and np.isfinite(bias)


def test_l1_logistic_of_loose_tolerance_is_near_the_best_objective():
    X, Y = clustered(n=400)
    s = np.where(Y.toarray()[:, 0] > 0, 1, -1)
    exact, loose = (l1_logistic(X, s, tol=tol)[2] for tol in (1e-7, 0.1))
    assert exact <= loose * (1 + 1e-6) <= 1.1 * exact


# --- trees ---

PARAMS = {"max_leaf_rows": 5, "max_leaf_labels": 3, "C": 2.0}


def grown(X, Y, q=None, weights=(), n_trees=3, seed=7, threads=1, normalize=False, **params):
    options = {**PARAMS, "tol": 1e-7, "max_iter": 500, **params}
    data = dataset(X, Y, weights, normalize)
    q = None if q is None else np.asarray(q, np.float32)
    return _core.train_fastxml(data, q, n_trees=n_trees, **options, seed=seed, threads=threads)


def sparse_rows(X):
    X = sp.csr_array(X, dtype=np.float32)
    return SparseRows(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, X.shape[1])


@pytest.mark.parametrize("propensity", [False, True])
def test_trees_are_those_of_the_reference(propensity):
    X, Y = clustered()
    q = np.linspace(0.2, 1, 12).astype(np.float32) if propensity else None
    weights = np.where(np.arange(150) % 7 == 0, 2.0, 1.0)
    arrays = grown(X, Y, q, weights)
    dense, truth = X.toarray().astype(float), Y.toarray().astype(float)
    trees = [reference.grow(dense, truth, derive(7, t), q=q, weights=weights, **PARAMS) for t in range(3)]
    assert np.diff(arrays["tree_ptr"]).tolist() == [len(tree.nodes) for tree in trees]
    nodes = [node for tree in trees for node in tree.nodes]
    assert arrays["is_leaf"].tolist() == [isinstance(node, dict) for node in nodes]
    leaves = [node for node in nodes if isinstance(node, dict)]
    assert np.split(arrays["leaf_labels"], arrays["leaf_ptr"][1:-1])[0].tolist() == list(leaves[0])
    assert arrays["leaf_labels"].tolist() == [l for leaf in leaves for l in leaf]
    np.testing.assert_allclose(
        arrays["leaf_shares"], [v for leaf in leaves for v in leaf.values()], rtol=1e-6
    )
    ranker = FastXMLRanker(arrays, 40, 12, normalize=False)
    ids, logs = ranker.top_k(sparse_rows(X), 12)
    for x, row, log in zip(dense, ids, logs, strict=True):
        expected = reference.scores(trees, x, 12)
        assert set(row[row >= 0].tolist()) == set(np.flatnonzero(expected).tolist())
        np.testing.assert_allclose(np.exp(log[row >= 0]), expected[row[row >= 0]], rtol=1e-5)


def test_a_leaf_keeps_the_most_frequent_labels_by_share():
    Y = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 0]])
    arrays = grown(np.ones((4, 1)), Y, n_trees=1, max_leaf_labels=2)
    assert arrays["is_leaf"].tolist() == [1]
    assert arrays["leaf_labels"].tolist() == [0, 2]  # three rows each, of four
    assert arrays["leaf_shares"].tolist() == [0.75, 0.75]
    assert arrays["leaf_rows"].tolist() == [4]


def test_rows_without_a_difference_share_a_leaf():
    Y = np.tile([[1, 0], [0, 1]], (20, 1))
    arrays = grown(np.ones((40, 2)), Y, n_trees=2)
    assert arrays["is_leaf"].tolist() == [1, 1] and arrays["leaf_shares"].tolist() == [0.5] * 4


def test_training_rows_reach_the_leaves_that_hold_them():
    X, Y = clustered(scale=0.3)
    arrays = grown(X, Y, C=20.0, tol=0.1, normalize=True)
    model = _core.RowTrees(arrays, 40, 12, True)
    rows = sparse_rows(X)
    reached = np.bincount(model.leaves(rows).ravel(), minlength=len(arrays["leaf_rows"]))
    assert np.array_equal(reached, arrays["leaf_rows"])


def test_trees_are_equal_for_any_number_of_threads():
    X, Y = clustered(n=400)
    first, *others = [grown(X, Y, threads=threads, tol=0.1) for threads in (1, 2, 4)]
    for other in others:
        assert all(first[name].tobytes() == other[name].tobytes() for name in first)
    assert grown(X, Y, tol=0.1, seed=8)["weights"].tobytes() != first["weights"].tobytes()


def test_dense_and_sparse_rows_give_the_same_trees():
    X, Y = clustered()
    Y = sp.csr_array(Y)
    labels = (Y.indptr.astype(np.int64), Y.indices.astype(np.int32), 12, np.empty(0, np.float32), False)
    options = {**PARAMS, "n_trees": 2, "tol": 0.1, "max_iter": 20, "seed": 0, "threads": 1}
    a = _core.train_fastxml(_core.Dataset(X.toarray(), *labels), None, **options)
    b = _core.train_fastxml(dataset(X, Y), None, **options)
    assert all(a[name].tobytes() == b[name].tobytes() for name in a)
    ranker = FastXMLRanker(a, 40, 12, normalize=False)
    for one, other in zip(
        ranker.top_k(DenseRows(X.toarray()), 5), ranker.top_k(sparse_rows(X), 5), strict=True
    ):
        assert np.array_equal(one, other)


# --- PfastreXML ---


def test_scores_of_pfastrexml_are_those_of_the_reference():
    X, Y = clustered()
    model = PfastreXML(n_trees=3, max_leaf_rows=5, C=2.0, alpha=0.6, gamma=4.0, threshold=0.5).fit(X, Y)
    ranker = model.fitted_.ranker
    trees = FastXMLRanker(ranker.trees, 40, 12, normalize=False)
    dense, truth = X.toarray().astype(float), Y.toarray()
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    unit = dense / np.where(norms > 0, norms, 1)
    ids, logs = ranker.top_k(sparse_rows(X), 12)
    shares = np.zeros((150, 12))
    for i, (row, log) in enumerate(zip(*trees.top_k(sparse_rows(X), 12), strict=True)):
        shares[i, row[row >= 0]] = np.exp(log[row >= 0])
    for i in range(150):
        for l, log in zip(ids[i], logs[i], strict=True):
            if l < 0:
                continue
            mean = unit[truth[:, l] > 0].mean(axis=0)
            expected = shares[i, l] ** 0.6 * reference.tail(dense[i], mean, 4.0) ** 0.4
            assert np.exp(log) == pytest.approx(expected, rel=1e-4)


def test_leaves_of_pfastrexml_hold_shares_times_inverse_propensities():
    X, Y = clustered()
    model = PfastreXML(n_trees=1, max_leaf_rows=1000, tail=False, A=0.5, B=2.0, threshold=0.5).fit(X, Y)
    q = metrics.inverse_propensity(Y, 0.5, 2.0)
    expected = Y.toarray().mean(axis=0) * q / q.max()
    np.testing.assert_allclose(model.fitted_.ranker.trees["leaf_shares"], expected, rtol=1e-5)
    assert model.fitted_.ranker.means is None


# --- model files ---


@pytest.fixture(scope="module")
def fitted():
    X, Y = clustered()
    params = {"n_trees": 3, "max_leaf_rows": 5, "C": 2.0, "threshold": 0.2}
    return X, FastXML(**params).fit(X, Y), PfastreXML(**params).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("tree_ptr", 1, 0),
        ("tree_ptr", 1, 2**40),
        ("tree_ptr", 0, -1),
        ("is_leaf", 0, 1),
        ("is_leaf", -1, 0),
        ("weight_ptr", 1, -5),
        ("weight_ptr", -1, 2**40),
        ("features", 0, 40),
        ("features", 0, -1),
        ("weights", 0, np.nan),
        ("biases", 0, np.inf),
        ("leaf_ptr", 1, 2**40),
        ("leaf_labels", 0, 12),
        ("leaf_shares", 0, np.nan),
        ("leaf_shares", 0, 0),
        ("leaf_shares", 0, 1.5),
        ("mean_ptr", 1, 2**40),
        ("mean_features", 0, 40),
        ("mean_values", 0, np.inf),
    ],
)
def test_arrays_that_do_not_fit_are_refused(fitted, name, at, value):
    facts, arrays = fitted[2].fitted_.ranker.to_arrays()
    changed = np.array(arrays[name])
    changed[at] = value
    with pytest.raises(ValueError):
        PfastreXMLRanker.from_arrays(facts, {**arrays, name: changed}, 40, 12)
    for wrong in (changed[:-1], changed.astype(np.complex64), changed[None]):
        with pytest.raises(ValueError):
            PfastreXMLRanker.from_arrays(facts, {**arrays, name: wrong}, 40, 12)


@pytest.mark.parametrize(
    "facts", [{}, {"normalize": 1}, {"alpha": 2.0}, {"gamma": float("nan")}, {"alpha": "x"}]
)
def test_facts_that_do_not_fit_are_refused(fitted, facts):
    good, arrays = fitted[2].fitted_.ranker.to_arrays()
    with pytest.raises(ValueError):
        PfastreXMLRanker.from_arrays({**good, **facts} if facts else {}, arrays, 40, 12)
    with pytest.raises(ValueError):
        PfastreXMLRanker.from_arrays(good, {name: arrays[name] for name in list(arrays)[1:]}, 40, 12)


def test_rows_with_other_features_are_refused(fitted):
    with says("X has 3 features, but the model has 40"):
        fitted[1].fitted_.ranker.top_k(sparse_rows(np.ones((1, 3))), 1)


def test_take_renumbers_labels(fitted):
    X, *models = fitted
    for model in models:
        ranker = model.fitted_.ranker
        labels = np.array([7, 2, 9])
        ids, logs = ranker.take(labels).top_k(sparse_rows(X), 3)
        allowed = np.isin(np.arange(12), labels)
        expected, expected_logs = ranker.top_k(sparse_rows(X), 3, allowed=allowed)
        np.testing.assert_allclose(logs, expected_logs, rtol=1e-6)
        same = np.where(ids >= 0, labels[ids], -1) == expected
        scores = np.exp(expected_logs)
        tied = [np.isclose(np.diff(scores, axis=1, **{end: -1.0}), 0) for end in ("prepend", "append")]
        assert (same | tied[0] | tied[1]).all()


# --- explanations ---


def test_explanations_hold_the_leaves_and_the_features(fitted):
    X, fast, pfastre = fitted
    for model in (fast, pfastre):
        ranker = model.fitted_.ranker
        row = sparse_rows(X[[4]])
        ids, logs = ranker.top_k(row, 1)
        leaves, features, *rest = ranker.explain(row, int(ids[0, 0]))
        assert len(leaves.rows) == 3
        mean = np.mean([share for *_, share in leaves.rows])
        score = rest[0].rows[-1][1] if rest else mean
        assert score == pytest.approx(np.exp(logs[0, 0]), rel=1e-4)
        assert features.rows and all(X[[4]][0, feature] != 0 for feature, *_ in features.rows)
