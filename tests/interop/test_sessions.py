from __future__ import annotations

from collections.abc import Callable

import pytest

from opensesh import ids
from opensesh.project import register, resolve
from opensesh.records import (
    AssistantMessage,
    MessageTime,
    ModelRef,
    Path,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    UserMessage,
    dumps,
    loads,
)
from opensesh.sessions import Sessions
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.wire import WireServer

from .opencode import OpenCode

pytestmark = pytest.mark.interop


def converse(sessions: Sessions, session_id: str, prompt: str, answer: str) -> None:
    now = ids.now_ms()
    model = ModelRef(provider_id="fake", model_id="scripted")
    user = UserMessage(
        id=ids.ascending("msg"), session_id=session_id, time=MessageTime(created=now), agent="build", model=model
    )
    reply = AssistantMessage(
        id=ids.ascending("msg"),
        session_id=session_id,
        time=MessageTime(created=now + 1, completed=now + 2),
        parent_id=user.id,
        model_id="scripted",
        provider_id="fake",
        mode="build",
        agent="build",
        path=Path(cwd=sessions.location.directory, root=sessions.location.sandbox),
        tokens=Tokens(input=10, output=5),
        finish="stop",
    )
    parts = [
        TextPart(id=ids.ascending("prt"), session_id=session_id, message_id=user.id, text=prompt),
        StepStartPart(id=ids.ascending("prt"), session_id=session_id, message_id=reply.id),
        TextPart(id=ids.ascending("prt"), session_id=session_id, message_id=reply.id, text=answer),
        StepFinishPart(id=ids.ascending("prt"), session_id=session_id, message_id=reply.id, reason="stop"),
    ]
    for message in (user, reply):
        sessions.update_message(message.document)
    for part in parts:
        sessions.update_part(part.document)


def test_opencode_lists_exports_and_continues_what_opensesh_created_and_forked(
    wire: WireServer, new_opencode: Callable[..., OpenCode]
) -> None:
    opencode = new_opencode(wire)
    opencode.stop()
    store = JsonTree(opencode.storage)
    location = resolve(opencode.directory)
    sessions = Sessions(store, location)
    register(store, location)
    original = sessions.create(title="Made by opensesh ✓")
    converse(sessions, original.id, "SAY unused", "An earlier answer.")
    fork = sessions.fork(original.id)

    opencode.start()
    assert {original.id, fork.id} <= {key["id"] for key in opencode.list()}
    assert {original.id, fork.id} == {item["id"] for item in opencode.session_list()}

    exported = opencode.export(fork.id)
    assert exported["info"] == fork.document
    assert [message["info"] for message in exported["messages"]] == [item.info for item in sessions.messages(fork.id)]
    assert [message["parts"] for message in exported["messages"]] == [item.parts for item in sessions.messages(fork.id)]

    answer = opencode.prompt(fork.id, "SAY carried on by OpenCode")
    assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["carried on by OpenCode"]
    opencode.settle()

    texts = [part["text"] for message in sessions.messages(fork.id) for part in message.parts if part["type"] == "text"]
    assert texts == ["SAY unused", "An earlier answer.", "SAY carried on by OpenCode", "carried on by OpenCode"]
    assert [message.info["role"] for message in sessions.messages(fork.id, last=2)] == ["user", "assistant"]
    assert len(sessions.messages(original.id)) == 2
    for path in opencode.storage.rglob("*.json"):
        assert dumps(loads(path.read_bytes(), str(path))) == path.read_bytes(), path


def test_opensesh_reads_forks_and_renames_what_opencode_wrote(
    wire: WireServer, new_opencode: Callable[..., OpenCode]
) -> None:
    opencode = new_opencode(wire)
    created = opencode.create("Made by OpenCode")["id"]
    opencode.prompt(created, 'THINK hm\nCALL bash {"command":"echo hi","description":"greet"}\n---\nSAY done')
    opencode.settle()
    sessions = Sessions(JsonTree(opencode.storage), resolve(opencode.directory))
    assert [
        {"info": message.info, "parts": message.parts} for message in sessions.messages(created)
    ] == opencode.messages(created)
    fork = sessions.fork(created)
    sessions.rename(fork.id, "Renamed by opensesh")
    assert opencode.get(fork.id)["title"] == "Renamed by opensesh"
    again = opencode.prompt(fork.id, "SAY still here")
    assert again["info"]["finish"] == "stop"
    sessions.purge(fork.id)
    assert fork.id not in {key["id"] for key in opencode.list()}
