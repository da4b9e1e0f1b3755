"""The trained model: one immutable object, a ranker and what every model has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.tree import LabelTree
from bonsai_xmc._model.calibration import Calibration
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.ranker import Ranker
from bonsai_xmc._model.similar import Similar
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc._text.reader import EncodedText, FusedText, TextReader

VERSION = version("bonsai-xmc")


@dataclass(frozen=True)
class Provenance:
    """The origin of a model. Predictions do not depend on it."""

    version: str  # of this package
    isa: str  # instruction set that trained it
    n_iter: int  # passes or Newton steps of the slowest classifier
    seed: int


def class_array(keys: Sequence[Any]) -> Array:
    """Return labels as an array: names are objects."""
    classes: Array = np.empty(len(keys), dtype=object if isinstance(keys[0], str) else np.int64)
    classes[:] = keys
    return classes


@dataclass(frozen=True, eq=False)
class LabelTable:
    """The labels of a model, with a column for each property."""

    classes: Array  # names (objects) or integers
    counts: Array  # int64: training rows of each label; 1 or 0 if the number of rows is not known
    names: tuple[str, ...] = ()  # in addition to the classes, "" where there is none; or none at all
    thresholds: Array | None = None  # float32, if labels have thresholds of their own; 0: the common one

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def named(self) -> bool:
        """Whether labels have names; otherwise they are integers."""
        return bool(self.classes.dtype == object)

    @property
    def keyed(self) -> bool:
        """Whether labels are integers other than 0, 1, …, that is, more than columns of a matrix."""
        return not self.named and not np.array_equal(self.classes, np.arange(len(self)))

    @cached_property
    def place(self) -> Mapping[Any, int]:
        """The index of each label in `classes`."""
        return {label: i for i, label in enumerate(self.classes.tolist())}

    @cached_property
    def similar(self) -> Similar:
        """The labels, indexed for suggestions in place of a misspelt one."""
        return Similar(self.classes, self.names)

    def take(self, order: Array, **changed: Any) -> "LabelTable":
        """Return a table of these labels, −1 for a new one; `changed` replaces columns of the result.

        Every column follows the order here, and nowhere else.
        """
        names = tuple(self.names[i] if i >= 0 else "" for i in order.tolist()) if self.names else ()
        known = np.maximum(order, 0)
        of_known = lambda column: np.where(order >= 0, column[known], column.dtype.type(0))
        thresholds = None if self.thresholds is None else of_known(self.thresholds)
        table = LabelTable(self.classes[known], of_known(self.counts), names, thresholds)
        return replace(table, **changed)


@dataclass(frozen=True, eq=False)
class FittedModel:
    """The result of `fit`.

    `dataclasses.replace` gives a changed copy; the large parts are shared.
    """

    ranker: Ranker
    labels: LabelTable
    n_rows: int | None  # that it was trained on; None: it was trained elsewhere
    n_features: int
    feature_names: Array | None  # objects
    id_base: int | None  # of the ids in the text file that it was trained on, if it was
    given: Mapping[str, Any]  # training parameters as the user gave them, in JSON's types
    threshold: float  # the one that threshold="auto" uses
    provenance: Provenance
    text: TextReader | None = None  # what turns texts into rows, if the model is one of texts
    calibration: Calibration | None = None  # of its scores, if they are calibrated
    rows: KeptRows | None = None  # training rows, for learning from further ones
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of `fit`; not stored

    @property
    def classes(self) -> Array:
        return self.labels.classes

    @property
    def label_counts(self) -> Array:
        return self.labels.counts

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @property
    def thresholds(self) -> Array | None:
        """The threshold of each label; None where all have the common one."""
        own = self.labels.thresholds
        return None if own is None else np.where(own > 0, own, np.float32(self.threshold))

    @property
    def imported(self) -> bool:
        """Whether it was trained elsewhere: neither its rows nor its parameters of training are known."""
        return self.n_rows is None

    @property
    def linear(self) -> LinearRanker:
        """The ranker of a `Bonsai`; ValueError if the model is of another kind."""
        if not isinstance(self.ranker, LinearRanker):
            raise ValueError(
                f"this needs the linear classifiers of a Bonsai, but the model is of the kind "
                f"{self.ranker.kind!r}"
            )
        return self.ranker

    @property
    def words(self) -> FittedText | None:
        """The vocabulary of a text model or of one of its members; None without one."""
        return next((reader for reader in self._readers if isinstance(reader, FittedText)), None)

    @property
    def encoded(self) -> EncodedText | None:
        """The reader that encodes texts for the model or one of its members; None without one."""
        return next((reader for reader in self._readers if isinstance(reader, EncodedText)), None)

    @property
    def _readers(self) -> tuple[TextReader | None, ...]:
        return self.text.readers if isinstance(self.text, FusedText) else (self.text,)

    def scores(self, ids: Array, log_scores: Array, *, apart: bool = True) -> Array:
        """Return the scores that users see, of labels as a ranker has ranked them; 0 for the id −1."""
        if self.calibration is None:
            return np.exp(log_scores)
        return self.calibration.scores(ids, log_scores, self.label_counts, apart=apart)

    @property
    def trees(self) -> list[LabelTree]:
        """The label trees; empty if the model has none. A merged label is in several leaves."""
        if not isinstance(self.ranker, LinearRanker):
            return []
        named = self.labels.named or self.labels.keyed or self.ranker.slots is not None
        return self.ranker.trees([str(label) for label in self.classes.tolist()] if named else None)

    def __deepcopy__(self, memo: Any) -> "FittedModel":
        return self
