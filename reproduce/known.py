"""Known data sets by name, from a folder on this machine."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from bonsai_xmc._base.files import PathLike
from bonsai_xmc.datasets._matrices import SHAPES
from bonsai_xmc.datasets._types import Dataset

from . import eurlex57k, repository
from .repository import PAPER

ROOT_VARIABLE = "BONSAI_DATA"


class _Source(NamedTuple):
    """The layout of a data set in its folder."""

    read: Callable[["_Source", Path, str], Dataset]
    origin: str  # how to get it
    tests: tuple[str, ...]  # names of its test parts, the default first
    fields: tuple[str, ...] = ()  # of a record, that make up the text
    labels: str = ""  # field of a record with its label ids


def find(name: str, root: PathLike | None = None) -> Path:
    """Return the folder of a data set.

    Parameters
    ----------
    name : str
        "eurlex57k", "tibkat-core", "tate", "delicious", "bibtex", or a data set of the paper: "eurlex-4k",
        "wiki10-31k", "wikilshtc-325k", "wikipedia-500k", "amazon-670k", "amazon-3m". Case is
        ignored.
    root : path, optional
        The folder that holds the folders of the data sets. Default: the environment variable ``BONSAI_DATA``,
        else ``bonsai-xmc`` in the user's data folder (``$XDG_DATA_HOME``, else ``~/.local/share``).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from reproduce import known
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> (root / "eurlex57k").mkdir()
    >>> known.find("eurlex57k", root) == root / "eurlex57k"
    True
    """
    name = known_name(name)
    base = data_root(root)
    if name in PAPER:
        return repository.locate(PAPER[name], base)
    folder = base / name
    if not folder.is_dir():
        raise FileNotFoundError(f"data set {name!r} is not at {folder}: {_advice(name, folder)}")
    return folder


def data_root(root: PathLike | None = None) -> Path:
    """Return the folder that holds the folders of the data sets."""
    if root or os.environ.get(ROOT_VARIABLE):
        return Path(root or os.environ[ROOT_VARIABLE])
    home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(home) / "bonsai-xmc"


def known_name(name: str) -> str:
    """Return the name of a known data set as it is written here."""
    lower = name.lower()
    if lower not in SOURCES and lower not in PAPER:
        hint = ""
        if lower in SHAPES:
            hint = f"; load_xc(path) reads its files, make_xmc({lower!r}) generates data of its shape"
        known = ", ".join([*SOURCES, *PAPER])
        raise ValueError(f"data set {name!r} is unknown, there are {known}{hint}")
    return lower


def load(name: str, root: PathLike | None = None, test: str | None = None) -> Dataset:
    """Return a known data set as matrices.

    Text is turned into TF-IDF features (sublinear, words of at least two rows) fitted on the training part,
    and labels that occur only in the test part of a text set are left out.

    Nothing is downloaded. For a data set that is missing, the error names its source and what to do
    with its files. Data sets of the paper are compared with `repository.PAPER`; a difference gives a warning.

    Parameters
    ----------
    name : str
        As for :func:`find`, which looks for it in `root`.
    root : path, optional
    test : str, optional
        Which held-out part: "tst" or "dev" for eurlex57k. The others have one only, "dev" for tibkat-core.

    Returns
    -------
    Dataset
        Labels without a known name are named by their id; the id is appended to names that labels share.

    Examples
    --------
    >>> from reproduce import known
    >>> data = known.load("bibtex")
    >>> data.X_train.shape, data.Y_train.shape, data.label_names[:2]
    ((4880, 1836), (4880, 159), ['2005', '2006'])
    """
    name, folder = known_name(name), find(name, root)
    tests = ("tst",) if name in PAPER else SOURCES[name].tests
    part = tests[0] if test is None else test
    if part not in tests:
        raise ValueError(f"{name} has no test part {part!r}, only {', '.join(map(repr, tests))}")
    if name in PAPER:
        data = repository.read(PAPER[name], folder)
        return data._replace(label_names=_label_lines(folder, data.Y_train.shape[1]))
    source = SOURCES[name]
    try:
        return source.read(source, folder, part)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error.filename} is missing: data set {name!r} needs {', '.join(_files(name))} in {folder}"
        ) from error


def prepare(name: str, source: PathLike, folder: PathLike | None = None) -> Path:
    """Turn a data set as it is published into the files that :func:`load` reads; nothing is downloaded.

    Parameters
    ----------
    name : {"eurlex57k"}
    source : path
        The folder that the published archive unpacks to. EURLEX57K: with folders ``train``, ``dev`` and
        ``test`` of JSON files, or with ``train.jsonl``, ``dev.jsonl`` and ``test.jsonl``. If the file with
        the names of the concepts lies beside them (``EURLEX57K.json``, ``eurovoc_en.json`` or
        ``eurovoc_concepts.jsonl``), labels get names.
    folder : path, optional
        Where to write; created if missing. Default: where :func:`load` looks.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import json, pathlib, tempfile, warnings
    >>> from reproduce import known
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> text = {"title": "Fish", "header": "fish", "recitals": "law", "main_body": ["law"], "concepts": ["7"]}
    >>> for part in ("train", "dev", "test"):
    ...     (here / "published" / part).mkdir(parents=True)
    ...     for name in ("a.json", "b.json"):
    ...         _ = (here / "published" / part / name).write_text(json.dumps(text))
    >>> with warnings.catch_warnings(action="ignore"):  # the data set is not complete
    ...     _ = known.prepare("eurlex57k", here / "published", here / "eurlex57k")
    >>> known.load("eurlex57k", root=here).feature_names
    ['fish', 'law']
    """
    if known_name(name) != "eurlex57k":
        raise ValueError(f"{name!r} cannot be prepared, only 'eurlex57k'; see known.load for the others")
    target = Path(folder) if folder is not None else data_root() / "eurlex57k"
    if not Path(source).is_dir():
        raise FileNotFoundError(f"{os.fspath(source)} is not a folder; {eurlex57k.ORIGIN}")
    eurlex57k.lay_out(Path(source), target)
    return target


def _advice(name: str, folder: Path) -> str:
    elsewhere = f"or set {ROOT_VARIABLE} (or root) to the folder that holds {name}/"
    if name == "eurlex57k":
        command = f"python -m reproduce prepare eurlex57k SOURCE -o {folder}"
        return f"{eurlex57k.ORIGIN}, then run: {command}; {elsewhere}"
    return f"{SOURCES[name].origin}; put {', '.join(_files(name))} there, {elsewhere}"


def _files(name: str) -> list[str]:
    source = SOURCES[name]
    if source.fields:
        return [f"{part}.jsonl.gz" for part in ("train", *source.tests)]
    return [f"{letter}_{part}.npz" for part in ("trn", *source.tests) for letter in "XY"]


def _read_matrices(source: _Source, folder: Path, test: str) -> Dataset:
    files = [folder / f"{matrix}_{part}.npz" for part in ("trn", test) for matrix in "XY"]
    X_train, Y_train, X_test, Y_test = (csr_array(sparse.load_npz(file)) for file in files)
    features = None
    if (folder / "features.txt").is_file():
        features = (folder / "features.txt").read_text("utf-8").splitlines()
    return Dataset(X_train, Y_train, X_test, Y_test, _label_lines(folder, Y_train.shape[1]), features)


def _label_lines(folder: Path, n_labels: int) -> list[str] | None:
    """Read names from labels.txt, a label a line: a name, or id and name with a tab between them."""
    if not (folder / "labels.txt").is_file():
        return None
    lines = (folder / "labels.txt").read_text("utf-8").splitlines()
    if len(lines) != n_labels:
        raise ValueError(f"{folder / 'labels.txt'} has {len(lines)} lines, but there are {n_labels} labels")
    return [line.rpartition("\t")[2].removeprefix("TAG_") for line in lines]


def _read_records(source: _Source, folder: Path, test: str) -> Dataset:
    train, held = (_records(folder / f"{part}.jsonl.gz") for part in ("train", test))
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    X_train = csr_array(vectorizer.fit_transform(_texts(train, source.fields)))
    X_test = csr_array(vectorizer.transform(_texts(held, source.fields)))
    ids = sorted({label for record in train for label in record[source.labels]})
    Y_train, Y_test = (_indicator(records, source.labels, ids) for records in (train, held))
    features = vectorizer.get_feature_names_out().tolist()
    return Dataset(X_train, Y_train, X_test, Y_test, _names_of(folder, ids), features)


def _records(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _texts(records: list[dict[str, Any]], fields: tuple[str, ...]) -> list[str]:
    return [" ".join(str(record[field] or "") for field in fields) for record in records]


def _indicator(records: list[dict[str, Any]], field: str, ids: list[Any]) -> csr_array:
    column = {label: i for i, label in enumerate(ids)}
    rows = [sorted({column[label] for label in record[field] if label in column}) for record in records]
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    indices = np.fromiter((label for row in rows for label in row), np.int32, indptr[-1])
    return csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), len(ids)))


def _names_of(folder: Path, ids: list[Any]) -> list[str]:
    """Read names from label_names.tsv (id, name, …), plain or compressed, and make them unique."""
    known: dict[str, str] = {}
    for path, opened in ((folder / "label_names.tsv", open), (folder / "label_names.tsv.gz", gzip.open)):
        if path.is_file():
            with opened(path, "rt", encoding="utf-8") as lines:
                known |= dict(line.rstrip("\n").split("\t")[:2] for line in lines)
    # ids of the GND are addresses there and short in the records
    known |= {key.replace("https://d-nb.info/gnd/", "gnd:"): name for key, name in known.items()}
    names = [known.get(str(label), str(label)) for label in ids]
    times = Counter(names)
    return [n if times[n] == 1 else f"{n} ({label})" for n, label in zip(names, ids, strict=True)]


_TATE_FIELDS = ("title", "medium", "artists", "dateText", "classification", "groupTitle", "inscription")
_REPOSITORY = f"it comes from {repository.PAGE}; datasets.load_xc and save_xc turn text into .npz"
SOURCES = {
    "eurlex57k": _Source(_read_matrices, eurlex57k.ORIGIN, ("tst", "dev")),
    "tibkat-core": _Source(
        _read_records,
        "its records are the tib-core track of SemEval-2025 task 5 (LLMs4Subjects)",
        ("dev",),
        ("title", "abstract"),
        "subjects",
    ),
    "tate": _Source(
        _read_records,
        "its records are the metadata of the Tate collection",
        ("test",),
        _TATE_FIELDS,
        "labels",
    ),
    "delicious": _Source(_read_matrices, _REPOSITORY, ("tst",)),
    "bibtex": _Source(_read_matrices, _REPOSITORY, ("tst",)),
}
