"""Write the tables of README.md and docs/, and a picture, from the result files of benchmarks/results.

    python -m benchmarks.figures            # rewrite every table between its markers
    python -m benchmarks.figures --check    # exit with 1 if a document and its result file differ

A result file belongs to one machine and holds tables by name: the command that measured them, a date and
rows of raw numbers. Benchmarks store theirs with `record`. A document shows a table, or a part of it, by

    <!-- table two-cores/compare where data=EURLEX57K columns system, P@1, training s -->
    <!-- end -->

`where` selects rows ("data=a|b; model=c"), `columns` selects and orders columns, `bold max P@1, min MB` marks
the best values, and `spread` shows standard deviations, which a result holds as a pair [mean, deviation].
Rows are grouped by their column "data" if that is the first one; `across data=a|b` makes a column of each of
these data sets instead, with one decimal.
"""

import argparse
import json
import re
import sys
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKER = re.compile(r"(<!-- table (?P<about>[^>]+?) -->\n)(?P<table>.*?)(<!-- end -->)", re.S)
PARTS = re.compile(r"\b(where|columns|bold|spread|across)\b")

# Digits after the point, by the end of a column's name; other numbers are shown as they are stored.
DIGITS = {
    "CPU s": 1,
    "CPU seconds": 0,
    "training s": 1,
    "one row ms": 2,
    "CPU ms": 2,
    "ratio": 1,
    "@1": 2,
    "@3": 2,
    "@5": 2,
    "@10": 2,
    "F1": 2,
    "rows/s": 0,
    "rows": 0,
    "labels": 0,
    "model MB": 1,
    "MB": 0,
    "GB": 2,
    "found %": 1,
    "choices %": 1,
    "ms a row": 3,
    "weights a label": 0,
    "bytes a weight": 2,
}

Row = dict[str, Any]


def record(machine: str, name: str, command: str, rows: list[Row], beside: tuple[str, ...] = ()) -> None:
    """Store a table in the result file of a machine, in place of one with the same name.

    With columns `beside`, stored rows are kept whose values there equal those of no new row; new rows are
    inserted at the first row that they replace.
    """
    path = RESULTS / f"{machine}.json"
    content: dict[str, Any] = (
        json.loads(path.read_text()) if path.exists() else {"machine": machine, "tables": {}}
    )
    date = datetime.now(UTC).date().isoformat()
    if beside and name in content["tables"]:
        key = lambda row: [row[column] for column in beside]
        new = [key(row) for row in rows]
        old = content["tables"][name]["rows"]
        first = next((i for i, row in enumerate(old) if key(row) in new), len(old))
        rows = old[:first] + rows + [row for row in old[first:] if key(row) not in new]
    content["tables"][name] = {
        **{"command": command, "date": date},
        "rows": json.loads(json.dumps(rows), parse_float=_short),
    }
    part = path.with_suffix(".part")
    part.write_text(_dump(content))
    part.replace(path)


def _short(number: str) -> float:
    return round(float(number), 4)


def _dump(content: dict[str, Any]) -> str:
    """Return JSON with one line for each row, which makes differences readable."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    row = re.compile(r"\n {4}\{\n(.*?)\n {4}\}", re.S)
    return row.sub(lambda found: "\n    {" + " ".join(found[1].split()) + "}", text) + "\n"


def table(about: str) -> str:
    """Return the Markdown table that a marker describes."""
    name, *words = PARTS.split(about.strip())
    machine, _, name = name.strip().partition("/")
    options = {} if not words else dict(zip(words[::2], (text.strip() for text in words[1::2]), strict=True))
    rows = json.loads((RESULTS / f"{machine}.json").read_text())["tables"][name]["rows"]
    for condition in filter(None, options.get("where", "").split("; ")):
        column, _, values = condition.partition("=")
        rows = [row for row in rows if str(row.get(column)) in values.split("|")]
    columns = options["columns"].split(", ") if "columns" in options else list(rows[0])
    if "across" in options:
        return _written(_across(rows, columns, *options["across"].split("=")))
    groups = columns[0] == "data"
    columns = columns[1:] if groups else columns
    lines = [["" if groups and columns[0] == "system" else columns[0], *columns[1:]]]
    for title, group in groupby(rows, key=lambda row: row["data"] if groups else None):
        part = list(group)
        best = _best(options.get("bold", ""), part)
        if groups:
            lines.append([f"**{title}**", *[""] * (len(columns) - 1)])
        for row in part:
            cells = [_cell(column, row.get(column), "spread" in options) for column in columns]
            marked = [(column, row.get(column)) in best for column in columns]
            lines.append([f"**{cell}**" if mark else cell for cell, mark in zip(cells, marked, strict=True)])
    return _written(lines)


def _written(lines: list[list[str]]) -> str:
    """Return a Markdown table; the first line has the names of the columns."""
    lines = [lines[0], ["---", *["---:"] * (len(lines[0]) - 1)], *lines[1:]]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _across(rows: list[Row], columns: list[str], across: str, values: str) -> list[list[str]]:
    """Return a line for each value of the first column, and in it a cell for each of `values`."""
    title, *shown = columns
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        numbers = [f"{_mean(row[column]):,.1f}" if row.get(column) is not None else "–" for column in shown]
        if set(numbers) != {"–"}:
            lines.setdefault(row[title], {})[row[across]] = ", ".join(numbers)
    wanted = values.split("|")
    body = [
        [name, *(cells.get(value, "–") for value in wanted)]
        for name, cells in lines.items()
        if {*wanted} & {*cells}
    ]
    return [[", ".join(shown), *wanted], *body]


def _best(bold: str, rows: list[Row]) -> list[tuple[str, Any]]:
    """Return the best value of each column that `bold` names, as in "max P@1, min training s"."""
    best = []
    for wish in filter(None, bold.split(", ")):
        way, _, column = wish.partition(" ")
        values = [row[column] for row in rows if row.get(column) is not None]
        best += [(column, {"max": max, "min": min}[way](values, key=_mean))] if values else []
    return best


def _mean(value: Any) -> float:
    return float(value[0] if isinstance(value, list) else value)


def _cell(column: str, value: Any, spread: bool) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    digits = next((digits for end, digits in DIGITS.items() if column.endswith(end)), None)
    shown = lambda number: f"{number:,}" if digits is None else f"{number:,.{digits}f}"
    if isinstance(value, list):
        return f"{shown(value[0])} ± {shown(value[1])}" if spread else shown(value[0])
    return shown(value)


def written(document: str) -> str:
    """Return a document with all its tables as the result files have them."""
    return MARKER.sub(lambda found: found[1] + table(found["about"]) + found[4], document)


def picture(path: Path) -> None:
    """Draw accuracy against training time of the compared systems."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "bonsai-xmc", "svg.fonttype": "none", "font.size": 10}
    rows = json.loads((RESULTS / "two-cores.json").read_text())["tables"]["compare"]["rows"]
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for panel, data in zip(panels, ("EURLEX57K", "TIBKAT core"), strict=True):
        for row in rows:
            if row["data"] != data or row["training s"] is None or "squared hinge" in row["system"]:
                continue
            ours, above = row["system"].startswith("bonsai-xmc"), row["system"].startswith("omikuji")
            x, y = row["training s"], _mean(row["P@1"])
            panel.scatter(x, y, s=60, color="#1b7f4b" if ours else "#888888")
            panel.annotate(
                row["system"].removeprefix("bonsai-xmc, "),
                (x, y),
                textcoords="offset points",
                xytext=(7, 4) if ours else (0, 7 if above else -7),
                ha="left" if ours else "center",
                va="bottom" if ours or above else "top",
                color="#1b7f4b" if ours else "#666666",
                fontsize=8,
            )
        panel.set(xscale="log", xlabel="training, seconds", ylabel="P@1", title=data)
        panel.set_xticks([5, 10, 20, 50, 100, 200], ["5", "10", "20", "50", "100", "200"])
        panel.minorticks_off()
        panel.margins(x=0.15, y=0.2)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a table differs")
    args = parser.parse_args()
    differ = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if written(text) != text:
            differ.append(str(path.relative_to(ROOT)))
            if not args.check:
                path.write_text(written(text), encoding="utf-8")
    if not args.check:
        picture(ROOT / "docs" / "img" / "compare.svg")
    print("\n".join(f"{'differs' if args.check else 'written'}: {name}" for name in differ))
    sys.exit(bool(differ) and args.check)


if __name__ == "__main__":
    main()
