"""PD-Sparse and PPD-Sparse: few weights and few active rows at the same time (Yen et al., 2016 and 2017).

Imports the core for its solvers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from bonsai_xmc import _core
from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter
from bonsai_xmc._base.rules import flag, integer, number_between, one_of
from bonsai_xmc._estimators.matrix import System
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.systems._sparse import SparseRanker, core_dataset, solve_labels
from bonsai_xmc.systems.proxml import ABOVE_0

_TOLERANCE = 1e-2  # relative duality gap of a label of PPD-Sparse


class PDSparseRanker(SparseRanker):
    """See `SparseRanker`."""

    kind = "pd-sparse"


class PDSparse(System):
    """A ranking of labels by classifiers with few weights, or the same for each label apart.

    Minimises Σ (½‖w‖² + l1 ‖w‖₁) over the labels, plus C times the sum, over rows and their labels p, of
    max(0, 1 + z_n − z_p) for the other label n with the largest z = w·x. The dual α is solved row by row: the
    negatives with the highest scores join the active ones of the row, and a projection updates all of these
    (block-coordinate Frank–Wolfe, fully corrective). Weights are Xᵀα, soft-thresholded at l1. Each row builds
    on those before it, so that one thread trains. The weights are those of the epoch with the best precision
    on held-out rows; then they are trained on without the L1 penalty where they are not 0, and kept if that
    is better there. After Yen, Huang, Zhong, Ravikumar, Dhillon: PD-Sparse, ICML 2016.

    With ``variant="ppd"``, PPD-Sparse (Yen and others, KDD 2017): for each label apart ½‖w‖² + l1 ‖w‖₁ +
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
        Epochs, or sets of features of a label, at most.
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
        "variant": Parameter("pd", one_of("pd", "ppd"), CLASSIFIERS, "ppd: PPD-Sparse, each label apart"),
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
