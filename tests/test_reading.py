"""Files of rows and labels: valid ones are read, others are refused."""

import gzip
import io
import random
import tracemalloc
import zipfile

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from bonsai_xmc import datasets
from helpers import random_csr
from xc_files import XC, X, Y, assert_same, write


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
def test_xc_files_are_read_in_every_spelling(tmp_path, content):
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
    """Arrays over labels would take gigabytes."""
    header = "1 100000000 5" if what == "features" else "1 5 100000000"
    path = write(tmp_path / "tiny.txt", f"{header}\n0 0:1\n")
    message = rf"tiny\.txt: 100,000,000 {what} by the header or the largest id, but the whole file has 20 b"
    with pytest.raises(ValueError, match=message):
        datasets.load_xc(path)
    given = datasets.load_xc(path, **{f"n_{what}": 100_000_000})
    assert given[what == "labels"].shape == (1, 100_000_000)
    (tmp_path / "tiny.svm").write_text("2147483646 0:1\n" if what == "labels" else "0 0:1 2147483646:1\n")
    message = rf"tiny\.svm: 2,147,483,647 {what} by the header or the largest id, but the whole file"
    with pytest.raises(ValueError, match=message):
        datasets.load_xc(tmp_path / "tiny.svm")
    plausible = write(tmp_path / "wide.txt", "1 5 3000000\n2999999 0:1\n")  # of a set with many labels
    assert datasets.load_xc(plausible)[1].shape == (1, 3_000_000)


def test_features_and_labels_may_be_in_two_files(tmp_path):
    features = write(tmp_path / "trn_X_Xf.txt", "3 4\n1:0.5 3:-2\n0:0.001\n\n")
    labels = write(tmp_path / "trn_X_Y.txt.gz", gzip.compress(b"3 5\n4:1.0 0:1\n1:0\n2:1\n"))
    for arguments in [(features, labels), (str(features), str(labels)), (tmp_path,)]:
        loaded = datasets.load_xc(*arguments)
        assert_same(loaded[0], X)
        assert_same(loaded[1], Y)


@pytest.mark.parametrize("pattern", ["{}_trn.npz", "{}.trn.npz"])
def test_npz_pairs_are_read_by_path_or_folder(tmp_path, pattern):
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


def test_svmlight_ids_that_fit_both_bases_need_one(tmp_path):
    zero = write(tmp_path / "zero.svm", "# comment\n1,0 0:1 2:2 # more 9:9\n\n2 1:3\n")
    one = write(tmp_path / "one.svm", "1,0 1:1 3:2\n2 2:3\n")
    expected = np.array([[1, 0, 2], [0, 3, 0]])
    for path, base in [(zero, "auto"), (zero, 0), (one, 1)]:
        loaded = datasets.load_xc(path, base=base)
        assert_same(loaded[0], expected.astype(np.float32))
        assert_same(loaded[1], np.array([[1, 1, 0], [0, 0, 1]], np.float32))
    assert datasets.load_xc(one, base=0)[0].shape == (2, 4)
    with pytest.raises(ValueError, match=r"one\.svm: feature ids may begin at 0 or at 1"):
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
    x = random_csr((50, 30), density=0.2, rng=rng, dtype=np.float32)
    y = (random_csr((50, 12), density=0.2, rng=rng) > 0).astype(np.float32)
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
        ("3 4 5 6\n", "line 1: the header must be 'rows features labels' as integers, not '3 4 5 6'"),
        ("a 4 5\n", "line 1: the header must be"),
        ("1 -0 5\n0 1:1\n", "line 1: the header must be 'rows features labels' as integers, not '1 -0 5'"),
        ("1 4 5\n-0 1:1\n", "line 2, column 1: negative label id '-0'"),
        ("1 4 5\n0 -00:1\n", "line 2, column 3: negative feature id '-00:1'"),
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
            "2,147,483,648 features by the header; at most 2,147,483,647 are possible",
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


def test_damaged_npz_files_are_rejected(tmp_path):
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
    """Return the bytes of an .npz file with these members, which may be anything."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def npy(array, **changes):
    """Return the bytes of an array, with another header."""
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
def test_npz_files_with_false_headers(tmp_path, changes):
    """Any damage gives a ValueError with the name of the file, before much is allocated."""
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
        (gzip.compress(b"", mtime=0), "rows is empty"),
        (npy(np.ones((2, 2))), "rows is an array of numpy.save; save sparse matrices with scipy.sparse.save"),
    ],
)
def test_files_without_rows_are_rejected(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        datasets.load_xc(write(tmp_path / "rows", content))
    with pytest.raises(ValueError, match="rows: "):
        datasets.load_sparse(tmp_path / "rows")


def test_model_files_are_rejected_as_rows(tmp_path, fitted):
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
def test_contradictory_arguments_are_rejected(tmp_path, arguments, message):
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
    assert read > 50  # the loop also includes valid files
