"""The `prune` of leaf classifiers of many labels: the largest one that loses nothing on held-out rows.

Training does not depend on it: classifiers of some subtrees are trained once, and weights of at most this
magnitude are then left out. The loss is measured row by row; it counts where chance does not explain it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc._base.progress import LOG
from bonsai_xmc._data.tree import LabelTree
from bonsai_xmc._model.strategy import Facts, Strategy, is_auto
from bonsai_xmc._selection.held_out import Evidence, gain, measured
from bonsai_xmc._selection.sampled import SampledModel, sampled_model
from bonsai_xmc._training import splits
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.metrics._ranking import Ranking

if TYPE_CHECKING:
    from bonsai_xmc import _core

LARGER = (0.3, 0.2, 0.15)
_MEASURES = ("P@1", "P@3", "P@5", "PSP@5")
_DEPTH = 5
_LOSS = 0.25  # percent of the measures, on average
_SURE = 1.0  # up to this standard error, in percent, a loss may be chance; beyond it, so may be a gain


def is_open(params: Mapping[str, Any], facts: Facts, strategy: Strategy) -> bool:
    """Return whether held-out rows choose `prune`: for label trees whose size matters."""
    large = facts.n_labels > splits.MANY_LABELS and facts.n_labels * facts.n_entries > splits.SMALL
    return large and is_auto(params["prune"]) and strategy.classifiers == "leaf"


def choose_prune(
    problem: Problem, strategy: Strategy, trees: _core.Trees, seed: int, work: Work
) -> tuple[SampledModel, str]:
    """Return the model of some labels with the largest `prune` that loses nothing, and the evidence."""
    with work.phases.together("pruning"):
        usual = found = sampled_model(problem, strategy, LabelTree(*trees.arrays()[0]), seed, work)
        drawn = usual.weights > 0
        held_out = usual.held_out.among(drawn)

        def ranked(model: SampledModel) -> Ranking:
            core = model.core.restricted(drawn.astype(np.uint8))
            return held_out.rank(core, _DEPTH, work)

        tried = {f"prune={strategy.prune:g}": (before := ranked(usual))}
        for prune in LARGER:
            pruned = usual.pruned(prune, work.threads)
            after = tried[f"prune={prune:g}"] = ranked(pruned)
            mean, error = gain(after, before, _MEASURES)
            LOG.info("prune=%g: %+.2f ± %.2f %%", prune, mean, error)
            if mean + (error if error <= _SURE else -error) >= -_LOSS:
                found = pruned
                break
    n_training = problem.rows.n_rows - found.held_out.rows.n_rows
    named = {name: measured(ranking, _MEASURES) for name, ranking in tried.items()}
    note = f"  ({np.count_nonzero(drawn):,} labels only)"
    evidence = str(Evidence(_MEASURES, named, held_out.rows.n_rows, n_training, note))
    LOG.info("prune=%g; %s", found.strategy.prune, evidence)
    return found, evidence
