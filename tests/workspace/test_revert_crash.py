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
from opensesh.storage.json_tree import JsonTree
from opensesh.workspace.revert import Reverts
from opensesh.workspace.revert_journal import RevertTrash
from opensesh.workspace.snapshots import Snapshots

from ..harness import ProcessGroup
from .desk import Desk, contents, creates, deletes, edits, new_repository, write, writes


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


class Scene:
    """A session of two turns in a project, always as it was at the start unless a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder / "home", new_repository(folder / "work"))
        desk = self.desk
        write(desk.folder, {".gitignore": "*.env\n", "a.env": "KEY=1\n"})
        self.at_first = contents(desk.folder)
        self.session = desk.session()
        self.first = desk.prompt(self.session)
        desk.step(self.session, self.first, writes({"new.txt": "1\n"}), edits("a.env", "KEY=2\n"))
        self.halfway = contents(desk.folder)
        self.second = desk.prompt(self.session)
        desk.step(self.session, self.second, writes({"new.txt": "2\n", "README.md": "x\n"}), creates("b.env", "B=1\n"))
        desk.step(self.session, self.second, deletes("src/main.py"))
        self.at_last = contents(desk.folder)

    @property
    def files(self) -> dict[str, str]:
        return contents(self.desk.folder)

    @property
    def point(self) -> str | None:
        revert = self.desk.sessions.get(self.session).revert
        return revert.message_id if revert else None

    def dying(self, point: int) -> Reverts:
        disk = DyingDisk(point)
        store = JsonTree(self.desk.home / "data" / "storage", disk=disk)
        sessions = Sessions(store, self.desk.place)
        return Reverts(sessions, self.desk.snapshots, disk=disk, state=str(self.desk.home / "state"))

    def dies(self, act: Callable[[Reverts], Any], point: int) -> bool:
        try:
            act(self.dying(point))
        except Died:
            return True
        return False


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"))


def sweep(scene: Scene, act: Callable[[Reverts], Any], check: Callable[[int], None]) -> int:
    """Let ``act`` die at every point, and ``check`` each time; how many points there were."""
    point = 1
    while scene.dies(act, point):
        check(point)
        point += 1
    return point - 1


def test_a_revert_that_died_anywhere_is_finished_or_never_happened(scene: Scene) -> None:
    expected = {None: scene.at_last, scene.second: scene.halfway}
    seen: set[str | None] = set()

    def check(point: int) -> None:
        reverts = scene.desk.reverts
        match point % 3:
            case 0:
                reverts.recover(scene.session)
                assert scene.files == expected[scene.point]
                seen.add(scene.point)
            case 1:
                reverts.revert(scene.session, scene.second)
                assert scene.files == scene.halfway
            case _:
                pass
        reverts.unrevert(scene.session)
        assert scene.files == scene.at_last
        assert scene.point is None

    points = sweep(scene, lambda reverts: reverts.revert(scene.session, scene.second), check)
    assert points >= 20
    assert seen == {None, scene.second}
    scene.desk.reverts.unrevert(scene.session)
    assert scene.files == scene.at_last


def test_an_undoing_that_died_anywhere_is_finished_or_never_happened(scene: Scene) -> None:
    expected = {None: scene.at_last, scene.second: scene.halfway}
    reverts = scene.desk.reverts
    reverts.revert(scene.session, scene.second)

    def check(point: int) -> None:
        if point % 2:
            reverts.recover(scene.session)
            assert scene.files == expected[scene.point]
        reverts.revert(scene.session, scene.second)
        assert scene.files == scene.halfway

    assert sweep(scene, lambda reverts: reverts.unrevert(scene.session), check) >= 15
    assert scene.files == scene.at_last
    assert scene.point is None


def test_a_revert_that_died_while_it_moved_on_stands_at_one_of_both_points(scene: Scene) -> None:
    expected = {scene.first: scene.at_first, scene.second: scene.halfway}
    reverts = scene.desk.reverts
    reverts.revert(scene.session, scene.second)

    def check(point: int) -> None:
        reverts.recover(scene.session)
        assert scene.files == expected[scene.point or ""]
        if point % 2:
            reverts.unrevert(scene.session)
            assert scene.files == scene.at_last
        reverts.revert(scene.session, scene.second)
        assert scene.files == scene.halfway

    assert sweep(scene, lambda reverts: reverts.revert(scene.session, scene.first), check) >= 15
    assert scene.files == scene.at_first
    reverts.unrevert(scene.session)
    assert scene.files == scene.at_last


def test_a_cleaning_that_died_anywhere_can_be_run_again_and_loses_nothing(plain: Desk) -> None:
    desk = plain
    sessions = desk.sessions

    def converse() -> tuple[str, str, list[str]]:
        session = desk.session()
        desk.step(session, desk.prompt(session))
        second = desk.prompt(session)
        desk.step(session, second, creates("a.txt", "a\n"))
        desk.step(session, second)
        desk.reverts.revert(session, second)
        return session, second, [each.info["id"] for each in desk.history(session)]

    point = 0
    died = True
    while died:
        point += 1
        session, second, names = converse()
        disk = DyingDisk(point)
        store = JsonTree(desk.home / "data" / "storage", disk=disk)
        dying = Reverts(Sessions(store, desk.place), desk.snapshots, disk=disk, state=str(desk.home / "state"))
        try:
            dying.cleanup(session)
            died = False
        except Died:
            left = [each.info["id"] for each in desk.history(session)]
            assert left == names[: len(left)]
            assert second in left or len(left) == 2
            desk.reverts.cleanup(session)
        assert [each.info["id"] for each in desk.history(session)] == names[:2]
        assert sessions.get(session).revert is None
        kept = list((desk.home / "state" / "trash").rglob(f"{session}/*/messages.json"))
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

    place = resolve(folder)
    sessions = Sessions(JsonTree(os.path.join(home, "data", "storage")), place)
    snapshots = Snapshots(place, data=os.path.join(home, "data"), state=os.path.join(home, "state"))
    Reverts(sessions, snapshots, disk=Waiting(), state=os.path.join(home, "state")).revert(session, message)


def test_a_process_killed_between_journal_and_files_leaves_a_revert_that_can_be_finished(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with ProcessGroup() as processes:
        child = processes.start(
            revert_and_wait, str(scene.desk.home), str(scene.desk.folder), scene.session, scene.second
        )
        child.wait_for()
        child.kill()
    assert scene.files != scene.halfway
    assert scene.point == scene.second
    assert scene.desk.reverts.recover(scene.session)
    assert scene.files == scene.halfway
    assert not scene.desk.reverts.recover(scene.session)
    scene.desk.reverts.unrevert(scene.session)
    assert scene.files == scene.at_last


def test_a_file_that_is_changed_before_a_dead_revert_is_finished_is_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    point = 1
    while scene.dies(lambda reverts: reverts.revert(scene.session, scene.second), point) and scene.point is None:
        point += 1
    write(scene.desk.folder, {"README.md": "the user's own\n"})
    scene.desk.reverts.recover(scene.session)
    assert scene.files == scene.halfway | {"README.md": "the user's own\n"}


def test_commits_within_one_millisecond_keep_a_copy_each(plain: Desk) -> None:
    session = plain.session()
    plain.step(session, plain.prompt(session))
    trash = RevertTrash(plain.sessions, state=str(plain.home / "state"))
    folders = [trash.add_messages(session, {}, plain.history(session)) for _ in range(50)]
    assert len(set(folders)) == 50
    assert len(trash.of_session(session)) == 50
