"""Explanations for a terminal. Without colours, signs say what colours would."""

import unicodedata
from collections.abc import Iterable, Sequence

from bonsai_xmc._explain.objects import Difference, Effect, Explanation, TextOf, TreePath, WhyNot

UP, DOWN, DIM, BOLD, RESET = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[1m", "\x1b[0m"
_STYLE = {"word": "", "words": "\x1b[4m", "characters": "\x1b[3m"}  # n-grams underlined, characters italic
_BAR = 12  # columns of the longest bar
_FAINT = 0.08  # effects below this part of the largest are not highlighted
_SHOWN_TEXT = 2000  # characters of each field


def explanation(e: Explanation, color: bool, n: int) -> str:
    """The label, its features, its paths, and how its margins become its score."""
    ink = _Ink(color)
    rank = "not ranked" if e.rank is None else f"rank {e.rank}"
    lines = [ink(BOLD, visible(e.name)) + f"  score {e.score:.4g}, {rank}"]
    lines += [line for text in e.texts for line in _text(text, e.effects, ink)]
    lines += ["", *effects_table(e.effects, ink, n)]
    for path in e.paths:
        lines += ["", *_path(path, ink)]
    lines += ["", "from margins to the score"]
    lines += [f"  {visible(step.text)} → {step.value:.4g}" for step in e.steps]
    lines += [f"  note: {visible(note)}" for note in e.notes]
    return "\n".join(lines)


def why_not(w: WhyNot, color: bool, n: int) -> str:
    ink = _Ink(color)
    lines = [ink(BOLD, visible(w.name)) + f"  why not? ({w.reason})"]
    lines += [f"  {visible(sentence)}" for sentence in w.sentences]
    for ahead in w.ahead:
        lines += ["", f"  ahead: {visible(ahead.name)}, rank {ahead.rank}, score {ahead.score:.4g}"]
        lines += _differences(ahead.differences[:n], ink, w.name, ahead.name)
    return "\n".join(lines)


class _Ink:
    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, style: str, text: str) -> str:
        return f"{style}{text}{RESET}" if self.color and style else text


def visible(text: str) -> str:
    """Control characters, which could move the cursor of a terminal, as a space or a replacement."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _padded(text: str, columns: int) -> str:
    return text + " " * max(0, columns - width(text))


def number(x: float) -> str:
    return f"{'−' if x < 0 else '+'}{abs(x):.3f}"


def quoted(effect: Effect | Difference) -> str:
    """A term as it is shown: character n-grams in quotes, as spaces belong to them."""
    return f"“{visible(effect.name)}”" if effect.kind == "characters" else visible(effect.name)


def effects_table(effects: Sequence[Effect], ink: _Ink, n: int) -> list[str]:
    if not effects:
        return ["  no feature of the row has a weight"]
    shown, rest = effects[:n], effects[n:]
    largest = abs(shown[0].effect) or 1.0
    columns = max(width(quoted(effect)) for effect in shown)
    lines = []
    for effect in shown:
        bar = "█" * max(1, round(_BAR * abs(effect.effect) / largest))
        style = UP if effect.effect > 0 else DOWN
        where = "  ".join(filter(None, (_kind(effect.kind), effect.field)))
        lines.append(
            f"  {ink(style, number(effect.effect))} {abs(effect.share):4.0%}  "
            f"{ink(style, _padded(bar, _BAR))}  {_padded(quoted(effect), columns)}  {ink(DIM, where)}"
        )
    if rest:
        up, down = (sum(e.effect for e in rest if (e.effect > 0) == sign) for sign in (True, False))
        lines.append(f"  and {len(rest):,} more: {number(up)} {number(down) if down else '−0.000'}")
    return [line.rstrip() for line in lines]


def _kind(kind: str) -> str:
    return {"words": "n-gram", "feature": ""}.get(kind, kind)


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


def _differences(found: Sequence[Difference], ink: _Ink, name: str, other: str) -> Iterable[str]:
    columns = max((width(quoted(d)) for d in found), default=0)
    for d in found:
        style = DOWN if d.difference > 0 else UP
        yield (
            f"    {_padded(quoted(d), columns)}  {number(d.other)} there, {number(d.effect)} here: "
            + ink(style, f"{'against' if d.difference > 0 else 'for'} {visible(name)}")
        )


def _text(text: TextOf, effects: Sequence[Effect], ink: _Ink) -> Iterable[str]:
    """The text with its parts in colour; without colours there is nothing to see in it."""
    if not ink.color or not text.text:
        return
    largest = max((abs(segment.effect) for segment in text.segments), default=0.0)
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
