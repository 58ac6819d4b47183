from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any, Literal

import pytest

from opensesh import events
from opensesh.bus import Envelope
from opensesh.engine.settings import Budget, Settings
from opensesh.records import Rule
from opensesh.testing.scripted import ScriptedModel
from opensesh.tools.custom import tool

from .harness import EngineHarness, echo, hanging, open_harness
from .test_calls import child, task


@tool
async def risky() -> str:
    """Do something that has to be asked for."""
    return "done"


def family(script: str) -> ScriptedModel:
    """A parent that gives one task, and a child that plays ``script``."""
    return ScriptedModel(f"{task()}\n---\nSAY ok", sessions={"CHILD": script}, route=child)


def failed(it: EngineHarness) -> dict[str, Any]:
    (part,) = it.parts("tool")
    assert part["state"]["status"] == "error"
    (made,) = it.engine.sessions.children(it.session)
    assert part["state"]["metadata"]["sessionId"] == made.id
    assert f"task_id: {made.id}" in part["state"]["error"]
    return part["state"]


async def test_a_child_that_fails_reports_that_and_its_text() -> None:
    async with open_harness(family("SAY I saw a hedge.\nERROR auth")) as it:
        assert (await it.ask()).kind == "answered"
        state = failed(it)
        assert state["metadata"]["state"] == "failed"
        assert "What it had said until then:\nI saw a hedge." in state["error"]


async def test_a_child_that_is_stopped_is_aborted_and_its_parent_continues() -> None:
    started = asyncio.Event()
    async with open_harness(family("CALL hang {}\n---\nSAY never"), tools=[hanging(started)]) as it:
        outcome = await it.submit()
        await started.wait()
        (made,) = it.engine.sessions.children(it.session)
        it.engine.abort(made.id)
        assert (await outcome).kind == "answered"
        assert failed(it)["metadata"]["state"] == "aborted"


async def test_what_a_child_asks_reaches_the_user_whose_yes_lets_it_continue() -> None:
    config = {"permission": {"risky": "ask"}}
    async with open_harness(family("CALL risky {}\n---\nSAY It is done."), config=config, tools=[risky]) as it:
        outcome = await it.submit()
        asked = await it.until_published(events.PermissionAsked)
        assert asked.session_id == it.engine.sessions.children(it.session)[0].id
        it.engine.reply_permission(asked.id, "once")
        assert (await outcome).kind == "answered"
        assert "It is done." in it.parts("tool")[0]["state"]["output"]


async def test_what_is_left_to_primary_agents_is_not_offered_to_a_child() -> None:
    config = {"experimental": {"primary_tools": ["risky", "write"]}}
    async with open_harness(family("SAY Done."), config=config, tools=[risky]) as it:
        await it.ask()
        parents, childs = set(it.model.tools_offered(0)), set(it.model.tools_offered(1))
        assert {"risky", "write", "edit"} <= parents
        assert not {"risky", "write"} & childs
        assert {"edit", "read"} <= childs


def rule(permission: str, action: Literal["allow", "ask", "deny"], pattern: str = "*") -> Rule:
    return Rule(permission=permission, pattern=pattern, action=action)


ONLY_ECHO = [rule("*", "deny"), rule("task", "allow"), rule("bash", "allow", "echo *"), rule("read", "allow")]
STRICT = {"mode": "subagent", "permission": {"bash": {"echo no*": "deny"}}}


@pytest.mark.parametrize(
    ("rules", "agent", "command", "state"),
    [
        (ONLY_ECHO, "general", "echo yes", "completed"),
        (ONLY_ECHO, "general", "touch x", "error"),
        (ONLY_ECHO, "strict", "echo yes", "completed"),
        (ONLY_ECHO, "strict", "echo no", "error"),
        ([*ONLY_ECHO, rule("bash", "deny")], "general", "echo yes", "error"),
        ([rule("bash", "ask")], "general", "echo yes", "error"),
        ([rule("bash", "ask"), rule("bash", "allow", "echo *")], "general", "echo yes", "completed"),
        ([rule("bash", "ask"), rule("b*", "allow")], "strict", "echo no", "error"),
        ([rule("bash", "deny", "touch *")], "general", "touch x", "error"),
        ([rule("bash", "deny", "touch *")], "general", "echo yes", "completed"),
    ],
)
async def test_the_rules_of_a_session_hold_for_its_subagents_too(
    rules: list[Rule], agent: str, command: str, state: str
) -> None:
    script = f"CALL bash {json.dumps({'command': command, 'description': 'x'})}\n---\nSAY done"
    model = ScriptedModel(f"{task(agent)}\n---\nSAY ok", sessions={"CHILD": script}, route=child)
    async with open_harness(model, config={"agent": {"strict": STRICT}}, rules=rules) as it:

        def refuse(envelope: Envelope) -> None:
            if isinstance(envelope.event, events.PermissionAsked):
                it.engine.reply_permission(envelope.event.id, "reject")

        it.engine.bus.listen(refuse)
        await it.ask()
        (made,) = it.engine.sessions.children(it.session)
        assert [part["state"]["status"] for part in it.parts("tool", made.id)] == [state]


async def test_a_no_is_a_result_of_its_own_kind() -> None:
    config = {"permission": {"risky": "ask"}}
    async with open_harness(family("CALL risky {}\n---\nSAY never"), config=config, tools=[risky]) as it:
        outcome = await it.submit()
        asked = await it.until_published(events.PermissionAsked)
        it.engine.reply_permission(asked.id, "reject")
        await outcome
        assert failed(it)["metadata"]["state"] == "refused"


async def test_a_child_that_takes_too_long_is_stopped() -> None:
    settings = Settings(task_seconds=0.3)
    async with open_harness(family("CALL hang {}\n---\nSAY never"), settings=settings, tools=[hanging()]) as it:
        assert (await it.ask()).kind == "answered"
        state = failed(it)
        assert state["metadata"]["state"] == "timed out"
        assert "it took longer than 0.3 s" in state["error"]
        (made,) = it.engine.sessions.children(it.session)
        (part,) = it.parts("tool", made.id)
        assert part["state"]["status"] == "error", "and its own calls are brought to an end"


async def test_the_time_that_a_person_takes_to_answer_does_not_count() -> None:
    config = {"permission": {"risky": "ask"}}
    script = family("CALL risky {}\n---\nSAY It is done.")
    async with open_harness(script, settings=Settings(task_seconds=4.0), config=config, tools=[risky]) as it:
        outcome = await it.submit()
        asked = await it.until_published(events.PermissionAsked)
        await asyncio.sleep(4.5)
        it.engine.reply_permission(asked.id, "once")
        assert (await outcome).kind == "answered"
        assert it.parts("tool")[0]["state"]["status"] == "completed"


async def test_a_child_has_a_budget_of_its_own_and_its_parent_continues_without_it() -> None:
    work = "".join(f'CALL echo {{"n": {number}}}\nUSAGE input=1000 output=1\n---\n' for number in range(9))
    settings = Settings(budget=Budget(task=Decimal("0.02")))
    async with open_harness(family(f"{work}SAY never"), settings=settings, tools=[echo()]) as it:
        assert (await it.ask()).kind == "answered"
        state = failed(it)
        assert state["metadata"]["state"] == "over budget"
        assert "the budget of this task, $0.02, does not pay the next request: $0.01" in state["error"]


NESTING: dict[str, Any] = {
    "agent": {"nested": {"mode": "subagent", "description": "Hands on.", "permission": {"task": "allow"}}}
}


async def deepest(config: dict[str, Any]) -> tuple[int, str]:
    """How many sessions stand above one another when every agent hands its work on, and what the last one got."""
    model = ScriptedModel(None)
    script = task("nested", prompt="PROMPT") + "\n---\nSAY done"
    for _ in range(6):
        script = task("nested", prompt=script) + "\n---\nSAY done"
    async with open_harness(model, config=config) as it:
        await it.ask(script)
        depth, session = 0, it.session
        while below := it.engine.sessions.children(session):
            depth, session = depth + 1, below[0].id
        (part,) = it.parts("tool", session)
        return depth, part["state"]["error"]


async def test_work_is_not_handed_on_for_ever() -> None:
    depth, reported = await deepest(NESTING)
    assert depth == 3
    assert "it is 3 deep (subagent_depth in the configuration" in reported


async def test_the_configuration_says_how_far() -> None:
    assert (await deepest(NESTING | {"subagent_depth": 1}))[0] == 1


async def test_only_agents_that_can_be_given_work_are_proposed() -> None:
    config = {"permission": {"task": {"explore": "deny"}}}
    async with open_harness(f"{task('nobody')}\n---\nSAY ok", config=config) as it:
        await it.ask()
        (part,) = it.parts("tool")
        assert part["state"]["error"] == "Error: there is no agent 'nobody'; the subagents are: general"
