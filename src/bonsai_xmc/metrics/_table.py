"""Results as text tables."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any


def format_table(results: Mapping[str, Any]) -> str:
    """Format one result of `evaluate`, or several by name, as an aligned table; None is an unknown value.

    >>> print(format_table({"P@1": 92.1, "P@3": 80.0, "R@1": 9.876}))
          @1     @3
    P  92.10  80.00
    R   9.88      –
    """
    several = bool(results) and all(isinstance(value, Mapping) for value in results.values())
    cells: dict[str, dict[tuple[str, int], str]] = {}
    for name, values in results.items() if several else [("", results)]:
        cells[name] = {}
        for key, value in values.items():
            match = re.fullmatch(r"(\S+)@(\d+)( \S+)?", key)
            if match is None:
                raise ValueError(f"{key!r} is not the name of a metric at k, such as 'P@1' or 'R@5 tail'")
            shown = "–" if value is None else f"{value:.2f}"
            cells[name][match[1] + (match[3] or ""), int(match[2])] = shown
    keys = dict.fromkeys(key for column in cells.values() for key in column)
    metrics, cutoffs = list(dict.fromkeys(metric for metric, _ in keys)), sorted({k for _, k in keys})
    left = [""] * several + ["", *metrics]
    columns = [[text.ljust(max(map(len, left))) for text in left]]
    for name, column in cells.items():
        lines = [[f"@{k}" for k in cutoffs], *([column.get((m, k), "–") for k in cutoffs] for m in metrics)]
        width = max((len(cell) for line in lines for cell in line), default=0)
        block = [name] * several + ["  ".join(cell.rjust(width) for cell in line) for line in lines]
        columns.append([text.rjust(max(map(len, block))) for text in block])
    return "\n".join("  ".join(parts).rstrip() for parts in zip(*columns, strict=True))


def format_cells(lines: Sequence[Sequence[str]], style: str) -> str:
    """Format a table, its first line the header, as "markdown", "csv" or "latex".

    >>> print(format_cells([["", "a"], ["P@1", "92.10"]], "markdown"))
    |  | a |
    | --- | ---: |
    | P@1 | 92.10 |
    """
    if style == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        return text.getvalue().rstrip("\n")
    if style == "markdown":
        rule = ["---", *["---:"] * (len(lines[0]) - 1)]
        shown = [[cell.replace("|", "\\|") for cell in line] for line in (lines[0], rule, *lines[1:])]
        return "\n".join(f"| {' | '.join(line)} |" for line in shown)
    rows = [" & ".join(_latex(cell) for cell in line) + r" \\" for line in lines]
    columns = "l" + "r" * (len(lines[0]) - 1)
    begin = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", rows[0], r"\hline"]
    return "\n".join([*begin, *rows[1:], r"\hline", r"\end{tabular}"])


def _latex(cell: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", cell.replace("\\", ""))
    return escaped.replace("−", "$-$").replace("–", "--").replace("~", r"\textasciitilde{}")
