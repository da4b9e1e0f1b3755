"""Predictions of a fitted model, for estimators and for commands that need none."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import Progress, memory_for
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.labels import allowed_labels
from bonsai_xmc._text.records import columns_of


def rank(
    fitted: FittedModel,
    rows_of: Callable[[Any, FittedModel], Rows],
    X: Any,
    k: int,
    *,
    exact: bool = False,
    restrict: Any = None,
    exclude: Any = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    **search: Any,
) -> tuple[Array, Array]:
    """Return the ids of the k best labels of each row of X, with log scores: −∞ where there are fewer."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool):
        raise ValueError(f"k is {k!r}, but must be an integer")
    if k < 1:
        raise ValueError(f"k is {k}, but must be at least 1")
    if k >= 2**31:
        raise ValueError(f"k is {k}, but must be at most 2³¹ − 1")
    threads = threads_of(n_jobs)
    rows = rows_of(X, fitted)
    watch = None if progress is None else lambda done, total: progress("predict", done, total)
    n_labels = fitted.n_labels
    doing = f"to predict the {int(k):,} best labels of these rows"
    with memory_for(doing, "predict fewer rows at a time"):
        ids, scores = fitted.ranker.top_k(
            rows,
            min(int(k), n_labels),
            allowed=allowed_labels(fitted, restrict, exclude),
            exact=bool(exact),
            threads=threads,
            progress=watch,
            **search,
        )
    if k > n_labels:
        more = ((0, 0), (0, int(k) - n_labels))
        ids = np.pad(ids, more, constant_values=-1)
        scores = np.pad(scores, more, constant_values=-np.inf)
    return ids, scores


def text_rows(X: Any, fitted: FittedModel, n_jobs: int | None) -> Rows:
    """Return texts or records as rows."""
    text = fitted.text
    assert text is not None
    return text.transform(columns_of(X, text.fields, complete=False), threads_of(n_jobs))
