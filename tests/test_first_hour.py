"""The first hour of six kinds of new users: commands and calls after the README.

Scripts, not unit tests: each goes from data to results by the shortest way, with the mistakes that people
make on it. The command line is the real one, in a process of its own.
"""

import gzip
import json
import os
import pickle
import subprocess
import sys
import tracemalloc

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from bonsai_xmc import Bonsai, datasets, metrics
from bonsai_xmc._cli import main


@pytest.fixture(scope="module")
def library():
    """Return texts with lists of subject names, as in libraries."""
    return datasets.make_texts(1500, n_test=300, n_labels=120, random_state=0)


@pytest.fixture(scope="module")
def research(tmp_path_factory):
    """Return files of the Extreme Classification Repository, and the same data as matrices."""
    folder = tmp_path_factory.mktemp("research")
    data = datasets.make_xmc("eurlex-4k", scale=0.1, random_state=0)
    datasets.save_xc(folder / "train.txt", data.X_train, data.Y_train)
    datasets.save_xc(folder / "test.txt", data.X_test, data.Y_test)
    return folder, data


@pytest.fixture
def bonsai(tmp_path):
    """Run the command `bonsai` in an empty folder, check its exit code, and return its output."""

    def run(*line, code=0, stdin=None):
        command = [sys.executable, "-m", "bonsai_xmc", *map(str, line)]
        done = subprocess.run(command, cwd=tmp_path, input=stdin, capture_output=True, timeout=120)
        assert done.returncode == code, done.stderr.decode()
        run.error = done.stderr.decode()
        return done.stdout.decode()

    return run


def test_texts_and_subject_names_need_no_label_matrix(library, tmp_path):
    """Texts and subject names, without a matrix of labels."""
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    X, X_test = vectorizer.fit_transform(library.texts_train), vectorizer.transform(library.texts_test)
    model = Bonsai().fit(X, library.labels_train)

    (first, *_) = model.top_k_labels(X_test, k=3)
    assert [type(value) for value in first[0]] == [str, float]
    assert json.dumps(first)

    result = metrics.evaluate(library.labels_test, model.top_k_labels(X_test, k=5), library.labels_train)
    assert result["P@1"] > 60
    ids, _ = model.top_k(X_test, 5)
    again = metrics.evaluate(library.labels_test, ids, library.labels_train, classes=model.classes_)
    assert again == pytest.approx(result)
    assert model.score(X_test, library.labels_test) == pytest.approx(result["P@1"] / 100)
    with pytest.raises(ValueError, match="true labels first"):
        metrics.evaluate(model.top_k_labels(X_test, k=5), library.labels_test)

    # without tuning, the micro-F1 of predict is close to that of the best threshold
    truth = MultiLabelBinarizer(classes=model.classes_, sparse_output=True)
    truth = truth.fit_transform([set(row) & set(model.classes_) for row in library.labels_test])
    predicted = model.predict(X_test)
    scores = model.predict_proba(X_test)
    best = max(micro_f1(truth, scores >= t) for t in np.arange(0.05, 1, 0.05))
    assert micro_f1(truth, predicted) > 0.9 * best
    assert np.count_nonzero(predicted.sum(axis=1)) > 0.5 * predicted.shape[0]

    model.save(tmp_path / "catalogue.bonsai")
    loaded = Bonsai.load(tmp_path / "catalogue.bonsai")
    assert loaded.top_k_labels(X_test, k=3) == model.top_k_labels(X_test, k=3)

    # a failed refit changes nothing
    with pytest.raises(ValueError):
        model.fit(X[:5, :3], [["only"]] * 4)
    assert loaded.top_k_labels(X_test, k=3) == model.top_k_labels(X_test, k=3)


def micro_f1(truth, predicted):
    predicted = sp.csr_array(predicted).astype(int)
    hits = truth.astype(int).multiply(predicted).sum()
    return 2 * hits / (truth.sum() + predicted.sum())


def test_library_data_with_awkward_labels():
    X = sp.csr_array(np.eye(4))
    tracemalloc.start()
    model = Bonsai().fit(X, [[40_268_019], [7], [40_268_019, 7], [10**12]])  # record numbers
    assert model.top_k_labels(X, k=1)[0][0][0] == 40_268_019
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
    with pytest.raises(ValueError, match="may be an indicator matrix or lists of the labels 0 and 1"):
        Bonsai().fit(X, [[0, 1], [1, 0], [1, 1], [0, 1]])
    with pytest.raises(ValueError, match="not valid Unicode"):
        Bonsai().fit(X, [["fine"], ["\ud800"], ["fine"], ["fine"]])
    assert Bonsai().fit(X, [["a"], [np.str_("b")], ["a"], ["b"]]).classes_.tolist() == ["a", "b"]


def test_pipelines_and_searches_take_names_and_matrices(library, tmp_path):
    """Pipelines, searches, copies, with lists of names and with matrices."""
    texts, names = library.texts_train[:600], library.labels_train[:600]
    pipeline = make_pipeline(TfidfVectorizer(sublinear_tf=True), Bonsai())
    search = GridSearchCV(
        pipeline,
        {"bonsai__C": [0.01, 1.0]},
        scoring=metrics.scorer("P@1"),
        cv=KFold(3),
        error_score="raise",
    ).fit(texts, names)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"bonsai__C": 1.0}
    assert search.best_score_ == max(scores) > 0.4
    default = GridSearchCV(pipeline, {"bonsai__C": [1.0]}, cv=KFold(3), error_score="raise")
    assert default.fit(texts, names).best_score_ == pytest.approx(max(scores)), "its own score is P@1"
    sets = GridSearchCV(pipeline, {}, cv=3, error_score="raise").fit(texts, [set(row) for row in names])
    assert sets.best_score_ > 0.4

    Y = MultiLabelBinarizer().fit_transform(names)
    folds = cross_val_score(pipeline, texts, Y, cv=KFold(3), scoring=metrics.scorer("nDCG@3"))
    assert np.all(folds > 0.3)
    assert cross_val_predict(pipeline, texts, Y, cv=KFold(3)).shape == Y.shape

    X = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    model = Bonsai().fit(X, Y)
    best, _ = model.top_k(X, 1)
    assert model.decision_function(X).argmax(axis=1).ravel().tolist() == best.ravel().tolist()
    assert model.predict_proba(X).argmax(axis=1).ravel().tolist() == best.ravel().tolist()
    with pytest.raises(ValueError, match=r"Y has \d+ columns, but the model has \d+ labels"):
        model.score(X, Y[:, :-1])
    with pytest.raises(ValueError):
        model.score(X, np.hstack([Y, Y[:, :1]]))

    fitted = search.best_estimator_
    joblib.dump(fitted, tmp_path / "pipeline.joblib")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "pipeline.joblib")):
        assert np.array_equal(copy.predict_proba(texts).toarray(), fitted.predict_proba(texts).toarray())
    assert clone(fitted)[-1].get_params() == fitted[-1].get_params()
    assert not hasattr(clone(fitted)[-1], "classes_")


def test_a_hundred_thousand_labels(tmp_path, bonsai):
    """Few rows, many labels, most of them without a row; nothing that grows with rows × labels."""
    small = datasets.make_xmc(
        n_rows=5_000,
        n_test=500,
        n_features=4_000,
        n_labels=5_000,
        features_per_row=10,
        labels_per_row=2,
        random_state=0,
    )
    places = np.sort(np.random.default_rng(0).choice(100_000, 5_000, replace=False))
    Y_train, Y_test = (
        sp.csr_array((Y.data, places[Y.indices], Y.indptr), shape=(Y.shape[0], 100_000))
        for Y in (small.Y_train, small.Y_test)
    )
    data = small._replace(Y_train=Y_train, Y_test=Y_test)
    model = Bonsai()
    estimate = model.memory_estimate(data.X_train, data.Y_train)
    assert estimate["training_bytes"] < 1e9
    model.fit(data.X_train, data.Y_train)
    assert "held-out rows" in model.strategy_.reason
    ids, scores = model.top_k(data.X_test, 10)
    assert ids.shape == scores.shape == (500, 10)
    tracemalloc.start()
    result = metrics.evaluate(data.Y_test, ids, data.Y_train, k=(1, 10), by_frequency=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result["P@1"] > 15
    assert peak < 50_000_000
    assert model.predict(data.X_test).shape == (500, 100_000)

    datasets.save_xc(tmp_path / "train.txt", data.X_train, data.Y_train)
    datasets.save_xc(tmp_path / "test.txt", data.X_test, data.Y_test)
    bonsai("train", "train.txt", "-o", "m.bonsai", "-q")
    model.save(tmp_path / "python.bonsai")
    assert (tmp_path / "m.bonsai").read_bytes() == (tmp_path / "python.bonsai").read_bytes()
    line = ["evaluate", "m.bonsai", "test.txt", "-k", 1, 10, "--by-frequency", "--coverage", "--json"]
    out = json.loads(bonsai(*line))
    assert out == pytest.approx(result)
    # a header with a wrong number is an error before memory is allocated
    (tmp_path / "typo.txt").write_text("1 5 1000000000\n0 0:1\n")
    bonsai("train", "typo.txt", "-o", "typo.bonsai", code=1)
    assert "1,000,000,000 labels by the header or the largest id, but the whole file has 21" in bonsai.error


def test_command_line_and_python_give_the_same_model(research, tmp_path, bonsai, capsys, monkeypatch):
    """Train, inspect, predict and evaluate; pipes; and typing errors that must not lose data."""
    folder, data = research
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with gzip.open(tmp_path / "train.gz", "wb") as file:
        file.write((tmp_path / "train.txt").read_bytes())
    assert "ranked by" in bonsai("train", "train.txt", "-o", "m.bonsai")
    assert bonsai.error == ""
    first = (tmp_path / "m.bonsai").read_bytes()

    # the same model from every input, and from Python
    bonsai("train", "-", "-o", "piped.bonsai", "-q", stdin=(tmp_path / "train.gz").read_bytes())
    Bonsai().fit(data.X_train, data.Y_train).save(tmp_path / "python.bonsai")
    bonsai("train", "train.gz", "-o", "defaults.bonsai", "-q", "--tol=0.1", "--max-iter=20", "--normalize")
    for name in ("piped", "python", "defaults"):
        assert (tmp_path / f"{name}.bonsai").read_bytes() == first

    table = bonsai("evaluate", "m.bonsai", "test.txt")
    assert table.split()[:4] == ["@1", "@3", "@5", "P"]
    assert "n_trees" not in bonsai("info", "m.bonsai")
    bonsai("predict", "m.bonsai", "test.txt", "-k", 5, "-o", "p.txt")
    assert bonsai("evaluate", "p.txt", "test.txt", "--train", "train.txt") == table
    assert (
        bonsai("predict", "m.bonsai", "-", stdin=(tmp_path / "test.txt").read_bytes())
        == (tmp_path / "p.txt").read_text()
    )

    # errors, in this process, as each process would take a second to start
    monkeypatch.chdir(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for line, message in (
        ("train train.txt -o train.txt", "is the input train.txt; it would be overwritten"),
        ("predict m.bonsai test.txt -o m.bonsai", "is the input m.bonsai; it would be overwritten"),
        ("train test.txt train.txt -o other.bonsai", "line 1"),
        ("train m.bonsai -o other.bonsai", "m.bonsai is a model, not a file of rows"),
        ("predict test.txt m.bonsai", "test.txt is not a bonsai-xmc model"),
        (
            "train train.txt -o other.bonsai --classifiers one_vs_rest --n-trees 2",
            "n_trees=2 would have no effect",
        ),
        ("predict m.bonsai test.txt --beam-size 20", "this model has no trees to search"),
        ("evaluate p.txt test.txt -k 10", "k is 10, but p.txt has at most 5 labels in a row"),
        ("train missing.txt -o other.bonsai", "missing.txt: No such file or directory"),
    ):
        assert main(line.split()) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("bonsai: error: ")
        assert captured.err.count("\n") == 1
        assert message in captured.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_command_line_with_svmlight(research, tmp_path, bonsai):
    """Files without a header, ids from 1 as LIBLINEAR has them; queries do not use the first feature."""
    _, data = research
    X_test = data.X_test.tolil()
    X_test[:, 0] = 0
    X_test = X_test.tocsr()
    datasets.save_xc(tmp_path / "train.svm", data.X_train, data.Y_train, format="svmlight", base=1)
    datasets.save_xc(tmp_path / "test.svm", X_test, data.Y_test, format="svmlight", base=1)
    bonsai("train", "train.svm", "-o", "m.bonsai", code=1)
    assert "--base 0 or --base 1" in bonsai.error
    size = ("--n-features", data.X_train.shape[1], "--n-labels", data.Y_train.shape[1])
    bonsai("train", "train.svm", "-o", "m.bonsai", "--base", 1, *size)
    result = json.loads(bonsai("evaluate", "m.bonsai", "test.svm", "--coverage", "--json"))
    ids, _ = Bonsai().fit(data.X_train, data.Y_train).top_k(X_test, 5)
    assert result == pytest.approx(metrics.evaluate(data.Y_test, ids, data.Y_train))
    datasets.save_xc(tmp_path / "other.txt", X_test[:, :100], data.Y_test)
    bonsai("predict", "m.bonsai", "other.txt", code=1)
    assert "other.txt: there are 100 features, but m.bonsai has 500" in bonsai.error


def test_presets_and_metrics_reproduce_in_files(research, tmp_path, bonsai):
    """Presets other than the default, all metrics, predictions in files."""
    _, data = research
    systems = {"default": Bonsai()}
    systems |= {name: Bonsai.preset(name) for name in ("bonsai-i", "bonsai-o", "parabel", "dismec")}
    results = {}
    for name, model in systems.items():
        ids, scores = model.fit(data.X_train, data.Y_train).top_k(data.X_test, 5)
        results[name] = metrics.evaluate(data.Y_test, ids, data.Y_train, dataset="EURLex-4K")
        assert model.strategy_.classifiers == ("one_vs_rest" if name == "default" else "leaf")
    assert results["default"]["PSP@5"] > results["bonsai-i"]["PSP@5"]
    assert metrics.format_table(results).count("\n") == 10

    metrics.write_predictions(tmp_path / "p.txt", ids, scores, data.Y_test.shape[1])
    again = metrics.evaluate(data.Y_test, tmp_path / "p.txt", data.Y_train, dataset="eurlex-4k")
    assert again == pytest.approx(results["dismec"])
    with pytest.raises(ValueError, match="k is 5, but predictions has at most 3 labels in a row"):
        metrics.evaluate(data.Y_test, ids[:, :3])
    with pytest.raises(ValueError, match="swapped"):
        metrics.evaluate(ids, data.Y_test)
    with pytest.raises(ValueError, match="labels, but"):
        metrics.evaluate(data.Y_test[:, :-1], model.predict_proba(data.X_test), k=1)
    with pytest.raises(ValueError, match="tail_exponent needs"):
        Bonsai.preset("bonsai-i", tail_exponent=0.5).fit(data.X_train, data.Y_train)
    depth = max(
        tree.depth for tree in Bonsai.preset("bonsai-i", max_depth=2).fit(data.X_train, data.Y_train).trees_
    )
    assert depth <= 2


def test_parameters_changed_after_training(research, tmp_path):
    """Training parameters of a fitted model stay unchanged; prediction parameters are checked on use."""
    _, data = research
    model = Bonsai.preset("bonsai-i").fit(data.X_train, data.Y_train)
    ids, scores = model.top_k(data.X_test, 5)
    model.save(tmp_path / "m.bonsai")
    good = (tmp_path / "m.bonsai").read_bytes()

    for name, value in (
        ("loss", "logistic"),
        ("normalize", False),
        ("C", 100.0),
        ("classifiers", "one_vs_rest"),
    ):
        model.set_params(**{name: value})
        again = model.top_k(data.X_test, 5)
        assert np.array_equal(again[0], ids) and np.array_equal(again[1], scores)
        model.save(tmp_path / "changed.bonsai")
        loaded = Bonsai.load(tmp_path / "changed.bonsai")
        assert np.array_equal(loaded.top_k(data.X_test, 5)[0], ids)
        assert loaded.strategy_.C == 1.0 and loaded.strategy_.loss == "squared_hinge"
    assert (tmp_path / "changed.bonsai").read_bytes() == good

    for name, value in (("threshold", 7), ("beam_size", 0)):
        before = getattr(model, name)
        model.set_params(**{name: value})
        with pytest.raises(ValueError, match=f"{name} is {value}, but must be"):
            model.save(tmp_path / "m.bonsai")
        with pytest.raises(ValueError, match=name):
            model.predict(data.X_test)
        model.set_params(**{name: before})
    assert (tmp_path / "m.bonsai").read_bytes() == good
    assert sorted(os.listdir(tmp_path)) == ["changed.bonsai", "m.bonsai"]

    # set_params changes beams and thresholds
    model.set_params(beam_size=1)
    assert not np.array_equal(model.top_k(data.X_test, 5)[0], ids)
    model.set_params(beam_size=10, threshold=0.01)
    low = model.predict(data.X_test).nnz
    assert low > model.set_params(threshold=0.9).predict(data.X_test).nnz

    with pytest.raises(ValueError):
        model.set_params(C=-1.0).fit(data.X_train, data.Y_train)
    model.set_params(threshold="auto")
    assert np.array_equal(model.top_k(data.X_test, 5)[0], ids)
