"""Models that are copied, pickled, written and read; the seeds and threads that they may depend on or not."""

import copy
import os
import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from bonsai_xmc import Bonsai
from helpers import same_model

# --- copies and files ---


def test_parameters_and_clone():
    vectors = np.eye(3)
    model = Bonsai(vectors, C=2.0)
    assert model.get_params()["C"] == 2.0
    assert model.representation is vectors
    other = clone(model)
    assert other.get_params().keys() == model.get_params().keys()
    assert clone(Bonsai().set_params(beam_size=None, n_trees=1)).get_params()["beam_size"] is None
    assert repr(Bonsai(n_trees=5)) == "Bonsai(n_trees=5)"
    assert Bonsai().set_params(C=3.0).C == 3.0


def test_a_clone_is_not_fitted(fitted):
    assert not hasattr(clone(fitted), "trees_")
    assert hasattr(fitted, "trees_")


def through_joblib(model, folder, **options):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", **options)


COPIES = {
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "joblib": through_joblib,
    "joblib mapped": lambda model, folder: through_joblib(model, folder, mmap_mode="r"),
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "copy": lambda model, folder: copy.copy(model),
    "file": lambda model, folder: (model.save(folder / "m"), Bonsai.load(folder / "m"))[1],
    "file, then pickle": lambda model, folder: (
        model.save(folder / "m"),
        pickle.loads(pickle.dumps(Bonsai.load(folder / "m"))),
    )[1],
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_predict_the_same(fitted, generated, tmp_path, way):
    other = COPIES[way](fitted, tmp_path)
    for mine, theirs in zip(fitted.top_k(generated.X_test, 9), other.top_k(generated.X_test, 9), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert other.trees_ == fitted.trees_
    for name in ("n_iter_", "n_features_in_", "n_rows_fit_", "seed_", "threshold_", "strategy_"):
        assert getattr(other, name) == getattr(fitted, name)
    np.testing.assert_array_equal(other.label_counts_, fitted.label_counts_)
    np.testing.assert_array_equal(other.classes_, fitted.classes_)
    saved = fitted.get_params() | ({"n_jobs": None} if "file" in way else {})
    assert other.get_params() == saved


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_copies_of_models_that_are_not_fitted(way, tmp_path):
    other = COPIES[way](Bonsai(C=3.0), tmp_path)
    assert other.get_params() == Bonsai(C=3.0).get_params()
    assert not hasattr(other, "trees_")


def test_a_copy_outlives_the_original_and_its_file(blocks, tmp_path):
    X, Y = blocks()
    Bonsai(classifiers="leaf", branching_factor=4).fit(X, Y).save(tmp_path / "m")
    model = Bonsai.load(tmp_path / "m")
    (tmp_path / "m").unlink()
    assert copy.deepcopy(model).score(X, Y) == model.score(X, Y) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"representation": np.eye(12)},
        {"loss": "logistic"},
        {
            "C": np.float32(0.3),
            "n_trees": np.int64(2),
            "normalize": np.True_,
            "beam_size": None,
            "max_depth": 2,
        },
    ],
)
def test_save_load_save_gives_the_same_bytes(blocks, tmp_path, options):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4, **options).fit(X, Y)
    model.save(tmp_path / "first")
    loaded = Bonsai.load(str(tmp_path / "first"))
    loaded.save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert same_model(model, loaded)
    np.testing.assert_array_equal(model.top_k(X, 3)[1], loaded.top_k(X, 3)[1])
    if "representation" not in options:  # the matrix is not in the file; everything else is
        loaded.fit(X, Y).save(tmp_path / "third")
        assert (tmp_path / "first").read_bytes() == (tmp_path / "third").read_bytes()
    else:
        with pytest.raises(
            ValueError,
            match="trained with label vectors of your own, which its file does not hold: pass them again",
        ):
            loaded.fit(X, Y)


def test_saving_over_a_loaded_model(blocks, tmp_path):
    X, Y = blocks()
    Bonsai(classifiers="leaf", branching_factor=4).fit(X, Y).save(tmp_path / "m")
    model = Bonsai.load(tmp_path / "m")
    model.save(tmp_path / "m")
    assert model.score(X, Y) == Bonsai.load(tmp_path / "m").score(X, Y) == 1.0
    assert os.listdir(tmp_path) == ["m"]


# --- seeds and threads ---


def test_random_states(blocks):
    X, Y = blocks(n_labels=30)
    fit = lambda seed: Bonsai(classifiers="leaf", branching_factor=4, n_trees=1, random_state=seed).fit(X, Y)
    zero = fit(0)
    assert zero.seed_ == 0
    assert same_model(zero, fit(np.int64(0)))
    assert same_model(zero, Bonsai(classifiers="leaf", branching_factor=4, n_trees=1).fit(X, Y))
    assert not same_model(zero, fit(1))
    assert fit(2**64 - 1).score(X, Y) == 1.0
    for make in (np.random.RandomState, np.random.default_rng):
        assert same_model(fit(make(5)), fit(make(5)))
        rng = make(5)
        assert not same_model(fit(rng), fit(rng))  # it moves on
    first, second = fit(None), fit(None)
    assert first.seed_ != second.seed_
    assert same_model(first, fit(first.seed_))


def test_models_do_not_depend_on_threads_or_verbosity(generated, tmp_path, capsys):
    files, results = set(), set()
    for n_jobs, progress in [
        (1, None),
        (2, True),
        (np.int64(3), False),
        (-1, True),
        (None, None),
        (-100, None),
    ]:
        model = Bonsai(classifiers="leaf", branching_factor=4, max_leaf_size=5, n_jobs=n_jobs)
        model.fit(generated.X_train, generated.Y_train, progress=progress).save(tmp_path / "m")
        files.add((tmp_path / "m").read_bytes())
        results.add(model.top_k(generated.X_test, 5)[1].tobytes())
    assert len(files) == len(results) == 1
