"""Thresholds: the one that `fit` chooses, the samples that it is measured on, and `choose_threshold`."""

import copy
import logging
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score

from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.tree import LabelTree
from bonsai_xmc._model import calibration
from bonsai_xmc._model import thresholds as _thresholds
from bonsai_xmc._model.thresholds import FALLBACK, Scored
from bonsai_xmc._selection import threshold
from bonsai_xmc._selection.threshold import _counted, _Counts, best_threshold, label_thresholds
from bonsai_xmc._training import samples, splits
from bonsai_xmc._training.samples import sample_labels, sample_subtrees
from bonsai_xmc.metrics._ranking import Truth
from helpers import says


def micro_f1(model, X, Y, threshold):
    return f1_score(Y.toarray(), model.set_params(threshold=threshold).predict(X).toarray(), average="micro")


def best_f1(model, X, Y):
    """Return the best micro-F1 of all thresholds on the scores of a model."""
    ids, scores = model.top_k(X, 100)
    right = np.take_along_axis(Y.toarray(), ids, axis=1) > 0
    hits = np.cumsum(right[ids >= 0][np.argsort(-scores[ids >= 0])])
    return np.max(2 * hits / (np.arange(1, len(hits) + 1) + Y.nnz))


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"classifiers": "leaf", "branching_factor": 8},
        {"classifiers": "leaf", "max_depth": 1, "n_trees": 1},
        {"classifiers": "leaf", "branching_factor": 2, "max_leaf_size": 5, "max_depth": None},
        {"classifiers": "blend", "branching_factor": 8},
        {"loss": "logistic"},
    ],
)
def test_predict_is_useful_by_default(monkeypatch, options, small):
    """The threshold that `fit` chooses has nearly the best micro-F1, and is not 0.5."""
    data = datasets.make_xmc(
        n_rows=2500, n_test=1000, n_features=600, n_labels=120, features_per_row=12, labels_per_row=3
    )
    if not small:
        monkeypatch.setattr(splits, "SMALL", 0)
        monkeypatch.setattr(splits, "FEWEST_LABELS", 60)
        monkeypatch.setattr(splits, "TREE_SHARE", 0.5)
    model = Bonsai(**options).fit(data.X_train, data.Y_train)
    chosen, half = (micro_f1(model, data.X_test, data.Y_test, t) for t in ("auto", 0.5))
    best = best_f1(model, data.X_test, data.Y_test)
    assert half <= best and chosen > 0.93 * best
    assert model.threshold_ != 0.5


def test_a_given_threshold_takes_no_time_and_changes_nothing_else(generated, tmp_path):
    X, Y = generated.X_train, generated.Y_train
    auto, given = Bonsai().fit(X, Y), Bonsai(threshold=0.5).fit(X, Y)
    assert "threshold" in auto.timings_ and "threshold" not in given.timings_
    assert given.threshold_ == FALLBACK
    np.testing.assert_array_equal(auto.top_k(X)[1], given.top_k(X)[1])
    assert not np.array_equal(auto.predict(X).toarray(), given.predict(X).toarray())
    np.testing.assert_array_equal(
        auto.predict(X).toarray(), given.set_params(threshold=auto.threshold_).predict(X).toarray()
    )


@pytest.mark.parametrize("small", [True, False])
def test_the_same_seed_and_any_threads_give_the_same_threshold(generated, monkeypatch, small):
    if not small:
        monkeypatch.setattr(splits, "SMALL", 0)
    fit = lambda **options: Bonsai(**options).fit(generated.X_train, generated.Y_train).threshold_
    assert fit(n_jobs=1) == fit(n_jobs=3)
    assert len({fit(random_state=seed) for seed in range(4)}) > 1


def test_held_out_rows_are_not_training_rows():
    for n in (8, 100, 1001):
        parts = [*splits.folds(n, 3), splits.most_rows(n, 3)]
        for split in parts:
            assert not np.intersect1d(split.training, split.held_out).size
        assert sorted(np.concatenate([split.held_out for split in parts[:-1]]).tolist()) == list(range(n))
        assert len(parts[-1].training) + len(parts[-1].held_out) == n


@pytest.mark.parametrize("n_rows", [1, 2, 7, 8, 9])
def test_too_few_rows_give_the_fallback_threshold(n_rows):
    X, Y = np.eye(n_rows), [[i % 2] for i in range(n_rows)]
    model = Bonsai().fit(X, Y)
    assert 0 <= model.threshold_ <= 1
    assert (model.threshold_ == FALLBACK) or n_rows >= 8


def test_weights_of_rows_count(generated):
    """Rows of weight 0 do not count: the threshold is that of the others."""
    X, Y = generated.X_train, generated.Y_train
    weights = np.where(np.arange(400) < 200, 1.0, 0.0)
    assert Bonsai().fit(X, Y, weights).threshold_ == Bonsai().fit(X[:200], Y[:200]).threshold_


def test_the_choice_of_the_threshold_is_logged(generated, caplog):
    with caplog.at_level(logging.INFO, logger="bonsai_xmc"):
        Bonsai().fit(generated.X_train, generated.Y_train)
    assert any(" on held-out rows, " in record.getMessage() for record in caplog.records)


# --- the choice, by hand ---


def scored(scores, is_true, n_true, weights=None):
    weights = np.ones(len(scores)) if weights is None else np.array(weights)
    return Scored(np.array(scores), np.array(is_true, bool), weights, n_true)


def test_rankings_are_flattened_with_their_weights():
    truth = Truth(np.array([0, 1, 3]), np.array([2, 0, 1]), np.array([1.0, 3.0]))
    ranking = truth.rank(np.array([[2, 0, -1], [1, 2, 0]]))
    scores = np.array([[0.9, 0.5, 0.0], [0.8, 0.7, 0.6]])
    found = Scored.of(ranking, scores, np.array([10.0, 1.0, 0.0]))
    assert found.scores.tolist() == [0.5, 0.8, 0.6]  # label 2 does not count
    assert found.is_true.tolist() == [False, True, True]
    assert found.weights.tolist() == [10, 3, 30] and found.n_true == 33
    plain = Scored.of(ranking, scores)
    assert plain.weights.tolist() == [1, 1, 3, 3, 3] and plain.n_true == 7
    joined = Scored.joined([found, plain])
    assert len(joined.scores) == 8 and joined.n_true == 40 and joined.is_true.dtype == bool


def test_the_threshold_lies_between_the_last_taken_and_the_next_score():
    # F1: 1 of 1 → 2·1/(1+2), 2 of 2 → 1, then falls.
    threshold = best_threshold(scored([0.9, 0.4, 0.1], [1, 1, 0], 2))
    assert 0.1 < threshold <= 0.4
    assert threshold == 0.2  # the geometric middle, in few digits
    assert best_threshold(scored([0.4, 0.9, 0.1], [1, 1, 0], 2)) == 0.2


def test_equal_scores_are_taken_together():
    # Alone, the first 0.5 would be best; but a threshold cannot part the two.
    assert best_threshold(scored([0.5, 0.5, 0.5, 0.5, 0.9], [1, 0, 0, 0, 1], 2)) > 0.5


def test_row_weights_move_the_threshold():
    many_wrong = scored([0.9, 0.4, 0.1], [1, 0, 1], 2, [1, 100, 1])
    assert best_threshold(many_wrong) > 0.4
    assert best_threshold(scored([0.9, 0.4, 0.1], [1, 0, 1], 101, [1, 1, 100])) <= 0.1


def test_nothing_to_choose_from():
    assert best_threshold(scored([], [], 3)) == FALLBACK
    assert best_threshold(scored([0.3, 0.2], [0, 0], 3)) == FALLBACK


# --- samples of labels ---


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    frequency = 0.5 / np.arange(1, 201)
    return labels_of(sp.csr_array(rng.random((600, 200)) < frequency))


def test_samples_are_unbiased(labels, monkeypatch):
    """Over many seeds, the weighted number of positives is that of all labels."""
    tree = LabelTree.from_nested([list(range(i, 200, 40)) for i in range(40)])
    deep = LabelTree.from_nested([[[i, i + 40, i + 80], [i + 120, i + 160]] for i in range(40)])
    total = len(labels.indices)
    monkeypatch.setattr(samples, "_MOST_OF_LEAF", 2)
    for draw in (
        lambda seed: sample_labels(labels, 30, seed),
        lambda seed: sample_subtrees(labels, tree, splits.Subtrees(0.3, 8), seed),
        lambda seed: sample_subtrees(labels, deep, splits.Subtrees(0.5, 4, total / 8), seed),
    ):
        sums, sizes = [], []
        for seed in range(300):
            sample = draw(seed)
            sums.append(sample.weights[sample.labels.indices].sum())
            sizes.append(len(sample.original))
        assert np.mean(sums) == pytest.approx(total, rel=0.05)
        assert 5 < np.mean(sizes) < 80


def test_subtrees_have_about_as_many_pairs_as_wanted(labels):
    """Parts of as many subtrees are drawn, where whole ones have too many."""
    tree = LabelTree.from_nested([[[i], [i + 40], [i + 80], [i + 120], [i + 160]] for i in range(40)])
    some = lambda most, seed: sample_subtrees(labels, tree, splits.Subtrees(0.8, 1, most), seed).original
    for seed in range(5):
        assert set(some(200, seed)) <= set(some(np.inf, seed))
    for most in (100, 300):
        pairs = np.mean([labels.counts[some(most, seed)].sum() for seed in range(200)])
        assert pairs == pytest.approx(most, rel=0.25)


def test_a_sample_of_labels_keeps_their_rows(labels):
    sample = sample_labels(labels, 30, 1)
    matrix = lambda of: sp.csr_array((np.ones(len(of.indices)), of.indices, of.indptr), (600, of.n_labels))
    np.testing.assert_array_equal(
        matrix(sample.labels).toarray(), matrix(labels).toarray()[:, sample.original]
    )
    assert (sample.weights >= 1).all() and sample.tree is None


@pytest.mark.parametrize(
    "nested",
    [
        [list(range(i, 200, 40)) for i in range(40)],
        [[list(range(i + 40 * j, i + 40 * j + 4)) for i in range(0, 40, 4)] for j in range(5)],
        list(range(200)),
    ],
)
@pytest.mark.parametrize("most_pairs", [np.inf, 100])
def test_a_sample_of_subtrees_keeps_the_rows_of_each_node(labels, nested, most_pairs, monkeypatch):
    """In a leaf, labels that are left out keep their places beside those that are kept."""
    monkeypatch.setattr(samples, "_MOST_OF_LEAF", 2)
    tree = LabelTree.from_nested(nested)
    sample = sample_subtrees(labels, tree, splits.Subtrees(0.3, 8, most_pairs), 2)
    small = LabelTree(*sample.tree)
    n_drawn = len(sample.original)
    assert 0 < n_drawn < 200
    assert (sample.weights[:n_drawn] >= 1).all() and not sample.weights[n_drawn:].any()
    dense = lambda of: sp.csr_array(
        (np.ones(len(of.indices)), of.indices, of.indptr), (600, of.n_labels)
    ).toarray()
    full, part = dense(labels) > 0, dense(sample.labels) > 0
    np.testing.assert_array_equal(part[:, :n_drawn], full[:, sample.original])
    # All rows that reach the root of the whole tree reach that of the sample.
    np.testing.assert_array_equal(part[:, small.labels()].any(axis=1), full[:, tree.labels()].any(axis=1))
    # A leaf of drawn labels has the same labels as in the whole tree, or one that stands for some of them.
    before = {tuple(tree.labels(v)) for v in range(tree.n_nodes) if tree.is_leaf(v)}
    for v in range(small.n_nodes):
        below = small.labels(v)
        if small.is_leaf(v) and small.n_nodes > 1 and below[0] < n_drawn:
            if below[-1] < n_drawn:
                assert tuple(sample.original[below]) in before
            else:
                whole = next(leaf for leaf in before if sample.original[below[0]] in leaf)
                assert set(sample.original[below[:-1]]) < set(whole) and len(below) == 3
                np.testing.assert_array_equal(part[:, below].any(axis=1), full[:, whole].any(axis=1))


def test_classifiers_of_a_sample_are_those_of_the_whole(generated, monkeypatch):
    """Trained on the same rows, a subtree has the same weights as within its tree."""
    from bonsai_xmc._data.rows import training_rows
    from bonsai_xmc._training.train import train, train_sample
    from bonsai_xmc._training.work import Work

    X, Y = generated.X_train, generated.Y_train
    model = Bonsai(
        classifiers="leaf", branching_factor=8, max_leaf_size=3, n_trees=1, tol=1e-6, max_iter=2000, prune=0
    )
    problem = model._problem(training_rows(X, "Bonsai"), Y)
    strategy = model.fit(X, Y).strategy_
    core, _ = train(problem, strategy, 0, Work(1))
    tree = model.trees_[0]
    sample = sample_subtrees(problem.labels, tree, splits.Subtrees(0.5, 8), 1)
    some = replace(problem, labels=sample.labels)
    part = train_sample(some, strategy, sample, problem.labels.counts, 0, Work(1))
    rows = X[:50].astype(np.float32)
    arrays = (rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, rows.shape[1])
    options = {"beam_size": 0, "exact": False, "n_probe": 0, "threads": 1}
    dense = lambda ids, scores, n: np.array(
        [
            [dict(zip(i, s, strict=True)).get(label, -np.inf) for label in range(n)]
            for i, s in zip(ids, scores, strict=True)
        ]
    )
    full = dense(*core.top_k(arrays, 60, **options), 60)[:, sample.original]
    n_part = sample.labels.n_labels
    found = dense(*part.top_k(arrays, n_part, **options), n_part)[:, : len(sample.original)]
    np.testing.assert_allclose(np.exp(found), np.exp(full), atol=0.02)


# --- choose_threshold ---


def f1_at_k(model, X, truth, k, threshold):
    """Compute F1 at k by its definition, row by row."""
    ids, scores = model.top_k(X, k)
    total = 0.0
    for row, values, true in zip(ids, scores, truth, strict=True):
        taken = {i for i, score in zip(row.tolist(), values, strict=True) if i >= 0 and score >= threshold}
        total += 2 * len(taken & true) / (len(taken) + len(true)) if taken or true else 0.0
    return total / len(truth)


@pytest.mark.parametrize("calibrated", [None, "one", "frequency"])
@pytest.mark.parametrize("objective", ["micro_f1", "f1_at_5", "f1_at_2", ("precision", 0.6)])
def test_no_threshold_is_better(fitted, generated, objective, calibrated):
    model = copy.copy(fitted)
    X, Y = generated.X_test, generated.Y_test
    if calibrated:
        model = model.calibrate(X, Y, groups=None if calibrated == "one" else calibrated)
    truth = [set(row.indices.tolist()) for row in sp.csr_array(Y)]
    chosen = model.choose_threshold(X, Y, objective)
    proba = model.predict_proba(X)
    candidates = np.unique(proba.data)

    def value(threshold):
        if objective == "micro_f1":
            return micro_f1(model, X, Y, float(threshold))
        if isinstance(objective, str):
            return f1_at_k(model, X, truth, int(objective[-1]), threshold)
        taken = model.set_params(threshold=float(threshold)).predict(X)
        return taken.multiply(Y).nnz / taken.nnz

    if isinstance(objective, str):
        best = max(value(t) for t in candidates[:: max(1, len(candidates) // 200)])
        assert value(chosen) >= 0.996 * best > 0
    else:
        assert value(chosen) >= 0.6
        lower = candidates[candidates < chosen]
        assert all(value(t) < 0.6 for t in lower[:: max(1, len(lower) // 100)])
    assert model.threshold_ == model.fitted_.threshold  # nothing has changed


def test_thresholds_equal_hand_computed_ones():
    scores = np.array([[0.8, 0.2], [0.4, 0.0]], np.float32)
    truth = Truth(np.array([0, 1, 2]), np.array([0, 2]), sizes=np.array([1, 2]))
    ranking = truth.rank(np.array([[0, 1], [2, -1]]))
    choose = lambda objective: _thresholds.choose(
        ranking, scores, _thresholds.objective_of(objective), calibrated=False
    )
    assert 0.2 < choose("micro_f1") <= 0.4
    assert 0.2 < choose("f1_at_2") <= 0.4
    assert choose(("precision", 1.0)) == choose("f1_at_2")
    assert choose(("precision", 0.5)) <= 0.2
    curve = _thresholds.mean_f1(ranking, scores, 2)
    assert curve.values.tolist() == pytest.approx([1 / 2, (1 + 2 / 3) / 2, (2 / 3 + 2 / 3) / 2])


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_the_threshold_of_separable_rows_lies_in_the_middle_of_the_gap(method):
    """Every right label scores higher than every wrong one, in raw scores above 0.9 and below 0.1."""
    rng = np.random.default_rng(0)
    log_scores = np.log(np.column_stack([rng.uniform(0.9, 1, 50), rng.uniform(0.01, 0.1, (50, 4))]))
    labels = rng.permuted(np.tile(np.arange(5), (50, 1)), axis=1)
    ranking = Truth(np.arange(51), labels[:, 0].copy()).rank(labels, log_scores.astype(np.float32))
    learnt = calibration.learn(ranking, np.full(5, 10), method, None)
    scores = learnt.scores(ranking.ids, ranking.scores, np.full(5, 10), apart=False)
    for objective in ("micro_f1", "f1_at_2", ("precision", 1.0)):
        chosen = _thresholds.choose(ranking, scores, _thresholds.objective_of(objective), calibrated=True)
        # the middle of the raw scores' gap, on the calibrated scale
        middle = learnt.scores(np.zeros((1, 1), int), np.full((1, 1), np.log(0.3)), np.full(5, 10))[0, 0]
        assert chosen == pytest.approx(middle, rel=0.15)
        assert 0.3 < chosen < 0.7


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("f1", "objective is 'f1'"),
        ("f1_at_0", "objective is 'f1_at_0'"),
        (("recall", 0.5), "objective is ('recall', 0.5)"),
        (("precision", 0), "the target precision is 0"),
        (("precision", "high"), "the target precision is 'high'"),
        (None, "objective is None"),
    ],
)
def test_unknown_objectives_are_rejected(fitted, generated, objective, message):
    with says(message):
        fitted.choose_threshold(generated.X_test, generated.Y_test, objective)


def test_a_precision_out_of_reach_is_an_error(fitted, generated):
    X, Y = generated.X_test, generated.Y_test
    wrong = sp.csr_array(Y.shape, dtype=np.int8)
    for objective in ("micro_f1", "f1_at_5"):
        with says("none of the predictions is right"):
            fitted.choose_threshold(X, wrong, objective)
    with says("no threshold gives a precision of 0.5 on these rows; the highest is 0"):
        fitted.choose_threshold(X, wrong, ("precision", 0.5))


# --- thresholds of labels ---


def two_kinds(n_rows, rng):
    """Return rankings of two labels: 0 is right from a score of 0.6 on, 1 from 0.1; 0.3 is best for both."""
    scores = rng.uniform(0.02, 1, (n_rows, 2))
    is_true = scores >= [0.6, 0.1]
    order = np.argsort(-scores, axis=1)
    truth = labels_of(sp.csr_array(is_true))
    ranking = Truth(truth.indptr, truth.indices).rank(order)
    return ranking, np.take_along_axis(scores, order, axis=1)


def test_labels_get_the_thresholds_that_suit_them():
    found = label_thresholds([two_kinds(400, np.random.default_rng(0))], 3, 0.3)
    assert found[0] == pytest.approx(0.6, rel=0.15) and found[1] == pytest.approx(0.1, rel=0.15)
    assert found[2] == 0  # without rows: the common one


def test_thresholds_of_labels_are_not_kept_where_the_common_one_suits_all():
    rng = np.random.default_rng(1)
    scores = -np.sort(-rng.uniform(0.02, 1, (300, 4)), axis=1)
    ids = rng.permuted(np.tile(np.arange(4), (300, 1)), axis=1)
    noisy = np.zeros((300, 4), bool)
    np.put_along_axis(noisy, ids, rng.random((300, 4)) < scores, axis=1)
    truth = labels_of(sp.csr_array(noisy))
    ranking = Truth(truth.indptr, truth.indices).rank(ids)
    assert label_thresholds([(ranking, scores)], 4, 0.4) is None


def test_few_rows_hardly_move_a_threshold():
    # Label 0 is best at the first threshold (100 of 100 are right), label 1, of one row, at the last.
    hits, taken = np.array([[100.0, 50, 10], [1, 1, 1]]), np.array([[100.0, 50, 10], [4, 2, 1]])
    counts = _Counts(hits, taken, np.array([100.0, 1]))
    assert counts.best(0.01).tolist() == [0, 2]
    assert counts.best(100.0).tolist() == [0, 0]


def test_counts_of_each_label_equal_hand_computed_ones():
    truth = Truth(np.array([0, 1, 2, 2]), np.array([0, 1]), np.array([1.0, 1.0, 3.0]))
    ranking = truth.rank(np.array([[0, 1], [0, -1], [1, 0]]))
    scores = np.array([[0.9, 0.2], [0.5, 0.0], [0.4, 0.3]])
    labels, grid = np.array([0, 1]), np.array([0.25, 0.5])
    even, odd = (_counted([(ranking, scores)], labels, 2, grid, half) for half in (0, 1))
    assert even.hits.tolist() == [[1, 1], [0, 0]] and even.taken.tolist() == [[4, 1], [3, 0]]
    assert odd.hits.tolist() == [[0, 0], [0, 0]] and odd.taken.tolist() == [[1, 1], [0, 0]]
    assert even.n_true.tolist() == [1, 0] and odd.n_true.tolist() == [0, 1]
    both = even.plus(odd)
    assert both.at(np.array([1, 0])).f1.tolist() == [2 / 3, 0]  # 2·1 / (2 + 1), 0 of 3 + 1


@pytest.fixture(scope="module")
def with_thresholds(generated):
    """Return a model in which every label but the last has its own threshold."""
    model = Bonsai(classifiers="one_vs_rest", threshold="auto").fit(generated.X_train, generated.Y_train)
    own = np.linspace(0.05, 0.9, 60, dtype=np.float32)
    own[59] = 0
    fitted = replace(model.fitted_, labels=replace(model.fitted_.labels, thresholds=own))
    return model._with(fitted)


def test_predict_compares_with_the_threshold_of_each_label(with_thresholds, generated, tmp_path):
    model, X = with_thresholds, generated.X_test
    own = model.thresholds_
    assert own[59] == np.float32(model.threshold_) and (own > 0).all()
    scores = model.set_params(max_labels=60).predict_proba(X).toarray()
    expected = scores >= own
    np.testing.assert_array_equal(model.predict(X).toarray(), expected & (scores > 0))
    model.save(tmp_path / "m.bonsai")
    np.testing.assert_array_equal(Bonsai.load(tmp_path / "m.bonsai").thresholds_, own)
    np.testing.assert_array_equal(Bonsai.load(tmp_path / "m.bonsai").predict(X).toarray(), expected)
    given = copy.copy(model).set_params(threshold=0.3).predict(X).toarray()
    np.testing.assert_array_equal(given, scores >= np.float32(0.3))
    assert Bonsai(threshold=0.5).fit(X, generated.Y_test).thresholds_ is None


def test_thresholds_follow_their_labels(with_thresholds, generated):
    model, own = with_thresholds, with_thresholds.thresholds_
    dropped = model.drop([0, 7])
    np.testing.assert_array_equal(dropped.thresholds_, own[dropped.classes_])
    kept = model.restrict([9, 3])
    np.testing.assert_array_equal(kept.thresholds_, own[[3, 9]])
    renamed = model.rename({3: 99})
    assert renamed.thresholds_[renamed.classes_.tolist().index(99)] == own[3]
    merged = model.merge([4, 5], into=5)
    assert merged.thresholds_[merged.classes_.tolist().index(5)] == own[5]


def test_explanations_name_the_threshold_of_the_label(with_thresholds, generated):
    x = generated.X_test[:1]
    best = int(with_thresholds.top_k(x, 1)[0][0, 0])
    said = str(with_thresholds.why_not(x, best))
    assert f"the threshold {with_thresholds.thresholds_[best]:.3g}" in said


@pytest.mark.parametrize("small", [True, False])
def test_fit_chooses_thresholds_of_labels_if_asked(monkeypatch, small):
    data = datasets.make_xmc(
        n_rows=1500, n_test=600, n_features=400, n_labels=60, features_per_row=12, labels_per_row=3
    )
    if not small:
        monkeypatch.setattr(splits, "SMALL", 0)
    told = []
    monkeypatch.setattr(
        threshold, "label_thresholds", lambda *args: told.append(args) or label_thresholds(*args)
    )
    model = Bonsai(threshold="per_label").fit(data.X_train, data.Y_train)
    ((rankings, n_labels, common),) = told
    assert len(rankings) == (splits.FOLDS if small else 1) and (n_labels, common) == (60, model.threshold_)
    assert sum(ranking.truth.n_rows for ranking, _ in rankings) == (1500 if small else 300)
    assert model.predict(data.X_test).nnz > 600


def test_calibration_chooses_thresholds_of_labels_again(with_thresholds, generated):
    model = with_thresholds.calibrate(generated.X_test, generated.Y_test)
    assert model.thresholds_ is None or not np.array_equal(model.thresholds_, with_thresholds.thresholds_)
    plain = Bonsai(threshold=0.5).fit(generated.X_train, generated.Y_train)
    assert plain.calibrate(generated.X_test, generated.Y_test).thresholds_ is None
