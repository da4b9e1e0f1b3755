"""What a report says, as numbers: metrics row by row, resampled, and split by frequency, field and label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bonsai_xmc.metrics._definitions import Judged
from bonsai_xmc.metrics._ranked import Floats, Ints, Ranked

# Metrics that are sums over rows: a part of the rows, or resampled rows, have them as well.
OF_ROWS = ("P", "R", "nDCG", "F1", "PSP", "PSnDCG")
DEPTH = 5  # ranks that count where a report has one number only

N_RESAMPLES = 1000
_AT_A_TIME = 5_000_000  # random numbers

_EDGES = (1, 2, 5, 10, 20, 50, 100, 500)  # of label frequencies
_N_COSTLY, _N_EXAMPLES = 10, 2
_MOST_VALUES = 20  # of a field


@dataclass(frozen=True, eq=False)
class Quotient:
    """A metric as a sum over rows, divided by another one."""

    part: Floats
    whole: Floats

    def over(self, rows: Any) -> float:
        """In percent, of some rows; 0 where nothing can be reached."""
        whole = float(self.whole[rows].sum())
        return 100.0 * min(1.0, float(self.part[rows].sum()) / whole) if whole else 0.0


def by_row(judged: Judged, k: int) -> dict[str, Quotient]:
    """The metrics of `OF_ROWS` at k; those that need propensities only where there are some."""
    sizes, n_rows = judged.sizes, judged.sizes.size
    one = np.ones(n_rows)
    hits, taken = (entries.select(entries.rank < k) for entries in (judged.hits, judged.predicted))
    n_hits, n_taken = (np.bincount(entries.row, minlength=n_rows) for entries in (hits, taken))
    discount = 1 / np.log2(np.arange(2, k + 2))
    best = np.cumsum(discount)[np.clip(np.minimum(k, sizes) - 1, 0, None)]

    def summed(entries: Ranked, weights: Floats) -> Floats:
        return np.bincount(entries.row, weights, n_rows).astype(np.float64)

    result = {
        "P": Quotient(n_hits / k, one),
        "R": Quotient(n_hits / np.maximum(sizes, 1), one),
        "nDCG": Quotient(summed(hits, discount[hits.rank]) / best, one),
        "F1": Quotient(2 * n_hits / np.maximum(n_taken + sizes, 1), one),
    }
    if judged.q is not None and judged.ideal is not None:
        q, ideal = judged.q, judged.ideal.select(judged.ideal.rank < k)
        result["PSP"] = Quotient(summed(hits, q[hits.label]), summed(ideal, q[ideal.label]))
        parts = [summed(entries, q[entries.label] * discount[entries.rank]) for entries in (hits, ideal)]
        result["PSnDCG"] = Quotient(parts[0] / best, parts[1] / best)
    return result


def at(judged: Judged, cutoffs: Sequence[int]) -> dict[str, Quotient]:
    """ "P@1", "P@3", …, "R@1", …: metric by metric."""
    found = {k: by_row(judged, k) for k in cutoffs}
    return {f"{name}@{k}": found[k][name] for name in OF_ROWS for k in cutoffs if name in found[k]}


@dataclass(frozen=True)
class Difference:
    """Of the second model to the first, in percentage points, with a 95 % interval."""

    value: float
    low: float
    high: float


def differences(
    first: Mapping[str, Quotient], second: Mapping[str, Quotient], rows: Ints, seed: int
) -> dict[str, Difference]:
    """Paired bootstrap: the same rows are drawn for both models, and for all metrics."""
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
    values = {name: second[name].over(rows) - first[name].over(rows) for name in names}
    return {name: Difference(values[name], float(low[i]), float(high[i])) for i, name in enumerate(names)}


def parts_of(values: Sequence[str]) -> dict[str, Ints]:
    """The rows of each value of a field, most frequent first; those of rare values are put together."""
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
    labels: int  # distinct ones among the true labels
    occurrences: int  # of these
    recall: dict[str, float]  # by model: percentage of the occurrences that are among the five best


def by_frequency(judged: Mapping[str, Judged], counts: Ints) -> list[FrequencyBin]:
    truth = next(iter(judged.values())).truth
    place = np.searchsorted(_EDGES, counts, side="right")  # 0: without training rows
    result = []
    for number in range(len(_EDGES) + 1):
        labels = truth.label[place[truth.label] == number]
        if not len(labels):
            continue
        recall = {}
        for name, found in judged.items():
            hits = found.hits.select(found.hits.rank < DEPTH)
            recall[name] = 100.0 * int((place[hits.label] == number).sum()) / len(labels)
        result.append(FrequencyBin(_bin_name(number), len(np.unique(labels)), len(labels), recall))
    return result


def _bin_name(number: int) -> str:
    if number == 0:
        return "0"
    if number == len(_EDGES):
        return f"{_EDGES[-1]}+"
    low, high = _EDGES[number - 1], _EDGES[number] - 1
    return str(low) if low == high else f"{low}–{high}"


@dataclass(frozen=True)
class LabelCost:
    """What a label takes away from a metric."""

    label: int
    points: dict[str, float]  # by model: percentage points
    rows: int  # with the label: true ones, or those that have it among the five best
    wrong: dict[str, int]  # by model: in how many of them it is missed, or wrong
    examples: list[int] = field(default_factory=list)  # some of these rows


def missed_labels(judged: Mapping[str, Judged], n_rows: int) -> list[LabelCost]:
    """The labels that cost most of R@5: true ones that are not among the five best."""
    truth = next(iter(judged.values())).truth
    sizes = np.maximum(np.bincount(truth.row, minlength=n_rows), 1)
    missed = {name: ~_found(found, truth.row, truth.label) for name, found in judged.items()}
    return _costly(truth.row, truth.label, missed, 100 / (n_rows * sizes[truth.row]))


def wrong_labels(judged: Mapping[str, Judged], n_rows: int) -> list[LabelCost]:
    """The labels that cost most of P@5: wrong ones among the five best."""
    row, label = _union([found.predicted for found in judged.values()])
    first = next(iter(judged.values()))
    true = _among(row, label, first.truth.row, first.truth.label, first.n_labels)
    wrong = {name: _taken(found, row, label) & ~true for name, found in judged.items()}
    return _costly(row, label, wrong, np.full(len(row), 100 / (n_rows * DEPTH)))


def _costly(row: Ints, label: Ints, wrong: Mapping[str, Any], points: Floats) -> list[LabelCost]:
    n_labels = int(label.max(initial=-1)) + 1
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


def _found(judged: Judged, row: Ints, label: Ints) -> Any:
    hits = judged.hits.select(judged.hits.rank < DEPTH)
    return _among(row, label, hits.row, hits.label, judged.n_labels)


def _taken(judged: Judged, row: Ints, label: Ints) -> Any:
    taken = judged.predicted.select(judged.predicted.rank < DEPTH)
    return _among(row, label, taken.row, taken.label, judged.n_labels)


def _among(row: Ints, label: Ints, rows: Ints, labels: Ints, n_labels: int) -> Any:
    return np.isin(row * n_labels + label, rows * n_labels + labels)


def _union(parts: Sequence[Ranked]) -> tuple[Ints, Ints]:
    """The (row, label) pairs of the five best labels of any model."""
    top = [part.select(part.rank < DEPTH) for part in parts]
    pairs = np.unique(np.concatenate([np.column_stack([p.row, p.label]) for p in top]), axis=0)
    return pairs[:, 0], pairs[:, 1]
