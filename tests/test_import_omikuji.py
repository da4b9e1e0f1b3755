"""Models that omikuji wrote become ours: by hand-made files, and by omikuji itself where it is at hand."""

import json
import struct
import subprocess

import numpy as np
import pytest
from scipy.sparse import csr_array

import omikuji_calls
from bonsai_xmc import Bonsai, FormatError, _cli, _core
from bonsai_xmc.compat import omikuji
from bonsai_xmc.compat._omikuji_files import load_omikuji
from test_compat_omikuji import N_FEATURES, N_LABELS, PEERS, write_data


def cbor(value):
    """CBOR of dicts, lists, text, integers and floats, which have 16 bits where that is exact."""

    def head(major, n):
        for low, kind in ((24, "B"), (25, ">H"), (26, ">I"), (27, ">Q")):
            if n < 24:
                return bytes([major << 5 | n])
            if n < 1 << (8 << (low - 24)):
                return bytes([major << 5 | low]) + struct.pack(kind, n)
        raise OverflowError

    if isinstance(value, dict):
        return head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, float):
        if struct.unpack(">e", struct.pack(">e", value))[0] == value:
            return b"\xf9" + struct.pack(">e", value)
        return b"\xfa" + struct.pack(">f", value)
    return head(0, value)


def sparse(matrix):
    rows = np.flatnonzero(matrix.any(axis=1))
    picked = csr_array(matrix[rows])
    return {"Sparse": {
        "outer_dim": matrix.shape[0], "inner_dim": matrix.shape[1], "indptr": picked.indptr.tolist(),
        "outer_inds": rows.tolist(), "inner_inds": picked.indices.tolist(), "data": picked.data.tolist(),
    }}  # fmt: skip


def dense(matrix):
    return {"Dense": {"v": 1, "dim": list(matrix.shape), "data": matrix.ravel().tolist()}}


def write_model(folder, trees, n_features, loss="Hinge"):
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(
        json.dumps({"n_features": n_features, "classifier_loss_type": loss})
    )
    for i, tree in enumerate(trees):
        (folder / f"tree{i}.cbor").write_bytes(cbor(tree))
    return folder


N = 300  # features


def random_matrix(rng, n_classes):
    """Weights that 8 bits hold exactly: 0 or one value for each class; and biases."""
    matrix = np.zeros((N + 1, n_classes))
    for cls in range(n_classes):
        size = float(rng.choice([0.3, 1.7, 2.0, 0.5]))
        used = rng.choice(N, 40, replace=False)
        matrix[used, cls] = np.float32(size) * rng.choice([-1, 1], 40)
    matrix[N] = np.float32(rng.uniform(-1, 1, n_classes))
    return matrix


def random_tree(rng, encode):
    """A tree over the labels 0 … 399 in 3 leaves of 150, 200 and 50, and the same as matrices."""
    labels = rng.permutation(400)
    parts = [labels[:150], labels[150:350], labels[350:]]
    root, leaves = random_matrix(rng, 3), [random_matrix(rng, len(part)) for part in parts]
    children = [
        {"Leaf": {"weights": encode(leaf), "labels": part.tolist()}}
        for leaf, part in zip(leaves, parts, strict=True)
    ]
    return {"Branch": {"weights": encode(root), "children": children}}, (root, leaves, parts)


def scores_of(matrices, row, loss):
    root, leaves, parts = matrices
    with_bias = np.append(row / np.linalg.norm(row), 1.0)
    log_score = (
        (lambda m: -(np.maximum(0, 1 - m) ** 2)) if loss == "Hinge" else (lambda m: -np.log1p(np.exp(-m)))
    )
    result = np.zeros(400)
    for at, (leaf, part) in enumerate(zip(leaves, parts, strict=True)):
        path = log_score(with_bias @ root)[at]
        result[part] = np.exp(path + log_score(with_bias @ leaf))
    return result


@pytest.mark.parametrize("loss", ["Hinge", "Log"])
@pytest.mark.parametrize("encode", [sparse, dense])
def test_scores_by_hand(tmp_path, loss, encode):
    rng = np.random.default_rng(0)
    made = [random_tree(rng, encode) for _ in range(2)]
    model = load_omikuji(str(write_model(tmp_path / "m", [tree for tree, _ in made], N, loss)))
    rows = rng.uniform(0, 1, (5, N)) * (rng.uniform(size=(5, N)) < 0.1)
    ids, scores = model.set_params(beam_size=3).top_k(csr_array(rows), 400)
    for row, found, values in zip(rows, ids, scores, strict=True):
        expected = np.mean([scores_of(matrices, row, loss) for _, matrices in made], axis=0)
        assert np.allclose(values, expected[found], atol=1e-4)
        assert np.allclose(np.sort(values)[::-1], np.sort(expected)[::-1], atol=1e-4)


def test_the_file_that_is_written(tmp_path, capsys):
    rng = np.random.default_rng(1)
    folder = write_model(tmp_path / "m", [random_tree(rng, sparse)[0] for _ in range(3)], N)
    names = tmp_path / "names"
    names.write_text("".join(f"label {i}\n" for i in range(450)))
    out = tmp_path / "m.bonsai"
    assert _cli.main(["import", str(folder), "-o", str(out), "--label-names", str(names)]) == 0
    assert "3 trees, 450 labels, 300 features" in capsys.readouterr().out
    model = Bonsai.load(out, verify=True)
    assert (model.classes_[7], model.strategy_.reason, len(model.trees_)) == (
        "label 7",
        "trained by omikuji",
        3,
    )
    row = csr_array(rng.uniform(0, 1, (1, N)))
    plain = load_omikuji(str(folder))
    assert [int(label.removeprefix("label ")) for label, _ in model.top_k_labels(row)[0]] == plain.top_k(row)[
        0
    ][0].tolist()
    assert _cli.main(["import", str(folder), "-o", str(out), "--n-labels", "400", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == 400
    assert omikuji.Model.load(str(folder)).n_trees == 3


LEAF = {"Leaf": {"weights": sparse(np.eye(N + 1, 2)), "labels": [0, 6]}}


def wrong(change):
    """A tree of one leaf, changed."""
    leaf = {"weights": sparse(np.eye(N + 1, 2)), "labels": [0, 1]}
    change(leaf)
    return cbor({"Leaf": leaf})


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"\xa1", b"\xbf" * 10, b"\x9b" + b"\xff" * 8, b"\x7a\xff\xff\xff\xff", b"\x81" * 5000,
        cbor({"Leaf": {}}), cbor([1, 2]), cbor({"Branch": {"weights": {}, "children": []}}),
        wrong(lambda leaf: None)[:-3], wrong(lambda leaf: None) + b"\x00",
        wrong(lambda leaf: leaf.update(labels=[])), wrong(lambda leaf: leaf.update(labels=[0, 1, 2])),
        wrong(lambda leaf: leaf.update(labels=[0, 2**40])),
        wrong(lambda leaf: leaf.update(labels=["a", "b"])),
        wrong(lambda leaf: leaf["weights"]["Sparse"].update(indptr=[0, 5])),
        wrong(lambda leaf: leaf["weights"]["Sparse"].update(inner_inds=[0, 9])),
        wrong(lambda leaf: leaf["weights"]["Sparse"].update(outer_inds=[0, 900])),
        wrong(lambda leaf: leaf["weights"]["Sparse"].update(data=[1.0, float("inf")])),
        wrong(lambda leaf: leaf["weights"]["Sparse"].update(outer_dim=7)),
        wrong(lambda leaf: leaf.update(weights=dense(np.ones((2, 2))))),
    ],
)  # fmt: skip
def test_damaged_trees_are_refused(tmp_path, data):
    folder = write_model(tmp_path / "m", [], N)
    (folder / "tree0.cbor").write_bytes(data)
    with pytest.raises(FormatError, match=r"tree0\.cbor"):
        load_omikuji(str(folder))
    with pytest.raises(RuntimeError, match="Failed to load model"):
        omikuji.Model.load(str(folder))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda folder: None, [], "not a folder"),
        (lambda folder: folder.mkdir(), [], "has no settings.json"),
        (lambda folder: write_model(folder, [], N), [], "no file tree0.cbor"),
        (lambda folder: write_model(folder, [], N, "Other"), [], "omikuji 0.5"),
        (lambda folder: write_model(folder, [LEAF], N), ["--n-labels", "3"], "has the label 6, but only 3"),
    ],
)  # fmt: skip
def test_wrong_usage(tmp_path, capsys, make, options, message):
    make(tmp_path / "m")
    assert _cli.main(["import", str(tmp_path / "m"), "-o", str(tmp_path / "out"), *options]) == 1
    assert message in capsys.readouterr().err


def test_packing_checks_what_it_gets():
    bias, ptr = np.zeros(2, np.float32), np.array([0, 1, 2])
    feature, value = np.array([3, 4], np.uint32), np.ones(2, np.float32)
    for arguments in (
        (bias, ptr[:2], feature, value, 10), (bias, ptr + 1, feature, value, 10),
        (bias, ptr, feature, value[:1], 10), (bias, np.array([0, 3, 2]), feature, value, 10),
        (bias, ptr, feature, value, 4), (bias, np.array([0, 2, 2]), feature[::-1].copy(), value, 10),
        (bias * np.nan, ptr, feature, value, 10),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            _core.pack_node(*arguments)


@pytest.fixture(scope="module")
def peer_models(tmp_path_factory):
    if (
        subprocess.run([PEERS, "-c", "import omikuji"], capture_output=True).returncode
        if PEERS.exists()
        else True
    ):
        pytest.skip(f"{PEERS} has no omikuji: run `make bench`, or name a Python that has it in BONSAI_PEERS")
    folder = tmp_path_factory.mktemp("models")
    write_data(folder)
    done = subprocess.run(
        [PEERS, omikuji_calls.__file__, folder, "models"], capture_output=True, text=True, check=True
    )
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_models_of_omikuji_itself(peer_models):
    folder, predictions = peer_models
    rows = [pairs for _, pairs in omikuji_calls.rows_of(folder / "train.txt")]
    X = csr_array((len(rows), N_FEATURES)).tolil()
    for i, pairs in enumerate(rows):
        for feature, value in pairs:
            X[i, feature] = value
    for name, expected in predictions.items():
        model = load_omikuji(str(folder / name), N_LABELS)
        found = model.top_k_labels(X.tocsr(), 5)
        best = [a[0][0] == b[0][0] for a, b in zip(found, expected, strict=True)]
        near = [abs(a[0][1] - b[0][1]) < 0.02 for a, b in zip(found, expected, strict=True)]
        assert np.mean(best) >= 0.99, name
        assert np.mean(near) >= 0.99, name
        assert len(omikuji.Model.load(str(folder / name)).predict(rows[0], top_k=5)) == 5
