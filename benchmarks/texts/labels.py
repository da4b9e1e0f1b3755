"""Compare `restrict`, `merge` and `learn` with their alternatives on real texts.

    python -m benchmarks.texts labels tibkat-core             # some minutes
    python -m benchmarks.texts labels tate --only learn

One-vs-rest classifiers on TF-IDF of the fields (see BONSAI_DATA). Times are CPU times of one thread, the best
of several runs in turn; `learn` and `fit` are also measured once each.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.texts.accuracy import SETS, read
from bonsai_xmc import Bonsai, TextVectorizer
from bonsai_xmc._data.labels import over_classes
from bonsai_xmc._model.edit import NewClassifiers, edit_labels

PARAMS: dict[str, Any] = {"classifiers": "one_vs_rest", "C": 0.3, "threshold": 0.2, "n_jobs": 1}
SHARES = (0.9, 0.5, 0.1, 0.01)
N_PAIRS = 200


class Data(NamedTuple):
    X: Any
    Y: list[list[str]]
    X_test: Any
    Y_test: list[list[str]]


def data_of(name: str) -> Data:
    fields, _, held_out = SETS[name]
    (texts, Y, _), (more, Y_test, _) = read(name, "train"), read(name, held_out)
    vectorizer = TextVectorizer(fields=fields).fit(texts)
    return Data(vectorizer.transform(texts), Y, vectorizer.transform(more), Y_test)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def precision(model: Bonsai, X: Any, Y: Any, k: int) -> float:
    ids, _ = model.top_k(X, k)
    truth = over_classes(Y, model.classes_).tocsr()
    rows = np.repeat(np.arange(len(ids)), k)
    return 100 * float(np.asarray(truth[rows, ids.ravel()]).mean())


def restricted(data: Data) -> None:
    """Return the CPU time of a row, and the share of the filtered exhaustive top 5 that is found."""
    print("| search | labels | µs/row | found, % |\n| --- | --- | --- | --- |")
    X, some = data.X_test[:1000], data.X_test[:200]
    kinds: dict[str, dict[str, Any]] = {"exact": {}, "index": {"search": "index"}}
    kinds["beam, leaf classifiers"] = {"classifiers": "leaf", "C": 1.0}
    for kind, params in kinds.items():
        model = Bonsai(**PARAMS | params).fit(data.X, data.Y)
        n = len(model.classes_)
        wide = model._with(model.fitted_).set_params(**({"beam_size": None} if model.trees_ else {}))
        everything = wide.top_k(some, n, exact=not model.trees_)[0]
        rng = np.random.default_rng(0)
        masks = [None, *(rng.random(n) < share for share in SHARES)]
        times = np.full((9, len(masks)), np.inf)
        for turn in range(len(times)):
            for i, allowed in enumerate(masks):
                begin = time.process_time()
                model.top_k(X, 5, restrict=allowed)
                times[turn, i] = time.process_time() - begin
        for share, allowed, best in zip((1.0, *SHARES), masks, times.min(axis=0), strict=True):
            ids = model.top_k(some, 5, restrict=allowed)[0]
            kept = [[i for i in row if i >= 0 and (allowed is None or allowed[i])][:5] for row in everything]
            found = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(kept, ids.tolist(), strict=True)])
            print(f"| {kind} | {share:.0%} | {1e6 * best / X.shape[0]:.0f} | {100 * found:.1f} |", flush=True)


def merged(data: Data) -> None:
    """Merge pairs of labels with similar classifiers, and measure how well their rows are found."""
    model = Bonsai(**PARAMS).fit(data.X, data.Y)
    pairs, averages = similar_pairs(model)
    into = {label: pair[0] for pair in pairs for label in pair}
    by_max = model
    for pair in pairs:
        by_max = by_max.merge(pair, into=pair[0])
    rows_of = dict(zip(model.classes_, model.label_counts_, strict=True))
    counts = np.array([rows_of[a] + rows_of[b] for a, b in pairs])
    new = NewClassifiers([a for a, _ in pairs], averages, np.full(len(pairs), -1.0), counts)
    by_mean = model._with(edit_labels(model.drop([b for _, b in pairs]).fitted_, new=new))
    joined = [[sorted({into.get(label, label) for label in row}) for row in Y] for Y in (data.Y, data.Y_test)]
    again = Bonsai(**PARAMS).fit(data.X, joined[0])
    print(f"{len(pairs)} pairs\n\n| merged by | R@5 of merged labels | P@5 |\n| --- | --- | --- |")
    wanted = {a for a, _ in pairs}
    for how, other in {"merge": by_max, "mean of weights": by_mean, "training again": again}.items():
        ids = other.top_k(data.X_test, 5)[0]
        best = [set(other.classes_[row].tolist()) for row in ids]
        rows = zip(joined[1], best, strict=True)
        hits = [label in row for true, row in rows for label in set(true) & wanted]
        p5 = precision(other, data.X_test, joined[1], 5)
        print(f"| {how} | {100 * np.mean(hits):.2f} of {len(hits)} | {p5:.2f} |", flush=True)


def similar_pairs(model: Bonsai) -> tuple[list[tuple[str, str]], sp.csr_array]:
    """Return pairs of labels (5 rows or more) with the largest cosine of weights, and the mean weights."""
    forest = model.fitted_.linear.core.one_vs_rest
    rows, features, values = forest.weights(0)
    children = forest.arrays()["children"]
    shape = (len(model.classes_), forest.n_features)
    weights = sp.csr_array((values, (children[rows], features)), shape=shape)
    some = np.flatnonzero(model.label_counts_ >= 5)
    norms = np.sqrt(weights.multiply(weights).sum(axis=1))[some]
    unit = sp.diags_array(1 / norms) @ weights[some]
    cosine = sp.triu(unit @ unit.T, k=1).tocoo()
    used, pairs, means = set(), [], []
    for at in np.argsort(-cosine.data, kind="stable"):
        a, b = int(some[cosine.row[at]]), int(some[cosine.col[at]])
        if used & {a, b}:
            continue
        used |= {a, b}
        pairs.append((str(model.classes_[a]), str(model.classes_[b])))
        means.append((weights[[a]] + weights[[b]]) / 2)
        if len(pairs) == N_PAIRS:
            break
    return pairs, sp.csr_array(sp.vstack(means))


def learnt(data: Data) -> None:
    """Add a tenth of the rows later: compare `learn` with `fit` on all rows."""
    order = np.random.default_rng(0).permutation(data.X.shape[0])
    n = int(0.9 * len(order))
    X, Y = data.X[order], [data.Y[i] for i in order]
    print("| model | rows | labels | CPU time, s | P@1 | P@5 | file, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")

    def show(what: str, model: Bonsai, seconds: float) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model.save(path := os.path.join(folder, "model.bonsai"))
            size = os.path.getsize(path) / 1e6
        figures = (precision(model, data.X_test, data.Y_test, k) for k in (1, 5))
        cells = " | ".join(f"{figure:.2f}" for figure in figures)
        counts = f"{model.n_rows_fit_:,} | {len(model.classes_):,}"
        print(f"| {what} | {counts} | {seconds:.1f} | {cells} | {size:.1f} |", flush=True)

    before, seconds = timed(lambda: Bonsai(**PARAMS).fit(X[:n], Y[:n], keep_rows=True))
    show("fit on nine tenths, keep_rows", before, seconds)
    after, seconds = timed(lambda: before.learn(X[n:], Y[n:]))
    show("learn the last tenth", after, seconds)
    full, seconds = timed(lambda: Bonsai(**PARAMS).fit(X, Y))
    show("fit on all rows", full, seconds)
    touched = {label for row in Y[n:] for label in row}
    print(f"\n{len(touched):,} labels touched, {len(touched - set(before.classes_)):,} of them new", end="; ")
    print(f"kept rows: {after.fitted_.rows.n_bytes / 1e6:.1f} MB of {X.nnz:,} entries")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="+", choices=sorted(SETS))
    parts = {"restrict": restricted, "merge": merged, "learn": learnt}
    parser.add_argument("--only", choices=sorted(parts))
    args = parser.parse_args()
    for name in args.sets:
        data = data_of(name)
        for part, run in parts.items():
            if args.only in (None, part):
                print(f"\n### {name}: {part}\n", flush=True)
                run(data)


if __name__ == "__main__":
    main()
