"""Files are read through gzip, and written whole or not at all."""

import contextlib
import gzip
import os
import stat
import tempfile

import pytest

from bonsai_xmc import LabelTree
from bonsai_xmc._base.files import check_writable, opened, replacing, replacing_text


def write(path, content=b"new", writer=replacing):
    with writer(path) as file:
        file.write(content)


@contextlib.contextmanager
def without_privileges():
    """File permissions bind everybody but root, so root steps down for a moment."""
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
    """A folder that any user reaches, unlike pytest's own."""
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


def test_errors_of_whoever_reads_pass_through(tmp_path):
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
    write(tmp_path / "a", b"12345")
    assert calls == [5, "replace", "folder"]
    calls.clear()
    write(tmp_path / "a.gz", b"12345", replacing_text)
    assert calls == [(tmp_path / "a.gz").stat().st_size, "replace", "folder"]


def test_only_text_is_compressed_and_by_its_name(tmp_path):
    for name in ("a", "a.gz"):
        write(tmp_path / name, b"content", replacing_text)
    assert (tmp_path / "a").read_bytes() == b"content"
    packed = (tmp_path / "a.gz").read_bytes()
    assert gzip.decompress(packed) == b"content"
    assert packed[3] == 0 and packed[4:8] == bytes(4), "no name and no time: equal content, equal bytes"
    write(tmp_path / "a.gz", b"content")
    assert (tmp_path / "a.gz").read_bytes() == b"content"


def test_unicode_and_long_paths(tmp_path):
    for name in ("模型 – ünïcode", "n" * 255):
        write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"new"
    assert len(os.listdir(tmp_path)) == 2


def test_the_file_gets_ordinary_permissions(tmp_path):
    previous = os.umask(0o027)
    try:
        write(tmp_path / "a")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    os.symlink("there/a", tmp_path / "link")
    for content in (b"first", b"second"):
        write(tmp_path / "link", content)
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


@pytest.mark.parametrize("action", [check_writable, write])
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
        write(path)
        os.chmod(path, 0o444)
        with pytest.raises(PermissionError, match="/m': the file there is write-protected"):
            check_writable(path)
