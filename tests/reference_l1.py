"""L1 squared-hinge classifiers and PD-Sparse in plain NumPy: slow, and written to be read."""

import numpy as np


def soft_threshold(v, t):
    """Return v moved towards 0 by t, or 0."""
    return np.sign(v) * np.maximum(np.abs(v) - t, 0)


def hinge_objective(X, signs, w, b, l1, l2=0.0, C=1.0, weights=1.0):
    """l1 (‖w‖₁ + |b|) + l2/2 (‖w‖² + b²) + C Σ weight · max(0, 1 − s (w·x + b))²."""
    u = np.append(w, b)
    slack = np.maximum(0, 1 - signs * (X @ w + b))
    return l1 * np.abs(u).sum() + l2 / 2 * (u**2).sum() + C * (weights * slack**2).sum()


def solve_hinge(X, signs, l1, l2=0.0, C=1.0, weights=1.0, n_steps=3000):
    """Return w and b that minimise it: accelerated proximal gradients (FISTA) from 0, in float64."""
    A = np.hstack([X, np.ones((len(X), 1))])
    cost = C * weights * np.ones(len(X))
    step = 1 / (2 * np.linalg.norm(np.sqrt(cost)[:, None] * A, 2) ** 2 + l2)
    u = ahead = np.zeros(A.shape[1])
    momentum = 1.0
    for _ in range(n_steps):
        slack = np.maximum(0, 1 - signs * (A @ ahead))
        gradient = -2 * A.T @ (cost * signs * slack) + l2 * ahead
        new = soft_threshold(ahead - step * gradient, step * l1)
        if (new - u) @ (ahead - new) > 0:  # restart
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - u)
        u, momentum = new, following
    return u[:-1], u[-1]


def project_pairs(a, b, c):
    """Return the point next to (a, b) with 0 ≤ a ≤ c, 0 ≤ b and Σ a = Σ b.

    It is a − t and b + t, cut off at the bounds. Σ a − Σ b decreases with t, and is linear between the points
    where a bound is reached.
    """
    t = np.sort(np.concatenate([a, a - c, -b]))
    difference = np.clip(a - t[:, None], 0, c).sum(1) - np.maximum(b + t[:, None], 0).sum(1)
    root = np.interp(0, difference[::-1], t[::-1])
    return np.clip(a - root, 0, c), np.maximum(b + root, 0)


def project_sums(a, b, c):
    """Return the point next to (a, b) with a, b ≥ 0 and Σ a = Σ b ≤ c: by bisection where the bound holds."""
    free = project_pairs(a, b, 1e6)
    if free[0].sum() <= c:
        return free
    found = []
    for v in (a, b):
        low, high = v.min() - c, v.max()
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(v - middle, 0).sum() > c else (low, middle)
        found.append(np.maximum(v - high, 0))
    return tuple(found)


def ranking_objective(X, Y, W, l1, C=1.0, largest=False):
    """½‖W‖² + l1 ‖W‖₁ + C Σ_i Σ_p max(0, 1 + max_n z_in − z_ip), or the largest of these; W by labels."""
    loss = 0.0
    for z, y in zip(X @ W.T, Y.astype(bool), strict=True):
        if y.any() and not y.all():
            losses = np.maximum(0, 1 + z[~y].max() - z[y])
            loss += losses.max() if largest else losses.sum()
    return (W**2).sum() / 2 + l1 * np.abs(W).sum() + C * loss


def solve_ranking(X, Y, l1, C=1.0, n_steps=1000, largest=False):
    """Return W by projected gradients on the dual of all rows and labels at once.

    Duals of positives are in [0, C], or add up to C at most for the largest loss, those of negatives ≥ 0, and
    their sums are equal in each row; W is soft_threshold(Xᵀα).
    """
    n, n_labels = Y.shape
    Y = Y.astype(bool)
    alpha = np.zeros((n, n_labels))
    step = 1 / np.linalg.norm(X, 2) ** 2
    for _ in range(n_steps):
        z = X @ soft_threshold(X.T @ alpha, l1)
        for i in range(n):
            y = Y[i]
            if not y.any() or y.all():
                continue
            up, down = alpha[i, y] - step * z[i, y], -alpha[i, ~y] + step * (1 + z[i, ~y])
            alpha[i, y], beta = (project_sums if largest else project_pairs)(up, down, C)
            alpha[i, ~y] = -beta
    return soft_threshold(X.T @ alpha, l1).T
