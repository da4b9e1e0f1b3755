"""Scorers in scikit-learn's model selection."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler

from bonsai_xmc import Bonsai, metrics


class CooccurrenceRanker(BaseEstimator):
    """Ranks labels by (Σ_i over training rows of x·x_i y_il) / (n_l + smoothing), ties by smaller id."""

    def __init__(self, smoothing=1.0):
        self.smoothing = smoothing

    def fit(self, X, Y):
        Y = sp.csr_array(Y)
        self.label_counts_ = np.asarray(Y.sum(axis=0)).ravel()
        self.n_rows_fit_ = Y.shape[0]
        self.weights_ = sp.csr_array(X).T @ Y
        return self

    def top_k(self, X, k):
        scores = (sp.csr_array(X) @ self.weights_).toarray() / (self.label_counts_ + self.smoothing)
        ids = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        return ids, np.take_along_axis(scores, ids, axis=1).astype(np.float32)


class TestScorers:
    @pytest.fixture
    def data(self):
        rng = np.random.default_rng(0)
        Y = (rng.random((60, 6)) < [0.6, 0.4, 0.3, 0.2, 0.2, 0.1]).astype(int)
        return Y @ rng.random((6, 4)) + 0.1 * rng.random((60, 4)), Y

    SCORERS = (metrics.scorer("P@2"), metrics.scorer("nDCG@3"), metrics.scorer("PSP@3", A=0.6, B=2.6))

    def test_scorers_equal_the_metrics(self, data):
        X, Y = data
        model = CooccurrenceRanker().fit(X[:40], Y[:40])
        ids, _ = model.top_k(X[40:], 6)
        result = metrics.evaluate(Y[40:], ids, Y[:40], k=(2, 3), dataset="amazon-670k")
        values = [scorer(model, X[40:], Y[40:]) for scorer in self.SCORERS]
        assert values == pytest.approx([result["P@2"] / 100, result["nDCG@3"] / 100, result["PSP@3"] / 100])
        assert all(type(value) is float for value in values)

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_cross_validation_dense_and_sparse(self, data, scorer):
        X, Y = data
        folds = KFold(3)
        by_hand = [
            scorer(CooccurrenceRanker().fit(X[train], Y[train]), X[test], Y[test])
            for train, test in folds.split(X)
        ]
        scores = cross_val_score(CooccurrenceRanker(), X, Y, scoring=scorer, cv=folds, error_score="raise")
        assert scores.tolist() == by_hand
        assert ((scores > 0) & (scores < 1)).all()
        # cross_val_score itself refuses a sparse Y, searches take it
        search = GridSearchCV(CooccurrenceRanker(), {}, scoring=scorer, cv=folds, error_score="raise")
        search.fit(sp.csr_array(X), sp.csr_array(Y))
        assert search.best_score_ == pytest.approx(np.mean(by_hand))

    def test_grid_search_of_a_pipeline(self, data):
        X, Y = data
        pipeline = make_pipeline(MaxAbsScaler(), CooccurrenceRanker())
        grid = {"cooccurrenceranker__smoothing": [0.1, 100.0]}
        scorer = metrics.scorer("PSP@1")
        search = GridSearchCV(pipeline, grid, scoring=scorer, cv=KFold(3), error_score="raise").fit(X, Y)
        scores = search.cv_results_["mean_test_score"]
        assert scores[0] != scores[1], "the parameter must matter for this test to mean something"
        assert search.best_score_ == scores.max()
        assert scorer(search, X, Y) == scorer(search.best_estimator_, X, Y)

    def test_pipelines_transform_X_for_the_ranker(self, data):
        X, Y = data
        reverse = FunctionTransformer(lambda X: X[:, ::-1])
        bare = CooccurrenceRanker().fit(X[:40, ::-1], Y[:40])
        scorer = metrics.scorer("nDCG@3")
        expected = scorer(bare, X[40:, ::-1], Y[40:])
        assert expected != scorer(bare, X[40:], Y[40:])
        nested = make_pipeline("passthrough", make_pipeline(reverse, CooccurrenceRanker()))
        alone = Pipeline([("ranker", CooccurrenceRanker())])
        assert scorer(nested.fit(X[:40], Y[:40]), X[40:], Y[40:]) == expected
        assert scorer(alone.fit(X[:40, ::-1], Y[:40]), X[40:, ::-1], Y[40:]) == expected

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_scorers_can_be_pickled(self, scorer):
        assert pickle.loads(pickle.dumps(scorer)) == scorer

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_lists_of_names_score_as_matrices_do(self, data, scorer):
        X, Y = data
        names = [[f"label {l}" for l in np.flatnonzero(row)] for row in Y]
        matrices, lists = (Bonsai(n_jobs=1).fit(X[:40], labels[:40]) for labels in (Y, names))
        assert scorer(lists, X[40:], names[40:]) == scorer(matrices, X[40:], Y[40:])
        assert scorer(lists, X[40:], Y[40:]) == scorer(matrices, X[40:], Y[40:])

    def test_lists_with_labels_that_were_not_fitted(self):
        model = Bonsai(n_jobs=1).fit(np.eye(3), [["a"], ["b"], ["c"]])
        assert metrics.scorer("PSP@1")(model, np.eye(3), [["a"], ["b"], ["new"]]) < 1
        assert metrics.scorer("nDCG@1")(model, np.eye(3), [["a"], ["b"], ["new"]]) == pytest.approx(2 / 3)

    def test_grid_search_with_lists_of_names(self, data):
        X, Y = data
        names = [[f"label {l}" for l in np.flatnonzero(row)] for row in Y]
        for scorer in self.SCORERS:
            by_list, by_matrix = (
                GridSearchCV(
                    make_pipeline(MaxAbsScaler(), Bonsai(n_jobs=1)),
                    {"bonsai__C": [0.1, 1.0]},
                    scoring=scorer,
                    cv=KFold(3),
                    error_score="raise",
                ).fit(X, labels)
                for labels in (names, Y)
            )
            scores = by_list.cv_results_["mean_test_score"]
            assert scores.tolist() == by_matrix.cv_results_["mean_test_score"].tolist()
            assert scorer(by_list, X, names) == scorer(by_matrix, X, Y) > 0

    def test_sample_weights_are_routed(self, data):
        X, Y = data
        weights = np.random.default_rng(1).random(60)
        folds = KFold(3)
        scorer = metrics.scorer("P@1")
        assert scorer.set_score_request(sample_weight=True) is scorer
        by_hand = [
            scorer(
                CooccurrenceRanker().fit(X[train], Y[train]), X[test], Y[test], sample_weight=weights[test]
            )
            for train, test in folds.split(X)
        ]
        with config_context(enable_metadata_routing=True):
            options = {"cv": folds, "error_score": "raise"}
            search = GridSearchCV(CooccurrenceRanker(), {}, scoring=scorer, **options)
            search.fit(X, Y, sample_weight=weights)
            assert search.cv_results_["split0_test_score"][0] == by_hand[0]
            assert search.best_score_ == pytest.approx(np.mean(by_hand))
            assert by_hand[0] != metrics.scorer("P@1")(search, X[:20], Y[:20])
            unasked = GridSearchCV(CooccurrenceRanker(), {}, scoring=metrics.scorer("P@1"), **options)
            with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
                unasked.fit(X, Y, sample_weight=weights)
            named = metrics.scorer("nDCG@3").set_score_request(sample_weight="importance")
            search = GridSearchCV(CooccurrenceRanker(), {}, scoring=named, **options)
            search.fit(X, Y, importance=weights)

    def test_scorers_name_what_the_estimator_lacks(self, data):
        X, Y = data
        with pytest.raises(ValueError, match=r"MaxAbsScaler has no method top_k"):
            metrics.scorer("P@1")(MaxAbsScaler().fit(X), X, Y)
        model = CooccurrenceRanker().fit(X, Y)
        del model.n_rows_fit_
        with pytest.raises(ValueError, match="CooccurrenceRanker lacks label_counts_ and n_rows_fit_"):
            metrics.scorer("PSP@1")(model, X, Y)
        with pytest.raises(ValueError, match="k must lie between 1 and the number of labels, 6; got 7"):
            metrics.scorer("P@7")(model, X, Y)


@pytest.mark.parametrize("options", [{"classifiers": "one_vs_rest"}, {"classifiers": "leaf", "beam_size": 1}])
def test_scorers_of_scikit_learn_that_need_scores(generated, options):
    """With ``max_labels=None`` they get the scores of all labels, as arrays."""
    X, Y = generated.X_train[:200], generated.Y_train[:200].toarray()
    Y = Y[:, Y.sum(axis=0) > 4][:, :12]
    model = Bonsai(max_labels=None, threshold=0.5, **options)
    cv = KFold(2, shuffle=True, random_state=0)
    found = cross_val_score(model, X, Y, scoring="average_precision", cv=cv)
    for place, (train, test) in enumerate(cv.split(X)):
        fitted = Bonsai(**model.get_params()).fit(X[train], Y[train])
        scores = fitted.decision_function(X[test])
        assert isinstance(scores, np.ndarray) and scores.shape == Y[test].shape
        assert found[place] == pytest.approx(average_precision_score(Y[test], scores))
        ids, proba = fitted.top_k(X[test], Y.shape[1], exact=True)
        expected = np.zeros(Y[test].shape)
        np.put_along_axis(expected, ids, proba, axis=1)
        np.testing.assert_array_equal(fitted.predict_proba(X[test]), expected.astype(np.float32))
        assert sp.issparse(fitted.predict(X[test]))
    with pytest.warns(UserWarning, match="do not sum"):
        assert (cross_val_score(model, X, Y, scoring="neg_log_loss", cv=cv) < 0).all()


def test_all_labels_without_a_bound_survive_a_file(generated, tmp_path):
    model = Bonsai(max_labels=None, threshold=0.5).fit(generated.X_train, generated.Y_train)
    model.save(tmp_path / "m.bonsai")
    again = Bonsai.load(tmp_path / "m.bonsai")
    assert again.max_labels is None
    np.testing.assert_array_equal(
        again.predict_proba(generated.X_test), model.predict_proba(generated.X_test)
    )


def test_every_metric_has_a_scorer(generated):
    model = Bonsai(threshold=0.5).fit(generated.X_train, generated.Y_train)
    X, Y = generated.X_test, generated.Y_test
    expected = metrics.evaluate(Y, model.top_k(X, 5)[0], generated.Y_train, k=5)
    for name, value in expected.items():
        assert 100 * metrics.scorer(name)(model, X, Y) == pytest.approx(value)
    for wrong in ("P", "P@", "P@0", "precision@5", "P@x"):
        with pytest.raises(ValueError, match="is not a metric such as 'P@5'"):
            metrics.scorer(wrong)
