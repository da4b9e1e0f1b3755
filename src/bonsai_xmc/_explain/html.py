"""Explanations as fragments of HTML: their own style, no script, everything escaped."""

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from html import escape
from pathlib import Path

from bonsai_xmc._base import html as base
from bonsai_xmc._explain.display import NO_DIFFERENCE, cell, lines_of, number, strongest, value
from bonsai_xmc._explain.objects import (
    Answer,
    Effect,
    Explanation,
    FusedExplanation,
    Ranked,
    SystemExplanation,
    TextOf,
    TreePath,
    WhyNot,
)

_STYLE, _PAGE = (Path(__file__).with_name(f"{name}.css").read_text("utf-8") for name in ("style", "page"))
_BEGIN = f"<style>\n{_STYLE}</style><section class='bonsai-why'>"
_ROWS = 20  # of a table of effects
_FAINT = 0.05  # effects below this part of the largest are not highlighted


def page(title: str, fragments: Sequence[str], about: Mapping[str, str]) -> str:
    """Return a whole page, which says when it was made, by what and of what."""
    body = "\n<hr>\n".join([*fragments, base.facts({**about, "Made": base.made()})])
    return base.page(title, f"\n{_PAGE}", f"\n<h1>{escape(title)}</h1>\n{body}")


@singledispatch
def fragment(answer: Answer) -> str:
    """Return an answer as HTML that needs nothing else."""
    raise TypeError(f"there is no HTML for {type(answer).__name__}")


def _heading(answer: Ranked) -> str:
    return f"<h3>{escape(answer.name)} <small>{answer.standing}</small></h3>"


@fragment.register
def _explanation(e: Explanation) -> str:
    parts = [
        _BEGIN,
        _heading(e),
        *(f"<p>{escape(note)}</p>" for note in e.notes),
        *(_text(text, strongest(e.texts)) for text in e.texts if text.text),
        _effects(e.effects),
        "<details><summary>How the score is computed</summary>",
        *map(_path, e.paths),
        "<h4>From margins to the score</h4><div class='wide'><table>",
        *(f"<tr><td>{escape(s.text)}</td><td class='n'>{value(s.value)}</td></tr>" for s in e.steps),
        "</table></div></details></section>",
    ]
    return "\n".join(parts)


@fragment.register
def _system(e: SystemExplanation) -> str:
    parts = [f"<section>{_heading(e)}"]
    for title, columns, rows in e.evidence:
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        cells = ("".join(f"<td>{escape(cell(value))}</td>" for value in row) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        parts.append(f"<h4>{escape(title)}</h4><table><tr>{head}</tr>{body}</table>")
    return "\n".join([*parts, "</section>"])


@fragment.register
def _fused(e: FusedExplanation) -> str:
    parts = [f"<section>{_heading(e)}", f"<p>{escape(e.summary)}</p>"]
    for one in e.members:
        inner = f"<p>{escape(one.note)}</p>" if one.explanation is None else fragment(one.explanation)
        inner = inner.replace("<section", "<div").replace("</section>", "</div>")
        parts += [f"<h4>{escape(one.heading)}</h4>", inner]
    return "\n".join([*parts, "</section>"])


@fragment.register
def _why_not(w: WhyNot) -> str:
    parts = [
        _BEGIN,
        f"<h3>{escape(w.name)} <small>why not? ({escape(w.reason)})</small></h3>",
        *(f"<p>{escape(sentence)}</p>" for sentence in w.sentences),
    ]
    for ahead in w.ahead:
        parts.append(
            f"<h4>Ahead: {escape(ahead.name)} <small>rank {ahead.rank}, score {ahead.score:.4g}</small></h4>"
            f"<div class='wide'><table><tr><th>feature</th><th>{escape(ahead.name)}</th>"
            f"<th>{escape(w.name)}</th><th>difference</th></tr>"
        )
        for line in lines_of(ahead.differences)[: _ROWS // 2]:
            side = "down" if line.other > line.effect else "up"
            parts.append(
                f"<tr><td>{escape(line.name)} <small>{escape(line.where)}</small></td>"
                f"<td class='n'>{number(line.other)}</td><td class='n'>{number(line.effect)}</td>"
                f"<td class='n {side}'>{number(line.other - line.effect)}</td></tr>"
            )
        parts.append("</table></div>" if ahead.differences else f"</table></div><p>{NO_DIFFERENCE}</p>")
    if w.explanation is not None:
        parts += map(_path, w.explanation.paths)
    return "\n".join([*parts, "</section>"])


def _effects(all_of_them: Sequence[Effect]) -> str:
    if not all_of_them:
        return "<p>No feature of the row has a weight.</p>"
    lines = lines_of(all_of_them)
    largest = abs(lines[0].effect) or 1.0
    rows = [
        f"<tr><td class='n {_side(line.effect)}'>{number(line.effect)}</td>"
        f"<td class='n'>{line.share:.0%}</td><td class='{_side(line.effect)}'>"
        f"<span class='bar' style='width:{4 * abs(line.effect) / largest:.2f}em'></span></td>"
        f"<td>{escape(line.name)}</td><td><small>{escape(line.kind)}</small></td>"
        f"<td><small>{escape(line.where)}</small></td></tr>"
        for line in lines[:_ROWS]
    ]
    head = "<tr><th>effect</th><th>share</th><th>size</th><th>feature</th><th>kind</th><th>field</th></tr>"
    more = f"<p><small>and {len(lines) - _ROWS:,} more</small></p>" if len(lines) > _ROWS else ""
    return f"<div class='wide'><table>{head}{''.join(rows)}</table></div>{more}"


def _side(effect: float) -> str:
    return "up" if effect > 0 else "down"


def _text(text: TextOf, largest: float) -> str:
    field = f"<small>{escape(text.field)}</small> " if text.field else ""
    return f"<p class='text'>{field}{''.join(_marked(text, largest))}</p>"


def _marked(text: TextOf, largest: float) -> Iterable[str]:
    at = 0
    for segment in text.segments:
        strength = abs(segment.effect) / largest
        if strength < _FAINT:
            continue
        yield escape(text.text[at : segment.begin])
        yield (
            f"<mark class='{_side(segment.effect)} {segment.kind}' style='--a:{0.1 + 0.5 * strength:.2f}' "
            f"title='{number(segment.effect)}'>{escape(text.text[segment.begin : segment.end])}</mark>"
        )
        at = segment.end
    yield escape(text.text[at:])


def _path(path: TreePath) -> str:
    rows = []
    for d in path.decisions:
        top = ", ".join(
            f"<span class='{_side(c.effect)}'>{number(c.effect)} {escape(c.name)}</span>"
            for c in d.contributions[:5]
        )
        rows.append(
            f"<tr><td>{escape(d.about)}</td><td class='n'>{d.integer_margin:,}</td>"
            f"<td class='n'>{d.margin:.3f}</td><td class='n'>{d.score:.3g}</td>"
            f"<td>{top}</td></tr>"
        )
    left = "" if path.counts else " (not counted)"
    return (
        f"<h4>Tree {path.tree + 1} <small>score of the path {path.score:.3g}{left}</small></h4>"
        "<div class='wide'><table><tr><th>to</th><th>integer margin</th><th>margin</th><th>score</th>"
        "<th>most</th></tr>" + "".join(rows) + "</table></div>"
    )
