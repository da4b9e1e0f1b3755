"""omikuji's model of TIBKAT core beside the same model after `bonsai import`: size, CPU time, agreement.

build/annif/bin/python benchmarks/inside_annif.py omikuji     # trains omikuji's model first
build/annif/bin/python benchmarks/imported.py                 # prints JSON
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai

WORK = Path(__file__).parents[1] / "build" / "inside-annif"
MODEL = WORK / "data" / "projects" / "omikuji" / "omikuji-model"
N_ROWS = 1500
K = 10


def main() -> None:
    lines = (WORK / "dev.tsv").read_text(encoding="utf-8").splitlines()[:N_ROWS]
    vectorizer = joblib.load(MODEL.parent / "vectorizer")
    X = csr_array(vectorizer.transform([line.split("\t")[0] for line in lines])).astype(np.float32)
    pairs = [
        list(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        for row in (X[[i]] for i in range(N_ROWS))
    ]
    import omikuji

    theirs = omikuji.Model.load(str(MODEL))
    theirs.init_prediction_thread_pool(1)
    begin = time.process_time()
    expected = [theirs.predict(row, top_k=K) for row in pairs]
    seconds = time.process_time() - begin
    size = sum(path.stat().st_size for path in MODEL.iterdir())
    report = {"omikuji": {"MB": size / 1e6, "CPU ms a row": 1e3 * seconds / N_ROWS}}
    report["imported"] = imported(X, expected)
    report["imported --quantise"] = imported(X, expected, "--quantise")
    print(json.dumps(report, indent=2))


def imported(X: csr_array, expected: list[list[tuple[int, float]]], *options: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.bonsai")
        command = [sys.executable, "-m", "bonsai_xmc", "import", str(MODEL), "-o", path, "--json", *options]
        sizes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        model = Bonsai.load(path, mmap=False).set_params(n_jobs=1)
    begin = time.process_time()
    ids, scores = model.top_k(X, K)
    seconds = time.process_time() - begin
    begin = time.process_time()
    for i in range(300):
        model.top_k(X[[i]], K)
    single = (time.process_time() - begin) / 300
    rows = [
        (dict(row), list(zip(found.tolist(), values.tolist(), strict=True)))
        for row, found, values in zip(expected, ids, scores, strict=True)
        if row
    ]

    def share(holds: Callable[[dict[int, float], list[tuple[int, float]]], float]) -> float:
        return float(np.mean([holds(row, found) for row, found in rows]))

    return {
        "MB": sizes["bytes"] / 1e6,
        "CPU ms a row": 1e3 * seconds / N_ROWS,
        "CPU ms, one row at a time": 1e3 * single,
        "same 5 labels in the same order": share(lambda a, b: list(a)[:5] == [l for l, _ in b[:5]]),
        "same 10 labels in the same order": share(lambda a, b: list(a) == [l for l, _ in b]),
        "5 scores within 0.001": share(lambda a, b: all(abs(a.get(l, 9) - s) < 1e-3 for l, s in b[:5])),
        "top-5 overlap": share(lambda a, b: len(set(list(a)[:5]) & {l for l, _ in b[:5]}) / 5),
    }


if __name__ == "__main__":
    main()
