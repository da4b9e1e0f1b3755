"""Trees over rows, whose leaves hold labels: of FastXML, of PfastreXML, and with linear classifiers.

Imports the core, which searches the trees.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import FLAG, Tensor
from bonsai_xmc._data.rows import Rows, select
from bonsai_xmc._model.ranker import Evidence, Search, Searching

_MOST_FEATURES = 20  # of an explanation

# The tensors of a model file. The nodes of a tree are stored by levels: the children of its k-th inner node,
# from 0, are its nodes 1 + 2k and 2 + 2k, for margins ≤ 0 and > 0. Inner nodes, and leaves, are numbered
# through all trees. The core checks the values.
TENSORS = {
    "tree_ptr": Tensor("i8", "T + 1"),  # where the nodes of each tree begin, and the number of nodes
    "is_leaf": Tensor("u1", "V", most=1),
    "weight_ptr": Tensor("i8", "I + 1"),  # where the weights of each inner node begin, and their number
    "features": Tensor("i4", "W"),  # of each weight, ascending in a node
    "weights": Tensor("f4", "W"),
    "biases": Tensor("f4", "I"),  # of each inner node
    "leaf_ptr": Tensor("i8", "leaves + 1"),  # where the labels of each leaf begin, and their number
    "leaf_labels": Tensor("i4", "entries"),  # ascending in a leaf
    "leaf_shares": Tensor(
        "f4", "entries"
    ),  # of the leaf's rows that have the label, times its weight; in (0, 1]
    "leaf_rows": Tensor("i4", "leaves"),  # training rows of each leaf
}


def copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays of a model file, with copies of ids and pointers.

    A mapped file may change after they were checked.
    """
    return {name: np.array(part) if part.dtype.kind == "i" else part for name, part in arrays.items()}


def relabelled(trees: Mapping[str, Array], number: Array) -> dict[str, Array]:
    """Return trees whose labels have these numbers; leaves lose labels whose number is −1."""
    ptr, new = trees["leaf_ptr"], number[trees["leaf_labels"]]
    owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    kept = np.flatnonzero(new >= 0)
    kept = kept[np.lexsort((new[kept], owner[kept]))]
    sizes = np.bincount(owner[kept], minlength=len(ptr) - 1)
    return {
        **trees,
        "leaf_ptr": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "leaf_labels": new[kept].astype(np.int32),
        "leaf_shares": trees["leaf_shares"][kept],
    }


class TreeRanker(Searching):
    """Trees over rows, with labels in their leaves."""

    kind: ClassVar[str]

    def __init__(
        self, trees: Mapping[str, Array], n_features: int, n_labels: int, *, normalize: bool, **tail: Any
    ) -> None:
        """Check all arrays; `tail` are further arguments of the core's model."""
        self.trees = dict(trees)
        self.n_features, self.n_labels, self.normalize = n_features, n_labels, normalize
        self.core = _core.RowTrees(self.trees, n_features, n_labels, normalize, **tail)

    @property
    def n_trees(self) -> int:
        return len(self.trees["tree_ptr"]) - 1

    def _top_k(self, rows: Rows, k: int, search: Search) -> tuple[Array, Array]:
        """See `Ranker`. Labels that no leaf of a row holds are not found."""
        options: Any = {"threads": search.threads, "progress": search.progress}
        mask = None if search.allowed is None else np.ascontiguousarray(search.allowed, np.uint8)
        return self.core.top_k(rows.to_core(), k, allowed=mask, **options)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`."""
        return {"normalize": self.normalize}, dict(self.trees)

    FACTS: ClassVar[Any] = {"normalize": FLAG}
    TENSORS: ClassVar[Mapping[str, Tensor]] = TENSORS

    @classmethod
    def _from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        arrays = copied(arrays)
        trees = {name: arrays[name] for name in TENSORS}
        tail = cls._tail_of(facts, arrays, n_features, n_labels)
        return cls(trees, n_features, n_labels, normalize=facts["normalize"], **tail)

    @classmethod
    def _tail_of(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> dict[str, Any]:
        """Return the further arguments of the constructor."""
        return {}

    def take(self, labels: Array) -> Self:
        """See `Ranker`."""
        number = np.full(self.n_labels, -1, np.int32)
        number[labels] = np.arange(len(labels), dtype=np.int32)
        trees, tail = relabelled(self.trees, number), self._tail_for(labels)
        return type(self)(trees, self.n_features, len(labels), normalize=self.normalize, **tail)

    def _tail_for(self, labels: Array) -> dict[str, Any]:
        """Return the further arguments of the constructor, for these labels."""
        return {}

    def leaf_shares(self, row: Rows, label: int) -> tuple[Array, Array]:
        """Return the leaf that a row reaches in each tree, and the share of the label there."""
        leaves = self.core.leaves(row.to_core())[0]
        ptr, entries = select(self.trees["leaf_ptr"], leaves)
        shares = np.zeros(len(leaves), np.float32)
        here = np.flatnonzero(self.trees["leaf_labels"][entries] == label)
        shares[np.searchsorted(ptr, here, side="right") - 1] = self.trees["leaf_shares"][entries[here]]
        return leaves, shares

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """See `Ranker`. Leaves and their shares of the label, and what features led to those that hold it."""
        leaves, shares = self.leaf_shares(row, label)
        order = np.argsort(-shares, kind="stable")
        sizes = self.trees["leaf_rows"][leaves]
        reached = tuple((int(t) + 1, int(sizes[t]), float(shares[t])) for t in order)
        pulls = self._pulls(row, leaves, np.flatnonzero(shares))
        strongest = sorted(pulls.items(), key=lambda item: (-item[1][1], item[0]))[:_MOST_FEATURES]
        return (
            Evidence(
                f"leaves of {self.n_trees} trees; the mean share is {float(shares.mean()):.4g}",
                ("tree", "training rows", "share of the label"),
                reached,
            ),
            Evidence(
                "features that led to leaves with the label: nodes where they count, and the sum of "
                "|weight × value| there",
                ("feature", "nodes", "sum"),
                tuple((feature, nodes, total) for feature, (nodes, total) in strongest),
            ),
        )

    def _pulls(self, row: Rows, leaves: Array, trees: Array) -> dict[int, tuple[int, float]]:
        """Return, by feature, the nodes on a row's paths that weigh it, and the sum of |weight × value|."""
        dense = row.to_dense().values[0].astype(np.float64)
        norm = np.linalg.norm(dense)
        x = dense / norm if self.normalize and norm > 0 else dense
        is_leaf = self.trees["is_leaf"].astype(bool)
        inner = np.cumsum(~is_leaf) - 1
        found: dict[int, tuple[int, float]] = {}
        for tree in trees:
            first = int(self.trees["tree_ptr"][tree])
            before = int(inner[first]) + int(is_leaf[first])  # inner nodes of earlier trees
            node = first
            while not is_leaf[node]:
                number = int(inner[node])
                part = slice(*self.trees["weight_ptr"][number : number + 2])
                features = self.trees["features"][part]
                products = self.trees["weights"][part] * x[features]
                for at in np.flatnonzero(products):
                    nodes, total = found.get(int(features[at]), (0, 0.0))
                    found[int(features[at])] = (nodes + 1, total + abs(float(products[at])))
                # The core sums in this order.
                margin = np.cumsum(np.concatenate([self.trees["biases"][[number]], products]))[-1]
                node = first + 1 + 2 * (number - before) + int(margin > 0)
        return found

    def __reduce__(self) -> Any:
        facts, arrays = self.to_arrays()
        return self.from_arrays, (facts, arrays, self.n_features, self.n_labels)

    def __deepcopy__(self, memo: Any) -> Self:
        return self
