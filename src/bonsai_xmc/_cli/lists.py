"""Predictions of another system as rows for a fusion with a ranked list (``--list``)."""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.fusion import Member, fusion_of, list_members
from bonsai_xmc._model.ranked_list import ListRanker
from bonsai_xmc._text.reader import FusedText, TextReader
from bonsai_xmc.metrics._ranking import best_first

from . import predictions, source
from .io import Inputs

DEPTH = 100  # labels of each row that are read


class Listed(NamedTuple):
    """A file of predictions: labels and scores, best first, by the number of the row."""

    name: str
    rows: Mapping[int, list[tuple[str, float]]]

    @classmethod
    def read(cls, args: argparse.Namespace, inputs: Inputs, path: str, labels: Sequence[str]) -> "Listed":
        """Read predictions for the argument DATA; numbers of labels are places in `labels`."""
        name = inputs.name(path)
        if predictions.kind_of(inputs, path) == "labels":
            return cls(name, predictions.read_labels(inputs, path))
        file = predictions.read_columns(inputs, path)
        if file.shape[1] != len(labels):
            raise ValueError(
                f"{name} has numbers of {file.shape[1]:,} labels, but the models have {len(labels):,}; give "
                "predictions as JSON lines, CSV or TSV, which have the labels themselves"
            )
        numbers = source.row_numbers(args, inputs, file.shape[0], name)
        ids, scores = best_first(file.row, file.label, file.score, file.shape[0], DEPTH)
        of_row = lambda i: [(labels[j], s) for j, s in zip(ids[i], scores[i].tolist(), strict=True) if j >= 0]
        return cls(name, {number: of_row(i) for i, number in enumerate(numbers)})

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for row in self.rows.values() for label, _ in row))

    def ranked(self, rows: Sequence[int], data: str, column: Mapping[str, int]) -> tuple[Any, Any]:
        """Return columns of labels, and scores, for rows of the argument DATA; others are left out."""
        missing = next((row for row in rows if row not in self.rows), None)
        if missing is not None:
            raise ValueError(f"{self.name} has no predictions for row {missing} of {data}")
        found = [[(column[label], s) for label, s in self.rows[row] if label in column] for row in rows]
        width = max(1, min(DEPTH, max(map(len, found), default=1)))
        ids, scores = np.full((len(rows), width), -1, np.int32), np.zeros((len(rows), width), np.float32)
        for i, entries in enumerate(found):
            for rank, (label, score) in enumerate(entries[:width]):
                ids[i, rank], scores[i, rank] = label, score
        return ids, scores


class Lists:
    """The rows of a fusion with ranked lists: those of its models, and the lists for them."""

    def __init__(self, members: Sequence[Member], data: str, listed: Sequence[Listed]) -> None:
        self._data = data
        models = [one for one in members if not isinstance(one.model.ranker, ListRanker)]
        lists = [one for one in members if isinstance(one.model.ranker, ListRanker)]
        self._models = [one.name for one in models]
        self._lists = dict(zip([one.name for one in lists], listed, strict=True))
        self._columns = {one.name: _columns(one.model) for one in lists}
        self.text: TextReader | None = FusedText.of([one.model.text for one in models])
        self.n_features = models[0].model.n_features
        for name, one in self._lists.items():
            unknown = [label for label in one.labels if label not in self._columns[name]]
            if unknown:
                warnings.warn(
                    f"{one.name}: {len(unknown):,} of {len(one.labels):,} labels are not in the model, such "
                    f"as {unknown[0]!r}",
                    stacklevel=2,
                )

    @classmethod
    def of(cls, args: argparse.Namespace, fitted: FittedModel, inputs: Inputs) -> "Lists | None":
        """Return the lists that a model needs, of the option --list; None if it needs none."""
        needed, given = list_members(fitted), getattr(args, "list", None) or []
        if not needed:
            if given and not getattr(args, "against", None):
                raise ValueError("--list is for a model with a ranked list as a member; this one has none")
            return None
        if len(given) != len(needed):
            raise ValueError(
                f"{args.model} ranks also by lists of other systems ({', '.join(needed)}): --list FILE gives "
                f"{args.data} one of each, in this order, to predict, evaluate and explain"
            )
        labels = [str(label) for label in fitted.classes.tolist()]
        return cls(
            fusion_of(fitted).members, args.data, [Listed.read(args, inputs, path, labels) for path in given]
        )

    def __call__(self, X: Any, rows: Sequence[int]) -> dict[str, Any]:
        """Return the rows of each member, given those of the models and their numbers."""
        of_lists = {
            name: one.ranked(rows, self._data, self._columns[name]) for name, one in self._lists.items()
        }
        return dict.fromkeys(self._models, X) | of_lists


def _columns(model: FittedModel) -> dict[str, int]:
    assert isinstance(model.ranker, ListRanker)
    return dict(zip(map(str, model.classes.tolist()), model.ranker.columns.tolist(), strict=True))
