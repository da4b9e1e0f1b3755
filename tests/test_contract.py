"""The contract of every kind of fitted model, by any method of ranking labels."""

import copy
import json
import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bonsai_xmc
from bonsai_xmc import TextBonsai, metrics
from bonsai_xmc._model.linear import LinearRanker
from helpers import says
from kinds import KINDS, MADE, case_of, nothing_in, vectors_of


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    """Return a fitted model of each kind; not to be changed."""
    return case_of(request.param)


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind not in MADE])
def trained(request):
    """Return a fitted model of each kind that a call of `fit` makes; not to be changed."""
    return case_of(request.param)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def n_labels(case):
    return len(case.model.classes_)


# --- rankings ---


def test_top_k_gives_distinct_labels_by_descending_score(case):
    ids, scores = case.model.top_k(case.X, 7)
    assert ids.shape == scores.shape == (len(case.Y), 7)
    assert (ids.dtype, scores.dtype) == (np.int32, np.float32)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (scores[ids < 0] == 0).all()
    for row in ids:
        found = row[row >= 0]
        assert len(set(found.tolist())) == len(found)
        assert found.max(initial=0) < n_labels(case)
        assert (row[len(found) :] == -1).all()
    calibrated = case.model.calibration_ is not None
    assert calibrated or (np.diff(scores, axis=1) <= 0).all()


def test_top_k_pads_beyond_the_number_of_labels(case):
    n = n_labels(case)
    ids, scores = case.model.top_k(case.X, n + 3)
    assert ids.shape == (len(case.Y), n + 3)
    assert (ids[:, n:] == -1).all() and (scores[:, n:] == 0).all()


@pytest.mark.parametrize("k", [0, -1])
def test_top_k_rejects_k_below_one(case, k):
    with says(f"k is {k}, but must be at least 1"):
        case.model.top_k(case.X, k)


@pytest.mark.parametrize("k", [1.5, "5", True, None])
def test_top_k_rejects_what_is_no_integer(case, k):
    with says(f"k is {k!r}, but must be an integer"):
        case.model.top_k(case.X, k)


def test_a_row_alone_is_ranked_as_among_others(case):
    together = case.model.top_k(case.X, 5)
    for i in (0, 3, 17):
        row = [case.X[i]] if isinstance(case.X, list) else case.X[[i]]
        assert same(case.model.top_k(row, 5), [part[[i]] for part in together])


def test_threads_make_no_difference(case):
    other = copy.deepcopy(case.model)
    other.classifier_.n_jobs = 3
    assert same(other.top_k(case.X, 5), case.model.top_k(case.X, 5))


def test_a_shorter_ranking_is_the_beginning_of_a_longer_one_if_all_labels_are_scored(case):
    long = case.model.top_k(case.X, 8, exact=True)
    assert same(case.model.top_k(case.X, 3, exact=True), [part[:, :3] for part in long])


def test_a_row_without_features_is_no_error(case):
    ids, scores = case.model.top_k(nothing_in(case.X), 4)
    assert ids.shape == (1, 4) and np.isfinite(scores).all()


def test_restrict_and_exclude_filter_the_ranking(case):
    model, n = case.model, n_labels(case)
    allowed = np.arange(n) % 3 != 1
    labels = model.classes_[allowed].tolist()
    options = {"exact": True}
    ids, _ = model.top_k(case.X, n, **options)
    kept, _ = model.top_k(case.X, n, restrict=labels, **options)
    expected = [row[(row >= 0) & allowed[row]] for row in ids]
    assert all(np.array_equal(row[row >= 0], e) for row, e in zip(kept, expected, strict=True))
    left, _ = model.top_k(case.X, n, exclude=model.classes_[~allowed].tolist(), **options)
    assert np.array_equal(left, kept)


def test_restrict_to_unknown_labels_alone_is_an_error(case):
    unknown = "nothing like it" if case.model.fitted_.labels.named else 10**6
    with says("restrict: the model has none of these labels"):
        case.model.top_k(case.X, 1, restrict=[unknown])


# --- scikit-learn's methods ---


def test_labels_are_predicted_from_the_threshold_on(case):
    model = case.model
    threshold = model.classifier_.threshold
    threshold = model.threshold_ if threshold == "auto" else threshold
    ids, scores = model.top_k(case.X, min(100, n_labels(case)))
    predicted = model.predict(case.X)
    assert predicted.shape == (len(case.Y), n_labels(case))
    for row, (labels, values) in enumerate(zip(ids, scores, strict=True)):
        wanted = set(labels[(labels >= 0) & (values >= threshold)].tolist())
        got = set(predicted.indices[predicted.indptr[row] : predicted.indptr[row + 1]].tolist())
        assert wanted <= got if model.calibration_ is not None else wanted == got


def test_probabilities_and_decisions_have_the_order_of_top_k(case):
    ids, scores = case.model.top_k(case.X, 6)
    for values in (case.model.predict_proba(case.X), case.model.decision_function(case.X)):
        assert sp.issparse(values) and values.shape == (len(case.Y), n_labels(case))
        dense = values.toarray()
        best = np.take_along_axis(dense, np.maximum(ids, 0), axis=1)
        best[ids < 0] = 0
        calibrated = case.model.calibration_ is not None
        assert calibrated or (np.diff(best, axis=1) <= 1e-7).all()
    found = ids >= 0
    rows = np.nonzero(found)[0]
    given = case.model.predict_proba(case.X).toarray()[rows, ids[found]]
    assert np.allclose(given, scores[found], atol=1e-6)


def test_score_is_precision_at_one(case):
    ids, _ = case.model.top_k(case.X, 1)
    labels = case.model.classes_[np.maximum(ids[:, 0], 0)].tolist()
    hits = [i >= 0 and label in row for i, label, row in zip(ids[:, 0], labels, case.Y, strict=True)]
    assert case.model.score(case.X, case.Y) == pytest.approx(np.mean(hits))


def test_a_clone_is_not_fitted(case):
    other = clone(case.model)
    with pytest.raises(NotFittedError):
        other.top_k(case.X, 1)
    names = [name for name in case.model.get_params(deep=False) if name != "classifier"]
    assert all(getattr(other, name) is not ... for name in names)


def test_metrics_take_the_model(case):
    Y = case.Y
    found = metrics.evaluate(Y, case.model.top_k_labels(case.X, 5), k=(1, 5))
    assert found["P@1"] == pytest.approx(100 * case.model.score(case.X, Y), abs=1e-6)


# --- copies and files ---


@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_predict_the_same(case, way):
    assert same(way(case.model).top_k(case.X, 5), case.model.top_k(case.X, 5))


@pytest.mark.parametrize("mmap", [True, False])
def test_a_model_from_its_file_is_equal(case, tmp_path, mmap):
    path = tmp_path / "model.bonsai"
    case.model.save(path)
    given = {"encoder": vectors_of} if case.model.fitted_.encoded is not None else {}
    again = bonsai_xmc.load(path, mmap=mmap, verify=True, **given)
    assert type(again) is type(case.model)
    assert again.classes_.tolist() == case.model.classes_.tolist()
    assert again.threshold_ == case.model.threshold_
    assert same(again.top_k(case.X, 5), case.model.top_k(case.X, 5))
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert same(type(case.model).load(path, **given).top_k(case.X, 3), case.model.top_k(case.X, 3))


def test_the_wrong_class_refuses_the_file(case, tmp_path):
    path = tmp_path / "model.bonsai"
    case.model.save(path)
    others = {
        bonsai_xmc.Bonsai,
        bonsai_xmc.Fusion,
        TextBonsai,
        *map(bonsai_xmc.systems.system, bonsai_xmc.systems.SYSTEMS),
    }
    for other in others - {type(case.model)}:
        with pytest.raises(ValueError, match=re.escape(str(path))):
            other.load(path)


def test_a_damaged_file_is_refused(case, tmp_path):
    path = tmp_path / "model.bonsai"
    case.model.save(path)
    data, rng = bytearray(path.read_bytes()), np.random.default_rng(0)
    for at in [len(data) - 20, *rng.integers(len(data), size=20)]:
        changed = data.copy()
        changed[at] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        with pytest.raises(bonsai_xmc.FormatError):
            bonsai_xmc.load(path, verify=True)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(bonsai_xmc.FormatError):
        bonsai_xmc.load(path)


# --- training ---


def test_fit_gives_the_same_bytes_for_any_number_of_threads(trained, tmp_path):
    saved = []
    for n_jobs in (1, 3):
        other = clone(trained.unfitted)
        other.set_params(**{"classifier__n_jobs" if isinstance(other, TextBonsai) else "n_jobs": n_jobs})
        other.fit(trained.X_train, trained.Y_train).save(tmp_path / "model")
        saved.append((tmp_path / "model").read_bytes())
    assert saved[0] == saved[1]


def test_a_fit_that_fails_leaves_the_model_as_it_was(trained):
    model = copy.copy(trained.model)
    before = model.top_k(trained.X, 3)
    with pytest.raises(ValueError, match="rows"):
        model.fit(trained.X_train, trained.Y_train[:-1])
    assert same(model.top_k(trained.X, 3), before)


def test_fit_shows_progress(trained):
    seen = []
    clone(trained.unfitted).fit(trained.X_train, trained.Y_train, progress=lambda *call: seen.append(call))
    assert seen and all(done <= total or total == 0 for _, done, total in seen)


def test_what_progress_raises_ends_the_fit(trained):

    def stop(*_):
        raise KeyboardInterrupt

    model = clone(trained.unfitted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(trained.X_train, trained.Y_train, progress=stop)
    with pytest.raises(NotFittedError):
        model.top_k(trained.X, 1)


# --- labels ---


def test_dropped_labels_are_gone_and_others_stay(case):
    model = case.model
    gone = model.classes_[[2, 5]].tolist()
    other = model.drop(gone)
    assert other.classes_.tolist() == [label for label in model.classes_.tolist() if label not in gone]
    n = len(other.classes_)
    kept, _ = other.top_k(case.X, n, exact=True)
    expected, _ = model.top_k(case.X, n, exact=True, exclude=gone)
    for row, wanted in zip(kept, expected, strict=True):
        mine = other.classes_[row[row >= 0]].tolist()
        theirs = model.classes_[wanted[wanted >= 0]].tolist()
        assert mine == theirs


def test_renamed_labels_keep_their_place(case):
    model = case.model
    new = "another name" if model.fitted_.labels.named else 10**6
    old = model.classes_[-1]
    other = model.rename({old: new})
    assert new in other.classes_.tolist() and old not in other.classes_.tolist()
    assert same(other.top_k(case.X, 5)[1:], model.top_k(case.X, 5)[1:])


def test_labels_can_have_names(case, tmp_path):
    label = case.model.classes_[1]
    named = case.model.name_labels({label: "A name"})
    assert named.label_names_[1] == "A name"
    named.save(tmp_path / "m")
    assert bonsai_xmc.load(tmp_path / "m").label_names_[1] == "A name"
    assert named.drop([case.model.classes_[0]]).label_names_[0] == "A name"


def test_calibration_keeps_the_order(case):
    model = case.model.calibrate(case.X, case.Y)
    assert np.array_equal(model.top_k(case.X, 5)[0], case.model.top_k(case.X, 5)[0])
    assert 0 <= model.threshold_ <= 1


# --- explanations ---


def test_a_prediction_is_explained_or_refused_in_words(case):
    row = case.X[0] if isinstance(case.X, list) else case.X[[0]]
    label = case.model.top_k_labels([row] if isinstance(row, str) else row, 1)[0][0][0]
    try:
        why = case.model.explain(row, label)
    except ValueError as error:
        assert not isinstance(case.model.fitted_.ranker, LinearRanker)
        assert len(str(error)) > 20
        return
    assert why.rank == 1
    assert json.dumps(why.to_dict())
    assert str(label) in why.to_text() or why.name in why.to_text()
    assert why.to_html().count("<section") == why.to_html().count("</section>") == 1


def test_an_unknown_label_is_named(case):
    row = case.X[0] if isinstance(case.X, list) else case.X[[0]]
    with says("the model has no label 'no such label'"):
        case.model.explain(row, "no such label")
