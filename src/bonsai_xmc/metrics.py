"""Ranking metrics of extreme classification, computed on the k best labels of each row.

With hit(i, r) = 1 if the label at rank r = 1, 2, … of row i is one of its true labels y_i, q_l the inverse
propensity of label l (see `inverse_propensity`), and means over *all* n rows, those without labels included
(they count 0):

=========  =================================================================================================
P@k        mean of Σ_{r≤k} hit / k
nDCG@k     mean of Σ_{r≤k} hit / log2(r+1), each row divided by I(i) = Σ_{r ≤ min(k,|y_i|)} 1 / log2(r+1)
PSP@k      Σ_i Σ_{r≤k} q·hit, divided by the same sum for the best possible ranking (true labels by falling q)
PSnDCG@k   Σ_i Σ_{r≤k} q·hit / (log2(r+1)·I(i)), divided by the same sum for the best possible ranking
R@k        mean of Σ_{r≤k} hit / |y_i|
C@k        distinct labels in all top k, right or wrong, divided by the distinct labels among each row's
           k true labels of largest q (ties: smaller id). Since wrong labels count, it can exceed 100 %.
CC@k       share of the distinct true labels of the test set that some row has correctly in its top k
=========  =================================================================================================

A ranking with fewer than k labels misses at the ranks that it leaves empty. A quotient whose denominator is 0
(no true label anywhere) is 0. `evaluate` reports percent, as papers do; the single functions and the scorers
return fractions, as scikit-learn's metrics do.

Everything works on flat (row, rank, label) entries: memory is O(entries + n·k), never rows × labels.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from bonsai_xmc._predictions import (
    Floats,
    Ints,
    Ranked,
    by_score,
    ranking,
    read_predictions,
    write_predictions,
)

__all__ = [
    "PROPENSITY",
    "correct_coverage_at_k",
    "coverage_at_k",
    "evaluate",
    "format_table",
    "inverse_propensity",
    "ndcg_at_k",
    "ndcg_scorer",
    "precision_at_k",
    "precision_scorer",
    "psndcg_at_k",
    "psp_at_k",
    "psp_scorer",
    "read_predictions",
    "recall_at_k",
    "write_predictions",
]

_WIKIPEDIA, _AMAZON, _OTHERS = (0.5, 0.4), (0.6, 2.6), (0.55, 1.5)

#: Propensity parameters (A, B) by data set name, in the values that published results use.
PROPENSITY: dict[str, tuple[float, float]] = {
    "amazon-3m": _AMAZON,
    "amazon-670k": _AMAZON,
    "amazoncat-13k": _OTHERS,
    "bibtex": _OTHERS,
    "delicious": _OTHERS,
    "delicious-200k": _OTHERS,
    "eurlex-4k": _OTHERS,
    "eurlex57k": _OTHERS,
    "tate": _OTHERS,
    "tibkat-core": _OTHERS,
    "wiki10-31k": _OTHERS,
    "wikilshtc-325k": _WIKIPEDIA,
    "wikipedia-500k": _WIKIPEDIA,
}

_GROUPS = ("head", "torso", "tail")
#: Labels with fewer training rows are tail labels.
TAIL_ROWS = 5


class _Labels(NamedTuple):
    """An indicator matrix as the (row, label) pairs of its ones, ordered by row, then label."""

    row: Ints
    label: Ints
    shape: tuple[int, int]

    def counts(self) -> Ints:
        """Rows per label."""
        return np.bincount(self.label, minlength=self.shape[1])


@dataclass(frozen=True)
class _Judged:
    """Predictions held against the truth: all that any metric at k ≤ the given largest k needs."""

    predicted: Ranked
    hits: Ranked
    truth: _Labels
    sizes: Ints  # true labels of each row
    q: Floats | None = None  # inverse propensity of each label
    ideal: Ranked | None = None  # each row's true labels by falling q

    def weighted(self) -> tuple[Floats, Ranked]:
        if self.q is None or self.ideal is None:
            raise ValueError("this metric needs inv_propensity, see metrics.inverse_propensity")
        return self.q, self.ideal


# --- Input ----------------------------------------------------------------------------------------


def _indicator(Y: Any, name: str) -> _Labels:
    if not sp.issparse(Y) and not hasattr(Y, "__array__"):
        raise ValueError(
            f"{name} must be a 0/1 indicator matrix (sparse or numpy array), got {type(Y).__name__}; "
            "turn lists of labels into one with sklearn.preprocessing.MultiLabelBinarizer"
        )
    matrix: Any = Y if sp.issparse(Y) else np.asarray(Y)
    if matrix.ndim != 2 or matrix.shape[0] == 0:
        raise ValueError(f"{name} must have two dimensions and at least one row, got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold the numbers 0 and 1, got dtype {matrix.dtype}")
    csr = sp.csr_array(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()  # the conversion shares memory with the caller's matrix
        csr.sum_duplicates()
    row = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    label = csr.indices.astype(np.int64)
    wrong = np.flatnonzero((csr.data != 0) & (csr.data != 1))
    if wrong.size:
        i = wrong[0]
        raise ValueError(
            f"{name}: value {csr.data[i]} at row {row[i]}, label {label[i]}; an indicator matrix holds "
            "0 and 1 only (duplicate entries of a sparse matrix add up)"
        )
    ones = csr.data != 0
    return _Labels(row[ones], label[ones], (int(csr.shape[0]), int(csr.shape[1])))


def _cutoffs(k: int | Iterable[int], n_labels: int) -> list[int]:
    try:
        cutoffs = [index(value) for value in (k if isinstance(k, Iterable) else (k,))]
    except TypeError:
        raise ValueError(f"k must be a whole number or several, got {k!r}") from None
    if not cutoffs:
        raise ValueError("k is empty: give at least one cutoff, such as k=(1, 3, 5)")
    for value in cutoffs:
        if not 1 <= value <= n_labels:
            raise ValueError(f"k must lie between 1 and the number of labels, {n_labels}; got {value}")
    return cutoffs


def _judge(predictions: Any, truth: _Labels, k: int, q: Any = None) -> _Judged:
    n_rows, n_labels = truth.shape
    predicted = ranking(predictions, truth.shape, k)
    keys, true_keys = (pairs.row * n_labels + pairs.label for pairs in (predicted, truth))
    hit = np.append(true_keys, -1)[np.searchsorted(true_keys, keys)] == keys
    sizes = np.bincount(truth.row, minlength=n_rows)
    judged = _Judged(predicted, predicted.select(hit), truth, sizes)
    if q is None:
        return judged
    q = np.asarray(q, dtype=np.float64)
    if q.shape != (n_labels,):
        raise ValueError(
            f"inv_propensity must hold one number for each of the {n_labels} labels, got shape {q.shape}"
        )
    if not (np.isfinite(q) & (q > 0)).all():
        raise ValueError("inv_propensity must be positive and finite")
    ideal = by_score(truth.row, truth.label, q[truth.label], n_rows)[0]
    return _Judged(predicted, judged.hits, truth, sizes, q, ideal)


# --- Metrics --------------------------------------------------------------------------------------


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _precision(judged: _Judged, k: int) -> float:
    return float(np.count_nonzero(judged.hits.rank < k)) / (judged.truth.shape[0] * k)


def _sum_of_recalls(hits: Ranked, sizes: Ints, k: int) -> float:
    found = np.bincount(hits.row[hits.rank < k], minlength=sizes.size)
    return float(np.sum(found / np.maximum(sizes, 1)))


def _recall(judged: _Judged, k: int) -> float:
    return _sum_of_recalls(judged.hits, judged.sizes, k) / judged.truth.shape[0]


def _dcg(entries: Ranked, q: Floats | None, sizes: Ints, k: int) -> float:
    """Σ q / log2(rank + 1) over the top-k entries, each row divided by its own unweighted ideal."""
    top = entries.select(entries.rank < k)
    discount = 1 / np.log2(np.arange(2, k + 2))
    gain = discount[top.rank] / np.cumsum(discount)[np.minimum(k, sizes[top.row]) - 1]
    return float(np.sum(gain if q is None else q[top.label] * gain))


def _ndcg(judged: _Judged, k: int) -> float:
    return min(1.0, _dcg(judged.hits, None, judged.sizes, k) / judged.truth.shape[0])


def _psp(judged: _Judged, k: int) -> float:
    q, ideal = judged.weighted()
    gain, best = (float(np.sum(q[entries.label[entries.rank < k]])) for entries in (judged.hits, ideal))
    return min(1.0, _ratio(gain, best))  # a sum in another order may exceed the best by a rounding error


def _psndcg(judged: _Judged, k: int) -> float:
    q, ideal = judged.weighted()
    gain, best = (_dcg(entries, q, judged.sizes, k) for entries in (judged.hits, ideal))
    return min(1.0, _ratio(gain, best))


def _distinct(entries: Ranked, k: int, n_labels: int) -> int:
    seen = np.zeros(n_labels, dtype=bool)
    seen[entries.label[entries.rank < k]] = True
    return int(np.count_nonzero(seen))


def _coverage(judged: _Judged, k: int) -> float:
    n_labels = judged.truth.shape[1]
    return _ratio(_distinct(judged.predicted, k, n_labels), _distinct(judged.weighted()[1], k, n_labels))


def _correct_coverage(judged: _Judged, k: int) -> float:
    wanted = int(np.count_nonzero(judged.truth.counts()))
    return _ratio(_distinct(judged.hits, k, judged.truth.shape[1]), wanted)


_METRICS: dict[str, Callable[[_Judged, int], float]] = {
    "P": _precision,
    "nDCG": _ndcg,
    "PSP": _psp,
    "PSnDCG": _psndcg,
    "R": _recall,
    "C": _coverage,
    "CC": _correct_coverage,
}
_WEIGHTED = {"PSP", "PSnDCG", "C"}  # these need propensities


def _frequency_groups(counts: Ints) -> NDArray[np.int8]:
    """Index into _GROUPS of each label; see `evaluate` for the definition."""
    by_count = np.argsort(-counts, kind="stable")  # ties: smaller id first
    before = np.cumsum(counts[by_count]) - counts[by_count]
    group = np.ones(counts.size, dtype=np.int8)
    group[by_count[2 * before < counts.sum()]] = 0
    group[counts < TAIL_ROWS] = 2
    return group


def _by_frequency(judged: _Judged, counts: Ints, cutoffs: list[int]) -> dict[str, float]:
    group, n_rows = _frequency_groups(counts), judged.truth.shape[0]
    precision: dict[str, float] = {}
    recall: dict[str, float] = {}
    for number, name in enumerate(_GROUPS):
        hits = judged.hits.select(group[judged.hits.label] == number)
        sizes = np.bincount(judged.truth.row[group[judged.truth.label] == number], minlength=n_rows)
        rows = int(np.count_nonzero(sizes))
        for k in cutoffs:
            precision[f"P@{k} {name}"] = 100.0 * int(np.count_nonzero(hits.rank < k)) / (n_rows * k)
            if rows:
                recall[f"R@{k} {name}"] = 100.0 * _sum_of_recalls(hits, sizes, k) / rows
    return precision | recall


def evaluate(
    predictions: Any,
    Y_true: Any,
    Y_train: Any = None,
    k: int | Iterable[int] = (1, 3, 5),
    A: float = 0.55,
    B: float = 1.5,
    dataset: str | None = None,
    by_frequency: bool = False,
    *,
    inv_propensity: Any = None,
) -> dict[str, float]:
    """All metrics of the module, in percent.

    Parameters
    ----------
    predictions : int array (n, k'), sparse matrix (n, L) or path
        Label ids, best first, -1 at the end of rows with fewer (columns beyond the largest `k` are not
        looked at). Or scores: each stored entry, zeros too, is a prediction, ranked by falling score, ties
        by smaller label id. Or a file as `write_predictions` writes it.
    Y_true : sparse or dense indicator matrix (n, L)
        The true labels.
    Y_train : sparse or dense indicator matrix (N, L), optional
        The training labels, from which propensities and frequencies come. Without it (and without
        `inv_propensity`), PSP, PSnDCG and C are left out.
    k : int or several
        Cutoffs, each between 1 and L. Ranks beyond the predictions' width are misses.
    A, B : float
        Propensity parameters, see `inverse_propensity`.
    dataset : str, optional
        Takes A and B from `PROPENSITY` by this name.
    by_frequency : bool
        Adds P and R split by label frequency in `Y_train`. "tail": labels with fewer than 5 training rows.
        "head": the shortest list of the most frequent labels (ties: smaller id) that makes up at least half
        of all label occurrences; a label that is also tail is tail. "torso": the others. "P@k head" is the
        mean over all rows of the head labels hit in the top k, divided by k, so the three groups add up to
        P@k. "R@k head" is the mean, over the rows with a true head label, of the share of their true head
        labels found in the top k; it is left out where no row has one.
    inv_propensity : array (L,), optional
        Inverse propensities to use instead of those from `Y_train`.

    Returns
    -------
    dict
        "P@1", "P@3", …, then nDCG, PSP, PSnDCG, R, C, CC, then "P@1 head", …, "R@5 tail".

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.array([[1, 1, 0], [0, 0, 1]])
    >>> evaluate(np.array([[1, 2], [2, -1]]), Y, k=(1, 2))["P@2"]
    50.0
    """
    truth = _indicator(Y_true, "Y_true")
    cutoffs = _cutoffs(k, truth.shape[1])
    A, B = _propensity_parameters(dataset, A, B)
    train = None if Y_train is None else _indicator(Y_train, "Y_train")
    if by_frequency and train is None:
        raise ValueError("by_frequency=True needs Y_train, where the label frequencies come from")
    if train is not None and train.shape[1] != truth.shape[1]:
        raise ValueError(f"Y_train has {train.shape[1]} labels, but Y_true has {truth.shape[1]}")
    if train is not None and inv_propensity is None:
        inv_propensity = _inverse_propensity(train.counts(), train.shape[0], A, B)
    judged = _judge(predictions, truth, max(cutoffs), inv_propensity)
    result = {
        f"{name}@{cutoff}": 100.0 * metric(judged, cutoff)
        for name, metric in _METRICS.items()
        if name not in _WEIGHTED or judged.q is not None
        for cutoff in cutoffs
    }
    if by_frequency and train is not None:
        result |= _by_frequency(judged, train.counts(), cutoffs)
    return result


def _at_k(name: str, predictions: Any, Y_true: Any, k: int, inv_propensity: Any = None) -> float:
    truth = _indicator(Y_true, "Y_true")
    (cutoff,) = _cutoffs((k,), truth.shape[1])
    return float(_METRICS[name](_judge(predictions, truth, cutoff, inv_propensity), cutoff))


def precision_at_k(predictions: Any, Y_true: Any, k: int) -> float:
    """P@k as a fraction; arguments as in `evaluate`.

    >>> precision_at_k(np.array([[0, 2]]), np.array([[1, 0, 0]]), k=2)
    0.5
    """
    return _at_k("P", predictions, Y_true, k)


def ndcg_at_k(predictions: Any, Y_true: Any, k: int) -> float:
    """nDCG@k as a fraction; arguments as in `evaluate`.

    >>> ndcg_at_k(np.array([[2, 1, 0]]), np.array([[1, 0, 0]]), k=3)
    0.5
    """
    return _at_k("nDCG", predictions, Y_true, k)


def recall_at_k(predictions: Any, Y_true: Any, k: int) -> float:
    """R@k as a fraction; arguments as in `evaluate`.

    >>> recall_at_k(np.array([[0, 2]]), np.array([[1, 1, 0]]), k=2)
    0.5
    """
    return _at_k("R", predictions, Y_true, k)


def psp_at_k(predictions: Any, Y_true: Any, k: int, inv_propensity: Any) -> float:
    """PSP@k as a fraction of the best possible; `inv_propensity` holds one number for each label.

    >>> psp_at_k(np.array([[0]]), np.array([[1, 1]]), k=1, inv_propensity=[1.0, 4.0])
    0.25
    """
    return _at_k("PSP", predictions, Y_true, k, inv_propensity)


def psndcg_at_k(predictions: Any, Y_true: Any, k: int, inv_propensity: Any) -> float:
    """PSnDCG@k as a fraction of the best possible; `inv_propensity` holds one number for each label.

    >>> psndcg_at_k(np.array([[0]]), np.array([[1, 1]]), k=1, inv_propensity=[1.0, 4.0])
    0.25
    """
    return _at_k("PSnDCG", predictions, Y_true, k, inv_propensity)


def coverage_at_k(predictions: Any, Y_true: Any, k: int, inv_propensity: Any) -> float:
    """C@k as a quotient, which exceeds 1 where many wrong labels are predicted.

    >>> coverage_at_k(np.array([[0], [1]]), np.array([[1, 0], [1, 0]]), k=1, inv_propensity=[1.0, 1.0])
    2.0
    """
    return _at_k("C", predictions, Y_true, k, inv_propensity)


def correct_coverage_at_k(predictions: Any, Y_true: Any, k: int) -> float:
    """CC@k as a fraction: true labels of the test set that some row has correctly in its top k.

    >>> correct_coverage_at_k(np.array([[0], [0]]), np.array([[1, 0], [0, 1]]), k=1)
    0.5
    """
    return _at_k("CC", predictions, Y_true, k)


# --- Propensities ---------------------------------------------------------------------------------


def inverse_propensity(Y_train: Any, A: float = 0.55, B: float = 1.5) -> Floats:
    """Inverse propensity of each label: q_l = 1 + C·(n_l + B)^(−A), C = (ln N − 1)·(B + 1)^A.

    n_l is the number of training rows with label l, N the number of training rows. With N < 3, ln N − 1 is
    negative and q_l would fall below 1 or even 0; C is then taken as 0, that is, every q_l is 1.

    >>> inverse_propensity(np.array([[1, 0], [1, 0], [1, 1], [1, 0]])).round(3).tolist()
    [1.25, 1.386]
    """
    train = _indicator(Y_train, "Y_train")
    return _inverse_propensity(train.counts(), train.shape[0], A, B)


def _inverse_propensity(counts: NDArray[Any], n_rows: int, A: float, B: float) -> Floats:
    if not (0 <= A < np.inf and 0 < B < np.inf):
        raise ValueError(f"propensity parameters need A >= 0 and B > 0, got A={A}, B={B}")
    scale = max(0.0, float(np.log(n_rows)) - 1) * (B + 1) ** A
    return 1 + scale * (np.asarray(counts, dtype=np.float64) + B) ** -A


def _propensity_parameters(dataset: str | None, A: float, B: float) -> tuple[float, float]:
    if dataset is None:
        return A, B
    if dataset.lower() not in PROPENSITY:
        raise ValueError(
            f"no propensity parameters for {dataset!r}; known data sets: {', '.join(PROPENSITY)}"
        )
    known = PROPENSITY[dataset.lower()]
    if (A, B) not in (known, _OTHERS):
        raise ValueError(
            f"A={A}, B={B} contradict {dataset!r}, whose parameters are {known}; give one or the other"
        )
    return known


# --- Tables ---------------------------------------------------------------------------------------


def format_table(results: Mapping[str, Any]) -> str:
    """An aligned text table of one result of `evaluate`, or of several given by name.

    >>> print(format_table({"P@1": 92.1, "P@3": 80.0, "R@1": 9.876}))
          @1     @3
    P  92.10  80.00
    R   9.88      –
    """
    several = bool(results) and all(isinstance(value, Mapping) for value in results.values())
    cells: dict[str, dict[tuple[str, int], str]] = {}
    for name, values in results.items() if several else [("", results)]:
        cells[name] = {}
        for key, value in values.items():
            match = re.fullmatch(r"(\S+)@(\d+)( \S+)?", key)
            if match is None:
                raise ValueError(f"{key!r} is not the name of a metric at k, such as 'P@1' or 'R@5 tail'")
            cells[name][match[1] + (match[3] or ""), int(match[2])] = f"{value:.2f}"
    keys = dict.fromkeys(key for column in cells.values() for key in column)
    metrics, cutoffs = list(dict.fromkeys(metric for metric, _ in keys)), sorted({k for _, k in keys})
    left = [""] * several + ["", *metrics]
    columns = [[text.ljust(max(map(len, left))) for text in left]]
    for name, column in cells.items():
        lines = [[f"@{k}" for k in cutoffs], *([column.get((m, k), "–") for k in cutoffs] for m in metrics)]
        width = max((len(cell) for line in lines for cell in line), default=0)
        block = [name] * several + ["  ".join(cell.rjust(width) for cell in line) for line in lines]
        columns.append([text.rjust(max(map(len, block))) for text in block])
    return "\n".join("  ".join(parts).rstrip() for parts in zip(*columns, strict=True))


# --- Scorers for scikit-learn ---------------------------------------------------------------------


def _ranker(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The estimator with `top_k` inside pipelines and searches, and X as it sees it."""
    while not hasattr(estimator, "top_k"):
        if isinstance(estimator, Pipeline):
            X = estimator[:-1].transform(X) if len(estimator) > 1 else X
            estimator = estimator[-1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            raise ValueError(
                f"{type(estimator).__name__} has no method top_k(X, k); the scorer needs it, as Bonsai has"
            )
    return estimator, X


@dataclass(frozen=True)
class _Scorer:
    """Callable(estimator, X, Y) -> fraction, greater is better. A class, so that it can be pickled."""

    metric: str
    k: int
    A: float = 0.55
    B: float = 1.5

    def __call__(self, estimator: Any, X: Any, Y: Any) -> float:
        ranker, X = _ranker(estimator, X)
        q = None
        if self.metric in _WEIGHTED:
            if not hasattr(ranker, "label_counts_") or not hasattr(ranker, "n_rows_fit_"):
                raise ValueError(
                    f"{type(ranker).__name__} lacks label_counts_ and n_rows_fit_, which PSP needs"
                )
            q = _inverse_propensity(ranker.label_counts_, ranker.n_rows_fit_, self.A, self.B)
        return _at_k(self.metric, ranker.top_k(X, self.k)[0], Y, self.k, q)


def precision_scorer(k: int = 1) -> _Scorer:
    """Scorer for GridSearchCV and cross_val_score: P@k as a fraction.

    Scorers take Y as a dense or sparse indicator matrix and work on an estimator with `top_k`, also at the
    end of a Pipeline or inside a search.

    >>> precision_scorer(3)
    _Scorer(metric='P', k=3, A=0.55, B=1.5)
    """
    return _Scorer("P", k)


def ndcg_scorer(k: int = 5) -> _Scorer:
    """Scorer as `precision_scorer`, for nDCG@k.

    >>> ndcg_scorer(3).metric
    'nDCG'
    """
    return _Scorer("nDCG", k)


def psp_scorer(k: int = 5, A: float = 0.55, B: float = 1.5) -> _Scorer:
    """Scorer as `precision_scorer`, for PSP@k with the propensities of the rows that were fitted on.

    >>> psp_scorer(1, *PROPENSITY["amazon-670k"]).A
    0.6
    """
    return _Scorer("PSP", k, A, B)
