"""Metrics against values computed by hand, and against the definitions in plain Python."""

import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from bonsai_xmc import metrics
from rankings import IDS, LOG3, Y_TRUE, Q, ids_of, indicator_of, problems


class TestByHand:
    def test_precision_equals_hand_computed_values(self):
        # top 1: rows 0 and 2 hit, 2 of 4·1; top 3: 2 + 1 + 1 hits of 4·3
        assert metrics.precision_at_k(Y_TRUE, IDS, 1) == 2 / 4
        assert metrics.precision_at_k(Y_TRUE, IDS, 3) == pytest.approx(4 / 12)

    def test_ndcg_equals_hand_computed_values(self):
        # row 0: (1 + 1/2) of the ideal 1 + 1/LOG3 + 1/2 (three labels); row 1: 1/LOG3 of 1 (one label);
        # row 2: 1 of 1 + 1/LOG3 (two labels); row 3: 0
        expected = (1.5 / (1.5 + 1 / LOG3) + 1 / LOG3 + 1 / (1 + 1 / LOG3) + 0) / 4
        assert metrics.ndcg_at_k(Y_TRUE, IDS, 3) == pytest.approx(expected)
        assert metrics.ndcg_at_k(Y_TRUE, IDS, 1) == metrics.precision_at_k(Y_TRUE, IDS, 1)

    def test_recall_equals_hand_computed_values(self):
        # k = 3: 2/3, 1/1, 1/2 and 0 for the row without labels
        assert metrics.recall_at_k(Y_TRUE, IDS, 3) == pytest.approx((2 / 3 + 1 + 1 / 2) / 4)
        assert metrics.recall_at_k(Y_TRUE, IDS, 1) == pytest.approx((1 / 3 + 1 / 2) / 4)

    def test_r_precision_divides_by_the_smaller_of_k_and_true_labels(self):
        # k = 1: 1/1, 0/1, 1/1; k = 3: 2/3, 1/1, 1/2; 0 for the row without labels
        assert metrics.r_precision_at_k(Y_TRUE, IDS, 1) == pytest.approx((1 + 0 + 1) / 4)
        assert metrics.r_precision_at_k(Y_TRUE, IDS, 3) == pytest.approx((2 / 3 + 1 + 1 / 2) / 4)

    def test_f1_equals_hand_computed_values_and_scikit_learn(self):
        # k = 3: 2·2 of 3 + 3; 2·1 of 3 + 1; 2·1 of 2 + 2 (two are predicted); 0 of 1 + 0
        assert metrics.f1_at_k(Y_TRUE, IDS, 3) == pytest.approx((4 / 6 + 2 / 4 + 2 / 4 + 0) / 4)
        # as scikit-learn computes it, averaged over rows
        taken = np.array([[i in row for i in range(5)] for row in IDS.tolist()])
        assert metrics.f1_at_k(Y_TRUE, IDS, 3) == pytest.approx(
            f1_score(Y_TRUE, taken, average="samples", zero_division=0)
        )

    def test_psp_equals_hand_computed_values(self):
        # k = 1: hits 1 (row 0), 0 (row 2): q 2 + 1; best: labels 2, 3, 4: q 3 + 4 + 5
        assert metrics.psp_at_k(Y_TRUE, IDS, 1, Q) == pytest.approx(3 / 12)
        # k = 3: hits 1, 0 | 3 | 0: q 2 + 1 + 4 + 1; best: all true labels: 1+2+3 | 4 | 1+5
        assert metrics.psp_at_k(Y_TRUE, IDS, 3, Q) == pytest.approx(8 / 16)

    def test_psp_never_exceeds_one_by_rounding(self):
        # all labels are found, in another order than the best: the two sums may round differently
        rng = np.random.default_rng(0)
        for _ in range(100):
            assert metrics.psp_at_k(np.ones((1, 7)), rng.permutation(7)[None], 7, rng.random(7)) <= 1

    def test_psndcg_equals_hand_computed_values(self):
        ideal_2, ideal_3 = 1 + 1 / LOG3, 1.5 + 1 / LOG3
        gain = (2 + 1 / 2) / ideal_3 + 4 / LOG3 + 1 / ideal_2
        # best rankings: 2 1 0 (q 3 2 1) | 3 (q 4) | 4 0 (q 5 1)
        best = (3 + 2 / LOG3 + 1 / 2) / ideal_3 + 4 + (5 + 1 / LOG3) / ideal_2
        assert metrics.psndcg_at_k(Y_TRUE, IDS, 3, Q) == pytest.approx(gain / best)

    def test_coverage_counts_wrong_labels_too(self):
        # k = 1: predicted {1, 2, 0, 4}, best true labels {2, 3, 4}; 4/3 shows that wrong labels count
        assert metrics.coverage_at_k(Y_TRUE, IDS, 1, Q) == pytest.approx(4 / 3)
        # k = 2: predicted {0, 1, 2, 3, 4}; best true labels {2, 1} | {3} | {4, 0}
        assert metrics.coverage_at_k(Y_TRUE, IDS, 2, Q) == 1.0
        # equal q: the smaller id is preferred, so the best labels for k = 1 are 0 | 3 | 0
        assert metrics.coverage_at_k(Y_TRUE, IDS, 1, np.ones(5)) == 4 / 2

    def test_correct_coverage_counts_true_labels_that_are_found(self):
        # true labels 0 1 2 3 4; k = 1 finds 1 and 0, k = 3 also 3
        assert metrics.correct_coverage_at_k(Y_TRUE, IDS, 1) == 2 / 5
        assert metrics.correct_coverage_at_k(Y_TRUE, IDS, 3) == 3 / 5

    def test_inverse_propensity_equals_hand_computed_values(self):
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

    def test_frequency_groups_equal_hand_computed_values(self):
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

    def test_a_label_of_both_head_and_tail_counts_as_tail(self):
        result = metrics.evaluate(np.array([[1]]), np.array([[0]]), np.array([[1]]), k=1, by_frequency=True)
        assert (result["P@1 head"], result["P@1 tail"]) == (0, 100)

    def test_by_frequency_needs_training_labels(self):
        with pytest.raises(ValueError, match="by_frequency=True needs Y_train"):
            metrics.evaluate(self.Y, self.IDS, k=1, by_frequency=True, inv_propensity=np.ones(6))


# --- The definitions in plain Python -------------------------------------------------------


def dcg(gains):
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def quotient(part, whole):
    return part / whole if whole else 0.0


def slow_metrics(ranking, truth, q, k):
    """Compute metrics of `ranking` (lists of labels), `truth` (sets) and `q` (inverse propensities)."""
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
        "RP": mean(
            len(true.intersection(row)) / min(k, len(true)) if true else 0.0 for row, _, true in pairs
        ),
        "F1": mean(
            2 * len(true.intersection(row)) / (len(row) + len(true)) if row or true else 0.0
            for row, _, true in pairs
        ),
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


class TestAgainstTheDefinitions:
    @settings(deadline=None)
    @given(problems(), st.floats(0, 2), st.floats(0.1, 5))
    def test_evaluate_equals_the_definitions_for_any_ranking(self, problem, A, B):
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
        plain |= {"F1": metrics.f1_at_k, "RP": metrics.r_precision_at_k, "CC": metrics.correct_coverage_at_k}
        weighted = {"PSP": metrics.psp_at_k, "PSnDCG": metrics.psndcg_at_k, "C": metrics.coverage_at_k}
        for k in range(1, Y.shape[1] + 1):
            result = metrics.evaluate(Y, ids, Y_train, k)
            assert result == {
                f"{name}@{k}": 100
                * (plain[name](Y, ids, k) if name in plain else weighted[name](Y, ids, k, q))
                for name in ("P", "nDCG", "PSP", "PSnDCG", "R", "RP", "F1", "C", "CC")
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
    def test_keys_of_evaluate_are_in_order(self):
        names = list(metrics.evaluate(Y_TRUE, IDS, np.ones((9, 5)), k=(1, 3)))
        order = ("P", "nDCG", "PSP", "PSnDCG", "R", "RP", "F1", "C", "CC")
        assert names == [f"{name}@{k}" for name in order for k in (1, 3)]

    def test_evaluate_without_training_labels_leaves_out_propensities(self):
        result = metrics.evaluate(Y_TRUE, IDS, k=[3])
        assert list(result) == ["P@3", "nDCG@3", "R@3", "RP@3", "F1@3", "CC@3"]
        assert result["P@3"] == pytest.approx(100 * 4 / 12)

    def test_given_propensities_replace_those_of_training_labels(self):
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

    def test_missing_predictions_count_as_wrong(self):
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

    def test_frequencies_stand_for_training_labels(self):
        rng = np.random.default_rng(0)
        Y, Y_train = (rng.random((n, 6)) < 0.4 for n in (20, 30))
        ids = np.argsort(rng.random((20, 6)), axis=1)[:, :3]
        frequencies = Y_train.sum(axis=0), len(Y_train)
        expected = metrics.evaluate(Y, ids, Y_train, k=(1, 3), by_frequency=True)
        assert metrics.evaluate(Y, ids, frequencies, k=(1, 3), by_frequency=True) == expected
        report = metrics.Report(
            Y, {"a": (ids, np.full(ids.shape, 0.5))}, frequencies, k=(1, 3), coverage=True
        )
        assert report.results["a"] == {name: expected[name] for name in report.results["a"]}
        assert "PSP@3" in report.results["a"]
        truth = [[*np.flatnonzero(row).tolist(), 99] for row in Y]  # 99 is unknown and has no training row
        given = [frequencies, Y_train]
        first, second = (metrics.evaluate(truth, ids, of, k=3, classes=range(6)) for of in given)
        assert first == second
        with pytest.raises(ValueError, match="Y_train must hold one number for each of the 6 labels"):
            metrics.evaluate(Y, ids, (frequencies[0][1:], 30), k=1)

    def test_unused_labels_take_no_memory(self):
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


class TestSampleWeight:
    WEIGHTS = np.array([2.0, 0.0, 1.0, 1.0])

    def test_a_weight_of_two_equals_a_repeated_row(self):
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
    def test_sample_weights_must_be_finite_and_one_for_each_row(self, weights, message):
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
    def test_invalid_predictions_are_rejected(self, predictions, message):
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
    def test_invalid_true_labels_are_rejected(self, Y, message):
        with pytest.raises(ValueError, match=message):
            metrics.evaluate(Y, IDS, k=3)

    def test_invalid_training_labels_are_rejected(self):
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
    def test_invalid_k_is_rejected(self, k, message):
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
    def test_invalid_propensities_are_rejected(self, q, message):
        with pytest.raises(ValueError, match=message):
            metrics.psp_at_k(Y_TRUE, IDS, 1, q)

    @pytest.mark.parametrize(("A", "B"), [(-1, 1.5), (np.nan, 1.5), (0.5, 0), (0.5, np.inf)])
    def test_invalid_propensity_parameters_are_rejected(self, A, B):
        with pytest.raises(ValueError, match="A >= 0 and B > 0"):
            metrics.inverse_propensity(Y_TRUE, A, B)

    def test_unknown_and_contradicted_data_sets_are_rejected(self):
        with pytest.raises(ValueError, match=r"no propensity parameters for 'mnist'; known .*eurlex-4k"):
            metrics.evaluate(Y_TRUE, IDS, dataset="mnist")
        with pytest.raises(ValueError, match=r"A=0.7, B=1.5 contradict 'tate'"):
            metrics.evaluate(Y_TRUE, IDS, A=0.7, dataset="tate")


class TestTable:
    def test_a_table_has_a_column_for_each_k(self):
        result = {"P@1": 92.104, "P@10": 8.0, "PSnDCG@1": 100.0, "PSnDCG@10": 0.0, "R@10 tail": 5.555}
        assert metrics.format_table(result).splitlines() == [
            "            @1     @10",
            "P        92.10    8.00",
            "PSnDCG  100.00    0.00",
            "R tail       –    5.55",
        ]

    def test_a_table_of_several_results_has_a_heading_for_each(self):
        results = {"bonsai-i": {"P@3": 70.0, "P@1": 90.0}, "a longer name": {"P@1": 80.0, "R@3": 5.0}}
        assert metrics.format_table(results).splitlines() == [
            "       bonsai-i  a longer name",
            "      @1     @3      @1     @3",
            "P  90.00  70.00   80.00      –",
            "R      –      –       –   5.00",
        ]

    def test_format_table_rejects_keys_that_are_no_metric(self):
        with pytest.raises(ValueError, match="'accuracy' is not the name of a metric at k"):
            metrics.format_table({"accuracy": 1.0})

    def test_format_table_of_nothing_is_empty(self):
        assert metrics.format_table({}) == ""
