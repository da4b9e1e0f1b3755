"""Rows of systems beside `Bonsai`, which explain labels in terms of their own, and of fusions, by member."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bonsai_xmc._explain.linear import LinearRow
from bonsai_xmc._explain.names import feature_names, label_name
from bonsai_xmc._explain.objects import FusedExplanation, MemberShare, SystemExplanation
from bonsai_xmc._explain.row import Row
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.fusion import FusionRanker
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.ranker import Evidence


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
    """A row of a fusion. A member that is a fusion, too, is explained by the shares of its own members."""

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
            linear = isinstance(model._require_fitted().ranker, LinearRanker)
            self._members[member] = (LinearRow if linear else SystemRow)(model, X)
        return self._members[member]
