"""A second stage scores the best labels of a model once more."""

import numpy as np
import pytest

from bonsai_xmc import TextBonsai, datasets
from helpers import says
from kinds import case_of

DATA = datasets.make_texts(400, n_test=120, random_state=5)


@pytest.fixture(scope="module")
def model():
    classifier = case_of("texts").unfitted.classifier
    return TextBonsai(classifier=classifier).fit(DATA.texts_train, DATA.labels_train)


TRUE = dict(zip(DATA.texts_test, map(set, DATA.labels_test), strict=True))


def oracle(texts, candidates):
    return [
        [8.0 if name in TRUE[text] else -8.0 for name in names]
        for text, names in zip(texts, candidates, strict=True)
    ]


def noise(texts, candidates):
    rng = np.random.default_rng(len(texts[0]))
    return [rng.normal(size=len(names)) for names in candidates]


def test_scores_are_the_weighted_sum(model):
    found = model.rerank(oracle, weight=0.25, depth=7).top_k_labels(DATA.texts_test, 7)
    for text, got in zip(DATA.texts_test, found, strict=True):
        first = model.suggest(text, 7)
        second = 1 / (1 + np.exp(-np.array([8.0 if label in TRUE[text] else -8.0 for label, _ in first])))
        expected = {label: 0.75 * s + 0.25 * t for (label, s), t in zip(first, second, strict=True)}
        assert dict(got) == pytest.approx(expected, rel=1e-5)
        assert [score for _, score in got] == sorted((score for _, score in got), reverse=True)


def test_a_better_score_gets_weight_and_noise_gets_none(model):
    half = len(DATA.texts_test) // 2
    rows = DATA.texts_test[:half], DATA.labels_test[:half]
    good, bad = model.rerank(oracle, *rows), model.rerank(noise, *rows)
    figures = good.chosen_["figures"]
    assert good.weights_["score"] > 0.2 and figures["fusion"][0] > figures["model"][0] + 1
    assert bad.weights_["score"] == 0
    texts = DATA.texts_test[half:]
    for text, best in zip(texts, good.top_k_labels(texts, 1), strict=True):
        among = {label for label, _ in model.suggest(text, 20)} & TRUE[text]
        assert not among or best[0][0] in among
    assert np.array_equal(bad.top_k(texts, 5)[0], model.top_k(texts, 5)[0])


def test_the_function_gets_batches_of_names(model):
    sizes = []

    def score(texts, candidates):
        sizes.append((len(texts), [len(names) for names in candidates]))
        return noise(texts, candidates)

    named = model.name_labels({label: f"the {label}" for label in model.classes_})
    seen = []
    named.rerank(lambda texts, names: seen.extend(names) or noise(texts, names), weight=0.5).top_k(["a"])
    assert all(name.startswith("the ") for names in seen for name in names)
    model.rerank(score, weight=0.5, depth=4, batch_size=50).top_k(DATA.texts_test[:70])
    assert [n for n, _ in sizes] == [50, 20] and all(c <= 4 for _, counts in sizes for c in counts)


def test_rows_of_a_matrix_are_matrices_of_one_row():
    case = case_of("exact")
    shapes = set()

    def score(rows, candidates):
        shapes.update(row.shape for row in rows)
        return [np.zeros(len(names)) for names in candidates]

    ids, scores = case.model.rerank(score, weight=0.5).top_k(case.X, 3)
    assert shapes == {(1, case.X.shape[1])}
    assert np.array_equal(ids, case.model.top_k(case.X, 3)[0]) and (scores <= 1).all()


def test_invalid_arguments_are_refused(model):
    with says("give rows X with their labels Y, by which the weight is chosen, or a weight"):
        model.rerank(noise)
    with says("weight is 2, but must be a number from 0 to 1"):
        model.rerank(noise, weight=2)
    with says("depth is 0, but must be an integer of at least 1"):
        model.rerank(noise, weight=0.5, depth=0)
    with says("the function was given 1 rows, and returned 0"):
        model.rerank(lambda texts, names: [], weight=0.5).top_k(DATA.texts_test[:1])
    with says("the function must return a finite number for each candidate of a row, 20 here"):
        model.rerank(lambda texts, names: [[np.nan] * 20], weight=0.5).top_k(DATA.texts_test[:1])
    with pytest.raises(TypeError, match="score is a str, but must be a function"):
        model.rerank("cross-encoder", weight=0.5)
