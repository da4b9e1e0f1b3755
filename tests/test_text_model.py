"""TextBonsai: a TextVectorizer and a Bonsai in one estimator and one file."""

import inspect
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from bonsai_xmc import Bonsai, FormatError, TextBonsai, TextVectorizer, metrics
from bonsai_xmc._estimators.text import TEXT_PARAMS
from bonsai_xmc._modelfile import container
from helpers import params_of, text_bonsai

TOPICS = {
    "brick construction": ("brick", "mortar", "Ziegelbau", "wall"),
    "heating": ("heat", "pump", "boiler", "Wärmepumpe"),
    "gardens": ("garden", "flower", "hedge", "Gartenkunst"),
    "木工": ("wood", "carpenter", "timber", "日本語"),
}
COMMON = ("the", "old", "new", "house", "study", "of", "Bremen")


def make_records():
    """Records and the names of their labels."""
    rng = np.random.default_rng(3)
    rows, labels = [], []
    for i in range(120):
        names = list(TOPICS)[i % 4 :][: 1 + i % 2]
        own = [word for name in names for word in TOPICS[name]]
        title = " ".join([*rng.choice(own, 2), *rng.choice(COMMON, 1)])
        abstract = " ".join([*rng.choice(own, 4), *rng.choice(COMMON, 8)])
        rows.append({"title": title.capitalize(), "abstract": abstract, "year": 1990 + i % 30})
        labels.append(names)
    return rows, labels


@pytest.fixture(scope="module")
def records():
    return make_records()


FIELDS = ["title", "abstract"]
NAMES = {name: f"the label {i}: {name}" for i, name in enumerate(TOPICS) if i != 1}


@pytest.fixture(scope="module")
def model(records):
    return TextBonsai(fields=FIELDS, classifier=Bonsai(n_jobs=2)).fit(*records).name_labels(NAMES)


def test_texts_become_label_names(model, records):
    assert model.suggest("Neue Wärmepumpe", k=2)[0][0] == "heating"
    both = model.suggest(["A hedge and a flower", {"title": "Ziegelbau", "abstract": "mortar"}], k=1)
    assert [row[0][0] for row in both] == ["gardens", "brick construction"]
    assert 0 < both[0][0][1] <= 1
    assert model.suggest({"abstract": "日本語"}, k=1)[0][0] == "木工"
    assert model.suggest("xyzzy", k=3) == []
    assert list(model.classes_) == sorted(TOPICS)
    assert model.score(*records) == 1
    assert "texts" in model.timings_


def test_label_names_are_stored_and_do_not_replace_labels(model, records, tmp_path):
    expected = ["the label 0: brick construction", "the label 2: gardens", "heating", "the label 3: 木工"]
    assert model.label_names_ == expected
    model.save(tmp_path / "m.bonsai")
    assert TextBonsai.load(tmp_path / "m.bonsai").label_names_ == expected
    assert model.suggest("Wärmepumpe", 1)[0][0] == "heating"  # labels stay what they are
    numbers = TextBonsai(min_df=1).fit(["one", "two"], [[1], [2]])
    assert numbers.label_names_ == ["1", "2"]
    assert numbers.name_labels({"2": "zwei"}).label_names_ == ["1", "zwei"]
    assert numbers.name_labels({2: "deux", 7: "sept"}).label_names_ == ["1", "deux"]


def test_is_a_pipeline_of_its_parts(model, records):
    """Rows, classifiers and scores are the same as those of the two estimators by themselves."""
    rows, labels = records
    X = TextVectorizer(FIELDS).fit_transform(rows)
    ids, scores = Bonsai(C=1.5).fit(X, labels).top_k(X, 3)  # as there are several blocks
    again, again_scores = model.top_k(rows, 3)
    np.testing.assert_array_equal(ids, again)
    np.testing.assert_array_equal(scores, again_scores)
    frame = pd.DataFrame(rows)
    np.testing.assert_array_equal(model.top_k(frame, 3)[0], ids)
    np.testing.assert_array_equal(model.top_k(iter(rows), 3)[0], ids)
    assert (model.predict(rows) != Bonsai().fit(X, labels).predict(X)).nnz == 0


def test_parameters_are_those_of_the_parts():
    mine, text = (
        {name: p.default for name, p in inspect.signature(cls).parameters.items()}
        for cls in (TextBonsai, TextVectorizer)
    )
    text.pop("n_jobs")
    assert mine == text | {"max_ngrams": "auto", "label_texts": None, "encoder": None, "classifier": None}
    assert set(TEXT_PARAMS) == set(text) | {"max_ngrams"}
    given = TextBonsai({"title": 0.5}, word_ngrams={1: 1.0, 2: 0.3}, classifier=Bonsai(C=2.0))
    assert params_of(clone(given)) == params_of(given)
    assert given.get_params()["classifier__C"] == 2.0


@pytest.mark.parametrize(
    "params",
    [
        {"fields": FIELDS},
        {
            "fields": {"title": {"word_ngrams": {(1, 2): 0.5}}, "abstract": 0.25},
            "word_ngrams": {1: 1.0, 2: 0.5},
        },
        {"fields": FIELDS, "char_ngrams": {3: 0.3, (4, 5): 0.2}, "char_boundaries": False, "C": 2.0},
        {
            "fields": FIELDS,
            "max_df": np.float64(0.9),
            "min_df": np.int64(3),
            "classifiers": "leaf",
            "threshold": 0.3,
        },
    ],
    ids=str,
)
def test_saved_text_models_predict_the_same(records, tmp_path, params):
    rows, labels = records
    model = text_bonsai(**params).fit(rows, labels)
    model.save(tmp_path / "m.bonsai")
    loaded = TextBonsai.load(tmp_path / "m.bonsai", verify=True)
    for a, b in zip(model.top_k(rows, 4), loaded.top_k(rows, 4), strict=True):
        np.testing.assert_array_equal(a, b)
    assert params_of(loaded) == params_of(model)
    assert loaded.suggest("heat pump") == model.suggest("heat pump")
    assert loaded.fitted_.text.plan == model.fitted_.text.plan
    loaded.save(tmp_path / "again.bonsai")
    assert (tmp_path / "again.bonsai").read_bytes() == (tmp_path / "m.bonsai").read_bytes()
    refitted = clone(loaded).fit(rows, labels)  # a loaded model can be trained again
    np.testing.assert_array_equal(refitted.top_k(rows, 4)[1], model.top_k(rows, 4)[1])


def test_plain_strings_need_no_fields(records, tmp_path):
    texts = [row["title"] + " " + row["abstract"] for row in records[0]]
    model = TextBonsai().fit(texts, records[1])
    model.save(tmp_path / "m.bonsai")
    assert TextBonsai.load(tmp_path / "m.bonsai").suggest("Gartenkunst", 1)[0][0] == "gardens"
    with pytest.raises(TypeError, match="row 0 is of type dict: name its fields"):
        model.top_k(records[0])


# Blocks that the lengths of texts decide

OWN = ["word 2", "word 3", "char_wb 5"]
LONG = " of the old house in Bremen" * 20


def own(field):
    return [f"{field} {name}" for name in OWN]


@pytest.mark.parametrize(
    ("fields", "row", "expected"),
    [
        (None, lambda r: r["title"], ["word 1", *OWN]),
        (None, lambda r: r["title"] + LONG, ["word 1"]),
        (["subject"], lambda r: {"subject": r["title"]}, ["subject word 1", *own("subject")]),
        (["subject"], lambda r: {"subject": r["title"] + LONG}, ["subject word 1"]),
        (["title"], lambda r: {"title": r["title"] + LONG}, ["title word 1"]),
        (["title", "text"], lambda r: {"text": LONG, **r}, ["title+text word 1", *own("title")]),
        (["x", "of"], lambda r: {"x": LONG, "of": r["title"]}, ["x+of word 1", *own("of")]),
        (["a", "b"], lambda r: {"a": r["title"], "b": r["abstract"]}, ["a+b word 1", *own("a")]),
        (["a", "name"], lambda r: {"a": r["title"], "name": "x"}, ["a+name word 1", *own("name")]),
        (["a", "b"], lambda r: {"a": r["title"] + LONG, "b": LONG}, ["a+b word 1"]),
        # A field that few rows have is no title.
        (["a", "b"], lambda r: {"a": "aa" * (r["year"] < 2000), "b": r["title"]}, ["a+b word 1", *own("b")]),
        # Some texts are empty or long, most are neither.
        (None, lambda r: ["", LONG, *[r["title"]] * 8][r["year"] % 10], ["word 1", *OWN]),
        (["a"], lambda r: {"a": None if r["year"] % 4 else r["title"]}, ["a word 1", *own("a")]),
    ],
)
def test_short_texts_have_ngrams(records, fields, row, expected, tmp_path):
    rows = [row(record) for record in records[0]]
    model = TextBonsai(fields, classifier=Bonsai(threshold=0.5)).fit(rows, records[1])
    assert [name for name, _, _ in model.blocks_] == expected
    C = 1.5 if "+" in expected[0] and len(expected) > 1 else 1.0  # blocks of several texts
    assert model.strategy_.C == C
    model.save(tmp_path / "list.bonsai")
    TextBonsai(fields, classifier=Bonsai(threshold=0.5)).fit(iter(rows), records[1]).save(
        tmp_path / "stream.bonsai"
    )
    assert (tmp_path / "stream.bonsai").read_bytes() == (tmp_path / "list.bonsai").read_bytes()
    vectorizer = TextVectorizer(fields).fit(iter(rows))
    assert [name for name, _, _ in vectorizer.blocks_] == expected
    assert TextBonsai.load(tmp_path / "list.bonsai").fitted_.text.lengths == vectorizer.fitted_.lengths


def test_characters_of_the_only_text():
    """Words of one field occur once each: only parts of words are informative."""
    rng = np.random.default_rng(0)
    stems = ["".join(rng.choice(list("abcdefghijklmnop"), 6)) for _ in range(8)]
    ends = ["".join(rng.choice(list("qrstuvwxyz"), 3)) for _ in range(400)]
    texts = [stems[i % 8] + ends[i] for i in range(400)]
    labels = [[f"label {i % 8}"] for i in range(400)]
    given = TextBonsai(word_ngrams=1, min_df=1).fit(texts[:300], labels[:300])
    assert [name for name, _, _ in given.blocks_] == ["word 1"]
    assert given.score(texts[300:], labels[300:]) < 0.5
    for fields, rows in ((None, texts), (["text"], [{"text": text} for text in texts])):
        assert TextBonsai(fields).fit(rows[:300], labels[:300]).score(rows[300:], labels[300:]) > 0.9


def test_given_ngrams_replace_those_of_a_title(records):
    texts = [row["title"] for row in records[0]]
    for given, expected in (
        ({"word_ngrams": 1}, ["word 1"]),
        ({"word_ngrams": 2}, ["word 1", "word 2"]),
        ({"char_ngrams": None}, ["word 1"]),
        ({"char_ngrams": {4: 0.5}}, ["word 1", "char_wb 4"]),
        ({"word_ngrams": None, "char_ngrams": {4: 0.5}}, ["char_wb 4"]),
    ):
        assert [name for name, _, _ in TextVectorizer(**given).fit(texts).blocks_] == expected
    rows = [{"title": text} for text in texts]
    assert [name for name, _, _ in TextVectorizer({"title": 0}).fit(rows).blocks_] == ["title word 1"]


def test_the_first_rows_of_a_stream_are_measured(records, monkeypatch):
    """Chunks may be shorter or longer than the measured part; each row is read once."""
    monkeypatch.setattr("bonsai_xmc._text.title.ROWS", 50)
    short = [row["title"] for row in records[0]]
    texts = [*short[:50], *(text + LONG for text in short[50:])]
    found = []
    for chunk in (7, 4096):
        monkeypatch.setattr("bonsai_xmc._text.records.CHUNK", chunk)
        for rows in (texts, texts[::-1]):
            read = []
            vectorizer = TextVectorizer().fit(read.append(text) or text for text in rows)
            assert read == rows
            assert vectorizer.fitted_.lengths["rows"] == 50
            assert vectorizer.fitted_.core.n_documents == len(rows)
            found.append(len(vectorizer.blocks_))
    assert found == [4, 1, 4, 1]
    with pytest.raises(ValueError, match="0 documents"):
        TextVectorizer().fit(iter([]))
    with pytest.raises(ValueError, match="no term is left of 60 documents"):
        TextVectorizer().fit([""] * 60)


def test_mostly_filled_rows_become_dense():
    """Rows of which most entries are not 0 are dense, as those of a matrix are."""
    texts = ["heat pump of the", "old wall of the"] * 30
    model = TextBonsai(word_ngrams={1: 1.0, 2: 0.5}).fit(texts, [["heating"], ["walls"]] * 30)
    assert model.suggest("a wall", 1)[0][0] == "walls"


def test_any_number_of_threads_gives_the_same_file(records, tmp_path):
    files = set()
    for n_jobs in (1, 2, 5):
        TextBonsai(fields=FIELDS, classifier=Bonsai(n_jobs=n_jobs)).fit(*records).save(tmp_path / "m.bonsai")
        files.add((tmp_path / "m.bonsai").read_bytes())
    assert len(files) == 1


def test_pickled_text_models_predict_the_same(model, records):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.top_k(records[0], 3)[1], model.top_k(records[0], 3)[1])


def test_a_failed_refit_leaves_the_model_as_it_was(records):
    rows, labels = records
    model = TextBonsai(fields=FIELDS).fit(rows, labels)
    before = model.fitted_
    for X, y in (
        (rows[:5], labels),
        (["!"] * 3, [["a"]] * 3),
        ([{"tilte": "x"}], [["a"]]),
        (rows, [[]] * len(rows)),
    ):
        with pytest.raises(ValueError):
            model.fit(X, y)
        assert model.fitted_ is before


def test_grid_search_covers_fields_and_the_classifier(records):
    rows, labels = records
    grid = {"fields": [FIELDS, {"title": 0, "abstract": 0}], "min_df": [1, 2]}
    grid["classifier__C"] = [0.5, 1.0]
    model = TextBonsai(fields=FIELDS, classifier=Bonsai())
    search = GridSearchCV(model, grid, scoring=metrics.scorer("P@1"), cv=KFold(2))
    search.fit(rows, labels)
    assert search.best_score_ > 0.9
    assert search.best_estimator_.suggest("boiler", 1)[0][0] == "heating"


# Files


def test_each_kind_has_its_own_load(model, records, tmp_path):
    model.save(tmp_path / "text.bonsai")
    with pytest.raises(ValueError, match=r"text\.bonsai is a text model; use TextBonsai\.load"):
        Bonsai.load(tmp_path / "text.bonsai")
    Bonsai().fit([[1, 0], [0, 1]], [["a"], ["b"]]).save(tmp_path / "matrix.bonsai")
    with pytest.raises(ValueError, match=r"matrix\.bonsai is a matrix model; use bonsai_xmc\.load"):
        TextBonsai.load(tmp_path / "matrix.bonsai")


@pytest.fixture
def rewrite(model, tmp_path):
    """Return a function that writes the model file with changed arrays, description and checksums."""

    def make(change):
        path = tmp_path / "m.bonsai"
        model.save(path)
        file = container.read(path, mmap=False)
        arrays = {name: np.array(array) for name, array in file.arrays.items()}
        metadata = {name: file.metadata[name] for name in ("model", "params", "provenance", "text")}
        text = json.loads(metadata["text"])
        change(arrays, text)
        metadata["text"] = json.dumps(text)
        container.write(path, arrays, metadata, list(file.requires), check=lambda temporary: None)
        return path

    return make


def change_array(name, value):
    return lambda arrays, text: arrays.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays, text: text.update(unicode_version="1.0"), "read by Unicode 1.0"),
        (lambda arrays, text: text.update(n_documents=1), "greater than the number of documents"),
        (lambda arrays, text: text.update(n_documents="many"), "inconsistent"),
        (lambda arrays, text: text.pop("plan"), "plan"),
        (lambda arrays, text: text["plan"]["blocks"].pop(), "inconsistent"),
        (
            lambda arrays, text: text["plan"]["blocks"][0].update(weight=float("nan")),
            "weight is nan, but must be a number",
        ),
        (
            lambda arrays, text: text["plan"]["blocks"][0].update(max_n=10**9),
            "max_n is 1000000000, but must be an integer from 1 to 32",
        ),
        (lambda arrays, text: text["plan"]["blocks"][0].update(text=["nowhere"]), "inconsistent"),
        (lambda arrays, text: text["options"].update(lowercase="yes"), "inconsistent"),
        (lambda arrays, text: text["options"].update(unknown=1), "inconsistent"),
        (lambda arrays, text: text["given"].update(word_ngrams={"one": 1}), "inconsistent"),
        (
            lambda arrays, text: arrays.pop("text.fields.0.words"),
            "text.fields.0.words is missing|words is missing",
        ),
        (change_array("text.fields.0.words_ptr", np.array([0, -5], np.int64)), "do not ascend"),
        (change_array("text.blocks.0.df.0", np.zeros(0, np.uint32)), "one document frequency for each term"),
        (lambda arrays, text: text.update(source=[1]), "text.source is .*, but must be an object"),
        (
            lambda arrays, text: text.update(tuning={"tried": [1]}),
            r"text.tuning.tried\[0\] is 1, but must be",
        ),
        (
            lambda arrays, text: text.update(prior={"weights": [1]}),
            r"text.prior.weights is \[1\], but must be",
        ),
        (lambda arrays, text: text["given"].pop("fields"), "text.given has no key 'fields'"),
        (lambda arrays, text: text["given"].update(min_df=-1), "min_df is -1"),
        (
            lambda arrays, text: text["plan"].update(fields=["title", "title"]),
            "text.plan does not fit together",
        ),
        (lambda arrays, text: text["plan"]["blocks"][0].update(min_n=5), "text.plan does not fit together"),
        (change_array("text.label_names_ptr", np.array([0, 5, 3, 9, 9])), "text.label_names_ptr d"),
        (
            change_array("text.label_names_ptr", np.zeros((0,), np.int64)),
            "text.label_names_ptr has the shape",
        ),
        (change_array("text.label_names_ptr", np.array([0, 70])), "text.label_names_ptr has the shape"),
        (change_array("text.blocks.3.grams", np.array([255], np.uint8)), "inconsistent"),
    ],
)
def test_damaged_text_sections_are_refused(rewrite, change, message):
    path = rewrite(change)
    with pytest.raises(FormatError, match=message) as error:
        TextBonsai.load(path)
    assert str(path) in str(error.value)


def test_fewer_terms_than_features(rewrite):
    def drop_last_feature(arrays, text):
        arrays["text.blocks.0.df.0"][-1] = 0

    with pytest.raises(FormatError, match=r"texts give 175 features, but its classifiers have 176"):
        TextBonsai.load(rewrite(drop_last_feature))


# Search for weights


@pytest.fixture(scope="module")
def tuned(records):
    return TextBonsai(fields="auto", min_df=1).fit(*records)


def test_weights_are_searched_for(tuned, records, tmp_path):
    tried = tuned.tuning_["tried"]
    assert len(tried) >= 12
    assert tried[0]["settings"] == "the default"
    assert len({entry["settings"] for entry in tried}) == len(tried)
    assert all(0 <= entry["nDCG@5"] <= 100 for entry in tried)
    assert tuned.tuning_["training_rows"] + tuned.tuning_["judging_rows"] <= len(records[0])
    assert tuned.fitted_.text.plan.fields == ("title", "abstract")  # not the year
    assert tuned.suggest("Neue Wärmepumpe", 1)[0][0] == "heating"
    tuned.save(tmp_path / "m.bonsai")
    loaded = TextBonsai.load(tmp_path / "m.bonsai")
    assert loaded.tuning_ == tuned.tuning_
    assert loaded.fields == "auto" == tuned.fields and loaded.min_df == tuned.min_df
    assert loaded.fields == "auto"


def test_the_search_is_repeatable(tuned, records, tmp_path):
    files = set()
    for X, n_jobs in ((records[0], 1), (iter(records[0]), 2), (pd.DataFrame(records[0]), 2)):
        model = TextBonsai(
            fields={"title": "auto", "abstract": "auto"}, min_df=1, classifier=Bonsai(n_jobs=n_jobs)
        )
        model.fit(X, records[1]).save(tmp_path / "m.bonsai")
        files.add((tmp_path / "m.bonsai").read_bytes())
    assert len(files) == 1
    assert model.tuning_ == tuned.tuning_


def test_the_search_finds_what_matters():
    """Only characters of titles are informative: abstracts are noise, and words are cut off."""
    rng = np.random.default_rng(0)
    stems = ["".join(rng.choice(list("abcdefghijklmnop"), 6)) for _ in range(8)]
    ends = ["".join(rng.choice(list("qrstuvwxyz"), 3)) for _ in range(400)]
    rows, labels = [], []
    for i in range(400):
        rows.append({"title": stems[i % 8] + ends[i], "abstract": " ".join(rng.choice(ends, 12))})
        labels.append([f"label {i % 8}"])
    plain = TextBonsai(fields={"title": {"word_ngrams": {1: 0.3}}, "abstract": 0}).fit(
        rows[:300], labels[:300]
    )
    tuned = TextBonsai(fields="auto").fit(rows[:300], labels[:300])
    assert plain.score(rows[300:], labels[300:]) < 0.5
    assert tuned.score(rows[300:], labels[300:]) > 0.9
    assert any("char" in name for name, _, _ in tuned.blocks_)


def test_strings_and_small_data(records):
    texts = [row["title"] for row in records[0]]
    assert len(TextBonsai(fields="auto", min_df=1).fit(texts, records[1]).tuning_["tried"]) > 5
    few = TextBonsai(fields="auto", min_df=1).fit(records[0][:10], records[1][:10])
    assert few.tuning_ == {}
    assert few.blocks_[0][0] == "title+abstract word 1"


@pytest.mark.parametrize("fields", [None, ["title"], ["title", "abstract"]])
@pytest.mark.parametrize("longer", ["", LONG])
def test_the_search_starts_from_the_default(records, monkeypatch, fields, longer):
    monkeypatch.setattr("bonsai_xmc._selection.fields.MOST_CANDIDATES", 1)
    rows = [{**row, "title": row["title"] + longer} for row in records[0]]
    rows = rows if fields else [row["title"] for row in rows]
    tuned = TextBonsai(
        fields=dict.fromkeys(fields, "auto") if fields else "auto", classifier=Bonsai(threshold=0.5)
    )
    default = TextBonsai(fields, classifier=Bonsai(threshold=0.5)).fit(rows, records[1])
    tuned.fit(rows, records[1])
    assert len(tuned.tuning_["tried"]) == 1
    assert [(name, n) for name, n, _ in tuned.blocks_] == [(name, n) for name, n, _ in default.blocks_]
    np.testing.assert_allclose(
        [weight for *_, weight in tuned.blocks_], [weight for *_, weight in default.blocks_]
    )


def test_labels_without_any_information(records, tmp_path):
    """Without a label that both training and held-out rows have, nothing can be chosen."""
    labels = [[f"label {i}"] for i in range(len(records[0]))]
    model = TextBonsai(fields="auto", min_df=1, classifier=Bonsai(threshold=0.5)).fit(records[0], labels)
    assert model.tuning_ == {}
    model.save(tmp_path / "m.bonsai")


def test_a_winner_by_chance_is_not_kept(records, monkeypatch):
    """Settings that are better on the first rows must be better on others, too."""
    from bonsai_xmc._selection import fields as tuning

    rows, labels = records[0] * 3, records[1] * 3
    monkeypatch.setattr(tuning, "_TRAINING_ROWS", 100)
    monkeypatch.setattr(tuning, "_HELD_OUT_ROWS", 40)
    monkeypatch.setattr(tuning._Search, "measure", _measure_by("bigrams × 0.6", "the default, on other rows"))
    model = TextBonsai(fields="auto", min_df=1).fit(rows, labels)
    assert not any(entry["kept"] for entry in model.tuning_["tried"])
    assert not any("title+abstract word 2" in name for name, _, _ in model.blocks_)
    monkeypatch.setattr(tuning._Search, "measure", _measure_by("bigrams × 0.6", "the best, on other rows"))
    model = TextBonsai(fields="auto", min_df=1).fit(rows, labels)
    assert [entry["settings"] for entry in model.tuning_["tried"] if entry["kept"]]
    assert any("word 2" in name for name, _, _ in model.blocks_)


def _measure_by(*good):
    """Return a `measure` whose figures are best for settings with these words."""

    def measure(self, sample, settings, what):
        liked = any(words in what for words in good)
        self.tried.append({"settings": what, "nDCG@5": 100.0 * liked, "kept": False})
        return np.full(10, float(liked))

    return measure


def test_impossible_searches_are_refused(records):
    with pytest.raises(ValueError, match=r"fields\['abstract'\] is 1, but another weight is 'auto'"):
        TextBonsai(fields={"title": "auto", "abstract": 1}).fit(*records)
    with pytest.raises(ValueError, match=r"X has 120 rows, but Y has 119"):
        TextBonsai(fields="auto").fit(records[0], records[1][:-1])
    with pytest.raises(ValueError, match=r"word_ngrams is 2, but .* searches for it; leave it at .auto."):
        TextBonsai(fields="auto", word_ngrams=2).fit(*records)
    with pytest.raises(ValueError, match=r"fields is 'auto', but must be"):
        TextVectorizer(fields="auto").fit(records[0])
