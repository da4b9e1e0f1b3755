"""``make fuzz``: the targets of libFuzzer and those in Python, for some seconds or inputs each.

    .venv/bin/python tests/fuzz/run.py --seconds 60              # all targets
    .venv/bin/python tests/fuzz/run.py --runs 10000000 forest xc # some
    .venv/bin/python tests/fuzz/run.py --seconds 60 --keep       # and add what reaches new code to corpora

The corpus of a target of libFuzzer is a text file: an input in hexadecimal digits on each line; `#` begins a
remark. Every input of it runs first. An input that fails is printed as such a line: add it to the corpus with
the fix. Inputs of the targets in Python (`targets.py`) have numbers, which go on from `--first`.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "fuzz"
CORPORA = HERE / "corpus"
MOST_KEPT = 500  # inputs of a corpus
OPTIONS = ("-len_control=0", "-max_len=256", "-entropic=0", "-reduce_inputs=0", "-timeout=20")
OPTIONS += ("-rss_limit_mb=2048", "-seed=1")
SANITIZERS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:malloc_context_size=1:quarantine_size_mb=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def compiled() -> list[str]:
    """Return the targets in C++ that are built."""
    return sorted(path.name.removeprefix("fuzz_") for path in BUILD.glob("fuzz_*") if path.is_file())


def seeds_of(target: str) -> list[bytes]:
    """Return the inputs of a target's corpus."""
    path = CORPORA / f"{target}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [bytes.fromhex(line) for line in (text.split("#")[0].strip() for text in lines) if line]


def keep(target: str, folder: Path) -> None:
    """Add the smallest inputs of a folder that together reach all that the folder reaches."""
    with tempfile.TemporaryDirectory() as name:
        run(target, "-merge=1", "-use_counters=0", name, str(folder))
        merged = sorted((path.read_bytes() for path in Path(name).iterdir()), key=lambda b: (len(b), b))
    path = CORPORA / f"{target}.txt"
    old = path.read_text() if path.exists() else f"# Inputs of fuzz_{target}.cpp, see run.py\n"
    known = set(seeds_of(target))
    new = [data for data in merged if data not in known][: max(0, MOST_KEPT - len(known))]
    path.write_text(old + "".join(f"{data.hex()}\n" for data in new))


def run(target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a target."""
    command = [str(BUILD / f"fuzz_{target}"), *arguments]
    return subprocess.run(
        command, env=os.environ | SANITIZERS, capture_output=True, text=True, errors="replace"
    )


def fuzz_in_python(target: str, arguments: argparse.Namespace) -> bool:
    """Run a target of `targets.py` and print a line about it; whether nothing failed."""
    with tempfile.NamedTemporaryFile() as state:
        command = [sys.executable, str(HERE / "targets.py"), target, "--state", state.name]
        command += ["--seconds", str(arguments.seconds), "--runs", str(arguments.runs)]
        command += ["--first", str(arguments.first)]
        begun = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        summary = re.search(r"([\d,]+) inputs, .*", done.stdout)
        reached = int(state.read() or 0)
    executed = int(summary[1].replace(",", "")) if summary else reached - arguments.first
    seconds = time.monotonic() - begun
    failed = done.returncode != 0
    _tell(target, executed, seconds, "", failed)
    if failed:
        print(done.stdout[-6000:] + done.stderr[-6000:])
        if not summary:
            print(f"{target}: the process ended at the input --only {reached}")
    return not failed


def _tell(target: str, executed: int, seconds: float, edges: str, failed: bool) -> None:
    """Print a line about a target."""
    rate = executed / seconds
    result = "FAILED" if failed else "ok"
    print(f"{target:14} {executed:>12,} {rate:>10,.0f} {edges:>9} {seconds:>8,.0f} {result}", flush=True)


def fuzz(target: str, arguments: argparse.Namespace) -> bool:
    """Run a target of libFuzzer and print a line about it; whether nothing failed."""
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name) / "corpus", Path(name) / "found-"
        folder.mkdir()
        for number, data in enumerate(seeds_of(target)):
            (folder / f"{number:04}").write_bytes(data)
        limits = [f"-runs={arguments.runs}"] if arguments.runs else [f"-max_total_time={arguments.seconds}"]
        begun = time.monotonic()
        done = run(
            target, *OPTIONS, *limits, "-print_final_stats=1", f"-artifact_prefix={found}", str(folder)
        )
        seconds = time.monotonic() - begun
        number = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
        covered = re.findall(r"cov: (\d+)", done.stderr)
        executed = int(number[1]) if number else 0
        _tell(target, executed, seconds, covered[-1] if covered else "", done.returncode != 0)
        for path in found.parent.glob("found-*"):
            print(f"{path.name}: {path.read_bytes().hex()}")
        if done.returncode:
            print(done.stderr[-6000:])
        if arguments.keep:
            keep(target, folder)
        return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target, instead of seconds")
    parser.add_argument("--first", type=int, default=0, help="number of the first input of targets in Python")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach new code to the corpora")
    parser.add_argument("targets", nargs="*", help='default: all; "core": those in C++')
    arguments = parser.parse_args()
    in_python = re.findall(r'^    "(\w+)": [\w.]+,$', (HERE / "targets.py").read_text(), re.M)
    everything = [*compiled(), *in_python]
    chosen = compiled() if arguments.targets == ["core"] else arguments.targets or everything
    if unknown := set(chosen) - set(everything):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(everything)}")
    print(f"{'target':14} {'executions':>12} {'per second':>10} {'coverage':>9} {'seconds':>8}")
    results = [(fuzz_in_python if one in in_python else fuzz)(one, arguments) for one in chosen]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
