"""What a model file holds: one description of each tensor and of each metadata key (docs/format.md).

`check_tensors` and `check_key` raise a ValueError that names the tensor or key. What is left to check needs
more than one value: the order of the nodes of a tree, the vocabulary, records and postings are checked by the
core.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bonsai_xmc._base.params import OF_PREDICTION
from bonsai_xmc._model.calibration import METHODS, TAIL_ROWS
from bonsai_xmc._model.label_prior import FEWEST_ROWS
from bonsai_xmc._model.linear import RESIDUAL
from bonsai_xmc._text.blocks import ANALYZERS

Array = npt.NDArray[Any]

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
}
# Rows that are not sparse.
_DENSE_ROWS = {
    name: tensor for name, tensor in TENSORS["rows"].items() if name not in ("ptr", "features")
} | {"values": Tensor("i1", "N, D")}
# The core checks these values while it copies them, or reads them within bounds wherever they are.
_BY_CORE = ("trees", "one_vs_rest", "trees_residual", "index", "text")
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
    """dtype and shape; binds the dimensions that have no number yet."""
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

Check = Callable[[Any, str], None]


def _fail(name: str, value: Any, text: str) -> None:
    raise ValueError(f"{name} is {value!r:.40}, but must be {text}")


def integer(least: int, most: int) -> Check:
    def check(value: Any, name: str) -> None:
        if type(value) is not int or not least <= value <= most:
            _fail(name, value, f"an integer from {least} to {most}")

    return check


def number(least: float, most: float) -> Check:
    def check(value: Any, name: str) -> None:
        if type(value) not in (int, float) or not least <= value <= most:
            _fail(name, value, f"a number from {least:g} to {most:g}")

    return check


def one_of(*values: Any) -> Check:
    def check(value: Any, name: str) -> None:
        if not any(type(value) is type(one) and value == one for one in values):
            _fail(name, value, f"one of {', '.join(map(repr, values))}")

    return check


def text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        _fail(name, value, "a text")


def either(*checks: Check) -> Check:
    def check(value: Any, name: str) -> None:
        for one in checks[:-1]:
            try:
                return one(value, name)
            except ValueError:
                pass
        checks[-1](value, name)

    return check


def or_null(check: Check) -> Check:
    return lambda value, name: None if value is None else check(value, name)


def list_of(check: Check, n: int | None = None) -> Check:
    def check_list(value: Any, name: str) -> None:
        if not isinstance(value, list) or (n is not None and len(value) != n):
            _fail(name, value, "a list" + (f" of {n}" if n is not None else ""))
        for i, part in enumerate(value):
            check(part, f"{name}[{i}]")

    return check_list


def keys(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these keys; others are ignored, as newer versions may have them."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, dict):
            _fail(name, value, "an object")
        for key, inner in needed.items():
            if key not in value:
                raise ValueError(f"{name} has no key {key!r}")
            inner(value[key], f"{name}.{key}")
        for key, inner in (optional or {}).items():
            if key in value:
                inner(value[key], f"{name}.{key}")

    return check


def empty_or(check: Check) -> Check:
    return lambda value, name: None if value == {} else check(value, name)


flag = one_of(True, False)
anything: Check = lambda value, name: None
_FREQUENCY = either(integer(1, EXACT_INTEGERS), number(0.0, 1.0))
_BLOCK = keys(
    {
        "text": list_of(text),
        "analyzer": one_of(*ANALYZERS),
        "min_n": integer(1, 32),
        "max_n": integer(1, 32),
        "weight": number(0.0, 1e9),
    }
)
_TRIED = keys({"settings": text, "nDCG@5": number(0.0, 100.0), "kept": flag})

_PROBES = keys(
    {
        "n_rows": integer(0, INT32_MAX),
        "n_probe_5": integer(0, INT32_MAX),
        "n_probe_10": integer(0, INT32_MAX),
        "recall_5": number(0.0, 1.0),
        "recall_10": number(0.0, 1.0),
    }
)
_LENGTHS = keys(
    {
        "rows": integer(0, EXACT_INTEGERS),
        "fields": list_of(
            keys(
                {"field": text, "rows": integer(0, EXACT_INTEGERS), "characters": integer(0, EXACT_INTEGERS)}
            )
        ),
        "title": or_null(integer(0, INT32_MAX)),
    }
)

KEYS: Mapping[str, Check] = {
    "model": keys(
        {
            "n_features": integer(1, INT32_MAX),
            "n_labels": integer(1, INT32_MAX),
            "n_rows": or_null(integer(1, EXACT_INTEGERS)),
            "threshold": number(0.0, 1.0),
            "id_base": or_null(integer(0, INT32_MAX)),
            "prediction": keys({}),
        }
    ),
    # Further keys of "model" if the ranker is that of `Bonsai`.
    "bonsai": keys(
        {
            "classifiers": text,
            "search": text,
            "loss": text,
            "normalize": flag,
            "blend_weight": number(0.0, 1.0),
            "logit_adjustment": number(0.0, 10.0),
            "weights": keys({}),
            "prediction": keys(dict.fromkeys(OF_PREDICTION, anything)),
        },
        {"probes": or_null(_PROBES)},
    ),
    # Any other ranker: its kind, and what that kind needs to know.
    "ranker": keys({"kind": text, "facts": keys({})}),
    "params": keys({"given": keys({})}, {"resolved": keys({})}),
    "provenance": keys({"n_iter": integer(1, INT32_MAX), "seed": integer(0, 2**64 - 1)}),
    "text": keys(
        {
            "unicode_version": text,
            "n_documents": integer(1, 2**32 - 1),
            "plan": keys({"fields": list_of(text), "blocks": list_of(_BLOCK)}),
            "options": keys(
                {
                    "lowercase": flag,
                    "min_word_length": integer(1, INT32_MAX),
                    "min_df": _FREQUENCY,
                    "max_df": _FREQUENCY,
                    "max_features": or_null(integer(1, INT32_MAX)),
                    "sublinear_tf": flag,
                    "smooth_idf": flag,
                },
                {"power": number(math.ulp(0.0), 10.0)},
            ),
            "given": keys({}),
        },
        {
            "source": keys({}, {"labels": or_null(text), "separator": or_null(text)}),
            "tuning": keys({}, {"tried": list_of(_TRIED)}),
            "lengths": empty_or(_LENGTHS),
            "prior": empty_or(
                keys(
                    {
                        "weights": list_of(number(-1e9, 1e9), len(FEWEST_ROWS)),
                        "offsets": list_of(number(-1e9, 1e9), len(FEWEST_ROWS)),
                        "evidence": text,
                    }
                )
            ),
        },
    ),
    "calibration": keys(
        {
            "method": one_of(*METHODS),
            "groups": one_of(None, "frequency"),
            "head_rows": integer(0, EXACT_INTEGERS),
            "tail_rows": one_of(TAIL_ROWS),
            "n_rows": integer(0, EXACT_INTEGERS),
            "error_before": or_null(number(0.0, 1.0)),
            "error_after": or_null(number(0.0, 1.0)),
        }
    ),
}


def check_key(name: str, value: Any) -> None:
    """Raise ValueError if a metadata key does not hold what is described."""
    KEYS[name](value, name)
