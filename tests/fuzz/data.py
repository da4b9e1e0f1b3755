"""Targets for data: files of documents and of matrices; rows, labels and weights in memory."""

import bz2
import gzip
import io
import json
import lzma
import traceback
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bonsai_xmc import Bonsai, datasets, metrics
from bonsai_xmc._data.labels import labels_of, over_classes, row_weights
from bonsai_xmc.datasets import read_documents, read_label_names, read_label_texts
from fuzz.mutate import (
    VALUES,
    Attempt,
    Rng,
    changed_array,
    changed_bytes,
    changed_json,
    changed_value,
    one_of,
)

_RECORDS = [
    {"title": "Old houses, of brick", "abstract": 'with "quotes"', "labels": ["a", "b c"]},
    {"title": "Wärmepumpen", "abstract": "", "labels": ["a"]},
    {"title": "木造", "abstract": "third\nline", "labels": []},
]
_CELLS = [[r["title"], r["abstract"], ";".join(r["labels"])] for r in _RECORDS]


def _tables() -> dict[str, bytes]:
    """Return documents in every format."""
    import pyarrow
    import pyarrow.parquet
    from openpyxl import Workbook

    quoted = lambda cell: '"' + cell.replace('"', '""') + '"'
    csv = "\n".join(",".join(map(quoted, row)) for row in [["title", "abstract", "labels"], *_CELLS])
    tabs = "\n".join("\t".join(cell.replace("\n", " ") for cell in row) for row in _CELLS)
    parquet, book, excel = io.BytesIO(), Workbook(), io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(_RECORDS), parquet)
    for row in [["title", "abstract", "labels"], *_CELLS]:
        book.active.append(row)
    book.save(excel)
    texts = {
        "jsonl": "\n".join(map(json.dumps, _RECORDS)),
        "json": json.dumps(_RECORDS, ensure_ascii=False),
        "csv": csv,
        "tsv": "title\tabstract\tlabels\n" + tabs,
        "annif": "a text\t<http://example.org/a> <http://example.org/b>\nanother\t<http://example.org/a>\n",
        "pecos": "0,1\ta text\n2\tanother text\n",
        "libmultilabel": "1\ta b\ta text\n2\ta\tanother text\n",
        "fasttext": "__label__a __label__b a text\n__label__a another\n",
        "lines": "a text\nanother\n\n",
    }
    found = {name: text.encode() for name, text in texts.items()}
    return found | {"parquet": parquet.getvalue(), "xlsx": excel.getvalue()}


def _rezipped(data: bytes, rng: Rng) -> bytes:
    """Return an archive with one member changed, and valid checksums."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as new:
        victim = one_of(old.namelist(), rng)
        for name in old.namelist():
            content = old.read(name)
            if name == victim and rng.random() < 0.05:
                continue
            new.writestr(name, changed_bytes(content, rng) if name == victim else content)
    return result.getvalue()


def _packed(data: bytes, rng: Rng) -> bytes:
    """Return the same, or sometimes compressed, and sometimes damaged after that."""
    if rng.random() < 0.8:
        return data
    data = one_of([gzip.compress, bz2.compress, lzma.compress], rng)(data)
    return changed_bytes(data, rng) if rng.random() < 0.5 else data


def documents(folder: Path) -> Attempt:
    """JSON, tables, lines, Parquet and Excel, compressed and in several encodings; names of labels."""
    tables = _tables()

    def attempt(rng: Rng) -> bool:
        kind = one_of(list(tables), rng)
        if kind == "xlsx" and rng.random() < 0.8:
            data = _rezipped(tables[kind], rng)
        elif kind in ("json", "jsonl") and rng.random() < 0.5:
            rows = changed_value(_RECORDS, rng)
            if kind == "jsonl" and isinstance(rows, list):
                data = "\n".join(map(json.dumps, rows)).encode()
            else:
                data = json.dumps(rows).encode()
        else:
            data = changed_bytes(tables[kind], rng)
        encoding = one_of([None, None, None, "utf-16", "windows-1252", "utf-8", "shift-jis", "no such"], rng)
        path = folder / one_of(["d", f"d.{kind}", "d.csv", "d.json", "d.gz"], rng)
        path.write_bytes(_packed(data, rng))
        if kind in ("jsonl", "tsv", "lines") and rng.random() < 0.3:
            return bool(one_of([read_label_names, read_label_texts], rng)(path)) or True
        options = {
            "format": one_of(["auto", kind, one_of(list(tables), rng)], rng),
            "text": one_of([None, None, "title", "title,abstract", ["abstract"], "x", ""], rng),
            "labels": one_of([None, None, "labels", "title", "x"], rng),
            "label_separator": one_of(["auto", "auto", ";", "space", "none", "tab", "x", ""], rng),
            "complete": bool(rng.integers(2)),
            "strict": rng.random() < 0.2,
            "max_line": one_of([67108864, 1000, 10], rng),
            "encoding": encoding,
        }
        with read_documents(path, **options) as found:
            for document in found:
                texts = document.text.values() if isinstance(document.text, dict) else [document.text]
                assert all(isinstance(text, str) for text in texts)
                assert all(isinstance(label, str) for label in document.labels or ())
            assert all(isinstance(line, str) for line in found.problems.report())
        return True

    return attempt


def matrices(folder: Path) -> Attempt:
    """Rows and labels as text, `.npz` files and folders of arrays."""
    X = sp.csr_array(np.array([[0, 1.5, 0], [2, 0, -1], [0, 0, 0]], dtype=np.float32))
    Y = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1]]))
    datasets.save_xc(folder / "xc.txt", X, Y)
    datasets.save_xc(folder / "one.svm", X, Y, format="svmlight", base=1)
    datasets.save_xc(folder / "X.txt", X, Y, folder / "Y.txt")
    datasets.save_xc(folder / "X.npz", X, Y, folder / "Y.npz")
    datasets.save_mapped(folder / "rows", X, Y)
    singles = {name: (folder / name).read_bytes() for name in ("xc.txt", "one.svm")}
    pairs = {name: (folder / name).read_bytes() for name in ("X.txt", "X.npz", "Y.txt", "Y.npz")}
    mapped = {path.name: path.read_bytes() for path in (folder / "rows").iterdir()}

    def attempt(rng: Rng) -> bool:
        kind = rng.random()
        options = {"n_features": one_of([None, None, 3, 4], rng), "n_labels": one_of([None, None, 2, 0], rng)}
        if kind < 0.3:
            name = one_of(list(singles), rng)
            (folder / name).write_bytes(_packed(changed_bytes(singles[name], rng), rng))
            options["base"] = one_of(["auto", 0, 1], rng)
            rows, labels = datasets.load_xc(folder / name, **options)
        elif kind < 0.7:
            end = one_of(["txt", "npz"], rng)
            names = [f"X.{end}", f"Y.{end}"]
            victim = one_of(names, rng)
            for name in names:
                (folder / name).write_bytes(_other(pairs[name], rng) if name == victim else pairs[name])
            rows, labels = datasets.load_xc(*(folder / name for name in names), **options)
            datasets.load_sparse(folder / victim)
        else:
            victim = one_of(list(mapped), rng)
            for name, data in mapped.items():
                (folder / "rows" / name).write_bytes(_other(data, rng) if name == victim else data)
            rows, labels = datasets.load_xc(folder / "rows", **options)
        assert rows.shape[0] == labels.shape[0]
        assert rows.sum(axis=1).shape == labels.sum(axis=1).shape  # reads all that is mapped
        return True

    return attempt


def _other(data: bytes, rng: Rng) -> bytes:
    """Return a changed archive of arrays, array, JSON or text."""
    kind = rng.random()
    if data[:2] == b"PK" and kind < 0.7:
        arrays = dict(np.load(io.BytesIO(data)))
        name, result = one_of(list(arrays), rng), io.BytesIO()
        arrays[name] = changed_array(arrays[name], rng) if arrays[name].dtype.kind in "fiu" else arrays[name]
        np.savez(result, **arrays)
        return result.getvalue() if kind < 0.5 else _rezipped(data, rng)
    if data[1:6] == b"NUMPY" and kind < 0.5:
        result = io.BytesIO()
        np.save(result, changed_array(np.load(io.BytesIO(data)), rng))
        return result.getvalue()
    if data[:1] == b"{" and kind < 0.7:
        return changed_json(data.decode(), rng).encode()
    return changed_bytes(data, rng)


def rows(folder: Path) -> Attempt:
    """Matrices in memory whose parts do not fit together, to predict and to learn from."""
    data = datasets.make_xmc(n_rows=40, n_test=5, n_features=30, n_labels=9, features_per_row=5)
    params = [{"classifiers": "blend"}, {"classifiers": "one_vs_rest", "search": "index"}]
    models = [
        Bonsai(**p, threshold=0.5, n_jobs=1).fit(data.X_train, data.Y_train, keep_rows=True) for p in params
    ]
    forms = ["csr", "csr", "csr", "csc", "coo", "bsr", "dia", "lil", "dok", "array", "list", "value"]
    parts = ["data", "indices", "indptr", "row", "col", "offsets"]

    def attempt(rng: Rng) -> bool:
        form, X = one_of(forms, rng), data.X_test.copy()
        if form in ("array", "list"):
            X = changed_array(X.toarray(), rng)
            if rng.random() < 0.2:
                X = X.astype(one_of([object, complex, str, bool, "M8[s]", ">f4", "f2"], rng))
            X = X.tolist() if form == "list" else X
            X = changed_value(X, rng) if form == "list" and isinstance(X, list) else X
        elif form == "value":
            X = one_of([*VALUES, {"x": [1]}, object(), np.matrix([[1]]), iter([1])], rng)
        else:
            X = X.asformat(form)
            for _ in range(rng.integers(1, 3)):
                if isinstance(part := getattr(X, name := one_of(parts, rng), None), np.ndarray):
                    setattr(X, name, changed_array(part, rng))
            if rng.random() < 0.1:
                X._shape = one_of([(5, 29), (4, 30), (6, 30), (5, 2**40)], rng)
        model = one_of(models, rng)
        what = rng.random()
        try:
            if what < 0.6:
                ids, scores = model.top_k(X, 3)
                assert ids.max(initial=-1) < 9 and not np.isnan(scores).any()
            elif what < 0.8:
                model.predict(X)
            elif what < 0.9:
                model.learn(X, data.Y_test)
            else:
                Bonsai(**one_of(params, rng), threshold=0.5, n_jobs=1).fit(X, data.Y_test)
        except TypeError as error:  # which scikit-learn wants for entries that are no numbers
            if "sklearn" not in traceback.extract_tb(error.__traceback__)[-1].filename:
                raise
            return False
        return True

    return attempt


def labels(folder: Path) -> Attempt:
    """Label sets, weights of rows and rankings, nested in any way."""
    lists = [[0, 3], [1], [], [2, 0]]
    names = [["a", "b"], ["c"], [], ["a"]]
    X = np.eye(4, 3)
    odd = [
        np.int64(3),
        np.float32(1),
        np.str_("a"),
        b"a",
        (1, 2),
        {1, 2},
        object(),
        np.array(3),
        1j,
        range(3),
    ]

    def changed(value: Any, rng: Rng) -> Any:
        value = changed_value(value, rng)
        if rng.random() < 0.2 and isinstance(value, list) and value:
            value[int(rng.integers(len(value)))] = one_of([odd, [one_of(odd, rng)], one_of(odd, rng)], rng)
        return value

    def attempt(rng: Rng) -> bool:
        Y = changed(one_of([lists, names], rng), rng)
        form, what = rng.random(), rng.random()
        if form < 0.1:
            Y = np.array(Y, dtype=object)
        elif form < 0.25:
            Y = changed_array(np.eye(4, 5, dtype=one_of(["i1", "f8", "u4", bool], rng)), rng)
        elif form < 0.35:
            Y = sp.csr_array(np.eye(4, 5))
            setattr(
                Y, (name := one_of(["data", "indices", "indptr"], rng)), changed_array(getattr(Y, name), rng)
            )
        if what < 0.5:
            found = labels_of(Y)
            assert found.n_rows >= 0 and found.indices.max(initial=-1) < found.n_labels
        elif what < 0.65:
            over_classes(Y, np.array(["a", "b", "c"], dtype=object) if rng.random() < 0.5 else np.arange(4))
        elif what < 0.8:
            row_weights(changed([1.0, 2.0, 0.0, 1.0], rng), 4)
        elif what < 0.98:
            ranked = changed(one_of([lists, names], rng), rng)
            metrics.evaluate(Y, [ranked] if isinstance(ranked, str) else ranked, k=(1, 3))  # not a file
        else:  # which takes ten times as long
            Bonsai(threshold=0.5, n_jobs=1).fit(X, Y)
        return True

    return attempt
