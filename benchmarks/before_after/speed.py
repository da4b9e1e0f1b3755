"""Compare two checkouts of this repository in one run, alternating between them.

    python -m benchmarks.before_after speed ../old                     # this checkout is the new one
    python -m benchmarks.before_after speed ../old ../new --data delicious --repeats 5

Each checkout must be built (`make demo` does it): its own `.venv/bin/python` runs it. The default model and
three trees (`preset("bonsai-i")`) are trained and evaluated on each data set; old and new take turns, and
the one that comes first changes with every repeat. Times and memory are medians over the repeats, accuracy
is the mean; both sides use the same seeds. How each number is measured: `benchmarks/_runs.py`. Needs the
data sets (see BONSAI_DATA in CONTRIBUTING.md). Nothing is stored: a comparison is valid only within one
run.
"""

import argparse
from pathlib import Path
from statistics import mean, median

from benchmarks._runs import ROOT, Run, commit, machine, markdown, run, say

DATA = ("eurlex57k", "tibkat-core", "delicious")
MODELS = {"ours": "default model", "ours-trees": "three trees"}
COSTS = {
    "train s": ("training, s", 2),
    "cpu s": ("training, CPU s", 2),
    "peak MB": ("peak resident memory, MB", 0),
    "model MB": ("model, MB", 2),
    "rows/s": ("batch throughput, rows/s", 0),
    "p50 ms": ("single-row latency, p50 ms", 3),
    "p99 ms": ("single-row latency, p99 ms", 3),
}
QUALITY = [f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5)]


def python_of(checkout: Path) -> Path:
    python = checkout.resolve() / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing: build the checkout first (make demo)")
    return python


def order(repeat: int) -> tuple[str, str]:
    return ("old", "new") if repeat % 2 == 0 else ("new", "old")


def measure(sides: dict[str, Path], name: str, args: argparse.Namespace) -> dict[tuple[str, str], list[Run]]:
    """Return the runs by (side, model)."""
    runs: dict[tuple[str, str], list[Run]] = {(side, model): [] for side in sides for model in MODELS}
    for repeat in range(args.repeats):
        for model in MODELS:
            for side in order(repeat):
                done = run(sides[side], name, model, repeat, args.threads, args.limit, f"{side}-")
                runs[side, model].append(done)
                outcome = done.get("error") or f"trained in {done['train s']:.2f} s"
                say(f"{name}, {MODELS[model]}, repeat {repeat + 1}, {side}: {outcome}")
    return runs


def table(old: list[Run], new: list[Run]) -> str:
    """Return old and new side by side; the last column is a ratio for costs, a difference for accuracy."""
    errors = {r["error"] for r in (*old, *new) if "error" in r}
    if errors:
        return "failed: " + "; ".join(sorted(errors))
    body = []
    for key, (title, digits) in COSTS.items():
        before, after = (median(r[key] for r in side) for side in (old, new))
        body.append([title, f"{before:,.{digits}f}", f"{after:,.{digits}f}", f"× {after / before:.2f}"])
    for key in QUALITY:
        before, after = (mean(r[key] for r in side) for side in (old, new))
        body.append([key, f"{before:.2f}", f"{after:.2f}", f"{after - before:+.2f}".replace("-", "−")])
    return markdown(["", "old", "new", "change"], body)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("old", type=Path, help="the checkout to compare with")
    add("new", type=Path, nargs="?", default=ROOT, help="default: this one")
    add("--data", nargs="+", default=list(DATA), metavar="NAME", help=f"default: {' '.join(DATA)}")
    add("--threads", type=int, default=2, help="for training and batches (default 2)")
    add("--repeats", type=int, default=3, help="runs of each model on each side (default 3)")
    add("--limit", type=float, default=1800, metavar="S", help="time limit of a process (default 1800)")
    args = parser.parse_args()
    sides = {"old": python_of(args.old), "new": python_of(args.new)}
    facts = {"old": commit(args.old), "new": commit(args.new)} | machine(args.threads)
    facts["repeats"] = args.repeats
    del facts["commit"]
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    for name in args.data:
        runs = measure(sides, name, args)
        for model, title in MODELS.items():
            print(f"\n{name}, {title}\n\n{table(runs['old', model], runs['new', model])}", flush=True)


if __name__ == "__main__":
    main()
