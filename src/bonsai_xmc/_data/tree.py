"""Label trees, to inspect, to export and to pass to `fit`: flat arrays behind a small interface."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.files import PathLike, replacing
from bonsai_xmc._base.hints import needed
from bonsai_xmc._data.nested import Names, flatten, parse_json

_LEVELS_SHOWN = 30


class LabelTree:
    """A tree whose leaves hold labels, each label in one leaf at most.

    Node 0 is the root. The children of an inner node are nodes, those of a leaf are labels, ascending.

    Parameters
    ----------
    child_ptr : array of int, shape (n_nodes + 1,)
        ``children[child_ptr[v]:child_ptr[v + 1]]`` belongs to node ``v``.
    children : array of int
        Node indices (of inner nodes) and label ids (of leaves).
    is_leaf : array of bool, shape (n_nodes,)
        Which nodes are leaves.
    names : sequence of str or mapping from id to str, optional
        The labels' names; names of labels that the tree does not hold are allowed.

    Raises
    ------
    ValueError
        If the arrays do not describe one tree that holds each label at most once.

    Examples
    --------
    >>> tree = LabelTree.from_nested([[0, 1], [[2, 5], [3]]])
    >>> tree
    LabelTree(nodes=5, leaves=3, depth=3, labels=5)
    >>> tree.labels(2)
    array([2, 3, 5], dtype=int32)
    >>> [node.size for node in tree.nodes if node.level == 2]
    [2, 3]
    """

    def __init__(
        self,
        child_ptr: npt.ArrayLike,
        children: npt.ArrayLike,
        is_leaf: npt.ArrayLike,
        names: Names | None = None,
    ) -> None:
        self._ptr = _integers("child_ptr", child_ptr, np.int64)
        self._children = _integers("children", children, np.int32)
        self._leaf = _integers("is_leaf", is_leaf, np.bool_)
        self.names = names
        self._check_pointers()
        # The node that each entry of `children` belongs to, and whether the entry is a label.
        self._owner = np.repeat(np.arange(self.n_nodes), np.diff(self._ptr))
        self._is_label = self._leaf[self._owner]
        self._parents = self._check_edges()
        self._levels = self._check_reached()
        self._check_labels()

    def _check_pointers(self) -> None:
        ptr, n = self._ptr, self.n_nodes
        if n < 1 or len(ptr) != n + 1:
            raise ValueError(
                f"child_ptr has {len(ptr)} and is_leaf {n} entries; n nodes need n + 1 and n ≥ 1"
            )
        counts = np.diff(ptr)
        if ptr[0] != 0 or ptr[-1] != len(self._children) or counts.min() < 0:
            raise ValueError(
                f"child_ptr must increase from 0 to {len(self._children)}, the length of children"
            )
        if n > 1 and counts.min() == 0:
            node = int(counts.argmin())
            kind, what = ("leaf", "labels") if self._leaf[node] else ("inner node", "children")
            raise ValueError(f"{kind} {node} has no {what}; leave it out of the tree")
        if n == 1 and not self._leaf[0]:
            raise ValueError("node 0 is no leaf, but there are no other nodes")

    def _check_edges(self) -> npt.NDArray[np.int32]:
        """Return the parents of all nodes."""
        n = self.n_nodes
        nodes, parents = self._children[~self._is_label], self._owner[~self._is_label]
        wrong = (nodes < 1) | (nodes >= n)
        if wrong.any():
            i = wrong.argmax()
            raise ValueError(f"node {parents[i]} has the child {nodes[i]}; children are nodes 1 to {n - 1}")
        times = np.bincount(nodes, minlength=n)
        times[0] = 1
        if times.max() > 1:
            first, second = parents[nodes == times.argmax()][:2]
            raise ValueError(f"node {times.argmax()} is a child of node {first} and of node {second}")
        if times.min() < 1:
            raise ValueError(f"node {times.argmin()} is the child of no node")
        result = np.full(n, -1, np.int32)
        result[nodes] = parents
        return result

    def _check_reached(self) -> npt.NDArray[np.int32]:
        """Return the levels of all nodes. Each pass doubles the distance: log2(depth) passes are enough."""
        ancestor = np.maximum(self._parents, 0)
        steps = np.ones(self.n_nodes, np.int32)
        steps[0] = 0
        for _ in range(self.n_nodes.bit_length() + 1):
            if not ancestor.any():
                return steps + 1
            steps += steps[ancestor]
            ancestor = ancestor[ancestor]
        raise ValueError(f"node {ancestor.argmax()} lies on a cycle that the root does not reach")

    def _check_labels(self) -> None:
        leaves, labels = self._owner[self._is_label], self._children[self._is_label]
        if not len(labels):
            return
        if ((labels[1:] < labels[:-1]) & (leaves[1:] == leaves[:-1])).any():
            self._children = self._children.copy()
            self._children[self._is_label] = labels[np.lexsort((labels, leaves))]
            self._children.flags.writeable = False
        ordered = np.sort(labels)
        if ordered[0] < 0:
            raise ValueError(
                f"leaf {leaves[labels.argmin()]} has the label {ordered[0]}; label ids begin at 0"
            )
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            label = ordered[twice.argmax()]
            first, second = leaves[labels == label][:2]
            raise ValueError(f"label {label} is in leaf {first} and in leaf {second}")
        if self.names is not None:
            self._check_names(self.names, ordered)

    def _check_names(self, names: Names, labels: npt.NDArray[np.int32]) -> None:
        if isinstance(names, Mapping):
            nameless = [label for label in labels.tolist() if label not in names]
        else:
            nameless = labels[labels >= len(names)].tolist()
        if nameless:
            raise ValueError(f"label {nameless[0]} has no name: it is not among the {len(names)} given")

    @property
    def arrays(self) -> dict[str, Array]:
        """The flat arrays: ``LabelTree(**tree.arrays, names=tree.names)`` equals the tree."""
        return {"child_ptr": self._ptr, "children": self._children, "is_leaf": self._leaf}

    @property
    def n_nodes(self) -> int:
        """Number of nodes, inner ones and leaves."""
        return len(self._leaf)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(self._leaf.sum())

    @property
    def n_labels(self) -> int:
        """Number of labels that the tree holds."""
        return int(self._is_label.sum())

    @property
    def depth(self) -> int:
        """Number of levels of nodes; 1 if the root is a leaf."""
        return int(self._levels.max())

    @property
    def parents(self) -> npt.NDArray[np.int32]:
        """Parent of each node; −1 for the root."""
        return self._parents

    @property
    def levels(self) -> npt.NDArray[np.int32]:
        """Level of each node; 1 for the root."""
        return self._levels

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of labels below each node."""
        sizes = np.where(self._leaf, np.diff(self._ptr), 0)
        for nodes in reversed(self._by_level[1:]):
            np.add.at(sizes, self._parents[nodes], sizes[nodes])
        return sizes

    @cached_property
    def _by_level(self) -> list[npt.NDArray[np.int64]]:
        order = np.argsort(self._levels, kind="stable")
        ends = np.cumsum(np.bincount(self._levels)[1:])
        return [order[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    @cached_property
    def _depth_first(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The place of each node's first label in depth-first order, and all labels in this order.

        The labels below a node are neighbours there: the time of `labels` depends on its result alone.
        """
        weight = np.ones(len(self._children), np.int64)  # labels below each entry
        weight[~self._is_label] = self.sizes[self._children[~self._is_label]]
        before = np.cumsum(weight) - weight
        before -= before[self._ptr[self._owner]]  # labels below the earlier siblings of each entry
        first = np.zeros(self.n_nodes, np.int64)
        first[self._children[~self._is_label]] = before[~self._is_label]
        for nodes in self._by_level[1:]:
            first[nodes] += first[self._parents[nodes]]
        labels = np.empty(self.n_labels, np.int32)
        labels[(first[self._owner] + before)[self._is_label]] = self._children[self._is_label]
        return first, labels

    @property
    def nodes(self) -> "list[Node]":
        """All nodes, as small views: ``tree.nodes[3].size``, ``for node in tree.nodes: …``."""
        return [Node(self, v) for v in range(self.n_nodes)]

    def is_leaf(self, node: int) -> bool:
        """Return whether a node holds labels rather than nodes."""
        return bool(self._leaf[self._check_node(node)])

    def children(self, node: int) -> npt.NDArray[np.int32]:
        """Return the indices of the child nodes of a node; empty for a leaf."""
        node = self._check_node(node)
        return self._children[self._ptr[node] : self._ptr[node] if self._leaf[node] else self._ptr[node + 1]]

    def labels(self, node: int = 0) -> npt.NDArray[np.int32]:
        """Return the ids of all labels below a node, ascending."""
        node = self._check_node(node)
        first, labels = self._depth_first
        return np.sort(labels[first[node] : first[node] + self.sizes[node]])

    def _check_node(self, node: int) -> int:
        if not 0 <= node < self.n_nodes:
            raise IndexError(f"there is no node {node}; this tree has the nodes 0 to {self.n_nodes - 1}")
        return int(node)

    def _names_of(self, labels: npt.NDArray[np.int32]) -> list[str]:
        return [] if self.names is None else [str(self.names[label]) for label in labels.tolist()]

    def _describe_leaf(self, node: int) -> dict[str, Any]:
        labels = self._children[self._ptr[node] : self._ptr[node + 1]]
        names = {} if self.names is None else {"names": self._names_of(labels)}
        return {"labels": labels.tolist(), **names}

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as nested dictionaries that JSON can hold.

        An inner node is ``{"children": [node, …]}``, a leaf ``{"labels": [id, …]}`` with the labels' names
        under ``"names"`` if they are known.
        """
        nodes = [self._describe_leaf(v) if leaf else {"children": []} for v, leaf in enumerate(self._leaf)]
        for parent, child in zip(self._owner[~self._is_label], self._children[~self._is_label], strict=True):
            nodes[parent]["children"].append(nodes[child])
        return nodes[0]

    def to_json(self, path: PathLike | None = None, indent: int | None = None) -> str:
        """Return the tree of `to_dict` as JSON text, also written to the file `path` if one is given.

        `indent` is that of `json.dumps`.

        Examples
        --------
        >>> LabelTree.from_nested([[0, 1], [[2, 5], [3]]]).to_json()
        '{"children": [{"labels": [0, 1]}, {"children": [{"labels": [2, 5]}, {"labels": [3]}]}]}'
        """
        try:
            text = json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)
        except RecursionError as error:
            raise ValueError(f"a tree of {self.depth:,} levels is too deep for JSON") from error
        if path is not None:
            with replacing(path) as file:
                file.write(text.encode() + b"\n")
        return text

    def to_networkx(self) -> Any:
        """Return the tree as a ``networkx.DiGraph`` with edges from parents to children.

        Nodes have the attributes ``level``, ``size`` and ``is_leaf``, leaves also ``labels`` and, if they are
        known, ``names``.
        """
        networkx = needed("networkx", "to_networkx needs", "'bonsai-xmc[graph]'")
        graph = networkx.DiGraph()
        for node in self.nodes:
            more = self._describe_leaf(node.id) if node.is_leaf else {}
            graph.add_node(node.id, level=node.level, size=node.size, is_leaf=node.is_leaf, **more)
        graph.add_edges_from((int(parent), v) for v, parent in enumerate(self._parents) if parent >= 0)
        return graph

    @classmethod
    def from_json(cls, source: PathLike, names: Names | None = None) -> "LabelTree":
        """Read a tree from a file, or from JSON text: a string that begins with ``{`` or ``[``.

        The JSON holds what `to_dict` gives, or the nested lists of `from_nested`.
        """
        place, text = "JSON text", os.fspath(source)
        try:
            if isinstance(source, os.PathLike) or not text.lstrip().startswith(("{", "[")):
                place = text
                with open(source, encoding="utf-8") as file:
                    text = file.read()
            return cls.from_nested(parse_json(text), names)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error

    @classmethod
    def from_nested(cls, tree: Any, names: Names | None = None) -> "LabelTree":
        """Return a tree from nested lists, or from what `to_dict` gives.

        A list of labels is a leaf, a list of lists an inner node.

        Labels are ids or names. The id of a name is its index in `names` or, without `names`, in the sorted
        list of all names that the tree holds.

        Examples
        --------
        >>> LabelTree.from_nested([["cat", "dog"], ["oak", "birch"]]).to_dict()["children"][1]
        {'labels': [0, 3], 'names': ['birch', 'oak']}
        """
        return cls(*flatten(tree, names))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelTree):
            return NotImplemented
        pairs = zip(self.arrays.values(), other.arrays.values(), strict=True)
        same = all(np.array_equal(mine, theirs) for mine, theirs in pairs)
        labels = self._children[self._is_label]
        return same and self._names_of(labels) == other._names_of(labels)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = f"nodes={self.n_nodes}, leaves={self.n_leaves}, depth={self.depth}, labels={self.n_labels}"
        return f"LabelTree({sizes})"

    def summary(self) -> str:
        """Return a table of the levels: nodes, leaves, children of the inner nodes, labels below a node.

        Examples
        --------
        >>> print(LabelTree.from_nested([[0, 1], [[2, 5], [3]]]).summary())
        level  nodes  leaves  children min/median/max  labels min/median/max
            1      1       0                    2/2/2                  5/5/5
            2      2       1                    2/2/2                2/2.5/3
            3      2       2                        –                1/1.5/2
        """
        rows = [["level", "nodes", "leaves", "children min/median/max", "labels min/median/max"]]
        counts = np.diff(self._ptr)
        for level, nodes in enumerate(self._by_level[:_LEVELS_SHOWN], 1):
            inner = nodes[~self._leaf[nodes]]
            numbers = [f"{n:,}" for n in (level, len(nodes), len(nodes) - len(inner))]
            rows.append([*numbers, _spread(counts[inner]), _spread(self.sizes[nodes])])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
        if self.depth > _LEVELS_SHOWN:
            lines.append(f"… and {self.depth - _LEVELS_SHOWN:,} more levels")
        return "\n".join(lines)


def trees_of(arrays: Mapping[str, Array], names: Names | None = None) -> list[LabelTree]:
    """Return the trees of a forest, which its arrays hold one after the other (docs/internals/format.md)."""
    trees = []
    for first, end in pairwise(arrays["tree_ptr"]):
        ptr = arrays["child_ptr"][first : end + 1]
        children = arrays["children"][ptr[0] : ptr[-1]]
        trees.append(LabelTree(ptr - ptr[0], children, arrays["is_leaf"][first:end], names))
    return trees


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """A node of a `LabelTree`: a view, which is cheap to create."""

    tree: LabelTree = field(hash=False)
    id: int

    @property
    def level(self) -> int:
        """1 for the root."""
        return int(self.tree.levels[self.id])

    @property
    def parent(self) -> "Node | None":
        """The parent node; None for the root."""
        parent = int(self.tree.parents[self.id])
        return None if parent < 0 else Node(self.tree, parent)

    @property
    def children(self) -> "list[Node]":
        """The child nodes; empty for a leaf."""
        return [Node(self.tree, child) for child in self.tree.children(self.id).tolist()]

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """Ids of all labels below, ascending."""
        return self.tree.labels(self.id)

    @property
    def names(self) -> list[str]:
        """Names of these labels; empty if the tree has no names."""
        return self.tree._names_of(self.labels)

    @property
    def size(self) -> int:
        """Number of labels below."""
        return int(self.tree.sizes[self.id])

    @property
    def is_leaf(self) -> bool:
        """Whether the node holds labels rather than nodes."""
        return self.tree.is_leaf(self.id)

    def __repr__(self) -> str:
        kind = "leaf" if self.is_leaf else f"children={len(self.children)}"
        return f"Node({self.id}, level={self.level}, {kind}, labels={self.size})"


def _integers(name: str, values: npt.ArrayLike, dtype: type[np.integer[Any]] | type[np.bool_]) -> Array:
    """Return a read-only view on `values`, copied only if the type differs."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise ValueError(
            f"{name} must be a one-dimensional array of integers, not {array.dtype} {array.shape}"
        )
    low, high = (0, 1) if issubclass(dtype, np.bool_) else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if array.size and not (low <= array.min() and array.max() <= high):
        raise ValueError(f"{name} goes from {array.min()} to {array.max()}; allowed is {low} to {high}")
    result = array.astype(dtype, copy=False).view()
    result.flags.writeable = False
    return result


def _spread(values: Array) -> str:
    if not len(values):
        return "–"
    middle = f"{np.median(values):,.1f}".removesuffix(".0")
    return f"{values.min():,}/{middle}/{values.max():,}"
