"""Explanations for a terminal. Without colours, signs say what colours would."""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import singledispatch

from bonsai_xmc._explain.display import NO_DIFFERENCE, cell, lines_of, number, strongest, value
from bonsai_xmc._explain.objects import (
    Answer,
    Difference,
    Effect,
    Explanation,
    FusedExplanation,
    SystemExplanation,
    TextOf,
    TreePath,
    WhyNot,
)

UP, DOWN, DIM, BOLD, RESET = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[1m", "\x1b[0m"
_STYLE = {"word": "", "words": "\x1b[4m", "characters": "\x1b[3m"}  # n-grams underlined, characters italic
_BAR = 12  # columns of the longest bar
_FAINT = 0.08  # effects below this part of the largest are not highlighted
_SHOWN_TEXT = 2000  # characters of each field


@singledispatch
def text(answer: Answer, color: bool, n: int) -> str:
    """Return an answer as lines of text, with tables of at most n rows."""
    raise TypeError(f"there is no text for {type(answer).__name__}")


@text.register
def _explanation(e: Explanation, color: bool, n: int) -> str:
    """Show the label, its features, its paths, and how its margins become its score."""
    ink = _Ink(color)
    lines = [ink(BOLD, visible(e.name)) + f"  {e.standing}"]
    lines += [line for one in e.texts for line in _text(one, strongest(e.texts), ink)]
    lines += ["", *_effects(e.effects, ink, n)]
    for path in e.paths:
        lines += ["", *_path(path, ink)]
    lines += ["", "from margins to the score"]
    lines += [f"  {visible(step.text)} → {value(step.value)}" for step in e.steps]
    lines += [f"  note: {visible(note)}" for note in e.notes]
    return "\n".join(lines)


@text.register
def _system(e: SystemExplanation, color: bool, n: int) -> str:
    lines = [f"{e.name}: {e.standing} ({e.kind})"]
    for title, columns, rows in e.evidence:
        cells = [columns, *([cell(value) for value in row] for row in rows[:n])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += ["", f"  {title}"]
        for row in cells:
            lines.append("    " + "  ".join(map(str.ljust, row, widths)).rstrip())
        if len(rows) > n:
            lines.append(f"    … and {len(rows) - n:,} more")
    return "\n".join(lines)


@text.register
def _fused(e: FusedExplanation, color: bool, n: int) -> str:
    lines = [f"{e.name}: {e.standing}: {e.summary}"]
    for one in e.members:
        inner = one.note if one.explanation is None else text(one.explanation, color, n)
        lines += ["", f"  {one.heading}", *(f"    {line}".rstrip() for line in inner.splitlines())]
    return "\n".join(lines)


@text.register
def _why_not(w: WhyNot, color: bool, n: int) -> str:
    ink = _Ink(color)
    lines = [ink(BOLD, visible(w.name)) + f"  why not? ({w.reason})"]
    lines += [f"  {visible(sentence)}" for sentence in w.sentences]
    for ahead in w.ahead:
        lines += ["", f"  ahead: {visible(ahead.name)}, rank {ahead.rank}, score {ahead.score:.4g}"]
        lines += _differences(ahead.differences, n, ink, w.name)
    return "\n".join(lines)


class _Ink:
    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, style: str, text: str) -> str:
        return f"{style}{text}{RESET}" if self.color and style else text


def visible(text: str) -> str:
    """Replace control characters, which could move the cursor of a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def width(text: str) -> int:
    """Count the columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _padded(text: str, columns: int) -> str:
    return text + " " * max(0, columns - width(text))


def _effects(effects: Sequence[Effect], ink: _Ink, n: int) -> list[str]:
    if not effects:
        return ["  no feature of the row has a weight"]
    lines = lines_of(effects)
    shown, rest = lines[:n], lines[n:]
    largest = max((abs(line.effect) for line in shown), default=1.0) or 1.0
    columns = max((width(visible(line.name)) for line in shown), default=0)
    result = []
    for line in shown:
        bar = "█" * max(1, round(_BAR * abs(line.effect) / largest))
        style = UP if line.effect > 0 else DOWN
        name = _padded(visible(line.name), columns)
        about = "  ".join(filter(None, (line.kind, visible(line.where))))
        result.append(
            f"  {ink(style, number(line.effect))} {line.share:4.0%}  {ink(style, _padded(bar, _BAR))}  "
            f"{name}  {ink(DIM, about)}"
        )
    if rest:
        up, down = (sum(e.effect for e in rest if (e.effect > 0) == sign) for sign in (True, False))
        result.append(f"  and {len(rest):,} more: {number(up)} {number(down) if down else '−0.000'}")
    return [line.rstrip() for line in result]


def _path(path: TreePath, ink: _Ink) -> Iterable[str]:
    yield f"tree {path.tree + 1}, score of the path {path.score:.3g}" + ("" if path.counts else " (left)")
    for decision in path.decisions:
        top = ", ".join(
            ink(UP if c.effect > 0 else DOWN, f"{number(c.effect)} {visible(c.name)}")
            for c in decision.contributions[:4]
        )
        yield (
            f"  {'→' if decision.child is not None else '⇒'} {visible(decision.about)}: integer margin "
            f"{decision.integer_margin:,}, margin {decision.margin:.3f}, score {decision.score:.3g}"
        )
        yield f"      {top or 'no feature of the row has a weight'}"


def _differences(found: Sequence[Difference], n: int, ink: _Ink, name: str) -> Iterable[str]:
    if not found:
        yield f"    {NO_DIFFERENCE}"
    lines = lines_of(found)[:n]
    columns = max((width(visible(line.name)) for line in lines), default=0)
    for line in lines:
        against = line.other > line.effect
        yield (
            f"    {_padded(visible(line.name), columns)}  {number(line.other)} there, "
            f"{number(line.effect)} here: "
            + ink(DOWN if against else UP, f"{'against' if against else 'for'} {visible(name)}")
        )


def _text(text: TextOf, largest: float, ink: _Ink) -> Iterable[str]:
    """Show the text with its parts in colour; without colours there is nothing to see in it."""
    if not ink.color or not text.text:
        return
    parts, at = [], 0
    for segment in text.segments:
        if segment.begin >= _SHOWN_TEXT or abs(segment.effect) < _FAINT * largest:
            continue
        parts.append(visible(text.text[at : segment.begin]))
        style = UP if segment.effect > 0 else DOWN
        strong = BOLD if abs(segment.effect) > 0.5 * largest else ""
        parts.append(
            ink(strong + style + _STYLE[segment.kind], visible(text.text[segment.begin : segment.end]))
        )
        at = segment.end
    parts.append(visible(text.text[at : max(at, _SHOWN_TEXT)]))
    if len(text.text) > max(at, _SHOWN_TEXT):
        parts.append(" …")
    yield "  " + (f"{ink(DIM, text.field + ':')} " if text.field else "") + "".join(parts)
