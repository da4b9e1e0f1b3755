"""The few statistics that the experiments need, each on plain arrays."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[Any]


class PowerLaw(NamedTuple):
    """N_r = scale · r^−exponent, and the share of the variance of log N_r that it explains."""

    exponent: float
    scale: float
    r_squared: float


def fit_power_law(counts: Sequence[float] | Array) -> PowerLaw:
    """Fit frequencies by rank: a line through log N_r over log r, in which each decade of ranks counts alike.

    Without that weight the millions of ranks with one or two rows would outvote everything else. Zeros are
    left out. Fewer than two different ranks allow no line, and give NaN.

    >>> law = fit_power_law([600 / rank**0.5 for rank in range(1, 1001)])
    >>> round(law.exponent, 6), round(law.scale, 3), round(law.r_squared, 6)
    (0.5, 600.0, 1.0)
    """
    ordered = np.sort(np.asarray(counts, float)[np.asarray(counts) > 0])[::-1]
    if len(ordered) < 2:
        return PowerLaw(math.nan, math.nan, math.nan)
    ranks = np.unique(np.rint(np.geomspace(1, len(ordered), 200)).astype(int))
    x, y = np.log(ranks), np.log(ordered[ranks - 1])
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    rest = float(((y - slope * x - intercept) ** 2).sum())
    return PowerLaw(-float(slope), math.exp(intercept), 1 - rest / spread if spread else math.nan)


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """(mean difference a − b, two-sided p) over pairs; a side of one value is compared with all of the other.

    p is NaN where there are fewer than two differences, 0 or 1 where all of them are equal.

    >>> difference, p = paired_t_test([3.0, 4.0, 5.0], [2.0, 2.0, 2.0])
    >>> round(difference, 6), round(p, 4)
    (2.0, 0.0742)
    """
    differences = np.asarray(a, float) - np.asarray(b, float)
    mean = float(differences.mean())
    if len(differences) < 2:
        return mean, math.nan
    if np.ptp(differences) == 0:
        return mean, 0.0 if mean else 1.0
    return mean, float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number by Holm's method; NaN stays and is not counted.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    result, largest = [math.nan] * len(p_values), 0.0
    for place, i in enumerate(sorted(known, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(known) - place) * p_values[i]))
        result[i] = largest
    return result


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (n − 1); that of one value is NaN.

    >>> mean_and_sd([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan
