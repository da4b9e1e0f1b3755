"""Real limits of memory and of threads: an answer or a MemoryError, never the end of the process."""

import os
import subprocess
import sys

import pytest

COMMON = """
import os, resource, sys, tempfile
import numpy as np
import scipy.sparse as sp
from bonsai_xmc import Bonsai, datasets

data = datasets.make_xmc(
    n_rows=200, n_test=200, n_features=400, n_labels=100, features_per_row=15, random_state=0
)
def model(classifiers, n_jobs=4):
    return Bonsai(classifiers=classifiers, threshold=0.5, n_jobs=n_jobs)
fitted = {kind: model(kind, 1).fit(data.X_train, data.Y_train) for kind in ("leaf", "one_vs_rest")}
expected = {kind: fitted[kind].top_k(data.X_test, 50)[0] for kind in fitted}
many = sp.vstack([data.X_test] * 30, format="csr")
folder = tempfile.TemporaryDirectory()
os.chmod(folder.name, 0o777)
path = os.path.join(folder.name, "m")

def fit(kind):
    found = model(kind).fit(data.X_train, data.Y_train).top_k(data.X_test, 50)[0]
    assert np.array_equal(found, expected[kind])
def predict(kind):
    found = fitted[kind].set_params(n_jobs=4).top_k(many, 50)[0]
    assert np.array_equal(found[-200:], expected[kind])
def keep(kind):
    fitted[kind].save(path)
    Bonsai.load(path, mmap=False)

def outcome(limit, work, kind):
    '''The exit code of a forked process: 0 for the right answer, 3 for a MemoryError.'''
    child = os.fork()
    if child == 0:
        code = 4
        try:
            limit()
            work(kind)
            code = 0
        except MemoryError:
            code = 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

MEMORY = """
def room(extra):
    def limit():
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + extra, used + extra))
    return limit

print(outcome(room(2**16), lambda kind: np.ones(2**24), None))  # the limit is real
# 64 MiB among them: what malloc sets aside for the first new thread, so that the next finds nothing
for work, kind in ((fit, "leaf"), (fit, "one_vs_rest"), (predict, "leaf"), (keep, "one_vs_rest")):
    print(*(outcome(room(2**size), work, kind) for size in range(16, 29, 2)))
"""

THREADS = """
def threads(n):
    def limit():
        if os.getuid() == 0:  # who has no such limit
            os.setresuid(54321, 54321, 54321)
        resource.setrlimit(resource.RLIMIT_NPROC, (n, n))
    return limit

for n in (0, 1, 3):
    print(*(outcome(threads(n), work, kind) for work in (fit, predict) for kind in fitted))
"""


@pytest.fixture(scope="module")
def outcomes():
    """Exit codes, a list for each line that the code prints, and what was written to standard error."""
    command = [sys.executable, "-c", COMMON + MEMORY + THREADS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [[int(code) for code in line.split()] for line in done.stdout.splitlines()], done.stderr


@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer takes terabytes of address space"
)
def test_little_memory(outcomes):
    """Once a worker without room for its thread-local data ended the process with status 127."""
    (too_much, *codes), messages = outcomes[0][:5], outcomes[1]
    assert too_much == [3]
    assert [len(row) for row in codes] == [7] * 4
    for row in codes:
        assert set(row) <= {0, 3}, messages
        assert row[-1] == 0


def test_no_threads_left(outcomes):
    """Fewer threads, or the calling one alone, do the same work. Once there was an error."""
    assert outcomes[0][5:] == [[0] * 4] * 3, outcomes[1]
