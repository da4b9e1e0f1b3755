"""The base of systems beside `Bonsai`: everything but their parameters, their training and their ranker."""

from typing import Any, Self

import numpy as np

from bonsai_xmc._base.params import PREDICTION, RUN, check_params, plain
from bonsai_xmc._base.progress import Phases, Progress, phases_of
from bonsai_xmc._base.random import seed_of
from bonsai_xmc._base.threads import instruction_set, threads_of
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._estimators.matrix import Finish, FitOptions, MatrixClassifier
from bonsai_xmc._model.fitted import VERSION, FittedModel, LabelTable, Provenance
from bonsai_xmc._model.ranker import Ranker
from bonsai_xmc._model.thresholds import PER_LABEL
from bonsai_xmc._selection.threshold import threshold_of
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work


class System(MatrixClassifier):
    """A classifier with a ranker of its own.

    A subclass has a constructor whose parameters are those of its table `parameters` (which ends with
    `_base.params.COMMON`), the class `ranker`, and `_train`.
    """

    threshold: Any
    random_state: Any

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
        self.fitted_ = self._fit(problem, params, FitOptions(), phases_of(progress), (X, y))
        return self

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> Ranker:
        """Train on a problem with checked parameters. Equal data, parameters and seed give equal bytes."""
        raise NotImplementedError

    def _fit(
        self,
        problem: Problem,
        params: dict[str, Any],
        options: FitOptions,
        phases: Phases,
        given: tuple[Any, Any],
        text: FittedText | None = None,
        finish: Finish = lambda fitted, work: fitted,
    ) -> FittedModel:
        for name, usual in FitOptions()._asdict().items():
            if getattr(options, name) != usual:
                raise ValueError(f"{type(self).__name__} takes no {name}; only Bonsai does")
        seed = seed_of(self.random_state)
        work = Work(threads_of(self.n_jobs), phases)
        ranker = self._train(problem, params, seed, work)
        threshold, of_labels = params["threshold"], None
        if isinstance(threshold, str):
            again, per_label = lambda part: self._train(part, params, seed, work), threshold == PER_LABEL
            with phases.together("threshold"):
                threshold, of_labels = threshold_of(problem, again, seed, work.threads, per_label=per_label)
        fitted = FittedModel(
            ranker=ranker,
            labels=LabelTable(problem.labels.classes, problem.labels.counts, thresholds=of_labels),
            n_rows=problem.rows.n_rows,
            n_features=problem.rows.n_features,
            feature_names=problem.feature_names,
            id_base=None,
            given=self._to_store(params, seed),
            threshold=float(np.clip(threshold, 0, 1)),
            provenance=Provenance(VERSION, instruction_set(), 1, seed),
            text=text,
            timings=phases.seconds,
        )
        return finish(fitted, work)

    def _to_store(self, params: dict[str, Any], seed: int) -> dict[str, Any]:
        """Return the training parameters, for the model file."""
        names = [name for name, one in self.parameters.items() if one.group not in (PREDICTION, RUN)]
        return {name: plain(params[name]) for name in names} | {"random_state": seed}
