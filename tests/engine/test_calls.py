from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.engine.settings import LoopLimits
from opensesh.engine.tool_calls import LoopDetector
from opensesh.records import Rule
from opensesh.testing.scripted import ScriptedModel
from opensesh.tools.custom import tool

from .harness import Acting, EngineHarness, echo, open_harness


def rule(permission: str, action: Any, pattern: str = "*") -> Rule:
    return Rule(permission=permission, pattern=pattern, action=action)


async def removes(arguments: dict[str, Any], ctx: Any) -> str:
    """Asks like bash does."""
    await ctx.ask("bash", [f"rm {arguments.get('n', '')}"], always=["rm *"], metadata={"why": "test"})
    return "removed"


REMOVE = Acting("remove", removes)


def states(harness: EngineHarness) -> list[str]:
    return [part["state"]["status"] for part in harness.parts("tool")]


async def test_a_tool_whose_name_the_model_writes_in_another_case_is_found() -> None:
    async with open_harness("CALL Remove {}\n---\nSAY ok", tools=[REMOVE], rules=[rule("bash", "allow")]) as harness:
        assert (await harness.ask()).kind == "answered"
        assert [(part["tool"], part["state"]["status"]) for part in harness.parts("tool")] == [("remove", "completed")]


# -- permission --------------------------------------------------------------------------------------------------------


async def test_a_rule_that_allows_asks_no_user() -> None:
    async with open_harness("CALL remove {}\n---\nSAY ok", tools=[REMOVE], rules=[rule("bash", "allow")]) as harness:
        assert (await harness.ask()).kind == "answered"
        assert states(harness) == ["completed"]
        assert harness.published(events.PermissionAsked) == []


async def test_a_rule_that_denies_is_reported_to_the_model_and_the_turn_continues() -> None:
    script = "CALL remove {}\n---\nEXPECT last forbids\nSAY ok"
    async with open_harness(script, tools=[REMOVE], rules=[rule("bash", "deny", "rm*")]) as harness:
        assert (await harness.ask()).kind == "answered"
        assert states(harness) == ["error"]
        assert harness.published(events.PermissionAsked) == []
        harness.model.assert_complete()


async def test_once_lets_the_call_pass_and_the_next_one_asks_again() -> None:
    script = 'CALL remove {"n": 1}\n---\nCALL remove {"n": 2}\n---\nSAY ok'
    async with open_harness(script, tools=[REMOVE], rules=[rule("bash", "ask")]) as harness:
        outcome = await harness.submit()
        for number in (1, 2):
            asked = await harness.until_published(events.PermissionAsked, number)
            assert asked.patterns == [f"rm {number}"]
            part = harness.parts("tool")[-1]
            assert asked.tool == {"messageID": part["messageID"], "callID": part["callID"]}
            harness.engine.reply_permission(asked.id, "once")
        assert (await outcome).kind == "answered"
        assert states(harness) == ["completed", "completed"]


async def test_always_allows_what_comes_later_in_every_session() -> None:
    first = 'CALL remove {"n": 1}\nCALL remove {"n": 2}\n---\nCALL remove {"n": 3}\n---\nSAY ok'
    script = f"{first}\n---\nCALL remove {{}}\n---\nSAY ok"
    async with open_harness(script, tools=[REMOVE], rules=[rule("bash", "ask")]) as harness:
        outcome = await harness.submit()
        await harness.until_published(events.PermissionAsked, 2)
        harness.engine.reply_permission(harness.published(events.PermissionAsked)[0].id, "always")
        assert (await outcome).kind == "answered"
        other = await harness.engine.create(title="other", permission=[rule("bash", "ask")])
        assert (await harness.ask(session=other.id)).kind == "answered"
        assert len(harness.published(events.PermissionAsked)) == 2
        assert states(harness) == ["completed"] * 3


async def test_a_plain_no_ends_the_turn_and_all_that_waits_in_it() -> None:
    script = 'CALL remove {"n": 1}\nCALL remove {"n": 2}\n---\nSAY never\n---\nSAY never'
    async with open_harness(script, tools=[REMOVE], rules=[rule("bash", "ask")]) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.PermissionAsked, 2)
        harness.engine.reply_permission(asked.id, "reject")
        assert (await outcome).kind == "blocked"
        assert states(harness) == ["error", "error"]
        assert len(harness.model.calls) == 1
        harness.assert_sound()
        assert await harness.engine.resume(harness.session) is None


async def test_a_refusal_with_a_message_continues_also_where_several_calls_waited() -> None:
    script = 'CALL remove {"n": 1}\nCALL remove {"n": 2}\n---\nEXPECT last use git instead\nSAY ok'
    async with open_harness(script, tools=[REMOVE], rules=[rule("bash", "ask")]) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.PermissionAsked, 2)
        harness.engine.reply_permission(asked.id, "reject", "use git instead")
        assert (await outcome).kind == "answered"
        harness.assert_sound()
        harness.model.assert_complete()


async def test_the_configuration_can_let_the_turn_continue_after_a_refusal() -> None:
    config = {"experimental": {"continue_loop_on_deny": True}}
    async with open_harness(
        "CALL remove {}\n---\nSAY ok", config=config, tools=[REMOVE], rules=[rule("bash", "ask")]
    ) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.PermissionAsked)
        harness.engine.reply_permission(asked.id, "reject")
        assert (await outcome).kind == "answered"
        harness.model.assert_complete()


async def test_what_was_allowed_for_good_does_not_lift_what_an_agent_must_not_do() -> None:
    async def edits(arguments: dict[str, Any], ctx: Any) -> str:
        await ctx.ask("edit", ["src/a.py"], always=["*"])
        return "edited"

    config = {"permission": {"edit": "ask"}}
    script = "CALL change {}\n---\nSAY ok\n---\nCALL change {}\n---\nSAY ok"
    change = Acting("change", edits)
    change.read_only = True  # plan mode asks about such tools, and refuses all others
    async with open_harness(script, config=config, tools=[change]) as harness:
        outcome = await harness.submit(agent="build")
        asked = await harness.until_published(events.PermissionAsked)
        harness.engine.reply_permission(asked.id, "always")
        await outcome
        outcome = await harness.submit(agent="plan")
        asked = await harness.until_published(events.PermissionAsked, 2)
        assert asked.permission == "change"
        harness.engine.reply_permission(asked.id, "once")
        await outcome
        assert states(harness) == ["completed", "error"]


async def test_a_question_that_is_answered_continues_the_turn_and_one_that_is_dismissed_ends_the_turn() -> None:
    option = {"label": "A", "description": "a"}
    call = json.dumps({"questions": [{"question": "Which?", "header": "W", "options": [option]}]})
    async with open_harness(
        f"CALL question {call}\n---\nEXPECT last A\nSAY ok\n---\nCALL question {call}\n---\nSAY no"
    ) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.QuestionAsked)
        harness.engine.reply_question(asked.id, [["A"]])
        assert (await outcome).kind == "answered"
        outcome = await harness.submit()
        asked = await harness.until_published(events.QuestionAsked, 2)
        harness.engine.reject_question(asked.id)
        assert (await outcome).kind == "blocked"
        harness.assert_sound()


# -- circles -----------------------------------------------------------------------------------------------------------

SAME = "\n---\n".join(['CALL echo {"n": 1}'] * 3)
IN_TURNS = "\n---\n".join(['CALL echo {"n": 1}', 'CALL echo {"n": 2}'] * 3)
SAME_ERROR = "\n---\n".join(f'CALL fail {{"n": {n}}}' for n in range(4))


async def fails(arguments: dict[str, Any], ctx: Any) -> str:
    raise ValueError("always the same")


CIRCLES = [(SAME, "3 times in a row"), (IN_TURNS, "in turns"), (SAME_ERROR, "same error")]


@pytest.mark.parametrize(("script", "reason"), CIRCLES)
async def test_a_model_that_runs_in_circles_is_put_before_the_user(script: str, reason: str) -> None:
    async with open_harness(f"{script}\n---\nSAY ok", tools=[echo(), Acting("fail", fails)]) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.PermissionAsked)
        assert asked.permission == "doom_loop"
        assert reason in asked.metadata["reason"]
        assert len(harness.parts("tool")) == script.count("CALL")
        assert harness.parts("tool")[-1]["state"]["status"] == "running"
        harness.engine.reply_permission(asked.id, "once")
        assert (await outcome).kind == "answered"
        harness.model.assert_complete()


async def test_the_user_can_stop_a_model_that_runs_in_circles() -> None:
    async with open_harness(f"{SAME}\n---\nSAY never", tools=[echo()]) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.PermissionAsked)
        harness.engine.reply_permission(asked.id, "reject")
        assert (await outcome).kind == "blocked"
        harness.assert_sound()


async def test_a_rule_can_allow_circles() -> None:
    async with open_harness(
        f"{SAME}\n---\n{SAME}\n---\nSAY ok", tools=[echo()], rules=[rule("doom_loop", "allow")]
    ) as harness:
        assert (await harness.ask()).kind == "answered"
        assert harness.published(events.PermissionAsked) == []


async def test_a_rule_that_denies_circles_ends_the_turn() -> None:
    async with open_harness(f"{SAME}\n---\n{SAME}", tools=[echo()], rules=[rule("doom_loop", "deny")]) as harness:
        assert (await harness.ask()).kind == "blocked"
        assert len(harness.model.calls) == 3
        harness.assert_sound()


def test_calls_that_differ_are_no_circle() -> None:
    watch = LoopDetector(LoopLimits())
    for number in range(30):
        assert watch.record_call("read", {"n": number % 3}) is None
        watch.record_result("read", None)


def test_an_error_in_between_that_differs_begins_the_count_anew() -> None:
    watch = LoopDetector(LoopLimits())
    for number, error in enumerate(["a", "a", "b", "a", "a"]):
        assert watch.record_call("read", {"n": number}) is None
        watch.record_result("read", error)
    assert watch.record_call("read", {"n": 9}) is None


# -- subagents ---------------------------------------------------------------------------------------------------------


def task(agent: str = "general", **more: str) -> str:
    arguments = {"description": "Look around", "prompt": "CHILD: look.", "subagent_type": agent} | more
    return f"CALL task {json.dumps(arguments)}"


async def test_a_subagent_works_in_a_session_of_its_own_and_its_last_words_come_back() -> None:
    script = "CALL echo {}\n---\nSAY I found it."
    models = ScriptedModel(f"{task()}\n---\nEXPECT last found it\nSAY ok", sessions={"CHILD": script}, route=child)
    async with open_harness(models, tools=[echo()]) as harness:
        assert (await harness.ask()).kind == "answered"
        harness.model.assert_complete()
        (made,) = harness.engine.sessions.children(harness.session)
        assert made.title == "Look around (@general subagent)"
        assert rule("todowrite", "deny") in (made.permission or ())
        assert rule("task", "deny") in (made.permission or ())
        (part,) = harness.parts("tool")
        assert part["state"]["metadata"]["sessionId"] == made.id
        assert [m.info["role"] for m in harness.messages(made.id)] == ["user", "assistant", "assistant"]
        offered = {spec.name for cue in harness.model.calls if child(cue.request) for spec in cue.request.tools}
        assert "echo" in offered
        assert not {"task", "todowrite"} & offered


def child(request: Any) -> str | None:
    """Whether a request is of a child session: its first prompt says so."""
    first = next(message for message in request.messages if type(message).__name__ == "User")
    return "CHILD" if first.content[0].text.startswith("CHILD") else None


async def test_a_child_that_fails_is_an_error_of_the_call() -> None:
    models = ScriptedModel(
        f"{task()}\n---\nEXPECT last did not finish\nSAY ok", sessions={"CHILD": "ERROR auth"}, route=child
    )
    async with open_harness(models) as harness:
        assert (await harness.ask()).kind == "answered"
        assert states(harness) == ["error"]
        harness.model.assert_complete()


async def test_the_child_of_an_agent_that_may_not_edit_may_not_either(isolated: Path) -> None:
    target = isolated / "work" / "new.txt"
    write = json.dumps({"filePath": str(target), "content": "x"})
    shell = json.dumps({"command": f"echo x > {target}", "description": "write"})
    script = f"CALL write {write}\nCALL bash {shell}\n---\nSAY I could not."
    models = ScriptedModel(f"{task()}\n---\nSAY ok", sessions={"CHILD": script}, route=child)
    async with open_harness(models) as harness:
        assert (await harness.ask(agent="plan")).kind == "answered"
        (made,) = harness.engine.sessions.children(harness.session)
        assert [part["tool"] for part in harness.parts("tool", made.id)] == ["write", "bash"]
        assert "forbids edit" in harness.parts("tool", made.id)[1]["state"]["error"]
        assert not target.exists()


async def test_a_child_can_be_taken_up_again_but_no_session_that_is_not_one() -> None:
    models = ScriptedModel(None, route=child, sessions={"CHILD": "SAY one\n---\nSAY two\n---\nSAY three"})
    async with open_harness(models) as harness:
        stranger = await harness.engine.create(title="A stranger")
        await harness.ask(task() + "\n---\nSAY ok")
        (first,) = harness.engine.sessions.children(harness.session)
        await harness.ask(task(task_id=first.id) + "\n---\nSAY ok")
        assert len(harness.engine.sessions.children(harness.session)) == 1
        assert len(harness.messages(first.id)) == 4
        for name in (stranger.id, harness.session, "nonsense"):
            await asyncio.wait_for(harness.ask(task(task_id=name) + "\n---\nSAY ok"), 60)
            assert harness.messages(stranger.id) == []


async def test_files_that_a_model_mentions_to_a_child_are_not_attached(isolated: Path) -> None:
    secret = isolated / "secret.txt"
    secret.write_text("the secret")
    models = ScriptedModel(
        f"{task(prompt=f'CHILD: see @{secret}')}\n---\nSAY ok", sessions={"CHILD": "SAY ok"}, route=child
    )
    async with open_harness(models) as harness:
        await harness.ask()
        assert "the secret" not in "".join(harness.model.model_text(number) for number in range(3))


@pytest.mark.parametrize(("agent", "reason"), [("nobody", "no agent"), ("build", "not a subagent")])
async def test_agents_that_are_not_there_for_subtasks_cannot_be_given_any(agent: str, reason: str) -> None:
    async with open_harness(f"{task(agent)}\n---\nEXPECT last {reason}\nSAY ok") as harness:
        assert (await harness.ask()).kind == "answered"
        harness.model.assert_complete()


async def test_permission_that_a_child_needs_is_asked_and_a_no_ends_the_child() -> None:
    models = ScriptedModel(f"{task()}\n---\nSAY ok", sessions={"CHILD": "CALL remove {}\n---\nSAY never"}, route=child)
    async with open_harness(models, tools=[REMOVE], config={"permission": {"bash": "ask"}}) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.PermissionAsked)
        assert asked.session_id != harness.session
        harness.engine.reply_permission(asked.id, "reject")
        assert (await outcome).kind == "answered"
        assert states(harness) == ["error"]


# -- one's own tools ---------------------------------------------------------------------------------------------------


async def test_a_function_is_a_tool() -> None:
    @tool
    def tickets(project: str, open_only: bool = True) -> list[str]:
        """List the tickets of a project."""
        return [f"{project}-1", str(open_only)]

    async with open_harness('CALL tickets {"project": "P"}\n---\nEXPECT last P-1\nSAY ok', tools=[tickets]) as harness:
        assert (await harness.ask()).kind == "answered"
        (spec,) = [spec for spec in harness.model.calls[0].request.tools if spec.name == "tickets"]
        assert spec.parameters["required"] == ["project"]
        harness.model.assert_complete()


async def test_the_calls_of_a_batch_have_parts_of_their_own_and_a_no_ends_the_turn() -> None:
    calls = {"tool_calls": [{"tool": name, "parameters": {"n": 1}} for name in ("echo", "remove")]}
    config = {"experimental": {"batch_tool": True}}
    script = f"CALL batch {json.dumps(calls)}\n---\nSAY never"
    async with open_harness(script, config=config, tools=[echo(), REMOVE], rules=[rule("bash", "ask")]) as harness:
        outcome = await harness.submit()
        asked = await harness.until_published(events.PermissionAsked)
        harness.engine.reply_permission(asked.id, "reject")
        assert (await outcome).kind == "blocked"
        assert sorted(part["tool"] for part in harness.parts("tool")) == ["batch", "echo", "remove"]
        harness.assert_sound()


async def test_an_output_that_is_too_long_is_shortened_and_kept_whole() -> None:
    async def much(arguments: dict[str, Any], ctx: Any) -> str:
        return "line\n" * 5_000

    async with open_harness("CALL much {}\n---\nSAY ok", tools=[Acting("much", much)]) as harness:
        await harness.ask()
        state = harness.parts("tool")[0]["state"]
        assert len(state["output"]) < 60_000
        assert Path(state["metadata"]["outputPath"]).read_text() == "line\n" * 5_000
