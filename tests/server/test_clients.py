from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.interop.opencode import DATABASE, JSON_FILES, opencode_binary

from .kit_server import (
    FOLDER,
    OURS,
    KitServer,
    javascript_sdk,
    kit_module,
    kit_server,
    program,
    python_sdk,
    run_client,
)

ASKED = ("get-unknown",)
"""Calls of the SDK's journey that must fail."""
CLIENT_SECONDS = 90


def attached(server: KitServer, version: str, *options: str, text: str) -> str:
    done = run_client(server, opencode_binary(version), "run", "--attach", server.url, *options, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def messages(server: KitServer) -> list[dict[str, Any]]:
    headers = {"x-opencode-directory": str(server.directory)}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=60) as client:
        session = client.get("/session").json()[0]
        return client.get(f"/session/{session['id']}/message").json()


def check_javascript(server: KitServer, version: str, face: str) -> None:
    script = FOLDER / "clients" / "js_check.mjs"
    done = run_client(server, program("node"), script, javascript_sdk(version), face, server.url, server.directory)
    result = json.loads(done.stdout)
    assert result["text"] == "answer for the sdk"
    assert "stream" not in result
    failed = {name: value for name, value in result.items() if str(value).startswith("error") and name not in ASKED}
    assert failed == {}


def check_terminal(tmp_path: Path, version: str, *options: str) -> None:
    program("tmux")
    server = KitServer("", tmp_path, 0)
    server.directory.mkdir(parents=True)
    binary = opencode_binary(version)
    script = FOLDER / "tui_check.py"
    done = run_client(server, sys.executable, script, "-", version, "--spawn", OURS, "--opencode", binary, *options)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.timeout(300)
def test_opencode_run_attaches(tmp_path: Path) -> None:
    with kit_server(tmp_path) as server:
        assert "hello there friend" in attached(server, JSON_FILES, text="SAY hello there friend")
        assert "continued" in attached(server, JSON_FILES, "-c", text="SAY continued")
        assert [message["info"]["role"] for message in messages(server)] == ["user", "assistant"] * 2


@pytest.mark.timeout(300)
def test_the_newest_javascript_sdk_finds_everything(tmp_path: Path) -> None:
    with kit_server(tmp_path) as server:
        check_javascript(server, "1.19.3", "v2")


@pytest.mark.timeout(300)
def test_the_terminal_client_of_1_1_65_starts_and_prompts(tmp_path: Path) -> None:
    check_terminal(tmp_path, JSON_FILES, "--only", "start,prompt,end")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [JSON_FILES, DATABASE])
def test_the_terminal_client_finds_everything(tmp_path: Path, version: str) -> None:
    check_terminal(tmp_path, version)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("face", ["v1", "v2"])
@pytest.mark.parametrize("version", ["1.1.65", "1.19.3"])
def test_javascript_sdks_find_everything(tmp_path: Path, version: str, face: str) -> None:
    with kit_server(tmp_path) as server:
        check_javascript(server, version, face)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_python_sdk_finds_everything(tmp_path: Path) -> None:
    python = python_sdk()
    with kit_server(tmp_path) as server:
        done = run_client(server, python, FOLDER / "clients" / "py_check.py", server.url, server.directory)
        result = json.loads(done.stdout)
    # The SDK's model of an answer is older than OpenCode 1.1.65, which sends it as {"info", "parts"} too.
    failed = {name: value for name, value in result.items() if value != "ok" and name not in ("sdk", "chat-id")}
    assert failed == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [JSON_FILES, DATABASE])
def test_opencode_run_attaches_in_every_way(tmp_path: Path, version: str) -> None:
    with kit_server(tmp_path) as server:
        assert "hello" in attached(server, version, text="SAY hello")
        session_id = messages(server)[0]["info"]["sessionID"]
        assert "in that session" in attached(server, version, "--session", session_id, text="SAY in that session")
        assert "on a fork" in attached(server, version, "--session", session_id, "--fork", text="SAY on a fork")
        assert "titled" in attached(server, version, "--title", "Given title", text="SAY titled")
        called = 'CALL bash {"command":"echo j","description":"E"}\n---\nSAY second'
        lines = [json.loads(line) for line in attached(server, version, "--format", "json", text=called).splitlines()]
        assert {"step_start", "tool_use", "text", "step_finish"} <= {line["type"] for line in lines}
        notes = str(server.directory / "notes.txt")
        assert "saw the file" in attached(server, version, "-f", notes, "--", text="SAY saw the file")
        asked = 'CALL bash {"command":"touch asked.txt","description":"T"}\n---\nSAY after'
        attached(server, version, text=asked)
        assert not (server.directory / "asked.txt").exists()


@contextmanager
def terminal_client(server: KitServer, version: str, session_id: str) -> Generator[Any]:
    """Run OpenCode's terminal client with a session of a server."""
    homes = Path(tempfile.mkdtemp(dir=server.root))
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(homes)}
    for name in ("DATA", "CONFIG", "CACHE", "STATE"):
        environment[f"XDG_{name}_HOME"] = str(homes / name.lower())
    for flag in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "TERMINAL_TITLE"):
        environment[f"OPENCODE_DISABLE_{flag}"] = "1"
    screen: Any = kit_module("tui_check").Tui("client", homes.name)
    screen.start(
        f"{opencode_binary(version)} attach {server.url} --dir '{server.directory}' --session {session_id}", environment
    )
    try:
        yield screen
    finally:
        screen.tmux("kill-server")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [JSON_FILES, DATABASE])
def test_terminal_clients_of_both_servers_continue_each_others_sessions(tmp_path: Path, version: str) -> None:
    program("tmux")
    real = f"{opencode_binary(version)} serve --port {{port}} --hostname 127.0.0.1"
    with kit_server(tmp_path, real) as theirs, kit_server(tmp_path, beside=theirs) as ours:
        assert (tmp_path / "data/opencode/opencode.db").exists() == (version == DATABASE)
        headers = {"x-opencode-directory": str(ours.directory)}
        with httpx2.Client(base_url=ours.url, headers=headers, timeout=60) as client:
            session_id = client.post("/session", json={"title": "In turns"}).json()["id"]
        for turn, server in enumerate((ours, theirs, ours, theirs, ours)):
            with terminal_client(server, version, session_id) as screen:
                ready = f"answer of turn {turn - 1}" if turn else "ctrl.p"
                assert screen.sees(ready, CLIENT_SECONDS), screen.screen()
                prompt = f"SAY answer of turn {turn}"
                screen.type(prompt)
                assert screen.sees(prompt, CLIENT_SECONDS), screen.screen()
                screen.keys("Enter")
                assert screen.sees(rf"^\s+answer of turn {turn}", CLIENT_SECONDS), screen.screen()
                wait_until_answered(server, 2 * (turn + 1))
        for server in (ours, theirs):
            stored = messages(server)
            texts = [part["text"] for message in stored for part in message["parts"] if part["type"] == "text"]
            assert texts == [
                text for turn in range(5) for text in (f"SAY answer of turn {turn}", f"answer of turn {turn}")
            ]


def wait_until_answered(server: KitServer, count: int) -> None:
    """Wait until a session has so many messages, and all answers are complete."""
    deadline = time.monotonic() + CLIENT_SECONDS
    while True:
        infos = [message["info"] for message in messages(server)]
        complete = [info for info in infos if info["role"] == "user" or "completed" in info["time"]]
        if len(infos) == len(complete) == count:
            return
        assert time.monotonic() < deadline, infos
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clients_of_opencode_and_of_opensesh_continue_sessions_in_turns(tmp_path: Path) -> None:
    real = f"{opencode_binary(JSON_FILES)} serve --port {{port}} --hostname 127.0.0.1"
    with kit_server(tmp_path) as ours, kit_server(tmp_path, real, beside=ours) as theirs:
        attached(ours, JSON_FILES, text="SAY one")
        for number, server in enumerate((theirs, ours, theirs, ours)):
            assert f"turn {number}" in attached(server, JSON_FILES, "-c", text=f"SAY turn {number}")
        stored = messages(ours)
        assert [message["info"]["id"] for message in stored] == [message["info"]["id"] for message in messages(theirs)]
        assert [message["info"]["role"] for message in stored] == ["user", "assistant"] * 5
