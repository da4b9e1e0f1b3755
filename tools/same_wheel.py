"""``make same-wheel``: check that two builds of a commit, in two folders and at two times, are equal.

    .venv/bin/python tools/same_wheel.py           # of HEAD
    .venv/bin/python tools/same_wheel.py COMMIT

With ccache, objects that were compiled before are taken; CCACHE_DISABLE=1 compiles all of them twice.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def built(commit: str, folder: Path) -> Path:
    """Return the wheel of a commit that is built in a new folder."""
    folder.mkdir()
    archive = folder / "sources.tar"
    output("git", "archive", "--output", str(archive), commit)
    sources = folder / "sources"
    sources.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", sources], check=True)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet"]
    command += ["--wheel-dir", str(folder)]
    date = output("git", "log", "-1", "--format=%ct", commit)
    subprocess.run(command, cwd=sources, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": date})
    return next(folder.glob("*.whl"))


def differing(one: Path, other: Path) -> list[str]:
    """Return the members of two wheels that differ."""
    with zipfile.ZipFile(one) as a, zipfile.ZipFile(other) as b:
        names, both = {*a.namelist(), *b.namelist()}, {*a.namelist()} & {*b.namelist()}
        return [name for name in sorted(names) if name not in both or a.read(name) != b.read(name)]


def main() -> None:
    commit = output("git", "rev-parse", sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    with tempfile.TemporaryDirectory() as name:
        first = built(commit, Path(name) / "one")
        time.sleep(2)  # times in archives have a step of two seconds
        second = built(commit, Path(name) / "a folder with another name")
        same = first.read_bytes() == second.read_bytes()
        print(first.name, hashlib.sha256(first.read_bytes()).hexdigest())
        if not same:
            print("the second one differs in", ", ".join(differing(first, second)))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
