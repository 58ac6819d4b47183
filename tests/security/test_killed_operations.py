from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.cli.main import run
from opensesh.history.library import Library
from opensesh.sessions import moving, trash
from opensesh.storage import open_store, paths
from opensesh.storage.leases import leases_of
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample, contents

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.move")
_DIED = 86
_KINDS = ("session/", "message/", "part/")


def die_at(point: int, act: Callable[[], object]) -> bool:
    """Run ``act`` in a child process that ends at its ``point``-th change of the disk; return whether it got there."""
    child = os.fork()
    if child == 0:
        left = [point]

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            is_write = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & os.O_CREAT)
            if event in _CHANGES or is_write:
                left[0] -= 1
                if left[0] == 0:
                    os._exit(_DIED)

        sys.addaudithook(hook)
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == _DIED


def sessions_in(root: Path) -> list[tuple[str, int]]:
    return sorted((entry.id, entry.messages) for entry in Library(str(root)).sessions())


def records_in(root: Path) -> dict[str, bytes]:
    files = contents(root).items()
    return {path: data for path, data in files if path.startswith(_KINDS) and "/." not in path}


Act = Callable[[Path, str], object]


def remove(root: Path, session: str) -> object:
    store = open_store(str(root))
    return trash.remove(store, [Library(store=store).session(session).record])


def archive(root: Path, session: str) -> object:
    store = open_store(str(root))
    return trash.archive(store, [Library(store=store).session(session).record])


def move(root: Path, session: str) -> object:
    store = open_store(str(root))
    return moving.move(store, [Library(store=store).session(session).record], str(root.parent))


@pytest.mark.parametrize("act", [remove, archive, move])
@pytest.mark.parametrize("then", [None, "restore"])
def test_m1_a_killed_operation_is_completed_or_undone_by_the_next_command(
    sample: Sample, terminal: Terminal, tmp_path: Path, act: Act, then: str | None
) -> None:
    session = sample.talk("Work", answers=2)["id"]
    sample.talk("Other", answers=1)
    before = records_in(sample.root)
    whole = sessions_in(sample.root)
    kept = tmp_path / "kept"
    shutil.copytree(sample.root, kept)
    for point in range(1, 400):
        shutil.rmtree(sample.root)
        shutil.rmtree(paths.state(), ignore_errors=True)
        shutil.copytree(kept, sample.root)
        if then:
            act(sample.root, session)
            done = records_in(sample.root)
            store = open_store(str(sample.root))
            undo = trash.changes_made(store)[0]
            died = die_at(point, lambda undo=undo, store=store: trash.restore(undo, store=store))
        else:
            done = None
            died = die_at(point, lambda: act(sample.root, session))
        terminal.run("list", "--archived")
        assert terminal.code == 0
        after = records_in(sample.root)
        if done is None and after == before:
            assert sessions_in(sample.root) == whole
        elif done is None:
            assert all(entry in whole for entry in sessions_in(sample.root)), point
            assert len(sessions_in(sample.root)) == 1 or act is not remove
        else:
            assert after in (before, done), point
        assert terminal.run("doctor")
        assert terminal.code == 0, (point, terminal.error)
        if not died:
            return
    pytest.fail("it never ends")


def test_m1_what_another_process_is_doing_is_left_alone(sample: Sample, terminal: Terminal) -> None:
    session = sample.talk("Work")["id"]
    remove(sample.root, session)
    terminal.run("session", "trash")
    assert "1 session in the trash" in terminal.error
    terminal.run("session", "restore", "last")
    assert terminal.code == 0
    assert len(sessions_in(sample.root)) == 1


def test_l8_archiving_a_session_that_is_being_run_is_refused(sample: Sample, terminal: Terminal) -> None:
    session = sample.talk("Work")["id"]
    with leases_of(open_store(str(sample.root))).acquire(session, "test"):
        terminal.run("session", "archive", session)
        assert terminal.code == 4, terminal.error
        terminal.run("session", "archive", session, "--undo")
    assert run(["session", "archive", session]) == 0
