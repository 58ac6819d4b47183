from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from opensesh.testing.wire import WireServer

from ..server.test_attached_run import opensesh
from .opencode import DATABASE, JSON_FILES, OpenCode
from .scenarios import AFTER_A_WHILE

pytestmark = pytest.mark.interop
WRITE = AFTER_A_WHILE + 'CALL write {"filePath": "new.txt", "content": "one\\n"}\n---\nSAY written'


@pytest.mark.parametrize("version", [pytest.param(JSON_FILES, marks=pytest.mark.slow), DATABASE])
async def test_session_actions_are_done_by_the_server_of_opencode(
    wire: WireServer, new_opencode: Callable[..., OpenCode], version: str
) -> None:
    opencode = new_opencode(wire, version=version)

    async def session(*arguments: str, code: int = 0) -> str:
        exit_code, out, err = await opensesh("session", *arguments, "--attach", opencode.url, cwd=opencode.directory)
        assert exit_code == code, out + err
        return out + err

    session_id = opencode.create("First")["id"]
    opencode.prompt(session_id, WRITE)
    opencode.settle()
    new_file = opencode.directory / "new.txt"
    assert await session("rename", "last", "Second") == f"{session_id} renamed: Second\n"
    fork_id = json.loads(await session("fork", session_id[:14], "--json"))["id"]
    assert len(opencode.messages(fork_id)) == len(opencode.messages(session_id))
    prompt_id = opencode.messages(session_id)[0]["info"]["id"]
    assert "new.txt" in await session("diff", session_id, "--stat", "--message", prompt_id)
    assert "confirm with --yes" in await session("revert", session_id, code=2)
    assert await session("revert", session_id, "--yes") == f"{session_id} reverted\n"
    assert not new_file.exists()
    assert await session("unrevert", session_id, "--yes") == f"{session_id} unreverted\n"
    assert new_file.read_text() == "one\n"
    spoken_id = opencode.create("Spoken")["id"]
    for script in ("SAY one", "SAY two"):
        opencode.prompt(spoken_id, script)
    assert await session("compact", spoken_id) == f"{spoken_id} compacted: Spoken\n"
    assert any(message["info"].get("summary") is True for message in opencode.messages(spoken_id))
    await session("remove", spoken_id, "--yes")
    assert "Archived: 1 session." in await session("archive", fork_id)
    assert opencode.get(fork_id)["time"]["archived"]
    assert "deleted permanently; confirm with --yes" in await session("remove", fork_id, code=2)
    assert "Deleted permanently: 1 session." in await session("remove", fork_id, "--yes")
    assert [one["id"] for one in opencode.list()] == [session_id]
    for action in (
        ("trash",),
        ("restore", "last"),
        ("compact", "--undo", session_id),
        ("archive", "--undo", session_id),
    ):
        assert "needs a server of opensesh" in await session(*action, code=2)
