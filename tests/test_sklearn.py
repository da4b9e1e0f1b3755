"""The contract with scikit-learn: its own checks, pipelines, searches, cross-validation, scorers."""

from inspect import signature

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MultiLabelBinarizer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from bonsai_xmc import Bonsai, datasets, metrics
from helpers import same_model

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# --- scikit-learn's own checks ---

NOT_INDICATOR = "y holds 1 and 2, but an indicator matrix holds 0 and 1 and anything else is an error"
ONE_DIMENSIONAL = "y is one class for each row, but label sets are needed; the error says how to pass it"
SPARSE_RESULT = (
    "a dense array is expected, but results are CSR: rows × labels cells would not fit into memory"
)
ONE_COLUMN = "two columns of predict_proba are expected for one label, but there is one for each label"
FLOAT32 = "agreement to 1e-7 is expected, but weights are float32 and the solver stops at tol"

CANNOT_HOLD = {
    "check_estimators_dtypes": NOT_INDICATOR,
    "check_sample_weights_not_an_array": NOT_INDICATOR,
    "check_sample_weights_pandas_series": NOT_INDICATOR,
    "check_sample_weights_shape": NOT_INDICATOR,
    "check_sample_weights_not_overwritten": NOT_INDICATOR,
    "check_classifier_data_not_an_array": NOT_INDICATOR,
    "check_fit2d_1feature": NOT_INDICATOR,
    "check_classifiers_classes": ONE_DIMENSIONAL,
    "check_decision_proba_consistency": ONE_DIMENSIONAL,
    "check_classifier_not_supporting_multiclass": (
        "the message 'Only binary classification is supported' is expected for y with one class for each "
        "row, but that would be wrong: the error says how to pass such classes"
    ),
    "check_classifiers_train": "y_pred of shape (rows,) is expected, but there is a column for each label",
    "check_estimator_sparse_array": ONE_COLUMN,
    "check_estimator_sparse_matrix": ONE_COLUMN,
    "check_classifier_multioutput": SPARSE_RESULT,
    "check_classifiers_multilabel_output_format_predict": SPARSE_RESULT,
    "check_classifiers_multilabel_output_format_predict_proba": SPARSE_RESULT,
    "check_classifiers_multilabel_output_format_decision_function": SPARSE_RESULT,
    "check_classifiers_multilabel_representation_invariance": (
        "lists of 0 and 1 are expected to be an indicator matrix, but lists hold the ids or names of labels"
    ),
    "check_sample_weight_equivalence_on_dense_data": FLOAT32,
    "check_sample_weight_equivalence_on_sparse_data": FLOAT32,
}

# Older versions of scikit-learn do not report expected failures that pass.
STRICT = {"xfail_strict": True} if "xfail_strict" in signature(parametrize_with_checks).parameters else {}


@parametrize_with_checks([Bonsai(n_jobs=1)], expected_failed_checks=lambda estimator: CANNOT_HOLD, **STRICT)
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


class Recoded(Bonsai):
    """An estimator with any two values as labels and with dense results, as some checks require."""

    def fit(self, X, y, sample_weight=None):
        y = np.asarray(y)
        return super().fit(X, (y != y.min()).astype(int), sample_weight)

    def predict(self, X):
        return super().predict(X).toarray()


@pytest.mark.parametrize("name", [name for name, reason in CANNOT_HOLD.items() if reason is NOT_INDICATOR])
def test_checks_that_hold_for_indicators(name):
    getattr(estimator_checks, name)("Recoded", Recoded())


def test_weights_are_equivalent_to_repetition_up_to_float32_rounding(monkeypatch):
    close = lambda x, y, err_msg: np.testing.assert_allclose(
        x.toarray(), y.toarray(), atol=1e-5, err_msg=err_msg
    )
    monkeypatch.setattr(estimator_checks, "assert_allclose_dense_sparse", close)
    model = Bonsai(tol=1e-7, max_iter=1000, prune=0.0)
    estimator_checks.check_sample_weight_equivalence_on_dense_data("Bonsai", model)
    estimator_checks.check_sample_weight_equivalence_on_sparse_data("Bonsai", model)


def test_every_reason_belongs_to_a_check():
    names = {check.func.__name__ for _, check in estimator_checks.estimator_checks_generator(Bonsai())}
    assert CANNOT_HOLD.keys() <= names


def test_tags_say_sparse_multilabel_classifier():
    tags = Bonsai().__sklearn_tags__()
    assert is_classifier(Bonsai())
    assert tags.input_tags.sparse
    assert tags.target_tags.required
    assert tags.target_tags.multi_output
    assert tags.classifier_tags.multi_label


# --- pipelines ---


@pytest.fixture(scope="module")
def texts():
    return datasets.make_texts(n_rows=300, n_test=60, n_labels=30)


def test_pipeline_from_texts_to_names(texts):
    model = Pipeline(
        [("words", TfidfVectorizer()), ("bonsai", Bonsai(classifiers="leaf", branching_factor=8))]
    )
    model.fit(texts.texts_train, texts.labels_train)
    score = model.score(texts.texts_test, texts.labels_test)
    assert score > 0.5
    assert set(model.classes_) <= set(texts.label_names)
    ranked = model[-1].top_k_labels(model[:-1].transform(texts.texts_test), 1)
    hits = [best[0][0] in labels for best, labels in zip(ranked, texts.labels_test, strict=True)]
    assert np.mean(hits) == pytest.approx(score)
    assert sp.issparse(model.predict(texts.texts_test))


def test_weights_through_a_pipeline(generated):
    X, Y = generated.X_train, generated.Y_train
    weights = np.linspace(0.5, 2, 400)
    model = make_pipeline(MaxAbsScaler(), Bonsai(classifiers="leaf", branching_factor=8))
    weighted = model.fit(X, Y, bonsai__sample_weight=weights).decision_function(generated.X_test)
    plain = model.fit(X, Y).decision_function(generated.X_test)
    assert abs(weighted - plain).max() > 0.01


def test_binarised_labels_give_the_same_model_as_names(texts):
    binarizer = MultiLabelBinarizer(sparse_output=True)
    Y = binarizer.fit_transform(texts.labels_train)
    X = TfidfVectorizer().fit_transform(texts.texts_train)
    by_name, by_column = (
        Bonsai(classifiers="leaf", branching_factor=8).fit(X, texts.labels_train),
        Bonsai(classifiers="leaf", branching_factor=8).fit(X, Y),
    )
    assert same_model(by_name, by_column)
    names = binarizer.inverse_transform(sp.csr_matrix(by_column.predict(X)))
    assert [set(row) for row in names] == [set(by_name.classes_[row.indices]) for row in by_name.predict(X)]


# --- model selection ---

FORMS = {"dense": lambda Y: Y.toarray(), "sparse": lambda Y: Y, "matrix": sp.csr_matrix}


@pytest.mark.parametrize(
    ("scoring", "metric"),
    [
        (None, "P@1"),
        (metrics.scorer("P@3"), "P@3"),
        (metrics.scorer("nDCG@5"), "nDCG@5"),
        (metrics.scorer("PSP@5"), "PSP@5"),
    ],
)
def test_cross_validation_scores_equal_the_metrics(generated, scoring, metric):
    X, Y = generated.X_train, generated.Y_train
    folds = KFold(3)
    found = cross_val_score(
        Bonsai(classifiers="leaf", branching_factor=8), X, Y.toarray(), cv=folds, scoring=scoring
    )
    expected = []
    for train, test in folds.split(X):
        ids, _ = Bonsai(classifiers="leaf", branching_factor=8).fit(X[train], Y[train]).top_k(X[test], 5)
        expected.append(metrics.evaluate(Y[test], ids, Y_train=Y[train], k=(1, 3, 5))[metric] / 100)
    np.testing.assert_allclose(found, expected)
    assert min(found) > 0.1


def test_cross_validation_in_parallel_with_several_scorers(generated):
    scorers = {"P@1": metrics.scorer("P@1"), "PSP@3": metrics.scorer("PSP@3")}
    one, two = (
        cross_validate(
            Bonsai(classifiers="leaf", branching_factor=8, n_jobs=1),
            generated.X_train,
            generated.Y_train.toarray(),
            cv=3,
            scoring=scorers,
            n_jobs=n_jobs,
            return_estimator=True,
        )
        for n_jobs in (1, 2)
    )
    for key in ("test_P@1", "test_PSP@3"):
        np.testing.assert_array_equal(one[key], two[key])
    for mine, theirs in zip(one["estimator"], two["estimator"], strict=True):
        np.testing.assert_array_equal(
            mine.top_k(generated.X_test, 5)[1], theirs.top_k(generated.X_test, 5)[1]
        )


@pytest.mark.parametrize("form", FORMS)
def test_grid_search_finds_the_better_C(generated, form):
    grid = {"bonsai__C": [1e-4, 1.0], "bonsai__n_trees": [1, 3], "bonsai__beam_size": [None]}
    search = GridSearchCV(
        make_pipeline(MaxAbsScaler(), Bonsai(classifiers="leaf", branching_factor=8)),
        grid,
        scoring=metrics.scorer("P@3"),
        cv=3,
        n_jobs=2,
    )
    search.fit(generated.X_train, FORMS[form](generated.Y_train))
    assert search.best_params_["bonsai__C"] == 1.0
    scores = search.cv_results_["mean_test_score"]
    assert scores.max() == search.best_score_ > 0.2 > 0.1 > scores.min()
    score = metrics.scorer("P@1")(search, generated.X_test, generated.Y_test)
    assert score == pytest.approx(search.best_estimator_.score(generated.X_test, generated.Y_test))
    assert sp.issparse(search.predict(generated.X_test))


def test_grid_search_over_the_loss_with_the_models_own_score(generated):
    search = GridSearchCV(
        Bonsai(classifiers="leaf", branching_factor=8),
        {"loss": ["squared_hinge", "logistic"], "representation": ["input", "output"]},
        cv=ShuffleSplit(1, random_state=0),
    )
    search.fit(generated.X_train, generated.Y_train.toarray())
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    assert search.score(generated.X_test, generated.Y_test) > 0.4


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_cross_validated_predictions_equal_those_of_each_fold(generated, method):
    X, Y = generated.X_train, generated.Y_train
    result = cross_val_predict(
        Bonsai(classifiers="leaf", branching_factor=8), X, Y.toarray(), cv=KFold(2), method=method
    )
    half = getattr(Bonsai(classifiers="leaf", branching_factor=8).fit(X[200:], Y[200:]), method)(X[:200])
    np.testing.assert_array_equal(result[:200].toarray(), half.toarray())
    assert result.shape == Y.shape
    if method == "predict":  # scikit-learn takes sparse labels for this function only
        sparse = cross_val_predict(Bonsai(classifiers="leaf", branching_factor=8), X, Y, cv=KFold(2))
        np.testing.assert_array_equal(result.toarray(), sparse.toarray())


# --- lists of labels ---


@pytest.fixture
def listed(generated):
    """Names in lists, sets and arrays of objects; scikit-learn inspects some of them."""
    rows = [[f"label {i}" for i in row.indices] for row in sp.csr_array(generated.Y_train)]
    objects = np.empty(len(rows), dtype=object)
    objects[:] = rows
    return {"lists": rows, "sets": [set(row) for row in rows], "objects": objects}


@pytest.mark.parametrize("scoring", [None, metrics.scorer("P@3"), metrics.scorer("PSP@1")])
@pytest.mark.parametrize(
    ("form", "cv"), [("lists", KFold(3)), ("sets", 3), ("sets", KFold(3)), ("objects", KFold(3))]
)
def test_grid_search_over_names(generated, listed, form, cv, scoring):
    """Lists of names work wherever scikit-learn lets them through, sets everywhere."""
    search = GridSearchCV(Bonsai(threshold=0.5), {"C": [1e-4, 1.0]}, cv=cv, scoring=scoring)
    search.fit(generated.X_train, listed[form])
    assert search.best_params_ == {"C": 1.0}
    scores = search.cv_results_["mean_test_score"]
    assert not np.isnan(scores).any() and scores.max() > 0.2
    assert isinstance(search.best_estimator_.top_k_labels(generated.X_test[:1], 1)[0][0][0], str)


def test_inputs_that_scikit_learn_rejects(generated, listed):
    with pytest.raises(ValueError, match="legacy multi-label data representation"):
        GridSearchCV(Bonsai(), {"C": [1.0]}, cv=3).fit(generated.X_train, listed["lists"])


def test_cross_validation_of_names(generated, listed):
    by_name = cross_val_score(Bonsai(threshold=0.5), generated.X_train, listed["sets"], cv=KFold(3))
    by_column = cross_val_score(
        Bonsai(threshold=0.5), generated.X_train, generated.Y_train.toarray(), cv=KFold(3)
    )
    np.testing.assert_allclose(by_name, by_column, atol=0.01)  # ties are broken by ids, which differ


def test_cross_validated_predictions_need_a_matrix(generated, listed):
    """Each fold has other labels and therefore other columns, which cannot be combined."""
    with pytest.raises(ValueError):
        cross_val_predict(Bonsai(threshold=0.5), generated.X_train, listed["sets"], cv=KFold(3))
