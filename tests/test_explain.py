"""`explain` and `why_not`: sums that are exact, scores that are those of `top_k`, ranks, paths and texts."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from bonsai_xmc import Bonsai, Explanation, TextBonsai, WhyNot, datasets
from bonsai_xmc._explain.names import feature_names
from bonsai_xmc._explain.texts import places_of
from helpers import says, text_bonsai
from test_reasons import KINDS

RECORDS = [
    {"title": "Brick houses", "abstract": "Old brick houses of Bremen and their walls."},
    {"title": "Heat pumps", "abstract": "Heat pumps for old houses. Heat from the ground."},
    {"title": "Timber frames", "abstract": "Old timber houses, brick and frames."},
    {"title": "Solar heat", "abstract": "Roofs that heat water for houses."},
]
LABELS = [["bricks", "houses"], ["heating", "houses"], ["timber", "houses"], ["heating", "solar"]]


@pytest.fixture(scope="module")
def data():
    return datasets.make_xmc(n_rows=400, n_test=20, n_features=250, n_labels=200, random_state=3)


@pytest.fixture(scope="module", params=KINDS)
def explained(request, data):
    """Return a model, and rows to predict."""
    dense = request.param == "dense"
    X, X_test = (part.toarray() + 0.25 if dense else part for part in (data.X_train, data.X_test))
    model = Bonsai(**KINDS[request.param], threshold=0.5, random_state=1, n_jobs=1, max_labels=12)
    return model.fit(X, data.Y_train), X_test


def texts(**options):
    return text_bonsai(fields=["title", "abstract"], min_df=1, threshold=0.5, n_jobs=1, **options)


@pytest.fixture(scope="module")
def of_texts():
    return texts(classifiers="one_vs_rest", word_ngrams={1: 1.0, 2: 0.5}).fit(RECORDS, LABELS)


def check(why):
    """Check what holds for every explanation."""
    for decision in why.decisions:
        products = [c.product for c in decision.contributions]
        assert sum(products) == decision.integer_margin
        assert all(c.product == c.quantised * c.weight != 0 for c in decision.contributions)
        assert products == sorted(products, key=abs, reverse=True)
        margin = np.float32(decision.integer_margin) * (
            np.float32(decision.unit) * np.float32(decision.scale)
        )
        assert np.float32(decision.margin) == np.float32(margin + np.float32(decision.bias))
        assert sum(c.effect for c in decision.contributions) + decision.bias == pytest.approx(
            decision.margin, rel=1e-4, abs=1e-5
        )
        if products:
            assert sum(abs(c.share) for c in decision.contributions) == pytest.approx(1)
    assert why.score == why.steps[-1].value
    assert json.loads(json.dumps(why.to_dict()))["steps"][-1]["value"] == why.score


def test_products_add_up_and_steps_give_the_score_of_top_k(explained):
    model, X = explained
    ids, scores = model.top_k(X, 12)
    for row in (0, 4, 9):
        for rank in (0, 1, 4, 11):
            if ids[row, rank] < 0:
                continue
            why = model.explain(X[[row]], int(ids[row, rank]))
            check(why)
            assert (why.label, why.rank, why.found) == (ids[row, rank], rank + 1, True)
            assert why.score == pytest.approx(scores[row, rank], rel=2e-5, abs=1e-7)


def test_scores_of_low_ranked_labels_equal_those_of_the_search(explained):
    """Found by the search or not: the score is that of an ordinary or an exhaustive search."""
    model, X = explained
    n = len(model.classes_)
    usual, exact = (scores_by_label(model.top_k(X[[2]], n, exact=e)) for e in (False, True))
    seen = set()
    for label in range(0, n, 9):
        if model.label_counts_[label] == 0:
            with says("has no classifier: no training row has it"):
                model.explain(X[[2]], label)
            continue
        why = model.explain(X[[2]], label)
        check(why)
        seen.add(why.found)
        expected = usual if why.found else exact
        assert why.score == pytest.approx(expected[label], rel=2e-5, abs=1e-7), label
        if not why.found:
            assert why.notes and "exhaustive" in why.notes[0]
        if model.search_ == "beam":
            assert why.found == (label in usual)
            assert all((path.dropped is None) == path.counts for path in why.paths) or not why.found
    assert (False in seen) == (model.search_ != "exact")


def scores_by_label(found):
    ids, scores = found
    return {i: s for i, s in zip(ids[0].tolist(), scores[0].tolist(), strict=True) if i >= 0}


def test_effects_summarise_the_decisions(explained):
    model, X = explained
    why = model.explain(X[[1]], int(model.top_k(X[[1]], 1)[0][0, 0]))
    weight = (
        model.strategy_.blend_weight if model.classifiers_ == "blend" else 1.0 * (why.one_vs_rest is None)
    )
    expected = {}
    for c in () if why.one_vs_rest is None else why.one_vs_rest.contributions:
        expected[c.feature] = (1 - weight) * c.effect
    for path in why.paths:
        for c in (c for decision in path.decisions for c in decision.contributions if path.counts and weight):
            expected[c.feature] = expected.get(c.feature, 0) + weight * c.effect / len(model.trees_)
    found = {effect.feature: effect.effect for effect in why.effects}
    assert found == pytest.approx(expected, abs=1e-8)
    assert sum(abs(effect.share) for effect in why.effects) == pytest.approx(1)
    assert [abs(e.effect) for e in why.effects] == sorted(map(abs, found.values()), reverse=True)


def test_why_not_ranks_among_all_labels(explained):
    model, X = explained
    n = len(model.classes_)
    ids = model.top_k(X[[3]], n, exact=True)[0][0]
    order = {int(label): rank for rank, label in enumerate(ids, 1) if label >= 0}
    best = model.top_k(X[[3]], 12)[0][0].tolist()
    for rank in (1, 2, 30, len(order)):
        answer = model.why_not(X[[3]], int(ids[rank - 1]), n_ahead=2)
        assert isinstance(answer, WhyNot)
        assert (answer.rank, answer.n_ranked) == (rank, len(order))
        before = best[: best.index(ids[rank - 1])] if ids[rank - 1] in best else best
        assert [ahead.label for ahead in answer.ahead] == [i for i in before if i >= 0][:2]
        for ahead in answer.ahead:
            other = model.explain(X[[3]], ahead.label)
            theirs, own = ({e.feature: e.effect for e in w.effects} for w in (other, answer.explanation))
            for d in ahead.differences:
                assert d.difference == pytest.approx(theirs.get(d.feature, 0) - own.get(d.feature, 0))
            assert {d.feature for d in ahead.differences} == theirs.keys() | own.keys()
        assert json.dumps(answer.to_dict())


def test_where_a_path_leaves_the_beam(data):
    model = Bonsai(**KINDS["leaf"], threshold=0.5, random_state=1).fit(data.X_train, data.Y_train)
    x, exhaustive = data.X_test[[0]], Bonsai(**KINDS["leaf"]).set_params(beam_size=None)
    exhaustive.fitted_ = model.fitted_
    found = set(model.top_k(x, 200)[0][0].tolist())
    lost = [label for label in exhaustive.top_k(x, 200)[0][0].tolist() if label >= 0 and label not in found]
    assert len(lost) > 20
    for label in lost[::10]:
        answer = model.why_not(x, label)
        assert answer.reason == "beam" and len(answer.dropped) == 2
        for path in answer.dropped:
            d = path.dropped
            assert 0 < d.score <= d.lowest_kept <= 1 and d.kept == 2 == model.beam_size
            product = np.prod([decision.score for decision in path.decisions[: d.level]])
            assert d.score == pytest.approx(product, rel=1e-4)
            assert path.decisions[d.level - 1].child == d.node
            tree = model.trees_[path.tree]
            assert label in tree.nodes[d.node].labels.tolist()
        assert f"level {d.level}, node {d.node}" in answer.sentences[-1]
        assert f"below {d.lowest_kept:.3g}" in answer.sentences[-1]


def test_why_not_names_the_reason_for_each_kind_of_miss(data):
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5, max_labels=5).fit(data.X_train, data.Y_train)
    x = data.X_test[[0]]
    ids, scores = model.top_k(x, 50)
    reason = lambda label: model.why_not(x, int(label)).reason
    assert scores[0, 0] >= 0.5 > scores[0, 4]
    assert [reason(ids[0, 0]), reason(ids[0, 4]), reason(ids[0, 9])] == ["predicted", "threshold", "rank"]
    assert "max_labels is 5" in model.why_not(x, int(ids[0, 9])).sentences[1]
    assert "below the threshold 0.5" in model.why_not(x, int(ids[0, 4])).sentences[1]
    nothing = model.why_not(np.zeros(250), 3)
    assert nothing.reason == "no features" and nothing.rank is None and "no feature" in nothing.sentences[0]
    Y = data.Y_train.tolil()
    Y[:, 5] = 0
    other = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(data.X_train, Y.tocsr())
    answer = other.why_not(x, 5)
    assert (answer.reason, answer.rank, answer.explanation) == ("no classifier", None, None)
    assert "no training row has it" in str(answer) and "no training row has it" in answer.to_html()


@pytest.mark.parametrize("groups", [None, "frequency"])
def test_calibration_is_the_last_step(data, groups):
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(data.X_train, data.Y_train)
    raw = model.explain(data.X_test[[0]], 3)
    model = model.calibrate(data.X_test, data.Y_test, groups=groups)
    ids, scores = model.top_k(data.X_test[[0]], 20)
    for label, score in zip(ids[0].tolist(), scores[0].tolist(), strict=True):
        why = model.explain(data.X_test[[0]], label)
        check(why)
        assert why.score == pytest.approx(score, rel=1e-4, abs=1e-6)
        assert why.steps[-1].text == "calibration: isotonic map"
    assert model.explain(data.X_test[[0]], 3).steps[:-1] == raw.steps


def test_labels_that_were_changed(explained):
    """Dropped, renamed and merged labels: the score is that of `top_k`, by the best of the classifiers."""
    model, X = explained
    best = model.top_k(X[[0]], 6)[0][0].tolist()
    gone, renamed, *merged = (int(label) for label in best[:4] if label >= 0)
    changed = Bonsai(**model.get_params())
    changed.fitted_ = model.fitted_
    changed = changed.drop([gone]).rename({renamed: 1000}).merge(merged, 1001)
    ids, scores = changed.top_k(X[[0]], 5)
    for rank, (label, score) in enumerate(zip(ids[0].tolist(), scores[0].tolist(), strict=True), 1):
        if label < 0:
            continue
        why = changed.explain(X[[0]], int(changed.classes_[label]))
        check(why)
        assert why.score == pytest.approx(score, rel=2e-5) and why.rank == rank
    assert "made of 2 labels" in changed.explain(X[[0]], 1001).notes[0]
    with says(f"the model has no label {gone}"):
        changed.explain(X[[0]], gone)
    assert changed.why_not(X[[0]], 1001).rank is not None


def test_why_not_mentions_when_only_biases_count():
    model = Bonsai(classifiers="one_vs_rest", prune=100.0, threshold=0.5)  # no weight is left
    with pytest.warns(UserWarning, match="without any weight"):
        model.fit(np.eye(4), [["a"], ["b"], ["c"], ["d"]])
    answer = model.why_not([1, 0, 0, 0], "c")
    assert [ahead.label for ahead in answer.ahead] == ["a", "b"] and answer.ahead[0].differences == ()
    assert "only the bias counts" in answer.explanation.notes[0]
    for shown in (str(answer), answer.to_html()):
        assert shown.count("the biases of their classifiers decide") == 2


def test_one_row_in_any_form(data):
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5, max_labels=5).fit(data.X_train, data.Y_train)
    x = data.X_test[[1]]
    forms = [x, x.toarray(), x.toarray()[0], x.toarray()[0].tolist(), x.tocoo()]
    answers = [model.explain(form, 3) for form in forms]
    assert all(answer == answers[0] for answer in answers)
    with says("x must be one row, but it has 2"):
        model.explain(data.X_test[:2], 3)
    for wrong in (200, -1, "x", 1.5, None, True):
        with says(f"the model has no label {wrong!r}"):
            model.explain(x, wrong)
    with says("n_ahead is -1"):
        model.why_not(x, 3, n_ahead=-1)


def test_labels_can_be_explained_by_their_unique_name(of_texts):
    with says("the model has no label 'brick'; did you mean 'bricks'?"):
        of_texts.explain("bricks", "brick")
    named = texts(classifiers="one_vs_rest").fit(RECORDS, [["b", "h"], ["h"], ["t"], ["s"]])
    named = named.name_labels({"b": "Bricks & walls", "h": "Houses", "t": "Houses"})
    why = named.explain("Brick walls", "Bricks & walls")
    assert (why.label, why.name) == ("b", "Bricks & walls")
    with says("2 labels have the name 'Houses': 'h', 't'; give the label itself"):
        named.explain("Brick walls", "Houses")
    columns = ["size", "colour"]
    import pandas

    frame = pandas.DataFrame([[1.0, 0.0], [0.0, 1.0]], columns=columns)
    model = Bonsai().fit(frame, [["a"], ["b"]])
    assert model.explain(frame.iloc[[1]], "b").effects[0].name == "colour"


# --- texts ---


def test_terms_fields_and_kinds(of_texts):
    record = {"title": "BRICK Houses", "abstract": "old brick houses in Bremen"}
    why = of_texts.explain(record, "bricks")
    check(why)
    found = {(effect.name, effect.field, effect.kind) for effect in why.effects}
    assert {
        ("brick", "title+abstract", "word"),
        ("brick houses", "title+abstract", "words"),
        ("brick houses", "title", "words"),
        (" bric", "title", "characters"),
    } <= found
    assert why == of_texts.explain([record], "bricks")
    label, score = of_texts.suggest(record, k=4)[why.rank - 1]
    assert label == "bricks" and score == pytest.approx(why.score, rel=1e-5)


def test_parts_of_the_text(of_texts):
    title, abstract = of_texts.explain(
        {"title": "İ Brick", "abstract": "A brick, heated; BRICK HOUSES"}, "bricks"
    ).texts
    assert (title.field, abstract.field) == ("title", "abstract")
    assert {title.text[s.begin : s.end] for s in title.segments} <= {"B", "Bric", "ric", "Brick", "k", "rick"}
    parts = [(abstract.text[s.begin : s.end], s.kind) for s in abstract.segments if s.effect > 0.01]
    assert ("brick", "word") in parts and any(kind == "words" for _, kind in parts)
    for text in (title, abstract):
        ends = [0, *(end for s in text.segments for end in (s.begin, s.end))]
        assert ends == sorted(ends) and ends[-1] <= len(text.text)


def plain_places(text, names, analyzer, n, lowercase=True):
    """Find features by Python's own tools, for texts whose lower case has the same length."""
    found = set()
    shown = text.lower() if lowercase else text
    if analyzer == "word":
        words = [(m.start(), m.end()) for m in re.finditer(r"\w\w+", shown)]
        for i in range(len(words) - n + 1):
            name = " ".join(shown[b:e] for b, e in words[i : i + n])
            if name in names:
                found.add((names[name], words[i][0], words[i + n - 1][1]))
    else:
        for span in re.finditer(r"\S+", shown):
            padded = f" {span.group()} "
            for i in range(max(1, len(padded) - n + 1)):
                gram = padded[i : i + n]
                if gram in names:
                    begin = span.start() + max(0, i - 1)
                    found.add((names[gram], begin, min(span.end(), span.start() + i - 1 + len(gram))))
    return found


@pytest.mark.parametrize("analyzer", ["word", "char_wb"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_places_equal_those_of_a_plain_reference(analyzer, n):
    rng = np.random.default_rng(n)
    alphabet = list("abAB ä木🌳,.\n\t  ")
    documents = ["".join(rng.choice(alphabet, 60)) for _ in range(30)] + ["", " ", "ab", "ΑΣ ΣΑΣ σας"]
    orders = {n: 1.0}
    options = {"word_ngrams": orders} if analyzer == "word" else {"word_ngrams": None, "char_ngrams": orders}
    model = TextBonsai(
        min_df=1, **options, max_ngrams=None, classifier=Bonsai(threshold=0.5, classifiers="one_vs_rest")
    )
    model.fit(documents, [[f"l{i % 3}"] for i in range(len(documents))])
    text = model.fitted_.text
    names = {name: i for i, name in enumerate(text.block_names(0))}
    for document in documents:
        places = set(zip(*(part.tolist() for part in text.core.places([[document]])), strict=True))
        found = plain_places(document, names, analyzer, n)
        expected = {(f, 0, b, e) for f, b, e in found if b < e}  # without the spaces around words
        assert places == expected
        # Every feature of the row is somewhere in the text.
        assert {place[0] for place in found} == set(text.transform([[[document]]], 1).indices.tolist())


def test_places_of_characters_across_words():
    """Runs of spaces are one, and İ becomes two characters: places are those in the given text."""
    model = TextBonsai(
        word_ngrams=None,
        char_ngrams={3: 1.0},
        char_boundaries=False,
        min_df=1,
        classifier=Bonsai(threshold=0.5),
    )
    model.fit(["a  b c", "İstan x"], [["a"], ["b"]])
    text = model.fitted_.text
    names = text.block_names(0)
    found = lambda s: {(names[f], s[b:e]) for f, _, b, e in zip(*text.core.places([[s]]), strict=True)}
    assert ("a b", "a  b") in found("a   b"[:2] + " b") and ("a b", "a    b") in found("a    b")
    assert ("i̇s", "İs") in found("xx İstan") and ("sta", "sta") in found("xx İstan")


def test_fields_that_are_joined_are_told_apart(of_texts):
    why = of_texts.explain({"title": "", "abstract": "brick houses"}, "bricks")
    assert [text.text for text in why.texts] == ["", "brick houses"] and why.texts[0].segments == ()
    title, abstract = places_of(of_texts.fitted_.text, [["old brick"], ["houses"]])
    both = {place[0] for place in title.places} & {place[0] for place in abstract.places}
    assert [n.name for n in feature_names(of_texts.fitted_, sorted(both))] == ["brick houses"]
    assert [abstract.text[b:e] for f, b, e in abstract.places if f in both] == ["houses"]
    plain = TextBonsai(min_df=1, word_ngrams=1, classifier=Bonsai(threshold=0.5)).fit(
        ["brick wall", "heat"], [["b"], ["h"]]
    )
    why = plain.explain("Brick", "b")
    assert [(t.field, t.text, len(t.segments)) for t in why.texts] == [("", "Brick", 1)]


# --- how it is shown ---


def test_tables_show_every_step_and_strip_control_characters(of_texts):
    why = of_texts.explain({"title": "Brick houses", "abstract": "\x1b[31mold\x00"}, "bricks")
    shown, colored = str(why), why.to_text(color=True)
    assert "\x1b" not in shown and "brick houses" in shown and re.search("n-gram +title", shown)
    assert "from margins to the score" in shown and f"→ {why.score:.4g}" in shown
    assert f"{why.one_vs_rest.integer_margin:,} ×" in shown
    assert "\x1b[32m" in colored and "\x1b[31mold" not in colored and "\x00" not in colored
    assert re.sub(r"\x1b\[\d*m", "", colored).replace(" ", "").count("brick") >= shown.count("brick")
    answer = of_texts.why_not("Brick houses", "heating")
    assert "ahead: " in str(answer) and "heating" in str(answer) and "\x1b" in answer.to_text(color=True)


def test_features_of_one_field_are_marked_where_others_join_several_fields():
    own = {"title": {"word_ngrams": {1: 0.5}}, "abstract": 0}
    joined = text_bonsai(fields=own, min_df=1, threshold=0.5, n_jobs=1).fit(RECORDS, LABELS)
    shown = str(joined.explain({"title": "Brick houses", "abstract": "old"}, "bricks"))
    assert re.search("bricks? +word +title alone\n", shown) and re.search("bricks? +word +title\n", shown)
    single = text_bonsai(fields=["title"], min_df=1, threshold=0.5, n_jobs=1).fit(RECORDS, LABELS)
    shown = str(single.explain({"title": "Brick houses"}, "bricks"))
    assert re.search("bricks? +word +title\n", shown) and "title alone" not in shown


def test_html_is_escaped():
    evil = "<script>alert('x')</script>"
    model = TextBonsai(min_df=1, char_ngrams=3, classifier=Bonsai(threshold=0.5)).fit(
        [f"{evil} brick", "heat & pump"], [[evil], ["h<b>&\"'"]]
    )
    for label in model.classes_:
        for page in (
            model.explain(f"{evil} brick", label).to_html(),
            model.why_not(f"{evil} brick", label).to_html(),
            model.explain(f"{evil} brick", label)._repr_html_(),
        ):
            assert "<script" not in page and "h<b>" not in page
            assert page.count("<mark") == page.count("</mark>")
    assert "&lt;script&gt;" in model.explain(f"{evil} brick", evil).to_html()


def test_objects_are_public_and_frozen(of_texts):
    why = of_texts.explain("Brick", "bricks")
    assert isinstance(why, Explanation)
    with pytest.raises(AttributeError):
        why.score = 1
    assert why == of_texts.explain("Brick", "bricks") and hash(why)


def test_importing_the_package_stays_cheap():
    code = "import sys, bonsai_xmc; print('numpy' in sys.modules, 'bonsai_xmc._explain' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]


def test_after_a_file_the_same(explained, tmp_path):
    model, X = explained
    model.save(tmp_path / "m.bonsai")
    loaded = Bonsai.load(tmp_path / "m.bonsai")
    label = int(model.top_k(X[[0]], 1)[0][0, 0])
    assert loaded.explain(X[[0]], label) == model.explain(X[[0]], label)
    assert loaded.why_not(X[[0]], label) == model.why_not(X[[0]], label)
