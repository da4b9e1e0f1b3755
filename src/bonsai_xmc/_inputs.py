"""Whatever users hand in → the canonical arrays that the core takes; nothing is changed in place."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.multiclass import type_of_target

from bonsai_xmc._targets import indicator
from bonsai_xmc._tree import LabelTree

Array = npt.NDArray[Any]

# The rows of a matrix as the core takes them: (indptr int64, indices int32, values float32, n_features), or a
# dense C-contiguous float32 array.
CoreRows = tuple[Array, Array, Array, int] | Array

# From this share of non-zeros on, rows are handled as dense, whatever container they came in: less memory
# (4 bytes an entry against 8) and no gathering. The choice depends on the data alone, as the model does.
DENSE_FROM = 0.5

_FLOAT32_MAX = np.float64(np.finfo(np.float32).max)
_INT32_MAX = np.iinfo(np.int32).max


class Labels(NamedTuple):
    """Label sets of all rows: CSR without values, ids ascending in each row."""

    indptr: Array  # int64
    indices: Array  # int32
    classes: Array  # names or ids, one for each column

    @property
    def n_labels(self) -> int:
        return len(self.classes)


def is_sparse(X: Any) -> bool:
    """`scipy.sparse.issparse`, for type checkers that would narrow to a base class without attributes."""
    return bool(sp.issparse(X))


def n_entries(X: Any) -> int:
    """Entries of a matrix, without zeros where that is known at once."""
    return int(X.nnz) if is_sparse(X) else int(np.count_nonzero(X))


def is_dense_at_heart(X: Any) -> bool:
    return n_entries(X) >= DENSE_FROM * X.shape[0] * X.shape[1]


def as_rows(X: Any) -> CoreRows:
    """Rows for training, of a matrix that `check_array` has seen: dense if dense at heart, otherwise CSR."""
    rows: CoreRows = as_csr(X) if is_sparse(X) else as_float32(X)
    filled = len(rows[2]) if isinstance(rows, tuple) else np.count_nonzero(rows)
    if filled < DENSE_FROM * X.shape[0] * X.shape[1]:
        return rows if isinstance(rows, tuple) else as_csr(rows)
    if isinstance(rows, tuple):
        indptr, indices, values, _ = rows
        return sp.csr_array((values, indices, indptr), shape=X.shape).toarray()
    return rows


def as_csr(X: Any) -> tuple[Array, Array, Array, int]:
    """CSR with sorted, distinct, non-zero entries; borrows the caller's arrays where they are so already."""
    csr = sp.csr_array(X)
    if csr.shape[1] > _INT32_MAX:
        raise ValueError(f"X has {csr.shape[1]:,} features; the most that are possible is 2³¹ − 1")
    if not csr.has_canonical_format:
        # A copy, as sum_duplicates works in place; wide, as sums of small integers would wrap around.
        csr = csr.astype(np.bool_ if csr.dtype.kind == "b" else np.float64)
        csr.sum_duplicates()
    values = as_float32(csr.data)
    if not values.all():
        csr = sp.csr_array((values.copy(), csr.indices, csr.indptr), shape=csr.shape, copy=True)
        csr.eliminate_zeros()
        values = csr.data
    indices = np.ascontiguousarray(csr.indices, dtype=np.int32)
    return np.ascontiguousarray(csr.indptr, dtype=np.int64), indices, values, csr.shape[1]


def ready_csr(X: Any, n_features: int) -> tuple[Array, Array, Array, int] | None:
    """The arrays of a CSR matrix that needs no conversion, or None.

    scikit-learn's checks of a single row take longer than its prediction.
    """
    if (
        isinstance(X, sp.csr_array | sp.csr_matrix)
        and X.dtype == np.float32
        and X.indices.dtype == np.int32
        and X.shape[1:] == (n_features,)
        and X.shape[0] > 0
        and X.data.flags.c_contiguous
        and X.indices.flags.c_contiguous
        and X.has_canonical_format
        and np.isfinite(X.data).all()
    ):
        return X.indptr.astype(np.int64), X.indices, X.data, n_features
    return None


def as_float32(values: Array) -> Array:
    """C-contiguous float32; values that it cannot hold are an error instead of an infinity."""
    wide = values.dtype.kind == "f" and values.dtype.itemsize > 4
    if wide and values.size and max(abs(values.max()), abs(values.min())) > _FLOAT32_MAX:
        raise ValueError(
            f"X holds values beyond the range of float32 (±{_FLOAT32_MAX:.3g}); rescale the features"
        )
    return np.ascontiguousarray(values, dtype=np.float32)


def as_labels(Y: Any) -> Labels:
    """Label sets from an indicator matrix, lists of ids, or lists of names."""
    if is_sparse(Y):
        return _from_indicator(Y, None)
    if hasattr(Y, "columns") and hasattr(Y, "to_numpy"):  # a data frame: its column names are the label names
        names = list(Y.columns)
        named = all(isinstance(name, str) for name in names)
        return _from_indicator(
            _two_dimensional(Y.to_numpy()), np.array(names, dtype=object) if named else None
        )
    if hasattr(Y, "__array__"):
        array = np.asarray(Y)
        if array.dtype != object or array.ndim == 2:
            return _from_indicator(_two_dimensional(array), None)
    if Y is None:
        raise ValueError("Bonsai requires y to be passed, but the target y is None")
    if isinstance(Y, str) or not isinstance(Y, Iterable):
        raise ValueError(
            f"Y is of type {type(Y).__name__}; pass an indicator matrix, or one list of labels for each row"
        )
    return _from_lists(list(Y))


def _two_dimensional(Y: Array) -> Array:
    if Y.ndim != 2:
        raise ValueError(
            f"Y has {Y.ndim} dimension(s) ({type_of_target(Y)} target), but must be an indicator matrix "
            "(rows × labels). For one class for each row, pass a list of one-element lists."
        )
    return Y


def _from_indicator(Y: Any, names: Array | None) -> Labels:
    Y = indicator(Y)
    classes = np.arange(Y.shape[1]) if names is None else names
    return Labels(Y.indptr.astype(np.int64), Y.indices.astype(np.int32), classes)


def _from_lists(rows: Sequence[Any]) -> Labels:
    flat: list[Any] = []
    owner: list[int] = []
    for i, row in enumerate(rows):
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise ValueError(
                f"Y[{i}] is {row!r}; each row of Y is a list of labels, e.g. [{row!r}] for a single one"
            )
        labels = list(row)
        flat.extend(labels)
        owner.extend([i] * len(labels))
    if all(isinstance(label, str) for label in flat):
        classes, ids = np.unique(np.array(flat, dtype=object), return_inverse=True)
    else:
        ids = _checked_ids(flat, owner)
        classes = np.arange(int(ids.max()) + 1)
    indicator = sp.csr_array((np.ones(len(ids), np.int64), (owner, ids)), shape=(len(rows), len(classes)))
    indicator.sum_duplicates()
    return Labels(indicator.indptr.astype(np.int64), indicator.indices.astype(np.int32), classes)


def _checked_ids(flat: list[Any], owner: list[int]) -> Array:
    for label, row in zip(flat, owner, strict=True):
        if not isinstance(label, int | np.integer) or isinstance(label, bool | np.bool_):
            raise ValueError(
                f"Y[{row}] holds {label!r}; labels in lists are all names (strings) or all ids (integers)"
            )
        if label < 0:
            raise ValueError(f"Y[{row}] holds the label id {label}; ids begin at 0")
        if label > _INT32_MAX:
            raise ValueError(f"Y[{row}] holds the label id {label}; the largest possible is 2³¹ − 1")
    return np.array(flat, dtype=np.int64)


def as_label_vectors(matrix: Any, n_labels: int) -> CoreRows:
    """A user's own L × η label vectors, made unit-norm."""
    vectors = matrix if is_sparse(matrix) else np.asarray(matrix)
    if vectors.ndim != 2 or vectors.dtype.kind not in "biuf":
        raise ValueError(
            "representation must be one of its names, or a numeric matrix with one row for each label"
        )
    if vectors.shape[0] != n_labels:
        raise ValueError(
            f"representation has {vectors.shape[0]} rows, but Y has {n_labels} labels; "
            "one row for each label is needed"
        )
    entries = vectors.data if is_sparse(vectors) else vectors
    if not (np.abs(entries) <= _FLOAT32_MAX).all():
        raise ValueError("representation holds NaN, infinite values, or values beyond the range of float32")
    rows = as_rows(vectors)
    if isinstance(rows, tuple):
        indptr, indices, values, width = rows
        squares = np.add.reduceat(np.append(values.astype(np.float64) ** 2, 0.0), indptr[:-1])
        norms = np.sqrt(np.where(np.diff(indptr) > 0, squares, 1.0))
        return indptr, indices, (values / np.repeat(norms, np.diff(indptr))).astype(np.float32), width
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return (rows / np.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32)


def as_trees(tree: Any, classes: Array, has_rows: Array) -> list[tuple[Array, Array, Array]]:
    """A user's tree or trees as core arrays, without the labels that have no training row."""
    return [_as_tree(t, classes, has_rows) for t in tree_list(tree)]


def tree_list(tree: Any) -> list[Any]:
    """The user's trees, one or several: a list of trees is several, nested lists of labels are one."""
    several = isinstance(tree, list | tuple) and tree and all(isinstance(t, LabelTree | dict) for t in tree)
    return list(tree) if several else [tree]


def _as_tree(given: Any, classes: Array, has_rows: Array) -> tuple[Array, Array, Array]:
    if isinstance(given, str | os.PathLike):
        tree = LabelTree.from_json(given)
    elif isinstance(given, dict | list | tuple):
        tree = LabelTree.from_nested(given)
    elif isinstance(given, LabelTree):
        tree = given
    else:
        raise ValueError(
            f"tree is of type {type(given).__name__}; "
            "pass a LabelTree, nested lists of labels, or its JSON form"
        )
    if tree.names is not None and classes.dtype == object:
        tree, has_rows = _with_ids_of(classes, tree, has_rows)
    elif isinstance(tree.names, list) and tree is not given:  # its ids are the order of the names, no more
        raise ValueError("tree holds label names, but Y has none; use ids, or lists of names for Y")
    labels = tree.labels()
    if len(labels) and labels[-1] >= len(has_rows):
        raise ValueError(f"tree holds the label {labels[-1]}, but Y has only {len(has_rows)} labels")
    missing = np.setdiff1d(np.flatnonzero(has_rows), labels)
    if len(missing):
        raise ValueError(
            f"{len(missing)} label(s) of Y are not in tree, {classes[missing].tolist()[0]!r} for one; "
            "each label with rows needs its place"
        )
    return _breadth_first(tree, has_rows)


def _with_ids_of(classes: Array, tree: LabelTree, has_rows: Array) -> tuple[LabelTree, Array]:
    """The tree with the ids that its labels' names have in `classes`; other names follow, without rows."""
    names: Any = tree.names
    ids = {str(name): i for i, name in enumerate(classes)}
    arrays = tree.arrays
    children = arrays["children"].copy()
    labels = np.repeat(arrays["is_leaf"], np.diff(arrays["child_ptr"]))
    children[labels] = [ids.setdefault(str(names[label]), len(ids)) for label in children[labels].tolist()]
    has_rows = np.append(has_rows, np.zeros(len(ids) - len(classes), dtype=bool))
    return LabelTree(arrays["child_ptr"], children, arrays["is_leaf"]), has_rows


def _breadth_first(tree: LabelTree, has_rows: Array) -> tuple[Array, Array, Array]:
    """The arrays of the tree without the labels that have no rows and the nodes that hold no others."""
    below = np.zeros(tree.n_nodes, np.int64)
    below[[v for v in range(tree.n_nodes) if tree.is_leaf(v) and has_rows[tree.labels(v)].any()]] = 1
    for v in np.argsort(-tree.levels, kind="stable"):
        if v:
            below[tree.parents[v]] += below[v]
    children: list[Array] = []
    leaves: list[bool] = []
    queue, numbered = [0], 1
    for v in queue:
        leaves.append(tree.is_leaf(v))
        if leaves[-1]:
            labels = tree.labels(v)
            children.append(labels[has_rows[labels]])
        else:
            kept = [int(c) for c in tree.children(v) if below[c]]
            queue.extend(kept)
            children.append(np.arange(numbered, numbered + len(kept)))
            numbered += len(kept)
    ptr = np.concatenate([[0], np.cumsum([len(c) for c in children])]).astype(np.int64)
    return ptr, np.concatenate(children).astype(np.int32), np.array(leaves, dtype=np.uint8)
