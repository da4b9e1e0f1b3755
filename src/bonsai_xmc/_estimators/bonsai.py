"""`Bonsai`: the parameters, and training on matrices."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from bonsai_xmc._base.params import PARAMETERS, PRESETS, check_params, is_by_names
from bonsai_xmc._base.progress import LOG, Progress, phases_of
from bonsai_xmc._base.random import seed_of
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data.rows import bytes_beside, training_rows
from bonsai_xmc._estimators.matrix import FitOptions, Job, MatrixClassifier
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.strategy import Strategy, beam_size
from bonsai_xmc._model.thresholds import PER_LABEL
from bonsai_xmc._selection import pruning
from bonsai_xmc._selection.default import gather
from bonsai_xmc._selection.probes import measure
from bonsai_xmc._selection.strategy import blend_weights, resolve, search_space
from bonsai_xmc._selection.threshold import Thresholds, choose_threshold
from bonsai_xmc._training import memory
from bonsai_xmc._training.checkpoint import Checkpoint
from bonsai_xmc._training.identity import facts_of
from bonsai_xmc._training.train import Problem, Report, grow, train, warn
from bonsai_xmc._training.work import Runner, Work

if TYPE_CHECKING:
    from bonsai_xmc import _core


@dataclass(eq=False, repr=False)
class Bonsai(MatrixClassifier):
    """Extreme multi-label classifier: label trees, one-vs-rest linear classifiers, or a blend of both.

    Trees [1]_: labels are represented by vectors and clustered into shallow, wide, unbalanced trees; each
    node has one linear classifier for each child or label; prediction is a beam search, averaged over the
    trees. One-vs-rest: each label has one linear classifier, trained on all rows. By default `fit` chooses
    what is most accurate on held-out rows; see `classifiers`.

    Parameters
    ----------
    representation : str or matrix of shape (n_labels, any), default="input"
        What labels are clustered by: the sum of their rows ("input"), the labels that they occur with
        ("output"), both ("joint"), or vectors of your own. Bonsai-i, -o and -io of the paper. "text": vectors
        of their names, in a `TextBonsai` with `label_texts`: those of its encoder, or TF-IDF of words;
        "input+text", "output+text" and "joint+text": these together with the others.
    n_trees : int ≥ 1, default=3
        Number of trees, each clustered with another seed. The paper uses 3.
    branching_factor : int ≥ 2, default=100
        K, the maximum number of children of a node. The paper uses 100.
    max_leaf_size : int ≥ 1, optional
        Nodes with at most this many labels are not split. Default: `branching_factor`, as in the paper.
    max_depth : "auto", int ≥ 1 or None, default="auto"
        Levels of nodes with classifiers; the root is level 1, so 1 means no tree at all. None: split until
        `max_leaf_size`. "auto": 3 levels, but leaves of 100 × `max_leaf_size` labels or more are split
        further. The paper uses 2 for EURLex and Wiki10, 3 for its larger sets.
    balance : {"auto", "none", "bounded", "equal"}, default="auto"
        How even the children of a node are. "none": plain k-means, as in the paper. "bounded": k-means, but
        a cluster of more than four times the mean size, and of 4 × `max_leaf_size`, is split again at the
        same level, so that no leaf dominates the time. "equal": numbers of labels differ by at most one, as
        in Parabel. "auto": "bounded" for more than 50,000 labels, else "none".
    C : "auto" or float > 0, default="auto"
        Weight of the losses in ½‖w‖² + C Σ loss. "auto": 1, as in the paper; where `classifiers` are chosen
        on held-out rows, 1, 0.3 or 0.1 for one-vs-rest, whichever is most accurate there. Ten times as much
        with the logistic loss.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        max(0, 1 − m)², as in the paper, or log(1 + exp(−m)), of the margin m. With "logistic", the score of a
        classifier is 1 / (1 + exp(−m)), an estimate of a probability. It ranks about as well where labels are
        few and frequent; where they are many and rare, the squared hinge is more accurate and trains faster.
    solver : {"dual", "newton"}, default="dual"
        Dual coordinate descent, or the primal trust-region Newton method that the paper names.
    tol : float > 0, default=0.1
        Tolerance of the solver; 0.1 as in the original implementation.
    max_iter : int ≥ 1, default=20
        Maximum number of passes over a node's rows ("dual") or of Newton steps; 20 as in the original
        implementation.
    prune : "auto" or float ≥ 0, default="auto"
        Weights |w| ≤ prune are dropped. "auto": 0.05 for one-vs-rest, 0.1 for leaf classifiers; of more than
        50,000 labels, up to 0.3 if that loses nothing on held-out rows. The paper uses 0.1 for trees and 0.01
        for DiSMEC. Classifiers of dense rows, such as embeddings, have many small weights and need a smaller
        value.
    classifiers : {"auto", "leaf", "one_vs_rest", "blend"}, default="auto"
        The classifiers that rank labels: "leaf", trained on the rows of a leaf, as in the paper;
        "one_vs_rest", one for each label, trained on all rows (better where rows are informative and label
        sets complete, and for rare labels); or "blend", both. "auto" trains both on a part of the rows, and
        takes what is most accurate on others (``strategy_.evidence``). Without this comparison it takes
        "leaf" where one-vs-rest would take long: if labels × entries of X are more than 10¹² (dense X: 10¹¹,
        or more than 50,000 labels), unless an index finds the rows that a label needs (50,000 labels or more,
        no values below 0, the default loss and solver) and there are no more than 2 · 10⁷ pairs of a
        row and a label. It takes "one_vs_rest" below 1,000 rows and above 50,000 labels.
    search : {"auto", "exact", "index"}, default="auto"
        With one-vs-rest, the labels that are scored: all ("exact"), or the candidates of an inverted index
        over the classifiers ("index"). "auto": "exact" up to 50,000 labels and for dense X, otherwise
        "index". Leaf classifiers are always found by beam search; a blend scores all labels by one-vs-rest,
        or those of an index, and the 32 best of a beam search by leaf classifiers, too.
    tail_exponent : "auto" or float ≥ 0, default="auto"
        With one-vs-rest: the C of a label with n rows is multiplied by (m / n) to this power, m being the
        mean over labels, so that errors on rare labels cost more. Needs sparse X, the squared hinge loss
        and the dual solver. "auto": 0.25 where that holds, 0 elsewhere.
    blend_weight : "auto", float in (0, 1) or pair, default="auto"
        With "blend": w in (1 − w) · one-vs-rest score + w · score of the trees. "auto": what is most accurate
        on held-out rows; 0.3 below 1,000 rows. A pair (w, f), as in ("auto", 0): with "one_vs_rest", too, f
        in (1 − f) · score + f · score of 50 trees over rows, as FastXML grows them, without normalisation.
        "auto", or only w: the f that is most accurate on held-out rows, if the gain is worth the time of the
        trees, which is so where labels are few and rows have many of them. 0 without this comparison, and
        for dense X.
    logit_adjustment : "auto" or float ≥ 0, default="auto"
        With "one_vs_rest" or "blend": scores are divided by n to this power, n being the number of training
        rows of the label, so that rare labels rank higher (a post-hoc logit adjustment [2]_). "auto": what is
        most accurate on held-out rows, or 0 if these are not compared.
    normalize : bool, default=True
        Divide each row by its Euclidean norm, as the paper's data are.
    beam_size : int ≥ 1 or None, default=10
        Nodes that beam search keeps at each level, 10 as in the paper; None keeps all (exact, slow).
    n_probe : "auto", int ≥ 1 or None, default="auto"
        With ``search="index"``: blocks of 128 classifiers that are scored for a row; None scores all (exact,
        slow). "auto": as many as find 99.5 % of what scoring all blocks finds, measured for the 5 and the 10
        best labels at the end of `fit` (``fitted_.linear.probes``).
    max_labels : int ≥ 1 or None, default=100
        Maximum number of labels that `predict_proba`, `decision_function` and `predict` return for a row.
        None: all labels are scored, and the first two return arrays, as scikit-learn's scorers need them.
    threshold : "auto", "per_label" or float in [0, 1], default="auto"
        Labels with at least this score are predicted by `predict`. "auto": the one with the best micro-F1 on
        rows that are held out of a second, smaller training at the end of `fit` (`threshold_`). A number,
        such as 0.5, saves that time: up to a fifth of training. "per_label": in addition one for each label
        with the best macro-F1, if that is better on rows that it was not chosen on (`thresholds_`); takes a
        second training on four fifths of the rows. Rankings do not depend on it.
    random_state : int, RandomState, Generator or None, default=0
        Seed of clustering and of the order of rows. Equal data, parameters and seed give the same model file,
        byte for byte, for any `n_jobs`. None: a random seed.
    n_jobs : int, optional
        Threads; None or -1 for all that the process may use.

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
    thresholds_ : array of shape (n_labels,) or None
        Those that `predict` uses instead, if `fit` has chosen one for each label.
    calibration_ : dict or None
        Method, groups and number of rows of `calibrate`, and the expected calibration error of the five best
        labels before and after it, measured by halves of the rows; None if the model is not calibrated.
    n_iter_ : int
        Passes (or Newton steps) of the slowest classifier.
    label_counts_ : array of shape (n_labels,)
        Number of training rows of each label; None if they are unknown, as for imported models.
    n_rows_fit_ : int
        Number of training rows; None if it is unknown.
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

    parameters = PARAMETERS
    ranker = LinearRanker
    search_parameters = ("beam_size", "n_probe")

    representation: Any = "input"
    n_trees: int = 3
    branching_factor: int = 100
    max_leaf_size: int | None = None
    max_depth: int | str | None = "auto"
    balance: str = "auto"
    C: float | str = "auto"
    loss: str = "squared_hinge"
    solver: str = "dual"
    tol: float = 0.1
    max_iter: int = 20
    prune: float | str = "auto"
    classifiers: str = "auto"
    search: str = "auto"
    tail_exponent: float | str = "auto"
    blend_weight: Any = "auto"
    logit_adjustment: float | str = "auto"
    normalize: bool = True
    beam_size: int | None = 10
    n_probe: int | str | None = "auto"
    max_labels: int | None = 100
    threshold: float | str = "auto"
    random_state: Any = 0
    n_jobs: int | None = None

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Return an estimator with the parameters of a preset; keyword arguments override them.

        The methods of the paper: ``"bonsai-i"``, ``"bonsai-o"``, ``"bonsai-io"`` (pass
        ``max_depth=2`` for the paper's setting on EURLex and Wiki10), ``"parabel"`` and ``"parabel-o"`` (two
        balanced children, leaves of at most 100 labels), ``"balanced"`` (100 balanced children), ``"dismec"``
        (no tree: one-vs-rest over all labels, with a learnt bias).

        Examples
        --------
        >>> Bonsai.preset("parabel", random_state=1)
        Bonsai(balance='equal', branching_factor=2, classifiers='leaf', max_depth=None,
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
        tree: Any = None,
        keep_rows: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        runner: Runner | None = None,
        max_memory: int | str | None = "auto",
        progress: Progress | bool | None = None,
        on_estimate: Callable[[dict[str, Any]], None] | None = None,
    ) -> Self:
        """Learn from rows X and their label sets y (called Y elsewhere; scikit-learn passes it as `y`).

        A call that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : sparse matrix, sparse array, array-like or data frame of shape (n_rows, n_features)
            Any format, any real dtype. Rows of which half of the entries or more are not 0, such as
            embeddings, are handled as dense.
        y : sparse or dense 0/1 matrix or data frame of shape (n_rows, n_labels), or lists of labels
            Lists hold label names (strings) or integers; both are keys, not column numbers. Labels without
            rows are allowed, and never predicted; rows without labels are allowed, too. Some tools of
            scikit-learn do not accept lists of lists: give `GridSearchCV` a splitter (``cv=KFold(5)``), or
            sets instead of lists. `cross_val_predict` needs a matrix, as the folds would have different
            labels.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows in the losses and in the label vectors. Rows of weight 0 are left out.
        tree : LabelTree, nested lists, its JSON form, or a list of LabelTrees, optional
            Use this tree (or these) instead of clustering. It must hold every label that has a training row;
            other labels are left out. If the tree and y both have names, labels are matched by name.
        keep_rows : bool, default=False
            Keep the training rows in the model, with values of 8 bits (about three bytes for each entry of
            sparse X), so that it can `learn` from further ones. Needs one-vs-rest classifiers.
        checkpoint : path, optional
            A folder for the results of finished units of work. After a crash or an interrupt, the same call
            continues where it stopped, and ends with the same model. A folder of other data, parameters or
            another version is refused (ValueError). It can be deleted when training is over.
        runner : Runner, optional
            What solves the units of work; default: threads of this process (`n_jobs`).
        max_memory : "auto", None, int or str, default="auto"
            Bytes that the process may take, X and Y included: a number, or one with a unit ("4GB"). Where
            all threads would need more, some phases have fewer; the model is the same. Where one thread would
            need more, a MemoryError at the start names settings that would fit. "auto": the limit of the
            control group (of a container) or of RLIMIT_AS, if there is one. None: no limit.
        progress : callable or bool, optional
            True writes a line for each phase to standard error, and shows a progress bar on a terminal; the
            logger "bonsai_xmc" gets a record for each phase in any case. A callable is called as
            ``progress(phase, done, total)`` a few times a second and at the end of each phase. `done` and
            `total` are in any unit; a `total` of 0 stands for an unknown one. An exception that the callable
            raises ends the call.
        on_estimate : callable, optional
            Called before training with what `memory_estimate` returns, without reading X twice. An exception
            that it raises ends the call.
        """
        options = FitOptions(checkpoint, runner, max_memory, on_estimate, keep_rows)
        params = check_params(self.get_params(deep=False))
        phases = phases_of(progress)
        problem = self._problem(training_rows(X, type(self).__name__), y, sample_weight, tree=tree)
        self.fitted_ = self._fit(Job(problem, params, phases, (X, y), options))
        return self

    def _problem(self, *args: Any, **kwargs: Any) -> Problem:
        return replace(super()._problem(*args, **kwargs), representation=self.representation)

    def _fit(self, job: Job) -> FittedModel:
        _check_names(job.problem)
        seed = seed_of(self.random_state)
        problem, params, options = job.problem, job.params, job.options
        stored = options.checkpoint is not None
        if options.on_estimate is not None:
            options.on_estimate(self._estimate(problem, params, *job.given, stored=stored))
        with self._working(job) as (work, plan):
            strategy, core, report, thresholds = self._train(problem, params, seed, work, plan)
            ranker = LinearRanker(core, strategy, problem.labels.counts)
            fitted = self._trained(job, ranker, seed, thresholds, max(1, report.max_iter))
            if options.keep_rows:
                fitted = replace(fitted, rows=self._kept_rows(problem, core))
            fitted = job.finish(fitted, work)
            if strategy.search == "index":
                beam = beam_size(self.beam_size, strategy.n_trees, strategy.search)
                probes = measure(fitted.linear.core, problem.rows, problem.labels, beam, seed, work)
                fitted = replace(fitted, ranker=replace(fitted.linear, probes=probes))
        return fitted

    @contextlib.contextmanager
    def _working(self, job: Job) -> Iterator[tuple[Work, Callable[[dict[str, Any]], None]]]:
        """Provide what solves the units of work, within the memory that there is, and the plan for that."""
        problem, params, options = job.problem, job.params, job.options
        seed, threads = seed_of(self.random_state), threads_of(self.n_jobs)
        with contextlib.ExitStack() as stack:
            kept = None
            if options.checkpoint is not None:
                kept = stack.enter_context(Checkpoint(options.checkpoint, facts_of(problem, params, seed)))
            work = Work(threads, job.phases, options.runner, kept)

            def plan(params: dict[str, Any]) -> None:
                found = self._plan(problem, params, threads, options.max_memory, kept is not None)
                work.limit(found.threads, found.batch_rows)

            plan(params)
            yield work, plan

    def _kept_rows(self, problem: Problem, core: _core.Model) -> KeptRows | None:
        if core.one_vs_rest is None:
            warnings.warn(
                "keep_rows: no rows are kept, as a model of label trees cannot learn from further ones; "
                'choose classifiers="one_vs_rest" or "blend"',
                stacklevel=4,
            )
            return None
        rows = KeptRows.make(problem.rows, problem.labels, problem.weights)
        LOG.info("%d rows are kept, %.1f MB", rows.n_rows, rows.n_bytes / 1e6)
        return rows

    def _train(
        self,
        problem: Problem,
        params: dict[str, Any],
        seed: int,
        work: Work,
        plan: Callable[[dict[str, Any]], None],
    ) -> tuple[Strategy, _core.Model, Report, Thresholds]:
        """Train by the best strategy; return the strategy, the model, the report of training, and thresholds.

        `plan` is called again where held-out rows choose a smaller `prune` than was planned for.
        """
        tried = search_space(params, problem.facts)
        choice = None if tried is None else gather(problem, params, tried, seed, work)
        strategy = resolve(params, problem.facts, choice)
        LOG.info("%s classifiers, %s search: %s", strategy.classifiers, strategy.search, strategy.reason)
        if strategy.evidence:
            LOG.info("%s", strategy.evidence)
        trees = sampled = None
        if pruning.is_open(params, problem.facts, strategy):
            trees = grow(problem, strategy, seed, work)
            sampled, evidence = pruning.choose_prune(problem, strategy, trees, seed, work)
            strategy = replace(sampled.strategy, evidence=evidence)
            if strategy.prune < pruning.LARGER[0]:
                plan(params | {"prune": strategy.prune})
        core, report = train(problem, strategy, seed, work, trees)
        warn(core, report, strategy, problem.facts.n_labels, stacklevel=4)
        thresholds = Thresholds()
        if isinstance(self.threshold, str):
            per_label = self.threshold == PER_LABEL
            thresholds = choose_threshold(
                problem, strategy, core, seed, work, per_label=per_label, sampled=sampled
            )
        return strategy, core, report, thresholds

    def memory_estimate(self, X: Any, Y: Any, *, tree: Any = None) -> dict[str, Any]:
        """Return what `fit` will need, in bytes; about a hundredth of the labels are trained for it.

        Returns
        -------
        dict
            "training_bytes": the peak of resident memory, X and Y included, Python and its libraries (some
            150 MB) not; "phases": the same for each phase; "model_bytes": the size of the model. Where
            held-out rows choose `prune`: "least" is the same for the largest one, the rest for 0.1.
        """
        params = check_params(self.get_params(deep=False))
        problem = self._problem(training_rows(X, type(self).__name__), Y, tree=tree)
        return self._estimate(problem, params, X, Y)

    def _estimate(
        self, problem: Problem, params: dict[str, Any], X: Any = None, Y: Any = None, **how: Any
    ) -> dict[str, Any]:
        """Return the estimate in addition to the caller's X and Y; `how` are options of `memory.estimate`."""
        _check_names(problem)
        given = bytes_beside(X, problem.rows) + bytes_beside(Y)
        how = {"threads": threads_of(self.n_jobs), "given": given} | how

        def found(least: bool) -> dict[str, Any]:
            strategy, options = self._largest(problem, params, least)
            sizes = memory.estimate(problem, strategy, **how, **options)
            return sizes | ({"least": found(True)} if options["prunes"] and not least else {})

        return found(False)

    def _plan(
        self,
        problem: Problem,
        params: dict[str, Any],
        threads: int,
        max_memory: int | str | None,
        stored: bool,
    ) -> memory.Plan:
        if memory.available(max_memory) is None:
            return memory.Plan()
        strategy, options = self._largest(problem, params, least=True)
        return memory.plan_for(problem, strategy, threads, max_memory, stored=stored, **options)

    def _largest(
        self, problem: Problem, params: dict[str, Any], least: bool
    ) -> tuple[Strategy, dict[str, Any]]:
        """Return the strategy that memory is estimated for, the one that needs most where rows choose it.

        `least`: with the `prune` that needs least, as `prune` is chosen before classifiers are trained.
        """
        tried = search_space(params, problem.facts)
        if tried is not None:
            params = params | {"classifiers": "blend"}
            if tried.row_tree_weights:
                weight, _ = blend_weights(params["blend_weight"])
                params["blend_weight"] = (weight, tried.row_tree_weights[-1])
        strategy = resolve(params, problem.facts)
        prunes = pruning.is_open(params, problem.facts, strategy)
        if prunes and least:
            strategy = replace(strategy, prune=pruning.LARGER[0], node_prune=pruning.LARGER[0])
        return strategy, {"tunes": tried is not None, "prunes": prunes, "threshold": self.threshold}


def _check_names(problem: Problem) -> None:
    if is_by_names(problem.representation) and problem.name_vectors is None:
        raise ValueError(
            f"representation is {problem.representation!r}, but rows of a matrix come without names of "
            "labels: use TextBonsai(label_texts=…), or pass vectors of your own as representation"
        )
