"""`evaluate` and the functions of single metrics."""

from collections.abc import Iterable
from dataclasses import replace
from operator import index
from typing import Any, Protocol

import numpy as np

from . import _propensity
from ._definitions import NEED_PROPENSITY, figures, split_by_frequency, value_of
from ._ranking import Floats, Ranking
from ._truth import Aligned, align


def evaluate(
    Y_true: Any,
    predictions: Any,
    Y_train: Any = None,
    k: int | Iterable[int] = (1, 3, 5),
    A: float = 0.55,
    B: float = 1.5,
    dataset: str | None = None,
    by_frequency: bool = False,
    *,
    inv_propensity: Any = None,
    classes: Any = None,
    sample_weight: Any = None,
) -> dict[str, float]:
    """Compute all metrics of the module, in percent.

    Parameters
    ----------
    Y_true : sparse or dense indicator matrix (n, L), or lists of labels
        The true labels, in any form that `Bonsai.fit` takes.
    predictions : int array (n, k'), sparse matrix (n, L), lists of labels, or path
        Label ids (columns), best first, -1 at the end of rows with fewer; columns beyond the largest `k` are
        ignored. Or scores: each stored entry, zeros too, is a prediction, ranked by descending score, ties by
        smaller label id. Or the labels themselves, best first, with or without scores, as `top_k_labels`
        returns them. Or a file as `write_predictions` writes it.
    Y_train : indicator matrix (N, L), lists of labels, or (counts, N), optional
        The training labels, or the number of training rows with each label and of all of them
        (``model.label_counts_, model.n_rows_fit_``), for propensities and frequencies. Without it (and
        without `inv_propensity`), PSP, PSnDCG and C are left out.
    k : int or several
        Cutoffs, each between 1 and L; predictions must have as many labels in at least one row.
    A : float, default=0.55
        This and B: propensity parameters, see `inverse_propensity`.
    B : float, default=1.5
        See A.
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
    classes : sequence of L labels, optional
        The labels of the columns (`model.classes_`). Needed if one argument has lists of labels and another
        has columns or label ids. True labels that are not among them cannot be predicted: they count as
        missed.
    sample_weight : array (n,), optional
        Weight of each row. C and CC count the rows of positive weight.

    Returns
    -------
    dict
        "P@1", "P@3", …, then nDCG, PSP, PSnDCG, R, RP, F1, C, CC, then "P@1 head", …, "R@5 tail".

    Examples
    --------
    >>> import numpy as np
    >>> from bonsai_xmc import metrics
    >>> Y = np.array([[1, 1, 0], [0, 0, 1]])
    >>> metrics.evaluate(Y, np.array([[1, 2], [2, -1]]), k=(1, 2))["P@2"]
    50.0
    >>> metrics.evaluate([["red", "green"], ["blue"]], [["red"], ["green"]], k=1)["P@1"]
    50.0
    """
    cutoffs = _cutoffs(k)
    A, B = _propensity.parameters(dataset, A, B)
    if by_frequency and Y_train is None:
        raise ValueError("by_frequency=True needs Y_train, where the label frequencies come from")
    labels = None if isinstance(Y_train, tuple) else Y_train
    aligned = align(Y_true, predictions, labels, cutoffs, classes)
    trained = frequencies(aligned, Y_train)
    q = None if trained is None else _propensity.from_counts(*trained, A, B)
    ranked = ranking(aligned, inv_propensity, sample_weight, q)
    result = figures(ranked, cutoffs)
    if by_frequency and trained is not None:
        result |= split_by_frequency(ranked, trained[0], cutoffs)
    return result


def frequencies(aligned: Aligned, Y_train: Any) -> tuple[Any, int] | None:
    """Return the number of training rows with each label, and of all of them, if they are known."""
    if not isinstance(Y_train, tuple):
        return None if aligned.train is None else (aligned.counts, aligned.train.n_rows)
    counts = _numbers("Y_train", Y_train[0], aligned.n_known, "labels")
    assert counts is not None
    counts = np.pad(counts, (0, aligned.n_columns - aligned.n_known))  # labels outside `classes` have no rows
    return counts if aligned.used is None else counts[aligned.used], Y_train[1]


def ranking(aligned: Aligned, inv_propensity: Any, sample_weight: Any, q: Floats | None = None) -> Ranking:
    """Return the ranking with its weights; `q` holds the inverse propensities unless some are given."""
    given = _numbers("inv_propensity", inv_propensity, aligned.n_columns, "labels")
    if given is not None:
        if not (np.isfinite(given) & (given > 0)).all():
            raise ValueError("inv_propensity must be positive and finite")
        q = given if aligned.used is None else given[aligned.used]
    weights = _numbers("sample_weight", sample_weight, aligned.truth.n_rows, "rows")
    if weights is not None and not ((np.isfinite(weights) & (weights >= 0)).all() and weights.any()):
        raise ValueError("sample_weight must hold finite numbers of at least 0, not all of them 0")
    return replace(aligned.truth, weights=weights, q=q).rank(aligned.ids)


def _numbers(name: str, given: Any, n: int, of: str) -> Floats | None:
    values = None if given is None else np.asarray(given, dtype=np.float64)
    if values is not None and values.shape != (n,):
        raise ValueError(f"{name} must hold one number for each of the {n} {of}, got shape {values.shape}")
    return values


def _cutoffs(k: int | Iterable[int]) -> list[int]:
    try:
        cutoffs = [index(value) for value in (k if isinstance(k, Iterable) else (k,))]
    except TypeError:
        raise ValueError(f"k must be an integer or several, got {k!r}") from None
    if not cutoffs:
        raise ValueError("k is empty: give at least one cutoff, such as k=(1, 3, 5)")
    return cutoffs


class MetricAtK(Protocol):
    """A metric at one k; arguments as in `evaluate`."""

    def __call__(
        self,
        Y_true: Any,
        predictions: Any,
        k: int,
        inv_propensity: Any = None,
        *,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> float: ...


def _metric(metric: str, name: str, what: str, example: str, result: str) -> MetricAtK:
    """Return the function of a metric; `example` and `result` are the example in its docstring."""

    def function(
        Y_true: Any,
        predictions: Any,
        k: int,
        inv_propensity: Any = None,
        *,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> float:
        cutoffs = _cutoffs((k,))
        aligned = align(Y_true, predictions, None, cutoffs, classes)
        return value_of(metric, ranking(aligned, inv_propensity, sample_weight), cutoffs[0])

    function.__name__ = function.__qualname__ = name
    needs = "; `inv_propensity` holds one number for each label" if metric in NEED_PROPENSITY else ""
    function.__doc__ = f"""{metric}@k, {what}; arguments as in `evaluate`{needs}.

    >>> import numpy as np
    >>> from bonsai_xmc import metrics
    >>> metrics.{name}({example})
    {result}
    """
    return function


_SHARE = "as a fraction"
_OF_BEST = "as a fraction of the best possible"
_ONE, _TWO = "np.array([[1, 0, 0, 0]])", "np.array([[1, 1]])"
_ROWS = "np.array([[1, 0], [0, 1]]), np.array([[0], [0]]), k=1"
_RARE = f"{_TWO}, np.array([[0]]), k=1, inv_propensity=[1.0, 4.0]"

precision_at_k = _metric("P", "precision_at_k", _SHARE, f"{_ONE}, np.array([[0, 2]]), k=2", "0.5")
ndcg_at_k = _metric("nDCG", "ndcg_at_k", _SHARE, f"{_ONE}, np.array([[2, 1, 0]]), k=3", "0.5")
recall_at_k = _metric("R", "recall_at_k", _SHARE, f"{_TWO}, np.array([[0]]), k=1", "0.5")
r_precision_at_k = _metric("RP", "r_precision_at_k", _SHARE, f"{_TWO}, np.array([[0]]), k=1", "1.0")
f1_at_k = _metric("F1", "f1_at_k", _SHARE, f"{_ONE}, np.array([[0, 2, 3]]), k=3", "0.5")
psp_at_k = _metric("PSP", "psp_at_k", _OF_BEST, _RARE, "0.25")
psndcg_at_k = _metric("PSnDCG", "psndcg_at_k", _OF_BEST, _RARE, "0.25")
coverage_at_k = _metric(
    "C",
    "coverage_at_k",
    "above 1 if wrong labels are many",
    f"{_ROWS}, inv_propensity=[1, 1]",
    "0.5",
)
correct_coverage_at_k = _metric("CC", "correct_coverage_at_k", _SHARE, _ROWS, "0.5")
