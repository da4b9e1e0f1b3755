"""Filters of a prediction (`restrict`, `exclude`), and `drop`, `restrict`, `rename`, `merge` of a model."""

import copy
import pickle

import numpy as np
import pytest

from bonsai_xmc import Bonsai, TextBonsai
from helpers import says
from test_labels_edit import KINDS, ranked, rows_and_labels


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    X, Y = rows_and_labels()
    return Bonsai(**KINDS[request.param], threshold=0.2, n_jobs=1).fit(X, Y), X[:60]


@pytest.fixture
def colours():
    X = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]]
    Y = [["red"], ["green"], ["blue"], ["crimson"], ["red", "green"]]
    return Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(X, Y), np.array(X, float)


def found(model, X, k, **options):
    """(label, score) of the k best labels of each row."""
    ids, scores = model.top_k(X, k, **options)
    return [
        [(model.classes_[i], s) for i, s in zip(*row, strict=True) if i >= 0]
        for row in zip(ids.tolist(), scores.tolist(), strict=True)
    ]


def subsets(model):
    labels = model.classes_.tolist()
    rng = np.random.default_rng(3)
    some = rng.choice(labels, 40, replace=False).tolist()
    return [labels[5:6], labels[::50], some, labels[:150], labels[1:]]


def is_exact(model):
    return model.search_ != "beam" or not model.trees_


def test_restricted_rankings_equal_filtered_ones(model):
    """With all nodes in the beam, or all labels scored."""
    model, X = model
    whole = ranked(model, X)
    exact = is_exact(model)
    for subset in subsets(model):
        for k in (1, 5, 45):
            filtered = [[pair for pair in row if pair[0] in set(subset)][:k] for row in whole]
            assert found(model, X, k, exact=exact, restrict=subset) == filtered
            others = [label for label in model.classes_ if label not in set(subset)]
            assert found(model, X, k, exact=exact, exclude=others) == filtered


def test_exclude_wins_over_restrict(model):
    model, X = model
    labels = model.classes_.tolist()
    exact = is_exact(model)
    both = found(model, X, 9, exact=exact, restrict=labels[:100], exclude=labels[50:])
    assert both == found(model, X, 9, exact=exact, restrict=labels[:50])
    assert found(model, X, 9, restrict=labels[:10], exclude=labels) == [[] for _ in range(60)]


def test_a_restricted_search_finds_as_much_as_the_model_of_these_labels(model):
    """Whatever the beam: nodes without such labels take no place in it."""
    model, X = model
    narrow = copy.deepcopy(model)
    narrow.beam_size = 10 if is_exact(model) else 2
    for subset in subsets(model):
        alone = narrow.restrict(subset)
        assert found(narrow, X, 5, restrict=subset) == found(alone, X, 5)


def test_booleans_give_the_same_as_labels(model):
    model, X = model
    some = np.arange(len(model.classes_)) % 5 == 0
    assert found(model, X, 3, restrict=some) == found(model, X, 3, restrict=model.classes_[some])
    assert found(model, X, 3, exclude=some) == found(model, X, 3, restrict=~some)


def test_all_predictions_are_restricted(model):
    model, X = model
    some = np.arange(len(model.classes_)) % 5 == 0
    for method in (model.predict, model.predict_proba, model.decision_function):
        assert not method(X, restrict=some).toarray()[:, ~some].any()
        assert not method(X, exclude=~some).toarray()[:, ~some].any()
        assert method(X, restrict=some).nnz > 0
    labels = set(model.classes_[some])
    assert all({label for label, _ in row} <= labels for row in model.top_k_labels(X, restrict=some))


def test_batches_and_single_rows_agree(model):
    model, X = model
    subset = subsets(model)[2]
    together = found(model, X, 4, restrict=subset)
    assert together == [found(model, X[[i]], 4, restrict=subset)[0] for i in range(X.shape[0])]


def test_pickled_models_have_no_filters(model):
    model, X = model
    before = found(model, X, 5, restrict=model.classes_[:9])
    again = pickle.loads(pickle.dumps(model))
    assert found(again, X, 5) == found(model, X, 5)
    assert found(again, X, 5, restrict=model.classes_[:9]) == before


def test_merged_labels_have_the_highest_score(model, tmp_path):
    model, X = model
    a, b, c = model.classes_[[3, 140, 200]].tolist()
    merged = model.merge([a, b], into="both").merge([c, "both"], into="all")
    assert len(merged.classes_) == len(model.classes_) - 2
    assert merged.classes_[3] == "all"
    assert merged.label_counts_[3] == model.label_counts_[[3, 140, 200]].sum()
    expected = []
    for row in ranked(model, X):
        best = {}
        for label, score in row:
            best.setdefault("all" if label in (a, b, c) else label, score)
        expected.append(list(best.items()))
    assert ranked(merged, X) == expected
    assert all(list(tree.names).count("all") == 3 for tree in merged.trees_)
    merged.save(tmp_path / "merged.bonsai")
    loaded = type(model).load(tmp_path / "merged.bonsai", verify=True)
    assert ranked(loaded, X) == expected
    exact = is_exact(model)
    alone = [[pair for pair in row if pair[0] == "all"] for row in expected]
    assert found(merged, X, 3, exact=exact, restrict=["all"]) == alone
    without = {label: score for label, score in expected[0] if label != "all"}
    assert ranked(loaded.drop(["all"]), X[[0]]) == [list(without.items())]


def test_merged_labels_are_predicted_where_one_of_them_was(model):
    model, X = model
    a, b = model.classes_[[3, 140]].tolist()
    before, after = model.predict(X).toarray(), model.merge([a, b], into=a).predict(X).toarray()
    assert (after[:, 3] == (before[:, 3] | before[:, 140])).all()
    assert (np.delete(after, 3, axis=1) == np.delete(before, [3, 140], axis=1)).all()


def test_renaming_changes_names_alone(model):
    model, X = model
    a, b = model.classes_[[3, 140]].tolist()
    other = model.rename({a: b, b: a, model.classes_[0]: "new"})
    assert other.classes_[[0, 3, 140]].tolist() == ["new", b, a]
    assert other.fitted_.linear.core.one_vs_rest is None or (
        other.fitted_.linear.core.one_vs_rest.arrays()["children"] is not None
    )
    assert np.array_equal(other.top_k(X, 9)[0], model.top_k(X, 9)[0])
    assert model.classes_[3] == a


def test_edits_do_not_change_the_model(model):
    model, X = model
    before, params = ranked(model, X), model.get_params()
    other = model.drop(model.classes_[:7]).merge(model.classes_[10:12], into="x").restrict(["x", "label 100"])
    assert other.classes_.tolist() == ["x", "label 100"]
    assert type(other) is type(model)
    assert ranked(model, X) == before
    assert str(other.get_params()) == str(params)


def test_filters_and_merges_equal_hand_computed_rankings(colours):
    model, X = colours
    first = lambda **options: [row[0][0] for row in model.top_k_labels(X[:4], 1, **options)]
    assert first() == ["red", "green", "blue", "crimson"]
    assert first(exclude=["red"])[1:] == ["green", "blue", "crimson"]
    assert first(restrict=["blue", "not there"]) == ["blue"] * 4
    merged = model.merge(["red", "crimson"], into="red")
    assert merged.classes_.tolist() == ["blue", "red", "green"]
    assert [row[0][0] for row in merged.top_k_labels(X[:4], 1)] == ["red", "green", "blue", "red"]
    assert merged.label_counts_.tolist() == [1, 3, 2]


def test_integer_labels_are_renamed_all_or_none_to_names():
    model = Bonsai(threshold=0.5).fit(np.eye(3), np.eye(3, dtype=int))
    named = model.rename({0: "a", 1: "b", 2: "c"})
    assert named.top_k_labels(np.eye(3), 1)[1][0][0] == "b"
    with says("all are names, or all are integers"):
        model.rename({0: "a"})
    assert model.drop([1]).classes_.tolist() == [0, 2]
    assert model.rename({0: 9}).classes_.tolist() == [1, 2, 9]
    assert model.rename({0: 9}).top_k_labels(np.eye(3), 1)[0][0][0] == 9


def test_texts_and_names_of_labels(tmp_path):
    texts = ["old brick houses", "heat pumps", "heating of houses", "brick walls"]
    model = TextBonsai(min_df=1, classifier=Bonsai(threshold=0.5)).fit(
        texts, [["1"], ["2"], ["2", "3"], ["1"]]
    )
    model = model.name_labels({"1": "bricks", "2": "heat", "3": "homes"})
    assert model.suggest("brick", 1)[0][0] == "1"
    assert model.suggest("brick", 1, exclude=["1"])[0][0] != "1"
    other = model.merge(["1", "3"], into="3").drop(["2"])
    assert other.label_names_ == ["homes"]
    assert model.rename({"1": "4"}).label_names_ == ["bricks", "heat", "homes"]
    other.save(tmp_path / "model.bonsai")
    assert TextBonsai.load(tmp_path / "model.bonsai").suggest("brick", 3)[0][0] == "3"


def test_wrong_labels_are_refused(colours):
    model, X = colours
    with says("restrict is 'red', but must be several labels, e.g. ['red']"):
        model.top_k(X, restrict="red")
    with says("restrict: the model has none of these labels"):
        model.top_k(X, restrict=["pink"])
    with says("exclude is an array of booleans of the shape (3,), but the model has 4 labels"):
        model.top_k(X, exclude=np.ones(3, bool))
    with says("drop: the model has no label 'pink'"):
        model.drop(["red", "pink"])
    with says("drop: the model has no label 'pink', nor 1 others"):
        model.drop(["pink", "mauve"])
    with says("drop: no label would be left"):
        model.drop(model.classes_)
    with says("rename: 2 labels would be 'red'; merge makes one label of several"):
        model.rename({"crimson": "red"})
    with says("rename: pass a mapping of old to new labels, not list"):
        model.rename(["red"])
    with says("rename: 3.5 is neither a name (a string) nor an integer"):
        model.rename({"red": 3.5})
    with says("merge: pass two labels or more; rename changes the name of one"):
        model.merge(["red"], into="crimson red")
