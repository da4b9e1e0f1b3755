"""Data that several test modules share, and the location of the real data sets."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from reproduce import known
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai, _cli, _core, datasets
from helpers import NAMES

# Real data sets next to a checkout. The package itself uses the user's data folder.
_BESIDE = Path(__file__).parents[2] / "shared" / "data"
if _BESIDE.is_dir():
    os.environ.setdefault("BONSAI_DATA", str(_BESIDE))

# The same examples in every run; `--hypothesis-seed=random` looks for new ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture
def blocks():
    """blocks(n_labels, n_rows): each label has three features of its own, so that P@1 must be exactly 1.

    A fourth feature is shared by three labels, which belong together. Rows have one label each, in turn.
    Values are 1, 2 and 3, which every numeric type holds exactly.
    """

    def make(n_labels=12, n_rows=60):
        label = np.arange(n_rows) % n_labels
        values = np.random.default_rng(0).integers(1, 4, size=(n_rows, 4))
        columns = np.column_stack([3 * label, 3 * label + 1, 3 * label + 2, 3 * n_labels + label // 3])
        indptr = np.arange(n_rows + 1)
        shape = (n_rows, 3 * n_labels + (n_labels + 2) // 3)
        X = csr_array((values.ravel().astype(np.float64), columns.ravel(), 4 * indptr), shape)
        return X, csr_array((np.ones(n_rows, np.int64), label, indptr), (n_rows, n_labels))

    return make


@pytest.fixture
def named(blocks):
    """Rows, and a list with the name of its label for each."""
    X, Y = blocks(n_labels=6)
    return X, [[NAMES[i]] for i in Y.indices]


@pytest.fixture(scope="session")
def generated():
    """A small generated data set: a long tail of labels, several of them a row, three labels without rows."""
    data = datasets.make_xmc(
        n_rows=400, n_test=150, n_features=300, n_labels=60, features_per_row=20, labels_per_row=2.5
    )
    Y = data.Y_train.tolil()
    Y[:, [3, 17, 40]] = 0
    return data._replace(Y_train=Y.tocsr())


@pytest.fixture(scope="session")
def fitted(generated):
    """A model of `generated` with trees; not to be changed."""
    return Bonsai(classifiers="leaf", branching_factor=6, beam_size=3, n_jobs=1).fit(
        generated.X_train, generated.Y_train
    )


@pytest.fixture(scope="session")
def larger():
    """Generated data of a size at which models have their usual proportions."""
    return datasets.make_xmc("eurlex-4k", scale=0.2)


@pytest.fixture
def real_data():
    """real_data(name): a data set of `known.load`; the test is skipped if it is missing."""

    def load(name):
        try:
            known.find(name)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        return known.load(name)

    return load


def instruction_sets():
    found, before = [], os.environ.get("BONSAI_ISA")
    for name in ("portable", "avx2", "avx512", "avx512vnni"):
        os.environ["BONSAI_ISA"] = name
        try:
            found.append(_core.isa())
        except ValueError:  # this machine cannot run it
            continue
    os.environ.pop("BONSAI_ISA")
    if before is not None:
        os.environ["BONSAI_ISA"] = before
    return found


@pytest.fixture(params=instruction_sets())
def isa(request, monkeypatch):
    """The test runs on each instruction set of this machine."""
    monkeypatch.setenv("BONSAI_ISA", request.param)
    assert _core.isa() == request.param
    return request.param


@pytest.fixture(scope="session")
def cli_data():
    """Data for the command line."""
    return datasets.make_xmc(
        n_rows=300,
        n_test=80,
        n_features=120,
        n_labels=40,
        features_per_row=20,
        labels_per_row=2,
        random_state=0,
    )


@pytest.fixture(scope="session")
def cli_folder(tmp_path_factory, cli_data):
    """Training and test data in several formats, and a model; not to be changed."""
    data = cli_data
    path = tmp_path_factory.mktemp("cli")
    datasets.save_xc(path / "train.txt", data.X_train, data.Y_train)
    datasets.save_xc(path / "test.txt", data.X_test, data.Y_test)
    datasets.save_xc(path / "test.svm", data.X_test, data.Y_test, format="svmlight", base=1)
    datasets.save_xc(path / "tst_X_Xf.txt.gz", data.X_test, data.Y_test, path / "tst_X_Y.txt")
    datasets.save_xc(path / "X.npz", data.X_test, data.Y_test, path / "Y.npz")
    model = Bonsai(classifiers="leaf", branching_factor=5, n_jobs=1).fit(data.X_train, data.Y_train)
    model.save(path / "model.bonsai")
    return path


@pytest.fixture
def bonsai(folder, capsysbinary, monkeypatch):
    """Runs a command in the module's `folder`; gives its standard output, after the expected exit code."""
    monkeypatch.chdir(folder)

    def run(*args, code=0):
        assert _cli.main([str(arg) for arg in args]) == code
        run.error = ""
        captured = capsysbinary.readouterr()
        run.error = captured.err.decode()
        return captured.out.decode()

    return run
