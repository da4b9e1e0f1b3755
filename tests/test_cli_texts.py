"""The commands on documents: train, predict, evaluate and info."""

import csv
import gzip
import inspect
import io
import json
import re
import sys

import numpy as np
import pytest

from bonsai_xmc import TextBonsai, metrics
from bonsai_xmc._base.params import TEXT_PARAMETERS
from bonsai_xmc._cli.report import in_bytes
from bonsai_xmc._estimators.text import TEXT_PARAMS
from bonsai_xmc.datasets import read_documents
from helpers import params_of
from test_text_model import TOPICS, make_records

NAMES = {f"t:{i}": name for i, name in enumerate(TOPICS)}
KEYS = {name: key for key, name in NAMES.items()}


def lines_of(records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@pytest.fixture(scope="module")
def records():
    rows, labels = make_records()
    keys = ([KEYS[name] for name in row] for row in labels)
    return [{"id": f"d{i}", **row, "subjects": k} for i, (row, k) in enumerate(zip(rows, keys, strict=True))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, records):
    """Make documents in several formats, and a model of them; not to be changed."""
    path = tmp_path_factory.mktemp("texts")
    (path / "docs.jsonl.gz").write_bytes(gzip.compress(lines_of(records).encode()))
    (path / "dev.jsonl").write_text(lines_of(records[:20]))
    (path / "names.tsv").write_text("".join(f"{key}\t{name}\n" for key, name in NAMES.items()))
    (path / "lines.txt").write_text("A boiler and a pump\n\nHedge of flower\n")
    (path / "fasttext.txt").write_text(
        "".join(f"{' '.join('__label__' + s for s in r['subjects'])} {r['abstract']}\n" for r in records)
    )
    model = TextBonsai(fields=["title", "abstract"]).fit(records, [r["subjects"] for r in records])
    model.name_labels(NAMES).save(path / "python.bonsai")
    return path


@pytest.fixture(scope="module")
def model(folder):
    """Return the file of a model that the command line has trained."""
    from bonsai_xmc import _cli

    path = str(folder / "catalogue.bonsai")
    names = ["--label-names", str(folder / "names.tsv")]
    line = [
        "train",
        str(folder / "docs.jsonl.gz"),
        "--text",
        "title,abstract",
        "--labels",
        "subjects",
        *names,
    ]
    assert _cli.main([*line, "-o", path, "-q"]) == 0
    return path


# train


def test_training_equals_that_in_python(bonsai, folder, model):
    mine, pythons = TextBonsai.load(model), TextBonsai.load(folder / "python.bonsai")
    texts = ["A boiler", "old hedge", {"abstract": "Ziegelbau"}]
    np.testing.assert_array_equal(mine.top_k(texts, 4)[1], pythons.top_k(texts, 4)[1])
    assert params_of(mine) == params_of(pythons)
    assert mine.label_names_ == pythons.label_names_ == [NAMES[key] for key in mine.classes_]


def test_training_prints_the_fields_that_it_reads(bonsai, tmp_path):
    out = bonsai("train", "docs.jsonl.gz", "-o", tmp_path / "m")
    assert out.splitlines()[0] == "texts from title, abstract; labels from subjects"
    assert "title+abstract word 1" in out and "title char_wb 5" in out
    report = json.loads(bonsai("train", "docs.jsonl.gz", "-o", tmp_path / "m", "--json"))
    assert report["rows"] == 120
    assert report["problems"] == {}
    assert report["texts"]["source"] == {"labels": "subjects", "separator": "list"}
    assert report["seconds"].keys() >= {"reading", "texts", "one-vs-rest", "total"}


def test_training_prints_the_memory_that_it_needs(bonsai, tmp_path):
    line = ["train", "docs.jsonl.gz", "--text", "title,abstract", "-o", tmp_path / "m"]
    said = re.search(r"about ([\d.]+ \w+) of memory to train, about [\d.]+ \w+ for the model", bonsai(*line))
    assert said
    report = json.loads(bonsai(*line, "--json"))
    assert report["estimate"]["training_bytes"] > report["estimate"]["model_bytes"] > 0
    assert in_bytes(report["estimate"]["training_bytes"]) == said[1]
    documents = list(read_documents("docs.jsonl.gz", text="title,abstract", labels="subjects"))
    model = TextBonsai(fields=["title", "abstract"])
    texts, labels = [d.text for d in documents], [d.labels for d in documents]
    assert model.memory_estimate(texts, labels) == report["estimate"]


def test_every_parameter_of_texts_has_an_option():
    assert ["fields", *TEXT_PARAMETERS] == list(TEXT_PARAMS)
    signature = inspect.signature(TextBonsai).parameters
    for name, parameter in TEXT_PARAMETERS.items():
        assert signature[name].default == parameter.default


def test_options_of_texts_become_parameters(bonsai, tmp_path):
    line = ["--text", "abstract,title=0.5", "--word-ngrams", "1=1,2-3=0.25", "--char-ngrams", "4"]
    line += ["--min-df", "3", "--max-df", "0.9", "--max-features", "1000", "--no-lowercase", "--C", "2"]
    bonsai("train", "docs.jsonl.gz", *line, "-o", tmp_path / "m", "-q")
    params = TextBonsai.load(tmp_path / "m").get_params()
    expected = {
        "fields": {"abstract": 0.0, "title": 0.5},
        "word_ngrams": {1: 1.0, (2, 3): 0.25},
        "char_ngrams": 4,
        "min_df": 3,
        "max_df": 0.9,
        "max_features": 1000,
        "lowercase": False,
        "classifier__C": 2.0,
    }
    assert {name: params[name] for name in expected} == expected


def test_the_parameters_of_a_model_train_it_again(bonsai, tmp_path, model):
    (tmp_path / "p.json").write_text(json.dumps(json.loads(bonsai("info", model, "--json"))["params"]))
    names = ["--label-names", "names.tsv"]
    bonsai("train", "docs.jsonl.gz", "--params", tmp_path / "p.json", *names, "-o", tmp_path / "m", "-q")
    with open(model, "rb") as file:
        assert (tmp_path / "m").read_bytes() == file.read()


def test_a_title_is_recognised_by_its_name(bonsai, tmp_path):
    bonsai("train", "docs.jsonl.gz", "--text", "abstract,title", "-o", tmp_path / "m", "-q")
    blocks = [name for name, _, _ in TextBonsai.load(tmp_path / "m").blocks_]
    assert blocks == ["abstract+title word 1", "title word 2", "title word 3", "title char_wb 5"]


@pytest.mark.parametrize(
    ("title", "abstract", "fields", "expected"),
    [
        (1, 1, "title", "n-grams of title"),
        (1, 90, "abstract,title", "n-grams of title"),
        (90, 1, "title,abstract", "n-grams of abstract"),
        (90, 1, "title", "long texts"),
        (90, 90, "title,abstract", "no short field"),
    ],
)
def test_training_prints_the_reason_for_ngrams(bonsai, tmp_path, records, title, abstract, fields, expected):
    longer = lambda r: {**r, "title": f"{r['title']} " * title, "abstract": f"{r['abstract']} " * abstract}
    (tmp_path / "docs.jsonl").write_text(lines_of(map(longer, records)))
    options = ["--text", fields, "--threshold", "0.5", "-o", tmp_path / "m"]
    out = bonsai("train", tmp_path / "docs.jsonl", *options)
    assert re.search(rf"\n +{expected}: 75 % of the texts have up to .* characters \(first 120 rows\)\n", out)
    assert ("char_wb 5" in out) == ("n-grams" in expected)


def test_files_without_fields_train_a_model_without_fields(bonsai, tmp_path):
    out = bonsai("train", "fasttext.txt", "-o", tmp_path / "m")
    assert re.search(r"\n +n-grams: 75 % of the texts have up to \d+ characters \(first 120 rows\)\n", out)
    assert TextBonsai.load(tmp_path / "m").fields is None
    assert "  t:1" in bonsai("predict", tmp_path / "m", "boiler", "-k", 1)
    rows = bonsai("predict", tmp_path / "m", "dev.jsonl", "--text", "title,abstract", "-k", 1)  # joined
    assert len(rows.splitlines()) == 20
    assert bonsai("evaluate", tmp_path / "m", "fasttext.txt").startswith(" ")
    assert "has no fields" in error(bonsai, "train", "fasttext.txt", "--text", "title", "-o", tmp_path / "m",
                                    "--format", "fasttext")  # fmt: skip


def test_documents_are_read_from_standard_input(bonsai, folder, tmp_path, monkeypatch, model):
    def stdin(name):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper((folder / name).open("rb")))

    stdin("docs.jsonl.gz")
    bonsai("train", "-", "--label-names", "names.tsv", "-o", tmp_path / "m", "-q")
    with open(model, "rb") as file:
        assert (tmp_path / "m").read_bytes() == file.read()
    stdin("lines.txt")
    rows = [json.loads(line) for line in bonsai("predict", model, "-", "-k", 1).splitlines()]
    assert [[s["name"] for s in row["labels"]] for row in rows] == [["heating"], [], ["gardens"]]


# faults


def error(bonsai, *line):
    bonsai(*line, code=1)
    return bonsai.error


@pytest.fixture
def faulty(tmp_path, folder):
    path = tmp_path / "faulty.jsonl"
    lines = (folder / "dev.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = b'{"id": "d3", "title": "No labels", "abstract": "", "subjects": []}\n'
    lines[5] = b"{ not JSON\n"
    lines[7] = b'{"id": "d7", "title": "br\xefck", "abstract": "wall", "subjects": ["t:0"]}\n'
    path.write_bytes(b"".join(lines))
    return path


def test_faulty_rows_are_reported_and_left_out(bonsai, faulty, tmp_path):
    bonsai("train", faulty, "-o", tmp_path / "m", "-q")
    assert bonsai.error.splitlines() == [
        f"bonsai: warning: {faulty}: 1 row without labels: left out (line 4)",
        f"bonsai: warning: {faulty}: 1 row with invalid JSON: left out (line 6)",
        f"bonsai: warning: {faulty}: 1 row with bytes that are not UTF-8: these were replaced, see "
        "--encoding (line 8)",
    ]
    assert TextBonsai.load(tmp_path / "m").n_rows_fit_ == 18


def test_strict_ends_at_the_first_fault(bonsai, faulty, tmp_path, model):
    message = error(bonsai, "train", faulty, "-o", tmp_path / "m", "--strict")
    assert message == f"bonsai: error: {faulty}, line 4: without labels\n"
    assert not (tmp_path / "m").exists()
    assert "line 6: not valid JSON" in error(bonsai, "predict", model, faulty, "--strict")
    assert "line 4: without labels" in error(bonsai, "evaluate", model, faulty, "--strict")


def test_faulty_rows_keep_their_place_in_predictions(bonsai, faulty, model):
    rows = [json.loads(line) for line in bonsai("predict", model, faulty, "-k", 1).splitlines()]
    assert [row["row"] for row in rows] == list(range(1, 21))
    assert rows[5] == {"row": 6, "labels": []}
    assert "line 6" in bonsai.error and "without labels" not in bonsai.error


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("train", "docs.jsonl.gz", "--text", "tilte"), "has no field 'tilte'; did you mean 'title'?"),
        (("train", "docs.jsonl.gz", "--labels", "tags"), "has no field 'tags'"),
        (("train", "docs.jsonl.gz", "subjects"), "to name the field of the labels: --labels subjects"),
        (("train", "lines.txt"), "not a file of documents in a known format"),
        (("train", "lines.txt", "--format", "lines"), "holds no document with text and labels"),
        (("train", "docs.jsonl.gz", "--label-names", "nowhere"), "nowhere: No such file"),
        (("train", "docs.jsonl.gz", "--min-df", "0"), "min_df is 0, but must be"),
    ],
)
def test_training_that_cannot_be(bonsai, tmp_path, line, message):
    assert message in error(bonsai, *line, "-o", tmp_path / "m")


@pytest.mark.parametrize("option", ["--label-names", "--label-texts"])
def test_files_of_labels_are_checked_before_training(bonsai, tmp_path, monkeypatch, option):
    """Labels that a model file cannot hold are refused at the start, not when the model is saved."""
    monkeypatch.setattr(TextBonsai, "fit", lambda *_args, **_options: pytest.fail("training has begun"))
    lines = [{"id": "t:0", "name": "bricks"}, {"id": "t:1", "name": "heat\ud800"}]
    path = tmp_path / "names.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    message = error(bonsai, "train", "docs.jsonl.gz", option, path, "-o", tmp_path / "m")
    assert message.startswith(
        f"bonsai: error: {path}, line 2: the label 't:1' has the text 'heat\\ud800', which is not valid"
    )


def test_lines_longer_than_max_line_are_an_error(bonsai, model, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text('{"title": "A brick", "subjects": ["t:0"]}\n' + "x" * 1000)
    for line in (("train", path, "-o", tmp_path / "m"), ("predict", model, path), ("evaluate", model, path)):
        assert f"{path}, line 2: it is longer than 100 bytes" in error(bonsai, *line, "--max-line", 100)
    assert bonsai("predict", model, path, "-k", 1).count("\n") == 2  # one without a result
    assert "max_line is 0" in error(bonsai, "predict", model, path, "--max-line", 0)


# predict


def test_a_text_becomes_a_table(bonsai, model):
    first, *_ = out = bonsai("predict", model, "Neue Wärmepumpe", "-k", 2).splitlines()
    score, label, name = first.split(maxsplit=2)
    assert (label, name) == ("t:1", "heating")
    assert 0 < float(score) <= 1 and len(out) == 2
    assert bonsai("predict", model, "xyzzy") == "  no label: none of its words is in the model\n"
    assert bonsai("predict", model, "") == "  no label: none of its words is in the model\n"


@pytest.mark.parametrize("argument", ["title / author", "boiler/pump", "and/or", "/ a boiler", "AC/DC"])
def test_texts_with_slashes_are_not_taken_for_paths(bonsai, model, argument):
    assert bonsai("predict", model, argument, "-k", 1).startswith("  ")


@pytest.mark.parametrize("argument", ["nowhere.jsonl", "./x", "/no/where", "../x", "new.CSV", "x.jsonl.gz"])
def test_what_looks_like_a_file_must_exist(bonsai, model, argument):
    assert f"there is no file {argument!r}; if it is a text" in error(bonsai, "predict", model, argument)


def test_json_lines_equal_top_k_labels(bonsai, model, records, tmp_path):
    bonsai("predict", model, "dev.jsonl", "-k", 3, "-o", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [record["id"] for record in records[:20]]
    expected = TextBonsai.load(model).top_k_labels(records[:20], 3)
    for row, best in zip(rows, expected, strict=True):
        assert [(s["label"], s["name"]) for s in row["labels"]] == [(key, NAMES[key]) for key, _ in best]
        assert [s["score"] for s in row["labels"]] == pytest.approx([s for _, s in best], abs=1e-6)
    assert bonsai("predict", model, "dev.jsonl", "-k", 3) == (tmp_path / "out.jsonl").read_text()
    one = json.loads(bonsai("predict", model, "boiler", "-k", 1, "--json"))
    assert one["labels"][0]["name"] == "heating"


def test_tsv_and_score_files_equal_top_k(bonsai, model, records, tmp_path):
    bonsai("predict", model, "dev.jsonl", "-k", 2, "-o", tmp_path / "out.tsv")
    header, first, *_ = (tmp_path / "out.tsv").read_text().splitlines()
    assert header.split("\t") == ["row", "id", "rank", "label", "name", "score"]
    assert first.split("\t")[:4] == ["1", "d0", "1", "t:0"]
    bonsai("predict", model, "dev.jsonl", "-k", 2, "-o", tmp_path / "out.txt")
    ids, _ = metrics.read_predictions(tmp_path / "out.txt")
    np.testing.assert_array_equal(ids, TextBonsai.load(model).top_k(records[:20], 2)[0])


HARD = {"t:0": 'bricks, "old"', "t:1": "two\nlines\u2028of text", "t:2": '"quoted"', "t:3": "a;b\tc"}


def test_csv_output_quotes_any_name_and_keeps_empty_rows(bonsai, folder, faulty, tmp_path):
    named = TextBonsai.load(folder / "python.bonsai").name_labels(HARD)
    named.save(tmp_path / "m")
    bonsai("predict", tmp_path / "m", faulty, "-k", 4, "-o", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "id", "rank", "label", "name", "score"]
    assert [row["row"] for row in rows if row["rank"] in ("1", "")] == [str(i) for i in range(1, 21)]
    assert {"row": "6", "id": "", "rank": "", "label": "", "name": "", "score": ""} in rows
    assert {row["name"] for row in rows if row["rank"]} == set(HARD.values())
    packed = tmp_path / "packed.csv.gz"
    bonsai("predict", tmp_path / "m", faulty, "-k", 4, "-o", packed)
    assert gzip.decompress(packed.read_bytes()) == (tmp_path / "out.csv").read_bytes()


def test_what_predict_writes_can_be_evaluated(bonsai, folder, faulty, tmp_path):
    named = TextBonsai.load(folder / "python.bonsai").name_labels(HARD)
    named = named.rename({"t:2": '"t:2"'})
    named.save(tmp_path / "m")
    truth = tmp_path / "truth.jsonl"
    truth.write_text(faulty.read_text(errors="replace").replace('"t:2"', '"\\"t:2\\""'))
    found = {}
    for end in ("jsonl", "csv", "tsv", "ndjson", ""):
        path = tmp_path / f"out.{end}".removesuffix(".")
        bonsai("predict", tmp_path / "m", truth, "-k", 3, "-o", path)
        found[end] = json.loads(bonsai("evaluate", path, truth, "--json"))
    assert found["jsonl"]["P@1"] > 50
    assert all(result == found["jsonl"] for result in found.values())
    page = tmp_path / "report.html"
    bonsai("evaluate", tmp_path / "m", truth, "--report", page, "--against", tmp_path / "out.tsv")
    assert page.exists()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    message = error(bonsai, "evaluate", tmp_path / "other.csv", "dev.jsonl")
    assert "other.csv, line 2: not a prediction as `bonsai predict` writes it (columns row, label" in message


def test_names_of_output_files(bonsai, model, tmp_path, cli_folder):
    """An extension of an unknown or contradicting format is wrong usage."""
    bonsai("predict", model, "dev.jsonl", "-o", tmp_path / "out.ods", code=2)
    assert bonsai.error == (
        f"bonsai: error: -o {tmp_path / 'out.ods'}: a name ends with .jsonl, .ndjson, .csv, .tsv, .xlsx, "
        ".txt, or give --output-format\n"
    )
    assert not (tmp_path / "out.ods").exists()
    bonsai("predict", model, "dev.jsonl", "-o", tmp_path / "out.ods", "--output-format", "csv")
    assert (tmp_path / "out.ods").read_text().startswith("row,id,rank")
    bonsai("predict", cli_folder / "model.bonsai", cli_folder / "test.txt", "-o", tmp_path / "p.doc", code=2)


def test_halves_of_surrogate_pairs_in_documents(bonsai, model, tmp_path):
    (tmp_path / "d.jsonl").write_text('{"id": "x\\ud800", "title": "A brick \\ud800", "abstract": ""}\n')
    for format in ("table", "jsonl", "csv", "tsv"):
        line = ["predict", model, tmp_path / "d.jsonl", "-k", 1, "--output-format", format]
        assert "x?" in bonsai(*line)


def test_a_table_of_several_documents(bonsai, model):
    out = bonsai("predict", model, "dev.jsonl", "-k", 1, "--output-format", "table").split("\n\n")
    assert out[0].startswith("d0 ") and out[0].splitlines()[1].endswith("brick construction")
    assert len(out) == 21


def test_label_names_can_be_given_to_predict(bonsai, tmp_path):
    bonsai("train", "docs.jsonl.gz", "-o", tmp_path / "m", "-q")
    assert bonsai("predict", tmp_path / "m", "boiler", "-k", 1).split()[1:] == ["t:1"]
    named = bonsai("predict", tmp_path / "m", "boiler", "-k", 1, "--label-names", "names.tsv")
    assert named.split()[1:] == ["t:1", "heating"]


def test_a_terminal_gets_a_table(bonsai, model, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert bonsai("predict", model, "dev.jsonl", "-k", 1).startswith("d0 ")


# texts of labels


def test_label_texts_add_labels_without_rows(bonsai, tmp_path, records):
    texts = {"t:1": "heating", "t:9": "Bremen"}
    (tmp_path / "texts.tsv").write_text("".join(f"{key}\t{name}\n" for key, name in texts.items()))
    options = ["--label-texts", tmp_path / "texts.tsv", "--classifiers", "one_vs_rest"]
    out = bonsai("train", "docs.jsonl.gz", *options, "-o", tmp_path / "m")
    assert "5, 4 of them with rows, 2 with a name" in out
    assert "label texts  × 1.3 without rows, 1 from 1, 0.8 from 3, 0.6 from 5, 0.4 from 10, 0.3 from" in out
    assert bonsai("predict", tmp_path / "m", "Bremen", "-k", 1).split()[1:] == ["t:9", "Bremen"]
    (tmp_path / "dev.jsonl").write_text(lines_of([{"title": "Bremen", "subjects": ["t:9"]}, records[0]]))
    result = json.loads(bonsai("evaluate", tmp_path / "m", tmp_path / "dev.jsonl", "--json", "-k", 1))
    assert result["P@1"] == 100
    assert "1 of 2 true labels have no training row, only texts: R@1 is 100.0 for these" in bonsai.error
    (tmp_path / "more.tsv").write_text("t:9\tno\nt:8\tstudy\n")
    out = bonsai("labels", tmp_path / "m", "--add", tmp_path / "more.tsv", "-o", tmp_path / "m2")
    assert "6 labels instead of 5" in out
    assert bonsai("predict", tmp_path / "m2", "study", "-k", 1).split()[1:] == ["t:8", "study"]
    (tmp_path / "x.svm").write_text("0 1:1\n1 2:1\n")
    assert "--label-texts is for documents" in error(
        bonsai, "train", tmp_path / "x.svm", *options[:2], "-o", "m"
    )


# evaluate, info


def test_evaluate_equals_the_metrics_of_python(bonsai, model, records):
    result = json.loads(bonsai("evaluate", model, "dev.jsonl", "--coverage", "--json", "-k", 1, 2))
    loaded = TextBonsai.load(model)
    truth = [record["subjects"] for record in records[:20]]
    ids, _ = loaded.top_k(records[:20], 2)
    expected = metrics.evaluate(truth, ids, k=(1, 2), classes=loaded.classes_)
    assert {name: result[name] for name in expected} == pytest.approx(expected)
    exact = json.loads(bonsai("evaluate", model, "dev.jsonl", "--json", "--exact"))
    assert exact["found@1"] == 100


def test_true_labels_that_do_not_occur_in_training(bonsai, model, tmp_path, records):
    (tmp_path / "dev.jsonl").write_text(lines_of([{**records[0], "subjects": ["t:0", "t:99"]}]))
    result = json.loads(bonsai("evaluate", model, tmp_path / "dev.jsonl", "--json"))
    assert result["P@1"] == result["R@1"] == 100
    told = "1 of 2 true labels (50.0 %) do not occur in training; the figures leave them out"
    assert told in bonsai.error
    every = json.loads(bonsai("evaluate", model, tmp_path / "dev.jsonl", "--json", "--all-labels"))
    assert (every["P@1"], every["R@1"], every["RP@1"], every["RP@3"]) == (100, 50, 100, 50)
    assert "true labels" not in bonsai.error
    report = tmp_path / "report.html"
    out = bonsai("evaluate", model, tmp_path / "dev.jsonl", "--report", report, "--json")
    assert told in bonsai.error
    assert {name: json.loads(out)[name] for name in ("true_labels", "left_out_labels")} == {
        "true_labels": 1,
        "left_out_labels": 1,
    }
    assert "1 more true labels (50.0 % of 2) are not in the model" in report.read_text()


def test_another_field_of_labels(bonsai, model, tmp_path, records):
    other = [
        {"title": r["title"], "abstract": r["abstract"], "tags": "; ".join(r["subjects"])} for r in records
    ]
    (tmp_path / "dev.jsonl").write_text(lines_of(other))
    assert "has no field 'subjects'" in error(bonsai, "evaluate", model, tmp_path / "dev.jsonl")
    line = ["evaluate", model, tmp_path / "dev.jsonl", "--labels", "tags", "--label-separator", ";", "--json"]
    assert json.loads(bonsai(*line))["P@1"] == 100


def test_a_model_of_lists_reads_labels_in_strings(bonsai, model, tmp_path, records):
    rows = [f"{r['title']},{r['abstract']},{';'.join(r['subjects'])}\n" for r in records]
    (tmp_path / "dev.csv").write_text("title,abstract,subjects\n" + "".join(rows))
    result = json.loads(bonsai("evaluate", model, tmp_path / "dev.csv", "--json"))
    assert result["P@1"] == 100 and result["R@3"] == 100
    assert bonsai.error == ""


def test_binary_files_are_rejected(bonsai, model, tmp_path, cli_folder):
    (tmp_path / "x.bin").write_bytes(bytes(range(256)) * 8)
    assert "x.bin is not a text file: it holds NUL bytes" in error(
        bonsai, "predict", model, tmp_path / "x.bin"
    )
    assert "not a file of documents" in error(bonsai, "predict", model, model)
    assert "not a file of documents" in error(bonsai, "predict", model, cli_folder / "X.npz")
    assert "is a model, not a file of rows" in error(bonsai, "train", model, "-o", tmp_path / "m")


def test_evaluating_predictions_equals_evaluating_their_model(bonsai, model, faulty, tmp_path):
    """A model and its predictions have equal figures, also with faulty rows."""
    for data in ("dev.jsonl", faulty):
        bonsai("predict", model, data, "-k", 3, "-o", tmp_path / "out.jsonl.gz")
        known = json.loads(bonsai("evaluate", tmp_path / "out.jsonl.gz", data, "--json", "-k", 1, 3))
        expected = json.loads(bonsai("evaluate", model, data, "--json", "-k", 1, 3))
        assert known == pytest.approx({name: expected[name] for name in known})
        assert known.keys() >= {"P@1", "nDCG@3", "R@3"}


def test_predictions_that_cannot_be_evaluated(bonsai, model, tmp_path):
    bonsai("predict", model, "lines.txt", "-o", tmp_path / "out.jsonl")
    message = error(bonsai, "evaluate", tmp_path / "out.jsonl", "dev.jsonl")
    assert "has no predictions for row 4 of dev.jsonl; give the predictions for this file" in message
    assert "line 1: not a prediction" in error(bonsai, "evaluate", "dev.jsonl", "dev.jsonl")
    message = error(bonsai, "evaluate", tmp_path / "out.jsonl", "dev.jsonl", "--exact")
    assert "--exact needs a model, but" in message
    assert "--train is for matrices" in error(bonsai, "evaluate", model, "dev.jsonl", "--train", "dev.jsonl")


def test_info_shows_fields_blocks_and_named_labels(bonsai, model):
    out = bonsai("info", model)
    assert "title+abstract word 1" in out
    assert "4, 4 of them with rows, 4 with a name" in out
    assert json.loads(bonsai("info", model, "--json"))["texts"]["fields"] == ["title", "abstract"]


def test_models_of_matrices_take_no_documents(bonsai, cli_folder, folder):
    matrix = cli_folder / "model.bonsai"
    for option in ("--text=title", "--strict"):
        message = error(bonsai, "predict", matrix, cli_folder / "test.txt", option)
        assert "is for documents, but" in message
    line = ["train", cli_folder / "train.txt", "-o", folder / "x", "--strict"]
    assert "--strict is for documents, but" in error(bonsai, *line)


def test_documents_of_a_file_are_those_of_the_reader(folder, records):
    assert [d.id for d in read_documents(folder / "docs.jsonl.gz")] == [r["id"] for r in records]


def test_tune_shows_what_it_tried_and_rejects_given_weights(bonsai, tmp_path):
    out = bonsai("train", "docs.jsonl.gz", "--text", "title,abstract", "--tune", "-o", tmp_path / "m")
    tried = [line for line in out.splitlines() if "nDCG@5" in line]
    assert tried[0].split()[:2] == ["tuning", "nDCG@5"] and tried[0].endswith("the default")
    assert len(tried) >= 12
    assert all(line in bonsai("info", tmp_path / "m") for line in (tried[1].strip(), tried[-1].strip()))
    line = ["train", "docs.jsonl.gz", "--text", "title=1,abstract", "--tune", "-o", tmp_path / "m"]
    assert "--text must not give any" in error(bonsai, *line)


# Other encodings, spreadsheets and data frames


CSV = "title,abstract,subjects\nÄpfel & Öfen,Über Wärme – “warm”,t:1\nMauern,aus Ziegeln,t:0;t:2\n"


@pytest.mark.parametrize(
    ("encoding", "option"),
    [
        ("windows-1252", ["--encoding", "windows-1252"]),
        ("utf-16", []),
        ("utf-16-be", ["--encoding", "utf-16-be"]),
    ],
)
def test_files_in_other_encodings(bonsai, model, tmp_path, encoding, option):
    (tmp_path / "utf8.csv").write_text(CSV)
    (tmp_path / "other.csv").write_bytes(CSV.encode(encoding))
    packed = tmp_path / "other.csv.gz"
    packed.write_bytes(gzip.compress(CSV.encode(encoding)))
    expected = bonsai("predict", model, tmp_path / "utf8.csv")
    assert bonsai("predict", model, tmp_path / "other.csv", *option) == expected
    assert bonsai("predict", model, packed, *option) == expected and bonsai.error == ""
    for name, options in (("utf8.csv", []), ("other.csv", option)):
        bonsai("train", tmp_path / name, *options, "--min-df", 1, "-o", tmp_path / f"{name}.bonsai", "-q")
    assert (tmp_path / "utf8.csv.bonsai").read_bytes() == (tmp_path / "other.csv.bonsai").read_bytes()


def test_a_wrong_encoding_gets_a_hint(bonsai, model, tmp_path):
    (tmp_path / "x.csv").write_bytes(CSV.encode("windows-1252"))
    bonsai("predict", model, tmp_path / "x.csv")
    assert "not UTF-8: these were replaced, see --encoding" in bonsai.error
    assert "--encoding (encoding=) names another" in error(
        bonsai, "predict", model, tmp_path / "x.csv", "--strict"
    )
    assert "no encoding 'windows1252x'; did you mean 'windows-1252'?" in error(
        bonsai, "predict", model, tmp_path / "x.csv", "--encoding", "windows1252x"
    )


def test_a_table_without_a_header_is_reported(bonsai, tmp_path):
    rows = [f"A long title of book number {i}\tsubject {i % 3}; another" for i in range(9)]
    (tmp_path / "x.tsv").write_text("\n".join(rows) + "\n")
    assert "the first line of a table names its columns, but here it holds 'A long title of book" in error(
        bonsai, "train", tmp_path / "x.tsv", "-o", tmp_path / "m"
    )


def write_workbook(path, rows):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def test_workbooks_of_excel_are_read(bonsai, model, records, tmp_path):
    rows = [[r["id"], r["title"], r["abstract"], "; ".join(r["subjects"])] for r in records]
    write_workbook(tmp_path / "docs.xlsx", [["id", "title", "abstract", "subjects"], *rows])
    with open(tmp_path / "docs.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "title", "abstract", "subjects"], *rows])
    for name in ("docs.xlsx", "docs.csv"):
        bonsai("train", tmp_path / name, "-o", tmp_path / f"{name}.bonsai", "-q")
    assert (tmp_path / "docs.xlsx.bonsai").read_bytes() == (tmp_path / "docs.csv.bonsai").read_bytes()
    found = bonsai("predict", model, tmp_path / "docs.xlsx", "-k", 1).splitlines()
    assert json.loads(found[0])["row"] == 2 and len(found) == len(records)  # as Excel counts
    (tmp_path / "broken.xlsx").write_bytes((tmp_path / "docs.xlsx").read_bytes()[:-50])
    assert "broken.xlsx is not a valid workbook of Excel" in error(
        bonsai, "predict", model, tmp_path / "broken.xlsx"
    )


def test_spreadsheets_have_a_line_for_each_document(bonsai, model, records, tmp_path):
    plain = json.loads(bonsai("evaluate", model, "dev.jsonl", "-k", 1, 2, "--json"))
    openpyxl = pytest.importorskip("openpyxl")
    bonsai("predict", model, "dev.jsonl", "-k", 2, "-o", tmp_path / "out.xlsx")
    lines = [
        list(row) for row in openpyxl.load_workbook(tmp_path / "out.xlsx").active.iter_rows(values_only=True)
    ]
    bonsai("predict", model, "dev.jsonl", "-k", 2, "-o", tmp_path / "sheet.csv", "--output-format", "sheet")
    with open(tmp_path / "sheet.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [[str(cell or "") for cell in line] for line in lines]
    assert rows[0] == ["row", "id", "title", "labels", "names", "scores"] and len(rows) == 21
    best = TextBonsai.load(model).top_k_labels(records[:1], 2)[0]
    assert rows[1][:2] == ["1", "d0"] and rows[1][2] == records[0]["title"]
    assert rows[1][3].split("\n") == [label for label, _ in best]
    assert rows[1][4].split("\n") == [NAMES[label] for label, _ in best]
    for name in ("out.xlsx", "sheet.csv"):
        found = json.loads(bonsai("evaluate", tmp_path / name, "dev.jsonl", "-k", 1, 2, "--json"))
        assert found == pytest.approx({metric: plain[metric] for metric in found})


def test_a_label_without_an_id_is_not_called_none(bonsai, tmp_path):
    (tmp_path / "names.jsonl").write_text('{"id": null, "name": "nothing"}\n')
    message = error(
        bonsai, "train", "docs.jsonl.gz", "--label-names", tmp_path / "names.jsonl", "-o", tmp_path / "m"
    )
    assert "has no id or no name" in message


def test_polars_frames_equal_pandas_frames(records):
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    rows = [{"title": r["title"] if i else None, "abstract": r["abstract"]} for i, r in enumerate(records)]
    labels = [r["subjects"] for r in records]
    model = TextBonsai(fields=["title", "abstract"])
    expected = model.fit(pandas.DataFrame(rows), labels).top_k(rows[:9], 3)
    frame = polars.DataFrame(rows)
    fitted = model.fit(frame, polars.Series(labels))
    for found in (fitted.top_k(frame[:9], 3), fitted.top_k(rows[:9], 3)):
        np.testing.assert_array_equal(found[1], expected[1])
    with pytest.raises(ValueError, match="X has no column 'abstract'; its columns are 'title'"):
        fitted.top_k(frame[["title"]], 1)
    one = TextBonsai().fit(frame["abstract"], labels)
    assert one.top_k(frame["abstract"][:2], 1)[0].shape == (2, 1)


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_text_must_name_fields_of_the_model(bonsai, model, verb):
    bonsai(verb, model, "dev.jsonl", "--text", "titel", code=1)
    assert f"--text names titel, but {model} reads the fields title, abstract" in bonsai.error
    bonsai(verb, model, "dev.jsonl", "--text", "title,abstract")
