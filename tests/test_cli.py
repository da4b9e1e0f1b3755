"""The command line: what each command prints and writes, how it ends, and what it leaves behind."""

import bz2
import contextlib
import gzip
import inspect
import io
import json
import lzma
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import bonsai_xmc
from bonsai_xmc import Bonsai, LabelTree, _cli, _progress, datasets, metrics
from bonsai_xmc._cli import arguments, train
from bonsai_xmc._cli.io import Inputs
from bonsai_xmc._progress import ProgressBar
from bonsai_xmc._store import container

BONSAI = [sys.executable, "-m", "bonsai_xmc"]


@pytest.fixture(scope="module")
def data():
    return datasets.make_xmc(
        n_rows=300,
        n_test=80,
        n_features=120,
        n_labels=40,
        features_per_row=20,
        labels_per_row=2,
        random_state=0,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    """Training and test data in several formats, and a model."""
    path = tmp_path_factory.mktemp("cli")
    datasets.save_xc(path / "train.txt", data.X_train, data.Y_train)
    datasets.save_xc(path / "test.txt", data.X_test, data.Y_test)
    datasets.save_xc(path / "test.svm", data.X_test, data.Y_test, format="svmlight", base=1)
    datasets.save_xc(path / "tst_X_Xf.txt.gz", data.X_test, data.Y_test, path / "tst_X_Y.txt")
    datasets.save_xc(path / "X.npz", data.X_test, data.Y_test, path / "Y.npz")
    model = Bonsai(classifiers="leaf", branching_factor=5, n_jobs=1).fit(data.X_train, data.Y_train)
    model.save(path / "model.bonsai")
    return path


def error_of(bonsai, *args):
    """The error line of a command that fails: alone on standard error, and nothing on standard output."""
    assert bonsai(*args, code=1) == ""
    assert bonsai.error.startswith("bonsai: error: ")
    assert bonsai.error.count("\n") == 1
    assert bonsai.error.endswith("\n")
    return bonsai.error.removeprefix("bonsai: error: ").rstrip("\n")


def estimator_of(*line):
    """The estimator that `bonsai train` would fit."""
    args = arguments.make_parser().parse_args(line)
    return train.estimator(args.preset, train.given_parameters(args), Inputs())


# train


def test_training_writes_the_model_that_python_would(bonsai, tmp_path, folder):
    out = bonsai("train", "train.txt", "-o", tmp_path / "m", "--classifiers", "leaf", "--branching-factor", 5)
    assert (tmp_path / "m").read_bytes() == (folder / "model.bonsai").read_bytes()
    first, *table = out.splitlines()
    assert first.startswith("about ") and "of memory to train, about " in first
    names = [line.split("  ")[0] for line in table]
    assert names == [
        "model", "rows", "features", "labels", "ranked by", "tree 1", "tree 2", "tree 3",
        "reading", "label vectors", "trees", "classifiers", "saving", "total",
    ]  # fmt: skip
    assert bonsai.error == ""


def test_training_in_json(bonsai, tmp_path):
    report = json.loads(bonsai("train", "train.txt", "-o", tmp_path / "m", "--json", "--preset", "dismec"))
    model = Bonsai.load(tmp_path / "m")
    assert report["rows"] == 300
    assert report["features"] == 120
    assert report["labels"] == 40
    assert report["labels_with_rows"] == model.trees_[0].n_labels
    assert report["bytes"] == (tmp_path / "m").stat().st_size
    assert report["trees"] == [{"nodes": 1, "leaves": 1, "depth": 1, "labels": model.trees_[0].n_labels}]
    assert report["params"]["prune"] == 0.01
    assert report["estimate"].keys() == {"training_bytes", "model_bytes"}
    assert report["seconds"]["total"] >= report["seconds"]["classifiers"] > 0


def test_quiet_training_prints_nothing(bonsai, tmp_path):
    assert bonsai("train", "train.txt", "-o", tmp_path / "m", "-q") == ""
    assert bonsai.error == ""


def test_verbose_training_prints_a_line_for_each_phase(bonsai, tmp_path):
    bonsai("train", "train.txt", "-o", tmp_path / "m", "--verbose", 1, "--preset", "bonsai-i")
    assert [line[:14].strip() for line in bonsai.error.splitlines()] == [
        "label vectors",
        "trees",
        "classifiers",
    ]


def test_every_parameter_has_an_option():
    signature = inspect.signature(Bonsai).parameters
    assert list(arguments.PARAMETERS) == list(signature)
    args = arguments.make_parser().parse_args(["train", "x", "-o", "y"])
    assert not vars(args).keys() & signature.keys()  # defaults stay where they are


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--representation=joint", {"representation": "joint"}),
        ("--n-trees=2", {"n_trees": 2}),
        ("--max-leaf-size=7", {"max_leaf_size": 7}),
        ("--max-depth=none", {"max_depth": None}),
        ("--balanced", {"balanced": True}),
        ("--no-normalize", {"normalize": False}),
        ("--kmeans-init=k-means++", {"kmeans_init": "k-means++"}),
        ("--C=0.5", {"C": 0.5}),
        ("--bias=-1", {"bias": -1.0}),
        ("--bias=learn", {"bias": "learn"}),
        ("--beam-size=none", {"beam_size": None}),
        ("--classifiers=one_vs_rest", {"classifiers": "one_vs_rest"}),
        ("--search=beam", {"search": "beam"}),
        ("--path-weight=0.1", {"path_weight": 0.1}),
        ("--bias=auto", {"bias": "auto"}),
        ("--tol=0.01", {"tol": 0.01}),
    ],
)
def test_options_become_parameters(option, expected):
    model = estimator_of("train", "x", "-o", "y", option)
    assert model.get_params() == Bonsai(**expected).get_params()


@pytest.mark.parametrize("options", [[], ["--random-state=9"], ["--n-jobs=1", "--max-labels=7"]])
def test_without_options_the_defaults_of_python_hold(options):
    args = arguments.make_parser().parse_args(["train", "x", "-o", "y", *options])
    given = {name: value for name, value in vars(args).items() if name in arguments.PARAMETERS}
    assert estimator_of("train", "x", "-o", "y", *options).get_params() == Bonsai(**given).get_params()


def test_options_win_over_the_parameter_file_which_wins_over_the_preset(tmp_path):
    (tmp_path / "p.json").write_text('{"max_leaf_size": 50, "tol": 0.01, "bias": -1}')
    line = [
        "train",
        "x",
        "-o",
        "y",
        "--preset",
        "parabel",
        "--params",
        str(tmp_path / "p.json"),
        "--tol",
        "0.2",
    ]
    model = estimator_of(*line)
    expected = Bonsai.preset("parabel", max_leaf_size=50, bias=-1, tol=0.2)
    assert model.get_params() == expected.get_params()


def test_a_tree_from_a_file(bonsai, tmp_path):
    tree = LabelTree.from_nested([list(range(20)), list(range(20, 40))])
    tree.to_json(tmp_path / "tree.json")
    bonsai(
        "train", "train.txt", "-o", tmp_path / "m", "--classifiers", "leaf", "--tree", tmp_path / "tree.json"
    )
    (used,) = Bonsai.load(tmp_path / "m").trees_
    assert used.n_nodes == 3
    assert set(used.labels(1)) <= set(range(20))
    (tmp_path / "p.json").write_text(json.dumps({"tree": str(tmp_path / "tree.json"), "classifiers": "leaf"}))
    bonsai("train", "train.txt", "-o", tmp_path / "m2", "--params", tmp_path / "p.json")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "m2").read_bytes()


def test_label_vectors_from_a_file(bonsai, tmp_path, data):
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    sp.save_npz(tmp_path / "v.npz", sp.csr_array(vectors))
    for name in ("v.npy", "v.npz"):
        line = ("--representation", tmp_path / name, "--classifiers", "leaf", "--branching-factor", 4)
        bonsai("train", "train.txt", "-o", tmp_path / name[-3:], *line)
    expected = Bonsai(representation=vectors, classifiers="leaf", branching_factor=4).fit(
        data.X_train, data.Y_train
    )
    assert Bonsai.load(tmp_path / "npy").trees_ == expected.trees_
    assert Bonsai.load(tmp_path / "npz").trees_ == expected.trees_


def test_warnings_are_single_lines(bonsai, tmp_path, monkeypatch):
    def fit(*args, **kwargs):
        import warnings

        warnings.warn("many classifiers did not converge", ConvergenceWarning, stacklevel=2)
        return original(*args, **kwargs)

    original = Bonsai.fit
    monkeypatch.setattr(Bonsai, "fit", fit)
    bonsai("train", "train.txt", "-o", tmp_path / "m")
    assert bonsai.error == "bonsai: warning: many classifiers did not converge\n"


def test_the_default_model_is_that_of_python(bonsai, tmp_path, folder, data):
    Bonsai().fit(data.X_train, data.Y_train).save(tmp_path / "python")
    bonsai("train", "train.txt", "-o", tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "python").read_bytes()
    bonsai("train", "train.txt", "-o", tmp_path / "m", "--tol=0.1", "--max-iter=20", "--normalize")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "python").read_bytes()


def printed_defaults():
    """The options of `bonsai train` for parameters, with the defaults that --help prints."""
    text = " ".join(
        arguments.make_parser()._subparsers._group_actions[0].choices["train"].format_help().split()
    )
    found = {}
    for name in arguments.PARAMETERS:
        option = name.replace("_", "-")
        found[name] = re.search(rf" --{option}[ ,{{].*?\(default: (.*?)\)", text)[1]
    return found


@pytest.mark.parametrize(("name", "printed"), printed_defaults().items())
def test_giving_a_printed_default_changes_nothing(name, printed):
    """Neither the option itself nor any other."""
    if name == "tree":
        assert printed == "none"
        return
    option = f"--{name.replace('_', '-')}"
    line = {"yes": [option], "no": [f"--no-{option[2:]}"]}.get(printed, [f"{option}={printed}"])
    assert estimator_of("train", "x", "-o", "y", *line).get_params() == Bonsai().get_params()


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
    """stdin(bytes): what the next command finds on its standard input."""

    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def test_standard_input(bonsai, tmp_path, folder, stdin):
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
    assert "label 3\t" in bonsai("predict", "model.bonsai", "test.txt", "--label-names", "-")


def test_standard_output(folder, capfdbinary, monkeypatch):
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
    error = error_of(bonsai, "train", "-", "-", "-o", tmp_path / "m")
    assert error == "standard input (-) can be one of the inputs only"
    assert os.listdir(tmp_path) == []


def shell(folder, command):
    env = os.environ | {"bonsai": " ".join(BONSAI)}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=env, capture_output=True, timeout=60
    )


def test_pipes(folder, tmp_path):
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
    """svmlight files of both bases; the test rows do not use the first feature."""
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
        result = bonsai("evaluate", path / "m", path / f"test{base}.svm", "--json")
        assert json.loads(result) == pytest.approx(expected)
        predicted = bonsai("predict", path / "m", path / f"test{base}.svm")
        assert predicted == bonsai("predict", path / "m", path / f"test{base}.svm", "--base", base)
    assert predicted != bonsai("predict", path / "m", path / "test0.svm", "--base", 1)


def test_a_base_that_nothing_tells(bonsai, svmlight):
    path, _ = svmlight
    error = error_of(bonsai, "train", path / "train1.svm", "-o", path / "m")
    assert "train1.svm: feature ids begin at 0 or at 1, and nothing tells which" in error
    assert "--base 0 or --base 1" in error
    # a model that was trained on a file with a header does not know the habits of svmlight files
    assert "nothing tells which" in error_of(bonsai, "predict", "model.bonsai", path / "test0.svm")
    bonsai("train", path / "train1.svm", "-o", path / "m", "--base", 1)
    error = error_of(bonsai, "predict", path / "m", path / "train0.svm")
    assert (
        "the feature id 0 occurs, so ids begin at 0 here, but they began at 1 in the training file" in error
    )
    assert bonsai("predict", path / "m", path / "train0.svm", "--base", 0)
    datasets.save_xc(path / "headed.txt", svmlight[1], np.zeros((80, 40)))
    error = error_of(bonsai, "predict", path / "m", path / "headed.txt")
    assert "say which is right with --base 0 or --base 1" in error


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


def test_few_labels(bonsai, tmp_path):
    """The defaults of -k hold for any model; more labels than there are is all of them."""
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


def test_published_data_are_laid_out(bonsai, tmp_path, monkeypatch):
    monkeypatch.setenv("BONSAI_DATA", str(tmp_path / "root"))
    for part in ("train", "dev", "test"):
        content = {
            "celex_id": part,
            "concepts": ["1"],
            "header": "a word",
            "recitals": "",
            "main_body": ["word"],
        }
        (tmp_path / "source" / part).mkdir(parents=True)
        for i in range(2):
            (tmp_path / "source" / part / f"{i}.json").write_text(json.dumps(content | {"title": "the word"}))
    assert bonsai("data", "eurlex57k", tmp_path / "source") == f"{tmp_path / 'root' / 'eurlex57k'}\n"
    assert bonsai.error.startswith("bonsai: warning: this is not EURLEX57K as published")
    assert datasets.load("eurlex57k").feature_names == ["the", "word"]
    out = bonsai("data", "eurlex57k", tmp_path / "source", "-o", tmp_path / "other", "--json")
    assert json.loads(out) == {"folder": str(tmp_path / "other")}
    assert "missing is not a folder; get it from" in error_of(
        bonsai, "data", "eurlex57k", tmp_path / "missing"
    )


def test_every_compression(bonsai, tmp_path, folder):
    """Input is recognised by its content, output compressed as its name says."""
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
    [(b"", "is empty"), (b"PK\x03\x04", "not a file of scipy.sparse.save_npz"), (b"\x93NUMPY", "numpy.save")],
)
def test_files_that_hold_nothing(bonsai, tmp_path, content, message):
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


# predict


def test_predictions_of_all_formats_are_those_of_python(bonsai, tmp_path, data, folder):
    model = Bonsai.load(folder / "model.bonsai")
    metrics.write_predictions(tmp_path / "expected", *model.top_k(data.X_test, 3), 40)
    expected = (tmp_path / "expected").read_text()
    for source in ("test.txt", "tst_X_Xf.txt.gz", "X.npz"):
        assert bonsai("predict", "model.bonsai", source, "-k", 3) == expected
        assert bonsai("predict", "model.bonsai", source, "-k", 3, "-o", tmp_path / "out") == ""
        assert (tmp_path / "out").read_text() == expected
    assert bonsai("predict", "model.bonsai", "test.svm", "-k", 3, "--base", 1) == expected
    assert bonsai("predict", "model.bonsai", "test.txt").count(":") == 80 * 5


def test_a_folder_means_its_test_part(bonsai, tmp_path, data):
    datasets.save_xc(tmp_path / "train.txt", data.X_train, data.Y_train)
    datasets.save_xc(tmp_path / "test.txt", data.X_test, data.Y_test)
    assert bonsai("predict", "model.bonsai", tmp_path) == bonsai("predict", "model.bonsai", "test.txt")
    trained = bonsai("predict", "model.bonsai", tmp_path, "--split", "trn")
    assert trained == bonsai("predict", "model.bonsai", "train.txt")
    assert bonsai("evaluate", "model.bonsai", tmp_path) == bonsai("evaluate", "model.bonsai", "test.txt")


def test_beam_and_threads_can_be_chosen_for_prediction(bonsai, data, folder):
    model = Bonsai.load(folder / "model.bonsai").set_params(beam_size=1)
    ids, _ = model.top_k(data.X_test, 2)
    out = bonsai("predict", "model.bonsai", "test.txt", "-k", 2, "--beam-size", 1, "--n-jobs", 2, "--json")
    assert [[e["label"] for e in json.loads(line)] for line in out.splitlines()] == [
        [label for label in row if label >= 0] for row in ids.tolist()
    ]
    everything = bonsai("predict", "model.bonsai", "test.txt", "-k", 40, "--beam-size", "none")
    assert everything.count(":") > bonsai(
        "predict", "model.bonsai", "test.txt", "-k", 40, "--beam-size", 1
    ).count(":")
    assert "beam_size is 0" in error_of(bonsai, "predict", "model.bonsai", "test.txt", "--beam-size", 0)
    assert "n_jobs is 0" in error_of(bonsai, "predict", "model.bonsai", "test.txt", "--n-jobs", 0)


@pytest.fixture
def named(tmp_path):
    """A model with names, some of them awkward, and rows of which the last has no features."""
    X = np.eye(3)
    Bonsai().fit(X, [["tab\there"], ["grün"], ["日本", "grün"]]).save(tmp_path / "named")
    (tmp_path / "rows").write_text("2 3\n1:1\n\n")
    return tmp_path


def test_names(bonsai, named):
    out = bonsai("predict", named / "named", named / "rows", "-k", 1, "--names")
    name, score = out.splitlines()[0].split("\t")
    assert name == "grün"
    assert 0 < float(score) <= 1
    assert out.splitlines()[1] == ""
    out = bonsai("predict", named / "named", named / "rows", "-k", 3, "--names")
    assert "tab here" in out.splitlines()[0].split("\t")
    rows = [
        json.loads(l)
        for l in bonsai("predict", named / "named", named / "rows", "-k1", "--json").splitlines()
    ]
    assert rows[0][0]["name"] == "grün"
    assert rows[1] == []
    assert bonsai("predict", named / "named", named / "rows", "-k", 1).splitlines()[0] == "2 3"


def test_names_from_a_file(bonsai, tmp_path):
    (tmp_path / "names").write_text("".join(f"label {i}\n" for i in range(40)))
    plain = bonsai("predict", "model.bonsai", "test.txt", "-k", 2).splitlines()[1:]
    out = bonsai(
        "predict", "model.bonsai", "test.txt", "-k", 2, "--label-names", tmp_path / "names"
    ).splitlines()
    assert [line.split("\t")[0] for line in out] == [f"label {line.split(':')[0]}" for line in plain]
    target = tmp_path / "out.gz"
    bonsai("predict", "model.bonsai", "test.txt", "-k", 2, "--label-names", tmp_path / "names", "-o", target)
    assert gzip.decompress(target.read_bytes()).decode().splitlines() == out
    assert sorted(os.listdir(tmp_path)) == ["names", "out.gz"]


# evaluate


def test_evaluation_of_a_model_is_that_of_python(bonsai, data, folder):
    model = Bonsai.load(folder / "model.bonsai")
    ids, _ = model.top_k(data.X_test, 5)
    expected = metrics.evaluate(data.Y_test, ids, data.Y_train, by_frequency=True)
    result = json.loads(bonsai("evaluate", "model.bonsai", "test.txt", "--by-frequency", "--json"))
    assert result == pytest.approx(expected, abs=1e-9)
    assert (
        bonsai("evaluate", "model.bonsai", "test.txt", "--by-frequency")
        == metrics.format_table(expected) + "\n"
    )
    pair = bonsai("evaluate", "model.bonsai", "tst_X_Xf.txt.gz", "tst_X_Y.txt", "--by-frequency", "--json")
    assert json.loads(pair) == result
    assert (
        json.loads(bonsai("evaluate", "model.bonsai", "X.npz", "Y.npz", "--by-frequency", "--json")) == result
    )
    trained = ("--train", "train.txt", "--by-frequency", "--json")
    assert json.loads(bonsai("evaluate", "model.bonsai", "test.txt", *trained)) == result


def test_evaluation_of_predictions_is_that_of_the_model(bonsai, tmp_path, data, folder):
    expected = json.loads(bonsai("evaluate", "model.bonsai", "test.txt", "-k", 1, 2, "--json"))
    for target in ("p.txt", "p.txt.gz"):
        bonsai("predict", "model.bonsai", "test.txt", "-k", 2, "-o", tmp_path / target)
        for truth in (["test.txt"], ["tst_X_Y.txt"], ["tst_X_Xf.txt.gz", "tst_X_Y.txt"], ["Y.npz"]):
            line = ("evaluate", tmp_path / target, *truth, "-k", 1, 2, "--train", "train.txt", "--json")
            assert json.loads(bonsai(*line)) == pytest.approx(expected)
    scores = Bonsai.load(folder / "model.bonsai").set_params(max_labels=2).predict_proba(data.X_test)
    sp.save_npz(tmp_path / "scores.npz", scores)
    out = bonsai("evaluate", tmp_path / "scores.npz", "test.txt", "-k", 1, 2, "--json")
    assert json.loads(out)["P@2"] == pytest.approx(expected["P@2"])


def test_predictions_without_training_labels_have_no_propensities(bonsai, tmp_path):
    bonsai("predict", "model.bonsai", "test.txt", "-o", tmp_path / "p")
    result = json.loads(bonsai("evaluate", tmp_path / "p", "test.txt", "--json"))
    assert "P@1" in result
    assert "PSP@1" not in result


def test_propensity_parameters(bonsai):
    first = bonsai("evaluate", "model.bonsai", "test.txt", "--propensity", 0.6, 2.6)
    assert first == bonsai("evaluate", "model.bonsai", "test.txt", "--dataset", "amazon-670k")
    assert first != bonsai("evaluate", "model.bonsai", "test.txt")
    assert "unheard-of" in error_of(bonsai, "evaluate", "model.bonsai", "test.txt", "--dataset", "unheard-of")


# info


def test_info(bonsai, folder):
    out = bonsai("info", "model.bonsai", "--verify", "--tree")
    assert "checksums" in out
    assert "branching_factor" in out
    for tree in Bonsai.load(folder / "model.bonsai").trees_:
        assert tree.summary() in out
    assert "checksums" not in bonsai("info", "model.bonsai")


def test_info_in_json(bonsai, folder):
    model = Bonsai.load(folder / "model.bonsai")
    report = json.loads(bonsai("info", "model.bonsai", "--json"))
    assert report["model"] == "model.bonsai"
    assert report["format_version"] == 3
    assert report["params"]["branching_factor"] == 5
    assert report["verified"] is False
    assert [tree["nodes"] for tree in report["trees"]] == [tree.n_nodes for tree in model.trees_]
    with_trees = json.loads(bonsai("info", "model.bonsai", "--json", "--tree", "--verify"))
    assert with_trees["verified"] is True
    assert [LabelTree.from_dict(tree) for tree in with_trees["structures"]] == model.trees_


def test_the_parameters_that_info_prints_can_be_trained_with(bonsai, tmp_path, folder):
    report = json.loads(bonsai("info", "model.bonsai", "--json"))
    (tmp_path / "p.json").write_text(json.dumps(report["params"]))
    bonsai("train", "train.txt", "-o", tmp_path / "m", "--params", tmp_path / "p.json")
    assert (tmp_path / "m").read_bytes() == (folder / "model.bonsai").read_bytes()


def test_info_finds_damage(bonsai, tmp_path, folder):
    blob = bytearray((folder / "model.bonsai").read_bytes())
    blob[-1] ^= 1
    (tmp_path / "damaged").write_bytes(blob)
    assert "damaged: the checksum of tensor" in error_of(bonsai, "info", tmp_path / "damaged", "--verify")


# Errors


@pytest.fixture
def broken(tmp_path, folder):
    model = (folder / "model.bonsai").read_bytes()
    (tmp_path / "cut").write_bytes(model[:-5])
    (tmp_path / "changed").write_bytes(model.replace(b'"params"', b'"pa=ams"'))
    (tmp_path / "foreign").write_bytes(container.dumps({"x": np.zeros(3)}, {"note": "no forest"}))
    (tmp_path / "malformed.txt").write_text("2 3 2\n0 0:1\n1 0:one\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "unknown.json").write_text('{"brunching": 3}')
    (tmp_path / "broken.json").write_text('{"branching_factor": ')
    (tmp_path / "wrong.json").write_text('{"branching_factor": "many"}')
    (tmp_path / "mixed.json").write_text("[[0], 1]")
    (tmp_path / "latin").write_bytes("grün\n".encode("latin-1"))
    (tmp_path / "few").write_text("one\n")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "wide.txt").write_text("1 500\n499:1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train missing.txt -o {0}/m", "missing.txt: No such file or directory"),
        ("train {0}/malformed.txt -o {0}/m", "malformed.txt"),
        ("train train.txt -o {0}/m --branching-factor 1", "branching_factor is 1, but must be"),
        ("train train.txt -o {0}/m --representation inputs", "representation is 'inputs', but must be"),
        (
            "train train.txt -o {0}/m --representation {0}/empty.npy",
            "empty.npy: the file is empty",
        ),
        ("train train.txt -o {0}/m --params {0}/missing.json", "missing.json: No such file or directory"),
        ("train train.txt -o {0}/m --params {0}/list.json", "list.json does not hold a JSON object"),
        (
            "train train.txt -o {0}/m --params {0}/unknown.json",
            "unknown.json: unknown parameter 'brunching'; there",
        ),
        ("train train.txt -o {0}/m --params {0}/broken.json", "broken.json is not valid JSON"),
        ("train train.txt -o {0}/m --params {0}/wrong.json", "branching_factor is 'many', but must be"),
        (
            "train train.txt -o {0}/m --tree {0}/mixed.json",
            "mixed.json: the tree mixes labels (1) with lists",
        ),
        ("train train.txt -o {0}/m --tree {0}/latin", "latin: "),
        ("train tst_X_Xf.txt.gz -o {0}/m", "tst_X_Xf.txt.gz holds features only"),
        ("train train.txt -o {0}/no/m", "/no/m': there is no folder"),
        ("train train.txt -o {0}", "it names a folder"),
        ("predict missing test.txt", "missing: No such file or directory"),
        ("predict train.txt test.txt", "train.txt is not a bonsai-xmc model"),
        ("predict {0}/cut test.txt", "cut is truncated at byte"),
        ("predict {0}/changed test.txt", "changed is damaged: the checksum of its header"),
        ("predict {0}/foreign test.txt", "foreign: the model is inconsistent"),
        ("predict {0} test.txt", "is not a bonsai-xmc model: it is a folder"),
        ("predict model.bonsai missing.txt", "missing.txt: No such file or directory"),
        ("predict model.bonsai {0}/wide.txt", "wide.txt"),
        ("predict model.bonsai test.txt -k 0", "k is 0, but must be at least 1"),
        ("predict model.bonsai test.txt --names", "model.bonsai has no label names"),
        (
            "predict model.bonsai test.txt --label-names {0}/few",
            "few has 1 names, but model.bonsai 40 labels",
        ),
        ("predict model.bonsai test.txt --label-names {0}/latin", "latin is not UTF-8 text"),
        ("predict model.bonsai tst_X_Xf.txt.gz --base 1", "tst_X_Xf.txt.gz: line 2"),
        ("predict model.bonsai test.txt -o {0}/no/p", "/no/p': there is no folder"),
        ("predict model.bonsai test.txt -o /dev/full", "No space left on device"),
        ("evaluate missing test.txt", "missing: No such file or directory"),
        ("evaluate model.bonsai tst_X_Xf.txt.gz", "holds features only"),
        ("evaluate model.bonsai test.txt -k 0", "k"),
        ("evaluate tst_X_Y.txt train.txt", "rows"),
        ("info missing", "missing: No such file or directory"),
        ("info {0}/few", "few is not a bonsai-xmc model"),
    ],
)
def test_errors_are_one_clear_line(bonsai, broken, line, message):
    before = sorted(os.listdir(broken))
    assert message in error_of(bonsai, *line.format(broken).split())
    assert sorted(os.listdir(broken)) == before


def test_an_error_of_the_training(bonsai, tmp_path):
    (tmp_path / "nothing.txt").write_text("2 3 2\n 0:1\n 1:1\n")
    bonsai("train", tmp_path / "nothing.txt", "-o", tmp_path / "m", code=1)
    assert bonsai.error.startswith("bonsai: error: Y holds no label at all")
    assert os.listdir(tmp_path) == ["nothing.txt"]


def test_the_output_is_checked_before_anything_else(bonsai, tmp_path):
    for command in (("train", "missing.txt"), ("predict", "missing", "missing.txt")):
        assert "/no/m': there is no folder" in error_of(bonsai, *command, "-o", tmp_path / "no" / "m")


def test_lack_of_memory_is_an_error_too(bonsai, tmp_path, monkeypatch):
    def fit(*_, **__):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(Bonsai, "fit", fit)
    bonsai("train", "train.txt", "-o", tmp_path / "m", code=1)
    assert bonsai.error == "bonsai: error: not enough memory (std::bad_alloc)\n"
    assert os.listdir(tmp_path) == []


def test_messages_of_several_lines_become_one(bonsai, monkeypatch):
    def load(*_, **__):
        raise ValueError("first line\n  second line")

    monkeypatch.setattr(Bonsai, "load", load)
    assert error_of(bonsai, "info", "model.bonsai") == "first line second line"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["train", "x"], "the following arguments are required: -o/--output"),
        (
            ["train", "x", "-o", "y", "--branching-factor", "many"],
            "argument --branching-factor: invalid int value: 'many'",
        ),
        (
            ["train", "x", "-o", "y", "--beam-size", "all"],
            "argument --beam-size: invalid int or 'none' or 'auto' value: 'all'",
        ),
        (["train", "x", "-o", "y", "--loss", "hinge"], "argument --loss: invalid choice: 'hinge'"),
        (["train", "x", "-o", "y", "--preset", "oak"], "argument --preset: invalid choice: 'oak'"),
        (["train", "x", "-o", "y", "--branch", "3"], "unrecognized arguments: --branch 3"),
        (["info"], "the following arguments are required: MODEL"),
    ],
)
def test_wrong_usage(capsys, line, message):
    with pytest.raises(SystemExit) as caught:
        _cli.main(line)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", [["--help"], ["train", "--help"], ["predict", "-h"], ["evaluate", "-h"], ["info", "-h"]]
)
def test_help(capsys, line):
    with pytest.raises(SystemExit) as caught:
        _cli.main(line)
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: bonsai")


# The process


def test_exit_codes_of_the_process(folder, tmp_path):
    def run(*line):
        return subprocess.run([*BONSAI, *line], cwd=folder, capture_output=True, text=True, timeout=60)

    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"bonsai-xmc {bonsai_xmc.__version__}\n")
    done = run("info", "missing")
    assert (done.returncode, done.stderr) == (1, "bonsai: error: missing: No such file or directory\n")
    assert run("fly").returncode == 2


def test_a_reader_that_goes_away_is_no_trouble(folder):
    line = [*BONSAI, "predict", "model.bonsai", "train.txt", "-k", "40", "--beam-size", "none"]
    with started(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"300 40\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.fixture(scope="module")
def long_work(tmp_path_factory):
    """A folder and a command that trains in it for longer than any test waits."""
    path = tmp_path_factory.mktemp("long")
    many = datasets.make_xmc(
        n_rows=20_000, n_test=1, n_features=4_000, n_labels=3_000, features_per_row=60, random_state=0
    )
    sp.save_npz(path / "X.npz", many.X_train)
    sp.save_npz(path / "Y.npz", many.Y_train)
    (path / "m").write_bytes(b"the old model")
    return path, [
        *BONSAI,
        "train",
        "X.npz",
        "Y.npz",
        "-o",
        "m",
        "--n-jobs=1",
        "--classifiers=leaf",
        "--n-trees=30",
    ]


@contextlib.contextmanager
def started(line, **kwargs):
    """A process that ends with the test, whatever happens, and after a minute at the latest.

    It listens to interrupts even where the tests do not, as in the background of a script.
    """
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(line, preexec_fn=listen, **kwargs) as process:
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


@pytest.mark.parametrize("options", [(), ("--tol=1e-12", "--max-iter=1000000")])
def test_an_interrupt_stops_soon_and_leaves_nothing(long_work, options):
    path, line = long_work
    with started([*line, *options], cwd=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"about ")  # training begins
        time.sleep(1)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert time.monotonic() - begin < 3
        assert process.stderr.read() == b"bonsai: interrupted\n"
    assert sorted(os.listdir(path)) == ["X.npz", "Y.npz", "m"]
    assert (path / "m").read_bytes() == b"the old model"


def test_a_terminal_gets_a_bar(long_work):
    path, line = long_work
    ours, theirs = pty.openpty()
    with started(line, cwd=path, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while b" left" not in seen:
            seen += os.read(ours, 1000)
        process.send_signal(signal.SIGINT)
        while not seen.endswith(b"interrupted\r\n"):
            seen += os.read(ours, 1000)
        assert process.wait() == 130
    os.close(ours)
    assert re.search(rb"\[=* *\] +\d+ %  0:\d\d, ", seen)
    assert seen.endswith(b"\r\x1b[Kbonsai: interrupted\r\n")


# Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_shows_elapsed_and_remaining_time(clock):
    stream = Terminal()
    bar = ProgressBar(stream, lines=False)
    bar("trees", 0, 200)
    clock[0] += 30
    bar("trees", 50, 200)
    drawn = stream.getvalue().split("\r")
    assert drawn[1] == f"trees          [{' ' * 40}]   0 %  0:00\x1b[K"
    assert drawn[2] == f"trees          [{'=' * 10}{' ' * 30}]  25 %  0:30, 1:30 left\x1b[K"
    clock[0] += 3600
    bar("trees", 199, 200)
    assert "99 %  1:00:30, 0:18 left" in stream.getvalue()
    bar("trees", 200, 200)
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_bar_without_a_total_shows_the_time(clock):
    stream = Terminal()
    bar = ProgressBar(stream)
    bar("trees", 0, 0)
    clock[0] += 5
    bar("trees", 3, 0)
    assert stream.getvalue() == "\rtrees          0:00\x1b[K\rtrees          0:05\x1b[K"
    bar("classifiers", 0, 10)  # ends the phase before
    assert "\r\x1b[Ktrees          0:05\n\rclassifiers" in stream.getvalue()


def test_a_bar_fits_the_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    ProgressBar(stream)("trees", 1, 2)
    assert len(stream.getvalue().strip("\r").removesuffix("\x1b[K")) == 29


def test_elsewhere_there_are_lines_alone(clock):
    stream = io.StringIO()
    bar = ProgressBar(stream)
    for done in range(11):
        clock[0] += 1
        bar("trees", done, 10)
    bar("classifiers", 1, 10)
    bar.finish()
    bar.finish()
    assert stream.getvalue() == "trees          0:10\nclassifiers    0:00\n"
