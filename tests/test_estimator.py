"""The estimator as users see it: what comes out, on data whose answers are known."""

import copy
import io
import json
import logging
import pickle
import re
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bonsai_xmc import Bonsai, metrics
from helpers import NAMES, same_model, trees_of

TIGHT = {"tol": 1e-6, "max_iter": 500, "prune": 0.0}


# --- what comes out ---


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_clear_data_are_learnt_perfectly(blocks, loss, solver):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4, loss=loss, solver=solver).fit(X, Y)
    assert max(tree.depth for tree in model.trees_) > 1
    assert model.score(X, Y) == 1.0
    assert (model.top_k(X, 1)[0][:, 0] == Y.indices).all()


def test_generated_data_are_learnt_well(generated, fitted):
    frequent = np.bincount(generated.Y_train.indices).max() / generated.Y_train.shape[0]
    assert fitted.score(generated.X_test, generated.Y_test) > max(0.5, 2 * frequent)


def test_top_k_returns_distinct_ids_by_falling_score(fitted, generated):
    ids, scores = fitted.top_k(generated.X_test, k=7)
    assert ids.dtype == np.int32
    assert scores.dtype == np.float32
    assert ids.shape == scores.shape == (150, 7)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert scores.min() > 0
    assert scores.max() <= 1
    assert ids.min() >= 0
    assert ids.max() < 60
    assert all(len(set(row)) == 7 for row in ids.tolist())
    assert fitted.top_k(generated.X_test)[0].shape == (150, 5)
    np.testing.assert_array_equal(fitted.top_k(generated.X_test, np.int64(3))[0], ids[:, :3])


def test_padding_where_there_are_fewer_candidates(blocks):
    X, Y = blocks(n_labels=6)
    tree = [[0, 1], [2, 3], [4, 5]]
    model = Bonsai(classifiers="leaf", beam_size=1).fit(X, Y, tree=tree)
    ids, scores = model.top_k(X, 6)
    leaf = Y.indices // 2
    np.testing.assert_array_equal(np.sort(ids[:, :2], axis=1), np.stack([2 * leaf, 2 * leaf + 1], axis=1))
    assert (ids[:, 2:] == -1).all()
    assert (scores[:, 2:] == 0).all()
    assert (scores[:, :2] > 0).all()
    assert model.set_params(beam_size=None).top_k(X, 6)[0].min() == 0  # no padding: all labels are candidates
    assert np.diff(model.set_params(beam_size=2).decision_function(X).indptr).tolist() == [4] * len(leaf)


def test_rows_without_features_get_no_labels(blocks, generated, fitted):
    X, Y = blocks()
    empty = sp.csr_array((2, X.shape[1]))
    model = Bonsai().fit(sp.vstack([X, empty]), sp.vstack([Y, Y[:2]]))
    for rows in (empty, empty.toarray()):
        ids, scores = model.top_k(rows, 3)
        assert (ids == -1).all()
        assert (scores == 0).all()
        assert model.top_k_labels(rows, 3) == [[], []]
        for method in (model.predict, model.predict_proba, model.decision_function):
            assert method(rows).nnz == 0
        assert model.score(rows, Y[:2]) == 0
    mixed = sp.vstack([generated.X_test[:3], sp.csr_array((1, 300)), generated.X_test[3:40]]).tocsr()
    ids, _ = fitted.top_k(mixed, 2)
    np.testing.assert_array_equal(np.delete(ids, 3, axis=0), fitted.top_k(generated.X_test[:40], 2)[0])
    assert ids[3].tolist() == [-1, -1]


@pytest.mark.parametrize("keep", [1, 5, 60, 1000])
def test_sparse_results_are_the_top_of_the_ranking(fitted, generated, keep):
    model = copy.deepcopy(fitted).set_params(max_labels=keep)
    X = generated.X_test
    proba, decision = model.predict_proba(X), model.decision_function(X)
    ids, scores = model.top_k(X, min(keep, 60))
    expected = np.zeros((150, 60), np.float32)
    rows, places = np.nonzero(ids >= 0)
    expected[rows, ids[rows, places]] = scores[rows, places]
    for result, dtype in ((proba, np.float32), (decision, np.float64)):
        assert isinstance(result, sp.csr_array)
        assert result.shape == (150, 60)
        assert result.dtype == dtype
        assert result.has_canonical_format
        assert np.diff(result.indptr).tolist() == (ids >= 0).sum(axis=1).tolist()
    np.testing.assert_array_equal(proba.toarray(), expected)
    np.testing.assert_array_equal(proba.indices, decision.indices)
    np.testing.assert_allclose(np.exp(1 - 1 / decision.data), proba.data, rtol=1e-6)
    assert 0 < decision.data.min() <= decision.data.max() <= 1
    assert proba.data.min() >= 0
    order = np.argsort(-decision.toarray(), axis=1, kind="stable")[:, : ids.shape[1]]
    assert np.array_equal(np.where(ids >= 0, order, -1), ids)  # that of `top_k`, ties too


@pytest.mark.parametrize("threshold", [0, 0.1, 0.5, 0.9, 1])
def test_predict_is_the_score_against_the_threshold(fitted, generated, threshold):
    model = copy.deepcopy(fitted).set_params(threshold=threshold)
    result, proba = model.predict(generated.X_test), model.predict_proba(generated.X_test)
    assert isinstance(result, sp.csr_array)
    assert result.dtype.kind == "i"
    assert (result.data == 1).all()
    chosen = np.zeros(proba.shape)
    rows = np.repeat(np.arange(150), np.diff(proba.indptr))
    chosen[rows, proba.indices] = proba.data >= threshold
    np.testing.assert_array_equal(result.toarray(), chosen)
    assert (result.nnz == proba.nnz) == (threshold == 0)


def test_a_score_at_the_threshold_is_enough(fitted, generated):
    proba = fitted.predict_proba(generated.X_test[:1])
    model = copy.deepcopy(fitted).set_params(threshold=float(np.sort(proba.data)[-3]))
    assert model.predict(generated.X_test[:1]).nnz == 3


def test_clear_data_are_predicted_exactly(blocks):
    X, Y = blocks()
    result = Bonsai(classifiers="leaf", branching_factor=4, C=10.0, max_iter=200).fit(X, Y).predict(X)
    np.testing.assert_array_equal(result.toarray(), Y.toarray())


def test_scores_that_underflow_keep_their_order(blocks):
    X, Y = blocks(n_labels=4)
    model = Bonsai(C=1e6, normalize=False, **TIGHT).fit(X, Y)
    far = 60 * X[:1]  # margins of the wrong labels grow with the row
    decision, proba = model.decision_function(far), model.predict_proba(far)
    assert decision.nnz == proba.nnz == 4
    assert np.isfinite(decision.data).all()
    wrong = np.delete(decision.toarray()[0], Y.indices[0])
    assert 0 < wrong.min() < wrong.max() < 1 / 151
    assert np.delete(proba.toarray()[0], Y.indices[0]).max() == 0


def test_score_is_precision_at_1(fitted, generated):
    X, Y = generated.X_test, generated.Y_test
    ids, _ = fitted.top_k(X, 1)
    hit = Y.toarray()[np.arange(150), ids[:, 0]].astype(float)
    assert fitted.score(X, Y) == hit.mean()
    assert fitted.score(X, Y) == pytest.approx(metrics.evaluate(Y, ids, k=1)["P@1"] / 100)
    weights = np.linspace(0, 1, 150)
    assert fitted.score(X, Y, sample_weight=weights) == pytest.approx((hit * weights).sum() / weights.sum())
    assert fitted.score(X, Y.toarray()) == fitted.score(X, y=[row.indices for row in Y]) == hit.mean()


def test_batch_equals_row_by_row(fitted, generated):
    X = generated.X_test
    ids, scores = fitted.top_k(X, 5)
    for i in range(0, 150, 10):
        np.testing.assert_array_equal(fitted.top_k(X[i : i + 1], 5)[0][0], ids[i])
        np.testing.assert_array_equal(fitted.top_k(X[i : i + 1], 5)[1][0], scores[i])


# --- names ---


def test_names_end_to_end(named, tmp_path):
    X, Y = named
    names = sorted(NAMES)
    model = Bonsai(classifiers="leaf").fit(X, Y, tree=[names[:2], names[2:]])
    model.save(tmp_path / "names.bonsai")
    for one in (model, Bonsai.load(tmp_path / "names.bonsai"), pickle.loads(pickle.dumps(model))):
        assert one.classes_.tolist() == sorted(NAMES)
        ranked = one.top_k_labels(X, k=2)
        assert [row[0][0] for row in ranked] == [name for (name,) in Y]
        ids, scores = one.top_k(X, k=2)
        assert [[score for _, score in row] for row in ranked] == scores.tolist()
        assert one.classes_[ids[0, 0]] == Y[0][0]
        assert one.score(X, Y) == 1.0
        tree = one.trees_[0]
        assert tree.nodes[0].names == sorted(NAMES)
        assert tree.depth == 2
        assert set(json.loads(tree.to_json())["children"][0]["names"]) < set(NAMES)
        assert one.label_counts_.tolist() == [10] * 6


def test_names_that_training_did_not_have_count_as_misses(named):
    X, Y = named
    model = Bonsai().fit(X, Y)
    assert [model.score(X[i : i + 1], [["unknown"]]) for i in range(6)] == [0] * 6  # each label once
    assert model.score(X[:2], [["unknown"], Y[1]]) == 0.5
    assert model.score(X[:2], [["unknown", *Y[0]], Y[1]]) == 1.0
    assert model.score(X[:2], [[], []]) == 0


def test_ids_and_names_give_the_same_model(blocks):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=3).fit(X, Y)
    assert model.classes_.tolist() == list(range(12))
    assert model.top_k_labels(X[:1], 1) == [[(Y.indices[0], float(model.top_k(X[:1], 1)[1][0, 0]))]]
    ids = [[int(i)] for i in Y.indices]
    others = [ids, [[f"{i:02}"] for (i,) in ids], Y.toarray(), Y.astype(bool), sp.coo_matrix(Y.astype(float))]
    for other in others:
        assert same_model(model, Bonsai(classifiers="leaf", branching_factor=3).fit(X, other))


def test_data_frames_give_feature_and_label_names(blocks):
    pandas = pytest.importorskip("pandas")
    X, Y = blocks(n_labels=6)
    names = [f"label {i}" for i in range(6)]
    X_frame = pandas.DataFrame(X.toarray(), columns=[f"word {i}" for i in range(20)])
    model = Bonsai().fit(X_frame, pandas.DataFrame(Y.toarray(), columns=names))
    assert model.classes_.tolist() == names
    assert model.feature_names_in_.tolist() == X_frame.columns.tolist()
    assert [row[0][0] for row in model.top_k_labels(X_frame, 1)] == [names[i] for i in Y.indices]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X_frame.rename(columns={"word 0": "other"}))


# --- weights of rows ---


def test_weight_0_removes_a_row(generated):
    X, Y = generated.X_train, generated.Y_train
    weights = np.arange(400) % 3
    some = Bonsai(classifiers="leaf", branching_factor=6).fit(X, Y, sample_weight=weights)
    chosen = weights > 0
    other = Bonsai(classifiers="leaf", branching_factor=6).fit(
        X[chosen], Y[chosen], sample_weight=weights[chosen]
    )
    assert same_model(some, other)
    assert some.n_rows_fit_ == chosen.sum()
    np.testing.assert_array_equal(some.label_counts_, Y[chosen].sum(axis=0))
    dense = Bonsai(classifiers="leaf", branching_factor=6).fit(X.toarray(), Y.toarray(), weights.tolist())
    assert same_model(some, dense)


def test_weight_1_is_no_weight(generated):
    X, Y = generated.X_train, generated.Y_train
    plain = Bonsai(classifiers="leaf", branching_factor=6).fit(X, Y)
    assert same_model(
        plain, Bonsai(classifiers="leaf", branching_factor=6).fit(X, Y, sample_weight=np.ones(400))
    )
    assert same_model(plain, Bonsai(classifiers="leaf", branching_factor=6).fit(X, Y, sample_weight=1))
    assert not same_model(
        plain,
        Bonsai(classifiers="leaf", branching_factor=6).fit(X, Y, sample_weight=np.linspace(0.5, 2, 400)),
    )


@pytest.mark.parametrize("solver", ["dual", "newton"])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_weight_2_is_a_row_twice(generated, loss, solver):
    X, Y, X_test = generated.X_train[:100], generated.Y_train[:100], generated.X_test
    twice = np.arange(0, 100, 3)
    weights = np.ones(100)
    weights[twice] = 2
    model = Bonsai(
        classifiers="leaf", n_trees=2, branching_factor=6, beam_size=None, loss=loss, solver=solver, **TIGHT
    )
    weighted = clone(model).fit(X, Y, weights)
    repeated = clone(model).fit(sp.vstack([X, X[twice]]), sp.vstack([Y, Y[twice]]))
    plain = clone(model).fit(X, Y)
    assert weighted.trees_ == repeated.trees_
    a, b, c = (m.predict_proba(X_test).toarray() for m in (weighted, repeated, plain))
    np.testing.assert_allclose(a, b, atol=2e-3)
    assert abs(a - c).max() > 0.05


@pytest.mark.parametrize("representation", ["input", "output", "joint"])
def test_scaled_weights_are_a_scaled_C(generated, representation):
    X, Y = generated.X_train, generated.Y_train
    weights = np.random.default_rng(0).uniform(0.5, 2, 400)
    model = Bonsai(representation, classifiers="leaf", branching_factor=6, C=2.0, max_iter=100)
    base = clone(model).fit(X, Y, weights)
    assert same_model(base, clone(model).set_params(C=0.5).fit(X, Y, 4 * weights))
    assert not same_model(base, clone(model).fit(X, Y, 4 * weights))


# --- convergence ---


@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_tighter_tol_takes_more_passes_and_too_few_warn(generated, solver):
    X, Y = generated.X_train, generated.Y_train
    loose = Bonsai(classifiers="leaf", solver=solver).fit(X, Y).n_iter_
    tight = Bonsai(classifiers="leaf", solver=solver, tol=1e-3, max_iter=500).fit(X, Y).n_iter_
    assert 1 <= loose < tight < 500
    with pytest.warns(
        ConvergenceWarning, match=r"\d+ of 171 classifiers did not converge within max_iter=1;"
    ) as caught:
        model = Bonsai(classifiers="leaf", solver=solver, tol=1e-9, max_iter=1).fit(X, Y)
    assert model.n_iter_ == 1
    assert caught[0].filename == __file__


def test_numbers_of_numpy_are_as_good(generated):
    numbers = {
        "classifiers": "leaf",
        "n_trees": 2,
        "branching_factor": 6,
        "max_leaf_size": 5,
        "max_depth": 3,
        "balance": "equal",
        "C": 0.5,
        "tol": 0.25,
        "max_iter": 10,
        "prune": 0.125,
        "normalize": True,
        "beam_size": 4,
        "threshold": 0.25,
        "random_state": 3,
        "n_jobs": 1,
    }
    convert = {str: str, bool: np.bool_, int: np.int32, float: np.float64}
    X, Y = generated.X_train, generated.Y_train
    ours = Bonsai(**numbers).fit(X, Y)
    theirs = Bonsai(**{name: convert[type(value)](value) for name, value in numbers.items()}).fit(X, Y)
    assert same_model(ours, theirs)
    np.testing.assert_array_equal(ours.predict(X).toarray(), theirs.predict(X).toarray())


def test_no_warning_where_nearly_all_converge(blocks):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Bonsai(classifiers="leaf", branching_factor=4).fit(*blocks())


def test_warning_where_pruning_leaves_nothing(blocks):
    with pytest.warns(
        UserWarning, match=r"prune=50 leaves (\d+) of \1 classifiers without any weight; .*smaller"
    ):
        Bonsai(classifiers="leaf", prune=50.0).fit(*blocks())


# --- memory and progress ---


@pytest.mark.parametrize(
    "options",
    [
        {"classifiers": "leaf"},
        {"classifiers": "leaf", "max_depth": 1, "n_trees": 1},
        {"classifiers": "leaf", "prune": 0.01, "n_trees": 1},
        {"classifiers": "one_vs_rest"},
        {"classifiers": "blend", "prune": 0.01, "C": 1.0, "blend_weight": 0.3, "logit_adjustment": 0.0},
        {"classifiers": "one_vs_rest", "search": "index"},
    ],
)
def test_the_estimate_of_the_model_size(larger, tmp_path, options):
    X, Y = larger.X_train, larger.Y_train
    model = Bonsai(**options)
    estimate = model.memory_estimate(X, Y)
    model.fit(X, Y).save(tmp_path / "m")
    actual = (tmp_path / "m").stat().st_size
    assert actual / 3 < estimate["model_bytes"] < actual * 3
    assert estimate["training_bytes"] > estimate["model_bytes"] + X.data.nbytes


def test_the_estimate_for_each_kind_of_classifiers(larger):
    X, Y = larger.X_train, larger.Y_train
    estimate = lambda **options: Bonsai(n_jobs=2, **options).memory_estimate(X, Y)
    exact, trees = estimate(classifiers="one_vs_rest"), estimate(classifiers="leaf", prune=0.05)
    assert exact["model_bytes"] < trees["model_bytes"]
    # where held-out rows decide, for the largest that they may choose
    assert estimate(classifiers="auto")["model_bytes"] == estimate(classifiers="blend")["model_bytes"]
    both = estimate(classifiers="blend", prune=0.05)
    assert both["model_bytes"] > max(exact["model_bytes"], trees["model_bytes"])
    assert estimate(classifiers="blend", branching_factor=1000) == estimate(
        classifiers="blend", max_depth=1, branching_factor=1000
    )
    # panels of 64 weights and dual variables for each thread, in addition to X and a slice of all its rows
    panels = 2 * 64 * 4 * sum(X.shape)
    for options in ({"loss": "logistic"}, {"solver": "newton"}):
        other = estimate(classifiers="one_vs_rest", **options)
        assert other["phases"]["one-vs-rest"] > 2 * 8 * X.nnz + panels + other["model_bytes"]
    assert not hasattr(Bonsai(), "classifiers_")


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "least"), [("bibtex", 0.62), ("delicious", 0.65)])
@pytest.mark.parametrize("preset", ["bonsai-i", "bonsai-o", "parabel", "dismec"])
def test_presets_reach_their_accuracy_on_real_data(real_data, name, least, preset):
    data = real_data(name)
    model = Bonsai.preset(preset).fit(data.X_train, data.Y_train)
    assert model.score(data.X_test, data.Y_test) > least
    actual = sum(array.nbytes for array in trees_of(model).values())
    assert actual / 3 < model.memory_estimate(data.X_train, data.Y_train)["model_bytes"] < actual * 3


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress_goes_to_stderr_only_when_asked(blocks, monkeypatch, stream):
    X, Y = blocks()
    monkeypatch.setattr(sys, "stderr", err := stream())
    monkeypatch.setattr(sys, "stdout", out := stream())
    model = Bonsai(classifiers="leaf", branching_factor=4).fit(X, Y)
    model.top_k(X, 1)
    assert err.getvalue() == ""
    model.fit(X, Y, progress=True)
    assert out.getvalue() == ""
    assert ("\x1b[K" in err.getvalue()) == ("\r" in err.getvalue()) == (stream is Terminal)
    lines = [line.rpartition("\x1b[K")[2].rstrip("0123456789: ") for line in err.getvalue().split("\n")]
    assert lines == ["label vectors", "trees", "classifiers", "threshold", ""]
    assert model.timings_.keys() == {"label vectors", "trees", "classifiers", "threshold"}


# --- progress callbacks ---


@pytest.mark.parametrize(
    ("options", "phases"),
    [
        ({}, ["one-vs-rest", "threshold"]),
        (
            {"classifiers": "leaf", "branching_factor": 8, "threshold": 0.5},
            ["label vectors", "trees", "classifiers"],
        ),
        ({"classifiers": "leaf", "threshold": 0.5}, ["trees", "classifiers"]),  # a single leaf
        (
            {"classifiers": "blend", "branching_factor": 8},
            ["label vectors", "trees", "classifiers", "one-vs-rest", "threshold"],
        ),
    ],
)
def test_a_callback_gets_each_phase_to_its_end(generated, options, phases):
    seen = []
    model = Bonsai(**options).fit(generated.X_train, generated.Y_train, progress=lambda *r: seen.append(r))
    assert list(dict.fromkeys(phase for phase, _, _ in seen)) == phases == list(model.timings_)
    for phase in phases:
        reports = [(done, total) for name, done, total in seen if name == phase]
        assert reports[-1][0] == reports[-1][1] > 0
        assert all(0 <= done <= total or total == 0 for done, total in reports)
    seen.clear()
    model.top_k(generated.X_test, progress=lambda *r: seen.append(r))
    assert {phase for phase, _, _ in seen} <= {"predict"} and seen[-1][1] == seen[-1][2]


def test_what_a_callback_raises_ends_the_call(generated):
    def enough(phase, done, total):
        raise RuntimeError(f"enough of {phase}")

    model = Bonsai().fit(generated.X_train, generated.Y_train)
    with pytest.raises(RuntimeError, match="enough of one-vs-rest"):
        Bonsai().fit(generated.X_train, generated.Y_train, progress=enough)
    with pytest.raises(RuntimeError, match="enough of predict"):
        model.top_k(generated.X_train, progress=enough)


def test_a_callback_replaces_the_progress_bar(generated, capsys):
    Bonsai().fit(generated.X_train, generated.Y_train, progress=lambda *_: None)
    assert capsys.readouterr().err == ""


def test_progress_prints_one_line_a_phase(generated, capsys):
    Bonsai().fit(generated.X_train, generated.Y_train, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rstrip("0123456789: ") for line in lines] == ["one-vs-rest", "threshold"]


def test_strategy_and_phases_are_logged(generated, caplog):
    with caplog.at_level(logging.INFO, logger="bonsai_xmc"):
        Bonsai(threshold=0.5).fit(generated.X_train, generated.Y_train)
    strategy, phase = (record.getMessage() for record in caplog.records)
    assert strategy.startswith("one_vs_rest classifiers, exact search: one-vs-rest is affordable")
    assert re.fullmatch(r"one-vs-rest: \d+\.\d\d s", phase)
    assert {record.name for record in caplog.records} == {"bonsai_xmc"}


# --- decision values ---


@pytest.mark.parametrize(
    "options", [{}, {"classifiers": "leaf", "branching_factor": 6}, {"loss": "logistic"}]
)
def test_the_largest_decision_value_is_the_best_label(generated, options):
    """Absent labels have the value 0, which is below the value of every label that is returned."""
    model = Bonsai(threshold=0.5, max_labels=7, **options).fit(generated.X_train, generated.Y_train)
    best = model.top_k(generated.X_test, 1)[0][:, 0]
    decision = model.decision_function(generated.X_test)
    assert np.array_equal(np.asarray(decision.argmax(axis=1)).ravel(), best)
    assert np.array_equal(decision.toarray().argmax(axis=1), best)
    proba = model.predict_proba(generated.X_test).toarray()
    rows = np.arange(len(best))
    assert np.array_equal(proba.max(axis=1), proba[rows, best])
    hits = generated.Y_test.toarray()[rows, decision.toarray().argmax(axis=1)]
    assert hits.mean(dtype=float) == model.score(generated.X_test, generated.Y_test) > 0.4


# --- more labels than there are, and plain values ---


def test_more_labels_than_the_model_has():
    """The default of five labels also works for a model of two."""
    model = Bonsai().fit(np.eye(4), [["a"], ["b"], ["a"], ["b"]])
    ids, scores = model.top_k(np.eye(4))
    assert ids.shape == scores.shape == (4, 5)
    assert (ids[:, 2:] == -1).all() and (scores[:, 2:] == 0).all()
    assert [len(row) for row in model.top_k_labels(np.eye(4))] == [2] * 4


@pytest.mark.parametrize(
    "labels", [["a", "b"], [np.str_("a"), np.str_("b")], [7, 40_268_019], [np.int64(7), np.int32(9)]]
)
def test_labels_come_back_as_plain_values(labels):
    model = Bonsai().fit(np.eye(4), [[labels[0]], [labels[1]]] * 2)
    ((label, score), _) = model.top_k_labels(np.eye(4), 2)[0]
    assert label == labels[0] and type(score) is float
    assert type(label) in (str, int)
    assert repr(label) == repr(str(labels[0]) if isinstance(labels[0], str) else int(labels[0]))


def test_integer_labels_are_kept_by_files(tmp_path):
    Y = [[40_268_019], [7], [40_268_019], [7]]
    model = Bonsai().fit(np.eye(4), Y)
    assert model.classes_.tolist() == [7, 40_268_019]
    model.save(tmp_path / "m")
    assert Bonsai.load(tmp_path / "m").top_k_labels(np.eye(4), 1)[0][0][0] == 40_268_019
    assert Bonsai.load(tmp_path / "m").score(np.eye(4), Y) == 1.0


def test_names_that_are_no_unicode_are_refused_at_fit():
    with pytest.raises(ValueError, match=r"Y\[1\] holds the label 'a\\ud800', which is not valid Unicode"):
        Bonsai().fit(np.eye(2), [["b"], ["a\ud800"]])
