"""The figures. Colours are those of Okabe and Ito; markers and lines repeat the meaning of the colours."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bonsai_xmc._base.files import replacing
from bonsai_xmc.metrics import TAIL_ROWS

from .published import NAMES
from .results import title_of
from .statistics import PowerLaw, mean_and_sd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442",
)  # fmt: skip
GREY = "#666666"
_CYCLE = (BLUE, SKY, GREEN, VERMILION, GREY, PURPLE, ORANGE)
_COLOURS = {
    "bonsai-i": BLUE,
    "bonsai-o": SKY,
    "bonsai-io": GREEN,
    "parabel": VERMILION,
    "parabel-o": ORANGE,
    "dismec": GREY,
}
_WIDTH = 9.0  # inches
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "svg.hashsalt": "bonsai",  # equal content, equal bytes
    "svg.fonttype": "none",
}

_FORMATS: dict[str, dict[str, Any]] = {"png": {"dpi": 150}, "svg": {"metadata": {"Date": None}}}

Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def require() -> None:
    """Raise an ImportError with the command to install Matplotlib if it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        message = "experiments draw with Matplotlib, which is not installed: pip install 'bonsai-xmc[plots]'"
        raise ImportError(message) from error


def save(draw: "Callable[[], Figure]", path: str, heading: str) -> None:
    """Draw, add the heading (data set and seeds), and write ``path.png`` and ``path.svg`` atomically."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = draw()
        figure.suptitle(heading, x=0.01, ha="left", fontsize=9, color=GREY)
        for ending, options in _FORMATS.items():
            with replacing(f"{path}.{ending}") as file:
                figure.savefig(file, format=ending, **options)


def _figure(height: float, rows: int = 1, columns: int = 1, **options: Any) -> "tuple[Figure, Any]":
    """Return a figure with `rows` × `columns` axes, as an array of that shape."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _colours(names: Sequence[str]) -> list[str]:
    return [_COLOURS.get(name, _CYCLE[i % len(_CYCLE)]) for i, name in enumerate(names)]


def dots(runs: Runs, rows: Sequence[Sequence[str]]) -> "Figure":
    """Draw a panel for each metric, a row for each system: small dots for runs, a diamond for the mean.

    Each panel has its own scale, which does not start at 0, so that differences can be seen.
    """
    names = list(runs)
    figure, grid = _figure(
        0.8 + len(rows) * (0.75 + 0.27 * len(names)), len(rows), max(map(len, rows)), sharey=True
    )
    for axes_row, keys in zip(grid, rows, strict=True):
        for axes, key in zip(axes_row, keys, strict=True):
            for y, (name, colour) in enumerate(zip(names, _colours(names), strict=True)):
                values = [run["metrics"][key] for run in runs[name]]
                axes.plot(values, [y] * len(values), "o", ms=3.5, color=colour, alpha=0.45, mec="none")
                axes.plot(np.mean(values), y, "D", ms=6, color=colour, mec="white", mew=0.7)
            axes.set_title(key)
            axes.margins(x=0.12)
            axes.set_xlabel("%")
        axes_row[0].set_yticks(range(len(names)), [title_of(name) for name in names])
        axes_row[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def times(runs: Runs) -> "Figure":
    """Draw training and prediction times, from 0."""
    names = list(runs)
    panels = {
        "fit_s": "training (s)",
        "predict_ms": "batch prediction (ms per row)",
        "one_row_ms": "single-row latency (ms)",
    }
    figure, grid = _figure(1.15 + 0.32 * len(names), 1, len(panels), sharey=True)
    for axes, (key, title) in zip(grid[0], panels.items(), strict=True):
        summary = [mean_and_sd([run[key] for run in runs[name]]) for name in names]
        means, sds = [m for m, _ in summary], [0.0 if math.isnan(sd) else sd for _, sd in summary]
        axes.barh(
            range(len(names)),
            means,
            xerr=sds,
            color=_colours(names),
            height=0.65,
            ecolor="#222222",
            capsize=2,
        )
        for y, (mean, sd) in enumerate(zip(means, sds, strict=True)):
            axes.annotate(
                f"{mean:.3g}", (mean + sd, y), xytext=(4, 0), textcoords="offset points", va="center"
            )
        axes.margins(x=0.2)
        axes.set_xlim(left=0)
        axes.set_title(title)
        axes.grid(False, axis="y")
    grid[0][0].set_yticks(range(len(names)), [title_of(name) for name in names])
    grid[0][0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def power_law(counts: Any, law: PowerLaw) -> "Figure":
    """Draw label frequencies in descending order, log-log, with the fitted power law."""
    ranks = np.unique(np.rint(np.geomspace(1, len(counts), 400)).astype(int))
    figure, grid = _figure(3.8)
    axes = grid[0][0]
    axes.loglog(ranks, np.asarray(counts)[ranks - 1], "o", ms=3.2, color=BLUE, mec="none", label="labels")
    label = f"$N_r$ = {law.scale:,.0f} $r^{{-{law.exponent:.2f}}}$ ($R^2$ = {law.r_squared:.2f})"
    axes.loglog(ranks, law.scale * ranks**-law.exponent, "-", color=VERMILION, lw=1.5, label=label)
    axes.axhline(TAIL_ROWS, color=GREY, lw=1, ls="--", label=f"{TAIL_ROWS} training rows")
    axes.set_ylim(0.7, 2 * max(counts[0], law.scale))
    axes.set_xlabel("rank of the label")
    axes.set_ylabel("training rows")
    axes.legend(frameon=False)
    return figure


def partitions(trees: Mapping[str, Any]) -> "Figure":
    """Draw label trees as nested circles, side by side."""
    from . import circles, packing

    figure, grid = _figure(0.55 + _WIDTH / 2, 1, len(trees))
    levels = max(tree.depth for tree in trees.values())
    for axes, (title, tree) in zip(grid[0], trees.items(), strict=True):
        circles.draw(axes, packing.pack(tree, labels=False), levels)
        axes.set_title(title)
    return figure


class _Curve(NamedTuple):
    """A curve of the depth figure; markers of one tree are empty."""

    title: str
    marker: str
    line: str
    filled: bool

    def look(self, colour: str) -> dict[str, Any]:
        inside = colour if self.filled else "white"
        return {"marker": self.marker, "ls": self.line, "color": colour, "mfc": inside, "ms": 4.5, "lw": 1.3}


DEPTH_CURVES = {
    "metrics": _Curve("three trees, equal beam", "o", "-", True),
    "equal": _Curve("three trees, equal number of classifiers", "s", "--", True),
    "dropped": _Curve("three trees, early leaves dropped", "^", ":", True),
    "single": _Curve("one tree, equal beam", "D", "-", False),
    "single dropped": _Curve("one tree, early leaves dropped", "v", ":", False),
}
_CUTOFF_COLOURS = {1: BLUE, 3: GREEN, 5: VERMILION}


def depth_curves(
    runs: Mapping[int, Sequence[Mapping[str, Any]]], paper: Mapping[str, Any], reference: str | None
) -> "Figure":
    """Draw P@k and nDCG@k by depth; on the right the change from the shallowest tree, and the paper's."""
    figure, grid = _figure(7.4, 2, 2)
    depths = list(runs)
    for (left, right), metric, cut in zip(grid, ("P", "nDCG"), (1, 5), strict=True):
        for name, curve in DEPTH_CURVES.items():
            for k, colour in _CUTOFF_COLOURS.items():
                summary = [mean_and_sd([run[name][f"{metric}@{k}"] for run in runs[d]]) for d in depths]
                means, sds = (np.array(column) for column in zip(*summary, strict=True))
                left.errorbar(depths, means, np.nan_to_num(sds), **curve.look(colour), capsize=2)
                if k == cut:
                    right.plot(depths, means - means[0], **curve.look(BLUE))
        left.set_title(f"{metric}@k, measured")
        left.set_ylabel(f"{metric}@k (%)")
        _paper_change(right, paper, reference, ("P", "nDCG").index(metric), (1, 3, 5).index(cut))
        right.set_title(f"{metric}@{cut}: change from the shallowest tree")
        right.set_ylabel("points")
        right.axhline(0, color=GREY, lw=0.8)
        for axes in (left, right):
            axes.set_xlabel("tree depth")
            axes.set_xticks(depths)
    _depth_legend(figure, *grid[0][1].get_legend_handles_labels())
    return figure


def _depth_legend(figure: "Figure", paper_lines: list[Any], paper_labels: list[str]) -> None:
    """Draw one legend for all panels: the lines, the colours on the left, and the paper's sets."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], **curve.look(GREY)) for curve in DEPTH_CURVES.values()]
    lines += [Line2D([], [], color=colour, lw=3) for colour in _CUTOFF_COLOURS.values()]
    labels = [curve.title for curve in DEPTH_CURVES.values()] + [f"left: @{k}" for k in _CUTOFF_COLOURS]
    figure.legend(
        lines + paper_lines,
        labels + paper_labels,
        frameon=False,
        fontsize=8,
        loc="outside lower center",
        ncols=3,
    )


def _paper_change(
    axes: "Axes", paper: Mapping[str, Any], reference: str | None, metric: int, cut: int
) -> None:
    """Draw the paper's curves as change from its shallowest tree; that of the related set is bolder."""
    for (name, curve), colour, marker in zip(paper.items(), (VERMILION, PURPLE, ORANGE), "xv+", strict=True):
        first = curve[min(curve)][metric][cut]
        change = [curve[d][metric][cut] - first for d in curve]
        width = 1.8 if name == reference else 1.0
        axes.plot(
            list(curve),
            change,
            marker=marker,
            ls="-",
            color=colour,
            lw=width,
            ms=5,
            label=f"right: paper †, {NAMES[name]}",
        )


SURVIVAL_BEAMS = (10, 1)


def survival(runs: Runs, step: float) -> "Figure":
    """Draw the share of true labels whose path is still in the beam, after each step down."""
    figure, grid = _figure(4.15, 1, 2, sharey=True)
    longest = max(run["steps"] for of in runs.values() for run in of)
    for axes, group, title in zip(
        grid[0], ("all", "tail"), ("all labels", f"tail labels (fewer than {TAIL_ROWS} rows)"), strict=True
    ):
        for name, colour in zip(runs, _colours(list(runs)), strict=True):
            for beam, line, marker in zip(SURVIVAL_BEAMS, ("-", "--"), "os", strict=True):
                curves = [run[f"beam {beam}"][group] for run in runs[name] if run[f"beam {beam}"][group]]
                if curves:
                    length = max(map(len, curves))
                    mean = np.mean([c + [c[-1]] * (length - len(c)) for c in curves], axis=0)
                    label = f"{title_of(name)}, beam {beam}"
                    axes.plot(
                        range(length + 1),
                        [100, *(100 * mean)],
                        marker + line,
                        color=colour,
                        ms=4,
                        lw=1.6,
                        label=label,
                    )
        steps = np.arange(longest + 1)
        axes.plot(
            steps, 100 * step**steps, ":", color="#222222", lw=1.6, label=f"paper †: {step}$^{{steps}}$"
        )
        axes.set_title(title)
        axes.set_xlabel("steps down the tree")
        axes.set_xticks(steps if longest < 12 else steps[::2])
    grid[0][0].set_ylabel("true labels still in the beam (%)")
    grid[0][0].set_ylim(0, 104)
    lines, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=len(labels))
    return figure
