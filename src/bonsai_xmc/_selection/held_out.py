"""Choosing on held-out rows: how candidates are scored there, what is better by enough, and the evidence.

Candidates are trained on some rows and rank the labels of others. Whatever has `top_k` can be scored, and so
can weighted sums of several models (`Pool`). What is measured are the metrics of `bonsai_xmc.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.rows import Rows, select
from bonsai_xmc._model.ranker import Ranker
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.metrics import _propensity
from bonsai_xmc.metrics._definitions import OF_ROWS, value_of
from bonsai_xmc.metrics._ranking import Ranking, Truth

if TYPE_CHECKING:
    from bonsai_xmc import _core

Candidate = TypeVar("Candidate")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows and their true labels."""

    rows: Rows
    truth: Truth

    @classmethod
    def of(cls, problem: Problem, rows: Array) -> HeldOut:
        """Take rows of a problem, whose labels are as frequent as in all of its rows."""
        some, labels = problem.take(rows), problem.labels
        q = _propensity.from_counts(labels.counts, labels.n_rows, *_propensity.OTHERS)
        weights = None if some.weights is None else some.weights.astype(np.float64)
        return cls(some.rows, Truth(some.labels.indptr, some.labels.indices, weights, q))

    def among(self, labels: Array) -> HeldOut:
        """Keep the rows that have one of these labels, a mask, and count only these labels."""
        truth = self.truth.among(labels)
        rows = np.flatnonzero(truth.n_true)
        indptr, _ = select(truth.indptr, rows)
        weights = None if truth.weights is None else truth.weights[rows]
        return HeldOut(self.rows.take(rows), replace(truth, indptr=indptr, weights=weights))

    def rank(self, model: _core.Model | Ranker, k: int, work: Work, **options: Any) -> Ranking:
        """Rank the k best labels of each row by a model, or by anything else with `top_k`."""
        ids, log_scores = work.predict(model, self.rows, min(k, model.n_labels), **options)
        return self.truth.rank(ids, log_scores)


def measured(ranking: Ranking, measures: Sequence[str]) -> Array:
    """Return metrics such as "P@5" in percent."""
    named = (measure.split("@") for measure in measures)
    return np.array([100 * value_of(metric, ranking, int(k)) for metric, k in named])


class Gain(NamedTuple):
    """By how many percent the measures of a ranking are higher than those of another one, on average."""

    mean: float
    error: float  # the standard error of the mean: of the differences between rows


def gain(ranking: Ranking, than: Ranking, measures: Sequence[str]) -> Gain:
    """Compare two rankings of the same rows."""
    weights = ranking.truth.weights
    weights = np.ones(ranking.truth.n_rows) if weights is None else weights
    gains, before = np.zeros((2, ranking.truth.n_rows))  # of each row: its share of the mean
    for metric, k in (measure.split("@") for measure in measures):
        new, old = (OF_ROWS[metric](one, int(k)).part * weights for one in (ranking, than))
        total = max(float(old.sum()), 1e-9) * len(measures)
        gains += (new - old) / total
        before += old / total
    mean = float(gains.sum())
    error = float(np.sqrt(len(gains)) * (gains - mean * before).std())
    return Gain(100 * mean, 100 * error)


def best_columns(scores: Array, k: int) -> Array:
    """Return the k columns with the largest scores of each row, best first; ties go to the earlier column."""
    k = min(k, scores.shape[1])
    best = np.sort(np.argpartition(scores, -k, axis=1)[:, -k:], axis=1)
    least = np.take_along_axis(scores, best, axis=1).min(axis=1, keepdims=True)
    tied = np.flatnonzero(np.count_nonzero(scores >= least, axis=1) > k)
    best[tied] = np.sort(np.argsort(-scores[tied], axis=1, kind="stable")[:, :k], axis=1)
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def best_of(candidates: Ranking, scores: Array, k: int) -> Ranking:
    """Rank candidates by other scores than their own."""
    best = best_columns(scores, k)
    ids, is_true = (np.take_along_axis(part, best, axis=1) for part in (candidates.ids, candidates.is_true))
    return Ranking(candidates.truth, ids, is_true)


class Pool:
    """The best labels of several models for the same rows, side by side.

    Any weighted sum of the models' scores can be ranked without further predictions. A label that is not
    among the best of a model has the score 0 there.
    """

    def __init__(self, members: Sequence[Ranking]) -> None:
        parts = [member.ids for member in members]
        ids = np.concatenate(parts, axis=1)
        order = np.argsort(ids, axis=1, kind="stable")
        sorted_ids = np.take_along_axis(ids, order, axis=1)
        new = np.append(np.ones((len(ids), 1), bool), sorted_ids[:, 1:] != sorted_ids[:, :-1], axis=1)
        start = np.maximum.accumulate(np.where(new, np.arange(ids.shape[1]), 0), axis=1)
        first = np.empty_like(order)  # the column in which a column's label stands first
        np.put_along_axis(first, order, np.take_along_axis(order, start, axis=1), axis=1)
        ids = np.where(first == np.arange(ids.shape[1]), ids, -1)
        is_true = np.concatenate([member.is_true for member in members], axis=1) & (ids >= 0)
        self.candidates = Ranking(members[0].truth, ids, is_true)
        ends = np.cumsum([part.shape[1] for part in parts])
        self.scores = [np.zeros(ids.shape, np.float32) for _ in members]
        for scores, member, columns in zip(
            self.scores, members, np.split(first, ends[:-1], axis=1), strict=True
        ):
            row, place = np.nonzero(member.ids >= 0)
            scores[row, columns[row, place]] = np.exp(member.scores[row, place])

    def adjusted(self, factors: Array) -> list[Array]:
        """Return the scores of each model, multiplied by the factor of each label."""
        return [scores * factors[np.maximum(self.candidates.ids, 0)] for scores in self.scores]

    def ranking(self, weights: Sequence[float], k: int, scores: Sequence[Array] | None = None) -> Ranking:
        """Rank by the weighted sum of the models' scores, or of these scores."""
        parts = zip(self.scores if scores is None else scores, weights, strict=True)
        total = np.zeros(self.candidates.ids.shape, np.float32)
        for part, weight in parts:
            total += part * np.float32(weight)
        total[self.candidates.ids < 0] = -1
        return best_of(self.candidates, total, k)


def is_better(figures: Any, than: Any, by: float = 0.0, errors: float = 0.0) -> bool:
    """Return whether figures, one or one for each row, are better by more than `by` points on average.

    They must also be better by more than `errors` standard errors of the differences between rows.
    """
    gains = np.asarray(figures, np.float64) - than
    return float(gains.mean()) > by + errors * float(gains.std()) / np.sqrt(max(1, gains.size))


def climb(
    start: Candidate,
    figures: Any,
    steps: Iterable[Callable[[Candidate], Iterable[Candidate]]],
    measure: Callable[[Candidate], Any],
    better: Callable[[Any, Any, Any], bool],
    sweeps: int,
    least: float = 0.0,
) -> list[Candidate]:
    """Search by coordinates from a candidate on; return the best ones in the order found, the final one last.

    Each step gives the alternatives to the best so far in one of its settings. The best of these replaces it
    if ``better(figures, those of the best, those of the best alternative)``. `measure` returns None for one
    that is not tried. The search ends with a sweep over all steps that gains no more than `least`.
    """
    path = [start]
    for _ in range(sweeps):
        before = figures
        for alternatives in steps:
            found, reached = path[-1], figures
            for candidate in alternatives(path[-1]):
                tried = measure(candidate)
                if tried is not None and better(tried, figures, reached):
                    found, reached = candidate, tried
            if found is not path[-1]:
                path.append(found)
                figures = reached
        if not is_better(figures, before, least):
            break
    return path


@dataclass(frozen=True)
class Evidence:
    """Figures of candidates on held-out rows, in percent."""

    measures: Sequence[str]
    figures: Mapping[str, Any]  # by candidate: a number for each measure
    n_held_out: int
    n_training: int  # rows that the candidates were trained on
    note: str = ""  # after the names of the measures

    def __str__(self) -> str:
        width = max(map(len, self.figures))
        head = " ".join([" " * width, *(f"{measure:>7}" for measure in self.measures)]) + self.note
        lines = [
            " ".join([f"{name:{width}}", *(f"{value:7.2f}" for value in values)])
            for name, values in self.figures.items()
        ]
        counts = f"{self.n_held_out:,} held-out rows, models of {self.n_training:,} others:"
        return "\n".join([counts, head, *lines])
