"""Answers as blocks, which `terminal` and `html` show: titles, paragraphs, tables and marked texts."""

import re
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import NamedTuple

from bonsai_xmc._explain.display import figure, lines_of, number
from bonsai_xmc._explain.objects import (
    Ahead,
    Answer,
    Effect,
    Explanation,
    FusedExplanation,
    Segment,
    SystemExplanation,
    TextOf,
    TreePath,
    WhyNot,
)

_NO_WEIGHT = "no feature of the row has a weight"
_FAINT = 0.05  # effects below this part of the largest are not marked
_ON_PATHS = 5  # features shown of each classifier on a path


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    side: str = ""  # "up" for the label, "down" against it
    bar: float = 0.0  # length of a bar in place of the text, at most 1

    @property
    def is_number(self) -> bool:
        return re.fullmatch(r"[+−]?\d[\d,.e+−]*%?", self.text) is not None


class Title(NamedTuple):
    """A heading."""

    text: str
    note: str = ""


class Table(NamedTuple):
    """Rows of cells, each with a line of further cells below it if `below` is given."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    below: Sequence[Sequence[Cell]] = ()


class Marked(NamedTuple):
    """A text whose parts are marked by their effects, relative to the largest effect."""

    text: TextOf
    largest: float


class Part(NamedTuple):
    """Blocks inside an answer, which a page hides below the title until it is opened."""

    blocks: "Sequence[Block]"
    title: str = ""


Block = str | Title | Table | Marked | Part  # a string is a paragraph


def narrowed(table: Table) -> Table:
    """Leave out columns whose cells are all empty, such as the fields of plain texts."""
    empty = Cell("")
    kept = [i for i in range(len(table.head)) if not table.rows or any(row[i] != empty for row in table.rows)]
    rows = [[row[i] for i in kept] for row in table.rows]
    return Table([table.head[i] for i in kept], rows, table.below)


def is_faint(segment: Segment, largest: float) -> bool:
    """Return whether a part of a text has too small an effect to be marked."""
    return abs(segment.effect) < _FAINT * largest


@singledispatch
def blocks_of(answer: Answer, n: int) -> list[Block]:
    """Return the blocks of an answer, with at most n rows in each table of features."""
    raise TypeError(f"{type(answer).__name__} cannot be shown")


@blocks_of.register
def _explanation(e: Explanation, n: int) -> list[Block]:
    largest = max((abs(part.effect) for text in e.texts for part in text.segments), default=0.0) or 1.0
    return [
        Title(e.name, e.standing),
        *(f"note: {note}" for note in e.notes),
        *(Marked(text, largest) for text in e.texts if text.text),
        *_effects(e.effects, n),
        _computation(
            [
                *(block for path in e.paths for block in _path(path)),
                Title("from margins to the score"),
                *(f"{step.text} → {figure(step.value, '.4g')}" for step in e.steps),
            ]
        ),
    ]


@blocks_of.register
def _system(e: SystemExplanation, n: int) -> list[Block]:
    blocks: list[Block] = [Title(e.name, f"{e.standing} ({e.kind})")]
    for title, columns, rows in e.evidence:
        cells = [
            [Cell(figure(value, ".4g") if isinstance(value, float) else str(value)) for value in row]
            for row in rows[:n]
        ]
        blocks += [Title(title), Table(columns, cells), *_more(len(rows) - n)]
    return blocks


@blocks_of.register
def _fused(e: FusedExplanation, n: int) -> list[Block]:
    blocks: list[Block] = [Title(e.name, f"{e.standing}: {e.summary}")]
    for one in e.members:
        inner = [one.note] if one.explanation is None else blocks_of(one.explanation, n)
        blocks += [Title(one.heading), Part(inner)]
    return blocks


@blocks_of.register
def _why_not(w: WhyNot, n: int) -> list[Block]:
    blocks: list[Block] = [Title(w.name, f"why not? ({w.reason})"), *w.sentences]
    for ahead in w.ahead:
        title = f"ahead: {ahead.name}, rank {ahead.rank}, score {ahead.score:.4g}"
        blocks += [Title(title), _differences(ahead, w.name, n)]
    inner = [block for path in w.dropped for block in _path(path)]
    return [*blocks, _computation(inner)] if inner else blocks


def _computation(blocks: list[Block]) -> Part:
    return Part(blocks, "How the score is computed")


def _more(count: int, sums: str = "") -> list[Block]:
    return [f"and {count:,} more{sums}"] if count > 0 else []


def _signed(effect: float, after: str = "") -> Cell:
    return Cell(f"{number(effect)}{after}", "up" if effect > 0 else "down")


def _effects(effects: Sequence[Effect], n: int) -> list[Block]:
    lines = lines_of(effects)
    if not lines:
        return [_NO_WEIGHT]
    largest = abs(lines[0].effect) or 1.0
    rows = []
    for line in lines[:n]:
        effect = _signed(line.effect)
        bar = effect._replace(text="", bar=abs(line.effect) / largest)
        rows.append([effect, Cell(f"{line.share:.0%}"), bar, *map(Cell, (line.name, line.kind, line.where))])
    up, down = (sum(max(0.0, sign * line.effect) for line in lines[n:]) for sign in (1, -1))
    head = ("effect", "share", "size", "feature", "kind", "field")
    return [Table(head, rows), *_more(len(lines) - n, f": +{up:.3f} −{down:.3f}")]


def _differences(ahead: Ahead, name: str, n: int) -> Block:
    lines = lines_of(ahead.differences)
    if not lines:
        return "no feature of the row has a weight for either: the biases of their classifiers decide"
    rows = []
    for line in lines[:n]:
        difference = Cell(number(line.other - line.effect), "down" if line.other > line.effect else "up")
        plain = map(Cell, (line.name, line.where, number(line.other), number(line.effect)))
        rows.append([*plain, difference])
    return Table(("feature", "field", ahead.name, name, "difference"), rows)


def _path(path: TreePath) -> Iterator[Block]:
    left = "" if path.counts else " (not counted)"
    yield Title(f"tree {path.tree + 1}, score of the path {path.score:.3g}{left}")
    rows, below = [], []
    for d in path.decisions:
        figures = ((d.integer_margin, ","), (d.margin, ".3f"), (d.score, ".3g"))
        rows.append([Cell(d.about), *(Cell(figure(*given)) for given in figures)])
        top = [_signed(c.effect, f" {c.name}") for c in d.contributions[:_ON_PATHS]]
        below.append(top or [Cell(_NO_WEIGHT)])
    yield Table(("to", "integer margin", "margin", "score"), rows, below)
