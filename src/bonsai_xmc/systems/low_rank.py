"""LEML, a linear model of low rank (Yu, Jain, Kar, Dhillon, ICML 2014), and RobustXML.

RobustXML is LEML plus a sparse model for labels with few rows: a reconstruction.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import Tensor
from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter
from bonsai_xmc._base.random import shuffled
from bonsai_xmc._base.rules import integer, number, number_between
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._data.sparse import is_sparse
from bonsai_xmc._estimators.matrix import System
from bonsai_xmc._model.ranker import Evidence, Search, Searching, linear_evidence
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.systems._embedding import (
    Blocked,
    Matrix,
    Pool,
    best_columns,
    csr_tensors,
    dense_blocks,
    described_csr,
    gram,
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

_STEPS = 5  # of conjugate gradients in a round, which goes on where the last one ended
_TOL = 1e-3
_MOST_COMPONENTS = 300
_ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0)  # to choose from
_TRIAL_ROWS, _TRIAL_ROUNDS = 10_000, 3
_LASSO_STEPS = 100  # of proximal gradients, for a label in a round
_STEEPNESS = 4.0  # of the map of estimates to scores: slope 1 at ½

ABOVE_0 = number(lambda v: 0 < v <= 1e9, "a number above 0 and at most 1e9", "auto")


def label_step(embedded: Array, y: Blocked, penalty: float, pool: Pool, taken: Array | None = None) -> Array:
    """Return H = YᵀA (AᵀA + penalty I)⁻¹ for A, the embedded rows; `taken` is subtracted from YᵀA."""
    left = gram(embedded, pool) + penalty * np.eye(embedded.shape[1])
    right = y.transposed_times(embedded).astype(np.float64)
    if taken is not None:
        right -= taken
    return np.linalg.solve(left, right.T).T.astype(np.float32)


def feature_step(
    x: Blocked, right: Array, h: Array, penalty: float, start: Array, pool: Pool, steps: int = _STEPS
) -> Array:
    """Return W that solves XᵀX W HᵀH + penalty W = right, by conjugate gradients from `start`.

    In the basis of the eigenvectors of HᵀH the columns of W are systems of their own.
    """
    values, vectors = np.linalg.eigh(gram(h, pool))
    basis = vectors.astype(np.float32)
    w = ridge(x, right @ basis, np.maximum(values, 0), penalty, start @ basis, steps, _TOL)
    return w @ basis.T


def factorize(
    x: Blocked,
    y: Blocked,
    k: int,
    penalty: float,
    seed: int,
    pool: Pool,
    *,
    rounds: int,
    start: tuple[Array, Array] | None = None,
    apart: sp.csr_array | None = None,
    progress: Progress = None,
) -> tuple[Array, Array]:
    """Return W (features × k) and H (labels × k) that minimise ½‖Y − X(W Hᵀ + S)‖² + ½ penalty (‖W‖² + ‖H‖²).

    S, the part `apart`, is given, and 0 in LEML.
    """
    w, h = start or (np.zeros((x.shape[1], k), np.float32), start_factor(y.shape[1], k, seed))
    for done in range(rounds):
        right = x.transposed_times(y.times(h))
        if apart is not None:
            right -= x.transposed_times(x.times(apart @ h))
        w = feature_step(x, right, h, penalty, w, pool)
        embedded = x.times(w)
        taken = None if apart is None else apart.T @ x.transposed_times(embedded)
        h = label_step(embedded, y, penalty, pool, taken)
        if progress is not None:
            progress(done + 1, rounds)
    return w, h


def log_scores(estimates: Array) -> Array:
    """Return log σ(4 (z − ½)) of estimates z of 0 or 1: strictly ascending, and at most 0."""
    return -np.logaddexp(0, -_STEEPNESS * (estimates.astype(np.float64) - 0.5)).astype(np.float32)


class LowRankRanker(Searching):
    """z = x W Hᵀ for unit rows x with a further feature of 1; the k labels of the largest z.

    The log score of a label is log σ(4 (z − ½)). Each label has weights of its own, W h, which are computed
    on request.
    """

    kind: ClassVar[str] = "leml"

    def __init__(self, w: Array, h: Array) -> None:
        self.w, self.h = w, h
        self._wide_h: Array | None = None
        self._unknown = ~h.any(axis=1)  # labels without training rows, which are never found

    @property
    def n_labels(self) -> int:
        return len(self.h)

    @property
    def n_features(self) -> int:
        return len(self.w) - 1

    def _top_k(self, rows: Rows, k: int, search: Search) -> tuple[Array, Array]:
        """See `Ranker`."""
        if self._wide_h is None:
            self._wide_h = self.h.T.astype(np.float64)
        barred = self._unknown if search.allowed is None else self._unknown | ~search.allowed.astype(bool)

        def rank(part: Rows) -> tuple[Array, Array]:
            estimates = self._estimates(with_bias(unit_rows(part)))
            estimates[:, barred] = -np.inf
            ids, best = best_columns(estimates, k)
            return ids, log_scores(best)

        blocks = dense_blocks(rows.n_rows, self.n_labels)
        return ranked_in_parts(rows, k, blocks[0].stop if blocks else 1, search, rank)

    def _estimates(self, x: Matrix) -> Array:
        # In float64 and then rounded, they do not depend on which other rows are asked for.
        assert self._wide_h is not None
        return ((x @ self.w).astype(np.float64) @ self._wide_h).astype(np.float32)

    def label_weights(self, label: int) -> Array:
        """Return W h of a label: weights of the features of a unit row, and last its bias."""
        return self.w @ self.h[label]

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """See `Ranker`. The contributions of features and the bias add up to z."""
        x = sp.csr_array(with_bias(unit_rows(row)))
        weights = self.label_weights(label)[x.indices]
        return linear_evidence(
            "features of the unit row, times the weights W h of the label",
            (x.indices[:-1], weights[:-1], x.data[:-1]),
            float(weights[-1] * x.data[-1]),
            ("score σ(4 (z − ½))", lambda z: float(np.exp(log_scores(np.array(z))))),
        )

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`."""
        return {}, {"w": self.w, "h": self.h}

    TENSORS: ClassVar[Mapping[str, Tensor]] = {
        "w": Tensor("f4", "D + 1, K", finite=True),
        "h": Tensor("f4", "L, K", finite=True),
    }

    @classmethod
    def _from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        return cls(arrays["w"], arrays["h"])

    def take(self, labels: Array) -> Self:
        """See `Ranker`."""
        return type(self)(self.w, self.h[labels])

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_wide_h": None}


def matrices(problem: Problem, pool: Pool) -> tuple[Blocked, Blocked]:
    """Return the unit rows with a bias, and the labels, both times the roots of the rows' weights."""
    x = weighted(with_bias(unit_rows(problem.rows)), problem.weights)
    y = weighted(problem.labels.matrix(), problem.weights)
    return Blocked(x, pool), Blocked(y, pool)


def choose_alpha(problem: Problem, k: int, seed: int, threads: int, pool: Pool) -> float:
    """Return the strength of regularisation with the best precision at 1, 3 and 5 on held-out rows."""
    order = shuffled(problem.rows.n_rows, seed)
    n_held = problem.rows.n_rows // 5
    known = problem.take(np.sort(order[n_held : n_held + _TRIAL_ROWS]))
    held_out = problem.take(np.sort(order[: min(n_held, _TRIAL_ROWS // 5)]))
    if not len(known.labels.indices) or not len(held_out.labels.indices):
        return 1.0
    x, y = matrices(known, pool)
    of = lambda alpha: LowRankRanker(*factorize(x, y, k, alpha, seed, pool, rounds=_TRIAL_ROUNDS))
    return max(_ALPHAS, key=lambda alpha: mean_precision(of(alpha), held_out, threads))  # the first of equals


def n_components_of(given: Any, n_labels: int) -> int:
    """Return the rank that "auto" stands for: 0.8 of the labels, at most 300."""
    return max(1, min(_MOST_COMPONENTS, int(0.8 * n_labels))) if given == "auto" else int(given)


class LEML(System):
    """A linear model of low rank for all labels: rows and labels as vectors of a few hundred numbers.

    Minimises ½‖Y − XWHᵀ‖² + ½ alpha (‖W‖² + ‖H‖²) over W (features × components) and H (labels ×
    components) by turns: H = YᵀA (AᵀA + alpha I)⁻¹ with A = XW, and W by conjugate gradients. X are unit rows
    with a further feature of 1. Scores of a row are σ(4 (xWHᵀ − ½)). After Yu, Jain, Kar, Dhillon:
    Large-scale multi-label learning with missing labels, ICML 2014.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        The rank. "auto": 0.8 of the labels, at most 300.
    alpha : float or "auto", default="auto"
        Strength of regularisation. "auto": of 0.5, 1, 2, 4 and 8 the best on held-out rows.
    max_iter : int, default=5
        Rounds.
    threshold, random_state, n_jobs
        See `Bonsai`.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "n_components": Parameter(
            "auto", integer(1, "auto"), CLASSIFIERS, "the rank; auto: 0.8 of the labels, at most 300"
        ),
        "alpha": Parameter(
            "auto", ABOVE_0, CLASSIFIERS, "strength of regularisation; auto: the best on held-out rows"
        ),
        "max_iter": Parameter(5, integer(1), CLASSIFIERS, "number of rounds"),
        **COMMON,
    }
    ranker = LowRankRanker

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> LowRankRanker:
        k = n_components_of(params["n_components"], problem.labels.n_labels)
        with Pool(work.threads) as pool:
            alpha = params["alpha"]
            if alpha == "auto":
                alpha = work.run("alpha", lambda progress: choose_alpha(problem, k, seed, work.threads, pool))
            x, y = matrices(problem, pool)
            options = {"rounds": params["max_iter"]}
            return LowRankRanker(*work.run("factors", factorize, x, y, k, alpha, seed, pool, **options))


class RobustRanker(LowRankRanker):
    """z = x W Hᵀ + x S for unit rows x, with S sparse; otherwise as `LowRankRanker`."""

    kind: ClassVar[str] = "robustxml"

    def __init__(self, w: Array, h: Array, sparse: sp.csr_array) -> None:
        super().__init__(w, h)
        self.sparse = sparse  # features × labels
        self._unknown &= np.bincount(sparse.indices, minlength=len(h)) == 0

    def _estimates(self, x: Matrix) -> Array:
        return super()._estimates(x) + _dense(x[:, :-1] @ self.sparse)

    def label_weights(self, label: int) -> Array:
        """Return W h + s of a label: weights of the features of a unit row, and last its bias."""
        weights = super().label_weights(label)
        weights[:-1] += _dense(self.sparse[:, [label]]).ravel()
        return weights

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`."""
        facts, arrays = super().to_arrays()
        return facts, arrays | csr_tensors("sparse", self.sparse)

    TENSORS: ClassVar[Mapping[str, Tensor]] = {
        **LowRankRanker.TENSORS,
        **described_csr("sparse", "D", "L"),
    }

    @classmethod
    def _from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        return cls(arrays["w"], arrays["h"], stored_csr(arrays, "sparse", (n_features, n_labels)))

    def take(self, labels: Array) -> Self:
        """See `Ranker`."""
        return type(self)(self.w, self.h[labels], sp.csr_array(self.sparse[:, labels]))


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix)


def lasso(gram: Array, right: Array, penalty: float, start: Array) -> Array:
    """Return w that minimises ½ wᵀ G w − right·w + penalty ‖w‖₁, by accelerated proximal gradients."""
    bound = float(np.linalg.norm(gram))  # of the largest eigenvalue
    if bound == 0:
        return np.zeros_like(start)
    w = ahead = start
    speed = 1.0
    for _ in range(_LASSO_STEPS):
        before, w = w, soft_threshold(ahead - (gram @ ahead - right) / bound, penalty / bound)
        change = w - before
        if (ahead - w) @ change > 0:  # the step was too long
            speed, ahead = 1.0, w
        else:
            faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
            speed, ahead = faster, w + (speed - 1) / faster * change
        if np.abs(change).max(initial=0) <= _TOL * np.abs(w).max(initial=0):
            break
    return w


def sparse_step(
    x: sp.csc_array,
    y: sp.csr_array,
    embedded: Array,
    h: Array,
    start: sp.csr_array,
    penalty: float,
    most: int,
    pool: Pool,
    progress: Progress = None,
) -> sp.csr_array:
    """Return S (features × labels) that lowers ½‖Y − AHᵀ − XS‖² + penalty ‖S‖₁, from `start`, label by label.

    A label may use the features that it has, and those whose gradient exceeds the penalty, the `most` largest
    ones; over these its problem is solved by itself. Residuals exist for a block of labels at a time.
    """
    n_rows, n_labels = y.shape
    transposed, columns = sp.csr_array(x.T), sp.csc_array(start)
    y_columns = sp.csc_array(y)
    found: list[tuple[Array, Array]] = []

    def solve(task: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        residual, gradient, old, weights = task
        strength = np.abs(gradient)
        strength[old] = np.inf
        n = min(most, int(np.count_nonzero(strength > penalty)))
        features = np.sort(np.argsort(-strength, kind="stable")[:n])
        first = np.zeros(x.shape[1], np.float32)
        first[old] = weights
        part = x[:, features]
        result = lasso(_dense(part.T @ part), part.T @ residual, penalty, first[features])
        return features[result != 0], result[result != 0].astype(np.float32)

    for labels in dense_blocks(n_labels, n_rows):
        residual = _dense(y_columns[:, labels]) - embedded @ h[labels].T
        rest = residual - _dense(x @ columns[:, labels])
        gradient = np.asarray(transposed @ rest)
        tasks = []
        for place, label in enumerate(range(labels.start, labels.stop)):
            own = slice(columns.indptr[label], columns.indptr[label + 1])
            tasks.append((residual[:, place], gradient[:, place], columns.indices[own], columns.data[own]))
        found += pool.map(solve, tasks)
        if progress is not None:
            progress(labels.stop, n_labels)
    indptr = np.concatenate([[0], np.cumsum([len(features) for features, _ in found])])
    features, values = (np.concatenate([part[i] for part in found]) for i in (0, 1))
    result: Any = sp.csc_array((values, features, indptr), shape=(x.shape[1], n_labels))
    return result.tocsr()


class RobustXML(System):
    """A linear model of low rank for all labels, plus a sparse one for the tail, which low rank misses.

    A reconstruction from the idea of the paper alone (Xu, Tao, Xu: Robust extreme multi-label learning, KDD
    2016). Minimises ½‖Y − XWHᵀ − XS‖² + ½ alpha (‖W‖² + ‖H‖²) + l1 ‖S‖₁ by turns: W and H as `LEML`
    does, on what S leaves, and S label by label, on what W and H leave. Scores are as those of `LEML`.

    Parameters
    ----------
    n_components, alpha, max_iter
        See `LEML`.
    l1 : float, default=0.25
        Strength of the regularisation of S.
    max_sparse : int, default=100
        Features that S may have for a label.
    n_turns : int, default=2
        How often S is solved; the first time after `max_iter` rounds of W and H, and two rounds after each.
    threshold, random_state, n_jobs
        See `Bonsai`.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        **{name: LEML.parameters[name] for name in ("n_components", "alpha", "max_iter")},
        "l1": Parameter(
            0.25, number_between(1e-9, 1e9), CLASSIFIERS, "strength of regularisation of the sparse part"
        ),
        "max_sparse": Parameter(100, integer(1), CLASSIFIERS, "features of the sparse part for a label"),
        "n_turns": Parameter(2, integer(1), CLASSIFIERS, "how often the sparse part is solved"),
        **COMMON,
    }
    ranker = RobustRanker

    def _train(self, problem: Problem, params: dict[str, Any], seed: int, work: Work) -> RobustRanker:
        k = n_components_of(params["n_components"], problem.labels.n_labels)
        labels = problem.labels
        rows = sp.csc_array(weighted(unit_rows(problem.rows), problem.weights))
        truth = weighted(labels.matrix(), problem.weights)
        with Pool(work.threads) as pool:
            alpha = params["alpha"]
            if alpha == "auto":
                alpha = work.run("alpha", lambda progress: choose_alpha(problem, k, seed, work.threads, pool))
            x, y = matrices(problem, pool)
            sparse: Any = sp.csr_array((rows.shape[1], labels.n_labels), dtype=np.float32)
            factors = work.run("factors", factorize, x, y, k, alpha, seed, pool, rounds=params["max_iter"])
            for _ in range(params["n_turns"]):
                options = params["l1"], params["max_sparse"], pool
                sparse = work.run(
                    "sparse part", sparse_step, rows, truth, x.times(factors[0]), factors[1], sparse, *options
                )
                apart = sp.csr_array(
                    sp.vstack([sparse, sp.csr_array((1, labels.n_labels), dtype=np.float32)])
                )
                factors = work.run(
                    "factors", factorize, x, y, k, alpha, seed, pool, rounds=2, start=factors, apart=apart
                )
            return RobustRanker(factors[0], factors[1], sparse)
