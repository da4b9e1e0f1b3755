"""A small file of the Extreme Classification Repository, and what it holds."""

import numpy as np
from scipy.sparse import csr_array

XC = "3 4 5\n0,4 1:0.5 3:-2\n 0:1e-3\n2\n"
X = np.array([[0, 0.5, 0, -2], [0.001, 0, 0, 0], [0, 0, 0, 0]], np.float32)
Y = np.array([[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], np.float32)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def assert_same(actual, expected):
    """Equal shape, structure and values, bit for bit."""
    expected = csr_array(expected)
    assert actual.shape == expected.shape
    assert actual.dtype == np.float32
    assert np.array_equal(actual.indptr, expected.indptr)
    assert np.array_equal(actual.indices, expected.indices)
    assert np.array_equal(actual.data, expected.data)
