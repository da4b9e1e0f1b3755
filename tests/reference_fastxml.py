"""FastXML and PfastreXML in plain NumPy: the oracle that the core is compared with. Nothing here is fast."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from reference import CLUSTERING, Rng, derive


def discount(rank: int) -> float:
    """Return 1 / log(1 + rank), with ranks from 1 on."""
    return 1 / np.log(1 + rank)


def ranking(Y, side_weight, q=None):
    """Return labels by descending Σ I(y) y, ties to the smaller label; `side_weight` is 0 off the side."""
    best_gain = np.cumsum([0.0, *map(discount, range(1, Y.shape[1] + 1))])[Y.sum(axis=1).astype(int)]
    inverse = 1 / np.where(best_gain > 0, best_gain, 1) if q is None else 1.0
    scores = (Y * (inverse * side_weight)[:, None]).sum(axis=0) * (1 if q is None else q)
    here = np.flatnonzero(Y.any(axis=0))
    return sorted(here.tolist(), key=lambda l: (-scores[l], l))


def divide(Y, side, q=None, weights=None):
    """Return the sides of rows after rounds of ranking and moving, starting from the given sides."""
    side = np.array(side)
    weights = np.ones(len(Y)) if weights is None else weights
    for _ in range(100):
        gains = []
        for sign in (-1, 1):
            of_label = np.zeros(Y.shape[1])
            for rank, l in enumerate(ranking(Y, weights * (side == sign), q), start=1):
                of_label[l] = discount(rank) * (1 if q is None else q[l])
            gains.append([sum(of_label[l] for l in np.flatnonzero(y)) for y in Y])
        moved = np.where(np.equal(*gains), side, np.where(np.less(*gains), 1, -1))
        if np.array_equal(moved, side):
            return side
        side = moved
    return side


def divide_by_means(Y, side):
    """Return the sides after rounds of 2-means on rows divided by their best gain, with unit means."""
    side = np.array(side)
    best_gain = np.cumsum([0.0, *map(discount, range(1, Y.shape[1] + 1))])[Y.sum(axis=1).astype(int)]
    rows = Y / np.where(best_gain > 0, best_gain, 1)[:, None]
    for _ in range(100):
        means = [rows[side == sign].sum(axis=0) for sign in (-1, 1)]
        gains = [Y @ (mean / (np.linalg.norm(mean) or 1)) for mean in means]
        moved = np.where(np.isclose(*gains, rtol=1e-12), side, np.where(np.less(*gains), 1, -1))
        if np.array_equal(moved, side):
            return side
        side = moved
    return side


def l1_objective(X, s, c, w, b):
    return np.abs(w).sum() + abs(b) + (c * np.logaddexp(0, -s * (X @ w + b))).sum()


def l1_logistic(X, s, c):
    """Return weights and bias that minimise `l1_objective`, by accelerated proximal gradient steps."""
    A = np.hstack([X, np.ones((len(X), 1))])
    step = 4 / (np.linalg.norm(A * np.sqrt(c)[:, None], 2) ** 2 + 1e-12)
    w = v = np.zeros(A.shape[1])
    t = 1.0
    for _ in range(20_000):
        gradient = A.T @ (-c * s / (1 + np.exp(s * (A @ v))))
        z = v - step * gradient
        new = np.sign(z) * np.maximum(0, np.abs(z) - step)
        if (new - w) @ (v - new) > 0:  # the momentum leads away
            t = 1.0
        faster = (1 + np.sqrt(1 + 4 * t * t)) / 2
        v, t, done = new + (t - 1) / faster * (new - w), faster, np.abs(new - w).max() < 1e-12
        w = new
        if done:
            break
    return w[:-1], w[-1]


def leaf(Y, weights, most, q=None):
    """Return the labels and shares of a leaf, by label."""
    shares = (weights @ Y) / weights.sum() * (1 if q is None else q)
    best = sorted(np.flatnonzero(shares).tolist(), key=lambda l: (-shares[l], l))[:most]
    return {l: shares[l] for l in sorted(best)}


@dataclass
class Tree:
    """Nodes in order of levels: a leaf {label: share}, or (weights, bias, first child)."""

    nodes: list = field(default_factory=list)

    def reach(self, x):
        at = 0
        while isinstance(self.nodes[at], tuple):
            w, b, child = self.nodes[at]
            at = child + int(b + w @ x > 0)
        return self.nodes[at]


def grow(X, Y, key, *, max_leaf_rows, max_leaf_labels, C, q=None, weights=None):
    tree = Tree()
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    waiting = deque([(np.arange(len(X)), key)])
    n_known = 1
    while waiting:
        rows, at = waiting.popleft()
        node = None
        if len(rows) > max_leaf_rows:
            rng = Rng(derive(at, CLUSTERING))
            start = np.array([1 if rng.next() >> 63 else -1 for _ in rows])
            side = divide(Y[rows], start, q, weights[rows])
            if len(set(side.tolist())) == 2:
                w, b = l1_logistic(X[rows], side, C * weights[rows])
                right = X[rows] @ w + b > 0
                if right.any() and not right.all():
                    node = (w, b, n_known)
                    waiting += [(rows[~right], derive(at, 0)), (rows[right], derive(at, 1))]
                    n_known += 2
        tree.nodes.append(leaf(Y[rows], weights[rows], max_leaf_labels, q) if node is None else node)
    return tree


def scores(trees, x, n_labels):
    """Return the mean share of each label in the leaves that a row reaches."""
    total = np.zeros(n_labels)
    for tree in trees:
        for l, share in tree.reach(x).items():
            total[l] += share
    return total / len(trees)


def tail(x, mean, gamma):
    """Return P(l | x) of the tail classifier."""
    norm = np.linalg.norm(x)
    return 1 / (1 + np.exp(gamma / 2 * ((x / (norm or 1) - mean) ** 2).sum()))
