"""Paths from the root of each tree to a label, and where a beam search leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bonsai_xmc._explain.names import label_name
from bonsai_xmc._explain.objects import Dropped
from bonsai_xmc._model.fitted import FittedModel

if TYPE_CHECKING:
    from bonsai_xmc import _core

_SHOWN = 3  # labels that stand for a cluster


class Edge(NamedTuple):
    """A child of a node. Numbers of nodes and children count over all trees, as the core has them."""

    child: int
    node: int
    to: int | None  # node that it leads to; None for the label itself


class Forest:
    """The structure of the trees. Labels are slots, in the numbering of the core."""

    def __init__(self, core: _core.Forest) -> None:
        arrays: Mapping[str, Any] = core.arrays()
        self.core = core
        self.tree_ptr, self.child_ptr = arrays["tree_ptr"], arrays["child_ptr"]
        self.children, self.is_leaf = arrays["children"], arrays["is_leaf"]
        nodes = np.arange(len(self.is_leaf))
        self._node = np.repeat(nodes, np.diff(self.child_ptr))  # of each child
        inner = np.flatnonzero(self.is_leaf[self._node] == 0)
        root = self.tree_ptr[np.searchsorted(self.tree_ptr, self._node[inner], side="right") - 1]
        self._child = np.full(len(nodes), -1)  # that leads to each node; −1 for a root
        self._child[root + self.children[inner]] = inner

    def path(self, tree: int, slot: int) -> list[Edge]:
        """Return the edges from the root to the label; none if it is not in the tree."""
        first, end = self.child_ptr[self.tree_ptr[tree : tree + 2]].tolist()
        found = first + np.flatnonzero(self.children[first:end] == slot)
        found = found[self.is_leaf[self._node[found]] != 0]
        if not len(found):
            return []
        last = Edge(int(found[0]), int(self._node[found[0]]), None)
        return [*self.way(last.node), last]

    def way(self, node: int) -> list[Edge]:
        """Return the edges from the root to a node."""
        edges: list[Edge] = []
        while (child := int(self._child[node])) >= 0:
            edges.append(Edge(child, int(self._node[child]), node))
            node = edges[-1].node
        return edges[::-1]

    def slots(self, node: int) -> list[int]:
        """Return the slots below a node."""
        tree = int(np.searchsorted(self.tree_ptr, node, side="right")) - 1
        root, found, nodes = int(self.tree_ptr[tree]), [], [node]
        while nodes:
            at = nodes.pop()
            children = self.children[self.child_ptr[at] : self.child_ptr[at + 1]].tolist()
            if self.is_leaf[at]:
                found += children
            else:
                nodes += [root + child for child in children]
        return found


def most_frequent(fitted: FittedModel, slots: list[int]) -> list[int]:
    """Return the labels of a cluster with most training rows."""
    labels = np.unique(fitted.linear.label_of_slot[slots])
    often: list[int] = labels[np.lexsort((labels, -fitted.label_counts[labels]))[:_SHOWN]].tolist()
    return often


def cluster_name(fitted: FittedModel, slots: list[int]) -> str:
    """Name the labels with most training rows, and how many others there are."""
    often = most_frequent(fitted, slots)
    more = len(np.unique(fitted.linear.label_of_slot[slots])) - len(often)
    return ", ".join(label_name(fitted, label) for label in often) + (f" and {more:,} more" if more else "")


class Kept:
    """The nodes that a search keeps at each level."""

    def __init__(self, reasons: _core.Reasons, beam: int) -> None:
        self._levels: list[dict[int, float]] = []
        for level, node, score in zip(*(part.tolist() for part in reasons.search(beam)), strict=True):
            while len(self._levels) <= level:
                self._levels.append({})
            self._levels[level][node] = score

    def dropped(self, forest: Forest, tree: int, nodes: list[tuple[int, float]]) -> Dropped | None:
        """Return where the search leaves a path of (node, log score of the path to it) below the root."""
        root, end = int(forest.tree_ptr[tree]), int(forest.tree_ptr[tree + 1])
        leaf = nodes[-1:] * (len(self._levels) - 1 - len(nodes))  # leaves are kept, unless the beam is strict
        for level, (node, score) in enumerate([*nodes, *leaf], 1):
            kept = self._levels[level] if level < len(self._levels) else {}
            if node in kept:
                continue
            before = self._levels[level - 1] if level <= len(self._levels) else {}
            new = [kept[n] for n in kept if root <= n < end and n not in before]  # leaves are kept
            lowest = float(np.exp(min(new))) if new else 0.0
            return Dropped(level, node - root, float(np.exp(score)), lowest, len(new))
        return None
