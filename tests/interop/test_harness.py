from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.testing.wire import WireServer

from .opencode import DATABASE, OpenCode, OpenCodeError, opencode_binary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.interop

SCRIPT = """THINK let me look
SAY I will list the files.
CALL bash {"command": "ls", "description": "list"}
---
SAY There is one."""


def stored(opencode: OpenCode, *key: str) -> list[dict[str, Any]]:
    paths = sorted(opencode.storage.joinpath(*key).glob("*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def test_a_scripted_prompt_runs_through_the_real_opencode(opencode: OpenCode, wire: WireServer) -> None:
    session = opencode.create()["id"]
    seen = len(wire.conversation)
    answer = opencode.prompt(session, SCRIPT)
    opencode.settle()

    assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["There is one."]
    user, first, second = stored(opencode, "message", session)
    assert [user["role"], first["finish"], second["finish"]] == ["user", "tool-calls", "stop"]
    kinds = [part["type"] for part in stored(opencode, "part", first["id"])]
    assert kinds == ["step-start", "reasoning", "text", "tool", "step-finish"]
    tool = stored(opencode, "part", first["id"])[3]
    assert (tool["tool"], tool["state"]["status"], tool["state"]["output"]) == ("bash", "completed", "README.md\n")
    assert opencode.get(session)["title"] == "Scripted title for session"

    asked, again = (request.outline for request in wire.conversation[seen:])
    assert asked["messages"] == [{"role": "user", "content": SCRIPT}]
    assert {"bash", "read", "edit", "task"} < set(asked["tools"])
    assert [message["role"] for message in again["messages"]] == ["user", "assistant", "tool"]
    assert again["messages"][1]["reasoning_content"] == "let me look"
    assert again["messages"][1]["tool_calls"][0]["id"] == tool["callID"]
    assert again["messages"][2]["content"] == "README.md\n"
    size = len(json.dumps(wire.conversation[seen].body["messages"])) // 4
    assert first["tokens"]["total"] == size + 50
    assert first["tokens"]["cache"]["read"] == 300


def test_sessions_can_be_copied_taken_back_compacted_and_removed(opencode: OpenCode) -> None:
    session = opencode.create("Mine")["id"]
    opencode.prompt(session, "SAY one")
    # OpenCode takes its snapshot while the step begins: a tool that comes too soon would already be part of it.
    opencode.prompt(session, 'SAY I write.\nWAIT 0.5\nCALL write {"filePath": "new.txt", "content": "x"}\n---\nSAY two')
    second = opencode.messages(session)[2]["info"]["id"]

    assert len(opencode.messages(opencode.fork(session, second)["id"])) == 2
    assert (opencode.directory / "new.txt").exists()
    assert opencode.revert(session, second)["revert"]["messageID"] == second
    assert not (opencode.directory / "new.txt").exists()
    assert "revert" not in opencode.unrevert(session)
    assert (opencode.directory / "new.txt").exists()
    assert opencode.summarize(session) is True
    summary = opencode.messages(session)[-1]
    assert summary["info"]["summary"] is True
    assert [part["text"] for part in summary["parts"] if part["type"] == "text"] == [
        "Summary: we ran scripted steps. Next: continue."
    ]
    assert opencode.update(session, title="Yours")["title"] == "Yours"
    assert session in [one["id"] for one in opencode.list()]
    opencode.delete(session)
    with pytest.raises(OpenCodeError) as caught:
        opencode.get(session)
    assert caught.value.status == 404


def test_a_running_prompt_can_be_aborted(opencode: OpenCode, wire: WireServer) -> None:
    session = opencode.create()["id"]
    seen = len(wire.conversation)
    opencode.prompt_async(session, "SAY half an answer\nHANG")
    wire.wait_for(seen + 1)
    while not any(part.get("text") for part in opencode.messages(session)[-1]["parts"]):
        time.sleep(0.05)
    opencode.abort(session)
    opencode.settle()
    assert opencode.messages(session)[-1]["info"]["error"]["name"] == "MessageAbortedError"
    assert wire.conversation[seen].dropped


def test_a_failure_is_retried(opencode: OpenCode, wire: WireServer) -> None:
    session = opencode.create()["id"]
    seen = len(wire.conversation)
    answer = opencode.prompt(session, "ERROR rate-limit after=0.2 form=ms\nSAY at last")
    assert answer["info"]["finish"] == "stop"
    assert len(wire.conversation) == seen + 2


def test_the_command_line_shares_the_data(opencode: OpenCode, tmp_path: Path) -> None:
    printed = opencode.run("SAY exported")
    assert [event["part"]["text"] for event in printed if event["type"] == "text"] == ["exported"]
    session = printed[0]["sessionID"]
    exported = opencode.export(session)
    assert exported["info"]["id"] == session
    assert len(exported["messages"]) == 2
    opencode.delete(session)
    file = tmp_path / "session.json"
    file.write_text(json.dumps(exported))
    assert session in opencode.import_file(file)
    assert session in [one["id"] for one in opencode.session_list()]


def test_a_new_opencode_starts_again_on_its_data(new_opencode: Callable[..., OpenCode]) -> None:
    with WireServer("SAY first\n---\nSAY second\n---\nTITLE A title") as wire:
        opencode = new_opencode(wire)
        session = opencode.create()["id"]
        opencode.prompt(session, "anything")
        opencode.settle()
        opencode.stop()
        opencode.start()
        assert opencode.get(session)["title"] == "A title"
        answer = opencode.prompt(session, "more")
        assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["second"]
    wire.model.assert_complete()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a server are found in /proc")
def test_a_summary_that_is_written_after_the_run_is_awaited(
    new_opencode: Callable[..., OpenCode], wire: WireServer, tmp_path: Path
) -> None:
    git = tmp_path / "git"
    git.write_text(f'#!/bin/sh\ncase "$*" in *" diff "*) sleep 1;; esac\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    opencode = new_opencode(wire, version=DATABASE, environment=path)
    session = opencode.create("one")["id"]
    opencode.prompt(session, "SAY hello.")
    opencode.summarize(session)
    opencode.settle()
    assert [message["info"].get("summary") for message in opencode.messages(session)][2:] == [{"diffs": []}, True]


def test_the_program_is_kept_where_the_tests_of_tomorrow_find_it() -> None:
    program = opencode_binary()
    changed = program.stat().st_mtime_ns
    assert opencode_binary() == program
    assert program.stat().st_mtime_ns == changed
