"""RobustXML: a linear model of low rank plus a sparse one for labels of few rows. A reconstruction."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import Tensor
from bonsai_xmc._base.params import CLASSIFIERS, COMMON, Parameter
from bonsai_xmc._base.rules import integer, number_between
from bonsai_xmc._data.sparse import is_sparse
from bonsai_xmc._estimators.matrix import System
from bonsai_xmc._training.train import Problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.systems._embedding import (
    Matrix,
    Pool,
    csr_tensors,
    dense_blocks,
    described_csr,
    soft_threshold,
    stored_csr,
    unit_rows,
    weighted,
)
from bonsai_xmc.systems.leml import (
    LEML,
    LowRankRanker,
    Progress,
    choose_alpha,
    factorize,
    matrices,
    n_components_of,
)

_STEPS, _TOL = 100, 1e-3  # of proximal gradients, for a label in a round


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
    for _ in range(_STEPS):
        before, w = w, soft_threshold(ahead - (gram @ ahead - right) / bound, penalty / bound)
        change = w - before
        if (ahead - w) @ change > 0:  # it went too far
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
    """A linear model of low rank for all labels, plus a sparse one that takes what low rank cannot: the tail.

    A reconstruction: only the idea of the paper (Xu, Tao, Xu: Robust extreme multi-label learning, KDD 2016)
    was at hand. Minimises ½‖Y − XWHᵀ − XS‖² + ½ alpha (‖W‖² + ‖H‖²) + l1 ‖S‖₁ by turns: W and H as `LEML`
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
