"""What training will need, before it starts. Upper bounds where they are cheap, typical shares elsewhere."""

import math

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._inputs import TrainingRows, select
from bonsai_xmc._strategy import Strategy
from bonsai_xmc._targets import Labels
from bonsai_xmc._training import Problem

_LANES = 64  # classifiers in a panel
_CSR_ENTRY = 8  # bytes of an index and a value
_SAMPLE = 256  # labels whose vectors are counted
# Weights follow the entries of the label vectors: a classifier has them mostly for features of its own rows.
# Entries of unit rows are about 1/√(entries of a row) and a weight is a small multiple of that, so the share
# that survives pruning falls with prune · √(entries of a row). 2 · exp(−that) for each entry and tree came
# within a factor of 1.7 on EURLEX57K, TIBKAT, Bibtex, Delicious and generated data, with trees and without,
# at prune 0.01 and 0.1. A weight with its share of the index takes two and a half bytes.
_WEIGHTS_PER_ENTRY = 2.0
_BYTES_PER_WEIGHT = 2.2
_INDEX_SHARE = 0.6  # size of an index beside that of the classifiers


def estimate(problem: Problem, strategy: Strategy, threads: int) -> dict[str, int]:
    """Bytes: {"training_bytes": …, "model_bytes": …}."""
    has_trees = strategy.n_trees > 0
    clusters = has_trees or strategy.search == "index"  # classifiers of an index stand in the order of a tree
    rows, labels = problem.rows, problem.labels
    n_rows, n_features, entries = rows.n_rows, rows.n_features, rows.n_entries
    pairs = len(labels.indices)
    vector_entries = _label_vector_entries(rows, labels)
    row_bytes = entries * _CSR_ENTRY
    vectors = 0.0
    if clusters and not strategy.given_tree and strategy.representation != "custom":
        vectors = vector_entries * _CSR_ENTRY if strategy.representation != "output" else 0.0
        if strategy.representation != "input":
            vectors += pairs * pairs / max(1, n_rows) * _CSR_ENTRY
    # One root after the other: the vectors again by rows and by columns; centres, old, new and in bytes.
    growing = 2 * vectors + n_features * strategy.branching_factor * (4 + 4 + 1) if clusters else 0.0
    # The root's slice, and for each thread a panel of weights and the dual variables of all rows.
    panels = float(threads * _LANES * 4 * (n_features + n_rows))
    kept = _WEIGHTS_PER_ENTRY * math.exp(-strategy.prune * math.sqrt(entries / max(1, n_rows)))
    weights = strategy.n_trees * vector_entries
    if strategy.classifiers != "leaf":
        held = not isinstance(strategy.bias, str) and strategy.bias <= -1
        if not rows.dense and (strategy.loss, strategy.solver, held) == ("squared_hinge", "dual", True):
            # Entries in words with their features and in 16 bits; for each thread the weights of a
            # classifier, dense and as a list, the position of each feature, the dual variable of each row,
            # and a panel of 16 bits.
            own = entries * (4 + 2) + threads * (n_features * (4 * 4 + _LANES * 2) + n_rows * 8)
            panels = max(panels, float(own)) if has_trees else float(own)
        weights = vector_entries + (weights if strategy.classifiers == "blend" else 0.0)
        if has_trees and strategy.classifiers == "one_vs_rest":
            weights += strategy.n_trees * _router_entries(strategy, labels, vector_entries, n_features)
    model_bytes = weights * kept * _BYTES_PER_WEIGHT * (1 + _INDEX_SHARE * (strategy.search == "index"))
    training = row_bytes + max(vectors + growing, row_bytes + panels + 2 * model_bytes)
    return {"training_bytes": int(training), "model_bytes": int(model_bytes)}


def _router_entries(strategy: Strategy, labels: Labels, vector_entries: float, n_features: int) -> float:
    """Non-zeros of the vectors of a tree's clusters, where leaves are half full and inner nodes are few."""
    n_labels, max_leaf = len(np.unique(labels.indices)), strategy.max_leaf_size
    if n_labels <= max_leaf or strategy.max_depth == 1:
        return 0.0
    size = max(1.0, max_leaf / 2)
    return n_labels / size * min(float(n_features), size * vector_entries / n_labels)


def _label_vector_entries(rows: TrainingRows, labels: Labels) -> float:
    """Non-zeros of all label vectors of the input space, from a sample spread over the label frequencies."""
    ones = np.ones(len(labels.indices), np.int8)
    shape = (len(labels.indptr) - 1, labels.n_labels)
    by_label = sp.csr_array((ones, labels.indices, labels.indptr), shape=shape).tocsc()
    counts = np.diff(by_label.indptr)
    present = np.flatnonzero(counts)
    if not len(present):
        return 0.0
    if not isinstance(rows.rows, tuple):
        return float(len(present) * rows.n_features)
    indptr, indices, _, n_features = rows.rows
    places = np.unique(np.linspace(0, len(present) - 1, _SAMPLE).round().astype(np.int64))
    sizes = []
    for label in present[np.argsort(counts[present], kind="stable")][places]:
        its_rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]].astype(np.int64)
        used = np.zeros(n_features, bool)
        used[indices[select(indptr, its_rows)[1]]] = True
        sizes.append(np.count_nonzero(used))
    return float(np.mean(sizes) * len(present))
