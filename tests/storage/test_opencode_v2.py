from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.errors import NotFoundError, RecordError, StoreError
from opensesh.records import Session, in_order, parts_in_order, read_message, read_part, view
from opensesh.storage.keys import check_key
from opensesh.storage.opencode_db.store import OpencodeDB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opensesh.storage.protocol import Damage, StoredMessage

SCHEMA = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text, icon_url text,
  icon_url_override text, icon_color text, time_created integer NOT NULL, time_updated integer NOT NULL,
  time_initialized integer, time_active integer, sandboxes text NOT NULL, commands text);
CREATE TABLE session_v2 (id text PRIMARY KEY, project_id text NOT NULL, workspace_id text, parent_id text,
  fork_session_id text, fork_boundary text, slug text NOT NULL, directory text NOT NULL, path text, title text,
  version text NOT NULL, share_url text, summary_additions integer, summary_deletions integer, summary_files integer,
  summary_diffs text, metadata text, cost real DEFAULT 0 NOT NULL, tokens_input integer DEFAULT 0 NOT NULL,
  tokens_output integer DEFAULT 0 NOT NULL, tokens_reasoning integer DEFAULT 0 NOT NULL,
  tokens_cache_read integer DEFAULT 0 NOT NULL, tokens_cache_write integer DEFAULT 0 NOT NULL, revert text,
  permission text, agent text, model text, time_created integer NOT NULL, time_updated integer NOT NULL,
  time_idle integer, time_viewed integer, idle_outcome text, time_compacting integer, time_archived integer,
  time_suspended integer, resume_attempts integer DEFAULT 0 NOT NULL);
CREATE TABLE session_message (id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL, seq integer NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE UNIQUE INDEX session_message_session_seq_idx ON session_message (session_id, seq);
CREATE INDEX session_message_session_type_seq_idx ON session_message (session_id, type, seq);
INSERT INTO project (id, worktree, time_created, time_updated, sandboxes) VALUES ('global', '/', 1, 1, '[]');
INSERT INTO session_v2 (id, project_id, slug, directory, path, title, version, cost, tokens_input, model, time_created,
  time_updated, time_idle, idle_outcome) VALUES ('ses_main', 'global', 'tidy-squid', '/home/dev/proj', '', 'List files',
  '2.0.26', 0.0036, 5960, '{"id":"m9","providerID":"acme"}', 1791500000000, 1791500000001, 1791500002101, 'failed');
"""
V1_SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, slug text, directory text, title text,
  version text, summary_diffs text, time_created integer, time_updated integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer, time_updated integer,
  data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer,
  time_updated integer, data text NOT NULL);
CREATE TABLE todo (session_id text, content text, status text, priority text, position integer);
"""
M1 = {"id": "m1", "providerID": "acme"}
M2 = {"id": "m2", "providerID": "acme"}
TOKENS = {"input": 900, "output": 20, "reasoning": 8, "cache": {"read": 100, "write": 0}}
SHELL_CALL = {
    "type": "tool",
    "id": "call_1",
    "name": "shell",
    "executed": False,
    "state": {
        "status": "completed",
        "input": {"command": "ls"},
        "content": [{"type": "text", "text": "notes.txt\n"}, {"type": "text", "text": "Command exited with code 7."}],
        "metadata": {"status": "completed", "exit": 7},
    },
    "time": {"created": 400, "ran": 800, "completed": 890},
}
READ_ERROR = {
    "type": "tool",
    "id": "call_2",
    "name": "read",
    "state": {
        "status": "error",
        "input": {"path": "/nope.txt"},
        "error": {"type": "tool.execution", "message": "File not found: /nope.txt"},
    },
    "time": {"created": 1100, "ran": 1200, "completed": 1290},
}
RUNNING = {
    "type": "tool",
    "id": "call_3",
    "name": "subagent",
    "state": {"status": "running", "input": {"agent": "general"}, "metadata": {}},
    "time": {"created": 4200, "ran": 4300},
}
STREAMING = {
    "type": "tool",
    "id": "call_4",
    "name": "read",
    "state": {"status": "streaming", "input": '{"path":"a.'},
    "time": {"created": 4350},
}
FILE = {
    "data": "aGk=",
    "mime": "text/plain",
    "source": {"type": "uri", "uri": "file:///home/dev/my%20proj/a.txt"},
    "name": "a.txt",
    "mention": {"start": 19, "end": 25, "text": "@a.txt"},
}
AGENT = {"name": "general", "mention": {"start": 4, "end": 12, "text": "@general"}}
PREVIOUS = {"location": {"directory": "/home/dev/proj"}, "projectID": "global", "subpath": ""}
ROWS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("msg_a04", "user", 4, {"time": {"created": 0}, "text": "List the files", "files": []}),
    (
        "msg_a05",
        "assistant",
        5,
        {
            "time": {"created": 100, "streamed": 800, "completed": 900},
            "agent": "build",
            "model": {**M1, "variant": "default"},
            "content": [
                {
                    "type": "reasoning",
                    "text": "I will run ls.",
                    "state": {"reasoningField": "reasoning_content"},
                    "time": {"created": 150, "completed": 300},
                },
                SHELL_CALL,
            ],
            "finish": "tool-calls",
            "rawFinish": "tool_calls",
            "cost": 0.0012,
            "tokens": TOKENS,
        },
    ),
    (
        "msg_a14",
        "assistant",
        14,
        {
            "time": {"created": 1000, "completed": 1300},
            "agent": "build",
            "model": {**M1, "variant": "high"},
            "content": [READ_ERROR],
            "finish": "tool-calls",
            "cost": 0.0004,
            "tokens": TOKENS,
            "snapshot": {"start": "aaa", "end": "bbb", "files": ["a.txt"]},
        },
    ),
    (
        "msg_a21",
        "assistant",
        21,
        {
            "time": {"created": 2000, "completed": 2100},
            "agent": "build",
            "model": M1,
            "content": [],
            "finish": "error",
            "error": {
                "type": "provider.invalid-request",
                "message": "Model m1 has been deprecated.",
                "status": 410,
                "response": {"body": "{}"},
            },
        },
    ),
    ("msg_a23", "idle", 23, {"time": {"created": 2101}, "outcome": "failed"}),
    ("msg_a24", "model-switched", 24, {"time": {"created": 3000}, "model": M2, "previous": M1}),
    ("msg_a25", "agent-switched", 25, {"time": {"created": 3100}, "agent": "plan", "previous": "build"}),
    ("msg_a26", "synthetic", 26, {"time": {"created": 3200}, "text": "<system-reminder>Plan.</system-reminder>"}),
    ("msg_a27", "system", 27, {"time": {"created": 3300}, "text": "The tools have changed.", "description": "tools"}),
    (
        "msg_a30",
        "user",
        30,
        {"time": {"created": 4000}, "text": "Ask @general about @a.txt", "files": [FILE], "agents": [AGENT]},
    ),
    (
        "msg_a31",
        "assistant",
        31,
        {
            "time": {"created": 4100},
            "agent": "plan",
            "model": M2,
            "content": [{"type": "text", "text": "Looking."}, RUNNING, STREAMING],
            "snapshot": {"start": "4b825dc6"},
        },
    ),
    (
        "msg_a40",
        "shell",
        40,
        {
            "time": {"created": 5000, "completed": 5200},
            "shellID": "sh_1",
            "command": "pwd",
            "status": "exited",
            "exit": 0,
            "output": {"output": "/home/dev/proj\n", "cursor": 15, "size": 15, "truncated": False},
        },
    ),
    (
        "msg_a42",
        "skill",
        42,
        {"time": {"created": 5300}, "skill": "release-notes", "name": "release-notes", "text": "How to write them"},
    ),
    (
        "msg_a50",
        "compaction",
        50,
        {
            "time": {"created": 6000},
            "status": "completed",
            "reason": "auto",
            "model": M2,
            "summary": "The user asked for a file list.",
            "recent": "[User]: Ask @general",
            "cost": 0.002,
            "tokens": TOKENS,
        },
    ),
    (
        "msg_a51",
        "compaction",
        51,
        {
            "time": {"created": 7000},
            "status": "failed",
            "reason": "manual",
            "error": {"type": "provider.error", "message": "Overloaded"},
        },
    ),
    (
        "msg_a60",
        "location-switched",
        60,
        {"time": {"created": 8000}, "location": {"directory": "/home/dev/other"}, "previous": PREVIOUS},
    ),
    ("msg_a61", "hologram", 61, {"time": {"created": 8100}, "beam": [1, 2]}),
]


class Writer:
    """Plays OpenCode 2.x on one database."""

    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.executescript(schema)

    def session(self, **columns: object) -> None:
        row: dict[str, object] = {
            "id": "ses_other",
            "project_id": "global",
            "slug": "s",
            "directory": "/home/dev/proj",
            "version": "2.0.26",
            "time_created": 1791500000000,
            "time_updated": 1791500000000,
        } | columns
        holes = ", ".join("?" for _ in row)
        self.connection.execute(f"INSERT INTO session_v2 ({', '.join(row)}) VALUES ({holes})", [*row.values()])

    def message(self, name: str, kind: str, seq: int, data: dict[str, Any] | str, session: str = "ses_main") -> None:
        created: int = 0 if isinstance(data, str) else data["time"]["created"]
        text = data if isinstance(data, str) else json.dumps(data)
        row = (name, session, kind, seq, created, created + 1, text)
        self.connection.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def content(self, *items: object) -> None:
        self.message("msg_x", "assistant", 900, {"time": {"created": 9000}, "content": [*items]})


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "opencode.db")
    yield made
    made.connection.close()


@pytest.fixture
def full(writer: Writer) -> Writer:
    for row in ROWS:
        writer.message(*row)
    return writer


@pytest.fixture
def store(full: Writer) -> Iterator[OpencodeDB]:
    with OpencodeDB(full.path) as opened:
        yield opened


def by_id(messages: Any) -> dict[str, StoredMessage]:
    return {message.info["id"]: message for message in messages}


def only_part(writer: Writer, *items: object) -> dict[str, Any]:
    writer.content(*items)
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    (part,) = message.parts
    return part


def test_every_row_is_a_message_in_the_order_of_its_number(store: OpencodeDB) -> None:
    names = [message.info["id"] for message in store.messages("ses_main")]
    expected = [name for name, *_ in ROWS]
    for compaction in ("msg_a50", "msg_a51"):
        expected.insert(expected.index(compaction) + 1, f"{compaction}-summary")
    assert names == expected


def test_number_goes_before_time(writer: Writer) -> None:
    writer.message("msg_z", "user", 1, {"time": {"created": 500}, "text": "first"})
    writer.message("msg_a", "user", 2, {"time": {"created": 400}, "text": "second"})
    with OpencodeDB(writer.path) as opened:
        assert [message.info["id"] for message in opened.messages("ses_main")] == ["msg_z", "msg_a"]
        assert [message.info["id"] for message in opened.messages("ses_main", last=1)] == ["msg_a"]


def test_every_document_is_valid_in_the_shape_of_1x(store: OpencodeDB) -> None:
    for _, document in store.scan(("session",)):
        view(document, Session)
    kinds: set[str] = set()
    for message in store.messages("ses_main"):
        read_message(message.info)
        kinds |= {read_part(part).document["type"] for part in message.parts}
        assert parts_in_order(message.parts, message.info["time"]["created"]) == message.parts
        for part in message.parts:
            assert (part["sessionID"], part["messageID"]) == ("ses_main", message.info["id"])
            check_key(("part", message.info["id"], part["id"]))
    known = {"text", "reasoning", "tool", "step-start", "step-finish", "file", "agent", "compaction"}
    markers = {"idle", "model-switched", "agent-switched", "location-switched", "hologram"}
    assert kinds == known | markers


def test_read_list_scan_and_messages_agree(store: OpencodeDB) -> None:
    messages = store.messages("ses_main")
    infos = {("message", "ses_main", message.info["id"]): message.info for message in messages}
    parts = {("part", part["messageID"], part["id"]): part for message in messages for part in message.parts}
    assert dict(store.scan(("message",))) == infos == dict(store.scan(("message", "ses_main")))
    assert dict(store.scan(("part",))) == parts
    for prefix, expected in ((("message",), infos), (("part",), parts)):
        assert store.list(prefix) == [key for key, _ in store.scan(prefix)] == sorted(expected)
        assert {key: store.read(key) for key in expected} == expected
    assert store.list(("part", "msg_a50-summary")) == [key for key in sorted(parts) if key[1] == "msg_a50-summary"]
    assert dict(store.scan(("part", "msg_a50"))).keys() == {("part", "msg_a50", "prt_a50-00000")}


@pytest.mark.parametrize("last", [1, 2, 3, 4, 5, 18, 19, 20, 100])
def test_the_last_few_are_the_end_of_all(store: OpencodeDB, last: int) -> None:
    everything = list(store.messages("ses_main"))
    assert store.messages("ses_main", last=last) == everything[-last:]


def test_what_lies_before_the_last_few_is_not_even_looked_at(writer: Writer) -> None:
    for number in range(9):
        kept = "{" if number < 6 else {"time": {"created": number}, "text": "hello"}
        writer.message(f"msg_{number}", "user", number, kept)
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        result = opened.messages("ses_main", last=3, report=reported.append)
    assert [message.info["id"] for message in result] == ["msg_6", "msg_7", "msg_8"]
    assert reported == []


def test_a_prompt_takes_agent_and_model_from_its_answer(store: OpencodeDB) -> None:
    messages = by_id(store.messages("ses_main"))
    first, later = messages["msg_a04"], messages["msg_a30"]
    assert first.info == {
        "id": "msg_a04",
        "sessionID": "ses_main",
        "role": "user",
        "time": {"created": 0},
        "agent": "build",
        "model": {"providerID": "acme", "modelID": "m1"},
        "v2": {"type": "user", "seq": 4},
    }
    assert first.parts == [
        {
            "id": "prt_a04-00000",
            "sessionID": "ses_main",
            "messageID": "msg_a04",
            "type": "text",
            "text": "List the files",
        }
    ]
    assert (later.info["agent"], later.info["model"]["modelID"]) == ("plan", "m2")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ({"id": "m1", "providerID": "acme", "variant": "high"}, ("acme", "m1", "high")),
        ({"id": "m1", "providerID": "acme", "variant": "default"}, ("acme", "m1", None)),
        ({"id": "m1", "variant": 7}, ("", "m1", None)),
        ({"providerID": "acme"}, ("acme", "", None)),
    ],
)
def test_prompt_answer_and_session_name_a_model_alike(
    writer: Writer, text: dict[str, Any], read: tuple[str, str, str | None]
) -> None:
    writer.message("msg_1", "user", 1, {"time": {"created": 1}, "text": "hello"})
    writer.message("msg_2", "assistant", 2, {"time": {"created": 2}, "content": [], "model": text})
    with OpencodeDB(writer.path) as opened:
        prompt, answer = opened.messages("ses_main")
    for model in (prompt.info["model"], answer.info):
        assert (model["providerID"], model["modelID"], model.get("variant")) == read


def test_a_prompt_without_an_answer_takes_them_from_the_session(store: OpencodeDB) -> None:
    info = by_id(store.messages("ses_main"))["msg_a42"].info
    assert "agent" not in info
    assert info["model"] == {"providerID": "acme", "modelID": "m9"}


def test_a_broken_answer_does_not_cost_its_prompt(writer: Writer) -> None:
    writer.message("msg_1", "user", 1, {"time": {"created": 1}, "text": "hello"})
    writer.message("msg_2", "assistant", 2, '{"time":{"created":2},"agent":"bui')
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main", report=reported.append)
        assert message.info["model"]["modelID"] == "m9"
        assert [damage.path for damage in reported] == [f"{writer.path}#session_message/msg_2"]
        assert opened.list(("message",)) == [("message", "ses_main", "msg_1"), ("message", "ses_main", "msg_2")]
        assert [key[2] for key, _ in opened.scan(("message",), report=reported.append)] == ["msg_1"]
        assert [key[1] for key, _ in opened.scan(("part",), report=reported.append)] == ["msg_1"]
        assert [key[1] for key in opened.list(("part",))] == ["msg_1"]
        with pytest.raises(RecordError, match="msg_2"):
            opened.read(("message", "ses_main", "msg_2"))
    assert len(reported) == 3


def test_an_answer_keeps_its_usage_and_its_steps(store: OpencodeDB) -> None:
    message = by_id(store.messages("ses_main"))["msg_a05"]
    assert json.dumps(message.info) == json.dumps(
        {
            "id": "msg_a05",
            "sessionID": "ses_main",
            "role": "assistant",
            "time": {"created": 100, "completed": 900},
            "parentID": "msg_a04",
            "modelID": "m1",
            "providerID": "acme",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": "/home/dev/proj", "root": "/"},
            "cost": 0.0012,
            "tokens": TOKENS,
            "finish": "tool-calls",
            "v2": {"type": "assistant", "seq": 5, "time": {"streamed": 800}, "rawFinish": "tool_calls"},
        }
    )
    assert [part["type"] for part in message.parts] == ["step-start", "reasoning", "tool", "step-finish"]
    _, reasoning, tool, finish = message.parts
    assert (reasoning["text"], reasoning["metadata"]) == ("I will run ls.", {"reasoningField": "reasoning_content"})
    assert reasoning["time"] == {"start": 150, "end": 300}
    assert (tool["callID"], tool["tool"]) == ("call_1", "shell")
    assert tool["state"] == {
        "status": "completed",
        "input": {"command": "ls"},
        "output": "notes.txt\n\nCommand exited with code 7.",
        "title": "",
        "metadata": {"status": "completed", "exit": 7},
        "time": {"start": 800, "end": 890},
    }
    assert (finish["reason"], finish["cost"], finish["tokens"]) == ("tool-calls", 0.0012, TOKENS)


def test_snapshots_are_at_the_steps_and_a_preset_is_kept(store: OpencodeDB) -> None:
    message = by_id(store.messages("ses_main"))["msg_a14"]
    assert message.info["variant"] == "high"
    assert message.info["v2"]["snapshot"] == {"start": "aaa", "end": "bbb", "files": ["a.txt"]}
    start, tool, finish = message.parts
    assert (start["snapshot"], finish["snapshot"]) == ("aaa", "bbb")
    assert tool["state"] == {
        "status": "error",
        "input": {"path": "/nope.txt"},
        "error": "File not found: /nope.txt",
        "time": {"start": 1200, "end": 1290},
        "v2": {"error": {"type": "tool.execution", "message": "File not found: /nope.txt"}},
    }


def test_a_step_that_failed_without_usage_has_its_error_and_no_steps(store: OpencodeDB) -> None:
    message = by_id(store.messages("ses_main"))["msg_a21"]
    assert message.parts == []
    assert message.info["error"] == {
        "name": "APIError",
        "data": {
            "message": "Model m1 has been deprecated.",
            "statusCode": 410,
            "isRetryable": False,
            "responseBody": "{}",
        },
    }
    assert message.info["cost"] == 0
    assert message.info["tokens"] == {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    assert message.info["v2"]["error"]["type"] == "provider.invalid-request"


@pytest.mark.parametrize(
    ("text", "cost", "spent", "odd"),
    [
        ({"tokens": TOKENS}, 0, 900, {}),
        ({"cost": 0.5}, 0.5, 0, {}),
        ({"cost": "free", "tokens": TOKENS}, 0, 900, {"cost": "free"}),
        ({"cost": 0.5, "tokens": 7}, 0.5, 0, {"tokens": 7}),
    ],
)
def test_an_answer_that_says_half_of_its_usage_keeps_that_half(
    writer: Writer, text: dict[str, Any], cost: float, spent: int, odd: dict[str, Any]
) -> None:
    writer.message("msg_x", "assistant", 1, {"time": {"created": 1}, "model": M1, "content": [], **text})
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    assert [part["type"] for part in message.parts] == ["step-start", "step-finish"]
    for item in (message.info, message.parts[1]):
        assert (item["cost"], item["tokens"]["input"]) == (cost, spent)
    assert message.info["v2"] == {"type": "assistant", "seq": 1, **odd}
    assert message.parts[1]["reason"] == "unknown"


def test_where_no_model_is_recorded_a_prompt_has_none_and_an_answer_an_unnamed_one(writer: Writer) -> None:
    writer.session(id="ses_bare")
    writer.message("msg_1", "user", 1, {"time": {"created": 1}, "text": "hello"}, session="ses_bare")
    writer.message("msg_2", "assistant", 2, {"time": {"created": 2}, "content": []}, session="ses_bare")
    with OpencodeDB(writer.path) as opened:
        prompt, answer = opened.messages("ses_bare")
    assert "model" not in prompt.info
    assert (answer.info["modelID"], answer.info["providerID"], answer.info["agent"]) == ("", "", "")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("aborted", "MessageAbortedError"),
        ("provider.auth", "ProviderAuthError"),
        ("provider.content-filter", "ContentFilterError"),
        ("provider.error", "APIError"),
        ("unknown", "UnknownError"),
        ("never.received.of", "UnknownError"),
    ],
)
def test_errors_get_the_names_of_1x(writer: Writer, kind: str, name: str) -> None:
    error = {"type": kind, "message": "why"}
    data: dict[str, Any] = {"time": {"created": 1}, "model": M1, "content": [], "error": error}
    writer.message("msg_x", "assistant", 1, data)
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    assert message.info["error"]["name"] == name
    assert message.info["error"]["data"]["message"] == "why"
    assert message.info["v2"]["error"] == error
    read_message(message.info)


def test_an_error_of_authentication_names_the_provider(writer: Writer) -> None:
    error = {"type": "provider.auth", "message": "no key"}
    writer.message("msg_x", "assistant", 1, {"time": {"created": 1}, "model": M1, "content": [], "error": error})
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    assert message.info["error"]["data"] == {"providerID": "acme", "message": "no key"}


def test_an_error_of_unknown_origin_is_an_unknown_one(writer: Writer) -> None:
    auth = {"type": "provider.auth", "message": "no key"}
    writer.message("msg_1", "assistant", 1, {"time": {"created": 1}, "content": [], "error": auth})
    writer.message("msg_2", "assistant", 2, {"time": {"created": 2}, "content": [], "error": {}})
    with OpencodeDB(writer.path) as opened:
        auth, unknown = (message.info["error"] for message in opened.messages("ses_main"))
    assert auth["data"] == {"providerID": "", "message": "no key"}
    assert unknown == {"name": "UnknownError", "data": {"message": ""}}


def test_what_a_provider_answered_is_kept_as_text_or_where_it_was(writer: Writer) -> None:
    error = {"type": "provider.error", "message": "why", "response": {"body": {"code": 1}}}
    writer.message("msg_1", "assistant", 1, {"time": {"created": 1}, "content": [], "error": error})
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    assert message.info["error"]["data"] == {"message": "why", "isRetryable": False}
    assert message.info["v2"]["error"] == error


def test_an_answer_under_way_has_pending_and_running_calls(store: OpencodeDB) -> None:
    message = by_id(store.messages("ses_main"))["msg_a31"]
    assert message.info["time"] == {"created": 4100}
    text, running, pending = message.parts
    assert (text["type"], text["text"]) == ("text", "Looking.")
    assert running["state"] == {
        "status": "running",
        "input": {"agent": "general"},
        "metadata": {},
        "time": {"start": 4300},
    }
    assert pending["state"] == {"status": "pending", "input": {}, "raw": '{"path":"a.'}


def test_what_happened_between_messages_is_kept_whole(store: OpencodeDB) -> None:
    messages = by_id(store.messages("ses_main"))
    for name, kind, seq, data in ROWS:
        if kind in ("idle", "agent-switched", "model-switched", "location-switched", "hologram"):
            (part,) = messages[name].parts
            assert (part["type"], part["data"]) == (kind, data)
            assert messages[name].info["role"] == "user"
            assert messages[name].info["v2"] == {"type": kind, "seq": seq}


@pytest.mark.parametrize("name", ["msg_a26", "msg_a27", "msg_a42"])
def test_texts_of_the_program_are_synthetic(store: OpencodeDB, name: str) -> None:
    message = by_id(store.messages("ses_main"))[name]
    (part,) = message.parts
    data = next(data for row, _, _, data in ROWS if row == name)
    assert (part["type"], part["text"], part["synthetic"]) == ("text", data["text"], True)
    rest = {key: value for key, value in data.items() if key not in ("time", "text")}
    assert {key: message.info["v2"][key] for key in rest} == rest


@pytest.mark.parametrize(("kind", "read"), [("system", "system"), ("synthetic", "synthetic"), ("", "unknown")])
def test_a_row_without_the_words_of_its_type_or_without_a_type_is_kept_whole(
    writer: Writer, kind: str, read: str
) -> None:
    writer.message("msg_1", kind, 1, {"time": {"created": 1}, "blocks": [1]})
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    assert message.info["v2"] == {"type": read, "seq": 1}
    assert [(part["type"], part["data"]["blocks"]) for part in message.parts] == [(read, [1])]


def test_attachments_are_file_and_agent_parts(store: OpencodeDB) -> None:
    _, file, agent = by_id(store.messages("ses_main"))["msg_a30"].parts
    assert {key: file[key] for key in ("mime", "filename", "url", "source")} == {
        "mime": "text/plain",
        "filename": "a.txt",
        "url": "data:text/plain;base64,aGk=",
        "source": {
            "text": {"value": "@a.txt", "start": 19, "end": 25},
            "type": "file",
            "path": "/home/dev/my proj/a.txt",
        },
    }
    assert "v2" not in file
    assert (agent["name"], agent["source"]) == ("general", {"value": "@general", "start": 4, "end": 12})
    assert "v2" not in agent


@pytest.mark.parametrize(
    ("file", "url", "source", "rest"),
    [
        ({"data": "eA==", "mime": "image/png", "source": {"type": "inline"}}, "data:image/png;base64,eA==", None, None),
        (
            {"uri": "file:///a.txt", "mime": "text/plain", "source": {"start": 1, "end": 3, "text": "@a"}},
            "file:///a.txt",
            {"text": {"value": "@a", "start": 1, "end": 3}, "type": "file", "path": "/a.txt"},
            None,
        ),
        (
            {"uri": "mcp://x/y", "mime": "text/plain", "description": "of a server"},
            "mcp://x/y",
            {"text": {"value": "", "start": 0, "end": 0}, "type": "resource", "clientName": "", "uri": "mcp://x/y"},
            {"description": "of a server"},
        ),
        (
            {"data": "eA==", "mime": "text/plain", "mention": {"start": 1, "end": 3, "text": "@a"}},
            "data:text/plain;base64,eA==",
            {"text": {"value": "@a", "start": 1, "end": 3}, "type": "file", "path": "a"},
            None,
        ),
        ({"mime": "text/plain", "uri": 7}, "", None, {"uri": 7}),
    ],
)
def test_files_of_every_kind_keep_what_they_say(
    writer: Writer, file: dict[str, Any], url: str, source: object, rest: object
) -> None:
    writer.message(
        "msg_x", "user", 1, {"time": {"created": 1}, "text": "", "files": [file, 7], "skills": [{"id": "s"}]}
    )
    with OpencodeDB(writer.path) as opened:
        _, part, odd, skill = opened.messages("ses_main")[0].parts
    assert (part["url"], part.get("source"), part.get("v2")) == (url, source, rest)
    assert (odd["type"], odd["data"]) == ("v2-file", 7)
    assert (skill["type"], skill["data"]) == ("skill", {"id": "s"})


@pytest.mark.parametrize(
    ("name", "odd", "kind"),
    [
        ("files", {"uri": "file:///a"}, "v2-file"),
        ("files", "a.txt", "v2-file"),
        ("agents", {"mention": {}}, "v2-agent"),
        ("agents", "general", "v2-agent"),
    ],
)
def test_an_attachment_that_is_not_understood_is_kept_whole(writer: Writer, name: str, odd: object, kind: str) -> None:
    writer.message("msg_x", "user", 1, {"time": {"created": 1}, name: [odd]})
    with OpencodeDB(writer.path) as opened:
        (part,) = opened.messages("ses_main")[0].parts
    assert (part["type"], part["data"]) == (kind, odd)


def test_a_command_without_words_is_an_empty_one(writer: Writer) -> None:
    writer.message("msg_x", "shell", 1, {"time": {"created": 1}, "status": "exited"})
    with OpencodeDB(writer.path) as opened:
        (part,) = opened.messages("ses_main")[0].parts
    assert (part["callID"], part["state"]["input"]) == ("", {"command": ""})
    assert (part["state"]["output"], part["state"]["time"]) == ("", {"start": 1, "end": 1})


def test_a_command_of_the_user_is_a_call_of_bash(store: OpencodeDB) -> None:
    message = by_id(store.messages("ses_main"))["msg_a40"]
    assert (message.info["role"], message.info["parentID"]) == ("assistant", "msg_a30")
    (part,) = message.parts
    assert (part["tool"], part["callID"]) == ("bash", "sh_1")
    assert part["state"] == {
        "status": "completed",
        "input": {"command": "pwd"},
        "output": "/home/dev/proj\n",
        "title": "",
        "metadata": {"output": "/home/dev/proj\n", "description": "", "exit": 0, "status": "exited"},
        "time": {"start": 5000, "end": 5200},
    }
    assert part["v2"] == {"output": {"cursor": 15, "size": 15, "truncated": False}}


@pytest.mark.parametrize(
    ("data", "status", "output"),
    [
        ({"callID": "c", "command": "ls", "output": "a\n"}, "running", None),
        ({"time": {"created": 1, "completed": 2}, "callID": "c", "command": "ls", "output": "a\n"}, "completed", "a\n"),
        ({"shell": {"shellID": "c", "command": "ls", "status": "killed"}}, "completed", ""),
        ({"shellID": "c", "command": "ls", "status": "running"}, "running", None),
    ],
)
def test_commands_of_older_shape_are_read(writer: Writer, data: dict[str, Any], status: str, output: object) -> None:
    writer.message("msg_x", "shell", 1, {"time": {"created": 1}, **data})
    with OpencodeDB(writer.path) as opened:
        (part,) = opened.messages("ses_main")[0].parts
    assert (part["callID"], part["state"]["input"]) == ("c", {"command": "ls"})
    assert (part["state"]["status"], part["state"].get("output")) == (status, output)
    read_part(part)


@pytest.mark.parametrize(("output", "metadata"), [("a\n", {"output": "a\n"}), ("", None)])
def test_a_running_command_shows_its_output_so_far(writer: Writer, output: str, metadata: object) -> None:
    data = {"time": {"created": 1}, "shellID": "c", "command": "make", "status": "running", "output": output}
    writer.message("msg_x", "shell", 1, data)
    with OpencodeDB(writer.path) as opened:
        (part,) = opened.messages("ses_main")[0].parts
    assert (part["state"].get("metadata"), part["state"]["time"]) == (metadata, {"start": 1})


def test_a_command_has_the_agent_and_the_model_of_its_session(writer: Writer) -> None:
    writer.session(id="ses_set", agent="plan", model=json.dumps({**M2, "variant": "high"}))
    writer.session(id="ses_bare")
    for session in ("ses_set", "ses_bare"):
        data = {"time": {"created": 1}, "shellID": "c", "command": "ls", "status": "exited"}
        writer.message(f"msg_{session}", "shell", 1, data, session=session)
    with OpencodeDB(writer.path) as opened:
        reported, bare = opened.messages("ses_set")[0].info, opened.messages("ses_bare")[0].info
    assert (reported["agent"], reported["mode"], reported["modelID"], reported["variant"]) == (
        "plan",
        "plan",
        "m2",
        "high",
    )
    assert (bare["agent"], bare["mode"], bare["modelID"], bare["providerID"]) == ("", "", "", "")


def test_a_compaction_is_a_request_and_its_summary(store: OpencodeDB) -> None:
    messages = by_id(store.messages("ses_main"))
    request, summary = messages["msg_a50"], messages["msg_a50-summary"]
    assert [(part["type"], part["auto"]) for part in request.parts] == [("compaction", True)]
    text = {"status": "completed", "reason": "auto", "recent": "[User]: Ask @general"}
    assert request.info["v2"] == {"type": "compaction", "seq": 50, **text}
    assert (summary.info["parentID"], summary.info["time"]) == ("msg_a50", {"created": 6000, "completed": 6001})
    assert (summary.info["summary"], summary.info["finish"], summary.info["agent"]) == (True, "stop", "compaction")
    assert (summary.info["cost"], summary.info["tokens"], summary.info["modelID"]) == (0.002, TOKENS, "m2")
    assert [part["type"] for part in summary.parts] == ["step-start", "text", "step-finish"]
    assert summary.parts[1]["text"] == "The user asked for a file list."
    finish = summary.parts[2]
    assert (finish["reason"], finish["cost"], finish["tokens"]) == ("stop", 0.002, TOKENS)
    assert in_order([summary.info, request.info]) == [request.info, summary.info]


def test_a_compaction_that_failed_cuts_nothing(store: OpencodeDB) -> None:
    messages = by_id(store.messages("ses_main"))
    assert messages["msg_a51"].parts[0]["auto"] is False
    text = {"status": "failed", "reason": "manual"}
    assert messages["msg_a51"].info["v2"] == {"type": "compaction", "seq": 51, **text}
    summary = messages["msg_a51-summary"].info
    assert summary["error"]["data"]["message"] == "Overloaded"
    assert summary["v2"]["error"] == {"type": "provider.error", "message": "Overloaded"}
    assert (summary["providerID"], summary["modelID"]) == ("acme", "m9")
    assert "finish" not in summary
    assert summary["time"]["completed"] == 7001


def test_a_compaction_that_failed_costs_what_it_cost(writer: Writer) -> None:
    auth = {"type": "provider.auth", "message": "no key"}
    data = {"time": {"created": 1}, "status": "failed", "model": M2, "cost": 0.5, "error": auth}
    writer.message("msg_1", "compaction", 1, data)
    writer.session(id="ses_bare")
    data = {"time": {"created": 1}, "status": "failed", "error": auth}
    writer.message("msg_2", "compaction", 1, data, session="ses_bare")
    with OpencodeDB(writer.path) as opened:
        _, summary = opened.messages("ses_main")
        _, nameless = opened.messages("ses_bare")
    assert [(part["type"], part.get("reason"), part.get("cost")) for part in summary.parts] == [
        ("step-start", None, None),
        ("step-finish", "error", 0.5),
    ]
    assert summary.info["error"]["data"]["providerID"] == "acme"
    assert nameless.info["error"]["data"]["providerID"] == nameless.info["modelID"] == ""


def test_a_compaction_whose_row_does_not_say_when_it_changed_ended_when_it_began(writer: Writer) -> None:
    writer.message("msg_x", "compaction", 1, {"time": {"created": 5}, "reason": "auto", "summary": "So far."})
    writer.connection.execute("UPDATE session_message SET time_updated = 'later'")
    with OpencodeDB(writer.path) as opened:
        _, summary = opened.messages("ses_main")
    assert summary.info["time"] == {"created": 5, "completed": 5}


def test_a_compaction_under_way_has_no_end(writer: Writer) -> None:
    data = {"time": {"created": 1}, "status": "running", "reason": "auto", "summary": "", "recent": ""}
    writer.message("msg_x", "compaction", 1, data)
    with OpencodeDB(writer.path) as opened:
        _, summary = opened.messages("ses_main")
    assert summary.info["time"] == {"created": 1}
    assert "finish" not in summary.info
    assert summary.parts == []


def test_files_of_a_result_are_attachments(writer: Writer) -> None:
    content = [
        {"type": "text", "text": "An image"},
        {"type": "file", "uri": "data:image/png;base64,eA==", "mime": "image/png", "name": "x.png"},
    ]
    part = only_part(writer, {**SHELL_CALL, "state": {"status": "completed", "input": {}, "content": content}})
    assert part["state"]["output"] == "An image"
    assert part["state"]["attachments"] == [
        {
            "id": "prt_x-00000-00",
            "sessionID": "ses_main",
            "messageID": "msg_x",
            "type": "file",
            "mime": "image/png",
            "filename": "x.png",
            "url": "data:image/png;base64,eA==",
        }
    ]
    assert list(part["state"])[-1] == "attachments"
    assert "v2" not in part["state"]


def test_a_file_of_a_result_need_not_say_what_it_is(writer: Writer) -> None:
    state: dict[str, Any] = {"status": "completed", "input": {}, "content": [{"type": "file", "uri": "file:///a"}]}
    (file,) = only_part(writer, {**SHELL_CALL, "state": state})["state"]["attachments"]
    assert (file["mime"], file["url"], "filename" in file) == ("", "file:///a", False)


@pytest.mark.parametrize(
    ("time", "read", "beyond"),
    [
        ({"created": 9100, "completed": 9200}, {"start": 9100, "end": 9200}, None),
        ({"created": 9100}, {"start": 9100}, None),
        ({"created": 9100, "paused": 9150}, {"start": 9100}, {"time": {"paused": 9150}}),
        (None, {"start": 9000, "end": 9500}, None),
    ],
)
def test_reasoning_says_when_or_has_the_time_of_its_message(
    writer: Writer, time: object, read: dict[str, int], beyond: object
) -> None:
    item: dict[str, object] = {"type": "reasoning", "text": "hm"} | ({"time": time} if time else {})
    data = {"time": {"created": 9000, "completed": 9500}, "content": [item]}
    writer.message("msg_x", "assistant", 1, data)
    with OpencodeDB(writer.path) as opened:
        (part,) = opened.messages("ses_main")[0].parts
    assert (part["type"], part["text"], part["time"], part.get("v2")) == ("reasoning", "hm", read, beyond)


@pytest.mark.parametrize(
    ("time", "start", "beyond"),
    [
        ({"created": 400, "completed": 890}, 400, None),
        ({"created": 400, "ran": 800, "completed": 890}, 800, {"created": 400, "ran": 800, "completed": 890}),
        ({"created": 400, "pruned": 990, "completed": 890}, 400, {"created": 400, "pruned": 990, "completed": 890}),
    ],
)
def test_a_call_keeps_the_times_that_1x_has_no_field_for(
    writer: Writer, time: dict[str, int], start: int, beyond: object
) -> None:
    part = only_part(writer, {**SHELL_CALL, "time": time})
    assert part["state"]["time"] == {"start": start, "end": 890}
    assert part.get("v2", {}).get("time") == beyond


@pytest.mark.parametrize(("time", "expected"), [({"completed": 9500}, (9000, 9500)), ({}, (9000, 9000))])
def test_a_call_that_does_not_say_when_was_made_when_its_message_was(
    writer: Writer, time: dict[str, int], expected: tuple[int, int]
) -> None:
    call = {key: value for key, value in SHELL_CALL.items() if key != "time"}
    writer.message("msg_x", "assistant", 1, {"time": {"created": 9000, **time}, "content": [call]})
    with OpencodeDB(writer.path) as opened:
        (part,) = opened.messages("ses_main")[0].parts
    assert (part["state"]["time"]["start"], part["state"]["time"]["end"]) == expected


def test_a_result_of_unknown_content_is_kept(writer: Writer) -> None:
    odd = [{"type": "video", "uri": "x"}, {"type": "aside", "text": "x"}, {"type": "text", "text": 7}, {"type": "file"}]
    content = [{"type": "text", "text": "seen"}, *odd]
    part = only_part(writer, {**SHELL_CALL, "state": {"status": "completed", "input": {}, "content": content}})
    assert part["state"]["output"] == "seen"
    assert "attachments" not in part["state"]
    assert part["state"]["v2"] == {"content": content}


def test_partial_output_of_a_failed_call_is_where_1x_keeps_it(writer: Writer) -> None:
    state: dict[str, Any] = {
        "status": "error",
        "input": {},
        "error": "cut",
        "content": [{"type": "text", "text": "half"}],
    }
    part = only_part(writer, {**SHELL_CALL, "state": state})
    assert (part["state"]["error"], part["state"]["metadata"]) == ("cut", {"output": "half"})


@pytest.mark.parametrize("name", ["metadata", "structured"])
def test_a_failed_call_has_what_it_knew_beside_what_it_printed(writer: Writer, name: str) -> None:
    lines = [{"type": "text", "text": "one"}, "loose words", {"type": "text", "text": "two"}]
    state: dict[str, Any] = {"status": "error", "input": {}, "error": "cut", name: {"exit": 1}, "content": lines}
    assert only_part(writer, {**SHELL_CALL, "state": state})["state"]["metadata"] == {"exit": 1, "output": "one\ntwo"}


@pytest.mark.parametrize("error", [{}, {"error": None}, {"error": {"type": "tool.execution"}}])
def test_a_call_that_failed_without_a_word_says_nothing(writer: Writer, error: dict[str, Any]) -> None:
    state = only_part(writer, {**SHELL_CALL, "state": {"status": "error", "input": {}, **error}})["state"]
    assert state["error"] == ""
    assert state.get("v2", {}).get("error") == error.get("error")


def test_what_a_failed_call_says_of_its_output_is_not_replaced(writer: Writer) -> None:
    state: dict[str, Any] = {
        "status": "error",
        "input": {},
        "error": "cut",
        "metadata": {"output": "all of it"},
        "content": [{"type": "text", "text": "half"}],
    }
    part = only_part(writer, {**SHELL_CALL, "state": state})
    assert part["state"]["metadata"] == {"output": "all of it"}
    assert part["state"]["v2"] == {"content": state["content"]}


def test_a_call_that_the_provider_ran_is_marked_though_it_wants_nothing_back(writer: Writer) -> None:
    part = only_part(writer, {**SHELL_CALL, "executed": True})
    assert part["metadata"] == {"providerExecuted": True}
    assert part["v2"] == {"time": SHELL_CALL["time"]}


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": "loose words"}])
def test_a_result_without_a_list_of_content_is_empty_and_loses_nothing(
    writer: Writer, content: dict[str, object]
) -> None:
    part = only_part(writer, {**SHELL_CALL, "state": {"status": "completed", "input": {}, **content}})
    assert (part["state"]["output"], part["state"]["metadata"]) == ("", {})
    assert part["state"].get("v2", {}) == content


@pytest.mark.parametrize("odd", [{"type": "text", "text": "", "lines": 2}, {"type": "file", "uri": "x", "size": 7}])
def test_what_an_item_of_a_result_says_beyond_1x_is_kept(writer: Writer, odd: dict[str, object]) -> None:
    content: list[dict[str, object]] = [{"type": "text", "text": "seen"}, odd]
    part = only_part(writer, {**SHELL_CALL, "state": {"status": "completed", "input": {}, "content": content}})
    assert (part["state"]["output"].strip(), part["state"]["v2"]) == ("seen", {"content": content})


@pytest.mark.parametrize(
    ("status", "arguments"),
    [("pending", ["a"]), ("running", ["a"]), ("completed", ["a"]), ("completed", "a"), ("error", "a")],
)
def test_input_that_is_not_an_object_is_kept_and_not_passed_off_as_one(
    writer: Writer, status: str, arguments: object
) -> None:
    part = only_part(writer, {**STREAMING, "state": {"status": status, "input": arguments}})
    assert (part["state"]["input"], part["state"].get("raw", "")) == ({}, "")
    assert part["state"]["v2"] == {"input": arguments}
    read_part(part)


def test_a_call_that_waits_keeps_the_time_that_1x_has_no_field_for(writer: Writer) -> None:
    assert only_part(writer, STREAMING)["v2"] == {"time": {"created": 4350}}


def test_a_call_that_says_hardly_anything_is_one_all_the_same(writer: Writer) -> None:
    bare = {"type": "tool", "id": "call_1", "name": "read", "state": {"status": "pending"}}
    part = only_part(writer, bare)
    assert part["state"] == {"status": "pending", "input": {}, "raw": ""}
    assert "v2" not in part


def test_a_call_under_way_has_what_it_knows_under_either_name(writer: Writer) -> None:
    state: dict[str, Any] = {"status": "running", "input": {}, "structured": {"pid": 7}}
    assert only_part(writer, {**RUNNING, "state": state})["state"]["metadata"] == {"pid": 7}


def test_calls_of_the_previews_are_read(writer: Writer) -> None:
    state: dict[str, Any] = {
        "status": "completed",
        "input": {},
        "content": [],
        "structured": {"n": 1},
        "result": {"ok": True},
    }
    call = {**SHELL_CALL, "state": state, "provider": {"executed": True, "metadata": {"k": "v"}}}
    part = only_part(writer, call)
    assert part["state"]["output"] == '{"ok":true}'
    assert part["state"]["metadata"] == {"n": 1}
    assert part["state"]["v2"] == {"result": {"ok": True}}
    assert part["metadata"] == {"k": "v", "providerExecuted": True}
    read_part(part)


@pytest.mark.parametrize(
    ("content", "structured", "output", "metadata"),
    [
        ([{"type": "text", "text": "words"}], {"n": 1}, "words", {"n": 1}),
        ([], {"n": 1}, '{"n":1}', {"n": 1}),
        ([], [1, 2], "[1,2]", {}),
    ],
)
def test_a_result_of_the_previews_is_its_words_or_else_its_structure(
    writer: Writer, content: object, structured: object, output: str, metadata: object
) -> None:
    kept: dict[str, Any] = {"status": "completed", "input": {}, "content": content, "structured": structured}
    state = only_part(writer, {**SHELL_CALL, "state": kept})["state"]
    assert (state["output"], state["metadata"]) == (output, metadata)


def test_what_a_provider_wants_back_with_a_call_goes_before_what_the_previews_called_so(writer: Writer) -> None:
    call = {**SHELL_CALL, "providerState": {"sig": 1}, "provider": {"metadata": {"sig": 0}}}
    assert only_part(writer, call)["metadata"] == {"sig": 1}


def test_what_a_provider_wants_back_is_metadata(writer: Writer) -> None:
    assert only_part(writer, {"type": "text", "text": "t", "native": {"sig": 1}})["metadata"] == {"sig": 1}


def test_text_of_the_previews_keeps_its_own_id(writer: Writer) -> None:
    part = only_part(writer, {"type": "text", "text": "t", "id": "old", "providerMetadata": {"sig": 1}})
    assert (part["id"], part["metadata"], part["v2"]) == ("prt_x-00000", {"sig": 1}, {"id": "old"})


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"type": "image", "url": "x"}, "image"),
        ({"type": "text", "text": 7}, "v2-text"),
        ({"type": "tool", "id": "c", "name": "n", "state": {"status": "levitating"}}, "v2-tool"),
        ({"type": "tool", "name": "n"}, "v2-tool"),
        ({"type": 3}, "unknown"),
        ({"type": ""}, "unknown"),
        ("loose words", "unknown"),
    ],
)
def test_content_that_is_not_understood_is_kept_under_its_own_type(writer: Writer, item: object, kind: str) -> None:
    part = only_part(writer, item)
    assert (part["type"], part["data"]) == (kind, item)
    read_part(part)


def test_content_that_is_not_a_list_stays_on_the_message(writer: Writer) -> None:
    writer.message("msg_x", "assistant", 1, {"time": {"created": 1}, "content": {"odd": True}})
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    assert message.parts == []
    assert message.info["v2"]["content"] == {"odd": True}


def test_a_session_has_the_fields_of_1x_and_then_its_own(store: OpencodeDB) -> None:
    document = store.read(("session", "global", "ses_main"))
    assert json.dumps(document) == json.dumps(
        {
            "id": "ses_main",
            "slug": "tidy-squid",
            "projectID": "global",
            "directory": "/home/dev/proj",
            "path": "",
            "cost": 0.0036,
            "tokens": {"input": 5960, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "title": "List files",
            "model": {"id": "m9", "providerID": "acme"},
            "version": "2.0.26",
            "time": {"created": 1791500000000, "updated": 1791500000001, "idle": 1791500002101},
            "outcome": "failed",
        }
    )


def test_a_session_that_was_suspended_says_so_and_how_often_it_was_tried_again(writer: Writer) -> None:
    writer.session(id="ses_held", time_viewed=7, time_suspended=8, resume_attempts=3, idle_outcome="suspended")
    with OpencodeDB(writer.path) as opened:
        document = opened.read(("session", "global", "ses_held"))
    assert (document["time"]["viewed"], document["time"]["suspended"]) == (7, 8)
    assert (document["resumeAttempts"], document["outcome"]) == (3, "suspended")


@pytest.mark.parametrize(
    ("absent", "path"),
    [
        ("ALTER TABLE session_v2 DROP COLUMN directory", {"cwd": "", "root": "/"}),
        ("ALTER TABLE project DROP COLUMN worktree", {"cwd": "/home/dev/proj", "root": "/home/dev/proj"}),
        ("DROP TABLE project", {"cwd": "/home/dev/proj", "root": "/home/dev/proj"}),
    ],
)
def test_an_answer_says_where_it_worked_as_well_as_the_tables_know(writer: Writer, absent: str, path: object) -> None:
    writer.content()
    writer.connection.execute(absent)
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main")
    assert message.info["path"] == path


def test_a_session_is_as_new_as_its_last_message(writer: Writer) -> None:
    writer.message("msg_1", "user", 4, {"time": {"created": 1791500099999}, "text": "later"})
    with OpencodeDB(writer.path) as opened:
        assert opened.read(("session", "global", "ses_main"))["time"]["updated"] == 1791500100000


def test_an_unnamed_session_has_the_default_title_of_1x(writer: Writer) -> None:
    writer.session(id="ses_new")
    writer.session(id="ses_kid", parent_id="ses_new")
    with OpencodeDB(writer.path) as opened:
        new = view(opened.read(("session", "global", "ses_new")), Session)
        kid = view(opened.read(("session", "global", "ses_kid")), Session)
    assert (new.title, kid.title) == (
        "New session - 2026-10-08T22:53:20.000Z",
        "Child session - 2026-10-08T22:53:20.000Z",
    )
    assert new.has_default_title
    assert kid.has_default_title


@pytest.mark.parametrize("created", [9e18, 1e300])
def test_a_session_unnamed_at_a_time_that_no_calendar_has_stays_unnamed(writer: Writer, created: float) -> None:
    writer.session(id="ses_odd", time_created=created)
    with OpencodeDB(writer.path) as opened:
        assert opened.read(("session", "global", "ses_odd"))["title"] == ""


def test_an_unnamed_session_whose_time_is_not_a_number_is_damage(writer: Writer) -> None:
    writer.session(id="ses_odd", time_created="soon")
    with OpencodeDB(writer.path) as opened, pytest.raises(RecordError, match="expected a number"):
        opened.read(("session", "global", "ses_odd"))


def test_a_fork_says_where_it_comes_from_and_reads_alone(full: Writer) -> None:
    full.session(id="ses_fork", fork_session_id="ses_main", fork_boundary='{"type":"through","messageID":"msg_a05"}')
    full.connection.execute(
        "INSERT INTO session_message SELECT 'msg_f00_' || seq, 'ses_fork', type, seq, time_created, time_updated, data "
        "FROM session_message WHERE session_id = 'ses_main' AND seq <= 5"
    )
    full.message("msg_f10", "user", 10, {"time": {"created": 9500}, "text": "Now in the fork"}, session="ses_fork")
    with OpencodeDB(full.path) as opened:
        document = opened.read(("session", "global", "ses_fork"))
        messages = opened.messages("ses_fork")
        assert opened.list(("part",)) == sorted(opened.list(("part",)))
    assert document["fork"] == {"sessionID": "ses_main", "boundary": {"type": "through", "messageID": "msg_a05"}}
    assert "parentID" not in document
    assert [message.info["id"] for message in messages] == ["msg_f00_4", "msg_f00_5", "msg_f10"]
    assert messages[1].info["parentID"] == "msg_f00_4"
    assert [part["id"] for part in messages[1].parts] == [f"prt_f00_5-0000{number}" for number in range(4)]


def test_a_fork_of_the_previews_names_its_message(writer: Writer) -> None:
    writer.connection.execute("ALTER TABLE session_v2 ADD COLUMN fork_message_id text")
    writer.session(id="ses_fork", fork_session_id="ses_main", fork_message_id="msg_a05")
    with OpencodeDB(writer.path) as opened:
        document = opened.read(("session", "global", "ses_fork"))
    assert document["fork"] == {"sessionID": "ses_main", "messageID": "msg_a05"}


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ([{"permission": "bash", "pattern": "*", "action": "deny"}], "permission"),
        ([{"permission": "bash", "pattern": "*", "action": action} for action in ("allow", "ask")], "permission"),
        ([{"permission": "bash", "pattern": "*", "action": "wonder"}], "permissions"),
        ([{"permission": "bash", "action": "deny"}], "permissions"),
        ([{"action": "bash", "resource": "*", "effect": "deny"}], "permissions"),
        (["deny"], "permissions"),
    ],
)
def test_rules_of_2x_do_not_pass_for_rules_of_1x(writer: Writer, rules: object, name: str) -> None:
    writer.session(id="ses_rules", permission=json.dumps(rules))
    with OpencodeDB(writer.path) as opened:
        document = opened.read(("session", "global", "ses_rules"))
    assert document[name] == rules
    view(document, Session)


def test_diffs_come_from_the_session_row(writer: Writer) -> None:
    writer.session(id="ses_diff", summary_diffs='[{"file":"a","additions":1,"deletions":0}]')
    with OpencodeDB(writer.path) as opened:
        assert opened.read(("session_diff", "ses_diff")) == [{"file": "a", "additions": 1, "deletions": 0}]
        assert opened.list(("session_diff",)) == [("session_diff", "ses_diff")]
        with pytest.raises(NotFoundError):
            opened.read(("session_diff", "ses_main"))


@pytest.fixture
def upgraded(full: Writer) -> Writer:
    full.connection.executescript(V1_SCHEMA)
    for session in ("ses_main", "ses_left"):
        row = (session, "global", "s", "/d", f"{session} of 1.x", "1.15.10", '[{"file":"old"}]', 1, 2)
        full.connection.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        name = f"old_{session}"
        data = json.dumps({"role": "user", "time": {"created": 1}})
        full.connection.execute("INSERT INTO message VALUES (?, ?, 1, 1, ?)", (f"msg_{name}", session, data))
        row = (f"prt_{name}", f"msg_{name}", session, '{"type":"text","text":"old"}')
        full.connection.execute("INSERT INTO part VALUES (?, ?, ?, 1, 1, ?)", row)
    full.connection.execute("INSERT INTO todo VALUES ('ses_main', 'still to do', 'pending', 'high', 0)")
    return full


def test_a_session_in_both_layouts_is_taken_from_the_newer(upgraded: Writer) -> None:
    with OpencodeDB(upgraded.path) as opened:
        titles = {key[2]: document["title"] for key, document in opened.scan(("session",))}
        assert titles == {"ses_main": "List files", "ses_left": "ses_left of 1.x"}
        assert "msg_old_ses_main" not in by_id(opened.messages("ses_main"))
        with pytest.raises(NotFoundError):
            opened.read(("message", "ses_main", "msg_old_ses_main"))
        with pytest.raises(NotFoundError):
            opened.read(("part", "msg_old_ses_main", "prt_old_ses_main"))
        assert opened.list(("session_diff",)) == [("session_diff", "ses_left")]


def test_what_only_the_older_layout_has_is_still_there(upgraded: Writer) -> None:
    with OpencodeDB(upgraded.path) as opened:
        (message,) = opened.messages("ses_left")
        assert message.parts[0]["text"] == "old"
        assert opened.read(("part", "msg_old_ses_left", "prt_old_ses_left")) == message.parts[0]
        assert opened.read(("todo", "ses_main"))[0]["content"] == "still to do"
        keys = [key for key, _ in opened.scan(())]
        assert keys == sorted(keys) == list(opened.list())
        assert {key[1] for key in keys if key[0] == "message"} == {"ses_left", "ses_main"}


def test_an_upgrade_while_the_store_is_open_is_noticed(tmp_path: Path) -> None:
    old = Writer(tmp_path / "opencode.db", V1_SCHEMA)
    old.connection.execute("INSERT INTO session VALUES ('ses_main', 'global', 's', '/d', 'before', '1', NULL, 1, 2)")
    with OpencodeDB(old.path) as opened:
        assert opened.read(("session", "global", "ses_main"))["title"] == "before"
        old.connection.executescript(SCHEMA)
        assert opened.read(("session", "global", "ses_main"))["title"] == "List files"
    old.connection.close()


def test_a_preview_keeps_its_sessions_under_the_old_name(tmp_path: Path) -> None:
    preview = Writer(tmp_path / "opencode-next.db", SCHEMA.replace("session_v2", "session"))
    preview.message(*ROWS[0])
    with OpencodeDB(preview.path) as opened:
        assert opened.read(("session", "global", "ses_main"))["title"] == "List files"
        assert [message.parts[0]["text"] for message in opened.messages("ses_main")] == ["List the files"]
        assert opened.list(("session",)) == [("session", "global", "ses_main")]
    preview.connection.close()


FORKED = "ALTER TABLE session ADD COLUMN fork_session_id text"


@pytest.mark.parametrize(
    ("change", "read"), [("DROP TABLE message", "List the files"), (FORKED, "List the files"), ("SELECT 1", None)]
)
def test_sessions_under_the_old_name_are_of_2x_if_they_have_no_messages_of_1x_or_know_forks(
    tmp_path: Path, change: str, read: str | None
) -> None:
    messages = SCHEMA[SCHEMA.index("CREATE TABLE session_message") : SCHEMA.index("CREATE UNIQUE INDEX")]
    made = Writer(tmp_path / "opencode.db", V1_SCHEMA + messages)
    made.connection.execute("INSERT INTO session VALUES ('ses_main', 'global', 's', '/', 'Mixed', '1', NULL, 1, 1)")
    made.connection.execute(change)
    made.message(*ROWS[0])
    with OpencodeDB(made.path) as opened:
        assert [message.parts[0]["text"] for message in opened.messages("ses_main")] == ([read] if read else [])
    made.connection.close()


def test_a_message_that_does_not_say_when_has_the_time_of_its_row(writer: Writer) -> None:
    writer.message("msg_1", "user", 1, '{"text":"when?"}')
    writer.connection.execute("UPDATE session_message SET time_created = 77")
    writer.message("msg_2", "user", 2, '{"text":"never"}')
    writer.connection.execute("UPDATE session_message SET time_created = 'soon' WHERE id = 'msg_2'")
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        (message,) = opened.messages("ses_main", report=reported.append)
    assert message.info["time"] == {"created": 77}
    assert [damage.path.rpartition("/")[2] for damage in reported] == ["msg_2"]


def test_a_message_that_says_when_is_believed_before_its_row(writer: Writer) -> None:
    writer.message("msg_1", "user", 1, {"time": {"created": 5}, "text": "then"})
    writer.connection.execute("UPDATE session_message SET time_created = 77")
    with OpencodeDB(writer.path) as opened:
        assert opened.messages("ses_main")[0].info["time"] == {"created": 5}


def test_yes_is_not_a_time(writer: Writer) -> None:
    writer.message("msg_1", "user", 1, '{"time":{"created":true},"text":"when?"}')
    writer.connection.execute("UPDATE session_message SET time_created = 77")
    with OpencodeDB(writer.path) as opened:
        assert opened.messages("ses_main")[0].info["time"] == {"created": 77}


def test_a_time_that_no_clock_shows_is_damage(writer: Writer) -> None:
    writer.message("msg_1", "user", 1, '{"text":"when?"}')
    writer.connection.execute("UPDATE session_message SET time_created = 9000000000000000000")
    with OpencodeDB(writer.path) as opened, pytest.raises(RecordError, match="expected milliseconds") as caught:
        opened.read(("message", "ses_main", "msg_1"))
    assert (caught.value.path, caught.value.place) == (f"{writer.path}#session_message/msg_1", "$.time.created")


def test_messages_of_no_session_hide_none_that_come_after_them(writer: Writer) -> None:
    rows = [(f"msg_{number:04d}", number) for number in range(300)]
    writer.connection.execute("BEGIN")
    writer.connection.executemany(
        "INSERT INTO session_message VALUES (?, 'ses_gone', 'user', ?, 1, 1, '{\"text\":\"lost\"}')", rows
    )
    writer.connection.execute("COMMIT")
    writer.message("msg_z", "user", 1, {"time": {"created": 1}, "text": "here"})
    with OpencodeDB(writer.path) as opened:
        assert [key for key, _ in opened.scan(("message",))] == [("message", "ses_main", "msg_z")]
        assert opened.list(("message",)) == [("message", "ses_main", "msg_z")]
        assert [part["text"] for _, part in opened.scan(("part",))] == ["here"]


def test_a_name_that_cannot_be_a_key_is_damage(writer: Writer) -> None:
    writer.message("msg_../1", "user", 1, {"time": {"created": 1}, "text": "escapes"})
    writer.message("msg_2", "user", 2, {"time": {"created": 2}, "text": "stays"})
    reported: list[Damage] = []
    with OpencodeDB(writer.path) as opened:
        assert [message.info["id"] for message in opened.messages("ses_main", report=reported.append)] == ["msg_2"]
        assert [key[2] for key, _ in opened.scan(("message",), report=reported.append)] == ["msg_2"]
        assert opened.list(("message",)) == [("message", "ses_main", "msg_2")]
    assert [damage.path for damage in reported] == [f"{writer.path}#session_message/msg_../1"] * 2


def test_sessions_without_their_table_of_messages_are_refused(writer: Writer) -> None:
    writer.connection.execute("ALTER TABLE session_message RENAME COLUMN seq TO number")
    with pytest.raises(StoreError, match="messages are not where they should be"):
        OpencodeDB(writer.path)


def test_the_columns_that_came_later_may_be_absent(tmp_path: Path) -> None:
    early = Writer(tmp_path / "opencode.db")
    for name in ("time_viewed", "time_suspended", "resume_attempts", "fork_boundary", "agent", "summary_diffs"):
        early.connection.execute(f"ALTER TABLE session_v2 DROP COLUMN {name}")
    early.message(*ROWS[0])
    with OpencodeDB(early.path) as opened:
        assert opened.read(("session", "global", "ses_main"))["outcome"] == "failed"
        assert len(opened.messages("ses_main")) == 1
    early.connection.close()
