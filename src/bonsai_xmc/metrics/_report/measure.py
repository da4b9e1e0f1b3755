"""The numbers of a report: metrics by row, resampled, and split by frequency, field and label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bonsai_xmc.metrics._definitions import OF_ROWS, Quotient, known
from bonsai_xmc.metrics._ranking import Floats, Ints, Ranking

SHOWN = ("P", "R", "nDCG", "RP", "F1", "PSP", "PSnDCG")  # metrics of rows, in the order of a report
DEPTH = 5  # rank of metrics that are shown at a single k

N_RESAMPLES = 1000
_AT_A_TIME = 5_000_000  # random numbers drawn at a time

_EDGES = (1, 2, 5, 10, 20, 50, 100, 500)  # of label frequencies
_N_COSTLY, _N_EXAMPLES = 10, 2
_MOST_VALUES = 20  # of a field


def at(ranking: Ranking, cutoffs: Sequence[int]) -> dict[str, Quotient]:
    """Return "P@1", "P@3", …, "R@1", … as quotients of sums over rows."""
    return {f"{name}@{k}": OF_ROWS[name](ranking, k) for name in known(SHOWN, ranking) for k in cutoffs}


@dataclass(frozen=True)
class Difference:
    """The difference of a second model to the first in percentage points, with a 95 % interval."""

    value: float
    low: float
    high: float


def differences(
    first: Mapping[str, Quotient], second: Mapping[str, Quotient], rows: Ints, seed: int
) -> dict[str, Difference]:
    """Compute a paired bootstrap: the same rows are drawn for both models, and for all metrics."""
    names = list(first)
    changes = np.column_stack([second[name].part[rows] - first[name].part[rows] for name in names])
    wholes = np.column_stack([first[name].whole[rows] for name in names])
    rng, found = np.random.default_rng(seed), []
    step = max(1, _AT_A_TIME // max(1, len(rows)))
    for begin in range(0, N_RESAMPLES, step):
        size = min(step, N_RESAMPLES - begin)
        drawn = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=size).astype(np.float64)
        found.append((drawn @ changes) / np.maximum(drawn @ wholes, 1e-300))
    low, high = 100 * np.percentile(np.concatenate(found), [2.5, 97.5], axis=0)
    values = [100 * (second[name].over(rows=rows) - first[name].over(rows=rows)) for name in names]
    return {name: Difference(values[i], float(low[i]), float(high[i])) for i, name in enumerate(names)}


def parts_of(values: Sequence[str]) -> dict[str, Ints]:
    """Return the rows of each value of a field, most frequent first; rare values are merged."""
    column = np.array(values, dtype=object)
    kinds, place, counts = np.unique(column, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    parts = {str(kinds[i]): np.flatnonzero(place == i) for i in order[:_MOST_VALUES]}
    if len(order) > _MOST_VALUES:
        rest = np.isin(place, order[_MOST_VALUES:])
        parts[f"{len(order) - _MOST_VALUES:,} other values"] = np.flatnonzero(rest)
    return parts


@dataclass(frozen=True)
class FrequencyBin:
    """Labels of similar numbers of training rows."""

    name: str
    labels: int  # distinct true labels
    occurrences: int  # of these labels
    recall: dict[str, float]  # by model: percentage of the occurrences that are among the five best


def by_frequency(rankings: Mapping[str, Ranking], counts: Ints) -> list[FrequencyBin]:
    truth = next(iter(rankings.values())).truth
    place = np.searchsorted(_EDGES, counts, side="right")  # 0: without training rows
    hits = {name: place[found.ids[:, :DEPTH][found.is_true[:, :DEPTH]]] for name, found in rankings.items()}
    result = []
    for number in range(len(_EDGES) + 1):
        labels = truth.indices[place[truth.indices] == number]
        if len(labels):
            share = 100.0 / len(labels)
            recall = {name: share * int(np.count_nonzero(of == number)) for name, of in hits.items()}
            result.append(FrequencyBin(_bin_name(number), len(np.unique(labels)), len(labels), recall))
    return result


def _bin_name(number: int) -> str:
    low, high = (0, *_EDGES)[number], (*_EDGES, np.inf)[number] - 1
    return str(low) if low == high else f"{low}+" if high == np.inf else f"{low}–{high}"


@dataclass(frozen=True)
class LabelCost:
    """The loss of a metric by one label."""

    label: int
    points: dict[str, float]  # by model: percentage points
    rows: int  # rows with the label, as a true one or among the five best
    wrong: dict[str, int]  # by model: the number of these rows in which it is missed or wrong
    examples: list[int] = field(default_factory=list)  # some of these rows


def missed_labels(rankings: Mapping[str, Ranking], n_labels: int) -> list[LabelCost]:
    """Find the labels that cost most R@5 by missing among the five best."""
    truth = next(iter(rankings.values())).truth
    pairs = truth.rows * n_labels + truth.indices
    missed = {name: ~np.isin(pairs, _pairs(found, n_labels, true=True)) for name, found in rankings.items()}
    return _costly(pairs, n_labels, missed, 100 / (truth.n_rows * truth.n_true[truth.rows]))


def wrong_labels(rankings: Mapping[str, Ranking], n_labels: int) -> list[LabelCost]:
    """Find the labels that cost most P@5 by being wrong among the five best."""
    parts = [_pairs(found, n_labels, true) for found in rankings.values() for true in (True, False)]
    pairs = np.unique(np.concatenate(parts))
    n_rows = next(iter(rankings.values())).truth.n_rows
    wrong = {name: np.isin(pairs, _pairs(found, n_labels, true=False)) for name, found in rankings.items()}
    return _costly(pairs, n_labels, wrong, np.full(len(pairs), 100 / (n_rows * DEPTH)))


def _pairs(ranking: Ranking, n_labels: int, true: bool) -> Ints:
    """Return row · n_labels + label of the true or the wrong ones among the five best labels."""
    row, place = np.nonzero((ranking.ids >= 0)[:, :DEPTH] & (ranking.is_true[:, :DEPTH] == true))
    return row * n_labels + ranking.ids[row, place]


def _costly(pairs: Ints, n_labels: int, wrong: Mapping[str, Any], points: Floats) -> list[LabelCost]:
    row, label = np.divmod(pairs, n_labels)
    costs = {name: np.bincount(label[mask], points[mask], n_labels) for name, mask in wrong.items()}
    counts = {name: np.bincount(label[mask], minlength=n_labels) for name, mask in wrong.items()}
    n_rows = np.bincount(label, minlength=n_labels)
    first, at_first = next(iter(costs.values())), next(iter(wrong.values()))
    best = np.argsort(-first, kind="stable")[:_N_COSTLY]
    return [
        LabelCost(
            int(chosen),
            {name: float(of[chosen]) for name, of in costs.items()},
            int(n_rows[chosen]),
            {name: int(of[chosen]) for name, of in counts.items()},
            row[at_first & (label == chosen)][:_N_EXAMPLES].tolist(),
        )
        for chosen in best
        if first[chosen] > 0
    ]
