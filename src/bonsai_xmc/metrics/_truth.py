"""Alignment of true labels, training labels and predictions of any form to the same columns."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bonsai_xmc._data.labels import column_names, indicator, is_matrix, label_rows
from bonsai_xmc._data.sparse import is_sparse, proven_csr

from ._files import PredictionFile, parse
from ._ranking import Ints, Truth, best_first, check_ids, check_labels, in_row

_WIDE = 10_000_000  # number of labels above which arrays over all labels are avoided


class Columns:
    """The columns of labels: places in `classes`, then further labels.

    Labels in lists are names or integers, as `Bonsai.fit` takes them; so are the columns of a data frame that
    have names. Other matrices and arrays of label ids refer to columns. Only `classes` connects the two.
    """

    def __init__(self, classes: Any = None) -> None:
        given = None if classes is None else list(np.asarray(classes, dtype=object))
        self.n_known = None if given is None else len(given)
        self._column = {} if given is None else {label: i for i, label in enumerate(given)}
        if given is not None and len(self._column) < len(given):
            raise ValueError("classes holds a label twice")
        self._source = "classes"  # the source of the number of known labels
        self._strings = None if not given else isinstance(given[0], str)

    @property
    def has_names(self) -> bool:
        return self._strings is True

    def __len__(self) -> int:
        return max(self.n_known or 0, len(self._column))

    def sort(self, rows: Iterable[Sequence[Any]]) -> None:
        """Give the labels of these rows columns in sorted order."""
        labels = {label for row in rows for label in row}
        if len({isinstance(label, str) for label in labels}) > 1:
            raise ValueError(
                "labels are names in one of Y_true, Y_train and predictions, but integers in another"
            )
        self._column = {label: i for i, label in enumerate(sorted(labels))}

    def of_lists(self, rows: list[list[Any]], name: str) -> list[list[int]]:
        column = self._column
        first = next((label for row in rows for label in row), None)  # `label_rows` has checked the others
        if first is not None and self._strings is None:
            self._strings = isinstance(first, str)
        elif first is not None and isinstance(first, str) != self._strings:
            kind = "names" if self._strings else "integers"
            raise ValueError(f"{name} holds the label {first!r}, but the other labels are {kind}")
        return [[column.setdefault(label, len(column)) for label in row] for row in rows]

    def of_matrix(self, n_columns: int, name: str) -> None:
        """Take the columns of a matrix without names as the known labels."""
        if self.n_known is None:
            self.n_known, self._source = n_columns, name
        elif n_columns != self.n_known:
            raise ValueError(f"{name} has {n_columns} labels, but {self._source} has {self.n_known}")


class Aligned(NamedTuple):
    """Labels and rankings over the same `n_labels` columns."""

    truth: Truth
    ids: Ints  # the best labels, best first
    train: Truth | None
    n_labels: int
    n_columns: int  # including unused columns that were left out
    n_known: int  # columns before those of labels that are not in `classes`
    used: Ints | None  # original columns, if some were left out

    @property
    def counts(self) -> Ints | None:
        """Return the number of training rows of each label."""
        return None if self.train is None else np.bincount(self.train.indices, minlength=self.n_labels)


def align(Y_true: Any, predictions: Any, Y_train: Any, k: Sequence[int], classes: Any) -> Aligned:
    """Return the k best predictions and the true labels over the same columns."""
    check_order(Y_true, predictions)
    columns = Columns(column_names(Y_true) if classes is None else classes)
    listed = {
        name: label_rows(Y, name)
        for name, Y in (("Y_true", Y_true), ("Y_train", Y_train))
        if Y is not None and not is_matrix(Y)
    }
    ranked_lists = _label_lists(predictions) if columns.n_known is not None or "Y_true" in listed else None
    if columns.n_known is None and listed:
        if "Y_true" not in listed or len(listed) < 1 + (Y_train is not None):
            raise ValueError(
                "Y_true and Y_train must be both matrices or both lists of labels; to mix them, pass the "
                "labels of the columns as classes, as in classes=model.classes_"
            )
        if ranked_lists is None:
            raise ValueError(
                "Y_true holds lists of labels, but predictions hold label ids, that is, columns; pass "
                "classes=model.classes_, or labels as model.top_k_labels returns them"
            )
        columns.sort(row for rows in (*listed.values(), ranked_lists) for row in rows)
    truth, train = (
        None if Y is None else _sets(Y, listed.get(name), columns, name)
        for name, Y in (("Y_true", Y_true), ("Y_train", Y_train))
    )
    if truth is None:
        raise ValueError("Y_true is None, but must hold the true labels")
    if truth.n_rows == 0:
        raise ValueError("Y_true must have at least one row")
    if ranked_lists is None:
        ids, name = _ranking(predictions, columns.n_known or 0, max(k))
    else:
        ids, name = _ranked_lists(columns.of_lists(ranked_lists, "predictions")), "predictions"
    if len(ids) != truth.n_rows:
        raise ValueError(f"{name} has {len(ids)} rows, but Y_true has {truth.n_rows}")
    _check_cutoffs(k, len(columns), ids.shape[1], name)
    n_known = len(columns) if columns.n_known is None else columns.n_known
    return _compact(truth, train, ids[:, : max(k)], len(columns))._replace(n_known=n_known)


def label_counts(Y: Any, classes: Any) -> tuple[Ints, int]:
    """Return the number of rows of each label, and of all rows."""
    columns = Columns(classes)
    rows = None if is_matrix(Y) else label_rows(Y, "Y_train")
    if rows is not None and classes is None:
        columns.sort(rows)
    train = _sets(Y, rows, columns, "Y_train")
    if columns.n_known is not None and len(columns) > columns.n_known:
        raise ValueError("Y_train holds labels that are not in classes")
    return np.bincount(train.indices, minlength=len(columns)), train.n_rows


def check_order(Y_true: Any, predictions: Any) -> None:
    """Raise ValueError if the arguments are recognisably swapped."""
    if isinstance(Y_true, str | os.PathLike | PredictionFile) or _is_top_k(Y_true) or _has_scores(Y_true):
        raise ValueError(
            "Y_true holds predictions; metrics take the true labels first, then the predictions, as "
            "scikit-learn's do"
        )
    swapped = _is_zero_one(predictions, "predictions") and is_matrix(Y_true)
    if swapped and not _is_zero_one(Y_true, "Y_true"):
        raise ValueError(
            "Y_true and predictions seem to be swapped: Y_true does not hold 0 and 1 only, but predictions "
            "do; metrics take the true labels first, as scikit-learn's do"
        )


def _is_top_k(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(hasattr(part, "shape") for part in value)


def _has_scores(value: Any) -> bool:
    """Return whether a value has the form of `top_k_labels`: lists of (label, score)."""
    if not isinstance(value, list):
        return False
    return isinstance(next((row[0] for row in value if isinstance(row, list) and row), None), tuple)


def _is_zero_one(value: Any, name: str) -> bool:
    sparse = is_sparse(value)
    if value.ndim != 2 if sparse else not (hasattr(value, "__array__") and is_matrix(value)):
        return False
    entries = proven_csr(value, name).data if sparse else np.asarray(value)
    return entries.dtype.kind in "biuf" and bool(((entries == 0) | (entries == 1)).all())


def _sets(Y: Any, rows: list[list[Any]] | None, columns: Columns, name: str) -> Truth:
    if rows is None:
        matrix, names = indicator(Y, name), column_names(Y)
        if names is not None and columns.has_names:
            place = np.array(columns.of_lists([names.tolist()], name)[0], np.int64)
            parts = (matrix.data, place[matrix.indices], matrix.indptr)
            matrix = sp.csr_array(parts, shape=(matrix.shape[0], len(columns)))
            matrix.sort_indices()
        else:
            columns.of_matrix(matrix.shape[1], name)
        return Truth(matrix.indptr, matrix.indices)
    ids = [sorted(set(row)) for row in columns.of_lists(rows, name)]
    row, label = _flat(ids)
    return Truth(np.searchsorted(row, np.arange(len(ids) + 1)), label)


def _flat(ids: list[list[int]]) -> tuple[Ints, Ints]:
    """Return the row and label of each entry."""
    sizes = np.fromiter(map(len, ids), np.int64, len(ids))
    labels = np.fromiter((label for row in ids for label in row), np.int64, int(sizes.sum()))
    return np.repeat(np.arange(len(ids)), sizes), labels


def _label_lists(predictions: Any) -> list[list[Any]] | None:
    """Return rows of labels, with or without scores; None if the predictions are of another form."""
    if hasattr(predictions, "__array__") and np.asarray(predictions).dtype.kind in "OUT":
        predictions = np.asarray(predictions).tolist()
    if not isinstance(predictions, list):
        return None
    # generators, as lists of 0 and 1 would count as rows of an indicator matrix
    rows = [
        (entry[0] if isinstance(entry, tuple) else entry for entry in row) if isinstance(row, list) else row
        for row in predictions
    ]
    return label_rows(rows, "predictions")


def _ranked_lists(rows: list[list[int]]) -> Ints:
    row, label = _flat(rows)
    check_labels(row, label, int(label.max(initial=0)) + 1)
    return best_first(row, label, np.zeros(len(row)), len(rows))[0]


def _ranking(predictions: Any, n_labels: int, k: int) -> tuple[Ints, str]:
    """Return the k best labels from ids, scores or a file, and their name in messages."""
    if isinstance(predictions, str | os.PathLike):
        predictions = parse(predictions)
    name, entries = "predictions", None
    if isinstance(predictions, PredictionFile):
        name, entries = predictions.name, (predictions.row, predictions.label, predictions.score)
    elif sp.issparse(predictions):
        entries = _stored_scores(predictions)
    elif isinstance(predictions, tuple):
        raise ValueError(
            "predictions is a tuple; from top_k(X, k) take the first of the two arrays, the label ids"
        )
    if entries is not None:
        n_rows, n_columns = predictions.shape
        if n_columns != n_labels:
            raise ValueError(f"{name} has {n_columns} labels, but Y_true has {n_labels}")
        return best_first(*entries, n_rows, k)[0], name
    try:
        ids = np.asarray(predictions)
    except ValueError:
        raise ValueError("predictions: rows differ in length; fill them up with -1") from None
    if ids.dtype.kind in "OUT":
        raise ValueError(
            "predictions hold label names, but Y_true is a matrix without names; pass the labels of its "
            "columns as classes, as in classes=model.classes_"
        )
    return check_ids(ids, n_labels, k), name


def _stored_scores(scores: Any) -> tuple[Ints, Ints, NDArray[Any]]:
    """Return the row, label and score of each entry, ordered by row, then label."""
    if scores.ndim != 2:
        raise ValueError(f"predictions must have two dimensions, got shape {scores.shape}")
    coo = scores.tocoo()  # keeps duplicate entries, which are refused
    if coo.data.dtype.kind not in "biuf" or np.isnan(coo.data).any():
        raise ValueError("predictions: scores must be real numbers without NaN")
    row, label = coo.row.astype(np.int64), coo.col.astype(np.int64)
    check_labels(row, label, scores.shape[1], in_row)
    order = np.lexsort((label, row))
    data = coo.data if coo.data.dtype.kind == "f" else coo.data.astype(np.float64)
    return row[order], label[order], data[order]


def _check_cutoffs(cutoffs: Sequence[int], n_labels: int, width: int, name: str) -> None:
    for k in cutoffs:
        if not 1 <= k <= n_labels:
            raise ValueError(f"k must lie between 1 and the number of labels, {n_labels}; got {k}")
    if max(cutoffs) > width:
        raise ValueError(
            f"k is {max(cutoffs)}, but {name} has at most {width} labels in a row; predict at least "
            f"{max(cutoffs)} labels, or evaluate at k ≤ {width}"
        )


def _compact(truth: Truth, train: Truth | None, ids: Ints, n_labels: int) -> Aligned:
    """Leave out unused columns if there are very many columns."""
    if n_labels <= _WIDE:
        return Aligned(truth, ids, train, n_labels, n_labels, n_labels, None)
    parts = [truth.indices, ids[ids >= 0]] + ([] if train is None else [train.indices])
    used = np.unique(np.concatenate(parts))
    new = lambda sets: replace(sets, indices=np.searchsorted(used, sets.indices))
    renumbered = np.where(ids >= 0, np.searchsorted(used, ids), -1)
    return Aligned(new(truth), renumbered, train and new(train), len(used), n_labels, n_labels, used)
