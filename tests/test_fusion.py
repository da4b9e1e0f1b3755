"""A fusion ranks by the weighted sum of its members' scores."""

import numpy as np
import pytest
import scipy.sparse as sp

import bonsai_xmc
from bonsai_xmc import Bonsai, Fusion, TextBonsai
from bonsai_xmc._estimators.fusion import _same_settings
from bonsai_xmc._model.fusion import best_sums
from bonsai_xmc._modelfile import container
from helpers import says
from kinds import case_of, fusion_of, system_of


def reference(model, X, k):
    """Return scores by plain loops over the 100 best labels of each member, summed by label."""
    rows = [{} for _ in range(X.shape[0])]
    for name, member in model.members_.items():
        weight, link = model.weights_[name], model.links_[name]
        for row, ranked in zip(rows, member.top_k_labels(X, 100), strict=True):
            for rank, (label, score) in enumerate(ranked, 1):
                value = {"rank": 61 / (60 + rank), "root": score ** (1 / 3)}.get(link, score)
                row[label] = row.get(label, 0.0) + weight * value
    place = {label: i for i, label in enumerate(model.classes_.tolist())}
    return [sorted(row.items(), key=lambda pair: (-pair[1], place[pair[0]]))[:k] for row in rows]


@pytest.mark.parametrize("kind", ["fusion, scores", "fusion, ranks", "fusion, roots"])
def test_scores_are_those_of_plain_loops(kind):
    case = case_of(kind)
    found = case.model.top_k_labels(case.X, 6)
    for got, wanted in zip(found, reference(case.model, case.X, 6), strict=True):
        assert [score for _, score in got] == pytest.approx([score for _, score in wanted], rel=1e-5)


def test_sums_by_hand():
    ids = np.array([[2, 0, 2, 1], [-1, 1, -1, -1]])
    values = np.array([[0.5, 0.25, 0.25, 0.25], [0.0, 0.125, 0.0, 0.0]])
    found, scores = best_sums(ids, values, 3, 5)
    assert found.tolist() == [[2, 0, 1], [1, -1, -1]]
    assert np.allclose(np.exp(scores), [[0.75, 0.25, 0.25], [0.125, 0, 0]])


def test_members_read_rows_of_their_own(tmp_path):
    case = case_of("exact")
    dense = case.X_train.toarray()[:, :20] + 0.1
    train = {"linear": case.X_train, "trees": dense}
    model = fusion_of(link="score", weights=[1, 1]).fit(train, case.Y_train)
    X = {"linear": case.X, "trees": case.X.toarray()[:, :20] + 0.1}
    ids, scores = model.top_k(X, 5)
    assert model.n_features_in_ == 110
    model.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m").top_k(X, 5)
    assert np.array_equal(again[0], ids) and np.array_equal(again[1], scores)
    with says("pass X as a mapping with the keys 'linear', 'trees'"):
        model.top_k(case.X, 5)
    with says("X is a mapping without the member 'trees'"):
        model.top_k({"linear": case.X}, 5)


def test_a_member_that_gains_nothing_is_left_out():
    case = case_of("exact")
    noise = sp.csr_array(np.random.default_rng(0).random((case.X_train.shape[0], 5)))
    X = {"linear": case.X_train, "noise": noise}
    members = [("linear", case.unfitted), ("noise", system_of("fastxml"))]
    model = Fusion(members, n_jobs=1).fit(X, case.Y_train)
    assert model.weights_ == {"linear": 1.0}
    assert set(model.chosen_["figures"]) == {"linear", "noise", "fusion"}


def test_labels_of_the_members_may_differ():
    case = case_of("exact")
    parts = case.model.drop(["label 1"]), case.model.drop(["label 2"])
    model = Fusion.of(parts, case.X, case.Y, link="score", weights=[1, 1])
    assert set(model.classes_) == set(case.model.classes_)
    with says("some of the models have names as labels, and others integers"):
        Fusion.of([case.model, case_of("imported").model], case.X, case.Y)


def test_shares_add_up_to_the_score():
    case = case_of("fusion of texts")
    label = case.model.suggest(case.X[0], 1)[0][0]
    why = case.model.explain(case.X[0], label)
    assert sum(one.share for one in why.members) == pytest.approx(1)
    assert sum(one.weight * one.value for one in why.members) == pytest.approx(why.score, rel=1e-5)
    assert all(one.name in why.to_text() for one in why.members)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a", Bonsai()), ("a", Bonsai())], "two members are called 'a'"),
        ([("a__b", Bonsai())], "choose another name"),
        ([], "there are 0 members"),
    ],
)
def test_invalid_members_are_refused(members, message):
    with says(message):
        Fusion(members).fit([[1, 0], [0, 1]], [["a"], ["b"]])


def test_a_hostile_file_is_refused(tmp_path):
    path = tmp_path / "m"
    case_of("fused files").model.save(path)
    file = container.loads(path.read_bytes())
    for old, new in [
        ('"link": "calibrated"', '"link": "other"'),
        ('"depth": 100', '"depth": -1'),
        ('"weight": 0.75', '"weight": 1e999'),
        ('"name": "leaves"', '"name": "trees"'),
        ('"shared": true', '"shared": 1'),
    ]:
        changed = file.metadata["ranker"].replace(old, new)
        assert changed != file.metadata["ranker"], old
        metadata = {**file.metadata, "ranker": changed}
        container.write(path, file.arrays, metadata, list(file.requires), check=lambda _: None)
        with pytest.raises(bonsai_xmc.FormatError):
            bonsai_xmc.load(path)
    arrays = dict(file.arrays) | {"ranker.labels.0": np.full(24, 10**6, np.int32)}
    container.write(path, arrays, file.metadata, list(file.requires), check=lambda _: None)
    with pytest.raises(bonsai_xmc.FormatError):
        bonsai_xmc.load(path)


def test_a_fusion_may_be_a_member(tmp_path):
    case = case_of("fusion, scores")
    linear = case_of("exact").model
    model = Fusion.of([case.model, linear], case.X, case.Y, link="score", weights=[1, 1])
    model.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m")
    assert np.array_equal(again.top_k(case.X, 5)[0], model.top_k(case.X, 5)[0])


def test_parameters_of_members_are_parameters():
    model = Fusion([("words", TextBonsai(min_df=1))]).set_params(words__min_df=3)
    assert model.get_params()["words__min_df"] == 3


def test_members_of_half_the_rows_have_the_settings_of_the_whole():
    """So do trees over rows, which the choice of the default may have added."""
    case = case_of("blend, row trees")
    half = _same_settings(case.model).get_params()
    chosen = case.model.strategy_
    for name in ("classifiers", "C", "logit_adjustment"):
        assert half[name] == getattr(chosen, name)
    assert half["blend_weight"] == (chosen.blend_weight, chosen.row_tree_weight)


def test_imported_models_may_be_members(tmp_path):
    """The rows and label frequencies of imported models are unknown."""
    case = case_of("imported")
    whole, part = case.model, case.model.drop([3])
    model = Fusion.of({"whole": whole, "part": part}, case.X, case.Y, link="rank", weights=[1, 1])
    assert model.n_rows_fit_ is None and set(model.classes_) == set(whole.classes_)
    model.save(tmp_path / "m")
    found = bonsai_xmc.load(tmp_path / "m").top_k_labels(case.X, 6)
    for got, wanted in zip(found, reference(model, case.X, 6), strict=True):
        assert [score for _, score in got] == pytest.approx([score for _, score in wanted], rel=1e-5)
