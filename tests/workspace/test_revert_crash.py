from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.store import JsonTree
from opensesh.workspace.revert import Reverts
from opensesh.workspace.revert_journal import RevertTrash
from opensesh.workspace.snapshots import Snapshots

from ..harness import ProcessGroup
from .project_setup import Workspace, contents, creates, deletes, edits, new_repository, write, writes


class Died(BaseException):
    """The process is no more."""


class DyingDisk(Disk):
    """Dies at its ``point``-th operation, and does nothing from then on: the dead do not tidy up."""

    def __init__(self, point: int) -> None:
        super().__init__(durable=False)
        self.left = point

    def open_new(self, path: str) -> int:
        self._reach()
        return super().open_new(path)

    def write(self, descriptor: int, data: bytes) -> None:
        if self.left == 1:
            super().write(descriptor, data[: len(data) // 2])
        self._reach()
        super().write(descriptor, data)

    def rename(self, old: str, new: str) -> None:
        self._reach()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._reach()
        super().unlink(path)

    def _reach(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Died


class RevertSetup:
    """A session of two turns in a project, always as it was at the start unless a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder / "home", new_repository(folder / "work"))
        workspace = self.workspace
        write(workspace.folder, {".gitignore": "*.env\n", "a.env": "KEY=1\n"})
        self.at_first = contents(workspace.folder)
        self.session = workspace.session()
        self.first = workspace.prompt(self.session)
        workspace.step(self.session, self.first, writes({"new.txt": "1\n"}), edits("a.env", "KEY=2\n"))
        self.halfway = contents(workspace.folder)
        self.second = workspace.prompt(self.session)
        workspace.step(
            self.session, self.second, writes({"new.txt": "2\n", "README.md": "x\n"}), creates("b.env", "B=1\n")
        )
        workspace.step(self.session, self.second, deletes("src/main.py"))
        self.at_last = contents(workspace.folder)

    @property
    def files(self) -> dict[str, str]:
        return contents(self.workspace.folder)

    @property
    def point(self) -> str | None:
        revert = self.workspace.sessions.get(self.session).revert
        return revert.message_id if revert else None

    def dying(self, point: int) -> Reverts:
        disk = DyingDisk(point)
        store = JsonTree(self.workspace.home / "data" / "storage", disk=disk)
        sessions = Sessions(store, self.workspace.place)
        return Reverts(sessions, self.workspace.snapshots, disk=disk)

    def dies(self, act: Callable[[Reverts], Any], point: int) -> bool:
        try:
            act(self.dying(point))
        except Died:
            return True
        return False


@pytest.fixture(scope="module")
def revert_setup(tmp_path_factory: pytest.TempPathFactory) -> RevertSetup:
    return RevertSetup(tmp_path_factory.mktemp("revert_setup"))


def sweep(revert_setup: RevertSetup, act: Callable[[Reverts], Any], check: Callable[[int], None]) -> int:
    """Let ``act`` die at every point, and ``check`` each time; how many points there were."""
    point = 1
    while revert_setup.dies(act, point):
        check(point)
        point += 1
    return point - 1


def test_a_revert_that_died_anywhere_is_finished_or_never_happened(revert_setup: RevertSetup) -> None:
    expected = {None: revert_setup.at_last, revert_setup.second: revert_setup.halfway}
    seen: set[str | None] = set()

    def check(point: int) -> None:
        reverts = revert_setup.workspace.reverts
        match point % 3:
            case 0:
                reverts.recover(revert_setup.session)
                assert revert_setup.files == expected[revert_setup.point]
                seen.add(revert_setup.point)
            case 1:
                reverts.revert(revert_setup.session, revert_setup.second)
                assert revert_setup.files == revert_setup.halfway
            case _:
                pass
        reverts.unrevert(revert_setup.session)
        assert revert_setup.files == revert_setup.at_last
        assert revert_setup.point is None

    points = sweep(revert_setup, lambda reverts: reverts.revert(revert_setup.session, revert_setup.second), check)
    assert points >= 20
    assert seen == {None, revert_setup.second}
    revert_setup.workspace.reverts.unrevert(revert_setup.session)
    assert revert_setup.files == revert_setup.at_last


def test_an_undoing_that_died_anywhere_is_finished_or_never_happened(revert_setup: RevertSetup) -> None:
    expected = {None: revert_setup.at_last, revert_setup.second: revert_setup.halfway}
    reverts = revert_setup.workspace.reverts
    reverts.revert(revert_setup.session, revert_setup.second)

    def check(point: int) -> None:
        if point % 2:
            reverts.recover(revert_setup.session)
            assert revert_setup.files == expected[revert_setup.point]
        reverts.revert(revert_setup.session, revert_setup.second)
        assert revert_setup.files == revert_setup.halfway

    assert sweep(revert_setup, lambda reverts: reverts.unrevert(revert_setup.session), check) >= 15
    assert revert_setup.files == revert_setup.at_last
    assert revert_setup.point is None


def test_a_revert_that_died_while_it_moved_on_stands_at_one_of_both_points(revert_setup: RevertSetup) -> None:
    expected = {revert_setup.first: revert_setup.at_first, revert_setup.second: revert_setup.halfway}
    reverts = revert_setup.workspace.reverts
    reverts.revert(revert_setup.session, revert_setup.second)

    def check(point: int) -> None:
        reverts.recover(revert_setup.session)
        assert revert_setup.files == expected[revert_setup.point or ""]
        if point % 2:
            reverts.unrevert(revert_setup.session)
            assert revert_setup.files == revert_setup.at_last
        reverts.revert(revert_setup.session, revert_setup.second)
        assert revert_setup.files == revert_setup.halfway

    assert sweep(revert_setup, lambda reverts: reverts.revert(revert_setup.session, revert_setup.first), check) >= 15
    assert revert_setup.files == revert_setup.at_first
    reverts.unrevert(revert_setup.session)
    assert revert_setup.files == revert_setup.at_last


def test_a_cleaning_that_died_anywhere_can_be_run_again_and_loses_nothing(plain: Workspace) -> None:
    workspace = plain
    sessions = workspace.sessions

    def converse() -> tuple[str, str, list[str]]:
        session = workspace.session()
        workspace.step(session, workspace.prompt(session))
        second = workspace.prompt(session)
        workspace.step(session, second, creates("a.txt", "a\n"))
        workspace.step(session, second)
        workspace.reverts.revert(session, second)
        return session, second, [item.info["id"] for item in workspace.history(session)]

    point = 0
    died = True
    while died:
        point += 1
        session, second, names = converse()
        disk = DyingDisk(point)
        store = JsonTree(workspace.home / "data" / "storage", disk=disk)
        dying = Reverts(Sessions(store, workspace.place), workspace.snapshots, disk=disk)
        try:
            dying.cleanup(session)
            died = False
        except Died:
            left = [item.info["id"] for item in workspace.history(session)]
            assert left == names[: len(left)]
            assert second in left or len(left) == 2
            workspace.reverts.cleanup(session)
        assert [item.info["id"] for item in workspace.history(session)] == names[:2]
        assert sessions.get(session).revert is None
        kept = list((workspace.state / "trash").rglob(f"{session}/*/messages.json"))
        assert all(name in "".join(path.read_text() for path in kept) for name in names[2:])
    assert point > 15


def revert_and_wait(tell: Any, home: str, folder: str, session: str, message: str) -> None:
    """Reverts with a disk that stops before the first file of the project is touched, and waits to be killed."""

    class Waiting(Disk):
        def rename(self, old: str, new: str) -> None:
            if new.startswith(os.path.join(folder, "")):
                tell("about to touch a file")
                time.sleep(60)
            super().rename(old, new)

    location = resolve(folder)
    sessions = Sessions(JsonTree(os.path.join(home, "data", "storage")), location)
    snapshots = Snapshots(location, data=os.path.join(home, "data"))
    Reverts(sessions, snapshots, disk=Waiting()).revert(session, message)


def test_a_process_killed_between_journal_and_files_leaves_a_revert_that_can_be_finished(tmp_path: Path) -> None:
    revert_setup = RevertSetup(tmp_path)
    with ProcessGroup() as processes:
        child = processes.start(
            revert_and_wait,
            str(revert_setup.workspace.home),
            str(revert_setup.workspace.folder),
            revert_setup.session,
            revert_setup.second,
        )
        child.wait_for()
        child.kill()
    assert revert_setup.files != revert_setup.halfway
    assert revert_setup.point == revert_setup.second
    assert revert_setup.workspace.reverts.recover(revert_setup.session)
    assert revert_setup.files == revert_setup.halfway
    assert not revert_setup.workspace.reverts.recover(revert_setup.session)
    revert_setup.workspace.reverts.unrevert(revert_setup.session)
    assert revert_setup.files == revert_setup.at_last


def test_a_file_that_is_changed_before_a_dead_revert_is_finished_is_left_alone(tmp_path: Path) -> None:
    revert_setup = RevertSetup(tmp_path)
    point = 1
    while (
        revert_setup.dies(lambda reverts: reverts.revert(revert_setup.session, revert_setup.second), point)
        and revert_setup.point is None
    ):
        point += 1
    write(revert_setup.workspace.folder, {"README.md": "the user's own\n"})
    revert_setup.workspace.reverts.recover(revert_setup.session)
    assert revert_setup.files == revert_setup.halfway | {"README.md": "the user's own\n"}


def test_commits_within_one_millisecond_keep_a_copy_each(plain: Workspace) -> None:
    session = plain.session()
    plain.step(session, plain.prompt(session))
    trash = RevertTrash(plain.sessions)
    folders = [trash.add_messages(session, {}, plain.history(session)) for _ in range(50)]
    assert len(set(folders)) == 50
    assert len(trash.of_session(session)) == 50
