"""The documentation is correct: its examples run, and the files, commands and names in it exist."""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas
import pytest
import reproduce
from benchmarks import figures
from reproduce import known
from scipy.sparse import csr_array

import bonsai_xmc
from bonsai_xmc import Bonsai, TextBonsai, datasets, metrics
from bonsai_xmc._base.params import PARAMETERS, PRESETS
from bonsai_xmc._cli import parser
from bonsai_xmc._modelfile import container
from bonsai_xmc.systems.low_rank import LEML

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = sorted(
    module.name
    for package in (bonsai_xmc, reproduce)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith(("__main__", "_core"))
    and not module.name.startswith("bonsai_xmc.annif._")  # needs Annif: tests/test_annif.py
)
NEEDS_DATA = {"reproduce.known.load": "bibtex"}  # examples that read a data set
FENCE = re.compile(
    r"^(?P<mark>`{3,}|~{3,})[ ]*(?P<language>\S*)[^\n]*\n(?P<code>.*?)^(?P=mark)[ ]*$", re.M | re.S
)
NOT_RUN = {
    "text",
    "sh",
    "console",
    "json",
    "bibtex",
}  # of blocks that are not run


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in ["bonsai_xmc", "reproduce", *MODULES]:
        for test in finder.find(importlib.import_module(name), name):
            if test.examples:
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("test", list(examples()))
def test_examples_of_docstrings(test, tmp_path, monkeypatch):
    assert not any(doctest.SKIP in example.options for example in test.examples), "no example is left out"
    if test.name in NEEDS_DATA:
        try:
            known.find(NEEDS_DATA[test.name])
        except FileNotFoundError as error:
            pytest.skip(str(error))
    if test.name.startswith("bonsai_xmc.ray"):
        pytest.importorskip("ray")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not said, "".join(said)


def public_functions():
    for module in (bonsai_xmc, metrics, datasets):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isroutine(thing) or (
                inspect.isclass(thing) and thing.__module__.endswith(("_estimators.bonsai", "_data.tree"))
            ):
                yield pytest.param(thing, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("thing", list(public_functions()))
def test_public_names_have_an_example(thing):
    assert doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")


def parameters_of(docstring):
    """Names and type of each entry under "Parameters"."""
    part = docstring.split("Parameters\n----------\n", 1)[-1] if "Parameters\n----------" in docstring else ""
    part = re.split(r"\n\n\w+\n-+\n", part)[0]
    for line in part.splitlines():
        if match := re.match(r"(\*{0,2}\w+(?:, \w+)*)(?: : (.*))?$", line):
            yield match[1].split(", "), match[2] or ""


def public_callables():
    """Functions, classes, and methods of estimators."""
    for module in (bonsai_xmc, metrics, datasets):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and thing is not bonsai_xmc.FormatError:
                yield pytest.param(thing, id=name)
    for kind in (Bonsai, TextBonsai):
        for name, method in inspect.getmembers(kind, inspect.isroutine):
            if not name.startswith("_") and method.__module__.startswith("bonsai_xmc"):
                yield pytest.param(method, id=f"{kind.__name__}.{name}")


@pytest.mark.parametrize("thing", list(public_callables()))
def test_documented_parameters_are_those_of_the_signature(thing):
    """Names that share an entry share their default, too: the site shows one for all of them."""
    signature = inspect.signature(thing).parameters
    for names, kind in parameters_of(inspect.getdoc(thing) or ""):
        defaults = [signature[name.lstrip("*")].default for name in names]
        assert all(default == defaults[0] for default in defaults[1:]), names
        if match := re.search(r"default=(\S+)$", kind):
            assert ast.literal_eval(match[1]) == defaults[0], names


def test_bonsai_documents_the_parameters_of_the_table_in_their_order():
    documented = [name for names, _ in parameters_of(inspect.getdoc(Bonsai)) for name in names]
    assert documented == list(PARAMETERS) and len(documented) <= 24
    assert all(parameter.help for parameter in PARAMETERS.values())


def test_text_bonsai_has_few_parameters_beside_its_classifier():
    own = [name for name in inspect.signature(TextBonsai).parameters if name != "classifier"]
    assert len(own) <= 15


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_of_documents(document, tmp_path, monkeypatch):
    """All Python blocks of a document, one after the other, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    text = document.read_text(encoding="utf-8")
    if "import ray" in text:
        pytest.importorskip("ray")
        monkeypatch.setenv("RAY_ADDRESS", "local")  # a cluster of its own, whatever others run here
    blocks = list(FENCE.finditer(text))
    assert 2 * len(blocks) == len(re.findall(r"^(?:`{3,}|~{3,})", text, re.M)), "a block that is not closed"
    namespace, printed = {"__name__": "__main__"}, io.StringIO()
    for block in blocks:
        language = block["language"].lower()
        assert language in {"python", "output", *NOT_RUN}, f"a block of an unknown kind, {language!r}"
        if language == "python":
            lines, printed = text[: block.start("code")].count("\n"), io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * lines + block["code"], str(document), "exec"), namespace)
        elif language == "output":  # of the block before it; "…" stands for anything
            wanted = ".*".join(map(re.escape, block["code"].rstrip("\n").split("…")))
            assert re.fullmatch(wanted, printed.getvalue().rstrip("\n"), re.S), printed.getvalue()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_documents(document):
    """Linked files exist, and the `names` that follow a link are in the file."""
    links = re.findall(r"\]\(([^)#\s]+)(?:#\S*)?\)((?:,?\s+`\w+`)*)", document.read_text(encoding="utf-8"))
    for target, names in links:
        if "://" in target:
            continue
        path = document.parent / target
        assert path.exists(), target
        missing = [
            name for name in re.findall(r"\w+", names) if not re.search(rf"\b{name}\b", path.read_text())
        ]
        assert not missing, f"{target} has no {missing}"


def anchor(heading):
    """The fragment that GitHub gives a heading."""
    text = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower())
    return text.replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_linked_sections_exist(document):
    for target, fragment in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            text = (document.parent / target if target else document).read_text(encoding="utf-8")
            headings = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)}
            assert fragment in headings, f"{target}#{fragment}"


PACKAGE = ROOT / "src" / "bonsai_xmc"
PLACES = [
    ROOT,
    ROOT / "docs",
    ROOT / "tests",
    ROOT / "benchmarks",
    ROOT / "src/core",
    PACKAGE,
    ROOT / "reproduce",
]
WRITTEN = ("build/", "dist/", "out/", ".venv")  # by commands; not in the repository


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(document):
    named = re.findall(r"`([\w./-]+(?:\.(?:py|md|[ch]pp|svg|toml)|/))`", document.read_text(encoding="utf-8"))
    missing = [
        name
        for name in named
        if not name.startswith(WRITTEN) and not any((place / name).exists() for place in PLACES)
    ]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_commands_exist(document):
    text = document.read_text(encoding="utf-8")
    for module in re.findall(r"(?:-m |`)benchmarks\.(\w+)", text):
        assert is_benchmark(module), module
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for target in re.findall(r"`make ([\w-]+)", text) + re.findall(r"^make ([\w-]+)", text, re.M):
        assert target in targets, target
    commands = command_parsers()
    for command, rest in re.findall(r"(?:`|^)bonsai ([a-z]+)([^`\n]*)", text, re.M):
        assert command in commands, command
        known = commands[command]._option_string_actions
        for option in re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", rest.partition("#")[0]):
            assert option in known, f"bonsai {command} has no {option}"


def is_benchmark(name):
    folder = ROOT / "benchmarks"
    return (folder / f"{name}.py").is_file() or (folder / name / "__main__.py").is_file()


def command_parsers():
    """The parsers of the command line's commands, by name."""
    return parser.make_parser().verbs


#: Words of our own, or of earlier versions, for which the field has others.
STRANGE = re.compile(
    r"\b(whole numbers?|rare_power|path_power|max_leaf\b(?!_)|preset\(.best.\)|falling|wrong rows?"
    r"|looks? at all|a row takes|rows a second|overfull|of that day|minutes earlier|hours? earlier)\b"
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_use_the_words_of_the_field(document):
    assert not STRANGE.findall(document.read_text(encoding="utf-8"))


def test_the_layout_lists_the_folders_of_the_core():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.search(r"^\| `src/core/` \| [^:]*: ([^.]*)\.", text, re.M)[1]
    folders = sorted(path.name for path in (ROOT / "src/core").iterdir() if path.is_dir())
    assert re.findall(r"`(\w+)`", listed) == folders


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_guide_names_all_presets_and_no_others():
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    listed = re.search(r"`Bonsai\.preset\((.*?) \|$", guide, re.M)[1]
    assert re.findall(r'"([\w-]+)"', listed) == list(PRESETS)


def test_the_readme_fits_on_a_screen():
    assert len(README.splitlines()) <= 75


def test_tables_of_documents_equal_their_result_files():
    """`python -m benchmarks.figures` rewrites them."""
    shown = 0
    for path in figures.DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        shown += len(figures.MARKER.findall(text))
        assert figures.written(text) == text, path.name
    assert shown > 10


@pytest.mark.parametrize("path", sorted(figures.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_results_name_their_machine_command_and_date(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert " " in content["machine"]
    shown = "".join(document.read_text(encoding="utf-8") for document in figures.DOCUMENTS)
    for name, table in content["tables"].items():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", table["date"]) and table["rows"], name
        for module in re.findall(r"(?:-m |benchmarks/)(?:benchmarks\.)?(\w+)(?:\.py)?", table["command"]):
            assert is_benchmark(module), (name, module)
        assert f"<!-- table {path.stem}/{name} " in shown, f"no document shows {name}"


def test_a_table_selects_rows_and_columns_and_marks_the_best(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    rows = [
        {"data": "a", "system": "one, fast", "P@1": [50.126, 0.1], "rows/s": 12345.6},
        {"data": "a", "system": "two", "P@1": 49.0, "rows/s": None},
        {"data": "b", "system": "two", "P@1": 10.0, "rows/s": 7},
    ]
    figures.record("machine", "sets", "python -m benchmarks.figures", rows)
    assert figures.table(
        "machine/sets where data=a; system=one, fast|two columns data, system, P@1, rows/s bold max P@1"
    ) == (
        "|  | P@1 | rows/s |\n| --- | ---: | ---: |\n| **a** |  |  |\n"
        "| one, fast | **50.13** | 12,346 |\n| two | 49.00 | – |\n"
    )
    assert "50.13 ± 0.10" in figures.table("machine/sets columns system, P@1 spread")
    figures.record(
        "machine", "sets", "python -m benchmarks.figures", [rows[0] | {"P@1": 1.0}], ("data", "system")
    )
    figures.record("machine", "sets", "python -m benchmarks.figures", [rows[2] | {"data": "c"}], ("data",))
    stored = json.loads((tmp_path / "machine.json").read_text())["tables"]["sets"]["rows"]
    assert [(row["data"], row["P@1"]) for row in stored] == [
        ("a", 1.0),
        ("a", 49.0),
        ("b", 10.0),
        ("c", 10.0),
    ]
    assert figures.table("machine/sets columns system, P@1, rows/s across data=b|a") == (
        "| P@1, rows/s | b | a |\n| --- | ---: | ---: |\n"
        "| one, fast | – | 1.0, 12,345.6 |\n| two | 10.0, 7.0 | 49.0, – |\n"
    )


def test_documents_are_short():
    """Words of all documents, without code, outputs and tables that are written from result files."""
    words = []
    for path in (ROOT / "docs").rglob("*.md"):
        text = figures.MARKER.sub("", FENCE.sub("", path.read_text(encoding="utf-8")))
        words += [word for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= 22_000
    assert len((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.real_data
@pytest.mark.parametrize(("title", "name"), [("EURLEX57K", "eurlex57k"), ("TIBKAT core", "tibkat-core")])
def test_sizes_of_data_sets_on_the_performance_page(real_data, title, name):
    data = real_data(name)
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    line = re.search(rf"{title}:\s+([\d,]+)(?: training)? and ([\d,]+)(?: test)? rows, ([\d,]+) labels", page)
    labels = int((np.asarray(data.Y_train.sum(axis=0)).ravel() > 0).sum())
    found = [data.X_train.shape[0], data.X_test.shape[0], labels]
    assert [int(number.replace(",", "")) for number in line.groups()] == found


def test_the_default_model_is_what_the_readme_says(generated):
    model = Bonsai().fit(generated.X_train, generated.Y_train)
    assert (model.classifiers_, model.search_) == ("one_vs_rest", "exact")


def test_the_model_file_is_documented(named, tmp_path):
    """Every tensor and every key of files of all kinds is in the document, and nothing else is."""
    text = (ROOT / "docs" / "internals" / "format.md").read_text(encoding="utf-8")
    X, names = named
    table = pandas.DataFrame(X.toarray(), columns=[f"word {i}" for i in range(X.shape[1])])
    found = set()
    for kind in ({"classifiers": "leaf"}, {}, {"search": "index"}, {"blend_weight": ("auto", 0.3)}):
        for rows, labels in ((X, names), (table, [[10 + len(name)] for (name,) in names])):
            if kind and rows is table:
                continue
            Bonsai(**kind).fit(rows, labels).save(tmp_path / "model.bonsai")
            found |= keys_of(tmp_path / "model.bonsai")
    texts = TextBonsai(word_ngrams=2, char_ngrams={3: 1.0}, min_df=1).fit(
        ["red brick", "old wall"], [["a"], ["b"]]
    )
    texts = texts.calibrate(["red brick", "old wall"], [["a"], ["b"]])
    texts.name_labels({"a": "bricks"}).save(tmp_path / "model.bonsai")
    found |= keys_of(tmp_path / "model.bonsai")
    texts.merge(["a", "b"], into="a").save(tmp_path / "model.bonsai")
    found |= keys_of(tmp_path / "model.bonsai")
    kept = Bonsai(classifiers="one_vs_rest", threshold=0.5)
    kept.fit(X, names, np.arange(1, X.shape[0] + 1), keep_rows=True).save(tmp_path / "model.bonsai")
    found |= keys_of(tmp_path / "model.bonsai")
    wide = csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], 2**23))
    Bonsai(classifiers="one_vs_rest", search="index", threshold=0.5).fit(wide, names).save(tmp_path / "m")
    found |= keys_of(tmp_path / "m")
    LEML(threshold=0.5).fit(X, names).name_labels({names[0][0]: "A title"}).save(tmp_path / "m")
    found |= {key for key in keys_of(tmp_path / "m") if not key.startswith(("ranker.", "crc32.ranker."))}
    short, long = ["word"] * 20, ["word word word word"] * 20
    of_vectors = TextBonsai(word_ngrams=1, encoder=lambda texts: np.array([[len(text), 5] for text in texts]))
    of_vectors.fit(short + long, [["a"]] * 20 + [["b"]] * 20).save(tmp_path / "m")
    found |= keys_of(tmp_path / "m")
    missing = {name for name in found if f"`{name}`" not in text}
    assert not missing
    tables = text[text.index("## Metadata") : text.index("## What loading checks")]
    listed = [re.findall(r"`([\w.]+)`", cell) for cell in re.findall(r"^\| (`.*?) \|", tables, re.M)]
    sections = {"trees", "trees_residual", "one_vs_rest", "labels", "merged", "features", "index"}
    sections |= {"rows", "row_trees", "labels.texts"}  # the latter is reserved
    found.add("labels.thresholds")  # of models of more rows, if they help there
    others = {"crc32.NAME", "format", "format_version", "requires", "crc32.header"}
    assert {name for names in listed for name in names} - sections - others == found


def keys_of(path):
    """Names of tensors, without the section of a forest, and keys of the metadata."""
    file = container.read(path)
    keys = {name.removeprefix("trees.").removeprefix("one_vs_rest.") for name in file.arrays}
    for letter, before in (("T", "fields"), ("N", "ngrams"), ("B", "blocks"), ("I", "df")):
        keys = {re.sub(rf"\b{before}\.\d+", f"{before}.{letter}", key) for key in keys}
    keys |= file.metadata.keys()
    for name in {"model", "provenance", "text", "encoder", "calibration"} & file.metadata.keys():
        keys |= json.loads(file.metadata[name]).keys()
    return keys | json.loads(file.metadata["params"]).keys()


def test_the_demo_ends_with_predictions_that_are_mostly_right():
    run = subprocess.run(
        [sys.executable, "-m", "bonsai_xmc", "demo"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert max(map(len, run.stdout.splitlines())) <= 88
    assert "the same predictions" in run.stdout
    precision = float(re.search(r"^P +(\S+)", run.stdout, re.M)[1])
    assert 70 <= precision <= 90
    texts = run.stdout.split("  → ")[2:]
    assert len(texts) == 7
    assert sum(text.split("\n\n")[1].lstrip().startswith("✓") for text in texts) >= 4
