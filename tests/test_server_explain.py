"""``POST /explain`` and ``GET /tree`` of ``bonsai serve``."""

import asyncio
import json
from importlib.util import find_spec

import pytest

import bonsai_xmc
from bonsai_xmc import Bonsai, Fusion, TextBonsai, datasets
from bonsai_xmc.systems import SYSTEMS, system
from helpers import text_bonsai
from test_server import HTML, Server

RECORDS = [
    {"title": "Brick houses", "abstract": "Old brick houses of Bremen and their walls."},
    {"title": "Heat pumps", "abstract": "Heat pumps for old houses. Heat from the ground."},
    {"title": "Timber frames", "abstract": "Old timber houses, brick and frames."},
]
LABELS = [["bricks", HTML], ["heating", HTML], ["timber", HTML]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    data = datasets.make_texts(400, n_test=30, random_state=0)
    options = {"threshold": 0.5, "n_jobs": 1, "min_df": 1}
    blend = text_bonsai(**options, classifiers="blend", blend_weight=0.4, branching_factor=4, beam_size=2)
    blend.fit(data.texts_train, data.labels_train).save(folder / "themes.bonsai")
    records = text_bonsai(fields=["title", "abstract"], classifiers="one_vs_rest", **options)
    records.fit(RECORDS, LABELS).save(folder / "records.bonsai")
    return folder, data.texts_test


@pytest.fixture(scope="module")
def server(models):
    server = Server(models[0] / "themes.bonsai", models[0] / "records.bonsai", "--max-body", 500_000)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def themes(models):
    return TextBonsai.load(models[0] / "themes.bonsai")


def test_explanations_are_those_of_python(server, models, themes):
    text = models[1][0]
    for label, score in themes.suggest(text, 3):
        answer = server.post("/explain", {"text": text, "label": label, "features": 5})
        assert answer["model"] == "themes" and answer["why_not"] is None
        found, expected = answer["explanation"], themes.explain(text, label)
        assert found["score"] == pytest.approx(score, rel=1e-5)
        assert (found["label"], found["rank"]) == (label, expected.rank)
        assert found["steps"][-1]["value"] == pytest.approx(score, rel=1e-5)
        decisions = [found["one_vs_rest"], *(d for path in found["paths"] for d in path["decisions"])]
        assert len(decisions) == len(expected.decisions) > 1
        for one, other in zip(decisions, expected.decisions, strict=True):
            assert len(one["contributions"]) <= 5
            products = [c["product"] for c in one["contributions"]]
            assert sum(products) + one["others"] == one["integer_margin"] == other.integer_margin
        assert len(found["lines"]) == 5 and found["more"] > 0
        assert found["texts"][0]["text"] == text and found["texts"][0]["segments"]


def test_why_not_answers_what_the_model_answers(server, models, themes):
    text = models[1][1]
    label = themes.suggest(text, 30)[-1][0]
    answer = server.post("/explain", {"text": text, "label": label, "why_not": True})
    assert answer["explanation"] is None
    found, expected = answer["why_not"], themes.why_not(text, label)
    assert (found["rank"], found["reason"]) == (expected.rank, expected.reason)
    assert found["sentences"] == list(expected.sentences)
    assert [ahead["label"] for ahead in found["ahead"]] == [ahead.label for ahead in expected.ahead]
    assert found["explanation"]["label"] == label


def test_records_are_explained_by_field_and_wrong_fields_rejected(server):
    record = {"title": "Brick", "abstract": "walls"}
    answer = server.post("/explain", {"model": "records", "text": record, "label": "bricks"})
    assert [text["field"] for text in answer["explanation"]["texts"]] == ["title", "abstract"]
    for text in ("Brick", {"abstract": None, "title": "Brick"}, ""):
        assert server.post("/explain", {"model": "records", "text": text, "label": HTML})["explanation"]
    wrong = {"model": "records", "text": {"title": "Brick", "abstrakt": "walls"}}
    for path, body in (("/explain", {**wrong, "label": HTML}), ("/predict", wrong)):
        detail = server.post(path, body, 400)["detail"]
        assert "unknown field 'abstrakt'; did you mean 'abstract'? known are title, abstract" in detail
    empty = server.post("/explain", {"model": "records", "text": "", "label": "bricks", "why_not": True})
    assert empty["why_not"]["reason"] == "no features" and empty["why_not"]["rank"] is None


def test_every_label_is_reached_through_the_tree(server, themes):
    assert [model["trees"] for model in server.get("/models")["models"]] == [3, 0]
    root = server.get("/tree")
    assert root["trees"] == 3 and root["path"][0]["labels"] == len(themes.classes_)
    assert sum(child["labels"] for child in root["children"]) == len(themes.classes_)
    labels, nodes = [], [0]
    while nodes:
        node = nodes.pop()
        answer = server.get(f"/tree?tree=1&node={node}&limit=1000")
        assert answer["path"][-1]["node"] == node and answer["total"] == len(answer["children"])
        for child in answer["children"]:
            (labels if child["node"] is None else nodes).append(child["label"] or child["node"])
    assert sorted(labels) == sorted(themes.classes_)
    some = server.get("/tree?limit=2&offset=1")
    assert some["children"] == root["children"][1:3] and some["total"] == root["total"]
    often = max(themes.label_counts_)
    names = [label for label, n in zip(themes.classes_, themes.label_counts_, strict=True) if n == often]
    assert root["path"][0]["name"].split(", ")[0] in names


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({}, 400, "the body needs text and label"),
        ({"text": "a"}, 400, "the body needs label"),
        ({"text": 1, "label": "a"}, 400, "text must be a string"),
        ({"text": ["a"], "label": "a"}, 400, "text must be a string"),
        ({"text": {"title": "a"}, "label": "a"}, 400, "text is an object"),
        ({"text": "a", "label": 3}, 400, "label must be a string"),
        ({"text": "a", "label": "\ud800"}, 400, "not valid Unicode"),
        ({"text": "a\ud800", "label": "a"}, 400, "not valid Unicode"),
        ({"text": "a", "label": "no such label"}, 404, "the model has no label 'no such label'"),
        ({"text": "a", "label": 100_000 * "x"}, 404, "the model has no label"),
        ({"text": "a", "label": "a", "model": "x"}, 404, "there is no model 'x'"),
        ({"text": "a", "label": "a", "why_not": 1}, 400, "why_not is 1"),
        ({"text": "a", "label": "a", "features": -1}, 400, "features is -1"),
        ({"text": "a", "label": "a", "features": "many"}, 400, "features is 'many'"),
        (
            {"text": "a", "label": "a", "whynot": True},
            400,
            "'whynot'; did you mean 'why_not'? known are text, label",
        ),
        ({"text": 100_001 * "a", "label": "a"}, 400, "at most 100,000 can be explained"),
        ({"text": 600_000 * "a", "label": "a"}, 413, "at most 500,000 bytes"),
    ],
)
def test_invalid_requests_are_named_with_their_status(server, body, status, detail):
    assert detail in server.post("/explain", body, status)["detail"]


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        ("model=records", 404, "the model 'records' has no label trees"),
        ("model=x", 404, "there is no model"),
        ("tree=3", 404, "there is no tree 3; there are 3"),
        ("node=100000", 404, "there is no node 100000"),
        ("node=-1", 400, "node is -1"),
        ("tree=one", 400, "tree is 'one'"),
        ("nod=1", 400, "unknown key 'nod'; did you mean 'node'? known are model, tree, node, limit, offset"),
    ],
)
def test_invalid_tree_queries_are_named_with_their_status(server, query, status, detail):
    found, _, body = server.ask("GET", f"/tree?{query}")
    assert found == status and detail in json.loads(body)["detail"]


def test_explanations_of_unusual_texts(server, themes):
    """Texts may be long, without spaces, of one character, or of many scripts."""
    label = str(themes.classes_[0])
    for text in (50_000 * "ab ", 60_000 * "é", "İ" * 500, "\x00\n\t 🌳木", "ﬃ ß ΑΣ. Σ", " ", "…"):
        for refused in (False, True):
            server.post("/explain", {"text": text[:100_000], "label": label, "why_not": refused})


def test_too_many_at_once():
    from bonsai_xmc._server.app import Service
    from bonsai_xmc._server.batching import Overloaded
    from bonsai_xmc._server.counters import Counters
    from bonsai_xmc._server.settings import Settings

    service = Service({}, Settings(), Counters())
    assert asyncio.run(service.run(len, "abc")) == 3
    service._waiting = 64
    with pytest.raises(Overloaded):
        asyncio.run(service.run(len, "abc"))


@pytest.fixture(scope="module")
def of_systems(tmp_path_factory):
    """Run a server with a model of each system other than Bonsai."""
    folder = tmp_path_factory.mktemp("systems")
    data = datasets.make_texts(60, n_test=5, random_state=0)
    small = {"n_trees": 2, "n_learners": 2, "n_components": 8}
    for kind in SYSTEMS:
        classifier = system(kind)(threshold=0.5, n_jobs=1, random_state=0)
        known = classifier.get_params()
        classifier.set_params(**{name: value for name, value in small.items() if name in known})
        model = TextBonsai(char_ngrams=None, classifier=classifier)
        model.fit(data.texts_train, data.labels_train).save(folder / f"{kind}.bonsai")
    server = Server(*(folder / f"{kind}.bonsai" for kind in SYSTEMS))
    yield server, folder, data.texts_test
    assert server.stop() == 0


@pytest.mark.parametrize("kind", SYSTEMS)
def test_models_of_every_system_are_served(of_systems, kind):
    server, folder, texts = of_systems
    model = bonsai_xmc.load(folder / f"{kind}.bonsai")
    (about,) = (entry for entry in server.get("/models")["models"] if entry["name"] == kind)
    assert (about["kind"], about["system"]) == (kind, type(model.classifier_).__name__)
    assert about["threshold"] == 0.5 and about["trees"] == 0
    found = server.post("/predict", {"model": kind, "texts": texts, "k": 3})["results"]
    expected = [[(label, pytest.approx(s)) for label, s in row if s > 0] for row in model.suggest(texts, 3)]
    assert [[(entry["label"], entry["score"]) for entry in row] for row in found] == expected
    label = expected[0][0][0]
    some = server.post("/predict", {"model": kind, "text": texts[0], "exclude": [label]})["results"][0]
    assert all(entry["label"] != label for entry in some)
    status, _, body = server.ask(
        "POST", "/explain", json.dumps({"model": kind, "text": texts[0], "label": label})
    )
    answer = json.loads(body)
    assert status == 200 and answer["explanation"]["evidence"], answer
    for table in answer["explanation"]["evidence"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    refused = {"model": kind, "text": texts[0], "label": label, "why_not": True}
    assert f"of the kind {kind!r}: explain the label" in server.post("/explain", refused, 400)["detail"]
    assert server.ask("GET", f"/tree?model={kind}")[0] == 404
    assert server.get(f"/labels?model={kind}&limit=1")["total"] == len(model.classes_)


def test_openapi_describes_explain_and_tree(server):
    paths = server.get("/openapi.json")["paths"]
    assert paths["/explain"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"]
    assert paths["/tree"]["get"]["parameters"]


@pytest.fixture(scope="module")
def of_fusions(tmp_path_factory):
    """Run a server with words and vectors of wordllama, where it is there, and with words and trees."""
    folder = tmp_path_factory.mktemp("fusions")
    data = datasets.make_texts(300, n_test=40, random_state=5)
    words = {"word_ngrams": 1, "char_ngrams": None}
    linear = Bonsai(classifiers="one_vs_rest", threshold=0.3, n_jobs=1)
    few_trees = system("fastxml")(n_trees=3, threshold=0.3, n_jobs=1)
    models = {
        "words": TextBonsai(**words, classifier=linear),
        "trees": TextBonsai(**words, classifier=few_trees),
    }
    if find_spec("wordllama"):  # so few features that words are left out
        models["vectors"] = TextBonsai(**words, max_features=25, encoder="wordllama", classifier=linear)
    for model in models.values():
        model.fit(data.texts_train, data.labels_train)
    others = [name for name in models if name != "words"]
    for name in others:
        members = {"words": models["words"], name: models[name]}
        fused = Fusion.of(members, data.texts_test, data.labels_test, weights=[2, 1], threshold=0.3, n_jobs=1)
        fused.save(folder / f"{name}.bonsai")
    server = Server(*(folder / f"{name}.bonsai" for name in others))
    yield server, folder, data.texts_test[:5]
    assert server.stop() == 0


@pytest.mark.parametrize("name", ["trees", "vectors"])
def test_fusions_are_served_and_explained_by_member(of_fusions, name):
    server, folder, texts = of_fusions
    if not (folder / f"{name}.bonsai").exists():
        pytest.skip("needs the weights in wordllama")
    model = bonsai_xmc.load(folder / f"{name}.bonsai")
    assert set(model.classifier_.weights_) == {"words", name}
    found = server.post("/predict", {"model": name, "texts": texts, "k": 3})["results"]
    expected = [[(label, pytest.approx(score)) for label, score in row] for row in model.suggest(texts, 3)]
    assert [[(entry["label"], entry["score"]) for entry in row] for row in found] == expected
    as_annif = server.form(f"/v1/projects/{name}/suggest", text=texts[0], limit=3)["results"]
    assert [(one["uri"], one["score"]) for one in as_annif] == expected[0]
    label, score = model.suggest(texts[0], 1)[0]
    why = server.post("/explain", {"model": name, "text": texts[0], "label": label})["explanation"]
    shares = {one["name"]: one["share"] for one in why["members"]}
    assert set(shares) == {"words", name} and sum(shares.values()) == pytest.approx(1)
    assert sum(one["weight"] * one["value"] for one in why["members"]) == pytest.approx(score, rel=1e-5)
