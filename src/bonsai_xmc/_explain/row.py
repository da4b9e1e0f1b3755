"""One row of a model, for explanations of its labels."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from bonsai_xmc._explain.names import label_key, label_name

if TYPE_CHECKING:
    from bonsai_xmc._estimators.base import LabelRanker


class NoClassifier(ValueError):
    """A label that the model never predicts."""


class Row:
    """A row with its ranking. Labels are places in `classes_`."""

    def __init__(self, model: "LabelRanker", X: Any) -> None:
        self.model, self.X = model, X
        self.fitted = model._require_fitted()
        self.rows: Any = model._rows(X, self.fitted)

    @cached_property
    def scores(self) -> dict[int, float]:
        """Return the scores of the labels that the model's search finds, best first, up to `max_labels`."""
        ids, scores = self.model.top_k(self.X, self.model._max_labels())
        found = zip(ids[0].tolist(), scores[0].tolist(), strict=True)
        return {label: score for label, score in found if label >= 0}

    @property
    def ids(self) -> list[int]:
        """Return the labels of `scores`."""
        return list(self.scores)

    def rank(self, label: int) -> int | None:
        """Return the rank of a label, 1 for the best; None if the search does not find the label."""
        return self.ids.index(label) + 1 if label in self.scores else None

    def about(self, label: int) -> tuple[str | int, str]:
        """Return a label as in `classes_`, and its name."""
        return label_key(self.fitted, label), label_name(self.fitted, label)

    def explain(self, label: int) -> Any:
        """Explain the score of a label."""
        raise NotImplementedError
