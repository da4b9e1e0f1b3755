"""TextVectorizer: equal to scikit-learn's TfidfVectorizer block by block; fields, streams, errors."""

import pickle
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from bonsai_xmc import Bonsai, TextVectorizer, _core, metrics
from bonsai_xmc._text.fitted import FittedText

SAME_UNICODE = unicodedata.unidata_version == _core.unicode_version()
OTHER_UNICODE = (
    f"this Python reads by Unicode {unicodedata.unidata_version}, the core by {_core.unicode_version()}"
)

TEXTS = [
    "The quick brown fox. The QUICK brown dog, the_quick x2",
    "",
    "Straße STRASSE İstanbul Iğdır ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ: ΌΣΟΣ' a b c",
    "日本語のテキスト、中文 文字 日本語のテキスト",
    "👍🏽 👩‍👩‍👧 emoji é e\u0301tude ñandú n\u0303andú",
    "the brown the brown fox\n\nfoo \t bar\tbaz \u00a0 end\x1c",
    "x_y z1 ½½ ²² ٣٤ Ⅷ ﬀ ǅ _ __ a_",
    "Fachwerkgebäude und Fachwerkhäuser, große Gebäude",
]


def ours(texts, analyzer="word", ngram_range=(1, 1), **options):
    orders = {ngram_range: 1.0}
    grams = {"word_ngrams": orders} if analyzer == "word" else {"word_ngrams": None, "char_ngrams": orders}
    options = {"min_df": 1, "sublinear_tf": False, **options}
    vectorizer = TextVectorizer(char_boundaries=analyzer == "char_wb", **grams, **options)
    return vectorizer, vectorizer.fit_transform(texts)


def assert_equal(texts, **options):
    """The same terms in the same order, the same entries, and weights to 1e-6."""
    vectorizer, X = ours(texts, **options)
    theirs = TfidfVectorizer(**options)
    Z = theirs.fit_transform(texts)
    assert list(vectorizer.get_feature_names_out()) == list(theirs.get_feature_names_out())
    assert_same_rows(X, Z)
    assert_same_rows(vectorizer.transform(texts), Z)


def assert_same_rows(X, Z):
    Z = Z.tocsr().sorted_indices()
    assert X.shape == Z.shape
    np.testing.assert_array_equal(X.indptr, Z.indptr)
    np.testing.assert_array_equal(X.indices, Z.indices)
    np.testing.assert_allclose(X.data, Z.data, rtol=0, atol=1e-6)


RANGES = [(1, 1), (2, 2), (1, 2), (1, 3), (2, 4), (5, 5)]


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
@pytest.mark.parametrize("ngram_range", RANGES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sublinear_tf": True},
        {"smooth_idf": False},
        {"lowercase": False},
        {"min_df": 2},
        {"max_df": 0.25},
        {"min_df": 0.15, "max_df": 3},
    ],
    ids=str,
)
@pytest.mark.skipif(not SAME_UNICODE, reason=OTHER_UNICODE)
def test_equals_scikit_learn(analyzer, ngram_range, options):
    options = {"analyzer": analyzer, "ngram_range": ngram_range, **options}
    try:
        TfidfVectorizer(**options).fit(TEXTS)
    except ValueError:
        with pytest.raises(ValueError, match="no term is left"):
            ours(TEXTS, **options)
    else:
        assert_equal(TEXTS, **options)


def test_power_is_applied_before_the_rows_are_normalised():
    """Values of a block are raised to a power, then rows scaled to length 1; blocks keep their weights."""
    X = TextVectorizer(min_df=1, word_ngrams=1).fit_transform(TEXTS)
    raised = X.copy()
    raised.data = raised.data.astype(np.float64) ** 1.25
    norms = np.sqrt(np.asarray(raised.multiply(raised).sum(axis=1)).ravel())
    raised.data /= np.repeat(norms, np.diff(raised.indptr))
    found = TextVectorizer(min_df=1, word_ngrams=1, power=1.25).fit_transform(TEXTS)
    np.testing.assert_allclose(found.toarray(), raised.toarray(), atol=1e-6)
    two = TextVectorizer(min_df=1, power=2, word_ngrams={1: 1.0, 2: 0.5}).fit(TEXTS)
    words = slice(0, two.blocks_[0][1])
    norms = np.sqrt((two.transform(TEXTS)[:, words].toarray() ** 2).sum(axis=1))
    assert norms[norms > 0].min() == pytest.approx(1 / np.sqrt(1.25), abs=1e-6)
    for power in (0, -1, 11, "2", True, float("nan")):
        with pytest.raises(ValueError, match=r"power is .*, but must be a number above 0"):
            TextVectorizer(power=power).fit(TEXTS)


def test_both_usual_token_patterns_give_the_same_words():
    """Both patterns in use stand for the same words; \\w+ is min_word_length=1."""
    texts = TEXTS[:1] + TEXTS[-1:]
    for pattern in (r"(?u)\b\w\w+\b", r"\w\w+"):
        names = TfidfVectorizer(token_pattern=pattern).fit(texts).get_feature_names_out()
        assert list(ours(texts)[0].get_feature_names_out()) == list(names)
    names = TfidfVectorizer(token_pattern=r"\w+").fit(texts).get_feature_names_out()
    assert list(ours(texts, min_word_length=1)[0].get_feature_names_out()) == list(names)


def test_max_features_keeps_the_most_frequent_terms():
    """Counts all differ, so that scikit-learn's choice is defined."""
    texts = [" ".join(f"word{i:02}" for i in range(20) for _ in range(i + 1)), "word19 word18"]
    for n in (1, 7, 19, 25):
        assert_equal(texts, max_features=n)
    names = ours(["bb aa cc aa cc"], max_features=2)[0].get_feature_names_out()
    assert list(names) == ["aa", "cc"]
    assert list(ours(["bb aa cc"], max_features=2)[0].get_feature_names_out()) == ["aa", "bb"]  # ties


def every_code_point():
    return [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]


@pytest.mark.skipif(not SAME_UNICODE, reason=OTHER_UNICODE)
def test_every_code_point_is_split_as_by_scikit_learn():
    """Each is tried in a word, doubled, on either side of a capital sigma, and by itself."""
    groups = [points[i : i + 16] for points in [every_code_point()] for i in range(0, len(points), 16)]
    docs = [" ".join(f"a{c}b {c}{c} ΑΣ{c} {c}Σ" for c in group) for group in groups]
    assert_equal(docs)
    docs = [" ".join(f"a{c}b" for c in group) for group in groups]
    assert_equal(docs, lowercase=False)
    assert_equal(docs, analyzer="char_wb", ngram_range=(1, 1))
    assert_equal(docs, analyzer="char", ngram_range=(1, 1))


def test_code_points_that_are_equal_in_every_version():
    """Latin, Greek, Cyrillic and CJK letters are the same in every Unicode since 6.0."""
    letters = [
        chr(c) for c in [*range(0x370), *range(0x391, 0x3A2), *range(0x400, 0x500), *range(0x4E00, 0x4F00)]
    ]
    assert_equal([f"x{c}y {c}{c}" for c in letters])


@pytest.mark.skipif(not SAME_UNICODE, reason=OTHER_UNICODE)
def test_tables_equal_the_output_of_their_script():
    root = Path(__file__).parents[1]
    written = subprocess.run(
        [sys.executable, root / "tools/make_unicode_tables.py"], capture_output=True, text=True, check=True
    )
    assert written.stdout == (root / "src/core/text/unicode_tables.inc").read_text()


ALPHABET = st.sampled_from([*"aAbBσΣςÄßİıé_1½٣ .,'\t\n\u00a0\u3000\u0301\u0345日👍ǅ", "the ", "The ", "fox "])
WORDS = st.lists(
    st.lists(ALPHABET | st.characters(codec="utf-8"), max_size=40).map("".join), min_size=1, max_size=12
)


@pytest.mark.skipif(not SAME_UNICODE, reason=OTHER_UNICODE)
@settings(max_examples=150, deadline=None)
@given(
    texts=WORDS,
    analyzer=st.sampled_from(["word", "char", "char_wb"]),
    ngram_range=st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda t: (t[0], t[0] + t[1])),
    min_df=st.sampled_from([1, 2, 0.3]),
    max_df=st.sampled_from([1.0, 0.6]),
    sublinear_tf=st.booleans(),
    smooth_idf=st.booleans(),
    lowercase=st.booleans(),
)
def test_equals_scikit_learn_on_anything(texts, analyzer, ngram_range, min_df, max_df, **options):
    options |= {"analyzer": analyzer, "ngram_range": ngram_range, "min_df": min_df, "max_df": max_df}
    try:
        TfidfVectorizer(**options).fit(texts)
    except ValueError:
        with pytest.raises(ValueError, match=r"no term is left|max_df stands for fewer documents"):
            ours(texts, **options)
    else:
        assert_equal(texts, **options)


def test_lone_surrogates_are_replaced():
    """A surrogate separates words, as U+FFFD does; in character n-grams it is U+FFFD."""
    vectorizer, _ = ours(["ab\ud800cd \udfffxy", "ab cd"])
    assert list(vectorizer.get_feature_names_out()) == ["ab", "cd", "xy"]
    chars = ours(["a\ud800b", "a\ufffdb"], analyzer="char", ngram_range=(1, 1))
    assert list(chars[0].get_feature_names_out()) == ["a", "b", "\ufffd"]
    assert (chars[1][[0]] != chars[1][[1]]).nnz == 0


# Blocks and fields

RECORDS = [
    {"title": "Brick houses", "abstract": "Old brick houses of Bremen and old bricks", "year": 1990},
    {"title": "Heat pumps", "abstract": "Heat pumps for old houses", "year": 2001},
    {"title": "", "abstract": "Bricks and pumps for Bremen", "year": 2001},
    {"title": "Houses of Bremen", "abstract": None, "year": 2002},
]


def unit(X):
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return sp.csr_array(X.multiply((1 / np.where(norms == 0, 1, norms))[:, None]))


def test_blocks_are_weighted_unit_matrices_side_by_side():
    own = {"word_ngrams": {1: 0.3, 2: 0.2}, "char_ngrams": {3: 0.5}}
    vectorizer = TextVectorizer({"title": own, "abstract": 0}, word_ngrams={1: 1.0, 2: 0.5}, min_df=1)
    X = vectorizer.fit_transform(RECORDS)
    titles = [r["title"] for r in RECORDS]
    joined = [f"{r['title']} {r['abstract'] or ''}".strip() for r in RECORDS]
    expected = []
    for texts, analyzer, n, weight in (
        (joined, "word", 1, 1.0),
        (joined, "word", 2, 0.5),
        (titles, "word", 1, 0.3),
        (titles, "word", 2, 0.2),
        (titles, "char_wb", 3, 0.5),
    ):
        tfidf = TfidfVectorizer(analyzer=analyzer, ngram_range=(n, n), sublinear_tf=True)
        expected.append(weight * tfidf.fit_transform(texts))
    assert_same_rows(X, unit(sp.hstack(expected, format="csr")))
    names, sizes, weights = zip(*vectorizer.blocks_, strict=True)
    assert names[0] == "title+abstract word 1"
    assert names[-1] == "title char_wb 3"
    assert list(sizes) == [part.shape[1] for part in expected]
    assert weights == (1.0, 0.5, 0.3, 0.2, 0.5)
    assert vectorizer.n_features_out_ == X.shape[1] == len(vectorizer.get_feature_names_out())
    assert vectorizer.get_feature_names_out()[-1].startswith("title__char_wb__")


def blocks_of(*arguments, **options):
    fitted = TextVectorizer(*arguments, min_df=1, **options).fit(RECORDS)
    return [(name, weight) for name, _, weight in fitted.blocks_]


def test_fields_and_their_blocks():
    joined = ("title+abstract word 1", 1.0)
    # A list: the first short field is taken for the title. A number: the standard blocks times that weight.
    title = [("title word 2", 0.3), ("title word 3", 0.2), ("title char_wb 5", 0.7)]
    assert blocks_of(["title", "abstract"]) == [joined, *title]
    assert blocks_of({"title": 1.0, "abstract": 0}) == [joined, *title]
    half = [("abstract word 2", 0.15), ("abstract word 3", 0.1), ("abstract char_wb 5", 0.35)]
    assert blocks_of({"title": 0, "abstract": 0.5}) == [joined, *half]
    assert blocks_of({"title": {"char_ngrams": 4}, "abstract": {}}) == [joined, ("title char_wb 4", 1.0)]
    # Only blocks of their own.
    apart = blocks_of({"title": {"word_ngrams": 1}, "abstract": {"word_ngrams": 2}}, word_ngrams=None)
    assert apart == [("title word 1", 1.0), ("abstract word 1", 1.0), ("abstract word 2", 1.0)]
    # The only field, joined and by itself, is one block.
    assert blocks_of(["title"]) == [("title word 1", 1.0), *title]
    assert blocks_of(["title"], word_ngrams=1) == [("title word 1", 1.0)]
    assert blocks_of({"title": {"word_ngrams": {1: 0.5}}}) == [("title word 1", 1.5)]


def test_records_frames_streams_and_strings():
    vectorizer = TextVectorizer(["title", "abstract"], min_df=1)
    X = vectorizer.fit_transform(RECORDS)
    frame = pd.DataFrame(RECORDS)
    frame.loc[3, "abstract"] = np.nan
    for same in (tuple(RECORDS), iter(RECORDS), frame, (dict(r) for r in RECORDS)):
        assert (clone(vectorizer).fit_transform(same) != X).nnz == 0
    assert (vectorizer.transform(frame[["abstract", "title", "year"]]) != X).nnz == 0
    assert (vectorizer.transform(iter(RECORDS)) != X).nnz == 0
    # A string stands for the first field; a record may lack a field.
    strings = vectorizer.transform(["Brick houses", "Heat pumps"])
    assert (strings != vectorizer.transform([{"title": "Brick houses"}, {"title": "Heat pumps"}])).nnz == 0
    assert vectorizer.transform([]).shape == (0, X.shape[1])

    plain = TextVectorizer(min_df=1)
    Z = plain.fit_transform(frame["title"])
    assert (plain.transform(frame["title"].to_numpy()) != Z).nnz == 0
    assert (plain.transform(np.array(frame["title"].tolist())) != Z).nnz == 0
    assert Z.dtype == np.float32
    assert Z.indices.dtype == np.int32


def test_long_streams_and_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"W{w}" for w in rng.zipf(1.3, size=rng.integers(60)) % 5000) for _ in range(3000)]
    options = {"word_ngrams": {1: 1.0, 2: 0.5}, "char_ngrams": {3: 0.5}}
    expected = TextVectorizer(n_jobs=1, **options).fit(texts)
    X = expected.transform(texts)
    assert X.nnz > 100_000
    monkeypatch.setattr("bonsai_xmc._text.records.CHUNK", 100)
    for n_jobs in (2, 7, None, -1):
        vectorizer = TextVectorizer(n_jobs=n_jobs, **options)
        Z = vectorizer.fit_transform(text for text in texts)
        assert (Z != X).nnz == 0
        assert list(vectorizer.get_feature_names_out()) == list(expected.get_feature_names_out())
        assert (vectorizer.transform(text for text in texts) != X).nnz == 0


def test_caller_data_is_not_changed():
    texts = np.array(["aa bb", float("nan"), None], dtype=object)
    before = texts.copy()
    rows = texts.tolist()
    TextVectorizer(min_df=1).fit(texts)
    TextVectorizer(min_df=1).fit(rows)
    assert texts[0] == before[0]
    assert texts[1] != texts[1]
    assert rows[1] != rows[1]


# An estimator


def test_clone_pickle_and_arrays():
    vectorizer = TextVectorizer(
        {"title": 1.0, "abstract": 0}, char_ngrams={(2, 3): 0.5}, word_ngrams=2, min_df=1
    )
    assert clone(vectorizer).get_params() == vectorizer.get_params()
    X = vectorizer.fit_transform(RECORDS)
    assert (pickle.loads(pickle.dumps(vectorizer)).transform(RECORDS) != X).nnz == 0
    description, arrays = vectorizer.fitted_.to_arrays()
    again = FittedText.from_arrays(description, arrays)
    assert again.plan == vectorizer.fitted_.plan
    words = TextVectorizer(min_df=1, word_ngrams=1)
    assert (words.fit(["aa"]).transform(["aa"]).toarray() == 1).all()
    vectorizer.fitted_ = again
    assert (vectorizer.transform(RECORDS) != X).nnz == 0


def test_a_failed_fit_leaves_the_vectorizer_as_it_was():
    vectorizer = TextVectorizer(min_df=1, word_ngrams=1).fit(["aa bb"])
    for bad in ([1], [], ["!"]):
        with pytest.raises((TypeError, ValueError)):
            vectorizer.fit(bad)
    assert list(vectorizer.get_feature_names_out()) == ["aa", "bb"]


def test_pipeline_and_grid_search():
    texts = [
        f"{name} {'common ' * (i % 3)}"
        for i in range(30)
        for name in ("apple tree", "stone wall", "river bed")
    ]
    Y = sp.csr_array(np.tile(np.eye(3, dtype=np.int8), (30, 1)))
    pipeline = make_pipeline(TextVectorizer(), Bonsai())
    search = GridSearchCV(
        pipeline,
        {"textvectorizer__word_ngrams": [{1: 1.0}, {1: 1.0, 2: 0.5}], "textvectorizer__min_df": [1, 2]},
        scoring=metrics.scorer("P@1"),
        cv=2,
    )
    assert search.fit(texts, Y).best_score_ == 1
    with pytest.raises(NotFittedError):
        TextVectorizer().transform(texts)


# Errors


@pytest.mark.parametrize(
    ("X", "fields", "error", "message"),
    [
        ("one text", None, TypeError, "X is one str"),
        ([{"title": "x"}], None, TypeError, r"row 0 is of type dict: name its fields by fields=\[…\]"),
        (["aa", 3], None, TypeError, "row 1 is of type int, but must be a string"),
        (5, None, TypeError, "X is of type int"),
        ([["aa"]], ["title"], TypeError, "row 0 is of type list"),
        ([{"title": "aa"}, {"title": 7}], ["title"], TypeError, "field 'title' of row 1 is of type int"),
        (
            [{"title": "aa"}, {"Title": "bb"}],
            ["title"],
            ValueError,
            "row 1 has none of the fields 'title'; its fields are 'Title'",
        ),
        (
            [{"title": "aa"}] * 2,
            ["title", "abstract"],
            ValueError,
            "no row has the field 'abstract'; the last ones have 'title'",
        ),
        (pd.DataFrame({"title": ["aa"]}), ["text"], ValueError, "no column 'text'; its columns are 'title'"),
        (pd.DataFrame({"title": ["aa"]}), None, ValueError, "X is a data frame"),
        ([""], None, ValueError, "no term is left of 1 documents"),
    ],
)
def test_rows_that_are_not_texts_are_refused(X, fields, error, message):
    with pytest.raises(error, match=message):
        TextVectorizer(fields, min_df=1).fit(X)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"fields": "title"}, "fields is 'title', but must be a list of names"),
        ({"fields": []}, "fields is empty"),
        ({"fields": {3: 1.0}}, "the key 3, but names of fields are strings"),
        ({"fields": {"title": -1}}, r"fields\['title'\] is -1, but a weight is a number from 0"),
        (
            {"fields": {"title": {"ngrams": 2}}},
            "has the key 'ngrams', but a field has word_ngrams and char_ngrams",
        ),
        ({"fields": ["title"], "word_ngrams": None}, "no block with a weight above 0"),
        ({"fields": ["title", "title"]}, "fields has a name twice"),
        ({"word_ngrams": "2"}, "word_ngrams is '2', but must map orders to weights"),
        ({"word_ngrams": {0: 1.0}}, "word_ngrams has the key 0"),
        ({"word_ngrams": {(2, 1): 1.0}}, r"word_ngrams has the key \(2, 1\)"),
        ({"char_ngrams": {5: float("nan")}}, r"char_ngrams\[5\] is nan"),
        ({"word_ngrams": None}, "no block with a weight above 0"),
        ({"min_df": 0}, "min_df is 0, but must be a number of documents"),
        ({"max_df": 1.5}, "max_df is 1.5"),
        ({"min_df": 3, "max_df": 2}, "max_df stands for fewer documents than min_df"),
        ({"max_features": 0}, "max_features is 0"),
        ({"min_word_length": 1.5}, "min_word_length is 1.5"),
        ({"n_jobs": 0}, "n_jobs is 0"),
    ],
    ids=str,
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        TextVectorizer(**params).fit([{"title": "aa"}] if params.get("fields") is not None else ["aa"])


def test_inconsistent_arrays_are_refused():
    description, arrays = (
        TextVectorizer(word_ngrams=2, char_ngrams={3: 1.0}, min_df=1).fit(["aa bb", "aa"]).fitted_.to_arrays()
    )

    def refuses(message, **changes):
        with pytest.raises(ValueError, match=message):
            FittedText.from_arrays(description, {**arrays, **changes})

    refuses(
        "fields.0.words has an unexpected type",
        **{"fields.0.words": arrays["fields.0.words"].astype(np.int8)},
    )
    refuses("do not ascend", **{"fields.0.words_ptr": arrays["fields.0.words_ptr"][::-1].copy()})
    refuses("has a word that is missing", **{"fields.0.ngrams.2.last": np.array([9], np.uint32)})
    refuses("one document frequency", **{"blocks.0.df.0": np.array([1], np.uint32)})
    refuses("greater than the number of documents", **{"blocks.0.df.0": np.array([1, 7], np.uint32)})
    missing = dict(arrays)
    del missing["blocks.2.grams"]
    with pytest.raises(ValueError, match=r"blocks\.2\.grams is missing"):
        FittedText.from_arrays(description, missing)
    with pytest.raises(ValueError, match=r"read by Unicode 9\.0\.0"):
        FittedText.from_arrays({**description, "unicode_version": "9.0.0"}, arrays)


def test_core_is_safe_by_itself():
    """Python checks arguments for clear messages, the core for safe memory."""
    spec = {
        "texts": [[0]],
        "lowercase": True,
        "min_word_length": 2,
        "blocks": [
            {
                "field": 0, "analyzer": "word", "min_n": 1, "max_n": 1, "min_df": 1, "max_df": 1.0,
                "max_features": 0, "sublinear_tf": False, "smooth_idf": True, "power": 1.0, "weight": 1.0,
            }
        ],
    }  # fmt: skip
    fit = _core.TextFit(spec)
    with pytest.raises(ValueError, match="the number of columns differs"):
        fit.add([["a"], ["b"]], 1)
    with pytest.raises(ValueError, match="this fit is over"):
        fit.add([["aa"]], 1)
    fit = _core.TextFit(spec)
    with pytest.raises(TypeError, match="text 1 of column 0 is neither a str nor None"):
        fit.add([["aa", b"bb"]], 1)
    for change, message in (
        ({"analyzer": "chars"}, "unknown analyzer"),
        ({"min_n": 0}, "min_n <= max_n"),
        ({"field": 1}, "no such field"),
        ({"weight": 0.0}, "weight must be greater than 0"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.TextFit({**spec, "blocks": [{**spec["blocks"][0], **change}]})
