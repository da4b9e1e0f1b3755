"""The ranker of a ranked list: the features of a row are the scores that another system gives to labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import Tensor
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._model.ranker import RANKED_LIST, Evidence, Search, Searching, best_entries

_MOST = 3.4e38  # that float32 holds
_LEAST = 1e-30  # the score of a label that is listed with the lowest score of all


@dataclass(frozen=True, eq=False)
class ListRanker(Searching):
    """Feature `columns[i]` of a row is the score of label i; 0: the label is not listed."""

    columns: Array  # int32, distinct
    n_features: int
    low: float  # the scores that become 0 and 1
    high: float

    kind: ClassVar[str] = RANKED_LIST
    FACTS: ClassVar[Any] = {"low": (-_MOST, _MOST), "high": (-_MOST, _MOST)}
    TENSORS: ClassVar[Mapping[str, Tensor]] = {"columns": Tensor("i4", "L", least=0, most="D")}

    @property
    def n_labels(self) -> int:
        return len(self.columns)

    def _top_k(self, rows: Rows, k: int, search: Search) -> tuple[Array, Array]:
        """See `Ranker`. Labels that are not listed are not found."""
        listed, label_of = rows.to_sparse(), np.full(self.n_features, -1, np.int32)
        label_of[self.columns] = np.arange(self.n_labels, dtype=np.int32)
        if search.allowed is not None:
            label_of[self.columns[~search.allowed]] = -1
        labels = label_of[listed.indices]
        row = np.repeat(np.arange(listed.n_rows), np.diff(listed.indptr))
        found = labels >= 0
        # By the scores as they are listed: those beyond `high` keep their order, too.
        ids, scores = best_entries(row[found], labels[found], listed.values[found], listed.n_rows, k)
        shares = (scores.astype(np.float64) - self.low) / (self.high - self.low)
        return ids, np.where(ids >= 0, np.log(np.clip(shares, _LEAST, 1.0)), -np.inf).astype(np.float32)

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """See `Ranker`: the place of the label in the list."""
        listed = row.to_sparse()
        at = np.flatnonzero(listed.indices == self.columns[label])
        if not len(at):
            raise ValueError("the list of this row does not have the label")
        score = float(listed.values[at[0]])
        rank = 1 + int((listed.values > score).sum())
        return [Evidence("the ranked list", ("label", "rank", "score"), ((label, rank, score),))]

    def take(self, labels: Array) -> Self:
        """See `Ranker`."""
        return replace(self, columns=self.columns[labels])

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`."""
        return {"low": self.low, "high": self.high}, {"columns": self.columns}

    @classmethod
    def _from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        columns = np.array(arrays["columns"])
        if len(np.unique(columns)) < n_labels:
            raise ValueError("two labels have the same column")
        if not facts["low"] < facts["high"]:
            raise ValueError(f"the scores from {facts['low']} to {facts['high']} are no range")
        return cls(columns, n_features, facts["low"], facts["high"])
