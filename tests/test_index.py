"""Search by an index over one-vs-rest classifiers: against the reference, from exact to fast, in files."""

import json
import re

import numpy as np
import pytest
from scipy.sparse import csr_array

import reference_index
from bonsai_xmc import Bonsai, FormatError, _core, datasets
from bonsai_xmc._cli.report import describe, rows_of
from bonsai_xmc._model.strategy import Facts, Probes, n_probe
from bonsai_xmc._modelfile import container
from bonsai_xmc._selection.strategy import resolve
from helpers import random_csr
from reference import Node
from reference_index import BLOCK
from stored import as_rows, pack

N_LABELS, N_FEATURES = 2500, 120


def make_classifiers(seed, n_labels=N_LABELS, n_features=N_FEATURES):
    """(weights, scales, biases, forest): frequent and rare features, both signs, a label without weights."""
    rng = np.random.default_rng(seed)
    share = rng.random(n_features) ** 4 / 3
    W = rng.integers(-60, 128, (n_labels, n_features)) * (rng.random((n_labels, n_features)) < share)
    W[5] = 0
    bias = np.where(rng.random(n_labels) < 0.02, -0.5 * rng.random(n_labels), -1.0).astype(np.float32)
    arrays = pack([Node(rng.permutation(n_labels), W=W, b=bias)], scale=1.0)
    arrays["scale"] = rng.uniform(0.001, 0.02, n_labels).astype(np.float32)
    forest = _core.Forest(arrays, n_features, n_labels)
    return W, arrays["scale"], bias, forest


def make_rows(seed, n, n_features=N_FEATURES):
    rng = np.random.default_rng(seed)
    X = random_csr((n, n_features), density=0.3, rng=rng, data_sampler=rng.standard_normal).toarray()
    return np.abs(X) * np.where(rng.random(X.shape) < 0.1, -1, 1)


@pytest.fixture(scope="module")
def classifiers():
    return make_classifiers(0)


@pytest.fixture(scope="module")
def index(classifiers):
    return _core.build_label_index(classifiers[3], 1)


def top_k(forest, index, X, k, probes, threads=1, normalize=True):
    model = _core.Model(None, forest, "squared_hinge", normalize, index=index)
    options = {"beam_size": 0, "exact": False, "threads": threads}
    return model.top_k(as_rows(X), k, n_probe=probes, **options)


# --- the index ---


def test_lists_are_those_of_the_reference(classifiers, index):
    W, scale, bias, forest = classifiers
    expected, arrays = reference_index.Index(W, scale, bias).arrays(), index.arrays()
    assert np.diff(expected["list_ptr"]).max() > reference_index.SHORT > np.diff(expected["list_ptr"]).min()
    for name, values in expected.items():
        assert arrays[name].dtype == values.dtype and np.array_equal(arrays[name], values), name
    index.verify()
    again = _core.build_label_index(forest, 5).arrays()
    assert all(np.array_equal(again[name], arrays[name]) for name in arrays)


# --- search ---


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("probes", [1, 2, 4, 12])
def test_search_is_that_of_the_reference(classifiers, index, probes, normalize):
    """The best labels of the blocks that the reference finds. With one probe, the budget is tight."""
    W, scale, bias, forest = classifiers
    plain, X, k = reference_index.Index(W, scale, bias), make_rows(1, 12), 9
    ids, scores = top_k(forest, index, X, k, probes, normalize=normalize)
    all_ids, all_scores = top_k(forest, None, X, N_LABELS, 0, normalize=normalize)
    position = {label: p for p, label in enumerate(forest.arrays()["children"].tolist())}
    for row, x in enumerate(X):
        blocks = plain.find_blocks(x, probes, normalize)
        chosen = [place for place, label in enumerate(all_ids[row]) if position[label] // BLOCK in blocks][:k]
        assert ids[row].tolist() == all_ids[row, chosen].tolist()
        assert scores[row].tolist() == all_scores[row, chosen].tolist()


def test_nothing_depends_on_threads_or_on_the_other_rows(classifiers, index):
    forest, X = classifiers[3], make_rows(2, 150)
    ids, scores = top_k(forest, index, X, 6, 3)
    for threads in (2, 5):
        other = top_k(forest, index, X, 6, 3, threads)
        assert np.array_equal(other[0], ids) and np.array_equal(other[1], scores)
    for row in range(20):
        alone = top_k(forest, index, X[[row]], 6, 3)
        assert np.array_equal(alone[0][0], ids[row]) and np.array_equal(alone[1][0], scores[row])


def test_more_probes_find_more_and_all_of_them_everything(classifiers, index):
    forest, X, n_blocks = classifiers[3], make_rows(3, 200), -(-N_LABELS // BLOCK)
    exact = top_k(forest, None, X, 5, 0)
    recall = []
    for probes in (1, 4, 10, n_blocks - 1, n_blocks, n_blocks + 7, 0):
        ids, _ = top_k(forest, index, X, 5, probes)
        recall.append(np.mean([len(set(a) & set(b)) / 5 for a, b in zip(ids, exact[0], strict=True)]))
    assert recall == sorted(recall) and recall[0] < 0.9 and recall[2] > 0.9
    assert recall[-3:] == [1, 1, 1]


def test_index_returns_no_label_for_rows_without_features(classifiers, index):
    X = make_rows(4, 5)
    X[[1, 4]] = 0
    ids, scores = top_k(classifiers[3], index, X, 3, 2)
    assert (ids[[1, 4]] == -1).all() and np.isneginf(scores[[1, 4]]).all() and (ids[[0, 2, 3]] >= 0).all()


# --- models ---


@pytest.fixture(scope="module")
def data():
    return datasets.make_xmc(n_rows=4000, n_test=300, n_features=3000, n_labels=9000, random_state=3)


@pytest.fixture(scope="module")
def model(data):
    return Bonsai(search="index", threshold=0.5).fit(data.X_train, data.Y_train)


def test_a_trained_model_finds_nearly_all(model, data):
    """With a third of the blocks."""
    assert (model.classifiers_, model.search_) == ("one_vs_rest", "index")
    exact, _ = model.top_k(data.X_test, 5, exact=True)
    fast = model.set_params(n_probe=23).top_k(data.X_test, 5)[0]
    everything = model.set_params(n_probe=None).top_k(data.X_test, 5)[0]
    model.set_params(n_probe="auto")
    assert np.array_equal(everything, exact) and not np.array_equal(fast, exact)
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(fast, exact, strict=True)]) > 0.97


def test_similar_labels_stand_together(model, data):
    """In the order of a tree's leaves; the best five labels of a row share more blocks than by index."""
    classifiers = model.fitted_.linear.core.one_vs_rest.arrays()["children"]
    assert not np.array_equal(classifiers, np.sort(classifiers)) and model.trees_ == []
    position = np.empty(9000, int)
    position[classifiers] = np.arange(len(classifiers))
    rank = np.searchsorted(np.sort(classifiers), np.arange(9000))
    ids, _ = model.top_k(data.X_test, 5, exact=True)
    blocks = [np.mean([len(set(row)) for row in (where // BLOCK)[ids]]) for where in (position, rank)]
    assert blocks[0] < 0.9 * blocks[1]


def test_saved_models_keep_index_and_probes(model, data, tmp_path):
    path = tmp_path / "model.bonsai"
    model.set_params(n_probe=9).save(path)
    expected = model.top_k(data.X_test, 5)
    model.set_params(n_probe="auto")
    for options in ({}, {"mmap": False}, {"verify": True}):
        loaded = Bonsai.load(path, **options)
        assert (loaded.n_probe, loaded.search, loaded.search_) == (9, "index", "index")
        ids, scores = loaded.top_k(data.X_test, 5)
        assert np.array_equal(ids, expected[0]) and np.array_equal(scores, expected[1])
    file = container.read(path, mmap=False)
    assert "index" in file.requires
    arrays = model.fitted_.linear.core.index.arrays()
    assert all(np.array_equal(file.arrays[f"index.{name}"], arrays[name]) for name in arrays)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("list_ptr", lambda a: a[:-1], "the tensor index.list_ptr has the shape"),
        ("postings", lambda a: a[:-1], "a list_ptr that does not span the postings"),
        ("levels", lambda a: a[::-1].copy(), "levels that are not descending magnitudes"),
        ("levels", lambda a: None, "the tensor index.levels is missing"),
    ],
)
def test_an_index_that_does_not_fit(model, tmp_path, name, change, message):
    path = tmp_path / "model.bonsai"
    model.save(path)
    file = container.read(path, mmap=False)
    arrays = dict(file.arrays)
    new = change(np.array(arrays.pop(f"index.{name}")))
    if new is not None:
        arrays[f"index.{name}"] = new
    container.write(path, arrays, file.metadata, file.requires)
    with pytest.raises(FormatError, match=re.escape(message)):
        Bonsai.load(path)


def test_damaged_postings_are_found_by_verify_and_harm_nothing(model, data, tmp_path):
    path = tmp_path / "model.bonsai"
    model.set_params(n_probe=5).save(path)
    model.set_params(n_probe="auto")
    file = container.read(path, mmap=False)
    words = np.array(file.arrays["index.postings"])
    words[:] = np.random.default_rng(0).integers(0, 2**32, len(words), dtype=np.uint32)
    container.write(path, file.arrays | {"index.postings": words}, file.metadata, file.requires)
    ids, _ = Bonsai.load(path).top_k(data.X_test, 5)
    assert ((ids >= 0) & (ids < 9000)).all()
    with pytest.raises(FormatError, match="its label index has"):
        Bonsai.load(path, verify=True)


def test_an_index_of_other_classifiers(classifiers, index):
    forest = make_classifiers(1, n_labels=300)[3]
    with pytest.raises(ValueError, match="its label index does not belong to its one-vs-rest classifiers"):
        _core.Model(None, forest, "squared_hinge", True, index=index)
    with pytest.raises(ValueError, match="a label index needs a forest that is one leaf"):
        X, Y = csr_array(np.eye(8)), csr_array(np.eye(8))
        model = Bonsai(classifiers="leaf", branching_factor=2, max_leaf_size=2).fit(X, Y)
        _core.build_label_index(model.fitted_.linear.core.trees, 1)


@pytest.mark.parametrize(
    "params",
    [
        {"classifiers": "blend", "blend_weight": 0.4, "logit_adjustment": 0.3, "n_trees": 2},
        {"classifiers": "one_vs_rest", "logit_adjustment": 0.3},
    ],
    ids=["blend", "adjusted"],
)
def test_blends_and_adjusted_scores(data, params, tmp_path):
    X = data.X_test[:60]
    model = Bonsai(**params, search="index", threshold=0.5, C=1.0).fit(data.X_train, data.Y_train)
    all_ids, all_scores = model.set_params(n_probe=None).top_k(X, 300)
    ids, scores = model.set_params(n_probe=12).top_k(X, 10)
    for row in range(X.shape[0]):  # the ranking of all labels without those that are not found
        place = {label: i for i, label in enumerate(all_ids[row].tolist())}
        places = [place[label] for label in ids[row].tolist() if label in place]
        assert places == sorted(places)
        assert scores[row, : len(places)].tolist() == all_scores[row, places].tolist()
    assert np.mean([len(set(a) & set(b)) for a, b in zip(ids, all_ids[:, :10], strict=True)]) > 5
    assert not np.array_equal(ids, all_ids[:, :10])  # some are not found
    model.save(tmp_path / "m.bonsai")
    loaded = Bonsai.load(tmp_path / "m.bonsai").set_params(n_jobs=1, n_probe=12)
    alone = np.vstack([loaded.top_k(X[i : i + 1], 10)[0] for i in range(20)])
    assert np.array_equal(alone, ids[:20])


# --- the number of probes ---


def recall(model, X, k):
    """Return the share of exact search's k best labels that is found; labels of equal scores count alike."""
    exact, found = (model.top_k(X, k, exact=exact)[1] for exact in (True, False))
    return np.mean(found >= exact[:, -1:])


@pytest.fixture(scope="module")
def long_rows():
    """Labels that share many features: 16 + 4 k blocks find too few of the best ones."""
    rng = np.random.default_rng(0)
    n_rows, n_features, n_labels, length = 12_500, 2000, 12_000, 60
    word = lambda n: np.minimum(n_features - 1, (n_features ** rng.random(n) - 1).astype(int))
    X = csr_array(
        (
            rng.uniform(0.5, 1.5, n_rows * length).astype(np.float32),
            (np.repeat(np.arange(n_rows), length), word(n_rows * length)),
        ),
        (n_rows, n_features),
    )
    Y = csr_array((np.ones(n_rows), (np.arange(n_rows), np.arange(n_rows) % n_labels)), (n_rows, n_labels))
    return X[:12_000], Y[:12_000], X[12_000:]


@pytest.fixture(scope="module")
def measured(long_rows):
    return Bonsai(search="index", threshold=0.5).fit(*long_rows[:2])


def test_measured_probes_reach_the_recall_that_fixed_ones_miss(measured, long_rows):
    X = long_rows[2]
    probes = measured.fitted_.linear.probes
    for k in (5, 10):
        usual = Bonsai(**measured.get_params()).set_params(n_probe=16 + 4 * k)
        usual.fitted_ = measured.fitted_
        assert recall(usual, X, k) < 0.99
        assert probes.n_probe(k) == 0 or probes.n_probe(k) > 16 + 4 * k
        assert recall(measured, X, k) > 0.99
    assert min(probes.recall_5, probes.recall_10) >= 0.995 and probes.n_rows == 200


def test_what_was_measured_is_kept(model, data, tmp_path):
    probes = model.fitted_.linear.probes
    model.save(tmp_path / "m.bonsai")
    loaded = Bonsai.load(tmp_path / "m.bonsai")
    assert loaded.fitted_.linear.probes == probes
    assert loaded.drop([0, 1]).fitted_.linear.probes == probes
    one, many = (
        Bonsai(search="index", threshold=0.5, n_jobs=n).fit(data.X_train, data.Y_train) for n in (1, 3)
    )
    assert one.fitted_.linear.probes == many.fitted_.linear.probes == probes
    shown = dict(rows_of(describe("m", 1, loaded.fitted_, loaded._prediction())))["n_probe"]
    assert f"{100 * probes.recall_5:.2f} % of the 5 best" in shown and f"({probes.n_rows:,} rows)" in shown


def test_a_file_without_a_measure(model, data, tmp_path):
    """It is searched by 16 + 4 k blocks, and what is out of range is refused."""
    path = tmp_path / "m.bonsai"
    model.save(path)
    file = container.read(path, mmap=False)
    told = json.loads(file.metadata["model"])
    write = lambda told: container.write(
        path, file.arrays, file.metadata | {"model": json.dumps(told)}, file.requires
    )
    write({name: value for name, value in told.items() if name != "probes"})
    old = Bonsai.load(path)
    assert old.fitted_.linear.probes is None and "n_probe" not in dict(
        rows_of(describe("m", 1, old.fitted_, old._prediction()))
    )
    assert np.array_equal(old.top_k(data.X_test, 1)[0], old.set_params(n_probe=20).top_k(data.X_test, 1)[0])
    write(told | {"probes": told["probes"] | {"n_probe_5": -1}})
    with pytest.raises(FormatError, match="n_probe_5 is -1"):
        Bonsai.load(path)


def test_fewer_labels_than_are_measured():
    model = Bonsai(search="index", threshold=0.5).fit(csr_array(np.eye(6)), csr_array(np.eye(6)))
    assert model.fitted_.linear.probes.n_probe(5) == 0 and model.top_k(np.eye(6), 1)[0][:, 0].tolist() == [
        *range(6)
    ]


def test_probes_of_any_k():
    probes = Probes(1000, 40, 60, 0.995, 0.996)
    assert [probes.n_probe(k) for k in (1, 5, 7, 10, 20)] == [40, 40, 48, 60, 100]
    assert [Probes(1000, 40, 0, 0.995, 1.0).n_probe(k) for k in (5, 6)] == [40, 0]
    assert Probes(1000, 0, 0, 1.0, 1.0).n_probe(3) == 0
    assert n_probe("auto", "index", 5, 700_000, measured=probes) == 40
    assert n_probe(7, "index", 5, 700_000, measured=probes) == 7
    assert n_probe(None, "index", 5, 700_000, measured=probes) == 0


# --- parameters ---


def strategy_for(n_labels, dense=False, **params):
    facts = Facts(n_rows=1000, n_features=1000, n_entries=10_000, n_labels=n_labels, dense=dense)
    return resolve(Bonsai(**params).get_params(deep=False), facts)


def test_what_auto_resolves_to():
    given = {"classifiers": "one_vs_rest"}
    assert strategy_for(50_000, **given).search == "exact"
    assert strategy_for(50_001, **given).search == "index"
    assert strategy_for(50_001, dense=True, **given).search == "exact"
    assert strategy_for(2**24 + 1, **given).search == "exact"
    assert strategy_for(10, search="index").classifiers == "one_vs_rest"
    assert strategy_for(50_001, **given).n_trees == 0
    assert strategy_for(50_000, classifiers="blend").search == "exact"
    assert strategy_for(50_001, classifiers="blend").search == "index"


def test_probes_grow_with_k():
    assert [n_probe("auto", "index", k, 700_000) for k in (1, 5, 100)] == [20, 36, 416]
    assert n_probe("auto", "index", 100, 50_000) == 0  # more than half of the blocks
    assert n_probe("auto", "exact", 5, 700_000) in (0, 36)
    assert n_probe("auto", "index", 5, 700_000, adjusted=True) == 144
    assert (n_probe(None, "index", 5, 700_000), n_probe(7, "index", 5, 10)) == (0, 7)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"classifiers": "leaf", "search": "index"}, 'search="index" needs one-vs-rest classifiers'),
        ({"search": "index", "beam_size": 3}, "an index finds the labels that it scores"),
        ({"search": "index", "n_trees": 2}, "n_trees=2 would have no effect: this model has no trees"),
        ({"search": "exact", "n_probe": 3}, "n_probe is 3, but this model has no index to search"),
        ({"search": "index", "n_probe": 0}, "n_probe is 0, but must be 'auto', None or an integer from 1"),
    ],
)
def test_parameters_that_do_not_fit(generated, params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Bonsai(**params).fit(generated.X_train, generated.Y_train)


def test_memory_counts_the_index(generated):
    estimate = [
        Bonsai(search=search).memory_estimate(generated.X_train, generated.Y_train)["model_bytes"]
        for search in ("exact", "index")
    ]
    assert estimate[1] > 1.3 * estimate[0]
