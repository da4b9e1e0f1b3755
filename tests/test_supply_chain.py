"""What the package does not do: open sockets, or run code that a model file holds."""

import subprocess
import sys

import pytest

# The interpreter raises audit events; forbidden ones are errors, in any library.
COMMON = """
import sys
forbidden = ()
def watch(event, args):
    if event.startswith(forbidden):
        raise RuntimeError(f"forbidden: {event} {args}")
sys.addaudithook(watch)
"""

USE = """
import os, tempfile
import bonsai_xmc
from bonsai_xmc import Bonsai, TextBonsai, datasets, systems
path = os.path.join(tempfile.mkdtemp(), "m")
data = datasets.make_xmc(n_rows=80, n_test=5, n_features=60, n_labels=12, features_per_row=8)
texts = datasets.make_texts(60, n_test=5, random_state=0)
def use(load_only=False):
    if not load_only:
        for model in (Bonsai(threshold=0.5), Bonsai(classifiers="blend", search="index", threshold=0.5)):
            model.fit(data.X_train, data.Y_train).save(path)
        Bonsai.load(path).top_k(data.X_test, 3)
        TextBonsai(classifier=Bonsai(threshold=0.5)).fit(texts.texts_train, texts.labels_train).save(path)
    for options in ({}, {"mmap": False}, {"mmap": "sealed"}, {"verify": True}):
        TextBonsai.load(path, **options).top_k(texts.texts_test, 3)
"""

SOCKETS = COMMON + 'forbidden = ("socket.",)\n' + USE + "use()\n{more}\nprint('done')"
CODE = (
    COMMON
    + USE
    + """
use()
forbidden = ("exec", "compile", "import", "pickle.", "marshal.", "ctypes.")
forbidden += ("subprocess.", "os.system", "os.exec")
{more}
use(load_only=True)
print('done')
"""
)


def outcome(code, more=""):
    return subprocess.run(
        [sys.executable, "-c", code.replace("{more}", more)], capture_output=True, text=True, timeout=300
    )


def test_nothing_opens_a_socket():
    """Neither import, nor training, saving, loading and predicting."""
    done = outcome(SOCKETS)
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_loading_runs_no_code_of_the_file():
    done = outcome(CODE)
    assert done.stdout == "done\n", done.stderr[-2000:]


@pytest.mark.parametrize(
    ("code", "more", "event"),
    [
        (SOCKETS, "import socket; socket.socket()", "socket.__new__"),
        (CODE, "import pickle; pickle.loads(pickle.dumps(pickle.Pickler))", "pickle.find_class"),
        (CODE, "eval('1')", "compile"),
    ],
)
def test_forbidden_events_are_noticed(code, more, event):
    done = outcome(code, more)
    assert done.returncode == 1 and f"forbidden: {event}" in done.stderr
