"""A trained model with other labels: some kept, dropped, replaced or appended, without training again.

The classifiers of labels that are kept are not quantised again: their margins keep the same bits.

Imports the core to assemble forests of stored classifiers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._model.fitted import FittedModel, LabelTable, class_array
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._model.linear import LinearRanker, core_model
from bonsai_xmc._model.row_trees import relabelled

_DROPPED = -1


@dataclass(frozen=True)
class NewClassifiers:
    """Classifiers to be added to a model, or to replace some of those that it has.

    `weights` and `bias` are on the scale of the model's own: the margin of a row x, divided by its norm if
    the model normalises rows, is ``weights @ x + bias``.
    """

    labels: Sequence[Any]  # names or integers as in `classes`, all different
    weights: Any  # sparse, (labels, features)
    bias: Array  # (labels,)
    counts: Array  # training rows of each label, at least 0
    made: _core.Forest | None = None  # the same, quantised: one-vs-rest classifiers in the order of `labels`

    @classmethod
    def trained(cls, labels: Sequence[Any], forest: _core.Forest, counts: Array) -> "NewClassifiers":
        """Return what was trained as one-vs-rest classifiers of these labels, in this order."""
        return cls(labels, weights_of_node(forest, 0), forest.arrays()["bias"], counts, forest)

    def forest(self, n_features: int) -> _core.Forest:
        """Return quantised one-vs-rest classifiers."""
        if self.made is not None:
            return self.made
        shape = (len(self.labels), n_features)
        if self.weights.shape != shape:
            raise ValueError(
                f"the weights have the shape {self.weights.shape}, but there are {shape[0]} new labels and "
                f"{n_features} features"
            )
        return one_leaf(self.weights, self.bias)


def weights_of_node(forest: _core.Forest, node: int) -> sp.csr_array:
    """Return the weights of the classifiers of a node, (children, features)."""
    children, features, values = forest.weights(node)
    n_children = int(np.diff(forest.arrays()["child_ptr"][node : node + 2])[0])
    return sp.csr_array((values, (children, features)), shape=(n_children, forest.n_features))


def one_leaf(
    weights: Any, bias: Array, labels: Array | None = None, n_labels: int | None = None
) -> _core.Forest:
    """Return a forest of one leaf with quantised classifiers of `labels`, or else of 0, 1, …."""
    csr = sp.csr_array(weights, dtype=np.float32)
    csr.sum_duplicates()
    n, n_features = csr.shape
    structure = leaf_of(n) if labels is None else leaf_of(n) | {"children": labels}
    packed = _core.pack_node(
        np.ascontiguousarray(bias, np.float32),
        csr.indptr.astype(np.int64),
        csr.indices.astype(np.uint32),
        csr.data,
        n_features,
    )
    block_ptr = np.array([0, len(packed["shift"])])
    return _core.Forest({**structure, "block_ptr": block_ptr, **packed}, n_features, n_labels or n)


def leaf_of(n: int) -> dict[str, Array]:
    """Return the structure of a tree that is one leaf of n labels."""
    return {
        "tree_ptr": np.array([0, 1]),
        "child_ptr": np.array([0, n]),
        "children": np.arange(n, dtype=np.int32),
        "is_leaf": np.ones(1, np.uint8),
    }


def edit_labels(
    fitted: FittedModel,
    *,
    keys: Sequence[Any] | None = None,
    new: NewClassifiers | None = None,
    threads: int = 1,
) -> FittedModel:
    """Return a model with other labels; `fitted` does not change, and shares what stays as it is.

    Parameters
    ----------
    fitted : FittedModel
    keys : sequence, optional
        The new key (name or integer) of each label of ``fitted.classes``; None drops the label. A key that
        several labels have makes one label of them: all of their classifiers stay, and the highest score
        counts. Default: the keys that they have.
    new : NewClassifiers, optional
        Classifiers for some of `keys`, which replace those that these labels have, and for other labels,
        which are appended. In label trees, a new label goes to the leaf that its weights lead to; trees over
        rows do not get it. Labels that are replaced keep their classifiers there, unless the model has
        nothing but trees.
    threads : int

    Returns
    -------
    FittedModel
        Names keep their order, new ones come last; integers ascend, as everywhere.
    """
    kept = list(fitted.classes if keys is None else keys)
    if len(kept) != fitted.n_labels:
        raise ValueError(f"there are {len(kept)} keys, but the model has {fitted.n_labels} labels")
    if not isinstance(fitted.ranker, LinearRanker):
        return _edit_ranker(fitted, kept, new)
    ranker = fitted.ranker
    plan = _plan(fitted, kept, new)
    forest = None if new is None else new.forest(fitted.n_features)
    trees, one_vs_rest, index = ranker.core.trees, ranker.core.one_vs_rest, ranker.core.index
    row_trees = ranker.core.row_trees
    if not plan.keeps_classifiers(ranker.n_slots):
        if trees is not None:
            trees = _edit_forest(trees, plan, new, forest, one_vs_rest is None, threads)
        if one_vs_rest is not None:
            one_vs_rest = _edit_forest(one_vs_rest, plan, new, forest, True, threads)
            if not len(one_vs_rest.arrays()["children"]):
                raise ValueError("none of the labels that would be left has a classifier")
            if index is not None:
                index = _core.build_label_index(one_vs_rest, threads)
        if row_trees is not None:
            trees_over_rows = relabelled(row_trees.arrays(), plan.slot_of_old)
            sizes = fitted.n_features, len(plan.label_of_slot)
            row_trees = _core.RowTrees(trees_over_rows, *sizes, row_trees.normalize)
    slots = None if len(plan.label_of_slot) == len(plan.labels) else plan.label_of_slot
    core = core_model(trees, one_vs_rest, index, ranker.strategy, plan.slot_counts, row_trees)
    edited = LinearRanker(core, ranker.strategy, plan.slot_counts, slots, ranker.probes)
    return replace(fitted, ranker=edited, labels=plan.labels, rows=plan.rows(fitted.rows))


def keep_labels(fitted: FittedModel, kept: Array, threads: int = 1) -> FittedModel:
    """Return the model of some labels; `kept` are booleans."""
    keys = [key if stays else None for key, stays in zip(fitted.classes.tolist(), kept, strict=True)]
    return edit_labels(fitted, keys=keys, threads=threads)


def _edit_ranker(fitted: FittedModel, keys: list[Any], new: NewClassifiers | None) -> FittedModel:
    """Drop and rename labels of any other ranker."""
    kept = [i for i, key in enumerate(keys) if key is not None]
    if new is not None or len({keys[i] for i in kept}) < len(kept):
        raise ValueError(
            "only linear classifiers can be merged, and labels added to them, but this model is of the kind "
            f"{fitted.ranker.kind!r}: drop, restrict and rename its labels, or train it again"
        )
    classes = _ordered([keys[i] for i in kept])
    place = {key: i for i, key in enumerate(classes)}
    order = np.empty(len(kept), np.int64)
    order[[place[keys[i]] for i in kept]] = kept
    ranker = fitted.ranker
    if not np.array_equal(order, np.arange(fitted.n_labels)):
        ranker = ranker.take(order)
    return replace(fitted, ranker=ranker, labels=fitted.labels.take(order, classes=class_array(classes)))


# --- which label goes where ---


@dataclass(frozen=True)
class _Plan:
    """Slots are the labels of the core: each has at most one classifier in a tree and in one-vs-rest."""

    labels: LabelTable
    label_of_slot: Array  # int32, of each new slot, not descending
    slot_counts: Array
    slot_of_old: Array  # int32: the new slot of each old one, or _DROPPED
    row_of_old: Array  # int64: the new classifier that replaces that of each old slot, or −1
    appended: Array  # int64: the new classifiers that are not replacements
    slot_of_appended: Array  # int32
    label_of_old: Array  # the new label of each old one, or −1

    def keeps_classifiers(self, n_old: int) -> bool:
        """Return whether nothing but names changes."""
        new = len(self.appended) or bool((self.row_of_old >= 0).any())
        return not new and np.array_equal(self.slot_of_old, np.arange(n_old))

    def not_among(self, old_slots: Array) -> tuple[Array, Array]:
        """Return the slots and rows of new classifiers that replace none of those in these old slots.

        Their labels are new, or had no classifier because they had no rows.
        """
        missing = np.setdiff1d(np.flatnonzero(self.row_of_old >= 0), old_slots)
        slots = np.concatenate([self.slot_of_old[missing], self.slot_of_appended])
        return slots, np.concatenate([self.row_of_old[missing], self.appended])

    def rows(self, kept: KeptRows | None) -> KeptRows | None:
        if kept is None or np.array_equal(self.label_of_old, np.arange(len(self.label_of_old))):
            return kept
        return kept.with_labels(self.label_of_old)


def _plan(fitted: FittedModel, keys: list[Any], new: NewClassifiers | None) -> _Plan:
    added = [] if new is None else list(new.labels)
    if len(set(added)) < len(added):
        raise ValueError("the new labels are not all different")
    ordered = _ordered([key for key in keys if key is not None] + added)
    label_of = {key: i for i, key in enumerate(ordered)}
    row_of = {key: i for i, key in enumerate(added)}

    n_slots, old_label = fitted.linear.n_slots, fitted.linear.label_of_slot
    row_of_old = np.full(n_slots, -1, np.int64)
    label_of_old = np.full(n_slots, _DROPPED, np.int64)
    replaced: set[Any] = set()
    for slot, label in enumerate(old_label.tolist()):
        key = keys[label]
        if key is None or key in replaced:
            continue
        label_of_old[slot] = label_of[key]
        if key in row_of:  # one classifier takes the place of all that the label has
            row_of_old[slot] = row_of[key]
            replaced.add(key)
    appended = np.array([row for key, row in row_of.items() if key not in replaced], np.int64)
    owner = np.concatenate([label_of_old, [label_of[added[row]] for row in appended]]).astype(np.int64)
    order_of_slots = np.argsort(owner, kind="stable")
    order_of_slots = order_of_slots[owner[order_of_slots] >= 0]
    place = np.full(len(owner), _DROPPED, np.int32)
    place[order_of_slots] = np.arange(len(order_of_slots), dtype=np.int32)

    counts = np.zeros(len(ordered), np.int64)
    first = np.full(len(ordered), -1, np.int64)
    for label, key in enumerate(keys):
        if key is not None:
            counts[label_of[key]] += fitted.label_counts[label]
            if first[label_of[key]] < 0 or key == fitted.classes[label]:
                first[label_of[key]] = label
    slot_counts = np.concatenate([fitted.linear.slot_counts, np.zeros(len(appended), np.int64)])
    if new is not None:
        own = np.asarray(new.counts, np.int64)
        counts[[label_of[key] for key in added]] = own
        slot_counts[:n_slots][row_of_old >= 0] = own[row_of_old[row_of_old >= 0]]
        slot_counts[n_slots:] = own[appended]
    counts = np.minimum(counts, max(fitted.n_rows or 1, int(counts.max(initial=0)) if new else 0))
    return _Plan(
        labels=fitted.labels.take(first, classes=class_array(ordered), counts=counts),
        label_of_slot=owner[order_of_slots].astype(np.int32),
        slot_counts=slot_counts[order_of_slots],
        slot_of_old=place[:n_slots],
        row_of_old=row_of_old,
        appended=appended,
        slot_of_appended=place[n_slots:],
        label_of_old=np.array([-1 if key is None else label_of[key] for key in keys], np.int64),
    )


def _ordered(keys: list[Any]) -> list[Any]:
    """Return each key once, names in their order, integers ascending."""
    order = dict.fromkeys(keys)
    if not order:
        raise ValueError("no label would be left")
    named = isinstance(next(iter(order)), str)
    for label in order:
        if isinstance(label, str) != named:
            raise ValueError(
                f"the label {label!r} is {'no' if named else 'a'} name, but others are "
                f"{'names' if named else 'integers'}; all are names, or all are integers"
            )
    return list(order) if named else sorted(order)


# --- forests ---


def _edit_forest(
    old: _core.Forest,
    plan: _Plan,
    new: NewClassifiers | None,
    new_forest: _core.Forest | None,
    replaces: bool,
    threads: int,
) -> _core.Forest:
    """Return trees without the labels that are dropped, and without nodes that have no label left.

    New labels go to their best leaves; one-vs-rest classifiers are a tree of one leaf. `replaces`:
    whether labels that have new classifiers lose their own.
    """
    a = old.arrays()
    node_of = np.repeat(np.arange(len(a["is_leaf"])), np.diff(a["child_ptr"]))
    in_leaf = a["is_leaf"][node_of] == 1
    entry_slot = np.where(in_leaf, a["children"], 0)
    kept = in_leaf & (plan.slot_of_old[entry_slot] >= 0)
    source = np.zeros(len(node_of), np.uint32)
    child = np.arange(len(node_of))
    if replaces:
        replaced = kept & (plan.row_of_old[entry_slot] >= 0)
        source[replaced], child[replaced] = 1, plan.row_of_old[entry_slot[replaced]]
    node, label = node_of, np.where(in_leaf, plan.slot_of_old[entry_slot], -1)
    if new is not None:
        slots, rows = plan.not_among(np.unique(a["children"][in_leaf]))
        vectors = sp.csr_array(new.weights, dtype=np.float32)[rows]
        leaves = np.concatenate([_best_leaves(old, tree, vectors) for tree in range(old.n_trees)])
        node = np.concatenate([node, leaves])
        label = np.concatenate([label, np.tile(slots, old.n_trees)])
        kept = np.concatenate([kept, np.ones(len(leaves), bool)])
        in_leaf = np.concatenate([in_leaf, np.ones(len(leaves), bool)])
        source = np.concatenate([source, np.full(len(leaves), 1, np.uint32)])
        child = np.concatenate([child, np.tile(rows, old.n_trees)])
    alive = _alive(a, node[kept])
    first_node = np.repeat(a["tree_ptr"][:-1], np.diff(a["tree_ptr"]))
    inner = np.flatnonzero(~in_leaf)
    target = first_node[node[inner]] + a["children"][inner]
    kept[inner] = alive[target] & alive[node[inner]]
    # Nodes keep their order; each tree's are numbered from 0.
    number = np.cumsum(alive) - 1
    tree_ptr = np.concatenate([[0], np.cumsum(alive)])[a["tree_ptr"]]
    label[inner] = number[target] - number[first_node[node[inner]]]
    entries = np.flatnonzero(kept)
    entries = entries[np.argsort(node[entries], kind="stable")]
    sizes = np.bincount(node[entries], minlength=len(alive))[alive]
    structure = {
        "tree_ptr": tree_ptr.astype(np.int64),
        "child_ptr": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "children": label[entries].astype(np.int32),
        "is_leaf": np.where(sizes > 0, a["is_leaf"][alive], 1).astype(np.uint8),
    }
    sources = [old] if new_forest is None else [old, new_forest]
    origins = (source[entries], child[entries].astype(np.int64))
    return _core.assemble_forest(structure, sources, *origins, len(plan.label_of_slot), threads)


def _alive(a: Mapping[str, Array], with_labels: Array) -> Array:
    """Return which nodes have a label below them; roots always stay."""
    n = len(a["is_leaf"])
    alive = np.zeros(n, bool)
    alive[with_labels] = True
    parent = np.full(n, -1)
    first_node = np.repeat(a["tree_ptr"][:-1], np.diff(a["tree_ptr"]))
    node_of = np.repeat(np.arange(n), np.diff(a["child_ptr"]))
    inner = a["is_leaf"][node_of] == 0
    parent[first_node[node_of[inner]] + a["children"][inner]] = node_of[inner]
    front = np.flatnonzero(alive)
    while len(front):
        front = np.unique(parent[front])
        front = front[(front >= 0) & ~alive[front]]
        alive[front] = True
    alive[a["tree_ptr"][:-1]] = True
    return alive


def _best_leaves(forest: _core.Forest, tree: int, vectors: sp.csr_array) -> Array:
    """Return the leaf that each vector reaches by the best child of each node."""
    a = forest.arrays()
    root = int(a["tree_ptr"][tree])
    at = np.full(vectors.shape[0], root)
    norms = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel())
    unit = sp.csr_array(vectors.multiply((1 / np.maximum(norms, 1e-30))[:, None]))
    open_nodes = np.unique(at[a["is_leaf"][at] == 0])
    while len(open_nodes):
        for node in open_nodes.tolist():
            here = np.flatnonzero(at == node)
            begin, end = a["child_ptr"][node], a["child_ptr"][node + 1]
            margins = (unit[here] @ weights_of_node(forest, node).T).toarray() + a["bias"][begin:end]
            at[here] = root + a["children"][begin:end][margins.argmax(axis=1)]
        open_nodes = np.unique(at[a["is_leaf"][at] == 0])
    return at
