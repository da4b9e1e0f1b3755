"""Rows of text as users have them (strings, records, data frames) as columns of strings."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

CHUNK = 4096  # rows of a stream at a time; data in memory are one chunk

Columns = list[list[str | None]]


def columns_of(X: Any, fields: tuple[str, ...], *, complete: bool) -> Iterator[Columns]:
    """Yield chunks of rows as one list of texts for each field (one list where `fields` is empty).

    A plain string stands for the first field. A missing text is None. `complete`: every field must occur in
    some row.
    """
    if isinstance(X, str | bytes | Mapping):
        raise TypeError(f"X is one {type(X).__name__}, but must hold a text or record for each row: try [X]")
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):  # of pandas or polars
        return _frame_columns(X, fields)
    return _row_columns(X, fields, complete)


def _frame_columns(X: Any, fields: tuple[str, ...]) -> Iterator[Columns]:
    if not fields:
        raise ValueError("X is a data frame: name its text columns by fields=[…], or pass one column")
    missing = [field for field in fields if field not in X.columns]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r}; its columns are {', '.join(map(repr, X.columns))}")
    yield [_checked(_series_texts(X[field]), 0, field) for field in fields]


def _series_texts(series: Any) -> list[Any]:
    if not hasattr(series, "notna"):  # of polars, which has None for a missing value
        return list(series.to_list())
    present = series.notna().to_numpy()
    return [text if there else None for text, there in zip(series.tolist(), present, strict=True)]


def _row_columns(X: Any, fields: tuple[str, ...], complete: bool) -> Iterator[Columns]:
    rows = X.tolist() if isinstance(X, np.ndarray) else X
    if not isinstance(rows, Iterable):
        raise TypeError(f"X is of type {type(X).__name__}, but must hold a text or record for each row")
    seen: set[str] = set()
    keys: Iterable[Any] = ()
    begin = 0
    iterator = iter(rows)
    size = len(rows) if isinstance(rows, list | tuple) else CHUNK
    while chunk := list(islice(iterator, size)):
        if fields:
            records = [_record(row, begin + i, fields) for i, row in enumerate(chunk)]
            keys = records[0]
            seen.update(field for field in fields if any(field in record for record in records))
            yield [_checked([r.get(field) for r in records], begin, field) for field in fields]
        else:
            yield [_checked(chunk, begin, None)]
        begin += len(chunk)
    if complete and begin and len(seen) < len(fields):
        missing = next(field for field in fields if field not in seen)
        raise ValueError(f"no row has the field {missing!r}; the last ones have {', '.join(map(repr, keys))}")


def _record(row: Any, number: int, fields: tuple[str, ...]) -> Mapping[str, Any]:
    if isinstance(row, str):
        return {fields[0]: row}
    if not isinstance(row, Mapping):
        raise TypeError(
            f"row {number} is of type {type(row).__name__}, but must be a string, or a record with fields"
        )
    if not any(field in row for field in fields):
        raise ValueError(
            f"row {number} has none of the fields {', '.join(map(repr, fields))}; "
            f"its fields are {', '.join(map(repr, row))}"
        )
    return row


def _checked(texts: list[Any], begin: int, field: str | None) -> list[str | None]:
    """Return texts that are all strings (np.str_ too) or missing, with None for None and NaN."""
    for i, text in enumerate(texts):
        if isinstance(text, str) or text is None:
            continue
        if isinstance(text, float) and text != text:
            texts[i] = None
            continue
        where = f"row {begin + i}" if field is None else f"field {field!r} of row {begin + i}"
        hint = ": name its fields by fields=[…]" if isinstance(text, Mapping) else ", but must be a string"
        raise TypeError(f"{where} is of type {type(text).__name__}{hint}")
    return texts
