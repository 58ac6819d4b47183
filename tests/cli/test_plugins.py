from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opensesh.cli.main import run
from opensesh.config import load, plan_lifting_rules

HOOK = "print('loaded')\ndef chat_params(call, params): pass\n"
TOOL = 'import opensesh\n@opensesh.tool\ndef tickets() -> str:\n    "List tickets."\n    return ""\n'


@pytest.fixture
def project(isolated: Path) -> Path:
    path = isolated / "work"
    (path / ".git").mkdir()
    (path / ".opencode" / "plugin").mkdir(parents=True)
    (path / ".opencode" / "plugin" / "theirs.py").write_text(HOOK)
    own = isolated / ".config" / "opencode" / "plugin"
    own.mkdir(parents=True)
    (own / "mine.py").write_text(TOOL)
    (own / "broken.py").write_text("raise ValueError('oh no')")
    (own / "other.ts").write_text("")
    return path


def test_plugins_lists_what_is_at_work_and_what_is_not_and_why(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plugins"]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    assert out.splitlines() == [
        "mine  folder: ~/.config/opencode/plugin/mine.py",
        "  tools: tickets",
        "",
        "Not used:",
        "  other.ts  folder: ~/.config/opencode/plugin/other.ts",
        "    it is not a Python file; OpenCode runs it, opensesh does not",
        "  broken  folder: ~/.config/opencode/plugin/broken.py",
        "    ValueError: oh no (broken.py:1)",
        "  theirs  folder: ~/work/.opencode/plugin/theirs.py",
        "    it came with the project and is not trusted",
        "",
        "Look at the untrusted ones, then run 'opensesh plugins --trust' to use them.",
    ]


def test_trusting_lets_a_projects_plugins_run_until_that_is_taken_back(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plugins", "--trust"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("trusted: ~/work/.opencode/plugin/theirs.py\n")
    assert "  hooks: chat.params" in out
    assert error == "loaded\n", "what a plugin prints is not part of the answer"
    assert run(["plugins", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert [(event["name"], event["hooks"], event["tools"]) for event in reported["plugins"]] == [
        ("mine", [], ["tickets"]),
        ("theirs", ["chat.params"], []),
    ]
    assert reported["plugins"][1]["source"] == {
        "kind": "folder",
        "place": str(project / ".opencode/plugin/theirs.py"),
        "namedBy": None,
    }
    assert run(["plugins", "--untrust"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no longer trusted: ~/work/.opencode/plugin/theirs.py\n")
    assert run(["plugins", "--untrust"]) == 0
    assert capsys.readouterr().out.startswith("Nothing of this project was trusted.")
    assert run(["plugins", "--trust", "--untrust"]) == 2


def test_plugins_says_that_they_are_switched_off(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_PLUGINS", "true")
    assert run(["plugins"]) == 0
    assert capsys.readouterr().out == "Plugins are disabled by OPENCODE_DISABLE_PLUGINS.\n"
    assert run(["plugins", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["off"], reported["plugins"], reported["skipped"]) == ("OPENCODE_DISABLE_PLUGINS", [], [])


def test_run_names_plugins_that_are_not_used_and_can_leave_all_out(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("model.script").write_text("SAY Hello.")
    monkeypatch.setattr("sys.stdin", None)
    words = ["run", "-m", "scripted/model.script", "--title", "x", "--store", "store", "Go."]
    assert run([*words, "--no-plugins"]) == 0
    out, error = capsys.readouterr()
    assert out.strip() == "Hello."
    assert "plugin" not in error + caplog.text
    assert run(words) == 0
    assert "the plugin broken could not be loaded: ValueError: oh no" in caplog.text
    assert "untrusted plugins of this project are not loaded: theirs" in caplog.text


def test_what_a_project_allows_in_plan_mode_is_listed_and_trusted_until_it_changes(
    isolated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def allow(*commands: str) -> None:
        permission = {"bash": dict.fromkeys(commands, "allow"), "edit": "deny"}
        Path("opencode.json").write_text(json.dumps({"agent": {"plan": {"permission": permission}}}))

    allow("npm test", "make *")
    assert run(["plugins"]) == 0
    shown = "plan  agent: plan mode without the rules for bash npm test, bash make *, named by "
    assert shown in capsys.readouterr().out
    assert run(["plugins", "--trust"]) == 0
    assert "trusted: agent plan" in capsys.readouterr().out
    config = load(os.getcwd(), os.getcwd())
    assert [rule.pattern for rule in plan_lifting_rules(config)] == ["npm test", "make *", "*"]
    allow("npm test", "make *", "rm *")
    assert [rule.action for rule in plan_lifting_rules(load(os.getcwd(), os.getcwd()))] == ["deny"]
    assert run(["plugins"]) == 0
    assert "it has changed since it was trusted" in capsys.readouterr().out


def test_a_projects_servers_are_listed_and_trusted_like_its_plugins(
    isolated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("opencode.json").write_text(json.dumps({"mcp": {"box": {"command": ["no-such-program", "\x1b[2J"]}}}))
    assert run(["plugins"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "No plugins are loaded here.",
        "Not used:",
        "  box  MCP server: no-such-program '␛[2J', named by ~/work/opencode.json:1",
        "    it came with the project and is not trusted",
        "",
        "Look at the untrusted ones, then run 'opensesh plugins --trust' to use them.",
    ]
    assert run(["plugins", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == [
        {
            "name": "box",
            "source": {
                "kind": "MCP server",
                "place": "no-such-program '\x1b[2J'",
                "namedBy": f"{isolated}/work/opencode.json:1",
            },
            "kind": "untrusted",
            "reason": "it came with the project and is not trusted",
        }
    ]
    assert run(["tools"]) == 1
    assert "MCP server box: untrusted: it came with the project" in capsys.readouterr().out
    assert run(["config", "mcp.box.command"]) == 0
    reported = "the MCP server box is not used: it came with the project and is not trusted"
    assert f"opencode.json:1:18: {reported} (see 'opensesh plugins')" in capsys.readouterr().err
    assert run(["config", "--json"]) == 0
    assert reported in json.loads(capsys.readouterr().out)["problems"][0]["message"]
    assert run(["config", "username"]) == 0
    assert capsys.readouterr().err == ""

    assert run(["plugins", "--trust"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "trusted: MCP server box: no-such-program '␛[2J'",
        "No plugins are loaded here.",
    ]
    assert run(["tools"]) == 1
    assert "MCP server box: failed: program not found: no-such-program" in capsys.readouterr().out
    assert run(["config", "mcp"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["plugins", "--untrust"]) == 0
    assert capsys.readouterr().out.startswith("no longer trusted: MCP server box: no-such-program")
    Path("opencode.json").unlink()
    assert run(["plugins", "--trust"]) == 0
    assert capsys.readouterr().out.startswith("This project has nothing that needs trust.")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_run_names_a_server_that_is_not_trusted_in_one_line(
    form: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("opencode.json").write_text(json.dumps({"mcp": {"box": {"command": ["touch", "started"]}}}))
    Path("model.script").write_text("SAY Hello.")
    monkeypatch.setattr("sys.stdin", None)
    assert run(["run", "-m", "scripted/model.script", "--title", "x", "--store", "store", *form, "Go."]) == 0
    out, error = capsys.readouterr()
    assert [line for line in error.splitlines() if "box" in line] == [
        "! the MCP server box cannot be used: it came with the project and is not trusted ('opensesh plugins' "
        "shows it, 'opensesh plugins --trust' trusts it)"
    ]
    assert not Path("started").exists()
    assert json.loads(out) if form else out.strip() == "Hello."
