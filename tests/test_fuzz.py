"""The first inputs of each target in `tests/fuzz/targets.py`; `make fuzz` goes on with others, and counts."""

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")

from fuzz import run
from fuzz.run import Slice
from fuzz.targets import TARGETS, accepted

INPUTS = {
    "header": 600,
    "model": 1000,
    "foreign": 300,
    "documents": 500,
    "matrices": 200,
    "rows": 600,
    "labels": 1500,
    "checkpoint": 100,
    "commands": 80,
    "requests": 1000,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_refused_or_give_valid_results(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # as the target of commands changes the working directory
    attempt = TARGETS[target](tmp_path)
    outcomes = [accepted(attempt, target, number) for number in range(INPUTS[target])]
    assert 0.02 * len(outcomes) < sum(outcomes) < 0.98 * len(outcomes)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """An empty record of fuzzing."""
    monkeypatch.setattr(run.figures, "RESULTS", tmp_path)
    return lambda: json.loads((tmp_path / "two-cores.json").read_text())["tables"]["fuzz"]["rows"]


def test_goals_of_slow_and_fast_targets(record):
    target = run.stored("xc")
    shares = {(9_999_999, 100.0): 99, (10_000_000, 5000.0): 100, (10_000_000, 5001.0): 100, (0, 35.9): 0}
    shares |= {(1999, 1.0): 0, (7_000_000, 3599.0): 99, (7_000_000, 3600.0): 100, (10**8, 3600.0): 100}
    for (executions, seconds), share in shares.items():
        assert run.added(target, Slice(executions, seconds, None, "", ""))["goal %"] == share
    half = run.added(target, Slice(3_000_000, 600.0, 70, "crash-01", ""))
    both = run.added(half, Slice(1_000_000, 200.0, 60, "crash-02", ""))
    assert (
        both
        == run.added(both, Slice(0, 0.0, None, "crash-01", ""))
        == {
            **{
                "target": "xc",
                "executions": 4_000_000,
                "CPU seconds": 800.0,
                "executions per CPU second": 5000,
            },
            **{"edges": 70, "findings": "crash-01; crash-02", "goal %": 40},
        }
    )


def test_several_processes_record_at_the_same_time(record):
    """Here as threads, which open the record each on its own."""
    names = ["header", "labels", "header", "labels"]

    def count(target: str) -> None:
        for _ in range(10):
            run.recorded(target, Slice(3, 0.5, None, "", ""))

    threads = [threading.Thread(target=count, args=[name]) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {row["target"]: (row["executions"], row["CPU seconds"]) for row in record()} == {
        "header": (60, 10.0),
        "labels": (60, 10.0),
    }


def test_what_is_counted_survives_the_end_of_a_call(record, monkeypatch):
    begun = []

    def one_slice(target: str, runs: int, first: int) -> Slice:
        begun.append(first)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return run.slice_in_python(target, 40, first)

    with pytest.raises(KeyboardInterrupt):
        run.fuzz("header", one_slice, 1000, record=True)
    (row,) = record()
    assert begun == [0, 40, 80] and row["executions"] == 80 and 0.1 < row["CPU seconds"] < 1000
    assert row["executions per CPU second"] == round(80 / row["CPU seconds"])
    monkeypatch.setattr(run, "HOUR", row["CPU seconds"])  # the goal is reached: nothing runs
    run.recorded("header", Slice(0, 0.0, None, "", ""))
    assert run.fuzz("header", one_slice, 1000, record=True) and len(begun) == 3


def test_an_input_that_takes_too_long_is_found(record, tmp_path, monkeypatch, capsys):
    """By its CPU time, so that it is found under any load, and nothing else is."""
    script = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from fuzz import targets\n"
        "targets.SECONDS, numbers = 0.5, iter(range(4))\n"
        "def attempt(rng):\n"
        "    number = next(numbers)\n"
        "    time.sleep(0.6 * (number == 1))\n"
        "    while number == 2:\n"
        "        pass\n"
        "    return True\n"
        "targets.TARGETS['labels'] = lambda folder: attempt\n"
        "targets.main()\n"
    )
    (tmp_path / "targets.py").write_text(script)
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "LONGEST", 600)
    assert not run.fuzz("labels", run.slice_in_python, 1, record=True)
    (row,) = record()
    assert (row["executions"], row["findings"]) == (2, "--only 2")
    assert "FAILED" in (shown := capsys.readouterr().out) and "in attempt" in shown


@pytest.mark.skipif("xc" not in run.compiled(), reason="needs make fuzzbuild (Clang)")
def test_a_corpus_grows_between_slices_and_in_the_repository(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "GROWN", tmp_path / "grown")
    monkeypatch.setattr(run, "CORPORA", tmp_path)
    inputs = lambda: {path.name for path in (tmp_path / "grown" / "xc").iterdir()}
    first, grown = run.slice_in_core("xc", 3000, 0), inputs()
    second = run.slice_in_core("xc", 3000, 3000)
    assert (first.executions, second.executions) == (3000, 3000) and first.finding == second.finding == ""
    assert grown < inputs() and 100 < first.edges <= second.edges
    monkeypatch.setattr(run, "MOST_KEPT", 20)
    run.keep("xc")
    kept = (tmp_path / "xc.txt").read_text()
    assert len(kept.splitlines()) == 1 + 20
    monkeypatch.setattr(run, "MOST_KEPT", 500)
    run.keep("xc")
    assert (more := (tmp_path / "xc.txt").read_text()).startswith(kept) and len(more) > len(kept)
    run.keep("xc")
    assert (tmp_path / "xc.txt").read_text() == more
