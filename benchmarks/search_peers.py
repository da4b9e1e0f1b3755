"""Search for the best labels beside other systems: one thread, single rows.

    python -m benchmarks.search_peers                        # a tenth and a fifth of the shape of Amazon-670K
    python -m benchmarks.search_peers --data 'amazon-670k*0.1' --systems ours seismic
    python -m benchmarks.search_peers --models build/models          # trained ones are kept there

Needs `pyseismic-lsr` and `libpecos` (with torch) beside bonsai-xmc; a system that is not installed is left
out. "ours" searches one-vs-rest classifiers exactly and by their index. Seismic (Bruch et al., SIGIR 2024)
searches the positive weights of the same classifiers: a different score, so that it cannot find all. PECOS
predicts with a model of its own, trained on the same rows: its default, a balanced tree and a beam of 10.
"found" is the share of the five best labels of exact search; of Seismic also of the best by positive weights.
"""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks._runs import generated, markdown
from bonsai_xmc import Bonsai, datasets, metrics
from bonsai_xmc._params import threads_of

K = 5
N_ROWS = 1000
# (query_cut, heap_factor): features of a row that are looked at, and how much of a bound must be reached.
SEISMIC = ((10, 0.9), (20, 0.9), (100, 0.9), (100, 1.0))


def measure(rows: Any, predict: Callable[[Any], np.ndarray]) -> tuple[np.ndarray, list[float]]:
    ids, latencies = [], []
    for i in range(rows.shape[0]):
        row = rows[[i]]
        begin = time.perf_counter()
        ids.append(predict(row))
        latencies.append(1e3 * (time.perf_counter() - begin))
    return np.array(ids), latencies


def best_of(scores: Any, labels: np.ndarray) -> np.ndarray:
    """The labels with the largest scores of each row."""
    return labels[np.argsort(-scores.toarray(), axis=1, kind="stable")[:, :K]]


def share(ids: np.ndarray, best: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) for a, b in zip(ids, best, strict=True)]) / K)


def ours(data: Any, model: Bonsai) -> Iterator[tuple[str, Callable[[Any], np.ndarray]]]:
    yield "exact", lambda row: model.top_k(row, K, exact=True)[0][0]
    for probes in ("auto", 16):
        search = Bonsai(**model.get_params()).set_params(n_probe=probes)
        search.fitted_ = model.fitted_
        yield f"index, n_probe {probes}", lambda row, search=search: search.top_k(row, K)[0][0]


def seismic(data: Any, model: Bonsai) -> Iterator[tuple[str, Callable[[Any], np.ndarray]]]:
    from seismic import SeismicDataset, SeismicIndex, get_seismic_string

    forest = model.fitted_.core.one_vs_rest
    child, feature, value = forest.weights(0)
    labels = np.asarray(forest.arrays()["children"])
    shape = (len(labels), data.X_train.shape[1])
    weights = sp.csr_array((np.maximum(value, 0), (child, feature)), shape=shape)
    weights.eliminate_zeros()
    names = np.array([str(f) for f in range(shape[1])], dtype=get_seismic_string())
    begin, collection = time.perf_counter(), SeismicDataset()
    for i, label in enumerate(labels.tolist()):
        part = slice(weights.indptr[i], weights.indptr[i + 1])
        collection.add_document(
            str(label), names[weights.indices[part]], weights.data[part].astype(np.float32)
        )
    index = SeismicIndex.build_from_dataset(collection)
    print(f"seismic: {weights.nnz:,} positive weights, indexed in {time.perf_counter() - begin:.1f} s")

    def search(row: Any, cut: int, factor: float) -> np.ndarray:
        tokens = names[row.indices]
        found = index.search("q", tokens, row.data.astype(np.float32), K, cut, factor)
        ids = [int(label) for _, _, label in found]
        return np.array((ids + [-1] * K)[:K])

    X = sp.csr_array(data.X_test[:N_ROWS])
    own = np.concatenate([best_of(X[i : i + 50] @ weights.T, labels) for i in range(0, N_ROWS, 50)])
    for cut, factor in SEISMIC:
        ids = np.array([search(X[[i]], cut, factor) for i in range(N_ROWS)])
        name = f"Seismic, query_cut {cut}, heap_factor {factor} ({100 * share(ids, own):.1f} % of its own)"
        yield name, lambda row, cut=cut, factor=factor: search(row, cut, factor)


def pecos(data: Any, model: Bonsai) -> Iterator[tuple[str, Callable[[Any], np.ndarray]]]:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y = (sp.csr_matrix(m, dtype=np.float32) for m in (data.X_train, data.Y_train))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    begin = time.perf_counter()
    vectors = LabelEmbeddingFactory.create(Y, X, method="pifa")
    trained = XLinearModel.train(X, Y, C=Indexer.gen(vectors))
    print(f"PECOS: trained in {time.perf_counter() - begin:.1f} s with all threads")
    with tempfile.TemporaryDirectory() as folder:
        trained.save(folder)
        loaded = XLinearModel.load(folder, is_predict_only=True)

        def search(row: Any) -> np.ndarray:
            found = loaded.predict(sp.csr_matrix(row, dtype=np.float32), only_topk=K, threads=1)
            ids = found.indices[np.argsort(-found.data, kind="stable")]
            return np.array((ids.tolist() + [-1] * K)[:K])

        yield "PECOS, its own model", search


def trained(name: str, data: Any, folder: Path | None) -> Bonsai:
    file = folder / f"{name.replace('*', '-x')}.bonsai" if folder else None
    if file and file.exists():
        return Bonsai.load(file)
    begin = time.perf_counter()
    model = Bonsai(classifiers="one_vs_rest", search="index", threshold=0.5)
    model.fit(data.X_train, data.Y_train)
    print(f"ours: trained and indexed in {time.perf_counter() - begin:.1f} s, {threads_of(None)} threads")
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        model.save(file)
    return model


SYSTEMS = {"ours": (ours, "bonsai_xmc"), "seismic": (seismic, "seismic"), "pecos": (pecos, "pecos")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", nargs="+", default=["amazon-670k*0.1", "amazon-670k*0.2"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--models", type=Path, help="folder of trained models of ours; default: none is kept")
    args = parser.parse_args()
    for name in args.data:
        data = generated(name) or datasets.load(name)
        print(f"\n### {name}, {data.Y_train.shape[1]:,} labels\n", flush=True)
        model = trained(name, data, args.models).set_params(n_jobs=1)
        X, Y = sp.csr_array(data.X_test[:N_ROWS]), data.Y_test[:N_ROWS]
        best = model.top_k(X, K, exact=True)[0]
        columns = ["search", "single row, p50 ms", "p99 ms", "found", "P@1", "P@5", "PSP@5"]
        print("\n" + markdown(columns, []), flush=True)
        for system in args.systems:
            start, module = SYSTEMS[system]
            if importlib.util.find_spec(module) is None:
                print(f"{system} is not installed")
                continue
            for search, predict in start(data, model):
                ids, latencies = measure(X, predict)
                scores = metrics.evaluate(Y, ids.astype(np.int32), Y_train=data.Y_train)
                quality = [f"{scores[m]:.2f}" for m in ("P@1", "P@5", "PSP@5")]
                times = [f"{np.quantile(latencies, q):.2f}" for q in (0.5, 0.99)]
                row = [search, *times, f"{100 * share(ids, best):.1f} %", *quality]
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
