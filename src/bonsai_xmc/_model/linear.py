"""The ranker of `Bonsai`: label trees, one-vs-rest classifiers, or a blend, in the core.

Trees over rows may rank labels together with one-vs-rest classifiers.

Imports the core for the forests of classifiers, which it searches.
"""

import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import DEFAULTS, PARAMETERS, check
from bonsai_xmc._base.rules import number_between
from bonsai_xmc._data.rows import Rows
from bonsai_xmc._data.tree import LabelTree, trees_of
from bonsai_xmc._model.ranker import BONSAI, Evidence, Search, Searching
from bonsai_xmc._model.row_trees import TreeRanker, copied
from bonsai_xmc._model.strategy import STRATEGIES, Probes, Strategy, beam_size, n_probe

_KEPT = 8  # restricted models
# What prediction depends on: model files have it twice, and the two must agree.
_OF_PREDICTION = (
    "classifiers",
    "search",
    "loss",
    "normalize",
    "blend_weight",
    "logit_adjustment",
    "row_tree_weight",
)
# Values of a strategy that the parameters of the estimator do not take.
_UNUSED = {"representation": "custom", "n_trees": 0, "blend_weight": 0.0, "search": "beam"}
_BIAS = number_between(-1e9, 1e9, "learn")
# A residual has the trees and the biases of the forest that it belongs to.
RESIDUAL = ("scale", "bucket_ptr", "record_ptr", "shift", "buckets", "records")


def core_model(
    trees: _core.Forest | None,
    one_vs_rest: _core.Forest | None,
    index: _core.LabelIndex | None,
    strategy: Strategy,
    label_counts: Array,
    row_trees: _core.RowTrees | None = None,
) -> _core.Model:
    """Return the model that ranks labels by a strategy."""
    offsets = None
    if strategy.logit_adjustment > 0:
        offsets = (-strategy.logit_adjustment * np.log(np.maximum(label_counts, 1))).astype(np.float32)
    options = (strategy.loss, strategy.normalize, strategy.blend_weight, offsets)
    beside: Any = {"row_trees": row_trees, "row_tree_weight": strategy.row_tree_weight}
    return _core.Model(trees, one_vs_rest, *options, index=index, strict_beam=strategy.strict_beam, **beside)


@dataclass(frozen=True, eq=False)
class LinearRanker(Searching):
    """Linear classifiers of labels and of tree nodes.

    A label that was made of several has their classifiers. Slots are the labels of the core.
    """

    core: _core.Model
    strategy: Strategy  # how it was trained
    slot_counts: Array  # int64: training rows of each slot
    slots: Array | None = None  # int32, not descending: the label of each slot; None: slots are labels
    probes: Probes | None = None  # of the search by an index, if they were measured
    _cache: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)

    kind: ClassVar[str] = BONSAI

    @property
    def n_slots(self) -> int:
        return self.core.n_labels

    @property
    def n_labels(self) -> int:
        return self.n_slots if self.slots is None else int(self.slots[-1]) + 1

    @property
    def n_features(self) -> int:
        return self.core.n_features

    @property
    def label_of_slot(self) -> Array:
        return np.arange(self.n_slots, dtype=np.int32) if self.slots is None else self.slots

    def _top_k(self, rows: Rows, k: int, search: Search) -> tuple[Array, Array]:
        """See `Ranker`."""
        core = self.core if search.allowed is None else self._restricted(search.allowed)
        beam, probes = self._search(k, **search.given)
        options: dict[str, Any] = {"beam_size": 0 if search.exact else beam, "n_probe": probes}
        options |= {"exact": search.exact, "threads": search.threads, "progress": search.progress}
        if self.slots is None:
            return core.top_k(rows.to_core(), k, **options)
        # At worst, the best labels are those of the most slots.
        sizes = np.sort(np.bincount(self.slots, minlength=self.n_labels))[::-1]
        ids, scores = core.top_k(rows.to_core(), min(self.n_slots, int(sizes[:k].sum())), **options)
        return _best_slots(np.where(ids < 0, -1, self.slots[ids]), scores, k)

    def _search(self, k: int, **given: Any) -> tuple[int, int]:
        """Return the nodes of a beam and the blocks of an index that are searched."""
        nodes, blocks = (given.get(name, DEFAULTS[name]) for name in ("beam_size", "n_probe"))
        beam = beam_size(nodes, self.strategy.n_trees, self.strategy.search)
        measured = (self.strategy.logit_adjustment > 0, self.probes)
        return beam, n_probe(blocks, self.strategy.search, k, self.n_labels, *measured)

    def check_search(self, **given: Any) -> None:
        """Raise ValueError if this model cannot be searched with these parameters."""
        self._search(1, **given)

    def _restricted(self, allowed: Array) -> _core.Model:
        """Return the model for these labels; the last models are kept."""
        key = np.packbits(allowed).tobytes()
        model = self._cache.pop(key, None)
        if model is None:
            model = self.core.restricted(np.ascontiguousarray(allowed[self.label_of_slot], np.uint8))
        self._cache[key] = model
        for oldest in list(self._cache)[:-_KEPT]:
            self._cache.pop(oldest, None)
        return model

    def trees(self, names: Any) -> list[LabelTree]:
        """Return the label trees; empty if there are none. A merged label is in several leaves."""
        if self.core.trees is None:
            return []
        names = names if names is None or self.slots is None else [names[i] for i in self.slots]
        return trees_of(self.core.trees.arrays(), names)

    @property
    def row_trees(self) -> TreeRanker | None:
        """The trees over rows, whose labels are slots; None if there are none."""
        trees = self.core.row_trees
        if trees is None:
            return None
        return TreeRanker(trees.arrays(), trees.n_features, trees.n_labels, normalize=trees.normalize)

    def take(self, labels: Array) -> Self:
        """See `Ranker`; `edit_labels` does more."""
        raise NotImplementedError

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """See `Ranker`; `_explain.linear` does more."""
        raise NotImplementedError

    def with_core(self, **changed: Any) -> Self:
        """Return a ranker with another strategy or other counts of slots, and the same classifiers."""
        other, core = replace(self, **changed), self.core
        parts = core.trees, core.one_vs_rest, core.index
        return replace(other, core=core_model(*parts, other.strategy, other.slot_counts, core.row_trees))

    def verify(self) -> None:
        """Check every index of the classifiers, which takes time."""
        for part in (self.core.trees, self.core.one_vs_rest, self.core.index):
            if part is not None:
                part.verify()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_cache": {}}

    # --- files ---

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`. The tensors are in sections; "model" and "resolved" are metadata of their own."""
        core, residual = self.core, None if self.core.trees is None else self.core.trees.residual
        parts: dict[str, Any] = {"trees": core.trees, "one_vs_rest": core.one_vs_rest}
        parts |= {"trees_residual": residual, "index": core.index, "row_trees": core.row_trees}
        arrays: dict[str, Array] = {
            f"{section}.{name}": array
            for section, part in parts.items()
            for name, array in (part.arrays().items() if part is not None else ())
            if section != "trees_residual" or name in RESIDUAL
        }
        weights = {section: "int8" for section in ("trees", "one_vs_rest") if parts[section] is not None}
        if self.slots is not None:
            arrays["merged.labels"] = self.slots.astype(np.int32)
            arrays["merged.counts"] = self.slot_counts.astype(np.int64)
        model: dict[str, Any] = {name: getattr(self.strategy, name) for name in _OF_PREDICTION}
        model |= {"probes": None if self.probes is None else asdict(self.probes), "weights": weights}
        return {"model": model, "resolved": asdict(self.strategy)}, arrays

    @classmethod
    def from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        """See `Ranker`. The counts of labels are among the arrays."""
        model, strategy = facts["model"], typed(Strategy, facts["resolved"])
        for name in PARAMETERS.keys() & vars(strategy).keys():
            if getattr(strategy, name) != _UNUSED.get(name):
                check(name, getattr(strategy, name))
        for name in ("bias", "node_bias"):
            if not _BIAS.allows(getattr(strategy, name)):
                raise ValueError(f"{name} is {getattr(strategy, name)!r}, but must be {_BIAS.text}")
        for name in _OF_PREDICTION:
            stored = model.get(name, 0.0)  # files without trees over rows need not have their weight
            if getattr(strategy, name) != stored:
                raise ValueError(f"{name} is {stored!r} in model, but {getattr(strategy, name)!r} in params")
        slots, counts = None, np.array(arrays["labels.counts"])
        if "merged.labels" in arrays:
            slots, counts = np.array(arrays["merged.labels"]), np.array(arrays["merged.counts"])
            in_order = len(slots) and slots[0] == 0 and slots[-1] == n_labels - 1
            if not in_order or not np.isin(np.diff(slots), (0, 1)).all():
                raise ValueError("the tensor merged.labels does not hold all labels, in order")
        core = _core_model(arrays, strategy, model["weights"], n_features, counts)
        n_trees = 0 if core.trees is None else core.trees.n_trees
        if strategy.n_trees != n_trees:
            raise ValueError(f"n_trees is {strategy.n_trees} in params, but there are {n_trees} trees")
        probes = typed(Probes, model["probes"]) if model.get("probes") else None
        return cls(core, strategy, counts, slots, probes)


def _core_model(
    arrays: Mapping[str, Array],
    strategy: Strategy,
    weights: Mapping[str, Any],
    n_features: int,
    slot_counts: Array,
) -> _core.Model:
    chosen = (strategy.classifiers, strategy.search)
    present = {name.partition(".")[0] for name in arrays} & {"trees", "one_vs_rest", "index"}
    needed = STRATEGIES.get(chosen)
    if needed is None or present != set(needed):
        raise ValueError(f"classifiers {chosen[0]!r} and search {chosen[1]!r} do not fit its tensors")
    forests = {}
    for section in [section for section in needed if section != "index"]:
        if weights[section] != "int8":
            raise NewerFormatError(f"its weights are {weights[section]!r}, which this version does not read")
        own, residual = section_of(arrays, section), section_of(arrays, f"{section}_residual")
        shape = (n_features, len(slot_counts))
        finer = _core.Forest(own | residual, *shape) if residual else None
        forests[section] = _core.Forest(own, *shape, finer)
    index = None
    if "index" in needed:
        n_classifiers = len(arrays["one_vs_rest.children"])
        index = _core.LabelIndex(section_of(arrays, "index"), n_features, n_classifiers)
    row_trees = None
    if beside := section_of(arrays, "row_trees"):
        row_trees = _core.RowTrees(copied(beside), n_features, len(slot_counts), False)
    if (0 if row_trees is None else row_trees.n_trees) != strategy.n_row_trees:
        raise ValueError(f"n_row_trees is {strategy.n_row_trees} in params, which does not fit its tensors")
    parts = forests.get("trees"), forests.get("one_vs_rest"), index
    return core_model(*parts, strategy, slot_counts, row_trees)


class NewerFormatError(ValueError):
    """A part of a file that only a newer version reads."""


def section_of(arrays: Mapping[str, Array], section: str) -> dict[str, Array]:
    """Return the arrays of a section, by their names within it."""
    prefix = f"{section}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def typed(kind: Any, values: Any) -> Any:
    """Return an instance of a dataclass whose fields have the types that it declares; others are left out."""
    hints = typing.get_type_hints(kind)
    arguments = {}
    for one in fields(kind):
        if one.name not in values:
            continue  # the class has a default, or raises an error
        value = values[one.name]
        if type(value) is int and hints[one.name] in (float, str | float):
            value = float(value)
        if isinstance(value, bool) and hints[one.name] is not bool:
            raise ValueError(f"{one.name} is {value!r}")
        if not isinstance(value, hints[one.name]) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{one.name} is {value!r:.40}")
        arguments[one.name] = value
    return kind(**arguments)


def _best_slots(labels: Array, scores: Array, k: int) -> tuple[Array, Array]:
    """Return the k best labels of rankings in which a label may occur several times; the first one counts."""
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
