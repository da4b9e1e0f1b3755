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
from pathlib import Path

import joblib
import numpy as np
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai

WORK = Path(__file__).parents[1] / "build" / "inside-annif"
MODEL = WORK / "data" / "projects" / "omikuji" / "omikuji-model"
N_ROWS = 1500
K = 5


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
    their_seconds = time.process_time() - begin
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.bonsai")
        command = [sys.executable, "-m", "bonsai_xmc", "import", str(MODEL), "-o", path, "--json"]
        sizes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        ours = Bonsai.load(path, mmap=False).set_params(n_jobs=1)
    begin = time.process_time()
    ids, scores = ours.top_k(X, K)
    our_seconds = time.process_time() - begin
    begin = time.process_time()
    for i in range(300):
        ours.top_k(X[[i]], K)
    single = (time.process_time() - begin) / 300
    rows = [
        (dict(row), found, values) for row, found, values in zip(expected, ids, scores, strict=True) if row
    ]
    shared = [len(row.keys() & set(found.tolist())) / len(row) for row, found, _ in rows]
    best = [next(iter(row)) == found[0] for row, found, _ in rows]
    apart = [abs(row.get(int(found[0]), np.nan) - values[0]) for row, found, values in rows]
    report = {
        "MB": {"omikuji": sizes["bytes before"] / 1e6, "imported": sizes["bytes"] / 1e6},
        "CPU ms a row": {"omikuji": 1e3 * their_seconds / N_ROWS, "imported": 1e3 * our_seconds / N_ROWS},
        "CPU ms, imported, one row at a time": 1e3 * single,
        "same best label": float(np.mean(best)),
        "top-5 overlap": float(np.mean(shared)),
        "difference of the best score, p50 and p99": [float(q) for q in np.nanpercentile(apart, [50, 99])],
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
