"""What training will need, before it starts. Upper bounds where they are cheap, typical shares elsewhere."""

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import _inputs
from bonsai_xmc._strategy import Strategy

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


def estimate(X: Any, labels: _inputs.Labels, strategy: Strategy, threads: int) -> dict[str, int]:
    """Bytes: {"training_bytes": …, "model_bytes": …}."""
    search = strategy.search
    n_rows, n_features = X.shape
    entries = _inputs.n_entries(X)
    pairs = len(labels.indices)
    vector_entries = _label_vector_entries(X, labels)
    rows = entries * _CSR_ENTRY
    vectors = 0.0
    if search == "beam" and not strategy.given_tree and strategy.representation != "custom":
        vectors = vector_entries * _CSR_ENTRY if strategy.representation != "output" else 0.0
        if strategy.representation != "input":
            vectors += pairs * pairs / max(1, n_rows) * _CSR_ENTRY
    # One root after the other: the vectors again by rows and by columns; centres, old, new and in bytes.
    growing = 2 * vectors + n_features * strategy.branching_factor * (4 + 4 + 1) if search == "beam" else 0.0
    # The root's slice, and for each thread a panel of weights and the dual variables of all rows.
    panels = float(threads * _LANES * 4 * (n_features + n_rows))
    kept = _WEIGHTS_PER_ENTRY * math.exp(-strategy.prune * math.sqrt(entries / max(1, n_rows)))
    weights = strategy.n_trees * vector_entries
    if strategy.classifiers == "one_vs_rest":
        held = not isinstance(strategy.bias, str) and strategy.bias <= -1
        if _inputs.is_sparse(X) and (strategy.loss, strategy.solver, held) == ("squared_hinge", "dual", True):
            # Entries in words with their features and in 16 bits; for each thread the weights of a
            # classifier, dense and as a list, the place of each feature, what each row bears, and a panel of
            # 16 bits.
            own = entries * (4 + 2) + threads * (n_features * (4 * 4 + _LANES * 2) + n_rows * 8)
            panels = max(panels, float(own)) if search == "beam" else float(own)
        weights = vector_entries
        if search == "beam":
            weights += strategy.n_trees * _router_entries(strategy, labels, vector_entries, n_features)
    model_bytes = weights * kept * _BYTES_PER_WEIGHT
    training = rows + max(vectors + growing, rows + panels + 2 * model_bytes)
    return {"training_bytes": int(training), "model_bytes": int(model_bytes)}


def _router_entries(
    strategy: Strategy, labels: _inputs.Labels, vector_entries: float, n_features: int
) -> float:
    """Non-zeros of the vectors of a tree's clusters, where leaves are half full and inner nodes are few."""
    n_labels, max_leaf = len(np.unique(labels.indices)), strategy.max_leaf_size
    if n_labels <= max_leaf or strategy.max_depth == 1:
        return 0.0
    size = max(1.0, max_leaf / 2)
    return n_labels / size * min(float(n_features), size * vector_entries / n_labels)


def _label_vector_entries(X: Any, labels: _inputs.Labels) -> float:
    """Non-zeros of all label vectors of the input space, from a sample spread over the label frequencies."""
    ones = np.ones(len(labels.indices), np.int8)
    shape = (len(labels.indptr) - 1, labels.n_labels)
    by_label = sp.csr_array((ones, labels.indices, labels.indptr), shape=shape).tocsc()
    counts = np.diff(by_label.indptr)
    present = np.flatnonzero(counts)
    if not len(present):
        return 0.0
    if not _inputs.is_sparse(X):
        return float(len(present) * X.shape[1])
    places = np.unique(np.linspace(0, len(present) - 1, _SAMPLE).round().astype(np.int64))
    features = sp.csr_array((np.ones(X.nnz, np.int8), X.indices, X.indptr), shape=X.shape)
    sizes = []
    for label in present[np.argsort(counts[present], kind="stable")][places]:
        rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        used = np.zeros(X.shape[1], bool)
        used[features[rows].indices] = True
        sizes.append(np.count_nonzero(used))
    return float(np.mean(sizes) * len(present))
