from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli.main import run
from opensesh.config import Config, load
from opensesh.config.config import replace_document
from opensesh.config.trust import Trust
from opensesh.models.provider_trust import provider_trust_items, untrusted_reason

from .loopback import Exchange, serving

UNKNOWN = "it came with the project and is not trusted"
CHANGED = "it has changed since it was trusted"
ELSEWHERE = "https://models.example/v1"


def project(name: str = "opencode.json", **provider: Any) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"provider": provider}))


def at(url: str, **more: Any) -> dict[str, Any]:
    return {"options": {"baseURL": url, **more}}


def loaded() -> Config:
    return load(os.getcwd(), os.getcwd())


def trust() -> None:
    Trust().grant((item.key, item.digest) for item in provider_trust_items(loaded()))


def doubted(name: str = "corp") -> str:
    return untrusted_reason(loaded(), name)


@pytest.mark.parametrize(
    "provider",
    [
        {"api": ELSEWHERE},
        at(ELSEWHERE),
        {"options": {"endpoint": ELSEWHERE}},
        {"models": {"m": {"provider": {"api": ELSEWHERE}}}},
    ],
)
def test_an_address_of_the_projects_is_trusted_before_anything_is_sent_there(provider: dict[str, Any]) -> None:
    project(corp=provider, mute={"models": {"m": {}}})
    text = f"{os.getcwd()}/opencode.json:1 would send the conversation to {ELSEWHERE}: {UNKNOWN}"
    assert doubted() == f"{text} ('opensesh plugins --trust' allows it)"
    assert not doubted("mute"), "it names no address"
    assert not doubted("anthropic"), "it was never configured"
    trust()
    assert not doubted()


@pytest.mark.parametrize(
    "url",
    ["http://localhost:1234/v1", "http://127.0.0.1", "https://127.8.8.8:1/", "http://[::1]:8/v1", "HTTP://LOCALHOST/"],
)
def test_a_server_on_this_machine_needs_trust_like_any_other(url: str) -> None:
    project(corp=at(url))
    assert doubted()
    trust()
    assert not doubted()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:80@models.example/",
        "http://localhost@models.example/",
        "http://localhost.models.example/",
        "http://127.0.0.1.models.example/",
        "http://127.0.0.1\\@models.example/",
        "http://models.example/localhost",
        "//localhost/",
        "http://localhost:${PORT}/",
    ],
)
def test_what_only_looks_like_this_machine_is_elsewhere(url: str) -> None:
    project(corp=at(url))
    assert UNKNOWN in doubted()


@pytest.mark.parametrize(
    "change",
    [
        at("https://other.example/v1"),
        {"options": {"headers": {"X": "{env:HOME}"}}},
        {"options": {"apiKey": "{env:OTHER_KEY}"}},
        {"env": ["OTHER_KEY"]},
        {"models": {"m": {"headers": {"X": "1"}}}},
        {"models": {"m": {"provider": {"api": "https://other.example/v1"}}}},
    ],
)
def test_trust_is_in_the_address_and_in_what_goes_along(change: dict[str, Any]) -> None:
    project(corp=at(ELSEWHERE))
    trust()
    project(corp=at(ELSEWHERE) | {"name": "Corporation", "models": {"m": {"limit": {"context": 9, "output": 9}}}})
    assert not doubted(), "names and limits may change"
    changed = at(ELSEWHERE) | change
    changed["options"] = {"baseURL": ELSEWHERE} | change.get("options", {})
    project(corp=changed)
    assert CHANGED in doubted()


def test_the_users_own_addresses_need_no_trust(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(str(isolated / ".config" / "opencode" / "opencode.json"), corp=at(ELSEWHERE))
    project(corp={"models": {"m": {}}})
    assert not doubted()
    project(corp=at("https://other.example/v1"))
    assert "https://other.example/v1" in doubted(), "the project has the last word on it, and needs trust for that"
    Path("opencode.json").unlink()
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"provider": {"corp": at("https://mine.example")}}))
    assert not doubted()


def test_an_address_that_a_program_sets_needs_no_trust() -> None:
    config = loaded()
    assert not untrusted_reason(replace_document(config, {"provider": {"corp": at(ELSEWHERE)}}, "the plugin x"), "corp")


def test_the_shown_url_has_no_secret_and_trust_covers_file_contents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    Path("host").write_text("models.example")
    project(corp=at("https://{file:host}/{env:TOKEN}"))
    assert "conversation to https://{file:host}/{env:TOKEN}: " in doubted()
    trust()
    assert not doubted()
    Path("host").write_text("other.example")
    assert CHANGED in doubted()


def test_no_trust_is_needed_where_all_plugins_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    project(corp=at(ELSEWHERE))
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    assert not doubted()


async def test_no_key_leaves_for_an_untrusted_address_and_does_for_a_trusted_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")

    def command(*words: str) -> tuple[int, str]:
        code = run([*words])
        out, error = capsys.readouterr()
        return code, out + error

    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-mine")
    asking = ("run", "-m", "anthropic/claude-sonnet-4-5", "--title", "x", "--store", "store", "Go.")
    async with serving(refuse) as server:
        odd = server.url.replace("127.0.0.1", "127.1")  # this machine, by a name that does not say so
        project(anthropic=at(odd))
        code, reported = await asyncio.to_thread(command, *asking)
        assert code != 0
        assert f"opencode.json:1 would send the conversation to {odd}: {UNKNOWN}" in reported
        assert "sk-mine" not in reported
        assert server.connections == 0
        assert not [*Path("store").rglob("ses_*")], "nothing was begun"
        _, reported = await asyncio.to_thread(command, "models", "anthropic")
        assert f"! {os.getcwd()}/opencode.json:1 would send" in reported
        _, reported = await asyncio.to_thread(command, "models", "anthropic", "--json")
        assert UNKNOWN in json.loads(reported.partition("\nCatalogue")[0])["providers"][0]["untrusted"]
        _, reported = await asyncio.to_thread(command, "config", "provider.anthropic")
        assert f"the provider anthropic is not used: {UNKNOWN} (see 'opensesh plugins')" in reported
        _, reported = await asyncio.to_thread(command, "plugins")
        assert f"  anthropic  provider: {odd}, named by ~/work/opencode.json:1" in reported

        _, reported = await asyncio.to_thread(command, "plugins", "--trust")
        assert f"trusted: provider anthropic: {odd}\n" in reported
        await asyncio.to_thread(command, *asking)
        assert "sk-mine" in server.exchanges[0].head


def configured(document: dict[str, Any], name: str = "opencode.json") -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


EVIL = 'CALL bash {"command": "touch mark", "description": "Go"}\n---\nSAY Done.\n'


@pytest.mark.parametrize(
    "named",
    [
        {"model": "scripted/it.script"},
        {"small_model": "scripted/it.script"},
        {"agent": {"plan": {"model": "scripted/it.script"}}},
        {"mode": {"odd": {"model": "scripted/it.script"}}},
        {"command": {"go": {"template": "Go.", "model": "scripted/it.script"}}},
    ],
)
def test_a_script_that_the_project_has_played_is_trusted_first(named: dict[str, Any]) -> None:
    Path("it.script").write_text(EVIL)
    configured(named)
    config = loaded()
    text = f"opencode.json:1 would play the script {os.getcwd()}/it.script: {UNKNOWN}"
    assert text in untrusted_reason(config, "scripted", "it.script")
    assert {item.name for item in provider_trust_items(config)} == {"it.script"}
    assert not untrusted_reason(config, "scripted", "other.script"), "the user names that one"
    trust()
    assert not untrusted_reason(config, "scripted", "it.script")
    Path("it.script").write_text("SAY Something else.")
    assert CHANGED in untrusted_reason(config, "scripted", "it.script")


def test_a_script_in_a_markdown_agent_is_whose_the_folder_is(isolated: Path) -> None:
    Path("it.script").write_text(EVIL)
    text = "---\nmodel: scripted/it.script\n---\nGo.\n"
    for folder in (isolated / ".config" / "opencode", Path(".opencode")):
        (folder / "agents" / "below").mkdir(parents=True)
    (isolated / ".config" / "opencode" / "agents" / "below" / "mine.md").write_text(text)
    assert not untrusted_reason(loaded(), "scripted", "it.script")
    Path(".opencode/agents/below/theirs.md").write_text(text)
    assert UNKNOWN in untrusted_reason(loaded(), "scripted", "it.script")


def test_an_unreadable_script_still_needs_trust() -> None:
    Path("it.script").mkdir()
    configured({"model": "scripted/it.script"})
    assert UNKNOWN in untrusted_reason(loaded(), "scripted", "it.script")


@pytest.mark.parametrize("name", ["prompt", "missing.script", "\0"])
def test_a_prompt_or_a_script_that_is_not_there_is_nothing_to_trust(name: str) -> None:
    configured({"model": f"scripted/{name}"})
    assert provider_trust_items(loaded()) == []


def test_a_cloned_repository_does_nothing_by_a_script_before_it_is_trusted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    Path("it.script").write_text(EVIL)
    configured({"model": "scripted/it.script", "permission": "allow"})
    assert run(["run", "--title", "x", "Hello."]) != 0
    assert "it.script: it came with the project" in capsys.readouterr().err
    assert not Path("mark").exists()
    assert run(["config", "model"]) == 0
    assert "the script it.script is not used" in capsys.readouterr().err
    assert run(["plugins", "--trust"]) == 0
    assert "trusted: script it.script: " in capsys.readouterr().out
    assert run(["run", "--title", "x", "Hello."]) == 0
    assert Path("mark").exists()
