"""Models that rank by one classifier for each label: the choice, files and copies, the command line."""

import json
import re

import numpy as np
import pytest
from sklearn.base import clone

from bonsai_xmc import Bonsai, FormatError, _cli, _core, datasets
from bonsai_xmc._model.strategy import STRATEGIES
from bonsai_xmc._modelfile import container
from bonsai_xmc._selection import strategy
from helpers import one_vs_rest_of, same_model, trees_of
from kinds import some
from stored import stored_classifiers
from test_saving import COPIES

KINDS = some("leaf", "exact", "index", "blend")


def make(generated, **options):
    if options.get("classifiers") != "one_vs_rest":
        options = {"classifiers": "leaf", "branching_factor": 6, "beam_size": 3, "prune": 0.1} | options
    return Bonsai(**options).fit(generated.X_train, generated.Y_train)


@pytest.fixture(scope="module", params=KINDS)
def model(request, generated):
    return make(generated, **KINDS[request.param])


# --- the choice ---


@pytest.mark.parametrize(
    ("options", "pairs", "exact", "expected"),
    [
        ({"classifiers": "auto"}, 1e12, 50_000, ("one_vs_rest", "exact")),
        ({"classifiers": "auto"}, 1e12, 56, ("one_vs_rest", "index")),  # 57 labels have rows
        ({"classifiers": "auto"}, 1e12, 57, ("one_vs_rest", "exact")),
        ({"classifiers": "auto"}, 1e3, 50_000, ("leaf", "beam")),
        ({"classifiers": "auto", "search": "exact"}, 1e3, 50_000, ("one_vs_rest", "exact")),
        ({"classifiers": "auto", "search": "exact"}, 1e12, 1, ("one_vs_rest", "exact")),
        ({"classifiers": "one_vs_rest"}, 1e3, 50_000, ("one_vs_rest", "exact")),
        ({"classifiers": "one_vs_rest"}, 1e3, 1, ("one_vs_rest", "index")),
        ({"search": "index"}, 1e3, 50_000, ("one_vs_rest", "index")),
        ({"classifiers": "leaf"}, 1e12, 50_000, ("leaf", "beam")),
        ({}, 1e12, 50_000, ("one_vs_rest", "exact")),
    ],
)
def test_what_auto_resolves_to(generated, monkeypatch, options, pairs, exact, expected):
    monkeypatch.setattr(strategy, "MAX_PAIRS", pairs)
    monkeypatch.setattr(strategy, "MAX_EXACT_LABELS", exact)
    model = Bonsai(**options).fit(generated.X_train, generated.Y_train)
    assert (model.classifiers_, model.search_) == expected
    assert (trees_of(model) is not None) == (expected[1] == "beam")
    assert (one_vs_rest_of(model) is not None) == (expected[0] == "one_vs_rest")
    assert len(model.trees_) == model.strategy_.n_trees == (3 if expected[1] == "beam" else 0)
    search = "auto" if expected[1] == "beam" else expected[1]
    explicit = Bonsai(classifiers=expected[0], search=search).fit(generated.X_train, generated.Y_train)
    assert same_model(model, explicit)
    assert model.score(generated.X_test, generated.Y_test) > 0.5


def test_the_limit_of_pairs_is_labels_times_entries(generated, monkeypatch):
    pairs = 57 * generated.X_train.nnz
    for most, expected in [(pairs, "one_vs_rest"), (pairs - 1, "leaf")]:
        monkeypatch.setattr(strategy, "MAX_PAIRS", most)
        model = Bonsai().fit(generated.X_train, generated.Y_train)
        assert model.classifiers_ == expected
        assert str(pairs // 57)[-3:] in model.strategy_.reason


def test_no_limit_of_pairs_where_an_index_holds_the_rows(generated, monkeypatch):
    monkeypatch.setattr(strategy, "MAX_PAIRS", 1)
    monkeypatch.setattr(strategy, "MIN_SEARCHED_LABELS", 57)
    X, Y = generated.X_train, generated.Y_train
    assert Bonsai().fit(X, Y).classifiers_ == "one_vs_rest"
    X = X.copy()
    X.data[0] = -1  # which the index does not hold
    assert Bonsai().fit(X, Y).classifiers_ == "leaf"
    monkeypatch.setattr(strategy, "MIN_SEARCHED_LABELS", 58)
    assert Bonsai().fit(generated.X_train, Y).classifiers_ == "leaf"


def test_few_labels_are_ranked_exactly_by_one_vs_rest(generated):
    model = Bonsai().fit(generated.X_train, generated.Y_train)
    assert (model.classifiers_, model.search_) == ("one_vs_rest", "exact")
    assert model.timings_.keys() == {"one-vs-rest", "threshold"}
    unpacked = Bonsai().fit(generated.X_train.toarray(), generated.Y_train)
    assert same_model(unpacked, model)  # most of its entries are 0
    dense = Bonsai().fit(generated.X_train.toarray() + 0.01, generated.Y_train)
    assert (dense.classifiers_, dense.search_) == ("one_vs_rest", "exact")
    assert dense.strategy_.bias == "learn"


def test_frequent_labels_learn_their_bias(generated, monkeypatch):
    options = {"classifiers": "one_vs_rest", "prune": 0.0, "tol": 0.002, "max_iter": 500, "tail_exponent": 0}
    model = make(generated, **options)
    n = np.asarray(generated.Y_train.sum(axis=0)).ravel()[one_vs_rest_of(model)["children"]]
    bias, frequent = one_vs_rest_of(model)["bias"], n > 0.02 * generated.X_train.shape[0]
    assert 0 < np.count_nonzero(frequent) < len(n)
    assert set(bias[~frequent]) == {-1.0}
    monkeypatch.setattr(strategy, "FREQUENT_SHARE", 0.0)
    learnt = make(generated, **options)
    # The same problem, in panels of other labels: coordinate descent takes the rows in another order.
    np.testing.assert_allclose(bias[frequent], one_vs_rest_of(learnt)["bias"][frequent], atol=0.01)
    assert len(set(bias[frequent])) > 10
    monkeypatch.setattr(strategy, "FREQUENT_SHARE", 1.0)
    held = make(generated, **options)
    assert set(one_vs_rest_of(held)["bias"]) == {-1.0}
    for other, same in ((learnt, frequent), (held, ~frequent)):
        for place in np.flatnonzero(same)[:5]:
            mine, theirs = (stored_classifiers(one_vs_rest_of(m), 0, 300)[0][place] for m in (model, other))
            np.testing.assert_allclose(mine, theirs, atol=0.03)


def test_exact_search_needs_the_ranker(generated):
    with pytest.raises(
        ValueError,
        match=re.escape(
            'search="exact" needs one-vs-rest classifiers; with classifiers="leaf", beam_size=None'
        ),
    ):
        make(generated, classifiers="leaf", search="exact")
    with pytest.raises(ValueError, match='search="exact" needs'):
        Bonsai(classifiers="leaf", search="exact").memory_estimate(generated.X_train, generated.Y_train)


def test_one_vs_rest_biases_are_fixed_and_tree_biases_learnt(generated):
    assert -1.0 in set(one_vs_rest_of(make(generated, **KINDS["blend"]))["bias"])
    assert len(set(trees_of(make(generated, **KINDS["blend"]))["bias"])) > 10  # learnt


@pytest.mark.parametrize("classifiers", ["one_vs_rest", "blend"])
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "logistic", "prune": 0.01},
        {"loss": "logistic", "solver": "newton", "prune": 0.01},
    ],
)
def test_what_the_panel_solver_does(generated, options, classifiers):
    """The same classifiers as those of a tree without inner nodes, in any order of labels."""
    tight = {"tol": 1e-3, "max_iter": 500, "prune": 0.1} | options
    model = make(generated, classifiers=classifiers, **tight)
    flat = make(generated, max_depth=1, n_trees=1, **tight)
    arrays = one_vs_rest_of(model)
    W, _, b = stored_classifiers(arrays, 0, 300)
    V, scale, c = stored_classifiers(trees_of(flat), 0, 300)
    place = {label: i for i, label in enumerate(trees_of(flat)["children"].tolist())}
    order = [place[label] for label in arrays["children"].tolist()]
    assert sorted(order) == list(range(57))
    np.testing.assert_allclose(W, V[order], atol=float(scale.max()) + 1e-3)
    np.testing.assert_allclose(b, c[order], atol=1e-3)
    assert model.score(generated.X_test, generated.Y_test) > 0.4


@pytest.mark.parametrize("classifiers", ["one_vs_rest", "blend"])
def test_dense_rows_train_one_vs_rest_and_blends(generated, classifiers):
    dense = np.float32(generated.X_train.toarray()) + np.float32(0.01)
    trees = {"branching_factor": 6, "beam_size": None} if classifiers == "blend" else {}
    model = Bonsai(classifiers=classifiers, prune=0.0, **trees).fit(dense, generated.Y_train)
    assert model.score(generated.X_test.toarray() + 0.01, generated.Y_test) > 0.5


def test_own_trees_and_names(named):
    X, Y = named
    nested = [["木", "Ahorn", "a name without rows"], ["", "Bäume 🌳"], ["línea\nnueva", "a" * 300]]
    model = Bonsai(classifiers="blend", beam_size=1).fit(X, Y, tree=nested)
    assert [model.classes_[i] for i in one_vs_rest_of(model)["children"]] == [
        "Ahorn", "木", "", "Bäume 🌳", "a" * 300, "línea\nnueva",
    ]  # fmt: skip
    assert model.score(X, Y) == 1.0


# --- copies, files, threads ---


def test_same_bytes_for_any_threads(generated, tmp_path, model):
    params = {key: value for key, value in model.get_params().items() if key != "n_jobs"}
    files = set()
    for n_jobs in (1, 2, 4, 2):
        again = Bonsai(n_jobs=n_jobs, **params).fit(generated.X_train, generated.Y_train)
        again.save(tmp_path / "m")
        files.add((tmp_path / "m").read_bytes())
    assert len(files) == 1
    assert same_model(model, again)


def test_other_seeds_give_about_the_same_classifiers(generated):
    one, other = (
        make(generated, **KINDS["exact"], random_state=seed, tol=0.01, max_iter=200) for seed in (0, 1)
    )
    assert not same_model(one, other)
    W, V = (stored_classifiers(one_vs_rest_of(m), 0, 300)[0] for m in (one, other))
    assert np.abs(W - V).max() < 0.15


@pytest.mark.parametrize("way", COPIES)
def test_copies_of_a_model_predict_the_same(model, generated, tmp_path, way):
    other = COPIES[way](model, tmp_path)
    assert same_model(model, other)
    assert (other.classifiers_, other.search_) == (model.classifiers_, model.search_)
    for mine, theirs in zip(model.top_k(generated.X_test, 9), other.top_k(generated.X_test, 9), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_clones_are_not_fitted(model, generated):
    other = clone(model)
    assert other.get_params() == model.get_params()
    assert not hasattr(other, "classifiers_") and not hasattr(other, "search_")
    assert same_model(other.fit(generated.X_train, generated.Y_train), model)


def test_save_load_save_gives_the_same_bytes(model, tmp_path):
    model.save(tmp_path / "first")
    Bonsai.load(tmp_path / "first", verify=True).save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    names = {name.partition(".")[0] for name in container.read(tmp_path / "first").arrays}
    assert names == {"labels", *STRATEGIES[model.classifiers_, model.search_]}


def fitted_as(classifiers, search):
    def change(arrays, metadata):
        for name, keys in (("model", ()), ("params", ("resolved",))):
            part = json.loads(metadata[name])
            inner = part[keys[0]] if keys else part
            inner |= {"classifiers": classifiers, "search": search}
            metadata[name] = json.dumps(part)

    return change


def without(prefix):
    def change(arrays, metadata):
        for name in [name for name in arrays if name.startswith(prefix)]:
            del arrays[name]

    return change


def instead(name, of):
    return lambda arrays, metadata: arrays.update({name: of(arrays[name])})


def two_leaves(arrays, metadata):
    """The ranker becomes a root with one leaf, consistent in itself."""
    n = len(arrays["one_vs_rest.children"])
    blocks = arrays["one_vs_rest.block_ptr"][1]
    arrays["one_vs_rest.children"] = np.concatenate([np.array([1], np.int32), arrays["one_vs_rest.children"]])
    arrays["one_vs_rest.is_leaf"] = np.array([0, 1], np.uint8)
    arrays["one_vs_rest.tree_ptr"] = np.array([0, 2])
    arrays["one_vs_rest.child_ptr"] = np.array([0, 1, n + 1])
    arrays["one_vs_rest.block_ptr"] = np.array([0, 1, blocks + 1])
    for name in ("bias", "scale"):
        of = arrays[f"one_vs_rest.{name}"]
        arrays[f"one_vs_rest.{name}"] = np.concatenate([np.zeros(1, of.dtype), of])
    arrays["one_vs_rest.shift"] = np.concatenate([np.zeros(1, np.uint8), arrays["one_vs_rest.shift"]])
    arrays["one_vs_rest.buckets"] = np.concatenate([np.zeros(1, np.uint32), arrays["one_vs_rest.buckets"]])
    arrays["one_vs_rest.bucket_ptr"] = np.concatenate([[0], arrays["one_vs_rest.bucket_ptr"] + 1])
    arrays["one_vs_rest.record_ptr"] = np.concatenate([[0], arrays["one_vs_rest.record_ptr"]])


def swapped(arrays, metadata):
    for name in [name.removeprefix("one_vs_rest.") for name in arrays if name.startswith("one_vs_rest.")]:
        first, second = f"trees.{name}", f"one_vs_rest.{name}"
        arrays[first], arrays[second] = arrays[second], arrays[first]


@pytest.mark.parametrize(
    "change",
    [
        without("one_vs_rest."),  # leaves without classifiers, and nothing that ranks
        without("trees."),
        without("one_vs_rest.records"),
        without("one_vs_rest.is_leaf"),
        instead("one_vs_rest.children", lambda a: a[:-1]),
        instead("one_vs_rest.children", lambda a: a + 4),
        instead("one_vs_rest.children", lambda a: -a),
        instead("one_vs_rest.children", lambda a: a.astype(np.int64)),
        instead("one_vs_rest.bias", lambda a: a[:-1]),
        instead("one_vs_rest.scale", lambda a: a * np.float32(np.inf)),
        instead("one_vs_rest.child_ptr", lambda a: a + 1),
        instead("one_vs_rest.block_ptr", lambda a: a + 1),
        instead("one_vs_rest.bucket_ptr", lambda a: a[:-1]),
        instead("one_vs_rest.records", lambda a: a[:-1]),
        instead("one_vs_rest.is_leaf", lambda a: 0 * a),
        instead("one_vs_rest.tree_ptr", lambda a: a[:1]),
        two_leaves,
        swapped,
        fitted_as("leaf", "beam"),
        fitted_as("one_vs_rest", "exact"),
        fitted_as("leaf", "exact"),
        fitted_as("one_vs_rest", "auto"),
    ],
)
def test_files_that_do_not_fit_together(generated, tmp_path, change):
    path = tmp_path / "m"
    make(generated, **KINDS["blend"]).save(path)
    file = container.read(path)
    arrays, metadata = dict(file.arrays), dict(file.metadata)
    change(arrays, metadata)
    container.write(path, arrays, metadata)
    for verify in (False, True):
        with pytest.raises(FormatError, match="the model is inconsistent: "):
            Bonsai.load(path, verify=verify)


def test_files_of_one_vs_rest_with_a_beam_are_refused(generated, tmp_path):
    make(generated, **KINDS["blend"]).save(tmp_path / "m")
    file = container.read(tmp_path / "m")
    metadata = dict(file.metadata)
    fitted_as("one_vs_rest", "beam")({}, metadata)
    container.write(tmp_path / "m", file.arrays, metadata)
    with pytest.raises(FormatError, match=r"classifiers .* do not fit its tensors"):
        Bonsai.load(tmp_path / "m")


def test_two_leaves_are_consistent_but_for_their_use(generated):
    """Otherwise the test above would not show that the number of leaves is checked."""
    ranker = one_vs_rest_of(make(generated, **KINDS["blend"]))
    arrays = {f"one_vs_rest.{name}": array for name, array in ranker.items()}
    two_leaves(arrays, {})
    _core.Forest(
        {name.removeprefix("one_vs_rest."): array for name, array in arrays.items()}, 300, 60
    ).verify()


# --- the command line ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory, generated):
    path = tmp_path_factory.mktemp("ranker")
    datasets.save_xc(path / "train.txt", generated.X_train, generated.Y_train)
    datasets.save_xc(path / "test.txt", generated.X_test, generated.Y_test)
    make(generated, **KINDS["blend"]).set_params(beam_size=1).save(path / "blend.bonsai")
    make(generated, **KINDS["exact"]).save(path / "exact.bonsai")
    make(generated, **KINDS["index"]).save(path / "index.bonsai")
    make(generated).set_params(beam_size=1).save(path / "leaf.bonsai")
    return path


def test_training_prints_what_was_chosen(bonsai, tmp_path, monkeypatch):
    out = bonsai("train", "train.txt", "-o", tmp_path / "m")
    assert "one-vs-rest classifiers; all labels are scored" in out
    assert re.search(r"^time .*one-vs-rest [0-9]", out, re.MULTILINE)
    report = json.loads(bonsai("train", "train.txt", "-o", tmp_path / "m", "--json"))
    assert (report["classifiers"], report["search"]) == ("one_vs_rest", "exact")
    assert report["params"]["classifiers"] == "auto"
    monkeypatch.setattr(strategy, "MAX_EXACT_LABELS", 1)
    out = bonsai("train", "train.txt", "-o", tmp_path / "m")
    assert "one-vs-rest classifiers; an index over them finds" in out
    monkeypatch.setattr(strategy, "MAX_PAIRS", 1)
    out = bonsai("train", "train.txt", "-o", tmp_path / "m")
    assert re.search(r"^ranked by +leaf classifiers, found by beam search$", out, re.MULTILINE)


@pytest.mark.parametrize("kind", KINDS)
def test_info_names_what_ranks_the_labels(bonsai, kind):
    out = bonsai("info", f"{kind}.bonsai", "--verify")
    chosen = {"leaf": ("leaf", "beam"), "blend": ("blend", "exact")}.get(kind, ("one_vs_rest", kind))
    assert _cli.report._RANKED_BY[chosen] in out
    report = json.loads(bonsai("info", f"{kind}.bonsai", "--json"))
    assert (report["classifiers"], report["search"]) == chosen
    has_trees = kind in ("leaf", "blend")
    assert len(report["trees"]) == {"leaf": 3, "blend": 2}.get(kind, 0)
    assert ("n_trees" in report["strategy"]) == has_trees
    assert ("n_trees" in out) == has_trees


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_of_all_labels(bonsai, folder, generated, kind):
    plain = json.loads(bonsai("evaluate", f"{kind}.bonsai", "test.txt", "--json"))
    report = json.loads(bonsai("evaluate", f"{kind}.bonsai", "test.txt", "--exact", "--json"))
    assert not [name for name in plain if name.startswith("found")]
    assert plain.keys() | {"found@1", "found@3", "found@5"} == report.keys()
    model = Bonsai.load(folder / f"{kind}.bonsai")
    own, exact = (model.top_k(generated.X_test, 5, exact=flag)[0] for flag in (False, True))
    for k in (1, 3, 5):
        shared = [len(set(a[:k]) & set(b[:k]) - {-1}) for a, b in zip(own, exact, strict=True)]
        assert report[f"found@{k}"] == pytest.approx(100 * np.sum(shared) / np.sum(exact[:, :k] >= 0))
    assert (report["found@5"] == 100) == (kind in ("exact", "index"))  # a block holds all labels
    table = bonsai("evaluate", f"{kind}.bonsai", "test.txt", "--exact")
    assert re.search(rf"^found +[0-9.]+ +{report['found@3']:.2f} ", table, re.MULTILINE)


def test_predictions_have_no_other_search(bonsai, tmp_path):
    bonsai("predict", "blend.bonsai", "test.txt", "-o", tmp_path / "found")
    assert bonsai("evaluate", tmp_path / "found", "test.txt", "--exact", code=1) == ""
    assert (
        bonsai.error == f"bonsai: error: --exact needs a model, but {tmp_path / 'found'} holds predictions\n"
    )
