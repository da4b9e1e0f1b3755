"""What an experiment hands over: numbers, tables, a picture and what they say, before anything is written."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _published
from ._statistics import mean_and_sd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._bench import Bench

#: Marks a number that was published and not measured here.
PUBLISHED = "†"

#: How systems are called in tables and pictures.
TITLES = {
    "bonsai-i": "Bonsai-i",
    "bonsai-o": "Bonsai-o",
    "bonsai-io": "Bonsai-io",
    "parabel": "Parabel",
    "parabel-o": "Parabel-o",
    "dismec": "DiSMEC",
}


@dataclass
class Table:
    """A table to read: cells are texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Result:
    """An experiment on one data set.

    Attributes
    ----------
    numbers : list of dict
        Plain numbers, one line for each run: the CSV file.
    tables : list of Table
        Summaries to read.
    findings : list of str
        What the numbers say, in sentences.
    caption : str
        How the numbers came about.
    draw : callable, optional
        Makes the picture.
    alt : str
        What the picture shows, for those who do not see it.
    pages : dict
        Further files by name: interactive pages.
    """

    numbers: list[dict[str, Any]]
    tables: list[Table]
    findings: list[str] = field(default_factory=list)
    caption: str = ""
    draw: "Callable[[], Figure] | None" = None
    alt: str = ""
    pages: dict[str, str] = field(default_factory=dict)


class Experiment(NamedTuple):
    """An experiment of the paper.

    Attributes
    ----------
    place : str
        Where in the paper.
    claim : str
        What the paper says there.
    run : callable
        Runs it on a bench.
    published : callable
        The paper's own tables; may be empty.
    """

    title: str
    place: str
    claim: str
    run: "Callable[[Bench], Result]"
    published: Callable[[], list[Table]] = list


def title_of(name: str) -> str:
    """How a system is called."""
    return TITLES.get(name, name)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation.

    >>> spread([1.0, 3.0]), spread([2.0]), spread([])
    ('2.00 ± 1.41', '2.00', '–')
    """
    if not len(values):
        return "–"
    mean, sd = mean_and_sd(values)
    return f"{mean:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def signed(value: float, digits: int = 2) -> str:
    """A difference, with its sign and a proper minus.

    >>> signed(-0.5), signed(1.0)
    ('−0.50', '+1.00')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def printed(value: float) -> str:
    """A published number with one decimal or two.

    >>> printed(83.0), printed(73.57), printed(81.627)
    ('83.0', '73.57', '81.63')
    """
    return f"{value:.2f}".removesuffix("0")


def p_text(p: float) -> str:
    """A p-value to read.

    >>> p_text(0.04), p_text(0.0002), p_text(float("nan"))
    ('p = 0.040', 'p < 0.001', 'no test')
    """
    if math.isnan(p):
        return "no test"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def flat(name: str, runs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Lines for the CSV file: these metrics of each run of a system."""
    return [
        {"system": name, "seed": seed, **{key: run["metrics"][key] for key in keys}}
        for seed, run in enumerate(runs)
    ]


def measured_table(
    title: str,
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    keys: Sequence[str],
    paper: str | None = None,
    published: Mapping[str, Sequence[float]] | None = None,
    note: str = "",
) -> Table:
    """Systems × metrics, mean ± sd; the paper's numbers for a data set stand beside them where it has some.

    `published` holds a system's numbers in the order of `keys`; systems with nothing else get a line too.
    """
    published = published or {}
    columns = ["", *keys]
    if published and paper:
        columns += [f"{key}, {_published.NAMES[paper]} {PUBLISHED}" for key in keys]
    rows = []
    for name in [*runs, *(name for name in published if name not in runs)]:
        ours = [spread([run["metrics"][key] for run in runs.get(name, ())]) for key in keys]
        theirs = [printed(value) for value in published[name]] if name in published else ["–"] * len(keys)
        rows.append([title_of(name), *ours, *(theirs if published else [])])
    return Table(title, columns, rows, note)


def published_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = ""
) -> Table:
    """A table of the paper; missing numbers are None."""
    text = lambda cell: "–" if cell is None else printed(cell) if isinstance(cell, float) else str(cell)
    cells = [[text(cell) for cell in row] for row in rows]
    return Table(f"{title} {PUBLISHED}", list(columns), cells, note)
