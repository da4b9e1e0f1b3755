"""What omikuji does with trees and `Bonsai` does not: layers taken out, models that are added up."""

from typing import Any

import numpy as np

from bonsai_xmc import Bonsai, LabelTree, _inputs, _training
from bonsai_xmc._params import seed_of, threads_of
from bonsai_xmc._progress import Phases
from bonsai_xmc._strategy import resolve


def collapsed(model: Bonsai, X: Any, Y: Any, n_layers: int) -> list[LabelTree]:
    """The trees that `model` would build, with `n_layers` layers taken out below each one that is kept.

    Leaves stay as they are.
    """
    problem = model._problem(_inputs.training_rows(X, "Bonsai"), Y)
    strategy = resolve(model.get_params(deep=False), problem.facts)
    dataset, _ = _training._dataset(problem, strategy, problem.labels.counts)
    present = np.flatnonzero(problem.labels.counts).astype(np.uint32)
    seed, threads = seed_of(model.random_state), threads_of(model.n_jobs)
    trees = _training._trees(problem, dataset, present, strategy, seed, threads, Phases(None))
    return [
        LabelTree.from_nested(_without_layers(LabelTree(*arrays), 0, n_layers)) for arrays in trees.arrays()
    ]


def _without_layers(tree: LabelTree, node: int, n_layers: int) -> list[Any]:
    """A node as nested lists; its children lie `n_layers` + 1 layers below, or are leaves above."""
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
    parts: list[Bonsai], rows: tuple[Any, Any, Any, int], beam_size: int, top_k: int, threads: int
) -> list[tuple[int, float]]:
    """The best labels of one row by the mean over all trees of all parts."""
    if len(parts) == 1:
        ids, scores = _ranked(parts[0], rows, beam_size, top_k, threads)
        return list(zip(ids, scores, strict=True))
    counts = [len(part.trees_) for part in parts]
    total: dict[int, float] = {}
    for part, n_trees in zip(parts, counts, strict=True):
        ids, scores = _ranked(part, rows, beam_size, len(part.classes_), threads)
        for label, score in zip(ids, scores, strict=True):
            total[label] = total.get(label, 0.0) + score * n_trees / sum(counts)
    return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k]


def _ranked(
    model: Bonsai, rows: tuple[Any, Any, Any, int], beam_size: int, top_k: int, threads: int
) -> tuple[list[int], list[float]]:
    fitted = model.fitted_
    ids, scores = fitted.core.top_k(
        rows,
        min(top_k, fitted.n_labels),
        beam_size=beam_size,
        exact=False,
        n_probe=0,
        path_weight=fitted.strategy.path_weight,
        threads=threads,
        progress=None,
    )
    found = ids[0] >= 0
    return ids[0][found].tolist(), np.exp(scores[0][found]).tolist()
