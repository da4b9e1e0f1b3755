"""Definitions of the metrics: functions of a ranking with its true labels, and of k."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._ranking import Floats, Ints, Ranking

_GROUPS = ("head", "torso", "tail")
#: Labels with fewer training rows are tail labels.
TAIL_ROWS = 5


class Quotient(NamedTuple):
    """A metric as the quotient of two sums over rows."""

    part: Floats  # (n_rows,)
    whole: Floats

    def over(self, weights: Floats | None = None, rows: Any = slice(None)) -> float:
        """Return the metric of all or some rows as a fraction; 0 if the denominator is 0."""
        part, whole = self.part[rows], self.whole[rows]
        if weights is not None:
            part, whole = part * weights[rows], whole * weights[rows]
        total = float(whole.sum())
        # a sum in another order may exceed the best by a rounding error
        return min(1.0, float(part.sum()) / total) if total else 0.0


def _mean(values: Floats) -> Quotient:
    return Quotient(values, np.ones(len(values)))


def _hits(ranking: Ranking, k: int) -> Ints:
    """Count the true labels among the k best of each row."""
    return np.count_nonzero(ranking.is_true[:, :k], axis=1)


def _precision(ranking: Ranking, k: int) -> Quotient:
    return Quotient(_hits(ranking, k).astype(np.float64), np.full(ranking.truth.n_rows, float(k)))


def _recall(ranking: Ranking, k: int) -> Quotient:
    return _mean(_hits(ranking, k) / np.maximum(ranking.truth.n_true, 1))


def _r_precision(ranking: Ranking, k: int) -> Quotient:
    return _mean(_hits(ranking, k) / np.clip(ranking.truth.n_true, 1, k))


def _f1(ranking: Ranking, k: int) -> Quotient:
    taken = np.count_nonzero(ranking.ids[:, :k] >= 0, axis=1)
    return _mean(2 * _hits(ranking, k) / np.maximum(taken + ranking.truth.n_true, 1))


def _dcg(gains: NDArray[Any], ranking: Ranking, k: int) -> Floats:
    """Sum gain / log2(rank + 1) over the top k, divided by the largest sum for gains of 1, for each row."""
    discount = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.cumsum(discount)[np.clip(ranking.truth.n_true, 1, k) - 1]
    top = gains[:, :k]
    return np.asarray((top * discount[: top.shape[1]]).sum(axis=1) / ideal, np.float64)


def _ndcg(ranking: Ranking, k: int) -> Quotient:
    return _mean(_dcg(ranking.is_true, ranking, k))


def _psp(ranking: Ranking, k: int) -> Quotient:
    return Quotient(*(some.gains[:, :k].sum(axis=1) for some in (ranking, ranking.best)))


def _psndcg(ranking: Ranking, k: int) -> Quotient:
    return Quotient(*(_dcg(some.gains, some, k) for some in (ranking, ranking.best)))


#: Metrics that are quotients of sums over rows, and so defined for any part or resampling of the rows.
OF_ROWS: dict[str, Callable[[Ranking, int], Quotient]] = {
    "P": _precision,
    "nDCG": _ndcg,
    "PSP": _psp,
    "PSnDCG": _psndcg,
    "R": _recall,
    "RP": _r_precision,
    "F1": _f1,
}
#: Metrics of the distinct labels over all rows.
COVERAGE = ("C", "CC")
METRICS = (*OF_ROWS, *COVERAGE)
NEED_PROPENSITY = {"PSP", "PSnDCG", "C"}


def value_of(metric: str, ranking: Ranking, k: int) -> float:
    """Return a metric as a fraction."""
    truth = ranking.truth
    if metric in OF_ROWS:
        return OF_ROWS[metric](ranking, k).over(truth.weights)
    counted = np.ones(truth.n_rows, bool) if truth.weights is None else truth.weights > 0
    if metric == "C":
        found, wanted = (_distinct(some.ids[counted, :k]) for some in (ranking, ranking.best))
    else:
        found = _distinct(np.where(ranking.is_true, ranking.ids, -1)[counted, :k])
        wanted = _distinct(truth.indices[counted[truth.rows]])
    return found / wanted if wanted else 0.0


def known(metrics: Iterable[str], ranking: Ranking) -> list[str]:
    """Return the metrics that can be computed: some need propensities."""
    return [name for name in metrics if name not in NEED_PROPENSITY or ranking.truth.q is not None]


def figures(ranking: Ranking, cutoffs: Iterable[int], metrics: Iterable[str] = METRICS) -> dict[str, float]:
    """Return "P@1", "P@3", …, "nDCG@1", … in percent."""
    names = known(metrics, ranking)
    return {f"{name}@{k}": 100.0 * value_of(name, ranking, k) for name in names for k in cutoffs}


def _distinct(ids: NDArray[Any]) -> int:
    return len(np.unique(ids[ids >= 0]))


def frequency_groups(counts: Ints) -> NDArray[np.int8]:
    """Return 0 for head, 1 for torso, 2 for tail labels; see `evaluate` for the definition."""
    by_count = np.argsort(-counts, kind="stable")  # ties: smaller id first
    before = np.cumsum(counts[by_count]) - counts[by_count]
    group = np.ones(counts.size, dtype=np.int8)
    group[by_count[2 * before < counts.sum()]] = 0
    group[counts < TAIL_ROWS] = 2
    return group


def split_by_frequency(ranking: Ranking, counts: Ints, cutoffs: list[int]) -> dict[str, float]:
    """Return P and R of each frequency group in percent."""
    group, weights = frequency_groups(counts), ranking.truth.weights
    precision: dict[str, float] = {}
    recall: dict[str, float] = {}
    for number, name in enumerate(_GROUPS):
        some = ranking.among(group == number)
        concerned = some.truth.n_true > 0
        for k in cutoffs:
            precision[f"P@{k} {name}"] = 100.0 * value_of("P", some, k)
            if concerned.any() if weights is None else weights[concerned].any():
                recall[f"R@{k} {name}"] = 100.0 * _recall(some, k).over(weights, concerned)
    return precision | recall
