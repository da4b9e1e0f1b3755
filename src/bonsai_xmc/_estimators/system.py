"""The base of systems beside `Bonsai`: everything but their parameters, their training and their ranker."""

from inspect import Parameter, Signature
from typing import Any, Self

import numpy as np

from bonsai_xmc._base.params import check_params
from bonsai_xmc._base.progress import Progress, phases_of
from bonsai_xmc._base.random import seed_of
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._estimators.matrix import FitOptions, Job, MatrixClassifier
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.ranker import Ranker
from bonsai_xmc._model.thresholds import PER_LABEL
from bonsai_xmc._selection.threshold import Thresholds, threshold_of
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work


class System(MatrixClassifier):
    """A classifier with a ranker of its own.

    A subclass has a table of `parameters` (which ends with `_base.params.COMMON`), from which its constructor
    follows, the class `ranker`, and `_train`.
    """

    threshold: Any
    random_state: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        named = [Parameter("self", Parameter.POSITIONAL_ONLY)]
        for name, one in cls.parameters.items():
            named.append(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=one.default))
        signature = Signature(named)

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
        y : sparse or dense 0/1 matrix of shape (n_rows, n_labels), or lists of labels
            See `Bonsai.fit`.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows, if the system has a use for them. Rows of weight 0 are left out.
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
