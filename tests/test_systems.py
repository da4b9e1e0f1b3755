"""Every system on random small data, compared with plain NumPy that reads its stored weights."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import reference_fastxml as reference
from bonsai_xmc._model.edit import weights_of_node
from bonsai_xmc.systems import SYSTEMS
from kinds import system_of
from test_sleec import are_told_apart, reference_shares

PARAMS = {
    "fastxml": {"n_trees": 2, "max_leaf_rows": 3, "max_leaf_labels": 4},
    "pfastrexml": {"n_trees": 2, "max_leaf_rows": 3, "alpha": 0.6, "gamma": 4.0},
    "leml": {"n_components": 3},
    "robustxml": {"n_components": 3, "l1": 0.1},
    "pd-sparse": {"max_iter": 5},
    "proxml": {"max_iter": 50},
    "sleec": {"n_components": 3, "n_clusters": 2, "n_learners": 2},
}


def unit_rows(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)


def trees_of(arrays):
    """Return the trees of the arrays of a file: nodes are leaves {label: share} or (weights, bias, child)."""
    trees, inner, leaf = [], 0, 0
    for begin, end in zip(arrays["tree_ptr"][:-1], arrays["tree_ptr"][1:], strict=True):
        nodes, known = [], 1
        for is_leaf in arrays["is_leaf"][begin:end]:
            if is_leaf:
                part = slice(*arrays["leaf_ptr"][leaf : leaf + 2])
                nodes.append(dict(zip(arrays["leaf_labels"][part], arrays["leaf_shares"][part], strict=True)))
                leaf += 1
            else:
                part = slice(*arrays["weight_ptr"][inner : inner + 2])
                nodes.append(
                    (arrays["features"][part], arrays["weights"][part], arrays["biases"][inner], known)
                )
                inner, known = inner + 1, known + 2
        trees.append(nodes)
    return trees


def shares(ranker, X):
    """Return the mean share of each label in the leaves that rows reach."""
    X, found = unit_rows(X) if ranker.normalize else X, np.zeros((len(X), ranker.n_labels))
    trees = trees_of(ranker.trees)
    for x, total in zip(X, found, strict=True):
        for nodes in trees:
            node = nodes[0]
            while isinstance(node, tuple):
                features, weights, bias, child = node
                node = nodes[child + int(bias + weights @ x[features] > 0)]
            for label, share in node.items():
                total[label] += share / len(trees)
    return found


def pfastrexml(ranker, X):
    means = ranker.means.to_dense().values
    tails = [[reference.tail(x, mean, ranker.gamma) for mean in means] for x in X]
    return shares(ranker, X) ** ranker.alpha * np.array(tails) ** (1 - ranker.alpha)


def low_rank(ranker, X):
    x = np.hstack([unit_rows(X), np.ones((len(X), 1))])
    z = x @ ranker.w @ ranker.h.T
    if hasattr(ranker, "sparse"):
        z += x[:, :-1] @ ranker.sparse.toarray()
    return 1 / (1 + np.exp(-4 * (z - 0.5))) * ~ranker._unknown


def linear(ranker, X):
    """Return scores; a row without features gets no label, as with all linear classifiers of the core."""
    unit = unit_rows(X) if ranker.normalize else X
    z = unit @ weights_of_node(ranker.forest, 0).toarray().T + ranker.forest.arrays()["bias"]
    return X.any(axis=1)[:, None] / (1 + np.exp(-z))


SCORES = {
    "fastxml": shares,
    "pfastrexml": pfastrexml,
    "leml": low_rank,
    "robustxml": low_rank,
    "pd-sparse": linear,
    "proxml": linear,
    "sleec": lambda ranker, X: reference_shares(ranker, sp.csr_array(X)),
}


@pytest.mark.parametrize("kind", SYSTEMS)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(4, 40), st.integers(2, 25), st.integers(2, 12)),
    density=st.sampled_from([0.1, 0.4, 1.0]),
)
@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_plain_numpy(kind, seed, shape, density):
    (n, n_features, n_labels), rng = shape, np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n + 5, n_features)) * (rng.random((n + 5, n_features)) < density), 2)
    X = X.astype(np.float32)
    Y = rng.random((n, n_labels)) < 0.3
    Y[0, 0] = True  # rows without labels and labels without rows are data, too
    model = system_of(kind, **PARAMS[kind]).fit(sp.csr_array(X[:n]), sp.csr_array(Y.astype(np.int8)))
    assume(kind != "sleec" or are_told_apart(model.fitted_.ranker, sp.csr_array(X)))
    ids, scores = model.top_k(sp.csr_array(X), n_labels)
    found = np.zeros((n + 5, n_labels))
    rows, places = np.nonzero(ids >= 0)
    found[rows, ids[rows, places]] = scores[rows, places]
    np.testing.assert_allclose(
        found, SCORES[kind](model.fitted_.ranker, X.astype(np.float64)), rtol=1e-4, atol=1e-6
    )
    assert (np.diff(scores, axis=1) <= 0).all()
