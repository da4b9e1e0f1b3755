"""Descriptions of the tensors and the JSON values of model files, and checks of what a file holds by these.

A check raises a ValueError that names the tensor or the key.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc._base.arrays import Array

INT32_MAX = 2**31 - 1
EXACT_INTEGERS = 2**53  # what every reader of JSON can hold


class Tensor(NamedTuple):
    """A tensor and the values that it may have.

    A dimension is a number or a name, perhaps with "+ 1". Equal names stand for equal numbers; D is the
    number of features, L of labels. No name: a dimension of any length.
    """

    dtype: str
    shape: str  # dimensions, separated by commas
    needed: bool = True  # if the section has any tensor
    least: float | None = None
    most: float | str | None = None  # or a dimension: values are below it
    ends_at: str | None = None  # offsets: from 0, not descending, to this dimension
    ascending: bool = False  # strictly
    finite: bool = False


def check_tensors(
    arrays: Mapping[str, Array],
    described: Iterable[tuple[str, Tensor]],
    sizes: Mapping[str, int],
    section: str = "",
) -> None:
    """Raise ValueError for the first tensor that is not as described.

    Names are regular expressions. `sizes` are known dimensions; messages put `section` before a name.
    """
    known, found = dict(sizes), []
    for name, tensor in described:
        matching = [name] if name in arrays else [one for one in arrays if re.fullmatch(name, one)]
        if tensor.needed and not matching:
            raise ValueError(f"the tensor {section}{name} is missing")
        for one in matching:
            _check_tensor(section + one, arrays[one], tensor, known)
            found.append((one, tensor))
    for name, tensor in found:  # offsets may come before what they end at
        _check_values(section + name, arrays[name], tensor, known)


def _check_tensor(name: str, array: Array, tensor: Tensor, known: dict[str, int]) -> None:
    """Check dtype and shape; bind the dimensions that have no number yet."""
    dtype = np.dtype(f"<{tensor.dtype}")
    if array.dtype != dtype:
        raise ValueError(f"the tensor {name} is {array.dtype}, but must be {dtype}")
    dimensions = tensor.shape.split(", ")
    if array.ndim != len(dimensions):
        raise ValueError(f"the tensor {name} has {array.ndim} dimensions, but must have {len(dimensions)}")
    for size, dimension in zip(array.shape, dimensions, strict=True):
        symbol, _, more = dimension.partition(" + ")
        if not symbol:
            continue
        wanted = int(symbol) if symbol.isdecimal() else known.setdefault(symbol, size - int(more or 0))
        if size != wanted + int(more or 0) or wanted < 0:
            raise ValueError(
                f"the tensor {name} has the shape {array.shape}, but there must be {dimension} entries, "
                f"{symbol} being {max(wanted, 0):,}"
            )


def _check_values(name: str, array: Array, tensor: Tensor, known: Mapping[str, int]) -> None:
    def require(holds: Any, what: str) -> None:
        if not holds:
            raise ValueError(f"the tensor {name} {what}")

    if tensor.finite:
        require(np.isfinite(array).all(), "has a value that is not finite")
    if tensor.ends_at is not None:
        end = known.get(tensor.ends_at, -1)
        spans = len(array) > 0 and array[0] == 0 and array[-1] == end
        require(spans, f"does not go from 0 to {tensor.ends_at}, which is {end:,}")
        require((array[1:] >= array[:-1]).all(), "descends")
    if tensor.ascending:
        require((array[1:] > array[:-1]).all(), "does not ascend strictly")
    if not array.size:
        return
    if tensor.least is not None:
        require(array.min().item() >= tensor.least, f"has a value below {tensor.least:g}")
    if tensor.most is not None:
        most = known[tensor.most] - 1 if isinstance(tensor.most, str) else tensor.most
        require(array.max().item() <= most, f"has a value above {most:,}")


# A description is a range of integers; a pair of floats, between which numbers lie; str; `Each`; `OneOf`; the
# keys of an object with the descriptions of their values, "?" after a key that may be missing; or the value
# itself. An object may be {} where it may be missing. Other keys are ignored: newer versions may have them.


class Each(NamedTuple):
    """A list whose entries all have one description."""

    entry: Any
    n: int | None = None  # entries; None: any number


class OneOf:
    """Values or descriptions of which one holds; if none does, the message is that of the last one."""

    def __init__(self, *choices: Any) -> None:
        self.choices = choices


FLAG = OneOf(True, False)


def check_value(name: str, value: Any, described: Any) -> None:
    """Raise ValueError if a value is not as described."""
    if problem := _problem(value, described, name):
        raise ValueError(problem)


def _problem(value: Any, described: Any, name: str) -> str | None:
    """Return how a value differs from its description, as a sentence; None if it does not."""
    parts: list[tuple[Any, Any, str]] = []
    match described:
        case type():
            holds, text = isinstance(value, described), "a text"
        case range():
            holds = type(value) is int and value in described
            text = f"an integer from {described[0]} to {described[-1]}"
        case Each(entry, n):
            holds = isinstance(value, list) and n in (None, len(value))
            text = "a list" if n is None else f"a list of {n}"
            parts = [(one, entry, f"{name}[{i}]") for i, one in enumerate(value)] if holds else []
        case (least, most):
            holds = type(value) in (int, float) and least <= value <= most
            text = f"a number from {least:g} to {most:g}"
        case OneOf(choices=choices):
            found = [_problem(value, choice, name) for choice in choices]
            if isinstance(choices[-1], dict | range | tuple | type):
                return None if None in found else found[-1]
            holds, text = None in found, f"one of {', '.join(map(repr, choices))}"
        case dict():
            holds, text = isinstance(value, dict), "an object"
            for key, inner in described.items() if holds else ():
                known, needed = key.removesuffix("?"), not key.endswith("?")
                if needed and key not in value:
                    return f"{name} has no key {key!r}"
                missing = known not in value or (isinstance(inner, dict) and value[known] == {})
                problem = _problem(value[known], inner, f"{name}.{known}") if needed or not missing else None
                if problem is not None:
                    return problem
        case _:
            holds, text = type(value) is type(described) and value == described, repr(described)
    if not holds:
        return f"{name} is {value!r:.40}, but must be {text}"
    return next(filter(None, (_problem(*part) for part in parts)), None)
