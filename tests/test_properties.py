"""What must hold for any data: clustering, trees, prediction; repeatability; threads, forks, interrupts."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_array

from bonsai_xmc import Bonsai, _core_testing
from bonsai_xmc._data.rows import DENSE_FROM
from helpers import trees_of
from reference import unit_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
few = settings(max_examples=30, deadline=None)
several = settings(max_examples=100, deadline=None)


# --- clustering ---


@st.composite
def vectors(draw, zero_rows=True):
    """Unit rows, some alike, some zero, on a grid (ties) or not."""
    n, d = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    V = rng.integers(-2, 3, (n, d)) if draw(st.booleans()) else rng.standard_normal((n, d))
    V = V * (rng.random((n, d)) < draw(st.sampled_from([0.3, 1.0])))
    V = V[rng.integers(n, size=n)] if draw(st.booleans()) else V
    V[~V.any(axis=1)] = 0 if zero_rows else 1
    return unit_rows(V.astype(float)).astype(np.float32)


def partition(V, k, key, balanced=False, plus_plus=False, tol=1e-4, max_iter=100, threads=1):
    params = {"branching_factor": k, "kmeans_tol": tol, "kmeans_max_iter": max_iter}
    return _core_testing.partition(V, params | {"plus_plus": plus_plus, "balanced": balanced}, key, threads)


flags, keys = st.booleans(), st.integers(0, 2**64 - 1)


@several
@given(vectors(), st.integers(2, 80), keys, flags, flags)
def test_partition_covers_each_row_once(V, k, key, balanced, plus_plus):
    cluster, n_clusters, _ = partition(V, k, key, balanced, plus_plus)
    assert len(cluster) == len(V)
    assert set(cluster) == set(range(n_clusters))
    assert n_clusters <= k
    for threads in (2, 3):
        assert np.array_equal(partition(V, k, key, balanced, plus_plus, threads=threads)[0], cluster)


@several
@given(vectors(), st.integers(2, 20), keys, flags)
def test_kmeans_objective_never_falls(V, k, key, plus_plus):
    _, _, objective = partition(V, k, key, plus_plus=plus_plus, tol=-1.0, max_iter=12)
    assert len(objective) == (12 if V.any() else 0)
    assert (np.diff(objective) >= -1e-6).all()


@several
@given(vectors(), st.integers(2, 20), keys)
def test_balanced_sizes_differ_by_at_most_one(V, k, key):
    cluster, n_clusters, _ = partition(V, k, key, balanced=True)
    sizes = np.bincount(cluster)
    assert sizes.max() - sizes.min() <= 1
    assert n_clusters == min(k, len(V))


@several
@given(vectors(zero_rows=False), st.integers(2, 20), keys, flags)
def test_no_cluster_of_one_unless_it_is_alone(V, k, key, plus_plus):
    cluster, n_clusters, _ = partition(V, k, key, plus_plus=plus_plus)
    assert n_clusters == 1 or np.bincount(cluster).min() >= 2


# --- models ---


@st.composite
def problems(draw):
    """(X, Y) with rows without features or labels, labels without rows, copies and opposites of rows."""
    n, d, labels = draw(st.integers(2, 25)), draw(st.integers(1, 12)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, d)).astype(np.float32)
    X[rng.random((n, d)) > draw(st.sampled_from([0.15, 0.4, 1.0]))] = 0
    Y = rng.random((n, labels)) < draw(st.sampled_from([0.05, 0.2, 0.6]))
    if draw(st.booleans()):
        copies = rng.integers(n, size=n)
        X, Y = X[copies], Y[copies]
    if draw(st.booleans()):  # rows that cancel out: their labels' vectors are zero
        X[n // 2 :], Y[n // 2 :] = -X[: n - n // 2], Y[: n - n // 2]
    Y[rng.integers(n), rng.integers(labels)] = True
    return X, Y.astype(np.int8)


options = st.fixed_dictionaries(
    {
        "classifiers": st.just("leaf"),
        "representation": st.sampled_from(["input", "output", "joint"]),
        "n_trees": st.integers(1, 3),
        "branching_factor": st.integers(2, 5),
        "max_leaf_size": st.none() | st.integers(1, 4),
        "max_depth": st.none() | st.integers(1, 4),
        "balance": st.sampled_from(["none", "bounded", "equal"]),
        "loss": st.sampled_from(["squared_hinge", "logistic"]),
        "solver": st.sampled_from(["dual", "newton"]),
        "max_iter": st.integers(1, 8),
        "prune": st.sampled_from([0.0, 0.1]),
        "normalize": flags,
        "beam_size": st.none() | st.integers(1, 4),
        "random_state": keys,
        "n_jobs": st.sampled_from([1, 3]),
    }
)


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.bonsai")
        model.save(path)
        return path.read_bytes()


def all_labels(model, X):
    """(ids, log scores) of every candidate of each row, best first."""
    return model._ranked(X, len(model.classes_))


def same(found, other):
    return np.array_equal(found[0], other[0]) and np.array_equal(found[1], other[1])


def leaves(tree):
    return [tree.labels(v) for v in range(tree.n_nodes) if tree.is_leaf(v)]


@several
@given(problems(), options)
def test_each_label_with_rows_is_in_one_leaf_of_each_tree(problem, params):
    X, Y = problem
    with_rows = np.flatnonzero(Y.any(axis=0))
    model = Bonsai(**params).fit(X, Y)
    assert len(model.trees_) == params["n_trees"]
    for tree in model.trees_:
        assert np.array_equal(np.sort(np.concatenate(leaves(tree))), with_rows)
        assert params["max_depth"] is None or tree.depth <= params["max_depth"]
        for v in range(tree.n_nodes):
            sizes = tree.sizes[tree.children(v)]
            assert tree.is_leaf(v) or 2 <= len(sizes) <= params["branching_factor"]
            assert tree.is_leaf(v) or params["balance"] != "equal" or np.ptp(sizes) <= 1


@several
@given(problems(), options)
def test_labels_without_rows_are_never_predicted(problem, params):
    X, Y = problem
    model = Bonsai(**params).fit(X, Y).set_params(beam_size=None)
    ids, scores = all_labels(model, X)
    with_rows = np.flatnonzero(Y.any(axis=0))
    for row, (of_row, of_row_scores) in enumerate(zip(ids, scores, strict=True)):
        candidates = of_row[of_row >= 0]
        assert np.array_equal(np.sort(candidates), with_rows if X[row].any() else [])
        assert (of_row[len(candidates) :] == -1).all()
        assert np.isfinite(of_row_scores[: len(candidates)]).all()
        assert (np.diff(of_row_scores[: len(candidates)]) <= 0).all()


@several
@given(problems(), options)
def test_full_beam_is_exhaustive(problem, params):
    X, Y = problem
    model = Bonsai(**params).fit(X, Y).set_params(beam_size=None)
    exhaustive = all_labels(model, X)
    widest = max(tree.n_nodes for tree in model.trees_)
    assert same(all_labels(model.set_params(beam_size=widest), X), exhaustive)


@few
@given(problems(), options)
def test_batch_is_row_by_row(problem, params):
    X, Y = problem
    model = Bonsai(**params).fit(X, Y)
    batch = all_labels(model, np.tile(X, (3, 1)))
    for row, x in enumerate(np.tile(X, (3, 1))):
        assert same(all_labels(model, x[None]), (batch[0][[row]], batch[1][[row]]))


@pytest.mark.parametrize("k", [3, 150])
@pytest.mark.parametrize(
    "params",
    [
        {"classifiers": "leaf", "branching_factor": 8, "beam_size": 4},
        {"classifiers": "leaf", "branching_factor": 8, "beam_size": None, "loss": "logistic"},
        {"classifiers": "leaf", "branching_factor": 8, "beam_size": 3, "n_trees": 1},
        {"classifiers": "one_vs_rest", "search": "exact"},
        {"classifiers": "blend", "branching_factor": 8, "blend_weight": 0.5},
    ],
)
def test_large_batches_are_searched_like_small_ones(params, k):
    """More rows than are searched together, some of them empty, shared by any number of threads."""
    X, Y = make_large()
    model = Bonsai(**params, random_state=3, n_jobs=1).fit(X, Y)
    X[::50] = 0
    expected = tuple(np.vstack(parts) for parts in zip(*(model.top_k(x[None], k) for x in X), strict=True))
    for n_jobs in (1, 2, 7):
        found = model.set_params(n_jobs=n_jobs).top_k(np.tile(X, (22, 1)), k)
        assert same(found, tuple(np.tile(part, (22, 1)) for part in expected))


def forms_of(X, rng):
    """Yield the same matrix in other containers."""
    sparse = csr_array(X)
    coo = sparse.tocoo()
    order = rng.permutation(coo.nnz)
    rows, columns, values = coo.row[order], coo.col[order], coo.data[order]
    yield sparse
    yield csc_array(X)
    yield coo_array((values, (rows, columns)), shape=X.shape)
    halves = (np.tile(values, 2) / 2, (np.tile(rows, 2), np.tile(columns, 2)))
    yield coo_array(halves, shape=X.shape)  # duplicates, to be added up
    by_row = np.argsort(rows, kind="stable")  # columns in random order within each row
    indptr = sparse.indptr.astype(np.int64)
    yield csr_array((values[by_row], columns[by_row].astype(np.int64), indptr), shape=X.shape)
    with_zeros = csr_array(np.where(X == 0, 7, X))
    with_zeros.data[with_zeros.data == 7] = 0  # these zeros are stored
    yield with_zeros
    yield X.astype(np.float64)
    yield np.asfortranarray(X)


@few
@given(problems(), options, st.integers(0, 2**32 - 1))
def test_dense_is_sparse_is_shuffled(problem, params, seed):
    X, Y = problem
    model = Bonsai(**params).fit(X, Y)
    file, found = saved(model), all_labels(model, X)
    for form in forms_of(X, np.random.default_rng(seed)):
        before = form.copy()
        assert saved(Bonsai(**params).fit(form, Y)) == file
        assert same(all_labels(model, form), found)
        assert (form != before).sum() == 0


@few
@given(problems(), options, st.data())
def test_an_empty_column_changes_nothing_but_numbers(problem, params, data):
    X, Y = problem
    at = data.draw(st.integers(0, X.shape[1]))
    wider = np.insert(X, at, 0, axis=1)
    filled = np.count_nonzero(X)
    assume((filled >= DENSE_FROM * X.size) == (filled >= DENSE_FROM * wider.size))  # rounded alike
    model, other = Bonsai(**params).fit(X, Y), Bonsai(**params).fit(wider, Y)
    assert same(all_labels(model, X), all_labels(other, wider))
    for node in range(trees_of(model)["tree_ptr"][-1]):
        children, features, values = model.fitted_.linear.core.trees.weights(node)
        expected = children, features + (features >= at), values
        assert all(map(np.array_equal, other.fitted_.linear.core.trees.weights(node), expected))


@few
@given(problems(), options)
def test_weights_are_costs_and_zero_weights_drop_rows(problem, params):
    X, Y = problem
    plain = Bonsai(**params, C=2.0).fit(X, Y)
    weighted = Bonsai(**params, C=1.0).fit(X, Y, sample_weight=np.full(len(X), 2.0))
    for name, array in trees_of(plain).items():
        assert np.array_equal(array, trees_of(weighted)[name])
    keep = np.arange(len(X)) % 3 > 0
    assume(Y[keep].any())
    without = saved(Bonsai(**params).fit(X[keep], Y[keep]))
    assert saved(Bonsai(**params).fit(X, Y, sample_weight=keep)) == without


@pytest.mark.parametrize("used_are_dense", [True, False])
def test_dropped_rows_do_not_decide_between_dense_and_sparse(used_are_dense):
    """Sums differ in their last bits between the two forms: rows of weight 0 must not choose it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 6)).astype(np.float32)
    used = np.arange(20) < 10
    X[used != used_are_dense] *= rng.random((10, 6)) < 0.1
    X[:10] *= rng.random((10, 6)) < 0.8
    Y = (rng.random((20, 4)) < 0.4).astype(np.int8)
    assert (np.count_nonzero(X[used]) >= DENSE_FROM * X[used].size) == used_are_dense
    assert (np.count_nonzero(X) >= DENSE_FROM * X.size) != used_are_dense
    alone = saved(Bonsai(classifiers="leaf", random_state=0).fit(X[used], Y[used]))
    assert saved(Bonsai(classifiers="leaf", random_state=0).fit(X, Y, sample_weight=used)) == alone


def test_parts_of_rows_are_trained_as_all_rows_are():
    """Rows that are just sparse: some of the folds that choose the default and the threshold are not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 20)).astype(np.float32)
    X[:, 1:] *= rng.random((1200, 19)) < np.where(np.arange(1200) % 2, 0.735, 0.19)[:, None]
    Y = (rng.random((1200, 4)) < 0.4).astype(np.int8)
    assert 0.48 < np.count_nonzero(X) / X.size < DENSE_FROM
    for seed in range(8):
        model = Bonsai(random_state=seed, n_jobs=1).fit(X, Y)
        assert model.strategy_.tail_exponent > 0
        assert model.top_k(X, 2)[0].min() >= 0


# --- repeatability ---

CONFIGURATIONS = [
    {"classifiers": "leaf", "representation": "joint", "branching_factor": 8, "max_depth": None},
    {
        "classifiers": "leaf",
        "branching_factor": 90,
        "max_depth": 2,
        "solver": "newton",
        "loss": "logistic",
    },
    {
        "classifiers": "leaf",
        "representation": "output",
        "max_depth": None,
        "branching_factor": 2,
        "balance": "equal",
        "max_leaf_size": 10,
        "loss": "logistic",
    },
]


def make_large(dense=False):
    """Enough labels for several panels and tasks at the root."""
    rng = np.random.default_rng(1)
    X = rng.random((400, 60), dtype=np.float32) * (rng.random((400, 60)) < (0.9 if dense else 0.1))
    return X, (rng.random((400, 150)) < 0.02).astype(np.int8)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("params", CONFIGURATIONS)
def test_same_file_for_any_number_of_threads(params, dense, capsys):
    X, Y = make_large(dense)
    file = saved(Bonsai(**params, random_state=3, n_jobs=1).fit(X, Y))
    for n_jobs in (2, 7):
        assert saved(Bonsai(**params, random_state=3, n_jobs=n_jobs).fit(X, Y)) == file
    assert capsys.readouterr().err == ""
    assert saved(Bonsai(**params, random_state=3).fit(X, Y, progress=True)) == file
    assert "classifiers" in capsys.readouterr().err
    assert saved(Bonsai(**params, random_state=4).fit(X, Y)) != file


def digest_of_a_fit(n_jobs):
    X, Y = make_large()
    model = Bonsai(**CONFIGURATIONS[0], max_iter=60, random_state=3, n_jobs=n_jobs).fit(X, Y)
    return hashlib.sha256(saved(model)).hexdigest()


def test_same_file_in_other_processes():
    expected = digest_of_a_fit(1)
    for n_jobs, hash_seed in ((2, "1"), (3, "2")):
        code = f"import test_properties; print(test_properties.digest_of_a_fit({n_jobs}))"
        result = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.strip() == expected


def test_seeds_and_trees_differ():
    X, Y = make_large()
    forests = [
        Bonsai(classifiers="leaf", branching_factor=5, random_state=seed, max_iter=1).fit(X, Y).trees_
        for seed in (0, 1, 2**63)
    ]
    assert len({str(leaves(tree)) for forest in forests for tree in forest}) == 9


# --- threads, forks, signals ---


def test_predictions_of_several_python_threads():
    X, Y = make_large()
    model = Bonsai(classifiers="leaf", branching_factor=8, random_state=0, n_jobs=2).fit(X, Y)
    expected = model.top_k(X)
    with ThreadPoolExecutor(4) as pool:
        assert all(same(found, expected) for found in pool.map(model.top_k, [X] * 12))


def fit_and_predict(_=None):
    X, Y = make_large()
    model = Bonsai(classifiers="leaf", branching_factor=8, random_state=0, n_jobs=4).fit(X, Y)
    return saved(model), *model.top_k(X)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_fits_and_predicts():
    """The parent has used threads; their state must not stop the child."""
    file, ids, scores = fit_and_predict()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for found in pool.map_async(fit_and_predict, range(3)).get(timeout=60):
            assert found[0] == file and same(found[1:], (ids, scores))
    assert fit_and_predict()[0] == file


def test_interrupt_stops_training_soon():
    X, Y = make_large(dense=True)
    begin = time.process_time()  # a busy machine makes no difference to it

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            Bonsai(classifiers="leaf", n_trees=50, max_iter=500, tol=1e-12, n_jobs=2).fit(X, Y)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert time.process_time() - begin < 2.3  # two threads for a second, after the signal
