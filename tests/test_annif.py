"""The backend in Annif itself. Run by `make test-annif`, in an environment with Annif; skipped elsewhere."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("annif", reason="Annif is not installed: `make test-annif` has it")

import annif.backend
import nltk
from annif.corpus import Document, DocumentList, SubjectSet
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)

from bonsai_xmc import Bonsai, Fusion, TextBonsai, datasets
from bonsai_xmc.annif import register
from bonsai_xmc.systems import FastXML

AnnifClient = pytest.importorskip("annif_client").AnnifClient

PROJECTS = """
[trees]
name=Trees
language=en
backend=bonsai
analyzer=simple
vocab=themes
cluster_k=100
cluster_balanced=False
max_depth=3

[best]
name=One-vs-rest
language=en
backend=bonsai
analyzer=simple
vocab=themes
ngram=2
min_df=2
C=1.5
classifiers=one_vs_rest

[tfidf]
name=TF-IDF
language=en
backend=tfidf
analyzer=simple
vocab=themes

[both]
name=Ensemble
language=en
backend=ensemble
sources=best:2,tfidf
vocab=themes
"""


class Site:
    """A folder with a vocabulary, documents and projects, and the commands of Annif in it."""

    def __init__(self, folder):
        self.folder = folder
        data = datasets.make_texts(1500, n_test=200, random_state=0)
        self.names = list(data.label_names)
        (folder / "projects.cfg").write_text(PROJECTS)
        vocab = "".join(f"<http://example.org/{i}>\t{name}\n" for i, name in enumerate(self.names))
        (folder / "vocab.tsv").write_text(vocab)
        number = {name: i for i, name in enumerate(self.names)}
        for name, texts, labels in (
            ("train", data.texts_train, data.labels_train),
            ("test", data.texts_test, data.labels_test),
        ):
            lines = []
            for text, row in zip(texts, labels, strict=True):
                uris = " ".join(f"<http://example.org/{number[label]}>" for label in row)
                lines.append(f"{' '.join(text.split())}\t{uris}\n")
            (folder / f"{name}.tsv").write_text("".join(lines))
        self.test = list(zip(data.texts_test, data.labels_test, strict=True))
        self.annif("load-vocab", "themes", "vocab.tsv", "--language", "en")

    def run(self, *args, **more):
        command = [str(Path(sys.executable).parent / "annif"), *args]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300, **more)

    def annif(self, *args, **more):
        done = self.run(*args, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        pytest.skip("Annif's analyzers need data: python -m nltk.downloader punkt_tab, or set NLTK_DATA")
    site = Site(tmp_path_factory.mktemp("annif"))
    for project in ("trees", "best", "tfidf"):
        site.annif("train", project, "train.tsv")
    return site


def scores(output):
    """Return the metrics that `annif eval` prints."""
    lines = (re.match(r"(.+?):?\s+([\d.]+)$", line) for line in output.splitlines())
    return {line[1]: float(line[2]) for line in lines if line}


# --- the commands ---


def test_annif_suggest_lists_true_subjects_by_falling_score(site):
    text, labels = site.test[0]
    found = site.annif("suggest", "best", "--limit", "5", input=text).splitlines()
    assert 1 <= len(found) <= 5
    names = [line.split("\t")[1] for line in found]
    assert set(names) & set(labels)
    values = [float(line.split("\t")[-1]) for line in found]
    assert all(0 < value <= 1 for value in values) and values == sorted(values, reverse=True)


def test_eval_with_jobs_gives_the_same(site):
    single = scores(site.annif("eval", "best", "test.tsv"))
    assert single["F1@5"] > 0.25 and single["NDCG"] > 0.5
    assert scores(site.annif("eval", "best", "test.tsv", "-j", "2")) == pytest.approx(single, abs=1e-6)


def test_projects_are_listed_as_trained(site):
    rows = [line.split() for line in site.annif("list-projects").splitlines()]
    assert all("True" in row for row in rows if row and row[0] in ("trees", "best"))


def test_train_cached_with_other_parameters(site):
    before = (site.folder / "data/projects/trees/bonsai-model").read_bytes()
    out = site.annif("train", "trees", "--cached", "-b", "bonsai.n_trees=1", "--jobs", "1")
    model = Bonsai.load(site.folder / "data/projects/trees/bonsai-model")
    assert len(model.trees_) == 1 and model.branching_factor == 100, out
    site.annif("train", "trees", "--cached")
    assert (site.folder / "data/projects/trees/bonsai-model").read_bytes() == before


def test_the_model_is_that_of_the_parameters(site):
    model = Bonsai.load(site.folder / "data/projects/best/bonsai-model")
    assert (model.classifiers_, model.C) == ("one_vs_rest", 1.5)
    assert model.n_features_in_ > Bonsai.load(site.folder / "data/projects/trees/bonsai-model").n_features_in_
    trees = Bonsai.load(site.folder / "data/projects/trees/bonsai-model")
    assert (trees.classifiers_, trees.branching_factor, trees.balance) == ("leaf", 100, "none")


def test_files_have_names_that_annif_expects(site):
    files = {path.name for path in (site.folder / "data/projects/best").iterdir()}
    assert files == {"bonsai-model", "vectorizer", "bonsai-train-x.npz", "bonsai-train-y.npz"}


def test_annif_hyperopt_proposes_parameters(site):
    out = site.annif("hyperopt", "best", "test.tsv", "--trials", "2", "--metric", "NDCG")
    assert "C=" in out and "tail_exponent=" in out
    out = site.annif("hyperopt", "trees", "test.tsv", "--trials", "2", "--jobs", "2", "--metric", "F1@5")
    assert "C=" in out and "prune=" in out


def test_an_ensemble_with_bonsai_beats_tfidf(site):
    both = scores(site.annif("eval", "both", "test.tsv"))
    assert both["F1@5"] > scores(site.annif("eval", "tfidf", "test.tsv"))["F1@5"]


def test_a_wrong_parameter_is_named(site):
    done = site.run("train", "best", "--cached", "-b", "bonsai.C=much")
    assert done.returncode == 1
    assert "Misconfigured project 'best': C is 'much', but must be" in done.stderr


def test_help_is_not_slower(site):
    def cpu(*before_it):
        code = ";".join(
            ["import sys", "sys.argv = ['annif', '--help']", *before_it, "from annif.cli import cli", "cli()"]
        )
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=site.folder)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # without entry points, that is, without ours
    blocked = "import flask.cli", "flask.cli.FlaskGroup._load_plugin_commands = lambda self: None"
    with_ours, without = (min(cpu(*more) for _ in range(5)) for more in ((), blocked))
    assert with_ours < without + 0.1
    heavy = "import sys; from annif.cli import cli; import bonsai_xmc.annif; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout
    assert "bonsai_xmc._estimators.bonsai" not in loaded.split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_web_server_with_several_workers(site):
    port = free_port()
    command = [
        str(Path(sys.executable).parent / "gunicorn"), "annif:create_app()", "--workers", "2",
        "--worker-class", "uvicorn.workers.UvicornWorker", "--bind", f"127.0.0.1:{port}",
    ]  # fmt: skip
    environment = os.environ | {"ANNIF_CONFIG": "bonsai_xmc.annif.ProductionConfig"}
    server = subprocess.Popen(
        command, cwd=site.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        url = f"http://127.0.0.1:{port}/v1/projects/best/suggest"
        text, labels = site.test[0]
        body = f"text={urllib.request.quote(text)}&limit=5".encode()
        for _ in range(120):
            try:
                answers = [json.load(urllib.request.urlopen(url, body, timeout=30)) for _ in range(8)]
                break
            except OSError:
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.5)
        assert all(answer == answers[0] for answer in answers)
        assert {result["label"] for result in answers[0]["results"]} & set(labels)
    finally:
        server.terminate()
        server.wait(30)


# --- the server, with clients of Annif ---


@pytest.fixture(scope="module")
def server(site):
    """Run `bonsai serve` with a model whose labels are the subjects of the vocabulary."""
    lines = [line.split("\t") for line in (site.folder / "train.tsv").read_text().splitlines()]
    texts, labels = [text for text, _ in lines], [re.findall("<(.*?)>", uris) for _, uris in lines]
    names = dict(line.split("\t") for line in (site.folder / "vocab.tsv").read_text().splitlines())
    model = TextBonsai(classifier=Bonsai(threshold=0.5)).fit(texts, labels)
    model = model.name_labels({uri.strip("<>"): name for uri, name in names.items()})
    model.save(site.folder / "served.bonsai")
    command = [sys.executable, "-m", "bonsai_xmc", "serve", str(site.folder / "served.bonsai"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield process.stdout.readline().strip()
    process.terminate()
    assert process.wait(30) == 0


def test_annif_client_reads_projects_and_suggestions_from_the_server(site, server):
    client = AnnifClient(server + "v1/")
    assert client.api_info["title"] == "bonsai-xmc"
    assert [project["project_id"] for project in client.projects] == ["served"]
    assert client.get_project("served")["is_trained"]
    text, labels = site.test[0]
    results = client.suggest("served", text, limit=5, threshold=0.01)
    assert {result["label"] for result in results} & set(labels)
    assert all(result["uri"].startswith("http://example.org/") for result in results)
    documents = [{"text": text, "document_id": "first"}, {"text": site.test[1][0]}]
    batch = client.suggest_batch("served", documents, limit=5, threshold=0.01)
    assert batch[0] == {"document_id": "first", "results": results} and len(batch) == 2
    with pytest.raises(ValueError, match="'none' not found"):
        client.suggest("none", text)


def test_annifs_http_backend_can_use_the_server(site, server):
    with open(site.folder / "projects.cfg", "a") as file:
        endpoint = f"{server}v1/projects/served/suggest"
        file.write(f"[remote]\nname=Remote\nlanguage=en\nbackend=http\nendpoint={endpoint}\nvocab=themes\n")
    measured = scores(site.annif("eval", "remote", "test.tsv"))
    assert measured["F1@5"] > 0.25 and measured["NDCG"] > 0.5
    assert "True" in next(l for l in site.annif("list-projects").splitlines() if l.startswith("remote"))


# --- the backend as an object, case by case as for other backends ---


class Analyzer:
    def tokenize_words(self, text, filter=True):
        return text.lower().split()


class Subjects:
    """A vocabulary of six subjects, of which number 4 is deprecated."""

    def __len__(self):
        return 6

    @property
    def active(self):
        return [(i, None) for i in (0, 1, 2, 3, 5)]


class Project:
    def __init__(self, folder):
        self.datadir, self.project_id = str(folder), "project"
        self.analyzer, self.subjects = Analyzer(), Subjects()


WORDS = ("owl", "fog", "yarn", "rye", "moss", "sail")
TEXTS = [
    f"the {word} and {WORDS[(i + j) % 6]} number{j}" for j in range(1, 4) for i, word in enumerate(WORDS)
]
CORPUS = DocumentList([Document(text=text, subject_set=SubjectSet([i % 6])) for i, text in enumerate(TEXTS)])


@pytest.fixture
def backend(tmp_path):
    register()
    return annif.backend.get_backend("bonsai")("bonsai", {"limit": 3}, Project(tmp_path))


def another(backend, **config):
    return type(backend)("bonsai", config, backend.project)


def found(batch):
    return [[suggestion.subject_id for suggestion in result] for result in batch]


def test_backend_defaults_are_those_of_annif(tmp_path):
    register()
    params = annif.backend.get_backend("bonsai")("bonsai", {}, Project(tmp_path)).params
    assert (params["limit"], params["min_df"], params["ngram"]) == (100, 1, 1)


def test_suggestions_before_training_are_an_error(backend):
    with pytest.raises(NotInitializedException, match="vectorizer"):
        backend.suggest([Document(text="owl")])
    with pytest.raises(NotInitializedException, match=r"training data .* not found"):
        backend.train("cached")
    assert not backend.is_trained


def test_suggestions_are_sparse_limited_and_without_deprecated_subjects(backend):
    backend.train(CORPUS)
    assert backend.is_trained and backend._model is not None
    batch = backend.suggest([Document(text="owl owl"), Document(text="j"), Document(text="sail moss")])
    assert batch.array.dtype == np.float32 and batch.array.shape == (3, 6)
    ids = found(batch)
    assert ids[0][0] == 0 and ids[1] == [] and ids[2][0] == 5
    assert all(len(row) <= 3 for row in ids)
    assert not any(4 in row for row in ids)  # deprecated
    assert found(another(backend, limit=3).suggest([Document(text="owl owl")])) == ids[:1]  # from the files
    assert found(another(backend, limit=0).suggest([Document(text="owl owl")])) == [[]]


def test_a_project_uses_the_calibrated_scores_of_its_model(backend, tmp_path):
    """A project uses the scores of its model file, calibrated or not, with an unchanged ranking."""
    backend.train(CORPUS)
    queries = [Document(text=text) for text in TEXTS]
    before = backend.suggest(queries)
    model = Bonsai.load(tmp_path / "bonsai-model", mmap=False)
    X, Y = backend.load_train_data()
    model = model.calibrate(X, Y)
    model.save(tmp_path / "bonsai-model")
    after = another(backend, limit=3).suggest(queries)
    assert found(after) == found(before)
    assert not np.allclose(after.array.data, before.array.data)
    ids, scores = model.top_k(X, 3)
    for row, best, values in zip(after.array.toarray(), ids, scores, strict=True):
        for label, value in zip(best, values, strict=True):
            assert label == 4 or row[label] == value  # 4 is deprecated


def test_a_fusion_may_be_the_model_of_a_project(backend, tmp_path):
    backend.train(CORPUS)
    path = tmp_path / "bonsai-model"
    model, (X, Y) = Bonsai.load(path, mmap=False), backend.load_train_data()
    trees = FastXML(n_trees=5, max_leaf_rows=2, threshold=0.5).fit(X, Y)
    fused = Fusion.of({"linear": model, "trees": trees}, X, Y, link="score", weights=[1, 1])
    fused.save(path)
    after = another(backend, limit=3).suggest([Document(text=text) for text in TEXTS])
    ids, scores = fused.top_k(X, 3)
    for row, best, values in zip(after.array.toarray(), ids, scores, strict=True):
        for label, value in zip(best, values, strict=True):
            assert label in (-1, 4) or row[label] == value  # 4 is deprecated
    Fusion.of({"linear": model, "trees": trees}, {"linear": X, "trees": X}, Y, weights=[1, 1]).save(path)
    with pytest.raises(OperationFailedException, match="members do not read the same rows"):
        another(backend, limit=3).suggest([Document(text="owl")])
    TextBonsai(min_df=1).fit(TEXTS, [[str(i)] for i in range(len(TEXTS))]).save(path)
    with pytest.raises(OperationFailedException, match="is a text model"):
        another(backend, limit=3).suggest([Document(text="owl")])


def test_training_again_replaces_the_model(backend, tmp_path):
    backend.train(CORPUS)
    first = (tmp_path / "bonsai-model").read_bytes()
    backend.train(CORPUS)
    assert (tmp_path / "bonsai-model").read_bytes() == first
    backend.train(CORPUS, {"ngram": 2})
    assert (tmp_path / "bonsai-model").read_bytes() != first


def test_train_on_no_documents(backend):
    with pytest.raises(NotSupportedException, match="no documents"):
        backend.train(DocumentList([]))
    with pytest.raises(NotSupportedException, match="both text and subjects"):
        backend.train(DocumentList([Document(text="an owl", subject_set=SubjectSet([]))]))


def test_documents_without_subjects_or_text_are_left_out(backend):
    extra = [
        Document(text="yarn", subject_set=SubjectSet([])),
        Document(text=" ", subject_set=SubjectSet([1])),
    ]
    backend.train(DocumentList([*CORPUS.documents, *extra]))
    assert backend._model.n_rows_fit_ == len(TEXTS)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {"classifiers": "auto"}),
        ({"cluster_k": "100", "cluster_balanced": "false", "max_depth": "3"},
         {"classifiers": "leaf", "branching_factor": 100, "balance": "none", "max_depth": 3}),
        ({"cluster_balanced": "True"},
         {"classifiers": "leaf", "branching_factor": 2, "balance": "equal", "max_leaf_size": 99}),
        ({"cluster_k": 1}, {"max_depth": 1}),
        ({"C": "2.5", "prune": "auto", "normalize": "off"}, {"C": 2.5, "prune": "auto", "normalize": False}),
        ({"classifiers": "leaf", "max_depth": "none"}, {"classifiers": "leaf", "max_depth": None}),
    ],
)  # fmt: skip
def test_omikuji_style_parameters_become_those_of_bonsai(backend, params, expected):
    model = backend._estimator(backend._get_backend_params(params), 0)
    assert {name: getattr(model, name) for name in expected} == expected


def test_collapse_every_n_layers_bounds_the_depth(backend):
    backend.train(CORPUS, {"cluster_k": "2", "collapse_every_n_layers": "5"})
    assert backend._model.trees_[0].depth <= 2


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": "-1"}, "C is -1.0, but must be"),
        ({"classifiers": "all"}, "classifiers is 'all', but must be"),
        ({"cluster_k": "0"}, "cluster_k is 0"),
    ],
)
def test_wrong_parameters_raise_a_configuration_exception(backend, params, message):
    with pytest.raises(ConfigurationException, match=message):
        backend.train(CORPUS, params)
    assert not backend.is_trained


def test_a_damaged_model_file_is_reported_as_a_failed_operation(backend, tmp_path):
    backend.train(CORPUS)
    (tmp_path / "bonsai-model").write_bytes(b"nothing")
    with pytest.raises(OperationFailedException, match="is not a bonsai-xmc model"):
        another(backend).initialize()


def test_a_smaller_or_larger_vocabulary(backend):
    backend.train(CORPUS)

    class Larger(Subjects):
        def __len__(self):
            return 9

    class Smaller(Subjects):
        def __len__(self):
            return 2

        active = [(0, None), (1, None)]  # noqa: RUF012

    backend.project.subjects = Larger()
    assert backend.suggest([Document(text="sail")]).array.shape == (1, 9)
    backend.project.subjects = Smaller()
    assert set(found(backend.suggest([Document(text="sail owl")]))[0]) <= {0, 1}


def test_other_programs_of_flask_are_left_alone():
    code = "import sys, bonsai_xmc.annif; print('annif' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
