"""Products in fixed blocks, ridge regression, and checks of stored tensors, for systems that embed rows.

BLAS may round differently with another number of threads. So it runs on a single thread here, the blocks
follow from the data alone, and a pool of threads shares them out: equal bytes for any number of threads.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import Tensor
from bonsai_xmc._base.random import normals
from bonsai_xmc._data.labels import is_true
from bonsai_xmc._data.rows import DenseRows, Rows
from bonsai_xmc._data.sparse import is_canonical, is_sparse
from bonsai_xmc._model.ranker import Search, best_entries

Matrix = Any  # csr_array or a dense array
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_BLOCK_ENTRIES = 1 << 18  # of a matrix, in a block of its rows
_SCORES = 1 << 22  # of rows × labels, or rows × rows, that exist at a time


@cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  # the controller finds libraries that are loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _OneThread:
    """A limit of one thread for BLAS while any pool is open, whichever thread of the process opened it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_open = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._n_open == 0:
                self._limit = _blas().limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._n_open += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_open -= 1
            if self._n_open == 0:
                self._limit.__exit__(None, None, None)


_one_thread = _OneThread()


class Pool:
    """Threads that share out blocks, with BLAS on one thread in each."""

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> "Pool":
        _one_thread.__enter__()
        if self._threads > 1:
            self._executor = ThreadPoolExecutor(self._threads)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        _one_thread.__exit__()

    def map(self, call: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Return the results in the order of the items."""
        if self._executor is None:
            return [call(item) for item in items]
        return list(self._executor.map(call, items))


def ranked_in_parts(
    rows: Rows, k: int, size: int, search: Search, rank: Callable[[Any], tuple[Array, Array]]
) -> tuple[Array, Array]:
    """Return ids and log scores of all rows: `rank` gives those of a part of at most `size` rows."""
    ids, scores = np.empty((rows.n_rows, k), np.int32), np.empty((rows.n_rows, k), np.float32)
    parts: list[Any] = list(zip(range(0, rows.n_rows, size), rows.batches(size), strict=False))
    n = max(1, search.threads)

    def solve(part: tuple[int, Rows]) -> None:
        where = slice(part[0], part[0] + part[1].n_rows)
        ids[where], scores[where] = rank(part[1])

    with Pool(n) as pool:
        for first in range(0, len(parts), n):
            pool.map(solve, parts[first : first + n])
            if search.progress is not None:
                search.progress(min(rows.n_rows, (first + n) * size), rows.n_rows)
    return ids, scores


def cuts(indptr: Array, entries: int = _BLOCK_ENTRIES) -> list[slice]:
    """Return consecutive slices of the rows of a CSR matrix, of about this many entries each."""
    n_rows = len(indptr) - 1
    n_blocks = max(1, min(n_rows, -(-int(indptr[-1]) // entries)))
    ends = np.searchsorted(indptr, np.arange(1, n_blocks) * (int(indptr[-1]) / n_blocks))
    bounds = np.unique(np.concatenate([[0], ends, [n_rows]])).tolist()
    return [slice(a, b) for a, b in pairwise(bounds)]


def _row_blocks(matrix: Matrix) -> list[tuple[slice, Matrix]]:
    if not is_sparse(matrix):
        step = max(1, _BLOCK_ENTRIES // max(1, matrix.shape[1]))
        return [(slice(i, i + step), matrix[i : i + step]) for i in range(0, matrix.shape[0], step)]
    return [(block, matrix[block]) for block in cuts(matrix.indptr)]


class Blocked:
    """A matrix whose products with dense ones are carried out in blocks of rows, its transpose likewise."""

    def __init__(self, matrix: Matrix, pool: Pool) -> None:
        self.shape: tuple[int, int] = matrix.shape
        self._pool = pool
        self._blocks = _row_blocks(matrix)
        transposed = matrix.T.tocsr() if is_sparse(matrix) else matrix.T
        self._transposed = _row_blocks(transposed)

    def times(self, right: Array) -> Array:
        """Return the product with `right`."""
        return self._product(self._blocks, self.shape[0], right)

    def transposed_times(self, right: Array) -> Array:
        """Return the product of the transpose with `right`."""
        return self._product(self._transposed, self.shape[1], right)

    def squares(self) -> Array:
        """Return the sum of squares of each column."""
        parts = [
            block.multiply(block) if is_sparse(block) else block * block for _, block in self._transposed
        ]
        return np.concatenate([np.asarray(part.sum(axis=1)).ravel() for part in parts])

    def _product(self, blocks: list[tuple[slice, Matrix]], n_rows: int, right: Array) -> Array:
        out = np.empty((n_rows, right.shape[1]), right.dtype)

        def multiply(block: tuple[slice, Matrix]) -> None:
            out[block[0]] = block[1] @ right

        self._pool.map(multiply, blocks)
        return out


def dense_blocks(n_rows: int, width: int) -> list[slice]:
    """Return slices of rows, such that a block of them has a bounded number of entries."""
    step = max(1, _SCORES // max(1, width))
    return [slice(i, min(n_rows, i + step)) for i in range(0, n_rows, step)]


def gram(left: Array, pool: Pool) -> Array:
    """Return leftᵀ left in float64; blocks of rows are added in their order."""

    def product(rows: slice) -> Array:
        block = left[rows].astype(np.float64)
        return block.T @ block

    parts = pool.map(product, dense_blocks(len(left), 16 * left.shape[1]))
    return np.sum(parts, axis=0) if parts else np.zeros((left.shape[1],) * 2)


def column_dots(left: Array, right: Array) -> Array:
    """Return the inner products of equal columns, in float64."""
    return np.einsum("ij,ij->j", left, right, dtype=np.float64, casting="same_kind")


def ridge(
    x: Blocked, right: Array, scales: Array, penalty: float, start: Array, max_iter: int, tol: float
) -> Array:
    """Solve scales_j XᵀX w_j + penalty w_j = right_j for all columns j, by conjugate gradients.

    The columns are systems of their own, with step sizes of their own; the diagonal preconditions them. Steps
    end when the residual of each column is `tol` of its right side, or after `max_iter` steps.
    """
    scale = scales.astype(np.float32)
    inverse = 1 / (np.outer(x.squares(), scale) + np.float32(penalty))

    def apply(w: Array) -> Array:
        product = x.transposed_times(x.times(w))
        product *= scale
        product += np.float32(penalty) * w
        return product

    w = start.copy()
    residual = right - apply(w) if start.any() else right.copy()
    enough = tol**2 * column_dots(right, right)
    scaled = inverse * residual
    direction = scaled.copy()
    slope = column_dots(residual, scaled)
    for _ in range(max_iter):
        if (column_dots(residual, residual) <= enough).all():
            break
        product = apply(direction)
        curvature = column_dots(direction, product)
        step = np.divide(slope, curvature, out=np.zeros_like(slope), where=curvature > 0).astype(np.float32)
        w += step * direction
        residual -= step * product
        np.multiply(inverse, residual, out=scaled)
        before, slope = slope, column_dots(residual, scaled)
        direction *= np.divide(slope, before, out=np.zeros_like(slope), where=before > 0).astype(np.float32)
        direction += scaled
    return w


def soft_threshold(values: Array, size: float) -> Array:
    """Return values moved towards 0 by `size`; those that are nearer are 0."""
    return np.sign(values) * np.maximum(np.abs(values) - np.float32(size), 0)


def unit_rows(rows: Rows) -> Matrix:
    """Return the rows scaled to length 1, as CSR or dense float32."""
    unit = rows.unit()
    return unit.values if isinstance(unit, DenseRows) else unit.to_scipy()


def with_bias(rows: Matrix) -> Matrix:
    """Return the rows with a further feature, 1 in all of them."""
    ones = np.ones((rows.shape[0], 1), np.float32)
    if is_sparse(rows):
        return sp.hstack([rows, sp.csr_array(ones)], format="csr")
    return np.hstack([rows, ones])


def weighted(matrix: Matrix, weights: Array | None) -> Matrix:
    """Return the rows times the roots of their weights: squared losses are then those of weighted rows."""
    if weights is None:
        return matrix
    roots = np.sqrt(weights).astype(np.float32)
    if not is_sparse(matrix):
        return matrix * roots[:, None]
    matrix = matrix.copy()
    matrix.data = matrix.data * np.repeat(roots, np.diff(matrix.indptr))
    return matrix


def start_factor(n: int, k: int, seed: int) -> Array:
    """Return a matrix of random normal numbers."""
    return normals(n * k, seed).reshape(n, k).astype(np.float32)


def best_columns(scores: Array, k: int) -> tuple[Array, Array]:
    """Return (ids, scores) of the k largest finite entries of each row, equal ones by column."""
    n_rows, width = scores.shape
    ids = np.full((n_rows, k), -1, np.int32)
    best = np.full((n_rows, k), -np.inf, np.float32)
    n = min(k, width)
    if n == 0:
        return ids, best
    if n < width:
        # All entries that reach the n-th largest are candidates, so that ties do not depend on the partition.
        least = np.partition(scores, width - n, axis=1)[:, width - n]
        rows, columns = np.nonzero(scores >= least[:, None])
    else:
        rows, columns = np.nonzero(scores > -np.inf)
    return best_entries(rows, columns, scores[rows, columns], n_rows, k)


def mean_precision(ranker: Any, held_out: Any, threads: int = 1) -> float:
    """Return the mean of P@1, P@3 and P@5 of a ranker on a problem that it was not trained on."""
    ids, _ = ranker.top_k(held_out.rows, min(5, ranker.n_labels), threads=threads)
    right = is_true(held_out.labels, ids)
    return float(np.mean([right[:, :k].mean() for k in (1, 3, 5)]))


# --- tensors of files ---


def described_csr(name: str, rows: str, columns: str, values: bool = True) -> dict[str, Tensor]:
    """Return descriptions of the tensors of `csr_tensors`, of a matrix with these dimensions."""
    entries = f"{name} entries"
    described = {
        f"{name}_indptr": Tensor("i8", f"{rows} + 1", ends_at=entries),
        f"{name}_indices": Tensor("i4", entries, least=0, most=columns),
    }
    return described | ({f"{name}_values": Tensor("f4", entries, finite=True)} if values else {})


def stored_csr(arrays: Mapping[str, Array], name: str, shape: tuple[int, int]) -> sp.csr_array:
    """Return the matrix that `csr_tensors` stored, with ones for values that it did not store."""
    indptr, indices = arrays[f"{name}_indptr"], arrays[f"{name}_indices"]
    data = arrays.get(f"{name}_values", np.ones(len(indices), np.float32))
    if not is_canonical(indptr, indices, data, shape):
        raise ValueError(f"the tensor {name}_indices does not ascend within a row")
    # Of two types of indices scipy would choose the wider one and copy.
    indptr = indptr.astype(np.int32 if len(indices) < 2**31 else np.int64)
    return sp.csr_array((data, indices, indptr), shape=shape)


def csr_tensors(name: str, matrix: sp.csr_array, values: bool = True) -> dict[str, Array]:
    """Return the arrays of a sparse matrix, to be stored."""
    arrays: dict[str, Any] = {
        f"{name}_indptr": matrix.indptr.astype(np.int64),
        f"{name}_indices": matrix.indices.astype(np.int32),
    }
    return arrays | ({f"{name}_values": matrix.data.astype(np.float32)} if values else {})
