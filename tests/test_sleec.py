"""SLEEC, compared with plain NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc._data.rows import SparseRows
from bonsai_xmc.systems import SLEEC
from bonsai_xmc.systems._embedding import Blocked, Pool
from bonsai_xmc.systems.sleec import (
    Cluster,
    NeighborRanker,
    Pairs,
    _Fit,
    cluster_rows,
    embed_labels,
    label_neighbors,
    nearest,
    regress,
    truncated_svd,
    vote_weights,
    zero_smallest,
)


def random_data(seed=0, n=150, d=40, n_labels=20):
    """Return rows with a few features each, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.2, rng=rng, format="csr", dtype=np.float32)
    scores = X @ rng.standard_normal((d, n_labels))
    Y = sp.csr_array((scores >= np.sort(scores, axis=1)[:, [-3]]).astype(np.float32))
    return X, Y


def small(**params):
    """Return a SLEEC for such data."""
    given = {"n_learners": 2, "n_clusters": 3, "n_components": 6, "n_label_neighbors": 10, "n_neighbors": 4}
    return SLEEC(**given | {"threshold": 0.3} | params)


def test_clusters_are_those_of_obvious_groups():
    X = sp.csr_array(np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.1]], np.float32))
    for seed in range(6):  # from two rows of one group, k-means by dot product may not find the others
        with Pool(1) as pool:
            centres, cluster = cluster_rows(X, 2, seed, pool)
        np.testing.assert_array_equal(cluster, (X @ centres).argmax(axis=1))
        np.testing.assert_allclose(np.linalg.norm(centres, axis=0), 1, rtol=1e-2)


def test_label_neighbors_are_those_of_the_largest_products():
    _, Y = random_data()
    unit = Y.toarray() / np.linalg.norm(Y.toarray(), axis=1, keepdims=True)
    products = unit @ unit.T
    with Pool(1) as pool:
        pairs = label_neighbors(Y, 10, 0, pool)
    np.testing.assert_allclose(-np.sort(-pairs.values), -np.sort(-products)[:, :10], rtol=1e-6)
    found = pairs.values > 0
    np.testing.assert_allclose(
        np.take_along_axis(products, pairs.ids, 1)[found], pairs.values[found], rtol=1e-6
    )


def test_svp_step_worked_by_hand():
    # u = (1, 2), v = (3, 1); the pairs (0, 0) of 1, (0, 1) of 1 and (1, 1) of 3 leave 2, 0 and −1.
    pairs = Pairs(np.array([[0, 1], [1, 0]], np.int32), np.array([[1, 1], [3, 0]], np.float32))
    u, v = np.array([[1], [2]], np.float32), np.array([[3], [1]], np.float32)
    with Pool(1) as pool:
        fit = _Fit(pairs, pool)
        rest, of_u = fit.residuals(u, v)
        of_v = fit.gradient_v(rest, u)
    np.testing.assert_allclose(rest, [[2, 0], [-1, 0]])
    np.testing.assert_allclose(of_u, [[6], [-1]])  # 2·3 + 0·1, −1·1
    np.testing.assert_allclose(of_v, [[2], [-2]])  # 2·1, 0·1 − 1·2
    np.testing.assert_allclose(fit.matrix().toarray(), [[1, 1], [0, 3]])


def test_gradients_are_those_of_the_squared_error():
    _, Y = random_data()
    rng = np.random.default_rng(1)
    u, v = (rng.standard_normal((150, 5)).astype(np.float32) for _ in range(2))
    with Pool(1) as pool:
        pairs = label_neighbors(Y, 10, 0, pool)
        fit = _Fit(pairs, pool)
        rest, of_u = fit.residuals(u, v)
        of_v = fit.gradient_v(rest, u)
    known = np.zeros((150, 150))
    rows, places = np.nonzero(pairs.values)
    known[rows, pairs.ids[rows, places]] = pairs.values[rows, places]
    error = np.where(known > 0, u @ v.T - known, 0)
    np.testing.assert_allclose(of_u, error @ v, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(of_v, error.T @ u, rtol=1e-3, atol=1e-4)


def test_truncated_svd_is_that_of_lapack():
    matrix = sp.random_array(
        (80, 60), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32
    )
    matrix = sp.csr_array(matrix + 3 * np.outer(np.arange(80) % 2, np.arange(60) % 3).astype(np.float32))
    with Pool(1) as pool:
        u, v = truncated_svd(Blocked(matrix, pool), 2, 0)
    left, s, right = np.linalg.svd(matrix.toarray())
    np.testing.assert_allclose(u[:, :1] @ v[:, :1].T, s[0] * left[:, :1] @ right[:1], atol=1e-3)
    assert truncated_svd(Blocked(matrix[:3], pool), 5, 0)[0].shape == (3, 5)


def test_steps_from_the_svd_lower_the_error_of_the_products():
    _, Y = random_data()
    with Pool(1) as pool:
        pairs = label_neighbors(Y, 20, 0, pool)
        fit = _Fit(pairs, pool)
        start = truncated_svd(Blocked(fit.matrix(), pool), 10, 0)
        before = np.linalg.norm(fit.residuals(*start)[0])
        after = np.linalg.norm(fit.residuals(*embed_labels(pairs, 10, 0, pool))[0])
    assert after < 0.5 * before and after < 0.2 * np.linalg.norm(pairs.values)


def test_regression_is_ridge_with_twice_the_cost():
    X, _ = random_data()
    target = np.random.default_rng(2).standard_normal((150, 3)).astype(np.float32)
    with Pool(1) as pool:
        w = regress(Blocked(X, pool), target, 0.25)
    dense = X.toarray().astype(np.float64)
    expected = np.linalg.solve(dense.T @ dense + 2 * np.eye(40), dense.T @ target)
    np.testing.assert_allclose(w, expected, atol=5e-3)  # ADMM changes it by ρ = 0.001


def test_zero_smallest_keeps_the_largest_magnitudes():
    np.testing.assert_array_equal(zero_smallest(np.array([3, -1, 2, -4.0]), 0.5), [3, 0, 0, -4])


def test_nearest_rows_are_by_rising_distance():
    ids, squares = nearest(np.array([[0, 0]], np.float32), np.array([[2, 0], [1, 0], [0, 1], [3, 3.0]]), 3)
    np.testing.assert_array_equal(ids, [[1, 2, 0]])
    np.testing.assert_allclose(squares, [[1, 1, 4]])


def test_near_votes_decide_among_equal_counts_only():
    votes = vote_weights(4, 4)
    assert votes[0] > votes[3] and votes[:2].sum() < 3


def distances_of(ranker, x):
    """Yield the cluster of a row in each learner, and the distances of its rows."""
    unit = x / (np.linalg.norm(x) or 1)
    for centres, clusters in zip(ranker.centres, ranker.clusters, strict=True):
        cluster = clusters[int(np.argmax(unit @ centres))]
        z = np.append(unit, 1)[cluster.features] @ cluster.weights
        if ranker.metric == "cosine":
            z /= np.linalg.norm(z) or 1
        yield cluster, np.linalg.norm(cluster.embedded - z, axis=1)


def are_told_apart(ranker, X):
    """Return whether float32 orders neighbours as float64 does: those that differ have clear distances."""
    for x in X.toarray().astype(np.float64):
        for cluster, distances in distances_of(ranker, x):
            order = np.argsort(distances, kind="stable")
            equal = (cluster.embedded[order[1:]] == cluster.embedded[order[:-1]]).all(axis=1)
            if (~equal & (np.diff(distances[order]) < 1e-4)).any():
                return False
    return True


def reference_shares(ranker, X):
    """Return the share of each label in the votes, row by row in plain NumPy."""
    answers = []
    for x in X.toarray().astype(np.float64):
        votes = np.zeros(ranker.n_labels)
        total = 0.0
        for cluster, distances in distances_of(ranker, x):
            n = min(ranker.n_neighbors, len(distances))
            for place, near in enumerate(np.argsort(distances, kind="stable")[:n]):
                vote = 1 + (1 - place / n) / (ranker.n_neighbors * len(ranker.clusters) + 1)
                votes[ranker.labels[[cluster.rows[near]]].indices] += vote
                total += vote
        answers.append(votes / total)
    return np.array(answers)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_votes_are_those_of_a_plain_reference(metric):
    X, Y = random_data()
    model = small(metric=metric).fit(X, Y)
    ids, scores = model.top_k(X, 5)
    shares = reference_shares(model.fitted_.ranker, X)
    np.testing.assert_allclose(scores, -np.sort(-shares, axis=1)[:, :5], rtol=1e-5)
    np.testing.assert_allclose(np.where(ids < 0, 0, np.take_along_axis(shares, ids, 1)), scores, rtol=1e-5)


def test_metrics_differ_where_embeddings_are_short():
    # The row's embedding has the direction of the long one, and is nearer to the short one.
    labels = sp.csr_array(np.eye(2, dtype=np.float32))
    centres = [np.ones((1, 1), np.float32)]
    for metric, embedded, best in (("euclidean", [[0, 0.1], [3, 0]], 0), ("cosine", [[0, 1], [1, 0]], 1)):
        weights = np.array([[0.2, 0], [0, 0]], np.float32)
        ids = np.arange(2, dtype=np.int32)
        cluster = Cluster(ids, ids, weights, np.array(embedded, np.float32))
        ranker = NeighborRanker(centres, [[cluster]], labels, None, 1, 1, metric)
        row = SparseRows.from_scipy(sp.csr_array(np.ones((1, 1), np.float32)))
        assert ranker.top_k(row, 1)[0][0, 0] == best


def test_files_without_a_metric_are_euclidean():
    X, Y = random_data()
    ranker = small(metric="euclidean").fit(X, Y).fitted_.ranker
    facts, arrays = ranker.to_arrays()
    del facts["metric"]
    assert type(ranker).from_arrays(facts, arrays, 40, 20).metric == "euclidean"


def test_training_rows_find_their_labels():
    X, Y = random_data()
    ids, _ = small(C=100.0, n_neighbors=1, n_components=20, n_clusters=1, n_learners=1).fit(X, Y).top_k(X, 3)
    assert Y[np.arange(150)[:, None], ids].mean() > 0.9


def test_training_and_ranking_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr("bonsai_xmc.systems._embedding._BLOCK_ENTRIES", 64)
    monkeypatch.setattr("bonsai_xmc.systems.sleec._GATHERED", 128)
    monkeypatch.setattr("bonsai_xmc.systems.sleec._BATCH", 16)
    X, Y = random_data()
    one, two = (small(n_jobs=n).fit(X, Y) for n in (1, 2))
    for name, array in one.fitted_.ranker.to_arrays()[1].items():
        np.testing.assert_array_equal(array, two.fitted_.ranker.to_arrays()[1][name])
    np.testing.assert_array_equal(one.top_k(X, 5), two.top_k(X, 5))
    other = small(random_state=1).fit(X, Y).fitted_.ranker
    assert not np.array_equal(other.centres[0], one.fitted_.ranker.centres[0])


def test_weights_of_rows_weigh_their_votes():
    X, Y = random_data(n=60)
    weights = np.where(np.arange(60) < 30, 1.0, 1e-3)
    model = small(n_clusters=1, n_learners=1, n_neighbors=60).fit(X, Y, sample_weight=weights)
    _, scores = model.top_k(X[:1], 20)
    shares = np.sort(Y[:30].toarray().mean(axis=0))[::-1]
    np.testing.assert_allclose(np.sort(scores[0])[::-1], shares, atol=0.05)


def test_explanation_names_the_neighbours_and_their_labels():
    X, Y = random_data()
    ranker = small().fit(X, Y).fitted_.ranker
    row = SparseRows.from_scipy(X[[5]])
    ids, scores = ranker.top_k(row, 1)
    neighbors, labels = ranker.explain(row, int(ids[0, 0]))
    assert len(neighbors.rows) == 2 * 4
    votes = sum(vote for _, _, vote, has in neighbors.rows if has == "yes")
    assert votes / sum(vote for *_, vote, _ in neighbors.rows) == pytest.approx(
        np.exp(scores[0, 0]), rel=1e-5
    )
    distances = [distance for _, distance, _, _ in neighbors.rows]
    assert distances == sorted(distances)
    near = {training_row for training_row, *_ in neighbors.rows}
    assert sorted(labels.rows) == [(i, j) for i in sorted(near) for j in Y[[i]].indices.tolist()]


def test_files_keep_the_model_and_damaged_ones_are_refused(tmp_path):
    X, Y = random_data()
    model = small().fit(X, Y, sample_weight=np.full(150, 2.0))
    model.save(tmp_path / "model.bonsai")
    np.testing.assert_array_equal(model.top_k(X, 5), SLEEC.load(tmp_path / "model.bonsai").top_k(X, 5))
    ranker = model.fitted_.ranker
    facts, arrays = ranker.to_arrays()
    for name, array in arrays.items():
        damages = [None, array.astype(np.float64), array[None], np.flip(array, 0)[:-1]]
        damages += (
            [np.full_like(array, np.nan)] if array.dtype == np.float32 else [0 * array - 1, 0 * array + 2**30]
        )
        for damage in damages:
            broken = {**arrays, name: damage} if damage is not None else dict(arrays)
            if damage is None:
                if name == "weights":
                    continue
                del broken[name]
            with pytest.raises(ValueError, match=r"the tensor|a cluster has"):
                type(ranker).from_arrays(facts, broken, 40, 20)
    for name, value in (
        ("n_rows", 0),
        ("n_rows", 2**40),
        ("n_neighbors", "4"),
        ("n_clusters", [10**9]),
        ("n_clusters", 3),
        ("n_clusters", []),
        ("metric", "manhattan"),
    ):
        with pytest.raises(ValueError, match=r"facts|the tensor|a cluster has"):
            type(ranker).from_arrays({**facts, name: value}, arrays, 40, 20)


def test_take_ranks_some_labels_by_the_same_scores():
    X, Y = random_data()
    ranker = small().fit(X, Y).fitted_.ranker
    rows, labels = SparseRows.from_scipy(X), np.array([2, 7, 9])
    ids, scores = ranker.take(labels).top_k(rows, 3)
    expected = ranker.top_k(rows, 3, allowed=np.isin(np.arange(20), labels))
    np.testing.assert_array_equal(np.where(ids < 0, -1, labels[ids]), expected[0])
    np.testing.assert_array_equal(scores, expected[1])
