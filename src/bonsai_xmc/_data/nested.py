"""Turn nested lists and dictionaries of labels into the flat arrays of a tree, without recursion."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Names = Sequence[str] | Mapping[int, str]  # by label id
Flat = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_], Names | None]


def flatten(tree: Any, names: Names | None) -> Flat:
    """Return child_ptr, children, is_leaf and names of a `LabelTree`, nodes numbered breadth-first."""
    nodes: list[Any] = [tree]  # grows while it is walked
    origins = [(-1, 0)]  # parent of each node, and its place among the children
    counts: list[int] = []
    leaves: list[bool] = []
    labels: list[Any] = []
    known: dict[int, str] = {}
    for v, node in enumerate(nodes):
        try:
            is_leaf, items, item_names = _read_node(node)
        except ValueError as error:
            raise ValueError(f"{_place(origins, v)} {error}") from error
        counts.append(len(items))
        leaves.append(is_leaf)
        if is_leaf:
            labels += items
            known.update(zip(items, item_names, strict=False))
        else:
            nodes += items
            origins += [(v, i) for i in range(len(items))]
    children = np.zeros(sum(counts), np.int64)
    is_label = np.repeat(leaves, counts)
    children[~is_label] = np.arange(1, len(nodes))
    children[is_label], names = _label_ids(labels, known or None if names is None else names)
    return np.concatenate([[0], np.cumsum(counts)]), children, np.asarray(leaves), names


def _read_node(node: Any) -> tuple[bool, list[Any], list[str]]:
    """Return whether a node is a leaf, its children or labels, and the labels' names.

    The message of a `ValueError` continues a sentence that begins with the node's place.
    """
    items, names, key = node, [], ""
    if isinstance(node, dict):
        if ("children" in node) == ("labels" in node):
            raise ValueError('needs either "children" or "labels"')
        key = "children" if "children" in node else "labels"
        items, names = node[key], node.get("names", [])
    if isinstance(items, np.ndarray):
        items = items.tolist()
    if not isinstance(items, list | tuple):
        raise ValueError(f"is of type {type(items).__name__}, not a list")
    labels = [item for item in items if not isinstance(item, list | tuple | dict | np.ndarray)]
    if labels and len(labels) < len(items):
        raise ValueError(f"mixes labels ({labels[0]!r}) with lists; put the labels into a list of their own")
    is_leaf = len(labels) == len(items)
    if key and is_leaf != (key == "labels"):
        raise ValueError(f'has no {"labels" if key == "labels" else "nodes"} under "{key}"')
    for label in labels:
        is_id = isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < 1 << 31
        if not is_id and not isinstance(label, str):
            raise ValueError(f"has the label {label!r}; labels are ids, from 0 to 2147483647, or names")
        if not is_id and names:
            raise ValueError(f"has names, but the label {label!r} is a name already")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError('has something other than a list of texts under "names"')
    if names and len(names) != len(labels):
        raise ValueError(f"has {len(labels)} labels, but {len(names)} names")
    return is_leaf, list(items), names


def _place(origins: list[tuple[int, int]], node: int) -> str:
    steps: list[str] = []
    while node > 0 and len(steps) < 20:
        node, index = origins[node]
        steps.append(f"[{index}]")
    if not steps:
        return "the tree"
    return f"the node at {'…' if node > 0 else ''}{''.join(reversed(steps))}"


def _label_ids(labels: list[Any], names: Names | None) -> tuple[list[int], Names | None]:
    """Return labels as ids, and the list of names that they refer to."""
    words = [label for label in labels if isinstance(label, str)]
    if not words:
        return labels, names
    if len(words) < len(labels):
        number = next(label for label in labels if not isinstance(label, str))
        raise ValueError(f"the tree mixes label names ({words[0]!r}) with label ids ({number})")
    names = sorted(set(words)) if names is None else names
    ids = {str(name): i for i, name in (names.items() if isinstance(names, Mapping) else enumerate(names))}
    unknown = next((word for word in words if word not in ids), None)
    if unknown is not None:
        raise ValueError(f"the tree holds the label {unknown!r}, which is not among the {len(names)} names")
    return [ids[word] for word in words], names


def parse_json(text: str) -> Any:
    """Parse JSON; ValueError also where lists are nested more deeply than Python's stack allows."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("lists are nested too deeply") from error
