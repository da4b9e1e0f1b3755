"""``bonsai explain``: texts and rows of matrices, as a table, as a page and as JSON."""

import io
import json
import re
import sys

import pytest

from bonsai_xmc import Bonsai, TextBonsai
from helpers import error_of
from test_text_model import make_records


@pytest.fixture(scope="module")
def records():
    return make_records()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, records, cli_folder):
    path = tmp_path_factory.mktemp("explain")
    rows, labels = records
    model = TextBonsai(
        fields=["title", "abstract"], classifier=Bonsai(threshold=0.5, classifiers="one_vs_rest")
    ).fit(rows, labels)
    model.save(path / "m.bonsai")
    lines = "".join(
        json.dumps({**row, "labels": label}) + "\n" for row, label in zip(rows, labels, strict=True)
    )
    (path / "docs.jsonl").write_text(lines)
    for name in ("model.bonsai", "test.txt", "X.npz"):
        (path / name).write_bytes((cli_folder / name).read_bytes())
    return path


@pytest.fixture(scope="module")
def model(folder):
    return TextBonsai.load(folder / "m.bonsai")


TEXT = "A boiler and a pump"


def test_the_best_labels_of_a_text(bonsai, model):
    out = bonsai("explain", "m.bonsai", TEXT, "-k", "2")
    best = model.suggest(TEXT, k=2)
    blocks = out.rstrip("\n").split("\n\n")
    heads = [block.splitlines()[0] for block in blocks if "score" in block.splitlines()[0]]
    assert [head.split("  score")[0] for head in heads if "rank" in head] == [label for label, _ in best]
    assert "\x1b" not in out and "from margins to the score" in out
    assert out.count("from margins to the score") == 2


def test_one_label_and_why_not_another(bonsai, model):
    first, second = (label for label, _ in model.suggest(TEXT, k=2))
    out = bonsai("explain", "m.bonsai", TEXT, "--label", second, "--why-not", second, "-k", "1")
    assert "it is not among the 1 best labels (-k)" in out
    assert f"{second}  why not?" in out and f"ahead: {first}, rank 1" in out
    found = json.loads(bonsai("explain", "m.bonsai", TEXT, "--why-not", second, "--json"))
    assert found["explanations"] == []
    assert found["why_not"] == [json.loads(json.dumps(model.why_not(TEXT, second).to_dict()))]


def test_a_row_of_a_file(bonsai, folder, model, records):
    """Rows are counted as the lines of predictions are."""
    found = json.loads(bonsai("explain", "m.bonsai", "docs.jsonl", "--row", "6", "-k", "1", "--json"))
    label = model.suggest(records[0][5], k=1)[0][0]
    predicted = map(json.loads, bonsai("predict", "m.bonsai", "docs.jsonl", "-k", 1).splitlines())
    assert {row["row"]: row["labels"][0]["label"] for row in predicted}[6] == label
    assert found["explanations"] == [json.loads(json.dumps(model.explain(records[0][5], label).to_dict()))]
    assert error_of(bonsai, "explain", "m.bonsai", "docs.jsonl", "--row", "100000").startswith(
        "--row is 100000, but docs.jsonl has no document at this line; the last one is at line "
    )
    assert "rows are counted from 1" in error_of(bonsai, "explain", "m.bonsai", "docs.jsonl", "--row", "0")
    (folder / "table.csv").write_text("title,abstract\nA boiler,and a pump\n\nHedges,of flowers\n")
    for line in (2, 4):
        out = json.loads(bonsai("explain", "m.bonsai", "table.csv", "--row", line, "-k", "1", "--json"))
        predicted = bonsai("predict", "m.bonsai", "table.csv", "-k", "1").splitlines()
        best = {row["row"]: row["labels"][0]["label"] for row in map(json.loads, predicted)}
        assert out["explanations"][0]["label"] == best[line]
    assert "no document at this line; the next one is at line 2" in error_of(
        bonsai, "explain", "m.bonsai", "table.csv", "--row", "1"
    )
    assert "--row is for files" in error_of(bonsai, "explain", "m.bonsai", TEXT, "--row", "1")


def test_a_row_of_a_matrix(bonsai, folder, cli_data):
    model = Bonsai.load(folder / "model.bonsai")
    label = int(model.top_k(cli_data.X_test[[17]], 1)[0][0, 0])
    expected = json.loads(json.dumps(model.explain(cli_data.X_test[[17]], label).to_dict()))
    for file in ("test.txt", "X.npz"):
        found = json.loads(bonsai("explain", "model.bonsai", file, "--row", "18", "-k", "1", "--json"))
        assert found["explanations"] == [expected]
    out = bonsai("explain", "model.bonsai", "test.txt", "--row", "18", "--label", label, "--features", "2")
    assert len(re.findall(r"^  [+−]0", out, re.M)) <= 2 and "tree 1, score of the path" in out
    assert "has 80 rows" in error_of(bonsai, "explain", "model.bonsai", "test.txt", "--row", "81")
    assert "--text is for documents" in error_of(
        bonsai, "explain", "model.bonsai", "test.txt", "--text", "title"
    )


def test_html_is_one_page_without_scripts_and_never_overwrites_the_input(bonsai, folder, tmp_path):
    assert bonsai("explain", "m.bonsai", TEXT, "--html", tmp_path / "why.html") == ""
    page = (tmp_path / "why.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("<section") == 3 and "<mark" in page
    assert "://" not in page and "<script" not in page
    assert bonsai("explain", "m.bonsai", TEXT, "--html", "-") == page
    refused = error_of(bonsai, "explain", "m.bonsai", "docs.jsonl", "--html", "docs.jsonl")
    assert "it would be overwritten" in refused


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("variables", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_on_a_terminal(bonsai, monkeypatch, variables, colored):
    from bonsai_xmc import _cli

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert _cli.main(["explain", "m.bonsai", TEXT]) == 0
    assert ("\x1b[32m" in sys.stdout.getvalue()) == colored


def test_unknown_labels_and_texts_without_features_are_explained(bonsai):
    assert "the model has no label 'x'" in error_of(bonsai, "explain", "m.bonsai", TEXT, "--label", "x")
    assert "-k is 0" in error_of(bonsai, "explain", "m.bonsai", TEXT, "-k", "0")
    assert "no feature of the model" in bonsai("explain", "m.bonsai", "zzzz qqqq")
