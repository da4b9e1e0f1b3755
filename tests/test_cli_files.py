"""Inputs and outputs of the command line: pipes, compressed files, ids, numbers of columns."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, _cli, datasets, metrics
from helpers import error_of

BONSAI = [sys.executable, "-m", "bonsai_xmc"]


@pytest.fixture(scope="module")
def data(cli_data):
    return cli_data


@pytest.fixture(scope="module")
def folder(cli_folder):
    return cli_folder


# Files and pipes


@pytest.mark.parametrize(
    "line",
    [
        "train {0}/train.txt -o {0}/train.txt",
        "train {0}/train.txt -o {0}/../{1}/train.txt",
        "train {0}/train.txt -o {0}/symbolic",
        "train {0}/symbolic -o {0}/train.txt",
        "train {0}/train.txt -o {0}/hard",
        "train X.npz {0}/Y.npz -o {0}/Y.npz",
        "train {0} -o {0}/train.txt",
        "train train.txt --params {0}/p.json -o {0}/p.json",
        "train train.txt --tree {0}/tree.json -o {0}/tree.json",
        "train train.txt --representation {0}/Y.npz -o {0}/Y.npz",
        "predict {0}/model {0}/train.txt -o {0}/model",
        "predict {0}/model {0}/train.txt -o {0}/train.txt",
        "predict {0}/model {0} --split trn -o {0}/train.txt",
        "predict {0}/model train.txt --label-names {0}/names -o {0}/names",
    ],
)
def test_an_output_never_overwrites_an_input(bonsai, tmp_path, folder, line):
    for name in ("train.txt", "Y.npz", "model"):
        (tmp_path / name).write_bytes((folder / (f"{name}.bonsai" if name == "model" else name)).read_bytes())
    (tmp_path / "symbolic").symlink_to(tmp_path / "train.txt")
    (tmp_path / "hard").hardlink_to(tmp_path / "train.txt")
    (tmp_path / "names").write_text("name\n" * 40)
    (tmp_path / "p.json").write_text("{}")
    (tmp_path / "tree.json").write_text("[1]")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    error = error_of(bonsai, *line.format(tmp_path, tmp_path.name).split())
    assert re.fullmatch(r"the output \S+ is the input \S+; it would be overwritten", error)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_older_output_beside_the_input_is_overwritten(bonsai, tmp_path, folder):
    (tmp_path / "train.txt").write_bytes((folder / "train.txt").read_bytes())
    (tmp_path / "m").write_bytes(b"old")
    bonsai("train", tmp_path, "-o", tmp_path / "m", "-q")
    assert Bonsai.load(tmp_path / "m").n_rows_fit_ == 300


@pytest.fixture
def stdin(monkeypatch):
    """Return a function that sets the standard input of the next command."""

    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def test_a_dash_reads_data_or_model_from_standard_input(bonsai, tmp_path, folder, stdin):
    train, test, model = ((folder / name).read_bytes() for name in ("train.txt", "test.txt", "model.bonsai"))
    small = ("--classifiers=leaf", "--branching-factor=5")
    for content in (train, gzip.compress(train), bz2.compress(train), lzma.compress(train)):
        stdin(content)
        bonsai("train", "-", "-o", tmp_path / "m", *small)
        assert (tmp_path / "m").read_bytes() == model
    stdin((folder / "Y.npz").read_bytes())
    expected = bonsai("evaluate", "model.bonsai", "X.npz", "Y.npz")
    stdin((folder / "Y.npz").read_bytes())
    assert bonsai("evaluate", "model.bonsai", "X.npz", "-") == expected
    stdin(test)
    assert bonsai("evaluate", "model.bonsai", "-") == expected
    stdin(model)
    assert bonsai("evaluate", "-", "test.txt") == expected
    stdin(model)
    assert "branching_factor" in bonsai("info", "-")
    predictions = bonsai("predict", "model.bonsai", "test.txt")
    for line, content in ((["-", "test.txt"], model), (["model.bonsai", "-"], test)):
        stdin(content)
        assert bonsai("predict", *line) == predictions
    stdin(predictions.encode())
    assert bonsai("evaluate", "-", "test.txt", "--train", "train.txt") == expected
    stdin("".join(f"label {i}\n" for i in range(40)).encode())
    assert '"name": "label 3"' in bonsai("predict", "model.bonsai", "test.txt", "--label-names", "-")


def test_a_dash_writes_the_model_to_standard_output(folder, capfdbinary, monkeypatch):
    monkeypatch.chdir(folder)
    for options in ([], ["--json"], ["-q"]):
        line = ["train", "train.txt", "-o", "-", "--classifiers=leaf", "--branching-factor=5", *options]
        assert _cli.main(line) == 0
        captured = capfdbinary.readouterr()
        assert captured.out == (folder / "model.bonsai").read_bytes()
        assert (b"40, " in captured.err or b'"labels": 40' in captured.err) == (options != ["-q"])


def test_predictions_on_standard_output(bonsai):
    assert bonsai("predict", "model.bonsai", "test.txt", "-o", "-") == bonsai(
        "predict", "model.bonsai", "test.txt"
    )


def test_messages_about_standard_input(bonsai, tmp_path, stdin):
    stdin(b"")
    assert error_of(bonsai, "train", "-", "-o", tmp_path / "m") == "standard input is empty"
    stdin(b"1 2 3\n9 0:1\n")
    assert error_of(bonsai, "train", "-", "-o", tmp_path / "m").startswith(
        "standard input: line 2, column 1: "
    )
    stdin(gzip.compress(b"1 2 3\n")[:-9])
    assert error_of(bonsai, "train", "-", "-o", tmp_path / "m").startswith(
        "standard input: damaged gzip data"
    )
    stdin(b"no model")
    assert error_of(bonsai, "info", "-").startswith("standard input is not a bonsai-xmc model")
    error = error_of(bonsai, "train", "-", "-", "-o", tmp_path / "m")
    assert error == "standard input (-) can be one of the inputs only"
    assert os.listdir(tmp_path) == []


def shell(folder, command):
    env = os.environ | {"bonsai": " ".join(BONSAI)}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=env, capture_output=True, timeout=60
    )


def test_pipes_work_as_input_and_output(folder, tmp_path):
    """Compressed, named and anonymous pipes, at both ends."""
    small = "--classifiers=leaf --branching-factor=5 -q"
    model = (folder / "model.bonsai").read_bytes()
    for source in ("gzip -c train.txt | $bonsai train -", "$bonsai train <(gzip -c train.txt)"):
        done = shell(folder, f"{source} -o {tmp_path}/m {small}")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert (tmp_path / "m").read_bytes() == model
    done = shell(folder, f"$bonsai train train.txt -o - {small} | $bonsai predict - test.txt | "
                         f"$bonsai evaluate - test.txt -k 5 --json")  # fmt: skip
    assert done.returncode == 0
    expected = shell(folder, "$bonsai evaluate model.bonsai test.txt -k 5 --json")
    assert json.loads(done.stdout)["P@5"] == json.loads(expected.stdout)["P@5"]
    plain = shell(folder, "$bonsai predict model.bonsai test.txt").stdout
    done = shell(folder, f"$bonsai predict model.bonsai test.txt -o >(cat > {tmp_path}/p); wait $!")
    assert (tmp_path / "p").read_bytes() == plain
    assert shell(folder, "$bonsai predict model.bonsai test.txt -o /dev/stdout").stdout == plain


# Ids and numbers of features


@pytest.fixture
def svmlight(tmp_path, data):
    """Write svmlight files of both bases; the test rows do not use the first feature."""
    X_test = data.X_test.tolil()
    X_test[:, 0] = 0
    X_test = X_test.tocsr()
    for base in (0, 1):
        for name, X, Y in (("train", data.X_train, data.Y_train), ("test", X_test, data.Y_test)):
            datasets.save_xc(tmp_path / f"{name}{base}.svm", X, Y, format="svmlight", base=base)
    assert data.X_train[:, [0]].nnz
    return tmp_path, X_test


def test_queries_follow_the_base_of_the_training_file(bonsai, svmlight, data):
    path, X_test = svmlight
    ids, _ = Bonsai().fit(data.X_train, data.Y_train).top_k(X_test, 5)
    expected = metrics.evaluate(data.Y_test, ids, data.Y_train)
    for base, option in ((0, []), (1, ["--base", 1])):
        bonsai("train", path / f"train{base}.svm", "-o", path / "m", "--n-labels", 40, *option)
        result = bonsai("evaluate", path / "m", path / f"test{base}.svm", "--coverage", "--json")
        assert json.loads(result) == pytest.approx(expected)
        predicted = bonsai("predict", path / "m", path / f"test{base}.svm")
        assert predicted == bonsai("predict", path / "m", path / f"test{base}.svm", "--base", base)
    assert predicted != bonsai("predict", path / "m", path / "test0.svm", "--base", 1)


def test_an_unknown_base_is_an_error(bonsai, svmlight):
    path, _ = svmlight
    error = error_of(bonsai, "train", path / "train1.svm", "-o", path / "m")
    assert "train1.svm: feature ids may begin at 0 or at 1" in error
    assert "--base 0 or --base 1" in error
    # a model trained on a file with a header has no base of ids
    assert "may begin at 0 or at 1" in error_of(bonsai, "predict", "model.bonsai", path / "test0.svm")
    bonsai("train", path / "train1.svm", "-o", path / "m", "--base", 1)
    error = error_of(bonsai, "predict", path / "m", path / "train0.svm")
    assert (
        "the feature id 0 occurs, so ids begin at 0 here, but they began at 1 in the training file" in error
    )
    assert bonsai("predict", path / "m", path / "train0.svm", "--base", 0)
    datasets.save_xc(path / "headed.txt", svmlight[1], np.zeros((80, 40)))
    error = error_of(bonsai, "predict", path / "m", path / "headed.txt")
    assert "the id 0 does not occur; pass --base 0 or --base 1" in error


def test_other_numbers_of_columns_are_refused(bonsai, tmp_path, data):
    narrow, wide = data.X_test[:, :100], sp.hstack([data.X_test, data.X_test[:, :1]], format="csr")
    few, many = data.Y_test[:, :30], sp.hstack([data.Y_test, data.Y_test[:, :1]], format="csr")
    for X in (narrow, wide):
        datasets.save_xc(tmp_path / "test.txt", X, data.Y_test)
        datasets.save_xc(tmp_path / "X.npz", X, data.Y_test, tmp_path / "Y.npz")
        datasets.save_xc(tmp_path / "X.txt", X, data.Y_test, tmp_path / "Y.txt")
        for name in ("test.txt", "X.npz", "X.txt"):
            error = error_of(bonsai, "predict", "model.bonsai", tmp_path / name)
            assert error == f"{tmp_path / name}: there are {X.shape[1]} features, but model.bonsai has 120"
        assert "features, but" in error_of(bonsai, "evaluate", "model.bonsai", tmp_path / "test.txt")
    assert error_of(bonsai, "predict", "model.bonsai", "Y.npz") == (
        "Y.npz: there are 40 features, but model.bonsai has 120"
    )
    bonsai("predict", "model.bonsai", "test.txt", "-o", tmp_path / "p.txt")
    for Y in (few, many):
        datasets.save_xc(tmp_path / "test.txt", data.X_test, Y)
        datasets.save_xc(tmp_path / "X.npz", data.X_test, Y, tmp_path / "Y.npz")
        for name, owner in (("model.bonsai", "model.bonsai"), (tmp_path / "p.txt", tmp_path / "p.txt")):
            error = error_of(bonsai, "evaluate", name, tmp_path / "test.txt")
            assert error == f"{tmp_path / 'test.txt'}: there are {Y.shape[1]} labels, but {owner} has 40"
            assert "labels, but" in error_of(bonsai, "evaluate", name, "X.npz", tmp_path / "Y.npz")
            line = ("evaluate", name, "test.txt", "--train", tmp_path / "Y.npz")
            assert "labels, but" in error_of(bonsai, *line)


def test_predictions_of_fewer_labels_than_the_cutoff(bonsai, tmp_path):
    bonsai("predict", "model.bonsai", "test.txt", "-k", 3, "-o", tmp_path / "p.txt")
    error = error_of(bonsai, "evaluate", tmp_path / "p.txt", "test.txt")
    assert "k is 5, but" in error and "has at most 3 labels in a row; predict at least 5 labels" in error
    assert "@3" in bonsai("evaluate", tmp_path / "p.txt", "test.txt", "-k", 1, 3)


def test_default_k_is_cut_to_the_number_of_labels(bonsai, tmp_path):
    """The default of -k works for any model; larger values give all labels."""
    (tmp_path / "two.txt").write_text("4 3 2\n0 0:1\n1 1:1\n0,1 0:1 1:1\n1 2:1\n")
    out = bonsai("train", tmp_path / "two.txt", "-o", tmp_path / "m")
    assert "n_trees" not in bonsai("info", tmp_path / "m")
    assert "tree 1" not in out
    first = bonsai("predict", tmp_path / "m", tmp_path / "two.txt")
    assert first == bonsai("predict", tmp_path / "m", tmp_path / "two.txt", "-k", 2)
    assert bonsai("evaluate", tmp_path / "m", tmp_path / "two.txt").split()[:1] == ["@1"]
    assert "k must lie between 1 and the number of labels, 2; got 3" in error_of(
        bonsai, "evaluate", tmp_path / "m", tmp_path / "two.txt", "-k", 3
    )
    bonsai("train", tmp_path / "two.txt", "-o", tmp_path / "m", "--classifiers=leaf")
    assert "1 node, 1 leaf, depth 1\n" in bonsai("info", tmp_path / "m")


def test_compressed_input_is_recognised_and_output_follows_its_suffix(bonsai, tmp_path, folder):
    """Input is recognised by its content; output is compressed by its name."""
    plain = bonsai("predict", "model.bonsai", "test.txt")
    for ending, pack, unpack in (
        ("gz", gzip.compress, gzip.decompress),
        ("bz2", bz2.compress, bz2.decompress),
        ("xz", lzma.compress, lzma.decompress),
    ):
        path = tmp_path / f"test.txt.{ending}"
        path.write_bytes(pack((folder / "test.txt").read_bytes()))
        assert bonsai("predict", "model.bonsai", path) == plain
        bonsai("predict", "model.bonsai", "test.txt", "-o", tmp_path / f"p.{ending}")
        assert unpack((tmp_path / f"p.{ending}").read_bytes()).decode() == plain
        table = bonsai("evaluate", tmp_path / f"p.{ending}", path, "--train", "train.txt")
        assert table == bonsai("evaluate", "model.bonsai", "test.txt")
        path.write_bytes(path.read_bytes()[:-20])
        assert f"test.txt.{ending}: damaged " in error_of(bonsai, "predict", "model.bonsai", path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04", "not a file of scipy.sparse.save_npz"),
        (b"PK\x05\x06" + bytes(18), "not a file of scipy.sparse.save_npz"),
        (b"\x93NUMPY", "numpy.save"),
    ],
)
def test_empty_files_are_errors(bonsai, tmp_path, content, message):
    (tmp_path / "rows").write_bytes(content)
    for line in (
        ("train", tmp_path / "rows", "-o", tmp_path / "m"),
        ("train", "X.npz", tmp_path / "rows", "-o", tmp_path / "m"),
        ("predict", "model.bonsai", tmp_path / "rows"),
        ("evaluate", "model.bonsai", tmp_path / "rows"),
        ("evaluate", tmp_path / "rows", "test.txt"),
    ):
        assert str(tmp_path / "rows") in error_of(bonsai, *line)
    assert message in error_of(bonsai, "predict", "model.bonsai", tmp_path / "rows")
