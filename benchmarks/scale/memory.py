"""Compare the memory estimate of training with measured peaks, for presets and sizes.

    python -m benchmarks.scale memory                              # all; some minutes
    python -m benchmarks.scale memory --labels 10000 --presets default parabel --phases

Generated data (`datasets.make_xmc`; dense rows are their random projections), each training in a process of
its own. Measured is the peak of the resident memory (VmHWM), from before X and Y are read to the end of
`fit`, above what Python and its libraries take: X and Y are part of it. `training_bytes` of
`memory_estimate` is the same. Linux only.
"""

import argparse
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._base.params import PRESETS

SIZES: dict[int, dict[str, Any]] = {
    1_000: {"n_rows": 2_000, "n_features": 5_000, "features_per_row": 30, "labels_per_row": 3},
    10_000: {"n_rows": 20_000, "n_features": 30_000, "features_per_row": 40, "labels_per_row": 4},
    100_000: {"n_rows": 40_000, "n_features": 60_000, "features_per_row": 15, "labels_per_row": 5},
}
DENSE_FEATURES = {1_000: 64, 10_000: 64, 100_000: 32}
Arrays = dict[str, np.ndarray]


def write_data(folder: Path, n_labels: int, dense: bool) -> None:
    """Write X and Y as array files, which are read without extra memory."""
    data = datasets.make_xmc(n_labels=n_labels, n_test=100, **SIZES[n_labels], random_state=0)
    X, Y = data.X_train, data.Y_train
    if dense:
        projection = np.random.default_rng(0).standard_normal((X.shape[1], DENSE_FEATURES[n_labels]))
        np.save(folder / "X.npy", (X @ projection).astype(np.float32))
    write_matrices(folder, {"Y": Y} | ({} if dense else {"X": X}))


def write_matrices(folder: Path, matrices: dict[str, Any]) -> None:
    for name, matrix in matrices.items():
        for part in ("indptr", "indices", "data"):
            np.save(folder / f"{name}.{part}.npy", getattr(matrix, part))
        np.save(folder / f"{name}.shape.npy", matrix.shape)


def read_matrix(folder: Path, name: str) -> Any:
    if (folder / f"{name}.npy").exists():
        return np.load(folder / f"{name}.npy")
    parts = [np.load(folder / f"{name}.{part}.npy") for part in ("data", "indices", "indptr")]
    return sp.csr_array(tuple(parts), shape=tuple(np.load(folder / f"{name}.shape.npy")))


def resident(field: str) -> int:
    """Return the bytes of this process: VmRSS (now) or VmHWM (peak)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


class PhasePeaks:
    """A progress callback that records the peak of each phase."""

    def __init__(self, base: int) -> None:
        self._base = base
        self.peaks: dict[str, int] = {}
        self.whole = 0

    def __call__(self, phase: str, done: float, total: float) -> None:
        peak = resident("VmHWM")
        self.whole = max(self.whole, peak - self._base)
        self.peaks[phase] = max(self.peaks.get(phase, 0), peak - self._base)
        if 0 < total <= done:
            Path("/proc/self/clear_refs").write_text("5")


def measure(
    folder: Path, preset: str, threads: int, params: dict[str, Any], phases: bool = False
) -> dict[str, Any]:
    """Train once; runs in a fresh process."""
    tiny = np.eye(16, dtype=np.float32)
    Bonsai(n_jobs=threads).fit(tiny, tiny.astype(int))  # late imports do not count as memory of training
    Path("/proc/self/clear_refs").write_text("5")
    base = resident("VmRSS")
    X, Y = read_matrix(folder, "X"), read_matrix(folder, "Y")
    options = {"n_jobs": threads, "random_state": 0} | params
    model = Bonsai(**options) if preset == "default" else Bonsai.preset(preset, **options)
    watch = PhasePeaks(base) if phases else None
    model.fit(X, Y, progress=watch)
    peak = resident("VmHWM") - base
    if watch is not None:
        peak = max(peak, watch.whole)
    estimate = model.memory_estimate(X, Y)
    core = model.fitted_.linear.core
    forests = [f for f in (core.trees, core.one_vs_rest) if f is not None]
    return {
        "peak": peak,
        "estimate": estimate["training_bytes"],
        "model": sum(array.nbytes for forest in forests for array in forest.arrays().values()),
        "model estimate": estimate["model_bytes"],
        "classifiers": model.classifiers_,
        "phases": {} if watch is None else watch.peaks,
        "phase estimates": estimate["phases"],
        "seconds": sum(model.timings_.values()),
    }


def in_fresh_process(*args: Any) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, args)


def row(name: str, result: dict[str, Any]) -> str:
    peak, estimate = result["peak"] / 1e6, result["estimate"] / 1e6
    model, of_model = result["model"] / 1e6, result["model estimate"] / 1e6
    return (
        f"| {name} | {peak:,.0f} | {estimate:,.0f} | {estimate / peak:.2f} | {model:,.1f} | "
        f"{of_model:,.1f} | {result['seconds']:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, nargs="+", choices=SIZES, default=[10_000, 100_000])
    parser.add_argument("--presets", nargs="+", choices=["default", *PRESETS], default=["default", *PRESETS])
    parser.add_argument("--rows", nargs="+", choices=["sparse", "dense"], default=["sparse", "dense"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--phases", action="store_true", help="the peak of each phase, too")
    args = parser.parse_args()
    print("| labels, rows, preset | peak, MB | estimate | ratio | model, MB | estimate | seconds |")
    print("| --- " * 7 + "|")
    for n_labels in args.labels:
        for kind in args.rows:
            with tempfile.TemporaryDirectory() as name:
                write_data(Path(name), n_labels, kind == "dense")
                for preset in args.presets:
                    result = in_fresh_process(Path(name), preset, args.threads, {}, args.phases)
                    print(row(f"{n_labels:,} {kind} {preset}", result), flush=True)
                    estimates = result["phase estimates"]
                    for phase in estimates if args.phases else ():
                        measured = result["phases"].get(phase, 0) / 1e6
                        print(f"    {phase}: {measured:,.0f}, estimate {estimates[phase] / 1e6:,.0f}")
                    for phase in result["phases"].keys() - estimates.keys():
                        print(f"    {phase}: {result['phases'][phase] / 1e6:,.0f}, no estimate")


if __name__ == "__main__":
    main()
