from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import opensesh
from opensesh.config import load as load_config
from opensesh.plugins import (
    BusEvent,
    ChatInput,
    ChatParamsOutput,
    Host,
    Plugin,
    Plugins,
    Trust,
    candidates_needing_trust,
    hooks,
    load_plugins,
    plugin_tools,
)
from opensesh.project import resolve

HOOK = "def chat_params(call, params):\n    params.options['by'] = params.options.get('by', '') + {!r}\n"


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def project(isolated: Path) -> Path:
    path = isolated / "work"
    (path / ".git").mkdir()
    return path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def configure(path: Path, **settings: Any) -> None:
    write(path, json.dumps(settings))


def loaded(*arguments: Any, look: bool = True) -> Plugins:
    path = resolve(".")
    config = load_config(path.directory, path.sandbox)
    host = Host(directory=path.directory, worktree=path.sandbox, project_id=path.id)
    return load_plugins(config, host, arguments, discover=look)


def names(plugins: Plugins) -> list[str]:
    return [item.name for item in plugins.loaded]


def skipped(plugins: Plugins) -> list[tuple[str, str]]:
    return [(item.name, item.kind) for item in plugins.skipped]


def trust() -> None:
    path = resolve(".")
    config = load_config(path.directory, path.sandbox)
    Trust().grant((item.key, now) for item, now in candidates_needing_trust(config))


async def options_of(plugins: Plugins) -> dict[str, Any]:
    from opensesh.models.model import scripted_model

    call = ChatInput(session_id="ses_1", agent="build", model=scripted_model("it"), message={})
    return (await plugins.apply(hooks.chat_params, call, ChatParamsOutput())).output.options


# -- places ------------------------------------------------------------------------------------------------------------


async def test_plugins_are_loaded_from_entry_points_the_configuration_folders_and_the_program_in_this_order(
    isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    write(site / "installed_plugin.py", HOOK.format("entry point,"))
    write(site / "plain_module.py", HOOK.format("module,"))
    info = site / "installed_plugin-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: installed-plugin\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[opensesh.plugins]\ninstalled = installed_plugin\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    importlib.invalidate_caches()
    home = isolated / ".config" / "opencode"
    configure(home / "opencode.json", plugin=["./named.py", ["plain_module", {"a": 1}]])
    write(home / "named.py", HOOK.format("file,"))
    write(home / "plugin" / "b.py", HOOK.format("folder b,"))
    write(home / "plugins" / "a.py", HOOK.format("folder a,"))
    write(home / "plugins" / "_parts.py", "raise RuntimeError('this is no plugin')")

    def chat_params(call: ChatInput, params: ChatParamsOutput) -> None:
        params.options["by"] += "program"

    plugins = loaded(chat_params)
    assert names(plugins) == ["installed", "named", "plain_module", "b", "a", "chat_params"]
    assert plugins.skipped == ()
    assert (await options_of(plugins))["by"] == "entry point,file,module,folder b,folder a,program"
    sources = [item.source for item in plugins.loaded]
    assert [item.kind for item in sources] == ["entry point", "config", "config", "folder", "folder", "given"]
    assert sources[0].place == "installed-plugin (installed_plugin)"
    assert sources[1].named_by == f"{home / 'opencode.json'}:1"
    assert plugins.loaded[2].host.options == {"a": 1}


def test_opencodes_own_plugins_are_left_to_it_without_a_word(isolated: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = isolated / ".config" / "opencode"
    configure(home / "opencode.json", plugin=["opencode-wakatime", "@me/p@1.0.0", "./own.ts"])
    write(home / "plugin" / "other.js", "export const x = 1")
    with caplog.at_level(logging.DEBUG):
        plugins = loaded()
    assert plugins.loaded == ()
    assert [name for name, kind in skipped(plugins) if kind == "foreign"] == [
        "opencode-wakatime",
        "@me/p@1.0.0",
        "own.ts",
        "other.js",
    ]
    notes = [record for record in caplog.records if record.name == "opensesh.plugins"]
    assert {record.levelname for record in notes} == {"DEBUG"}
    assert "OpenCode runs it" in notes[0].getMessage()


def test_an_entry_that_cannot_be_a_file_costs_no_other(project: Path, isolated: Path) -> None:
    write(isolated / ".config/opencode/plugin/fine.py", "def dispose(host): pass")
    configure(project / "opencode.json", plugin=["./\0.py", "file://[half/it.py"])
    assert names(loaded()) == ["fine"]
    assert skipped(loaded()) == [("file://[half/it.py", "foreign"), ("\0", "broken")]
    assert candidates_needing_trust(load_config(project, project)) == []


def test_plugins_can_be_switched_off(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(isolated / ".config/opencode/plugin/a.py", "raise RuntimeError('this must not run')")
    assert skipped(loaded()) == [("a", "broken")]
    assert not loaded(look=False).have_hooks
    monkeypatch.setenv("OPENSESH_DISABLE_PLUGINS", "1")
    assert skipped(loaded()) == []
    assert names(loaded({"event": print})) == ["plugin"], "a program's own are part of the program"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise ValueError('oh no')", r"ValueError: oh no \(a.py:1\)"),
        ("import sys; sys.exit()", "SystemExit"),
        ("def f(:", "SyntaxError"),
        ("x = 1", "it has no hook and no tool"),
        ("def plugin(host): return {'chat.param': print}", "did you mean 'chat.params'"),
        ("def plugin(host): return {'chat.params': 3}", "not a function"),
        ("def plugin(host): return 3", "is not a plugin"),
        ("async def plugin(host): return {}", "cannot be a coroutine function"),
        ("async def config(host, output): pass", "cannot be async"),
        ("def plugin(a, b): return {}", "TypeError"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named_and_costs_no_other(
    text: str, why: str, isolated: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(isolated / ".config/opencode/plugin/a.py", text)
    write(isolated / ".config/opencode/plugin/b.py", HOOK.format("b"))
    reported: list[Any] = []
    path = resolve(".")
    host = Host(directory=path.directory, worktree=path.sandbox, project_id=path.id)
    plugins = load_plugins(load_config(path.directory, path.sandbox), host, publish=reported.append)
    assert names(plugins) == ["b"]
    assert skipped(plugins) == [("a", "broken")]
    assert (reported[0].plugin, reported[0].hook) == ("a", "load")
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(plugins.skipped[0].reason)
    assert "the plugin a could not be loaded" in caplog.text


def test_a_module_that_is_not_there_is_named(isolated: Path) -> None:
    configure(isolated / ".config/opencode/opencode.json", plugin=["no_such_module"])
    plugins = loaded()
    assert skipped(plugins) == [("no_such_module", "broken")]
    assert "No module named" in plugins.skipped[0].reason


# -- trust -------------------------------------------------------------------------------------------------------------


def test_a_projects_plugins_run_only_once_they_are_trusted_and_only_as_they_were(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran = project / "ran"
    evil = f"open({str(ran)!r}, 'w').close()\n" + HOOK.format("evil")
    inner = write(project / ".opencode" / "plugin" / "inner.py", evil)
    write(project / "named.py", evil)
    configure(project / "opencode.json", plugin=["./named.py", "os"])
    plugins = loaded()
    assert skipped(plugins) == [("named", "untrusted"), ("os", "untrusted"), ("inner", "untrusted")]
    assert "is not trusted" in plugins.skipped[0].reason
    assert "named, os, inner" in caplog.text
    assert not ran.exists()

    configure(project / "opencode.json", plugin=["./named.py"])
    trust()
    assert names(loaded()) == ["named", "inner"]
    assert ran.exists()

    ran.unlink()
    inner.write_text(evil + "# changed")
    plugins = loaded()
    assert names(plugins) == ["named"]
    assert "it has changed" in plugins.skipped[0].reason

    configure(project / "opencode.json", plugin=[["./named.py", {"target": "elsewhere"}]])
    assert names(loaded()) == [], "other options make another plugin of it"

    trust()
    assert names(loaded()) == ["named", "inner"]
    path = resolve(".")
    config = load_config(path.directory, path.sandbox)
    assert len(Trust().revoke(item.key for item, _ in candidates_needing_trust(config))) == 2
    assert names(loaded()) == []


def test_the_user_may_trust_every_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / ".opencode" / "plugins" / "a.py", HOOK.format("a"))
    assert names(loaded()) == []
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    assert names(loaded()) == ["a"]


def test_trust_is_of_a_place(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / ".opencode" / "plugin" / "a.py", HOOK.format("a"))
    trust()
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    write(other / ".opencode" / "plugin" / "a.py", HOOK.format("a"))
    monkeypatch.chdir(other)
    assert skipped(loaded()) == [("a", "untrusted")]


def test_what_lies_above_a_project_that_is_none_is_not_trusted_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / ".opencode" / "plugin" / "a.py", HOOK.format("a"))
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert skipped(loaded()) == [("a", "untrusted")]


def test_the_users_own_folders_need_no_trust(
    project: Path, isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(isolated / ".opencode" / "plugin" / "home.py", HOOK.format("home"))
    write(tmp_path / "named" / "plugin" / "chosen.py", HOOK.format("chosen"))
    configure(tmp_path / "extra.json", plugin=["./extra.py"])
    write(tmp_path / "extra.py", HOOK.format("extra"))
    write(tmp_path / "content.py", HOOK.format("content"))
    monkeypatch.setenv("OPENCODE_CONFIG", str(tmp_path / "extra.json"))
    monkeypatch.setenv("OPENCODE_CONFIG_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"plugin": [str(tmp_path / "content.py")]}))
    assert names(loaded()) == ["extra", "content", "home", "chosen"]


def test_a_project_cannot_push_out_what_the_user_has_set_up(project: Path, isolated: Path) -> None:
    home = isolated / ".config" / "opencode"
    configure(home / "opencode.json", plugin=["./guard.py", "json.tool", ["./again.py", {"mine": True}]])
    write(home / "guard.py", HOOK.format("mine"))
    write(home / "again.py", HOOK.format("mine"))
    write(home / "plugin" / "watch.py", HOOK.format("mine"))
    again = str(home / "again.py")
    configure(project / "opencode.json", plugin=["./guard.py", ["json.tool", {"x": 1}], [again, {"mine": False}]])
    write(project / "guard.py", HOOK.format("theirs"))
    write(project / ".opencode" / "plugin" / "watch.py", HOOK.format("theirs"))
    plugins = loaded()
    assert names(plugins) == ["guard", "again", "watch"]
    assert all(str(home) in item.source.place for item in plugins.loaded)
    assert plugins.loaded[1].host.options == {"mine": True}
    assert skipped(plugins) == [("json.tool", "broken"), ("guard", "untrusted"), ("watch", "untrusted")]


def test_nothing_in_the_project_configures_it_if_the_user_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project / ".opencode" / "plugin" / "a.py", HOOK.format("a"))
    trust()
    monkeypatch.setenv("OPENCODE_DISABLE_PROJECT_CONFIG", "1")
    assert not loaded().have_hooks


def test_a_list_of_the_trusted_that_cannot_be_read_trusts_nothing(project: Path) -> None:
    write(project / ".opencode" / "plugin" / "a.py", HOOK.format("a"))
    trust()
    assert names(loaded()) == ["a"]
    Path(Trust().path).write_text("{")
    assert names(loaded()) == []


def test_a_plugin_file_leaves_nothing_behind(isolated: Path) -> None:
    path = write(isolated / ".config/opencode/plugin/a.py", HOOK.format("a"))
    assert loaded().have_hooks
    assert [item.name for item in path.parent.iterdir()] == ["a.py"]


# -- shapes ------------------------------------------------------------------------------------------------------------


def test_a_module_may_hold_hooks_by_name_and_by_decorator_classes_tools_and_a_function_that_makes_one(
    isolated: Path,
) -> None:
    text = '''
from __future__ import annotations
from dataclasses import dataclass
import opensesh
from opensesh import tool
from opensesh.plugins import Plugin, hooks
from opensesh.plugins.hooks import chat_headers

@dataclass
class Data:
    x: int = 1

def event(heard): pass

@hooks.chat_params
@hooks.experimental_text_complete
def both(given, output): pass

class Mine(Plugin):
    async def shell_env(self, call, output): pass

@tool
def tickets(project: str) -> str:
    """List tickets."""
    return project

def plugin(host):
    assert host.directory
    return {"chat_message": lambda given, output: None}

def helper(): raise RuntimeError
'''
    write(isolated / ".config/opencode/plugin/all.py", text)
    (plugin,) = loaded().loaded
    assert [hook for hook, _ in plugin.functions] == [
        "event",
        "experimental.text.complete",
        "chat.params",
        "shell.env",
        "chat.message",
    ]
    assert [tool.id for tool in plugin.tools] == ["tickets"]


def test_a_program_may_hand_in_any_shape(tmp_path: Path) -> None:
    class WithHost(Plugin):
        def event(self, received: BusEvent) -> None: ...

    class OfItsOwn:
        def event(self, received: BusEvent) -> None: ...

    def make(host: Host) -> Plugin:
        return WithHost(host)

    def event(received: BusEvent) -> None: ...

    module = ModuleType("handmade")
    event.__module__ = "handmade"
    vars(module)["event"] = event
    path = write(tmp_path / "file.py", "def event(heard): pass")

    @opensesh.tool
    def tickets() -> str:
        """List tickets."""
        return ""

    host = Host(directory="/", worktree="/", project_id="p")
    things = [WithHost, WithHost(host), OfItsOwn, OfItsOwn(), make, event, module, {"event": event}, str(path), tickets]
    plugins = loaded(*things)
    assert plugins.skipped == ()
    assert names(plugins) == [
        "WithHost",
        "WithHost",
        "OfItsOwn",
        "OfItsOwn",
        "make",
        "event",
        "handmade",
        "plugin",
        "file",
        "tickets",
    ]
    assert [hook for item in plugins.loaded for hook, _ in item.functions] == ["event"] * 9
    assert [tool.id for tool in plugin_tools(plugins)] == ["tickets"]
