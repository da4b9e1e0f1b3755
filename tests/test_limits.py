"""Real limits of memory and of threads: an answer or a MemoryError, never the end of the process."""

import json
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
def test_little_memory_raises_memory_error_and_never_ends_the_process(outcomes):
    """A worker without room for its thread-local data must not end the process."""
    (too_much, *codes), messages = outcomes[0][:5], outcomes[1]
    assert too_much == [3]
    assert [len(row) for row in codes] == [7] * 4
    for row in codes:
        assert set(row) <= {0, 3}, messages
        assert row[-1] == 0


def test_fits_without_any_further_thread(outcomes):
    """Fewer threads, or the calling one alone, do the same work."""
    assert outcomes[0][5:] == [[0] * 4] * 3, outcomes[1]


HASHED = """
import json, os, resource, sys, tempfile, warnings
import numpy as np
import scipy.sparse as sp
from bonsai_xmc import Bonsai

warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
rng = np.random.default_rng(0)
n, n_labels, D = 200, 20, 2**31 - 1
words = np.sort(rng.choice(D, 2000, replace=False))
words[-1] = D - 1
y = rng.integers(n_labels, size=n)
columns = np.concatenate([np.sort(rng.choice(100, 10, replace=False)) + 100 * label for label in y])
Y = [[int(label), n_labels + int(i % 3)] for i, label in enumerate(y)]
def rows(columns, width):
    ones, ptr = np.ones(10 * n, np.float32), np.arange(0, 10 * n + 1, 10)
    return sp.csr_array((ones, columns, ptr), shape=(n, width))
hashed, numbered = rows(words[columns], D), rows(columns, 2000)
path = os.path.join(tempfile.mkdtemp(), "m")

def same(a, b):
    return all(map(np.array_equal, a, b))
def results(X, kind):
    model = Bonsai(threshold=0.5, n_jobs=2, **kind).fit(X, Y, keep_rows=True)
    yield model.top_k(X, 5)
    yield model.top_k(X[:1], 5)
    yield model.top_k(X, 5, restrict=[1, 2, 3, 4, 5])
    model.save(path)
    model = Bonsai.load(path, verify=True)
    yield model.top_k(X, 5)
    for label in (2, 3):
        assert model.explain(X[0], label).score >= 0
    edited = [model.drop([1]), model.restrict([1, 2, 3]), model.merge([1, 2], 3), model.rename({1: 100})]
    if kind["classifiers"] != "leaf":
        edited.append(model.learn(X[:5], [[1, 7]] * 5))
    for other in edited:
        other.save(path)
        yield Bonsai.load(path, verify=True).top_k(X, 3)

assert numbered.nnz >= numbered.shape[1] and hashed.nnz < hashed.shape[1]
for kind in json.loads(sys.argv[1]):
    for a, b in zip(results(hashed, kind), results(numbered, kind), strict=True):
        assert same(a, b), kind
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


KINDS = [
    {"classifiers": "leaf"},
    {"classifiers": "leaf", "representation": "joint"},
    {"classifiers": "one_vs_rest", "search": "exact"},
    {"classifiers": "one_vs_rest", "search": "index"},
    {"classifiers": "blend", "search": "exact"},
    {"classifiers": "blend", "search": "index"},
]


def test_memory_depends_on_the_features_that_occur():
    """Hashed features have numbers up to 2³¹ − 2. Arrays with a place for each would take 8.6 GB."""
    command = [sys.executable, "-c", HASHED, json.dumps(KINDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 400
