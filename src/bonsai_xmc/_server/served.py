"""A model as it is served: sealed memory, names of labels, results as JSON."""

import os
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import TextBonsai
from bonsai_xmc._model.labels import allowed_labels, marked_words

Signature = tuple[int, int, int]  # of a file: inode, size, time of the last change
Array = npt.NDArray[Any]
Ranking = tuple[Array, Array]  # labels and scores of texts, as `top_k` has them
Ranked = list[tuple[int, float]]  # labels and scores, best first


@dataclass
class Served:
    """One model under its name, which is that of the file without its extension."""

    name: str
    path: str
    model: TextBonsai
    signature: Signature
    keys: list[str]
    titles: list[str]
    lock: Any = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, path: str, n_jobs: int | None) -> "Served":
        """Read the whole file into sealed memory and check all of it."""
        before = signature(path)
        model = TextBonsai.load(path, mmap="sealed", verify=True)
        model.classifier_.n_jobs = n_jobs
        name = os.path.splitext(os.path.basename(path))[0]
        return cls(name, path, model, before, [str(key) for key in model.classes_], model.label_names_)

    def rank(self, texts: list[Any], k: int, allowed: Array | None = None) -> Ranking:
        """The best labels of each text."""
        return self.model.top_k(texts, min(k, len(self.keys)), exclude=None if allowed is None else ~allowed)

    def allowed(self, restrict: list[str] | None, exclude: list[str] | None) -> Array | None:
        """Which labels may be found, as booleans; None: all.

        Raises ValueError if one of both has no label of the model.
        """
        fitted = self.model.fitted_
        return allowed_labels(
            fitted,
            None if restrict is None else marked_words(fitted, restrict, "restrict")[0],
            marked_words(fitted, exclude, "exclude")[0] if exclude else None,
        )

    @property
    def modified(self) -> str:
        return datetime.fromtimestamp(self.signature[2] / 1e9, UTC).isoformat()

    @property
    def n_trees(self) -> int:
        trees = self.model.fitted_.core.trees
        return 0 if trees is None else trees.n_trees

    @property
    def fields(self) -> tuple[str, ...]:
        text = self.model.fitted_.text
        return () if text is None else tuple(text.plan.fields)


def rows_of(ranking: Ranking) -> list[Ranked]:
    """The labels of each text that were found."""
    ids, scores = ranking
    found = np.isfinite(scores) & (ids >= 0) & (scores > 0)
    return [
        list(zip(row[mask].tolist(), values[mask].tolist(), strict=True))
        for row, values, mask in zip(ids, scores, found, strict=True)
    ]


def signature(path: str) -> Signature:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


def load_all(paths: list[str], n_jobs: int | None) -> dict[str, Served]:
    """Models by name, in the order of `paths`."""
    models: dict[str, Served] = {}
    for path in paths:
        served = Served.load(path, n_jobs)
        if served.name in models:
            raise ValueError(f"{models[served.name].path} and {path} would both be served as {served.name!r}")
        models[served.name] = served
    return models
