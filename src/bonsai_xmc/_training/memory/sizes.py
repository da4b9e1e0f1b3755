"""What training will need, in bytes: rows and labels, the model, and what the core's stages state."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._model.thresholds import PER_LABEL
from bonsai_xmc._training import splits
from bonsai_xmc._training.samples import only_labels
from bonsai_xmc._training.train import (
    Problem,
    core_dataset,
    label_params,
    node_params,
    train_labels,
    tree_params,
)
from bonsai_xmc._training.work import Work

_LEAVES = 8  # groups of similar labels that are trained
_SAMPLED_LEAF = 64  # labels of a group, at most
_SAMPLED_ROWS = 20_000  # rows of a group, at most
_ONE_VS_REST = 128  # labels that are trained against all rows
_PACKED_WEIGHT = 2.2  # bytes
_ROW_OF_TREE = 40.0  # bytes of a tree over rows for each row
_ENTRY_OF_COLUMNS = 10.0  # bytes of the columns of a tree over rows, for each entry


@dataclass(frozen=True)
class Sizes:
    """A problem by its numbers, and the bytes of its packed classifiers."""

    counts: _core.Sizes
    tree_bytes: float = 0.0  # of all trees
    one_vs_rest_bytes: float = 0.0
    index_bytes: float = 0.0
    row_tree_bytes: float = 0.0
    name_bytes: float = 0.0  # of the vectors of names, as entries

    @property
    def model_bytes(self) -> float:
        return self.tree_bytes + self.one_vs_rest_bytes + self.index_bytes + self.row_tree_bytes

    @property
    def rows_and_labels(self) -> float:
        """X and Y as training uses them, with weights, classes and counts."""
        n = self.counts
        rows = 4.0 * n.n_rows * n.n_features if n.dense else n.sparse_bytes
        return rows + 8 * n.n_rows + 4 * n.n_pairs + 16 * n.n_labels

    def part(self, rows: float, labels: float, pairs: float) -> "Sizes":
        """Return the sizes of a part: entries of label vectors grow a little slower than pairs."""
        whole, part = self.counts, _core.Sizes(self.counts)
        of_vectors = (pairs / max(1, whole.n_pairs)) ** 0.9
        part.n_entries *= rows / max(1, whole.n_rows)
        part.n_rows, part.n_present, part.n_pairs = rows, max(1, labels), pairs
        part.input_entries *= of_vectors
        part.output_entries *= of_vectors
        part.kept_input *= of_vectors
        part.kept_output *= of_vectors
        part.n_products *= pairs / max(1, whole.n_pairs)
        return Sizes(
            part,
            of_vectors * self.tree_bytes,
            of_vectors * self.one_vs_rest_bytes,
            of_vectors * self.index_bytes,
            rows / max(1, whole.n_rows) * self.row_tree_bytes,
            self.name_bytes,
        )


def count(problem: Problem, strategy: Strategy) -> Sizes:
    """Count; packed classifiers have at most four weights for each entry of a label vector."""
    counts = core_dataset(problem, strategy).sizes()
    most = 4 * _PACKED_WEIGHT * counts.input_entries
    by_labels, by_index = strategy.classifiers != "leaf", strategy.search == "index"
    of_model = most * strategy.n_trees, most * by_labels, most * by_index
    return Sizes(counts, *of_model, _row_tree_bytes(counts, strategy), _name_bytes(problem))


def measure(problem: Problem, strategy: Strategy, work: Work) -> Sizes:
    """Count, and measure the sizes of packed classifiers on some labels, which are trained for it."""
    dataset = core_dataset(problem, strategy)
    counts = dataset.sizes()
    trees = one_vs_rest = index = 0.0
    # Weights are counted, not used: rough values of tol and max_iter are enough.
    roughly = replace(strategy, tol=max(strategy.tol, 0.1), max_iter=min(strategy.max_iter, 20))
    if strategy.n_trees > 0:
        leaves = counts.input_entries * _leaf_bytes(problem, dataset, roughly, work)
        trees = strategy.n_trees * (leaves + _inner_bytes(counts, strategy))
    if strategy.classifiers != "leaf":
        some = _spread(problem, _ONE_VS_REST)
        one_vs_rest = counts.input_entries * _bytes_per_entry(problem, dataset, roughly, some, False, work)
    if strategy.search == "index":
        # Three quarters of the squared norm are in about four of ten weights; a posting has four bytes.
        index = 0.4 * 4 * one_vs_rest / _PACKED_WEIGHT + 8 * counts.n_features
    of_rows = _row_tree_bytes(counts, strategy)
    return Sizes(counts, trees, one_vs_rest, index, of_rows, _name_bytes(problem))


def _name_bytes(problem: Problem) -> float:
    given = problem.name_vectors
    return 0.0 if given is None else 8.0 * (given.nnz if hasattr(given, "nnz") else given.size)


def _row_tree_bytes(counts: _core.Sizes, strategy: Strategy) -> float:
    return _ROW_OF_TREE * counts.n_rows * strategy.n_row_trees


def _spread(problem: Problem, n: int) -> Array:
    """Return n labels with rows, in equal distances in the order of their frequencies."""
    counts = problem.labels.counts
    present = np.flatnonzero(counts)
    order = present[np.argsort(counts[present], kind="stable")]
    return order[np.unique(((np.arange(n) + 0.5) / n * len(order)).astype(np.int64))]


def _leaf_bytes(problem: Problem, dataset: _core.Dataset, strategy: Strategy, work: Work) -> float:
    """Return bytes of leaf classifiers for each entry of a label vector, from groups of similar labels."""
    nodes, leaf_size, _ = _core.expected_tree(problem.facts.n_labels, tree_params(strategy))
    if len(nodes) == 1:
        some = _spread(problem, _SAMPLED_LEAF)
        return _bytes_per_entry(problem, dataset, strategy, some, True, work)
    size = int(min(_SAMPLED_LEAF, leaf_size, problem.facts.n_labels))
    n_bytes, n_entries = 0, 0.0
    for label in _spread(problem, _LEAVES).tolist():
        labels = problem.labels.take(dataset.similar_rows(label, 16 * size).astype(np.int64)).indices
        _, first = np.unique(labels, return_index=True)
        near = [one for one in labels[np.sort(first)].tolist() if one != label][: size - 1]
        leaf = np.sort(np.array([label, *near]))
        rows = np.unique(np.concatenate([dataset.rows_of(one) for one in leaf.tolist()]))[:_SAMPLED_ROWS]
        group = replace(problem, labels=only_labels(problem.labels, leaf)).take(rows)
        n_bytes += _packed(train_labels(group, strategy, np.arange(len(leaf)), at_nodes=True, work=work))
        n_entries += sum(map(dataset.vector_entries, leaf.tolist()))
    return n_bytes / max(1.0, n_entries)


def _bytes_per_entry(
    problem: Problem, dataset: _core.Dataset, strategy: Strategy, some: Array, at_nodes: bool, work: Work
) -> float:
    """Return the bytes of classifiers of these labels against all rows, for each entry of a label vector."""
    forest = train_labels(problem, strategy, np.sort(some), at_nodes=at_nodes, work=work)
    return _packed(forest) / max(1.0, sum(map(dataset.vector_entries, some.tolist())))


def _packed(forest: _core.Forest) -> int:
    arrays = forest.arrays()
    return int(arrays["buckets"].nbytes + arrays["records"].nbytes + 8 * len(arrays["scale"]))


def _inner_bytes(counts: _core.Sizes, strategy: Strategy) -> float:
    """Return the bytes of a tree's inner classifiers: of few, large clusters."""
    nodes, _, _ = _core.expected_tree(counts.n_present, tree_params(strategy))
    kept = math.exp(-strategy.node_prune * math.sqrt(counts.n_entries / max(1, counts.n_rows)))
    clusters = np.minimum(counts.n_used_features, counts.input_entries / nodes[1:])
    return float((nodes[1:] * clusters).sum() * kept * _PACKED_WEIGHT)


def by_phase(
    sizes: Sizes,
    strategy: Strategy,
    threads: int,
    tunes: bool,
    threshold: Any,
    prunes: bool = False,
    batch_rows: int | None = None,
    stored: bool = False,
) -> dict[str, float]:
    """Return the peak of each phase, X and Y as `fit` holds them included.

    `tunes`, `prunes`: whether the model, or `prune`, is chosen on held-out rows.
    `threshold` is the parameter: a number, or what is chosen on held-out rows.
    `batch_rows`: held-out rows that are predicted at once, at most.
    `stored`: whether finished units of work are in a checkpoint.
    """
    phases = {"reading": 0.0}
    if tunes:
        phases["held-out rows"] = _held_out_rows(sizes, strategy, threads, batch_rows)
    phases |= _training(sizes, strategy, threads, stored)
    if prunes:
        sampled = _threshold_rows(sizes, strategy, threads, batch_rows, False)
        phases["pruning"] = sampled - sizes.model_bytes
    if isinstance(threshold, str):
        phases["threshold"] = _threshold_rows(sizes, strategy, threads, batch_rows, threshold == PER_LABEL)
    return {name: sizes.rows_and_labels + more for name, more in phases.items()}


def _training(sizes: Sizes, strategy: Strategy, threads: int, stored: bool = False) -> dict[str, float]:
    """Return the phases of one training, as the stages state them."""
    counts, tree, phases = sizes.counts, tree_params(strategy), {}
    n_trees = max(1, strategy.n_trees)
    clusters = (strategy.n_trees > 0 or strategy.search == "index") and not strategy.given_tree
    if clusters and len(_core.expected_tree(counts.n_present, tree)[0]) > 1:
        kind, _, joined = strategy.representation.partition("+")
        kind = "custom" if kind == "text" else kind
        made = _core.LabelVectorStage.bytes(counts, kind, threads)
        # Joined vectors are in memory together with those that they are made from.
        phases["label vectors"] = (2 * made + 3 * sizes.name_bytes) if joined else made + sizes.name_bytes
        splitting = _core.SplitStage.bytes(counts, kind, tree, n_trees, threads)
        # The core sorts these as a copy.
        phases["trees"] = splitting + (made + 3 * sizes.name_bytes if joined else sizes.name_bytes)
    if strategy.n_trees > 0:
        phases["classifiers"] = _core.ClassifierStage.bytes_of_trees(
            counts, tree, n_trees, node_params(strategy), threads, sizes.tree_bytes, stored
        )
    if strategy.classifiers != "leaf":
        phases["one-vs-rest"] = sizes.tree_bytes + _core.ClassifierStage.bytes_of_labels(
            counts, label_params(strategy), threads, sizes.one_vs_rest_bytes
        )
    if strategy.search == "index":
        phases["index"] = sizes.model_bytes + 8 * counts.n_features + counts.n_present
    if strategy.n_row_trees > 0:  # on rows that are not normalised: a second data set
        of_nodes = (threads + 1) * _ENTRY_OF_COLUMNS * counts.n_entries  # those of all rows are shared
        phases["row trees"] = sizes.model_bytes + counts.dataset_bytes + of_nodes
    return {name: counts.dataset_bytes + more for name, more in phases.items()}


def _held_out_rows(sizes: Sizes, strategy: Strategy, threads: int, batch_rows: int | None) -> float:
    """Return the bytes of a training on a part of the rows, and of what it predicts for others."""
    n = int(sizes.counts.n_rows)
    n_part, n_held_out = splits.part_sizes(n)
    pairs = n_part / max(1, n) * sizes.counts.n_pairs
    part = sizes.part(n_part, min(sizes.counts.n_present, pairs), pairs)
    rows = 1.5 * part.rows_and_labels + n_held_out / max(1, n) * sizes.rows_and_labels
    found = 3.0 * n_held_out * splits.CANDIDATES * 8
    choices = min(30.0 * strategy.branching_factor, max(1, strategy.n_trees) * part.counts.n_present)
    visits = 30.0, 30.0, choices
    predicting = _prediction(part, n_held_out, visits, batch_rows)
    comparing = n_held_out * 2 * splits.CANDIDATES * 8 * 8.0
    return rows + found + max(*_training(part, strategy, threads).values(), predicting, comparing)


def _threshold_rows(
    sizes: Sizes, strategy: Strategy, threads: int, batch_rows: int | None, per_label: bool
) -> float:
    """Return the bytes of some labels, or all, trained again on most rows and predicted for others."""
    n, n_present, n_pairs = sizes.counts.n_rows, sizes.counts.n_present, sizes.counts.n_pairs
    of_trees = strategy.classifiers != "one_vs_rest"
    held_out, share = min(splits.HELD_OUT_SHARE * n, splits.most_held_out(n_present, n)), 1.0
    if per_label:
        part = sizes.part(n - held_out, n_present, (1 - held_out / n) * n_pairs)
    elif n_present * sizes.counts.n_entries <= splits.SMALL:
        part, held_out = sizes.part(0.75 * n, n_present, 0.75 * n_pairs), n / 4
    else:
        share = splits.subtrees(n_present, n_pairs).share if of_trees else splits.LABEL_SHARE
        part = sizes.part(n - held_out, share * n_present, share * n_pairs)
        part = replace(part, tree_bytes=part.tree_bytes / max(1, strategy.n_trees))
    again = replace(strategy, n_trees=min(1, strategy.n_trees), given_tree=True, search="exact")
    phases = _training(part, strategy if per_label else again, threads).values()
    k, n_nodes = strategy.branching_factor, 0.0
    if of_trees:
        n_nodes = share * _core.expected_tree(n_present, tree_params(strategy))[2]
    n_choices = n_nodes / k * (-(-k // 16) * 16) if strategy.balanced else n_nodes
    # Batches assume that all nodes of the tree are visited at once, not just its leaves.
    predicting = _prediction(part, held_out, (n_nodes, n_nodes * k / (k - 1), n_choices), batch_rows)
    evaluated = part.counts.dataset_bytes + held_out * splits.DEPTH * 60.0
    rows = part.rows_and_labels + held_out / max(1, n) * sizes.rows_and_labels
    return sizes.model_bytes + rows + max(*phases, predicting, evaluated)


def _prediction(
    part: Sizes, n_rows: float, visits: tuple[float, float, float], batch_rows: int | None
) -> float:
    needed = _core.Model.top_k_bytes(part.counts, n_rows, *visits, splits.DEPTH, batch_rows or math.inf)
    return part.counts.dataset_bytes + part.model_bytes + needed
