"""Training on Ray clusters of several nodes: equal bytes even if workers and nodes die."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import save_npz
from sklearn.base import clone

from bonsai_xmc import Bonsai, TextBonsai, _core, datasets
from bonsai_xmc._cli import main
from bonsai_xmc._training import sending
from bonsai_xmc._training.sending import Batches
from bonsai_xmc.datasets import make_xmc

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray", reason="RAY IS NOT INSTALLED: training on clusters is not tested")

from ray.cluster_utils import Cluster  # noqa: E402

from bonsai_xmc.ray import RayRunner  # noqa: E402
from kinds import some  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
# Nodes that are gone are noticed within a second.
SYSTEM = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
FORCED = {"batch_seconds": 0.1, "local_seconds": 0}  # everything is sent, in small batches

# Every kind of stage: label vectors, splits of several levels, tree and one-vs-rest classifiers.
KINDS = some("default") | some("joint", "newton", "blend", threshold=0.5)
LARGER = {"classifiers": "leaf", "branching_factor": 8, "threshold": 0.5, "n_trees": 2, "tol": 1e-4}


@pytest.fixture(scope="module")
def one_cluster():
    """A cluster of a head without CPUs, with which this process is connected."""
    made = Cluster(initialize_head=True, head_node_args=NODE | {"num_cpus": 0, "_system_config": SYSTEM})
    ray.init(address=made.address, logging_level="warning", log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def cluster(one_cluster):
    """The cluster, with two nodes of one CPU at the start of each test."""
    for _ in range(2 - len(one_cluster.worker_nodes)):
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


@pytest.mark.parametrize("representation", ["text", "joint+text"])
def test_trees_by_names_are_the_same_on_ray(runner, tmp_path, representation):
    """The vectors of names are sent as those of rows are."""
    texts = datasets.make_texts(300, n_test=1, random_state=3)
    classifier = Bonsai(**LARGER | {"representation": representation, "branching_factor": 4})
    names = {label: label for row in texts.labels_train for label in row}
    model = TextBonsai(word_ngrams=1, char_ngrams=None, label_texts=names, classifier=classifier)
    before, files = units_of(runner), []
    for where in (None, runner):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not converged
            again = clone(model).fit(texts.texts_train, texts.labels_train, runner=where)
        files.append(saved(again, tmp_path))
    assert files[0] == files[1]
    assert units_of(runner) > before


def test_rows_that_change_between_two_fits_are_sent_again(runner, data, tmp_path):
    X, Y = data[0].copy(), data[1]
    Bonsai(**KINDS["joint"]).fit(X, Y, runner=runner)
    X.data[:] = X.data[::-1].copy()
    model = Bonsai(**KINDS["joint"]).fit(X, Y, runner=runner)
    assert saved(model, tmp_path) == saved(Bonsai(**KINDS["joint"]).fit(X, Y), tmp_path)


def test_dense_rows_give_the_same_model_on_ray(runner, data, tmp_path):
    X, Y = data[0][:200, :20].toarray() + 0.1, data[1][:200]
    model = Bonsai(**KINDS["joint"]).fit(X, Y, runner=runner)
    assert saved(model, tmp_path) == saved(Bonsai(**KINDS["joint"]).fit(X, Y), tmp_path)


def test_nodes_share_the_work_and_get_rows_once(runner, larger, expected, tmp_path, monkeypatch):
    lines, phases, sent = [], [], []
    put = ray.put
    runner.close()  # it can be used again, and its counts begin at 0
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
        assert node["bytes_in"] < 6 * larger[0].data.nbytes  # rows, labels, trees, and labels of nodes
    assert sum(node["bytes_out"] for node in usage) > len(expected) / 2
    assert sum(node["core_seconds"] for node in usage) > 0.1
    assert any(" of " in line and "units/s" in line and "left" in line for line in lines), lines
    for phase in ("trees", "classifiers"):
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


# --- workers and nodes that die or join during training ---


class At:
    """A `progress` that runs events in turn, each from a share of a phase on, until it has succeeded."""

    def __init__(self, phase, *events):
        self.phase = phase
        self.events = list(events)

    def __call__(self, phase, done, total):
        due = self.events and phase == self.phase and total > 0 and done / total >= self.events[0][0]
        if due and self.events[0][1]() is not False:
            self.events.pop(0)


def busy(runner, but=()):
    """Return a worker that has units, if there is one, on another node than `but`."""
    ready = runner._workers.ready()
    return next((worker for worker in ready if worker.batches and worker.node not in but), None)


def kill_worker(runner):
    if (worker := busy(runner)) is None:
        return False
    try:
        return os.kill(worker.pid, signal.SIGKILL)
    except ProcessLookupError:  # killed earlier, and still in the runner's list
        return False


def remove_node(cluster, runner, but):
    if (worker := busy(runner, but)) is None:
        return False
    node = next((node for node in cluster.worker_nodes if node.node_id == worker.node), None)
    if node is None:  # removed earlier, and still in the runner's list
        return False
    return cluster.remove_node(node, allow_graceful=False)


def fit_until_all_happened(events, larger, runner, expected, folder):
    for _ in range(4):
        assert saved(fit(larger, runner, progress=events), folder) == expected
        if not events.events:
            return
    pytest.fail(f"{events.phase} ended too soon, four times")


def test_the_model_is_the_same_when_workers_are_killed(runner, larger, expected, tmp_path):
    kill = lambda: kill_worker(runner)
    events = At("classifiers", (0.05, kill), (0.2, kill), (0.3, kill), (0.4, kill))
    fit_until_all_happened(events, larger, runner, expected, tmp_path)


@pytest.mark.parametrize("phase", ["trees", "classifiers"])
def test_nodes_are_removed_and_added(runner, cluster, larger, expected, tmp_path, phase):
    added = []
    remove = lambda: remove_node(cluster, runner, but=added)
    add = lambda: added.append(cluster.add_node(**NODE | {"num_cpus": 2}).node_id)
    events = At(phase, (0.01, remove), (0.02, add), (0.3, remove))
    fit_until_all_happened(events, larger, runner, expected, tmp_path)
    for _ in range(30):
        if runner.usage().get(added[0], {"units": 0})["units"]:
            break
        fit(larger, runner)  # the new node joins when its worker has started
    assert runner.usage()[added[0]]["units"] > 0 and runner.usage()[added[0]]["cpus"] == 2


DRIVER = """
import os, sys
from scipy.sparse import load_npz
from test_ray import FORCED, RayRunner, fit

folder, phase, share, address = sys.argv[1:]

def kill(name, done, total):
    if name == phase and done >= float(share) * total:
        os.kill(os.getpid(), 9)

X, Y = (load_npz(f"{folder}/{name}.npz") for name in "XY")
fit((X, Y), RayRunner(address, **FORCED), checkpoint=f"{folder}/checkpoint", progress=kill)
"""


def test_the_driver_is_killed_and_training_continues(runner, cluster, larger, expected, tmp_path):
    runner.close()
    for name, matrix in zip("XY", larger, strict=True):
        save_npz(tmp_path / f"{name}.npz", matrix)
    command = [sys.executable, "-c", DRIVER, tmp_path, "classifiers", "0.4", cluster.address]
    killed = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    model = fit(larger, runner, checkpoint=tmp_path / "checkpoint")
    assert saved(model, tmp_path) == expected
    continued = units_of(runner)
    fit(larger, runner)
    assert continued < 0.9 * (units_of(runner) - continued)


def test_an_interrupt_ends_the_workers_and_leaves_the_checkpoint(runner, larger, expected, tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    counts = [units_of(runner)]
    with pytest.raises(KeyboardInterrupt):
        events = At("classifiers", (0.5, interrupt))
        fit(larger, runner, checkpoint=tmp_path / "c", progress=events)
    assert not runner._workers.workers
    counts.append(units_of(runner))
    assert saved(fit(larger, runner, checkpoint=tmp_path / "c"), tmp_path) == expected
    counts.append(units_of(runner))
    fit(larger, runner)
    begun, continued, whole = np.diff([*counts, units_of(runner)])
    assert begun > 0 and continued > 0 and begun + continued == whole


COMMAND = """
import functools, sys
import bonsai_xmc.ray
from bonsai_xmc._cli import main

bonsai_xmc.ray.RayRunner = functools.partial(bonsai_xmc.ray.RayRunner, batch_seconds=0.1, local_seconds=0)
sys.exit(main(sys.argv[1:]))
"""


def test_command_line_is_terminated_and_continues(runner, cluster, larger, tmp_path):
    runner.close()
    datasets.save_xc(tmp_path / "train.txt", *larger)
    options = ["train", tmp_path / "train.txt", "--preset", "bonsai-i", "--tol", "0.001"]
    subprocess.run(
        [sys.executable, "-m", "bonsai_xmc", *options, "-q", "-o", tmp_path / "expected"], check=True
    )
    options += ["--ray", cluster.address, "--checkpoint", tmp_path / "c", "-o", tmp_path / "model"]
    command = [sys.executable, "-c", COMMAND, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not any(path.stat().st_size > 100_000 for path in tmp_path.glob("c/*classifiers.units")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.terminate()
    _, errors = process.communicate()
    assert process.returncode == 143, errors
    assert f"the same command continues from {tmp_path / 'c'}" in errors
    said = subprocess.run([*command, "--verbose", "1"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert re.search(r"classifiers +0:\d\d, \d nodes?, ([\d,]+) of \1 units, [\d.,]+ units/s", said.stderr)
    assert (tmp_path / "model").read_bytes() == (tmp_path / "expected").read_bytes()


def test_command_line_on_texts(runner, cluster, tmp_path, monkeypatch):
    lines = [json.dumps({"text": f"word{i % 7} and word{i % 5}", "labels": [f"l{i % 5}"]}) for i in range(60)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    options = ["train", str(tmp_path / "texts.jsonl"), "-q", "-o"]
    assert main([*options, str(tmp_path / "expected")]) == 0
    monkeypatch.setattr("bonsai_xmc.ray.RayRunner", lambda *args, **named: contextlib.nullcontext(runner))
    before = units_of(runner)
    assert main([*options, str(tmp_path / "model"), "--ray", "auto"]) == 0
    assert units_of(runner) > before
    assert (tmp_path / "model").read_bytes() == (tmp_path / "expected").read_bytes()


# --- short stages, and errors ---


def test_small_stages_are_not_sent(data, tmp_path, monkeypatch):
    monkeypatch.setattr(RayRunner, "_connect", lambda self: pytest.fail("it was sent"))
    model = Bonsai().fit(*data, runner=RayRunner(local_seconds=600))
    assert saved(model, tmp_path) == saved(Bonsai().fit(*data), tmp_path)


def test_a_stage_that_takes_long_is_begun_here_and_sent(runner, larger, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_local_seconds", 1e-3)
    before = units_of(runner)
    assert saved(fit(larger, runner), tmp_path) == expected
    assert units_of(runner) > before


def some_stage(data):
    """A stage, its recipe and its units."""
    seen = []

    class Keeping:
        def solve(self, stage, recipe, units, *rest):
            seen.append((stage, recipe, units))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Bonsai(**KINDS["joint"]).fit(*data, runner=Keeping())
    return seen[0]


def test_errors_of_workers_are_raised_here(runner, data):
    stage, recipe, units = some_stage(data)

    def make(*_):
        raise MemoryError("no room there")

    with pytest.raises(MemoryError, match="no room there"):
        runner.solve(stage, replace(recipe, make=make), units, 1, None, None)


def test_a_unit_that_kills_its_workers_is_given_up(runner, data, monkeypatch):
    stage, recipe, units = some_stage(data)
    monkeypatch.setattr(sending, "_MOST_LOSSES", 2)
    with pytest.raises(RuntimeError, match=r"unit \d+ was given to workers 2 times, and all of them died"):
        runner.solve(stage, replace(recipe, make=lambda *_: os._exit(1)), units, 1, None, None)


def test_nodes_of_another_version_are_not_used(runner, data, monkeypatch):
    runner.close()
    monkeypatch.setattr("bonsai_xmc._training.cluster.VERSION", "0.0.1")
    with (
        pytest.warns(
            UserWarning, match="not used; node .*: it has bonsai-xmc .*, but this process has 0.0.1"
        ),
        pytest.raises(RuntimeError, match="no node of the Ray cluster can be used: node"),
    ):
        runner.solve(*some_stage(data), 1, None, None)
    runner.close()


def test_missing_requirements_are_named(monkeypatch):
    with pytest.raises(ValueError, match="run this on a node of the cluster"):
        RayRunner("ray://head:10001")
    with pytest.raises(ValueError, match="cpus_per_worker is 0"):
        RayRunner(cpus_per_worker=0)

    def refuse(**_):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConnectionError, match=r"no Ray cluster at 'auto' .*'ray start --head'"):
        RayRunner().__enter__()
    assert signal.getsignal(signal.SIGTERM) is handler
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'bonsai-xmc\[ray\]'"):
        RayRunner()
