"""Rules for values: what is allowed, how an error names it, and how the command line reads it."""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any


@dataclass(frozen=True)
class Rule:
    """A set of allowed values.

    Attributes
    ----------
    holds : callable
        Whether a value is allowed, apart from the words.
    must_be : str
        The allowed values in an error message: "… is X, but must be <this>".
    read : type, callable or None
        Turns the text of an option into a value. None: the option is a switch, on or off.
    metavar : str
        Stands for a value in the help of the command line.
    words : tuple
        Further allowed values: words such as "auto", and None, which the command line writes as "none".
    choices : tuple of str
        All allowed values, if these are names.
    """

    holds: Callable[[Any], bool]
    must_be: str
    read: Callable[[str], Any] | None
    metavar: str = ""
    words: tuple[Any, ...] = ()
    choices: tuple[str, ...] = ()

    def allows(self, value: Any) -> bool:
        return any(_same(value, word) for word in self.words) or self.holds(value)

    @property
    def text(self) -> str:
        """All allowed values, as an error message names them."""
        *first, last = [*map(repr, self.words), self.must_be]
        if not first:
            return last
        return ", ".join(first) + (", " if last.startswith("True") else " or ") + last

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``add_argument`` for an option with such a value."""
        if self.read is None:
            return {"action": argparse.BooleanOptionalAction}
        if self.choices:
            return {"choices": self.choices}
        named = {"none" if word is None else word: word for word in self.words}
        read = self.read

        def parse(text: str) -> Any:
            return named[text] if text in named else read(text)

        parse.__name__ = " or ".join([read.__name__, *map(repr, named)])  # in messages of argparse
        return {"type": parse, "metavar": "|".join([self.metavar, *named])}


def _same(value: Any, word: Any) -> bool:
    return value is None if word is None else isinstance(value, str) and value == word


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def integer(least: int, *words: Any) -> Rule:
    holds = lambda v: _is_integer(v) and least <= int(v) < 2**31
    return Rule(holds, f"an integer from {least} to 2³¹ − 1", int, "N", words)


def nonzero_integer(most: int, *words: Any) -> Rule:
    holds = lambda v: _is_integer(v) and 0 < abs(int(v)) <= most
    return Rule(holds, f"an integer from −{most:,} to {most:,} other than 0", int, "N", words)


def number(holds: Callable[[float], bool], text: str, *words: Any) -> Rule:
    is_number = lambda v: (
        isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) and holds(float(v))
    )
    return Rule(is_number, text, float, "X", words)


def number_between(least: float, most: float, *words: Any) -> Rule:
    return number(lambda v: least <= v <= most, f"a number from {least:g} to {most:g}", *words)


def one_of(*names: str) -> Rule:
    holds = lambda v: isinstance(v, str) and v in names
    return Rule(holds, f"one of {', '.join(map(repr, names))}", str, choices=names)


def is_flag(value: Any) -> bool:
    """Return whether a value is a bool of Python or of NumPy, which need not be imported for that."""
    kind = type(value)
    return kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


def flag(*words: Any) -> Rule:
    return Rule(is_flag, "True or False", None, words=words)
