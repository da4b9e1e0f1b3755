"""Saving and loading in rough weather: kills, full disks, several savers, files that change, forks."""

import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bonsai_xmc import Bonsai, FormatError, TextBonsai
from bonsai_xmc._base import files
from bonsai_xmc._modelfile import container
from helpers import text_bonsai

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
    """Once 0600 became 0644."""
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


def test_while_it_is_written_nobody_else_can_read_it(tmp_path):
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
    """Once 200 kills left 2 GB of hidden files."""
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
    """Each writes whole files: whoever reads in between finds one of them."""
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


def test_a_full_disk(model, tmp_path):
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
    """Once every model was mapped, and such a change ended the process by a signal."""
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
    """A server is told to load a file of zeros, or one that is still being written."""
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
        container.read(tmp_path / "m", mmap=mmap)  # longer than announced is all that was there
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
    """Once 100 MB of JSON cost 40 seconds and 3.9 GB before its checksum was looked at."""
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


def test_sections_that_a_reader_must_know(model, tmp_path):
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
        ({10**30: "brick"}, [[1], [2], [1], [2]], "label_texts: the label 10{30}; integer labels lie from 0"),
        ({"a": "xyzzy"}, LABELS, "label_texts has no text with a word of the documents"),
    ],
)
def test_label_texts_are_checked_before_training(no_training, label_texts, labels, message):
    model = TextBonsai(min_df=1, label_texts=label_texts, classifier=Bonsai(classifiers="one_vs_rest"))
    with pytest.raises(ValueError, match=message):
        model.fit(TEXTS, labels)
    if "not valid" in message:  # where weights are searched for, which needs models, before that, too
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
