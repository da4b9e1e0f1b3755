"""Label trees as nested circles (Fig. 3 of the paper): packing, a picture, and a page to explore.

The area of a leaf's circle is its number of labels. Inner circles are the smallest that hold their children,
so their size also shows how much room a deep tree wastes.
"""

import html
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc._tree import LabelTree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Circle = tuple[float, float, float]  # centre and radius

_GAP = 0.03  # room around a circle, as a part of its radius
_SLACK = 1e-10  # circles that overlap by less, relative to their radii, touch
_GRID = 1_000_000  # radius of the whole tree in the numbers of a page: to a pixel at 1,000-fold zoom
_RASTER = 3_000  # more circles than this are pixels in a vector graphic, which would be slow to show


@dataclass(frozen=True, eq=False)
class Circles:
    """Circles of a tree: its nodes in the order of their numbers, then its labels, leaf by leaf.

    Attributes
    ----------
    x, y, radius : arrays of float
        A leaf's circle has its number of labels for an area; the root's has its centre at 0.
    level : array of int
        1 for the root; labels are a level below their leaf.
    parent : array of int
        The circle around; −1 for the root.
    label : array of int
        Id of the label; −1 for nodes.
    size : array of int
        Labels inside; 1 for labels.
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
    """Nested circles of a tree; equal trees give equal circles.

    Parameters
    ----------
    tree : LabelTree
    labels : bool
        Whether each label gets a circle, too; leaves are the innermost circles otherwise.
    gap : float
        Room around each circle, as a part of its radius.

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
    centre = np.zeros((tree.n_nodes, 2))  # within the circle around, then in the plane
    outwards = np.argsort(-tree.levels, kind="stable")
    for node in outwards[~is_leaf[outwards]]:
        below = children[ptr[node] : ptr[node + 1]]
        centres, radius[node] = _pack_siblings(radius[below] * (1 + gap))
        # a quarter turn from level to level, or the nodes of a binary tree would all lie on a line
        centre[below] = centres if tree.levels[node] % 2 else centres[:, ::-1] * (-1, 1)
    for node in outwards[::-1][1:]:
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
    """Centres of circles side by side, and the radius of the smallest circle around them, at 0.

    Front-chain packing: the outermost circles form a ring. The next circle touches two neighbours of the
    ring, near the middle, and joins it between them; a circle of the ring that is in its way takes the place
    of the neighbour on its side, and those between them are inside from then on. Largest circles first.
    """
    order = np.argsort(-radii, kind="stable")
    r = radii[order]
    p = np.zeros((len(r), 2))
    if len(r) > 1:
        distance = r[0] + r[1]
        share = r[0] ** 2 / (r[0] ** 2 + r[1] ** 2)  # the middle is the centre of gravity of these two
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
            way = np.cumsum(2 * r[ring])
            forward, backward = way[hits], way[-1] - way[hits] + 2 * r[ring[hits]]
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
    """Centre of the circle of radius r that touches two others, to the right of the way from a to b."""
    dx, dy = b - a
    distance = math.hypot(dx, dy)
    ux, uy = dx / distance, dy / distance
    # seen from the smaller of the two, whose triangle side loses no digits to a large one
    (x, y), near, far, ahead = (a, ra + r, rb + r, 1) if ra < rb else (b, rb + r, ra + r, -1)
    along = ((distance - far) * (distance + far) + near**2) / (2 * distance)
    aside = math.sqrt(max((near - along) * (near + along), 0.0))
    return x + ahead * along * ux + aside * uy, y + ahead * along * uy - aside * ux


def _enclose(points: Floats, radii: Floats) -> Circle:
    """The smallest circle around circles.

    Up to three of them determine it. While a circle sticks out, the farthest one comes in, and the smallest
    circle around it and the present ones is determined by some of these; it grows, so this ends.
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
            break  # at the limit of floating point: what sticks out is in the radius below
        best, basis = smallest, [*(basis[i] for i in which), farthest]
    return best[0], best[1], float((np.hypot(x - best[0], y - best[1]) + radii).max())


def _within(inner: Circle, outer: Circle) -> bool:
    away = math.hypot(inner[0] - outer[0], inner[1] - outer[1])
    return away + inner[2] <= outer[2] * (1 + 1e-11)


def _circles_around(circles: list[Circle]) -> Iterator[Circle]:
    """Circles that touch one to three given ones from outside, each of which lies inside."""
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
        # |c - p| = R - r for each circle. Less the first one's, the squares are linear: c = u + v R.
        matrix = np.array([(2 * (x - x0), 2 * (y - y0)) for x, y, _ in others])
        squares = [(x - x0) ** 2 + (y - y0) ** 2 + r0**2 - r**2 for x, y, r in others]
        slopes = [2 * (r - r0) for *_, r in others]
        scale = float(np.abs(matrix).max())
        if abs(np.linalg.det(matrix)) <= 1e-12 * scale**2:
            return  # in a line, where two of them do
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
    """Centres of n circles of radius 1 on a hexagonal grid, and the radius of a circle around them, at 0."""
    reach = math.isqrt(n) + 3
    row, column = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
    lattice = np.column_stack([2.0 * column + row % 2, math.sqrt(3) * row])
    best = (lattice, math.inf)
    for middle in ((0, 0), (1, 0), (1, math.sqrt(3) / 3)):  # of a circle, between two, between three
        points = lattice - middle
        angle = np.round(np.arctan2(points[:, 1], points[:, 0]), 9)
        order = np.lexsort((angle, np.round(np.hypot(*points.T), 9)))[:n]
        x, y, radius = _enclose(points[order], np.ones(n))
        if radius < best[1] - 1e-9:
            best = (points[order] - (x, y), radius)
    return best


def draw(axes: Any, circles: Circles, levels: int | None = None) -> Any:
    """Draw circles into axes of matplotlib, darker from level to level.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Becomes a square without frame.
    circles : Circles
    levels : int, optional
        Number of shades, so that pictures of trees with different depths have the same for the same level.
        Default: as many as there are levels.

    Returns
    -------
    matplotlib.collections.EllipseCollection

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> figure = Figure()
    >>> drawn = draw(figure.subplots(), pack(LabelTree.from_nested([[0, 1], [2]])))
    >>> len(drawn.get_offsets())
    6
    """
    try:
        from matplotlib import colormaps
        from matplotlib.collections import EllipseCollection
    except ImportError as error:
        raise ImportError("draw needs the package matplotlib: pip install 'bonsai-xmc[plots]'") from error
    order = np.argsort(circles.level, kind="stable")  # what is inside comes on top
    depth = circles.level.max() if levels is None else max(levels, circles.level.max())
    shade = (circles.level[order] - 1) / max(depth - 1, 1)
    outer = float(circles.radius[0])
    width = 2 * circles.radius[order]
    drawn = EllipseCollection(
        width,
        width,
        np.zeros(len(circles)),
        units="xy",
        offsets=np.column_stack([circles.x, circles.y])[order],
        offset_transform=axes.transData,
        facecolors=colormaps["Blues"](0.08 + 0.87 * shade),
        edgecolors="#08306b",
        linewidths=np.clip(0.6 * np.sqrt(circles.radius[order] / outer), 0.02, 0.5),
        rasterized=len(circles) > _RASTER,
    )
    axes.add_collection(drawn)
    axes.set(xlim=(-1.01 * outer, 1.01 * outer), ylim=(-1.01 * outer, 1.01 * outer), aspect="equal")
    axes.set_axis_off()
    return drawn


def page(
    trees: Mapping[str, LabelTree],
    label_names: Sequence[str],
    counts: npt.ArrayLike | None = None,
    *,
    title: str = "Label trees",
    note: str = "",
) -> str:
    """A page of HTML, complete in itself, in which to zoom into trees, read labels' names and search them.

    Parameters
    ----------
    trees : mapping from str to LabelTree
        Trees to show side by side, by their captions.
    label_names : sequence of str
        Name of each label, by id.
    counts : array-like of int, optional
        Training rows of each label, by id.
    title, note : str
        Heading, and what stands below it.

    Returns
    -------
    str

    Examples
    --------
    >>> text = page({"small": LabelTree.from_nested([[0, 1], [2]])}, ["ash", "beech", "cedar"])
    >>> text.startswith("<!doctype html>")
    True
    """
    if not trees:
        raise ValueError("trees is empty, so there is nothing to show")
    shown = np.unique(np.concatenate([tree.labels() for tree in trees.values()]))
    known = len(label_names) if counts is None else min(len(label_names), len(np.asarray(counts)))
    if len(shown) and shown[-1] >= known:
        raise ValueError(f"the trees hold label {shown[-1]}, but there are {known} names or counts only")
    data = {
        "title": title,
        "note": note,
        "names": [str(label_names[label]) for label in shown.tolist()],
        "counts": None if counts is None else np.asarray(counts)[shown].tolist(),
        "trees": [_tree_data(name, tree, shown) for name, tree in trees.items()],
    }
    # in ASCII, as a broken name could not be written in UTF-8; only "<" could end the element that holds it
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    heading = html.escape(title).encode("ascii", "xmlcharrefreplace").decode()
    folder = files(__package__) / "_circles_page"
    template, style, *scripts = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "style.css", "tree.js", "panel.js", "search.js")
    )
    parts = {"TITLE": heading, "STYLE": style, "SCRIPT": "\n".join(scripts), "DATA": text}
    return re.sub("%([A-Z]+)%", lambda place: parts[place[1]], template)


def _tree_data(name: str, tree: LabelTree, shown: Ints) -> dict[str, Any]:
    """A tree for the page: whole numbers are short and exact enough; labels by their place among `shown`."""
    circles = pack(tree)
    unit = circles.radius[0] / _GRID
    places = {"x": circles.x, "y": circles.y, "radius": circles.radius}
    labels = circles.label[tree.n_nodes :]
    return {
        "name": name,
        "nodes": tree.n_nodes,
        "depth": tree.depth,
        **{key: np.rint(values / unit).astype(int).tolist() for key, values in places.items()},
        "parent": circles.parent.tolist(),
        "label": np.searchsorted(shown, labels).tolist(),
    }
