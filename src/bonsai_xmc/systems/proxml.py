"""ProXML: one-vs-rest classifiers with an L1 penalty, solved accurately (Babbar, Schölkopf, 2019)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter
from bonsai_xmc._base.rules import flag, integer, number
from bonsai_xmc._estimators.matrix import System
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.systems._sparse import SparseRanker, solve_labels

ABOVE_0 = number(lambda v: 1e-9 <= v <= 1e9, "a number from 1e-9 to 1e9")
TOLERANCE = number(lambda v: 1e-9 <= v < 1, "a number from 1e-9 to 1, exclusive")


class ProXMLRanker(SparseRanker):
    """See `SparseRanker`."""

    kind = "proxml"


class ProXML(System):
    """One classifier for each label against all rows, with few weights: an L1 penalty and the squared hinge.

    Minimises l1 (‖w‖₁ + |b|) + C Σ max(0, 1 − s (w·x + b))² for each label, to a duality gap of `tol` times
    the objective; s is 1 for rows with the label and −1 for others. Newton steps on growing sets of features
    get there. Scores are σ(w·x + b). After Babbar and Schölkopf: Data scarcity, robustness and extreme
    multi-label classification, Machine Learning 108, 2019.

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
        Sets of features, at most.
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
