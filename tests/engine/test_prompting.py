from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from opensesh import ids
from opensesh.engine.prompt import Prompt, file_part, text_prompt
from opensesh.engine.prompts import format_day
from opensesh.errors import OpenseshError, UsageError
from opensesh.models.request import File, User
from opensesh.storage.memory import Memory
from opensesh.workspace.revert import Reverts

from .harness import EngineHarness, WriteLog, open_harness

PNG = b"\x89PNG\r\n\x1a\n tiny"


@pytest.fixture
def work(isolated: Path) -> Path:
    return isolated / "work"


def sent_files(harness: EngineHarness, number: int = 0) -> list[File]:
    users = [message for message in harness.model.calls[number].request.messages if isinstance(message, User)]
    return [piece for message in users for piece in message.content if isinstance(piece, File)]


async def test_instruction_files_stand_in_the_system_prompt(work: Path) -> None:
    (work / "AGENTS.md").write_text("Always whistle.")
    async with open_harness("EXPECT system Always whistle.\nSAY ok") as harness:
        assert (await harness.ask()).kind == "answered"
        harness.model.assert_complete()


async def test_instructions_of_a_folder_come_with_the_first_file_read_in_it(work: Path) -> None:
    below = work / "below"
    below.mkdir()
    (below / "AGENTS.md").write_text("Here we hum.")
    (below / "a.py").write_text("a = 1")
    (below / "b.py").write_text("b = 1")
    reads = "\n---\n".join(f'CALL read {{"filePath": "{below / name}"}}' for name in ("a.py", "b.py"))
    store = Memory()
    async with open_harness(f"{reads}\n---\nSAY ok", store=store) as harness:
        await harness.ask()
        one, two = (part["state"]["output"] for part in harness.parts("tool"))
        assert "Here we hum." in one
        assert "Here we hum." not in two
        session = harness.session
    async with open_harness(f'CALL read {{"filePath": "{below / "b.py"}"}}\n---\nSAY ok', store=store) as harness:
        await harness.ask(session=session)
        assert "Here we hum." not in harness.parts("tool", session)[-1]["state"]["output"]


async def test_instructions_of_a_folder_come_with_a_file_that_is_attached(work: Path) -> None:
    (work / "AGENTS.md").write_text("Always whistle.")
    below = work / "below"
    below.mkdir()
    (below / "AGENTS.md").write_text("Here we hum.")
    names = [str(below / name) for name in ("a.py", "b.py")]
    for name in names:
        Path(name).write_text("1")
    async with open_harness("SAY ok") as harness:
        await harness.ask(text_prompt("Look.", names, model="scripted/it"))
        one, two = (part["text"] for part in harness.parts("text") if part["text"].startswith("<path>"))
        assert one.endswith(f"Instructions from: {below / 'AGENTS.md'}\nHere we hum.\n</system-reminder>")
        assert "Always whistle." not in one
        assert two.endswith("</content>")


async def test_the_words_of_the_caller_join_the_system_prompt() -> None:
    async with open_harness("EXPECT system Speak like a pirate.\nSAY Arr.") as harness:
        await harness.ask(system="Speak like a pirate.")
        harness.model.assert_complete()


async def test_files_that_a_prompt_mentions_are_read_as_the_model_would(work: Path) -> None:
    (work / "notes.txt").write_text("remember the milk\n")
    async with open_harness("EXPECT last remember the milk\nSAY ok") as harness:
        prompt = text_prompt("See the notes.", [str(work / "notes.txt")], model="scripted/it")
        assert (await harness.ask(prompt)).kind == "answered"
        harness.model.assert_complete()
        own, called, shown, kept = harness.messages()[0].parts
        assert "synthetic" not in own
        assert called["synthetic"] is shown["synthetic"] is True
        assert "notes.txt" in called["text"]
        assert kept["type"] == "file"


async def test_a_file_whose_name_has_everything_in_it_is_found(work: Path) -> None:
    path = work / "100%25 odd #1?.txt"
    path.write_text("found it")
    async with open_harness("EXPECT last found it\nSAY ok") as harness:
        await harness.ask(text_prompt("Look.", [str(path)], model="scripted/it"))
        harness.model.assert_complete()


async def test_lines_of_a_file_can_be_asked_for(work: Path) -> None:
    (work / "long.txt").write_text("\n".join(f"line {n}" for n in range(1, 100)))
    part = file_part(str(work / "long.txt"))
    part["url"] += "?start=10&end=12"
    async with open_harness("SAY ok") as harness:
        await harness.ask(Prompt(parts=({"type": "text", "text": "x"}, part), model="scripted/it"))
        shown = harness.messages()[0].parts[2]["text"]
        assert "10: line 10" in shown
        assert "12: line 12" in shown
        assert "line 13" not in shown


async def test_images_are_carried_along_and_seen_by_the_model(work: Path) -> None:
    (work / "a.png").write_bytes(PNG)
    async with open_harness("SAY ok") as harness:
        await harness.ask(text_prompt("Look.", [str(work / "a.png")], model="scripted/it"))
        (file,) = sent_files(harness)
        assert file.mime == "image/png"
        assert base64.b64decode(file.url.partition(",")[2]) == PNG


async def test_an_image_that_came_as_text_keeps_its_name(work: Path) -> None:
    (work / "a.png").write_bytes(PNG)
    part = {"type": "file", "mime": "text/plain", "filename": "a.png", "url": (work / "a.png").as_uri()}
    async with open_harness("SAY ok") as harness:
        await harness.ask(Prompt(parts=({"type": "text", "text": "x"}, part), model="scripted/it"))
        (stored,) = harness.parts("file")
        assert (stored["mime"], stored["filename"]) == ("image/png", "a.png")


async def test_a_file_that_cannot_be_read_is_reported_and_the_prompt_continues(work: Path) -> None:
    gone = {"type": "file", "mime": "text/plain", "url": (work / "gone.txt").as_uri(), "filename": "gone.txt"}
    picture = gone | {"mime": "image/png", "url": (work / "gone.png").as_uri()}
    async with open_harness("EXPECT last failed\nSAY ok") as harness:
        parts: tuple[dict[str, Any], ...] = ({"type": "text", "text": "x"}, gone, picture)
        assert (await harness.ask(Prompt(parts=parts, model="scripted/it"))).kind == "answered"
        harness.model.assert_complete()


async def test_text_in_a_data_url_is_shown_and_a_damaged_one_is_refused() -> None:
    data = {"type": "file", "mime": "text/plain", "filename": "n.txt", "url": "data:text/plain;base64,aGVsbG8="}
    async with open_harness("EXPECT last hello\nSAY ok\n---\nEXPECT last a b\nSAY ok") as harness:
        await harness.ask(Prompt(parts=(data,), model="scripted/it"))
        await harness.ask(Prompt(parts=(data | {"url": "data:,a%20b"},), model="scripted/it"))
        harness.model.assert_complete()
        with pytest.raises(UsageError):
            await harness.ask(Prompt(parts=(data | {"url": "data:text/plain;base64,aGV"},), model="scripted/it"))


async def test_names_that_a_client_gave_its_parts_are_kept() -> None:
    part = {"type": "text", "text": "x", "id": "prt_mine", "ignored": True, "metadata": {"a": 1}}
    async with open_harness("SAY ok") as harness:
        await harness.ask(Prompt(parts=({"type": "text", "text": "y"}, part), model="scripted/it"))
        stored = next(item for item in harness.messages()[0].parts if item["id"] == "prt_mine")
        assert stored["ignored"] is True
        assert stored["metadata"] == {"a": 1}
        assert "x" not in harness.model.model_text(0).splitlines()


async def test_what_a_client_says_of_its_parts_is_kept_in_the_order_of_the_schema(work: Path) -> None:
    (work / "a.py").write_text("def f(): pass\n")
    text = {"metadata": {"a": 1}, "time": {"end": 2, "start": 1}, "text": "See @f.", "type": "text"}
    source = {"type": "symbol", "path": "a.py", "name": "f", "kind": 12, "text": {"start": 4, "end": 6, "value": "@f"}}
    file = file_part(str(work / "a.py")) | {"source": source}
    async with open_harness("SAY ok") as harness:
        await harness.ask(Prompt(parts=(text, file), model="scripted/it"))
        output, *_, kept = harness.messages()[0].parts
        assert list(output)[3:] == ["type", "text", "time", "metadata"]
        assert list(output["time"].items()) == [("start", 1), ("end", 2)]
        assert list(kept["source"]) == ["text", "type", "path", "name", "kind"]
        assert list(kept["source"]["text"]) == ["value", "start", "end"]
        assert kept["source"] == source


async def test_an_agent_that_is_mentioned_is_to_be_given_the_task() -> None:
    async with open_harness("EXPECT last 'explore'\nSAY ok") as harness:
        await harness.ask("Look into this @explore")
        harness.model.assert_complete()
        assert [part["type"] for part in harness.messages()[0].parts] == ["text", "agent", "text"]


async def test_a_message_becomes_visible_only_with_all_its_parts() -> None:
    store = WriteLog()
    async with open_harness("SAY ok", store=store) as harness:
        await harness.ask("Go.")
        keys = [key for key, _ in store.written if key[0] in ("message", "part")]
        message = harness.messages()[0]
        path = keys.index(("message", harness.session, message.info["id"]))
        assert all(keys.index(("part", message.info["id"], part["id"])) < path for part in message.parts)


async def test_a_later_date_is_in_the_prompt_and_not_in_the_system_prompt() -> None:
    store = Memory()
    async with open_harness("SAY ok\n---\nSAY ok", store=store) as harness:
        key = ("session", "global", harness.session)
        store.update(key, lambda info: info["time"].update(created=info["time"]["created"] - 3 * 86_400_000))
        await harness.ask()
        today = format_day(ids.now_ms())
        system = harness.model.calls[0].request.messages[0]
        assert today not in str(system)
        assert f"Today is {today}." in harness.model.model_text(0)


async def test_the_model_of_the_last_prompt_is_used_where_none_is_named() -> None:
    async with open_harness("SAY ok\n---\nSAY ok") as harness:
        await harness.ask()
        outcome = await harness.engine.run(harness.session, "Again.")
        assert outcome.kind == "answered"
        assert len(harness.model.calls) == 2


async def test_variants_and_options_of_the_agent_reach_the_request() -> None:
    config = {"agent": {"build": {"temperature": 0.3, "options": {"reasoningEffort": "high"}}}}
    async with open_harness("SAY ok", config=config) as harness:
        await harness.ask()
        assert harness.model.calls[0].request.options["reasoningEffort"] == "high"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "agent", "name": "general", "source": "there"},
        {"type": "agent", "name": "general", "source": {"value": 5}},
        {"type": "subtask", "prompt": "x", "agent": "general", "description": "d", "model": {"providerID": 1}},
        {"type": "text", "text": "x", "id": 5},
        {"type": "file", "mime": "text/plain", "url": "file:///a%00b"},
        {"type": "file", "mime": "image/png", "url": "file:///a%00b"},
        {"type": "file", "mime": "text/plain", "url": "file://[/a"},
    ],
)
async def test_a_part_that_makes_no_sense_is_refused_and_named(part: dict[str, Any]) -> None:
    async with open_harness("SAY never") as harness:
        with pytest.raises(UsageError, match=r"is not valid: \$|is not a valid file URL"):
            await harness.ask(Prompt(parts=(part,), model="scripted/it"))
        assert harness.messages() == []


async def test_a_source_or_a_model_of_which_only_half_is_known_is_kept_as_it_is() -> None:
    async with open_harness("SAY ok") as harness:
        await harness.ask(
            Prompt(parts=({"type": "agent", "name": "general", "source": {"value": "@g"}},), model="scripted/it")
        )
        assert harness.parts("agent")[0]["source"] == {"value": "@g", "start": 0, "end": 0}


def reverted(harness: EngineHarness) -> str:
    """Take the second prompt back; its id."""
    second = str(harness.messages()[2].info["id"])
    Reverts(harness.engine.sessions, harness.engine.components.snapshots).revert(harness.session, second)
    return second


@pytest.mark.parametrize("wrong", [{"model": "nobody/nothing"}, {"agent": "nobody"}, {"message_id": "ses_1"}])
async def test_a_prompt_that_is_refused_leaves_a_revert_standing(wrong: dict[str, Any]) -> None:
    async with open_harness("SAY one\n---\nSAY two") as harness:
        await harness.ask("First.")
        await harness.ask("Second.")
        reverted(harness)
        with pytest.raises(OpenseshError):
            await harness.ask("Third.", **wrong)
        assert harness.engine.sessions.get(harness.session).revert is not None
        Reverts(harness.engine.sessions, harness.engine.components.snapshots).unrevert(harness.session)
        assert len(harness.messages()) == 4


async def test_looking_for_something_to_take_up_leaves_a_revert_standing() -> None:
    async with open_harness("SAY one\n---\nSAY two") as harness:
        await harness.ask("First.")
        await harness.ask("Second.")
        reverted(harness)
        assert await harness.engine.resume(harness.session) is None
        assert harness.engine.sessions.get(harness.session).revert is not None
        assert len(harness.messages()) == 4


async def test_the_next_prompt_makes_a_revert_final_and_what_it_hid_is_not_sent() -> None:
    async with open_harness("SAY one\n---\nSAY two\n---\nSAY three") as harness:
        await harness.ask("First.")
        await harness.ask("Second.")
        second = reverted(harness)
        await harness.ask("Third.")
        assert harness.engine.sessions.get(harness.session).revert is None
        assert second not in [message.info["id"] for message in harness.messages()]
        assert "Second." not in harness.model.model_text(2)
        assert "First." in harness.model.model_text(2)
