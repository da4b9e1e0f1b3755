"""``bonsai labels``, and ``bonsai predict`` with --restrict and --exclude."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bonsai_xmc import Bonsai, TextBonsai
from bonsai_xmc._model.fitted import LabelTable
from bonsai_xmc._model.labels import did_you_mean
from helpers import error_of

TEXTS = ["old brick houses", "heat pumps", "heating of houses", "brick walls", "pumps for houses"]
LABELS = [["bricks"], ["heat"], ["heat", "homes"], ["bricks"], ["pumps"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    model = TextBonsai(min_df=1, classifier=Bonsai(threshold=0.5, n_jobs=1)).fit(TEXTS, LABELS)
    model.name_labels({"bricks": "Brick construction"}).save(folder / "texts.bonsai")
    Bonsai(threshold=0.5, n_jobs=1).fit(np.eye(3), np.eye(3, dtype=int)).save(folder / "matrix.bonsai")
    (folder / "some.txt").write_text("heat\tHeat\n\nhomes\nnot there\r\n")
    (folder / "names.tsv").write_text("heat\theating\nbricks\tbrick\n")
    (folder / "merge.tsv").write_text("all\theat\thomes\tpumps\n")
    return folder


def labels_of(bonsai, *args):
    return [json.loads(line)["label"] for line in bonsai("labels", *args, "--json").splitlines()]


def test_labels_are_listed_with_name_and_rows(bonsai):
    assert bonsai("labels", "texts.bonsai") == (
        "bricks\tBrick construction\t2\nheat\t\t2\nhomes\t\t1\npumps\t\t1\n"
    )
    assert bonsai("labels", "matrix.bonsai", "--list") == "0\t\t1\n1\t\t1\n2\t\t1\n"
    assert json.loads(bonsai("labels", "texts.bonsai", "--json").splitlines()[0]) == {
        "label": "bricks",
        "name": "Brick construction",
        "rows": 2,
    }


@pytest.mark.parametrize(
    ("edits", "left"),
    [
        (["--drop", "heat", "pumps"], ["bricks", "homes"]),
        (["--restrict", "heat", "pumps"], ["heat", "pumps"]),
        (["--restrict", "@some.txt"], ["heat", "homes"]),
        (["--rename", "heat", "warm", "--rename", "pumps", "heat"], ["bricks", "warm", "homes", "heat"]),
        (["--rename", "@names.tsv"], ["brick", "heating", "homes", "pumps"]),
        (["--merge", "heat", "homes", "pumps"], ["bricks", "heat"]),
        (["--merge", "@merge.tsv"], ["bricks", "all"]),
        (["--drop", "bricks", "--rename", "heat", "warm", "--merge", "warm", "homes"], ["warm", "pumps"]),
    ],
)
def test_labels_are_dropped_restricted_renamed_and_merged_in_order(bonsai, edits, left):
    before = Path("texts.bonsai").read_bytes()
    assert f"{len(left)} labels instead of 4" in bonsai("labels", "texts.bonsai", *edits, "-o", "new.bonsai")
    assert labels_of(bonsai, "new.bonsai") == left
    assert Path("texts.bonsai").read_bytes() == before
    assert "verified" in bonsai("info", "new.bonsai", "--verify")


def test_integer_labels_can_be_dropped_and_renamed(bonsai):
    bonsai("labels", "matrix.bonsai", "--drop", "1", "--rename", "0", "7", "-o", "new.bonsai")
    assert labels_of(bonsai, "new.bonsai") == [2, 7]
    names = ["--rename", "0", "a", "--rename", "1", "b", "--rename", "2", "c"]
    bonsai("labels", "matrix.bonsai", *names, "-o", "new.bonsai")
    assert labels_of(bonsai, "new.bonsai") == ["a", "b", "c"]


def test_edits_report_the_number_of_labels_before_and_after(bonsai):
    report = json.loads(bonsai("labels", "texts.bonsai", "--drop", "heat", "-o", "new.bonsai", "--json"))
    assert report == {"labels before": 4, "labels": 3, "bytes": Path("new.bonsai").stat().st_size}
    assert bonsai("labels", "texts.bonsai", "--drop", "heat", "-o", "new.bonsai", "-q") == ""


def test_predict_honours_restrict_and_exclude(bonsai):
    def first(*args):
        text = "heating with heat pumps"
        return json.loads(bonsai("predict", "texts.bonsai", text, "-k", "1", "--json", *args))["labels"]

    assert first()[0]["label"] == "heat"
    assert first("--restrict", "bricks", "--restrict", "pumps")[0]["label"] == "pumps"
    assert first("--restrict", "@some.txt")[0]["label"] == "heat"
    assert bonsai.error == (
        "bonsai: warning: --restrict: 1 of 3 labels are not in the model, such as 'not there'\n"
    )
    assert first("--exclude", "heat", "--exclude", "homes")[0]["label"] == "pumps"
    Path("rows.txt").write_text("2 3\n0:1\n2:1\n")
    line = ["predict", "matrix.bonsai", "rows.txt", "-k", "1", "--exclude", "0", "--exclude", "2"]
    lines = bonsai(*line).splitlines()
    assert [line[:2] for line in lines[1:]] == ["1:", "1:"]


def test_a_text_after_the_labels(bonsai):
    """The text after --restrict is not one of its labels."""
    found = bonsai("predict", "texts.bonsai", "--restrict", "@some.txt", "heat pumps", "--json")
    assert json.loads(found)["labels"][0]["label"] == "heat"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["labels", "--drop", "brick", "-o", "none"], "drop: the model has no label 'brick'; did you mean"),
        (["predict", "x", "--restrict", "Pumsp"], "the model has no label 'Pumsp'; did you mean 'pumps'?"),
        (["explain", "x", "--label", "haet"], "the model has no label 'haet'; did you mean 'heat'?"),
    ],
)
def test_labels_that_are_misspelt(bonsai, args, message):
    command, *rest = args
    assert message in error_of(bonsai, command, "texts.bonsai", *rest)


def test_misspelt_labels_among_many():
    """Hints are found quickly, by labels and by names."""
    model = TextBonsai(min_df=1).fit(["brick", "heat"], [["a"], ["b"]])
    n = 500_000
    classes = np.empty(n, dtype=object)
    classes[:] = [f"http://example.org/concept/{i:07}" for i in range(n)]
    names = tuple(f"{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10 % 10]}ing number {i}" for i in range(n - 1))
    labels = LabelTable(classes, np.ones(n, np.int64), (*names, "Brick construction"))
    fitted = replace(model.fitted_, labels=labels)
    begin = time.process_time()
    hint = did_you_mean(fitted, "Brick constuction")
    assert hint == "; did you mean 'http://example.org/concept/0499999' (Brick construction)?"
    assert time.process_time() - begin < 5
    begin = time.process_time()
    assert did_you_mean(fitted, "bking numbr 17").startswith("; did you mean")
    assert time.process_time() - begin < 0.5  # once the labels are indexed
    assert did_you_mean(fitted, "xyzzy") == did_you_mean(fitted, "") == did_you_mean(fitted, 7) == ""


def test_errors_leave_no_file(bonsai):
    for args, message in [
        (["--drop", "cold"], "drop: the model has no label 'cold'"),
        (["--drop", "bricks", "heat", "homes", "pumps"], "drop: no label would be left"),
        (
            ["--restrict", "some.txt"],
            "--restrict: the model has no label 'some.txt'; @some.txt reads a file",
        ),
        (["--rename", "heat"], "--rename needs two labels or more, or @FILE, but has heat"),
        (["--rename", "heat", "a", "b"], "--rename needs an old and a new label, but has heat a b"),
        (["--rename", "heat", "a", "--rename", "heat", "b"], "--rename: 'heat' is given twice"),
        (
            ["--rename", "heat", "homes"],
            "rename: 2 labels would be 'homes'; merge makes one label of several",
        ),
        (["--merge", "heat", "cold"], "merge: the model has no label 'cold'"),
        (["--drop", "@nowhere"], "nowhere: No such file or directory"),
    ]:
        assert error_of(bonsai, "labels", "texts.bonsai", *args, "-o", "none.bonsai") == message
        assert not Path("none.bonsai").exists()
    assert "needs a file for the new model" in error_of(bonsai, "labels", "texts.bonsai", "--drop", "heat")
    assert "nothing to change" in error_of(bonsai, "labels", "texts.bonsai", "-o", "none.bonsai")
    assert "would be overwritten" in error_of(
        bonsai, "labels", "texts.bonsai", "--drop", "heat", "-o", "texts.bonsai"
    )
    Path("matrix.tsv").write_text("3\tthree\n")
    assert "--add needs a text model" in error_of(
        bonsai, "labels", "matrix.bonsai", "--add", "matrix.tsv", "-o", "none.bonsai"
    )
    assert "the labels of this model are integers" in error_of(
        bonsai, "labels", "matrix.bonsai", "--drop", "x", "-o", "none.bonsai"
    )
