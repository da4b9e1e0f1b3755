"""The choice of the default model: which C, blend weight and logit adjustment rank labels best.

Models trained on a part of the rows score held-out rows. Every combination of blend weight and logit
adjustment is then evaluated without further training; so is what trees over rows add to the best one. The
objective, and why, is in docs/internals/algorithm.md.

Imports the core, whose models it compares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.labels import Labels
from bonsai_xmc._model.strategy import beam_size
from bonsai_xmc._selection.held_out import Evidence, HeldOut, Pool, is_better, measured
from bonsai_xmc._selection.strategy import Choice, SearchSpace, Setting, clear_gain, resolve
from bonsai_xmc._training import splits, trees_over_rows
from bonsai_xmc._training.train import Problem, train
from bonsai_xmc._training.work import Work
from bonsai_xmc.metrics._ranking import Ranking

_PRECISION = ("P@1", "P@5")
MEASURES = (*_PRECISION, "PSP@1", "PSP@5")
_SHARPNESS = 10.0  # of the soft minimum, per point: differences of a tenth begin to matter
# Points that a blend must gain, as it takes the time and the space of two models: on small data, less.
_PRICE_OF_BLEND, _SMALL = 0.1, 1e10
# Trees over rows take several times the time and the space of all other classifiers: points that they must
# gain, and how many of them are grown for this comparison. More trees gain more.
_PRICE_OF_ROW_TREES, _TRIED_ROW_TREES = 0.3, 20


def gather(
    problem: Problem, params: Mapping[str, Any], space: SearchSpace, seed: int, work: Work
) -> Choice | None:
    """Choose the best of the search space on held-out rows; None where these, or the others, have no labels.

    Trees are trained once, one-vs-rest classifiers for each C until one is no better than those before. What
    counts is the gain for models of all rows. The gain of a blend grows as the measures do, which are also
    taken with models of half the rows. The gain of a C does not, and is extrapolated by itself.
    """
    with work.phases.together("held-out rows"):
        return _gather(problem, params, space, seed, work)


def _gather(
    problem: Problem, params: Mapping[str, Any], space: SearchSpace, seed: int, work: Work
) -> Choice | None:
    n_rows = problem.rows.n_rows
    sizes = splits.part_sizes(n_rows)
    split = splits.split(n_rows, *sizes, seed)
    half = problem.take(splits.split(n_rows, sizes[0] // 2, 0, seed).training)
    part, held_out = problem.take(split.training), HeldOut.of(problem, split.held_out)
    if not len(half.labels.indices) or not len(held_out.truth.indices):
        return None
    fixed: dict[str, Any] = {"classifiers": "blend", "search": "auto", "n_probe": "auto"}
    fixed |= {"blend_weight": (0.5, 0.0), "logit_adjustment": 0.0}
    strategy = resolve({**params, **fixed}, part.facts)
    one_vs_rest = replace(strategy, classifiers="one_vs_rest", n_trees=0, blend_weight=0.0)
    beam = beam_size(params["beam_size"], strategy.n_trees, "beam")

    def ranked(trees: _core.Forest | None, one_vs_rest: _core.Forest | None) -> Ranking:
        model = _core.Model(trees, one_vs_rest, strategy.loss, strategy.normalize)
        return held_out.rank(model, splits.CANDIDATES, work, beam_size=beam)

    def of_one_vs_rest(some: Problem, C: float) -> Ranking:
        return ranked(None, train(some, replace(one_vs_rest, C=C), seed, work)[0].one_vs_rest)

    @cache
    def of_half(C: float) -> Array:
        return measured(of_one_vs_rest(half, C), MEASURES)

    model, _ = train(part, strategy, seed, work)
    of_trees, of_usual = ranked(model.trees, None), ranked(None, model.one_vs_rest)
    usual, level = space.costs[0], measured(of_usual, MEASURES)
    doublings = float(np.log2(n_rows / part.rows.n_rows))
    more = growth(of_half(usual), level, doublings)
    price = price_of_blend(problem.facts.n_labels, problem.facts.n_entries, more)
    counts = remaining_counts(problem.labels, split.held_out)
    search = Trials(space, counts, price, clear_gain(problem.facts))
    search.add(usual, (of_usual, of_trees))
    search.accept()
    for C in space.costs[1:]:
        found = of_one_vs_rest(part, C)
        if not search.add(C, (found, of_trees)):
            break
        effect = measured(found, MEASURES) - level
        of_all = extrapolated(of_half(C) - of_half(usual), effect, doublings)
        if not search.accept(of_all / more - effect):
            break
    if space.row_tree_weights and search.has_one_vs_rest:
        trees = trees_over_rows.beside(part, _TRIED_ROW_TREES, seed, work)
        search.add_row_trees(held_out.rank(trees, splits.CANDIDATES, work))
    return search.choice(held_out.truth.n_rows, part.rows.n_rows)


def price_of_blend(n_labels: int, n_entries: int, growth: Array) -> Array:
    """Return the points by which a blend must be better than either model alone, given the size of the data.

    They count for models of all rows. The gain of a blend grows as the measures do: on a part of the rows,
    whose measures are `growth` times smaller, it need not be as large.
    """
    return _PRICE_OF_BLEND * min(1.0, n_labels * n_entries / _SMALL) / growth


def remaining_counts(labels: Labels, held_out: Array) -> Array:
    """Return the rows of each label, estimated without those held out: what a logit adjustment would see."""
    rest = labels.counts - labels.take(held_out).counts
    return np.maximum(rest * (labels.n_rows / (labels.n_rows - len(held_out))), 1.0)


def extrapolated(half: Array, part: Array, doublings: float) -> Array:
    """Extrapolate measures, or differences, to all rows: about linear in the logarithm of their number."""
    return part + doublings * (part - half)


def growth(half: Array, part: Array, doublings: float) -> Array:
    """Return how many times larger measures are for all rows than for a part of them; at least 1."""
    of_all = np.minimum(extrapolated(half, part, doublings), 100.0)
    return np.maximum(of_all / np.maximum(part, 1e-9), 1.0)


def soft_minimum(gains: Array) -> Array:
    """Return the soft minimum over the last axis: below the mean, and near a minimum far below the rest."""
    low = gains.min(-1, keepdims=True)
    mean = np.exp(-_SHARPNESS * (gains - low)).mean(-1)
    return low[..., 0] - np.log(mean) / _SHARPNESS


def _shares(blend_weight: float, row_tree_weight: float | None = None) -> tuple[float, ...]:
    """Return the weights of one-vs-rest and of trees, and of trees over rows if they have one."""
    rest = 1 - (row_tree_weight or 0.0)
    shares = (rest * (1 - blend_weight), rest * blend_weight)
    return shares if row_tree_weight is None else (*shares, row_tree_weight)


class _Best(NamedTuple):
    objective: float
    setting: Setting
    measures: Array
    rankings: Sequence[Ranking]  # of one-vs-rest and of trees


class Trials:
    """Blends of one-vs-rest classifiers, at one C after the other, with the same trees; then trees over rows.

    The best setting has the largest soft minimum, over the measures, of the gain over the best of three at
    the first C: one-vs-rest alone, trees alone, and both with equal weights. A blend must be better than
    either alone by `price`, of each measure, and a larger adjustment than smaller ones by `clear_gain`.
    """

    def __init__(
        self, space: SearchSpace, counts: Array, price: Array | float = 0.0, clear_gain: float = 0.0
    ) -> None:
        self._space, self._price, self._clear_gain = space, price, clear_gain
        self._log_counts = np.log(counts).astype(np.float32)
        self._simple = np.empty((0, len(MEASURES)))
        self._best: _Best | None = None
        # C, rankings, and measures of shape (weights, adjustments, 4)
        self._next: tuple[float, Sequence[Ranking], Array] = 0.0, (), np.empty(0)
        self._of_row_trees: Array | None = None

    def grid(
        self, rankings: Sequence[Ranking], weights: Sequence[Sequence[float]], adjustments: Sequence[float]
    ) -> Array:
        """Return measures of shape (weights, adjustments, 4); there is a weight for each ranking."""
        pool, result = Pool(rankings), np.empty((len(weights), len(adjustments), len(MEASURES)))
        for a, adjustment in enumerate(adjustments):
            scores = pool.adjusted(np.exp(np.float32(-adjustment) * self._log_counts))
            for w, weight in enumerate(weights):
                result[w, a] = measured(pool.ranking(weight, 5, scores), MEASURES)
        return result

    def add(self, C: float, rankings: Sequence[Ranking]) -> bool:
        """Try the settings at this C; return whether one of them is better than those before."""
        if self._best is None:
            self._simple = self.grid(rankings, [_shares(w) for w in (0.0, 1.0, 0.5)], (0.0,))[:, 0]
        weights = [_shares(w) for w in self._space.weights]
        self._next = C, rankings, self.grid(rankings, weights, self._space.adjustments)
        return self._best is None or is_better(self._best_of(self._next[2])[0], self._best.objective)

    def accept(self, trend: Array | float = 0.0) -> bool:
        """Take the best setting that was added last; False if it is no better with `trend` added.

        `trend` is that of one-vs-rest alone. The less weight one-vs-rest has in a blend, the less C matters.
        """
        C, rankings, measures = self._next
        objective, (w, a) = self._best_of(measures, trend)
        if self._best is not None and not is_better(objective, self._best.objective):
            return False
        setting = Setting(C, self._space.weights[w], self._space.adjustments[a])
        self._best = _Best(objective, setting, measures[w, a], rankings)
        return True

    @property
    def has_one_vs_rest(self) -> bool:
        """Whether one-vs-rest has a part in the best setting."""
        return self._best is not None and self._best.setting.blend_weight < 1

    def add_row_trees(self, ranking: Ranking) -> None:
        """Add trees over rows to the best setting if they gain enough; a given weight is always taken.

        All four measures must gain. Of the settings with which they do, the one with the best P@1 and P@5
        wins: a larger adjustment moves points from these to PSP, and more of them for models of all rows.
        """
        assert self._best is not None
        space, best = self._space, self._best
        self._of_row_trees = measured(ranking, MEASURES)
        weights = [_shares(best.setting.blend_weight, f) for f in space.row_tree_weights]
        measures = self.grid([*best.rankings, ranking], weights, space.adjustments)
        gains = measures - best.measures
        worst = soft_minimum(gains)
        pays = worst > _PRICE_OF_ROW_TREES
        if not pays.any():
            if len(space.row_tree_weights) > 1:
                return
            pays = worst == worst.max()
        precise = np.where(pays, gains[..., : len(_PRECISION)].mean(-1), -np.inf)
        f, a = np.unravel_index(precise.argmax(), precise.shape)
        setting = best.setting._replace(
            logit_adjustment=space.adjustments[a], row_tree_weight=space.row_tree_weights[f]
        )
        self._best = best._replace(setting=setting, measures=measures[f, a])

    def _best_of(self, measures: Array, trend: Array | float = 0.0) -> tuple[float, tuple[int, int]]:
        weights, adjustments = np.array(self._space.weights), np.array(self._space.adjustments)
        gains = measures - self._simple.max(0) + (1 - weights)[:, None, None] * trend
        gains[(weights > 0) & (weights < 1)] -= self._price
        objective = soft_minimum(gains)
        objective[weights == 1, 1:] = -np.inf  # trees alone: their scores are not adjusted
        w, a = np.unravel_index(objective.argmax(), objective.shape)
        best = float(objective[w, a])
        enough = np.flatnonzero(objective[w] >= best - self._clear_gain)
        return best, (int(w), int(enough[np.argmin(adjustments[enough])]))

    def choice(self, n_held_out: int, n_training: int) -> Choice:
        """Return the best setting, and the evidence for it."""
        assert self._best is not None
        figures = dict(zip(("one-vs-rest", "trees", "equal weights"), self._simple, strict=True))
        if self._of_row_trees is not None:
            figures[f"{_TRIED_ROW_TREES} row trees"] = self._of_row_trees
        figures["chosen"] = self._best.measures
        return Choice(self._best.setting, str(Evidence(MEASURES, figures, n_held_out, n_training)))
