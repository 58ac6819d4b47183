from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from opensesh import events
from opensesh.bus import Bus
from opensesh.errors import PluginError
from opensesh.plugins import (
    BusEvent,
    ChatHeadersOutput,
    ChatInput,
    ChatMessageInput,
    ChatMessageOutput,
    ChatParamsOutput,
    ConfigOutput,
    Host,
    LoadedPlugin,
    PermissionAskInput,
    PermissionAskOutput,
    Plugin,
    Plugins,
    PluginSource,
    ShellEnvInput,
    ShellEnvOutput,
    ToolDefinitionInput,
    ToolDefinitionOutput,
    ToolExecuteBeforeInput,
    ToolExecuteBeforeOutput,
    ToolsOutput,
    hooks,
)
from opensesh.plugins.calling import feed_events

from ..engine.harness import EngineHarness, echo, open_harness
from .test_hooks import ECHO, asked, said


def failures(harness: EngineHarness) -> list[tuple[str, str]]:
    return [(event.plugin, event.hook) for event in harness.published(events.PluginFailed)]


def adding(word: str) -> Any:
    class Adding(Plugin):
        def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
            params.options["order"] = params.options.get("order", "") + word

    Adding.__name__ = f"Adding_{word}"
    return Adding


async def test_hooks_are_called_in_the_order_of_their_plugins_each_with_what_the_one_before_left() -> None:
    async with open_harness("SAY Hello.", plugins=[adding("a"), adding("b"), adding("c")]) as harness:
        await harness.ask()
        assert asked(harness).options["order"] == "abc"


class Stumbling(Plugin):
    def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
        params.options["order"] = "half done"
        raise KeyError("oh no")


class Leaving(Plugin):
    def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
        params.options.clear()
        sys.exit(3)


class Waiting(Plugin):
    async def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
        params.options.clear()
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner


class Muddling(Plugin):
    def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
        params.options["order"] = object()


class Guessing(Plugin):
    def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
        hot: Any = "hot"
        params.temperature = hot


@pytest.mark.parametrize("wrong", [Stumbling, Leaving, Waiting, Muddling, Guessing])
async def test_a_hook_that_fails_is_named_and_leaves_everything_as_it_was(
    wrong: type[Plugin], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_harness("SAY Hello.\n---\nSAY Bye.", plugins=[adding("a"), wrong, adding("b")]) as harness:
        await harness.ask()
        await harness.ask()
        assert (asked(harness).options["order"], asked(harness).temperature) == ("ab", None)
        assert failures(harness) == [(wrong.__name__, "chat.params")] * 2
        assert harness.published(events.PluginFailed)[0].session_id == harness.session
        harness.assert_sound()
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1, "said once, however often it happens"
    assert warned[0].startswith(f"the plugin {wrong.__name__} failed in chat.params")


async def test_an_error_says_where_in_the_plugin_it_was_raised() -> None:
    async with open_harness("SAY Hello.", plugins=[Stumbling]) as harness:
        await harness.ask()
        (failed,) = harness.published(events.PluginFailed)
    line = 1 + Path(__file__).read_text().splitlines().index('        raise KeyError("oh no")')
    assert failed.error == f"KeyError: 'oh no' (test_containing.py:{line})"


async def test_a_stopped_run_is_not_the_fault_of_the_hook_it_waits_for() -> None:
    reached = asyncio.Event()

    async def chat_params(call: ChatInput, params: ChatParamsOutput) -> None:
        reached.set()
        await asyncio.sleep(60)

    async with open_harness("SAY Hello.", plugins=[chat_params]) as harness:
        outcome = await harness.submit()
        await asyncio.wait_for(reached.wait(), 60)
        harness.engine.abort(harness.session)
        assert (await asyncio.wait_for(outcome, 60)).kind == "aborted"
        assert failures(harness) == []
        harness.assert_sound()


async def test_an_event_hook_that_fails_does_not_fail_for_ever() -> None:
    def event(received: BusEvent) -> None:
        raise RuntimeError("no")

    async with open_harness("SAY Hello.", plugins=[event]) as harness:
        await harness.ask()
        last = harness.engine.bus.last
        await harness.until(lambda: len(failures(harness)) > 3)
        await asyncio.sleep(0.1)
    assert harness.engine.bus.last < 3 * last


async def test_an_event_hook_that_never_ends_does_not_block_closing() -> None:
    started = asyncio.Event()

    async def event(event: BusEvent) -> None:
        started.set()
        await asyncio.Event().wait()

    host = Host(directory="/", worktree="/", project_id="global")
    plugin = LoadedPlugin("slow", PluginSource("given", "test"), host, (("event", event),))
    bus = Bus()
    async with asyncio.timeout(30), feed_events(Plugins([plugin]), bus, close_timeout_seconds=0.05):
        bus.publish(events.PluginFailed(plugin="other", hook="load", error="broken"), directory="/")
        await started.wait()


async def test_promise_18_a_tool_does_not_run_if_the_hook_before_it_fails() -> None:
    def tool_execute_before(call: ToolExecuteBeforeInput, output: ToolExecuteBeforeOutput) -> None:
        output.args.clear()
        raise RuntimeError("no")

    async with open_harness(ECHO, plugins=[tool_execute_before], tools=[echo()]) as harness:
        await harness.ask()
        state = harness.parts("tool")[0]["state"]
        assert state["status"] == "error"
        assert "The plugin tool_execute_before prevented the call: RuntimeError: no" in state["error"]
        assert failures(harness) == [("tool_execute_before", "tool.execute.before")]


@pytest.mark.parametrize("rule", ["ask", "allow"])
async def test_promise_18_the_user_is_asked_if_a_permission_hook_fails(rule: str) -> None:
    def permission_ask(asked: PermissionAskInput, answer: PermissionAskOutput) -> None:
        answer.status = "allow"
        raise RuntimeError("no")

    script = 'CALL write {"filePath": "a.txt", "content": "x"}\n---\nSAY Done.'
    async with open_harness(script, plugins=[permission_ask], config={"permission": {"edit": rule}}) as harness:
        outcome = await harness.submit()
        await harness.until_published(events.PermissionAsked)
        harness.engine.abort(harness.session)
        await outcome
    assert not Path("a.txt").exists()


async def test_a_prompt_that_could_not_be_stored_or_answered_is_not_taken() -> None:
    def change(what: str, value: Any) -> Any:
        def chat_message(arguments: ChatMessageInput, output: ChatMessageOutput) -> None:
            output.message[what] = value

        return chat_message

    def part(**fields: Any) -> Any:
        def chat_message(arguments: ChatMessageInput, output: ChatMessageOutput) -> None:
            output.parts.append(fields)

        return chat_message

    def nothing(arguments: ChatMessageInput, output: ChatMessageOutput) -> None:
        output.parts.clear()

    wrong = [
        change("id", "msg_0"),
        change("role", "assistant"),
        change("agent", "nobody"),
        change("model", {"providerID": "nowhere", "modelID": "none"}),
        part(type="tool", text="x"),
        part(type="text"),
        part(type="text", text="Fine.", messageID="msg_0"),
        {"chat.message": nothing},
    ]
    async with open_harness("SAY Hello.", plugins=wrong) as harness:
        assert (await harness.ask("Go.")).kind == "answered"
        prompt = harness.messages()[0]
        assert [item["text"] for item in prompt.parts] == ["Go.", "Fine."]
        assert {item["messageID"] for item in prompt.parts} == {prompt.info["id"]}
        assert len(failures(harness)) == len(wrong) - 1
        harness.assert_sound()


async def test_headers_variables_and_definitions_that_are_invalid_are_not_taken() -> None:
    def chat_headers(call: ChatInput, output: ChatHeadersOutput) -> None:
        output.headers["X"] = "a\r\nAuthorization: mine"

    def shell_env(call: ShellEnvInput, output: ShellEnvOutput) -> None:
        output.env["A=B"] = "c"

    def tool_definition(shown: ToolDefinitionInput, output: ToolDefinitionOutput) -> None:
        output.parameters = {"type": "string"}

    plugin = {"chat.headers": chat_headers, "shell.env": shell_env, "tool.definition": tool_definition}
    async with open_harness('CALL bash {"command": "echo one"}\n---\nSAY Done.', plugins=[plugin]) as harness:
        await harness.ask()
        assert asked(harness).headers == {}
        assert all(spec.parameters["type"] == "object" for spec in asked(harness).tools)
        assert harness.parts("tool")[0]["state"]["output"].strip() == "one"
        assert set(failures(harness)) == {("plugin", item) for item in plugin}


def invalid(host: Host, output: ConfigOutput) -> None:
    output.document["compaction"] = {"auto": "perhaps"}


def unknown_key(host: Host, output: ConfigOutput) -> None:
    output.document["nonsense"] = True


def raising(host: Host, output: ConfigOutput) -> None:
    output.document["permission"] = "deny"
    raise RuntimeError("no")


@pytest.mark.parametrize("config", [invalid, unknown_key, raising])
async def test_promise_18_no_session_is_run_if_a_config_hook_fails(config: Any) -> None:
    plugin = {"config": config}
    with pytest.raises(PluginError, match=r"the plugin plugin .* failed in its config hook: .* No session is run"):
        async with open_harness("SAY Hello.", plugins=[plugin]):
            pass


async def test_what_is_not_a_tool_is_not_offered() -> None:
    def tool(host: Host, output: ToolsOutput) -> None:
        hammer: Any = "hammer"
        output.tools.append(hammer)

    async with open_harness("SAY Hello.", plugins=[tool]) as harness:
        assert (await harness.ask("Go.")).kind == "answered"
        assert "Go." in said(asked(harness))


def test_every_hook_can_be_a_method() -> None:
    methods = {name for name in vars(Plugin) if not name.startswith("_")}
    assert methods == {hook.method for hook in hooks.ALL.values()}
