"""The whole method in plain NumPy: the oracle that the compiled core is compared with.

Dense float64 arrays and loops that follow the description of the method; nothing here is fast.
Similarities and margins are summed row by row instead of by a matrix product: a BLAS may round equal rows
differently, and then ties would not be ties. Weights are not quantised, unlike those of a fitted model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1
CLUSTERING, SOLVER = 2**32, 2**32 + 1  # words that set a node's generators apart from its children's keys


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def derive(key: int, word: int) -> int:
    return mix((key + GOLDEN * (word + 1)) & MASK)


class Rng:
    """splitmix64."""

    def __init__(self, key: int):
        self.state = key

    def next(self) -> int:
        self.state = (self.state + GOLDEN) & MASK
        return mix(self.state)

    def below(self, n: int) -> int:
        return (self.next() * n) >> 64

    def uniform(self) -> float:
        return (self.next() >> 11) * 2.0**-53

    def shuffle(self, v: list[int]) -> None:
        for i in range(len(v) - 1, 0, -1):
            j = self.below(i + 1)
            v[i], v[j] = v[j], v[i]

    def sample(self, n: int, k: int) -> list[int]:
        perm = list(range(n))
        for i in range(k):
            j = i + self.below(n - i)
            perm[i], perm[j] = perm[j], perm[i]
        return perm[:k]


def dense(A) -> np.ndarray:
    return np.asarray(A.toarray() if hasattr(A, "toarray") else A, dtype=np.float64)


def unit_rows(A: np.ndarray) -> np.ndarray:
    norms = np.sqrt((A * A).sum(axis=1, keepdims=True))
    return A / np.where(norms > 0, norms, 1)


def weights_of(X: np.ndarray, sample_weight) -> np.ndarray:
    return np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)


def label_vectors(X, Y, representation="input", sample_weight=None, normalize=True, names=None) -> np.ndarray:
    """Return a row per label, of norm 1 or 0; columns: features, labels, both, or the user's."""
    if not isinstance(representation, str):
        return unit_rows(dense(representation))
    if representation == "text":
        return unit_rows(dense(names))
    if representation.endswith("+text"):
        first = representation.removesuffix("+text")
        others = label_vectors(X, Y, first, sample_weight, normalize)
        return unit_rows(np.hstack([others * np.sqrt(1 + (first == "joint")), unit_rows(dense(names))]))
    X, Y = unit_rows(dense(X)) if normalize else dense(X), dense(Y)
    s = weights_of(X, sample_weight)

    def summed(features: np.ndarray) -> np.ndarray:
        V = np.zeros((Y.shape[1], features.shape[1]))
        for i, l in np.argwhere(Y):
            V[l] += s[i] * features[i]
        return V

    if representation == "input":
        return unit_rows(summed(X))
    output = summed(Y)
    np.fill_diagonal(output, 0)
    if representation == "output":
        return unit_rows(output)
    if representation == "joint":
        return unit_rows(np.hstack([unit_rows(summed(X)), unit_rows(output)]))
    raise ValueError(f"representation {representation!r} is none of input, output, joint")


def similarities(V: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.stack([(V * c).sum(axis=1) for c in centres], axis=1)


def first_centres(V: np.ndarray, k: int, init: str, rng: Rng) -> list[int]:
    """Return row numbers; k-means++ returns fewer than k if no row differs from the chosen ones."""
    if init == "random":
        return rng.sample(len(V), k)
    chosen = [rng.below(len(V))]
    while len(chosen) < k:
        w = np.maximum(0, 1 - similarities(V, V[chosen]).max(axis=1))
        cumulative = np.cumsum(w)  # adds in order
        if cumulative[-1] <= 0:
            break
        above = np.flatnonzero(cumulative > rng.uniform() * cumulative[-1])
        chosen.append(int(above[0] if len(above) else np.flatnonzero(w)[-1]))
    return chosen


def assign_balanced(sim: np.ndarray) -> np.ndarray:
    n, k = sim.shape
    ranked = np.sort(sim, axis=1)
    gap = ranked[:, -1] - ranked[:, -2] if k > 1 else np.zeros(n)
    size, extras, assign = [0] * k, n % k, np.empty(n, dtype=np.int64)
    for i in np.argsort(-gap, kind="stable"):
        room = [c for c in range(k) if size[c] < n // k or (size[c] == n // k and extras > 0)]
        best = max(room, key=lambda c: (sim[i, c], -c))
        extras -= size[best] == n // k
        size[best] += 1
        assign[i] = best
    return assign


def lloyd(V, centres, tol, max_iter, balanced) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return the last assignment, the similarities that it is based on, and all objectives."""
    alive, objectives = np.ones(len(centres), dtype=bool), []
    for _ in range(max_iter):
        sim = np.where(alive, similarities(V, centres), -np.inf)
        assign = assign_balanced(sim) if balanced else sim.argmax(axis=1)
        objectives.append(float(sim[np.arange(len(V)), assign].mean()))
        if len(objectives) > 1 and objectives[-1] - objectives[-2] < tol:
            break
        alive = np.array([(assign == c).any() for c in range(len(centres))])
        sums = np.array([V[assign == c].sum(axis=0) for c in range(len(centres))])
        centres = unit_rows(sums)
    return assign, sim, objectives


def merge_singletons(assign: np.ndarray, sim: np.ndarray) -> np.ndarray:
    assign, size = assign.copy(), np.bincount(assign, minlength=sim.shape[1])
    for c in range(len(size)):
        others = [o for o in range(len(size)) if o != c and size[o] >= 1]
        if size[c] == 1 and others:
            i = np.flatnonzero(assign == c)[0]
            assign[i] = max(others, key=lambda o: (sim[i, o], -o))
            size[c] -= 1
            size[assign[i]] += 1
    return assign


class Clustering(NamedTuple):
    cluster: np.ndarray  # of each row, 0 … number of clusters − 1; each has a member
    objectives: list[float]  # mean similarity, one for each iteration


def kmeans(V, K, rng, tol=1e-4, max_iter=100, init="random", balanced=False) -> Clustering:
    """Run spherical k-means on n unit or zero rows."""
    n = len(V)
    part = np.arange(n) if balanced else np.flatnonzero(V.any(axis=1))
    if len(part) == 0:
        return Clustering(np.arange(n) % min(K, n), [])
    U = V[part]
    centres = U[first_centres(U, min(K, len(U)), init, rng)]
    assign, sim, objectives = lloyd(U, centres, tol, max_iter, balanced)
    cluster = np.full(n, -1)
    cluster[part] = assign if balanced else merge_singletons(assign, sim)
    for i in np.flatnonzero(cluster < 0):  # the zero rows
        size = np.bincount(cluster[cluster >= 0])
        cluster[i] = min(np.flatnonzero(size), key=lambda c: (size[c], c))
    return Clustering(np.unique(cluster, return_inverse=True)[1], objectives)


def bounded_kmeans(V, K, largest, key, *kmeans_params) -> np.ndarray:
    """Return the cluster of each row; clusters above `largest` rows are split, their parts come last."""
    cluster = kmeans(V, K, Rng(key), *kmeans_params).cluster.astype(np.int64)
    c = 0
    while c <= cluster.max():
        members = np.flatnonzero(cluster == c)
        n, first = len(members), cluster.max() + 1
        if n > largest:
            k = min(max(-(-n * K // len(V)), 2), K)
            parts = kmeans(V[members], k, Rng(derive(key, c)), *kmeans_params).cluster
            if parts.max() == 0:  # equal rows
                parts = np.arange(n) * -(-n // largest) // n
            cluster[members] = first + parts
        c += 1
    return np.unique(cluster, return_inverse=True)[1]


@dataclass(eq=False)
class Node:
    labels: np.ndarray  # ascending, of the whole subtree
    key: int = 0
    level: int = 1
    id: int = 0
    children: list[Node] = field(default_factory=list)  # empty: a leaf
    # Set by training; a classifier for each child or, in a leaf, for each label
    rows: np.ndarray | None = None  # training rows, ascending
    W: np.ndarray | None = None  # classifiers × features, pruned
    b: np.ndarray | None = None
    n_iter: np.ndarray | None = None


def breadth_first(root: Node) -> list[Node]:
    nodes = [root]
    for node in nodes:
        nodes += node.children
    return nodes


def tree_key(seed: int, t: int) -> int:
    return derive(derive(seed, 0), t)


def build_tree(
    V, labels, key, branching=100, max_leaf=None, max_depth=None, balanced=False,
    kmeans_tol=1e-4, kmeans_max_iter=100, kmeans_init="random", bounded=False,
) -> Node:  # fmt: skip
    """Build a tree. V: one row for each label id; labels: those with a training row."""
    max_leaf = branching if max_leaf is None else max_leaf
    root = Node(np.array(sorted(labels), dtype=np.int64), key)
    nodes = [root]
    for node in nodes:
        last = max_depth is not None and node.level >= max_depth
        overfull = max_depth != 1 and len(node.labels) >= 100 * max_leaf
        if len(node.labels) <= max_leaf or (last and not overfull):
            continue
        largest = 4 * max(max_leaf, -(-len(node.labels) // branching)) if bounded else len(node.labels)
        kmeans_params = kmeans_tol, kmeans_max_iter, kmeans_init, balanced
        key = derive(node.key, CLUSTERING)
        cluster = bounded_kmeans(V[node.labels], branching, largest, key, *kmeans_params)
        n_clusters = cluster.max() + 1
        if n_clusters <= 1:
            continue
        for j in range(n_clusters):
            child = Node(node.labels[cluster == j], derive(node.key, j), node.level + 1, len(nodes))
            node.children.append(child)
            nodes.append(child)
    return root


def flatten(root: Node) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (child_ptr, children, is_leaf): child node ids of an inner node, label ids of a leaf."""
    nodes = breadth_first(root)
    entries = [[c.id for c in node.children] or list(node.labels) for node in nodes]
    child_ptr = np.cumsum([0] + [len(e) for e in entries])
    is_leaf = np.array([not node.children for node in nodes])
    return child_ptr, np.array([e for es in entries for e in es], dtype=np.int32), is_leaf


def unflatten(child_ptr, children, is_leaf, key: int, v: int = 0, level: int = 1) -> Node:
    """Return a given tree as nodes, numbered breadth-first; each label must have a training row."""
    entries = [int(e) for e in children[child_ptr[v] : child_ptr[v + 1]]]
    if is_leaf[v]:
        return Node(np.array(sorted(entries), dtype=np.int64), key, level, v)
    below = [
        unflatten(child_ptr, children, is_leaf, derive(key, j), e, level + 1) for j, e in enumerate(entries)
    ]
    return Node(np.sort(np.concatenate([c.labels for c in below])), key, level, v, below)


def loss_of(margin: np.ndarray, loss: str) -> np.ndarray:
    """Return the loss of a signed margin; minus the loss of a raw margin is a log score."""
    if loss == "squared_hinge":
        return np.maximum(0, 1 - margin) ** 2
    if loss == "logistic":
        return np.logaddexp(0, -margin)
    raise ValueError(f"loss {loss!r} is none of squared_hinge, logistic")


def objective(w, b, X, y, C=1.0, sample_weight=None, bias="learn", loss="squared_hinge") -> float:
    penalty = (w @ w + (b * b if bias == "learn" else 0)) / 2
    return float(penalty + C * (weights_of(X, sample_weight) * loss_of(y * (X @ w + b), loss)).sum())


def solve_dual_squared_hinge(
    X, y, C, sample_weight, tol, max_iter, bias, rng
) -> tuple[np.ndarray, float, int]:
    """Run dual coordinate descent with bias updates between passes: (w, b, passes)."""
    learn, s = bias == "learn", weights_of(X, sample_weight)
    w, b = np.zeros(X.shape[1]), (s @ y) / s.sum() if learn else float(bias)
    alpha, diagonal = np.zeros(len(X)), 1 / (2 * C * s)
    Q = (X * X).sum(axis=1) + diagonal
    order, n_iter, spread, move = list(range(len(X))), 0, np.inf, 0.0
    while max(spread, abs(move)) > tol and n_iter < max_iter:
        n_iter += 1
        rng.shuffle(order)
        projected = []
        for i in order:
            G = y[i] * (X[i] @ w + b) - 1 + alpha[i] * diagonal[i]
            PG = min(G, 0.0) if alpha[i] == 0 else G
            projected.append(PG)
            if abs(PG) > 0.2 * tol:
                before, alpha[i] = alpha[i], max(alpha[i] - G / Q[i], 0.0)
                w += (alpha[i] - before) * y[i] * X[i]
        spread = max([0, *projected]) - min([0, *projected])  # of equal gradients too: they should be 0
        if learn:
            move = (alpha @ y - b) / (1 + 2 * (1 / Q)[alpha > 0].sum())
            b += move
    return w, float(b), n_iter


def solve_dual_logistic(X, y, C, sample_weight, tol, max_iter, bias, rng) -> tuple[np.ndarray, float, int]:
    """Run dual coordinate descent; a learnt bias is the weight of a constant feature: (w, b, passes)."""
    learn, costs = bias == "learn", C * weights_of(X, sample_weight)
    w, b, alpha = np.zeros(X.shape[1]), 0.0 if learn else float(bias), np.zeros(len(X))
    Q = (X * X).sum(axis=1) + (1 if learn else 0)
    order, n_iter, residual = list(range(len(X))), 0, np.inf
    while residual > tol * alpha.sum() and n_iter < max_iter:
        n_iter, residual = n_iter + 1, 0.0
        rng.shuffle(order)
        for i in order:
            margin = y[i] * (X[i] @ w + b)
            residual += abs(costs[i] / (1 + np.exp(margin)) - alpha[i])
            low, high = 0.0, costs[i]  # a condition of the minimiser: alpha fits the margin after the step
            for _ in range(60):
                z = (low + high) / 2
                moved = margin + Q[i] * (z - alpha[i])
                low, high = (z, high) if z < costs[i] / (1 + np.exp(moved)) else (low, z)
            w, b = w + y[i] * (z - alpha[i]) * X[i], b + (y[i] * (z - alpha[i]) if learn else 0.0)
            alpha[i] = z
    return w, b, n_iter


DUAL_SOLVERS = {"squared_hinge": solve_dual_squared_hinge, "logistic": solve_dual_logistic}


def solve_exact(
    X, y, C=1.0, sample_weight=None, bias="learn", loss="squared_hinge"
) -> tuple[np.ndarray, float, int]:
    """Return (w, b, steps): the optimum for every solver, by damped Newton with a dense Hessian."""
    learn, s = bias == "learn", weights_of(X, sample_weight)
    A = np.hstack([X, np.ones((len(X), 1))]) if learn else X
    split = lambda u: (u[:-1], u[-1]) if learn else (u, float(bias))
    value = lambda u: objective(*split(u), X, y, C, s, bias, loss)
    u, steps = np.zeros(A.shape[1]), 0
    while steps < 200:
        w, b = split(u)
        m = y * (X @ w + b)
        if loss == "squared_hinge":
            slope, curvature = -2 * np.maximum(0, 1 - m), 2.0 * (m < 1)
        else:
            slope = -np.exp(-np.logaddexp(0, m))
            curvature = -slope * (1 + slope)
        gradient = u + C * A.T @ (s * y * slope)
        if np.abs(gradient).max() <= 1e-10 * max(1, C):
            break
        direction = np.linalg.solve(np.eye(len(u)) + C * (A.T * (s * curvature)) @ A, gradient)
        t = 1.0
        while value(u - t * direction) > value(u) - 1e-4 * t * (gradient @ direction):
            t /= 2
        u, steps = u - t * direction, steps + 1
    w, b = split(u)
    return w, float(b), steps


def solve_resumed(X_old, X, y, prior, C=1.0, bias=-1.0) -> np.ndarray:
    """w after rows X have come to a classifier `prior`, whose old positives are X_old: the optimum of

    ½ |w − prior|² + C Σ over X_old of ((w − prior) · x)² + C Σ over X of max(0, 1 − y (w · x + bias))²
    """
    w = prior.astype(np.float64)
    value = lambda w: (
        ((w - prior) ** 2).sum() / 2
        + C * ((X_old @ (w - prior)) ** 2).sum()
        + C * loss_of(y * (X @ w + bias), "squared_hinge").sum()
    )
    for _ in range(200):
        slack = np.maximum(0, 1 - y * (X @ w + bias))
        gradient = (w - prior) + 2 * C * X_old.T @ (X_old @ (w - prior)) - 2 * C * X.T @ (y * slack)
        if np.abs(gradient).max() <= 1e-10 * max(1, C):
            break
        active = X[slack > 0]
        hessian = np.eye(len(w)) + 2 * C * (X_old.T @ X_old + active.T @ active)
        direction, t = np.linalg.solve(hessian, gradient), 1.0
        while value(w - t * direction) > value(w) - 1e-4 * t * (gradient @ direction):
            t /= 2
        w = w - t * direction
    return w


def train(
    X, Y, sample_weight=None, *, representation="input", n_trees=3, seed=0, C=1.0, loss="squared_hinge",
    solver="dual", tol=0.1, max_iter=20, prune=0.1, bias="learn", normalize=True, trees=None, **tree_params,
) -> list[Node]:  # fmt: skip
    """The roots of the forest. trees: (child_ptr, children, is_leaf) of each tree, in place of clustering.

    solver="dual" follows the coordinate descent pass by pass; "exact" gives the optimum. tree_params: those
    of build_tree.
    """
    features, has = unit_rows(dense(X)) if normalize else dense(X), dense(Y) > 0
    s = weights_of(features, sample_weight)
    kept = np.flatnonzero(s > 0)
    if trees is None:
        V = label_vectors(X, Y, representation, sample_weight, normalize)
        labels = np.flatnonzero(has[kept].any(axis=0))
        forest = [build_tree(V, labels, tree_key(seed, t), **tree_params) for t in range(n_trees)]
    else:
        forest = [unflatten(*flat, tree_key(seed, t)) for t, flat in enumerate(trees)]

    for node in (node for root in forest for node in breadth_first(root)):
        rows = kept if node.level == 1 else kept[has[kept][:, node.labels].any(axis=1)]
        found = []
        for group in [c.labels for c in node.children] or [[l] for l in node.labels]:
            y = np.where(has[rows][:, group].any(axis=1), 1.0, -1.0)
            if solver == "dual":
                rng = Rng(derive(node.key, SOLVER))  # a new one: all classifiers of a node see one order
                args = (features[rows], y, C, s[rows], tol, max_iter, bias, rng)
                found.append(DUAL_SOLVERS[loss](*args))
            else:
                found.append(solve_exact(features[rows], y, C, s[rows], bias, loss))
        W = np.array([w for w, _, _ in found]).reshape(len(found), features.shape[1])
        node.rows, node.W = rows, np.where(np.abs(W) <= prune, 0, W)
        node.b, node.n_iter = np.array([b for _, b, _ in found]), np.array([n for _, _, n in found])
    return forest


def descend(root: Node, x: np.ndarray, beam: int | None, loss: str) -> dict[int, tuple[float, float]]:
    """Return one tree's candidates: label → (log score, raw margin). The beam holds nodes, not labels."""
    found, expanded = {}, [(0.0, root)]
    while expanded:
        reached = []
        for path, node in expanded:
            margins = (node.W * x).sum(axis=1) + node.b
            scores = path - loss_of(margins, loss)
            if node.children:
                reached += zip(scores, margins, node.children, strict=True)
            else:
                found.update(zip(node.labels.tolist(), zip(scores, margins, strict=True), strict=True))
        reached.sort(key=lambda entry: (-entry[0], -entry[1], entry[2].id))
        expanded = [(score, child) for score, _, child in reached[:beam]]
    return found


def log_mean(scores: np.ndarray, n_trees: int) -> float:
    """Return the log of the mean of exp(score); a tree without a score counts as 0."""
    top = scores.max()  # log-sum-exp: no score is lost by underflow
    return float(top + np.log(np.exp(scores - top).sum() / n_trees))


def step_of(x: np.ndarray) -> float:
    """A power of two. Multiples of it, one for each entry of a row, fit into 16 bits, and sums into 32."""
    x = x.astype(np.float32).astype(np.float64)
    most_in_all = 2**31 // 127 - 1
    n = np.count_nonzero(x)
    least = max(np.abs(x).max() / 32767, np.abs(x).sum() / max(most_in_all - n, most_in_all / 2))
    return 2.0 ** np.frexp(least)[1]


def shorten(x: np.ndarray) -> np.ndarray:
    """Return a row with each entry rounded to a multiple of the row's step."""
    x = x.astype(np.float32).astype(np.float64)
    return np.rint(x / step_of(x)) * step_of(x) if x.any() else x


def predict(forest, X, beam=10, loss="squared_hinge", normalize=True) -> list[list[tuple[int, float, float]]]:
    """Return the candidates of each row as (label, log score, margin), best first."""
    ranked = []
    for x in dense(X):
        short = shorten(x) / (np.linalg.norm(x) if normalize and x.any() else 1)
        reached = [descend(root, short, beam, loss) for root in forest] if x.any() else []
        candidates = []
        for l in set().union(*reached):
            scores, margins = np.array([of_tree[l] for of_tree in reached if l in of_tree]).T
            candidates.append((l, log_mean(scores, len(forest)), float(margins.mean())))
        ranked.append(sorted(candidates, key=lambda c: (-c[1], -c[2], c[0])))
    return ranked
