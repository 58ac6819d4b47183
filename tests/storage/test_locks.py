from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import StoreError, WriteError
from opensesh.storage import locks_windows
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.locks import Locks, open_lock_file, try_lock_file

from ..harness import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..harness import Report


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(str(tmp_path / "locks"))


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroup]:
    with ProcessGroup() as processes:
        yield processes


def hold(tell: Report, folder: str, kind: str) -> None:
    with of_kind(Locks(folder), kind):
        tell("holding")
        time.sleep(60)


def count(tell: Report, number: int, folder: str, counter: str, rounds: int) -> None:
    locks = Locks(folder)
    for _ in range(rounds):
        with locks.hold("counter"), open(counter, "r+", encoding="ascii") as file:
            value = int(file.read())
            file.seek(0)
            file.write(str(value + 1))


def of_kind(locks: Locks, kind: str) -> AbstractContextManager[None]:
    match kind:
        case "exclusive":
            return locks.hold("name")
        case "shared":
            return locks.hold("name", shared=True)
        case "everything":
            return locks.hold()
        case _:
            return locks.hold(shared=True)


def waits(
    first: Callable[[], AbstractContextManager[None]],
    second: Callable[[], AbstractContextManager[None]],
    *,
    seconds: float = 0.1,
) -> bool:
    """Whether the second must wait while another thread has the first."""
    entered = threading.Event()

    def enter() -> None:
        with second():
            entered.set()

    with ThreadPoolExecutor(1) as pool:
        with first():
            outcome = pool.submit(enter)
            waited = not entered.wait(seconds)
        outcome.result(60)
    return waited


EXCLUSIONS = [
    ("exclusive", "exclusive", True),
    ("exclusive", "shared", True),
    ("shared", "exclusive", True),
    ("shared", "shared", False),
    ("everything", "everything", True),
    ("everything", "anything", True),
    ("anything", "everything", True),
    ("anything", "anything", False),
]


@pytest.mark.parametrize(("first", "second", "waiting"), EXCLUSIONS)
def test_readers_and_writers_wait_for_each_other_between_threads(
    locks: Locks, first: str, second: str, waiting: bool
) -> None:
    seconds = 0.1 if waiting else 60
    assert waits(lambda: of_kind(locks, first), lambda: of_kind(locks, second), seconds=seconds) is waiting


@pytest.mark.parametrize(("first", "second", "waiting"), EXCLUSIONS)
def test_readers_and_writers_wait_for_each_other_between_processes_and_death_releases(
    processes: ProcessGroup, locks: Locks, first: str, second: str, waiting: bool
) -> None:
    holder = processes.start(hold, locks.folder, first)
    holder.wait_for()
    waiter = processes.start(hold, locks.folder, second)
    if waiting:
        time.sleep(0.05)
        assert waiter.reports == []
        holder.kill()
    assert waiter.wait_for(seconds=60) == ["holding"]
    waiter.kill()
    holder.kill()
    with locks.hold(), locks.hold("name"):
        pass


def test_no_increment_is_lost_between_processes(processes: ProcessGroup, locks: Locks, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes.run_many(count, 4, locks.folder, str(counter), 100)
    assert counter.read_text() == "400"


@pytest.mark.parametrize("inner", ["exclusive", "shared"])
def test_waiting_for_oneself_is_refused(locks: Locks, inner: str) -> None:
    with locks.hold("name"):
        with pytest.raises(StoreError, match="would wait forever"), of_kind(locks, inner):
            pass
        with pytest.raises(StoreError, match="would wait forever"), of_kind(Locks(locks.folder), inner):
            pass
    with locks.hold("name"):
        pass


def test_the_same_name_in_two_stores_is_two_locks(tmp_path: Path) -> None:
    with Locks(str(tmp_path / "a")).hold("name"), Locks(str(tmp_path / "b")).hold("name"):
        pass


def test_an_exception_inside_lets_go(locks: Locks) -> None:
    with pytest.raises(ValueError, match="inside"), locks.hold(), locks.hold("name"):
        raise ValueError("inside")
    assert not waits(lambda: locks.hold(shared=True), lambda: locks.hold("name"), seconds=60)


def test_any_number_of_names_needs_a_bounded_number_of_files(locks: Locks) -> None:
    for number in range(3000):
        with locks.hold(f"message/ses_{number}/msg_{number}"):
            pass
    assert 200 < len(os.listdir(locks.folder)) <= 256


def test_an_update_leaves_nothing_but_the_record_in_the_tree(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage")
    tree.write(("todo", "ses_x"), [])
    tree.update(("todo", "ses_x"), lambda value: value.append(1))
    assert [path.name for path in (tmp_path / "storage").rglob("*.json")] == ["ses_x.json"]
    assert {path.name for path in (tmp_path / "storage").iterdir()} == {"migration", "todo"}


def test_two_ways_to_the_same_tree_share_their_locks(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert JsonTree(tmp_path / "real").locks.folder == JsonTree(tmp_path / "link").locks.folder
    assert JsonTree(tmp_path / "real").locks.folder != JsonTree(tmp_path / "other").locks.folder


def test_a_disk_without_space_for_locks_is_a_refused_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    tree = JsonTree(tmp_path / "storage", locks=Locks(str(tmp_path / "file" / "locks")))
    with pytest.raises(WriteError, match="could not be written"):
        tree.write(("todo", "ses_x"), [])
    assert not (tmp_path / "storage").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="modes are something else there")
def test_lock_files_and_their_folder_are_the_owners_alone(locks: Locks) -> None:
    with locks.hold():
        pass
    assert stat.S_IMODE(os.stat(locks.folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.join(locks.folder, "all")).st_mode) == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="locks are something else there")
def test_a_file_system_without_locks_is_named(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(StoreError, match=r"all: this file system does not support locks: No locks available$"):
        locks.hold().__enter__()


def test_a_lock_that_is_taken_is_not_waited_for_by_who_only_tries(locks: Locks) -> None:
    path = os.path.join(locks.folder, "one")
    mine, theirs = open_lock_file(path), open_lock_file(path)
    try:
        assert try_lock_file(mine, shared=True)
        assert try_lock_file(theirs, shared=True)
        assert not try_lock_file(mine)
        os.close(theirs)
        theirs = open_lock_file(path)
        assert try_lock_file(mine)
        assert not try_lock_file(theirs, shared=True)
    finally:
        os.close(mine)
        os.close(theirs)


def test_an_exclusive_lock_is_granted_in_the_end(locks: Locks) -> None:
    done = threading.Event()

    def work(_: Any) -> None:
        while not done.is_set():
            with locks.hold(shared=True):
                time.sleep(0.001)
            time.sleep(0.001)

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(work, number) for number in range(3)]
        with locks.hold():
            pass
        done.set()
        for other in others:
            other.result(60)


@pytest.mark.skipif(sys.platform == "win32", reason="what happens elsewhere")
def test_the_locks_of_windows_are_refused_elsewhere() -> None:
    with pytest.raises(OSError, match="Windows"):
        locks_windows.lock_file(0, shared=True)
    with pytest.raises(OSError, match="Windows"):
        locks_windows.try_lock_file(0)
