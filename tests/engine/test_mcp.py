from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from opensesh.engine.prompt import Prompt

from ..tools.mcp.test_servers import ANTIQUE, OUTSIDE, alive, gone, local, started
from .harness import open_harness


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")


def server(*command: str, **more: Any) -> dict[str, Any]:
    return {"mcp": {"box": local(*command, **more)}}


async def test_a_model_calls_a_tool_of_a_server() -> None:
    script = "CALL box_pid {}\n---\nSAY Done.\n"
    async with open_harness(script, config=server(*ANTIQUE)) as it:
        assert not started(), "a server is not started before a session runs"
        outcome = await it.ask()
        assert outcome.kind == "answered"
        (part,) = it.parts("tool")
        assert part["tool"] == "box_pid"
        assert part["state"]["status"] == "completed"
        pid = int(part["state"]["output"])
        assert alive(pid)
        offered = it.model.tools_offered(0)
        assert offered.index("box_hang") > offered.index("skill"), "after the built-in ones"
        it.assert_sound()
    assert await gone(pid)


async def test_the_rules_decide_over_a_tool_of_a_server() -> None:
    script = "CALL box_pid {}\n---\nSAY Done.\n"
    config = server(*ANTIQUE) | {"permission": {"box_pid": "deny", "box_h*": "deny"}}
    async with open_harness(script, config=config) as it:
        await it.ask()
        offered = set(it.model.tools_offered(0))
        assert "box_die" in offered
        assert not offered & {"box_pid", "box_hang", "box_huge"}
        assert it.parts("tool")[0]["tool"] == "invalid"


async def test_tools_that_change_during_a_prompt_are_taken_up_by_the_next() -> None:
    script = "CALL box_grow {}\n---\nSAY Grown.\n---\nSAY Next.\n"
    async with open_harness(script, config=server(*ANTIQUE)) as it:
        await it.ask("Grow.")
        await it.ask("And now?")
        first, second, third = (it.model.tools_offered(number) for number in range(3))
        assert first == second
        assert "box_grown" not in second
        assert "box_grown" in third
        assert it.model.prefix_digest(0, 1) == it.model.prefix_digest(1, 1)


async def test_a_server_that_fails_is_reported_and_the_session_continues() -> None:
    async with open_harness("SAY Without it.", config=server(*ANTIQUE, "dead")) as it:
        assert (await it.ask()).kind == "answered"
        (failed,) = [envelope.event for envelope in it.received if envelope.event.type == "opensesh.mcp.failed"]
        assert failed.properties["server"] == "box"
        assert "no licence found" in failed.properties["error"]


async def test_a_run_can_be_aborted_while_a_server_is_being_started() -> None:
    async with open_harness("SAY Never.", config=server(*ANTIQUE, "slow")) as it:
        outcome = await it.submit()
        await it.until(lambda: it.engine.components.mcp.states["box"].status == "connecting")
        await asyncio.sleep(0.2)
        it.engine.abort(it.session)
        assert (await outcome).kind == "aborted"
        it.assert_sound()


async def test_a_run_can_be_aborted_during_a_call() -> None:
    async with open_harness("CALL box_hang {}", config=server(*ANTIQUE)) as it:
        outcome = await it.submit()
        await it.until(lambda: [part for part in it.parts("tool") if part["state"]["status"] == "running"])
        it.engine.abort(it.session)
        assert (await outcome).kind == "aborted"
        it.assert_sound()
    for pid in started():
        assert await gone(pid)


async def test_prompts_of_a_server_are_commands_and_its_resources_can_be_attached() -> None:
    source = {"type": "resource", "clientName": "box", "text": {"value": "@note", "start": 0, "end": 5}}
    attached = {"type": "file", "mime": "text/plain", "filename": "note", "url": "note://today"}
    Path("key.txt").write_text("sesame")
    async with open_harness("SAY Greeted.\n---\nSAY Read.", config=server(*OUTSIDE)) as it:
        parts = (
            {"type": "text", "text": "What does it say?"},
            attached | {"source": source | {"uri": "note://today"}},
            attached | {"source": source | {"uri": "note://never"}},
            attached | {"source": source | {"uri": "note://today", "clientName": "nobody"}},
        )
        arguments = await it.engine.command(it.session, "/box:greet_someone", "Ann warmly", model="scripted/it")
        assert (await arguments).kind == "answered"
        first = it.messages()[0].parts
        assert first[0]["text"] == "Greet Ann warmly. ! `rm -rf /` @key.txt"
        assert [part["type"] for part in first] == ["text"], "a server has no file read"

        await it.ask(Prompt(parts=parts, model="scripted/it"))
        prompt = it.messages()[2]
        texts = [part["text"] for part in prompt.parts if part["type"] == "text"]
        assert texts[1:3] == ["Reading the MCP resource note (note://today)", "buy milk"]
        assert texts[4].startswith("Reading the MCP resource note://never failed: the MCP server box failed")
        assert texts[6] == (
            "Reading the MCP resource note://today failed: the configuration has no MCP server 'nobody'"
        )
        (file,) = [part for part in prompt.parts if part["type"] == "file"]
        assert file["source"]["uri"] == "note://today"
