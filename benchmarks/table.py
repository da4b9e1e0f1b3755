"""The tables of README.md and docs/performance.md, from what other benchmarks have stored.

    python -m benchmarks.variants                                # accuracy over five seeds
    python -m benchmarks.compare --data eurlex57k tibkat-core
    python -m benchmarks.table                                   # README.md, then docs/performance.md

Accuracy of ours is that of `variants`, as are the sizes of models that `compare` does not train. All other
numbers are from `compare`; "–" was not measured.
"""

import json
from statistics import mean, stdev
from typing import Any

from benchmarks._runs import markdown
from benchmarks.compare import RESULTS as COMPARED
from benchmarks.variants import MEASURES, VARIANTS, WITHOUT_SEED
from benchmarks.variants import RESULTS as VARIED

TITLES = {
    "eurlex57k": "**EURLEX57K**: 45,000 training rows, 6,000 test rows, 4,108 labels",
    "tibkat-core": "**TIBKAT core**: 41,902 training rows, 6,980 dev rows, 24,473 labels",
}
NAMES = {
    "one-vs-rest": "bonsai-xmc, one-vs-rest",
    "bonsai-i": "bonsai-xmc, three trees (`bonsai-i`)",
    "bonsai-o": "`bonsai-o`",
    "bonsai-io": "`bonsai-io`",
    "parabel": "`parabel`",
    "dismec": "`dismec`",
    "omikuji": "omikuji 0.5.2",
    "pecos": "PECOS 1.2.8",
    "napkinxc": "napkinXC 0.7.2, logistic",
    "napkinxc-l2": "napkinXC 0.7.2, squared hinge",
}
README_SYSTEMS = ("one-vs-rest", "bonsai-i", "omikuji", "pecos")
README_COLUMNS = ("P@1", "P@5", "PSP@5", "train s", "rows/s", "model MB")
IN_COMPARE = {"one-vs-rest": "ours-one-vs-rest", "bonsai-i": "ours-trees"}
COSTS = {
    "train s": ("training, s", "{:.1f}"),
    "peak MB": ("peak memory, MB", "{:,.0f}"),
    "model MB": ("model, MB", "{:.0f}"),
    "rows/s": ("batch, rows/s", "{:,.0f}"),
    "p50 ms": ("single row, p50 ms", "{:.2f}"),
}


def accuracy(stored: dict[str, Any], name: str, variant: str) -> dict[str, str]:
    """Mean ± standard deviation over seeds; empty unless all seeds are there."""
    seeds = range(1) if variant in WITHOUT_SEED else range(5)
    runs = [stored[key] for seed in seeds if (key := f"{name} {variant} {seed}") in stored]
    if len(runs) < len(seeds):
        return {}
    values = {measure: [run[measure] for run in runs] for measure in MEASURES}
    spread = lambda of: f" ± {stdev(of):.2f}" if len(of) > 1 else ""
    return {measure: f"{mean(of):.2f}{spread(of)}" for measure, of in values.items()}


def cells(varied: dict[str, Any], compared: dict[str, Any], name: str, system: str) -> dict[str, str]:
    """All that is known of a system on a data set, by column."""
    figures = compared.get(name, {}).get("figures", {}).get(IN_COMPARE.get(system, system), {})
    result = {m: f"{figures[m]['mean']:.2f}" for m in MEASURES if m in figures}
    result |= accuracy(varied, name, system) if system in VARIANTS else {}
    sizes = [run["model MB"] for key, run in varied.items() if key.startswith(f"{name} {system} ")]
    if sizes:
        result["model MB"] = COSTS["model MB"][1].format(mean(sizes))
    return result | {c: form.format(figures[c]["mean"]) for c, (_, form) in COSTS.items() if c in figures}


def table(
    varied: dict[str, Any], compared: dict[str, Any], systems: tuple[str, ...], columns: tuple[str, ...]
) -> str:
    body = []
    for name, title in TITLES.items():
        body.append([title, *[""] * len(columns)])
        for system in systems:
            found = cells(varied, compared, name, system)
            body.append([NAMES[system], *(found.get(column, "–") for column in columns)])
    return markdown(["", *(COSTS[c][0] if c in COSTS else c for c in columns)], body)


def main() -> None:
    varied = json.loads(VARIED.read_text()) if VARIED.exists() else {}
    compared = json.loads(COMPARED.read_text())["tables"] if COMPARED.exists() else {}
    print(table(varied, compared, README_SYSTEMS, README_COLUMNS) + "\n")
    print(table(varied, compared, tuple(NAMES), (*MEASURES, *COSTS)))


if __name__ == "__main__":
    main()
