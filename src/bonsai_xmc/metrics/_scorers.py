"""Scorers for scikit-learn's model selection."""

from dataclasses import dataclass
from typing import Any

from . import _propensity
from ._definitions import METRICS, NEED_PROPENSITY, value_of
from ._evaluate import frequencies, ranking
from ._truth import align


@dataclass
class Scorer:
    """A callable (estimator, X, Y) -> fraction, greater is better; a class, so that it can be pickled."""

    metric: str
    k: int
    A: float = 0.55
    B: float = 1.5
    weighted: bool | str | None = None  # request for sample_weight; see `set_score_request`

    def __call__(self, estimator: Any, X: Any, Y: Any, sample_weight: Any = None) -> float:
        ranker, X = _ranker(estimator, X)
        classes = getattr(ranker, "classes_", None)
        ids, _ = ranker.top_k(X, self.k)
        aligned, q = align(Y, ids, None, [self.k], classes), None
        if self.metric in NEED_PROPENSITY and (trained := frequencies(aligned, _trained(ranker))):
            q = _propensity.from_counts(*trained, self.A, self.B)
        return value_of(self.metric, ranking(aligned, None, sample_weight, q), self.k)

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


def _trained(ranker: Any) -> tuple[Any, int]:
    """Return the label frequencies that an estimator was fitted on."""
    if not hasattr(ranker, "label_counts_") or not hasattr(ranker, "n_rows_fit_"):
        raise ValueError(f"{type(ranker).__name__} lacks label_counts_ and n_rows_fit_, which PSP needs")
    if ranker.label_counts_ is None:
        raise ValueError("PSP needs the frequencies of labels, which are unknown for imported models")
    return ranker.label_counts_, ranker.n_rows_fit_


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
