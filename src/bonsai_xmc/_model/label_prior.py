"""Texts of labels, and the text of a label as a prior for its classifier.

A label with n training rows has the weights w + β(n) v and the bias b + δ(n): w and b are learnt from them
(0 and −1 without rows), v is the vector of its text. `_selection.prior` chooses β and δ on held-out rows, for
classes of n. A label without rows is found by its text alone; for a frequent one, β is near 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._data.labels import label_key
from bonsai_xmc._data.rows import SparseRows, check_encodable
from bonsai_xmc._model.edit import NewClassifiers, edit_labels
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._text.blocks import is_title
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc.datasets import read_label_texts

if TYPE_CHECKING:
    from bonsai_xmc import _core


# Classes of labels by their training rows: 0, 1, 2, 3–4, 5–9, 10–29, 30–99, 100–299, 300 and more.
FEWEST_ROWS = (0, 1, 2, 3, 5, 10, 30, 100, 300)
# The bias of a label without rows, before δ: that of one-vs-rest classifiers.
BIAS = -1.0


@dataclass(frozen=True)
class LabelPrior:
    """β and δ for each class of labels."""

    weights: tuple[float, ...]
    offsets: tuple[float, ...]
    evidence: str = ""  # a table: figures on held-out rows, without texts and with them

    def of(self, counts: Array) -> tuple[Array, Array]:
        """Return β and δ of labels with these numbers of rows."""
        kind = row_class(counts)
        return np.array(self.weights, np.float32)[kind], np.array(self.offsets, np.float32)[kind]

    def to_json(self) -> dict[str, Any]:
        return {"weights": list(self.weights), "offsets": list(self.offsets), "evidence": self.evidence}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LabelPrior:
        """Return the prior of a file, which is as `_modelfile.schema` describes it."""
        weights, offsets = (tuple(map(float, value[name])) for name in ("weights", "offsets"))
        return cls(weights, offsets, value["evidence"])


# Where nothing can be measured: about what held-out rows of TIBKAT, EURLEX57K and the Tate collection give.
USUAL = LabelPrior(
    (1.3, 1.0, 1.0, 0.8, 0.6, 0.4, 0.3, 0.0, 0.0), (-0.2, -0.15, -0.1, -0.1, -0.1, -0.05, 0, 0, 0)
)


def row_class(counts: Array) -> Array:
    return np.searchsorted(FEWEST_ROWS, counts, side="right") - 1


def weights_of(forest: _core.Forest) -> tuple[sp.csr_array, Array]:
    """Return one-vs-rest weights, (labels × features), and biases; without a classifier: nothing, and −∞."""
    child, feature, value = forest.weights(0)
    arrays = forest.arrays()
    labels = arrays["children"]
    weights = sp.csr_array((value, (labels[child], feature)), shape=(forest.n_labels, forest.n_features))
    bias = np.full(forest.n_labels, -np.inf, np.float32)
    bias[labels] = arrays["bias"]
    return weights, bias


def require_one_vs_rest(strategy: Strategy, what: str) -> None:
    if strategy.classifiers == "leaf":
        raise ValueError(
            f'{what} needs one-vs-rest classifiers, but this model has classifiers="leaf" '
            f'({strategy.reason}): train with classifiers="one_vs_rest"'
        )


def add_labels(fitted: FittedModel, given: Any, threads: int) -> FittedModel:
    """Return the model with further labels, which have only texts; the labels that it has stay."""
    require_one_vs_rest(fitted.linear.strategy, "add_labels")
    assert fitted.words is not None
    own = set(fitted.classes.tolist())
    texts = keyed_as(texts_of(given, "texts"), fitted.classes, "texts")
    new = {label: parts for label, parts in texts.items() if label not in own and parts}
    prior = LabelPrior.from_json(fitted.words.prior) if fitted.words.prior else USUAL
    return apply_texts(fitted, new, prior, threads) if new else fitted


def apply_texts(fitted: FittedModel, texts: Texts, prior: LabelPrior, threads: int) -> FittedModel:
    """Apply the label-text prior to a model; labels that it lacks are added. Texts become names of labels."""
    forest = fitted.linear.core.one_vs_rest
    assert fitted.words is not None and forest is not None
    own = {label: i for i, label in enumerate(fitted.classes.tolist())}
    labels = [label for label, parts in texts.items() if parts]
    vectors = text_vectors(fitted.words, [texts[label] for label in labels], threads)
    old = np.array([own.get(label, -1) for label in labels], np.int64)
    counts = np.where(old >= 0, fitted.label_counts[old], 0)
    beta, delta = prior.of(counts)
    used = np.flatnonzero((beta > 0) & ((np.diff(vectors.indptr) > 0) | (old < 0)))
    old, counts, beta, delta = old[used], counts[used], beta[used], delta[used]
    weights, bias = weights_of(forest)
    known = np.flatnonzero((old >= 0) & (bias[old] > -np.inf))
    picked = sp.csr_array((np.ones(len(known), np.float32), (known, old[known])), (len(used), len(bias)))
    base = np.full(len(used), BIAS, np.float32)
    base[known] = bias[old[known]]
    sums = sp.csr_array(picked @ weights + sp.csr_array(vectors[used].multiply(beta[:, None])))
    new = NewClassifiers([labels[i] for i in used], sums, base + delta, counts)
    edited = edit_labels(fitted, new=new, threads=threads)
    assert edited.words is not None
    names = edited.labels.names or ("",) * edited.n_labels
    names = tuple(
        name or next(iter(texts.get(label, [])), "")
        for name, label in zip(names, edited.classes.tolist(), strict=True)
    )
    labels_with_names = replace(edited.labels, names=names)
    return replace(edited, labels=labels_with_names, text=replace(edited.words, prior=prior.to_json()))


Texts = dict[Any, list[str]]


def texts_of(given: Any, what: str = "label_texts") -> Texts:
    """Return the texts of each label, none of them empty, from a mapping to texts or lists, or a file."""
    if isinstance(given, str | os.PathLike):
        return read_label_texts(given)
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{what} is of type {type(given).__name__}, but must map labels to their texts, or be a path"
        )
    texts = {}
    for label, value in given.items():
        if not isinstance(value, str) and not isinstance(value, Iterable):
            raise TypeError(f"{what}[{label!r}] is {value!r}, but must be a text, or a list of texts")
        parts = [value] if isinstance(value, str) else list(value)
        wrong = [part for part in parts if not isinstance(part, str)]
        if wrong:
            raise TypeError(f"{what}[{label!r}] holds {wrong[0]!r}, but texts are strings")
        if isinstance(label, str):
            check_encodable(label, f"{what} holds the label")
        for part in parts:
            check_encodable(part, f"{what}[{label!r}] holds")
        texts[label] = [part for part in parts if part.strip()]
    return texts


def keyed_as(texts: Texts, classes: Any, what: str = "label_texts") -> Texts:
    """Return texts by names or integers, as the model's labels are. Of equal keys the last one counts."""
    if classes.dtype == object:
        return {str(label): value for label, value in texts.items()}
    keyed = {}
    for label, value in texts.items():
        try:
            number = int(label)
        except (TypeError, ValueError):
            number = -1
        if number < 0 or str(number) != str(label).strip():
            raise ValueError(f"{what} has the label {label!r}, but the labels of the rows are integers")
        keyed[label_key(number, what)] = value
    return keyed


def text_vectors(text: FittedText, texts: list[list[str]], threads: int) -> sp.csr_array:
    """Return a vector of length 1, or 0 where no term is known, for the texts of each label.

    Each text is read as the title of a document; several texts are averaged.
    """
    owner = np.repeat(np.arange(len(texts)), [len(parts) for parts in texts])
    flat: list[str | None] = [part for parts in texts for part in parts]
    fields = text.fields
    own = [block.text[0] for block in text.plan.blocks if len(block.text) == 1] or list(fields)
    title = next(filter(is_title, own), own[0] if own else None)
    nothing: list[str | None] = [None] * len(flat)
    columns = [flat if field == title else nothing for field in fields or (None,)]
    rows = text.transform([columns], threads).to_scipy()
    ones = np.ones(len(owner), np.float32)
    owners = sp.csr_array((ones, (owner, np.arange(len(owner)))), shape=(len(texts), len(owner)))
    sums = sp.csr_array(owners @ rows)
    sums.sort_indices()
    return SparseRows.from_scipy(sums).unit().to_scipy()
