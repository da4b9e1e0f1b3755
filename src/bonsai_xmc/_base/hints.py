"""Hints in messages: similar words and files, packages to install."""

import difflib
import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return "; did you mean 'x'?", or nothing where no word is close."""
    close = difflib.get_close_matches(word, list(known), n=2, cutoff=cutoff)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def similar_file(path: str) -> str:
    """Return the hint for a missing file: files of its folder with similar names."""
    folder, name = os.path.split(path)
    there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    return did_you_mean(name, there, cutoff=0.8)  # the ends of names are often the same


def needed(module: str, what: str, install: str) -> Any:
    """Import an optional module; the ImportError names what needs it and how to install it."""
    package = module.partition(".")[0]
    try:
        import_module(package)
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} {package}: pip install {install}") from error
