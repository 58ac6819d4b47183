from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.records import as_list, as_object
from opensesh.storage import open_store
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import assert_sound
from . import scenarios
from .opencode import DATABASE, OpenCode, new_repository
from .scenarios import SCENARIOS, Ask, Scenario
from .sides import EvenModel, Original, Ours, play

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

OTHER_VERSIONS = ("1.18.34", "1.17.0", "1.15.13", "1.14.41", "1.2.27")


@pytest.fixture(scope="module")
def wire() -> Iterator[WireServer]:
    with WireServer(EvenModel.prompted()) as server:
        yield server


@pytest.fixture(scope="module")
def theirs(wire: WireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    """OpenCode with a database, while it runs."""
    root = tmp_path_factory.mktemp("opencode")
    with OpenCode(root, wire, version=DATABASE, config=scenarios.config(wire.base_url)) as opencode:
        opencode.list()
        yield Original(opencode)
        assert_sound(opencode.database)


def ours_beside(theirs: Original) -> Ours:
    """opensesh on the same data folder."""
    return Ours(theirs.opencode.root, theirs.project, theirs.config, store=open_store(str(theirs.opencode.data)))


def assert_shown(opencode: OpenCode, session: str) -> list[dict[str, Any]]:
    """Every address of the server that shows a session shows this one; return its messages."""
    assert opencode.get(session)["id"] == session
    assert session in [each["id"] for each in opencode.list(limit=1000)]
    messages = list(opencode.messages(session))
    for path in ("children", "todo", "diff"):
        opencode.request("GET", f"/session/{session}/{path}")
    for message in messages:
        assert opencode.request("GET", f"/session/{session}/message/{message['info']['id']}") == message
    return messages


def known(shown: Any, stored: Any) -> Any:
    """What is shown of a stored value: fields that OpenCode does not know are stored and not shown."""
    objects = as_object(shown), as_object(stored)
    if objects[0] is not None and objects[1] is not None:
        return {name: known(objects[0][name], value) for name, value in objects[1].items() if name in objects[0]}
    lists = as_list(shown), as_list(stored)
    if lists[0] is not None and lists[1] is not None and len(lists[0]) == len(lists[1]):
        return [known(one, other) for one, other in zip(lists[0], lists[1], strict=True)]
    return stored


CASES = [
    pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] if scenario.slow else [])
    for scenario in SCENARIOS
]


@pytest.mark.parametrize("scenario", CASES)
async def test_opencode_shows_and_continues_what_opensesh_ran(
    scenario: Scenario, theirs: Original, wire: WireServer
) -> None:
    if scenario.needs and not shutil.which(scenario.needs):
        pytest.skip(f"{scenario.needs} is not installed")
    async with ours_beside(theirs) as ours:
        sessions = (await play(ours, scenario, wire)).sessions
        stored = {session: list(await ours.messages(session)) for session in sessions}
    for session, messages in stored.items():
        shown = assert_shown(theirs.opencode, session)
        mine = [{"info": info, "parts": parts} for info, parts in messages]
        assert [known(one, other) for one, other in zip(shown, mine, strict=True)] == shown
        assert theirs.opencode.export(session)["info"]["id"] == session
    answer = theirs.opencode.prompt(sessions[-1], "SAY Carried on.")
    assert [part["text"].strip() for part in answer["parts"] if part["type"] == "text"] == ["Carried on."]
    assert_shown(theirs.opencode, sessions[-1])


async def test_both_prompt_one_session_in_turns(theirs: Original, wire: WireServer) -> None:
    session = await theirs.create("in turns")
    for number in range(5):
        theirs.opencode.prompt(session, f"SAY theirs {number}.")
        theirs.opencode.settle()
        async with ours_beside(theirs) as ours:
            await ours.begin(session, [{"type": "text", "text": f"SAY ours {number}."}], {})
            await ours.finish(session)
    said = [
        part["text"].strip()
        for message in assert_shown(theirs.opencode, session)
        if message["info"]["role"] == "assistant"
        for part in message["parts"]
        if part["type"] == "text"
    ]
    assert said == [f"{side} {number}." for number in range(5) for side in ("theirs", "ours")]
    requests = [json.dumps(request.body["messages"]) for request in wire.conversation[-2:]]
    assert all(f"SAY theirs {number}." in requests[-1] and f"ours {number}." in requests[-1] for number in range(4))
    info = theirs.opencode.get(session)
    messages = theirs.opencode.messages(session)
    assert info["cost"] == pytest.approx(sum(message["info"].get("cost", 0) for message in messages))


EDIT = 'CALL bash {"command": "echo two > {at}/a.txt", "description": "write"}\n---\nSAY Written.'
FILES = Scenario("files that change", (Ask(EDIT),), files={"a.txt": "one\n"})


async def test_each_reverts_and_restores_what_the_other_changed(theirs: Original, wire: WireServer) -> None:
    project = theirs.project
    async with ours_beside(theirs) as ours:
        [session] = (await play(ours, FILES, wire)).sessions
        prompt = (await ours.messages(session))[0].info["id"]
    file = project / "files-that-change" / "a.txt"
    assert file.read_text() == "two\n"
    theirs.opencode.revert(session, prompt)
    assert file.read_text() == "one\n"
    theirs.opencode.unrevert(session)
    assert file.read_text() == "two\n"

    file.unlink()
    [other] = (await play(theirs, FILES._replace(name="files that change too"), wire)).sessions
    file = project / "files-that-change-too" / "a.txt"
    theirs.opencode.settle()
    async with ours_beside(theirs) as ours:
        await ours.revert(other, (await ours.messages(other))[0].info["id"], None)
        assert file.read_text() == "one\n"
        assert theirs.opencode.get(other)["revert"]["messageID"]
        await ours.unrevert(other)
    assert file.read_text() == "two\n"
    assert "revert" not in theirs.opencode.get(other)


def opensesh(opencode: OpenCode, *arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "opensesh", *arguments],
        cwd=cwd or opencode.directory,
        env=opencode.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "version", [DATABASE, *(pytest.param(version, marks=pytest.mark.slow) for version in OTHER_VERSIONS)]
)
def test_the_command_line_works_on_a_data_folder_with_nothing_but_a_database(
    version: str, wire: WireServer, tmp_path: Path
) -> None:
    opencode = OpenCode(tmp_path, wire, version=version)
    opencode.cli("session", "list")
    work, plain = opencode.directory, tmp_path / "plain"
    plain.mkdir()
    remote = new_repository(tmp_path / "remote", {"A.md": "a"})
    subprocess.run(("git", "remote", "add", "origin", "git@Example.com:me/Thing.git"), cwd=remote, check=True)
    with OpenCode(tmp_path, wire, version=version, directory=work) as server:
        sessions: dict[str, str] = {}
        for folder in (plain, work, remote):
            opensesh(server, "run", f"SAY in {folder.name}.", "--title", folder.name, cwd=folder)
            server.directory = folder
            [sessions[folder.name]] = [each["id"] for each in server.list() if each["title"] == folder.name]
            opensesh(server, "run", "SAY again.", "--continue", cwd=folder)
            assert len(assert_shown(server, sessions[folder.name])) == 4
            server.prompt(sessions[folder.name], "SAY theirs.")
        server.directory = work
        session = sessions["work"]
        opensesh(server, "session", "rename", session, "renamed")
        assert server.get(session)["title"] == "renamed"
        opensesh(server, "session", "archive", session)
        assert server.get(session)["time"]["archived"]
        opensesh(server, "session", "archive", "--undo", session)
        assert "archived" not in server.get(session)["time"]
        opensesh(server, "session", "fork", session)
        [fork] = [each["id"] for each in server.list() if "fork" in each["title"]]
        before = assert_shown(server, fork)
        opensesh(server, "session", "remove", fork, "--yes")
        assert fork not in [each["id"] for each in server.list()]
        opensesh(server, "session", "restore", fork)
        assert assert_shown(server, fork) == before
        opensesh(server, "session", "compact", session)
        assert any(message["info"].get("summary") is True for message in assert_shown(server, session))
        opensesh(server, "session", "compact", "--undo", session)
        opensesh(server, "session", "move", fork, str(remote))
        server.directory = remote
        assert len(assert_shown(server, fork)) == len(before)
    assert session in opencode.cli("session", "list").stdout
    assert opencode.export(session)["info"]["title"] == "renamed"
    assert_sound(opencode.database)
    with OpencodeDB(opencode.database) as store:
        assert store.writable


def test_opencode_replays_the_events_of_a_session_that_opensesh_made(
    theirs: Original, wire: WireServer, tmp_path: Path
) -> None:
    opencode = theirs.opencode
    opensesh(opencode, "run", "SAY logged.", "--title", "logged")
    [session] = [each["id"] for each in opencode.list(limit=1000) if each["title"] == "logged"]
    with closing(sqlite3.connect(opencode.database)) as connection:
        rows = connection.execute(
            "SELECT id, aggregate_id, seq, type, data FROM event WHERE aggregate_id = ? ORDER BY seq", [session]
        ).fetchall()
    names = ("id", "aggregateID", "seq", "type", "data")
    events = [dict(zip(names, (*row[:4], json.loads(row[4])), strict=True)) for row in rows]
    with OpenCode(tmp_path, wire, version=DATABASE, directory=opencode.directory) as empty:
        empty.list()
        empty.request("POST", "/sync/replay", {"directory": str(opencode.directory), "events": events})
        assert empty.messages(session) == opencode.messages(session)
        assert empty.get(session) == opencode.get(session)
