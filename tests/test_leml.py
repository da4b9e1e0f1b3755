"""LEML and RobustXML, compared with plain NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc._data.rows import DenseRows, SparseRows
from bonsai_xmc.systems import LEML, RobustXML
from bonsai_xmc.systems._embedding import Blocked, Pool, best_columns, ridge, unit_rows, with_bias
from bonsai_xmc.systems.low_rank import (
    LowRankRanker,
    RobustRanker,
    factorize,
    feature_step,
    label_step,
    lasso,
    log_scores,
    sparse_step,
)


def random_data(seed=0, n=120, d=30, n_labels=12):
    """Return rows with a few features each, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.2, rng=rng, format="csr", dtype=np.float32)
    scores = X @ rng.standard_normal((d, n_labels)) + 0.1 * rng.standard_normal((n, n_labels))
    Y = sp.csr_array((scores >= np.sort(scores, axis=1)[:, [-3]]).astype(np.float32))
    return X, Y


def unit_with_bias(X):
    """Return unit rows with a column of ones, in plain NumPy."""
    X = X.toarray().astype(np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return np.hstack([X / np.where(norms > 0, norms, 1), np.ones((len(X), 1))])


def test_label_step_is_ridge_regression_worked_by_hand():
    # One component, A = (1, 2): AᵀA + 1 = 6, and YᵀA = 1 and 3 for labels of row 1 and of both rows.
    y = sp.csr_array(np.array([[1, 1], [0, 1]], np.float32))
    with Pool(1) as pool:
        h = label_step(np.array([[1], [2]], np.float32), Blocked(y, pool), 1.0, pool)
    np.testing.assert_allclose(h, [[1 / 6], [3 / 6]], rtol=1e-6)


def test_ridge_solves_each_column_with_its_own_scale():
    X, _ = random_data()
    dense = X.toarray().astype(np.float64)
    rng = np.random.default_rng(1)
    right, scales = rng.standard_normal((30, 4)).astype(np.float32), np.array([0.0, 0.5, 1.0, 20.0])
    with Pool(1) as pool:
        w = ridge(Blocked(X, pool), right, scales, 0.7, np.zeros_like(right), 200, 1e-6)
    for j, scale in enumerate(scales):
        expected = np.linalg.solve(scale * dense.T @ dense + 0.7 * np.eye(30), right[:, j])
        np.testing.assert_allclose(w[:, j], expected, rtol=1e-3, atol=1e-4)


def test_feature_step_solves_the_normal_equations():
    X, Y = random_data()
    dense, h = X.toarray().astype(np.float64), np.random.default_rng(2).standard_normal((12, 5))
    right = dense.T @ (Y.toarray() @ h)
    with Pool(1) as pool:
        zeros = np.zeros((30, 5), np.float32)
        w = feature_step(
            Blocked(X, pool), right.astype(np.float32), h.astype(np.float32), 0.5, zeros, pool, 300
        )
    system = np.kron(dense.T @ dense, h.T @ h) + 0.5 * np.eye(150)
    np.testing.assert_allclose(w.ravel(), np.linalg.solve(system, right.ravel()), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("apart", [False, True])
def test_rounds_lower_the_objective(apart):
    X, Y = random_data()
    S = sp.random_array((30, 12), density=0.1, rng=np.random.default_rng(3), format="csr", dtype=np.float32)
    S = S if apart else None
    target = Y.toarray() - (X @ S.toarray() if apart else 0)

    def objective(w, h):
        return ((target - X @ w @ h.T) ** 2).sum() / 2 + 0.3 * ((w**2).sum() + (h**2).sum()) / 2

    with Pool(1) as pool:
        x, y = Blocked(X, pool), Blocked(Y, pool)
        values = [objective(*factorize(x, y, 4, 0.3, 0, pool, rounds=r, apart=S)) for r in (1, 2, 4, 16, 60)]
    assert values == sorted(values, reverse=True)
    # The least value of rank 4 with this penalty: singular values of the ridge solution, shrunk.
    assert values[-1] < objective(np.zeros((30, 4)), np.zeros((12, 4)))
    assert values[-2] - values[-1] < 0.01 * values[-1]


def test_top_k_is_that_of_a_plain_product():
    X, Y = random_data()
    model = LEML(n_components=5, alpha=0.5, threshold=0.5).fit(X, Y)
    ranker = model.fitted_.ranker
    z = unit_with_bias(X) @ ranker.w @ ranker.h.T
    ids, scores = model.top_k(X, 4)
    np.testing.assert_array_equal(ids, np.argsort(-z, axis=1, kind="stable")[:, :4])
    expected = 1 / (1 + np.exp(-4 * (np.take_along_axis(z, ids, axis=1) - 0.5)))
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_log_scores_ascend_and_stay_below_0():
    scores = log_scores(np.linspace(-20, 5, 2001))
    assert (np.diff(scores) > 0).all() and scores[-1] < 0


@pytest.mark.parametrize("model", [LEML(n_components=4), RobustXML(n_components=4, l1=0.05)])
def test_training_and_ranking_do_not_depend_on_threads(model, monkeypatch):
    monkeypatch.setattr("bonsai_xmc.systems._embedding._BLOCK_ENTRIES", 64)
    monkeypatch.setattr("bonsai_xmc.systems._embedding._SCORES", 256)
    X, Y = random_data(n=300)
    one, two = (type(model)(**model.get_params() | {"n_jobs": n}).fit(X, Y) for n in (1, 2))
    for name, array in one.fitted_.ranker.to_arrays()[1].items():
        np.testing.assert_array_equal(array, two.fitted_.ranker.to_arrays()[1][name])
    np.testing.assert_array_equal(one.top_k(X, 5), two.top_k(X, 5))
    single = [one.top_k(X[[i]], 5) for i in range(5)]
    np.testing.assert_array_equal(np.concatenate([ids for ids, _ in single]), one.top_k(X[:5], 5)[0])


@pytest.mark.parametrize("model", [LEML(n_components=4, alpha=0.5), RobustXML(n_components=4, l1=0.05)])
def test_weighted_rows_are_repeated_rows(model):
    X, Y = random_data()
    model.set_params(alpha=0.5, threshold=0.5)
    weights = np.where(np.arange(120) % 3 == 0, 2.0, 1.0)
    repeated = np.repeat(np.arange(120), weights.astype(int))
    once = model.fit(X, Y, sample_weight=weights).top_k(X, 3)[1]
    twice = model.fit(X[repeated], Y[repeated]).top_k(X, 3)[1]
    np.testing.assert_allclose(once, twice, rtol=2e-2)


def test_labels_without_rows_are_never_found():
    X, Y = random_data()
    Y = sp.hstack([Y, sp.csr_array((120, 2), dtype=np.float32)], format="csr")
    ids, scores = LEML(n_components=3, alpha=1, threshold=0.5).fit(X, Y).top_k(X, 14)
    assert ids.max() == 11 and (ids[:, 12:] == -1).all() and (scores[:, 12:] == 0).all()


def test_contributions_add_up_to_the_score():
    X, Y = random_data()
    for model in (LEML(n_components=4, alpha=1), RobustXML(n_components=4, alpha=1, l1=0.05)):
        ranker = model.set_params(threshold=0.5).fit(X, Y).fitted_.ranker
        row = SparseRows.from_scipy(X[[3]])
        ids, scores = ranker.top_k(row, 2)
        features, sums = ranker.explain(row, int(ids[0, 1]))
        amounts = dict(sums.rows)
        assert sum(part for *_, part in features.rows) + amounts["bias"] == pytest.approx(
            amounts["z"], abs=1e-6
        )
        assert log_scores(np.array(amounts["z"])) == pytest.approx(scores[0, 1], abs=1e-4)


def test_dense_and_sparse_rows_are_ranked_alike():
    X, Y = random_data()
    ranker = LEML(n_components=4, alpha=1, threshold=0.5).fit(X, Y).fitted_.ranker
    sparse, dense = (ranker.top_k(rows, 4) for rows in (SparseRows.from_scipy(X), DenseRows(X.toarray())))
    np.testing.assert_array_equal(sparse[0], dense[0])
    np.testing.assert_allclose(sparse[1], dense[1], atol=1e-5)


def test_best_columns_orders_ties_by_column_and_pads():
    ids, scores = best_columns(np.array([[1, 3, 3, 0], [-np.inf, 2, -np.inf, -np.inf]], np.float32), 2)
    np.testing.assert_array_equal(ids, [[1, 2], [1, -1]])
    np.testing.assert_array_equal(scores, [[3, 3], [2, -np.inf]])


def test_unit_rows_leave_zero_rows_as_they_are():
    rows = np.array([[3, 4], [0, 0]], np.float32)
    for form in (DenseRows(rows), DenseRows(rows).to_sparse()):
        unit = with_bias(unit_rows(form))
        unit = unit if isinstance(unit, np.ndarray) else unit.toarray()
        np.testing.assert_allclose(unit, [[0.6, 0.8, 1], [0, 0, 1]])


# --- the sparse part ---


def test_lasso_equals_hand_computed_weights():
    # Independent features: each weight is its product, moved towards 0 by the penalty, over its square.
    weights = lasso(np.diag([1.0, 4.0, 1.0]), np.array([3.0, -4.0, 0.5]), 1.0, np.zeros(3))
    np.testing.assert_allclose(weights, [2, -0.75, 0], atol=5e-3)


def test_sparse_step_reaches_the_optimum_of_each_label():
    X, Y = random_data()
    x, y, rng = X.toarray(), Y.toarray(), np.random.default_rng(4)
    a, h = (
        rng.standard_normal((120, 3)).astype(np.float32),
        rng.standard_normal((12, 3)).astype(np.float32) / 9,
    )
    start = sp.csr_array((30, 12), dtype=np.float32)
    with Pool(1) as pool:
        for _ in range(8):
            start = sparse_step(sp.csc_array(X), Y, a, h, start, 1.5, 30, pool)
    s = start.toarray()
    gradient = x.T @ (a @ h.T + x @ s - y)
    assert 0 < np.count_nonzero(s) < s.size
    assert np.abs(gradient[s == 0]).max() < 1.5 + 0.02
    np.testing.assert_allclose(gradient[s != 0], -1.5 * np.sign(s[s != 0]), atol=0.03)


def test_sparse_part_finds_what_low_rank_misses():
    # Twenty labels with a feature each: a model of rank 2 cannot separate them, the sparse part can.
    X = sp.csr_array(np.repeat(np.eye(20, dtype=np.float32), 4, axis=0))
    common = {"n_components": 2, "alpha": 0.1, "threshold": 0.5}
    low = LEML(**common).fit(X, X).top_k(X, 1)[0][:, 0]
    robust = RobustXML(**common, l1=0.1).fit(X, X).top_k(X, 1)[0][:, 0]
    truth = np.repeat(np.arange(20), 4)
    assert (robust == truth).all() and (low == truth).mean() < 0.5


# --- files ---


@pytest.mark.parametrize("estimator", [LEML, RobustXML])
def test_files_keep_the_model_and_damaged_ones_are_refused(estimator, tmp_path):
    X, Y = random_data()
    model = estimator(n_components=4, alpha=1, threshold=0.5).fit(X, Y)
    model.save(tmp_path / "model.bonsai")
    again = estimator.load(tmp_path / "model.bonsai")
    np.testing.assert_array_equal(model.top_k(X, 5), again.top_k(X, 5))
    facts, arrays = model.fitted_.ranker.to_arrays()
    kind = type(model.fitted_.ranker)
    for name, array in arrays.items():
        damages = [None, array[:-1], array.astype(np.float64), array[None]]
        if array.dtype == np.float32:
            damages.append(np.full_like(array, np.nan))
        else:
            damages += [np.full_like(array, -1), np.full_like(array, 2**30)]
        for damage in damages:
            broken = (
                {**arrays, name: damage}
                if damage is not None
                else {n: a for n, a in arrays.items() if n != name}
            )
            with pytest.raises(ValueError, match="the tensor"):
                kind.from_arrays(facts, broken, 30, 12)


def test_take_ranks_some_labels_by_the_same_scores():
    X, Y = random_data()
    for ranker in (
        LEML(n_components=4, alpha=1, threshold=0.5).fit(X, Y).fitted_.ranker,
        RobustXML(n_components=4, alpha=1, l1=0.1, threshold=0.5).fit(X, Y).fitted_.ranker,
    ):
        assert isinstance(ranker, LowRankRanker | RobustRanker)
        rows, labels = SparseRows.from_scipy(X), np.array([7, 2, 9])
        allowed = np.isin(np.arange(12), labels)
        ids, scores = ranker.take(labels).top_k(rows, 3)
        expected = ranker.top_k(rows, 3, allowed=allowed)
        np.testing.assert_array_equal(labels[ids], expected[0])
        np.testing.assert_allclose(scores, expected[1], atol=1e-5)
