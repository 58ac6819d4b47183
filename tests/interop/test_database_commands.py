"""Every command on a data folder with nothing but the database of a real OpenCode, which then shows what was done."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.testing.wire import WireServer

from ..sharing.process import Server
from ..storage.opencode_databases import assert_sound, select
from .opencode import DATABASE, JSON_FILES, OTHER_VERSIONS, UPGRADES, OpenCode, new_repository
from .sides import EvenModel
from .test_database import opensesh
from .test_database_matrix import statuses, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

LIBRARY = """
import asyncio, opensesh
async def main():
    async with opensesh.open() as engine:
        session = engine.sessions.create(title="from Python")
        print((await engine.run(session.id, "SAY from Python.")).kind)
asyncio.run(main())
"""


class Journey(NamedTuple):
    """A running OpenCode, and the sessions that the tests make beside it."""

    opencode: OpenCode
    work: Path
    """A repository that OpenCode knows."""
    remote: Path
    """One with a remote, which it does not know."""
    own: dict[str, str]
    """The sessions that OpenCode made, one by each version that has opened the data folder, by version."""
    before: dict[str, int]
    """What its server answers to every GET with a session of its own."""

    def session(self, title: str, folder: Path | None = None) -> str:
        """Return the session of that title which OpenCode lists in a folder."""
        self.opencode.directory = folder or self.work
        [name] = [info["id"] for info in self.opencode.list(limit=1000) if info["title"] == title]
        return name

    def run(self, title: str, prompt: str = "SAY hello.") -> str:
        """Run a prompt in a new session."""
        opensesh(self.opencode, "run", prompt, "--title", title, "--yes", cwd=self.work)
        return self.session(title)

    def shown(self, session: str, folder: Path | None = None) -> Any:
        """Return the messages that OpenCode shows."""
        self.opencode.directory = folder or self.work
        return self.opencode.show(session)

    def check(self, session: str, folder: Path | None = None) -> None:
        """Assert that OpenCode shows a session, and answers every GET about it as for one of its own."""
        self.shown(session, folder)
        assert _anonymous(statuses(self.opencode, session), session) == self.before


def _anonymous(result: dict[str, int], session: str) -> dict[str, int]:
    message = next((path.rpartition("/")[2] for path in result if "/msg_" in path), "msg_")
    return {path.replace(session, "ses_").replace(message, "msg_"): status for path, status in result.items()}


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("shares"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(
    scope="module",
    params=[DATABASE, *(pytest.param(path, marks=pytest.mark.slow) for path in OTHER_VERSIONS + UPGRADES)],
)
def journey(
    request: pytest.FixtureRequest, shares: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Journey]:
    root = tmp_path_factory.mktemp("opencode")
    remote = new_repository(root / "remote", {"A.md": "a"})
    subprocess.run(("git", "remote", "add", "origin", "git@Example.com:me/Thing.git"), cwd=remote, check=True)
    config = {"share": "manual", "enterprise": {"url": shares.url}}
    work = new_repository(root / "work")
    *earlier, last = request.param.split(">")
    own: dict[str, str] = {}
    with WireServer(EvenModel.prompted()) as wire:

        def prompt(opencode: OpenCode) -> None:
            own[opencode.version] = opencode.create(opencode.version)["id"]
            opencode.prompt(own[opencode.version], "SAY first.")
            opencode.settle()

        for version in earlier:
            with OpenCode(root, wire, version=version, directory=work, config=config) as opencode:
                prompt(opencode)
        with OpenCode(root, wire, version=last, directory=work, config=config) as opencode:
            prompt(opencode)
            tree = sorted((opencode.storage / "session").rglob("*"))
            assert JSON_FILES in own or not tree
            yield Journey(opencode, work, remote, own, _anonymous(statuses(opencode, own[last]), own[last]))
        assert_sound(opencode.database)
        with OpencodeDB(opencode.database) as store:
            assert store.writable
        assert sorted((opencode.storage / "session").rglob("*")) == tree, "something was written to the tree"


def test_sessions_that_opencode_made_are_continued_by_both(journey: Journey) -> None:
    opencode = journey.opencode
    listed = {entry["id"] for entry in json.loads(opensesh(opencode, "list", "--json", cwd=journey.work))["sessions"]}
    assert listed >= set(journey.own.values())
    for version, session in journey.own.items():
        opensesh(opencode, "run", "SAY ours.", "--session", session, cwd=journey.work)
        assert "first." in opensesh(opencode, "show", session, cwd=journey.work)
        opencode.prompt(session, "SAY theirs.")
        opensesh(opencode, "session", "rename", session, f"again {version}", cwd=journey.work)
        assert [text for message in journey.shown(session) for text in texts(message)][1::2] == [
            "first.",
            "ours.",
            "theirs.",
        ]
        assert opencode.get(session)["title"] == f"again {version}"
        assert opencode.export(session)["info"]["title"] == f"again {version}"
        journey.check(session)


@pytest.mark.parametrize("place", ["plain", pytest.param("empty", marks=pytest.mark.slow), "work", "remote"])
def test_prompts_are_run_and_continued(journey: Journey, place: str) -> None:
    opencode = journey.opencode
    folder = opencode.root / place
    folder.mkdir(exist_ok=True)
    if place == "empty":
        subprocess.run(("git", "init", "-q"), cwd=folder, check=True)
    opensesh(opencode, "run", "SAY hello.", "--title", place, cwd=folder)
    opensesh(opencode, "run", "SAY again.", "--continue", cwd=folder)
    session = journey.session(place, folder)
    assert len(journey.shown(session, folder)) == 4
    opencode.prompt(session, "SAY theirs.")
    assert len(journey.shown(session, folder)) == 6
    journey.check(session, folder)


def test_the_library_opens_it(journey: Journey) -> None:
    command = [sys.executable, "-c", LIBRARY]
    environment = journey.opencode.environment
    done = subprocess.run(command, cwd=journey.work, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "answered\n", done.stderr
    session = journey.session("from Python")
    assert len(journey.shown(session)) == 2
    journey.check(session)


def test_a_session_is_renamed_archived_forked_removed_moved_and_restored(journey: Journey) -> None:
    opencode = journey.opencode
    session = journey.run("one")
    opensesh(opencode, "session", "rename", session, "two ü 🎉")
    assert opencode.get(session)["title"] == "two ü 🎉"
    for undo in (("archive", "--undo", session), ("restore", "last")):
        opensesh(opencode, "session", "archive", session)
        assert opencode.get(session)["time"]["archived"]
        opensesh(opencode, "session", *undo)
        assert "archived" not in opencode.get(session)["time"]
    opensesh(opencode, "session", "fork", session)
    fork = journey.session("two ü 🎉 (fork #1)")
    before = journey.shown(fork)
    opensesh(opencode, "session", "remove", fork, "--yes")
    assert fork not in [info["id"] for info in opencode.list(limit=1000)]
    opensesh(opencode, "session", "restore", fork)
    assert journey.shown(fork) == before
    opensesh(opencode, "session", "move", fork, str(journey.remote))
    assert journey.shown(fork, journey.remote) == before
    opensesh(opencode, "session", "restore", "last", cwd=journey.work)
    assert journey.shown(fork) == before
    assert session in opencode.cli("session", "list").stdout
    assert opencode.export(fork)["messages"]
    journey.check(fork)


def test_changes_are_reverted_by_one_program_and_restored_by_the_other(journey: Journey) -> None:
    opencode, file = journey.opencode, journey.work / "b.txt"
    todos = json.dumps({"todos": [{"content": "look", "status": "pending", "priority": "high", "id": "1"}]})
    write = json.dumps({"command": f"echo two > {file}", "description": "write"})
    session = journey.run("files", f"CALL bash {write}\n---\nCALL todowrite {todos}\n---\nSAY Written.")
    prompt = journey.shown(session)[0]["info"]["id"]
    assert [todo["content"] for todo in opencode.todo(session)] == ["look"]

    def ours(*arguments: str) -> None:
        opensesh(opencode, "session", *arguments, "--yes", cwd=journey.work)

    for revert, unrevert in (
        (lambda: ours("revert", session, prompt), lambda: ours("unrevert", session)),
        (lambda: ours("revert", session, prompt), lambda: opencode.unrevert(session)),
        (lambda: opencode.revert(session, prompt), lambda: ours("unrevert", session)),
    ):
        assert file.read_text() == "two\n"
        revert()
        assert not file.exists()
        assert opencode.get(session)["revert"]["messageID"] == prompt
        assert len(journey.shown(session)) == 4
        unrevert()
        assert "revert" not in opencode.get(session)
    assert file.read_text() == "two\n"
    journey.check(session)


def test_a_compaction_is_made_and_undone(journey: Journey) -> None:
    session = journey.run("long")
    before = journey.shown(session)
    opensesh(journey.opencode, "session", "compact", session)
    assert any(message["info"].get("summary") is True for message in journey.shown(session))
    opensesh(journey.opencode, "session", "compact", "--undo", session)
    assert journey.shown(session) == before
    assert "error" not in journey.opencode.prompt(session, "SAY on.")["info"]
    journey.check(session)


def test_a_session_is_shared_by_one_program_and_unshared_by_the_other(journey: Journey) -> None:
    opencode, rows = journey.opencode, "SELECT count(*) FROM session_share WHERE session_id = ?"
    session = journey.run("shared")
    opensesh(opencode, "session", "share", session, "--yes")
    link = opencode.get(session)["share"]["url"]
    assert link.endswith(select(opencode.database, "SELECT id FROM session_share WHERE session_id = ?", session)[0][0])
    journey.shown(session)
    opencode.request("DELETE", f"/session/{session}/share")
    assert select(opencode.database, rows, session) == [(0,)]
    assert opencode.request("POST", f"/session/{session}/share")["share"]["url"]
    opensesh(opencode, "session", "unshare", session)
    assert "share" not in opencode.get(session)
    assert select(opencode.database, rows, session) == [(0,)]
    journey.check(session)


def test_sessions_are_exported_imported_and_found_sound(journey: Journey, tmp_path: Path) -> None:
    opencode, file = journey.opencode, tmp_path / "session.json"
    session = journey.run("to export")
    before = journey.shown(session)
    file.write_text(opensesh(opencode, "export", session, "--format", "opencode"))
    opensesh(opencode, "session", "remove", session, "--yes")
    opensesh(opencode, "import", str(file))
    assert journey.shown(session) == before
    assert "unchanged" in opensesh(opencode, "import", str(file))
    assert session in opensesh(opencode, "search", "hello", "--json")
    result = json.loads(opensesh(opencode, "doctor", "--json"))["findings"]
    assert {finding["kind"] for finding in result} <= {"folder", "share"}
    assert json.loads(opensesh(opencode, "doctor", "--fix", "--json"))["fixed"] == 0
    assert opencode.export(session)["info"]["id"] == session
    journey.check(session)
