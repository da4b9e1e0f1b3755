"""Training rows that a model keeps in compact form, so that it can learn from further ones."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.labels import Labels
from bonsai_xmc._data.rows import DenseRows, Rows, SparseRows

_LARGEST = 127


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Rows with values of 8 bits, and their labels. Immutable.

    Of sparse rows, differences between features are numbers of 7 bits a byte, the lowest first; all bytes of
    a number but the last have their highest bit set.
    """

    n_features: int
    values: Array  # int8, of each entry; dense: (rows, features)
    scale: Array  # float32: what the values of each row are multiplied by
    label_ptr: Array  # int64
    labels: Array  # int32: places in `classes`
    ptr: Array | None = None  # int64: first entry of each row, and the end; None: dense
    features: Array | None = None  # uint8: the first feature of each row, then differences
    weights: Array | None = None  # float32: weights of the rows; None: all 1

    @classmethod
    def make(cls, rows: Rows, labels: Labels, weights: Array | None) -> "KeptRows":
        ptr: Array | None = None
        features: Array | None = None
        if isinstance(rows, SparseRows):
            scale = (abs(rows.to_scipy()).max(axis=1).toarray().ravel() / _LARGEST).astype(np.float32)
            owner = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
            stored = _quantised(rows.values, scale[owner])
            some = stored != 0
            ptr = np.concatenate([[0], np.cumsum(np.bincount(owner[some], minlength=rows.n_rows))])
            features, stored = _encoded(rows.indices[some], ptr), stored[some]
        else:
            scale = (np.abs(rows.values).max(axis=1, initial=0) / _LARGEST).astype(np.float32)
            stored = _quantised(rows.values, scale[:, None])
        return cls(rows.n_features, stored, scale, labels.indptr, labels.indices, ptr, features, weights)

    @property
    def n_rows(self) -> int:
        return len(self.scale)

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self.to_arrays().values())

    def rows(self) -> Rows:
        if self.ptr is None or self.features is None:
            dense: Array = self.values * self.scale[:, None]
            return DenseRows(np.ascontiguousarray(dense, np.float32))
        values = self.values * np.repeat(self.scale, np.diff(self.ptr))
        return SparseRows(np.asarray(self.ptr), _decoded(self.features, self.ptr), values, self.n_features)

    def with_labels(self, new: Array) -> "KeptRows":
        """Return the rows with other numbers of labels, `new`; −1: a label is dropped."""
        owner = np.repeat(np.arange(self.n_rows), np.diff(self.label_ptr))
        labels = new[self.labels]
        pairs = np.unique(np.column_stack([owner, labels])[labels >= 0], axis=0)  # merged ones are one
        ptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=self.n_rows))])
        return replace(self, label_ptr=ptr.astype(np.int64), labels=pairs[:, 1].astype(np.int32))

    def __add__(self, other: "KeptRows") -> "KeptRows":
        """Return these rows and then the others; all are sparse, or all are dense."""
        own, more = self.to_arrays(), other.to_arrays()
        if "weights" in own.keys() ^ more.keys():
            own.setdefault("weights", np.ones(self.n_rows, np.float32))
            more.setdefault("weights", np.ones(other.n_rows, np.float32))
        for name in own.keys() & {"ptr", "label_ptr"}:
            own[name], more[name] = own[name][:-1], own[name][-1] + more[name]
        return KeptRows(self.n_features, **{name: np.concatenate([own[name], more[name]]) for name in own})

    # --- files ---

    def to_arrays(self) -> dict[str, Array]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], n_features: int) -> "KeptRows":
        """Return the rows of tensors that are as `_modelfile.schema` describes them.

        Raise ValueError if these do not fit together. Features are checked when they are used.
        """
        features = arrays.get("features")
        if features is not None and int(np.count_nonzero(features < 128)) != len(arrays["values"]):
            raise ValueError("the tensor rows.features does not hold one feature for each value")
        return cls(n_features, **{name: arrays[name] for name in _TENSORS if name in arrays})


_TENSORS = tuple(field.name for field in fields(KeptRows))[1:]


def _quantised(values: Array, scale: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(scale > 0, values / scale, 0)
    return np.rint(np.clip(ratio, -_LARGEST, _LARGEST)).astype(np.int8)


def _encoded(features: Array, ptr: Array) -> Array:
    gaps = np.diff(features, prepend=np.int32(0)).astype(np.int64)
    firsts = ptr[:-1][np.diff(ptr) > 0]
    gaps[firsts] = features[firsts]
    size = np.ones(len(gaps), np.int64)
    for bits in (7, 14, 21, 28):
        size += gaps >= 1 << bits
    begin = np.concatenate([[0], np.cumsum(size)])
    out = np.empty(begin[-1], np.uint8)
    for byte in range(int(size.max(initial=0))):
        some = size > byte
        more = (size[some] > byte + 1).astype(np.int64) << 7
        out[begin[:-1][some] + byte] = (gaps[some] >> (7 * byte) & 127) | more
    return out


def _decoded(encoded: Array, ptr: Array) -> Array:
    last = np.flatnonzero(encoded < 128)
    size = np.diff(last, prepend=-1)
    gaps = encoded[last].astype(np.int32)
    for byte in range(1, min(int(size.max(initial=0)), 5)):
        some = np.flatnonzero(size > byte)
        gaps[some] = gaps[some] << 7 | (encoded[last[some] - byte] & 127)
    sums = np.cumsum(gaps, dtype=np.int64)
    before = np.concatenate([[0], sums])[ptr[:-1]]
    sums -= np.repeat(before, np.diff(ptr))
    return np.clip(sums, 0, np.iinfo(np.int32).max).astype(np.int32)
