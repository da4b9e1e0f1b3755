"""Which rows train and which are held out, wherever something is chosen on held-out rows at `fit`.

Held-out rows are never training rows, and every split follows from the seed alone.
"""

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
# Larger data: the share of the rows that are held out, and how many at most; of the labels of one-vs-rest,
# and of the subtrees of the first of several trees.
HELD_OUT_SHARE = 0.2
MOST_HELD_OUT = 20_000
LABEL_SHARE = 1 / 16
FEWEST_LABELS = 128
MOST_LABELS = 8192
TREE_SHARE = 1 / 5
ROW_TREES = 10  # enough to measure scores
FEWEST_SUBTREES = 8
# The same where labels are so many that a fixed share of them, or as many rows, would take minutes: pairs of
# a row and a label in the subtrees that are drawn.
MANY_LABELS = 50_000
FEW_HELD_OUT = 12_000
MOST_PAIRS = 100_000
FEW_SUBTREES = 4
# Labels of a row whose scores are compared: no sensible threshold takes more.
DEPTH = 32


class Split(NamedTuple):
    """Rows, ascending."""

    training: Array
    held_out: Array


def split(n_rows: int, n_training: int, n_held_out: int, seed: int) -> Split:
    """Split rows at random: so many train, so many others are held out."""
    order = shuffled(n_rows, seed)
    return Split(np.sort(order[:n_training]), np.sort(order[n_rows - n_held_out :]))


def part_sizes(n_rows: int) -> tuple[int, int]:
    """Return how many rows train, an eighth or more, and are held out, a fifth or more: bounded by cost."""
    n_training = min(n_rows // 4, max(n_rows // 8, MIN_TRAINING_ROWS), MAX_TRAINING_ROWS)
    return n_training, min(n_rows * 3 // 4, max(n_rows // 5, MIN_HELD_OUT_ROWS), MAX_HELD_OUT_ROWS)


def most_held_out(n_labels: float) -> int:
    """Return how many rows are held out at most."""
    return MOST_HELD_OUT if n_labels <= MANY_LABELS else FEW_HELD_OUT


def subtrees(n_labels: float, n_pairs: float) -> tuple[float, int]:
    """Return the share of the subtrees that are drawn, and how many at least."""
    if n_labels <= MANY_LABELS:
        return TREE_SHARE, FEWEST_SUBTREES
    return min(TREE_SHARE, MOST_PAIRS / max(1, n_pairs)), FEW_SUBTREES


def most_rows(n_rows: int, seed: int, most: int = MOST_HELD_OUT) -> Split:
    """Hold out a bounded number of rows; all others train."""
    n_held_out = min(int(HELD_OUT_SHARE * n_rows), most)
    return Split(*split(n_rows, n_held_out, n_rows - n_held_out, seed)[::-1])


def halves(n_rows: int, seed: int) -> Split:
    """Split rows into halves, one of which is held out, both bounded by their cost."""
    half = n_rows // 2
    return split(n_rows, min(n_rows - half, MAX_TRAINING_ROWS), min(half, MAX_HELD_OUT_ROWS), seed)


def folds(n_rows: int, seed: int) -> list[Split]:
    """Split rows into folds: each row is held out once."""
    fold = np.empty(n_rows, np.int64)
    fold[shuffled(n_rows, seed)] = np.arange(n_rows) % FOLDS
    return [Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(FOLDS)]
