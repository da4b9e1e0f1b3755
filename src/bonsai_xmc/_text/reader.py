"""What turns texts into rows inside a fitted model: one reader, or one for each member of a fusion."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from bonsai_xmc._data.rows import DenseRows, FusedRows, SparseRows
from bonsai_xmc._text.records import Columns


class TextReader(Protocol):
    """Reads texts. Never changes."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of records that it reads; none: rows are strings."""

    @property
    def source(self) -> Mapping[str, Any]:
        """How the training file was read, as far as it is known."""

    @property
    def n_features(self) -> int: ...

    def transform(self, chunks: Iterable[Columns], threads: int) -> Any:
        """Return the rows of texts, which come as one list for each field."""


@dataclass(frozen=True)
class FusedText:
    """The readers of the members of a fusion, side by side."""

    readers: tuple[TextReader, ...]
    source: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, readers: Sequence[TextReader | None]) -> "FusedText | None":
        """Return the reader of all; None if one of them does not read texts, or not of the same form."""
        known = [reader for reader in readers if reader is not None]
        if len(known) < len(readers) or len({bool(reader.fields) for reader in known}) > 1:
            return None
        source = next((reader.source for reader in known if reader.source), {})
        return cls(tuple(known), source)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that any of the readers reads."""
        return tuple(dict.fromkeys(name for reader in self.readers for name in reader.fields))

    @property
    def n_features(self) -> int:
        return sum(reader.n_features for reader in {id(one): one for one in self.readers}.values())

    def transform(self, chunks: Iterable[Columns], threads: int) -> FusedRows:
        """See `TextReader`."""
        distinct = {id(reader): reader for reader in self.readers}
        parts: dict[int, list[Any]] = {key: [] for key in distinct}
        for columns in chunks:
            for key, reader in distinct.items():
                own = [columns[self.fields.index(name)] for name in reader.fields] or columns
                parts[key].append(reader.transform([own], threads))
        rows = {key: _joined(parts[key], reader, threads) for key, reader in distinct.items()}
        return FusedRows(tuple(rows[id(reader)] for reader in self.readers))


def _joined(parts: list[Any], reader: TextReader, threads: int) -> Any:
    """Return all rows of the parts, in their order."""
    if not parts:
        return reader.transform([], threads)
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], SparseRows):
        return SparseRows.joined(parts, reader.n_features)
    if isinstance(parts[0], DenseRows):
        return DenseRows(np.concatenate([part.values for part in parts]))
    assert isinstance(reader, FusedText)
    columns = zip(*(part.parts for part in parts), strict=True)
    pairs = zip(columns, reader.readers, strict=True)
    return FusedRows(tuple(_joined(list(own), one, threads) for own, one in pairs))
