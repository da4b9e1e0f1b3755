"""``bonsai evaluate`` at a threshold, and with several systems."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from bonsai_xmc import Bonsai, TextBonsai, metrics
from bonsai_xmc._model.thresholds import select
from helpers import error_of
from test_text_model import make_records


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cli_folder):
    """Make documents, two models of them and predictions; a matrix model with its files."""
    path = tmp_path_factory.mktemp("evaluate")
    rows, labels = make_records()
    lines = [json.dumps({**row, "labels": of}) for row, of in zip(rows, labels, strict=True)]
    (path / "dev.jsonl").write_text("\n".join(lines[:40]) + "\n")
    TextBonsai(fields=["title", "abstract"]).fit(rows, labels).save(path / "a.bonsai")
    TextBonsai(fields=["title"], classifier=Bonsai(threshold=0.5)).fit(rows[:60], labels[:60]).save(
        path / "b.bonsai"
    )
    for name in ("model.bonsai", "train.txt", "test.txt"):
        (path / name).write_bytes((cli_folder / name).read_bytes())
    return path


def by_hand(truth, predicted):
    """Return precision, recall and F1 over all pairs, and the mean F1 of labels."""
    hits = sum(len(set(t) & set(p)) for t, p in zip(truth, predicted, strict=True))
    found, true = sum(map(len, predicted)), sum(map(len, truth))
    labels = {label for row in (*truth, *predicted) for label in row}
    macro = []
    for label in labels:
        both = sum(label in t and label in p for t, p in zip(truth, predicted, strict=True))
        either = sum((label in t) + (label in p) for t, p in zip(truth, predicted, strict=True))
        macro.append(2 * both / either)
    return [
        100 * hits / found,
        100 * hits / true,
        200 * hits / (found + true),
        100 * np.mean(macro),
        found / len(truth),
    ]


@pytest.mark.parametrize("threshold", ["auto", "0.4"])
def test_figures_at_a_threshold(bonsai, folder, threshold):
    model = TextBonsai.load("a.bonsai")
    records = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    least = model.threshold_ if threshold == "auto" else 0.4
    ids, _ = select(*model.top_k(records, 100), least)
    predicted = [[model.classes_[i] for i in row if i >= 0] for row in ids]
    found = json.loads(bonsai("evaluate", "a.bonsai", "dev.jsonl", "--threshold", threshold, "--json"))
    assert found["threshold"].pop("threshold") == pytest.approx(least)
    assert list(found["threshold"].values()) == pytest.approx(
        by_hand([r["labels"] for r in records], predicted)
    )
    plain = json.loads(bonsai("evaluate", "a.bonsai", "dev.jsonl", "--json"))
    assert {name: found[name] for name in plain} == plain  # the ranking is not cut
    shown = bonsai("evaluate", "a.bonsai", "dev.jsonl", "--threshold", threshold).splitlines()[-1]
    assert re.fullmatch(
        r"threshold 0\.\d+: \d\.\d\d labels a row, precision .*, recall .*, F1 .* \(macro .*\)", shown
    )


def test_a_threshold_of_matrices_and_of_files(bonsai):
    bonsai("predict", "model.bonsai", "test.txt", "-k", 40, "-o", "p.txt")
    bonsai("predict", "model.bonsai", "test.txt", "-k", 40, "-o", "p.jsonl")
    line = ["test.txt", "--threshold", "0.2", "--json"]
    expected = json.loads(bonsai("evaluate", "model.bonsai", *line))["threshold"]
    for name in ("p.txt", "p.jsonl"):
        assert json.loads(bonsai("evaluate", name, *line))["threshold"] == pytest.approx(expected)
    assert "--threshold auto needs models" in error_of(
        bonsai, "evaluate", "p.txt", "test.txt", "--threshold", "auto"
    )
    assert "threshold is 3.0" in error_of(bonsai, "evaluate", "model.bonsai", "test.txt", "--threshold", "3")


def test_several_systems_side_by_side(bonsai, folder):
    """Figures equal those of each system alone, differences those of a report."""
    bonsai("predict", "b.bonsai", "dev.jsonl", "-k", 4, "-o", "b.csv")
    line = ["evaluate", "a.bonsai", "dev.jsonl", "-k", 1, 3]
    found = json.loads(bonsai(*line, "--against", "b.bonsai", "b.csv", "--json"))
    assert list(found["results"]) == ["a.bonsai", "b.bonsai", "b.csv"]  # two of them are called b
    alone = json.loads(bonsai(*line, "--json"))
    assert found["results"]["a.bonsai"] == pytest.approx(alone)
    assert found["results"]["b.bonsai"] == pytest.approx(found["results"]["b.csv"])
    report = json.loads(bonsai(*line, "--against", "b.bonsai", "--report", "r.html", "--json"))
    for metric, one in found["differences"]["b.bonsai"].items():
        assert one == pytest.approx(report["differences"]["b"][metric])
        assert one["low"] <= one["value"] <= one["high"]
    text = bonsai(*line, "--against", "b.bonsai", "b.csv")
    assert text.count("with 95 % intervals of a paired bootstrap over rows") == 2
    assert "compares two systems at most" in error_of(
        bonsai, *line, "--against", "b.bonsai", "b.csv", "--report", "r.html"
    )


def test_models_and_prediction_files_are_compared_on_matrices(bonsai):
    Bonsai(classifiers="one_vs_rest").fit(*_data("train.txt")).save("other.bonsai")
    bonsai("predict", "model.bonsai", "test.txt", "-o", "model.txt")
    line = ["evaluate", "other.bonsai", "test.txt", "--against", "model.bonsai", "model.txt", "--json"]
    found = json.loads(bonsai(*line))
    assert found["results"]["model.bonsai"] == pytest.approx(found["results"]["model.txt"])
    zero = {metric: one["value"] for metric, one in found["differences"]["model.txt"].items()}
    assert zero == pytest.approx({m: one["value"] for m, one in found["differences"]["model.bonsai"].items()})
    Path("named.jsonl").write_text(
        "".join(f'{{"row": {i}, "labels": [{{"label": "x"}}]}}\n' for i in range(1, 81))
    )
    assert "'x' is not the number of a column" in error_of(
        bonsai, "evaluate", "model.bonsai", "test.txt", "--against", "named.jsonl"
    )


def _data(name):
    from bonsai_xmc import datasets

    return datasets.load_xc(name)


def test_rows_missing_from_one_system_are_reported(bonsai, folder):
    bonsai("predict", "a.bonsai", "dev.jsonl", "-o", "all.jsonl")
    lines = Path("all.jsonl").read_text().splitlines(keepends=True)
    Path("half.jsonl").write_text("".join(lines[:20]))
    bonsai("evaluate", "a.bonsai", "dev.jsonl", "--against", "half.jsonl")
    assert "20 of 40 rows have predictions of all systems" in bonsai.error
    assert "no predictions for row 21 of dev.jsonl" in error_of(bonsai, "evaluate", "half.jsonl", "dev.jsonl")


def test_tables_show_each_system_as_markdown_csv_and_latex(bonsai):
    line = [
        "evaluate",
        "a.bonsai",
        "dev.jsonl",
        "--against",
        "b.bonsai",
        "-k",
        1,
        "--threshold",
        "0.3",
        "--table",
    ]
    markdown = bonsai(*line, "markdown").splitlines()
    assert markdown[:2] == ["|  | a | b | b − a |", "| --- | ---: | ---: | ---: |"]
    assert re.fullmatch(r"\| P@1 \| [\d.]+ \| [\d.]+ \| [+-][\d.]+ \(.* to .*\) \|", markdown[2])
    rows = list(csv.DictReader(bonsai(*line, "csv").splitlines()))
    assert [row[""] for row in rows][-2:] == ["macro_f1 at the threshold", "labels_per_row at the threshold"]
    assert float(rows[0]["a"]) == pytest.approx(float(markdown[2].split("|")[2]))
    latex = bonsai(*line, "latex")
    assert latex.startswith("\\begin{tabular}{lrrr}\n") and r"macro\_f1" in latex and r"b $-$ a" in latex
    assert latex.count(r"\\") == len(rows) + 1


def test_figures_are_those_of_the_library(bonsai):
    X, Y = _data("test.txt")
    model = Bonsai.load("model.bonsai")
    expected = metrics.evaluate(Y, model.top_k(X, 5)[0], _data("train.txt")[1])
    line = ["evaluate", "model.bonsai", "test.txt", "--against", "model.bonsai", "--coverage", "--json"]
    found = json.loads(bonsai(*line))
    for name in ("model.bonsai (1)", "model.bonsai (2)"):
        assert found["results"][name] == pytest.approx(expected)
