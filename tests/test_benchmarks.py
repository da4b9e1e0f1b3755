"""The benchmarks run: what they import exists, two checkouts can be compared, tables have their columns."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if not path.stem.startswith("__")
)


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_each_module_can_be_imported(module, name):
    assert module(name).__doc__


def test_one_run_of_each_of_our_models(module, monkeypatch, tmp_path):
    runs, before_after = module("_runs"), module("before_after.speed")
    monkeypatch.setattr(runs, "BUILD", tmp_path)
    python = Path(sys.executable)
    done = {
        model: [runs.run(python, "small*0.2", model, 0, 1, 120.0, "old-")] for model in before_after.MODELS
    }
    for model, (run,) in done.items():
        assert "error" not in run and run["P@1"] > 30 and run["model MB"] > 0, (model, run)
        assert run["peak MB"] > run["before MB"] > 0 and run["p99 ms"] >= run["p50 ms"] > 0
    assert done["ours"][0]["model MB"] < done["ours-trees"][0]["model MB"]
    table = before_after.table(done["ours"], done["ours"])
    assert "| training, s |" in table and "× 1.00" in table and "| PSP@5 |" in table and "+0.00" in table


def test_a_shape_is_trained_and_measured_step_by_step(module, tmp_path, capsys):
    whole, shape, folder = module("scale.whole"), "small*0.2", tmp_path
    whole.make_data(shape, folder)
    whole.train(shape, folder, "trees", 1, True, None)
    whole.measure(shape, folder, "trees", 1, True)
    row = whole.row_of(shape, folder, "trees")
    assert row["data"] == "small × 0.2, generated: 400 rows, 60 labels" and row["model"] == "three trees"
    assert row["P@1"] > 30 and row["found %"] > 80 and row["prune"] == 0.1 and row["bytes a weight"] > 1
    assert row["CPU s"] > 0 and row["peak GB"] > 0 and row["rows/s, 1 thread"] > 0
    facts = whole.load(folder / "trees.json")
    assert {"classifiers", "threshold"} <= set(facts["phases CPU s"]) & set(facts["phases peak MB"])
    assert list((folder / "trees.work").iterdir())
    twice = row | {name: 2 * row[name] for name in ("pairs", *whole.GROWING)}
    whole.report([row, twice])
    assert "CPU s 1.00, peak GB 1.00" in capsys.readouterr().out


def test_leaves_are_counted(module):
    """By hand: one leaf has all labels; it has a problem for each, with all rows."""
    generator = module("scale.generator")
    (facts,) = generator.leaf_facts("small*0.05")
    assert facts["labels"] == 15 and facts["leaves of a row"] == 1 and facts["of the two largest, %"] == 100
    assert facts["rows × labels of leaves, 10⁶"] == pytest.approx(15 * 100 / 1e6)
    assert facts["labels of a pair's leaf"] == 15 and 0 < facts["above 0.3, %"] < 100
    (many,) = generator.leaf_facts("small")
    assert 1 < many["leaves of a row"] < many["labels of a row"] and many["of the two largest, %"] < 100
    assert many["labels of a pair's leaf"] < many["labels"] == 300
    assert many["of large leaves, %"] == 0
    plain, bounded, deeper = generator.cluster_facts("small*0.5", n_trees=1, n_seeds=1)
    assert [one["clusters"] for one in (plain, bounded, deeper)] == list(generator.CLUSTERS)
    assert deeper["largest leaf"] <= plain["largest leaf"] and 20 < bounded["P@1"] <= 100
    mean, deviation = generator.cluster_facts("small*0.5", n_trees=2, n_seeds=2)[0]["P@1"]
    assert 20 < mean <= 100 and deviation < 20


def test_there_are_at_most_ten_benchmarks():
    """Not counting `figures`, which writes the documents."""
    places = (ROOT / "benchmarks").iterdir()
    scripts = {path.stem for path in places if path.suffix == ".py" or (path / "__main__.py").is_file()}
    assert len({name for name in scripts if not name.startswith("_")} - {"figures"}) <= 10


def test_a_failed_run_gives_its_reason(module, monkeypatch, tmp_path):
    runs, before_after = module("_runs"), module("before_after.speed")
    monkeypatch.setattr(runs, "BUILD", tmp_path)
    run = runs.run(Path(sys.executable), "small*0.1", "no-such-system", 0, 1, 60.0)
    assert "train failed: KeyError: 'no-such-system'" in run["error"]
    assert before_after.table([run], [run]).startswith("failed: train failed")


def test_old_and_new_take_turns(module):
    order = module("before_after.speed").order
    assert [order(repeat) for repeat in range(3)] == [("old", "new"), ("new", "old"), ("old", "new")]


def test_ours_alternate_with_the_peers(module):
    schedule = module("compare").schedule(["ours", "omikuji", "pecos"], 2, 1)
    assert [row for row, _ in schedule] == [
        *("ours", "ours-one-vs-rest", "omikuji", "ours-trees"),
        *("ours", "ours-one-vs-rest", "pecos", "ours-trees"),
    ]


def test_named_kernels_exist(module):
    table = (ROOT / "src/core/kernels/kernels.hpp").read_text()
    program = (ROOT / "benchmarks/roofline.cpp").read_text()
    for kernel in module("roofline").STYLES:
        assert f"(*{kernel})(" in table and f'"{kernel}"' in program


def test_figures_equal_those_of_annif(module):
    """By hand: 2 of 3 true labels among five; gains 1 + 1/log2(4) of an ideal 1 + 1/log2(3) + 1/log2(4)."""
    figures = module("texts.accuracy").as_annif(
        [["a", "x", "b", "y", "z", "w"], ["q"]], [["a", "b", "c"], ["r"]]
    )
    assert figures["F1@5"] == pytest.approx(100 * (2 * 2 / (5 + 3)) / 2)
    assert figures["nDCG@10"] == pytest.approx(100 * (1.5 / (1.5 + 1 / np.log2(3))) / 2)


def test_an_interrupted_encoding_continues(module, monkeypatch, tmp_path):
    encoders, done = module("encoders"), []
    texts = [f"text {i}" for i in range(3)] * 2

    def encode(some):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(some)
        return np.array([[len(text), ord(text[-1])] for text in some], np.float32)

    monkeypatch.setattr(encoders, "_PART", 1)
    monkeypatch.setattr(encoders, "_encoder", lambda name, threads: encode)
    with pytest.raises(KeyboardInterrupt):
        encoders.Cached("e", [texts], tmp_path, 1)
    del done[0]
    cached = encoders.Cached("e", [texts], tmp_path, 1)
    assert done == [["text 1"], ["text 2"]]  # the first two are there
    assert cached(texts).tolist() == [[6, 48], [6, 49], [6, 50]] * 2
