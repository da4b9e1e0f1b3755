"""Generated data sets."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

from bonsai_xmc import datasets


def one_vs_rest_precision(X_train, Y_train, X_test, Y_test):
    """Return P@1 in percent of one linear classifier for each label."""
    columns, scores = csr_array(Y_train).tocsc(), []
    for label in range(columns.shape[1]):
        y = np.zeros(columns.shape[0])
        y[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = 1
        if y.any():
            scores.append(LinearSVC(tol=0.1, max_iter=30).fit(X_train, y).decision_function(X_test))
        else:
            scores.append(np.full(X_test.shape[0], -math.inf))
    best = np.argmax(scores, axis=0)
    return 100 * csr_array(Y_test).toarray()[np.arange(len(best)), best].mean()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("shape", "scale", "seed"), [("small", 1, 0), ("small", 1, 1), ("eurlex-4k", 0.1, 0)]
)
def test_generated_matrices_are_hard_but_not_too_hard(shape, scale, seed):
    data = datasets.make_xmc(shape, scale=scale, random_state=seed)
    assert 70 <= one_vs_rest_precision(*data[:4]) <= 90


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_generated_texts_are_hard_but_not_too_hard():
    data = datasets.make_texts(3000, n_test=500, n_labels=500)
    vectorizer, binarizer = TfidfVectorizer(sublinear_tf=True), MultiLabelBinarizer(classes=data.label_names)
    x, y = vectorizer.fit_transform(data.texts_train), binarizer.fit_transform(data.labels_train)
    tests = vectorizer.transform(data.texts_test), binarizer.transform(data.labels_test)
    assert 70 <= one_vs_rest_precision(x, y, *tests) <= 90


@pytest.mark.parametrize("shape", ["small", "eurlex-4k", "wikilshtc-325k", "amazon-670k", "amazon-3m"])
def test_generated_matrices_have_the_shape(shape):
    scale = min(1, 2000 / datasets.SHAPES[shape].n_rows)
    data = datasets.make_xmc(shape, scale=scale, random_state=3)
    asked = datasets.SHAPES[shape]
    for x, y, rows in [(data.X_train, data.Y_train, asked.n_rows), (data.X_test, data.Y_test, asked.n_test)]:
        assert x.shape == (round(rows * scale), round(asked.n_features * scale))
        assert y.shape == (round(rows * scale), round(asked.n_labels * scale))
        assert x.dtype == y.dtype == np.float32 and x.has_canonical_format
        x.check_format(full_check=True)
        y.check_format(full_check=True)
        assert (y.data == 1).all() and y.has_canonical_format and (np.diff(y.indptr) >= 1).all()
        assert x.data.min() > 0
        np.testing.assert_allclose(np.asarray(x.multiply(x).sum(axis=1)).ravel(), 1, rtol=1e-5)
        assert y.nnz / y.shape[0] == pytest.approx(min(asked.labels_per_row, y.shape[1] / 8), rel=0.08)
        assert x.nnz / x.shape[0] == pytest.approx(min(asked.features_per_row, x.shape[1] / 4), rel=0.08)


def test_generated_labels_have_a_long_tail_and_come_together():
    data = datasets.make_xmc(n_rows=20_000, n_test=10, n_labels=12_000, n_features=500, features_per_row=5)
    frequency = np.sort(data.Y_train.sum(axis=0))[::-1]
    assert frequency[-1] == 1 and frequency[0] < 0.15 * 20_000
    assert 0.35 < (frequency == 1).mean() < 0.6 and (frequency <= 5).mean() > 0.75  # the mean is 5
    assert 0.15 < frequency[:120].sum() / frequency.sum() < 0.35
    # a label's most frequent companion is far more frequent than chance would have it
    together = (data.Y_train.T @ data.Y_train).tocsr()
    together.setdiag(0)
    observed = together.max(axis=1).toarray().ravel()
    rows = data.Y_train.sum(axis=0)
    chance = rows * frequency[0] / 20_000  # of meeting the most frequent label
    assert np.median(observed[rows >= 5] / chance[rows >= 5]) > 4


def test_generated_features_are_frequent_or_rare():
    data = datasets.make_xmc(n_rows=5000, n_test=10, n_features=20_000, features_per_row=60)
    rows = np.bincount(data.X_train.indices, minlength=20_000)
    assert (rows <= 2).mean() > 0.2 and rows.max() > 0.5 * 5000
    assert np.median(rows[data.X_train.indices]) > 100


def test_few_rows_leave_labels_without_any():
    data = datasets.make_xmc(n_rows=200, n_test=50, n_labels=5000, labels_per_row=4)
    has_row = data.Y_train.sum(axis=0) > 0
    assert 500 < has_row.sum() < 900
    assert data.Y_train.nnz / 200 == pytest.approx(4, rel=0.1)


def test_generators_depend_on_the_seed_alone():
    first, again, other = (datasets.make_xmc(n_rows=300, random_state=seed) for seed in (5, 5, 6))
    for a, b in zip(first[:4], again[:4], strict=True):
        assert (a != b).nnz == 0 and np.array_equal(a.indices, b.indices)
    assert (first.X_train != other.X_train).nnz
    texts = [datasets.make_texts(50, n_test=5, random_state=seed) for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


def test_generated_texts_read_well():
    data = datasets.make_texts(3000, n_test=10)
    assert len(data.label_names) == len(set(data.label_names)) == 1260
    assert {"bonsai pruning", "sourdough chemistry", "comet"} <= set(data.label_names)
    used = {label for row in data.labels_train for label in row}
    assert used <= set(data.label_names) and len(used) > 1000
    assert all(row and len(set(row)) == len(row) for row in data.labels_train + data.labels_test)
    assert 1.9 < np.mean([len(row) for row in data.labels_train]) < 2.5
    assert all(text[0].isupper() and text[-1] in ".?" and "{" not in text for text in data.texts_train)
    assert len(datasets.make_texts(20, n_test=0, n_labels=40).label_names) == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": "eurlex"}, "shape 'eurlex' is unknown; there are small, eurlex-4k"),
        ({"scale": 0}, "scale must be positive, not 0"),
        ({"n_rows": 0}, "n_rows must be a number of at least 1, not 0"),
        ({"n_labels": 2.5}, "n_labels must be a number of at least 1, not 2.5"),
        ({"labels_per_row": 0.5}, "labels_per_row must be a number of at least 1, not 0.5"),
    ],
)
def test_errors_of_make_xmc(arguments, message):
    with pytest.raises(ValueError) as caught:
        datasets.make_xmc(**arguments)
    assert message in str(caught.value)


def test_errors_of_make_texts():
    with pytest.raises(ValueError, match="n_labels must be between 1 and 1260, not 5000"):
        datasets.make_texts(10, n_labels=5000)
    with pytest.raises(ValueError, match="n_rows must be at least 1"):
        datasets.make_texts(0)


@pytest.mark.parametrize(
    "size", [{"n_labels": 1}, {"n_labels": 2, "n_features": 2}, {"n_rows": 1, "n_test": 0}]
)
def test_make_xmc_serves_the_smallest_sizes(size):
    data = datasets.make_xmc(**size)
    assert data.Y_train.nnz and data.X_train.nnz and data.X_test.shape[0] == size.get("n_test", 500)
