"""The estimator: its parameters, and the methods that scikit-learn users know. No algorithm is here."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from bonsai_xmc import _calibration, _core, _inputs, _labels, _learning, _memory, _targets, _thresholds
from bonsai_xmc._fitted import VERSION, FittedModel, Provenance
from bonsai_xmc._holdout import choose_threshold
from bonsai_xmc._inputs import TrainingRows
from bonsai_xmc._kept_rows import KeptRows
from bonsai_xmc._params import PREDICTION, PRESETS, check, check_params, seed_of, threads_of
from bonsai_xmc._progress import LOG, Phases, Progress, ProgressBar, memory_for
from bonsai_xmc._store import format as _format
from bonsai_xmc._strategy import Strategy, beam_size, is_auto, n_probe, resolve, search_space
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc._thresholds import FALLBACK
from bonsai_xmc._training import Problem, Report, make_problem, train, warn
from bonsai_xmc._tree import LabelTree
from bonsai_xmc._tuning import gather
from bonsai_xmc._work.checkpoint import Checkpoint
from bonsai_xmc._work.identity import facts_of
from bonsai_xmc._work.work import Runner, Work

if TYPE_CHECKING:
    from bonsai_xmc._explain.objects import Explanation, WhyNot

Array = npt.NDArray[Any]


class Bonsai(ClassifierMixin, BaseEstimator):
    """Extreme multi-label classifier: label trees, one-vs-rest linear classifiers, or a blend of both.

    Trees [1]_: labels are represented by vectors and clustered into shallow, wide, unbalanced trees; each
    node has one linear classifier for each child or label; prediction is a beam search, averaged over the
    trees. One-vs-rest: each label has one linear classifier, trained on all rows. By default `fit` chooses
    what is most accurate on held-out rows; see `classifiers`.

    Parameters
    ----------
    representation : {"input", "output", "joint"} or matrix of shape (n_labels, any), default="input"
        What labels are clustered by: the sum of their rows, the labels that they occur with, both, or vectors
        of your own (embeddings of the labels' names, say). Bonsai-i, -o and -io of the paper.
    n_trees : "auto" or int ≥ 1, default="auto"
        Number of trees, each clustered with another seed. "auto": 3, as in the paper.
    branching_factor : int ≥ 2, default=100
        K, the maximum number of children of a node. The paper uses 100.
    max_leaf_size : int ≥ 1, optional
        Nodes with at most this many labels are not split. Default: `branching_factor`, as in the paper.
    max_depth : "auto", int ≥ 1 or None, default="auto"
        Levels of nodes with classifiers; the root is level 1, so 1 means no tree at all. None: split until
        `max_leaf_size`. "auto": 3 levels, but leaves of 100 × `max_leaf_size` labels or more are split
        further. The paper uses 2 for EURLex and Wiki10, 3 for its larger sets.
    balanced : "auto", "bounded" or bool, default="auto"
        Whether the children of a node get equal numbers of labels, which differ by at most one. False: plain
        k-means, as in the paper; true in Parabel. "bounded": k-means, but a cluster of more than four times
        the mean size, and of 4 × `max_leaf_size`, is split again at the same level, so that no leaf dominates
        the time. "auto": "bounded" for more than 50,000 labels, else False.
    tree : LabelTree, nested lists, its JSON form, or a list of LabelTrees, optional
        Use this tree (or these) instead of clustering. It must hold every label that has a training row;
        other labels are left out. If the tree and Y both have names, labels are matched by name.
    kmeans_tol : float ≥ 0, default=1e-4
        k-means stops when the mean similarity improves by less. The paper's value.
    kmeans_max_iter : int ≥ 1, default=10
        Maximum number of k-means iterations. The paper sets no limit; between 10 and 100, accuracy on
        EURLEX57K and TIBKAT differed by less than it does between seeds.
    kmeans_init : {"random", "k-means++"}, default="random"
        Initial centres: random labels, as in the paper, or k-means++ (its footnote finds no difference).
    C : "auto" or float > 0, default="auto"
        Weight of the losses in ½‖w‖² + C Σ loss. "auto": 1, as in the paper; where `classifiers` are chosen
        on held-out rows, 1, 0.3 or 0.1 for one-vs-rest, whichever is most accurate there.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        max(0, 1 − m)², as in the paper, or log(1 + exp(−m)), of the margin m.
    solver : {"dual", "newton"}, default="dual"
        Dual coordinate descent, or the primal trust-region Newton method that the paper names.
    tol : float > 0, default=0.1
        Tolerance of the solver; 0.1 as in the original implementation.
    max_iter : int ≥ 1, default=20
        Maximum number of passes over a node's rows ("dual") or of Newton steps; 20 as in the original
        implementation.
    prune : "auto" or float ≥ 0, default="auto"
        Weights |w| ≤ prune are dropped. "auto": 0.05 for one-vs-rest, 0.1 for leaf classifiers. The paper
        uses 0.1 for trees and 0.01 for DiSMEC. Classifiers of dense rows, such as embeddings, have many small
        weights and need a smaller value.
    bias : "auto", "learn" or float, default="auto"
        Learn each classifier's bias as the weight of a constant feature 1, or fix it at a number. "auto"
        learns it at the nodes of trees. For one-vs-rest, it is fixed at −1, which is as accurate and much
        faster, but learnt for dense rows and for labels of more than 2 % of the rows. Never pruned.
    classifiers : {"auto", "leaf", "one_vs_rest", "blend"}, default="auto"
        The classifiers that rank labels: "leaf", trained on the rows of a leaf, as in the paper;
        "one_vs_rest", one for each label, trained on all rows (better where rows are informative and label
        sets complete, and for rare labels); or "blend", both. "auto" trains both on a part of the rows, and
        takes what is most accurate on others (``strategy_.evidence``). Without this comparison it takes
        "leaf" where one-vs-rest would take long: if X is dense, or if labels × entries of X are more than
        10¹², unless an index finds the rows that a label needs (50,000 labels or more, no values below 0, the
        default loss, solver and bias) and there are no more than 2 · 10⁷ pairs of a row and a label. It takes
        "one_vs_rest" below 1,000 rows and above 50,000 labels.
    search : {"auto", "exact", "index", "beam"}, default="auto"
        With one-vs-rest, the labels that are scored: all ("exact"), the candidates of an inverted index over
        the classifiers ("index"), or the labels of the leaves that a beam search in trees reaches ("beam").
        "auto": "exact" up to 50,000 labels and for dense X, otherwise "index". Leaf classifiers are always
        found by beam search; a blend scores all labels by one-vs-rest, or those of an index, and the 32 best
        of a beam search by leaf classifiers, too.
    path_weight : "auto" or float ≥ 0, default="auto"
        With one-vs-rest and beam search: weight of the path's log score, which is added to that of the label.
        "auto": 0.
    tail_exponent : "auto" or float ≥ 0, default="auto"
        With one-vs-rest: the C of a label with n rows is multiplied by (m / n) to this power, m being the
        mean over labels, so that errors on rare labels cost more. Needs sparse X, the squared hinge loss,
        the dual solver, and a bias of "auto" or at most −1. "auto": 0.25 where that holds, 0 elsewhere.
    blend_weight : "auto" or float in (0, 1), default="auto"
        With "blend": w in (1 − w) · one-vs-rest score + w · score of the trees. "auto": what is most accurate
        on held-out rows; 0.3 below 1,000 rows.
    logit_adjustment : "auto" or float ≥ 0, default="auto"
        With "one_vs_rest" or "blend": scores are divided by n to this power, n being the number of training
        rows of the label, so that rare labels rank higher (a post-hoc logit adjustment [2]_). "auto": what is
        most accurate on held-out rows, or 0 if these are not compared.
    normalize : bool, default=True
        Divide each row by its Euclidean norm, as the paper's data are.
    keep_rows : bool, default=False
        Keep the training rows in the model, with values of 8 bits (about three bytes for each entry of sparse
        X), so that it can `learn` from further ones. Needs one-vs-rest classifiers.
    beam_size : "auto", int ≥ 1 or None, default="auto"
        Nodes that beam search keeps at each level; None keeps all (exact, slow). "auto": 10, as in the paper.
    n_probe : "auto", int ≥ 1 or None, default="auto"
        With ``search="index"``: blocks of 128 classifiers that are scored for a row; None scores all (exact,
        slow). "auto": 16 + 4 k for the k best labels, which finds 99 % of what exact search finds.
    max_labels : int ≥ 1, default=100
        Maximum number of labels that `predict_proba`, `decision_function` and `predict` return for a row.
    threshold : "auto" or float in [0, 1], default="auto"
        Labels with at least this score are predicted by `predict`. "auto": the one with the best micro-F1 on
        rows that are held out of a second, smaller training at the end of `fit` (`threshold_`). A number,
        such as 0.5, saves that time: up to a fifth of training. Rankings do not depend on it.
    random_state : int, RandomState, Generator or None, default=0
        Seed of clustering and of the order of rows. Equal data, parameters and seed give the same model file,
        byte for byte, whatever `n_jobs`. None: a random seed.
    n_jobs : int, optional
        Threads; None or -1 for all that the process may use.
    verbose : int, default=0
        1 writes a line for each phase to standard error, and shows a progress bar on a terminal. The logger
        "bonsai_xmc" gets a record for each phase in any case.

    Attributes
    ----------
    fitted_ : FittedModel
        The trained model, an immutable object; `fit` sets it as its last step. All other attributes are
        read from it.
    classes_ : array of shape (n_labels,)
        Label names or integers as in the lists of labels, in sorted order; 0 … n_labels − 1 for a matrix.
        Names that `rename`, `merge` and `learn` have changed or added are not sorted.
    trees_ : list of LabelTree
        The trees, to inspect and to export; empty if the model has none.
    strategy_ : Strategy
        How the model was trained: the value that each parameter was resolved to, the reason, and the evidence
        from held-out rows.
    classifiers_, search_ : str
        The values that `classifiers` and `search` were resolved to.
    threshold_ : float
        The threshold that ``threshold="auto"`` uses.
    calibration_ : dict or None
        Method, groups and number of rows of `calibrate`, and the expected calibration error of the five best
        labels before and after, measured by halves of the rows; None before.
    n_iter_ : int
        Passes (or Newton steps) of the slowest classifier.
    label_counts_ : array of shape (n_labels,)
        Number of training rows of each label; None if they are not known, as of imported models.
    n_rows_fit_ : int
        Number of training rows, or None likewise.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of shape (n_features,)
        Their names, if X was a data frame with names.
    seed_ : int
        The seed that was used.
    timings_ : dict
        Seconds for each phase of `fit`; not saved.

    References
    ----------
    .. [1] S. Khandagale, H. Xiao, R. Babbar: Bonsai – Diverse and Shallow Trees for Extreme Multi-label
       Classification. Machine Learning, 2020.
    .. [2] A. K. Menon et al.: Long-tail learning via logit adjustment. ICLR, 2021.

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
        balanced: bool | str = "auto",
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
        blend_weight: float | str = "auto",
        logit_adjustment: float | str = "auto",
        normalize: bool = True,
        keep_rows: bool = False,
        beam_size: int | str | None = "auto",
        n_probe: int | str | None = "auto",
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
        self.blend_weight = blend_weight
        self.logit_adjustment = logit_adjustment
        self.normalize = normalize
        self.keep_rows = keep_rows
        self.beam_size = beam_size
        self.n_probe = n_probe
        self.max_labels = max_labels
        self.threshold = threshold
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """An estimator with the parameters of a preset; keyword arguments override them.

        The methods of the paper: ``"bonsai-i"``, ``"bonsai-o"``, ``"bonsai-io"`` (pass
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

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        runner: Runner | None = None,
        max_memory: int | str | None = "auto",
        progress: Progress | None = None,
    ) -> Self:
        """Learn from rows X and their label sets y (called Y elsewhere; scikit-learn passes it as `y`).

        A call that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : sparse matrix, sparse array, array-like or data frame of shape (n_rows, n_features)
            Any format, any real dtype. Rows of which half of the entries or more are not 0, such as
            embeddings, are handled as dense.
        y : sparse or dense 0/1 matrix of shape (n_rows, n_labels), data frame of one, or lists of labels
            Lists hold label names (strings) or integers; both are keys, not column numbers. Labels without
            rows are allowed, and never predicted; rows without labels are allowed, too. Some tools of
            scikit-learn do not accept lists of lists: give `GridSearchCV` a splitter (``cv=KFold(5)``), or
            sets instead of lists. `cross_val_predict` needs a matrix, as the folds would have different
            labels.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows in the losses and in the label vectors. Rows of weight 0 are left out.
        checkpoint : path, optional
            A folder for the results of finished units of work. After a crash or an interrupt, the same call
            continues where it stopped, and ends with the same model. A folder of other data, parameters or
            another version is refused (ValueError). It can be deleted when training is over.
        runner : Runner, optional
            Who solves the units of work; default: threads of this process (`n_jobs`).
        max_memory : "auto", None, int or str, default="auto"
            Bytes that the process may take, X and Y included: a number, or one with a unit ("4GB"). Where
            all threads would need more, some phases have fewer; the model is the same. Where one thread would
            need more, a MemoryError says so at the start, and what would fit. "auto": the limit of the
            control group (of a container) or of RLIMIT_AS, if there is one. None: no limit.
        progress : callable, optional
            Called as ``progress(phase, done, total)`` a few times a second and at the end of each phase.
            `done` and `total` are in any unit; a `total` of 0 means that it is not known yet. An exception
            that it raises ends the call.
        """
        params = self.get_params(deep=False)
        check_params(params)
        phases = Phases(ProgressBar() if progress is None and self.verbose else progress)
        rows, text = self._read(X, phases)
        problem = self._problem(rows, y, sample_weight)
        seed, threads = seed_of(self.random_state), threads_of(self.n_jobs)
        with contextlib.ExitStack() as stack:
            kept = None
            if checkpoint is not None:
                kept = stack.enter_context(Checkpoint(checkpoint, facts_of(problem, params, seed)))
            plan = self._plan(problem, params, threads, max_memory)
            work = Work(threads, phases, runner, kept, fewer=plan.threads, batch_rows=plan.batch_rows)
            strategy, core, report, threshold = self._train(problem, params, seed, work)
            fitted = FittedModel(
                core=core,
                classes=problem.labels.classes,
                label_counts=problem.labels.counts,
                n_rows=problem.rows.n_rows,
                n_features=problem.rows.n_features,
                feature_names=problem.rows.feature_names,
                id_base=None,
                strategy=strategy,
                given=_format.given_params(params, seed),
                threshold=threshold,
                provenance=Provenance(VERSION, _core.isa(), max(1, report.max_iter), seed),
                text=text,
                rows=self._kept_rows(problem, core),
                timings=phases.seconds,
            )
            fitted = self._finished(fitted, problem, work)
        self.fitted_ = fitted
        return self

    def _kept_rows(self, problem: Problem, core: _core.Model) -> KeptRows | None:
        if not self.keep_rows:
            return None
        if core.one_vs_rest is None:
            warnings.warn(
                "keep_rows: no rows are kept, as label trees alone cannot learn from further ones; choose "
                'classifiers="one_vs_rest" or "blend"',
                stacklevel=3,
            )
            return None
        rows = KeptRows.make(problem.rows.rows, problem.labels, problem.weights)
        LOG.info("%d rows are kept, %.1f MB", rows.n_rows, rows.n_bytes / 1e6)
        return rows

    def _finished(self, fitted: FittedModel, problem: Problem, work: Work) -> FittedModel:
        """The result of `fit`, from what was trained on the problem."""
        return fitted

    def _train(
        self, problem: Problem, params: dict[str, Any], seed: int, work: Work
    ) -> tuple[Strategy, _core.Model, Report, float]:
        """The strategy that is best for the problem, the model, how training went, and the threshold."""
        evidence, tried = None, search_space(params, problem.facts)
        if tried is not None:
            evidence = gather(problem, params, tried, seed, work)
        strategy = resolve(params, problem.facts, evidence)
        LOG.info("%s classifiers, %s search: %s", strategy.classifiers, strategy.search, strategy.reason)
        if strategy.evidence:
            LOG.info("%s", strategy.evidence)
        core, report = train(problem, strategy, seed, work)
        warn(core, report, strategy, problem.facts.n_labels, stacklevel=3)
        threshold = FALLBACK
        if is_auto(self.threshold):
            threshold = choose_threshold(problem, strategy, core, seed, work)
        return strategy, core, report, threshold

    def _read(self, X: Any, phases: Phases) -> tuple[TrainingRows, FittedText | None]:
        """X of `fit` as rows, and the fitted vectorizer if X holds texts."""
        return _inputs.training_rows(X, type(self).__name__), None

    def _rows(self, X: Any, fitted: FittedModel) -> _inputs.CoreRows:
        """X of a prediction as rows."""
        return _inputs.prediction_rows(X, self, fitted.n_features, fitted.feature_names is not None)

    def _problem(self, rows: TrainingRows, y: Any, sample_weight: Any = None) -> Problem:
        labels = _targets.labels_of(y)
        weights = _targets.row_weights(sample_weight, rows.n_rows)
        return make_problem(rows, labels, weights, self.representation, self.tree)

    def top_k(
        self,
        X: Any,
        k: int = 5,
        *,
        exact: bool = False,
        restrict: Any = None,
        exclude: Any = None,
        progress: Progress | None = None,
    ) -> tuple[Array, Array]:
        """The k best labels of each row, best first.

        Parameters
        ----------
        X : as in `fit`, with the same features
        k : int ≥ 1, default=5
        exact : bool, default=False
            Score all labels, independent of `search_`, `beam_size` and `n_probe`.
        restrict, exclude : iterable of labels, or array of bool of shape (n_labels,), optional
            Find only these labels (a language, a department, what is in stock), and not those. Labels that
            the model does not have are ignored. The search has no other candidates: a beam, say, is spent on
            nodes with such labels. With ``exact=True``, and wherever all labels are scored, this equals
            filtering a ranking of all labels.
        progress : callable, optional
            As in `fit`; the phase is "predict".

        Returns
        -------
        ids : int32 array of shape (n_rows, k)
            Indices into `classes_`, which are columns of Y if that was a matrix; −1 where there are fewer
            candidates, as for a row without features, or fewer labels than k.
        scores : float32 array of shape (n_rows, k)
            As in `predict_proba`; 0 where there are fewer candidates.
        """
        ids, scores = self._ranked(X, k, exact, restrict, exclude, progress)
        return ids, self.fitted_.scores(ids, scores)

    def _ranked(
        self,
        X: Any,
        k: int,
        exact: bool = False,
        restrict: Any = None,
        exclude: Any = None,
        progress: Progress | None = None,
    ) -> tuple[Array, Array]:
        """The ids of `top_k`, with log scores: −∞ where there are fewer candidates."""
        fitted = self._require_fitted()
        if not isinstance(k, int | np.integer) or isinstance(k, bool):
            raise ValueError(f"k is {k!r}, but must be an integer")
        if k < 1:
            raise ValueError(f"k is {k}, but must be at least 1")
        if k >= 2**31:
            raise ValueError(f"k is {k}, but must be at most 2³¹ − 1")
        beam = beam_size(self.beam_size, fitted.strategy.n_trees, fitted.strategy.search)
        adjusted = fitted.strategy.logit_adjustment > 0
        probes = n_probe(self.n_probe, fitted.strategy.search, int(k), fitted.n_labels, adjusted)
        threads = threads_of(self.n_jobs)
        rows = self._rows(X, fitted)
        watch = None if progress is None else lambda done, total: progress("predict", done, total)
        n_labels = fitted.n_labels
        doing = f"to predict the {int(k):,} best labels of these rows"
        with memory_for(doing, "predict fewer rows at a time"):
            ids, scores = fitted.top_k(
                rows,
                min(int(k), n_labels),
                allowed=_labels.allowed_labels(fitted, restrict, exclude),
                beam_size=0 if exact else beam,
                exact=bool(exact),
                n_probe=probes,
                path_weight=fitted.strategy.path_weight,
                threads=threads,
                progress=watch,
            )
        if k > n_labels:
            more = ((0, 0), (0, int(k) - n_labels))
            ids = np.pad(ids, more, constant_values=-1)
            scores = np.pad(scores, more, constant_values=-np.inf)
        return ids, scores

    def top_k_labels(
        self, X: Any, k: int = 5, *, restrict: Any = None, exclude: Any = None
    ) -> list[list[tuple[Any, float]]]:
        """The k best labels of each row as (label, score), best first; labels as in `classes_`.

        `restrict` and `exclude` as in `top_k`.
        """
        ids, scores = self.top_k(X, k, restrict=restrict, exclude=exclude)
        labels = self.classes_[ids].tolist()  # of these alone: there may be a million others
        return [
            [(label, score) for label, score, i in zip(*of_row, strict=True) if i >= 0]
            for of_row in zip(labels, scores.tolist(), ids.tolist(), strict=True)
        ]

    def decision_function(self, X: Any, *, restrict: Any = None, exclude: Any = None) -> sp.csr_array:
        """Ranking scores of the `max_labels` best labels of each row; others are absent, that is, 0.

        1 / (1 − log score), from just above 0 to 1, in the order of `top_k`: higher is better, absent is
        worst, and labels of equal score, which `top_k` ranks by their margins, differ in the last digit.
        `restrict` and `exclude` as in `top_k`.
        """
        ids, scores = self._ranked(X, self._max_labels(), restrict=restrict, exclude=exclude)
        values = 1.0 / (1.0 - scores.astype(np.float64))
        for rank in range(1, values.shape[1]):
            np.minimum(values[:, rank], np.nextafter(values[:, rank - 1], 0), out=values[:, rank])
        return self._sparse(ids, values)

    def predict_proba(self, X: Any, *, restrict: Any = None, exclude: Any = None) -> sp.csr_array:
        """Scores in [0, 1] of the `max_labels` best labels of each row; others are absent, that is, 0.

        Before `calibrate` they are not probabilities, in spite of the method's name, but exp(−loss) of a
        label's classifier; with trees, the mean over the trees of the product along the path; with a blend,
        the weighted mean of both. The logit adjustment comes last. After `calibrate`, each estimates the
        probability that the label is right. `restrict` and `exclude` as in `top_k`.
        """
        ids, scores = self._ranked(X, self._max_labels(), restrict=restrict, exclude=exclude)
        return self._sparse(ids, self.fitted_.scores(ids, scores))

    def predict(self, X: Any, *, restrict: Any = None, exclude: Any = None) -> sp.csr_array:
        """0/1 matrix of the labels whose score is at least `threshold`, up to `max_labels` for each row.

        `restrict` and `exclude` as in `top_k`.
        """
        fitted = self._require_fitted()
        check("threshold", self.threshold)
        threshold = fitted.threshold if is_auto(self.threshold) else self.threshold
        scores = self.predict_proba(X, restrict=restrict, exclude=exclude)
        result = sp.csr_array(
            ((scores.data >= threshold).astype(np.int8), scores.indices, scores.indptr), shape=scores.shape
        )
        result.eliminate_zeros()
        return result

    def calibrate(self, X: Any, Y: Any, *, method: str = "isotonic", groups: str | None = None) -> Self:
        """Make scores say how often labels with such a score are right; rankings do not change.

        On rows that the model was not trained on. Of the ten best labels of each, those that are right are
        learnt as a function of the score. Later predictions, `save` and `threshold_` use calibrated scores: a
        threshold that was given as a number is compared with these, and `threshold_` is chosen again for
        micro-F1. Calling it again starts from the raw scores; `fit` forgets it. `calibration_` says what
        it brought.

        Parameters
        ----------
        X, Y : as in `fit`
            Rows and their labels; labels that the model does not have are ignored. Some thousand rows are
            better than some hundred.
        method : {"isotonic", "platt"}, default="isotonic"
            scikit-learn's isotonic regression, or its logistic regression on the log score, which needs fewer
            rows, but fits less well.
        groups : None or "frequency", default=None
            One map for all labels, or one for each of head, torso and tail labels, as
            ``metrics.evaluate(by_frequency=True)`` defines them. Rare labels are often right more seldom than
            their score says. Labels are still ranked by their raw scores, so that a label of one group may
            have a lower score than a label of another group that is ranked below it.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai, datasets
        >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
        >>> model = Bonsai(threshold=0.5).fit(data.X_train, data.Y_train)
        >>> before = model.top_k(data.X_test, 5)[0]
        >>> found = model.calibrate(data.X_test, data.Y_test).calibration_
        >>> found["error_after"] < found["error_before"]
        True
        >>> bool((model.top_k(data.X_test, 5)[0] == before).all())
        True
        """
        _calibration.check_options(method, groups)
        fitted = self._require_fitted()
        if groups is not None and fitted.imported:
            raise ValueError("groups need the frequencies of labels, which are unknown for imported models")
        ids, log_scores, right, sizes = self._judged(X, Y)
        learnt = _calibration.learn(ids, log_scores, right, fitted.label_counts, method, groups)
        scores = learnt.scores(ids, log_scores, fitted.label_counts, apart=False)
        threshold = _thresholds.choose(ids, scores, right, sizes, ("micro_f1", 0))
        self.fitted_ = replace(fitted, calibration=learnt, threshold=threshold)
        return self

    def choose_threshold(self, X: Any, Y: Any, objective: Any = "micro_f1") -> float:
        """The best threshold of `predict` for an objective, on rows that the model was not trained on.

        Changes nothing: ``model.set_params(threshold=model.choose_threshold(X, Y))`` uses it.

        Parameters
        ----------
        X, Y : as in `fit`
            Rows and their labels; labels that the model does not have count as missed.
        objective : "micro_f1", "f1_at_5" or ("precision", p), default="micro_f1"
            "micro_f1": F1 of all predictions of `predict`. "f1_at_5", and the like for other numbers: mean
            over rows of F1, of at most five labels a row, as Annif computes it. ("precision", 0.8): the
            lowest threshold with which at least 80 % of all predictions are right.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai, datasets
        >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
        >>> model = Bonsai(threshold=0.5).fit(data.X_train, data.Y_train)
        >>> careful = model.choose_threshold(data.X_test, data.Y_test, ("precision", 0.9))
        >>> careful > model.choose_threshold(data.X_test, data.Y_test, "micro_f1")
        True
        """
        wanted = _thresholds.objective_of(objective)
        ids, log_scores, right, sizes = self._judged(X, Y)
        scores = self.fitted_.scores(ids, log_scores, apart=False)
        return _thresholds.choose(ids, scores, right, sizes, wanted)

    def _judged(self, X: Any, Y: Any) -> tuple[Array, Array, Array, Array]:
        """The `max_labels` best labels of each row: ids, log scores, whether each is right; and the number of
        true labels of each row, whether the model has them or not."""
        fitted = self._require_fitted()
        Y = list(Y) if isinstance(Y, Iterator) else Y
        ids, log_scores = self._ranked(X, self._max_labels())
        truth = _targets.over_classes(Y, fitted.classes)
        _targets.check_rows(len(ids), truth.shape[0])
        right = _targets.is_true(truth, ids)
        return ids, log_scores, right, np.diff(_targets.labels_of(Y).indptr)

    def _max_labels(self) -> int:
        check("max_labels", self.max_labels)
        return min(int(self.max_labels), self._require_fitted().n_labels)

    def _sparse(self, ids: Array, values: Array) -> sp.csr_array:
        found = ids >= 0
        indptr = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        result = sp.csr_array((values[found], ids[found], indptr), shape=(len(ids), len(self.classes_)))
        result.sort_indices()
        return result

    def explain(self, x: Any, label: Any) -> "Explanation":
        """Why a row has its score for a label: the features that push it up or down, by name.

        Parameters
        ----------
        x : one row, as a vector or a matrix of one row (`TextBonsai`: a text or a record)
        label : str or int
            As in `classes_`; of a `TextBonsai` also the label's name.

        Returns
        -------
        Explanation
            ``print`` shows a table, notebooks show HTML; `to_dict`, `to_html`. The integer products of its
            decisions add up to each classifier's integer margin, exactly.

        Examples
        --------
        >>> X = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
        >>> Y = [["red"], ["green"], ["red", "green"], ["blue"]]
        >>> why = Bonsai().fit(X, Y).explain([0, 0, 2], "blue")
        >>> why.rank, [(effect.name, effect.effect > 0) for effect in why.effects]
        (1, [('feature 2', True)])
        >>> own = why.one_vs_rest
        >>> own.integer_margin == sum(contribution.product for contribution in own.contributions)
        True
        """
        from bonsai_xmc._explain.verbs import explain

        return explain(self, x, label)

    def why_not(self, x: Any, label: Any, *, n_ahead: int = 3) -> "WhyNot":
        """Why a row does not get a label: its rank among all labels, and who is ahead by which features.

        For a label that beam search loses, also the node where it falls out, its score there and the lowest
        score that was kept.

        Parameters
        ----------
        x, label : as in `explain`
        n_ahead : int ≥ 0, default=3
            Labels ahead of it to compare with, the best ones.

        Examples
        --------
        >>> X = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
        >>> Y = [["red"], ["green"], ["red", "green"], ["blue"]]
        >>> answer = Bonsai().fit(X, Y).why_not([0, 0, 2], "red")
        >>> answer.rank, answer.ahead[0].label
        (2, 'blue')
        """
        from bonsai_xmc._explain.verbs import why_not

        return why_not(self, x, label, n_ahead)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """P@1: the share of rows whose best label is right."""
        ids, _ = self.top_k(X, 1)
        truth = _targets.over_classes(y, self.classes_)
        _targets.check_rows(len(ids), truth.shape[0])
        rows, _ = np.nonzero(ids >= 0)
        best = sp.csr_array((np.ones(len(rows)), (rows, ids[rows, 0])), shape=truth.shape)
        return float(np.average(truth.multiply(best).sum(axis=1), weights=sample_weight))

    # --- labels that change ---

    def drop(self, labels: Any) -> Self:
        """A model without these labels.

        This model does not change; nothing is trained again, and the scores of all other labels stay as they
        are. Names keep their order in `classes_`; integers ascend.

        Parameters
        ----------
        labels : iterable of labels as in `classes_`

        Returns
        -------
        A fitted estimator with the parameters of this one.

        Examples
        --------
        >>> model = Bonsai().fit([[1, 0], [0, 1], [1, 1]], [["red"], ["green"], ["red", "blue"]])
        >>> model.drop(["blue"]).classes_.tolist()
        ['green', 'red']
        """
        return self._with(_labels.drop(self._require_fitted(), labels, threads_of(self.n_jobs)))

    def restrict(self, labels: Any) -> Self:
        """A model of these labels alone: smaller and faster; see `drop`.

        Labels that the model does not have are ignored. For a single prediction,
        ``top_k(X, restrict=labels)`` finds the same, and copies no weights.
        """
        return self._with(_labels.restrict(self._require_fitted(), labels, threads_of(self.n_jobs)))

    def rename(self, names: Any) -> Self:
        """A model whose labels have other names, or other integers; see `drop`.

        Parameters
        ----------
        names : mapping of old to new labels
            All labels are names, or all are integers, before and after.

        Examples
        --------
        >>> model = Bonsai().fit([[1, 0], [0, 1]], [["red"], ["green"]])
        >>> model.rename({"red": "crimson"}).classes_.tolist()
        ['green', 'crimson']
        """
        return self._with(_labels.rename(self._require_fitted(), names, threads_of(self.n_jobs)))

    def merge(self, labels: Any, into: Any) -> Self:
        """A model in which several labels are one; see `drop`.

        All of their classifiers stay, and the highest of their scores is the score of the new label. So
        `predict` gives it to a row exactly if it would give it one of the old ones. Its number of training
        rows is the sum of theirs, as rows with several of them are not known any more.

        Parameters
        ----------
        labels : iterable of labels
        into : label
            One of them, another label, which is merged with them, or a new one.

        Examples
        --------
        >>> model = Bonsai().fit([[1, 0], [0, 1], [1, 1]], [["red"], ["green"], ["crimson"]])
        >>> model.merge(["red", "crimson"], into="red").classes_.tolist()
        ['red', 'green']
        """
        return self._with(_labels.merge(self._require_fitted(), labels, into, threads_of(self.n_jobs)))

    def learn(self, X: Any, Y: Any, sample_weight: Any = None, *, progress: Progress | None = None) -> Self:
        """A model that has learnt from further rows, too. This one, trained with `keep_rows`, stays as it is.

        Only the one-vs-rest classifiers of the labels of these rows are trained again. They go on from what
        they are: new rows join with their loss, old positives with what a change of their margins costs.
        New labels are trained on all rows, old and new. Label trees, the threshold and the calibration stay
        as they are; the vocabulary of a model of texts does, too: words that it does not have are ignored. In
        trees, a new label goes to the leaf that its weights lead to.

        Parameters
        ----------
        X : as in `fit`, with the same features
        Y : as in `fit`
            Lists may hold new labels. A matrix has a column for each label, or, if the model was trained on
            one, for new ones, too.
        sample_weight, progress
            As in `fit`.

        Examples
        --------
        >>> model = Bonsai(classifiers="one_vs_rest", keep_rows=True)
        >>> model = model.fit([[1, 0, 0], [0, 1, 0]], [["red"], ["green"]])
        >>> model = model.learn([[0, 0, 1], [1, 0, 1]], [["blue"], ["red", "blue"]])
        >>> model.top_k_labels([[0, 0, 1]], k=1)[0][0][0]
        'blue'
        """
        fitted = self._require_fitted()
        _learning.check_can_learn(fitted)
        rows = self._rows(X, fitted)
        labels = _learning.new_labels_of(Y, fitted)
        n_rows = len(rows[0]) - 1 if isinstance(rows, tuple) else len(rows)
        if labels.n_rows != n_rows:
            raise ValueError(f"X has {n_rows:,} rows, but Y has {labels.n_rows:,}; they must be equally many")
        weights = _targets.row_weights(sample_weight, n_rows)
        if weights is not None and not weights.all():
            raise ValueError("sample_weight holds 0; leave out the rows that shall not count")
        phases = Phases(ProgressBar() if progress is None and self.verbose else progress)
        work = Work(threads_of(self.n_jobs), phases)
        return self._with(_learning.learn(fitted, rows, labels, weights, fitted.provenance.seed, work))

    def _with(self, fitted: FittedModel) -> Self:
        """An estimator with the same parameters and another model."""
        other = type(self)(**self.get_params(deep=False))
        other.fitted_ = fitted
        return other

    def memory_estimate(self, X: Any, Y: Any) -> dict[str, Any]:
        """What `fit(X, Y)` will need, in bytes; about a hundredth of the labels are trained for it.

        Returns
        -------
        dict
            "training_bytes": the peak of resident memory, X and Y included, Python and its libraries (some
            150 MB) not; "phases": the same for each phase; "model_bytes": the size of the model.
        """
        params = self.get_params(deep=False)
        check_params(params)
        problem = self._problem(self._read(X, Phases(None))[0], Y)
        strategy, options = self._largest(problem, params)
        given = _inputs.bytes_beside(X, problem.rows.rows) + _inputs.bytes_beside(Y, ())
        return _memory.estimate(problem, strategy, threads_of(self.n_jobs), given=given, **options)

    def _plan(
        self, problem: Problem, params: dict[str, Any], threads: int, max_memory: int | str | None
    ) -> _memory.Plan:
        if _memory.available(max_memory) is None:
            return _memory.Plan()
        strategy, options = self._largest(problem, params)
        return _memory.plan_for(problem, strategy, threads, max_memory, **options)

    def _largest(self, problem: Problem, params: dict[str, Any]) -> tuple[Strategy, dict[str, bool]]:
        """What memory is estimated for: of what held-out rows may choose, that which needs most."""
        tunes = search_space(params, problem.facts) is not None
        params = params | ({"classifiers": "blend"} if tunes else {})
        return resolve(params, problem.facts), {"tunes": tunes, "threshold": is_auto(self.threshold)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file: a safetensors container, replaced atomically.

        Training parameters are those that `fit` used; `beam_size`, `n_probe`, `max_labels` and `threshold`
        are saved as they are now. A file that is replaced keeps its mode, and its owner where possible.
        """
        fitted = self._require_fitted()
        prediction = {name: getattr(self, name) for name in PREDICTION}
        for name, value in prediction.items():
            check(name, value)
        beam_size(self.beam_size, fitted.strategy.n_trees, fitted.strategy.search)
        n_probe(self.n_probe, fitted.strategy.search, 1, fitted.n_labels)
        _format.save(path, fitted, prediction)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool | str = True, verify: bool = False) -> Self:
        """A model from a file that `save` wrote.

        Parameters
        ----------
        path : path
        mmap : {True, False, "sealed"}, default=True
            True maps the weights: loading takes milliseconds, and processes that load the same file share its
            memory. The file must not change: replace it by renaming a new file to its name, as `save` does;
            processes that have mapped the old file keep it. Overwriting it in place (``cp new.bonsai
            model.bonsai``) changes the scores of every process that has mapped it, and truncating it kills
            them by a signal. False reads the file into memory of this process, which no other process can
            change, on huge pages where the system has them: single rows of a model of a gigabyte take an
            eighth less time. "sealed" reads it into immutable memory that processes forked from this one
            share: for services with many workers (Linux).
        verify : bool, default=False
            Check all checksums, and every index. Otherwise a damaged file may give wrong scores, but never a
            crash.

        Examples
        --------
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "model.bonsai")
        >>> Bonsai().fit([[1, 0], [0, 1]], [["red"], ["green"]]).save(path)
        >>> Bonsai.load(path, mmap=False).top_k_labels([[1, 0]], k=1)[0][0][0]
        'red'
        """
        fitted, prediction = _format.load(path, mmap, verify)
        cls._check_kind(path, fitted)
        params = dict(fitted.given) | cls._text_params(fitted)
        given_tree = params.pop("tree", None) is not None
        model = cls(**params, **prediction)
        if given_tree:
            model.tree = fitted.trees()
        model.fitted_ = fitted
        return model

    @classmethod
    def _check_kind(cls, path: str | os.PathLike[str], fitted: FittedModel) -> None:
        if fitted.text is not None:
            raise ValueError(f"{os.fspath(path)} is a model of texts: load it by TextBonsai.load")

    @classmethod
    def _text_params(cls, fitted: FittedModel) -> dict[str, Any]:
        return {}

    # --- attributes of the fitted model ---

    @property
    def classes_(self) -> Array:
        return self._require_fitted().classes

    @property
    def trees_(self) -> list[LabelTree]:
        return self._require_fitted().trees()

    @property
    def strategy_(self) -> Strategy:
        return self._require_fitted().strategy

    @property
    def classifiers_(self) -> str:
        return self._require_fitted().strategy.classifiers

    @property
    def search_(self) -> str:
        return self._require_fitted().strategy.search

    @property
    def threshold_(self) -> float:
        return self._require_fitted().threshold

    @property
    def calibration_(self) -> dict[str, Any] | None:
        fitted = self._require_fitted()
        return None if fitted.calibration is None else fitted.calibration.to_arrays()[0]

    @property
    def n_iter_(self) -> int:
        return self._require_fitted().provenance.n_iter

    @property
    def label_counts_(self) -> Any:
        fitted = self._require_fitted()
        return None if fitted.imported else fitted.label_counts

    @property
    def n_rows_fit_(self) -> Any:
        return self._require_fitted().n_rows

    @property
    def n_features_in_(self) -> int:
        return self._require_fitted().n_features

    @property
    def feature_names_in_(self) -> Array:
        names = self._require_fitted().feature_names
        if names is None:
            raise AttributeError("feature_names_in_: X had no feature names")
        return names

    @property
    def seed_(self) -> int:
        return self._require_fitted().provenance.seed

    @property
    def timings_(self) -> dict[str, float]:
        return dict(self._require_fitted().timings)

    def _require_fitted(self) -> FittedModel:
        fitted: Any = self.__dict__.get("fitted_")
        if fitted is None:
            check_is_fitted(self)  # a NotFittedError is an AttributeError, as properties need it
        return fitted

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags
