"""FastXML: many trees over rows, whose nodes learn rankings of labels (Prabhu, Varma, KDD 2014)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bonsai_xmc._base.params import CLASSIFIERS, COMMON, TREES, Parameter
from bonsai_xmc._base.rules import flag, integer, number
from bonsai_xmc._estimators.matrix import System
from bonsai_xmc._model.row_trees import TreeRanker
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.trees_over_rows import grow
from bonsai_xmc._training.work import Work


class FastXMLRanker(TreeRanker):
    """The score of a label is its mean share of the training rows in the leaves that a row reaches."""

    kind = "fastxml"


# The parameters of FastXML in addition to those of every system.
OWN: Mapping[str, Parameter] = {
    "n_trees": Parameter(50, integer(1), TREES, "number of trees"),
    "max_leaf_rows": Parameter(10, integer(1), TREES, "nodes with more rows are divided"),
    "max_leaf_labels": Parameter(20, integer(1), TREES, "most frequent labels that a leaf keeps"),
    "C": Parameter(
        1.0,
        number(lambda v: 1e-9 <= v <= 1e9, "a number from 1e-9 to 1e9"),
        CLASSIFIERS,
        "weight of the losses against the L1 penalty in a node",
    ),
    "tol": Parameter(
        0.03,
        number(lambda v: 0 < v <= 1, "a number above 0 and at most 1"),
        CLASSIFIERS,
        "part of the violation of the optimality conditions at which a node stops",
    ),
    "max_iter": Parameter(20, integer(1), CLASSIFIERS, "maximum number of Newton steps in a node"),
    "normalize": Parameter(False, flag(), CLASSIFIERS, "scale rows to unit Euclidean norm"),
}


class FastXML(System):
    """Trees over rows; a node divides its rows so that a ranking of labels for each side suits them best.

    A node begins with sides at random. The labels are ranked for each side by their normalised discounted
    gain, each row goes to the side whose ranking gives it the higher gain (nDCG), and so on until no row
    moves; a logistic regression with an L1 penalty then learns the sides. Leaves keep the labels of their
    rows; the score of a label is its mean share in the leaves that a row reaches, one in each tree. After
    Prabhu, Varma: FastXML, KDD 2014.

    Parameters
    ----------
    n_trees : int, default=50
        Each learns from all rows; they differ by the sides that their nodes begin with.
    max_leaf_rows : int, default=10
        Nodes with more rows are divided, unless all rows would go to one side.
    max_leaf_labels : int, default=20
        The most frequent labels, which a leaf keeps.
    C : float, default=1.0
        Weight of the losses against the L1 penalty in a node.
    tol : float, default=0.03
        A node stops when this part of the violation of its optimality conditions is left.
    max_iter : int, default=20
        Maximum number of Newton steps in a node.
    normalize : bool, default=False
        Scale rows to unit Euclidean norm. Published figures are of rows as they come. Rows of small values
        need a larger C.
    threshold, random_state, n_jobs
        See `Bonsai`.

    Examples
    --------
    >>> from bonsai_xmc.systems import FastXML
    >>> model = FastXML(n_trees=5, max_leaf_rows=2, threshold=0.5)
    >>> model = model.fit([[1, 0], [2, 0], [0, 1], [0, 2]] * 3, [["a"], ["a"], ["b"], ["b"]] * 3)
    >>> [best[0][0] for best in model.top_k_labels([[3, 0], [0, 3]], k=1)]
    ['a', 'b']
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {**OWN, **COMMON}
    ranker: ClassVar[Any] = FastXMLRanker

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> FastXMLRanker:
        trees = grow(problem, params, None, seed, work)
        n_labels = problem.labels.n_labels
        return FastXMLRanker(trees, problem.rows.n_features, n_labels, normalize=params["normalize"])
