"""The model file as a container: bytes ↔ named arrays and metadata, of any meaning.

A model is one valid `safetensors` container, so that foreign tools can look into it:

    offset 0      u64, little-endian: N, the length of the header in bytes
    offset 8      header: UTF-8 JSON object, padded with spaces so that 8 + N is a multiple of 64
    offset 8 + N  the tensors: raw little-endian values in C order, in the order of the header,
                  contiguous, the last one ending with the file

The header's first key is ``__metadata__`` (text → text, keys sorted); every other key is a tensor with
``dtype``, ``shape`` and ``data_offsets`` (begin and end, counted from 8 + N). Each tensor begins at a
multiple of 64 bytes; the gaps are U8 tensors of zeros named ``pad.0``, ``pad.1``, …, which readers skip.
Each tensor belongs to a section: the part of its name before the first dot. In addition to the caller's
entries the metadata holds

    format          "bonsai-xmc"
    format_version  "3"
    crc32.NAME      CRC-32 (that of zlib) of the bytes of tensor NAME, eight lower-case hexadecimal digits
    crc32.header    CRC-32 of the first 8 + N bytes of the file, in which these eight digits are "00000000"

    requires        JSON list of the sections without which the model cannot be used; unknown
                    sections that are not listed may be skipped

Everything up to here, and the place of these keys, stays the same in every later version: a reader can always
tell a damaged file from one that is too new for it. The checksum of the header is compared before the header
is parsed. Equal metadata and equal arrays in equal order give equal bytes.
"""

import contextlib
import fcntl
import json
import math
import mmap as mapping
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bonsai_xmc._base.arrays import Array
from bonsai_xmc._base.files import PathLike, check_writable, replacing

FORMAT = "bonsai-xmc"
VERSION = 3
OLDEST_READABLE = 3

_ALIGNMENT = 64
_MAX_HEADER = 1 << 24  # bytes; a header takes a few thousand, as names of labels and features are tensors
_MAX_DIMENSIONS = 32
_MAX_BYTES = 1 << 48  # more than any file has; numpy refuses larger shapes even where a zero makes them empty
_HUGE = 1 << 22  # bytes: from this size on, huge pages are requested, as look-ups are spread over the memory
_BLOCK = 1 << 24  # bytes for one checksum or write call: Ctrl-C is answered between blocks

# A quote inside a JSON string is escaped, so these match only the keys.
_HEADER_CRC = re.compile(rb'"crc32\.header":"([0-9a-f]{8})"')
_OURS = b'"format":"bonsai-xmc"'
_RESERVED = ("format", "format_version", "requires")

# No BOOL: a byte other than 0 and 1 would be undefined behaviour in the core. Flags are U8.
_CODES = ("U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64")
_DTYPES = {code: np.dtype(f"<{code[0].lower()}{int(code[1:]) // 8}") for code in _CODES}
_CODE_OF = {dtype: code for code, dtype in _DTYPES.items()}


class FormatError(ValueError):
    """A file is no model, is damaged or truncated, or was made by a newer version; the message says which."""


@dataclass(frozen=True)
class ModelFile:
    """An opened model: read-only views on the file's bytes, which stay in memory while any view exists.

    ``dumps(file.arrays, file.metadata, file.requires)`` gives the bytes of the file again.
    """

    arrays: dict[str, Array]
    metadata: dict[str, str]
    requires: tuple[str, ...]
    version: int
    checksums: dict[str, str]
    source: str


def dumps(
    arrays: Mapping[str, npt.ArrayLike], metadata: Mapping[str, str], requires: Sequence[str] = ()
) -> bytes:
    """Return the bytes of a model file."""
    header, tensors = _layout(arrays, metadata, requires)
    return b"".join([header, *(block for tensor in tensors for block in _blocks(tensor))])


def write(
    path: PathLike,
    arrays: Mapping[str, npt.ArrayLike],
    metadata: Mapping[str, str],
    requires: Sequence[str] = (),
    check: Callable[[str], None] | None = None,
) -> int:
    """Write a model file, whole or not at all (see `replacing`), and return its size in bytes."""
    check_writable(path)
    header, tensors = _layout(arrays, metadata, requires)
    with replacing(path, check) as file:
        file.write(header)
        for tensor in tensors:
            for block in _blocks(tensor):
                file.write(block)
    return len(header) + sum(tensor.nbytes for tensor in tensors)


def read(path: PathLike, *, mmap: bool | str = True, verify_below: int = 1 << 20) -> ModelFile:
    """Open a model file.

    The header and the structure are checked in full, and the checksums of tensors of up to `verify_below`
    bytes; `verify` checks them all.

    Parameters
    ----------
    mmap : True, False or "sealed"
        Map the file, which takes about a millisecond for any size; read it into memory; or read it into
        memory that cannot be changed and that forked processes share (Linux).
    """
    source = os.fspath(path)
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "special file"
        raise FormatError(f"{source} is not a {FORMAT} model: it is a {kind}")
    if not (isinstance(mmap, bool) or (isinstance(mmap, str) and mmap == "sealed")):
        raise ValueError(f"mmap is {mmap!r}, but must be True, False or 'sealed'")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if mmap is not True:
            _check_before_copying(file, source)
        if size == 0:  # which mmap refuses
            buffer: Any = b""
        elif mmap is True:
            buffer = mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_READ)
        else:
            buffer = _in_memory(file, size) if mmap is False else _in_sealed_memory(file)
    return _parse(memoryview(buffer).toreadonly(), source, verify_below)


def _check_before_copying(file: Any, source: str) -> None:
    """Raise the errors of reading a wrong header or length, without the time and memory of a copy."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(8)
    if len(start) == 8 and (length := struct.unpack("<Q", start)[0]) <= _MAX_HEADER:
        start += file.read(length)
    file.seek(0)
    _structure(memoryview(start), size, source)


def _in_memory(file: Any, size: int) -> memoryview:
    """Return a private copy, on pages of its own: tensors keep their alignment."""
    memory = mapping.mmap(-1, size, flags=mapping.MAP_PRIVATE | mapping.MAP_ANONYMOUS)
    if size >= _HUGE and hasattr(mapping, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a hint: a system without huge pages refuses it
            memory.madvise(mapping.MADV_HUGEPAGE)
    view = memoryview(memory)
    done = 0
    while done < size and (n := file.readinto(view[done : done + _BLOCK])):
        done += n
    return view[:done]


def _in_sealed_memory(file: Any) -> Any:
    if not hasattr(os, "memfd_create"):
        raise ValueError('mmap="sealed" needs a system with memfd_create, that is, Linux; use mmap=False')
    handle = os.memfd_create("bonsai-xmc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        while block := file.read(_BLOCK):
            view = memoryview(block)
            while view:
                view = view[os.write(handle, view) :]
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
        if os.fstat(handle).st_size == 0:
            return b""
        return mapping.mmap(handle, 0, flags=mapping.MAP_SHARED, prot=mapping.PROT_READ)
    finally:
        os.close(handle)


def loads(buffer: Any, *, verify_below: int = 1 << 20) -> ModelFile:
    """Open a model that lies in memory (bytes or any other buffer); its arrays are read-only views on it."""
    return _parse(memoryview(buffer).toreadonly().cast("B"), "this buffer", verify_below)


def verify(model: ModelFile | PathLike) -> None:
    """Check the checksums of all tensors; raise `FormatError` naming the first wrong one."""
    file = model if isinstance(model, ModelFile) else read(model, verify_below=0)
    for name in file.arrays:
        _verify_tensor(file, name)


def _layout(
    arrays: Mapping[str, npt.ArrayLike], metadata: Mapping[str, str], requires: Sequence[str]
) -> tuple[bytes, list[Array]]:
    """Return the header (with its length in front), and the tensors that follow it, padding included."""
    entries: dict[str, Any] = {"__metadata__": {}}
    tensors: list[Array] = []
    checksums = {"crc32.header": "0" * 8}
    end = padding = 0
    for name, values in arrays.items():
        tensor = _canonical(name, values)
        if gap := -end % _ALIGNMENT:
            entries[f"pad.{padding}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [end, end + gap]}
            tensors.append(np.zeros(gap, np.uint8))
            end, padding = end + gap, padding + 1
        extent = [end, end + tensor.nbytes]
        entries[name] = {"dtype": _CODE_OF[tensor.dtype], "shape": list(tensor.shape), "data_offsets": extent}
        checksums[f"crc32.{name}"] = _crc32(tensor)
        tensors.append(tensor)
        end += tensor.nbytes
    entries["__metadata__"] = _fields(metadata, checksums, requires)
    return _seal(entries), tensors


def _fields(
    metadata: Mapping[str, str], checksums: Mapping[str, str], requires: Sequence[str]
) -> dict[str, str]:
    for key, text in metadata.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ValueError(f"metadata {key!r}: {text!r} is not text; convert it to a string first")
        if key in _RESERVED or key.startswith("crc32."):
            raise ValueError(f"metadata key {key!r} is reserved for the file format; choose another name")
    fields = {**metadata, **checksums, "format": FORMAT, "format_version": str(VERSION)}
    fields["requires"] = json.dumps(sorted(requires))
    return dict(sorted(fields.items()))


def _seal(entries: dict[str, Any]) -> bytes:
    """Return length and header, padded, with the header's checksum in the place of "00000000"."""
    try:
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"names and metadata of a model must be valid Unicode: {error}") from error
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise ValueError(f"the header would have {len(text):,} bytes, at most {_MAX_HEADER:,} are allowed")
    blank = struct.pack("<Q", len(text)) + text
    place = next(_HEADER_CRC.finditer(blank)).start(1)
    return blank[:place] + b"%08x" % zlib.crc32(blank) + blank[place + 8 :]


def _canonical(name: str, values: npt.ArrayLike) -> Array:
    """Return `values` as a C-contiguous little-endian array, copied only if it is not one."""
    if not isinstance(name, str) or name in ("", "header", "__metadata__") or name.startswith("pad."):
        raise ValueError(f"{name!r} cannot be the name of a tensor; choose another one")
    array = np.asarray(values)
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _CODE_OF:
        known = ", ".join(dtype.name for dtype in _CODE_OF)
        raise ValueError(f"tensor {name!r} has dtype {array.dtype}; a model file holds {known}")
    return np.asarray(array, dtype=dtype, order="C")


def _blocks(tensor: Array) -> Iterator[memoryview]:
    data = tensor.reshape(-1).view(np.uint8).data
    return (data[start : start + _BLOCK] for start in range(0, len(data), _BLOCK))


def _crc32(tensor: Array) -> str:
    crc = 0
    for block in _blocks(tensor):
        crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def _structure(view: memoryview, size: int, source: str) -> tuple[int, dict[str, str], int, "_Extents"]:
    """Return where tensors begin, the metadata, the version and the extents of tensors, all of them checked.

    `view` holds the file, or at least its header; `size` is that of the file.
    """
    # No number of the file is relied on until it is checked.
    header = _read_header(view, size, source)
    entries, fields = _parse_header(header, source)
    version = _read_version(fields["format_version"], source)
    return 8 + len(header), fields, version, _read_extents(8 + len(header), entries, size, source)


def _parse(view: memoryview, source: str, verify_below: int) -> ModelFile:
    base, fields, version, extents = _structure(view, len(view), source)
    arrays = {}
    for name, (dtype, shape, begin) in extents.items():
        arrays[name] = np.ndarray(shape, dtype, view, base + begin)  # read-only, as the view is
        if name.startswith("pad.") and arrays.pop(name).any():
            raise FormatError(f"{source} is damaged: its padding {name!r} is not zero")
    file = ModelFile(
        arrays=arrays,
        metadata={k: v for k, v in fields.items() if k not in _RESERVED and not k.startswith("crc32.")},
        requires=_read_requires(fields.get("requires", "[]"), source),
        version=version,
        checksums={name: fields.get(f"crc32.{name}", "missing") for name in arrays},
        source=source,
    )
    for name, array in arrays.items():
        if array.nbytes <= verify_below:
            _verify_tensor(file, name)
    return file


def _read_header(view: memoryview, size: int, source: str) -> bytes:
    """Return the header's bytes, unparsed, after a check of their checksum."""
    stranger = f"{source} is not a {FORMAT} model: "
    if size < 8:
        raise FormatError(f"{stranger}{size} bytes are too few" if size else f"{stranger}the file is empty")
    (length,) = struct.unpack_from("<Q", view)
    if not 2 <= length <= _MAX_HEADER or bytes(view[8:9]) not in (b"{", b""):
        raise FormatError(f"{stranger}it does not begin like one")
    if size < 8 + length:
        raise FormatError(f"{source} is truncated at byte {size:,}, within the header of {length:,} bytes")
    header = bytes(view[8 : 8 + length])
    if _OURS not in header:
        raise FormatError(f"{stranger}it is a safetensors file of another kind, or none")
    found = _HEADER_CRC.search(header)
    if found is None:
        raise FormatError(f"{source} is damaged: its header has no checksum")
    crc = zlib.crc32(header[: found.start(1)], zlib.crc32(view[:8]))
    crc = zlib.crc32(header[found.end(1) :], zlib.crc32(b"0" * 8, crc))
    if found[1] != b"%08x" % crc:
        raise FormatError(f"{source} is damaged: the checksum of its header does not hold")
    return header


def _parse_header(header: bytes, source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the entries of tensors and the metadata."""
    try:
        entries = json.loads(header.decode(), object_pairs_hook=_unique)
        fields = entries.pop("__metadata__")
        named = fields["format"] == FORMAT
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{source} is damaged: its header is not what was written ({error})") from error
    if not named:
        raise FormatError(f"{source} is not a {FORMAT} model: it is a safetensors file of another kind")
    if not all(isinstance(text, str) for text in fields.values()) or "format_version" not in fields:
        raise FormatError(f"{source} is damaged: its metadata is not text, or has no format version")
    return entries, fields


def _read_requires(text: str, source: str) -> tuple[str, ...]:
    with contextlib.suppress(ValueError, RecursionError):
        sections = json.loads(text)
        if isinstance(sections, list) and all(isinstance(section, str) for section in sections):
            return tuple(sections)
    raise FormatError(f"{source} is damaged: the sections that it requires are {text[:40]!r}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _read_version(text: str, source: str) -> int:
    version = int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0
    if version > VERSION:
        raise FormatError(
            f"{source} was made by a newer bonsai-xmc (format {version}, this version reads "
            f"{OLDEST_READABLE}–{VERSION}): upgrade bonsai-xmc to use it"
        )
    if version < 1:
        raise FormatError(f"{source} is damaged: its format version is {text[:20]!r}")
    if version < OLDEST_READABLE:
        raise FormatError(
            f"{source} has format {version}, which no release has written and this version does not read "
            f"({OLDEST_READABLE}–{VERSION}): train the model again"
        )
    return version


_Extents = dict[str, tuple[np.dtype[Any], tuple[int, ...], int]]


def _read_extents(base: int, entries: dict[str, Any], size: int, source: str) -> _Extents:
    """Return dtype, shape and begin of all tensors, which are proven to fill the file without gaps."""
    parts: _Extents = {}
    end = 0
    for name, entry in entries.items():
        try:
            dtype, shape, begin, stop = _read_entry(entry)
            if begin != end:
                raise ValueError(f"begins at {begin:,} instead of {end:,}")
            if (base + begin) % _ALIGNMENT and not name.startswith("pad."):
                raise ValueError(f"does not begin at a multiple of {_ALIGNMENT} bytes")
        except ValueError as error:
            raise FormatError(f"{source} is damaged: tensor {name!r} {error}") from error
        parts[name] = (dtype, shape, begin)
        end = stop
    if base + end > size:
        raise FormatError(f"{source} is truncated at byte {size:,}: it should have {base + end:,} bytes")
    if base + end < size:
        raise FormatError(f"{source} is damaged: {size - base - end:,} bytes follow the last tensor")
    return parts


def _read_entry(entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Return dtype, shape and extent of a tensor; a ValueError ends a sentence that begins with its name."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError("is not described by dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise ValueError(f"has the unknown dtype {code!r}")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < _MAX_BYTES for n in numbers):
            raise ValueError("has a shape or an extent that is not a list of sizes")
    if len(offsets) != 2 or len(shape) > _MAX_DIMENSIONS or math.prod(filter(None, shape)) > _MAX_BYTES:
        raise ValueError("has an extent without begin and end, or an impossible shape")
    if offsets[1] - offsets[0] != math.prod(shape) * _DTYPES[code].itemsize:
        raise ValueError(f"has {offsets[1] - offsets[0]:,} bytes, which does not fit its dtype and shape")
    return _DTYPES[code], tuple(shape), offsets[0], offsets[1]


def _verify_tensor(file: ModelFile, name: str) -> None:
    if _crc32(file.arrays[name]) != file.checksums[name]:
        raise FormatError(f"{file.source} is damaged: the checksum of tensor {name!r} does not hold")
