"""Writers of opensesh beside a real OpenCode server, killed again and again: nothing is lost on either side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from opensesh import ids
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import assert_sound, new_session, select
from .opencode import DATABASE, OpenCode
from .sides import EvenModel

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
WRITER = """
import sys, time
from opensesh import ids
from opensesh.storage.opencode_db.store import OpencodeDB
from tests.storage.opencode_databases import new_message, new_text
store = OpencodeDB(sys.argv[1])
for number in range(10_000):
    session = sys.argv[2 + number % len(sys.argv[2:])]
    message, part = ids.ascending("msg"), ids.ascending("prt")
    with store.batch() as batch:
        batch.write(("message", session, message), new_message(session, message, at=1000 + number))
        batch.write(("part", message, part), new_text(message, part, "x" * 200, sessionID=session))
    print(message, part, flush=True)
    time.sleep(0.02)
"""


class Writers:
    """Keeps a process writing into sessions, and kills it after a number of acknowledged writes."""

    def __init__(self, database: Path, sessions: list[str], writes: int) -> None:
        self.acknowledged: list[str] = []
        self.kills = 0
        self._command = [sys.executable, "-c", WRITER, str(database), *sessions]
        self._writes = writes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _keep_writing(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
        while not self._ended.is_set():
            with subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, env=environment) as process:
                assert process.stdout is not None
                lines = [process.stdout.readline() for _ in range(self._writes)]
                process.send_signal(signal.SIGKILL)
                lines += process.stdout.readlines()
            self.kills += 1
            self.acknowledged += [name for line in lines if line.endswith("\n") for name in line.split()]


@pytest.mark.parametrize(
    ("prompts", "writes"), [(4, 20), pytest.param(100, 60, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_nothing_is_lost_beside_a_server_when_writers_are_killed(tmp_path: Path, prompts: int, writes: int) -> None:
    with WireServer(EvenModel.prompted()) as wire, OpenCode(tmp_path, wire, version=DATABASE) as opencode:
        theirs: dict[str, Any] = opencode.create("theirs")
        sessions = [ids.descending("ses") for _ in range(2)]
        with OpencodeDB(opencode.database) as store:
            for session in sessions:
                record = new_session(session, project=theirs["projectID"], directory=str(opencode.directory))
                store.write(("session", theirs["projectID"], session), record)
        writers = Writers(opencode.database, sessions, writes)
        try:
            for number in range(prompts):
                answer = opencode.prompt(
                    theirs["id"], f'CALL bash {{"command": "echo hi", "description": "d"}}\n---\nSAY {number}.'
                )
                assert "error" not in answer["info"]
        finally:
            writers.end()
        opencode.settle()
        stored = {
            name for table in ("message", "part") for (name,) in select(opencode.database, f"SELECT id FROM {table}")
        }
        assert writers.kills
        assert set(writers.acknowledged) <= stored
        torn = "SELECT id FROM message m WHERE NOT EXISTS (SELECT 1 FROM part p WHERE p.message_id = m.id)"
        assert select(opencode.database, torn) == []
        assert len(opencode.messages(theirs["id"])) == 3 * prompts
        for session in sessions:
            opencode.messages(session)
    assert_sound(opencode.database)
