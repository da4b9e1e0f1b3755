"""What the documentation shows works: examples of docstrings, code blocks of the documents, the demo."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import bonsai_xmc
from bonsai_xmc import datasets, metrics

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(bonsai_xmc.__path__, "bonsai_xmc.")
    if not module.name.endswith(("__main__", "_core"))
)
NEEDS_DATA = {"bonsai_xmc.datasets._named.load": "bibtex"}  # examples that read a data set
FENCE = re.compile(
    r"^(?P<mark>`{3,}|~{3,})[ ]*(?P<language>\S*)[^\n]*\n(?P<code>.*?)^(?P=mark)[ ]*$", re.M | re.S
)
NOT_RUN = {"text", "sh", "console", "json", "bibtex"}  # what other blocks are; each must say it


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in ["bonsai_xmc", *MODULES]:
        for test in finder.find(importlib.import_module(name), name):
            if test.examples:
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("test", list(examples()))
def test_examples_of_docstrings(test, tmp_path, monkeypatch):
    assert not any(doctest.SKIP in example.options for example in test.examples), "no example is left out"
    if test.name in NEEDS_DATA:
        try:
            datasets.find(NEEDS_DATA[test.name])
        except FileNotFoundError as error:
            pytest.skip(str(error))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not said, "".join(said)


def public_functions():
    for module in (bonsai_xmc, metrics, datasets):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isroutine(thing) or (
                inspect.isclass(thing) and thing.__module__.endswith(("_estimator", "_tree"))
            ):
                yield pytest.param(thing, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("thing", list(public_functions()))
def test_what_is_public_has_an_example(thing):
    assert doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_of_documents(document, tmp_path, monkeypatch):
    """All Python blocks of a document, one after the other, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    text = document.read_text(encoding="utf-8")
    blocks = list(FENCE.finditer(text))
    assert 2 * len(blocks) == len(re.findall(r"^(?:`{3,}|~{3,})", text, re.M)), "a block that is not closed"
    namespace = {"__name__": "__main__"}
    for block in blocks:
        language = block["language"].lower()
        assert language in {"python", *NOT_RUN}, f"a block of an unknown kind, {language!r}"
        if language == "python":
            lines = text[: block.start("code")].count("\n")
            exec(compile("\n" * lines + block["code"], str(document), "exec"), namespace)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_documents(document):
    """Linked files are there, and the `names` that follow a link stand in the file."""
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


def test_the_demo_ends_with_predictions_that_are_mostly_right():
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
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
