"""Measure fields, n-grams and tuning on real texts: `python -m benchmarks.texts accuracy tibkat-core`.

Trains `TextBonsai` with the settings of each variant on the training part of a data set (see BONSAI_DATA) and
evaluates it on dev (tibkat-core) or test. P, PSP and R count the true labels that occur in training. F1@5 and
nDCG@10 count all true labels, as Annif's evaluation does: F1 of the five best labels of each row, and the
gain of the ten best against the ideal ranking of all true labels; where rows have a language, for each of
these, too. R@10 is given apart for true labels without a training row that have a name, and for labels with
1 to 4 rows.

--one-vs-rest trains one-vs-rest classifiers at C = 1, without choosing on held-out rows: for the time that
features take. --titles leaves all fields but the title out. --rows trains on this many rows, drawn at random.
"""

import argparse
import json
import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from reproduce import known

from bonsai_xmc import Bonsai, TextBonsai, datasets, metrics
from bonsai_xmc._base.params import DEFAULTS

_TATE = ["title", "medium", "artists", "dateText", "classification", "groupTitle", "inscription"]
SETS: dict[str, tuple[list[str], str, str]] = {  # fields, field of the labels, part to report on
    "tibkat-core": (["title", "abstract"], "subjects", "dev"),
    "eurlex57k": (["title", "header", "recitals", "main_body"], "labels", "test"),
    "tate": (_TATE, "labels", "test"),
    "yso-sv": (["title"], "labels", "test"),
    "acl-authors": (["title", "abstract"], "authors", "test"),
}


def variants(name: str, fields: list[str]) -> dict[str, dict[str, Any]]:
    """Return settings by name, from words only to all options."""
    none = dict.fromkeys(fields, 0)
    words = {**none, fields[0]: {"word_ngrams": {1: 0.5}}}
    bigrams = {"word_ngrams": {1: 1.0, 2: 0.5}}
    ngrams = {"word_ngrams": {1: 1.0, 2: 0.6}, "char_ngrams": {5: 0.6}}
    return {
        "words": {"fields": none},
        "words-bigrams": {"fields": none, **bigrams},
        "title-words": {"fields": words},
        "default": {"fields": fields},
        "default-bigrams": {"fields": fields, **bigrams},
        "ngrams": {"fields": none, **ngrams},  # bigrams and characters of the joined text, selected
        "ngrams-all": {"fields": none, **ngrams, "max_ngrams": None},
        "label-texts": {"fields": fields, "label_texts": label_file(name)},
        "tuned": {"fields": dict.fromkeys(fields, "auto")},
    }


def _folder(name: str) -> pathlib.Path:
    return known.find("eurlex57k").parent / name  # `find` does not have all of the sets


def label_file(name: str) -> pathlib.Path | None:
    return next(iter(_folder(name).glob("label_names.tsv*")), None)


def read(name: str, part: str) -> tuple[list[dict[str, Any]], list[list[str]], list[str]]:
    """Return texts, labels, and the language of each row ("" if unknown)."""
    fields, labels, _ = SETS[name]
    path = _folder(name) / f"{part}.jsonl.gz"
    texts, rows, languages = [], [], []
    for document in datasets.read_documents(path, text=[*fields, *_language(name)], labels=labels):
        assert isinstance(document.text, dict)
        languages.append(document.text.pop("lang", ""))
        texts.append(document.text)
        rows.append(document.labels)
    return texts, rows, languages


def _language(name: str) -> list[str]:
    return ["lang"] if name == "tibkat-core" else []


def as_annif(ranked: list[list[str]], truth: list[list[str]]) -> dict[str, float]:
    """Return F1@5 and nDCG@10 over all true labels, in percent."""
    discounts = 1 / np.log2(np.arange(2, 1000))
    ndcg = []
    for labels, true in zip(ranked, truth, strict=True):
        hits = np.isin(np.array(labels[:10], dtype=object), np.array(true, dtype=object))
        ndcg.append((hits * discounts[: len(hits)]).sum() / discounts[: len(true)].sum())
    return {"F1@5": 100 * metrics.f1_at_k(truth, ranked, 5), "nDCG@10": 100 * float(np.mean(ndcg))}


def recall_at_10(
    ranked: list[list[str]], truth: list[list[str]], rows: Counter[str], named: set[str]
) -> dict[str, float]:
    """Return R@10 of labels with a name but no row, and of labels with 1 to 4 rows, in percent."""

    def recall(chosen: Callable[[str], bool]) -> float:
        wanted = [{label for label in row if chosen(label)} for row in truth]
        found = sum(len(some.intersection(row[:10])) for some, row in zip(wanted, ranked, strict=True))
        return 100 * found / max(1, sum(map(len, wanted)))

    return {
        "R@10 no rows": recall(lambda label: not rows[label] and label in named),
        "R@10 1-4 rows": recall(lambda label: 1 <= rows[label] <= 4),
    }


def measure(
    name: str, settings: dict[str, Any], seed: int, threads: int, n_rows: int | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (language or "all", figures)."""
    texts, labels, _ = read(name, "train")
    if n_rows is not None:
        chosen = np.sort(np.random.default_rng(5).permutation(len(texts))[:n_rows])
        texts, labels = [texts[i] for i in chosen], [labels[i] for i in chosen]
    begin, cpu = time.perf_counter(), time.process_time()
    own = {key: settings[key] for key in settings if key in DEFAULTS}
    classifier = Bonsai(**own, random_state=seed, n_jobs=threads, threshold=0.5)
    of_texts = {key: settings[key] for key in settings if key not in own}
    model = TextBonsai(**of_texts, classifier=classifier).fit(texts, labels)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    test, truth, languages = read(name, SETS[name][2])
    ids, _ = model.top_k(test, 10)
    rows_of = Counter(label for row in labels for label in set(row))
    known = [[label for label in row if rows_of[label]] for row in truth]
    result = metrics.evaluate(known, ids, labels, k=(1, 3, 5), classes=model.classes_)
    ranked = [[model.classes_[i] for i in row if i >= 0] for row in ids.tolist()]
    figures = {key: result[key] for key in ("P@1", "P@3", "P@5", "PSP@5", "R@5")}
    figures |= as_annif(ranked, truth)
    names = label_file(name)
    named = set() if names is None else set(datasets.read_label_names(names))
    figures |= recall_at_10(ranked, truth, rows_of, named)
    yield "all", {**figures, "seconds": seconds, "cpu": cpu, "features": model.n_features_in_}
    for language in sorted(set(languages) - {""}):
        rows = [i for i, other in enumerate(languages) if other == language]
        yield language, as_annif([ranked[i] for i in rows], [truth[i] for i in rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=SETS)
    parser.add_argument("--variants", nargs="+", help="default: all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one-vs-rest", action="store_true")
    parser.add_argument("--titles", action="store_true")
    parser.add_argument("--rows", type=int)
    args = parser.parse_args()
    fields = SETS[args.name][0]
    available = variants(args.name, fields[:1] if args.titles else fields)
    fixed = {"classifiers": "one_vs_rest", "C": 1.0} if args.one_vs_rest else {}
    for variant in args.variants or available:
        found: dict[str, list[dict[str, Any]]] = {}
        for seed in range(args.seeds):
            settings = available[variant] | fixed
            for language, figures in measure(args.name, settings, seed, args.threads, args.rows):
                found.setdefault(language, []).append(figures)
        for language, runs in found.items():
            mean = {key: round(float(np.mean([run[key] for run in runs])), 2) for key in runs[0]}
            record = {"data": args.name, "variant": variant, "rows": language, "seeds": args.seeds, **mean}
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
