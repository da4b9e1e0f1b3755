"""The trained model: one immutable object that prediction and files read, and nothing else writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import _core
from bonsai_xmc._data.tree import LabelTree, trees_of
from bonsai_xmc._model.calibration import Calibration
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._model.probes import Probes
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._text.fitted import FittedText

Array = npt.NDArray[Any]

VERSION = version("bonsai-xmc")


_KEPT = 8  # restricted models


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from. Prediction does not depend on it."""

    version: str  # of this package
    isa: str  # instruction set that trained it
    n_iter: int  # passes or Newton steps of the slowest classifier
    seed: int


def core_model(
    trees: _core.Forest | None,
    one_vs_rest: _core.Forest | None,
    index: _core.LabelIndex | None,
    strategy: Strategy,
    label_counts: Array,
) -> _core.Model:
    """The model that ranks labels as the strategy says."""
    offsets = None
    if strategy.logit_adjustment > 0:
        offsets = (-strategy.logit_adjustment * np.log(np.maximum(label_counts, 1))).astype(np.float32)
    options = (strategy.loss, strategy.normalize, strategy.blend_weight, offsets)
    return _core.Model(trees, one_vs_rest, *options, index=index, strict_beam=strategy.strict_beam)


@dataclass(frozen=True, eq=False)
class FittedModel:
    """The result of `fit`.

    `dataclasses.replace` gives a changed copy; the large parts are shared.
    """

    core: _core.Model
    classes: Array  # names (objects) or integers, one for each label
    label_counts: Array  # int64: training rows of each label; 1 or 0 if `n_rows` is not known
    n_rows: int | None  # that it was trained on; None: it was trained elsewhere, nobody knows by which rows
    n_features: int
    feature_names: Array | None  # objects
    id_base: int | None  # of the ids in the text file that it was trained on, if it was
    strategy: Strategy  # how it was trained
    given: Mapping[str, Any]  # training parameters as the user gave them, in JSON's types
    threshold: float  # the one that threshold="auto" uses
    provenance: Provenance
    text: FittedText | None = None  # the vectorizer of a TextBonsai
    # A label that was made of several has their classifiers. Slots are the labels as the core knows them.
    slots: Array | None = None  # int32, not descending: the label of each slot; None: slots are labels
    slot_counts: Array | None = None  # int64: training rows of each slot; None: `label_counts`
    calibration: Calibration | None = None  # of its scores, if they are calibrated
    rows: KeptRows | None = None  # training rows, for learning from further ones
    probes: Probes | None = None  # of the search by an index, if they were measured
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of `fit`; not stored
    _cache: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)  # what the others tell

    @property
    def n_labels(self) -> int:
        return len(self.classes)

    @property
    def imported(self) -> bool:
        """Whether it was trained elsewhere: neither its rows nor its parameters of training are known."""
        return self.n_rows is None

    @property
    def n_slots(self) -> int:
        return self.core.n_labels

    @property
    def label_of_slot(self) -> Array:
        return np.arange(self.n_slots, dtype=np.int32) if self.slots is None else self.slots

    @property
    def counts_of_slots(self) -> Array:
        return self.label_counts if self.slot_counts is None else self.slot_counts

    @property
    def named(self) -> bool:
        """Whether labels have names; otherwise they are integers."""
        return bool(self.classes.dtype == object)

    @property
    def keyed(self) -> bool:
        """Whether labels are integers other than 0, 1, …, that is, more than columns of a matrix."""
        return not self.named and not np.array_equal(self.classes, np.arange(self.n_labels))

    def scores(self, ids: Array, log_scores: Array, *, apart: bool = True) -> Array:
        """The scores that users see, of labels as the core has ranked them; 0 for the id −1."""
        if self.calibration is None:
            return np.exp(log_scores)
        return self.calibration.scores(ids, log_scores, self.label_counts, apart=apart)

    def trees(self) -> list[LabelTree]:
        """The label trees; empty if the model has none. A merged label is in several leaves."""
        if self.core.trees is None:
            return []
        labels = self.classes if self.slots is None else self.classes[self.slots]
        known = self.keyed or self.slots is not None
        names: Any = labels if self.named else list(map(str, labels)) if known else None
        return trees_of(self.core.trees.arrays(), names)

    @property
    def place(self) -> Mapping[Any, int]:
        """The index of each label in `classes`."""
        if "place" not in self._cache:
            self._cache["place"] = {label: i for i, label in enumerate(self.classes.tolist())}
        place: dict[Any, int] = self._cache["place"]
        return place

    def top_k(
        self, rows: Any, k: int, *, allowed: Array | None = None, **options: Any
    ) -> tuple[Array, Array]:
        """(ids, log scores) of the k best labels of each row, k ≤ n_labels; −1 and −∞ where there are fewer.

        `allowed` says which labels may be found. The options are those of the core's `top_k`.
        """
        core = self.core if allowed is None else self._restricted(allowed)
        if self.slots is None:
            return core.top_k(rows, k, **options)
        # At worst, the best labels are those of the most slots.
        sizes = np.sort(np.bincount(self.slots, minlength=self.n_labels))[::-1]
        ids, scores = core.top_k(rows, min(self.n_slots, int(sizes[:k].sum())), **options)
        return _best_slots(np.where(ids < 0, -1, self.slots[ids]), scores, k)

    def _restricted(self, allowed: Array) -> _core.Model:
        """The model for these labels; the last ones are kept."""
        key = np.packbits(allowed).tobytes()
        kept: dict[bytes, _core.Model] = self._cache.setdefault("restricted", {})
        model = kept.pop(key, None)
        if model is None:
            model = self.core.restricted(np.ascontiguousarray(allowed[self.label_of_slot], np.uint8))
        kept[key] = model
        for oldest in list(kept)[:-_KEPT]:
            kept.pop(oldest, None)
        return model

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_cache": {}}

    def __deepcopy__(self, memo: Any) -> "FittedModel":
        return self


def _best_slots(labels: Array, scores: Array, k: int) -> tuple[Array, Array]:
    """The k best labels of rankings in which a label may occur several times; the first one counts."""
    order = np.argsort(labels, axis=1, kind="stable")
    ascending = np.take_along_axis(labels, order, axis=1)
    again = np.zeros(labels.shape, bool)
    again[:, 1:] = ascending[:, 1:] == ascending[:, :-1]
    repeated = np.empty_like(again)
    np.put_along_axis(repeated, order, again, axis=1)
    repeated |= labels < 0
    first = np.argsort(repeated, axis=1, kind="stable")[:, :k]
    gone = np.take_along_axis(repeated, first, axis=1)
    ids = np.where(gone, -1, np.take_along_axis(labels, first, axis=1)).astype(np.int32)
    best = np.where(gone, -np.inf, np.take_along_axis(scores, first, axis=1)).astype(np.float32)
    return ids, best
