from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from opensesh import ids
from opensesh.storage.opencode_db.other_programs import Follower, other_processes
from opensesh.storage.opencode_db.store import OpencodeDB

from .opencode_databases import (
    PROJECT,
    V1_2,
    V1_18,
    empty_database,
    execute,
    new_answer,
    new_message,
    new_session,
    new_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from opensesh.storage.protocol import Key, RecordChange

SESSION = ("session", PROJECT, "ses_1")
PROMPT = ("message", "ses_1", "msg_1")
TEXT = ("part", "msg_1", "prt_1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return empty_database(tmp_path)


@pytest.fixture
def other(path: Path) -> Iterator[OpencodeDB]:
    """Another user of the database."""
    with OpencodeDB(path) as opened:
        yield opened


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM project").fetchall()
input()
"""


class Received:
    def __init__(self) -> None:
        self.changes: list[tuple[Key, bool, bool]] = []
        self.arrived = threading.Event()

    def __call__(self, changes: Sequence[RecordChange]) -> None:
        self.changes += [(change.key, change.removed, change.own) for change in changes]
        self.arrived.set()

    def until(self, key: Key, *, removed: bool = False) -> None:
        deadline = time.monotonic() + 60
        while (key, removed, False) not in self.changes:
            assert time.monotonic() < deadline, self.changes
            self.arrived.wait(0.05)
            self.arrived.clear()


def test_what_another_program_writes_is_reported_once(path: Path, other: OpencodeDB) -> None:
    received = Received()
    with OpencodeDB(path) as store:
        stop = store.subscribe(received)
        other.write(SESSION, new_session())
        received.until(SESSION)
        with other.batch() as batch:
            batch.write(PROMPT, new_message())
            batch.write(TEXT, new_text())
        received.until(TEXT)
        other.remove(TEXT)
        received.until(TEXT, removed=True)
        store.write(PROMPT, new_message(system="ours"))
        other.remove(SESSION)
        received.until(SESSION, removed=True)
        stop()
    assert received.changes.count((PROMPT, False, True)) == 1
    assert received.changes.count((PROMPT, False, False)) == 1
    assert received.changes.count((TEXT, True, False)) == 1


@pytest.mark.parametrize("source", [V1_18, V1_2], ids=["1.18", "1.2"])
def test_a_change_of_another_program_after_a_write_that_changes_nothing_is_reported(
    tmp_path: Path, source: Path
) -> None:
    database = empty_database(tmp_path / source.parent.name, source)
    received = Received()
    with OpencodeDB(database) as store, OpencodeDB(database) as other:
        store.write(SESSION, new_session())
        store.subscribe(received)
        store.write(SESSION, new_session())
        other.update(SESSION, lambda info: info.update(title="theirs"))
        received.until(SESSION)


@pytest.mark.parametrize("source", [V1_18, V1_2], ids=["1.18", "1.2"])
def test_changes_of_this_store_are_reported_once_and_as_its_own(tmp_path: Path, source: Path) -> None:
    database = empty_database(tmp_path / source.parent.name, source)
    received = Received()
    with OpencodeDB(database) as store, OpencodeDB(database) as other:
        store.subscribe(received)
        store.write(SESSION, new_session())
        store.update(SESSION, lambda info: info.update(title="ours"))
        store.write(PROMPT, new_message())
        store.remove(SESSION)
        last = ("session", PROJECT, "ses_2")
        other.write(last, new_session("ses_2"))
        received.until(last)
        assert [change for change in received.changes if change[2] is False] == [(last, False, False)]


@pytest.mark.parametrize("source", [V1_18, V1_2], ids=["1.18", "1.2"])
def test_a_change_that_is_seen_while_the_next_one_is_being_made_is_its_own(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip = Follower.skip

    def skip_slowly(self: Follower, *arguments: Any) -> None:
        skip(self, *arguments)
        time.sleep(0.15)  # several comparisons of the follower, between the note and the commit

    monkeypatch.setattr(Follower, "skip", skip_slowly)
    database = empty_database(tmp_path / source.parent.name, source)
    received = Received()
    with OpencodeDB(database) as store, OpencodeDB(database) as other:
        store.subscribe(received)
        store.write(SESSION, new_session())
        store.update(SESSION, lambda info: info.update(title="ours"))
        store.update(SESSION, lambda info: info.update(title="ours again"))
        store.remove(SESSION)
        last = ("session", PROJECT, "ses_2")
        other.write(last, new_session("ses_2"))
        received.until(last)
        assert [change for change in received.changes if change[2] is False] == [(last, False, False)]


def test_a_session_is_reported_under_the_project_of_its_row_and_not_of_its_event(path: Path) -> None:
    received = Received()
    with OpencodeDB(path) as store, closing(sqlite3.connect(path)) as connection:
        store.write(SESSION, new_session())
        store.subscribe(received)
        connection.execute("UPDATE session SET title = 'theirs'")
        connection.execute("UPDATE event_sequence SET seq = seq + 1")
        connection.execute(
            "INSERT INTO event (id, aggregate_id, seq, type, data) SELECT 'evt_9', aggregate_id, seq, "
            "'session.updated.1', json_object('sessionID', aggregate_id, 'info', json_object('title', 'theirs')) "
            "FROM event_sequence"
        )
        connection.commit()
        received.until(SESSION)


def test_messages_of_other_programs_are_distinguished_from_those_of_this_store(path: Path, other: OpencodeDB) -> None:
    with OpencodeDB(path) as store:
        store.write(SESSION, new_session())
        store.write(PROMPT, new_message())
        other.write(("message", "ses_1", "msg_2"), new_answer())
        other.write(("message", "ses_1", "msg_3"), new_message(message="msg_3"))
        assert store.foreign_messages("ses_1", {"msg_2"}) == ["msg_3"]


def wait_for_another_process(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not other_processes(str(path)):
        if not sys.platform.startswith("linux"):
            pytest.skip("the system does not tell who has a file open")
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_title_that_another_program_overwrites_with_an_old_row_is_set_again(path: Path) -> None:
    overwritten: list[str] = []

    def overwrite_once(changes: Sequence[RecordChange]) -> None:
        # Called after the update is committed and before its row is read again.
        if not overwritten:
            overwritten.append(store.read(SESSION)["title"])
            execute(path, "UPDATE session SET title = 'before'")

    with OpencodeDB(path) as store:
        store.write(SESSION, new_session(title="before"))
        process = subprocess.Popen([sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE)
        try:
            wait_for_another_process(path)
            store.subscribe(overwrite_once)
            store.update(SESSION, lambda info: info.update(title="after"))
        finally:
            process.communicate(b"\n")
        assert overwritten == ["after"]
        assert store.read(SESSION)["title"] == "after"


def test_another_process_is_found_through_a_link_to_the_database(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "opencode.db"
    link.parent.mkdir()
    link.symlink_to(path)
    process = subprocess.Popen([sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE)
    try:
        wait_for_another_process(path)
        assert other_processes(str(link)) == [process.pid]
    finally:
        process.communicate(b"\n")


def test_a_turn_that_another_process_has_not_ended_is_a_run(path: Path, other: OpencodeDB) -> None:
    def write(message: str, record: dict[str, Any]) -> None:
        other.write(("message", "ses_1", message), record)

    now = ids.now_ms()
    with OpencodeDB(path) as store:
        other.write(SESSION, new_session())
        write("msg_2", new_answer(at=now))
        assert store.foreign_run("ses_1") == ""
        process = subprocess.Popen([sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE)
        try:
            wait_for_another_process(path)
            assert f"pid {process.pid}" in store.foreign_run("ses_1")
            ended = {"created": now, "completed": now}
            write("msg_2", new_answer(at=now, time=ended, finish="tool-calls"))
            assert f"pid {process.pid}" in store.foreign_run("ses_1")
            execute(path, f"UPDATE message SET time_updated = {ids.now_ms() - 10_000}")
            assert store.foreign_run("ses_1") == ""
            write("msg_2", new_answer(at=now, time=ended, finish="stop"))
            assert store.foreign_run("ses_1") == ""
            write("msg_3", new_message(message="msg_3", at=now + 1))
            assert f"pid {process.pid}" in store.foreign_run("ses_1")
            store.write(("message", "ses_1", "msg_4"), new_message(message="msg_4", at=now + 2))
            assert store.foreign_run("ses_1") == "", "the newest prompt is its own"
        finally:
            process.communicate(b"\n")
        assert other_processes(str(path)) == []
