"""Calibrated scores: rankings stay, maps are scikit-learn's, files hold them, every output applies them."""

import copy
import io
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from bonsai_xmc import Bonsai, FormatError, TextBonsai, datasets, metrics
from bonsai_xmc._model.calibration import DEPTH, Calibration, learn
from bonsai_xmc._modelfile import container
from bonsai_xmc._server.served import Served, rows_of
from bonsai_xmc.metrics._ranking import Truth
from helpers import error_of, says
from kinds import some

KINDS = some("leaf", "narrow beam", "exact", "index", "blend, adjusted", "logistic")


@pytest.fixture(scope="module", params=KINDS)
def model(request, generated):
    """Return a model of each kind, which tests must not change."""
    return Bonsai(threshold=0.3, n_jobs=1, **KINDS[request.param]).fit(generated.X_train, generated.Y_train)


@pytest.fixture(scope="module")
def plain(generated):
    return Bonsai(classifiers="one_vs_rest").fit(generated.X_train, generated.Y_train)


def calibrated(model, data, **options):
    return copy.copy(model).calibrate(data.X_test, data.Y_test, **options)


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_rankings_do_not_change(model, generated, method):
    """This holds for all kinds of models; with one map, sorting by scores gives the same order, too."""
    X = generated.X_test
    ids, raw = model.top_k(X, 60)
    after = calibrated(model, generated, method=method)
    now, scores = after.top_k(X, 60)
    np.testing.assert_array_equal(now, ids)
    np.testing.assert_array_equal(after.top_k(X, 3)[1], scores[:, :3])
    assert scores.dtype == np.float32 and not np.array_equal(scores, raw)
    assert ((scores > 0) == (ids >= 0)).all() and (scores <= 1).all()
    assert (np.diff(scores, axis=1)[ids[:, 1:] >= 0] < 0).all()
    proba, decision = after.predict_proba(X).toarray(), after.decision_function(X)
    order = np.argsort(-proba, axis=1)
    np.testing.assert_array_equal(np.where(ids >= 0, order, -1), ids)
    assert (decision != model.decision_function(X)).nnz == 0
    if model.search_ != "exact":
        np.testing.assert_array_equal(after.top_k(X, exact=True)[0], model.top_k(X, exact=True)[0])


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_groups_rank_by_the_raw_score(model, generated, method):
    X = generated.X_test
    after = calibrated(model, generated, method=method, groups="frequency")
    ids, scores = after.top_k(X, 20)
    np.testing.assert_array_equal(ids, model.top_k(X, 20)[0])
    assert ((scores > 0) == (ids >= 0)).all()
    group = after.fitted_.calibration._group(after.label_counts_)
    for number in range(3):
        for row, values in zip(group[ids], np.where(ids >= 0, scores, -1), strict=True):
            of_group = values[(row == number) & (values >= 0)]
            assert (np.diff(of_group) <= 0).all()


def test_groups_are_those_of_the_metrics(plain, generated):
    from bonsai_xmc.metrics._definitions import frequency_groups

    after = calibrated(plain, generated, groups="frequency").fitted_
    expected = frequency_groups(plain.label_counts_)
    ours = after.calibration._group(plain.label_counts_)
    boundary = plain.label_counts_ == after.calibration.head_rows  # ties share a group
    np.testing.assert_array_equal(ours[~boundary], expected[~boundary])
    assert (ours[boundary] == 0).all()


@pytest.mark.parametrize("groups", [None, "frequency"])
@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_maps_are_those_of_scikit_learn(plain, generated, method, groups):
    """Scores are compared pair by pair, in a plain loop over the groups."""
    X, Y = generated.X_test, generated.Y_test.toarray()
    ids, log_scores = plain._ranked(X, DEPTH)
    scores = calibrated(plain, generated, method=method, groups=groups).top_k(X, DEPTH)[1]
    right = np.take_along_axis(Y, ids, axis=1) > 0
    calibration = calibrated(plain, generated, method=method, groups=groups).fitted_.calibration
    group = calibration._group(plain.label_counts_)[ids] if groups else np.zeros(ids.shape)
    for number in np.unique(group):
        of = (group == number) & (ids >= 0)
        learnt = of if right[of].sum() >= 20 else ids >= 0
        x, y = log_scores[learnt].astype(np.float64), right[learnt]
        if method == "isotonic":
            regression = IsotonicRegression(out_of_bounds="clip").fit(x, y)
            expected = regression.predict(log_scores[of].astype(np.float64))
        else:
            regression = LogisticRegression(C=100).fit(x[:, None], y)
            expected = regression.predict_proba(log_scores[of].astype(np.float64)[:, None])[:, 1]
        np.testing.assert_allclose(scores[of], np.clip(expected, 1e-6, 1), rtol=1e-4, atol=1e-6)


def test_scores_estimate_how_often_labels_are_right():
    """They are measured on rows that are neither in training nor in calibration."""
    data = datasets.make_xmc(
        n_rows=1500, n_test=1200, n_features=400, n_labels=80, features_per_row=12, labels_per_row=2.5
    )
    model = Bonsai(threshold=0.5).fit(data.X_train, data.Y_train)
    learn_on, test = slice(0, 600), slice(600, None)

    def error():
        return metrics.reliability(data.Y_test[test], *model.top_k(data.X_test[test], 5)).error

    before = error()
    for method in ("isotonic", "platt"):
        model = model.calibrate(data.X_test[learn_on], data.Y_test[learn_on], method=method)
        assert error() < 0.5 * before
        found = model.calibration_
        assert found["error_before"] == pytest.approx(before, abs=0.03)
        assert found["error_after"] == pytest.approx(error(), abs=0.03)
        assert (found["method"], found["groups"], found["n_rows"]) == (method, None, 600)


def test_calibrating_chooses_the_threshold_again(plain, generated):
    X, Y = generated.X_test, generated.Y_test
    after = calibrated(plain, generated)
    assert after.threshold_ == after.choose_threshold(X, Y) != plain.threshold_
    scores = after.predict_proba(X)
    assert after.predict(X).nnz == (scores.data >= after.threshold_).sum()
    after.set_params(threshold=0.9)
    assert after.predict(X).nnz == (scores.data >= 0.9).sum()


def test_calibrating_twice_equals_once_and_fit_discards_it(plain, generated):
    once = calibrated(plain, generated)
    twice = copy.copy(once).calibrate(generated.X_test, generated.Y_test)
    np.testing.assert_array_equal(once.top_k(generated.X_test)[1], twice.top_k(generated.X_test)[1])
    assert plain.calibration_ is None
    assert clone(once).fit(generated.X_train, generated.Y_train).calibration_ is None


@pytest.mark.parametrize("groups", [None, "frequency"])
@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_saved_models_keep_their_calibration_byte_for_byte(plain, generated, tmp_path, method, groups):
    after = calibrated(plain, generated, method=method, groups=groups)
    paths = [tmp_path / name for name in ("a.bonsai", "b.bonsai")]
    after.save(paths[0])
    copy.copy(plain).set_params(n_jobs=3).calibrate(
        generated.X_test, generated.Y_test, method=method, groups=groups
    ).save(paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert "calibration" in container.read(paths[0]).requires
    expected = after.top_k(generated.X_test)[1]
    for other in (Bonsai.load(paths[0], verify=True), pickle.loads(pickle.dumps(after))):
        np.testing.assert_array_equal(other.top_k(generated.X_test)[1], expected)
        assert other.calibration_ == after.calibration_ and other.threshold_ == after.threshold_


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, a: d.update(method="magic"), "calibration.method is 'magic'"),
        (lambda d, a: d.update(groups="colour"), "calibration.groups is 'colour'"),
        (lambda d, a: d.update(tail_rows=7), "calibration.tail_rows is 7"),
        (lambda d, a: d.update(head_rows=-1), "calibration.head_rows is -1"),
        (lambda d, a: d.update(n_rows=True), "calibration.n_rows is True"),
        (lambda d, a: d.update(error_after=2), "must be a number from 0 to 1"),
        (lambda d, a: d.pop("n_rows"), "calibration has no key 'n_rows'"),
        (lambda d, a: a.update(maps=a["maps"].astype(np.float32)), "calibration.maps is float32"),
        (lambda d, a: a.update(maps=a["maps"][:, :1].copy()), "calibration.maps has the shape"),
        (lambda d, a: a.update(map_ptr=a["map_ptr"][:1]), "calibration.map_ptr does not go from 0"),
        (lambda d, a: a.update(map_ptr=a["map_ptr"] + 1), "calibration.map_ptr does not go from 0"),
        (lambda d, a: a.update(maps=a["maps"][::-1].copy()), "does not increase"),
        (lambda d, a: a.update(maps=a["maps"] + [0, 1]), "does not increase"),
        (lambda d, a: a.update(maps=a["maps"] * np.nan), "not finite"),
        (lambda d, a: d.update(method="platt"), "does not increase"),
        (lambda d, a: a.pop("maps"), "calibration.maps is missing"),
    ],
)
def test_damaged_calibrations_are_rejected_on_loading(plain, generated, tmp_path, change, message):
    path = tmp_path / "model.bonsai"
    calibrated(plain, generated).save(path)
    file = container.read(path, mmap=False)
    description = json.loads(file.metadata["calibration"])
    arrays = {
        name.removeprefix("calibration."): a
        for name, a in file.arrays.items()
        if name.startswith("calibration.")
    }
    change(description, arrays)
    others = {name: a for name, a in file.arrays.items() if not name.startswith("calibration.")}
    metadata = file.metadata | {"calibration": json.dumps(description)}
    container.write(path, others | {f"calibration.{n}": a for n, a in arrays.items()}, metadata, ["labels"])
    with says(message, FormatError):
        Bonsai.load(path)


def test_calibrate_rejects_unknown_methods_and_rows_that_do_not_match(plain, generated):
    X, Y = generated.X_test, generated.Y_test
    with says("method is 'magic'"):
        plain.calibrate(X, Y, method="magic")
    with says("groups is 'colour'"):
        plain.calibrate(X, Y, groups="colour")
    with says("X has 150 rows, but Y has 149"):
        plain.calibrate(X, Y[:149])
    with says("none of the predictions is right"):
        plain.calibrate(X, Y * 0)
    assert plain.calibration_ is None
    ranked = lambda *true: Truth(np.cumsum([0, *true]), np.arange(2)[np.array(true) > 0]).rank(
        np.array([[0], [1]]), np.array([[-0.1], [-2.0]])
    )
    with says("all predictions are right"):
        learn(ranked(1, 1), np.ones(2), "platt", None)
    with says("right less often"):
        learn(ranked(0, 1), np.ones(2), "platt", None)


def test_labels_as_lists_and_generators(generated):
    names = np.array([f"label {i}" for i in range(60)], dtype=object)
    lists = lambda Y: [names[row.nonzero()[0]].tolist() for row in Y.toarray()]
    train, test = lists(generated.Y_train), lists(generated.Y_test)
    model = Bonsai(classifiers="one_vs_rest").fit(generated.X_train, train)
    a = copy.copy(model).calibrate(generated.X_test, test)
    b = copy.copy(model).calibrate(generated.X_test, (row for row in test))
    unknown = copy.copy(model).calibrate(generated.X_test, [[*row, "never seen"] for row in test])
    assert a.threshold_ == b.threshold_ >= unknown.threshold_  # which counts as missed
    scores = [m.top_k(generated.X_test)[1] for m in (a, b, unknown)]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_a_single_row_calibrates_without_an_error_estimate(blocks):
    X, Y = blocks(n_labels=6)
    model = Bonsai(classifiers="one_vs_rest").fit(X, Y)
    assert model.calibrate(X[:1], Y[:1]).calibration_["error_after"] is None
    assert model.calibrate(X[:2], Y[:2], groups="frequency").calibration_["error_after"] is not None
    empty = X[:3] * 0
    with says("none of the predictions is right"):
        model.calibrate(empty, Y[:3])


def test_a_half_without_a_curve_of_its_own_leaves_the_error_unknown():
    # In even rows, the higher score is wrong; in all rows together, higher scores are right more often.
    ids, log_scores = np.arange(8)[:, None], np.array([[-3.0], [-0.1], [-2.0], [-0.2]] * 2)
    right = np.array([1, 1, 0, 1, 0, 1, 0, 0])
    ranking = Truth(np.cumsum([0, *right]), np.flatnonzero(right)).rank(ids, log_scores)
    found = learn(ranking, np.ones(8), "platt", None)
    assert found.maps[0][0, 0] > 0 and found.error_before is None and found.error_after is None


# --- texts, the command line, the server ---


@pytest.fixture(scope="module")
def texts():
    return datasets.make_texts(300, n_test=120, random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("calibrate")
    lines = (
        json.dumps({"text": text, "labels": labels})
        for text, labels in zip(texts.texts_test, texts.labels_test, strict=True)
    )
    (path / "dev.jsonl").write_text("\n".join(lines))
    TextBonsai(classifier=Bonsai(classifiers="one_vs_rest")).fit(texts.texts_train, texts.labels_train).save(
        path / "raw.bonsai"
    )
    return path


def test_texts_in_python_the_command_line_and_the_server_agree(texts, folder, bonsai):
    model = TextBonsai.load(folder / "raw.bonsai")
    raw = model.suggest(texts.texts_test, 5)
    model = model.calibrate(texts.texts_test, texts.labels_test)
    ours = model.suggest(texts.texts_test, 5)
    assert [[label for label, _ in row] for row in raw] == [[label for label, _ in row] for row in ours]
    out = bonsai("calibrate", "raw.bonsai", "dev.jsonl", "-o", "out.bonsai")
    assert "calibrated  isotonic, one map for all labels, learnt from 120 rows" in out
    error = model.calibration_["error_after"]
    assert f"calibration error of the five best labels: {100 * error:.2f} %, before" in out
    assert f"threshold   {model.threshold_:g}, for micro_f1" in out
    assert TextBonsai.load(folder / "out.bonsai").suggest(texts.texts_test, 5) == ours
    lines = bonsai("predict", "out.bonsai", "dev.jsonl", "--json").splitlines()
    told = [[(e["label"], e["score"]) for e in json.loads(line)["labels"]] for line in lines]
    assert told == [[(label, float(f"{score:.6g}")) for label, score in row] for row in ours]
    served = Served.load(str(folder / "out.bonsai"), 1)
    assert [[score for _, score in row] for row in rows_of(served.rank(texts.texts_test, 5))] == [
        [score for _, score in row] for row in ours
    ]
    assert "calibrated" in bonsai("info", "out.bonsai")
    assert json.loads(bonsai("info", "out.bonsai", "--json"))["calibration"] == model.calibration_


def test_options_of_the_command(texts, folder, bonsai):
    assert bonsai("calibrate", "raw.bonsai", "dev.jsonl", "-o", "p.bonsai", "--method", "platt", "-q") == ""
    line = ["calibrate", "raw.bonsai", "dev.jsonl", "-o", "g.bonsai", "--groups", "frequency", "--json"]
    found = json.loads(bonsai(*line, "--threshold", "precision=0.6"))
    model = TextBonsai.load(folder / "g.bonsai")
    X, Y = texts.texts_test, texts.labels_test
    assert found["calibration"]["groups"] == "frequency"
    assert (
        found["threshold"] == model.classifier_.threshold == model.choose_threshold(X, Y, ("precision", 0.6))
    )
    out = bonsai("calibrate", "g.bonsai", "dev.jsonl", "-o", "t.bonsai", "--method", "none",
                 "--threshold", "f1_at_5")  # fmt: skip
    again = TextBonsai.load(folder / "t.bonsai")
    assert again.calibration_ == model.calibration_
    assert again.classifier_.threshold == model.choose_threshold(X, Y, "f1_at_5")
    assert "for f1_at_5" in out
    assert "--groups needs" in error_of(
        bonsai, "calibrate", "raw.bonsai", "dev.jsonl", "-o", "x", "--method", "none", "--groups", "frequency"
    )
    assert "objective is 'f1'" in error_of(
        bonsai, "calibrate", "raw.bonsai", "dev.jsonl", "-o", "x", "--threshold", "f1"
    )
    assert "is the input" in error_of(bonsai, "calibrate", "raw.bonsai", "dev.jsonl", "-o", "raw.bonsai")


@pytest.mark.parametrize("groups", ["none", "frequency"])
def test_predict_with_a_threshold(folder, bonsai, texts, groups):
    bonsai("calibrate", "raw.bonsai", "dev.jsonl", "-o", f"{groups}.bonsai", "--groups", groups)
    model = TextBonsai.load(folder / f"{groups}.bonsai")
    for threshold, least in (("auto", model.threshold_), ("0.5", 0.5)):
        lines = bonsai(
            "predict", f"{groups}.bonsai", "dev.jsonl", "--json", "-k", "40", "--threshold", threshold
        )
        told = [{e["label"] for e in json.loads(line)["labels"]} for line in lines.splitlines()]
        model.classifier_.threshold = least
        assert told == [{model.classes_[i] for i in row.indices} for row in model.predict(texts.texts_test)]
    assert "no score reaches the threshold" in bonsai(
        "predict", f"{groups}.bonsai", texts.texts_test[0], "--threshold", "1"
    )
    assert "threshold is 3.0" in error_of(
        bonsai, "predict", f"{groups}.bonsai", texts.texts_test[0], "--threshold", "3"
    )


def test_matrices_on_the_command_line(cli_folder, monkeypatch, tmp_path, cli_data):
    from bonsai_xmc import _cli

    out = tmp_path / "out.bonsai"
    line = ["calibrate", cli_folder / "model.bonsai", cli_folder / "test.txt", "-o", out, "-q"]
    assert _cli.main([str(part) for part in line]) == 0
    model = Bonsai.load(cli_folder / "model.bonsai").calibrate(cli_data.X_test, cli_data.Y_test)
    np.testing.assert_array_equal(Bonsai.load(out).top_k(cli_data.X_test)[1], model.top_k(cli_data.X_test)[1])


# --- reliability ---


def plain_error(scores, right, n_bins):
    """Compute the error by its definition, bin by bin."""
    total = 0.0
    for b in range(n_bins):
        inside = [
            (s, r)
            for s, r in zip(scores, right, strict=True)
            if b / n_bins <= s < (b + 1) / n_bins or (b == n_bins - 1 and s == 1)
        ]
        if inside:
            mean = sum(s for s, _ in inside) / len(inside)
            share = sum(r for _, r in inside) / len(inside)
            total += len(inside) * abs(mean - share)
    return total / len(scores)


@given(st.lists(st.tuples(st.integers(0, 64), st.booleans()), min_size=1, max_size=30), st.integers(0, 4))
def test_error_against_its_definition(pairs, power):
    scores, right = [s / 64 for s, _ in pairs], [r for _, r in pairs]
    Y = np.array([[r, not r] for r in right], dtype=int)
    ids = np.zeros((len(pairs), 1), dtype=int)
    found = metrics.reliability(Y, ids, np.array(scores)[:, None], k=1, n_bins=2**power)
    assert found.error == pytest.approx(plain_error(scores, right, 2**power))
    assert found.count.sum() == len(pairs)


def test_reliability_equals_hand_computed_bins():
    Y, ids = np.array([[1, 1, 0], [0, 0, 1]]), np.array([[0, 2], [2, -1]])
    found = metrics.reliability(Y, ids, np.array([[0.9, 0.2], [0.95, 0.0]]), k=2, n_bins=10)
    assert found.score.tolist() == pytest.approx([0.2, 0.925])
    assert found.right.tolist() == [0.0, 1.0] and found.count.tolist() == [1, 2]
    assert found.error == pytest.approx((0.2 + 0.1 + 0.05) / 3)


def test_reliability_rejects_bad_input():
    Y, ids = np.array([[1, 0]]), np.array([[0]])
    for scores, message in (([[0.5, 0.1]], "ids have shape"), ([[1.5]], "from 0 to 1"), ([[np.nan]], "0 to")):
        with says(message):
            metrics.reliability(Y, ids, np.array(scores), k=1)
    with says("n_bins must be at least 1"):
        metrics.reliability(Y, ids, np.array([[0.5]]), k=1, n_bins=0)
    with says("no prediction to measure"):
        metrics.reliability(Y, np.array([[-1]]), np.array([[0.0]]), k=1)


def test_a_flat_map_leaves_the_order_to_the_last_digit():
    one = Calibration("isotonic", (np.array([[-1.0, 0.5]]),), 0, 1, None, None)
    ids = np.array([[4, 1, 3, -1]])
    scores = one.scores(ids, np.array([[-0.1, -0.1, -3.0, -np.inf]], np.float32), np.ones(5))
    assert np.argsort(-scores[0]).tolist() == [0, 1, 2, 3]
    assert scores[0, :3] == pytest.approx(0.5, abs=1e-6) and scores[0, 3] == 0


def test_rows_from_standard_input(folder, bonsai, monkeypatch):
    """Rows are read once, and used for the maps and for the threshold."""
    bonsai("calibrate", "raw.bonsai", "dev.jsonl", "-o", "file.bonsai", "--threshold", "f1_at_5")
    stream = io.TextIOWrapper(io.BytesIO((folder / "dev.jsonl").read_bytes()))
    monkeypatch.setattr("sys.stdin", stream)
    bonsai("calibrate", "raw.bonsai", "-", "-o", "pipe.bonsai", "--threshold", "f1_at_5")
    assert (folder / "file.bonsai").read_bytes() == (folder / "pipe.bonsai").read_bytes()


@pytest.mark.parametrize("objective", ["micro_f1", "f1_at_5", ("precision", 0.5)])
def test_a_threshold_takes_equal_scores_together(plain, generated, objective):
    """Where a map is flat, scores differ by the last digit, but no threshold lies between them."""
    X, Y = generated.X_test, generated.Y_test
    model = calibrated(plain, generated)
    threshold = model.choose_threshold(X, Y, objective)
    ids, log_scores = model._ranked(X, 60)
    scores = model.fitted_.scores(ids, log_scores)
    flat = model.fitted_.scores(ids, log_scores, apart=False)
    np.testing.assert_array_equal(scores >= threshold, flat >= threshold)
    assert len(np.unique(flat)) < len(np.unique(scores))


@pytest.mark.parametrize("groups", [None, "frequency"])
def test_labels_that_change_and_explanations(generated, groups):
    names = np.array([f"label {i}" for i in range(60)], dtype=object)
    lists = lambda Y: [names[row.nonzero()[0]].tolist() for row in Y.toarray()]
    model = Bonsai(classifiers="one_vs_rest", threshold=0.5).fit(generated.X_train, lists(generated.Y_train))
    model = model.calibrate(generated.X_test, lists(generated.Y_test), groups=groups)
    X = generated.X_test[:20]
    ranked = model.top_k_labels(X, 60)
    gone = {ranked[0][0][0], ranked[1][1][0]}
    for found in (model.drop(gone).top_k_labels(X, 58), model.top_k_labels(X, 60, exclude=gone)):
        for row, before in zip(found, ranked, strict=True):
            kept = [(label, score) for label, score in before if label not in gone]
            assert [label for label, _ in row] == [label for label, _ in kept]
            assert [score for _, score in row] == pytest.approx([score for _, score in kept], rel=1e-5)
    for label, score in ranked[0][:3]:
        assert model.explain(X[:1], label).score == pytest.approx(score, rel=1e-5)
