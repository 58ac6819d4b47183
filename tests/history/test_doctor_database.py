from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensesh.history.maintenance.doctor import diagnose, repair
from opensesh.sessions.trash import restore
from opensesh.storage.opencode_db.store import OpencodeDB

from ..storage.opencode_databases import V1_2, V1_18, assert_sound, copy_database, execute, select

SESSION = "(SELECT id FROM session ORDER BY id LIMIT 1)"
MESSAGE = f"(SELECT id FROM message WHERE session_id = {SESSION} ORDER BY time_created, id LIMIT 1)"
ANSWER = "(SELECT id FROM message WHERE json_extract(data, '$.role') = 'assistant' ORDER BY id LIMIT 1)"
PART = f"(SELECT id FROM part WHERE message_id = {MESSAGE} ORDER BY id LIMIT 1)"
TOOL = "(SELECT id FROM part WHERE json_extract(data, '$.type') = 'tool' ORDER BY id LIMIT 1)"
OLD = {"time_updated": 1}

FAULTS = {
    "a session with a broken column": f"UPDATE session SET revert = '{{' WHERE id = {SESSION}",
    "a session with a wrong revert": f"UPDATE session SET revert = '{{}}' WHERE id = {SESSION}",
    "a session with wrong permissions": f"UPDATE session SET permission = '{{}}' WHERE id = {SESSION}",
    "a session in a relative folder": f"UPDATE session SET directory = 'here' WHERE id = {SESSION}",
    "a session with a fraction as time": f"UPDATE session SET time_updated = 1.5 WHERE id = {SESSION}",
    "a session with text as a time": f"UPDATE session SET time_created = 'x' WHERE id = {SESSION}",
    "a session with a negative time": f"UPDATE session SET time_created = -5 WHERE id = {SESSION}",
    "a session with a time beyond all": f"UPDATE session SET time_updated = 9223372036854775807 WHERE id = {SESSION}",
    "a message that is not JSON": f"UPDATE message SET data = 'x' WHERE id = {ANSWER}",
    "an answer without a model": f"UPDATE message SET data = json_remove(data, '$.modelID') WHERE id = {ANSWER}",
    "a part that is not JSON": f"UPDATE part SET data = '{{\"type\":' WHERE id = {PART}",
    "a part of an unknown type": f"UPDATE part SET data = json_set(data, '$.type', 'new') WHERE id = {PART}",
    "a part that is not text": f"UPDATE part SET data = x'ff00fe' WHERE id = {PART}",
    "a part of another session": f"UPDATE part SET session_id = 'ses_other' WHERE id = {PART}",
    "an unfinished tool call": f"UPDATE part SET data = json_set(data, '$.state', "
    f'json(\'{{"status":"running","input":{{}},"time":{{"start":1}}}}\')), time_updated = 5 WHERE id = {TOOL}',
    "an unfinished answer": f"UPDATE message SET data = json_remove(data, '$.time.completed'), time_updated = 5 "
    f"WHERE id = {ANSWER}",
    "messages without a session": f"DELETE FROM session WHERE id = {SESSION}",
    "parts without a message": f"DELETE FROM message WHERE id = {MESSAGE}",
    "sessions without a project": "DELETE FROM project",
}
ONLY_NEW = {
    "a session of a lost workspace": f"UPDATE session SET workspace_id = 'wrk_gone' WHERE id = {SESSION}",
    "a session with the model of a message": f'UPDATE session SET model = \'{{"modelID":"m"}}\' WHERE id = {SESSION}',
    "a session with text as cost": f"UPDATE session SET cost = 'much' WHERE id = {SESSION}",
    "a counter behind the log": f"UPDATE event_sequence SET seq = 0 WHERE aggregate_id = {SESSION}",
    "a log without a counter": f"DELETE FROM event_sequence WHERE aggregate_id = {SESSION}",
}
CASES = [
    *(pytest.param(V1_18, sql, id=f"1.18 {name}") for name, sql in (FAULTS | ONLY_NEW).items()),
    *(pytest.param(V1_2, sql, id=f"1.2 {name}") for name, sql in FAULTS.items()),
]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def damage(path: Path, sql: str) -> None:
    """Change a database as a program does that does not enforce foreign keys."""
    execute(path, "PRAGMA foreign_keys = OFF", sql)


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row but those of the event log, which repairs and their undo append to."""
    tables = ("project", "session", "message", "part", "todo", "session_share")
    return {table: sorted(select(path, f"SELECT * FROM {table}"), key=repr) for table in tables}


@pytest.mark.parametrize(("source", "sql"), CASES)
def test_a_repair_makes_the_database_readable_for_opencode_and_can_be_undone(
    tmp_path: Path, source: Path, sql: str
) -> None:
    path = copy_database(tmp_path / "data", source)
    with OpencodeDB(path) as store:
        repair(store)  # what is in the corpus
    damage(path, sql)
    damaged = contents(path)
    with OpencodeDB(path) as store:
        result = diagnose(store)
        fixable = [finding for finding in result.findings if finding.fixable]
        assert fixable
        assert contents(path) == damaged
        repaired = repair(store)
        assert repaired.undo
        assert not repaired.damaged
        assert [finding for finding in diagnose(store).findings if finding.fixable] == []
        assert_sound(path)
        faults = [row for table in ("project", "session", "message", "part") for row in store.rows(table) if row.fault]
        assert faults == []
    undone = restore(repaired.undo)
    assert contents(path) == damaged
    assert undone.left == [] or "event_sequence" in sql


def test_a_repair_keeps_what_can_be_read_of_a_session(tmp_path: Path) -> None:
    path = copy_database(tmp_path / "data")
    readable = f"SELECT title, directory, project_id FROM session WHERE id = {SESSION}"
    before = select(path, readable)
    execute(path, f"UPDATE session SET cost = 'much', time_created = 'x', revert = '{{' WHERE id = {SESSION}")
    with OpencodeDB(path) as store:
        assert repair(store).undo
    assert select(path, readable) == before


def test_a_repair_logs_its_changes_and_a_later_writer_continues_the_numbers(tmp_path: Path) -> None:
    path = copy_database(tmp_path / "data")
    execute(path, FAULTS["an unfinished answer"])
    with OpencodeDB(path) as store:
        before = select(path, "SELECT count(*) FROM event WHERE type = 'message.updated.1'")
        repair(store)
        assert select(path, "SELECT count(*) FROM event WHERE type = 'message.updated.1'") > before
    assert_sound(path)


def test_a_database_of_an_unknown_schema_is_checked_and_not_repaired(tmp_path: Path) -> None:
    path = copy_database(tmp_path / "data")
    execute(path, FAULTS["a session with a wrong revert"], "ALTER TABLE part ADD COLUMN later TEXT")
    with OpencodeDB(path) as store:
        result = repair(store)
    [finding] = [finding for finding in result.findings if finding.path.startswith("session/")]
    assert "only reads this database: its table part has an unknown later TEXT" in finding.remedy
    assert result.undo == ""
    assert result.damaged


def test_an_answer_that_opencode_is_writing_is_not_closed(tmp_path: Path) -> None:
    path = copy_database(tmp_path / "data")
    newest = "(SELECT id FROM message ORDER BY time_created DESC LIMIT 1)"
    execute(
        path,
        "UPDATE message SET data = json_remove(data, '$.time.completed'), "
        f"time_updated = unixepoch() * 1000 WHERE id = {newest}",
    )
    with OpencodeDB(path) as store:
        repair(store)
    assert select(path, f"SELECT json_extract(data, '$.time.completed') FROM message WHERE id = {newest}") == [(None,)]


def test_an_answer_beyond_its_budget_is_not_damaged(tmp_path: Path) -> None:
    path = copy_database(tmp_path / "data")
    with OpencodeDB(path) as store:
        repair(store)  # what is in the corpus
        [(session, message)] = select(path, f"SELECT session_id, id FROM message WHERE id = {ANSWER}")
        error = {"name": "BudgetExceededError", "data": {"message": "too dear", "scope": "run", "spent": 2}}
        answer = store.read(("message", session, message)) | {"error": error}
        store.write(("message", session, message), answer)
        stored = contents(path)
        assert [finding for finding in repair(store).findings if finding.level != "note"] == []
        assert contents(path) == stored
        assert store.read(("message", session, message)) == answer


@pytest.mark.parametrize("table", ["session", "message", "part", "event"])
def test_a_damaged_page_is_reported_and_nothing_is_changed(tmp_path: Path, table: str) -> None:
    path = copy_database(tmp_path / "data")
    [(page,)] = select(path, f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")
    [(size,)] = select(path, "PRAGMA page_size")
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\x99" * size
    path.write_bytes(content)
    with OpencodeDB(path) as store:
        result = repair(store)
    assert ("database", "damage") in {(finding.kind, finding.level) for finding in result.findings}
    assert result.undo == ""
    assert path.read_bytes() == content
