"""Data sets of several benchmarks: those of `known.load`, and others made of texts, or of titles only."""

import gzip
import json
from typing import Any

import numpy as np
import scipy.sparse as sp
from reproduce import known
from sklearn.feature_extraction.text import TfidfVectorizer

# name: folder, file of the test part, text fields, label field
TEXTS = {
    "acl-authors": ("acl-authors", "test", "title abstract", "authors"),
    "yso-sv": ("yso-sv", "test", "title", "labels"),
    "eurlex57k-titles": ("eurlex57k", "test", "title", "labels"),
    "tibkat-core-titles": ("tibkat-core", "dev", "title", "subjects"),
}
SETS = ["eurlex57k", "tibkat-core", "tate", "delicious", "bibtex", *list(TEXTS)[1:]]

Matrices = tuple[sp.csr_array, sp.csr_array, sp.csr_array, sp.csr_array]


def load(name: str) -> Matrices:
    """Return X and Y for training, then for evaluation; labels without training rows are left out."""
    if name in TEXTS:
        return _texts(*TEXTS[name])
    data = known.load(name)
    X, Y, X_test, Y_test = map(sp.csr_array, (data.X_train, data.Y_train, data.X_test, data.Y_test))
    seen = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
    return X, Y[:, seen], X_test, Y_test[:, seen]


def _texts(folder: str, test: str, fields: str, labels: str) -> Matrices:
    text = lambda record: " ".join(record[field] or "" for field in fields.split())
    train, held_out = (_records(folder, part) for part in ("train", test))
    # As for the texts of `known.load`: sublinear TF-IDF of words that two rows have.
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    X = vectorizer.fit_transform(map(text, train))
    X_test = vectorizer.transform(map(text, held_out))
    names = sorted({label for record in train for label in record[labels]})
    column = {name: i for i, name in enumerate(names)}

    def indicator(records: list[dict[str, Any]]) -> sp.csr_array:
        sets = [sorted({column[label] for label in record[labels] if label in column}) for record in records]
        indptr = np.cumsum([0, *map(len, sets)])
        indices = np.fromiter((label for ids in sets for label in ids), np.int32, indptr[-1])
        return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), (len(records), len(names)))

    return sp.csr_array(X), indicator(train), sp.csr_array(X_test), indicator(held_out)


def _records(folder: str, part: str) -> list[dict[str, Any]]:
    with gzip.open(
        known.find("eurlex57k").parent / folder / f"{part}.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        return [json.loads(line) for line in lines]
