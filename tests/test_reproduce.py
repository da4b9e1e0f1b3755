"""The paper's experiments: a small run of all, tests of differences, remarks, reuse, errors, statistics."""

import csv
import functools
import json
import math
import re
import sys

import numpy as np
import pytest
import reproduce
from reproduce import EXPERIMENTS, __main__, beam, depth, published, remarks, source, store
from reproduce.bench import PRESETS, VARIANTS, system
from reproduce.comparisons import Comparisons
from reproduce.depth import branching_for
from reproduce.statistics import fit_power_law, holm, mean_and_sd, paired_t_test
from scipy.sparse import csr_array

from bonsai_xmc import Bonsai, LabelTree, datasets, metrics
from bonsai_xmc._base.params import check_params
from bonsai_xmc.datasets import Dataset
from kinds import QUICK

DATA = "generated:small*0.5"
SLUG = "generated-small-0.5"
FIGURES = set(EXPERIMENTS) - {"datasets"}
SMALL, SMALL_SLUG = "generated:small*0.4", "generated-small-0.4"
TESTING = ["precision", "tail", "balance", "coverage", "depth", "output-space"]


# Most tests need no more systems than these.
run = functools.partial(reproduce.run, only=PRESETS)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder with a finished run of everything; not to be changed."""
    folder = tmp_path_factory.mktemp("experiments")
    run("all", DATA, folder, seeds=2, n_jobs=1)
    return folder


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A folder with a run of all experiments that test differences, with as many seeds as tests need."""
    folder = tmp_path_factory.mktemp("tested")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth, "DEPTHS", (2, 3))
        run(TESTING, SMALL, folder, seeds=5, n_jobs=1)
    return folder


@pytest.fixture
def fits(monkeypatch):
    """A list that gets the seed of each model that is trained."""
    seeds, fit = [], Bonsai.fit

    def counted(self, *args, **options):
        seeds.append(self.random_state)
        return fit(self, *args, **options)

    monkeypatch.setattr(Bonsai, "fit", counted)
    return seeds


def result(folder, name, slug=SLUG):
    return json.loads((folder / name / f"{slug}.json").read_text("utf-8"))


def lines(folder, name, slug=SLUG):
    with open(folder / name / f"{slug}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- A run of everything --------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_writes_its_files(done, name):
    endings = {"csv", "json"} | ({"png", "svg"} if name in FIGURES else set())
    endings |= {"html"} if name == "partition" else set()
    assert {path.suffix[1:] for path in (done / name).iterdir()} == endings
    assert lines(done, name), "the numbers are there"
    if name in FIGURES:
        assert (done / name / f"{SLUG}.png").read_bytes().startswith(b"\x89PNG")
        assert (done / name / f"{SLUG}.svg").read_text("utf-8").rstrip().endswith("</svg>")
    content = result(done, name)
    assert "Generated data" in content["caption"] and content["generated"]
    for table in content["tables"]:
        assert table["rows"] and all(len(row) == len(table["columns"]) for row in table["rows"])


def test_the_report_needs_no_other_files(done):
    page, text = ((done / f"report.{ending}").read_text("utf-8") for ending in ("html", "md"))
    for name, experiment in EXPERIMENTS.items():
        assert f'id="{name}"' in page and f"## {experiment.title}" in text
    assert page.count("data:image/png;base64,") == len(FIGURES)
    for foreign in ('src="http', "src='http", "<link", "<script", "@import"):
        assert foreign not in page
    assert page.count("Generated data, not") == len(EXPERIMENTS)
    assert "83" in page and "†" in page and "PD-Sparse" in page, "the paper's numbers are next to ours"


def test_numbers_agree_with_the_metrics(done):
    data = datasets.make_xmc("small", scale=0.5)
    model = Bonsai.preset("parabel", random_state=1).fit(data.X_train, data.Y_train)
    ids, _ = model.top_k(data.X_test, 5)
    truth = data.Y_test.toarray()
    expected = 100 * np.mean([truth[row, best] for row, best in enumerate(ids[:, 0])])
    (line,) = (x for x in lines(done, "precision") if (x["system"], x["seed"]) == ("parabel", "1"))
    assert float(line["P@1"]) == pytest.approx(expected)


def test_depths_are_reached_with_equal_numbers_of_classifiers(done):
    equal_beam, equal_number, *_ = result(done, "depth")["tables"]
    assert [row[0] for row in equal_beam["rows"]] == ["2", "3", "4", "5", "6"]
    assert [row[2] for row in equal_beam["rows"]] == ["2", "3", "4", "5", "6"], "levels reached"
    count = equal_number["columns"].index("classifiers per row")
    counts = [float(row[count].split(" ")[0]) for row in equal_number["rows"]]
    assert all(number >= 0.8 * counts[0] for number in counts)
    # without early leaves there is nothing to drop
    shallow = [x for x in lines(done, "depth") if (x["depth"], x["seed"]) == ("2", "1")]
    by_curve = {x["curve"]: x["P@5"] for x in shallow}
    assert by_curve["metrics"] == by_curve["equal"] == by_curve["dropped"]
    assert by_curve["single"] == by_curve["single dropped"] != by_curve["metrics"]


def test_one_vs_rest_is_run_once_and_others_for_each_seed(done):
    seeds = {}
    for line in lines(done, "precision"):
        seeds.setdefault(line["system"], []).append(line["seed"])
    assert seeds.pop("dismec") == ["0"]
    assert seeds == {name: ["0", "1"] for name in ("bonsai-i", "bonsai-o", "bonsai-io", "parabel")}


def test_figures_are_recorded_cell_by_cell(tmp_path, monkeypatch):
    """Once a system has all its seeds, and again from the stored units if the run was interrupted."""
    stored = []

    def record(name, rows, beside):
        stored.extend((name, row, beside) for row in rows if row["data"].startswith("generated"))
        if len(stored) == 1 and failing:
            raise KeyboardInterrupt

    failing = True
    again = functools.partial(run, ["precision", "tail"], SMALL, tmp_path, seeds=2, n_jobs=1, record=record)
    with pytest.raises(KeyboardInterrupt):
        again()
    failing = False
    first = stored.pop()
    again()
    assert first == stored[0], "kept, with the time of the first run"
    name, row, beside = first
    assert (name, row["system"], row["seeds"], beside) == ("paper", "Bonsai-i", 2, ("data", "system"))
    mean, deviation = row["PSP@5"]
    values = [float(x["PSP@5"]) for x in lines(tmp_path, "tail", SMALL_SLUG) if x["system"] == "bonsai-i"]
    assert (mean, deviation) == pytest.approx(mean_and_sd(values))
    dismec = next(row for _, row, _ in stored if row["system"] == "DiSMEC")
    assert dismec["seeds"] == 1 and isinstance(dismec["C@1"], float)


def test_the_command_line_records_into_the_result_files(tmp_path, monkeypatch, capsys):
    from benchmarks import figures

    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    for names, only in (("precision", "parabel"), ("depth propagation", "parabel"), ("time", "dismec")):
        options = f"--data {SMALL} --systems {only} --seeds 2 --n-jobs 1 -o {tmp_path / 'out'} --record here"
        assert __main__.main(["run", *names.split(), *options.split()]) == 0, capsys.readouterr().err
    tables = json.loads((tmp_path / "here.json").read_text("utf-8"))["tables"]
    assert {*tables} == {"paper", "paper-depth", "paper-early-leaves", "paper-propagation"}
    assert tables["paper"]["command"].startswith("python -m reproduce run time --data ")
    ours = [row["system"] for row in tables["paper"]["rows"] if row["data"] == SMALL]
    assert ours == ["Parabel", "DiSMEC"], "rows of another command stay"
    shown = figures.table(f"here/paper across data={SMALL}|EURLex-4K † columns system, C@1, C@3")
    assert re.search(r"\| Parabel \| [\d.]+, [\d.]+ \| 31.5, 43.1 \|", shown)


# --- Differences and their p-values ---------------------------------------------------------------


def comparisons(folder, name, slug):
    return {(c["a"], c["b"], c["metric"]): c for c in result(folder, name, slug)["comparisons"]}


def texts(content):
    """Return all sentences and cells of a result."""
    cells = (cell for table in content["tables"] for row in table["rows"] for cell in row)
    return [*content["findings"], content["caption"], *cells]


def test_each_difference_has_one_p_value(tested):
    seen = {}
    for name in TESTING:
        for case, compared in comparisons(tested, name, SMALL_SLUG).items():
            assert case not in seen and (case[1], case[0], case[2]) not in seen, "tested twice"
            seen[case] = compared["p"]
            assert compared["method"] == "Holm"
    assert sum(p is not None for p in seen.values()) > 40


def test_printed_p_values_are_those_of_the_comparisons(tested):
    for name in TESTING:
        known = comparisons(tested, name, SMALL_SLUG).values()
        p_values = [c["p"] for c in known if c["p"] is not None]
        expected = {"p < 0.001" if p < 0.001 else f"p = {p:.3f}" for p in p_values}
        content = result(tested, name, SMALL_SLUG)
        printed = [found for text in texts(content) for found in re.findall(r"\(p [^)]*\)", text)]
        assert printed and all(p.endswith(", Holm)") for p in printed)
        assert {p[1:].removesuffix(", Holm)") for p in printed} == expected
        notes = content["caption"] + "".join(table["note"] for table in content["tables"])
        assert f"Holm's method for the {len(p_values)} comparisons" in notes


def test_p_values_are_corrected_for_all_comparisons_of_the_experiment(tested):
    found = {}
    for line in lines(tested, "precision", SMALL_SLUG):
        for metric in ("P@1", "P@3", "P@5"):
            found.setdefault((line["system"], metric), []).append(float(line[metric]))
    known = comparisons(tested, "precision", SMALL_SLUG)
    raw = [paired_t_test(found[a, m], found[b, m])[1] for a, b, m in known]
    assert len(raw) == 30
    for compared, p in zip(known.values(), holm(raw), strict=True):
        assert compared["p"] == (None if math.isnan(p) else pytest.approx(p))


def test_fewer_than_five_seeds_are_not_tested(done):
    for name in TESTING:
        content = result(done, name)
        assert all(c["p"] is None for c in content["comparisons"]) and content["comparisons"]
        assert not any(re.search(r"\bp [=<]", text) for text in texts(content))
        notes = content["caption"] + "".join(table["note"] for table in content["tables"])
        assert "No significance tests: 2 seeds, and tests need at least 5." in notes


def test_differences_that_do_not_vary_are_not_tested():
    values = {"a": [2.0] * 5, "b": [1.0] * 5}
    compared = Comparisons(lambda name, metric: values[name], [("a", "b")], ["P@1"])
    assert compared["a", "b", "P@1"].text == "+1.00"
    assert compared.note == "No significance tests: the differences do not vary with the seed."


# --- Data that do not suit an experiment ----------------------------------------------------------


def small_data(Y_train, Y_test=None):
    Y = csr_array(np.asarray(Y_train))
    X = csr_array(np.ones((Y.shape[0], 2)))
    held = Y if Y_test is None else csr_array(np.asarray(Y_test))
    return Dataset(X, Y, csr_array(np.ones((held.shape[0], 2))), held, None, None)


def test_missing_and_few_tail_labels_give_a_remark():
    assert "No label has fewer than 5 training rows" in remarks.no_tail(small_data(np.ones((5, 2))))[0]
    rare = np.zeros((200, 2), int)
    rare[:, 0], rare[:4, 1] = 1, 1
    assert "4 occurrences of tail labels" in remarks.no_tail(small_data(rare))[0]
    assert remarks.no_tail(small_data(rare, np.ones((150, 2), int))) == []
    assert "1 occurrence of" in remarks.no_tail(small_data(rare, np.ones((150, 2), int)), pairs=1)[0]


def test_labels_in_one_leaf_and_labels_without_co_occurrence_give_a_remark():
    one_each = small_data(np.eye(100, dtype=int))
    assert "The 100 labels fit into one leaf (up to 100)" in remarks.single_leaf(one_each)[0]
    assert remarks.single_leaf(small_data(np.eye(101, dtype=int))) == []
    assert "No training row has two labels" in remarks.no_cooccurrence(one_each)[0]
    assert remarks.no_cooccurrence(small_data(np.ones((2, 2), int))) == []


def test_frequencies_without_a_power_law_give_a_remark():
    assert remarks.poor_fit(0.79) and not remarks.poor_fit(0.8)
    assert remarks.poor_fit(math.nan), "no fit at all"


def test_curves_that_coincide_give_a_remark(tmp_path):
    # 60 labels: every tree has one node, so that all systems are one-vs-rest
    data = datasets.make_xmc(n_rows=300, n_test=100, n_features=200, n_labels=60, labels_per_row=2.0)
    for part, X, Y in (("train", data.X_train, data.Y_train), ("test", data.X_test, data.Y_test)):
        datasets.save_xc(tmp_path / f"{part}.txt", X, Y)
    text = f"{tmp_path}/train.txt,{tmp_path}/test.txt"
    run(["precision", "propagation"], text, tmp_path / "out", seeds=1, n_jobs=1)
    (path,) = (tmp_path / "out" / "precision").glob("*.json")
    systems, paths = (
        result(tmp_path / "out", name, path.stem)["remarks"] for name in ("precision", "propagation")
    )
    assert "fit into one leaf" in systems[0] and "coincide: Bonsai-i; Bonsai-o; Bonsai-io" in systems[1]
    assert paths == remarks.single_leaf(data)
    assert systems[0] in (tmp_path / "out" / "report.md").read_text("utf-8")
    assert 'class="remark"' in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_depth_curves_that_coincide_give_a_remark():
    curve = lambda at_2, at_3: {2: at_2, 3: at_3}
    points = {
        "metrics": curve(90.0, 89.0), "equal": curve(90.0, 89.04), "dropped": curve(90.0, 88.0),
        "single": curve(89.0, 88.5), "single dropped": curve(89.0, 85.0),
    }  # fmt: skip
    runs = {
        d: [{name: {f"P@{k}": of[d] / k for k in (1, 3, 5)} for name, of in points.items()}] for d in (2, 3)
    }
    (remark,) = depth._depth_remarks(runs)
    assert "coincide (to 0.05): three trees, equal beam; three trees, equal number of classifiers." in remark
    assert depth._depth_remarks({2: runs[2]}) == ["The data have too few labels for more than one depth."]


def test_suitable_data_have_no_remarks(done):
    assert result(done, "precision")["remarks"] == result(done, "balance")["remarks"] == []


# --- Figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figures_name_data_and_seeds(done, name):
    svg = (done / name / f"{SLUG}.svg").read_text("utf-8")
    assert "small*0.5 (generated) · " in svg and "training rows" in svg
    seeds = {"powerlaw": None, "partition": "seed 0"}.get(name, "2 seeds")
    assert (f" · {seeds}<" in svg) == (seeds is not None)


def test_the_depth_figure_has_all_curves(done):
    svg = (done / "depth" / f"{SLUG}.svg").read_text("utf-8")
    for curve in ("equal beam", "equal number of classifiers", "early leaves dropped"):
        assert f"three trees, {curve}" in svg
    assert "one tree, equal beam" in svg and "one tree, early leaves dropped" in svg


# --- Reuse, interruption --------------------------------------------------------------------------


def test_a_second_run_trains_nothing_and_writes_the_same(tmp_path, fits):
    run(["precision", "tail", "coverage", "time"], DATA, tmp_path, seeds=2, n_jobs=1)
    assert sorted(fits) == [0] * 5 + [1] * 4, "the four share their models; one-vs-rest has one"
    before = (tmp_path / "precision" / f"{SLUG}.csv").read_bytes()
    fits.clear()
    said = []
    run(["precision", "tail"], DATA, tmp_path, seeds=2, n_jobs=1, report=said.append)
    assert fits == [] and said[-1] == "0 units of work computed, 18 reused"
    assert (tmp_path / "precision" / f"{SLUG}.csv").read_bytes() == before
    assert "Unique labels" in (tmp_path / "report.html").read_text("utf-8"), (
        "earlier results stay in the report"
    )
    run("precision", DATA, tmp_path, seeds=3, n_jobs=1)
    assert fits == [2] * 4, "only the new seed"


def test_other_data_and_other_parameters_are_other_units(tmp_path, fits):
    run("output-space", DATA, tmp_path, seeds=1, n_jobs=1)
    first = len(fits)
    run("output-space", "generated:small*0.2", tmp_path, seeds=1, n_jobs=1)
    assert len(fits) == 2 * first
    wide = {"bonsai-o": lambda seed: Bonsai.preset("bonsai-o", C=2.0, random_state=seed)}
    run("output-space", DATA, tmp_path, seeds=1, n_jobs=1, systems=wide)
    assert len(fits) == 2 * first + 1


def test_times_with_other_threads_are_measured_again(tmp_path, fits):
    run("precision", DATA, tmp_path, seeds=1, n_jobs=1)
    before = lines(tmp_path, "precision")
    fits.clear()
    run("precision", DATA, tmp_path, seeds=1, n_jobs=2)
    assert fits == [], "accuracy does not depend on threads"
    run("time", DATA, tmp_path, seeds=1, n_jobs=2)
    assert len(fits) == 5
    assert {line["threads"] for line in lines(tmp_path, "time")} == {"2"}
    run("precision", DATA, tmp_path, seeds=1)
    assert lines(tmp_path, "precision") == before


def test_reused_times_are_marked(tmp_path):
    run("time", DATA, tmp_path, seeds=1, n_jobs=1)
    assert "reused" not in result(tmp_path, "time")["tables"][0]["note"]
    run("time", DATA, tmp_path, seeds=1, n_jobs=1)
    assert "5 of 5 are reused" in result(tmp_path, "time")["tables"][0]["note"]


def test_an_interrupted_run_continues(tmp_path, fits):
    def stop_after_four(line):
        if len(fits) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("depth", DATA, tmp_path, seeds=2, n_jobs=1, report=stop_after_four)
    units = sorted((tmp_path / "units").iterdir())
    assert len(units) == 4, "finished units are on the disk before they are reported"
    assert all(path.suffix == ".json" and json.loads(path.read_text("utf-8")) for path in units)
    assert not (tmp_path / "depth" / f"{SLUG}.json").exists()
    fits.clear()
    run("depth", DATA, tmp_path, seeds=2, n_jobs=1)
    assert len(fits) == 16


def test_a_failed_write_leaves_no_unit(tmp_path, monkeypatch):
    units = store.Store(tmp_path)
    with pytest.raises(TypeError, match="set cannot be stored"):
        units.get({"kind": "x"}, lambda: {"value": {1}})
    assert list(units.folder.iterdir()) == []
    assert units.get({"kind": "x"}, lambda: {"value": np.float32(0.5)}) == {"value": 0.5}
    assert units.get({"kind": "x"}, lambda: pytest.fail("it is there")) == {"value": 0.5}
    monkeypatch.setattr(store, "package_digest", lambda: "another core")
    assert units.get({"kind": "x"}, lambda: {"value": 2}) == {"value": 2}


# --- Other systems, other data --------------------------------------------------------------------


class Popular:
    """A system that ranks the most frequent labels first, with the least that an experiment needs."""

    fitted = 0

    def fit(self, X, Y):
        Popular.fitted += 1
        self.best = np.argsort(-np.asarray(Y.sum(axis=0)).ravel(), kind="stable")

    def top_k(self, X, k):
        return np.tile(self.best[:k], (X.shape[0], 1)), np.ones((X.shape[0], k))


def test_any_object_with_fit_and_top_k_can_be_compared(tmp_path):
    Popular.fitted = 0
    systems = {"popular": lambda seed: Popular()}
    names = ["precision", "tail", "coverage", "time"]
    run(names, DATA, tmp_path, seeds=2, n_jobs=1, systems=systems)
    assert Popular.fitted == 2, "once for each seed, for all four"
    data = datasets.make_xmc("small", scale=0.5)
    best = np.argmax(np.asarray(data.Y_train.sum(axis=0)).ravel())
    expected = 100 * data.Y_test[:, [best]].toarray().mean()
    found = [float(x["P@1"]) for x in lines(tmp_path, "precision") if x["system"] == "popular"]
    assert found == pytest.approx([expected] * 2)
    assert "popular" in (tmp_path / "report.md").read_text("utf-8")


def test_folders_and_pairs_of_files(tmp_path):
    data = datasets.make_xmc("small", scale=0.2)
    for part, X, Y in (("train", data.X_train, data.Y_train), ("test", data.X_test, data.Y_test)):
        datasets.save_xc(tmp_path / f"{part}.txt", X, Y)
    folder = source.load(str(tmp_path))
    pair = source.load(f"{tmp_path}/train.txt,{tmp_path}/test.txt")
    assert folder.digest == pair.digest and not folder.generated and folder.paper is None
    assert folder.data.X_test.shape == data.X_test.shape


def test_other_spellings_are_the_same_data(tmp_path, monkeypatch):
    data = datasets.make_xmc("small", scale=0.2)
    (tmp_path / "mydata").mkdir()
    for part, X, Y in (("train", data.X_train, data.Y_train), ("test", data.X_test, data.Y_test)):
        datasets.save_xc(tmp_path / "mydata" / f"{part}.txt", X, Y)
        datasets.save_xc(tmp_path / f"{part}.svm", X, Y, format="svmlight", base=1)
    monkeypatch.chdir(tmp_path)
    spellings = ["mydata", "mydata/", "./mydata", "./mydata//"]
    assert {source.load(text).slug for text in spellings} == {"mydata"}
    run("powerlaw", spellings, tmp_path / "out", seeds=1)
    assert [path.name for path in (tmp_path / "out" / "powerlaw").glob("*.json")] == ["mydata.json"]
    assert source.load("Generated:Small*0.1").name == "generated:small*0.1"
    assert source.canonical("EURLEX57K") == "eurlex57k"
    # files of unknown base are read with the same base
    pair = source.load("train.svm,test.svm").data
    assert (pair.X_test[:, 1:] != data.X_test[:, : pair.X_test.shape[1] - 1]).nnz == 0
    with pytest.raises(ValueError, match="mydata holds the data; give another folder for the results"):
        run("powerlaw", "mydata/", "mydata", seeds=1)


def test_generated_data_take_the_settings_of_their_shape():
    shaped = source.load("generated:amazon-670k*0.001")
    assert shaped.paper == shaped.reference == "amazon-670k"
    assert shaped.propensity == (0.6, 2.6)
    assert "Generated data of the shape of amazon-670k" in shaped.note


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "data", "options", "message"),
    [
        ("precison", DATA, {}, "experiment 'precison' is unknown, there are datasets, .* and all"),
        ([], DATA, {}, "at least one experiment"),
        (
            "tail",
            "no-such-data",
            {},
            "data 'no-such-data' is unknown: give one of eurlex57k, .*generated:SHAPE",
        ),
        ("tail", "generated:tiny", {}, "shape 'tiny' is none of small, eurlex-4k"),
        ("tail", "generated:small*2", {}, "fraction after"),
        ("tail", "generated:small*x", {}, "fraction after"),
        ("tail", __file__, {}, "one file; experiments need two"),
        ("tail", DATA, {"seeds": 0}, "seeds is 0, but must be at least 1"),
        ("tail", DATA, {"n_jobs": 0}, "n_jobs is 0, but must be"),
    ],
)
def test_unknown_experiments_and_data_are_named(tmp_path, names, data, options, message):
    with pytest.raises(ValueError, match=message):
        run(names, data, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_missing_known_set_is_an_immediate_error(tmp_path, monkeypatch):
    monkeypatch.setenv("BONSAI_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="amazon-3m"):
        run("tail", [DATA, "amazon-3m"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'bonsai-xmc\[plots\]'"):
        run("powerlaw", DATA, tmp_path / "out")
    assert __main__.main(["run", "powerlaw", "--data", DATA, "-o", str(tmp_path / "out")]) == 1
    assert "reproduce: error: experiments draw with Matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_run_writes_the_report_and_names_unknown_experiments(tmp_path, capsys):
    arguments = ["run", "powerlaw", "datasets", "--data", DATA, "-o", str(tmp_path / "out"), "--quick"]
    assert __main__.main(arguments) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "out" / "report.html")
    assert f"{DATA}  powerlaw  done" in said.err
    assert result(tmp_path / "out", "powerlaw")["seeds"] == 2
    assert __main__.main(["run", "powerlaws", "--data", DATA, "-o", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("reproduce: error: experiment 'powerlaws' is unknown")


# --- Statistics by hand ---------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.7])
def test_power_law_of_known_exponent(exponent):
    ranks = np.arange(1, 5001)
    law = fit_power_law(np.random.default_rng(0).permutation(1e6 * ranks**-exponent))
    assert law.exponent == pytest.approx(exponent) and law.scale == pytest.approx(1e6)
    assert law.r_squared == pytest.approx(1)
    whole = fit_power_law(np.maximum(1, np.rint(1e7 * ranks**-exponent)))
    assert whole.exponent == pytest.approx(exponent, rel=0.05), "rounding to integers changes little"


def test_power_law_ignores_labels_without_rows_and_needs_two():
    assert fit_power_law([8, 4, 0, 0, 2]) == fit_power_law([2, 8, 4])
    assert math.isnan(fit_power_law([3, 0]).exponent)


def test_paired_test_of_known_numbers():
    # differences 1 … 5: mean 3, sd √2.5, t = 3 √2; Student's t with four degrees of freedom in closed form
    t = 3 * math.sqrt(2)
    x = t / math.sqrt(4 + t * t)
    expected = 1 - (3 * x - x**3) / 2
    difference, p = paired_t_test([3.0, 4.0, 5.0, 6.0, 7.0], [2.0] * 5)
    assert (difference, p) == (pytest.approx(3), pytest.approx(expected))
    assert paired_t_test([3.0, 4.0, 5.0, 6.0, 7.0], [2.0]) == (difference, p), "one value stands for all"
    assert paired_t_test([2.0, 2.0], [3.0, 4.0])[0] == -1.5


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0, 2.0, 4.0, 8.0], [0.0]),  # four seeds
        ([1.0], [2.0]),
        ([1.0] * 5, [2.0] * 5),  # nothing varies
        ([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_no_test_where_it_has_no_meaning(a, b):
    assert math.isnan(paired_t_test(a, b)[1])


def test_holm_and_spread_of_known_numbers():
    assert holm([0.04, 0.01, 0.9, 0.02]) == pytest.approx([0.08, 0.04, 0.9, 0.06])
    assert holm([0.5, math.nan, 0.9])[::2] == [1.0, 1.0]
    assert mean_and_sd([1.0, 2.0, 3.0]) == (2, 1)


def test_branching_for_a_depth():
    assert branching_for(2, 4000) == 64  # the paper's example
    for n_labels in (7, 8, 9, 63, 64, 65, 4108, 24_473):
        for levels in range(2, 7):
            k = branching_for(levels, n_labels)
            assert k**levels >= n_labels and (k == 2 or (k - 1) ** levels < n_labels)


# --- The beam in detail --------------------------------------------------------------------------


def test_survival_in_a_tree_made_by_hand():
    # root 0 → leaf 1 {0, 1}, node 2 → leaf 3 {2, 5}, leaf 4 {3}; label 4 is in no leaf
    tree = LabelTree.from_nested([[0, 1], [[2, 5], [3]]])
    kept = np.array([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0]], bool)
    Y = csr_array(np.array([[1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]]))
    survived, labels = beam.path_survival(tree, kept, Y)
    assert labels.tolist() == [0, 2, 1, 3, 5]
    # row 0: label 0 ends in an early leaf that was kept, 2 is lost at once;
    # row 1: 1 is lost, 3 survives the first step only, 5 arrives
    assert survived.tolist() == [[True, True], [False, False], [False, False], [True, False], [True, True]]
    assert beam.early_labels(tree).tolist() == beam.early_labels(tree, 3).tolist() == [0, 1]
    assert beam.early_labels(tree, 2).tolist() == [], "deeper leaves are those of oversized ones"


def test_training_work_of_a_tree_made_by_hand():
    tree = LabelTree.from_nested([[0, 1], [[2, 5], [3]]])
    Y = csr_array(np.array([[1, 1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]]))
    # root: 4 rows × 2; node 2: rows 1, 2 × 2; leaves: {0, 1} 2 rows × 2, {2, 5} 1 × 2, {3} 1 × 1
    assert beam.training_work(tree, Y) == {"root": 8, "inner": 4, "leaves": 7}


@pytest.mark.parametrize(
    "params",
    [
        {"branching_factor": 6},
        {"branching_factor": 2},
        {"branching_factor": 2, "balance": "equal", "max_leaf_size": 10},
        {"branching_factor": 200, "max_leaf_size": 5},
        {"normalize": False, "branching_factor": 4, "max_depth": 3},
    ],
)
def test_the_search_keeps_what_the_core_keeps(larger, params):
    model = Bonsai(classifiers="leaf", n_trees=1, beam_size=4, **params).fit(larger.X_train, larger.Y_train)
    X = larger.X_test[:150]
    search = beam.TreeSearch(model, X)
    found = search.run(4)
    ids, _ = model.top_k(X, len(model.classes_))
    leaves = np.flatnonzero(search.tree.arrays["is_leaf"])
    for row, kept in enumerate(found.kept):
        mine = {label for leaf in leaves[kept[leaves]] for label in search.tree.labels(leaf).tolist()}
        assert mine == set(ids[row][ids[row] >= 0].tolist())
    everything = search.run(10**6)
    assert everything.kept.all() and everything.evaluated == len(search.tree.arrays["children"])


def test_the_beam_for_a_number_of_classifiers_is_the_narrowest(larger):
    model = Bonsai(classifiers="leaf", n_trees=1, branching_factor=5).fit(larger.X_train, larger.Y_train)
    search = beam.TreeSearch(model, larger.X_test[:50])
    width = search.beam_for(120)
    assert search.run(width).evaluated >= 120 > search.run(width - 1).evaluated
    assert search.beam_for(1e9, at_most=30) == 30


def test_dropping_early_leaves_drops_just_these(larger):
    model = Bonsai(classifiers="leaf", n_trees=2, branching_factor=5, max_depth=5).fit(
        larger.X_train, larger.Y_train
    )
    X = larger.X_test[:100]
    early = [set(beam.early_labels(tree).tolist()) for tree in model.trees_]
    gone = early[0] & early[1]
    assert gone and set(model.top_k(X, 50)[0].ravel().tolist()) & gone
    ids, scores = beam.without_early_leaves(model).top_k(X, 50)
    assert not set(ids[scores > 0].tolist()) & gone
    assert set(ids[scores > 0].tolist()) & (early[0] ^ early[1]), "the other tree still finds a label"
    balanced = Bonsai(classifiers="leaf", n_trees=1, branching_factor=2, balance="equal").fit(
        larger.X_train, larger.Y_train
    )
    if not len(beam.early_labels(balanced.trees_[0])):
        same = beam.without_early_leaves(balanced).top_k(X, 5)
        assert np.array_equal(same[0], balanced.top_k(X, 5)[0])


def test_the_beam_search_supports_the_squared_hinge_only(fitted, generated):
    model = Bonsai(classifiers="leaf", loss="logistic", n_trees=1).fit(generated.X_train, generated.Y_train)
    with pytest.raises(ValueError, match="only 'squared_hinge'"):
        beam.TreeSearch(model, generated.X_test)


# --- The paper's numbers --------------------------------------------------------------------------


def test_published_numbers_have_their_shape():
    assert "pfastxml" not in published.TAIL["amazon-3m"], "its bars of 1 are placeholders"
    for table in (published.PRECISION, published.COVERAGE):
        for of_set in table.values():
            for numbers in of_set.values():
                assert len(numbers) == 3 and min(numbers) > 0 and max(numbers) < 100
    for curve in published.DEPTH.values():
        for precision, ndcg in curve.values():
            assert list(precision) == sorted(precision, reverse=True) and ndcg[0] == pytest.approx(
                precision[0], abs=0.01
            )
    for name in ("PRECISION", "TAIL", "COVERAGE", "DEPTH", "OUTPUT_SPACE"):
        assert set(getattr(published, name)) <= set(published.NAMES)


def test_the_papers_numbers_are_shown_for_its_own_data_set(tmp_path):
    run(["precision", "datasets"], "generated:eurlex-4k*0.05", tmp_path, seeds=1, n_jobs=1)
    table = result(tmp_path, "precision", "generated-eurlex-4k-0.05")["tables"][0]
    rows = {row[0]: row for row in table["rows"]}
    assert rows["Bonsai-i"][table["columns"].index("P@1, EURLex-4K †")] == "83.0"
    assert rows["SLEEC"][1:4] == ["–"] * 3 and rows["SLEEC"][4:] == ["79.3", "64.3", "52.3"]
    statistics = result(tmp_path, "datasets", "generated-eurlex-4k-0.05")
    assert statistics["tables"][0]["columns"][-1] == "Table 1, EURLex-4K †"
    assert statistics["findings"] == [], "generated data are not compared with the table"


# --- Systems ---


OTHERS = ["default", *VARIANTS]


@pytest.mark.parametrize("name", OTHERS)
def test_every_system_of_the_paper_is_measured(name, tmp_path):
    params = QUICK.get(VARIANTS[name][0], {}) if name in VARIANTS else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(published.SETTINGS, name, {"generated:small*0.2": params})
        run("precision", "generated:small*0.2", tmp_path, seeds=1, n_jobs=1, only=[name])
    (line,) = lines(tmp_path, "precision", "generated-small-0.2")
    assert line["system"] == name and 0 < float(line["P@1"]) <= 100


def test_own_data_have_a_name_and_ranked_files_are_compared_with_our_systems(tmp_path):
    data = datasets.make_xmc("small", scale=0.2)
    for part, X, Y in (("train", data.X_train, data.Y_train), ("test", data.X_test, data.Y_test)):
        datasets.save_xc(tmp_path / f"{part}.txt", X, Y)
    n_labels = data.Y_test.shape[1]
    truth = [row[:5] for row in np.split(data.Y_test.indices, data.Y_test.indptr[1:-1])]
    ids = np.full((len(truth), 5), -1, np.int32)
    for i, row in enumerate(truth):
        ids[i, : len(row)] = row
    metrics.write_predictions(tmp_path / "oracle.txt", ids, (ids >= 0) * 1.0, n_labels)
    given = f"ours={tmp_path / 'train.txt'},{tmp_path / 'test.txt'}"
    options = ["--systems", "bonsai-i", "--ranked", f"oracle={tmp_path / 'oracle.txt'}", "--seeds", "1"]
    assert __main__.main(["run", "precision", "--data", given, "-o", str(tmp_path / "out"), *options]) == 0
    found = {line["system"]: float(line["P@1"]) for line in lines(tmp_path / "out", "precision", "ours")}
    assert found["oracle"] == pytest.approx(100 * np.mean([len(row) > 0 for row in truth]))
    assert 0 < found["bonsai-i"] < found["oracle"]
    assert __main__.main(["run", "precision", "--data", given, "-o", str(tmp_path), "--systems", "x"]) == 1


def test_published_settings_are_parameters_of_their_systems():
    for name, of_data in published.SETTINGS.items():
        for data, settings in of_data.items():
            model = system(name, data)
            assert check_params(model.get_params(deep=False), model.parameters).items() >= settings.items()


def test_settings_of_pd_sparse_are_not_those_of_its_variant():
    assert (system("pd-sparse", "bibtex").l1, system("ppd-sparse", "bibtex").l1) == (1.0, 0.1)
    assert system("ppd-sparse", "bibtex").variant == "ppd"
