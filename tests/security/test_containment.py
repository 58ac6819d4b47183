from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import opensesh
from opensesh import events
from opensesh.config import rule
from opensesh.engine.opening import open_engine
from opensesh.engine.settings import Settings
from opensesh.plugins import ChatInput, ChatParamsOutput, Plugin
from opensesh.storage.memory import Memory
from opensesh.testing.scripted import ScriptedModel
from opensesh.tools.tool import ToolOutput

from ..engine.harness import Acting, echo, open_harness

EXITS = [SystemExit(2), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), StopIteration(), Exception("x")]
ALLOW = [rule("*", "allow")]
ids = [type(error).__name__ for error in EXITS]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("error", EXITS, ids=ids)
async def test_m11_l15_a_tool_that_raises_ends_itself_alone(error: BaseException) -> None:
    async def act(arguments: dict[str, Any], ctx: Any) -> None:
        raise error

    async def wait(arguments: dict[str, Any], ctx: Any) -> str:
        await asyncio.sleep(0.2)
        return "waited"

    script = "CALL leave {}\nCALL wait {}\n---\nSAY end"
    async with open_harness(script, tools=[Acting("leave", act), Acting("wait", wait)], rules=ALLOW) as harness:
        await harness.ask()
        states = [part["state"] for part in harness.parts("tool")]
        assert [state["status"] for state in states] == ["error", "completed"]
        assert type(error).__name__ in states[0]["error"] or "StopIteration" in states[0]["error"]
        assert harness.text() == "end"
        harness.assert_sound()


@pytest.mark.parametrize("error", EXITS, ids=ids)
async def test_m11_a_function_in_a_thread_that_raises_ends_itself_alone(error: BaseException) -> None:
    @opensesh.tool
    def leave() -> str:
        """Leave."""
        raise error

    async with open_harness("CALL leave {}\n---\nSAY end", tools=[leave], rules=ALLOW) as harness:
        await harness.ask()
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["error"]
        assert harness.text() == "end"
        harness.assert_sound()


class Leaving:
    """Raises when it is shown."""

    def __repr__(self) -> str:
        raise SystemExit(2)


class Text(str):
    __slots__ = ()


CYCLE: dict[str, Any] = {}
CYCLE["itself"] = CYCLE
UNSTORABLE = [Leaving(), object, Text("x"), CYCLE, 10**5_000, {1: object()}, iter("ab")]
unstorable = pytest.mark.parametrize("value", UNSTORABLE, ids=lambda value: type(value).__name__)


@unstorable
@pytest.mark.parametrize("place", ["metadata", "attachments", "title", "output", "progress", "ask", "error"])
async def test_m11_a_tool_that_returns_or_says_what_cannot_be_stored_ends_itself_alone(place: str, value: Any) -> None:
    async def act(arguments: dict[str, Any], ctx: Any) -> ToolOutput:
        if place == "progress":
            await ctx.progress(metadata={"value": value})
        if place == "ask":
            await ctx.ask("x", ["x"], metadata={"value": value})
        if place == "error":
            raise ValueError(value)
        fields: dict[str, Any] = {"title": "t", "output": "o", "metadata": {}, "attachments": ()}
        fields |= {"metadata": {"m": value}} if place == "metadata" else {place: value}
        return ToolOutput(fields["title"], fields["output"], fields["metadata"], fields["attachments"])

    script = "CALL leave {}\n---\nCALL echo {}\n---\nSAY end"
    async with open_harness(script, tools=[Acting("leave", act), echo()], rules=ALLOW) as harness:
        outcome = await harness.ask()
        assert (outcome.kind, harness.text()) == ("answered", "end")
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["error", "completed"]
        harness.assert_sound()


@pytest.mark.parametrize("hook", ["provider", "chat_params", "tool_execute_after", "event"])
async def test_m11_a_hook_whose_error_cannot_be_shown_is_skipped(hook: str) -> None:
    def act(self: Plugin, *arguments: object) -> None:
        raise BaseExceptionGroup("several", [SystemExit(2)]) if hook == "provider" else ValueError(Leaving())

    plugin: type[Plugin] = type("Showing", (Plugin,), {hook: act})
    async with open_harness("CALL echo {}\n---\nSAY end", tools=[echo()], plugins=[plugin], rules=ALLOW) as harness:
        await harness.ask()
        assert harness.text() == "end"
        harness.assert_sound()


@pytest.mark.parametrize("error", EXITS, ids=ids)
async def test_m11_a_permission_callback_that_raises_rejects(error: BaseException) -> None:
    def callback(request: events.PermissionAsked) -> Any:
        raise error

    Path("opencode.json").write_text('{"permission":{"bash":"ask"}}')
    model = ScriptedModel('CALL bash {"command":"true","description":"x"}\n---\nSAY end')
    async with open_engine(".", store=Memory(), scripts={"it": model}, permission=callback) as engine:
        session = await engine.create(title="x")
        await asyncio.wait_for(engine.run(session.id, "Go.", model="scripted/it"), 60)
        parts = [part for message in engine.sessions.messages(session.id) for part in message.parts]
        assert [part["state"]["status"] for part in parts if part["type"] == "tool"] == ["error"]
        assert engine.status() == {}


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise SystemExit(2)

    __hash__ = object.__hash__


@pytest.mark.parametrize("value", [[], {}, 7, None, "yes", Incomparable()], ids=lambda value: type(value).__name__)
async def test_m11_a_permission_callback_that_returns_anything_else_rejects(value: Any) -> None:
    Path("opencode.json").write_text('{"permission":{"bash":"ask"}}')
    model = ScriptedModel('CALL bash {"command":"true","description":"x"}\n---\nSAY end')
    async with open_engine(".", store=Memory(), scripts={"it": model}, permission=lambda request: value) as engine:
        session = await engine.create(title="x")
        await asyncio.wait_for(engine.run(session.id, "Go.", model="scripted/it"), 60)
        parts = [part for message in engine.sessions.messages(session.id) for part in message.parts]
        assert [part["state"]["status"] for part in parts if part["type"] == "tool"] == ["error"]
        assert engine.status() == {}


@pytest.mark.parametrize("value", [7, "x", {}, [7], [[7]], [None]], ids=repr)
async def test_m11_a_question_callback_that_returns_anything_else_ends_its_call_alone(value: Any) -> None:
    question = '{"questions":[{"question":"Which?","header":"h","options":[{"label":"a","description":"b"}]}]}'
    settings = Settings(question=lambda request: value)
    async with open_harness(f"CALL question {question}\n---\nSAY end", settings=settings) as harness:
        await asyncio.wait_for(harness.ask(), 60)
        assert {part["state"]["status"] for part in harness.parts("tool")} <= {"completed", "error"}
        harness.assert_sound()


@pytest.mark.parametrize("error", EXITS, ids=ids)
async def test_m11_a_question_callback_that_raises_dismisses(error: BaseException) -> None:
    async def callback(request: events.QuestionAsked) -> Any:
        await asyncio.sleep(0)
        raise error

    question = '{"questions":[{"question":"Which?","header":"h","options":[{"label":"a","description":"b"}]}]}'
    async with open_harness(f"CALL question {question}\n---\nSAY end", settings=Settings(question=callback)) as harness:
        await harness.ask()
        assert [part["state"]["status"] for part in harness.parts("tool")] == ["error"]
        harness.assert_sound()


@pytest.mark.parametrize("error", EXITS, ids=ids)
async def test_m11_a_hook_that_raises_is_skipped(error: BaseException) -> None:
    class Leaving(Plugin):
        async def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
            await asyncio.sleep(0)
            raise error

    async with open_harness("CALL echo {}\n---\nSAY end", tools=[echo()], plugins=[Leaving], rules=ALLOW) as harness:
        await harness.ask()
        assert harness.text() == "end"
        assert harness.published(events.PluginFailed)
        harness.assert_sound()


@pytest.mark.parametrize("error", [SystemExit(2), asyncio.CancelledError(), GeneratorExit()], ids=str)
async def test_m11_a_listener_of_the_bus_that_raises_is_logged(error: BaseException) -> None:
    async with open_harness("SAY end") as harness:

        def listener(envelope: Any) -> None:
            raise error

        harness.engine.bus.listen(listener)
        await harness.ask()
        assert harness.text() == "end"


async def test_m11_an_abort_still_ends_a_tool() -> None:
    started = asyncio.Event()

    async def act(arguments: dict[str, Any], ctx: Any) -> None:
        started.set()
        await asyncio.sleep(300)

    async with open_harness("CALL wait {}\n---\nSAY end", tools=[Acting("wait", act)], rules=ALLOW) as harness:
        outcome = await harness.submit()
        await started.wait()
        assert harness.engine.abort(harness.session)
        await asyncio.wait_for(outcome, 30)
        assert [part["state"]["error"] for part in harness.parts("tool")] == ["Tool execution aborted"]
