"""The memory of training: estimates against measurements, in processes of their own."""

import hashlib
import multiprocessing
import os
import resource
import zlib
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.scale import memory

from bonsai_xmc import Bonsai, TextBonsai, _core
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._selection.strategy import resolve
from bonsai_xmc._training.memory import limit, sizes
from bonsai_xmc._training.train import core_dataset
from bonsai_xmc._training.work import Work

linux = pytest.mark.skipif(not memory.Path("/proc/self/clear_refs").exists(), reason="needs Linux")


@pytest.fixture(scope="module")
def medium(tmp_path_factory):
    """A folder with 10,000 labels; an eighth of the rows that the benchmark has."""
    folder = tmp_path_factory.mktemp("medium")
    data = memory.datasets.make_xmc(
        n_rows=6_000, n_test=10, n_features=20_000, n_labels=10_000, features_per_row=40, labels_per_row=3
    )
    memory.write_matrices(folder, {"X": data.X_train, "Y": data.Y_train})
    return folder


def measured(*args):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(memory.measure, args)


@linux
@pytest.mark.parametrize(
    "params",
    [
        {"classifiers": "leaf", "threshold": 0.5},
        {
            "classifiers": "leaf",
            "balance": "equal",
            "branching_factor": 2,
            "max_leaf_size": 100,
            "max_depth": None,
        },
        {"classifiers": "one_vs_rest", "threshold": 0.5},
    ],
)
def test_the_estimate_is_close_to_the_peak(medium, params):
    result = measured(medium, "default", 2, params)
    assert result["estimate"] == pytest.approx(result["peak"], rel=0.35)


MANY_WEIGHTS = {"classifiers": "leaf", "threshold": 0.5, "prune": 0.0, "max_iter": 2, "n_jobs": 2}


def peak_of_classifiers(folder, checkpoint):
    """The peak from the first report of the phase to the end of training; runs in a fresh process."""
    Bonsai().fit(np.eye(16, dtype=np.float32), np.eye(16, dtype=int))
    before, seen = memory.resident("VmRSS"), []

    def watch(phase, done, total):
        if phase == "classifiers" and not seen:
            memory.Path("/proc/self/clear_refs").write_text("5")
            seen.append(phase)

    X, Y = memory.read_matrix(folder, "X"), memory.read_matrix(folder, "Y")
    model = Bonsai(**MANY_WEIGHTS).fit(X, Y, checkpoint=checkpoint, progress=watch)
    arrays = model.fitted_.linear.core.trees.arrays()
    return memory.resident("VmHWM") - before, sum(array.nbytes for array in arrays.values())


@linux
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_checkpoint_holds_the_results(medium, tmp_path):
    """They are not in memory, too: the model is there once."""
    model = Bonsai(**MANY_WEIGHTS)
    X, Y = memory.read_matrix(medium, "X"), memory.read_matrix(medium, "Y")
    problem = model._problem(training_rows(X, "Bonsai"), Y)
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        found = pool.starmap(peak_of_classifiers, [(medium, None), (medium, tmp_path / "c")], chunksize=1)
    for (peak, _), stored in zip(found, (False, True), strict=True):
        estimate = model._estimate(problem, model.get_params(), X, Y, stored=stored)
        assert peak == pytest.approx(estimate["phases"]["classifiers"], rel=0.35)
    assert found[0][0] - found[1][0] > 0.2 * found[0][1]


def problem_of(data):
    model = Bonsai()
    return model._problem(training_rows(data.X_train, "Bonsai"), data.Y_train)


def test_label_vectors_are_counted(generated):
    """The sample of a few labels is all of them, so they are counted exactly."""
    X, Y = generated.X_train, generated.Y_train
    problem = problem_of(generated)
    found = core_dataset(problem, resolve(Bonsai().get_params(deep=False), problem.facts)).sizes()
    vectors = (Y.T @ abs(X)).tocsr()
    together = (Y.T @ Y).tocsr()
    assert found.input_entries == pytest.approx(vectors.nnz, rel=0.1)
    assert found.output_entries == pytest.approx(
        together.nnz - np.count_nonzero(together.diagonal()), rel=0.1
    )
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    assert found.n_used_features == np.count_nonzero(frequency)
    assert found.n_singletons == np.count_nonzero(frequency == 1)


def test_texts_are_estimated_with_the_features_that_are_selected():
    """`fit` keeps some of the n-grams, by the labels; the estimate is for these, by whatever call."""
    rng = np.random.default_rng(0)
    words = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrs"]
    texts = [" ".join(rng.choice(words, 12)) for _ in range(400)]
    labels = [[int(label)] for label in rng.integers(0, 20, 400)]
    model = TextBonsai(word_ngrams={1: 1, 2: 1}, min_df=1, max_ngrams=100, classifier=Bonsai(n_jobs=1))
    told = []
    model.fit(iter(texts), labels, on_estimate=told.append)
    assert {name: n for name, n, _ in model.blocks_}["word 2"] == 100
    rows = model.fitted_.text.transform([[texts]], 1).to_scipy()
    selected = Bonsai(n_jobs=1).memory_estimate(rows, labels)
    given = rows.indptr.nbytes + rows.indices.nbytes + rows.data.nbytes
    everything = model.set_params(max_ngrams=None).memory_estimate(texts, labels)
    assert told[0]["model_bytes"] == selected["model_bytes"] < everything["model_bytes"]
    assert abs(told[0]["training_bytes"] - selected["training_bytes"]) <= given
    assert told[0]["training_bytes"] < everything["training_bytes"]
    assert model.set_params(max_ngrams=100).memory_estimate(texts, labels) == told[0]
    with pytest.raises(ValueError, match=r"fields='auto' chooses .* pass on_estimate to fit"):
        model.set_params(fields="auto").memory_estimate(texts, labels)


# --- members of one model ---


VECTORS = np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32)


def encoded(texts):
    places = [[zlib.crc32(word.encode()) % 512 for word in text.split()] for text in texts]
    return np.array([VECTORS[own].sum(axis=0) for own in places])


def with_encoder(encoder=encoded):
    classifier = Bonsai(
        classifiers="one_vs_rest", search="exact", C=1, logit_adjustment=0, threshold=0.3, n_jobs=2
    )
    return TextBonsai(word_ngrams=1, char_ngrams=None, encoder=encoder, classifier=classifier)


def of_texts(n):
    rng = np.random.default_rng(0)
    own = rng.integers(0, 300, n).tolist()
    return [f"word{i} noise{rng.integers(50)}" for i in own], [[f"label {i}"] for i in own]


def trained_with_an_encoder():
    """(peak, estimate before the training, estimate without one, phases, estimate of words alone)."""
    with_encoder().fit(*of_texts(300))
    texts, told = of_texts(6000), []
    memory.Path("/proc/self/clear_refs").write_text("5")
    before = memory.resident("VmRSS")
    model = with_encoder().fit(*texts, on_estimate=told.append)
    peak = memory.resident("VmHWM") - before
    words = with_encoder(None).memory_estimate(*texts)
    return peak, told, with_encoder().memory_estimate(*texts), model.timings_, words


@linux
def test_members_are_estimated_together():
    """The vectors take most of the memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak, told, estimate, phases, words = pool.apply(trained_with_an_encoder)
    assert estimate["training_bytes"] == pytest.approx(told[0]["training_bytes"], rel=0.01)  # of some texts
    assert estimate["training_bytes"] == pytest.approx(peak, rel=0.35)
    assert words["training_bytes"] < 0.1 * peak
    assert estimate["phases"]["weights"] > estimate["phases"]["one-vs-rest"] and "weights" in phases


def test_members_that_do_not_fit_together_are_refused(monkeypatch):
    monkeypatch.setattr(limit, "_sizes_of_process", lambda: (0, 0))
    texts, seen = of_texts(1000), []
    model = with_encoder()
    needed = [one.memory_estimate(*texts)["training_bytes"] for one in (with_encoder(None), model)]
    with pytest.raises(MemoryError, match=r"the phase 'weights' would take .*Give a higher max_memory"):
        model.fit(*texts, max_memory=2 * needed[0], progress=lambda phase, done, total: seen.append(phase))
    assert set(seen) == {"texts", "vectors"}  # no member is trained
    model.fit(*texts, max_memory=2 * needed[1])


def test_models_are_bounded_by_what_is_counted(generated):
    problem = problem_of(generated)
    for options in ({"classifiers": "leaf"}, {"classifiers": "blend"}, {"search": "index"}):
        strategy = resolve(Bonsai(**options).get_params(deep=False), problem.facts)
        most, found = sizes.count(problem, strategy), sizes.measure(problem, strategy, Work(1))
        assert 0 < found.model_bytes <= most.model_bytes


def test_similar_rows_by_hand():
    X = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [3, 0, 0]], np.float32)
    for x in (sp.csr_array(X), X):
        data = _core.Dataset(
            training_rows(x, "Bonsai")[0].to_core() if sp.issparse(x) else x,
            np.array([0, 1, 1, 1, 1, 1], np.int64), np.zeros(1, np.int32), 1, np.empty(0, np.float32), False,
        )  # fmt: skip
        assert data.rows_of(0).tolist() == [0]
        assert data.similar_rows(0, 3).tolist() == [4, 0, 2]
        assert data.similar_rows(0, 9).tolist() == [4, 0, 2, 1, 3]
        with pytest.raises(IndexError, match="no such label"):
            data.rows_of(1)


def test_more_threads_need_more(generated):
    X, Y = generated.X_train, generated.Y_train
    for options in ({"classifiers": "leaf"}, {"classifiers": "one_vs_rest"}):
        few, many = (Bonsai(n_jobs=n, **options).memory_estimate(X, Y) for n in (1, 16))
        assert few["training_bytes"] < many["training_bytes"]
        assert few["model_bytes"] == many["model_bytes"]
        assert few["training_bytes"] == max(few["phases"].values())


def test_the_phases_are_those_of_fit(generated):
    X, Y = generated.X_train, generated.Y_train
    for options in ({"classifiers": "leaf"}, {"search": "index"}, {"max_depth": 1, "classifiers": "leaf"}):
        model = Bonsai(n_jobs=1, **options)
        estimated = set(model.memory_estimate(X, Y)["phases"]) - {"reading"}
        assert estimated <= set(model.fit(X, Y).timings_)


# --- limits ---


def trained_within(folder, params, threads, max_memory, addresses):
    """(peak, what the process had before, SHA-256 of the model); runs in a fresh process."""
    tiny = np.eye(16, dtype=np.float32)
    Bonsai(n_jobs=threads).fit(tiny, tiny.astype(int))
    X, Y = memory.read_matrix(folder, "X"), memory.read_matrix(folder, "Y")
    memory.Path("/proc/self/clear_refs").write_text("5")
    before = memory.resident("VmRSS")
    if addresses:
        used = memory.resident("VmSize")
        resource.setrlimit(resource.RLIMIT_AS, (used + addresses, used + addresses))
        max_memory = "auto"
    elif max_memory is not None:
        max_memory = before + max_memory
    model = Bonsai(n_jobs=threads, **params).fit(X, Y, max_memory=max_memory)
    path = folder / f"{os.getpid()}.bonsai"
    model.save(path)
    return memory.resident("VmHWM") - before, hashlib.sha256(path.read_bytes()).hexdigest()


def in_process(*args):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(trained_within, args)


@linux
def test_training_stays_within_a_limit(medium):
    """Eight threads would need more than one does; the model is the same."""
    params = {"classifiers": "leaf", "n_trees": 1, "threshold": 0.5}
    X, Y = memory.read_matrix(medium, "X"), memory.read_matrix(medium, "Y")
    alone, model = in_process(medium, params, 1, None, None)
    limit = int(1.3 * alone)
    assert limit < Bonsai(n_jobs=8, **params).memory_estimate(X, Y)["training_bytes"]
    peak, same = in_process(medium, params, 8, limit, None)
    assert same == model
    assert peak <= limit


@linux
def test_training_stays_within_addresses(medium):
    params = {"classifiers": "leaf", "n_trees": 1, "threshold": 0.5}
    _, model = in_process(medium, params, 1, None, None)
    _, same = in_process(medium, params, 2, None, 400 << 20)
    assert same == model


@linux
def test_less_than_the_least_is_refused(generated):
    X, Y = generated.X_train, generated.Y_train
    model = Bonsai(classifiers="leaf", threshold=0.5, n_jobs=2)
    with pytest.raises(
        MemoryError, match=r"not enough memory to train: the phase '.*' would take about .*max_mem"
    ):
        model.fit(X, Y, max_memory="1MB")
    assert not hasattr(model, "fitted_")
    model.fit(X, Y, max_memory="100GB")


def test_what_would_fit_is_named(generated):
    problem = problem_of(generated)
    strategy = resolve(Bonsai(classifiers="leaf", n_trees=9).get_params(deep=False), problem.facts)
    found = sizes.count(problem, strategy)
    options = {"tunes": False, "threshold": False}
    held = found.rows_and_labels
    by_one = replace(found, tree_bytes=found.tree_bytes / 9), replace(strategy, n_trees=1)
    one = limit.by_phase(*by_one, 1, **options)
    with pytest.raises(MemoryError, match="would fit: n_trees=1"):
        limit.plan(found, strategy, 4, limit.Room(1.05 * (max(one.values()) - held)), **options)
    of_many = replace(found, tree_bytes=100 * found.tree_bytes)
    stored = max(limit.by_phase(of_many, strategy, 1, **options, stored=True).values())
    with pytest.raises(MemoryError, match="would fit: a checkpoint"):
        limit.plan(of_many, strategy, 4, limit.Room(1.01 * stored - held), **options)
    assert limit.plan(found, strategy, 4, limit.Room(10**12), **options) == limit.Plan()


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (5, 5),
        ("7", 7),
        ("4GB", 4 * 10**9),
        ("1.5 GiB", 3 << 29),
        ("2k", 2048),
        ("10 mb", 10**7),
        (None, None),
    ],
)
def test_memory_limits_accept_units(given, size):
    assert limit.parse(given) == size


@pytest.mark.parametrize("given", ["", "GB", "4 parsecs", "-1", 0, -5, True, "0"])
def test_sizes_that_are_none(given):
    with pytest.raises(ValueError, match=r"max_memory is .* but must be 'auto', None, or bytes"):
        limit.parse(given)


def test_limits_of_control_groups(tmp_path):
    assert list(limit._cgroup_limits(tmp_path)) == []
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory,cpu:/a/b\n1:cpu:/\n0::/\n")
    inner = tmp_path / "sys/fs/cgroup/memory/a/b"
    inner.mkdir(parents=True)
    for folder, size in ((inner, 500), (inner.parent, 1 << 62), (inner.parents[1], 900)):
        (folder / "memory.limit_in_bytes").write_text(f"{size}\n")
        (folder / "memory.usage_in_bytes").write_text("100\n")
    (inner / "memory.stat").write_text("cache 9\ntotal_inactive_file 30\n")
    assert list(limit._cgroup_limits(tmp_path)) == [(500, 70), (900, 100)]
    (tmp_path / "proc/self/cgroup").write_text("0::/on/the/host\n")
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("800\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text("60\n")
    assert list(limit._cgroup_limits(tmp_path)) == [(800, 60)]
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert list(limit._cgroup_limits(tmp_path)) == []


def added_by_mapped_rows(folder):
    """Return the private memory that a process takes to read mapped rows, and the bytes of these."""
    training_rows(sp.csr_array(np.eye(16, dtype=np.float32)), "Bonsai")
    before = memory.resident("RssAnon")
    parts = [np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("data", "indices", "indptr")]
    rows = training_rows(sp.csr_array(tuple(parts), shape=(len(parts[2]) - 1, 1000)), "Bonsai")[0]
    assert all(
        np.may_share_memory(own, part) for own, part in zip(rows[1:3], (parts[1], parts[0]), strict=True)
    )
    return memory.resident("RssAnon") - before, sum(part.nbytes for part in parts)


@linux
def test_mapped_rows_are_not_copied(tmp_path):
    n_rows, per_row = 100_000, 50
    columns = np.arange(per_row, dtype=np.int32) * 20
    np.save(tmp_path / "indices.npy", np.tile(columns, n_rows))
    np.save(tmp_path / "data.npy", np.ones(n_rows * per_row, np.float32))
    np.save(tmp_path / "indptr.npy", np.arange(n_rows + 1, dtype=np.int32) * per_row)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        added, size = pool.apply(added_by_mapped_rows, (tmp_path,))
    assert added < 0.1 * size
