"""Search for the best labels beside other systems, one thread: batches and single rows.

    python -m benchmarks.search_peers                        # a tenth and a fifth of the shape of Amazon-670K
    python -m benchmarks.search_peers --data 'amazon-670k*0.1' --systems ours seismic
    python -m benchmarks.search_peers --models build/models          # trained ones are kept there

Needs `pyseismic-lsr` and `libpecos` (with torch) beside bonsai-xmc; a system that is not installed is left
out. "ours" searches one-vs-rest classifiers exactly and by their index. Seismic (Bruch et al., SIGIR 2024)
searches the positive weights of the same classifiers: a different score, so that it cannot find all. PECOS
predicts with a model of its own, trained on the same rows: its default, a balanced tree and a beam of 10.
"found" is the share of the five best labels of exact search; of Seismic also of the best by positive weights.
Times are CPU times, the fastest of three: other work on the machine disturbs these least.
"""

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from reproduce import known

from benchmarks._runs import generated, markdown
from bonsai_xmc import Bonsai, metrics

K = 5
N_ROWS, N_SINGLE, REPEATS = 4096, 1000, 3
COLUMNS = ("search", "rows/s", "single row, p50 ms", "p99 ms", "found", "P@1", "P@5", "PSP@5")
# (query_cut, heap_factor): features of a row that are looked at, and how much of a bound must be reached.
SEISMIC = ((5, 0.9), (10, 0.9), (20, 0.9))


class Search(NamedTuple):
    """Both take rows in CSR. `of_batch` returns the ids of their K best labels, -1 where there are fewer."""

    name: str
    of_batch: Callable[[Any], np.ndarray]
    of_row: Callable[[Any], object]


def cpu_seconds(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measure(search: Search, X: Any) -> tuple[np.ndarray, float, np.ndarray]:
    """The ids, rows per second of the batch, milliseconds of each single row."""
    ids, batch = search.of_batch(X), np.inf
    rows = [X[[i]] for i in range(N_SINGLE)]
    latencies = np.full(N_SINGLE, np.inf)
    for _ in range(REPEATS):
        batch = min(batch, cpu_seconds(lambda: search.of_batch(X)))
        latencies = np.minimum(latencies, [cpu_seconds(lambda row=row: search.of_row(row)) for row in rows])
    return ids, X.shape[0] / batch, 1e3 * latencies


def share(ids: np.ndarray, best: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) for a, b in zip(ids, best, strict=True)]) / K)


def padded(labels: list[list[int]]) -> np.ndarray:
    return np.array([(row + [-1] * K)[:K] for row in labels], np.int32)


def ours(data: Any, X: Any, model: Bonsai, folder: Path, args: Any) -> Iterator[Search]:
    exact = lambda X: model.top_k(X, K, exact=True)[0]
    yield Search("exact", exact, exact)
    for probes in ("auto", 16):
        search = Bonsai(**model.get_params()).set_params(n_probe=probes)
        search.fitted_ = model.fitted_
        find = lambda X, search=search: search.top_k(X, K)[0]
        yield Search(f"index, n_probe {probes}", find, find)


def positive_weights(model: Bonsai, n_features: int) -> tuple[Any, np.ndarray]:
    """The positive weights of all classifiers, and the labels that these belong to."""
    forest = model.fitted_.linear.core.one_vs_rest
    child, feature, value = forest.weights(0)
    labels = np.asarray(forest.arrays()["children"])
    shape = (len(labels), n_features)
    weights = sp.csr_array((np.maximum(value, 0), (child, feature)), shape=shape)
    weights.eliminate_zeros()
    return weights, labels


def seismic(data: Any, X: Any, model: Bonsai, folder: Path, args: Any) -> Iterator[Search]:
    from seismic import SeismicDataset, SeismicIndex, get_seismic_string

    weights, labels = positive_weights(model, X.shape[1])
    names = np.array([str(f) for f in range(X.shape[1])], dtype=get_seismic_string())
    file = folder / "positive.index.seismic"
    if not file.exists():
        begin, collection = time.process_time(), SeismicDataset()
        for i, label in enumerate(labels.tolist()):
            part = slice(weights.indptr[i], weights.indptr[i + 1])
            values = weights.data[part].astype(np.float32)
            collection.add_document(str(label), names[weights.indices[part]], values)
        index = SeismicIndex.build_from_dataset(collection, n_postings=args.seismic_postings)
        index.save(str(file).removesuffix(".index.seismic"))
        seconds = time.process_time() - begin
        print(f"Seismic: {weights.nnz:,} positive weights, indexed in {seconds:.0f} core-seconds")
    index = SeismicIndex.load(str(file))
    own = np.concatenate(
        [
            labels[np.argsort(-(X[i : i + 64] @ weights.T).toarray(), axis=1, kind="stable")[:, :K]]
            for i in range(0, N_ROWS, 64)
        ]
    )

    def of_batch(X: Any, cut: int, factor: float) -> np.ndarray:
        parts = [slice(X.indptr[i], X.indptr[i + 1]) for i in range(X.shape[0])]
        tokens, values = [names[X.indices[p]] for p in parts], [X.data[p].astype(np.float32) for p in parts]
        ids = np.array([str(i) for i in range(len(parts))], dtype=get_seismic_string())
        found = index.batch_search(ids, tokens, values, K, cut, factor, num_threads=1)
        in_order = {int(row[0][0]): [int(label) for _, _, label in row] for row in found if row}
        return padded([in_order.get(i, []) for i in range(len(parts))])

    for cut, factor in SEISMIC:
        share_of_own = share(of_batch(X, cut, factor), own)
        yield Search(
            f"Seismic, query_cut {cut}, heap_factor {factor} ({100 * share_of_own:.1f} % of its own)",
            lambda X, cut=cut, factor=factor: of_batch(X, cut, factor),
            lambda row, cut=cut, factor=factor: index.search(
                "q", names[row.indices], row.data.astype(np.float32), K, cut, factor
            ),
        )


def train_pecos(data: Any, folder: Path, threads: int) -> None:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y = (sp.csr_matrix(m, dtype=np.float32) for m in (data.X_train, data.Y_train))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    begin = time.process_time()
    vectors = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=threads)
    XLinearModel.train(X, Y, C=Indexer.gen(vectors, threads=threads), threads=threads).save(str(folder))
    print(f"PECOS: trained in {time.process_time() - begin:.0f} core-seconds", flush=True)


def pecos(data: Any, X: Any, model: Bonsai, folder: Path, args: Any) -> Iterator[Search]:
    from pecos.xmc.xlinear.model import XLinearModel

    if not (folder / "pecos").exists():
        train_pecos(data, folder / "pecos", len(os.sched_getaffinity(0)))
    loaded = XLinearModel.load(str(folder / "pecos"), is_predict_only=True)
    find = lambda X: loaded.predict(sp.csr_matrix(X, dtype=np.float32), only_topk=K, threads=1)

    def of_batch(X: Any) -> np.ndarray:
        found = find(X)
        order = lambda i: slice(found.indptr[i], found.indptr[i + 1])
        best = lambda p: found.indices[p][np.argsort(-found.data[p], kind="stable")].tolist()
        return padded([best(order(i)) for i in range(X.shape[0])])

    yield Search("PECOS, its own model", of_batch, find)


def trained(data: Any, folder: Path) -> Bonsai:
    file = folder / "one-vs-rest.bonsai"
    if file.exists():
        return Bonsai.load(file)
    begin = time.process_time()
    model = Bonsai(classifiers="one_vs_rest", search="index", threshold=0.5)
    model.fit(data.X_train, data.Y_train).save(file)
    print(f"ours: trained and indexed in {time.process_time() - begin:.0f} core-seconds", flush=True)
    return model


SYSTEMS = {"ours": (ours, "bonsai_xmc"), "seismic": (seismic, "seismic"), "pecos": (pecos, "pecos")}


def compare(data: Any, folder: Path, args: Any) -> None:
    model = trained(data, folder).set_params(n_jobs=1)
    X, Y = sp.csr_array(data.X_test[:N_ROWS]), data.Y_test[:N_ROWS]
    best = model.top_k(X, K, exact=True)[0]
    table = []
    for system in args.systems:
        start, module = SYSTEMS[system]
        if importlib.util.find_spec(module) is None:
            print(f"{system} is not installed")
            continue
        for search in start(data, X, model, folder, args):
            ids, per_second, latencies = measure(search, X)
            scores = metrics.evaluate(Y, ids.astype(np.int32), Y_train=data.Y_train)
            quality = [f"{scores[m]:.2f}" for m in ("P@1", "P@5", "PSP@5")]
            times = [f"{per_second:,.0f}", *(f"{np.quantile(latencies, q):.2f}" for q in (0.5, 0.99))]
            table.append([search.name, *times, f"{100 * share(ids, best):.1f} %", *quality])
            print(" ".join(table[-1]), flush=True)
    print("\n" + markdown(list(COLUMNS), table), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", nargs="+", default=["amazon-670k*0.1", "amazon-670k*0.2"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--models", type=Path, help="folder of trained models; default: none is kept")
    parser.add_argument("--seismic-postings", type=int, default=3500, help="Seismic's n_postings")
    args = parser.parse_args()
    for name in args.data:
        data = generated(name) or known.load(name)
        print(f"\n### {name}, {data.Y_train.shape[1]:,} labels\n", flush=True)
        with TemporaryDirectory() as temporary:
            folder = Path(args.models or temporary) / name.replace("*", "-x")
            folder.mkdir(parents=True, exist_ok=True)
            compare(data, folder, args)


if __name__ == "__main__":
    main()
