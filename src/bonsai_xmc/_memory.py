"""What training will need, before it starts. Upper bounds where they are cheap, typical shares elsewhere."""

from typing import Any

import numpy as np

from bonsai_xmc import _inputs

_LANES = 64  # classifiers in a panel
_CSR_ENTRY = 8  # bytes of an index and a value
# Measured on EURLEX57K and TIBKAT: weights that survive pruning at 0.1, for each (row, feature) entry that
# the classifiers of a level see, and bytes for each of them with its share of the index.
_WEIGHTS_PER_ENTRY = 0.22
_BYTES_PER_WEIGHT = 5.0


def estimate(X: Any, labels: _inputs.Labels, model: Any, threads: int) -> dict[str, int]:
    """Bytes: {"training_bytes": …, "model_bytes": …}."""
    n_rows, n_features = X.shape
    entries = X.nnz if _inputs.is_sparse(X) else int(np.count_nonzero(X))
    pairs = len(labels.indices)
    labels_per_row = pairs / max(1, n_rows)
    rows = entries * _CSR_ENTRY
    # Label vectors: each label's entries merge; half of them is what text leaves.
    vectors = 0.0
    if model.tree is None and isinstance(model.representation, str):
        vectors = 0.5 * labels_per_row * entries * _CSR_ENTRY if model.representation != "output" else 0.0
        if model.representation != "input":
            vectors += pairs * labels_per_row * _CSR_ENTRY
    centres = n_features * model.branching * 4
    # The root's slice, and for each thread a panel of weights and the dual variables of all rows.
    panels = threads * _LANES * 4 * (n_features + n_rows)
    depth = 1 if model.max_depth == 1 else 2
    n_trees = model.n_trees if model.tree is None else len(_inputs.tree_list(model.tree))
    seen = entries * (1 + labels_per_row * (depth > 1)) * n_trees
    model_bytes = _WEIGHTS_PER_ENTRY * seen * _BYTES_PER_WEIGHT * (0.1 / max(model.prune, 0.02)) ** 0.5
    training = rows + max(2 * vectors + centres, rows + panels + model_bytes) + model_bytes
    return {"training_bytes": int(training), "model_bytes": int(model_bytes)}
