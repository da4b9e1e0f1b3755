"""One system in one process: trains a model and saves it, or loads one and predicts.

    python benchmarks/_system.py train SYSTEM DATA MODEL THREADS SEED REPORT
    python benchmarks/_system.py predict SYSTEM DATA MODEL THREADS SEED REPORT

Started by `benchmarks/_runs.py`, in our environment and in that of the peers, so that only NumPy and SciPy
are imported at the top. DATA is a prepared folder, MODEL a folder, REPORT the JSON file to write; the top
five label ids of each row go into .npy files next to it.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

K = 5
BATCHES = 5  # the fastest counts
PATIENCE = 60.0  # seconds after which no further batch is started
SINGLE_ROWS = 1000
_TREES = 3
Ids = npt.NDArray[np.int32]


class Trained(NamedTuple):
    """Seconds of each training phase, and the function that saves the model."""

    begin_mb: float
    phases: dict[str, float]
    save: Callable[[], object]
    cpu_s: float | None = None  # CPU time, which other work on the machine affects less


class Predictor(NamedTuple):
    """A loaded model as users call it. `batch` uses all threads; `one` uses one, after `single()`."""

    name: str
    load_s: float
    batch: Callable[[], Any]
    single: Callable[[], object]
    one: Callable[[int], Any]
    ids: Callable[[Any], Ids]
    extra: dict[str, float]


class System(NamedTuple):
    train: Callable[[Path, Path, int, int], Trained]
    predictors: Callable[[Path, Path, int], Iterator[Predictor]]


def main() -> None:
    task, name, data, model, threads, seed, report = sys.argv[1:]
    system = SYSTEMS[name]
    # scikit-learn imports pandas if it is installed: 30 MB that no other system needs.
    if name != "scikit-learn":
        sys.modules["pandas"] = None  # type: ignore[assignment]
    if task == "train":
        result = _train(system, Path(data), Path(model), int(threads), int(seed))
    else:
        result = {
            predictor.name: _measure(predictor, Path(report).with_suffix(f".{i}.npy"))
            for i, predictor in enumerate(system.predictors(Path(data), Path(model), int(threads)))
        }
    Path(report).write_text(json.dumps(result))


def _train(system: System, data: Path, model: Path, threads: int, seed: int) -> dict[str, Any]:
    trained = system.train(data, model, threads, seed)
    saving, _ = _timed(trained.save)
    phases = trained.phases
    return {
        "train s": sum(seconds for phase, seconds in phases.items() if phase != "reading"),
        "reading s": phases.get("reading"),
        "cpu s": trained.cpu_s,
        "phases s": phases,
        "saving s": saving,
        "before MB": trained.begin_mb,
        "peak MB": _memory("VmHWM"),
        "model MB": sum(f.stat().st_size for f in model.rglob("*") if f.is_file()) / 1e6,
    }


def _measure(predictor: Predictor, ids_file: Path) -> dict[str, Any]:
    first, _ = _timed(predictor.one, 0)
    batches: list[float] = []
    while len(batches) < BATCHES and sum(batches) < PATIENCE:
        seconds, answer = _timed(predictor.batch)
        batches.append(seconds)
    ids = predictor.ids(answer)
    np.save(ids_file, ids)
    predictor.single()
    single = [_timed(predictor.one, i)[0] for i in range(min(SINGLE_ROWS, len(ids)))]
    p50, p99 = np.percentile(single, [50, 99])
    return {
        "load ms": 1e3 * predictor.load_s,
        "first ms": 1e3 * (predictor.load_s + first),
        "rows/s": len(ids) / min(batches),
        "p50 ms": 1e3 * float(p50),
        "p99 ms": 1e3 * float(p99),
        "batches s": batches,
        "ids": ids_file.name,
    } | predictor.extra


def _timed(call: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = call(*args)
    return time.perf_counter() - begin, result


def _memory(field: str) -> float:
    """Return the resident memory of this process in MB: "VmRSS" now, "VmHWM" at its peak.

    Not `ru_maxrss`, which a process inherits from its parent.
    """
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) * 1024 / 1e6


def _matrix(data: Path, name: str) -> Any:
    return sp.load_npz(data / f"{name}.npz")


def _test_rows(data: Path) -> tuple[Any, list[Any]]:
    """Return the test matrix, and its first rows as matrices of one row."""
    X = _matrix(data, "X_test")
    return X, [X[i] for i in range(min(SINGLE_ROWS, X.shape[0]))]


def _padded(rows: list[Any], n_rows: int) -> Ids:
    """Return lists of at most K label ids as an array, padded with −1."""
    ids = np.full((n_rows, K), -1, np.int32)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row[:K]
    return ids


# --- Ours -----------------------------------------------------------------------------------------


def _ours_system(name: str) -> System:
    return System(partial(_train_ours, name), partial(_ours, name))


def _estimator(name: str, **options: Any) -> Any:
    from bonsai_xmc import Bonsai

    # No peer chooses a threshold for `predict`.
    if name == "one-vs-rest":
        return Bonsai(classifiers="one_vs_rest", threshold=0.5, **options)
    if name != "default":
        return Bonsai.preset(name, threshold=0.5, **options)
    return Bonsai(**options)


def _train_ours(name: str, data: Path, model: Path, threads: int, seed: int) -> Trained:
    X, Y = _matrix(data, "X_train"), _matrix(data, "Y_train")
    estimator = _estimator(name, n_jobs=threads, random_state=seed)
    before = _memory("VmRSS")
    cpu = time.process_time()
    seconds, _ = _timed(estimator.fit, X, Y)
    cpu = time.process_time() - cpu
    return Trained(before, {"fit": seconds}, lambda: estimator.save(model / "model.bonsai"), cpu)


def _ours(name: str, data: Path, model: Path, threads: int) -> Iterator[Predictor]:
    from bonsai_xmc import Bonsai

    X, rows = _test_rows(data)
    seconds, estimator = _timed(Bonsai.load, model / "model.bonsai")
    estimator.set_params(n_jobs=threads)
    yield Predictor(
        name,
        seconds,
        batch=lambda: estimator.top_k(X, k=K),
        single=lambda: estimator.set_params(n_jobs=1),
        one=lambda i: estimator.top_k(rows[i], k=K),
        ids=lambda answer: answer[0],
        extra={},
    )


# --- scikit-learn ---------------------------------------------------------------------------------


def _train_scikit_learn(data: Path, model: Path, threads: int, seed: int) -> Trained:
    """Train LogisticRegression (LIBLINEAR, C = 1) for each label; it takes no seed."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    X, Y = _matrix(data, "X_train"), _matrix(data, "Y_train")
    estimator = OneVsRestClassifier(LogisticRegression(C=1.0, solver="liblinear"), n_jobs=threads)
    before, cpu = _memory("VmRSS"), time.process_time()
    seconds, _ = _timed(estimator.fit, X, Y)

    def save() -> None:
        weights = np.vstack([one.coef_ for one in estimator.estimators_]).astype(np.float32)
        biases = np.concatenate([one.intercept_ for one in estimator.estimators_])
        np.savez(model / "model.npz", weights=weights, biases=biases.astype(np.float32))

    return Trained(before, {"fit": seconds}, save, time.process_time() - cpu if threads == 1 else None)


def _scikit_learn(data: Path, model: Path, threads: int) -> Iterator[Predictor]:
    X, rows = _test_rows(data)
    seconds, arrays = _timed(lambda: dict(np.load(model / "model.npz")))
    score = lambda part: part @ arrays["weights"].T + arrays["biases"]
    yield Predictor(
        "exact",
        seconds,
        batch=lambda: score(X),
        single=lambda: None,
        one=lambda i: score(rows[i]),
        ids=lambda scores: np.argsort(-scores, axis=1)[:, :K].astype(np.int32),
        extra={},
    )


# --- omikuji --------------------------------------------------------------------------------------


def _train_omikuji(data: Path, model: Path, threads: int, seed: int) -> Trained:
    """Train by `Model.train_on_data`, which takes no seed; reading the text file is timed separately."""
    import omikuji as package  # type: ignore[import-not-found,unused-ignore]

    omikuji: Any = package
    ffi, lib = omikuji.ffi, omikuji.lib
    settings = omikuji.Model.default_hyper_param()
    settings.n_trees, settings.max_depth, settings.min_branch_size = 3, 3, 100
    settings.cluster_k, settings.cluster_balanced = 100, False
    pool = omikuji._ThreadPoolHandle(threads, initialize=True)
    text = ffi.new("char[]", str(data / "train.txt").encode())
    before = _memory("VmRSS")
    reading, rows = _timed(lib.load_omikuji_data_set, text, pool.ptr)
    if rows == ffi.NULL:
        raise RuntimeError("omikuji could not read its training file")
    rows = ffi.gc(rows, lib.free_omikuji_data_set)
    training, pointer = _timed(lib.train_omikuji_model, rows, settings, pool.ptr)
    trained = omikuji.Model(pointer)
    return Trained(before, {"reading": reading, "train": training}, lambda: trained.save(str(model)))


def _omikuji(data: Path, model: Path, threads: int) -> Iterator[Predictor]:
    """Predict with the model as stored, and after `densify_weights(0.1)`, whose time counts as loading."""
    import omikuji as package

    omikuji: Any = package
    X, rows = _test_rows(data)
    pairs = [list(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in rows]
    load_s, loaded = _timed(omikuji.Model.load, str(model))
    for name in ("as stored", "densified"):
        loaded.init_prediction_thread_pool(threads)
        if name == "densified":
            load_s += _timed(loaded.densify_weights, 0.1, threads)[0]
        yield Predictor(
            name,
            load_s,
            batch=_omikuji_batch(omikuji, loaded, X, threads),
            single=lambda: loaded.init_prediction_thread_pool(1),
            one=lambda i: loaded.predict(pairs[i], beam_size=10, top_k=K),
            ids=lambda answer: answer,
            extra={},
        )


def _omikuji_batch(omikuji: Any, model: Any, X: Any, threads: int) -> Callable[[], Ids]:
    """Call omikuji's C function on CSR rows from several threads.

    `Model.predict` takes one row as a list of pairs, which it sorts, checks and copies in Python. This is the
    highest throughput that a caller can get, and about that of its command line.
    """
    labels = np.zeros((X.shape[0], K), np.uint32)
    found = np.zeros(X.shape[0], np.int64)
    view, predict, pool = omikuji.ffi.from_buffer, omikuji.lib.omikuji_predict, model._thread_pool.ptr
    features = view("uint32_t[]", X.indices.astype(np.uint32))  # a view keeps its array alive
    values = view("float[]", X.data.astype(np.float32))
    answers = view("uint32_t[]", labels.reshape(-1))
    scores = view("float[]", np.zeros(labels.size, np.float32))
    ends = X.indptr.tolist()

    def rows(part: range) -> None:
        for i in part:
            start, length = ends[i], ends[i + 1] - ends[i]
            row = (length, features + start, values + start)
            found[i] = predict(model._model_ptr, 10, *row, K, answers + K * i, scores + K * i, pool)

    def batch() -> Ids:
        parts = [range(first, min(first + 32, X.shape[0])) for first in range(0, X.shape[0], 32)]
        with ThreadPoolExecutor(threads) as executor:
            list(executor.map(rows, parts))
        return np.where(np.arange(K) < found[:, None], labels.astype(np.int32), np.int32(-1))

    return batch


# --- PECOS ----------------------------------------------------------------------------------------


def _train_pecos(data: Path, model: Path, threads: int, seed: int) -> Trained:
    from pecos.xmc import Indexer, LabelEmbeddingFactory  # type: ignore[import-not-found,unused-ignore]
    from pecos.xmc.xlinear.model import XLinearModel  # type: ignore[import-not-found,unused-ignore]

    X, Y = _matrix(data, "X_train"), _matrix(data, "Y_train").tocsc()
    before = _memory("VmRSS")
    phases = {"label embedding": 0.0, "indexing": 0.0, "training": 0.0}
    phases["label embedding"], vectors = _timed(
        lambda: LabelEmbeddingFactory.create(Y, X, method="pifa", threads=threads)
    )
    settings = {"threshold": 0.1, "Cp": 1.0, "Cn": 1.0, "max_iter": 20, "bias": 1.0}
    both = {"nr_splits": 32, "threads": threads}
    index = lambda number: Indexer.gen(vectors, indexer_type="hierarchicalkmeans", seed=number, **both)
    train = lambda chain: XLinearModel.train(X, Y, C=chain, **settings, **both)
    models = []
    for tree in range(_TREES):
        seconds, chain = _timed(index, _TREES * seed + tree)
        phases["indexing"] += seconds
        seconds, trained = _timed(train, chain)
        phases["training"] += seconds
        models.append(trained)

    def save() -> None:
        for tree, trained in enumerate(models):
            trained.save(str(model / str(tree)))

    return Trained(before, phases, save)


def _pecos(data: Path, model: Path, threads: int) -> Iterator[Predictor]:
    """Predict with predict-only models, which store weights in chunks, and with two path scores.

    The predictions of three models are combined by `CsrEnsembler.average`. Also reported: latency without the
    averaging, and the memory-mapped form of the models, which loads faster and is larger.
    """
    from pecos.utils.smat_util import CsrEnsembler  # type: ignore[import-not-found,unused-ignore]
    from pecos.xmc.xlinear.model import XLinearModel

    X, rows = _test_rows(data)
    load = lambda root: [XLinearModel.load(str(root / str(t)), is_predict_only=True) for t in range(_TREES)]
    load_s, models = _timed(load, model)
    mapped = model.with_name(model.name + ".mapped")
    for tree in range(_TREES):
        XLinearModel.compile_mmap_model(str(model / str(tree)), str(mapped / str(tree)))
    size = sum(f.stat().st_size for f in mapped.rglob("*") if f.is_file())
    extra = {"mapped load ms": 1e3 * _timed(load, mapped)[0], "mapped MB": size / 1e6}

    def trees(x: Any, score: str, n: int) -> list[Any]:
        options = {"beam_size": 10, "only_topk": 20, "post_processor": score, "threads": n}
        return [m.predict(x, **options) for m in models]

    alone = [_timed(trees, row, "l3-hinge", 1)[0] for row in rows]
    extra["p50 ms without averaging"] = 1e3 * float(np.median(alone))
    for name in ("l3-hinge", "l2-hinge"):
        yield Predictor(
            name,
            load_s,
            batch=lambda score=name: CsrEnsembler.average(*trees(X, score, threads)),  # type: ignore[misc]
            single=lambda: None,
            one=lambda i, score=name: CsrEnsembler.average(*trees(rows[i], score, 1)),  # type: ignore[misc]
            ids=lambda answer: _padded(np.split(answer.indices, answer.indptr[1:-1]), X.shape[0]),
            extra=extra,
        )


# --- napkinXC -------------------------------------------------------------------------------------

_NAPKINXC_L2 = {
    "loss": "l2",
    "liblinear_c": 1,
    "kmeans_balanced": False,
    "arity": 100,
    "tree_search_type": "beam",
}


def _napkinxc(model: Path, options: dict[str, Any], **others: Any) -> Any:
    from napkinxc.models import PLT  # type: ignore[import-not-found,unused-ignore]

    return PLT(str(model), **options, **others)


def _napkinxc_system(options: dict[str, Any]) -> System:
    def train(data: Path, model: Path, threads: int, seed: int) -> Trained:
        """Train; the model is written during training, so that saving cannot be timed separately."""
        estimator = _napkinxc(model, options, ensemble=_TREES, threads=threads, seed=seed)
        X, Y = _matrix(data, "X_train"), _matrix(data, "Y_train")
        before = _memory("VmRSS")
        seconds, _ = _timed(estimator.fit, X, Y)
        return Trained(before, {"fit": seconds}, lambda: None)

    def predictors(data: Path, model: Path, threads: int) -> Iterator[Predictor]:
        """Predict batches by the ensemble, single rows by three models whose scores are averaged here.

        The ensemble reads its trees from disk in every call, also with `ens_on_the_trot=0`: acceptable for a
        batch, not for a single row. Version 0.7.2 crashes with `ens_on_the_trot=0` and exact search, and
        with the default and beam search; each search gets the setting that works.
        """
        X, rows = _test_rows(data)
        for tree in range(_TREES):  # with this file a tree of an ensemble is a model of its own
            shutil.copy(model / "args.bin", model / f"member_{tree}")
        paths = [model / f"member_{tree}" for tree in range(_TREES)]
        trees = [_napkinxc(path, options, ensemble=1, threads=1) for path in paths]
        seconds, _ = _timed(lambda: [tree.load() for tree in trees])
        trot = {"ens_on_the_trot": 0} if options else {}
        ensemble = _napkinxc(model, options, ensemble=_TREES, threads=threads, **trot)
        ensemble.load()

        def one(i: int) -> list[int]:
            scores: dict[int, float] = {}
            for tree in trees:
                for label, score in tree.predict_proba(rows[i], top_k=2 * K)[0]:
                    scores[label] = scores.get(label, 0.0) + score
            return sorted(scores, key=scores.__getitem__, reverse=True)[:K]

        yield Predictor(
            "beam search" if options else "exact search",
            seconds,
            batch=lambda: ensemble.predict(X, top_k=K),
            single=lambda: None,
            one=one,
            ids=lambda answer: _padded(answer, X.shape[0]),
            extra={},
        )

    return System(train, predictors)


SYSTEMS = {
    "ours": _ours_system("default"),
    "ours-one-vs-rest": _ours_system("one-vs-rest"),
    "ours-trees": _ours_system("bonsai-i"),
    "scikit-learn": System(_train_scikit_learn, _scikit_learn),
    "omikuji": System(_train_omikuji, _omikuji),
    "pecos": System(_train_pecos, _pecos),
    "napkinxc": _napkinxc_system({}),
    "napkinxc-l2": _napkinxc_system(_NAPKINXC_L2),
}

if __name__ == "__main__":
    main()
