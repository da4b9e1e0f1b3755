"""The folders of the core are layers: each includes only from those below it."""

import re
from pathlib import Path

CORE = Path(__file__).parents[1] / "src" / "core"
# The lowest first; folders of one layer do not include each other.
LAYERS = (
    {"base"},
    {"data"},
    {"kernels", "text"},
    {"linear"},
    {"model"},
    {"search", "tree"},
    {"one_vs_rest", "predict"},
    {"systems"},
)
LAYER = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}


def test_the_core_includes_only_from_layers_below():
    for file in sorted(CORE.rglob("*.*")):
        folder = file.relative_to(CORE).parts[0]
        for target in re.findall(r'^#include "(\w+)/', file.read_text(encoding="utf-8"), re.MULTILINE):
            assert target == folder or LAYER[target] < LAYER[folder], f"{file} includes from {target}/"
