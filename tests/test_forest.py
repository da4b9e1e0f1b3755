"""The trees of fitted models: from clustering, from the user, of the presets, and in edge cases."""

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai, LabelTree
from bonsai_xmc._base.params import PRESETS
from bonsai_xmc._selection import strategy
from helpers import same_model


def leaf_sizes(tree):
    return [node.size for node in tree.nodes if node.is_leaf]


# --- the trees ---


@pytest.mark.parametrize(
    "convert", [np.asarray, sp.csr_array, lambda V: V.astype(np.float16), lambda V: (5 * V).astype(int)]
)
def test_given_label_vectors_determine_the_clusters(blocks, convert, monkeypatch):
    monkeypatch.setattr(strategy, "KMEANS_INIT", "k-means++")  # separates the two kinds of labels
    X, Y = blocks(n_labels=8)
    vectors = np.zeros((8, 10))
    vectors[0::2, 0] = 1  # even labels belong together, and odd ones
    vectors[1::2, 1] = 1
    trees = {"branching_factor": 2, "max_leaf_size": 4, "n_trees": 5}
    model = Bonsai(convert(vectors), classifiers="leaf", **trees).fit(X, Y)
    for tree in model.trees_:
        assert sorted(node.labels.tolist() for node in tree.nodes[1:]) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert model.score(X, Y) == 1.0


def test_each_representation_grows_different_trees(generated):
    models = [
        Bonsai(name, classifiers="leaf", branching_factor=6).fit(generated.X_train, generated.Y_train)
        for name in ("input", "output", "joint")
    ]
    assert models[0].trees_ != models[1].trees_
    assert models[1].trees_ != models[2].trees_
    assert all(model.score(generated.X_test, generated.Y_test) > 0.5 for model in models)


def test_given_trees_are_used_in_every_form(blocks, tmp_path):
    X, Y = blocks(n_labels=6)
    nested = [[5, 0], [[1], [2, 3, 4]]]
    tree = LabelTree.from_nested(nested)
    tree.to_json(tmp_path / "tree.json")
    model = Bonsai(classifiers="leaf").fit(X, Y, tree=nested)
    assert model.trees_ == [tree]
    assert model.score(X, Y) == 1.0
    for form in (tree, tree.to_dict(), tree.to_json(), tmp_path / "tree.json", [tree]):
        assert same_model(Bonsai(classifiers="leaf").fit(X, Y, tree=form), model)
    two = Bonsai(classifiers="leaf").fit(X, Y, tree=[tree, LabelTree.from_nested([[0, 1, 2], [3, 4, 5]])])
    assert [len(t.nodes) for t in two.trees_] == [5, 3]
    assert two.score(X, Y) == 1.0
    # The trees that a model has grown, given to another: the same model again.
    grown = Bonsai(classifiers="leaf", branching_factor=2).fit(X, Y)
    assert same_model(Bonsai(classifiers="leaf").fit(X, Y, tree=grown.trees_), grown)


def test_given_trees_may_hold_label_names(named):
    X, Y = named
    nested = [
        ["木", "Ahorn", "a name without rows"],
        ["", "Bäume 🌳"],
        ["línea\nnueva", "a" * 300],
        ["another"],
    ]
    model = Bonsai(classifiers="leaf").fit(X, Y, tree=nested)
    (tree,) = model.trees_
    assert [node.names for node in tree.nodes[1:]] == [
        ["Ahorn", "木"],
        ["", "Bäume 🌳"],
        ["a" * 300, "línea\nnueva"],
    ]
    assert model.score(X, Y) == 1.0
    # A tree of one model in another whose names have other ids.
    few = [i for i, (name,) in enumerate(Y) if name != ""]
    other = Bonsai(classifiers="leaf").fit(X[few], [Y[i] for i in few], tree=model.trees_[0])
    assert [node.names for node in other.trees_[0].nodes[1:]] == [
        ["Ahorn", "木"],
        ["Bäume 🌳"],
        ["a" * 300, "línea\nnueva"],
    ]
    assert other.score(X[few], [Y[i] for i in few]) == 1.0


def test_labels_of_given_trees_without_rows_are_left_out(blocks):
    X, Y = blocks(n_labels=6)
    wide = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(60, 9))
    tree = [[0, 1, 6], [2, 3], [7, 8], [4, 5]]
    model = Bonsai(classifiers="leaf", beam_size=None).fit(X, wide, tree=tree)
    assert [node.labels.tolist() for node in model.trees_[0].nodes[1:]] == [[0, 1], [2, 3], [4, 5]]
    assert model.top_k(X, 9)[0].max() == 5


@pytest.mark.parametrize("seed", [0, 1])
def test_trees_hold_each_label_with_rows_once(generated, seed):
    model = Bonsai(classifiers="leaf", branching_factor=4, max_leaf_size=3, random_state=seed).fit(
        generated.X_train, generated.Y_train
    )
    present = np.flatnonzero(np.bincount(generated.Y_train.indices, minlength=60))
    assert len(present) < 60
    assert len(model.trees_) == 3
    assert model.trees_[0] != model.trees_[1]
    for tree in model.trees_:
        np.testing.assert_array_equal(tree.labels(), present)
        assert max(len(node.children) for node in tree.nodes) <= 4


@pytest.mark.parametrize("max_depth", [1, 2, 3])
def test_trees_stop_at_max_depth(generated, max_depth):
    model = Bonsai(classifiers="leaf", branching_factor=3, max_leaf_size=2, max_depth=max_depth).fit(
        generated.X_train, generated.Y_train
    )
    assert {tree.depth for tree in model.trees_} == {max_depth}
    assert model.score(generated.X_test, generated.Y_test) > 0.4


# --- presets ---


@pytest.fixture(scope="module")
def many_labels():
    """250 labels in 10 groups, features for each label and each group; two labels of a group on each row."""
    label = np.arange(1000) % 250
    Y = np.zeros((1000, 250), int)
    X = np.zeros((1000, 550))
    for i, l in enumerate(label):
        partner = l // 25 * 25 + (l + 1 + i // 250) % 25
        Y[i, [l, partner]] = 1
        X[i, [2 * l, 2 * l + 1, 2 * partner, 2 * partner + 1]] = 1
        X[i, 500 + l // 25 * 5 : 505 + l // 25 * 5] = 0.5
    return sp.csr_array(X), sp.csr_array(Y)


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_grows_trees_of_its_shape(many_labels, name):
    X, Y = many_labels
    model = Bonsai.preset(name).fit(X, Y)
    assert model.score(X, Y) > 0.99
    assert len(model.trees_) == (1 if name in ("best", "dismec") else 3)
    for tree in model.trees_:
        np.testing.assert_array_equal(tree.labels(), np.arange(250))
        if name.startswith("bonsai"):
            assert 2 <= tree.depth <= 3
            assert 10 <= len(tree.nodes[0].children) <= 100
        elif name.startswith("parabel"):
            assert {len(node.children) for node in tree.nodes if not node.is_leaf} == {2}
            assert sorted(leaf_sizes(tree)) == [62, 62, 63, 63]
        elif name == "balanced":
            assert tree.depth == 2
            assert sorted(leaf_sizes(tree)) == [2] * 50 + [3] * 50
        else:
            assert (tree.n_nodes, tree.depth) == (1, 1)


def test_presets_are_the_papers_settings():
    paper = {
        "classifiers": "leaf",
        "n_trees": 3,
        "branching_factor": 100,
        "C": "auto",
        "loss": "squared_hinge",
        "prune": "auto",
        "beam_size": 10,
    }
    expected = {
        "bonsai-i": {"representation": "input", "max_depth": "auto", "balance": "none"},
        "bonsai-o": {"representation": "output", "max_depth": "auto", "balance": "none"},
        "bonsai-io": {"representation": "joint", "max_depth": "auto", "balance": "none"},
        "parabel": {
            "representation": "input",
            "branching_factor": 2,
            "balance": "equal",
            "max_leaf_size": 100,
            "max_depth": None,
        },
        "parabel-o": {
            "representation": "output",
            "branching_factor": 2,
            "balance": "equal",
            "max_leaf_size": 100,
            "max_depth": None,
        },
        "balanced": {"representation": "input", "balance": "equal", "max_depth": None},
        "dismec": {"n_trees": 1, "max_depth": 1, "prune": 0.01, "beam_size": None},
    }
    assert PRESETS.keys() == expected.keys()
    for name, settings in expected.items():
        params = Bonsai.preset(name).get_params()
        assert {key: params[key] for key in paper | settings} == paper | settings
    assert Bonsai.preset("bonsai-i", max_depth=2, C=3.0).get_params()["max_depth"] == 2


@pytest.mark.parametrize("branching", [2, 3, 7, 20])
def test_balanced_children_differ_by_one_at_most(many_labels, branching):
    model = Bonsai(
        classifiers="leaf",
        branching_factor=branching,
        balance="equal",
        max_leaf_size=10,
        max_depth=None,
        n_trees=1,
    ).fit(*many_labels)
    for node in model.trees_[0].nodes:
        sizes = [child.size for child in node.children]
        assert node.is_leaf == (node.size <= 10)
        if sizes:
            assert len(sizes) == min(branching, node.size)
            assert max(sizes) - min(sizes) <= 1


# --- edge cases ---


def test_fewer_labels_than_branching(blocks):
    X, Y = blocks(n_labels=12)
    model = Bonsai(classifiers="leaf", branching_factor=100).fit(X, Y)
    assert [tree.n_nodes for tree in model.trees_] == [1, 1, 1]
    assert model.score(X, Y) == 1.0
    split = Bonsai(classifiers="leaf", branching_factor=100, max_leaf_size=3).fit(
        X, Y
    )  # more clusters asked for than there are labels
    assert all(1 < len(tree.nodes[0].children) <= 12 for tree in split.trees_)
    assert split.score(X, Y) == 1.0


def test_one_label_is_enough_to_fit(blocks):
    X, _ = blocks()
    for Y in (np.ones((60, 1), int), [[0]] * 60, [["only"]] * 60):
        model = Bonsai().fit(X, Y)
        ids, scores = model.top_k(X, 1)
        assert (ids == 0).all()
        assert scores.min() > 0.5
        assert model.score(X, Y) == 1.0
    half = np.repeat([[1], [0]], 30, axis=0)
    apart = sp.vstack(
        [X[:30] * 1.0, sp.csr_array(np.eye(30, X.shape[1]))]
    )  # the first features of some labels
    assert np.isfinite(Bonsai().fit(apart, half).decision_function(apart).data).all()


def test_a_label_of_every_row_is_predicted(blocks):
    X, Y = blocks()
    Y = sp.hstack([Y, np.ones((60, 1), int)]).tocsr()
    model = Bonsai(classifiers="leaf", branching_factor=4, C=10.0, max_iter=200, beam_size=None).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X).toarray(), Y.toarray())
    assert model.score(X, Y) == 1.0


def test_rows_without_labels_are_allowed_and_count_in_the_score(blocks):
    X, Y = blocks()
    Y = Y.copy()
    Y.data[Y.indices == 11] = 0
    model = Bonsai(classifiers="leaf", branching_factor=4, C=10.0, max_iter=200).fit(X, Y)
    result = model.predict(X)
    assert (np.diff(result.indptr) == (Y.indices < 11)).all()
    assert model.score(X, Y) == 55 / 60  # rows without labels stay in the mean
    assert model.label_counts_.tolist() == [5] * 11 + [0]


@pytest.mark.parametrize("representation", ["input", "output", "joint", np.ones((60, 2))])
def test_labels_without_rows_are_never_predicted(generated, representation):
    absent = np.flatnonzero(np.bincount(generated.Y_train.indices, minlength=60) == 0)
    assert len(absent)
    model = Bonsai(representation, classifiers="leaf", branching_factor=6, beam_size=None).fit(
        generated.X_train, generated.Y_train
    )
    ids, _ = model.top_k(generated.X_test, 60)
    assert not np.isin(absent, ids).any()
    assert ((ids >= 0).sum(axis=1) == 60 - len(absent)).all()


@pytest.mark.parametrize("representation", ["input", "output", "joint"])
def test_identical_label_vectors_end_in_one_leaf(blocks, representation, monkeypatch):
    monkeypatch.setattr(strategy, "KMEANS_INIT", "k-means++")
    X, Y = blocks(n_labels=2)
    together = sp.csr_array(np.repeat(np.ones((60, 1), int), 40, axis=1))  # each row has all 40 labels
    model = Bonsai(representation, classifiers="leaf", branching_factor=2, max_leaf_size=1).fit(X, together)
    if representation == "input":
        assert [tree.n_nodes for tree in model.trees_] == [1, 1, 1]
    assert model.score(X, together) == 1.0
    # Two kinds of labels: one split, then leaves of 20.
    split = sp.csr_array(np.repeat(Y.toarray(), 20, axis=1))
    model = Bonsai(classifiers="leaf", branching_factor=2, max_leaf_size=1).fit(X, split)
    assert [sorted(leaf_sizes(tree)) for tree in model.trees_] == [[20, 20]] * 3
    assert model.score(X, split) == 1.0


def test_identical_label_vectors_in_balanced_trees(blocks):
    X, _ = blocks()
    together = sp.csr_array(np.ones((60, 40), int))
    model = Bonsai(classifiers="leaf", branching_factor=3, balance="equal", max_leaf_size=5, n_trees=1).fit(
        X, together
    )
    assert set(leaf_sizes(model.trees_[0])) == {4, 5}
    assert model.score(X, together) == 1.0


def test_labels_that_occur_with_nothing_are_spread(blocks):
    X, Y = blocks(n_labels=20)  # one label a row: all label vectors of the output space are zero
    model = Bonsai("output", classifiers="leaf", branching_factor=4, max_leaf_size=5).fit(X, Y)
    assert [leaf_sizes(tree) for tree in model.trees_] == [[5, 5, 5, 5]] * 3
    assert model.score(X, Y) == 1.0
    # 8 labels in two groups that come together, 12 alone: both groups take half of those.
    groups = np.hstack([np.repeat(Y.toarray()[:, [0, 1]], 4, axis=1), Y.toarray()[:, 8:]])
    model = Bonsai("output", classifiers="leaf", branching_factor=2, max_leaf_size=10).fit(X, groups)
    for tree in model.trees_:
        assert sorted(node.labels[:4].tolist() for node in tree.nodes[1:]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert leaf_sizes(tree) == [10, 10]


def test_identical_rows_can_be_fitted():
    X = np.tile([[1.0, 2, 0, 0, 0, 0]], (30, 1))
    Y = np.eye(5, dtype=int)[np.arange(30) % 5]
    model = Bonsai(classifiers="leaf", branching_factor=2, max_leaf_size=1).fit(X, Y)
    ids, scores = model.top_k(X, 5)
    assert (ids == ids[0]).all()
    assert sorted(ids[0]) == [0, 1, 2, 3, 4]
    assert np.isfinite(scores).all()


def test_a_single_row_and_a_single_feature():
    model = Bonsai().fit([[3.0]], [[0, 2]])
    assert model.classes_.tolist() == [0, 2]
    assert sorted(model.top_k([[1.0]], 3)[0][0].tolist()) == [-1, 0, 1]


def test_fitting_again_does_not_use_the_earlier_data(blocks, generated):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4).fit(generated.X_train, generated.Y_train).fit(X, Y)
    assert same_model(model, Bonsai(classifiers="leaf", branching_factor=4).fit(X, Y))
    assert (model.n_features_in_, len(model.classes_), model.n_rows_fit_) == (40, 12, 60)
