from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from opensesh.testing.wire import WireServer

from . import scenarios
from .comparison import compare, normal
from .differences import EXPECTED, USED_BY, unexplained
from .opencode import OpenCode, new_repository
from .scenarios import AFTER_A_WHILE, SCENARIOS, Ask, Compact, Interject, Json, Revert, Scenario, Stop
from .sides import EvenModel, Original, Ours, Side, folder_of, play

pytestmark = pytest.mark.interop

PAGE = Path(__file__).parents[2] / "docs" / "design" / "2026-11-differences-from-opencode.md"


@pytest.fixture(scope="module")
def wire() -> Iterator[WireServer]:
    with WireServer(EvenModel.prompted()) as server:
        yield server


@pytest.fixture(scope="module")
def theirs(wire: WireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    root = tmp_path_factory.mktemp("opencode")
    with OpenCode(root, wire, config=scenarios.config(wire.base_url)) as opencode:
        yield Original(opencode)


@pytest.fixture(scope="module")
def ours_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("opensesh")
    new_repository(root / "work")
    return root


CASES = [
    pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] if scenario.slow else [])
    for scenario in SCENARIOS
]


@pytest.mark.parametrize("scenario", CASES)
async def test_both_store_the_same(scenario: Scenario, theirs: Original, ours_root: Path, wire: WireServer) -> None:
    if scenario.needs and not shutil.which(scenario.needs):
        pytest.skip(f"{scenario.needs} is not installed, and OpenCode would fetch it")
    one = await play(theirs, scenario, wire)
    async with Ours(ours_root, ours_root / "work", theirs.config) as ours:
        other = await play(ours, scenario, wire)
    assert all(scenario.shows in json.dumps(normal(played)) for played in (one, other))
    expected = [EXPECTED[name] for name in USED_BY.get(scenario.name, ())]
    unexpected, unmet = unexplained(compare(one, other), expected)
    assert not unexpected, "\n".join(map(str, unexpected))
    assert not unmet


LOOK = 'THINK hm\nSAY I look.\nCALL bash {"command": "echo hi; exit 3", "description": "look"}\n---\nSAY Seen.'
LATE = "ERROR rate-limit after=0.05 form=ms\nSAY At last."
HALF = "SAY Half.\nHANG"
SLEEP = 'CALL bash {"command": "sleep 30", "description": "sleep"}'
WORK = f'CALL bash {{"command": "{scenarios.WAITING}", "description": "work"}}'

EVERYTHING = Scenario(
    "everything at once",
    (
        Ask(LOOK),
        Ask(LATE),
        Ask("ERROR 400"),
        Stop(HALF, "text"),
        Stop(SLEEP, "tool"),
        Interject(WORK, "SAY I noticed that."),
        Ask("SAY Read.", (scenarios.file("a.txt"), scenarios.file("p.png", "image/png"))),
        Ask("SAY Planned.", (), {"agent": "plan"}),
    ),
    files={"a.txt": "one\n", "p.png": scenarios.PIXEL},
)
SAME_WORDS = EVERYTHING._replace(acts=(*EVERYTHING.acts[:6], Ask("SAY Read.", (scenarios.file("a.txt"),))))
"""Without the two texts that OpenCode words differently in every request: the end of plan mode, unsupported images."""

SAID = [
    *(LOOK, "I look.", "Seen."),
    *(LATE, "At last."),
    "ERROR 400",
    *(HALF, "Half."),
    SLEEP,
    *(WORK, "SAY I noticed that.", "I noticed that."),
    *("SAY Read.", "Read."),
    *("SAY Planned.", "Planned."),
    "SAY Carried on.",
]


async def test_opencode_continues_what_opensesh_ran(theirs: Original, wire: WireServer) -> None:
    async with Ours(theirs.opencode.root, theirs.project, theirs.config) as ours:
        [session] = (await play(ours, EVERYTHING, wire)).sessions
        ran = await ours.messages(session)
    assert [{"info": entry.info, "parts": entry.parts} for entry in ran] == theirs.opencode.messages(session)
    assert session in [key["id"] for key in theirs.opencode.list()]
    exported = theirs.opencode.export(session)
    assert exported["info"]["title"] == EVERYTHING.name
    assert [item["info"]["id"] for item in exported["messages"]] == [entry.info["id"] for entry in ran]

    await put(theirs, session, "SAY Carried on.")

    sent = texts(check(wire.conversation[-1].outline["messages"]))
    output = [text.replace("{at}", str(theirs.project / folder_of(EVERYTHING))) for text in SAID]
    assert [text for text in sent if text in output] == output
    assert [entry.info["id"] for entry in await theirs.messages(session)][: len(ran)] == [
        entry.info["id"] for entry in ran
    ]
    last = (await theirs.messages(session))[-1]
    assert [part["text"] for part in last.parts if part["type"] == "text"] == ["Carried on."]


async def test_opencode_continues_a_session_with_a_title_of_opensesh(theirs: Original, wire: WireServer) -> None:
    named = next(scenario for scenario in SCENARIOS if not scenario.titled)
    async with Ours(theirs.opencode.root, theirs.project, theirs.config) as ours:
        [session] = (await play(ours, named, wire)).sessions
        assert "calls" in (await ours.messages(session))[0].info["opensesh"]
    title = theirs.opencode.get(session)["title"]
    assert theirs.opencode.export(session)["info"]["title"] == title
    await put(theirs, session, "SAY Carried on.")
    assert theirs.opencode.get(session)["title"] == title


async def test_opensesh_continues_what_opencode_ran_with_the_same_request(theirs: Original, wire: WireServer) -> None:
    [session] = (await play(theirs, SAME_WORDS, wire)).sessions
    ran = await theirs.messages(session)
    copy = await theirs.fork(session, None)
    await put(theirs, copy, "SAY Carried on.")
    expected = wire.conversation[-1].outline["messages"]

    async with Ours(theirs.opencode.root, theirs.project, theirs.config) as ours:
        await put(ours, session, "SAY Carried on.")
        assert check(wire.conversation[-1].outline["messages"]) == expected
        assert [item.info["id"] for item in await ours.messages(session)][: len(ran)] == [
            item.info["id"] for item in ran
        ]

    await put(theirs, session, "SAY And on.")
    check(wire.conversation[-1].outline["messages"])
    last = (await theirs.messages(session))[-1]
    assert [part["text"] for part in last.parts if part["type"] == "text"] == ["And on."]


COMPACTED = Scenario("compacted and handed over", (Ask("SAY Forgotten."), Compact(), Ask("SAY Kept.")))
REVERTED = Scenario(
    "reverted and handed over",
    (
        Ask(f'{AFTER_A_WHILE}CALL write {{"filePath": "{{at}}/a.txt", "content": "kept"}}\n---\nSAY Kept.'),
        Ask(f'{AFTER_A_WHILE}CALL write {{"filePath": "{{at}}/b.txt", "content": "gone"}}\n---\nSAY Forgotten.'),
        Revert(3),
    ),
    files={"other.txt": "other"},
)


@pytest.mark.parametrize("scenario", [COMPACTED, REVERTED], ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("ours_first", [True, False], ids=["to OpenCode", "to opensesh"])
async def test_each_program_continues_what_the_other_compacted_or_reverted(
    scenario: Scenario, ours_first: bool, theirs: Original, wire: WireServer
) -> None:
    scenario = scenario._replace(name=f"{scenario.name} {'there' if ours_first else 'here'}")
    async with Ours(theirs.opencode.root, theirs.project, theirs.config) as ours:
        first, second = (ours, theirs) if ours_first else (theirs, ours)
        [session] = (await play(first, scenario, wire)).sessions
        await put(second, session, "SAY Carried on.")
        sent = texts(check(wire.conversation[-1].outline["messages"]))
        assert "Kept." in sent
        assert "Forgotten." not in sent
        text = [part["text"] for part in (await second.messages(session))[-1].parts if part["type"] == "text"]
        assert text == ["Carried on."]
        await theirs.settle()

        await put(first, session, "SAY And on.")
        assert "Carried on." in texts(check(wire.conversation[-1].outline["messages"]))
        assert theirs.opencode.get(session)["title"] == scenario.name
        assert "revert" not in theirs.opencode.get(session)
        files = {path.name for path in (theirs.project / folder_of(scenario)).iterdir()}
        assert files == ({"a.txt", "other.txt"} if scenario.files else set())


def texts(messages: list[Json]) -> list[str]:
    """Return the texts of the messages, in order."""
    texts: list[str] = []
    for message in messages:
        content = message["content"]
        texts += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return texts


async def put(side: Side, session: str, script: str) -> None:
    await side.begin(session, [{"type": "text", "text": script}], {})
    await side.finish(session)


def check(messages: list[Json]) -> list[Json]:
    """Assert what every provider requires: the user begins, and each tool call is followed by its result."""
    assert messages[0]["role"] == "user"
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
        waiting += [call["id"] for call in message.get("tool_calls", ())]
        assert message["content"] or message["role"] == "tool" or message["tool_calls"]
    assert not waiting
    return messages


ARGUMENTS = {
    ("bash", "needs description"): "some models leave it out, and nothing depends on it",
    ("webfetch", "needs format"): "there is a default",
    ("read", "takes limit: number"): "half a line cannot be read",
    ("read", "takes offset: number"): "half a line cannot be read",
    ("read", "takes limit: integer"): "the same, as we have it",
    ("read", "takes offset: integer"): "the same, as we have it",
}
"""Tool arguments that only one side has or requires."""


async def test_the_tools_take_the_same_arguments(theirs: Original, ours_root: Path, wire: WireServer) -> None:
    await play(theirs, SCENARIOS[0], wire)
    expected = arguments(wire.conversation[-1].body["tools"])
    async with Ours(ours_root, ours_root / "work", theirs.config) as ours:
        await play(ours, SCENARIOS[0], wire)
    assert expected ^ arguments(wire.conversation[-1].body["tools"]) == set(ARGUMENTS)


def arguments(tools: list[Json]) -> set[tuple[str, str]]:
    result: set[tuple[str, str]] = set()
    for function in (tool["function"] for tool in tools):
        schema = function["parameters"]
        takes = [f"takes {name}: {item.get('type')}" for name, item in schema["properties"].items()]
        needs = [f"needs {name}" for name in schema.get("required", ())]
        result |= {(function["name"], item) for item in (*takes, *needs)}
    return result


def test_every_expected_difference_shows_somewhere_and_is_explained() -> None:
    names = {name for used in USED_BY.values() for name in used}
    assert names == set(EXPECTED)
    assert set(USED_BY) <= {scenario.name for scenario in SCENARIOS}
    page = PAGE.read_text("utf-8")
    assert [name for name in EXPECTED if f"| {name} |" not in page] == []
