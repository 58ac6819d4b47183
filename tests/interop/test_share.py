from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from opensesh.config import load
from opensesh.engine.opening import open_engine
from opensesh.history.import_export.importing import Importer
from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.sharing.client import ShareServer, fetch_shared_session
from opensesh.sharing.items import AssembledSession, assemble
from opensesh.sharing.share_service import ShareResult, ShareService, UnshareResult
from opensesh.sharing.share_settings import ShareSettings
from opensesh.storage import keys
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.wire import WireServer

from ..sharing.process import Server
from .opencode import DATABASE, JSON_FILES, OpenCode

pytestmark = pytest.mark.interop

TALK = 'THINK hm\nCALL bash {"command":"echo hi","description":"greet"}\n---\nSAY done'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    result = Server(tmp_path_factory.mktemp("shares"))
    result.start()
    yield result
    result.stop()


@pytest.fixture(scope="module")
def sharing(wire: WireServer, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCode]:
    config = {"share": "manual", "enterprise": {"url": server.url}}
    with OpenCode(tmp_path_factory.mktemp("opencode"), wire, config=config) as result:
        yield result


def seen(link: str) -> AssembledSession | None:
    base, _, name = link.partition("/share/")

    async def read() -> AssembledSession | None:
        async with ShareServer(base) as server:
            return assemble(await server.data(name))

    return asyncio.run(read())


def until_seen(link: str, condition: Callable[[AssembledSession], bool]) -> AssembledSession:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        result = seen(link)
        if result is not None and condition(result):
            return result
        time.sleep(0.1)
    raise TimeoutError(f"{link} did not become what it should be: {seen(link)}")


def words(session: AssembledSession) -> list[str]:
    return [part["text"] for message in session.messages for part in message.parts if part["type"] == "text"]


def service(opencode: OpenCode, server: Server) -> ShareService:
    sessions = Sessions(JsonTree(opencode.storage), resolve(opencode.directory))
    return ShareService(sessions, ShareSettings(server=server.url, server_source="a test", chosen_by_user=True))


def share(opencode: OpenCode, server: Server, session: str) -> ShareResult:
    async def act() -> ShareResult:
        async with service(opencode, server) as result:
            return await result.share(session)

    return asyncio.run(act())


def unshare(opencode: OpenCode, server: Server, session: str) -> UnshareResult:
    async def act() -> UnshareResult:
        async with service(opencode, server) as result:
            return await result.unshare(session)

    return asyncio.run(act())


def plain(messages: Any) -> Any:
    return [{"info": message.info, "parts": message.parts} for message in messages]


def test_what_opencode_shares_is_held_whole_brought_in_and_taken_down_by_opensesh(
    sharing: OpenCode, server: Server, tmp_path: Path
) -> None:
    session = sharing.create("Shared by OpenCode")["id"]
    sharing.prompt(session, TALK)
    link = sharing.request("POST", f"/session/{session}/share")["share"]["url"]
    assert link.startswith(f"{server.url}/share/")
    sharing.prompt(session, "SAY more")
    sharing.settle()
    stored = sharing.messages(session)
    result = until_seen(link, lambda item: plain(item.messages) == stored)
    assert result.info["share"] == {"url": link}
    page = httpx2.get(link)
    assert page.status_code == 200
    assert "Shared by OpenCode" in page.text
    assert "more" in page.text

    tree = JsonTree(tmp_path / "brought")
    [done] = Importer(tree).take([asyncio.run(fetch_shared_session(link))])
    assert done.act == "added"
    assert plain(tree.messages(session)) == stored

    assert unshare(sharing, server, session).url == link
    assert httpx2.get(link).status_code == 404
    assert "share" not in sharing.get(session)
    assert not (sharing.storage / "session_share" / f"{session}.json").exists()
    assert sharing.prompt(session, "SAY still here")["info"]["finish"] == "stop"


def test_promise_11_opencode_shares_what_opensesh_ran_without_changing_a_file(
    sharing: OpenCode, server: Server
) -> None:
    async def run() -> str:
        place = resolve(sharing.directory)
        config = load(place.directory, place.sandbox, home=sharing.root / "home", environ=sharing.environment)
        async with open_engine(sharing.directory, store=JsonTree(sharing.storage), config=config) as engine:
            session = await engine.create(title="Run by opensesh")
            assert (await engine.run(session.id, "SAY run by opensesh")).kind == "answered"
            return session.id

    session = asyncio.run(run())
    link = sharing.request("POST", f"/session/{session}/share")["share"]["url"]
    until_seen(link, lambda item: words(item) == ["SAY run by opensesh", "run by opensesh"])
    page = httpx2.get(link)
    assert (page.status_code, "run by opensesh" in page.text) == (200, True)


def test_what_opensesh_shares_is_gone_on_with_and_taken_down_by_opencode(sharing: OpenCode, server: Server) -> None:
    session = sharing.create("Shared by opensesh")["id"]
    sharing.prompt(session, TALK)
    sharing.settle()
    link = share(sharing, server, session).url
    assert sharing.get(session)["share"] == {"url": link}
    assert list(JsonTree(sharing.storage).read(keys.share(session))) == ["id", "url", "secret"]
    sharing.prompt(session, "SAY and OpenCode goes on")
    until_seen(link, lambda item: words(item)[-1] == "and OpenCode goes on")
    assert "share" not in sharing.request("DELETE", f"/session/{session}/share")
    assert httpx2.get(link).status_code == 404
    assert unshare(sharing, server, session).error == ""  # the journal still knew of it, and the server says it is gone


def test_a_session_that_opencode_deletes_is_not_shared_any_more(sharing: OpenCode, server: Server) -> None:
    session = sharing.create("Short-lived")["id"]
    sharing.prompt(session, "SAY hello")
    link = share(sharing, server, session).url
    assert httpx2.get(link).status_code == 200
    sharing.delete(session)
    assert httpx2.get(link).status_code == 404


def test_a_secret_that_opencode_lost_with_its_session_is_still_known(sharing: OpenCode, server: Server) -> None:
    session = sharing.create("Deleted while the server was down")["id"]
    sharing.prompt(session, "SAY hello")
    link = share(sharing, server, session).url
    server.stop()
    sharing.delete(session)
    server.start()
    assert httpx2.get(link).status_code == 200
    unshare(sharing, server, session)
    assert httpx2.get(link).status_code == 404


def test_opencode_run_shares_to_the_server(sharing: OpenCode, server: Server) -> None:
    done = sharing.cli("run", "--share", prompt="WAIT 3\nSAY from a run")  # what it sends goes a second later
    link = re.search(rf"{re.escape(server.url)}/share/[\w-]+", done.stdout + done.stderr)  # ends in a colour, or in ">"
    assert link is not None
    until_seen(link.group(), lambda item: bool(item.messages))


@pytest.mark.parametrize("version", [JSON_FILES, DATABASE])
def test_opencode_imports_from_a_link_of_opensesh(
    sharing: OpenCode, server: Server, tmp_path: Path, version: str
) -> None:
    session = sharing.create("To be imported")["id"]
    sharing.prompt(session, TALK)
    sharing.settle()
    stored = sharing.messages(session)
    link = share(sharing, server, session).url
    other = OpenCode(
        tmp_path / "other", "http://127.0.0.1:9/v1", version=version, config={"enterprise": {"url": server.url}}
    )
    assert f"Imported session: {session}" in other.cli("import", link).stdout
    again = other.export(session)["messages"]
    assert [message["info"]["id"] for message in again] == [message["info"]["id"] for message in stored]
    if version == JSON_FILES:
        assert json.dumps(again, sort_keys=True) == json.dumps(stored, sort_keys=True)
