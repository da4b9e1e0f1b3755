"""Import of models of omikuji: hand-made files, and omikuji itself where it is installed."""

import json
import pickle
import struct
import subprocess

import numpy as np
import pytest
from scipy.sparse import csr_array

import omikuji_calls
from bonsai_xmc import Bonsai, FormatError, _cli, _core
from bonsai_xmc._modelfile import container
from bonsai_xmc.compat import omikuji
from bonsai_xmc.compat._omikuji_files import load_omikuji
from test_compat_omikuji import N_FEATURES, N_LABELS, PEERS, write_data


def cbor(value):
    """Return CBOR of dicts, lists, text, integers and floats, which have 16 bits where that is exact."""

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
    """Return weights of which few are large, and biases; margins stay below 1, where all scores are equal."""
    matrix = np.zeros((N + 1, n_classes))
    for cls in range(n_classes):
        used = rng.choice(N, 120, replace=False)
        sizes = np.where(rng.uniform(size=120) < 0.01, 1.6, 0.2)
        matrix[used, cls] = np.float32(sizes * rng.normal(size=120))
    matrix[N] = np.float32(rng.uniform(-1, 0, n_classes))
    return matrix


def random_tree(rng, encode, make=random_matrix):
    """Return a tree over the labels 0 … 399, and the same as nested lists: (matrix, children or labels)."""
    labels = rng.permutation(400)
    leaves = [(make(rng, len(part)), part) for part in np.split(labels, [150, 350])]
    inner = (make(rng, 2), leaves[1:])
    root = (make(rng, 2), [leaves[0], inner])

    def encoded(node):
        matrix, below = node
        if isinstance(below, list):
            return {"Branch": {"weights": encode(matrix), "children": list(map(encoded, below))}}
        return {"Leaf": {"weights": encode(matrix), "labels": below.tolist()}}

    return encoded(root), root


def searched(root, row, loss, beam_size):
    """Return scores of a tree by omikuji's beam search; 0 for labels that it does not find."""
    with_bias = np.append(row / np.linalg.norm(row), 1.0)

    def scores(matrix):
        margins = with_bias @ matrix
        return -(np.maximum(0, 1 - margins) ** 2) if loss == "Hinge" else -np.log1p(np.exp(-margins))

    level = [(0.0, root)]
    while any(isinstance(below, list) for _, (_, below) in level):
        following = []
        for path, (matrix, below) in level:
            if isinstance(below, list):
                following += zip(path + scores(matrix), below, strict=True)
            else:
                following.append((path, (matrix, below)))
        level = sorted(following, key=lambda scored: -scored[0])[:beam_size]
    found = np.zeros(400)
    for path, (matrix, labels) in level:
        of_labels = path + scores(matrix)
        best = np.argsort(-of_labels, kind="stable")[:beam_size]
        found[labels[best]] = np.exp(of_labels[best])
    return found


@pytest.mark.parametrize("beam_size", [1, 2, 10, 400])
@pytest.mark.parametrize("loss", ["Hinge", "Log"])
@pytest.mark.parametrize("n_trees", [1, 2])
def test_scores_are_those_of_omikujis_search(tmp_path, n_trees, loss, beam_size):
    rng = np.random.default_rng(0)
    made = [random_tree(rng, sparse) for _ in range(n_trees)]
    model = load_omikuji(str(write_model(tmp_path / "m", [tree for tree, _ in made], N, loss)))
    rows = rng.uniform(0, 1, (5, N)) * (rng.uniform(size=(5, N)) < 0.3)
    ids, scores = model.set_params(beam_size=beam_size).top_k(csr_array(rows), 400)
    for i, (row, found, values) in enumerate(zip(rows, ids, scores, strict=True)):
        expected = np.mean([searched(root, row, loss, beam_size) for _, root in made], axis=0)
        n = np.count_nonzero(expected)
        assert (found[n:] == -1).all() and (found[:n] >= 0).all()
        assert np.allclose(values[:n], expected[found[:n]], atol=2e-4)
        assert np.allclose(values, np.sort(expected)[::-1], atol=2e-4)
        assert np.array_equal(model.top_k(csr_array(rows[[i]]), 400)[0][0], found)


def test_dense_and_sparse_weights_predict_the_same(tmp_path):
    X = csr_array(np.random.default_rng(3).uniform(0, 1, (4, N)))
    found = []
    for encode in (sparse, dense):
        tree, _ = random_tree(np.random.default_rng(4), encode)
        found.append(load_omikuji(str(write_model(tmp_path / encode.__name__, [tree], N))).top_k(X))
    assert all(map(np.array_equal, *found))


def test_weights_are_kept(tmp_path):
    """16 bits of the largest weight of each classifier; quantised, 8 bits of the largest but one in 100."""
    tree, root = random_tree(np.random.default_rng(2), sparse)
    folder = str(write_model(tmp_path / "m", [tree], N))
    matrices = [root[0], root[1][0][0], root[1][1][0], *(leaf[0] for leaf in root[1][1][1])]
    for quantise, bits in ((False, 16), (True, 8)):
        forest = load_omikuji(folder, quantise=quantise).fitted_.linear.core.trees
        for node, matrix in enumerate(matrices):
            child, feature, value = forest.weights(node)
            order = np.argsort(forest.arrays()["children"][slice(*forest.arrays()["child_ptr"][node:][:2])])
            assert np.array_equal(order, np.arange(matrix.shape[1]))
            kept = np.zeros((N, matrix.shape[1]))
            np.add.at(kept, (feature, child), value)
            expected = matrix[:N] if node in (0, 2) else matrix[:N, np.argsort(labels_of(root, node))]
            largest = np.sort(np.abs(expected), axis=0)[-2 if quantise else -1]
            rest = np.abs(kept - expected) / largest
            rest[np.abs(expected) > largest] = 0
            assert rest.max() < 0.6 / 2 ** (bits - 1)
    assert load_omikuji(folder).fitted_.linear.core.trees.residual.arrays()["records"].size > 4 * (
        forest.residual.arrays()["records"].size
    )


def labels_of(root, node):
    return {1: root[1][0], 3: root[1][1][1][0], 4: root[1][1][1][1]}[node][1]


def test_the_file_that_is_written(tmp_path, capsys):
    rng = np.random.default_rng(1)
    folder = write_model(tmp_path / "m", [random_tree(rng, sparse)[0] for _ in range(3)], N)
    names = tmp_path / "names"
    names.write_text("".join(f"label {i}\n" for i in range(450)))
    out = tmp_path / "m.bonsai"
    assert _cli.main(["import", str(folder), "-o", str(out), "--label-names", str(names)]) == 0
    assert "3 trees, 450 labels, 300 features" in capsys.readouterr().out
    file = container.read(out)
    assert file.requires == ("labels", "strict_beam", "trees", "trees_residual")
    model = Bonsai.load(out, verify=True)
    assert (model.classes_[7], model.strategy_.reason, len(model.trees_)) == (
        "label 7",
        "trained by omikuji",
        3,
    )
    row = csr_array(rng.uniform(0, 1, (1, N)))
    plain = load_omikuji(str(folder))
    copy = pickle.loads(pickle.dumps(model))
    assert all(map(np.array_equal, copy.top_k(row), plain.top_k(row)))
    assert [int(label.removeprefix("label ")) for label, _ in model.top_k_labels(row)[0]] == plain.top_k(row)[
        0
    ][0].tolist()
    assert _cli.main(["import", str(folder), "-o", str(out), "--n-labels", "400", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == 400
    assert omikuji.Model.load(str(folder)).n_trees == 3
    small = tmp_path / "small.bonsai"
    assert _cli.main(["import", str(folder), "-o", str(small), "--quantise", "--quiet"]) == 0
    assert small.stat().st_size < 0.7 * out.stat().st_size


def test_what_omikuji_does_not_store_is_unknown(tmp_path, capsys):
    """Frequencies, rows and parameters of imported models are unknown instead of invented."""
    rng = np.random.default_rng(4)
    tree, _ = random_tree(rng, sparse)
    load_omikuji(str(write_model(tmp_path / "m", [tree], N))).save(tmp_path / "out")
    model = Bonsai.load(tmp_path / "out")
    assert model.label_counts_ is None and model.n_rows_fit_ is None
    merged = model.merge([0, 1], 1).drop([2]).rename({3: 1000})
    assert merged.label_counts_ is None
    merged.save(tmp_path / "merged")
    assert Bonsai.load(tmp_path / "merged").n_rows_fit_ is None

    def told(*command):
        assert _cli.main([*command[:1], str(tmp_path / "out"), *command[1:]]) == 0
        return capsys.readouterr()

    info = told("info").out
    assert "unknown" in info and "reason" in info and "squared_hinge" in info
    assert not {"tol", "max_iter", "branching_factor", "kmeans_tol", "prune"} & set(info.split())
    shown = json.loads(told("info", "--json").out)
    assert shown["rows"] is None and shown["labels_with_rows"] is None
    assert shown["params"].keys() <= {"beam_size", "n_probe", "max_labels", "threshold", "n_jobs"}
    assert told("labels", "--list").out.splitlines()[0] == "0\t\t–"

    data = tmp_path / "data.txt"
    rows = [f"{i},{i + 1} " + " ".join(f"{f}:1" for f in range(i, i + 9)) for i in range(40)]
    data.write_text("\n".join([f"40 {N} 400", *rows]) + "\n")
    plain = told("evaluate", str(data))
    assert "--train" in plain.err
    lines = {line.split()[0]: line.split()[1:] for line in plain.out.splitlines()[1:]}
    assert lines["PSP"] == lines["PSnDCG"] == ["–"] * 3 and "–" not in lines["P"]
    found = json.loads(told("evaluate", str(data), "--json").out)
    assert found["PSP@1"] is None and found["P@1"] is not None
    trained = told("evaluate", str(data), "--train", str(data), "--json")
    assert json.loads(trained.out)["PSP@1"] is not None and "--train" not in trained.err
    report = ["--report", str(tmp_path / "page.html"), "--json"]
    assert json.loads(told("evaluate", str(data), *report).out)["results"]["out"]["PSP@1"] is None
    with_train = told("evaluate", str(data), *report, "--train", str(data))
    assert json.loads(with_train.out)["results"]["out"]["PSP@1"] is not None
    assert _cli.main(["evaluate", str(tmp_path / "out"), str(data), "--by-frequency"]) == 1
    assert "--train" in capsys.readouterr().err


def test_files_whose_residual_or_beam_is_wrong_are_refused(tmp_path):
    folder = write_model(tmp_path / "m", [random_tree(np.random.default_rng(1), sparse)[0]], N)
    path = tmp_path / "m.bonsai"
    load_omikuji(str(folder)).save(path)
    file = container.read(path)
    arrays = dict(file.arrays)

    def refused(arrays, requires, message):
        container.write(path, arrays, file.metadata, requires)
        with pytest.raises(FormatError, match=message):
            Bonsai.load(path, verify=True)

    refused(arrays, [name for name in file.requires if name != "strict_beam"], "strict beam must be required")
    refused(arrays, [*file.requires, "tree_bark"], "newer bonsai-xmc")
    longer = {**arrays, "trees_residual.shift": np.append(arrays["trees_residual.shift"], np.uint8(0))}
    refused(longer, file.requires, "inconsistent")
    records = arrays["trees_residual.records"].copy()
    records[:50] = 255
    refused({**arrays, "trees_residual.records": records}, file.requires, "inconsistent")
    wider = _core.Forest(load_omikuji(str(folder)).fitted_.linear.core.trees.arrays(), N + 1, 400)
    with pytest.raises(ValueError, match="residual of other trees"):
        _core.Forest(wider.arrays(), N, 400, wider)


@pytest.mark.parametrize("quantise", [False, True])
def test_labels_of_imported_models_can_be_edited_and_explained(tmp_path, quantise):
    rng = np.random.default_rng(5)
    folder = write_model(tmp_path / "m", [random_tree(rng, sparse)[0] for _ in range(2)], N)
    model = load_omikuji(str(folder), quantise=quantise).set_params(beam_size=2)
    row = csr_array(rng.uniform(0, 1, (1, N)) * (rng.uniform(size=(1, N)) < 0.3))
    ids, scores = model.top_k(row, 8)
    for label, score in zip(ids[0, :4].tolist(), scores[0, :4], strict=True):
        assert model.explain(row, label).score == pytest.approx(score, rel=1e-5)
    model.set_params(beam_size=400)
    ids, scores = model.top_k(row, 8)
    dropped = model.drop(ids[0, :3].tolist())
    after_ids, after = dropped.top_k(row, 5)
    assert dropped.classes_[after_ids[0]].tolist() == ids[0, 3:].tolist()
    assert np.array_equal(after[0], scores[0, 3:])


LEAF = {"Leaf": {"weights": sparse(np.eye(N + 1, 2)), "labels": [0, 6]}}


def wrong(change):
    """Return a tree of one leaf, changed."""
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
def test_import_explains_what_is_wrong_with_a_folder(tmp_path, capsys, make, options, message):
    make(tmp_path / "m")
    assert _cli.main(["import", str(tmp_path / "m"), "-o", str(tmp_path / "out"), *options]) == 1
    assert message in capsys.readouterr().err


def test_ids_far_beyond_the_labels_of_the_leaves_need_n_labels(tmp_path, capsys):
    """Arrays over labels have an entry for each id up to the largest: 161 bytes could take 3.2 GB."""
    leaf = {"Leaf": {"weights": sparse(np.eye(N + 1, 2)), "labels": [0, 2**26 - 1]}}
    folder = str(write_model(tmp_path / "m", [leaf], N))
    with pytest.raises(FormatError, match=r"label 67,108,863, but its leaves hold 2 labels: .*--n-labels"):
        load_omikuji(folder)
    with pytest.raises(RuntimeError, match="Failed to load model"):
        omikuji.Model.load(folder)
    leaf["Leaf"]["labels"] = [0, 200_000]
    folder = str(write_model(tmp_path / "m", [leaf], N))
    command = ["import", folder, "-o", str(tmp_path / "out")]
    assert _cli.main(command) == 1
    assert "--n-labels 200001" in capsys.readouterr().err
    assert _cli.main([*command, "--n-labels", "200001"]) == 0
    assert len(load_omikuji(folder, n_labels=300_000).classes_) == 300_000
    leaf["Leaf"]["labels"] = [0, 20_000]
    assert len(load_omikuji(str(write_model(tmp_path / "m", [leaf], N))).classes_) == 20_001


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
    """In omikuji, equal scores have no order, and the order of close ones depends on rounding."""
    folder, predictions = peer_models
    rows = [pairs for _, pairs in omikuji_calls.rows_of(folder / "train.txt")]
    X = csr_array((len(rows), N_FEATURES)).tolil()
    for i, pairs in enumerate(rows):
        for feature, value in pairs:
            X[i, feature] = value
    for name, expected in predictions.items():
        found = load_omikuji(str(folder / name), N_LABELS).top_k_labels(X.tocsr(), 5)
        near = [
            np.allclose([score for _, score in a], [score for _, score in b], atol=1e-3)
            and all(abs(dict(b).get(label, b[-1][1]) - score) < 1e-3 for label, score in a)
            for a, b in zip(found, expected, strict=True)
        ]
        assert np.mean(near) >= 0.99, name
        quantised = load_omikuji(str(folder / name), N_LABELS, quantise=True).top_k_labels(X.tocsr(), 5)
        shared = [  # of those that score as the fifth, any is right
            np.mean([label in dict(b) or score > b[-1][1] - 1e-3 for label, score in a])
            for a, b in zip(quantised, expected, strict=True)
        ]
        assert np.mean(shared) >= 0.99, name
        assert len(omikuji.Model.load(str(folder / name)).predict(rows[0], top_k=5)) == 5
