"""PfastreXML: FastXML for rare labels (Jain, Prabhu, Varma, KDD 2016)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import Tensor
from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter
from bonsai_xmc._base.rules import flag, number_between
from bonsai_xmc._data.labels import Labels
from bonsai_xmc._data.rows import DenseRows, Rows, SparseRows
from bonsai_xmc._estimators.matrix import System
from bonsai_xmc._model.ranker import Evidence
from bonsai_xmc._model.row_trees import TreeRanker
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.trees_over_rows import grow
from bonsai_xmc._training.work import Work
from bonsai_xmc.metrics._propensity import from_counts
from bonsai_xmc.systems.fastxml import OWN


class PfastreXMLRanker(TreeRanker):
    """Trees with shares weighted by inverse propensities, and distances to the means of labels' rows.

    The log score is alpha · log P + (1 − alpha) · log P_tail, where P is the mean share in the leaves and
    P_tail = 1 / (1 + exp(gamma / 2 · ‖x − mean‖²)) for the unit row x; without means it is log P. In a model
    file, means are rows of labels: `mean_ptr`, `mean_features`, `mean_values`, or only the latter if dense.
    """

    kind = "pfastrexml"

    def __init__(
        self,
        trees: Mapping[str, Array],
        n_features: int,
        n_labels: int,
        *,
        normalize: bool,
        means: Rows | None = None,
        alpha: float = 1.0,
        gamma: float = 0.0,
    ) -> None:
        self.means, self.alpha, self.gamma = means, alpha, gamma
        tail = {"means": None if means is None else means.to_core(), "alpha": alpha, "gamma": gamma}
        super().__init__(trees, n_features, n_labels, normalize=normalize, **tail)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`."""
        facts, arrays = super().to_arrays()
        facts |= {"alpha": self.alpha, "gamma": self.gamma}
        if isinstance(self.means, SparseRows):
            arrays["mean_ptr"], arrays["mean_features"] = self.means.indptr, self.means.indices
        if self.means is not None:
            arrays["mean_values"] = self.means.values.reshape(-1)
        return facts, arrays

    FACTS: ClassVar[Any] = {**TreeRanker.FACTS, "alpha": (0.0, 1e9), "gamma": (0.0, 1e9)}

    TENSORS: ClassVar[Mapping[str, Tensor]] = {  # the core checks the values
        **TreeRanker.TENSORS,
        "mean_ptr": Tensor("i8", "L + 1", needed=False),
        "mean_features": Tensor("i4", "M", needed=False),
        "mean_values": Tensor("f4", "", needed=False),
    }

    @classmethod
    def _tail_of(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> dict[str, Any]:
        tail: dict[str, Any] = {name: facts[name] for name in ("alpha", "gamma")}
        values = arrays.get("mean_values")
        if values is None:
            return tail
        if "mean_ptr" not in arrays:
            return tail | {"means": DenseRows(values.reshape(n_labels, n_features))}
        return tail | {"means": SparseRows(arrays["mean_ptr"], arrays["mean_features"], values, n_features)}

    def _tail_for(self, labels: Array) -> dict[str, Any]:
        means = None if self.means is None else self.means.take(np.asarray(labels))
        return {"means": means, "alpha": self.alpha, "gamma": self.gamma}

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """See `Ranker`."""
        tables = list(super().explain(row, label))
        if self.means is None:
            return tables
        share = float(self.leaf_shares(row, label)[1].mean(dtype=np.float64))
        distance = squared_distance(row, self.means.take(np.array([label])))
        log_tail = -float(np.logaddexp(0, self.gamma / 2 * distance))
        log_share = float(np.log(share)) if share > 0 else -np.inf
        steps = (
            ("mean share, weighted by propensity", share),
            ("squared distance to the mean of the label's rows", distance),
            ("P_tail = 1 / (1 + exp(gamma / 2 · distance))", float(np.exp(log_tail))),
            ("score", float(np.exp(self.alpha * log_share + (1 - self.alpha) * log_tail))),
        )
        return [*tables, Evidence("from leaves and the mean to the score", ("step", "value"), steps)]


def squared_distance(row: Rows, mean: Rows) -> float:
    """Return ‖x / ‖x‖ − m‖² of a single row and a mean."""
    x, m = (part.to_dense().values[0].astype(np.float64) for part in (row, mean))
    norm = np.linalg.norm(x)
    return float(((x / (norm if norm > 0 else 1) - m) ** 2).sum())


def _diagonal(values: Array) -> sp.dia_array:
    """Return a diagonal matrix (`scipy.sparse.diags_array` is missing in the oldest supported versions)."""
    return sp.dia_array((values[None, :], [0]), shape=(len(values), len(values)))


def label_means(rows: Rows, labels: Labels) -> Rows:
    """Return the mean of the unit rows of each label; 0 where it has none."""
    averages = _diagonal(1 / np.maximum(labels.counts, 1)) @ labels.matrix(np.float64).T
    if isinstance(rows, DenseRows):
        norms = np.linalg.norm(rows.values.astype(np.float64), axis=1)
        unit = rows.values / np.where(norms > 0, norms, 1)[:, None]
        return DenseRows(np.ascontiguousarray(averages @ unit, np.float32))
    x = rows.to_scipy()
    norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1), np.float64).ravel())
    unit = _diagonal(1 / np.where(norms > 0, norms, 1)) @ x
    means = sp.csr_array(averages @ unit)
    means.sort_indices()
    arrays = (means.indptr.astype(np.int64), means.indices.astype(np.int32), means.data.astype(np.float32))
    return SparseRows(*arrays, rows.n_features)


class PfastreXML(System):
    """FastXML that counts a label by its inverse propensity, and re-ranks by distances to means of rows.

    Occurrences of rare labels, which are more often missing, weigh more: y becomes y / p with the propensity
    p of `metrics.inverse_propensity`, in the rankings of a node and in the leaves. The score of a label that
    a leaf holds is P^alpha · P_tail^(1 − alpha), where P is the mean share in the leaves and P_tail =
    1 / (1 + exp(gamma / 2 · ‖x − m‖²)), with m the mean of the unit rows of the label. After Jain, Prabhu,
    Varma: Extreme multi-label loss functions, KDD 2016.

    Parameters
    ----------
    n_trees, max_leaf_rows, max_leaf_labels, C, tol, max_iter, normalize
        See `FastXML`.
    tail : bool, default=True
        Re-rank by distances. False: PfastXML.
    alpha : float, default=0.8
        Weight of the trees against the distances. Published: 0.8 for propensity-scored metrics, else 0.9.
    gamma : float, default=30.0
        How fast P_tail falls with the distance.
    A : float, default=0.55
        This and B: parameters of the propensities, see `metrics.PROPENSITY`.
    B : float, default=1.5
    threshold, random_state, n_jobs
        See `Bonsai`.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        **OWN,
        "tail": Parameter(True, flag(), CLASSIFIERS, "re-rank by distances to the means of labels' rows"),
        "alpha": Parameter(
            0.8, number_between(0, 1), CLASSIFIERS, "weight of the trees against the distances"
        ),
        "gamma": Parameter(30.0, number_between(0, 1e6), CLASSIFIERS, "steepness of the tail classifier"),
        "A": Parameter(0.55, number_between(0, 10), CLASSIFIERS, "exponent of the propensities"),
        "B": Parameter(1.5, number_between(1e-9, 1e9), CLASSIFIERS, "shift of counts in the propensities"),
        **COMMON,
    }
    ranker: ClassVar[Any] = PfastreXMLRanker

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> PfastreXMLRanker:
        labels = problem.labels
        inverse = from_counts(labels.counts, problem.rows.n_rows, params["A"], params["B"])
        # Their scale makes no difference to rankings, and shares stay below 1.
        trees = grow(problem, params, (inverse / inverse.max()).astype(np.float32), seed, work)
        tail: dict[str, Any] = {"alpha": params["alpha"], "gamma": params["gamma"]}
        if params["tail"]:
            tail["means"] = work.run("means", lambda progress: label_means(problem.rows, labels))
        n_features = problem.rows.n_features
        return PfastreXMLRanker(trees, n_features, labels.n_labels, normalize=params["normalize"], **tail)
