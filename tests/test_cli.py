"""The commands: options become calls, and outputs equal those of Python."""

import gzip
import inspect
import json
import os
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from bonsai_xmc import Bonsai, LabelTree, datasets, metrics
from bonsai_xmc._base.params import DEFAULTS
from bonsai_xmc._cli import parser, train
from bonsai_xmc._cli.io import Inputs
from helpers import error_of


@pytest.fixture(scope="module")
def data(cli_data):
    return cli_data


@pytest.fixture(scope="module")
def folder(cli_folder):
    return cli_folder


def estimator_of(*line):
    """Return the estimator that `bonsai train` would fit."""
    args = parser.make_parser().parse_args(line)
    return train.estimator(args, train.given_parameters(args), Inputs())


# train


def test_training_writes_the_model_that_python_would(bonsai, tmp_path, folder):
    out = bonsai("train", "train.txt", "-o", tmp_path / "m", "--classifiers", "leaf", "--branching-factor", 5)
    assert (tmp_path / "m").read_bytes() == (folder / "model.bonsai").read_bytes()
    first, *table = out.splitlines()
    assert first.startswith("about ") and "of memory to train, about " in first
    names = [line.split("  ")[0] for line in table]
    assert names == [
        "model", "rows", "features", "labels", "ranked by", "tree 1", "tree 2", "tree 3", "threshold", "time",
    ]  # fmt: skip
    phases = ["reading", "label vectors", "trees", "classifiers", "threshold", "saving"]
    assert re.fullmatch(r"time +[\d.]+ s: " + ", ".join(rf"{phase} [\d.]+" for phase in phases), table[-1])
    threshold = Bonsai.load(folder / "model.bonsai").threshold_
    assert re.fullmatch(rf"threshold +{threshold:.4g}, chosen on held-out rows", table[-2])
    assert f"threshold         {threshold:.4g}, chosen on held-out rows" in bonsai("info", "model.bonsai")
    assert json.loads(bonsai("info", "model.bonsai", "--json"))["threshold"] == threshold
    assert bonsai.error == ""


def test_train_json_reports_sizes_and_trees(bonsai, tmp_path):
    report = json.loads(bonsai("train", "train.txt", "-o", tmp_path / "m", "--json", "--preset", "dismec"))
    model = Bonsai.load(tmp_path / "m")
    assert report["rows"] == 300
    assert report["features"] == 120
    assert report["labels"] == 40
    assert report["labels_with_rows"] == model.trees_[0].n_labels
    assert report["bytes"] == (tmp_path / "m").stat().st_size
    assert report["trees"] == [{"nodes": 1, "leaves": 1, "depth": 1, "labels": model.trees_[0].n_labels}]
    assert report["params"]["prune"] == 0.01
    assert report["estimate"].keys() == {"training_bytes", "model_bytes", "phases"}
    assert report["seconds"]["total"] >= report["seconds"]["classifiers"] > 0


def test_quiet_training_prints_nothing(bonsai, tmp_path):
    assert bonsai("train", "train.txt", "-o", tmp_path / "m", "-q") == ""
    assert bonsai.error == ""


def test_verbose_training_prints_a_line_for_each_phase(bonsai, tmp_path):
    bonsai(
        "train",
        "train.txt",
        "-o",
        tmp_path / "m",
        "--verbose",
        1,
        "--preset",
        "bonsai-i",
        "--branching-factor",
        4,
    )
    assert [line[:14].strip() for line in bonsai.error.splitlines()] == [
        "label vectors",
        "trees",
        "classifiers",
        "threshold",
    ]


def test_every_parameter_has_an_option():
    signature = inspect.signature(Bonsai).parameters
    assert {name: parameter.default for name, parameter in signature.items()} == dict(DEFAULTS)
    assert list(DEFAULTS) == list(signature)
    args = parser.make_parser().parse_args(["train", "x", "-o", "y"])
    assert not vars(args).keys() & signature.keys()  # defaults stay where they are


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--representation=joint", {"representation": "joint"}),
        ("--n-trees=2", {"n_trees": 2}),
        ("--max-leaf-size=7", {"max_leaf_size": 7}),
        ("--max-depth=none", {"max_depth": None}),
        ("--balance=equal", {"balance": "equal"}),
        ("--no-normalize", {"normalize": False}),
        ("--C=0.5", {"C": 0.5}),
        ("--C=auto", {"C": "auto"}),
        ("--beam-size=none", {"beam_size": None}),
        ("--classifiers=one_vs_rest", {"classifiers": "one_vs_rest"}),
        ("--search=index", {"search": "index"}),
        ("--tol=0.01", {"tol": 0.01}),
    ],
)
def test_options_become_parameters(option, expected):
    model = estimator_of("train", "x", "-o", "y", option)
    assert model.get_params() == Bonsai(**expected).get_params()


@pytest.mark.parametrize("options", [[], ["--random-state=9"], ["--n-jobs=1", "--beam-size=7"]])
def test_without_options_the_defaults_of_python_hold(options):
    args = parser.make_parser().parse_args(["train", "x", "-o", "y", *options])
    given = {name: value for name, value in vars(args).items() if name in DEFAULTS}
    assert estimator_of("train", "x", "-o", "y", *options).get_params() == Bonsai(**given).get_params()


def test_options_override_the_parameter_file_which_overrides_the_preset(tmp_path):
    (tmp_path / "p.json").write_text('{"max_leaf_size": 50, "tol": 0.01, "C": 2}')
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
    expected = Bonsai.preset("parabel", max_leaf_size=50, C=2, tol=0.2)
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
    (tmp_path / "p.json").write_text(json.dumps({"classifiers": "leaf"}))
    given = ("--params", tmp_path / "p.json", "--tree", tmp_path / "tree.json")
    bonsai("train", "train.txt", "-o", tmp_path / "m2", *given)
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
    """Return the options of `bonsai train` for parameters, with the defaults that --help prints."""
    text = " ".join(parser.make_parser().verbs["train"].format_help(everything=True).split())
    found = {}
    for name in DEFAULTS:
        option = name.replace("_", "-")
        found[name] = re.search(rf" --{option}[ ,{{].*?\(default: (.*?)\)", text)[1]
    return found


@pytest.mark.parametrize(("name", "printed"), printed_defaults().items())
def test_giving_a_printed_default_changes_nothing(name, printed):
    """An option with its default changes no parameter."""
    option = f"--{name.replace('_', '-')}"
    line = {"yes": [option], "no": [f"--no-{option[2:]}"]}.get(printed, [f"{option}={printed}"])
    assert estimator_of("train", "x", "-o", "y", *line).get_params() == Bonsai().get_params()


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
    assert [[int(e["label"]) for e in json.loads(line)["labels"]] for line in out.splitlines()] == [
        [label for label in row if label >= 0] for row in ids.tolist()
    ]
    everything = bonsai("predict", "model.bonsai", "test.txt", "-k", 40, "--beam-size", "none")
    assert everything.count(":") > bonsai(
        "predict", "model.bonsai", "test.txt", "-k", 40, "--beam-size", 1
    ).count(":")
    assert "beam_size is 0" in error_of(bonsai, "predict", "model.bonsai", "test.txt", "--beam-size", 0)
    assert "n_jobs is 0" in error_of(bonsai, "predict", "model.bonsai", "test.txt", "--n-jobs", 0)


def test_names_from_a_file(bonsai, tmp_path):
    (tmp_path / "names").write_text("".join(f"label {i}\n" for i in range(40)))
    plain = bonsai("predict", "model.bonsai", "test.txt", "-k", 2).splitlines()[1:]
    line = ("predict", "model.bonsai", "test.txt", "-k", 2, "--label-names", tmp_path / "names")
    out = bonsai(*line)
    best = [json.loads(row)["labels"][0] for row in out.splitlines()]
    assert [entry["label"] for entry in best] == [line.split(":")[0] for line in plain]
    assert all(entry["name"] == f"label {entry['label']}" for entry in best)
    bonsai(*line, "-o", tmp_path / "out.gz")
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode() == out
    assert sorted(os.listdir(tmp_path)) == ["names", "out.gz"]


# evaluate


def test_evaluation_of_a_model_is_that_of_python(bonsai, data, folder):
    model = Bonsai.load(folder / "model.bonsai")
    ids, _ = model.top_k(data.X_test, 5)
    expected = metrics.evaluate(data.Y_test, ids, data.Y_train, by_frequency=True)
    options = ("--by-frequency", "--coverage")
    result = json.loads(bonsai("evaluate", "model.bonsai", "test.txt", *options, "--json"))
    assert result == pytest.approx(expected, abs=1e-9)
    table = bonsai("evaluate", "model.bonsai", "test.txt", *options)
    assert table == metrics.format_table(expected) + "\n"
    files = (["tst_X_Xf.txt.gz", "tst_X_Y.txt"], ["X.npz", "Y.npz"], ["test.txt", "--train", "train.txt"])
    for line in files:
        assert json.loads(bonsai("evaluate", "model.bonsai", *line, *options, "--json")) == result
    plain = json.loads(bonsai("evaluate", "model.bonsai", "test.txt", "--by-frequency", "--json"))
    coverage = {name for name in result if name.startswith(("C@", "CC@"))}
    assert coverage and plain == {name: result[name] for name in result if name not in coverage}


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


def test_dataset_option_stands_for_its_propensity_parameters(bonsai):
    first = bonsai("evaluate", "model.bonsai", "test.txt", "--propensity", 0.6, 2.6)
    assert first == bonsai("evaluate", "model.bonsai", "test.txt", "--dataset", "amazon-670k")
    assert first != bonsai("evaluate", "model.bonsai", "test.txt")
    assert "unheard-of" in error_of(bonsai, "evaluate", "model.bonsai", "test.txt", "--dataset", "unheard-of")


# info


def test_info_shows_parameters_and_on_request_trees_and_checksums(bonsai, folder):
    out = bonsai("info", "model.bonsai", "--verify", "--tree")
    assert "checksums" in out
    assert "branching_factor" in out
    for tree in Bonsai.load(folder / "model.bonsai").trees_:
        assert tree.summary() in out
    assert "checksums" not in bonsai("info", "model.bonsai")


def test_info_json_reports_version_parameters_and_trees(bonsai, folder):
    model = Bonsai.load(folder / "model.bonsai")
    report = json.loads(bonsai("info", "model.bonsai", "--json"))
    assert report["model"] == "model.bonsai"
    assert report["format_version"] == 3
    assert report["params"]["branching_factor"] == 5
    assert report["verified"] is False
    assert [tree["nodes"] for tree in report["trees"]] == [tree.n_nodes for tree in model.trees_]
    with_trees = json.loads(bonsai("info", "model.bonsai", "--json", "--tree", "--verify"))
    assert with_trees["verified"] is True
    assert [LabelTree.from_nested(tree) for tree in with_trees["structures"]] == model.trees_


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
