"""Explanations of fusions: the share of each member in the score, and the member's own explanation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc._explain.evidence import SystemExplanation, SystemRow
from bonsai_xmc._explain.names import label_name
from bonsai_xmc._explain.objects import Explanation
from bonsai_xmc._explain.row import ExplainedRow
from bonsai_xmc._model.fusion import FusionRanker
from bonsai_xmc._model.linear import LinearRanker

if TYPE_CHECKING:
    from bonsai_xmc._estimators.base import LabelRanker


@dataclass(frozen=True)
class MemberShare:
    """What a member adds to the score of a label."""

    name: str
    link: str  # "score", "calibrated" or "rank"
    weight: float
    value: float  # by the link, in [0, 1]; 0 if the label is not among the member's best
    share: float  # of the score: all shares add up to 1
    explanation: Explanation | SystemExplanation | None
    note: str = ""  # why there is no explanation


@dataclass(frozen=True)
class FusedExplanation:
    """Why a row has this score for a label: by member, those that count most first.

    Attributes
    ----------
    label, name, score, rank
        As in `Explanation`.
    kind : str
        "fusion".
    members : tuple of MemberShare
    """

    label: str | int
    name: str
    score: float
    rank: int | None
    kind: str
    members: tuple[MemberShare, ...] = field(default_factory=tuple)

    @property
    def summary(self) -> str:
        """The shares in words: "words 71 %, vectors 29 %"."""
        return ", ".join(f"{one.name} {100 * one.share:.0f} %" for one in self.members)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON can hold it."""
        members = [
            {**vars(one), "explanation": None if one.explanation is None else one.explanation.to_dict()}
            for one in self.members
        ]
        return {**vars(self), "members": members}

    def to_text(self, color: bool = False, n: int = 10) -> str:
        """Return the shares, and tables of at most n rows, for a terminal."""
        rank = "not ranked" if self.rank is None else f"rank {self.rank}"
        lines = [f"{self.name}: score {self.score:.4g}, {rank}: {self.summary}"]
        for one in self.members:
            lines += ["", f"  {_head(one)}"]
            inner = one.note if one.explanation is None else one.explanation.to_text(color, n)
            lines += [f"    {line}".rstrip() for line in inner.splitlines()]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return a fragment of HTML that needs nothing else."""
        rank = "not ranked" if self.rank is None else f"rank {self.rank}"
        parts = [f"<section><h3>{escape(self.name)} <small>score {self.score:.4g}, {rank}</small></h3>"]
        parts.append(f"<p>{escape(self.summary)}</p>")
        for one in self.members:
            inner = f"<p>{escape(one.note)}</p>" if one.explanation is None else one.explanation.to_html()
            inner = inner.replace("<section", "<div").replace("</section>", "</div>")
            parts += [f"<h4>{escape(_head(one))}</h4>", inner]
        return "\n".join([*parts, "</section>"])

    _repr_html_ = to_html

    def __str__(self) -> str:
        return self.to_text()


def _head(one: MemberShare) -> str:
    link = {"score": "score", "calibrated": "calibrated score", "rank": "60 + 1 over 60 + rank"}[one.link]
    return (
        f"{one.name}: {100 * one.share:.0f} % of the score ({link} {one.value:.4g}, weight {one.weight:.3g})"
    )


class FusedRow(SystemRow):
    """A row of a fusion, ready to be explained."""

    def __init__(self, model: "LabelRanker", X: Any) -> None:
        super().__init__(model, X)
        self._k = model._max_labels()
        self._fused: Any = self._row
        self._models = model.classifier_.members_
        self._inputs = {name: X[name] if isinstance(X, Mapping) else X for name in self._models}
        self._explained: dict[str, Any] = {}

    def explain(self, label: int) -> Any:
        """Explain the score of a label."""
        fitted, ranker = self.fitted, self.fitted.ranker
        assert isinstance(ranker, FusionRanker)
        parts = {one.name: one for one in ranker.parts_of(self._fused, label, self._k)}
        total = sum(one.part for one in parts.values()) or 1.0
        shares = []
        for member in ranker.members:
            own = parts[member.name]
            explanation, note = self._of_member(member, label)
            share = own.part / total
            shares.append(
                MemberShare(member.name, member.link, member.weight, own.value, share, explanation, note)
            )
        shares.sort(key=lambda one: -one.share)
        key = fitted.classes[label] if fitted.labels.named else int(fitted.classes[label])
        rank = self.ids.index(label) + 1 if label in self._scores else None
        score = self._scores.get(label, 0.0)
        return FusedExplanation(key, label_name(fitted, label), score, rank, ranker.kind, tuple(shares))

    def _of_member(self, member: Any, label: int) -> tuple[Any, str]:
        """The explanation of a member, or why there is none."""
        own = label
        if member.labels is not None:
            found = np.flatnonzero(member.labels == label)
            if not len(found):
                return None, "it does not have this label"
            own = int(found[0])
        if member.model.text is not None and member.model.words is None:
            return None, "its features are dimensions of a vector, which have no names"
        try:
            if member.name not in self._explained:
                self._explained[member.name] = _row_of_member(
                    self._models[member.name], self._inputs[member.name]
                )
            return self._explained[member.name].explain(own), ""
        except ValueError as error:
            return None, str(error)


def _row_of_member(model: "LabelRanker", X: Any) -> Any:
    """A row of a member; a member that is a fusion is explained by the shares of its own members."""
    linear = isinstance(model._require_fitted().ranker, LinearRanker)
    return ExplainedRow(model, X) if linear else SystemRow(model, X)
