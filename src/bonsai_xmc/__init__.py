"""Extreme multi-label classification: one-vs-rest classifiers, and diverse, shallow label trees."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bonsai_xmc import datasets, metrics, systems
    from bonsai_xmc._data.tree import LabelTree
    from bonsai_xmc._estimators.bonsai import Bonsai
    from bonsai_xmc._estimators.fusion import Fusion
    from bonsai_xmc._estimators.ranked_list import RankedList
    from bonsai_xmc._estimators.text import TextBonsai, load
    from bonsai_xmc._estimators.vectorizer import TextVectorizer
    from bonsai_xmc._explain.objects import Explanation, WhyNot
    from bonsai_xmc._modelfile.container import FormatError

    __version__: str

__all__ = [
    "Bonsai",
    "Explanation",
    "FormatError",
    "Fusion",
    "LabelTree",
    "RankedList",
    "TextBonsai",
    "TextVectorizer",
    "WhyNot",
    "__version__",
    "datasets",
    "load",
    "metrics",
    "systems",
]

# Imported on first use: `bonsai --help`, and programs that may never use this package, such as the command
# line of Annif, do not load NumPy, SciPy and scikit-learn.
_MODULES = {
    "Bonsai": "_estimators.bonsai",
    "Explanation": "_explain.objects",
    "FormatError": "_modelfile.container",
    "Fusion": "_estimators.fusion",
    "LabelTree": "_data.tree",
    "RankedList": "_estimators.ranked_list",
    "TextBonsai": "_estimators.text",
    "TextVectorizer": "_estimators.vectorizer",
    "WhyNot": "_explain.objects",
    "load": "_estimators.text",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"bonsai_xmc.{_MODULES[name]}"), name)
    elif name in ("datasets", "metrics", "systems"):
        value = importlib.import_module(f"bonsai_xmc.{name}")
    elif name == "__version__":
        value = importlib.import_module("importlib.metadata").version("bonsai-xmc")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
