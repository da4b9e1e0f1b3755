"""Held-out evaluation at `fit`: train on some rows, predict others, decide by what is measured.

The rows that judge are never those that trained, and samples follow from the seed alone. Small data, which
train in a moment, are trained on again fold by fold. Of larger data some labels are enough to measure scores,
trained on most rows: fewer rows would give weaker classifiers, whose scores are others.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import _core
from bonsai_xmc._base.progress import LOG
from bonsai_xmc._data.labels import Labels, is_true
from bonsai_xmc._data.tree import trees_of
from bonsai_xmc._model.ranker import Ranker
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._model.thresholds import FALLBACK, Judged, micro_f1, steadiest
from bonsai_xmc._training import splits
from bonsai_xmc._training.samples import LabelSample, sample_labels, sample_subtrees
from bonsai_xmc._training.train import Problem, train, train_sample
from bonsai_xmc._training.work import Work

Array = npt.NDArray[Any]


def choose_threshold(problem: Problem, strategy: Strategy, core: _core.Model, seed: int, work: Work) -> float:
    """The score from which `predict` takes a label, for the best micro-F1 on held-out rows.

    `core` is what was trained on the whole problem; of it, only the structure of the trees is used.
    """
    if problem.rows.n_rows < splits.FEWEST_ROWS:
        return FALLBACK
    with work.phases.together("threshold"):
        judged = _judged(problem, strategy, core, seed, work)
    return _best_threshold(judged)


def threshold_of(problem: Problem, fit: Callable[[Problem], Ranker], seed: int, threads: int) -> float:
    """Return the threshold with the best micro-F1 on held-out rows, for any ranker.

    A second one is trained for it, on the other rows.
    """
    if problem.rows.n_rows < splits.FEWEST_ROWS:
        return FALLBACK
    split = splits.most_rows(problem.rows.n_rows, seed)
    known, held_out = problem.take(split.training), problem.take(split.held_out)
    if not len(known.labels.indices) or not len(held_out.labels.indices):
        return FALLBACK
    k = min(splits.DEPTH, problem.labels.n_labels)
    ids, log_scores = fit(known).top_k(held_out.rows, k, threads=threads)
    right = is_true(held_out.labels, ids)
    found = ids >= 0
    weights = np.ones(int(found.sum()))
    judged = Judged(np.exp(log_scores[found]), right[found], weights, float(len(held_out.labels.indices)))
    return _best_threshold(judged)


def _judged(problem: Problem, strategy: Strategy, core: _core.Model, seed: int, work: Work) -> Judged:
    if problem.facts.n_labels * problem.rows.n_entries <= splits.SMALL:
        parts = [
            _judged_fold(problem, strategy, split, seed, work)
            for split in splits.folds(problem.rows.n_rows, seed)
        ]
        return _joined([part for part in parts if part is not None])
    return _judged_sample(problem, strategy, core, seed, work)


def _judged_fold(
    problem: Problem, strategy: Strategy, split: splits.Split, seed: int, work: Work
) -> Judged | None:
    known = problem.take(split.training)
    if not len(known.labels.indices):
        return None
    model, _ = train(known, strategy, seed, work)
    weights = np.ones(problem.labels.n_labels)
    return _judge(model, problem.take(split.held_out), weights, strategy, work)


def _judged_sample(problem: Problem, strategy: Strategy, core: _core.Model, seed: int, work: Work) -> Judged:
    sample = _sample(problem.labels, strategy, core, seed)
    split = splits.most_rows(problem.rows.n_rows, seed)
    some = replace(problem, labels=sample.labels)
    model = train_sample(some.take(split.training), strategy, sample, problem.labels.counts, seed, work)
    return _judge(model, some.take(split.held_out), sample.weights, strategy, work)


def _sample(labels: Labels, strategy: Strategy, core: _core.Model, seed: int) -> LabelSample:
    """Labels by themselves, or subtrees of the first tree where scores depend on the path."""
    if strategy.classifiers == "one_vs_rest" and strategy.path_weight == 0:
        n_labels = np.count_nonzero(labels.counts)
        return sample_labels(labels, max(splits.LABEL_SHARE * n_labels, splits.FEWEST_LABELS), seed)
    assert core.trees is not None
    return sample_subtrees(labels, trees_of(core.trees.arrays())[0], splits.TREE_SHARE, seed)


def _judge(
    model: _core.Model, truth: Problem, label_weights: Array, strategy: Strategy, work: Work
) -> Judged:
    """What the model predicts for rows whose labels are known; labels of weight 0 do not count."""
    ids, log_scores = work.predict(
        model,
        truth.rows,
        min(splits.DEPTH, model.n_labels),
        beam_size=0,
        exact=False,
        n_probe=0,
        path_weight=strategy.path_weight,
    )
    row, _ = found = np.nonzero(ids >= 0)
    labels = ids[found]
    weights, true_weights = label_weights[labels], label_weights[truth.labels.indices]
    if truth.weights is not None:
        weights = weights * truth.weights[row]
        true_weights = true_weights * np.repeat(truth.weights, np.diff(truth.labels.indptr))
    counts = weights > 0
    right = _is_true(truth.labels, row[counts], labels[counts])
    scores = np.exp(log_scores[found][counts].astype(np.float64))
    return Judged(scores, right, weights[counts], float(true_weights.sum()))


def _is_true(truth: Labels, row: Array, label: Array) -> Array:
    """Whether each (row, label) is among the true ones."""
    keys = np.repeat(np.arange(truth.n_rows), np.diff(truth.indptr)) * truth.n_labels + truth.indices
    return np.isin(row * np.int64(truth.n_labels) + label, keys)


def _joined(parts: list[Judged]) -> Judged:
    return Judged(
        np.concatenate([np.empty(0), *(part.scores for part in parts)]),
        np.concatenate([np.empty(0, bool), *(part.right for part in parts)]),
        np.concatenate([np.empty(0), *(part.weights for part in parts)]),
        sum(part.positives for part in parts),
    )


def _best_threshold(judged: Judged) -> float:
    curve = micro_f1(judged)
    threshold = steadiest(curve)
    if threshold is None:
        return FALLBACK
    LOG.info(
        "threshold %g: micro-F1 %.4f on held-out rows, %.4f with %g",
        threshold,
        curve.at(threshold),
        curve.at(FALLBACK),
        FALLBACK,
    )
    return threshold
