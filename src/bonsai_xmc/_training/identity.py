"""The facts that identify a training in a checkpoint."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.threads import instruction_set
from bonsai_xmc._model.fitted import VERSION
from bonsai_xmc._modelfile import format as _format
from bonsai_xmc._training.train import Problem

if TYPE_CHECKING:
    from bonsai_xmc import _core


def facts_of(problem: Problem, params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return all that the results of units depend on, in the types of JSON."""
    given = _format.given_params(params, seed) | {"beam_size": params["beam_size"]}
    if given["representation"] == "custom":
        given["representation"] = _digest(problem.representation)
    if problem.name_vectors is not None:
        given["name vectors"] = _digest(problem.name_vectors)
    given["tree"] = None if problem.tree is None else _digest(problem.tree)
    plain = {name: value if _is_plain(value) else repr(value) for name, value in given.items()}
    return {"parameter": plain} | _facts(problem)


def learning_facts(problem: Problem, old: _core.Forest, labels: Array, seed: int) -> dict[str, Any]:
    """Return the same for labels whose training continues from the classifiers of a model."""
    arrays = old.arrays()
    model = _digest(tuple(arrays[name] for name in sorted(arrays)))
    return {"model": model, "trained labels": _digest(labels), "seed": seed} | _facts(problem)


def _facts(problem: Problem) -> dict[str, Any]:
    rows, labels = problem.rows, problem.labels
    return {
        "bonsai-xmc": VERSION,
        "instruction set": instruction_set(),
        "X": {"rows": rows.n_rows, "features": rows.n_features, "digest": _digest(rows.to_core())},
        "Y": {"labels": labels.n_labels, "digest": _digest((labels.indptr, labels.indices))},
        "sample_weight": None if problem.weights is None else _digest(problem.weights),
    }


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _digest(value: Any) -> str:
    """Return a digest of arrays, and of containers of arrays."""
    state = hashlib.blake2b(digest_size=16)
    _update(state, value)
    return state.hexdigest()


def _update(state: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        state.update(f"{value.dtype.str} {value.shape} ".encode())
        state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    elif isinstance(value, tuple):
        for item in value:
            _update(state, item)
    else:
        state.update(pickle.dumps(value, protocol=5))
