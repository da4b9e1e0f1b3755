"""Predictions and true labels that the tests of metrics share."""

import math

import numpy as np
from hypothesis import strategies as st

# Four rows, five labels; row 3 has no label. The hits, by rank:
#   row 0: true {0, 1, 2}, predicted 1 4 0   hit  miss hit
#   row 1: true {3},       predicted 2 3 4   miss hit  miss
#   row 2: true {0, 4},    predicted 0 1 -   hit  miss –
#   row 3: true {},        predicted 4 - -   miss –    –
Y_TRUE = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
IDS = np.array([[1, 4, 0], [2, 3, 4], [0, 1, -1], [4, -1, -1]], dtype=np.int32)
Q = [1.0, 2.0, 3.0, 4.0, 5.0]
LOG3 = math.log2(3)  # the discount of rank 2 is 1 / LOG3, that of rank 3 is 1/2


@st.composite
def problems(draw):
    """Rankings (lists of distinct labels), true label sets, training indicator matrix."""
    n_labels = draw(st.integers(1, 9))
    n_rows = draw(st.integers(1, 7))
    labels = range(n_labels)
    ranking = [draw(st.permutations(labels))[: draw(st.integers(0, n_labels))] for _ in range(n_rows)]
    truth = [draw(st.sets(st.sampled_from(labels))) for _ in range(n_rows)]
    counts = [draw(st.integers(0, 12)) for _ in labels]
    Y_train = np.array([[row < count for count in counts] for row in range(draw(st.integers(12, 40)))])
    return ranking, truth, Y_train


def ids_of(ranking, width):
    """Label ids, filled up with −1; an array even where all rows are empty."""
    return np.array([row + [-1] * (width - len(row)) for row in ranking], dtype=np.int32)


def indicator_of(truth, n_labels):
    return np.array([[label in true for label in range(n_labels)] for true in truth], dtype=np.int8)
