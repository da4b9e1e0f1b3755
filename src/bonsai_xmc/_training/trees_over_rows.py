"""Trees over rows, grown as FastXML grows them.

Imports the core, which grows them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._model.row_trees import TreeRanker
from bonsai_xmc._training.work import Work

if TYPE_CHECKING:
    from bonsai_xmc._training.train import Problem


# With linear classifiers: the settings of FastXML's authors, on rows that are not normalised, as their
# length matters, too. Their C suits rows of about this length; longer ones need a smaller C.
_BESIDE: Mapping[str, Any] = {
    "max_leaf_rows": 10,
    "max_leaf_labels": 20,
    "tol": 0.03,
    "max_iter": 20,
    "normalize": False,
}
_USUAL_LENGTH = 9.0


def grow(
    problem: "Problem", params: Mapping[str, Any], label_weights: Array | None, seed: int, work: Work
) -> dict[str, Array]:
    """Return the arrays of the trees."""
    data = _core.Dataset(*problem.arrays(params["normalize"]))
    names = ("n_trees", "max_leaf_rows", "max_leaf_labels", "C", "tol", "max_iter")
    options = {name: params[name] for name in names}
    threads = work.threads_for("row trees")
    grown: dict[str, Array] = work.run(
        "row trees", _core.train_fastxml, data, label_weights, **options, seed=seed, threads=threads
    )
    return grown


def beside(problem: "Problem", n_trees: int, seed: int, work: Work) -> TreeRanker:
    """Grow trees that rank labels together with linear classifiers."""
    rows = problem.rows
    length = np.sqrt(np.sum(rows.values * rows.values, dtype=np.float64) / max(1, rows.n_rows))
    C = float(np.clip(_USUAL_LENGTH / max(length, 1e-9), 1e-9, 1e9))
    arrays = grow(problem, {**_BESIDE, "n_trees": n_trees, "C": C}, None, seed, work)
    return TreeRanker(arrays, rows.n_features, problem.labels.n_labels, normalize=_BESIDE["normalize"])
