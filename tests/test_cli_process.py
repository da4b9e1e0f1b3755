"""Ends of commands: errors, wrong usage, exit codes, interrupts."""

import contextlib
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import bonsai_xmc
from bonsai_xmc import Bonsai, _cli, datasets
from bonsai_xmc._modelfile import container
from helpers import error_of, says

BONSAI = [sys.executable, "-m", "bonsai_xmc"]


@pytest.fixture(scope="module")
def data(cli_data):
    return cli_data


@pytest.fixture(scope="module")
def folder(cli_folder):
    return cli_folder


# Errors


@pytest.fixture
def broken(tmp_path, folder):
    model = (folder / "model.bonsai").read_bytes()
    (tmp_path / "cut").write_bytes(model[:-5])
    (tmp_path / "changed").write_bytes(model.replace(b'"params"', b'"pa=ams"'))
    (tmp_path / "foreign").write_bytes(container.dumps({"x": np.zeros(3)}, {"note": "no forest"}))
    (tmp_path / "malformed.txt").write_text("2 3 2\n0 0:1\n1 0:one\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "unknown.json").write_text('{"brunching": 3}')
    (tmp_path / "broken.json").write_text('{"branching_factor": ')
    (tmp_path / "wrong.json").write_text('{"branching_factor": "many"}')
    (tmp_path / "mixed.json").write_text("[[0], 1]")
    (tmp_path / "latin").write_bytes("grün\n".encode("latin-1"))
    (tmp_path / "few").write_text("one\n")
    (tmp_path / "other").write_text("x\tone\n")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "wide.txt").write_text("1 500\n499:1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train missing.txt -o {0}/m", "missing.txt: No such file or directory"),
        ("train {0}/malformed.txt -o {0}/m", "malformed.txt"),
        ("train train.txt -o {0}/m --branching-factor 1", "branching_factor is 1, but must be"),
        ("train train.txt -o {0}/m --representation inputs", "representation is 'inputs', but must be"),
        (
            "train train.txt -o {0}/m --representation {0}/empty.npy",
            "empty.npy: the file is empty",
        ),
        ("train train.txt -o {0}/m --params {0}/missing.json", "missing.json: No such file or directory"),
        ("train train.txt -o {0}/m --params {0}/list.json", "list.json does not hold a JSON object"),
        (
            "train train.txt -o {0}/m --params {0}/unknown.json",
            "unknown.json: unknown parameter 'brunching'; did you mean 'branching_factor'?",
        ),
        ("train train.txt -o {0}/m --params {0}/broken.json", "broken.json is not valid JSON"),
        ("train train.txt -o {0}/m --params {0}/wrong.json", "branching_factor is 'many', but must be"),
        (
            "train train.txt -o {0}/m --tree {0}/mixed.json",
            "mixed.json: the tree mixes labels (1) with lists",
        ),
        ("train train.txt -o {0}/m --tree {0}/latin", "latin: "),
        ("train tst_X_Xf.txt.gz -o {0}/m", "tst_X_Xf.txt.gz holds features only"),
        ("train train.txt -o {0}/no/m", "/no/m': there is no folder"),
        ("train train.txt -o {0}", "it names a folder"),
        ("predict missing test.txt", "missing: No such file or directory"),
        ("predict train.txt test.txt", "train.txt is not a bonsai-xmc model"),
        ("predict {0}/cut test.txt", "cut is truncated at byte"),
        ("predict {0}/changed test.txt", "changed is damaged: the checksum of its header"),
        ("predict {0}/foreign test.txt", "foreign: the model is inconsistent"),
        ("predict {0} test.txt", "is not a bonsai-xmc model: it is a folder"),
        ("predict model.bonsai missing.txt", "missing.txt: No such file or directory"),
        ("predict model.bonsai {0}/wide.txt", "wide.txt"),
        ("predict model.bonsai test.txt -k 0", "k is 0, but must be at least 1"),
        ("predict model.bonsai test.txt --label-names {0}/other", "has no name for any label of the model"),
        ("predict model.bonsai test.txt --label-names {0}/latin", "latin, line 1: not UTF-8"),
        ("predict model.bonsai tst_X_Xf.txt.gz --base 1", "tst_X_Xf.txt.gz: line 2"),
        ("predict model.bonsai test.txt -o {0}/no/p", "/no/p': there is no folder"),
        ("predict model.bonsai test.txt -o /dev/full", "No space left on device"),
        ("evaluate missing test.txt", "missing: No such file or directory"),
        ("evaluate model.bonsai tst_X_Xf.txt.gz", "holds features only"),
        ("evaluate model.bonsai test.txt -k 0", "k"),
        ("evaluate tst_X_Y.txt train.txt", "rows"),
        ("info missing", "missing: No such file or directory"),
        ("info {0}/few", "few is not a bonsai-xmc model"),
    ],
)
def test_errors_are_one_clear_line(bonsai, broken, line, message):
    before = sorted(os.listdir(broken))
    assert message in error_of(bonsai, *line.format(broken).split())
    assert sorted(os.listdir(broken)) == before


def test_an_error_of_the_training(bonsai, tmp_path):
    (tmp_path / "nothing.txt").write_text("2 3 2\n 0:1\n 1:1\n")
    bonsai("train", tmp_path / "nothing.txt", "-o", tmp_path / "m", code=1)
    assert bonsai.error.startswith("bonsai: error: Y holds no label at all")
    assert os.listdir(tmp_path) == ["nothing.txt"]


def test_the_output_is_checked_before_anything_else(bonsai, tmp_path):
    for command in (("train", "missing.txt"), ("predict", "missing", "missing.txt")):
        assert "/no/m': there is no folder" in error_of(bonsai, *command, "-o", tmp_path / "no" / "m")


def test_lack_of_memory_is_an_error_too(bonsai, tmp_path, monkeypatch):
    def fit(*_, **__):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(Bonsai, "fit", fit)
    bonsai("train", "train.txt", "-o", tmp_path / "m", code=1)
    assert bonsai.error == "bonsai: error: not enough memory (std::bad_alloc)\n"
    assert os.listdir(tmp_path) == []


def test_messages_of_several_lines_become_one(bonsai, monkeypatch):
    def load(*_, **__):
        raise ValueError("first line\n  second line")

    monkeypatch.setattr("bonsai_xmc._modelfile.format.load", load)
    assert error_of(bonsai, "info", "model.bonsai") == "first line second line"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["train", "x"], "the following arguments are required: -o/--output"),
        (
            ["train", "x", "-o", "y", "--branching-factor", "many"],
            "argument --branching-factor: invalid int value: 'many'",
        ),
        (
            ["train", "x", "-o", "y", "--beam-size", "all"],
            "argument --beam-size: invalid int or 'none' value: 'all'",
        ),
        (["train", "x", "-o", "y", "--loss", "hinge"], "argument --loss: invalid choice: 'hinge'"),
        (["train", "x", "-o", "y", "--preset", "oak"], "argument --preset: invalid choice: 'oak'"),
        (["train", "x", "-o", "y", "--branch", "3"], "unrecognized arguments: --branch 3"),
        (["info"], "the following arguments are required: MODEL"),
        (["serve", "x", "--port", "99999"], "argument --port: 99999 is not a port; ports are from 0"),
        (["serve", "x", "--port", "-1"], "argument --port: -1 is not a port"),
        (["serve", "x", "--port", "http"], "argument --port: invalid port value: 'http'"),
    ],
)
def test_wrong_usage_names_the_argument_and_exits_with_2(capsys, line, message):
    with pytest.raises(SystemExit) as caught:
        _cli.main(line)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", [["--help"], ["train", "--help"], ["predict", "-h"], ["evaluate", "-h"], ["info", "-h"]]
)
def test_help_exits_with_0_and_shows_the_usage(capsys, line):
    with pytest.raises(SystemExit) as caught:
        _cli.main(line)
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: bonsai")


# The process


def test_exit_codes_of_the_process(folder, tmp_path):
    def run(*line):
        return subprocess.run([*BONSAI, *line], cwd=folder, capture_output=True, text=True, timeout=60)

    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"bonsai-xmc {bonsai_xmc.__version__}\n")
    done = run("info", "missing")
    assert (done.returncode, done.stderr) == (1, "bonsai: error: missing: No such file or directory\n")
    assert run("fly").returncode == 2


def test_a_closed_output_pipe_ends_a_command_quietly(folder):
    line = [*BONSAI, "predict", "model.bonsai", "train.txt", "-k", "40", "--beam-size", "none"]
    with started(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"300 40\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.fixture(scope="module")
def long_work(tmp_path_factory):
    """Return a folder and a command that trains in it for longer than any test waits."""
    path = tmp_path_factory.mktemp("long")
    many = datasets.make_xmc(
        n_rows=20_000, n_test=1, n_features=4_000, n_labels=3_000, features_per_row=60, random_state=0
    )
    sp.save_npz(path / "X.npz", many.X_train)
    sp.save_npz(path / "Y.npz", many.Y_train)
    (path / "m").write_bytes(b"the old model")
    return path, [
        *BONSAI,
        "train",
        "X.npz",
        "Y.npz",
        "-o",
        "m",
        "--n-jobs=1",
        "--classifiers=leaf",
        "--n-trees=30",
    ]


@contextlib.contextmanager
def started(line, **kwargs):
    """Start a process that ends with the test in any case, and after a minute at the latest.

    It handles interrupts even where the tests ignore them, as in the background of a script.
    """
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(line, preexec_fn=listen, **kwargs) as process:
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def cpu_of(pid):
    """Return the CPU seconds of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_children():
    """Return the CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("options", [(), ("--tol=1e-12", "--max-iter=1000000")])
def test_an_interrupt_stops_soon_and_leaves_nothing(long_work, options):
    path, line = long_work
    with started([*line, *options], cwd=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"about ")  # training begins
        time.sleep(1)
        begin = cpu_of_children() + cpu_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert cpu_of_children() - begin < 3  # of CPU time, so that a busy machine makes no difference
        assert process.stderr.read() == b"bonsai: interrupted\n"
    assert sorted(os.listdir(path)) == ["X.npz", "Y.npz", "m"]
    assert (path / "m").read_bytes() == b"the old model"


def test_a_terminal_gets_a_bar(long_work):
    path, line = long_work
    ours, theirs = pty.openpty()
    with started(line, cwd=path, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while b" left" not in seen:
            seen += os.read(ours, 1000)
        process.send_signal(signal.SIGINT)
        while not seen.endswith(b"interrupted\r\n"):
            seen += os.read(ours, 1000)
        assert process.wait() == 130
    os.close(ours)
    assert re.search(rb"\[=* *\] +\d+ %  0:\d\d, ", seen)
    assert seen.endswith(b"\r\x1b[Kbonsai: interrupted\r\n")


def test_lack_of_memory_in_the_core_names_the_phase(bonsai, tmp_path, monkeypatch, cli_data):
    """The message names the phase and a remedy instead of std::bad_alloc."""

    def fail(*_, **__):
        raise MemoryError("std::bad_alloc")

    from bonsai_xmc._base.progress import Phases
    from bonsai_xmc._model.linear import LinearRanker

    model = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(cli_data.X_train, cli_data.Y_train)
    with monkeypatch.context() as patch:
        patch.setattr(LinearRanker, "top_k", fail)
        with says("not enough memory to predict the 7 best labels of these rows; predict fewer", MemoryError):
            model.top_k(cli_data.X_test, 7)
    phases = Phases(None)
    with (
        says("in the phase 'trees' of 'threshold'; memory_estimate(X, Y) returns", MemoryError),
        phases.together("threshold"),
    ):
        phases.run("trees", fail)
    monkeypatch.setattr(Bonsai, "fit", lambda *_, **__: Phases(None).run("one-vs-rest", fail))
    bonsai("train", "train.txt", "-o", tmp_path / "m", code=1)
    assert bonsai.error.startswith("bonsai: error: not enough memory in the phase 'one-vs-rest'; ")
