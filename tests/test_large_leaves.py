"""Leaves with many labels, whose classifiers are one-vs-rest on the rows of the leaf."""

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from bonsai_xmc import Bonsai, _core
from helpers import same_model

N_ROWS, N_FEATURES, N_OTHER = 500, 40, 30
N_LARGE = _core.LARGE_LEAF
SMALL = {"tol": 1e-5, "max_iter": 2000, "prune": 0, "threshold": 0.5, "classifiers": "leaf"}


def problem(signed):
    """Return rows of two kinds, and labels of which the first N_LARGE are of the first kind."""
    rng = np.random.default_rng(3)
    X = rng.random((N_ROWS, N_FEATURES)) * (rng.random((N_ROWS, N_FEATURES)) < 0.2)
    X[:, 0] += 0.1
    if signed:
        X *= rng.choice([-1, 1], X.shape)
    Y = np.zeros((N_ROWS, N_LARGE + N_OTHER), np.int8)
    for label in range(Y.shape[1]):
        rows = np.arange(400) if label < N_LARGE else np.arange(350, N_ROWS)
        Y[rng.choice(rows, 1 + 40 * (label % 50 == 0), replace=False), label] = 1
    return X.astype(np.float32), Y


def fit(X, Y, **params):
    tree = [list(range(N_LARGE)), list(range(N_LARGE, Y.shape[1]))]
    return Bonsai(**SMALL | params).fit(sp.csr_array(X), sp.csr_array(Y), tree=tree)


@pytest.mark.parametrize(("signed", "weighted"), [(False, False), (True, False), (False, True)])
def test_classifiers_of_a_large_leaf_are_the_optimum_on_its_rows(signed, weighted):
    X, Y = problem(signed)
    weights = np.where(np.arange(N_ROWS) % 3, 1.0, 2.5) if weighted else None
    tree = [list(range(N_LARGE)), list(range(N_LARGE, Y.shape[1]))]
    model = Bonsai(**SMALL).fit(sp.csr_array(X), sp.csr_array(Y), sample_weight=weights, tree=tree)
    forest = model.fitted_.linear.core.trees
    children, features, values = forest.weights(1)
    biases = forest.arrays()["bias"][forest.arrays()["child_ptr"][1] :]
    rows = np.flatnonzero(Y[:, :N_LARGE].any(axis=1))
    unit = reference.unit_rows(X[rows].astype(float))
    own = None if weights is None else weights[rows]
    for label in (0, 1, 2, 50, 777, N_LARGE - 1):
        positives = Y[rows, label].sum()
        bias = "learn" if positives > _core.FREQUENT_SHARE * len(rows) else -1
        y = np.where(Y[rows, label], 1, -1)
        w, b, _ = reference.solve_exact(unit, y, sample_weight=own, bias=bias)
        found = np.zeros(N_FEATURES)
        found[features[children == label]] = values[children == label]
        assert found == pytest.approx(w, abs=np.abs(w).max() / 127 + 1e-3)  # weights are bytes
        assert biases[label] == pytest.approx(b, abs=2e-3)


def test_a_large_leaf_has_the_same_bytes_for_any_number_of_threads():
    X, Y = problem(signed=False)
    assert same_model(fit(X, Y, n_jobs=1), fit(X, Y, n_jobs=3))


def test_a_smaller_leaf_learns_its_biases():
    X, Y = problem(signed=False)
    model = Bonsai(**SMALL).fit(
        sp.csr_array(X),
        sp.csr_array(Y[:, 1:]),
        tree=[list(range(N_LARGE - 1)), list(range(N_LARGE - 1, Y.shape[1] - 1))],
    )
    arrays = model.fitted_.linear.core.trees.arrays()
    assert not np.any(arrays["bias"][2 : 2 + N_LARGE - 1] == -1)
