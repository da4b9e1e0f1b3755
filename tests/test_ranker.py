"""One classifier for each label against all rows: its optimum, and the search."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, hstack
from sklearn.exceptions import ConvergenceWarning

import reference
import stages
from bonsai_xmc import Bonsai, _core, _core_testing
from bonsai_xmc._base.params import DEFAULTS
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._selection import strategy
from bonsai_xmc._training.train import make_problem
from bonsai_xmc._training.train import train as train_problem
from bonsai_xmc._training.work import Work
from helpers import one_vs_rest_of, random_csr
from reference import unit_rows
from stored import (
    linear_params,
    make_data,
    make_dataset,
    make_weights,
    stored_classifiers,
    stored_ranker,
)

several = settings(max_examples=60, deadline=None)
few = settings(max_examples=15, deadline=None)
on_each_isa = pytest.mark.usefixtures("isa")

# --- the classifiers ---


def train(X, Y, weights=None, normalize=True, threads=2, order=None, seed=5, costs=(), **params):
    """(labels in the order of the classifiers, weights, half a step of their quantisation, report)."""
    order = np.flatnonzero(Y.any(axis=0))[::-1] if order is None else order
    options = {"bias": -1.0, "prune": 0.0, "tol": 1e-3, "max_iter": 2000} | params
    dataset = make_dataset(X, Y, weights, normalize)
    labels = np.array(order, dtype=np.uint32)
    costs = np.array(costs, dtype=np.float32)
    params = linear_params(**options)
    forest, report = stages.train_one_vs_rest(dataset, labels, costs, 1.0, params, seed, threads)
    arrays = forest.arrays()
    _core.Forest(arrays, X.shape[1], Y.shape[1]).verify()
    assert arrays["children"].tolist() == list(order)
    W, scale, b = stored_classifiers(arrays, 0, X.shape[1])
    assert set(b) == {options["bias"]}
    return order, W, scale[:, None] / 2, report


def check_optimum(X, Y, weights=None, normalize=True, C=1.0, bias=-1.0, atol=0.01, labels=None, **params):
    """Check that each weight is that of the exact optimum on all rows, up to quantisation and `atol`.

    If n rows violate their margins by less than the tolerance t, the weights move by at most √(2 C n) t.
    """
    order, W, half, report = train(X, Y, weights, normalize, C=C, bias=bias, **params)
    features = unit_rows(np.float64(X)) if normalize else np.float64(X)
    for place, label in enumerate(order):
        if labels is None or label in labels:
            y = np.where(Y[:, label] > 0, 1.0, -1.0)
            w, _, _ = reference.solve_exact(features, y, C, weights, bias)
            assert np.abs(W[place] - w).max() < half[place] + atol
    return report


def planes(seed, n=900, d=40, labels=6, density=0.3, least=0.02, most=0.3):
    """Labels are half-spaces of signed features: classifiers need many rows, most of them others'."""
    rng = np.random.default_rng(seed)
    X = random_csr((n, d), density=density, rng=rng, data_sampler=rng.standard_normal).toarray()
    Y = X @ rng.standard_normal((d, labels)) + rng.standard_normal((n, labels))
    shares = rng.uniform(least, most, labels)
    Y = np.stack([of > np.quantile(of, 1 - share) for of, share in zip(Y.T, shares, strict=True)], axis=1)
    return X.astype(np.float32), Y.astype(np.float64)


def test_two_rows_by_hand():
    # w = 2 (2 − w) for the label's own row; the other one has no loss at 0
    _, W, _, report = train(np.eye(2), np.eye(2), order=[1, 0])
    np.testing.assert_allclose(W, [[0, 4 / 3], [4 / 3, 0]], atol=1e-3)
    assert report == {"n_classifiers": 2, "n_unconverged": 0, "max_iter": report["max_iter"]}
    # Two rows, equal but for the label: a + b with a = ½α, b = −½β, m = a + b: α = 2(2 − m), β = 2 max(0, m)
    _, W, _, _ = train(np.ones((2, 1)), np.array([[1.0], [0.0]]))
    np.testing.assert_allclose(W, [[4 / 5]], atol=1e-3)  # w = 2(2 − w) − 2w
    # Pruning is by the weight before quantisation
    _, W, _, _ = train(np.eye(2), np.eye(2), prune=1.3)
    assert np.count_nonzero(W) == 2
    _, W, _, _ = train(np.eye(2), np.eye(2), prune=1.34)
    assert not W.any()


@on_each_isa
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_optimum_on_all_rows(seed, weighted):
    """More rows than any sample that the solver begins with: most of those that matter are found later."""
    X, Y = planes(seed)
    report = check_optimum(X, Y, make_weights(len(X), seed) if weighted else None)
    assert (report["n_classifiers"], report["n_unconverged"]) == (6, 0)


@pytest.mark.parametrize(("C", "bias"), [(0.1, -1.0), (8.0, -1.0), (1.0, -1.5), (1.0, -4.0)])
def test_optimum_with_other_costs_and_biases(C, bias):
    X, Y = planes(2)
    check_optimum(X, Y, C=C, bias=bias, atol=0.01 * max(1, -bias))


def test_optimum_of_rows_of_very_different_lengths():
    X, Y = planes(3, n=700, labels=3)
    lengths = np.exp(np.random.default_rng(3).uniform(np.log(0.03), np.log(3), len(X)))
    X = (unit_rows(X) * lengths[:, None]).astype(np.float32)
    check_optimum(X, Y, normalize=False)
    check_optimum(X * 1e3, Y, C=1e-6, normalize=False, atol=1e-5, tol=1e-2)


@on_each_isa
def test_the_optimum_is_reached_with_duplicate_empty_and_constant_rows():
    """Duplicates that agree and that do not, empty rows with and without the label, a label on all rows."""
    X, Y = planes(4, n=300, labels=8)
    X[150:], Y[150:] = X[:150], Y[:150]
    Y[150:, 2] = Y[:150, 2][::-1]  # the same rows, other labels
    X[[5, 6, 200]] = 0
    Y[5] = 1
    Y[6] = 0
    Y[:, 3] = 1
    Y[:, 4] = 0
    Y[77, 4] = 1  # a single row
    Y[:, 5] = 0  # no row: no classifier
    Y[:, 6] = 0
    Y[5, 6] = 1  # a single row, which is empty
    Y[:, 7] = 1
    Y[150, 7] = 0  # all rows but one, whose duplicate has it
    check_optimum(X, Y)
    order, W, _, report = train(X, Y)
    assert 5 not in order and report["n_classifiers"] == 7
    assert not W[order.tolist().index(6)].any()


def test_one_row_and_one_label():
    _, W, _, _ = train(np.array([[3.0, 0.0, 4.0]]), np.ones((1, 1)))
    np.testing.assert_allclose(W, [[0.8, 0, 16 / 15]], rtol=0.01)  # 4/3 along the row
    _, W, _, _ = train(np.zeros((3, 2)), np.ones((3, 1)))
    assert not W.any()


@pytest.mark.parametrize("n_labels", [64, 65, 128, 130])
def test_the_optimum_does_not_depend_on_groups_and_blocks(n_labels):
    """Rows are read for 64 classifiers at a time, and 128 are stored together."""
    X, Y = planes(5, n=700, labels=n_labels)
    report = check_optimum(X, Y, labels={0, 1, 62, 63, 64, 65, 127, 128, 129})
    assert (report["n_classifiers"], report["n_unconverged"]) == (n_labels, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_tolerance_finer_than_fixed_point_converges(seed):
    """Rows that are wrong in 16 bits alone would be found again and again."""
    X, Y = planes(seed, d=60, labels=128)
    report = check_optimum(X, Y, tol=1e-4, labels={0, 64})
    assert report["n_unconverged"] == 0


def test_long_rows_stay_within_the_range_of_fixed_point_sums():
    """With hundreds of entries, sums in fixed point stay within their range and are precise enough."""
    X, Y = planes(6, n=700, d=1000, labels=2, density=0.4)
    order, W, half, _ = train(X, Y, C=0.1)
    plain = _core_testing.solve(
        make_dataset(X, Y), linear_params(C=0.1, tol=1e-3, max_iter=2000, bias=-1.0), 1
    )[0]
    assert (np.abs(W - plain[order]) < half + 0.01).all()


@several
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0.3, 1.0, 4.0]))
def test_optimum_of_any_data(seed, weighted, C):
    rng = np.random.default_rng(seed)
    shape = {"n": int(rng.integers(4, 60)), "d": int(rng.integers(2, 20)), "labels": int(rng.integers(3, 10))}
    X, Y = make_data(seed, density=rng.uniform(0.1, 0.6), **shape)
    check_optimum(X, Y, make_weights(len(X), seed) if weighted else None, C=C)


def by_panels(X, Y, **options):
    """A single leaf over all labels, trained by the panel solver with a bias of −1."""
    problem = make_problem(training_rows(X, "X")[0], labels_of(Y))
    flat = dict(DEFAULTS) | {"classifiers": "leaf", "max_depth": 1, "n_trees": 1} | options
    chosen = replace(strategy.resolve(flat, problem.facts), node_bias=-1.0, bias=-1.0)
    return train_problem(problem, chosen, 0, Work(1))[0]


@pytest.mark.parametrize("tol", [1e-3, 0.1])
def test_the_other_solver_agrees(generated, tol, monkeypatch):
    """Trained by panels on all rows, as a tree without inner nodes."""
    X, Y = generated.X_train, generated.Y_train
    options = {"prune": 0.0, "tol": tol, "max_iter": 1000, "tail_exponent": 0.0}
    monkeypatch.setattr(strategy, "FREQUENT_SHARE", 1.0)  # all labels have a bias of −1
    one = Bonsai(classifiers="one_vs_rest", search="exact", **options).fit(X, Y)
    other = by_panels(X, Y, **options)
    assert one_vs_rest_of(one)["children"].tolist() == other.trees.arrays()["children"].tolist()
    W, scale, _ = stored_classifiers(one_vs_rest_of(one), 0, X.shape[1])
    V, other_scale, _ = stored_classifiers(other.trees.arrays(), 0, X.shape[1])
    half = (scale + other_scale)[:, None] / 2
    assert (np.abs(W - V) < half + (0.01 if tol < 0.1 else 0.2)).all()
    assert np.abs(W - V).mean() < 0.01
    rows = training_rows(generated.X_test, "X")[0].to_core()
    wanted, _ = other.top_k(rows, 5, beam_size=0, exact=True, n_probe=0, threads=1)
    found = one.top_k(generated.X_test, 5)[0]
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found, wanted, strict=True)]) > 4.5


def test_more_features_than_a_word_has_room_for(monkeypatch):
    """Beyond 2^20 features rows are read as they are: 260 rows with 4,100 small entries of their own each."""
    rows, own = 260, 4_100
    X, Y = planes(7, n=rows, labels=3)
    alone = np.random.default_rng(7).uniform(0, 0.01, rows * own).astype(np.float32)
    alone = csr_matrix((alone, np.arange(rows * own), np.arange(0, rows * own + 1, own)))
    X = hstack([csr_matrix(X), alone], format="csr")
    assert X.shape[1] > 2**20
    options = {"prune": 0.0, "tol": 1e-3, "max_iter": 1000, "tail_exponent": 0.0}
    monkeypatch.setattr(strategy, "FREQUENT_SHARE", 1.0)  # all labels have a bias of −1
    one = Bonsai(classifiers="one_vs_rest", search="exact", **options).fit(X, Y)
    rows, search = training_rows(X, "X")[0].to_core(), {"beam_size": 0, "exact": True, "n_probe": 0}
    ids, scores = by_panels(X, Y, **options).top_k(rows, 3, **search, threads=1)
    decision = one.decision_function(X).toarray()
    np.testing.assert_allclose(np.take_along_axis(decision, ids, axis=1), 1 / (1 - scores), atol=0.05)


def test_passes_that_run_out_cause_a_warning(generated):
    with pytest.warns(ConvergenceWarning, match="did not converge within max_iter=1"):
        Bonsai(classifiers="one_vs_rest", max_iter=1, tol=1e-6).fit(generated.X_train, generated.Y_train)


def test_costs_of_labels_multiply_c():
    X, Y = planes(3)
    order = np.flatnonzero(Y.any(axis=0))
    costs = 0.25 * 2.0 ** (np.arange(len(order)) % 5)
    _, W, half, _ = train(X, Y, order=order, costs=costs, C=2.0)
    for place, label in enumerate(order):
        y = np.where(Y[:, label] > 0, 1.0, -1.0)
        w, _, _ = reference.solve_exact(unit_rows(np.float64(X)), y, 2.0 * costs[place], None, -1.0)
        assert np.abs(W[place] - w).max() < half[place] + 0.01


def test_rare_labels_cost_more(generated, monkeypatch):
    data = generated
    seen = []
    of_labels = _core.ClassifierStage.of_labels

    class Recorded:
        @staticmethod
        def of_labels(dataset, labels, costs, *args):
            seen.append((labels, costs))
            return of_labels(dataset, labels, costs, *args)

    monkeypatch.setattr(_core, "ClassifierStage", Recorded)
    Bonsai(classifiers="one_vs_rest", tail_exponent=0.5, threshold=0.5).fit(data.X_train, data.Y_train)
    ((labels, costs),) = seen
    n = np.asarray(data.Y_train.sum(axis=0)).ravel()[labels]
    np.testing.assert_allclose(costs, np.sqrt(n.mean() / n), rtol=1e-6)


def test_one_cost_for_each_label():
    X, Y = planes(3)
    with pytest.raises(ValueError, match="one cost for each label"):
        train(X, Y, costs=[1.0])
    with pytest.raises(ValueError, match="costs of labels"):
        train(X, Y, costs=np.ones(np.count_nonzero(Y.any(axis=0))), loss="logistic")


def test_labels_beyond_the_data_are_rejected():
    with pytest.raises(ValueError, match="labels holds 2, but there are only 2"):
        train(np.eye(2), np.eye(2), order=[0, 2])


# --- the search ---


def test_exact_search_equals_the_reference(generated):
    X, Y = generated.X_train, generated.Y_train
    model = Bonsai(classifiers="one_vs_rest", search="exact").fit(X, Y)
    ranker = stored_ranker(one_vs_rest_of(model), X.shape[1])
    expected = reference.predict([ranker], generated.X_test[:40].toarray())
    ids, scores = model._ranked(generated.X_test[:40], 57)
    for row, candidates in enumerate(expected):
        assert set(ids[row]) == {label for label, _, _ in candidates}
        wanted = {label: score for label, score, _ in candidates}
        np.testing.assert_allclose(scores[row], [wanted[i] for i in ids[row]], rtol=1e-5, atol=1e-5)


def test_predictions_do_not_depend_on_other_rows(generated):
    blend = {"classifiers": "blend", "branching_factor": 6, "beam_size": 2, "blend_weight": 0.3}
    for options in (blend, {"classifiers": "one_vs_rest"}):
        model = Bonsai(**options)
        model.fit(generated.X_train, generated.Y_train)
        ids, scores = model.top_k(generated.X_test, 7)
        alone = [model.top_k(generated.X_test[[i]], 7) for i in range(generated.X_test.shape[0])]
        assert np.array_equal(np.concatenate([a[0] for a in alone]), ids)
        assert np.array_equal(np.concatenate([a[1] for a in alone]), scores)


def test_trees_and_rankers_that_do_not_fit(generated):
    blend = Bonsai(classifiers="blend", branching_factor=6).fit(generated.X_train, generated.Y_train)
    smaller = _core.Forest(one_vs_rest_of(blend), 300, 61)
    wider = _core.Forest(one_vs_rest_of(blend), 301, 60)
    trees, one_vs_rest = blend.fitted_.linear.core.trees, blend.fitted_.linear.core.one_vs_rest
    for pair, message in [
        ((None, None), "neither trees nor one-vs-rest classifiers"),
        ((trees, trees), "not in a single leaf"),
        ((trees, smaller), "differ in their number of labels or features"),
        ((trees, wider), "differ in their number of labels or features"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.Model(*pair, "squared_hinge", True, 0.0 if None in pair else 0.5)
    _core.Model(trees, one_vs_rest, "squared_hinge", True, 0.5)
