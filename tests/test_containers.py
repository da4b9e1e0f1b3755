"""Rows in any container give the same model, and nothing of the caller's is changed in place."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai
from helpers import same_model

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
    reference = Bonsai(classifiers="leaf", branching_factor=3)
    ids, scores = use(reference, sp.csr_array(A.astype(np.float32)), sp.csr_array(Y), np.ones(80))
    X = CONTAINERS[name](A)
    labels, weights = sp.csr_array(Y), np.linspace(1, 1, 80)
    arrays = [*parts(X), *parts(labels), weights]
    if frozen:
        for array in arrays:
            array.flags.writeable = False
    before = [(array.dtype, array.shape, array.tobytes()) for array in arrays]
    plain = copy.deepcopy(X) if isinstance(X, list) else None
    model = Bonsai(classifiers="leaf", branching_factor=3)
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
    reference = Bonsai(classifiers="leaf", branching_factor=3).fit(
        sp.csr_array((A > 0).astype(np.float32)), Y
    )
    assert same_model(Bonsai(classifiers="leaf", branching_factor=3).fit(make(A > 0), Y), reference)


@pytest.mark.parametrize("frozen", [False, True])
def test_labels_stay_as_they_are(blocks, frozen):
    X, Y = blocks()
    Y = unsorted(np.hstack([Y.toarray(), Y.toarray()]))
    Y.data[3] = 0  # stored
    for array in parts(Y):
        array.flags.writeable = not frozen
    before = [array.tobytes() for array in parts(Y)]
    model = Bonsai(classifiers="leaf", branching_factor=4).fit(X, Y)
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
    model = Bonsai(classifiers="leaf", branching_factor=3, C=10.0, max_iter=200).fit(X, Y)
    assert model.score(X, Y) == 1.0
    for other in (sp.csr_array(X), X.astype(np.float64), np.asfortranarray(X)):
        assert same_model(
            model, Bonsai(classifiers="leaf", branching_factor=3, C=10.0, max_iter=200).fit(other, Y)
        )
    ids, scores = model.top_k(X, 3)
    sparse_ids, sparse_scores = model.top_k(sp.csr_array(X), 3)
    np.testing.assert_array_equal(ids, sparse_ids)
    np.testing.assert_allclose(scores, sparse_scores, rtol=1e-5)


def test_dense_and_sparse_rows_rank_alike(fitted, generated):
    ids, scores = fitted.top_k(generated.X_test, 5)
    dense_ids, dense_scores = fitted.top_k(generated.X_test.toarray(), 5)
    np.testing.assert_array_equal(ids, dense_ids)
    np.testing.assert_allclose(scores, dense_scores, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1e-6, 1e6, 1e30])
@pytest.mark.parametrize("make", [sp.csr_array, np.asarray])
def test_normalised_rows_have_no_scale(blocks, embeddings, make, scale):
    for X, Y in (blocks(), embeddings):
        X = X.toarray() if sp.issparse(X) else X.astype(np.float64)
        model, scaled = (
            Bonsai(classifiers="leaf", branching_factor=3).fit(make(X), Y),
            Bonsai(classifiers="leaf", branching_factor=3).fit(make(X * scale), Y),
        )
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
