"""A second stage: candidates of a model, scored by a user's function, such as a cross-encoder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.labels import check_rows
from bonsai_xmc._estimators.base import LabelRanker, with_scores
from bonsai_xmc._model.fusion import Member, best_sums
from bonsai_xmc._selection.fusion import Chosen, choose, truth_of

FIRST, SECOND = "model", "score"
Score = Callable[[list[Any], list[list[str]]], Sequence[Sequence[float]]]


class Reranked:
    """A fitted model whose best labels are scored once more; made by `rerank`.

    Attributes
    ----------
    weights_, links_ : dict
        Of "model" and "score", as in `Fusion`.
    chosen_ : dict
        What was measured on held-out rows, as in `Fusion`; empty if the weight was given.
    """

    def __init__(self, model: LabelRanker, score: Score, depth: int, batch_size: int) -> None:
        self.model, self.score = model, score
        self.depth = min(depth, len(model.classes_))
        self.batch_size = batch_size
        self.chosen_: dict[str, Any] = {}
        self._set((0.5, 0.5), ("score", "score"), (None, None))

    def _set(self, weights: Sequence[float], links: Sequence[str], calibrations: Sequence[Any]) -> None:
        fitted = self.model._require_fitted()
        self._members = tuple(
            Member(name, replace(fitted, calibration=own), {}, weight / sum(weights), link)
            for name, weight, link, own in zip((FIRST, SECOND), weights, links, calibrations, strict=True)
        )

    @property
    def weights_(self) -> dict[str, float]:
        return {member.name: member.weight for member in self._members}

    @property
    def links_(self) -> dict[str, str]:
        return {member.name: member.link for member in self._members}

    def _choose(self, X: Any, Y: Any) -> None:
        """Take the weights and links that are best on these rows."""
        true = truth_of(self.model._require_fitted(), Y)
        stages = self._stages(X)
        check_rows(len(stages[0][0]), true.n_rows)
        found: Chosen = choose(self._members, [true.rank(*stage) for stage in stages])
        self._set(*found.setting, found.calibrations)
        self.chosen_ = found.to_json()

    def _stages(self, X: Any) -> list[tuple[Array, Array]]:
        """Return the candidates of each row and their log scores, by the model and by the function."""
        X = list(X) if isinstance(X, Iterator) else X
        ids, log_scores = self.model._ranked(X, self.depth)
        names = np.array(self.model.label_names_, dtype=object)
        values = np.full(ids.shape, -np.inf, np.float64)
        for begin in range(0, len(ids), self.batch_size):
            rows = range(begin, min(begin + self.batch_size, len(ids)))
            candidates = [names[ids[i][ids[i] >= 0]].tolist() for i in rows]
            items = [X[[i]] if hasattr(X, "shape") else X[i] for i in rows]
            for i, of_row in zip(rows, _checked(self.score(items, candidates), candidates), strict=True):
                values[i, ids[i] >= 0] = of_row
        order = np.argsort(-values, axis=1, kind="stable")
        again = np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)
        return [(ids, log_scores), again]

    def top_k(self, X: Any, k: int = 5) -> tuple[Array, Array]:
        """Return ids and scores in [0, 1] of the k best labels of each row; see `Bonsai.top_k`.

        At most `depth` labels are found.
        """
        stages = zip(self._stages(X), self._members, strict=True)
        parts = [(ids, member.weight * member.values(ids, scores)) for (ids, scores), member in stages]
        ids, values = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        found, log_scores = best_sums(ids, values, k, len(self.model.classes_))
        return found, np.exp(log_scores)

    def top_k_labels(self, X: Any, k: int = 5) -> list[list[tuple[Any, float]]]:
        """Return the k best labels of each row as (label, score), best first."""
        return with_scores(self.model.classes_, *self.top_k(X, k))


def _checked(scores: Any, candidates: Sequence[Sequence[str]]) -> Iterator[Array]:
    """Return the log scores that a function gives to the candidates of each row."""
    if len(scores) != len(candidates):
        raise ValueError(f"the function was given {len(candidates)} rows, and returned {len(scores)}")
    for of_row, names in zip(scores, candidates, strict=True):
        values = np.asarray(of_row, np.float64)
        if values.shape != (len(names),) or not np.isfinite(values).all():
            raise ValueError(
                f"the function must return a finite number for each candidate of a row, {len(names)} here, "
                f"but returned {of_row!r:.60}"
            )
        yield -np.logaddexp(0, -values)  # the logarithm of 1 / (1 + exp(−score))


def rerank(
    model: LabelRanker,
    score: Score,
    X: Any = None,
    Y: Any = None,
    *,
    depth: int = 20,
    weight: float | None = None,
    batch_size: int = 32,
) -> Reranked:
    """Score the best labels of a model once more; see `Bonsai.rerank`."""
    model._require_fitted()
    if not callable(score):
        raise TypeError(f"score is a {type(score).__name__}, but must be a function of rows and candidates")
    for name, number in (("depth", depth), ("batch_size", batch_size)):
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{name} is {number!r}, but must be an integer of at least 1")
    if (X is None) != (Y is None) or (X is None) == (weight is None):
        raise ValueError("give rows X with their labels Y, by which the weight is chosen, or a weight")
    if weight is not None and not 0 <= weight <= 1:
        raise ValueError(f"weight is {weight!r}, but must be a number from 0 to 1")
    reranked = Reranked(model, score, int(depth), int(batch_size))
    if weight is not None:
        reranked._set((1 - weight, weight), ("score", "score"), (None, None))
    else:
        reranked._choose(X, Y)
    return reranked
