"""The memory of training: estimates against measurements, in processes of their own."""

import multiprocessing

import numpy as np
import pytest
from benchmarks import memory

from bonsai_xmc import Bonsai
from bonsai_xmc._memory import phases, sizes
from bonsai_xmc._progress import Phases

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
            "balanced": True,
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


def problem_of(data):
    model = Bonsai()
    return model._problem(model._read(data.X_train, Phases(None))[0], data.Y_train)


def test_label_vectors_are_counted(generated):
    """A few labels are counted one by one: there, the sample is all of them."""
    X, Y = generated.X_train, generated.Y_train
    found = sizes.count(problem_of(generated))
    vectors = (Y.T @ abs(X)).tocsr()
    together = (Y.T @ Y).tocsr()
    assert found.input_entries == pytest.approx(vectors.nnz, rel=0.1)
    assert found.output_entries == pytest.approx(
        together.nnz - np.count_nonzero(together.diagonal()), rel=0.1
    )
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    assert found.n_used_features == np.count_nonzero(frequency)
    assert found.n_singletons == np.count_nonzero(frequency == 1)


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
    assert callable(phases.trees)
