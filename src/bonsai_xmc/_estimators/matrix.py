"""Estimators whose X is a matrix of features, and `System`, the base of all but `Bonsai`."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import PREDICTION, Parameter, check, check_params
from bonsai_xmc._base.progress import Phases, Progress, phases_of
from bonsai_xmc._base.random import seed_of
from bonsai_xmc._base.threads import instruction_set, threads_of
from bonsai_xmc._data.labels import labels_of, row_weights
from bonsai_xmc._data.rows import Rows, prediction_rows, training_rows
from bonsai_xmc._estimators.base import LabelRanker
from bonsai_xmc._model.fitted import VERSION, FittedModel, LabelTable, Provenance
from bonsai_xmc._model.ranker import Ranker
from bonsai_xmc._model.thresholds import PER_LABEL
from bonsai_xmc._modelfile import format as model_file
from bonsai_xmc._modelfile.container import FormatError
from bonsai_xmc._selection.threshold import Thresholds, threshold_of
from bonsai_xmc._text.reader import TextReader
from bonsai_xmc._training.train import NO_TEXTS, Problem, TextFacts, make_problem
from bonsai_xmc._training.work import Runner, Work

Finish = Callable[[FittedModel, Work], FittedModel]


class FitOptions(NamedTuple):
    """How `fit` runs; predictions do not depend on it."""

    checkpoint: str | os.PathLike[str] | None = None
    runner: Runner | None = None
    max_memory: int | str | None = "auto"
    on_estimate: Callable[[dict[str, Any]], None] | None = None
    keep_rows: bool = False


@dataclass(frozen=True)
class Job:
    """A problem to train on, and the settings of its training."""

    problem: Problem
    params: dict[str, Any]  # checked
    phases: Phases
    given: tuple[Any, Any]  # X and y as the caller passed them
    options: FitOptions = field(default_factory=FitOptions)
    text: TextReader | None = None  # what turned texts into rows
    finish: Finish = lambda fitted, work: fitted  # turns the trained model into the result


class MatrixClassifier(LabelRanker):
    """A classifier of the rows of a matrix; its subclasses define their parameters and `_fit`."""

    #: The parameters of the constructor, in its order: rules, groups and help.
    parameters: ClassVar[Mapping[str, Parameter]]
    #: The class of its rankers, whose `kind` model files name.
    ranker: ClassVar[Any]

    n_jobs: Any

    def _fit(self, job: Job) -> FittedModel:
        """Train a model for a job."""
        raise NotImplementedError

    def _trained(
        self, job: Job, ranker: Ranker, seed: int, thresholds: Thresholds, n_iter: int = 1
    ) -> FittedModel:
        """Return the model of a trained ranker."""
        rows, labels = job.problem.rows, job.problem.labels
        return FittedModel(
            ranker=ranker,
            labels=LabelTable(labels.classes, labels.counts, thresholds=thresholds.of_labels),
            n_rows=rows.n_rows,
            n_features=rows.n_features,
            feature_names=job.problem.feature_names,
            id_base=None,
            given=model_file.given_params(job.params, seed, self.parameters),
            threshold=thresholds.common,
            provenance=Provenance(VERSION, instruction_set(), n_iter, seed),
            text=job.text,
            timings=job.phases.seconds,
        )

    def _problem(
        self,
        read: tuple[Rows, Array | None],
        y: Any,
        sample_weight: Any = None,
        texts: TextFacts = NO_TEXTS,
        tree: Any = None,
    ) -> Problem:
        rows, names = read
        weights = row_weights(sample_weight, rows.n_rows)
        return make_problem(rows, labels_of(y), weights, tree=tree, texts=texts, feature_names=names)

    def _rows(self, X: Any, fitted: FittedModel) -> Rows:
        return prediction_rows(X, self, fitted.n_features, fitted.feature_names is not None)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool | str = True, verify: bool = False) -> Self:
        """Read a model from a file that `save` wrote.

        Parameters
        ----------
        path : path
            The model file.
        mmap : {True, False, "sealed"}, default=True
            True maps the weights: loading takes milliseconds, and processes that load the same file share its
            memory. The file must not change: replace it by renaming a new file to its name, as `save` does;
            processes that have mapped the old file keep it. Overwriting it in place (``cp new.bonsai
            model.bonsai``) changes the scores of every process that has mapped it, and truncating it kills
            them by a signal. False reads the file into memory of this process, which no other process can
            change, on huge pages where the system has them: predictions for single rows by a model of a
            gigabyte take an eighth less time. "sealed" reads it into immutable memory that processes forked
            from this one share: for services with many workers (Linux).
        verify : bool, default=False
            Check all checksums, and every index. Otherwise a damaged file may give wrong scores, but never a
            crash.

        Examples
        --------
        >>> import tempfile, os
        >>> from bonsai_xmc import Bonsai
        >>> path = os.path.join(tempfile.mkdtemp(), "model.bonsai")
        >>> Bonsai().fit([[1, 0], [0, 1]], [["red"], ["green"]]).save(path)
        >>> Bonsai.load(path, mmap=False).top_k_labels([[1, 0]], k=1)[0][0][0]
        'red'
        """
        fitted, prediction = model_file.load(path, mmap, verify)
        if fitted.text is not None:
            raise ValueError(f"{os.fspath(path)} is a text model; use TextBonsai.load")
        return cls._restored(fitted, prediction, path)

    @classmethod
    def _restored(
        cls, fitted: FittedModel, prediction: Mapping[str, Any], path: str | os.PathLike[str] = "this"
    ) -> Self:
        """Return the estimator of a fitted model that was read from a file, with its parameters."""
        if fitted.ranker.kind != cls.ranker.kind:
            raise ValueError(
                f"{os.fspath(path)} is a model of the kind {fitted.ranker.kind!r}, not of a {cls.__name__}; "
                "use bonsai_xmc.load"
            )
        model = cls(**cls._given(fitted), **cls._stored(prediction, path))
        model.fitted_ = fitted
        return model

    @classmethod
    def _stored(cls, prediction: Mapping[str, Any], path: str | os.PathLike[str]) -> Mapping[str, Any]:
        """Return the parameters of prediction that a file holds, after a check of each."""
        try:
            if unknown := [name for name in prediction if name not in cls.parameters]:
                raise ValueError(f"a {cls.__name__} has no parameter {unknown[0]!r}")
            for name, value in prediction.items():
                check(name, value, cls.parameters)
        except ValueError as error:
            raise FormatError(f"{os.fspath(path)}: the model is inconsistent: {error}") from error
        return prediction

    @classmethod
    def _given(cls, fitted: FittedModel) -> dict[str, Any]:
        """Return the parameters that a model was made with, except those of prediction."""
        return {name: value for name, value in fitted.given.items() if name in cls.parameters}

    def _prediction(self) -> dict[str, Any]:
        """Return the parameters that predictions depend on, with their current values."""
        names = [name for name, one in self.parameters.items() if one.group == PREDICTION]
        return {name: getattr(self, name) for name in names}

    @property
    def classifier_(self) -> Self:
        """This estimator, as the counterpart of `classifier_` in a `TextBonsai`."""
        return self

    @property
    def feature_names_in_(self) -> Array:
        names = self._require_fitted().feature_names
        if names is None:
            raise AttributeError("feature_names_in_: X had no feature names")
        return names

    def _with(self, fitted: FittedModel) -> Self:
        other = self._unfitted()
        other.fitted_ = fitted
        return other

    def _require_fitted(self) -> FittedModel:
        fitted: Any = self.__dict__.get("fitted_")
        if fitted is None:
            check_is_fitted(self)  # a NotFittedError is an AttributeError, as properties need it
        return fitted

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in self.__dict__


class System(MatrixClassifier):
    """A classifier with a ranker of its own.

    A subclass has a table of `parameters` (which ends with `_base.params.COMMON`), from which its constructor
    follows, the class `ranker`, and `_train`.
    """

    threshold: Any
    random_state: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
        named = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
        for name, one in cls.parameters.items():
            named.append(inspect.Parameter(name, by_name, default=one.default))
        signature = inspect.Signature(named)

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            vars(self).update(list(given.arguments.items())[1:])

        init.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = init  # type: ignore[method-assign]

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, progress: Progress | bool | None = None
    ) -> Self:
        """Learn from rows X and their label sets y.

        A call that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : sparse matrix, sparse array, array-like or data frame of shape (n_rows, n_features)
            Training rows; see `Bonsai.fit`.
        y : sparse or dense 0/1 matrix of shape (n_rows, n_labels), or lists of labels
            See `Bonsai.fit`.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows; not all systems use them. Rows of weight 0 are left out.
        progress : callable or bool, optional
            See `Bonsai.fit`.
        """
        params = check_params(self.get_params(deep=False), self.parameters)
        problem = self._problem(training_rows(X, type(self).__name__), y, sample_weight)
        self.fitted_ = self._fit(Job(problem, params, phases_of(progress), (X, y)))
        return self

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> Ranker:
        """Train on a problem with checked parameters. Equal data, parameters and seed give equal bytes."""
        raise NotImplementedError

    def _fit(self, job: Job) -> FittedModel:
        for name, usual in FitOptions()._asdict().items():
            if getattr(job.options, name) != usual:
                raise ValueError(f"{type(self).__name__} takes no {name}; only Bonsai does")
        seed, work = seed_of(self.random_state), Work(threads_of(self.n_jobs), job.phases)
        train = lambda problem: self._train(problem, job.params, seed, work)
        ranker, threshold = train(job.problem), job.params["threshold"]
        if isinstance(threshold, str):
            with job.phases.together("threshold"):
                options = {"per_label": threshold == PER_LABEL}
                found = threshold_of(job.problem, train, seed, work.threads, **options)
        else:
            found = Thresholds(float(np.clip(threshold, 0, 1)))
        return job.finish(self._trained(job, ranker, seed, found), work)
