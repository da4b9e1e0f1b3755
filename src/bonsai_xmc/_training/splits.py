"""Splits into training rows and held-out rows, for every choice that `fit` makes on held-out rows.

Held-out rows are never training rows, and every split follows from the seed alone.
"""

import math
from typing import NamedTuple

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.random import shuffled

# The default model: bounds of the rows that train its candidates and that compare them, and the best labels
# of each candidate that are compared.
MIN_TRAINING_ROWS, MAX_TRAINING_ROWS = 5000, 100_000
MIN_HELD_OUT_ROWS, MAX_HELD_OUT_ROWS = 10_000, 20_000
CANDIDATES = 20
# The threshold: labels × entries of X up to which training takes a moment, and is repeated fold by fold.
SMALL = 1e8
FOLDS = 4
FEWEST_ROWS = 8
# Larger data: the share of rows to hold out, and the most rows; the share of one-vs-rest labels to train,
# the fewest and the most; the share of subtrees of the first tree.
HELD_OUT_SHARE = 0.2
MOST_HELD_OUT = 20_000
LABEL_SHARE = 1 / 16
FEWEST_LABELS = 128
MOST_LABELS = 8192
TREE_SHARE = 1 / 5
ROW_TREES = 10  # enough to measure scores
FEWEST_SUBTREES = 8
# The same for more labels than this, where a fixed share of them, or as many rows, would take minutes: the
# share of rows to hold out, and the fewest; the largest share of (row, label) pairs in the drawn subtrees,
# and the fewest pairs to allow.
MANY_LABELS = 50_000
FEW_HELD_OUT_SHARE, FEW_HELD_OUT = 1 / 30, 30_000
PAIR_SHARE, FEW_PAIRS = 1 / 100, 120_000
FEW_SUBTREES = 8
# Labels of a row whose scores are compared: sensible thresholds select fewer.
DEPTH = 32


class Split(NamedTuple):
    """Training rows and held-out rows, ascending."""

    training: Array
    held_out: Array


def split(n_rows: int, n_training: int, n_held_out: int, seed: int) -> Split:
    """Split rows at random into training rows and held-out rows, of these numbers."""
    order = shuffled(n_rows, seed)
    return Split(np.sort(order[:n_training]), np.sort(order[n_rows - n_held_out :]))


def part_sizes(n_rows: int) -> tuple[int, int]:
    """Return the numbers of training rows and of held-out rows, both bounded by their cost."""
    n_training = min(n_rows // 4, max(n_rows // 8, MIN_TRAINING_ROWS), MAX_TRAINING_ROWS)
    return n_training, min(n_rows * 3 // 4, max(n_rows // 5, MIN_HELD_OUT_ROWS), MAX_HELD_OUT_ROWS)


def most_held_out(n_labels: float, n_rows: float) -> float:
    """Return the largest number of held-out rows."""
    return MOST_HELD_OUT if n_labels <= MANY_LABELS else max(FEW_HELD_OUT, FEW_HELD_OUT_SHARE * n_rows)


class Subtrees(NamedTuple):
    """How much of a tree is drawn."""

    share: float  # of its subtrees
    fewest: int
    most_pairs: float = math.inf  # of a row and a label in them


def subtrees(n_labels: float, n_pairs: float) -> Subtrees:
    """Return how much of a tree is drawn for these numbers of labels and of (row, label) pairs."""
    if n_labels <= MANY_LABELS:
        return Subtrees(TREE_SHARE, FEWEST_SUBTREES)
    most = max(FEW_PAIRS, PAIR_SHARE * n_pairs)
    return Subtrees(min(TREE_SHARE, most / max(1, n_pairs)), FEW_SUBTREES, most)


def most_rows(n_rows: int, seed: int, most: float = MOST_HELD_OUT) -> Split:
    """Hold out a bounded number of rows; all others train."""
    n_held_out = int(min(HELD_OUT_SHARE * n_rows, most))
    return Split(*split(n_rows, n_held_out, n_rows - n_held_out, seed)[::-1])


def sizes_for_weights(n_rows: int) -> tuple[int, int]:
    """Return the numbers of rows that train the members of a fusion, and that their weights are chosen on.

    The weights change little with the number of rows: a quarter trains, as it costs a quarter.
    """
    n_training = min(n_rows - n_rows // 2, max(n_rows // 4, MIN_TRAINING_ROWS), MAX_TRAINING_ROWS)
    return n_training, min(n_rows // 2, part_sizes(n_rows)[1])


def for_weights(n_rows: int, seed: int) -> Split:
    """Split rows into those that train the members of a fusion, and those that weights are chosen on."""
    return split(n_rows, *sizes_for_weights(n_rows), seed)


def folds(n_rows: int, seed: int) -> list[Split]:
    """Split rows into folds: each row is held out once."""
    fold = np.empty(n_rows, np.int64)
    fold[shuffled(n_rows, seed)] = np.arange(n_rows) % FOLDS
    return [Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(FOLDS)]
