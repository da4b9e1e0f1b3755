"""Content of a model file: a description of each tensor and metadata key (docs/internals/format.md).

The core checks the order of the nodes of a tree, the vocabulary, records and postings, and the values of
tensors that have no rule here, while it copies them.
"""

import math
from collections.abc import Mapping
from typing import Any

from bonsai_xmc._base import described
from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.described import EXACT_INTEGERS, FLAG, INT32_MAX, Each, OneOf, Tensor, check_value
from bonsai_xmc._base.params import OF_PREDICTION
from bonsai_xmc._model import row_trees
from bonsai_xmc._model.calibration import METHODS, TAIL_ROWS
from bonsai_xmc._model.label_prior import FEWEST_ROWS
from bonsai_xmc._model.linear import RESIDUAL, section_of
from bonsai_xmc._text.blocks import ANALYZERS
from bonsai_xmc._text.encoders import KINDS

# --- tensors ---

_FOREST = {
    "tree_ptr": Tensor("i8", "T + 1"),
    "child_ptr": Tensor("i8", "V + 1"),
    "children": Tensor("i4", "C"),
    "is_leaf": Tensor("u1", "V", most=1),
    "bias": Tensor("f4", "C"),
    "scale": Tensor("f4", "C"),
    "block_ptr": Tensor("i8", "V + 1"),
    "bucket_ptr": Tensor("i8", "B + 1"),
    "record_ptr": Tensor("i8", "B + 1"),
    "shift": Tensor("u1", "B"),
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
        "list_ptr": Tensor("i8", "F + 2"),
        "postings": Tensor("u4", "words"),
        "levels": Tensor("f4", "128"),
        "features": Tensor("u4", "F", needed=False),
    },
    "row_trees": row_trees.TENSORS,
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
        r"fields\.\d+\.words_ptr": Tensor("i8", "", needed=False),
        r"fields\.\d+\.ngrams\.\d+\.ptr": Tensor("i8", "", needed=False),
        r"fields\.\d+\.ngrams\.\d+\.last": Tensor("u4", "", needed=False),
        r"blocks\.\d+\.grams": Tensor("u1", "", needed=False),
        r"blocks\.\d+\.grams_ptr": Tensor("i8", "", needed=False),
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


def check_tensors(arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    """Raise ValueError for the first tensor that is not as described. `sizes` are D, L and S."""
    for section, tensors in TENSORS.items():
        found = section_of(arrays, section)
        if not found and section != "labels":
            continue  # most sections are optional
        if section == "rows" and "ptr" not in found:
            tensors = _DENSE_ROWS
        more = {"F": sizes["D"]} if section == "index" and "features" not in found else {}
        described.check_tensors(found, tensors.items(), {**sizes, **more}, f"{section}.")


# --- metadata ---

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
    # Any other ranker: its kind, and the facts of that kind.
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
    check_value(name, value, KEYS[name])
