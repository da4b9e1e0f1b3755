"""Reliability: the share of right predictions by score."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._ranking import Floats, Ints
from ._truth import align

N_BINS = 15


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions in non-empty bins of equal width, by score; see `reliability`.

    Attributes
    ----------
    score : array (n_bins,)
        Mean score of the predictions in each bin.
    right : array (n_bins,)
        Share of them that are right.
    count : array (n_bins,)
        Their number.
    """

    score: Floats
    right: Floats
    count: Ints

    @property
    def error(self) -> float:
        """Expected calibration error: mean of ``|score - right|`` over all predictions."""
        return float(np.average(np.abs(self.score - self.right), weights=self.count))


def reliability(
    Y_true: Any, ids: Any, scores: Any, k: int = 5, *, n_bins: int = N_BINS, classes: Any = None
) -> Reliability:
    """Measure the share of right labels among the k best by score, for a reliability diagram.

    Parameters
    ----------
    Y_true : as in `evaluate`
        True labels.
    ids, scores : arrays (n, k')
        As `Bonsai.top_k` returns them; scores from 0 to 1.
    k : int
        Ranks that count, at most k'.
    n_bins : int
        Bins of equal width from 0 to 1; those without predictions are left out.
    classes : as in `evaluate`
        The labels that ids refer to (`model.classes_`); needed for lists of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from bonsai_xmc import metrics
    >>> Y, ids = np.array([[1, 0], [0, 1]]), np.array([[0], [0]])
    >>> metrics.reliability(Y, ids, np.array([[0.9], [0.9]]), k=1).error  # half are right
    0.4
    """
    ids, scores = np.asarray(ids), np.asarray(scores)
    if ids.shape != scores.shape:
        raise ValueError(f"ids have shape {ids.shape}, but scores have {scores.shape}; take both from top_k")
    aligned = align(Y_true, ids, None, [k], classes)
    found = ids[:, :k] >= 0
    return in_bins(scores[:, :k][found], aligned.truth.rank(aligned.ids).is_true[found], n_bins)


def in_bins(scores: NDArray[Any], right: NDArray[np.bool_], n_bins: int = N_BINS) -> Reliability:
    """Compute reliability from scores and whether each prediction is right."""
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    values = np.asarray(scores, np.float64)
    if not len(values):
        raise ValueError("there is no prediction to measure")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("scores must be from 0 to 1")
    place = np.minimum((values * n_bins).astype(np.int64), n_bins - 1)
    count, score, hits = (np.bincount(place, w, n_bins) for w in (None, values, right.astype(np.float64)))
    used = count > 0
    return Reliability(score[used] / count[used], hits[used] / count[used], count[used])
