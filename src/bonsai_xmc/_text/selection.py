"""n-grams that tell something about the labels: selection by co-occurrence.

Bigrams and character n-grams are many, and most of them tell nothing that words do not tell. Training takes
time for every entry of X, and more for each where the weights of all features do not fit into the caches. The
score of an n-gram is the largest of c log(c n / (f m)) over the labels: c rows have both, f the n-gram and m
the label, out of n. That is the part of the likelihood ratio test which speaks for the label; pairs that only
one row has do not count. n-grams of many rows come last: they have most of the entries, and say little that
words do not say (docs/text.md).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bonsai_xmc._data.labels import Labels
from bonsai_xmc._text.blocks import Block
from bonsai_xmc._text.fitted import FittedText

Array = npt.NDArray[Any]

# max_ngrams="auto"
_FEWEST = 20_000
_FOR_EACH_ROW = 2
_MOST_ROWS = 0.02  # share of the rows above which an n-gram is taken last
_PAIRS = 20_000_000  # n-grams × labels of their rows at a time: bounds the memory
_ROWS = 4096  # that are scaled at a time


def most_ngrams(given: Any, n_rows: int) -> int | None:
    """The maximum number of n-grams in a block; None: no maximum."""
    if given is None:
        return None
    if isinstance(given, str) and given == "auto":
        return max(_FEWEST, _FOR_EACH_ROW * n_rows)
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise ValueError(f"max_ngrams is {given!r}, but must be an integer of at least 1, None or 'auto'")
    return int(given)


def select_ngrams(
    text: FittedText, X: sp.csr_array, labels: Labels, most: int | None
) -> tuple[FittedText, sp.csr_array]:
    """At most so many features in each block of n-grams: those with the best scores."""
    if most is None or labels.n_rows != X.shape[0]:  # the latter is an error, which `fit` will tell
        return text, X
    keep = np.ones(X.shape[1], bool)
    for block, columns in zip(text.plan.blocks, text.block_slices(), strict=True):
        if is_selected(block) and columns.stop - columns.start > most:
            keep[columns] = False
            keep[columns.start + best_columns(X[:, columns], labels, most)] = True
    if keep.all():
        return text, X
    selected = _with_features(text, keep)
    return selected, _scaled(_columns_of(X, keep), selected)


def is_selected(block: Block) -> bool:
    """Words are all kept, and blocks of several orders of words, of which words may be one, too."""
    return block.analyzer != "word" or (block.min_n == block.max_n and block.min_n > 1)


def best_columns(X: sp.csr_array, labels: Labels, most: int) -> Array:
    """The columns to be kept, ascending: those with the best scores that are not in many rows."""
    scores = label_scores(X, labels)
    frequent = np.bincount(X.indices, minlength=X.shape[1]) > _MOST_ROWS * X.shape[0]
    return np.sort(np.lexsort((-scores, frequent))[:most])


def label_scores(X: sp.csr_array, labels: Labels) -> Array:
    """The score of each column, as above; 0 where there is no label that it speaks for."""
    n_rows, n_columns = X.shape
    Y = sp.csr_array(
        (np.ones(len(labels.indices), np.float32), labels.indices, labels.indptr),
        shape=(n_rows, labels.n_labels),
    )
    label_counts = labels.counts
    rows = sp.csc_array((np.ones(X.nnz, np.float32), X.indices, X.indptr), shape=X.shape[::-1]).tocsr()
    counts = np.diff(rows.indptr)
    scores = np.zeros(n_columns)
    work = np.cumsum(counts) * max(1.0, len(labels.indices) / n_rows)
    begin = 0
    while begin < n_columns:
        done = work[begin - 1] if begin else 0.0
        end = max(begin + 1, int(np.searchsorted(work, done + _PAIRS)))
        pairs = sp.csr_array(rows[begin:end] @ Y)
        owner = np.repeat(np.arange(begin, end), np.diff(pairs.indptr))
        both = pairs.data.astype(np.float64)
        expected = counts[owner] * (label_counts[pairs.indices] / n_rows)
        gain = np.where(both > 1, both * np.log(both / expected), 0.0)
        np.maximum.at(scores, owner, gain)
        begin = end
    return scores


def _columns_of(X: sp.csr_array, keep: Array) -> sp.csr_array:
    number = np.cumsum(keep) - 1
    there = keep[X.indices]
    indptr = np.concatenate([[0], np.cumsum(there)])[X.indptr]
    indices = number[X.indices[there]].astype(np.int32)
    return sp.csr_array(
        (X.data[there], indices, indptr.astype(X.indptr.dtype)), shape=(X.shape[0], keep.sum())
    )


def _scaled(X: sp.csr_array, text: FittedText) -> sp.csr_array:
    """Each block of a row of its weight, each row of unit length, as `FittedText.transform` makes them."""
    ends = np.array([columns.stop for columns in text.block_slices()])
    weights = np.array([block.weight for block in text.plan.blocks])
    data = X.data
    for begin in range(0, X.shape[0], _ROWS):
        end = min(begin + _ROWS, X.shape[0])
        part = slice(X.indptr[begin], X.indptr[end])
        row = np.repeat(np.arange(end - begin), np.diff(X.indptr[begin : end + 1]))
        group = row * len(ends) + np.searchsorted(ends, X.indices[part], side="right")
        values = data[part].astype(np.float64)
        squares = np.bincount(group, values * values, minlength=(end - begin) * len(ends))
        present = (squares > 0).reshape(end - begin, len(ends))
        lengths = np.sqrt((present * weights**2).sum(axis=1))
        factor = (present * weights / np.maximum(lengths, 1e-300)[:, None]).ravel()
        data[part] = values * (factor / np.sqrt(np.maximum(squares, 1e-300)))[group]
    return X


def _with_features(text: FittedText, keep: Array) -> FittedText:
    """The same vocabulary without some features."""
    description, arrays = text.to_arrays()
    arrays = {name: np.array(array) for name, array in arrays.items()}
    texts = text.plan.texts
    for b, (block, columns) in enumerate(zip(text.plan.blocks, text.block_slices(), strict=True)):
        kept = keep[columns]
        if kept.all():
            continue
        df = arrays[f"blocks.{b}.df.0"]
        if block.analyzer == "word":
            df[np.flatnonzero(df)[~kept]] = 0
            _drop_ngrams(arrays, text, texts.index(block.text), block.min_n)
        else:
            _drop_grams(arrays, b, kept)
    selected = FittedText.from_arrays(description, arrays)
    return replace(selected, given=text.given)


def _drop_grams(arrays: dict[str, Array], block: int, kept: Array) -> None:
    name = f"blocks.{block}.grams"
    ptr = arrays[f"{name}_ptr"]
    sizes = np.diff(ptr)
    arrays[name] = arrays[name][np.repeat(kept, sizes)]
    arrays[f"{name}_ptr"] = np.concatenate([[0], np.cumsum(sizes[kept])]).astype(ptr.dtype)
    arrays[f"blocks.{block}.df.0"] = arrays[f"blocks.{block}.df.0"][kept]


def _drop_ngrams(arrays: dict[str, Array], text: FittedText, number: int, n: int) -> None:
    """Leave the n-grams of a text out that no block uses any more, unless longer ones begin with them."""
    if f"fields.{number}.ngrams.{n + 1}.ptr" in arrays:
        return
    users = [
        f"blocks.{b}.df.{n - block.min_n}"
        for b, block in enumerate(text.plan.blocks)
        if block.analyzer == "word"
        and text.plan.texts.index(block.text) == number
        and block.min_n <= n <= block.max_n
    ]
    used = np.any([arrays[user] > 0 for user in users], axis=0)
    ptr = arrays[f"fields.{number}.ngrams.{n}.ptr"]
    arrays[f"fields.{number}.ngrams.{n}.ptr"] = np.concatenate([[0], np.cumsum(used)])[ptr].astype(ptr.dtype)
    arrays[f"fields.{number}.ngrams.{n}.last"] = arrays[f"fields.{number}.ngrams.{n}.last"][used]
    for user in users:
        arrays[user] = arrays[user][used]
