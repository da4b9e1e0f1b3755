"""How long commands take that do next to nothing: ``python -m benchmarks.startup``.

Each runs in a new process, and the fastest of several runs counts: the time until it ends, the largest
resident memory, and which of the large libraries it has imported.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bonsai_xmc import TextBonsai, datasets

RUNS = 5
LARGE = ("numpy", "scipy", "sklearn", "pandas")
_PROGRAM = """
import json, re, sys
from bonsai_xmc._cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
memory = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps([memory, sorted(sys.modules)]), file=sys.stderr)
"""


def commands(folder: str) -> dict[str, list[str]]:
    """Commands by what they show; a small model for those that need one."""
    data = datasets.make_texts(500, n_test=1, n_labels=50, random_state=0)
    model = os.path.join(folder, "model.bonsai")
    TextBonsai().fit(data.texts_train, data.labels_train).save(model)
    return {
        "--version": ["--version"],
        "--help": ["--help"],
        "train --help-all": ["train", "--help-all"],
        "wrong usage": ["train"],
        "info": ["info", model],
        "predict one text": ["predict", model, data.texts_train[0]],
    }


def measure(line: list[str]) -> tuple[float, float, list[str]]:
    """Return seconds, megabytes and the large libraries of the fastest run."""
    best = (float("inf"), 0.0, [""])
    for _ in range(RUNS):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", _PROGRAM, *line], capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        memory, modules = json.loads(done.stderr.splitlines()[-1])
        best = min(best, (seconds, memory, [name for name in LARGE if name in modules]))
    return best


def main() -> None:
    print(f"{Path(sys.executable).name} -m bonsai_xmc …  {'seconds':>9} {'MB':>6}  imports")
    with tempfile.TemporaryDirectory() as folder:
        for name, line in commands(folder).items():
            seconds, memory, imports = measure(line)
            print(f"{name:<24} {seconds:9.2f} {memory:6.0f}  {', '.join(imports) or '–'}")


if __name__ == "__main__":
    main()
