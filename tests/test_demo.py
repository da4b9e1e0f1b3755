"""``bonsai demo --json``; what it prints otherwise is read in `test_docs.py`."""

import json

from bonsai_xmc import _cli


def test_demo_prints_its_figures_as_json(capsys):
    assert _cli.main(["demo", "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["same predictions"] and report["metrics"]["P@1"] > 80 and report["labels found"] > 10
    assert not err
