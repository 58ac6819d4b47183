from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from opensesh.history.formats import FormatOptions
from opensesh.history.import_export.destinations import to_folder, to_stream
from opensesh.history.import_export.exporting import Export, Selection
from opensesh.storage.json_tree.store import JsonTree

from .sample_tree import Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"
TREES = ("opencode-1.1.65", "id-wrap")
ROLES = {"user", "assistant", "system", "tool"}
"""What the documentation of the Hub says a role may be."""
Json = dict[str, Any]


def silent(done: int, total: int) -> None:
    assert 0 < done <= total


def trace(root: Path, session: str, **options: Any) -> list[Json]:
    stream = BytesIO()
    to_stream(Export(JsonTree(root), Selection(ids=(session,)), "hf", FormatOptions(**options)), stream, silent)
    return [json.loads(line) for line in stream.getvalue().decode().splitlines()]


def messages(root: Path, session: str, **options: Any) -> list[Json]:
    return [line["message"] for line in trace(root, session, **options)[1:]]


# -- what a trace should say, from the raw files and nothing else ----------------------------------------------------


def raw(folder: Path) -> list[Json]:
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]


def expected(root: Path, session: Json) -> list[Json]:
    header: Json = {"type": "session", "harness": "opencode", "id": session["id"], "name": session["title"]}
    header |= {"cwd": session["directory"], "timestamp": session["time"]["created"], "version": session["version"]}
    lines = [header | ({"parentId": session["parentID"]} if "parentID" in session else {})]
    infos = sorted(raw(root / "message" / session["id"]), key=lambda info: info["time"]["created"])
    for info in infos:
        parts = raw(root / "part" / info["id"])
        lines += [{"type": "message", "message": item} for item in of_message(info, parts)]
    return lines


def of_message(info: Json, parts: list[Json]) -> list[Json]:
    words: list[str] = []
    for part in parts:
        if part["type"] == "text" and part["text"]:
            words.append(part["text"])
        if part["type"] == "file":
            words.append(f"[attached: {part['filename']}]")
    line: Json = {"role": info["role"], "content": "\n\n".join(words)}
    thoughts = [part["text"] for part in parts if part["type"] == "reasoning" and part["text"]]
    if thoughts:
        line["reasoningContent"] = "\n\n".join(thoughts)
    calls = [part for part in parts if part["type"] == "tool"]
    if calls:
        line["toolCalls"] = [
            {"id": part["callID"], "function": {"name": part["tool"], "arguments": part["state"]["input"]}}
            for part in calls
        ]
    line["timestamp"] = info["time"]["created"]
    if "modelID" in info:
        line["model"] = info["modelID"]
    results = [
        {
            "role": "tool",
            "toolCallId": part["callID"],
            "content": part["state"]["output" if part["state"]["status"] == "completed" else "error"],
            "timestamp": part["state"]["time"]["end"],
        }
        for part in calls
        if part["state"]["status"] in ("completed", "error")
    ]
    return [*([line] if words or thoughts or calls else []), *results]


def with_arguments_read(lines: list[Json]) -> list[Json]:
    """The same lines with the arguments of calls, which the format wants as a text that is JSON, as what they say."""
    for line in lines:
        for call in line.get("message", {}).get("toolCalls", ()):
            assert isinstance(call["function"]["arguments"], str)
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return lines


SESSIONS = [
    pytest.param(root, json.loads(path.read_bytes()), id=f"{name}-{path.stem[-6:]}")
    for name in TREES
    for root in [FIXTURES / name / "storage"]
    for path in sorted(root.glob("session/*/*.json"))
]


@pytest.mark.parametrize(("root", "session"), SESSIONS)
def test_every_field_is_what_the_raw_files_say(root: Path, session: Json) -> None:
    lines = with_arguments_read(trace(root, session["id"]))
    required = expected(root, session)
    assert lines == required
    for ours, theirs in zip(lines, required, strict=True):
        assert list(ours) == list(theirs)
        assert list(ours.get("message", ())) == list(theirs.get("message", ()))


@pytest.mark.parametrize(("root", "session"), SESSIONS)
def test_every_line_keeps_to_the_documented_format(root: Path, session: Json) -> None:
    assert_documented(trace(root, session["id"]))


def assert_documented(lines: list[Json]) -> None:
    """The tables of the documentation, row by row."""
    header, *rest = lines
    assert header["type"] == "session"
    assert all(isinstance(header[name], str) and header[name] for name in ("harness", "id"))
    assert isinstance(header.get("name", ""), str)
    called: list[str] = []
    for line in rest:
        assert set(line) == {"type", "message"}
        assert line["type"] == "message"
        message = line["message"]
        assert_message(message)
        called += [call["id"] for call in message.get("toolCalls", ())]
        if message["role"] == "tool":
            assert message["toolCallId"] in called, "an answer comes behind the call it answers"
    assert len(set(called)) == len(called), "the viewer finds an answer by the name of its call"


def assert_message(message: Json) -> None:
    kinds = {"role": str, "content": str, "reasoningContent": str, "toolCalls": list, "toolCallId": str}
    kinds |= {"timestamp": int, "model": str}
    assert set(message) <= set(kinds)
    assert {"role", "content"} <= set(message)
    assert all(type(value) is kinds[name] for name, value in message.items())
    assert message["role"] in ROLES
    assert ("toolCallId" in message) == (message["role"] == "tool")
    assert message["role"] == "assistant" or not {"toolCalls", "reasoningContent", "model"} & set(message)
    for call in message.get("toolCalls", ()):
        assert set(call) == {"id", "function"}
        assert set(call["function"]) == {"name", "arguments"}
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_a_folder_of_traces_holds_every_session(tmp_path: Path) -> None:
    root = FIXTURES / "opencode-1.1.65" / "storage"
    to_folder(Export(JsonTree(root), Selection(), "hf", FormatOptions()), str(tmp_path / "out"), silent)
    files = [path for path in (tmp_path / "out").iterdir() if path.name[0] != "."]
    result = {json.loads(path.read_text().splitlines()[0])["id"] for path in files}
    assert result == {path.stem for path in root.glob("session/*/*.json")}


# -- what no corpus holds ---------------------------------------------------------------------------------------------


def test_calls_with_the_same_id_get_distinct_ids(sample: Sample) -> None:
    session = sample.session()
    for output in ("first", "second"):
        message = sample.answer(session)
        sample.tool(message, output=output)
        sample.tool(message, "read", "error", error=f"not {output}")
    lines = trace(sample.root, session["id"])
    assert_documented(lines)
    text = [line["message"] for line in lines[1:]]
    calls = {call["id"]: call["function"]["name"] for item in text for call in item.get("toolCalls", ())}
    answers = [(calls[item["toolCallId"]], item["content"]) for item in text if item["role"] == "tool"]
    assert answers == [("bash", "first"), ("read", "not first"), ("bash", "second"), ("read", "not second")]


def test_a_call_without_an_answer_stands_alone(sample: Sample) -> None:
    session = sample.session()
    message = sample.answer(session, "")
    for status in ("pending", "running"):
        sample.tool(message, "edit", status, input={})
    lines = trace(sample.root, session["id"])
    assert_documented(lines)
    [answer] = messages(sample.root, session["id"])
    assert [call["function"] for call in answer["toolCalls"]] == [{"name": "edit", "arguments": "{}"}] * 2


def test_a_prompt_with_only_files_has_their_names(sample: Sample) -> None:
    session = sample.session()
    message = sample.prompt(session, "")
    sample.part(message, type="file", mime="image/png", filename="plan.png", url="data:image/png;base64,AAAA")
    sample.part(message, type="file", mime="text/plain", url="file:///x")
    assert [item["content"] for item in messages(sample.root, session["id"])] == [
        "[attached: plan.png]\n\n[attached: text/plain]"
    ]


def test_ignored_text_is_not_exported(sample: Sample) -> None:
    session = sample.session()
    message = sample.prompt(session, "Why?")
    sample.part(message, type="text", text="not meant for the model", ignored=True)
    sample.part(message, type="compaction", auto=True)
    empty = sample.answer(session, "", error={"name": "UnknownError", "data": {"message": "no"}})
    assert [item["content"] for item in messages(sample.root, session["id"])] == ["Why?"]
    sample.part(empty, type="reasoning", text="hm")
    assert messages(sample.root, session["id"])[1]["reasoningContent"] == "hm"
    assert len(messages(sample.root, session["id"], reasoning=False)) == 1


def test_tools_can_be_left_out_or_compacted(sample: Sample) -> None:
    session = sample.session()
    sample.tool(sample.answer(session, "Look."))
    assert messages(sample.root, session["id"], tools="skip")[0]["content"] == "Look."
    [line] = messages(sample.root, session["id"], tools="summary")
    assert line["content"] == "Look.\n\n[bash] ls"
    assert "toolCalls" not in line


def test_odd_records_still_make_valid_lines(sample: Sample) -> None:
    session = sample.session(time={"created": True}, directory=7)
    message = sample.answer(session, modelID=3, time={"created": 5.5})
    sample.part(message, type="text", text=None)
    sample.part(message, type="tool", tool=None, callID=None, state={"status": "completed", "output": 3})
    sample.part(message, type="tool", tool="x", state=None)
    lines = trace(sample.root, session["id"])
    assert "timestamp" not in lines[0]
    assert_documented(lines)
    assert lines[1]["message"]["timestamp"] == 5
