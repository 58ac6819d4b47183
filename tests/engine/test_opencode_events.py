from __future__ import annotations

from msgspec.structs import replace

from opensesh import events
from opensesh.records import Rule, side_calls

from .stage import IMPATIENT, stage

FOLLOWED = replace(IMPATIENT, opencode_events=True)
ALLOW = [Rule(permission="*", pattern="*", action="allow")]


async def test_an_aborted_call_costs_as_a_side_call_and_is_idle_at_once() -> None:
    script = 'CALL bash {"command": "sleep 30", "description": "wait"}\n---\nSAY ok'
    async with stage(script, settings=FOLLOWED, rules=ALLOW) as on:
        outcome = await on.submit()
        await on.until(lambda: [part for part in on.parts("tool") if part["state"]["status"] == "running"])
        idle_before = len(on.told(events.SessionIdle))
        on.engine.abort(on.session)
        assert len(on.told(events.SessionIdle)) == idle_before + 2
        assert [error.error["name"] for error in on.told(events.SessionError)] == ["MessageAbortedError"]
        assert on.session in on.engine.status()
        assert (await outcome).kind == "aborted"
        (answer,) = on.answers()
        assert "finish" not in answer.info
        assert answer.info["tokens"]["output"] == 0
        assert on.parts("step-finish") == []
        assert [call["agent"] for call in side_calls(answer.info)] == ["build"]
        assert len(on.told(events.SessionError)) == 1


async def test_an_interrupted_text_has_no_end_and_is_not_published_again() -> None:
    async with stage("SAY some words\nHANG", settings=FOLLOWED) as on:
        outcome = await on.submit()
        await on.until(lambda: on.text().startswith("some"))
        on.engine.abort(on.session)
        assert (await outcome).kind == "aborted"
        part = on.parts("text")[-1]
        assert set(part["time"]) == {"start"}
        assert part["text"] == "some words"
        last = on.told(events.PartUpdated)[-1]
        assert (last.part["id"], last.delta) == (part["id"], "")


async def test_a_question_is_published_before_its_call_runs() -> None:
    question = '{"questions": [{"question": "Which?", "header": "One", "options": []}]}'
    async with stage(f"CALL question {question}\n---\nSAY ok", settings=FOLLOWED, rules=ALLOW) as on:
        outcome = await on.submit()
        (request, *_) = await on.until(on.engine.questions)
        await on.until(lambda: [part for part in on.parts("tool") if part["state"]["status"] == "running"])
        kinds = [envelope.event for envelope in sorted(on.heard, key=lambda envelope: envelope.sequence)]
        asked = next(at for at, event in enumerate(kinds) if isinstance(event, events.QuestionAsked))
        running = next(
            at
            for at, event in enumerate(kinds)
            if isinstance(event, events.PartUpdated) and event.part.get("state", {}).get("status") == "running"
        )
        assert asked < running
        on.engine.reply_question(request["id"], [["x"]])
        assert (await outcome).kind == "answered"
        assert [part["state"]["status"] for part in on.parts("tool")] == ["completed"]


async def test_only_the_end_of_a_shell_command_is_published() -> None:
    async with stage("SAY ok", settings=FOLLOWED) as on:
        await on.engine.shell(on.session, "true", model="scripted/it")
        assert [event.status["type"] for event in on.told(events.SessionStatus)] == ["idle"]


async def test_a_reminder_is_in_the_request_but_not_a_part() -> None:
    async with stage("SAY planned", settings=FOLLOWED) as on:
        await on.ask("Think.", agent="plan")
        prompt = on.messages()[0]
        assert [part["text"] for part in prompt.parts] == ["Think."]
        (reminder,) = prompt.parts[0]["metadata"]["opensesh"]["reminders"]
        assert reminder in on.model.model_text(0)


async def test_a_retry_has_no_part() -> None:
    async with stage("ERROR 429\n---\nSAY ok", settings=FOLLOWED) as on:
        await on.ask()
        assert on.parts("retry") == []
        assert any(status.status["type"] == "retry" for status in on.told(events.SessionStatus))


async def test_a_rejected_answer_keeps_its_finish_and_is_not_continued() -> None:
    ask = [Rule(permission="*", pattern="*", action="ask")]
    script = 'CALL bash {"command": "touch x", "description": "touch"}\n---\nSAY must not be said'
    async with stage(script, settings=FOLLOWED, rules=ask) as on:
        outcome = await on.submit()
        (request, *_) = await on.until(on.engine.permissions)
        on.engine.reply_permission(request["id"], "reject")
        assert (await outcome).kind == "blocked"
        (answer,) = on.answers()
        assert answer.info["finish"] == "tool-calls"
        assert await on.engine.resume(on.session) is None
