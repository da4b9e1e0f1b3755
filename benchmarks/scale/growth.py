"""Measure scaling on generated data: large shapes, and growth with rows, features, labels and threads.

    python -m benchmarks.scale growth shapes  # full size of Amazon-670K and WikiLSHTC-325K
    python -m benchmarks.scale growth shapes --shapes amazon-670k --scale 0.1
    python -m benchmarks.scale growth growth  # one dimension at a time; a few minutes
    python -m benchmarks.scale growth one-vs-rest  # growth of one-vs-rest; exact and beam search

Generated data (`datasets.make_xmc`), three trees (`bonsai-i`), each measurement in a process of its own.
Results are stored in benchmarks/results/scale.json; `growth` draws docs/img/growth.svg. Peak resident
memory is that of `fit`, data included (Linux only). "core s" is the CPU time of `fit`, which other work on
the machine affects less than wall-clock time.
"""

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._runs import BUILD, ROOT
from bonsai_xmc import Bonsai, datasets, metrics

RESULTS = BUILD / "growth.json"
PICTURE = ROOT / "docs" / "img" / "growth.svg"
SHAPES = ("amazon-670k", "wikilshtc-325k")
BASE = {"n_rows": 20_000, "n_features": 20_000, "n_labels": 4_000}
FACTORS = (1, 2, 4, 8)
PHASES = ("label vectors", "trees", "classifiers", "one-vs-rest")
N_PREDICTED = 20_000
N_SINGLE = 500


def measure(data_params: dict[str, Any], threads: int, preset: str, params: dict[str, Any]) -> dict[str, Any]:
    """Train and predict once; runs in a fresh process."""
    data = datasets.make_xmc(**data_params, random_state=0)
    before = _resident("VmRSS")
    _reset_peak()
    begin, core_begin = time.perf_counter(), time.process_time()
    options = {"n_jobs": threads, "random_state": 0} | params
    model = Bonsai(**options) if preset == "default" else Bonsai.preset(preset, **options)
    model.fit(data.X_train, data.Y_train)
    fit_s, core_s, phases = time.perf_counter() - begin, time.process_time() - core_begin, model.timings_
    peak = _resident("VmHWM")
    rows, truth = data.X_test[:N_PREDICTED], data.Y_test[:N_PREDICTED]
    begin = time.perf_counter()
    ids, _ = model.top_k(rows, k=5)
    predict_s = time.perf_counter() - begin
    scores = metrics.evaluate(truth, ids, Y_train=data.Y_train)
    file = RESULTS.parent / f"scale-{os.getpid()}.bonsai"
    model.save(file)
    begin = time.perf_counter()
    model = Bonsai.load(file)
    load_s = time.perf_counter() - begin
    model.n_jobs = 1
    singles = [rows[i : i + 1] for i in range(min(N_SINGLE, rows.shape[0]))]
    latencies = []
    for row in singles:
        begin = time.perf_counter()
        model.top_k(row, k=5)
        latencies.append(time.perf_counter() - begin)
    model_mb = file.stat().st_size / 1e6
    file.unlink()
    return {
        "rows": data.X_train.shape[0],
        "features": data.X_train.shape[1],
        "labels": data.Y_train.shape[1],
        "features per row": data.X_train.nnz / data.X_train.shape[0],
        "labels per row": data.Y_train.nnz / data.X_train.shape[0],
        "threads": threads,
        "fit s": fit_s,
        "core s": core_s,
        "phases s": phases,
        "before MB": before,
        "peak MB": peak,
        "model MB": model_mb,
        "load ms": load_s * 1e3,
        "rows/s": rows.shape[0] / predict_s,
        "p50 ms": float(np.median(latencies)) * 1e3,
        "p99 ms": float(np.quantile(latencies, 0.99)) * 1e3,
        "P@1": scores["P@1"],
        "P@5": scores["P@5"],
    }


def _resident(field: str) -> float | None:
    """Return the resident memory of this process in MB: VmRSS (now) or VmHWM (peak)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith(field + ":")), None)


def _reset_peak() -> None:
    """Exclude the generation of the data from the peak."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("peak memory includes the generation of the data")


def in_fresh_process(*args: Any) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, args)


def known_results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def run(
    key: str, data_params: dict[str, Any], threads: int, fresh: bool, preset: str = "bonsai-i", **params: Any
) -> dict[str, Any]:
    """Return the stored result, or measure and store it."""
    known = known_results()
    if fresh or key not in known:
        print(f"{key} …", flush=True)
        result = in_fresh_process(data_params, threads, preset, params)
        known = known_results() | {key: result}
        RESULTS.write_text(json.dumps(known, indent=1))
    return known[key]


def shapes(
    names: list[str], scale: float, preset: str, classifiers: str | None, threads: int, fresh: bool
) -> None:
    rows = []
    for name in names:
        key = f"{name} * {scale:g}, {threads} threads" + ("" if preset == "bonsai-i" else f", {preset}")
        params = {} if classifiers is None else {"classifiers": classifiers}
        key += "".join(f", {value}" for value in params.values())
        r = run(key, {"shape": name, "scale": scale}, threads, fresh, preset, **params)
        cells = (
            name if scale == 1 else f"{name} * {scale:g}",
            f"{r['rows']:,} × {r['features']:,}",
            f"{r['labels']:,}",
            *(f"{r['phases s'].get(phase, 0):,.0f}" for phase in PHASES),
            *(
                f"{r[c]:,.0f}" if r.get(c) is not None else "–"
                for c in ("fit s", "core s", "before MB", "peak MB", "model MB")
            ),
            f"{r['load ms']:.1f}",
            f"{r['rows/s']:,.0f}",
            f"{r['p50 ms']:.2f}",
            f"{r['p99 ms']:.2f}",
            f"{r['P@1']:.1f}",
        )
        rows.append("| " + " | ".join(cells) + " |")
    print(
        f"\n{preset}, {threads} threads\n\n| shape | rows × features | labels | "
        + " | ".join(f"{phase} s" for phase in PHASES)
        + " | fit s | core s | before MB | peak MB | model MB | load ms | rows/s | p50 ms | "
        "p99 ms | P@1 |\n" + "| --- " * 17 + "|"
    )
    print("\n".join(rows))


def growth(threads: int, fresh: bool) -> None:
    """Vary one dimension at a time from the same base, then the threads."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for dimension in BASE:
        curves[dimension] = []
        for factor in FACTORS:
            sizes = BASE | {dimension: BASE[dimension] * factor, "n_test": 2_000}
            curves[dimension].append(
                run(f"growth {dimension} * {factor}, {threads} threads", sizes, threads, fresh)
            )
    sizes = BASE | {"n_rows": 4 * BASE["n_rows"], "n_test": 2_000}
    curves["threads"] = [run(f"growth threads {n}", sizes, n, fresh) for n in range(1, threads + 1)]
    print(
        "\n| | "
        + " | ".join(f"× {f}" for f in FACTORS)
        + " | exponent |\n"
        + "| --- " * (len(FACTORS) + 2)
        + "|"
    )
    for dimension in BASE:
        for unit, what in (("s", "fit s"), ("MB", "added MB"), ("MB", "model MB")):
            values = [_value(r, what) for r in curves[dimension]]
            cells = " | ".join(f"{v:,.1f}" for v in values)
            name = {"fit s": "time", "added MB": "memory added by training", "model MB": "model"}[what]
            print(f"| {dimension[2:]}: {name} ({unit}) | {cells} | {exponent(FACTORS, values):.2f} |")
    one, *more = curves["threads"]
    for r in more:
        ratios = {phase: one["phases s"][phase] / r["phases s"][phase] for phase in one["phases s"]}
        listed = ", ".join(f"{phase} {ratio:.2f}" for phase, ratio in ratios.items())
        print(
            f"\n{r['threads']} threads against one: {one['fit s'] / r['fit s']:.2f} times as fast ({listed})"
        )
    draw(curves)


def one_vs_rest(threads: int, fresh: bool) -> None:
    """Measure training time by rows and labels, and prediction time of exact and beam search by labels."""
    for dimension, factors in (("n_rows", FACTORS), ("n_labels", (*FACTORS, 16))):
        results: dict[str, list[dict[str, Any]]] = {}
        for search in ("exact", "beam") if dimension == "n_labels" else ("exact",):
            results[search] = [
                run(
                    f"one-vs-rest {search} {dimension} * {factor}, {threads} threads",
                    BASE | {dimension: BASE[dimension] * factor, "n_test": 2_000},
                    threads,
                    fresh,
                    "default",
                    classifiers="one_vs_rest",
                    search=search,
                )
                for factor in factors
            ]
        exact = results["exact"]
        print(
            f"\n| {dimension[2:]} | " + " | ".join(f"{r[dimension[2:]]:,}" for r in exact) + " | exponent |"
        )
        print("| --- " * (len(factors) + 2) + "|")
        rows = [("training s", "exact", lambda r: r["phases s"]["one-vs-rest"])]
        for search in results:
            name = "exact search" if search == "exact" else "beam search in three trees"
            rows += [(f"{name}, batch: µs per row", search, lambda r: 1e6 / r["rows/s"])]
            rows += [(f"{name}, single row: p50 µs", search, lambda r: 1e3 * r["p50 ms"])]
        for name, search, value in rows:
            values = [value(r) for r in results[search]]
            cells = " | ".join(f"{v:,.4g}" for v in values)
            print(f"| {name} | {cells} | {exponent(factors, values):.2f} |")
    largest = exact[-1]
    entries = largest["rows"] * largest["features per row"]
    pair = largest["phases s"]["one-vs-rest"] / (largest["labels"] * entries)
    shape = datasets.SHAPES["amazon-670k"]
    hours = pair * shape.n_labels * shape.n_rows * shape.features_per_row / 3600
    print(f"\n{1e12 * pair:.2f} ps per (label, entry of X) pair at {largest['labels']:,} labels.")
    print(f"Extrapolated to Amazon-670K: {hours:.1f} hours")


def _value(result: dict[str, Any], what: str) -> float:
    if what == "added MB":  # in addition to the data
        return float(result["peak MB"] - result["before MB"])
    return float(result[what])


def exponent(factors: tuple[int, ...], values: list[float]) -> float:
    """Return the slope of log(value) over log(factor), by least squares."""
    return float(np.polyfit(np.log(factors), np.log(values), 1)[0])


def draw(curves: dict[str, list[dict[str, Any]]]) -> None:
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        print("no figure: matplotlib is not installed")
        return
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    looks = {"n_rows": ("#0072B2", "o"), "n_features": ("#D55E00", "s"), "n_labels": ("#009E73", "^")}
    for ax, what, title in zip(
        axes, ("fit s", "added MB"), ("training time (s)", "memory added by training (MB)"), strict=True
    ):
        for dimension, (colour, marker) in looks.items():
            values = [_value(r, what) for r in curves[dimension]]
            slope = exponent(FACTORS, values)
            ax.plot(
                FACTORS, values, color=colour, marker=marker, label=f"{dimension[2:]}, exponent {slope:.2f}"
            )
        ax.set(xscale="log", yscale="log", xlabel="size relative to the base", title=title)
        ax.set_xticks(FACTORS, [str(f) for f in FACTORS])
        ax.minorticks_off()
        low, high = ax.get_ylim()
        ticks = [t for e in range(-2, 7) for t in (1 * 10**e, 2 * 10**e, 5 * 10**e) if low <= t <= high]
        ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})
    print(f"\n{PICTURE}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["shapes", "growth", "one-vs-rest"])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--preset",
        default="bonsai-i",
        help="for shapes; 'default' is Bonsai() (default: bonsai-i)",
    )
    parser.add_argument("--classifiers", help="for shapes: leaf or one_vs_rest instead of the preset's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored")
    args = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    if args.what == "shapes":
        shapes(args.shapes, args.scale, args.preset, args.classifiers, args.threads, args.fresh)
    elif args.what == "one-vs-rest":
        one_vs_rest(args.threads, args.fresh)
    else:
        growth(args.threads, args.fresh)


if __name__ == "__main__":
    main()
