from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.config import load
from opensesh.errors import NotFoundError, PermissionDeniedError, ToolFailedError
from opensesh.tools.mcp.conversion import McpTool, tool_key
from opensesh.tools.mcp.servers import McpServers

from ..bench import Bench

HERE = Path(__file__).parent
OUTSIDE = [sys.executable, str(HERE / "outside.py")]
ANTIQUE = [sys.executable, "-I", str(HERE / "antique.py")]


class McpSetup:
    def __init__(self, servers: McpServers, told: list[events.Event]) -> None:
        self.servers = servers
        self.published = told
        self.bench = Bench(Path.cwd())

    async def tools(self) -> dict[str, McpTool]:
        return {tool.id: tool for tool in await self.servers.tools()}

    async def call(self, name: str, **arguments: Any) -> str:
        return (await self.bench.run((await self.tools())[name], **arguments)).output


def configure(**mcp: Any) -> None:
    folder = Path.home() / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps({"mcp": mcp}))


@asynccontextmanager
async def mcp_setup(**mcp: Any) -> AsyncGenerator[McpSetup]:
    configure(**mcp)
    reported: list[events.Event] = []
    servers = McpServers(load(os.getcwd(), os.getcwd()), reported.append)
    async with asyncio.TaskGroup() as group:
        servers.begin(group)
        try:
            yield McpSetup(servers, reported)
        finally:
            servers.end()


def local(*command: str, **more: Any) -> dict[str, Any]:
    return {"type": "local", "command": list(command), **more}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(pid: int, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return not alive(pid)


def started() -> list[int]:
    return [int(path.name.removeprefix("started-")) for path in Path.cwd().glob("started-*")]


async def test_a_server_made_with_the_sdk_works_over_standard_input_and_output() -> None:
    async with mcp_setup(**{"out side": local(*OUTSIDE, environment={"SECRET": "sesame"})}) as it:
        assert it.servers.states["out side"].status == "idle", "nothing is started before it is needed"
        result = await it.tools()
        assert result["out_side_add"].schema == {
            "type": "object",
            "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}},
            "required": ["a", "b"],
            "title": "addArguments",
            "additionalProperties": False,
        }
        assert await it.call("out_side_add", a=2, b=3) == "5"
        asked = it.bench.asked[0]
        assert (asked.permission, asked.patterns, asked.always) == ("out_side_add", ["*"], ["*"])
        assert (await it.call("out_side_who_am_i")).split()[1:] == [os.getcwd(), "sesame"]

        seen = await it.bench.run(result["out_side_look"])
        assert seen.output == "one\n\ntwo\n\nthree"
        assert [(file["mime"], file.get("filename")) for file in seen.attachments] == [
            ("image/png", None),
            ("image/png", "pixel://b"),
        ]
        assert all(file["url"].startswith("data:image/png;base64,iVBOR") for file in seen.attachments)
        with pytest.raises(ToolFailedError, match="the printer is on fire"):
            await it.call("out_side_fail")

        (listed,) = await it.servers.prompts()
        assert (listed.name, listed.source, listed.hints) == ("out_side:greet_someone", "mcp", ("$1", "$2"))
        prompt = await it.servers.prompt("out_side:greet_someone")
        assert prompt.template == "Greet $1 $2. ! `rm -rf /` @key.txt", "a server names no command to run"
        with pytest.raises(NotFoundError):
            await it.servers.prompt("out_side:nothing")
        (note,) = await it.servers.read("out side", "note://today")
        assert note.text == "buy milk"
        with pytest.raises(ToolFailedError, match="note://never"):
            await it.servers.read("out side", "note://never")

        assert await it.call("out_side_grow") == "grew"
        for _ in range(100):
            if events.McpToolsChanged(server="out side") in it.published:
                break
            await asyncio.sleep(0.02)
        assert "out_side_grown" in await it.tools()


async def test_what_is_refused_never_reaches_the_server() -> None:
    async with mcp_setup(a=local(*ANTIQUE)) as it:
        it.bench.refuse["a_grow"] = PermissionDeniedError("no")
        with pytest.raises(PermissionDeniedError):
            await it.call("a_grow")
        assert not Path("grown").exists()


async def test_a_server_of_the_older_protocol_works_and_may_change_its_tools() -> None:
    async with mcp_setup(old=local(*ANTIQUE)) as it:
        first = await it.tools()
        assert len(started()) == 2, "it left at the newer greeting, and was greeted as before"
        assert await it.call("old_half") == '{"half":[1,2]}'
        assert await it.call("old_grow") == "grew"
        assert "old_grown" not in first
        assert "old_grown" in await it.tools()


async def test_a_huge_output_is_shortened_and_kept() -> None:
    async with mcp_setup(old=local(*ANTIQUE)) as it:
        answer = await it.bench.run((await it.tools())["old_huge"])
        assert answer.metadata["truncated"] is True
        assert len(answer.output) < 60_000
        assert Path(answer.metadata["outputPath"]).read_text().endswith("line 199999 of very many")


async def test_strange_schemas_and_names_are_made_usable() -> None:
    async with mcp_setup(old=local(*ANTIQUE, "strange")) as it:
        result = await it.tools()
        assert result["old_no_properties"].schema == {"type": "object", "properties": {}, "additionalProperties": False}
        long = next(name for name in result if name.startswith("old_nnn"))
        assert len(long) == 64
        assert result["old_no_schema"].schema == {"type": "object", "properties": {}, "additionalProperties": False}


async def test_a_server_that_dies_during_a_call_costs_that_call_and_is_there_for_the_next() -> None:
    async with mcp_setup(old=local(*ANTIQUE)) as it:
        first = int(await it.call("old_pid"))
        with pytest.raises(ToolFailedError, match="the MCP server old failed: it ended during the call"):
            await it.call("old_die")
        second = int(await it.call("old_pid"))
        assert second != first
        os.kill(second, signal.SIGKILL)
        assert await gone(second)
        async with asyncio.timeout(60):  # until the end of its output has been read
            while it.servers.states["old"].status == "connected":
                await asyncio.sleep(0.01)
        assert int(await it.call("old_pid")) not in (first, second)


async def test_a_call_times_out_unless_the_server_reports_progress() -> None:
    async with mcp_setup(out=local(*OUTSIDE), old=local(*ANTIQUE)) as it:
        result = await it.tools()
        it.servers._servers["out"]._call_seconds = 5.0  # pyright: ignore[reportPrivateUsage]
        it.servers._servers["old"]._call_seconds = 0.5  # pyright: ignore[reportPrivateUsage]
        assert (await it.bench.run(result["out_work"])).output == "worked"
        assert it.bench.shown[-1][0] == "step 11"
        with pytest.raises(ToolFailedError, match=r"did not answer within 0.5 s \(mcp.old.timeout"):
            await it.bench.run(result["old_hang"])


async def test_a_call_can_be_cancelled() -> None:
    async with mcp_setup(old=local(*ANTIQUE)) as it:
        result = await it.tools()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await it.bench.run(result["old_hang"])


async def test_a_server_that_cannot_start_is_named_and_costs_only_its_own_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with mcp_setup(
            dead=local(*ANTIQUE, "dead"),
            missing=local("no-such-program-anywhere"),
            slow=local(*ANTIQUE, "slow", timeout=700),
            empty={"type": "local"},
            off=local(*ANTIQUE, enabled=False),
            good=local(*ANTIQUE),
        ) as it:
            begun = time.monotonic()
            result = await it.tools()
            assert time.monotonic() - begun < 25, "they are waited for at the same time"
            states = it.servers.states
    assert set(result) == {f"good_{name}" for name in ("hang", "die", "pid", "helper", "grow", "huge", "half")}
    assert {name: state.status for name, state in states.items()} == {
        "dead": "failed",
        "missing": "failed",
        "slow": "failed",
        "empty": "failed",
        "off": "disabled",
        "good": "connected",
    }
    assert "no licence found" in str(states["dead"].error)
    assert states["missing"].error == "program not found: no-such-program-anywhere"
    assert str(states["slow"].error).startswith("it was not ready within 0.7 s (mcp.slow.timeout")
    failed = {event.server for event in it.published if isinstance(event, events.McpFailed)}
    assert failed == {"dead", "missing", "slow", "empty"}
    assert "the MCP server dead cannot be used" in caplog.text


async def test_a_server_that_failed_is_left_alone_for_a_while_unless_it_is_asked_for() -> None:
    async with mcp_setup(late=local(str(Path.cwd() / "late.sh"))) as it:
        assert await it.tools() == {}
        Path("late.sh").write_text("#!/bin/sh\nexec " + " ".join(ANTIQUE) + "\n")
        Path("late.sh").chmod(0o755)
        assert await it.tools() == {}
        with pytest.raises(ToolFailedError):  # it has no resources, but it is there
            await it.servers.read("late", "note://x")
        assert "late_pid" in await it.tools()


async def test_servers_and_what_they_left_behind_end_with_the_engine() -> None:
    async with mcp_setup(old=local(*ANTIQUE), deaf=local(*ANTIQUE, "deaf")) as it:
        pids = [int(await it.call("old_pid")), int(await it.call("old_helper")), int(await it.call("deaf_pid"))]
        assert all(alive(pid) for pid in pids)
    for pid in (*pids, *started()):
        assert await gone(pid), pid


_KILLED = """
import asyncio, os, sys
from opensesh.config import load
from opensesh.tools.mcp.servers import McpServers

async def main():
    servers = McpServers(load(os.getcwd(), os.getcwd()), lambda event: None)
    async with asyncio.TaskGroup() as group:
        servers.begin(group)
        await servers.tools()
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_servers_end_when_the_process_that_started_them_is_killed() -> None:
    configure(deaf=local(*ANTIQUE, "deaf"))
    process = subprocess.Popen([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    pids = [pid for pid in started() if alive(pid)]
    assert pids
    process.kill()
    process.wait()
    process.stdout.close()
    for pid in pids:
        assert await gone(pid), "it ignores both the end of its input and being asked to end"


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    async with mcp_setup(old=local(*ANTIQUE)) as it:
        assert await it.tools() == {}
        assert it.servers.states["old"].error == (
            "MCP servers need the package mcp: pip install 'mcp>=2,<3' (with pipx: pipx inject opensesh 'mcp>=2,<3')"
        )


def test_the_name_of_a_tool_is_made_of_what_providers_take() -> None:
    assert tool_key("my server", "do.it/now") == "my_server_do_it_now"
    long = tool_key("s", "x" * 80)
    assert len(long) == 64
    assert long != tool_key("s", "x" * 81)
