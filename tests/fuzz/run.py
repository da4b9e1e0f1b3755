"""``make fuzz``: the targets of libFuzzer and those in Python, for some CPU seconds each.

    .venv/bin/python tests/fuzz/run.py --seconds 60                      # all targets
    .venv/bin/python tests/fuzz/run.py --seconds 3600 --record forest xc # some, counted

A target runs in slices: processes with other seeds, or with the next inputs. `--record` adds the executions,
CPU seconds, edges and findings of each slice to the table "fuzz" of benchmarks/results, stops at the goal of
the target, and adds inputs that reach new code to the corpora of the repository.

The corpus of a target of libFuzzer is a text file: an input in hexadecimal digits on each line; `#` begins a
remark. In build/fuzz-corpora it grows; each slice begins with it, without counting it. An input that fails is
printed as such a line: add it to the corpus with the fix. Inputs of the targets in Python (`targets.py`) have
numbers, which go on from the recorded executions.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import figures

HERE = Path(__file__).parent
BUILD = figures.ROOT / "build" / "fuzz"
GROWN = figures.ROOT / "build" / "fuzz-corpora"
CORPORA = HERE / "corpus"
MOST_KEPT = 500  # inputs of a corpus in the repository
OPTIONS = ("-len_control=0", "-max_len=256", "-entropic=0", "-reduce_inputs=0", "-rss_limit_mb=2048")
SANITIZERS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:malloc_context_size=1:quarantine_size_mb=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
SLICE = 60  # CPU seconds
LONGEST = 7200  # elapsed seconds of a slice, against deadlocks; each input has a limit of CPU time
MANY, HOUR = 10_000_000, 3_600  # goals: executions, or CPU seconds of targets below
FAST = 2_000  # executions a CPU second


class Slice(NamedTuple):
    """What one process of a target did."""

    executions: int
    seconds: float  # of the CPU
    edges: int | None
    finding: str
    output: str


def compiled() -> list[str]:
    """Return the targets in C++ that are built."""
    return sorted(path.name.removeprefix("fuzz_") for path in BUILD.glob("fuzz_*") if path.is_file())


def write_seeds(target: str, folder: Path) -> None:
    """Write the inputs of a target's corpus under the names that libFuzzer gives them."""
    path = CORPORA / f"{target}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    for line in filter(None, (text.split("#")[0].strip() for text in lines)):
        data = bytes.fromhex(line)
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def keep(target: str) -> None:
    """Add the inputs to a target's corpus that reach code which its inputs do not."""
    with tempfile.TemporaryDirectory() as name:
        write_seeds(target, Path(name))
        known = set(os.listdir(name))
        run(str(BUILD / f"fuzz_{target}"), "-merge=1", "-use_counters=0", name, str(GROWN / target))
        new = sorted(set(os.listdir(name)) - known)[: max(0, MOST_KEPT - len(known))]
        lines = [Path(name, one).read_bytes().hex() + "\n" for one in new]
    path = CORPORA / f"{target}.txt"
    old = path.read_text() if path.exists() else f"# Inputs of fuzz_{target}.cpp, see run.py\n"
    path.write_text(old + "".join(lines))


def run(*command: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a command; return the CPU seconds that it took, and what it said."""
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    begun = used()
    done = subprocess.run(
        command,
        env=os.environ | SANITIZERS,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LONGEST,
    )
    return used() - begun, done


def slice_in_core(target: str, runs: int, first: int) -> Slice:
    """Run a target of libFuzzer with a seed."""
    folder = GROWN / target
    folder.mkdir(parents=True, exist_ok=True)
    write_seeds(target, folder)
    known = len(os.listdir(folder)) + 1  # libFuzzer begins with an empty input
    with tempfile.TemporaryDirectory() as name:
        options = [*OPTIONS, f"-runs={known + runs}", f"-seed={first + 1}", "-print_final_stats=1"]
        seconds, done = run(str(BUILD / f"fuzz_{target}"), *options, f"-artifact_prefix={name}/", str(folder))
        found = [f"{path.name}: {path.read_bytes().hex()}\n" for path in Path(name).iterdir()]
    number = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    executed = max(0, int(number[1]) - known) if number else 0
    edges = max(map(int, re.findall(r"cov: (\d+)", done.stderr)), default=None)
    finding = "".join(found)[:14] or f"exit code {done.returncode}" if done.returncode else ""
    return Slice(executed, seconds, edges, finding, "".join(found) + done.stderr[-6000:])


def slice_in_python(target: str, runs: int, first: int) -> Slice:
    """Run a target of `targets.py` from an input on."""
    with tempfile.NamedTemporaryFile() as state:
        options = ["--runs", str(runs), "--first", str(first), "--state", state.name]
        seconds, done = run(sys.executable, str(HERE / "targets.py"), target, *options)
        reached = int(state.read() or first)
    found = re.findall(r"^FOUND by --only \d+: (.*? at \S+):", done.stdout, re.M)
    output = done.stdout[-6000:] + done.stderr[-6000:]
    if " inputs, " not in done.stdout:
        found, runs = [*found, f"--only {reached}"], reached - first
        output += f"{target}: the process ended at the input --only {reached}\n"
    return Slice(runs, seconds, None, "; ".join(found), output)


def stored(target: str) -> figures.Row:
    """Return what is recorded of a target."""
    path = figures.RESULTS / "two-cores.json"
    tables = json.loads(path.read_text())["tables"] if path.exists() else {}
    rows = tables["fuzz"]["rows"] if "fuzz" in tables else []
    nothing = {"executions": 0, "CPU seconds": 0.0, "edges": None, "findings": "", "goal %": 0}
    return next((row for row in rows if row["target"] == target), {"target": target} | nothing)


def added(row: figures.Row, done: Slice) -> figures.Row:
    """Return the record of a target after a slice."""
    executions, seconds = row["executions"] + done.executions, row["CPU seconds"] + done.seconds
    findings = [row["findings"], "" if done.finding in row["findings"] else done.finding]
    reached = executions / MANY if executions >= FAST * seconds else seconds / HOUR
    return {
        **{"target": row["target"], "executions": executions, "CPU seconds": seconds},
        "executions per CPU second": round(executions / seconds),
        "edges": max(row["edges"] or 0, done.edges or 0) or None,
        **{"findings": "; ".join(filter(None, findings)), "goal %": min(100, int(100 * reached))},
    }


def recorded(target: str, done: Slice) -> figures.Row:
    """Add a slice to the record of a target, which several processes may do; return the record."""
    folder = os.open(figures.RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        row = added(stored(target), done)
        figures.record("two-cores", "fuzz", "make fuzz RECORD=1", [row], ("target",))
        return row
    finally:
        os.close(folder)


def fuzz(target: str, one_slice: Callable[..., Slice], seconds: float, record: bool) -> bool:
    """Run a target and print a line about it; whether nothing failed."""
    before = row = stored(target)
    rate = row["executions"] / row["CPU seconds"] if row["executions"] else 100
    spent, done = 0.0, Slice(0, 0.0, None, "", "")
    while spent < 0.9 * seconds and not done.finding and not (record and row["goal %"] == 100):
        done = one_slice(target, int(rate * min(SLICE, seconds - spent)) + 1, row["executions"])
        row = recorded(target, done) if record else added(row, done)
        rate, spent = done.executions / done.seconds, spent + done.seconds
    n, result = row["executions"] - before["executions"], "FAILED" if done.finding else "ok"
    print(f"{target:14} {n:>12,} {n / (spent or 1):>10,.0f} {done.edges or '':>9} {spent:>8,.0f} {result}")
    print(done.output if done.finding else "", end="", flush=True)
    return not done.finding


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="of the CPU, for each target")
    parser.add_argument("--record", action="store_true", help="add to the record, stop at the goal")
    parser.add_argument("targets", nargs="*", help='default: all; "core": those in C++')
    arguments = parser.parse_args()
    in_python = re.findall(r'^    "(\w+)": [\w.]+,$', (HERE / "targets.py").read_text(), re.M)
    everything = [*compiled(), *in_python]
    chosen = compiled() if arguments.targets == ["core"] else arguments.targets or everything
    if unknown := set(chosen) - set(everything):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(everything)}")
    print(f"{'target':14} {'executions':>12} {'per second':>10} {'coverage':>9} {'seconds':>8}")
    results = []
    for target in chosen:
        one_slice = slice_in_python if target in in_python else slice_in_core
        results.append(fuzz(target, one_slice, arguments.seconds, arguments.record))
        if arguments.record and target not in in_python:
            keep(target)
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
