"""Seconds and peak memory of the text vectorizers, ours and scikit-learn's: `python -m benchmarks.vectorize`.

The texts of a data set (see BONSAI_DATA) are in memory. Each system runs in a process of its own, the two in
turn, so that both meet the same machine. --blocks: words; words and bigrams in one block; character 5-grams
within words. With --train, the default model is trained on the result, for comparison.
"""

import argparse
import gzip
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

from reproduce import known

from bonsai_xmc import Bonsai, TextVectorizer, _core

FIELDS = {
    "eurlex57k": (["title", "header", "recitals", "main_body"], "labels"),
    "tibkat-core": (["title", "abstract"], "subjects"),
    "tate": (
        ["title", "medium", "artists", "dateText", "classification", "groupTitle", "inscription"],
        "labels",
    ),
}
BLOCKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # ours, scikit-learn's
    "words": ({"word_ngrams": {1: 1.0}}, {}),
    "bigrams": ({"word_ngrams": {(1, 2): 1.0}}, {"ngram_range": (1, 2)}),
    "characters": (
        {"word_ngrams": None, "char_ngrams": {5: 1.0}},
        {"analyzer": "char_wb", "ngram_range": (5, 5)},
    ),
}


def load(name: str, n_rows: int | None) -> tuple[list[str], list[list[str]]]:
    fields, labels = FIELDS[name]
    texts, subjects = [], []
    with gzip.open(known.find(name) / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
        for i, line in enumerate(lines):
            if i == n_rows:
                break
            record = json.loads(line)
            texts.append(" ".join(filter(None, (record[field] for field in fields))))
            subjects.append([str(label) for label in record[labels]])
    return texts, subjects


def ours(blocks: str, threads: int) -> Callable[[list[str]], Any]:
    return TextVectorizer(n_jobs=threads, **BLOCKS[blocks][0]).fit_transform


def theirs(blocks: str, threads: int) -> Callable[[list[str]], Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(min_df=2, sublinear_tf=True, dtype="float32", **BLOCKS[blocks][1]).fit_transform


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(
    system: str, name: str, n_rows: int | None, blocks: str, threads: int, train: bool
) -> dict[str, Any]:
    texts, subjects = load(name, n_rows)
    before, start, cpu = peak_mb(), time.perf_counter(), time.process_time()
    X = {"ours": ours, "scikit-learn": theirs}[system](blocks, threads)(texts)
    result = {
        "system": system,
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "before_mb": before,
        "peak_mb": peak_mb(),
        "rows": X.shape[0],
        "features": X.shape[1],
        "entries": X.nnz,
        "text_mb": sum(len(text.encode()) for text in texts) / 1e6,
    }
    if train:
        start, cpu = time.perf_counter(), time.process_time()
        Bonsai(n_jobs=threads, random_state=0).fit(X, subjects)
        result |= {"train_seconds": time.perf_counter() - start, "train_cpu": time.process_time() - cpu}
    return result


def in_process(*arguments: Any) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def show(runs: list[dict[str, Any]]) -> None:
    best = {
        system: min((run for run in runs if run["system"] == system), key=lambda run: run["seconds"])
        for system in ("ours", "scikit-learn")
        if any(run["system"] == system for run in runs)
    }
    print(f"{'':14}{'s':>8}{'CPU s':>8}{'peak MB':>10}{'of texts':>10}{'features':>12}{'entries':>14}")
    for system, run in best.items():
        print(
            f"{system:14}{run['seconds']:8.2f}{run['cpu']:8.2f}{run['peak_mb']:10.0f}{run['before_mb']:10.0f}"
            f"{run['features']:12,}{run['entries']:14,}"
        )
    if len(best) == 2:
        a, b = best["scikit-learn"], best["ours"]
        print(f"ratio {a['seconds'] / b['seconds']:.1f} (CPU time {a['cpu'] / b['cpu']:.1f})")
    if "train_seconds" in best["ours"]:
        run = best["ours"]
        print(f"training the default model: {run['train_seconds']:.1f} s (CPU time {run['train_cpu']:.1f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=FIELDS, default="eurlex57k")
    parser.add_argument("--rows", type=int, help="only the first rows of the data set")
    parser.add_argument("--blocks", choices=BLOCKS, default="bigrams")
    parser.add_argument("--threads", type=int, default=min(2, _core.available_threads()))
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the fastest counts (default 3)")
    parser.add_argument("--train", action="store_true", help="train the default model, too")
    parser.add_argument("--ours", action="store_true", help="without scikit-learn")
    a = parser.parse_args()
    systems = ["ours"] if a.ours else ["ours", "scikit-learn"]
    runs = []
    for repeat in range(a.repeats):
        for system in systems:
            train = a.train and system == "ours" and repeat == 0
            runs.append(in_process(system, a.data, a.rows, a.blocks, a.threads, train))
    for run in runs:
        run |= {key: runs[0][key] for key in ("train_seconds", "train_cpu") if key in runs[0]}
    print(
        f"{a.data}, {a.blocks}: {runs[0]['rows']:,} texts, {runs[0]['text_mb']:.0f} MB, {a.threads} threads"
    )
    show(runs)


if __name__ == "__main__":
    main()
