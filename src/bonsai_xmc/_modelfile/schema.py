"""Content of a model file: a description of each tensor and metadata key (docs/internals/format.md).

`check_tensors` and `check_key` raise a ValueError that names the tensor or key. What is left to check needs
more than one value: the order of the nodes of a tree, the vocabulary, records and postings are checked by the
core.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import OF_PREDICTION
from bonsai_xmc._model.calibration import METHODS, TAIL_ROWS
from bonsai_xmc._model.label_prior import FEWEST_ROWS
from bonsai_xmc._model.linear import RESIDUAL
from bonsai_xmc._text.blocks import ANALYZERS
from bonsai_xmc._text.encoders import KINDS

INT32_MAX = 2**31 - 1
EXACT_INTEGERS = 2**53  # what every reader of JSON can hold


# --- tensors ---


class Tensor(NamedTuple):
    """A tensor of a section.

    A dimension is a number or a name, perhaps with "+ 1". Equal names in a section stand for equal numbers; D
    is the number of features, L of labels. No shape: a list of any length.
    """

    dtype: str
    shape: str  # dimensions, separated by commas
    needed: bool = True  # if the section has any tensor
    least: float | None = None
    most: float | str | None = None  # or a dimension: values are below it
    ends_at: str | None = None  # offsets: from 0, not descending, to this dimension
    ascending: bool = False  # strictly
    finite: bool = False


_FOREST = {
    "tree_ptr": Tensor("i8", "T + 1", ends_at="V"),
    "child_ptr": Tensor("i8", "V + 1", ends_at="C"),
    "children": Tensor("i4", "C", least=0),
    "is_leaf": Tensor("u1", "V", most=1),
    "bias": Tensor("f4", "C", finite=True),
    "scale": Tensor("f4", "C", finite=True),
    "block_ptr": Tensor("i8", "V + 1", ends_at="B"),
    "bucket_ptr": Tensor("i8", "B + 1", ends_at="buckets"),
    "record_ptr": Tensor("i8", "B + 1", ends_at="bytes"),
    "shift": Tensor("u1", "B", most=16),
    "buckets": Tensor("u4", "buckets"),
    "records": Tensor("u1", "bytes"),
}


def _names(n: str, needed: bool = True) -> dict[str, Tensor]:
    return {
        "names": Tensor("u1", "bytes", needed),
        "names_ptr": Tensor("i8", f"{n} + 1", needed, ends_at="bytes"),
    }


TENSORS: Mapping[str, Mapping[str, Tensor]] = {
    "trees": _FOREST,
    "one_vs_rest": _FOREST,
    "trees_residual": {name: _FOREST[name] for name in RESIDUAL},
    "index": {
        "list_ptr": Tensor("i8", "F + 2", ends_at="words"),
        "postings": Tensor("u4", "words"),
        "levels": Tensor("f4", "128", least=0, finite=True),
        "features": Tensor("u4", "F", needed=False, most="D", ascending=True),
    },
    "row_trees": {
        "tree_ptr": Tensor("i8", "T + 1", ends_at="V"),
        "is_leaf": Tensor("u1", "V", most=1),
        "weight_ptr": Tensor("i8", "I + 1", ends_at="W"),
        "features": Tensor("i4", "W", least=0, most="D"),
        "weights": Tensor("f4", "W", finite=True),
        "biases": Tensor("f4", "I", finite=True),
        "leaf_ptr": Tensor("i8", "leaves + 1", ends_at="entries"),
        "leaf_labels": Tensor("i4", "entries", least=0),
        "leaf_shares": Tensor("f4", "entries", least=0, most=1),
        "leaf_rows": Tensor("i4", "leaves", least=1),
    },
    "labels": {
        "counts": Tensor("i8", "L", least=0, most=INT32_MAX),
        "thresholds": Tensor("f4", "L", needed=False, least=0, most=1, finite=True),
        "keys": Tensor("i8", "L", needed=False, ascending=True),
        **_names("L", needed=False),
        "titles": Tensor("u1", "title_bytes", needed=False),
        "titles_ptr": Tensor("i8", "L + 1", needed=False, ends_at="title_bytes"),
    },
    "merged": {
        "labels": Tensor("i4", "S", least=0, most="L"),
        "counts": Tensor("i8", "S", least=0, most=INT32_MAX),
    },
    "rows": {
        "values": Tensor("i1", "E"),
        "scale": Tensor("f4", "N", least=0, finite=True),
        "ptr": Tensor("i8", "N + 1", ends_at="E"),
        "features": Tensor("u1", "bytes"),
        "label_ptr": Tensor("i8", "N + 1", ends_at="pairs"),
        "labels": Tensor("i4", "pairs", least=0, most="L"),
        "weights": Tensor("f4", "N", needed=False, least=math.ulp(0.0), finite=True),
    },
    "features": _names("D"),
    "calibration": {
        "maps": Tensor("f8", "points, 2", finite=True),
        "map_ptr": Tensor("i8", "maps + 1", ends_at="points"),
    },
    "text": {
        r"fields\.\d+\.words": Tensor("u1", "", needed=False),
        r"fields\.\d+\.words_ptr": Tensor("i8", "", needed=False, least=0),
        r"fields\.\d+\.ngrams\.\d+\.ptr": Tensor("i8", "", needed=False, least=0),
        r"fields\.\d+\.ngrams\.\d+\.last": Tensor("u4", "", needed=False),
        r"blocks\.\d+\.grams": Tensor("u1", "", needed=False),
        r"blocks\.\d+\.grams_ptr": Tensor("i8", "", needed=False, least=0),
        r"blocks\.\d+\.df\.\d+": Tensor("u4", "", needed=False),
        "label_names": Tensor("u1", "bytes", needed=False),
        "label_names_ptr": Tensor("i8", "L + 1", needed=False, ends_at="bytes"),
    },
    "encoder": {"centre": Tensor("f4", "D", finite=True)},
}
# Rows that are not sparse.
_DENSE_ROWS = {
    name: tensor for name, tensor in TENSORS["rows"].items() if name not in ("ptr", "features")
} | {"values": Tensor("i1", "N, D")}
# The core checks these values while it copies them, or reads them within bounds wherever they are.
_BY_CORE = ("trees", "one_vs_rest", "trees_residual", "index", "row_trees", "text")
_NOT_BY_CORE = ("is_leaf", "label_names_ptr")


def check_tensors(arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    """Raise ValueError for the first tensor that is not as described. `sizes` are D, L and S."""
    for section, described in TENSORS.items():
        found = {
            name.removeprefix(f"{section}."): array
            for name, array in arrays.items()
            if name.startswith(f"{section}.")
        }
        if not found and section != "labels":
            continue  # most sections are optional
        if section == "rows" and "ptr" not in found:
            described = _DENSE_ROWS
        known = dict(sizes)
        if section == "index" and "features" not in found:
            known["F"] = sizes["D"]
        for name, tensor in described.items():
            matching = [name] if name in found else [one for one in found if re.fullmatch(name, one)]
            if tensor.needed and not matching:
                raise ValueError(f"the tensor {section}.{name} is missing")
            for one in matching:
                _check_tensor(f"{section}.{one}", found[one], tensor, known)
        for name, tensor in described.items():  # offsets may come before what they end at
            if name in found and (section not in _BY_CORE or name in _NOT_BY_CORE):
                _check_values(f"{section}.{name}", found[name], tensor, known)


def _check_tensor(name: str, array: Array, tensor: Tensor, known: dict[str, int]) -> None:
    """Check dtype and shape; bind the dimensions that have no number yet."""
    dtype = np.dtype(f"<{tensor.dtype}")
    if array.dtype != dtype:
        raise ValueError(f"the tensor {name} is {array.dtype}, but must be {dtype}")
    dimensions = tensor.shape.split(", ")
    if array.ndim != len(dimensions):
        raise ValueError(f"the tensor {name} has {array.ndim} dimensions, but must have {len(dimensions)}")
    for size, dimension in zip(array.shape, dimensions, strict=True):
        symbol, _, more = dimension.partition(" + ")
        if not symbol:
            continue
        wanted = int(symbol) if symbol.isdecimal() else known.setdefault(symbol, size - int(more or 0))
        if size != wanted + int(more or 0) or wanted < 0:
            raise ValueError(
                f"the tensor {name} has the shape {array.shape}, but there must be {dimension} entries, "
                f"{symbol} being {max(wanted, 0):,}"
            )


def _check_values(name: str, array: Array, tensor: Tensor, known: Mapping[str, int]) -> None:
    def require(holds: Any, what: str) -> None:
        if not holds:
            raise ValueError(f"the tensor {name} {what}")

    if tensor.finite:
        require(np.isfinite(array).all(), "has a value that is not finite")
    if tensor.ends_at is not None:
        end = known.get(tensor.ends_at, -1)
        spans = len(array) > 0 and array[0] == 0 and array[-1] == end
        require(spans, f"does not go from 0 to {tensor.ends_at}, which is {end:,}")
        require((array[1:] >= array[:-1]).all(), "descends")
    if tensor.ascending:
        require((array[1:] > array[:-1]).all(), "does not ascend strictly")
    if not array.size:
        return
    if tensor.least is not None:
        require(array.min().item() >= tensor.least, f"has a value below {tensor.least:g}")
    if tensor.most is not None:
        most = known[tensor.most] - 1 if isinstance(tensor.most, str) else tensor.most
        require(array.max().item() <= most, f"has a value above {most:,}")


# --- metadata ---
# A description is a range of integers; a pair of floats, between which numbers lie; str; `Each`; `OneOf`; the
# keys of an object with the descriptions of their values, "?" after a key that may be missing; or the value
# itself. An object may be {} where it may be missing. Other keys are ignored: newer versions may have them.


class Each(NamedTuple):
    """A list, whose entries are all described by one."""

    entry: Any
    n: int | None = None  # entries; None: any number


class OneOf:
    """Values or descriptions of which one holds; if none does, the last description tells why."""

    def __init__(self, *choices: Any) -> None:
        self.choices = choices


FLAG = OneOf(True, False)
_COUNT, _SIZE = range(EXACT_INTEGERS + 1), range(INT32_MAX + 1)
_FREQUENCY = OneOf(range(1, EXACT_INTEGERS + 1), (0.0, 1.0))
_BLOCK = {
    "text": Each(str),
    "analyzer": OneOf(*ANALYZERS),
    "min_n": range(1, 33),
    "max_n": range(1, 33),
    "weight": (0.0, 1e9),
}
_PROBES = {
    "n_rows": _SIZE,
    "n_probe_5": _SIZE,
    "n_probe_10": _SIZE,
    "recall_5": (0.0, 1.0),
    "recall_10": (0.0, 1.0),
}
_LENGTHS = {
    "rows": _COUNT,
    "fields": Each({"field": str, "rows": _COUNT, "characters": _COUNT}),
    "title": OneOf(None, _SIZE),
}
_OF_CLASSES = Each((-1e9, 1e9), len(FEWEST_ROWS))

KEYS: Mapping[str, Any] = {
    "model": {
        "n_features": range(1, INT32_MAX + 1),
        "n_labels": range(1, INT32_MAX + 1),
        "n_rows": OneOf(None, range(1, EXACT_INTEGERS + 1)),
        "threshold": (0.0, 1.0),
        "id_base": OneOf(None, _SIZE),
        "prediction": {},
    },
    # Further keys of "model" if the ranker is that of `Bonsai`.
    "bonsai": {
        "classifiers": str,
        "search": str,
        "loss": str,
        "normalize": FLAG,
        "blend_weight": (0.0, 1.0),
        "logit_adjustment": (0.0, 10.0),
        "weights": {},
        "prediction": dict.fromkeys(OF_PREDICTION, object),
        "probes?": OneOf(None, _PROBES),
        "row_tree_weight?": (0.0, 1.0),
    },
    # Any other ranker: its kind, and what that kind needs to know.
    "ranker": {"kind": str, "facts": {}},
    "params": {"given": {}, "resolved?": {}},
    "provenance": {"n_iter": range(1, INT32_MAX + 1), "seed": range(2**64)},
    "text": {
        "unicode_version": str,
        "n_documents": range(1, 2**32),
        "plan": {"fields": Each(str), "blocks": Each(_BLOCK)},
        "options": {
            "lowercase": FLAG,
            "min_word_length": range(1, INT32_MAX + 1),
            "min_df": _FREQUENCY,
            "max_df": _FREQUENCY,
            "max_features": OneOf(None, range(1, INT32_MAX + 1)),
            "sublinear_tf": FLAG,
            "smooth_idf": FLAG,
            "power?": (math.ulp(0.0), 10.0),
        },
        "given": {},
        "source?": {"labels?": OneOf(None, str), "separator?": OneOf(None, str)},
        "tuning?": {"tried?": Each({"settings": str, "nDCG@5": (0.0, 100.0), "kept": FLAG})},
        "lengths?": _LENGTHS,
        "prior?": {"weights": _OF_CLASSES, "offsets": _OF_CLASSES, "evidence": str},
    },
    "encoder": {
        "identity": {
            "kind": OneOf(*KINDS),
            "name": str,
            "dimension": range(1, INT32_MAX + 1),
            "max_tokens": OneOf(None, range(1, INT32_MAX + 1)),
            "normalized": FLAG,
            "checksum": str,
            "probe": Each((-1e38, 1e38)),
        },
        "fields": Each(str),
        "source": {"labels?": OneOf(None, str), "separator?": OneOf(None, str)},
    },
    "calibration": {
        "method": OneOf(*METHODS),
        "groups": OneOf(None, "frequency"),
        "head_rows": _COUNT,
        "tail_rows": OneOf(TAIL_ROWS),
        "n_rows": _COUNT,
        "error_before": OneOf(None, (0.0, 1.0)),
        "error_after": OneOf(None, (0.0, 1.0)),
    },
}


def check_key(name: str, value: Any) -> None:
    """Raise ValueError if a metadata key does not hold what is described."""
    if problem := _problem(value, KEYS[name], name):
        raise ValueError(problem)


def _problem(value: Any, described: Any, name: str) -> str | None:
    """Return how a value differs from its description, as a sentence; None if it does not."""
    parts: list[tuple[Any, Any, str]] = []
    match described:
        case type():
            holds, text = isinstance(value, described), "a text"
        case range():
            holds = type(value) is int and value in described
            text = f"an integer from {described[0]} to {described[-1]}"
        case Each(entry, n):
            holds = isinstance(value, list) and n in (None, len(value))
            text = "a list" if n is None else f"a list of {n}"
            parts = [(one, entry, f"{name}[{i}]") for i, one in enumerate(value)] if holds else []
        case (least, most):
            holds = type(value) in (int, float) and least <= value <= most
            text = f"a number from {least:g} to {most:g}"
        case OneOf(choices=choices):
            found = [_problem(value, choice, name) for choice in choices]
            if isinstance(choices[-1], dict | range | tuple | type):
                return None if None in found else found[-1]
            holds, text = None in found, f"one of {', '.join(map(repr, choices))}"
        case dict():
            holds, text = isinstance(value, dict), "an object"
            for key, inner in described.items() if holds else ():
                known, needed = key.removesuffix("?"), not key.endswith("?")
                if needed and key not in value:
                    return f"{name} has no key {key!r}"
                missing = known not in value or (isinstance(inner, dict) and value[known] == {})
                problem = _problem(value[known], inner, f"{name}.{known}") if needed or not missing else None
                if problem is not None:
                    return problem
        case _:
            holds, text = type(value) is type(described) and value == described, repr(described)
    if not holds:
        return f"{name} is {value!r:.40}, but must be {text}"
    return next(filter(None, (_problem(*part) for part in parts)), None)
