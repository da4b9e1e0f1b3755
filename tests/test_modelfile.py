"""The model file: exact bytes, foreign readers, hostile bytes, and writes that happen whole or not at all."""

import json
import mmap
import os
import struct
import time
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as safetensors_load

from bonsai_xmc._modelfile import container
from bonsai_xmc._modelfile.container import FormatError, dumps, loads, read, verify, write

DTYPES = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]
ARRAYS = {"ids": np.array([3, 1, 2], "<i4"), "weights": np.array([[0.5, -1.0], [2.0, 0.25]], "<f4")}
METADATA = {"params": '{"C": 1.0}', "made": "für dich"}


def assert_equal(arrays, expected):
    assert list(arrays) == list(expected)
    for name, array in arrays.items():
        assert array.dtype == np.asarray(expected[name]).dtype, name
        assert array.shape == np.asarray(expected[name]).shape, name
        np.testing.assert_array_equal(array, expected[name])


def forge(entries=None, *, fields=None, header=None, data=b"", pad=True):
    """A file with any header at all, whose header checksum nevertheless holds."""
    if header is None:
        metadata = {"crc32.header": "0" * 8, "format": "bonsai-xmc", "format_version": "3", **(fields or {})}
        metadata = {key: text for key, text in metadata.items() if text is not None}
        header = json.dumps({"__metadata__": metadata, **(entries or {})}, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 64) if pad else b""
    blank = struct.pack("<Q", len(header)) + header
    digits = b"%08x" % zlib.crc32(blank)
    return blank.replace(b'"crc32.header":"00000000"', b'"crc32.header":"%s"' % digits) + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


# What is written


def test_bytes_of_a_tiny_model():
    made = dumps({"a": np.array([1, -2], "<i2"), "b": np.array([0.5], "<f4")}, {"note": "hi"}, ["a"])
    text = (
        b'{"__metadata__":{"crc32.a":"%08x","crc32.b":"%08x","crc32.header":"00000000",'
        b'"format":"bonsai-xmc","format_version":"3","note":"hi","requires":"[\\"a\\"]"},'
        b'"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},'
        b'"pad.0":{"dtype":"U8","shape":[60],"data_offsets":[4,64]},'
        b'"b":{"dtype":"F32","shape":[1],"data_offsets":[64,68]}}'
    ) % (zlib.crc32(b"\x01\x00\xfe\xff"), zlib.crc32(b"\x00\x00\x00\x3f"))
    text += b" " * (376 - len(text))  # 8 + 376 = 6 · 64
    blank = b"\x78\x01" + b"\0" * 6 + text
    header = blank.replace(b'r":"00000000"', b'r":"%08x"' % zlib.crc32(blank))
    assert made == header + b"\x01\x00\xfe\xff" + b"\0" * 60 + b"\x00\x00\x00\x3f"


def test_the_checksum_of_the_documented_test_vector():
    # CRC-32 of "123456789" is published as cbf43926: pins which CRC the format means.
    file = loads(dumps({"x": np.frombuffer(b"123456789", np.uint8)}, {}))
    assert file.checksums == {"x": "cbf43926"}


def test_safetensors_reads_what_we_write():
    arrays = {name: np.arange(n, dtype=name) for n, name in enumerate(DTYPES, 1)} | ARRAYS
    theirs = safetensors_load(dumps(arrays, METADATA))
    ours = {name: array for name, array in theirs.items() if not name.startswith("pad.")}
    assert_equal({name: ours[name] for name in arrays}, arrays)
    assert len(ours) == len(arrays)


def test_tensors_are_aligned_and_the_padding_is_minimal():
    blob = dumps({f"t{n}": np.ones(n, np.uint8) for n in (1, 63, 64, 65, 0, 128, 7)}, {})
    (length,) = struct.unpack_from("<Q", blob)
    assert (8 + length) % 64 == 0
    header = json.loads(blob[8 : 8 + length])
    header.pop("__metadata__")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert end - begin < 64 if name.startswith("pad.") else begin % 64 == 0
    assert [name for name in header if name.startswith("pad.")] == ["pad.0", "pad.1", "pad.2"]


def test_equal_models_give_equal_bytes_whatever_their_memory_looks_like():
    base = np.arange(12, dtype="<i4").reshape(3, 4)
    blob = dumps({"x": base}, {"b": "2", "a": "1"})
    assert dumps({"x": np.asfortranarray(base)}, {"a": "1", "b": "2"}) == blob
    assert dumps({"x": np.repeat(base, 2, axis=1)[:, ::2]}, {"a": "1", "b": "2"}) == blob
    assert dumps({"x": base.astype(">i4")}, {"a": "1", "b": "2"}) == blob


def test_reading_and_writing_again_gives_the_same_bytes():
    blob = dumps(ARRAYS, METADATA)
    file = loads(blob)
    assert dumps(file.arrays, file.metadata) == blob


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
            lambda name: name not in ("header", "__metadata__") and not name.startswith("pad.")
        ),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=4)),
        max_size=5,
    ),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])).filter(
            lambda key: key not in ("format", "format_version", "requires") and not key.startswith("crc32.")
        ),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
)
@example({}, {'"crc32.header":"': '"crc32.header":"00000000"'})
def test_round_trip(shapes, metadata):
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 100, shape).astype(dtype) for name, (dtype, shape) in shapes.items()}
    blob = dumps(arrays, metadata)
    file = loads(blob)
    verify(file)
    assert_equal(file.arrays, arrays)
    assert file.metadata == metadata
    assert file.version == 3
    assert {name for name in safetensors_load(blob) if not name.startswith("pad.")} == set(arrays)


@pytest.mark.parametrize(
    ("arrays", "metadata", "message"),
    [
        ({"flags": np.zeros(3, bool)}, {}, "'flags' has dtype bool; a model file holds uint8"),
        ({"x": np.array(["a"])}, {}, "'x' has dtype"),
        ({"x": np.array([object()])}, {}, "'x' has dtype object"),
        ({"x": np.zeros(2, complex)}, {}, "'x' has dtype complex128"),
        ({"pad.0": np.zeros(2)}, {}, "'pad.0' cannot be the name"),
        ({"header": np.zeros(2)}, {}, "'header' cannot be the name"),
        ({"": np.zeros(2)}, {}, "'' cannot be the name"),
        ({"__metadata__": np.zeros(2)}, {}, "'__metadata__' cannot be the name"),
        ({}, {"format": "x"}, "'format' is reserved"),
        ({}, {"format_version": "x"}, "'format_version' is reserved"),
        ({}, {"requires": "[]"}, "'requires' is reserved"),
        ({}, {"crc32.x": "x"}, "'crc32.x' is reserved"),
        ({}, {"n": 3}, "'n': 3 is not text"),
        ({}, {3: "n"}, "3: 'n' is not text"),
        ({}, {"n": "\ud800"}, "valid Unicode"),
    ],
)
def test_what_cannot_be_written(arrays, metadata, message):
    with pytest.raises(ValueError, match=message):
        dumps(arrays, metadata)


def test_a_header_that_no_reader_would_take_is_not_written(monkeypatch):
    monkeypatch.setattr(container, "_MAX_HEADER", 1000)
    loads(dumps({}, {"n": "x" * 500}))
    with pytest.raises(ValueError, match="header would have 1,016 bytes, at most 1,000 are allowed"):
        dumps({}, {"n": "x" * 900})


# What is read


def test_arrays_are_read_only_views_on_the_mapped_file(tmp_path):
    path = tmp_path / "m.bonsai"
    size = write(path, ARRAYS, METADATA)
    assert size == path.stat().st_size
    file = read(path)
    assert_equal(file.arrays, ARRAYS)
    assert file.metadata == METADATA
    for array in file.arrays.values():
        base = array
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)
        assert array.ctypes.data % 64 == 0
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_arrays_of_a_writable_buffer_are_read_only_views_too():
    buffer = bytearray(dumps(ARRAYS, METADATA))
    file = loads(buffer)
    with pytest.raises(ValueError, match="read-only"):
        file.arrays["ids"][0] = 0
    buffer[buffer.index(np.array([3, 1, 2], "<i4").tobytes())] = 9
    assert file.arrays["ids"][0] == 9


def test_views_outlive_the_file_object_and_its_replacement(tmp_path):
    path = tmp_path / "m.bonsai"
    write(path, {"x": np.arange(100_000)}, {})
    old = read(path).arrays["x"]
    write(path, {"x": np.zeros(10)}, {})
    path.unlink()
    np.testing.assert_array_equal(old, np.arange(100_000))


def test_opening_a_large_file_does_not_read_it(tmp_path):
    path = tmp_path / "large.bonsai"
    entries = {"x": tensor("F32", (1 << 34,), (0, 1 << 36))}
    header = forge(entries, fields={"crc32.x": "00000000"})
    path.write_bytes(header)
    os.truncate(path, len(header) + (1 << 36))  # 64 GiB, sparse: takes no room on the disk
    start = time.perf_counter()
    file = read(path)
    assert time.perf_counter() - start < 0.5  # about a millisecond; reading it would take minutes
    assert file.arrays["x"].shape == (1 << 34,)


def test_small_tensors_are_verified_when_they_are_read_large_ones_on_demand(tmp_path):
    path = tmp_path / "m.bonsai"
    write(path, {"small": np.arange(10), "large": np.arange((1 << 17) + 1)}, {})
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(blob)
    file = read(path)
    assert_equal({"small": file.arrays["small"]}, {"small": np.arange(10)})
    for damaged in (file, path, os.fspath(path)):
        with pytest.raises(FormatError, match=r"m\.bonsai is damaged: the checksum of tensor 'large'"):
            verify(damaged)
    with pytest.raises(FormatError, match="tensor 'large'"):
        read(path, verify_below=1 << 21)
    blob[blob.index(np.arange(10).tobytes())] ^= 1
    with pytest.raises(FormatError, match="tensor 'small'"):
        loads(blob)


def test_truncation_at_every_byte():
    blob = dumps(ARRAYS, METADATA)
    for size in range(len(blob)):
        with pytest.raises(FormatError) as caught:
            loads(blob[:size])
        assert size < 8 or f"truncated at byte {size:,}" in str(caught.value)


def test_any_single_changed_byte_is_found():
    blob = dumps(ARRAYS, METADATA)
    for place in range(len(blob)):
        for flip in (0x01, 0x20, 0x80, 0xFF):
            damaged = bytearray(blob)
            damaged[place] ^= flip
            with pytest.raises(FormatError):
                verify(loads(damaged, verify_below=-1))


@given(st.binary(max_size=300))
@example(struct.pack("<Q", 2) + b"{}")
@example(struct.pack("<Q", 2) + b"[]")
@example(struct.pack("<Q", 1 << 63) + b"{}")
@example(struct.pack("<Q", 99_999) + b"[" * 99_999)
@example(struct.pack("<Q", 99_999) + b'{"a":' + b"[" * 99_994)
def test_random_bytes_are_no_model(blob):
    with pytest.raises(FormatError):
        loads(blob)
    with pytest.raises(FormatError):
        loads(struct.pack("<Q", len(blob)) + blob)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1 << 70) | st.floats() | st.sampled_from(["U8", "F64", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["x", "y", "pad.0"]),
        json_values
        | st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["U8", "F64", "BOOL", 1]),
                "shape": st.lists(
                    st.sampled_from([0, 1, 2, 64, 1 << 47, 1 << 63, -1, 1.5, True]), max_size=3
                ),
                "data_offsets": st.lists(st.sampled_from([0, 1, 8, 16, 64, 1 << 62, -8, 0.0]), max_size=3),
            }
        ),
        max_size=3,
    ),
    st.integers(0, 130),
)
def test_hostile_headers_with_valid_checksums_give_arrays_inside_the_file_or_an_error(entries, size):
    checksums = {f"crc32.{name}": f"{zlib.crc32(bytes(size)):08x}" for name in entries}
    try:
        file = loads(forge(entries, fields=checksums, data=bytes(size)))
    except FormatError:
        return
    assert sum(array.nbytes for array in file.arrays.values()) <= size
    for array in file.arrays.values():
        assert not array.any()


TINY = {"x": tensor()}
CRC = {"crc32.x": f"{zlib.crc32(b'abcd'):08x}"}


def test_a_forged_file_is_read_if_nothing_is_wrong_with_it():
    assert loads(forge(TINY, fields=CRC, data=b"abcd")).arrays["x"].tobytes() == b"abcd"


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        # no model at all
        (b"", "^this buffer is not a bonsai-xmc model: the file is empty"),
        (b"abc", "is not a bonsai-xmc model: 3 bytes are too few"),
        (b"PK\x03\x04" + b"\0" * 60, "is not a bonsai-xmc model: it does not begin like one"),
        (struct.pack("<Q", (1 << 24) + 1) + b"{", "is not a bonsai-xmc model: it does not begin"),
        (struct.pack("<Q", 1) + b"{", "is not a bonsai-xmc model: it does not begin"),
        (
            struct.pack("<Q", 4) + b"{\xff\xff}",
            "is not a bonsai-xmc model: it is a safetensors file of another kind, or none",
        ),
        (
            struct.pack("<Q", 2) + b"{}",
            "is not a bonsai-xmc model: it is a safetensors file of another kind, or none",
        ),
        (
            forge(TINY, fields={"format": None}),
            "is not a bonsai-xmc model: it is a safetensors file of another kind, or none",
        ),
        (
            forge(TINY, fields={"format": "pt"}),
            "is not a bonsai-xmc model: it is a safetensors file of another",
        ),
        # a newer version, whatever else has changed in it
        (
            forge({"x": {"codec": "zip"}}, fields={"format_version": "4"}),
            r"^this buffer was made by a newer bonsai-xmc \(format 4, this version reads 3–3\): upgrade",
        ),
        # truncated
        (struct.pack("<Q", 64) + b"{", "is truncated at byte 9, within the header of 64 bytes"),
        (forge(TINY, fields=CRC, data=b"abc"), r"is truncated at byte 195: it should have 196 bytes"),
        # damaged
        (
            forge(header=b'{"__metadata__":{"crc32.header":"00000000","format":"bonsai-xmc"'),
            r"is damaged: its header is not what was written \(Exp",
        ),
        (
            forge(
                header=b'{"__metadata__":{"crc32.header":"00000000","format":"bonsai-xmc"},"__metadata__":{}}'
            ),
            r"is damaged: its header is not what was written \(a key occurs twice\)",
        ),
        (
            forge(fields={"format_version": None}),
            "is damaged: its metadata is not text, or has no format version",
        ),
        (forge(fields={"note": 3}), "is damaged: its metadata is not text"),
        (forge(fields={"format_version": "2"}), "has format 2, which no release has written"),
        (forge(fields={"requires": "trees"}), "is damaged: the sections that it requires are 'trees'"),
        (forge(fields={"requires": "[1]"}), "is damaged: the sections that it requires are"),
        (forge(fields={"format_version": "0"}), "is damaged: its format version is '0'"),
        (forge(fields={"format_version": "one"}), "is damaged: its format version is 'one'"),
        (forge(fields={"format_version": "9" * 5000}), "is damaged: its format version is '9999"),
        (forge(fields={"crc32.header": None}), "is damaged: its header has no checksum"),
        (forge(fields={"crc32.header": "12345678"}), "is damaged: the checksum of its header does not hold"),
        (forge(TINY, fields=CRC, data=b"abcde"), "is damaged: 1 bytes follow the last tensor"),
        (forge(TINY, data=b"abcd"), "is damaged: the checksum of tensor 'x' does not hold"),
        (forge(TINY, fields=CRC, data=b"abcD"), "is damaged: the checksum of tensor 'x' does not hold"),
        (forge(TINY, fields=CRC, data=b"abcd", pad=False), "'x' does not begin at a multiple of 64 bytes"),
        (forge({"pad.0": tensor()}, data=b"\0\0\1\0"), "is damaged: its padding 'pad.0' is not zero"),
        (forge({"x": 3}), "tensor 'x' is not described by dtype, shape and data_offsets"),
        (forge({"x": {**tensor(), "strides": []}}), "tensor 'x' is not described by dtype"),
        (forge({"x": tensor("BOOL")}), "tensor 'x' has the unknown dtype 'BOOL'"),
        (forge({"x": tensor(["U8"])}), "tensor 'x' has the unknown dtype"),
        (
            forge({"x": tensor(shape=(-4,))}),
            "tensor 'x' has a shape or an extent that is not a list of sizes",
        ),
        (forge({"x": tensor(shape=(True,), offsets=(0, 1))}), "tensor 'x' has a shape or an extent"),
        (forge({"x": tensor(shape=(1 << 64,))}), "tensor 'x' has a shape or an extent"),
        (forge({"x": {**tensor(), "shape": {}}}), "tensor 'x' has a shape or an extent"),
        (forge({"x": tensor(offsets=(0, 2, 4))}), "tensor 'x' has an extent without begin and end"),
        (forge({"x": tensor(shape=(1,) * 33, offsets=(0, 1))}), "or an impossible shape"),
        (forge({"x": tensor(shape=(0, 1 << 47, 1 << 47), offsets=(0, 0))}), "or an impossible shape"),
        (forge({"x": tensor("F64", offsets=(0, 31))}), "tensor 'x' has 31 bytes, which does not fit"),
        (forge({"x": tensor(offsets=(4, 0))}), "tensor 'x' has -4 bytes, which does not fit"),
        (forge({"x": tensor(offsets=(64, 68))}), "tensor 'x' begins at 64 instead of 0"),
        (forge({"x": tensor(), "y": tensor()}), "tensor 'y' begins at 0 instead of 4"),
    ],
)
def test_errors_tell_strangers_newer_truncated_and_damaged_files_apart(blob, message):
    with pytest.raises(FormatError, match=message):
        loads(blob)


def test_errors_of_read_name_the_path(tmp_path):
    path = tmp_path / "mödel.bonsai"
    with pytest.raises(FileNotFoundError, match=r"mödel\.bonsai"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(FormatError, match=r"mödel\.bonsai is not a bonsai-xmc model: the file is empty"):
        read(path)
    with pytest.raises(FormatError, match=r"is not a bonsai-xmc model: it is a folder"):
        read(tmp_path)
    with pytest.raises(FormatError, match=r"/dev/null is not a bonsai-xmc model: it is a special file"):
        read("/dev/null")


# How it is written


def test_unicode_and_long_paths(tmp_path):
    for name in ("模型 – ünïcode.bonsai", "n" * 255):
        write(tmp_path / name, ARRAYS, METADATA)
        assert_equal(read(tmp_path / name).arrays, ARRAYS)
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("failure", [OSError("no space left"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("step", ["fsync", "replace", "block"])
def test_a_failed_write_leaves_the_old_model_and_nothing_else(tmp_path, monkeypatch, failure, step):
    path = tmp_path / "m.bonsai"
    write(path, ARRAYS, METADATA)
    before = path.read_bytes()

    def fail(*_):
        assert len(os.listdir(tmp_path)) == 2  # the temporary file is there at this moment
        raise failure

    def fail_in_the_middle(tensor, blocks=container._blocks):
        yield from blocks(tensor)
        if os.listdir(tmp_path) != ["m.bonsai"]:  # writing, not computing checksums
            fail()

    if step == "block":
        monkeypatch.setattr(container, "_blocks", fail_in_the_middle)
    else:
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(failure)):
        write(path, {"x": np.arange(1000)}, {})
    assert os.listdir(tmp_path) == ["m.bonsai"]
    assert path.read_bytes() == before


def test_bad_content_is_found_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="dtype object"):
        write(tmp_path / "m", {"x": np.array([None])}, {})
    assert os.listdir(tmp_path) == []


def test_a_path_that_cannot_be_written_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "_layout", None)  # a call would be a TypeError
    with pytest.raises(FileNotFoundError, match=r"cannot write to '.*nowhere/m': there is no folder"):
        write(tmp_path / "nowhere" / "m", ARRAYS, {})
