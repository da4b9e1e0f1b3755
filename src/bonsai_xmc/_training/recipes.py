"""Stages of training as recipes: what another process needs to make the same stage.

Imports the core, whose stages they make.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.rows import SparseRows


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
    """How to make a stage: by ``make(basis, *own)``, where the basis is ``derive(shared, threads, *how)``.

    Several stages may have the same basis. `shared` is sent once; the basis may be larger, so it is derived
    where it is needed.
    """

    make: Callable[..., _core.Stage]
    own: tuple[Any, ...]
    shared: Any
    derive: Callable[..., Any]
    how: tuple[Any, ...] = ()
    prepare: Callable[[Any], None] = lambda stage: None  # called with a stage that this process solves

    def __reduce__(self) -> tuple[Any, ...]:
        return Recipe, (self.make, self.own, self.shared, self.derive, self.how)

    def stage(self) -> _core.Stage:
        """Make the stage again."""
        return self.make(self.derive(self.shared, 1, *self.how), *self.own)


# --- what stages are made from ---


def dataset(arrays: DatasetArrays, threads: int) -> _core.Dataset:
    """Make the core's data set."""
    return _core.Dataset(*arrays)


def vectors(arrays: DatasetArrays, threads: int, kind: str) -> _core.LabelVectors:
    """Make label vectors. Sending them takes longer, as they have several times the bytes of the rows."""
    stage = _core.LabelVectorStage(_core.Dataset(*arrays), kind)
    stage.solve(stage.missing(), threads)
    return stage.finish(threads)


def joined_vectors(shared: tuple[DatasetArrays, Any], threads: int, kind: str) -> _core.LabelVectors:
    """Make label vectors joined with those of names."""
    arrays, names = shared
    return side_by_side(vectors(arrays, threads, kind), names, kind)


def side_by_side(made: _core.LabelVectors, names: Any, kind: str) -> _core.LabelVectors:
    """Join the vectors of names to others, scaled to length 1; "joint" has two parts and weighs double."""
    left, right = (
        SparseRows(*rows).to_scipy() if isinstance(rows, tuple) else sp.csr_array(np.asarray(rows))
        for rows in (made.arrays(), names)
    )
    whole = sp.hstack([left * np.float32(np.sqrt(2 if kind == "joint" else 1)), right], format="csr")
    return _core.LabelVectors.from_rows(SparseRows.from_scipy(whole).unit())


def given_vectors(rows: Any, threads: int) -> _core.LabelVectors:
    """Make the user's label vectors."""
    return _core.LabelVectors.from_rows(rows)


# --- stages ---


def label_vectors(data: _core.Dataset, kind: str) -> _core.Stage:
    """Make the stage of label vectors, by blocks of labels."""
    return _core.LabelVectorStage(data, kind)


def splits(
    vectors: _core.LabelVectors, nodes: tuple[Array, Array, Array, bool], params: dict[str, Any]
) -> _core.Stage:
    """Make the stage that splits one level, by nodes."""
    ptr, labels, keys, roots = nodes
    stage = _core.SplitStage.from_nodes(ptr, labels, keys, roots, params)
    stage.set_vectors(vectors)
    return stage


def tree_classifiers(
    data: _core.Dataset,
    n_labels: int,
    trees: list[Any],
    params: dict[str, Any],
    seed: int,
) -> _core.Stage:
    """Make the stage that trains the classifiers of trees, by nodes."""
    made = _core.Trees.from_arrays(trees, n_labels)
    return _core.ClassifierStage.of_trees(data, made, params, seed)


def label_classifiers(
    data: _core.Dataset,
    labels: Array,
    costs: Array,
    share: float,
    params: dict[str, Any],
    seed: int,
    old: _core.Forest | None = None,
    n_old_rows: int = 0,
) -> _core.Stage:
    """Make the stage of one-vs-rest classifiers, by blocks of labels; those in `old` are trained further."""
    labels, costs = np.ascontiguousarray(labels), np.ascontiguousarray(costs)
    return _core.ClassifierStage.of_labels(data, labels, costs, share, params, seed, old, n_old_rows)
