"""The first inputs of each target in `tests/fuzz/targets.py`; `make fuzz` goes on with others."""

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")

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
