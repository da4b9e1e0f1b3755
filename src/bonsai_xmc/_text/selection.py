"""Selection of n-grams by their co-occurrence with labels.

There are many bigrams and character n-grams, and most of them add nothing to the words. Training takes time
for every entry of X, and more for each where the weights of all features do not fit into the caches. The
score of an n-gram is the largest of c log(c n / (f m)) over the labels, a term of the likelihood ratio test:
of the n rows, f have the n-gram, m the label, and c both. Pairs that only one row has do not count. n-grams
of many rows are taken last: they have most of the entries, and add little to the words (docs/text.md).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import TEXT_PARAMETERS, check
from bonsai_xmc._data.labels import Labels
from bonsai_xmc._data.rows import SparseRows
from bonsai_xmc._text.blocks import Block
from bonsai_xmc._text.fitted import FittedText, rows_of

# max_ngrams="auto"
_FEWEST = 20_000
_FOR_EACH_ROW = 2
_MOST_ROWS = 0.02  # share of the rows above which an n-gram is taken last
_PAIRS = 20_000_000  # n-grams × labels of their rows at a time: bounds the memory


def most_ngrams(given: Any, n_rows: int) -> int | None:
    """Return the maximum number of n-grams in a block; None: no maximum."""
    check("max_ngrams", given, TEXT_PARAMETERS)
    if isinstance(given, str):
        return max(_FEWEST, _FOR_EACH_ROW * n_rows)
    return None if given is None else int(given)


def select_ngrams(
    text: FittedText, rows: SparseRows, labels: Labels, most: int | None, threads: int = 1
) -> tuple[FittedText, SparseRows]:
    """Keep at most `most` features in each block of n-grams: those with the best scores."""
    if most is None or labels.n_rows != rows.n_rows:  # the latter is an error that `fit` raises
        return text, rows
    X, keep = rows.to_scipy(), np.ones(rows.n_features, np.uint8)
    for block, columns in zip(text.plan.blocks, text.block_slices(), strict=True):
        if is_selected(block) and columns.stop - columns.start > most:
            keep[columns] = 0
            keep[columns.start + best_columns(X[:, columns], labels, most)] = 1
    if keep.all():
        return text, rows
    core, parts = text.core.select(keep, rows, threads)
    return replace(text, core=core), rows_of(parts, core)


def is_selected(block: Block) -> bool:
    """Return whether n-grams of a block are selected: all words are kept, also where there are n-grams."""
    return block.analyzer != "word" or (block.min_n == block.max_n and block.min_n > 1)


def best_columns(X: sp.csr_array, labels: Labels, most: int) -> Array:
    """Return the columns to be kept, ascending: those with the best scores that are not in many rows."""
    scores = label_scores(X, labels)
    frequent = np.bincount(X.indices, minlength=X.shape[1]) > _MOST_ROWS * X.shape[0]
    return np.sort(np.lexsort((-scores, frequent))[:most])


def label_scores(X: sp.csr_array, labels: Labels) -> Array:
    """Score each column by the measure of this module; 0 where no pair counts."""
    n_rows, n_columns = X.shape
    Y, label_counts = labels.matrix(), labels.counts
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
