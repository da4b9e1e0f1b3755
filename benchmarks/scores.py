"""Measure calibration and thresholds on rows that were not used for choosing them.

    python -m benchmarks.scores calibration --svg docs/img/reliability.svg    # three sets; some minutes
    python -m benchmarks.scores threshold                                     # some ten minutes on two cores
    python -m benchmarks.scores threshold --data delicious --preset bonsai-i --per-label

calibration: trains the default `TextBonsai` on the training part of each data set (see BONSAI_DATA), or
loads it from the folder --models. Scores are calibrated, and thresholds chosen, on some rows, and measured
on others: EURLEX57K on dev and test, the other sets on the even and odd rows of their held-out part.

threshold: micro-F1 of `predict` at the threshold that `fit` chooses, and at the best one of the test rows;
the cost is the time of the phase "threshold" against the rest of training. With --per-label: micro-F1, and
macro-F1 over the labels of the test rows, with the common threshold and with one for each label.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from reproduce import known
from sklearn.metrics import f1_score

from benchmarks._svg import standalone
from benchmarks.texts.accuracy import SETS, read
from bonsai_xmc import Bonsai, TextBonsai, metrics
from bonsai_xmc.metrics._report import charts

# --- Calibration ------------------------------------------------------------------------------------

OBJECTIVES: dict[str, Any] = {
    "micro-F1": "micro_f1",
    "F1@5": "f1_at_5",
    "precision 0.6": ("precision", 0.6),
    "precision 0.8": ("precision", 0.8),
}


class Rows(NamedTuple):
    texts: list[dict[str, Any]]
    labels: list[list[str]]
    languages: list[str]


def model_of(name: str, folder: Path) -> TextBonsai:
    path = folder / f"{name}.bonsai"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        texts, labels, _ = read(name, "train")
        TextBonsai(fields=SETS[name][0]).fit(texts, labels).save(path)
    return TextBonsai.load(path)


def parts_of(name: str) -> tuple[Rows, Rows]:
    """Return the rows for calibration and the rows for measuring."""
    rows = read(name, SETS[name][2])
    if name == "eurlex57k":
        return Rows(*read(name, "dev")), Rows(*rows)
    return Rows(*(part[::2] for part in rows)), Rows(*(part[1::2] for part in rows))


def with_classes(model: TextBonsai, rows: Rows) -> list[list[str]]:
    classes = set(model.classes_.tolist())
    return [[label for label in row if label in classes] for row in rows.labels]


def errors(model: TextBonsai, test: Rows) -> dict[int, metrics.Reliability]:
    ids, scores = model.top_k(test.texts, 10)
    truth = with_classes(model, test)
    return {k: metrics.reliability(truth, ids, scores, k, classes=model.classes_) for k in (1, 5, 10)}


def calibrations(name: str, model: TextBonsai, fit: Rows, test: Rows) -> dict[str, metrics.Reliability]:
    """Print a row for each method; return the bins before and after isotonic calibration."""
    found = {"raw scores": errors(model, test)}
    for method in ("platt", "isotonic"):
        for groups in (None, "frequency"):
            model = model.calibrate(fit.texts, fit.labels, method=method, groups=groups)
            found[f"{method}{', by frequency' if groups else ''}"] = errors(model, test)
    for what, bins in found.items():
        cells = " | ".join(f"{100 * bins[k].error:.2f}" for k in (1, 5, 10))
        print(f"| {name}, {len(test.texts):,} rows: {what} | {cells} |", flush=True)
    return {"raw": found["raw scores"][5], "isotonic": found["isotonic"][5]}


def thresholds(name: str, model: TextBonsai, fit: Rows, test: Rows) -> None:
    """Print a row for each objective: the result of its threshold on rows not used for choosing it."""
    model = model.calibrate(fit.texts, fit.labels)
    ids, scores = model.top_k(test.texts, 100)
    for what, objective in OBJECTIVES.items():
        threshold = model.choose_threshold(fit.texts, fit.labels, objective)
        taken = [
            [str(model.classes_[i]) for i, score in zip(row, values, strict=True) if score >= threshold]
            for row, values in zip(ids, scores, strict=True)
        ]
        print(f"| {name}: {what} | {threshold:g} | {_cells(taken, test.labels)} |", flush=True)
        for language in sorted(set(test.languages) - {""}) if objective == "f1_at_5" else ():
            rows = [i for i, other in enumerate(test.languages) if other == language]
            part = _cells([taken[i] for i in rows], [test.labels[i] for i in rows])
            print(f"| {name}, {language}, {len(rows):,} rows: {what} | {threshold:g} | {part} |", flush=True)


def _cells(taken: list[list[str]], labels: list[list[str]]) -> str:
    truth = [set(row) for row in labels]
    hits = sum(len(true.intersection(row)) for row, true in zip(taken, truth, strict=True))
    n, total = sum(map(len, taken)), sum(map(len, truth))
    figures = (hits / max(1, n), hits / total, 2 * hits / (n + total), metrics.f1_at_k(labels, taken, 5))
    return f"{n / len(truth):.2f} | " + " | ".join(f"{100 * value:.1f}" for value in figures)


# --- Thresholds -------------------------------------------------------------------------------------

PER_LABEL = "| data | threshold | micro-F1 | macro-F1 | labels a row | cost % |"
HEADER = "| data | micro-F1 at 0.5 | at the chosen threshold | best | chosen | best threshold | cost % |"


def micro_f1(model: Bonsai, X: Any, Y: Any, threshold: Any) -> float:
    return float(f1_score(Y, model.set_params(threshold=threshold).predict(X), average="micro"))


def best_f1(model: Bonsai, X: Any, Y: sp.csr_array) -> tuple[float, float]:
    """Return the largest micro-F1 of all thresholds, and the threshold."""
    scores = model.predict_proba(X).tocoo()
    right = np.asarray(sp.csr_array(Y)[scores.row, scores.col]).ravel() != 0
    order = np.argsort(-scores.data, kind="stable")
    found = np.cumsum(right[order])
    f1 = 2 * found / (np.arange(1, len(order) + 1) + Y.nnz)
    values = scores.data[order]
    f1 = np.where(np.append(values[1:] < values[:-1], True), f1, 0)  # equal scores are taken together
    return float(f1.max()), float(values[f1.argmax()])


def fitted(data: known.Dataset, preset: str | None, **options: Any) -> tuple[Bonsai, float]:
    """Return a model, and the time of choosing its threshold in percent of the other training time."""
    model = Bonsai(**options) if preset is None else Bonsai.preset(preset, **options)
    seconds = model.fit(data.X_train, data.Y_train).timings_
    return model, 100 * seconds["threshold"] / (sum(seconds.values()) - seconds["threshold"])


def per_label_rows(name: str, preset: str | None, seed: int) -> list[str]:
    """Return micro- and macro-F1 on unseen rows with the common threshold and with one per label."""
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


# --- The command ------------------------------------------------------------------------------------


def calibration_main(args: argparse.Namespace) -> None:
    diagrams, loaded = [], {}
    print("| expected calibration error, % | @1 | @5 | @10 |\n| --- | --- | --- | --- |")
    for name in args.data:
        loaded[name] = model_of(name, args.models), *parts_of(name)
        found = calibrations(name, *loaded[name])
        diagrams.append(charts.reliability_diagram(f"{name}: raw (circles) and isotonic", found))
    print("\n| threshold for | chosen | labels for each row | precision | recall | micro-F1 | F1@5 |")
    print("| --- " * 7 + "|")
    for name, parts in loaded.items():
        thresholds(name, *parts)
    if args.svg is not None:
        args.svg.write_text(standalone(diagrams, columns=len(diagrams)), encoding="utf-8")


def threshold_main(args: argparse.Namespace) -> None:
    header = PER_LABEL if args.per_label else HEADER
    print(header + "\n" + "| --- " * (header.count("|") - 1) + "|")
    for name in args.data:
        for seed in range(args.seeds):
            per_label = per_label_rows(name, args.preset, seed) if args.per_label else []
            print(*(per_label or [row(name, args.preset, seed)]), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("calibration")
    part.add_argument("--data", nargs="+", choices=SETS, default=["tibkat-core", "eurlex57k", "tate"])
    part.add_argument("--models", type=Path, default=Path("build/calibration"), metavar="DIR")
    part.add_argument("--svg", type=Path, metavar="FILE", help="write reliability diagrams")
    part.set_defaults(run=calibration_main)
    part = parts.add_parser("threshold")
    part.add_argument("--data", nargs="+", default=["tibkat-core", "eurlex57k", "delicious"])
    part.add_argument("--preset", help="instead of the default model")
    part.add_argument("--seeds", type=int, default=1, metavar="N")
    part.add_argument("--per-label", action="store_true", help="thresholds for each label, too")
    part.set_defaults(run=threshold_main)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
