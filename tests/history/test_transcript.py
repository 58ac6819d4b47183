from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from opensesh import history
from opensesh.history.formatting import key_input
from opensesh.history.transcript import (
    FileBlock,
    MarkerBlock,
    ReasoningBlock,
    SubtaskBlock,
    TextBlock,
    ToolBlock,
    Transcript,
    TranscriptOptions,
    transcript,
)
from opensesh.storage.protocol import Damage, StoredMessage

from .sample_stores import Tree

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


LS = {"command": "ls"}


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


def read(
    parts: list[dict[str, Any]], options: TranscriptOptions | None = None, info: dict[str, Any] = ASSISTANT
) -> list[Any]:
    result = transcript({"id": "ses_1", "title": "T"}, [StoredMessage(info, parts)], options)
    return without_ids(block for turn in result.messages for block in turn.blocks)


def without_ids(blocks: Iterable[Any]) -> list[Any]:
    return [block._replace(id="") for block in blocks]


def test_what_people_read_is_kept_and_the_rest_left_out() -> None:
    assert read(EVERY_PART) == [
        TextBlock("seen"),
        ToolBlock("bash", "ls", "completed", LS, diff="-a\n+b"),
        ToolBlock("bash", "ls", "error", LS, error="no such file"),
        ToolBlock("bash", "ls", "running", LS),
        SubtaskBlock("explore", "look around"),
    ]


def test_everything_can_be_had() -> None:
    assert read(EVERY_PART, TranscriptOptions.everything()) == [
        TextBlock("seen"),
        TextBlock("added", synthetic=True),
        ReasoningBlock("hmm"),
        ToolBlock("bash", "ls", "completed", LS, output="long output", diff="-a\n+b"),
        ToolBlock("bash", "ls", "error", LS, error="no such file"),
        ToolBlock("bash", "ls", "running", LS),
        FileBlock("image/png", "a.png", "data:..."),
        SubtaskBlock("explore", "look around"),
        MarkerBlock("step-start"),
        MarkerBlock("step-finish"),
        MarkerBlock("snapshot"),
        MarkerBlock("patch", "/a, /b"),
        MarkerBlock("agent", "plan"),
        MarkerBlock("compaction", "automatic"),
        MarkerBlock("retry", "attempt 2"),
        MarkerBlock("something-new"),
    ]


def test_what_a_program_printed_has_lost_its_colours() -> None:
    coloured = {"output": "\x1b[1;31mFAILED\x1b[0m test\x1b[K", "error": "\x1b[31mno\x1b[m"}
    (call,) = read([{"type": "tool", "tool": "bash", "state": coloured}], TranscriptOptions.everything())
    assert isinstance(call, ToolBlock)
    assert (call.output, call.error) == ("FAILED test", "no")


def test_each_thing_can_be_asked_for_alone() -> None:
    plain = len(read(EVERY_PART))
    assert len(read(EVERY_PART, TranscriptOptions(reasoning=True))) == plain + 1
    assert len(read(EVERY_PART, TranscriptOptions(files=True))) == plain + 1
    assert len(read(EVERY_PART, TranscriptOptions(synthetic=True))) == plain + 1
    assert len(read(EVERY_PART, TranscriptOptions(markers=True))) == plain + 8
    assert read(EVERY_PART, TranscriptOptions(outputs=True))[1].output == "long output"


def test_a_turn_says_who_when_and_how_it_ended() -> None:
    failed = ASSISTANT | {"error": {"name": "APIError", "data": {"message": "overloaded"}}}
    cut = ASSISTANT | {"error": {"name": "MessageOutputLengthError"}}
    odd = ASSISTANT | {"error": {"name": "Curious"}}
    torn = ASSISTANT | {"error": {"name": 5}}
    messages = [StoredMessage(USER, [part("text", text="hi")])] + [
        StoredMessage(info, []) for info in (failed, cut, odd, torn, ASSISTANT)
    ]
    result = transcript({"id": "ses_1", "title": "T"}, messages)
    assert [(turn.role, turn.agent, turn.model, turn.failure) for turn in result.messages] == [
        ("user", "build", "", ""),
        ("assistant", "plan", "p/m", "overloaded"),
        ("assistant", "plan", "p/m", "the answer was cut off"),
        ("assistant", "plan", "p/m", "Curious"),
        ("assistant", "plan", "p/m", "an error that cannot be read"),
    ]


def test_a_part_without_a_type_affects_only_itself() -> None:
    reported: list[Damage] = []
    parts = [{"id": "prt_2"}, part("text", text="fine"), part("text", text=7), part("reasoning")]
    result = transcript({"id": "ses_1"}, [StoredMessage(ASSISTANT, parts)], report=reported.append)
    assert [block for turn in result.messages for block in turn.blocks] == [TextBlock("fine", id="prt_1")]
    assert reported == [
        ("prt_2", "$.type: expected text"),
        ("prt_1", "$.text: expected text"),
        ("prt_1", "$.text: expected text"),
    ]


def test_records_are_read_for_what_they_do_say() -> None:
    info: dict[str, Any] = {"id": "msg_9", "role": "judge", "time": {"created": 1}, "cost": True, "tokens": []}
    parts = [part("tool", state={"status": "levitating", "input": ["a"]}), part("subtask"), part("file")]
    (turn,) = transcript({}, [StoredMessage(info, parts)], TranscriptOptions.everything()).messages
    blocks = [ToolBlock("", "", "levitating", {}), SubtaskBlock("", ""), FileBlock("", "", "")]
    assert without_ids(turn.blocks) == blocks
    assert {block.id for block in turn.blocks} == {"prt_1"}
    assert (turn.role, turn.cost, turn.tokens) == ("user", 0, 0)


def test_a_turn_says_what_it_took() -> None:
    tokens = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5.0}}
    for cost, read in ((0.25, 0.25), (1, 1.0), (1e300, 0.0), ("free", 0.0)):
        info = ASSISTANT | {"cost": cost, "tokens": tokens}
        (turn,) = transcript({}, [StoredMessage(info, [part("text", text="x")])]).messages
        assert (turn.cost, turn.tokens) == (read, 15)


def test_ignored_text_is_left_out_like_synthetic_text() -> None:
    aside = [part("text", text="aside", ignored=True)]
    assert read(aside) == []
    assert read(aside, TranscriptOptions(synthetic=True)) == [TextBlock("aside", synthetic=True)]


def test_what_a_session_does_not_say_of_itself_is_empty() -> None:
    assert transcript({"id": None, "title": None}, []) == Transcript("", "", ())


def test_the_main_argument_of_a_call() -> None:
    assert key_input({"input": {"description": "d", "filePath": "/a"}}) == "/a"
    assert key_input({"input": {"file_path": "/a", "filePath": ""}}) == "/a"
    assert key_input({"input": {"path": "/a", "pattern": "*.py"}}) == "*.py"
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
    library = history.open(str(tree.root))
    entry = library.session(parent)
    assert library.transcript(parent) == entry.transcript()
    (call,) = entry.transcript().messages[0].blocks
    assert isinstance(call, ToolBlock)
    assert call.child is None
    (call,) = entry.transcript(children=True).messages[0].blocks
    assert isinstance(call, ToolBlock)
    assert _titles(call.child) == ["child", "grandchild"]


def _titles(result: Transcript | None) -> list[str]:
    if result is None:
        return []
    calls = [block for turn in result.messages for block in turn.blocks if isinstance(block, ToolBlock)]
    return [result.title, *(title for call in calls for title in _titles(call.child))]


def test_transcripts_of_the_corpus_agree_with_its_server() -> None:
    api = json.loads((FIXTURES / "opencode-1.1.65" / "api.json").read_text())
    library = history.open(str(FIXTURES / "opencode-1.1.65" / "storage"))
    for path, messages in api.items():
        if not path.endswith("/message"):
            continue
        result = library.session(path.split("/")[2]).transcript()
        output = [block.text for turn in result.messages for block in turn.blocks if isinstance(block, TextBlock)]
        called = [block.tool for turn in result.messages for block in turn.blocks if isinstance(block, ToolBlock)]
        parts = [item for message in messages for item in message["parts"]]
        assert output == [
            item["text"]
            for item in parts
            if item["type"] == "text" and item["text"].strip() and not item.get("synthetic")
        ]
        assert called == [item["tool"] for item in parts if item["type"] == "tool"]
    assert library.damage == []


def test_a_tool_call_says_how_long_it_took_and_how_its_command_ended() -> None:
    picture = {"id": "prt_2", "mime": "image/png", "filename": "a.png", "url": "data:"}
    span = {"start": 1_000, "end": 4_100}
    (call,) = read([tool(time=span, metadata={"exit": 1}, attachments=[picture, 7])])
    assert (call.started, call.duration, call.exit_code) == (1_000, 3_100, 1)
    assert call.attachments == (FileBlock("image/png", "a.png", "data:", "prt_2"),)
    (call,) = read([tool("running", time={"start": 1_000}, metadata={"exit": True})])
    assert (call.started, call.duration, call.exit_code, call.attachments) == (1_000, None, None, ())
    (thought,) = read([part("reasoning", text="hmm", time={"start": 5, "end": 9})], TranscriptOptions(reasoning=True))
    assert thought == ReasoningBlock("hmm", 4)
