from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import NotFoundError, WriteError
from opensesh.project import ProjectLocation
from opensesh.records import dumps
from opensesh.sessions import Sessions
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.locks import Locks
from opensesh.testing.samples import WRAP, Scribe

from ..harness import CRASH_EXIT_CODE, CrashingDisk, FullDisk, ProcessGroup, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from opensesh.storage.protocol import Batch, Damage, Key

    from ..harness import Report

PLACE = ProjectLocation("/work", "global", "/", "/", None)


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk that is none, if there is one: what dies here is a process, not the machine."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


class ReportingTree(JsonTree):
    """Tells what it is about to store and, when that has returned, that it did."""

    def __init__(self, folder: str, disk: Disk, tell: Report) -> None:
        super().__init__(os.path.join(folder, "storage"), disk=disk, locks=Locks(os.path.join(folder, "locks")))
        self._tell = tell

    def write(self, key: Key, value: Any) -> None:
        self._tell(["will", list(key), value])
        super().write(key, value)
        self._tell(["did"])

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        def change(value: Any) -> None:
            edit(value)
            self._tell(["will", list(key), value])

        value = super().update(key, change)
        self._tell(["did"])
        return value

    def remove(self, key: Key) -> None:
        self._tell(["will", list(key), None])
        super().remove(key)
        self._tell(["did"])

    @contextmanager
    def batch(self) -> Generator[Any]:
        with super().batch() as batch:
            yield ReportingBatch(batch, self._tell)
        self._tell(["did"])


class ReportingBatch:
    """Reports every operation of a batch before it is staged."""

    def __init__(self, batch: Batch, tell: Report) -> None:
        self._batch = batch
        self._tell = tell

    def write(self, key: Key, value: Any) -> None:
        self._tell(["will also", list(key), value])
        self._batch.write(key, value)

    def remove(self, key: Key) -> None:
        self._tell(["will also", list(key), None])
        self._batch.remove(key)


def live(store: JsonTree, tell: Report, prompts: tuple[str, ...]) -> None:
    """The life of a session, from its creation over prompts, answers and a fork to its end."""
    tell(["history", len(prompts) * 2])
    sessions = Sessions(store, PLACE)
    scribe = Scribe(WRAP - 2_500)
    session = sessions.create(title="a session").id
    tell(["created", session])
    for text in prompts:
        _, prompt = scribe.message(session)
        sessions.update_message(prompt)
        sessions.update_part(scribe.part(session, prompt["id"], text)[1])
        tell(["prompted", session])
        _, answer = scribe.message(session)
        answer |= {"role": "assistant", "parentID": prompt["id"]}
        sessions.update_message(answer)
        _, part = scribe.part(session, answer["id"], "")
        for state in ("pending", "running", "completed"):
            sessions.update_part(part | {"state": {"status": state, "output": state * 40}})
        sessions.update_message(answer | {"finish": "stop"})
        sessions.touch(session)
        tell(["answered", session])
    sessions.set_todos(session, [{"content": "x", "status": "pending", "priority": "low"}])
    sessions.rename(session, "renamed")
    tell(["renamed", session])
    fork = sessions.fork(session).id
    tell(["forked", fork])
    sessions.remove_message(fork, sessions.messages(fork)[-1].info["id"])
    tell(["message removed", fork])
    sessions.purge(session)
    tell(["removed", session])


def one_prompt(disk: Disk, folder: str, tell: Report) -> None:
    live(ReportingTree(folder, disk, tell), tell, ("a prompt",))


def three_prompts(disk: Disk, folder: str, tell: Report) -> None:
    live(ReportingTree(folder, disk, tell), tell, ("a prompt", "another", "and another"))


def check(folder: str, text: list[Any], died_at: str) -> None:
    acknowledged, pending = stored_according_to(text)
    store = JsonTree(os.path.join(folder, "storage"), locks=Locks(os.path.join(folder, "locks")), durability="relaxed")
    result = dict(store.scan((), report=refuse))
    for key in {*result, *acknowledged} - set(pending):
        assert result.get(key) == acknowledged.get(key), f"{key} is not as it was acknowledged"
    for key, value in pending.items():
        assert result.get(key) in (acknowledged.get(key), value), f"{key} is neither the old record nor the new one"
    applied = [result.get(key) == value for key, value in pending.items() if acknowledged.get(key) != value]
    assert applied == sorted(applied, reverse=True), "a later operation of a batch is applied before an earlier one"
    for key, value in result.items():
        assert Path(store.locate(key)).read_bytes() == dumps(value), f"{key} is not whole"
    if not died_at:
        assert not litter(folder)
    assert len(litter(folder)) <= max(1, sum(value is not None for value in pending.values()))
    check_sessions(
        Sessions(store, PLACE), dict(event for event in text if event[0] not in ("will", "will also", "did"))
    )


def check_sessions(sessions: Sessions, events: dict[str, Any]) -> None:
    """What the next process sees, and that it can go on: also with what was interrupted."""
    visible = {session.id: session for session in sessions.list(report=refuse)}
    for name, session in visible.items():
        history = sessions.messages(name, report=refuse)
        created = [message.info["time"]["created"] for message in history]
        assert created == sorted(created)
        if session.title.endswith("(fork #1)"):
            missing = events["history"] - len(history)
            assert missing in ([1] if "message removed" in events else [0, 1]), "a fork is visible but not complete"
            assert {message.info["sessionID"] for message in history} == {name}
    if "removed" in events:
        assert events["removed"] not in visible
        assert not sessions.messages(events["removed"])
    if "forked" in events:
        assert events["forked"] in visible
    for name in visible:
        sessions.touch(name)
        sessions.purge(name)
        with pytest.raises(NotFoundError):
            sessions.get(name)
    again = sessions.create(title="and on it goes")
    assert [session.id for session in sessions.list(report=refuse)] == [again.id]


def stored_according_to(text: list[Any]) -> tuple[dict[Key, Any], dict[Key, Any]]:
    """What was acknowledged, and what was under way at the end."""
    acknowledged: dict[Key, Any] = {}
    pending: dict[Key, Any] = {}
    for event in text:
        match event:
            case ["will", key, value]:
                pending = {tuple(key): value}
            case ["will also", key, value]:
                pending[tuple(key)] = value
            case ["did"]:
                acknowledged |= pending
                pending = {}
            case _:
                pass
    return {key: value for key, value in acknowledged.items() if value is not None}, pending


def litter(folder: str) -> list[str]:
    names = [name for _, _, names in os.walk(os.path.join(folder, "storage")) for name in names]
    strange = [name for name in names if not name.endswith(".json") and name != "migration"]
    assert all(name.startswith(".") and name.endswith(".tmp") for name in strange)
    return strange


def refuse(damage: Damage) -> None:
    raise AssertionError(f"half a record is visible: {damage}")


@pytest.mark.load
@pytest.mark.parametrize(
    ("scenario", "points"), [(one_prompt, 150), pytest.param(three_prompts, 300, marks=[pytest.mark.slow])]
)
def test_a_process_may_die_at_every_operation_of_a_sessions_life(
    ram: Path, scenario: Callable[[Disk, str, Report], None], points: int
) -> None:
    done = sweep(scenario, check, ram)
    assert done.points > points
    assert set(done.operations) == {
        "open_new",
        "write",
        "half a write",
        "sync",
        "rename",
        "sync_folder",
        "unlink",
        "new_folder",
        "remove_folder",
    }


def careless(disk: Disk, folder: str, tell: Report) -> None:
    for number in range(3):
        with open(os.path.join(folder, "record"), "wb") as file:
            disk.write(file.fileno(), b"%d" % number * 10)
        tell(number)


def check_careless(folder: str, text: list[Any], died_at: str) -> None:
    data = Path(folder, "record").read_bytes()
    assert len(data) == 10, "half a record is visible"


def test_a_sweep_finds_out_who_writes_in_place(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"died at point \d+ \((half a )?write\): .*half a record is visible"):
        sweep(careless, check_careless, tmp_path)


def hasty(disk: Disk, folder: str, tell: Report) -> None:
    for number in range(2):
        tell(number)
        disk.replace(os.path.join(folder, str(number)), b"x")


def check_hasty(folder: str, text: list[Any], died_at: str) -> None:
    assert set(map(str, text)) <= set(os.listdir(folder)), "an acknowledged record is lost"


def test_a_sweep_finds_out_who_acknowledges_too_early(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="an acknowledged record is lost"):
        sweep(hasty, check_hasty, tmp_path)


def broken(disk: Disk, folder: str, tell: Report) -> None:
    raise RuntimeError("the scenario itself is wrong")


def test_a_scenario_that_fails_by_itself_is_not_taken_for_a_crash(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the scenario itself is wrong"):
        sweep(broken, check, tmp_path)


def test_a_sweep_counts_every_operation_once(tmp_path: Path) -> None:
    done = sweep(two_writes, check_two_writes, tmp_path)
    assert done.operations == {
        "open_new": 2,
        "write": 2,
        "half a write": 2,
        "sync": 2,
        "rename": 2,
        "sync_folder": 2,
    }
    assert done.points == 12
    assert os.listdir(tmp_path) == []


def two_writes(disk: Disk, folder: str, tell: Report) -> None:
    for number in range(2):
        disk.replace(os.path.join(folder, str(number)), b"12345678")
        tell(number)


def check_two_writes(folder: str, text: list[Any], died_at: str) -> None:
    assert all(Path(folder, str(number)).read_bytes() == b"12345678" for number in text)
    assert (text == [0, 1]) is (not died_at)


def write_until_the_third(tell: Report, path: str) -> None:
    CrashingDisk(3, on_crash=tell).replace(path, b"12345678")
    tell("alive")


def test_a_crashing_disk_writes_half_and_ends_the_process(tmp_path: Path) -> None:
    with ProcessGroup() as processes:
        fate = processes.start(write_until_the_third, str(tmp_path / "r")).wait()
    assert (fate.code, fate.reports) == (CRASH_EXIT_CODE, ["half a write"])
    (half,) = tmp_path.iterdir()
    assert half.name.startswith(".r.")
    assert half.read_bytes() == b"1234"


def test_a_disk_that_never_crashes_counts(tmp_path: Path) -> None:
    disk = CrashingDisk(0)
    disk.replace(str(tmp_path / "r"), b"x")
    assert disk.count == 6


# -- full disks --------------------------------------------------------------------------------------------------------


def live_until_full(folder: str, disk: Disk) -> tuple[list[Any], WriteError | None]:
    text: list[Any] = []
    try:
        live(ReportingTree(folder, disk, text.append), text.append, ("a prompt",))
    except WriteError as error:
        return text, error
    return text, None


def check_kept(folder: str, text: list[Any]) -> None:
    """A refused write has changed nothing: what was under way is not there."""
    acknowledged, _ = stored_according_to(text)
    store = JsonTree(os.path.join(folder, "storage"))
    assert dict(store.scan((), report=refuse)) == acknowledged
    assert not litter(folder)


@pytest.mark.parametrize("late", [False, True])
def test_whenever_a_disk_fills_up_everything_acknowledged_is_kept(ram: Path, late: bool) -> None:
    space, failures = 0, 0
    while True:
        folder = ram / str(space)
        folder.mkdir()
        disk = FullDisk(space, durable=late, late=late)
        text, failure = live_until_full(str(folder), disk)
        check_kept(str(folder), text)
        if failure is None:
            break
        assert "the disk is full; what was stored before is unharmed. Free some space and try again." in str(failure)
        disk.add_space(1_000_000)
        _, failure = live_until_full(str(folder), disk)
        assert failure is None, "with space again, all works again"
        space += 179
        failures += 1
    assert failures > 15


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Disk]]:
    """A file system of 256 KiB where one can be mounted, and a disk that fills up where not."""
    folder = tmp_path / "small"
    folder.mkdir()
    if sys.platform == "linux" and os.geteuid() == 0:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode == 0:
            yield folder, Disk()
            subprocess.run(["umount", folder], check=True)
            return
    yield folder, FullDisk(200_000)


@pytest.mark.load
def test_a_file_system_that_is_really_full_keeps_everything_acknowledged(small_disk: tuple[Path, Disk]) -> None:
    folder, disk = small_disk
    text: list[Any] = []
    store = ReportingTree(str(folder), disk, text.append)
    failure: WriteError | None = None
    for number in range(1000):
        try:
            store.write(("part", "msg_1", f"prt_{number}"), {"id": f"prt_{number}", "text": "x" * (number * 37 % 9000)})
        except WriteError as error:
            failure = error
            break
    assert failure is not None
    assert "the disk is full" in str(failure)
    assert len(text) > 20
    check_kept(str(folder), text)
    for key in store.list()[:10]:
        store.remove(key)
    if isinstance(disk, FullDisk):
        disk.add_space(100_000)
    store.write(("part", "msg_1", "prt_again"), {"text": "x" * 9000})
    check_kept(str(folder), text)


# -- death from outside ------------------------------------------------------------------------------------------------


def write_on_and_on(tell: Report, folder: str) -> None:
    store = ReportingTree(folder, Disk(durable=False), tell)
    number = 0
    while True:
        number += 1
        store.write(("part", "msg_1", f"prt_{number % 7}"), {"number": number, "text": "x" * (number % 3000)})


def test_a_process_killed_at_any_moment_leaves_only_whole_records(tmp_path: Path) -> None:
    with ProcessGroup() as processes:
        for number in range(8):
            folder = tmp_path / str(number)
            folder.mkdir()
            child = processes.start(write_on_and_on, str(folder))
            child.wait_for(20 + 13 * number)
            fate = child.kill()
            assert fate.code < 0
            acknowledged, pending = stored_according_to(fate.reports)
            result = dict(JsonTree(folder / "storage").scan((), report=refuse))
            assert result in (acknowledged, acknowledged | pending)
