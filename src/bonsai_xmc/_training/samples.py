"""Samples of labels whose classifiers are the same as those trained among all labels.

One-vs-rest classifiers do not depend on each other. The classifiers at a tree's nodes depend on the rows of
the node and on the labels below each child alone: subtrees that are left out become one leaf with one label.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.random import uniform
from bonsai_xmc._data.labels import Labels
from bonsai_xmc._data.tree import LabelTree
from bonsai_xmc._training.splits import Subtrees

TreeArrays = tuple[Array, Array, Array]
NO_OTHERS: Mapping[int, Array] = {}

# The fewest subtrees to draw from, if the tree has as many; the fewest labels drawn from a single leaf.
_FEWEST_SUBTREES = 32
# The most labels of a leaf where pairs are bounded: a leaf costs its rows × its labels.
_MOST_OF_LEAF = 128


class LabelSample(NamedTuple):
    """A smaller problem with label ids of its own."""

    labels: Labels  # of all rows
    weights: Array  # of each label: 1 / its chance to be drawn; 0 for one that stands for others
    original: Array  # the id of each drawn label; these come first
    tree: TreeArrays | None  # child_ptr, children, is_leaf


def sample_labels(labels: Labels, n: float, seed: int) -> LabelSample:
    """Draw about n labels with rows by their frequency."""
    counts = labels.counts
    present = np.flatnonzero(counts)
    drawn, weights = _draw(counts[present], n, seed)
    return LabelSample(only_labels(labels, present[drawn]), weights, present[drawn], None)


def sample_subtrees(labels: Labels, tree: LabelTree, size: Subtrees, seed: int) -> LabelSample:
    """Draw subtrees of a tree by their frequencies, and parts of these where they have too many pairs."""
    counts, of_label = labels.counts, np.ones(labels.n_labels)
    if tree.n_nodes == 1:
        n = max(size.share * tree.n_labels, min(tree.n_labels, _FEWEST_SUBTREES))
        sample = sample_labels(labels, n, seed)
        rest = np.setdiff1d(tree.labels(), sample.original)
        n = len(sample.original) + bool(len(rest))
        one_leaf = (np.array([0, n]), np.arange(n, dtype=np.int32), np.ones(1, np.uint8))
        others = {n - 1: rest} if len(rest) else {}
        weights = np.append(sample.weights, np.zeros(len(others)))
        return LabelSample(only_labels(labels, sample.original, others), weights, sample.original, one_leaf)
    units = _units(tree)
    pairs = lambda nodes: np.array([counts[tree.labels(node)].sum() for node in nodes])
    n_pairs = pairs(units)
    drawn, weights = _draw(n_pairs, max(size.share * len(units), min(len(units), size.fewest)), seed)
    weight_of = {units[i]: w for i, w in zip(drawn, weights, strict=True)}
    kept: dict[int, Array] = {}
    if n_pairs[drawn].sum() > size.most_pairs:
        below = {node: tree.children(node).tolist() or [node] for node in weight_of}
        parts = [part for nodes in below.values() for part in nodes]
        above = np.repeat(list(weight_of.values()), [len(nodes) for nodes in below.values()])
        n_pairs = pairs(parts)
        drawn, weights = _draw(n_pairs, max(size.fewest, _number(n_pairs, size.most_pairs)), seed)
        weight_of = {parts[i]: above[i] * w for i, w in zip(drawn, weights, strict=True)}
        for node in weight_of:
            if tree.is_leaf(node) and tree.sizes[node] > _MOST_OF_LEAF:
                of_leaf = tree.labels(node)
                drawn, weights = _draw(counts[of_leaf], _MOST_OF_LEAF, seed)
                kept[node] = of_leaf[drawn]
                of_label[kept[node]] = weights
    return _pruned(labels, tree, weight_of, kept, of_label)


def _units(tree: LabelTree) -> list[int]:
    """Return nodes that divide the labels: those of the first level that has enough, and leaves above."""
    for level in range(2, tree.depth + 1):
        leaves_above = tree.arrays["is_leaf"] & (tree.levels < level)
        units = np.flatnonzero((tree.levels == level) | leaves_above)
        if len(units) >= _FEWEST_SUBTREES or level == tree.depth:
            return units.tolist()
    return [0]


def _pruned(
    labels: Labels, tree: LabelTree, drawn: dict[int, float], of_leaves: dict[int, Array], of_label: Array
) -> LabelSample:
    """Prune a tree to the drawn subtrees; at each node above, one leaf stands for all other children.

    `of_leaves` has the drawn labels of leaves that are drawn in part. Their weights are multiplied by
    `of_label`, and one more label stands for the others.
    """
    weight_of = np.zeros(labels.n_labels)
    kept = np.zeros(tree.n_nodes, bool)  # drawn, below or above a drawn node
    inside = np.zeros(tree.n_nodes, bool)
    for unit, weight in drawn.items():
        some = of_leaves.get(unit, tree.labels(unit))
        weight_of[some] = weight * of_label[some]
        inside[unit] = True
        node = unit
        while node >= 0 and not kept[node]:
            kept[node] = True
            node = int(tree.parents[node])
    for node in np.argsort(tree.levels, kind="stable").tolist():
        if node and inside[tree.parents[node]]:
            inside[node] = kept[node] = True
    original = np.flatnonzero(weight_of)
    new_id = {int(label): i for i, label in enumerate(original)}
    others: dict[int, Array] = {}
    nodes: list[Any] = [0]  # numbers of the tree, or lists of labels for the leaves that stand for others
    children: list[list[int]] = []
    leaves: list[bool] = []
    for node in nodes:
        is_leaf = isinstance(node, list) or tree.is_leaf(node)
        leaves.append(is_leaf)
        if isinstance(node, list):
            children.append(node)
        elif is_leaf:
            children.append([new_id[label] for label in of_leaves.get(node, tree.labels(node)).tolist()])
            if node in of_leaves:
                stand_in = len(original) + len(others)
                others[stand_in] = np.setdiff1d(tree.labels(node), of_leaves[node])
                children[-1].append(stand_in)
        else:
            below: list[Any] = [child for child in tree.children(node).tolist() if kept[child]]
            rest = [child for child in tree.children(node).tolist() if not kept[child]]
            if rest:
                stand_in = len(original) + len(others)
                others[stand_in] = np.concatenate([tree.labels(child) for child in rest])
                below.append([stand_in])
            children.append(list(range(len(nodes), len(nodes) + len(below))))
            nodes.extend(below)
    ptr = np.concatenate([[0], np.cumsum([len(c) for c in children])]).astype(np.int64)
    flat = np.concatenate([np.asarray(c, np.int32) for c in children])
    weights = np.append(weight_of[original], np.zeros(len(others)))
    arrays = (ptr, flat, np.array(leaves, dtype=np.uint8))
    return LabelSample(only_labels(labels, original, others), weights, original, arrays)


def only_labels(labels: Labels, original: Array, others: Mapping[int, Array] = NO_OTHERS) -> Labels:
    """Return label sets with new ids: places in `original`, or the labels that stand for others."""
    new_id = np.full(labels.n_labels, -1, np.int64)
    new_id[original] = np.arange(len(original))
    for stand_in, stood_for in others.items():
        new_id[stood_for] = stand_in
    n_new = len(original) + len(others)
    ids = new_id[labels.indices]
    indptr = np.concatenate([[0], np.cumsum(ids >= 0)])[labels.indptr]
    ids = ids[ids >= 0].astype(np.int32)
    kept = csr_array((np.ones(len(ids), bool), ids, indptr), (labels.n_rows, n_new))
    kept.sum_duplicates()  # one label may stand for several of a row; ids ascend
    return Labels(kept.indptr.astype(np.int64), kept.indices.astype(np.int32), np.arange(n_new))


def _number(sizes: Array, total: float) -> float:
    """Return how many places to draw so that their sizes add up to about a total."""
    chance = np.sqrt(np.maximum(sizes, 1))
    return float(total * chance.sum() / max(1.0, (chance * sizes).sum()))


def _draw(sizes: Array, n: float, seed: int) -> tuple[Array, Array]:
    """Draw about n places, ascending, each with its weight: 1 / its chance.

    The chance grows with the square root of the size: micro-F1 depends mostly on frequent labels, but most
    labels are rare. Systematic sampling in the order of size takes some of every size.
    """
    chance = np.sqrt(np.maximum(sizes, 1))
    n = min(n, float(len(sizes)))
    for _ in range(50):  # chances are at most 1; the others share the rest
        chance = np.minimum(1.0, chance * (n / chance.sum()))
        if chance.sum() > 0.999 * n:
            break
    order = np.argsort(-sizes, kind="stable")
    marks = np.cumsum(chance[order]) + uniform(seed)
    drawn = np.sort(order[(np.floor(marks) > np.floor(marks - chance[order])) | (chance[order] > 0.9999)])
    return drawn, 1.0 / chance[drawn]
