"""The page of a report: self-contained HTML. All texts from outside pass `escape`."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bonsai_xmc._base import html

from . import charts

if TYPE_CHECKING:
    from .report import Report

_METRICS = {
    "P": "precision: share of the first k labels that are right",
    "R": "recall: share of a row's true labels that are among its first k",
    "nDCG": "like precision with more weight on the first ranks, 100 for a perfect ranking",
    "RP": "R-precision: hits among the first k, divided by min(k, number of true labels)",
    "F1": "harmonic mean of precision and recall of each row, as in Annif",
    "PSP": "precision with more weight on rare labels (propensity-scored), divided by the best possible",
    "PSnDCG": "nDCG with more weight on rare labels, divided by the best possible",
}
_COVERAGE = {
    "C": "coverage: distinct labels among all first k, right or wrong, divided by those of the best ranking",
    "CC": "correct coverage: share of the distinct true labels that are hits among the first k of some row",
}
_LONGEST = 400  # characters of a text that are shown

_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


class Example(NamedTuple):
    """A row that is shown as an example."""

    text: str
    truth: list[int]
    ranked: list[tuple[int, float]]


def render(report: "Report") -> str:
    """Return the whole page."""
    sections = [
        ("metrics", "Metrics by k", _metrics(report)),
        ("difference", "Difference of the models", _differences(report)),
        ("frequency", "Recall by label frequency", _frequency(report)),
        *(
            (f"by-{number}", f"By {name}", _field(report, name, found))
            for number, (name, found) in enumerate(report.by.items())
        ),
        ("calibration", "Calibration", _calibration(report)),
        ("missed", "Labels that cost most of R@5", _costs(report, report.missed, missed=True)),
        ("wrong", "Labels that cost most of P@5", _costs(report, report.wrong, missed=False)),
        ("reading", "How to read this", _reading(report)),
        ("about", "About this report", html.facts(report.about)),
    ]
    sections = [(anchor, name, body) for anchor, name, body in sections if body]
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for anchor, name, _ in sections)
    bodies = "".join(
        f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(name)}</h2>{body}</section>'
        for anchor, name, body in sections
    )
    header = f"<h1>{escape(report.title)}</h1>{_summary(report)}{_notes(report.notes)}"
    header += f'<nav aria-label="Sections"><ul>{links}</ul></nav>'
    body = f"<header>{header}</header><main>{bodies}</main>"
    return html.page(report.title, _STYLE + charts.STYLE, body)


def _summary(report: "Report") -> str:
    parts = [
        f"{report.n_rows:,} rows, {report.n_true:,} true labels, {report.n_labels:,} labels in the model."
    ]
    if report.left_out:
        total = report.left_out + report.n_true
        share = 100 * report.left_out / total
        parts.append(
            f"{report.left_out:,} more true labels ({share:.1f} % of {total:,}) are not in the model "
            "and are left out."
        )
    models = [escape(name) for name in report.results]
    if len(models) == 1:
        return f"<p>{' '.join(parts)} Model: {models[0]}.</p>"
    key = '<span class="key{}" aria-hidden="true"></span>'.format
    both = f"{key('')} {models[0]} (first), {key(' second')} {models[1]} (second)"
    return f"<p>{' '.join(parts)} Models: {both}.</p>"


def _of_each(text: str, models: Sequence[str]) -> list[str]:
    """Return a heading for each model."""
    return [text] if len(models) == 1 else [f"{text} ({model})" for model in models]


def _table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    text: Sequence[int] = (),
    below: Sequence[str] = (),
) -> str:
    """Return a table. Cells are escaped, unless they are `Html`; columns in `text` are left-aligned.

    `below` has HTML to show below each row, over all columns.
    """
    kinds = [' class="text"' if i in (0, *text) else "" for i in range(len(head))]
    columns = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(kinds, head, strict=True)
    )
    body = ""
    for i, (first, *others) in enumerate(rows):
        cells = (f"<td{kind}>{_cell(cell)}</td>" for kind, cell in zip(kinds[1:], others, strict=True))
        body += f'<tr><th scope="row">{_cell(first)}</th>{"".join(cells)}</tr>'
        if below:
            body += f'<tr class="below"><td colspan="{len(head)}"><div>{below[i]}</div></td></tr>'
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


class Html(str):
    """Text that is HTML already."""


def _cell(value: Any) -> str:
    return value if isinstance(value, Html) else escape(str(value))


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes" aria-label="Warnings">{items}</ul>' if notes else ""


def _shown(report: "Report", known: Mapping[str, str]) -> list[str]:
    """Return the metrics that the report contains."""
    return [metric for metric in known if f"{metric}@1" in next(iter(report.curves.values()))]


def _metrics(report: "Report") -> str:
    names = _shown(report, _METRICS)
    ks = list(range(1, report.depth + 1))
    lines = ""
    for metric in names:
        values = {model: [found[f"{metric}@{k}"] for k in ks] for model, found in report.curves.items()}
        lines += charts.lines(f"{metric}@k", ks, values, "k")
    head, tables = ["metric", *(f"@{k}" for k in report.cutoffs)], ""
    for model, found in report.results.items():
        for caption, metrics, unit, form in (
            ("In percent", names, 1, "{:.2f}"),
            ("Distinct labels", _shown(report, _COVERAGE), 100, "{:.3f}"),
        ):
            rows = [[m, *(form.format(found[f"{m}@{k}"] / unit) for k in report.cutoffs)] for m in metrics]
            whose = caption if len(report.results) == 1 else f"{model}, {caption.lower()}"
            tables += _table(whose, head, rows) if rows else ""
    return f'<div class="charts">{tables}</div><div class="grid">{lines}</div>'


def _differences(report: "Report") -> str:
    if not report.differences:
        return ""
    first, second = report.results
    table = _table(
        f"{second} minus {first}: 95 % intervals of a paired bootstrap over rows",
        ["metric", "first", "second", "difference", "clear"],
        (
            [
                name,
                *(f"{found[name]:.2f}" for found in report.results.values()),
                _difference(d.value, d.low, d.high),
                "yes" if d.low > 0 or d.high < 0 else "no",
            ]
            for name, d in report.differences.items()
        ),
    )
    note = (
        "<p>Rows are drawn with replacement, 1,000 times, the same ones for both models. A difference is "
        "clear if its interval does not contain 0.</p>"
    )
    return note + table


def _difference(value: float, low: float, high: float) -> "Html":
    return Html(f"{_signed(value)}<br>{_soft(f'{_signed(low)} to {_signed(high)}')}")


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _frequency(report: "Report") -> str:
    if not report.by_frequency:
        return ""
    models = list(report.results)
    rows = []
    for part in report.by_frequency:
        row: list[Any] = [part.name, f"{part.labels:,}", f"{part.occurrences:,}"]
        for kind, model in zip(charts.SERIES, models, strict=False):
            recall = part.recall[model]
            bar = f'<span class="meter {kind}" style="width:{recall / 20:.2f}em"></span>'
            row.append(Html(f"{recall:.1f} {bar}"))
        rows.append(row)
    head = ["training rows", "labels", "occurrences", *_of_each("found among the five best, %", models)]
    return _table("True labels by their number of training rows", head, rows, text=range(3, len(head)))


def _field(report: "Report", name: str, found: Mapping[str, Any]) -> str:
    models = list(report.results)
    keys = list(next(iter(found.values()))["results"][models[0]])
    rows = []
    for value, part in found.items():
        for model in models:
            figures = [f"{part['results'][model][key]:.2f}" for key in keys]
            who = [model] if len(models) == 2 else []
            rows.append([value or "(empty)", f"{part['rows']:,}", *who, *figures])
        if "differences" in part:
            cells = [_difference(d.value, d.low, d.high) for d in map(part["differences"].get, keys)]
            rows.append([value or "(empty)", f"{part['rows']:,}", "difference", *cells])
    who = ["model"] if len(models) == 2 else []
    return _table(f"Rows by {name}, in percent", [name, "rows", *who, *keys], rows, text=(2,) if who else ())


def _calibration(report: "Report") -> str:
    if not report.reliability:
        return ""
    picture = charts.reliability_diagram("Share of right predictions by score", report.reliability)
    errors = "; ".join(f"{model} {100 * bins.error:.2f} %" for model, bins in report.reliability.items())
    tables = [
        _table(
            f"{model}: expected calibration error {100 * bins.error:.2f} %",
            ["mean score", "right, %", "predictions"],
            (
                [f"{score:.3f}", f"{100 * right:.1f}", f"{int(count):,}"]
                for score, right, count in zip(bins.score, bins.right, bins.count, strict=True)
            ),
        )
        for model, bins in report.reliability.items()
    ]
    note = (
        "<p>How often one of the five best labels is right, by its score. If scores are "
        "calibrated, dots lie on the diagonal. The expected calibration error is the mean distance from "
        f"it: {escape(errors)}.</p>"
    )
    numbers = f"<details><summary>The numbers</summary>{''.join(tables)}</details>"
    return f"{note}{picture}{numbers}"


def _costs(report: "Report", costs: Sequence[Any], *, missed: bool) -> str:
    if not costs:
        return ""
    models = list(report.results)
    what = "true but not among the five best" if missed else "among the five best but wrong"
    note = (
        f"<p>Percentage points of {'R@5' if missed else 'P@5'} that each label costs by being {what}"
        f"{', ordered by the first model' if len(models) == 2 else ''}.</p>"
    )
    head = ["label", *_of_each("points", models), "true rows" if missed else "rows that have it"]
    head += _of_each("missed" if missed else "wrong", models)
    head += ["training rows"] * (report.label_counts is not None)
    rows, below = [], []
    for cost in costs:
        row: list[Any] = [_label(report, cost.label), *(f"{cost.points[m]:.3f}" for m in models)]
        row += [f"{cost.rows:,}", *(f"{cost.wrong[m]:,}" for m in models)]
        if report.label_counts is not None:
            row.append(f"{report.label_counts[cost.label]:,}")
        rows.append(row)
        below.append(_examples(report, cost.examples, cost.label))
    caption = f"{'Missed' if missed else 'Wrong'} labels, and what they cost"
    return note + _table(caption, head, rows, below=below)


def _soft(text: str) -> str:
    return f'<span class="soft">{escape(text)}</span>'


def _label(report: "Report", label: int) -> Html:
    key, name = report._name_of(label)
    return Html(f"{escape(name)} {_soft(key)}" if name else escape(key))


def _examples(report: "Report", rows: Sequence[int], label: int) -> Html:
    parts = []
    for row in rows:
        example = report.examples[row]
        text = example.text if len(example.text) <= _LONGEST else example.text[:_LONGEST] + " …"
        short = text if len(text) <= 60 else text[:60] + " …"
        true = ", ".join(_label(report, i) for i in example.truth)
        ranked = ", ".join(
            f'<span class="{"right" if i in example.truth else ""}">{_label(report, i)} {score:.3f}'
            f"{' ✓' if i in example.truth else ''}</span>"
            for i, score in example.ranked
        )
        parts.append(
            f"<details><summary>{escape(short)}</summary><p>{escape(text)}</p><p>True: {true}</p>"
            f"<p>Predicted: {ranked or 'nothing'}</p></details>"
        )
    return Html("".join(parts))


def _reading(report: "Report") -> str:
    known = _METRICS | _COVERAGE
    items = "".join(f"<dt>{name}@k</dt><dd>{escape(known[name])}</dd>" for name in _shown(report, known))
    return f"<p>Means over rows, in percent.</p><dl>{items}</dl>"
