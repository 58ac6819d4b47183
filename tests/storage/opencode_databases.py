"""Databases of OpenCode for tests: empty ones of known generations, and records that it accepts."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from opensesh.storage.keys import check_key
from opensesh.storage.opencode_db.store import OpencodeDB

FIXTURES = Path(__file__).parents[1] / "fixtures"
V1_18 = FIXTURES / "opencode-1.18.33" / "opencode.db"
V1_2 = FIXTURES / "opencode-1.2" / "opencode.db"
PROJECT = "6909399b254c721579bd193635882646b4739c16"


def copy_database(folder: Path, source: Path = V1_18) -> Path:
    """A copy of a real database, with a write-ahead log as OpenCode has it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = Path(shutil.copy(source, folder / "opencode.db"))
    execute(path, "PRAGMA journal_mode = WAL")
    return path


def empty_database(folder: Path, source: Path = V1_18) -> Path:
    """A real database without any record."""
    path = copy_database(folder, source)
    execute(path, "DELETE FROM project")
    execute(path, "DELETE FROM event_sequence" if source == V1_18 else "SELECT 1")
    return path


def execute(path: Path, *statements: str) -> None:
    """Change a database as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in statements:
            connection.execute(statement)


def select(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows, as another program reads them."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql, values).fetchall()


def assert_sound(path: Path) -> None:
    """Nothing is damaged or orphaned, and the event log of every session is complete and numbered as it must be."""
    assert select(path, "PRAGMA integrity_check") == [("ok",)]
    assert select(path, "PRAGMA foreign_key_check") == []
    if select(path, "SELECT 1 FROM sqlite_master WHERE name = 'event'"):
        # One statement, because an OpenCode that runs may write between two.
        numbers = """SELECT aggregate_id, min(event.seq), max(event.seq), count(*), event_sequence.seq
            FROM event LEFT JOIN event_sequence USING (aggregate_id) GROUP BY aggregate_id"""
        for session, first, last, count, counted in select(path, numbers):
            assert (first, count, counted) == (0, last + 1, last), session


class AnyRecords(OpencodeDB):
    """A database that also takes the records ``sample/<name>`` of the conformance suite, as parts of a message.

    A sample is the field ``sample`` of a text part. Sessions and messages that a contract does not create are created.
    """

    SESSION = "ses_samples"
    MESSAGE = "msg_samples"

    def read(self, key: tuple[str, ...]) -> Any:
        value = super().read(self.key(key))
        return value["sample"] if key[:1] == ("sample",) else value

    def update(self, key: tuple[str, ...], edit: Any) -> Any:
        if key[:1] != ("sample",):
            return super().update(key, edit)
        return super().update(self.key(key), lambda part: edit(part["sample"]))["sample"]

    def list(self, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        if prefix[:1] == ("sample",):
            return [("sample", key[2][4:]) for key in super().list(("part", self.MESSAGE)) if len(prefix) == 1]
        return [key for key in super().list(prefix) if not self._is_hidden(key)]

    def scan(self, prefix: tuple[str, ...], **options: Any) -> Any:
        if prefix == ("sample",):
            for key, value in super().scan(("part", self.MESSAGE), **options):
                yield ("sample", key[2][4:]), value["sample"]
            return
        yield from ((key, value) for key, value in super().scan(prefix, **options) if not self._is_hidden(key))

    def batch(self) -> Any:
        return _SampleBatch(self, super().batch())

    def subscribe(self, callback: Any) -> Any:
        def receive(changes: Any) -> None:
            named = [change._replace(key=self._sample_key(change.key)) for change in changes]
            shown = [change for change in named if not self._is_hidden(change.key)]
            if shown:
                callback(shown)

        return super().subscribe(receive)

    def _sample_key(self, key: tuple[str, ...]) -> tuple[str, ...]:
        return ("sample", key[2][4:]) if key[:2] == ("part", self.MESSAGE) else key

    def key(self, key: tuple[str, ...]) -> tuple[str, ...]:
        check_key(key)
        return ("part", self.MESSAGE, f"prt_{key[1]}") if key[:1] == ("sample",) and len(key) == 2 else key

    def _is_hidden(self, key: tuple[str, ...]) -> bool:
        return self.SESSION in key or self.MESSAGE in key or key == ("project", "samples")


class _SampleBatch:
    def __init__(self, store: AnyRecords, inner: Any) -> None:
        self.store, self.inner = store, inner

    def __enter__(self) -> _SampleBatch:
        self.batch = self.inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self.inner.__exit__(*error)

    def write(self, key: tuple[str, ...], value: Any) -> None:
        store = self.store
        check_key(key)
        if key[:1] == ("sample",) and len(key) == 2:
            self._add_message(store.SESSION, store.MESSAGE)
            part = {"id": f"prt_{key[1]}", "sessionID": store.SESSION, "messageID": store.MESSAGE, "type": "text"}
            self.batch.write(("part", store.MESSAGE, part["id"]), part | {"text": "", "sample": value})
            return
        if key[0] in ("message", "todo"):
            self._add_session(key[1])
        self.batch.write(key, value)

    def remove(self, key: tuple[str, ...]) -> None:
        self.batch.remove(self.store.key(key))

    def _add_session(self, session: str) -> None:
        if not any(key[-1] == session for key in OpencodeDB.list(self.store, ("session",))):
            self.batch.write(("session", "samples", session), new_session(session, project="samples"))

    def _add_message(self, session: str, message: str) -> None:
        self._add_session(session)
        if ("message", session, message) not in OpencodeDB.list(self.store, ("message", session)):
            self.batch.write(("message", session, message), new_message(session, message))


def new_session(session: str = "ses_1", *, project: str = PROJECT, **more: Any) -> dict[str, Any]:
    return {
        "id": session,
        "slug": "a-b",
        "projectID": project,
        "directory": "/d",
        "title": "T",
        "version": "1.18.33",
        "time": {"created": 1, "updated": 2},
    } | more


def new_message(session: str = "ses_1", message: str = "msg_1", *, at: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "id": message,
        "sessionID": session,
        "role": "user",
        "time": {"created": at},
        "agent": "build",
        "model": {"providerID": "fake", "modelID": "scripted"},
    } | more


def new_answer(session: str = "ses_1", message: str = "msg_2", *, at: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "id": message,
        "sessionID": session,
        "role": "assistant",
        "time": {"created": at},
        "parentID": "msg_1",
        "modelID": "scripted",
        "providerID": "fake",
        "mode": "build",
        "agent": "build",
        "path": {"cwd": "/d", "root": "/d"},
        "cost": 0,
        "tokens": new_tokens(),
    } | more


def new_tokens(count: int = 0) -> dict[str, Any]:
    return {"input": count, "output": count, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def new_text(message: str = "msg_1", part: str = "prt_1", text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"id": part, "sessionID": "ses_1", "messageID": message, "type": "text", "text": text} | more
