"""Models that are saved, copied and fitted again: what stays, and what is refused."""

import copy
import dataclasses
import json
import multiprocessing
import os
import pickle
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bonsai_xmc import Bonsai, FormatError, TextBonsai, datasets
from bonsai_xmc._base import files
from bonsai_xmc._modelfile import container
from helpers import same_model, text_bonsai

# --- saving ---


SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def model(generated):
    return Bonsai(n_jobs=1, threshold=0.5).fit(generated.X_train, generated.Y_train)


def run(code, *args, **options):
    """Python code in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


# --- mode, owner ---


def test_a_file_that_is_replaced_keeps_its_mode(model, tmp_path):
    """A mode of 0600 does not become 0644."""
    path = tmp_path / "m"
    for mode in (0o600, 0o640, 0o666):
        path.write_bytes(b"older")
        path.chmod(mode)
        model.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_follows_the_umask(model, tmp_path):
    before = os.umask(0o027)
    try:
        model.save(tmp_path / "m")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(model, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"older")
    path.chmod(0o640)
    os.chown(path, 12345, 23456)
    model.save(path)
    now = path.stat()
    assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (12345, 23456, 0o640)


def test_a_file_is_private_while_it_is_written(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"older")
    path.chmod(0o644)
    with files.replacing(path) as file:
        file.write(b"new")
        (temporary,) = set(tmp_path.iterdir()) - {path}
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


# --- kills, full disks, several savers ---

HANGS = """
import sys, time
from bonsai_xmc._base import files
with files.replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_what_killed_savers_leave_is_removed_by_the_next(model, tmp_path, kill):
    """Otherwise each kill would leave a hidden file for good."""
    path = tmp_path / "m"
    path.write_bytes(b"older")
    listen = lambda: (
        signal.signal(kill, signal.SIG_DFL) if kill != signal.SIGKILL else None
    )  # under nohup, too
    line = [sys.executable, "-c", HANGS, path]
    with subprocess.Popen(line, stdout=subprocess.PIPE, preexec_fn=listen) as process:
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(kill)
        process.wait(20)
    assert path.read_bytes() == b"older"
    assert len(list(tmp_path.iterdir())) == 2
    model.save(tmp_path / "another")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["another", "m"]


def test_files_of_living_savers_are_left_alone(model, tmp_path):
    path = tmp_path / "m"
    with subprocess.Popen([sys.executable, "-c", HANGS, path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        model.save(tmp_path / "another")
        assert len(list(tmp_path.iterdir())) == 2  # the half file, too
        process.kill()
    model.save(tmp_path / "another")
    assert [entry.name for entry in tmp_path.iterdir()] == ["another"]


def test_foreign_hidden_files_are_left_alone(model, tmp_path):
    for name in (".bonsai-notes.tmp", ".bonsai-0123456789abcdeg.tmp", "bonsai-0123456789abcdef.tmp"):
        (tmp_path / name).write_bytes(b"mine")
    model.save(tmp_path / "m")
    assert len(list(tmp_path.iterdir())) == 4


def save_again_and_again(path, source, seconds):
    model = Bonsai.load(source, mmap=False)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        model.save(path)


def test_two_savers_at_once(model, tmp_path):
    """Each writes whole files: a reader finds one of them at any moment."""
    model.save(tmp_path / "source")
    path = tmp_path / "m"
    model.save(path)
    savers = [
        SPAWN.Process(target=save_again_and_again, args=(path, tmp_path / "source", 2)) for _ in range(2)
    ]
    for saver in savers:
        saver.start()
    reads = 0
    while any(saver.is_alive() for saver in savers):
        Bonsai.load(path, verify=True)
        reads += 1
    for saver in savers:
        saver.join()
    assert reads > 0
    assert [saver.exitcode for saver in savers] == [0, 0]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m", "source"]


FULL = """
import resource, signal, sys
from bonsai_xmc import Bonsai
model = Bonsai.load(sys.argv[1], mmap=False)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    model.save(sys.argv[2])
except OSError as error:
    print("refused:", error)
"""


def test_a_full_disk_keeps_the_older_file(model, tmp_path):
    model.save(tmp_path / "source")
    (tmp_path / "m").write_bytes(b"older")
    done = run(FULL, tmp_path / "source", tmp_path / "m")
    assert done.stdout.startswith("refused: "), done.stderr
    assert (tmp_path / "m").read_bytes() == b"older"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m", "source"]


# --- loading ---


@pytest.mark.parametrize("mmap", [True, False, "sealed"])
@pytest.mark.parametrize("verify", [False, True])
def test_every_way_to_load_gives_the_same_model(model, generated, tmp_path, mmap, verify):
    model.save(tmp_path / "m")
    other = Bonsai.load(tmp_path / "m", mmap=mmap, verify=verify)
    for mine, theirs in zip(model.top_k(generated.X_test), other.top_k(generated.X_test), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    other.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_other_ways_to_load(model, tmp_path):
    model.save(tmp_path / "m")
    for mmap in ("private", None, 2):
        with pytest.raises(ValueError, match=r"mmap is .*, but must be True, False or 'sealed'"):
            Bonsai.load(tmp_path / "m", mmap=mmap)


CHANGED = """
import os, sys
import numpy as np
from bonsai_xmc import Bonsai, datasets
path, mmap = sys.argv[1], {"False": False, "sealed": "sealed", "True": True}[sys.argv[2]]
X = datasets.make_xmc(n_rows=400, n_test=150, n_features=300, n_labels=60, features_per_row=20).X_test
model = Bonsai.load(path, mmap=mmap)
before = model.top_k(X)
with open(path, "r+b") as file:  # as `cp new model` does
    if sys.argv[3] == "truncate":
        file.truncate(0)
    else:
        size = os.fstat(file.fileno()).st_size
        file.write(np.random.default_rng(0).bytes(size))
after = model.top_k(X)
print(all(map(np.array_equal, before, after)))
"""


@pytest.mark.parametrize("mmap", [False, "sealed"])
@pytest.mark.parametrize("change", ["truncate", "overwrite"])
def test_a_file_that_changes_in_place_does_not_reach_a_copy(model, tmp_path, mmap, change):
    """Under a mapped model, such a change can end the process by a signal."""
    model.save(tmp_path / "m")
    done = run(CHANGED, tmp_path / "m", mmap, change)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_mapped_file_that_is_overwritten_gives_other_scores_but_no_crash(model, tmp_path):
    """Structure is copied when a model is loaded; only weights are mapped."""
    model.save(tmp_path / "m")
    done = run(CHANGED, tmp_path / "m", True, "overwrite")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_a_mapped_file_that_is_replaced_stays_what_it_was(model, generated, tmp_path):
    model.save(tmp_path / "m")
    mapped = Bonsai.load(tmp_path / "m")
    before = mapped.top_k(generated.X_test)
    Bonsai(classifiers="leaf", threshold=0.5).fit(generated.X_train, generated.Y_train).save(tmp_path / "m")
    assert all(map(np.array_equal, before, mapped.top_k(generated.X_test)))


def test_sealed_memory_cannot_be_changed_and_is_shared_by_forks(model, generated, tmp_path):
    model.save(tmp_path / "m")
    sealed = Bonsai.load(tmp_path / "m", mmap="sealed")
    regions = Path("/proc/self/smaps").read_text().split("memfd:bonsai-xmc")
    assert len(regions) == 2
    assert regions[0].splitlines()[-1].split()[1] == "r--s"  # shared, read-only
    expected = sealed.top_k(generated.X_test)[0]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        same = np.array_equal(sealed.top_k(generated.X_test)[0], expected)
        os.write(writer, b"1" if same else b"0")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 1) == b"1"


def bytes_read():
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("mmap", [False, "sealed"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda blob: b"", "it does not begin like one"),
        (lambda blob: blob, "bytes follow the last tensor"),
        (
            lambda blob: blob.replace(b'"format_version":"3"', b'"format_version":"4"', 1),
            "checksum of its header",
        ),
    ],
)
def test_header_and_length_are_checked_before_a_copy_is_made(model, tmp_path, mmap, change, message):
    """As for a server that loads a file of zeros, or one that is written meanwhile."""
    model.save(tmp_path / "m")
    (tmp_path / "m").write_bytes(change((tmp_path / "m").read_bytes()))
    os.truncate(tmp_path / "m", 200_000_000)
    before = bytes_read()
    with pytest.raises(FormatError, match=message):
        Bonsai.load(tmp_path / "m", mmap=mmap)
    assert bytes_read() - before < 20_000_000


def test_an_archive_that_shrinks_while_it_is_read(tmp_path, model, monkeypatch):
    model.save(tmp_path / "m")
    blob = (tmp_path / "m").read_bytes()
    real = os.fstat
    monkeypatch.setattr(
        os, "fstat", lambda handle: os.stat_result([*real(handle)[:6], len(blob) + 4096, *real(handle)[7:]])
    )
    for mmap in (False, "sealed"):
        container.read(tmp_path / "m", mmap=mmap)  # the size was reported too large: the whole file is read
    (tmp_path / "m").write_bytes(blob[:-100])
    for mmap in (False, "sealed"):
        with pytest.raises(FormatError, match="is truncated"):
            container.read(tmp_path / "m", mmap=mmap)


FORKS = """
import os, sys, threading
import numpy as np
from bonsai_xmc import Bonsai, datasets
X = datasets.make_xmc(n_rows=400, n_test=150, n_features=300, n_labels=60, features_per_row=20).X_test
model = Bonsai.load(sys.argv[1]).set_params(n_jobs=2)
expected = model.top_k(X)[0]
stop = threading.Event()
def work():
    while not stop.is_set():
        assert np.array_equal(model.top_k(X)[0], expected)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(model.top_k(X)[0], expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
print("done")
"""


def test_forking_while_others_predict(model, tmp_path):
    model.save(tmp_path / "m")
    done = run(FORKS, tmp_path / "m")
    assert done.stdout == "done\n", done.stderr


# --- headers ---


def test_a_large_header_is_refused_before_it_is_parsed(tmp_path):
    """Parsing 100 MB of JSON would take 40 seconds and 3.9 GB."""
    path = tmp_path / "m"
    header = b'{"__metadata__":{"crc32.header":"00000000","format":"bonsai-xmc"},' + b'"a":[[],[],' * 10**6
    header += b" " * (-(8 + len(header)) % 64)
    assert len(header) < 1 << 24
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    with pytest.raises(FormatError, match="the checksum of its header does not hold"):
        Bonsai.load(path)
    assert time.process_time() - begin < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 100_000  # kB
    path.write_bytes((1 << 25).to_bytes(8, "little") + b"{" + bytes(1 << 25))
    with pytest.raises(FormatError, match="it does not begin like one"):
        Bonsai.load(path)


def test_sections_without_which_a_file_is_not_read(model, tmp_path):
    path = tmp_path / "m"
    model.save(path)
    file = container.read(path)
    assert file.requires == ("labels", "one_vs_rest")
    more = {"search_index.ptr": np.arange(3)}
    container.write(path, file.arrays | more, file.metadata, file.requires)
    Bonsai.load(path, verify=True)  # may be skipped
    container.write(path, file.arrays | more, file.metadata, (*file.requires, "search_index"))
    with pytest.raises(FormatError, match=r"was made by a newer bonsai-xmc: it needs 'search_index'"):
        Bonsai.load(path)


def test_weights_of_another_kind(model, tmp_path):
    path = tmp_path / "m"
    model.save(path)
    file = container.read(path)
    metadata = file.metadata | {"model": file.metadata["model"].replace('"int8"', '"float32"')}
    container.write(path, file.arrays, metadata, file.requires)
    with pytest.raises(FormatError, match="was made by a newer bonsai-xmc: its weights are 'float32'"):
        Bonsai.load(path)


# --- what a file cannot hold is refused before training ---

HALF = "x\ud800"  # half of a surrogate pair has no place in UTF-8
TEXTS, LABELS = ["old brick houses", "heat pumps", "brick walls", "a heat pump"], [["a"], ["b"], ["a"], ["b"]]


@pytest.fixture
def no_training(monkeypatch):
    def fail(*_args, **_options):
        pytest.fail("training has begun")

    monkeypatch.setattr("bonsai_xmc._estimators.bonsai.train", fail)
    monkeypatch.setattr("bonsai_xmc._selection.fields.tune", fail)


@pytest.mark.parametrize(
    ("label_texts", "labels", "message"),
    [
        ({"a": f"brick {HALF}"}, LABELS, r"label_texts\['a'\] holds 'brick x\\ud800', which is not valid"),
        ({"a": ["brick", HALF]}, LABELS, r"label_texts\['a'\] holds 'x\\ud800', which is not valid Unicode"),
        ({HALF: "brick"}, LABELS, r"label_texts holds the label 'x\\ud800', which is not valid Unicode"),
        ({"x": "brick"}, [[1], [2], [1], [2]], "label_texts has the label 'x', but .* are integers"),
        (
            {10**30: "brick"},
            [[1], [2], [1], [2]],
            "label_texts holds the label 10{30}; integer",
        ),
        ({"a": "xyzzy"}, LABELS, "label_texts has no text with a word of the documents"),
    ],
)
def test_label_texts_are_checked_before_training(no_training, label_texts, labels, message):
    model = TextBonsai(min_df=1, label_texts=label_texts, classifier=Bonsai(classifiers="one_vs_rest"))
    with pytest.raises(ValueError, match=message):
        model.fit(TEXTS, labels)
    if "not valid" in message:  # fields="auto" trains models: the check comes before these, too
        with pytest.raises(ValueError, match=message):
            model.set_params(fields="auto").fit(TEXTS, labels)


def test_label_texts_that_leaf_classifiers_cannot_use_are_refused_before_training(no_training):
    model = TextBonsai(min_df=1, label_texts={"a": "brick"}, classifier=Bonsai(classifiers="leaf"))
    with pytest.raises(ValueError, match="label_texts needs one-vs-rest classifiers"):
        model.fit(TEXTS, LABELS)


@pytest.mark.parametrize("name", ["lowercase", "sublinear_tf", "smooth_idf", "char_boundaries"])
@pytest.mark.parametrize("value", [object(), 1, None, "yes", np.nan])
def test_switches_of_texts_are_true_or_false(no_training, name, value):
    with pytest.raises(ValueError, match=f"{name} is .*, but must be True or False"):
        TextBonsai(min_df=1, **{name: value}).fit(TEXTS, LABELS)


def test_names_of_features_are_checked_before_training(no_training):
    pandas = pytest.importorskip("pandas")
    X = np.eye(4, dtype=np.float32)
    for columns, message in (
        (["u", HALF, "v", "w"], r"X holds the feature name 'x\\ud800', which is not valid Unicode"),
        (["u", "v", "u", "w"], "(?i)two .*'u'|unique column names"),
    ):
        frame = pandas.DataFrame(X, columns=pandas.Index(columns, dtype=object))
        with pytest.raises(ValueError, match=message):
            Bonsai().fit(frame, LABELS)


def test_labels_and_names_that_are_added_later():
    model = TextBonsai(min_df=1, classifier=Bonsai(classifiers="one_vs_rest")).fit(TEXTS, LABELS)
    for give, message in (
        (lambda: model.name_labels({"a": HALF}), r"names\['a'\] holds 'x\\ud800', which is not valid"),
        (lambda: model.add_labels({"c": f"brick {HALF}"}), r"texts\['c'\] holds 'brick x\\ud800', which is"),
        (lambda: model.add_labels({HALF: "brick"}), r"texts holds the label 'x\\ud800', which is not valid"),
    ):
        with pytest.raises(ValueError, match=message):
            give()
    with pytest.raises(TypeError, match=r"names\['b'\] is None, but names are strings"):
        model.name_labels({"a": "bricks", "b": None})
    assert model.label_names_ == ["a", "b"]


@pytest.mark.parametrize("number", [Fraction(1, 2), np.float32(0.5), np.longdouble(0.5)])
def test_numbers_of_any_type_are_parameters(tmp_path, number):
    """They are real numbers, which is all that the rules of parameters ask for."""
    numbers = dict.fromkeys(("C", "tol", "prune", "tail_exponent", "threshold", "power"), number)
    model = text_bonsai(fields={"title": number}, min_df=1, **numbers, classifiers="one_vs_rest")
    model.fit([{"title": text} for text in TEXTS], LABELS).save(tmp_path / "m")
    again = TextBonsai.load(tmp_path / "m").get_params()
    assert {again[name if name in again else f"classifier__{name}"] for name in numbers} == {0.5}
    assert again["fields"] == {"title": 0.5}


# --- copies and files ---


def test_clones_keep_all_parameters():
    vectors = np.eye(3)
    model = Bonsai(vectors, C=2.0)
    assert model.get_params()["C"] == 2.0
    assert model.representation is vectors
    other = clone(model)
    assert other.get_params().keys() == model.get_params().keys()
    assert clone(Bonsai().set_params(beam_size=None, n_trees=1)).get_params()["beam_size"] is None
    assert repr(Bonsai(n_trees=5)) == "Bonsai(n_trees=5)"
    assert Bonsai().set_params(C=3.0).C == 3.0


def test_a_clone_is_not_fitted(fitted):
    assert not hasattr(clone(fitted), "trees_")
    assert hasattr(fitted, "trees_")


def through_joblib(model, folder, **options):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", **options)


COPIES = {
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "joblib": through_joblib,
    "joblib mapped": lambda model, folder: through_joblib(model, folder, mmap_mode="r"),
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "copy": lambda model, folder: copy.copy(model),
    "file": lambda model, folder: (model.save(folder / "m"), Bonsai.load(folder / "m"))[1],
    "file, then pickle": lambda model, folder: (
        model.save(folder / "m"),
        pickle.loads(pickle.dumps(Bonsai.load(folder / "m"))),
    )[1],
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_predict_the_same(fitted, generated, tmp_path, way):
    other = COPIES[way](fitted, tmp_path)
    for mine, theirs in zip(fitted.top_k(generated.X_test, 9), other.top_k(generated.X_test, 9), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert other.trees_ == fitted.trees_
    for name in ("n_iter_", "n_features_in_", "n_rows_fit_", "seed_", "threshold_", "strategy_"):
        assert getattr(other, name) == getattr(fitted, name)
    np.testing.assert_array_equal(other.label_counts_, fitted.label_counts_)
    np.testing.assert_array_equal(other.classes_, fitted.classes_)
    saved = fitted.get_params() | ({"n_jobs": None} if "file" in way else {})
    assert other.get_params() == saved


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_copies_of_models_that_are_not_fitted(way, tmp_path):
    other = COPIES[way](Bonsai(C=3.0), tmp_path)
    assert other.get_params() == Bonsai(C=3.0).get_params()
    assert not hasattr(other, "trees_")


def test_a_copy_outlives_the_original_and_its_file(blocks, tmp_path):
    X, Y = blocks()
    Bonsai(classifiers="leaf", branching_factor=4).fit(X, Y).save(tmp_path / "m")
    model = Bonsai.load(tmp_path / "m")
    (tmp_path / "m").unlink()
    assert copy.deepcopy(model).score(X, Y) == model.score(X, Y) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"representation": np.eye(12)},
        {"loss": "logistic"},
        {
            "C": np.float32(0.3),
            "n_trees": np.int64(2),
            "normalize": np.True_,
            "beam_size": None,
            "max_depth": 2,
        },
    ],
)
def test_save_load_save_gives_the_same_bytes(blocks, tmp_path, options):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4, **options).fit(X, Y)
    model.save(tmp_path / "first")
    loaded = Bonsai.load(str(tmp_path / "first"))
    loaded.save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert same_model(model, loaded)
    np.testing.assert_array_equal(model.top_k(X, 3)[1], loaded.top_k(X, 3)[1])
    if "representation" not in options:  # the matrix is not in the file; everything else is
        loaded.fit(X, Y).save(tmp_path / "third")
        assert (tmp_path / "first").read_bytes() == (tmp_path / "third").read_bytes()
    else:
        with pytest.raises(
            ValueError,
            match="trained with label vectors of your own, which its file does not hold: pass them again",
        ):
            loaded.fit(X, Y)


def test_saving_over_a_loaded_model(blocks, tmp_path):
    X, Y = blocks()
    Bonsai(classifiers="leaf", branching_factor=4).fit(X, Y).save(tmp_path / "m")
    model = Bonsai.load(tmp_path / "m")
    model.save(tmp_path / "m")
    assert model.score(X, Y) == Bonsai.load(tmp_path / "m").score(X, Y) == 1.0
    assert os.listdir(tmp_path) == ["m"]


# --- seeds and threads ---


def test_equal_random_states_give_equal_models(blocks):
    X, Y = blocks(n_labels=30)
    fit = lambda seed: Bonsai(classifiers="leaf", branching_factor=4, n_trees=1, random_state=seed).fit(X, Y)
    zero = fit(0)
    assert zero.seed_ == 0
    assert same_model(zero, fit(np.int64(0)))
    assert same_model(zero, Bonsai(classifiers="leaf", branching_factor=4, n_trees=1).fit(X, Y))
    assert not same_model(zero, fit(1))
    assert fit(2**64 - 1).score(X, Y) == 1.0
    for make in (np.random.RandomState, np.random.default_rng):
        assert same_model(fit(make(5)), fit(make(5)))
        rng = make(5)
        assert not same_model(fit(rng), fit(rng))  # each fit advances it
    first, second = fit(None), fit(None)
    assert first.seed_ != second.seed_
    assert same_model(first, fit(first.seed_))


def test_models_do_not_depend_on_threads_or_verbosity(generated, tmp_path, capsys):
    files, results = set(), set()
    for n_jobs, progress in [
        (1, None),
        (2, True),
        (np.int64(3), False),
        (-1, True),
        (None, None),
        (-100, None),
    ]:
        model = Bonsai(classifiers="leaf", branching_factor=4, max_leaf_size=5, n_jobs=n_jobs)
        model.fit(generated.X_train, generated.Y_train, progress=progress).save(tmp_path / "m")
        files.add((tmp_path / "m").read_bytes())
        results.add(model.top_k(generated.X_test, 5)[1].tobytes())
    assert len(files) == len(results) == 1


# --- fitted ---


PROPERTIES = (
    "classes_", "classifiers_", "label_counts_", "n_features_in_", "n_iter_", "n_rows_fit_", "search_",
    "seed_", "strategy_", "threshold_", "timings_", "trees_",
)  # fmt: skip


def everything(model, X):
    """What a user can see of a fitted model."""
    ids, scores = model.top_k(X, 3)
    return (
        ids.tolist(),
        scores.tolist(),
        model.predict(X).toarray().tolist(),
        model.n_features_in_,
        model.seed_,
    )


@pytest.fixture
def other():
    """Data of another shape than `blocks`."""
    data = datasets.make_xmc(n_rows=80, n_test=1, n_features=30, n_labels=9, random_state=1)
    return data.X_train, data.Y_train


# --- a failed or interrupted refit ---


@pytest.mark.parametrize("step", ["LabelVectorStage", "TreeBuilder", "ClassifierStage.of_trees", "Model"])
def test_a_refit_that_fails_leaves_the_model_as_it_was(blocks, other, monkeypatch, step):
    """It does not mix the new number of features and seed with the old weights."""
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4, random_state=3).fit(X, Y)
    before, fitted = everything(model, X), model.fitted_

    def fail(*_, **__):
        raise MemoryError("no more")

    monkeypatch.setattr(f"bonsai_xmc._core.{step}", fail)
    with pytest.raises(MemoryError):
        model.set_params(random_state=5).fit(*other)
    monkeypatch.undo()
    assert model.fitted_ is fitted
    assert everything(model, X) == before


@pytest.mark.parametrize("classifiers", ["leaf", "one_vs_rest"])
def test_a_refit_that_is_interrupted_leaves_the_model_as_it_was(blocks, other, tmp_path, classifiers):
    X, Y = blocks()
    model = Bonsai(classifiers=classifiers, random_state=3).fit(X, Y)
    model.save(tmp_path / "before")
    before = everything(model, X)

    def interrupt(phase, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(random_state=5).fit(*other, progress=interrupt)
    assert everything(model, X) == before
    model.save(tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


def test_warnings_that_are_errors_leave_the_model_as_it_was(blocks, recwarn):
    import warnings

    X, Y = blocks()
    model = Bonsai(threshold=0.5).fit(X, Y)
    before = everything(model, X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            model.set_params(prune=50.0, C=0.5).fit(X, Y)
    assert everything(model, X) == before


def test_ctrl_c_while_predicting(blocks):
    """The estimator is unchanged, and its next call works."""
    X, Y = blocks()
    model = Bonsai(classifiers="leaf", branching_factor=4, beam_size=None, n_jobs=1).fit(X, Y)
    expected = model.top_k(X, 3)[0]
    many = sp.vstack([X] * 20_000, format="csr")
    timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            for _ in range(200):
                model.top_k(many, 3)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, usual)
    np.testing.assert_array_equal(model.top_k(X, 3)[0], expected)


# --- properties ---


def test_nothing_is_there_before_fit():
    for name in (*PROPERTIES, "feature_names_in_", "fitted_"):
        assert not hasattr(Bonsai(), name)
    with pytest.raises(NotFittedError):
        _ = Bonsai().classes_


def test_the_fitted_model_cannot_be_changed(blocks):
    model = Bonsai().fit(*blocks())
    for name in PROPERTIES:
        with pytest.raises(AttributeError):
            setattr(model, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.fitted_.threshold = 0.1
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.strategy_.C = 3.0
    assert copy.deepcopy(model).fitted_ is model.fitted_
    assert not hasattr(model, "feature_names_in_")


# --- parameters that are changed after fit ---

TRAINING = {
    "loss": "logistic",
    "normalize": False,
    "C": 100.0,
    "prune": 1.0,
    "classifiers": "leaf",
    "search": "index",
    "n_trees": 1,
    "random_state": 9,
    "representation": "output",
}


@pytest.mark.parametrize("name", TRAINING)
def test_training_parameters_are_frozen_by_fit(generated, tmp_path, name):
    """Otherwise `loss` and `normalize` would change the predictions of fixed weights."""
    X, Y = generated.X_train, generated.Y_train
    model = Bonsai(threshold=0.3).fit(X, Y)
    model.save(tmp_path / "before")
    ids, scores = model.top_k(generated.X_test)
    model.set_params(**{name: TRAINING[name]})
    np.testing.assert_array_equal(model.top_k(generated.X_test)[0], ids)
    np.testing.assert_array_equal(model.top_k(generated.X_test)[1], scores)
    model.save(tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()
    assert model.strategy_.C == 1.0 and Bonsai.load(tmp_path / "after").C == "auto"


@pytest.mark.parametrize(
    ("name", "value", "use"),
    [
        ("threshold", 7, lambda model, X: model.predict(X)),
        ("threshold", None, lambda model, X: model.predict(X)),
        ("beam_size", 0, lambda model, X: model.top_k(X)),
        ("n_jobs", 0, lambda model, X: model.top_k(X)),
        ("n_jobs", 3000, lambda model, X: model.top_k(X)),
    ],
)
def test_prediction_parameters_are_checked_when_used_and_when_saved(blocks, tmp_path, name, value, use):
    """Otherwise a file that does not load could replace a good one."""
    X, Y = blocks()
    model = Bonsai(classifiers="leaf").fit(X, Y)
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    model.set_params(**{name: value})
    with pytest.raises(ValueError, match=f"{name} is {value}, but must be"):
        use(model, X)
    if name == "n_jobs":  # not part of the file
        return
    with pytest.raises(ValueError, match=f"{name} is {value}, but must be"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_beam_is_refused_where_all_labels_are_scored(blocks, tmp_path):
    X, Y = blocks()
    model = Bonsai().fit(X, Y).set_params(beam_size=20)
    for use in (lambda: model.top_k(X), lambda: model.predict(X), lambda: model.save(tmp_path / "m")):
        with pytest.raises(ValueError, match="beam_size is 20, but this model has no trees to search"):
            use()
    assert model.set_params(beam_size=10).top_k(X).__len__() == 2
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_loaded_is_not_saved(blocks, tmp_path, monkeypatch):
    """The file is read back before it replaces another."""
    model = Bonsai().fit(*blocks())
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    model.fitted_ = dataclasses.replace(model.fitted_, n_rows=-1)
    with pytest.raises(ValueError, match=r"this model cannot be saved: .*n_rows is -1"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_prediction_parameters_are_saved_as_they_are(blocks, tmp_path):
    model = Bonsai(classifiers="leaf").fit(*blocks())
    model.set_params(beam_size=None, max_labels=3, threshold=0.25).save(tmp_path / "m")
    other = Bonsai.load(tmp_path / "m")
    assert (other.beam_size, other.max_labels, other.threshold) == (None, 3, 0.25)
    assert other.threshold_ == model.threshold_ != 0.25
    file = json.loads(container.read(tmp_path / "m").metadata["model"])
    assert file["prediction"] == {
        "beam_size": None,
        "n_probe": "auto",
        "max_labels": 3,
        "threshold": 0.25,
    }


# --- what a file keeps ---


def test_feature_names_are_saved(tmp_path):
    """Permuted columns are refused before saving and after loading."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.random((40, 5)), columns=["a", "b", "ç", "d", "name with space"])
    Y = [["x"], ["y"]] * 20
    model = Bonsai().fit(X, Y)
    model.save(tmp_path / "m")
    for loaded in (model, Bonsai.load(tmp_path / "m")):
        assert loaded.feature_names_in_.tolist() == list(X.columns)
        assert loaded.top_k(X)[0].tolist() == model.top_k(X)[0].tolist()
        with pytest.raises(ValueError, match="feature names should match"):
            loaded.top_k(X[["b", "a", "ç", "d", "name with space"]])
    refitted = Bonsai.load(tmp_path / "m").fit(X.to_numpy(), Y)
    assert not hasattr(refitted, "feature_names_in_")


def test_a_loaded_model_with_a_tree_of_the_users_is_refitted(blocks, tmp_path):
    X, Y = blocks()
    model = Bonsai(classifiers="leaf").fit(X, Y, tree=[[0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]])
    model.save(tmp_path / "m")
    loaded = Bonsai.load(tmp_path / "m")
    assert same_model(loaded.fit(X, Y, tree=loaded.trees_), model)


@pytest.mark.parametrize("labels", ["names", "keys"])
def test_trees_go_by_label_not_by_place(blocks, tmp_path, labels):
    """The tree of a model fits data with more labels, whose places differ."""
    X, Y = blocks(n_labels=6)
    name = (lambda i: f"label {i}") if labels == "names" else (lambda i: 10 * int(i) + 7)
    first = Bonsai(classifiers="leaf", branching_factor=2, max_leaf_size=2).fit(
        X, [[name(i)] for i in Y.indices]
    )
    more = [[name(i)] for i in Y.indices]
    more[0] = [*more[0], "a new one" if labels == "names" else 3]
    with pytest.raises(ValueError, match=r"1 label\(s\) of Y are not in tree"):
        Bonsai(classifiers="leaf").fit(X, more, tree=first.trees_)
    without = [[label for label in row if label not in ("a new one", 3)] for row in more]
    again = Bonsai(classifiers="leaf").fit(X, without, tree=first.trees_)
    assert again.trees_ == first.trees_
    if labels == "keys":
        nested = [[name(0), name(1)], [name(2), name(3), name(4), name(5)]]
        assert Bonsai(classifiers="leaf").fit(X, without, tree=nested).trees_[0].n_leaves == 2


def test_refitting_a_loaded_model_with_label_vectors_is_explained(blocks, tmp_path):
    X, Y = blocks()
    vectors = np.eye(12)
    model = Bonsai(vectors, classifiers="leaf", branching_factor=4).fit(X, Y)
    model.save(tmp_path / "m")
    loaded = Bonsai.load(tmp_path / "m")
    with pytest.raises(
        ValueError, match=r"pass them again, as in model\.set_params\(representation=vectors\)"
    ):
        loaded.fit(X, Y)
    assert same_model(loaded, model)
    assert same_model(loaded.set_params(representation=vectors).fit(X, Y), model)


def test_the_base_of_ids_is_saved(blocks, tmp_path):
    model = Bonsai().fit(*blocks())
    assert model.fitted_.id_base is None
    model.fitted_ = dataclasses.replace(model.fitted_, id_base=1)
    model.save(tmp_path / "m")
    assert Bonsai.load(tmp_path / "m").fitted_.id_base == 1
