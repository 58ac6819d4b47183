"""A database on a disk that is really full, or really read-only: a small file system of its own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from opensesh.errors import OpenseshError, ReadOnlyStoreError, WriteError
from opensesh.storage.opencode_db.store import OpencodeDB

from .opencode_databases import (
    PROJECT,
    assert_sound,
    empty_database,
    new_message,
    new_session,
    new_text,
    select,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PERMISSIONS = """
import os, sys
from opensesh.errors import OpenseshError
from opensesh.storage.opencode_db.store import OpencodeDB
path, name, mode = sys.argv[1:]
os.chmod(name, int(mode, 8))
try:
    with OpencodeDB(path) as store:
        [key] = store.list(("session",))
        print(store.read(key)["title"], store.refusal, sep="\\n")
        try:
            store.update(key, lambda info: info.update(title="new"))
        except OpenseshError as error:
            print(type(error).__name__, error)
except OpenseshError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="root gives up its privileges with a program of Linux")
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "/.."])
def test_what_this_user_may_not_write_or_read_is_named(end: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    path = empty_database(folder)
    name = path.parent if end == "/.." else path.with_name(path.name + end)
    kind = {"": "file", "/..": "folder"}.get(end, f"{end} file")
    as_user = (
        ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all") if os.geteuid() == 0 else ()
    )

    def outcome(mode: str) -> list[str]:
        command = [*as_user, sys.executable, "-c", PERMISSIONS, str(path), str(name), mode]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()

    with closing(sqlite3.connect(path)) as other:  # its log stays while it is open
        store_session = (
            "INSERT INTO session (id, project_id, slug, directory, title, version, time_created, time_updated)"
        )
        other.execute(
            "INSERT INTO project (id, worktree, time_created, time_updated, sandboxes) VALUES ('p', '/', 1, 1, '[]')"
        )
        other.execute(f"{store_session} VALUES ('ses_1', 'p', 's', '/d', 'T', '1', 1, 1)")
        other.commit()
        title, refusal, error = outcome("555" if end == "/.." else "444")
        assert (title, refusal) == ("T", f"its {kind} is read-only")
        assert error == f"ReadOnlyStoreError {path} is only read: {refusal}."
        if end != "/..":
            [error] = outcome("000")
            assert f"permission denied to read {name}" in error
        name.chmod(0o755)
        assert outcome("755") == ["T", ""]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", "size=2m", "opensesh-test", str(folder))
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(("umount", "-l", str(folder)), check=True)


def write_until_it_fails(store: OpencodeDB) -> tuple[list[str], OpenseshError]:
    stored: list[str] = []
    for number in range(10_000):
        message, part = f"msg_{number:05}", f"prt_{number:05}"
        try:
            with store.batch() as batch:
                batch.write(("message", "ses_1", message), new_message(message=message, at=number + 1))
                batch.write(("part", message, part), new_text(message, part, "x" * 3_000))
        except OpenseshError as error:
            return stored, error
        stored.append(message)
    raise AssertionError("the disk never was full")


def test_a_full_disk_is_named_loses_nothing_and_can_be_written_again(disk: Path) -> None:
    path = empty_database(disk)
    with OpencodeDB(path) as store:
        store.write(("session", PROJECT, "ses_1"), new_session())
        stored, error = write_until_it_fails(store)
        assert isinstance(error, WriteError)
        assert str(path) in str(error)
        assert "Nothing was changed" in str(error)
        assert len(stored) > 10
        assert [message.info["id"] for message in store.messages("ses_1")] == stored
        subprocess.run(("mount", "-o", "remount,size=64m", str(disk)), check=True)
        store.write(("message", "ses_1", "msg_last"), new_message(message="msg_last", at=99_999))
    assert [name for (name,) in select(path, "SELECT id FROM message ORDER BY time_created")] == [*stored, "msg_last"]
    assert_sound(path)


def test_a_disk_that_becomes_read_only_is_named_and_still_read(disk: Path) -> None:
    path = empty_database(disk)
    with OpencodeDB(path) as store:
        store.write(("session", PROJECT, "ses_1"), new_session())
    subprocess.run(("mount", "-o", "remount,ro", str(disk)), check=True)
    with OpencodeDB(path) as store:
        assert store.read(("session", PROJECT, "ses_1"))["title"] == "T"
        assert "read-only" in store.refusal
        with pytest.raises(ReadOnlyStoreError, match="read-only"):
            store.write(("session", PROJECT, "ses_1"), new_session(title="new"))
        assert store.read(("session", PROJECT, "ses_1"))["title"] == "T"


def test_a_data_folder_on_a_read_only_disk_is_shown_and_every_change_says_why(disk: Path, isolated: Path) -> None:
    data = disk / "opencode"
    path = empty_database(data)
    with OpencodeDB(path) as store:
        store.write(("session", PROJECT, "ses_1"), new_session(directory=str(isolated / "work")))
        store.write(("message", "ses_1", "msg_1"), new_message(message="msg_1"))
    subprocess.run(("mount", "-o", "remount,ro", str(disk)), check=True)

    def opensesh(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "opensesh", *words, "--store", str(data)]
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    for words in (["list"], ["show", "ses_1"], ["search", "x"], ["stats"], ["export", "ses_1"], ["doctor"]):
        done = opensesh(*words)
        assert done.returncode == 0, done.stderr
    assert "No new sessions: " in opensesh("projects").stderr
    for words in (["run", "SAY new", "-m", "scripted/prompt"], ["run", "SAY on", "--session", "ses_1"]):
        done = opensesh(*words)
        assert (done.returncode, "its file is read-only" in done.stderr) == (5, True), done.stderr
        assert "fork" not in done.stderr
    for words in (["rename", "ses_1", "T"], ["archive", "ses_1"], ["remove", "ses_1", "--yes"], ["fork", "ses_1"]):
        done = opensesh("session", *words)
        assert (done.returncode, "read-only" in done.stderr.lower()) == (5, True), done.stderr


def test_a_database_is_read_on_a_disk_that_is_full(disk: Path) -> None:
    path = empty_database(disk)
    with OpencodeDB(path) as store:
        store.write(("session", PROJECT, "ses_1"), new_session())
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with OpencodeDB(path) as store:
        assert store.read(("session", PROJECT, "ses_1"))["title"] == "T"
        with pytest.raises(WriteError, match=r"the disk is full.*Nothing was changed"):
            store.write(("session", PROJECT, "ses_1"), new_session(title="new"))
        (disk / "filler").unlink()
        store.write(("session", PROJECT, "ses_1"), new_session(title="new"))
        assert store.read(("session", PROJECT, "ses_1"))["title"] == "new"
