"""The effect of parameters on accuracy, time and size, measured and drawn.

    python -m benchmarks.effects                   # measures what is missing, draws docs/img/effect-*.svg
    python -m benchmarks.effects --only C prune    # some of them

Each parameter has some values, all others their default; seed 0, one thread, CPU times of this process. The
data are EURLEX57K, for `n_probe` TIBKAT core (see BONSAI_DATA). Measurements are kept in --results, a JSON
file; those that are there are not made again.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from reproduce import known

from bonsai_xmc import Bonsai, metrics
from bonsai_xmc.metrics._report import charts


class Effect(NamedTuple):
    values: tuple[Any, ...]
    others: dict[str, Any]  # parameters besides the one that changes
    data: str = "eurlex57k"
    trained: bool = True  # otherwise it is a parameter of prediction


_ONE_VS_REST = {"classifiers": "one_vs_rest", "search": "exact"}
_TREES = {"classifiers": "leaf"}
EFFECTS = {
    "classifiers": Effect(("leaf", "one_vs_rest", "blend"), {}),
    "C": Effect((0.03, 0.1, 0.3, 1, 3, 10), _ONE_VS_REST),
    "prune": Effect((0.01, 0.02, 0.05, 0.1, 0.2, 0.4), _ONE_VS_REST),
    "n_trees": Effect((1, 2, 3, 5, 10), _TREES),
    "branching_factor": Effect((4, 8, 16, 32, 100, 300), _TREES),
    "beam_size": Effect((1, 2, 5, 10, 20, 50), _TREES, trained=False),
    "n_probe": Effect(
        (1, 4, 16, 36, 64, None),
        {"classifiers": "one_vs_rest", "search": "index"},
        "tibkat-core",
        trained=False,
    ),
}

load = cache(known.load)


def measure(name: str, missing: list[Any]) -> Iterator[tuple[Any, dict[str, float]]]:
    """Figures for each value."""
    effect = EFFECTS[name]
    model: Bonsai | None = None
    seconds = 0.0
    for value in missing:
        if effect.trained or model is None:
            options = effect.others | ({name: value} if effect.trained else {})
            model, seconds = _trained(options, effect.data)
        if not effect.trained:
            model.set_params(**{name: value})
        yield value, _figures(model, effect.data) | {"training_s": seconds}


def _trained(options: dict[str, Any], data: str) -> tuple[Bonsai, float]:
    rows = load(data)
    begin = time.process_time()
    model = Bonsai(**options, threshold=0.5, n_jobs=1).fit(rows.X_train, rows.Y_train)
    return model, time.process_time() - begin


def _figures(model: Bonsai, data: str) -> dict[str, float]:
    rows = load(data)
    model.top_k(rows.X_test[:100], 5)
    begin = time.process_time()
    ids, _ = model.top_k(rows.X_test, 5)
    seconds = time.process_time() - begin
    found = metrics.evaluate(rows.Y_test, ids, rows.Y_train, k=5)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        model.save(path)
        size = os.path.getsize(path) / 1e6
    speed = {"prediction_us": 1e6 * seconds / rows.X_test.shape[0], "model_mb": size}
    return {"P@5": found["P@5"], "PSP@5": found["PSP@5"], **speed}


def draw(name: str, found: dict[str, dict[str, float]]) -> str:
    """Accuracy, then what is paid for it."""
    effect = EFFECTS[name]
    told = ["all" if value is None else str(value) for value in effect.values]
    column = lambda key: [found[json.dumps(value)][key] for value in effect.values]
    accuracy = {key: column(key) for key in ("P@5", "PSP@5")}
    parts = [charts.lines("P@5 (circles) and PSP@5, %", told, accuracy, name, from_0=False)]
    paid = {"prediction_us": "prediction, µs of CPU for each row"}
    if effect.trained:
        paid = {"training_s": "training, CPU s", **paid, "model_mb": "model, MB"}
    parts += [charts.lines(title, told, {"": column(key)}, name) for key, title in paid.items()]
    return charts.standalone(parts, columns=2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=EFFECTS, default=list(EFFECTS))
    parser.add_argument("--results", type=Path, default=Path("build/effects.json"), metavar="FILE")
    parser.add_argument("--output", type=Path, default=Path("docs/img"), metavar="DIR")
    args = parser.parse_args()
    results = json.loads(args.results.read_text()) if args.results.exists() else {}
    for name in args.only:
        known = results.setdefault(name, {})
        missing = [value for value in EFFECTS[name].values if json.dumps(value) not in known]
        for value, figures in measure(name, missing):
            known[json.dumps(value)] = figures
            args.results.parent.mkdir(parents=True, exist_ok=True)
            args.results.write_text(json.dumps(results, indent=1))
            print(name, value, " ".join(f"{key} {figure:.2f}" for key, figure in figures.items()), flush=True)
        (args.output / f"effect-{name}.svg").write_text(draw(name, known), encoding="utf-8")


if __name__ == "__main__":
    main()
