"""Folders of arrays: written whole, mapped, and refused where they are damaged."""

import json
import os

import numpy as np
import pytest

from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._cli import main
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc.datasets._mapped import read_mapped


@pytest.fixture(scope="module")
def data():
    return datasets.make_xmc(n_rows=200, n_features=80, n_labels=30, random_state=1)


@pytest.fixture
def folder(data, tmp_path):
    datasets.save_mapped(tmp_path / "rows", data.X_train, data.Y_train)
    return tmp_path / "rows"


def is_mapped_array(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def test_what_is_written_is_read(data, folder):
    X, Y = datasets.load_xc(folder)
    assert (data.X_train != X).nnz == 0
    assert (data.Y_train != Y).nnz == 0
    assert X.dtype == Y.dtype == np.float32


def test_arrays_are_mapped_and_not_copied_by_training(folder):
    X, _, _ = read_mapped(folder)
    _, indices, values, _ = training_rows(X, "Bonsai")[0]
    assert is_mapped_array(indices)
    assert is_mapped_array(values)


def test_commands_give_the_same_model(data, tmp_path, capsys):
    datasets.save_xc(tmp_path / "train.txt", data.X_train, data.Y_train)
    assert main(["convert", str(tmp_path / "train.txt"), "-o", str(tmp_path / "rows")]) == 0
    assert "rows: 200 rows, 80 features, 30 labels" in capsys.readouterr().out
    for name in ("train.txt", "rows"):
        model = str(tmp_path / f"{name}.bonsai")
        assert main(["train", "-q", str(tmp_path / name), "-o", model]) == 0
    models = [(tmp_path / f"{name}.bonsai").read_bytes() for name in ("train.txt", "rows")]
    assert models[0] == models[1]
    capsys.readouterr()
    for command in ("predict", "evaluate"):
        printed = []
        for name in ("train.txt", "rows"):
            assert main([command, str(tmp_path / "rows.bonsai"), str(tmp_path / name)]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1] != ""


def test_the_base_of_ids_is_kept(tmp_path):
    (tmp_path / "t.svm").write_text("0 1:1 3:2\n1 2:1\n")
    assert main(["convert", str(tmp_path / "t.svm"), "-o", str(tmp_path / "rows"), "--base", "1", "-q"]) == 0
    assert read_mapped(tmp_path / "rows")[2] == 1
    assert main(["train", "-q", str(tmp_path / "rows"), "-o", str(tmp_path / "m")]) == 0
    assert Bonsai.load(tmp_path / "m").fitted_.id_base == 1


def test_the_folder_must_be_new(data, folder, tmp_path):
    with pytest.raises(ValueError, match="exists already; give a new folder"):
        datasets.save_mapped(folder, data.X_train, data.Y_train)
    (tmp_path / "empty").mkdir()
    datasets.save_mapped(tmp_path / "empty", data.X_train, data.Y_train)
    with pytest.raises(ValueError, match="X has 200 rows, but Y has 5"):
        datasets.save_mapped(tmp_path / "other", data.X_train, data.Y_train[:5])


def test_a_failure_leaves_nothing(data, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        datasets.save_mapped(tmp_path / "rows", data.X_train, data.Y_train)
    assert os.listdir(tmp_path) == []


def changed(folder, **values):
    path = folder / "rows.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "indices.npy").unlink(), "is not complete: indices.npy is missing"),
        (lambda f: (f / "rows.json").write_text("{"), "rows.json is damaged"),
        (lambda f: changed(f, format="x"), "does not describe a folder of rows"),
        (lambda f: changed(f, n_rows=-1), "must be integers from 0"),
        (lambda f: changed(f, n_rows=7), "does not divide"),
        (lambda f: changed(f, n_features=2), "not from 0 to 1"),
        (lambda f: changed(f, id_base=3), "id_base is 3"),
        (lambda f: np.save(f / "values.npy", np.zeros(3, np.float32)), "3 values for"),
        (lambda f: np.save(f / "values.npy", np.zeros(3)), "is not an array of float32"),
        (lambda f: (f / "values.npy").write_bytes(b"no array" * 40), "values.npy is damaged"),
        (lambda f: os.truncate(f / "indices.npy", 300), "indices.npy is damaged"),
    ],
)
def test_damaged_folders(folder, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        datasets.load_xc(folder)


def test_another_number_of_columns_is_refused(folder):
    with pytest.raises(ValueError, match="80 features instead of 7"):
        datasets.load_xc(folder, n_features=7)
