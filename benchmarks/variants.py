"""Accuracy of one-vs-rest and of the presets on real data, over seeds, as a Markdown table.

    python -m benchmarks.variants                 # about ten minutes on two cores
    python -m benchmarks.variants --data eurlex57k --variants bonsai-i dismec --seeds 1

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

from bonsai_xmc import Bonsai, datasets, metrics

RESULTS = Path(__file__).parent / "results" / "variants.json"
VARIANTS = ("one-vs-rest", "bonsai-i", "bonsai-o", "bonsai-io", "parabel", "dismec")
WITHOUT_SEED = ("dismec",)  # no random tree; only the order of the rows depends on the seed
MEASURES = [f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5)]


def run(data: datasets.Dataset, name: str, variant: str, seed: int) -> dict[str, Any]:
    begin = time.perf_counter()
    one_vs_rest = partial(Bonsai, classifiers="one_vs_rest")
    make = one_vs_rest if variant == "one-vs-rest" else partial(Bonsai.preset, variant)
    model = make(random_state=seed, threshold=0.5).fit(data.X_train, data.Y_train)
    fitted = time.perf_counter()
    ids, _ = model.top_k(data.X_test, k=5)
    predicted = time.perf_counter()
    scores = metrics.evaluate(data.Y_test, ids, Y_train=data.Y_train, dataset=name)
    file = RESULTS.parent / "variants.bonsai"
    model.save(file)
    size = file.stat().st_size
    file.unlink()
    figures = {measure: scores[measure] for measure in MEASURES}
    return figures | {"fit s": fitted - begin, "predict s": predicted - fitted, "model MB": size / 1e6}


def row(variant: str, runs: list[dict[str, Any]]) -> str:
    def cell(measure: str) -> str:
        values = [r[measure] for r in runs]
        return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")

    size = mean(r["model MB"] for r in runs)
    return f"| {variant} | " + " | ".join(cell(m) for m in MEASURES) + f" | {size:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["eurlex57k", "tibkat-core"])
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in args.data:
        data = known.load(name)
        print(f"\n{name}\n\n| | {' | '.join(MEASURES)} | model MB |\n|{' --- |' * (len(MEASURES) + 2)}")
        for variant in args.variants:
            runs = []
            for seed in range(1 if variant in WITHOUT_SEED else args.seeds):
                key = f"{name} {variant} {seed}"
                if key not in known:
                    known[key] = run(data, name, variant, seed)
                    RESULTS.write_text(json.dumps(known, indent=1))
                runs.append(known[key])
            print(row(variant, runs), flush=True)


if __name__ == "__main__":
    main()
