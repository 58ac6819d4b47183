from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from opensesh import events
from opensesh.engine.loop import Outcome
from opensesh.engine.prompt import Prompt, text_prompt
from opensesh.engine.settings import Settings
from opensesh.records import Rule
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel

from .harness import Acting, EngineHarness, echo, open_harness

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def gate(name: str = "gate") -> tuple[Acting, asyncio.Event, asyncio.Event]:
    """A tool that says when it was reached, and waits to be let through."""
    reached, open_ = asyncio.Event(), asyncio.Event()

    async def act(arguments: dict[str, Any], ctx: Any) -> str:
        reached.set()
        await open_.wait()
        return "through"

    return Acting(name, act), reached, open_


# -- one prompt --------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_stored_before_it_is_acknowledged() -> None:
    async with open_harness("SAY Hello.") as harness:
        outcome = await harness.submit("Hi.")
        (prompt, *_) = harness.messages()
        assert [part["text"] for part in prompt.parts] == ["Hi."]
        assert not outcome.done()
        assert (await outcome).kind == "answered"
        harness.assert_sound()


async def test_the_environment_can_make_answers_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX", "500")
    async with open_harness("SAY Hello.") as harness:
        await harness.ask("Hi.")
        assert {cue.request.max_output_tokens for cue in (*harness.model.calls, *harness.model.title_calls)} == {500}


async def test_the_events_of_a_prompt_end_with_the_session_being_idle_and_the_outcome() -> None:
    async with open_harness("SAY Hello.") as harness:
        received = [
            envelope.event async for envelope in harness.engine.prompt(harness.session, "Hi.", model="scripted/it")
        ]
        assert isinstance(received[-2], events.SessionIdle)
        assert {"message.updated", "message.part.updated", "session.status"} <= {event.type for event in received}
        assert [type(event).__name__ for event in received].count("SessionIdle") == 1


async def test_leaving_the_events_early_leaves_the_session_running() -> None:
    tool, reached, let_through = gate()
    async with open_harness("CALL gate {}\n---\nSAY done", tools=[tool]) as harness:
        async for _ in harness.engine.prompt(harness.session, "Hi.", model="scripted/it"):
            break
        await reached.wait()
        let_through.set()
        await harness.until(lambda: harness.engine.status() == {})
        assert harness.text() == "done"
        harness.assert_sound()


async def test_two_sessions_run_at_the_same_time_and_hear_only_of_themselves() -> None:
    tool, _, let_through = gate()
    models = ScriptedModel(None, sessions={"one": "CALL gate {}\n---\nSAY one done", "two": "SAY two done"})
    async with open_harness(models, tools=[tool]) as harness:
        other = await harness.engine.create(title="other")
        first = await harness.submit("one")
        seen = [e async for e in harness.engine.prompt(other.id, "two", model="scripted/it")]
        assert not first.done()
        assert harness.engine.status().keys() == {harness.session}
        assert harness.session not in json.dumps([e.document for e in seen])
        let_through.set()
        assert (await first).kind == "answered"


async def test_the_prefix_of_a_conversation_never_changes_from_one_step_to_the_next() -> None:
    calls = "\n---\n".join(f'THINK hm\nSAY step\nCALL echo {{"n": {n}}}' for n in range(6))
    async with open_harness(f"{calls}\n---\nSAY done\n---\nSAY again", tools=[echo()]) as harness:
        await harness.ask("first")
        await harness.ask("second")
        model = harness.model
        for number in range(len(model.calls) - 1):
            length = len(model.calls[number].request.messages)
            assert model.prefix_digest(number) == model.prefix_digest(number + 1, length)


async def test_a_session_taken_up_by_another_engine_has_the_same_prefix() -> None:
    store = Memory()
    async with open_harness('CALL echo {"n": 1}\n---\nSAY done', store=store, tools=[echo()]) as harness:
        await harness.ask("first")
        before = harness.model.prefix_digest(1)
        length = len(harness.model.calls[1].request.messages)
        session = harness.session
    async with open_harness("SAY again", store=store, tools=[echo()]) as harness:
        await harness.ask("second", session=session)
        assert harness.model.prefix_digest(0, length) == before


async def test_a_broken_off_answer_is_gone_on_with_by_a_request_that_ends_with_the_user() -> None:
    store = Memory()
    async with open_harness("SAY I was just\nHANG\n---\nSAY done", store=store) as harness:
        outcome = await harness.submit()
        await harness.until(lambda: "just" in harness.text())
        info = harness.answers()[0].info
        harness.engine.abort(harness.session)
        await outcome
        # As if the process had died there, rather than been stopped.
        info["time"].pop("completed", None)
        store.write(("message", harness.session, info["id"]), {k: v for k, v in info.items() if k != "error"})
        resumed = await harness.engine.resume(harness.session)
        assert resumed is not None
        assert (await resumed).kind == "answered"
        roles = [type(message).__name__ for message in harness.model.calls[1].request.messages]
        assert roles == ["System", "User", "Assistant", "User"]
        assert harness.text() == "I was justdone"
        harness.assert_sound()


# -- prompts that come meanwhile ---------------------------------------------------------------------------------------


async def test_a_prompt_that_comes_while_the_model_works_joins_the_run_and_shares_its_outcome() -> None:
    tool, reached, let_through = gate()
    async with open_harness("CALL gate {}\n---\nEXPECT last hurry up\nSAY done", tools=[tool]) as harness:
        first = await harness.submit("begin")
        await reached.wait()
        second = await harness.submit("hurry up")
        let_through.set()
        one, two = await first, await second
        assert one is two
        assert one.kind == "answered"
        harness.model.assert_complete()
        assert "while you were working" in harness.model.model_text(1)
        last = harness.messages()[-1].info
        assert last["parentID"] == [m.info["id"] for m in harness.messages() if m.info["role"] == "user"][-1]
        harness.assert_sound()


async def test_a_prompt_that_comes_in_the_very_last_moment_is_answered() -> None:
    async with open_harness("\n---\n".join(f"SAY {number}" for number in range(12))) as harness:
        late: list[asyncio.Future[Outcome]] = []

        async def again() -> None:
            late.append(await harness.submit("again"))

        async with asyncio.TaskGroup() as group:

            def as_it_ends(envelope: Any) -> None:
                status = envelope.event
                if isinstance(status, events.SessionStatus) and status.status["type"] == "idle" and len(late) < 10:
                    group.create_task(again())

            harness.engine.bus.listen(as_it_ends)
            await harness.ask()
            await harness.until(lambda: len(late) == 10)
        await asyncio.gather(*late)
        prompts = {m.info["id"] for m in harness.messages() if m.info["role"] == "user"}
        answered = {m.info["parentID"] for m in harness.answers()}
        assert prompts == answered
        harness.assert_sound()


@pytest.mark.parametrize("delay", range(0, 40, 4))
async def test_a_prompt_that_comes_at_any_moment_of_a_run_is_answered_once(delay: int) -> None:
    async with open_harness("SAY one\n---\nSAY two") as harness:
        first = await harness.submit("first")
        for _ in range(delay):
            await asyncio.sleep(0)
        second = await harness.submit("second")
        assert (await first).kind == (await second).kind == "answered"
        harness.assert_sound()
        last_prompt = [m for m in harness.messages() if m.info["role"] == "user"][-1]
        assert [m.info["parentID"] for m in harness.answers()].count(last_prompt.info["id"]) == 1


async def test_a_prompt_that_waits_behind_one_that_fails_is_answered_too() -> None:
    async with open_harness("WAIT 0.05\nERROR auth\n---\nSAY fine") as harness:
        first = await harness.submit("first")
        second = await harness.submit("second")
        assert await first is await second
        assert (await second).kind == "answered"
        harness.assert_sound()
        assert [m.info.get("finish", "error") for m in harness.answers()] == ["error", "stop"]


# -- steps -------------------------------------------------------------------------------------------------------------

TWO_STEPS = {"agent": {"build": {"steps": 2}}}


async def test_on_the_last_step_tools_are_switched_off_and_the_model_knows_it() -> None:
    async with open_harness('CALL echo {"n": 1}\n---\nSAY that is all', config=TWO_STEPS, tools=[echo()]) as harness:
        assert (await harness.ask()).kind == "answered"
        first, last = harness.model.calls
        assert first.request.tool_choice == "auto"
        assert last.request.tool_choice == "none"
        assert "last step" in harness.model.model_text(1)
        assert "last step" not in harness.model.model_text(0)
        assert first.request.tools == last.request.tools, "what is cached begins with the tools"


async def test_a_model_that_calls_tools_on_the_last_step_is_not_listened_to() -> None:
    ran: list[Any] = []

    async def run(arguments: dict[str, Any], ctx: Any) -> str:
        ran.append(arguments)
        return "ran"

    calls = 'CALL act {"n": 1}\n---\nCALL act {"n": 2}\n---\nCALL act {"n": 3}'
    async with open_harness(calls, config=TWO_STEPS, tools=[Acting("act", run)]) as harness:
        assert (await harness.ask()).kind == "answered"
        assert ran == [{"n": 1}]
        assert len(harness.model.calls) == 2
        assert "no tool may be called" in harness.parts("tool")[1]["state"]["output"]
        harness.assert_sound()
        assert await harness.engine.resume(harness.session) is None


async def test_a_new_prompt_has_all_its_steps() -> None:
    calls = 'CALL echo {"n": 1}\n---\nSAY a\n---\nCALL echo {"n": 2}\n---\nSAY b'
    async with open_harness(calls, config=TWO_STEPS, tools=[echo()]) as harness:
        await harness.ask()
        assert (await harness.ask()).kind == "answered"
        assert harness.model.calls[2].request.tool_choice == "auto"
        harness.model.assert_complete()


# -- answers in a structure --------------------------------------------------------------------------------------------


def structured(text: str = "Count.") -> Prompt:
    return text_prompt(text, model="scripted/it", format={"type": "json_schema", "schema": SCHEMA})


async def test_an_answer_in_a_structure_is_put_on_record() -> None:
    calls = 'CALL echo {}\n---\nCALL StructuredOutput {"n": 3}\n---\nSAY never asked'
    async with open_harness(calls, tools=[echo()]) as harness:
        outcome = await harness.ask(structured())
        assert outcome.kind == "answered"
        assert outcome.message is not None
        assert outcome.message.info["structured"] == {"n": 3}
        assert harness.answers()[-1].info["structured"] == {"n": 3}
        assert harness.answers()[-1].info["finish"] == "stop"
        assert [cue.request.tool_choice for cue in harness.model.calls] == ["required", "required"]
        assert "StructuredOutput" in harness.model.tools_offered(0)
        harness.assert_sound()


async def test_promise_18_an_answer_without_the_structure_is_asked_for_once_more_and_then_a_failure() -> None:
    async with open_harness("SAY three\n---\nSAY four") as harness:
        outcome = await harness.ask(structured())
        assert outcome.kind == "failed"
        error = harness.answers()[-1].info["error"]
        assert (error["name"], error["data"]["retries"]) == ("StructuredOutputError", 1)
        assert "calling the tool StructuredOutput" in harness.model.model_text(1)
        harness.assert_sound()
    async with open_harness('SAY three\n---\nCALL StructuredOutput {"n": 3}') as harness:
        outcome = await harness.ask(structured())
        assert (outcome.kind, harness.answers()[-1].info["structured"]) == ("answered", {"n": 3})
        assert len({answer.info["parentID"] for answer in harness.answers()}) == 1
        harness.assert_sound()


async def test_promise_18_an_answer_that_does_not_fit_its_schema_is_asked_for_once_more() -> None:
    wrong = 'CALL StructuredOutput {"n": "three"}'
    async with open_harness(
        f'{wrong}\n---\nEXPECT last expected integer, not string\nCALL StructuredOutput {{"n": 3}}'
    ) as harness:
        outcome = await harness.ask(structured())
        harness.model.assert_complete()
        assert outcome.kind == "answered"
        assert harness.answers()[-1].info["structured"] == {"n": 3}
        assert "structured" not in harness.answers()[0].info
        harness.assert_sound()
    async with open_harness(f"{wrong}\n---\n{wrong}\n---\nSAY never asked") as harness:
        outcome = await harness.ask(structured())
        assert outcome.kind == "failed"
        assert "$.n: expected integer, not string" in outcome.description
        assert all("structured" not in answer.info for answer in harness.answers())
        assert len(harness.model.calls) == 2
        harness.assert_sound()


async def test_the_structure_can_be_given_on_the_last_step_too() -> None:
    async with open_harness('CALL StructuredOutput {"n": 1}', config={"agent": {"build": {"steps": 1}}}) as harness:
        assert (await harness.ask(structured())).kind == "answered"


# -- what a provider will not take -------------------------------------------------------------------------------------


async def history_with_a_picture(harness: EngineHarness) -> None:
    parts = (
        {"type": "text", "text": "Look."},
        {"type": "file", "mime": "image/png", "url": PICTURE, "filename": "a.png"},
    )
    await harness.ask(Prompt(parts=parts, model="scripted/it"))


PICTURE = "data:image/png;base64,iVBORw0KGgo="


async def test_a_part_of_the_history_that_a_provider_refuses_is_left_out_once_and_reported() -> None:
    refused = 'ERROR 400 message="messages.0.content.1.image: the image could not be processed"'
    async with open_harness(f"{refused}\n---\nSAY I see nothing.") as harness:
        await history_with_a_picture(harness)
        assert harness.answers()[-1].info["finish"] == "stop"
        assert "(image/png a.png)" in harness.model.model_text(0)
        assert "(image/png a.png)" not in harness.model.model_text(1)
        assert "would not take" in harness.model.model_text(1)
        assert len(harness.published(events.SessionError)) == 1
        harness.assert_sound()


async def test_it_is_left_out_once_and_no_more() -> None:
    refused = 'ERROR 400 message="the image could not be processed"'
    async with open_harness(f"{refused}\n---\n{refused}") as harness:
        await history_with_a_picture(harness)
        assert harness.answers()[-1].info["error"]["name"] == "APIError"
        assert len(harness.model.calls) == 2
        harness.assert_sound()


async def test_a_refusal_that_points_at_nothing_in_the_history_stands() -> None:
    async with open_harness('ERROR 400 message="max_tokens is too large"') as harness:
        assert (await harness.ask()).kind == "failed"
        assert len(harness.model.calls) == 1


async def test_thought_that_a_provider_refuses_is_left_out() -> None:
    refused = 'ERROR 400 message="messages.1: Invalid `signature` in `thinking` block"'
    think = 'THINK hm\nMETA {"anthropic": {"signature": "s"}}\nSAY so'
    async with open_harness(f"{think}\n---\n{refused}\n---\nSAY fine") as harness:
        await harness.ask()
        assert (await harness.ask()).kind == "answered"
        assert "hm" in harness.model.model_text(1)
        assert "hm" not in harness.model.model_text(2)


# -- corpora -----------------------------------------------------------------------------------------------------------


async def test_a_session_from_both_sides_of_the_wrap_continues_in_its_true_order(
    wrap_corpus: Any, tmp_path: Any
) -> None:
    import shutil

    shutil.copytree(wrap_corpus / "storage", tmp_path / "storage")
    tree = JsonTree(tmp_path / "storage", durability="relaxed")
    session = "ses_0000037afffeUtcCVcW6jyYWWR"
    async with open_harness("SAY still here", store=tree) as harness:
        before = harness.messages(session)
        assert (await harness.ask("And now?", session=session)).kind == "answered"
        after = harness.messages(session)
        assert [m.info["id"] for m in after[: len(before)]] == [m.info["id"] for m in before]
        assert after[-2].parts[0]["text"] == "And now?"
        assert after[-1].info["parentID"] == after[-2].info["id"]
        sent = harness.model.model_text(0)
        texts = [p["text"] for m in before for p in m.parts if p["type"] == "text" and p["text"].strip()]
        places = [sent.find(text.strip()) for text in texts]
        assert -1 not in places
        assert places == sorted(places)


async def test_rules_of_a_session_hide_tools_and_the_prompt_can_switch_some_off() -> None:
    rules = [Rule(permission="bash", pattern="*", action="deny"), Rule(permission="edit", pattern="*", action="deny")]
    async with open_harness("SAY fine", rules=rules) as harness:
        await harness.ask(tools={"grep": False})
        offered = harness.model.tools_offered(0)
        assert "read" in offered
        assert not {"bash", "edit", "write", "grep"} & set(offered)


async def test_the_settings_of_the_caller_reach_the_tools() -> None:
    async with open_harness("SAY fine", settings=Settings(interactive=False)) as harness:
        await harness.ask()
        assert "question" not in harness.model.tools_offered(0)
