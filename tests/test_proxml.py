"""ProXML and PPD-Sparse, compared with plain NumPy and LIBLINEAR."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

import reference_l1 as reference
from bonsai_xmc import _core, load
from bonsai_xmc._data.rows import SparseRows
from bonsai_xmc.systems import ProXML
from bonsai_xmc.systems.sparse import ProXMLRanker
from helpers import says

NO_WEIGHTS = np.empty(0, np.float32)


def dataset(X, Y, weights=NO_WEIGHTS, normalize=False):
    """Return the core's data set of a matrix and a 0/1 matrix."""
    X, Y = sp.csr_array(X, dtype=np.float32), sp.csr_array(Y)
    rows = (X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, X.shape[1])
    labels = (Y.indptr.astype(np.int64), Y.indices.astype(np.int32), Y.shape[1])
    return _core.Dataset(rows, *labels, weights, normalize)


def classifiers(weights, n_features):
    """Return dense weights and biases from the result of training."""
    bias, ptr, feature, value = weights[:4]
    shape = (len(bias), n_features)
    return sp.csr_array((value, feature.astype(np.int64), ptr), shape=shape).toarray().astype(float), bias


def solve(X, Y, l1, l2=0.0, c=1.0, tol=1e-8, weights=NO_WEIGHTS, threads=1, max_rounds=100, normalize=False):
    data = dataset(X, Y, weights, normalize)
    options = {"l1": l1, "l2": l2, "c": c, "tol": tol, "max_rounds": max_rounds, "threads": threads}
    return _core.train_l1_hinge(data, **options)


def random_data(seed=0, n=150, d=60, n_labels=6, density=0.2):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=density, rng=rng, format="csr", dtype=np.float32)
    scores = X @ rng.standard_normal((d, n_labels)) + 0.2 * rng.standard_normal((n, n_labels))
    return X, (scores > np.quantile(scores, 0.85, axis=0)).astype(np.float32)


def test_soft_threshold_worked_by_hand():
    np.testing.assert_allclose(reference.soft_threshold(np.array([3, -3, 0.5, -0.5]), 1), [2, -2, 0, 0])


def test_two_rows_of_one_feature_are_solved_as_by_hand():
    # Rows x = 1 (positive) and x = −1 (negative). By symmetry b = 0, and both slacks are 1 − w: the objective
    # l1 w + 2 (1 − w)² is least at w = 1 − l1 / 4, or 0 from l1 = 4 on.
    X, Y = np.array([[1.0], [-1.0]]), np.array([[1], [0]])
    for l1, expected in ((0.4, 0.9), (2.0, 0.5), (4.5, 0.0)):
        w, b = classifiers(solve(X, Y, l1), 1)
        np.testing.assert_allclose([w[0, 0], b[0]], [expected, 0], atol=1e-4)


def test_a_label_without_rows_has_only_a_bias():
    # n (1 + b)² + l1 |b| is least at b = −1 + l1 / 2n.
    X, _ = random_data(n=20)
    w, b = classifiers(solve(X, np.zeros((20, 1)), 2.0), 60)
    assert not w.any()
    np.testing.assert_allclose(b, [-1 + 2.0 / 40], rtol=1e-6)


@pytest.mark.parametrize(
    ("l1", "l2", "c", "weighted"), [(1.0, 0.0, 1.0, False), (0.1, 0.0, 0.5, True), (0.3, 1.0, 1.0, True)]
)
def test_the_objective_is_that_of_the_reference(l1, l2, c, weighted):
    X, Y = random_data(n_labels=3, d=40)
    weights = np.random.default_rng(1).uniform(0.5, 2, 150).astype(np.float32) if weighted else NO_WEIGHTS
    found = solve(X, Y, l1, l2, c, weights=weights)
    assert found[5] == 0
    w, b = classifiers(found, 40)
    dense, costs = X.toarray().astype(float), weights.astype(float) if weighted else 1.0
    for label in range(3):
        signs = np.where(Y[:, label] > 0, 1.0, -1.0)
        mine = reference.hinge_objective(dense, signs, w[label], b[label], l1, l2, c, costs)
        best = reference.solve_hinge(dense, signs, l1, l2, c, costs)
        assert mine <= reference.hinge_objective(dense, signs, *best, l1, l2, c, costs) * (1 + 1e-5)


def test_the_objective_is_not_above_that_of_liblinear():
    X, Y = random_data(3, n=300, d=300, n_labels=3, density=0.1)
    w, b = classifiers(solve(X, Y, 0.5, tol=1e-5), 300)
    dense = X.toarray().astype(float)
    for label in range(3):
        other = LinearSVC(penalty="l1", dual=False, C=2.0, tol=1e-6, max_iter=20000, random_state=0)
        other.fit(X.astype(np.float64), Y[:, label])
        signs = np.where(Y[:, label] > 0, 1.0, -1.0)
        theirs = reference.hinge_objective(dense, signs, other.coef_[0], other.intercept_[0], 0.5)
        mine = reference.hinge_objective(dense, signs, w[label], b[label], 0.5)
        assert mine <= theirs * (1 + 1e-5)


def test_many_weights_need_several_working_sets():
    X, Y = random_data(4, n=400, d=500, n_labels=2, density=0.1)
    found = solve(X, Y, 0.02, tol=1e-3)
    assert found[4] > 1 and found[5] == 0
    assert (np.diff(found[1]) > 128).all()  # more than the first set holds


def test_labels_that_are_not_solved_are_counted():
    X, Y = random_data()
    assert solve(X, Y, 0.01, tol=1e-9, max_rounds=1)[5] > 0


def test_normalised_rows_are_the_unit_rows():
    X, Y = random_data()
    unit = X.multiply(1 / np.maximum(sp.linalg.norm(X, axis=1), 1e-30)[:, None]).tocsr()
    first, second = solve(X, Y, 0.3, normalize=True), solve(unit, Y, 0.3)
    np.testing.assert_allclose(classifiers(first, 60)[0], classifiers(second, 60)[0], atol=1e-4)


def test_threads_make_no_difference():
    X, Y = random_data(5, n_labels=20)
    one, *others = (solve(X, Y, 0.2, threads=threads) for threads in (1, 2, 4))
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_scores_are_those_of_the_quantised_weights():
    X, Y = random_data()
    model = ProXML(l1=0.3, threshold=0.5, n_jobs=1).fit(X, Y)
    w, b = classifiers(solve(X, Y, 0.3, tol=1e-4, normalize=True), 60)
    unit = X.toarray() / np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-30)
    expected = 1 / (1 + np.exp(-(unit @ w.T + b)))
    ids, scores = model.top_k(X, 6)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, ids, axis=1), atol=0.02)


def test_an_explanation_adds_up_to_the_score():
    X, Y = random_data()
    model = ProXML(l1=0.3, threshold=0.5, n_jobs=1).fit(X, Y)
    ids, scores = model.top_k(X[[3]], 1)
    row = SparseRows.from_scipy(sp.csr_array(X[[3]]))
    table, sums = model.fitted_.ranker.explain(row, int(ids[0, 0]))
    amounts = dict(sums.rows)
    assert sum(part[3] for part in table.rows) + amounts["bias"] == pytest.approx(amounts["z"])
    assert amounts["score σ(z)"] == pytest.approx(scores[0, 0], abs=2e-3)


def test_a_ranker_of_some_labels_gives_their_scores():
    X, Y = random_data()
    model = ProXML(l1=0.3, threshold=0.5, n_jobs=1).fit(X, Y)
    rest = model.drop([0, 3])
    kept = np.array([1, 2, 4, 5])
    first, second = (one.decision_function(X).toarray() for one in (model, rest))
    assert np.array_equal(first[:, kept], second)


def test_a_damaged_file_is_an_error():
    X, Y = random_data()
    facts, arrays = ProXML(l1=0.3, threshold=0.5, n_jobs=1).fit(X, Y).fitted_.ranker.to_arrays()
    make = lambda facts, arrays: ProXMLRanker.from_arrays(facts, arrays, 60, 6)
    assert make(facts, arrays).n_labels == 6
    with says("facts.normalize is 1, but must be one of True, False"):
        make({"normalize": 1}, arrays)
    with says("missing array: bias"):
        make(facts, {name: array for name, array in arrays.items() if name != "bias"})
    with says("must have one classifier for each label"):
        make(facts, arrays | {"children": arrays["children"][::-1].copy()})
    for name in ("child_ptr", "block_ptr", "record_ptr", "tree_ptr"):
        with says("the model is inconsistent"):
            make(facts, arrays | {name: arrays[name] + 1})


def test_a_saved_model_is_the_same(tmp_path):
    X, Y = random_data()
    model = ProXML(l1=0.3, threshold=0.5, n_jobs=1).fit(X, Y)
    model.save(tmp_path / "model.bonsai")
    again = load(tmp_path / "model.bonsai")
    assert all(np.array_equal(a, b) for a, b in zip(model.top_k(X, 4), again.top_k(X, 4), strict=True))


def test_labels_that_do_not_converge_are_a_warning():
    X, Y = random_data()
    with pytest.warns(ConvergenceWarning, match=r"of 6 labels did not converge within max_iter=1;") as caught:
        ProXML(l1=0.01, tol=1e-8, max_iter=1, threshold=0.5).fit(X, Y)
    assert caught[0].filename == __file__
