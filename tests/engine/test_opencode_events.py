from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from opensesh import events
from opensesh.engine.user_requests import Questions
from opensesh.errors import UsageError
from opensesh.records import Rule, side_calls

from .harness import IMPATIENT, open_harness

FOLLOWED = replace(IMPATIENT, opencode_events=True)
ALLOW = [Rule(permission="*", pattern="*", action="allow")]


async def test_an_aborted_call_costs_as_a_side_call_and_is_idle_at_once() -> None:
    script = 'CALL bash {"command": "sleep 30", "description": "wait"}\n---\nSAY ok'
    async with open_harness(script, settings=FOLLOWED, rules=ALLOW) as harness:
        outcome = await harness.submit()
        await harness.until(lambda: [part for part in harness.parts("tool") if part["state"]["status"] == "running"])
        idle_before = len(harness.published(events.SessionIdle))
        harness.engine.abort(harness.session)
        assert len(harness.published(events.SessionIdle)) == idle_before + 2
        assert [error.error["name"] for error in harness.published(events.SessionError)] == ["MessageAbortedError"]
        assert harness.session in harness.engine.status()
        assert (await outcome).kind == "aborted"
        (answer,) = harness.answers()
        assert "finish" not in answer.info
        assert answer.info["tokens"]["output"] == 0
        assert harness.parts("step-finish") == []
        assert [call["agent"] for call in side_calls(answer.info)] == ["build"]
        assert len(harness.published(events.SessionError)) == 1


async def test_an_interrupted_text_has_no_end_and_is_not_published_again() -> None:
    async with open_harness("SAY some words\nHANG", settings=FOLLOWED) as harness:
        outcome = await harness.submit()
        await harness.until(lambda: harness.text().startswith("some"))
        harness.engine.abort(harness.session)
        assert (await outcome).kind == "aborted"
        part = harness.parts("text")[-1]
        assert set(part["time"]) == {"start"}
        assert part["text"] == "some words"
        last = harness.published(events.PartUpdated)[-1]
        assert (last.part["id"], last.delta) == (part["id"], "")


async def test_a_question_is_published_before_its_call_runs() -> None:
    question = '{"questions": [{"question": "Which?", "header": "One", "options": []}]}'
    async with open_harness(f"CALL question {question}\n---\nSAY ok", settings=FOLLOWED, rules=ALLOW) as harness:
        outcome = await harness.submit()
        (request, *_) = await harness.until(harness.engine.questions)
        await harness.until(lambda: [part for part in harness.parts("tool") if part["state"]["status"] == "running"])
        kinds = [envelope.event for envelope in sorted(harness.received, key=lambda envelope: envelope.sequence)]
        asked = next(at for at, event in enumerate(kinds) if isinstance(event, events.QuestionAsked))
        running = next(
            at
            for at, event in enumerate(kinds)
            if isinstance(event, events.PartUpdated) and event.part.get("state", {}).get("status") == "running"
        )
        assert asked < running
        harness.engine.reply_question(request["id"], [["x"]])
        assert (await outcome).kind == "answered"
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["completed"]


async def test_the_reply_to_a_question_is_published_after_its_call_runs() -> None:
    order: list[str] = []
    questions = Questions(lambda event: order.append(event.type))

    async def start() -> None:
        questions.reply(questions.pending[0]["id"], [["x"]])  # as a quick client does
        assert questions.pending == []
        order.append("running")

    assert await questions.ask("ses_1", [], on_asked=start) == [["x"]]
    assert order == ["question.asked", "running", "question.replied"]


async def test_only_the_end_of_a_shell_command_is_published() -> None:
    async with open_harness("SAY ok", settings=FOLLOWED) as harness:
        await harness.engine.shell(harness.session, "true", model="scripted/it")
        assert [event.status["type"] for event in harness.published(events.SessionStatus)] == ["idle"]


async def test_a_shell_command_without_output_has_no_metadata_while_it_runs() -> None:
    async with open_harness("SAY ok", settings=FOLLOWED) as harness:
        await harness.engine.shell(harness.session, "true", model="scripted/it")
        states = [event.part["state"] for event in harness.published(events.PartUpdated) if "state" in event.part]
        assert [(state["status"], "metadata" in state) for state in states] == [("running", False), ("completed", True)]


async def test_context_that_arrives_during_a_run_is_answered_by_its_next_step(tmp_path: Path) -> None:
    wait = f'{{"command": "until [ -e {tmp_path}/go ]; do sleep 0.02; done", "description": "wait"}}'
    script = f"CALL bash {wait}\n---\nEXPECT last also this\nSAY seen"
    async with open_harness(script, settings=FOLLOWED, rules=ALLOW) as harness:
        outcome = await harness.submit()
        await harness.until(lambda: [part for part in harness.parts("tool") if part["state"]["status"] == "running"])
        added = await harness.engine.append(harness.session, "also this")
        (tmp_path / "go").touch()
        assert (await outcome).text == "seen"
        prompt = harness.messages()[0].info["id"]
        assert [answer.info["parentID"] for answer in harness.answers()] == [prompt, added.info["id"]]


async def test_context_has_no_answer_when_the_run_is_aborted() -> None:
    async with open_harness("SAY words\nHANG\n---\nSAY more", settings=FOLLOWED) as harness:
        outcome = await harness.submit()
        await harness.until(lambda: harness.text().startswith("words"))
        await harness.engine.append(harness.session, "also this")
        harness.engine.abort(harness.session)
        assert (await outcome).kind == "aborted"
        assert [message.info["role"] for message in harness.messages()] == ["user", "assistant", "user"]


async def test_a_correction_does_not_continue_a_run_whose_other_request_it_rejects() -> None:
    calls = "\n".join(f'CALL bash {{"command": "touch {name}", "description": "d"}}' for name in "ab")
    rules = [*ALLOW, Rule(permission="bash", pattern="*", action="ask")]
    async with open_harness(f"{calls}\n---\nSAY more", settings=FOLLOWED, rules=rules) as harness:
        outcome = await harness.submit()
        await harness.until(lambda: len(harness.engine.permissions()) == 2)
        harness.engine.reply_permission(harness.engine.permissions()[0]["id"], "reject", "not like this")
        assert (await outcome).kind == "blocked"
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["error", "error"]


async def test_a_session_without_messages_can_be_summarised() -> None:
    async with open_harness("SAY nothing yet", settings=FOLLOWED) as harness:
        outcome = await (await harness.engine.compact(harness.session, model="scripted/it"))
        assert outcome.kind == "answered"
        assert [message.parts[0]["type"] for message in harness.messages()][:1] == ["compaction"]
        assert harness.published(events.SessionCompacted)
        with pytest.raises(UsageError, match="nothing in this session to compact"):
            await harness.engine.compact((await harness.engine.create()).id)


async def test_a_reminder_is_in_the_request_but_not_a_part() -> None:
    async with open_harness("SAY planned", settings=FOLLOWED) as harness:
        await harness.ask("Think.", agent="plan")
        prompt = harness.messages()[0]
        assert [part["text"] for part in prompt.parts] == ["Think."]
        (reminder,) = prompt.parts[0]["metadata"]["opensesh"]["reminders"]
        assert reminder in harness.model.model_text(0)


async def test_a_retry_has_no_part() -> None:
    async with open_harness("ERROR 429\n---\nSAY ok", settings=FOLLOWED) as harness:
        await harness.ask()
        assert harness.parts("retry") == []
        assert any(status.status["type"] == "retry" for status in harness.published(events.SessionStatus))


async def test_a_rejected_answer_keeps_its_finish_and_is_not_continued() -> None:
    ask = [Rule(permission="*", pattern="*", action="ask")]
    script = 'CALL bash {"command": "touch x", "description": "touch"}\n---\nSAY must not be said'
    async with open_harness(script, settings=FOLLOWED, rules=ask) as harness:
        outcome = await harness.submit()
        (request, *_) = await harness.until(harness.engine.permissions)
        harness.engine.reply_permission(request["id"], "reject")
        assert (await outcome).kind == "blocked"
        (answer,) = harness.answers()
        assert answer.info["finish"] == "tool-calls"
        assert await harness.engine.resume(harness.session) is None
