from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import anthropic
import openai
import pytest

from opensesh.errors import ModelConnectionError, RateLimitedError
from opensesh.models.anthropic import Anthropic
from opensesh.models.model import Model
from opensesh.models.openai_chat import OpenAIChat
from opensesh.models.request import Request, Text, ToolSpec, User
from opensesh.models.stream_events import FinishStep, StreamEvent, TextDelta, TextEnd, ToolCall
from opensesh.models.transport import Transport
from opensesh.testing.scripted import ScriptedModel
from opensesh.testing.wire import WireServer

ANSWER = """\
THINK hm, é
META {"anthropic": {"signature": "signed"}}
SPLIT 3
SAY I read ✓ it.
CALL read {"filePath": "é.py"}
CALL bash {"command": "ls"}
USAGE input=10 output=5 reasoning=2 cache_read=3 cache_write=1
"""
HI: list[Any] = [{"role": "user", "content": "hi"}]
READ = ToolSpec(name="read", description="Read a file.", parameters={"type": "object"})
ASKED = Request(
    model=Model(id="scripted", provider_id="fake"), messages=(User(content=(Text(text="hi"),)),), tools=(READ,)
)


def openai_client(server: WireServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.base_url, api_key="x", max_retries=0)


def anthropic_client(server: WireServer) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key="x", max_retries=0)


async def test_the_openai_sdk_reads_a_stream() -> None:
    async with WireServer(ANSWER) as server, openai_client(server) as sdk:
        stream = await sdk.chat.completions.create(
            model="scripted", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "I read ✓ it."
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "hm, é"
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [(call.index, call.id, call.function.name) for call in calls if call.id and call.function] == [
        (0, "call_1_0", "read"),
        (1, "call_1_1", "bash"),
    ]
    arguments = [call.function.arguments or "" for call in calls if call.index == 0 and call.function]
    assert json.loads("".join(arguments)) == {"filePath": "é.py"}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (14, 7, 21)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 3


async def test_the_openai_sdk_reads_an_answer_in_one_piece() -> None:
    async with WireServer(ANSWER) as server, openai_client(server) as sdk:
        answer = await sdk.chat.completions.create(model="scripted", messages=HI)
        models = [model.id async for model in sdk.models.list()]
    message = answer.choices[0].message
    assert message.content == "I read ✓ it."
    assert [call.id for call in message.tool_calls or ()] == ["call_1_0", "call_1_1"]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert models == ["scripted"]


async def test_the_anthropic_sdk_reads_a_stream() -> None:
    async with WireServer(ANSWER) as server, anthropic_client(server) as sdk:
        async with sdk.messages.stream(model="scripted", max_tokens=99, messages=HI) as stream:
            streamed = "".join([text async for text in stream.text_stream])
            message = await stream.get_final_message()
        models = [model.id async for model in sdk.models.list()]
    assert streamed == "I read ✓ it."
    thought, text, read, bash = message.content
    assert thought.type == "thinking"
    assert (thought.thinking, thought.signature) == ("hm, é", "signed")
    assert text.type == "text"
    assert read.type == "tool_use"
    assert (read.id, read.input) == ("call_1_0", {"filePath": "é.py"})
    assert bash.type == "tool_use"
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (10, 7)
    assert (message.usage.cache_read_input_tokens, message.usage.cache_creation_input_tokens) == (3, 1)
    assert models == ["scripted"]


async def test_the_anthropic_sdk_reads_an_answer_in_one_piece() -> None:
    async with WireServer(ANSWER) as server, anthropic_client(server) as sdk:
        message = await sdk.messages.create(model="scripted", max_tokens=99, messages=HI)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.usage.output_tokens == 7


async def test_the_sdks_know_the_failures() -> None:
    script = "ERROR rate-limit after=2\n---\nERROR auth\n---\nERROR overloaded\n---\nSAY a\nERROR overloaded"
    async with WireServer(script) as server, openai_client(server) as sdk, anthropic_client(server) as other:
        with pytest.raises(openai.RateLimitError) as limited:
            await sdk.chat.completions.create(model="scripted", messages=HI)
        assert limited.value.response.headers["retry-after"] == "2"
        assert limited.value.code == "rate_limit_exceeded"
        with pytest.raises(openai.AuthenticationError):
            await sdk.chat.completions.create(model="scripted", messages=HI)
        with pytest.raises(anthropic.APIStatusError, match="overloaded_error") as overloaded:
            await other.messages.create(model="scripted", max_tokens=9, messages=HI)
        assert overloaded.value.status_code == 529
        stream = await other.messages.create(model="scripted", max_tokens=9, messages=HI, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            [event async for event in stream]


async def received(adapter: OpenAIChat | Anthropic, asked: Request = ASKED) -> list[StreamEvent]:
    async with aclosing(adapter.stream(asked)) as stream:
        return [event async for event in stream]


def gist(events: list[StreamEvent]) -> dict[str, Any]:
    step = next(event for event in events if isinstance(event, FinishStep))
    calls = [event for event in events if isinstance(event, ToolCall)]
    return {
        "thought": "".join(
            event.text for event in events if isinstance(event, TextDelta) and event.kind == "reasoning"
        ),
        "text": "".join(event.text for event in events if isinstance(event, TextDelta) and event.kind == "text"),
        "calls": [(call.id, call.name, call.input, call.problem is None) for call in calls],
        "reason": step.reason,
        "input": (step.usage.input, step.usage.cache_read, step.usage.cache_write),
        "output": step.usage.output + step.usage.reasoning,
    }


@pytest.mark.parametrize("dialect", ["chat", "messages"])
async def test_our_adapters_read_what_the_script_sends(dialect: str) -> None:
    script = f'{ANSWER}---\nDRIP 0.001\nSPLIT 1\nSAY ünï✓\nCALL read\n  {{"a\nFINISH length'
    expected = ScriptedModel(script)
    transport = Transport()
    async with WireServer(script) as server:
        adapter = (
            OpenAIChat("k", server.base_url, transport=transport)
            if dialect == "chat"
            else Anthropic("k", server.base_url, transport=transport)
        )
        for _ in range(2):
            events = await received(adapter)
            assert gist(events) == gist([event async for event in expected.stream(ASKED)])
    await transport.aclose()
    server.model.assert_complete()


async def test_a_signature_reaches_our_adapter() -> None:
    transport = Transport()
    async with WireServer(ANSWER) as server:
        events = await received(Anthropic("k", server.base_url, transport=transport))
    await transport.aclose()
    ends = [event.metadata for event in events if isinstance(event, TextEnd) and event.kind == "reasoning"]
    assert ends == [{"anthropic": {"signature": "signed"}}]


@pytest.mark.parametrize("kind", ["reset", "malformed", "torn"])
@pytest.mark.parametrize("before", ["", "SAY half\n"])
async def test_a_broken_wire_reaches_our_adapters(kind: str, before: str) -> None:
    transport = Transport()
    async with WireServer(f"{before}ERROR {kind}\n---\n{before}ERROR {kind}") as server:
        for adapter in (
            OpenAIChat("k", server.base_url, transport=transport),
            Anthropic("k", server.base_url, transport=transport),
        ):
            with pytest.raises(ModelConnectionError):
                await received(adapter)
    await transport.aclose()


async def test_our_adapter_learns_when_to_come_back() -> None:
    transport = Transport()
    async with WireServer("ERROR rate-limit after=1.5 form=ms") as server:
        with pytest.raises(RateLimitedError) as caught:
            await received(OpenAIChat("k", server.base_url, transport=transport))
    await transport.aclose()
    assert caught.value.headers["retry-after-ms"] == "1500"
