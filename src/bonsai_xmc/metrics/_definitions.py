"""The definitions of the metrics: functions of predictions with their true labels, and of k."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._ranked import Floats, Ints, Ranked, by_score
from ._truth import Aligned, Pairs

_GROUPS = ("head", "torso", "tail")
#: Labels with fewer training rows are tail labels.
TAIL_ROWS = 5


@dataclass(frozen=True)
class Judged:
    """Predictions with the true labels: all that any metric needs, for k up to the largest one asked for."""

    predicted: Ranked
    hits: Ranked
    truth: Pairs
    n_labels: int
    sizes: Ints  # true labels of each row
    weights: Floats  # of the rows
    total: float  # of the weights
    q: Floats | None = None  # inverse propensity of each label
    ideal: Ranked | None = None  # each row's true labels by descending q

    def with_propensities(self) -> tuple[Floats, Ranked]:
        if self.q is None or self.ideal is None:
            raise ValueError("this metric needs inv_propensity, see metrics.inverse_propensity")
        return self.q, self.ideal


def judge(aligned: Aligned, q: Floats | None = None, sample_weight: Floats | None = None) -> Judged:
    """`q` has an entry for each of the aligned columns."""
    truth, predicted, n_labels = aligned.truth, aligned.predicted, aligned.n_labels
    n_rows = truth.n_rows
    if sample_weight is not None:  # rows without weight count nowhere, not even for coverage
        counted = sample_weight > 0
        truth, predicted = truth.select(counted[truth.row]), predicted.select(counted[predicted.row])
    weights = np.ones(n_rows) if sample_weight is None else sample_weight
    keys, true_keys = (pairs.row * n_labels + pairs.label for pairs in (predicted, truth))
    hit = np.append(true_keys, -1)[np.searchsorted(true_keys, keys)] == keys
    sizes = np.bincount(truth.row, minlength=n_rows)
    ideal = None if q is None else by_score(truth.row, truth.label, q[truth.label], n_rows)[0]
    total = float(weights.sum())
    return Judged(predicted, predicted.select(hit), truth, n_labels, sizes, weights, total, q, ideal)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _weight_of_hits(hits: Ranked, judged: Judged, k: int) -> float:
    return float(np.sum(judged.weights[hits.row[hits.rank < k]]))


def _precision(judged: Judged, k: int) -> float:
    return _weight_of_hits(judged.hits, judged, k) / (judged.total * k)


def _sum_of_recalls(hits: Ranked, sizes: Ints, judged: Judged, k: int) -> float:
    """Weighted sum of the rows' recalls, 0 for those without labels."""
    found = np.bincount(hits.row[hits.rank < k], minlength=sizes.size)
    return float(np.sum(judged.weights * (found / np.maximum(sizes, 1))))


def _recall(judged: Judged, k: int) -> float:
    return _sum_of_recalls(judged.hits, judged.sizes, judged, k) / judged.total


def _f1(judged: Judged, k: int) -> float:
    hits, taken = (
        np.bincount(entries.row[entries.rank < k], minlength=judged.sizes.size)
        for entries in (judged.hits, judged.predicted)
    )
    return float(np.sum(judged.weights * (2 * hits / np.maximum(taken + judged.sizes, 1)))) / judged.total


def _dcg(entries: Ranked, q: Floats | None, judged: Judged, k: int) -> float:
    """Weighted sum of Σ q / log2(rank + 1) over the top k, each row divided by its unweighted ideal."""
    top = entries.select(entries.rank < k)
    discount = 1 / np.log2(np.arange(2, k + 2))
    gain = discount[top.rank] / np.cumsum(discount)[np.minimum(k, judged.sizes[top.row]) - 1]
    return float(np.sum(judged.weights[top.row] * (gain if q is None else q[top.label] * gain)))


def _ndcg(judged: Judged, k: int) -> float:
    return min(1.0, _dcg(judged.hits, None, judged, k) / judged.total)


def _psp(judged: Judged, k: int) -> float:
    q, ideal = judged.with_propensities()
    gain, best = (
        float(np.sum(judged.weights[top.row] * q[top.label]))
        for top in (entries.select(entries.rank < k) for entries in (judged.hits, ideal))
    )
    return min(1.0, _ratio(gain, best))  # a sum in another order may exceed the best by a rounding error


def _psndcg(judged: Judged, k: int) -> float:
    q, ideal = judged.with_propensities()
    gain, best = (_dcg(entries, q, judged, k) for entries in (judged.hits, ideal))
    return min(1.0, _ratio(gain, best))


def _distinct(entries: Ranked, k: int, n_labels: int) -> int:
    seen = np.zeros(n_labels, dtype=bool)
    seen[entries.label[entries.rank < k]] = True
    return int(np.count_nonzero(seen))


def _coverage(judged: Judged, k: int) -> float:
    _, ideal = judged.with_propensities()
    return _ratio(_distinct(judged.predicted, k, judged.n_labels), _distinct(ideal, k, judged.n_labels))


def _correct_coverage(judged: Judged, k: int) -> float:
    wanted = int(np.count_nonzero(judged.truth.counts(judged.n_labels)))
    return _ratio(_distinct(judged.hits, k, judged.n_labels), wanted)


METRICS: dict[str, Callable[[Judged, int], float]] = {
    "P": _precision,
    "nDCG": _ndcg,
    "PSP": _psp,
    "PSnDCG": _psndcg,
    "R": _recall,
    "F1": _f1,
    "C": _coverage,
    "CC": _correct_coverage,
}
NEED_PROPENSITY = {"PSP", "PSnDCG", "C"}


def frequency_groups(counts: Ints) -> NDArray[np.int8]:
    """0 for head, 1 for torso, 2 for tail labels; see `evaluate` for the definition."""
    by_count = np.argsort(-counts, kind="stable")  # ties: smaller id first
    before = np.cumsum(counts[by_count]) - counts[by_count]
    group = np.ones(counts.size, dtype=np.int8)
    group[by_count[2 * before < counts.sum()]] = 0
    group[counts < TAIL_ROWS] = 2
    return group


def split_by_frequency(judged: Judged, counts: Ints, cutoffs: list[int]) -> dict[str, float]:
    """P and R of each group in percent."""
    group, n_rows = frequency_groups(counts), judged.truth.n_rows
    precision: dict[str, float] = {}
    recall: dict[str, float] = {}
    for number, name in enumerate(_GROUPS):
        hits = judged.hits.select(group[judged.hits.label] == number)
        sizes = np.bincount(judged.truth.row[group[judged.truth.label] == number], minlength=n_rows)
        concerned = float(np.sum(judged.weights[sizes > 0]))
        for k in cutoffs:
            precision[f"P@{k} {name}"] = 100.0 * _weight_of_hits(hits, judged, k) / (judged.total * k)
            if concerned:
                recall[f"R@{k} {name}"] = 100.0 * _sum_of_recalls(hits, sizes, judged, k) / concerned
    return precision | recall
