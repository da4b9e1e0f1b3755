"""Models whose classifiers are chosen on held-out rows, blends of trees and one-vs-rest, adjusted scores."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._model.strategy import Facts
from bonsai_xmc._selection import default
from bonsai_xmc._selection.strategy import (
    ADJUSTMENTS,
    ROW_TREE_WEIGHTS,
    SMALLER_COSTS,
    WEIGHTS,
    search_space,
)
from bonsai_xmc.systems import FastXML
from helpers import says

BLEND = {"classifiers": "blend", "C": 1.0, "branching_factor": 8, "threshold": 0.5}


@pytest.fixture(scope="module")
def data():
    return datasets.make_xmc(n_rows=1500, n_features=300, n_labels=80, random_state=1)


@pytest.fixture(scope="module")
def parts(data):
    """Return trees alone and one-vs-rest alone, as a blend has them."""
    options = {"branching_factor": 8, "threshold": 0.5, "C": 1.0}
    trees = Bonsai(classifiers="leaf", **options).fit(data.X_train, data.Y_train)
    own = Bonsai(classifiers="one_vs_rest", C=1.0, threshold=0.5).fit(data.X_train, data.Y_train)
    return trees, own


def scores_of(model, X, k):
    """Return scores of the k best labels of each row, 0 for others."""
    ids, scores = model.top_k(X, k)
    result = np.zeros((len(ids), model.fitted_.n_labels))
    row, rank = np.nonzero(ids >= 0)
    result[row, ids[row, rank]] = scores[row, rank]
    return result


@pytest.mark.parametrize(("weight", "adjustment"), [(0.3, 0.0), (0.3, 0.2), (0.8, 0.05)])
def test_a_blend_is_the_weighted_sum_of_both(data, parts, weight, adjustment):
    trees, own = parts
    model = Bonsai(**BLEND, blend_weight=weight, logit_adjustment=adjustment).fit(data.X_train, data.Y_train)
    counts = np.maximum(np.asarray(data.Y_train.sum(axis=0)).ravel(), 1)
    expected = (1 - weight) * scores_of(own, data.X_test, 80) + weight * scores_of(trees, data.X_test, 32)
    expected *= counts**-adjustment
    ids, scores = model.top_k(data.X_test, 5)
    best = -np.sort(-expected, axis=1)[:, :5]
    np.testing.assert_allclose(np.where(ids >= 0, scores, 0), best * (ids >= 0), rtol=1e-4, atol=1e-6)
    row = np.arange(len(ids))[:, None]
    np.testing.assert_allclose(np.where(ids >= 0, expected[row, ids], 0), scores * (ids >= 0), rtol=1e-4)


@pytest.mark.parametrize(("weight", "adjustment", "search"), [(0.0, 0.0, "exact"), (0.3, 0.2, "index")])
def test_trees_over_rows_are_added_with_their_weight(data, parts, weight, adjustment, search):
    """They score the 100 best labels of each row, as FastXML grows them."""
    trees, own = parts
    kind = {"classifiers": "blend"} if weight else {"classifiers": "one_vs_rest"}
    model = Bonsai(
        **(BLEND | kind if weight else kind | {"C": 1.0, "threshold": 0.5}),
        **{
            "blend_weight": (weight or "auto", 0.4),
            "logit_adjustment": adjustment,
            "search": search,
            "n_probe": "auto",
        },
    ).fit(data.X_train, data.Y_train)
    length = np.sqrt((data.X_train.data**2).sum() / data.X_train.shape[0])
    rows = FastXML(n_trees=50, C=9 / length, threshold=0.5).fit(data.X_train, data.Y_train)
    counts = np.maximum(np.asarray(data.Y_train.sum(axis=0)).ravel(), 1)
    expected = (1 - weight) * scores_of(own, data.X_test, 80) + weight * scores_of(trees, data.X_test, 32)
    expected = (0.6 * expected + 0.4 * scores_of(rows, data.X_test, 80)) * counts**-adjustment
    _, scores = model.top_k(data.X_test, 5)
    best = -np.sort(-expected, axis=1)[:, :5]
    np.testing.assert_allclose(scores, best, rtol=1e-4)
    few = data.X_test[:20]
    allowed = np.arange(0, 80, 3)
    restricted, of_restricted = model.top_k(few, 5, restrict=allowed)
    assert np.isin(restricted, allowed).all()
    row = np.arange(20)[:, None]
    ratio = of_restricted / expected[:20][row, restricted]
    # Label trees score their 32 best labels: with `restrict`, the 32 best of those that are allowed.
    assert (ratio > 1 - 1e-4).all() and (weight > 0 or (ratio < 1 + 1e-4).all())


def test_trees_over_rows_are_the_same_for_any_number_of_threads(data, tmp_path):
    for n_jobs in (1, 3):
        model = Bonsai(**BLEND, blend_weight=(0.3, 0.4), logit_adjustment=0.1, n_jobs=n_jobs)
        model.fit(data.X_train, data.Y_train).save(tmp_path / str(n_jobs))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()


def test_trees_over_rows_are_part_of_the_choice():
    """They are chosen where rows of a label are alike, but no linear classifier separates them."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (4000, 8)).astype(np.float32)
    kind = (2 * (X[:, 0] != X[:, 1]) + (X[:, 2] != X[:, 3])).astype(int)  # two parities
    Y = np.zeros((4000, 12), np.float32)
    for i, k in enumerate(kind):
        Y[i, 3 * k : 3 * k + 3] = rng.random(3) < 0.7
    Y[:, 11] = 1
    model = Bonsai(search="exact", threshold=0.5).fit(csr_array(X), Y)
    assert model.strategy_.row_tree_weight > 0 and "row trees" in model.strategy_.evidence
    assert model.fitted_.linear.row_trees.n_trees == model.strategy_.n_row_trees == 50
    without = Bonsai(search="exact", threshold=0.5, blend_weight=("auto", 0)).fit(csr_array(X), Y)
    assert without.strategy_.n_row_trees == 0


def test_an_adjustment_alone_needs_no_trees(data, parts):
    model = Bonsai(classifiers="one_vs_rest", C=1.0, threshold=0.5, logit_adjustment=0.3)
    model.fit(data.X_train, data.Y_train)
    assert model.trees_ == [] and model.strategy_.blend_weight == 0
    counts = np.maximum(np.asarray(data.Y_train.sum(axis=0)).ravel(), 1)
    expected = scores_of(parts[1], data.X_test, 80) * counts**-0.3
    ids, scores = model.top_k(data.X_test, 5)
    np.testing.assert_allclose(scores[ids >= 0], (-np.sort(-expected, axis=1)[:, :5])[ids >= 0], rtol=1e-4)


def test_a_larger_k_has_the_same_labels_first(data):
    model = Bonsai(**BLEND, blend_weight=0.5).fit(data.X_train, data.Y_train)
    few, many = (model.top_k(data.X_test, k)[0] for k in (5, 60))
    assert np.array_equal(few, many[:, :5])
    alone = np.vstack([model.top_k(data.X_test[i : i + 1], 5)[0] for i in range(40)])
    assert np.array_equal(alone, few[:40])


def test_the_same_choice_and_the_same_bytes(data, tmp_path):
    """They hold for any number of threads, and after a file."""
    saved = []
    for n_jobs in (1, 2, 3):
        model = Bonsai(n_jobs=n_jobs, random_state=5).fit(data.X_train, data.Y_train)
        model.save(tmp_path / "m.bonsai")
        saved.append((tmp_path / "m.bonsai").read_bytes())
    assert saved[0] == saved[1] == saved[2]
    loaded = Bonsai.load(tmp_path / "m.bonsai")
    assert loaded.strategy_ == model.strategy_
    for one, other in zip(loaded.top_k(data.X_test, 5), model.top_k(data.X_test, 5), strict=True):
        assert np.array_equal(one, other)


def test_what_was_chosen_and_why(data):
    model = Bonsai(random_state=0).fit(data.X_train, data.Y_train)
    strategy = model.strategy_
    assert strategy.reason.startswith("most accurate on held-out rows")
    lines = strategy.evidence.splitlines()
    assert lines[0] == f"{data.X_train.shape[0] * 3 // 4:,} held-out rows, models of 375 others:"
    assert lines[-1].startswith("chosen")
    assert model.timings_["held-out rows"] > 0
    again = Bonsai(
        classifiers=strategy.classifiers,
        C=strategy.C,
        logit_adjustment=strategy.logit_adjustment,
        **({"blend_weight": strategy.blend_weight} if strategy.classifiers == "blend" else {}),
    ).fit(data.X_train, data.Y_train)
    assert again.strategy_.evidence == "" and "held-out rows" not in again.timings_
    assert np.array_equal(again.top_k(data.X_test, 5)[0], model.top_k(data.X_test, 5)[0])


def test_more_rows_raise_the_measures(data, monkeypatch):
    """Models of a part of the rows, and of half of it, show by how much."""
    found = []
    price = default.price_of_blend
    monkeypatch.setattr(default, "price_of_blend", lambda *args: found.append(args) or price(*args))
    Bonsai(random_state=0, threshold=0.5).fit(data.X_train, data.Y_train)
    ((n_labels, n_entries, growth),) = found
    assert (n_labels, n_entries) == (80, data.X_train.nnz)
    assert growth.shape == (4,) and (growth > 1).all() and (growth < 3).all()


def test_held_out_rows_decide_for_dense_rows_too(data):
    projection = np.random.default_rng(0).normal(size=(data.X_train.shape[1], 60)).astype(np.float32)
    model = Bonsai(random_state=0, threshold=0.5).fit(data.X_train @ projection, data.Y_train)
    assert model.strategy_.reason.startswith("most accurate on held-out rows")
    tried = [line.split()[0] for line in model.strategy_.evidence.splitlines()[2:]]
    assert tried == ["one-vs-rest", "trees", "equal", "chosen"]


MANY = Facts(n_rows=5000, n_features=500, n_entries=50_000, n_labels=300, dense=False)


def tried(facts=MANY, **params):
    return search_space(Bonsai(**params).get_params(deep=False), facts)


def test_parameters_that_are_set_are_not_searched():
    costs = (1.0, *SMALLER_COSTS)
    assert tried() == (costs, WEIGHTS, ADJUSTMENTS, ROW_TREE_WEIGHTS)
    of_texts = replace(MANY, n_texts=2, n_blocks=2)
    assert tried(of_texts).costs == (1.5, *SMALLER_COSTS)
    assert tried(loss="logistic").costs == (10.0, 3.0, 1.0)
    assert tried(of_texts, loss="logistic").costs == (15.0, 3.0, 1.0)
    assert tried(C=2.0).costs == (2.0,)
    assert tried(logit_adjustment=0.0).adjustments == (0.0,)
    assert 0.0 not in tried(n_trees=5).weights  # trees are requested
    assert 0.0 not in tried(beam_size=20).weights
    assert 1.0 not in tried(tail_exponent=0.5).weights  # one-vs-rest is
    assert 1.0 not in tried(search="exact").weights
    weights = tried(classifiers="blend").weights
    assert 0.0 not in weights and 1.0 not in weights and len(weights) > 2
    assert tried(blend_weight=0.4).weights == (0.4,)
    given = tried(blend_weight=("auto", 0.3))
    assert given.row_tree_weights == (0.3,) and 1.0 not in given.weights and 0.0 in given.weights
    assert tried(blend_weight=0.4).row_tree_weights == tried().row_tree_weights
    assert tried(blend_weight=("auto", 0.0)).row_tree_weights == ()
    assert tried(replace(MANY, dense=True)) == tried(blend_weight=("auto", 0.0))


def test_cases_in_which_nothing_is_tried():
    assert tried(classifiers="leaf") is None
    assert tried(classifiers="one_vs_rest") is None
    assert tried(search="index") is None
    assert tried(C=1.0, blend_weight=0.4, logit_adjustment=0.0) is None
    for changed in ({"n_rows": 999}, {"n_labels": 60_000}, {"n_entries": 10**11}):
        assert tried(replace(MANY, **changed)) is None
    assert tried(replace(MANY, dense=True, n_entries=10**9)) is None


def test_parameters_without_effect_are_refused(data):
    X, Y = data.X_train, data.Y_train
    with says('blend_weight needs classifiers="blend", but this model has "leaf"'):
        Bonsai(classifiers="leaf", blend_weight=0.5).fit(X, Y)
    with says(
        'second of blend_weight, needs classifiers="one_vs_rest" or "blend", but this model has "leaf"'
    ):
        Bonsai(classifiers="leaf", blend_weight=("auto", 0.5)).fit(X, Y)
    with says('logit_adjustment needs classifiers="one_vs_rest" or "blend", but this model has "leaf"'):
        Bonsai(classifiers="leaf", logit_adjustment=0.5).fit(X, Y)


def test_a_number_of_probes_does_not_hinder_the_choice_on_held_out_rows():
    data = datasets.make_xmc(n_rows=1200, n_features=300, n_labels=150, random_state=0)
    model = Bonsai(classifiers="blend", search="index", n_probe=1, threshold=0.5)
    model.fit(data.X_train, data.Y_train)
    assert model.search_ == "index" and model.strategy_.evidence


def test_the_memory_of_trees_over_rows_is_part_of_the_estimate(data):
    model = Bonsai(**BLEND, blend_weight=(0.3, 0.4), logit_adjustment=0.1, n_jobs=1)
    estimate = model.memory_estimate(data.X_train, data.Y_train)
    without = model.set_params(blend_weight=(0.3, 0)).memory_estimate(data.X_train, data.Y_train)
    assert "row trees" in estimate["phases"] and "row trees" not in without["phases"]
    grown = model.set_params(blend_weight=(0.3, 0.4)).fit(data.X_train, data.Y_train).fitted_.linear.row_trees
    size = sum(array.nbytes for array in grown.trees.values())
    assert 0.5 * size < estimate["model_bytes"] - without["model_bytes"] < 2 * size


def test_training_continues_with_trees_over_rows(data, tmp_path):
    """They are grown again where a checkpoint has the rest."""
    params = {**BLEND, "blend_weight": (0.3, 0.4), "logit_adjustment": 0.1}
    fit = lambda: Bonsai(**params).fit(data.X_train, data.Y_train, checkpoint=tmp_path / "checkpoint")
    fit().save(tmp_path / "first")
    fit().save(tmp_path / "second")
    Bonsai(**params).fit(data.X_train, data.Y_train).save(tmp_path / "plain")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert (tmp_path / "first").read_bytes() == (tmp_path / "plain").read_bytes()
