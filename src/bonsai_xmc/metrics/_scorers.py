"""Scorers for scikit-learn's model selection."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bonsai_xmc._data.labels import is_matrix, label_rows

from . import _propensity
from ._definitions import METRICS, NEED_PROPENSITY
from ._evaluate import AT_K


@dataclass
class Scorer:
    """Callable(estimator, X, Y) -> fraction, greater is better. A class, so that it can be pickled."""

    metric: str
    k: int
    A: float = 0.55
    B: float = 1.5
    weighted: bool | str | None = None  # what `set_score_request` said about sample_weight

    def __call__(self, estimator: Any, X: Any, Y: Any, sample_weight: Any = None) -> float:
        ranker, X = _ranker(estimator, X)
        classes = getattr(ranker, "classes_", None)
        ids, _ = ranker.top_k(X, self.k)
        q = self._propensity(ranker, classes, Y) if self.metric in NEED_PROPENSITY else None
        return AT_K[self.metric](Y, ids, self.k, q, classes=classes, sample_weight=sample_weight)

    def set_score_request(self, *, sample_weight: bool | str | None) -> "Scorer":
        """Set whether scikit-learn's metadata routing passes `sample_weight` to the scorer.

        As in scikit-learn: True requests it, False ignores it, None makes passing it an error, and a string
        is the name under which the caller passes it.
        """
        self.weighted = sample_weight
        return self

    def get_metadata_routing(self) -> Any:
        """Return the request for scikit-learn's metadata routing."""
        from sklearn.utils.metadata_routing import MetadataRequest  # takes a second to import

        request = MetadataRequest(owner=repr(self))
        request.score.add_request(param="sample_weight", alias=self.weighted)
        return request

    def _propensity(self, ranker: Any, classes: Any, Y: Any) -> Any:
        """Return inverse propensities from the label frequencies of the estimator."""
        if not hasattr(ranker, "label_counts_") or not hasattr(ranker, "n_rows_fit_"):
            raise ValueError(f"{type(ranker).__name__} lacks label_counts_ and n_rows_fit_, which PSP needs")
        counts = ranker.label_counts_
        if counts is None:
            raise ValueError("PSP needs the frequencies of labels, which are unknown for imported models")
        if classes is not None and not is_matrix(Y):  # labels unknown to the estimator have no training rows
            known = set(np.asarray(classes).tolist())
            unseen = {label for row in label_rows(Y) for label in row} - known
            counts = np.append(counts, np.zeros(len(unseen)))
        return _propensity.from_counts(counts, ranker.n_rows_fit_, self.A, self.B)


def _ranker(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Find the estimator with `top_k` inside pipelines and searches, and transform X for it."""
    from sklearn.pipeline import Pipeline

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


def scorer(name: str, A: float = 0.55, B: float = 1.5) -> Scorer:
    """Return a scorer for GridSearchCV and cross_val_score: a metric of `evaluate`, as a fraction.

    Scorers take Y in any form that `Bonsai.fit` takes, and work on an estimator with `top_k`, also at the end
    of a Pipeline or inside a search. For Y as lists of labels, scikit-learn needs a splitter, as in
    ``GridSearchCV(…, cv=KFold(5))``: given an integer, it inspects the labels, and rejects lists. A and B are
    propensity parameters; frequencies are those of the training rows of the estimator.

    >>> from bonsai_xmc import metrics
    >>> scorer = metrics.scorer("nDCG@3")
    >>> scorer.metric, scorer.k
    ('nDCG', 3)
    """
    metric, _, k = name.partition("@")
    if metric not in METRICS or not k.isdecimal() or int(k) < 1:
        names = ", ".join(f"{known}@k" for known in METRICS)
        raise ValueError(f"{name!r} is not a metric such as 'P@5'; these are {names}")
    return Scorer(metric, int(k), A, B)
