"""Stages of training as recipes: what another process needs to make the same stage."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bonsai_xmc import _core

Array = npt.NDArray[Any]


class DatasetArrays(NamedTuple):
    """The arguments of `_core.Dataset`."""

    x: Any  # (indptr, indices, values, n_columns), or a 2-D array
    label_ptr: Array
    labels: Array
    n_labels: int
    weights: Array
    normalize: bool


class Dataset:
    """Rows and labels: the core's data set, and the arrays that it borrows."""

    def __init__(self, arrays: DatasetArrays) -> None:
        self.arrays = arrays
        self.core = _core.Dataset(*arrays)


@dataclass(frozen=True)
class Recipe:
    """``make(shared, *own)`` is the stage. `shared` is large, and the same for several stages."""

    make: Callable[..., _core.Stage]
    shared: Any
    own: tuple[Any, ...]

    def stage(self) -> _core.Stage:
        """The stage, made anew."""
        return self.make(self.shared, *self.own)


def label_vectors(arrays: DatasetArrays, kind: str) -> _core.Stage:
    """Label vectors, by blocks of labels."""
    return _core.LabelVectorStage(_core.Dataset(*arrays), kind)


def splits(vectors: Any, nodes: tuple[Array, Array, Array, bool], params: dict[str, Any]) -> _core.Stage:
    """The splits of the nodes of one level, by nodes."""
    ptr, labels, keys, roots = nodes
    stage = _core.SplitStage.from_nodes(ptr, labels, keys, roots, params)
    stage.set_vectors(_core.LabelVectors.from_rows(vectors))
    return stage


def tree_classifiers(
    arrays: DatasetArrays, trees: list[Any], params: dict[str, Any], seed: int, routing_only: bool
) -> _core.Stage:
    """The classifiers of trees, by nodes."""
    made = _core.Trees.from_arrays(trees, arrays.n_labels)
    return _core.ClassifierStage.of_trees(_core.Dataset(*arrays), made, params, seed, routing_only)


def label_classifiers(
    arrays: DatasetArrays, labels: Array, costs: Array, share: float, params: dict[str, Any], seed: int
) -> _core.Stage:
    """The classifiers of labels against all rows, by blocks of labels."""
    labels, costs = np.ascontiguousarray(labels), np.ascontiguousarray(costs)
    return _core.ClassifierStage.of_labels(_core.Dataset(*arrays), labels, costs, share, params, seed)
