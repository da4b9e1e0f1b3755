"""Compare the default model with trees, one-vs-rest and their blend with equal weights.

    python -m benchmarks.default                           # all data sets; about an hour with two threads
    python -m benchmarks.default --data bibtex delicious   # some of them
    python -m benchmarks.default --table                   # the table again, from build/default.json

Every model is trained on all training rows and evaluated on the test part, which no choice has seen.
Time is CPU time of all threads, which depends less on what else the machine does. Finished runs are kept in
build/default.json and not measured again. Needs the data sets (see BONSAI_DATA in CONTRIBUTING.md).
"""

import argparse
import json
import time
from typing import Any

from benchmarks import _sets
from benchmarks._runs import BUILD
from bonsai_xmc import Bonsai, metrics

MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
JUDGED = ("P@1", "P@5", "PSP@1", "PSP@5")
EQUAL: dict[str, Any] = {"classifiers": "blend", "blend_weight": 0.5, "logit_adjustment": 0.0, "C": 1.0}
MODELS: dict[str, dict[str, Any]] = {
    "trees": {"classifiers": "leaf"},
    "one-vs-rest": {"classifiers": "one_vs_rest"},
    "equal blend": EQUAL,
    "default": {},
    "default without row trees": {"blend_weight": ("auto", 0.0)},
}
SIMPLE = ("trees", "one-vs-rest", "equal blend")
WITHIN = 0.1  # points that the default may be behind the best of the simple ones
FILE = BUILD / "default.json"

Run = dict[str, Any]


def measure(data: _sets.Matrices, options: dict[str, Any], seed: int, threads: int) -> Run:
    X, Y, X_test, Y_test = data
    begin = time.process_time()
    model = Bonsai(**options, random_state=seed, n_jobs=threads).fit(X, Y)
    seconds = time.process_time() - begin
    scores = metrics.evaluate(Y_test, model.top_k(X_test, 5)[0], Y_train=Y)
    strategy = model.strategy_
    return {
        **{measure: float(scores[measure]) for measure in MEASURES},
        "CPU s": seconds,
        "share of choosing": model.timings_.get("held-out rows", 0.0) / sum(model.timings_.values()),
        "classifiers": strategy.classifiers,
        "C": strategy.C,
        "blend_weight": strategy.blend_weight,
        "logit_adjustment": strategy.logit_adjustment,
        "row_tree_weight": strategy.row_tree_weight,
        "evidence": strategy.evidence,
    }


def measured(sets: list[str], models: list[str], seed: int, threads: int) -> dict[str, Run]:
    runs: dict[str, Run] = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in sets:
        missing = [model for model in models if f"{name}/{model}/{seed}" not in runs]
        data = _sets.load(name) if missing else None
        for model in missing:
            assert data is not None
            run = measure(data, MODELS[model], seed, threads)
            runs[f"{name}/{model}/{seed}"] = run
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(runs, indent=1))
            print(row(name, model, run), flush=True)
    return runs


def row(name: str, model: str, run: Run) -> str:
    chosen = "–"
    if model not in SIMPLE:
        chosen = f"{run['classifiers']}, C {run['C']:g}"
        if run["classifiers"] == "blend":
            chosen += f", weight {run['blend_weight']:g}"
        chosen += f", adjustment {run['logit_adjustment']:g}"
        chosen += f", row trees {run['row_tree_weight']:g}" * (run["row_tree_weight"] > 0)
    cells = " | ".join(f"{run[measure]:.2f}" for measure in MEASURES)
    return f"| {name} | {model} | {cells} | {run['CPU s']:.0f} | {chosen} |"


def lead(runs: dict[str, Run], name: str, seed: int) -> dict[str, float]:
    """Return by how much the default is ahead of the best simple model, for each measure."""
    best = {m: max(runs[f"{name}/{model}/{seed}"][m] for model in SIMPLE) for m in JUDGED}
    return {m: runs[f"{name}/default/{seed}"][m] - best[m] for m in JUDGED}


def table(runs: dict[str, Run], sets: list[str], seed: int) -> str:
    head = ("data", "model", *MEASURES, "CPU s", "chosen on held-out rows")
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    complete = [name for name in sets if all(f"{name}/{model}/{seed}" in runs for model in MODELS)]
    for name in complete:
        lines += [row(name, model, runs[f"{name}/{model}/{seed}"]) for model in MODELS]
    lines += ["", f"| default − best of the three | {' | '.join(JUDGED)} | choosing, share of the time |"]
    lines.append("| --- " * (len(JUDGED) + 2) + "|")
    leads = {name: lead(runs, name, seed) for name in complete}
    for name, values in leads.items():
        share = runs[f"{name}/default/{seed}"]["share of choosing"]
        cells = " | ".join(f"{values[m]:+.2f}" for m in JUDGED)
        lines.append(f"| {name} | {cells} | {100 * share:.0f} % |")
    every = [value for values in leads.values() for value in values.values()]
    if every:
        near, ahead = sum(v >= -WITHIN for v in every), sum(v > 0 for v in every)
        lines.append(f"\nWithin {WITHIN} or ahead in {near} of {len(every)}, ahead in {ahead}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=_sets.SETS, choices=_sets.SETS, metavar="DATA")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.table:
        runs = json.loads(FILE.read_text())
    else:
        runs = measured(args.data, args.models, args.seed, args.threads)
    print("\n" + table(runs, args.data, args.seed))


if __name__ == "__main__":
    main()
