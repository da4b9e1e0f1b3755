"""A fitted Pipeline(TfidfVectorizer(), Bonsai()) as one model and one file."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bonsai_xmc import Bonsai, TextBonsai, TextVectorizer
from test_text_model import make_records
from test_text_vectorizer import OTHER_UNICODE, SAME_UNICODE, TEXTS

pytestmark = pytest.mark.skipif(not SAME_UNICODE, reason=OTHER_UNICODE)


@pytest.fixture(scope="module")
def texts():
    rows, labels = make_records()
    return [f"{row['title']}. {row['abstract']}" for row in rows], labels


def fitted(texts, *steps):
    return make_pipeline(*steps).fit(*texts)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sublinear_tf": True, "min_df": 2, "max_df": 0.9},
        {"ngram_range": (1, 2), "dtype": np.float32},
        {"ngram_range": (2, 3), "min_df": 3},
        {"ngram_range": (1, 3), "max_features": 100},
        {"analyzer": "char", "ngram_range": (2, 4)},
        {"analyzer": "char_wb", "ngram_range": (5, 5), "smooth_idf": False},
        {"stop_words": ["old", "house"], "lowercase": False},
        {"token_pattern": r"(?u)\b\w+\b", "use_idf": False},
        {"norm": None},
        {"norm": "l1", "smooth_idf": False},
    ],
    ids=str,
)
def test_one_file_predicts_what_the_pipeline_predicts(texts, tmp_path, options):
    pipeline = fitted(texts, TfidfVectorizer(**options), Bonsai())
    TextBonsai.from_pipeline(pipeline).save(tmp_path / "m.bonsai")
    model = TextBonsai.load(tmp_path / "m.bonsai", verify=True)
    vectorizer, bonsai = (step for _, step in pipeline.steps)
    other = [*texts[0], *TEXTS, "", "HEAT pump, Ziegelbau"]
    ids, scores = bonsai.top_k(vectorizer.transform(other), 4)
    found, found_scores = model.top_k(other, 4)
    np.testing.assert_allclose(found_scores, scores, rtol=2e-4, atol=1e-6)  # rows are rounded to int16
    apart = np.abs(np.diff(scores, axis=1)).min(axis=1) > 1e-2
    np.testing.assert_array_equal(found[apart], ids[apart])
    assert list(model.classes_) == list(bonsai.classes_)
    assert model.threshold_ == bonsai.threshold_
    assert (model.predict(texts[0]) != pipeline.predict(texts[0])).nnz == 0


def test_a_converted_pipeline_can_be_trained_again(texts):
    pipeline = fitted(texts, TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), Bonsai(C=2.0))
    model = TextBonsai.from_pipeline(pipeline)
    assert (model.classifier.C, model.word_ngrams, model.min_df, model.sublinear_tf) == (
        2.0,
        {(1, 2): 1.0},
        1,
        True,
    )
    again = clone(model).fit(*texts)
    np.testing.assert_allclose(again.top_k(texts[0], 4)[1], model.top_k(texts[0], 4)[1], rtol=2e-4, atol=1e-6)


def test_a_pipeline_with_our_vectorizer_equals_a_text_model(texts, tmp_path):
    rows, labels = make_records()
    pipeline = fitted((rows, labels), TextVectorizer(["title", "abstract"]), Bonsai(C=1.0))
    model = TextBonsai.from_pipeline(pipeline)
    model.save(tmp_path / "m.bonsai")
    same = TextBonsai(fields=["title", "abstract"], max_ngrams=None, classifier=Bonsai(C=1.0)).fit(
        rows, labels
    )
    same.save(tmp_path / "same.bonsai")
    assert (tmp_path / "m.bonsai").read_bytes() == (tmp_path / "same.bonsai").read_bytes()


def test_a_vectorizer_fitted_on_other_rows(texts):
    vectorizer = TfidfVectorizer().fit(texts[0] + ["and a few", "more of old houses"] * 50)
    bonsai = Bonsai().fit(vectorizer.transform(texts[0]), texts[1])
    model = TextBonsai.from_pipeline(make_pipeline(vectorizer, bonsai))
    expected = bonsai.top_k(vectorizer.transform(texts[0]), 4)[1]
    np.testing.assert_allclose(model.top_k(texts[0], 4)[1], expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": str.split, "token_pattern": None}, r"TfidfVectorizer\(tokenizer="),
        ({"preprocessor": str.lower}, r"preprocessor="),
        ({"analyzer": str.split}, r"analyzer="),
        ({"strip_accents": "unicode"}, r"strip_accents='unicode'\) has no counterpart"),
        ({"token_pattern": r"[a-z]+"}, r"token_pattern='\[a-z\]\+'\) has no counterpart"),
        ({"stop_words": "english", "ngram_range": (1, 2)}, r"stop_words='english'\) with n-grams"),
        ({"binary": True}, r"binary=True"),
        ({"vocabulary": ["house", "brick", "pump"]}, r"not in the order of its terms"),
    ],
)
def test_options_without_a_counterpart(texts, options, message):
    with pytest.raises(ValueError, match=message):
        TextBonsai.from_pipeline(fitted(texts, TfidfVectorizer(**options), Bonsai()))


def test_other_pipelines_are_rejected_with_a_reason(texts):
    for steps in (
        [CountVectorizer(), Bonsai()],
        [TfidfVectorizer(), FunctionTransformer(), Bonsai()],
        [TfidfVectorizer(), FunctionTransformer()],
    ):
        with pytest.raises(ValueError, match="TfidfVectorizer"):
            TextBonsai.from_pipeline(fitted(texts, *steps))
    with pytest.raises(ValueError, match="these are Bonsai"):
        TextBonsai.from_pipeline(Bonsai())
    with pytest.raises(NotFittedError):
        TextBonsai.from_pipeline(make_pipeline(TfidfVectorizer(), Bonsai()))
    narrow = make_pipeline(TfidfVectorizer().fit(texts[0]), Bonsai().fit([[1, 0], [0, 1]], [["a"], ["b"]]))
    with pytest.raises(ValueError, match=r"terms, the Bonsai 2 features"):
        TextBonsai.from_pipeline(narrow)
    with pytest.raises(ValueError, match="norm=None"):
        TextBonsai.from_pipeline(fitted(texts, TfidfVectorizer(norm=None), Bonsai(normalize=False)))
