"""Training on Ray clusters of several nodes, whose workers and nodes die: the same bytes every time."""

import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest

from bonsai_xmc import Bonsai, _core
from bonsai_xmc._work.batches import Batches
from bonsai_xmc.datasets import make_xmc

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray", reason="RAY IS NOT INSTALLED: training on clusters is not tested")

from ray.cluster_utils import Cluster  # noqa: E402

from bonsai_xmc.ray import RayRunner  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
# Nodes that are gone are noticed within a second.
SYSTEM = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
FORCED = {"batch_seconds": 0.1, "local_seconds": 0}  # everything is sent, in small batches

# Every kind of stage: label vectors, splits of several levels, tree and one-vs-rest classifiers.
KINDS = {
    "default": {},
    "joint": {"classifiers": "leaf", "representation": "joint", "branching_factor": 6, "threshold": 0.5},
    "newton": {"classifiers": "one_vs_rest", "solver": "newton", "loss": "logistic", "threshold": 0.5},
    "blend": {"classifiers": "blend", "branching_factor": 6, "threshold": 0.5},
}
LARGER = {"classifiers": "leaf", "branching_factor": 8, "threshold": 0.5, "n_trees": 2, "tol": 1e-4}


@pytest.fixture(scope="module")
def one_cluster():
    """A head without CPUs, where this process is."""
    made = Cluster(initialize_head=True, head_node_args=NODE | {"num_cpus": 0, "_system_config": SYSTEM})
    ray.init(address=made.address, logging_level="warning", log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def cluster(one_cluster):
    """With three nodes of one CPU, at the start of each test."""
    for _ in range(3 - len(one_cluster.worker_nodes)):
        one_cluster.add_node(**NODE)
    return one_cluster


@pytest.fixture(scope="module")
def one_runner(one_cluster):
    with RayRunner(**FORCED) as made:
        yield made


@pytest.fixture
def runner(one_runner, cluster):
    return one_runner


@pytest.fixture(scope="module")
def data():
    made = make_xmc(n_rows=500, n_features=300, n_labels=90, random_state=2)
    return made.X_train, made.Y_train


@pytest.fixture(scope="module")
def larger():
    """Hundreds of units."""
    made = make_xmc(n_rows=3000, n_features=5000, n_labels=3000, random_state=2)
    return made.X_train, made.Y_train


@pytest.fixture(scope="module")
def expected(larger, tmp_path_factory):
    return saved(fit(larger, None), tmp_path_factory.mktemp("expected"))


def fit(data, runner, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged: few rows, and yet some work
        return Bonsai(**LARGER).fit(*data, runner=runner, **options)


def saved(model, folder):
    model.save(folder / "model")
    return (folder / "model").read_bytes()


# --- batches ---


def test_batches_are_the_most_costly_units_first():
    batches = Batches(np.array([0, 2, 3, 4], np.uint32), np.array([5, 99, 7, 0, 6]), 2.0)
    assert len(batches) == 4 and batches.waiting_cost == 19  # a unit without cost counts as 1
    assert batches.take(None, 1).tolist() == [2]  # a single one, as the rate is not known
    assert batches.take(100.0, 1).tolist() == [4]  # half of what waits
    batches.give_back([4, 2])
    assert batches.waiting_cost == 19
    assert batches.take(1e-9, 1).tolist() == [4]  # at least one
    assert batches.take(6.5, 1).tolist() == [2]  # 2 s · 6.5, but half of 13 is less
    assert [batches.take(None, 1).tolist() for _ in range(3)] == [[0], [3], []]


def test_all_units_are_taken_once():
    rng = np.random.default_rng(0)
    units, costs = rng.permutation(500).astype(np.uint32)[:400], rng.integers(0, 1000, 500)
    batches = Batches(units, costs, 1.0)
    taken, sizes = [], []
    while len(batches):
        taken += (batch := batches.take(20_000.0, 3).tolist())
        sizes.append(batches.cost(batch))
    assert sorted(taken) == sorted(units.tolist())
    assert max(sizes) <= 20_000 and sizes[0] > 10 * sizes[-1]  # small ones at the end: all end together
    assert batches.waiting_cost == pytest.approx(0, abs=1e-6)


# --- the same bytes ---


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_as_on_one_machine(runner, data, tmp_path, kind):
    X, Y = data
    before = units_of(runner)
    model = Bonsai(**KINDS[kind]).fit(X, Y, runner=runner)
    assert saved(model, tmp_path) == saved(Bonsai(**KINDS[kind]).fit(X, Y), tmp_path)
    assert units_of(runner) > before


def units_of(runner):
    return sum(node["units"] for node in runner.usage().values())


def test_dense_rows(runner, data, tmp_path):
    X, Y = data[0][:200, :20].toarray() + 0.1, data[1][:200]
    model = Bonsai(**KINDS["joint"]).fit(X, Y, runner=runner)
    assert saved(model, tmp_path) == saved(Bonsai(**KINDS["joint"]).fit(X, Y), tmp_path)


def test_nodes_share_the_work_and_get_rows_once(runner, larger, expected, tmp_path, monkeypatch):
    lines, phases, sent = [], [], []
    put = ray.put
    runner.close()  # it can be used again, and counts anew
    monkeypatch.setattr(runner, "_status", lines.append)
    monkeypatch.setattr(ray, "put", lambda value: sent.append(value) or put(value))
    model = fit(larger, runner, progress=lambda *report: phases.append(report))
    usage = runner.usage().values()
    assert saved(model, tmp_path) == expected
    (rows,) = (value for value in sent if hasattr(value, "label_ptr"))
    assert np.array_equal(rows.x[2], larger[0].data)
    for node in usage:
        assert node["cpus"] == 1
        assert (node["bytes_in"] > larger[0].data.nbytes) == (node["units"] > 0)
        assert node["bytes_in"] < 20 * larger[0].data.nbytes  # label vectors, trees, and labels of nodes
    assert sum(node["bytes_out"] for node in usage) > len(expected) / 2
    assert sum(node["core_seconds"] for node in usage) > 0.1
    assert any(" of " in line and "units/s" in line and "left" in line for line in lines), lines
    for phase in ("label vectors", "trees", "classifiers"):
        done = [done / total for name, done, total in phases if name == phase]
        assert done[-1] == 1.0 and done == sorted(done)


def test_arrays_of_the_object_store_are_not_copied(cluster, larger):
    X, Y = larger

    def resident():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

    def in_a_worker(arrays):
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        regions = [(*(int(end, 16) for end in m[0].split("-")), "".join(m[5:])) for m in maps]
        names = [name for a in arrays for b, e, name in regions if b <= a.ctypes.data < e]
        before = resident()
        made = [_core.Dataset((*arrays[:3], X.shape[1]), *arrays[3:], *rest) for _ in range(20)]
        return names, [a.flags.writeable for a in arrays], (resident() - before) / len(made)

    rest = (Y.shape[1], np.empty(0, np.float32), True)
    arrays = [X.indptr.astype(np.int64), X.indices, X.data, Y.indptr.astype(np.int64), Y.indices]
    names, writeable, added = ray.get(ray.remote(num_cpus=0)(in_a_worker).remote(arrays))
    assert len(names) == 5 and all("plasma" in name for name in names), names
    assert not any(writeable)
    assert added < X.data.nbytes  # norms, and the rows of each label


# --- what dies and what joins in mid-training ---


class At:
    """A `progress` that does things in turn, each when a phase has come so far."""

    def __init__(self, phase, *events):
        self.phase = phase
        self.events = list(events)

    def __call__(self, phase, done, total):
        if self.events and phase == self.phase and total > 0 and done / total >= self.events[0][0]:
            self.events.pop(0)[1]()


def busy(runner):
    """A worker that has units."""
    worker = max(runner._workers.ready(), key=lambda worker: len(worker.batches))
    assert worker.batches
    return worker


def kill_worker(runner):
    os.kill(busy(runner).pid, signal.SIGKILL)


def remove_node(cluster, runner):
    (node,) = (node for node in cluster.worker_nodes if node.node_id == busy(runner).node)
    cluster.remove_node(node, allow_graceful=False)


def test_workers_are_killed(runner, larger, expected, tmp_path):
    kill = lambda: kill_worker(runner)
    events = At("classifiers", (0.05, kill), (0.3, kill), (0.5, kill), (0.7, kill))
    model = fit(larger, runner, progress=events)
    assert not events.events
    assert saved(model, tmp_path) == expected


@pytest.mark.parametrize("phase", ["trees", "classifiers"])
def test_nodes_are_removed_and_added(runner, cluster, larger, expected, tmp_path, phase):
    added = []
    remove = lambda: remove_node(cluster, runner)
    add = lambda: added.append(cluster.add_node(**NODE | {"num_cpus": 2}).node_id)
    events = At(phase, (0.01, remove), (0.02, add), (0.3, remove))
    model = fit(larger, runner, progress=events)
    assert not events.events
    assert saved(model, tmp_path) == expected
    while added[0] not in runner.usage() or not runner.usage()[added[0]]["units"]:
        fit(larger, runner)  # the new node joins when its worker has started
    assert runner.usage()[added[0]]["cpus"] == 2
