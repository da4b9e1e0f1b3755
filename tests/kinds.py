"""Every kind of fitted model, in one list for the contract tests and other modules."""

import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone

from bonsai_xmc import Bonsai, Fusion, RankedList, TextBonsai, datasets, systems
from bonsai_xmc.compat._omikuji_files import load_omikuji
from test_import_omikuji import sparse, write_model

TREES = {"branching_factor": 5, "n_trees": 2}
BLEND = {"classifiers": "blend", "blend_weight": 0.4, "C": 1.0, "logit_adjustment": 0.0, **TREES}

# Parameters of `Bonsai` by the kind of the model.
PARAMS: dict[str, dict[str, Any]] = {
    "leaf": {"classifiers": "leaf", **TREES},
    "one tree": {"classifiers": "leaf", "branching_factor": 5, "n_trees": 1, "max_depth": 4},
    "exact": {"classifiers": "one_vs_rest", "search": "exact"},
    "index": {"classifiers": "one_vs_rest", "search": "index"},
    "adjusted": {"classifiers": "one_vs_rest", "search": "exact", "logit_adjustment": 0.3},
    "blend": BLEND,
    "blend, index": BLEND | {"search": "index"},
    "blend, adjusted": BLEND | {"logit_adjustment": 0.1},
    "row trees": {"classifiers": "one_vs_rest", "search": "exact", "blend_weight": ("auto", 0.4)},
    "blend, row trees": BLEND | {"logit_adjustment": 0.1, "blend_weight": (0.4, 0.3)},
    "row trees, index": BLEND | {"search": "index", "blend_weight": (0.4, 0.3)},
    "logistic": {"classifiers": "one_vs_rest", "loss": "logistic", "tail_exponent": 0},
    "logistic blend": BLEND | {"loss": "logistic"},
    "newton": {"classifiers": "one_vs_rest", "solver": "newton", "loss": "logistic"},
    "raw rows": {"classifiers": "leaf", "normalize": False, **TREES},
    "joint": {"classifiers": "leaf", "representation": "joint", **TREES},
    "narrow beam": {"classifiers": "leaf", "beam_size": 1, **TREES},
}


def some(*names: str, **more: Any) -> dict[str, dict[str, Any]]:
    """Return the parameters of these kinds, with others added; "default" has none of its own."""
    return {name: PARAMS.get(name, {}) | more for name in names}


class Case(NamedTuple):
    """A fitted model, an estimator that would give it again, and rows to predict with their labels."""

    model: Any
    unfitted: Any  # None: it is not the result of a `fit`
    X_train: Any
    Y_train: Any
    X: Any
    Y: Any


N_ROWS = 260


@cache
def _data() -> Any:
    data = datasets.make_xmc(
        n_rows=N_ROWS, n_test=40, n_features=90, n_labels=25, features_per_row=12, labels_per_row=2.2
    )
    names = np.array([f"label {i}" for i in range(25)], dtype=object)
    lists = lambda Y: [names[row].tolist() for row in np.split(Y.indices, Y.indptr[1:-1])]
    return data.X_train, lists(data.Y_train), data.X_test, lists(data.Y_test)


def _of_rows(estimator: Any, dense: bool = False) -> Case:
    X_train, Y_train, X, Y = _data()
    if dense:
        X_train, X = X_train.toarray() + 0.25, X.toarray() + 0.25
    model = type(estimator)(**estimator.get_params(deep=False)).fit(X_train, Y_train)
    return Case(model, estimator, X_train, Y_train, X, Y)


def _edited(kind: str) -> Case:
    case = _of_rows(Bonsai(**PARAMS["exact"], threshold=0.5, n_jobs=1))
    if kind == "merged":
        model = case.model.merge(["label 1", "label 2"], "label 1").rename({"label 0": "other"})
    else:
        model = case.model.calibrate(case.X, case.Y)
    return case._replace(model=model, unfitted=None)


def _imported() -> Case:
    """Trees of omikuji, with a residual and a strict beam; label frequencies are unknown."""
    _, _, X, Y = _data()
    rng, n = np.random.default_rng(2), X.shape[1] + 1
    draw = lambda k: sparse(rng.normal(size=(n, k)) * (rng.random((n, k)) < 0.3))
    parts = np.split(rng.permutation(25), [4])
    leaves = [{"Leaf": {"weights": draw(len(part)), "labels": part.tolist()}} for part in parts]
    tree = {"Branch": {"weights": draw(2), "children": leaves}}
    with tempfile.TemporaryDirectory() as folder:
        model = load_omikuji(str(write_model(Path(folder), [tree, leaves[0]], n - 1)))
    ids = [[int(label.removeprefix("label ")) for label in row] for row in Y]
    return Case(model, None, None, None, X, ids)


def _of_texts(classifier: Any, by_names: bool = False) -> Case:
    texts = datasets.make_texts(200, n_test=30, random_state=3)
    names = {label: label for row in texts.labels_train for label in row} if by_names else None
    estimator = TextBonsai(classifier=classifier, word_ngrams=1, char_ngrams=None, label_texts=names)
    model = TextBonsai(**estimator.get_params(deep=False)).fit(texts.texts_train, texts.labels_train)
    train = (list(texts.texts_train), texts.labels_train)
    return Case(model, estimator, *train, list(texts.texts_test), texts.labels_test)


# Parameters with which a system trains quickly.
QUICK: dict[str, dict[str, Any]] = {
    "fastxml": {"n_trees": 4},
    "pfastrexml": {"n_trees": 4, "C": 5.0},
}


def system_of(kind: str, **params: Any) -> Any:
    """Return an unfitted system for small data."""
    return systems.system(kind)(**QUICK.get(kind, {}) | {"threshold": 0.3, "n_jobs": 1} | params)


def fusion_of(**params: Any) -> Fusion:
    """Return an unfitted fusion of linear classifiers and trees."""
    members = [("linear", Bonsai(**PARAMS["exact"], threshold=0.3)), ("trees", system_of("fastxml"))]
    return Fusion(members, **{"threshold": 0.3, "n_jobs": 1} | params)


def _fusion_of_texts() -> Case:
    case = _of_texts(Bonsai(classifiers="one_vs_rest", threshold=0.3, n_jobs=1))
    characters = TextBonsai(word_ngrams=None, char_ngrams=3, classifier=system_of("fastxml"))
    members = [("words", case.unfitted), ("characters", characters)]
    estimator = Fusion(members, weights=[0.6, 0.4], threshold=0.3, n_jobs=1)
    return case._replace(model=clone(estimator).fit(case.X_train, case.Y_train), unfitted=estimator)


def _fused() -> Case:
    """Return a fusion of models from files with different labels, calibrated on other rows."""
    case = _of_rows(Bonsai(**PARAMS["leaf"], threshold=0.3, n_jobs=1))
    few = [row[:1] for row in case.Y_train[:200]]
    models = [case.model.drop(["label 3"]), system_of("fastxml").fit(case.X_train[:200], few)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}.bonsai" for name in ("leaves", "trees")]
        for model, path in zip(models, paths, strict=True):
            model.save(path)
        options = {"link": "calibrated", "weights": [3, 1], "threshold": 0.3, "n_jobs": 1}
        model = Fusion.of(paths, case.X, case.Y, **options)
    return case._replace(model=model, unfitted=None)


def _listed() -> Case:
    """Rows are scores that another model gives to some labels."""
    case = _of_rows(Bonsai(**PARAMS["leaf"], threshold=0.3, n_jobs=1))
    estimator = RankedList(case.model.classes_.tolist(), threshold=0.3, n_jobs=1)
    X_train, X = case.model.predict_proba(case.X_train), case.model.predict_proba(case.X)
    model = clone(estimator).fit(X_train, case.Y_train)
    return Case(model, estimator, X_train, case.Y_train, X, case.Y)


def vectors_of(texts: list[str]) -> Any:
    """Return vectors that depend on the texts alone: counts of their short words, by hash."""
    vectors = np.zeros((len(texts), 24), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for word in text.split():
            vector[zlib.crc32(word.encode()) % 24] += len(word) < 5
    return vectors


def _encoded() -> Case:
    """Return a case in which each member finds labels that the other misses: long words and short ones."""
    rng = np.random.default_rng(7)
    names = [f"label {i}" for i in range(9)]
    texts, labels = [], []
    for _ in range(N_ROWS + 40):
        own = rng.permutation(9)[: rng.integers(1, 4)]
        words = [f"number{i}" if rng.random() < 0.5 else f"no{i}" for i in own]
        texts.append(" ".join([*words, f"noise{rng.integers(9)}", f"x{rng.integers(9)}"]))
        labels.append([names[i] for i in own])
    classifier = Bonsai(classifiers="one_vs_rest", threshold=0.3, n_jobs=1)
    params = {"word_ngrams": 1, "min_word_length": 5, "encoder": vectors_of, "classifier": classifier}
    train, test = (texts[:N_ROWS], labels[:N_ROWS]), (texts[N_ROWS:], labels[N_ROWS:])
    model = TextBonsai(**params).fit(*train)
    assert set(model.classifier_.weights_) == {"words", "vectors"}
    return Case(model, TextBonsai(**params), *train, *test)


MADE = ("merged", "calibrated", "imported", "fused files")  # not the result of a `fit`
KINDS = {
    **{
        name: lambda params=params: _of_rows(Bonsai(**params, threshold=0.3, n_jobs=1))
        for name, params in PARAMS.items()
    },
    "default": lambda: _of_rows(Bonsai(n_jobs=1)),
    "dense": lambda: _of_rows(Bonsai(**BLEND, threshold=0.3, n_jobs=1), dense=True),
    "merged": lambda: _edited("merged"),
    "calibrated": lambda: _edited("calibrated"),
    "imported": _imported,
    "texts": lambda: _of_texts(Bonsai(classifiers="one_vs_rest", threshold=0.3, n_jobs=1)),
    "texts by names": lambda: _of_texts(
        Bonsai(classifiers="leaf", representation="text", **TREES, threshold=0.3, n_jobs=1), by_names=True
    ),
    **{name: lambda name=name: _of_rows(system_of(name)) for name in systems.SYSTEMS},
    "fusion": lambda: _of_rows(fusion_of(threshold="auto")),
    "fusion, scores": lambda: _of_rows(fusion_of(link="score", weights=[2, 1])),
    "fusion, ranks": lambda: _of_rows(fusion_of(link="rank", weights=[2, 1])),
    "fusion, roots": lambda: _of_rows(fusion_of(link="root", weights=[2, 1])),
    "fusion of texts": _fusion_of_texts,
    "texts, encoder": _encoded,
    "fused files": _fused,
    "ranked list": _listed,
}
if systems.SYSTEMS:
    _first = next(iter(systems.SYSTEMS))
    KINDS[f"texts, {_first}"] = lambda: _of_texts(system_of(_first))


@cache
def case_of(kind: str) -> Case:
    """Return a case that is made once in a process; nothing of it may be changed."""
    return KINDS[kind]()


def some_rows(X: Any, n: int) -> Any:
    """Return the first n rows, of texts or of a matrix."""
    return X[:n]


def nothing_in(X: Any) -> Any:
    """Return a row without features, of the same form."""
    return [""] if isinstance(X, list) else csr_array((1, X.shape[1]))
