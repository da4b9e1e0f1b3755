"""Comparison with omikuji, PECOS (XR-Linear), napkinXC and scikit-learn: same matrices and threads.

"ours" is the default model, `Bonsai()`; "ours-one-vs-rest" and "ours-trees" (three trees,
`Bonsai.preset("bonsai-i")`) choose nothing on held-out rows, as the peers do not.

    python -m benchmarks.compare                                 # everything; several hours on two cores
    python -m benchmarks.compare --quick                         # eurlex57k, ours three times, omikuji once
    python -m benchmarks.compare --data delicious 'amazon-670k*0.1' --systems ours pecos --repeats 5
    python -m benchmarks.compare --data eurlex57k --record two-cores/compare   # for the documents

A name of `datasets.SHAPES`, optionally with a factor, means generated data; other names are real data sets
(see BONSAI_DATA in CONTRIBUTING.md). The peers are installed into an environment of their own, build/peers,
on first use. Each system trains in one process and predicts in another (`benchmarks/_system.py`); their
output goes to log files in build/compare/. Finished runs are stored in the JSON file and not repeated,
those of ours only while the package is the same; --fresh measures all of them again. How each number is
measured: `benchmarks/_runs.py`.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

import bonsai_xmc
from benchmarks import figures
from benchmarks._runs import (
    BUILD,
    QUALITY,
    Failure,
    Run,
    last_line,
    load,
    machine,
    markdown,
    prepare,
    run,
    save,
    say,
)

PEERS = BUILD / "peers"
RESULTS = BUILD / "compare" / "runs.json"
DATA = ("eurlex57k", "tibkat-core", "delicious", "wiki10-31k", "amazon-670k*0.1")

# What pip installs. One environment serves all peers, hence the same NumPy and SciPy.
COMMON = ("numpy==1.26.4", "scipy==1.13.1")
PACKAGES = {
    "omikuji": ("omikuji==0.5.2",),
    "pecos": ("torch==2.13.0", "libpecos==1.2.8"),
    "napkinxc": ("napkinxc==0.7.2",),
}
ROWS = {
    "ours": ("ours", "ours-one-vs-rest", "ours-trees"),
    "omikuji": ("omikuji",),
    "pecos": ("pecos",),
    "napkinxc": ("napkinxc", "napkinxc-l2"),
    "scikit-learn": ("scikit-learn",),
}
INSTALLED = ("ours", "scikit-learn")  # in our own environment

# Names of data and systems in the documents, and of the columns there.
TITLES = {
    "eurlex57k": "EURLEX57K",
    "tibkat-core": "TIBKAT core",
    "delicious": "Delicious",
    "bibtex": "Bibtex",
}
NAMES = {
    "ours": "bonsai-xmc, default",
    "ours-one-vs-rest": "bonsai-xmc, one-vs-rest",
    "ours-trees": "bonsai-xmc, three trees",
    "omikuji": "omikuji 0.5.2",
    "pecos": "PECOS 1.2.8",
    "napkinxc": "napkinXC 0.7.2, logistic",
    "napkinxc-l2": "napkinXC 0.7.2, squared hinge",
    "scikit-learn": "scikit-learn, logistic regression",
}
RECORDED = {
    **{measure: measure for measure in QUALITY},
    **{"train s": "training s", "cpu s": "CPU s", "peak MB": "peak MB", "model MB": "model MB"},
    **{"rows/s": "rows/s", "p50 ms": "one row ms"},
}

COSTS = {
    "train s": 2,
    "cpu s": 2,
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
COLUMNS = COSTS | dict.fromkeys(QUALITY, 2)
RATIOS = ("train s", "peak MB", "added MB", "model MB", "load ms", "first ms", "rows/s", "p50 ms", "p99 ms")


# --- The environment of the peers -----------------------------------------------------------------


def install(system: str) -> None:
    """Install a peer into build/peers unless it is installed; raises Failure with the reason."""
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
    """Return the versions of the packages in build/peers, without local parts such as "+cpu"."""
    paths = [str(path) for path in PEERS.glob("lib/python*/site-packages")]
    found = importlib.metadata.distributions(path=paths) if paths else ()
    return {d.name: d.version.partition("+")[0] for d in found}


def python_of(row: str) -> Path:
    return Path(sys.executable) if is_ours(row) or row in INSTALLED else PEERS / "bin" / "python"


# --- Runs -----------------------------------------------------------------------------------------


def schedule(systems: list[str], repeats: int, peer_repeats: int) -> list[tuple[str, int]]:
    """Return (row of the table, seed) in running order: ours alternate evenly with the peers."""
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
    """Return whether a stored run is valid: of this version, and complete or timed out after this limit."""
    if known is None or known["version"] != version(row):
        return False
    return "error" not in known or (known["error"].startswith("over") and known["limit s"] >= limit)


def version(row: str) -> str:
    """Return the measured version; for bonsai-xmc with a digest of the installed package."""
    if row == "scikit-learn":
        return importlib.metadata.version(row)
    if not is_ours(row):
        return PACKAGES[row.partition("-")[0]][-1]
    package = Path(bonsai_xmc.__file__).parent
    files = [f for f in sorted(package.rglob("*")) if f.suffix == ".py"] + [Path(bonsai_xmc._core.__file__)]
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]
    return f"bonsai-xmc=={bonsai_xmc.__version__} ({digest})"


# --- Tables ---------------------------------------------------------------------------------------


def summary(runs: list[Run]) -> dict[str, dict[str, Any]]:
    """Return means and standard deviations for each row of the table, or its error."""
    rows: dict[str, dict[str, Any]] = {}
    for row in dict.fromkeys(r["system"] for r in runs):
        mine = [r for r in runs if r["system"] == row]
        figures: dict[str, Any] = {"runs": len(mine), "mode": mine[-1].get("mode")}
        for measure in (*COLUMNS, "added MB"):
            values = [r[measure] for r in mine if r.get(measure) is not None]
            if values:
                sd = stdev(values) if len(values) > 1 else None
                figures[measure] = {"mean": mean(values), "sd": sd}
        errors = [r["error"] for r in mine if "error" in r]
        rows[row] = figures | ({"error": errors[-1]} if errors else {})
    return rows


def ratios(rows: dict[str, dict[str, Any]], reference: str) -> dict[str, dict[str, float]]:
    """Return how many times better `reference` is: the peer's cost ÷ its own, its rows/s ÷ the peer's."""
    ours = rows.get(reference, {})
    result: dict[str, dict[str, float]] = {}
    for row, of in rows.items():
        both = [m for m in RATIOS if not is_ours(row) and m in ours and m in of]
        result[row] = {m: of[m]["mean"] / ours[m]["mean"] for m in both if ours[m]["mean"]}
        if "rows/s" in result[row]:
            result[row]["rows/s"] = 1 / result[row]["rows/s"]
    return {row: values for row, values in result.items() if values}


def label(row: str, figures: dict[str, Any]) -> str:
    """Return the name of a row with its prediction mode, or with the reason why it has no figures."""
    return f"{row} ({figures.get('error') or figures['mode']})"


def figure_table(rows: dict[str, dict[str, Any]]) -> str:
    def cell(figures: dict[str, Any], measure: str) -> str:
        if measure not in figures:
            return "–"
        value, sd, digits = figures[measure]["mean"], figures[measure]["sd"], COLUMNS[measure]
        return f"{value:,.{digits}f}" + (f" ± {sd:,.{digits}f}" if sd is not None else "")

    body = [[label(row, f), *(cell(f, measure) for measure in COLUMNS)] for row, f in rows.items()]
    return markdown(["", *COLUMNS], body)


def ratio_table(rows: dict[str, dict[str, Any]], reference: str, factors: dict[str, dict[str, float]]) -> str:
    body = [
        [label(row, rows[row]), *(f"{values[m]:.2f}" if m in values else "–" for m in RATIOS)]
        for row, values in factors.items()
    ]
    return markdown(
        [f"peer ÷ {reference} (rows/s: {reference} ÷ peer)", *(m.split(" ")[0] for m in RATIOS)], body
    )


def remarks(runs: list[Run]) -> Iterator[str]:
    """Return facts that have no column."""
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
                f"{r['mapped MB']:.1f} MB and loads in {r['mapped load ms']:.1f} ms; single-row latency "
                f"without averaging the trees is {r['p50 ms without averaging']:.3f} ms (p50)"
            )


def report(name: str, runs: list[Run]) -> tuple[str, dict[str, Any]]:
    """Return the tables of a data set as text, and their figures for the JSON file."""
    rows = summary(runs)
    factors = {reference: ratios(rows, reference) for reference in ROWS["ours"]}
    parts = [f"## {name}", figure_table(rows)]
    parts += [ratio_table(rows, reference, of) for reference, of in factors.items() if of]
    parts += ["\n".join(remarks(runs))]
    return "\n\n".join(part for part in parts if part), {"figures": rows, "ratios": factors}


def recorded(name: str, rows: dict[str, dict[str, Any]]) -> Iterator[figures.Row]:
    """Return rows of the table in the documents, one for each system."""
    title = TITLES.get(name) or f"{name.replace('*', ' × ')}, generated"
    for row, of in rows.items():
        value = lambda m, of=of: [of[m]["mean"], of[m]["sd"]] if of[m]["sd"] is not None else of[m]["mean"]
        measures = {column: value(m) for m, column in RECORDED.items() if m in of}
        yield {"data": title, "system": NAMES[row], **measures}


def facts(threads: int) -> dict[str, Any]:
    peers = {p.partition("==")[0] for packages in (*PACKAGES.values(), COMMON) for p in packages}
    return machine(threads) | {
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
    add("--threads", type=int, default=2, help="for training and batches (default 2)")
    add("--repeats", type=int, default=3, help="runs of ours, with seeds 0, 1, … (default 3)")
    add("--peer-repeats", type=int, default=1, help="runs of each peer (default 1)")
    add(
        "--limit",
        type=float,
        default=1800,
        metavar="S",
        help="time limit of a process in seconds (default 1800)",
    )
    add("--quick", action="store_true", help="eurlex57k with ours and omikuji")
    add("--fresh", action="store_true", help="prepare the data and measure again")
    add(
        "-o",
        "--output",
        type=Path,
        default=RESULTS,
        metavar="FILE",
        help="finished runs (default: build/compare/runs.json)",
    )
    add("--record", metavar="MACHINE/TABLE", help="store the figures in benchmarks/results")
    args = parser.parse_args()
    if args.quick:
        args.data, args.systems = ["eurlex57k"], ["ours", "omikuji"]
    return args


def measure(name: str, args: argparse.Namespace, unavailable: dict[str, str], known: dict[str, Run]) -> None:
    """Fill `known` with the runs of one data set, saving after each."""
    prepare(name, args.fresh)
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
        known[key] = run(python_of(row), name, row, seed, args.threads, args.limit)
        known[key]["version"] = version(row)
        save(args.output, {"runs": known})
        outcome = known[key].get("error") or f"trained in {known[key]['train s']:.2f} s"
        say(f"{place}: {outcome}; {time.perf_counter() - begin:.0f} s in all")


def run_key(name: str, threads: int, row: str, seed: int) -> str:
    return f"{name}, {threads} threads, {row}, seed {seed}"


def main() -> None:
    args = arguments()
    known: dict[str, Run] = load(args.output).get("runs", {})
    unavailable: dict[str, str] = {}
    for system in args.systems:
        try:
            if system not in INSTALLED:
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

    about = facts(args.threads)
    print("\n".join(f"{name}: {value}" for name, value in about.items()))
    tables = load(args.output).get("tables", {})
    plan = schedule(args.systems, args.repeats, args.peer_repeats)
    for name in args.data:
        keys = [run_key(name, args.threads, row, seed) for row, seed in plan]
        runs = [known[key] for key in keys if key in known]
        if runs:
            text, tables[name] = report(name, runs)
            print(f"\n{text}")
    if args.record:
        machine_name, _, table = args.record.partition("/")
        rows = [row for name in args.data for row in recorded(name, tables[name]["figures"])]
        figures.record(machine_name, table, f"python -m benchmarks.compare {shlex.join(sys.argv[1:])}", rows)
    for what, reason in (skipped | unavailable).items():
        print(f"\n{what}: {reason}")
    save(args.output, {"machine": about, "tables": tables, "skipped": skipped, "not available": unavailable})


if __name__ == "__main__":
    main()
