from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import InvalidKeyError, NotFoundError, RecordError, StoreError
from opensesh.records import Project, Session, read_message, read_part, view
from opensesh.storage.opencode_db.sqlite_reader import SqliteReader, file_uri
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.opencode_db.tables import PAGE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from opensesh.storage.protocol import Damage, Store

FIXTURES = Path(__file__).parents[1] / "fixtures"
V1_18 = FIXTURES / "opencode-1.18.33"
V1_2 = FIXTURES / "opencode-1.2" / "opencode.db"
PROJECT = "6909399b254c721579bd193635882646b4739c16"

SCHEMA = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text, icon_url text, icon_color text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_initialized integer, sandboxes text NOT NULL);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
  directory text NOT NULL, title text NOT NULL, version text NOT NULL, share_url text, summary_additions integer,
  summary_deletions integer, summary_files integer, summary_diffs text, revert text, permission text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE todo (session_id text NOT NULL, content text NOT NULL, status text NOT NULL, priority text NOT NULL,
  position integer NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL,
  PRIMARY KEY (session_id, position));
CREATE TABLE session_share (session_id text PRIMARY KEY, id text NOT NULL, secret text NOT NULL, url text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE INDEX message_session_idx ON message (session_id);
CREATE INDEX part_message_idx ON part (message_id);
CREATE INDEX part_session_idx ON part (session_id);
"""
"""As the first release with a database made it."""


class Writer:
    """Plays OpenCode 1.2.0 on one database."""

    def __init__(self, path: Path, *, wal: bool = False) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        if wal:
            self.connection.execute("PRAGMA journal_mode = WAL")
        if not self.connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            self.connection.executescript(SCHEMA)

    def insert(self, table: str, **row: object) -> None:
        holes = ", ".join("?" for _ in row)
        self.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({holes})", [*row.values()])

    def session(self, name: str = "ses_1", **columns: object) -> None:
        row = {"project_id": "p1", "slug": "a-b", "directory": "/d", "title": "T", "version": "1.2.0"}
        self.insert("session", **{"id": name, **row, "time_created": 1, "time_updated": 2, **columns})

    def message(self, name: str, data: object = None, *, session: str = "ses_1", at: object = 1) -> None:
        kept = {"role": "user", "time": {"created": at}} if data is None else data
        text = json.dumps(kept) if isinstance(kept, (dict, list)) else kept
        self.insert("message", id=name, session_id=session, time_created=at, time_updated=at, data=text)

    def part(self, name: str, data: object = None, *, message: str = "msg_1", session: str = "ses_1") -> None:
        kept = {"type": "text", "text": name} if data is None else data
        text = json.dumps(kept) if isinstance(kept, (dict, list)) else kept
        row = {"id": name, "message_id": message, "session_id": session}
        self.insert("part", **row, time_created=1, time_updated=1, data=text)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "opencode.db")
    yield made
    made.connection.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "opencode.db", wal=True)
    yield made
    made.connection.close()


@pytest.fixture
def store() -> Iterator[OpencodeDB]:
    with OpencodeDB(V1_18 / "opencode.db") as opened:
        yield opened


@pytest.fixture
def api() -> dict[str, Any]:
    return json.loads((V1_18 / "api.json").read_text())


def spelled(value: object) -> str:
    """With the order of keys, and whole numbers as JavaScript writes them."""
    return json.dumps(value).replace(".0,", ",").replace(".0}", "}")


def test_sessions_are_what_the_server_answers(store: OpencodeDB, api: dict[str, Any]) -> None:
    result = {key[2]: document for key, document in store.scan(("session",))}
    assert result.keys() == {session["id"] for session in api["/session"]}
    for session in api["/session"]:
        assert spelled(result[session["id"]]) == spelled(session)
        assert store.read(("session", session["projectID"], session["id"])) == session
        view(result[session["id"]], Session)


def test_projects_todos_and_children_are_what_the_server_answers(store: OpencodeDB, api: dict[str, Any]) -> None:
    projects = [document for _, document in store.scan(("project",))]
    assert spelled(projects) == spelled(api["/project"])
    assert view(projects[0], Project).worktree == "/srv/dev/eastore"
    for path, answer in api.items():
        session_id, _, what = path.removeprefix("/session/").partition("/")
        if what == "todo":
            assert spelled(store.read(("todo", session_id))) == spelled(answer)
        if what == "children":
            sessions = [document for _, document in store.scan(("session",))]
            assert spelled([session for session in sessions if session.get("parentID") == session_id]) == spelled(
                answer
            )


def test_messages_are_what_the_server_answers(store: OpencodeDB, api: dict[str, Any]) -> None:
    compared = 0
    for path, answer in api.items():
        if path.endswith("/message"):
            result = store.messages(path.split("/")[2])
            assert spelled([{"info": info, "parts": parts} for info, parts in result]) == spelled(answer)
            for info, parts in result:
                read_message(info)
                compared += len([read_part(part) for part in parts])
    assert compared > 20


def test_every_key_of_a_real_database_can_be_read(store: OpencodeDB) -> None:
    keys = store.list()
    assert list(keys) == sorted(keys)
    assert {
        kind: sum(key[0] == kind for key in keys) for kind in ("project", "session", "message", "part", "todo")
    } == {
        "project": 1,
        "session": 13,
        "message": 54,
        "part": 139,
        "todo": 1,
    }
    assert [(key, store.read(key)) for key in keys] == list(store.scan(()))


def test_what_opencode_imported_from_a_tree_reads_like_the_tree() -> None:
    root = FIXTURES / "opencode-1.1.65" / "storage"
    tree = {path.relative_to(root).with_suffix("").parts: path for path in root.rglob("*.json")}
    imported = {key: path for key, path in tree.items() if key[0] in ("project", "session", "message", "part")}
    with OpencodeDB(V1_2) as opened:
        result = {key: value for key, value in opened.scan(()) if key not in (("project", "global"),)}
        for key, path in imported.items():
            assert result.pop(key) == json.loads(path.read_text())
        ((todo, lines),) = result.items()
        expected = json.loads(tree[todo].read_text())
        assert lines == [{name: value for name, value in line.items() if name != "id"} for line in expected]


@pytest.mark.parametrize("path", [V1_2, V1_18 / "opencode.db"])
def test_the_last_few_are_the_end_of_all(path: Path) -> None:
    with OpencodeDB(path) as opened:
        for _, _, session_id in opened.list(("session",)):
            everything = list(opened.messages(session_id))
            assert len(everything) == len(opened.list(("message", session_id)))
            for last in range(1, len(everything) + 2):
                assert opened.messages(session_id, last=last) == everything[-last:]


def test_the_first_layout_gives_documents_of_the_tree(writer: Writer) -> None:
    writer.session(
        parent_id="ses_0",
        share_url="https://example.test/s/1",
        summary_additions=3,
        revert='{"messageID":"msg_9"}',
        permission='[{"permission":"bash","pattern":"*","action":"ask"}]',
        time_compacting=7,
        time_archived=8,
    )
    with OpencodeDB(writer.path) as opened:
        assert spelled(opened.read(("session", "p1", "ses_1"))) == spelled(
            {
                "id": "ses_1",
                "slug": "a-b",
                "projectID": "p1",
                "directory": "/d",
                "parentID": "ses_0",
                "summary": {"additions": 3, "deletions": 0, "files": 0},
                "share": {"url": "https://example.test/s/1"},
                "title": "T",
                "version": "1.2.0",
                "time": {"created": 1, "updated": 2, "compacting": 7, "archived": 8},
                "permission": [{"permission": "bash", "pattern": "*", "action": "ask"}],
                "revert": {"messageID": "msg_9"},
            }
        )


def test_a_plain_session_has_only_what_it_has(writer: Writer) -> None:
    writer.session(share_url="")
    with OpencodeDB(writer.path) as opened:
        document = opened.read(("session", "p1", "ses_1"))
    assert list(document) == ["id", "slug", "projectID", "directory", "title", "version", "time"]
    assert document["time"] == {"created": 1, "updated": 2}


def test_columns_that_a_version_lacks_are_fields_that_its_documents_lack(tmp_path: Path) -> None:
    bare = sqlite3.connect(tmp_path / "opencode.db")
    bare.executescript(
        "CREATE TABLE session (id text, project_id text, time_created integer, cost real, tokens_input integer);"
        "INSERT INTO session VALUES ('ses_1', 'p1', 5, 0.5, 7);"
        "CREATE TABLE project (id text, icon_color text);"
        "INSERT INTO project VALUES ('p1', 'red');"
    )
    bare.close()
    with OpencodeDB(tmp_path / "opencode.db") as opened:
        assert opened.read(("session", "p1", "ses_1")) == {
            "id": "ses_1",
            "projectID": "p1",
            "cost": 0.5,
            "tokens": {"input": 7, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "time": {"created": 5},
        }
        assert opened.read(("project", "p1")) == {"id": "p1", "icon": {"color": "red"}, "time": {}, "sandboxes": []}
        assert opened.messages("ses_1") == []
        assert opened.list(("todo",)) == []
        with pytest.raises(NotFoundError):
            opened.read(("session_diff", "ses_1"))


def test_a_project_has_its_icon_commands_and_sandboxes(writer: Writer) -> None:
    writer.connection.execute("ALTER TABLE project ADD COLUMN commands text")
    writer.connection.execute("ALTER TABLE project ADD COLUMN icon_url_override text")
    row = {"worktree": "/w", "vcs": "git", "name": "N", "icon_url": "data:,x", "icon_url_override": "data:,y"}
    times = {"time_created": 1, "time_updated": 2, "time_initialized": 3}
    writer.insert("project", id="p1", **row, **times, sandboxes='["/w2"]', commands='{"start":"make"}')
    with OpencodeDB(writer.path) as opened:
        assert spelled(opened.read(("project", "p1"))) == spelled(
            {
                "id": "p1",
                "worktree": "/w",
                "vcs": "git",
                "name": "N",
                "icon": {"url": "data:,x", "override": "data:,y"},
                "commands": {"start": "make"},
                "time": {"created": 1, "updated": 2, "initialized": 3},
                "sandboxes": ["/w2"],
            }
        )


def test_folders_of_windows_are_spelled_as_there(writer: Writer) -> None:
    writer.connection.execute("ALTER TABLE session ADD COLUMN path text")
    writer.session(directory="C:/Users/me/app/src", path="src/deep")
    writer.session("ses_2", directory="/home/me", path="src/deep")
    writer.session("ses_3", directory="C:/Users/me")
    times = {"time_created": 1, "time_updated": 2}
    writer.insert("project", id="p1", worktree="C:/Users/me/app", sandboxes='["D:/other"]', **times)
    with OpencodeDB(writer.path) as opened:
        session = opened.read(("session", "p1", "ses_1"))
        assert (session["directory"], session["path"]) == ("C:\\Users\\me\\app\\src", "src\\deep")
        assert opened.read(("session", "p1", "ses_2"))["path"] == "src/deep"
        assert "path" not in opened.read(("session", "p1", "ses_3"))
        project = opened.read(("project", "p1"))
    assert (project["worktree"], project["sandboxes"]) == ("C:\\Users\\me\\app", ["D:\\other"])


def test_what_only_an_odd_program_would_write_is_read_as_it_is(writer: Writer) -> None:
    for column in ("path", "metadata"):
        writer.connection.execute(f"ALTER TABLE session ADD COLUMN {column} text")
    writer.session(path="src/deep", metadata='{"by":"me"}')
    writer.connection.execute("ALTER TABLE session DROP COLUMN directory")
    writer.insert("project", id="p1", worktree="/w", sandboxes='["C:/w", 7, null]', time_created=1, time_updated=2)
    with OpencodeDB(writer.path) as opened:
        session = opened.read(("session", "p1", "ses_1"))
        assert (session["path"], session["metadata"], "directory" in session) == ("src/deep", {"by": "me"}, False)
        assert opened.read(("project", "p1"))["sandboxes"] == ["C:\\w", 7, None]


def test_diffs_todos_and_shares_have_keys_of_their_own(writer: Writer) -> None:
    writer.session(summary_diffs='[{"file":"a.txt","additions":1,"deletions":2}]')
    writer.session("ses_2")
    for position, content in ((2, "last"), (0, "first"), (1, "between")):
        line = {"content": content, "status": "pending", "priority": "low", "position": position}
        writer.insert("todo", session_id="ses_1", **line, time_created=1, time_updated=1)
    share = {"id": "shr_1", "secret": "hush", "url": "https://example.test/1"}
    writer.insert("session_share", session_id="ses_1", **share, time_created=1, time_updated=1)
    with OpencodeDB(writer.path) as opened:
        assert opened.read(("session_diff", "ses_1")) == [{"file": "a.txt", "additions": 1, "deletions": 2}]
        assert [line["content"] for line in opened.read(("todo", "ses_1"))] == ["first", "between", "last"]
        assert opened.read(("session_share", "ses_1")) == share
        assert dict(opened.scan(("todo",))).keys() == {("todo", "ses_1")}
        for kind in ("session_diff", "todo", "session_share"):
            assert opened.list((kind,)) == [(kind, "ses_1")]
            with pytest.raises(NotFoundError, match=f"{kind}/ses_2"):
                opened.read((kind, "ses_2"))


@pytest.mark.parametrize(
    "key",
    [
        ("session", PROJECT, "ses_none"),
        ("session", "global", "ses_e1f501dccffeBWcHbXB47ZZgOH"),
        ("session", PROJECT),
        ("project", PROJECT, "more"),
        ("message", "ses_none", "msg_1e0afe7f900116ACxDvfGFz32o"),
        ("part", "msg_none", "prt_none"),
        ("session_diff", "ses_e1f501dccffeBWcHbXB47ZZgOH"),
        ("session_share", "ses_e1f501dccffeBWcHbXB47ZZgOH"),
        ("account", "acc_1"),
        ("migration",),
    ],
)
def test_what_is_not_there_is_not_found(store: OpencodeDB, key: tuple[str, ...]) -> None:
    with pytest.raises(NotFoundError) as caught:
        store.read(key)
    assert caught.value.data["key"] == list(key)


@pytest.mark.parametrize("key", [(), ("message", "../x"), ("session", ""), ("part", "a/b", "c"), ("todo", "x" * 201)])
def test_a_key_that_could_not_be_a_path_is_refused(store: OpencodeDB, key: tuple[str, ...]) -> None:
    with pytest.raises(InvalidKeyError):
        store.read(key)
    if key:
        with pytest.raises(InvalidKeyError):
            store.list(key)
        with pytest.raises(InvalidKeyError):
            store.scan(key)
    with pytest.raises(InvalidKeyError):
        store.messages("../ses_1")


@pytest.mark.parametrize(
    "prefix", [("session", PROJECT, "ses_e1f501dccffeBWcHbXB47ZZgOH"), ("project", PROJECT), ("event",), ("todo", "x")]
)
def test_nothing_is_below_a_record_or_an_unknown_name(store: OpencodeDB, prefix: tuple[str, ...]) -> None:
    assert store.list(prefix) == []
    assert list(store.scan(prefix)) == []


def test_a_prefix_narrows_list_and_scan(store: OpencodeDB) -> None:
    session_id = "ses_e1f501dccffeBWcHbXB47ZZgOH"
    expected = [key for key in store.list(("message",)) if key[1] == session_id]
    assert store.list(("message", session_id)) == expected
    assert [key for key, _ in store.scan(("message", session_id))] == expected
    assert store.list(("session", "elsewhere")) == []
    assert store.messages("ses_none") == []


def test_a_record_is_located_by_file_table_and_row(store: Store) -> None:
    assert store.place == str(V1_18 / "opencode.db")
    assert store.locate(("part", "msg_1", "prt_1")) == f"{store.place}#part/prt_1"


ODD = ["a b", "100%", "per%20cent", "hash#tag", "a&b=c;d", "ünï-日本-🎈"] + ["what?mode=rwc", "file:x"] * (
    os.name != "nt"
)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_opened(tmp_path: Path, name: str) -> None:
    folder = tmp_path / f"in {name}"
    folder.mkdir()
    shutil.copy(V1_2, folder / f"{name}.db")
    with OpencodeDB(folder / f"{name}.db") as opened:
        assert len(opened.list(("session",))) == 13
    assert os.listdir(folder) == [f"{name}.db"]


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_name_that_is_not_utf8_is_opened(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.db")
    shutil.copy(V1_2, tmp_path / name)
    with OpencodeDB(tmp_path / name) as opened:
        assert len(opened.list(("session",))) == 13


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/data/ä b?#%.db", "file:///data/%C3%A4%20b%3F%23%25.db"),
        ("C:/Users/me/opencode.db", "file:///C:/Users/me/opencode.db"),
    ],
)
def test_a_file_is_named_to_sqlite_as_it_wants_it(path: str, uri: str) -> None:
    assert file_uri(path) == uri


def test_a_relative_name_is_opened_and_stays_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(V1_2, tmp_path / "opencode.db")
    monkeypatch.chdir(tmp_path)
    with OpencodeDB("opencode.db") as opened:
        assert opened.place == str(tmp_path / "opencode.db")


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as caught, OpencodeDB(path, busy_seconds=0.05) as opened:
        list(opened.scan(()))
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.data["path"] == str(path)
    return str(caught.value)


def test_what_is_not_a_database_is_refused_by_name(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.db")
    assert "folder" in refusal(tmp_path)
    for name, content, reason in (
        ("text.db", b"not a database, just text\n" * 99, "not an SQLite database"),
        ("empty.db", b"", "it has no tables yet. OpenCode makes them when it starts; start it once."),
        ("header.db", V1_2.read_bytes()[:60], "damaged"),
        ("half.db", V1_2.read_bytes()[:100_000], "damaged"),
    ):
        (tmp_path / name).write_bytes(content)
        assert reason in refusal(tmp_path / name)


def test_damage_inside_the_file_is_reported_and_not_raised_as_it_comes(tmp_path: Path) -> None:
    data = bytearray(V1_2.read_bytes())
    for page in range(4, len(data) // 4096, 2):
        data[page * 4096 : page * 4096 + 2048] = os.urandom(2048)
    (tmp_path / "opencode.db").write_bytes(data)
    assert "damaged" in refusal(tmp_path / "opencode.db")


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "places.db")) as other:
        other.execute("CREATE TABLE bookmarks (url text)")
    reason = "an SQLite database, but not one of OpenCode's: it has no table of sessions"
    assert refusal(tmp_path / "places.db") == f"{tmp_path / 'places.db'}: {reason}"


def test_damage_that_sqlite_quotes_is_reported_though_it_is_not_text(writer: Writer) -> None:
    writer.connection.execute("CREATE TABLE odd (id text)")
    writer.connection.execute("PRAGMA writable_schema = ON")
    writer.connection.execute("UPDATE sqlite_master SET name = CAST(x'6fff' AS TEXT) WHERE name = 'odd'")
    assert "damaged (malformed database schema (o\N{REPLACEMENT CHARACTER}" in refusal(writer.path)


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ("message RENAME COLUMN data TO payload", "its table message is not read, as it has no data"),
        ("part RENAME TO parts", "it has no table part"),
        ("project RENAME COLUMN id TO uuid", "its table project is not read, as it has no id"),
    ],
)
def test_the_other_tables_are_read_where_one_is_not_known(
    change: str, warning: str, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    writer.session()
    writer.message("msg_1")
    writer.connection.execute(f"ALTER TABLE {change}")
    with OpencodeDB(writer.path) as store:
        assert store.read(("session", "p1", "ses_1"))["title"] == "T"
        assert len(store.messages("ses_1")) == (0 if "message" in change else 1)
        assert list(store.scan(())) != []
        assert not store.writable
    assert warning in caplog.text


def test_a_lock_that_stays_is_reported(writer: Writer) -> None:
    writer.connection.execute("BEGIN EXCLUSIVE")
    assert "locked by another program for 0.05 seconds. Try again when it is done." in refusal(writer.path)


def test_a_lock_taken_later_is_reported_and_passes(writer: Writer) -> None:
    writer.session()
    with OpencodeDB(writer.path, busy_seconds=0.05) as opened:
        writer.connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="locked"):
            opened.list()
        writer.connection.execute("ROLLBACK")
        assert opened.list(("session",)) == [("session", "p1", "ses_1")]


def test_a_change_that_was_cut_short_is_reported(tmp_path: Path) -> None:
    shutil.copy(V1_2, tmp_path / "opencode.db")
    with closing(sqlite3.connect(tmp_path / "opencode.db", isolation_level=None)) as writing:
        writing.execute("PRAGMA cache_size = 1")
        writing.execute("BEGIN")
        writing.execute("UPDATE part SET data = data || ' '")
        writing.execute("UPDATE message SET data = data || ' '")
        (tmp_path / "after").mkdir()
        for end in ("", "-journal"):
            shutil.copy(tmp_path / f"opencode.db{end}", tmp_path / "after")
    assert "cut short" in refusal(tmp_path / "after" / "opencode.db")


def test_values_of_the_wrong_kind_are_reported_by_column(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "opencode.db", isolation_level=None)) as loose:
        loose.executescript(
            "CREATE TABLE session (id, project_id, time_created, title, revert);"
            "INSERT INTO session VALUES ('ses_1', 'p1', 1, 7, NULL), ('ses_2', 'p1', 1, 't', 7),"
            "('ses_3', 'p1', 1.0, 't', NULL), ('ses_4', 'p1', NULL, 't', NULL), (5, 'p1', 1, 't', NULL);"
            "CREATE TABLE message (id, session_id, time_created, data);"
            "INSERT INTO message VALUES ('msg_1', 'ses_3', 1, 1.5), ('msg_2', 'ses_3', NULL, '{}');"
        )
    reported: list[Damage] = []
    with OpencodeDB(tmp_path / "opencode.db") as opened:
        ((key, session),) = opened.scan(("session",), report=reported.append)
        assert opened.messages("ses_3", report=reported.append) == []
    assert (key, session["time"]) == (("session", "p1", "ses_3"), {"created": 1})
    assert {damage.path.rpartition("/")[2]: damage.reason for damage in reported} == {
        "ses_1": "title: expected text, found 7",
        "ses_2": "revert: expected JSON, found 7",
        "ses_4": "time_created: expected milliseconds, found nothing",
        "msg_1": "data: expected JSON, found 1.5",
        "msg_2": "$.time.created: expected milliseconds, found nothing",
    }


def test_a_session_of_a_workspace_says_which(writer: Writer) -> None:
    writer.connection.execute("ALTER TABLE session ADD COLUMN workspace_id text")
    writer.session(workspace_id="wrk_1")
    with OpencodeDB(writer.path) as opened:
        assert opened.read(("session", "p1", "ses_1"))["workspaceID"] == "wrk_1"


def test_the_end_of_a_with_block_closes_the_store(writer: Writer) -> None:
    with OpencodeDB(writer.path) as opened:
        opened.list()
    with pytest.raises(StoreError, match="closed"):
        opened.list()


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="counts what the system lists there")
def test_nothing_stays_open_once_a_store_is_closed(writer: Writer) -> None:
    before = len(os.listdir("/dev/fd"))
    opened = [OpencodeDB(writer.path) for _ in range(3)]
    for item in opened:
        item.list()
        item.close()
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="counts what the system lists there")
def test_nothing_stays_open_of_a_database_that_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "places.db")) as other:
        other.execute("CREATE TABLE bookmarks (url text)")
    (tmp_path / "text.db").write_bytes(b"not a database, just text\n" * 99)
    before = len(os.listdir("/dev/fd"))
    caught: list[StoreError] = []
    for name in ("places.db", "text.db"):
        try:
            OpencodeDB(tmp_path / name)
        except StoreError as error:
            caught.append(error)  # and with it the frame that holds the half-made store
    assert len(caught) == 2
    assert len(os.listdir("/dev/fd")) == before


def test_functions_that_a_database_names_in_its_schema_are_not_trusted(writer: Writer) -> None:
    with SqliteReader(str(writer.path)).snapshot() as connection:
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)


def test_a_closed_store_says_so(writer: Writer) -> None:
    opened = OpencodeDB(writer.path)
    opened.close()
    opened.close()
    with pytest.raises(StoreError, match="closed"):
        opened.list()


def test_a_damaged_row_costs_that_row_alone(writer: Writer) -> None:
    writer.session()
    writer.message("msg_1")
    for name, data in (
        ("prt_torn", '{"type":"text","te'),
        ("prt_list", "[1, 2]"),
        ("prt_number", 17),
        ("prt_empty", ""),
        ("prt_bytes", b'{"type":"text","text":"\xff"}'),
        ("prt_good", '{"type":"text","text":"half \\ud83d of it"}'),
        ("prt_../up", '{"type":"text","text":"escapes"}'),
    ):
        writer.part(name, data)
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_1", report=reported.append)
        assert [part["text"] for part in message.parts] == ["half \ud83d of it"]
        again: list[Damage] = []
        assert [key[2] for key, _ in opened.scan(("part",), report=again.append)] == ["prt_good"]
        assert sorted(again) == sorted(reported)
        with pytest.raises(RecordError) as caught:
            opened.read(("part", "msg_1", "prt_torn"))
        assert ("part", "msg_1", "prt_torn") in opened.list(("part",))
        assert ("part", "msg_1", "prt_../up") not in opened.list(("part",))
    assert caught.value.path == f"{writer.path}#part/prt_torn"
    reasons = {damage.path.rpartition("#")[2]: damage.reason for damage in reported}
    assert reasons.keys() == {f"part/prt_{name}" for name in ("torn", "list", "number", "empty", "bytes", "../up")}
    assert "torn" in reasons["part/prt_torn"]
    assert "expected an object, found an array" in reasons["part/prt_list"]
    assert "expected an object, found a number" in reasons["part/prt_number"]
    assert "UTF-8" in reasons["part/prt_bytes"]
    assert reasons["part/prt_empty"] == "data: empty"
    assert "cannot be part of a storage key" in reasons["part/prt_../up"]


def test_a_name_that_is_not_text_costs_that_row_alone(writer: Writer) -> None:
    writer.message("msg_1")
    writer.message("msg_2")
    writer.connection.execute("UPDATE message SET id = CAST(x'6d73675fff' AS TEXT) WHERE id = 'msg_1'")
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        assert opened.list(("message",)) == [("message", "ses_1", "msg_2")]
        assert [key[2] for key, _ in opened.scan(("message",), report=reported.append)] == ["msg_2"]
    assert [damage.path for damage in reported] == [f"{writer.path}#message/msg_\ufffd"]


def test_damaged_messages_are_passed_over_when_the_last_few_are_asked_for(writer: Writer) -> None:
    for number in range(6):
        writer.message(f"msg_{number}", "{" if number in (3, 5) else None, at=number)
        writer.part(f"prt_{number}", message=f"msg_{number}")
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        result = opened.messages("ses_1", last=3, report=reported.append)
    assert [(info["id"], parts[0]["id"]) for info, parts in result] == [
        ("msg_1", "prt_1"),
        ("msg_2", "prt_2"),
        ("msg_4", "prt_4"),
    ]
    assert [damage.path.rpartition("/")[2] for damage in reported] == ["msg_5", "msg_3"]


def test_what_lies_before_the_last_few_is_not_even_looked_at(writer: Writer) -> None:
    for number in range(9):
        writer.message(f"msg_{number}", "{" if number < 6 else None, at=number)
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        result = opened.messages("ses_1", last=3, report=reported.append)
    assert [message.info["id"] for message in result] == ["msg_6", "msg_7", "msg_8"]
    assert reported == []


def test_numbers_are_spelled_and_ordered_as_the_server_does(writer: Writer) -> None:
    writer.connection.execute("ALTER TABLE session ADD COLUMN cost real")
    writer.session(cost=2.0)
    writer.session("ses_2", cost="free")
    tokens = {"cache": {"write": 5, "read": 4}, "reasoning": 3, "output": 2, "input": 1}
    writer.message("msg_1", {"role": "assistant", "time": {"created": 1}, "tokens": tokens})
    with OpencodeDB(writer.path) as opened:
        assert spelled(opened.read(("session", "p1", "ses_1"))["cost"]) == "2"
        with pytest.raises(RecordError, match="cost: expected a number, found 'free'"):
            opened.read(("session", "p1", "ses_2"))
        result = opened.read(("message", "ses_1", "msg_1"))["tokens"]
    ordered = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
    assert spelled(result) == spelled(ordered)


def test_a_damaged_session_is_reported_with_its_column(writer: Writer) -> None:
    writer.session("ses_1", revert="{")
    writer.session("ses_2", title=b"\xff\xff")
    writer.session("ses_3", time_created="yesterday")
    writer.session("ses_4", summary_diffs="{}")
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        assert [key[2] for key, _ in opened.scan(("session",), report=reported.append)] == ["ses_4"]
        with pytest.raises(RecordError, match="summary_diffs: expected an array"):
            opened.read(("session_diff", "ses_4"))
        with pytest.raises(RecordError, match="session/ses_2"):
            opened.read(("session", "p1", "ses_2"))
    assert [damage.path.rpartition("/")[2] for damage in reported] == ["ses_1", "ses_2", "ses_3"]
    assert [damage.reason.split(":")[0] for damage in reported] == ["revert, byte 1", "title", "time_created"]


def test_damage_is_logged_without_a_report(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    writer.message("msg_1", "{")
    with OpencodeDB(writer.path) as opened:
        assert opened.messages("ses_1") == []
        assert list(opened.scan(("message",))) == []
    assert len([record for record in caplog.records if "#message/msg_1" in record.getMessage()]) == 2


def test_a_message_that_does_not_say_when_has_the_time_of_its_row(writer: Writer) -> None:
    writer.message("msg_2", {"role": "user", "time": {"created": 20}}, at=20)
    writer.message("msg_1", {"role": "user"}, at=10)
    with OpencodeDB(writer.path) as opened:
        first, second = opened.messages("ses_1")
    assert (first.info["id"], first.info["time"]) == ("msg_1", {"created": 10})
    assert second.info["id"] == "msg_2"


def test_a_message_that_says_when_is_believed_before_its_row(writer: Writer) -> None:
    writer.message("msg_1", {"role": "user", "time": {"created": 5, "more": 6}}, at=77)
    with OpencodeDB(writer.path) as opened:
        assert opened.messages("ses_1")[0].info["time"] == {"created": 5, "more": 6}


def test_unknown_fields_are_kept_after_those_that_are_known(writer: Writer) -> None:
    writer.message("msg_1", {"glow": True, "time": {"created": 1}, "id": "forged", "role": "user"})
    writer.part("prt_1", {"hue": 3, "text": "t", "type": "text"})
    writer.part("prt_2", {"hue": 3, "type": "hologram"})
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_1")
    assert spelled(message.info) == spelled(
        {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1}, "glow": True}
    )
    assert [list(part)[3:] for part in message.parts] == [["type", "text", "hue"], ["type", "hue"]]


def test_order_holds_across_the_wrap_of_identifiers(writer: Writer, wrap_corpus: Path) -> None:
    session = "ses_0000037afffeUtcCVcW6jyYWWR"
    for path in (wrap_corpus / "storage" / "message").rglob("*.json"):
        data = json.loads(path.read_text())
        name = data.pop("id")
        writer.message(name, data, session=session, at=data["time"]["created"])
    for path in (wrap_corpus / "storage" / "part").rglob("*.json"):
        data = json.loads(path.read_text())
        name, message = data.pop("id"), data.pop("messageID")
        writer.part(name, data, message=message, session=session)
    with OpencodeDB(writer.path) as opened:
        everything = list(opened.messages(session))
        times = [info["time"]["created"] for info, _ in everything]
        assert times == sorted(times)
        names = [info["id"] for info, _ in everything]
        assert names != sorted(names)
        assert all(parts for _, parts in everything)
        assert opened.messages(session, last=3) == everything[-3:]


def test_names_of_one_moment_at_the_wrap_are_put_right(writer: Writer) -> None:
    wrap = 1786706395136
    before, after = "fffffffffff5" + "a" * 14, "000000000001" + "a" * 14
    writer.message(f"msg_{before}", at=wrap)
    writer.message(f"msg_{after}", at=wrap)
    for half in (after, before):
        writer.part(f"prt_{half}", message=f"msg_{after}")
    with OpencodeDB(writer.path) as opened:
        assert [info["id"] for info, _ in opened.messages("ses_1")] == [f"msg_{before}", f"msg_{after}"]
        (newest,) = opened.messages("ses_1", last=1)
    assert newest.info["id"] == f"msg_{after}"
    assert [part["id"] for part in newest.parts] == [f"prt_{before}", f"prt_{after}"]


def test_what_is_in_the_log_is_read_and_what_is_not_committed_is_not(live: Writer) -> None:
    live.session("ses_1")
    assert os.path.getsize(f"{live.path}-wal") > 0
    with OpencodeDB(live.path) as opened:
        assert len(opened.list(("session",))) == 1
        live.connection.execute("BEGIN IMMEDIATE")
        live.session("ses_2")
        assert len(opened.list(("session",))) == 1
        live.connection.execute("COMMIT")
        assert len(opened.list(("session",))) == 2


def test_a_scan_continues_while_others_write_and_holds_nothing_in_between(live: Writer) -> None:
    live.connection.execute("BEGIN")
    for number in range(PAGE * 2 + 5):
        live.part(f"prt_{number:05}")
    live.connection.execute("COMMIT")
    with OpencodeDB(live.path) as opened:
        records = opened.scan(("part",))
        seen = [next(records)[0][2] for _ in range(3)]
        live.part("prt_00000_behind")
        live.part("prt_99999_ahead")
        live.connection.execute("DELETE FROM part WHERE id = ?", (f"prt_{PAGE + 7:05}",))
        blocked, _, left = live.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert (blocked, left) == (0, 0)
        seen += [key[2] for key, _ in records]
    expected = [f"prt_{number:05}" for number in range(PAGE * 2 + 5) if number != PAGE + 7]
    assert seen == [*expected, "prt_99999_ahead"]


def test_a_broken_record_does_not_keep_the_log_from_being_folded_in(live: Writer) -> None:
    live.message("msg_1", "{")
    with OpencodeDB(live.path) as opened:
        with pytest.raises(RecordError) as caught:
            opened.read(("message", "ses_1", "msg_1"))
        live.message("msg_2")
        assert live.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert caught.value.place


def test_messages_and_their_parts_are_of_one_moment(live: Writer) -> None:
    stop = threading.Event()

    def write() -> None:
        busy = Writer(live.path)
        number = 0
        while not stop.is_set():
            busy.connection.execute("BEGIN IMMEDIATE")
            busy.message(f"msg_{number}", at=number)
            busy.part(f"prt_{number}", message=f"msg_{number}")
            if number:
                busy.connection.execute("DELETE FROM part WHERE message_id = ?", (f"msg_{number - 1}",))
                busy.connection.execute("DELETE FROM message WHERE id = ?", (f"msg_{number - 1}",))
            busy.connection.execute("COMMIT")
            number += 1
        busy.connection.close()

    thread = threading.Thread(target=write)
    with OpencodeDB(live.path) as opened:
        thread.start()
        try:
            seen: set[str] = set()
            while len(seen) < 20:
                for info, parts in opened.messages("ses_1"):
                    seen.add(info["id"])
                    assert [part["messageID"] for part in parts] == [info["id"]]
        finally:
            stop.set()
            thread.join()


def test_threads_share_a_store(store: OpencodeDB) -> None:
    sessions = [key[2] for key in store.list(("session",))]
    alone = ([store.messages(session) for session in sessions], list(store.scan(("part",))))

    def look(_: int) -> object:
        return [store.messages(session) for session in sessions], list(store.scan(("part",)))

    with ThreadPoolExecutor(8) as pool:
        assert all(result == alone for result in pool.map(look, range(16)))


@pytest.fixture
def database_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


@contextmanager
def sealed(folder: Path) -> Generator[None]:
    """The folder cannot be written to, not even by root if the tests are run by root."""
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        if not os.access(folder, os.X_OK):
            pytest.skip("the temporary folder is not open to others")
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
        for path in folder.iterdir():
            path.chmod(0o644)


has_permissions = pytest.mark.skipif(os.name == "nt", reason="folders have no such permissions there")


@has_permissions
def test_a_database_in_a_read_only_folder_is_read(database_folder: Path) -> None:
    made = Writer(database_folder / "opencode.db", wal=True)
    made.session()
    made.connection.close()
    assert os.listdir(database_folder) == ["opencode.db"]
    with sealed(database_folder), OpencodeDB(database_folder / "opencode.db") as opened:
        assert opened.list(("session",)) == [("session", "p1", "ses_1")]
    assert os.listdir(database_folder) == ["opencode.db"]


@has_permissions
def test_changes_that_cannot_be_read_there_are_not_passed_over_in_silence(database_folder: Path, live: Writer) -> None:
    live.session()
    for end in ("", "-wal"):
        shutil.copy(f"{live.path}{end}", database_folder)
    with sealed(database_folder), pytest.raises(StoreError, match="newest changes are still in the -wal"):
        OpencodeDB(database_folder / "opencode.db")
    with tempfile.TemporaryDirectory() as other_folder:
        os.chmod(other_folder, 0o755)
        link = Path(other_folder) / "opencode.db"
        link.symlink_to(database_folder / "opencode.db")
        with sealed(database_folder), pytest.raises(StoreError, match="newest changes are still in the -wal"):
            OpencodeDB(link)


@has_permissions
def test_a_log_left_behind_with_its_index_is_read_in_a_read_only_folder(database_folder: Path, live: Writer) -> None:
    live.session()
    for end in ("", "-wal", "-shm"):
        shutil.copy(f"{live.path}{end}", database_folder)
    with sealed(database_folder), OpencodeDB(database_folder / "opencode.db") as opened:
        assert opened.list(("session",)) == [("session", "p1", "ses_1")]


@has_permissions
def test_a_log_that_appears_later_is_noticed(database_folder: Path) -> None:
    made = Writer(database_folder / "opencode.db", wal=True)
    made.session()
    made.connection.close()
    with sealed(database_folder):
        opened = OpencodeDB(database_folder / "opencode.db")
    with opened, closing(sqlite3.connect(database_folder / "opencode.db", isolation_level=None)) as later:
        assert len(opened.list(("session",))) == 1
        for title in ("changed", "changed again"):
            later.execute("UPDATE session SET title = ?", (title,))
            assert opened.read(("session", "p1", "ses_1"))["title"] == title
        opened.close()
        with pytest.raises(StoreError, match="closed"):
            opened.list()


def test_a_store_that_is_let_go_of_closes_its_database(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as made:
        made.execute("CREATE TABLE session (id TEXT)")
    reader = SqliteReader(str(tmp_path / "opencode.db"))
    with reader.snapshot() as connection:
        pass
    del reader
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
