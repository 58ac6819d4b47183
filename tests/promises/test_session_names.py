from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.errors import BusyError, NotFoundError
from opensesh.project import resolve
from opensesh.sessions import Sessions, trash
from opensesh.storage import open_store
from opensesh.storage.leases import leases_of
from opensesh.storage.memory import Memory
from tests.cli.running import Screen, Terminal
from tests.workspace.project_setup import new_repository


@pytest.fixture
def projects(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders:
        folder.mkdir()
    for folder in folders[:2]:
        monkeypatch.chdir(folder)
        script = 'CALL write {"filePath": "f", "content": "x"}\n---\nSAY done'
        terminal.run("run", "--quiet", "--title", f"Work in {folder.name}", "-m", "scripted/prompt", script)
        assert (folder / "f").exists()
    return folders


def test_promise_8_last_is_the_newest_session_of_this_project(
    terminal: Terminal, projects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = projects
    monkeypatch.chdir(first)
    terminal.run("session", "revert", "last", "--yes")
    assert terminal.code == 0
    assert ((first / "f").exists(), (second / "f").exists()) == (False, True)


def test_promise_8_last_is_the_newest_session_of_this_clone_or_worktree(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = new_repository(tmp_path / "first")
    second, third = first / "clone", tmp_path / "third"
    subprocess.run(["git", "clone", "-q", first, second], check=True)
    subprocess.run(["git", "worktree", "add", "-q", third], cwd=first, check=True)
    for folder in (first, third, second):
        monkeypatch.chdir(folder)
        script = 'CALL write {"filePath": "f", "content": "x"}\n---\nSAY done'
        terminal.run("run", "--quiet", "--title", f"Work in {folder.name}", "-m", "scripted/prompt", script)
    (first / "inside").mkdir()
    monkeypatch.chdir(first / "inside")
    result = terminal.json("run", "-c", "-m", "scripted/prompt", "SAY continued")
    assert terminal.json("show", "last")["info"]["id"] == result["sessionID"]
    assert terminal.json("show", "last")["info"]["title"] == "Work in first"
    monkeypatch.chdir(third)
    terminal.run("session", "revert", "last", "--yes")
    assert [(folder / "f").exists() for folder in (first, second, third)] == [True, True, False]
    terminal.run("session", "remove", "last", "--yes")
    assert terminal.json("show", "last")["info"]["title"] == "Work in first", "the newest of the project"


def test_promise_8_where_a_project_has_no_session_last_names_the_newest_elsewhere(
    terminal: Terminal, projects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(projects[2])
    terminal.run("session", "revert", "last", "--yes")
    assert terminal.code == 3
    assert f"{projects[2]} has none" in terminal.error
    assert "(Work in second)" in terminal.error
    assert str(projects[1]) in terminal.error
    assert (projects[1] / "f").exists()


def test_promise_8_a_command_names_session_title_and_folder_before_it_asks(
    screen: Callable[..., Screen], terminal: Terminal, projects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(projects[0])
    session = terminal.json("show", "last")["info"]["id"]
    for words in (("session", "revert", "last"), ("session", "remove", "last")):
        asked = screen(*words, columns=200)
        asked.until("[y/N]")
        line = next(line for line in asked.text.splitlines() if session in line)
        assert "Work in first" in line
        assert "first" in line.rpartition("  ")[2]
    planned = terminal.json("session", "revert", "last", "--dry-run")
    assert (planned["sessionID"], planned["title"]) == (session, "Work in first")
    assert planned["directory"] == str(projects[0])
    removal = terminal.json("session", "remove", "last", "--dry-run")
    named = {"sessionID": session, "title": "Work in first", "directory": str(projects[0])}
    assert removal["named"] == [named]


def test_promise_8_a_session_that_is_being_run_is_neither_removed_nor_purged(tmp_path: Path) -> None:
    sessions = Sessions(open_store(str(tmp_path / "store")), resolve(tmp_path))
    root = sessions.create(title="root")
    child = sessions.create(title="child", parent_id=root.id)
    with leases_of(sessions.store).acquire(child.id, "a test"):
        for remove in (sessions.remove, sessions.purge):
            with pytest.raises(BusyError):
                remove(root.id)
    assert {session.id for session in sessions.list()} == {root.id, child.id}


def test_promise_8_a_removed_session_is_in_the_trash_until_it_is_restored(tmp_path: Path) -> None:
    sessions = Sessions(open_store(str(tmp_path / "store")), resolve(tmp_path))
    session = sessions.create(title="root")
    undo = sessions.remove(session.id)
    with pytest.raises(NotFoundError):
        sessions.get(session.id)
    trash.restore(undo)
    assert sessions.get(session.id) == session
    sessions.purge(session.id)
    assert list(sessions.list()) == []


def test_a_session_in_memory_can_be_removed_and_restored(tmp_path: Path) -> None:
    sessions = Sessions(Memory(), resolve(tmp_path))
    session = sessions.create(title="root")
    undo = sessions.remove(session.id)
    assert list(sessions.list()) == []
    trash.restore(undo, store=sessions.store)
    assert sessions.get(session.id) == session
