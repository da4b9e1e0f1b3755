"""Reader of models of omikuji 0.5: folders with ``settings.json`` and a CBOR file for each tree.

A tree is nested: {"Branch": {"weights", "children"}} or {"Leaf": {"weights", "labels"}}. Weights are a matrix
with a row for each feature and one more, the bias, and a column for each child or label: sparse by rows, or
dense after `densify_weights`.

Imports the core to pack weights.
"""

import contextlib
import json
import os
import re
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import Bonsai, FormatError, _core
from bonsai_xmc._model.fitted import LabelTable, class_array
from bonsai_xmc._model.linear import LinearRanker

Array = npt.NDArray[Any]

_LOSSES = {"Hinge": "squared_hinge", "Log": "logistic"}
# Ids without a leaf that are accepted, for each label in leaves and in any case; more indicate damage.
_GAPS, _GAPS_AT_LEAST = 50, 50_000


def is_omikuji(path: str) -> bool:
    """Return whether a path is a model folder of omikuji."""
    return os.path.isfile(os.path.join(path, "settings.json"))


def load_omikuji(
    path: str, n_labels: int | None = None, names: list[str] | None = None, quantise: bool = False
) -> Bonsai:
    """Return a model with omikuji's trees and weights, which predicts as omikuji does.

    A weight is stored as two 8-bit integers, the second for the residual of the first. With `quantise`, only
    the largest weights of a classifier, one in a hundred, have a second one.

    Labels are 0, 1, …, up to the largest one in the trees or `n_labels`, or have names. Training rows,
    frequencies of labels and most parameters are unknown, as omikuji does not store them.
    """
    n_features, loss = _settings(path)
    trees = [_read_tree(file) for file in _tree_files(path)]
    total = _count_labels(path, trees, len(names) if names is not None else n_labels)
    with _described_as(path, "holds trees that do not fit together"):
        core = _core.Model(_forest(trees, n_features, total, quantise), None, loss, True, strict_beam=True)
    return _estimator(core, trees, n_features, total, loss, names)


@contextlib.contextmanager
def _described_as(source: str, what: str) -> Iterator[None]:
    """Turn the errors of a damaged file into a FormatError that begins with these words."""
    try:
        yield
    except FormatError:
        raise
    except (
        *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
        *(RecursionError, struct.error),
    ) as error:
        raise FormatError(f"{source} {what}: {error!r:.200}") from error


def _count_labels(path: str, trees: list["_Tree"], given: int | None) -> int:
    """Return the given number, or the largest id + 1 if leaves contain enough of the smaller ids."""
    of_leaves = [labels for tree in trees for labels in tree.labels()]
    found = 1 + max(int(labels.max()) for labels in of_leaves)
    if given is not None:
        if given < found:
            raise ValueError(f"{path} has the label {found - 1:,}, but only {given:,} labels are given")
        return given
    held = len(np.unique(np.concatenate(of_leaves)))
    if found - held > max(_GAPS * held, _GAPS_AT_LEAST):
        raise FormatError(
            f"{path} has the label {found - 1:,}, but its leaves hold {held:,} labels: it is damaged, or "
            f"most labels have no training rows. If there are so many, pass --n-labels {found} "
            f"(in Python: n_labels={found})"
        )
    return found


def _estimator(
    core: _core.Model,
    trees: list["_Tree"],
    n_features: int,
    n_labels: int,
    loss: str,
    names: list[str] | None,
) -> Bonsai:
    model = Bonsai(classifiers="leaf", loss=loss, n_trees=len(trees), threshold=0.5, n_jobs=1)
    model.fit([[1.0, 0.0], [0.0, 1.0]], [[0], [1]])  # for all that does not depend on the trees
    counts = np.zeros(n_labels, np.int64)
    for tree in trees:
        for labels in tree.labels():
            counts[labels] = 1
    classes: Any = np.arange(n_labels)
    if names is not None:
        if len(set(names)) < len(names):
            raise ValueError("two labels have the same name; names must differ")
        classes = class_array(names)
    strategy = replace(model.fitted_.linear.strategy, reason="trained by omikuji", strict_beam=True)
    fitted = replace(
        model.fitted_,
        ranker=LinearRanker(core, strategy, counts),
        labels=LabelTable(classes, counts),
        n_rows=None,
        n_features=n_features,
        given={},
        timings={},
    )
    return model.set_params(n_jobs=None)._with(fitted)


def _settings(path: str) -> tuple[int, str]:
    source = os.path.join(path, "settings.json")
    with open(source, "rb") as file, _described_as(source, "is not that of a model of omikuji 0.5"):
        settings = json.load(file)
        n_features, loss = settings["n_features"], _LOSSES[settings["classifier_loss_type"]]
        if type(n_features) is not int or not 0 < n_features < 2**31:
            raise ValueError(f"n_features is {n_features!r:.40}")
    return n_features, loss


def _tree_files(path: str) -> list[str]:
    numbers = [
        int(found[1]) for name in os.listdir(path) if (found := re.fullmatch(r"tree(\d+)\.cbor", name))
    ]
    if not numbers:
        raise FormatError(f"{path} has no file tree0.cbor")
    return [os.path.join(path, f"tree{number}.cbor") for number in sorted(numbers)]


@dataclass
class _Node:
    weights: Any
    children: list["_Node"]
    labels: Array | None


@dataclass
class _Tree:
    root: _Node
    source: str

    def nodes(self) -> list[_Node]:
        """Return the nodes level by level, children after their parents."""
        found, queue = [], deque([self.root])
        while queue:
            node = queue.popleft()
            found.append(node)
            queue.extend(node.children)
        return found

    def labels(self) -> list[Array]:
        return [node.labels for node in self.nodes() if node.labels is not None]


def _read_tree(source: str) -> _Tree:
    with open(source, "rb") as file:
        data = file.read()
    with _described_as(source, "is not a tree of omikuji 0.5, or damaged"):
        return _Tree(_node(_Cbor(data).read()), source)


def _node(value: Any) -> _Node:
    ((kind, content),) = value.items()
    if kind == "Leaf":
        labels = np.array(content["labels"], np.int64)
        if labels.ndim != 1 or not len(labels) or labels.min() < 0 or labels.max() >= 2**31:
            raise ValueError("the labels of a leaf are wrong")
        return _Node(content["weights"], [], labels)
    if kind != "Branch" or not content["children"]:
        raise ValueError(f"a node is a {kind}")
    return _Node(content["weights"], [_node(child) for child in content["children"]], None)


_OFFSETS = ("bucket_ptr", "record_ptr")


def _joined(packed: list[dict[str, Array]]) -> dict[str, Array]:
    """Concatenate the packed weights of nodes."""
    sizes = {name: np.concatenate([np.diff(one[name]) for one in packed]) for name in _OFFSETS}
    plain = ("bias", "scale", "shift", "buckets", "records")
    joined = {name: np.concatenate([one[name] for one in packed]) for name in plain}
    return joined | {name: np.append(np.int64(0), np.cumsum(of_parts)) for name, of_parts in sizes.items()}


def _forest(trees: list[_Tree], n_features: int, n_labels: int, quantise: bool) -> _core.Forest:
    tree_ptr = [0]
    children: list[Array] = []
    is_leaf: list[bool] = []
    weights: list[dict[str, Array]] = []
    residual: list[dict[str, Array]] = []
    for tree in trees:
        following = 1  # number of the next node that is a child
        for node in tree.nodes():
            order = None
            if node.labels is None:
                children.append(np.arange(following, following + len(node.children)))
                following += len(node.children)
            else:
                order = np.argsort(node.labels, kind="stable")
                children.append(node.labels[order])
            is_leaf.append(node.labels is not None)
            with _described_as(tree.source, "has wrong weights of a node"):
                packed, rest = _packed(node.weights, len(children[-1]), n_features, order, quantise)
            weights.append(packed)
            residual.append(rest)
        tree_ptr.append(len(is_leaf))
    structure = {
        "tree_ptr": np.array(tree_ptr, np.int64),
        "child_ptr": np.cumsum([0, *map(len, children)], dtype=np.int64),
        "children": np.concatenate(children).astype(np.int32),
        "is_leaf": np.array(is_leaf, np.uint8),
        "block_ptr": np.cumsum([0, *(len(packed["shift"]) for packed in weights)], dtype=np.int64),
    }
    shape, finer = (n_features, n_labels), _joined(residual)
    second = _core.Forest(structure | finer, *shape) if len(finer["records"]) else None
    return _core.Forest(structure | _joined(weights), *shape, residual=second)


def _packed(
    weights: Any, n_classes: int, n_features: int, order: Array | None, quantise: bool
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return a node's classifiers, in the order of its children, and their residual.

    The last row of the matrix holds the biases.
    """
    feature, cls, value, shape = _entries(weights)
    if shape != (n_features + 1, n_classes):
        raise ValueError(f"a matrix of {shape[0]} × {shape[1]}, but {n_features + 1} × {n_classes} is needed")
    if len(feature) and not (0 <= feature.min() <= feature.max() <= n_features):
        raise ValueError("a feature is out of range")
    if len(cls) and not (0 <= cls.min() <= cls.max() < n_classes):
        raise ValueError("a column is out of range")
    if order is not None:
        place = np.empty(n_classes, np.int64)
        place[order] = np.arange(n_classes)
        cls = place[cls]
    bias = np.zeros(n_classes, np.float32)
    last = feature == n_features
    bias[cls[last]] = value[last]
    feature, cls, value = feature[~last], cls[~last], value[~last]
    sorting = np.lexsort((feature, cls))
    feature, cls, value = feature[sorting].astype(np.uint32), cls[sorting], value[sorting].astype(np.float32)

    def pack(chosen: Any, values: Array) -> dict[str, Array]:
        ptr = np.concatenate([[0], np.cumsum(np.bincount(cls[chosen], minlength=n_classes))])
        return _core.pack_node(bias, ptr.astype(np.int64), feature[chosen], values, n_features)

    limit = _limits(value, cls, n_classes)[cls] if quantise else np.float32(np.inf)
    rounded = np.clip(value, -limit, limit)
    packed = pack(slice(None), rounded)
    outliers = np.abs(value) > limit if quantise else slice(None)
    scale = packed["scale"][cls]
    steps = np.rint(np.divide(rounded, scale, where=scale > 0, out=np.zeros_like(value)))
    return packed, pack(outliers, (value - scale * steps)[outliers])


def _limits(value: Array, cls: Array, n_classes: int) -> Array:
    """Return for each classifier the magnitude that one in a hundred of its weights exceeds.

    A few weights are far larger than the others, which would lose precision if all shared a scale of 8 bits.
    """
    magnitude = np.abs(value)
    ascending = np.append(np.float32(0), magnitude[np.lexsort((magnitude, cls))])
    n = np.bincount(cls, minlength=n_classes)
    return ascending[np.where(n > 0, np.cumsum(n) - n // 100, 0)]


def _entries(weights: Any) -> tuple[Array, Array, Array, tuple[int, int]]:
    """Return row, column and value of each nonzero entry, and the shape."""
    ((kind, content),) = weights.items()
    if kind == "Dense":
        n_rows, n_columns = content["dim"]
        dense = np.array(content["data"], np.float32).reshape(n_rows, n_columns)
        rows, columns = np.nonzero(dense)
        return rows, columns, dense[rows, columns], (n_rows, n_columns)
    rows, columns = np.array(content["outer_inds"], np.int64), np.array(content["inner_inds"], np.int64)
    ptr, values = np.array(content["indptr"], np.int64), np.array(content["data"], np.float32)
    if len(ptr) != len(rows) + 1 or ptr[0] != 0 or ptr[-1] != len(columns) or (np.diff(ptr) < 0).any():
        raise ValueError("the rows of a matrix do not fit together")
    if len(columns) != len(values):
        raise ValueError("a matrix has other numbers of columns and values")
    return np.repeat(rows, np.diff(ptr)), columns, values, (content["outer_dim"], content["inner_dim"])


_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_WORDS = {20: False, 21: True, 22: None}


class _Cbor:
    """Reader of the subset of CBOR that trees use."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self) -> Any:
        value = self._value()
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes follow the tree")
        return value

    def _take(self, n: int) -> bytes:
        self._at += n
        if self._at > len(self._data):
            raise ValueError("truncated")
        return self._data[self._at - n : self._at]

    def _value(self) -> Any:
        major, low = divmod(self._take(1)[0], 32)
        if major == 7 and low in _WORDS:
            return _WORDS[low]
        if major == 7:
            kind = _FLOATS[low]
            return struct.unpack(kind, self._take(struct.calcsize(kind)))[0]
        if low > 27:
            raise ValueError("a value of unknown length")
        size = low if low < 24 else int.from_bytes(self._take(1 << (low - 24)), "big")
        if major == 0:
            return size
        if size > len(self._data):
            raise ValueError("truncated")
        if major == 3:
            return self._take(size).decode()
        if major == 4:
            return self._list(size)
        if major == 5:
            return {self._value(): self._value() for _ in range(size)}
        raise ValueError(f"an unknown kind of value, {major}")

    def _list(self, size: int) -> list[Any]:
        """Return a list. Long lists are of numbers, which are read in runs of equal types."""
        data, at = self._data, self._at
        result: list[Any] = []
        while len(result) < size:
            head = data[at]
            if head < 24:
                result.append(head)
            elif head == 24:
                result.append(data[at + 1])
            elif head == 25:
                result.append(data[at + 1] << 8 | data[at + 2])
            else:
                self._at, left = at, size - len(result)
                result += self._run_of_floats(left) if head == 0xFA and left > 16 else [self._value()]
                at = self._at
                continue
            at += 1 if head < 24 else head - 22
        self._at = at
        return result

    def _run_of_floats(self, most: int) -> list[float]:
        """Return consecutive 32-bit floats."""
        n = min(most, (len(self._data) - self._at) // 5)
        items = np.frombuffer(self._data, np.uint8, 5 * n, self._at).reshape(n, 5)
        other = np.flatnonzero(items[:, 0] != 0xFA)
        n = int(other[0]) if len(other) else n
        if n == 0:
            raise ValueError("truncated")
        self._at += 5 * n
        return np.ascontiguousarray(items[:n, 1:]).view(">f4").ravel().tolist()
