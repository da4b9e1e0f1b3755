"""The threshold of `predict` that `fit` chooses: the best micro-F1 on held-out rows.

Small data, which train in a moment, are trained on again fold by fold. Of larger data some labels are enough
to measure scores.

On request, each label has a threshold of its own, for the best macro-F1. Most labels have one or two
held-out rows, and thresholds that fit these are worse than a common one. So pseudo-rows of the typical label
are added to the rows of each label; they count little among many rows. Each half of the rows chooses
thresholds, which are measured on the other half; a label gets the mean of both. They are kept only if they
are better there than the common one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import LOG
from bonsai_xmc._data.tree import trees_of
from bonsai_xmc._model.ranker import Ranker
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._model.thresholds import FALLBACK, Scored, micro_f1, steadiest
from bonsai_xmc._selection.held_out import HeldOut, is_better
from bonsai_xmc._selection.sampled import SampledModel, sampled_model
from bonsai_xmc._training import splits
from bonsai_xmc._training.train import Problem, train
from bonsai_xmc._training.work import Work
from bonsai_xmc.metrics._ranking import Ranking

if TYPE_CHECKING:
    from bonsai_xmc import _core


class Thresholds(NamedTuple):
    """The score from which `predict` takes a label."""

    common: float = FALLBACK
    of_labels: Array | None = None  # see `label_thresholds`


def choose_threshold(
    problem: Problem,
    strategy: Strategy,
    core: _core.Model,
    seed: int,
    work: Work,
    *,
    per_label: bool = False,
    sampled: SampledModel | None = None,
) -> Thresholds:
    """Choose the common threshold with the best micro-F1 on held-out rows; on request, one for each label.

    `core` is what was trained on the whole problem; of it, only the structure of the trees is used. `sampled`
    is a model of some of its labels, if there is one.
    """
    if problem.rows.n_rows < splits.FEWEST_ROWS:
        return Thresholds()
    with work.phases.together("threshold"):
        parts = [
            (held_out.rank(model, splits.DEPTH, work), label_weights)
            for model, held_out, label_weights in _models(
                problem, strategy, core, seed, work, per_label, sampled
            )
        ]
    return chosen_threshold(parts, problem.labels.n_labels, per_label)


def threshold_of(
    problem: Problem, fit: Callable[[Problem], Ranker], seed: int, threads: int, *, per_label: bool = False
) -> Thresholds:
    """Choose the thresholds of any ranker by a second one, which is trained on all but held-out rows."""
    if problem.rows.n_rows < splits.FEWEST_ROWS:
        return Thresholds()
    split = splits.most_rows(problem.rows.n_rows, seed)
    part, held_out = problem.take(split.training), HeldOut.of(problem, split.held_out)
    if not len(part.labels.indices) or not len(held_out.truth.indices):
        return Thresholds()
    ranking = held_out.rank(fit(part), splits.DEPTH, Work(threads))
    return chosen_threshold([(ranking, None)], problem.labels.n_labels, per_label)


def chosen_threshold(
    parts: Sequence[tuple[Ranking, Array | None]], n_labels: int, per_label: bool
) -> Thresholds:
    """Choose thresholds by rankings of held-out rows, each with the weights of labels there."""
    if not parts:
        return Thresholds()
    scored = [(ranking, np.exp(ranking.scores.astype(np.float64))) for ranking, _ in parts]
    flat = [Scored.of(*one, weights) for one, (_, weights) in zip(scored, parts, strict=True)]
    common = best_threshold(Scored.joined(flat))
    return Thresholds(common, label_thresholds(scored, n_labels, common) if per_label else None)


def _models(
    problem: Problem,
    strategy: Strategy,
    core: _core.Model,
    seed: int,
    work: Work,
    every_label: bool,
    sampled: SampledModel | None,
) -> Iterator[tuple[_core.Model, HeldOut, Array | None]]:
    """Yield models, the rows that they were not trained on, and the weights of their labels."""
    n_rows = problem.rows.n_rows
    strategy = replace(strategy, n_row_trees=min(strategy.n_row_trees, splits.ROW_TREES))
    small = problem.facts.n_labels * problem.rows.n_entries <= splits.SMALL
    if small or every_label:
        for split in splits.folds(n_rows, seed) if small else [splits.most_rows(n_rows, seed)]:
            part = problem.take(split.training)
            if len(part.labels.indices):
                model, _ = train(part, strategy, seed, work)
                yield model, HeldOut.of(problem, split.held_out), None
        return
    if sampled is None:
        tree = None if core.trees is None else trees_of(core.trees.arrays())[0]
        sampled = sampled_model(problem, strategy, tree, seed, work)
    yield sampled.core, sampled.held_out, sampled.weights


def best_threshold(found: Scored) -> float:
    """Return a threshold with the best micro-F1, and some room around it."""
    curve = micro_f1(found)
    threshold = steadiest(curve)
    if threshold is None:
        return FALLBACK
    told = (threshold, curve.at(threshold), curve.at(FALLBACK), FALLBACK)
    LOG.info("threshold %g: micro-F1 %.4f on held-out rows, %.4f with %g", *told)
    return threshold


# Thresholds that are tried: the common one times these.
_FACTORS = np.exp(np.linspace(-2.4, 2.4, 33))
_PSEUDO_ROWS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
# The more pseudo-rows, the less micro-F1 is lost: the most that bring this share of the largest gain.
_ENOUGH = 0.5


class _Counts(NamedTuple):
    """Weights of held-out rows for each label: arrays of shape (labels, thresholds), and (labels,)."""

    hits: Array
    taken: Array
    n_true: Array

    def at(self, places: Array) -> _Counts:
        """Return the counts of each label at one threshold."""
        hits, taken = (np.take_along_axis(part, places[:, None], axis=1)[:, 0] for part in self[:2])
        return _Counts(hits, taken, self.n_true)

    def plus(self, other: _Counts) -> _Counts:
        return _Counts(*(own + more for own, more in zip(self, other, strict=True)))

    @property
    def f1(self) -> Array:
        return 2 * self.hits / np.maximum(self.taken + self.n_true, 1e-30)

    def best(self, pseudo_rows: float) -> Array:
        """Return the place of each label's best threshold, with pseudo-rows of the typical label."""
        share = pseudo_rows / max(float(self.n_true.sum()), 1e-30)
        hits, taken = (part + share * part.sum(axis=0) for part in self[:2])
        f1 = hits / (taken + (self.n_true + pseudo_rows)[:, None])
        last = f1.shape[1] - 1 - f1[:, ::-1].argmax(axis=1)
        return np.asarray((f1.argmax(axis=1) + last) // 2)


def label_thresholds(rankings: Sequence[tuple[Ranking, Array]], n_labels: int, common: float) -> Array | None:
    """Choose a threshold for each label, 0 for the common one; None if that is no better on other rows.

    `rankings` are those of held-out rows, with scores on the scale of the common threshold.
    """
    labels = np.unique(np.concatenate([ranking.truth.indices for ranking, _ in rankings]))
    grid = np.minimum(common * _FACTORS, 1.0)
    first, second = (_counted(rankings, labels, n_labels, grid, half) for half in (0, 1))
    usual = first.plus(second).at(np.full(len(labels), len(grid) // 2)).f1
    chosen = {n: (first.best(n), second.best(n)) for n in _PSEUDO_ROWS}
    crossed = {n: first.at(others).plus(second.at(own)).f1 for n, (own, others) in chosen.items()}
    gains = {n: float((f1 - usual).mean()) for n, f1 in crossed.items()}
    enough = min(_ENOUGH * max(gains.values()), max(gains.values()))  # below 0, none is better
    n_pseudo = max(n for n, gain in gains.items() if gain >= enough)
    found = crossed[n_pseudo]
    LOG.info("thresholds of labels: macro-F1 %.4f, %.4f with a common one", found.mean(), usual.mean())
    if not is_better(found, usual, errors=1.0):
        return None
    thresholds = np.zeros(n_labels, np.float32)
    own, others = chosen[n_pseudo]
    thresholds[labels] = grid[(own + others) // 2]  # the grid is geometric
    return thresholds


def _counted(
    rankings: Sequence[tuple[Ranking, Array]], labels: Array, n_labels: int, grid: Array, half: int
) -> _Counts:
    """Count every second row, from the first or the second on."""
    place = np.full(n_labels, -1)
    place[labels] = np.arange(len(labels))
    shape = len(labels), len(grid)
    hits, taken, n_true = np.zeros(shape), np.zeros(shape), np.zeros(len(labels))
    for ranking, scores in rankings:
        truth = ranking.truth
        weights = np.where(np.arange(truth.n_rows) % 2 == half, 1.0, 0.0)
        weights = weights if truth.weights is None else weights * truth.weights
        n_true += np.bincount(place[truth.indices], weights[truth.rows], len(labels))
        row, rank = np.nonzero((ranking.ids >= 0) & (scores >= grid[0]) & (weights > 0)[:, None])
        label, at = place[ranking.ids[row, rank]], np.searchsorted(grid, scores[row, rank], side="right") - 1
        for counts, counted in ((taken, label >= 0), (hits, ranking.is_true[row, rank])):
            key = (label * len(grid) + at)[counted]
            counts += np.bincount(key, weights[row[counted]], counts.size).reshape(shape)
    from_above = lambda counts: np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    return _Counts(from_above(hits), from_above(taken), n_true)
