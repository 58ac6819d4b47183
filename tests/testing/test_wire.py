from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

import opensesh
from opensesh.models.request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, ToolUseResult, User
from opensesh.testing.scripted import SUMMARY, TITLE, ScriptedModel
from opensesh.testing.wire import WireServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HI: list[Any] = [{"role": "user", "content": "hi"}]
CHAT: dict[str, Any] = {"model": "scripted", "messages": HI, "stream": True}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=10, trust_env=False) as made:
        yield made


def frames(body: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize(
    ("step", "status", "header", "value"),
    [
        ("ERROR rate-limit after=3", 429, "retry-after", "3"),
        ("ERROR 503 after=0.25 form=ms", 503, "retry-after-ms", "250"),
        ("ERROR overloaded after=60 form=date", 529, "retry-after", "Sun, 09 Sep 2001 01:47:40 GMT"),
    ],
)
async def test_an_error_response_has_its_status_and_retry_header(
    client: httpx2.AsyncClient, step: str, status: int, header: str, value: str
) -> None:
    model = ScriptedModel(step, clock=lambda: 1_000_000_000.0)
    async with WireServer(model) as server:
        response = await client.post(f"{server.base_url}/chat/completions", json=CHAT)
    assert response.status_code == status
    assert response.headers[header] == value
    assert response.json()["error"]["message"]


async def test_a_failure_after_the_answer_began_is_an_event(client: httpx2.AsyncClient) -> None:
    async with WireServer("SAY half\nERROR rate-limit after=3\n---\nSAY half\nERROR overflow") as server:
        chat = await client.post(f"{server.base_url}/chat/completions", json=CHAT)
        messages = await client.post(f"{server.base_url}/messages", json=CHAT | {"max_tokens": 9})
    assert (chat.status_code, messages.status_code) == (200, 200)
    assert frames(chat.text)[-1]["error"]["code"] == "rate_limit_exceeded"
    last = frames(messages.text)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "invalid_request_error")


async def test_a_torn_stream_ends_within_a_character(client: httpx2.AsyncClient) -> None:
    async with WireServer("SAY a\nERROR torn") as server:
        response = await client.post(f"{server.base_url}/chat/completions", json=CHAT)
    assert response.content[-1:] == "é".encode()[:1]
    with pytest.raises(UnicodeDecodeError):
        response.content.decode()


async def test_a_malformed_frame_is_invalid_json(client: httpx2.AsyncClient) -> None:
    async with WireServer("SAY a\nERROR malformed") as server:
        response = await client.post(f"{server.base_url}/chat/completions", json=CHAT)
    with pytest.raises(ValueError, match="Unterminated"):
        frames(response.text)


async def test_a_reset_breaks_the_connection_after_the_sent_text(client: httpx2.AsyncClient) -> None:
    got = b""
    async with (
        WireServer("SAY half\nERROR reset") as server,
        client.stream("POST", f"{server.base_url}/chat/completions", json=CHAT) as response,
    ):
        chunks = response.aiter_bytes()
        while b"half" not in got:
            got += await anext(chunks)
        with pytest.raises(httpx2.ReadError):
            await anext(chunks)


async def test_a_dripping_stream_comes_in_halves(client: httpx2.AsyncClient) -> None:
    async with (
        WireServer("DRIP 0.02\nSAY abc") as server,
        client.stream("POST", f"{server.base_url}/chat/completions", json=CHAT) as response,
    ):
        chunks = [chunk async for chunk in response.aiter_raw()]
    assert sum(not chunk.endswith(b"\n\n") for chunk in chunks) >= 3
    deltas = [frame["choices"][0]["delta"] for frame in frames(b"".join(chunks).decode())[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "abc"


async def test_a_client_that_leaves_is_noticed(client: httpx2.AsyncClient) -> None:
    async with WireServer("SAY half\nHANG\n---\nHANG") as server:
        address = f"{server.base_url}/chat/completions"
        async with client.stream("POST", address, json=CHAT) as response:
            await anext(response.aiter_bytes())
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(address, json=CHAT, timeout=httpx2.Timeout(60, read=0.5))
        async with asyncio.timeout(60):
            while not all(request.dropped for request in server.requests):
                await asyncio.sleep(0.01)
    assert server.model.dropped == (0, 1)


async def test_a_server_stops_while_answers_hang(client: httpx2.AsyncClient) -> None:
    async with asyncio.TaskGroup() as group, WireServer("HANG") as server:
        pending = group.create_task(ask_in_vain(client, server))
        while not server.requests:
            await asyncio.sleep(0.01)
    assert pending.result()


async def ask_in_vain(client: httpx2.AsyncClient, server: WireServer) -> bool:
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post(f"{server.base_url}/chat/completions", json=CHAT)
    return True


async def test_a_call_too_many_is_a_bad_request(client: httpx2.AsyncClient) -> None:
    async with WireServer("EXPECT tools read\nSAY a") as server:
        unmet = await client.post(f"{server.base_url}/chat/completions", json=CHAT)
        spent = await client.post(f"{server.base_url}/messages", json=CHAT)
        odd = await client.post(f"{server.base_url}/messages", json={"messages": [{"role": "user"}]})
        torn = await client.post(f"{server.base_url}/messages", content=b"{")
        lost = await client.get(f"{server.base_url}/nowhere")
    assert [one.status_code for one in (unmet, spent, odd, torn, lost)] == [400, 400, 400, 400, 404]
    assert "the script expects tools 'read'" in unmet.json()["error"]["message"]
    assert "no turn of the script is left" in spent.json()["error"]["message"]
    assert "cannot be read" in odd.json()["error"]["message"]
    with pytest.raises(AssertionError):
        server.model.assert_complete()


async def test_prompts_are_scripts_and_their_usage_is_their_size(client: httpx2.AsyncClient) -> None:
    system = {"role": "system", "content": "Be brief."}
    messages = [system, {"role": "user", "content": "SAY one\n---\nSAY two"}]
    tools = [{"type": "function", "function": {"name": "read"}}]
    title = [{"role": "system", "content": "You make up a title."}, *HI]
    async with WireServer() as server:
        address = f"{server.base_url}/chat/completions"
        first = await client.post(address, json={"messages": messages, "tools": tools})
        more = [*messages, {"role": "assistant", "content": "one"}]
        second = await client.post(address, json={"messages": more, "tools": tools})
        titled = await client.post(address, json={"messages": title})
        summed = await client.post(address, json={"messages": HI})
    texts = [one.json()["choices"][0]["message"]["content"] for one in (first, second, titled, summed)]
    assert texts == ["one ", "two ", TITLE, f"{SUMMARY} "]
    assert first.json()["usage"]["prompt_tokens"] == len(json.dumps(messages)) // 4
    assert [request.title for request in server.requests] == [False, False, True, False]
    assert len(server.conversation) == 3


async def test_both_dialects_are_read_alike() -> None:
    image = "data:image/png;base64,AAAA"
    chat_messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": image}}],
        },
        {
            "role": "assistant",
            "content": "I read.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": name, "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}
                for name in ("c1", "c2")
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "user", "content": "go on"},
    ]
    anthropic_messages = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I read."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "two"}],
                    "is_error": True,
                },
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    spec = {"name": "read", "description": "Read."}
    async with WireServer("SAY a\n---\nSAY b") as server, httpx2.AsyncClient(trust_env=False) as client:
        chat = {
            "model": "m",
            "messages": chat_messages,
            "tools": [{"type": "function", "function": spec}],
            "max_tokens": 7,
        }
        await client.post(f"{server.base_url}/chat/completions", json=chat)
        body = {"model": "m", "messages": anthropic_messages, "system": [{"type": "text", "text": "Be brief."}]}
        await client.post(f"{server.base_url}/messages", json=body | {"tools": [spec], "max_tokens": 7})
    one, two = (call.request for call in server.model.calls)
    calls = (ToolUse(id=name, name="read", input={"path": "a"}) for name in ("c1", "c2"))
    results = (
        ToolUseResult(id="c1", name="read", output=(Text(text="one"),)),
        ToolUseResult(id="c2", name="read", output=(Text(text="two"),)),
    )
    assert one.messages == (
        System(text="Be brief."),
        User(content=(Text(text="look"), File(mime="image/png", url=image))),
        Assistant(content=(Reasoning(text="hm"), Text(text="I read."), *calls)),
        ToolResults(content=results),
        User(content=(Text(text="go on"),)),
    )
    assert [type(message) for message in two.messages] == [type(message) for message in one.messages]
    assert server.model.model_text(0) == server.model.model_text(1)
    failed = two.messages[3]
    assert isinstance(failed, ToolResults)
    assert [result.failed for result in failed.content] == [False, True]
    assert one.tools == two.tools
    assert (one.max_output_tokens, two.max_output_tokens) == (7, 7)


def post(server: WireServer, body: dict[str, Any]) -> httpx2.Response:
    with httpx2.Client(trust_env=False, timeout=60) as client:
        return client.post(f"{server.base_url}/chat/completions", json=body)


def test_a_thread_serves_those_who_cannot_wait(tmp_path: Path) -> None:
    record = tmp_path / "requests.jsonl"
    with WireServer("SAY a\n---\nSAY b", record=record) as server:
        tools = [{"type": "function", "function": {"name": "read"}}]
        asked = {"model": "m", "messages": [{"role": "system", "content": "s"}, *HI], "tools": tools}
        assert post(server, asked).json()["choices"][0]["message"]["content"] == "a"
        post(server, asked)
        server.wait_for(2, timeout=60)
        with pytest.raises(TimeoutError, match="2 of 3 requests"):
            server.wait_for(3, timeout=0.01)
    server.model.assert_complete()
    assert server.requests[0].outline == {"model": "m", "messages": HI, "tools": ["read"]}
    assert server.requests[0].headers["content-type"] == "application/json"
    lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    assert lines == [{"path": "/v1/chat/completions", "body": asked}] * 2


def test_a_port_that_is_taken_is_reported() -> None:
    with WireServer() as server, pytest.raises(OSError, match="address"):
        WireServer(port=server.port).__enter__()


def test_a_process_serves_a_file(tmp_path: Path) -> None:
    script = tmp_path / "demo.script"
    script.write_text("SAY from a process")
    command = [sys.executable, "-m", "opensesh.testing.wire", str(script)]
    environment = {"PYTHONPATH": str(Path(opensesh.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            with httpx2.Client(trust_env=False, timeout=60) as client:
                answer = client.post(f"{address}/chat/completions", json={"messages": HI})
        finally:
            process.terminate()
    assert answer.json()["choices"][0]["message"]["content"] == "from a process"


async def test_answers_overlap(client: httpx2.AsyncClient) -> None:
    together = asyncio.Barrier(3)

    async def sleep(seconds: float) -> None:
        await together.wait()

    model = ScriptedModel("WAIT 1\nSAY a\n---\nWAIT 1\nSAY b\n---\nWAIT 1\nSAY c", sleep=sleep)
    async with WireServer(model) as server, asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(client.post(f"{server.base_url}/chat/completions", json=CHAT))
    model.assert_complete()


async def test_usage_that_is_not_wanted_is_not_sent(client: httpx2.AsyncClient) -> None:
    async with WireServer("SAY a\nFINISH unknown") as server:
        response = await client.post(
            f"{server.base_url}/chat/completions", json=CHAT | {"stream_options": {"include_usage": False}}
        )
    assert [frame["choices"][0]["finish_reason"] for frame in frames(response.text)] == [None, None]
    assert "usage" not in response.text
