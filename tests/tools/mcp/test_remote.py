from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from opensesh.errors import ToolFailedError
from opensesh.tools.mcp.saved_logins import saved_login

from ...models.loopback import Exchange, serving
from .test_servers import OUTSIDE, mcp_setup


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def outside(kind: str, port: int) -> Generator[None]:
    process = subprocess.Popen([*OUTSIDE, kind, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1_200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def remote(port: int, **more: Any) -> dict[str, Any]:
    return {"type": "remote", "url": f"http://127.0.0.1:{port}/mcp", **more}


def logged_in(name: str, url: str | None, **tokens: Any) -> None:
    path = Path(os.path.expanduser("~/.local/share/opencode/mcp-auth.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: {"tokens": {"accessToken": "let-me-in", **tokens}, "serverUrl": url}}))


async def test_a_server_is_reached_over_http_and_found_again_after_it_was_restarted() -> None:
    port = free_port()
    async with mcp_setup(web=remote(port, timeout=20_000)) as it:
        with outside("http", port):
            assert await it.call("web_add", a=20, b=22) == "42"
            assert (await it.servers.prompt("web:greet_someone")).template.startswith("Greet $1")
        with pytest.raises(ToolFailedError, match="the MCP server web failed"):
            await it.call("web_add", a=1, b=1)
        with outside("http", port):
            assert await it.call("web_add", a=1, b=1) == "2"
        assert it.servers.states["web"].status == "connected"


async def test_a_server_that_speaks_only_the_older_form_is_reached_too() -> None:
    port = free_port()
    with outside("sse", port):
        async with mcp_setup(web=remote(port)) as it:
            assert await it.call("web_add", a=20, b=22) == "42"


async def test_an_unreachable_server_is_reported() -> None:
    port = free_port()
    async with mcp_setup(web=remote(port)) as it:
        assert await it.tools() == {}
        assert it.servers.states["web"].status == "failed"


async def refusing(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")


async def test_a_server_that_wants_a_login_says_how_to_get_one() -> None:
    async with serving(refusing) as server, mcp_setup(web={"type": "remote", "url": f"{server.url}/mcp"}) as it:
        assert await it.tools() == {}
        state = it.servers.states["web"]
        assert state.status == "needs_auth"
        assert state.error is not None
        assert state.error.startswith("it requires a login: log in with 'opensesh mcp auth web'")


async def test_the_login_that_opencode_keeps_is_sent_and_headers_of_ones_own_before_it() -> None:
    async with serving(refusing) as server:
        url = f"{server.url}/mcp"
        logged_in("web", url, expiresAt=time.time() + 600)
        async with mcp_setup(
            web={"type": "remote", "url": url},
            own={"type": "remote", "url": url, "headers": {"authorization": "Bearer mine", "X-Team": "blue"}},
            never={"type": "remote", "url": url, "oauth": False},
        ) as it:
            await it.tools()
        heads = [exchange.head.lower() for exchange in server.exchanges]
        assert any("authorization: bearer let-me-in" in head for head in heads)
        assert any("authorization: bearer mine" in head and "x-team: blue" in head for head in heads)
        assert any("authorization" not in head for head in heads)


async def test_an_expired_login_is_called_one() -> None:
    async with serving(refusing) as server:
        url = f"{server.url}/mcp"
        logged_in("web", url, expiresAt=time.time() - 1)
        async with mcp_setup(web={"type": "remote", "url": url}) as it:
            await it.tools()
            assert str(it.servers.states["web"].error).startswith("the login has expired")


def test_a_login_for_another_address_is_not_sent_there() -> None:
    logged_in("web", "https://good.example/mcp")
    assert saved_login("web", "https://evil.example/mcp").tokens is None
    result = saved_login("web", "https://good.example/mcp").tokens
    assert result is not None
    assert result.access_token == "let-me-in"
    assert "let-me-in" not in repr(result)
    assert saved_login("other", "https://good.example/mcp").tokens is None


def test_a_login_that_does_not_say_for_which_address_it_is_goes_to_none() -> None:
    logged_in("web", None)
    assert saved_login("web", "https://evil.example/mcp").tokens is None


def test_a_damaged_login_file_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    logged_in("web", "https://good.example/mcp")
    path = Path(os.path.expanduser("~/.local/share/opencode/mcp-auth.json"))
    path.write_text(path.read_text()[:20])
    assert saved_login("web", "https://good.example/mcp").tokens is None
    assert "mcp-auth.json" in caplog.text


class Amnesiac:
    """A server of the older protocol that has forgotten its first visitor by the time he calls."""

    def __init__(self) -> None:
        self.visitors = 0
        self.calls = 0

    async def __call__(self, exchange: Exchange) -> None:
        if not exchange.body:
            await exchange.send(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
            return
        message = json.loads(exchange.body)
        match message["method"]:
            case "initialize":
                self.visitors += 1
                result: Any = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "amnesiac", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": "remember", "inputSchema": {"type": "object"}}]}
            case "tools/call" if "mcp-session-id: visitor-1" not in exchange.head.lower():
                self.calls += 1
                result = {"content": [{"type": "text", "text": "yes"}]}
            case method if method.startswith("notifications/"):
                await exchange.send(b"HTTP/1.1 202 Fine\r\nContent-Length: 0\r\n\r\n")
                return
            case _:
                await exchange.send(b"HTTP/1.1 404 Who?\r\nContent-Length: 0\r\n\r\n")
                return
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        head = f"Content-Type: application/json\r\nMcp-Session-Id: visitor-{self.visitors}\r\n"
        await exchange.send(f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode(), body)


async def test_a_server_that_forgot_who_asks_is_greeted_again_and_asked_once_more() -> None:
    amnesiac = Amnesiac()
    async with serving(amnesiac) as server, mcp_setup(web={"type": "remote", "url": f"{server.url}/mcp"}) as it:
        assert await it.call("web_remember") == "yes"
        assert (amnesiac.visitors, amnesiac.calls) == (2, 1)
