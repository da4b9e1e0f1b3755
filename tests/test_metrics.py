"""Metrics against numbers worked out by hand, and against the definitions in plain Python."""

import gzip
import math
import os
import pickle
import stat
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler

from bonsai_xmc import Bonsai, metrics

# Four rows, five labels; row 3 has no label. The hits, by rank:
#   row 0: true {0, 1, 2}, predicted 1 4 0   hit  miss hit
#   row 1: true {3},       predicted 2 3 4   miss hit  miss
#   row 2: true {0, 4},    predicted 0 1 -   hit  miss –
#   row 3: true {},        predicted 4 - -   miss –    –
Y_TRUE = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
IDS = np.array([[1, 4, 0], [2, 3, 4], [0, 1, -1], [4, -1, -1]], dtype=np.int32)
Q = [1.0, 2.0, 3.0, 4.0, 5.0]
LOG3 = math.log2(3)  # the discount of rank 2 is 1 / LOG3, that of rank 3 is 1/2


class TestByHand:
    def test_precision(self):
        # top 1: rows 0 and 2 hit, 2 of 4·1; top 3: 2 + 1 + 1 hits of 4·3
        assert metrics.precision_at_k(Y_TRUE, IDS, 1) == 2 / 4
        assert metrics.precision_at_k(Y_TRUE, IDS, 3) == pytest.approx(4 / 12)

    def test_ndcg(self):
        # row 0: (1 + 1/2) of the ideal 1 + 1/LOG3 + 1/2 (three labels); row 1: 1/LOG3 of 1 (one label);
        # row 2: 1 of 1 + 1/LOG3 (two labels); row 3: 0
        expected = (1.5 / (1.5 + 1 / LOG3) + 1 / LOG3 + 1 / (1 + 1 / LOG3) + 0) / 4
        assert metrics.ndcg_at_k(Y_TRUE, IDS, 3) == pytest.approx(expected)
        assert metrics.ndcg_at_k(Y_TRUE, IDS, 1) == metrics.precision_at_k(Y_TRUE, IDS, 1)

    def test_recall(self):
        # k = 3: 2/3, 1/1, 1/2 and 0 for the row without labels
        assert metrics.recall_at_k(Y_TRUE, IDS, 3) == pytest.approx((2 / 3 + 1 + 1 / 2) / 4)
        assert metrics.recall_at_k(Y_TRUE, IDS, 1) == pytest.approx((1 / 3 + 1 / 2) / 4)

    def test_psp(self):
        # k = 1: hits 1 (row 0), 0 (row 2): q 2 + 1; best: labels 2, 3, 4: q 3 + 4 + 5
        assert metrics.psp_at_k(Y_TRUE, IDS, 1, Q) == pytest.approx(3 / 12)
        # k = 3: hits 1, 0 | 3 | 0: q 2 + 1 + 4 + 1; best: all true labels: 1+2+3 | 4 | 1+5
        assert metrics.psp_at_k(Y_TRUE, IDS, 3, Q) == pytest.approx(8 / 16)

    def test_psp_never_exceeds_one_by_rounding(self):
        # all labels are found, in another order than the best: the two sums may round differently
        rng = np.random.default_rng(0)
        for _ in range(100):
            assert metrics.psp_at_k(np.ones((1, 7)), rng.permutation(7)[None], 7, rng.random(7)) <= 1

    def test_psndcg(self):
        ideal_2, ideal_3 = 1 + 1 / LOG3, 1.5 + 1 / LOG3
        gain = (2 + 1 / 2) / ideal_3 + 4 / LOG3 + 1 / ideal_2
        # best rankings: 2 1 0 (q 3 2 1) | 3 (q 4) | 4 0 (q 5 1)
        best = (3 + 2 / LOG3 + 1 / 2) / ideal_3 + 4 + (5 + 1 / LOG3) / ideal_2
        assert metrics.psndcg_at_k(Y_TRUE, IDS, 3, Q) == pytest.approx(gain / best)

    def test_coverage(self):
        # k = 1: predicted {1, 2, 0, 4}, best true labels {2, 3, 4}; 4/3 shows that wrong labels count
        assert metrics.coverage_at_k(Y_TRUE, IDS, 1, Q) == pytest.approx(4 / 3)
        # k = 2: predicted {0, 1, 2, 3, 4}; best true labels {2, 1} | {3} | {4, 0}
        assert metrics.coverage_at_k(Y_TRUE, IDS, 2, Q) == 1.0
        # equal q: the smaller id is preferred, so the best labels for k = 1 are 0 | 3 | 0
        assert metrics.coverage_at_k(Y_TRUE, IDS, 1, np.ones(5)) == 4 / 2

    def test_correct_coverage(self):
        # true labels 0 1 2 3 4; k = 1 finds 1 and 0, k = 3 also 3
        assert metrics.correct_coverage_at_k(Y_TRUE, IDS, 1) == 2 / 5
        assert metrics.correct_coverage_at_k(Y_TRUE, IDS, 3) == 3 / 5

    def test_inverse_propensity(self):
        # N = 10 rows, A = 1, B = 1: C = (ln 10 − 1)·2; counts 0, 1, 4 give q = 1 + C / (1, 2, 5)
        Y_train = np.zeros((10, 3), dtype=int)
        Y_train[0, 1] = 1
        Y_train[:4, 2] = 1
        c = 2 * (math.log(10) - 1)
        assert metrics.inverse_propensity(Y_train, A=1, B=1) == pytest.approx([1 + c, 1 + c / 2, 1 + c / 5])

    @pytest.mark.parametrize(("n_rows", "above_one"), [(1, False), (2, False), (3, True)])
    def test_inverse_propensity_of_tiny_data_is_at_least_one(self, n_rows, above_one):
        q = metrics.inverse_propensity(np.zeros((n_rows, 1), dtype=int))
        assert (q > 1).all() == above_one
        assert (q >= 1).all()


class TestFrequencyGroups:
    # label counts 20 10 6 6 4 0, 46 in all; half is 23: head = {0, 1} (30), since 20 alone is less
    Y_TRAIN = np.arange(25)[:, None] < np.array([20, 10, 6, 6, 4, 0])
    Y = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 1], [1, 0, 0, 0, 1, 0]])
    IDS = np.array([[0, 2], [5, 1], [2, 4]])

    def test_by_hand(self):
        result = metrics.evaluate(self.Y, self.IDS, self.Y_TRAIN, k=2, by_frequency=True)
        # hits: 0 (head), 2 (torso) | 5 (tail) | 4 (tail); of 3·2 places
        assert result["P@2 head"] == pytest.approx(100 / 6)
        assert result["P@2 torso"] == pytest.approx(100 / 6)
        assert result["P@2 tail"] == pytest.approx(200 / 6)
        # head: rows 0 (1 of 2) and 2 (0 of 1); torso: rows 0 (1 of 1), 1 (0 of 1); tail: rows 1, 2 (1 of 1)
        assert result["R@2 head"] == pytest.approx(25)
        assert result["R@2 torso"] == pytest.approx(50)
        assert result["R@2 tail"] == pytest.approx(100)

    def test_half_reached_exactly_ends_the_head_and_ties_go_to_smaller_ids(self):
        Y_train = np.ones((5, 4), dtype=int)  # 20 occurrences, labels 0 and 1 make up half
        Y = np.eye(4, dtype=int)
        result = metrics.evaluate(Y, np.arange(4)[:, None], Y_train, k=1, by_frequency=True)
        assert (result["P@1 head"], result["P@1 torso"], result["P@1 tail"]) == (50, 50, 0)
        assert "R@1 tail" not in result, "recall of a group that no row has is undefined"

    def test_tail_wins_over_head(self):
        result = metrics.evaluate(np.array([[1]]), np.array([[0]]), np.array([[1]]), k=1, by_frequency=True)
        assert (result["P@1 head"], result["P@1 tail"]) == (0, 100)

    def test_needs_training_labels(self):
        with pytest.raises(ValueError, match="by_frequency=True needs Y_train"):
            metrics.evaluate(self.Y, self.IDS, k=1, by_frequency=True, inv_propensity=np.ones(6))


# --- The definitions once more, in plain Python -------------------------------------------------------


def dcg(gains):
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def quotient(part, whole):
    return part / whole if whole else 0.0


def slow_metrics(ranking, truth, q, k):
    """`ranking`: list of lists of labels, `truth`: list of sets, `q`: inverse propensity of each label."""
    top = [row[:k] for row in ranking]
    best = [sorted(true, key=lambda l: (-q[l], l))[:k] for true in truth]
    pairs = list(zip(top, best, truth, strict=True))

    def normalised(gains, true):
        return dcg(gains) / dcg([1] * min(k, len(true))) if true else 0.0

    true_labels = set().union(*truth)
    return {
        "P": mean(sum(l in true for l in row) / k for row, _, true in pairs),
        "nDCG": mean(normalised([l in true for l in row], true) for row, _, true in pairs),
        "PSP": quotient(
            mean(sum(q[l] for l in row if l in true) / k for row, _, true in pairs),
            mean(sum(q[l] for l in ideal) / k for _, ideal, _ in pairs),
        ),
        "PSnDCG": quotient(
            mean(normalised([q[l] * (l in true) for l in row], true) for row, _, true in pairs),
            mean(normalised([q[l] for l in ideal], true) for _, ideal, true in pairs),
        ),
        "R": mean(len(true.intersection(row)) / len(true) if true else 0.0 for row, _, true in pairs),
        "C": quotient(len(set().union(*top)), len(set().union(*best))),
        "CC": quotient(len({l for row, _, true in pairs for l in row if l in true}), len(true_labels)),
    }


def slow_groups(counts):
    tail = {l for l, count in enumerate(counts) if count < 5}
    head, occurrences = set(), 0
    for l in sorted(range(len(counts)), key=lambda l: (-counts[l], l)):
        if occurrences >= sum(counts) / 2:
            break
        head.add(l)
        occurrences += counts[l]
    return {"head": head - tail, "torso": set(range(len(counts))) - head - tail, "tail": tail}


def slow_by_frequency(ranking, truth, counts, k):
    result = {}
    for name, group in slow_groups(counts).items():
        found = [len(true & group & set(row[:k])) for row, true in zip(ranking, truth, strict=True)]
        wanted = [len(true & group) for true in truth]
        result[f"P@{k} {name}"] = 100 * mean(hits / k for hits in found)
        if any(wanted):
            result[f"R@{k} {name}"] = 100 * mean(h / w for h, w in zip(found, wanted, strict=True) if w)
    return result


@st.composite
def problems(draw):
    """Rankings (lists of distinct labels), true label sets, training indicator matrix."""
    n_labels = draw(st.integers(1, 9))
    n_rows = draw(st.integers(1, 7))
    labels = range(n_labels)
    ranking = [draw(st.permutations(labels))[: draw(st.integers(0, n_labels))] for _ in range(n_rows)]
    truth = [draw(st.sets(st.sampled_from(labels))) for _ in range(n_rows)]
    counts = [draw(st.integers(0, 12)) for _ in labels]
    Y_train = np.array([[row < count for count in counts] for row in range(draw(st.integers(12, 40)))])
    return ranking, truth, Y_train


def ids_of(ranking, width):
    """Label ids, filled up with −1; an array even where all rows are empty."""
    return np.array([row + [-1] * (width - len(row)) for row in ranking], dtype=np.int32)


def indicator_of(truth, n_labels):
    return np.array([[label in true for label in range(n_labels)] for true in truth], dtype=np.int8)


class TestAgainstTheDefinitions:
    @settings(deadline=None)
    @given(problems(), st.floats(0, 2), st.floats(0.1, 5))
    def test_evaluate(self, problem, A, B):
        ranking, truth, Y_train = problem
        n_rows, n_labels = Y_train.shape
        counts = Y_train.sum(axis=0).tolist()
        c = (math.log(n_rows) - 1) * (B + 1) ** A
        q = [1 + c * (count + B) ** -A for count in counts]
        cutoffs = range(1, n_labels + 1)
        expected = {}
        for k in cutoffs:
            expected |= {f"{name}@{k}": 100 * v for name, v in slow_metrics(ranking, truth, q, k).items()}
            expected |= slow_by_frequency(ranking, truth, counts, k)
        Y = sp.csr_array(indicator_of(truth, n_labels))
        result = metrics.evaluate(Y, ids_of(ranking, n_labels), Y_train, cutoffs, A, B, by_frequency=True)
        assert result == pytest.approx(expected)
        assert all(type(value) is float for value in result.values())

    @settings(deadline=None)
    @given(problems())
    def test_single_functions_agree_with_evaluate(self, problem):
        ranking, truth, Y_train = problem
        ids, Y = ids_of(ranking, Y_train.shape[1]), indicator_of(truth, Y_train.shape[1])
        q = metrics.inverse_propensity(Y_train)
        plain = {"P": metrics.precision_at_k, "nDCG": metrics.ndcg_at_k, "R": metrics.recall_at_k}
        plain["CC"] = metrics.correct_coverage_at_k
        weighted = {"PSP": metrics.psp_at_k, "PSnDCG": metrics.psndcg_at_k, "C": metrics.coverage_at_k}
        for k in range(1, Y.shape[1] + 1):
            result = metrics.evaluate(Y, ids, Y_train, k)
            assert result == {
                f"{name}@{k}": 100
                * (plain[name](Y, ids, k) if name in plain else weighted[name](Y, ids, k, q))
                for name in ("P", "nDCG", "PSP", "PSnDCG", "R", "C", "CC")
            }

    @settings(deadline=None)
    @given(problems())
    def test_bounds_perfection_and_sum_of_groups(self, problem):
        ranking, truth, Y_train = problem
        k = Y_train.shape[1]
        Y, ids = indicator_of(truth, k), ids_of(ranking, k)
        result = metrics.evaluate(Y, ids, Y_train, range(1, k + 1), by_frequency=True)
        assert all(0 <= value <= 100 for name, value in result.items() if not name.startswith("C@"))
        for cutoff in range(1, k + 1):
            parts = [result[f"P@{cutoff} {group}"] for group in ("head", "torso", "tail")]
            assert sum(parts) == pytest.approx(result[f"P@{cutoff}"])
        if not any(truth):
            assert set(result.values()) <= {0.0}
            return
        q = metrics.inverse_propensity(Y_train)
        perfect = [sorted(true, key=lambda l: (-q[l], l)) for true in truth]
        best = metrics.evaluate(Y, ids_of(perfect, k), Y_train, k)
        assert best[f"PSP@{k}"] == best[f"PSnDCG@{k}"] == 100
        assert best[f"C@{k}"] == best[f"CC@{k}"] == 100
        with_labels = pytest.approx(100 * mean(map(bool, truth)))
        assert best[f"nDCG@{k}"] == with_labels
        assert best[f"R@{k}"] == with_labels

    @settings(deadline=None)
    @given(problems(), st.randoms(use_true_random=False))
    def test_sparse_scores_equal_ids(self, problem, random):
        """Scores from a few values, so that ties occur; entries in random order, explicit zeros included."""
        ranking, truth, Y_train = problem
        n_labels, width = Y_train.shape[1], max(map(len, ranking))
        assume(width > 0)
        entries = [(i, l, random.choice([-1.0, 0.0, 0.5])) for i, row in enumerate(ranking) for l in row]
        random.shuffle(entries)
        rows, labels, scores = zip(*entries, strict=True) if entries else ((), (), ())
        S = sp.coo_array((np.array(scores, float), (rows, labels)), shape=(len(ranking), n_labels))
        ordered = [
            [l for _, l, _ in sorted((e for e in entries if e[0] == i), key=lambda e: (-e[2], e[1]))]
            for i in range(len(ranking))
        ]
        Y = indicator_of(truth, n_labels)
        expected = metrics.evaluate(Y, ids_of(ordered, width), Y_train, range(1, width + 1))
        for form in (S, S.tocsr(), S.tocsc(), sp.csr_matrix(S)):
            assert metrics.evaluate(Y, form, Y_train, range(1, width + 1)) == expected


class TestEvaluate:
    def test_keys_in_order(self):
        names = list(metrics.evaluate(Y_TRUE, IDS, np.ones((9, 5)), k=(1, 3)))
        order = ("P", "nDCG", "PSP", "PSnDCG", "R", "C", "CC")
        assert names == [f"{name}@{k}" for name in order for k in (1, 3)]

    def test_without_propensities(self):
        result = metrics.evaluate(Y_TRUE, IDS, k=[3])
        assert list(result) == ["P@3", "nDCG@3", "R@3", "CC@3"]
        assert result["P@3"] == pytest.approx(100 * 4 / 12)

    def test_given_propensities(self):
        assert metrics.evaluate(Y_TRUE, IDS, inv_propensity=Q, k=1)["PSP@1"] == pytest.approx(25)
        both = metrics.evaluate(Y_TRUE, IDS, np.ones((9, 5)), inv_propensity=Q, k=1)
        assert both["PSP@1"] == pytest.approx(25), "given propensities go before those of Y_train"

    def test_data_set_name_gives_the_parameters(self):
        Y_train = np.tril(np.ones((20, 5), dtype=int))
        by_name = metrics.evaluate(Y_TRUE, IDS, Y_train, k=3, dataset="Amazon-670K")
        assert by_name == metrics.evaluate(Y_TRUE, IDS, Y_train, k=3, A=0.6, B=2.6)
        assert by_name != metrics.evaluate(Y_TRUE, IDS, Y_train, k=3)

    @pytest.mark.parametrize(
        "predictions",
        [IDS, sp.csr_array(np.eye(4, 5) + np.eye(4, 5, 1) + np.eye(4, 5, -1)), [[0, 1, 2], [0], [], [4]]],
        ids=["ids", "scores", "lists"],
    )
    def test_k_beyond_the_predictions_is_an_error(self, predictions):
        Y = [[0], [1], [2], [3, 4]] if isinstance(predictions, list) else Y_TRUE
        message = "k is 5, but predictions has at most 3 labels in a row; predict at least 5 labels, or eval"
        with pytest.raises(ValueError, match=message):
            metrics.evaluate(Y, predictions)
        assert "P@3" in metrics.evaluate(Y, predictions, k=3)

    def test_rows_with_fewer_predictions_miss(self):
        padded = np.pad(IDS, ((0, 0), (0, 2)), constant_values=-1)
        assert metrics.evaluate(Y_TRUE, padded)["P@5"] == pytest.approx(100 * 4 / 20)

    def test_no_predictions_at_all(self):
        empty = np.full((4, 5), -1)
        assert set(metrics.evaluate(Y_TRUE, empty, inv_propensity=Q).values()) == {0.0}

    @pytest.mark.parametrize("dtype", [bool, np.int8, np.uint32, np.int64, np.float32])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_array])
    def test_forms_of_the_truth(self, dtype, form):
        assert metrics.evaluate(form(Y_TRUE.astype(dtype)), IDS, k=3) == metrics.evaluate(Y_TRUE, IDS, k=3)

    def test_explicit_zeros_and_unsorted_indices_of_the_truth(self):
        indptr, indices = np.array([0, 4, 5, 7, 8]), np.array([2, 0, 3, 1, 3, 4, 0, 1])
        Y = sp.csr_array((np.array([1, 1, 0, 1, 1, 1, 1, 0]), indices.copy(), indptr), shape=(4, 5))
        assert (Y.toarray() == Y_TRUE).all()
        assert metrics.evaluate(Y, IDS, k=3) == metrics.evaluate(Y_TRUE, IDS, k=3)
        assert (Y.indices == indices).all(), "the caller's matrix stays as it is"

    def test_memory_follows_entries_not_rows_times_labels(self):
        n = 200_000  # n × L would be 4·10^10 cells
        Y = sp.csr_array((np.ones(n, np.int8), np.arange(n), np.arange(n + 1)), shape=(n, n))
        result = metrics.evaluate(Y, np.arange(n)[:, None], Y, k=1)
        assert (result["P@1"], result["PSP@1"], result["CC@1"]) == (100, 100, 100)

    def test_labels_that_nothing_uses_cost_nothing(self):
        wide = 2_000_000_000  # an array with a byte for each label would be 2 GB
        spread = np.array([3, 1_000_000_000, 1_500_000_000, 1_700_000_000, wide - 1])
        Y = sp.csr_array(Y_TRUE).tocoo()
        Y = sp.csr_array((Y.data, (Y.row, spread[Y.col])), shape=(4, wide))
        ids = np.where(IDS >= 0, spread[IDS], -1)
        Y_train = np.arange(30)[:, None] < np.array([20, 10, 6, 4, 1])
        wide_train = sp.csr_array(Y_train).tocoo()
        wide_train = sp.csr_array(
            (wide_train.data, (wide_train.row, spread[wide_train.col])), shape=(30, wide)
        )
        expected = metrics.evaluate(Y_TRUE, IDS, Y_train, k=(1, 3), by_frequency=True)
        tracemalloc.start()
        found = metrics.evaluate(Y, ids, wide_train, k=(1, 3), by_frequency=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == expected
        assert peak < 1_000_000


NAMES = ["ash", "birch", "cedar", "date", "elm"]  # of the five labels


def named(rows):
    return [[NAMES[l] for l in row if l >= 0] for row in rows]


TRAIN = [[0, 1], [0, 3], [0, 1, 2], [4], [0], [1]]  # label ids of the training rows
OPTIONS = {"k": (1, 3), "by_frequency": True}
EXPECTED = metrics.evaluate(Y_TRUE, IDS, np.array([[l in row for l in range(5)] for row in TRAIN]), **OPTIONS)


class TestListsOfLabels:
    """The same numbers, whatever the labels come as."""

    Y = named([[0, 1, 2], [3], [4, 0], []])
    Y_TRAIN = named(TRAIN)

    def test_names_and_names(self):
        assert metrics.evaluate(self.Y, named(IDS), self.Y_TRAIN, **OPTIONS) == EXPECTED

    def test_names_and_labels_with_scores(self):
        pairs = [[(name, 0.5) for name in row] for row in named(IDS)]
        assert metrics.evaluate(self.Y, pairs, self.Y_TRAIN, **OPTIONS) == EXPECTED

    def test_names_and_an_array_of_names(self):
        for dtype in (object, str):
            found = metrics.evaluate(self.Y, np.array(NAMES, dtype=dtype)[IDS[:, :1]], self.Y_TRAIN, k=1)
            assert found == {name: EXPECTED[name] for name in found}

    def test_names_and_ids(self, tmp_path):
        metrics.write_predictions(tmp_path / "p", IDS, np.ones(IDS.shape), 5)
        rows, ranks = np.nonzero(IDS >= 0)
        scores = sp.csr_array((3.0 - ranks, (rows, IDS[rows, ranks])), shape=(4, 5))
        for predictions in (IDS, scores, tmp_path / "p"):
            found = metrics.evaluate(self.Y, predictions, self.Y_TRAIN, classes=NAMES, **OPTIONS)
            assert found == EXPECTED

    def test_a_matrix_and_names(self):
        found = metrics.evaluate(Y_TRUE, named(IDS), self.Y_TRAIN, classes=NAMES, **OPTIONS)
        assert found == EXPECTED

    def test_sets_and_tuples_are_lists_too(self):
        for form in (set, tuple):
            assert metrics.evaluate([form(row) for row in self.Y], named(IDS), k=1)["P@1"] == 50

    def test_integers_in_lists_are_keys(self):
        keys = {name: 10**15 + i for i, name in enumerate(NAMES)}
        Y, predictions, Y_train = (
            [[keys[name] for name in row] for row in rows] for rows in (self.Y, named(IDS), self.Y_TRAIN)
        )
        assert metrics.evaluate(Y, predictions, Y_train, **OPTIONS) == EXPECTED
        found = metrics.evaluate(Y, IDS, Y_train, classes=list(keys.values()), **OPTIONS)
        assert found == EXPECTED

    def test_a_data_frame_is_a_matrix(self):
        pandas = pytest.importorskip("pandas")
        frame, train = (
            pandas.DataFrame(Y, columns=NAMES)
            for Y in (Y_TRUE, np.array([[l in row for l in range(5)] for row in TRAIN]))
        )
        assert metrics.evaluate(frame, IDS, train, **OPTIONS) == EXPECTED
        assert metrics.evaluate(frame, named(IDS), train, **OPTIONS) == EXPECTED
        # columns with names are those of that name, wherever they stand
        other = NAMES[::-1]
        assert metrics.evaluate(frame, IDS, train[other], **OPTIONS) == EXPECTED
        assert metrics.evaluate(frame[other], IDS, train, classes=NAMES, **OPTIONS) == EXPECTED
        assert metrics.evaluate(frame[other], IDS, self.Y_TRAIN, classes=NAMES, **OPTIONS) == EXPECTED

    def test_lists_of_zeros_and_ones_are_predictions(self):
        assert metrics.evaluate([{0}, {1}], [[0, 1], [0, 1]], k=2)["P@2"] == 50

    def test_true_labels_that_nobody_can_predict_are_missed(self):
        # the row has two labels, one of them known and found
        assert metrics.recall_at_k([["ash", "oak"]], np.array([[0]]), 1, classes=NAMES) == 0.5
        seen = np.array([[1, 0, 0, 0, 0, 1]])  # as a matrix whose last column never occurs in training
        Y_train = self.Y_TRAIN, np.array([[l in row for l in [*NAMES, "oak"]] for row in self.Y_TRAIN])
        by_name = metrics.evaluate([["ash", "oak"]], np.array([[0, 1]]), Y_train[0], k=2, classes=NAMES)
        assert by_name == metrics.evaluate(seen, np.array([[0, 1]]), Y_train[1], k=2)

    def test_propensities_of_lists(self):
        matrix = np.array([[l in row for l in NAMES] for row in self.Y_TRAIN])
        q = metrics.inverse_propensity(matrix)
        np.testing.assert_array_equal(metrics.inverse_propensity(self.Y_TRAIN), q)
        backwards = metrics.inverse_propensity(self.Y_TRAIN, classes=NAMES[::-1])
        np.testing.assert_array_equal(backwards, q[::-1])
        found = metrics.psp_at_k(self.Y, IDS, 3, q, classes=NAMES)
        assert found == pytest.approx(EXPECTED["PSP@3"] / 100)
        with pytest.raises(ValueError, match="Y_train holds labels that are not in classes"):
            metrics.inverse_propensity(self.Y_TRAIN, classes=NAMES[1:])

    @pytest.mark.parametrize(
        ("Y", "predictions", "options", "message"),
        [
            (Y, IDS, {}, "Y_true holds lists of labels, but predictions hold label ids.*classes=model.cl"),
            (Y, sp.csr_array((4, 5)), {}, "Y_true holds lists of labels, but predictions hold label ids"),
            (Y_TRUE, named(IDS[:, :1]), {}, "predictions hold label names, but Y_true is a matrix without"),
            (Y, named(IDS), {"Y_train": np.ones((9, 5))}, "both matrices or both lists of labels"),
            (Y_TRUE, IDS, {"Y_train": Y_TRAIN}, "both matrices or both lists of labels"),
            (
                Y,
                IDS,
                {"classes": range(5)},
                "Y_true holds the label 'ash', but the other labels are integers",
            ),
            (
                [[1], [2], [3], [4]],
                IDS,
                {"classes": NAMES},
                "holds the label 1, but the other labels are names",
            ),
            (Y_TRUE, IDS, {"classes": NAMES[:4]}, "Y_true has 5 labels, but classes has 4"),
            (Y, IDS, {"classes": [*NAMES, "elm"]}, "classes holds a label twice"),
            (Y, IDS, {"classes": NAMES[:4]}, r"row 3: label id 4 is outside 0\.\.3"),
            (Y, [["ash", "ash"]] * 4, {}, "row 0: label id 0 occurs twice"),
            (Y, named(IDS[:3]), {}, "predictions has 3 rows, but Y_true has 4"),
        ],
    )
    def test_errors(self, Y, predictions, options, message):
        with pytest.raises(ValueError, match=message):
            metrics.evaluate(Y, predictions, k=1, **options)


class TestOrderOfArguments:
    """Predictions in the place of the true labels are noticed where the two can be told apart."""

    @pytest.mark.parametrize(
        ("truth", "predictions"),
        [
            (Y_TRUE, IDS),
            (sp.csr_array(Y_TRUE), IDS),
            (sp.lil_array(Y_TRUE), IDS),
            (Y_TRUE, sp.csr_array(Y_TRUE * 0.7)),
            (Y_TRUE, (IDS, IDS.astype(float))),
            (Y_TRUE, "predictions.txt"),
            ([["a"], ["b"]], [[("a", 0.5)], [("a", 0.25)]]),
        ],
    )
    def test_swapped(self, truth, predictions):
        for call in (metrics.evaluate, metrics.precision_at_k):
            with pytest.raises(ValueError, match="metrics take the true labels first"):
                call(predictions, truth, k=1)


class TestSampleWeight:
    WEIGHTS = np.array([2.0, 0.0, 1.0, 1.0])

    def test_a_weight_of_two_is_a_row_that_comes_twice(self):
        rows = [0, 0, 2, 3]
        Y_train = np.arange(30)[:, None] < np.array([20, 10, 6, 4, 0])
        options = {"k": (1, 3), "by_frequency": True}
        expected = metrics.evaluate(Y_TRUE[rows], IDS[rows], Y_train, **options)
        found = metrics.evaluate(Y_TRUE, IDS, Y_train, **options, sample_weight=self.WEIGHTS)
        assert found == pytest.approx(expected)
        assert found != metrics.evaluate(Y_TRUE, IDS, Y_train, **options)
        assert metrics.ndcg_at_k(Y_TRUE, IDS, 3, sample_weight=self.WEIGHTS) == found["nDCG@3"] / 100

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1, 2], r"one number for each of the 4 rows, got shape \(2,\)"),
            ([0, 0, 0, 0], "not all of them 0"),
            ([1, 1, -1, 1], "finite numbers of at least 0"),
            ([1, 1, np.nan, 1], "finite numbers of at least 0"),
        ],
    )
    def test_errors(self, weights, message):
        with pytest.raises(ValueError, match=message):
            metrics.precision_at_k(Y_TRUE, IDS, 1, sample_weight=weights)


class TestErrors:
    @pytest.mark.parametrize(
        ("predictions", "message"),
        [
            (IDS[:3], "predictions has 3 rows, but Y_true has 4"),
            (sp.csr_array((4, 6)), "predictions has 6 labels, but Y_true has 5"),
            (sp.csr_array((3, 5)), "predictions has 3 rows, but Y_true has 4"),
            (np.array([[0], [1], [5], [2]]), r"row 2: label id 5 is outside 0\.\.4"),
            (np.array([[0], [-2], [1], [2]]), r"row 1: label id -2 is outside 0\.\.4"),
            (np.array([[0, 1], [1, 0], [2, 2], [2, 0]]), "row 2: label id 2 occurs twice"),
            (np.array([[0, 1], [-1, 3], [2, 1], [2, 0]]), "row 1: label id 3 comes after -1"),
            (np.zeros((4, 5)), r"integer label ids of shape \(rows, k\), got float64 of shape \(4, 5\)"),
            (np.arange(4), r"integer label ids of shape \(rows, k\), got int64 of shape \(4,\)"),
            ((IDS, IDS), "predictions is a tuple; .* take the first"),
            ([[1], [2, 3], [1], [2]], "rows differ in length; fill them up with -1"),
            (sp.coo_array(np.array([1.0, 2.0])), r"two dimensions, got shape \(2,\)"),
            (sp.csr_array(np.full((4, 5), np.nan)), "real numbers without NaN"),
            (sp.csr_array(np.full((4, 5), 1j)), "real numbers without NaN"),
            (
                sp.coo_array((np.ones(3), ([3, 0, 3], [2, 2, 2])), shape=(4, 5)),
                "row 3: label id 2 occurs twice",
            ),
            (
                sp.csr_array((np.ones(3), [1, 0, 1], [0, 0, 3, 3, 3]), shape=(4, 5)),
                "row 1: label id 1 occurs twice",
            ),
        ],
    )
    def test_predictions(self, predictions, message):
        with pytest.raises(ValueError, match=message):
            metrics.evaluate(Y_TRUE, predictions)

    @pytest.mark.parametrize(
        ("Y", "message"),
        [
            (Y_TRUE * 2, r"Y_true\[0, 0\] is 2, but an indicator matrix holds only 0 and 1"),
            (-Y_TRUE, r"Y_true\[0, 0\] is -1"),
            (sp.csr_array(Y_TRUE * 0.5), r"Y_true\[0, 0\] is 0\.5"),
            (np.where(Y_TRUE, np.nan, 0), r"Y_true\[0, 0\] is nan"),
            (
                sp.coo_array(([1, 1], ([2, 2], [3, 3])), shape=(4, 5)),
                r"Y_true\[2, 3\] is 2 \(entries that are stored twice add up\)",
            ),
            (Y_TRUE[0], r"Y_true must be a matrix of rows × labels, but its shape is \(5,\)"),
            (Y_TRUE[:0], "Y_true must have at least one row"),
            (Y_TRUE.astype(str), "Y_true has dtype <U21, but an indicator matrix holds the numbers 0 and 1"),
            (
                sp.csr_array((np.ones(2), [0, 1], [0, 10**7, 1, 2, 2]), shape=(4, 5)),
                "Y_true is not a valid sparse matrix: indptr",
            ),
            ([[0, "one"], [1]], r"Y_true\[0\] holds 'one'; labels in lists are all names .* or all integers"),
            ([[0.5]], r"Y_true\[0\] holds 0\.5"),
            (["one"], r"Y_true\[0\] is 'one'; each row of Y_true is a list of labels, e\.g\. \['one'\]"),
            ("file", "Y_true holds predictions; metrics take the true labels first"),
            (7, "Y_true is of type int; pass an indicator matrix, or one list of labels for each row"),
        ],
    )
    def test_truth(self, Y, message):
        with pytest.raises(ValueError, match=message):
            metrics.evaluate(Y, IDS, k=3)

    def test_training_labels(self):
        with pytest.raises(ValueError, match="Y_train has 4 labels, but Y_true has 5"):
            metrics.evaluate(Y_TRUE, IDS, np.ones((9, 4)))
        with pytest.raises(ValueError, match=r"Y_train\[0, 0\] is 3"):
            metrics.evaluate(Y_TRUE, IDS, np.full((9, 5), 3))

    @pytest.mark.parametrize(
        ("k", "message"),
        [
            (0, "between 1 and the number of labels, 5; got 0"),
            ((1, 6), "between 1 and the number of labels, 5; got 6"),
            ((), "k is empty"),
            (1.5, "k must be an integer or several, got 1.5"),
            ("15", "k must be an integer or several, got '15'"),
        ],
    )
    def test_k(self, k, message):
        with pytest.raises(ValueError, match=message):
            metrics.evaluate(Y_TRUE, IDS, k=k)

    def test_k_of_a_single_function(self):
        with pytest.raises(ValueError, match="got 0"):
            metrics.precision_at_k(Y_TRUE, IDS, 0)

    @pytest.mark.parametrize(
        ("q", "message"),
        [
            (np.ones(4), r"one number for each of the 5 labels, got shape \(4,\)"),
            ([1, 1, 1, 1, 0], "positive and finite"),
            ([1, 1, 1, 1, np.inf], "positive and finite"),
            (None, "needs inv_propensity"),
        ],
    )
    def test_propensities(self, q, message):
        with pytest.raises(ValueError, match=message):
            metrics.psp_at_k(Y_TRUE, IDS, 1, q)

    @pytest.mark.parametrize(("A", "B"), [(-1, 1.5), (np.nan, 1.5), (0.5, 0), (0.5, np.inf)])
    def test_propensity_parameters(self, A, B):
        with pytest.raises(ValueError, match="A >= 0 and B > 0"):
            metrics.inverse_propensity(Y_TRUE, A, B)

    def test_data_set_names(self):
        with pytest.raises(ValueError, match=r"no propensity parameters for 'mnist'; known .*eurlex-4k"):
            metrics.evaluate(Y_TRUE, IDS, dataset="mnist")
        with pytest.raises(ValueError, match=r"A=0.7, B=1.5 contradict 'tate'"):
            metrics.evaluate(Y_TRUE, IDS, A=0.7, dataset="tate")


@pytest.fixture(params=["predictions.txt", "predictions.txt.gz"])
def path(request, tmp_path):
    return tmp_path / request.param


def write_bytes(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


class TestPredictionFiles:
    IDS = np.array([[3, 0], [2, -1], [-1, -1]], dtype=np.int32)
    SCORES = np.array([[0.1, 1e-7], [-0.123456789, 0], [0, 0]], dtype=np.float32)
    TEXT = b"3 5\n3:0.1 0:1e-07\n2:-0.123457\n\n"

    def test_bytes(self, path):
        metrics.write_predictions(path, self.IDS, self.SCORES, 5)
        content = path.read_bytes()
        if path.suffix == ".gz":
            assert content[4:8] == bytes(4), "the time stamp in a gzip header"
        assert (gzip.decompress(content) if path.suffix == ".gz" else content) == self.TEXT
        again = path.with_name("again" + path.suffix)
        metrics.write_predictions(again, self.IDS, self.SCORES, 5)
        assert again.read_bytes() == content, "the name does not enter the bytes"

    def test_negative_zero_is_written_as_zero(self, tmp_path):
        metrics.write_predictions(tmp_path / "p", np.array([[1]]), np.array([[-0.0]]), 2)
        assert (tmp_path / "p").read_bytes() == b"1 2\n1:0\n"

    def test_round_trip(self, path):
        metrics.write_predictions(str(path), self.IDS, self.SCORES, 5)
        ids, scores = metrics.read_predictions(str(path))
        assert (ids.dtype, scores.dtype) == (np.int32, np.float32)
        assert (ids == self.IDS).all()
        np.testing.assert_allclose(scores, self.SCORES, rtol=1e-5)

    @settings(deadline=None)
    @given(problems(), st.data())
    def test_round_trip_of_anything(self, tmp_path_factory, problem, data):
        ranking, truth, Y_train = problem
        ids, Y = ids_of(ranking, max(map(len, ranking))), indicator_of(truth, Y_train.shape[1])
        numbers = st.floats(-(2.0**100), 2.0**100, width=32)
        scores = np.array([sorted((data.draw(numbers) for _ in row), reverse=True) for row in ids])
        scores = scores.reshape(ids.shape).astype(np.float32)
        path = tmp_path_factory.mktemp("predictions") / "p.txt"
        metrics.write_predictions(path, ids, scores, Y.shape[1])
        ids_read, scores_read = metrics.read_predictions(path)
        assert (ids_read == ids).all()
        np.testing.assert_allclose(scores_read, np.where(ids < 0, 0, scores), rtol=1e-5, atol=1e-44)
        if ids.size:
            assert metrics.evaluate(Y, path, Y_train, k=1) == metrics.evaluate(Y, ids, Y_train, k=1)

    def test_more_rows_than_a_block_of_the_writer(self, tmp_path):
        ids = np.arange(10_000)[:, None]
        metrics.write_predictions(tmp_path / "p", ids, np.ones(ids.shape), 10_000)
        assert (metrics.read_predictions(tmp_path / "p")[0] == ids).all()

    def test_rows_sorted_by_label_are_ranked_by_score_and_ties_stay(self, path):
        write_bytes(path, b"2 9\r\n  1:0.5\t4:.75 8:5e-1  \r\n0:-2 7:+3.\n")
        ids, scores = metrics.read_predictions(path)
        assert ids.tolist() == [[4, 1, 8], [7, 0, -1]]
        assert scores.tolist() == [[0.75, 0.5, 0.5], [3, -2, 0]]
        assert metrics.read_predictions(path, k=1)[0].tolist() == [[4], [7]]
        assert metrics.read_predictions(path, k=7)[0].shape == (2, 3)

    def test_empty(self, path):
        write_bytes(path, b"0 5\n")
        ids, scores = metrics.read_predictions(path)
        assert ids.shape == scores.shape == (0, 0)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "line 1: the header must be 'N L'"),
            (b"1 2 3\n\n", "line 1: the header must be 'N L'"),
            (b"1 -2\n\n", "line 1: the header must be 'N L'"),
            (b"1 4294967296\n\n", "line 1: the header must be 'N L'"),
            (b"2 5\n1:1\n", "line 3: the file ends after 1 of 2 rows"),
            (b"1 5\n1:1\n\n", "line 3: more lines than the 1 rows that the header announces"),
            (b"2 5\n1:1\n1:1 2\n", "line 3: '2' is not 'label:score'"),
            (b"1 5\n1: 1\n", "line 2: '1:' is not 'label:score'"),
            (b"1 5\n-1:1\n", "line 2: '-1:1' is not 'label:score'"),
            (b"1 5\n1:nan\n", "line 2: '1:nan' is not 'label:score'"),
            (b"1 5\n1:1_0\n", "line 2: '1:1_0' is not 'label:score'"),
            (b"1 5\n1:1:1\n", "line 2: '1:1:1' is not 'label:score'"),
            (b"1 5\n\xff:1\n", "line 2: '\ufffd:1' is not 'label:score'"),
            (b"1 5\n" + b"9" * 99 + b":1\n", "line 2: '9{40}' is not 'label:score'"),
            (b"2 5\n4:1\n5:1\n", r"line 3: label id 5 is outside 0\.\.4"),
            (b"2 5\n4:1\n3:1 2:1 3:0\n", "line 3: label id 3 occurs twice"),
            (b"2 5\n4:1\n3:1e39\n", "line 3: a score is too large for a 32-bit number"),
        ],
    )
    def test_malformed(self, path, content, message):
        write_bytes(path, content)
        with pytest.raises(ValueError, match=f"{path.name}, {message}"):
            metrics.read_predictions(path)

    @pytest.mark.parametrize(
        "damage",
        [lambda b: b[:-12], lambda b: b[:10] + b"\xff\xff" + b[12:]],
        ids=["truncated", "broken stream"],
    )
    def test_damaged_gzip(self, tmp_path, damage):
        path = tmp_path / "p.gz"
        path.write_bytes(damage(gzip.compress(self.TEXT)))
        with pytest.raises(ValueError, match=r"p\.gz: damaged gzip data"):
            metrics.read_predictions(path)

    def test_gzip_is_recognised_by_its_content(self, tmp_path):
        (tmp_path / "packed").write_bytes(gzip.compress(self.TEXT))
        (tmp_path / "plain.gz").write_bytes(self.TEXT)
        for name in ("packed", "plain.gz"):
            assert (metrics.read_predictions(tmp_path / name)[0] == self.IDS).all()

    def test_k_of_reading(self, path):
        write_bytes(path, self.TEXT)
        with pytest.raises(ValueError, match="k must be at least 1, got 0"):
            metrics.read_predictions(path, k=0)

    def test_shape_must_fit_the_truth(self, path):
        write_bytes(path, self.TEXT)
        with pytest.raises(ValueError, match=f"{path.name} has 3 rows, but Y_true has 4"):
            metrics.evaluate(Y_TRUE, path)
        with pytest.raises(ValueError, match=f"{path.name} has 5 labels, but Y_true has 4"):
            metrics.evaluate(Y_TRUE[:3, :4], str(path), k=1)

    @pytest.mark.parametrize(
        ("ids", "scores", "message"),
        [
            ([[1, 2]], [[1.0]], r"one shape, got \(1, 2\) and \(1, 1\)"),
            ([[1, 2]], [[1.0, np.nan]], "must be finite"),
            ([[1, 2], [1, 2]], [[1, 0.5], [0.5, 1.0]], "row 1: scores ascend"),
            ([[1, 9]], [[1, 0.5]], "row 0: label id 9 is outside"),
            ([[1, 1]], [[1, 0.5]], "row 0: label id 1 occurs twice"),
            ([[1.0, 2.0]], [[1, 0.5]], "integer label ids"),
        ],
    )
    def test_refused_by_the_writer(self, tmp_path, ids, scores, message):
        with pytest.raises(ValueError, match=message):
            metrics.write_predictions(tmp_path / "p", np.array(ids), np.array(scores), 5)
        assert not os.listdir(tmp_path)

    def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(self, path, monkeypatch):
        path.write_bytes(b"old")

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            metrics.write_predictions(path, self.IDS, self.SCORES, 5)
        assert os.listdir(path.parent) == [path.name]
        assert path.read_bytes() == b"old"

    def test_permissions_follow_the_umask(self, tmp_path):
        metrics.write_predictions(tmp_path / "p", self.IDS, self.SCORES, 5)
        (tmp_path / "plain").touch()
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("p", "plain")]
        assert modes[0] == modes[1]

    def test_missing_folder_and_missing_file(self, tmp_path):
        with pytest.raises(
            FileNotFoundError, match=r"cannot write to '.*/p': there is no folder '.*nowhere'"
        ):
            metrics.write_predictions(tmp_path / "nowhere" / "p", self.IDS, self.SCORES, 5)
        with pytest.raises(FileNotFoundError, match="nowhere"):
            metrics.evaluate(Y_TRUE, tmp_path / "nowhere")


class TestTable:
    def test_one_result(self):
        result = {"P@1": 92.104, "P@10": 8.0, "PSnDCG@1": 100.0, "PSnDCG@10": 0.0, "R@10 tail": 5.555}
        assert metrics.format_table(result).splitlines() == [
            "            @1     @10",
            "P        92.10    8.00",
            "PSnDCG  100.00    0.00",
            "R tail       –    5.55",
        ]

    def test_several_results(self):
        results = {"bonsai-i": {"P@3": 70.0, "P@1": 90.0}, "a longer name": {"P@1": 80.0, "R@3": 5.0}}
        assert metrics.format_table(results).splitlines() == [
            "       bonsai-i  a longer name",
            "      @1     @3      @1     @3",
            "P  90.00  70.00   80.00      –",
            "R      –      –       –   5.00",
        ]

    def test_unknown_key(self):
        with pytest.raises(ValueError, match="'accuracy' is not the name of a metric at k"):
            metrics.format_table({"accuracy": 1.0})

    def test_nothing(self):
        assert metrics.format_table({}) == ""


class CooccurrenceRanker(BaseEstimator):
    """Ranks labels by (Σ_i over training rows of x·x_i y_il) / (n_l + smoothing), ties by smaller id."""

    def __init__(self, smoothing=1.0):
        self.smoothing = smoothing

    def fit(self, X, Y):
        Y = sp.csr_array(Y)
        self.label_counts_ = np.asarray(Y.sum(axis=0)).ravel()
        self.n_rows_fit_ = Y.shape[0]
        self.weights_ = sp.csr_array(X).T @ Y
        return self

    def top_k(self, X, k):
        scores = (sp.csr_array(X) @ self.weights_).toarray() / (self.label_counts_ + self.smoothing)
        ids = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        return ids, np.take_along_axis(scores, ids, axis=1).astype(np.float32)


class TestScorers:
    @pytest.fixture
    def data(self):
        rng = np.random.default_rng(0)
        Y = (rng.random((60, 6)) < [0.6, 0.4, 0.3, 0.2, 0.2, 0.1]).astype(int)
        return Y @ rng.random((6, 4)) + 0.1 * rng.random((60, 4)), Y

    SCORERS = (metrics.precision_scorer(2), metrics.ndcg_scorer(3), metrics.psp_scorer(3, A=0.6, B=2.6))

    def test_values(self, data):
        X, Y = data
        model = CooccurrenceRanker().fit(X[:40], Y[:40])
        ids, _ = model.top_k(X[40:], 6)
        result = metrics.evaluate(Y[40:], ids, Y[:40], k=(2, 3), dataset="amazon-670k")
        values = [scorer(model, X[40:], Y[40:]) for scorer in self.SCORERS]
        assert values == pytest.approx([result["P@2"] / 100, result["nDCG@3"] / 100, result["PSP@3"] / 100])
        assert all(type(value) is float for value in values)

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_cross_validation_dense_and_sparse(self, data, scorer):
        X, Y = data
        folds = KFold(3)
        by_hand = [
            scorer(CooccurrenceRanker().fit(X[train], Y[train]), X[test], Y[test])
            for train, test in folds.split(X)
        ]
        scores = cross_val_score(CooccurrenceRanker(), X, Y, scoring=scorer, cv=folds, error_score="raise")
        assert scores.tolist() == by_hand
        assert ((scores > 0) & (scores < 1)).all()
        # cross_val_score itself refuses a sparse Y, searches take it
        search = GridSearchCV(CooccurrenceRanker(), {}, scoring=scorer, cv=folds, error_score="raise")
        search.fit(sp.csr_array(X), sp.csr_array(Y))
        assert search.best_score_ == pytest.approx(mean(by_hand))

    def test_grid_search_of_a_pipeline(self, data):
        X, Y = data
        pipeline = make_pipeline(MaxAbsScaler(), CooccurrenceRanker())
        grid = {"cooccurrenceranker__smoothing": [0.1, 100.0]}
        scorer = metrics.psp_scorer(1)
        search = GridSearchCV(pipeline, grid, scoring=scorer, cv=KFold(3), error_score="raise").fit(X, Y)
        scores = search.cv_results_["mean_test_score"]
        assert scores[0] != scores[1], "the parameter must matter for this test to mean something"
        assert search.best_score_ == scores.max()
        assert scorer(search, X, Y) == scorer(search.best_estimator_, X, Y)

    def test_pipelines_transform_what_the_ranker_sees(self, data):
        X, Y = data
        reverse = FunctionTransformer(lambda X: X[:, ::-1])
        bare = CooccurrenceRanker().fit(X[:40, ::-1], Y[:40])
        scorer = metrics.ndcg_scorer(3)
        expected = scorer(bare, X[40:, ::-1], Y[40:])
        assert expected != scorer(bare, X[40:], Y[40:])
        nested = make_pipeline("passthrough", make_pipeline(reverse, CooccurrenceRanker()))
        alone = Pipeline([("ranker", CooccurrenceRanker())])
        assert scorer(nested.fit(X[:40], Y[:40]), X[40:], Y[40:]) == expected
        assert scorer(alone.fit(X[:40, ::-1], Y[:40]), X[40:, ::-1], Y[40:]) == expected

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_pickle(self, scorer):
        assert pickle.loads(pickle.dumps(scorer)) == scorer

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_lists_of_names_score_as_matrices_do(self, data, scorer):
        X, Y = data
        names = [[f"label {l}" for l in np.flatnonzero(row)] for row in Y]
        matrices, lists = (Bonsai(n_jobs=1).fit(X[:40], labels[:40]) for labels in (Y, names))
        assert scorer(lists, X[40:], names[40:]) == scorer(matrices, X[40:], Y[40:])
        assert scorer(lists, X[40:], Y[40:]) == scorer(matrices, X[40:], Y[40:])

    def test_lists_with_labels_that_were_not_fitted(self):
        model = Bonsai(n_jobs=1).fit(np.eye(3), [["a"], ["b"], ["c"]])
        assert metrics.psp_scorer(1)(model, np.eye(3), [["a"], ["b"], ["new"]]) < 1
        assert metrics.ndcg_scorer(1)(model, np.eye(3), [["a"], ["b"], ["new"]]) == pytest.approx(2 / 3)

    def test_grid_search_with_lists_of_names(self, data):
        X, Y = data
        names = [[f"label {l}" for l in np.flatnonzero(row)] for row in Y]
        for scorer in self.SCORERS:
            by_list, by_matrix = (
                GridSearchCV(
                    make_pipeline(MaxAbsScaler(), Bonsai(n_jobs=1)),
                    {"bonsai__C": [0.1, 1.0]},
                    scoring=scorer,
                    cv=KFold(3),
                    error_score="raise",
                ).fit(X, labels)
                for labels in (names, Y)
            )
            scores = by_list.cv_results_["mean_test_score"]
            assert scores.tolist() == by_matrix.cv_results_["mean_test_score"].tolist()
            assert scorer(by_list, X, names) == scorer(by_matrix, X, Y) > 0

    def test_sample_weights_are_routed(self, data):
        X, Y = data
        weights = np.random.default_rng(1).random(60)
        folds = KFold(3)
        scorer = metrics.precision_scorer(1)
        assert scorer.set_score_request(sample_weight=True) is scorer
        by_hand = [
            scorer(
                CooccurrenceRanker().fit(X[train], Y[train]), X[test], Y[test], sample_weight=weights[test]
            )
            for train, test in folds.split(X)
        ]
        with config_context(enable_metadata_routing=True):
            options = {"cv": folds, "error_score": "raise"}
            search = GridSearchCV(CooccurrenceRanker(), {}, scoring=scorer, **options)
            search.fit(X, Y, sample_weight=weights)
            assert search.cv_results_["split0_test_score"][0] == by_hand[0]
            assert search.best_score_ == pytest.approx(mean(by_hand))
            assert by_hand[0] != metrics.precision_scorer(1)(search, X[:20], Y[:20])
            unasked = GridSearchCV(CooccurrenceRanker(), {}, scoring=metrics.precision_scorer(1), **options)
            with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
                unasked.fit(X, Y, sample_weight=weights)
            named = metrics.ndcg_scorer(3).set_score_request(sample_weight="importance")
            search = GridSearchCV(CooccurrenceRanker(), {}, scoring=named, **options)
            search.fit(X, Y, importance=weights)

    def test_errors(self, data):
        X, Y = data
        with pytest.raises(ValueError, match=r"MaxAbsScaler has no method top_k"):
            metrics.precision_scorer(1)(MaxAbsScaler().fit(X), X, Y)
        model = CooccurrenceRanker().fit(X, Y)
        del model.n_rows_fit_
        with pytest.raises(ValueError, match="CooccurrenceRanker lacks label_counts_ and n_rows_fit_"):
            metrics.psp_scorer(1)(model, X, Y)
        with pytest.raises(ValueError, match="k must lie between 1 and the number of labels, 6; got 7"):
            metrics.precision_scorer(7)(model, X, Y)
