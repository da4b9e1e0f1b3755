"""EURLEX57K: from the files that its authors publish to those that `load` reads."""

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from bonsai_xmc._base.files import opened, replacing_text
from bonsai_xmc.datasets._folders import versions
from bonsai_xmc.datasets._writing import save_sparse

PAGE = "http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K"
_MIRROR = "https://archive.org/download/EURLEX57K"
ORIGIN = f"get it from its authors (Chalkidis et al., ACL 2019) at {PAGE} or {_MIRROR} and unpack it"

# Name of a part in the published files, in ours, and how many documents it has.
_PARTS = (("train", "trn", 45_000), ("dev", "dev", 6_000), ("test", "tst", 6_000))
_N_LABELS = 4_271
_TEXT = ("title", "header", "recitals", "main_body")
_CONCEPTS = ("concepts", "eurovoc_concepts")
_CONCEPT_FILES = ("EURLEX57K.json", "eurovoc_en.json", "eurovoc_concepts.jsonl")

Record = dict[str, Any]


def lay_out(source: Path, folder: Path) -> None:
    """Write the matrices, the names of features and labels, and the texts into `folder`.

    X is TF-IDF of title, header, recitals and main body: words of at least two training documents, sublinear
    term frequencies, unit rows. Labels are ordered by descending training frequency, ties by id; documents
    by the names of their published files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() == source.resolve():
        raise ValueError(f"{folder} holds the published files; give another folder to write to")
    parts = {part: sorted(_records(source, part), key=_file_name) for part, _, _ in _PARTS}
    labels = _ordered_labels(parts)
    _warn_if_other(parts, labels)
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    for part, short, _ in _PARTS:
        texts = (" ".join(record[field] for field in _TEXT) for record in parts[part])
        X = vectorizer.fit_transform(texts) if part == "train" else vectorizer.transform(texts)
        save_sparse(folder / f"X_{short}.npz", X)
        save_sparse(folder / f"Y_{short}.npz", _indicator(parts[part], labels))
        lines = (json.dumps(record, ensure_ascii=False) for record in parts[part])
        _write(folder / f"{part}.jsonl.gz", lines)
    names = _names(source)
    _write(folder / "features.txt", vectorizer.get_feature_names_out())
    _write(
        folder / "labels.txt", (f"{label}\t{names[label]}" if label in names else label for label in labels)
    )


def _records(source: Path, part: str) -> Iterator[Record]:
    for home in (source, source / "dataset", source / "datasets"):
        documents = sorted((home / part).glob("*.json"))
        for path in documents:
            yield _record(path.read_bytes(), str(path), path.stem)
        if documents:
            return
        for name in (f"{part}.jsonl", f"{part}.json"):
            for path in versions(home / name)[:1]:
                with opened(path) as lines:
                    for number, line in enumerate(lines, 1):
                        yield _record(line, f"{path}, line {number}", None)
                return
    raise FileNotFoundError(
        f"{source} has neither a folder {part}/ with JSON files nor a file {part}.jsonl; {ORIGIN}"
    )


def _record(text: bytes, place: str, stem: str | None) -> Record:
    """Return a document with its parts as plain strings; `place` is for messages."""
    try:
        given = json.loads(text)
        body = given["main_body"]
        labels = next(given[key] for key in _CONCEPTS if key in given)
        return {
            "id": str(given.get("celex_id", stem)),
            "type": str(given.get("type", "")),
            "title": given["title"] or "",
            "header": given["header"] or "",
            "recitals": given["recitals"] or "",
            "main_body": body if isinstance(body, str) else "\n".join(body or []),
            "labels": [str(label) for label in labels],
        }
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        raise ValueError(
            f"{place} is not a document of EURLEX57K: an object with {', '.join(_TEXT)} and concepts is "
            f"needed ({type(error).__name__}: {error})"
        ) from error


def _file_name(record: Record) -> str:
    return f"{record['id']}.json"


def _ordered_labels(parts: dict[str, list[Record]]) -> list[str]:
    counts = Counter(label for record in parts["train"] for label in record["labels"])
    everywhere = {label for records in parts.values() for record in records for label in record["labels"]}
    return sorted(everywhere, key=lambda label: (-counts[label], label))


def _indicator(records: list[Record], labels: list[str]) -> csr_array:
    column = {label: i for i, label in enumerate(labels)}
    rows = [sorted({column[label] for label in record["labels"]}) for record in records]
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    indices = np.fromiter((label for row in rows for label in row), np.int32, indptr[-1])
    return csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), len(labels)))


def _names(source: Path) -> dict[str, str]:
    """Return the names of concepts from the file that is published with the documents, if it is there."""
    for name in _CONCEPT_FILES:
        for path in (source / name, source / "dataset" / name):
            if path.is_file():
                text = path.read_text("utf-8")
                if path.suffix == ".jsonl":
                    return {str(c["id"]): _one_line(c["title"]) for c in map(json.loads, text.splitlines())}
                return {str(key): _one_line(c["label"]) for key, c in json.loads(text).items()}
    return {}


def _one_line(name: str) -> str:
    return " ".join(name.split())


def _warn_if_other(parts: dict[str, list[Record]], labels: list[str]) -> None:
    found = [len(parts[part]) for part, _, _ in _PARTS] + [len(labels)]
    official = [count for _, _, count in _PARTS] + [_N_LABELS]
    if found != official:
        show = lambda numbers: "{:,} + {:,} + {:,} documents and {:,} labels".format(*numbers)
        warnings.warn(
            f"this is not EURLEX57K as published, whose results could be compared: it has {show(found)} "
            f"instead of {show(official)}",
            stacklevel=4,
        )


def _write(path: Path, lines: Any) -> None:
    with replacing_text(os.fspath(path)) as file:
        file.writelines(f"{line}\n".encode() for line in lines)
