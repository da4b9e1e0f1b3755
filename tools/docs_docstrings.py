"""An extension of griffe for `mkdocs`: examples and tables in the prose of docstrings keep their lines."""

import re
from itertools import groupby
from typing import Any

import griffe

_TABLE = re.compile(r"^=+( +=+)+$")


class KeepLines(griffe.Extension):
    """Fences around tables, and around doctests outside of sections named Examples, which griffe knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            prose, *examples = re.split(r"(?m)^(?=Examples\n-+$)", obj.docstring.value, maxsplit=1)
            obj.docstring.value = "".join([fenced(prose), *examples])


def fenced(prose: str) -> str:
    """Return the text with fences around each run of doctest or table lines."""
    kinds: list[tuple[str, str]] = []
    kind = ""
    for line in prose.split("\n"):
        if line.startswith(">>>"):
            kind = "pycon"
        elif kind == "pycon" and not line:
            kind = ""
        elif _TABLE.match(line) and kind != "text":
            kind = "text"
        elif kind == "text" and not line:
            kind = ""
        kinds.append((kind, line))
    parts = []
    for kind, lines in groupby(kinds, key=lambda pair: pair[0]):
        text = "\n".join(line for _, line in lines)
        parts.append(f"```{kind}\n{text}\n```" if kind else text)
    return "\n".join(parts)
