"""The command line: what each command prints and writes, how it ends, and what it leaves behind."""

import contextlib
import gzip
import inspect
import io
import json
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
from bonsai_xmc import Bonsai, LabelTree, _arguments, _cli, _modelfile, _progress, datasets, metrics
from bonsai_xmc._progress import ProgressBar

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
    assert list(_arguments.PARAMETERS) == list(signature)
    args = _arguments.make_parser().parse_args(["train", "x", "-o", "y"])
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
    args = _arguments.make_parser().parse_args(["train", "x", "-o", "y", option])
    model = _cli._estimator(args)
    assert model.get_params() == Bonsai(**expected).get_params()


@pytest.mark.parametrize("options", [[], ["--random-state=9"], ["--n-jobs=1", "--max-labels=7"]])
def test_without_options_the_defaults_of_python_hold(options):
    args = _arguments.make_parser().parse_args(["train", "x", "-o", "y", *options])
    given = {name: value for name, value in vars(args).items() if name in _arguments.PARAMETERS}
    assert _cli._estimator(args).get_params() == Bonsai(**given).get_params()


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
    model = _cli._estimator(_arguments.make_parser().parse_args(line))
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

    original = Bonsai._fit
    monkeypatch.setattr(Bonsai, "_fit", fit)
    bonsai("train", "train.txt", "-o", tmp_path / "m")
    assert bonsai.error == "bonsai: warning: many classifiers did not converge\n"


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
    assert report["format_version"] == 2
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
    (tmp_path / "foreign").write_bytes(_modelfile.dumps({"x": np.zeros(3)}, {"note": "no forest"}))
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
            "empty.npy is not a matrix of numpy.save",
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
        ("predict model.bonsai test.txt -k 41", "k is 41, but the model knows only 40 labels"),
        ("predict model.bonsai test.txt --names", "model.bonsai has no label names"),
        (
            "predict model.bonsai test.txt --label-names {0}/few",
            "few has 1 names, but model.bonsai 40 labels",
        ),
        ("predict model.bonsai test.txt --label-names {0}/latin", "latin is not UTF-8 text"),
        ("predict model.bonsai tst_X_Xf.txt.gz --base 1", "tst_X_Xf.txt.gz holds one matrix"),
        ("predict model.bonsai test.txt -o {0}/no/p", "/no/p': there is no folder"),
        ("predict model.bonsai test.txt -o /dev/full", "not a regular file"),
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

    monkeypatch.setattr(Bonsai, "_fit", fit)
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
