"""Units of work: solved alone, in any order, twice, in other processes; kept in checkpoints."""

import multiprocessing
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from bonsai_xmc import Bonsai, TextBonsai, _core, datasets
from bonsai_xmc._training.checkpoint import _ENTRY, _HEADER, CheckpointError
from bonsai_xmc._training.work import Threads
from bonsai_xmc.datasets import make_xmc
from kinds import some

# Every kind of stage: label vectors, splits of several levels, tree and one-vs-rest classifiers.
KINDS = some("default", "exact") | some("leaf", "joint", "newton", "blend", threshold=0.5)


@pytest.fixture(scope="module")
def data():
    made = make_xmc(n_rows=500, n_features=300, n_labels=90, random_state=2)
    return made.X_train, made.Y_train


def embeddings(data):
    X, Y = data
    return X[:200, :20].toarray() + 0.1, Y[:200]


def saved(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    return path.read_bytes()


def solve_one(pickled, unit):
    """Solve a single unit in another process, on a stage made from its recipe."""
    stage = pickle.loads(pickled).stage()
    found = results_of(stage, np.array([unit], np.uint32), 1)
    assert unit in stage.missing()
    return list(found.items())


def results_of(stage, units, threads):
    """Return the bytes of each unit; the units stay missing."""
    solved, ptr, data = stage.solve_for_others(units, threads)
    return {unit: data[ptr[i] : ptr[i + 1]].tobytes() for i, unit in enumerate(solved.tolist())}


class Elsewhere:
    """A runner that solves every unit twice, in random order, each in a stage of its own.

    Splits derive label vectors elsewhere, too; where splits are solved here, the vectors are units.
    """

    def __init__(self, call, splits_here=False):
        self.call = call
        self.splits_here = splits_here
        self.solved = 0

    def solve(self, stage, recipe, units, threads, progress, save):
        if self.splits_here and isinstance(stage, _core.SplitStage):
            recipe.prepare(stage)
            return stage.solve(units, threads, progress, save)
        pickled = pickle.dumps(recipe)
        order = np.random.default_rng(0).permutation(np.concatenate([units, units]))
        for unit in order.tolist():
            ((number, result),) = self.call(solve_one, (pickled, unit))
            assert number == unit
            stage.add(unit, result)
            self.solved += 1
            if save is not None:
                save([(unit, result)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dense", [False, True])
def test_units_give_the_same_model_in_any_order(data, tmp_path, kind, dense):
    if dense and kind == "default":
        pytest.skip("the same stages as others")
    X, Y = embeddings(data) if dense else data
    model = Bonsai(**KINDS[kind], n_jobs=2).fit(X, Y)
    for splits_here in (False, True):
        runner = Elsewhere(lambda fn, args: fn(*args), splits_here)
        again = Bonsai(**KINDS[kind], n_jobs=1).fit(X, Y, runner=runner)
        assert saved(model, tmp_path) == saved(again, tmp_path)
        assert runner.solved >= 2


def test_results_of_many_units_are_added_at_once(data, tmp_path):
    X, Y = data
    wrong = []

    class AtOnce:
        def solve(self, stage, recipe, units, threads, progress, save):
            found, ptr, results = recipe.stage().solve_for_others(units[::-1].copy(), 2)
            one_more = np.append(found, found[:1])
            longer = np.append(ptr, ptr[-1])
            cases = [
                (one_more, longer, results, "twice"),
                (found, longer, results, "ptr"),
                (found, ptr[1:], results, "ptr"),
                (found, ptr, results[:-1], "ptr"),
                (found, ptr[::-1].copy(), results, "ptr"),
                (found, np.append(ptr[:-1], ptr[-1] - 1), results[:-1], "result of a unit|label vectors"),
                (np.append(found[:-1], np.uint32(99999)), ptr, results, "unit 99999"),
            ]
            for *args, message in cases:
                with pytest.raises(ValueError, match=message):
                    stage.add_all(*args, 2)
                wrong.append(message)
            stage.add_all(found, ptr, results, 3)
            assert not len(stage.missing())

    model = Bonsai(**KINDS["joint"]).fit(X, Y, runner=AtOnce())
    assert saved(model, tmp_path) == saved(Bonsai(**KINDS["joint"]).fit(X, Y), tmp_path)
    assert len(wrong) > 7


def test_label_vectors_are_made_where_splits_are_solved(data):
    """A runner that solves them elsewhere needs no vectors in this process."""
    X, Y = data
    seen = []

    class Solving:
        def __init__(self, here):
            self.here = here

        def solve(self, stage, recipe, units, threads, progress, save):
            seen.append(type(stage))
            if self.here:
                recipe.prepare(stage)
            source = stage if self.here else recipe.stage()
            stage.add_all(*source.solve_for_others(units, threads), threads)

    for here in (True, False):
        seen.clear()
        model = Bonsai(**KINDS["leaf"]).fit(X, Y, runner=Solving(here))
        assert (_core.LabelVectorStage in seen) == here
        assert ("label vectors" in model.timings_) == here
        assert all(seconds >= 0 for seconds in model.timings_.values())


@pytest.mark.parametrize("dense", [False, True])
def test_the_same_model_for_any_number_of_threads(tmp_path, dense):
    """With many threads, roots are clustered side by side, and their panels are narrower."""
    made = make_xmc(n_rows=1500, n_features=900, n_labels=1200, random_state=5)
    X = made.X_train[:, :60].toarray() + 0.1 if dense else made.X_train
    fit = lambda n_jobs: Bonsai(
        classifiers="leaf", branching_factor=100, max_leaf_size=5, threshold=0.5, n_jobs=n_jobs
    ).fit(X, made.Y_train)
    expected = saved(fit(1), tmp_path)
    for n_jobs in (2, 8, 13, 16):
        assert saved(fit(n_jobs), tmp_path) == expected, n_jobs


@pytest.mark.parametrize(("n_labels", "kind"), [(1100, "newton"), (4200, "exact")])
def test_one_vs_rest_of_several_units(tmp_path, n_labels, kind):
    made = make_xmc(n_rows=900, n_features=300, n_labels=n_labels, random_state=2)
    X, Y = made.X_train, made.Y_train
    params = KINDS[kind] | {"threshold": 0.5, "max_iter": 2}
    runner = Elsewhere(lambda fn, args: fn(*args))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = Bonsai(**params).fit(X, Y, runner=runner)
        assert runner.solved >= 4
        assert saved(Bonsai(**params).fit(X, Y), tmp_path) == saved(again, tmp_path)


def test_units_are_solved_in_other_processes(data, tmp_path):
    X, Y = data
    params = {"classifiers": "blend", "branching_factor": 20, "n_trees": 1, "threshold": 0.5}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        again = Bonsai(**params).fit(X, Y, runner=Elsewhere(pool.apply))
    assert saved(Bonsai(**params).fit(X, Y), tmp_path) == saved(again, tmp_path)


def test_stages_refuse_what_is_not_a_result(data):
    X, Y = data
    seen = []

    class Damaging:
        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            results = results_of(stage, units, threads)
            rng = np.random.default_rng(len(seen))
            for unit, result in results.items():
                for damaged in (b"", result[:-1], result + b"\0", result[: len(result) // 2]):
                    with pytest.raises(ValueError, match=r"result of a unit|label vectors of a unit"):
                        stage.add(unit, damaged)
                noise = bytearray(result)
                noise[int(rng.integers(len(noise)))] ^= 1 << int(rng.integers(8))
                seen.append(bytes(noise) != result)
            with pytest.raises(ValueError, match="unit 99999 is not one of the stage's"):
                stage.add(99999, b"")
            for unit, result in results.items():
                stage.add(unit, result)
                stage.add(unit, b"ignored: it has one already")

    for kind in ("joint", "exact"):
        Bonsai(**KINDS[kind]).fit(X, Y, runner=Damaging())
    assert all(seen)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -3e38, 1.5])
def test_label_vectors_are_of_unit_length(data, dense, value):
    X, Y = embeddings(data) if dense else data
    refusals = []

    class Changing:
        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            for unit, result in results_of(stage, units, threads).items():
                if isinstance(stage, _core.LabelVectorStage):
                    with pytest.raises(ValueError, match="a value is not between -1 and 1"):
                        stage.add(unit, result[:-4] + np.float32(value).tobytes())
                    refusals.append(unit)
                stage.add(unit, result)

    Bonsai(**KINDS["leaf"]).fit(X, Y, runner=Changing())
    assert refusals


@pytest.mark.parametrize("kind", ["joint", "exact", "newton"])
def test_flipped_bits_of_results_never_crash(data, kind):
    """What a stage accepts is checked once more as a whole: an error, or a model that predicts."""
    X, Y = data
    rng = np.random.default_rng(5)
    refusals = []

    class Flipping:
        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            results = results_of(stage, units, threads)
            for unit, result in results.items():
                noise = bytearray(result)
                for place in rng.integers(len(noise), size=3).tolist():
                    noise[place] ^= 1 << int(rng.integers(8))
                try:
                    stage.add(unit, bytes(noise))
                except ValueError:
                    refusals.append(unit)
                    stage.add(unit, result)

    expected = Bonsai(**KINDS[kind]).fit(X, Y).top_k(X[:20], 5)[1]
    noticed = 0
    for _ in range(25):
        try:
            scores = Bonsai(**KINDS[kind], n_jobs=1).fit(X, Y, runner=Flipping()).top_k(X[:20], 5)[1]
            noticed += not np.array_equal(scores, expected)
        except ValueError:
            noticed += 1
    assert noticed + len(refusals) > 0


def test_a_used_up_stage_is_an_error(data):
    X, Y = data
    seen = []

    class Keeping:
        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            stage.solve(units, threads, progress, save)
            seen.append(stage)

    Bonsai(**KINDS["leaf"]).fit(X, Y, runner=Keeping())
    for kind in (_core.LabelVectorStage, _core.ClassifierStage):
        used = next(stage for stage in seen if isinstance(stage, kind))
        for call in (used.missing, lambda stage=used: stage.finish(1)):
            with pytest.raises(ValueError, match="used up"):
                call()


def test_a_stage_is_solved_in_several_calls(data, tmp_path):
    X, Y = data

    class Piecemeal:
        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            for part, n in zip(np.array_split(units[::-1], 4), (1, 3, 2, 1), strict=True):
                stage.solve(np.ascontiguousarray(part), n, progress, save)

    for kind in ("joint", "exact"):
        model, again = (Bonsai(**KINDS[kind]).fit(X, Y, runner=runner) for runner in (None, Piecemeal()))
        assert saved(model, tmp_path) == saved(again, tmp_path)


# --- checkpoints ---


class Killed(BaseException):
    pass


class KilledAfter:
    """A runner that stops after some units have been saved; all other results are lost."""

    def __init__(self, n):
        self.left = n

    def solve(self, stage, recipe, units, threads, progress, save):
        recipe.prepare(stage)
        for unit in units:
            if save is not None and self.left == 0:
                raise Killed
            stage.solve(np.array([unit], np.uint32), threads, None, save)
            self.left -= save is not None


class Counting:
    def __init__(self):
        self.solved = 0

    def solve(self, stage, recipe, units, threads, progress, save):
        recipe.prepare(stage)
        self.solved += len(units) if save is not None else 0
        stage.solve(units, threads, progress, save)


@pytest.mark.parametrize("kind", ["default", "leaf", "joint", "exact", "blend"])
def test_continues_after_any_unit(data, tmp_path, kind):
    X, Y = data
    whole = Counting()
    expected = saved(Bonsai(**KINDS[kind]).fit(X, Y, checkpoint=tmp_path / "whole", runner=whole), tmp_path)
    assert expected == saved(Bonsai(**KINDS[kind]).fit(X, Y), tmp_path)
    for n in {0, 1, 2, whole.solved // 2, whole.solved - 1}:
        folder = tmp_path / f"after{n}"
        with pytest.raises(Killed):
            Bonsai(**KINDS[kind]).fit(X, Y, checkpoint=folder, runner=KilledAfter(n))
        rest = Counting()
        model = Bonsai(**KINDS[kind], n_jobs=1).fit(X, Y, checkpoint=folder, runner=rest)
        assert saved(model, tmp_path) == expected
        assert rest.solved == whole.solved - n
    nothing_left = Counting()
    Bonsai(**KINDS[kind]).fit(X, Y, checkpoint=tmp_path / "whole", runner=nothing_left)
    assert nothing_left.solved == 0


def test_text_models_continue_from_a_checkpoint(tmp_path):
    texts = [f"word{i % 7} other{i % 11}" for i in range(60)]
    labels = [[f"a{i % 7}", f"b{i % 11}"] for i in range(60)]
    expected = saved(TextBonsai().fit(texts, labels), tmp_path)
    with pytest.raises(Killed):
        TextBonsai().fit(texts, labels, checkpoint=tmp_path / "c", runner=KilledAfter(2))
    assert saved(TextBonsai().fit(texts, labels, checkpoint=tmp_path / "c"), tmp_path) == expected


def test_torn_and_damaged_logs_are_computed_again(data, tmp_path):
    """A power cut leaves any prefix of the writes, the last of them torn; bits may flip anywhere."""
    X, Y = data
    params = KINDS["leaf"]
    expected = saved(Bonsai(**params).fit(X, Y, checkpoint=tmp_path / "whole"), tmp_path)
    logs = sorted((tmp_path / "whole").glob("*.units"))
    assert len(logs) >= 3
    rng = np.random.default_rng(4)
    for trial in range(40):
        folder = tmp_path / "torn"
        shutil.copytree(tmp_path / "whole", folder)
        victim = folder / logs[int(rng.integers(len(logs)))].name
        content = bytearray(victim.read_bytes())
        if trial % 2:  # a torn write
            content = content[: int(rng.integers(len(content)))]
            content += rng.bytes(int(rng.integers(40)))  # of a write that was torn
        else:
            content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        victim.write_bytes(content)
        if trial % 3 == 0:
            for later in logs[logs.index(tmp_path / "whole" / victim.name) + 1 :]:
                (folder / later.name).unlink()
        solved = Counting()
        assert saved(Bonsai(**params).fit(X, Y, checkpoint=folder, runner=solved), tmp_path) == expected
        assert solved.solved > 0
        solved = Counting()  # and what was computed again can be read
        Bonsai(**params).fit(X, Y, checkpoint=folder, runner=solved)
        assert solved.solved == 0
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda content: content[: len(content) // 2], RuntimeError, "checkpoint was cut off"),
        (lambda content: bytes(len(content)), ValueError, "result of a unit of work"),
    ],
)
def test_a_checkpoint_that_changes_during_training(data, tmp_path, damage, error, message):
    """Weights of trees are in the checkpoint alone until the model is assembled."""
    X, Y = data
    damaged = []

    class Damaging(Threads):
        def solve(self, stage, *args):
            super().solve(stage, *args)
            if isinstance(stage, _core.ClassifierStage):
                with pytest.raises(ValueError, match="weights are elsewhere"):
                    stage.finish(1)
                (log,) = (tmp_path / "c").glob("*classifiers.units")
                log.write_bytes(damage(log.read_bytes()))
                damaged.append(log)

    model = Bonsai(**KINDS["leaf"])
    with pytest.raises(error, match=message):
        model.fit(X, Y, checkpoint=tmp_path / "c", runner=Damaging())
    assert damaged and not hasattr(model, "fitted_")
    again = Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c")
    assert saved(again, tmp_path) == saved(Bonsai(**KINDS["leaf"]).fit(X, Y), tmp_path)


@pytest.mark.parametrize("claimed", [2**62, 2**64 - 1, 2**40])
def test_entries_that_claim_more_than_there_is_are_computed_again(data, tmp_path, claimed):
    """Their checksums are right, as in a forged file."""
    X, Y = data
    params = KINDS["leaf"]
    expected = saved(Bonsai(**params).fit(X, Y, checkpoint=tmp_path / "c"), tmp_path)
    log = min((tmp_path / "c").glob("*.units"))
    content = bytearray(log.read_bytes())
    checks = _ENTRY.pack(0, 0, claimed, 0)[4:]
    content[_HEADER.size : _HEADER.size + _ENTRY.size] = struct.pack("<I", zlib.crc32(checks)) + checks
    log.write_bytes(content)
    solved = Counting()
    assert saved(Bonsai(**params).fit(X, Y, checkpoint=tmp_path / "c", runner=solved), tmp_path) == expected
    assert solved.solved > 0


def test_every_prefix_of_a_small_log(data, tmp_path):
    X, Y = data
    params = {"classifiers": "leaf", "branching_factor": 2, "max_depth": 2, "n_trees": 1, "threshold": 0.5}
    params |= {"max_leaf_size": 80}
    expected = saved(Bonsai(**params).fit(X[:, :40], Y[:, :90], checkpoint=tmp_path / "c"), tmp_path)
    log = max((tmp_path / "c").glob("*trees.units"))
    content = log.read_bytes()
    for end in (*range(0, _HEADER.size + _ENTRY.size + 2, 3), len(content) - 1):
        log.write_bytes(content[:end])
        again = Bonsai(**params).fit(X[:, :40], Y[:, :90], checkpoint=tmp_path / "c")
        assert saved(again, tmp_path) == expected
        assert log.read_bytes() == content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 2.0}, "parameter C is 2.0, but was 'auto'"),
        ({"random_state": 1}, "parameter random_state is 1, but was 0"),
        ({"X": 2}, "X digest is"),
        ({"Y": 1}, "Y digest is"),
        ({"rows": 300}, "X rows is 300, but was 500"),
        ({"sample_weight": 2.0}, "sample_weight is '.*', but was None"),
        ({"version": "0.0"}, "bonsai-xmc is '0.0', but was"),
        ({"n_jobs": 1}, None),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(data, tmp_path, monkeypatch, change, message):
    X, Y = data
    with pytest.raises(Killed):
        Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c", runner=KilledAfter(3))
    before = {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()}
    if "version" in change:
        monkeypatch.setattr("bonsai_xmc._training.identity.VERSION", change.pop("version"))
    X = X * np.float32(change.pop("X", 1))
    n = change.pop("rows", len(Y.toarray()))
    X, Y = X[:n], Y[:n]
    if change.pop("Y", None):
        Y = Y[:, ::-1].tocsr()
    weights = np.full(n, change.pop("sample_weight", 1.0))
    model = Bonsai(**KINDS["leaf"], **change)
    if message is None:
        model.fit(X, Y, weights, checkpoint=tmp_path / "c")
        return
    with pytest.raises(CheckpointError, match=message):
        model.fit(X, Y, weights, checkpoint=tmp_path / "c")
    assert {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()} == before


def test_folders_that_are_no_checkpoint(data, tmp_path):
    X, Y = data
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file; give a folder"):
        Bonsai().fit(X, Y, checkpoint=tmp_path / "file")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("")
    with pytest.raises(CheckpointError, match=r"other files, such as thesis\.tex"):
        Bonsai().fit(X, Y, checkpoint=tmp_path / "home")
    Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c")
    for text in ("{", "[" * 100_000, '{"a":' * 100_000):
        (tmp_path / "c" / "checkpoint.json").write_text(text)
        with pytest.raises(CheckpointError, match="is damaged"):
            Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c")


def test_one_process_at_a_time(data, tmp_path):
    X, Y = data

    class Second:
        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            with pytest.raises(CheckpointError, match="in use by another process"):
                Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c")
            stage.solve(units, threads, progress, save)

    Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c", runner=Second())


def test_a_full_disk_stops_and_can_be_continued(data, tmp_path, monkeypatch):
    X, Y = data
    pwrite, left = os.pwrite, [2000]

    def full(handle, content, place):
        if len(content) > left[0]:
            content = content[: left[0]]
        left[0] -= len(content)
        if not len(content):
            raise OSError(28, "No space left on device")
        return pwrite(handle, content, place)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match=r"writing the checkpoint.*make room") as caught:
        Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c")
    assert caught.value.errno == 28
    monkeypatch.undo()
    again = Bonsai(**KINDS["leaf"]).fit(X, Y, checkpoint=tmp_path / "c")
    assert saved(again, tmp_path) == saved(Bonsai(**KINDS["leaf"]).fit(X, Y), tmp_path)


# --- the command line: killed for real ---


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """A file that takes a few seconds to train on, and a model of it."""
    folder = tmp_path_factory.mktemp("larger")
    made = make_xmc(n_rows=3000, n_features=5000, n_labels=4200, random_state=2)
    datasets.save_xc(folder / "train.txt", made.X_train, made.Y_train)
    models = {}
    for kind, options in (("leaf", ["--preset", "bonsai-i"]), ("default", [])):
        command = [*options, folder / "train.txt", "-o", folder / f"{kind}.bonsai", "--random-state", "3"]
        subprocess.run([sys.executable, "-m", "bonsai_xmc", "train", "-q", *command], check=True)
        models[kind] = options, (folder / f"{kind}.bonsai").read_bytes()
    return folder / "train.txt", models


def has_open(pid, path):
    """Return whether a process has a file open."""
    try:
        return any(os.readlink(fd) == str(path) for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # a file, or the process, is gone
        return False


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("leaf", signal.SIGKILL),
        ("default", signal.SIGKILL),
        ("leaf", signal.SIGTERM),
        ("default", signal.SIGINT),
    ],
)
def test_killed_at_any_moment_and_continued(larger, tmp_path, kind, number):
    path, models = larger
    options, expected = models[kind]
    command = [sys.executable, "-m", "bonsai_xmc", "train", path, *options, "--random-state", "3"]
    command += ["-o", tmp_path / "model", "--checkpoint", tmp_path / "c", "-q"]
    rng = np.random.default_rng(number)
    kills = 0
    for _ in range(60):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not has_open(process.pid, tmp_path / "c" / "lock"):
            time.sleep(0.01)
        try:
            _, errors = process.communicate(timeout=float(rng.uniform(0.0, 0.8)) if kills < 2 else None)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            begin = time.monotonic()
            _, errors = process.communicate()
            kills += 1
            if (tmp_path / "model").exists():  # training had ended at that moment
                break
            if number == signal.SIGKILL:
                assert process.returncode == -9
                continue
            assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[number], errors
            assert f"the same command continues from {tmp_path / 'c'}" in errors
            assert time.monotonic() - begin < 30  # a second on a quiet machine
            continue
        assert process.returncode == 0, errors
        break
    assert (tmp_path / "model").read_bytes() == expected


def test_command_line_says_what_differs(larger, tmp_path):
    path, _ = larger
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "checkpoint.json").write_text('{"bonsai-xmc": "0.0.1"}')
    command = [sys.executable, "-m", "bonsai_xmc", "train", path, "-o", tmp_path / "m"]
    result = subprocess.run([*command, "--checkpoint", tmp_path / "c"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "belongs to another training" in result.stderr
    assert "but was '0.0.1'" in result.stderr
    assert not (tmp_path / "m").exists()


def test_learn_gives_the_same_model_by_any_runner(data, tmp_path):
    X, Y = data
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(X[:300], Y[:300], keep_rows=True)
    expected = saved(model.learn(X[300:], Y[300:]), tmp_path)
    runner = Elsewhere(lambda fn, args: fn(*args))
    assert saved(model.learn(X[300:], Y[300:], runner=runner), tmp_path) == expected
    assert runner.solved >= 2


def test_learn_continues_from_its_checkpoint(data, tmp_path):
    X, Y = data
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(X[:300], Y[:300], keep_rows=True)
    expected = saved(model.learn(X[300:], Y[300:]), tmp_path)

    class Once:
        """A runner that solves the first unit, then fails."""

        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            stage.solve(units[:1], threads, progress, save)
            raise KeyboardInterrupt

    class Count:
        def solve(self, stage, recipe, units, threads, progress, save):
            recipe.prepare(stage)
            self.units = len(units)
            stage.solve(units, threads, progress, save)

    with pytest.raises(KeyboardInterrupt):
        model.learn(X[300:], Y[300:], runner=Once(), checkpoint=tmp_path / "c")
    runner = Count()
    learnt = model.learn(X[300:], Y[300:], runner=runner, checkpoint=tmp_path / "c")
    assert saved(learnt, tmp_path) == expected
    whole = Count()
    model.learn(X[300:], Y[300:], runner=whole)
    assert runner.units == whole.units - 1
    with pytest.raises(ValueError, match="belongs to another training"):
        model.learn(X[290:], Y[290:], checkpoint=tmp_path / "c")


def test_learn_stays_within_a_memory_limit(data):
    X, Y = data
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(X[:300], Y[:300], keep_rows=True)
    with pytest.raises(MemoryError):
        model.learn(X[300:], Y[300:], max_memory=1000)
