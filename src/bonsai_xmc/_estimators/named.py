"""A member of a fusion whose classifiers of rare labels are the vectors of their names."""

from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.random import seed_of
from bonsai_xmc._estimators.bonsai import Bonsai
from bonsai_xmc._estimators.matrix import Job
from bonsai_xmc._model.edit import one_leaf
from bonsai_xmc._model.fitted import FittedModel, LabelTable, class_array
from bonsai_xmc._model.linear import LinearRanker, core_model
from bonsai_xmc._selection.strategy import resolve
from bonsai_xmc._selection.threshold import Thresholds
from bonsai_xmc._training.train import Problem

# Labels with at least this many rows are ranked better by classifiers than by their names.
ENOUGH_ROWS = 5
# The margin of a row and a label whose cosine is c is 2 c − 1, so that the score is 1 for equal directions.
_WEIGHT, _BIAS = 2.0, -1.0


class NameVectors(NamedTuple):
    """Labels with names, and the vector of each, relative to their mean and of length 1."""

    labels: list[Any]
    names: list[str]
    vectors: Array  # float32

    @classmethod
    def of(cls, texts: dict[Any, list[str]], encoded: Array) -> "NameVectors":
        """Average the vectors of each label's texts; `encoded` has those of one label side by side."""
        known = {label: parts for label, parts in texts.items() if parts}
        sizes = [len(parts) for parts in known.values()]
        sums = np.add.reduceat(encoded, np.concatenate([[0], np.cumsum(sizes)[:-1]]), axis=0)
        means = sums / np.array(sizes, np.float32)[:, None]
        means -= means.mean(axis=0)
        units = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-30)
        return cls(list(known), [parts[0] for parts in known.values()], units.astype(np.float32))


class Named(Bonsai):
    """A ranking of labels with few or no rows by the cosine of a row and their names, without training."""

    names: NameVectors

    def __sklearn_clone__(self) -> Self:
        other = type(self)(**self.get_params(deep=False))
        other.names = self.names
        return other

    def _estimate(
        self, problem: Problem, params: dict[str, Any], X: Any = None, Y: Any = None, **how: Any
    ) -> dict[str, Any]:
        """Return what the classifiers take; the rows are those of another member."""
        size = self.names.vectors.nbytes
        phases = {"reading": 0, "weights": 3 * size}
        return {"training_bytes": 3 * size, "model_bytes": size, "phases": phases}

    def _fit(self, job: Job) -> FittedModel:
        labels, (keys, names, vectors) = job.problem.labels, self.names
        rows = dict(zip(labels.classes.tolist(), labels.counts.tolist(), strict=True))
        others = [key for key in keys if key not in rows]
        classes = [*rows, *others] if labels.classes.dtype == object else sorted([*rows, *others])
        place = {key: i for i, key in enumerate(classes)}
        counts = np.array([rows.get(key, 0) for key in classes], np.int64)
        few = np.array([rows.get(key, 0) < ENOUGH_ROWS for key in keys], bool) & vectors.any(axis=1)
        used = np.flatnonzero(few) if few.any() else np.arange(1)
        ids = np.array([place[keys[i]] for i in used], np.int32)
        bias = np.full(len(used), _BIAS, np.float32)
        forest = one_leaf(_WEIGHT * vectors[used], bias, ids, len(classes))
        given = {"classifiers": "one_vs_rest", "search": "exact", "C": 1.0, "logit_adjustment": 0.0}
        strategy = resolve({**job.params, **given}, job.problem.facts)
        ranker = LinearRanker(core_model(None, forest, None, strategy, counts), strategy, counts)
        fitted = self._trained(job, ranker, seed_of(self.random_state), Thresholds())
        named = dict(zip(keys, names, strict=True))
        table = LabelTable(class_array(classes), counts, tuple(named.get(key, "") for key in classes))
        return replace(fitted, labels=table)
