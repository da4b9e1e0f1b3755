"""The README's table: ours, the paper's variants and the peers, from what other benchmarks have measured.

    python -m benchmarks.variants                                                  # accuracy over five seeds
    python -m benchmarks.compare --data eurlex57k tibkat-core
    python -m benchmarks.table

Accuracy of ours is that of `variants`, as are sizes of models that `compare` does not train; everything else
is from `compare`; what was not measured is "–".
"""

import json
from statistics import mean, stdev
from typing import Any

from benchmarks.compare import RESULTS as COMPARED
from benchmarks.compare import markdown
from benchmarks.variants import MEASURES, VARIANTS, WITHOUT_SEED
from benchmarks.variants import RESULTS as VARIED

TITLES = {
    "eurlex57k": "**EURLEX57K**, test (45,000 rows, 4,108 labels)",
    "tibkat-core": "**TIBKAT core**, dev (41,902 rows, 24,473 labels)",
}
NAMES = {
    "default": "`Bonsai()`: one-vs-rest",
    "bonsai-i": "Bonsai-i",
    "bonsai-o": "Bonsai-o",
    "bonsai-io": "Bonsai-io",
    "parabel": "Parabel",
    "dismec": "DiSMEC",
    "omikuji": "omikuji 0.5.2",
    "pecos": "PECOS 1.2.8",
    "napkinxc": "napkinXC 0.7.2, logistic",
    "napkinxc-l2": "napkinXC 0.7.2, squared hinge",
}
IN_COMPARE = {"default": "ours", "bonsai-i": "ours-trees"}
COSTS = {
    "train s": "{:.1f}",
    "peak MB": "{:,.0f}",
    "model MB": "{:.0f}",
    "rows/s": "{:,.0f}",
    "p50 ms": "{:.2f}",
}


def accuracy(known: dict[str, Any], name: str, variant: str) -> list[str] | None:
    seeds = range(1) if variant in WITHOUT_SEED else range(5)
    runs = [known.get(f"{name} {variant} {seed}") for seed in seeds]
    found = [run for run in runs if run is not None]
    if len(found) < len(runs):
        return None
    cells = []
    for measure in MEASURES:
        values = [run[measure] for run in found]
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        cells.append(f"{mean(values):.2f}{spread}")
    return cells


def main() -> None:
    varied = json.loads(VARIED.read_text()) if VARIED.exists() else {}
    compared = json.loads(COMPARED.read_text())["tables"] if COMPARED.exists() else {}
    body = []
    for name, title in TITLES.items():
        figures = compared.get(name, {}).get("figures", {})
        body.append([title, *[""] * (len(MEASURES) + len(COSTS))])
        for system, shown in NAMES.items():
            measured = figures.get(IN_COMPARE.get(system, system), {})
            scores = accuracy(varied, name, system) if system in VARIANTS else None
            if scores is None:
                scores = [f"{measured[m]['mean']:.2f}" if m in measured else "–" for m in MEASURES]
            sizes = [run["model MB"] for key, run in varied.items() if key.startswith(f"{name} {system} ")]
            if sizes:
                measured = {"model MB": {"mean": mean(sizes)}} | measured
            costs = [form.format(measured[c]["mean"]) if c in measured else "–" for c, form in COSTS.items()]
            body.append([shown, *scores, *costs])
    print(markdown(["", *MEASURES, *(cost.replace("p50", "one row") for cost in COSTS)], body))


if __name__ == "__main__":
    main()
