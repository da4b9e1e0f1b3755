"""Accuracy of one-vs-rest, of the presets and of the losses on real data, over seeds, as a Markdown table.

    python -m benchmarks.variants                 # about ten minutes on two cores
    python -m benchmarks.variants --data eurlex57k --variants bonsai-i dismec --seeds 1
    python -m benchmarks.variants --data bibtex delicious --seeds 1 --threads 1 --variants default logistic \\
        one-vs-rest logistic-ovr logistic-ovr-C1 scikit-learn-C1

Needs the data sets (see BONSAI_DATA in CONTRIBUTING.md). Finished runs are stored in
benchmarks/results/variants.json and not repeated; remove the file to measure again.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import normalize

from bonsai_xmc import Bonsai, datasets, metrics

RESULTS = Path(__file__).parent / "results" / "variants.json"
VARIANTS = ("one-vs-rest", "bonsai-i", "bonsai-o", "bonsai-io", "parabel", "dismec")
WITHOUT_SEED = ("dismec", "scikit-learn-C1")  # no random tree; at most the order of the rows depends on it
MEASURES = [f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5)]


class ScikitLearn:
    """scikit-learn's LogisticRegression (LIBLINEAR) of each label, on unit rows as `Bonsai` has them."""

    def __init__(self, **_: Any) -> None:
        self._model = OneVsRestClassifier(LogisticRegression(C=1.0, solver="liblinear"))

    def fit(self, X: Any, Y: Any) -> "ScikitLearn":
        self._model.fit(normalize(X), Y)
        return self

    def top_k(self, X: Any, k: int) -> tuple[Any, Any]:
        scores = self._model.decision_function(normalize(X))
        ids = np.argsort(-scores, axis=1)[:, :k]
        return ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1)

    def save(self, file: Path) -> None:
        with file.open("wb") as out:
            np.save(out, np.vstack([one.coef_ for one in self._model.estimators_]).astype(np.float32))


_one_vs_rest = partial(Bonsai, classifiers="one_vs_rest")
# Those that are not presets.
MODELS: dict[str, Any] = {
    "default": Bonsai,
    "one-vs-rest": _one_vs_rest,
    "logistic": partial(Bonsai, loss="logistic"),
    "logistic-ovr": partial(_one_vs_rest, loss="logistic"),
    "logistic-ovr-C1": partial(_one_vs_rest, loss="logistic", C=1.0),
    "scikit-learn-C1": ScikitLearn,
}


def run(data: datasets.Dataset, name: str, variant: str, seed: int, threads: int) -> dict[str, Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    make = MODELS.get(variant, partial(Bonsai.preset, variant))
    model = make(random_state=seed, threshold=0.5, n_jobs=threads).fit(data.X_train, data.Y_train)
    fitted, cpu = time.perf_counter(), time.process_time() - cpu
    ids, _ = model.top_k(data.X_test, k=5)
    predicted = time.perf_counter()
    scores = metrics.evaluate(data.Y_test, ids, Y_train=data.Y_train, dataset=name)
    file = RESULTS.parent / "variants.bonsai"
    model.save(file)
    size = file.stat().st_size
    file.unlink()
    figures = {measure: scores[measure] for measure in MEASURES}
    seconds = {"fit s": fitted - begin, "fit CPU s": cpu, "predict s": predicted - fitted}
    return figures | seconds | {"model MB": size / 1e6}


def row(variant: str, runs: list[dict[str, Any]]) -> str:
    def cell(measure: str) -> str:
        values = [r[measure] for r in runs]
        return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")

    last = f"{mean(r['fit CPU s'] for r in runs):.1f} | {mean(r['model MB'] for r in runs):.1f}"
    return f"| {variant} | " + " | ".join(cell(m) for m in MEASURES) + f" | {last} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["eurlex57k", "tibkat-core"])
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=-1)
    args = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in args.data:
        data = known.load(name)
        print(f"\n{name}\n\n| | {' | '.join(MEASURES)} | fit CPU s | model MB |")
        print("|" + " --- |" * (len(MEASURES) + 3))
        for variant in args.variants:
            runs = []
            for seed in range(1 if variant in WITHOUT_SEED else args.seeds):
                key = f"{name} {variant} {seed}"
                if "fit CPU s" not in known.get(key, {}):
                    known[key] = run(data, name, variant, seed, args.threads)
                    RESULTS.write_text(json.dumps(known, indent=1))
                runs.append(known[key])
            print(row(variant, runs), flush=True)


if __name__ == "__main__":
    main()
