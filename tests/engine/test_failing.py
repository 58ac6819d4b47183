from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from opensesh.engine.prompt import Prompt
from opensesh.engine.settings import Settings
from opensesh.errors import ModelNotFoundError, NotFoundError, OpenseshError, UsageError
from opensesh.models.request import Request
from opensesh.models.stream_events import StreamEvent
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.memory import Memory
from opensesh.storage.protocol import Key
from opensesh.testing.scripted import ScriptedModel

from ..harness import FullDisk
from .harness import Acting, hanging, open_harness

# -- what cannot begin -------------------------------------------------------------------------------------------------


async def test_a_model_without_a_key_is_an_outcome_on_record() -> None:
    async with open_harness("SAY never") as harness:
        outcome = await harness.ask(model="anthropic/claude-sonnet-4-5")
        assert outcome.kind == "failed"
        assert harness.answers()[-1].info["error"]["name"] == "ProviderAuthError"
        assert "ANTHROPIC_API_KEY" in outcome.description
        harness.assert_sound()


@pytest.mark.parametrize("gone", [{"agent": "nobody"}, {"model": {"providerID": "gone", "modelID": "gone"}}])
async def test_a_stored_prompt_whose_agent_or_model_is_gone_gets_that_as_its_outcome(gone: dict[str, Any]) -> None:
    store = Memory()
    async with open_harness("HANG\n---\nSAY again", store=store) as harness:
        outcome = await harness.submit()
        harness.engine.abort(harness.session)
        await outcome
        prompt, answer = harness.messages()
        store.remove(("message", harness.session, answer.info["id"]))
        store.write(("message", harness.session, prompt.info["id"]), prompt.info | gone)
        resumed = await harness.engine.resume(harness.session)
        assert resumed is not None
        assert (await resumed).kind == "failed"
        assert harness.answers()[-1].info["error"]["name"] == "UnknownError"
        harness.assert_sound()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"model": "nobody/nothing"}, ModelNotFoundError),
        ({"agent": "nobody"}, NotFoundError),
        ({"message_id": "ses_wrong"}, OpenseshError),
    ],
)
async def test_a_prompt_that_names_what_is_not_there_is_refused_and_nothing_is_stored(
    bad: dict[str, Any], error: type[Exception]
) -> None:
    async with open_harness("SAY fine") as harness:
        with pytest.raises(error):
            await harness.submit(**bad)
        assert harness.messages() == []
        assert (await harness.ask()).kind == "answered", "the session is free"


@pytest.mark.parametrize(
    "part", [{"type": "text"}, {"type": "poem", "text": "x"}, {}, {"type": "file"}, {"type": "agent"}, {"type": []}]
)
async def test_a_prompt_of_parts_that_make_no_sense_is_refused(part: dict[str, Any]) -> None:
    async with open_harness("SAY fine") as harness:
        with pytest.raises(UsageError):
            await harness.ask(Prompt(parts=(part,), model="scripted/it"))
        assert (await harness.ask()).kind == "answered"


async def test_a_session_that_does_not_exist_cannot_be_run() -> None:
    async with open_harness("SAY never") as harness:
        with pytest.raises(NotFoundError):
            await harness.submit(session="ses_0000037afffeUtcCVcW6jyYWWR")


async def test_the_name_of_a_message_can_be_given_once() -> None:
    async with open_harness("SAY one") as harness:
        await harness.ask(message_id="msg_mine")
        assert harness.messages()[0].info["id"] == "msg_mine"
        with pytest.raises(UsageError):
            await harness.submit(message_id="msg_mine")


# -- what goes wrong below ---------------------------------------------------------------------------------------------


class Failing(Memory):
    """A store that refuses parts, from a moment on."""

    broken = False

    def write(self, key: Key, value: Any) -> None:
        if self.broken:
            from opensesh.errors import WriteError

            raise WriteError("the disk is full")
        super().write(key, value)


async def test_a_disk_that_is_full_fails_the_prompt_and_the_engine_continues(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing()

    async def fill(arguments: dict[str, Any], ctx: Any) -> str:
        store.broken = True
        return "filled"

    async with open_harness("CALL fill {}\n---\nSAY fine", store=store, tools=[Acting("fill", fill)]) as harness:
        outcome = await harness.ask()
        assert outcome.kind == "failed"
        assert "disk is full" in outcome.description
        assert harness.engine.status() == {}
        store.broken = False
        resumed = await harness.engine.resume(harness.session)
        assert resumed is not None
        assert (await resumed).kind == "answered"
        harness.assert_sound()
    assert "the run of" in caplog.text


async def test_a_full_disk_of_a_tree_fails_the_prompt_with_the_reason(tmp_path: Any) -> None:
    disk = FullDisk(1_000_000, durable=False)
    tree = JsonTree(tmp_path / "storage", disk=disk)
    async with open_harness("SAY one\n---\nSAY two", store=tree) as harness:
        await harness.ask()
        disk.free_bytes = 1_500
        with pytest.raises(OpenseshError):
            await harness.ask("x" * 2_000)
        disk.add_space(1_000_000)
        assert (await harness.ask()).kind == "answered"
        harness.assert_sound()


class Untitled(ScriptedModel):
    """A model whose adapter has a fault that shows in titles."""

    def __init__(self) -> None:
        super().__init__("SAY fine\n---\nSAY fine")

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        if not request.tools:
            raise KeyError("choices")
        async for event in super().stream(request):
            yield event


async def test_a_title_that_goes_wrong_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with open_harness("SAY fine\n---\nTITLE half\nERROR 500", title=None) as harness:
        assert (await harness.ask()).kind == "answered"
    async with open_harness(Untitled(), title=None) as harness:
        assert (await harness.ask()).kind == "answered"
        await harness.until(lambda: "KeyError" in caplog.text)
        assert (await harness.ask()).kind == "answered"
    disabled = {"agent": {"title": {"disable": True}}}
    async with open_harness("SAY fine\n---\nSAY fine", config=disabled, title=None) as harness:
        assert (await harness.ask()).kind == "answered"
        assert (await harness.ask()).kind == "answered"


async def test_a_session_is_named_once_by_the_small_model_unless_it_was_renamed_first() -> None:
    async with open_harness("SAY a\n---\nSAY b\n---\nTITLE Of Mice\n---\nTITLE Of Men", title=None) as harness:
        await harness.ask("Write about mice.")
        await harness.until(lambda: harness.engine.sessions.get(harness.session).title == "Of Mice")
        await harness.ask()
        assert len(harness.model.title_calls) == 1


async def test_leaving_the_engine_does_not_wait_for_a_title_that_never_comes() -> None:
    settings = Settings(title_timeout_seconds=0.05)
    async with asyncio.timeout(60):
        async with open_harness("SAY fine\n---\nTITLE never\nHANG", title=None, settings=settings) as harness:
            await harness.ask()
            await harness.until(lambda: harness.model.title_calls)


async def test_a_closed_engine_takes_no_prompts_and_holds_no_lease() -> None:
    store = Memory()
    async with open_harness("SAY never", store=store) as harness:
        engine, session = harness.engine, harness.session
    with pytest.raises(UsageError):
        await engine.submit(session, "late", model="scripted/it")
    async with open_harness("SAY fine", store=store) as harness:
        assert (await harness.ask(session=session)).kind == "answered"


async def test_leaving_the_engine_aborts_what_still_runs_cleanly() -> None:
    store = Memory()
    started = asyncio.Event()
    async with open_harness("CALL hang {}", store=store, tools=[hanging(started)]) as harness:
        outcome = await harness.submit()
        await started.wait()
        session = harness.session
    assert (await outcome).kind == "aborted"
    async with open_harness("SAY on", store=store) as harness:
        harness.session = session
        assert await harness.engine.resume(session) is None
        harness.assert_sound()


async def test_a_context_that_overflows_is_a_failure_where_compaction_is_off() -> None:
    async with open_harness("ERROR overflow", config={"compaction": {"auto": False}}) as harness:
        assert (await harness.ask()).kind == "failed"
        assert harness.answers()[-1].info["error"]["name"] == "ContextOverflowError"
        harness.assert_sound()
