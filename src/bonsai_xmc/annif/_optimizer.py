"""``annif hyperopt`` for the backend: trains on the cached training data, measures on the given documents."""

from typing import Any

import annif.eval
import numpy as np
from annif.backend.hyperopt import HPObjective, HPRecommendation, HyperparameterOptimizer
from scipy.sparse import csr_array

_LIMIT = 100


class BonsaiObjective(HPObjective):
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
    """Searches C, and tail_exponent (one-vs-rest) or prune (trees)."""

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
