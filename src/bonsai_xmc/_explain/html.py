"""Explanations as fragments of HTML: their own style, no script, everything escaped."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version

from bonsai_xmc._explain.display import NO_DIFFERENCE, lines_of, number, strongest, value
from bonsai_xmc._explain.objects import Effect, Explanation, TextOf, TreePath, WhyNot

_STYLE = """<style>
.bonsai-why{color-scheme:light dark;font:15px/1.5 system-ui,sans-serif;max-width:60rem;
--up:0,115,70;--down:190,50,30;--line:#8886}
@media (prefers-color-scheme:dark){.bonsai-why{--up:90,215,150;--down:255,140,115}}
.bonsai-why h3{margin:1rem 0 .3rem;font-size:1.1em}
.bonsai-why h4{margin:.8rem 0 .2rem;font-size:1em}
.bonsai-why table{border-collapse:collapse}
.bonsai-why td,.bonsai-why th{padding:.1rem .6rem .1rem 0;text-align:left;vertical-align:baseline;
overflow-wrap:break-word}
.bonsai-why td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.bonsai-why .up{color:rgb(var(--up))}.bonsai-why .down{color:rgb(var(--down))}
.bonsai-why mark{border-radius:.15em;background:none}
.bonsai-why mark.up,.bonsai-why mark.down{color:inherit}
.bonsai-why mark.up{background:rgba(var(--up),var(--a))}
.bonsai-why mark.down{background:rgba(var(--down),var(--a))}
.bonsai-why mark.words{border-bottom:2px solid currentColor}
.bonsai-why mark.characters{border-bottom:2px dotted currentColor}
.bonsai-why .text{white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid var(--line);
padding-left:.7rem;margin:.4rem 0}
.bonsai-why .bar{display:inline-block;height:.7em;background:currentColor;opacity:.7}
.bonsai-why small{opacity:.75}
.bonsai-why .wide{overflow-x:auto}
.bonsai-why summary{cursor:pointer;margin:.6rem 0}
@media (max-width:40rem){.bonsai-why td,.bonsai-why th{padding-right:.4rem;font-size:.9em}}
</style>"""

_PAGE = """
body{margin:0 auto;max-width:60rem;padding:1rem;font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.3rem;margin:0}hr{border:none;border-top:1px solid #8886;margin:1.5rem 0}
dt{font-weight:600}dd{margin:0 0 .3rem 1rem}
"""

_ROWS = 20  # of a table of effects
_FAINT = 0.05  # effects below this part of the largest are not highlighted


def page(title: str, fragments: Sequence[str], about: Mapping[str, str]) -> str:
    """A whole document, which says when it was made, by what and of what."""
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by bonsai-xmc {version('bonsai-xmc')}"
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in {**about, "Made": made}.items()
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><style>{_PAGE}</style></head><body>\n'
        f"<h1>{escape(title)}</h1>\n" + "\n<hr>\n".join(fragments) + f"\n<hr><dl>{facts}</dl></body></html>\n"
    )


def explanation(e: Explanation) -> str:
    rank = "not ranked" if e.rank is None else f"rank {e.rank}"
    parts = [
        f"{_STYLE}<section class='bonsai-why'>",
        f"<h3>{escape(e.name)} <small>score {e.score:.4g}, {rank}</small></h3>",
        *(f"<p>{escape(note)}</p>" for note in e.notes),
        *(_text(text, strongest(e.texts)) for text in e.texts if text.text),
        effects(e.effects),
        "<details><summary>How the score is computed</summary>",
        *map(_path, e.paths),
        "<h4>From margins to the score</h4><div class='wide'><table>",
        *(f"<tr><td>{escape(s.text)}</td><td class='n'>{value(s.value)}</td></tr>" for s in e.steps),
        "</table></div></details></section>",
    ]
    return "\n".join(parts)


def why_not(w: WhyNot) -> str:
    parts = [
        f"{_STYLE}<section class='bonsai-why'>",
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


def effects(all_of_them: Sequence[Effect]) -> str:
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
