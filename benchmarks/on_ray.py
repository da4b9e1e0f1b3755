"""Training on a Ray cluster against threads: core-seconds, and the bytes that move.

    python -m benchmarks.on_ray                           # bonsai-i and one-vs-rest; 2 and 4 nodes of one CPU
    python -m benchmarks.on_ray --scale 0.05 --nodes 2    # smaller

Generated data of the shape of Amazon-670K, or of another set. Threads and each cluster have processes of
their own, in turns; of several repeats, the table has the one with the median of the core-seconds.
The cluster is local (`ray.cluster_utils.Cluster`), its start-up and that of the workers apart: core-seconds
are those of the driver, of the workers and of Ray's own processes from the beginning of `fit` to its end.
The model must have the same bytes. Results are stored in benchmarks/results/on_ray.json.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from bonsai_xmc import Bonsai, datasets

RESULTS = Path(__file__).parent / "results" / "on_ray.json"
MODELS: dict[str, dict[str, Any]] = {
    "bonsai-i": Bonsai.preset("bonsai-i").get_params() | {"threshold": 0.5},
    "one-vs-rest": {"classifiers": "one_vs_rest", "search": "exact", "threshold": 0.5},
}
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of this process and of all that descend from it."""
    parents, found = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has ended
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        parents[int(path.parent.name)] = int(fields[1])
        found[int(path.parent.name)] = name, sum(map(int, fields[11:13])) / _TICKS

    def is_ours(pid: int) -> bool:
        while pid not in (0, os.getpid()):
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return {pid: value for pid, value in found.items() if is_ours(pid)}


class Adding:
    """A runner that does what the driver of a cluster does with results, and takes the time of it."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self.add_s = 0.0
        self.ended = 0.0

    def solve(self, stage: Any, recipe: Any, units: Any, threads: int, progress: Any, save: Any) -> None:
        results = stage.solve_for_others(units, threads)
        begin = time.process_time()
        stage.add_all(*results, threads)
        self.ended = time.process_time()
        self.add_s += self.ended - begin
        self.n_bytes += results[-1].nbytes


def measure_driver(shape: str, scale: float, model: str) -> str:
    """What the driver does after the units are solved. Runs in a fresh process."""
    warnings.simplefilter("ignore")
    data = datasets.make_xmc(shape=shape, scale=scale, n_test=10, random_state=0)
    adding = Adding()
    Bonsai(**MODELS[model] | {"n_jobs": 2}).fit(data.X_train, data.Y_train, runner=adding)
    rest = time.process_time() - adding.ended
    return (
        f"{model}: {adding.n_bytes / 1e6:.1f} MB of results, added in {adding.add_s:.2f} s "
        f"({adding.n_bytes / adding.add_s / 1e6:.0f} MB/s); the model assembled in {rest:.2f} s"
    )


def measure(shape: str, scale: float, model: str, n_nodes: int) -> dict[str, Any]:
    """Train once: with two threads (no nodes), or on so many nodes of one CPU. Runs in a fresh process."""
    warnings.simplefilter("ignore")
    data = datasets.make_xmc(shape=shape, scale=scale, n_test=10, random_state=0)
    estimator = Bonsai(**MODELS[model] | {"n_jobs": 2, "random_state": 0})
    if not n_nodes:
        return _fit(estimator, data, None)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    from bonsai_xmc.ray import RayRunner

    options = {"object_store_memory": 300_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options | {"num_cpus": 0})
    for _ in range(n_nodes):
        cluster.add_node(num_cpus=1, **options)
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    with RayRunner() as runner:
        small = datasets.make_xmc(n_rows=300, n_features=100, n_labels=30, random_state=0)
        assert runner._workers is not None
        while len(runner._workers.ready()) < n_nodes:  # they start while they are given something
            runner._local_seconds = 0.0
            Bonsai(threshold=0.5).fit(small.X_train, small.Y_train, runner=runner)
        runner._local_seconds = 1.0
        _wait_until_idle()
        runner._workers.usage = {n: type(u)(u.cpus) for n, u in runner._workers.usage.items()}
        result = _fit(estimator, data, runner)
        result["nodes"] = list(runner.usage().values())
    ray.shutdown()
    cluster.shutdown()
    return result


def _wait_until_idle() -> None:
    """Ray starts processes for later, and they import what they may need: that is start-up, too."""
    spent, limit = 1.0, 0.15  # core-seconds in a second
    while spent > limit:
        before = cpu_seconds()
        time.sleep(1)
        spent = sum(s - before.get(pid, ("", 0.0))[1] for pid, (_, s) in cpu_seconds().items())


def _fit(estimator: Bonsai, data: Any, runner: Any) -> dict[str, Any]:
    before, begin = cpu_seconds(), time.perf_counter()
    estimator.fit(data.X_train, data.Y_train, runner=runner)
    seconds, after = time.perf_counter() - begin, cpu_seconds()
    spent = {pid: (name, s - before.get(pid, ("", 0.0))[1]) for pid, (name, s) in after.items()}
    driver = spent.pop(os.getpid())[1]
    workers = sum(s for name, s in spent.values() if "Solver" in name)
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(Path(folder) / "model")
        content = (Path(folder) / "model").read_bytes()
    return {
        "rows": data.X_train.shape[0],
        "labels": data.Y_train.shape[1],
        "X MB": (data.X_train.data.nbytes + data.X_train.indices.nbytes) / 1e6,
        "model MB": len(content) / 1e6,
        "digest": hashlib.blake2b(content).hexdigest(),
        "fit s": seconds,
        "driver": driver,
        "workers": workers,
        "Ray": sum(s for _, s in spent.values()) - workers,
        "phases s": estimator.timings_,
    }


def core_seconds(result: dict[str, Any]) -> float:
    """Of all processes."""
    return float(result["driver"] + result["workers"] + result["Ray"])


def table(results: dict[str, dict[str, Any]]) -> str:
    """Core-seconds, and the MB that went to each node and came back from it."""
    lines = [
        "| model | on | core s | driver | workers | Ray itself | against threads | "
        "MB to a node | MB from a node |",
        "| --- " * 9 + "|",
    ]
    for key, result in results.items():
        model, on = key.split(", ")
        total = core_seconds(result)
        threads = results[f"{model}, 2 threads"]["driver"]
        parts = [f"{total:.1f}", *(f"{result[part]:.1f}" for part in ("driver", "workers", "Ray"))]
        moved = ["–", "–"]
        if "nodes" in result:
            used = [node for node in result["nodes"] if node["cpus"]]
            moved = [
                f"{sum(n[way] for n in used) / len(used) / 1e6:.1f}" for way in ("bytes_in", "bytes_out")
            ]
        lines.append("| " + " | ".join([model, on, *parts, f"× {total / threads:.2f}", *moved]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="amazon-670k", choices=datasets.SHAPES)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--nodes", nargs="*", type=int, default=[2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    for model in args.models:
        keys = {n: f"{model}, {n} nodes" if n else f"{model}, 2 threads" for n in (0, *args.nodes)}
        runs: dict[str, list[dict[str, Any]]] = {key: [] for key in keys.values()}
        for n_nodes, key in list(keys.items()) * args.repeats:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                runs[key].append(pool.apply(measure, (args.shape, args.scale, model, n_nodes)))
            print(f"{key}: {core_seconds(runs[key][-1]):.1f} core-seconds", flush=True)
            assert runs[key][-1]["digest"] == runs[keys[0]][0]["digest"], "other bytes"
        results |= {key: sorted(of, key=core_seconds)[len(of) // 2] for key, of in runs.items()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1))
    first = next(iter(results.values()))
    print(f"\n{args.shape} * {args.scale:g}: {first['rows']:,} rows, {first['labels']:,} labels, ", end="")
    print(f"X {first['X MB']:.0f} MB\n\n{table(results)}\n")
    for model in args.models:
        print("seconds of phases with two threads:", results[f"{model}, 2 threads"]["phases s"])
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(measure_driver, (args.shape, args.scale, model)), flush=True)


if __name__ == "__main__":
    main()
