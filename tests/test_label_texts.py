"""Texts of labels: files, vectors, the prior made from them, and labels without rows."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import bonsai_xmc
import reference
from bonsai_xmc import Bonsai, TextBonsai, datasets
from bonsai_xmc._base.described import check_value
from bonsai_xmc._data import rows as rows_module
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._model.label_prior import (
    FEWEST_ROWS,
    USUAL,
    LabelPrior,
    row_class,
    text_vectors,
    texts_of,
    weights_of,
)
from bonsai_xmc._model.predict import text_rows
from bonsai_xmc._modelfile.schema import KEYS
from bonsai_xmc._selection import prior as prior_search
from bonsai_xmc._selection import strategy
from bonsai_xmc._selection.prior import Candidates, search
from bonsai_xmc._training import recipes
from bonsai_xmc._training import train as train_module
from bonsai_xmc.metrics._ranking import Truth
from helpers import random_csr, text_bonsai

WORDS = [f"{a}{b}" for a in ("brick", "heat", "garden", "timber", "music") for b in "abcdefghijklmnopqrst"]


def make_corpus(n_rows, seed=0):
    """Texts that name their labels, which are 100 words; frequent ones come first."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, len(WORDS) + 1)
    labels = [
        [
            f"l:{word}"
            for word in rng.choice(WORDS, rng.integers(1, 3), replace=False, p=frequency / frequency.sum())
        ]
        for _ in range(n_rows)
    ]
    noise = [f"noise{i}" for i in range(50)]
    texts = [
        " ".join(
            [*rng.permutation([label[2:] for label in row if rng.random() < 0.8]), *rng.choice(noise, 6)]
        )
        for row in labels
    ]
    return texts, labels


TEXTS = {f"l:{word}": word for word in WORDS} | {"l:none": "unheard-of"}


@pytest.fixture(scope="module")
def corpus():
    texts, labels = make_corpus(1500)
    unseen = {"l:" + word for word in WORDS[5::10]}
    keep = [i for i, row in enumerate(labels) if not unseen & set(row)]
    return [texts[i] for i in keep], [labels[i] for i in keep], sorted(unseen)


@pytest.fixture(scope="module")
def plain(corpus):
    return TextBonsai(min_df=1, classifier=Bonsai(classifiers="one_vs_rest", threshold=0.5)).fit(*corpus[:2])


@pytest.fixture(scope="module")
def model(corpus):
    # words of labels without rows must occur in some document: the vectorizer has no others
    texts, labels, unseen = corpus
    more = [" ".join(label[2:] for label in unseen)] * 2
    estimator = TextBonsai(
        min_df=1, label_texts=TEXTS, classifier=Bonsai(classifiers="one_vs_rest", threshold=0.5)
    )
    return estimator.fit([*texts, *more], [*labels, [], []])


def test_labels_without_rows_are_found_by_their_texts(model, corpus):
    unseen = corpus[2]
    assert set(model.classes_) == set(TEXTS) | {label for row in corpus[1] for label in row}
    for label in unseen:
        assert model.suggest(f"on {label[2:]} and noise1", k=1)[0][0] == label
    assert model.label_counts_[[list(model.classes_).index(label) for label in unseen]].tolist() == [0] * len(
        unseen
    )
    assert model.label_names_[list(model.classes_).index("l:none")] == "unheard-of"


def test_the_others_keep_their_precision(model, plain):
    texts, labels = make_corpus(400, seed=7)
    known = set(plain.classes_)
    truth = [[label for label in row if label in known] for row in labels]

    def precision(estimator):
        ranked = [[label for label, _ in row][:3] for row in estimator.suggest(texts, k=3)]
        return np.mean([len(set(a) & set(b)) for a, b in zip(ranked, truth, strict=True)])

    assert precision(model) >= precision(plain) - 0.02


def test_the_same_for_any_number_of_threads(model, corpus, tmp_path):
    texts, labels, unseen = corpus
    more = [" ".join(label[2:] for label in unseen)] * 2
    again = TextBonsai(
        min_df=1, label_texts=TEXTS, classifier=Bonsai(classifiers="one_vs_rest", threshold=0.5, n_jobs=1)
    )
    again.fit([*texts, *more], [*labels, [], []])
    for name, estimator in (("a", model), ("b", again)):
        estimator.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_label_prior_is_stored_without_the_texts(model, tmp_path):
    prior = model.label_prior_
    assert len(prior["weights"]) == len(prior["offsets"]) == len(FEWEST_ROWS)
    assert "held-out rows" in prior["evidence"]
    model.save(tmp_path / "m")
    loaded = TextBonsai.load(tmp_path / "m")
    assert loaded.label_prior_ == prior and loaded.label_texts is None
    assert loaded.suggest("brickf", 3) == model.suggest("brickf", 3)


def test_weights_are_those_of_the_rows_and_of_the_text(corpus, monkeypatch):
    """w + β v and b + δ, but for the rounding to 8 bits; the prior of few rows is the usual one."""
    monkeypatch.setattr(strategy, "FREQUENT_SHARE", 1.0)  # all labels have a bias of −1
    texts, labels = corpus[0][:300], corpus[1][:300]
    options = {"min_df": 1, "classifiers": "one_vs_rest", "threshold": 0.5}
    before = text_bonsai(**options).fit(texts, labels)
    after = text_bonsai(**options, label_texts={"l:bricka": ["bricka", "noise1 noise2"]}).fit(texts, labels)
    assert after.label_prior_["weights"] == list(USUAL.weights)
    i = list(before.classes_).index("l:bricka")
    cores = (before.fitted_.linear.core, after.fitted_.linear.core)
    (old, old_bias), (new, new_bias) = (weights_of(core.one_vs_rest) for core in cores)
    first, second = (before._rows([text], before.fitted_) for text in ("bricka", "noise1 noise2"))
    v = np.zeros(before.n_features_in_)
    for _, indices, values, _ in (first, second):
        v[indices] += values
    v /= np.linalg.norm(v)
    kind = row_class(before.label_counts_)[i]
    expected = old[[i]].toarray()[0] + USUAL.weights[kind] * v
    np.testing.assert_allclose(new[[i]].toarray()[0], expected, atol=np.abs(expected).max() / 127)
    assert new_bias[i] == pytest.approx(old_bias[i] + USUAL.offsets[kind])
    others = np.arange(len(old_bias)) != i
    assert (old[others] != new[others]).nnz == 0


def test_add_labels_keeps_existing_predictions(plain, corpus):
    model = TextBonsai(min_df=1, classifier=Bonsai(classifiers="one_vs_rest", threshold=0.5)).fit(*corpus[:2])
    before = model.suggest(["bricka", "noise4 noise5"], k=3)
    n = len(model.classes_)
    model = model.add_labels({"new": "noise4 noise5", "l:bricka": "noise4"})
    assert list(model.classes_[n:]) == ["new"] and model.label_names_[-1] == "noise4 noise5"
    assert model.suggest("noise4 noise5", k=1)[0][0] == "new"
    assert model.suggest("bricka", k=1) == before[0][:1]  # other predictions stay
    assert model.add_labels({"new": "heata"}).label_names_[-1] == "noise4 noise5"


def test_label_texts_add_integer_labels_and_columns():
    numbers = TextBonsai(
        min_df=1, label_texts={"7": "three", 3: ["one"]}, classifier=Bonsai(classifiers="one_vs_rest")
    )
    numbers.fit(["one", "two three", "two"], [[1], [2], [2]])
    assert numbers.classes_.tolist() == [1, 2, 3, 7]
    assert numbers.label_names_ == ["1", "2", "one", "three"]
    matrix = TextBonsai(min_df=1, label_texts={2: "three"}).fit(
        ["one", "two three"], np.array([[1, 0, 0], [0, 1, 0]])
    )
    assert matrix.suggest("three", k=3)[1][0] == 2
    with pytest.raises(
        ValueError, match="label_texts has the label 'x', but the labels of the rows are integers"
    ):
        TextBonsai(min_df=1, label_texts={"x": "three"}).fit(["one", "two"], [[1], [2]])


def test_label_texts_are_used_in_blends(corpus):
    model = TextBonsai(
        min_df=1, label_texts={"new": "noise4 noise5"}, classifier=Bonsai(classifiers="blend", threshold=0.5)
    )
    model.fit(corpus[0][:300], corpus[1][:300])
    assert "new" in [label for label, _ in model.suggest("noise4 noise5", k=3)]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (3, TypeError, "label_texts is of type int, but must map labels to their texts, or be a path"),
        ({"a": 3}, TypeError, r"label_texts\['a'\] is 3, but must be a text, or a list of texts"),
        ({"a": ["b", None]}, TypeError, r"label_texts\['a'\] holds None, but texts are strings"),
        ({"a": "xyzzy"}, ValueError, "label_texts has no text with a word of the documents, in 1 labels"),
    ],
)
def test_invalid_label_texts_are_rejected(given, error, message):
    with pytest.raises(error, match=message):
        TextBonsai(min_df=1, label_texts=given).fit(["one", "two"], [["a"], ["b"]])


def test_leaf_classifiers_take_no_label_texts():
    model = TextBonsai(min_df=1, label_texts={"a": "one"}, classifier=Bonsai(classifiers="leaf"))
    with pytest.raises(ValueError, match=r"label_texts needs one-vs-rest classifiers, but .*: train with"):
        model.fit(["one", "two"], [["a"], ["b"]])
    model.set_params(label_texts=None).fit(["one", "two"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="add_labels needs one-vs-rest classifiers"):
        model.add_labels({"c": "two"})


def test_a_malformed_label_prior_is_rejected():
    good = USUAL.to_json()
    assert LabelPrior.from_json(good) == USUAL
    check_value("prior", good, KEYS["text"]["prior?"])
    for bad in ({"weights": []}, good | {"weights": [1.0]}, good | {"offsets": ["x"] * len(FEWEST_ROWS)}):
        with pytest.raises(ValueError, match=r"^prior(\.weights is|\.offsets\[0\] is)"):
            check_value("prior", bad, KEYS["text"]["prior?"])


# the search


def test_search_lets_labels_without_rows_in_only_where_they_do_not_cost_others():
    """Ten rows, each with a right label with rows; in the first two a label without rows is right as well."""
    n, width = 10, 12
    margin = np.full((n, width), -5.0, np.float32)
    similarity = np.zeros((n, width), np.float32)
    counts = np.full(width, FEWEST_ROWS[-1])
    margin[:, 0] = 0.4
    counts[1], margin[:, 1], similarity[:, 1], similarity[:2, 1] = 0, -1, 0.6, 0.95
    truth = labels_of([{0, 1}] * 2 + [{0}] * 8)
    labels = Truth(truth.indptr, truth.indices).rank(np.tile(np.arange(width), (n, 1)))
    found = Candidates(labels, margin, similarity, np.zeros_like(margin), counts)
    prior = search(found, "squared_hinge", 100)
    figures = found.figures(np.array(prior.weights), np.array(prior.offsets), "squared_hinge")
    assert figures[0] == pytest.approx(100) and figures[1] == pytest.approx(100)
    assert "10 held-out rows, models of 100 others" in prior.evidence


def test_candidates_are_the_best_of_each_kind(monkeypatch):
    """Against all margins and similarities, computed densely."""
    rng = np.random.default_rng(0)
    X = random_csr((30, 40), density=0.3, rng=rng, dtype=np.float32)
    Y = sp.csr_array((rng.random((30, 200)) < 0.02).astype(np.float32))
    monkeypatch.setattr(prior_search, "_CANDIDATES", 12)
    problem = Bonsai()._problem(training_rows(X, "Bonsai"), Y)
    weights = random_csr((200, 40), density=0.2, rng=rng, dtype=np.float32)
    vectors = random_csr((260, 40), density=0.2, rng=rng, dtype=np.float32)
    bias = np.full(200, -1, np.float32)
    counts = np.concatenate([rng.integers(0, 40, 200), np.zeros(60, np.int64)])
    bias[counts[:200] == 0] = -np.inf
    found = prior_search.candidates_of(problem, weights, bias, vectors, counts, 0.5)
    rows = np.flatnonzero(np.diff(problem.labels.indptr))
    margins = np.full((30, 260), -np.inf)
    margins[:, :200] = (X @ weights.T).toarray() + bias
    similarity = (X @ vectors.T).toarray()
    truth = np.zeros((30, 260), bool)
    truth[:, :200] = Y.toarray() > 0
    has_text = np.diff(vectors.indptr) > 0
    for place, row in enumerate(rows):
        wanted = set(np.argsort(-margins[row])[:12])
        for some in (has_text & (counts == 0), has_text & (counts > 0) & (counts < 30)):
            group = np.flatnonzero(some)
            wanted |= set(group[np.argsort(-similarity[row, group])[:12]])
        there = found.margin[place] > -np.inf
        assert there.sum() == len(wanted)
        own = [max(margins[row, i], -1) if margins[row, i] == -np.inf else margins[row, i] for i in wanted]
        np.testing.assert_allclose(np.sort(found.margin[place][there]), np.sort(own), rtol=1e-5)
        assert found.labels.is_true[place].sum() == truth[row, list(wanted)].sum()
        assert found.labels.truth.n_true[place] == truth[row].sum()


# files


def test_files_of_label_texts(tmp_path):
    (tmp_path / "a.tsv").write_text("1\tadhesive\tglue|paste\t2\n2\tState trading\t\t1|3\n3\t\n")
    assert datasets.read_label_texts(tmp_path / "a.tsv") == {
        "1": ["adhesive", "glue", "paste"],
        "2": ["State trading"],
    }
    assert datasets.read_label_names(tmp_path / "a.tsv") == {"1": "adhesive", "2": "State trading"}
    record = {
        "id": "x",
        "prefLabel": "Bricks",
        "altLabel": ["clinker", "Bricks"],
        "definition": "Burnt clay.",
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    assert texts_of(tmp_path / "a.jsonl") == {"x": ["Bricks", "clinker", "Burnt clay."]}
    (tmp_path / "empty.tsv").write_text("1\t\n")
    with pytest.raises(ValueError, match=r"empty.tsv holds no texts of labels"):
        datasets.read_label_texts(tmp_path / "empty.tsv")


def test_texts_of_labels_are_read_as_the_field_with_own_blocks():
    """For any name and position of that field."""
    long = "of the old house in the town " * 20
    rows = [{"text": long, "about": f"{word}ing"} for word in ("brick", "heat", "wall", "pump") * 5]
    model = TextBonsai(["text", "about"], classifier=Bonsai(threshold=0.5)).fit(
        rows, [[row["about"]] for row in rows]
    )
    text = model.fitted_.text
    names = [block.name for block in text.plan.blocks]
    vector = text_vectors(text, [["brick"]], 1)
    own = text.block_slices()[names.index("about char_wb 5")]
    assert vector[:, own].nnz > 0


# --- clusters by names ---

NAMES = {"a1": "red brick", "a2": "brick", "b1": ["heat pump", "pump"], "b2": "heat", "none": "unseen"}
DOCUMENTS = [f"{word} {other}" for word in ("wall", "house", "gas", "oil") for other in ("old", "new")]
OWN = [["a1", "b1"], ["a1"], ["a2"], ["a2", "b2"], ["b1"], ["b1", "a2"], ["b2"], ["b2", "a1"]]
BY_NAMES = ["text", "input+text", "output+text", "joint+text"]


def by_names(representation, **given):
    trees = {"classifiers": "leaf", "branching_factor": 2, "max_leaf_size": 2, "threshold": 0.5, "n_jobs": 1}
    bonsai = Bonsai(representation, **trees)
    return TextBonsai(min_df=1, classifier=bonsai, **given)


def word_vectors(names):
    """TF-IDF of the words of each name, by hand: 1 + log tf, smoothed idf."""
    texts = [" ".join([name] if isinstance(name, str) else name).split() for name in names]
    words = sorted({word for text in texts for word in text})
    df = np.array([sum(word in text for text in texts) for word in words])
    tf = np.array([[text.count(word) for word in words] for text in texts], float)
    values = np.where(tf > 0, 1 + np.log(np.maximum(tf, 1)), 0) * (np.log((1 + len(texts)) / (1 + df)) + 1)
    return reference.unit_rows(values)


@pytest.mark.parametrize("encoder", [None, "letters"])
@pytest.mark.parametrize("representation", BY_NAMES)
def test_labels_are_clustered_by_their_names(representation, encoder, monkeypatch):
    made = []
    monkeypatch.setattr(
        train_module, "label_vectors", lambda m, n: made.append(m) or rows_module.label_vectors(m, n)
    )
    whole = []
    join = recipes.side_by_side
    monkeypatch.setattr(recipes, "side_by_side", lambda *args: whole.append(join(*args)) or whole[-1])
    letters = lambda texts: np.array([[text.count(one) for one in "abehikmprtu"] for text in texts])
    model = by_names(representation, label_texts=NAMES, encoder=encoder and letters)
    model.fit(DOCUMENTS, OWN)
    classes = ["a1", "a2", "b1", "b2"]
    expected = word_vectors([NAMES[label] for label in classes])
    if encoder:
        means = np.array(
            [letters([text] if isinstance(text, str) else text).mean(axis=0) for text in NAMES.values()]
        )
        expected = reference.unit_rows(means - means.mean(axis=0))[:4]
    found = made[0].toarray() if sp.issparse(made[0]) else made[0]
    assert np.allclose(found @ found.T, expected @ expected.T, atol=1e-5)
    if representation == "text":
        return
    X = TextBonsai(min_df=1, classifier=Bonsai(classifiers="leaf")).fit(DOCUMENTS, OWN)
    X = text_rows(DOCUMENTS, X.fitted_, 1).to_scipy().toarray()
    Y = np.array([[label in row for label in classes] for row in OWN], float)
    vectors = reference.label_vectors(X, Y, representation, names=found)
    arrays = whole[0].arrays()
    got = sp.csr_array((arrays[2], arrays[1], arrays[0]), shape=(4, arrays[3])).toarray()
    assert np.allclose(got, vectors, atol=1e-5)


def test_clusters_by_names_are_those_of_the_names():
    model = by_names("text", label_texts=NAMES).fit(DOCUMENTS, OWN)
    vectors = word_vectors([NAMES[label] for label in ("a1", "a2", "b1", "b2")])
    assert model.classifier_.trees_ == by_names(vectors).fit(DOCUMENTS, OWN).classifier_.trees_
    found = [sorted(node.labels.tolist() for node in tree.nodes[1:]) for tree in model.classifier_.trees_]
    assert [[0, 1], [2, 3]] in found  # a tree whose first centres are of one kind is not split
    assert model.label_names_ == ["red brick", "brick", "heat pump", "heat"]
    assert model.memory_estimate(DOCUMENTS, OWN)["phases"]["label vectors"] > 0


def test_a_checkpoint_depends_on_the_names(tmp_path):
    model = by_names("text", label_texts=NAMES).fit(DOCUMENTS, OWN, checkpoint=tmp_path / "kept")
    again = by_names("text", label_texts=NAMES).fit(DOCUMENTS, OWN, checkpoint=tmp_path / "kept")
    assert again.classifier_.trees_ == model.classifier_.trees_
    with pytest.raises(ValueError, match="name vectors"):
        by_names("text", label_texts=NAMES | {"a1": "pump"}).fit(DOCUMENTS, OWN, checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("representation", BY_NAMES)
def test_clusters_by_names_come_back_from_a_file(tmp_path, representation):
    model = by_names(representation, label_texts=NAMES).fit(DOCUMENTS, OWN)
    model.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m")
    assert again.get_params()["classifier__representation"] == representation
    assert again.strategy_ == model.strategy_ and again.label_names_ == model.label_names_
    assert again.classifier_.trees_ == model.classifier_.trees_
    assert np.array_equal(again.top_k(DOCUMENTS, 4)[1], model.top_k(DOCUMENTS, 4)[1])


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.mark.parametrize("representation", BY_NAMES)
def test_clusters_by_names_on_the_command_line(tmp_path, bonsai, representation):
    rows = [{"text": text, "labels": labels} for text, labels in zip(DOCUMENTS, OWN, strict=True)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = {label: name if isinstance(name, str) else name[0] for label, name in NAMES.items()}
    (tmp_path / "names.tsv").write_text("".join(f"{label}\t{name}\n" for label, name in names.items()))
    given = ["--classifiers", "leaf", "--branching-factor", 2, "--max-leaf-size", 2, "--threshold", 0.5]
    given += ["--min-df", 1, "--representation", representation, "-o", tmp_path / "m"]
    bonsai("train", tmp_path / "d.jsonl", *given, code=1)
    assert "by their names: give them as label_texts" in bonsai.error
    bonsai("train", tmp_path / "d.jsonl", "--label-texts", tmp_path / "names.tsv", *given)
    model = by_names(representation, label_texts=names).fit(DOCUMENTS, OWN)
    assert bonsai_xmc.load(tmp_path / "m").classifier_.trees_ == model.classifier_.trees_


@pytest.mark.parametrize("representation", BY_NAMES)
def test_clusters_by_names_need_names(representation):
    with pytest.raises(ValueError, match="by their names: give them as label_texts"):
        by_names(representation).fit(DOCUMENTS, OWN)
    with pytest.raises(ValueError, match=r"come without names of labels: use TextBonsai\(label_texts=…\)"):
        Bonsai(representation, classifiers="leaf").fit(np.eye(3), [["a"], ["b"], ["c"]])
