"""Ours beside omikuji, PECOS (XR-Linear) and napkinXC: same matrices, same threads, alternating, as tables.

"ours" is `Bonsai.preset("bonsai-i")`, which the ratios refer to, "ours-best" `Bonsai.preset("best")`.

    python -m benchmarks.compare                                 # everything; several hours on two cores
    python -m benchmarks.compare --quick                         # eurlex57k, ours three times, omikuji once
    python -m benchmarks.compare --data delicious 'amazon-670k*0.1' --systems ours pecos --repeats 5

A name of `datasets.SHAPES`, perhaps with a factor, is generated data; others are real (see BONSAI_DATA in
CONTRIBUTING.md). The peers live in an environment of their own, build/peers, made on first use. Each system
trains in one process and predicts in another (`benchmarks/_system.py`); what they print goes to log files in
build/compare/. Finished runs are kept in the JSON file and not repeated, those of ours only while the package
is the same; --fresh measures all anew.

How it is measured. Training: without reading text, which only omikuji does and which has a column of its own,
and without saving, except for napkinXC, which saves while it trains. Memory: most resident memory of the
training process, and what it had before, with its libraries (without pandas, which scikit-learn imports if it
can) and, omikuji excepted, the matrices. Batch: the whole test set, 5 labels a row, best of 5 (no further one
after a minute); omikuji through its C call from as many Python threads. One row: one thread, 1000 rows one
after another, p50 and p99, as called from Python.
"first" is loading and one row.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

import bonsai_xmc
from bonsai_xmc import datasets, metrics

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
PEERS = BUILD / "peers"
RESULTS = Path(__file__).parent / "results" / "compare.json"
DATA = ("eurlex57k", "tibkat-core", "delicious", "wiki10-31k", "amazon-670k*0.1")
MATRICES = ("X_train", "Y_train", "X_test", "Y_test")

# What pip is asked for. One environment serves all peers, hence the same NumPy and SciPy.
COMMON = ("numpy==1.26.4", "scipy==1.13.1")
PACKAGES = {
    "omikuji": ("omikuji==0.5.2",),
    "pecos": ("torch==2.13.0", "libpecos==1.2.8"),
    "napkinxc": ("napkinxc==0.7.2",),
}
ROWS = {
    "ours": ("ours", "ours-best"),
    "omikuji": ("omikuji",),
    "pecos": ("pecos",),
    "napkinxc": ("napkinxc", "napkinxc-l2"),
}
# Where a peer can predict in several ways: the faster one of omikuji, the more accurate one of PECOS.
PREFERRED = {"omikuji": "rows/s", "pecos": "P@5"}

COSTS = {
    "train s": 2,
    "reading s": 2,
    "peak MB": 0,
    "before MB": 0,
    "model MB": 1,
    "load ms": 1,
    "first ms": 1,
    "rows/s": 0,
    "p50 ms": 3,
    "p99 ms": 3,
}
QUALITY = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
COLUMNS = COSTS | dict.fromkeys(QUALITY, 2)
RATIOS = ("train s", "peak MB", "grown MB", "model MB", "load ms", "first ms", "rows/s", "p50 ms", "p99 ms")

Run = dict[str, Any]


class Failure(Exception):
    """A process of a system ended without a result; the text belongs into the table."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- Data -----------------------------------------------------------------------------------------


def prepare(name: str, fresh: bool) -> Path:
    """The folder with the matrices of a data set: unit rows in float32, as .npz and as text to train from."""
    folder = BUILD / "compare" / name.replace("*", "-x")
    ready = folder / "ready"
    if ready.exists() and not fresh:
        return folder
    say(f"{name}: preparing the data")
    data = generated(name) or datasets.load(name)
    folder.mkdir(parents=True, exist_ok=True)
    ready.unlink(missing_ok=True)
    for matrix in MATRICES:
        rows = sp.csr_matrix(getattr(data, matrix), dtype=np.float32)
        rows = normalize(rows) if matrix.startswith("X") else rows
        rows.sort_indices()
        sp.save_npz(folder / f"{matrix}.npz", rows, compressed=False)
    X, Y = (sp.csr_matrix(sp.load_npz(folder / f"{matrix}.npz")) for matrix in MATRICES[:2])
    text = folder / "train.txt"
    datasets.save_xc(text, X, Y)
    if not np.diff(X.indptr).all():  # omikuji does not read a line that ends in a space, as of an empty row
        text.write_bytes(text.read_bytes().replace(b" \n", b"\n"))
    ready.touch()
    return folder


def generated(name: str) -> datasets.Dataset | None:
    """Data of the shape "name" or "name*scale", None if there is no such shape."""
    shape, _, scale = name.partition("*")
    if shape not in datasets.SHAPES:
        return None
    return datasets.make_xmc(shape, scale=float(scale or 1), random_state=0)


def accuracy(name: str, folder: Path, ids_file: Path) -> dict[str, float]:
    shape = name.partition("*")[0]
    Y_train, Y_test = (sp.load_npz(folder / f"{matrix}.npz") for matrix in ("Y_train", "Y_test"))
    known = shape if shape in metrics.PROPENSITY else None
    scores = metrics.evaluate(np.load(ids_file), Y_test, Y_train=Y_train, dataset=known)
    return {measure: scores[measure] for measure in QUALITY}


# --- The environment of the peers -----------------------------------------------------------------


def install(system: str) -> None:
    """Put a peer into build/peers, unless it is there; Failure says why it cannot be."""
    if set(PACKAGES[system]) <= {f"{name}=={version}" for name, version in peer_versions().items()}:
        return
    log = BUILD / "compare" / f"install-{system}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"{system}: installing {' '.join(PACKAGES[system])} into {PEERS}")
    pip = str(PEERS / "bin" / "pip")
    commands = [[pip, "install", package, *COMMON] for package in PACKAGES[system]]
    if not Path(pip).exists():
        commands.insert(0, [sys.executable, "-m", "venv", str(PEERS)])
    with log.open("w") as output:
        for command in commands:
            if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode:
                raise Failure(f"not available: {last_line(log)}")


def peer_versions() -> dict[str, str]:
    """Versions of what is installed for the peers, without local parts such as "+cpu"."""
    paths = [str(path) for path in PEERS.glob("lib/python*/site-packages")]
    found = importlib.metadata.distributions(path=paths) if paths else ()
    return {d.name: d.version.partition("+")[0] for d in found}


def last_line(log: Path) -> str:
    """The last line of an output; progress bars end theirs by a carriage return."""
    lines = log.read_text(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "no output")


# --- Runs -----------------------------------------------------------------------------------------


def process(task: str, row: str, folder: Path, work: Path, threads: int, seed: int, limit: float) -> Any:
    """The report of one process of a system; its output goes to a log file."""
    python = Path(sys.executable) if is_ours(row) else PEERS / "bin" / "python"
    report, log = work / f"{task}.json", folder / f"{work.name}.{task}.log"
    script = Path(__file__).parent / "_system.py"
    arguments = [task, row, folder, work / "model", threads, seed, report]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with log.open("w") as output:
        child = subprocess.Popen(
            [python, script, *map(str, arguments)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"over {limit:.0f} s") from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if status:
        reason = signal.Signals(-status).name if status < 0 else last_line(log)
        raise Failure(f"{task} failed: {reason} ({log.relative_to(ROOT)})")
    return json.loads(report.read_text())


def run(name: str, folder: Path, row: str, seed: int, threads: int, limit: float) -> Run:
    """Train, predict and evaluate once; the result holds an "error" where one of them came to no end."""
    work = folder / f"{row}-{seed}"
    shutil.rmtree(work, ignore_errors=True)
    (work / "model").mkdir(parents=True)
    result: Run = {"data": name, "system": row, "seed": seed, "threads": threads, "limit s": limit}
    result |= {"version": version(row), "date": now()}
    try:
        result |= process("train", row, folder, work, threads, seed, limit)
        result["grown MB"] = result["peak MB"] - result["before MB"]
        variants = process("predict", row, folder, work, threads, seed, limit)
        for variant in variants.values():
            variant |= accuracy(name, folder, work / variant.pop("ids"))
        measure = PREFERRED.get(row, "rows/s")
        chosen = max(variants, key=lambda v: variants[v][measure])
        result |= variants[chosen] | {"variant": chosen, "variants": variants}
    except Failure as failure:
        result["error"] = str(failure)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return result


def schedule(systems: list[str], repeats: int, peer_repeats: int) -> list[tuple[str, int]]:
    """Rows of the table with their seeds, in the order of running: ours spread evenly between the peers."""
    ours = [(row, seed) for seed in range(repeats) for row in ROWS["ours"]] if "ours" in systems else []
    peers = [
        (row, seed)
        for seed in range(peer_repeats)
        for system in systems
        if system != "ours"
        for row in ROWS[system]
    ]
    places = [(i / len(ours), item) for i, item in enumerate(ours)]
    places += [((i + 0.5) / len(peers), item) for i, item in enumerate(peers)]
    return [item for _, item in sorted(places, key=lambda place: place[0])]


def is_ours(row: str) -> bool:
    return row in ROWS["ours"]


def reusable(known: Run | None, row: str, limit: float) -> bool:
    """Whether a result need not be measured again: same version, and complete or out of as much time."""
    if known is None or known["version"] != version(row):
        return False
    return "error" not in known or (known["error"].startswith("over") and known["limit s"] >= limit)


def version(row: str) -> str:
    """What was measured: for ours a digest of the installed package, which an edit or a rebuild changes."""
    if not is_ours(row):
        return PACKAGES[row.partition("-")[0]][-1]
    package = Path(bonsai_xmc.__file__).parent
    files = [f for f in sorted(package.rglob("*")) if f.suffix == ".py"] + [Path(bonsai_xmc._core.__file__)]
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]
    return f"bonsai-xmc=={bonsai_xmc.__version__} ({digest})"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- Tables ---------------------------------------------------------------------------------------


def summary(runs: list[Run]) -> dict[str, dict[str, Any]]:
    """For each row of the table its means and standard deviations, or the error that it ended in."""
    rows: dict[str, dict[str, Any]] = {}
    for row in dict.fromkeys(r["system"] for r in runs):
        mine = [r for r in runs if r["system"] == row]
        figures: dict[str, Any] = {"runs": len(mine), "variant": mine[-1].get("variant")}
        for measure in (*COLUMNS, "grown MB"):
            values = [r[measure] for r in mine if r.get(measure) is not None]
            if values:
                sd = stdev(values) if len(values) > 1 else None
                figures[measure] = {"mean": mean(values), "sd": sd}
        errors = [r["error"] for r in mine if "error" in r]
        rows[row] = figures | ({"error": errors[-1]} if errors else {})
    return rows


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times ours is better: the peer's cost by ours, and our rows/s by the peer's."""
    ours = rows.get("ours", {})
    result: dict[str, dict[str, float]] = {}
    for row, figures in rows.items():
        both = [m for m in RATIOS if row != "ours" and m in ours and m in figures]
        result[row] = {m: figures[m]["mean"] / ours[m]["mean"] for m in both if ours[m]["mean"]}
        if "rows/s" in result[row]:
            result[row]["rows/s"] = 1 / result[row]["rows/s"]
    return {row: values for row, values in result.items() if values}


def markdown(header: list[str], body: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def label(row: str, figures: dict[str, Any]) -> str:
    """The name of a row with the way of predicting that its figures are of, or why they are missing."""
    return f"{row} ({figures.get('error') or figures['variant']})"


def figure_table(rows: dict[str, dict[str, Any]]) -> str:
    def cell(figures: dict[str, Any], measure: str) -> str:
        if measure not in figures:
            return "–"
        value, sd, digits = figures[measure]["mean"], figures[measure]["sd"], COLUMNS[measure]
        return f"{value:,.{digits}f}" + (f" ± {sd:,.{digits}f}" if sd is not None else "")

    body = [[label(row, f), *(cell(f, measure) for measure in COLUMNS)] for row, f in rows.items()]
    return markdown(["", *COLUMNS], body)


def ratio_table(rows: dict[str, dict[str, Any]], factors: dict[str, dict[str, float]]) -> str:
    body = [
        [label(row, rows[row]), *(f"{values[m]:.2f}" if m in values else "–" for m in RATIOS)]
        for row, values in factors.items()
    ]
    return markdown(["peer ÷ ours (rows/s: ours ÷ peer)", *(m.split(" ")[0] for m in RATIOS)], body)


def remarks(runs: list[Run]) -> Iterator[str]:
    """What the columns have no place for."""
    dates = sorted(r["date"] for r in runs)
    yield f"- begun between {dates[0]} and {dates[-1]}"
    if len({r["version"] for r in runs if is_ours(r["system"])}) > 1:
        yield "- ours: the package changed between its runs"
    for r in runs:
        if "error" in r:
            yield f"- {r['system']}, seed {r['seed']}: {r['error']}"
        if "mapped MB" in r:
            yield (
                f"- {r['system']}, seed {r['seed']}: compiled to its memory-mapped form, the model has "
                f"{r['mapped MB']:.1f} MB and loads in {r['mapped load ms']:.1f} ms; one row without "
                f"averaging the trees takes {r['p50 ms without averaging']:.3f} ms (p50)"
            )


def report(name: str, runs: list[Run]) -> tuple[str, dict[str, Any]]:
    """The tables of a data set as text, and their figures for the JSON file."""
    rows = summary(runs)
    factors = ratios(rows)
    parts = [f"## {name}", figure_table(rows)]
    if factors:
        parts.append(ratio_table(rows, factors))
    parts += ["\n".join(remarks(runs))]
    return "\n\n".join(part for part in parts if part), {"figures": rows, "ratios": factors}


def machine(threads: int) -> dict[str, Any]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    peers = {p.partition("==")[0] for packages in (*PACKAGES.values(), COMMON) for p in packages}
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "date": now(),
        "commit": commit,
        "python": platform.python_version(),
        "ours": version("ours") + f", numpy=={np.__version__}",
        "peers": ", ".join(f"{n}=={v}" for n, v in sorted(peer_versions().items()) if n in peers),
    }


# --- The command ----------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", nargs="+", default=list(DATA), metavar="NAME", help=f"default: {' '.join(DATA)}")
    add("--systems", nargs="+", default=list(ROWS), choices=list(ROWS), help="default: all")
    add("--threads", type=int, default=2, help="of training and of batches (default 2)")
    add("--repeats", type=int, default=3, help="runs of ours, with seeds 0, 1, … (default 3)")
    add("--peer-repeats", type=int, default=1, help="runs of each peer (default 1)")
    add(
        "--limit",
        type=float,
        default=1800,
        metavar="S",
        help="seconds that a process may take (default 1800)",
    )
    add("--quick", action="store_true", help="eurlex57k with ours and omikuji")
    add("--fresh", action="store_true", help="prepare and measure anew what is known already")
    add(
        "-o",
        "--output",
        type=Path,
        default=RESULTS,
        metavar="FILE",
        help="default: benchmarks/results/compare.json",
    )
    args = parser.parse_args()
    if args.quick:
        args.data, args.systems = ["eurlex57k"], ["ours", "omikuji"]
    return args


def measure(name: str, args: argparse.Namespace, unavailable: dict[str, str], known: dict[str, Run]) -> None:
    """Fill `known` with the runs of one data set, saving after each."""
    folder = prepare(name, args.fresh)
    plan = schedule(args.systems, args.repeats, args.peer_repeats)
    for i, (row, seed) in enumerate(plan):
        place = f"{name}: {row}, seed {seed} ({i + 1} of {len(plan)})"
        if row.partition("-")[0] in unavailable:
            say(f"{place}: {unavailable[row.partition('-')[0]]}")
            continue
        key = run_key(name, args.threads, row, seed)
        if not args.fresh and reusable(known.get(key), row, args.limit):
            say(f"{place}: known from {known[key]['date']}")
            continue
        say(f"{place} …")
        begin = time.perf_counter()
        known[key] = run(name, folder, row, seed, args.threads, args.limit)
        save(args.output, {"runs": known})
        outcome = known[key].get("error") or f"trained in {known[key]['train s']:.2f} s"
        say(f"{place}: {outcome}; {time.perf_counter() - begin:.0f} s in all")


def run_key(name: str, threads: int, row: str, seed: int) -> str:
    return f"{name}, {threads} threads, {row}, seed {seed}"


def save(path: Path, content: dict[str, Any]) -> None:
    """Update a JSON file, through another one, so that an interrupt leaves the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(load(path) | content, indent=1, ensure_ascii=False))
    beside.replace(path)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def main() -> None:
    args = arguments()
    known: dict[str, Run] = load(args.output).get("runs", {})
    unavailable: dict[str, str] = {}
    for system in args.systems:
        try:
            if system != "ours":
                install(system)
        except Failure as failure:
            unavailable[system] = str(failure)
            say(f"{system}: {failure}")
    skipped: dict[str, str] = {}
    with contextlib.suppress(KeyboardInterrupt):
        for name in args.data:
            try:
                measure(name, args, unavailable, known)
            except (FileNotFoundError, ValueError) as error:
                skipped[name] = str(error)
                say(f"{name}: skipped: {error}")

    facts = machine(args.threads)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    tables = load(args.output).get("tables", {})
    plan = schedule(args.systems, args.repeats, args.peer_repeats)
    for name in args.data:
        keys = [run_key(name, args.threads, row, seed) for row, seed in plan]
        runs = [known[key] for key in keys if key in known]
        if runs:
            text, tables[name] = report(name, runs)
            print(f"\n{text}")
    for what, reason in (skipped | unavailable).items():
        print(f"\n{what}: {reason}")
    save(args.output, {"machine": facts, "tables": tables, "skipped": skipped, "not available": unavailable})


if __name__ == "__main__":
    main()
