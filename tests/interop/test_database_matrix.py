"""Every scenario on one database, in both directions: each program shows, continues and changes what the other ran."""

from __future__ import annotations

import asyncio
import json
import shutil
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

import pytest

from opensesh.history.import_export.destinations import to_stream
from opensesh.history.import_export.exporting import Export, Selection
from opensesh.records import as_list, as_object
from opensesh.sessions import trash
from opensesh.storage import open_store
from opensesh.storage.opencode_db.rows import restore_message
from opensesh.testing.wire import WireServer

from ..storage.opencode_databases import assert_sound
from . import scenarios
from .opencode import DATABASE, OTHER_VERSIONS, OpenCode, OpenCodeError
from .scenarios import SCENARIOS, WAITING, Ask, Refuse, Scenario
from .sides import EvenModel, Original, Ours, play

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def wire() -> Iterator[WireServer]:
    with WireServer(EvenModel.prompted()) as server:
        yield server


@pytest.fixture(
    scope="module", params=[DATABASE, *(pytest.param(version, marks=pytest.mark.slow) for version in OTHER_VERSIONS)]
)
def theirs(
    request: pytest.FixtureRequest, wire: WireServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Original]:
    """OpenCode with a database, while it runs. Its server answers every address as before when the tests are over."""
    root = tmp_path_factory.mktemp(f"opencode-{request.param}")
    with OpenCode(root, wire, version=request.param, config=scenarios.config(wire.base_url)) as opencode:
        own = opencode.create("its own")["id"]
        opencode.prompt(own, "SAY first.")
        opencode.settle()
        before = statuses(opencode, own)
        yield Original(opencode)
        after = statuses(opencode, own)
        assert {path: (status, after[path]) for path, status in before.items() if status == 200 != after[path]} == {}
        for info in opencode.list(limit=10_000):
            opencode.show(info["id"])
        assert_sound(opencode.database)


def statuses(opencode: OpenCode, session: str) -> dict[str, int]:
    """Return the status of every GET that the server offers and that is not a stream, with this session."""
    message = opencode.messages(session)[0]["info"]["id"]
    names = {"{sessionID}": session, "{id}": session, "{messageID}": message}
    result: dict[str, int] = {}
    for template, methods in opencode.request("GET", "/doc")["paths"].items():
        path = template
        for name, value in names.items():
            path = path.replace(name, value)
        if "get" in methods and "{" not in path and "event" not in path and "/tui/" not in path:
            headers = {"x-opencode-directory": quote(str(opencode.directory))}
            try:
                with opencode.opener.open(Request(opencode.url + path, headers=headers), timeout=60) as response:
                    result[path] = response.status
            except HTTPError as error:
                result[path] = error.code
    return result


def ours_beside(theirs: Original) -> Ours:
    """opensesh on the same data folder."""
    return Ours(theirs.opencode.root, theirs.project, theirs.config, store=open_store(str(theirs.opencode.data)))


def shown_fields(shown: Any, stored: Any) -> Any:
    """What is shown of a stored value: fields that OpenCode does not know are stored and not shown."""
    objects = as_object(shown), as_object(stored)
    if objects[0] is not None and objects[1] is not None:
        names = (name for name in objects[1] if name in objects[0])
        return {name: shown_fields(objects[0][name], objects[1][name]) for name in names}
    lists = as_list(shown), as_list(stored)
    if lists[0] is not None and lists[1] is not None and len(lists[0]) == len(lists[1]):
        return [shown_fields(one, other) for one, other in zip(lists[0], lists[1], strict=True)]
    return stored


async def assert_same(theirs: Original, ours: Ours, session: str) -> None:
    """Both programs show the same messages of a session."""
    shown = await asyncio.to_thread(theirs.opencode.show, session)
    # OpenCode 1.2 also shows the fields that it does not know, in the form in which they are stored.
    shown = [message | {"info": restore_message(message["info"])} for message in shown]
    stored = [{"info": info, "parts": parts} for info, parts in await ours.messages(session)]
    assert [shown_fields(one, other) for one, other in zip(shown, stored, strict=True)] == shown


def skip_unless_shown(opencode: OpenCode, session: str) -> None:
    """Skip the test if OpenCode cannot show what it stored itself, as the format of a structured answer."""
    try:
        opencode.messages(session)
    except OpenCodeError:
        opencode.delete(session)
        pytest.skip("OpenCode cannot show what it stored itself")


def texts(message: dict[str, Any]) -> list[str]:
    return [part["text"].strip() for part in message["parts"] if part["type"] == "text"]


CASES = [
    pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] if scenario.slow or number % 3 else [])
    for number, scenario in enumerate(SCENARIOS)
]
SOME_CASES = [
    pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] if scenario.slow or number % 12 else [])
    for number, scenario in enumerate(SCENARIOS)
]
"""All scenarios, of which a few are played in every run."""
THEIR_CASES = [
    pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] if scenario.slow or number % 12 else [])
    for number, scenario in enumerate(SCENARIOS)
    if not any(isinstance(act, Refuse) for act in scenario.acts)
]
"""Those without a request to grep, which OpenCode 1.18 stores in a form that its own server cannot list."""


@pytest.mark.parametrize("scenario", CASES)
async def test_opencode_shows_and_continues_what_opensesh_ran(
    scenario: Scenario, theirs: Original, wire: WireServer
) -> None:
    if scenario.needs and not shutil.which(scenario.needs):
        pytest.skip(f"{scenario.needs} is not installed")
    opencode = theirs.opencode
    async with ours_beside(theirs) as ours:
        sessions = (await play(ours, scenario, wire)).sessions
        for session in sessions:
            await assert_same(theirs, ours, session)
    answer = opencode.prompt(sessions[-1], "SAY Carried on.")
    assert texts(answer) == ["Carried on."]
    opencode.show(sessions[-1])


@pytest.mark.parametrize("scenario", SOME_CASES)
async def test_opencode_changes_what_opensesh_ran(scenario: Scenario, theirs: Original, wire: WireServer) -> None:
    if scenario.needs and not shutil.which(scenario.needs):
        pytest.skip(f"{scenario.needs} is not installed")
    opencode = theirs.opencode
    async with ours_beside(theirs) as ours:
        session = (await play(ours, scenario._replace(name=f"{scenario.name} (changed)"), wire)).sessions[-1]
        count = len(await ours.messages(session))
    fork = opencode.fork(session)["id"]
    assert len(opencode.show(fork)) == count
    shown = opencode.messages(session)
    assert shown_fields(shown, opencode.export(session)["messages"]) == shown
    opencode.update(fork, title="renamed")
    first = opencode.show(fork)[0]["info"]["id"]
    opencode.revert(fork, first)
    assert opencode.get(fork)["revert"]["messageID"] == first
    opencode.unrevert(fork)
    assert "revert" not in opencode.get(fork)
    opencode.summarize(fork)
    opencode.settle()
    assert any(message["info"].get("summary") is True for message in opencode.show(fork))
    async with ours_beside(theirs) as ours:
        assert ours.sessions.get(fork).title == "renamed"
        await assert_same(theirs, ours, fork)
        opencode.delete(fork)
        assert fork not in {info.id for info in ours.sessions.list()}
    assert len(opencode.show(session)) == count


@pytest.mark.parametrize("scenario", THEIR_CASES)
async def test_opensesh_shows_continues_and_changes_what_opencode_ran(
    scenario: Scenario, theirs: Original, wire: WireServer
) -> None:
    if scenario.needs and not shutil.which(scenario.needs):
        pytest.skip(f"{scenario.needs} is not installed")
    opencode = theirs.opencode
    [*_, session] = (await play(theirs, scenario._replace(name=f"{scenario.name} (theirs)"), wire)).sessions
    opencode.settle()
    skip_unless_shown(opencode, session)
    async with ours_beside(theirs) as ours:
        assert session in {info.id for info in ours.sessions.list()}
        await assert_same(theirs, ours, session)
        exported = BytesIO()
        store = ours.engine.sessions.store
        to_stream(Export(store, Selection(ids=(session,)), "opencode"), exported, lambda done, total: None)
        assert [message["info"]["id"] for message in json.loads(exported.getvalue())["messages"]] == [
            message["info"]["id"] for message in opencode.export(session)["messages"]
        ]
        await ours.begin(session, [{"type": "text", "text": "SAY Carried on."}], {})
        await ours.finish(session)
        opencode.settle()
        assert texts(opencode.show(session)[-1]) == ["Carried on."]
        fork = await ours.fork(session, None)
        ours.sessions.rename(fork, "renamed")
        ours.sessions.archive(fork)
        assert opencode.get(fork)["time"]["archived"]
        ours.sessions.archive(fork, archived=False)
        assert opencode.get(fork)["title"] == "renamed"
        first = (await ours.messages(fork))[0].info["id"]
        await ours.revert(fork, first, None)
        assert opencode.get(fork)["revert"]["messageID"] == first
        await ours.unrevert(fork)
        assert "revert" not in opencode.get(fork)
        await ours.compact(fork)
        await assert_same(theirs, ours, fork)
        before = opencode.show(fork)
        undo = trash.remove(store, [ours.sessions.get(fork)]).undo
        assert fork not in [info["id"] for info in opencode.list(limit=10_000)]
        trash.restore(undo, store=store)
        assert opencode.show(fork) == before
    assert texts(opencode.prompt(fork, "SAY And on.")) == ["And on."]
    opencode.delete(fork)


async def test_both_prompt_one_session_in_turns(theirs: Original, wire: WireServer) -> None:
    session = await theirs.create("in turns")
    for number in range(10):
        theirs.opencode.prompt(session, f"SAY theirs {number}.")
        theirs.opencode.settle()
        async with ours_beside(theirs) as ours:
            await ours.begin(session, [{"type": "text", "text": f"SAY ours {number}."}], {})
            await ours.finish(session)
    text = [
        part["text"].strip()
        for message in theirs.opencode.show(session)
        if message["info"]["role"] == "assistant"
        for part in message["parts"]
        if part["type"] == "text"
    ]
    assert text == [f"{side} {number}." for number in range(10) for side in ("theirs", "ours")]
    requests = [json.dumps(request.body["messages"]) for request in wire.conversation[-2:]]
    assert all(f"SAY theirs {number}." in requests[-1] and f"ours {number}." in requests[-1] for number in range(4))
    info = theirs.opencode.get(session)
    messages = theirs.opencode.messages(session)
    if "cost" in info:  # since 1.15
        assert info["cost"] == pytest.approx(sum(message["info"].get("cost", 0) for message in messages))


# OpenCode 1.2 runs a tool while it still takes the snapshot before it, which then has what the tool wrote.
EDIT = f'CALL bash {{"command": "{WAITING}; echo two > {{at}}/a.txt", "description": "write"}}\n---\nSAY Written.'
# The texts have different lengths: OpenCode 1.2 does not notice a change within a second that leaves the size as it is.
FILES = Scenario("files that change", (Ask(EDIT),), files={"a.txt": "first\n"})


async def test_each_reverts_and_restores_what_the_other_changed(theirs: Original, wire: WireServer) -> None:
    project = theirs.project
    async with ours_beside(theirs) as ours:
        [session] = (await play(ours, FILES, wire)).sessions
        prompt = (await ours.messages(session))[0].info["id"]
    file = project / "files-that-change" / "a.txt"
    assert file.read_text() == "two\n"
    theirs.opencode.revert(session, prompt)
    assert file.read_text() == "first\n"
    theirs.opencode.unrevert(session)
    assert file.read_text() == "two\n"

    file.unlink()
    [other] = (await play(theirs, FILES._replace(name="files that change too"), wire)).sessions
    file = project / "files-that-change-too" / "a.txt"
    theirs.opencode.settle()
    async with ours_beside(theirs) as ours:
        await ours.revert(other, (await ours.messages(other))[0].info["id"], None)
        assert file.read_text() == "first\n"
        assert theirs.opencode.get(other)["revert"]["messageID"]
        await ours.unrevert(other)
    assert file.read_text() == "two\n"
    assert "revert" not in theirs.opencode.get(other)
