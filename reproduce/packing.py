"""Circle packing: a label tree as nested circles (Figure 3 of the paper).

The area of a leaf's circle is its number of labels. An inner circle is the smallest that holds its children.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from bonsai_xmc._data.tree import LabelTree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Circle = tuple[float, float, float]  # x, y and radius

_GAP = 0.03  # margin around a circle, relative to its radius
_SLACK = 1e-10  # circles that overlap by less than this, relative to their radii, count as touching


@dataclass(frozen=True, eq=False)
class Circles:
    """Circles of a tree: its nodes by index, then its labels, leaf by leaf.

    Attributes
    ----------
    x, y, radius : arrays of float
        The area of a leaf is its number of labels; the centre of the root is at 0.
    level : array of int
        1 for the root; labels are a level below their leaf.
    parent : array of int
        Index of the enclosing circle; −1 for the root.
    label : array of int
        Id of the label; −1 for nodes.
    size : array of int
        Number of labels inside; 1 for labels.
    """

    x: Floats
    y: Floats
    radius: Floats
    level: Ints
    parent: Ints
    label: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.x)


def pack(tree: LabelTree, labels: bool = True, gap: float = _GAP) -> Circles:
    """Pack a tree into nested circles; equal trees give equal circles.

    Parameters
    ----------
    tree : LabelTree
    labels : bool
        Whether labels have circles, too. Otherwise leaves are the innermost circles.
    gap : float
        Margin around each circle, relative to its radius.

    Returns
    -------
    Circles

    Examples
    --------
    >>> circles = pack(LabelTree.from_nested([[0, 1, 2, 3], [4]]), labels=False)
    >>> np.round(np.pi * circles.radius[1:] ** 2, 6).tolist()
    [4.0, 1.0]
    """
    if not tree.n_labels:
        raise ValueError("the tree holds no labels, so there is nothing to draw")
    ptr, children, is_leaf = tree.arrays["child_ptr"], tree.arrays["children"], tree.arrays["is_leaf"]
    radius = np.sqrt(tree.sizes / np.pi)
    centre = np.zeros((tree.n_nodes, 2))  # relative to the enclosing circle, then absolute
    bottom_up = np.argsort(-tree.levels, kind="stable")
    for node in bottom_up[~is_leaf[bottom_up]]:
        below = children[ptr[node] : ptr[node + 1]]
        centres, radius[node] = _pack_siblings(radius[below] * (1 + gap))
        # Rotated by 90° from level to level: otherwise all nodes of a binary tree would lie on one line.
        centre[below] = centres if tree.levels[node] % 2 else centres[:, ::-1] * (-1, 1)
    for node in bottom_up[::-1][1:]:
        centre[node] += centre[tree.parents[node]]
    parts = [centre, radius, tree.levels, tree.parents, np.full(tree.n_nodes, -1), tree.sizes]
    if labels:
        leaves = np.flatnonzero(is_leaf)
        counts = tree.sizes[leaves]
        grids = [_grid(n) for n in counts.tolist()]
        scale = np.repeat(radius[leaves] / [outer for _, outer in grids], counts)
        around = np.repeat(leaves, counts)
        inner = centre[around] + scale[:, None] * np.concatenate([points for points, _ in grids])
        below = children[np.repeat(is_leaf, np.diff(ptr))]
        ones = np.ones(len(below), np.int64)
        more = [inner, scale / (1 + gap), tree.levels[around] + 1, around, below, ones]
        parts = [np.concatenate(pair) for pair in zip(parts, more, strict=True)]
    (x, y), (level, parent, label, size) = parts[0].T, (part.astype(np.int64) for part in parts[2:])
    return Circles(x.copy(), y.copy(), parts[1], level, parent, label, size)


def _pack_siblings(radii: Floats) -> tuple[Floats, float]:
    """Return centres of disjoint circles, and the radius of their smallest enclosing circle around 0.

    Front-chain packing, largest circles first: the outermost circles form a ring. The next circle is placed
    so that it touches two neighbours of the ring, near the middle, and joins the ring between them. If it
    overlaps a circle of the ring, that one replaces the neighbour on its side, and the circles between them
    leave the ring.
    """
    order = np.argsort(-radii, kind="stable")
    r = radii[order]
    p = np.zeros((len(r), 2))
    if len(r) > 1:
        distance = r[0] + r[1]
        share = r[0] ** 2 / (r[0] ** 2 + r[1] ** 2)  # the origin is the centre of gravity of these two
        p[0, 0], p[1, 0] = (share - 1) * distance, share * distance
    ring = np.arange(min(len(r), 2))  # counter-clockwise
    for i in range(2, len(r)):
        after = np.roll(ring, -1)
        sums = (r[ring] + r[after])[:, None]
        contact = (p[ring] * r[after, None] + p[after] * r[ring, None]) / sums
        ring = np.roll(ring, -int(np.hypot(*contact.T).argmin()) - 1)
        while True:
            p[i] = _touching(p[ring[-1]], r[ring[-1]], p[ring[0]], r[ring[0]], r[i])
            others = ring[1:-1]
            away = np.hypot(*(p[others] - p[i]).T)
            hits = 1 + np.flatnonzero(away < (r[others] + r[i]) * (1 - _SLACK))
            if not len(hits):
                break
            length = np.cumsum(2 * r[ring])  # along the ring
            forward, backward = length[hits], length[-1] - length[hits] + 2 * r[ring[hits]]
            if forward.min() <= backward.min():
                ring = ring[hits[forward.argmin()] :]
            else:
                ring = ring[: hits[backward.argmin()] + 1]
        ring = np.append(ring, i)
    x, y, radius = _enclose(p, r)
    centres = np.empty_like(p)
    centres[order] = p - (x, y)
    return centres, radius


def _touching(a: Floats, ra: float, b: Floats, rb: float, r: float) -> tuple[float, float]:
    """Return the centre of the circle of radius r that touches two others, to the right of the line a b."""
    dx, dy = b - a
    distance = math.hypot(dx, dy)
    ux, uy = dx / distance, dy / distance
    # Relative to the smaller of the two: a small triangle side would lose digits to a large one.
    (x, y), near, far, ahead = (a, ra + r, rb + r, 1) if ra < rb else (b, rb + r, ra + r, -1)
    along = ((distance - far) * (distance + far) + near**2) / (2 * distance)
    aside = math.sqrt(max((near - along) * (near + along), 0.0))
    return x + ahead * along * ux + aside * uy, y + ahead * along * uy - aside * ux


def _enclose(points: Floats, radii: Floats) -> Circle:
    """Return the smallest circle that encloses the given ones.

    It is determined by up to three of them, the basis. While some circle is not enclosed, the farthest one
    joins the basis, and the smallest circle that encloses the basis is determined by a part of it. The radius
    grows in each step, so this ends.
    """
    x, y = points.T
    first = int(radii.argmax())
    basis = [first]
    best: Circle = (float(x[first]), float(y[first]), float(radii[first]))
    while True:
        reach = np.hypot(x - best[0], y - best[1]) + radii
        farthest = int(reach.argmax())
        if reach[farthest] <= best[2] * (1 + 1e-12):
            break
        circles: list[Circle] = [(float(x[i]), float(y[i]), float(radii[i])) for i in (*basis, farthest)]
        found = [
            (circle, which)
            for k in range(min(3, len(circles)))
            for which in itertools.combinations(range(len(basis)), k)
            for circle in _circles_around([*(circles[i] for i in which), circles[-1]])
            if all(_within(inner, circle) for inner in circles)
        ]
        smallest, which = min(found, key=lambda pair: pair[0][2], default=(best, ()))
        if smallest[2] <= best[2]:
            break  # at the limit of floating point; the radius returned below encloses all
        best, basis = smallest, [*(basis[i] for i in which), farthest]
    return best[0], best[1], float((np.hypot(x - best[0], y - best[1]) + radii).max())


def _within(inner: Circle, outer: Circle) -> bool:
    away = math.hypot(inner[0] - outer[0], inner[1] - outer[1])
    return away + inner[2] <= outer[2] * (1 + 1e-11)


def _circles_around(circles: list[Circle]) -> Iterator[Circle]:
    """Return the circles that are tangent to one to three given ones and enclose them."""
    (x0, y0, r0), *others = circles
    if not others:
        yield x0, y0, r0
    elif len(others) == 1:
        x, y, r = others[0]
        distance = math.hypot(x - x0, y - y0)
        if distance > abs(r - r0):
            radius = (distance + r + r0) / 2
            share = (radius - r0) / distance
            yield x0 + share * (x - x0), y0 + share * (y - y0), radius
    else:
        # |c − p| = R − r for each circle. Squared, minus the first one's, they are linear: c = u + v R.
        matrix = np.array([(2 * (x - x0), 2 * (y - y0)) for x, y, _ in others])
        squares = [(x - x0) ** 2 + (y - y0) ** 2 + r0**2 - r**2 for x, y, r in others]
        slopes = [2 * (r - r0) for *_, r in others]
        scale = float(np.abs(matrix).max())
        if abs(np.linalg.det(matrix)) <= 1e-12 * scale**2:
            return  # collinear: two of them determine the circle
        u, v = np.linalg.solve(matrix, np.transpose([squares, slopes])).T
        a, b, c = float(v @ v - 1), float(u @ v + r0), float(u @ u - r0**2)
        if abs(a) <= 1e-12:
            roots = [-c / (2 * b)] if b else []
        else:
            root = math.sqrt(max(b * b - a * c, 0.0))
            roots = [(-b - root) / a, (-b + root) / a]
        for radius in roots:
            if radius >= max(r for *_, r in circles):
                yield x0 + u[0] + v[0] * radius, y0 + u[1] + v[1] * radius, radius


@cache
def _grid(n: int) -> tuple[Floats, float]:
    """Return centres of n unit circles on a hexagonal grid, and the radius of an enclosing circle at 0."""
    reach = math.isqrt(n) + 3
    row, column = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
    lattice = np.column_stack([2.0 * column + row % 2, math.sqrt(3) * row])
    best = (lattice, math.inf)
    for middle in ((0, 0), (1, 0), (1, math.sqrt(3) / 3)):  # centred on a circle, between two, between three
        points = lattice - middle
        angle = np.round(np.arctan2(points[:, 1], points[:, 0]), 9)
        order = np.lexsort((angle, np.round(np.hypot(*points.T), 9)))[:n]
        x, y, radius = _enclose(points[order], np.ones(n))
        if radius < best[1] - 1e-9:
            best = (points[order] - (x, y), radius)
    return best
