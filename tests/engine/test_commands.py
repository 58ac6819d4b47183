from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.errors import ModelNotFoundError, NotFoundError
from opensesh.models.request import Text, User
from opensesh.storage import keys
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel

from .harness import EngineHarness, open_harness

GREET: dict[str, Any] = {"command": {"greet": {"template": "Greet $1, then $2."}}}


async def give(harness: EngineHarness, name: str, arguments: str = "", **more: Any) -> Any:
    value: dict[str, Any] = {"model": "scripted/it"} | more
    outcome = await harness.engine.command(harness.session, name, arguments, **value)
    return await asyncio.wait_for(outcome, 60)


def typed(harness: EngineHarness) -> str:
    """What the newest prompt says."""
    prompt = [message for message in harness.messages() if message.info["role"] == "user"][-1]
    return "".join(part["text"] for part in prompt.parts if part["type"] == "text" and not part.get("synthetic"))


async def test_a_command_is_its_template_with_the_arguments_in_place() -> None:
    async with open_harness("SAY done", config=GREET) as harness:
        assert (await give(harness, "greet", '"the moon" the sun and the stars')).kind == "answered"
        assert typed(harness) == "Greet the moon, then the sun and the stars."
        (reported,) = harness.published(events.CommandExecuted)
        assert reported.properties["name"] == "greet"
        assert reported.properties["messageID"] == harness.messages()[-1].info["id"]
        harness.assert_sound()


async def test_a_command_may_be_named_with_its_slash_and_one_that_is_not_there_is_named() -> None:
    async with open_harness("SAY done", config=GREET) as harness:
        assert (await give(harness, "/greet", "you")).kind == "answered"
        with pytest.raises(NotFoundError, match="greet, init, review"):
            await give(harness, "great")


async def test_what_a_templates_shell_commands_print_stands_in_their_place() -> None:
    template = "Look: !`echo one; echo error >&2` and !`pwd`; typed: $ARGUMENTS"
    Path("here").mkdir()
    async with open_harness("SAY done", config={"command": {"look": {"template": template}}}) as harness:
        await give(harness, "look", "!`touch was-run`")
        assert typed(harness) == f"Look: one\n and {os.getcwd()}\n; typed: !`touch was-run`"
        assert not Path("was-run").exists(), "an argument is not a command"


async def test_a_shell_command_that_fails_costs_only_itself() -> None:
    template = "A !`exit 3` B !`no-such-program` C !`printf '\\377'` D"
    async with open_harness("SAY done", config={"command": {"look": {"template": template}}}) as harness:
        await give(harness, "look")
        assert typed(harness) == "A  B  C \N{REPLACEMENT CHARACTER} D"


async def test_cancelling_a_command_ends_its_shell_commands_and_stores_nothing() -> None:
    template = "!`touch begun; sleep 60; touch ended`"
    async with open_harness("SAY never", config={"command": {"slow": {"template": template}}}) as harness:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(give(harness, "slow"))
            await harness.until(Path("begun").exists)
            task.cancel()
        assert harness.messages() == []
        assert harness.engine.status() == {}


async def test_files_and_agents_that_a_template_mentions_are_attached() -> None:
    Path("notes.txt").write_text("remember the milk")
    async with open_harness(
        "SAY done", config={"command": {"read": {"template": "Read @notes.txt with @explore."}}}
    ) as harness:
        await give(harness, "read")
        kinds = [part["type"] for part in harness.messages()[0].parts]
        assert "file" in kinds
        assert "agent" in kinds
        sent = [turn for turn in harness.model.calls[0].request.messages if isinstance(turn, User)]
        texts = [item.text for turn in sent for item in turn.content if isinstance(item, Text)]
        assert any("remember the milk" in text for text in texts)


async def test_what_a_shell_command_prints_mentions_nothing() -> None:
    Path("notes.txt").write_text("remember the milk")
    Path("other.txt").write_text("and the bread")
    template = "The last commits: !`echo @notes.txt` and @other.txt"
    async with open_harness("SAY done", config={"command": {"look": {"template": template}}}) as harness:
        await give(harness, "look")
        assert typed(harness) == "The last commits: @notes.txt\n and @other.txt"
        assert [part["filename"] for part in harness.messages()[0].parts if part["type"] == "file"] == ["other.txt"]


async def test_a_project_knows_that_it_was_initialized() -> None:
    async with open_harness("SAY one\n---\nSAY two", config=GREET) as harness:
        store, key = harness.engine.sessions.store, keys.project(harness.engine.location.id)
        await give(harness, "greet")
        before = store.read(key)
        assert "initialized" not in before["time"]
        await give(harness, "init")
        after = store.read(key)
        assert [*after["time"]] == [*before["time"], "initialized"]
        assert after == before | {"time": after["time"]}
        assert after["time"] == before["time"] | {"initialized": after["time"]["initialized"]}


async def test_what_is_attached_to_a_command_comes_behind_its_text() -> None:
    async with open_harness("SAY done", config=GREET) as harness:
        attached = {"type": "file", "mime": "text/plain", "filename": "a", "url": "data:text/plain,hello"}
        await give(harness, "greet", parts=[attached])
        assert harness.messages()[0].parts[0]["text"] == "Greet , then ."
        assert harness.parts("file")[0]["filename"] == "a"


async def test_the_agent_and_the_model_of_a_command_go_before_those_that_were_asked_for() -> None:
    config = {
        "agent": {"poet": {"mode": "primary", "model": "scripted/verse", "prompt": "Rhyme."}},
        "command": {
            "rhyme": {"template": "Go.", "agent": "poet"},
            "prose": {"template": "Go.", "agent": "poet", "model": "scripted/it"},
        },
    }
    async with open_harness("SAY prose", config=config, verse=ScriptedModel("SAY verse")) as harness:
        await give(harness, "rhyme", agent="build")
        await give(harness, "prose", model="scripted/verse")
        prompts = [message.info for message in harness.messages() if message.info["role"] == "user"]
        assert [(prompt["agent"], prompt["model"]["modelID"]) for prompt in prompts] == [
            ("poet", "verse"),
            ("poet", "it"),
        ]
        assert harness.text() == "verseprose"


async def test_a_model_that_is_not_there_is_refused_before_anything_is_stored() -> None:
    async with open_harness("SAY never", config=GREET) as harness:
        with pytest.raises(ModelNotFoundError):
            await give(harness, "greet", model="nobody/nothing")
        assert harness.messages() == []


@pytest.mark.parametrize("subtask", [{"agent": "explore"}, {"subtask": True, "agent": "general"}])
async def test_a_command_for_a_subagent_runs_in_a_session_of_its_own(subtask: dict[str, Any]) -> None:
    config = {"command": {"look": {"template": "Look at $1.", "description": "a look"} | subtask}}
    async with open_harness("SAY seen\n---\nSAY done", config=config) as harness:
        assert (await give(harness, "look", "it")).kind == "answered"
        (part,) = harness.parts("subtask")
        assert (part["prompt"], part["description"], part["command"]) == ("Look at it.", "a look", "look")
        assert harness.messages()[0].info["agent"] == "build"
        (child,) = harness.engine.sessions.children(harness.session)
        assert typed_in(harness, child.id) == "Look at it."
        harness.assert_sound()


async def test_a_subtask_needs_no_subagent_where_the_user_orders_it() -> None:
    async with open_harness("SAY two bugs\n---\nSAY done") as harness:
        assert (await give(harness, "review")).kind == "answered"
        (part,) = harness.parts("tool")
        assert (part["state"]["status"], part["state"]["input"]["subagent_type"]) == ("completed", "build")
        assert "two bugs" in part["state"]["output"]


@pytest.mark.parametrize("config", [{"permission": {"task": "deny"}}, {"agent": {"build": {"steps": 1}}}])
async def test_a_subtask_that_the_user_orders_runs_where_the_model_could_not_have_asked_for_it(config: Any) -> None:
    async with open_harness("SAY two bugs\n---\nSAY done", config=config) as harness:
        assert (await give(harness, "review")).kind == "answered"
        (part,) = harness.parts("tool")
        assert (part["tool"], part["state"]["status"]) == ("task", "completed")


async def test_a_subtask_runs_by_the_model_of_its_command() -> None:
    config = {"command": {"look": {"template": "Look.", "agent": "general", "model": "scripted/other"}}}
    async with open_harness("SAY done", config=config, other=ScriptedModel("SAY seen")) as harness:
        assert (await give(harness, "look", model="scripted/it")).kind == "answered"
        (child,) = harness.engine.sessions.children(harness.session)
        assert harness.messages(child.id)[0].info["model"]["modelID"] == "other"
        assert [answer.info["modelID"] for answer in harness.answers()] == ["other", "it"]
        assert harness.parts("tool")[0]["state"]["metadata"]["model"]["modelID"] == "other"


async def test_files_that_the_user_mentions_in_a_subtask_go_along(isolated: Path) -> None:
    (isolated / "work" / "notes.txt").write_text("remember the milk")
    config = {"command": {"look": {"template": "Look at $ARGUMENTS.", "agent": "general"}}}
    async with open_harness("EXPECT last remember the milk\nSAY seen\n---\nSAY done", config=config) as harness:
        assert (await give(harness, "look", "@notes.txt")).kind == "answered"
        harness.model.assert_complete()


def typed_in(harness: EngineHarness, session: str) -> str:
    return "".join(part["text"] for part in harness.messages(session)[0].parts if part["type"] == "text")


async def test_a_subagents_command_that_is_not_a_subtask_runs_in_the_session_itself() -> None:
    config = {"command": {"look": {"template": "Look.", "agent": "explore", "subtask": False}}}
    async with open_harness("SAY done", config=config) as harness:
        await give(harness, "look")
        assert harness.messages()[0].info["agent"] == "explore"
        assert harness.parts("subtask") == []


async def test_a_skill_is_a_command_too() -> None:
    skill = Path(".opencode/skill/tidy/SKILL.md")
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tidy\ndescription: how to tidy up\n---\nPut everything back.\n")
    async with open_harness("SAY done", store=Memory()) as harness:
        await give(harness, "tidy", "the kitchen")
        assert typed(harness).split() == "Put everything back. the kitchen".split()


async def test_a_command_that_cannot_be_given_says_so_on_the_bus_as_well() -> None:
    config = {"command": {"broken": {"template": "Go.", "agent": "nobody"}}}
    async with open_harness("SAY never", config=config) as harness:
        with pytest.raises(NotFoundError):
            await give(harness, "broken")
        assert harness.published(events.SessionError)
        assert harness.messages() == []
