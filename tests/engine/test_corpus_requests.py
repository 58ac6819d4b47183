from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opensesh.config import load
from opensesh.engine.context_window import visible
from opensesh.engine.engine import Engine
from opensesh.engine.opening import open_engine
from opensesh.engine.session_history import History
from opensesh.models.model import Model
from opensesh.models.openai_chat_request import request_body
from opensesh.models.request import Request
from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import StoredMessage
from opensesh.testing.wire import WireServer
from tests.conftest import FIXTURES

Json = dict[str, Any]

CORPUS = FIXTURES / "opencode-1.1.65"
MODEL = Model(id="scripted", provider_id="fake", npm="@ai-sdk/openai-compatible")

ASKED_TWICE = {"msg_1e0afa991001P9EagtA0ZIOM3s": "the first request was refused with 429"}
COPIES = {
    "ses_e1f5057c8ffeY6UVhrwaQhyklb": "a fork: its answers were copied, no model was asked for them",
    "ses_e1f5057acffeWkSnSBEvJfbOQS": "a fork up to the second prompt",
}
NOT_RECORDED = {
    "msg_1e0afc2a0001nENCzP6AR4c0nd": "a summary: the recording leaves out what asks for one, and we ask otherwise",
    "msg_1e0afc37b001GOnQEfuauEjiiq": "a summary, made because the window was full",
    "msg_1e0afc3f2001G1HIMlh9ZUrvJE": "a command of the user's own: no model was asked",
}
NO_HISTORY = {21: "the session was removed, and its records with it"}


class Wording(NamedTuple):
    theirs: Json
    ours: Json | None
    reason: str


WORDINGS = {
    18: Wording(
        {
            "type": "text",
            "text": 'ERROR: Cannot read "p.png" (this model does not support image input). Inform the user.',
        },
        {"type": "text", "text": "[p.png was left out: this model does not take image as input]"},
        "a file that the model cannot read is explained in our own words",
    ),
    19: Wording(
        {"type": "text", "text": "<reminder>"},
        None,
        "what reminds of the plan is stored with the prompt, and these prompts were stored by OpenCode",
    ),
    20: Wording(
        {"type": "text", "text": "<reminder>"},
        None,
        "what tells of the end of planning is stored with the prompt, too",
    ),
}
"""A part of a prompt that is sent otherwise than by OpenCode; ``None`` is not at all."""


class Asked(NamedTuple):
    """A recorded request, and the answer it got."""

    number: int
    messages: list[Json]
    answer: str | None


def recorded() -> list[Asked]:
    lines = (CORPUS / "requests.jsonl").read_text("utf-8").splitlines()
    arguments = [*in_order_of_asking(), *(None for _ in NO_HISTORY)]
    pairs = zip(lines, arguments, strict=True)
    return [Asked(number, json.loads(line)["messages"], answer) for number, (line, answer) in enumerate(pairs)]


def in_order_of_asking() -> Iterator[str]:
    asked = [info for info in answers() if info["sessionID"] not in COPIES and info["id"] not in NOT_RECORDED]
    for info in sorted(asked, key=lambda info: info["time"]["created"]):
        yield from (info["id"],) * (2 if info["id"] in ASKED_TWICE else 1)


def answers() -> list[Json]:
    """Every answer that is stored."""
    stored = [json.loads(path.read_text("utf-8")) for path in (CORPUS / "storage" / "message").glob("*/*.json")]
    return [info for info in stored if info["role"] == "assistant"]


def history_before(answer: str) -> list[StoredMessage]:
    sessions = Sessions(JsonTree(CORPUS / "storage"), resolve("."))
    [path] = (CORPUS / "storage" / "message").glob(f"*/{answer}.json")
    messages = sessions.messages(path.parent.name)
    return list(messages[: [message.info["id"] for message in messages].index(answer)])


def ours(answer: str) -> list[Json]:
    return request_body(Request(model=MODEL, messages=History(visible(history_before(answer))).conversation(MODEL)))[
        "messages"
    ]


def as_we_word_it(asked: Asked) -> list[Json]:
    wording = WORDINGS.get(asked.number)
    if wording is None:
        return asked.messages
    *before, last = asked.messages
    content = [wording.ours if part == wording.theirs else part for part in last["content"]]
    assert content != last["content"], wording.reason
    text = [part for part in content if part is not None]
    # One text alone is sent as such, by both.
    return [*before, last | {"content": text[0]["text"] if len(text) == 1 else text}]


@pytest.mark.parametrize("asked", recorded(), ids=lambda asked: str(asked.number))
def test_the_stored_history_gives_the_request_that_opencode_sent(asked: Asked) -> None:
    if asked.number in NO_HISTORY:
        assert asked.answer is None
        return
    assert asked.answer is not None
    assert ours(asked.answer) == as_we_word_it(asked)


def test_the_recording_is_complete_and_every_exception_is_needed() -> None:
    names = {info["id"] for info in answers()}
    assert {*ASKED_TWICE, *NOT_RECORDED} <= names
    assert set(COPIES) <= {info["sessionID"] for info in answers()}
    assert {asked.number for asked in recorded() if asked.answer is None} == set(NO_HISTORY)
    assert len(recorded()) == 22


async def test_a_session_across_the_wrap_of_identifiers_is_answered_in_order(wrap_corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(wrap_corpus / "storage", tmp_path / "storage")
    session = "ses_0000037afffeUtcCVcW6jyYWWR"
    asked = [f"SAY answer number {number}" for number in range(8)]
    answered = [f"answer number {number}" for number in range(4)]
    before = [text for pair in zip(asked, answered, strict=False) for text in pair] + asked[4:]
    async with WireServer() as wire, engine_for(wire, tmp_path) as engine:
        outcome = await engine.resume(session)
        assert outcome is not None
        assert texts_of((await outcome).message) == ["answer number 7"]
        assert said(wire) == before

        answer = (await engine.run(session, "SAY answer number 8")).message
        assert texts_of(answer) == ["answer number 8"]
        assert said(wire)[:-1] == [*before, "answer number 7", "SAY answer number 8"]

        stored = engine.sessions.messages(session)
        assert [texts_of(message)[0] for message in stored] == [*said(wire)[:-1], "answer number 8"]
        assert stored[-4].info["id"] == stored[-3].info["parentID"] == "msg_000003c15001FiRAjl28jN9Sjl"
        assert stored[-1].info["parentID"] == stored[-2].info["id"]


def engine_for(wire: WireServer, root: Path) -> Engine:
    models = {"scripted": {"name": "Scripted", "tool_call": True, "limit": {"context": 200_000, "output": 8192}}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": wire.base_url, "apiKey": "x"},
        "models": models,
    }
    config = {"model": "fake/scripted", "provider": {"fake": provider}}
    work = root / "work"
    work.mkdir()
    loaded = load(work, "/", home=root, environ={"OPENCODE_CONFIG_CONTENT": json.dumps(config)})
    return open_engine(str(work), store=JsonTree(root / "storage"), config=loaded)


def said(wire: WireServer) -> list[str]:
    """Every text of the last request, in order."""
    messages = [item["content"] for item in wire.conversation[-1].outline["messages"]]
    parts = [[{"text": content}] if isinstance(content, str) else content for content in messages]
    return [part["text"] for content in parts for part in content]


def texts_of(message: StoredMessage | None) -> list[str]:
    return [part["text"] for part in message.parts if part["type"] == "text"] if message else []
