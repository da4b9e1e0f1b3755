"""Files that are written read back exactly."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import csr_array

from bonsai_xmc import datasets
from helpers import random_csr
from xc_files import X, Y, assert_same, write

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def examples(draw):
    rows, features, labels = draw(st.integers(0, 5)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    cells = [(i, j) for i in range(rows) for j in range(features)]
    entries = draw(st.dictionaries(st.sampled_from(cells), floats)) if cells else {}
    row, column = np.array(sorted(entries), int).reshape(-1, 2).T
    values = np.array([entries[key] for key in sorted(entries)], np.float32)
    x = csr_array((values, (row, column)), shape=(rows, features))  # zeros stay stored
    flags = draw(st.lists(st.booleans(), min_size=rows * labels, max_size=rows * labels))
    return x, csr_array(np.array(flags, np.float32).reshape(rows, labels))


@settings(max_examples=150, deadline=None)
@given(
    examples(),
    st.sampled_from(["xc", "xc.gz", "split", "split.gz", "svmlight", "npz"]),
    st.sampled_from([0, 1]),
)
def test_any_matrix_survives_a_round_trip(tmp_path_factory, example, form, base):
    x, y = example
    folder = tmp_path_factory.mktemp("round")
    form, _, packed = form.partition(".")
    names = ("x.npz", "y.npz") if form == "npz" else ("x.txt", "y.txt")
    path, labels = (folder / (name + ("." + packed if packed else "")) for name in names)
    options = {} if form == "npz" else {"base": base, "label_base": base}
    options |= {"format": "svmlight"} if form == "svmlight" else {}
    second = labels if form in ("split", "npz") else None
    datasets.save_xc(path, x, y, second, **options)
    width = {"n_features": x.shape[1], "n_labels": y.shape[1]} if form == "svmlight" else {}
    loaded = datasets.load_xc(path, second, **options, **width)
    assert_same(loaded[0], x)
    assert_same(loaded[1], y)
    assert np.array_equal(np.signbit(loaded[0].data), np.signbit(x.data))


@settings(max_examples=100, deadline=None)
@given(st.lists(floats, min_size=1, max_size=20))
def test_every_float_survives(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("floats") / "x.txt"
    row = np.array([values], np.float32)
    datasets.save_sparse(path, row)
    assert np.array_equal(datasets.load_sparse(path).toarray(), row)


def test_written_text_is_as_documented(tmp_path):
    path = tmp_path / "train.txt"
    datasets.save_xc(path, X, Y)
    assert path.read_text() == "3 4 5\n0,4 1:0.5 3:-2\n 0:0.001\n2 \n"
    datasets.save_xc(path, X, Y, format="svmlight", base=1, label_base=1)
    assert path.read_text() == "1,5 2:0.5 4:-2\n 1:0.001\n3 \n"
    datasets.save_xc(path, X, Y, tmp_path / "labels.txt")
    assert path.read_text() == "3 4\n1:0.5 3:-2\n0:0.001\n\n"
    assert (tmp_path / "labels.txt").read_text() == "3 5\n0:1 4:1\n\n2:1\n"


def test_many_rows_are_written_in_blocks(tmp_path):
    n = 10_001
    x = random_csr((n, 50), density=0.05, rng=np.random.default_rng(0), dtype=np.float32)
    y = csr_array((np.ones(n, np.float32), np.arange(n) % 7, np.arange(n + 1)), shape=(n, 7))
    datasets.save_xc(tmp_path / "a.txt", x, y)
    loaded = datasets.load_xc(tmp_path / "a.txt")
    assert_same(loaded[0], x)
    assert_same(loaded[1], y)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt"])
def test_equal_data_give_equal_bytes(tmp_path, name):
    (tmp_path / "later").mkdir()
    datasets.save_xc(tmp_path / name, X, Y)
    datasets.save_xc(tmp_path / "later" / name, csr_array(X), sparse.coo_matrix(Y))
    first, second = (tmp_path / name).read_bytes(), (tmp_path / "later" / name).read_bytes()
    assert first == second
    assert not name.endswith(".gz") or first[4:8] == b"\0\0\0\0"  # no time


def test_saving_leaves_the_arguments_alone(tmp_path):
    x = csr_array(
        (np.array([1.0, 2, 4]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2)
    )  # unsorted, twice
    y = csr_array((np.array([0.0, 1]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))  # a stored zero
    before = [a.copy() for m in (x, y) for a in (m.data, m.indices, m.indptr)]
    datasets.save_xc(tmp_path / "a.txt", x, y)
    after = [a for m in (x, y) for a in (m.data, m.indices, m.indptr)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert (tmp_path / "a.txt").read_text() == "1 2 3\n1 0:2 1:5\n"


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        datasets.save_xc(path, X, Y)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X * np.nan, Y, "X has the value nan in row 0, no finite float32 number"),
        (X.astype(float) * 1e300, Y, "in row 0, no finite float32 number"),
        (X, Y * 2, "Y[0, 0] is 2"),
        (X[:2], Y, "X has 2 rows, but Y has 3"),
        (X.astype(str), Y, "X must be a matrix of real numbers"),
        (X[None], Y, "X must be a matrix of real numbers, not 3-D"),
    ],
)
def test_matrices_that_cannot_be_written_leave_no_file(tmp_path, x, y, message):
    with pytest.raises(ValueError) as caught:
        datasets.save_xc(tmp_path / "a.txt", x, y)
    assert message in str(caught.value) and not list(tmp_path.iterdir())


def test_single_npz_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs a second path"):
        datasets.save_xc(tmp_path / "a.npz", X, Y)
