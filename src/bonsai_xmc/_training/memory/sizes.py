"""Numbers that the memory of training follows from: counted, or measured on a sample of the labels."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bonsai_xmc import _core
from bonsai_xmc._data.rows import Rows, SparseRows, select
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._training.samples import only_labels
from bonsai_xmc._training.train import Problem, train_labels
from bonsai_xmc._training.work import Work

Array = npt.NDArray[Any]

_SAMPLE = 256  # labels whose vectors are counted
_FREQUENT = 64  # most frequent labels, which are counted as well
_LEAVES = 8  # groups of similar labels that are trained
_SAMPLED_LEAF = 64  # labels of a group, at most
_SAMPLED_ROWS = 20_000  # rows of a group, at most
_ONE_VS_REST = 128  # labels that are trained against all rows


@dataclass(frozen=True)
class Sizes:
    """Numbers of things; bytes where the name says so."""

    n_rows: int
    n_features: int  # no more than sparse rows have entries: arrays of training are not larger
    n_used_features: int  # that are not 0 everywhere
    n_singletons: int  # features of a single row
    n_entries: int
    dense: bool
    n_labels: int
    n_present: int  # labels that have rows
    n_pairs: int
    weighted: bool
    input_entries: float  # of all label vectors
    output_entries: float
    tree_bytes: float = 0.0  # packed classifiers of all trees
    one_vs_rest_bytes: float = 0.0
    index_bytes: float = 0.0
    # Features of about the same frequency: how many there are, and their share of the entries of X.
    frequencies: tuple[tuple[int, float], ...] = ()

    def distinct_features(self, n_entries: float) -> float:
        """Features that so many entries have, if they are drawn from those of X."""
        if not self.frequencies:
            return min(float(self.n_features), n_entries)
        return sum(n * -math.expm1(-share / n * n_entries) for n, share in self.frequencies)

    @property
    def model_bytes(self) -> float:
        return self.tree_bytes + self.one_vs_rest_bytes + self.index_bytes


def count(problem: Problem) -> Sizes:
    """What can be counted, with the label vectors counted on a sample."""
    rows, labels = problem.rows, problem.labels
    frequency = _frequency(rows)
    ptr, ids = labels.indptr, labels.indices
    input_entries = output_entries = 0.0
    for its_rows, weight in _sampled_labels(problem):
        output_entries += weight * (len(np.unique(ids[select(ptr, its_rows)[1]])) - 1)
        input_entries += weight * _vector_entries(problem, its_rows)
    return replace(
        count_at_most(problem),
        n_used_features=int(np.count_nonzero(frequency)),
        n_singletons=0 if rows.dense else int(np.count_nonzero(frequency == 1)),
        frequencies=_frequencies(frequency),
        input_entries=input_entries,
        output_entries=output_entries,
    )


def _frequency(rows: Rows) -> Array:
    """Of each feature, or of each that occurs if there are more features than entries."""
    if not isinstance(rows, SparseRows):
        return np.full(rows.n_features, rows.n_rows)
    indices = rows.indices
    if rows.n_features > len(indices):
        return np.unique(indices, return_counts=True)[1]
    return np.bincount(indices, minlength=rows.n_features)


def _frequencies(frequency: Array) -> tuple[tuple[int, float], ...]:
    """In steps of a quarter of an octave."""
    used = frequency[frequency > 0]
    step = np.round(4 * np.log2(used)).astype(np.int64)
    counts, entries = np.bincount(step), np.bincount(step, used) / max(1, used.sum())
    return tuple(zip(counts[counts > 0].tolist(), entries[counts > 0].tolist(), strict=True))


def count_at_most(problem: Problem) -> Sizes:
    """Upper bounds of what `count` finds, in a moment: no two rows of a label have a feature in common."""
    rows, labels = problem.rows, problem.labels
    of_row = np.diff(labels.indptr).astype(np.float64)
    entries: Any = rows.n_features
    n_features = rows.n_features
    if isinstance(rows, SparseRows):
        entries = np.diff(rows.indptr)
        n_features = min(n_features, max(1, len(rows.indices)))
    return Sizes(
        n_rows=rows.n_rows,
        n_features=n_features,
        n_used_features=n_features,
        n_singletons=0,
        n_entries=rows.n_entries,
        dense=rows.dense,
        n_labels=labels.n_labels,
        n_present=problem.facts.n_labels,
        n_pairs=len(labels.indices),
        weighted=problem.weights is not None,
        input_entries=min(float((of_row * entries).sum()), float(problem.facts.n_labels) * n_features),
        output_entries=float((of_row * of_row).sum()),
    )


def measure(problem: Problem, sizes: Sizes, strategy: Strategy, work: Work) -> Sizes:
    """With the sizes of the packed classifiers, from those of some labels."""
    trees = one_vs_rest = index = 0.0
    if strategy.n_trees > 0:
        if strategy.classifiers != "one_vs_rest":
            trees += sizes.input_entries * _leaf_bytes(problem, strategy, work)
        trees += _inner_bytes(sizes, strategy)
        trees *= strategy.n_trees
    if strategy.classifiers != "leaf":
        one_vs_rest = sizes.input_entries * _one_vs_rest_bytes(problem, strategy, work)
    if strategy.search == "index":
        # Three quarters of the squared norm are in about four of ten weights; a posting has four bytes, a
        # packed weight a little more than two.
        index = 0.4 * 4 * one_vs_rest / 2.2 + 8 * sizes.n_features
    return replace(sizes, tree_bytes=trees, one_vs_rest_bytes=one_vs_rest, index_bytes=index)


def at_most(sizes: Sizes, strategy: Strategy) -> Sizes:
    """With large sizes of the packed classifiers: four weights for each entry of a label vector."""
    of_trees, of_labels = strategy.n_trees > 0, strategy.classifiers != "leaf"
    bytes_ = 4 * 2.2 * sizes.input_entries
    return replace(
        sizes,
        tree_bytes=bytes_ * strategy.n_trees * of_trees,
        one_vs_rest_bytes=bytes_ * of_labels,
        index_bytes=bytes_ * (strategy.search == "index"),
    )


def leaf_size(n_labels: int, strategy: Strategy) -> float:
    """Labels of a leaf, if clusters were equal."""
    size, depth = float(max(1, n_labels)), 1
    while size > strategy.max_leaf_size and depth < (strategy.max_depth or 64):
        size /= strategy.branching_factor
        depth += 1
    return max(2.0, size)


def levels(n_labels: int, strategy: Strategy) -> list[float]:
    """Nodes of each level, if clusters were equal; the last one has the leaves."""
    nodes, size = [1.0], float(max(1, n_labels))
    while size > strategy.max_leaf_size and len(nodes) < (strategy.max_depth or 64):
        size /= strategy.branching_factor
        nodes.append(min(nodes[-1] * strategy.branching_factor, n_labels / 2))
    return nodes


def n_leaves(n_labels: int, strategy: Strategy) -> float:
    """Leaves of a tree. Where clusters differ in size, large ones are split once more, into small ones."""
    nodes = levels(n_labels, strategy)
    if strategy.balanced or len(nodes) == (strategy.max_depth or 64):
        return nodes[-1]
    return max(nodes[-1], n_labels / max(2.0, strategy.max_leaf_size / 12))


def _sampled_labels(problem: Problem) -> list[tuple[Array, float]]:
    """The rows of some labels, and how many labels each stands for: one for the most frequent ones."""
    by_label = _by_label(problem)
    counts = np.diff(by_label.indptr)
    present = np.flatnonzero(counts)
    rare, frequent = np.split(present[np.argsort(counts[present], kind="stable")], [-_FREQUENT])
    places = ((np.arange(_SAMPLE) + 0.5) / _SAMPLE * len(rare)).astype(np.int64)
    some = rare[np.unique(places)] if len(rare) else rare
    weights = [len(rare) / max(1, len(some))] * len(some) + [1.0] * len(frequent)
    return [(_rows_of(by_label, label), w) for label, w in zip([*some, *frequent], weights, strict=True)]


def _vector_entries(problem: Problem, its_rows: Array) -> int:
    """Features that any of these rows has."""
    rows = problem.rows
    if not isinstance(rows, SparseRows):
        return rows.n_features
    return len(np.unique(rows.indices[select(rows.indptr, its_rows)[1]]))


def _by_label(problem: Problem) -> sp.csc_array:
    labels = problem.labels
    ones = np.ones(len(labels.indices), np.int8)
    return sp.csr_array((ones, labels.indices, labels.indptr), shape=(labels.n_rows, labels.n_labels)).tocsc()


def _rows_of(by_label: sp.csc_array, label: int) -> Array:
    return by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]].astype(np.int64)


def _spread(problem: Problem, n: int) -> Array:
    """Labels with rows: n of them in equal distances in the order of their frequencies."""
    counts = problem.labels.counts
    present = np.flatnonzero(counts)
    order = present[np.argsort(counts[present], kind="stable")]
    return order[np.unique(((np.arange(n) + 0.5) / n * len(order)).astype(np.int64))]


def _roughly(strategy: Strategy) -> Strategy:
    """Weights are counted, not used: whatever tol and max_iter are, a sample is trained in a moment."""
    return replace(strategy, tol=max(strategy.tol, 0.1), max_iter=min(strategy.max_iter, 20))


def _leaf_bytes(problem: Problem, strategy: Strategy, work: Work) -> float:
    """Bytes of leaf classifiers for each entry of a label vector, from groups of similar labels."""
    size = int(min(_SAMPLED_LEAF, leaf_size(problem.facts.n_labels, strategy), problem.facts.n_labels))
    by_label = _by_label(problem)
    if strategy.max_depth == 1 or problem.facts.n_labels <= strategy.max_leaf_size:
        return _bytes_per_entry(problem, by_label, strategy, _spread(problem, _SAMPLED_LEAF), True, work)
    n_bytes, n_entries = 0, 0
    for label in _spread(problem, _LEAVES):
        leaf = _similar_labels(problem, _rows_of(by_label, label), label, size)
        its_rows = [_rows_of(by_label, one) for one in leaf]
        rows = np.unique(np.concatenate(its_rows))[:_SAMPLED_ROWS]
        some = replace(problem, labels=only_labels(problem.labels, leaf)).take(rows)
        forest = train_labels(some, _roughly(strategy), np.arange(len(leaf)), at_nodes=True, work=work)
        n_bytes += _packed_bytes(forest)
        n_entries += sum(_vector_entries(problem, of_label) for of_label in its_rows)
    return n_bytes / max(1, n_entries)


def _bytes_per_entry(
    problem: Problem, by_label: sp.csc_array, strategy: Strategy, some: Array, at_nodes: bool, work: Work
) -> float:
    """Of classifiers of these labels against all rows."""
    forest = train_labels(problem, _roughly(strategy), np.sort(some), at_nodes=at_nodes, work=work)
    entries = sum(_vector_entries(problem, _rows_of(by_label, one)) for one in some)
    return _packed_bytes(forest) / max(1, entries)


def _similar_labels(problem: Problem, its_rows: Array, label: int, n: int) -> Array:
    """A label and n − 1 others, of the rows that are most similar to its own."""
    rows, of_label = problem.rows, problem.rows.take(its_rows)
    if isinstance(rows, SparseRows) and isinstance(of_label, SparseRows):
        indptr, indices, values, width = rows
        own = of_label.indices
        if width > len(indices):  # features that occur, numbered through
            columns, indices = np.unique(indices, return_inverse=True)
            own, width = np.searchsorted(columns, own), max(1, len(columns))
        vector = np.bincount(own, of_label.values, width).astype(np.float32)
        if len(indices) <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # scipy would widen a copy of the indices to its type
        X: Any = sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1, width))
    else:
        vector, X = of_label.values.sum(axis=0), rows.values
    order = np.argsort(-(X @ vector), kind="stable")[: 16 * n]
    labels = problem.labels.take(order).indices
    _, first = np.unique(labels, return_index=True)
    near = [one for one in labels[np.sort(first)].tolist() if one != label][: n - 1]
    return np.sort(np.array([label, *near]))


def _one_vs_rest_bytes(problem: Problem, strategy: Strategy, work: Work) -> float:
    some = _spread(problem, _ONE_VS_REST)
    return _bytes_per_entry(problem, _by_label(problem), strategy, some, False, work)


def _packed_bytes(forest: _core.Forest) -> int:
    arrays = forest.arrays()
    return int(arrays["buckets"].nbytes + arrays["records"].nbytes + 8 * len(arrays["scale"]))


def _inner_bytes(sizes: Sizes, strategy: Strategy) -> float:
    """Classifiers of a tree's inner nodes: of few, large clusters."""
    nodes = levels(sizes.n_present, strategy)
    per_label = sizes.input_entries / max(1, sizes.n_present)
    kept = math.exp(-strategy.node_prune * math.sqrt(sizes.n_entries / max(1, sizes.n_rows)))
    total = 0.0
    for n_nodes in nodes[1:]:
        cluster = sizes.n_present / n_nodes * per_label
        total += n_nodes * min(float(sizes.n_used_features), cluster) * kept * 2.2
    return total
