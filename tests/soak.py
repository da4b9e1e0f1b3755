"""``make soak``: everything at once for an hour; results stay the same, memory and descriptors, too.

    .venv/bin/python tests/soak.py --seconds 3600

A round trains a model of a random kind and shape, interrupts the training and continues it from a checkpoint,
saves, loads, predicts, edits labels and learns further rows, and compares all results with those of the plain
way. At the same time, a server answers clients, and its model is replaced repeatedly. Exit code 1 after a
mismatch, a request without the right answer, or growth after the first third.
"""

import argparse
import os
import pickle
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import bonsai_xmc
import kinds
from bonsai_xmc import Bonsai, TextBonsai, datasets, systems
from test_server_reload import Load, Replaced

MEGABYTE = 1 << 20
MOST_GROWTH = 0.05  # of memory, from the second third of the time to the last
MOST_MAPPINGS = 20  # more of them


class Interrupt:
    """Progress that interrupts the training at one of its calls."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, *_: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


class Round:
    """One model, from training to further rows."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng, self.folder = np.random.default_rng(seed), folder
        choices = [*kinds.PARAMS, "default", "texts", *systems.SYSTEMS]
        self.kind = choices[int(self.rng.integers(len(choices)))]
        self.data: Any
        if self.kind == "texts":
            self.data = datasets.make_texts(int(self.rng.integers(40, 200)), n_test=20, random_state=seed)
            self.train = list(self.data.texts_train), self.data.labels_train
            self.test = list(self.data.texts_test)
        else:
            self.data = datasets.make_xmc(
                n_rows=int(self.rng.integers(60, 600)),
                n_test=40,
                n_features=int(self.rng.integers(30, 500)),
                n_labels=int(self.rng.integers(12, 150)),
                features_per_row=10,
                random_state=seed,
            )
            self.train, self.test = (self.data.X_train, self.data.Y_train), self.data.X_test

    def estimator(self, n_jobs: int) -> Any:
        if self.kind in systems.SYSTEMS:
            return systems.system(self.kind)(
                **kinds.QUICK.get(self.kind, {}), threshold=0.3, n_jobs=n_jobs, random_state=0
            )
        one = Bonsai(**kinds.PARAMS.get(self.kind, {}), threshold=0.3, n_jobs=n_jobs)
        return TextBonsai(classifier=one) if self.kind == "texts" else one

    def bytes_of(self, model: Any) -> bytes:
        model.save(self.folder / "m")
        return (self.folder / "m").read_bytes()

    def run(self) -> list[str]:
        """Return the names of results that differ."""
        options = {} if self.kind in systems.SYSTEMS else {"keep_rows": True}
        model = self.estimator(1).fit(*self.train, **options)
        expected = self.bytes_of(model)
        wrong = []
        if self.bytes_of(self._interrupted(options)) != expected:
            wrong.append("the model after an interrupt")
        mmap = [True, False, "sealed"][int(self.rng.integers(3))]
        loaded = bonsai_xmc.load(self.folder / "m", mmap=mmap, verify=True)
        again = pickle.loads(pickle.dumps(loaded))
        ranked = model.top_k(self.test, 5)
        for name, other in (("loaded", loaded), ("unpickled", again)):
            if not all(map(np.array_equal, other.top_k(self.test, 5), ranked)):
                wrong.append(f"the ranking of the {name} model")
        label = model.classes_[int(self.rng.integers(len(model.classes_)))]
        if self.bytes_of(loaded.drop([label])) != self.bytes_of(model.drop([label])):
            wrong.append("the loaded model without a label")
        if getattr(model.fitted_, "rows", None) is not None and self.kind != "texts":
            more = self.data.X_test[:5], self.data.Y_test[:5]
            if self.bytes_of(loaded.learn(*more)) != self.bytes_of(model.learn(*more)):
                wrong.append("the loaded model with further rows")
        return [f"{self.kind}: {one}" for one in wrong]

    def _interrupted(self, options: dict[str, Any]) -> Any:
        """Return a model whose training was interrupted twice; with a checkpoint, if its kind takes one."""
        more = dict(options)
        if self.kind not in systems.SYSTEMS:
            more["checkpoint"] = self.folder / "checkpoint"
        try:
            for _ in range(2):
                try:
                    self.estimator(2).fit(*self.train, **more, progress=Interrupt(int(self.rng.integers(12))))
                except KeyboardInterrupt:
                    continue
            return self.estimator(2).fit(*self.train, **more)
        finally:
            shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)


class Usage:
    """Memory, descriptors and mappings of processes over time."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids = pids
        self.seen: dict[str, list[tuple[float, int, int, int]]] = {name: [] for name in pids}

    def measure(self) -> None:
        for name, pid in self.pids.items():
            process = Path(f"/proc/{pid}")
            resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            files, maps = len(os.listdir(process / "fd")), (process / "maps").read_text().count("\n")
            self.seen[name].append((time.monotonic(), resident, files, maps))

    def report(self) -> list[str]:
        """Print the medians of the three thirds of the time; return what has grown."""
        grown = []
        for name, rows in self.seen.items():
            parts = [
                np.median([row[1:] for row in part], axis=0) for part in np.array_split(np.array(rows), 3)
            ]
            print(
                f"{name:10} "
                + "  ".join(f"{m / MEGABYTE:7.1f} MB {f:4.0f} files {p:5.0f} mappings" for m, f, p in parts)
            )
            (memory, files, maps), (last_memory, last_files, last_maps) = parts[1:]
            if last_memory > memory * (1 + MOST_GROWTH) + 2 * MEGABYTE:
                grown.append(f"{name}: memory")
            if last_files > files:
                grown.append(f"{name}: descriptors")
            if last_maps > maps + MOST_MAPPINGS:
                grown.append(f"{name}: mappings")
        return grown


def soak(seconds: float, seed: int, folder: Path) -> list[str]:
    """Run rounds while a server runs, and return what went wrong."""
    server = Replaced(folder / "server", "--workers", 2)
    usage = Usage({"rounds": os.getpid(), "server": server.server.process.pid})
    begun, wrong, finished, n_answers, n_stale = time.monotonic(), [], [], 0, 0
    with Load(server.server.port, 8) as load:
        while time.monotonic() - begun < seconds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wrong += Round(seed + len(finished), folder).run()
            finished.append(server.replace(seconds=300))
            answers = load.answers.copy()
            del load.answers[: len(answers)]
            n_answers += len(answers)
            n_stale += sum(sent > finished[i] for sent, _, i in answers if i < len(finished))
            usage.measure()
            if len(finished) % 100 == 0:
                print(f"{len(finished):,} rounds, {n_answers:,} answers, {len(wrong)} wrong", flush=True)
    print(
        f"{len(finished):,} rounds in {time.monotonic() - begun:,.0f} s; {n_answers:,} requests answered, "
        f"{len(load.unanswered)} not, {n_stale} by an old model"
    )
    if load.unanswered or n_stale:
        wrong.append("requests without the right answer")
    if server.server.stop() != 0:
        wrong.append("the end of the server")
    return wrong + usage.report()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "server").mkdir()
        wrong = soak(arguments.seconds, arguments.seed, Path(folder))
    for line in wrong:
        print(f"WRONG: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
