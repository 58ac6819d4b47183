from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from opensesh.errors import WriteError
from opensesh.storage.disk import Disk

from ..harness import FullDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_file_is_replaced_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "record.json"
    for data in (b"one", b"", b"x" * 3_000_000, b"two"):
        Disk().replace(str(path), data)
        assert path.read_bytes() == data
        assert os.listdir(path.parent) == ["record.json"]


def test_pieces_are_written_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    Disk().replace(str(path), iter([b"one ", b"", b"two"]))
    assert path.read_bytes() == b"one two"


def test_a_value_that_breaks_while_it_is_written_leaves_the_old_file_and_no_trace(tmp_path: Path) -> None:
    def breaking() -> Iterator[bytes]:
        yield b"half of it"
        raise RuntimeError("broken")

    path = tmp_path / "record.json"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        Disk().replace(str(path), breaking())
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["record.json"])


@pytest.mark.skipif(sys.platform == "win32", reason="modes are a matter of POSIX")
def test_files_and_folders_are_the_owners_alone(tmp_path: Path) -> None:
    Disk().replace(str(tmp_path / "a" / "b" / "record.json"), b"{}")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b" / "record.json").stat().st_mode) == 0o600


class Recording(Disk):
    def __init__(self, *, durable: bool = True) -> None:
        super().__init__(durable=durable)
        self.calls: list[str] = []

    def open_new(self, path: str) -> int:
        self.calls.append(f"open {os.path.basename(path)[:8]}")
        return super().open_new(path)

    def write(self, descriptor: int, data: bytes) -> None:
        self.calls.append(f"write {len(data)}")
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self.calls.append("sync")
        super().sync(descriptor)

    def rename(self, old: str, new: str) -> None:
        self.calls.append(f"rename to {os.path.basename(new)}")
        super().rename(old, new)

    def sync_folder(self, folder: str) -> None:
        self.calls.append(f"sync {os.path.basename(folder)}")
        super().sync_folder(folder)

    def unlink(self, path: str) -> None:
        self.calls.append(f"unlink {os.path.basename(path)}")
        super().unlink(path)


def test_the_bytes_are_on_the_disk_before_their_name_is(tmp_path: Path) -> None:
    disk = Recording()
    disk.replace(str(tmp_path / "r.json"), b"12345")
    assert disk.calls == ["open .r.json.", "write 5", "sync", "rename to r.json", f"sync {tmp_path.name}"]


def test_relaxed_writing_waits_for_nothing(tmp_path: Path) -> None:
    disk = Recording(durable=False)
    disk.make_folder(str(tmp_path / "new"))
    disk.replace(str(tmp_path / "new" / "r.json"), b"12345")
    assert disk.calls == ["open .r.json.", "write 5", "rename to r.json"]
    disk.remove(str(tmp_path / "new" / "r.json"))
    assert disk.calls[3:] == ["unlink r.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="folders are not synchronised there")
def test_the_system_is_asked_to_keep_both_the_file_and_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    fsync = os.fsync

    def keep(descriptor: int) -> None:
        kept.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", keep)
    Disk().replace(str(tmp_path / "r.json"), b"12345")
    assert kept == [(tmp_path / "r.json").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.skipif(sys.platform == "win32", reason="folders are not synchronised there")
def test_a_file_system_that_keeps_no_names_is_put_up_with_but_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, number = tmp_path / "r.json", errno.EINVAL

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse_folders)
    for harmless in (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM):
        number = harmless
        Disk().replace(str(path), b"12345")
    number = errno.EIO
    with pytest.raises(WriteError, match="could not be written") as failure:
        Disk().replace(str(path), b"67890")
    assert failure.value.data == {"path": str(path), "errno": errno.EIO}


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="counts what the system lists there")
def test_nothing_stays_open_whether_a_write_succeeds_or_not(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "r.json")
    Disk().replace(path, b"first")
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        Disk().replace(path, b"again")
        with pytest.raises(WriteError):
            Failing("write", OSError(errno.ENOSPC, "No space")).replace(path, b"never")
    assert len(os.listdir("/dev/fd")) == before


def test_a_new_folder_is_made_durable_in_the_one_above(tmp_path: Path) -> None:
    disk = Recording()
    disk.make_folder(str(tmp_path / "a" / "b"))
    assert disk.calls == [f"sync {tmp_path.name}", "sync a"]


def test_removing_is_durable_and_removing_nothing_is_not_an_error(tmp_path: Path) -> None:
    disk = Recording()
    (tmp_path / "r.json").write_bytes(b"")
    disk.remove(str(tmp_path / "r.json"))
    disk.remove(str(tmp_path / "r.json"))
    disk.remove(str(tmp_path / "no" / "such" / "folder"))
    assert disk.calls[:2] == ["unlink r.json", f"sync {tmp_path.name}"]
    assert os.listdir(tmp_path) == []


def test_only_an_empty_folder_is_removed(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for name in ("full", "empty", "none"):
        Disk().remove_empty(str(tmp_path / name))
    assert os.listdir(tmp_path) == ["full"]


class Failing(Disk):
    def __init__(self, operation: str, error: BaseException) -> None:
        super().__init__()
        self.operation = operation
        self.error = error

    def _fail(self, operation: str) -> None:
        if operation == self.operation:
            raise self.error

    def write(self, descriptor: int, data: bytes) -> None:
        super().write(descriptor, data[:2])
        self._fail("write")
        super().write(descriptor, data[2:])

    def sync(self, descriptor: int) -> None:
        self._fail("sync")

    def rename(self, old: str, new: str) -> None:
        self._fail("rename")
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        if self.operation == "unlink" and not os.path.basename(path).startswith("."):
            raise self.error
        super().unlink(path)

    def new_folder(self, folder: str) -> None:
        self._fail("new_folder")
        super().new_folder(folder)


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES])
def test_a_refused_write_leaves_the_old_file_and_no_litter(tmp_path: Path, operation: str, number: int) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    with pytest.raises(WriteError) as failure:
        Failing(operation, OSError(number, os.strerror(number))).replace(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["r.json"]
    assert failure.value.data == {"path": str(path), "errno": number}
    assert str(failure.value).startswith(f"{path}: ")


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_an_interrupted_write_leaves_the_old_file_and_no_litter(tmp_path: Path, operation: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        Failing(operation, KeyboardInterrupt()).replace(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_every_refusal_says_what_to_do(tmp_path: Path) -> None:
    path = str(tmp_path / "r.json")
    with pytest.raises(WriteError, match="the disk is full; what was stored before is unharmed"):
        Failing("write", OSError(errno.ENOSPC, "No space")).replace(path, b"new")
    with pytest.raises(WriteError, match="not allowed to write here"):
        Failing("rename", OSError(errno.EACCES, "Permission denied")).replace(path, b"new")
    with pytest.raises(WriteError, match=r"not allowed to write here \(Not permitted\)") as failure:
        Failing("unlink", OSError(errno.EPERM, "Not permitted")).remove(path)
    assert failure.value.data == {"path": path, "errno": errno.EPERM}
    with pytest.raises(WriteError, match="could not be written: Input/output error") as failure:
        Failing("new_folder", OSError(errno.EIO, "Input/output error")).make_folder(str(tmp_path / "a"))
    assert failure.value.data == {"path": str(tmp_path / "a"), "errno": errno.EIO}


def test_a_file_where_a_folder_should_be_is_a_refused_write(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"not a folder")
    with pytest.raises(WriteError):
        Disk().replace(str(tmp_path / "a" / "r.json"), b"new")
    with pytest.raises(WriteError):
        Disk().make_folder(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a").read_bytes() == b"not a folder"


class Vanishing(Disk):
    """A neighbour removes the folder, which it finds empty, just before a file is made in it."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def open_new(self, path: str) -> int:
        if self.times and os.path.isdir(os.path.dirname(path)):
            self.times -= 1
            os.rmdir(os.path.dirname(path))
        return super().open_new(path)


def test_a_folder_that_vanishes_meanwhile_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "r.json"
    Vanishing(3).replace(str(path), b"new")
    assert path.read_bytes() == b"new"


class Overtaken(Disk):
    """A neighbour removes the folder, which is empty now, before its names are on the disk."""

    def unlink(self, path: str) -> None:
        super().unlink(path)
        os.rmdir(os.path.dirname(path))


def test_a_folder_that_vanishes_with_its_last_file_is_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a" / "r.json"
    Disk().replace(str(path), b"")
    Overtaken().remove(str(path))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("late", [False, True])
def test_a_full_disk_keeps_what_it_had_and_works_again_with_space(tmp_path: Path, late: bool) -> None:
    disk = FullDisk(10, late=late)
    path = str(tmp_path / "r.json")
    disk.replace(path, b"12345678")
    for _ in range(2):
        with pytest.raises(WriteError, match="the disk is full"):
            disk.replace(path, b"abcdefgh")
    assert (tmp_path / "r.json").read_bytes() == b"12345678"
    assert os.listdir(tmp_path) == ["r.json"]
    disk.add_space(8)
    disk.replace(path, b"abcdefgh")
    assert (tmp_path / "r.json").read_bytes() == b"abcdefgh"


def test_a_full_disk_has_no_space_for_a_folder(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="the disk is full"):
        FullDisk(0).make_folder(str(tmp_path / "a" / "b"))
    with pytest.raises(WriteError, match="the disk is full"):
        FullDisk(0).replace(str(tmp_path / "r"), b"")
    assert os.listdir(tmp_path) == []


class Swept(Disk):
    """Every folder is removed as soon as it is made."""

    def open_new(self, path: str) -> int:
        raise FileNotFoundError(2, "No such file or directory", path)


def test_a_folder_that_vanishes_each_time_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="could not be written: No such file or directory"):
        Swept().replace(str(tmp_path / "folder" / "a.json"), b"{}")
