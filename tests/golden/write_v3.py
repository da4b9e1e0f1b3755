"""Wrote the files in tests/golden/v3, once: format 3 must be read, and predict the same, for ever.

They are never written again. A new kind of model gets a new file:

    python tests/golden/write_v3.py NAME …      # refuses names that are there
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bonsai_xmc import Bonsai

FOLDER = Path(__file__).parent / "v3"
NAMES = ["Ahorn", "Bäume 🌳", "", "línea\nnueva", "木", "a" * 70, "tab\there", "é"]


def data(n_rows=48, n_features=20, n_labels=8, dense=False):
    """Each label likes three features; a row has one to three labels."""
    rng = np.random.default_rng(7)
    Y = np.zeros((n_rows, n_labels), np.int8)
    X = np.zeros((n_rows, n_features), np.float32)
    for row in range(n_rows):
        for label in {row % n_labels, *rng.integers(n_labels, size=row % 3)}:
            Y[row, label] = 1
            X[row, (3 * label + np.arange(3)) % n_features] += rng.integers(1, 4, 3)
    X += rng.random(X.shape, dtype=np.float32) if dense else (rng.random(X.shape) < 0.05)
    return X, Y


def lists(Y, labels):
    return [{labels[i] for i in np.flatnonzero(row)} for row in Y]


def trees():
    X, Y = data()
    return Bonsai(classifiers="leaf", branching_factor=3, max_leaf_size=2, n_trees=2).fit(X, Y), X


def one_vs_rest():
    X, Y = data()
    return Bonsai().fit(X, Y), X


def blend():
    X, Y = data()
    options = {"branching_factor": 3, "max_leaf_size": 2, "n_trees": 2, "C": 0.3}
    return Bonsai(classifiers="blend", blend_weight=0.3, logit_adjustment=0.1, **options).fit(X, Y), X


def index():
    X, Y = data(n_rows=400, n_features=60, n_labels=200)
    return Bonsai(classifiers="one_vs_rest", search="index", n_probe=1).fit(X, Y), X


def names():
    X, Y = data()
    return Bonsai(max_labels=3, threshold=0.25).fit(X, lists(Y, NAMES)), X


def integer_keys():
    X, Y = data()
    model = Bonsai().fit(X, lists(Y, [5, 7, 40_268_019, 2**62, 11, 0, 3, 2]))
    model.fitted_ = replace(model.fitted_, id_base=1)
    return model, X


def feature_names():
    X, Y = data()
    frame = pd.DataFrame(X, columns=[f"Wort {i} é" for i in range(X.shape[1])])
    return Bonsai().fit(frame, lists(Y, NAMES)), frame


def dense():
    X, Y = data(dense=True)
    return Bonsai(branching_factor=3, max_leaf_size=2, n_trees=1, prune=0.0, beam_size=None).fit(X, Y), X


def logistic():
    X, Y = data()
    return Bonsai(classifiers="leaf", loss="logistic", normalize=False, prune=0.01, n_trees=1).fit(X, Y), X


def several_blocks():
    """More labels than a block has, more weights of a feature than are listed, features of two bytes."""
    X, Y = data(n_rows=400, n_features=60, n_labels=200)
    wide = sp.csr_array(X)
    wide = sp.csr_array((wide.data, wide.indices * 1000 + 7, wide.indptr), shape=(400, 60_000))
    return Bonsai(prune=0.2, threshold=0.5).fit(wide, Y), wide


def merged():
    """Several labels made one, in trees and one-vs-rest; training rows with weights."""
    X, Y = data()
    options = {"branching_factor": 3, "max_leaf_size": 2, "n_trees": 2, "C": 0.3}
    model = Bonsai(classifiers="blend", blend_weight=0.3, logit_adjustment=0.1, threshold=0.3, **options)
    model.fit(X, lists(Y, NAMES), np.arange(1, len(X) + 1), keep_rows=True)
    return model.merge(["Ahorn", "木"], into="Holz").drop(["é"]), X


KINDS = {
    make.__name__: make
    for make in (
        trees, one_vs_rest, blend, index, names, integer_keys, feature_names, dense,
        logistic, several_blocks, merged,
    )
}  # fmt: skip


def main():
    for name in sys.argv[1:] or KINDS:
        path = FOLDER / f"{name}.bonsai"
        if path.exists():
            raise SystemExit(f"{path} is there and stays as it is")
        model, X = KINDS[name]()
        model.save(path)
        rows = X[:8] if not isinstance(X, pd.DataFrame) else X.iloc[:8]
        ids, scores = model.top_k(rows, 4)
        values = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        row, column = np.nonzero(values)
        expected = {
            "shape": list(values.shape),
            "rows": [row.tolist(), column.tolist(), values[row, column].astype(float).tolist()],
            "columns": list(rows.columns) if isinstance(rows, pd.DataFrame) else None,
            "ids": ids.tolist(),
            "scores": scores.astype(float).tolist(),
            "predict": [r.tolist() for r in map(np.flatnonzero, model.predict(rows).toarray())],
            "labels": [[label for label, _ in r] for r in model.top_k_labels(rows, 2)],
            "trees": [tree.to_dict() for tree in model.trees_],
        }
        path.with_suffix(".json").write_text(
            json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
