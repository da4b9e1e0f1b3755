"""The fitted model is one object that `fit` sets as its last step, and that parameters no longer change."""

import copy
import dataclasses
import json
import signal
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._modelfile import container
from helpers import same_model

PROPERTIES = (
    "classes_", "classifiers_", "label_counts_", "n_features_in_", "n_iter_", "n_rows_fit_", "search_",
    "seed_", "strategy_", "threshold_", "timings_", "trees_",
)  # fmt: skip


def everything(model, X):
    """What a user can see of a fitted model."""
    ids, scores = model.top_k(X, 3)
    return (
        ids.tolist(),
        scores.tolist(),
        model.predict(X).toarray().tolist(),
        model.n_features_in_,
        model.seed_,
    )


@pytest.fixture
def other():
    """Data of another shape than `blocks`."""
    data = datasets.make_xmc(n_rows=80, n_test=1, n_features=30, n_labels=9, random_state=1)
    return data.X_train, data.Y_train


# --- a failed or interrupted refit ---


@pytest.mark.parametrize("step", ["LabelVectorStage", "TreeBuilder", "ClassifierStage.of_trees", "Model"])
def test_a_refit_that_fails_leaves_the_model_as_it_was(blocks, other, monkeypatch, step):
    """Once it left a mixture of the new number of features and seed with the old weights."""
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4, random_state=3).fit(X, Y)
    before, fitted = everything(model, X), model.fitted_

    def fail(*_, **__):
        raise MemoryError("no more")

    monkeypatch.setattr(f"bonsai_xmc._core.{step}", fail)
    with pytest.raises(MemoryError):
        model.set_params(random_state=5).fit(*other)
    monkeypatch.undo()
    assert model.fitted_ is fitted
    assert everything(model, X) == before


@pytest.mark.parametrize("classifiers", ["leaf", "one_vs_rest"])
def test_a_refit_that_is_interrupted_leaves_the_model_as_it_was(blocks, other, tmp_path, classifiers):
    X, Y = blocks()
    model = Bonsai(classifiers=classifiers, random_state=3).fit(X, Y)
    model.save(tmp_path / "before")
    before = everything(model, X)

    def interrupt(phase, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(random_state=5).fit(*other, progress=interrupt)
    assert everything(model, X) == before
    model.save(tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


def test_warnings_that_are_errors_leave_the_model_as_it_was(blocks, recwarn):
    import warnings

    X, Y = blocks()
    model = Bonsai(threshold=0.5).fit(X, Y)
    before = everything(model, X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            model.set_params(prune=50.0, C=0.5).fit(X, Y)
    assert everything(model, X) == before


def test_ctrl_c_while_predicting(blocks):
    """The estimator is as good as before, and answers the next call."""
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4, beam_size=None, n_jobs=1).fit(X, Y)
    expected = model.top_k(X, 3)[0]
    many = sp.vstack([X] * 20_000, format="csr")
    timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            for _ in range(200):
                model.top_k(many, 3)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, usual)
    np.testing.assert_array_equal(model.top_k(X, 3)[0], expected)


# --- properties ---


def test_nothing_is_there_before_fit():
    for name in (*PROPERTIES, "feature_names_in_", "fitted_"):
        assert not hasattr(Bonsai(), name)
    with pytest.raises(NotFittedError):
        _ = Bonsai().classes_


def test_the_fitted_model_cannot_be_changed(blocks):
    model = Bonsai().fit(*blocks())
    for name in PROPERTIES:
        with pytest.raises(AttributeError):
            setattr(model, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.fitted_.threshold = 0.1
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.strategy_.C = 3.0
    assert copy.deepcopy(model).fitted_ is model.fitted_
    assert not hasattr(model, "feature_names_in_")


# --- parameters that are changed after fit ---

TRAINING = {
    "loss": "logistic",
    "normalize": False,
    "C": 100.0,
    "prune": 1.0,
    "classifiers": "leaf",
    "search": "index",
    "n_trees": 1,
    "random_state": 9,
    "representation": "output",
}


@pytest.mark.parametrize("name", TRAINING)
def test_training_parameters_are_frozen_by_fit(generated, tmp_path, name):
    """Once `loss` and `normalize` changed the predictions of fixed weights, and all went into the file."""
    X, Y = generated.X_train, generated.Y_train
    model = Bonsai(threshold=0.3).fit(X, Y)
    model.save(tmp_path / "before")
    ids, scores = model.top_k(generated.X_test)
    model.set_params(**{name: TRAINING[name]})
    np.testing.assert_array_equal(model.top_k(generated.X_test)[0], ids)
    np.testing.assert_array_equal(model.top_k(generated.X_test)[1], scores)
    model.save(tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()
    assert model.strategy_.C == 1.0 and Bonsai.load(tmp_path / "after").C == "auto"


@pytest.mark.parametrize(
    ("name", "value", "use"),
    [
        ("threshold", 7, lambda model, X: model.predict(X)),
        ("threshold", None, lambda model, X: model.predict(X)),
        ("beam_size", 0, lambda model, X: model.top_k(X)),
        ("n_jobs", 0, lambda model, X: model.top_k(X)),
        ("n_jobs", 3000, lambda model, X: model.top_k(X)),
    ],
)
def test_prediction_parameters_are_checked_when_used_and_when_saved(blocks, tmp_path, name, value, use):
    """Once they were saved without a word, over a good file too, which then did not load."""
    X, Y = blocks()
    model = Bonsai(classifiers="leaf").fit(X, Y)
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    model.set_params(**{name: value})
    with pytest.raises(ValueError, match=f"{name} is {value}, but must be"):
        use(model, X)
    if name == "n_jobs":  # not part of the file
        return
    with pytest.raises(ValueError, match=f"{name} is {value}, but must be"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_beam_is_refused_where_all_labels_are_scored(blocks, tmp_path):
    X, Y = blocks()
    model = Bonsai().fit(X, Y).set_params(beam_size=20)
    for use in (lambda: model.top_k(X), lambda: model.predict(X), lambda: model.save(tmp_path / "m")):
        with pytest.raises(ValueError, match="beam_size is 20, but this model has no trees to search"):
            use()
    assert model.set_params(beam_size=10).top_k(X).__len__() == 2
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_loaded_is_not_saved(blocks, tmp_path, monkeypatch):
    """The file is read back before it takes its place."""
    model = Bonsai().fit(*blocks())
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    model.fitted_ = dataclasses.replace(model.fitted_, n_rows=-1)
    with pytest.raises(ValueError, match=r"this model cannot be saved: .*n_rows is -1"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_prediction_parameters_are_saved_as_they_are(blocks, tmp_path):
    model = Bonsai(classifiers="leaf").fit(*blocks())
    model.set_params(beam_size=None, max_labels=3, threshold=0.25).save(tmp_path / "m")
    other = Bonsai.load(tmp_path / "m")
    assert (other.beam_size, other.max_labels, other.threshold) == (None, 3, 0.25)
    assert other.threshold_ == model.threshold_ != 0.25
    file = json.loads(container.read(tmp_path / "m").metadata["model"])
    assert file["prediction"] == {
        "beam_size": None,
        "n_probe": "auto",
        "max_labels": 3,
        "threshold": 0.25,
    }


# --- what a file keeps ---


def test_feature_names_are_saved(tmp_path):
    """Once permuted columns were refused before saving and accepted after."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.random((40, 5)), columns=["a", "b", "ç", "d", "name with space"])
    Y = [["x"], ["y"]] * 20
    model = Bonsai().fit(X, Y)
    model.save(tmp_path / "m")
    for loaded in (model, Bonsai.load(tmp_path / "m")):
        assert loaded.feature_names_in_.tolist() == list(X.columns)
        assert loaded.top_k(X)[0].tolist() == model.top_k(X)[0].tolist()
        with pytest.raises(ValueError, match="feature names should match"):
            loaded.top_k(X[["b", "a", "ç", "d", "name with space"]])
    refitted = Bonsai.load(tmp_path / "m").fit(X.to_numpy(), Y)
    assert not hasattr(refitted, "feature_names_in_")


def test_a_loaded_model_with_a_tree_of_the_users_is_refitted(blocks, tmp_path):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf").fit(X, Y, tree=[[0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]])
    model.save(tmp_path / "m")
    loaded = Bonsai.load(tmp_path / "m")
    assert same_model(loaded.fit(X, Y, tree=loaded.trees_), model)


@pytest.mark.parametrize("labels", ["names", "keys"])
def test_trees_go_by_label_not_by_place(blocks, tmp_path, labels):
    """A tree that a model gives back fits data with more labels, whose places differ."""
    X, Y = blocks(n_labels=6)
    name = (lambda i: f"label {i}") if labels == "names" else (lambda i: 10 * int(i) + 7)
    first = Bonsai(classifiers="leaf", branching_factor=2, max_leaf_size=2).fit(
        X, [[name(i)] for i in Y.indices]
    )
    more = [[name(i)] for i in Y.indices]
    more[0] = [*more[0], "a new one" if labels == "names" else 3]
    with pytest.raises(ValueError, match=r"1 label\(s\) of Y are not in tree"):
        Bonsai(classifiers="leaf").fit(X, more, tree=first.trees_)
    without = [[label for label in row if label not in ("a new one", 3)] for row in more]
    again = Bonsai(classifiers="leaf").fit(X, without, tree=first.trees_)
    assert again.trees_ == first.trees_
    if labels == "keys":
        nested = [[name(0), name(1)], [name(2), name(3), name(4), name(5)]]
        assert Bonsai(classifiers="leaf").fit(X, without, tree=nested).trees_[0].n_leaves == 2


def test_a_loaded_model_with_label_vectors_says_how_to_refit(blocks, tmp_path):
    X, Y = blocks()
    vectors = np.eye(12)
    model = Bonsai(vectors, classifiers="leaf", branching_factor=4).fit(X, Y)
    model.save(tmp_path / "m")
    loaded = Bonsai.load(tmp_path / "m")
    with pytest.raises(
        ValueError, match=r"pass them again, as in model\.set_params\(representation=vectors\)"
    ):
        loaded.fit(X, Y)
    assert same_model(loaded, model)
    assert same_model(loaded.set_params(representation=vectors).fit(X, Y), model)


def test_the_base_of_ids_is_saved(blocks, tmp_path):
    model = Bonsai().fit(*blocks())
    assert model.fitted_.id_base is None
    model.fitted_ = dataclasses.replace(model.fitted_, id_base=1)
    model.save(tmp_path / "m")
    assert Bonsai.load(tmp_path / "m").fitted_.id_base == 1
