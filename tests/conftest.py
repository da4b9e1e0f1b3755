"""Data that several test modules share, and the way to the real data sets."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from bonsai_xmc import datasets


@pytest.fixture
def blocks():
    """blocks(n_labels, n_rows): each label has three features of its own, so that P@1 must be exactly 1.

    Rows have one label each, in turn; values are 1, 2 and 3, which every numeric type holds exactly.
    """

    def make(n_labels=12, n_rows=60, seed=0):
        label = np.arange(n_rows) % n_labels
        values = np.random.default_rng(seed).integers(1, 4, size=(n_rows, 3))
        columns = 3 * label[:, None] + np.arange(3)
        indptr = np.arange(n_rows + 1)
        X = csr_array(
            (values.ravel().astype(np.float64), columns.ravel(), 3 * indptr), (n_rows, 3 * n_labels)
        )
        return X, csr_array((np.ones(n_rows, np.int64), label, indptr), (n_rows, n_labels))

    return make


@pytest.fixture(scope="session")
def generated():
    """A small generated data set with rare labels, several labels a row, and labels without rows."""
    return datasets.make_xmc(
        n_rows=400, n_test=150, n_features=300, n_labels=60, features_per_row=20, labels_per_row=2.5
    )


@pytest.fixture
def real_data():
    """real_data(name): a data set of `datasets.load`; the test is skipped where it is not to be found."""

    def load(name):
        try:
            datasets.find(name)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        return datasets.load(name)

    return load
