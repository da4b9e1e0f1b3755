"""Results of units on disk, so that training can be continued after it was killed.

A folder with `checkpoint.json`, the facts that identify the training, and one log for each stage. A log is
append-only: a header, then an entry for each unit. After a crash it can still be read: entries have
checksums, and a torn or damaged one counts as missing.
"""

import contextlib
import fcntl
import json
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.files import replacing
from bonsai_xmc._base.progress import LOG

PathLike = str | os.PathLike[str]
Stored = tuple[int, Array, Array]  # the descriptor of a file; begin and size of the result of each unit

_FACTS = "checkpoint.json"
_LOCK = "lock"
_MAGIC = b"bonsai-units-1\n"
_HEADER = struct.Struct("<15sIQ")  # magic, checksum of what follows, number of units
_ENTRY = struct.Struct("<IIQI")  # checksum of what follows, unit, size and checksum of the result
_SECONDS_BETWEEN_SYNCS = 5.0


class CheckpointError(ValueError):
    """A checkpoint that does not belong to this training, or cannot be used."""


class Checkpoint:
    """A folder with the results of units. Use it in a ``with`` statement: it is locked for one process.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    facts : mapping
        What identifies the training, in the types of JSON. A folder with other facts is refused.
    """

    def __init__(self, folder: PathLike, facts: Mapping[str, Any]) -> None:
        self._folder = Path(folder)
        self._facts = json.loads(json.dumps(facts))
        self._lock: int | None = None

    def __enter__(self) -> "Checkpoint":
        if self._folder.exists() and not self._folder.is_dir():
            raise CheckpointError(f"checkpoint {self._folder} is a file; give a folder")
        self._folder.mkdir(parents=True, exist_ok=True)
        strangers = [p.name for p in self._folder.iterdir() if not _is_ours(p.name)]
        if strangers and not (self._folder / _FACTS).exists():
            raise CheckpointError(
                f"checkpoint {self._folder} is a folder with other files, such as {min(strangers)}; "
                "give an empty or a new one"
            )
        self._take_lock()
        try:
            self._check_facts()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        handle = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise CheckpointError(
                f"checkpoint {self._folder} is in use by another process; wait for it, or give another folder"
            ) from None
        self._lock = handle

    def _check_facts(self) -> None:
        path = self._folder / _FACTS
        if not path.exists():
            with replacing(path) as file:
                file.write(json.dumps(self._facts, indent=1, sort_keys=True).encode())
            return
        try:
            found = json.loads(path.read_bytes())
            if not isinstance(found, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error}); delete {self._folder} to start over"
            ) from None
        differences = list(_differences(found, self._facts))
        if differences:
            raise CheckpointError(
                f"checkpoint {self._folder} belongs to another training: {'; '.join(differences[:4])}. "
                "Give the same data, parameters and version to continue it, or another folder to start over"
            )
        LOG.info("continuing from the checkpoint %s", self._folder)

    def stage(self, name: str, n_units: int) -> "StageLog":
        """Return the log of a stage."""
        return StageLog(self._folder / f"{name.replace(' ', '-')}.units", n_units)


class StageLog:
    """The results of a stage. Use it in a ``with`` statement, and read `results` before the first `save`."""

    def __init__(self, path: Path, n_units: int) -> None:
        self._path = path
        self._n_units = n_units
        self._handle = -1
        self._end = 0  # end of the last entry whose size is known
        self._begins, self._sizes = np.zeros((2, n_units), np.int64)  # of results
        self._synced = time.monotonic()

    def __enter__(self) -> "StageLog":
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with self._explained():
                os.fsync(self._handle)
        finally:
            os.close(self._handle)

    def results(self) -> Iterator[tuple[int, bytes]]:
        """Yield (unit, result) of each entry that is whole."""
        with open(self._handle, "rb", closefd=False) as file:
            file.seek(0)
            self._end = _HEADER.size
            if file.read(_HEADER.size) != self._header():
                self._end = 0
                return
            while len(head := file.read(_ENTRY.size)) == _ENTRY.size:
                check, unit, size, check_of_result = _ENTRY.unpack(head)
                if check != zlib.crc32(head[4:]) or unit >= self._n_units:
                    break  # the place of the next entry is unknown
                if size > os.fstat(self._handle).st_size - file.tell():
                    break  # a torn write, or damage: nothing is allocated for it
                result = file.read(size)
                if len(result) < size:
                    break
                self._end += _ENTRY.size + size
                if zlib.crc32(result) == check_of_result:
                    self._begins[unit], self._sizes[unit] = self._end - size, size
                    yield unit, result

    @property
    def stored(self) -> Stored:
        """Return where the results are: the descriptor of the open log, and begin and size of each."""
        return self._handle, self._begins, self._sizes

    def save(self, results: Iterable[tuple[int, bytes | memoryview]]) -> None:
        """Append (unit, result) of some units."""
        with self._explained():
            # A torn entry, and all that follows it, is cut off.
            if os.fstat(self._handle).st_size != self._end:
                os.ftruncate(self._handle, self._end)
            if self._end == 0:
                self._append(self._header())
            for unit, result in results:
                checks = _ENTRY.pack(0, unit, len(result), zlib.crc32(result))[4:]
                self._append(struct.pack("<I", zlib.crc32(checks)) + checks, result)
                self._begins[unit], self._sizes[unit] = self._end - len(result), len(result)
            if time.monotonic() - self._synced > _SECONDS_BETWEEN_SYNCS:
                os.fsync(self._handle)
                self._synced = time.monotonic()

    def _header(self) -> bytes:
        check = zlib.crc32(struct.pack("<Q", self._n_units))
        return _HEADER.pack(_MAGIC, check, self._n_units)

    def _append(self, *parts: bytes | memoryview) -> None:
        end = self._end
        for part in parts:
            left = memoryview(part)
            while left:
                written = os.pwrite(self._handle, left, end)
                end, left = end + written, left[written:]
        self._end = end

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}, writing the checkpoint. What is finished is kept: "
                "make room, then give the same command again",
                str(self._path),
            ) from error


def _is_ours(name: str) -> bool:
    return name in (_FACTS, _LOCK) or name.endswith(".units") or name.startswith(".bonsai-")


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield what differs, as "name is …, but was …"."""
    for name in sorted(found.keys() | wanted.keys()):
        there, now = found.get(name), wanted.get(name)
        if isinstance(there, dict) and isinstance(now, dict):
            yield from _differences(there, now, f"{prefix}{name} ")
        elif there != now:
            yield f"{prefix}{name} is {now!r}, but was {there!r}"
