"""Calls that fail: allocations, writes, syncs, renames and new threads, one at a time (`tests/faults`).

`make faults` lets every call fail, which takes many minutes; BONSAI_FAULTS sets how many of an operation.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "faults"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(
        "asan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers allocate by themselves"
    ),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By kind and operation: the number of calls, and how attempts ended (codes: `attempts.py`)."""
    folder = tmp_path_factory.mktemp("faults")
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-o", folder / "shim.so", HERE / "shim.cpp", "-ldl"]
    subprocess.run([COMPILER, *options], check=True)
    (folder / "files").mkdir()
    command = [sys.executable, HERE / "attempts.py", folder / "files", os.environ.get("BONSAI_FAULTS", "8")]
    environment = os.environ | {"LD_PRELOAD": str(folder / "shim.so")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    print(f"\n{sum(len(row) - 3 for row in rows):,} calls failed")
    return {(kind, name): (int(n), [*map(int, codes)]) for kind, name, n, *codes in rows}, done.stderr


def of_kind(outcomes, *kinds):
    found = {key: value for key, value in outcomes[0].items() if key[0] in kinds}
    assert found and all(n > 0 and len(codes) >= min(n, 8) for n, codes in found.values())
    return {key: codes for key, (_, codes) in found.items()}


def test_a_failed_allocation_is_a_memory_error_and_harms_nothing(outcomes):
    for codes in of_kind(outcomes, "allocation").values():
        assert set(codes) <= {0, 3}, outcomes[1][-3000:]
        assert 3 in codes


def test_a_thread_that_does_not_start_makes_no_difference(outcomes):
    assert {code for codes in of_kind(outcomes, "thread").values() for code in codes} == {0}, outcomes[1]


@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
def test_a_failed_write_leaves_whole_files(outcomes, kind):
    for codes in of_kind(outcomes, kind).values():
        assert set(codes) <= {0, 3}, outcomes[1][-3000:]
        assert codes[0] == 3


@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
def test_a_process_that_is_killed_leaves_whole_files_and_is_continued_to_the_same_bytes(outcomes, kind):
    for codes in of_kind(outcomes, f"killed at {kind}").values():
        assert set(codes) == {3}, outcomes[1][-3000:]
