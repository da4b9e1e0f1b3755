"""Rankers, the parts of fitted models that rank labels, and their kinds in model files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import Tensor, check_tensors, check_value
from bonsai_xmc._data.rows import Rows

Watch = Callable[[int, int], None]

BONSAI = "bonsai"
FUSION = "fusion"
RANKED_LIST = "ranked list"
# The estimators of these kinds; `bonsai_xmc.systems` has those of all others.
_ESTIMATORS = {
    BONSAI: ("bonsai_xmc._estimators.bonsai", "Bonsai"),
    FUSION: ("bonsai_xmc._estimators.fusion", "Fusion"),
    RANKED_LIST: ("bonsai_xmc._estimators.ranked_list", "RankedList"),
}


class Evidence(NamedTuple):
    """A table that explains a score in a system's own terms: neighbours, leaves, weights."""

    title: str
    columns: tuple[str, ...]  # values of "feature" and "label" are ids, which are shown by name
    rows: tuple[tuple[Any, ...], ...]


class Search(NamedTuple):
    """How a ranker searches."""

    allowed: Array | None = None  # booleans over the labels: which may be found; None: all
    exact: bool = False  # score all labels
    threads: int = 1
    progress: Watch | None = None
    given: Mapping[str, Any] = MappingProxyType({})  # parameters of the estimator


class Searching:
    """What most rankers have in common.

    A subclass searches by ``_top_k(rows, k, search)``; ``_from_arrays`` makes it of a file that has `FACTS`
    and `TENSORS` as described.
    """

    FACTS: ClassVar[Any] = {}
    TENSORS: ClassVar[Mapping[str, Tensor]] = {}  # those that Python checks
    _top_k: Callable[..., tuple[Array, Array]]
    _from_arrays: ClassVar[Callable[..., Any]]

    def top_k(
        self,
        rows: Any,
        k: int,
        *,
        allowed: Array | None = None,
        exact: bool = False,
        threads: int = 1,
        progress: Watch | None = None,
        **search: Any,
    ) -> tuple[Array, Array]:
        """See `Ranker`."""
        return self._top_k(rows, k, Search(allowed, exact, threads, progress, search))

    @classmethod
    def tensors(cls, facts: Mapping[str, Any]) -> Iterable[tuple[str, Tensor]]:
        """Return `TENSORS`, or those of these facts; integers among the facts are dimensions."""
        return cls.TENSORS.items()

    @classmethod
    def from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Any:
        """See `Ranker`."""
        check_value("facts", facts, cls.FACTS)
        sizes = {name: value for name, value in facts.items() if type(value) is int}
        check_tensors(arrays, cls.tensors(facts), {"D": n_features, "L": n_labels, **sizes})
        return cls._from_arrays(facts, arrays, n_features, n_labels)


def best_entries(rows: Array, columns: Array, scores: Array, n_rows: int, k: int) -> tuple[Array, Array]:
    """Return (ids, scores) of the k best entries of each row, given as triples, equal ones by column."""
    keep = scores > -np.inf
    rows, columns, scores = rows[keep], columns[keep], scores[keep]
    order = np.lexsort((columns, -scores, rows))
    rows, columns, scores = rows[order], columns[order], scores[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, np.arange(n_rows))[rows]
    first = place < k
    ids = np.full((n_rows, k), -1, np.int32)
    best = np.full((n_rows, k), -np.inf, np.float32)
    ids[rows[first], place[first]] = columns[first]
    best[rows[first], place[first]] = scores[first]
    return ids, best


def linear_evidence(
    title: str, parts: tuple[Array, Array, Array], bias: float, score: tuple[str, Callable[[float], float]]
) -> tuple[Evidence, Evidence]:
    """Explain a sum of features, weights and values, and the score that a named function makes of it."""
    features, weights, values = parts
    products = weights.astype(np.float64) * values
    largest = np.lexsort((features, -np.abs(products)))
    columns = (array[largest].tolist() for array in (features, weights, values, products))
    table = Evidence(title, ("feature", "weight", "value", "contribution"), tuple(zip(*columns, strict=True)))
    z, (name, score_of) = float(products.sum()), score
    sums = ("features", z), ("bias", bias), ("z", z + bias), (name, float(score_of(z + bias)))
    return table, Evidence("from contributions to the score", ("part", "amount"), sums)


class Ranker(Protocol):
    """The part of a fitted model that differs between systems. Immutable."""

    kind: ClassVar[str]  # its name in model files

    @property
    def n_labels(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def top_k(self, rows: Any, k: int, **search: Any) -> tuple[Array, Array]:
        """Return (ids, log scores) of the k best labels of each row, best first; k ≤ n_labels.

        Arrays of int32 and float32 and of shape (n_rows, k), with −1 and −∞ where there are fewer labels;
        exp(log score) is in [0, 1]. `search` are the fields of `Search`, and parameters of the estimator that
        predictions depend on, as they were given.
        """

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the content for a model file: a JSON object, and tensors."""

    @classmethod
    def from_arrays(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, Array], n_features: int, n_labels: int
    ) -> Self:
        """Make the ranker of a file. Raise ValueError for whatever does not fit: a file may be hostile."""

    def explain(self, row: Rows, label: int) -> Sequence[Evidence]:
        """Explain the score of a label for a single row; ValueError where there is nothing to explain by."""

    def take(self, labels: Array) -> Self:
        """Return a ranker of these labels, which are numbered in this order."""


def estimator_class(kind: str) -> Any:
    """Return the estimators of a kind, whose `ranker` is the class of their rankers; KeyError if none is."""
    if kind not in _ESTIMATORS:
        return import_module("bonsai_xmc.systems").system(kind)
    module, name = _ESTIMATORS[kind]
    return getattr(import_module(module), name)
