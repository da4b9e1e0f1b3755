"""Extreme multi-label classification with diverse, shallow label trees."""

from importlib.metadata import version as _version

from bonsai_xmc import datasets, metrics
from bonsai_xmc._estimator import Bonsai
from bonsai_xmc._modelfile import FormatError
from bonsai_xmc._tree import LabelTree

__version__ = _version("bonsai-xmc")
__all__ = ["Bonsai", "FormatError", "LabelTree", "__version__", "datasets", "metrics"]
