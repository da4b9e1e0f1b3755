"""Where leaf classifiers (three trees) overtake one-vs-rest, and what predicts it.

    python -m benchmarks.crossover                    # curves of two data sets, two others as they are
    python -m benchmarks.crossover --rows 45000       # of all rows instead of 8,000
    python -m benchmarks.crossover --plot             # the picture again, from build/crossover.json

A curve changes one property of the training rows: a share of their labels is removed at random, each row
(test rows too) keeps some of its features at random, fewer rows are used, or C differs. Test labels stay
complete. Finished points are kept in build/crossover.json and not measured again. Needs the data sets (see
BONSAI_DATA in CONTRIBUTING.md).
"""

import argparse
import json
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks import _sets
from benchmarks._runs import BUILD, ROOT
from bonsai_xmc import Bonsai, metrics

MEASURES = ("P@1", "P@5", "PSP@1", "PSP@5")
MODELS = ("trees", "one-vs-rest", "blend")
CANDIDATES = 30  # of each model that a blend ranks
TEST_ROWS = 5000
FILE = BUILD / "crossover.json"
PICTURE = ROOT / "docs" / "img" / "crossover.png"


class Point(NamedTuple):
    removed: float = 0.0  # share of the training labels
    features: int = 0  # of a row at most; 0: all
    share: float = 1.0  # of the training rows
    C: float = 1.0


CURVES: dict[str, list[Point]] = {
    "removed": [Point(removed=share) for share in (0.0, 0.25, 0.5, 0.7, 0.8, 0.9)],
    "removed, 10 features": [Point(removed=share, features=10) for share in (0.0, 0.25, 0.5, 0.7, 0.8)],
    "features": [Point(features=n) for n in (5, 10, 20, 40, 0)],
    "rows": [Point(share=share) for share in (0.1, 0.25, 0.5, 1.0)],
    "C": [Point(C=C) for C in (0.1, 0.3, 1.0, 3.0)],
    "C, 0.8 removed": [Point(removed=0.8, C=C) for C in (0.1, 0.3, 1.0, 3.0)],
}
AS_THEY_ARE = [Point(), Point(C=0.3)]


def changed(data: _sets.Matrices, point: Point, rows: int, seed: int) -> _sets.Matrices:
    """The matrices with the property changed; the same rows for all points of a data set."""
    rng = np.random.default_rng(seed)
    X, Y, X_test, Y_test = data
    order = rng.permutation(X.shape[0])[: int(min(rows, X.shape[0]) * point.share)]
    test = np.sort(rng.permutation(X_test.shape[0])[:TEST_ROWS])
    X, Y, X_test, Y_test = X[np.sort(order)], Y[np.sort(order)], X_test[test], Y_test[test]
    keep = rng.random(Y.nnz) >= point.removed
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    Y = sp.csr_array((Y.data[keep], Y.indices[keep], kept_before[Y.indptr]), Y.shape)
    if point.features:
        X, X_test = (thinned(part, point.features, rng) for part in (X, X_test))
    return X, Y, X_test, Y_test


def thinned(X: sp.csr_array, features: int, rng: np.random.Generator) -> sp.csr_array:
    """Each row with at most so many of its features, at random."""
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    order = np.lexsort((rng.random(X.nnz), row))
    keep = np.sort(order[np.arange(X.nnz) - X.indptr[row] < features])
    sizes = np.minimum(np.diff(X.indptr), features)
    return sp.csr_array((X.data[keep], X.indices[keep], np.concatenate([[0], np.cumsum(sizes)])), X.shape)


def blended(one: tuple[Any, Any], other: tuple[Any, Any], weight: float) -> np.ndarray:
    """The five best labels by (1 − weight) × score of one + weight × score of the other."""
    best = np.full((len(one[0]), 5), -1, np.int32)
    for i, rows in enumerate(zip(*one, *other, strict=True)):
        scores: dict[int, float] = {}
        for ids, values, factor in ((rows[0], rows[1], 1 - weight), (rows[2], rows[3], weight)):
            for label, value in zip(ids.tolist(), values.tolist(), strict=True):
                if label >= 0:
                    scores[label] = scores.get(label, 0.0) + factor * value
        top = sorted(scores, key=lambda label: (-scores[label], label))[:5]
        best[i, : len(top)] = top
    return best


def measure(data: _sets.Matrices, point: Point, threads: int) -> dict[str, Any]:
    """Accuracy of the three models, and quantities that may predict which is ahead."""
    X, Y, X_test, Y_test = data
    trained = {
        "trees": Bonsai.preset("bonsai-i", C=point.C, random_state=0, n_jobs=threads),
        "one-vs-rest": Bonsai(classifiers="one_vs_rest", C=point.C, random_state=0, n_jobs=threads),
    }
    k = min(CANDIDATES, len(np.unique(Y.indices)))
    top = {name: model.fit(X, Y).top_k(X_test, k) for name, model in trained.items()}
    ids = {name: found[0] for name, found in top.items()}
    ids["blend"] = blended(top["one-vs-rest"], top["trees"], 0.5)
    scores = {name: metrics.evaluate(Y_test, ids[name][:, :5], Y_train=Y) for name in MODELS}
    sample = np.flatnonzero(np.diff(Y.indptr))[:: max(1, Y.shape[0] // 2000)]
    on_training = trained["one-vs-rest"].top_k(X[sample], 5)[0]
    return {
        **{name: {m: round(float(scores[name][m]), 3) for m in MEASURES} for name in MODELS},
        "features per row": X.nnz / X.shape[0],
        "rows per label": Y.nnz / len(np.unique(Y.indices)),
        "labels per row": Y.nnz / Y.shape[0],
        "P@1 on training rows": float(metrics.evaluate(Y[sample], on_training)["P@1"]),
        "P@1 on test rows": scores["one-vs-rest"]["P@1"],
        "best score": float(top["one-vs-rest"][1][:, 0].mean()),
    }


def measured(sets: list[str], others: list[str], rows: int, threads: int) -> list[dict[str, Any]]:
    done = json.loads(FILE.read_text()) if FILE.exists() else []
    known = {json.dumps([run["data"], run["rows"], run["point"]]) for run in done}
    plan = {name: [p for curve in CURVES.values() for p in curve] for name in sets}
    plan |= dict.fromkeys(others, AS_THEY_ARE)
    for name, points in plan.items():
        data = _sets.load(name)
        for point in dict.fromkeys(points):
            key = json.dumps([name, rows, point._asdict()])
            if key in known:
                continue
            run = measure(changed(data, point, rows, seed=0), point, threads)
            done.append({"data": name, "rows": rows, "point": point._asdict(), **run})
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(done, indent=1))
            print(line(done[-1]), flush=True)
    return done


def line(run: dict[str, Any]) -> str:
    cells = " | ".join(" / ".join(f"{run[model][m]:.1f}" for model in MODELS) for m in MEASURES)
    changes = ", ".join(f"{k} {v:g}" for k, v in run["point"].items() if v != Point._field_defaults[k])
    numbers = ("features per row", "rows per label", "P@1 on training rows", "best score")
    return (
        f"| {run['data']}: {changes or 'as it is'} | {cells} | "
        + " | ".join(f"{run[n]:.3g}" for n in numbers)
        + " |"
    )


def correlations(runs: list[dict[str, Any]]) -> str:
    """Spearman's correlation of each quantity with the lead of one-vs-rest, over all points at C = 1."""
    from scipy.stats import spearmanr

    runs = [run for run in runs if run["point"]["C"] == 1]
    names = [name for name in runs[0] if name.startswith(("features", "rows p", "labels", "P@1", "best"))]
    rows = []
    for name in names:
        values = [
            spearmanr([r[name] for r in runs], [r["one-vs-rest"][m] - r["trees"][m] for r in runs]).statistic
            for m in MEASURES
        ]
        rows.append(f"| {name} | " + " | ".join(f"{value:+.2f}" for value in values) + " |")
    return "\n".join(rows)


def draw(runs: list[dict[str, Any]], sets: list[str], rows: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    curves = {
        "removed": ("labels removed", lambda p: p["removed"]),
        "removed, 10 features": ("labels removed, 10 features per row", lambda p: p["removed"]),
        "features": ("features per row", lambda p: p["features"] or 100),
        "rows": ("share of the rows", lambda p: p["share"]),
        "C, 0.8 removed": ("C, four fifths of the labels removed", lambda p: p["C"]),
    }
    figure, axes = plt.subplots(
        len(sets), len(curves), figsize=(3 * len(curves), 2.8 * len(sets)), squeeze=False
    )
    styles = {
        "P@1": ("#1f5fa8", "-"),
        "P@5": ("#1f5fa8", "--"),
        "PSP@1": ("#c2571a", "-"),
        "PSP@5": ("#c2571a", "--"),
    }
    for r, name in enumerate(sets):
        at = {json.dumps(run["point"]): run for run in runs if run["data"] == name and run["rows"] == rows}
        for c, (curve, (title, x)) in enumerate(curves.items()):
            axis = axes[r][c]
            found = [at[json.dumps(p._asdict())] for p in CURVES[curve] if json.dumps(p._asdict()) in at]
            for m, (colour, dashes) in styles.items():
                lead = [run["one-vs-rest"][m] - run["trees"][m] for run in found]
                axis.plot(
                    [x(run["point"]) for run in found], lead, dashes, color=colour, marker="o", ms=3, label=m
                )
            axis.axhline(0, color="black", lw=0.8)
            if curve in ("features", "C, 0.8 removed", "rows"):
                axis.set_xscale("log")
            axis.set_xlabel(title)
            if c == 0:
                axis.set_ylabel(f"{name}\none-vs-rest − trees, points")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=72, pil_kwargs={"optimize": True})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["eurlex57k", "tibkat-core"])
    parser.add_argument("--others", nargs="*", default=["yso-sv", "eurlex57k-titles", "tibkat-core-titles"])
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", action="store_true", help="draw what has been measured, measure nothing")
    args = parser.parse_args()
    if args.plot:
        runs = json.loads(FILE.read_text())
    else:
        runs = measured(args.data, args.others, args.rows, args.threads)
    print("\n" + correlations(runs))
    draw(runs, args.data, args.rows)


if __name__ == "__main__":
    main()
