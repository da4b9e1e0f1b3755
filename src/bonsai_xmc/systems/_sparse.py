"""The ranker of systems with one sparse linear classifier for each label.

Imports the core for its packed classifiers.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import FLAG
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._model.edit import leaf_of, one_leaf
from bonsai_xmc._model.ranker import Evidence, Search, Searching, linear_evidence
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work


def core_dataset(problem: Problem, normalize: bool) -> _core.Dataset:
    """Return the rows and labels of a problem as the core trains on them."""
    return _core.Dataset(*problem.arrays(normalize))


def solve_labels(
    problem: Problem, normalize: bool, l1: float, l2: float, c: float, tol: float, max_iter: int, work: Work
) -> tuple[Any, ...]:
    """Return bias, ptr, feature and value of classifiers with squared hinge loss, an L1 and an L2 penalty.

    Warns of labels whose relative duality gap stays above `tol`.
    """
    options = {"l1": l1, "l2": l2, "c": c, "tol": tol, "max_rounds": max_iter, "threads": work.threads}
    data = core_dataset(problem, normalize)
    *weights, _, n_unconverged = work.run("classifiers", _core.train_l1_hinge, data, **options)
    if n_unconverged:
        warnings.warn(
            f"{n_unconverged:,} of {problem.labels.n_labels:,} labels did not converge within "
            f"max_iter={max_iter}; allow more, or a larger l1 or tol",
            ConvergenceWarning,
            stacklevel=6,
        )
    return tuple(weights)


class SparseRanker(Searching):
    """z = w·x + b for each label, by weights that are quantised to 8 bits; the k labels of the largest z.

    The log score of a label is log σ(z). The classifiers are stored and scored as those of `Bonsai` are.
    """

    kind: ClassVar[str]

    def __init__(self, forest: _core.Forest, normalize: bool) -> None:
        self.forest, self.normalize = forest, normalize
        self._core = _core.Model(None, forest, "logistic", normalize)

    @classmethod
    def packed(cls, weights: tuple[Any, ...], n_features: int, normalize: bool) -> Self:
        """Make the ranker of what training in the core returns: bias, ptr, feature and value first."""
        bias, ptr, feature, value = weights[:4]
        matrix = sp.csr_array((value, feature, ptr), shape=(len(bias), n_features))
        return cls(one_leaf(matrix, bias), normalize)

    @property
    def n_labels(self) -> int:
        return self.forest.n_labels

    @property
    def n_features(self) -> int:
        return self.forest.n_features

    def _top_k(self, rows: Rows, k: int, search: Search) -> tuple[Array, Array]:
        """See `Ranker`."""
        core = self._core
        options: Any = {"threads": search.threads, "progress": search.progress}
        if search.allowed is not None:
            core = core.restricted(search.allowed.astype(np.uint8))
        return core.top_k(rows.to_core(), k, beam_size=0, exact=True, n_probe=0, **options)

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """See `Ranker`. The contributions of features and the bias add up to z."""
        x = row.to_sparse()
        norm = float(np.linalg.norm(x.values)) if self.normalize else 1.0
        values = x.values / (norm or 1.0)
        features, integers, scale, bias = self.forest.classifier(label)
        shared, own, of_row = np.intersect1d(features, x.indices, return_indices=True)
        of = "the unit row" if self.normalize else "the row"
        return linear_evidence(
            f"features of {of}, times the weights of the label",
            (shared, integers[own] * np.float64(scale), values[of_row]),
            bias,
            ("score σ(z)", lambda z: np.exp(-np.logaddexp(0, -z))),
        )

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`."""
        return {"normalize": self.normalize}, dict(self.forest.arrays())

    FACTS: ClassVar[Any] = {"normalize": FLAG}

    @classmethod
    def _from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        forest = _core.Forest(dict(arrays), n_features, n_labels)
        children = forest.arrays()["children"]
        if not np.array_equal(children, np.arange(n_labels)):
            raise ValueError(
                "the model file has not one classifier for each label, in the order of the labels"
            )
        return cls(forest, facts["normalize"])

    def verify(self) -> None:
        """Check every index of the classifiers, which takes time."""
        self.forest.verify()

    def take(self, labels: Array) -> Self:
        """See `Ranker`."""
        n, child = len(labels), np.asarray(labels, np.int64)
        forest = _core.assemble_forest(leaf_of(n), [self.forest], np.zeros(n, np.uint32), child, n, 1)
        return type(self)(forest, self.normalize)
