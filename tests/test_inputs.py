"""X and other matrices from outside: every container and dtype, and their conversion."""

import copy
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, LabelTree, _core
from bonsai_xmc._data import rows as _inputs
from bonsai_xmc._data.labels import labels_of, over_classes
from bonsai_xmc._data.rows import as_float32, label_vectors, training_rows
from bonsai_xmc._data.user_trees import tree_arrays, tree_list
from helpers import same_model, says


def as_csr(X):
    return _inputs._as_rows(_inputs.proven_csr(X, "X"))


def as_rows(X):
    return training_rows(X, "Bonsai")[0].to_core()


MAX = np.finfo(np.float32).max


def lists(labels):
    """Return label sets as lists of ids, after a check of the types that the core needs."""
    assert (labels.indptr.dtype, labels.indices.dtype) == (np.int64, np.int32)
    assert labels.n_labels == len(labels.classes)
    return [labels.indices[a:b].tolist() for a, b in zip(labels.indptr[:-1], labels.indptr[1:], strict=True)]


def assert_rows(rows, expected):
    indptr, indices, values, n_features = rows
    assert (indptr.dtype, indices.dtype, values.dtype) == (np.int64, np.int32, np.float32)
    assert all(part.flags.c_contiguous for part in rows[:3])
    assert values.all()
    matrix = sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1, n_features))
    assert matrix.has_canonical_format
    np.testing.assert_array_equal(matrix.toarray(), np.asarray(expected, np.float32))


# --- rows ---

SPARSE = np.array([[0, 2, 0, 0, 0], [0, 0, 0, 0, 0], [3, 0, 0, 0, -1]], dtype=np.float64)
DENSE = np.array([[1.5, 2, 0], [0, -4, 5]])


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("family", ["array", "matrix"])
def test_csr_of_every_sparse_format(form, family):
    X = getattr(sp, f"csr_{family}")(SPARSE).asformat(form)
    assert_rows(as_csr(X), SPARSE)


def test_csr_of_unsorted_entries_duplicates_and_zeros():
    # Row 0 holds 1 + 1 at column 1 in two entries, row 2 holds column 4 before 0 and a stored 0 at column 2.
    X = sp.csr_array(
        (np.array([1.0, 1, -1, 0, 3]), np.array([1, 1, 4, 2, 0]), np.array([0, 2, 2, 5])), shape=(3, 5)
    )
    parts = [part.copy() for part in (X.data, X.indices, X.indptr)]
    assert_rows(as_csr(X), SPARSE)
    assert_rows(as_rows(X), SPARSE)
    for before, after in zip(parts, (X.data, X.indices, X.indptr), strict=True):
        np.testing.assert_array_equal(before, after)


def test_ready_rows_are_borrowed():
    for family in (sp.csr_array, sp.csr_matrix):
        X = family(SPARSE.astype(np.float32))
        rows = _inputs._ready_csr(X, X.shape[1])
        assert_rows(rows, SPARSE)
        assert rows[1] is X.indices
        assert rows[2] is X.data


def not_ready():
    X = sp.csr_array(SPARSE.astype(np.float32))
    yield "another type", sp.csr_array(SPARSE)
    yield "another format", X.tocsc()
    yield "dense", SPARSE.astype(np.float32)
    yield "no rows", X[:0]
    yield (
        "wide indices",
        sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), X.shape),
    )
    for value in (np.nan, np.inf):
        spoilt = X.copy()
        spoilt.data[-1] = value
        yield str(value), spoilt
    full = np.flatnonzero(np.diff(X.indptr) > 1)[0]
    turned = X.copy()
    of_row = slice(X.indptr[full], X.indptr[full + 1])
    turned.indices[of_row], turned.data[of_row] = X.indices[of_row][::-1], X.data[of_row][::-1]
    turned.has_canonical_format = turned.has_sorted_indices = False
    yield "out of order", turned
    yield "with gaps", sp.csr_array((np.repeat(X.data, 2)[::2], X.indices, X.indptr), X.shape, copy=False)


@pytest.mark.parametrize("X", [pytest.param(X, id=name) for name, X in not_ready()])
def test_other_rows_are_not_ready(X):
    assert _inputs._ready_csr(X, SPARSE.shape[1]) is None


def test_single_rows_are_checked_as_rows_of_a_matrix_are():
    """One check of the core instead of three of numpy."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = rng.integers(0, 5)
        indices = np.sort(rng.integers(0, 12, n)).astype(np.int32)
        values = rng.choice([1.0, -3e38, 3e38, np.nan, np.inf, 0.5], n, p=[0.3, 0.2, 0.2, 0.05, 0.05, 0.2])
        good = len(set(indices)) == n and (indices < 10).all() and np.isfinite(values).all()
        assert _core.is_row(indices, values.astype(np.float32), 10) == good
    one = np.ones(2, np.float32)
    for indices, values in (
        (np.array([1, 0], np.int32), one),
        (np.array([-1, 0], np.int32), one),
        (np.array([0, 1], np.int32), np.ones(3, np.float32)),
        (np.array([0, 1]), one),
        (np.array([0, 1], np.int32), np.ones(2)),
        (np.array([0, 9, 1, 9], np.int32)[::2], one),
        ([0, 1], one),
    ):
        assert not _core.is_row(indices, values, 10)


def test_ready_rows_have_the_right_width():
    X = sp.csr_array(SPARSE.astype(np.float32))
    assert _inputs._ready_csr(X, SPARSE.shape[1] + 1) is None


def test_csr_drops_duplicates_that_cancel_and_values_that_underflow():
    X = sp.csr_array(
        (np.array([1.0, -1, 1e-60, 2]), np.array([0, 0, 1, 2]), np.array([0, 2, 4])), shape=(2, 3)
    )
    assert_rows(as_csr(X), [[0, 0, 0], [0, 0, 2]])


def test_csr_of_duplicates_in_small_types():
    indices, indptr = np.zeros(2, np.int32), np.array([0, 2])
    assert_rows(as_csr(sp.csr_array((np.int8([100, 100]), indices, indptr), shape=(1, 2))), [[200, 0]])
    assert_rows(as_csr(sp.csr_array((np.array([True, True]), indices, indptr), shape=(1, 2))), [[1, 0]])
    with says("beyond the range of float32"):
        as_csr(sp.csr_array((np.float32([3e38, 3e38]), indices, indptr), shape=(1, 2)))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.float16, np.float32, np.longdouble])
def test_rows_of_every_type(dtype):
    whole = np.array([[1, 0, 0], [0, 1, 0]], dtype=dtype)
    assert_rows(as_rows(whole), whole)
    full = np.ones((2, 3), dtype=dtype)
    rows = as_rows(full)
    assert (rows.dtype, rows.tolist()) == (np.float32, [[1, 1, 1], [1, 1, 1]])


def test_canonical_arrays_are_borrowed():
    X = sp.csr_array(SPARSE.astype(np.float32))
    _, indices, values, _ = as_csr(X)
    assert np.shares_memory(values, X.data)
    assert np.shares_memory(indices, X.indices)
    assert np.shares_memory(as_float32(DENSE32 := DENSE.astype(np.float32)), DENSE32)


def test_wide_indices_become_narrow():
    X = sp.csr_array(SPARSE)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert_rows(as_csr(X), SPARSE)


def test_more_features_than_indices_can_count():
    X = sp.csr_array((np.ones(1), np.array([2**31]), np.array([0, 1])), shape=(1, 2**31 + 1))
    with says("X has 2,147,483,649 features; the most that are possible is 2³¹ − 1"):
        as_rows(X)


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_the_path_depends_on_the_data_not_on_the_container(make):
    dense = as_rows(make(DENSE))  # 4 of 6 cells
    assert isinstance(dense, np.ndarray)
    assert dense.flags.c_contiguous
    assert dense.dtype == np.float32
    np.testing.assert_array_equal(dense, DENSE)
    assert_rows(as_rows(make(SPARSE)), SPARSE)  # 3 of 15 cells


def test_half_full_is_dense():
    assert isinstance(as_rows(sp.csr_array([[1.0, 0], [0, 1]])), np.ndarray)
    assert isinstance(as_rows(np.array([[1.0, 0, 0], [0, 1, 0]])), tuple)
    stored_zeros = sp.csr_array((np.array([1.0, 0, 0]), np.array([0, 1, 2]), np.array([0, 3])), shape=(1, 3))
    assert isinstance(as_rows(stored_zeros), tuple)


@pytest.mark.parametrize("value", [1e39, -1e39, 1e308])
@pytest.mark.parametrize("make", [np.array, sp.csr_array])
def test_overflow_of_float32_is_an_error(make, value):
    with says("X holds values beyond the range of float32 (±3.4e+38); rescale the features"):
        as_rows(make([[1.0, 0, 0], [0, 0, value]]))
    with says("beyond the range of float32"):
        as_rows(make([[value, 1.0], [2, 3]]))


def test_the_largest_float32_and_the_largest_integers_pass():
    assert as_float32(np.array([-float(MAX), float(MAX)])).tolist() == [-MAX, MAX]
    assert as_float32(np.array([2**64 - 1], np.uint64)).tolist() == [2.0**64]
    assert as_float32(np.array([-(2**63), 2**63 - 1], np.int64)).tolist() == [-(2.0**63), 2.0**63]
    assert as_float32(np.empty(0)).tolist() == []


# --- labels ---

INDICATOR = np.array([[0, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
SETS = [[1, 2], [], [0]]


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint64, np.int64, np.float16, np.float32, np.float64]
)
def test_labels_of_dense_indicators(dtype):
    labels = labels_of(INDICATOR.astype(dtype))
    assert lists(labels) == SETS
    assert labels.classes.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float64])
@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.lil_array])
def test_labels_of_sparse_indicators(make, dtype):
    labels = labels_of(make(INDICATOR.astype(dtype)))
    assert lists(labels) == SETS
    assert labels.n_labels == 4


def test_labels_of_an_indicator_of_objects():
    assert lists(labels_of(INDICATOR.astype(object))) == SETS
    with says("Y has dtype object, but an indicator matrix holds the numbers 0 and 1"):
        labels_of(np.array([["a", "b"], ["c", "d"]], dtype=object))


def test_labels_of_an_unsorted_indicator_with_stored_zeros():
    Y = sp.csr_array((np.array([1, 0, 1, 1]), np.array([2, 3, 1, 0]), np.array([0, 3, 3, 4])), shape=(3, 4))
    before = [part.copy() for part in (Y.data, Y.indices, Y.indptr)]
    assert lists(labels_of(Y)) == SETS
    for mine, theirs in zip(before, (Y.data, Y.indices, Y.indptr), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_labels_of_lists_of_ids():
    labels = labels_of([[2, 1, 2], (), {0}])
    assert lists(labels) == SETS
    assert labels.classes.tolist() == [0, 1, 2]
    assert lists(labels_of([np.array([2, 1]), [], [np.uint8(0)]])) == SETS
    assert lists(labels_of(np.array([[1, 2], [], [0]], dtype=object))) == SETS
    assert lists(labels_of(row for row in SETS)) == SETS


def test_labels_of_lists_of_names():
    labels = labels_of([["oak", "birch", "oak"], [], ["ash"], (np.str_("birch"),)])
    assert labels.classes.tolist() == ["ash", "birch", "oak"]
    assert labels.classes.dtype == object
    assert lists(labels) == [[1, 2], [], [0], [1]]


def test_labels_of_lists_without_labels():
    labels = labels_of([[], []])
    assert lists(labels) == [[], []]
    assert labels.n_labels == 0


class Frame:
    """What the function needs of a data frame."""

    def __init__(self, columns, values):
        self.columns, self._values = columns, np.asarray(values)

    def to_numpy(self):
        return self._values


def test_labels_of_data_frames():
    named = labels_of(Frame(["d", "c", "b", "a"], INDICATOR))
    assert named.classes.tolist() == ["d", "c", "b", "a"]
    assert lists(named) == SETS
    assert labels_of(Frame([10, 11, 12, 13], INDICATOR)).classes.tolist() == [0, 1, 2, 3]
    with says("Y[0, 1] is 3"):
        labels_of(Frame(["a", "b"], [[0, 3]]))
    with says("Y has two columns with the name 'a'; names must differ"):
        labels_of(Frame(["a", "b", "a"], [[0, 1, 0]]))


def test_labels_of_a_pandas_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(INDICATOR, columns=["d", "c", "b", "a"])
    frame["c"] = frame["c"].astype(bool)  # to_numpy gives objects then
    labels = labels_of(frame)
    assert labels.classes.tolist() == ["d", "c", "b", "a"]
    assert lists(labels) == SETS
    assert lists(labels_of(pandas.Series([[1, 2], [], [0]]))) == SETS


@pytest.mark.parametrize("make", [np.array, sp.csr_array, sp.coo_matrix])
@pytest.mark.parametrize(
    ("value", "shown"), [(2, "2"), (-1, "-1"), (0.5, "0.5"), (np.nan, "nan"), (np.inf, "inf")]
)
def test_an_indicator_holds_0_and_1_only(make, value, shown):
    with says(f"Y[1, 2] is {shown}"):
        labels_of(make(np.array([[0, 1, 0], [1, 0, value]])))


def test_the_message_about_other_entries_names_the_fix():
    with says(
        "Y[0, 0] is 7, but an indicator matrix holds only 0 and 1. "
        "Binarise it, e.g. Y = (Y > 0); weights of rows go into sample_weight."
    ):
        labels_of(np.array([[7]]))


def test_an_entry_that_is_stored_twice_is_no_indicator():
    with says("Y[1, 2] is 2"):
        labels_of(sp.coo_array((np.ones(2, int), ([1, 1], [2, 2])), shape=(2, 3)))


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (None, "Bonsai requires y to be passed, but the target y is None"),
        (3, "Y is of type int; pass an indicator matrix, or one list of labels for each row"),
        ("red", "Y is of type str; pass an indicator matrix"),
        (
            np.zeros(3),
            "Y has 1 dimension(s) (binary target), but must be an indicator matrix (rows × labels)",
        ),
        (np.array([1, 2, 3]), "(multiclass target)"),
        (np.array([0.5, 1.5]), "(continuous target)"),
        (np.array([1, 2, 3]), "For one class for each row, pass a list of one-element lists."),
        (np.zeros((2, 2, 2)), "Y has 3 dimension(s)"),
        (np.array([["a", "b"]]), "Y has dtype <U1, but an indicator matrix holds the numbers 0 and 1"),
        (np.array([[1j]]), "Y has dtype complex128"),
        (sp.csr_array(np.array([[1j]])), "Y has dtype complex128, but an indicator matrix holds the numbers"),
        (["red", "green"], "Y[0] is 'red'; each row of Y is a list of labels, e.g. ['red'] for a single one"),
        ([[0], b"x"], "Y[1] is b'x'; each row of Y is a list of labels"),
        ([[0], np.array(5)], "Y[1] is array(5); each row of Y is a list of labels"),
        ([[0], 5], "Y[1] is 5; each row of Y is a list of labels, e.g. [5] for a single one"),
        ([[0], ["a"]], "Y[1] holds 'a'; labels in lists are all names (strings) or all integers"),
        ([["a"], [0]], "Y[1] holds 0; labels in lists are all names"),
        ([[0], [1.0]], "Y[1] holds 1.0; labels in lists are all names (strings) or all integers"),
        ([[True]], "Y[0] holds True; labels in lists"),
        ([[], [None]], "Y[1] holds None; labels in lists"),
        ([[3, -1]], "Y[0] holds the label -1; integer labels are from 0 to 2⁶³ − 1"),
        ([[0], [2**63]], "Y[1] holds the label 9223372036854775808; integer labels are from 0 to 2⁶³ − 1"),
        ([[True, False]], "If Y is an indicator matrix, pass np.asarray(Y)"),
        ([[0.0, 1.0]], "If Y is an indicator matrix, pass np.asarray(Y)"),
        ([["a\ud800"]], "Y[0] holds the label 'a\\ud800', which is not valid Unicode"),
    ],
)
def test_invalid_labels_are_rejected(Y, message):
    with says(message):
        labels_of(Y)


# --- label vectors ---


@pytest.mark.parametrize("make", [np.array, sp.csr_array, sp.csc_matrix])
def test_label_vectors_are_unit_norm_and_zeros_stay(make):
    sparse = make([[0, 3, 0, 4, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, -2]])
    assert_rows(label_vectors(sparse, 3), [[0, 0.6, 0, 0.8, 0, 0], [0] * 6, [0, 0, 0, 0, 0, -1]])
    dense = label_vectors(make([[3, 4], [0, 0], [1, 0], [1, 1]]), 4).values
    assert dense.dtype == np.float32
    np.testing.assert_allclose(dense, [[0.6, 0.8], [0, 0], [1, 0], [0.5**0.5] * 2], rtol=1e-7)


def test_label_vectors_of_extreme_scale():
    vectors = label_vectors(np.array([[3e38, 3e38], [1e-30, 0.0]]), 2)
    np.testing.assert_allclose(vectors.values, [[0.5**0.5] * 2, [1, 0]], rtol=1e-6)
    sparse = label_vectors(sp.csr_array([[0, 0, 0, 3e38, 0], [0, 0, 0, 0, 1e-30]]), 2)
    np.testing.assert_allclose(sparse[2], [1, 1], rtol=1e-6)


def test_label_vectors_leave_the_matrix_alone():
    for matrix in (np.array([[3.0, 4]], np.float32), sp.csr_array(np.array([[0, 0, 2, 0, 0]], np.float32))):
        before = matrix.copy()
        label_vectors(matrix, 1)
        assert abs(matrix - before).sum() == 0


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), "representation has 2 rows, but Y has 4 labels; one row for each label is needed"),
        (sp.csr_array((5, 3)), "representation has 5 rows, but Y has 4 labels"),
        (
            np.ones(4),
            "representation must be one of its names, or a numeric matrix with one row for each label",
        ),
        (np.full((4, 2), "x"), "representation must be one of its names, or a numeric matrix"),
        (np.full((4, 2), np.nan), "representation holds NaN, infinite values, or values beyond the range"),
        (sp.csr_array(np.diag([1, 2, np.inf, 4])), "representation holds NaN, infinite values"),
        (
            np.full((4, 2), 1e39),
            "representation holds NaN, infinite values, or values beyond the range of float32",
        ),
    ],
)
def test_errors_of_label_vectors(matrix, message):
    with says(message):
        label_vectors(matrix, 4)


# --- trees ---

IDS = np.arange(5)
NAMES = np.array(["ash", "beech", "elm", "fir", "oak"], dtype=object)
NESTED = [[4, 0], [[1], [3, 2]]]
NESTED_NAMES = [["oak", "ash"], [["beech"], ["fir", "elm"]]]
# Root 0 with leaf 1 = {0, 4} and node 2, whose leaves are 3 = {1} and 4 = {2, 3}.
ARRAYS = ([0, 2, 4, 6, 7, 9], [1, 2, 0, 4, 3, 4, 1, 2, 3], [0, 1, 0, 1, 1])
ALL = np.ones(5, bool)


def assert_arrays(tree, expected):
    assert [part.dtype for part in tree] == [np.int64, np.int32, np.uint8]
    assert [part.tolist() for part in tree] == list(expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: NESTED,
        lambda path: ((4, 0), ((1,), (3, 2))),
        lambda path: [np.array([4, 0]), [[1], np.array([3, 2])]],
        lambda path: LabelTree.from_nested(NESTED),
        lambda path: LabelTree.from_nested(NESTED).to_dict(),
        lambda path: LabelTree.from_nested(NESTED).to_json(),
        lambda path: LabelTree.from_nested(NESTED).to_json(path) and path,
        lambda path: LabelTree.from_nested(NESTED).to_json(path) and str(path),
        lambda path: "[[4, 0], [[1], [3, 2]]]",
        # The same tree, numbered depth-first.
        lambda path: LabelTree([0, 2, 4, 6, 7, 9], [1, 2, 0, 4, 3, 4, 1, 2, 3], [0, 1, 0, 1, 1]),
        lambda path: LabelTree([0, 2, 4, 5, 7, 9], [4, 1, 2, 3, 1, 2, 3, 0, 4], [0, 0, 1, 1, 1]),
    ],
)
@pytest.mark.parametrize("classes", [IDS, NAMES])
def test_trees_of_ids_are_accepted_in_every_form(tmp_path, make, classes):
    (tree,) = tree_arrays(make(Path(tmp_path / "tree.json")), classes, ALL)
    assert_arrays(tree, ARRAYS)


@pytest.mark.parametrize(
    "make",
    [
        lambda tree: NESTED_NAMES,
        lambda tree: tree,
        lambda tree: tree.to_dict(),
        lambda tree: tree.to_json(),
    ],
)
def test_trees_of_names_are_accepted_in_every_form(make):
    (tree,) = tree_arrays(make(LabelTree.from_nested(NESTED_NAMES)), NAMES, ALL)
    assert_arrays(tree, ARRAYS)


def test_names_count_where_ids_differ():
    # The tree numbers its own six names; one of them is not in Y, and the ids after it are shifted.
    tree = LabelTree.from_nested([["oak", "ash"], [["beech"], ["fir", "elm"]], ["acacia"]])
    assert tree.labels().tolist() == [0, 1, 2, 3, 4, 5]
    assert_arrays(tree_arrays(tree, NAMES, ALL)[0], ARRAYS)
    other = LabelTree.from_nested([["b"], ["a"]], names=["b", "a"])
    assert_arrays(
        tree_arrays(other, np.array(["a", "b"], object), np.ones(2, bool))[0],
        ([0, 2, 3, 4], [1, 2, 1, 0], [0, 1, 1]),
    )


def test_labels_without_rows_and_their_nodes_are_left_out():
    has_rows = np.array([True, False, True, False, False])
    (tree,) = tree_arrays(NESTED, IDS, has_rows)
    # Leaf {1} is left out with its label; the other leaves keep those of their labels that have rows.
    assert_arrays(tree, ([0, 2, 3, 4, 5], [1, 2, 0, 3, 2], [0, 1, 0, 1]))
    only = np.array([False, False, False, False, True])
    assert_arrays(tree_arrays(NESTED, IDS, only)[0], ([0, 1, 2], [1, 4], [0, 1]))


def test_a_tree_that_is_one_leaf():
    assert_arrays(tree_arrays([0, 1, 2, 3, 4], IDS, ALL)[0], ([0, 5], [0, 1, 2, 3, 4], [1]))


def test_several_trees_may_have_different_forms():
    first, second = LabelTree.from_nested(NESTED), LabelTree.from_nested([0, 1, 2, 3, 4])
    for several in ([first, second], (first, second.to_dict())):
        trees = tree_arrays(several, IDS, ALL)
        assert len(trees) == 2
        assert_arrays(trees[0], ARRAYS)
        assert_arrays(trees[1], ([0, 5], [0, 1, 2, 3, 4], [1]))
    assert len(tree_list(NESTED)) == len(tree_list(first)) == len(tree_list([[0]])) == 1


@pytest.mark.parametrize(
    ("tree", "classes", "message"),
    [
        (3.5, IDS, "tree is of type float; pass a LabelTree, nested lists of labels, or its JSON form"),
        (np.eye(5), IDS, "tree is of type ndarray; pass a LabelTree"),
        (
            [[0, 1], [2, 3]],
            IDS,
            "1 label(s) of Y are not in tree, 4 for one; each label with rows needs its place",
        ),
        ([["ash", "elm"], ["oak"]], NAMES, "2 label(s) of Y are not in tree, 'beech' for one"),
        ([[0, 1, 2], [3, 4, 7]], IDS, "tree holds the label 7, but Y has only 5 labels"),
        ([[0, 1, 2], [3, 4, 7]], NAMES, "tree holds the label 7, but Y has only 5 labels"),
        ([[0, 1, 2], [3, 4, 0]], IDS, "label 0 is in leaf 1 and in leaf 2"),
        ([[0, 1, 2], []], IDS, "leaf 2 has no labels; leave it out of the tree"),
        ([[0, 1, 2], 3], IDS, "the tree mixes labels (3) with lists"),
        ("[[0, 1], [2", IDS, "JSON text:"),
        ({"leaves": [0]}, IDS, 'the tree needs either "children" or "labels"'),
        (NESTED_NAMES, IDS, "tree holds label names, but Y has none; use ids, or lists of names for Y"),
        (json.dumps(NESTED_NAMES), IDS, "tree holds label names, but Y has none"),
    ],
)
def test_trees_that_do_not_match_the_labels_are_rejected(tree, classes, message):
    with says(message):
        tree_arrays(tree, classes, ALL)


def test_a_tree_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.json"):
        tree_arrays(tmp_path / "no.json", IDS, ALL)


# --- integers in lists are keys ---


def test_rows_of_0_and_1_are_ambiguous():
    """They may be lists of the labels 0 and 1, or an indicator matrix, as for scikit-learn: an error."""
    ambiguous = [[0, 1, 1], [1, 0, 0], [0, 0, 1]]
    for Y in (ambiguous, [tuple(row) for row in ambiguous], [np.array(row) for row in ambiguous]):
        with says("Y may be an indicator matrix or lists of the labels 0 and 1. Pass np.asarray(Y)"):
            labels_of(Y)
    assert lists(labels_of(np.asarray(ambiguous))) == [[1, 2], [0], [2]]
    assert lists(labels_of([set(row) for row in ambiguous])) == [[0, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    "Y", [[[0], [1], [1]], [[0, 1], [1]], [[0, 1], [1, 2]], [[1, 0], []], [["0", "1"], ["1", "0"]]]
)
def test_rows_that_can_only_be_lists_of_labels(Y):
    assert len(lists(labels_of(Y))) == len(Y)


def test_large_integers_do_not_allocate_up_to_the_largest():
    """An array up to the largest identifier, of eight digits, would take 1.1 GB."""
    tracemalloc.start()
    labels = labels_of([[40_268_019], [7], [40_268_019, 2**62], []])
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()
    assert labels.classes.tolist() == [7, 40_268_019, 2**62]
    assert lists(labels) == [[1], [0], [1, 2], []]


def test_names_are_plain_strings():
    labels = labels_of([[np.str_("b"), "a"], ["b"]])
    assert [type(name) for name in labels.classes] == [str, str]


# --- the same labels over the classes of a model ---


def test_labels_outside_the_classes_are_left_out():
    names = np.array(["a", "b", "c"], dtype=object)
    assert over_classes([["c", "new"], [], ["a"]], names).toarray().tolist() == [
        [0, 0, 1],
        [0, 0, 0],
        [1, 0, 0],
    ]
    keys = np.array([7, 10, 12])
    assert over_classes([[10, 11], {7}], keys).toarray().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert over_classes(np.eye(3, dtype=int), keys).toarray().tolist() == np.eye(3).tolist()
    assert over_classes([[], []], names).shape == (2, 3)
    frame = Frame(["c", "a"], [[1, 0], [1, 1]])
    assert over_classes(frame, names).toarray().tolist() == [[0, 0, 1], [1, 0, 1]]


def test_labels_that_do_not_fit_the_classes():
    names, keys = np.array(["a", "b"], dtype=object), np.array([3, 5])
    with says("Y holds label names, but the model was fitted on labels without names"):
        over_classes([["a"]], keys)
    with says("Y holds integers, but the model was fitted on label names"):
        over_classes([[3]], names)
    for width in (1, 3):
        with says(
            f"Y has {width} columns, but the model has 2 labels; a matrix needs a column for each of them"
        ):
            over_classes(np.zeros((1, width), int), keys)


# --- containers ---


# --- every container, nothing changed in place ---


def whole_numbers():
    """Return rows of 0, 1, 2 and 3, which every type holds, a quarter filled, and labels by these rows."""
    rng = np.random.default_rng(3)
    A = rng.integers(1, 4, size=(80, 20)) * (rng.random((80, 20)) < 0.25)
    return A, (A[:, :6] > 1).astype(int)


def in_two_parts(A):
    """Return COO entries: each value v as 1 and v − 1, in random order."""
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
    """Return directions in 16 dimensions, one for each of 10 labels, well apart in spite of noise."""
    rng = np.random.default_rng(5)
    centres = np.linalg.qr(rng.normal(size=(16, 16)))[0][:10]
    label = np.arange(100) % 10
    return (centres[label] + 0.05 * rng.normal(size=(100, 16))).astype(np.float32), np.eye(10, dtype=int)[
        label
    ]


def test_dense_and_sparse_rows_give_the_same_model(embeddings):
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
