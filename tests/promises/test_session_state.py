from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage import paths
from opensesh.storage.registry import open_store

from ..cli.running import Terminal
from ..storage.opencode_databases import empty_database

SCRIPTED = ("run", "--quiet", "--yes", "-m", "scripted/prompt")
WRITE = 'CALL write {"filePath":"z.txt","content":"z"}\n---\nSAY ok'
FILE = Path("z.txt")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    (folder / "storage").mkdir(parents=True)
    monkeypatch.setenv("OPENSESH_STORE", str(folder))
    return folder


def session_with_state(terminal: Terminal) -> str:
    # A final revert, an undone compaction and a revert in effect.
    terminal.run(*SCRIPTED, "SAY one")
    terminal.run("session", "revert", "last", "--yes")
    terminal.run(*SCRIPTED, "-c", "SAY two")
    terminal.run("session", "compact", "last")
    terminal.run("session", "compact", "last", "--undo")
    terminal.run(*SCRIPTED, "-c", WRITE)
    FILE.write_text("mine")  # so that a forced revert keeps a copy
    terminal.run("session", "revert", "last", "--yes", "--force")
    assert terminal.code == 0, terminal.error
    return str(terminal.json("list")["sessions"][0]["id"])


def kept_of(session_id: str) -> list[str]:
    kinds = ("reverts", "trash", "undone_compactions", "removed_calls")
    return [kind for kind in kinds if list((Path(paths.state()) / kind).glob(f"*/{session_id}"))]


def remove_and_empty(terminal: Terminal) -> None:
    terminal.run("session", "remove", "last", "--yes")
    terminal.run("session", "trash", "--empty", "--yes")
    assert terminal.code == 0, terminal.error


def purge(terminal: Terminal) -> None:
    store = open_store()
    Sessions(store, resolve(".")).purge(terminal.json("list")["sessions"][0]["id"])


@pytest.mark.parametrize("delete", [remove_and_empty, purge])
@pytest.mark.parametrize("stores", ["tree", "tree and database"])
def test_promise_6_nothing_is_kept_of_a_session_that_was_deleted_for_good(
    data: Path, terminal: Terminal, stores: str, delete: Callable[[Terminal], None]
) -> None:
    if stores == "tree and database":
        empty_database(data)
    session_id = session_with_state(terminal)
    assert kept_of(session_id) == ["reverts", "trash", "undone_compactions", "removed_calls"]
    delete(terminal)
    assert kept_of(session_id) == []


def test_promise_6_a_restored_session_has_its_revert_and_its_undone_compaction(data: Path, terminal: Terminal) -> None:
    empty_database(data)
    session_with_state(terminal)
    terminal.run("session", "remove", "last", "--yes")
    terminal.run("session", "restore", "last")
    terminal.run("session", "unrevert", "last", "--yes")
    assert (terminal.code, FILE.read_text()) == (0, "mine"), terminal.error
    terminal.run("session", "compact", "last", "--redo")
    assert terminal.code == 0, terminal.error


@pytest.mark.parametrize("change", ["a database is added", "the tree is opened alone"])
def test_promise_6_a_revert_can_be_undone_however_the_data_folder_is_opened(
    data: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    FILE.write_text("before")
    session_in_tree = ("--store", str(data / "storage")) if change != "a database is added" else ()
    terminal.run(*SCRIPTED, *session_in_tree, WRITE.replace("CALL", 'CALL read {"filePath":"z.txt"}\n---\nCALL', 1))
    if change == "the tree is opened alone":
        empty_database(data)
    terminal.run("session", "revert", "last", "--yes")
    assert FILE.read_text() == "before", terminal.error
    if change == "a database is added":
        empty_database(data)
    else:
        monkeypatch.setenv("OPENSESH_STORE", str(data / "storage"))
    terminal.run("session", "unrevert", "last", "--yes")
    assert (terminal.code, FILE.read_text()) == (0, "z"), terminal.error
    terminal.run("session", "revert", "last", "--yes")
    assert FILE.read_text() == "before", terminal.error
