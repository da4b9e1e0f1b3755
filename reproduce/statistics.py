"""The statistics that the experiments need, on plain arrays."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[Any]


class PowerLaw(NamedTuple):
    """A power law, N_r = scale · r^−exponent, and its R²: the explained share of the variance of log N_r."""

    exponent: float
    scale: float
    r_squared: float


def fit_power_law(counts: Sequence[float] | Array) -> PowerLaw:
    """Fit log N_r on log r by least squares, at ranks that are evenly spaced on the log scale.

    Each decade of ranks has the same weight. With one point per label, the many labels of one or two rows
    would determine the fit. Zeros are ignored. Fewer than two labels give NaN.

    >>> law = fit_power_law([600 / rank**0.5 for rank in range(1, 1001)])
    >>> round(law.exponent, 6), round(law.scale, 3), round(law.r_squared, 6)
    (0.5, 600.0, 1.0)
    """
    descending = np.sort(np.asarray(counts, float)[np.asarray(counts) > 0])[::-1]
    if len(descending) < 2:
        return PowerLaw(math.nan, math.nan, math.nan)
    ranks = np.unique(np.rint(np.geomspace(1, len(descending), 200)).astype(int))
    x, y = np.log(ranks), np.log(descending[ranks - 1])
    slope, intercept = np.polyfit(x, y, 1)
    total = float(((y - y.mean()) ** 2).sum())
    residual = float(((y - slope * x - intercept) ** 2).sum())
    return PowerLaw(-float(slope), math.exp(intercept), 1 - residual / total if total else math.nan)


#: Fewer differences than this are not tested: with two or three seeds a p-value has no meaning.
MIN_DIFFERENCES = 5


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return (mean difference a − b, two-sided p) over pairs; a side of one value is paired with all others.

    p is NaN where there are fewer than ``MIN_DIFFERENCES`` pairs, and where all differences are equal: then
    nothing varies with the seed, and a test over seeds has no meaning.

    >>> difference, p = paired_t_test([3.0, 4.0, 5.0, 6.0, 7.0], [2.0])
    >>> round(difference, 6), round(p, 4)
    (3.0, 0.0132)
    """
    differences = np.asarray(a, float) - np.asarray(b, float)
    mean = float(differences.mean())
    if len(differences) < MIN_DIFFERENCES or np.ptp(differences) == 0:
        return mean, math.nan
    return mean, float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons by Holm's step-down method; NaN stays NaN, uncounted.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    result, largest = [math.nan] * len(p_values), 0.0
    for step, i in enumerate(sorted(known, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(known) - step) * p_values[i]))
        result[i] = largest
    return result


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation (n − 1); that of one value is NaN.

    >>> mean_and_sd([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan
