"""Extreme multi-label classification: one-vs-rest classifiers, and diverse, shallow label trees."""

from bonsai_xmc import datasets, metrics
from bonsai_xmc._estimator import Bonsai
from bonsai_xmc._fitted import VERSION as __version__
from bonsai_xmc._store.container import FormatError
from bonsai_xmc._text.estimator import TextBonsai
from bonsai_xmc._text.vectorizer import TextVectorizer
from bonsai_xmc._tree import LabelTree

__all__ = [
    "Bonsai",
    "FormatError",
    "LabelTree",
    "TextBonsai",
    "TextVectorizer",
    "__version__",
    "datasets",
    "metrics",
]
