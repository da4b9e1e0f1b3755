"""The folders of the core are layers, and few modules of the package import the core."""

import ast
import re
from pathlib import Path

CORE = Path(__file__).parents[1] / "src" / "core"
PACKAGE = Path(__file__).parents[1] / "src" / "bonsai_xmc"
# The lowest first; folders of one layer do not include each other.
LAYERS = (
    {"base"},
    {"data"},
    {"kernels", "text"},
    {"linear"},
    {"model"},
    {"search", "one_vs_rest"},
    {"tree", "predict"},
    {"systems"},
)
LAYER = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}


def test_the_core_includes_only_from_layers_below():
    for file in sorted(CORE.rglob("*.*")):
        folder = file.relative_to(CORE).parts[0]
        for target in re.findall(r'^#include "(\w+)/', file.read_text(encoding="utf-8"), re.MULTILINE):
            assert target == folder or LAYER[target] < LAYER[folder], f"{file} includes from {target}/"


def importers_of_the_core():
    """Modules of the package that import the core when they run, with their docstrings."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = [
            alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
        ]
        if "_core" in imported:
            yield path.relative_to(PACKAGE).as_posix(), ast.get_docstring(tree) or ""


def test_modules_that_import_the_core_give_a_reason():
    silent = [name for name, doc in importers_of_the_core() if not re.search(r"\bcore\b", doc)]
    assert silent == []


def test_only_estimators_assign_fitted_models():
    assigning = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if any(isinstance(one, ast.Attribute) and one.attr == "fitted_" for one in targets):
                assigning.add(path.relative_to(PACKAGE).parts[0])
    assert assigning == {"_estimators"}


def test_few_modules_import_the_core():
    rooms = {name.split("/")[0] for name, _ in importers_of_the_core()}
    assert not rooms & {"_cli", "_server", "_modelfile", "annif", "metrics", "_demo.py", "ray.py"}
