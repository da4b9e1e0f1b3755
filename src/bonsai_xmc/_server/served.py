"""A served model: in sealed memory, with names of labels and a search among them."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc import load
from bonsai_xmc._explain.paths import Forest, most_frequent
from bonsai_xmc._model.fusion import list_members
from bonsai_xmc._model.labels import allowed_labels, marked_words
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.thresholds import resolve
from bonsai_xmc._server.answers import Labels, Model, Node, Suggested

Signature = tuple[int, int, int]  # of a file: inode, size, time of the last change
Array = npt.NDArray[Any]
Ranking = tuple[Array, Array]  # labels and scores of texts, as `top_k` has them
Ranked = list[tuple[int, float]]  # labels and scores, best first


@dataclass
class Served:
    """One model, named after its file without the extension."""

    name: str
    path: str
    model: Any  # a TextBonsai, or a Fusion of such
    signature: Signature
    keys: list[str]
    titles: list[str]
    _clusters: dict[int, Node] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str, n_jobs: int | None) -> "Served":
        """Read the whole file into sealed memory and verify it."""
        before = signature(path)
        model = load(path, mmap="sealed", verify=True)
        if lists := list_members(model.fitted_):
            raise ValueError(
                f"{path} ranks also by lists of other systems ({', '.join(lists)}), which requests do not "
                "have: serve a fusion of its other members"
            )
        if model.fitted_.text is None:
            raise ValueError(f"{path} is a matrix model, but the server needs text models")
        if model.fitted_.encoded is not None:
            model.fitted_.encoded.encoder.load()  # here, so that workers share its weights
        model.classifier_.n_jobs = n_jobs
        name = os.path.splitext(os.path.basename(path))[0]
        return cls(name, path, model, before, [str(key) for key in model.classes_], model.label_names_)

    def rank(self, texts: list[Any], k: int, allowed: Array | None = None) -> Ranking:
        """Return the best labels of each text."""
        return self.model.top_k(texts, min(k, len(self.keys)), exclude=None if allowed is None else ~allowed)

    def allowed(self, restrict: list[str] | None, exclude: list[str] | None) -> Array | None:
        """Return which labels may be found, as booleans; None for all.

        Raises ValueError if one of the lists has no label of the model.
        """
        fitted = self.model.fitted_
        return allowed_labels(
            fitted,
            None if restrict is None else marked_words(fitted, restrict, "restrict")[0],
            marked_words(fitted, exclude, "exclude")[0] if exclude else None,
        )

    def suggested(self, label: int, score: float) -> Suggested:
        least = self.least[label] if isinstance(self.least, np.ndarray) else self.least
        return {
            "label": self.keys[label],
            "name": self.titles[label],
            "score": score,
            "predicted": bool(score >= least),
        }

    @cached_property
    def least(self) -> float | Array:
        """Return the threshold of the model, or one for each label."""
        return resolve("auto", self.model)

    def search(self, wanted: str, offset: int, limit: int) -> Labels:
        """Return labels whose name or key contains a text, most frequent first."""
        wanted = wanted.casefold()
        order, texts = self._by_frequency
        found = [i for i, text in zip(order, texts, strict=True) if wanted in text] if wanted else order
        counts = None if self.model.fitted_.imported else self.model.fitted_.label_counts
        chosen = found[offset : offset + limit]
        rows = [None if counts is None else int(counts[i]) for i in chosen]
        return {
            "total": len(found),
            "labels": [
                {"label": self.keys[i], "name": self.titles[i], "rows": n}
                for i, n in zip(chosen, rows, strict=True)
            ],
        }

    @cached_property
    def _by_frequency(self) -> tuple[list[int], list[str]]:
        """Return labels, most frequent first, with their searchable texts."""
        order = (-self.model.fitted_.label_counts).argsort(kind="stable").tolist()
        return order, [f"{self.titles[i]}\n{self.keys[i]}".casefold() for i in order]

    @cached_property
    def forest(self) -> Forest | None:
        """Return the label trees; None if the model has none."""
        ranker = self.model.fitted_.ranker
        trees = ranker.core.trees if isinstance(ranker, LinearRanker) else None
        return None if trees is None else Forest(trees)

    def cluster(self, root: int, node: int) -> Node:
        """Return a node of a tree, computed once."""
        if node not in self._clusters:
            assert self.forest is not None
            slots = self.forest.slots(node)
            names = [self.titles[label] for label in most_frequent(self.model.fitted_, slots)]
            about: Node = {
                "node": node - root,
                "name": ", ".join(names),
                "labels": len(slots),
                "label": None,
            }
            self._clusters[node] = about
        return self._clusters[node]

    @property
    def modified(self) -> str:
        return datetime.fromtimestamp(self.signature[2] / 1e9, UTC).isoformat()

    @property
    def fields(self) -> tuple[str, ...]:
        text = self.model.fitted_.text
        return () if text is None else tuple(text.fields)

    @cached_property
    def about(self) -> Model:
        return {
            "name": self.name,
            "kind": self.model.fitted_.ranker.kind,
            "system": type(self.model.classifier_).__name__,
            "labels": len(self.keys),
            "named": self.keys != self.titles,
            "threshold": float(self.model.threshold_ if isinstance(self.least, np.ndarray) else self.least),
            "fields": list(self.fields),
            "trees": 0 if self.forest is None else len(self.forest.tree_ptr) - 1,
            "modified": self.modified,
        }


def rows_of(ranking: Ranking) -> list[Ranked]:
    """Return the labels found for each text."""
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
    """Load models, by name in the order of `paths`."""
    models: dict[str, Served] = {}
    for path in paths:
        served = Served.load(path, n_jobs)
        if served.name in models:
            raise ValueError(f"{models[served.name].path} and {path} would both be served as {served.name!r}")
        models[served.name] = served
    return models
