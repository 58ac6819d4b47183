"""Writers of opensesh beside a real OpenCode server, both killed again and again: nothing is lost on either side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from opensesh import ids
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.opencode_db.table_schema import MIGRATIONS
from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import (
    V1_2,
    assert_sound,
    empty_database,
    new_message,
    new_session,
    new_text,
    select,
)
from .opencode import DATABASE, OpenCode, OpenCodeError
from .sides import EvenModel

pytestmark = [pytest.mark.interop, pytest.mark.timeout(5400)]

ROOT = Path(__file__).parents[2]
LATEST_TIME = 1_000_000
"""Messages of the writers are older than this, so that OpenCode takes none of them for its newest prompt."""
WRITER = """
import sys, time
from opensesh import ids
from opensesh.storage.opencode_db.store import OpencodeDB
from tests.storage.opencode_databases import new_message, new_text
path, project, start, *sessions = sys.argv[1:]
store = OpencodeDB(path)
for number in range(int(start), int(start) + 10_000):
    session = sessions[number % len(sessions)]
    message, part = ids.ascending("msg"), ids.ascending("prt")
    with store.batch() as batch:
        batch.write(("message", session, message), new_message(session, message, at=1000 + number))
        batch.write(("part", message, part), new_text(message, part, "x" * 200, sessionID=session))
    print(message, part, flush=True)
    if number % 10 == 0:
        store.update(("session", project, session), lambda info: info.update(metadata={"number": number}))
        print(session, number, flush=True)
    time.sleep(0.01)
"""


class Size(NamedTuple):
    """How much is written, prompted and killed."""

    writes: int
    kills: int
    prompts: int
    server_kills: int
    prompted_sessions: int


SHORT = Size(writes=60, kills=3, prompts=4, server_kills=1, prompted_sessions=2)
LONG = Size(writes=10_000, kills=100, prompts=100, server_kills=20, prompted_sessions=20)


class Writers:
    """Keeps a process writing into sessions, and kills it after a share of the acknowledged writes.

    One share is written for each call of :meth:`write_on`, so that a slow server is not left alone by a fast writer.
    """

    def __init__(self, database: Path, project: str, sessions: list[str], size: Size) -> None:
        self.acknowledged: list[str] = []
        """The ids of messages and parts whose transaction was reported as done."""
        self.numbers: dict[str, int] = {}
        """The last number that was stored in the row of each session."""
        self.kills = 0
        self._arguments = str(database), project
        self._sessions = sessions
        self._size = size
        self._shares = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._keep_writing)
        self._thread.start()

    @property
    def are_writing(self) -> bool:
        return self._thread.is_alive()

    def write_on(self, shares: int = 1) -> None:
        self._shares.release(shares)

    def join(self) -> None:
        """Write what is missing, and wait for it."""
        self.write_on(10 * self._size.kills)
        self._thread.join()

    def _keep_writing(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
        while len(self.acknowledged) < 2 * self._size.writes or self.kills < self._size.kills:
            self._shares.acquire()
            arguments = (*self._arguments, str(len(self.acknowledged) // 2), *self._sessions)
            command = [sys.executable, "-c", WRITER, *arguments]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
                assert process.stdout is not None
                share = self._size.writes // self._size.kills
                lines = [process.stdout.readline() for _ in range(share * 11 // 10)]
                process.send_signal(signal.SIGKILL)
                lines += process.stdout.readlines()
            assert lines[0], "the writer failed"
            self.kills += 1
            for first, second in (line.split() for line in lines if line.endswith("\n")):
                if second.isdigit():
                    self.numbers[first] = int(second)
                else:
                    self.acknowledged += (first, second)


def kill_in_a_prompt(opencode: OpenCode, session: str, number: int) -> None:
    """Kill the server at a different moment of a prompt each time."""

    def prompt() -> None:
        with suppress(OpenCodeError):
            opencode.prompt(session, f'CALL bash {{"command": "sleep 0.2", "description": "d"}}\n---\nSAY {number}.')

    thread = threading.Thread(target=prompt)
    thread.start()
    time.sleep(0.05 * (number % 20))
    opencode.kill()
    thread.join()
    opencode.start()


@pytest.mark.parametrize("size", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
def test_nothing_is_lost_beside_a_server_when_both_are_killed(tmp_path: Path, size: Size) -> None:
    with WireServer(EvenModel.prompted()) as wire, OpenCode(tmp_path, wire, version=DATABASE) as opencode:
        prompted = [opencode.create(f"theirs {number}") for number in range(size.prompted_sessions)]
        project = prompted[0]["projectID"]
        own = [ids.descending("ses") for _ in prompted]
        with OpencodeDB(opencode.database) as store:
            for session in own:
                record = new_session(session, project=project, directory=str(opencode.directory))
                store.write(("session", project, session), record)
        # Every second write is one into a session that is being prompted.
        sessions = [name for pair in zip(own, (info["id"] for info in prompted), strict=True) for name in pair]
        writers = Writers(opencode.database, project, sessions, size)
        answers: list[str] = []
        try:
            for number in count():
                if number >= size.prompts and not writers.are_writing:
                    break
                writers.write_on()
                session = prompted[number % len(prompted)]["id"]
                if number * size.server_kills // size.prompts > (number - 1) * size.server_kills // size.prompts:
                    kill_in_a_prompt(opencode, session, number)
                call = 'CALL bash {"command": "echo hi", "description": "d"}'
                answer = opencode.prompt(session, f"{call}\n---\nSAY {number}.", timeout=300)
                assert "error" not in answer["info"]
                answers += (answer["info"]["id"], *(part["id"] for part in answer["parts"]))
        finally:
            writers.join()
        opencode.settle()
        stored = {
            name for table in ("message", "part") for (name,) in select(opencode.database, f"SELECT id FROM {table}")
        }
        assert len(writers.acknowledged) >= 2 * size.writes
        assert writers.kills >= size.kills
        assert set(writers.acknowledged) - stored == set()
        assert set(answers) - stored == set()
        whole = "EXISTS (SELECT 1 FROM part p WHERE p.message_id = m.id)"
        torn = f"SELECT id FROM message m WHERE time_created < ? AND NOT {whole}"
        assert select(opencode.database, torn, LATEST_TIME) == []
        kept = dict(select(opencode.database, "SELECT id, json_extract(metadata, '$.number') FROM session"))
        undone = {name: (number, kept[name]) for name, number in writers.numbers.items() if kept[name] < number}
        assert undone == {}
        for session in sessions:
            opencode.messages(session)
    assert_sound(opencode.database)


@pytest.mark.slow
def test_nothing_is_lost_while_a_newer_opencode_migrates_the_database(tmp_path: Path) -> None:
    opencode_data = tmp_path / "data" / "opencode"
    path = empty_database(opencode_data, V1_2)
    acknowledged: list[str] = []
    is_migrated = threading.Event()

    def write(session: str) -> None:
        with OpencodeDB(path) as store:
            written = 0
            while not is_migrated.is_set() or written < 20:
                message, part = ids.ascending("msg"), ids.ascending("prt")
                with store.batch() as batch:
                    batch.write(("message", session, message), new_message(session, message, at=1 + written))
                    batch.write(("part", message, part), new_text(message, part, sessionID=session))
                acknowledged.extend((message, part))
                written += 1
                assert len(store.messages(session)) == written
                time.sleep(0.01)  # OpenCode gives up a migration if another commit comes between its reads and writes

    with WireServer(EvenModel.prompted()) as wire, ThreadPoolExecutor(2) as pool:
        opencode = OpenCode(tmp_path, wire, version=DATABASE)
        sessions = [ids.descending("ses") for _ in range(2)]
        with OpencodeDB(path) as store:
            for session in sessions:
                record = new_session(session, directory=str(opencode.directory))
                store.write(("session", record["projectID"], session), record)
        writers = [pool.submit(write, session) for session in sessions]
        try:
            while not acknowledged and not any(writer.done() for writer in writers):
                time.sleep(0.01)
            with opencode:
                opencode.list()
                is_migrated.set()
                for writer in writers:
                    writer.result()
                shown = [message for session in sessions for message in opencode.messages(session)]
        finally:
            is_migrated.set()
    assert select(path, "SELECT count(*) FROM migration") == [(len(MIGRATIONS),)]
    assert {message["info"]["id"] for message in shown} == {name for name in acknowledged if name.startswith("msg")}
    assert {part["id"] for message in shown for part in message["parts"]} == {*acknowledged[1::2]}
    assert_sound(path)
