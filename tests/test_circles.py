"""Nested circles of label trees: geometry, picture and page."""

import json
import math
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from reproduce.circles import draw, page
from reproduce.packing import _enclose, _grid, _pack_siblings, pack
from scipy.optimize import minimize

from bonsai_xmc import LabelTree

SHAPES = st.recursive(
    st.integers(1, 12), lambda inner: st.lists(inner, min_size=1, max_size=7), max_leaves=40
)
RADII = st.lists(st.floats(0.01, 100), min_size=1, max_size=40).map(np.array)
TREE = [[0, 1, 2], [[3], [4, 5]]]
NAMES = ["ash", "beech", "cedar", "dogwood", "elm", "fir"]


def tree_of(shape):
    """A tree with leaves of the given sizes; labels are numbered from the last leaf on."""
    ids = iter(range(10_000, 0, -1))

    def nested(part):
        return [next(ids) for _ in range(part)] if isinstance(part, int) else [nested(p) for p in part]

    return LabelTree.from_nested(nested(shape))


def overlap(x, y, radius):
    """Return the largest overlap of two circles, relative to the sum of their radii."""
    away = np.hypot(x[:, None] - x, y[:, None] - y)
    np.fill_diagonal(away, np.inf)
    return float((1 - away / (radius[:, None] + radius)).max())


def check(circles):
    """Check that siblings do not overlap and that each circle lies within its parent."""
    for around in np.unique(circles.parent[1:]):
        inside = np.flatnonzero(circles.parent == around)
        x, y, radius = circles.x[inside], circles.y[inside], circles.radius[inside]
        assert overlap(x, y, radius) <= 1e-9
        reach = np.hypot(x - circles.x[around], y - circles.y[around]) + radius
        assert reach.max() <= circles.radius[around] * (1 + 1e-9)


# --- geometry -------------------------------------------------------------------------------------


def test_two_leaves_by_hand():
    circles = pack(LabelTree.from_nested([[0, 1, 2, 3], [4]]), labels=False, gap=0)
    large, small = 2 / math.sqrt(math.pi), 1 / math.sqrt(math.pi)
    assert circles.radius == pytest.approx([large + small, large, small])
    assert (circles.x[0], circles.y[0]) == (0, 0)
    assert math.hypot(*(circles.x[1:] - [0, 0]).tolist()) > 0
    assert math.hypot(circles.x[1] - circles.x[2], circles.y[1] - circles.y[2]) == pytest.approx(
        large + small
    )
    assert circles.level.tolist() == [1, 2, 2] and circles.parent.tolist() == [-1, 0, 0]
    assert circles.size.tolist() == [5, 4, 1] and circles.label.tolist() == [-1, -1, -1]


def test_three_equal_circles_by_hand():
    centres, radius = _pack_siblings(np.ones(3))
    assert radius == pytest.approx(1 + 2 / math.sqrt(3))
    assert np.hypot(*centres.T) == pytest.approx([2 / math.sqrt(3)] * 3)


def test_labels_follow_the_nodes():
    circles = pack(LabelTree.from_nested([[7, 3], [[5], [9, 1]]]))
    assert circles.label.tolist() == [-1] * 5 + [3, 7, 5, 1, 9]
    assert circles.parent.tolist() == [-1, 0, 0, 2, 2, 1, 1, 3, 4, 4]
    assert circles.level.tolist() == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4]
    assert circles.size.tolist() == [5, 2, 3, 1, 2] + [1] * 5


@settings(max_examples=80, deadline=None)
@given(SHAPES, st.sampled_from([0, 0.03, 0.5]))
def test_circles_of_any_tree_nest_and_do_not_overlap(shape, gap):
    tree = tree_of(shape)
    circles = pack(tree, gap=gap)
    check(circles)
    leaves = np.flatnonzero(tree.arrays["is_leaf"])
    assert np.pi * circles.radius[leaves] ** 2 == pytest.approx(tree.sizes[leaves])
    assert sorted(circles.label[tree.n_nodes :]) == tree.labels().tolist()
    nodes = pack(tree, labels=False, gap=gap)
    assert len(nodes) == tree.n_nodes
    assert np.array_equal(nodes.radius, circles.radius[: tree.n_nodes])
    again = pack(tree_of(shape), gap=gap)
    assert all(np.array_equal(getattr(again, key), value) for key, value in vars(circles).items())


@settings(max_examples=150, deadline=None)
@given(RADII)
def test_siblings_of_any_size_do_not_overlap(radii):
    centres, outer = _pack_siblings(radii)
    assert overlap(*centres.T, radii) <= 1e-9
    assert (np.hypot(*centres.T) + radii).max() <= outer * (1 + 1e-12)
    assert (radii**2).sum() >= 0.2 * outer**2 or len(radii) < 3  # densely packed


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-9, 9)] * 2, st.floats(0.1, 5)), min_size=1, max_size=12))
def test_no_circle_around_circles_is_smaller(circles):
    x, y, radii = np.array(circles).T
    *centre, radius = _enclose(np.column_stack([x, y]), radii)

    def reach(at):
        return (np.hypot(x - at[0], y - at[1]) + radii).max()

    assert reach(centre) == radius
    starts = [centre, (x.mean(), y.mean())]
    best = min(minimize(reach, at, method="Nelder-Mead", options={"xatol": 1e-8}).fun for at in starts)
    assert radius <= best * (1 + 1e-6)


@pytest.mark.parametrize("n", [*range(1, 40), 1000])
def test_equal_circles_are_packed_densely_without_overlap(n):
    points, outer = _grid(n)
    assert len(points) == n
    assert overlap(*points.T, np.ones(n)) <= 1e-12
    assert (np.hypot(*points.T) + 1).max() <= outer * (1 + 1e-12)
    assert n / outer**2 >= (0.85 if n == 1000 else 0.5)


@pytest.mark.parametrize("nested", [[4], [[4]], [[[4]]], [[[4, 2], [1]]]])
def test_single_labels_and_single_children(nested):
    tree = LabelTree.from_nested(nested)
    circles = pack(tree)
    check(circles)
    assert circles.radius.min() > 0
    assert (circles.x[0], circles.y[0]) == (0, 0)
    for around, inside in enumerate(circles.parent):
        assert inside < 0 or circles.radius[around] < circles.radius[inside]


def test_tens_of_thousands_of_labels_can_be_packed():
    """A leaf with very many labels, a node with very many children, and a usual tree."""
    ids = np.arange(30_000)
    circles = pack(LabelTree.from_nested(ids.tolist()))
    assert len(circles) == 30_001 and circles.radius[1:].sum() > 0
    check(pack(LabelTree.from_nested([[i] for i in range(2000)])))
    check(pack(LabelTree.from_nested([part.tolist() for part in np.array_split(ids, 300)])))


def test_a_tree_without_labels_is_an_error():
    with pytest.raises(ValueError, match="the tree holds no labels"):
        pack(LabelTree([0, 0], [], [True]))


# --- picture --------------------------------------------------------------------------------------


def test_deeper_circles_are_drawn_darker(tmp_path):
    figure = Figure(figsize=(3, 3))
    axes = figure.subplots()
    circles = pack(LabelTree.from_nested(TREE))
    drawn = draw(axes, circles)
    assert len(drawn.get_offsets()) == len(circles) == 11
    figure.savefig(tmp_path / "tree.png", dpi=100)
    outer = circles.radius[0]
    assert axes.get_xlim()[0] < -outer and axes.get_ylim()[1] > outer
    light = drawn.get_facecolors()[:, :3].sum(1)
    level = np.sort(circles.level)
    assert (np.diff(light)[np.diff(level) > 0] < 0).all() and (np.diff(light)[np.diff(level) == 0] == 0).all()


def test_shades_are_those_of_the_deeper_tree():
    axes = Figure().subplots()
    flat, deep = pack(LabelTree.from_nested([[0], [1]])), pack(LabelTree.from_nested([[[[0]]]]))
    shared = [draw(axes, circles, levels=5).get_facecolors() for circles in (flat, deep)]
    assert np.array_equal(shared[0][1], shared[1][1])
    assert not np.array_equal(draw(axes, flat).get_facecolors()[1], shared[1][1])


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'bonsai-xmc\[plots\]'"):
        draw(None, pack(LabelTree.from_nested(TREE)))


# --- page -----------------------------------------------------------------------------------------

HOSTILE = "</script><img src=x onerror=\"document.title='broken'\"><!-- <script> &lt; \ud800 %DATA%"


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_page_contains_each_label_once_in_each_tree():
    trees = {"deep": LabelTree.from_nested(TREE), "flat": LabelTree.from_nested([[5, 0], [3]])}
    data = data_of(page(trees, NAMES, counts=[5, 4, 3, 2, 1, 9], title="Trees", note="Some."))
    assert data["names"] == NAMES and data["counts"] == [5, 4, 3, 2, 1, 9]
    assert (data["title"], data["note"]) == ("Trees", "Some.")
    for shown, (name, tree) in zip(data["trees"], trees.items(), strict=True):
        assert shown["name"] == name and shown["depth"] == tree.depth and shown["nodes"] == tree.n_nodes
        assert sorted(shown["label"]) == tree.labels().tolist()
        circles = pack(tree)
        assert shown["parent"] == circles.parent.tolist()
        unit = circles.radius[0] / 1e6
        for key in ("x", "y", "radius"):
            assert np.array(shown[key]) * unit == pytest.approx(getattr(circles, key), abs=unit)


def test_page_leaves_out_labels_in_no_tree():
    data = data_of(page({"a": LabelTree.from_nested([[1], [4]])}, NAMES))
    assert data["names"] == ["beech", "elm"] and data["counts"] is None
    assert data["trees"][0]["label"] == [0, 1]


def test_names_are_escaped_in_the_page():
    tree = LabelTree.from_nested([[0], [1]])
    plain = page({"a": tree}, ["x", "y"], title="t", note="n")
    text = page({HOSTILE: tree}, [HOSTILE, "y"], title=HOSTILE, note=HOSTILE)
    data = data_of(text)
    assert text.encode()  # a lone surrogate in a name is allowed
    assert data["names"][0] == data["title"] == data["note"] == data["trees"][0]["name"] == HOSTILE
    for sign in ("<script", "</script", "<!--", "<img", "onerror"):
        extra = 5 if sign == "onerror" else 0  # as text: in the data four times, escaped in the title
        assert text.count(sign) == plain.count(sign) + extra


def test_page_loads_no_external_files():
    text = page({"a": LabelTree.from_nested(TREE)}, NAMES)
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(|\bsrc=|fetch\(|XMLHttp|import\(", text)
    assert not re.findall("%[A-Z]+%", text)


def test_page_rejects_labels_without_a_name_or_count():
    tree = LabelTree.from_nested([[0], [6]])
    with pytest.raises(ValueError, match="the trees hold label 6, but there are 6 names or counts only"):
        page({"a": tree}, NAMES)
    with pytest.raises(ValueError, match="the trees hold label 6, but there are 2 names or counts only"):
        page({"a": tree}, [*NAMES, "gum"], counts=[1, 2])
    with pytest.raises(ValueError, match="trees is empty"):
        page({}, NAMES)


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
def test_page_in_a_browser(tmp_path):
    """The script runs to its end, shows captions and titles as text, and hostile names do nothing."""
    file, name = tmp_path / "page.html", HOSTILE.replace("\ud800", "")  # which would spoil the output
    trees = {"a": LabelTree.from_nested(TREE), name: LabelTree.from_nested([[0, 1]])}
    file.write_text(page(trees, [name] * 6), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    options = [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", file.as_uri()]
    run = subprocess.run(command + options, capture_output=True, text=True, timeout=120)
    shown = run.stdout.partition("<main")[2].partition("</main>")[0]
    assert shown.count("<canvas") == 2 and shown.count("all labels") == 2
    assert "6 labels, 5 nodes, 3 levels" in shown
    assert "&lt;/script&gt;&lt;img" in shown
    assert "<img" not in run.stdout and "<title>Label trees</title>" in run.stdout
