"""Features that omikuji's trees have and `Bonsai` lacks: strict beams, removed layers, sums of models."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai, LabelTree
from bonsai_xmc._base.params import PARAMETERS
from bonsai_xmc._base.random import seed_of
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data import rows as _inputs
from bonsai_xmc._selection.strategy import resolve
from bonsai_xmc._training import train as _training
from bonsai_xmc._training.work import Work

_OF_CLUSTERING = ("n_trees", "branching_factor", "max_leaf_size", "max_depth", "balance")


def parameters(k: int, balanced: bool, max_depth: int, min_branch_size: int = 100) -> dict[str, Any]:
    """Return the parameters of `Bonsai` for trees as omikuji builds them."""
    most = 2**31 - 1
    return {
        "classifiers": "leaf",
        "branching_factor": min(max(2, k), most),
        "max_leaf_size": min(max(1, min_branch_size - 1), most),
        "max_depth": 1 if k == 1 else min(max_depth, most),
        "balance": "equal" if balanced else "none",
    }


def fit(model: Bonsai, X: Any, Y: Any, n_layers: int) -> Bonsai:
    """Train a model whose trees are searched as in omikuji; see `collapsed`."""
    model.fit(X, Y, tree=collapsed(model, X, Y, n_layers) if n_layers else None)
    return search_as_omikuji(model) if model.classifiers_ == "leaf" else model


def search_as_omikuji(model: Bonsai) -> Bonsai:
    """Return the model with a strict beam (docs/internals/format.md)."""
    ranker = model.fitted_.linear
    strict = ranker.with_core(strategy=replace(ranker.strategy, strict_beam=True))
    return model._with(replace(model.fitted_, ranker=strict))


def collapsed(model: Bonsai, X: Any, Y: Any, n_layers: int) -> list[LabelTree]:
    """Return the trees that `model` would build, with `n_layers` of every `n_layers` + 1 layers removed.

    Leaves stay unchanged. The clustering parameters of the model are reset to their defaults, as they have no
    effect on given trees.
    """
    problem = model._problem(_inputs.training_rows(X, "Bonsai"), Y)
    strategy = resolve(model.get_params(deep=False), problem.facts)
    dataset, _ = _training._dataset(problem, strategy, problem.labels.counts)
    present = np.flatnonzero(problem.labels.counts).astype(np.uint32)
    seed, threads = seed_of(model.random_state), threads_of(model.n_jobs)
    trees = _training._trees(problem, dataset, present, strategy, seed, Work(threads))
    model.set_params(**{name: PARAMETERS[name].default for name in _OF_CLUSTERING})
    return [
        LabelTree.from_nested(_without_layers(LabelTree(*arrays), 0, n_layers)) for arrays in trees.arrays()
    ]


def _without_layers(tree: LabelTree, node: int, n_layers: int) -> list[Any]:
    """Return a node as nested lists; its children lie `n_layers` + 1 layers below, or are leaves above."""
    if tree.is_leaf(node):
        return [int(label) for label in tree.labels(node)]
    below = [int(child) for child in tree.children(node)]
    for _ in range(n_layers):
        if all(tree.is_leaf(child) for child in below):
            break
        below = [
            int(grandchild)
            for child in below
            for grandchild in ([child] if tree.is_leaf(child) else tree.children(child))
        ]
    return [_without_layers(tree, child, n_layers) for child in below]


def best(
    parts: list[Bonsai], row: csr_array, beam_size: int, top_k: int, n_jobs: int
) -> list[tuple[int, float]]:
    """Return the best labels of one row by the mean over all trees of all parts."""
    if len(parts) == 1:
        return _ranked(parts[0], row, beam_size, top_k, n_jobs)
    counts = [len(part.trees_) for part in parts]
    total: dict[int, float] = {}
    for part, n_trees in zip(parts, counts, strict=True):
        for label, score in _ranked(part, row, beam_size, len(part.classes_), n_jobs):
            total[label] = total.get(label, 0.0) + score * n_trees / sum(counts)
    return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k]


def _ranked(
    model: Bonsai, row: csr_array, beam_size: int, top_k: int, n_jobs: int
) -> list[tuple[int, float]]:
    chosen = copy.copy(model)  # as other threads may use other beams
    chosen.beam_size, chosen.n_jobs = beam_size, n_jobs
    return chosen.top_k_labels(row, min(top_k, len(model.classes_)))[0]
