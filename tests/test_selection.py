"""n-grams are selected by their association with labels; texts give the same rows afterwards."""

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, TextBonsai, TextVectorizer
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._text import selection
from bonsai_xmc._text.blocks import make_plan
from bonsai_xmc._text.fitted import FittedText, text_options
from test_text_model import make_records

FIELDS = {"title": {"word_ngrams": {2: 0.5}, "char_ngrams": {4: 0.7}}, "abstract": 0}


@pytest.fixture(scope="module")
def records():
    return make_records()


def fitted(records, most, word_ngrams, char_ngrams=None, fields=FIELDS):
    vectorizer = TextVectorizer(fields, word_ngrams=word_ngrams, char_ngrams=char_ngrams, min_df=1)
    plan = make_plan(fields, word_ngrams, char_ngrams, True)
    columns = [[row[field] for row in records[0]] for field in ("title", "abstract")]
    text, X = FittedText.fit([columns], plan, text_options(vectorizer.get_params()), 1, rows=True)
    before = list(vectorizer.fit(records[0]).get_feature_names_out())
    selected, chosen = selection.select_ngrams(text, X, labels_of(records[1]), most)
    return text, X, selected, chosen, before, columns


@pytest.mark.parametrize("word_ngrams", [{1: 1.0, 2: 0.6}, {1: 1.0, 2: 0.6, 3: 0.3}, {(1, 2): 1.0}, {2: 1.0}])
@pytest.mark.parametrize("char_ngrams", [None, {5: 0.4}, {(2, 3): 0.4}])
@pytest.mark.parametrize("most", [1, 7, 30])
def test_the_rows_of_training_are_those_of_prediction(records, word_ngrams, char_ngrams, most):
    text, X, selected, chosen, _, columns = fitted(records, most, word_ngrams, char_ngrams)
    assert chosen.n_features < X.n_features
    again = selected.transform([columns], 2)
    np.testing.assert_array_equal(again.indptr, chosen.indptr)
    np.testing.assert_array_equal(again.indices, chosen.indices)
    np.testing.assert_allclose(again.values, chosen.values, atol=1e-6)
    for i, block in enumerate(selected.plan.blocks):
        names, all_names = selected.block_names(i), text.block_names(i)
        assert set(names) <= set(all_names)
        expected = min(most, len(all_names)) if selection.is_selected(block) else len(all_names)
        assert len(names) == expected


def test_select_rejects_what_does_not_fit(records):
    text, X, *_ = fitted(records, None, {1: 1.0})
    with pytest.raises(ValueError, match="keep needs a byte for each feature"):
        text.core.select(np.ones(X.n_features - 1, np.uint8), X, 1)
    with pytest.raises(ValueError, match="different numbers of features"):
        text.core.select(np.ones(X.n_features, np.uint8), X._replace(n_features=X.n_features + 1), 1)


def test_association_scores_equal_hand_computed_values():
    """Four rows; column 0 goes with label 0 in two rows, column 1 occurs once, column 2 everywhere."""
    X = sp.csr_array(np.array([[0.5, 0.1, 1], [2.0, 0, 1], [0, 0, 1], [0, 0, 1]], np.float32))
    labels = labels_of([["a"], ["a"], ["b"], ["a", "b"]])
    scores = selection.label_scores(X, labels)
    # c = 2, f = 2, m = 3; c = 1 does not count; c = 3, f = 4, m = 3: no more than expected
    np.testing.assert_allclose(scores, [2 * np.log(2 * 4 / (2 * 3)), 0, 0], atol=1e-12)


def test_ngrams_of_many_rows_come_last():
    """100 rows, half of them with the label: columns of 50, 2, 2 and 1 of these, and one of other rows."""
    X = np.zeros((100, 5), np.float32)
    for column, rows in enumerate((range(50), (0, 1), (2, 3), (4,), (60, 61))):
        X[list(rows), column] = 1
    X = sp.csr_array(X)
    labels = labels_of([["a"] if i < 50 else ["b"] if i == 70 else [] for i in range(100)])
    assert selection.label_scores(X, labels)[0] > selection.label_scores(X, labels)[1] > 0
    assert selection.best_columns(X, labels, 2).tolist() == [1, 2]
    assert selection.best_columns(X, labels, 4).tolist() == [1, 2, 3, 4]
    assert selection.best_columns(X, labels, 5).tolist() == [0, 1, 2, 3, 4]


def test_memory_is_bounded_by_parts(records, monkeypatch):
    X = fitted(records, None, {1: 1.0, 2: 0.6})[1].to_scipy()
    labels = labels_of(records[1])
    whole = selection.label_scores(X, labels)
    monkeypatch.setattr(selection, "_PAIRS", 50)
    np.testing.assert_array_equal(selection.label_scores(X, labels), whole)


def test_ngrams_associated_with_labels_are_kept_first(records):
    """If few n-grams are kept, they are those of words that belong to a topic."""
    rows = [{"title": "x", "abstract": f"heat pump {i % 7} of the" if i % 2 else f"old wall {i % 5} of the"}
            for i in range(60)]  # fmt: skip
    labels = [["heating"] if i % 2 else ["walls"] for i in range(60)]
    model = TextBonsai({"title": 0, "abstract": 0}, word_ngrams={1: 1.0, 2: 0.5}, max_ngrams=2).fit(
        rows, labels
    )
    assert model.fitted_.text.block_names(1) == ["heat pump", "old wall"]


def test_models_with_selected_ngrams(records, tmp_path):
    settings = {"fields": FIELDS, "word_ngrams": {1: 1.0, 2: 0.6}, "char_ngrams": {5: 0.4}}
    files = set()
    for n_jobs in (1, 2):
        model = TextBonsai(**settings, max_ngrams=25, classifier=Bonsai(n_jobs=n_jobs)).fit(
            iter(records[0]), records[1]
        )
        model.save(tmp_path / "m.bonsai")
        files.add((tmp_path / "m.bonsai").read_bytes())
    assert len(files) == 1
    assert [n for name, n, _ in model.blocks_ if " 1" not in name] == [25, 25, 25, 25]
    loaded = TextBonsai.load(tmp_path / "m.bonsai", verify=True)
    assert loaded.max_ngrams == 25
    np.testing.assert_array_equal(loaded.top_k(records[0], 4)[1], model.top_k(records[0], 4)[1])
    assert loaded.score(*records) == 1
    every = TextBonsai(**settings, max_ngrams=None).fit(*records)
    assert every.n_features_in_ > model.n_features_in_


def test_the_maximum_number_of_ngrams():
    assert selection.most_ngrams("auto", 100) == 20_000
    assert selection.most_ngrams("auto", 1_000_000) == 2_000_000
    assert selection.most_ngrams(None, 100) is None


@pytest.mark.parametrize("value", [0, -1, 2.5, "all", True])
def test_max_ngrams_must_be_a_positive_integer(records, value):
    with pytest.raises(ValueError, match=r"max_ngrams is .*, but must be 'auto', None or an integer from 1"):
        TextBonsai(FIELDS, max_ngrams=value).fit(*records)
