"""The ranker of a fusion: the best labels of several models, by the weighted sum of their scores.

A member is a whole fitted model with rows of its own. Only labels among the best of some member are scored,
so that time and memory depend on these, not on the number of labels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.rows import FusedRows
from bonsai_xmc._model.edit import keep_labels
from bonsai_xmc._model.fitted import FittedModel, LabelTable, class_array
from bonsai_xmc._model.ranked_list import ListRanker
from bonsai_xmc._model.ranker import FUSION, Evidence, Search, Searching, Watch, best_entries
from bonsai_xmc._text.reader import FusedText, TextReader

SCORE, CALIBRATED, RANK, ROOT = LINKS = ("score", "calibrated", "rank", "root")
DEPTH = 100  # the best labels of each member that are scored
MOST_MEMBERS = 64
# Reciprocal ranks are 1 / (60 + rank), after G. Cormack et al. (SIGIR 2009), here relative to the first.
_RANK_OFFSET = 60.0
# The score of trees is a product along a path; the root is about the mean of its factors. Labels far behind
# the first ones count more than by their score.
_ROOT = 3.0
_LEAST = 1e-300  # of a score, whose logarithm is finite
_ENTRIES = 1 << 22  # (row, label) pairs of all members that are in memory at a time


@dataclass(frozen=True, eq=False)
class Member:
    """A model of a fusion."""

    name: str
    model: FittedModel
    prediction: Mapping[str, Any]  # parameters of its estimator that predictions depend on
    weight: float  # all weights add up to 1
    link: str  # one of LINKS
    labels: Array | None = None  # int32: for each of its labels, that of the fusion, or −1; None: the same

    def values(self, ids: Array, log_scores: Array) -> Array:
        """Return what is weighted and added up, in [0, 1]; 0 for the id −1."""
        if self.link == RANK:
            ranks = np.arange(1, ids.shape[1] + 1)
            values = np.broadcast_to((_RANK_OFFSET + 1) / (_RANK_OFFSET + ranks), ids.shape)
        elif self.link == CALIBRATED:
            values = self.model.scores(ids, log_scores, apart=False).astype(np.float64)
        else:
            values = np.exp(log_scores.astype(np.float64) / (_ROOT if self.link == ROOT else 1.0))
        return np.where(ids >= 0, np.clip(values, _LEAST, 1.0), 0.0)

    def of_fusion(self, ids: Array) -> Array:
        """Return labels of the fusion for labels of this member."""
        return ids if self.labels is None else np.where(ids >= 0, self.labels[ids], -1)

    def top_k(self, rows: Any, depth: int, allowed: Array | None, **options: Any) -> tuple[Array, Array]:
        """Return the labels of the fusion that it ranks best, and their values; −1 and 0: there are fewer.

        `allowed` are booleans over the labels of the fusion.
        """
        if allowed is not None:
            allowed = allowed if self.labels is None else allowed[self.labels] & (self.labels >= 0)
            if not allowed.any():
                return np.full((rows.n_rows, 0), -1, np.int32), np.zeros((rows.n_rows, 0))
        depth = min(depth, self.model.n_labels)
        search = {name: value for name, value in self.prediction.items() if name in ("beam_size", "n_probe")}
        ids, log_scores = self.model.ranker.top_k(rows, depth, allowed=allowed, **search, **options)
        values = self.values(ids, log_scores)
        ids = self.of_fusion(ids)
        return ids, np.where(ids >= 0, values, 0.0)


class Fused(NamedTuple):
    """A label's score by member."""

    name: str
    value: float  # by the link; 0 if the label is not among the member's best
    part: float  # weight × value: these add up to the score


@dataclass(frozen=True, eq=False)
class FusionRanker(Searching):
    """Several models whose scores are added up."""

    members: tuple[Member, ...]
    n_labels: int
    shared: bool  # whether all members read the same rows of features
    depth: int = DEPTH
    facts: Mapping[str, Any] | None = None  # how weights and links were chosen, as JSON has it

    kind: ClassVar[str] = FUSION

    @property
    def n_features(self) -> int:
        parts = [member.model.n_features for member in self.members]
        return parts[0] if self.shared else sum(parts)

    def rows(self, parts: Sequence[Any]) -> FusedRows:
        """Return the rows of all members, given those of each, or of one for all."""
        return FusedRows(tuple(parts) if len(parts) > 1 else tuple(parts) * len(self.members))

    def _top_k(self, rows: Any, k: int, search: Search) -> tuple[Array, Array]:
        """See `Ranker`. The `depth` best labels of each member are scored; with `exact`, all labels."""
        rows = rows if isinstance(rows, FusedRows) else self.rows([rows])
        most = max(member.model.n_labels for member in self.members)
        depth = most if search.exact else max(self.depth, k)
        width = sum(min(depth, member.model.n_labels) for member in self.members)
        size = max(1, _ENTRIES // width)
        parts, done = [], 0
        for batch in rows.batches(size):
            watch = _part_of(search.progress, done, batch.n_rows, rows.n_rows)
            parts.append(self._best(batch, k, depth, search, watch))
            done += batch.n_rows
        ids, scores = zip(*parts, strict=True)
        return np.concatenate(ids), np.concatenate(scores)

    def _best(self, rows: FusedRows, k: int, depth: int, search: Search, watch: Any) -> tuple[Array, Array]:
        # A search of all labels ranks them all, and filters then: a rank does not depend on the filter.
        filtered = None if search.exact else search.allowed
        options = {"exact": search.exact, "threads": search.threads}
        found = []
        for i, (member, own) in enumerate(zip(self.members, rows.parts, strict=True)):
            progress = None if watch is None else watch(i, len(self.members))
            ids, values = member.top_k(own, depth, filtered, progress=progress, **options)
            found.append((ids, values * member.weight))
        ids, values = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
        if search.allowed is not None:
            ids = np.where((ids >= 0) & search.allowed[ids], ids, -1)
        return best_sums(ids, values, k, self.n_labels)

    def parts_of(self, rows: FusedRows, label: int, k: int = 1) -> list[Fused]:
        """Return what each member adds to the score of a label for a single row, in a ranking of k labels."""
        found = []
        for member, own in zip(self.members, rows.parts, strict=True):
            ids, values = member.top_k(own, max(self.depth, k), None)
            value = float(values[ids == label].sum())
            found.append(Fused(member.name, value, value * member.weight))
        return found

    def explain(self, row: Any, label: int) -> Sequence[Evidence]:
        """See `Ranker`: the share of each member; `_explain.verbs` does more."""
        row = row if isinstance(row, FusedRows) else self.rows([row])
        parts = self.parts_of(row, label)
        total = sum(one.part for one in parts) or 1.0
        links = {member.name: (member.link, member.weight) for member in self.members}
        rows = tuple((one.name, *links[one.name], one.value, one.part / total) for one in parts)
        return [Evidence("members", ("member", "link", "weight", "value", "share of the score"), rows)]

    def take(self, labels: Array) -> Self:
        """See `Ranker`. Dropped labels leave the members, except those whose ranks count."""
        new = np.full(self.n_labels + 1, -1, np.int32)  # the last one is for −1
        new[labels] = np.arange(len(labels), dtype=np.int32)
        return replace(self, members=tuple(_taken(one, new) for one in self.members), n_labels=len(labels))

    # --- files ---

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """See `Ranker`. The file of a model holds those of its members, too."""
        members = [{"name": one.name, "weight": one.weight, "link": one.link} for one in self.members]
        facts = {"members": members, "shared": self.shared, "depth": self.depth}
        facts |= {"chosen": dict(self.facts or {})}
        maps = {f"labels.{i}": one.labels for i, one in enumerate(self.members) if one.labels is not None}
        return facts, maps

    @classmethod
    def from_arrays(
        cls,
        facts: Mapping[str, Any],
        arrays: Mapping[str, Array],
        n_features: int,
        n_labels: int,
        models: Sequence[tuple[FittedModel, Mapping[str, Any]]] = (),
    ) -> Self:
        """See `Ranker`; `models` are those of the members, with their parameters of prediction."""
        described, shared, depth, chosen = (facts[name] for name in ("members", "shared", "depth", "chosen"))
        if not 1 <= len(described) <= MOST_MEMBERS or len(described) != len(models):
            raise ValueError(f"a fusion of {len(described)} members does not fit its {len(models)} models")
        if type(shared) is not bool or type(depth) is not int or not 1 <= depth < 2**31:
            raise ValueError(f"shared is {shared!r:.40} and depth {depth!r:.40}")
        if not isinstance(chosen, dict):
            raise ValueError("chosen must be an object")
        members = tuple(
            _member(one, *model, arrays.get(f"labels.{i}"), n_labels)
            for i, (one, model) in enumerate(zip(described, models, strict=True))
        )
        if len({member.name for member in members}) < len(members):
            raise ValueError("two members have the same name")
        ranker = cls(members, n_labels, shared, depth, chosen)
        same = len({member.model.n_features for member in members}) == 1
        if ranker.n_features != n_features or (shared and not same):
            raise ValueError(f"its members do not read {n_features} features")
        return ranker


def _member(
    described: Mapping[str, Any],
    model: FittedModel,
    prediction: Mapping[str, Any],
    labels: Array | None,
    n_labels: int,
) -> Member:
    """Return a member of a file; ValueError if it makes no sense."""
    name, weight, link = (described[key] for key in ("name", "weight", "link"))
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a member is {name!r:.40}")
    if type(weight) not in (int, float) or not 0 < weight <= 1:
        raise ValueError(f"the weight of {name!r:.40} is {weight!r:.40}")
    if link not in LINKS or (link == CALIBRATED and model.calibration is None):
        raise ValueError(f"the link of {name!r:.40} is {link!r:.40}")
    if labels is None:
        if model.n_labels != n_labels:
            raise ValueError(f"the labels of {name!r:.40} are not those of the fusion")
        return Member(name, model, prediction, float(weight), link)
    labels = np.array(labels)
    if labels.dtype != np.int32 or labels.shape != (model.n_labels,):
        raise ValueError(f"the map of the labels of {name!r:.40} is no list of int32 for each of its labels")
    known = labels[labels >= 0]
    if labels.min() < -1 or labels.max() >= n_labels or len(np.unique(known)) < len(known):
        raise ValueError(f"the map of the labels of {name!r:.40} does not lead to labels of the fusion")
    return Member(name, model, prediction, float(weight), link, labels)


def _taken(member: Member, new: Array) -> Member:
    """Return a member for other labels of the fusion: `new` has that of each old one, or −1."""
    labels = new[np.arange(member.model.n_labels) if member.labels is None else member.labels]
    kept = labels >= 0
    if member.link != RANK and not kept.all() and member.model.label_counts[kept].any():
        return replace(member, model=keep_labels(member.model, kept), labels=labels[kept])
    return replace(member, labels=labels)


def _part_of(progress: Watch | None, done: int, size: int, n_rows: int) -> Any:
    """Return a function of (member, number of members) that gives the watch of its part of the work."""
    if progress is None:
        return None

    def watch_of(i: int, n: int) -> Watch:
        return lambda part, total: progress(
            done * n + i * size + (part * size // total if total else 0), n_rows * n
        )

    return watch_of


def best_sums(ids: Array, values: Array, k: int, n_labels: int) -> tuple[Array, Array]:
    """Return (ids, log scores) of the k labels with the largest sums of values, of shape (rows, k).

    A label may occur several times in a row; −1 is none. Of equal scores, the smaller id comes first.
    """
    n_rows = len(ids)
    row, place = np.nonzero(ids >= 0)
    pairs, which = np.unique(row * np.int64(n_labels) + ids[row, place], return_inverse=True)
    sums = np.bincount(which, weights=values[row, place], minlength=len(pairs))  # added in this order
    row, label = np.divmod(pairs, n_labels)
    scores = np.log(np.clip(sums, _LEAST, 1.0)).astype(np.float32)
    return best_entries(row, label, scores, n_rows, k)


def fusion_of(fitted: FittedModel) -> FusionRanker:
    """Return the ranker of a fusion's model."""
    assert isinstance(fitted.ranker, FusionRanker)
    return fitted.ranker


def list_members(fitted: FittedModel) -> list[str]:
    """Return the names of the members of a fusion that are ranked lists."""
    members = fitted.ranker.members if isinstance(fitted.ranker, FusionRanker) else ()
    return [one.name for one in members if isinstance(one.model.ranker, ListRanker)]


def union_of(tables: Sequence[LabelTable]) -> tuple[LabelTable, list[Array | None]]:
    """Return the labels of several models as one table, and the map from each model's labels to it.

    A label has the largest of its numbers of rows in these models, and the first of its names.
    """
    first = tables[0]
    maps: list[Array | None] = [None] * len(tables)
    if all(np.array_equal(table.classes, first.classes) for table in tables):
        classes = first.classes
    else:
        if len({table.named for table in tables}) > 1:
            raise ValueError(
                "some of the models have names as labels, and others integers; rename those of one of them"
            )
        keys = dict.fromkeys(key for table in tables for key in table.classes.tolist())
        ordered = list(keys) if first.named else sorted(keys)
        classes = class_array(ordered)
        place = {key: i for i, key in enumerate(ordered)}
        maps = [np.array([place[key] for key in table.classes.tolist()], np.int32) for table in tables]
    counts = np.zeros(len(classes), np.int64)
    names = [""] * len(classes)
    for table, own in zip(tables, maps, strict=True):
        where = np.arange(len(classes)) if own is None else own
        counts[where] = np.maximum(counts[where], table.counts)
        for i, name in zip(where.tolist() if table.names else (), table.names, strict=False):
            names[i] = names[i] or name
    return LabelTable(classes, counts, tuple(names) if any(names) else ()), maps


def with_readers(fitted: FittedModel, changed: Callable[[TextReader], TextReader]) -> FittedModel:
    """Return a model whose readers of texts, and those of its members, are changed by a function."""
    ranker = fitted.ranker
    if isinstance(fitted.text, FusedText) and isinstance(ranker, FusionRanker):
        members = tuple(replace(one, model=with_readers(one.model, changed)) for one in ranker.members)
        text = FusedText.of([one.model.text for one in members])
        return replace(fitted, ranker=replace(ranker, members=members), text=text)
    return fitted if fitted.text is None else replace(fitted, text=changed(fitted.text))
