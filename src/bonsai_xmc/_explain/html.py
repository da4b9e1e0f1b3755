"""Answers as fragments of HTML: their own style, no script, everything escaped."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from bonsai_xmc._base import html as base
from bonsai_xmc._explain.display import number
from bonsai_xmc._explain.view import Block, Cell, Marked, Part, Table, Title, is_faint, narrowed

_STYLE, _PAGE = (Path(__file__).with_name(f"{name}.css").read_text("utf-8") for name in ("style", "page"))


def page(title: str, fragments: Sequence[str], about: Mapping[str, str]) -> str:
    """Return a whole page with its date, this version and facts about its content."""
    body = "\n<hr>\n".join([*fragments, base.facts({**about, "Made": base.made()})])
    return base.page(title, f"\n{_PAGE}", f"\n<h1>{escape(title)}</h1>\n{body}")


def fragment(blocks: Sequence[Block]) -> str:
    """Return blocks as HTML that needs nothing else; the first one is their title."""
    body = "\n".join(_block(block, "h4" if i else "h3") for i, block in enumerate(blocks))
    return f"<style>\n{_STYLE}</style><section class='bonsai-why'>\n{body}\n</section>"


def _block(block: Block, heading: str = "h4") -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Title):
        return f"<{heading}>{escape(block.text)} <small>{escape(block.note)}</small></{heading}>"
    if isinstance(block, Table):
        return f"<div class='wide'><table>{_table(narrowed(block))}</table></div>"
    if isinstance(block, Part):
        inner = "\n".join(map(_block, block.blocks))
        folded = f"<details><summary>{escape(block.title)}</summary>{inner}</details>"
        return folded if block.title else f"<div>{inner}</div>"
    field = f"<small>{escape(block.text.field)}</small> " if block.text.field else ""
    return f"<p class='text'>{field}{''.join(_marked(block))}</p>"


def _table(table: Table) -> str:
    rows = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in table.head)}</tr>"]
    for i, row in enumerate(table.rows):
        rows.append(f"<tr>{''.join(map(_cell, row))}</tr>")
        if table.below:
            below = ", ".join(f"<span class='{c.side}'>{escape(c.text)}</span>" for c in table.below[i])
            rows.append(f"<tr><td colspan='{len(table.head)}'><small>{below}</small></td></tr>")
    return "".join(rows)


def _cell(cell: Cell) -> str:
    bar = f"<span class='bar' style='width:{4 * cell.bar:.2f}em'></span>"
    kind = f"{'n ' * cell.is_number}{cell.side}"
    return f"<td class='{kind}'>{bar if cell.bar else escape(cell.text)}</td>"


def _marked(block: Marked) -> Iterator[str]:
    text, at = block.text, 0
    for segment in text.segments:
        if is_faint(segment, block.largest):
            continue
        side, strength = "up" if segment.effect > 0 else "down", abs(segment.effect) / block.largest
        yield escape(text.text[at : segment.begin])
        yield (
            f"<mark class='{side} {segment.kind}' style='--a:{0.1 + 0.5 * strength:.2f}' "
            f"title='{number(segment.effect)}'>{escape(text.text[segment.begin : segment.end])}</mark>"
        )
        at = segment.end
    yield escape(text.text[at:])
