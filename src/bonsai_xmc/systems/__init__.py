"""The systems that the paper compares Bonsai with, as estimators of the same interface.

A further one is a module here, with an estimator derived from `_estimators.matrix.System`, and a row in
`SYSTEMS`.
"""

from importlib import import_module
from typing import Any

# The kind of a system, in model files and on the command line: its module and class.
SYSTEMS: dict[str, tuple[str, str]] = {
    "fastxml": ("fastxml", "FastXML"),
    "leml": ("low_rank", "LEML"),
    "pd-sparse": ("sparse", "PDSparse"),
    "pfastrexml": ("pfastrexml", "PfastreXML"),
    "proxml": ("sparse", "ProXML"),
    "robustxml": ("low_rank", "RobustXML"),
    "sleec": ("sleec", "SLEEC"),
}

__all__ = ["SYSTEMS", "system"]


def system(kind: str) -> Any:
    """Return the estimator class of a kind; KeyError if there is none."""
    module, name = SYSTEMS[kind]
    return getattr(import_module(f"{__name__}.{module}"), name)


def __getattr__(name: str) -> Any:
    for kind, (_, estimator) in SYSTEMS.items():
        if name == estimator:
            return system(kind)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for _, name in SYSTEMS.values())})
