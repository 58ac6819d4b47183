"""The tables of every version of OpenCode, new and upgraded: the statements that a real one left in its file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from opensesh.storage.opencode_db.store import OpencodeDB

from .opencode_databases import (
    FIXTURES,
    PROJECT,
    assert_sound,
    execute,
    new_answer,
    new_message,
    new_session,
    new_text,
    new_tokens,
    select,
)

if TYPE_CHECKING:
    from pathlib import Path

SCHEMAS = sorted((FIXTURES / "opencode-schemas").glob("*.sql"))
NEXT = "20270101000000_next"


@pytest.fixture(params=SCHEMAS, ids=lambda path: path.stem)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(request.param.read_text())
    return path


def test_every_kind_of_record_is_written_changed_and_removed(database: Path) -> None:
    session = ("session", PROJECT, "ses_1")
    message, answer = ("message", "ses_1", "msg_1"), ("message", "ses_1", "msg_2")
    step = {"id": "prt_3", "sessionID": "ses_1", "messageID": "msg_2", "type": "step-finish", "reason": "stop"}
    with OpencodeDB(database) as store:
        assert store.refusal == ""
        with store.batch() as batch:
            batch.write(session, new_session())
            batch.write(message, new_message())
            batch.write(("part", "msg_1", "prt_1"), new_text())
        with store.batch() as batch:
            batch.write(answer, new_answer())
            batch.write(("part", "msg_2", "prt_2"), new_text("msg_2", "prt_2", "hello"))
            batch.write(("part", "msg_2", "prt_3"), step | {"cost": 0.5, "tokens": new_tokens(3)})
        store.write(("todo", "ses_1"), [{"content": "c", "status": "pending", "priority": "high"}])
        store.write(("session_share", "ses_1"), {"id": "i", "secret": "s", "url": "https://u"})
        store.update(session, lambda info: info.update(title="again"))
        assert store.read(session)["title"] == "again"
        assert [[part["id"] for part in parts] for _, parts in store.messages("ses_1")] == [
            ["prt_1"],
            ["prt_2", "prt_3"],
        ]
        assert_sound(database)
        store.remove(answer)
        assert [info["id"] for info, _ in store.messages("ses_1")] == ["msg_1"]
        assert_sound(database)
        store.remove(session)
    for table in ("session", "message", "part", "todo", "session_share"):
        assert select(database, f"SELECT count(*) FROM {table}") == [(0,)]
    assert_sound(database)


def test_a_migration_that_is_not_known_makes_it_read_only(database: Path) -> None:
    if select(database, "SELECT 1 FROM sqlite_master WHERE name = 'migration'"):
        execute(database, f"INSERT INTO migration VALUES ('{NEXT}', 1)")
    elif select(database, "SELECT 1 FROM pragma_table_info('__drizzle_migrations') WHERE name = 'name'"):
        execute(database, f"INSERT INTO __drizzle_migrations (hash, created_at, name) VALUES ('', 0, '{NEXT}')")
    else:  # 2027-01-01
        execute(database, "INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('', 1798761600000)")
    with OpencodeDB(database) as store:
        assert "the migration 20270101000000" in store.refusal


@pytest.mark.parametrize("table", ["project", "session", "message", "part", "todo", "session_share"])
def test_a_column_that_no_recorded_migration_adds_makes_it_read_only(database: Path, table: str) -> None:
    execute(database, f"ALTER TABLE {table} ADD COLUMN later TEXT")
    with OpencodeDB(database) as store:
        assert f"table {table} has an unknown later TEXT" in store.refusal
