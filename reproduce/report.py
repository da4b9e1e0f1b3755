"""The report on all results in a folder: one HTML page, and the same in Markdown."""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .results import PUBLISHED, Experiment, Table
from .store import write_text

_TITLE = "Bonsai: the paper's experiments"
_INTRODUCTION = (
    "The tables and figures of S. Khandagale, H. Xiao, R. Babbar, “Bonsai – Diverse and Shallow Trees for "
    "Extreme Multi-label Classification” (Machine Learning, 2020), rerun with bonsai-xmc {version}. "
    f"{PUBLISHED} marks numbers that the paper published; all others were measured here."
)

_CSS = """
:root { color-scheme: light dark; --fore: #1c1c1c; --back: #fff; --soft: #4d4d4d; --line: #dadada;
  --link: #005a8f; --claim: #f2f6f9; --remark: #fff4dc; --published: #7a3d00; --published-back: #fdf6ec; }
@media (prefers-color-scheme: dark) { :root { --fore: #ececec; --back: #16181a; --soft: #b3b7bb;
  --line: #41464a; --link: #8cc8ee; --claim: #1d2730; --remark: #33290f; --published: #f5b787;
  --published-back: #2b2118; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--fore); background: var(--back);
  max-width: 62rem; margin: 0 auto; padding: 1.5rem; overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 2px solid #0072B2; padding-top: .6rem; }
h3 { margin-top: 2rem; }
a { color: var(--link); }
nav ul { columns: 22rem; padding-left: 1.2rem; }
.place { color: var(--soft); font-weight: normal; font-size: 1rem; }
.claim { background: var(--claim); border-left: 4px solid #56B4E9; padding: .5rem .9rem; }
.remark { background: var(--remark); border-left: 4px solid #E69F00; padding: .4rem .9rem; }
.caption, .note { color: var(--soft); font-size: .88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; margin: .4rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap; overflow-wrap: normal; }
th { border-bottom: 1.5px solid var(--soft); vertical-align: bottom; white-space: normal; min-width: 3.4rem; }
td { border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.published { color: var(--published); background: var(--published-back); }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; background: #fff; border-radius: .3rem; }
details { margin: .8rem 0; }
summary { cursor: pointer; font-weight: 600; }
@media (max-width: 40rem) {
  body { padding: .8rem; }
  th, td { padding: .2rem .35rem; }
  td:first-child { white-space: normal; min-width: 6rem; }
}
@media print { h2 { break-before: page; } }
"""


def write(folder: Path, experiments: Mapping[str, Experiment]) -> None:
    """Write ``report.html``, which is self-contained, and ``report.md``, which links to the other files."""
    results = {
        name: [json.loads(path.read_text("utf-8")) for path in sorted((folder / name).glob("*.json"))]
        for name in experiments
    }
    present = {name: of for name, of in results.items() if of}
    version = ", ".join(sorted({result["version"] for of in present.values() for result in of}))
    made = f"Made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
    introduction = f"{_INTRODUCTION.format(version=version)} {_seeds_line(present)} {made}"
    write_text(folder / "report.html", _page(folder, present, experiments, introduction))
    write_text(folder / "report.md", _markdown(present, experiments, introduction))


def _seeds_line(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the numbers of seeds by data set."""
    seeds: dict[str, set[int]] = {}
    for result in (result for of in results.values() for result in of):
        seeds.setdefault(result["data"], set()).add(result["seeds"])
    return (
        "Seeds: "
        + "; ".join(f"{data}: {' or '.join(map(str, sorted(n)))}" for data, n in seeds.items())
        + "."
    )


def _files(name: str, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (kind, path relative to the report) of each file of a result."""
    stem = f"{name}/{result['slug']}"
    figure = [("PNG", f"{stem}.png"), ("SVG", f"{stem}.svg")] if result["figure"] else []
    pages = [("interactive page", f"{stem}.{ending}") for ending in result["pages"]]
    return [("CSV", f"{stem}.csv"), ("JSON", f"{stem}.json"), *figure, *pages]


# --- HTML -----------------------------------------------------------------------------------------


def _page(
    folder: Path,
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    experiments: Mapping[str, Experiment],
    introduction: str,
) -> str:
    contents = "".join(
        f'<li><a href="#{n}">{_text(experiments[n].title)}</a> ({_text(experiments[n].place)})</li>'
        for n in results
    )
    sections = "".join(_section(folder, name, experiments[name], of) for name, of in results.items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(_TITLE)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><style>{_CSS}</style></head>\n'
        f"<body><h1>{_text(_TITLE)}</h1><p>{_text(introduction)}</p><nav><ul>{contents}</ul></nav>\n{sections}</body></html>\n"
    )


def _section(folder: Path, name: str, experiment: Experiment, results: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        f'<section id="{name}"><h2>{_text(experiment.title)} <span class="place">{_text(experiment.place)}, '
        f"<code>python -m reproduce run {name}</code></span></h2>",
        f'<p class="claim">The paper: {_text(experiment.claim)}</p>',
    ]
    for result in results:
        parts.append(f"<h3>{_text(result['data'])}</h3>")
        if result["generated"]:
            parts.append('<p class="remark">Generated data, not the data set itself.</p>')
        parts += [f'<p class="remark">{_text(line)}</p>' for line in result["remarks"]]
        if result["findings"]:
            parts.append("<ul>" + "".join(f"<li>{_text(line)}</li>" for line in result["findings"]) + "</ul>")
        if result["figure"]:
            image = base64.b64encode((folder / name / f"{result['slug']}.png").read_bytes()).decode()
            parts.append(
                f'<figure><img src="data:image/png;base64,{image}" alt="{_text(result["alt"])}"></figure>'
            )
        parts += [_html_table(Table(**table)) for table in result["tables"]]
        links = " · ".join(f'<a href="{_text(path)}">{what}</a>' for what, path in _files(name, result))
        parts.append(f'<p class="caption">{_text(result["caption"])} {links}</p>')
    published = experiment.published()
    if published:
        tables = "".join(_html_table(table) for table in published)
        parts.append(
            f"<details open><summary>The paper's own numbers {PUBLISHED}</summary>{tables}</details>"
        )
    return "\n".join([*parts, "</section>\n"])


def _html_table(table: Table) -> str:
    all_published = PUBLISHED in table.title
    marked = [all_published or PUBLISHED in column for column in table.columns]

    def line(cells: Sequence[str], tag: str) -> str:
        shown = (
            f"<{tag}{' class=published' if mark else ''}>{_text(cell)}</{tag}>"
            for cell, mark in zip(cells, marked, strict=True)
        )
        return f"<tr>{''.join(shown)}</tr>"

    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    caption = f"<caption>{_text(table.title)}</caption>" if table.title else ""
    body = "".join(line(row, "td") for row in table.rows)
    head = line(table.columns, "th")
    content = f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{content}</div>{note}'


def _text(text: str) -> str:
    return html.escape(text)


# --- Markdown -------------------------------------------------------------------------------------


def _markdown(
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    experiments: Mapping[str, Experiment],
    introduction: str,
) -> str:
    parts = [f"# {_TITLE}", introduction]
    for name, of in results.items():
        experiment = experiments[name]
        parts += [f"## {experiment.title} ({experiment.place}, `{name}`)", f"> The paper: {experiment.claim}"]
        for result in of:
            parts.append(f"### {result['data']}")
            parts += [f"**Note:** {line}" for line in result["remarks"]]
            if result["findings"]:
                parts.append("\n".join(f"- {line}" for line in result["findings"]))
            if result["figure"]:
                parts.append(f"![{result['alt']}]({name}/{result['slug']}.png)")
            parts += [_markdown_table(Table(**table)) for table in result["tables"]]
            links = " · ".join(f"[{what}]({path})" for what, path in _files(name, result))
            parts.append(f"{result['caption']} {links}")
        parts += [_markdown_table(table) for table in experiment.published()]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    line = lambda cells: f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |"
    rows = [line(table.columns), line(["---"] * len(table.columns)), *map(line, table.rows)]
    title = f"**{table.title}**\n\n" if table.title else ""
    return title + "\n".join(rows) + (f"\n\n{table.note}" if table.note else "")
