"""Bad input: a clear error that names the thing and the place, and never a crash."""

import copy
import itertools
import json
import multiprocessing
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bonsai_xmc import Bonsai, FormatError, metrics
from bonsai_xmc._base.params import OF_PREDICTION
from bonsai_xmc._data.labels import indicator
from bonsai_xmc._data.sparse import proven_csr
from bonsai_xmc._modelfile import container
from bonsai_xmc._modelfile.format import to_tensors
from helpers import random_csr, says

# --- errors ---


@pytest.fixture
def model(blocks):
    return Bonsai(classifiers="leaf", branching_factor=4).fit(*blocks())


# --- X ---


@pytest.mark.parametrize("make", [np.array, sp.csr_array, sp.coo_matrix])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "Input X contains NaN"),
        (np.inf, "Input X contains infinity"),
        (-np.inf, "Input X contains infinity"),
        (1e39, "X holds values beyond the range of float32"),
    ],
)
def test_values_that_are_no_float32(blocks, model, make, value, message):
    X, Y = blocks()
    wrong = X.toarray()
    wrong[7, 3] = value
    with says(message):
        Bonsai().fit(make(wrong), Y)
    for method in (model.top_k, model.predict, model.predict_proba, model.decision_function):
        with says(message):
            method(make(wrong))
    with says(message):
        model.score(make(wrong), Y)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.empty((0, 4)), "Found array with 0 sample(s)"),
        (sp.csr_array((0, 4)), "Found array with 0 sample(s)"),
        (np.empty((3, 0)), "Found array with 0 feature(s)"),
        (sp.csr_array((3, 0)), "Found array with 0 feature(s)"),
        ([], "Expected 2D array"),
        (np.ones(3), "Expected 2D array, got 1D array instead"),
        (np.ones((3, 2, 2)), "Found array with dim 3"),
        (np.array([["a", "b"]] * 3), "not compatible with arrays of bytes/strings"),
        (np.full((3, 2), 1j), "Complex data not supported"),
        ("text", "Expected 2D array, got scalar array instead"),
        ([[1, 2], [3]], "inhomogeneous"),
    ],
)
def test_rows_that_are_none(model, X, message):
    with says(message):
        Bonsai().fit(X, [[0], [1], [0]])
    with says(message):
        model.top_k(X, 1)


def test_rows_of_dates():
    with says("X has dtype datetime64[s], but must hold numbers"):
        Bonsai().fit(np.zeros((3, 2), "M8[s]"), [[0], [1], [0]])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_another_number_of_features(model, make):
    for method in (
        model.top_k,
        model.predict,
        model.predict_proba,
        model.decision_function,
        model.top_k_labels,
    ):
        with says("X has 39 features, but Bonsai is expecting 40 features as input"):
            method(make(np.ones((2, 39))))
    with says("X has 41 features, but Bonsai is expecting 40 features as input"):
        model.score(make(np.ones((2, 41))), [[0], [1]])


# --- Y ---


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
@pytest.mark.parametrize(("value", "shown"), [(-1, "-1"), (2, "2"), (0.5, "0.5"), (np.nan, "nan")])
def test_entries_that_are_no_labels(blocks, model, make, value, shown):
    X, Y = blocks()
    wrong = Y.toarray().astype(float if isinstance(value, float) else int)
    wrong[5, 4] = value
    for method in (Bonsai().fit, model.score, model.memory_estimate):
        with says(f"Y[5, 4] is {shown}, but an indicator matrix holds only 0 and 1"):
            method(X, make(wrong))


@pytest.mark.parametrize(
    "make", [lambda Y: Y, lambda Y: Y.toarray(), lambda Y: [[int(i)] for i in Y.indices]]
)
def test_rows_and_labels_of_different_length(blocks, model, make):
    X, Y = blocks()
    for method in (Bonsai().fit, model.score):
        with says("X has 60 rows, but Y has 59; they must have the same number of rows"):
            method(X, make(Y[:59]))
        with says("X has 10 rows, but Y has 60; they must have the same number of rows"):
            method(X[:10].toarray(), make(Y))


@pytest.mark.parametrize(
    "Y", [np.zeros((3, 4), int), sp.csr_array((3, 4)), [[], [], []], np.zeros((3, 0), int)]
)
def test_no_labels_at_all(Y):
    with says("Y holds no label at all; there is nothing to learn"):
        Bonsai().fit(np.eye(3), Y)


def test_labels_of_the_wrong_kind(blocks, model):
    X, _ = blocks()
    with says("Y has 1 dimension(s)"):
        Bonsai().fit(X, np.zeros(60))
    with says("Bonsai requires y to be passed, but the target y is None"):
        Bonsai().fit(X, None)
    with says("Y holds label names, but the model was fitted on labels without names"):
        model.score(X[:1], [["a"]])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(59), "sample_weight.shape == (59,), expected (60,)"),
        (np.ones((60, 2)), "must be 1D array or scalar"),
        (np.full(60, -1.0), "Negative values in data passed to `sample_weight`"),
        (np.full(60, np.nan), "sample_weight contains NaN"),
        (np.full(60, np.inf), "sample_weight contains infinity"),
        (["heavy"] * 60, "could not convert string to float"),
        ([{}] * 60, "sample_weight holds what is no number"),
    ],
)
def test_fit_rejects_invalid_sample_weights(blocks, weights, message):
    with says(message):
        Bonsai().fit(*blocks(), sample_weight=weights)


def test_weights_that_are_all_zero(blocks):
    # The second message is that of this package, where scikit-learn has no check.
    with pytest.raises(ValueError, match=r"at least one non-zero number|sample_weight is 0 for every row"):
        Bonsai().fit(*blocks(), sample_weight=np.zeros(60))


def test_weights_that_leave_no_label(blocks):
    X, Y = blocks()
    Y = Y.copy()
    Y.data[:] = np.arange(60) >= 30
    with says("Y holds no label at all"):
        Bonsai().fit(X, Y, sample_weight=np.arange(60) < 30)


# --- k ---


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (0, "k is 0, but must be at least 1"),
        (-3, "k is -3, but must be at least 1"),
        (2**40, "k is 1099511627776, but must be at most 2³¹ − 1"),
        (2.0, "k is 2.0, but must be an integer"),
        ("5", "k is '5', but must be an integer"),
        (None, "k is None, but must be an integer"),
        (True, "k is True, but must be an integer"),
    ],
)
def test_top_k_rejects_k_that_is_no_positive_integer(blocks, model, k, message):
    X, _ = blocks()
    for method in (model.top_k, model.top_k_labels):
        with says(message):
            method(X, k)


# --- parameters ---

WHOLE = ("0", 0, -1, 1.5, "many", True, np.nan, [3])
FLAG = (0, 1, "yes", None)
WRONG = {
    "representation": ("inputs", None, 3, [[1.0]]),
    "n_trees": (*WHOLE, None),
    "branching_factor": (*WHOLE, 1, None),
    "max_leaf_size": WHOLE,
    "max_depth": WHOLE,
    "balance": ("k-means", None, 1, True),
    "C": (0, -1.0, "1", None, np.nan, np.inf, True),
    "loss": ("hinge", None, 2),
    "solver": ("sgd", None, 2),
    "tol": (0, -1.0, "1", None, np.nan),
    "max_iter": (*WHOLE, None),
    "prune": (-0.1, "much", None, np.nan),
    "classifiers": ("node", None, 1),
    "search": ("trees", None, 1),
    "tail_exponent": (-0.1, "much", None, np.nan),
    "blend_weight": (
        *(0.0, 1.0, -0.1, 1.1, "much", None, np.nan),
        *((0.3,), (0.3, 0.3, 0.3), (0.0, 0.3), (0.3, 1.0), (0.3, -0.1), ("auto", None), ("auto", "much")),
    ),
    "logit_adjustment": (-0.1, "much", None, np.nan),
    "normalize": FLAG,
    "beam_size": WHOLE,
    "n_probe": WHOLE,
    "max_labels": WHOLE,
    "threshold": (-0.1, 1.1, "half", None, np.nan),
    "n_jobs": (0, 1.5, "all"),
    "random_state": (-1, 2**64),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_parameters_out_of_range(name, value):
    shown = "of type list" if isinstance(value, list) else repr(value)
    with says(f"{name} is {shown}, but "):
        Bonsai(**{name: value}).fit(np.eye(3), np.eye(3, dtype=int))
    with says(f"{name} is {shown}, but "):
        Bonsai(**{name: value}).memory_estimate(np.eye(3), np.eye(3, dtype=int))


def test_every_parameter_has_wrong_values_here():
    assert Bonsai().get_params().keys() - WRONG.keys() == set()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"branching_factor": 1}, "branching_factor is 1, but must be an integer from 2 to 2³¹ − 1"),
        ({"max_depth": 0}, "max_depth is 0, but must be 'auto', None or an integer from 1 to 2³¹ − 1"),
        ({"beam_size": 0}, "beam_size is 0, but must be None or an integer from 1 to 2³¹ − 1"),
        (
            {"representation": "inputs"},
            "representation is 'inputs', but must be one of 'input', 'output', 'joint', 'text', "
            "'input+text', 'output+text', 'joint+text', or a matrix with one row for each label",
        ),
        ({"loss": "hinge"}, "loss is 'hinge', but must be one of 'squared_hinge', 'logistic'"),
        ({"solver": "sgd"}, "solver is 'sgd', but must be one of 'dual', 'newton'"),
        ({"threshold": 2}, "threshold is 2, but must be 'auto', 'per_label' or a number from 0 to 1"),
        ({"C": 0}, "C is 0, but must be 'auto' or a number from 1e-09 to 1e+09"),
        ({"prune": -1}, "prune is -1, but must be 'auto' or a number from 0 to 1e+09"),
        ({"balance": "no"}, "balance is 'no', but must be one of 'auto', 'none', 'bounded', 'equal'"),
        ({"n_jobs": 0}, "n_jobs is 0, but must be None or an integer from −1,024 to 1,024 other than 0"),
        ({"random_state": -1}, "random_state is -1, but a seed is from 0 to 2⁶⁴ − 1"),
        ({"random_state": "lucky"}, "'lucky' cannot be used to seed"),
        (
            {"classifiers": "leaf", "representation": np.ones((2, 5))},
            "representation has 2 rows, but Y has 3 labels",
        ),
    ],
)
def test_invalid_parameters_are_named_with_their_rule(params, message):
    with says(message):
        Bonsai(**params).fit(np.eye(3), np.eye(3, dtype=int))


@pytest.mark.parametrize(
    ("tree", "message"),
    [([[0], [1]], "1 label(s) of Y are not in tree, 2 for one"), (7, "tree is of type int")],
)
def test_messages_about_given_trees(tree, message):
    with says(message):
        Bonsai(classifiers="leaf").fit(np.eye(3), np.eye(3, dtype=int), tree=tree)


def test_tail_exponent_needs_the_solver_with_costs():
    X, Y = np.eye(3), np.eye(3, dtype=int)
    with says('tail_exponent needs loss="squared_hinge" and solver="dual"'):
        Bonsai(tail_exponent=1, loss="logistic").fit(X, Y)
    with says('tail_exponent needs loss="squared_hinge" and solver="dual"'):
        Bonsai(tail_exponent=1, solver="newton").fit(X, Y)
    with says("tail_exponent needs sparse X, but half of its entries or more are not 0"):
        Bonsai(tail_exponent=1, classifiers="one_vs_rest").fit(X + 1, Y)


def test_unknown_names_of_parameters_and_presets():
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        Bonsai(depth=3)
    with says("Invalid parameter 'depth' for estimator Bonsai"):
        Bonsai().set_params(depth=3)
    with says("unknown preset 'annexml'; there are 'bonsai-i', 'bonsai-o', 'bonsai-io', 'parabel', "):
        Bonsai.preset("annexml")
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        Bonsai.preset("parabel", depth=3)


# --- not fitted ---


@pytest.mark.parametrize(
    "use",
    [
        lambda model, path: model.top_k(np.eye(3)),
        lambda model, path: model.top_k(np.eye(3), 0),
        lambda model, path: model.top_k_labels(np.eye(3)),
        lambda model, path: model.predict(np.eye(3)),
        lambda model, path: model.predict_proba(np.eye(3)),
        lambda model, path: model.decision_function(np.eye(3)),
        lambda model, path: model.score(np.eye(3), np.eye(3)),
        lambda model, path: model.save(path),
        lambda model, path: model.trees_,
    ],
)
def test_unfitted_models_raise_not_fitted_error(tmp_path, use):
    with pytest.raises(NotFittedError, match="This Bonsai instance is not fitted yet"):
        use(Bonsai(), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_failed_fit_leaves_a_new_model_unfitted(blocks):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf")
    with says("not in tree"):
        model.fit(X, Y, tree=[[0]])
    with pytest.raises(NotFittedError):
        model.predict(X)


# --- files ---


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model.bonsai")
    return tmp_path / "model.bonsai"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: b"", "is not a bonsai-xmc model: the file is empty"),
        (lambda blob: b"PK\x03\x04 some archive of another kind", "is not a bonsai-xmc model"),
        (lambda blob: blob[: len(blob) // 2], "is truncated at byte"),
        (lambda blob: blob[:100], "is truncated at byte 100, within the header"),
        (lambda blob: blob + b"\0", "is damaged: 1 bytes follow the last tensor"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "is damaged: the checksum of tensor"),
    ],
)
def test_files_that_are_no_models(saved, damage, message):
    saved.write_bytes(damage(saved.read_bytes()))
    with says(f"{saved} {message}", FormatError):
        Bonsai.load(saved)


def file_of(model, path, **requires):
    """Write the file of a model without the checks of `save`."""
    prediction = {name: getattr(model, name) for name in OF_PREDICTION}
    container.write(path, *to_tensors(model.fitted_, prediction), **requires)


def changed(name, **values):
    def change(arrays, metadata):
        metadata[name] = json.dumps(json.loads(metadata[name]) | values)

    return change


def resolved(**values):
    def change(arrays, metadata):
        params = json.loads(metadata["params"])
        metadata["params"] = json.dumps(params | {"resolved": params["resolved"] | values})

    return change


def texts(name, characters, ptr):
    return lambda arrays, metadata: arrays.update({name: characters, f"{name}_ptr": ptr})


def test_files_of_a_newer_version(model, tmp_path, monkeypatch):
    monkeypatch.setattr(container, "VERSION", 4)
    file_of(model, tmp_path / "new")
    monkeypatch.undo()
    with says(
        "was made by a newer bonsai-xmc (format 4, this version reads 3–3): upgrade bonsai-xmc", FormatError
    ):
        Bonsai.load(tmp_path / "new")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.bonsai"):
        Bonsai.load(tmp_path / "nothing.bonsai")
    with says("it is a folder", FormatError):
        Bonsai.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, metadata: metadata.pop("params"),
        lambda arrays, metadata: metadata.pop("model"),
        lambda arrays, metadata: metadata.pop("provenance"),
        lambda arrays, metadata: metadata.update(params="{"),
        lambda arrays, metadata: metadata.update(params="[]"),
        lambda arrays, metadata: metadata.update(params="[" * 100_000),
        changed("model", prediction={}),
        changed("model", prediction={"beam_size": 0, "threshold": "auto"}),
        changed("model", prediction={"beam_size": "auto", "threshold": 7}),
        changed("model", n_labels=11),
        changed("model", n_labels=2**31 - 1),
        changed("model", n_features=-40),
        changed("model", n_features=2**31),
        changed("model", n_rows="x"),
        changed("model", n_rows=float("inf")),
        changed("model", n_rows=0),
        changed("model", n_rows=True),
        changed("model", loss="hinge"),
        changed("model", loss="logistic"),
        changed("model", normalize=1),
        changed("model", blend_weight=0.5),
        changed("model", blend_weight=float("nan")),
        changed("model", logit_adjustment=-1.0),
        changed("model", threshold=float("nan")),
        changed("model", threshold=None),
        changed("model", id_base=-1),
        changed("model", weights={}),
        changed("provenance", seed=-1),
        changed("provenance", n_iter=0),
        changed("provenance", n_iter=2**31),
        changed("provenance", version=3),
        changed("params", given={"C": 0}),
        changed("params", resolved={}),
        resolved(C=-5.0),
        resolved(max_iter=0),
        resolved(solver="other"),
        resolved(n_trees=-1),
        lambda arrays, metadata: arrays.pop("labels.counts"),
        lambda arrays, metadata: arrays.update({"labels.counts": np.zeros(3, np.int64)}),
        lambda arrays, metadata: arrays.update({"labels.counts": np.full(12, -1)}),
        lambda arrays, metadata: arrays.pop("trees.records"),
        lambda arrays, metadata: arrays.update({"trees.bias": arrays["trees.bias"][:-1]}),
        lambda arrays, metadata: arrays.update({"trees.bias": arrays["trees.bias"].astype(np.float64)}),
        lambda arrays, metadata: arrays.update({"trees.children": arrays["trees.children"] + 100}),
        lambda arrays, metadata: arrays.update({"trees.shift": arrays["trees.shift"] + np.uint8(17)}),
        lambda arrays, metadata: arrays.update({"labels.names": np.zeros(3, np.uint8)}),
        texts("labels.names", np.zeros(3, np.uint8), np.arange(13)),
        texts("labels.names", np.full(12, 255, np.uint8), np.arange(13)),
        texts("labels.names", np.full(12, 65, np.uint8), np.arange(13)),  # twelve times the same name
        texts("labels.names", np.arange(65, 77, dtype=np.uint8), np.r_[0, 2, 1, np.arange(3, 13)]),
        texts("features.names", np.zeros(3, np.uint8), np.arange(4)),
        lambda arrays, metadata: arrays.update({"labels.keys": np.arange(11)}),
        lambda arrays, metadata: arrays.update({"labels.keys": np.zeros(12, np.int64)}),
        lambda arrays, metadata: arrays.update({"labels.keys": np.arange(12.0)}),
    ],
)
def test_files_whose_checksums_hold_but_not_their_content(saved, change):
    file = container.read(saved)
    arrays, metadata = dict(file.arrays), dict(file.metadata)
    change(arrays, metadata)
    container.write(saved, arrays, metadata, file.requires)
    with says(f"{saved}: the model is inconsistent: ", FormatError):
        Bonsai.load(saved)


EDGES = (0, 1, -1, 2**31 - 1, 2**32 - 1, 2**63 - 1, -(2**63), 1e38, float("nan"))


def use_damaged_models(path, X):
    """Change single entries of the arrays, with checksums that hold: an error or predictions, no crash."""
    file = container.read(path)
    parts = ("trees.", "one_vs_rest.")
    forest = {name: array for name, array in file.arrays.items() if name.startswith(parts) and len(array)}
    rng = np.random.default_rng(0)
    used = 0
    for (name, array), edge in itertools.product(forest.items(), EDGES):
        for place in rng.integers(len(array), size=4):
            changed = array.copy()
            with np.errstate(all="ignore"):
                changed[place] = np.array([edge]).astype(array.dtype)[0]
            damaged = path.with_name("damaged")
            damaged.write_bytes(container.dumps(file.arrays | {name: changed}, file.metadata))
            try:
                model = Bonsai.load(damaged)
            except FormatError:
                continue
            for rows in (X, X[:3].toarray()):
                ids, _ = model.top_k(rows, 5)
                assert -1 <= ids.min() <= ids.max() < 60
            used += 1
    assert used > 100


@pytest.mark.parametrize("options", [{}, {"classifiers": "blend"}])
def test_predictions_of_damaged_models_are_safe(fitted, generated, tmp_path, options):
    model = clone(fitted).set_params(**options).fit(generated.X_train, generated.Y_train)
    model.save(tmp_path / "m")
    process = multiprocessing.get_context("spawn").Process(
        target=use_damaged_models, args=(tmp_path / "m", generated.X_test)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 0  # negative: the process crashed


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("no/such/folder/m.bonsai", FileNotFoundError, "there is no folder"),
        (".", IsADirectoryError, "it names a folder, not a file"),
        ("x" * 300, OSError, "cannot write to"),
        ("a\0b", ValueError, "this is not a file name"),
    ],
)
def test_paths_that_cannot_be_written(model, tmp_path, path, error, message):
    with says(message, error):
        model.save(f"{tmp_path}/{path}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_rows_too_long_to_learn_from(solver):
    X, Y = np.eye(4) * 1e16, np.eye(4, dtype=int)
    with pytest.raises(ValueError, match=r"row 0 of X has a norm above 1e15.*normalize=True"):
        Bonsai(normalize=False, solver=solver).fit(X, Y)
    assert Bonsai(solver=solver).fit(X, Y).score(X, Y) == 1


# --- malformed ---


N_COLUMNS = 40


def good(n_columns=N_COLUMNS):
    return sp.csr_array((np.ones(2, np.float32), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, n_columns))


def lying(kind="csr", **arrays):
    """Return a matrix whose arrays were changed after it was made."""
    X = good().asformat(kind)
    for name, values in arrays.items():
        setattr(X, name, np.asarray(values))
    return X


def _object_array(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def with_coordinates(row, col):
    X = good().tocoo()
    X.row, X.col = np.asarray(row), np.asarray(col)
    return X


LIES = {
    "pointers beyond the entries": lambda: lying(indptr=[0, 10**7, 2]),
    "the last pointer beyond the entries": lambda: lying(indptr=[0, 1, 10**7]),
    "descending pointers": lambda: lying(indptr=[0, 2, 1]),
    "negative pointers": lambda: lying(indptr=[0, -5, 2]),
    "a first pointer that is not 0": lambda: lying(indptr=[1, 1, 2]),
    "too few pointers": lambda: lying(indptr=[0, 2]),
    "pointers that are no integers": lambda: lying(indptr=[0.0, 1.0, 2.0]),
    "an index beyond the columns": lambda: lying(indices=[0, N_COLUMNS]),
    "an index beyond 32 bits": lambda: lying(indices=np.array([0, 2**32 + 5])),
    "a negative index": lambda: lying(indices=[0, -1]),
    "fewer values than indices": lambda: lying(data=np.ones(1, np.float32)),
    "fewer indices than values": lambda: lying(indices=[0]),
    "csc, pointers": lambda: lying("csc", indptr=[0, *[10**7] * (N_COLUMNS - 1), 2]),
    "csc, an index beyond the rows": lambda: lying("csc", indices=[0, 7]),
    "bsr, an index": lambda: lying("bsr", indices=[0, 10**6]),
    "coo, a column": lambda: with_coordinates([0, 1], [0, 10**7]),
    "coo, a row": lambda: with_coordinates([0, 10**7], [0, 1]),
    "coo, a negative column": lambda: with_coordinates([0, 1], [0, -3]),
    "values in two dimensions": lambda: lying(data=np.ones((2, 1), np.float32)),
    "bsr, values in one dimension": lambda: lying("bsr", data=np.ones(2)),
    "bsr, blocks that do not divide the shape": lambda: lying("bsr", data=np.ones((2, 3, 7))),
    "dia, more offsets than diagonals": lambda: lying("dia", offsets=np.arange(50)),
    "dia, an offset twice": lambda: lying("dia", offsets=[0, 0], data=np.ones((2, 2))),
    "dia, values in one dimension": lambda: lying("dia", data=np.ones(2)),
    "lil, a list for another row": lambda: lying("lil", rows=_object_array([[0], [1], [2]])),
    "lil, what is no list": lambda: lying("lil", data=_object_array([[1.0], None])),
    "lil, more values than columns": lambda: lying("lil", data=_object_array([[1.0], [1.0] * 1000])),
}


@pytest.fixture(scope="module")
def tiny_model():
    rng = np.random.default_rng(0)
    return Bonsai(threshold=0.5).fit(
        random_csr((60, N_COLUMNS), density=0.1, rng=rng), [[i % 3] for i in range(60)]
    )


@pytest.mark.parametrize("lie", LIES)
def test_prediction_rejects_X_with_a_broken_structure(tiny_model, lie):
    for method in (
        tiny_model.top_k,
        tiny_model.predict,
        tiny_model.predict_proba,
        tiny_model.decision_function,
        tiny_model.top_k_labels,
    ):
        with pytest.raises(ValueError, match="X is not a valid sparse matrix: "):
            method(LIES[lie]())


@pytest.mark.parametrize("lie", LIES)
def test_fit_rejects_X_with_a_broken_structure(lie):
    for method in (Bonsai().fit, Bonsai().memory_estimate):
        with pytest.raises(ValueError, match="X is not a valid sparse matrix: "):
            method(LIES[lie](), [[0], [1]])


@pytest.mark.parametrize("lie", LIES)
def test_Y_with_a_broken_structure_is_rejected(tiny_model, lie):
    X = good()
    for method in (Bonsai().fit, tiny_model.score):
        with pytest.raises(ValueError, match="Y is not a valid sparse matrix: "):
            method(X, LIES[lie]())
    with pytest.raises(ValueError, match="Y_true is not a valid sparse matrix: "):
        metrics.evaluate(LIES[lie](), np.zeros((2, 1), int), k=[1])


@pytest.mark.parametrize("lie", LIES)
def test_label_vectors_with_a_broken_structure_are_rejected(lie):
    with pytest.raises(ValueError, match="representation is not a valid sparse matrix: "):
        Bonsai(LIES[lie](), classifiers="leaf").fit(np.eye(2), np.eye(2, dtype=int))


def test_sparse_weights_of_rows():
    with pytest.raises(ValueError, match="sample_weight is a sparse matrix, but must be an array"):
        Bonsai().fit(good(), [[0], [1]], sample_weight=good())


@pytest.mark.parametrize("n_rows", [1, 2])
def test_single_rows_and_batches_are_checked_alike(tiny_model, n_rows):
    """The fast path of float32 rows has the same checks."""
    for arrays in (
        {"indptr": [0, 10**7, 2][: n_rows + 1]},
        {"indptr": [0, -1, 2][: n_rows + 1]},
        {"indices": [0, N_COLUMNS]},
        {"indices": [-1, 0]},
        {"data": np.ones(1, np.float32)},
    ):
        X = sp.csr_array((np.ones(2, np.float32), [0, 1], [*range(n_rows), 2]), shape=(n_rows, N_COLUMNS))
        for name, values in arrays.items():
            setattr(X, name, np.asarray(values, np.int32 if name != "data" else np.float32))
        with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
            tiny_model.top_k(X)


def test_longer_arrays_than_are_used_are_fine(tiny_model):
    X = lying(indices=[0, 1, 10**6], data=np.ones(3, np.float32))
    np.testing.assert_array_equal(tiny_model.top_k(X)[1], tiny_model.top_k(good())[1])
    assert proven_csr(X, "X").nnz == 2


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
@pytest.mark.parametrize("family", [sp.csr_array, sp.csr_matrix])
def test_valid_matrices_pass_unchanged(kind, family):
    X = family(good()).asformat(kind)
    before = copy.deepcopy(X)
    assert (proven_csr(X, "X") != good()).nnz == 0
    assert (sp.csr_array(X) != sp.csr_array(before)).nnz == 0
    assert indicator(X).nnz == 2


CRASHES = """
import numpy as np, scipy.sparse as sp
from bonsai_xmc import Bonsai
X = sp.csr_array(np.eye(6, 40, dtype=np.float32))
tiny_model = Bonsai().fit(X, [[0], [1], [2]] * 2)
for use in (
    lambda: tiny_model.top_k(sp.csr_array((np.ones(2, "f"), [0, 1], [0, 10**7, 2]), shape=(2, 40))),
    lambda: Bonsai().fit(X[:2], sp.csr_array((np.ones(2, "f"), [0, 1], [0, 100000, 2]), shape=(2, 40))),
):
    try:
        use()
    except ValueError as error:
        print(error)
"""


def test_broken_matrices_never_end_the_process():
    """Without checks, either of these calls would end the process."""
    done = subprocess.run([sys.executable, "-c", CRASHES], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.partition(" is not a valid")[0] for line in done.stdout.splitlines()] == ["X", "Y"]


# --- numbers beyond range ---


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_iter": 2**31}, "max_iter is 2147483648, but must be an integer from 1 to 2³¹ − 1"),
        ({"max_iter": 2**40}, "max_iter is 1099511627776, but must be an integer"),
        ({"C": 1e300}, r"C is 1e\+300, but must be 'auto' or a number from 1e-09 to 1e\+09"),
        ({"C": 1e-300}, "C is 1e-300, but must be"),
        ({"prune": 1e39}, r"prune is 1e\+39, but must be"),
        ({"tail_exponent": 50}, "tail_exponent is 50, but must be 'auto' or a number from 0 to 10"),
        (
            {"n_jobs": 3000},
            "n_jobs is 3000, but must be None or an integer from −1,024 to 1,024 other than 0",
        ),
    ],
)
def test_parameters_beyond_the_range_of_the_core_are_rejected_before_training(params, message):
    """Otherwise the core would raise `std::bad_cast`, and only after training."""
    with pytest.raises(ValueError, match=message):
        Bonsai(**params).fit(np.eye(3), np.eye(3, dtype=int))


def test_weights_of_rows_beyond_range():
    X, Y = sp.csr_array(np.eye(4, 20)), [[0], [1], [0], [1]]
    with pytest.raises(ValueError, match=r"sample_weight\[2\] is 1e\+30, but weights are at most 1e\+09"):
        Bonsai().fit(X, Y, sample_weight=[1, 1, 1e30, 1])
    with pytest.raises(ValueError, match=r"multiply to 1e\+18, but must stay below 1e\+15"):
        Bonsai(C=1e9, tail_exponent=0.0).fit(X, Y, sample_weight=np.full(4, 1e9))


@pytest.mark.parametrize("classifiers", ["leaf", "one_vs_rest"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
@pytest.mark.parametrize("C", [1e-9, 1e9])
def test_the_ends_of_the_ranges_can_be_trained_with(generated, tmp_path, classifiers, solver, C):
    X, Y = generated.X_train, generated.Y_train
    tiny_model = Bonsai(classifiers=classifiers, solver=solver, C=C, threshold=0.5).fit(X, Y)
    tiny_model.save(tmp_path / "m")
    assert np.isfinite(Bonsai.load(tmp_path / "m", verify=True).top_k(X)[1]).all()
