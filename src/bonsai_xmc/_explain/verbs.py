"""`explain` and `why_not` of any model: by classifiers, by tables of evidence, by members of a fusion."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc._data.sparse import is_sparse
from bonsai_xmc._explain.linear import LinearRow
from bonsai_xmc._explain.names import feature_names, label_id, label_name
from bonsai_xmc._explain.objects import FusedExplanation, MemberShare, SystemExplanation, WhyNot
from bonsai_xmc._explain.row import Row
from bonsai_xmc._explain.why_not import why_not as _why_not
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.fusion import FusionRanker
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.ranker import Evidence

if TYPE_CHECKING:
    from bonsai_xmc._estimators.base import LabelRanker


class SystemRow(Row):
    """A row of a model that is not a `Bonsai`."""

    def explain(self, label: int) -> Any:
        """Explain the score of a label by tables of evidence."""
        ranker = self.fitted.ranker
        evidence = tuple(_named(self.fitted, table) for table in ranker.explain(self.rows, label))
        score, rank = self.scores.get(label, 0.0), self.rank(label)
        return SystemExplanation(*self.about(label), score, rank, ranker.kind, evidence)


def _named(fitted: FittedModel, table: Evidence) -> Evidence:
    """Replace ids of features and labels by names."""
    columns: list[Sequence[Any]] = list(zip(*table.rows, strict=True))
    for i, column in enumerate(table.columns if columns else ()):
        if column == "feature":
            columns[i] = [name.name for name in feature_names(fitted, columns[i])]
        elif column == "label":
            columns[i] = [label_name(fitted, label) for label in columns[i]]
    return table._replace(rows=tuple(zip(*columns, strict=True)))


class FusedRow(Row):
    """A row of a fusion. A member that is itself a fusion has a table of its own members."""

    def __init__(self, model: Any, X: Any) -> None:
        super().__init__(model, X)
        self._members: dict[str, Row] = {}

    def explain(self, label: int) -> Any:
        """Explain the score of a label: the share of each member, and the member's own explanation."""
        ranker = self.fitted.ranker
        assert isinstance(ranker, FusionRanker)
        parts = ranker.parts_of(self.rows, label, self.model._max_labels())
        total = sum(one.part for one in parts) or 1.0
        shares = []
        for member, one in zip(ranker.members, parts, strict=True):
            explanation, note = self._of_member(member, label)
            share = one.part / total
            shares.append(
                MemberShare(member.name, member.link, member.weight, one.value, share, explanation, note)
            )
        shares.sort(key=lambda one: -one.share)
        score, rank = self.scores.get(label, 0.0), self.rank(label)
        return FusedExplanation(*self.about(label), score, rank, ranker.kind, tuple(shares))

    def _of_member(self, member: Any, label: int) -> tuple[Any, str]:
        """Return the explanation of a member, or why there is none."""
        own = label
        if member.labels is not None:
            found = np.flatnonzero(member.labels == label)
            if not len(found):
                return None, "it does not have this label"
            own = int(found[0])
        if member.model.text is not None and member.model.words is None:
            return None, "its features are dimensions of a vector, which have no names"
        try:
            return self._row_of(member.name).explain(own), ""
        except ValueError as error:
            return None, str(error)

    def _row_of(self, member: str) -> Row:
        """Return the row as a member reads it, made once for all labels."""
        if member not in self._members:
            model = self.model.classifier_.members_[member]
            X = self.X[member] if isinstance(self.X, Mapping) else self.X
            self._members[member] = _row(model, X)
        return self._members[member]


def explained_row(model: "LabelRanker", x: Any) -> Any:
    """Read one row: of a matrix a vector or a matrix of one row, of texts a string or a record."""
    fitted = model._require_fitted()
    of_texts = fitted.text is not None
    if not isinstance(fitted.ranker, FusionRanker):
        return _row(model, _one_row(x, of_texts))
    if not of_texts and isinstance(x, Mapping):  # a row for each member
        texts = {member.name: member.model.text is not None for member in fitted.ranker.members}
        return FusedRow(model, {name: _one_row(x[name], own) for name, own in texts.items() if name in x})
    return FusedRow(model, _one_row(x, of_texts))


def _row(model: "LabelRanker", X: Any) -> Row:
    linear = isinstance(model._require_fitted().ranker, LinearRanker)
    return LinearRow(model, X) if linear else SystemRow(model, X)


def explain(model: "LabelRanker", x: Any, label: Any) -> Any:
    row = explained_row(model, x)
    return row.explain(label_id(row.fitted, label))


def why_not(model: "LabelRanker", x: Any, label: Any, n_ahead: int) -> WhyNot:
    if not isinstance(n_ahead, int | np.integer) or isinstance(n_ahead, bool) or n_ahead < 0:
        raise ValueError(f"n_ahead is {n_ahead!r}, but must be an integer of at least 0")
    row = explained_row(model, x)
    return _why_not(row, label_id(row.fitted, label), int(n_ahead))


def _one_row(x: Any, of_texts: bool) -> Any:
    if of_texts:
        X = [x] if isinstance(x, str | Mapping) else x
    elif isinstance(x, tuple):  # ids and scores of a ranked list
        return x
    elif is_sparse(x) or hasattr(x, "iloc"):
        X = x.reshape(1, -1) if x.ndim == 1 and is_sparse(x) else x
    else:
        X = np.asarray(x)
        X = X[None] if X.ndim == 1 else X
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X) if hasattr(X, "__len__") else None
    if n_rows != 1:
        what = "a text or a record" if of_texts else "a row, as X[[17]]"
        raise ValueError(f"x must be one row, but it has {n_rows}: give {what}")
    return X
