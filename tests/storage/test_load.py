from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import BusyError
from opensesh.project import ProjectLocation
from opensesh.sessions import Sessions
from opensesh.storage.json_tree.migrations import migrate
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.leases import FileLeases
from opensesh.storage.locks import Locks

from ..harness import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opensesh.storage.protocol import Damage, Key

    from ..harness import Report

pytestmark = pytest.mark.load
PROCESSES = 8
RECORDS: tuple[Key, ...] = (("session", "global", "ses_a"), ("session", "global", "ses_b"), ("todo", "ses_a"))


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroup]:
    with ProcessGroup() as processes:
        yield processes


def open_tree(folder: str) -> JsonTree:
    return JsonTree(os.path.join(folder, "storage"), locks=Locks(os.path.join(folder, "locks")), durability="relaxed")


def refuse(damage: Damage) -> None:
    raise AssertionError(f"a record was seen half written: {damage}")


# -- updates -----------------------------------------------------------------------------------------------------------


def update(tell: Report, number: int, folder: str, rounds: int) -> None:
    tree = open_tree(folder)

    def add(value: dict[str, Any]) -> None:
        value["count"] += 1
        value["by"][str(number)] = value["by"].get(str(number), 0) + 1
        value["filling"] = "x" * (value["count"] % 500)

    for item in range(rounds):
        tree.update(RECORDS[(number + item) % len(RECORDS)], add)


def read_on(tell: Report, folder: str, rounds: int) -> None:
    tree = open_tree(folder)
    total = 0
    while total < rounds:
        result = dict(tree.scan((), report=refuse))
        assert set(result) == set(RECORDS)
        for value in result.values():
            assert sum(value["by"].values()) == value["count"]
            assert value["filling"] == "x" * (value["count"] % 500)
        latest = sum(value["count"] for value in result.values())
        assert latest >= total
        total = latest
        time.sleep(0.001)


@pytest.mark.parametrize("rounds", [200, pytest.param(2000, marks=[pytest.mark.slow])])
def test_processes_that_update_the_same_records_lose_nothing(
    processes: ProcessGroup, tmp_path: Path, rounds: int
) -> None:
    tree = open_tree(str(tmp_path))
    for key in RECORDS:
        tree.write(key, {"count": 0, "by": {}, "filling": ""})
    reader = processes.start(read_on, str(tmp_path), PROCESSES * rounds)
    processes.run_many(update, PROCESSES, str(tmp_path), rounds, seconds=100)
    assert reader.wait().traceback == ""
    result = [tree.read(key) for key in RECORDS]
    assert sum(value["count"] for value in result) == PROCESSES * rounds
    for number in range(PROCESSES):
        assert sum(value["by"][str(number)] for value in result) == rounds
    assert {path.suffix or path.name for path in (tmp_path / "storage").rglob("*") if path.is_file()} == {
        ".json",
        "migration",
    }


# -- folders that come and go ------------------------------------------------------------------------------------------


def come_and_go(tell: Report, number: int, folder: str, rounds: int) -> None:
    tree = open_tree(folder)
    key = ("part", "msg_shared", f"prt_{number}")
    for item in range(rounds):
        tree.write(key, {"number": item})
        assert tree.read(key) == {"number": item}
        tree.remove(key)


@pytest.mark.parametrize("rounds", [150, pytest.param(2000, marks=[pytest.mark.slow])])
def test_processes_that_make_and_remove_neighbours_do_not_trip_over_each_other(
    processes: ProcessGroup, tmp_path: Path, rounds: int
) -> None:
    processes.run_many(come_and_go, PROCESSES, str(tmp_path), rounds)
    assert open_tree(str(tmp_path)).list() == []
    assert list((tmp_path / "storage" / "part").iterdir()) == []


# -- whole sessions ----------------------------------------------------------------------------------------------------


def keep_sessions(tell: Report, number: int, folder: str, rounds: int) -> None:
    sessions = Sessions(open_tree(folder), ProjectLocation("/work", "global", "/", "/", None))
    for item in range(rounds):
        session = sessions.create(title=f"{number}/{item}")
        sessions.rename(session.id, f"{number}/{item} renamed")
        if item % 2:
            sessions.purge(session.id)
        assert all(result.title for result in sessions.list(report=refuse))


def test_processes_that_keep_sessions_in_one_tree_see_each_others_whole(
    processes: ProcessGroup, tmp_path: Path
) -> None:
    processes.run_many(keep_sessions, PROCESSES, str(tmp_path), 10)
    sessions = Sessions(open_tree(str(tmp_path)), ProjectLocation("/work", "global", "/", "/", None))
    titles = sorted(session.title for session in sessions.list(report=refuse))
    assert titles == sorted(f"{number}/{item} renamed" for number in range(PROCESSES) for item in range(0, 10, 2))


# -- leases ------------------------------------------------------------------------------------------------------------


def run_in_turns(tell: Report, number: int, folder: str, rounds: int) -> None:
    leases = FileLeases(os.path.join(folder, "leases"))
    marker = os.path.join(folder, "running")
    refused = 0
    for _ in range(rounds):
        while True:
            try:
                lease = leases.acquire("ses_shared", f"runner {number}")
            except BusyError:
                refused += 1
                continue
            break
        with lease:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            time.sleep(0.001)
            os.unlink(marker)
        time.sleep(0.002)
    tell(refused)


@pytest.mark.parametrize("rounds", [15, pytest.param(100, marks=[pytest.mark.slow])])
def test_processes_that_want_one_session_never_run_it_at_the_same_time(
    processes: ProcessGroup, tmp_path: Path, rounds: int
) -> None:
    processes.run_many(run_in_turns, PROCESSES, str(tmp_path), rounds, seconds=100)
    assert not (tmp_path / "running").exists()


def run_and_die(tell: Report, folder: str) -> None:
    leases = FileLeases(os.path.join(folder, "leases"))
    lease = leases.acquire("ses_shared", "mortal")
    tell([lease.holder.pid, lease.previous and lease.previous.pid])
    os._exit(9)


def test_every_dead_runner_is_known_to_the_next(processes: ProcessGroup, tmp_path: Path) -> None:
    before = None
    for _ in range(20):
        fate = processes.start(run_and_die, str(tmp_path)).wait()
        assert fate.code == 9
        ((pid, previous),) = fate.reports
        assert previous == before
        before = pid


# -- a migration under load --------------------------------------------------------------------------------------------


def write_for_a_while(tell: Report, number: int, folder: str, rounds: int) -> None:
    tree = open_tree(folder)
    for item in range(rounds):
        tree.write(("todo", f"ses_{number}-{item}"), [item])
        if item == rounds // 2 and number == 0:
            migrate(tree, lambda worktree: "global")
            tell("migrated")


def test_a_migration_gets_its_turn_among_busy_writers(processes: ProcessGroup, tmp_path: Path) -> None:
    tree = open_tree(str(tmp_path))
    old = {"id": "ses_old", "summary": {"diffs": [{"additions": 1}]}}
    tree.write(("session", "global", "ses_old"), old)
    (tmp_path / "storage" / "migration").unlink()
    fates = processes.run_many(write_for_a_while, PROCESSES, str(tmp_path), 200)
    assert fates[0].reports == ["migrated"]
    assert len(tree.list(("todo",))) == PROCESSES * 200
    assert tree.read(("session_diff", "ses_old")) == [{"additions": 1}]
