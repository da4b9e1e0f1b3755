"""The beam search of one tree in NumPy, which shows the nodes in the beam and not only the labels.

The core returns labels; these experiments need the nodes on the way. The search here follows the same
rules with the same stored weights, for a sample of rows. Tests compare it with the core.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from bonsai_xmc import Bonsai, LabelTree, _core

Array = npt.NDArray[Any]


def classifier_weights(model: Bonsai, tree: int) -> sp.csr_array:
    """Return the weights of a tree, a row for each of ``children`` (docs/internals/format.md)."""
    forest = _trees_of(model)
    a = forest.arrays()
    nodes = range(*a["tree_ptr"][tree : tree + 2])
    first, end = a["child_ptr"][[nodes.start, nodes.stop]]
    parts = [forest.weights(node) for node in nodes]
    rows = np.concatenate(
        [a["child_ptr"][node] - first + children for node, (children, _, _) in zip(nodes, parts, strict=True)]
    )
    features, values = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return sp.csr_array((values, (rows, features)), shape=(int(end - first), model.n_features_in_))


def _ranges(starts: Array, lengths: Array) -> Array:
    """Return starts[i], starts[i] + 1, … (lengths[i] of them), one after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


class Survival(NamedTuple):
    """The result of a search. `kept`: for each row and node, whether the node was in the beam."""

    kept: npt.NDArray[np.bool_]
    evaluated: float  # classifiers per row, mean


class TreeSearch:
    """Beam searches for some rows in one tree of a model, with any beam size.

    Parameters
    ----------
    model : fitted Bonsai
    X : sparse matrix (n, n_features)
        A sample: memory is O(n × nodes of the tree).
    tree : int
        Which tree of the model.
    """

    def __init__(self, model: Bonsai, X: Any, tree: int = 0) -> None:
        core = model.fitted_.linear.core
        if core.loss != "squared_hinge":
            raise ValueError(f"the model's loss is {core.loss!r}; only 'squared_hinge' is supported here")
        a = _trees_of(model).arrays()
        part = slice(*a["child_ptr"][a["tree_ptr"][tree : tree + 2]])
        rows = sp.csr_array(normalize(X) if core.normalize else X, dtype=np.float32)
        self.tree: LabelTree = model.trees_[tree]
        # The classifiers that lead to nodes; the root has none.
        owner = np.repeat(np.arange(self.tree.n_nodes), np.diff(self.tree.arrays["child_ptr"]))
        inner = np.flatnonzero(~self.tree.arrays["is_leaf"][owner])
        products = (rows @ classifier_weights(model, tree)[inner].T).toarray()
        self._margin = np.zeros((rows.shape[0], self.tree.n_nodes), np.float32)
        self._margin[:, self.tree.arrays["children"][inner]] = products + a["bias"][part][inner]

    def run(self, beam: int) -> Survival:
        """Return the nodes that a beam of this size keeps."""
        tree, n_rows = self.tree, len(self._margin)
        n_children = np.diff(tree.arrays["child_ptr"])
        score = np.full(self._margin.shape, -np.inf)
        score[:, 0] = 0
        kept = np.zeros(score.shape, bool)
        kept[:, 0] = True
        evaluated = np.full(n_rows, float(n_children[0]))
        for level in range(2, tree.depth + 1):
            nodes = np.flatnonzero(tree.levels == level)
            parents, margin = tree.parents[nodes], self._margin[:, nodes]
            reached = score[:, parents] - np.maximum(0, 1 - margin.astype(np.float64)) ** 2
            reached[~kept[:, parents]] = -np.inf
            order = np.lexsort((np.broadcast_to(nodes, margin.shape), -margin, -reached), axis=-1)[:, :beam]
            best = np.zeros(reached.shape, bool)
            np.put_along_axis(best, order, True, axis=1)
            best &= reached > -np.inf
            kept[:, nodes], score[:, nodes] = best, reached
            evaluated += best @ n_children[nodes]
        return Survival(kept, float(evaluated.mean()))

    def beam_for(self, evaluated: float, at_most: int = 1000) -> int:
        """Return the smallest beam that evaluates this many classifiers per row on average, or `at_most`."""
        low, high = 1, 1
        while high < at_most and self.run(high).evaluated < evaluated:
            low, high = high + 1, min(at_most, 2 * high)
        while low < high:
            middle = (low + high) // 2
            if self.run(middle).evaluated < evaluated:
                low = middle + 1
            else:
                high = middle
        return high


def path_survival(tree: LabelTree, kept: Array, Y: sp.csr_array) -> tuple[Array, Array]:
    """Return whether the label's path is still in the beam, by (row, true label) and level from 2 on.

    A path that ended in an early leaf keeps its state.

    Returns
    -------
    survived : bool array of shape (pairs, depth − 1)
    labels : int array of shape (pairs,)
    """
    leaf_of = np.full(Y.shape[1], -1)
    owner = np.repeat(np.arange(tree.n_nodes), np.diff(tree.arrays["child_ptr"]))
    entries = tree.arrays["is_leaf"][owner]
    leaf_of[tree.arrays["children"][entries]] = owner[entries]
    rows, labels = Y.nonzero()
    rows, labels = rows[leaf_of[labels] >= 0], labels[leaf_of[labels] >= 0]
    node = leaf_of[labels]
    survived = np.empty((len(rows), max(0, tree.depth - 1)), bool)
    for level in range(tree.depth, 1, -1):
        survived[:, level - 2] = kept[rows, node]
        node = np.where(tree.levels[node] == level, np.maximum(tree.parents[node], 0), node)
    return survived, labels


def early_leaves(tree: LabelTree, max_depth: int | None = None) -> Array:
    """Return the leaves above the last level: the deepest, or `max_depth` if oversized leaves exceed it."""
    deepest = tree.depth if max_depth is None else min(tree.depth, max_depth)
    return np.flatnonzero(tree.arrays["is_leaf"] & (tree.levels < deepest))


def early_labels(tree: LabelTree, max_depth: int | None = None) -> Array:
    """Return the labels of early leaves."""
    leaves = early_leaves(tree, max_depth)
    return (
        np.concatenate([tree.labels(int(leaf)) for leaf in leaves]) if len(leaves) else np.empty(0, np.int32)
    )


def without_early_leaves(model: Bonsai) -> Bonsai:
    """Return a copy that, as the original implementation, never predicts labels above the last level.

    Such a leaf still takes a place in the beam, but its labels get a score of 0.
    """
    a = _trees_of(model).arrays()
    bias = a["bias"].copy()
    for number, tree in enumerate(model.trees_):
        nodes = early_leaves(tree, model.strategy_.max_depth) + a["tree_ptr"][number]
        bias[_ranges(a["child_ptr"][nodes], np.diff(a["child_ptr"])[nodes])] = -1e6
    forest = _core.Forest({**a, "bias": bias}, model.n_features_in_, len(model.classes_))
    ranker = model.fitted_.linear
    core = _core.Model(forest, None, ranker.core.loss, ranker.core.normalize)
    return model._with(replace(model.fitted_, ranker=replace(ranker, core=core)))


def _trees_of(model: Bonsai) -> _core.Forest:
    trees = model.fitted_.linear.core.trees
    if trees is None:
        raise ValueError("the model has no trees")
    return trees


def training_work(tree: LabelTree, Y: sp.csr_array) -> dict[str, float]:
    """Count the (row, classifier) pairs of the training problems: in the root, other inner nodes, leaves."""
    n_children = np.diff(tree.arrays["child_ptr"])
    owner = np.repeat(np.arange(tree.n_nodes), n_children)
    entries = tree.arrays["is_leaf"][owner]
    labels, node = tree.arrays["children"][entries], owner[entries]
    ones = Y.astype(np.int32)
    work = {"root": float(ones.shape[0] * n_children[0]), "inner": 0.0, "leaves": 0.0}
    for level in range(tree.depth, 1, -1):
        there = tree.levels[node] == level
        below = sp.csr_array(
            (np.ones(there.sum(), np.int32), (labels[there], node[there])), (ones.shape[1], tree.n_nodes)
        )
        n_rows = np.bincount(sp.csr_array(ones @ below).nonzero()[1], minlength=tree.n_nodes)
        products = n_rows * n_children.astype(np.float64)
        leaf = tree.arrays["is_leaf"]
        work["leaves"] += float(products[leaf].sum())
        work["inner"] += float(products[~leaf].sum())
        node = np.where(there, np.maximum(tree.parents[node], 0), node)
    return work
