from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from opensesh.config.source import FRESH_SECONDS, CachedFetch
from opensesh.engine.opening import open_engine
from opensesh.models.request import System
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel
from tests.cli.running import Terminal


class Publisher:
    """A web server with some texts."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.requests: list[str] = []
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.requests.append(self.path)
                text = publisher.texts.get(self.path)
                self.send_response(404 if text is None else 200)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_request(self, code: object = "-", size: object = "-") -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    server = Publisher()
    yield server
    server.close()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (tmp_path / "share" / "opencode").mkdir(parents=True)
    (tmp_path / "config" / "opencode").mkdir(parents=True)
    return tmp_path


def log_in(data: Path, url: str) -> None:
    login = {url: {"type": "wellknown", "key": "ORG_TOKEN", "token": "t"}}
    (data / "share" / "opencode" / "auth.json").write_text(json.dumps(login))


def test_promise_14_the_configuration_of_an_organisation_is_fetched_and_cached(
    data: Path, publisher: Publisher, terminal: Terminal
) -> None:
    log_in(data, publisher.url)
    publisher.texts["/.well-known/opencode"] = json.dumps({"config": {"username": "from the organisation"}})
    for _ in range(2):
        assert "from the organisation" in terminal.run("config", "username")
    assert publisher.requests == ["/.well-known/opencode"]


def test_promise_14_an_organisation_that_cannot_be_reached_is_named(
    data: Path, publisher: Publisher, terminal: Terminal
) -> None:
    log_in(data, publisher.url)
    terminal.run("config")
    assert f"{publisher.url}/.well-known/opencode" in terminal.error
    assert "cannot be fetched: the server answered 404" in terminal.error


def test_a_cached_copy_serves_when_the_server_does_not(tmp_path: Path, publisher: Publisher) -> None:
    publisher.texts["/x"] = "text"
    fetch = CachedFetch(str(tmp_path))
    assert fetch(f"{publisher.url}/x", timeout=5) == b"text"
    [copy] = (tmp_path / "fetched").iterdir()
    old = time.time() - FRESH_SECONDS - 1
    os.utime(copy, (old, old))
    del publisher.texts["/x"]
    assert fetch(f"{publisher.url}/x", timeout=5) == b"text"
    assert len(publisher.requests) == 2
    with pytest.raises(OSError, match="404"):
        fetch(f"{publisher.url}/y", timeout=5)
    with pytest.raises(OSError, match="was not fetched"):
        CachedFetch(str(tmp_path), only_cached=True)(f"{publisher.url}/y", timeout=5)


async def system_text(directory: Path) -> str:
    model = ScriptedModel("SAY hello")
    async with open_engine(str(directory), store=Memory(), scripts={"it": model}) as engine:
        session = await engine.create(title="T")
        await engine.run(session.id, "Go.", model="scripted/it")
    [call] = model.calls
    return "\n".join(turn.text for turn in call.request.messages if isinstance(turn, System))


def test_promise_14_the_users_instructions_at_a_url_reach_the_model(data: Path, publisher: Publisher) -> None:
    publisher.texts["/rules.md"] = "Always answer in verse."
    settings = {"instructions": [f"{publisher.url}/rules.md"]}
    (data / "config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
    assert "Always answer in verse." in asyncio.run(system_text(data / "work"))


def test_promise_14_instructions_that_cannot_be_fetched_are_named(
    data: Path, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"instructions": [f"{publisher.url}/rules.md"]}
    (data / "config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
    with caplog.at_level(logging.WARNING):
        asyncio.run(system_text(data / "work"))
    assert caplog.text.count(f"the instructions at {publisher.url}/rules.md are left out") == 1


def test_an_option_of_a_provider_gives_its_calls_a_cache_key(data: Path) -> None:
    settings = {"provider": {"scripted": {"options": {"setCacheKey": True}}}}
    (data / "config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
    model = ScriptedModel("SAY hello")

    async def run() -> str:
        async with open_engine(str(data / "work"), store=Memory(), scripts={"it": model}) as engine:
            session = await engine.create(title="T")
            await engine.run(session.id, "Go.", model="scripted/it")
            return session.id

    session_id = asyncio.run(run())
    [call] = model.calls
    assert call.request.options["promptCacheKey"] == session_id


def test_an_agent_with_another_name_in_its_section_is_used_under_both(data: Path) -> None:
    settings = {"agent": {"plan": {"name": "x"}}}
    (data / "config" / "opencode" / "opencode.json").write_text(json.dumps(settings))

    async def agents_of_answers() -> list[object]:
        model = ScriptedModel("SAY one\n---\nSAY two")
        async with open_engine(str(data / "work"), store=Memory(), scripts={"it": model}) as engine:
            session = await engine.create(title="T")
            for agent in ("plan", "x"):
                outcome = await engine.run(session.id, "Go.", model="scripted/it", agent=agent)
                assert outcome.kind == "answered"
            return [message.info["agent"] for message in engine.sessions.messages(session.id)]

    assert asyncio.run(agents_of_answers()) == ["plan"] * 4


def test_promise_14_a_projects_url_is_not_fetched_and_the_configuration_says_so(
    data: Path, publisher: Publisher, terminal: Terminal
) -> None:
    publisher.texts["/rules.md"] = "Always answer in verse."
    settings = {"instructions": [f"{publisher.url}/rules.md"]}
    (data / "work" / "opencode.json").write_text(json.dumps(settings))
    assert "verse" not in asyncio.run(system_text(data / "work"))
    assert publisher.requests == []
    terminal.run("config")
    assert f"{publisher.url}/rules.md is not fetched, because the project names it" in terminal.error
