from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensesh.cli.main import COMMANDS, command_parser
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

RUN = ("run", "--quiet", "-m", "scripted/prompt")
INVOCATIONS: dict[str, tuple[str, ...]] = {
    "agents": ("agents",),
    "auth list": ("auth", "list"),
    "auth login": ("auth", "login", "anthropic"),
    "auth logout": ("auth", "logout", "missing"),
    "completion": ("completion", "bash"),
    "config": ("config",),
    "demo": ("demo", "somewhere"),
    "doctor": ("doctor",),
    "export": ("export", "S", "-o", "out.json"),
    "import": ("import", "out.json", "--dry-run"),
    "list": ("list",),
    "mcp auth": ("mcp", "auth", "missing"),
    "mcp list": ("mcp", "list"),
    "mcp logout": ("mcp", "logout", "missing"),
    "models": ("models",),
    "plugins": ("plugins",),
    "projects": ("projects",),
    "run": (*RUN, "SAY Hello."),
    "search": ("search", "Answer"),
    "session archive": ("session", "archive", "S", "--yes"),
    "session compact": ("session", "compact", "S"),
    "session diff": ("session", "diff", "S"),
    "session fork": ("session", "fork", "S"),
    "session move": ("session", "move", "S", ".", "--yes"),
    "session remove": ("session", "remove", "S", "--yes"),
    "session rename": ("session", "rename", "S", "New"),
    "session restore": ("session", "restore", "last"),
    "session revert": ("session", "revert", "S", "--yes"),
    "session share": ("session", "share", "S", "--yes"),
    "session trash": ("session", "trash"),
    "session unrevert": ("session", "unrevert", "S", "--yes"),
    "session unshare": ("session", "unshare", "S"),
    "show": ("show", "S"),
    "stats": ("stats",),
    "tools": ("tools",),
}
SERVERS = {"serve", "serve-share", "web"}
"""Run until they are stopped; their tests are elsewhere."""


def leaves() -> set[str]:
    names: set[str] = set()
    for command in COMMANDS:
        actions = command_parser(command)[1].actions
        names |= {f"{command} {action}" for action in actions} or {command}
    return names


def test_every_command_is_tried() -> None:
    assert leaves() - SERVERS == INVOCATIONS.keys()


@pytest.mark.parametrize("name", INVOCATIONS)
@pytest.mark.parametrize("fails", [False, True], ids=["as it is", "with an unknown option"])
def test_promise_18_json_is_one_document_of_every_command(
    name: str, fails: bool, sample: Sample, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    session = sample.talk()["id"]
    terminal.run("export", session, "-o", "out.json")
    words = [session if word == "S" else word for word in INVOCATIONS[name]]
    out = terminal.run(*words, "--json", *(("--no-such-option",) if fails else ()))
    document = json.loads(out)
    assert (terminal.code != 0) == ("error" in document if isinstance(document, dict) else False)
    if fails:
        assert (terminal.code, terminal.error) == (2, "")
