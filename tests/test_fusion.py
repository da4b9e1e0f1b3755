"""A fusion ranks by the weighted sum of its members' scores."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import bonsai_xmc
from bonsai_xmc import Bonsai, Fusion, RankedList, TextBonsai, datasets
from bonsai_xmc._data import labels as label_sets
from bonsai_xmc._estimators.fusion import _same_settings
from bonsai_xmc._model.fusion import best_sums
from bonsai_xmc._modelfile import container
from helpers import error_of, says
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


# --- ranked lists ---


def test_a_ranked_list_by_hand(tmp_path):
    """Scores beyond [0, 1] are scaled to it; entries of 0 and rows without scores are listed, too."""
    ids, scores = [[2, 0, 1], [1, 2, -1]], [[6.0, 3.0, 0.0], [0.0, 0.0, 0.0]]
    model = RankedList(["a", "b", "c"]).fit((np.array(ids), np.array(scores)))
    found = model.top_k((np.array(ids), np.array(scores)), 3)
    assert found[0].tolist() == ids
    assert np.allclose(found[1], [[1, 0.5, 0], [1 / 6, 0.5 / 6, 0]])
    assert model.top_k((np.array([[1, 0, 2]]), np.array([[9.0, 8.0, 0.5]])), 2)[0].tolist() == [[1, 0]]
    assert [label for label, _ in model.drop(["c"]).top_k_labels((np.array(ids), np.array(scores)))[0]] == [
        "a",
        "b",
    ]
    model.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m", verify=True)
    assert again.classes_.tolist() == ["a", "b", "c"] and again.get_params()["threshold"] == "auto"


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (([[0, 3]], [[1.0, 0.5]]), "label id 3 is outside 0..2"),
        (([[1, 1]], [[1.0, 0.5]]), "label id 1 occurs twice"),
        (([[0, 1]], [[1.0, np.inf]]), "scores of a ranked list must be finite"),
        (([[0, 1]], [[1.0]]), "ids and scores must have one shape"),
        (([[0, 1]],), "a ranked list is a pair of ids and scores, but X has 1 parts"),
        (np.ones((2, 4)), "X has 4 columns, but there are 3 classes"),
    ],
)
def test_invalid_lists_are_refused(X, message):
    with says(message):
        RankedList([0, 1, 2]).fit(X)
    with says("classes must be distinct labels"):
        RankedList(["a", "b", "a"]).fit(np.ones((2, 3)))


def _lists():
    """Return a case, and the ranking of other trees for its rows, as ids and scores and as a matrix."""
    case = case_of("exact")
    other = case_of("leaf").model
    return case, other.top_k(case.X, 25), other.predict_proba(case.X)


def test_a_fusion_with_a_list_is_that_with_the_model_that_made_it():
    case, pair, matrix = _lists()
    models = {"linear": case.model, "trees": case_of("leaf").model}
    options = {"link": "root", "weights": [2, 1]}
    wanted = Fusion.of(models, case.X, case.Y, **options).top_k(case.X, 5)
    for ranked in (pair, matrix):
        with_list = models | {"trees": RankedList(case.model.classes_).fit(ranked)}
        X = {"linear": case.X, "trees": ranked}
        model = Fusion.of(with_list, X, case.Y, **options)
        ids, scores = model.top_k(X, 5)
        assert np.array_equal(ids, wanted[0]) and np.allclose(scores, wanted[1], rtol=1e-5)
    label = model.classes_[ids[0, 0]]
    why = model.explain({"linear": case.X[[0]], "trees": matrix[[0]]}, label)
    assert {one.name for one in why.members} == {"linear", "trees"} and "the ranked list" in why.to_text()
    with says("'linear', 'trees'; 'trees' is a list of another system"):
        model.top_k(case.X, 5)


def test_a_list_is_weighted_by_the_rows_of_fit(tmp_path):
    """A list that has the right labels outweighs classifiers; a list at random is left out."""
    case = case_of("exact")
    Y = label_sets.over_classes(case.Y_train, case.model.classes_)
    members = [("linear", case.unfitted), ("list", RankedList(case.model.classes_))]
    right = Fusion(members, n_jobs=1).fit({"linear": case.X_train, "list": Y}, case.Y_train)
    assert right.weights_["list"] > 0.5
    right.save(tmp_path / "a")
    Fusion(members, n_jobs=3).fit({"linear": case.X_train, "list": Y}, case.Y_train).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    noise = np.random.default_rng(0).random(Y.shape)
    wrong = Fusion(members, n_jobs=1).fit({"linear": case.X_train, "list": noise}, case.Y_train)
    assert wrong.weights_ == {"linear": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two models that know different labels, and documents."""
    path, data = tmp_path_factory.mktemp("fuse"), datasets.make_texts(500, n_test=120, random_state=0)
    classifier = Bonsai(classifiers="one_vs_rest", threshold=0.3, n_jobs=1)
    parts = {"a": slice(0, 200), "b": slice(200, 500)}
    for name, rows in parts.items():
        model = TextBonsai(classifier=classifier, char_ngrams=None)
        model.fit(data.texts_train[rows], data.labels_train[rows]).save(path / f"{name}.bonsai")
    for name, rows in {"dev": slice(0, 60), "test": slice(60, 120)}.items():
        pairs = zip(data.texts_test[rows], data.labels_test[rows], strict=True)
        lines = [json.dumps({"text": text, "labels": labels}) for text, labels in pairs]
        (path / f"{name}.jsonl").write_text("\n".join(lines))
    return path


def test_fuse_takes_models(bonsai):
    table = bonsai("fuse", "a.bonsai", "b.bonsai", "--on", "dev.jsonl", "-o", "both.bonsai")
    assert "60 held-out rows" in table
    found = json.loads(
        bonsai("fuse", "a.bonsai", "b.bonsai", "--on", "dev.jsonl", "-o", "both.bonsai", "--json")
    )
    assert sum(found["weights"].values()) == pytest.approx(1)
    assert (
        error_of(bonsai, "fuse", "a.bonsai", "--on", "dev.jsonl", "-o", "c")
        == "fuse takes two models or more"
    )


def test_fuse_takes_a_ranked_list(bonsai, folder):
    for part in ("dev", "test"):
        bonsai("predict", "b.bonsai", f"{part}.jsonl", "-k", 20, "-o", f"{part}-b.jsonl", "-q")
    bonsai("fuse", "a.bonsai", "dev-b.jsonl", "--on", "dev.jsonl", "-o", "c.bonsai", "-q")
    model = bonsai_xmc.load(folder / "c.bonsai")
    assert model.weights_["dev-b"] > 0.2
    known = bonsai_xmc.load(folder / "a.bonsai").classes_
    assert len(model.classes_) > len(known)  # labels of the list are labels of the fusion
    bonsai("predict", "c.bonsai", "test.jsonl", "--list", "test-b.jsonl", "-o", "c.jsonl", "-q")
    lines = [json.loads(line)["labels"] for line in (folder / "c.jsonl").read_text().splitlines()]
    listed = [json.loads(line)["labels"] for line in (folder / "test-b.jsonl").read_text().splitlines()]
    texts = [json.loads(line)["text"] for line in (folder / "test.jsonl").read_text().splitlines()]
    column = {label: i for i, label in enumerate(model.members_["dev-b"].classes_)}
    scores = np.zeros((60, len(column)), np.float32)
    for row, of_row in zip(scores, listed, strict=True):
        for one in of_row:
            if one["label"] in column:
                row[column[one["label"]]] = one["score"]
    wanted = model.top_k_labels({"a": texts, "dev-b": sp.csr_array(scores)}, 5)
    assert [[one["label"] for one in of_row] for of_row in lines] == [[l for l, _ in row] for row in wanted]
    figures = json.loads(bonsai("evaluate", "c.bonsai", "test.jsonl", "--list", "test-b.jsonl", "--json"))
    alone = json.loads(bonsai("evaluate", "a.bonsai", "test.jsonl", "--json"))
    assert figures["P@1"] > alone["P@1"]
    assert "dev-b" in bonsai("explain", "c.bonsai", "test.jsonl", "--list", "test-b.jsonl", "-k", 1)


def test_lists_of_numbers_count_the_labels_of_the_models(bonsai, folder):
    bonsai("predict", "a.bonsai", "dev.jsonl", "-k", 20, "-o", "a.txt", "-q")
    out = bonsai(
        "fuse", "a.bonsai", "a.txt", "--on", "dev.jsonl", "-o", "d.bonsai", "--json", "--link", "rank"
    )
    figures = json.loads(out)["chosen"]["figures"]
    assert figures["a.bonsai"] == figures["a.txt"]
    bonsai("predict", "b.bonsai", "dev.jsonl", "-k", 20, "-o", "b.txt", "-q")
    assert "give predictions as JSON lines" in error_of(
        bonsai, "fuse", "a.bonsai", "b.txt", "--on", "dev.jsonl", "-o", "d.bonsai"
    )


def test_a_list_that_is_missing_is_named(bonsai, folder):
    bonsai("predict", "b.bonsai", "dev.jsonl", "-k", 20, "-o", "b.jsonl", "-q")
    fuse = ("fuse", "a.bonsai", "b.jsonl", "--on", "dev.jsonl", "-o", "e.bonsai", "-q")
    bonsai(*fuse)
    said = error_of(bonsai, "predict", "e.bonsai", "dev.jsonl")
    assert said.startswith("e.bonsai ranks also by lists of other systems (b): --list FILE")
    assert "ranks also by lists of other systems (b)" in error_of(bonsai, "serve", "e.bonsai")
    said = error_of(bonsai, "predict", "a.bonsai", "dev.jsonl", "--list", "b.jsonl")
    assert said == "--list is for a model with a ranked list as a member; this one has none"
    assert "at least one model" in error_of(bonsai, "fuse", "b.jsonl", "b.jsonl", *fuse[3:])
    (folder / "short.jsonl").write_text("".join((folder / "b.jsonl").read_text().splitlines(True)[:9]))
    said = error_of(bonsai, "predict", "e.bonsai", "dev.jsonl", "--list", "short.jsonl")
    assert said == "short.jsonl has no predictions for row 10 of dev.jsonl"
