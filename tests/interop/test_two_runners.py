"""opensesh and OpenCode run one session at the same time: each case is noticed, said, and waited for or stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import assert_sound, select
from .opencode import DATABASE, OpenCode
from .sides import EvenModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop


@pytest.fixture(
    scope="module",
    params=[DATABASE, *(pytest.param(version, marks=pytest.mark.slow) for version in ("1.18.34", "1.2.27"))],
)
def opencode(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCode]:
    with (
        WireServer(EvenModel.prompted()) as wire,
        OpenCode(tmp_path_factory.mktemp("opencode"), wire, version=request.param) as server,
    ):
        yield server
        server.settle()
        assert_sound(server.database)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def hold(file: Path, answer: str) -> str:
    """A prompt whose tool runs until a file exists."""
    return (
        f'CALL bash {{"command": "until [ -e {file} ]; do sleep 0.1; done", "description": "wait"}}\n---\nSAY {answer}.'
    )


def has_running_tool(opencode: OpenCode, session: str) -> bool:
    state = "json_extract(data, '$.state.status') = 'running'"
    return bool(select(opencode.database, f"SELECT 1 FROM part WHERE session_id = ? AND {state}", session))


def start(opencode: OpenCode, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "opensesh", "run", *arguments],
        cwd=opencode.directory,
        env=opencode.environment | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_run_of_opencode_is_waited_for(opencode: OpenCode, tmp_path: Path) -> None:
    session, done = opencode.create("theirs first")["id"], tmp_path / "done"
    thread = threading.Thread(target=opencode.prompt, args=(session, hold(done, "theirs")))
    thread.start()
    until(lambda: has_running_tool(opencode, session))
    process = start(opencode, "SAY ours.", "--session", session)
    assert process.stderr is not None
    text = process.stderr.readline()
    assert "seems to be run by another program: pid" in text
    assert "Waiting for it, at most 10 s" in text
    done.touch()
    out, error = process.communicate(timeout=60)
    thread.join()
    assert (process.returncode, out) == (0, "ours.\n"), error
    texts = [part["text"].strip() for message in opencode.show(session) for part in message["parts"] if "text" in part]
    assert texts[-3:] == ["theirs.", "SAY ours.", "ours."]


def test_a_run_of_opencode_that_lasts_is_refused_unless_it_is_ignored(opencode: OpenCode, tmp_path: Path) -> None:
    session, done = opencode.create("theirs lasts")["id"], tmp_path / "done"
    thread = threading.Thread(target=opencode.prompt, args=(session, hold(done, "theirs")))
    thread.start()
    until(lambda: has_running_tool(opencode, session))
    process = start(opencode, "SAY ours.", "--session", session)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (4, ""), error
    assert "OPENSESH_IGNORE_OTHER_PROGRAMS=1" in error
    process = start(opencode, "SAY regardless.", "--session", session, OPENSESH_IGNORE_OTHER_PROGRAMS="1")
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "regardless.\n"), error
    done.touch()
    thread.join()
    opencode.show(session)


def test_a_prompt_of_opencode_ends_a_run_after_its_step(opencode: OpenCode, tmp_path: Path) -> None:
    session, done = opencode.create("ours first")["id"], tmp_path / "done"
    process = start(opencode, hold(done, "ours"), "--session", session, "--yes")
    until(lambda: has_running_tool(opencode, session))
    opencode.prompt(session, "SAY theirs.")
    done.touch()
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, ""), error
    assert "another program added msg_" in error
    assert f"Continue with: opensesh run --session {session}" in error
    tools = [
        part["state"]["status"] for message in opencode.show(session) for part in message["parts"] if "state" in part
    ]
    assert tools == ["completed"]
    process = start(opencode, "SAY again.", "--session", session)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "again.\n"), error
    opencode.show(session)
