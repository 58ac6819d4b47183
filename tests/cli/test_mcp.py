from __future__ import annotations

import asyncio
import json
import os

import pytest

from opensesh.cli import main as app

from ..tools.mcp.authorization import guarded
from ..tools.mcp.test_oauth import Browser, logins_file, remote, saved
from ..tools.mcp.test_servers import configure, local


async def test_a_user_logs_in_to_a_server_lists_it_and_logs_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser()

    def open_browser(url: str) -> bool:
        browser(url)
        return True

    monkeypatch.setattr("opensesh.tools.mcp.logins.open_browser", open_browser)
    async with guarded() as server:
        configure(web=remote(server), off=local("program", "--token=x", enabled=False))

        async def run(*words: str) -> tuple[int, str]:
            code = await asyncio.to_thread(app.run, ["mcp", *words])
            return code, capsys.readouterr().out

        code, shown = await run("list", "--json")
        web, off = json.loads(shown)["servers"]
        assert (code, web["status"], web["address"]) == (1, "needs_auth", server.mcp_url)
        assert off == {"name": "off", "status": "disabled", "error": None, "address": "program"}
        assert await run("auth", "web") == (0, "MCP server web: connected\n")
        assert "web" in saved()
        code, shown = await run("list")
        assert code == 0
        assert "connected" in shown
        assert "access-1" not in shown
        assert await run("logout", "web") == (0, "Logged out of web.\n")
        assert await run("logout", "web", "--json") == (0, '{\n  "name": "web",\n  "removed": false\n}\n')
        assert json.loads(logins_file().read_text()) == {}


def test_a_server_that_is_unknown_or_has_no_login_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    configure(box=local(os.devnull, enabled=False))
    assert app.run(["mcp", "auth", "other"]) == 3
    assert "the configuration has no MCP server 'other'" in capsys.readouterr().err
    assert app.run(["mcp", "auth", "box"]) == 1
    assert "MCP server box does not support OAuth" in capsys.readouterr().err
    assert app.run(["mcp", "list", "--dir", "."]) == 0


def test_a_list_without_servers_explains_that(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["mcp", "list"]) == 0
    assert capsys.readouterr().out == "The configuration has no MCP servers.\n"
