"""Texts of labels (names, synonyms, descriptions): checked, and as vectors of the features of documents."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc._data.labels import label_key
from bonsai_xmc._data.rows import check_encodable
from bonsai_xmc._text.blocks import is_title
from bonsai_xmc._text.fitted import FittedText
from bonsai_xmc.datasets import read_label_texts

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
    sums = sp.csr_array((ones, (owner, np.arange(len(owner)))), shape=(len(texts), len(owner))) @ rows
    return unit_rows(sp.csr_array(sums))


def unit_rows(matrix: sp.csr_array) -> sp.csr_array:
    """Scale rows to length 1; rows of length 0 stay. The matrix is changed."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    squares = np.bincount(row, matrix.data.astype(np.float64) ** 2, minlength=matrix.shape[0])
    matrix.data = (matrix.data / np.sqrt(np.maximum(squares, 1e-300))[row]).astype(np.float32)
    matrix.sort_indices()
    return matrix
