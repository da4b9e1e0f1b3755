"""Why a label is not predicted: its rank among all labels, those ahead, and where a search left it."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bonsai_xmc._explain.linear import LinearRow
from bonsai_xmc._explain.objects import Ahead, Difference, Explanation, WhyNot
from bonsai_xmc._explain.row import NoClassifier
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.thresholds import resolve


def why_not(row: LinearRow, label: int, n_ahead: int) -> WhyNot:
    """Explain why a label, given by its place in `classes_`, is not predicted; compare it with those ahead.

    Raises ValueError for models other than `Bonsai`, which have no weights to compare.
    """
    if not isinstance(row.fitted.ranker, LinearRanker):
        raise ValueError(
            f"why_not compares the linear classifiers of a Bonsai, but the model is of the kind "
            f"{row.fitted.ranker.kind!r}: explain the label itself (`explain`, --label)"
        )
    key, name = row.about(label)
    ids, scores = (part[0] for part in row.model.top_k(row.X, row.fitted.n_labels, exact=True))
    ranked = ids[ids >= 0]
    try:
        explanation = row.explain(label)
    except NoClassifier as error:
        return WhyNot(key, name, "no classifier", (str(error),), None, len(ranked), 0.0, (), None)
    if not len(ranked):
        return WhyNot(key, name, "no features", explanation.notes, None, 0, 0.0, (), explanation)
    at = np.flatnonzero(ranked == label)
    rank = int(at[0]) + 1 if len(at) else None
    score = float(scores[at[0]]) if len(at) else 0.0
    # labels that the model's own search ranks first, by their score or because it finds only them
    before = row.ids[: explanation.rank - 1] if explanation.rank is not None else row.ids
    ahead = tuple(_ahead(row, other, explanation) for other in before[:n_ahead])
    reason = _reason(row, explanation)
    sentences = tuple(_sentences(row, explanation, reason, rank, len(ranked), score))
    return WhyNot(key, name, reason, sentences, rank, len(ranked), score, ahead, explanation)


def _ahead(row: LinearRow, label: int, explanation: Explanation) -> Ahead:
    other = row.explain(label)
    assert other.rank is not None
    return Ahead(
        other.label, other.name, other.rank, other.score, other.margin, _differences(explanation, other)
    )


def _differences(explanation: Explanation, ahead: Explanation) -> tuple[Difference, ...]:
    ours, theirs = ({e.feature: e for e in one.effects} for one in (explanation, ahead))
    found = []
    for feature in ours.keys() | theirs.keys():
        e = theirs.get(feature) or ours[feature]
        own, other = (side[feature].effect if feature in side else 0.0 for side in (ours, theirs))
        found.append(Difference(feature, e.name, e.field, e.kind, own, other, other - own, e.where, e.word))
    return tuple(sorted(found, key=lambda d: (-abs(d.difference), d.feature)))


def threshold_of(row: LinearRow, label: Any) -> float:
    """Return the threshold of `predict` for a label."""
    threshold = resolve("auto", row.model)
    return threshold if isinstance(threshold, float) else float(threshold[row.fitted.labels.place[label]])


def _reason(row: LinearRow, explanation: Explanation) -> str:
    if explanation.rank is not None:
        return "predicted" if explanation.score >= threshold_of(row, explanation.label) else "threshold"
    if not explanation.found:
        return row.fitted.linear.strategy.search  # "beam" or "index"
    return "rank"


def _sentences(
    row: LinearRow, explanation: Explanation, reason: str, rank: int | None, n_ranked: int, score: float
) -> Iterable[str]:
    name, most = explanation.name, row.model._max_labels()
    if rank is not None:
        yield f"{name!r} is number {rank:,} of {n_ranked:,} labels in an exhaustive search, score {score:.3g}"
    else:
        yield f"{name!r} has no score, even in an exhaustive search"
    if explanation.rank is not None and explanation.rank != rank:
        yield f"the model's own search ranks it as number {explanation.rank:,}, score {explanation.score:.3g}"
    if reason in ("threshold", "predicted"):
        does, side = ("leaves it out", "below") if reason == "threshold" else ("returns it", "not below")
        least = threshold_of(row, explanation.label)
        yield f"predict {does}: its score {explanation.score:.3g} is {side} the threshold {least:.3g}"
    elif reason == "rank":
        yield f"it is left out: max_labels is {most}, and so many labels are ahead of it"
    elif reason == "index":
        yield f"it is not among the {most} best labels (max_labels) that the index finds"
        if rank is not None and rank <= most:
            yield "its classifier is not among the candidates of the index; a larger n_probe adds it"
    elif reason == "beam":
        yield from (path.left for path in explanation.paths if path.left)
