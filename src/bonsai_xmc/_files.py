"""Files as everything here reads and writes them: through gzip, and written whole or not at all."""

import contextlib
import gzip
import os
import secrets
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

PathLike = str | os.PathLike[str]

_GZIP = b"\x1f\x8b"


@contextlib.contextmanager
def opened(path: PathLike) -> Iterator[BinaryIO]:
    """A file to read, decompressed if its content is gzip; damage to that is a ValueError with the name."""
    with open(path, "rb") as raw:
        packed = raw.peek(len(_GZIP)).startswith(_GZIP)
        try:
            with gzip.GzipFile(fileobj=raw) if packed else raw as file:
                yield cast(BinaryIO, file)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{os.fspath(path)}: damaged gzip data ({error})") from error


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """A file to write that appears at `path` when it is complete and on the disk, or not at all.

    It is written beside `path` under a temporary name, synced and renamed. After any failure, an interrupt
    too, the temporary file is gone and an older file at `path` untouched; who has that one mapped keeps it.
    """
    target = check_writable(path)
    temporary = _temporary_name(target)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(target))


@contextlib.contextmanager
def replacing_text(path: PathLike) -> Iterator[BinaryIO]:
    """`replacing`, compressed where the name ends in ``.gz``; equal content gives equal bytes."""
    with replacing(path) as file:
        if not os.fspath(path).endswith(".gz"):
            yield file
            return
        # Neither name nor time inside.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed:
            yield cast(BinaryIO, packed)


def check_writable(path: PathLike) -> str:
    """Raise an error that names `path` if no file could be written there; leaves nothing behind.

    Returns the place that a write will replace: the path with its symbolic links resolved.
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
