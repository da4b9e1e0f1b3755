"""Further rows for a trained model: only the classifiers of their labels are trained again.

Imports the core for the classifiers that training continues from.
"""

import contextlib
import os
from dataclasses import replace
from typing import Any

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.progress import LOG, Phases
from bonsai_xmc._data.labels import Labels, is_matrix, labels_of
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._model.edit import NewClassifiers, edit_labels
from bonsai_xmc._model.fitted import FittedModel, class_array
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._model.ranker import FUSION
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._training import memory
from bonsai_xmc._training.checkpoint import Checkpoint
from bonsai_xmc._training.identity import learning_facts
from bonsai_xmc._training.recipes import Dataset
from bonsai_xmc._training.train import Problem, label_costs, make_problem, one_vs_rest
from bonsai_xmc._training.work import Runner, Work


def check_can_learn(fitted: FittedModel) -> KeptRows:
    """Return the rows that the model keeps; ValueError if it cannot learn."""
    if fitted.ranker.kind == FUSION:
        raise ValueError(
            "learn trains the classifiers of one Bonsai, but this model is a fusion of several, as is one "
            "with an encoder; fit it again, on all rows"
        )
    if fitted.linear.core.one_vs_rest is None:
        raise ValueError(
            "learn trains one-vs-rest classifiers, but this model has only label trees; train it with "
            'classifiers="one_vs_rest" or "blend"'
        )
    if fitted.rows is None:
        raise ValueError(
            "this model keeps no training rows, which learn needs; train it by fit(X, Y, keep_rows=True) "
            "(bonsai train --keep-rows)"
        )
    return fitted.rows


def new_labels_of(Y: Any, fitted: FittedModel) -> Labels:
    """Return label sets whose ids are places in the model's classes, followed by new labels."""
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
    owner = np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr))
    indices = ids[labels.indices]
    return Labels(labels.indptr, indices[np.lexsort((indices, owner))], class_array(classes + new))


def learn(
    fitted: FittedModel,
    rows: Rows,
    labels: Labels,
    weights: Array | None,
    threads: int,
    phases: Phases,
    *,
    checkpoint: str | os.PathLike[str] | None,
    runner: Runner | None,
    max_memory: int | str | None,
) -> FittedModel:
    """Return the model trained on further rows, whose labels `new_labels_of` gives; options as in `fit`."""
    kept = check_can_learn(fitted)
    touched = np.unique(labels.indices).astype(np.uint32)
    if not len(touched):
        raise ValueError("Y holds no label at all; there is nothing to learn")
    more = KeptRows.make(rows.to_dense() if kept.ptr is None else rows.to_sparse(), labels, weights)
    everything = kept + more
    classes = labels.classes.tolist()
    is_new = touched >= fitted.n_labels
    LOG.info("%d rows, %d labels, %d of them new", more.n_rows, len(touched), int(is_new.sum()))
    problem = make_problem(
        everything.rows(),
        Labels(everything.label_ptr, everything.labels, labels.classes),
        everything.weights,
    )
    strategy = fitted.linear.strategy
    alone = strategy.only_one_vs_rest()
    old = _old_forest(fitted, labels.n_labels)
    with contextlib.ExitStack() as stack:
        results = None
        if checkpoint is not None:
            facts = learning_facts(problem, old, touched, fitted.provenance.seed)
            results = stack.enter_context(Checkpoint(checkpoint, facts))
        plan = memory.plan_for(problem, alone, threads, max_memory, tunes=False, threshold=False)
        work = Work(threads, phases, runner, results)
        work.limit(plan.threads)
        forest = _train(problem, strategy, old, kept.n_rows, touched, fitted.provenance.seed, work)
    counts = problem.labels.counts
    new = NewClassifiers.trained([classes[i] for i in touched.tolist()], forest, counts[touched])
    model = edit_labels(replace(fitted, rows=None), new=new, threads=threads)
    moved = np.array([model.labels.place[label] for label in classes], np.int64)
    return replace(model, n_rows=(fitted.n_rows or 0) + more.n_rows, rows=everything.with_labels(moved))


def _train(
    problem: Problem, strategy: Strategy, old: _core.Forest, n_old: int, touched: Array, seed: int, work: Work
) -> _core.Forest:
    """Return classifiers of the labels `touched`, in this order; those of the model are trained further."""
    arrays = problem.arrays(strategy.normalize)._replace(n_labels=old.n_labels)
    costs = label_costs(problem.labels.counts, strategy, arrays.weights)
    return one_vs_rest(Dataset(arrays), strategy, touched, costs, seed, work, old, n_old)[0]


def _old_forest(fitted: FittedModel, n_labels: int) -> _core.Forest:
    """Return the model's classifiers by their labels.

    Those of merged labels, and those with a bias that training does not give, are left out: the training
    of their labels starts from zero.
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
