"""Readers of scipy.sparse.save_npz and numpy.save that check the sizes in headers."""

import contextlib
import io
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

# The largest expansion of deflated data; a matrix with row pointers has at most this many rows per byte.
_EXPANSION = 1032


def read_npz(data: bytes) -> Any:
    """Read the sparse matrix in an ``.npz`` file; any flaw is a ValueError."""
    with _made_by("scipy.sparse.save_npz"):
        _check_sizes(data)
        matrix: Any = sparse.load_npz(io.BytesIO(data))
        without_pointers = matrix.format in ("coo", "dia")
        if matrix.ndim != 2 or (without_pointers and matrix.shape[0] > _EXPANSION * len(data)):
            raise ValueError(f"a shape of {matrix.shape} in a file of {len(data)} bytes")
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)  # scipy itself does not check the indices
    return matrix


def read_npy(data: bytes) -> Any:
    """Read the array in a ``.npy`` file; any flaw is a ValueError."""
    with _made_by("numpy.save"):
        _check_header(io.BytesIO(data), len(data))
        array = np.load(io.BytesIO(data), allow_pickle=False)
    return array


@contextlib.contextmanager
def _made_by(function: str) -> Iterator[None]:
    """Turn the errors of zipfile, numpy and scipy about damaged files into a ValueError."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"not a file of {function} ({text})") from error


def _check_sizes(data: bytes) -> None:
    """Check the sizes in headers, as numpy allocates arrays before it reads their content."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if member.file_size > _EXPANSION * len(data):
                raise ValueError(f"{member.filename} announces {member.file_size} bytes")
            with archive.open(member) as file:
                _check_header(file, member.file_size)


def _check_header(file: Any, size: int) -> None:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    announced = dtype.itemsize
    for length in shape:
        announced *= length
    if dtype.itemsize == 0 or not 0 <= announced <= size:
        raise ValueError(f"an array of shape {shape} and type {dtype} in {size} bytes")
