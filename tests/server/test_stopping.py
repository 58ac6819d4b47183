from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from opensesh.errors import UsageError
from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage import open_store

from .serving import Client, Events, Json, listening, serving


async def stop_while_running(directory: Path, script: str, grace_seconds: float) -> tuple[str, Json, Events]:
    """Return the session, the answer to its prompt, and the events of a server that is stopped while it runs."""
    async with AsyncExitStack() as clients:
        async with serving(directory, grace_seconds=grace_seconds) as first:
            client = Client(first.url, directory)
            clients.push_async_callback(client.http.aclose)
            events = await clients.enter_async_context(listening(client))
            session_id = await client.create(title="One")
            prompt = asyncio.create_task(client.prompt(session_id, script))
            await events.wait_for("session.status", sessionID=session_id)
        answer = await prompt
        await events.wait_until_ended()
        return session_id, answer, events


async def test_a_server_that_stops_lets_a_session_finish_and_ends_its_streams(tmp_path: Path) -> None:
    _, answer, events = await stop_while_running(tmp_path / "p", "WAIT 0.5\nSAY finished in time", 20)
    assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["finished in time"]
    assert "session.idle" in events.types()


async def test_a_session_that_takes_too_long_is_aborted_and_its_records_say_so(tmp_path: Path) -> None:
    session_id, answer, events = await stop_while_running(tmp_path / "p", "SAY begun\nHANG", 0.2)
    assert answer["info"]["error"]["name"] == "MessageAbortedError"
    assert "session.idle" in events.types()
    store = open_store()
    last = Sessions(store, resolve(tmp_path / "p")).messages(session_id)[-1]
    assert last.info["error"]["name"] == "MessageAbortedError"
    store.close()


async def test_a_web_interface_is_served_to_browsers_only(tmp_path: Path) -> None:
    folder = tmp_path / "ui"
    folder.mkdir()
    (folder / "index.html").write_text("<h1>app</h1>")
    (folder / "app.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    async with serving(tmp_path / "p", web_ui=str(folder)) as client:
        page = await client.http.get("/some/where", headers={"accept": "text/html"})
        assert (page.status_code, page.text) == (200, "<h1>app</h1>")
        assert (await client.http.get("/app.js")).text == "1"
        for path in ("/some/where", "/..%2fsecret.txt", "/%2e%2e/secret.txt"):
            response = await client.http.get(path)
            assert (response.status_code, response.json()["name"]) == (404, "NotFoundError")
    with pytest.raises(UsageError, match="index"):
        async with serving(tmp_path / "p", web_ui=str(tmp_path)):
            pass
