"""What a checkpoint costs: core-seconds of training with and without one, and its size.

    python -m benchmarks.checkpoint                      # a tenth of the shape of Amazon-670K; minutes
    python -m benchmarks.checkpoint --data eurlex57k

Each in a process of its own, with and without in turn; the smallest of the repeats counts.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

from reproduce import known

from benchmarks._runs import generated, markdown
from bonsai_xmc import Bonsai

MODELS: dict[str, dict[str, Any]] = {
    "one-vs-rest": {"classifiers": "one_vs_rest", "threshold": 0.5},
    "three trees": {"classifiers": "leaf", "threshold": 0.5},
}


def fit(name: str, data_name: str, folder: str | None) -> tuple[float, float]:
    """Core-seconds of `fit`, and megabytes of the checkpoint."""
    data = generated(data_name) or known.load(data_name)
    begin = time.process_time()
    Bonsai(**MODELS[name]).fit(data.X_train, data.Y_train, checkpoint=folder)
    seconds = time.process_time() - begin
    files = [] if folder is None else [p for p in Path(folder).iterdir() if p.is_file()]
    return seconds, sum(p.stat().st_size for p in files) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", default="amazon-670k*0.1")
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    table = []
    for name in MODELS:
        without, with_one, size = [], [], 0.0
        for _ in range(args.repeats):
            spawn = multiprocessing.get_context("spawn")
            with tempfile.TemporaryDirectory() as folder, spawn.Pool(1, maxtasksperchild=1) as pool:
                without.append(pool.apply(fit, (name, args.data, None))[0])
                seconds, size = pool.apply(fit, (name, args.data, folder))
                with_one.append(seconds)
        share = min(with_one) / min(without) - 1
        table.append(
            [name, f"{min(without):.1f}", f"{min(with_one):.1f}", f"{100 * share:+.1f} %", f"{size:.0f}"]
        )
    print(markdown(["", "core-s", "with a checkpoint", "difference", "MB on disk"], table))


if __name__ == "__main__":
    main()
