from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from .running import Terminal

KEY = "sk-this-is-a-secret"
MINE = {
    "provider": {
        "mine": {
            "options": {"apiKey": KEY, "headers": {"X-Team": "hidden-too"}, "baseURL": "http://127.0.0.1:9/v1"},
            "models": {
                "known": {
                    "limit": {"context": 100_000, "output": 4_000},
                    "cost": {"input": 1.5, "output": 0, "cache_read": 0.15},
                },
                "unknown": {},
            },
        }
    }
}


def configure(**settings: object) -> Path:
    path = Path("opencode.json")
    path.write_text(json.dumps(settings, indent=2))
    return path.resolve()


def test_models_are_those_there_is_a_key_for(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    configure(model="mine/known", small_model="mine/known", **MINE)
    out = terminal.run("models")
    assert terminal.code == 0
    assert KEY not in out + terminal.error
    assert "environment variable ANTHROPIC_API_KEY" in out
    assert "provider.mine.options.apiKey in the configuration" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if "/" in line.split("  ")[0]}
    assert rows["mine/known"][1:] == ["100k", "4,000", "1.5", "0", "0.15", "/", "?", "default,", "small"]
    assert rows["mine/unknown"][1:5] == ["?", "?", "?", "?"]
    assert "anthropic/claude-sonnet-4-5" in rows
    assert not any(ref.startswith("openai/") for ref in rows)


def test_models_as_json_keep_the_unknown_unknown(terminal: Terminal) -> None:
    configure(model="mine/known", **MINE)
    answer = terminal.json("models")
    assert KEY not in json.dumps(answer)
    assert "hidden-too" not in json.dumps(answer)
    assert (answer["default"], answer["catalogue"]["date"][:2]) == ("mine/known", "20")
    mine = next(item for item in answer["providers"] if item["id"] == "mine")
    assert mine["key"]["kind"] == "config"
    known, unknown = mine["models"]
    assert known["limit"] == {"context": 100_000, "input": None, "output": 4_000}
    assert known["cost"]["output"] == 0
    assert known["cost"]["cache_write"] is None
    assert (unknown["cost"], unknown["limit"]["context"]) == (None, None)


def test_a_provider_without_a_key_is_shown_when_it_is_named(terminal: Terminal) -> None:
    out = terminal.run("models", "openai")
    assert "none: set OPENAI_API_KEY" in out
    assert "openai/gpt-5" in out
    assert "There is no model to use" in out
    assert terminal.json("models")["providers"][0]["key"]["kind"] == "public"
    assert len(terminal.json("models", "--all")["providers"]) > 50
    terminal.run("models", "opnai")
    assert (terminal.code, "Did you mean openai" in terminal.error) == (3, True)


def test_a_scripted_default_is_named(terminal: Terminal) -> None:
    configure(model="scripted/some/file")
    assert terminal.json("models")["default"] == "scripted/some/file"
    assert "default: scripted/some/file" in terminal.run("models")


def test_models_that_play_a_script_are_listed_without_a_provider(terminal: Terminal) -> None:
    configure(model="scripted/prompt")
    out = terminal.run("models", "scripted")
    assert (terminal.code, out.splitlines()[-1]) == (0, "default: scripted/prompt   small: scripted/prompt")
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["scripted/prompt", "scripted/FILE"]
    assert "$" not in out
    reported = terminal.json("models", "scripted")
    assert (list(reported["scripted"]), reported["providers"]) == (["scripted/prompt", "scripted/FILE"], [])
    assert "scripted" not in [item["id"] for item in terminal.json("models", "--all")["providers"]]


def test_a_small_model_may_play_a_script(terminal: Terminal) -> None:
    configure(model="openai/gpt-5", small_model="scripted/titles.script")
    assert "default: openai/gpt-5   small: scripted/titles.script" in terminal.run("models")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("scripted/promt", "Did you mean scripted/prompt?"),
        ("scripted/plays/fixx.script", "Did you mean scripted/plays/fix.script?"),
        ("sripted/fix.script", "there is no provider 'sripted'. Did you mean scripted/fix.script?"),
        ("scripted", "a script is missing: scripted/prompt plays the prompt"),
        ("scripted/", "a script is missing: scripted/prompt plays the prompt"),
        ("scripted/nothing/like/it", "No such file or directory.\n"),
        ("scripted/no.text", "the script no.text cannot be read: it is not a UTF-8 text file\n"),
        ("scripted/a\0b", "cannot be read: it is not a UTF-8 text file\n"),
    ],
)
def test_a_slip_in_the_name_of_a_script_is_met_with_what_comes_close(terminal: Terminal, name: str, told: str) -> None:
    Path("plays").mkdir()
    Path("plays/fix.script").write_text("SAY Done.\n")
    Path("no.text").write_bytes(b"\xff")
    terminal.run("run", "-m", name, "Hello")
    assert terminal.code in (2, 3)
    assert told in terminal.error
    terminal.run("models", "scriptd")
    assert (terminal.code, "Did you mean scripted?" in terminal.error) == (3, True)


class _Catalogue(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        models = {"new": {"id": "new", "name": "New", "limit": {"context": 7_000, "output": 70}}}
        body = json.dumps({"fresh": {"id": "fresh", "name": "Fresh", "env": ["FRESH_KEY"], "models": models}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


@pytest.fixture
def site() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Catalogue) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_catalogue_is_fetched_only_on_demand(
    terminal: Terminal, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_MODELS_URL", site)
    terminal.run("models", "fresh")
    assert terminal.code == 3
    assert terminal.json("models", "fresh", "--refresh")["providers"][0]["models"][0]["limit"]["context"] == 7_000
    assert "fresh/new" in terminal.run("models", "fresh")
    monkeypatch.setenv("OPENCODE_MODELS_URL", "http://127.0.0.1:9")
    terminal.run("models", "--refresh")
    assert (terminal.code, terminal.error.count("\n")) == (1, 1)


def test_agents_are_listed_with_mode_model_rules_and_source(terminal: Terminal) -> None:
    configure(permission={"bash": "ask"}, agent={"build": {"temperature": 0.5}})
    folder = Path(".opencode/agent")
    folder.mkdir(parents=True)
    head = "description: Reviews \x1b[31mcode\nmode: subagent\nmodel: openai/gpt-5\npermission:\n  edit: deny"
    text = f"---\n{head}\n---\nReview."
    (folder / "review.md").write_text(text)
    out = terminal.run("agents")
    assert terminal.code == 0
    assert "build  primary, the default\n" in out
    assert "review  subagent  openai/gpt-5\n" in out
    assert "\x1b" not in out
    flat = " ".join(out.split())
    assert f"built in, {Path('opencode.json').resolve()}:" in flat
    assert f"{(folder / 'review.md').resolve()}:2" in flat
    assert "allow everything; allow read (2 exceptions); ask doom_loop," in flat
    assert "title  " not in out
    assert "title  " in terminal.run("agents", "--all")


def test_one_agent_is_shown_in_full(terminal: Terminal) -> None:
    configure(agent={"mine": {"prompt": "Be brief.", "steps": 3, "permission": {"bash": {"git *": "allow"}}}})
    out = terminal.run("agents", "mine")
    assert "allow   bash                git *\n" in out
    assert "steps: 3" in out
    assert out.endswith("prompt:\nBe brief.\n")
    (agent,) = terminal.json("agents", "mine")["agents"]
    assert {"permission": "bash", "pattern": "git *", "action": "allow"} in agent["permission"]
    assert (agent["default"], len(agent["sources"])) == (False, 1)
    assert terminal.json("agents")["default"] == "build"
    terminal.run("agents", "nobody")
    assert (terminal.code, "agents: build, plan, general, explore, mine" in terminal.error) == (3, True)


def test_settings_are_shown_with_who_made_them(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    path = configure(model="mine/known", **MINE)
    monkeypatch.setenv("OPENCODE_DISABLE_PRUNE", "1")
    out = terminal.run("config")
    location = f"~{str(path)[len(str(Path.home())) :]}"
    assert f'model = "mine/known"\n    {location}:2\n' in out
    assert "compaction.prune = false\n    OPENCODE_DISABLE_PRUNE\n" in out
    assert 'provider.mine.options.apiKey = "(not shown)"' in out
    assert KEY not in out
    assert "hidden-too" not in out
    assert KEY not in terminal.run("config", "--json")


def test_one_setting_or_what_lies_below_it(terminal: Terminal) -> None:
    path = configure(compaction={"auto": False})
    assert terminal.run("config", "compaction.auto").startswith("compaction.auto = false\n")
    assert terminal.json("config", "compaction")["values"] == [
        {"path": ["compaction", "auto"], "value": False, "source": str(path), "line": 3, "column": 5}
    ]
    out = terminal.run("config", "compaction.prune")
    assert "not set; this is the default" in out
    assert terminal.json("config", "compaction.prune")["values"][0]["source"] is None
    terminal.run("config", "no.such.thing")
    assert terminal.code == 3


def test_problems_with_the_configuration_are_reported(terminal: Terminal) -> None:
    path = configure(compaction={"autoo": True})
    terminal.run("config")
    assert (terminal.code, f"! {path}:3" in terminal.error) == (0, True)
    assert terminal.json("config")["problems"][0]["line"] == 3
    path.write_text('{"model": 7}')
    terminal.run("config")
    assert (terminal.code, terminal.error.startswith(f"opensesh: {path}:1")) == (1, True)


@pytest.mark.parametrize("command", ["models", "agents", "tools", "config", "plugins"])
def test_what_holds_elsewhere_is_asked_for_by_directory(terminal: Terminal, tmp_path: Path, command: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "opencode.json").write_text('{"model": "scripted/over-there", "default_agent": "plan"}')
    answer = json.dumps(terminal.json(command, "--dir", str(tmp_path / "there")))
    reported = {"models": "scripted/over-there", "agents": '"default": "plan"', "config": "scripted/over-there"}
    assert reported.get(command, "") in answer
    terminal.run(command, "--dir", str(tmp_path / "nowhere"))
    assert (terminal.code, terminal.error) == (2, f"opensesh: the directory {tmp_path / 'nowhere'} does not exist\n")
