"""Remarks on a result: where the data cannot show what an experiment measures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bonsai_xmc.datasets import Dataset
from bonsai_xmc.metrics import TAIL_ROWS

from .results import plural, title_of

_FEW_PAIRS = 100  # test occurrences; a share of fewer has a standard error of up to five points
_POOR_FIT = 0.8  # R² of a power law below which it is none


def label_counts(data: Dataset) -> Any:
    """Return the number of training rows of each label."""
    return np.asarray(data.Y_train.sum(axis=0)).ravel().astype(np.int64)


def no_tail(data: Dataset, pairs: int | None = None) -> list[str]:
    """Return remarks on missing or few tail labels. `pairs`: (row, tail label) pairs of the test rows."""
    counts = label_counts(data)
    tail = (counts > 0) & (counts < TAIL_ROWS)
    if not tail.any():
        return [
            f"No label has fewer than {TAIL_ROWS} training rows. These data have no tail labels; figures on "
            "the tail are missing or mean nothing."
        ]
    if pairs is None:
        pairs = int(np.asarray(data.Y_test.sum(axis=0)).ravel()[tail].sum())
    if pairs < _FEW_PAIRS:
        return [
            f"The test rows have {plural(pairs, 'occurrence')} of tail labels. Figures on the tail are "
            "uncertain by several points."
        ]
    return []


def single_leaf(data: Dataset, max_leaf_size: int = 100) -> list[str]:
    """Return a remark if all labels fit into one leaf, so that a tree is one-vs-rest."""
    used = int(np.count_nonzero(label_counts(data)))
    if used > max_leaf_size:
        return []
    return [
        f"The {plural(used, 'label')} fit into one leaf (up to {max_leaf_size}). The trees have a single "
        "node, and tree-based systems train the same classifiers as one-vs-rest."
    ]


def no_cooccurrence(data: Dataset) -> list[str]:
    """Return a remark if labels cannot be represented by other labels."""
    if np.diff(data.Y_train.indptr).max(initial=0) > 1:
        return []
    return [
        "No training row has two labels. Label vectors of the output space are empty, and the labels are "
        "divided without regard to the data."
    ]


def poor_fit(r_squared: float) -> list[str]:
    """Return a remark if frequencies do not follow a power law."""
    if r_squared >= _POOR_FIT:
        return []
    return [f"The label frequencies do not follow a power law (R² = {r_squared:.2f})."]


def equal_systems(runs: Mapping[str, Sequence[Mapping[str, Any]]], metrics: Sequence[str]) -> list[str]:
    """Return a remark on each group of systems whose metrics are equal in every run."""
    points = {
        title_of(name): [run["metrics"][metric] for run in of for metric in metrics]
        for name, of in runs.items()
    }
    return coinciding(points, 0.0, "systems")


def coinciding(curves: Mapping[str, Sequence[float]], tolerance: float, what: str = "curves") -> list[str]:
    """Return a remark on each group of curves that agree within `tolerance` at every point.

    >>> coinciding({"a": [1.0, 2.0], "b": [1.0, 2.01], "c": [5.0, 1.0]}, 0.05)
    ['These curves coincide (to 0.05): a; b. The data cannot tell them apart.']
    """
    groups: list[list[str]] = []
    for name, points in curves.items():
        for group in groups:
            first = curves[group[0]]
            if len(first) == len(points) and np.allclose(first, points, rtol=0, atol=tolerance):
                group.append(name)
                break
        else:
            groups.append([name])
    precision = f" (to {tolerance:g})" if tolerance else ""
    return [
        f"These {what} coincide{precision}: {'; '.join(group)}. The data cannot tell them apart."
        for group in groups
        if len(group) > 1
    ]
