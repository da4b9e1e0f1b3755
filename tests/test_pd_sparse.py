"""PD-Sparse, compared with plain NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

import reference_l1 as reference
from bonsai_xmc import _core, _core_testing
from bonsai_xmc.systems import PDSparse
from test_proxml import classifiers, dataset, random_data


def project(a, b, c, largest=False):
    return _core_testing.project_pairs(np.array(a, float), np.array(b, float), c, largest)


def train(X, Y, l1, c=1.0, max_epochs=20, patience=5, held_out=0.0, refit=False, seed=0, largest=False):
    options = {"max_epochs": max_epochs, "patience": patience, "held_out": held_out, "refit": refit}
    options["largest"] = largest
    return _core.train_pd_sparse(dataset(X, Y), l1=l1, c=c, seed=seed, **options)


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ([1.0], [1.0], 2.0, ([1.0], [1.0])),  # nothing to do
        ([1.0], [0.0], 2.0, ([0.5], [0.5])),  # in the middle
        ([3.0], [3.0], 2.0, ([2.0], [2.0])),  # at the bound
        ([-1.0], [0.5], 2.0, ([0.0], [0.0])),  # a − t = b + t would be below 0
        ([1.0, 1.0], [1.0], 2.0, ([2 / 3, 2 / 3], [4 / 3])),  # 2 (1 − t) = 1 + t at t = 1/3
        ([1.0], [], 2.0, ([0.0], [])),  # no negatives
    ],
)
def test_projection_worked_by_hand(a, b, c, expected):
    found = project(a, b, c)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ([1.0], [0.0], 2.0, ([0.5], [0.5])),  # the bound does not matter
        ([1.0, 1.0], [1.0], 1.0, ([0.5, 0.5], [1.0])),  # both sums are 1: 2 (1 − 1/2), and 1
        ([3.0, 0.0], [0.0, 3.0], 1.0, ([1.0, 0.0], [0.0, 1.0])),
    ],
)
def test_projection_for_the_largest_loss_worked_by_hand(a, b, c, expected):
    for mine, by_hand in zip(project(a, b, c, largest=True), expected, strict=True):
        np.testing.assert_allclose(mine, by_hand, atol=1e-12)


@pytest.mark.parametrize("largest", [False, True])
def test_projection_is_that_of_the_reference(largest):
    rng = np.random.default_rng(0)
    plain_project = reference.project_sums if largest else reference.project_pairs
    for _ in range(200):
        a, b = rng.normal(size=rng.integers(1, 6)), rng.normal(size=rng.integers(1, 8))
        c = rng.uniform(0.01, 2)
        for mine, plain in zip(project(a, b, c, largest), plain_project(a, b, c), strict=True):
            np.testing.assert_allclose(mine, plain, atol=1e-9)


def test_one_row_of_one_feature_is_solved_as_by_hand():
    # x = 2 with label 0 of two: w₀ = −w₁ = S(2α, l1), and the margin z₀ − z₁ = 2 · 2 · (2α − l1) reaches 1 at
    # 2α − l1 = 1/4, unless α = C before that.
    X, Y = np.array([[2.0]]), np.array([[1, 0]])
    w, _ = classifiers(train(X, Y, 0.5, max_epochs=200), 1)
    np.testing.assert_allclose(w, [[0.25], [-0.25]], atol=1e-5)
    w, _ = classifiers(train(X, Y, 0.5, c=0.3, max_epochs=200), 1)
    np.testing.assert_allclose(w, [[0.1], [-0.1]], atol=1e-5)


@pytest.mark.parametrize("largest", [False, True])
def test_the_objective_is_that_of_the_reference(largest):
    X, Y = random_data(1, n=20, d=12, n_labels=5, density=0.4)
    w, _ = classifiers(train(X, Y, 0.2, max_epochs=400, largest=largest), 12)
    dense = X.toarray().astype(float)
    plain = reference.solve_ranking(dense, Y, 0.2, largest=largest)
    best = reference.ranking_objective(dense, Y, plain, 0.2, largest=largest)
    assert reference.ranking_objective(dense, Y, w, 0.2, largest=largest) <= best * 1.01


def test_a_larger_penalty_leaves_fewer_weights():
    X, Y = random_data()
    sizes = [len(train(X, Y, l1)[3]) for l1 in (0.01, 0.3, 1.0)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_the_refit_keeps_to_the_features_with_a_weight():
    X, Y = random_data()
    before, after = train(X, Y, 0.3), train(X, Y, 0.3, refit=True)
    assert all(np.array_equal(before[i], after[i]) for i in (1, 2))
    assert np.abs(after[3]).sum() > np.abs(before[3]).sum()


def test_held_out_rows_end_training():
    X, Y = random_data()
    assert train(X, Y, 0.1, max_epochs=500, held_out=0.2)[4] < 100


def test_equal_seeds_give_equal_bytes_for_any_number_of_threads():
    X, Y = random_data()
    one, *others = (
        PDSparse(threshold=0.5, n_jobs=threads, random_state=3).fit(X, Y).fitted_.ranker.to_arrays()[1]
        for threads in (1, 2, 4)
    )
    assert all(np.array_equal(one[name], other[name]) for other in others for name in one)


@pytest.mark.parametrize("variant", ["pd", "ppd"])
def test_labels_that_follow_from_a_feature_are_found(variant):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 8, 400)
    X = sp.csr_array((np.ones(400, np.float32), (np.arange(400), label)), shape=(400, 8))
    noise = sp.random_array((400, 30), density=0.1, rng=rng, format="csr", dtype=np.float32)
    X, Y = sp.hstack([X, noise]).tocsr(), np.eye(8)[label]
    model = PDSparse(variant=variant, threshold=0.5, n_jobs=1).fit(X[:300], Y[:300])
    assert (model.top_k(X[300:], 1)[0][:, 0] == label[300:]).mean() > 0.97


def test_rows_with_no_label_or_all_labels_are_no_error():
    X, Y = random_data()
    Y[:5] = 0
    Y[5:10] = 1
    model = PDSparse(threshold=0.5, n_jobs=1).fit(X, Y)
    assert np.isfinite(model.top_k(X, 6)[1]).all()
