from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opensesh.cli import main as app

from ..tools.mcp.test_servers import ANTIQUE, configure, local


def test_without_servers_the_built_in_tools_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["tools"]) == 0
    shown = capsys.readouterr().out
    assert "bash" in shown
    assert "built in" in shown
    assert "invalid" not in shown
    assert "MCP" not in shown
    assert "{{" not in shown


def test_a_plugins_tool_is_listed_and_takes_the_place_of_another(
    isolated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = isolated / ".config" / "opencode" / "plugin"
    folder.mkdir(parents=True)
    text = 'import opensesh\n@opensesh.tool(name="{0}")\ndef f() -> str:\n    "Mine."\n    return ""\n'
    (folder / "mine.py").write_text(text.format("bash"))
    (folder / "other.py").write_text(text.format("tickets"))
    assert app.run(["tools", "--json"]) == 0
    tools = {tool["id"]: tool["origin"] for tool in json.loads(capsys.readouterr().out)["tools"]}
    assert tools["bash"] == {"kind": "plugin", "name": "mine"}
    assert tools["tickets"] == {"kind": "plugin", "name": "other"}
    assert list(tools)[-1] == "tickets"


def test_servers_are_listed_with_their_tools_and_their_state(capsys: pytest.CaptureFixture[str]) -> None:
    configure(box=local(*ANTIQUE), dead=local(*ANTIQUE, "dead"), off=local("x", enabled=False))
    assert app.run(["tools"]) == 1
    shown = capsys.readouterr().out
    assert "MCP server box: connected, 7 tools" in shown
    assert "box_hang" in shown
    assert "MCP server dead: failed: it ended before it was ready: no licence found" in shown
    assert "MCP server off: disabled" in shown


def test_the_json_form_has_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    configure(box=local(*ANTIQUE), dead=local("no-such-program"))
    assert app.run(["tools", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    tools = {tool["id"]: tool for tool in document["tools"]}
    assert f"in {os.getcwd()} unless" in tools["bash"]["description"]
    assert "- general: " in tools["task"]["description"]
    assert tools["read"]["origin"] == {"kind": "built-in"}
    assert tools["box_pid"]["origin"] == {"kind": "mcp", "name": "box"}
    assert tools["box_pid"]["parameters"]["type"] == "object"
    assert document["servers"]["box"]["status"] == "connected"
    assert document["servers"]["dead"] == {
        "status": "failed",
        "tools": [],
        "error": "program not found: no-such-program",
    }
    assert document["unusable"] == []
