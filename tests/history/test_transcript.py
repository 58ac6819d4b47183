from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opensesh import history
from opensesh.history.formats.wording import key_input
from opensesh.history.transcript import (
    Asked,
    Attached,
    Call,
    Marked,
    Said,
    Thought,
    Transcript,
    Wanted,
    transcript,
)
from opensesh.storage.store import Damage, StoredMessage

from .shelf import Tree

FIXTURES = Path(__file__).parents[1] / "fixtures"
USER: dict[str, Any] = {"id": "msg_1", "role": "user", "time": {"created": 1}, "agent": "build"}
ASSISTANT: dict[str, Any] = {
    "id": "msg_2",
    "role": "assistant",
    "time": {"created": 2},
    "modelID": "m",
    "providerID": "p",
    "agent": "plan",
}


def part(kind: str, **content: Any) -> dict[str, Any]:
    return {"id": "prt_1", "type": kind, **content}


def tool(status: str = "completed", **state: Any) -> dict[str, Any]:
    return part("tool", tool="bash", state={"status": status, "input": {"command": "ls"}, **state})


EVERY_PART = [
    part("text", text="seen"),
    part("text", text="added", synthetic=True),
    part("text", text="  "),
    part("reasoning", text="hmm", time={"start": 1}),
    tool(output="long output", title="t", metadata={"diff": "-a\n+b"}),
    tool("error", error="no such file"),
    tool("running"),
    part("file", mime="image/png", filename="a.png", url="data:..."),
    part("subtask", prompt="p", description="look around", agent="explore"),
    part("step-start"),
    part("step-finish", reason="stop", cost=0.1, tokens={}),
    part("snapshot", snapshot="abc"),
    part("patch", hash="abc", files=["/a", "/b"]),
    part("agent", name="plan"),
    part("compaction", auto=True),
    part("retry", attempt=2, error={}),
    part("something-new", text="x"),
]


def read(parts: list[dict[str, Any]], wanted: Wanted | None = None, info: dict[str, Any] = ASSISTANT) -> list[Any]:
    found = transcript({"id": "ses_1", "title": "T"}, [StoredMessage(info, parts)], wanted)
    return [block for turn in found.turns for block in turn.blocks]


def test_what_people_read_is_kept_and_the_rest_left_out() -> None:
    assert read(EVERY_PART) == [
        Said("seen"),
        Call("bash", "ls", "completed", diff="-a\n+b"),
        Call("bash", "ls", "error", error="no such file"),
        Call("bash", "ls", "running"),
        Asked("explore", "look around"),
    ]


def test_everything_can_be_had() -> None:
    assert read(EVERY_PART, Wanted.everything()) == [
        Said("seen"),
        Said("added", synthetic=True),
        Thought("hmm"),
        Call("bash", "ls", "completed", output="long output", diff="-a\n+b"),
        Call("bash", "ls", "error", error="no such file"),
        Call("bash", "ls", "running"),
        Attached("image/png", "a.png"),
        Asked("explore", "look around"),
        Marked("step-start"),
        Marked("step-finish"),
        Marked("snapshot"),
        Marked("patch", "/a, /b"),
        Marked("agent", "plan"),
        Marked("compaction", "automatic"),
        Marked("retry", "attempt 2"),
        Marked("something-new"),
    ]


def test_each_thing_can_be_asked_for_alone() -> None:
    plain = len(read(EVERY_PART))
    assert len(read(EVERY_PART, Wanted(reasoning=True))) == plain + 1
    assert len(read(EVERY_PART, Wanted(files=True))) == plain + 1
    assert len(read(EVERY_PART, Wanted(synthetic=True))) == plain + 1
    assert len(read(EVERY_PART, Wanted(marks=True))) == plain + 8
    assert read(EVERY_PART, Wanted(outputs=True))[1].output == "long output"


def test_a_turn_says_who_when_and_how_it_ended() -> None:
    failed = ASSISTANT | {"error": {"name": "APIError", "data": {"message": "overloaded"}}}
    cut = ASSISTANT | {"error": {"name": "MessageOutputLengthError"}}
    odd = ASSISTANT | {"error": {"name": "Curious"}}
    messages = [StoredMessage(USER, [part("text", text="hi")])] + [
        StoredMessage(info, []) for info in (failed, cut, odd, ASSISTANT)
    ]
    found = transcript({"id": "ses_1", "title": "T"}, messages)
    assert [(turn.role, turn.agent, turn.model, turn.failure) for turn in found.turns] == [
        ("user", "build", "", ""),
        ("assistant", "plan", "p/m", "overloaded"),
        ("assistant", "plan", "p/m", "the answer was cut off"),
        ("assistant", "plan", "p/m", "OtherError"),
    ]


def test_a_part_that_cannot_be_read_costs_itself_alone() -> None:
    heard: list[Damage] = []
    messages = [
        StoredMessage(
            ASSISTANT, [part("tool", tool="x", state={"status": "odd"}), part("text", text="fine"), {"id": "prt_2"}]
        ),
        StoredMessage({"id": "msg_9", "role": "judge", "time": {"created": 1}}, []),
    ]
    found = transcript({"id": "ses_1"}, messages, report=heard.append)
    assert [block for turn in found.turns for block in turn.blocks] == [Said("fine")]
    assert [damage.path for damage in heard] == ["prt_1", "prt_2", "msg_9"]


def test_what_a_session_does_not_say_of_itself_is_empty() -> None:
    assert transcript({"id": None, "title": None}, []) == Transcript("", "", ())


def test_the_input_that_tells_most() -> None:
    assert key_input({"input": {"description": "d", "filePath": "/a"}}) == "/a"
    assert key_input({"input": {"file_path": "/a", "filePath": ""}}) == "/a"
    assert key_input({"input": {"todos": [{"status": None}], "x": 1}}) == 'todos=[{"status":null}], x=1'
    assert key_input({"input": {}}) == key_input({"input": "odd"}) == key_input({}) == ""


def test_children_are_inside_the_calls_that_began_them(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "storage")
    parent = tree.session(title="parent")
    child = tree.session(title="child", parentID=parent)
    grandchild = tree.session(title="grandchild", parentID=child)
    tree.tool(parent, "task", input={"description": "dig"}, metadata={"sessionId": child})
    tree.text(child, "dig please")
    tree.tool(child, "task", input={"description": "deeper"}, metadata={"sessionId": grandchild})
    tree.tool(grandchild, "task", input={"description": "in a circle"}, metadata={"sessionId": parent})
    tree.tool(grandchild, "task", input={"description": "to nowhere"}, metadata={"sessionId": "ses_none"})
    entry = history.open(str(tree.root)).session(parent)
    (call,) = entry.transcript().turns[0].blocks
    assert isinstance(call, Call)
    assert call.child is None
    (call,) = entry.transcript(children=True).turns[0].blocks
    assert isinstance(call, Call)
    assert _titles(call.child) == ["child", "grandchild"]


def _titles(found: Transcript | None) -> list[str]:
    if found is None:
        return []
    calls = [block for turn in found.turns for block in turn.blocks if isinstance(block, Call)]
    return [found.title, *(title for call in calls for title in _titles(call.child))]


def test_the_corpus_reads_as_its_server_tells_it() -> None:
    api = json.loads((FIXTURES / "opencode-1.1.65" / "api.json").read_text())
    library = history.open(str(FIXTURES / "opencode-1.1.65" / "storage"))
    for path, messages in api.items():
        if not path.endswith("/message"):
            continue
        found = library.session(path.split("/")[2]).transcript()
        said = [block.text for turn in found.turns for block in turn.blocks if isinstance(block, Said)]
        called = [block.tool for turn in found.turns for block in turn.blocks if isinstance(block, Call)]
        parts = [each for message in messages for each in message["parts"]]
        assert said == [
            each["text"]
            for each in parts
            if each["type"] == "text" and each["text"].strip() and not each.get("synthetic")
        ]
        assert called == [each["tool"] for each in parts if each["type"] == "tool"]
    assert library.damage == []
