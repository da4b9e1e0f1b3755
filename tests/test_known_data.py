"""Known data sets: where they are looked for, their layouts, EURLEX57K as it is published."""

import gzip
import importlib.util
import json

import numpy as np
import pytest
from reproduce import __main__, known, repository
from scipy import sparse
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from bonsai_xmc import datasets, metrics
from xc_files import XC, X, Y, assert_same, write

# --- known data sets ------------------------------------------------------------------------------


def real_root():
    """The folder of the real data sets, or skip."""
    try:
        return known.find("bibtex").parent
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["bibtex", "delicious", "tate", "eurlex57k", "tibkat-core"])
def test_known_data_sets_are_the_reference_matrices(name):
    root = real_root()
    if not (root / "load.py").is_file():
        pytest.skip(f"{root} has no load.py to compare with")
    spec = importlib.util.spec_from_file_location("reference_loader", root / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected, actual = module.load(name), known.load(name)
    for ours, theirs in zip(actual[:4], expected, strict=True):
        assert_same(ours, theirs)
    assert len(actual.label_names) == len(set(actual.label_names)) == actual.Y_train.shape[1]
    if actual.feature_names is not None:
        assert len(actual.feature_names) == actual.X_train.shape[1]


@pytest.mark.real_data
def test_another_test_part_and_label_names():
    real_root()
    held, dev = known.load("eurlex57k"), known.load("eurlex57k", test="dev")
    assert held.X_test.shape == dev.X_test.shape == (6000, 39209)
    assert (held.X_test != dev.X_test).nnz
    assert held.label_names[:3] == ["import", "export refund", "pip fruit"]
    with pytest.raises(ValueError, match="bibtex has no test part 'dev', only 'tst'"):
        known.load("bibtex", test="dev")


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["delicious", "bibtex"])
def test_text_and_matrices_of_a_real_set_agree(name):
    root = real_root()
    data = known.load(name)
    for part, x, y in [("trn", data.X_train, data.Y_train), ("tst", data.X_test, data.Y_test)]:
        text = root / name / {"trn": "train.txt", "tst": "test.txt"}[part]
        loaded = datasets.load_xc(text)
        assert_same(loaded[0], x)
        assert_same(loaded[1], y)


def test_data_set_from_a_folder(tmp_path, monkeypatch):
    folder = tmp_path / "bibtex"
    folder.mkdir()
    monkeypatch.setenv("BONSAI_DATA", str(tmp_path))
    assert known.find("bibtex") == folder
    for part in ("trn", "tst"):
        for name, matrix in (("X", X), ("Y", Y)):
            sparse.save_npz(folder / f"{name}_{part}.npz", csr_array(matrix))
    write(folder / "labels.txt", "TAG_a\nb\n17\tc\nd\ne\n")
    data = known.load("bibtex")
    assert_same(data.X_test, X)
    assert_same(data.Y_train, Y)
    assert data.label_names == ["a", "b", "c", "d", "e"] and data.feature_names is None
    write(folder / "labels.txt", "a\nb\n")
    with pytest.raises(ValueError, match=r"labels\.txt has 2 lines, but there are 5 labels"):
        known.load("bibtex")
    (folder / "Y_tst.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"Y_tst\.npz is missing: data set 'bibtex' needs X_trn\.npz"):
        known.load("bibtex")


def test_text_set_from_a_folder(tmp_path):
    folder = tmp_path / "tibkat-core"
    folder.mkdir()
    train = (
        '{"title": "old maps", "abstract": null, "subjects": ["gnd:2", "gnd:1", "gnd:2"]}\n'
        '{"title": "old maps", "abstract": "once", "subjects": ["gnd:3"]}\n'
    )
    write(folder / "train.jsonl.gz", gzip.compress(train.encode()))
    held = '{"title": "maps", "abstract": "", "subjects": ["gnd:3", "gnd:9"]}\n'
    write(folder / "dev.jsonl.gz", gzip.compress(held.encode()))
    names = "https://d-nb.info/gnd/1\tSame\nhttps://d-nb.info/gnd/2\tSame\n"
    write(folder / "label_names.tsv.gz", gzip.compress(names.encode()))
    data = known.load("tibkat-core", root=tmp_path)
    assert data.feature_names == ["maps", "old"]
    assert data.Y_train.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert data.Y_test.toarray().tolist() == [[0, 0, 1]]
    assert data.label_names == ["Same (gnd:1)", "Same (gnd:2)", "gnd:3"]
    assert data.X_test.toarray().tolist() == [[1, 0]]


def test_missing_and_unknown_data_sets(tmp_path, monkeypatch):
    message = r"metadata of the Tate collection; put train\.jsonl\.gz, test\.jsonl\.gz there"
    with pytest.raises(FileNotFoundError, match=message):
        known.find("tate", root=tmp_path)
    message = r"at http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K or .* run: python -m reproduce prep"
    with pytest.raises(FileNotFoundError, match=message):
        known.load("eurlex57k", root=tmp_path)
    with pytest.raises(ValueError, match="data set 'tatte' is unknown, there are eurlex57k"):
        known.load("tatte")
    with pytest.raises(
        ValueError, match=r"load_xc\(path\) reads its files, make_xmc\('amazoncat-13k'\) generates"
    ):
        known.find("amazoncat-13k")


def test_where_data_sets_are_looked_for(tmp_path, monkeypatch):
    """The argument, BONSAI_DATA, the user's data folder; never a place that depends on the checkout."""
    names = ("argument", "variable", "xdg", "home")
    argument, variable, xdg, home = (tmp_path / name for name in names)
    places = [argument, variable, xdg / "bonsai-xmc", home / ".local" / "share" / "bonsai-xmc"]
    for place in places:
        (place / "tate").mkdir(parents=True)
    monkeypatch.setenv("BONSAI_DATA", str(variable))
    monkeypatch.setenv("XDG_DATA_HOME", str(xdg))
    monkeypatch.setenv("HOME", str(home))
    assert known.find("tate", root=argument) == argument / "tate"
    assert known.find("Tate", root=argument) == argument / "tate"
    for place, name in zip(places[1:], ("BONSAI_DATA", "XDG_DATA_HOME", "HOME"), strict=True):
        assert known.find("tate") == place / "tate"
        monkeypatch.delenv(name)


# --- EURLEX57K as its authors publish it ------------------------------------------------------------


def document(celex_id, words, concepts, key="concepts"):
    title, header, recitals, *body = words.split()
    return {
        "celex_id": celex_id,
        "uri": f"http://publications.europa.eu/resource/cellar/{celex_id}",
        "type": "Regulation",
        key: concepts,
        "title": title,
        "header": header,
        "recitals": recitals,
        "main_body": body,
        "attachments": ["neither read nor counted"],
    }


EURLEX = {  # in the order of the published files: brackets sort before the dot of .json
    "train": [
        document("31994D0219(01)", "fish fish law import duty", ["20", "3"]),
        document("31994D0219", "milk milk law import", ["3"]),
        document("32000R0001", "fish milk law once", ["20", "c_1"]),
    ],
    "dev": [document("32001R0001", "fish law law", ["9", "20"])],
    "test": [document("32002R0001", "unseen milk law", [])],
}


def publish(folder, form):
    """The same documents as files of their own, or as lines."""
    for part, documents in EURLEX.items():
        if form == "folders":
            (folder / part).mkdir(parents=True)
            for content in reversed(documents):
                write(folder / part / f"{content['celex_id']}.json", json.dumps(content))
        else:
            folder.mkdir(exist_ok=True)
            lines = [
                json.dumps({"eurovoc_concepts" if k == "concepts" else k: v for k, v in content.items()})
                for content in reversed(documents)
            ]
            write(folder / f"{part}.jsonl", "\n".join(lines))
    return folder


@pytest.mark.parametrize("form", ["folders", "lines"])
def test_eurlex57k_is_laid_out_for_load(tmp_path, form):
    source = publish(tmp_path / "dataset" if form == "folders" else tmp_path / "unpacked", form)
    names = {"3": "adhesive", "20": "export \n refund", "c_1": "staff", "9": "dev only"}
    if form == "folders":
        concepts = {k: {"label": v, "alt_labels": [], "parents": []} for k, v in names.items()}
        write(source / "EURLEX57K.json", json.dumps(concepts))
    else:
        lines = [json.dumps({"id": k, "title": v, "alt_titles": []}) for k, v in names.items()]
        write(source / "eurovoc_concepts.jsonl", "\n".join(lines))
    with pytest.warns(UserWarning, match=r"3 \+ 1 \+ 1 documents and 4 labels instead of 45,000 \+ 6,000"):
        folder = known.prepare("eurlex57k", source, tmp_path / "root" / "eurlex57k")
    data = known.load("EURLEX57K", root=tmp_path / "root")
    # labels by descending frequency in train, ties by id
    assert data.label_names == ["export refund", "adhesive", "staff", "dev only"]
    assert data.feature_names == ["fish", "import", "law", "milk"]  # in two training documents at least
    assert data.Y_train.toarray().tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
    assert known.load("eurlex57k", tmp_path / "root", test="dev").Y_test.toarray().tolist() == [[1, 0, 0, 1]]
    assert (data.X_train.toarray() > 0).astype(int).tolist() == [[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]
    texts = [" ".join([d["title"], d["header"], d["recitals"], *d["main_body"]]) for d in EURLEX["train"]]
    expected = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32).fit_transform(texts)
    expected.sort_indices()
    assert_same(data.X_train, expected)
    first = json.loads(gzip.decompress((folder / "train.jsonl.gz").read_bytes()).splitlines()[0])
    assert (first["id"], first["main_body"], first["labels"]) == (
        "31994D0219(01)",
        "import\nduty",
        ["20", "3"],
    )


def test_errors_of_laying_out(tmp_path):
    with pytest.raises(ValueError, match="'tate' cannot be prepared, only 'eurlex57k'"):
        known.prepare("tate", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"missing is not a folder; get it from its authors"):
        known.prepare("eurlex57k", tmp_path / "missing", tmp_path / "out")
    source = publish(tmp_path / "source", "lines")
    with pytest.raises(ValueError, match="holds the published files; give another folder"):
        known.prepare("eurlex57k", source, source)
    write(source / "dev.jsonl", '{"title": "no more"}\n')
    with pytest.raises(ValueError, match=r"dev\.jsonl, line 1 is not a document of EURLEX57K"):
        known.prepare("eurlex57k", source, tmp_path / "out")
    (source / "dev.jsonl").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"has neither a folder dev/ with JSON files nor a file dev\.js"
    ):
        known.prepare("eurlex57k", source, tmp_path / "out")


@pytest.mark.real_data
def test_eurlex57k_is_laid_out_as_the_reference_matrices(tmp_path):
    """A part of the real documents gives the rows and labels that the reference has for them."""
    root = real_root() / "eurlex57k"
    labels = (root / "labels.txt").read_text("utf-8").splitlines()
    reference = datasets.load_sparse(root / "Y_trn.npz")
    counts = np.bincount(reference.indices, minlength=reference.shape[1])
    ordered = sorted(range(len(labels)), key=lambda i: (-counts[i], labels[i].split("\t")[0]))
    assert ordered == list(range(len(labels)))
    ids = [
        json.loads(line)["id"] for line in gzip.decompress((root / "dev.jsonl.gz").read_bytes()).splitlines()
    ]
    assert ids == sorted(ids, key=lambda i: f"{i}.json")


# --- the paper's data sets ------------------------------------------------------------------------

SHORT = "1 4 5\n3 0:1\n"  # a test file beside XC


def put(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        write(folder / name, content)


SPLIT = {
    "trn_X_Xf.txt": "3 4\n1:0.5 3:-2\n0:0.001\n\n",
    "trn_X_Y.txt": "3 5\n0:1 4:1\n\n2:1\n",
    "tst_X_Xf.txt": "1 4\n0:1\n",
    "tst_X_Y.txt": "1 5\n3:1\n",
}


@pytest.mark.parametrize(
    ("name", "folder", "files"),
    [
        ("eurlex-4k", "Eurlex", {"eurlex_train.txt": XC, "eurlex_test.txt": SHORT}),
        ("wiki10-31k", "Wiki10", {"wiki10_train.txt": XC, "wiki10_test.txt": SHORT}),
        ("wiki10-31k", "Wiki10.bow", {"train.txt": XC, "test.txt": SHORT}),
        ("wikilshtc-325k", "WikiLSHTC", {"wikiLSHTC_train.txt": XC, "wikiLSHTC_test.txt": SHORT}),
        (
            "wikipedia-500k",
            "WikipediaLarge-500K",
            {"WikipediaLarge-500K_train.txt": XC, "WikipediaLarge-500K_test.txt": SHORT},
        ),
        ("amazon-670k", "Amazon", {"amazon_train.txt": XC, "amazon_test.txt": SHORT}),
        ("amazon-670k", "Amazon-670K.bow", {"train.txt": XC, "test.txt": SHORT}),
        ("amazon-3m", "Amazon-3M", {"amazon-3M_train.txt": XC, "amazon-3M_test.txt": SHORT}),
        ("amazon-3m", "Amazon-3M.bow", SPLIT),
    ],
)
def test_layouts_of_the_papers_sets(tmp_path, name, folder, files):
    """Files as the archive holds them: in the set's own folder, in the archive's inside it, in that alone."""
    for i, place in enumerate([name, f"{name}/{folder}", folder]):
        root = tmp_path / str(i)
        put(root / place, files)
        assert known.find(name, root) == root / place
        with pytest.warns(UserWarning, match=r"is not the .* of the paper \(Table 1\)"):
            data = known.load(name, root)
        assert_same(data.X_train, X)
        assert_same(data.Y_train, Y)
        assert_same(data.X_test, np.array([[1, 0, 0, 0]], np.float32))
        assert_same(data.Y_test, np.array([[0, 0, 0, 1, 0]], np.float32))
        assert data.label_names is None


def test_quirks_of_the_papers_sets(tmp_path):
    """Compressed files, repeated labels in any order, a test header with fewer columns, names."""
    put(
        tmp_path / "eurlex-4k",
        {
            "train.txt.gz": gzip.compress(XC.replace("0,4", "4,0,4").encode()),
            "test.txt.gz": gzip.compress(b"1 1 4\n3 0:1\n"),
            "labels.txt": "a\nb\nc\nd\ne\n",
        },
    )
    with pytest.warns(UserWarning, match="3 training rows instead of 15,539, 1 test rows instead of 3,809"):
        data = known.load("eurlex-4k", tmp_path, test="tst")
    assert_same(data.Y_train, Y)
    assert data.X_test.shape == (1, 4) and data.Y_test.shape == (1, 5)
    assert data.label_names == list("abcde")
    with pytest.raises(ValueError, match="eurlex-4k has no test part 'dev', only 'tst'"):
        known.load("eurlex-4k", tmp_path, test="dev")


@pytest.mark.parametrize("name", repository.PAPER)
def test_a_missing_set_of_the_paper(tmp_path, name):
    about = repository.PAPER[name]
    with pytest.raises(FileNotFoundError) as caught:
        known.load(name, tmp_path)
    for part in (
        f"data set {name!r} is not in {tmp_path}",
        f'"BoW Features" of {about.title} from http://manikvarma.org/downloads/XC/XMLRepository.html',
        f"put into {tmp_path / name} what",
        f"{about.stem}_train.txt and {about.stem}_test.txt",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("missing", SPLIT)
def test_a_missing_file_of_a_set_of_the_paper(tmp_path, missing):
    put(tmp_path / "amazon-3m", SPLIT)
    (tmp_path / "amazon-3m" / missing).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        known.load("amazon-3m", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'amazon-3m' / missing} missing: fetch the")


def test_a_missing_test_file_of_a_set_of_the_paper(tmp_path):
    put(tmp_path / "Eurlex", {"eurlex_train.txt": XC})
    with pytest.raises(FileNotFoundError, match=r"Eurlex/eurlex_test\.txt missing: fetch"):
        known.load("eurlex-4k", tmp_path)


def test_statistics_equal_hand_computed_ones():
    data = datasets.Dataset(csr_array(X), csr_array(Y), csr_array(X[:1]), csr_array(Y[:1]), None, None)
    assert repository.statistics(data) == (3, 1, 5, 4, 3 / 5, 3 / 3, 5 / 5, 5 / 4)


def papers_figures(about):
    """Return statistics that agree with Table 1, but for the means that it does not show."""
    shown = (about.rows_per_label, about.labels_per_row)
    means = (-1, -1, *shown) if about.counts_test else (*shown, -1, -1)
    return repository.Statistics(about.n_rows, about.n_test, about.n_labels, about.n_features, *means)


@pytest.mark.parametrize("about", repository.PAPER.values(), ids=repository.PAPER)
def test_each_figure_of_table_1_is_checked(about):
    same = papers_figures(about)
    assert about.differences(same) == []
    for field in ("n_rows", "n_test", "n_labels", "n_features"):
        more = same._replace(**{field: getattr(same, field) + 1})
        (text,) = about.differences(more)
        assert text.startswith(f"{getattr(same, field) + 1:,} ")
        assert text.endswith(f" instead of {getattr(same, field):,}")
    for field in ("rows_per_label", "labels_per_row"):
        shown = field + "_all" * about.counts_test
        near, far = (same._replace(**{shown: getattr(same, shown) + by}) for by in (0.09, 0.2))
        assert about.differences(near) == []
        assert len(about.differences(far)) == 1


def test_the_paper_and_the_generator_list_the_same_sets():
    """Two lists of the same figures; the paper's number of rows of Amazon-670K is a misprint."""
    for name, about in repository.PAPER.items():
        shape = datasets.SHAPES[name]
        for field in ("n_rows", "n_test", "n_labels", "n_features"):
            misprint = (name, field) == ("amazon-670k", "n_rows")
            assert (getattr(shape, field) != getattr(about, field)) == misprint
        assert abs(shape.labels_per_row - about.labels_per_row) <= 0.1
        rows = shape.n_rows + about.counts_test * shape.n_test
        assert rows * shape.labels_per_row / shape.n_labels == pytest.approx(about.rows_per_label, rel=0.03)
        assert about.propensity == metrics.PROPENSITY[name]
    assert (
        repository.PAPER["amazon-670k"].differences(
            papers_figures(repository.PAPER["amazon-670k"])._replace(n_rows=490_449)
        )
        == []
    )


def test_published_data_are_laid_out_by_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BONSAI_DATA", str(tmp_path / "root"))
    content = {"celex_id": "1", "concepts": ["1"], "title": "the word", "header": "a word", "recitals": ""}
    for part in ("train", "dev", "test"):
        (tmp_path / "source" / part).mkdir(parents=True)
        for i in range(2):
            path = tmp_path / "source" / part / f"{i}.json"
            path.write_text(json.dumps(content | {"main_body": ["word"]}))
    with pytest.warns(match="this is not EURLEX57K as published"):
        assert __main__.main(["prepare", "eurlex57k", str(tmp_path / "source")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'root' / 'eurlex57k'}\n"
    assert known.load("eurlex57k").feature_names == ["the", "word"]
    assert __main__.main(["prepare", "eurlex57k", str(tmp_path / "missing")]) == 1
    assert "missing is not a folder; get it from" in capsys.readouterr().err
