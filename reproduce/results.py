"""The result of an experiment: numbers, tables, a figure, findings and remarks. Nothing is written here."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .published import NAMES
from .statistics import mean_and_sd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .bench import Bench

#: Marks a number of the paper, as against one measured here.
PUBLISHED = "†"

#: Names of systems in tables and figures.
TITLES = {
    "bonsai-i": "Bonsai-i",
    "bonsai-o": "Bonsai-o",
    "bonsai-io": "Bonsai-io",
    "parabel": "Parabel",
    "parabel-o": "Parabel-o",
    "dismec": "DiSMEC",
    "default": "Bonsai (default)",
    "fastxml": "FastXML",
    "pfastxml": "PfastXML",
    "pfastrexml": "PfastreXML",
    "sleec": "SLEEC",
    "leml": "LEML",
    "robustxml": "RobustXML (reconstruction)",
    "pd-sparse": "PD-Sparse",
    "ppd-sparse": "PPD-Sparse",
    "proxml": "ProXML",
}


@dataclass
class Table:
    """A table; cells are strings."""

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
        One row for each run: the CSV file.
    tables : list of Table
        Summaries.
    findings : list of str
        The main results, in sentences.
    caption : str
        How the numbers were obtained.
    draw : callable, optional
        Makes the figure.
    alt : str
        Alternative text of the figure.
    pages : dict
        Further files by extension: interactive pages.
    remarks : list of str
        Where the data cannot show what the experiment measures.
    comparisons : list of dict
        Differences with their p-values; see `Comparisons.records`.
    seeds : str, optional
        The words about seeds in the figure; default: their number. Empty where no randomness is involved.
    """

    numbers: list[dict[str, Any]]
    tables: list[Table]
    findings: list[str] = field(default_factory=list)
    caption: str = ""
    draw: "Callable[[], Figure] | None" = None
    alt: str = ""
    pages: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    seeds: str | None = None


class Experiment(NamedTuple):
    """An experiment of the paper.

    Attributes
    ----------
    place : str
        Where in the paper.
    claim : str
        What the paper claims there.
    run : callable
        Runs it on a bench.
    published : callable
        The paper's own tables; may return none.
    """

    title: str
    place: str
    claim: str
    run: "Callable[[Bench], Result]"
    published: Callable[[], list[Table]] = list


def title_of(name: str) -> str:
    """Return the name of a system in tables and figures."""
    return TITLES.get(name, name)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Format mean ± standard deviation.

    >>> spread([1.0, 3.0]), spread([2.0]), spread([])
    ('2.00 ± 1.41', '2.00', '–')
    """
    if not len(values):
        return "–"
    mean, sd = mean_and_sd(values)
    return f"{mean:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def plural(n: int, noun: str) -> str:
    """Format a count with its noun.

    >>> plural(1, "seed"), plural(1200, "row")
    ('1 seed', '1,200 rows')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def signed(value: float, digits: int = 2) -> str:
    """Format a difference with its sign; the minus is typographic.

    >>> signed(-0.5), signed(1.0)
    ('−0.50', '+1.00')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def printed(value: float) -> str:
    """Format a published number with one or two decimals.

    >>> printed(83.0), printed(73.57), printed(81.627)
    ('83.0', '73.57', '81.63')
    """
    return f"{value:.2f}".removesuffix("0")


def flat(name: str, runs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of the CSV file: these metrics for each run of a system."""
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
    """Return systems × metrics, mean ± sd, with the paper's numbers for the data set where it has some.

    `published` holds a system's numbers in the order of `keys`; those that only the paper has get a row, too.
    """
    published = published or {}
    columns = ["", *keys]
    if published and paper:
        columns += [f"{key}, {NAMES[paper]} {PUBLISHED}" for key in keys]
    rows = []
    for name in [*runs, *(name for name in published if name not in runs)]:
        ours = [spread([run["metrics"][key] for run in runs.get(name, ())]) for key in keys]
        theirs = [printed(value) for value in published.get(name, ())] or ["–"] * len(keys)
        rows.append([title_of(name), *ours, *(theirs if published else [])])
    return Table(title, columns, rows, note)


def published_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = ""
) -> Table:
    """Return a table of the paper; missing numbers are None."""
    text = lambda cell: "–" if cell is None else printed(cell) if isinstance(cell, float) else str(cell)
    cells = [[text(cell) for cell in row] for row in rows]
    return Table(f"{title} {PUBLISHED}", list(columns), cells, note)
