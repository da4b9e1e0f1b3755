"""Measure the gain and the cost of an encoder's vectors in addition to words.

    python -m benchmarks.encoders tibkat-core wordllama /models/all-MiniLM-L6-v2@128 --seeds 0 1 2

Trains `TextBonsai(encoder=…)` on the training part of a data set (see BONSAI_DATA), and evaluates it, and
each of its members alone, on dev (tibkat-core) or test. P and PSP count the true labels that occur in
training; where rows have a language, figures are given for each, too. Weights and links are chosen on
training rows; --links shows what others would give. CPU seconds: of encoding all texts, of training the
member over words, and of all training, the choice of weights included.

An encoder is a name or a folder, as in `TextBonsai`; FOLDER@128 reads the first 128 tokens of a text, and
multiplies matrices in bfloat16 (the cosine to vectors by float32 is above .9999). Vectors are kept in --cache
in parts: several seeds encode once, and the same command continues an interrupted encoding. --label-texts
gives the names of labels to the model, too; R@10 is given for true labels without a training row that have a
name. --representations trains three trees over words for each of these instead of the default, with the
encoder "none" on TF-IDF of names. --rows 6000 trains on so many rows and evaluates on half as many others of
the training part, which bounds the cost of encoding. --record stores means and deviations over the seeds.
"""

import argparse
import hashlib
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figures import Row, record
from benchmarks.texts.accuracy import SETS, label_file, read, recall_at_10
from bonsai_xmc import Bonsai, TextBonsai, datasets, metrics
from bonsai_xmc._model.fusion import LINKS, FusionRanker
from bonsai_xmc._text.encoders import Encoder
from bonsai_xmc._text.reader import joined

_PART = 512  # texts in a file of the cache


class Timed(Bonsai):
    """Records the CPU seconds of training."""

    seconds: list[float] = []  # noqa: RUF012 (of all of them)

    def _fit(self, job: Any) -> Any:
        begin = time.process_time()
        try:
            return super()._fit(job)
        finally:
            Timed.seconds.append(time.process_time() - begin)


class Cached:
    """An encoder whose vectors are kept in files, in parts: an interrupted encoding continues."""

    def __init__(self, name: str, lists: list[list[str]], cache: Path, threads: int) -> None:
        self.seconds, self.vectors = 0.0, dict[str, Any]()
        for texts in lists:
            digest = hashlib.blake2b("\0".join(texts).encode(), digest_size=8).hexdigest()
            folder = cache / f"{Path(name).name}.{digest}"
            folder.mkdir(parents=True, exist_ok=True)
            distinct = sorted(set(texts), key=lambda text: (len(text), text))  # little padding in a part
            for begin in range(0, len(distinct), _PART):
                part, path = distinct[begin : begin + _PART], folder / f"{begin}.npz"
                if not path.exists():
                    _keep(path, _encoder(name, threads), part)
                found = np.load(path)
                self.vectors |= dict(zip(part, found["vectors"], strict=True))
                self.seconds += float(found["seconds"])
        self._width = len(next(iter(self.vectors.values())))

    def __call__(self, texts: list[str]) -> Any:
        nothing = np.zeros(self._width)  # of the text by which functions are compared
        return np.array([self.vectors.get(text, nothing) for text in texts], np.float32)


def _keep(path: Path, encode: Any, texts: list[str]) -> None:
    """Write the vectors of texts, and the CPU seconds that they take."""
    begin = time.process_time()
    vectors = encode(texts).astype(np.float16)
    with path.with_suffix(".part").open("wb") as file:
        np.savez(file, vectors=vectors, seconds=time.process_time() - begin)
    path.with_suffix(".part").replace(path)


@cache
def _encoder(name: str, threads: int) -> Any:
    base, _, tokens = name.partition("@")
    if not tokens:
        encoder = Encoder.of(base)
        return lambda texts: encoder.encode(texts, threads)
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(base)
    model.max_seq_length = int(tokens)

    def encode(texts: list[str]) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return model.encode(texts, show_progress_bar=False)

    return encode


class Rows(NamedTuple):
    """Records, their labels and their languages."""

    records: list[Any]
    labels: list[list[str]]
    languages: list[str]


@cache
def parts(name: str, n_rows: int | None) -> tuple[Rows, Rows]:
    """Return the rows to train on, and those to evaluate on."""
    train = Rows(*read(name, "train"))
    if n_rows is None:
        return train, Rows(*read(name, SETS[name][2]))
    drawn = np.random.default_rng(7).permutation(len(train.records))[: n_rows + n_rows // 2]
    of = lambda rows: Rows(*([column[i] for i in rows] for column in train))
    return of(drawn[:n_rows].tolist()), of(drawn[n_rows:].tolist())


def texts_of(name: str, records: list[Any]) -> list[str]:
    fields, _, _ = SETS[name]
    return [text or "" for text in joined([[record.get(field) for record in records] for field in fields])]


def names_of(name: str) -> list[str]:
    """Return all texts of all labels."""
    path = label_file(name)
    return (
        [] if path is None else [text for texts in datasets.read_label_texts(path).values() for text in texts]
    )


def figures(model: Any, name: str, n_rows: int | None) -> dict[str, dict[str, float]]:
    """Return P, PSP, and R@10 of labels without rows, by language, including "all"."""
    (_, train, _), (texts, labels, languages) = parts(name, n_rows)
    names = label_file(name)
    known = Counter(label for row in train for label in set(row))
    named = set() if names is None else set(datasets.read_label_names(names))
    ids, _ = model.top_k(texts, 10)
    ranked = [[model.classes_[i] for i in row if i >= 0] for row in ids.tolist()]
    truth = [[label for label in row if label in known] for row in labels]
    result = {}
    for language in ["all", *sorted(set(languages) - {""})]:
        rows = [i for i, own in enumerate(languages) if truth[i] and language in ("all", own)]
        some = [truth[i] for i in rows], ids[rows]
        found = metrics.evaluate(*some, train, k=(1, 3, 5), classes=model.classes_)
        own = {key: found[key] for key in ("P@1", "P@3", "P@5", "PSP@5")}
        every = [i for i, own in enumerate(languages) if language in ("all", own)]
        own |= recall_at_10([ranked[i] for i in every], [labels[i] for i in every], known, named)
        result[language] = {key: round(value, 2) for key, value in own.items()}
    return result


def with_link(model: Any, link: str) -> Any:
    """Return the fusion with another link for both members, and weights as they are."""
    fitted = model.fitted_
    assert isinstance(fitted.ranker, FusionRanker)
    members = tuple(replace(one, link=link) for one in fitted.ranker.members)
    return model._with(replace(fitted, ranker=replace(fitted.ranker, members=members)))


def measure(
    name: str,
    encoder: Cached | None,
    called: str,
    seed: int,
    threads: int,
    *,
    links: bool,
    label_texts: bool,
    representation: str | None = None,
    n_rows: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Train a model; yield the figures of it and of its members, by language."""
    texts, labels, _ = parts(name, n_rows)[0]
    trees = {} if representation is None else {"classifiers": "leaf", "representation": representation}
    classifier = Timed(random_state=seed, n_jobs=threads, threshold=0.5, **trees)
    Timed.seconds.clear()
    begin = time.process_time()
    given = label_file(name) if label_texts or "text" in (representation or "") else None
    model = TextBonsai(fields=SETS[name][0], label_texts=given, encoder=encoder, classifier=classifier).fit(
        texts, labels
    )
    cpu = time.process_time() - begin
    about: dict[str, Any] = {
        "data": name if n_rows is None else f"{name}, {n_rows:,} rows",
        "encoder": called,
        "seed": seed,
        "encoding": 0.0 if encoder is None else round(encoder.seconds, 1),
        "label_texts": given is not None,
        "trees": representation,
    }
    about |= {"words_cpu": round(Timed.seconds[0], 1), "training_cpu": round(cpu, 1)}
    models = {"chosen": model}
    if isinstance(model.fitted_.ranker, FusionRanker):
        fusion = model.classifier_
        about |= {"weights": fusion.weights_, "links": fusion.links_, "held_out": fusion.chosen_["figures"]}
        models |= fusion.members_
        if links:
            models |= {link: with_link(model, link) for link in LINKS if link != "calibrated"}
    for kind, one in models.items():
        for language, found in figures(one, name, n_rows).items():
            yield about | {"model": kind, "rows": language, **found}


def recorded(found: list[dict[str, Any]]) -> list[Row]:
    """Return a row for each encoder and model, with means and deviations over seeds."""
    rows = []
    kinds = {(one["data"], one["encoder"], one["model"]): one for one in found if one["rows"] == "all"}
    for data, encoder, model in kinds:
        same = [
            one
            for one in found
            if (one["data"], one["encoder"], one["model"], one["rows"]) == (data, encoder, model, "all")
        ]
        row: Row = {"data": data, "encoder": encoder, "model": model}
        for measure in ("P@1", "P@3", "P@5", "PSP@5"):
            values = [one[measure] for one in same]
            row[measure] = [float(np.mean(values)), float(np.std(values))]
        row["encoding CPU s"] = same[0]["encoding"]
        whole = model == "chosen"
        row["training CPU s"] = float(np.mean([one["training_cpu"] for one in same])) if whole else None
        row["words CPU s"] = float(np.mean([one["words_cpu"] for one in same])) if whole else None
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=SETS)
    parser.add_argument("encoder", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("build/vectors"))
    parser.add_argument("--links", action="store_true")
    parser.add_argument("--label-texts", action="store_true")
    parser.add_argument("--representations", nargs="+", default=[None])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--record", metavar="MACHINE/TABLE", help="store the figures in benchmarks/results")
    args = parser.parse_args()
    texts = [text for part in parts(args.name, args.rows) for text in texts_of(args.name, part.records)]
    found: list[dict[str, Any]] = []
    by_names = args.label_texts or any("text" in one for one in args.representations if one)
    lists = [texts, names_of(args.name)] if by_names else [texts]
    for called in args.encoder:
        encoder = None if called == "none" else Cached(called, lists, args.cache, args.threads)
        for seed in args.seeds:
            for representation in args.representations:
                options = {"links": args.links, "label_texts": args.label_texts, "n_rows": args.rows}
                for one in measure(
                    args.name,
                    encoder,
                    Path(called).name,
                    seed,
                    args.threads,
                    representation=representation,
                    **options,
                ):
                    print(json.dumps(one), flush=True)
                    found.append(one)
    if args.record:
        machine, _, table = args.record.partition("/")
        command = f"python -m benchmarks.encoders {shlex.join(sys.argv[1:])}"
        record(machine, table, command, recorded(found), beside=("data", "encoder", "model"))


if __name__ == "__main__":
    main()
