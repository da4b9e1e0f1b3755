"""Reports: numbers against metrics and plain loops, and escaped pages."""

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks._svg import standalone
from hypothesis import given, settings
from hypothesis import strategies as st

import bonsai_xmc
from bonsai_xmc import Bonsai, metrics
from bonsai_xmc.metrics._ranking import Truth
from bonsai_xmc.metrics._report import charts, measure
from helpers import error_of, says, text_bonsai
from rankings import ids_of, indicator_of, problems

NASTY = "<script>alert('x')</script><img src=x onerror=alert(1)>\"&'"


@pytest.fixture(scope="module")
def two(generated):
    """Return predictions of two models."""
    X, Y = generated.X_train, generated.Y_train
    models = {
        "trees": Bonsai(classifiers="leaf", branching_factor=6, n_trees=1, beam_size=1, threshold=0.5),
        "one-vs-rest": Bonsai(classifiers="one_vs_rest", threshold=0.5),
    }
    return {name: model.fit(X, Y).top_k(generated.X_test, 10) for name, model in models.items()}


@pytest.fixture(scope="module")
def report(generated, two):
    half = ["first" if i < 75 else "second" for i in range(150)]
    return metrics.Report(generated.Y_test, two, generated.Y_train, by={"half": half})


def test_of_a_part_of_the_rows(generated, two, report):
    for value, rows in (("first", slice(0, 75)), ("second", slice(75, 150))):
        part = report.by["half"][value]
        assert part["rows"] == 75
        for model, (ids, _) in two.items():
            expected = metrics.evaluate(generated.Y_test[rows], ids[rows], generated.Y_train)
            assert part["results"][model] == pytest.approx({k: expected[k] for k in part["results"][model]})


def test_results_are_those_of_evaluate(generated, two, report):
    for model, (ids, _) in two.items():
        expected = metrics.evaluate(generated.Y_test, ids, generated.Y_train, k=(1, 3, 5, 10))
        of_rows = {name: value for name, value in expected.items() if not name.startswith(("C@", "CC@"))}
        assert report.results[model] == pytest.approx(of_rows)
        assert metrics.Report(
            generated.Y_test, {model: two[model]}, generated.Y_train, coverage=True
        ).results[model] == pytest.approx(expected)
        assert report.reliability[model].error == metrics.reliability(generated.Y_test, *two[model]).error


def test_intervals_are_those_of_a_plain_bootstrap(generated, two, report):
    """The reference draws other rows, so that the ends agree up to the noise of 1,000 draws."""
    rng = np.random.default_rng(7)
    changes = []
    first, second = (ids for ids, _ in two.values())
    for _ in range(400):
        rows = rng.integers(0, 150, 150)
        Y = generated.Y_test[rows]
        a, b = (metrics.evaluate(Y, ids[rows], generated.Y_train, k=5) for ids in (first, second))
        changes.append([b["R@5"] - a["R@5"], b["PSP@5"] - a["PSP@5"]])
    for name, column in (("R@5", 0), ("PSP@5", 1)):
        found = report.differences[name]
        low, high = np.percentile(np.array(changes)[:, column], [2.5, 97.5])
        spread = high - low
        assert found.low == pytest.approx(low, abs=0.2 * spread)
        assert found.high == pytest.approx(high, abs=0.2 * spread)
        results = report.results
        assert found.value == pytest.approx(results["one-vs-rest"][name] - results["trees"][name])
        assert found.low < found.value < found.high


def test_intervals_repeat_and_do_not_depend_on_memory(generated, two, report, monkeypatch):
    monkeypatch.setattr(measure, "_AT_A_TIME", 700)
    again = metrics.Report(generated.Y_test, two, generated.Y_train)
    assert again.differences.keys() == report.differences.keys()
    for name, found in again.differences.items():
        other = report.differences[name]
        assert (found.low, found.high) == pytest.approx((other.low, other.high))
    same = {"a": two["trees"], "b": two["trees"]}
    for found in metrics.Report(generated.Y_test, same).differences.values():
        assert (found.value, found.low, found.high) == (0, 0, 0)


def test_recall_by_frequency_covers_every_true_label(generated, two, report):
    counts = np.asarray(generated.Y_train.sum(axis=0)).ravel()
    truth = [set(row.indices.tolist()) for row in sp.csr_array(generated.Y_test)]
    assert sum(part.occurrences for part in report.by_frequency) == sum(map(len, truth))
    for part in report.by_frequency:
        low, _, high = part.name.partition("–")
        least = int(low.rstrip("+"))
        most = int(high) if high else (10**9 if low.endswith("+") else least)
        wanted = [
            (i, label) for i, row in enumerate(truth) for label in row if least <= counts[label] <= most
        ]
        assert part.occurrences == len(wanted) and part.labels == len({label for _, label in wanted})
        for model, (ids, _) in two.items():
            hits = sum(label in ids[i, :5] for i, label in wanted)
            assert part.recall[model] == pytest.approx(100 * hits / len(wanted))


@settings(deadline=None)
@given(problems())
def test_costs_equal_plain_loops(problem):
    """Up to nine labels: all of them are listed."""
    ranking, truth, Y_train = problem
    n_labels, n_rows = Y_train.shape[1], len(truth)
    Y = sp.csr_array(indicator_of(truth, n_labels))
    found = {"m": Truth(Y.indptr, Y.indices).rank(ids_of(ranking, n_labels))}
    k = min(5, n_labels)
    result = metrics.evaluate(Y, ids_of(ranking, n_labels), k=k)
    missed = sum(cost.points["m"] for cost in measure.missed_labels(found, n_labels))
    with_labels = 100 * sum(map(bool, truth)) / n_rows
    if k == 5 or all(len(row) <= k for row in ranking):
        assert missed + result[f"R@{k}"] == pytest.approx(with_labels)
    wrong = measure.wrong_labels(found, n_labels)
    count = sum(label not in true for row, true in zip(ranking, truth, strict=True) for label in row[:5])
    assert sum(cost.points["m"] for cost in wrong) == pytest.approx(100 * count / (5 * n_rows))
    for cost in wrong:
        assert all(cost.label in ranking[row][:5] and cost.label not in truth[row] for row in cost.examples)


def test_costs_of_two_models(report, two, generated):
    Y = generated.Y_test.toarray()
    for cost in report.missed:
        for model, (ids, _) in two.items():
            rows = np.flatnonzero(Y[:, cost.label])
            missed = [row for row in rows if cost.label not in ids[row, :5]]
            assert cost.wrong[model] == len(missed) and cost.rows == len(rows)
            assert cost.points[model] == pytest.approx(sum(100 / (150 * Y[row].sum()) for row in missed))
    points = [cost.points["trees"] for cost in report.missed]
    assert points == sorted(points, reverse=True)


def test_many_values_of_a_field_are_put_together():
    parts = measure.parts_of([str(i % 30) if i < 300 else "common" for i in range(320)])
    assert next(iter(parts)) == "common" and list(parts)[-1] == "11 other values"
    assert sum(map(len, parts.values())) == 320
    rows = np.concatenate(list(parts.values()))
    assert len(np.unique(rows)) == 320


def test_lists_of_labels_and_unknown_ones(generated, two):
    names = np.array([f"label {i}" for i in range(60)], dtype=object)
    lists = [names[row.nonzero()[0]].tolist() for row in generated.Y_test.toarray()]
    listed = metrics.Report([[*row, "unknown"] for row in lists], {"m": two["trees"]}, classes=names.tolist())
    plain = metrics.Report(generated.Y_test, {"m": two["trees"]})
    assert listed.left_out == 150 and plain.left_out == 0
    assert listed.results == plain.results
    assert "150 more true labels" in listed.to_html()
    assert listed._name_of(3) == ("label 3", "")


def test_reports_cut_k_to_the_number_of_labels():
    Y, ids = np.array([[1, 0], [0, 1]]), np.array([[0, 1, -1], [0, 1, -1]])
    report = metrics.Report(Y, {"m": (ids, np.array([[0.9, 0.1, 0], [0.8, 0.3, 0]]))})
    assert report.cutoffs == [1] and report.depth == 2
    assert "R@2" not in report.results["m"] and report.results["m"]["P@1"] == 50
    check_page(report.to_html())


def test_inputs_of_different_length_are_rejected(generated, two):
    Y, one = generated.Y_test, {"m": two["trees"]}
    with says("one model or two, got predictions of 0"):
        metrics.Report(Y, {})
    with says("predictions['m'] must be (ids, scores)"):
        metrics.Report(Y, {"m": two["trees"][0]})
    with says("there are 150 rows"):
        metrics.Report(Y, {"m": (two["trees"][0][:9], two["trees"][1][:9])})
    with says("by['half'] has 2 values, but there are 150 rows"):
        metrics.Report(Y, one, by={"half": ["a", "b"]})
    with says("there are 1 texts, but 150 rows"):
        metrics.Report(Y, one, texts=["a"])
    with says("there are 1 label_names, but 60 labels"):
        metrics.Report(Y, one, label_names=["a"])
    with says("pass classes=model.classes_"):
        metrics.Report([["a"]], one)


# --- the page ---


class Page(HTMLParser):
    """Checks that tags are balanced, and collects the text of a page."""

    VOID = ("meta", "br", "circle", "rect", "path")

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check_page(html):
    page = Page(html)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "form", "a:href"}
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcdoc")]
        assert attributes.get("href", "#").startswith("#")
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        if tag == "a":
            assert attributes["href"].removeprefix("#") in ids
        if tag == "svg":
            assert attributes["role"] == "img"
    return page


def test_the_page_contains_all_sections(report):
    page = check_page(report.to_html())
    text = " ".join(page.text)
    for name in ("P", "R", "nDCG", "PSP", "PSnDCG", "F1", "RP"):
        assert f"{report.results['trees'][f'{name}@5']:.2f}" in text
    for heading in ("Difference of the models", "Recall by label frequency", "By half", "Calibration",
                    "Labels that cost most of R@5", "Labels that cost most of P@5"):  # fmt: skip
        assert heading in text
    assert report.to_html() == report.to_html()


def test_the_page_contains_date_version_and_origin(generated, two):
    ids, scores = two["trees"]
    report = metrics.Report(
        generated.Y_test, {"m": (ids, scores)}, about={"Data": NASTY}, notes=[f"warned {NASTY}"]
    )
    text = " ".join(check_page(report.to_html()).text)
    assert f"UTC by bonsai-xmc {bonsai_xmc.__version__}" in text and text.count(NASTY) >= 2
    assert "C@k" not in text and "distinct labels" not in text.lower()
    covered = metrics.Report(generated.Y_test, {"m": (ids, scores)}, generated.Y_train, coverage=True)
    text = " ".join(check_page(covered.to_html()).text)
    assert f"{covered.results['m']['C@5'] / 100:.3f}" in text and "C@k" in text


def test_charts_are_valid_xml(report):
    html = report.to_html()
    found = ["<svg" + part.split("</svg>")[0] + "</svg>" for part in html.split("<svg")[1:]]
    assert len(found) == 8
    for svg in found:
        root = ElementTree.fromstring(svg)
        assert root.find("{*}title").text and root.find("{*}desc").text
        assert "nan" not in svg and "inf" not in svg
    ElementTree.fromstring(standalone(found[:4], columns=2))


def test_foreign_text_stays_text(generated, two):
    """Titles, names of models, labels, their names, texts, fields and values are escaped."""
    labels = np.array([f"{NASTY}{i}" for i in range(60)], dtype=object)
    lists = [labels[row.nonzero()[0]].tolist() for row in generated.Y_test.toarray()]
    report = metrics.Report(
        lists,
        {NASTY: two["trees"], "b" + NASTY: two["one-vs-rest"]},
        generated.Y_train,
        classes=labels,
        label_names=[f"name {NASTY}"] * 60,
        texts=[NASTY * 3] * 150,
        by={NASTY: [NASTY] * 150},
        title=NASTY,
    )
    page = check_page(report.to_html())
    assert NASTY in "".join(page.text)
    for svg in report.to_html().split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")


@given(st.floats(1e-6, 1e6), st.integers(1, 8))
def test_ticks_are_round_and_reach(high, n):
    ticks = charts.round_ticks(high, n)
    assert ticks[0] == 0 and ticks[-1] >= high * 0.999 and len(ticks) <= n + 2
    assert np.allclose(np.diff(ticks), ticks[1] - ticks[0])


# --- the command line ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from test_text_model import make_records

    path = tmp_path_factory.mktemp("report")
    rows, labels = make_records()
    lines = [
        json.dumps({**row, "subjects": of, "lang": "de" if i % 3 else "en"})
        for i, (row, of) in enumerate(zip(rows, labels, strict=True))
    ]
    (path / "dev.jsonl").write_text("\n".join(lines))
    (path / "lines.tsv").write_text(
        "\n".join(f"{row['title']}\t<{of[0]}>" for row, of in zip(rows, labels, strict=True))
    )
    options = {"classifiers": "one_vs_rest", "threshold": 0.5}
    text_bonsai(fields=["title", "abstract"], **options).fit(rows, labels).save(path / "a.bonsai")
    few = [i for i, of in enumerate(labels) if of[0] != labels[0][0]]  # without one of the labels
    part = [rows[i] for i in few], [[*labels[i], "of b alone"] for i in few]
    text_bonsai(fields=["title"], **options).fit(*part).save(path / "b.bonsai")
    return path


def test_report_of_one_model(folder, bonsai):
    out = bonsai("evaluate", "a.bonsai", "dev.jsonl", "--report", "a.html", "--by", "lang")
    with open("a.html", encoding="utf-8") as file:
        text = " ".join(Page(file.read()).text)
    for fact in ("dev.jsonl", "a.bonsai: bonsai,", "Parameters", "Threshold"):
        assert fact in text
    assert "C " not in out and "CC" in bonsai("evaluate", "a.bonsai", "dev.jsonl", "--coverage")
    assert out.endswith("report: a.html\n")
    table = bonsai("evaluate", "a.bonsai", "dev.jsonl").splitlines()
    assert out.splitlines()[1].startswith(table[1].split()[0]) and table[1].split()[1] in out
    page = check_page((folder / "a.html").read_text())
    assert "By lang" in page.text and "de" in page.text and "en" in page.text


def test_report_of_two_models_with_other_labels_and_fields(folder, bonsai):
    line = ["evaluate", "a.bonsai", "dev.jsonl", "--against", "b.bonsai", "--report", "ab.html"]
    out = bonsai(*line, "--by", "lang", "-k", "1", "3")
    assert "P@1" in out and "report: ab.html" in out
    found = json.loads(bonsai(*line, "--by", "lang", "--json"))
    assert found["results"].keys() == {"a", "b"} and "P@1" in found["differences"]["b"]
    assert found["by"]["lang"].keys() == {"de", "en"}
    assert (
        found["results"]["a"]["P@1"]
        == json.loads(bonsai("evaluate", "a.bonsai", "dev.jsonl", "--json"))["P@1"]
    )
    check_page((folder / "ab.html").read_text())


def test_report_beside_the_predictions_of_any_system(folder, bonsai):
    bonsai("predict", "a.bonsai", "dev.jsonl", "-k", "10", "-o", "same.jsonl")
    line = ["evaluate", "a.bonsai", "dev.jsonl", "--report", "x1.html", "--json"]
    found = json.loads(bonsai(*line, "--against", "same.jsonl"))
    assert found["results"]["a"] == found["results"]["same"]
    assert {d["value"] for d in found["differences"]["same"].values()} == {0}
    ranks = [json.loads(line) for line in (folder / "same.jsonl").read_text().splitlines()]
    other = [
        {"row": row["row"], "labels": [{"label": "of them alone"}, {"label": row["labels"][0]["label"]}]}
        for row in ranks[:50]
    ]
    (folder / "other.jsonl").write_text("\n".join(map(json.dumps, other)))
    found = json.loads(bonsai(*line, "--against", "other.jsonl"))
    assert found["results"]["other"]["P@1"] == 0 and "P@3" not in found["results"]["other"]
    check_page((folder / "x1.html").read_text())


def test_report_to_standard_output(folder, bonsai):
    check_page(bonsai("evaluate", "a.bonsai", "dev.jsonl", "--report", "-"))
    assert "nDCG" in bonsai.error


def test_a_report_of_matrices_is_a_valid_page(cli_folder, tmp_path, capsys):
    from bonsai_xmc import _cli

    line = ["evaluate", cli_folder / "model.bonsai", cli_folder / "test.txt", "--report", tmp_path / "r.html"]
    assert _cli.main([str(part) for part in line]) == 0
    check_page((tmp_path / "r.html").read_text())


def test_errors_of_the_command(folder, bonsai):
    assert "--by needs --report" in error_of(bonsai, "evaluate", "a.bonsai", "dev.jsonl", "--by", "lang")
    report = ["--report", "x.html"]
    assert "has no field 'colour'" in error_of(
        bonsai, "evaluate", "a.bonsai", "dev.jsonl", *report, "--by", "colour"
    )
    assert "lines.tsv, line 2: not a prediction" in error_of(
        bonsai, "evaluate", "a.bonsai", "dev.jsonl", *report, "--against", "lines.tsv"
    )
    assert "dev.jsonl, line 1: not a prediction" in error_of(
        bonsai, "evaluate", "a.bonsai", "dev.jsonl", *report, "--against", "dev.jsonl"
    )
    assert "there is no folder" in error_of(
        bonsai, "evaluate", "a.bonsai", "dev.jsonl", "--report", "none/x.html"
    )
    assert "is the input" in error_of(bonsai, "evaluate", "a.bonsai", "dev.jsonl", "--report", "a.bonsai")
    assert "lines.tsv has no fields, so --by must not be given" in error_of(
        bonsai, "evaluate", "a.bonsai", "lines.tsv", "--format", "annif", *report, "--by", "lang"
    )
    assert not (folder / "x.html").exists()
