"""Charts as SVG, without scripts and fonts.

Colours are CSS variables of `chart.css`, for light and dark. Series also differ in their marks. Each chart
has a title and a description for screen readers.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bonsai_xmc.metrics._reliability import Reliability

STYLE = Path(__file__).with_name("chart.css").read_text(encoding="utf-8")
SERIES = ("one", "two")
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 24, 38


class Frame:
    """A plane with axes, which maps values to pixels."""

    def __init__(self, width: int, height: int, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.width, self.height, self.x_range, self.y_range = width, height, x, y
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        low, high = self.x_range
        return _LEFT + (value - low) / (high - low) * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.height - _BOTTOM - (value - low) / (high - low) * (self.height - _TOP - _BOTTOM)

    def text(self, x: float, y: float, text: str, anchor: str = "middle", kind: str = "") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'
        )

    def segment(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>')

    def x_ticks(self, ticks: Sequence[tuple[float, str]], label: str) -> None:
        base = self.height - _BOTTOM
        for value, text in ticks:
            self.text(self.x(value), base + 16, text, kind="soft")
        self.text((_LEFT + self.width - _RIGHT) / 2, self.height - 6, label, kind="soft")
        self.segment(_LEFT, base, self.width - _RIGHT, base, "axis")

    def y_ticks(self, values: Sequence[float]) -> None:
        for value in values:
            self.segment(_LEFT, self.y(value), self.width - _RIGHT, self.y(value), "grid")
            self.text(_LEFT - 6, self.y(value) + 4, f"{value:g}", "end", "soft")

    def line(self, points: Sequence[tuple[float, float]], series: str) -> None:
        places = [(self.x(x), self.y(y)) for x, y in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        self.parts.append(f'<path d="M{path}" class="{series} path"/>')
        for x, y in places:
            self.mark(x, y, series)

    def mark(self, x: float, y: float, series: str) -> None:
        """Draw a circle for the first series, a square for the second."""
        if series == SERIES[0]:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="{series}"/>')
        else:
            self.bar(x - 3, y - 3, 6, 6, series)

    def bar(self, x: float, y: float, width: float, height: float, series: str) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, height):.1f}" '
            f'class="{series} bar"/>'
        )

    def svg(self, title: str, description: str) -> str:
        self.text(_LEFT, 14, title, "start")
        return (
            f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}">'
            f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(self.parts)}</svg>"
        )


def round_ticks(high: float, n: int = 4) -> list[float]:
    """Return about n round numbers from 0 to at least `high`."""
    raw = max(high, 1e-9) / n
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * 0.999)
    return [step * i for i in range(max(math.ceil(high / step - 1e-9), 1) + 1)]


def lines(title: str, x: Sequence[Any], series: Mapping[str, Sequence[float]], label: str) -> str:
    """Draw one or two series of values over equally spaced places, one for each x."""
    ticks = round_ticks(max(value for of in series.values() for value in of))
    last = max(1, len(x) - 1)
    frame = Frame(260, 200, (-0.08 * last, 1.08 * last), (0, ticks[-1]))  # with room for labels
    frame.y_ticks(ticks)
    every = math.ceil(len(x) / 10)
    frame.x_ticks([(i, str(at)) for i, at in enumerate(x) if i % every == 0], label)
    for kind, of in zip(SERIES, series.values(), strict=False):
        frame.line(list(enumerate(of)), kind)
    return frame.svg(title, _told(x, series))


def reliability_diagram(title: str, found: Mapping[str, Reliability]) -> str:
    """Draw the share of right predictions by score: dots lie on the diagonal if scores are calibrated."""
    frame = Frame(300, 300, (0, 1), (0, 1))
    ticks = [0, 0.25, 0.5, 0.75, 1]
    frame.y_ticks(ticks)
    frame.x_ticks([(tick, f"{tick:g}") for tick in ticks], "score; bars: share of the predictions")
    frame.segment(frame.x(0), frame.y(0), frame.x(1), frame.y(1), "even")
    for number, (kind, bins) in enumerate(zip(SERIES, found.values(), strict=False)):
        share = bins.count / bins.count.sum()
        for x, height in zip(bins.score.tolist(), share.tolist(), strict=True):
            top = frame.y(0.25 * height)
            frame.parts.append('<g opacity="0.35">')
            frame.bar(frame.x(x) - 4 + 4 * number, top, 4, frame.y(0) - top, kind)
            frame.parts.append("</g>")
        frame.line(list(zip(bins.score.tolist(), bins.right.tolist(), strict=True)), kind)
    told = "; ".join(
        f"{name}: "
        + ", ".join(f"{r:.2f} at {s:.2f}" for s, r in zip(bins.score, bins.right, strict=True))
        + f"; expected calibration error {100 * bins.error:.1f} %"
        for name, bins in found.items()
    )
    return frame.svg(title, f"Share of right predictions at each score. {told}")


def _told(x: Sequence[Any], series: Mapping[str, Sequence[float]]) -> str:
    """Return the numbers of a chart in words."""
    return "; ".join(
        (f"{name}: " if name else "") + ", ".join(f"{v:.1f} at {at}" for at, v in zip(x, values, strict=True))
        for name, values in series.items()
    )
