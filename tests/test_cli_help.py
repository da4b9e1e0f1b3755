"""Help, examples, hints, completion and start of the command line, and the shape of predictions."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import TextBonsai, _cli, datasets, load, systems
from bonsai_xmc._base.params import TEXT_PARAMETERS
from bonsai_xmc._cli import parser
from bonsai_xmc._model.calibration import METHODS
from bonsai_xmc.datasets._documents import FORMATS
from bonsai_xmc.datasets._documents.problems import MAX_LINE
from helpers import error_of
from kinds import QUICK
from test_import_omikuji import N, random_tree, sparse, write_model

BONSAI = [sys.executable, "-m", "bonsai_xmc"]
SCHEMA = json.loads(Path(_cli.__file__).with_name("prediction.schema.json").read_text())
VERBS = parser.make_parser().verbs
HEAVY = ("numpy", "scipy", "sklearn", "bonsai_xmc._core", "pyarrow", "starlette")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cli_folder):
    """Make the input files of the examples."""
    path = tmp_path_factory.mktemp("examples")
    topics = {
        "bricks": "old brick walls",
        "heat": "heat pumps",
        "heating": "boilers at home",
        "homes": "houses",
    }
    for name in ("documents", "test", "dev", "corrected"):
        with open(path / f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["title", "abstract", "subjects"])
            for i in range(40):
                first, second = (list(topics)[(i + j) % 4] for j in (0, 1))
                rows.writerow(
                    [f"On {topics[first]}", f"{topics[first]} and {topics[second]}", f"{first};{second}"]
                )
    for name in ("train.txt", "X.npz", "Y.npz"):
        (path / name).write_bytes((cli_folder / name).read_bytes())
    tree = random_tree(np.random.default_rng(1), sparse)[0]
    write_model(path / "omikuji-model", [tree], N)
    (path / "names.txt").write_text("".join(f"label {i}\n" for i in range(450)))
    return path


@pytest.fixture(scope="module")
def models(folder):
    """Make the models that the examples of other verbs use."""
    for line in [
        *VERBS["train"].get_default("verb").EXAMPLES,
        "bonsai labels model.bonsai --drop homes -o other.bonsai",
    ]:
        assert _cli_in(folder, line) == 0
    return folder


def _cli_in(folder, line):
    before = os.getcwd()
    os.chdir(folder)
    try:
        return _cli.main(shlex.split(line)[1:])
    finally:
        os.chdir(before)


@pytest.mark.parametrize("name", [name for name in VERBS if name not in ("serve", "demo")])
def test_every_verb_has_two_examples_that_run(models, name, capsys):
    """Those of `demo` are run in test_demo.py."""
    examples = VERBS[name].get_default("verb").EXAMPLES
    assert len(examples) == 2 and all(line.startswith(f"bonsai {name} ") for line in examples)
    for line in examples:
        assert _cli_in(models, line) == 0, capsys.readouterr().err


@pytest.mark.parametrize("line", VERBS["serve"].get_default("verb").EXAMPLES)
def test_examples_of_serve_run(models, line):
    pytest.importorskip("uvicorn")
    words = [*shlex.split(line.replace("--port 8080", ""))[1:], "--port", "0"]
    with subprocess.Popen([*BONSAI, *words], cwd=models, stdout=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        server.terminate()
    assert line.startswith("http://127.0.0.1:")


def test_help_shows_the_way_from_a_file_to_a_server():
    text = parser.make_parser().format_help()
    assert re.findall(r"^  bonsai (\w+)", text, re.M) == ["train", "evaluate", "predict", "serve"]
    assert all(f"    {name} " in text or f"    {name}\n" in text for name in parser.VERBS)


def test_help_of_serve_names_every_route():
    routes = pytest.importorskip("bonsai_xmc._server.routes")
    text = VERBS["serve"].format_help()
    for place in routes.PLACES:
        if place.is_annifs:
            assert "\n  /v1/… " in text
        elif place.is_described:
            assert f"{place.method} {place.path}" in text


def options_of(text):
    return set(re.findall(r"^  (?:-\w(?: \S+)?, )?(--[A-Za-z][\w-]*)", text, re.M))


def test_train_help_shows_ten_options_and_help_all_the_rest():
    train = VERBS["train"]
    short, full = options_of(train.format_help()), options_of(train.format_help(everything=True))
    assert len(short - {"--help", "--help-all"}) == 10 and "--output" in short
    assert full == {o for o in train._option_string_actions if re.match("--(?!no-)", o)}
    for group in ("documents", "matrices", "classifiers", "label trees", "prediction", "run"):
        assert f"\n{group}:\n" in train.format_help(everything=True)


@pytest.mark.parametrize("name", VERBS)
def test_help_describes_options_and_their_defaults(name):
    verb = VERBS[name]
    assert verb.format_help(everything=True).count("\n  bonsai ") == 2, "two examples"
    for action in verb._actions:
        assert action.help
        if action.option_strings and not action.required and action.dest != "help":
            assert "(default" in verb._get_formatter()._get_help_string(action), action.dest


def test_help_lists_the_choices_of_the_library():
    """Choices are repeated in the parser, so that help imports nothing else."""
    assert set(FORMATS) <= set(parser.FORMATS)
    assert (*METHODS, "none") == VERBS["calibrate"]._option_string_actions["--method"].choices
    assert str(MAX_LINE) in VERBS["train"]._option_string_actions["--max-line"].help


# Start


def imported_by(*line, **environment):
    """Return the modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bonsai_xmc", *line],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=60,
    )
    return done, set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.M))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        (["train", "--help-all"], 0),
        (["fly"], 2),
        (["train", "documents.csv"], 2),
        (["serve", "m", "--port", "99999"], 2),
    ],
)
def test_help_and_wrong_usage_import_nothing_heavy(line, code):
    done, modules = imported_by(*line)
    assert done.returncode == code
    assert "bonsai_xmc._cli.parser" in modules and not modules & set(HEAVY)


def test_info_imports_no_estimator(models):
    done, modules = imported_by("info", str(models / "model.bonsai"))
    assert done.stdout.startswith("model ") and done.returncode == 0
    assert "bonsai_xmc._core" in modules and not modules & {"sklearn", "pandas", "bonsai_xmc._estimators"}


def test_prediction_of_a_text_imports_what_it_uses(models):
    done, modules = imported_by("predict", str(models / "model.bonsai"), "brick walls", "-k", "1")
    assert done.stdout.endswith("bricks\n")
    assert "bonsai_xmc._core" in modules and not modules & {"sklearn", "pandas", "bonsai_xmc._estimators"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("bonsai tr", {"train"}),
        ("bonsai train --keep-", {"--keep-rows"}),
        ("bonsai train --loss sq", {"squared_hinge"}),
    ],
)
def test_each_shell_completes_verbs_options_and_choices(tmp_path, shell, typed, expected):
    found = tmp_path / "found"
    done, modules = imported_by(
        _ARGCOMPLETE="1",
        _ARGCOMPLETE_SHELL=shell,
        _ARGCOMPLETE_SUPPRESS_SPACE="1",
        _ARGCOMPLETE_STDOUT_FILENAME=str(found),
        _ARGCOMPLETE_IFS="\n",
        COMP_LINE=typed,
        COMP_POINT=str(len(typed)),
    )
    assert done.returncode == 0
    words = {re.split(r"[\t:]", word)[0].strip() for word in found.read_text().split("\n")}
    assert expected <= words and not modules & set(HEAVY)


# The command line, which writes a dot once it has begun: Python itself does not start in silence.
ANNOUNCED = """
import contextlib, os, sys
from bonsai_xmc import _cli

begin = _cli._ending_on_signals

@contextlib.contextmanager
def announced(ended):
    with begin(ended):
        os.write(1, b".")
        yield

_cli._ending_on_signals = announced
sys.exit(_cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.3, 0.6])
def test_an_interrupt_in_the_first_second_is_silent(models, pause):
    listen = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [sys.executable, "-c", ANNOUNCED, "predict", "model.bonsai", "-"],
        cwd=models,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=listen,
    ) as process:
        assert process.stdout.read(1) == b"."
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (out, err) == (b"", b"") and process.returncode in (130, -signal.SIGINT)


# Hints


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["predct", "m", "x"], "did you mean 'predict'?"),
        (["train", "x", "-o", "y", "--label-name", "z"], "did you mean '--label-names'"),
        (["train", "x", "-o", "y", "--los=logistic"], "did you mean '--loss'"),
        (["train", "x", "-o", "y", "--loss", "squared_hing"], "did you mean 'squared_hinge'?"),
        (["train", "x", "-o", "y", "--preset", "parable"], "did you mean 'parabel'"),
    ],
)
def test_misspelt_words_get_a_hint(capsys, line, hint):
    with pytest.raises(SystemExit) as caught:
        _cli.main(line)
    error = capsys.readouterr().err
    assert caught.value.code == 2 and hint in error
    assert error.startswith("usage: bonsai") and error.count("\n") == 2


def test_misspelt_fields_and_parameters_get_a_hint(models, bonsai):
    line = ["train", "documents.csv", "-o", "x.bonsai"]
    assert "has no field 'titel'; did you mean 'title'?" in error_of(bonsai, *line, "--text", "titel")
    Path("p.json").write_text('{"los": "logistic"}')
    assert "unknown parameter 'los'; did you mean 'loss'?" in error_of(bonsai, *line, "--params", "p.json")
    assert "there is no file 'test.cvs'; did you mean 'test.csv'?" in error_of(
        bonsai, "predict", "model.bonsai", "test.cvs"
    )
    assert "modle.bonsai: No such file or directory; did you mean 'model.bonsai'" in error_of(
        bonsai, "predict", "modle.bonsai", "brick"
    )
    assert "no label 'brick'; did you mean 'bricks'?" in error_of(
        bonsai, "explain", "model.bonsai", "x", "--label", "brick"
    )


# Options without effect


@pytest.mark.parametrize(
    "option",
    [["--split", "tst"], ["--base", "0"], ["--label-base", "1"], ["--n-features", "9"], ["--n-labels", "9"]],
)
def test_options_of_matrices_are_refused_for_documents(models, bonsai, option):
    assert f"{option[0]} is for matrices, but documents.csv holds documents" in error_of(
        bonsai, "train", "documents.csv", "-o", "x.bonsai", *option
    )
    if option[0] not in ("--n-features", "--n-labels"):
        for verb, data in (("predict", "test.csv"), ("evaluate", "test.csv")):
            assert "is for matrices" in error_of(bonsai, verb, "model.bonsai", data, *option)
        if option[0] != "--label-base":
            assert "is for matrices, but a text was given" in error_of(
                bonsai, "predict", "model.bonsai", "heat pumps", *option
            )


@pytest.mark.parametrize(
    "option",
    [["--text", "a"], ["--labels", "b"], ["--strict"], ["--max-line", "9"], ["--no-lowercase"], ["--tune"]],
)
def test_options_of_documents_are_refused_for_matrices(models, bonsai, option):
    line = ["train", "train.txt", "-o", "x.bonsai", *option]
    if option[0] in ("--text", "--labels"):
        assert "train.txt" in error_of(bonsai, *line)  # it is read as documents
    else:
        assert f"{option[0].replace('no-', '')} is for documents" in error_of(bonsai, *line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("predict model.bonsai brick --format csv", "--format is for files, but a text was given"),
        ("predict model.bonsai brick --text title", "--text is for files, but a text was given"),
        ("predict model.bonsai test.csv --json -o x.csv", "--json writes JSON lines"),
        ("predict model.bonsai test.csv --json --output-format tsv", "--json writes JSON lines"),
        ("explain model.bonsai brick --json --features 3", "--features is for tables"),
        ("evaluate model.bonsai test.csv --json --table csv", "--table is another form than --json"),
        ("evaluate model.bonsai test.csv --classes other.bonsai", "--classes is for files of predictions"),
        ("evaluate found.csv test.csv --beam-size 3", "--beam-size needs a model, but found.csv holds"),
        ("evaluate found.csv test.csv --n-jobs 1", "--n-jobs needs a model, but found.csv holds predictions"),
        ("evaluate X.npz Y.npz --all-labels", "--all-labels is for documents, but Y.npz holds features"),
        ("labels model.bonsai --n-jobs 1", "--n-jobs has no effect on a list"),
        ("labels model.bonsai --list --drop heat -o x.bonsai", "--list has no effect on edits"),
        ("convert documents.csv -o x", "documents.csv holds documents, but only matrices can be converted"),
        (
            "import omikuji-model --label-names names.txt --n-labels 9 -o x",
            "--n-labels has no effect with",
        ),
        ("evaluate model.bonsai test.csv --threshold per_label", "the labels of model have no thresholds of"),
        ("predict model.bonsai test.csv --threshold per_label", "train it with --threshold per_label"),
    ],
)
def test_options_without_effect_are_refused(models, bonsai, line, message):
    Path("found.csv").write_text("row,label,score\n2,bricks,1\n")
    bonsai(*line.split(), code=2 if "--json writes" in message else 1)
    assert message in bonsai.error and not Path("x").exists() and not Path("x.csv").exists()


# The shape of predictions


def test_predictions_have_the_shape_of_the_schema(models, bonsai, cli_folder):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    TextBonsai.load("model.bonsai").name_labels({"bricks": "Bricks"}).save("named.bonsai")
    Path("docs.jsonl").write_text('{"id": 7, "title": "bricks"}\n{"title": "zzzz"}\n')
    for line in (
        ["named.bonsai", "brick walls"],
        ["named.bonsai", "docs.jsonl"],
        ["model.bonsai", "test.csv", "--threshold", "0.5"],
        [cli_folder / "model.bonsai", cli_folder / "test.txt"],
        [cli_folder / "model.bonsai", cli_folder / "X.npz", "--label-names", "names.txt"],
    ):
        rows = [json.loads(text) for text in bonsai("predict", *line, "--json").splitlines()]
        assert rows
        for row in rows:
            jsonschema.validate(row, SCHEMA)
    assert rows[79]["row"] == 80 and rows[0]["labels"][0]["name"].startswith("label ")


def test_predictions_of_matrices_can_be_evaluated_in_every_format(bonsai, tmp_path, cli_folder):
    model, test = cli_folder / "model.bonsai", cli_folder / "test.txt"
    expected = json.loads(bonsai("evaluate", model, test, "--json"))
    for name in ("p.jsonl", "p.csv", "p.tsv", "p.txt", "p.jsonl.gz"):
        bonsai("predict", model, test, "-o", tmp_path / name)
        line = ["evaluate", tmp_path / name, test, "--train", cli_folder / "train.txt", "--json"]
        assert json.loads(bonsai(*line)) == pytest.approx(expected)
    (tmp_path / "names.jsonl").write_text('{"row": 1, "labels": [{"label": "a"}]}\n')
    assert "no predictions for row 2" in error_of(bonsai, "evaluate", tmp_path / "names.jsonl", test)


def test_numbers_of_labels_can_be_evaluated_on_documents(models, bonsai):
    Path("gaps.csv").write_text(
        "title,abstract,subjects\nOn bricks,old brick walls,bricks\n\n,,\nheat,,\nheat pumps,,heat;homes\n"
    )
    expected = json.loads(bonsai("evaluate", "model.bonsai", "gaps.csv", "-k", 1, 2, "--json"))
    bonsai("predict", "model.bonsai", "gaps.csv", "-k", 2, "-o", "gaps.txt")
    bonsai("labels", "model.bonsai", "-q")
    Path("classes.tsv").write_text(bonsai("labels", "model.bonsai"))
    Path("classes.jsonl").write_text(bonsai("labels", "model.bonsai", "--json"))
    for classes in ("model.bonsai", "classes.tsv", "classes.jsonl"):
        line = ["evaluate", "gaps.txt", "gaps.csv", "--classes", classes, "-k", 1, 2, "--json"]
        found = json.loads(bonsai(*line))
        assert found == pytest.approx({name: expected[name] for name in found})
    bonsai("evaluate", "gaps.txt", "gaps.csv", code=1)
    assert "give --classes MODEL, whose labels have these numbers" in bonsai.error


def test_written_files_can_be_read(models, bonsai):
    """Lists of labels name labels, and a report holds parameters."""
    TextBonsai.load("model.bonsai").name_labels({"bricks": "Bricks"}).save("named.bonsai")
    for options in ([], ["--json"]):
        Path("names").write_text(bonsai("labels", "named.bonsai", *options))
        assert "Bricks" in bonsai("predict", "model.bonsai", "brick walls", "--label-names", "names")
    Path("list.tsv").write_text(bonsai("labels", "model.bonsai"))
    assert bonsai("predict", "model.bonsai", "brick", "--restrict", "@list.tsv") != ""
    bonsai("predict", "model.bonsai", "test.csv", "--output-format", "sheet", "-o", "sheet")
    assert bonsai("evaluate", "sheet", "test.csv", "-k", 1).startswith("  ")
    trees = ["--classifiers", "leaf", "-q", "--n-trees", 2]
    bonsai("train", "train.txt", *trees, "--branching-factor", 4, "-o", "trees.bonsai")
    Path("trees.json").write_text(bonsai("info", "trees.bonsai", "--tree", "--json"))
    bonsai("train", "train.txt", "--classifiers", "leaf", "--tree", "trees.json", "-q", "-o", "same.bonsai")
    assert load("same.bonsai").trees_ == load("trees.bonsai").trees_
    Path("report.json").write_text(bonsai("info", "model.bonsai", "--json"))
    bonsai("train", "documents.csv", "--params", "report.json", "--keep-rows", "-o", "again.bonsai", "-q")
    assert Path("again.bonsai").read_bytes() == Path("model.bonsai").read_bytes()


def test_matrices_from_python_have_the_same_shape(bonsai, tmp_path):
    """Labels are those of `classes_`, not numbers of columns."""
    from bonsai_xmc import Bonsai

    Bonsai().fit(np.eye(3), [["tab\there"], ["grün"], ["日本", "grün"]]).save(tmp_path / "named")
    (tmp_path / "rows").write_text("2 3\n1:1\n\n")
    rows = [
        json.loads(line)
        for line in bonsai("predict", tmp_path / "named", tmp_path / "rows", "--json").splitlines()
    ]
    assert rows[0]["labels"][0]["label"] == "grün" and rows[1] == {"row": 2, "labels": []}
    assert bonsai("predict", tmp_path / "named", tmp_path / "rows", "-k", 1).splitlines()[0] == "2 3"
    table = bonsai("predict", tmp_path / "named", tmp_path / "rows", "-k", 1, "--output-format", "table")
    assert table.splitlines()[0] == "row 1" and "none of its" in table
    datasets.save_sparse(tmp_path / "x.npz", sp.csr_array(np.eye(3, dtype=np.float32)))
    tsv = bonsai("predict", tmp_path / "named", tmp_path / "x.npz", "--output-format", "tsv").splitlines()
    assert tsv[0] == "row\tid\trank\tlabel\tname\tscore" and "tab here" in tsv[1].split("\t")


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_every_system_is_trained_and_used_from_the_command_line(models, bonsai, cli_folder, system):
    """The parameters of a system are the options of `train --system`; other verbs take any model."""
    table = systems.system(system).parameters
    text = parser.make_parser(system).verbs["train"].format_help()
    own = {name if name not in TEXT_PARAMETERS else f"classifier-{name}" for name in table}
    assert {f"--{name.replace('_', '-')}" for name in own} <= options_of(text)
    assert "--branching-factor" not in text or "branching_factor" in table
    quick = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.get(system, {}).items()]
    options = ["--system", system, *quick, "--threshold", "0.3", "--n-jobs", "1"]
    out = bonsai("train", cli_folder / "train.txt", "-o", "matrix.bonsai", *options)
    assert f"ranked by  {system}" in re.sub(" +", "  ", out).replace("ranked  by", "ranked by")
    assert json.loads(bonsai("info", "matrix.bonsai", "--json"))["system"] == system
    assert "P" in bonsai("evaluate", "matrix.bonsai", cli_folder / "test.txt")
    bonsai("train", "documents.csv", "-o", "texts.bonsai", *options, "-q")
    assert len(bonsai("predict", "texts.bonsai", "brick walls", "-k", 2).splitlines()) == 2
    Path("report.json").write_text(bonsai("info", "texts.bonsai", "--json"))
    bonsai(
        "train", "documents.csv", "-o", "again.bonsai", "--system", system, "--params", "report.json", "-q"
    )
    assert Path("again.bonsai").read_bytes() == Path("texts.bonsai").read_bytes()


def test_systems_that_do_not_exist_get_a_hint(capsys):
    with pytest.raises(SystemExit):
        _cli.main(["train", "x", "-o", "y", "--system", "bonsay"])
    assert "did you mean 'bonsai'?" in capsys.readouterr().err
