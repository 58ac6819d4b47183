from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opensesh.errors import InvalidKeyError, NotFoundError, ReadOnlyStoreError, RecordError, StoreError
from opensesh.history.library import Library
from opensesh.project import ProjectLocation
from opensesh.sessions import Sessions, moving, trash
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.opencode_db.sqlite_writer import MIGRATION_PAUSE_SECONDS, SqliteWriter, checkpoints_safely
from opensesh.storage.opencode_db.store import OpencodeDB

from .opencode_databases import (
    PROJECT,
    V1_2,
    V1_18,
    assert_sound,
    copy_database,
    empty_database,
    execute,
    new_answer,
    new_message,
    new_session,
    new_text,
    new_tokens,
    select,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

SESSION = ("session", PROJECT, "ses_1")
PROMPT = ("message", "ses_1", "msg_1")
ANSWER = ("message", "ses_1", "msg_2")
TEXT = ("part", "msg_1", "prt_1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return empty_database(tmp_path)


@pytest.fixture
def store(path: Path) -> Iterator[OpencodeDB]:
    with OpencodeDB(path) as opened:
        yield opened
    assert_sound(path)


@pytest.fixture
def session(store: OpencodeDB) -> OpencodeDB:
    """A store with a session, a prompt and its text."""
    store.write(SESSION, new_session())
    with store.batch() as batch:
        batch.write(TEXT, new_text())
        batch.write(PROMPT, new_message())
    return store


def events(path: Path, session: str = "ses_1") -> list[str]:
    return [kind for (kind,) in select(path, "SELECT type FROM event WHERE aggregate_id = ? ORDER BY seq", session)]


# -- records and rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [V1_2, V1_18], ids=["1.2", "1.18"])
def test_every_row_of_a_real_database_is_written_as_opencode_wrote_it(source: Path, tmp_path: Path) -> None:
    original = copy_database(tmp_path / "original", source)
    copy = empty_database(tmp_path / "copy", source)
    with OpencodeDB(original) as one, OpencodeDB(copy) as other:
        records = dict(one.scan(()))
        with other.batch() as batch:
            for key in reversed(records):
                batch.write(key, records[key])
        assert dict(other.scan(())) == records
        assert list(map(json.dumps, dict(other.scan(())).values())) == list(map(json.dumps, records.values()))
    for table in ("project", "session", "message", "part", "todo", "session_share"):
        columns = [column for (column,) in select(original, f"SELECT name FROM pragma_table_info('{table}')")]
        kept = [name for name in columns if not (name.startswith("time_") and table in ("message", "part", "todo"))]
        rows = [rows_of(path, table, kept) for path in (original, copy)]
        assert rows[0] == rows[1], table
    created = "SELECT id, time_created FROM message ORDER BY id"
    assert select(original, created) == select(copy, created)
    assert_sound(copy)


def rows_of(path: Path, table: str, columns: list[str]) -> list[dict[str, Any]]:
    rows = [dict(zip(columns, row, strict=True)) for row in select(path, f"SELECT {', '.join(columns)} FROM {table}")]
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and value[:1] in ("{", "["):
                row[name] = json.loads(value)
    return sorted(rows, key=str)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e15, 1e15) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text("abcdefgh", min_size=3, max_size=8).map(lambda name: f"x-{name}")
MORE = st.dictionaries(NAMES, JSON, max_size=4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(session=MORE, prompt=MORE, answer=MORE, part=MORE, title=st.text(), metadata=MORE)
def test_records_come_back_with_fields_that_opencode_does_not_know(
    path: Path,
    session: dict[str, Any],
    prompt: dict[str, Any],
    answer: dict[str, Any],
    part: dict[str, Any],
    title: str,
    metadata: dict[str, Any],
) -> None:
    records = {
        SESSION: new_session(title=title) | ({"metadata": metadata} if metadata else {}) | session,
        PROMPT: new_message(**prompt),
        ANSWER: new_answer(**answer),
        TEXT: new_text(**part),
    }
    with OpencodeDB(path) as store:
        with store.batch() as batch:
            for key, value in records.items():
                batch.write(key, value)
        for key, value in records.items():
            stored = store.read(key)
            assert {name: stored[name] for name in value} == value
            store.write(key, stored)
            assert store.read(key) == stored


def test_a_title_with_half_a_character_is_stored_as_javascript_stores_it(store: OpencodeDB) -> None:
    store.write(SESSION, new_session(title="a\ud83d"))
    assert store.read(SESSION)["title"] == "a\ufffd"


def test_the_variant_of_a_prompt_moves_to_its_model(session: OpencodeDB) -> None:
    session.write(PROMPT, new_message(variant="high"))
    prompt = session.read(PROMPT)
    assert (prompt["model"]["variant"], "variant" in prompt) == ("high", False)


def test_an_error_that_only_opensesh_knows_is_one_that_opencode_can_read(session: OpencodeDB, path: Path) -> None:
    error = {"name": "BudgetExceededError", "data": {"message": "too dear", "scope": "run", "spent": 2, "budget": 1}}
    session.write(ANSWER, new_answer(error=error))
    assert session.read(ANSWER)["error"] == error
    [(stored,)] = select(path, "SELECT json_extract(data, '$.error') FROM message WHERE id = 'msg_2'")
    assert json.loads(stored) == {"name": "UnknownError", "data": {"message": "too dear", "opensesh": error}}


def test_the_format_of_an_answer_is_kept_where_it_does_not_hide_the_session(session: OpencodeDB, path: Path) -> None:
    prompt = new_message(format={"type": "json_schema", "schema": {}}, opensesh={"calls": []})
    session.write(PROMPT, prompt)
    assert session.read(PROMPT) == prompt
    [(stored,)] = select(path, "SELECT data FROM message")
    assert "format" not in json.loads(stored)


@pytest.mark.parametrize(
    ("key", "record"),
    [
        (SESSION, new_session(model={"providerID": "p", "modelID": "m"})),
        (SESSION, new_session(revert={"snapshot": "x"})),
        (SESSION, new_session(permission={"bash": "allow"})),
        (SESSION, new_session(permission=[{"permission": "bash", "pattern": "*", "action": "perhaps"}])),
        (SESSION, new_session(metadata=[1])),
        (SESSION, new_session(directory="relative")),
        (SESSION, new_session(time={"created": 1.5, "updated": 2})),
        (SESSION, new_session(time={"created": -1, "updated": 2})),
        (SESSION, new_session(cost="much")),
        (SESSION, new_session(parentID=None)),
        (SESSION, new_session(parentID="msg_1")),
        (SESSION, new_session(workspaceID="w")),
        (SESSION, new_session("ses_2")),
        (PROMPT, new_message(role="system")),
        (PROMPT, new_message(model=None)),
        (PROMPT, new_message(summary={})),
        (PROMPT, new_message(time={"created": "now"})),
        (PROMPT, new_message("ses_2")),
        (ANSWER, {name: value for name, value in new_answer().items() if name != "path"}),
        (ANSWER, new_answer(tokens={})),
        (ANSWER, new_answer(parentID="")),
        (TEXT, new_text(type="unheard-of")),
        (TEXT, new_text() | {"text": None}),
        (TEXT, new_text(time={})),
        (TEXT, new_text(type="tool", callID="c", tool="t", state={"status": "completed", "input": {}})),
        (TEXT, new_text("msg_2")),
        (TEXT, new_text(sessionID="ses_2")),
        (("todo", "ses_1"), [{"content": "x"}]),
        (("todo", "ses_1"), {}),
        (("session_share", "ses_1"), {"url": "u"}),
        (("project", "p"), {"id": "p", "worktree": "/", "sandboxes": "none", "time": {"created": 1}}),
    ],
)
def test_what_opencode_could_not_read_is_refused(session: OpencodeDB, key: tuple[str, ...], record: Any) -> None:
    before = dict(session.scan(()))
    with pytest.raises(RecordError) as caught:
        session.write(key, record)
    assert caught.value.reason
    assert dict(session.scan(())) == before


@pytest.mark.parametrize("key", [("share", "ses_1"), ("event", "e"), ("session", "p"), ("message", "a", "b", "c")])
def test_kinds_of_records_that_opencode_does_not_have_are_refused(store: OpencodeDB, key: tuple[str, ...]) -> None:
    with pytest.raises(InvalidKeyError, match="no place"):
        store.write(key, {})
    store.remove(key)


def test_a_message_needs_its_session_and_a_part_its_message(store: OpencodeDB) -> None:
    with pytest.raises(NotFoundError, match="ses_1"):
        store.write(PROMPT, new_message())
    store.write(SESSION, new_session())
    with pytest.raises(NotFoundError, match="msg_1"):
        store.write(TEXT, new_text())


def test_a_record_cannot_move_to_another_owner(session: OpencodeDB) -> None:
    session.write(("session", PROJECT, "ses_2"), new_session("ses_2"))
    with pytest.raises(StoreError, match="another session"):
        session.write(("message", "ses_2", "msg_1"), new_message("ses_2"))


def test_the_first_database_of_opencode_has_no_column_for_unknown_fields_of_a_session(tmp_path: Path) -> None:
    with OpencodeDB(empty_database(tmp_path, V1_2)) as store:
        store.write(SESSION, new_session(opensesh={"title": "provisional"}, agent="build"))
        assert "agent" not in store.read(SESSION)
        with pytest.raises(RecordError, match="no column for surprise"):
            store.write(SESSION, new_session(surprise=1))


# -- the event log and the totals --------------------------------------------------------------------------------------


def test_every_change_is_logged_as_opencode_logs_it(session: OpencodeDB, path: Path) -> None:
    session.update(SESSION, lambda info: info.update(title="new"))
    session.write(PROMPT, new_message(summary={"diffs": []}))
    session.write(PROMPT, new_message(summary={"diffs": []}))
    session.remove(TEXT)
    session.remove(PROMPT)
    assert events(path) == [
        "session.created.1",
        "session.updated.1",
        "message.updated.1",
        "message.part.updated.1",
        "session.updated.1",
        "message.updated.1",
        "message.part.removed.1",
        "message.removed.1",
    ]
    first = json.loads(select(path, "SELECT data FROM event WHERE seq = 0")[0][0])
    assert first["sessionID"] == "ses_1"
    assert first["info"]["title"] == "T"
    part = json.loads(select(path, "SELECT data FROM event WHERE seq = 3")[0][0])
    assert part["part"] == new_text()
    assert isinstance(part["time"], int)


def test_growing_text_is_logged_at_its_start_and_end_only(session: OpencodeDB, path: Path) -> None:
    session.write(ANSWER, new_answer())
    before = len(events(path))
    key = ("part", "msg_2", "prt_2")
    for text in ("", "a", "ab", "abc"):
        session.write(key, new_text("msg_2", "prt_2", text, time={"start": 1}))
    session.write(key, new_text("msg_2", "prt_2", "abcd", time={"start": 1, "end": 2}))
    assert events(path)[before:] == ["message.part.updated.1"] * 2
    assert session.read(key)["text"] == "abcd"


def test_numbers_continue_after_the_highest_one_even_if_the_counter_is_behind(session: OpencodeDB, path: Path) -> None:
    execute(path, "UPDATE event_sequence SET seq = 1")
    session.update(SESSION, lambda info: info.update(title="new"))
    assert select(path, "SELECT max(seq) FROM event") == [(4,)]


def test_old_databases_log_only_sessions_that_have_a_log(tmp_path: Path) -> None:
    path = empty_database(tmp_path)
    execute(path, "DROP TABLE migration")
    with OpencodeDB(path) as store:
        store.write(SESSION, new_session())
        assert events(path) == []
        execute(path, "INSERT INTO event_sequence (aggregate_id, seq) VALUES ('ses_1', 4)")
        store.update(SESSION, lambda info: info.update(title="new"))
        assert select(path, "SELECT seq, type FROM event") == [(5, "session.updated.1")]


def test_totals_follow_the_steps(session: OpencodeDB) -> None:
    session.write(ANSWER, new_answer())

    def step(cost: float, count: int) -> dict[str, Any]:
        return new_text("msg_2", "prt_9", "") | {
            "type": "step-finish",
            "reason": "stop",
            "cost": cost,
            "tokens": new_tokens(count),
        }

    key = ("part", "msg_2", "prt_9")
    for cost, count in ((0.5, 3), (0.75, 4)):
        session.write(key, step(cost, count))
        assert (session.read(SESSION)["cost"], session.read(SESSION)["tokens"]) == (cost, new_tokens(count))
    session.update(SESSION, lambda info: info.update(title="new", cost=100))
    assert session.read(SESSION)["cost"] == 0.75
    session.remove(ANSWER)
    assert (session.read(SESSION)["cost"], session.read(SESSION)["tokens"]) == (0, new_tokens())


def test_the_agent_and_model_of_a_prompt_are_noted_on_its_session(session: OpencodeDB) -> None:
    info = session.read(SESSION)
    assert info["agent"] == "build"
    assert info["model"] == {"id": "scripted", "providerID": "fake", "variant": "default"}


def test_a_row_never_keeps_its_time_when_it_changes(session: OpencodeDB, path: Path) -> None:
    execute(path, "UPDATE part SET time_updated = 9999999999999")
    session.write(TEXT, new_text(text="changed"))
    assert select(path, "SELECT time_updated FROM part") == [(10000000000000,)]


def test_an_update_changes_only_the_columns_that_the_edit_changed(session: OpencodeDB, path: Path) -> None:
    def edit(info: dict[str, Any]) -> None:
        info["title"] = "ours"

    session.update(SESSION, edit)
    execute(path, "UPDATE session SET time_archived = 7, share_url = 'u'")
    session.update(SESSION, edit)
    session.update(SESSION, lambda info: info["time"].update(updated=9))
    assert session.read(SESSION)["time"] == {"created": 1, "updated": 9, "archived": 7}
    assert session.read(SESSION)["share"] == {"url": "u"}


# -- removals and moves ------------------------------------------------------------------------------------------------


def test_a_removed_session_leaves_nothing(session: OpencodeDB, path: Path) -> None:
    session.write(("todo", "ses_1"), [{"content": "a", "status": "pending", "priority": "low"}])
    session.write(("session_share", "ses_1"), {"id": "i", "secret": "s", "url": "u"})
    session.remove(SESSION)
    assert list(session.list()) == [("project", PROJECT)]
    for table in ("message", "part", "todo", "session_share", "event", "event_sequence"):
        assert select(path, f"SELECT count(*) FROM {table}") == [(0,)], table


def test_a_session_moves_to_another_project_with_everything(session: OpencodeDB) -> None:
    with session.batch() as batch:
        batch.remove(SESSION)
        batch.write(("session", "global", "ses_1"), new_session(project="global"))
    assert session.list(("session",)) == [("session", "global", "ses_1")]
    assert len(session.messages("ses_1")) == 1
    assert session.read(("project", "global"))["worktree"] == "/"


def test_diffs_are_files_beside_the_database(session: OpencodeDB, path: Path) -> None:
    key = ("session_diff", "ses_1")
    session.write(key, [{"file": "a"}])
    assert json.loads((path.parent / "storage" / "session_diff" / "ses_1.json").read_text()) == [{"file": "a"}]
    (path.parent / "storage" / "session_diff" / "ses_other.json").write_text("[]")
    assert session.read(key) == [{"file": "a"}]
    assert session.list(("session_diff",)) == [key]
    assert dict(session.scan(("session_diff",))) == {key: [{"file": "a"}]}
    session.update(key, lambda diffs: diffs.clear())
    assert session.read(key) == []
    execute(path, """UPDATE session SET summary_diffs = '[{"file":"old"}]'""")
    assert session.read(key) == [{"file": "old"}]
    session.write(key, [1])
    assert session.read(key) == [1]
    session.remove(key)
    with pytest.raises(NotFoundError):
        session.read(key)


# -- databases that are only read --------------------------------------------------------------------------------------

UNKNOWN = {
    "a column": ("ALTER TABLE message ADD COLUMN later TEXT", "table message has an unknown later TEXT"),
    "a default": ("ALTER TABLE event ADD COLUMN created INTEGER NOT NULL DEFAULT 0", "created INTEGER! = 0"),
    "a renamed table": ("ALTER TABLE todo RENAME TO todos", "no table todo"),
    "a missing column": ("ALTER TABLE session DROP COLUMN revert", "table session lacks revert TEXT"),
    "a trigger": ("CREATE TRIGGER t AFTER INSERT ON part BEGIN SELECT 1; END", "the trigger t"),
    "a migration": ("INSERT INTO migration VALUES ('20270101000000_future', 1)", "20270101000000_future"),
    "2.x": (
        "CREATE TABLE session_v2 (id TEXT PRIMARY KEY, project_id TEXT, time_created INTEGER, time_updated INTEGER)",
        "session_v2",
    ),
    "a missing index": ("DROP INDEX event_aggregate_seq_idx", "lacks UNIQUE (aggregate_id, seq)"),
    "a view": ("CREATE VIEW titles AS SELECT title FROM session", "the view titles"),
    "a hidden column": ("ALTER TABLE part ADD COLUMN size TEXT AS (length(data))", "unknown size TEXT"),
    "a check": ("ALTER TABLE todo ADD COLUMN x TEXT CHECK (x <> '')", "unknown CLAUSE CHECK"),
    "a journal of another kind": ("ALTER TABLE migration RENAME COLUMN id TO name", "table migration lacks id"),
    "a unique index": ("CREATE UNIQUE INDEX u ON session (slug)", "unknown UNIQUE (slug)"),
}


@pytest.mark.parametrize(("statement", "reason"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_tables_are_read_and_not_written(statement: str, reason: str, tmp_path: Path) -> None:
    path = copy_database(tmp_path)
    execute(path, statement)
    with OpencodeDB(path) as store:
        assert not store.writable
        assert reason in store.refusal
        assert store.list(("session",)) or "session_v2" in statement
        for attempt in (
            lambda: store.write(SESSION, new_session()),
            lambda: store.remove(SESSION),
            lambda: store.update(SESSION, lambda info: None),
        ):
            with pytest.raises(ReadOnlyStoreError, match=r"OpenCode 1\.2 to 1\.18") as caught:
                attempt()
            assert reason in caught.value.message
    assert select(path, "SELECT 1 FROM session WHERE id = 'ses_1'") == []


@pytest.mark.parametrize(("statement", "reason"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_tables_that_change_while_the_store_is_open_are_examined_again(
    session: OpencodeDB, path: Path, statement: str, reason: str
) -> None:
    assert session.writable
    execute(path, statement)
    with pytest.raises(ReadOnlyStoreError) as caught:
        session.write(TEXT, new_text(text="too late"))
    assert reason in caught.value.message
    assert not session.writable
    assert session.read(TEXT)["text"] == "hi"


def test_a_write_waits_until_the_migrations_of_another_program_seem_to_be_over(session: OpencodeDB, path: Path) -> None:
    begun = time.monotonic()
    execute(path, "CREATE INDEX another ON message (time_updated)")
    session.write(TEXT, new_text(text="later"))
    assert time.monotonic() - begun >= MIGRATION_PAUSE_SECONDS


def test_columns_that_are_computed_from_json_do_not_hide_a_database(tmp_path: Path) -> None:
    path = copy_database(tmp_path)
    with OpencodeDB(path) as store:
        parts = list(store.scan(("part",)))
        execute(path, "ALTER TABLE part ADD COLUMN kind TEXT AS (json_extract(data, '$.type'))")
        with pytest.raises(ReadOnlyStoreError, match=r"unknown kind TEXT|unsafe use of json_extract"):
            store.write(TEXT, new_text())
    with OpencodeDB(path) as store:
        assert list(store.scan(("part",))) == parts
        assert "unknown kind TEXT" in store.refusal


def test_a_file_that_is_replaced_is_opened_again(tmp_path: Path) -> None:
    path = empty_database(tmp_path, V1_2)
    with OpencodeDB(path) as store:
        store.write(SESSION, new_session(agent="build"))
        assert "agent" not in store.read(SESSION)
        newer = empty_database(tmp_path / "newer")
        for suffix in ("-wal", "-shm"):
            os.unlink(f"{path}{suffix}")
        os.replace(newer, path)
        store.write(SESSION, new_session(agent="build"))
        assert store.read(SESSION)["agent"] == "build"


def test_a_file_that_is_replaced_is_examined_again(tmp_path: Path) -> None:
    path = empty_database(tmp_path)
    other = empty_database(tmp_path / "other")
    execute(other, "CREATE TABLE x (y)", "DROP TABLE x", "CREATE TRIGGER t AFTER INSERT ON part BEGIN SELECT 1; END")
    execute(path, "CREATE TABLE x (y)", "DROP TABLE x", "CREATE TABLE z (y)")
    assert select(path, "PRAGMA schema_version") == select(other, "PRAGMA schema_version")
    with OpencodeDB(path) as store:
        store.write(SESSION, new_session())
        aside = path.rename(tmp_path / "aside.db")
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
        with pytest.raises(StoreError, match="no such file"):
            store.read(SESSION)
        other.rename(path)
        with pytest.raises(ReadOnlyStoreError, match="the trigger t"):
            store.write(SESSION, new_session())
        assert store.list(("session",)) == []


# -- beside other writers ----------------------------------------------------------------------------------------------


def test_a_lock_that_another_program_keeps_is_named_and_nothing_is_written(path: Path) -> None:
    writer = SqliteWriter(str(path), busy_seconds=0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"locked by another program for 0\.1 seconds"), writer.transaction():
            pytest.fail("the lock was not respected")
        other.execute("ROLLBACK")
    with writer.transaction() as connection:
        connection.execute("DELETE FROM todo")
    writer.close()


def test_a_lock_is_waited_for(session: OpencodeDB, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
        timer.start()
        session.write(TEXT, new_text(text="later"))
        timer.join()
    assert session.read(TEXT)["text"] == "later"


def test_threads_and_objects_lose_no_update(path: Path) -> None:
    with OpencodeDB(path) as store:
        store.write(SESSION, new_session(title=""))

    def work(letter: str) -> None:
        with OpencodeDB(path) as mine:
            for _ in range(25):
                mine.update(SESSION, lambda info: info.update(title=info["title"] + letter))

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with OpencodeDB(path) as store:
        assert sorted(store.read(SESSION)["title"]) == sorted("abcd" * 25)
    assert len(events(path)) == 101
    assert_sound(path)


def test_a_full_disk_changes_nothing(session: OpencodeDB, path: Path) -> None:
    pages = select(path, "PRAGMA page_count")[0][0]
    with session._transactions.begin() as (connection, _):  # pyright: ignore[reportPrivateUsage]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        session.write(TEXT, new_text(text="x" * 10_000_000))
    assert session.read(TEXT)["text"] == "hi"


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        *(((3, 40, 1), False), ((3, 45, 0), False), ((3, 50, 4), False), ((3, 51, 2), False)),
        *(((3, 44, 6), True), ((3, 50, 7), True), ((3, 51, 3), True), ((3, 53, 0), True)),
    ],
)
def test_versions_of_sqlite_that_checkpoint_safely(version: tuple[int, ...], safe: bool) -> None:
    assert checkpoints_safely(version) is safe


def test_the_write_ahead_log_stays_small(session: OpencodeDB, path: Path) -> None:
    for number in range(400):
        session.write(TEXT, new_text(text=f"{number}" * 5_000))
    assert os.path.getsize(f"{path}-wal") < 30_000_000


# -- locks of other programs -------------------------------------------------------------------------------------------

HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


@contextmanager
def locked_by_another_process(path: Path) -> Generator[Callable[[], None]]:
    command = (sys.executable, "-c", HOLD_LOCK, str(path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "locked\n"

        def release() -> None:
            process.communicate("\n")

        try:
            yield release
        finally:
            process.kill()


def test_a_lock_that_lasts_is_named_and_nothing_is_changed(session: OpencodeDB, path: Path) -> None:
    (entry,) = Library(store=session).sessions()
    before = dict(session.scan(()))
    with OpencodeDB(path, write_busy_seconds=0.05) as waiting, locked_by_another_process(path) as release:
        reason = f"{path}: locked by another program for 0.05 seconds. Try again when it is done. Nothing was changed."
        for change in (
            lambda: waiting.write(ANSWER, new_answer()),
            lambda: trash.remove(waiting, [entry.record]),
            lambda: trash.archive(waiting, [entry.record]),
        ):
            with pytest.raises(StoreError) as raised:
                change()
            assert str(raised.value) == reason
        assert dict(waiting.scan(())) == before
        assert trash.changes_made(waiting) == []
        release()
        waiting.write(ANSWER, new_answer())
        assert dict(session.scan(())).keys() == before.keys() | {ANSWER}


@pytest.mark.parametrize("seconds", [0.2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_write_waits_for_the_lock_of_another_program(session: OpencodeDB, path: Path, seconds: float) -> None:
    with locked_by_another_process(path) as release, ThreadPoolExecutor() as pool:
        writing = pool.submit(session.write, ANSWER, new_answer())
        with pytest.raises(TimeoutError):
            writing.result(timeout=seconds)
        release()
        writing.result()
    assert session.read(ANSWER)["id"] == ANSWER[-1]


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_has_its_path_within_the_checkout_as_opencode_stores_it(store: OpencodeDB, tmp_path: Path) -> None:
    top, below = tmp_path / "checkout", tmp_path / "checkout" / "a" / "b"
    other = tmp_path / "other" / "c"
    for folder in (below, other):
        folder.mkdir(parents=True)

    def location(folder: Path, checkout: Path) -> ProjectLocation:
        return ProjectLocation(str(folder), "global", str(checkout), str(checkout), "git")

    def paths() -> list[str | None]:
        return [path for (path,) in select(Path(store.place), "SELECT path FROM session ORDER BY rowid")]

    Sessions(store, location(top, top)).create()
    nested = Sessions(store, location(below, top))
    nested.fork(nested.create().id)
    Sessions(store, location(other, Path("/"))).create()
    Sessions(store, location(other, top)).create()
    assert paths() == ["", "a/b", "a/b", str(other).lstrip("/"), None]
    moving.move(store, list(nested.list()), str(other))
    assert {*paths()} <= {str(other).lstrip("/"), None}


def test_a_session_in_a_tree_has_no_path(tmp_path: Path) -> None:
    location = ProjectLocation(str(tmp_path), "global", str(tmp_path), str(tmp_path), "git")
    assert "path" not in Sessions(JsonTree(tmp_path / "storage"), location).create().document
