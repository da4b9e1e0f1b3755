"""True labels and predictions in every form: matrices, lists of names, data frames; and their order."""

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import metrics
from rankings import IDS, Y_TRUE

NAMES = ["ash", "birch", "cedar", "date", "elm"]  # of the five labels


def named(rows):
    return [[NAMES[l] for l in row if l >= 0] for row in rows]


TRAIN = [[0, 1], [0, 3], [0, 1, 2], [4], [0], [1]]  # label ids of the training rows
OPTIONS = {"k": (1, 3), "by_frequency": True}
EXPECTED = metrics.evaluate(Y_TRUE, IDS, np.array([[l in row for l in range(5)] for row in TRAIN]), **OPTIONS)


class TestListsOfLabels:
    """Figures do not depend on the form of the labels."""

    Y = named([[0, 1, 2], [3], [4, 0], []])
    Y_TRAIN = named(TRAIN)

    def test_predicted_names_equal_ids(self):
        assert metrics.evaluate(self.Y, named(IDS), self.Y_TRAIN, **OPTIONS) == EXPECTED

    def test_names_and_labels_with_scores(self):
        pairs = [[(name, 0.5) for name in row] for row in named(IDS)]
        assert metrics.evaluate(self.Y, pairs, self.Y_TRAIN, **OPTIONS) == EXPECTED

    def test_names_and_an_array_of_names(self):
        for dtype in (object, str):
            found = metrics.evaluate(self.Y, np.array(NAMES, dtype=dtype)[IDS[:, :1]], self.Y_TRAIN, k=1)
            assert found == {name: EXPECTED[name] for name in found}

    def test_predicted_ids_need_classes_for_true_names(self, tmp_path):
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
        # columns with names are those of that name, at any position
        other = NAMES[::-1]
        assert metrics.evaluate(frame, IDS, train[other], **OPTIONS) == EXPECTED
        assert metrics.evaluate(frame[other], IDS, train, classes=NAMES, **OPTIONS) == EXPECTED
        assert metrics.evaluate(frame[other], IDS, self.Y_TRAIN, classes=NAMES, **OPTIONS) == EXPECTED

    def test_lists_of_zeros_and_ones_are_predictions(self):
        assert metrics.evaluate([{0}, {1}], [[0, 1], [0, 1]], k=2)["P@2"] == 50

    def test_unknown_true_labels_count_as_missed(self):
        # the row has two labels, one of them known and found
        assert metrics.recall_at_k([["ash", "oak"]], np.array([[0]]), 1, classes=NAMES) == 0.5
        seen = np.array([[1, 0, 0, 0, 0, 1]])  # as a matrix whose last column never occurs in training
        Y_train = self.Y_TRAIN, np.array([[l in row for l in [*NAMES, "oak"]] for row in self.Y_TRAIN])
        by_name = metrics.evaluate([["ash", "oak"]], np.array([[0, 1]]), Y_train[0], k=2, classes=NAMES)
        assert by_name == metrics.evaluate(seen, np.array([[0, 1]]), Y_train[1], k=2)

    def test_propensities_of_lists_equal_those_of_a_matrix(self):
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
            ([[1], [2], [3], [4]], named(IDS), {}, "names in one of Y_true"),
            (None, IDS, {}, "Y_true is None"),
            (Y_TRUE, IDS, {"classes": NAMES[:4]}, "Y_true has 5 labels, but classes has 4"),
            (Y, IDS, {"classes": [*NAMES, "elm"]}, "classes holds a label twice"),
            (Y, IDS, {"classes": NAMES[:4]}, r"row 3: label id 4 is outside 0\.\.3"),
            (Y, [["ash", "ash"]] * 4, {}, "row 0: label id 0 occurs twice"),
            (Y, named(IDS[:3]), {}, "predictions has 3 rows, but Y_true has 4"),
        ],
    )
    def test_lists_and_matrices_must_not_be_mixed(self, Y, predictions, options, message):
        with pytest.raises(ValueError, match=message):
            metrics.evaluate(Y, predictions, k=1, **options)


class TestOrderOfArguments:
    """Swapped arguments are an error where they can be recognised."""

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
    def test_swapped_arguments_are_recognised(self, truth, predictions):
        for call in (metrics.evaluate, metrics.precision_at_k):
            with pytest.raises(ValueError, match="metrics take the true labels first"):
                call(predictions, truth, k=1)
