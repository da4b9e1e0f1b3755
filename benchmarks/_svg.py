"""Charts of reports as files of their own."""

import math
from collections.abc import Sequence

from bonsai_xmc.metrics._report import charts


def standalone(diagrams: Sequence[str], columns: int = 1) -> str:
    """Put charts of equal size side by side in one file, which follows the choice of light or dark.

    It has a background of its own, as the page around it may not follow.
    """
    sizes = [tuple(map(int, chart.split('viewBox="0 0 ')[1].split('"')[0].split())) for chart in diagrams]
    width, height = max(w for w, _ in sizes), max(h for _, h in sizes)
    rows = math.ceil(len(diagrams) / columns)
    inner = "".join(
        chart.replace("<svg ", f'<svg x="{i % columns * width}" y="{i // columns * height}" ', 1)
        for i, chart in enumerate(diagrams)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * width}" height="{rows * height}" '
        f'viewBox="0 0 {columns * width} {rows * height}"><style>{charts.STYLE}</style>'
        f'<rect width="100%" height="100%" fill="var(--back)"/>{inner}</svg>\n'
    )
