"""The estimator: parameters, fit, predict, save, load. The only caller of the core's training and search."""

import json
import os
import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bonsai_xmc import _core, _inputs, _memory, _modelfile
from bonsai_xmc._params import PRESETS, check_params
from bonsai_xmc._progress import ProgressBar
from bonsai_xmc._strategy import Facts, Strategy, beam_size, resolve
from bonsai_xmc._tree import LabelTree

Array = npt.NDArray[Any]
Progress = Callable[[str, float, float], None]

# More than this share of classifiers out of passes deserves a warning; a few stragglers are normal.
_MANY_UNCONVERGED = 0.1
# Classifiers without weights cannot tell rows apart; some are normal, where all rows of a node are positive.
_MANY_EMPTY = 0.5
# What `classifiers_` and `search_` can be; one-vs-rest behind trees has tensors of its own.
_STRATEGIES = (("leaf", "beam"), ("one_vs_rest", "exact"), ("one_vs_rest", "beam"))
# Neither belongs to the model: the same data and seed give the same file whatever they are.
_NOT_SAVED = ("n_jobs", "verbose")


class Bonsai(ClassifierMixin, BaseEstimator):
    """Extreme multi-label classifier: shallow label trees with linear classifiers at their nodes.

    Labels are represented by vectors and clustered into shallow, wide, unbalanced trees; each node gets one
    linear classifier for each child or label; prediction is a beam search, averaged over the trees [1]_.

    Parameters
    ----------
    representation : {"input", "output", "joint"} or matrix of shape (n_labels, any), default="input"
        What labels are clustered by: the sum of their rows, the labels that they occur with, both, or vectors
        of your own (embeddings of the labels' names, say). Bonsai-i, -o and -io of the paper.
    n_trees : "auto" or int ≥ 1, default="auto"
        Trees in the forest, each from other k-means seeds. "auto": 3, as in the paper.
    branching_factor : int ≥ 2, default=100
        K, the most children that a node is split into. The paper uses 100.
    max_leaf_size : int ≥ 1, optional
        Nodes with at most this many labels are not split. Default: `branching_factor`, as in the paper.
    max_depth : "auto", int ≥ 1 or None, default="auto"
        Levels of nodes with classifiers; the root is level 1, so 1 means no tree at all. None: split until
        `max_leaf_size`. "auto": 3 levels, but leaves of 100 × `max_leaf_size` labels or more are split on.
        The paper uses 2 for EURLex and Wiki10, 3 for its larger sets.
    balanced : bool, default=False
        Whether the children of a node get equally many labels (up to one). False in the paper; true in
        Parabel.
    tree : LabelTree, nested lists, its JSON form, or a list of LabelTrees, optional
        Use this tree (or these) instead of clustering. Each label with a row needs its place; others are left
        out. Where tree and Y both have names, names decide.
    kmeans_tol : float ≥ 0, default=1e-4
        Clustering stops when the mean similarity gains less. The paper's value.
    kmeans_max_iter : int ≥ 1, default=10
        Most iterations of k-means. The paper sets no limit; between 10 and 100, accuracy on rows held out
        from EURLEX57K and TIBKAT differed by less than it does between seeds.
    kmeans_init : {"random", "k-means++"}, default="random"
        First centres: random labels as in the paper, or spread out (its footnote finds no difference).
    C : "auto" or float > 0, default="auto"
        Weight of the losses in ½‖w‖² + C Σ loss. "auto": 1, as in the paper.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        max(0, 1 − m)², as in the paper, or log(1 + exp(−m)), of the margin m.
    solver : {"dual", "newton"}, default="dual"
        Dual coordinate descent, or the primal trust-region Newton method that the paper names.
    tol : float > 0, default=0.1
        Tolerance of the solver; 0.1 is the original implementation's.
    max_iter : int ≥ 1, default=20
        Most passes over a node's rows ("dual") or Newton steps; 20 is the original implementation's.
    prune : "auto" or float ≥ 0, default="auto"
        Weights |w| ≤ prune are dropped. "auto": 0.05 for one-vs-rest, 0.1 for leaf classifiers. The paper
        uses 0.1 for trees and 0.01 for DiSMEC. Dense rows such as embeddings spread their weights and need
        less.
    bias : "auto", "learn" or float, default="auto"
        Learn each classifier's bias as the weight of a constant feature 1, or hold it at a number. "auto"
        learns it at the nodes of trees, and holds it at −1 for one-vs-rest, which is as accurate and much
        faster, but for labels of more than 2 % of the rows and for dense rows. Never pruned.
    classifiers : {"auto", "leaf", "one_vs_rest"}, default="auto"
        What labels are ranked by: classifiers trained on the rows of a leaf, as in the paper, or one for each
        label, trained against all rows (more accurate on most data, above all for rare labels). "auto" takes
        "one_vs_rest" unless X is dense, or labels × entries of X are so many that it would take long.
    search : {"auto", "exact", "beam"}, default="auto"
        With one-vs-rest: score all labels, or those of the leaves that a beam search of trees ends in. "auto"
        takes "exact" up to 200,000 labels. Leaf classifiers are always found by beam search.
    path_weight : "auto" or float ≥ 0, default="auto"
        With one-vs-rest and beam search: weight of the log score of the path beside the label's own. "auto":
        0.
    tail_exponent : "auto" or float ≥ 0, default="auto"
        With one-vs-rest: the C of a label with n rows is multiplied by (m / n) to this power, m being the
        mean over labels, so that rare labels cost more. Needs sparse X, the squared hinge loss, the dual
        solver, and a bias of "auto" or at most −1. "auto": 0.25 where that holds, 0 elsewhere.
    normalize : bool, default=True
        Divide each row by its Euclidean norm, as the paper's data are.
    beam_size : "auto", int ≥ 1 or None, default="auto"
        Nodes that a row follows at each level; None follows all (exact, slow). "auto": 10, as in the paper.
    max_labels : int ≥ 1, default=100
        Labels that `predict_proba`, `decision_function` and `predict` return for each row at most.
    threshold : "auto" or float in [0, 1], default="auto"
        Labels with at least this score are predicted by `predict`. "auto": 0.5.
    random_state : int, RandomState, Generator or None, default=0
        Seed of clustering and of the order of rows. Equal data, parameters and seed give the same model file,
        byte for byte, whatever `n_jobs`. None draws a fresh one.
    n_jobs : int, optional
        Threads; None or -1 for all that the process may use.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
        Label names, or ids 0 … n_labels − 1.
    trees_ : list of LabelTree
        The trees, to look at and to export.
    n_iter_ : int
        Passes (or Newton steps) of the slowest classifier.
    label_counts_ : array of shape (n_labels,)
        Training rows of each label.
    n_rows_fit_ : int
        Training rows.
    n_features_in_ : int
        Features.
    strategy_ : Strategy
        How the model was trained: every parameter of training with its concrete value, and the reason.
    classifiers_, search_ : str
        What `classifiers` and `search` came to.
    seed_ : int
        The seed that was used.
    timings_ : dict
        Seconds for each phase of the last `fit`; not saved.

    References
    ----------
    .. [1] S. Khandagale, H. Xiao, R. Babbar: Bonsai – Diverse and Shallow Trees for Extreme Multi-label
       Classification. Machine Learning, 2020.

    Examples
    --------
    >>> from bonsai_xmc import Bonsai
    >>> X = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
    >>> Y = [["red"], ["green"], ["red", "green"], ["blue"]]
    >>> model = Bonsai(random_state=0).fit(X, Y)
    >>> ids, scores = model.top_k([[0, 0, 2]], k=1)
    >>> model.classes_[ids[0, 0]]
    'blue'
    """

    def __init__(
        self,
        representation: Any = "input",
        n_trees: int | str = "auto",
        branching_factor: int = 100,
        max_leaf_size: int | None = None,
        max_depth: int | str | None = "auto",
        balanced: bool = False,
        tree: Any = None,
        kmeans_tol: float = 1e-4,
        kmeans_max_iter: int = 10,
        kmeans_init: str = "random",
        C: float | str = "auto",
        loss: str = "squared_hinge",
        solver: str = "dual",
        tol: float = 0.1,
        max_iter: int = 20,
        prune: float | str = "auto",
        bias: str | float = "auto",
        classifiers: str = "auto",
        search: str = "auto",
        path_weight: float | str = "auto",
        tail_exponent: float | str = "auto",
        normalize: bool = True,
        beam_size: int | str | None = "auto",
        max_labels: int = 100,
        threshold: float | str = "auto",
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.representation = representation
        self.n_trees = n_trees
        self.branching_factor = branching_factor
        self.max_leaf_size = max_leaf_size
        self.max_depth = max_depth
        self.balanced = balanced
        self.tree = tree
        self.kmeans_tol = kmeans_tol
        self.kmeans_max_iter = kmeans_max_iter
        self.kmeans_init = kmeans_init
        self.C = C
        self.loss = loss
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.prune = prune
        self.bias = bias
        self.classifiers = classifiers
        self.search = search
        self.path_weight = path_weight
        self.tail_exponent = tail_exponent
        self.normalize = normalize
        self.beam_size = beam_size
        self.max_labels = max_labels
        self.threshold = threshold
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """A named setting; any parameter can be given to change it.

        The members of the paper's family: ``"bonsai-i"``, ``"bonsai-o"``, ``"bonsai-io"`` (pass
        ``max_depth=2`` for the paper's setting on EURLex and Wiki10), ``"parabel"`` and ``"parabel-o"`` (two
        balanced children, leaves of at most 100 labels), ``"balanced"`` (100 balanced children), ``"dismec"``
        (no tree: one-vs-rest over all labels, with a learnt bias).

        Examples
        --------
        >>> Bonsai.preset("parabel", random_state=1)
        Bonsai(balanced=True, branching_factor=2, classifiers='leaf', max_depth=None,
               max_leaf_size=100, random_state=1)
        """
        if name not in PRESETS:
            raise ValueError(f"unknown preset {name!r}; there are {', '.join(map(repr, PRESETS))}")
        return cls(**(PRESETS[name] | overrides))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows X and their label sets y, called Y elsewhere (scikit-learn passes it by this name).

        Parameters
        ----------
        X : sparse matrix, sparse array or array-like of shape (n_rows, n_features)
            Any format, any real dtype. Rows that are dense at heart (embeddings) are handled as such.
        y : sparse or dense 0/1 matrix of shape (n_rows, n_labels), data frame, or lists of ids or of names
            Labels without any row are allowed and never predicted; so are rows without labels.
        sample_weight : array-like of shape (n_rows,), optional
            Weighs the losses and the label vectors. Rows of weight 0 are left out.
        """
        return self._fit(X, y, sample_weight, ProgressBar() if self.verbose else None)

    def _fit(self, X: Any, Y: Any, sample_weight: Any = None, progress: Progress | None = None) -> Self:
        check_params(self.get_params(deep=False))
        X = self._checked(X, fitting=True)
        labels = _inputs.as_labels(Y)
        if len(labels.indptr) - 1 != X.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]:,} rows, but Y has {len(labels.indptr) - 1:,}; they must be equally many"
            )
        X, labels, weights = _weighted(X, labels, sample_weight)
        counts = np.bincount(labels.indices, minlength=labels.n_labels)
        if not counts.any():
            raise ValueError("Y holds no label at all; there is nothing to learn")
        self.seed_ = _seed(self.random_state)
        self.timings_: dict[str, float] = {}
        rows = _inputs.as_rows(X)
        dataset = _core.Dataset(
            rows, labels.indptr, labels.indices, labels.n_labels, weights, bool(self.normalize)
        )
        self.strategy_ = resolve(self.get_params(deep=False), _facts(X, counts))
        self.classifiers_, self.search_ = self.strategy_.classifiers, self.strategy_.search
        forest, ranker, report = self._train(dataset, labels, counts, progress)
        self.classes_ = labels.classes
        self.label_counts_ = counts
        self.n_rows_fit_ = X.shape[0]
        self.n_iter_ = max(1, report["max_iter"])
        self.isa_ = _core.isa()
        self._adopt(forest, ranker)
        n, unconverged = report["n_classifiers"], report["n_unconverged"]
        scale = (forest if ranker is None else ranker).arrays()["scale"]
        empty = int(np.count_nonzero(scale == 0))
        if self.strategy_.prune > 0 and empty > _MANY_EMPTY * len(scale) and np.count_nonzero(counts) > 1:
            warnings.warn(
                f"prune={self.strategy_.prune} leaves {empty:,} of {len(scale):,} classifiers "
                "without any weight; rows with many small entries, such as embeddings, need a smaller one",
                stacklevel=3,
            )
        if unconverged > _MANY_UNCONVERGED * n:
            warnings.warn(
                f"{unconverged:,} of {n:,} classifiers did not converge within max_iter={self.max_iter}; "
                "allow more, or a larger tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _train(
        self, dataset: Any, labels: _inputs.Labels, counts: Array, progress: Progress | None
    ) -> tuple[_core.Forest, _core.Forest | None, dict[str, int]]:
        """The trees, the one-vs-rest classifiers behind them if there are any, and counts of both."""
        order = np.flatnonzero(counts).astype(np.uint32)
        forest, report = None, {"n_classifiers": 0, "n_unconverged": 0, "max_iter": 0}
        strategy = self.strategy_
        if strategy.search == "beam":
            trees = self._grow(dataset, labels, counts > 0, progress)
            routing_only = strategy.classifiers == "one_vs_rest"
            params = self._linear_params(strategy.node_bias)
            forest, report = self._timed(
                "classifiers", progress, _core.train_trees, dataset, trees, params, self.seed_, routing_only
            )
            if not routing_only:
                return forest, None, report
            order = trees.leaf_order(0)
        costs = np.empty(0, np.float32)
        if strategy.tail_exponent > 0:
            n = counts[order]
            costs = np.power(n.mean() / n, strategy.tail_exponent, dtype=np.float64).astype(np.float32)
        params = self._linear_params(strategy.bias)
        options = (strategy.frequent_share, params, self.seed_)
        ranker, more = self._timed(
            "one-vs-rest", progress, _core.train_one_vs_rest, dataset, order, costs, *options
        )
        merged = {
            "n_classifiers": report["n_classifiers"] + more["n_classifiers"],
            "n_unconverged": report["n_unconverged"] + more["n_unconverged"],
            "max_iter": max(report["max_iter"], more["max_iter"]),
        }
        return (ranker, None, merged) if forest is None else (forest, ranker, merged)

    def _grow(
        self, dataset: Any, labels: _inputs.Labels, has_rows: Array, progress: Progress | None
    ) -> _core.Trees:
        if self.tree is not None:
            trees = _inputs.as_trees(self.tree, labels.classes, has_rows)
            return _core.Trees.from_arrays(trees, labels.n_labels)
        if isinstance(self.representation, str):
            vectors = self._timed(
                "label vectors", progress, _core.label_vectors, dataset, self.representation
            )
        else:
            rows = _inputs.as_label_vectors(self.representation, labels.n_labels)
            vectors = _core.LabelVectors.from_rows(rows)
        strategy = self.strategy_
        params = {
            "branching_factor": strategy.branching_factor,
            "kmeans_tol": strategy.kmeans_tol,
            "kmeans_max_iter": strategy.kmeans_max_iter,
            "plus_plus": strategy.kmeans_init == "k-means++",
            "balanced": bool(strategy.balanced),
            "max_leaf_size": strategy.max_leaf_size,
            "max_depth": strategy.max_depth or 0,
            "split_oversized": bool(strategy.split_oversized),
        }
        present = np.flatnonzero(has_rows).astype(np.uint32)
        return self._timed(
            "trees", progress, _core.build_trees, vectors, present, strategy.n_trees, params, self.seed_
        )

    def _linear_params(self, bias: str | float) -> dict[str, Any]:
        strategy = self.strategy_
        return {
            "loss": strategy.loss,
            "solver": strategy.solver,
            "C": strategy.C,
            "tol": strategy.tol,
            "max_iter": strategy.max_iter,
            "learn_bias": bias == "learn",
            "fixed_bias": 0.0 if isinstance(bias, str) else bias,
            "prune": strategy.prune,
        }

    def _timed(self, phase: str, progress: Progress | None, call: Callable[..., Any], *args: Any) -> Any:
        begin = time.perf_counter()
        watch = None if progress is None else lambda done, total: progress(phase, done, total)
        result = call(*args, self._threads(), watch)
        self.timings_[phase] = time.perf_counter() - begin
        return result

    def _threads(self) -> int:
        if self.n_jobs is None or self.n_jobs == -1:
            return _core.available_threads()
        return self.n_jobs if self.n_jobs > 0 else max(1, _core.available_threads() + 1 + self.n_jobs)

    def _adopt(self, forest: _core.Forest, ranker: _core.Forest | None = None) -> None:
        trees, one_vs_rest = (None, forest) if self.search_ == "exact" else (forest, ranker)
        self._model = _core.Model(trees, one_vs_rest, self.loss, bool(self.normalize))

    @property
    def _forest(self) -> _core.Forest:
        """The trees, or, without any, the one-vs-rest classifiers."""
        forest = self._model.one_vs_rest if self.search_ == "exact" else self._model.trees
        assert forest is not None
        return forest

    @property
    def _ranker(self) -> _core.Forest | None:
        """The one-vs-rest classifiers behind the trees, if there are any."""
        return None if self.search_ == "exact" else self._model.one_vs_rest

    @property
    def _arrays(self) -> dict[str, Array]:
        return self._forest.arrays()

    @property
    def _ranker_arrays(self) -> dict[str, Array] | None:
        return None if self._ranker is None else self._ranker.arrays()

    def _checked(self, X: Any, fitting: bool = False) -> Any:
        return validate_data(
            self, X, reset=fitting, accept_sparse="csr", dtype="numeric", accept_large_sparse=True
        )

    def _rows(self, X: Any) -> _inputs.CoreRows:
        if not hasattr(self, "feature_names_in_"):  # names are compared with those of X
            ready = _inputs.ready_csr(X, self.n_features_in_)
            if ready is not None:
                return ready
        X = self._checked(X)
        return _inputs.as_csr(X) if sp.issparse(X) else _inputs.as_float32(X)

    def _search(
        self, X: Any, k: int, progress: Progress | None = None, exact: bool = False
    ) -> tuple[Array, Array]:
        """Ids (−1 where there are fewer) and log scores (−∞ there) of the k best labels of each row.

        `exact` looks at all labels, whatever `search_` and `beam_size` say.
        """
        watch = None if progress is None else lambda done, total: progress("predict", done, total)
        self._require_fitted()
        beam = 0 if exact else beam_size(self.get_params(deep=False), self.search_)
        return self._core_model().top_k(
            self._rows(X),
            k,
            beam_size=beam,
            exact=exact,
            path_weight=self.strategy_.path_weight,
            threads=self._threads(),
            progress=watch,
        )

    def _core_model(self) -> _core.Model:
        """With the loss and the normalisation that are set now."""
        model = self._model
        if (model.loss, model.normalize) != (self.loss, bool(self.normalize)):
            model = _core.Model(model.trees, model.one_vs_rest, self.loss, bool(self.normalize))
        return model

    def top_k(self, X: Any, k: int = 5) -> tuple[Array, Array]:
        """The k best labels of each row, best first.

        Returns
        -------
        ids : int32 array of shape (n_rows, k)
            Columns of Y, or places in `classes_`; −1 where there are fewer candidates, as for a row without
            features.
        scores : float32 array of shape (n_rows, k)
            Probabilities as in `predict_proba`; 0 where there are fewer candidates.
        """
        ids, scores = self._search(X, self._checked_k(k))
        return ids, np.exp(scores)

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():  # scikit-learn's own check takes its time to say yes
            check_is_fitted(self)

    def _checked_k(self, k: int) -> int:
        self._require_fitted()
        if not isinstance(k, int | np.integer) or isinstance(k, bool):
            raise ValueError(f"k is {k!r}, but must be an integer")
        if k < 1:
            raise ValueError(f"k is {k}, but must be at least 1")
        if k > len(self.classes_):
            raise ValueError(f"k is {k}, but the model knows only {len(self.classes_):,} labels")
        return int(k)

    def top_k_labels(self, X: Any, k: int = 5) -> list[list[tuple[Any, float]]]:
        """The k best labels of each row as (name, score), best first; names are entries of `classes_`."""
        ids, scores = self.top_k(X, k)
        names = self.classes_
        return [
            [(names[i], float(s)) for i, s in zip(row, row_scores, strict=True) if i >= 0]
            for row, row_scores in zip(ids, scores, strict=True)
        ]

    def decision_function(self, X: Any) -> sp.csr_array:
        """Log scores (0 is best) of the `max_labels` best labels of each row; others are absent.

        The order within equal scores, which `top_k` decides by the margins, is not visible here.
        """
        self._require_fitted()
        ids, scores = self._search(X, min(self.max_labels, len(self.classes_)))
        found = ids >= 0
        indptr = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        result = sp.csr_array((scores[found], ids[found], indptr), shape=(len(ids), len(self.classes_)))
        result.sort_indices()
        return result

    def predict_proba(self, X: Any) -> sp.csr_array:
        """Scores in [0, 1] of the `max_labels` best labels of each row: mean over trees of Π exp(−loss)."""
        result = self.decision_function(X)
        np.exp(result.data, out=result.data)
        return result

    def predict(self, X: Any) -> sp.csr_array:
        """0/1 matrix of the labels whose probability is at least `threshold`."""
        scores = self.predict_proba(X)
        result = sp.csr_array(
            (
                (scores.data >= (0.5 if self.threshold == "auto" else self.threshold)).astype(np.int8),
                scores.indices,
                scores.indptr,
            ),
            shape=scores.shape,
        )
        result.eliminate_zeros()
        return result

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """P@1: the share of rows whose best label is right."""
        ids, _ = self.top_k(X, 1)
        truth = self._label_columns(y)
        if truth.shape[0] != len(ids):
            raise ValueError(
                f"X has {len(ids):,} rows, but Y has {truth.shape[0]:,}; they must be equally many"
            )
        rows, _ = np.nonzero(ids >= 0)
        best = sp.csr_array((np.ones(len(rows)), (rows, ids[rows, 0])), shape=truth.shape)
        return float(np.average(truth.multiply(best).sum(axis=1), weights=sample_weight))

    def _label_columns(self, Y: Any) -> sp.csr_array:
        """Y of any kind that `fit` takes as an indicator matrix over `classes_`, without unknown labels."""
        labels = _inputs.as_labels(Y)
        if labels.classes.dtype == object:
            if self.classes_.dtype != object:
                raise ValueError("Y holds label names, but the model was fitted on labels without names")
            column = {name: i for i, name in enumerate(self.classes_)}
            columns = np.array([column.get(name, -1) for name in labels.classes])[labels.indices]
        else:
            columns = np.where(labels.indices < len(self.classes_), labels.indices, -1)
        rows = np.repeat(np.arange(len(labels.indptr) - 1), np.diff(labels.indptr))
        known = columns >= 0
        shape = (len(labels.indptr) - 1, len(self.classes_))
        return sp.csr_array((np.ones(known.sum(), np.int8), (rows[known], columns[known])), shape=shape)

    @property
    def trees_(self) -> list[LabelTree]:
        check_is_fitted(self)
        a = self._arrays
        names: Any = self.classes_ if self.classes_.dtype == object else None
        trees = []
        for first, end in pairwise(a["tree_ptr"]):
            ptr = a["child_ptr"][first : end + 1]
            trees.append(
                LabelTree(
                    ptr - ptr[0], a["children"][ptr[0] : ptr[-1]], a["is_leaf"][first:end] != 0, names=names
                )
            )
        return trees

    def memory_estimate(self, X: Any, Y: Any) -> dict[str, int]:
        """Bytes that training on X and Y will need at its peak, and that the model will take, roughly."""
        check_params(self.get_params(deep=False))
        X, labels = check_array(X, accept_sparse="csr"), _inputs.as_labels(Y)
        strategy = resolve(self.get_params(deep=False), _facts(X, np.bincount(labels.indices)))
        return _memory.estimate(X, labels, strategy, self._threads())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file: a safetensors container, replaced atomically."""
        check_is_fitted(self)
        arrays = {f"forest.{name}": array for name, array in self._arrays.items()}
        arrays |= {f"ranker.{name}": array for name, array in (self._ranker_arrays or {}).items()}
        arrays["label_counts"] = self.label_counts_
        if self.classes_.dtype == object:
            encoded = [str(name).encode() for name in self.classes_]
            arrays["names"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
            arrays["names_ptr"] = np.concatenate([[0], np.cumsum([len(e) for e in encoded])]).astype(np.int64)
        _modelfile.write(path, arrays, self._metadata())

    def _metadata(self) -> dict[str, str]:
        params = {
            name: value for name, value in self.get_params(deep=False).items() if name not in _NOT_SAVED
        }
        if not isinstance(self.representation, str):
            params["representation"] = "custom"
        params["tree"] = None if self.tree is None else "given"
        params["random_state"] = self.seed_
        numbers = {
            "n_features": self.n_features_in_,
            "n_labels": len(self.classes_),
            "n_rows": self.n_rows_fit_,
        }
        return {
            "params": json.dumps(
                {k: v.item() if isinstance(v, np.generic) else v for k, v in params.items()}
            ),
            "fitted": json.dumps(
                numbers | {"n_iter": self.n_iter_, "isa": self.isa_, "strategy": asdict(self.strategy_)}
            ),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], verify: bool = False) -> Self:
        """A model from a file that `save` wrote.

        The file is mapped, not read: loading takes milliseconds. With `verify`, all is read and checked:
        checksums, and every index. Without, a damaged file may give wrong scores, but never a crash.
        """
        file = _modelfile.read(path)
        if verify:
            _modelfile.verify(file)
        try:
            model = cls._from_file(file)
            if verify:
                model._forest.verify()
                if model._ranker is not None:
                    model._ranker.verify()
            return model
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if isinstance(error, _modelfile.FormatError):
                raise
            what = str(error).removeprefix("the model is inconsistent: ")  # as the core says already
            raise _modelfile.FormatError(f"{os.fspath(path)}: the model is inconsistent: {what}") from error

    @classmethod
    def _from_file(cls, file: _modelfile.ModelFile) -> Self:
        params, fitted = json.loads(file.metadata["params"]), json.loads(file.metadata["fitted"])
        given_tree = params.pop("tree") is not None
        model = cls(**params)
        if params["representation"] != "custom":
            check_params(model.get_params(deep=False))
        arrays = dict(file.arrays)
        n_labels = int(fitted["n_labels"])
        model.n_features_in_ = int(fitted["n_features"])
        model.n_rows_fit_ = int(fitted["n_rows"])
        model.n_iter_, model.isa_ = int(fitted["n_iter"]), str(fitted["isa"])
        model.seed_ = params["random_state"]
        model.label_counts_ = arrays["label_counts"]
        if model.label_counts_.shape != (n_labels,):
            raise ValueError("the label counts do not fit the labels")
        model.classes_ = _names(arrays, n_labels) if "names" in arrays else np.arange(n_labels)
        model.strategy_ = Strategy(**fitted["strategy"])
        model.classifiers_, model.search_ = model.strategy_.classifiers, model.strategy_.search
        parts = {
            part: {key.removeprefix(part): a for key, a in arrays.items() if key.startswith(part)}
            for part in ("forest.", "ranker.")
        }
        ranker = parts["ranker."] or None
        chosen = model.classifiers_, model.search_
        if chosen not in _STRATEGIES or (chosen == ("one_vs_rest", "beam")) != (ranker is not None):
            raise ValueError(f"classifiers {chosen[0]!r} and search {chosen[1]!r} do not fit its tensors")
        size = model.n_features_in_, n_labels
        model._adopt(
            _core.Forest(parts["forest."], *size, ranker is not None),
            None if ranker is None else _core.Forest(ranker, *size),
        )
        if given_tree:
            model.tree = model.trees_
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags


def _facts(X: Any, counts: Array) -> Facts:
    return Facts(
        n_rows=X.shape[0],
        n_features=X.shape[1],
        n_entries=_inputs.n_entries(X),
        n_labels=int(np.count_nonzero(counts)),
        dense=_inputs.is_dense_at_heart(X),
    )


def _names(arrays: dict[str, Array], n_labels: int) -> Array:
    ptr, text = arrays["names_ptr"], arrays["names"].tobytes()
    if len(ptr) != n_labels + 1 or ptr[0] != 0 or ptr[-1] != len(text) or (np.diff(ptr) < 0).any():
        raise ValueError("the label names do not fit the labels")
    names = np.empty(n_labels, dtype=object)
    names[:] = [text[a:b].decode() for a, b in pairwise(ptr)]
    return names


def _seed(random_state: Any) -> int:
    """One integer that all randomness follows from."""
    if random_state is None:
        return secrets.randbits(32)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    return int(check_random_state(random_state).randint(2**31))


def _weighted(X: Any, labels: _inputs.Labels, sample_weight: Any) -> tuple[Any, _inputs.Labels, Array]:
    """Rows with their weights; rows of weight 0 are gone, and equal weights of 1 are no weights."""
    none = np.empty(0, np.float32)
    if sample_weight is None:
        return X, labels, none
    weights = _check_sample_weight(sample_weight, X, dtype=np.float32, ensure_non_negative=True)
    used = np.flatnonzero(weights)
    if not len(used):
        raise ValueError("sample_weight is 0 for every row; there is nothing to learn")
    if len(used) < len(weights):
        indicator = sp.csr_array(
            (np.ones(len(labels.indices), np.int8), labels.indices, labels.indptr),
            shape=(len(weights), labels.n_labels),
        )[used]
        indptr, indices = indicator.indptr.astype(np.int64), indicator.indices.astype(np.int32)
        X, labels, weights = X[used], labels._replace(indptr=indptr, indices=indices), weights[used]
    return X, labels, none if (weights == 1).all() else np.ascontiguousarray(weights)
