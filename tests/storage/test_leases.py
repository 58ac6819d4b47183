from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from opensesh import ids
from opensesh.errors import BusyError, InvalidKeyError, WriteError
from opensesh.storage import paths
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import HEARTBEAT_MS, FileLeases, Holder
from opensesh.storage.locks import open_lock_file, try_lock_file

from ..harness import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..harness import Report

SESSION = "ses_1e08b2c3fffe0000000000000Az9"


@pytest.fixture
def leases(tmp_path: Path) -> FileLeases:
    return FileLeases(str(tmp_path / "leases"))


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroup]:
    with ProcessGroup() as processes:
        yield processes


def run(tell: Report, folder: str, owner: str) -> None:
    lease = FileLeases(folder).acquire(SESSION, owner)
    tell(msgspec.to_builtins(lease.holder))
    tell(msgspec.to_builtins(lease.previous))
    time.sleep(60)


def try_to_run(tell: Report, folder: str) -> None:
    try:
        FileLeases(folder).acquire(SESSION, "second").release()
    except BusyError as error:
        tell([str(error), error.data])
    else:
        tell("acquired")


def run_with_a_child(tell: Report, folder: str, how: str) -> None:
    lease = FileLeases(folder).acquire(SESSION, "parent")
    if how == "fork":
        pid = os.fork()
        if not pid:
            lease.heartbeat()
            lease.release()
            os.fstat(1)  # is still there: what the child let go of was no other file
            time.sleep(60)
    else:
        # Everything that may be inherited is: only what was opened as private stays behind.
        pid = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False).pid
    tell(pid)
    time.sleep(60)


def test_a_session_has_one_runner(leases: FileLeases) -> None:
    with leases.acquire(SESSION, "first") as lease:
        assert lease.session_id == SESSION
        assert leases.holder(SESSION) == lease.holder
        with pytest.raises(BusyError):
            leases.acquire(SESSION, "second")
        with leases.acquire(SESSION + "x", "second"):
            pass
    assert leases.holder(SESSION) is None
    with leases.acquire(SESSION, "third") as lease:
        assert lease.holder.owner == "third"


def test_a_session_that_never_ran_has_no_holder(leases: FileLeases) -> None:
    assert leases.holder(SESSION) is None
    assert leases.abandoned() == []
    assert not os.path.exists(leases.folder)


def test_busy_says_who_it_is(leases: FileLeases, processes: ProcessGroup) -> None:
    runner = processes.start(run, leases.folder, "opensesh serve")
    holder, _ = runner.wait_for(2)
    with pytest.raises(BusyError) as busy:
        leases.acquire(SESSION, "second")
    assert f"session {SESSION} is being run by opensesh serve (pid {runner.pid} on " in str(busy.value)
    assert busy.value.data == {"session": SESSION, "holder": holder}
    assert leases.holder(SESSION) == Holder(**holder)
    assert holder["pid"] == runner.pid
    assert holder["host"] == socket.gethostname()
    runner.kill()


def test_another_process_gets_the_same_error(leases: FileLeases, processes: ProcessGroup) -> None:
    with leases.acquire(SESSION, "the tests"):
        ((text, data),) = processes.start(try_to_run, leases.folder).wait().reports
        assert f"the tests (pid {os.getpid()} on " in text
        assert data["holder"]["pid"] == os.getpid()
    assert processes.start(try_to_run, leases.folder).wait().reports == ["acquired"]


def test_the_lease_of_a_killed_runner_is_free_at_once_and_tells_of_it(
    leases: FileLeases, processes: ProcessGroup
) -> None:
    runner = processes.start(run, leases.folder, "opensesh run")
    holder, previous = runner.wait_for(2)
    assert previous is None
    assert leases.abandoned() == []
    assert runner.kill().code < 0
    assert leases.holder(SESSION) is None
    assert leases.abandoned() == [(SESSION, Holder(**holder))]
    with leases.acquire(SESSION, "the next") as lease:
        assert lease.previous == Holder(**holder)
        assert leases.abandoned() == []
    assert leases.abandoned() == []
    with leases.acquire(SESSION, "the one after") as lease:
        assert lease.previous is None


def test_one_dead_runner_after_the_other_is_seen_by_the_next(leases: FileLeases, processes: ProcessGroup) -> None:
    last = ""
    for name in ("first", "second with a long name" * 100, "third"):
        runner = processes.start(run, leases.folder, name)
        _, previous = runner.wait_for(2)
        assert (previous["owner"] if previous else "") == last
        last = name
        runner.kill()
        assert [holder.owner for _, holder in leases.abandoned()] == [name]


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_a_child_of_the_runner_does_not_keep_the_lease(leases: FileLeases, processes: ProcessGroup, how: str) -> None:
    runner = processes.start(run_with_a_child, leases.folder, how)
    (orphan,) = runner.wait_for()
    try:
        time.sleep(0.05)
        holder = leases.holder(SESSION)
        assert holder is not None
        assert holder.pid == runner.pid, "the child must not have let go for its parent"
        runner.kill()
        os.kill(orphan, 0)
        with leases.acquire(SESSION, "next") as lease:
            assert lease.previous is not None
            assert lease.previous.owner == "parent"
    finally:
        os.kill(orphan, 9)


def test_a_beat_is_seen_by_others(leases: FileLeases) -> None:
    with leases.acquire(SESSION, "runner") as lease:
        first = lease.holder
        time.sleep(0.005)
        lease.heartbeat()
        seen = leases.holder(SESSION)
        assert seen == lease.holder
        assert seen is not None
        assert seen.beat > first.beat
        assert seen.started == first.started


def test_a_silent_runner_is_called_stuck() -> None:
    now = ids.now_ms()
    alive = Holder(owner="opensesh run", host="box", pid=7, started=now - 10**6, beat=now - HEARTBEAT_MS)
    stuck = msgspec.structs.replace(alive, beat=now - 60_000)
    assert not alive.stuck
    assert str(alive) == "opensesh run (pid 7 on box)"
    assert stuck.stuck
    assert str(stuck) == "opensesh run (pid 7 on box), silent for 60 s"


def test_releasing_twice_or_beating_afterwards_is_not_an_error(leases: FileLeases) -> None:
    lease = leases.acquire(SESSION, "first")
    lease.release()
    with leases.acquire(SESSION, "second") as other:
        lease.release()
        lease.heartbeat()
        assert leases.holder(SESSION) == other.holder
    lease.release()


def test_letting_go_waits_for_a_beat_of_another_thread(leases: FileLeases, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = leases.acquire(SESSION, "runner")
    files: list[tuple[int, int]] = []

    def write(descriptor: int, data: bytes) -> int:
        # Given the time, a release would close the descriptor, and the system give its number to the next file.
        releasing = pool.submit(lease.release)
        time.sleep(0.05)
        assert not releasing.done()
        result = os.fstat(descriptor)
        files.append((result.st_dev, result.st_ino))
        return len(data)

    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        lease.heartbeat()
    expected = os.stat(os.path.join(leases.folder, SESSION))
    assert files == [(expected.st_dev, expected.st_ino)]
    assert leases.holder(SESSION) is None


def let_go_in_a_child_of_a_beat(tell: Report, folder: str) -> None:
    """Fork while another thread is in the middle of a beat, and let go in the child."""
    warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of Python warn of just this
    lease = FileLeases(folder).acquire(SESSION, "parent")
    beating, done = threading.Event(), threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        beating.set()
        done.wait(20)
        return len(data)

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(1) as pool:
        patched.setattr(os, "write", write)
        pool.submit(lease.heartbeat)
        beating.wait(20)
        pid = os.fork()
        if not pid:
            signal.alarm(5)
            lease.release()
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        done.set()
    tell(status)


def test_a_child_that_is_made_during_a_beat_can_let_go(leases: FileLeases, processes: ProcessGroup) -> None:
    assert processes.start(let_go_in_a_child_of_a_beat, leases.folder).wait_for() == [0]


def test_a_beat_that_the_disk_refuses_ends_nothing(leases: FileLeases, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with leases.acquire(SESSION, "runner") as lease:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", refuse)
            lease.heartbeat()
        seen = leases.holder(SESSION)
        assert seen is not None
        assert seen.owner == "runner"


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="counts what the system lists there")
def test_a_refused_lease_keeps_nothing_open(leases: FileLeases) -> None:
    with leases.acquire(SESSION, "first"):
        before = len(os.listdir("/dev/fd"))
        for _ in range(3):
            with pytest.raises(BusyError):
                leases.acquire(SESSION, "second")
        assert len(os.listdir("/dev/fd")) == before


def test_one_who_asks_is_not_taken_for_a_runner_by_another_who_asks(leases: FileLeases) -> None:
    path = Path(leases.folder) / SESSION
    with leases.acquire(SESSION, "first"):
        inscribed = path.read_bytes()
    path.write_bytes(inscribed)  # as one who died leaves it
    asking = open_lock_file(str(path))
    try:
        assert try_lock_file(asking, shared=True)
        assert leases.holder(SESSION) is None
    finally:
        os.close(asking)


def test_asking_who_runs_a_session_never_looks_like_running_it(leases: FileLeases) -> None:
    leases.acquire(SESSION, "once").release()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            leases.holder(SESSION)
            time.sleep(0.0005)

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        for _ in range(50):
            leases.acquire(SESSION, "runner").release()
        stop.set()
        for item in asking:
            item.result(60)


def test_concurrent_readers_agree_that_a_session_has_no_holder(leases: FileLeases, processes: ProcessGroup) -> None:
    runner = processes.start(run, leases.folder, "dead soon")
    runner.wait_for(2)
    runner.kill()
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(lambda: [leases.holder(SESSION) for _ in range(100)]) for _ in range(4)]
        assert {holder for answer in answers for holder in answer.result(60)} == {None}


def test_a_lease_that_cannot_be_inscribed_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteError):
        FileLeases(str(tmp_path / "file" / "leases")).acquire(SESSION, "x")


def test_a_lease_for_which_the_disk_is_full_can_be_taken_once_there_is(
    leases: FileLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(WriteError) as caught:
            leases.acquire(SESSION, "x")
    assert caught.value.data == {"path": os.path.join(leases.folder, SESSION), "errno": errno.ENOSPC}
    leases.acquire(SESSION, "x").release()


def test_a_lease_that_was_let_go_of_is_forgotten(leases: FileLeases) -> None:
    lease = leases.acquire(SESSION, "x")
    remembered = weakref.ref(lease)
    lease.release()
    del lease
    gc.collect()
    assert remembered() is None


def test_a_runner_that_left_no_holder_is_another_process(leases: FileLeases) -> None:
    with leases.acquire(SESSION, "x"):
        (Path(leases.folder) / SESSION).write_bytes(b"")
        with pytest.raises(BusyError, match="is being run by another process") as busy:
            leases.acquire(SESSION, "y")
        assert busy.value.data == {"session": SESSION, "holder": None}


def test_a_name_that_could_leave_the_folder_is_refused(leases: FileLeases) -> None:
    for name in ("../x", "", "a/b", "con"):
        with pytest.raises(InvalidKeyError):
            leases.acquire(name, "x")


def test_an_invalid_lease_record_is_ignored(leases: FileLeases) -> None:
    leases.acquire(SESSION, "x").release()
    for name, data in ((".DS_Store", b"\0\1"), ("ses_torn", b'{"owner": "x", "ho'), ("ses_nul", b"\0" * 513)):
        (Path(leases.folder) / name).write_bytes(data)
    (Path(leases.folder) / "ses_folder").mkdir()
    assert leases.abandoned() == []
    with leases.acquire("ses_torn", "y") as lease:
        assert lease.previous is None


def test_leases_lie_outside_of_the_store_and_are_shared_by_all_ways_to_it(tmp_path: Path) -> None:
    tree = JsonTree(tmp_path / "storage")
    with FileLeases.of(tree).acquire(SESSION, "x") as lease:
        assert FileLeases.of(JsonTree(tmp_path / "nowhere" / ".." / "storage")).holder(SESSION) == lease.holder
        assert FileLeases.of(JsonTree(tmp_path / "other")).holder(SESSION) is None
    assert not (tmp_path / "storage").exists()
    assert Path(FileLeases.of(tree).folder).parent == Path(paths.state()) / "leases"
