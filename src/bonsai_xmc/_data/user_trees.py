"""Turn a user's trees into the arrays that training takes: ids of labels, those without rows left out."""

import os
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.tree import LabelTree


def tree_list(tree: Any) -> list[Any]:
    """Return the user's trees: a list of trees is several, nested lists of labels are one."""
    several = isinstance(tree, list | tuple) and tree and all(isinstance(t, LabelTree | dict) for t in tree)
    return list(tree) if several else [tree]


def tree_arrays(tree: Any, classes: Array, has_rows: Array) -> list[tuple[Array, Array, Array]]:
    """Return (child_ptr, children, is_leaf) of each tree, without the labels that have no training row."""
    return [_arrays(given, classes, has_rows) for given in tree_list(tree)]


def _arrays(given: Any, classes: Array, has_rows: Array) -> tuple[Array, Array, Array]:
    tree = _as_tree(given)
    named = classes.dtype == object
    keyed = not named and not np.array_equal(classes, np.arange(len(classes)))
    if tree.names is not None and (named or keyed):
        tree, has_rows = _with_places(tree, lambda label: str(tree.names[label]), map(str, classes), has_rows)
    elif keyed:
        tree, has_rows = _with_places(tree, int, classes.tolist(), has_rows)
    elif isinstance(tree.names, list) and tree is not given:  # its ids are places in the list of names
        raise ValueError("tree holds label names, but Y has none; use ids, or lists of names for Y")
    labels = tree.labels()
    if len(labels) and labels[-1] >= len(has_rows):
        raise ValueError(f"tree holds the label {labels[-1]}, but Y has only {len(has_rows)} labels")
    missing = np.setdiff1d(np.flatnonzero(has_rows), labels)
    if len(missing):
        raise ValueError(
            f"{len(missing)} label(s) of Y are not in tree, {classes[missing].tolist()[0]!r} for one; "
            "each label with rows needs its place"
        )
    return _breadth_first(tree, has_rows)


def _as_tree(given: Any) -> LabelTree:
    if isinstance(given, LabelTree):
        return given
    if isinstance(given, str | os.PathLike):
        return LabelTree.from_json(given)
    if isinstance(given, dict | list | tuple):
        return LabelTree.from_nested(given)
    raise ValueError(
        f"tree is of type {type(given).__name__}; pass a LabelTree, nested lists of labels, or its JSON form"
    )


def _with_places(tree: LabelTree, key: Any, classes: Any, has_rows: Array) -> tuple[LabelTree, Array]:
    """Give the labels of a tree the places that they have in `classes`; others follow, without rows."""
    place = {label: i for i, label in enumerate(classes)}
    n_classes = len(place)
    arrays = tree.arrays
    children = arrays["children"].copy()
    labels = np.repeat(arrays["is_leaf"], np.diff(arrays["child_ptr"]))
    children[labels] = [place.setdefault(key(label), len(place)) for label in children[labels].tolist()]
    has_rows = np.append(has_rows, np.zeros(len(place) - n_classes, dtype=bool))
    return LabelTree(arrays["child_ptr"], children, arrays["is_leaf"]), has_rows


def _breadth_first(tree: LabelTree, has_rows: Array) -> tuple[Array, Array, Array]:
    """Return the arrays of the tree without labels that have no rows and nodes that hold no others."""
    below = np.zeros(tree.n_nodes, np.int64)
    below[[v for v in range(tree.n_nodes) if tree.is_leaf(v) and has_rows[tree.labels(v)].any()]] = 1
    for v in np.argsort(-tree.levels, kind="stable"):
        if v:
            below[tree.parents[v]] += below[v]
    children: list[Array] = []
    leaves: list[bool] = []
    queue, numbered = [0], 1
    for v in queue:
        leaves.append(tree.is_leaf(v))
        if leaves[-1]:
            labels = tree.labels(v)
            children.append(labels[has_rows[labels]])
        else:
            kept = [int(c) for c in tree.children(v) if below[c]]
            queue.extend(kept)
            children.append(np.arange(numbered, numbered + len(kept)))
            numbered += len(kept)
    ptr = np.concatenate([[0], np.cumsum([len(c) for c in children])]).astype(np.int64)
    return ptr, np.concatenate(children).astype(np.int32), np.array(leaves, dtype=np.uint8)
