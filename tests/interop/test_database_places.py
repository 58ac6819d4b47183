"""Databases and folders of odd kinds that people have: opensesh runs in each, and OpenCode shows what it ran."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import assert_sound, select
from .opencode import DATABASE, OpenCode, new_repository
from .sides import EvenModel
from .test_database import opensesh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

REMOTE = "git@Example.com:me/Thing.git"


@pytest.fixture(scope="module")
def wire() -> Iterator[WireServer]:
    with WireServer(EvenModel.prompted()) as server:
        yield server


def git(folder: Path, *words: str) -> None:
    subprocess.run(("git", *words), cwd=folder, check=True, timeout=60, capture_output=True)


def ask_opencode(opencode: OpenCode, folder: Path, title: str) -> str:
    """Have OpenCode run a prompt in a new session of a folder."""
    opencode.directory = folder
    session = opencode.create(title)["id"]
    opencode.prompt(session, "SAY theirs.")
    opencode.settle()
    return session


def assert_shared(opencode: OpenCode, folder: Path, *known: str) -> None:
    """Assert that both programs list and continue the same sessions in a folder."""
    title = f"ours in {folder.name}"
    opensesh(opencode, "run", "SAY ours.", "--title", title, cwd=folder)
    opensesh(opencode, "run", "SAY again.", "--continue", cwd=folder)
    opencode.directory = folder
    listed = {info["id"]: info["title"] for info in opencode.list(limit=1000)}
    [session] = [name for name, shown in listed.items() if shown == title]
    assert {*known} <= listed.keys()
    assert len(opencode.show(session)) == 4
    opencode.prompt(session, "SAY theirs.")
    for name in known:
        opensesh(opencode, "run", "SAY ours.", "--session", name, cwd=folder)
        assert len(opencode.show(name)) >= 4
    ours = json.loads(opensesh(opencode, "list", "--json", cwd=folder))["sessions"]
    assert {entry["id"] for entry in ours} >= {session, *known}


@pytest.mark.slow
def test_folders_of_every_kind_are_shared(wire: WireServer, tmp_path: Path) -> None:
    work = new_repository(tmp_path / "with space ünï 漢")
    with OpenCode(tmp_path / "opencode", wire, version=DATABASE, directory=work) as opencode:
        first = ask_opencode(opencode, work, "first")
        (work / "sub folder").mkdir()
        (tmp_path / "link").symlink_to(work)
        linked = tmp_path / "linked"
        git(work, "worktree", "add", "-q", str(linked))
        nested = new_repository(work / "sub folder" / "nested", {"N.md": "n"})
        plain = tmp_path / "plain $HOME 'quoted'"
        plain.mkdir()
        assert_shared(opencode, work, first)
        assert_shared(opencode, work / "sub folder", first)
        assert_shared(opencode, linked, first)
        assert_shared(opencode, tmp_path / "link")
        assert_shared(opencode, nested, ask_opencode(opencode, nested, "nested"))
        assert_shared(opencode, plain, ask_opencode(opencode, plain, "plain"))
        assert_sound(opencode.database)


@pytest.mark.slow
def test_a_project_that_was_moved_removed_or_has_become_a_repository_is_shared(
    wire: WireServer, tmp_path: Path
) -> None:
    work = new_repository(tmp_path / "work")
    with OpenCode(tmp_path / "opencode", wire, version=DATABASE, directory=work) as opencode:
        first = ask_opencode(opencode, work, "first")
        plain = tmp_path / "plain"
        plain.mkdir()
        early = ask_opencode(opencode, plain, "before git")
        opensesh(opencode, "run", "SAY ours.", "--title", "ours before git", cwd=plain)
        new_repository(plain)
        opensesh(opencode, "run", "SAY ours.", "--title", "ours after git", cwd=plain)
        opencode.stop()
        moved = work.rename(tmp_path / "moved")
        opencode.directory = moved
        opencode.start()
        assert_shared(opencode, moved)
        opensesh(opencode, "run", "SAY ours.", "--session", first, "--dir", str(moved), cwd=moved)
        assert len(opencode.show(first)) == 4
        assert_shared(opencode, plain, early)
        titles = {info["title"] for info in opencode.list(limit=1000)}
        assert {"ours before git", "ours after git"} <= titles
        shutil.rmtree(plain)
        for words in (("projects",), ("stats",), ("list",), ("search", "theirs"), ("show", early), ("export", early)):
            opensesh(opencode, *words, cwd=moved)
        opensesh(opencode, "session", "rename", early, "of a folder that is gone", cwd=moved)
        opensesh(opencode, "session", "archive", early, cwd=moved)
        opensesh(opencode, "session", "remove", early, "--yes", cwd=moved)
        opensesh(opencode, "session", "restore", early, cwd=moved)
        assert select(opencode.database, "SELECT title FROM session WHERE id = ?", early) == [
            ("of a folder that is gone",)
        ]
        opensesh(opencode, "doctor", "--fix", cwd=moved)
        assert_sound(opencode.database)


@pytest.mark.slow
def test_a_project_that_an_older_opencode_identified_is_shared_before_and_after_it_is_moved(
    wire: WireServer, tmp_path: Path
) -> None:
    root, work = tmp_path / "opencode", new_repository(tmp_path / "work")
    remote = new_repository(tmp_path / "remote", {"A.md": "a"})
    git(remote, "remote", "add", "origin", REMOTE)
    with OpenCode(root, wire, version="1.14.41", directory=remote) as opencode:
        first = ask_opencode(opencode, remote, "by root commit")
    with OpenCode(root, wire, version="1.15.13", directory=work) as opencode:
        ask_opencode(opencode, work, "elsewhere")
        opensesh(opencode, "run", "SAY ours.", "--title", "ours before", cwd=remote)
        projects = "SELECT DISTINCT project_id FROM session WHERE directory = ?"
        assert len(select(opencode.database, projects, str(remote))) == 1
        assert_shared(opencode, remote, first)
        assert "ours before" in {info["title"] for info in opencode.list(limit=1000)}
        assert len(select(opencode.database, projects, str(remote))) == 1
        assert_sound(opencode.database)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["opencode-local.db", "elsewhere.db"])
def test_a_database_of_another_name_is_shared(wire: WireServer, tmp_path: Path, name: str) -> None:
    work = new_repository(tmp_path / "work")
    with OpenCode(
        tmp_path / "opencode", wire, version=DATABASE, directory=work, environment={"OPENCODE_DB": name}
    ) as opencode:
        first = ask_opencode(opencode, work, "first")
        assert not opencode.database.exists()
        assert_shared(opencode, work, first)
        assert_sound(opencode.data / name)


@pytest.mark.slow
def test_a_log_that_a_killed_opencode_left_is_read_and_continued(wire: WireServer, tmp_path: Path) -> None:
    work = new_repository(tmp_path / "work")
    with OpenCode(tmp_path / "opencode", wire, version=DATABASE, directory=work) as opencode:
        first = ask_opencode(opencode, work, "first")
        opencode.kill()
        log = opencode.database.with_name("opencode.db-wal")
        assert log.stat().st_size > 0
        shared_memory = opencode.database.with_name("opencode.db-shm")
        shared_memory.unlink()
        assert "theirs." in opensesh(opencode, "show", first)
        opensesh(opencode, "run", "SAY ours.", "--session", first)
        opencode.start()
        assert_shared(opencode, work, first)
        assert_sound(opencode.database)
