from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from opensesh.project import resolve
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import assert_sound, execute
from . import scenarios
from .opencode import DATABASE, OpenCode, OpenCodeError, new_repository
from .sides import EvenModel, Original

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop


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


def opensesh(
    opencode: OpenCode, *arguments: str, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "opensesh", *arguments],
        cwd=cwd or opencode.directory,
        env=environment or opencode.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_opencode_replays_the_events_of_a_session_that_opensesh_made(
    theirs: Original, wire: WireServer, tmp_path: Path
) -> None:
    opencode = theirs.opencode
    opensesh(opencode, "run", "SAY logged.", "--title", "logged")
    [session] = [key["id"] for key in opencode.list(limit=1000) if key["title"] == "logged"]
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


def test_opencode_lists_its_sessions_again_after_a_repair(wire: WireServer, tmp_path: Path) -> None:
    with OpenCode(tmp_path, wire, version=DATABASE) as opencode:
        session, other = opencode.create("one")["id"], opencode.create("two")["id"]
        opencode.prompt(session, "SAY hi.")
        opencode.settle()
        execute(opencode.database, f"UPDATE session SET revert = '{{}}' WHERE id = '{other}'")
        execute(opencode.database, f"UPDATE event_sequence SET seq = 1 WHERE aggregate_id = '{session}'")
        execute(opencode.database, "UPDATE part SET data = '[]' WHERE json_extract(data, '$.type') = 'step-start'")
        for broken in (opencode.list, lambda: opencode.messages(session), lambda: opencode.update(session, title="x")):
            with pytest.raises(OpenCodeError):
                broken()
        opensesh(opencode, "doctor", "--fix")
        assert {info["id"] for info in opencode.list()} == {session, other}
        assert len(opencode.show(session)) == 2
        opencode.update(session, title="again")
        assert "error" not in opencode.prompt(session, "SAY on.")["info"]
        assert_sound(opencode.database)


REMOTES = (
    "git@Example.com:me/thing.git",
    "git@example.com:/srv/thing.git",
    "alias:me/thing",
    "https://me@example.com:secret@example.com/My Project/ü/./thing?x",
    "git+ssh://git@[::1]:2222/me/thing",
    "../thing",
)


def test_a_repository_is_the_project_that_opencode_makes_of_it(theirs: Original, tmp_path: Path) -> None:
    folders = [new_repository(tmp_path / f"remote-{number}", {"A.md": url}) for number, url in enumerate(REMOTES)]
    for folder, url in zip(folders, REMOTES, strict=True):
        subprocess.run(("git", "config", "remote.origin.url", url), cwd=folder, check=True)
    (folders[0] / "below").mkdir()
    (tmp_path / "link").symlink_to(folders[0] / "below")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / ".git").write_text("gitdir: /nowhere\n")
    folders += [tmp_path / "link", tmp_path / "broken"]
    with OpencodeDB(theirs.opencode.database) as store:
        ours = [resolve(folder, store=store) for folder in folders]
    for folder, location in zip(folders, ours, strict=True):
        theirs.opencode.directory = folder
        project = theirs.opencode.request("GET", "/project/current")
        assert (location.id, location.worktree) == (project["id"], project["worktree"]), folder
    theirs.opencode.directory = theirs.project


def test_clients_of_a_known_server_are_notified_of_what_opensesh_writes(theirs: Original) -> None:
    opencode = theirs.opencode
    session = opencode.create("before")["id"]
    with opencode.events() as events:
        known = opencode.environment | {"OPENSESH_OPENCODE_SERVER": opencode.url}
        opensesh(opencode, "session", "rename", session, "after", environment=known)
        event = next(event for event in events if event["type"] == "session.updated")
        assert event["properties"]["info"]["title"] == "after"
        opensesh(opencode, "run", "SAY hello.", "--session", session, environment=known)
        text = next(
            event["properties"]["part"]
            for event in events
            if event["type"] == "message.part.updated" and event["properties"]["part"]["sessionID"] == session
        )
    assert text in [part for message in opencode.messages(session) for part in message["parts"]]


def test_what_opencode_writes_is_shown_while_it_is_followed(theirs: Original) -> None:
    opencode = theirs.opencode
    session = opencode.create("followed")["id"]
    command = [sys.executable, "-m", "opensesh", "show", session, "--follow"]
    with subprocess.Popen(
        command, cwd=opencode.directory, env=opencode.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "followed\n"
        opencode.prompt(session, 'CALL bash {"command": "echo hi", "description": "d"}\n---\nSAY Seen.')
        lines = [process.stdout.readline()]
        while lines[-1].strip() != "Seen.":
            assert lines[-1], "it ended"
            lines.append(process.stdout.readline())
        process.terminate()  # SIGINT is ignored in processes that a shell has started in the background
    shown = "".join(lines)
    assert shown.count("> bash echo hi") == 1
    assert shown.index("user") < shown.index("> bash") < shown.rindex("Seen.")
