"""The model file and other files: content, damage, paths, mapped folders."""

import contextlib
import gzip
import json
import mmap
import os
import stat
import struct
import tempfile
import time
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as safetensors_load

from bonsai_xmc import Bonsai, LabelTree, datasets
from bonsai_xmc._base.files import check_writable, opened, replacing, replacing_text
from bonsai_xmc._cli import main
from bonsai_xmc._data.rows import training_rows
from bonsai_xmc._modelfile import container
from bonsai_xmc._modelfile.container import FormatError, dumps, loads, read, verify, write
from bonsai_xmc.datasets._mapped import read_mapped

# --- modelfile ---


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
    """A file with any header at all, whose header checksum is right."""
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
def test_any_tensors_and_metadata_come_back_from_a_file(shapes, metadata):
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
    start = time.process_time()
    file = read(path)
    assert time.process_time() - start < 0.5  # about a millisecond; reading it would take minutes
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
def test_errors_distinguish_strange_newer_truncated_and_damaged_files(blob, message):
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


def test_a_path_that_cannot_be_written_is_reported_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "_layout", None)  # a call would be a TypeError
    with pytest.raises(FileNotFoundError, match=r"cannot write to '.*nowhere/m': there is no folder"):
        write(tmp_path / "nowhere" / "m", ARRAYS, {})


# --- files ---


def replace_by(path, content=b"new", writer=replacing):
    with writer(path) as file:
        file.write(content)


@contextlib.contextmanager
def without_privileges():
    """Drop the privileges of root for a moment, as file permissions do not bind root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder():
    """A folder that any user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield folder


# Reading


@pytest.mark.parametrize("content", [b"", b"\x1f", b"two\nlines\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_content_decides_what_is_decompressed(tmp_path, content, pack):
    for name in ("plain", "packed.gz"):
        (tmp_path / name).write_bytes(pack(content))
        with opened(tmp_path / name) as file:
            assert file.read() == content


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:-3],
        lambda b: b[:15],
        lambda b: b[:10] + b"\xff\xff" + b[12:],
        lambda b: b[:-8] + bytes(8),
    ],
    ids=["end missing", "middle missing", "broken stream", "wrong checksum"],
)
def test_damaged_gzip_is_an_error_with_the_name(tmp_path, damage):
    (tmp_path / "a.txt").write_bytes(damage(gzip.compress(b"content" * 99)))
    with (
        pytest.raises(ValueError, match=r"a\.txt: damaged gzip data \(.+\)"),
        opened(tmp_path / "a.txt") as file,
    ):
        file.read()


def test_errors_of_the_reading_code_pass_through(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(KeyError), opened(tmp_path / "a"):
        raise KeyError("not ours")


# Writing


def test_the_file_appears_when_it_is_complete(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "a").read_bytes() == b"old"
        assert len(os.listdir(tmp_path)) == 2
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("writer", [replacing, replacing_text])
@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize("failure", [OSError("no space left"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, writer, name, failure, step):
    (tmp_path / name).write_bytes(b"old")

    def fail(*_):
        assert len(os.listdir(tmp_path)) == 2  # the temporary file is there at this moment
        raise failure

    if step != "write":
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(failure)), writer(tmp_path / name) as file:
        file.write(b"new")
        if step == "write":
            fail()
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"old"


def test_data_and_folder_reach_the_disk_in_the_right_order(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else os.fstat(handle).st_size)
        fsync(handle)

    def record_replace(source, target):
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    replace_by(tmp_path / "a", b"12345")
    assert calls == [5, "replace", "folder"]
    calls.clear()
    replace_by(tmp_path / "a.gz", b"12345", replacing_text)
    assert calls == [(tmp_path / "a.gz").stat().st_size, "replace", "folder"]


def test_only_text_is_compressed_and_by_its_name(tmp_path):
    for name in ("a", "a.gz"):
        replace_by(tmp_path / name, b"content", replacing_text)
    assert (tmp_path / "a").read_bytes() == b"content"
    packed = (tmp_path / "a.gz").read_bytes()
    assert gzip.decompress(packed) == b"content"
    assert packed[3] == 0 and packed[4:8] == bytes(4), "no name and no time: equal content, equal bytes"
    replace_by(tmp_path / "a.gz", b"content")
    assert (tmp_path / "a.gz").read_bytes() == b"content"


def test_unicode_and_long_paths_are_written(tmp_path):
    for name in ("模型 – ünïcode", "n" * 255):
        replace_by(tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"new"
    assert len(os.listdir(tmp_path)) == 2


def test_the_file_gets_ordinary_permissions(tmp_path):
    previous = os.umask(0o027)
    try:
        replace_by(tmp_path / "a")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    os.symlink("there/a", tmp_path / "link")
    for content in (b"first", b"second"):
        replace_by(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there" / "a").read_bytes() == content


def test_a_tree_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    tree = LabelTree.from_nested([[0, 1], [2, 3]])
    tree.to_json(tmp_path / "tree.json")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        LabelTree.from_nested([[5]]).to_json(tmp_path / "tree.json")
    assert os.listdir(tmp_path) == ["tree.json"]
    assert LabelTree.from_json(tmp_path / "tree.json") == tree


# Places that cannot be written


def test_check_writable_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "new")
    assert os.listdir(tmp_path) == []
    (tmp_path / "old").write_bytes(b"old")
    check_writable(tmp_path / "old")
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"


@pytest.mark.parametrize("action", [check_writable, replace_by])
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("missing/m", FileNotFoundError, "missing/m': there is no folder '.*missing'"),
        ("a_file/m", FileNotFoundError, "a_file/m': there is no folder"),
        ("a_folder", IsADirectoryError, "a_folder': it names a folder"),
        ("a_folder/", IsADirectoryError, "a_folder/': it names a folder"),
        ("new/", IsADirectoryError, "new/': it names a folder"),
        ("n" * 256, OSError, "nnn': File name too long"),
        ("a_pipe", OSError, "a_pipe': what is there is not a regular file"),
        ("a\0b", ValueError, "not a file name"),
    ],
)
def test_paths_that_cannot_be_written(tmp_path, action, name, error, message):
    (tmp_path / "a_file").write_bytes(b"")
    (tmp_path / "a_folder").mkdir()
    os.mkfifo(tmp_path / "a_pipe")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(error, match=f"cannot write to '.*{message}"):
        action(f"{tmp_path}/{name}")
    assert sorted(os.listdir(tmp_path)) == before


def test_an_empty_path_cannot_be_written():
    with pytest.raises(ValueError, match="'': this is not a file name"):
        check_writable("")


def test_a_folder_without_permission_cannot_be_written(public_folder):
    os.chmod(public_folder, 0o555)
    with without_privileges(), pytest.raises(PermissionError, match="/m': Permission denied"):
        check_writable(f"{public_folder}/m")


def test_a_write_protected_file_is_not_replaced(public_folder):
    path = f"{public_folder}/m"
    with without_privileges():
        replace_by(path)
        os.chmod(path, 0o444)
        with pytest.raises(PermissionError, match="/m': the file there is write-protected"):
            check_writable(path)


# --- mapped ---


@pytest.fixture(scope="module")
def data():
    return datasets.make_xmc(n_rows=200, n_features=80, n_labels=30, random_state=1)


@pytest.fixture
def folder(data, tmp_path):
    datasets.save_mapped(tmp_path / "rows", data.X_train, data.Y_train)
    return tmp_path / "rows"


def is_mapped_array(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def test_what_is_written_is_read(data, folder):
    X, Y = datasets.load_xc(folder)
    assert (data.X_train != X).nnz == 0
    assert (data.Y_train != Y).nnz == 0
    assert X.dtype == Y.dtype == np.float32


def test_arrays_are_mapped_and_not_copied_by_training(folder):
    X, _, _ = read_mapped(folder)
    _, indices, values, _ = training_rows(X, "Bonsai")[0]
    assert is_mapped_array(indices)
    assert is_mapped_array(values)


def test_commands_give_the_same_model(data, tmp_path, capsys):
    datasets.save_xc(tmp_path / "train.txt", data.X_train, data.Y_train)
    assert main(["convert", str(tmp_path / "train.txt"), "-o", str(tmp_path / "rows")]) == 0
    assert "rows: 200 rows, 80 features, 30 labels" in capsys.readouterr().out
    for name in ("train.txt", "rows"):
        model = str(tmp_path / f"{name}.bonsai")
        assert main(["train", "-q", str(tmp_path / name), "-o", model]) == 0
    models = [(tmp_path / f"{name}.bonsai").read_bytes() for name in ("train.txt", "rows")]
    assert models[0] == models[1]
    capsys.readouterr()
    for command in ("predict", "evaluate"):
        printed = []
        for name in ("train.txt", "rows"):
            assert main([command, str(tmp_path / "rows.bonsai"), str(tmp_path / name)]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1] != ""


def test_the_base_of_ids_is_kept(tmp_path):
    (tmp_path / "t.svm").write_text("0 1:1 3:2\n1 2:1\n")
    assert main(["convert", str(tmp_path / "t.svm"), "-o", str(tmp_path / "rows"), "--base", "1", "-q"]) == 0
    assert read_mapped(tmp_path / "rows")[2] == 1
    assert main(["train", "-q", str(tmp_path / "rows"), "-o", str(tmp_path / "m")]) == 0
    assert Bonsai.load(tmp_path / "m").fitted_.id_base == 1


def test_the_folder_must_be_new(data, folder, tmp_path):
    with pytest.raises(ValueError, match="exists already; give a new folder"):
        datasets.save_mapped(folder, data.X_train, data.Y_train)
    (tmp_path / "empty").mkdir()
    datasets.save_mapped(tmp_path / "empty", data.X_train, data.Y_train)
    with pytest.raises(ValueError, match="X has 200 rows, but Y has 5"):
        datasets.save_mapped(tmp_path / "other", data.X_train, data.Y_train[:5])


def test_a_failure_leaves_nothing(data, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        datasets.save_mapped(tmp_path / "rows", data.X_train, data.Y_train)
    assert os.listdir(tmp_path) == []


def changed(folder, **values):
    path = folder / "rows.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def with_header(path, text):
    data = path.read_bytes()
    path.write_bytes(data[:10] + text.encode().ljust(117) + b"\n" + data[128:])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "indices.npy").unlink(), "is not complete: indices.npy is missing"),
        (lambda f: (f / "rows.json").write_text("{"), "rows.json is damaged"),
        (lambda f: changed(f, format="x"), "does not describe a folder of rows"),
        (lambda f: changed(f, n_rows=-1), "must be integers from 0"),
        (lambda f: changed(f, n_rows=7), "does not divide"),
        (lambda f: changed(f, n_features=2), "not from 0 to 1"),
        (lambda f: changed(f, id_base=3), "id_base is 3"),
        (lambda f: np.save(f / "values.npy", np.zeros(3, np.float32)), "3 values for"),
        (lambda f: np.save(f / "values.npy", np.zeros(3)), "is not an array of float32"),
        (lambda f: (f / "values.npy").write_bytes(b"no array" * 40), "values.npy is damaged"),
        (lambda f: os.truncate(f / "indices.npy", 300), "indices.npy is damaged"),
        (lambda f: with_header(f / "values.npy", "{'descr': '<f4', 'x': ("), "values.npy is damaged"),
    ],
)
def test_damaged_folders_of_rows_are_rejected(folder, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        datasets.load_xc(folder)


def test_another_number_of_columns_is_refused(folder):
    with pytest.raises(ValueError, match="80 features instead of 7"):
        datasets.load_xc(folder, n_features=7)
