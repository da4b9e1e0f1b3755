"""Choosing on held-out rows: splits, pools of several models, what is better, evidence, the default model."""

import numpy as np
import pytest

from bonsai_xmc import metrics
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._selection import default
from bonsai_xmc._selection.default import MEASURES, Trials, remaining_counts
from bonsai_xmc._selection.held_out import Evidence, HeldOut, Pool, best_columns, climb, is_better, measured
from bonsai_xmc._selection.strategy import ADJUSTMENTS, WEIGHTS, SearchSpace, Setting
from bonsai_xmc._training import splits
from bonsai_xmc._training.train import make_problem
from bonsai_xmc._training.work import Work
from bonsai_xmc.metrics._ranking import Truth
from helpers import random_csr


def test_splits_are_disjoint_and_bounded():
    for n_rows, training, n_held_out in (
        (1000, 250, 750),
        (30_000, 5000, 10_000),
        (80_000, 10_000, 16_000),
        (900_000, 100_000, 20_000),
    ):
        assert splits.part_sizes(n_rows) == (training, n_held_out)
        split = splits.split(n_rows, training, n_held_out, 7)
        half = splits.split(n_rows, training // 2, 0, 7).training
        assert (len(split.training), len(split.held_out)) == (training, n_held_out)
        assert not np.intersect1d(split.training, split.held_out).size
        assert len(half) == training // 2 and np.isin(half, split.training).all()
        for rows in (*split, half):
            assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < n_rows
            assert abs(rows.mean() / n_rows - 0.5) < 5 / np.sqrt(12 * len(rows))


def test_weights_of_a_fusion_are_chosen_with_a_quarter_of_the_rows():
    sizes = {7: (4, 3), 200: (100, 100), 12_000: (5000, 6000), 41_902: (10_475, 10_000)}
    for n_rows, wanted in sizes.items():
        split = splits.for_weights(n_rows, 7)
        assert tuple(map(len, split)) == wanted
        assert not np.intersect1d(split.training, split.held_out).size
    assert tuple(map(len, splits.for_weights(10**6, 7))) == (
        splits.MAX_TRAINING_ROWS,
        splits.MAX_HELD_OUT_ROWS,
    )


def test_a_split_follows_from_the_seed():
    first, again, other = (splits.split(5000, 1250, 3750, seed) for seed in (3, 3, 2**64 - 1))
    assert np.array_equal(first.training, again.training) and np.array_equal(first.held_out, again.held_out)
    assert len(np.intersect1d(first.training, other.training)) < 0.5 * len(first.training)


def ranked(rng, truth, n_labels, width):
    """Return different labels for each row, some of them missing, with descending log scores."""
    n_rows = truth.n_rows
    ids = np.array([rng.permutation(n_labels)[:width] for _ in range(n_rows)], np.int32)
    scores = -np.sort(rng.exponential(1.0, (n_rows, width)), axis=1).astype(np.float32)
    missing = np.arange(width) >= rng.integers(0, width + 1, n_rows)[:, None]
    return truth.rank(np.where(missing, -1, ids), np.where(missing, -np.inf, scores).astype(np.float32))


def problem(rng, n_rows=300, n_labels=40, held_out=60):
    """Return Y, some of its rows, and their true labels."""
    Y = random_csr((n_rows, n_labels), density=0.1, rng=rng)
    Y.data[:] = 1
    rows = np.sort(rng.permutation(n_rows)[:held_out])
    return Y, rows, truth_of(Y, rows)


def truth_of(Y, rows, weights=None):
    some = labels_of(Y).take(rows)
    return Truth(some.indptr, some.indices, weights, metrics.inverse_propensity(Y))


def trials(weights=WEIGHTS, adjustments=ADJUSTMENTS, counts=None, **options):
    return Trials(
        SearchSpace((1.0,), weights, adjustments), np.ones(40) if counts is None else counts, **options
    )


def brute_force(members, weights, counts, adjustment):
    """Return the weighted sums of scores by label, for each row."""
    result = []
    for i in range(len(members[0].ids)):
        scores = {}
        for found, factor in zip(members, weights, strict=True):
            for label, score in zip(found.ids[i].tolist(), found.scores[i].tolist(), strict=True):
                if label >= 0:
                    scores[label] = scores.get(label, 0.0) + factor * np.exp(score)
        result.append({label: s * counts[label] ** -adjustment for label, s in scores.items()})
    return result


@pytest.mark.parametrize("seed", range(3))
def test_measures_are_those_of_the_blended_ranking(seed):
    rng = np.random.default_rng(seed)
    Y, rows, truth = problem(rng)
    counts = remaining_counts(labels_of(Y), rows)
    members = [ranked(rng, truth, 40, 12) for _ in range(2)]
    weights, adjustments = (0.0, 0.3, 1.0), (0.0, 0.2)
    shares = [(1 - weight, weight) for weight in weights]
    grid = trials(counts=counts).grid(members, shares, adjustments)
    for w, weight in enumerate(weights):
        for a, adjustment in enumerate(adjustments):
            expected = brute_force(members, (1 - weight, weight), counts, adjustment)
            ids = np.full((len(rows), 5), -1, np.int32)
            for i, scores in enumerate(expected):
                # A model of weight 0 still names candidates, with scores of 0: they cannot be told apart.
                best = sorted((label for label in scores if scores[label] > 0), key=lambda at: -scores[at])
                ids[i, : len(best[:5])] = best[:5]
            found = metrics.evaluate(Y[rows], ids, Y_train=Y)
            if 0 < weight < 1:
                assert grid[w, a] == pytest.approx([found[m] for m in MEASURES])
            else:
                assert (grid[w, a] >= np.array([found[m] for m in MEASURES]) - 1e-9).all()


def test_a_pool_of_three_models_by_hand():
    truth = Truth(np.array([0, 2]), np.array([1, 3]))
    rank = lambda ids, scores: truth.rank(np.array([ids], np.int32), np.log(np.array([scores], np.float32)))
    pool = Pool([rank([0, 1], [0.9, 0.5]), rank([1, 2], [0.6, 0.4]), rank([3, -1], [0.8, 1e-9])])
    # 0: 0.9, 1: 0.5 + 0.6, 2: 0.4, 3: 0.8
    equal = pool.ranking((1, 1, 1), 5)
    assert equal.ids.tolist() == [[1, 0, 3, 2, -1]]
    assert equal.is_true.tolist() == [[True, False, True, False, False]]
    # 0: 0.9, 1: 0.5 + 1.2, 2: 0.8, 3: 2.4
    assert pool.ranking((1, 2, 3), 3).ids.tolist() == [[3, 1, 0]]
    halved = pool.adjusted(np.array([1.0, 0.1, 1.0, 1.0], np.float32))
    assert pool.ranking((1, 1, 1), 4, halved).ids.tolist() == [[0, 3, 2, 1]]


@pytest.mark.parametrize("seed", range(3))
def test_pools_of_several_models_are_sums(seed):
    rng = np.random.default_rng(seed)
    _, _, truth = problem(rng)
    members = [ranked(rng, truth, 40, width) for width in (3, 12, 7)]
    found = Pool(members).ranking((0.2, 0.5, 0.3), 4)
    for i, scores in enumerate(brute_force(members, (0.2, 0.5, 0.3), np.ones(40), 0.0)):
        best = sorted(scores, key=lambda label: -scores[label])[:4]
        assert found.ids[i][: len(best)].tolist() == best


def test_weights_of_rows_count():
    rng = np.random.default_rng(5)
    Y, rows, truth = problem(rng)
    members = [ranked(rng, truth, 40, 12) for _ in range(2)]
    weights = np.where(np.arange(len(rows)) < 20, 2.0, 0.0)
    some = slice(0, 20)

    def of(truth, part):
        return Pool([truth.rank(member.ids[part], member.scores[part]) for member in members])

    weighted, alone = of(truth_of(Y, rows, weights), slice(None)), of(truth_of(Y, rows[some]), some)
    figures = [measured(pool.ranking((0.5, 0.5), 5), MEASURES) for pool in (weighted, alone)]
    assert figures[0] == pytest.approx(figures[1])


def test_ties_go_to_the_better_rank():
    scores = np.array([[1, 1, 1, 1, 1, 1, 0], [0, 1, 0, 1, 0, 0, 2]], np.float32)
    assert best_columns(scores, 3).tolist() == [[0, 1, 2], [6, 1, 3]]
    assert best_columns(scores, 5).tolist() == [[0, 1, 2, 3, 4], [6, 1, 3, 0, 2]]
    assert best_columns(scores, 9).tolist() == [[0, 1, 2, 3, 4, 5, 6], [6, 1, 3, 0, 2, 4, 5]]


def test_anything_with_top_k_can_be_scored():
    class Constant:
        """A model that ranks the labels 2, 0, 1 for every row."""

        n_labels = 3

        def top_k(self, rows, k, *, threads, exact, progress):
            assert exact
            n_rows = rows.n_rows
            ids = np.tile(np.array([[2, 0, 1]], np.int32), (n_rows, 1))
            return ids[:, :k], np.zeros((n_rows, k), np.float32)

    X, Y = (
        random_csr((8, 5), density=0.5, rng=np.random.default_rng(0)),
        np.eye(3, dtype=int)[[0, 1, 2, 2] * 2],
    )
    whole = make_problem(training_rows(X, "X")[0], labels_of(Y), np.arange(1, 9, dtype=np.float32))
    found = HeldOut.of(whole, np.array([0, 3, 5])).rank(Constant(), 10, Work(1), exact=True)
    assert found.ids.shape == (3, 3) and found.is_true.tolist() == [
        [False, True, False],
        [True, False, False],
        [False, False, True],
    ]
    # of the weights 1, 4 and 6, that of row 3 counts
    assert measured(found, ["P@1"]) == pytest.approx([100 * 4 / 11])
    assert measured(found, ["R@2"]) == pytest.approx([100 * 5 / 11])


def test_is_better_needs_the_given_margin_and_standard_errors():
    assert is_better(1.0, 0.9) and not is_better(1.0, 1.0) and not is_better(1.0, 0.9, by=0.2)
    rows = np.array([1.0, 0.0, 1.0, 0.0])
    # differences 1, 0, 1, 0: mean 1/2, standard deviation 1/2, standard error 1/4
    assert is_better(rows, np.zeros(4), errors=1.9) and not is_better(rows, np.zeros(4), errors=2.1)
    assert is_better(rows, np.zeros(4), by=0.2, errors=1) and not is_better(
        rows, np.zeros(4), by=0.3, errors=1
    )


def test_climb_takes_the_hand_computed_steps():
    value = {(0, 0): 1.0, (1, 0): 2.0, (2, 0): 3.0, (2, 1): 2.5, (2, 2): 3.05, (1, 2): 9.0}
    steps = [lambda best: [(x, best[1]) for x in (1, 2)], lambda best: [(best[0], y) for y in (1, 2)]]
    plain = lambda new, _, found: is_better(new, found)
    assert climb((0, 0), 1.0, steps, value.get, plain, 1) == [(0, 0), (2, 0), (2, 2)]
    assert climb((0, 0), 1.0, steps, value.get, plain, 9) == [(0, 0), (2, 0), (2, 2), (1, 2)]
    careful = lambda new, _, found: is_better(new, found, by=0.1)
    assert climb((0, 0), 1.0, steps, value.get, careful, 9) == [(0, 0), (2, 0)]
    assert climb((0, 0), 1.0, steps, value.get, plain, 9, least=5.0) == [(0, 0), (2, 0), (2, 2)]


def test_evidence_is_a_table():
    table = str(Evidence(("P@1", "nDCG@10"), {"a": [1.0, 22.255], "of both": [100.0, 0.0]}, 1234, 56))
    assert table.splitlines() == [
        "1,234 held-out rows, models of 56 others:",
        "            P@1 nDCG@10",
        "a          1.00   22.25",
        "of both  100.00    0.00",
    ]


def test_counts_leave_held_out_rows_out():
    labels = labels_of(np.array([[1, 0], [1, 1], [1, 0], [0, 1]]))
    assert remaining_counts(labels, np.array([1])).tolist() == pytest.approx([2 * 4 / 3, 4 / 3])
    assert remaining_counts(labels, np.array([1, 3])).tolist() == pytest.approx([4, 1])


def test_soft_minimum_by_hand():
    assert default.soft_minimum(np.array([[0.5, 0.5, 0.5, 0.5]])) == pytest.approx([0.5])
    by_hand = -np.log((np.exp(10) + 3 * np.exp(-100)) / 4) / 10
    assert default.soft_minimum(np.array([-1.0, 10, 10, 10])) == pytest.approx(by_hand)
    assert np.isfinite(default.soft_minimum(np.array([-1e4, 1e4, 0, 0])))


def test_the_better_ranking_gets_the_weight():
    rng = np.random.default_rng(0)
    _, rows, truth = problem(rng, n_rows=600, held_out=300)
    noise = ranked(rng, truth, 40, 8)
    ids = np.full((len(rows), 8), -1, np.int32)
    for i in range(len(rows)):
        true = truth.indices[truth.indptr[i] : truth.indptr[i + 1]][:8]
        ids[i, : len(true)] = true
    right = truth.rank(ids, np.where(ids >= 0, -0.1, -np.inf).astype(np.float32))

    def chosen(*tried):
        search = trials()
        better = [search.add(C, models) and search.accept() for C, models in tried]
        return search.choice(300, 200), better

    good_trees, _ = chosen((1.0, (noise, right)))
    good_one_vs_rest, _ = chosen((1.0, (right, noise)))
    assert good_trees.setting.blend_weight > 0.5 > good_one_vs_rest.setting.blend_weight
    another, better = chosen((1.0, (noise, noise)), (0.3, (right, noise)), (0.1, (noise, noise)))
    assert another.setting.C == 0.3 and better == [True, True, False]
    lines = good_trees.evidence.splitlines()
    assert lines[0] == "300 held-out rows, models of 200 others:"
    assert [line.split()[0] for line in lines[1:]] == ["P@1", "one-vs-rest", "trees", "equal", "chosen"]


def test_a_blend_must_be_worth_its_price():
    rng = np.random.default_rng(1)
    _, _, truth = problem(rng, n_rows=600, held_out=300)
    models = ranked(rng, truth, 40, 8), ranked(rng, truth, 40, 8)

    def weight(price):
        search = trials(adjustments=(0.0,), price=price)
        assert search.add(1.0, models) and search.accept()
        return search.choice(300, 200).setting.blend_weight

    assert 0 < weight(0.0) < 1 and weight(100.0) in (0, 1)
    price = lambda *size: default.price_of_blend(*size, np.ones(4)).max()
    assert price(1000, 1000) < 1e-4 < price(10**6, 10**9) <= 0.1


def test_trees_over_rows_must_be_worth_their_price():
    """They are taken if all measures gain enough, with the best adjustment, or if a weight is given."""
    rng = np.random.default_rng(2)
    _, rows, truth = problem(rng, n_rows=600, held_out=300)
    noise = ranked(rng, truth, 40, 8)
    ids = np.full((len(rows), 8), -1, np.int32)
    for i in range(len(rows)):
        true = truth.indices[truth.indptr[i] : truth.indptr[i + 1]][:8]
        ids[i, : len(true)] = true
    right = truth.rank(ids, np.where(ids >= 0, -0.1, -np.inf).astype(np.float32))

    def chosen(models, row_trees, weights=(0.05, 0.5)):
        search = Trials(SearchSpace((1.0,), (0.0, 0.5), (0.0, 0.2), weights), np.ones(40))
        assert search.add(1.0, models) and search.accept() and search.has_one_vs_rest
        search.add_row_trees(row_trees)
        return search.choice(300, 200)

    found = chosen((noise, noise), right)
    assert found.setting.row_tree_weight > 0
    assert [line.split()[0] for line in found.evidence.splitlines()[-2:]] == ["20", "chosen"]
    assert chosen((right, right), noise).setting.row_tree_weight == 0.0
    assert chosen((right, right), right).setting.row_tree_weight == 0.0  # nothing is gained
    assert chosen((right, right), noise, weights=(0.3,)).setting.row_tree_weight == 0.3


class Given(Trials):
    """Trials whose measures are given: `models` is a function of weight and adjustment, for all measures."""

    def grid(self, models, shares, adjustments):
        values = [[models(weight, adjustment) for adjustment in adjustments] for _, weight in shares]
        return np.tile(np.array(values)[:, :, None], (1, 1, 4)) + 10.0


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
    search = Given(SearchSpace((1.0,), (0.0,), (0.0, 0.025, 0.05)), np.ones(1), clear_gain=0.05)
    assert search.add(1.0, lambda _, adjustment: gains.get(adjustment, 0.0)) and search.accept()
    assert search.choice(300, 200).setting == Setting(1.0, 0.0, chosen)


def test_the_price_of_a_blend_is_one_of_all_rows():
    """Where measures double, half the gain is enough."""

    def weight(growth, gain):
        price = default.price_of_blend(10**6, 10**9, growth)
        search = Given(SearchSpace((1.0,), (0.0, 0.3), (0.0,)), np.ones(1), price)
        assert search.add(1.0, lambda weight, _: gain * (weight == 0.3)) and search.accept()
        return search.choice(300, 200).setting.blend_weight

    assert weight(np.full(4, 1.0), 0.08) == 0.0 and weight(np.full(4, 1.0), 0.12) == 0.3
    assert weight(np.full(4, 2.0), 0.04) == 0.0 and weight(np.full(4, 2.0), 0.08) == 0.3
    assert weight(np.array([9.0, 9.0, 0.1, 9.0]), 0.08) == 0.0  # of the measures, the worst counts


def test_growth_equals_hand_computed_values():
    half, part = np.array([10.0, 20.0, 60.0, 30.0, 0.0]), np.array([15.0, 30.0, 80.0, 29.0, 0.0])
    assert default.extrapolated(half, part, 3.0).tolist() == [30, 60, 140, 26, 0]
    assert default.growth(half, part, 3.0).tolist() == [2, 2, 1.25, 1, 1]  # 100 % is the maximum


def test_the_table_shows_what_was_measured():
    """It does not show the figures that are extrapolated to more rows."""
    search = Given(SearchSpace((1.0,), (0.0,), (0.0,)), np.ones(1))
    assert search.add(1.0, lambda *_: 0.0) and search.accept()
    assert search.add(0.3, lambda *_: 0.5) and search.accept(np.full(4, 7.0))
    assert search.choice(300, 200).evidence.splitlines()[-1].split() == ["chosen", *["10.50"] * 4]


def test_a_trend_can_rule_out_a_C():
    rng = np.random.default_rng(3)
    _, rows, truth = problem(rng, n_rows=600, held_out=300)

    def right_in(share):
        """Return rankings whose first label is right in this share of the rows."""
        ids = rng.permuted(np.tile(np.arange(40, dtype=np.int32), (len(rows), 1)), axis=1)[:, :6]
        for i in range(int(share * len(rows))):
            true = truth.indices[truth.indptr[i] : truth.indptr[i + 1]]
            if len(true):
                ids[i] = np.concatenate([true[:1], ids[i][ids[i] != true[0]]])[:6]
        return truth.rank(ids, np.tile(-0.1 * np.arange(6, dtype=np.float32), (len(rows), 1)))

    usual, trees, better = right_in(0.4), right_in(0.1), right_in(0.6)

    def accepted(trend):
        search = trials()
        assert search.add(1.0, (usual, trees)) and search.accept()
        assert search.add(0.3, (better, trees))
        accepted = search.accept(np.full(4, trend))
        chosen = search.choice(300, 200).setting
        assert (0.3 if accepted else 1.0) == chosen.C
        return accepted

    lead = measured(better, MEASURES) - measured(usual, MEASURES)
    assert lead.min() > 1 and accepted(0.0) and accepted(5.0) and not accepted(-lead.max())
