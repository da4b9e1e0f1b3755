"""The choice of the text that has n-grams of its own: a short one, such as a title.

A short text has few words, to which its bigrams, trigrams and parts of words add much, and these are few
enough to be cheap. In a long text they take more time and add less (docs/text.md).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from bonsai_xmc._text.blocks import Plan, chooses_title, is_title, make_plan
from bonsai_xmc._text.records import Columns, columns_of

ROWS = 4096  # at the beginning, whose texts are measured: a stream is read once
SHORT = 400  # characters: a field is short if three of four texts have at most this many
_MOST = 0.75


@dataclass(frozen=True)
class Lengths:
    """How long the texts of a field are in the first rows."""

    field: str  # "" for plain strings
    rows: int  # that have a text
    characters: int  # that three of four of these texts have at most

    @property
    def short(self) -> bool:
        return self.rows > 0 and self.characters <= SHORT


@dataclass(frozen=True)
class Measured:
    """The lengths of all fields, and which of these is the title; None: none is short."""

    rows: int
    lengths: tuple[Lengths, ...]
    title: int | None

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "fields": [asdict(field) for field in self.lengths], "title": self.title}


def planned(X: Any, params: dict[str, Any]) -> tuple[Plan, dict[str, Any], Iterator[Columns]]:
    """Return the blocks for X, the evidence for them (empty if given), and X as `columns_of` reads it."""
    fields = params["fields"]
    settings = (fields, params["word_ngrams"], params["char_ngrams"], params["char_boundaries"])
    plan = make_plan(*settings)  # impossible parameters are an error before X is read
    chunks = columns_of(X, plan.fields, complete=True)
    if not chooses_title(*settings[:3]):
        return plan, {}, chunks
    first, chunks = _first_rows(chunks)
    measured = measure(plan.fields, first)
    return make_plan(*settings, measured.title), measured.to_json(), chunks


def measure(names: Sequence[str], columns: Columns) -> Measured:
    """Measure the fields. The title is the first short one, of those with a title's name, else of all.

    It has texts in at least half as many rows as the field that most rows have.
    """
    lengths = tuple(map(_lengths, names or [""], columns))
    most = max((field.rows for field in lengths), default=0)
    able = [i for i, field in enumerate(lengths) if field.short and 2 * field.rows >= most]
    title = min(able, key=lambda i: (not is_title(lengths[i].field), i), default=None)
    return Measured(len(columns[0]) if columns else 0, lengths, title)


def _lengths(field: str, texts: Iterable[str | None]) -> Lengths:
    found = [len(text) for text in texts if text]
    most = int(np.quantile(found, _MOST, method="higher")) if found else 0
    return Lengths(field, len(found), most)


def _first_rows(chunks: Iterator[Columns]) -> tuple[Columns, Iterator[Columns]]:
    """Return the columns of the first `ROWS` rows, and an iterator of all chunks, with these rows."""
    taken: list[Columns] = []
    while sum(len(columns[0]) for columns in taken) < ROWS:
        columns = next(chunks, None)
        if columns is None:
            break
        taken.append(columns)
    first = [list(chain(*parts))[:ROWS] for parts in zip(*taken, strict=True)]
    return first, chain(taken, chunks)
