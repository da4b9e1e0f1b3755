"""`RankedList`: predictions of another system, as a member of a `Fusion`."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import COMMON, Parameter, check
from bonsai_xmc._base.progress import Progress, phases_of
from bonsai_xmc._base.threads import instruction_set
from bonsai_xmc._data import labels as label_sets
from bonsai_xmc._data.rows import Rows, prediction_rows, training_rows
from bonsai_xmc._estimators.matrix import MatrixClassifier
from bonsai_xmc._model.fitted import VERSION, FittedModel, LabelTable, Provenance, class_array
from bonsai_xmc._model.ranked_list import ListRanker
from bonsai_xmc._model.thresholds import PER_LABEL
from bonsai_xmc._selection.threshold import Thresholds, chosen_threshold
from bonsai_xmc._training import splits
from bonsai_xmc.metrics._ranking import Truth, check_ids

_ZERO = 1e-30  # stands for a score of 0, as entries of 0 are not listed


@dataclass(eq=False, repr=False)
class RankedList(MatrixClassifier):
    """Labels ranked by another system, as a member of a `Fusion`: a row has its scores of the labels.

    X is a sparse matrix of scores, whose zeros are labels that are not listed, or a pair (ids, scores) as
    `top_k` and `metrics.read_predictions` return it. Nothing is learnt but the range of the scores and the
    threshold. The other system must not have been trained on rows on which a fusion chooses its weights.

    Parameters
    ----------
    classes : list of labels, optional
        The label of each column; default: 0, 1, …
    threshold : float, "auto" or "per_label", default="auto"
        See `Bonsai`. It is chosen on the rows of `fit`.
    n_jobs : int, optional
        Has no effect on a list.

    Examples
    --------
    >>> from bonsai_xmc import Bonsai, Fusion, RankedList, datasets
    >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
    >>> a = Bonsai(classifiers="leaf").fit(data.X_train, data.Y_train)
    >>> ranked = Bonsai(classifiers="one_vs_rest").fit(data.X_train, data.Y_train).top_k(data.X_test, 20)
    >>> members = {"trees": a, "list": RankedList(a.classes_).fit(ranked)}
    >>> X = {"trees": data.X_test, "list": ranked}
    >>> model = Fusion.of(members, X, data.Y_test)
    >>> ids, scores = model.top_k({name: X[name] for name in model.weights_}, k=5)
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {name: COMMON[name] for name in ("threshold", "n_jobs")}
    ranker: ClassVar[Any] = ListRanker

    classes: Any = None
    _: KW_ONLY
    threshold: float | str = "auto"
    n_jobs: int | None = None

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: Progress | bool | None = None
    ) -> Self:
        """Take the range of the scores and, with label sets y, the threshold."""
        for name in self.parameters:
            check(name, getattr(self, name), self.parameters)
        width = None if self.classes is None else len(self.classes)
        read = lambda **_: training_rows(_matrix(X, width), type(self).__name__)[0]
        rows = phases_of(progress).run("reading", read)
        classes = np.arange(rows.n_features) if self.classes is None else _checked(self.classes)
        if len(classes) != rows.n_features:
            raise ValueError(f"X has {rows.n_features:,} columns, but there are {len(classes):,} classes")
        scores = rows.to_sparse().values.astype(np.float64)
        low, high = float(scores.min(initial=0)), float(scores.max(initial=1))
        ranker = ListRanker(np.arange(len(classes), dtype=np.int32), rows.n_features, low, high)
        counts, thresholds = np.zeros(len(classes), np.int64), Thresholds()
        if y is not None:
            label_sets.check_rows(rows.n_rows, label_sets.labels_of(y).n_rows)
            counts += np.bincount(label_sets.over_classes(y, classes).indices, minlength=len(classes))
            if isinstance(self.threshold, str):  # nothing is learnt from these rows, so they may choose it
                ranking = Truth.of(y, classes).rank(*ranker.top_k(rows, min(len(classes), splits.DEPTH)))
                per_label = self.threshold == PER_LABEL
                thresholds = chosen_threshold([(ranking, None)], len(classes), per_label)
        if not isinstance(self.threshold, str):
            thresholds = Thresholds(float(self.threshold))
        self.fitted_ = FittedModel(
            ranker=ranker,
            labels=LabelTable(classes, counts, thresholds=thresholds.of_labels),
            n_rows=None if y is None else rows.n_rows,
            n_features=rows.n_features,
            feature_names=None,
            id_base=None,
            given={},
            threshold=thresholds.common,
            provenance=Provenance(VERSION, instruction_set(), 1, 0),
        )
        return self

    def _rows(self, X: Any, fitted: FittedModel) -> Rows:
        return prediction_rows(_matrix(X, fitted.n_features), self, fitted.n_features, named=False)

    @classmethod
    def _given(cls, fitted: FittedModel) -> dict[str, Any]:
        labels = fitted.labels
        return {"classes": labels.classes if labels.named or labels.keyed else None}


def _matrix(X: Any, width: int | None) -> Any:
    """Return X as a matrix of scores; a pair of ids and scores becomes a sparse one with `width` columns."""
    if not isinstance(X, tuple):
        return X
    if len(X) != 2:
        raise ValueError(f"a ranked list is a pair of ids and scores, but X has {len(X)} parts")
    ids, scores = np.asarray(X[0]), np.asarray(X[1], np.float32)
    width = int(ids.max(initial=0)) + 1 if width is None else width
    ids = check_ids(ids, width)
    if scores.shape != ids.shape:
        raise ValueError(f"ids and scores must have one shape, got {ids.shape} and {scores.shape}")
    there = ids >= 0
    if not np.isfinite(scores[there]).all():
        raise ValueError("scores of a ranked list must be finite")
    # A list without scores has ranks.
    scores = np.where(scores.any(axis=1, keepdims=True, where=there), scores, _by_rank(ids.shape[1]))
    values, ptr = np.where(scores == 0, np.float32(_ZERO), scores), np.append(0, there.sum(axis=1).cumsum())
    matrix = sp.csr_array((values[there], ids[there], ptr), shape=(len(ids), width))
    matrix.sort_indices()
    return matrix


def _by_rank(width: int) -> Array:
    return (1 / np.arange(1, width + 1)).astype(np.float32)


def _checked(classes: Any) -> Array:
    keys = [label_sets.label_key(key, f"classes[{i}]") for i, key in enumerate(classes)]
    if len(set(keys)) < len(keys) or len({type(key) for key in keys}) > 1:
        raise ValueError("classes must be distinct labels, all of them names or all integers")
    return class_array(keys)
