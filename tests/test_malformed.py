"""Sparse matrices whose arrays lie: an error that says so, before scipy or the core believes them.

Each of them once ended the process, corrupted its memory, or was taken for something else.
"""

import copy
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, metrics
from bonsai_xmc._data.labels import indicator
from bonsai_xmc._data.rows import proven_csr
from helpers import random_csr

N_COLUMNS = 40


def good(n_columns=N_COLUMNS):
    return sp.csr_array((np.ones(2, np.float32), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, n_columns))


def lying(kind="csr", **arrays):
    """A matrix whose arrays were changed after it was made."""
    X = good().asformat(kind)
    for name, values in arrays.items():
        setattr(X, name, np.asarray(values))
    return X


def with_coordinates(row, col):
    X = good().tocoo()
    X.row, X.col = np.asarray(row), np.asarray(col)
    return X


LIES = {
    "pointers beyond the entries": lambda: lying(indptr=[0, 10**7, 2]),
    "the last pointer beyond the entries": lambda: lying(indptr=[0, 1, 10**7]),
    "descending pointers": lambda: lying(indptr=[0, 2, 1]),
    "negative pointers": lambda: lying(indptr=[0, -5, 2]),
    "a first pointer that is not 0": lambda: lying(indptr=[1, 1, 2]),
    "too few pointers": lambda: lying(indptr=[0, 2]),
    "pointers that are no integers": lambda: lying(indptr=[0.0, 1.0, 2.0]),
    "an index beyond the columns": lambda: lying(indices=[0, N_COLUMNS]),
    "an index beyond 32 bits": lambda: lying(indices=np.array([0, 2**32 + 5])),
    "a negative index": lambda: lying(indices=[0, -1]),
    "fewer values than indices": lambda: lying(data=np.ones(1, np.float32)),
    "fewer indices than values": lambda: lying(indices=[0]),
    "csc, pointers": lambda: lying("csc", indptr=[0, *[10**7] * (N_COLUMNS - 1), 2]),
    "csc, an index beyond the rows": lambda: lying("csc", indices=[0, 7]),
    "bsr, an index": lambda: lying("bsr", indices=[0, 10**6]),
    "coo, a column": lambda: with_coordinates([0, 1], [0, 10**7]),
    "coo, a row": lambda: with_coordinates([0, 10**7], [0, 1]),
    "coo, a negative column": lambda: with_coordinates([0, 1], [0, -3]),
}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return Bonsai(threshold=0.5).fit(
        random_csr((60, N_COLUMNS), density=0.1, rng=rng), [[i % 3] for i in range(60)]
    )


@pytest.mark.parametrize("lie", LIES)
def test_x_of_predictions(model, lie):
    for method in (
        model.top_k,
        model.predict,
        model.predict_proba,
        model.decision_function,
        model.top_k_labels,
    ):
        with pytest.raises(ValueError, match="X is not a valid sparse matrix: "):
            method(LIES[lie]())


@pytest.mark.parametrize("lie", LIES)
def test_x_of_fit(lie):
    for method in (Bonsai().fit, Bonsai().memory_estimate):
        with pytest.raises(ValueError, match="X is not a valid sparse matrix: "):
            method(LIES[lie](), [[0], [1]])


@pytest.mark.parametrize("lie", LIES)
def test_y(model, lie):
    X = good()
    for method in (Bonsai().fit, model.score):
        with pytest.raises(ValueError, match="Y is not a valid sparse matrix: "):
            method(X, LIES[lie]())
    with pytest.raises(ValueError, match="Y_true is not a valid sparse matrix: "):
        metrics.evaluate(LIES[lie](), np.zeros((2, 1), int), k=[1])


@pytest.mark.parametrize("lie", LIES)
def test_label_vectors(lie):
    with pytest.raises(ValueError, match="representation is not a valid sparse matrix: "):
        Bonsai(LIES[lie](), classifiers="leaf").fit(np.eye(2), np.eye(2, dtype=int))


def test_sparse_weights_of_rows():
    with pytest.raises(ValueError, match="sample_weight is a sparse matrix, but must be an array"):
        Bonsai().fit(good(), [[0], [1]], sample_weight=good())


@pytest.mark.parametrize("n_rows", [1, 2])
def test_single_rows_and_batches_are_checked_alike(model, n_rows):
    """The short way that float32 rows take is no back door."""
    for arrays in (
        {"indptr": [0, 10**7, 2][: n_rows + 1]},
        {"indptr": [0, -1, 2][: n_rows + 1]},
        {"indices": [0, N_COLUMNS]},
        {"indices": [-1, 0]},
        {"data": np.ones(1, np.float32)},
    ):
        X = sp.csr_array((np.ones(2, np.float32), [0, 1], [*range(n_rows), 2]), shape=(n_rows, N_COLUMNS))
        for name, values in arrays.items():
            setattr(X, name, np.asarray(values, np.int32 if name != "data" else np.float32))
        with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
            model.top_k(X)


def test_longer_arrays_than_are_used_are_fine(model):
    X = lying(indices=[0, 1, 10**6], data=np.ones(3, np.float32))
    np.testing.assert_array_equal(model.top_k(X)[1], model.top_k(good())[1])
    assert proven_csr(X, "X").nnz == 2


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
@pytest.mark.parametrize("family", [sp.csr_array, sp.csr_matrix])
def test_what_does_not_lie_passes_unchanged(kind, family):
    X = family(good()).asformat(kind)
    before = copy.deepcopy(X)
    assert (proven_csr(X, "X") != good()).nnz == 0
    assert (sp.csr_array(X) != sp.csr_array(before)).nnz == 0
    assert indicator(X).nnz == 2


CRASHES = """
import numpy as np, scipy.sparse as sp
from bonsai_xmc import Bonsai
X = sp.csr_array(np.eye(6, 40, dtype=np.float32))
model = Bonsai().fit(X, [[0], [1], [2]] * 2)
for use in (
    lambda: model.top_k(sp.csr_array((np.ones(2, "f"), [0, 1], [0, 10**7, 2]), shape=(2, 40))),
    lambda: Bonsai().fit(X[:2], sp.csr_array((np.ones(2, "f"), [0, 1], [0, 100000, 2]), shape=(2, 40))),
):
    try:
        use()
    except ValueError as error:
        print(error)
"""


def test_no_signal():
    """The two calls of a user whose process ended."""
    done = subprocess.run([sys.executable, "-c", CRASHES], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.partition(" is not a valid")[0] for line in done.stdout.splitlines()] == ["X", "Y"]


# --- numbers beyond range ---


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_iter": 2**31}, "max_iter is 2147483648, but must be an integer from 1 to 2³¹ − 1"),
        ({"max_iter": 2**40}, "max_iter is 1099511627776, but must be an integer"),
        ({"C": 1e300}, r"C is 1e\+300, but must be 'auto' or a number from 1e-09 to 1e\+09"),
        ({"C": 1e-300}, "C is 1e-300, but must be"),
        ({"prune": 1e39}, r"prune is 1e\+39, but must be"),
        ({"tail_exponent": 50}, "tail_exponent is 50, but must be 'auto' or a number from 0 to 10"),
        (
            {"n_jobs": 3000},
            "n_jobs is 3000, but must be None or an integer from −1,024 to 1,024 other than 0",
        ),
    ],
)
def test_parameters_beyond_range(params, message):
    """Once `std::bad_cast`, or "the model is inconsistent", and that only after training."""
    with pytest.raises(ValueError, match=message):
        Bonsai(**params).fit(np.eye(3), np.eye(3, dtype=int))


def test_weights_of_rows_beyond_range():
    X, Y = sp.csr_array(np.eye(4, 20)), [[0], [1], [0], [1]]
    with pytest.raises(ValueError, match=r"sample_weight\[2\] is 1e\+30, but weights are at most 1e\+09"):
        Bonsai().fit(X, Y, sample_weight=[1, 1, 1e30, 1])
    with pytest.raises(ValueError, match=r"multiply to 1e\+18, but must stay below 1e\+15"):
        Bonsai(C=1e9, tail_exponent=0.0).fit(X, Y, sample_weight=np.full(4, 1e9))


@pytest.mark.parametrize("classifiers", ["leaf", "one_vs_rest"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
@pytest.mark.parametrize("C", [1e-9, 1e9])
def test_the_ends_of_the_ranges_can_be_trained_with(generated, tmp_path, classifiers, solver, C):
    X, Y = generated.X_train, generated.Y_train
    model = Bonsai(classifiers=classifiers, solver=solver, C=C, threshold=0.5).fit(X, Y)
    model.save(tmp_path / "m")
    assert np.isfinite(Bonsai.load(tmp_path / "m", verify=True).top_k(X)[1]).all()
