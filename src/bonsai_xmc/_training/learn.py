"""Further rows for a trained model: only the classifiers of their labels are trained again."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import _core
from bonsai_xmc._base.progress import LOG
from bonsai_xmc._data.labels import Labels, is_matrix, labels_of
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._model.edit import NewClassifiers, edit_labels
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._training.train import label_costs, one_vs_rest_params
from bonsai_xmc._training.work import Work

Array = npt.NDArray[Any]


def check_can_learn(fitted: FittedModel) -> KeptRows:
    """The rows that the model keeps; ValueError if it cannot learn."""
    if fitted.linear.core.one_vs_rest is None:
        raise ValueError(
            "learn trains one-vs-rest classifiers, but this model has label trees alone; train it with "
            'classifiers="one_vs_rest" or "blend"'
        )
    if fitted.rows is None:
        raise ValueError(
            "this model keeps no training rows to learn beside; train it with keep_rows=True (bonsai train "
            "--keep-rows)"
        )
    return fitted.rows


def new_labels_of(Y: Any, fitted: FittedModel) -> Labels:
    """Label sets whose ids are places in the model's classes, followed by labels that are new."""
    labels = labels_of(Y)
    keys = labels.classes.tolist()
    if is_matrix(Y) and labels.classes.dtype != object and (fitted.labels.named or fitted.labels.keyed):
        if labels.n_labels != fitted.n_labels:
            raise ValueError(
                f"Y has {labels.n_labels:,} columns, but the model has {fitted.n_labels:,} labels; pass "
                "lists of labels, or a matrix with a column for each"
            )
        keys = fitted.classes.tolist()
    used = np.unique(labels.indices)
    classes = fitted.classes.tolist()
    new = [keys[i] for i in used.tolist() if keys[i] not in fitted.labels.place]
    if new and isinstance(new[0], str) != fitted.labels.named:
        raise ValueError(
            f"Y holds {new[0]!r}, but the labels of the model are "
            f"{'names' if fitted.labels.named else 'integers'}"
        )
    place = {**fitted.labels.place, **{key: len(classes) + i for i, key in enumerate(new)}}
    ids = np.full(labels.n_labels, -1, np.int32)
    ids[used] = [place[keys[i]] for i in used.tolist()]
    everything = np.empty(len(place), dtype=object)
    everything[:] = classes + new
    owner = np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr))
    indices = ids[labels.indices]
    return Labels(labels.indptr, indices[np.lexsort((indices, owner))], everything)


def learn(
    fitted: FittedModel, rows: Rows, labels: Labels, weights: Array | None, seed: int, work: Work
) -> FittedModel:
    """The model after further rows, whose labels `new_labels_of` gives."""
    kept = check_can_learn(fitted)
    touched = np.unique(labels.indices).astype(np.uint32)
    if not len(touched):
        raise ValueError("Y holds no label at all; there is nothing to learn")
    more = KeptRows.make(rows.to_dense() if kept.ptr is None else rows.to_sparse(), labels, weights)
    everything = kept + more
    counts = np.bincount(everything.labels, minlength=labels.n_labels)
    classes = labels.classes.tolist()
    is_new = touched >= fitted.n_labels
    LOG.info("%d rows, %d labels, %d of them new", more.n_rows, len(touched), int(is_new.sum()))
    forest = _train(fitted, everything, kept.n_rows, counts, touched, seed, work)
    new = NewClassifiers.trained([classes[i] for i in touched.tolist()], forest, counts[touched])
    model = edit_labels(replace(fitted, rows=None), new=new, threads=work.threads)
    moved = np.array([model.labels.place[label] for label in classes], np.int64)
    return replace(model, n_rows=(fitted.n_rows or 0) + more.n_rows, rows=everything.with_labels(moved))


def _train(
    fitted: FittedModel, rows: KeptRows, n_old: int, counts: Array, touched: Array, seed: int, work: Work
) -> _core.Forest:
    """Classifiers of the labels `touched`, in this order; labels of the model go on from theirs."""
    strategy = fitted.linear.strategy
    weights = rows.row_weights() if len(rows.weights) else np.empty(0, np.float32)
    old = _old_forest(fitted, len(counts))
    dataset = _core.Dataset(
        rows.rows().to_core(), rows.label_ptr, rows.labels, old.n_labels, weights, strategy.normalize
    )
    costs = label_costs(counts, strategy, weights)
    costs = costs[touched] if len(costs) else costs
    stage = _core.ClassifierStage.of_labels(
        dataset, touched, costs, strategy.frequent_share, one_vs_rest_params(strategy), seed, old, n_old
    )
    units = np.ascontiguousarray(stage.missing())
    work.run("one-vs-rest", lambda progress=None: stage.solve(units, work.threads, progress, None))
    return stage.finish(work.threads)[0]


def _old_forest(fitted: FittedModel, n_labels: int) -> _core.Forest:
    """The model's classifiers by their labels.

    Without those of merged labels, and those with another bias than training gives: they start anew.
    """
    ranker = fitted.linear
    forest = ranker.core.one_vs_rest
    assert forest is not None
    arrays = dict(forest.arrays())
    labels = ranker.label_of_slot[arrays["children"]].astype(np.int32)
    other = np.bincount(ranker.label_of_slot)[labels] > 1
    if not isinstance(ranker.strategy.bias, str):
        other |= arrays["bias"] != np.float32(ranker.strategy.bias)
    labels[other] = n_labels + np.arange(int(other.sum()), dtype=np.int32)
    arrays["children"] = labels
    return _core.Forest(arrays, forest.n_features, n_labels + int(other.sum()))
