"""The estimator as users see it: what goes in, what comes out, on data whose answers are known."""

import copy
import io
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bonsai_xmc import Bonsai, LabelTree, metrics
from bonsai_xmc._params import PRESETS

TIGHT = {"tol": 1e-7, "max_iter": 2000, "prune": 0.0}


def same_model(a, b):
    """Whether two models have equal trees and weights, bit by bit."""
    assert a._arrays.keys() == b._arrays.keys()
    return all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip(a._arrays.values(), b._arrays.values(), strict=True)
    )


def leaf_sizes(tree):
    return [node.size for node in tree.nodes if node.is_leaf]


@pytest.fixture(scope="module")
def fitted(generated):
    return Bonsai(branching=6, beam=3, n_jobs=1).fit(generated.X_train, generated.Y_train)


# --- what comes out ---


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_clear_data_are_learnt_perfectly(blocks, loss, solver):
    X, Y = blocks()
    model = Bonsai(branching=4, loss=loss, solver=solver).fit(X, Y)
    assert model.score(X, Y) == 1.0
    assert (model.top_k(X, 1)[0][:, 0] == Y.indices).all()


def test_generated_data_are_learnt_well(generated, fitted):
    frequent = np.bincount(generated.Y_train.indices).max() / generated.Y_train.shape[0]
    assert fitted.score(generated.X_test, generated.Y_test) > max(0.5, 2 * frequent)


def test_top_k(fitted, generated):
    ids, scores = fitted.top_k(generated.X_test, k=7)
    assert ids.dtype == np.int32
    assert scores.dtype == np.float32
    assert ids.shape == scores.shape == (150, 7)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert scores.min() > 0
    assert scores.max() <= 1
    assert ids.min() >= 0
    assert ids.max() < 60
    assert all(len(set(row)) == 7 for row in ids.tolist())
    assert fitted.top_k(generated.X_test)[0].shape == (150, 5)
    np.testing.assert_array_equal(fitted.top_k(generated.X_test, np.int64(3))[0], ids[:, :3])


def test_padding_where_there_are_fewer_candidates(blocks):
    X, Y = blocks(n_labels=6)
    tree = [[0, 1], [2, 3], [4, 5]]
    model = Bonsai(tree=tree, beam=1).fit(X, Y)
    ids, scores = model.top_k(X, 6)
    leaf = Y.indices // 2
    np.testing.assert_array_equal(np.sort(ids[:, :2], axis=1), np.stack([2 * leaf, 2 * leaf + 1], axis=1))
    assert (ids[:, 2:] == -1).all()
    assert (scores[:, 2:] == 0).all()
    assert (scores[:, :2] > 0).all()
    assert model.set_params(beam=None).top_k(X, 6)[0].min() == 0  # no padding: all labels are candidates
    assert np.diff(model.set_params(beam=2).decision_function(X).indptr).tolist() == [4] * len(leaf)


def test_rows_without_features(blocks, generated, fitted):
    X, Y = blocks()
    empty = sp.csr_array((2, X.shape[1]))
    model = Bonsai().fit(sp.vstack([X, empty]), sp.vstack([Y, Y[:2]]))
    for rows in (empty, empty.toarray()):
        ids, scores = model.top_k(rows, 3)
        assert (ids == -1).all()
        assert (scores == 0).all()
        assert model.top_k_labels(rows, 3) == [[], []]
        for method in (model.predict, model.predict_proba, model.decision_function):
            assert method(rows).nnz == 0
        assert model.score(rows, Y[:2]) == 0
    mixed = sp.vstack([generated.X_test[:3], sp.csr_array((1, 300)), generated.X_test[3:40]]).tocsr()
    ids, _ = fitted.top_k(mixed, 2)
    np.testing.assert_array_equal(np.delete(ids, 3, axis=0), fitted.top_k(generated.X_test[:40], 2)[0])
    assert ids[3].tolist() == [-1, -1]


@pytest.mark.parametrize("keep", [1, 5, 60, 1000])
def test_sparse_results_are_the_top_of_the_ranking(fitted, generated, keep):
    model = copy.deepcopy(fitted).set_params(keep=keep)
    X = generated.X_test
    proba, decision = model.predict_proba(X), model.decision_function(X)
    ids, scores = model.top_k(X, min(keep, 60))
    expected = np.zeros((150, 60), np.float32)
    rows, places = np.nonzero(ids >= 0)
    expected[rows, ids[rows, places]] = scores[rows, places]
    for result in (proba, decision):
        assert isinstance(result, sp.csr_array)
        assert result.shape == (150, 60)
        assert result.dtype == np.float32
        assert result.has_canonical_format
        assert np.diff(result.indptr).tolist() == (ids >= 0).sum(axis=1).tolist()
    np.testing.assert_array_equal(proba.toarray(), expected)
    np.testing.assert_array_equal(proba.indices, decision.indices)
    np.testing.assert_allclose(np.exp(decision.data), proba.data, rtol=1e-6)
    assert decision.data.max() <= 0
    assert proba.data.min() >= 0


@pytest.mark.parametrize("threshold", [0, 0.1, 0.5, 0.9, 1])
def test_predict_is_probability_against_the_threshold(fitted, generated, threshold):
    model = copy.deepcopy(fitted).set_params(threshold=threshold)
    result, proba = model.predict(generated.X_test), model.predict_proba(generated.X_test)
    assert isinstance(result, sp.csr_array)
    assert result.dtype.kind == "i"
    assert (result.data == 1).all()
    chosen = np.zeros(proba.shape)
    rows = np.repeat(np.arange(150), np.diff(proba.indptr))
    chosen[rows, proba.indices] = proba.data >= threshold
    np.testing.assert_array_equal(result.toarray(), chosen)
    assert (result.nnz == proba.nnz) == (threshold == 0)


def test_clear_data_are_predicted_exactly(blocks):
    X, Y = blocks()
    result = Bonsai(branching=4, C=10.0).fit(X, Y).predict(X)
    np.testing.assert_array_equal(result.toarray(), Y.toarray())


def test_probabilities_that_underflow_keep_their_order(blocks):
    X, Y = blocks(n_labels=4)
    model = Bonsai(C=1e6, normalize=False, **TIGHT).fit(X, Y)
    far = 60 * X[:1]  # margins of the wrong labels grow with the row
    decision, proba = model.decision_function(far), model.predict_proba(far)
    assert decision.nnz == proba.nnz == 4
    assert np.isfinite(decision.data).all()
    wrong = np.delete(decision.toarray()[0], Y.indices[0])
    assert wrong.max() < -150
    assert np.delete(proba.toarray()[0], Y.indices[0]).max() == 0


def test_score_is_precision_at_1(fitted, generated):
    X, Y = generated.X_test, generated.Y_test
    ids, _ = fitted.top_k(X, 1)
    hit = Y.toarray()[np.arange(150), ids[:, 0]]
    assert fitted.score(X, Y) == hit.mean()
    assert fitted.score(X, Y) == pytest.approx(metrics.evaluate(ids, Y, k=1)["P@1"] / 100)
    weights = np.linspace(0, 1, 150)
    assert fitted.score(X, Y, sample_weight=weights) == pytest.approx((hit * weights).sum() / weights.sum())
    assert fitted.score(X, Y.toarray()) == fitted.score(X, y=[row.indices for row in Y]) == hit.mean()


def test_batch_equals_row_by_row_and_several_threads_at_once(fitted, generated):
    X = generated.X_test
    ids, scores = fitted.top_k(X, 5)
    for i in range(0, 150, 10):
        np.testing.assert_array_equal(fitted.top_k(X[i : i + 1], 5)[0][0], ids[i])
        np.testing.assert_array_equal(fitted.top_k(X[i : i + 1], 5)[1][0], scores[i])
    with ThreadPoolExecutor(4) as pool:
        for other, _ in pool.map(lambda _: fitted.top_k(X, 5), range(8)):
            np.testing.assert_array_equal(other, ids)


# --- names ---

TREES = ["Ahorn", "Bäume 🌳", "", "línea\nnueva", "木", "a" * 300]


@pytest.fixture
def named(blocks):
    X, Y = blocks(n_labels=6)
    return X, [[TREES[i]] for i in Y.indices]


def test_names_end_to_end(named, tmp_path):
    X, Y = named
    model = Bonsai(branching=2).fit(X, Y)
    model.save(tmp_path / "names.bonsai")
    for one in (model, Bonsai.load(tmp_path / "names.bonsai"), pickle.loads(pickle.dumps(model))):
        assert one.classes_.tolist() == sorted(TREES)
        ranked = one.top_k_labels(X, k=2)
        assert [row[0][0] for row in ranked] == [name for (name,) in Y]
        ids, scores = one.top_k(X, k=2)
        assert [[score for _, score in row] for row in ranked] == scores.tolist()
        assert one.classes_[ids[0, 0]] == Y[0][0]
        assert one.score(X, Y) == 1.0
        tree = one.trees_[0]
        assert tree.nodes[0].names == sorted(TREES)
        assert set(json.loads(tree.to_json())["children"][0]["names"]) < set(TREES)
        assert one.label_counts_.tolist() == [10] * 6


def test_names_that_training_did_not_have_count_as_misses(named):
    X, Y = named
    model = Bonsai().fit(X, Y)
    assert model.score(X[:2], [["unknown"], Y[1]]) == 0.5
    assert model.score(X[:2], [["unknown", *Y[0]], Y[1]]) == 1.0
    assert model.score(X[:2], [[], []]) == 0


def test_ids_and_names_give_the_same_model(blocks):
    X, Y = blocks()
    model = Bonsai(branching=3).fit(X, Y)
    assert model.classes_.tolist() == list(range(12))
    assert model.top_k_labels(X[:1], 1) == [[(Y.indices[0], float(model.top_k(X[:1], 1)[1][0, 0]))]]
    ids = [[int(i)] for i in Y.indices]
    others = [ids, [[f"{i:02}"] for (i,) in ids], Y.toarray(), Y.astype(bool), sp.coo_matrix(Y.astype(float))]
    for other in others:
        assert same_model(model, Bonsai(branching=3).fit(X, other))


def test_data_frames(blocks):
    pandas = pytest.importorskip("pandas")
    X, Y = blocks(n_labels=6)
    names = [f"label {i}" for i in range(6)]
    X_frame = pandas.DataFrame(X.toarray(), columns=[f"word {i}" for i in range(18)])
    model = Bonsai().fit(X_frame, pandas.DataFrame(Y.toarray(), columns=names))
    assert model.classes_.tolist() == names
    assert model.feature_names_in_.tolist() == X_frame.columns.tolist()
    assert [row[0][0] for row in model.top_k_labels(X_frame, 1)] == [names[i] for i in Y.indices]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X_frame.rename(columns={"word 0": "other"}))


# --- weights of rows ---


def test_weight_0_removes_a_row(generated):
    X, Y = generated.X_train, generated.Y_train
    weights = np.arange(400) % 3
    some = Bonsai(branching=6).fit(X, Y, sample_weight=weights)
    chosen = weights > 0
    other = Bonsai(branching=6).fit(X[chosen], Y[chosen], sample_weight=weights[chosen])
    assert same_model(some, other)
    assert some.n_rows_fit_ == chosen.sum()
    np.testing.assert_array_equal(some.label_counts_, Y[chosen].sum(axis=0))
    dense = Bonsai(branching=6).fit(X.toarray(), Y.toarray(), weights.tolist())
    assert same_model(some, dense)


def test_weight_1_is_no_weight(generated):
    X, Y = generated.X_train, generated.Y_train
    plain = Bonsai(branching=6).fit(X, Y)
    assert same_model(plain, Bonsai(branching=6).fit(X, Y, sample_weight=np.ones(400)))
    assert same_model(plain, Bonsai(branching=6).fit(X, Y, sample_weight=1))
    assert not same_model(plain, Bonsai(branching=6).fit(X, Y, sample_weight=np.linspace(0.5, 2, 400)))


@pytest.mark.parametrize("solver", ["dual", "newton"])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_weight_2_is_a_row_twice(generated, loss, solver):
    X, Y, X_test = generated.X_train[:200], generated.Y_train[:200], generated.X_test
    twice = np.arange(0, 200, 3)
    weights = np.ones(200)
    weights[twice] = 2
    model = Bonsai(n_trees=2, branching=6, beam=None, loss=loss, solver=solver, **TIGHT)
    weighted = clone(model).fit(X, Y, weights)
    repeated = clone(model).fit(sp.vstack([X, X[twice]]), sp.vstack([Y, Y[twice]]))
    plain = clone(model).fit(X, Y)
    assert weighted.trees_ == repeated.trees_
    a, b, c = (m.predict_proba(X_test).toarray() for m in (weighted, repeated, plain))
    np.testing.assert_allclose(a, b, atol=2e-3)
    assert abs(a - c).max() > 0.05


@pytest.mark.parametrize("representation", ["input", "output", "joint"])
def test_scaled_weights_are_a_scaled_C(generated, representation):
    X, Y = generated.X_train, generated.Y_train
    weights = np.random.default_rng(0).uniform(0.5, 2, 400)
    model = Bonsai(representation, branching=6, C=2.0)
    base = clone(model).fit(X, Y, weights)
    assert same_model(base, clone(model).set_params(C=0.5).fit(X, Y, 4 * weights))
    assert not same_model(base, clone(model).fit(X, Y, 4 * weights))


# --- every container, nothing changed in place ---


def whole_numbers():
    """Rows of 0, 1, 2 and 3, which every type holds, a quarter filled; labels that follow from them."""
    rng = np.random.default_rng(3)
    A = rng.integers(1, 4, size=(80, 20)) * (rng.random((80, 20)) < 0.25)
    return A, (A[:, :6] > 1).astype(int)


def in_two_parts(A):
    """COO entries: each value v as 1 and v − 1, in random order."""
    rows, columns = np.nonzero(A)
    order = np.random.default_rng(0).permutation(2 * len(rows))
    values = np.concatenate([np.ones(len(rows)), A[rows, columns] - 1])[order]
    return values, (np.tile(rows, 2)[order], np.tile(columns, 2)[order])


def unsorted(A):
    X = sp.csr_array(A)
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[a:b], X.data[a:b] = X.indices[a:b][::-1].copy(), X.data[a:b][::-1].copy()
    X.has_sorted_indices = False
    return X


def duplicates(A):
    values, (rows, columns) = in_two_parts(A)
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(A)))])
    return sp.csr_array((values[order], columns[order], indptr), shape=A.shape)


def wide_indices(A):
    X = sp.csr_array(A)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def half_floats(A):
    X = sp.csr_array(A)
    return sp.csr_array((X.data.astype(np.float16), X.indices, X.indptr), shape=X.shape)


CONTAINERS = {
    "csr": lambda A: sp.csr_array(A.astype(np.float32)),
    "csr_matrix": lambda A: sp.csr_matrix(A.astype(np.float64)),
    "csc": lambda A: sp.csc_array(A.astype(np.float64)),
    "coo": lambda A: sp.coo_array(A.astype(np.float64)),
    "coo duplicates": lambda A: sp.coo_matrix(in_two_parts(A), shape=A.shape),
    "csr duplicates": duplicates,
    "csr unsorted": unsorted,
    "csr 64-bit indices": wide_indices,
    "lil": lambda A: sp.lil_array(A.astype(np.float64)),
    "dok": lambda A: sp.dok_array(A.astype(np.float64)),
    "sparse int8": lambda A: sp.csr_array(A.astype(np.int8)),
    "sparse uint64": lambda A: sp.csc_array(A.astype(np.uint64)),
    "sparse float16": half_floats,
    "sparse longdouble": lambda A: sp.csr_array(A.astype(np.longdouble)),
    "dense float32": lambda A: A.astype(np.float32),
    "dense float64": lambda A: A.astype(np.float64),
    "dense float16": lambda A: A.astype(np.float16),
    "dense int64": lambda A: A,
    "dense uint8": lambda A: A.astype(np.uint8),
    "dense objects": lambda A: A.astype(object),
    "fortran": lambda A: np.asfortranarray(A, dtype=np.float32),
    "strided": lambda A: np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3],
    "lists": lambda A: A.tolist(),
}


def parts(X):
    if isinstance(X, np.ndarray):
        return [X]
    names = [name for name in ("data", "indices", "indptr", "row", "col") if hasattr(X, name)]
    return [part for part in (getattr(X, name) for name in names) if isinstance(part, np.ndarray)]


def use(model, X, Y, weights):
    model.memory_estimate(X, Y)
    model.fit(X, Y, weights)
    model.score(X, Y, weights)
    return model.top_k(X, 4)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_the_same_model_and_stays_as_it_is(name, frozen):
    A, Y = whole_numbers()
    reference = Bonsai(branching=3)
    ids, scores = use(reference, sp.csr_array(A.astype(np.float32)), sp.csr_array(Y), np.ones(80))
    X = CONTAINERS[name](A)
    labels, weights = sp.csr_array(Y), np.linspace(1, 1, 80)
    arrays = [*parts(X), *parts(labels), weights]
    if frozen:
        for array in arrays:
            array.flags.writeable = False
    before = [(array.dtype, array.shape, array.tobytes()) for array in arrays]
    plain = copy.deepcopy(X) if isinstance(X, list) else None
    model = Bonsai(branching=3)
    found = use(model, X, labels, weights)
    assert [(array.dtype, array.shape, array.tobytes()) for array in arrays] == before
    assert all(now is then for now, then in zip([*parts(X), *parts(labels)], arrays[:-1], strict=True))
    assert plain is None or plain == X
    assert same_model(model, reference)
    np.testing.assert_array_equal(found[0], ids)
    np.testing.assert_allclose(found[1], scores, rtol=1e-5)


@pytest.mark.parametrize("make", [sp.csr_array, sp.coo_matrix, np.array, np.asfortranarray])
def test_truth_values_are_numbers(make):
    A, Y = whole_numbers()
    reference = Bonsai(branching=3).fit(sp.csr_array((A > 0).astype(np.float32)), Y)
    assert same_model(Bonsai(branching=3).fit(make(A > 0), Y), reference)


@pytest.mark.parametrize("frozen", [False, True])
def test_labels_stay_as_they_are(blocks, frozen):
    X, Y = blocks()
    Y = unsorted(np.hstack([Y.toarray(), Y.toarray()]))
    Y.data[3] = 0  # stored
    for array in parts(Y):
        array.flags.writeable = not frozen
    before = [array.tobytes() for array in parts(Y)]
    model = Bonsai(branching=4).fit(X, Y)
    model.score(X, Y)
    assert [array.tobytes() for array in parts(Y)] == before


# --- dense rows ---


@pytest.fixture
def embeddings():
    """Directions in 16 dimensions, one for each of 10 labels, with noise that leaves them well apart."""
    rng = np.random.default_rng(5)
    centres = np.linalg.qr(rng.normal(size=(16, 16)))[0][:10]
    label = np.arange(100) % 10
    return (centres[label] + 0.05 * rng.normal(size=(100, 16))).astype(np.float32), np.eye(10, dtype=int)[
        label
    ]


def test_dense_rows(embeddings):
    X, Y = embeddings
    model = Bonsai(branching=3, C=10.0).fit(X, Y)
    assert model.score(X, Y) == 1.0
    for other in (sp.csr_array(X), X.astype(np.float64), np.asfortranarray(X)):
        assert same_model(model, Bonsai(branching=3, C=10.0).fit(other, Y))
    ids, scores = model.top_k(X, 3)
    sparse_ids, sparse_scores = model.top_k(sp.csr_array(X), 3)
    np.testing.assert_array_equal(ids, sparse_ids)
    np.testing.assert_allclose(scores, sparse_scores, rtol=1e-5)


def test_dense_and_sparse_rows_rank_alike(fitted, generated):
    ids, scores = fitted.top_k(generated.X_test, 5)
    dense_ids, dense_scores = fitted.top_k(generated.X_test.toarray(), 5)
    np.testing.assert_array_equal(ids, dense_ids)
    np.testing.assert_allclose(scores, dense_scores, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
@pytest.mark.parametrize("make", [sp.csr_array, np.asarray])
def test_normalised_rows_have_no_scale(blocks, embeddings, make, scale):
    for X, Y in (blocks(), embeddings):
        X = X.toarray() if sp.issparse(X) else X.astype(np.float64)
        model, scaled = Bonsai(branching=3).fit(make(X), Y), Bonsai(branching=3).fit(make(X * scale), Y)
        np.testing.assert_allclose(scaled.top_k(make(X), 3)[1], model.top_k(make(X), 3)[1], atol=2e-3)
        np.testing.assert_array_equal(scaled.top_k(make(X * scale), 1)[0], model.top_k(make(X), 1)[0])


def test_without_normalisation_the_scale_counts(blocks):
    X, Y = blocks()
    model = Bonsai(normalize=False).fit(X, Y)
    assert model.score(X, Y) == 1.0
    assert model.top_k(X * 0.01, 1)[1].max() < model.top_k(X, 1)[1].min()
    unit = X / np.sqrt((X * X).sum(axis=1))[:, None]
    np.testing.assert_allclose(
        Bonsai(normalize=False).fit(unit, Y).top_k(unit, 3)[1], Bonsai().fit(X, Y).top_k(X, 3)[1], atol=2e-3
    )


# --- the trees ---


@pytest.mark.parametrize(
    "convert", [np.asarray, sp.csr_array, lambda V: V.astype(np.float16), lambda V: (5 * V).astype(int)]
)
def test_own_label_vectors_decide_the_clusters(blocks, convert):
    X, Y = blocks(n_labels=8)
    vectors = np.zeros((8, 10))
    vectors[0::2, 0] = 1  # even labels belong together, and odd ones
    vectors[1::2, 1] = 1
    model = Bonsai(convert(vectors), branching=2, max_leaf=4, n_trees=5, kmeans_init="k-means++").fit(X, Y)
    for tree in model.trees_:
        assert sorted(node.labels.tolist() for node in tree.nodes[1:]) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert model.score(X, Y) == 1.0


def test_representations_differ(generated):
    models = [
        Bonsai(name, branching=6).fit(generated.X_train, generated.Y_train)
        for name in ("input", "output", "joint")
    ]
    assert models[0].trees_ != models[1].trees_
    assert models[1].trees_ != models[2].trees_
    assert all(model.score(generated.X_test, generated.Y_test) > 0.5 for model in models)


def test_own_trees(blocks, tmp_path):
    X, Y = blocks(n_labels=6)
    nested = [[5, 0], [[1], [2, 3, 4]]]
    tree = LabelTree.from_nested(nested)
    tree.to_json(tmp_path / "tree.json")
    model = Bonsai(tree=nested).fit(X, Y)
    assert model.trees_ == [tree]
    assert model.score(X, Y) == 1.0
    for form in (tree, tree.to_dict(), tree.to_json(), tmp_path / "tree.json", [tree]):
        assert same_model(Bonsai(tree=form).fit(X, Y), model)
    two = Bonsai(tree=[tree, LabelTree.from_nested([[0, 1, 2], [3, 4, 5]])]).fit(X, Y)
    assert [len(t.nodes) for t in two.trees_] == [5, 3]
    assert two.score(X, Y) == 1.0
    # The trees that a model has grown, given to another: the same model again.
    grown = Bonsai(branching=2).fit(X, Y)
    assert same_model(Bonsai(tree=grown.trees_).fit(X, Y), grown)


def test_own_trees_by_name(named):
    X, Y = named
    nested = [
        ["木", "Ahorn", "a name without rows"],
        ["", "Bäume 🌳"],
        ["línea\nnueva", "a" * 300],
        ["another"],
    ]
    model = Bonsai(tree=nested).fit(X, Y)
    (tree,) = model.trees_
    assert [node.names for node in tree.nodes[1:]] == [
        ["Ahorn", "木"],
        ["", "Bäume 🌳"],
        ["a" * 300, "línea\nnueva"],
    ]
    assert model.score(X, Y) == 1.0
    # A tree of one model in another whose names have other ids.
    few = [i for i, (name,) in enumerate(Y) if name != ""]
    other = Bonsai(tree=model.trees_[0]).fit(X[few], [Y[i] for i in few])
    assert [node.names for node in other.trees_[0].nodes[1:]] == [
        ["Ahorn", "木"],
        ["Bäume 🌳"],
        ["a" * 300, "línea\nnueva"],
    ]
    assert other.score(X[few], [Y[i] for i in few]) == 1.0


def test_labels_of_own_trees_without_rows_are_left_out(blocks):
    X, Y = blocks(n_labels=6)
    wide = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(60, 9))
    model = Bonsai(tree=[[0, 1, 6], [2, 3], [7, 8], [4, 5]], beam=None).fit(X, wide)
    assert [node.labels.tolist() for node in model.trees_[0].nodes[1:]] == [[0, 1], [2, 3], [4, 5]]
    assert model.top_k(X, 9)[0].max() == 5


@pytest.mark.parametrize("seed", [0, 1])
def test_trees_hold_each_label_with_rows_once(generated, seed):
    model = Bonsai(branching=4, max_leaf=3, random_state=seed).fit(generated.X_train, generated.Y_train)
    present = np.flatnonzero(np.bincount(generated.Y_train.indices, minlength=60))
    assert len(present) < 60
    assert len(model.trees_) == 3
    assert model.trees_[0] != model.trees_[1]
    for tree in model.trees_:
        np.testing.assert_array_equal(tree.labels(), present)
        assert max(len(node.children) for node in tree.nodes) <= 4


@pytest.mark.parametrize("max_depth", [1, 2, 3])
def test_depth(generated, max_depth):
    model = Bonsai(branching=3, max_leaf=2, max_depth=max_depth).fit(generated.X_train, generated.Y_train)
    assert {tree.depth for tree in model.trees_} == {max_depth}
    assert model.score(generated.X_test, generated.Y_test) > 0.4


# --- presets ---


@pytest.fixture(scope="module")
def many_labels():
    """250 labels in 10 groups: two features for a label, five for its group; two labels of a group on each row."""
    label = np.arange(1000) % 250
    Y = np.zeros((1000, 250), int)
    X = np.zeros((1000, 550))
    for i, l in enumerate(label):
        partner = l // 25 * 25 + (l + 1 + i // 250) % 25
        Y[i, [l, partner]] = 1
        X[i, [2 * l, 2 * l + 1, 2 * partner, 2 * partner + 1]] = 1
        X[i, 500 + l // 25 * 5 : 505 + l // 25 * 5] = 0.5
    return sp.csr_array(X), sp.csr_array(Y)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_learn(many_labels, name):
    X, Y = many_labels
    model = Bonsai.preset(name).fit(X, Y)
    assert model.score(X, Y) > 0.99
    assert len(model.trees_) == (1 if name == "dismec" else 3)
    for tree in model.trees_:
        np.testing.assert_array_equal(tree.labels(), np.arange(250))
        if name.startswith("bonsai"):
            assert 2 <= tree.depth <= 3
            assert 10 <= len(tree.nodes[0].children) <= 100
        elif name.startswith("parabel"):
            assert {len(node.children) for node in tree.nodes if not node.is_leaf} == {2}
            assert sorted(leaf_sizes(tree)) == [62, 62, 63, 63]
        elif name == "balanced":
            assert tree.depth == 2
            assert sorted(leaf_sizes(tree)) == [2] * 50 + [3] * 50
        else:
            assert (tree.n_nodes, tree.depth) == (1, 1)


def test_presets_are_the_papers_settings():
    paper = {
        "n_trees": 3,
        "branching": 100,
        "kmeans_tol": 1e-4,
        "C": 1.0,
        "loss": "squared_hinge",
        "prune": 0.1,
        "beam": 10,
    }
    expected = {
        "bonsai-i": {"representation": "input", "max_depth": 3},
        "bonsai-o": {"representation": "output", "max_depth": 3},
        "bonsai-io": {"representation": "joint", "max_depth": 3},
        "parabel": {"representation": "input", "branching": 2, "balanced": True, "max_leaf": 100},
        "parabel-o": {"representation": "output", "branching": 2, "balanced": True, "max_leaf": 100},
        "balanced": {"representation": "input", "balanced": True},
        "dismec": {"n_trees": 1, "max_depth": 1, "prune": 0.01, "beam": None},
    }
    assert PRESETS.keys() == expected.keys()
    for name, settings in expected.items():
        params = Bonsai.preset(name).get_params()
        assert {key: params[key] for key in paper | settings} == paper | settings
    assert Bonsai.preset("bonsai-i", max_depth=2, C=3.0).get_params()["max_depth"] == 2


@pytest.mark.parametrize("branching", [2, 3, 7, 20])
def test_balanced_children_differ_by_one_at_most(many_labels, branching):
    model = Bonsai(branching=branching, balanced=True, max_leaf=10, n_trees=1).fit(*many_labels)
    for node in model.trees_[0].nodes:
        sizes = [child.size for child in node.children]
        assert node.is_leaf == (node.size <= 10)
        if sizes:
            assert len(sizes) == branching
            assert max(sizes) - min(sizes) <= 1


# --- corners ---


def test_fewer_labels_than_branching(blocks):
    X, Y = blocks(n_labels=12)
    model = Bonsai(branching=100).fit(X, Y)
    assert [tree.n_nodes for tree in model.trees_] == [1, 1, 1]
    assert model.score(X, Y) == 1.0
    split = Bonsai(branching=100, max_leaf=3).fit(X, Y)  # more clusters asked for than there are labels
    assert all(1 < len(tree.nodes[0].children) <= 12 for tree in split.trees_)
    assert split.score(X, Y) == 1.0


def test_a_single_label(blocks):
    X, _ = blocks()
    for Y in (np.ones((60, 1), int), [[0]] * 60, [["only"]] * 60):
        model = Bonsai().fit(X, Y)
        ids, scores = model.top_k(X, 1)
        assert (ids == 0).all()
        assert scores.min() > 0.5
        assert model.score(X, Y) == 1.0
    half = np.repeat([[1], [0]], 30, axis=0)
    apart = sp.vstack(
        [X[:30] * 1.0, sp.csr_array(np.eye(30, X.shape[1]))]
    )  # the first features of some labels
    assert np.isfinite(Bonsai().fit(apart, half).decision_function(apart).data).all()


def test_a_label_on_every_row(blocks):
    X, Y = blocks()
    Y = sp.hstack([Y, np.ones((60, 1), int)]).tocsr()
    model = Bonsai(branching=4, C=10.0, beam=None).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X).toarray(), Y.toarray())
    assert model.score(X, Y) == 1.0


def test_rows_without_labels(blocks):
    X, Y = blocks()
    Y = Y.copy()
    Y.data[Y.indices == 11] = 0
    model = Bonsai(branching=4, C=10.0).fit(X, Y)
    result = model.predict(X)
    assert (np.diff(result.indptr) == (Y.indices < 11)).all()
    assert model.score(X, Y) == 55 / 60  # rows without labels stay in the mean
    assert model.label_counts_.tolist() == [5] * 11 + [0]


@pytest.mark.parametrize("representation", ["input", "output", "joint", np.ones((60, 2))])
def test_labels_without_rows_are_never_predicted(generated, representation):
    absent = np.flatnonzero(np.bincount(generated.Y_train.indices, minlength=60) == 0)
    assert len(absent)
    model = Bonsai(representation, branching=6, beam=None).fit(generated.X_train, generated.Y_train)
    ids, _ = model.top_k(generated.X_test, 60)
    assert not np.isin(absent, ids).any()
    assert ((ids >= 0).sum(axis=1) == 60 - len(absent)).all()


@pytest.mark.parametrize("representation", ["input", "output", "joint"])
def test_identical_label_vectors_end_in_one_leaf(blocks, representation):
    X, Y = blocks(n_labels=2)
    together = sp.csr_array(np.repeat(np.ones((60, 1), int), 40, axis=1))  # 40 labels, all on each row
    model = Bonsai(representation, branching=2, max_leaf=1).fit(X, together)
    if representation == "input":
        assert [tree.n_nodes for tree in model.trees_] == [1, 1, 1]
    assert model.score(X, together) == 1.0
    # Two kinds of labels: one split, then leaves of 20.
    split = sp.csr_array(np.repeat(Y.toarray(), 20, axis=1))
    model = Bonsai(branching=2, max_leaf=1, kmeans_init="k-means++").fit(X, split)
    assert [sorted(leaf_sizes(tree)) for tree in model.trees_] == [[20, 20]] * 3
    assert model.score(X, split) == 1.0


def test_identical_label_vectors_in_balanced_trees(blocks):
    X, _ = blocks()
    together = sp.csr_array(np.ones((60, 40), int))
    model = Bonsai(branching=3, balanced=True, max_leaf=5, n_trees=1).fit(X, together)
    assert set(leaf_sizes(model.trees_[0])) == {4, 5}
    assert model.score(X, together) == 1.0


def test_labels_that_occur_with_nothing_are_spread(blocks):
    X, Y = blocks(n_labels=20)  # one label a row: all label vectors of the output space are zero
    model = Bonsai("output", branching=4, max_leaf=5).fit(X, Y)
    assert [leaf_sizes(tree) for tree in model.trees_] == [[5, 5, 5, 5]] * 3
    assert model.score(X, Y) == 1.0
    # 8 labels in pairs, 12 alone: no cluster gets all that are alone.
    pairs = Y.toarray()
    pairs[:, [1, 3, 5, 7]] |= pairs[:, [0, 2, 4, 6]]
    pairs[:, [0, 2, 4, 6]] |= pairs[:, [1, 3, 5, 7]]
    model = Bonsai("output", branching=4, max_leaf=5).fit(X, pairs)
    assert max(max(child.size for child in tree.nodes[0].children) for tree in model.trees_) <= 10


def test_rows_that_are_all_alike():
    X = np.tile([[1.0, 2, 0, 0, 0, 0]], (30, 1))
    Y = np.eye(5, dtype=int)[np.arange(30) % 5]
    model = Bonsai(branching=2, max_leaf=1).fit(X, Y)
    ids, scores = model.top_k(X, 5)
    assert (ids == ids[0]).all()
    assert sorted(ids[0]) == [0, 1, 2, 3, 4]
    assert np.isfinite(scores).all()


def test_a_single_row_and_a_single_feature():
    model = Bonsai().fit([[3.0]], [[0, 2]])
    assert sorted(model.top_k([[1.0]], 3)[0][0].tolist()) == [-1, 0, 2]


def test_fitting_again_forgets(blocks, generated):
    X, Y = blocks()
    model = Bonsai(branching=4).fit(generated.X_train, generated.Y_train).fit(X, Y)
    assert same_model(model, Bonsai(branching=4).fit(X, Y))
    assert (model.n_features_in_, len(model.classes_), model.n_rows_fit_) == (36, 12, 60)


# --- convergence ---


@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_passes(generated, solver):
    X, Y = generated.X_train, generated.Y_train
    loose = Bonsai(solver=solver).fit(X, Y).n_iter_
    tight = Bonsai(solver=solver, tol=1e-3, max_iter=500).fit(X, Y).n_iter_
    assert 1 <= loose < tight < 500
    with pytest.warns(
        ConvergenceWarning, match=r"\d+ of 180 classifiers did not converge within max_iter=1;"
    ) as caught:
        model = Bonsai(solver=solver, tol=1e-9, max_iter=1).fit(
            X, Y[:, np.flatnonzero(Y.sum(axis=0))][:, :60]
        )
    assert model.n_iter_ == 1
    assert caught[0].filename == __file__


def test_no_warning_where_nearly_all_converge(blocks):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Bonsai(branching=4).fit(*blocks())


# --- copies and files ---


def test_parameters_and_clone():
    vectors = np.eye(3)
    model = Bonsai(vectors, C=2.0, tree=[[0, 1], [2]], bias=-1.0)
    assert model.get_params()["C"] == 2.0
    assert model.representation is vectors
    other = clone(model)
    assert other.get_params().keys() == model.get_params().keys()
    assert other.tree == model.tree
    assert clone(Bonsai().set_params(beam=None, n_trees=1)).get_params()["beam"] is None
    assert repr(Bonsai(n_trees=5)) == "Bonsai(n_trees=5)"
    assert Bonsai().set_params(C=3.0).C == 3.0


def test_a_clone_is_not_fitted(fitted):
    assert not hasattr(clone(fitted), "trees_")
    assert hasattr(fitted, "trees_")


def through_joblib(model, folder, **options):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", **options)


COPIES = {
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "joblib": through_joblib,
    "joblib mapped": lambda model, folder: through_joblib(model, folder, mmap_mode="r"),
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "copy": lambda model, folder: copy.copy(model),
    "file": lambda model, folder: (model.save(folder / "m"), Bonsai.load(folder / "m"))[1],
    "file, then pickle": lambda model, folder: (
        model.save(folder / "m"),
        pickle.loads(pickle.dumps(Bonsai.load(folder / "m"))),
    )[1],
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_predict_the_same(fitted, generated, tmp_path, way):
    other = COPIES[way](fitted, tmp_path)
    for mine, theirs in zip(fitted.top_k(generated.X_test, 9), other.top_k(generated.X_test, 9), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert other.trees_ == fitted.trees_
    for name in ("n_iter_", "n_features_in_", "n_rows_fit_", "seed_", "isa_"):
        assert getattr(other, name) == getattr(fitted, name)
    np.testing.assert_array_equal(other.label_counts_, fitted.label_counts_)
    np.testing.assert_array_equal(other.classes_, fitted.classes_)
    saved = fitted.get_params() | ({"n_jobs": None} if "file" in way else {})
    assert other.get_params() == saved


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_copies_of_models_that_are_not_fitted(way, tmp_path):
    other = COPIES[way](Bonsai(C=3.0), tmp_path)
    assert other.get_params() == Bonsai(C=3.0).get_params()
    assert not hasattr(other, "trees_")


def test_a_copy_outlives_the_original_and_its_file(blocks, tmp_path):
    X, Y = blocks()
    Bonsai(branching=4).fit(X, Y).save(tmp_path / "m")
    model = Bonsai.load(tmp_path / "m")
    (tmp_path / "m").unlink()
    assert copy.deepcopy(model).score(X, Y) == model.score(X, Y) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"representation": np.eye(12), "bias": -0.5},
        {"tree": [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]], "loss": "logistic"},
        {"C": np.float32(0.3), "n_trees": np.int64(2), "normalize": np.True_, "beam": None, "max_depth": 2},
    ],
)
def test_save_load_save_gives_the_same_bytes(blocks, tmp_path, options):
    X, Y = blocks()
    model = Bonsai(branching=4, **options).fit(X, Y)
    model.save(tmp_path / "first")
    loaded = Bonsai.load(str(tmp_path / "first"))
    loaded.save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert same_model(model, loaded)
    np.testing.assert_array_equal(model.top_k(X, 3)[1], loaded.top_k(X, 3)[1])
    if "representation" not in options:  # the matrix is not in the file; everything else is
        loaded.fit(X, Y).save(tmp_path / "third")
        assert (tmp_path / "first").read_bytes() == (tmp_path / "third").read_bytes()
    else:
        with pytest.raises(ValueError, match="representation is 'custom', but must be one of"):
            loaded.fit(X, Y)


def test_saving_over_a_loaded_model(blocks, tmp_path):
    X, Y = blocks()
    Bonsai(branching=4).fit(X, Y).save(tmp_path / "m")
    model = Bonsai.load(tmp_path / "m")
    model.save(tmp_path / "m")
    assert model.score(X, Y) == Bonsai.load(tmp_path / "m").score(X, Y) == 1.0
    assert os.listdir(tmp_path) == ["m"]


# --- seeds, threads, processes ---


def test_random_states(blocks):
    X, Y = blocks(n_labels=30)
    fit = lambda seed: Bonsai(branching=4, n_trees=1, random_state=seed).fit(X, Y)
    zero = fit(0)
    assert zero.seed_ == 0
    assert same_model(zero, fit(np.int64(0)))
    assert same_model(zero, Bonsai(branching=4, n_trees=1).fit(X, Y))
    assert not same_model(zero, fit(1))
    assert fit(2**64 - 1).score(X, Y) == 1.0
    for make in (np.random.RandomState, np.random.default_rng):
        assert same_model(fit(make(5)), fit(make(5)))
        rng = make(5)
        assert not same_model(fit(rng), fit(rng))  # it moves on
    first, second = fit(None), fit(None)
    assert first.seed_ != second.seed_
    assert same_model(first, fit(first.seed_))


def test_models_do_not_depend_on_threads_or_verbosity(generated, tmp_path, capsys):
    files = []
    for n_jobs, verbose in [(1, 0), (2, 1), (7, 0), (-1, 0), (None, 0), (-100, 0)]:
        model = Bonsai(branching=4, max_leaf=5, n_jobs=n_jobs, verbose=verbose)
        model.fit(generated.X_train, generated.Y_train).save(tmp_path / "m")
        files.append((tmp_path / "m").read_bytes())
    assert len(set(files)) == 1


def test_models_do_not_depend_on_the_process(generated, tmp_path):
    model = Bonsai(branching=4).fit(generated.X_train, generated.Y_train)
    model.save(tmp_path / "here")
    sp.save_npz(tmp_path / "X.npz", generated.X_train)
    sp.save_npz(tmp_path / "Y.npz", generated.Y_train)
    code = (
        "import scipy.sparse as sp; from bonsai_xmc import Bonsai; "
        "Bonsai(branching=4).fit(sp.load_npz('X.npz'), sp.load_npz('Y.npz')).save('there')"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "7"},
        check=True,
        timeout=60,
    )
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


def fit_and_send(connection, X, Y):
    connection.send(Bonsai(branching=4, n_jobs=2).fit(X, Y).top_k(X, 3)[0])


def test_after_fork(generated):
    X, Y = generated.X_train, generated.Y_train
    ids, _ = Bonsai(branching=4, n_jobs=2).fit(X, Y).top_k(X, 3)  # threads have run before the fork
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=fit_and_send, args=(sender, X, Y))
    process.start()
    assert receiver.poll(30)
    np.testing.assert_array_equal(receiver.recv(), ids)
    process.join(30)
    assert process.exitcode == 0


# --- memory and progress ---


@pytest.mark.parametrize("options", [{}, {"representation": "output"}, {"max_depth": 1}, {"n_trees": 1}])
def test_the_estimate_of_the_model_size(real_size, tmp_path, options):
    X, Y = real_size
    model = Bonsai(**options)
    estimate = model.memory_estimate(X, Y)
    model.fit(X, Y).save(tmp_path / "m")
    actual = (tmp_path / "m").stat().st_size
    assert actual / 3 < estimate["model_bytes"] < actual * 3
    assert estimate["training_bytes"] > estimate["model_bytes"] + X.data.nbytes


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress(blocks, monkeypatch, stream):
    X, Y = blocks()
    monkeypatch.setattr(sys, "stderr", err := stream())
    monkeypatch.setattr(sys, "stdout", out := stream())
    model = Bonsai(branching=4).fit(X, Y)
    model.top_k(X, 1)
    assert err.getvalue() == ""
    model.set_params(verbose=1).fit(X, Y)
    assert out.getvalue() == ""
    assert ("\x1b[K" in err.getvalue()) == ("\r" in err.getvalue()) == (stream is Terminal)
    lines = [line.rpartition("\x1b[K")[2].split("  ")[0] for line in err.getvalue().splitlines()]
    assert lines == ["label vectors 0:00", "trees", "classifiers"]
    assert model.timings_.keys() == {"label vectors", "trees", "classifiers"}
