"""Held-out evidence: splits, candidates of two models, measures, the objective, thresholds."""

import numpy as np
import pytest

from bonsai_xmc import metrics
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._selection import held_out as selection
from bonsai_xmc._selection.held_out import Candidates, HeldOut, Ranked, Setting, Trials
from bonsai_xmc._training import splits
from helpers import random_csr


def test_splits_are_disjoint_and_bounded():
    for n_rows, training, n_held_out in (
        (1000, 250, 750),
        (30_000, 5000, 10_000),
        (80_000, 10_000, 16_000),
        (900_000, 100_000, 20_000),
    ):
        split, half = splits.small_part(n_rows, 7)
        assert (len(split.training), len(split.held_out)) == (training, n_held_out)
        assert not np.intersect1d(split.training, split.held_out).size
        assert len(half) == training // 2 and np.isin(half, split.training).all()
        for rows in (*split, half):
            assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < n_rows
            assert abs(rows.mean() / n_rows - 0.5) < 5 / np.sqrt(12 * len(rows))


def test_a_split_follows_from_the_seed():
    first, again, other = (splits.small_part(5000, seed)[0] for seed in (3, 3, 2**64 - 1))
    assert np.array_equal(first.training, again.training) and np.array_equal(first.held_out, again.held_out)
    assert len(np.intersect1d(first.training, other.training)) < 0.5 * len(first.training)


def ranked(rng, n_rows, n_labels, width):
    """Different labels for each row, some of them missing, with descending log scores."""
    ids = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)], np.int32)
    scores = -np.sort(rng.exponential(1.0, (n_rows, width)), axis=1).astype(np.float32)
    missing = np.arange(width) >= rng.integers(0, width + 1, n_rows)[:, None]
    return Ranked(np.where(missing, -1, ids), np.where(missing, -np.inf, scores).astype(np.float32))


def problem(rng, n_rows=300, n_labels=40, held_out=60):
    Y = random_csr((n_rows, n_labels), density=0.1, rng=rng)
    Y.data[:] = 1
    labels = labels_of(Y)
    rows = np.sort(rng.permutation(n_rows)[:held_out])
    return Y, labels, rows


def brute_force(one_vs_rest, trees, counts, setting):
    """Blended scores of each row by label."""
    result = []
    for i in range(len(one_vs_rest.ids)):
        scores = {}
        for found, factor in ((one_vs_rest, 1 - setting.blend_weight), (trees, setting.blend_weight)):
            for label, score in zip(found.ids[i].tolist(), found.scores[i].tolist(), strict=True):
                if label >= 0:
                    scores[label] = scores.get(label, 0.0) + factor * np.exp(score)
        result.append({label: s * counts[label] ** -setting.logit_adjustment for label, s in scores.items()})
    return result


@pytest.mark.parametrize("seed", range(3))
def test_measures_are_those_of_the_blended_ranking(seed):
    rng = np.random.default_rng(seed)
    Y, labels, rows = problem(rng)
    held_out = HeldOut(labels, rows, None)
    one_vs_rest, trees = (ranked(rng, len(rows), 40, 12) for _ in range(2))
    candidates = Candidates(held_out, one_vs_rest, trees)
    weights, adjustments = (0.0, 0.3, 1.0), (0.0, 0.2)
    grid = candidates.grid(weights, adjustments)
    for w, weight in enumerate(weights):
        for a, adjustment in enumerate(adjustments):
            expected = brute_force(one_vs_rest, trees, held_out.counts, Setting(1.0, weight, adjustment))
            ids = np.full((len(rows), 5), -1, np.int32)
            for i, scores in enumerate(expected):
                # A model of weight 0 still names candidates, with scores of 0: they cannot be told apart.
                best = sorted((label for label in scores if scores[label] > 0), key=lambda at: -scores[at])
                ids[i, : len(best[:5])] = best[:5]
            found = metrics.evaluate(Y[rows], ids, Y_train=Y)
            if 0 < weight < 1:
                assert grid[w, a] == pytest.approx([found[m] for m in selection.MEASURES])
            else:
                assert (grid[w, a] >= np.array([found[m] for m in selection.MEASURES]) - 1e-9).all()


def test_weights_of_rows_count():
    rng = np.random.default_rng(5)
    _, labels, rows = problem(rng)
    one_vs_rest, trees = (ranked(rng, len(rows), 40, 12) for _ in range(2))
    weights = np.zeros(300, np.float32)
    weights[rows[:20]] = 2.0
    weighted = Candidates(HeldOut(labels, rows, weights), one_vs_rest, trees).grid((0.5,), (0.0,))[0, 0]
    some = HeldOut(labels, rows[:20], None)
    alone = Candidates(some, *(Ranked(r.ids[:20], r.scores[:20]) for r in (one_vs_rest, trees)))
    assert weighted == pytest.approx(alone.grid((0.5,), (0.0,))[0, 0])


def test_ties_go_to_the_better_rank_of_one_vs_rest():
    labels = labels_of(np.eye(4, dtype=int))
    held_out = HeldOut(labels, np.array([2]), None)
    saturated = Ranked(np.array([[2, 0, 1]], np.int32), np.zeros((1, 3), np.float32))
    none = Ranked(np.full((1, 3), -1, np.int32), np.full((1, 3), -np.inf, np.float32))
    assert Candidates(held_out, saturated, none).grid((0.0,), (0.0,))[0, 0, 0] == 100


def test_counts_leave_held_out_rows_out():
    labels = labels_of(np.array([[1, 0], [1, 1], [1, 0], [0, 1]]))
    assert selection.remaining_counts(labels, np.array([1])).tolist() == pytest.approx([2 * 4 / 3, 4 / 3])
    assert selection.remaining_counts(labels, np.array([1, 3])).tolist() == pytest.approx([4, 1])


def test_soft_minimum_by_hand():
    assert selection.soft_minimum(np.array([[0.5, 0.5, 0.5, 0.5]])) == pytest.approx([0.5])
    by_hand = -np.log((np.exp(10) + 3 * np.exp(-100)) / 4) / 10
    assert selection.soft_minimum(np.array([-1.0, 10, 10, 10])) == pytest.approx(by_hand)
    assert np.isfinite(selection.soft_minimum(np.array([-1e4, 1e4, 0, 0])))


def test_what_ranks_better_gets_the_weight():
    rng = np.random.default_rng(0)
    _, labels, rows = problem(rng, n_rows=600, held_out=300)
    held_out = HeldOut(labels, rows, None)
    noise = ranked(rng, len(rows), 40, 8)
    truth = labels.take(rows)
    ids = np.full((len(rows), 8), -1, np.int32)
    for i in range(len(rows)):
        true = truth.indices[truth.indptr[i] : truth.indptr[i + 1]][:8]
        ids[i, : len(true)] = true
    right = Ranked(ids, np.where(ids >= 0, -0.1, -np.inf).astype(np.float32))

    def chosen(*trials):
        search = Trials(held_out, selection.WEIGHTS, selection.ADJUSTMENTS)
        better = [search.add(C, Candidates(held_out, *models)) and search.accept() for C, models in trials]
        return search.evidence(200), better

    good_trees, _ = chosen((1.0, (noise, right)))
    good_one_vs_rest, _ = chosen((1.0, (right, noise)))
    assert good_trees.setting.blend_weight > 0.5 > good_one_vs_rest.setting.blend_weight
    another, better = chosen((1.0, (noise, noise)), (0.3, (right, noise)), (0.1, (noise, noise)))
    assert another.setting.C == 0.3 and better == [True, True, False]
    lines = good_trees.table.splitlines()
    assert lines[0] == "300 held-out rows, models of 200 others:"
    assert [line.split()[0] for line in lines[1:]] == ["P@1", "one-vs-rest", "trees", "equal", "chosen"]


def test_a_blend_must_be_worth_its_price():
    rng = np.random.default_rng(1)
    _, labels, rows = problem(rng, n_rows=600, held_out=300)
    held_out = HeldOut(labels, rows, None)
    candidates = Candidates(held_out, ranked(rng, len(rows), 40, 8), ranked(rng, len(rows), 40, 8))

    def weight(price):
        search = Trials(held_out, selection.WEIGHTS, (0.0,), price)
        assert search.add(1.0, candidates) and search.accept()
        return search.evidence(200).setting.blend_weight

    assert 0 < weight(0.0) < 1 and weight(100.0) in (0, 1)
    price = lambda *size: selection.price_of_blend(*size, np.ones(4)).max()
    assert price(1000, 1000) < 1e-4 < price(10**6, 10**9) <= 0.1


class Grid:
    """Candidates whose measures are given: the same gain in all of them for each adjustment."""

    def __init__(self, gains):
        self.gains = gains

    def grid(self, weights, adjustments):
        values = [self.gains.get(adjustment, 0.0) for adjustment in adjustments]
        return np.tile(np.array(values)[None, :, None], (len(weights), 1, 4)) + 50.0


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [
        ({0.025: 0.04, 0.05: 0.045}, 0.0),  # within chance
        ({0.025: 0.3, 0.05: 0.33}, 0.025),
        ({0.025: 0.2, 0.05: 0.33}, 0.05),
        ({0.05: -0.1}, 0.0),
    ],
)
def test_a_larger_adjustment_must_be_clearly_better(gains, chosen):
    _, labels, rows = problem(np.random.default_rng(0))
    search = Trials(HeldOut(labels, rows, None), (0.0,), (0.0, 0.025, 0.05), clear_gain=0.05)
    assert search.add(1.0, Grid(gains)) and search.accept()
    assert search.evidence(200).setting == Setting(1.0, 0.0, chosen)


class ByWeight:
    """Candidates whose measures are given: the same gain in all of them for each weight."""

    def __init__(self, gains):
        self.gains = gains

    def grid(self, weights, adjustments):
        values = [self.gains.get(weight, 0.0) for weight in weights]
        return np.tile(np.array(values)[:, None, None], (1, len(adjustments), 4)) + 10.0


def test_the_price_of_a_blend_is_one_of_all_rows():
    """Where measures double, half the gain is enough."""
    _, labels, rows = problem(np.random.default_rng(0))

    def weight(growth, gain):
        price = selection.price_of_blend(10**6, 10**9, growth)
        search = Trials(HeldOut(labels, rows, None), (0.0, 0.3), (0.0,), price)
        assert search.add(1.0, ByWeight({0.3: gain})) and search.accept()
        return search.evidence(200).setting.blend_weight

    assert weight(np.full(4, 1.0), 0.08) == 0.0 and weight(np.full(4, 1.0), 0.12) == 0.3
    assert weight(np.full(4, 2.0), 0.04) == 0.0 and weight(np.full(4, 2.0), 0.08) == 0.3
    assert weight(np.array([9.0, 9.0, 0.1, 9.0]), 0.08) == 0.0  # of the measures, the worst counts


def test_growth_by_hand():
    half, part = np.array([10.0, 20.0, 60.0, 30.0, 0.0]), np.array([15.0, 30.0, 80.0, 29.0, 0.0])
    assert selection.extrapolated(half, part, 3.0).tolist() == [30, 60, 140, 26, 0]
    assert selection.growth(half, part, 3.0).tolist() == [2, 2, 1.25, 1, 1]  # 100 % are all there is


def test_the_table_shows_what_was_measured():
    """Not what follows for more rows."""
    _, labels, rows = problem(np.random.default_rng(0))
    search = Trials(HeldOut(labels, rows, None), (0.0,), (0.0,))
    assert search.add(1.0, ByWeight({})) and search.accept()
    assert search.add(0.3, ByWeight({0.0: 0.5})) and search.accept(np.full(4, 7.0))
    assert search.evidence(200).table.splitlines()[-1].split() == ["chosen", *["10.50"] * 4]


def test_a_trend_can_speak_against_a_C():
    rng = np.random.default_rng(3)
    _, labels, rows = problem(rng, n_rows=600, held_out=300)
    held_out = HeldOut(labels, rows, None)
    truth = labels.take(rows)

    def right_in(share):
        """The first label is right in this share of the rows."""
        ids = rng.permuted(np.tile(np.arange(40, dtype=np.int32), (len(rows), 1)), axis=1)[:, :6]
        for i in range(int(share * len(rows))):
            true = truth.indices[truth.indptr[i] : truth.indptr[i + 1]]
            if len(true):
                ids[i] = np.concatenate([true[:1], ids[i][ids[i] != true[0]]])[:6]
        return Ranked(ids, np.tile(-0.1 * np.arange(6, dtype=np.float32), (len(rows), 1)))

    usual, trees, better = right_in(0.4), right_in(0.1), right_in(0.6)

    def accepted(trend):
        search = Trials(held_out, selection.WEIGHTS, selection.ADJUSTMENTS)
        assert search.add(1.0, Candidates(held_out, usual, trees)) and search.accept()
        assert search.add(0.3, Candidates(held_out, better, trees))
        accepted = search.accept(np.full(4, trend))
        chosen = search.evidence(200).setting
        assert (0.3 if accepted else 1.0) == chosen.C
        return accepted

    lead = selection.alone(held_out, better) - selection.alone(held_out, usual)
    assert lead.min() > 1 and accepted(0.0) and accepted(5.0) and not accepted(-lead.max())
