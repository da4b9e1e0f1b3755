"""A model of some labels, trained on most rows, for measurements on the others.

Fewer rows would give weaker classifiers with other scores; the classifiers of some labels are the same as
among all labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.tree import LabelTree
from bonsai_xmc._model.linear import core_model
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._selection.held_out import HeldOut
from bonsai_xmc._training import splits
from bonsai_xmc._training.samples import LabelSample, sample_labels, sample_subtrees
from bonsai_xmc._training.train import Problem, row_trees, train_sample
from bonsai_xmc._training.work import Work

if TYPE_CHECKING:
    from bonsai_xmc import _core


class SampledModel(NamedTuple):
    """A model of some labels, and rows that it was not trained on."""

    core: _core.Model
    strategy: Strategy
    held_out: HeldOut
    weights: Array  # of each label: 1 / its chance to be drawn; 0 for one that stands for others

    def pruned(self, prune: float, threads: int) -> SampledModel:
        """Return the same without weights of at most this magnitude, of a model that has only trees."""
        assert self.core.trees is not None
        strategy = replace(self.strategy, prune=prune, node_prune=prune)
        core = core_model(self.core.trees.pruned(prune, threads), None, None, strategy, self.weights)
        return self._replace(core=core, strategy=strategy)


def sampled_model(
    problem: Problem, strategy: Strategy, tree: LabelTree | None, seed: int, work: Work
) -> SampledModel:
    """Train labels by themselves, or subtrees of the first tree where scores depend on the path."""
    n_rows, n_labels = problem.rows.n_rows, problem.facts.n_labels
    split = splits.most_rows(n_rows, seed, splits.most_held_out(n_labels, n_rows))
    sample = _sample(problem, strategy, tree, seed)
    some = replace(problem, labels=sample.labels)
    more_trees = row_trees(problem.take(split.training), strategy, seed, work)
    part, counts = some.take(split.training), problem.labels.counts
    core = train_sample(part, strategy, sample, counts, seed, work, more_trees)
    return SampledModel(core, strategy, HeldOut.of(some, split.held_out), sample.weights)


def _sample(problem: Problem, strategy: Strategy, tree: LabelTree | None, seed: int) -> LabelSample:
    labels, n_labels = problem.labels, problem.facts.n_labels
    if strategy.classifiers == "one_vs_rest":
        n = min(splits.LABEL_SHARE * n_labels, splits.MOST_LABELS)
        return sample_labels(labels, max(n, splits.FEWEST_LABELS), seed)
    assert tree is not None
    return sample_subtrees(labels, tree, splits.subtrees(n_labels, len(labels.indices)), seed)
