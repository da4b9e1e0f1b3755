"""Model files with right checksums, but changed content: they are refused, or work as any other.

Other programs, or faulty versions, may write such files. `tests/fuzz` changes them
at random; this module has changes that need checks of their own.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai, FormatError, _core
from bonsai_xmc._cli.report import describe, rows_of, table
from bonsai_xmc._modelfile import container
from bonsai_xmc.compat._omikuji_files import load_omikuji
from helpers import text_bonsai
from kinds import case_of
from test_import_omikuji import sparse, write_model

N_FEATURES, N_LABELS = 30, 9


def rows(seed, n=40):
    rng = np.random.default_rng(seed)
    X = csr_array((rng.random((n, N_FEATURES)) < 0.2) * rng.random((n, N_FEATURES))).astype(np.float32)
    return X, [[int(label) for label in rng.choice(N_LABELS, 2, replace=False)] for _ in range(n)]


def of_texts(keep_rows=False, **params):
    words = [f"word{i % 7} other{i % 5} of {i % 3}" for i in range(30)]
    labels = [[f"a{i % 7}", f"b{i % 5}"] for i in range(30)]
    return text_bonsai(threshold=0.5, **params).fit(words, labels, keep_rows=keep_rows), words[:4]


def of_rows(calibrated=False, merged=False, named=False, keep_rows=False, **params):
    X, Y = rows(0)
    if named:
        Y = [[f"label {label}" for label in row] for row in Y]
    model = Bonsai(threshold=0.5, **params).fit(X, Y, keep_rows=keep_rows)
    if calibrated:
        model = model.calibrate(*rows(1), groups="frequency")
    if merged:
        model = model.merge([1, 2], 1).rename({0: 1000})
    return model, X[:4]


def of_omikuji():
    """Trees with a residual and a strict beam; label frequencies are unknown."""
    rng = np.random.default_rng(2)
    draw = lambda n: sparse(rng.normal(size=(N_FEATURES + 1, n)) * (rng.random((N_FEATURES + 1, n)) < 0.3))
    parts = np.split(rng.permutation(N_LABELS), [4])
    leaves = [{"Leaf": {"weights": draw(len(part)), "labels": part.tolist()}} for part in parts]
    tree = {"Branch": {"weights": draw(2), "children": leaves}}
    with tempfile.TemporaryDirectory() as folder:
        return load_omikuji(str(write_model(Path(folder), [tree, leaves[0]], N_FEATURES))), rows(0)[0][:4]


LABEL_TEXTS = {f"a{i}": f"word{i}" for i in range(7)} | {"c": "other1 word2"}
KINDS = {
    "leaf": lambda: of_rows(classifiers="leaf", branching_factor=2, max_leaf_size=2),
    "named, two trees": lambda: of_rows(classifiers="leaf", n_trees=2, named=True),
    "one-vs-rest": lambda: of_rows(classifiers="one_vs_rest", search="exact", keep_rows=True),
    "index": lambda: of_rows(classifiers="one_vs_rest", search="index", keep_rows=True),
    "blend": lambda: of_rows(classifiers="blend", search="index", keep_rows=True, calibrated=True),
    "merged": lambda: of_rows(classifiers="one_vs_rest", search="index", merged=True),
    "adjusted": lambda: of_rows(classifiers="one_vs_rest", logit_adjustment=0.5, keep_rows=True),
    "imported": of_omikuji,
    "texts": lambda: of_texts(keep_rows=True),
    "label texts": lambda: of_texts(min_df=1, classifiers="one_vs_rest", label_texts=LABEL_TEXTS),
}


# --- what a file must withstand ---


def use(model, X):
    """Do everything that users do with a model; ValueErrors are answers."""
    if not isinstance(X, list):
        X = csr_array(X[:, : model.n_features_in_])
        X = csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], model.n_features_in_))
    row = X[0] if isinstance(X, list) else X[[0]]
    label, other = model.classes_[-1], model.classes_[0]
    fresh = "new" if isinstance(label, str) else 77_777
    described = lambda: describe("m", 1, model.fitted_, model.classifier_._prediction())
    calls = [
        lambda: model.top_k(X, 3),
        lambda: model.top_k(X[:1], 3),
        lambda: model.top_k(X, 3, restrict=[label]),
        lambda: model.predict(X),
        lambda: model.explain(row, label).to_html(),
        lambda: str(model.why_not(row, other)),
        lambda: json.dumps(described()),
        lambda: table(rows_of(described())),
        lambda: model.drop([label]).top_k(X, 1),
        lambda: model.rename({label: fresh}).top_k(X, 1),
        lambda: model.merge([label, other], other).top_k(X, 1),
        lambda: model.restrict([label, other]).top_k(X, 1),
        lambda: model.learn(X[:2], [[label], [other]]).top_k(X, 1),
        lambda: [tree.summary() for tree in model.trees_],
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except ValueError:
            if number == 0:
                raise  # every model that loads must predict


def outcome_of(blob, loader, X, path, verify):
    """ "refused", "used", or what goes wrong."""
    path.write_bytes(blob)
    try:
        model = loader.load(path, verify=verify)
    except FormatError:
        return "refused"
    except Exception as error:
        return f"load: {error!r}"
    try:
        use(model, X)
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return f"{error!r} at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return "used"


def saved(kind, path):
    """The class of a model, its file, and rows for it."""
    model, X = KINDS[kind]()
    model.save(path)
    return type(model), container.loads(path.read_bytes()), X


def in_json(name, *path, value):
    def change(arrays, metadata):
        content = json.loads(metadata[name])
        holder = content
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        metadata[name] = json.dumps(content)

    return change


def in_tensor(name, make):
    return lambda arrays, metadata: arrays.__setitem__(name, make(np.array(arrays[name])))


def leaves_are_65(flags):
    return np.where(flags == 1, 65, 0).astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("leaf", in_tensor("trees.is_leaf", leaves_are_65), "the tensor trees.is_leaf has a value above 1"),
        ("leaf", in_json("params", "resolved", "n_trees", value=0), "n_trees is 0 in params, but there are"),
        ("blend", in_json("params", "resolved", "n_trees", value=7), "n_trees is 7 in params, but there are"),
        (
            "index",
            in_tensor("rows.labels", lambda a: a.reshape(-1, 1)),
            "the tensor rows.labels has 2 dimensions, but must have 1",
        ),
        (
            "index",
            in_tensor("rows.labels", lambda a: np.full_like(a, N_LABELS)),
            "the tensor rows.labels has a value above 8",
        ),
        (
            "index",
            in_json("model", "prediction", "beam_size", value=7),
            "beam_size is 7, but this model has no",
        ),
        ("texts", in_json("text", "given", value={"fields": None}), "text.given has no key 'char_ngrams'"),
        ("texts", in_json("text", "given", "word_ngrams", value={"1": "x"}), "a weight is a number"),
        (
            "texts",
            in_json("text", "given", "word_ngrams", value=2**31),
            "word_ngrams is 2147483648, but an order",
        ),
        ("texts", in_json("text", "plan", "blocks", 0, "weight", value="x"), r"blocks\[0\].weight is 'x'"),
        (
            "texts",
            in_json("text", "plan", "fields", value=[1]),
            r"text.plan.fields\[0\] is 1, but must be a text",
        ),
        ("label texts", in_json("text", "prior", "weights", value=[1]), "text.prior.weights is"),
        ("texts", lambda arrays, metadata: metadata.pop("text"), "the metadata key 'text' is missing"),
        ("blend", lambda arrays, metadata: arrays.pop("labels.counts"), "labels.counts is missing"),
    ],
)
def test_what_operations_rely_on_is_named(kind, change, message, tmp_path):
    """Otherwise drop, learn, explain or info would raise an IndexError or the like."""
    loader, file, _ = saved(kind, tmp_path / "m")
    arrays, metadata = dict(file.arrays), dict(file.metadata)
    change(arrays, metadata)
    (tmp_path / "m").write_bytes(container.dumps(arrays, metadata, file.requires))
    for verify in (False, True):
        with pytest.raises(FormatError, match=message):
            loader.load(tmp_path / "m", verify=verify)


@pytest.mark.parametrize("kind", ["leml", "fusion"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": 1}, "has no parameter 'x'"),
        ({"threshold": [1]}, "threshold is of type list, but must be"),
        ({"threshold": -1}, "threshold is -1, but must be"),
    ],
)
def test_parameters_of_prediction_in_a_file_are_checked(kind, change, message, tmp_path):
    path, model = tmp_path / "m", case_of(kind).model
    model.save(path)
    file = container.loads(path.read_bytes())
    metadata = dict(file.metadata)
    content = json.loads(metadata["model"])
    content["prediction"] |= change
    metadata["model"] = json.dumps(content)
    path.write_bytes(container.dumps(file.arrays, metadata, file.requires))
    with pytest.raises(FormatError, match=message):
        type(model).load(path)


@pytest.mark.parametrize("kind", ["one-vs-rest", "index", "blend", "adjusted", "texts", "label texts"])
def test_labels_without_a_classifier(kind, tmp_path):
    """A label that has rows may lack a one-vs-rest classifier: it is never found, and nothing fails."""
    path = tmp_path / "m"
    loader, file, X = saved(kind, path)
    old = loader.load(path).fitted_.linear.core.one_vs_rest
    n = len(old.arrays()["children"])
    for kept in (np.arange(n - 1), np.arange(1, n), np.array([n // 2])):
        structure = {
            "tree_ptr": np.array([0, 1]),
            "child_ptr": np.array([0, len(kept)]),
            "children": old.arrays()["children"][kept],
            "is_leaf": np.ones(1, np.uint8),
        }
        origins = np.zeros(len(kept), np.uint32), kept.astype(np.int64)
        fewer = _core.assemble_forest(structure, [old], *origins, old.n_labels, 1)
        arrays = file.arrays | {f"one_vs_rest.{name}": a for name, a in fewer.arrays().items()}
        if "index.levels" in arrays:
            index = _core.build_label_index(fewer, 1)
            arrays |= {f"index.{name}": a for name, a in index.arrays().items()}
        blob = container.dumps(arrays, file.metadata, file.requires)
        assert outcome_of(blob, loader, X, path, True) == "used"
