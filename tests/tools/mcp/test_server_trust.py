from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opensesh.config import Config, load
from opensesh.config.config import replace_document
from opensesh.config.trust import Trust
from opensesh.errors import NotFoundError
from opensesh.tools.mcp.server_trust import servers_needing_trust, untrusted_reason

from .test_servers import ANTIQUE, configure, local, mcp_setup

UNKNOWN = "it came with the project and is not trusted"
CHANGED = "it has changed since it was trusted"


def project(name: str = "opencode.json", **mcp: Any) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcp": mcp}))


def loaded(place: str = ".") -> Config:
    return load(os.path.abspath(place), os.getcwd())


def trust(place: str = ".") -> None:
    Trust().grant((item.key, item.digest) for item in servers_needing_trust(loaded(place)))


def named(place: str = ".") -> list[str]:
    return [item.name for item in servers_needing_trust(loaded(place))]


def doubted(name: str = "box", place: str = ".") -> str:
    return untrusted_reason(loaded(place), name)


async def test_a_projects_server_is_not_started_before_it_is_trusted(caplog: pytest.LogCaptureFixture) -> None:
    project(box=local("sh", "-c", 'touch mark; exec "$@"', "sh", *ANTIQUE))
    async with mcp_setup(own=local(*ANTIQUE)) as it:
        for _ in range(2):
            assert all(name.startswith("own_") for name in await it.tools())
        assert not Path("mark").exists()
        assert (it.servers.states["own"].status, it.servers.states["box"].status) == ("connected", "untrusted")
        reported = "'opensesh plugins' shows it, 'opensesh plugins --trust' trusts it"
        assert it.servers.states["box"].error == f"{UNKNOWN} ({reported})"
        assert [record.message for record in caplog.records] == [
            f"the MCP server box cannot be used: {UNKNOWN} ({reported})"
        ], "said once"
        assert [event.properties["server"] for event in it.published] == ["box"]
        with pytest.raises(NotFoundError, match="no MCP server has a prompt 'box:greet': it came with the project"):
            await it.servers.prompt("box:greet")
        trust()
        assert "box_pid" in await it.tools(), "what was trusted meanwhile is there with the next prompt"
        assert Path("mark").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["program", "--other"]},
        {"environment": {"WORD": "one", "LD_PRELOAD": "./it.so"}},
        {"environment": {"WORD": "two"}},
        {"cwd": "below"},
        {"type": "remote", "url": "https://a.example"},
    ],
)
def test_what_is_run_is_trusted_and_nothing_else(change: dict[str, Any]) -> None:
    server = local("program", "--flag", environment={"WORD": "one"}, timeout=5)
    project(box=server)
    trust()
    assert not doubted()
    project(box=server | {"timeout": 9})
    assert not doubted(), "how long it may take is no reason to doubt"
    project(box=server | change)
    assert doubted() == CHANGED
    project(box=server)
    assert not doubted()


@pytest.mark.parametrize("change", [{"url": "https://b.example"}, {"headers": {"A": "2"}}])
def test_where_a_remote_server_is_and_what_it_gets_is_trusted(change: dict[str, Any]) -> None:
    server = {"type": "remote", "url": "https://a.example", "headers": {"A": "1"}}
    project(box=server)
    assert doubted() == UNKNOWN
    trust()
    assert not doubted()
    project(box=server | change)
    assert doubted() == CHANGED


@pytest.mark.parametrize(
    ("command", "name"), [(["python", "it.py"], "it.py"), (["./it"], "it"), (["node", "--import=./it.mjs"], "it.mjs")]
)
def test_a_script_of_the_project_that_changed_is_another_program(command: list[str], name: str) -> None:
    Path(name).write_text("print(1)")
    project(box=local(*command))
    trust()
    assert not doubted()
    Path(name).write_text("print(2)")
    assert doubted() == CHANGED


def test_data_files_in_the_arguments_may_change() -> None:
    Path("it.db").write_text("1")
    project(box=local("program", "it.db"))
    trust()
    Path("it.db").write_text("2")
    assert not doubted()


def test_a_variable_may_change_and_a_placeholder_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(header: str) -> None:
        project(box={"type": "remote", "url": "https://a.example", "headers": {"Authorization": header}})

    monkeypatch.setenv("TOKEN", "one")
    monkeypatch.setenv("OTHER", "one")
    said("Bearer {env:TOKEN}")
    trust()
    monkeypatch.setenv("TOKEN", "two")
    assert not doubted()
    said("Bearer {env:OTHER}")
    assert doubted() == CHANGED
    said("Bearer two")
    assert doubted() == CHANGED
    said("Bearer {file:./words.txt}")
    Path("words.txt").write_text("one")
    trust()
    assert not doubted()
    Path("words.txt").write_text("two")
    assert doubted() == CHANGED, "a file may be the project's own"


def test_a_server_in_a_file_that_is_filled_in_whole_is_looked_at_as_it_is() -> None:
    Path("opencode.json").write_text('{"mcp": {file:./servers.json}}')
    Path("servers.json").write_text(json.dumps({"box": local("program")}))
    assert doubted() == UNKNOWN
    assert [item.what for item in servers_needing_trust(loaded())] == ["program"]
    trust()
    Path("servers.json").write_text(json.dumps({"box": local("program", "--evil")}))
    assert doubted() == CHANGED


def test_what_is_shown_of_a_server_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    Path("key").write_text("sesame")
    project(
        far={"type": "remote", "url": "https://a.example/{env:TOKEN}", "headers": {"X": "{env:TOKEN}", "Y": "1"}},
        near=local("a program", "{env:TOKEN}", cwd="below", environment={"TOKEN": "{env:TOKEN}"}),
        both=local("program", "{file:key}{env:TOKEN}"),
        plain=local("program"),
    )
    assert [item.what for item in servers_needing_trust(loaded())] == [
        "https://a.example/{env:TOKEN}, with the headers X, Y",
        "'a program' '{env:TOKEN}', in below, with the variable TOKEN",
        "program '{file:key}{env:TOKEN}'",
        "program",
    ]


@pytest.mark.parametrize(
    "say",
    [
        {"environment": {"NODE_OPTIONS": "--require ./it.js"}},
        {"command": ["other"]},
        {"cwd": "."},
        {"enabled": True},
        {"type": "local"},
        {"url": "https://a.example", "type": "remote"},
        {"headers": {"a": "b"}},
    ],
)
def test_a_server_of_the_users_that_the_project_has_a_say_in_needs_trust(say: dict[str, Any]) -> None:
    configure(box=local("program"))
    project(box=say)
    assert doubted() == UNKNOWN


@pytest.mark.parametrize("say", [{"timeout": 9}, {"enabled": False}, {"enabled": False, "command": ["other"]}, {}])
def test_a_server_of_the_users_that_the_project_has_no_say_in_needs_none(say: dict[str, Any]) -> None:
    configure(box=local("program"))
    project(box=say)
    assert not doubted()
    assert named() == []


def of_the_user(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(box=local("program"))


def of_the_home_folder(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(str(isolated / ".opencode" / "opencode.json"), box=local("program"))


def of_a_named_file(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project("mine.json", box=local("program"))
    monkeypatch.setenv("OPENCODE_CONFIG", "mine.json")


def of_a_named_folder(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project("mine/opencode.json", box=local("program"))
    monkeypatch.setenv("OPENSESH_CONFIG_DIR", "mine")


def of_a_variable(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"mcp": {"box": local("program")}}))


def of_the_administrator(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(str(isolated / "etc" / "opencode.json"), box=local("program"))
    monkeypatch.setenv("OPENCODE_TEST_MANAGED_CONFIG_DIR", str(isolated / "etc"))


@pytest.mark.parametrize(
    "make",
    [of_the_user, of_the_home_folder, of_a_named_file, of_a_named_folder, of_a_variable, of_the_administrator],
)
def test_servers_of_the_users_own_need_no_trust(
    make: Callable[[Path, pytest.MonkeyPatch], None], isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(isolated, monkeypatch)
    assert "box" in loaded().settings.mcp
    assert named() == []


def test_servers_that_a_plugin_or_a_program_sets_up_need_no_trust() -> None:
    config = replace_document(loaded(), {"mcp": {"box": local("program")}}, "the plugin mine")
    assert servers_needing_trust(config) == []
    project(box=local("program"))
    trust()
    changed = replace_document(loaded(), {"mcp": {"box": local("program", environment={"A": "1"})}}, "the plugin mine")
    assert not untrusted_reason(changed, "box"), "what a plugin adds is not the project's"


@pytest.mark.parametrize("name", ["opencode.jsonc", ".opencode/opencode.json", "../opencode.json"])
def test_every_file_of_the_project_is_the_projects(name: str, isolated: Path) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text('// words\n{"mcp": {"box": {"command": ["program"],}, }, }')
    config = load(os.getcwd(), isolated)
    assert [item.name for item in servers_needing_trust(config)] == ["box"]
    assert servers_needing_trust(config)[0].named_by.line == 2


def test_trust_holds_in_the_folders_below_for_what_is_the_same_program_there() -> None:
    Path("below").mkdir()
    project(box=local("npx", "-y", "it"), script=local("python", "it.py"))
    Path("it.py").write_text("print(1)")
    trust()
    assert not doubted(place="below")
    Path("below/it.py").write_text("print('evil')")
    assert doubted("script", "below") == UNKNOWN
    assert not doubted("script")


def test_what_one_project_is_trusted_with_another_is_not(isolated: Path) -> None:
    project(box=local("program"))
    trust()
    other = isolated / "other"
    project(str(other / "opencode.json"), box=local("program"))
    assert untrusted_reason(load(other, other), "box") == UNKNOWN
    link = isolated / "link"
    link.symlink_to(Path.cwd())
    assert untrusted_reason(load(link, link), "box") == UNKNOWN, "trust is in a path"


def test_an_invalid_program_name_does_not_bypass_the_check() -> None:
    project(box=local("./\0"))
    assert doubted() == UNKNOWN
    trust()
    assert not doubted()


def test_a_container_may_trust_all(monkeypatch: pytest.MonkeyPatch) -> None:
    project(box=local("program"))
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    assert not doubted()
