"""Propensities: the probability that a true label is recorded, by its training frequency."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._ranking import Floats
from ._truth import label_counts

_WIKIPEDIA, _AMAZON, OTHERS = (0.5, 0.4), (0.6, 2.6), (0.55, 1.5)

#: Propensity parameters (A, B) by data set name, as in published results.
PROPENSITY: dict[str, tuple[float, float]] = {
    "amazon-3m": _AMAZON,
    "amazon-670k": _AMAZON,
    "amazoncat-13k": OTHERS,
    "bibtex": OTHERS,
    "delicious": OTHERS,
    "delicious-200k": OTHERS,
    "eurlex-4k": OTHERS,
    "eurlex57k": OTHERS,
    "tate": OTHERS,
    "tibkat-core": OTHERS,
    "wiki10-31k": OTHERS,
    "wikilshtc-325k": _WIKIPEDIA,
    "wikipedia-500k": _WIKIPEDIA,
}


def inverse_propensity(Y_train: Any, A: float = 0.55, B: float = 1.5, *, classes: Any = None) -> Floats:
    """Compute the inverse propensity of each label: q_l = 1 + C·(n_l + B)^(−A), C = (ln N − 1)·(B + 1)^A.

    n_l is the number of training rows with label l, N the number of training rows. With N < 3, ln N − 1 is
    negative and q_l would fall below 1 or even 0; C is then taken as 0, that is, every q_l is 1.

    Parameters
    ----------
    Y_train : indicator matrix (N, L), or lists of labels
        Training labels.
    A : float, default=0.55
        This and B: parameters of the data set, see `PROPENSITY`.
    B : float, default=1.5
        See A.
    classes : sequence, optional
        With lists: the labels that the result is ordered by (`model.classes_`). Default: sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from bonsai_xmc import metrics
    >>> metrics.inverse_propensity(np.array([[1, 0], [1, 0], [1, 1], [1, 0]])).round(3).tolist()
    [1.25, 1.386]
    """
    counts, n_rows = label_counts(Y_train, classes)
    return from_counts(counts, n_rows, A, B)


def from_counts(counts: NDArray[Any], n_rows: int, A: float, B: float) -> Floats:
    if not (0 <= A < np.inf and 0 < B < np.inf):
        raise ValueError(f"propensity parameters need A >= 0 and B > 0, got A={A}, B={B}")
    scale = max(0.0, float(np.log(n_rows)) - 1) * (B + 1) ** A
    return 1 + scale * (np.asarray(counts, dtype=np.float64) + B) ** -A


def parameters(dataset: str | None, A: float, B: float) -> tuple[float, float]:
    """Return A and B, from the name of a data set if one is given."""
    if dataset is None:
        return A, B
    if dataset.lower() not in PROPENSITY:
        raise ValueError(
            f"no propensity parameters for {dataset!r}; known data sets: {', '.join(PROPENSITY)}"
        )
    known = PROPENSITY[dataset.lower()]
    if (A, B) not in (known, OTHERS):
        raise ValueError(
            f"A={A}, B={B} contradict {dataset!r}, whose parameters are {known}; give one or the other"
        )
    return known
