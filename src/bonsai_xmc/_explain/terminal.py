"""Answers as text for a terminal. Without colours, signs stand for them."""

import unicodedata
from collections.abc import Iterator, Sequence

from bonsai_xmc._explain.objects import TextOf
from bonsai_xmc._explain.view import Block, Cell, Marked, Part, Table, Title, is_faint, narrowed

DIM, BOLD, RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_SIDES = {"up": "\x1b[32m", "down": "\x1b[31m", "": ""}
_KINDS = {"word": "", "words": "\x1b[4m", "characters": "\x1b[3m"}  # n-grams underlined, characters italic
_BAR = 12  # columns of the longest bar
_SHOWN_TEXT = 2000  # characters of each field


def text(blocks: Sequence[Block], color: bool) -> str:
    """Return blocks as lines of text."""
    return "\n".join(line.rstrip() for line in _lines(blocks, color))


def _lines(blocks: Sequence[Block], color: bool) -> Iterator[str]:
    for i, block in enumerate(blocks):
        if isinstance(block, str):
            yield f"  {visible(block)}"
        elif isinstance(block, Title):
            yield from [""] * (i > 0)
            yield _ink(BOLD, visible(block.text), color) + f"  {visible(block.note)}"
        elif isinstance(block, Table):
            yield from _table(narrowed(block), color)
        elif isinstance(block, Part):
            inner = _lines(block.blocks, color)
            yield from ["", *inner] if block.title else (f"    {line}" for line in inner)
        elif color:  # without colours, the text shows nothing that the row does not
            yield _marked(block, color)


def _ink(style: str, text: str, color: bool) -> str:
    return f"{style}{text}{RESET}" if color and style else text


def visible(text: str) -> str:
    """Replace control characters, which could move the cursor of a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _table(table: Table, color: bool) -> Iterator[str]:
    rows = [[_shown(cell) for cell in row] for row in ([*map(Cell, table.head)], *table.rows)]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    right = [all(row[j].is_number for row in table.rows) for j in range(len(table.head))]
    for i, row in enumerate(rows):
        cells = []
        for j, shown in enumerate(row):
            blanks = " " * (widths[j] - _width(shown))
            side = DIM if i == 0 else _SIDES[table.rows[i - 1][j].side]
            cells.append(_ink(side, blanks + shown if right[j] else shown + blanks, color))
        yield f"  {'  '.join(cells)}"
        if i > 0 and table.below:
            below = (_ink(_SIDES[cell.side], visible(cell.text), color) for cell in table.below[i - 1])
            yield f"      {', '.join(below)}"


def _shown(cell: Cell) -> str:
    return "█" * max(1, round(_BAR * cell.bar)) if cell.bar else visible(cell.text)


def _marked(block: Marked, color: bool) -> str:
    text: TextOf = block.text
    parts, at = [], 0
    for segment in text.segments:
        if segment.begin >= _SHOWN_TEXT or is_faint(segment, block.largest):
            continue
        strong = BOLD if abs(segment.effect) > 0.5 * block.largest else ""
        style = strong + _SIDES["up" if segment.effect > 0 else "down"] + _KINDS[segment.kind]
        parts += [visible(text.text[at : segment.begin])]
        parts += [_ink(style, visible(text.text[segment.begin : segment.end]), color)]
        at = segment.end
    end = max(at, _SHOWN_TEXT)
    parts.append(visible(text.text[at:end]) + " …" * (len(text.text) > end))
    return "  " + (f"{_ink(DIM, f'{text.field}:', color)} " if text.field else "") + "".join(parts)
