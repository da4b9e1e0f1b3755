"""Folders of arrays: rows and labels that are mapped into memory instead of read.

``rows.json`` has the numbers of rows, features and labels; ``.npy`` files hold the arrays of two CSR matrices
in the types that training uses. The system reads pages on demand and can drop them again: X does not count as
memory of the process.
"""

import json
import os
import shutil
import tempfile
import tokenize
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc._base.files import PathLike
from bonsai_xmc._data.labels import indicator

from ._types import float_rows, to_csr

_META = "rows.json"
_FORMAT = "bonsai-xmc rows 1"
_COUNTS = ("n_rows", "n_features", "n_labels")
_MOST_ENTRIES = np.iinfo(np.int32).max  # more entries would make scipy copy the indices to 64 bits


def save_mapped(folder: PathLike, X: Any, Y: Any, *, id_base: int | None = None) -> None:
    """Write rows with their labels as a folder of arrays, which :func:`load_xc` and commands map.

    Parameters
    ----------
    folder : path
        A new or empty folder, which is written completely or not at all.
    X : matrix of shape (n_rows, n_features)
        Features of the rows.
    Y : 0/1 matrix of shape (n_rows, n_labels)
        Labels of the rows.
    id_base : {0, 1}, optional
        Id of the first feature in the text that X was read from.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bonsai_xmc import datasets
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "rows")
    >>> datasets.save_mapped(folder, [[0, 0.5], [2, 0]], [[1], [0]])
    >>> X, Y = datasets.load_xc(folder)
    >>> X.toarray().tolist()
    [[0.0, 0.5], [2.0, 0.0]]
    """
    rows, labels = float_rows(X, "X"), indicator(Y)
    if rows.shape[0] != labels.shape[0]:
        raise ValueError(f"X has {rows.shape[0]:,} rows, but Y has {labels.shape[0]:,}")
    if max(rows.nnz, labels.nnz) > _MOST_ENTRIES:
        raise ValueError(f"X and Y can have {_MOST_ENTRIES:,} entries each at most, not {rows.nnz:,}")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} exists already; give a new folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    meta = dict(zip(_COUNTS, (*rows.shape, labels.shape[1]), strict=True))
    temporary = Path(tempfile.mkdtemp(prefix=".bonsai-", dir=target.parent))
    try:
        for prefix, matrix in (("", rows), ("label_", labels)):
            np.save(temporary / f"{prefix}indptr.npy", matrix.indptr.astype(np.int32, copy=False))
            np.save(temporary / f"{prefix}indices.npy", matrix.indices.astype(np.int32, copy=False))
        np.save(temporary / "values.npy", rows.data)
        text = json.dumps({"format": _FORMAT, **meta, "id_base": id_base})
        (temporary / _META).write_text(text, encoding="utf-8")
        temporary.chmod(0o755)
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def is_mapped(folder: PathLike) -> bool:
    """Return whether a folder was written by `save_mapped`."""
    return (Path(folder) / _META).is_file()


def read_mapped(folder: PathLike) -> tuple[csr_array, csr_array, int | None]:
    """Return X and Y over mapped arrays, and the base of the ids of X; ValueError if a file is damaged."""
    folder = Path(folder)
    n_rows, n_features, n_labels, id_base = _read_meta(folder / _META)
    X = _matrix(folder, "", n_rows, n_features, _array(folder, "values", np.float32))
    return X, _matrix(folder, "label_", n_rows, n_labels, None), id_base


def _read_meta(path: Path) -> tuple[int, int, int, int | None]:
    try:
        meta = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        raise ValueError(f"{path} does not describe a folder of rows that this version reads")
    counts = [meta.get(name) for name in _COUNTS]
    if not all(type(n) is int and 0 <= n <= _MOST_ENTRIES for n in counts):
        raise ValueError(f"{path}: {', '.join(_COUNTS)} must be integers from 0 to {_MOST_ENTRIES:,}")
    if meta.get("id_base") not in (None, 0, 1):
        raise ValueError(f"{path}: id_base is {meta['id_base']!r}, but must be null, 0 or 1")
    return (*counts, meta.get("id_base"))  # type: ignore[return-value]


def _matrix(folder: Path, prefix: str, n_rows: int, columns: int, values: np.ndarray | None) -> csr_array:
    indptr, indices = (_array(folder, f"{prefix}{name}", np.int32) for name in ("indptr", "indices"))
    ends = (0, len(indices)) if len(indptr) == n_rows + 1 else None
    if ends is None or (int(indptr[0]), int(indptr[-1])) != ends or (np.diff(indptr) < 0).any():
        file = folder / f"{prefix}indptr.npy"
        raise ValueError(f"{file} does not divide {len(indices):,} entries into {n_rows:,} rows")
    if len(indices) and not (indices.min() >= 0 and indices.max() < columns):
        file = folder / f"{prefix}indices.npy"
        raise ValueError(f"{file} has numbers that are not from 0 to {columns - 1:,}")
    if values is not None and len(values) != len(indices):
        raise ValueError(f"{folder / 'values.npy'} has {len(values):,} values for {len(indices):,} indices")
    return to_csr(indptr, indices, values, columns)


def _array(folder: Path, name: str, dtype: type) -> np.ndarray:
    path = folder / f"{name}.npy"
    try:
        # an empty file cannot be mapped
        found = np.load(path, mmap_mode="r" if path.stat().st_size > 128 else None, allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"{folder} is not complete: {path.name} is missing") from None
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:  # headers are Python literals
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype != dtype:
        raise ValueError(f"{path} is not an array of {np.dtype(dtype)}")
    return np.asarray(found)
