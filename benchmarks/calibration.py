"""What calibration gives on real texts: errors before and after, thresholds, and reliability diagrams.

    python -m benchmarks.calibration --svg docs/img/reliability.svg    # three sets; some minutes

Trains the default `TextBonsai` on the training part of each data set (see BONSAI_DATA), or loads it from the
folder --models. Scores are calibrated, and thresholds chosen, on some rows, and measured on others:
EURLEX57K on dev and test, the other sets on the even and odd rows of their held-out part.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.texts import SETS, read
from bonsai_xmc import TextBonsai, metrics
from bonsai_xmc.metrics._report import charts

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
    """Rows to calibrate on, and rows to measure on."""
    rows = read(name, SETS[name][2])
    if name == "eurlex57k":
        return Rows(*read(name, "dev")), Rows(*rows)
    return Rows(*(part[::2] for part in rows)), Rows(*(part[1::2] for part in rows))


def known(model: TextBonsai, rows: Rows) -> list[list[str]]:
    classes = set(model.classes_.tolist())
    return [[label for label in row if label in classes] for row in rows.labels]


def errors(model: TextBonsai, test: Rows) -> dict[int, metrics.Reliability]:
    ids, scores = model.top_k(test.texts, 10)
    truth = known(model, test)
    return {k: metrics.reliability(truth, ids, scores, k, classes=model.classes_) for k in (1, 5, 10)}


def calibrations(name: str, model: TextBonsai, fit: Rows, test: Rows) -> dict[str, metrics.Reliability]:
    """Prints a row for each method; the bins before, and after isotonic calibration."""
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
    """Prints a row for each objective: what the threshold gives on the rows that did not choose it."""
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=SETS, default=["tibkat-core", "eurlex57k", "tate"])
    parser.add_argument("--models", type=Path, default=Path("build/calibration"), metavar="DIR")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write reliability diagrams")
    args = parser.parse_args()
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
        args.svg.write_text(charts.standalone(diagrams, columns=len(diagrams)), encoding="utf-8")


if __name__ == "__main__":
    main()
