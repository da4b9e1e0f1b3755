"""Files and known data sets."""

import gzip
import importlib.util
import io
import json
import os
import random
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.feature_extraction.text import TfidfVectorizer

from bonsai_xmc import datasets, metrics
from bonsai_xmc.datasets._repository import Statistics

XC = "3 4 5\n0,4 1:0.5 3:-2\n 0:1e-3\n2\n"
X = np.array([[0, 0.5, 0, -2], [0.001, 0, 0, 0], [0, 0, 0, 0]], np.float32)
Y = np.array([[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], np.float32)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def assert_same(actual, expected):
    """Equal shape, structure and values, bit for bit."""
    expected = csr_array(expected)
    assert actual.shape == expected.shape
    assert actual.dtype == np.float32
    assert np.array_equal(actual.indptr, expected.indptr)
    assert np.array_equal(actual.indices, expected.indices)
    assert np.array_equal(actual.data, expected.data)


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        XC,
        XC.rstrip("\n"),
        XC.replace("\n", "\r\n"),
        "\ufeff" + XC,
        XC.replace("1:0.5 3:-2", "3:-2.0  1:5e-1"),
        XC + "\n\n",
        gzip.compress(XC.encode()),
    ],
    ids=["plain", "no-final-newline", "crlf", "bom", "unsorted", "blank-tail", "gzip"],
)
def test_one_file(tmp_path, content):
    loaded = datasets.load_xc(write(tmp_path / "train.txt", content))
    assert_same(loaded[0], X)
    assert_same(loaded[1], Y)


def test_result_is_canonical_and_small(tmp_path):
    for matrix in datasets.load_xc(write(tmp_path / "train.txt", XC)):
        assert isinstance(matrix, csr_array)
        assert matrix.has_canonical_format
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32


def test_a_file_must_have_the_columns_that_are_asked_for(tmp_path):
    single = write(tmp_path / "test.txt", "1 2 3\n1 1:1\n")
    features = write(tmp_path / "x.txt", "1 2\n1:1\n")
    labels = write(tmp_path / "y.txt", "1 3\n1:1\n")
    pair = tmp_path / "x.npz", tmp_path / "y.npz"
    datasets.save_xc(pair[0], np.array([[0, 1]]), np.array([[0, 1, 0]]), pair[1])
    for files in ((single,), (features, labels), pair):
        shapes = [m.shape for m in datasets.load_xc(*files, n_features=2, n_labels=3)]
        assert shapes == [(1, 2), (1, 3)]
        for n in (1, 7):
            with pytest.raises(ValueError, match=rf"{files[0].name}: there are 2 features instead of {n}"):
                datasets.load_xc(*files, n_features=n)
            with pytest.raises(ValueError, match=rf"{files[-1].name}: there are 3 labels instead of {n}"):
                datasets.load_xc(*files, n_labels=n)
    with pytest.raises(ValueError, match="there are 2 columns instead of 3"):
        datasets.load_sparse(features, n_columns=3)


def test_svmlight_takes_the_width_of_the_training_file(tmp_path):
    path = write(tmp_path / "test.svm", "1 0:1 1:1\n")
    shapes = [m.shape for m in datasets.load_xc(path, n_features=7, n_labels=9)]
    assert shapes == [(1, 7), (1, 9)]
    with pytest.raises(ValueError, match=r"test\.svm: line 1, column 7: feature id '1' is too large"):
        datasets.load_xc(path, n_features=1)


@pytest.mark.parametrize("what", ["features", "labels"])
def test_a_header_that_announces_more_than_a_file_can_hold(tmp_path, what):
    """It would cost gigabytes for each array with an entry for each label."""
    header = "1 100000000 5" if what == "features" else "1 5 100000000"
    path = write(tmp_path / "tiny.txt", f"{header}\n0 0:1\n")
    message = rf"tiny\.txt: 100,000,000 {what} are announced, but the whole file has 20 bytes"
    with pytest.raises(ValueError, match=message):
        datasets.load_xc(path)
    given = datasets.load_xc(path, **{f"n_{what}": 100_000_000})
    assert given[what == "labels"].shape == (1, 100_000_000)
    plausible = write(tmp_path / "wide.txt", "1 5 3000000\n2999999 0:1\n")  # of a set with many labels
    assert datasets.load_xc(plausible)[1].shape == (1, 3_000_000)


def test_split_files(tmp_path):
    features = write(tmp_path / "trn_X_Xf.txt", "3 4\n1:0.5 3:-2\n0:0.001\n\n")
    labels = write(tmp_path / "trn_X_Y.txt.gz", gzip.compress(b"3 5\n4:1.0 0:1\n1:0\n2:1\n"))
    for arguments in [(features, labels), (str(features), str(labels)), (tmp_path,)]:
        loaded = datasets.load_xc(*arguments)
        assert_same(loaded[0], X)
        assert_same(loaded[1], Y)


@pytest.mark.parametrize("pattern", ["{}_trn.npz", "{}.trn.npz"])
def test_npz_pair(tmp_path, pattern):
    x, y = (tmp_path / pattern.format(name) for name in "XY")
    sparse.save_npz(x, sparse.coo_matrix(X.astype(np.float64)))
    sparse.save_npz(y, sparse.csc_array(Y.astype(bool)))
    for arguments in [(x, y), (tmp_path,)]:
        loaded = datasets.load_xc(*arguments)
        assert_same(loaded[0], X)
        assert_same(loaded[1], Y)


def test_folder_with_single_files(tmp_path):
    write(tmp_path / "train.txt", XC)
    write(tmp_path / "test.txt.gz", gzip.compress(b"1 4 5\n3 0:1\n"))
    assert datasets.load_xc(tmp_path)[0].shape == (3, 4)
    assert datasets.load_xc(tmp_path, split="tst")[0].shape == (1, 4)
    with pytest.raises(FileNotFoundError, match=r"no part 'dev': looked for dev_X_Xf\.txt \+ dev_X_Y\.txt"):
        datasets.load_xc(tmp_path, split="dev")
    write(tmp_path / "train.txt.gz", gzip.compress(XC.encode()))
    with pytest.raises(ValueError, match=r"more than once, compressed and not: train\.txt, train\.txt\.gz"):
        datasets.load_xc(tmp_path)


def test_svmlight_bases(tmp_path):
    zero = write(tmp_path / "zero.svm", "# comment\n1,0 0:1 2:2 # more 9:9\n\n2 1:3\n")
    one = write(tmp_path / "one.svm", "1,0 1:1 3:2\n2 2:3\n")
    expected = np.array([[1, 0, 2], [0, 3, 0]])
    for path, base in [(zero, "auto"), (zero, 0), (one, 1)]:
        loaded = datasets.load_xc(path, base=base)
        assert_same(loaded[0], expected.astype(np.float32))
        assert_same(loaded[1], np.array([[1, 1, 0], [0, 0, 1]], np.float32))
    assert datasets.load_xc(one, base=0)[0].shape == (2, 4)
    with pytest.raises(ValueError, match=r"one\.svm: feature ids begin at 0 or at 1, and nothing tells"):
        datasets.load_xc(one)
    with pytest.raises(ValueError, match="pass base=0 or base=1"):
        datasets.load_xc(one, n_features=4)
    # id 3 of 3 features can only be 1-based, id 0 only 0-based
    assert datasets.load_xc(one, n_features=3)[0].shape == (2, 3)
    with pytest.raises(ValueError, match=r"zero\.svm: line 2, column 9: feature id '2' is too large"):
        datasets.load_xc(zero, n_features=2)
    assert datasets.load_xc(write(tmp_path / "none.svm", "1\n2\n"), n_features=3)[0].shape == (2, 3)
    with pytest.raises(ValueError, match="feature id 0, but ids start at 1"):
        datasets.load_xc(zero, base=1)
    with pytest.raises(ValueError, match="label id 0, but ids start at 1"):
        datasets.load_xc(zero, label_base=1)


def test_agrees_with_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    x = sparse.random_array((50, 30), density=0.2, rng=rng, dtype=np.float32, format="csr")
    y = (sparse.random_array((50, 12), density=0.2, rng=rng, format="csr") > 0).astype(np.float32)
    path = tmp_path / "data.svm"
    dump_svmlight_file(x, y, str(path), multilabel=True, zero_based=False)
    ours = datasets.load_xc(path, base=1, n_features=30, n_labels=12)
    theirs, labels = load_svmlight_file(
        str(path), n_features=30, dtype=np.float32, multilabel=True, zero_based=False
    )
    rows = [i for i in range(50) if x[[i]].nnz or y[[i]].nnz]  # scikit-learn skips rows with neither
    assert_same(ours[0][rows], theirs)
    assert [[int(i) for i in row] for row in labels] == [ours[1][[i]].indices.tolist() for i in rows]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the file is empty"),
        ("3 4 5 6\n", "line 1: the header must be 'rows features labels' as whole numbers, not '3 4 5 6'"),
        ("a 4 5\n", "line 1: the header must be"),
        (
            "1 4 5\n0 4:1\n",
            "line 2, column 3: feature id '4' is too large: there are 4 features (ids 0 to 3)",
        ),
        ("1 4 5\n0 -1:1\n", "line 2, column 3: negative feature id '-1:1'"),
        ("1 4 5\n-2 1:1\n", "line 2, column 1: negative label id '-2'"),
        ("2 4 5\n0 1:1\n5 1:1\n", "line 3, column 1: label id '5' is too large: there are 5 labels"),
        ("1 4 5\n0 1\n", "line 2, column 3: '1' is not 'feature:value'"),
        ("1 4 5\n0 1:abc\n", "line 2, column 5: the value 'abc' of feature 1 is not a number"),
        ("1 4 5\n0 1:nan\n", "line 2, column 5: the value 'nan' of feature 1 is not finite"),
        ("1 4 5\n0 1:Infinity\n", "line 2, column 5: the value 'Infinity' of feature 1 is not finite"),
        ("1 4 5\n0 1:1e39\n", "line 2, column 5: the value '1e39' of feature 1 does not fit in float32"),
        ("1 4 5\n0 1:1 1:2\n", "line 2: feature 1 appears twice"),
        ("3 4 5\n0 1:1\n", "line 2: the file ends here after 1 of the 3 rows that the header announces"),
        ("1 4 5\n0 1:1\n0 1:1\n", "line 3: more rows than the 1 that the header announces"),
        ("1 4 5\n0,, 1:1\n", "line 2, column 3: a comma without a label id beside it"),
        ("1 4 5\nä 1:1\n", "line 2, column 1: '\\xc3\\xa4' is not a label id"),
        ("2 4 5\n0 1:1\n0 1:\x001\n", "line 3: NUL byte; this is not a plain text file"),
        (
            "9000000000000000000 4 5\n0 1:1\n",
            "line 2: the file ends here after 1 of the 9000000000000000000 rows",
        ),
        (
            "1 2147483648 5\n0 1:1\n",
            "2,147,483,648 features are announced; at most 2,147,483,647 are possible",
        ),
        (
            "1 4 5\n" + "9" * 100 + " 1:1\n",
            "label id '9999999999999999999999999999999999999999…' is too large",
        ),
    ],
)
def test_errors_of_one_file(tmp_path, content, message):
    path = write(tmp_path / "bad.txt", content)
    with pytest.raises(ValueError) as caught:
        datasets.load_xc(path, format="xc")
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_errors_of_other_files(tmp_path):
    features = write(tmp_path / "x.txt", "2 4\n0:1\n1:1\n")
    with pytest.raises(ValueError, match=r"x\.txt has 2 rows, but .*y\.txt has 1"):
        datasets.load_xc(features, write(tmp_path / "y.txt", "1 3\n0:1\n"))
    with pytest.raises(ValueError, match=r"y\.txt: line 3: the value of label 2 is neither 1 nor 0"):
        datasets.load_xc(features, write(tmp_path / "y.txt", "2 3\n0:1\n2:0.5\n"))
    with pytest.raises(ValueError, match="holds features only: give the file with the labels"):
        datasets.load_xc(features)
    with pytest.raises(ValueError, match=r"q\.svm: line 1, column 3: 'qid:' marks ranking data"):
        datasets.load_xc(write(tmp_path / "q.svm", "3 qid:1 1:1\n"))
    with pytest.raises(ValueError, match=r"t\.gz: damaged gzip data"):
        datasets.load_xc(write(tmp_path / "t.gz", gzip.compress(XC.encode() * 9)[:-12]))
    with pytest.raises(FileNotFoundError):
        datasets.load_xc(tmp_path / "absent.txt")
    with pytest.raises(ValueError, match="is a folder, so labels must not be given"):
        datasets.load_xc(tmp_path, features)


def test_errors_of_npz(tmp_path):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    sparse.save_npz(good, csr_array(Y))
    with pytest.raises(ValueError, match=r"good\.npz holds features only"):
        datasets.load_xc(good)
    sparse.save_npz(bad, csr_array(Y * 2))
    with pytest.raises(ValueError, match=r"bad\.npz: Y\[0, 0\] is 2"):
        datasets.load_xc(good, bad)
    write(bad, good.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"bad\.npz: not a file of scipy\.sparse\.save_npz"):
        datasets.load_xc(good, bad)
    hostile = csr_array(Y)
    hostile.indices[0] = 1_000_000
    sparse.save_npz(bad, hostile)
    with pytest.raises(ValueError, match=r"bad\.npz: not a file of scipy\.sparse\.save_npz"):
        datasets.load_xc(good, bad)
    with pytest.raises(ValueError, match=r"bad\.npz: not a file of scipy\.sparse\.save_npz"):
        datasets.load_sparse(bad)
    sparse.save_npz(bad, csr_array(np.array([[np.nan, 1.0]])))
    with pytest.raises(ValueError, match="the matrix has the value nan in row 0"):
        datasets.load_sparse(bad)


def npz_members(**members):
    """The bytes of an .npz file with these members, which may be anything."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def npy(array, **changes):
    """The bytes of an array, with another header."""
    stream = io.BytesIO()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | changes
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + array.tobytes()


CSR = {
    "format": npy(np.array(b"csr")),
    "shape": npy(np.array([1, 2])),
    "data": npy(np.ones(1)),
    "indices": npy(np.zeros(1, np.int32)),
    "indptr": npy(np.array([0, 1], np.int32)),
}


@pytest.mark.parametrize(
    "changes",
    [
        {"data": b""},
        {"data": npy(np.ones(1), shape=(10**13,))},
        {"data": npy(np.ones(1), shape=(10**30,))},
        {"data": npy(np.ones(1), shape=(-1,))},
        {"data": npy(np.ones(1), descr="|V0")},
        {"data": npy(np.ones(1), descr="|O")},
        {"data": npy(np.array(["a"]))},
        {"shape": npy(np.array([1]))},
        {"shape": npy(np.array(["a", "b"]))},
        {"shape": npy(np.array([-1, 2]))},
        {"shape": npy(np.array([1, 2**62]))},
        {"format": npy(np.array(b"abc"))},
        {"format": npy(np.array(7))},
        {"format": npy(np.array(b"coo")), "row": npy(np.zeros(1, int)), "col": npy(np.zeros(1, int)),
         "shape": npy(np.array([10**9, 1]))},
        {"indptr": npy(np.array([0, 2**31 - 1], np.int32))},
        {"indices": npy(np.array([5], np.int32))},
        {"format": npy(np.array(b"bsr")), "data": npy(np.ones((0, 0, 0)))},
    ],
)  # fmt: skip
def test_npz_files_that_lie(tmp_path, changes):
    """Whatever is in the file, the error is a ValueError with its name, before much is allocated."""
    good = write(tmp_path / "good.npz", npz_members(**CSR))
    assert_same(datasets.load_sparse(good), np.array([[1, 0]], np.float32))
    bad = write(tmp_path / "bad.npz", npz_members(**CSR | changes))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"bad\.npz: "):
        datasets.load_sparse(bad)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_npz_files_with_any_damage(tmp_path):
    rng = random.Random(0)
    seeds = [npz_members(**CSR)]
    for matrix in (csr_array(Y), sparse.coo_array(Y), sparse.bsr_array(Y), sparse.dia_array(Y)):
        stream = io.BytesIO()
        sparse.save_npz(stream, matrix, compressed=False)
        seeds.append(stream.getvalue())
    read = 0
    for i in range(1500):
        data = bytearray(seeds[i % len(seeds)])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if i % 5 == 0:
            del data[rng.randrange(len(data)) :]
        bad = write(tmp_path / "bad.npz", bytes(data))
        try:
            datasets.load_sparse(bad).check_format(full_check=True)
            read += 1
        except ValueError as error:
            assert str(bad) in str(error)
    assert read < 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "rows is empty"),
        (gzip.compress(b""), "rows is empty"),
        (npy(np.ones((2, 2))), "rows is an array of numpy.save; save sparse matrices with scipy.sparse.save"),
    ],
)
def test_files_without_rows(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        datasets.load_xc(write(tmp_path / "rows", content))
    with pytest.raises(ValueError, match="rows: "):
        datasets.load_sparse(tmp_path / "rows")


def test_models_are_no_rows(tmp_path, fitted):
    fitted.save(tmp_path / "m")
    with pytest.raises(ValueError, match="m is a model, not a file of rows"):
        datasets.load_xc(tmp_path / "m")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "csv"}, "format must be one of 'auto', 'xc', 'split', 'svmlight', not 'csv'"),
        ({"base": 2}, "base must be one of 'auto', 0, 1, not 2"),
        ({"base": True}, "base must be one of"),
        ({"label_base": "auto"}, "label_base must be one of 0, 1, not 'auto'"),
        ({"n_features": 0}, "n_features must be between 1 and 2147483647, not 0"),
        ({"n_labels": -1}, "n_labels must be between 1 and 2147483647, not -1"),
        ({"labels": "y.txt", "format": "xc"}, "format='xc' is a single file; labels must not be given"),
    ],
)
def test_errors_of_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError) as caught:
        datasets.load_xc(write(tmp_path / "train.txt", XC), **arguments)
    assert message in str(caught.value)


def test_any_bytes_give_a_matrix_or_a_message(tmp_path):
    rng = random.Random(0)
    path = tmp_path / "bytes"
    seeds = [XC.encode(), b"3,1 1:2 4:1 # tail\n5:1\n", gzip.compress(XC.encode())]
    read = 0
    for i in range(1500):
        data = bytearray(seeds[i % 3] if i % 4 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice(b"0123456789:,. \n\r#-e\x00\xff")
        path.write_bytes(data)
        try:
            x, y = datasets.load_xc(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            read += 1
            x.check_format(full_check=True)
            y.check_format(full_check=True)
            assert x.shape[0] == y.shape[0] and np.isfinite(x.data).all()
    assert read > 50  # the loop also meets files that are fine


# --- writing --------------------------------------------------------------------------------------

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
def test_round_trip(tmp_path_factory, example, form, base):
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


def test_written_text(tmp_path):
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
    x = sparse.random_array(
        (n, 50), density=0.05, rng=np.random.default_rng(0), dtype=np.float32, format="csr"
    )
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
def test_errors_of_saving(tmp_path, x, y, message):
    with pytest.raises(ValueError) as caught:
        datasets.save_xc(tmp_path / "a.txt", x, y)
    assert message in str(caught.value) and not list(tmp_path.iterdir())


def test_single_npz_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs a second path"):
        datasets.save_xc(tmp_path / "a.npz", X, Y)


# --- known data sets ------------------------------------------------------------------------------


def real_root():
    """The folder of the real data sets, or skip."""
    try:
        return datasets.find("bibtex").parent
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["bibtex", "delicious", "tate", "eurlex57k", "tibkat-core"])
def test_known_data_sets_are_the_reference_matrices(name):
    root = real_root()
    if not (root / "load.py").is_file():
        pytest.skip(f"{root} has no load.py to compare with")
    spec = importlib.util.spec_from_file_location("reference_loader", root / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected, actual = module.load(name), datasets.load(name)
    for ours, theirs in zip(actual[:4], expected, strict=True):
        assert_same(ours, theirs)
    assert len(actual.label_names) == len(set(actual.label_names)) == actual.Y_train.shape[1]
    if actual.feature_names is not None:
        assert len(actual.feature_names) == actual.X_train.shape[1]


@pytest.mark.real_data
def test_other_test_part_and_names():
    real_root()
    held, dev = datasets.load("eurlex57k"), datasets.load("eurlex57k", test="dev")
    assert held.X_test.shape == dev.X_test.shape == (6000, 39209)
    assert (held.X_test != dev.X_test).nnz
    assert held.label_names[:3] == ["import", "export refund", "pip fruit"]
    with pytest.raises(ValueError, match="bibtex has no test part 'dev', only 'tst'"):
        datasets.load("bibtex", test="dev")


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["delicious", "bibtex"])
def test_text_and_matrices_of_a_real_set_agree(name):
    root = real_root()
    data = datasets.load(name)
    for part, x, y in [("trn", data.X_train, data.Y_train), ("tst", data.X_test, data.Y_test)]:
        text = root / name / {"trn": "train.txt", "tst": "test.txt"}[part]
        loaded = datasets.load_xc(text)
        assert_same(loaded[0], x)
        assert_same(loaded[1], y)


def test_data_set_from_a_folder(tmp_path, monkeypatch):
    folder = tmp_path / "bibtex"
    folder.mkdir()
    monkeypatch.setenv("BONSAI_DATA", str(tmp_path))
    assert datasets.find("bibtex") == folder
    for part in ("trn", "tst"):
        for name, matrix in (("X", X), ("Y", Y)):
            sparse.save_npz(folder / f"{name}_{part}.npz", csr_array(matrix))
    write(folder / "labels.txt", "TAG_a\nb\n17\tc\nd\ne\n")
    data = datasets.load("bibtex")
    assert_same(data.X_test, X)
    assert_same(data.Y_train, Y)
    assert data.label_names == ["a", "b", "c", "d", "e"] and data.feature_names is None
    write(folder / "labels.txt", "a\nb\n")
    with pytest.raises(ValueError, match=r"labels\.txt has 2 lines, but there are 5 labels"):
        datasets.load("bibtex")
    (folder / "Y_tst.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"Y_tst\.npz is missing: data set 'bibtex' needs X_trn\.npz"):
        datasets.load("bibtex")


def test_text_set_from_a_folder(tmp_path):
    folder = tmp_path / "tibkat-core"
    folder.mkdir()
    train = (
        '{"title": "old maps", "abstract": null, "subjects": ["gnd:2", "gnd:1", "gnd:2"]}\n'
        '{"title": "old maps", "abstract": "once", "subjects": ["gnd:3"]}\n'
    )
    write(folder / "train.jsonl.gz", gzip.compress(train.encode()))
    held = '{"title": "maps", "abstract": "", "subjects": ["gnd:3", "gnd:9"]}\n'
    write(folder / "dev.jsonl.gz", gzip.compress(held.encode()))
    names = "https://d-nb.info/gnd/1\tSame\nhttps://d-nb.info/gnd/2\tSame\n"
    write(folder / "label_names.tsv.gz", gzip.compress(names.encode()))
    data = datasets.load("tibkat-core", root=tmp_path)
    assert data.feature_names == ["maps", "old"]
    assert data.Y_train.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert data.Y_test.toarray().tolist() == [[0, 0, 1]]
    assert data.label_names == ["Same (gnd:1)", "Same (gnd:2)", "gnd:3"]
    assert data.X_test.toarray().tolist() == [[1, 0]]


def test_missing_and_unknown_data_sets(tmp_path, monkeypatch):
    message = r"metadata of the Tate collection; put train\.jsonl\.gz, test\.jsonl\.gz there"
    with pytest.raises(FileNotFoundError, match=message):
        datasets.find("tate", root=tmp_path)
    message = (
        "at http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K or .* run: bonsai data eurlex57k SOURCE"
    )
    with pytest.raises(FileNotFoundError, match=message):
        datasets.load("eurlex57k", root=tmp_path)
    with pytest.raises(ValueError, match="data set 'tatte' is unknown, there are eurlex57k"):
        datasets.load("tatte")
    with pytest.raises(
        ValueError, match=r"load_xc\(path\) reads its files, make_xmc\('amazoncat-13k'\) generates"
    ):
        datasets.find("amazoncat-13k")


def test_where_data_sets_are_looked_for(tmp_path, monkeypatch):
    """The argument, BONSAI_DATA, the user's data folder; never a place that depends on the checkout."""
    names = ("argument", "variable", "xdg", "home")
    argument, variable, xdg, home = (tmp_path / name for name in names)
    places = [argument, variable, xdg / "bonsai-xmc", home / ".local" / "share" / "bonsai-xmc"]
    for place in places:
        (place / "tate").mkdir(parents=True)
    monkeypatch.setenv("BONSAI_DATA", str(variable))
    monkeypatch.setenv("XDG_DATA_HOME", str(xdg))
    monkeypatch.setenv("HOME", str(home))
    assert datasets.find("tate", root=argument) == argument / "tate"
    assert datasets.find("Tate", root=argument) == argument / "tate"
    for place, name in zip(places[1:], ("BONSAI_DATA", "XDG_DATA_HOME", "HOME"), strict=True):
        assert datasets.find("tate") == place / "tate"
        monkeypatch.delenv(name)


# --- EURLEX57K as its authors publish it ------------------------------------------------------------


def document(celex_id, words, concepts, key="concepts"):
    title, header, recitals, *body = words.split()
    return {
        "celex_id": celex_id,
        "uri": f"http://publications.europa.eu/resource/cellar/{celex_id}",
        "type": "Regulation",
        key: concepts,
        "title": title,
        "header": header,
        "recitals": recitals,
        "main_body": body,
        "attachments": ["neither read nor counted"],
    }


EURLEX = {  # in the order of the published files: brackets sort before the dot of .json
    "train": [
        document("31994D0219(01)", "fish fish law import duty", ["20", "3"]),
        document("31994D0219", "milk milk law import", ["3"]),
        document("32000R0001", "fish milk law once", ["20", "c_1"]),
    ],
    "dev": [document("32001R0001", "fish law law", ["9", "20"])],
    "test": [document("32002R0001", "unseen milk law", [])],
}


def publish(folder, form):
    """The same documents as files of their own, or as lines."""
    for part, documents in EURLEX.items():
        if form == "folders":
            (folder / part).mkdir(parents=True)
            for content in reversed(documents):
                write(folder / part / f"{content['celex_id']}.json", json.dumps(content))
        else:
            folder.mkdir(exist_ok=True)
            lines = [
                json.dumps({"eurovoc_concepts" if k == "concepts" else k: v for k, v in content.items()})
                for content in reversed(documents)
            ]
            write(folder / f"{part}.jsonl", "\n".join(lines))
    return folder


@pytest.mark.parametrize("form", ["folders", "lines"])
def test_eurlex57k_is_laid_out_for_load(tmp_path, form):
    source = publish(tmp_path / "dataset" if form == "folders" else tmp_path / "unpacked", form)
    names = {"3": "adhesive", "20": "export \n refund", "c_1": "staff", "9": "dev only"}
    if form == "folders":
        concepts = {k: {"label": v, "alt_labels": [], "parents": []} for k, v in names.items()}
        write(source / "EURLEX57K.json", json.dumps(concepts))
    else:
        lines = [json.dumps({"id": k, "title": v, "alt_titles": []}) for k, v in names.items()]
        write(source / "eurovoc_concepts.jsonl", "\n".join(lines))
    with pytest.warns(UserWarning, match=r"3 \+ 1 \+ 1 documents and 4 labels instead of 45,000 \+ 6,000"):
        folder = datasets.prepare("eurlex57k", source, tmp_path / "root" / "eurlex57k")
    data = datasets.load("EURLEX57K", root=tmp_path / "root")
    # labels by descending frequency in train, ties by id
    assert data.label_names == ["export refund", "adhesive", "staff", "dev only"]
    assert data.feature_names == ["fish", "import", "law", "milk"]  # in two training documents at least
    assert data.Y_train.toarray().tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
    assert datasets.load("eurlex57k", tmp_path / "root", test="dev").Y_test.toarray().tolist() == [
        [1, 0, 0, 1]
    ]
    assert (data.X_train.toarray() > 0).astype(int).tolist() == [[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]
    texts = [" ".join([d["title"], d["header"], d["recitals"], *d["main_body"]]) for d in EURLEX["train"]]
    expected = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32).fit_transform(texts)
    expected.sort_indices()
    assert_same(data.X_train, expected)
    first = json.loads(gzip.decompress((folder / "train.jsonl.gz").read_bytes()).splitlines()[0])
    assert (first["id"], first["main_body"], first["labels"]) == (
        "31994D0219(01)",
        "import\nduty",
        ["20", "3"],
    )


def test_errors_of_laying_out(tmp_path):
    with pytest.raises(ValueError, match="'tate' cannot be prepared, only 'eurlex57k'"):
        datasets.prepare("tate", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"missing is not a folder; get it from its authors"):
        datasets.prepare("eurlex57k", tmp_path / "missing", tmp_path / "out")
    source = publish(tmp_path / "source", "lines")
    with pytest.raises(ValueError, match="holds the published files; give another folder"):
        datasets.prepare("eurlex57k", source, source)
    write(source / "dev.jsonl", '{"title": "no more"}\n')
    with pytest.raises(ValueError, match=r"dev\.jsonl, line 1 is not a document of EURLEX57K"):
        datasets.prepare("eurlex57k", source, tmp_path / "out")
    (source / "dev.jsonl").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"has neither a folder dev/ with JSON files nor a file dev\.js"
    ):
        datasets.prepare("eurlex57k", source, tmp_path / "out")


@pytest.mark.real_data
def test_eurlex57k_is_laid_out_as_the_reference_matrices(tmp_path):
    """A part of the real documents gives the rows and labels that the reference has for them."""
    root = real_root() / "eurlex57k"
    labels = (root / "labels.txt").read_text("utf-8").splitlines()
    reference = datasets.load_sparse(root / "Y_trn.npz")
    counts = np.bincount(reference.indices, minlength=reference.shape[1])
    ordered = sorted(range(len(labels)), key=lambda i: (-counts[i], labels[i].split("\t")[0]))
    assert ordered == list(range(len(labels)))
    ids = [
        json.loads(line)["id"] for line in gzip.decompress((root / "dev.jsonl.gz").read_bytes()).splitlines()
    ]
    assert ids == sorted(ids, key=lambda i: f"{i}.json")


# --- the paper's data sets ------------------------------------------------------------------------

SHORT = "1 4 5\n3 0:1\n"  # a test file beside XC


def put(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        write(folder / name, content)


SPLIT = {
    "trn_X_Xf.txt": "3 4\n1:0.5 3:-2\n0:0.001\n\n",
    "trn_X_Y.txt": "3 5\n0:1 4:1\n\n2:1\n",
    "tst_X_Xf.txt": "1 4\n0:1\n",
    "tst_X_Y.txt": "1 5\n3:1\n",
}


@pytest.mark.parametrize(
    ("name", "folder", "files"),
    [
        ("eurlex-4k", "Eurlex", {"eurlex_train.txt": XC, "eurlex_test.txt": SHORT}),
        ("wiki10-31k", "Wiki10", {"wiki10_train.txt": XC, "wiki10_test.txt": SHORT}),
        ("wiki10-31k", "Wiki10.bow", {"train.txt": XC, "test.txt": SHORT}),
        ("wikilshtc-325k", "WikiLSHTC", {"wikiLSHTC_train.txt": XC, "wikiLSHTC_test.txt": SHORT}),
        (
            "wikipedia-500k",
            "WikipediaLarge-500K",
            {"WikipediaLarge-500K_train.txt": XC, "WikipediaLarge-500K_test.txt": SHORT},
        ),
        ("amazon-670k", "Amazon", {"amazon_train.txt": XC, "amazon_test.txt": SHORT}),
        ("amazon-670k", "Amazon-670K.bow", {"train.txt": XC, "test.txt": SHORT}),
        ("amazon-3m", "Amazon-3M", {"amazon-3M_train.txt": XC, "amazon-3M_test.txt": SHORT}),
        ("amazon-3m", "Amazon-3M.bow", SPLIT),
    ],
)
def test_layouts_of_the_papers_sets(tmp_path, name, folder, files):
    """Files as the archive holds them: in the set's own folder, in the archive's inside it, in that alone."""
    for i, place in enumerate([name, f"{name}/{folder}", folder]):
        root = tmp_path / str(i)
        put(root / place, files)
        assert datasets.find(name, root) == root / place
        with pytest.warns(UserWarning, match=r"is not the .* of the paper \(Table 1\)"):
            data = datasets.load(name, root)
        assert_same(data.X_train, X)
        assert_same(data.Y_train, Y)
        assert_same(data.X_test, np.array([[1, 0, 0, 0]], np.float32))
        assert_same(data.Y_test, np.array([[0, 0, 0, 1, 0]], np.float32))
        assert data.label_names is None


def test_quirks_of_the_papers_sets(tmp_path):
    """Compressed files, repeated labels in any order, a test header with fewer columns, names."""
    put(
        tmp_path / "eurlex-4k",
        {
            "train.txt.gz": gzip.compress(XC.replace("0,4", "4,0,4").encode()),
            "test.txt.gz": gzip.compress(b"1 1 4\n3 0:1\n"),
            "labels.txt": "a\nb\nc\nd\ne\n",
        },
    )
    with pytest.warns(UserWarning, match="3 training rows instead of 15,539, 1 test rows instead of 3,809"):
        data = datasets.load("eurlex-4k", tmp_path, test="tst")
    assert_same(data.Y_train, Y)
    assert data.X_test.shape == (1, 4) and data.Y_test.shape == (1, 5)
    assert data.label_names == list("abcde")
    with pytest.raises(ValueError, match="eurlex-4k has no test part 'dev', only 'tst'"):
        datasets.load("eurlex-4k", tmp_path, test="dev")


@pytest.mark.parametrize("name", datasets.PAPER)
def test_a_missing_set_of_the_paper(tmp_path, name):
    about = datasets.PAPER[name]
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load(name, tmp_path)
    for part in (
        f"data set {name!r} is not in {tmp_path}",
        f'"BoW Features" of {about.title} from http://manikvarma.org/downloads/XC/XMLRepository.html',
        f"put into {tmp_path / name} what",
        f"{about.stem}_train.txt and {about.stem}_test.txt",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("missing", SPLIT)
def test_a_missing_file_of_a_set_of_the_paper(tmp_path, missing):
    put(tmp_path / "amazon-3m", SPLIT)
    (tmp_path / "amazon-3m" / missing).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load("amazon-3m", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'amazon-3m' / missing} missing: fetch the")


def test_a_missing_test_file_of_a_set_of_the_paper(tmp_path):
    put(tmp_path / "Eurlex", {"eurlex_train.txt": XC})
    with pytest.raises(FileNotFoundError, match=r"Eurlex/eurlex_test\.txt missing: fetch"):
        datasets.load("eurlex-4k", tmp_path)


def test_statistics_by_hand():
    data = datasets.Dataset(csr_array(X), csr_array(Y), csr_array(X[:1]), csr_array(Y[:1]), None, None)
    assert datasets.statistics(data) == (3, 1, 5, 4, 3 / 5, 3 / 3, 5 / 5, 5 / 4)


def papers_figures(about):
    """Statistics that agree with Table 1; the mean that it does not show is far off."""
    shown = (about.rows_per_label, about.labels_per_row)
    means = (-1, -1, *shown) if about.counts_test else (*shown, -1, -1)
    return Statistics(about.n_rows, about.n_test, about.n_labels, about.n_features, *means)


@pytest.mark.parametrize("about", datasets.PAPER.values(), ids=datasets.PAPER)
def test_each_figure_of_table_1_is_checked(about):
    same = papers_figures(about)
    assert about.differences(same) == []
    for field in ("n_rows", "n_test", "n_labels", "n_features"):
        more = same._replace(**{field: getattr(same, field) + 1})
        (text,) = about.differences(more)
        assert text.startswith(f"{getattr(same, field) + 1:,} ")
        assert text.endswith(f" instead of {getattr(same, field):,}")
    for field in ("rows_per_label", "labels_per_row"):
        shown = field + "_all" * about.counts_test
        near, far = (same._replace(**{shown: getattr(same, shown) + by}) for by in (0.09, 0.2))
        assert about.differences(near) == []
        assert len(about.differences(far)) == 1


def test_the_paper_and_the_generator_know_the_same_sets():
    """Two lists of the same figures; the paper's number of rows of Amazon-670K is a misprint."""
    for name, about in datasets.PAPER.items():
        shape = datasets.SHAPES[name]
        for field in ("n_rows", "n_test", "n_labels", "n_features"):
            misprint = (name, field) == ("amazon-670k", "n_rows")
            assert (getattr(shape, field) != getattr(about, field)) == misprint
        assert abs(shape.labels_per_row - about.labels_per_row) <= 0.1
        rows = shape.n_rows + about.counts_test * shape.n_test
        assert rows * shape.labels_per_row / shape.n_labels == pytest.approx(about.rows_per_label, rel=0.03)
        assert about.propensity == metrics.PROPENSITY[name]
    assert (
        datasets.PAPER["amazon-670k"].differences(
            papers_figures(datasets.PAPER["amazon-670k"])._replace(n_rows=490_449)
        )
        == []
    )
