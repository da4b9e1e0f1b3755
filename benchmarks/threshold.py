"""What the threshold that `fit` chooses is worth: micro-F1 of `predict` on the test rows, and what it costs.

    python -m benchmarks.threshold                            # three sets; some ten minutes on two cores
    python -m benchmarks.threshold --data delicious --preset bonsai-i
    python -m benchmarks.threshold --per-label

"best" is the largest micro-F1 that any threshold reaches on the test rows, which `fit` has not seen. The
cost is the time of the phase "threshold" beside the rest of training. With --per-label: micro-F1, and
macro-F1 over the labels of the test rows, with the common threshold and with one for each label. TIBKAT is
evaluated on its development part. Needs the data sets (see BONSAI_DATA in CONTRIBUTING.md).
"""

import argparse
from typing import Any

import numpy as np
import scipy.sparse as sp
from reproduce import known
from sklearn.metrics import f1_score

from bonsai_xmc import Bonsai

PER_LABEL = "| data | threshold | micro-F1 | macro-F1 | labels a row | cost % |"
HEADER = "| data | micro-F1 at 0.5 | at the chosen threshold | best | chosen | best threshold | cost % |"


def micro_f1(model: Bonsai, X: Any, Y: Any, threshold: Any) -> float:
    return float(f1_score(Y, model.set_params(threshold=threshold).predict(X), average="micro"))


def best_f1(model: Bonsai, X: Any, Y: sp.csr_array) -> tuple[float, float]:
    """The largest micro-F1 of all thresholds, and the threshold."""
    scores = model.predict_proba(X).tocoo()
    right = np.asarray(sp.csr_array(Y)[scores.row, scores.col]).ravel() != 0
    order = np.argsort(-scores.data, kind="stable")
    found = np.cumsum(right[order])
    f1 = 2 * found / (np.arange(1, len(order) + 1) + Y.nnz)
    values = scores.data[order]
    f1 = np.where(np.append(values[1:] < values[:-1], True), f1, 0)  # equal scores are taken together
    return float(f1.max()), float(values[f1.argmax()])


def fitted(data: known.Dataset, preset: str | None, **options: Any) -> tuple[Bonsai, float]:
    """A model, and the time of choosing its threshold in percent of the rest of training."""
    model = Bonsai(**options) if preset is None else Bonsai.preset(preset, **options)
    seconds = model.fit(data.X_train, data.Y_train).timings_
    return model, 100 * seconds["threshold"] / (sum(seconds.values()) - seconds["threshold"])


def per_label_rows(name: str, preset: str | None, seed: int) -> list[str]:
    """Micro- and macro-F1 on unseen rows with the common threshold and with one for each label."""
    data = known.load(name)
    Y = sp.csr_array(data.Y_test, dtype=np.int8)
    present = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
    model, cost = fitted(data, preset, random_state=seed, threshold="per_label")
    kept = "for each label" if model.thresholds_ is not None else "for each label: not kept"
    rows = []
    for kind, threshold in (("common", model.threshold_), (kept, "per_label")):
        found = model.set_params(threshold=threshold).predict(data.X_test)
        micro = f1_score(Y, found, average="micro")
        macro = f1_score(Y[:, present], found[:, present], average="macro", zero_division=0)
        cells = (kind, f"{micro:.4f}", f"{macro:.4f}", f"{found.nnz / Y.shape[0]:.2f}", f"{cost:.0f}")
        rows.append(f"| {name}, seed {seed} | " + " | ".join(cells) + " |")
    return rows


def row(name: str, preset: str | None, seed: int) -> str:
    data = known.load(name)
    model, cost = fitted(data, preset, random_state=seed)
    Y = sp.csr_array(data.Y_test, dtype=np.int8)
    half, chosen = (micro_f1(model, data.X_test, Y, threshold) for threshold in (0.5, "auto"))
    best, at = best_f1(model, data.X_test, Y)
    cells = (
        f"{half:.4f}",
        f"{chosen:.4f}",
        f"{best:.4f}",
        f"{model.threshold_:.3g}",
        f"{at:.3g}",
        f"{cost:.1f}",
    )
    return f"| {name}, seed {seed} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["tibkat-core", "eurlex57k", "delicious"])
    parser.add_argument("--preset", help="instead of the default model")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    parser.add_argument("--per-label", action="store_true", help="thresholds for each label, too")
    args = parser.parse_args()
    header = PER_LABEL if args.per_label else HEADER
    print(header + "\n" + "| --- " * (header.count("|") - 1) + "|")
    for name in args.data:
        for seed in range(args.seeds):
            per_label = per_label_rows(name, args.preset, seed) if args.per_label else []
            print(*(per_label or [row(name, args.preset, seed)]), sep="\n", flush=True)


if __name__ == "__main__":
    main()
