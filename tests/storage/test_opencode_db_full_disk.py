"""A database on a disk that is really full, or really read-only: a small file system of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
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
        assert (done.returncode, "the file or its folder is read-only" in done.stderr) == (5, True), done.stderr
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
