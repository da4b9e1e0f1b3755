"""A reader of texts that has an encoder make their vectors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc._data.rows import DenseRows
from bonsai_xmc._text.encoders import Encoder, Identity
from bonsai_xmc._text.records import Columns

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class EncodedText:
    """The vectors of an encoder, relative to the mean of the training texts. Never changes.

    Vectors of an encoder lie in a narrow cone. Without their mean they differ by what the texts differ in.
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
        there = vectors.any(axis=1, keepdims=True)
        return np.where(there, vectors - self.centre, 0).astype(np.float32)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return what a model file holds of it: an object of JSON, and tensors."""
        described = {"identity": self.encoder.identity.to_json(), "fields": list(self.fields)}
        return described | {"source": dict(self.source)}, {"centre": self.centre}

    @classmethod
    def from_arrays(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> "EncodedText":
        """Make the reader of a file, whose values are checked. The encoder is looked for when it is used."""
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
