"""The base of all estimators: rank labels, explain, calibrate, edit labels, save."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.params import check
from bonsai_xmc._base.progress import Progress, phases_of
from bonsai_xmc._base.threads import threads_of
from bonsai_xmc._data import labels as label_sets
from bonsai_xmc._data.rows import Rows, check_encodable
from bonsai_xmc._data.tree import LabelTree
from bonsai_xmc._model import calibration, predict, thresholds
from bonsai_xmc._model import labels as edits
from bonsai_xmc._model.fitted import FittedModel
from bonsai_xmc._model.linear import LinearRanker
from bonsai_xmc._model.strategy import Strategy
from bonsai_xmc._modelfile import format as model_file
from bonsai_xmc._selection.threshold import label_thresholds
from bonsai_xmc._training import learn as further_rows
from bonsai_xmc._training.work import Runner
from bonsai_xmc.metrics._ranking import Ranking, Truth

if TYPE_CHECKING:
    from bonsai_xmc._estimators.rerank import Reranked, Score
    from bonsai_xmc._explain.objects import Explanation, WhyNot


MAX_LABELS = 100  # of a row in `predict_proba`, `decision_function` and `predict`


def _read(name: str) -> Any:
    """Return a property that reads an attribute of the fitted model."""
    read = attrgetter(name)
    return property(lambda self: read(self._require_fitted()))


def with_scores(classes: Array, ids: Array, scores: Array) -> list[list[tuple[Any, float]]]:
    """Return the labels of each row with their scores."""
    labels = classes[ids].tolist()  # only of the best labels: there may be a million others
    return [
        [(label, score) for label, score, i in zip(*of_row, strict=True) if i >= 0]
        for of_row in zip(labels, scores.tolist(), ids.tolist(), strict=True)
    ]


class LabelRanker(ClassifierMixin, BaseEstimator):
    """An estimator that ranks labels; its subclasses define `fit` and the form of X."""

    #: The estimator whose parameters predictions use: `threshold`, `beam_size`, `n_probe`, `n_jobs`.
    classifier_: Any
    #: Parameters that the search of labels depends on.
    search_parameters: tuple[str, ...] = ()

    def _rows(self, X: Any, fitted: FittedModel) -> Rows:
        """Return X of a prediction as rows."""
        raise NotImplementedError

    def _require_fitted(self) -> FittedModel:
        """Return the fitted model; NotFittedError if there is none."""
        raise NotImplementedError

    def _with(self, fitted: FittedModel) -> Self:
        """Return an estimator with the same parameters and another model."""
        raise NotImplementedError

    def _unfitted(self) -> Self:
        """Return an estimator with the same parameters and no model."""
        return type(self)(**self.get_params(deep=False))

    def _edited(self, edit: Callable[..., FittedModel], *given: Any) -> Self:
        """Return an estimator whose model is what `edit` makes from the model of this estimator."""
        return self._with(edit(self._require_fitted(), *given, threads_of(self.classifier_.n_jobs)))

    def top_k(
        self,
        X: Any,
        k: int = 5,
        *,
        exact: bool = False,
        restrict: Any = None,
        exclude: Any = None,
        progress: Progress | None = None,
    ) -> tuple[Array, Array]:
        """Return the k best labels of each row, best first.

        Parameters
        ----------
        X : as in `fit`
            Rows with the features of the training rows.
        k : int ≥ 1, default=5
            Labels per row.
        exact : bool, default=False
            Score all labels, independent of `search_`, `beam_size` and `n_probe`.
        restrict, exclude : iterable of labels, or array of bool of shape (n_labels,), optional
            Find only the labels of `restrict` (those of a language, those in stock), and none of `exclude`.
            Labels that the model does not have are ignored. The search has no other candidates: beam search,
            for instance, keeps only nodes with such labels. With ``exact=True``, and wherever all labels are
            scored, this equals filtering a ranking of all labels.
        progress : callable, optional
            As in `fit`; the phase is "predict".

        Returns
        -------
        ids : int32 array of shape (n_rows, k)
            Indices into `classes_`, which are columns of Y if that was a matrix; −1 where there are fewer
            candidates, as for a row without features, or fewer labels than k.
        scores : float32 array of shape (n_rows, k)
            As in `predict_proba`; 0 where there are fewer candidates.
        """
        ids, scores = self._ranked(X, k, exact=exact, restrict=restrict, exclude=exclude, progress=progress)
        return ids, self._require_fitted().scores(ids, scores)

    def _ranked(self, X: Any, k: int, **options: Any) -> tuple[Array, Array]:
        """Return the ids of `top_k`, with log scores: −∞ where there are fewer candidates."""
        fitted, classifier = self._require_fitted(), self.classifier_
        search = {name: getattr(classifier, name) for name in classifier.search_parameters}
        return predict.rank(fitted, self._rows, X, k, n_jobs=classifier.n_jobs, **search, **options)

    def top_k_labels(
        self, X: Any, k: int = 5, *, restrict: Any = None, exclude: Any = None
    ) -> list[list[tuple[Any, float]]]:
        """Return the k best labels of each row as (label, score), best first; labels as in `classes_`.

        `restrict` and `exclude` as in `top_k`.
        """
        return with_scores(self.classes_, *self.top_k(X, k, restrict=restrict, exclude=exclude))

    def decision_function(self, X: Any, *, restrict: Any = None, exclude: Any = None) -> sp.csr_array | Array:
        """Return ranking scores of the `max_labels` best labels of each row; others are absent, that is, 0.

        1 / (1 − log score), from just above 0 to 1, in the order of `top_k`: higher is better, absent is
        worst, and labels of equal score, which `top_k` ranks by their margins, differ in the last digit.
        `restrict` and `exclude` as in `top_k`.
        """
        k, exact = self._most()
        ids, scores = self._ranked(X, k, exact=exact, restrict=restrict, exclude=exclude)
        values = 1.0 / (1.0 - scores.astype(np.float64))
        for rank in range(1, values.shape[1]):
            np.minimum(values[:, rank], np.nextafter(values[:, rank - 1], 0), out=values[:, rank])
        return self._matrix(ids, values)

    def predict_proba(self, X: Any, *, restrict: Any = None, exclude: Any = None) -> sp.csr_array | Array:
        """Return scores in [0, 1] of the `max_labels` best labels of each row; others are absent, that is, 0.

        Before `calibrate` they are not probabilities, in spite of the method's name, but exp(−loss) of a
        label's classifier; with trees, the mean over the trees of the product along the path; with a blend,
        the weighted mean of both. The logit adjustment comes last. After `calibrate`, each estimates the
        probability that the label is right. `restrict` and `exclude` as in `top_k`.
        """
        k, exact = self._most()
        ids, scores = self._ranked(X, k, exact=exact, restrict=restrict, exclude=exclude)
        return self._matrix(ids, self._require_fitted().scores(ids, scores))

    def predict(self, X: Any, *, restrict: Any = None, exclude: Any = None) -> sp.csr_array:
        """Return a 0/1 matrix of the labels that score at least `threshold`, up to `max_labels` for each row.

        `restrict` and `exclude` as in `top_k`.
        """
        self._require_fitted()
        threshold = thresholds.resolve(self.classifier_.threshold, self)
        ranking = self.top_k(X, self._max_labels(), restrict=restrict, exclude=exclude)
        ids, _ = thresholds.select(*ranking, threshold)
        return self._sparse(ids, np.ones(ids.shape, np.int8))

    def calibrate(self, X: Any, Y: Any, *, method: str = "isotonic", groups: str | None = None) -> Self:
        """Turn scores into estimates of how often such labels are right; rankings do not change.

        Needs rows that the model was not trained on. From the ten best labels of each row, the share of right
        labels is learnt as a function of the score. Later predictions, `save` and `threshold_` use calibrated
        scores: a threshold that was given as a number is compared with these, and `threshold_` is chosen
        again for micro-F1, as are `thresholds_` for macro-F1, if there are any. A further call starts from
        the raw scores; `fit` removes the calibration. `calibration_` holds the errors before and after.

        Parameters
        ----------
        X, Y : as in `fit`
            Rows and their labels; labels that the model does not have are ignored. Thousands of rows are
            better than hundreds.
        method : {"isotonic", "platt"}, default="isotonic"
            scikit-learn's isotonic regression, or its logistic regression on the log score, which needs fewer
            rows, but fits less well.
        groups : None or "frequency", default=None
            One map for all labels, or one for each of head, torso and tail labels, as
            ``metrics.evaluate(by_frequency=True)`` defines them. Scores of rare labels are often too
            high. Labels are still ranked by their raw scores, so that a label of one group may
            have a lower score than a label of another group that is ranked below it.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai, datasets
        >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
        >>> model = Bonsai(threshold=0.5).fit(data.X_train, data.Y_train)
        >>> before = model.top_k(data.X_test, 5)[0]
        >>> found = model.calibrate(data.X_test, data.Y_test).calibration_
        >>> found["error_after"] < found["error_before"]
        True
        >>> bool((model.top_k(data.X_test, 5)[0] == before).all())
        True
        """
        calibration.check_options(method, groups)
        fitted = self._require_fitted()
        if groups is not None and fitted.imported:
            raise ValueError("groups need label frequencies, which imported models lack; leave groups out")
        ranking = self._ranking(X, Y)
        learnt = calibration.learn(ranking, fitted.label_counts, method, groups)
        scores = learnt.scores(ranking.ids, ranking.scores, fitted.label_counts, apart=False)
        threshold = thresholds.choose(ranking, scores, ("micro_f1", 0), calibrated=True)
        labels = fitted.labels
        if labels.thresholds is not None:
            own = label_thresholds([(ranking, scores)], fitted.n_labels, threshold)
            labels = replace(labels, thresholds=own)
        return self._with(replace(fitted, labels=labels, calibration=learnt, threshold=threshold))

    def choose_threshold(self, X: Any, Y: Any, objective: Any = "micro_f1") -> float:
        """Return the best threshold of `predict` for an objective, on rows that the model was not trained on.

        The model does not change; ``model.set_params(threshold=model.choose_threshold(X, Y))`` changes it.

        Parameters
        ----------
        X, Y : as in `fit`
            Rows and their labels; labels that the model does not have count as missed.
        objective : "micro_f1", "f1_at_5" or ("precision", p), default="micro_f1"
            "micro_f1": F1 of all predictions of `predict`. "f1_at_5", and the like for other numbers: mean
            over rows of F1, of at most five labels a row, as Annif computes it. ("precision", 0.8): the
            lowest threshold with which at least 80 % of all predictions are right.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai, datasets
        >>> data = datasets.make_xmc("eurlex-4k", scale=0.05)
        >>> model = Bonsai(threshold=0.5).fit(data.X_train, data.Y_train)
        >>> careful = model.choose_threshold(data.X_test, data.Y_test, ("precision", 0.9))
        >>> careful > model.choose_threshold(data.X_test, data.Y_test, "micro_f1")
        True
        """
        wanted = thresholds.objective_of(objective)
        ranking = self._ranking(X, Y)
        fitted = self._require_fitted()
        scores = fitted.scores(ranking.ids, ranking.scores, apart=False)
        return thresholds.choose(ranking, scores, wanted, calibrated=fitted.calibration is not None)

    def _ranking(self, X: Any, Y: Any) -> Ranking:
        """Return the `max_labels` best labels of each row, and all true ones, known or unknown."""
        Y = list(Y) if isinstance(Y, Iterator) else Y
        ids, log_scores = self._ranked(X, self._max_labels())
        truth = Truth.of(Y, self.classes_)
        label_sets.check_rows(len(ids), truth.n_rows)
        return truth.rank(ids, log_scores)

    def _most(self) -> tuple[int, bool]:
        """Return the number of labels to predict for a row, and whether all are searched and returned."""
        most = getattr(self.classifier_, "max_labels", MAX_LABELS)
        check("max_labels", most)
        n_labels = self._require_fitted().n_labels
        return (n_labels, True) if most is None else (min(int(most), n_labels), False)

    def _max_labels(self) -> int:
        return self._most()[0]

    def _matrix(self, ids: Array, values: Array) -> sp.csr_array | Array:
        """Return a matrix of scores by label: an array if all labels are returned."""
        matrix = self._sparse(ids, values)
        return matrix.toarray() if self._most()[1] else matrix

    def _sparse(self, ids: Array, values: Array) -> sp.csr_array:
        found = ids >= 0
        indptr = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        result = sp.csr_array((values[found], ids[found], indptr), shape=(len(ids), len(self.classes_)))
        result.sort_indices()
        return result

    def rerank(
        self,
        score: "Score",
        X: Any = None,
        Y: Any = None,
        *,
        depth: int = 20,
        weight: float | None = None,
        batch_size: int = 32,
    ) -> "Reranked":
        """Return a second stage: the best labels of this model, scored once more by a function.

        The score of the function and that of this model are added with the weights and links that are best on
        rows X, Y, as in a `Fusion`. If the function improves nothing there, its weight is 0.

        Parameters
        ----------
        score : callable
            A cross-encoder, or a language model: ``score(rows, candidates)`` returns a list of numbers for
            each row, one for each of its candidates, on any scale; larger is better. `rows` are texts or
            records as in X (for a matrix: matrices of one row), `candidates` the names of labels of each row.
        X, Y : as in `fit`, optional
            Rows that neither this model nor the function was trained on; a few hundred may be enough.
        depth : int ≥ 1, default=20
            Candidates of each row.
        weight : float in [0, 1], optional
            Weight of the function, instead of X and Y.
        batch_size : int ≥ 1, default=32
            Rows of each call of the function.

        Returns
        -------
        Reranked
            With `top_k`, `top_k_labels`, `weights_`, `links_` and `chosen_`.

        Examples
        --------
        >>> from bonsai_xmc import TextBonsai
        >>> texts = ["old brick walls", "river fish", "brick kilns", "fish of the sea"]
        >>> model = TextBonsai().fit(texts, [["brick"], ["fish"], ["brick"], ["fish", "sea"]])
        >>> in_text = lambda texts, names: [[n in t for n in of] for t, of in zip(texts, names)]
        >>> model.rerank(in_text, weight=0.5).top_k_labels(["a brick in the sea"], 2)[0][1][0]
        'sea'
        """
        from bonsai_xmc._estimators.rerank import rerank

        return rerank(self, score, X, Y, depth=depth, weight=weight, batch_size=batch_size)

    def explain(self, x: Any, label: Any) -> "Explanation":
        """Explain the score of a label for a row: the features that push it up or down, by name.

        Parameters
        ----------
        x : vector, matrix of one row, text or record
            The row: a vector or a matrix of one row; for a `TextBonsai`, a text or a record.
        label : str or int
            As in `classes_`; of a `TextBonsai` also the label's name.

        Returns
        -------
        Explanation
            ``print`` shows a table, notebooks show HTML; `to_dict`, `to_html`. The integer products of its
            decisions add up to each classifier's integer margin, exactly.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai
        >>> X = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
        >>> Y = [["red"], ["green"], ["red", "green"], ["blue"]]
        >>> why = Bonsai().fit(X, Y).explain([0, 0, 2], "blue")
        >>> why.rank, [(effect.name, effect.effect > 0) for effect in why.effects]
        (1, [('feature 2', True)])
        >>> own = why.one_vs_rest
        >>> own.integer_margin == sum(contribution.product for contribution in own.contributions)
        True
        """
        from bonsai_xmc._explain.verbs import explain

        return explain(self, x, label)

    def why_not(self, x: Any, label: Any, *, n_ahead: int = 3) -> "WhyNot":
        """Explain why a row does not get a label: its rank, and which labels are ahead by which features.

        For a label that beam search does not find, the answer also has the node at which its path was left
        out, the score of this node and the lowest score that was kept.

        Parameters
        ----------
        x, label : as in `explain`
            The row and the label.
        n_ahead : int ≥ 0, default=3
            Number of labels ranked above it to compare it with: the best ones.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai
        >>> X = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
        >>> Y = [["red"], ["green"], ["red", "green"], ["blue"]]
        >>> answer = Bonsai().fit(X, Y).why_not([0, 0, 2], "red")
        >>> answer.rank, answer.ahead[0].label
        (2, 'blue')
        """
        from bonsai_xmc._explain.verbs import why_not

        return why_not(self, x, label, n_ahead)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return P@1: the share of rows whose best label is right."""
        ids, _ = self.top_k(X, 1)
        truth = label_sets.over_classes(y, self.classes_)
        label_sets.check_rows(len(ids), truth.shape[0])
        return float(np.average(label_sets.is_true(truth, ids)[:, 0], weights=sample_weight))

    # --- labels that change ---

    def drop(self, labels: Any) -> Self:
        """Return a model without these labels.

        This model does not change; nothing is trained again, and the scores of all other labels stay as they
        are. Names keep their order in `classes_`; integers ascend.

        Parameters
        ----------
        labels : iterable of labels
            Labels to remove, as in `classes_`.

        Returns
        -------
        model : estimator of the same class
            Fitted, with the parameters of this one.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai
        >>> model = Bonsai().fit([[1, 0], [0, 1], [1, 1]], [["red"], ["green"], ["red", "blue"]])
        >>> model.drop(["blue"]).classes_.tolist()
        ['green', 'red']
        """
        return self._edited(edits.drop, labels)

    def restrict(self, labels: Any) -> Self:
        """Return a model of only these labels: smaller and faster; see `drop`.

        Labels that the model does not have are ignored. For a single prediction,
        ``top_k(X, restrict=labels)`` finds the same, and copies no weights.
        """
        return self._edited(edits.restrict, labels)

    def rename(self, names: Any) -> Self:
        """Return a model whose labels have other names, or other integers; see `drop`.

        Parameters
        ----------
        names : mapping of old to new labels
            All labels are names, or all are integers, before and after.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai
        >>> model = Bonsai().fit([[1, 0], [0, 1]], [["red"], ["green"]])
        >>> model.rename({"red": "crimson"}).classes_.tolist()
        ['green', 'crimson']
        """
        return self._edited(edits.rename, names)

    def merge(self, labels: Any, into: Any) -> Self:
        """Return a model in which several labels are one; see `drop`.

        All of their classifiers stay, and the highest of their scores is the score of the new label. So
        `predict` returns the new label for a row exactly if it would return one of the old labels. Its number
        of training rows is the sum of theirs: rows with several of the old labels count several times.

        Parameters
        ----------
        labels : iterable of labels
            Labels to merge, as in `classes_`.
        into : label
            One of `labels`; another label, which is then merged with them; or a new label.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai
        >>> model = Bonsai().fit([[1, 0], [0, 1], [1, 1]], [["red"], ["green"], ["crimson"]])
        >>> model.merge(["red", "crimson"], into="red").classes_.tolist()
        ['red', 'green']
        """
        return self._edited(edits.merge, labels, into)

    def name_labels(self, names: Mapping[Any, str]) -> Self:
        """Return a model whose labels have names, which `save` writes, too; `classes_` does not change.

        Parameters
        ----------
        names : mapping of labels to names
            As `datasets.read_label_names` returns it. Labels that the model does not have are ignored.
        """
        for label, name in names.items():
            if not isinstance(name, str):
                raise TypeError(f"names[{label!r}] is {name!r}, but names are strings")
            check_encodable(name, f"names[{label!r}] holds")
        found = tuple(str(names.get(label, names.get(str(label), ""))) for label in self.classes_.tolist())
        fitted = self._require_fitted()
        labels = replace(fitted.labels, names=found if any(found) else ())
        return self._with(replace(fitted, labels=labels))

    def learn(
        self,
        X: Any,
        Y: Any,
        sample_weight: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        runner: Runner | None = None,
        max_memory: int | str | None = "auto",
        progress: Progress | bool | None = None,
    ) -> Self:
        """Return a model that has learnt from further rows, too; needs `fit(…, keep_rows=True)`.

        Only the one-vs-rest classifiers of the labels of these rows are trained again. Training starts from
        their weights: new rows add their loss, old rows of the label a penalty on changes of their margins.
        New labels are trained on all rows, old and new. Label trees, the threshold and the calibration stay
        as they are; so does the vocabulary of a text model: words that it does not have are ignored. In
        trees, a new label goes to the leaf that its weights lead to.

        Parameters
        ----------
        X : as in `fit`
            Further rows, with the features of the training rows.
        Y : as in `fit`
            Lists may hold new labels. A matrix has a column for each label, or, if the model was trained on
            one, for new ones, too.
        sample_weight, checkpoint, runner, progress
            As in `fit`.
        max_memory : "auto", None, int or str, default="auto"
            As in `fit`.

        Examples
        --------
        >>> from bonsai_xmc import Bonsai
        >>> X, Y = [[1, 0, 0], [0, 1, 0]], [["red"], ["green"]]
        >>> model = Bonsai(classifiers="one_vs_rest").fit(X, Y, keep_rows=True)
        >>> model = model.learn([[0, 0, 1], [1, 0, 1]], [["blue"], ["red", "blue"]])
        >>> model.top_k_labels([[0, 0, 1]], k=1)[0][0][0]
        'blue'
        """
        fitted = self._require_fitted()
        further_rows.check_can_learn(fitted)
        rows = self._rows(X, fitted)
        labels = further_rows.new_labels_of(Y, fitted)
        label_sets.check_rows(rows.n_rows, labels.n_rows)
        weights = label_sets.row_weights(sample_weight, rows.n_rows)
        if weights is not None and not weights.all():
            raise ValueError("sample_weight holds 0; leave out the rows that must not count")
        phases = phases_of(progress)
        threads = threads_of(self.classifier_.n_jobs)
        options: Any = {"checkpoint": checkpoint, "runner": runner, "max_memory": max_memory}
        return self._with(further_rows.learn(fitted, rows, labels, weights, threads, phases, **options))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file: a safetensors container, replaced atomically.

        Training parameters are those that `fit` used; `beam_size`, `n_probe`, `max_labels` and `threshold`
        are saved with their current values. A file that is replaced keeps its mode, and its owner where
        possible.
        """
        fitted, classifier = self._require_fitted(), self.classifier_
        prediction = classifier._prediction()
        for name, value in prediction.items():
            check(name, value, classifier.parameters)
        if isinstance(fitted.ranker, LinearRanker):
            fitted.ranker.check_search(**{name: prediction[name] for name in classifier.search_parameters})
        model_file.save(path, fitted, prediction)

    # --- attributes of the fitted model ---

    classes_: Array = _read("classes")
    trees_: list[LabelTree] = _read("trees")
    n_iter_: int = _read("provenance.n_iter")
    seed_: int = _read("provenance.seed")
    threshold_: float = _read("threshold")
    thresholds_: Array | None = _read("thresholds")
    n_rows_fit_: Any = _read("n_rows")
    n_features_in_: int = _read("n_features")

    @property
    def strategy_(self) -> Strategy:
        ranker = self._require_fitted().ranker
        if not isinstance(ranker, LinearRanker):  # an AttributeError, as properties need it
            raise AttributeError(f"a model of the kind {ranker.kind!r} has no strategy of a Bonsai")
        return ranker.strategy

    @property
    def classifiers_(self) -> str:
        return self.strategy_.classifiers

    @property
    def search_(self) -> str:
        return self.strategy_.search

    @property
    def label_names_(self) -> list[str]:
        """Names of the labels, in the order of `classes_`; the label itself where it has no name."""
        names = self._require_fitted().labels.names or [""] * len(self.classes_)
        return [name or str(label) for name, label in zip(names, self.classes_, strict=True)]

    @property
    def calibration_(self) -> dict[str, Any] | None:
        found = self._require_fitted().calibration
        return None if found is None else found.to_arrays()[0]

    @property
    def label_counts_(self) -> Any:
        fitted = self._require_fitted()
        return None if fitted.imported else fitted.label_counts

    @property
    def timings_(self) -> dict[str, float]:
        return dict(self._require_fitted().timings)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags
