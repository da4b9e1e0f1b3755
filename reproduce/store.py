"""Results of units of work on disk, written as soon as they are finished and keyed by their inputs."""

import datetime
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc import _core
from bonsai_xmc._base.files import PathLike, replacing
from bonsai_xmc.datasets import Dataset


class Store:
    """A cache of results, one file per unit of work; a stored unit is not computed again.

    A unit is described by a JSON object: its kind, the digest of the data, parameters, seed. This and the
    package (its version and the bytes of the compiled core) are the unit's key.
    """

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder) / "units"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.computed = 0
        self.reused = 0

    def get(
        self,
        unit: Mapping[str, Any],
        compute: Callable[[], dict[str, Any]],
        fresh: Callable[[dict[str, Any]], bool] = lambda result: True,
    ) -> dict[str, Any]:
        """Return the stored result if `fresh` accepts it; otherwise store and return `compute()`."""
        unit = {**unit, "package": package_digest()}
        path = self.folder / f"{digest(unit)[:32]}.json"
        if path.exists():
            result = json.loads(path.read_text("utf-8"))["result"]
            if fresh(result):
                self.reused += 1
                return result
        result = compute()
        record = {"unit": unit, "made": datetime.datetime.now(datetime.UTC).isoformat(), "result": result}
        write_json(path, record)
        self.computed += 1
        return json.loads(json.dumps(result, default=_plain))  # as the next run will see it


def write_json(path: PathLike, content: Any) -> None:
    """Write a JSON object atomically."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False, default=_plain) + "\n")


def write_text(path: PathLike, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text.encode())


def digest(content: Any) -> str:
    """Return the SHA-256 of a JSON object that may hold arrays and matrices."""
    text = json.dumps(content, sort_keys=True, default=lambda value: joblib.hash(value))
    return hashlib.sha256(text.encode()).hexdigest()


def data_digest(data: Dataset) -> str:
    """Return the SHA-256 of a data set's matrices; names of labels and features are ignored."""
    sha = hashlib.sha256()
    for matrix in data[:4]:
        canonical = csr_array(matrix)
        sha.update(repr(canonical.shape).encode())
        for array in (canonical.indptr, canonical.indices, canonical.data):
            sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()[:32]


@cache
def package_digest() -> str:
    """Return the version of the package and the digest of its compiled core."""
    with open(os.fspath(_core.__file__), "rb") as file:
        return f"{version('bonsai-xmc')} {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"


def _plain(value: Any) -> Any:
    """Return NumPy numbers and arrays as plain Python values."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")
