"""Print the oldest versions that pyproject.toml admits, for `pip install` (`make test-oldest`)."""

import re
import tomllib
from pathlib import Path

EXTRAS = ("excel", "graph", "parquet", "plots", "serve")

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
needed = [
    *project["dependencies"],
    *(one for name in EXTRAS for one in project["optional-dependencies"][name]),
]
for requirement in needed:
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+).*", requirement).groups()
    print(f"{name}=={version}{'' if '.' in version else '.0'}.*")
