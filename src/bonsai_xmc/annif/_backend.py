"""The backend, which connects documents and parameters of Annif with `Bonsai`, and its hyperopt."""

import os.path
from collections.abc import Iterable, Mapping
from typing import Any

import annif.eval
import annif.util
import numpy as np
from annif.backend.hyperopt import (
    AnnifHyperoptBackend,
    HPObjective,
    HPRecommendation,
    HyperparameterOptimizer,
)
from annif.backend.mixins import TfidfVectorizerMixin
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.suggestion import SuggestionBatch
from scipy.sparse import csr_array, load_npz, save_npz

from bonsai_xmc import Bonsai, FormatError, load
from bonsai_xmc.annif._parameters import bonsai_params, collapsed_layers, is_like_omikuji, vectorizer_params
from bonsai_xmc.compat import _omikuji_trees

_LIMIT = 100  # subjects of each document that a search for parameters measures
TRAIN_FILES = ("bonsai-train-x.npz", "bonsai-train-y.npz")


class BonsaiBackend(TfidfVectorizerMixin, AnnifHyperoptBackend):
    """Extreme multi-label classification for Annif, by bonsai-xmc."""

    name = "bonsai"

    MODEL_FILE = "bonsai-model"
    DEFAULT_PARAMETERS = {"min_df": 1, "ngram": 1}  # noqa: RUF012

    # of objects that are not initialised
    _model: Any = None  # of any kind
    _allowed: tuple[Any, Any] | None = None

    def initialize(self, parallel: bool = False) -> None:
        self.initialize_vectorizer()
        if self._model is None:
            path = os.path.join(self.datadir, self.MODEL_FILE)
            self.debug(f"loading model from {path}")
            if not os.path.exists(path):
                raise NotInitializedException(f"model {path} not found", backend_id=self.backend_id)
            try:
                model = load(path)  # mapped: processes share it
                if model.fitted_.text is not None:
                    raise FormatError(
                        f"{path} is a text model, but must be a model of rows, as Annif makes them"
                    )
                if not getattr(model.fitted_.ranker, "shared", True):
                    raise FormatError(f"{path} is a fusion whose members do not read the same rows")
            except (FormatError, OSError) as error:
                raise OperationFailedException(str(error), backend_id=self.backend_id) from error
            model.n_jobs = 1 if parallel else None
            self._model = model

    # --- training ---

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        model = self._estimator(params, jobs)
        if corpus == "cached":
            self.info("Reusing cached training data from previous run.")
            X, Y = self.load_train_data()
        else:
            if corpus.is_empty():
                raise NotSupportedException("Cannot train bonsai project with no documents")
            X, Y = self._create_train_data(corpus, params)
        self.info("training")
        try:
            model = self.fit_model(model, X, Y, params, collapsed_layers(params))
        except ValueError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error
        self.info(f"{model.classifiers_} classifiers: {model.strategy_.reason}")
        annif.util.atomic_save(model, self.datadir, self.MODEL_FILE)
        model.n_jobs = None
        self._model = model

    @staticmethod
    def fit_model(
        model: Bonsai, X: csr_array, Y: csr_array, params: Mapping[str, Any], n_layers: int = 0
    ) -> Bonsai:
        """Train a model; trees like those of omikuji are searched as in omikuji."""
        return _omikuji_trees.fit(model, X, Y, n_layers) if is_like_omikuji(params) else model.fit(X, Y)

    def _estimator(self, params: Mapping[str, Any], jobs: int) -> Bonsai:
        try:
            chosen = bonsai_params(params)
        except ValueError as error:
            raise ConfigurationException(str(error), project_id=self.project.project_id) from error
        # suggestions are ranked, so a search for the threshold of `predict` is not needed
        return Bonsai(**{"threshold": 0.5, "n_jobs": jobs if jobs > 0 else None, **chosen})

    def _create_train_data(self, corpus: Any, params: Mapping[str, Any]) -> tuple[csr_array, csr_array]:
        options = vectorizer_params(params) | {
            "tokenizer": self.project.analyzer.tokenize_words,
            "dtype": np.float32,
        }
        texts = (document.text for document in corpus.documents)
        X = csr_array(self.create_vectorizer(texts, options))
        Y = self._indicator(document.subject_set for document in corpus.documents)
        used = np.flatnonzero((np.diff(X.indptr) > 0) & (np.diff(Y.indptr) > 0))
        if not len(used):
            raise NotSupportedException("Cannot train bonsai project: no document has both text and subjects")
        X, Y = X[used], Y[used]
        for matrix, name in zip((X, Y), TRAIN_FILES, strict=True):
            annif.util.atomic_save(matrix, self.datadir, name, method=_save_matrix)
        return X, Y

    def load_train_data(self) -> tuple[csr_array, csr_array]:
        """Return the matrices of the last training on documents."""
        paths = [os.path.join(self.datadir, name) for name in TRAIN_FILES]
        for path in paths:
            if not os.path.exists(path):
                raise NotInitializedException(
                    f"training data {path} not found; train on documents first", backend_id=self.backend_id
                )
        X, Y = (csr_array(load_npz(path)) for path in paths)
        return X, Y

    def _indicator(self, subject_sets: Iterable[Any]) -> csr_array:
        """Return a row for each set of subjects, a column for each subject of the vocabulary."""
        rows = [sorted(subjects) for subjects in subject_sets]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        indices = np.array([subject for row in rows for subject in row], dtype=np.int64)
        values = np.ones(len(indices), np.float32)
        return csr_array((values, indices, indptr), shape=(len(rows), len(self.project.subjects)))

    # --- suggesting ---

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        model = self._model
        assert model is not None
        X = csr_array(self.vectorizer.transform([document.text for document in documents]))
        return self.suggest_rows(model, X, int(params["limit"]))

    def suggest_rows(self, model: Bonsai, X: csr_array, limit: int) -> SuggestionBatch:
        """Return the suggestions of vectorised documents, in one call."""
        allowed = self._allowed_subjects()
        shape = (X.shape[0], len(allowed))
        if limit < 1:
            return SuggestionBatch(csr_array(shape, dtype=np.float32))
        ids, scores = model.top_k(X, limit)
        np.minimum(scores, 1.0, out=scores)
        found = (ids >= 0) & (ids < len(allowed)) & (scores > 0)
        found[found] = allowed[ids[found]]
        indptr = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        result = csr_array((scores[found], ids[found], indptr), shape=shape, dtype=np.float32)
        result.sort_indices()
        return SuggestionBatch(result)

    def _allowed_subjects(self) -> Any:
        """Return for each subject whether it is neither deprecated nor excluded."""
        subjects, kept = self.project.subjects, self._allowed
        if kept is None or kept[0] is not subjects or len(kept[1]) != len(subjects):
            allowed = np.zeros(len(subjects), dtype=bool)
            allowed[[subject_id for subject_id, _ in subjects.active]] = True
            kept = self._allowed = (subjects, allowed)
        return kept[1]

    # --- search for parameters ---

    def get_hp_optimizer(self, corpus: Any, metric: str) -> Any:
        return BonsaiOptimizer(self, corpus, metric)


class BonsaiObjective(HPObjective):
    """A trial: training on the cached training data, and measurement on the given documents."""

    @classmethod
    def objective(cls, trial: Any, args: Any) -> float:
        chosen = {"C": trial.suggest_float("C", 0.1, 10.0, log=True)}
        if args["tail"]:
            chosen["tail_exponent"] = trial.suggest_float("tail_exponent", 0.0, 0.5)
        else:
            chosen["prune"] = trial.suggest_float("prune", 0.01, 0.2, log=True)
        backend = args["backend"]
        model = backend._estimator(args["params"] | chosen, args["threads"])
        model = backend.fit_model(model, args["X"], args["Y"], args["params"])
        batch = annif.eval.EvaluationBatch(backend.project.subjects)
        batch.evaluate_many(backend.suggest_rows(model, args["X_test"], _LIMIT), args["gold"])
        return float(batch.results(metrics=[args["metric"]])[args["metric"]])


class BonsaiOptimizer(HyperparameterOptimizer):
    """A search for C, and for tail_exponent (one-vs-rest) or prune (trees)."""

    def __init__(self, backend: Any, corpus: Any, metric: str) -> None:
        super().__init__(backend, corpus, metric, BonsaiObjective)

    def _prepare(self, n_jobs: int = 1) -> dict[str, Any]:
        backend = self._backend
        backend.initialize()
        X, Y = backend.load_train_data()
        documents = list(self._corpus.documents)
        X_test = csr_array(backend.vectorizer.transform([document.text for document in documents]))
        return {
            "backend": backend,
            "params": dict(backend.params),
            "threads": 1 if n_jobs != 1 else 0,
            "tail": backend._model.strategy_.tail_exponent > 0,
            "X": X,
            "Y": Y,
            "X_test": X_test.astype(np.float32),
            "gold": [document.subject_set for document in documents],
            "metric": self._metric,
        }

    def _postprocess(self, study: Any) -> HPRecommendation:
        lines = [f"{name}={value:.4f}" for name, value in study.best_params.items()]
        return HPRecommendation(lines=lines, score=study.best_value)


def _save_matrix(matrix: csr_array, path: str) -> None:
    save_npz(path, matrix, compressed=False)  # compression saves a third, for 6 % of the training time
