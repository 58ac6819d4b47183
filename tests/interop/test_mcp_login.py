from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from ..server.serving import make_project, serving
from ..tools.mcp.authorization import Authorization, guarded
from .opencode import DATABASE, JSON_FILES, OpenCode

pytestmark = pytest.mark.interop
Ask = Callable[..., Awaitable[tuple[int, Any]]]


def asking(client: httpx2.AsyncClient) -> Ask:
    async def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        response = await client.request(method, path, json=body)
        return response.status_code, response.json()

    return ask


def configuration(server: Authorization) -> dict[str, Any]:
    remote = {"type": "remote", "url": server.mcp_url, "timeout": 110_000}
    return {
        "web": remote,
        "off": remote | {"oauth": False},
        "program": {"type": "local", "command": ["true"], "enabled": False},
    }


async def states(ask: Ask) -> dict[str, Any]:
    """The states of the servers."""
    return (await ask("GET", "/mcp"))[1]


async def journey(ask: Ask, server: Authorization, logins: Path) -> dict[str, Any]:
    """Log in to a server and out again; returns the answers, without what differs from run to run."""
    seen: dict[str, Any] = {}
    seen["at first"] = {name: state["status"] for name, state in (await states(ask)).items()}
    for name in ("off", "program"):
        seen[f"start {name}"] = await ask("POST", f"/mcp/{name}/auth")
        seen[f"login {name}"] = await ask("POST", f"/mcp/{name}/auth/authenticate")
    for method, path, body in (
        ("POST", "/mcp/missing/auth", None),
        ("POST", "/mcp/missing/auth/callback", {"code": "x"}),
        ("POST", "/mcp/missing/auth/authenticate", None),
        ("DELETE", "/mcp/missing/auth", None),
        ("POST", "/mcp/web/auth/callback", {}),
    ):
        seen[f"{method} {path}"] = (await ask(method, path, body))[0]
    for code in ("wrong", "right"):
        status, answer = await ask("POST", "/mcp/web/auth")
        url = urlsplit(str(answer["authorizationUrl"]))
        query = dict(parse_qsl(url.query))
        seen[f"start {code}"] = (
            status,
            sorted(answer),
            url.path,
            sorted(query),
            query["redirect_uri"],
            query["resource"],
        )
        server.challenges["right"] = query
        status, answer = await ask("POST", "/mcp/web/auth/callback", {"code": code})
        seen[f"finish {code}"] = status, answer["status"]
    seen["after login"] = (await states(ask))["web"]
    entry = json.loads(logins.read_text())["web"]
    seen["stored"] = entry | {name: sorted(entry[name]) for name in ("tokens", "clientInfo")}
    seen["forms"] = [sorted(form) for form in server.token_requests[-1:]]
    seen["logout"] = await ask("DELETE", "/mcp/web/auth")
    seen["stored after logout"] = "web" in json.loads(logins.read_text())
    return seen


@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", [JSON_FILES, pytest.param(DATABASE, marks=pytest.mark.slow)])
async def test_logging_in_to_a_server_is_answered_as_by_opencode_and_each_uses_the_others_login(
    tmp_path: Path, isolated: Path, version: str
) -> None:
    project = make_project(tmp_path / "p")
    ours_file = isolated / ".local/share/opencode/mcp-auth.json"
    async with guarded() as server:
        config = {"mcp": configuration(server)}
        (isolated / ".config/opencode").mkdir(parents=True)
        (isolated / ".config/opencode/opencode.json").write_text(json.dumps(config))
        theirs = OpenCode(tmp_path / "real", "http://127.0.0.1:9/", version=version, config=config)
        theirs_file = theirs.data / "mcp-auth.json"
        await asyncio.to_thread(theirs.start)
        try:
            headers = {"x-opencode-directory": str(theirs.directory)}
            async with httpx2.AsyncClient(base_url=theirs.url, headers=headers, timeout=60) as client:
                expected = await journey(asking(client), server, theirs_file)
                await login(asking(client), server)
        finally:
            await asyncio.to_thread(theirs.stop)
        async with serving(project) as ours:
            answers = await journey(asking(ours.http), server, ours_file)
            shutil.copy(theirs_file, ours_file)
            await ours.post("/instance/dispose")
            assert (await states(asking(ours.http)))["web"] == {"status": "connected"}, "with the login of OpenCode"
            await login(asking(ours.http), server)
        shutil.copy(ours_file, theirs_file)
        await asyncio.to_thread(theirs.start)
        try:
            status = await asyncio.to_thread(theirs.request, "GET", "/mcp")
            assert status["web"] == {"status": "connected"}, "with our login"
        finally:
            await asyncio.to_thread(theirs.stop)
    if version == JSON_FILES:  # errors of this version, and what later ones added
        expected["at first"]["web"] = "needs_auth"
        expected |= {name: 404 for name in expected if "missing" in name}
        for code in ("wrong", "right"):
            status, _, *rest = expected[f"start {code}"]
            expected[f"start {code}"] = status, ["authorizationUrl", "oauthState"], *rest
        expected["stored"].pop("oauthState")
    assert answers == expected


async def login(ask: Ask, server: Authorization) -> None:
    _, answer = await ask("POST", "/mcp/web/auth")
    server.challenges["again"] = dict(parse_qsl(urlsplit(str(answer["authorizationUrl"])).query))
    assert await ask("POST", "/mcp/web/auth/callback", {"code": "again"}) == (200, {"status": "connected"})
