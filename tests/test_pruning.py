"""`prune` of many labels: the largest one that loses nothing on held-out rows."""

import numpy as np
import pytest

from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._selection import pruning
from bonsai_xmc._selection.held_out import Gain, gain
from bonsai_xmc._training import memory, splits
from bonsai_xmc._training.memory.limit import Room
from bonsai_xmc.metrics._ranking import Truth
from helpers import same_model

LEAF = {"classifiers": "leaf", "branching_factor": 12, "n_trees": 2}


@pytest.fixture
def many(monkeypatch):
    """Let a small number of labels count as many; return data with such labels."""
    monkeypatch.setattr(splits, "MANY_LABELS", 100)
    monkeypatch.setattr(splits, "SMALL", 0)
    monkeypatch.setattr(pruning, "_SURE", 50.0)
    return datasets.make_xmc(
        n_rows=2500, n_test=500, n_features=600, n_labels=400, features_per_row=12, labels_per_row=3
    )


def weights_of(forest):
    """Return child, feature and value of each node's weights, by feature and child."""
    of_nodes = [forest.weights(node) for node in range(len(forest.arrays()["is_leaf"]))]
    orders = [np.lexsort((child, feature)) for child, feature, _ in of_nodes]
    return [[part[order] for part in parts] for parts, order in zip(of_nodes, orders, strict=True)]


def smallest_weight(model):
    return min(np.abs(value).min(initial=np.inf) for *_, value in weights_of(model.fitted_.linear.core.trees))


@pytest.mark.parametrize("prune", [0.0, 0.1, 0.25, 0.7, 100.0])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_pruned_forest_has_the_weights_above_the_threshold(generated, prune, threads):
    model = Bonsai(**LEAF, prune=0.05, threshold=0.5).fit(generated.X_train, generated.Y_train)
    forest = model.fitted_.linear.core.trees
    pruned = forest.pruned(prune, threads)
    pruned.verify()
    for name in ("tree_ptr", "child_ptr", "children", "is_leaf", "bias", "scale", "block_ptr"):
        np.testing.assert_array_equal(pruned.arrays()[name], forest.arrays()[name])
    n_left = 0
    for found, expected in zip(weights_of(pruned), weights_of(forest), strict=True):
        kept = np.abs(expected[2]) > np.float32(prune)
        for of_pruned, of_all in zip(found, expected, strict=True):
            np.testing.assert_array_equal(of_pruned, of_all[kept])
        n_left += kept.sum()
    assert n_left if prune < 1 else not n_left


def test_the_largest_prune_that_loses_nothing_is_chosen(many, monkeypatch):
    X, Y = many.X_train, many.Y_train
    usual = Bonsai(**LEAF, prune=0.1).fit(X, Y)
    monkeypatch.setattr(pruning, "_LOSS", 20.0)
    monkeypatch.setattr(pruning, "LARGER", (50.0, 0.2, 0.15))  # the first leaves no weight at all
    model = Bonsai(**LEAF).fit(X, Y)
    chosen = model.fitted_.linear.strategy
    assert (chosen.prune, chosen.node_prune) == (0.2, 0.2)
    assert [line.split()[0] for line in chosen.evidence.splitlines()[2:]] == [
        "prune=0.1",
        "prune=50",
        "prune=0.2",
    ]
    assert smallest_weight(model) > 0.17 > smallest_weight(usual)
    assert "pruning" in model.timings_ and model.threshold_ != 0.5
    assert model.trees_ == usual.trees_
    monkeypatch.setattr(pruning, "LARGER", (60.0, 50.0))
    assert same_model(
        Bonsai(**LEAF, threshold=0.5).fit(X, Y), Bonsai(**LEAF, prune=0.1, threshold=0.5).fit(X, Y)
    )


@pytest.mark.parametrize(
    ("mean", "error", "taken"),
    [
        (0.5, 0.2, True),
        (-0.2, 0.0, True),
        (-0.3, 0.0, False),
        (-0.5, 0.3, True),  # chance may explain the loss
        (-0.6, 0.3, False),
        (-0.5, 1.1, False),  # nothing is known
        (0.5, 1.1, False),
        (1.0, 1.1, True),
    ],
)
def test_a_loss_counts_where_chance_does_not_explain_it(many, monkeypatch, mean, error, taken):
    monkeypatch.setattr(pruning, "_SURE", 1.0)
    monkeypatch.setattr(pruning, "gain", lambda *_: Gain(mean, error))
    model = Bonsai(**LEAF, threshold=0.5).fit(many.X_train, many.Y_train)
    assert model.fitted_.linear.strategy.prune == (0.3 if taken else 0.1)


@pytest.mark.parametrize("weighted", [False, True])
def test_gains_have_the_error_of_resampled_rows(weighted):
    """The mean is the relative gain of the metrics, and its error their spread over samples of the rows."""
    rng = np.random.default_rng(0)
    n = 400
    truth = Truth(np.arange(n + 1) * 2, rng.integers(0, 9, 2 * n).reshape(n, 2).cumsum(axis=1).ravel())
    weights = rng.random(n) + 0.5 if weighted else None
    ids = [rng.integers(0, 12, (n, 5)) for _ in range(2)]
    ids[1][:300] = ids[0][:300]

    def of(rows):
        some = Truth(
            np.arange(len(rows) + 1) * 2,
            truth.indices.reshape(n, 2)[rows].ravel(),
            None if weights is None else weights[rows],
        )
        return gain(some.rank(ids[1][rows]), some.rank(ids[0][rows]), ("P@1", "P@3"))

    found = of(np.arange(n))
    part = lambda one, k: [
        np.isin(i[:k], t).sum() for i, t in zip(one, truth.indices.reshape(n, 2), strict=True)
    ]
    new, old = ([np.average(part(one, k), weights=weights) for k in (1, 3)] for one in reversed(ids))
    assert found.mean == pytest.approx(100 * (np.array(new) / old - 1).mean())
    resampled = [of(rng.integers(0, n, n)).mean for _ in range(400)]
    assert found.error == pytest.approx(np.std(resampled), rel=0.2)


def test_nothing_is_chosen_for_a_given_prune_or_small_data(many, monkeypatch):
    X, Y = many.X_train, many.Y_train
    given = Bonsai(**LEAF, prune=0.1).fit(X, Y)
    by_labels = Bonsai(classifiers="one_vs_rest").fit(X, Y)
    monkeypatch.setattr(splits, "MANY_LABELS", 400)
    few = Bonsai(**LEAF).fit(X, Y)
    monkeypatch.setattr(splits, "MANY_LABELS", 100)
    monkeypatch.setattr(pruning, "_SURE", 0.0)
    monkeypatch.setattr(pruning, "_LOSS", 0.0)
    unsure = Bonsai(**LEAF).fit(X, Y)
    assert unsure.fitted_.linear.strategy.prune == 0.1
    for model in (given, by_labels, few):
        assert "pruning" not in model.timings_
    assert few.fitted_.linear.strategy.evidence == ""


def test_memory_is_planned_for_the_prune_that_is_chosen(many, monkeypatch):
    """There is room for the classifiers that the largest one leaves, but not for those of 0.1."""
    X, Y = many.X_train, many.Y_train
    model = Bonsai(**LEAF | {"n_trees": 20}, threshold=0.5, n_jobs=1)
    monkeypatch.setattr(pruning, "LARGER", (2.0,))
    sizes = model.memory_estimate(X, Y)
    most, least = (one["phases"]["classifiers"] for one in (sizes, sizes["least"]))
    assert least < 0.6 * most and sizes["least"]["model_bytes"] < 0.1 * sizes["model_bytes"]
    assert "least" not in Bonsai(**LEAF, prune=0.1).memory_estimate(X, Y)
    monkeypatch.setattr(memory, "available", lambda _: Room(int(least + most) // 2))
    monkeypatch.setattr(pruning, "gain", lambda *_: Gain(0.0, 0.1))
    assert model.fit(X, Y).fitted_.linear.strategy.prune == 2.0
    monkeypatch.setattr(pruning, "gain", lambda *_: Gain(-50.0, 0.1))
    with pytest.raises(MemoryError, match="phase 'classifiers' would take about"):
        model.fit(X, Y)


def test_the_choice_does_not_depend_on_threads_or_interruptions(many, tmp_path):
    X, Y = many.X_train, many.Y_train
    one = Bonsai(**LEAF, n_jobs=1).fit(X, Y)
    two = Bonsai(**LEAF, n_jobs=2).fit(X, Y, checkpoint=tmp_path / "work")
    again = Bonsai(**LEAF, n_jobs=2).fit(X, Y, checkpoint=tmp_path / "work")
    assert same_model(one, two) and same_model(two, again)
    assert one.threshold_ == two.threshold_ == again.threshold_


def test_a_bounded_part_of_many_labels_is_measured():
    assert splits.subtrees(50_000, 10**9) == (splits.TREE_SHARE, splits.FEWEST_SUBTREES, np.inf)
    few = splits.subtrees(50_001, 10**6)
    assert few == (splits.FEW_PAIRS / 10**6, splits.FEW_SUBTREES, splits.FEW_PAIRS)
    assert splits.subtrees(50_001, 10).share == splits.TREE_SHARE
    whole = splits.subtrees(2_812_281, 62_000_000)
    assert whole == (splits.PAIR_SHARE, splits.FEW_SUBTREES, pytest.approx(620_000))
    assert splits.most_held_out(50_000, 10**7) == splits.MOST_HELD_OUT
    assert splits.most_held_out(50_001, 10**5) == splits.FEW_HELD_OUT
    assert splits.most_held_out(50_001, 1_700_000) == pytest.approx(56_667, abs=1)
