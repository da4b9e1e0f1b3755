"""The readers of a fitted model, which turn texts into rows: by words, by vectors, or by both in a fusion."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bonsai_xmc._data.rows import DenseRows, FusedRows, SparseRows
from bonsai_xmc._text.encoders import Encoder, Identity
from bonsai_xmc._text.records import Columns


class TextReader(Protocol):
    """The interface of what reads texts; immutable."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of records that it reads; none: rows are strings."""

    @property
    def source(self) -> Mapping[str, Any]:
        """How the training file was read; empty if unknown."""

    @property
    def n_features(self) -> int: ...

    def transform(self, chunks: Iterable[Columns], threads: int) -> Any:
        """Return the rows of texts, which come as one list for each field."""


Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class EncodedText:
    """The vectors of an encoder, relative to the mean of the training texts; immutable.

    Vectors of an encoder lie in a narrow cone. Subtracting their mean leaves the differences between texts.
    """

    encoder: Encoder
    fields: tuple[str, ...]  # of records, joined into one text; none: rows are strings
    centre: Array  # float32, (dimension,)
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        return self.encoder.identity.dimension

    def transform(self, chunks: Iterable[Columns], threads: int) -> DenseRows:
        """See `TextReader`."""
        parts = [self.rows(self.encoder.encode(joined(columns), threads)) for columns in chunks]
        return (
            DenseRows(np.concatenate(parts))
            if parts
            else DenseRows(self.rows(np.zeros((0, self.n_features))))
        )

    def rows(self, vectors: Array) -> Array:
        """Return the features of vectors; a text without a vector has none."""
        rows = np.subtract(vectors, self.centre, dtype=np.float32)
        rows[~vectors.any(axis=1)] = 0
        return rows

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the parts of it in a model file: a JSON object, and tensors."""
        described = {"identity": self.encoder.identity.to_json(), "fields": list(self.fields)}
        return described | {"source": dict(self.source)}, {"centre": self.centre}

    @classmethod
    def from_arrays(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> "EncodedText":
        """Make the reader of a file, whose values are checked. The encoder is loaded when it is used."""
        identity = Identity.from_json(described["identity"])
        encoder, centre = Encoder(identity), np.array(arrays["centre"])
        if len(centre) != identity.dimension:
            raise ValueError(f"its encoder gives {identity.dimension} numbers, its centre has {len(centre)}")
        return cls(encoder, tuple(described["fields"]), centre, described["source"])


def joined(columns: Columns) -> list[str | None]:
    """Return the text of each row: its fields, one after the other."""
    if len(columns) == 1:
        return columns[0]
    return ["\n".join(filter(None, row)) for row in zip(*columns, strict=True)]


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
