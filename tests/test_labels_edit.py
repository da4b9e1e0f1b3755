"""Labels of a trained model kept, dropped, replaced, appended: compared with the scores of the old model."""

import numpy as np
import pytest
import scipy.sparse as sp

from bonsai_xmc import Bonsai
from bonsai_xmc._model.edit import NewClassifiers, edit_labels
from helpers import random_csr, says
from kinds import some

KINDS = some("exact", "index", "blend", "adjusted") | some("leaf", "one tree", beam_size=None)


def rows_and_labels(n=400, d=70, n_labels=310, integers=False):
    """Rows whose features indicate their labels, more than two blocks; label 7 is on the first row only."""
    rng = np.random.default_rng(5)
    centres = random_csr((n_labels, d), density=0.08, rng=rng, data_sampler=rng.random)
    sets = [set(rng.integers(0, n_labels, 3).tolist()) for _ in range(n)] + [{i} for i in range(n_labels)]
    Y = sp.lil_array((len(sets), n_labels))
    for i, labels in enumerate(sets):
        Y[i, sorted(labels)] = 1
    X = sp.csr_array(Y @ centres) + random_csr((len(sets), d), density=0.02, rng=rng)
    key = (lambda i: 3 * i) if integers else (lambda i: f"label {i:03}")
    return X, [[key(i) for i in sorted(labels)] for labels in sets]


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    X, Y = rows_and_labels()
    return Bonsai(**KINDS[request.param], threshold=0.5, n_jobs=1).fit(X, Y), X


@pytest.fixture(scope="module")
def one_vs_rest():
    X, Y = rows_and_labels(integers=True)
    return Bonsai(classifiers="one_vs_rest", threshold=0.5, n_jobs=1).fit(X, Y), X


def with_labels(model, **edits):
    edited = Bonsai(**model.get_params())
    edited.fitted_ = edit_labels(model.fitted_, **edits)
    core = edited.fitted_.linear.core
    for part in (core.trees, core.one_vs_rest, core.index):
        if part is not None:
            part.verify()
    return edited


def ranked(model, X, among=None):
    """Return all labels of each row with their scores, best first; or only these labels."""
    ids, scores = model.top_k(X, len(model.classes_), exact=model.search_ != "beam" or len(model.trees_) == 0)
    labels = [label if among is None or label in among else None for label in model.classes_.tolist()]
    return [
        [(labels[i], score) for i, score in zip(*row, strict=True) if i >= 0 and labels[i] is not None]
        for row in zip(ids.tolist(), scores.tolist(), strict=True)
    ]


def test_the_scores_of_the_others_stay_the_same_bits(model):
    model, X = model
    rng = np.random.default_rng(1)
    keys = [label if rng.random() < 0.6 else None for label in model.classes_]
    edited = with_labels(model, keys=keys)
    left = [label for label in keys if label is not None]
    assert edited.classes_.tolist() == left
    assert edited.label_counts_.tolist() == model.label_counts_[[key is not None for key in keys]].tolist()
    assert ranked(edited, X[:60]) == ranked(model, X[:60], set(left))


def test_one_label_is_left(model):
    model, X = model
    edited = with_labels(model, keys=[label if label == "label 007" else None for label in model.classes_])
    assert ranked(edited, X[:5]) == ranked(model, X[:5], {"label 007"})
    assert edited.fitted_.linear.core.n_labels == 1


def test_new_labels_are_found_by_their_weights(model):
    model, X = model
    new = NewClassifiers(["a new one", "zz"], sp.csr_array(X[[3, 8]]), np.float32([-1, -2]), np.array([4, 9]))
    edited = with_labels(model, new=new)
    assert edited.classes_[-2:].tolist() == ["a new one", "zz"]
    assert edited.label_counts_[-2:].tolist() == [4, 9]
    assert ranked(edited, X[:60], set(model.classes_)) == ranked(model, X[:60])
    row = X[[3]].toarray()[0]
    weights = np.round(row / row.max() * 127) * (row.max() / 127)
    margin = weights @ (row / np.linalg.norm(row)) - 1
    if edited.classifiers_ == "one_vs_rest":
        score = np.exp(-(max(0, 1 - margin) ** 2)) * 4.0**-edited.strategy_.logit_adjustment
        assert dict(ranked(edited, X[[3]])[0])["a new one"] == pytest.approx(score, rel=1e-3)
    else:
        assert dict(ranked(edited, X[[3]])[0])["a new one"] > 0


def test_replaced_labels_have_new_weights(model):
    model, X = model
    old = "label 130"
    new = NewClassifiers([old], sp.csr_array(X[[3]]) * 9, np.float32([-1]), np.array([6]))
    edited = with_labels(model, new=new)
    assert edited.classes_.tolist() == model.classes_.tolist()
    others = set(model.classes_) - {old}
    assert ranked(edited, X[:40], others) == ranked(model, X[:40], others)
    before, after = (dict(ranked(m, X[[3]])[0]).get(old, 0) for m in (model, edited))
    assert after > before
    assert edited.label_counts_[edited.classes_.tolist().index(old)] == 6


def test_nothing_changed_is_the_same_file(model, tmp_path):
    model, _ = model
    model.save(tmp_path / "old.bonsai")
    with_labels(model).save(tmp_path / "new.bonsai")
    assert (tmp_path / "old.bonsai").read_bytes() == (tmp_path / "new.bonsai").read_bytes()


def test_edited_models_are_saved_and_loaded(model, tmp_path):
    model, X = model
    keys = [None if i % 3 == 0 else label for i, label in enumerate(model.classes_)]
    new = NewClassifiers(["new"], sp.csr_array(X[[3]]), np.float32([-1]), np.array([1]))
    edited = with_labels(model, keys=keys, new=new)
    edited.save(tmp_path / "edited.bonsai")
    loaded = Bonsai.load(tmp_path / "edited.bonsai", verify=True)
    assert ranked(loaded, X[:20]) == ranked(edited, X[:20])


def test_threads_do_not_change_the_file(model, tmp_path):
    model, _ = model
    keys = [None if i % 7 == 0 else label for i, label in enumerate(model.classes_)]
    for threads in (1, 3):
        with_labels(model, keys=keys, threads=threads).save(tmp_path / f"{threads}.bonsai")
    assert (tmp_path / "1.bonsai").read_bytes() == (tmp_path / "3.bonsai").read_bytes()


def test_integer_labels_ascend(one_vs_rest):
    model, X = one_vs_rest
    keys = [5000 if label == 21 else None if label == 30 else label for label in model.classes_.tolist()]
    new = NewClassifiers([4, 2], sp.csr_array(X[[3, 4]]), np.float32([-1, -1]), np.array([1, 2]))
    edited = with_labels(model, keys=keys, new=new)
    assert edited.classes_.tolist() == sorted({*model.classes_.tolist(), 2, 4, 5000} - {21, 30})
    old = [
        [(5000 if label == 21 else label, score) for label, score in row if label != 30]
        for row in ranked(model, X[:40])
    ]
    assert [sorted(row) for row in ranked(edited, X[:40], set(edited.classes_.tolist()) - {2, 4})] == [
        sorted(row) for row in old
    ]


def test_labels_without_rows_get_a_classifier():
    X, Y = np.eye(4, 5), np.eye(4, 6, dtype=int)
    for kind in KINDS.values():
        narrow = {"branching_factor": 2} if "branching_factor" in kind else {}
        model = Bonsai(**kind | narrow, threshold=0.5).fit(X, Y)
        new = NewClassifiers([5], sp.csr_array(np.eye(5)[[4]]) * 3, np.float32([-1]), np.array([2]))
        edited = with_labels(model, new=new)
        assert edited.classes_.tolist() == list(range(6))
        assert edited.top_k_labels(np.eye(5)[[4]], 1)[0][0][0] == 5


def test_wrong_edits_are_refused(one_vs_rest):
    model, X = one_vs_rest
    weights, ones = sp.csr_array(X[:2]), np.ones(2)
    with says("there are 1 keys, but the model has 310 labels"):
        edit_labels(model.fitted_, keys=[1])
    with says("no label would be left"):
        edit_labels(model.fitted_, keys=[None] * 310)
    with says("the new labels are not all different"):
        edit_labels(model.fitted_, new=NewClassifiers([1, 1], weights, ones, ones))
    with says("the label 'a' is a name, but others are integers"):
        edit_labels(model.fitted_, new=NewClassifiers(["a", "b"], weights, ones, ones))
    with says("the weights have the shape (1, 70), but there are 2 new labels and 70 features"):
        edit_labels(model.fitted_, new=NewClassifiers([1, 2], weights[[0]], ones, ones))
    nothing = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(np.eye(3), np.eye(3, 4, dtype=int))
    with says("none of the labels that would be left has a classifier"):
        edit_labels(nothing.fitted_, keys=[None, None, None, 3])
