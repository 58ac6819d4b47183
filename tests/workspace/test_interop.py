from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opensesh import ids
from opensesh.project import register
from opensesh.records import dumps, loads
from opensesh.storage import keys
from opensesh.testing.wire import WireServer
from opensesh.workspace.diffs import snapshot_range, summarize

from ..interop.opencode import OpenCode
from .project_setup import Workspace, contents, deletes, edits, write, writes

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

START = {"README.md": "hello\n"}


def workspace_of(opencode: OpenCode) -> Workspace:
    """A workspace on OpenCode's own data."""
    home = opencode.root / "ours"
    home.mkdir(exist_ok=True)
    if not (home / "data").exists():
        (home / "data").symlink_to(opencode.data, target_is_directory=True)
    return Workspace(home, opencode.directory)


def call(name: str, arguments: str) -> str:
    # OpenCode takes its snapshot while the step begins: a tool that comes too soon would already be part of it.
    return f"SAY now\nWAIT 0.5\nCALL {name} {arguments}\n---\n"


def two_turns(opencode: OpenCode) -> tuple[str, str, str]:
    session = opencode.create("Interop")["id"]
    new = str(opencode.directory / "new.txt")
    opencode.prompt(session, call("write", f'{{"filePath": "{new}", "content": "one\\n"}}') + "SAY done")
    edit = f'{{"filePath": "{opencode.directory / "README.md"}", "oldString": "hello", "newString": "bye"}}'
    opencode.prompt(
        session,
        call("read", f'{{"filePath": "{opencode.directory / "README.md"}"}}')
        + call("edit", edit)
        + call("bash", '{"command": "rm new.txt; mkdir deep; echo x > deep/x.txt", "description": "d"}')
        + "SAY done",
    )
    opencode.settle()
    first, second = (
        message["info"]["id"] for message in opencode.messages(session) if message["info"]["role"] == "user"
    )
    return session, first, second


AFTER_ONE = START | {"new.txt": "one\n"}
AFTER_TWO = {"README.md": "bye\n", "deep/x.txt": "x\n"}


def without_time(session: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in session.items() if name != "time"}


def test_what_opencode_did_we_revert_and_opencode_brings_back(
    wire: WireServer, new_opencode: Callable[..., OpenCode]
) -> None:
    opencode = new_opencode(wire)
    session, first, second = two_turns(opencode)
    workspace = workspace_of(opencode)
    assert contents(workspace.folder) == AFTER_TWO

    # What OpenCode computed, we compute alike.
    assert opencode.diff(session) == (stored := workspace.sessions.diff(session))
    ends = snapshot_range(workspace.history(session))
    assert ends is not None
    assert workspace.snapshots.diff(*ends) == stored

    ours = workspace.reverts.revert(session, second)
    assert contents(workspace.folder) == AFTER_ONE
    assert opencode.get(session) == ours.session.document
    restored = opencode.unrevert(session)
    assert "revert" not in restored
    assert contents(workspace.folder) == AFTER_TWO | {"new.txt": "one\n"}  # it never deletes what came back

    # The same by OpenCode alone: the records are the same.
    (workspace.folder / "new.txt").unlink()
    theirs = opencode.revert(session, second)
    assert contents(workspace.folder) == AFTER_ONE
    assert without_time(theirs) == without_time(ours.session.document)
    assert opencode.diff(session) == workspace.sessions.diff(session)

    # And we bring back what OpenCode took, also the deleting.
    workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == AFTER_TWO
    assert "revert" not in opencode.get(session)
    for path in opencode.storage.rglob("*.json"):
        assert dumps(loads(path.read_bytes(), str(path))) == path.read_bytes(), path

    workspace.reverts.revert(session, first)
    assert contents(workspace.folder) == START
    opencode.prompt(session, "SAY a new beginning")
    opencode.settle()
    assert first not in [item.info["id"] for item in workspace.history(session)]
    assert len(workspace.history(session)) == 2


def test_a_revert_of_opencodes_moves_on_with_us_and_is_made_final(
    wire: WireServer, new_opencode: Callable[..., OpenCode]
) -> None:
    opencode = new_opencode(wire)
    session, first, second = two_turns(opencode)
    workspace = workspace_of(opencode)
    snapshot = opencode.revert(session, second)["revert"]["snapshot"]
    moved = workspace.reverts.revert(session, first)
    assert contents(workspace.folder) == START
    assert moved.session.document["revert"]["snapshot"] == snapshot
    workspace.reverts.revert(session, second)
    assert contents(workspace.folder) == AFTER_ONE
    workspace.reverts.cleanup(session)
    assert [message["info"]["role"] for message in opencode.messages(session)] == ["user", "assistant", "assistant"]
    assert "revert" not in opencode.get(session)
    answer = opencode.prompt(session, "SAY still here")
    assert answer["info"]["finish"] == "stop"


def test_what_we_did_opencode_reverts_and_we_bring_back(
    wire: WireServer, new_opencode: Callable[..., OpenCode]
) -> None:
    opencode = new_opencode(wire)
    opencode.stop()
    workspace = workspace_of(opencode)
    register(workspace.sessions.store, workspace.place)
    write(workspace.folder, {"kept.txt": "kept\n", "gone.txt": "gone\n"})
    before = contents(workspace.folder)
    session = workspace.session()
    prompt = workspace.prompt(session)
    workspace.sessions.store.update(
        keys.message(session, prompt), lambda info: info.update(model={"providerID": "fake", "modelID": "scripted"})
    )

    changes = (deletes("gone.txt"), edits("README.md", "bye\n"), writes({"deep/ü x.txt": "new\n"}))
    answer = workspace.step(session, prompt, *changes)
    finish = {"cost": 0, "tokens": {"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}}
    for part in workspace.history(session)[1].parts:
        if part["type"] == "step-finish":
            workspace.sessions.update_part(part | finish)
    workspace.sessions.store.update(
        keys.message(session, answer),
        lambda info: info.update(finish | {"finish": "stop", "time": info["time"] | {"completed": ids.now_ms()}}),
    )
    after = contents(workspace.folder)
    summarize(workspace.sessions, workspace.snapshots, session, prompt, publish=workspace.bus.publish)

    opencode.start()
    assert opencode.diff(session) == workspace.sessions.diff(session)
    theirs = opencode.revert(session, prompt)
    assert contents(workspace.folder) == before
    assert opencode.diff(session) == workspace.sessions.diff(session)
    undone = workspace.reverts.unrevert(session)
    assert contents(workspace.folder) == after
    assert undone.left_alone == ()
    ours = workspace.reverts.revert(session, prompt)
    assert contents(workspace.folder) == before
    shown, expected = ours.session.document, dict(theirs)
    assert shown["revert"]["diff"] == expected["revert"]["diff"]
    assert without_time(shown) | {"revert": 0} == without_time(expected) | {"revert": 0}
    assert list(shown["revert"]) == list(expected["revert"])
    opencode.unrevert(session)
    assert contents(workspace.folder) == after | {"gone.txt": "gone\n"}


def test_part_of_an_answer_is_reverted_alike(wire: WireServer, new_opencode: Callable[..., OpenCode]) -> None:
    opencode = new_opencode(wire)
    session = opencode.create("Partial")["id"]
    target = str(opencode.directory / "a.txt")
    opencode.prompt(session, call("write", f'{{"filePath": "{target}", "content": "one\\n"}}') + "SAY done")
    opencode.settle()
    workspace = workspace_of(opencode)
    answer = workspace.history(session)[1]
    tool = next(part["id"] for part in answer.parts if part["type"] == "tool")
    ours = workspace.reverts.revert(session, answer.info["id"], tool).session.document
    assert contents(workspace.folder) == START
    workspace.reverts.unrevert(session)
    theirs = opencode.revert(session, answer.info["id"], tool)
    assert contents(workspace.folder) == START
    assert without_time(theirs) == without_time(ours)
