"""SLEEC: nearest neighbours in embeddings that keep which rows share labels (Bhatia et al., NeurIPS 2015)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import Each, OneOf, Tensor
from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter
from bonsai_xmc._base.random import shuffled
from bonsai_xmc._base.rules import integer, number_between, one_of
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._data.sparse import is_sparse
from bonsai_xmc._estimators.matrix import System
from bonsai_xmc._model.ranker import Evidence, Search, Searching, best_entries
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.systems._embedding import (
    Blocked,
    Matrix,
    Pool,
    csr_tensors,
    cuts,
    dense_blocks,
    described_csr,
    mean_precision,
    ranked_in_parts,
    ridge,
    soft_threshold,
    start_factor,
    stored_csr,
    unit_rows,
    weighted,
    with_bias,
)

Progress = Callable[[int, int], None] | None

_KMEANS_ROUNDS = 20
_SVD_ROUNDS = 4  # of subspace iteration
_SVD_SPARE = 10  # dimensions beyond those that are kept
_STEP = 1 / 0.3  # over the Frobenius norm of the inner products
_SVP_ROUNDS = 200
_SVP_TOL = 1e-3
_ADMM_ROUNDS = 2
_RHO, _SPARSE = 0.001, 0.01  # ρ and λ₁ of ADMM
_CG_STEPS = 50
_CG_TOL = 1e-3
_GATHERED = 1 << 20  # numbers of embeddings that are gathered at a time
_CLUSTER_ROWS = 6000  # on average, with n_clusters="auto"
_LEARNERS = 5
_NEIGHBORS = (5, 10, 25, 50, 100)  # to choose from
_METRICS = ("cosine", "euclidean")
_BATCH = 512  # rows of a prediction


def cluster_rows(x: Matrix, n_clusters: int, seed: int, pool: Pool) -> tuple[Array, Array]:
    """Return unit centres (features × clusters) of k-means by dot product, and the cluster of each row."""
    n_rows = x.shape[0]
    rows = Blocked(x, pool)
    first = np.sort(shuffled(n_rows, seed)[:n_clusters])
    centres = np.ascontiguousarray(np.asarray(x[first].toarray() if is_sparse(x) else x[first]).T)
    cluster = np.full(n_rows, -1)
    for _ in range(_KMEANS_ROUNDS):
        before, cluster = cluster, nearest_centre(rows, centres)
        if (before == cluster).all():
            break
        member = np.zeros((n_rows, n_clusters), np.float32)
        member[np.arange(n_rows), cluster] = 1
        sums = rows.transposed_times(member)
        norms = np.sqrt(np.einsum("ij,ij->j", sums, sums, dtype=np.float64))
        # A cluster without rows, or whose rows add up to 0, keeps its centre.
        centres = np.where(norms > 0, sums / np.where(norms > 0, norms, 1), centres).astype(np.float32)
    return centres, nearest_centre(rows, centres)


def nearest_centre(rows: Blocked, centres: Array) -> Array:
    """Return the centre of the largest dot product with each row; of equal ones the first."""
    return rows.times(centres).argmax(axis=1)


class Pairs(NamedTuple):
    """The n nearest rows of each row by the dot product of unit label vectors."""

    ids: Array  # int32 (rows, n); 0 where there are fewer
    values: Array  # float32 (rows, n): dot products; 0 where there are fewer


def label_neighbors(y: sp.csr_array, n: int, seed: int, pool: Pool) -> Pairs:
    """Return the nearest rows of each row, itself among them, by labels; `seed` chooses among equal ones."""
    n_rows = y.shape[0]
    norms = np.sqrt(np.maximum(1, np.diff(y.indptr))).astype(np.float32)
    unit = sp.csr_array((np.repeat(1 / norms, np.diff(y.indptr)), y.indices, y.indptr), shape=y.shape)
    transposed = unit.T.tocsr()
    n = min(n, n_rows)
    order = (shuffled(n_rows, seed) / np.float32(n_rows) * 1e-4).astype(np.float32)
    ids, values = np.zeros((n_rows, n), np.int32), np.zeros((n_rows, n), np.float32)

    def find(rows: slice) -> None:
        products = (unit[rows] @ transposed).toarray()
        near = products + order * (products > 0)
        best = np.argpartition(near, n_rows - n, axis=1)[:, n_rows - n :]
        found = np.take_along_axis(products, best, axis=1)
        ids[rows], values[rows] = np.where(found > 0, best, 0), found

    pool.map(find, dense_blocks(n_rows, n_rows))
    return Pairs(ids, values)


def truncated_svd(matrix: Blocked, k: int, seed: int) -> tuple[Array, Array]:
    """Return U √S and V √S of the k largest singular values, by subspace iteration."""
    width = min(k + _SVD_SPARE, *matrix.shape)
    right = start_factor(matrix.shape[1], width, seed)
    for _ in range(_SVD_ROUNDS):
        left = np.linalg.qr(matrix.times(right))[0]
        right = np.linalg.qr(matrix.transposed_times(left))[0]
    u, s, vt = np.linalg.svd(matrix.times(right).astype(np.float64), full_matrices=False)
    roots = np.sqrt(s[:k])
    factors = (u[:, :k] * roots).astype(np.float32), (right @ vt[:k].T * roots).astype(np.float32)
    missing = max(0, k - width)
    return tuple(np.pad(factor, ((0, 0), (0, missing))) for factor in factors)  # type: ignore[return-value]


class _Fit:
    """Σ over pairs of (uᵢ·vⱼ − value)², and its gradients."""

    def __init__(self, pairs: Pairs, pool: Pool) -> None:
        self._pairs, self._pool = pairs, pool
        self._known = pairs.values > 0
        n_rows, n = pairs.ids.shape
        rows, places = np.nonzero(self._known)
        columns = pairs.ids[rows, places]
        order = np.lexsort((rows, columns))
        self._entries = (rows * n + places)[order]  # of the transpose, row by row
        self._rows = rows[order].astype(np.int32)
        self._indptr = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=n_rows))])
        self._cuts = cuts(self._indptr)

    def matrix(self) -> sp.csr_array:
        """Return the values as a matrix."""
        values = self._pairs.values.ravel()[self._entries]
        n_rows = len(self._pairs.ids)
        return sp.csr_array(
            (values, self._rows, self._indptr.astype(np.int32)), shape=(n_rows, n_rows)
        ).T.tocsr()

    def residuals(self, u: Array, v: Array) -> tuple[Array, Array]:
        """Return uᵢ·vⱼ − value of all pairs, and Σⱼ of these times vⱼ: half of the gradient of U."""
        ids, values = self._pairs
        rest, gradient = np.empty_like(values), np.empty_like(u)

        def block(rows: slice) -> None:
            near = v[ids[rows]]
            products = np.matmul(near, u[rows, :, None])[:, :, 0]
            rest[rows] = np.where(self._known[rows], products - values[rows], 0)
            gradient[rows] = np.matmul(rest[rows, None, :], near)[:, 0]

        step = max(1, _GATHERED // max(1, ids.shape[1] * u.shape[1]))
        self._pool.map(block, [slice(i, i + step) for i in range(0, len(u), step)])
        return rest, gradient

    def gradient_v(self, rest: Array, u: Array) -> Array:
        """Return half of the gradient of V."""
        gradient = np.empty_like(u)
        flat = rest.ravel()

        def block(rows: slice) -> None:
            indptr = self._indptr[rows.start : rows.stop + 1]
            part = slice(indptr[0], indptr[-1])
            values = flat[self._entries[part]]
            matrix = sp.csr_array(
                (values, self._rows[part], (indptr - indptr[0]).astype(np.int32)),
                shape=(rows.stop - rows.start, len(u)),
            )
            gradient[rows] = matrix @ u

        self._pool.map(block, self._cuts)
        return gradient


def embed_labels(pairs: Pairs, k: int, seed: int, pool: Pool) -> tuple[Array, Array]:
    """Return U and V (rows × k) with uᵢ·vⱼ ≈ value for all pairs.

    Gradient steps on both factors from the truncated SVD. The step is that of the paper; it is halved, and
    the round repeated, where the error grows.
    """
    fit = _Fit(pairs, pool)
    u, v = truncated_svd(Blocked(fit.matrix(), pool), k, seed)
    size = float(np.sqrt(np.sum(pairs.values.astype(np.float64) ** 2)))
    if size == 0:
        return u, v
    step = _STEP / size
    rest, of_u = fit.residuals(u, v)
    error = float(np.linalg.norm(rest.astype(np.float64))) / size
    for _ in range(_SVP_ROUNDS):
        of_v = fit.gradient_v(rest, u)
        next_u, next_v = u - np.float32(step) * of_u, v - np.float32(step) * of_v
        rest, next_of_u = fit.residuals(next_u, next_v)
        next_error = float(np.linalg.norm(rest.astype(np.float64))) / size
        if next_error > error:
            step /= 2
            rest, of_u = fit.residuals(u, v)
            continue
        u, v, of_u = next_u, next_v, next_of_u
        gain, error = error - next_error, next_error
        if gain < _SVP_TOL:
            break
    return u, v


def regress(x: Blocked, target: Array, cost: float) -> Array:
    """Return W (features × k) with XW ≈ target, by support vector regression with squared loss inside ADMM.

    ½‖W‖² + cost ‖XW − target‖² without a margin, plus λ₁‖XW‖₁ by two rounds of ADMM.
    """
    w = np.zeros((x.shape[1], target.shape[1]), np.float32)
    scales = np.full(target.shape[1], 1 + _RHO)
    sparse = dual = np.zeros_like(target)
    for _ in range(_ADMM_ROUNDS):
        right = x.transposed_times(target + np.float32(_RHO) * (sparse - dual))
        w = ridge(x, right, scales, 1 / (2 * cost), w, _CG_STEPS, _CG_TOL)
        fitted = x.times(w)
        sparse = soft_threshold(fitted + dual, _SPARSE / _RHO)
        dual = dual + fitted - sparse
    return w


def zero_smallest(values: Array, share: float) -> Array:
    """Return the values with this share of them, those nearest to 0, set to 0."""
    n = int(share * values.size)
    if n == 0:
        return values
    least = np.partition(np.abs(values).ravel(), n - 1)[n - 1]
    return np.where(np.abs(values) <= least, np.float32(0), values)


def unit_vectors(embedded: Array) -> Array:
    """Return the rows of a dense matrix scaled to unit norm; a row of zeros stays as it is."""
    norms = np.sqrt(np.einsum("ij,ij->i", embedded, embedded, dtype=np.float64))[:, None]
    return (embedded / np.where(norms > 0, norms, 1)).astype(np.float32)


def nearest(z: Array, embedded: Array, n: int) -> tuple[Array, Array]:
    """Return (rows, squared distances) of the n embedded rows nearest to each z, nearest first."""
    wide, each = embedded.astype(np.float64), z.astype(np.float64)
    squares = np.einsum("ij,ij->i", wide, wide) - 2 * (each @ wide.T)
    squares += np.einsum("ij,ij->i", each, each)[:, None]
    with np.errstate(over="ignore"):
        distances = np.maximum(squares, 0).astype(np.float32)
    n = min(n, len(embedded))
    least = np.partition(distances, n - 1, axis=1)[:, n - 1 : n]
    rows, columns = np.nonzero(distances <= least)
    ids, scores = best_entries(rows, columns, -distances[rows, columns], len(z), n)
    return ids, -scores


def vote_weights(n: int, total: int) -> Array:
    """Return the votes of n neighbours, nearest first: 1, and a little more for near ones.

    The additions sum to less than 1 over all `total` neighbours of a row: they decide among labels of equal
    frequency only.
    """
    return 1 + (1 - np.arange(n) / n) / (total + 1)


@dataclass(frozen=True, eq=False)
class Cluster:
    """Training rows that are embedded together."""

    rows: Array  # int32, ascending
    features: Array  # int32, ascending, with weights; the last one is the bias
    weights: Array  # float32 (features, components)
    embedded: Array  # float32 (rows, components)

    def embed(self, x: Matrix) -> Array:
        """Return the embeddings of unit rows with a bias."""
        return np.asarray(x[:, self.features] @ self.weights)


class NeighborRanker(Searching):
    """A vote of the training rows whose embeddings are nearest, in the nearest cluster of each learner.

    The score of a label is its share of the votes.
    """

    kind: ClassVar[str] = "sleec"

    def __init__(
        self,
        centres: list[Array],
        clusters: list[list[Cluster]],
        labels: sp.csr_array,
        weights: Array | None,
        n_features: int,
        n_neighbors: int,
        metric: str,
    ) -> None:
        self.centres = centres  # of each learner: float32 (features, clusters)
        self.clusters = clusters  # of each learner
        self.labels = labels  # of training rows: float32 ones
        self.weights = weights  # of training rows; None: 1
        self.n_features = n_features
        self.n_neighbors = n_neighbors
        self.metric = metric  # "cosine": embeddings of training rows have unit norm

    @property
    def n_labels(self) -> int:
        return int(self.labels.shape[1])

    def _top_k(self, rows: Rows, k: int, search: Search) -> tuple[Array, Array]:
        """See `Ranker`."""
        rank = lambda part: self._rank(part, k, search.allowed)
        return ranked_in_parts(rows, k, _BATCH, search, rank)

    def _rank(self, rows: Rows, k: int, allowed: Array | None) -> tuple[Array, Array]:
        row, neighbor, _, votes = self._neighbors(rows)
        shape = rows.n_rows, self.labels.shape[0]
        ballots = sp.csr_array((votes, (row, neighbor)), shape=shape)
        counts = (ballots @ self.labels).tocoo()
        totals = np.bincount(row, votes, minlength=rows.n_rows)
        shares = counts.data / totals[counts.row]
        if allowed is not None:
            shares[~allowed.astype(bool)[counts.col]] = 0
        with np.errstate(divide="ignore"):
            scores = np.minimum(np.log(shares), 0).astype(np.float32)
        return best_entries(counts.row, counts.col, scores, rows.n_rows, k)

    def _neighbors(self, rows: Rows) -> tuple[Array, Array, Array, Array]:
        """Return (row, training row, squared distance, vote) of all neighbours, learner by learner."""
        unit = unit_rows(rows)
        x = with_bias(unit)
        total = self.n_neighbors * len(self.clusters)
        parts = []
        for centres, clusters in zip(self.centres, self.clusters, strict=True):
            of_row = np.asarray(unit @ centres).argmax(axis=1)
            for place in np.unique(of_row):
                cluster, asked = clusters[place], np.flatnonzero(of_row == place)
                z = cluster.embed(x[asked])
                if self.metric == "cosine":
                    z = unit_vectors(z)
                near, distances = nearest(z, cluster.embedded, self.n_neighbors)
                n = near.shape[1]
                votes = np.broadcast_to(vote_weights(n, total), near.shape).ravel()
                found = cluster.rows[near.ravel()]
                if self.weights is not None:
                    votes = votes * self.weights[found]
                parts.append((np.repeat(asked, n), found, distances.ravel(), votes))
        joined = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        return joined[0], joined[1], joined[2], joined[3]

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """See `Ranker`: the neighbours, of all learners, and their labels."""
        with Pool(1):
            _, found, squares, votes = self._neighbors(row)
        order = np.lexsort((found, squares))
        own = lambda i: self.labels.indices[slice(*self.labels.indptr[i : i + 2])].tolist()
        neighbors = [
            (i, distance, vote, "yes" if label in own(i) else "no")
            for i, distance, vote in zip(
                found[order].tolist(), np.sqrt(squares[order]).tolist(), votes[order].tolist(), strict=True
            )
        ]
        labels = [(i, other) for i in dict.fromkeys(found[order].tolist()) for other in own(i)]
        return (
            Evidence(
                "nearest training rows, counted from 0",
                ("training row", "distance", "vote", "has the label"),
                tuple(neighbors),
            ),
            Evidence("labels of these rows", ("training row", "label"), tuple(labels)),
        )

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`."""
        facts = {
            "n_rows": int(self.labels.shape[0]),
            "n_neighbors": self.n_neighbors,
            "metric": self.metric,
            "n_clusters": [len(clusters) for clusters in self.clusters],
        }
        arrays = csr_tensors("labels", self.labels, values=False)
        if self.weights is not None:
            arrays["weights"] = self.weights
        for i, (centres, clusters) in enumerate(zip(self.centres, self.clusters, strict=True)):
            arrays[f"{i}.centres"] = centres
            for j, cluster in enumerate(clusters):
                arrays |= {f"{i}.{j}.{name}": array for name, array in vars(cluster).items()}
        return facts, arrays

    FACTS: ClassVar[Any] = dict.fromkeys(("n_rows", "n_neighbors"), range(1, 2**31)) | {
        "n_clusters": Each(range(1, 2**31)),
        "metric?": OneOf(*_METRICS),
    }

    @classmethod
    def tensors(cls, facts: Mapping[str, Any]) -> Iterable[tuple[str, Tensor]]:
        """See `Searching`."""
        yield from described_csr("labels", "n_rows", "L", values=False).items()
        yield "weights", Tensor("f4", "n_rows", needed=False, least=math.ulp(0.0), finite=True)
        for i, size in enumerate(facts["n_clusters"]):
            yield f"{i}.centres", Tensor("f4", f"D, {size}", finite=True)
            for own in (f"{i}.{j}" for j in range(size)):
                yield f"{own}.rows", Tensor("i4", f"{own}.R", least=0, most="n_rows", ascending=True)
                yield f"{own}.features", Tensor("i4", f"{own}.F", least=0, ascending=True)
                yield f"{own}.weights", Tensor("f4", f"{own}.F, {own}.C", finite=True)
                yield f"{own}.embedded", Tensor("f4", f"{own}.R, {own}.C", finite=True)

    @classmethod
    def _from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        sizes = facts["n_clusters"]
        labels = stored_csr(arrays, "labels", (facts["n_rows"], n_labels))
        names = tuple(one.name for one in fields(Cluster))
        clusters = [
            [Cluster(*(arrays[f"{i}.{j}.{name}"] for name in names)) for j in range(n)]
            for i, n in enumerate(sizes)
        ]
        of_clusters = [cluster for of_learner in clusters for cluster in of_learner]
        if not of_clusters or any(not len(one.rows) or one.features[-1:] > n_features for one in of_clusters):
            raise ValueError("a cluster has no rows, or a feature that rows do not have")
        centres = [arrays[f"{i}.centres"] for i in range(len(sizes))]
        metric = facts.get("metric", "euclidean")
        weights = arrays.get("weights")
        return cls(centres, clusters, labels, weights, n_features, facts["n_neighbors"], metric)

    def take(self, labels: Array) -> Self:
        """See `Ranker`."""
        kept = sp.csr_array(self.labels[:, labels])
        kept.sort_indices()
        return type(self)(
            *(self.centres, self.clusters, kept, self.weights),
            *(self.n_features, self.n_neighbors, self.metric),
        )


class SLEEC(System):
    """A vote of the nearest training rows, in embeddings of rows in which rows with common labels are near.

    Each learner clusters the rows by k-means. In each cluster, vectors are found whose products are those of
    unit label vectors, for the pairs of rows that are nearest by labels, and regressed on the features. A new
    row goes to the nearest cluster of each learner, and the nearest embeddings there vote by their labels.
    The score of a label is its share of the votes; among equal ones, labels of nearer rows come first. After
    Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label classification, NeurIPS
    2015. The regression has no margin: then it is a ridge regression, for all components at once.

    Parameters
    ----------
    n_learners : int or "auto", default="auto"
        "auto": 5, or 1 with a single cluster.
    n_clusters : int or "auto", default="auto"
        Clusters of rows of each learner. "auto": such that they have 6,000 rows on average.
    n_components : int, default=100
        Size of the embeddings.
    n_label_neighbors : int, default=100
        Rows nearest by labels, whose products the embeddings keep.
    n_neighbors : int or "auto", default="auto"
        Rows that vote in a cluster. "auto": of 5, 10, 25, 50 and 100 the best on held-out rows of a sample.
    metric : {"cosine", "euclidean"}, default="cosine"
        Measure of nearness; the published one is "euclidean". Embeddings of new rows are shorter than those
        of training rows, and by Euclidean distance short ones are near to all of them.
    C : float, default=0.2
        Inverse regularisation strength of the regression: ½‖w‖² + C Σ (w·x − z)².
    weight_sparsity, embedding_sparsity : float, default=0.01
        Share of the weights of the regression, and of the embeddings, that are set to 0, the smallest ones.
    threshold, random_state, n_jobs
        See `Bonsai`.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "n_learners": Parameter(
            "auto", integer(1, "auto"), CLASSIFIERS, "learners; auto: 5, or 1 with one cluster"
        ),
        "n_clusters": Parameter(
            "auto", integer(1, "auto"), CLASSIFIERS, "clusters of rows; auto: of 6,000 rows on average"
        ),
        "n_components": Parameter(100, integer(1), CLASSIFIERS, "size of the embeddings"),
        "n_label_neighbors": Parameter(
            100, integer(1), CLASSIFIERS, "rows nearest by labels, whose products the embeddings keep"
        ),
        "n_neighbors": Parameter(
            "auto",
            integer(1, "auto"),
            CLASSIFIERS,
            "rows that vote in a cluster; auto: the best on held-out rows",
        ),
        "metric": Parameter(
            "cosine", one_of(*_METRICS), CLASSIFIERS, "how near embeddings are; published: euclidean"
        ),
        "C": Parameter(
            0.2, number_between(1e-9, 1e9), CLASSIFIERS, "inverse regularisation strength of the regression"
        ),
        "weight_sparsity": Parameter(
            0.01, number_between(0, 0.999), CLASSIFIERS, "share of the weights that are set to 0"
        ),
        "embedding_sparsity": Parameter(
            0.01, number_between(0, 0.999), CLASSIFIERS, "share of the embeddings that are set to 0"
        ),
        **COMMON,
    }
    ranker = NeighborRanker

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> NeighborRanker:
        with Pool(work.threads) as pool:
            return work.run("embed", _learn, problem, params, seed, pool)


def _learn(
    problem: Problem, params: dict[str, Any], seed: int, pool: Pool, progress: Progress
) -> NeighborRanker:
    n_rows = problem.rows.n_rows
    n_clusters, n_learners = params["n_clusters"], params["n_learners"]
    if n_clusters == "auto":
        n_clusters = max(1, round(n_rows / _CLUSTER_ROWS))
    n_clusters = min(n_clusters, n_rows)
    if n_learners == "auto":
        n_learners = _LEARNERS if n_clusters > 1 else 1
    unit = unit_rows(problem.rows)
    labels = problem.labels.matrix()
    all_centres, all_clusters = [], []
    done = 0
    for learner in range(n_learners):
        own_seed = (seed + 0x9E3779B9 * learner) % 2**64
        centres, of_row = cluster_rows(unit, n_clusters, own_seed, pool)
        # Centres without rows are dropped: no row is nearest to them.
        used, of_row = np.unique(of_row, return_inverse=True)
        clusters = []
        for place in range(len(used)):
            rows = np.flatnonzero(of_row == place)
            clusters.append(_embed(unit, labels, rows, problem.weights, params, own_seed, pool))
            done += len(rows)
            if progress is not None:
                progress(done, n_rows * n_learners)
        all_centres.append(np.ascontiguousarray(centres[:, used]))
        all_clusters.append(clusters)
    neighbors = params["n_neighbors"]
    if neighbors == "auto":
        neighbors = _choose_neighbors(problem, params, seed, pool)
    return NeighborRanker(
        *(all_centres, all_clusters, labels, problem.weights),
        *(problem.rows.n_features, neighbors, params["metric"]),
    )


def _choose_neighbors(problem: Problem, params: dict[str, Any], seed: int, pool: Pool) -> int:
    """Return the number of neighbours with the best precision on a fifth of a sample of rows."""
    sample = shuffled(problem.rows.n_rows, seed)[:_CLUSTER_ROWS]
    n_held = len(sample) // 5
    known, held_out = (problem.take(np.sort(rows)) for rows in (sample[n_held:], sample[:n_held]))
    if not len(known.labels.indices) or not len(held_out.labels.indices):
        return _NEIGHBORS[0]
    single = params | {"n_clusters": 1, "n_learners": 1, "n_neighbors": 1}
    ranker = _learn(known, single, seed, pool, None)

    def precision(n: int) -> float:
        ranker.n_neighbors = n
        return mean_precision(ranker, held_out)

    return max(_NEIGHBORS, key=precision)  # the first of equals


def _embed(
    unit: Matrix,
    labels: sp.csr_array,
    rows: Array,
    row_weights: Array | None,
    params: dict[str, Any],
    seed: int,
    pool: Pool,
) -> Cluster:
    pairs = label_neighbors(labels[rows], params["n_label_neighbors"], seed, pool)
    target, _ = embed_labels(pairs, params["n_components"], seed, pool)
    x = with_bias(unit[rows])
    features = np.unique(x.indices) if is_sparse(x) else np.arange(x.shape[1])
    plain = scaled = Blocked(x[:, features], pool)
    if row_weights is not None:
        scaled = Blocked(weighted(x[:, features], row_weights[rows]), pool)
        target = weighted(target, row_weights[rows])
    weights = zero_smallest(regress(scaled, target, params["C"]), params["weight_sparsity"])
    embedded = zero_smallest(plain.times(weights), params["embedding_sparsity"])
    if params["metric"] == "cosine":
        embedded = unit_vectors(embedded)
    return Cluster(rows.astype(np.int32), features.astype(np.int32), weights, embedded)
