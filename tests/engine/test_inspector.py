from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from opensesh.engine import context_window
from opensesh.engine.context_window import request_tokens
from opensesh.engine.inspector import Inspection
from opensesh.errors import ModelError, NotFoundError, UsageError
from opensesh.models.request import File, ToolResults, User
from opensesh.models.stream_events import FinishStep, StartStep, TextDelta, TextEnd, TextStart, Usage
from opensesh.models.token_estimates import file_tokens
from opensesh.records import Rule
from opensesh.storage.memory import Memory

from .harness import EngineHarness, Playing, echo, open_harness

ALLOW = [Rule(permission="*", pattern="*", action="allow")]
LONG = 'CALL bash {"command":"seq 1 3000","description":"count"}\n---\nSAY counted'


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"
    return f"data:image/png;base64,{base64.b64encode(head + bytes(40)).decode()}"


def data(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def look(harness: EngineHarness, step: str | int | None = None) -> Inspection:
    session = harness.engine.sessions.get(harness.session)
    return harness.engine.components.inspector.inspect(session, None if step is None else str(step))


def answer(text: str = "ok") -> list[Any]:
    return [
        StartStep(),
        TextStart("1"),
        TextDelta("1", text),
        TextEnd("1"),
        FinishStep(reason="stop", usage=Usage(input=70, output=3, cache_read=30)),
    ]


async def test_every_past_step_is_shown_as_it_was_sent() -> None:
    Path("AGENTS.md").write_text("Use tabs. " * 50)
    script = 'CALL echo {"a":1}\n---\nTHINK hm\nSAY one\n---\nCALL echo {"b":2}\n---\nSAY two'
    async with open_harness(script, tools=[echo()]) as harness:
        await harness.ask("first")
        await harness.ask("second")
        for number in range(4):
            sent = harness.model.calls[number].request
            result = look(harness, number + 1)
            assert abs(result.tokens - sum(request_tokens(sent).values())) <= 2, number
            assert {piece.what for piece in result.pieces if piece.part == "tools"} == {
                tool.name for tool in sent.tools
            }
        assert look(harness, 4).parts.keys() >= {
            "system prompt",
            "instructions",
            "tools",
            "prompts",
            "answers",
            "results",
        }


async def test_the_providers_own_count_stands_beside_the_estimate() -> None:
    async with open_harness(Playing(answer())) as harness:
        await harness.ask("hello")
        assert look(harness, 1).counted == 100
        assert look(harness).counted is None
        assert look(harness).before == 103


async def test_growth_compares_the_parts_that_are_known_of_both_steps() -> None:
    async with open_harness("SAY one\n---\nSAY two") as harness:
        await harness.ask("first")
        await harness.ask("second prompt")
        own = look(harness, 2).growth(look(harness, 1))
        assert own["system prompt"] == own["tools"] == 0
        assert own["prompts"] > 0
        assert sum(own.values()) == look(harness, 2).tokens - look(harness, 1).tokens
        harness.engine.sessions.update(harness.session, lambda document: document.update(version="1.2.0"))
        assert look(harness).growth(look(harness, 2)).keys() == {"prompts", "answers"}


async def test_a_step_is_named_by_its_number_its_message_or_its_prompt() -> None:
    async with open_harness("SAY one\n---\nSAY two") as harness:
        await harness.ask("first")
        await harness.ask("second")
        prompt, reply = harness.messages()[2:]
        assert look(harness, 2) == look(harness, reply.info["id"]) == look(harness, prompt.info["id"][-8:])
        wrongs = {"0": "no step 0", "3": "no step 3", "nothing": "no message of the session", "msg_": "4 messages"}
        for wrong, why in wrongs.items():
            with pytest.raises(NotFoundError, match=why):
                look(harness, wrong)
        harness.engine.sessions.remove_message(harness.session, reply.info["id"])
        with pytest.raises(UsageError, match="no answer yet"):
            look(harness, prompt.info["id"])


async def test_what_was_pruned_later_was_still_sent_then() -> None:
    script = f"{LONG}\n---\n{LONG}\n---\nSAY a\n---\nSAY b\n---\nSAY c"
    async with open_harness(script, rules=ALLOW) as harness:
        for words in ("one", "two", "three", "four"):
            await harness.ask(words)
        before = look(harness, 4)
        stored = harness.messages()
        assert context_window.prune(harness.engine.sessions, stored) == 0
        part = stored[1].parts[1]
        marked = part["state"] | {"time": part["state"]["time"] | {"compacted": stored[-1].info["time"]["created"] + 1}}
        harness.engine.sessions.update_part(part | {"state": marked})
        assert look(harness, 4) == before
        after = look(harness)
        assert [item.why for item in after.omitted] == ["pruned"]
        assert after.omitted[0].tokens > 2_000
        assert [piece.note for piece in after.pieces if piece.part == "results"] == ["pruned", ""]


async def test_a_compaction_hides_nothing_from_the_steps_before_it() -> None:
    async with open_harness("SAY one\n---\nSAY two\n---\nSAY in short\n---\nSAY three") as harness:
        await harness.ask("first")
        await harness.ask("second")
        before = look(harness, 2)
        await (await harness.engine.compact(harness.session))
        await harness.ask("third")
        assert look(harness, 2) == before
        summing = look(harness, 3)
        assert summing.agent == "compaction"
        assert "the conversation as text, 1 of 1" in [piece.what for piece in summing.pieces]
        last = look(harness, 4)
        assert last.parts["summary"] > 0
        assert [(item.why, item.what) for item in last.omitted] == [("summarised", "4 messages")]


async def test_what_a_provider_refused_is_named_and_stays_left_out_in_the_next_run() -> None:
    picture = {"type": "file", "mime": "image/png", "filename": "x.png", "url": png(750, 100)}
    refusal = ModelError("messages.0.content.1.image.source: bad", status=400)
    store = Memory()
    playing = Playing([refusal], answer(), answer())
    async with open_harness(playing, store=store) as harness:
        from opensesh.engine.prompt import Prompt

        parts = ({"type": "text", "text": "Look"}, picture)
        assert (await harness.ask(Prompt(parts=parts, model="scripted/it"))).kind == "answered"
        session = harness.session
        assert [item.why for item in look(harness, 1).omitted] == ["masked"]
        assert look(harness, 1).omitted[0].what == "x.png image/png"
    async with open_harness(playing, store=store) as harness:
        await harness.ask("And now?", session)
        assert _pictures(playing, 0) == 1
        assert _pictures(playing, 1) == _pictures(playing, 2) == 0


def _pictures(playing: Playing, number: int) -> int:
    turns = playing.requests[number].messages
    return sum(
        isinstance(piece, File) for turn in turns if isinstance(turn, (User, ToolResults)) for piece in turn.content
    )


async def test_a_model_and_an_agent_that_are_gone_are_named_and_do_not_matter() -> None:
    async with open_harness("SAY one") as harness:
        await harness.ask("first")
        stored = harness.messages()[1].info
        harness.engine.sessions.update_message(stored | {"providerID": "gone", "modelID": "m", "agent": "nobody"})
        result = look(harness, 1)
        assert (result.model, result.usable_tokens, result.agent) == ("gone/m", 0, "nobody")
        assert any("gone" in note for note in result.notes)
        assert any("nobody" in note for note in result.notes)
        assert "The context limit of gone/m is not known." in result.notes
        assert json.loads(json.dumps(result.document()))["window"] is None


async def test_a_session_without_prompts_has_a_next_request_too() -> None:
    async with open_harness("SAY one") as harness:
        result = look(harness)
        assert result.step == 1
        assert result.parts["system prompt"] > 0
        assert any("no model to use" in note for note in result.notes)


@pytest.mark.parametrize(
    ("mime", "url", "tokens"),
    [
        ("image/png", png(750, 1000), 1000),
        ("image/png", png(100_000, 100_000), 3279),
        ("image/gif", data("image/gif", b"GIF89a" + struct.pack("<HH", 75, 100)), 10),
        ("image/jpeg", data("image/jpeg", b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\0\x64\0\x96" + bytes(9)), 20),
        ("image/webp", data("image/webp", b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x4a\0\0\x63\0\0"), 10),
        ("image/webp", data("image/webp", b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + b"\x4b\0\x64\0"), 10),
        (
            "image/webp",
            data("image/webp", b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + (74 | 99 << 14).to_bytes(4, "little")),
            10,
        ),
        ("image/png", data("image/png", b"no picture"), 1500),
        ("image/png", "https://example.com/a.png", 1500),
        ("application/pdf", data("application/pdf", b"%PDF /Type /Pages /Type /Page /Type/Page\n"), 4000),
        ("application/pdf", data("application/pdf", b"%PDF"), 2000),
        ("text/csv", data("text/csv", b"a" * 400), 100),
    ],
)
def test_pictures_are_weighed_by_their_size_and_documents_by_their_pages(mime: str, url: str, tokens: int) -> None:
    assert file_tokens(mime, url) == tokens
