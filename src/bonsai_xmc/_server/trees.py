"""Label trees, node by node, for people who browse them."""

from typing import Any

import numpy as np

from bonsai_xmc._server.http import Problem
from bonsai_xmc._server.served import Served

_SHOWN = 3  # labels that stand for a cluster


class BrowsedTrees:
    """The trees of a model with the size and the most frequent labels of each node. Never changes."""

    def __init__(self, served: Served) -> None:
        fitted = served.model.fitted_
        assert fitted.core.trees is not None
        arrays = fitted.core.trees.arrays()
        self._served = served
        self._tree_ptr, self._child_ptr = arrays["tree_ptr"].tolist(), arrays["child_ptr"].tolist()
        self._children, self._is_leaf = arrays["children"], arrays["is_leaf"]
        self._label_of = fitted.label_of_slot
        self._counts = fitted.label_counts
        n_nodes = len(self._is_leaf)
        self._sizes = [0] * n_nodes
        self._often: list[list[int]] = [[] for _ in range(n_nodes)]  # labels, the most frequent first
        self._parent = [-1] * n_nodes
        for tree in range(len(self._tree_ptr) - 1):
            for node in reversed(range(self._tree_ptr[tree], self._tree_ptr[tree + 1])):
                self._gather(self._tree_ptr[tree], node)  # children come after their parents

    def _gather(self, root: int, node: int) -> None:
        children = self._children[self._child_ptr[node] : self._child_ptr[node + 1]]
        if self._is_leaf[node]:
            labels = self._label_of[children]
            self._sizes[node] = len(labels)
            often = labels[np.argsort(-self._counts[labels], kind="stable")[:_SHOWN]].tolist()
        else:
            below = [root + child for child in children.tolist()]
            for child in below:
                self._parent[child] = node
            self._sizes[node] = sum(self._sizes[child] for child in below)
            labels = {label for child in below for label in self._often[child]}
            often = sorted(labels, key=lambda label: (-int(self._counts[label]), label))[:_SHOWN]
        self._often[node] = often

    def node(self, tree: int, node: int, offset: int, limit: int) -> dict[str, Any]:
        """A node of a tree, the way to it, and some of its children; 404 if there is none."""
        n_trees = len(self._tree_ptr) - 1
        if tree >= n_trees:
            raise Problem(404, f"there is no tree {tree}; there are {n_trees}, counted from 0")
        root, end = self._tree_ptr[tree], self._tree_ptr[tree + 1]
        if node >= end - root:
            raise Problem(404, f"there is no node {node} in tree {tree}; it has {end - root:,}")
        at, path = root + node, []
        while at >= 0:
            path.append(self._described(root, at))
            at = self._parent[at]
        first, last = self._child_ptr[root + node], self._child_ptr[root + node + 1]
        chosen = self._children[first:last][offset : offset + limit].tolist()
        leaf = bool(self._is_leaf[root + node])
        children = [self._label(child) if leaf else self._described(root, root + child) for child in chosen]
        return {
            "trees": n_trees,
            "tree": tree,
            "path": path[::-1],
            "total": last - first,
            "children": children,
        }

    def _described(self, root: int, node: int) -> dict[str, Any]:
        names = [self._served.titles[label] for label in self._often[node]]
        return {"node": node - root, "name": ", ".join(names), "labels": self._sizes[node], "label": None}

    def _label(self, slot: int) -> dict[str, Any]:
        label = int(self._label_of[slot])
        return {
            "node": None,
            "name": self._served.titles[label],
            "labels": 1,
            "label": self._served.keys[label],
        }
