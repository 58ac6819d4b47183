"""Every command on databases with content that real ones have after years: nothing fails, and nothing is lost."""

from __future__ import annotations

import io
import json
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from opensesh.cli.main import run

from ..storage.opencode_databases import V1_2, V1_18, assert_sound, copy_database, execute, select

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "(SELECT id FROM session ORDER BY id LIMIT 1)"
LAST = "(SELECT id FROM session ORDER BY id DESC LIMIT 1)"
PART = f"(SELECT p.id FROM part p WHERE p.session_id = {FIRST} ORDER BY p.id LIMIT 1)"
CHILD = (
    "INSERT INTO session (id, project_id, parent_id, slug, directory, title, version, time_created, time_updated) "
    "SELECT 'ses_child', project_id, id, '', '/gone', 'ünïcode 🎉 \u202e', '', 1, 2 FROM session LIMIT 1"
)
PROJECT = "INSERT OR IGNORE INTO project (id, worktree, time_created, time_updated, sandboxes) VALUES "
ODD = {
    "a child of nothing": CHILD.replace("project_id, id,", "project_id, 'ses_nowhere',"),
    "a child": CHILD,
    "sessions of a project that is gone": "DELETE FROM project",
    "two projects in one folder": f"{PROJECT}('other', (SELECT worktree FROM project LIMIT 1), 1, 1, '[]')",
    "the global project in a folder": f"{PROJECT}('global', '/srv', 1, 1, '[]')",
    "archived at the beginning of time": f"UPDATE session SET time_archived = 0 WHERE id = {FIRST}",
    "a share without a record": f"UPDATE session SET share_url = 'https://example.invalid/s' WHERE id = {FIRST}",
    "an unknown part": f'UPDATE part SET data = \'{{"type":"hologram","x":[1]}}\' WHERE id = {PART}',
    "a part that is not JSON": f"UPDATE part SET data = 'x' WHERE id = {PART}",
    "a large text": f"UPDATE part SET data = json_set(data, '$.text', printf('%.*c', 3000000, 'x')) WHERE id = {PART}",
    "a compaction that never ended": f"UPDATE session SET time_compacting = 5 WHERE id = {FIRST}",
    "a revert to a message that is gone": f'UPDATE session SET revert = \'{{"messageID":"msg_x"}}\' WHERE id = {LAST}',
    "permissions": 'UPDATE session SET permission = \'[{"permission":"*","pattern":"*","action":"deny"}]\'',
    "no title": "UPDATE session SET title = '', slug = '', version = ''",
    "times of zero": "UPDATE session SET time_created = 0, time_updated = 0",
}
CASES = [
    pytest.param(source, sql, id=f"{name}, {version}")
    for version, source in (("1.18", V1_18), ("1.2", V1_2))
    for name, sql in ODD.items()
]


@pytest.mark.parametrize(("source", "sql"), CASES)
def test_every_command_works_on_an_odd_database(
    source: Path, sql: str, isolated: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_database(isolated / ".local" / "share" / "opencode", source)
    execute(path, "PRAGMA foreign_keys = OFF", sql)
    monkeypatch.chdir(isolated)
    sessions = [name for (name,) in select(path, "SELECT id FROM session ORDER BY id")]
    messages = select(path, "SELECT id FROM message ORDER BY id")

    def opensesh(*words: str, codes: tuple[int, ...] = (0,)) -> str:
        code = run([*words, "--quiet"])
        printed = capsys.readouterr()
        assert code in codes, (words, printed.out[-500:], printed.err)
        return printed.out

    listed = json.loads(opensesh("list", "--archived", "--children", "--json"))
    assert listed
    for session in sessions:
        opensesh("show", session)
        opensesh("export", session, "-o", str(isolated / "x.md"))
    opensesh("projects")
    opensesh("stats")
    opensesh("search", "the", codes=(0, 1))
    if run(["doctor", "--quiet"]):  # rows that OpenCode cannot read either: nothing is copied before they are repaired
        opensesh("doctor", "--fix")
    capsys.readouterr()
    for session in (sessions[0], sessions[-1]):
        opensesh("session", "rename", session, "renamed")
        opensesh("session", "archive", session)
        opensesh("session", "archive", "--undo", session)
        opensesh("session", "fork", session)
    assert [name for (name,) in select(path, "SELECT id FROM session") if name in sessions]
    opensesh("session", "remove", sessions[0], "--yes")
    assert select(path, "SELECT id FROM session WHERE id = ?", sessions[0]) == []
    opensesh("session", "restore", sessions[0])
    assert {name for (name,) in messages} <= {name for (name,) in select(path, "SELECT id FROM message")}
    opensesh("doctor", "--fix")
    assert_sound(path)


def test_a_prompt_says_that_opencode_will_not_show_it_where_the_database_is_only_read(
    isolated: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_database(isolated / ".local" / "share" / "opencode")
    execute(path, "CREATE TRIGGER t AFTER INSERT ON part BEGIN SELECT 1; END")
    monkeypatch.chdir(isolated)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert run(["run", "SAY hello", "-m", "scripted/prompt"]) == 0
    error = capsys.readouterr().err
    assert f"New sessions go to {path.parent / 'storage'}: {path} is only read: it has the trigger t." in error
    assert "OpenCode will not show this one." in error
    [session] = select(path, "SELECT id FROM session LIMIT 1")[0]
    assert run(["session", "remove", session, "--yes"]) == 5
    assert "in a database that is only read: it has the trigger t" in capsys.readouterr().err


def test_a_prompt_says_nothing_of_the_database_of_another_channel_that_is_only_read(
    isolated: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_database(isolated / ".local" / "share" / "opencode")
    channel = path.with_name("opencode-beta.db")
    shutil.copy(path, channel)
    execute(channel, "CREATE TRIGGER t AFTER INSERT ON part BEGIN SELECT 1; END")
    monkeypatch.chdir(isolated)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert run(["run", "SAY hello", "-m", "scripted/prompt", "--title", "new"]) == 0
    assert "OpenCode will not show this one." not in capsys.readouterr().err
    assert select(path, "SELECT count(*) FROM session WHERE title = 'new'") == [(1,)]


def test_a_table_that_is_not_known_is_not_damaged(
    isolated: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_database(isolated / ".local" / "share" / "opencode")
    execute(path, "ALTER TABLE message RENAME COLUMN data TO body")
    monkeypatch.chdir(isolated)
    for command in ("list", "projects", "doctor", "stats"):
        assert run([command]) == 0
        printed = capsys.readouterr()
        assert "damaged" not in printed.out + printed.err
