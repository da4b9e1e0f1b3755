"""The weights and links of a fusion, chosen on rows that its members were not trained on.

The best labels of each member are ranked once; every combination of weights and links is then evaluated
without further predictions. The objective is that of the default model (docs/internals/algorithm.md).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._model import calibration
from bonsai_xmc._model.calibration import Calibration
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.fusion import CALIBRATED, LINKS, SCORE, Member
from bonsai_xmc._selection.default import MEASURES, soft_minimum
from bonsai_xmc._selection.held_out import Pool, climb, is_better, measured
from bonsai_xmc.metrics import _propensity
from bonsai_xmc.metrics._ranking import Ranking, Truth

PRICE = 0.1  # points that each member beyond the first must gain, for the time and the space that it takes
# Points of P@1 and of P@5 that labels with rows may lose to labels that are scored by their names.
LOSS_TO_NAMES = 0.15
# Weights that a member may have, relative to the sum of those of the others.
WEIGHTS = (0.0, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
# Where the frequencies of labels are unknown.
UNWEIGHTED = ("P@1", "P@3", "P@5")
_SWEEPS = 3
_ERRORS = 2.0  # standard errors by which a fusion must be better than its best member


class Weighting(NamedTuple):
    """A weight and a link for each member."""

    weights: tuple[float, ...]
    links: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """What is best on held-out rows, and the evidence."""

    setting: Weighting
    calibrations: Sequence[Calibration | None]
    measures: Sequence[str]
    figures: Mapping[str, Any]  # a number for each measure: of each member by its name, and of the fusion
    n_held_out: int

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as a model file holds it."""
        figures = {
            name: [round(float(value), 4) for value in values] for name, values in self.figures.items()
        }
        return {"measures": list(self.measures), "figures": figures, "n_held_out": self.n_held_out}


FUSED = "fusion"  # the name of its figures


def truth_of(fitted: FittedModel, Y: Any) -> Truth:
    """Return the true labels of held-out rows, as a model numbers its labels."""
    q = None
    if fitted.n_rows is not None:
        q = _propensity.from_counts(fitted.label_counts, fitted.n_rows, *_propensity.OTHERS)
    truth = Truth.of(list(Y) if isinstance(Y, Iterator) else Y, fitted.classes, q)
    if not len(truth.indices):
        raise ValueError("none of the held-out rows has a label that the models know")
    return truth


def choose(
    members: Sequence[Member],
    rankings: Sequence[Ranking],
    *,
    links: Sequence[str] = LINKS,
    weights: Sequence[float] | None = None,
    price: float = PRICE,
) -> Chosen:
    """Choose links and weights by rankings of the members; weights that are given stay.

    Labels of the rankings are those of the fusion.
    """
    truth = rankings[0].truth
    measures = UNWEIGHTED if truth.q is None else MEASURES
    calibrations = [_calibrated(*pair) for pair in zip(members, rankings, strict=True)]
    trials = _Trials(members, rankings, calibrations, links, measures)
    singles = trials.singles()
    best = singles.max(0)
    objective = lambda setting: float(
        soft_minimum(trials.figures(setting) - best) - price * (np.count_nonzero(setting.weights) - 1)
    )
    if weights is not None:
        starts = [Weighting(tuple(weights), (link,) * len(members)) for link in trials.common]
        steps = [trials.other_links(i) for i in range(len(members))]
    else:
        starts = [
            Weighting(_only(i, len(members)), (trials.first,) * len(members)) for i in range(len(members))
        ]
        starts += [Weighting((1.0,) * len(members), (link,) * len(members)) for link in trials.common]
        steps = [trials.alternatives(i) for i in range(len(members))]
    start = max(starts, key=objective)  # the first of equals
    better = lambda tried, figures, reached: is_better(tried, reached)
    found = climb(start, objective(start), steps, objective, better, _SWEEPS)[-1]
    if weights is None:
        alone = max(starts[: len(members)], key=objective)
        if not is_better(trials.hits(found), trials.hits(alone), errors=_ERRORS):
            found = alone
    figures = {member.name: values for member, values in zip(members, singles, strict=True)}
    return Chosen(found, calibrations, measures, {**figures, FUSED: trials.figures(found)}, truth.n_rows)


def with_names(
    found: Chosen, members: Sequence[Member], rankings: Sequence[Ranking], links: Sequence[str], seen: Array
) -> Chosen:
    """Choose the weight and the link of a last member, which scores rare labels and those without rows.

    The others keep theirs. `seen` marks the labels that have rows in the others. The best setting
    finds most of the other labels among the ten best, at a small loss of P@1 and P@5 of those with rows.
    """
    calibrations = [*found.calibrations, _calibrated(members[-1], rankings[-1])]
    trials = _Trials(members, rankings, calibrations, links, found.measures)
    last = len(members) - 1

    def figures(setting: Weighting) -> Array:
        ranking = trials.ranking(setting, 10)
        others = measured(ranking.among(~seen), ("R@10",))
        return np.append(others, measured(ranking.among(seen), ("P@1", "P@5")))

    start = Weighting((*found.setting.weights, 0.0), (*found.setting.links, trials.first))
    chosen, reached = start, figures(start)
    least = reached[1:] - LOSS_TO_NAMES
    for setting in trials.alternatives(last)(start):
        tried = figures(setting)
        if (tried[1:] >= least).all() and is_better(tried[0], reached[0]):
            chosen, reached = setting, tried
    own = trials.figures(Weighting(_only(last, len(members)), chosen.links))
    told = {**found.figures, members[-1].name: own, FUSED: trials.figures(chosen)}
    return replace(found, setting=chosen, calibrations=calibrations, figures=told)


def _only(i: int, n: int) -> tuple[float, ...]:
    return tuple(float(i == j) for j in range(n))


def _calibrated(member: Member, ranking: Ranking) -> Calibration | None:
    """Return the map of a member's scores: its own, or one that is learnt here; None if none fits."""
    own = member.model.calibration
    if own is not None and not own.grouped:
        return own
    try:
        return calibration.learn(ranking, np.empty(0), "platt", None)
    except ValueError:  # nothing is right, or everything
        return None


class _Trials:
    """Figures of settings, each computed once."""

    def __init__(
        self,
        members: Sequence[Member],
        rankings: Sequence[Ranking],
        calibrations: Sequence[Calibration | None],
        links: Sequence[str],
        measures: Sequence[str],
    ) -> None:
        self._n, self._measures = len(members), measures
        self._scores: dict[tuple[int, str], Array] = {}
        usable = [link for link in links if link != CALIBRATED or all(calibrations)] or [SCORE]
        self.common, self.first = usable, usable[0]
        self._links = [
            [link for link in links if link != CALIBRATED or one is not None] or [SCORE]
            for one in calibrations
        ]
        for link in {link for own in self._links for link in own}:
            parts = zip(members, rankings, calibrations, self._links, strict=True)
            linked = [_linked(a, b, c, link if link in own else SCORE) for a, b, c, own in parts]
            self._pool = Pool(linked)
            self._scores |= {(i, link): scores for i, scores in enumerate(self._pool.scores)}
        self._known: dict[Weighting, Array] = {}

    def figures(self, setting: Weighting) -> Array:
        """Return measures in percent."""
        if setting not in self._known:
            self._known[setting] = measured(self.ranking(setting, 5), self._measures)
        return self._known[setting]

    def ranking(self, setting: Weighting, k: int) -> Ranking:
        """Rank the best labels of each row."""
        scores = [self._scores[i, link] for i, link in enumerate(setting.links)]
        return self._pool.ranking(setting.weights, k, scores)

    def hits(self, setting: Weighting) -> Array:
        """Count the right labels among the five best of each row."""
        return np.asarray(self.ranking(setting, 5).is_true.sum(axis=1))

    def singles(self) -> Array:
        """Return the measures of each member alone, whose ranking does not depend on the link."""
        links = tuple(own[0] for own in self._links)
        return np.array([self.figures(Weighting(_only(i, self._n), links)) for i in range(self._n)])

    def alternatives(self, i: int) -> Callable[[Weighting], Iterable[Weighting]]:
        """Return a step: every weight and link of one member."""

        def of(setting: Weighting) -> Iterable[Weighting]:
            others = sum(setting.weights) - setting.weights[i]
            if others == 0:
                return
            for link in self._links[i]:
                for weight in WEIGHTS:
                    yield _changed(setting, i, weight * others, link)

        return of

    def other_links(self, i: int) -> Callable[[Weighting], Iterable[Weighting]]:
        """Return a step: every link of one member."""
        return lambda setting: (_changed(setting, i, setting.weights[i], link) for link in self._links[i])


def _changed(setting: Weighting, i: int, weight: float, link: str) -> Weighting:
    weights, links = list(setting.weights), list(setting.links)
    weights[i], links[i] = weight, link
    return Weighting(tuple(weights), tuple(links))


def _linked(member: Member, ranking: Ranking, found: Calibration | None, link: str) -> Ranking:
    """Return a ranking whose scores are those of a link. Labels without a value are not candidates."""
    member = replace(member, link=link, labels=None, model=replace(member.model, calibration=found))
    with np.errstate(divide="ignore"):
        return replace(ranking, scores=np.log(member.values(ranking.ids, ranking.scores)))
