"""The choice of the default model: candidates trained on a part of the rows, compared on held-out rows."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._model.strategy import beam_size
from bonsai_xmc._selection.held_out import (
    Candidates,
    Evidence,
    HeldOut,
    Ranked,
    Trials,
    alone,
    extrapolated,
    growth,
    price_of_blend,
)
from bonsai_xmc._selection.strategy import SearchSpace, clear_gain, resolve
from bonsai_xmc._training import splits
from bonsai_xmc._training.train import Problem, train
from bonsai_xmc._training.work import Work


def gather(
    problem: Problem, params: Mapping[str, Any], space: SearchSpace, seed: int, work: Work
) -> Evidence | None:
    """The best of the search space on held-out rows; None where these, or the others, have no labels.

    Trees are trained once, one-vs-rest classifiers for each C until one is no better than those before. What
    matters is the gain of models of all rows. That of a blend grows as the measures do, by what models of
    half the rows tell. The effect of C does not, and is extrapolated by itself.
    """
    with work.phases.together("held-out rows"):
        return _gather(problem, params, space, seed, work)


def _gather(
    problem: Problem, params: Mapping[str, Any], space: SearchSpace, seed: int, work: Work
) -> Evidence | None:
    split, half_of_training = splits.small_part(problem.rows.n_rows, seed)
    part, held_out = problem.take(split.training), HeldOut(problem.labels, split.held_out, problem.weights)
    half = problem.take(half_of_training)
    if not len(half.labels.indices) or not len(held_out.truth.indices):
        return None
    rows = problem.rows.take(split.held_out)
    fixed: dict[str, Any] = {"classifiers": "blend", "search": "auto", "n_probe": "auto"}
    fixed |= {"blend_weight": 0.5, "logit_adjustment": 0.0}
    strategy = resolve({**params, **fixed}, part.facts)
    one_vs_rest = replace(strategy, classifiers="one_vs_rest", n_trees=0, blend_weight=0.0)
    beam = beam_size(params["beam_size"], strategy.n_trees, "beam")

    def ranked(trees: _core.Forest | None, one_vs_rest: _core.Forest | None) -> Ranked:
        model = _core.Model(trees, one_vs_rest, strategy.loss, strategy.normalize)
        k = min(splits.CANDIDATES, model.n_labels)
        options = {"beam_size": beam, "exact": False, "n_probe": 0, "path_weight": 0.0}
        return Ranked(*work.predict(model, rows, k, **options))

    @cache
    def of_half(C: float) -> Any:
        model, _ = train(half, replace(one_vs_rest, C=C), seed, work)
        return alone(held_out, ranked(None, model.one_vs_rest))

    usual = space.costs[0]
    model, _ = train(part, strategy, seed, work)
    of_trees, of_usual = ranked(model.trees, None), ranked(None, model.one_vs_rest)
    doublings = float(np.log2(problem.rows.n_rows / part.rows.n_rows))
    level = alone(held_out, of_usual)
    more = growth(of_half(usual), level, doublings)
    price = price_of_blend(problem.facts.n_labels, problem.facts.n_entries, more)
    search = Trials(held_out, space.weights, space.adjustments, price, clear_gain(problem.facts))
    search.add(usual, Candidates(held_out, of_usual, of_trees))
    search.accept()
    for C in space.costs[1:]:
        model, _ = train(part, replace(one_vs_rest, C=C), seed, work)
        found = ranked(None, model.one_vs_rest)
        if not search.add(C, Candidates(held_out, found, of_trees)):
            break
        effect = alone(held_out, found) - level
        of_all = extrapolated(of_half(C) - of_half(usual), effect, doublings)
        if not search.accept(of_all / more - effect):
            break
    return search.evidence(len(split.training))
