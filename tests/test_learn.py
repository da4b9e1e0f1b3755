"""`learn`: further rows for a trained model, and the training rows that a model keeps for it."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from bonsai_xmc import Bonsai, TextBonsai
from bonsai_xmc._data.labels import labels_of
from bonsai_xmc._data.rows import SparseRows
from bonsai_xmc._model.kept_rows import KeptRows
from bonsai_xmc._modelfile.schema import check_tensors
from bonsai_xmc._selection import strategy
from helpers import error_of, says
from kinds import some
from test_labels_edit import ranked, rows_and_labels

KINDS = some("exact", "index", "blend", "adjusted", "logistic")


@pytest.fixture(scope="module")
def data():
    """Labels 300 … 309 occur only in new rows, 700 … 709; row 702 has only label 302."""
    X, Y = rows_and_labels()
    order = [i for i, row in enumerate(Y) if not any(label >= "label 300" for label in row)]
    order += [i for i in range(len(Y)) if i not in set(order)]
    rows = np.array(order)
    n = sum(not any(label >= "label 300" for label in row) for row in Y) - 40
    return X[rows], [Y[i] for i in rows], n


@pytest.fixture(scope="module", params=KINDS)
def learnt(request, data):
    X, Y, n = data
    model = Bonsai(**KINDS[request.param], threshold=0.5, n_jobs=1).fit(X[:n], Y[:n], keep_rows=True)
    return model, model.learn(X[n:], Y[n:])


def test_untouched_labels_keep_their_scores(learnt, data):
    model, after = learnt
    X, Y, n = data
    untouched = set(model.classes_) - {label for row in Y[n:] for label in row}
    assert len(untouched) > 100
    assert ranked(after, X[:40], untouched) == ranked(model, X[:40], untouched)


def test_new_rows_and_labels_are_learnt(learnt, data):
    model, after = learnt
    X, Y, n = data
    assert set(after.classes_) - set(model.classes_) == {f"label {i}" for i in range(300, 310)}
    assert after.n_rows_fit_ == len(Y) == after.fitted_.rows.n_rows
    counts = dict(zip(after.classes_, after.label_counts_, strict=True))
    assert all(counts[label] == sum(label in row for row in Y) for label in after.classes_)
    known = set(model.classes_)
    hits = [
        [row[0][0] in true for row, true in zip(m.top_k_labels(X[n:], 1), Y[n:], strict=True)]
        for m in (model, after)
    ]
    assert np.mean(hits[1]) > np.mean(hits[0]) + 0.1
    old = [i for i, row in enumerate(Y[:n]) if set(row) <= known][:200]
    before, later = (m.score(X[old], [Y[i] for i in old]) for m in (model, after))
    assert later > before - 0.03


def test_it_is_as_good_as_training_again(learnt, data):
    model, after = learnt
    X, Y, n = data
    again = Bonsai(**model.get_params()).fit(X, Y)
    assert after.score(X[n:], Y[n:]) > again.score(X[n:], Y[n:]) - 0.1


def test_files_and_threads_do_not_matter(learnt, data, tmp_path):
    model, after = learnt
    X, Y, n = data
    model.save(tmp_path / "model.bonsai")
    after.save(tmp_path / "a.bonsai")
    loaded = Bonsai.load(tmp_path / "model.bonsai", verify=True).set_params(n_jobs=3)
    loaded.learn(X[n:], Y[n:]).save(tmp_path / "b.bonsai")
    assert (tmp_path / "a.bonsai").read_bytes() == (tmp_path / "b.bonsai").read_bytes()


def test_it_can_be_repeated(learnt, data):
    model, after = learnt
    X, Y, n = data
    twice = model.learn(X[n : n + 30], Y[n : n + 30]).learn(X[n + 30 :], Y[n + 30 :])
    assert sorted(twice.classes_) == sorted(after.classes_)
    assert twice.n_rows_fit_ == after.n_rows_fit_
    assert abs(twice.score(X[n:], Y[n:]) - after.score(X[n:], Y[n:])) < 0.1


def test_models_learn_after_their_labels_were_edited(learnt, data):
    model, _ = learnt
    X, Y, n = data
    a, b = Y[n][0], "label 003"
    edited = model.drop(["label 005"]).rename({"label 007": "seven"}).merge([a, b], into="both")
    new = [["both" if label in (a, b) else label for label in row] for row in Y[n:]]
    after = edited.learn(X[n:], new)
    assert after.fitted_.linear.slots is None  # the merged label was touched, and has one classifier now
    rows = [set(row) for row in Y]
    counts = dict(zip(after.classes_, after.label_counts_, strict=True))
    assert counts["both"] == sum(bool(row & {a, b}) for row in rows)
    assert "seven" in counts
    kept = after.fitted_.rows
    assert kept.label_ptr[-1] == len(kept.labels)


def test_the_optimum_is_that_of_the_reference(data, monkeypatch):
    monkeypatch.setattr(strategy, "FREQUENT_SHARE", 1.0)  # all labels have a bias of −1
    X, Y, n = data
    options = {"tol": 1e-4, "max_iter": 2000, "prune": 0.0, "tail_exponent": 0.0, "C": 0.7}
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5, **options).fit(X[:n], Y[:n], keep_rows=True)
    after = model.learn(X[n:], Y[n:])
    rows = reference.unit_rows(sp.csr_array(_matrix(after.fitted_.rows)).toarray().astype(np.float64))
    for label in sorted({label for row in Y[n:] for label in row} & set(model.classes_))[:20]:
        has = np.array([label in row for row in Y])
        prior, found = (_weights(m, label) for m in (model, after))
        y = np.where(has[n:], 1.0, -1.0)
        w = reference.solve_resumed(rows[:n][has[:n]], rows[n:], y, prior, C=0.7)
        assert np.abs(found - w).max() < np.abs(w).max() / 127 / 2 + 2e-3


def _matrix(kept):
    indptr, indices, values, n_features = kept.rows()
    return sp.csr_array((values, indices, indptr), shape=(kept.n_rows, n_features))


def _weights(model, label):
    forest = model.fitted_.linear.core.one_vs_rest
    at = np.flatnonzero(forest.arrays()["children"] == model.fitted_.labels.place[label])[0]
    children, features, values = forest.weights(0)
    dense = np.zeros(forest.n_features)
    dense[features[children == at]] = values[children == at]
    return dense


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([3, 127, 128, 20_000, 3_000_000, 2**31 - 1])
)
def test_kept_rows_are_read_back(seed, n, width):
    rng = np.random.default_rng(seed)
    X = []
    for _ in range(n):
        size = rng.integers(0, min(width, 9))
        features = np.unique(rng.integers(0, width, size)).astype(np.int32)
        X.append((features, rng.normal(size=len(features)).astype(np.float32)))
    ptr = np.concatenate([[0], np.cumsum([len(f) for f, _ in X])])
    rows = SparseRows(ptr, np.concatenate([f for f, _ in X]), np.concatenate([v for _, v in X]), width)
    kept = KeptRows.make(rows, labels_of([[0]] * n), None)
    again = KeptRows.from_arrays(kept.to_arrays(), width)
    got = again.rows()
    for i, (features, values) in enumerate(X):
        part = slice(got[0][i], got[0][i + 1])
        dense = dict(zip(got[1][part].tolist(), got[2][part].tolist(), strict=True))
        most = float(np.abs(values).max(initial=0))
        assert set(dense) <= set(features.tolist())
        for feature, value in zip(features.tolist(), values.tolist(), strict=True):
            assert dense.get(feature, 0) == pytest.approx(value, abs=most / 127 * 0.51)
    both = again + again
    assert both.n_rows == 2 * n
    assert np.array_equal(both.rows()[1], np.tile(got[1], 2))


def test_dense_rows_and_weights(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    Y = (X[:, :4] > 0.5).astype(int)
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5)
    model.fit(X[:50], Y[:50], np.full(50, 2.0), keep_rows=True)
    model.save(tmp_path / "dense.bonsai")
    after = Bonsai.load(tmp_path / "dense.bonsai").learn(X[50:], Y[50:])
    assert after.fitted_.rows.weights.tolist() == [2.0] * 50 + [1.0] * 10
    assert np.allclose(after.fitted_.rows.rows().values, X, atol=np.abs(X).max() / 120)
    assert after.score(X, Y) > 0.6
    wider = np.hstack([Y[50:], np.ones((10, 1), int)])
    assert after.learn(X[50:], wider).classes_.tolist() == [0, 1, 2, 3, 4]


def test_text_models_learn_new_labels_and_keep_names(tmp_path):
    texts = ["old brick houses", "heat pumps", "brick walls", "pumps"]
    model = TextBonsai(min_df=1, classifier=Bonsai(classifiers="one_vs_rest", threshold=0.5))
    model.fit(texts, [["bricks"], ["heat"], ["bricks"], ["heat"]], keep_rows=True)
    model = model.name_labels({"heat": "Heat"})
    after = model.learn(["old pumps", "walls of houses"], [["antiques"], ["bricks", "walls"]])
    assert "antiques" in dict(after.suggest("old pumps", 2))  # "heat" was not touched
    assert after.label_names_ == ["bricks", "Heat", "antiques", "walls"]
    assert after.n_features_in_ == model.n_features_in_


def test_models_that_cannot_learn(data):
    X, Y, _ = data
    with says("this model keeps no training rows, which learn needs; train it by fit(X, Y, keep_rows=True)"):
        Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(X[:50], Y[:50]).learn(X, Y)
    trees = Bonsai(classifiers="leaf", threshold=0.5)
    with pytest.warns(UserWarning, match="no rows are kept"):
        trees.fit(X[:50], Y[:50], keep_rows=True)
    with says("this model has only label trees"):
        trees.learn(X, Y)
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(X[:50], Y[:50], keep_rows=True)
    with says("X has 2 rows, but Y has 1; they must have the same number of rows"):
        model.learn(X[:2], [["a"]])
    with says("Y holds 3, but the labels of the model are names"):
        model.learn(X[:1], [[3]])
    with says("Y has 2 columns, but the model has"):
        model.learn(X[:1], np.array([[0, 1]]))
    with says("Y holds no label at all; there is nothing to learn"):
        model.learn(X[:1], [[]])
    with says("sample_weight holds 0; leave out the rows that must not count"):
        model.learn(X[:2], [["a"], ["b"]], [1.0, 0.0])


def test_damaged_rows_are_refused():
    rows = SparseRows(np.array([0, 2]), np.array([1, 3], np.int32), np.ones(2, np.float32), 5)
    kept = KeptRows.make(rows, labels_of([[0]]), None)
    good = kept.to_arrays()

    def check(arrays):
        tensors = {f"rows.{name}": array for name, array in arrays.items()}
        check_tensors(tensors | {"labels.counts": np.ones(1, np.int64)}, {"D": 5, "L": 1})
        return KeptRows.from_arrays(arrays, 5)

    check(good)
    wrong = {
        "values": np.ones(3, np.int8),
        "scale": np.ones(2, np.float32),
        "ptr": np.array([0, 3]),
        "labels": np.array([1], np.int32),
        "label_ptr": np.array([0, 2]),
        "features": np.array([1, 130], np.uint8),
        "weights": np.zeros(1, np.float32),
    }
    for name, array in wrong.items():
        with says("the tensor rows."):
            check({**good, name: array})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learn")
    lines = [{"text": "old brick houses", "labels": ["bricks"]}, {"text": "heat pumps", "labels": ["heat"]}]
    more = [{"text": "old heat pumps", "labels": ["antiques", "heat"]}]
    for name, rows in (("old", lines), ("new", more)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_learn_command_reports_new_rows_and_labels(bonsai):
    options = ["--classifiers", "one_vs_rest", "--min-df", "1", "-q"]
    bonsai("train", "old.jsonl", "--keep-rows", *options, "-o", "old.bonsai")
    assert "kept rows" in bonsai("info", "old.bonsai")
    said = bonsai("learn", "old.bonsai", "new.jsonl", "-o", "new.bonsai")
    assert said.startswith("new.bonsai: 1 row more, 3 in all; 1 new label, 3 in all; ")
    assert bonsai("labels", "new.bonsai") == "bricks\t\t1\nheat\t\t2\nantiques\t\t1\n"
    report = json.loads(bonsai("learn", "old.bonsai", "new.jsonl", "-o", "new.bonsai", "--json"))
    assert (report["new rows"], report["new labels"]) == (1, 1)
    bonsai("train", "old.jsonl", *options, "-o", "none.bonsai")
    assert "train it by fit(X, Y, keep_rows=True) (bonsai train --keep-rows)" in error_of(
        bonsai, "learn", "none.bonsai", "new.jsonl", "-o", "x"
    )
