"""Targets for model files and checkpoints: the container, models of every kind, and those of omikuji."""

import contextlib
import json
import os
import shutil
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import kinds
import test_mutations
from bonsai_xmc import Bonsai, datasets
from bonsai_xmc._modelfile import container
from bonsai_xmc._training.checkpoint import _ENTRY, _HEADER, _MAGIC
from bonsai_xmc.compat._omikuji_files import load_omikuji
from fuzz.mutate import Attempt, Rng, changed_array, changed_bytes, changed_json, changed_value, one_of
from test_import_omikuji import cbor, dense, sparse


def header(folder: Path) -> Attempt:
    """Header and tensors of the container; checksums hold in most files."""
    arrays = {"a.x": np.arange(5, dtype="<u4"), "a.y": np.ones((2, 3), "<f4"), "b.z": np.zeros(0, "u1")}
    blob = container.dumps(arrays, {"title": "test", "n": "3"}, ["a"])
    (length,) = struct.unpack_from("<Q", blob)
    entries, data = json.loads(blob[8 : 8 + length]), blob[8 + length :]
    path = folder / "m"

    def attempt(rng: Rng) -> bool:
        kind = rng.random()
        if kind < 0.2:
            changed = changed_bytes(blob, rng)
        else:
            described = changed_value(entries, rng)
            content = changed_bytes(data, rng) if kind < 0.4 else data
            changed = _sealed(described, content, rng.random() < 0.7)
        path.write_bytes(changed)
        file = container.read(path, mmap=one_of([True, False, "sealed"], rng))
        container.verify(file)
        again = container.dumps(file.arrays, file.metadata, file.requires)
        assert container.loads(again).arrays.keys() == file.arrays.keys()
        return True

    return attempt


def _sealed(entries: Any, data: bytes, all_checksums: bool) -> bytes:
    """Return a container whose header has a valid checksum, its tensors, too, or what is described."""
    fields = entries.get("__metadata__") if isinstance(entries, dict) else None
    if isinstance(fields, dict):
        fields = dict(fields)
        entries = entries | {"__metadata__": fields}
        for name, entry in entries.items() if all_checksums else ():
            with contextlib.suppress(TypeError, KeyError, ValueError):
                begin, end = entry["data_offsets"]
                fields[f"crc32.{name}"] = f"{zlib.crc32(data[begin:end]):08x}"
        fields["crc32.header"] = "0" * 8
    text = json.dumps(entries).replace('": "', '":"').encode()
    text += b" " * (-(8 + len(text)) % 64)
    blank = struct.pack("<Q", len(text)) + text
    mark = b'"crc32.header":"'
    place = blank.find(mark) + len(mark)
    return blank[:place] + b"%08x" % zlib.crc32(blank) + blank[place + 8 :] + data


@cache
def _stored(kind: str) -> tuple[Any, container.ModelFile, Any]:
    """Return the class of a model of some kind, its file, and rows for it."""
    if kind in test_mutations.KINDS:
        model, X = test_mutations.KINDS[kind]()
    else:
        case = kinds.case_of(kind)
        model, X = case.model, case.X[:4]
    path = Path(f"/dev/shm/bonsai-fuzz-{os.getpid()}")
    try:
        model.save(path)
        return type(model), container.loads(path.read_bytes()), X
    finally:
        path.unlink(missing_ok=True)


def model(folder: Path) -> Attempt:
    """Metadata and tensors of every kind of model, with valid checksums: load, predict, explain, edit."""
    names = [*test_mutations.KINDS, *(kind for kind in kinds.KINDS if kind not in test_mutations.KINDS)]
    path = folder / "m"

    def attempt(rng: Rng) -> bool:
        loader, file, X = _stored(one_of(names, rng))
        arrays, metadata, requires = dict(file.arrays), dict(file.metadata), list(file.requires)
        for _ in range(rng.choice([1, 2, 3], p=[0.8, 0.15, 0.05])):
            what, name = rng.random(), one_of(list(arrays), rng)
            if what < 0.45:
                key = one_of(sorted(metadata), rng)
                metadata[key] = changed_json(metadata[key], rng)
            elif what < 0.9:
                arrays[name] = changed_array(arrays[name], rng)
            elif what < 0.93:
                arrays[name] = arrays[one_of(list(arrays), rng)]
            elif what < 0.96:
                del arrays[name]
            elif what < 0.98:
                del metadata[one_of(sorted(metadata), rng)]
                break
            elif requires:
                requires.remove(one_of(requires, rng))
        path.write_bytes(container.dumps(arrays, metadata, requires))
        model = loader.load(path, verify=bool(rng.integers(4)))
        test_mutations.use(model, X)
        return True

    return attempt


def foreign(folder: Path) -> Attempt:
    """Folders of omikuji."""
    n = 6
    leaves = [
        {"Leaf": {"weights": sparse(np.eye(n + 1, 2)), "labels": labels}} for labels in ([0, 3], [1, 2])
    ]
    tree = {"Branch": {"weights": dense(np.ones((n + 1, 2))), "children": leaves}}
    settings = {"n_features": n, "classifier_loss_type": "Hinge"}
    X = sp.csr_array(np.eye(3, n, dtype=np.float32))

    def attempt(rng: Rng) -> bool:
        kind = rng.random()
        encoded = cbor(tree)
        if kind < 0.6:
            with contextlib.suppress(Exception):  # not all values have a form in CBOR
                encoded = cbor(changed_value(tree, rng))
        elif kind < 0.9:
            encoded = changed_bytes(encoded, rng)
        text = json.dumps(changed_value(settings, rng) if rng.random() < 0.2 else settings).encode()
        (folder / "settings.json").write_bytes(changed_bytes(text, rng) if rng.random() < 0.1 else text)
        (folder / "tree0.cbor").write_bytes(encoded)
        model = load_omikuji(str(folder), quantise=bool(rng.integers(2)))
        rows = X if model.n_features_in_ == n else sp.csr_array((2, model.n_features_in_), dtype=np.float32)
        ids, scores = model.top_k(rows, 2)
        assert ids.max() < len(model.classes_) and not np.isnan(scores).any()
        return True

    return attempt


def checkpoint(folder: Path) -> Attempt:
    """Logs of units: damage is computed again to the same bytes; forged results are refused, or predict."""
    data = datasets.make_xmc(n_rows=60, n_test=5, n_features=30, n_labels=12, features_per_row=5)
    params = [
        {"classifiers": "leaf", "branching_factor": 3},
        {"classifiers": "one_vs_rest", "search": "exact"},
    ]

    def fit(kind: int, place: Path) -> Bonsai:
        model = Bonsai(**params[kind], threshold=0.5, n_jobs=1)
        return model.fit(data.X_train, data.Y_train, checkpoint=place)

    wholes: list[tuple[dict[str, bytes], bytes]] = []
    for kind in range(len(params)):
        fit(kind, folder / "whole").save(folder / "m")
        wholes.append(
            ({p.name: p.read_bytes() for p in (folder / "whole").iterdir()}, (folder / "m").read_bytes())
        )
        shutil.rmtree(folder / "whole")

    def attempt(rng: Rng) -> bool:
        kind, place = int(rng.integers(len(params))), folder / "c"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        files, expected = wholes[kind]
        victim, forged = one_of([name for name in files if name != "lock"], rng), rng.random() < 0.5
        for name, content in files.items():
            if name == victim:
                if name.endswith(".json"):
                    content = (
                        changed_json(content.decode(), rng).encode()
                        if forged
                        else changed_bytes(content, rng)
                    )
                else:
                    content = _forged(content, rng) if forged else changed_bytes(content, rng)
            (place / name).write_bytes(content)
        model = fit(kind, place)
        model.save(folder / "m")
        if not forged:
            assert (folder / "m").read_bytes() == expected
        ids, scores = model.top_k(data.X_test, 3)
        assert ids.max() < 12 and not np.isnan(scores).any()
        return True

    return attempt


def _forged(log: bytes, rng: Rng) -> bytes:
    """Return a log of which one entry is changed, with valid checksums."""
    place, entries = _HEADER.size, []
    while place < len(log):
        _, unit, size, _ = _ENTRY.unpack_from(log, place)
        place += _ENTRY.size
        entries.append((unit, log[place : place + size]))
        place += size
    n_units = _HEADER.unpack_from(log)[2]
    if rng.random() < 0.1:
        n_units = changed_value(n_units, rng)
        n_units = n_units if isinstance(n_units, int) and 0 <= n_units < 2**64 else 0
    result = bytearray(_MAGIC + struct.pack("<IQ", zlib.crc32(struct.pack("<Q", n_units)), n_units))
    victim = int(rng.integers(len(entries)))
    for i, (unit, data) in enumerate(entries):
        if i == victim and rng.random() < 0.2:
            unit = int(one_of([0, 1, 2**31, 2**32 - 1], rng))
        elif i == victim:
            data = changed_bytes(data, rng)
        checked = _ENTRY.pack(0, unit, len(data), zlib.crc32(data))[4:]
        result += struct.pack("<I", zlib.crc32(checked)) + checked + data
    return bytes(result)
