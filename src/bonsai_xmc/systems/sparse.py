"""Systems with one sparse linear classifier for each label: ProXML, PD-Sparse and PPD-Sparse.

Imports the core for its packed classifiers and its solvers.
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
from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter
from bonsai_xmc._base.rules import flag, integer, number, number_between, one_of
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._estimators.matrix import System
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
                "the model file must have one classifier for each label, in the order of the labels"
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


ABOVE_0 = number(lambda v: 1e-9 <= v <= 1e9, "a number from 1e-9 to 1e9")
TOLERANCE = number(lambda v: 1e-9 <= v < 1, "a number from 1e-9 to 1, exclusive")


class ProXMLRanker(SparseRanker):
    """See `SparseRanker`."""

    kind = "proxml"


class ProXML(System):
    """One classifier for each label against all rows, with few weights: an L1 penalty and the squared hinge.

    Minimises l1 (‖w‖₁ + |b|) + C Σ max(0, 1 − s (w·x + b))² for each label, to a duality gap of `tol` times
    the objective; s is 1 for rows with the label and −1 for others. The solver takes Newton steps on
    growing sets of features. Scores are σ(w·x + b). After Babbar and Schölkopf: Data scarcity, robustness and
    extreme multi-label classification, Machine Learning 108, 2019.

    Parameters
    ----------
    l1 : float, default=1.0
        Strength of the L1 penalty: the larger, the fewer weights.
    C : float, default=1.0
        Weight of the loss.
    normalize : bool, default=True
        Whether rows are scaled to norm 1.
    tol : float, default=1e-4
        The duality gap that is left, relative to the objective.
    max_iter : int, default=50
        Maximum number of working sets of features.
    threshold, random_state, n_jobs
        See `Bonsai`. Nothing here is random.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "l1": Parameter(1.0, ABOVE_0, CLASSIFIERS, "strength of the L1 penalty"),
        "C": Parameter(1.0, ABOVE_0, CLASSIFIERS, "weight of the loss"),
        "normalize": Parameter(True, flag(), CLASSIFIERS, "scale rows to norm 1"),
        "tol": Parameter(1e-4, TOLERANCE, CLASSIFIERS, "relative duality gap that is left"),
        "max_iter": Parameter(50, integer(1), CLASSIFIERS, "maximum number of working sets of features"),
        **COMMON,
    }
    ranker = ProXMLRanker

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> ProXMLRanker:
        normalize = params["normalize"]
        options = {"l1": params["l1"], "l2": 0.0, "c": params["C"], "tol": params["tol"]}
        weights = solve_labels(problem, normalize, **options, max_iter=params["max_iter"], work=work)
        return ProXMLRanker.packed(weights, problem.rows.n_features, normalize)


_TOLERANCE = 1e-2  # relative duality gap of a label of PPD-Sparse


class PDSparseRanker(SparseRanker):
    """See `SparseRanker`."""

    kind = "pd-sparse"


class PDSparse(System):
    """A ranking of labels by classifiers with few weights, trained together or each label by itself.

    Minimises Σ (½‖w‖² + l1 ‖w‖₁) over the labels, plus C times the sum, over rows and their labels p, of
    max(0, 1 + z_n − z_p) for the other label n with the largest z = w·x. The dual α is solved row by row: the
    negatives with the highest scores join the active ones of the row, and a projection updates all of these
    (block-coordinate Frank–Wolfe, fully corrective). Weights are Xᵀα, soft-thresholded at l1. Each update
    depends on the one before, so that one thread trains. The weights are those of the epoch with the best
    precision on held-out rows; then those that are not 0 are trained further without the L1 penalty, and the
    result is kept if it is better there. After Yen, Huang, Zhong, Ravikumar, Dhillon: PD-Sparse, ICML 2016.

    With ``variant="ppd"``, PPD-Sparse (Yen and others, KDD 2017): for each label separately ½‖w‖² + l1 ‖w‖₁ +
    C Σ max(0, 1 − s (w·x + b))², on active sets of rows and features, labels side by side. Scores are σ(z).

    Parameters
    ----------
    variant : {"pd", "ppd"}, default="pd"
        PD-Sparse or PPD-Sparse.
    l1 : float, default=0.1
        Strength of the L1 penalty: the larger, the fewer weights.
    C : float, default=1.0
        Weight of the loss.
    loss : {"sum", "max"}, default="sum"
        The sum over a row's labels, or, as published, the largest of these losses. Not of PPD-Sparse.
    normalize : bool, default=False
        Whether rows are scaled to norm 1.
    max_iter : int, default=30
        Maximum number of epochs; for PPD-Sparse, of working sets of features of a label.
    validation_fraction : float, default=0.1
        Share of the rows that are held out to end training; 0: all epochs are done. Not of PPD-Sparse.
    n_iter_no_change : int, default=5
        Epochs without a better precision after which training ends.
    refit : bool, default=True
        Train on without the L1 penalty. Not of PPD-Sparse.
    threshold, random_state, n_jobs
        See `Bonsai`.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "variant": Parameter("pd", one_of("pd", "ppd"), CLASSIFIERS, "ppd: PPD-Sparse, each label by itself"),
        "l1": Parameter(0.1, ABOVE_0, CLASSIFIERS, "strength of the L1 penalty"),
        "C": Parameter(1.0, ABOVE_0, CLASSIFIERS, "weight of the loss"),
        "loss": Parameter(
            "sum", one_of("sum", "max"), CLASSIFIERS, "losses of a row's labels: sum or largest"
        ),
        "normalize": Parameter(False, flag(), CLASSIFIERS, "scale rows to norm 1"),
        "max_iter": Parameter(30, integer(1), CLASSIFIERS, "maximum number of epochs, or of working sets"),
        "validation_fraction": Parameter(
            0.1, number_between(0, 0.9), CLASSIFIERS, "share of the rows that are held out to end training"
        ),
        "n_iter_no_change": Parameter(
            5, integer(1), CLASSIFIERS, "epochs without a better precision after which training ends"
        ),
        "refit": Parameter(True, flag(), CLASSIFIERS, "train on without the L1 penalty"),
        **COMMON,
    }
    ranker = PDSparseRanker

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> PDSparseRanker:
        normalize, l1, C, max_iter = (params[name] for name in ("normalize", "l1", "C", "max_iter"))
        if params["variant"] == "ppd":
            weights = solve_labels(problem, normalize, l1, 1.0, C, _TOLERANCE, max_iter, work)
        else:
            weights = work.run(
                "classifiers",
                _core.train_pd_sparse,
                core_dataset(problem, normalize),
                l1=l1,
                c=C,
                largest=params["loss"] == "max",
                max_epochs=max_iter,
                patience=params["n_iter_no_change"],
                held_out=params["validation_fraction"],
                refit=params["refit"],
                seed=seed,
            )
        return PDSparseRanker.packed(weights, problem.rows.n_features, normalize)
