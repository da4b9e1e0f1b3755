"""Explanations of systems beside `Bonsai`, in terms of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from bonsai_xmc._explain.names import feature_names, label_name
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.ranker import Evidence

if TYPE_CHECKING:
    from bonsai_xmc._estimators.base import LabelRanker


@dataclass(frozen=True)
class SystemExplanation:
    """Why a row has this score for a label: tables whose meaning depends on the kind of the model.

    Attributes
    ----------
    label, name, score, rank
        As in `Explanation`.
    kind : str
        Of the model: "fastxml", say.
    evidence : tuple of (title, columns, rows)
    """

    label: str | int
    name: str
    score: float
    rank: int | None
    kind: str
    evidence: tuple[Evidence, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON can hold it."""
        tables = [{"title": e.title, "columns": list(e.columns), "rows": list(e.rows)} for e in self.evidence]
        return {**vars(self), "evidence": tables}

    def to_text(self, color: bool = False, n: int = 10) -> str:
        """Return tables of at most n rows, for a terminal."""
        rank = "not ranked" if self.rank is None else f"rank {self.rank}"
        lines = [f"{self.name}: score {self.score:.4g}, {rank} ({self.kind})"]
        for title, columns, rows in self.evidence:
            cells = [columns, *([_cell(value) for value in row] for row in rows[:n])]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            lines += ["", f"  {title}"]
            lines += [
                "    " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
                for row in cells
            ]
            if len(rows) > n:
                lines.append(f"    … and {len(rows) - n:,} more")
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return a fragment of HTML that needs nothing else."""
        rank = "not ranked" if self.rank is None else f"rank {self.rank}"
        parts = [f"<section><h3>{escape(self.name)} <small>score {self.score:.4g}, {rank}</small></h3>"]
        for title, columns, rows in self.evidence:
            head = "".join(f"<th>{escape(column)}</th>" for column in columns)
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
                for row in rows
            )
            parts.append(f"<h4>{escape(title)}</h4><table><tr>{head}</tr>{body}</table>")
        return "\n".join([*parts, "</section>"])

    _repr_html_ = to_html

    def __str__(self) -> str:
        return self.to_text()


class SystemRow:
    """A row of a model that is not a `Bonsai`, ready to be explained."""

    def __init__(self, model: "LabelRanker", X: Any) -> None:
        self.fitted = model._require_fitted()
        self._row = model._rows(X, self.fitted)
        ids, scores = model.top_k(X, model._max_labels())
        self.ids = [label for label in ids[0].tolist() if label >= 0]
        self._scores = dict(zip(self.ids, scores[0].tolist(), strict=False))

    def explain(self, label: int) -> SystemExplanation:
        """Explain the score of a label."""
        fitted = self.fitted
        evidence = tuple(_named(fitted, table) for table in fitted.ranker.explain(self._row, label))
        key = fitted.classes[label] if fitted.labels.named else int(fitted.classes[label])
        rank = self.ids.index(label) + 1 if label in self._scores else None
        score = self._scores.get(label, 0.0)
        return SystemExplanation(key, label_name(fitted, label), score, rank, fitted.ranker.kind, evidence)


def _named(fitted: FittedModel, table: Evidence) -> Evidence:
    """Replace ids of features and labels by names."""
    columns: list[Sequence[Any]] = list(zip(*table.rows, strict=True))
    for i, column in enumerate(table.columns if columns else ()):
        if column == "feature":
            columns[i] = [name.name for name in feature_names(fitted, columns[i])]
        elif column == "label":
            columns[i] = [label_name(fitted, label) for label in columns[i]]
    return table._replace(rows=tuple(zip(*columns, strict=True)))


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
