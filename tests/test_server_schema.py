"""The description of the HTTP interface against its answers, as schemathesis checks them."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")

from bonsai_xmc import Bonsai, TextBonsai, datasets
from test_server import Server, make_model

EXAMPLES = os.environ.get("BONSAI_EXAMPLES", "3")  # for each path and each way to make them
PLACES = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
SCHEMATHESIS = shutil.which("schemathesis", path=PLACES)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Make models that differ in what their requests may hold: texts and trees, or fields."""
    folder = tmp_path_factory.mktemp("schema")
    data = datasets.make_texts(200, random_state=0)
    records = [{"title": text[:20], "abstract": text} for text in data.texts_train]
    fields = TextBonsai({"title": 1.0, "abstract": 1.0}, min_df=1, classifier=Bonsai(n_jobs=1, threshold=0.5))
    fields.fit(records, data.labels_train).save(folder / "fields.bonsai")
    make_model(folder / "trees.bonsai", classifiers="leaf")
    return folder


@pytest.mark.skipif(SCHEMATHESIS is None, reason="schemathesis is not installed: pip install schemathesis")
@pytest.mark.parametrize("name", ["fields", "trees"])
def test_answers_are_as_described(models, name, tmp_path):
    server = Server(models / f"{name}.bonsai")
    try:
        options = ("--max-examples", EXAMPLES, "--generation-deterministic", "--no-color")
        run = subprocess.run(
            [SCHEMATHESIS, "run", f"http://127.0.0.1:{server.port}/openapi.json", *options],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    finally:
        assert server.stop() == 0
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
