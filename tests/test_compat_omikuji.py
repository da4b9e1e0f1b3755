"""omikuji's interface: recorded outcomes of omikuji 0.5.2, and omikuji itself where it is installed."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import omikuji_calls
from bonsai_xmc import Bonsai, datasets
from bonsai_xmc.compat import omikuji

PEERS = Path(os.environ.get("BONSAI_PEERS", Path(__file__).parents[1] / "build" / "peers" / "bin" / "python"))
N_ROWS, N_FEATURES, N_LABELS = 400, 200, 60


def write_data(folder):
    """Write rows: each label has three features of its own, and a random one."""
    rng = np.random.default_rng(0)
    lines = []
    for row in range(N_ROWS):
        label = row % N_LABELS
        features = sorted({3 * label, 3 * label + 1, 3 * label + 2, int(rng.integers(N_FEATURES))})
        pairs = " ".join(
            f"{feature}:{value:.3f}"
            for feature, value in zip(features, rng.uniform(0.5, 1.5, 4), strict=False)
        )
        lines.append(f"{label} {pairs}\n")
    for name, n_features in (("train.txt", N_FEATURES), ("other.txt", N_FEATURES + 1)):
        (folder / name).write_text(f"{N_ROWS} {n_features} {N_LABELS}\n" + "".join(lines))
    (folder / "bad.txt").write_text("x y\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("omikuji")
    write_data(path)
    return path


@pytest.fixture(scope="module")
def outcomes(folder):
    return omikuji_calls.calls(omikuji, str(folder))


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """Return the outcomes of the same calls in omikuji."""
    if (
        subprocess.run([PEERS, "-c", "import omikuji"], capture_output=True).returncode
        if PEERS.exists()
        else True
    ):
        pytest.skip(f"{PEERS} has no omikuji: run `make bench`, or name a Python that has it in BONSAI_PEERS")
    path = tmp_path_factory.mktemp("peer")
    write_data(path)
    done = subprocess.run([PEERS, omikuji_calls.__file__, path], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_same_outcome_of_each_call(outcomes, peer):
    ours = json.loads(json.dumps(outcomes))
    assert {name: value for name, value in ours.items() if value != peer["calls"][name]} == {}


def test_precision_and_scores_are_those_of_omikuji(folder, peer):
    ours = omikuji_calls.qualities(omikuji, str(folder))
    for name, (share, score) in ours.items():
        expected_share, expected_score = peer["qualities"][name]
        assert share > expected_share - 0.02, name
        if (
            name != "logistic"
        ):  # where omikuji's scores at nodes with few rows are higher than those of LIBLINEAR
            assert score == pytest.approx(expected_score, abs=0.05), name


# Outcomes of omikuji, for machines without it.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n_trees = -1", ["raises", "OverflowError"]),
        ("n_trees = 2.5", ["raises", "TypeError"]),
        ("max_depth = True", ["returns", 1]),
        ("cluster_balanced = 2", ["raises", "OverflowError"]),
        ("linear_c = 3", ["returns", 3.0]),
        ("unknown = 1", ["raises", "AttributeError"]),
        ("no such file", ["raises", "RuntimeError"]),
        ("not a data file", ["raises", "RuntimeError"]),
        ("training with linear_c = -1", ["raises", "RuntimeError"]),
        ("training with n_trees = 0", ["raises", "RuntimeError"]),
        ("no such model", ["raises", "RuntimeError"]),
        ("n_features", ["returns", N_FEATURES]),
        ("n_trees", ["returns", 3]),
        ("predict: descending", ["returns", [1]]),
        ("predict: a generator", ["returns", [1]]),
        ("predict: an index twice", ["raises", "AssertionError"]),
        ("predict: an index too large", ["raises", "AssertionError"]),
        ("predict: top_k 0", ["returns", []]),
        ("predict: all labels", ["returns", N_LABELS]),
        ("densify_weights", ["returns", None]),
        ("same after loading", ["returns", True]),
        ("trees after saving again", ["returns", 6]),
        ("predictions after saving again", ["returns", True]),
        ("save beside another", ["raises", "RuntimeError"]),
        ("save over a file", ["raises", "RuntimeError"]),
        ("init_logger", ["raises", "RuntimeWarning"]),
    ],
)
def test_recorded_outcomes_of_omikuji_are_as_documented(outcomes, name, expected):
    assert outcomes[name] == expected


def shape(model):
    """Count nodes of the first tree by level and number of children; leaves as (level, "leaf")."""
    tree = model._parts[0].trees_[0]
    counts = Counter()
    for node in range(tree.n_nodes):
        level = int(tree.levels[node])
        counts[(level, "leaf") if tree.is_leaf(node) else (level, len(tree.children(node)))] += 1
    return dict(counts)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"max_depth": 1}, {(1, "leaf"): 1}),
        ({"cluster_k": 1}, {(1, "leaf"): 1}),
        ({}, {(1, 2): 1, (2, 2): 2, (3, 2): 4, (4, 2): 8, (5, 2): 16, (6, "leaf"): 32}),
        ({"max_depth": 3}, {(1, 2): 1, (2, 2): 2, (3, "leaf"): 4}),
        ({"collapse_every_n_layers": 1}, {(1, 4): 1, (2, 4): 4, (3, 2): 16, (4, "leaf"): 32}),
        ({"collapse_every_n_layers": 2}, {(1, 8): 1, (2, 4): 8, (3, "leaf"): 32}),
        ({"collapse_every_n_layers": 5}, {(1, 32): 1, (2, "leaf"): 32}),
    ],
)
def test_trees_have_the_shape_of_omikujis(values, expected):
    """The shape is that in files of omikuji 0.5.2 for 2,000 labels in balanced trees."""
    labels = np.arange(4000) % 2000
    rng = np.random.default_rng(0)
    X = csr_array(
        (
            np.ones(8000),
            (
                np.repeat(np.arange(4000), 2),
                np.column_stack([labels % 600, rng.integers(600, size=4000)]).ravel(),
            ),
        ),
        (4000, 600),
    )
    Y = csr_array((np.ones(4000), (np.arange(4000), labels)), (4000, 2000))
    param = omikuji.HyperParam(n_trees=1, linear_max_iter=1, linear_eps=10, **values)
    model = omikuji.Model.train_on_features_labels(X, Y, param, 2)
    assert shape(model) == expected


def test_scores_are_those_of_bonsai(folder):
    X, Y = datasets.load_xc(folder / "train.txt")
    param = omikuji.HyperParam(cluster_k=8, cluster_balanced=False, max_depth=3, min_branch_size=6)
    model = omikuji.train_on_data(str(folder / "train.txt"), param, 1)
    same = Bonsai(
        classifiers="leaf", branching_factor=8, max_depth=3, max_leaf_size=5, prune=np.float32(0.1).item()
    ).fit(X, Y)
    row = X[[7]]
    found = model.predict(zip(row.indices.tolist(), row.data.tolist(), strict=True), top_k=5)
    ids, scores = same.top_k(row, 5)
    assert [label for label, _ in found] == ids[0].tolist()
    assert [score for _, score in found] == scores[0].tolist()


def test_the_log_names_the_hyper_parameters(folder, capfd):
    param = omikuji.HyperParam(cluster_k=1, max_depth=2, collapse_every_n_layers=42)
    omikuji.Model.train_on_data(str(folder / "train.txt"), param, 1)
    out = capfd.readouterr().out
    assert all(text in out for text in ("k: 1,", "max_depth: 2,", "collapse_every_n_layers: 42,"))


@pytest.mark.parametrize("pairs", [[], [(0, 0.0)], [(3, float("nan"))]])
def test_a_row_without_features_gets_no_labels(folder, pairs):
    model = omikuji.Model.train_on_data(str(folder / "train.txt"), omikuji.HyperParam(n_trees=1), 1)
    assert model.predict(pairs) == []


def test_wrong_input_that_ends_the_process_in_omikuji(folder, tmp_path):
    model = omikuji.Model.train_on_data(str(folder / "train.txt"), omikuji.HyperParam(n_trees=1), 1)
    with pytest.raises(AssertionError, match="Incorrect feature index"):
        model.predict([(N_FEATURES, 1.0)])
    with pytest.raises(ValueError, match="beam_size"):
        model.predict([(0, 1.0)], beam_size=0)
    (tmp_path / "none.txt").write_text("0 5 5\n")
    with pytest.raises(RuntimeError, match="Failed to"):
        omikuji.Model.train_on_data(str(tmp_path / "none.txt"))


def test_unsupported_features_raise_errors(folder):
    with pytest.raises(RuntimeError, match="tree_structure_only is not supported"):
        omikuji.Model.train_on_data(str(folder / "train.txt"), omikuji.HyperParam(tree_structure_only=True))
    with pytest.raises(TypeError, match="no parameter 'k'"):
        omikuji.HyperParam(k=3)
