"""The threshold of `predict` that `fit` chooses: the best micro-F1 on held-out rows.

Small data, which train in a moment, are trained on again fold by fold. Of larger data some labels are enough
to measure scores.
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
from bonsai_xmc._selection.held_out import HeldOut
from bonsai_xmc._selection.label_thresholds import label_thresholds
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
    """Choose the common threshold with the best micro-F1 on held-out rows; if asked for, one for each label.

    `core` is what was trained on the whole problem; of it, only the structure of the trees is used. `sampled`
    has some of its labels, if such a model was needed before.
    """
    if problem.rows.n_rows < splits.FEWEST_ROWS:
        return Thresholds()
    options = {"beam_size": 0, "exact": False, "n_probe": 0}
    with work.phases.together("threshold"):
        parts = [
            (held_out.rank(model, splits.DEPTH, work, **options), label_weights)
            for model, held_out, label_weights in _models(
                problem, strategy, core, seed, work, per_label, sampled
            )
        ]
    return chosen_threshold(parts, problem.labels.n_labels, per_label)


def threshold_of(
    problem: Problem, fit: Callable[[Problem], Ranker], seed: int, threads: int, *, per_label: bool = False
) -> Thresholds:
    """Choose the same for any ranker. A second one is trained for it, on the other rows."""
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
    """Choose the same by rankings of held-out rows, each with the weights of labels there."""
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
