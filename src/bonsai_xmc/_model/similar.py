"""Labels that are similar to a misspelt one.

Candidates are those with most characters and pairs of them in common, by bits: difflib takes too long for
half a million labels.
"""

import difflib
from collections.abc import Sequence

import numpy as np

from bonsai_xmc._base.arrays import Array

_LONGEST = 100  # characters of a label that are compared
_COMPARED = 300  # candidates that a misspelt label is compared with, letter by letter
_CHUNK = 50_000  # labels whose bits are found at once
_ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)


class Similar:
    """The labels and their names, with the characters and pairs that each has, as bits."""

    def __init__(self, classes: Array, names: Sequence[str]) -> None:
        self._classes, self._names = classes, names
        self._texts: list[str] = [*(classes.tolist() if classes.dtype == object else ()), *names]
        self._bits = _bits(self._texts)
        self._sizes = _count(self._bits)

    def to(self, label: str) -> list[str]:
        """Return up to three labels whose names are similar."""
        if not self._texts:
            return []
        own = _bits([label])
        common = _count(self._bits & own)
        alike = common / (self._sizes + _count(own) - common)
        n = min(_COMPARED, len(alike))
        best = np.argpartition(-alike, n - 1)[:n]
        places: dict[str, int] = {}
        for i in best[np.lexsort((best, -alike[best]))].tolist():
            places.setdefault(_compared(self._texts[i]), i % len(self._classes))
        close = [places[text] for text in difflib.get_close_matches(_compared(label), places, n=3)]
        names = self._names or len(self._classes) * ("",)
        shown = [f"{self._classes[i]!r}" + (f" ({names[i]})" if names[i] else "") for i in close]
        return list(dict.fromkeys(shown))


def _compared(text: str) -> str:
    return text[:_LONGEST].lower()


def _bits(texts: list[str]) -> Array:
    """Return 64 bits for the characters of each text, and 64 for the pairs of them."""
    found = np.empty((len(texts), 2), np.uint64)
    for begin in range(0, len(texts), _CHUNK):
        parts = [
            b"\0%b\0" % _compared(text).encode("utf-8", "surrogatepass")
            for text in texts[begin : begin + _CHUNK]
        ]
        characters = np.frombuffer(b"".join(parts), np.uint8)
        pairs = characters * np.uint8(37) + np.append(characters[1:], np.uint8(0))
        ends = np.cumsum([len(part) for part in parts])
        for column, hashes in enumerate((characters, pairs)):
            bits = np.uint64(1) << (hashes & np.uint8(63)).astype(np.uint64)
            found[begin : begin + len(parts), column] = np.bitwise_or.reduceat(bits, [0, *ends[:-1]])
    return found


def _count(bits: Array) -> Array:
    """Count the bits that are set in each row."""
    counts: Array = _ONES[bits.view(np.uint8)].sum(axis=1, dtype=np.int32)
    return counts
