"""A fitted text vectorizer: what a model keeps and a file holds.

Imports the core, which tokenizes and counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bonsai_xmc import _core
from bonsai_xmc._base.params import TEXT_PARAMETERS, check, plain
from bonsai_xmc._data.rows import SparseRows
from bonsai_xmc._text.blocks import Plan, check_given, params_from_json, params_to_json
from bonsai_xmc._text.records import Columns


@dataclass(frozen=True)
class TextOptions:
    """The options that all blocks share."""

    lowercase: bool
    min_word_length: int
    min_df: float
    max_df: float
    max_features: int | None
    sublinear_tf: bool
    smooth_idf: bool
    power: float = 1.0


def text_options(params: Mapping[str, Any]) -> TextOptions:
    """Return the options that all blocks of a vectorizer share; ValueError if one breaks its rule."""
    names = [option.name for option in fields(TextOptions)]
    for name in names:
        check(name, params[name], TEXT_PARAMETERS)
    options = TextOptions(**{name: plain(params[name]) for name in names})
    return replace(options, power=float(options.power))


def core_spec(plan: Plan, options: TextOptions) -> dict[str, Any]:
    """Return the blocks as the core takes them."""
    shared = asdict(options) | {"max_features": options.max_features or 0}
    spec = {"texts": plan.sources()} | {key: shared.pop(key) for key in ("lowercase", "min_word_length")}
    texts = plan.texts
    blocks = [asdict(block) | shared | {"field": texts.index(block.text)} for block in plan.blocks]
    return spec | {"blocks": [{key: part for key, part in b.items() if key != "text"} for b in blocks]}


def rows_of(parts: tuple[Any, ...], core: _core.TextTransform) -> SparseRows:
    indptr, indices, values = parts
    return SparseRows(indptr, indices, values, core.n_features)


@dataclass(frozen=True)
class FittedText:
    """The vocabulary with its weights, and what it was made from; immutable."""

    core: _core.TextTransform
    plan: Plan
    options: TextOptions
    unicode_version: str
    given: Mapping[str, Any] = field(default_factory=dict)  # the parameters of an estimator
    source: Mapping[str, Any] = field(default_factory=dict)  # how the training file was read
    tuning: Mapping[str, Any] = field(default_factory=dict)  # how weights were searched for, if they were
    prior: Mapping[str, Any] = field(default_factory=dict)  # weights of the label-text prior, if there is one
    lengths: Mapping[str, Any] = field(default_factory=dict)  # of the texts, if the title was chosen by them

    @classmethod
    def fit(
        cls,
        chunks: Iterable[Columns],
        plan: Plan,
        options: TextOptions,
        threads: int,
        *,
        rows: bool,
        given: Mapping[str, Any] | None = None,
        lengths: Mapping[str, Any] | None = None,
    ) -> tuple["FittedText", SparseRows | None]:
        reader = _core.TextFit(core_spec(plan, options))
        for columns in chunks:
            reader.add(columns, threads)
        core, matrix = reader.finish(rows, threads)
        fitted = cls(core, plan, options, _core.unicode_version(), given or {}, lengths=lengths or {})
        return fitted, rows_of(matrix, core) if rows else None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of records that it reads; none: rows are strings."""
        return self.plan.fields

    @property
    def n_features(self) -> int:
        return self.core.n_features

    def transform(self, chunks: Iterable[Columns], threads: int) -> SparseRows:
        """See `TextReader`."""
        parts = [rows_of(self.core.transform(columns, threads), self.core) for columns in chunks]
        return SparseRows.joined(parts, self.core.n_features)

    def block_slices(self) -> list[slice]:
        """Return the columns of each block."""
        ends = np.cumsum([0, *self.core.block_sizes])
        return [slice(int(begin), int(end)) for begin, end in pairwise(ends)]

    def block_names(self, block: int) -> list[str]:
        text, ends = self.core.names(block)
        begins = [0, *ends.tolist()]
        return [text[b:e].decode() for b, e in pairwise(begins)]

    def feature_name(self, block: int, feature: int) -> str:
        """Return the name of a feature, counted from the first of its block."""
        text, ends = self._packed_names[block]
        begin = int(ends[feature - 1]) if feature > 0 else 0
        return bytes(text[begin : int(ends[feature])]).decode()

    @cached_property
    def _packed_names(self) -> list[tuple[bytes, np.ndarray]]:
        """The names of each block's features and where each ends, kept after their first use."""
        return [self.core.names(block) for block in range(len(self.plan.blocks))]

    def __reduce__(self) -> tuple[Any, ...]:
        return FittedText.from_arrays, self.to_arrays()

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return (description for JSON, arrays)."""
        description = {
            "unicode_version": self.unicode_version,
            "n_documents": self.core.n_documents,
            "plan": self.plan.to_json(),
            "options": vars(self.options),
            "given": params_to_json(self.given) if self.given else {},
            "source": dict(self.source),
            "tuning": dict(self.tuning),
            "prior": dict(self.prior),
            "lengths": dict(self.lengths),
        }
        return description, self.core.arrays()

    @classmethod
    def from_arrays(cls, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "FittedText":
        """Make the vectorizer that a file describes; ValueError if its parts do not fit together."""
        version = description["unicode_version"]
        if version != _core.unicode_version():
            raise ValueError(
                f"its texts were read by Unicode {version}, but this version of bonsai-xmc reads by "
                f"{_core.unicode_version()}"
            )
        plan = Plan.from_json(description["plan"])
        options = TextOptions(**description["options"])  # an unknown option is an error
        given = params_from_json(description["given"]) if description["given"] else {}
        if given:
            check_given(given)
        text_options({**vars(options), **given})
        spec, n_documents = core_spec(plan, options), description["n_documents"]
        core = _core.TextTransform.from_arrays(spec, n_documents, dict(arrays))
        told = {name: description.get(name, {}) for name in ("source", "tuning", "prior", "lengths")}
        return cls(core, plan, options, version, given, **told)


def check_terms(fitted: FittedText) -> None:
    """Raise ValueError if no term is left."""
    if fitted.core.n_features == 0:
        raise ValueError(
            f"no term is left of {fitted.core.n_documents:,} documents: the texts are empty, or min_df, "
            "max_df and min_word_length leave nothing"
        )
