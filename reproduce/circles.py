"""Label trees as nested circles: the figure, and an interactive HTML page."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc._data.tree import LabelTree

from .packing import Circles, Ints, pack

_GRID = 1_000_000  # radius of the root in the integers of a page: one pixel at 1,000-fold zoom
_RASTER = 3_000  # more circles than this are drawn as pixels in a vector graphic, which would be slow to show


def draw(axes: Any, circles: Circles, levels: int | None = None) -> Any:
    """Draw circles into axes of Matplotlib; deeper levels are darker.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Set to equal aspect, without a frame.
    circles : Circles
    levels : int, optional
        Number of shades, so that trees of different depths use the same shade for the same level. Default:
        the number of levels.

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
    order = np.argsort(circles.level, kind="stable")  # inner circles are drawn last
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
    """Return a self-contained HTML page to zoom into label trees, show and search the names of labels.

    Parameters
    ----------
    trees : mapping from str to LabelTree
        Trees to show side by side, by caption.
    label_names : sequence of str
        Name of each label, by id.
    counts : array-like of int, optional
        Training rows of each label, by id.
    title, note : str
        Heading, and a line below it.

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
    # ASCII, since a name with lone surrogates cannot be encoded in UTF-8; "<" could end the script element.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    heading = html.escape(title).encode("ascii", "xmlcharrefreplace").decode()
    folder = files(__package__) / "circles_page"
    template, style, *scripts = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "style.css", "tree.js", "panel.js", "search.js")
    )
    parts = {"TITLE": heading, "STYLE": style, "SCRIPT": "\n".join(scripts), "DATA": text}
    return re.sub("%([A-Z]+)%", lambda place: parts[place[1]], template)


def _tree_data(name: str, tree: LabelTree, shown: Ints) -> dict[str, Any]:
    """Return a tree for the page: coordinates as integers, labels as indices into `shown`."""
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
