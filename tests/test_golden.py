"""Files of format 3 in tests/golden, which every version must load with the same predictions."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, LabelTree, TextBonsai

FOLDER = Path(__file__).parent / "golden" / "v3"
NAMES = sorted(path.stem for path in FOLDER.glob("*.bonsai"))
# These show whether the files were written again by mistake.
SHA256 = json.loads((FOLDER / "sha256.json").read_text())


def rows_of(expected):
    row, column, values = expected["rows"]
    matrix = sp.csr_array((np.array(values, np.float32), (row, column)), shape=expected["shape"])
    if expected["columns"] is None:
        return matrix
    return pytest.importorskip("pandas").DataFrame(matrix.toarray(), columns=expected["columns"])


def test_every_kind_is_there():
    assert set(NAMES) >= {
        "trees", "one_vs_rest", "blend", "index", "names", "integer_keys", "feature_names", "dense",
        "logistic", "several_blocks", "calibrated", "calibrated_by_frequency", "merged",
    }  # fmt: skip
    assert set(NAMES) == set(SHA256)


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_those_that_were_written(name):
    assert hashlib.sha256((FOLDER / f"{name}.bonsai").read_bytes()).hexdigest() == SHA256[name]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_golden_files_load_and_predict_as_recorded(name, mmap, tmp_path):
    expected = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    model = Bonsai.load(FOLDER / f"{name}.bonsai", mmap=mmap, verify=True)
    X = rows_of(expected)
    ids, scores = model.top_k(X, 4)
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-5, atol=1e-7)
    assert ids.tolist() == expected["ids"]
    assert [row.tolist() for row in map(np.flatnonzero, model.predict(X).toarray())] == expected["predict"]
    assert [[label for label, _ in row] for row in model.top_k_labels(X, 2)] == expected["labels"]
    assert [tree.to_dict() for tree in model.trees_] == expected["trees"]
    assert all(isinstance(tree, LabelTree) for tree in model.trees_)
    model.save(tmp_path / "again")  # it can be saved, and is still the same model
    np.testing.assert_array_equal(Bonsai.load(tmp_path / "again").top_k(X, 4)[0], ids)


TEXT_SHA256 = "764894dc71516295afb671746922c3a219f8656e3bf762ebb1c7fba8f57facd6"


@pytest.mark.parametrize("mmap", [True, False])
def test_golden_model_of_texts(mmap):
    path = FOLDER.with_name("v3_text") / "text.bonsai"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == TEXT_SHA256
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    model = TextBonsai.load(path, mmap=mmap, verify=True)
    assert list(model.label_names_) == expected["names"]
    for row, known in zip(model.suggest(expected["queries"], k=3), expected["suggested"], strict=True):
        assert [label for label, _ in row] == [label for label, _ in known]
        np.testing.assert_allclose([s for _, s in row], [s for _, s in known], rtol=1e-5, atol=1e-7)


def test_golden_files_keep_their_rows_and_can_learn():
    """Training rows that a model keeps are read, and `learn` uses them."""
    model = Bonsai.load(FOLDER / "merged.bonsai")
    kept = model.fitted_.rows
    assert (kept.n_rows, kept.weights[:3].tolist()) == (48, [1.0, 2.0, 3.0])
    indptr, indices, values, n_features = kept.rows()
    X = sp.csr_array((values, indices, indptr), shape=(kept.n_rows, n_features))
    assert model.learn(X[:2], [["Holz"], ["neu"]]).classes_.tolist() == [*model.classes_, "neu"]
