from __future__ import annotations

import asyncio
from typing import Any

import pytest

from opensesh import events
from opensesh.models.request import System, Text, User
from opensesh.models.stream_events import TextDelta, TextEnd, TextStart
from opensesh.plugins import (
    AutoContinueOutput,
    ChatInput,
    CompactingInput,
    CompactingOutput,
    MessagesTransformOutput,
    SmallModelInput,
    SmallModelOutput,
    SystemTransformOutput,
    TextCompleteInput,
    TextCompleteOutput,
    hooks,
)
from opensesh.storage.protocol import StoredMessage
from opensesh.testing.scripted import ScriptedModel

from ..engine.harness import EngineHarness, Playing, open_harness
from ..engine.test_compaction import FULL
from .test_hooks import asked, said


async def test_a_messages_hook_changes_what_is_sent_and_nothing_that_is_stored() -> None:
    def redact(call: ChatInput, output: MessagesTransformOutput) -> None:
        for message in output.messages:
            for part in message.parts:
                if part["type"] == "text":
                    part["text"] = part["text"].replace("hunter2", "***")

    script = "SAY It is hunter2.\n---\nSAY Fine.\n---\nSAY A summary."
    async with open_harness(script, plugins=[hooks.experimental_chat_messages_transform(redact)]) as harness:
        await harness.ask("The password is hunter2.")
        await harness.ask("Once more?")
        await (await harness.engine.compact(harness.session))
        assert [("***" in said(item.request), "hunter2" in said(item.request)) for item in harness.model.calls] == [
            (True, False)
        ] * 3
        assert harness.text().startswith("It is hunter2.")
        harness.assert_sound()


async def test_a_messages_hook_that_leaves_nonsense_still_makes_a_valid_request() -> None:
    def transform(call: ChatInput, output: MessagesTransformOutput) -> None:
        answer = {"id": "msg_x", "role": "assistant", "sessionID": call.session_id, "time": {"created": 1}}
        state: dict[str, Any] = {"status": "pending", "input": {}}
        output.messages[:] = [
            StoredMessage(answer, [{"type": "nonsense", "text": 3}, {"id": "p", "type": "tool", "state": state}]),
            StoredMessage({"role": "nobody"}, []),
            StoredMessage(answer | {"id": "msg_y"}, [{"id": "q", "type": "text", "text": "I said so."}]),
        ]

    provider = Playing([TextStart("1"), TextDelta("1", "Hello."), TextEnd("1")])
    async with open_harness(provider, plugins=[hooks.experimental_chat_messages_transform(transform)]) as harness:
        assert (await harness.ask()).kind == "answered"
        (request,) = provider.requests
        assert isinstance(request.messages[1], User), "a conversation begins with the user"
        assert isinstance(request.messages[-1], User), "and ends with them"


NO_PART: Any = 3


@pytest.mark.parametrize(
    "wrong",
    [("info", []), StoredMessage({"id": object()}, []), StoredMessage({}, [NO_PART])],
    ids=["no message", "no JSON", "no parts"],
)
async def test_messages_that_are_none_are_not_taken_and_the_plugin_is_named(wrong: Any) -> None:
    def transform(call: ChatInput, output: MessagesTransformOutput) -> None:
        output.messages.append(wrong)

    async with open_harness("SAY Hello.", plugins=[hooks.experimental_chat_messages_transform(transform)]) as harness:
        assert (await harness.ask("Go.")).kind == "answered"
        assert "Go." in said(asked(harness))
        (failed,) = harness.published(events.PluginFailed)
        assert (failed.plugin, failed.hook) == ("transform", "experimental.chat.messages.transform")


async def test_a_system_hook_changes_the_system_prompt_in_two_blocks_at_most() -> None:
    def transform(call: ChatInput, output: SystemTransformOutput) -> None:
        output.system += ["One.", "Two.", " "]

    async with open_harness("SAY Hello.", plugins=[hooks.experimental_chat_system_transform(transform)]) as harness:
        await harness.ask()
        blocks = [turn for turn in asked(harness).messages if isinstance(turn, System)]
        assert [block.text for block in blocks][1:] == ["One.\nTwo."]
        assert isinstance(asked(harness).messages[2], User)


async def test_a_system_prompt_that_was_emptied_is_what_it_was() -> None:
    def empty(call: ChatInput, output: SystemTransformOutput) -> None:
        output.system.clear()

    async with open_harness("SAY Hello.") as harness:
        await harness.ask()
        usual = asked(harness)
    async with open_harness("SAY Hello.", plugins=[{"experimental.chat.system.transform": empty}]) as harness:
        await harness.ask()
        system, before = asked(harness).messages[0], usual.messages[0]
        assert isinstance(system, System)
        assert system == before


async def test_a_small_model_hook_names_the_model_for_side_work() -> None:
    small = ScriptedModel("SAY Hello.")

    def choose(expected: SmallModelInput, output: SmallModelOutput) -> None:
        assert (expected.agent, expected.model.ref, output.model) == ("title", "scripted/it", "scripted/it")
        output.model = "scripted/small"

    plugins = [hooks.experimental_provider_small_model(choose)]
    async with open_harness("SAY Hello.", plugins=plugins, title=None, small=small) as harness:
        await harness.ask()
        await harness.until(lambda: small.title_calls)
        assert not harness.model.title_calls


@pytest.mark.parametrize("prompt", [None, "Sum it up as a limerick."])
async def test_a_compacting_hook_adds_to_the_prompt_or_replaces_it(prompt: str | None) -> None:
    def compacting(call: CompactingInput, output: CompactingOutput) -> None:
        assert call.auto is False
        output.context.append("Mind the parser.")
        output.prompt = prompt

    usual = await _words_of_a_compaction()
    words = await _words_of_a_compaction(hooks.experimental_session_compacting(compacting))
    assert words == (f"{usual}\n\nMind the parser." if prompt is None else prompt)


async def _words_of_a_compaction(*plugins: Any) -> str:
    async with open_harness("SAY Hello.\n---\nSAY A summary.", plugins=plugins) as harness:
        await harness.ask()
        await (await harness.engine.compact(harness.session))
        return _last_words(harness)


def _last_words(harness: EngineHarness) -> str:
    turn = asked(harness).messages[-1]
    assert isinstance(turn, User)
    assert isinstance(turn.content[0], Text)
    return turn.content[0].text.rpartition("</conversation>\n\n")[2]


@pytest.mark.parametrize("enabled", [True, False])
async def test_an_autocontinue_hook_says_whether_a_session_continues_after_compaction(enabled: bool) -> None:
    def autocontinue(call: ChatInput, output: AutoContinueOutput) -> None:
        output.enabled = enabled

    script = f"{FULL}\n---\nSAY A summary.\n---\nSAY On it goes."
    async with open_harness(script, plugins=[hooks.experimental_compaction_autocontinue(autocontinue)]) as harness:
        assert (await harness.ask()).kind == "answered"
        assert ("On it goes." in harness.text()) is enabled
        harness.assert_sound()


async def test_a_text_hook_changes_what_is_stored_and_seen_from_then_on() -> None:
    def complete(done: TextCompleteInput, output: TextCompleteOutput) -> None:
        output.text = f"{output.text} [{done.part_id[:4]}]"

    async with open_harness(
        "SAY Hello.\n---\nSAY Bye.", plugins=[hooks.experimental_text_complete(complete)]
    ) as harness:
        await harness.ask()
        await harness.ask()
        assert harness.text() == "Hello. [prt_]Bye. [prt_]"
        assert "Hello. [prt_]" in said(asked(harness))


async def test_words_are_kept_if_the_run_is_stopped_while_a_text_hook_waits() -> None:
    waiting = asyncio.Event()

    async def complete(done: TextCompleteInput, output: TextCompleteOutput) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with open_harness("SAY Hello you.", plugins=[hooks.experimental_text_complete(complete)]) as harness:
        outcome = await harness.submit()
        await asyncio.wait_for(waiting.wait(), 60)
        harness.engine.abort(harness.session)
        assert (await outcome).kind == "aborted"
        assert harness.text() == "Hello you."
        assert harness.published(events.PluginFailed) == []
        harness.assert_sound()
