"""Read files, decompressed where needed, and write files whole or not at all."""

import bz2
import contextlib
import fcntl
import gzip
import lzma
import os
import re
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import Any, BinaryIO, cast

PathLike = str | os.PathLike[str]

_READERS: dict[str, tuple[bytes, Callable[[Any], Any]]] = {  # by what files begin with
    "gzip": (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    "bzip2": (b"BZh", bz2.BZ2File),
    "xz": (b"\xfd7zXZ\x00", lzma.LZMAFile),
}
_WRITERS: dict[str, Callable[[Any], Any]] = {  # by how names end
    # Neither name nor time inside.
    ".gz": lambda file: gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0),
    ".bz2": lambda file: bz2.BZ2File(file, "wb"),
    ".xz": lambda file: lzma.LZMAFile(file, "wb"),  # noqa: SIM115
}
#: Ends of the names of compressed files.
PACKED = tuple(_WRITERS)
_TEMPORARY = re.compile(r"\.bonsai-[0-9a-f]{16}\.tmp")


@contextlib.contextmanager
def opened(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file to read, decompressed if its content is gzip, bzip2 or xz; ValueError if it is damaged."""
    with open(path, "rb") as raw, decompressed(raw, os.fspath(path)) as file:
        yield file


@contextlib.contextmanager
def decompressed(raw: BufferedReader, name: str) -> Iterator[BinaryIO]:
    """Read the content of an open file, which messages call `name`."""
    start = raw.peek(8)
    kind = next((kind for kind, (magic, _) in _READERS.items() if start.startswith(magic)), None)
    if kind is None:
        yield cast(BinaryIO, raw)
        return
    try:
        with _READERS[kind][1](raw) as file:
            yield cast(BinaryIO, file)
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # gzip and bz2 report damage without a number
            raise
        raise ValueError(f"{name}: damaged {kind} data ({error})") from error


@contextlib.contextmanager
def replacing(path: PathLike, check: Callable[[str], None] | None = None) -> Iterator[BinaryIO]:
    """Open a file to write that appears at `path` when it is complete and on the disk, or not at all.

    It is written beside `path` under a temporary name, synced, checked by `check` (which is called with that
    name and may raise) and renamed. After any failure, an interrupt too, the temporary file is gone and an
    older file at `path` untouched; processes that have mapped the older file keep it. The new file has the
    mode of the old one, and its owner where this process may set it. Temporary files of killed processes
    are removed from the folder.
    """
    target = check_writable(path)
    remove_abandoned(os.path.dirname(target))
    handle, temporary = _create(target)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            _keep_mode_and_owner(handle, target)
            os.fsync(handle)
            if check is not None:
                check(temporary)
            os.replace(temporary, target)  # while the lock is held
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(target))


@contextlib.contextmanager
def replacing_text(path: PathLike) -> Iterator[BinaryIO]:
    """Do as `replacing`, compressed for .gz, .bz2 and .xz; equal content gives equal bytes."""
    compress = _WRITERS.get(os.path.splitext(os.fspath(path))[1], contextlib.nullcontext)
    with replacing(path) as file, compress(file) as packed:
        yield cast(BinaryIO, packed)


def check_writable(path: PathLike) -> str:
    """Raise an error that names `path` if no file could be written there; leave nothing behind.

    Return the place that a write will replace: the path with its symbolic links resolved.
    """
    name = os.fspath(path)
    problem = f"cannot write to {name!r}"
    if not name or "\0" in name:
        raise ValueError(f"{problem}: this is not a file name")
    target = os.path.realpath(name)
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(f"{problem}: there is no folder {os.path.dirname(target)!r}")
    if os.path.isdir(target) or name.endswith(os.sep):
        raise IsADirectoryError(f"{problem}: it names a folder, not a file")
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(f"{problem}: what is there is not a regular file")
    effective = os.access in os.supports_effective_ids
    if os.path.isfile(target) and not os.access(target, os.W_OK, effective_ids=effective):
        raise PermissionError(f"{problem}: the file there is write-protected")
    probe = _temporary_name(target)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.stat(target)  # finds names that the file system does not take
        with open(probe, "xb"):
            pass
    except OSError as error:
        raise type(error)(f"{problem}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(probe)
    return target


def remove_abandoned(folder: str) -> None:
    """Remove the temporary files of processes that have ended.

    A writer holds a lock on its file as soon as the file has its name, and the system releases the lock when
    the process ends. So a file whose lock can be acquired has no writer.
    """
    with contextlib.suppress(OSError):  # a folder that cannot be listed, or a file of another user
        for name in os.listdir(folder):
            if _TEMPORARY.fullmatch(name):
                with contextlib.suppress(OSError), open(os.path.join(folder, name), "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(os.path.join(folder, name))


def _create(target: str) -> tuple[int, str]:
    """Create a locked temporary file; where the target exists, other users cannot read it."""
    mode = 0o600 if os.path.exists(target) else 0o666
    while True:
        temporary = _temporary_name(target)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with contextlib.suppress(
            OSError
        ):  # a file system without locks: no process can lock the file and remove it
            fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(temporary), os.fstat(handle)):
                return handle, temporary
        os.close(handle)  # removed as abandoned before the lock was held: try again


def _keep_mode_and_owner(handle: int, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        old = os.stat(target)
        with contextlib.suppress(PermissionError):
            os.fchown(handle, old.st_uid, old.st_gid)
        os.fchmod(handle, stat.S_IMODE(old.st_mode))  # afterwards: a change of owner may clear bits


def _temporary_name(target: str) -> str:
    # In the same folder: a rename must stay within one file system. Of fixed length: the target's own name
    # may leave no room for a suffix.
    return os.path.join(os.path.dirname(target), f".bonsai-{secrets.token_hex(8)}.tmp")


def _sync_folder(folder: str) -> None:
    # The file is complete and in place already; a file system that cannot sync folders is no reason to fail.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
