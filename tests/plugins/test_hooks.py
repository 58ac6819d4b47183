from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import opensesh
from opensesh import events
from opensesh.engine.opening import open_engine
from opensesh.errors import PermissionCorrectedError, ToolFailedError
from opensesh.models.request import Request, System
from opensesh.plugins import (
    AuthInput,
    AuthOutput,
    BusEvent,
    ChatHeadersOutput,
    ChatInput,
    ChatMessageInput,
    ChatMessageOutput,
    ChatParamsOutput,
    CommandExecuteInput,
    CommandExecuteOutput,
    ConfigOutput,
    Host,
    PermissionAskInput,
    PermissionAskOutput,
    Plugin,
    ProviderOutput,
    ShellEnvInput,
    ShellEnvOutput,
    ToolDefinitionInput,
    ToolDefinitionOutput,
    ToolExecuteAfterInput,
    ToolExecuteAfterOutput,
    ToolExecuteBeforeInput,
    ToolExecuteBeforeOutput,
    ToolsOutput,
    hooks,
)
from opensesh.records import as_object
from opensesh.testing.scripted import ScriptedModel
from opensesh.testing.wire import WireServer

from ..engine.harness import EngineHarness, echo, open_harness

ECHO = 'CALL echo {"a": 1}\n---\nSAY Done.'


def asked(harness: EngineHarness, number: int = -1) -> Request:
    return harness.model.calls[number].request


def said(request: Request) -> str:
    return "\n".join(str(turn) for turn in request.messages)


async def test_an_event_hook_receives_everything_in_order_up_to_the_end() -> None:
    received: list[BusEvent] = []

    @hooks.event
    async def listen(arguments: BusEvent) -> None:
        await asyncio.sleep(0)
        received.append(arguments)

    async with open_harness("SAY Hello.", plugins=[listen]) as harness:
        await harness.ask()
        bus = harness.engine.bus
    assert [item.sequence for item in received] == list(range(1, bus.last + 1))
    kinds = [item.event.type for item in received]
    assert kinds.index("session.created") < kinds.index("message.updated") < kinds.index("session.idle")


async def test_what_an_event_hook_does_to_an_event_has_no_effect_elsewhere() -> None:
    def spoil(arguments: BusEvent) -> None:
        arguments.event.properties.get("info", {}).clear()

    async with open_harness("SAY Hello.", plugins=[hooks.event(spoil)]) as harness:
        await harness.ask()
        await asyncio.sleep(0.05)
        assert all(event.info for event in harness.published(events.MessageUpdated))
        harness.assert_sound()


async def test_a_config_hook_changes_what_holds_and_is_named_as_who_did() -> None:
    def config(host: Host, output: ConfigOutput) -> None:
        output.document["agent"] = {"build": {"prompt": f"You are in {host.project_id}."}}
        output.document["permission"] = "deny"

    async with open_harness("SAY Hello.", plugins=[config], config={"instructions": ["a.md"]}) as harness:
        await harness.ask()
        settled = harness.engine.config
        system = asked(harness).messages[0]
        assert isinstance(system, System)
        assert system.text.startswith(f"You are in {harness.engine.location.id}.")
        assert settled.settings.permission == {"*": "deny"}
        assert str(settled.origin("agent.build.prompt")) == "the plugin config"
        assert "opencode.json" in str(settled.origin("instructions.0"))


async def test_a_provider_hook_adds_models() -> None:
    def provider(host: Host, output: ProviderOutput) -> None:
        output.providers["mine"] = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "http://127.0.0.1:1/v1"},
            "models": {"m": {"name": "M", "limit": {"context": 1000, "output": 100}}},
        }

    async with open_harness("SAY Hello.", plugins=[provider]) as harness:
        assert harness.engine.model("mine/m").limit.context == 1000


async def test_a_tool_hook_adds_tools_and_may_replace_a_built_in_one() -> None:
    @opensesh.tool
    def tickets(project: str) -> str:
        """List the tickets of a project."""
        return f"none in {project}"

    @opensesh.tool(name="bash")
    def no_shell(command: str) -> str:
        """Run nothing."""
        return "there is no shell here"

    def tool(host: Host, output: ToolsOutput) -> None:
        output.tools += [tickets, no_shell]

    script = 'CALL tickets {"project": "east"}\nCALL bash {"command": "touch it"}\n---\nSAY Done.'
    async with open_harness(script, plugins=[tool]) as harness:
        await harness.ask()
        assert [part["state"]["output"] for part in harness.parts("tool")] == ["none in east", "there is no shell here"]
    assert not Path("it").exists()


async def test_an_auth_hook_gives_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[AuthInput] = []

    async def auth(arguments: AuthInput, output: AuthOutput) -> None:
        needed.append(arguments)
        output.key = f"key-{len(needed)}"

    with WireServer("SAY Hello.") as server:
        mine = {
            "npm": "@ai-sdk/openai-compatible",
            "env": ["MINE_KEY"],
            "options": {"baseURL": server.base_url},
            "models": {"m": {"limit": {"context": 9000, "output": 100}}},
        }
        configuration = json.dumps({"provider": {"mine": mine}})
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", configuration)
        async with open_engine(".", plugins=[auth]) as engine:
            session = await engine.create(title="x")
            assert (await engine.run(session.id, "Go.", model="mine/m")).kind == "answered"
    assert [item.provider_id for item in needed] == ["mine"]
    assert server.requests[0].headers["authorization"] == "Bearer key-1"


async def test_an_auth_hook_renews_the_login_that_auth_json_has(
    monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    file = isolated / ".local/share/opencode/auth.json"
    file.parent.mkdir(parents=True)
    old = {"type": "oauth", "refresh": "r1", "access": "old", "expires": 1}
    file.write_text(json.dumps({"mine": old, "other": {"type": "api", "key": "k"}}))
    renewals: list[object] = []

    async def auth(arguments: AuthInput, output: AuthOutput) -> None:
        stored = arguments.stored or {}
        if stored["expires"] < 1000:
            renewals.append(arguments.stored)
            stored = {"type": "oauth", "refresh": "r2", "access": "new", "expires": 4_102_444_800_000}
            output.stored = stored
        output.key, output.bearer = str(stored["access"]), True

    with WireServer("SAY One.\n---\nSAY Two.") as server:
        mine = {
            "npm": "@ai-sdk/openai-compatible",
            "env": ["MINE_KEY"],
            "options": {"baseURL": server.base_url},
            "models": {"m": {"limit": {"context": 9000, "output": 100}}},
        }
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"provider": {"mine": mine}}))
        async with open_engine(".", plugins=[auth]) as engine:
            session = await engine.create(title="x")
            for prompt in ("Go.", "Again."):
                assert (await engine.run(session.id, prompt, model="mine/m")).kind == "answered"
    assert renewals == [old]
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer new"}
    assert json.loads(file.read_text())["mine"]["refresh"] == "r2"
    assert json.loads(file.read_text())["other"] == {"type": "api", "key": "k"}
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_chat_message_hook_changes_what_is_stored_and_asked() -> None:
    def chat_message(arguments: ChatMessageInput, output: ChatMessageOutput) -> None:
        output.parts[0]["text"] += f" For {arguments.agent} on {arguments.model}."
        output.parts.append({"type": "text", "text": "By the way."})
        output.message["system"] = "Rhyme."

    async with open_harness("SAY Hello.", plugins=[chat_message]) as harness:
        await harness.ask("Go.")
        prompt = harness.messages()[0]
        assert [part["text"] for part in prompt.parts] == ["Go. For build on scripted/it.", "By the way."]
        assert list(prompt.parts[1]) == ["id", "sessionID", "messageID", "type", "text"]
        assert "By the way." in said(asked(harness))
        assert "Rhyme." in said(asked(harness))
        harness.assert_sound()


async def test_params_and_headers_are_those_of_the_plugins_for_every_model_call() -> None:
    seen: list[tuple[str, str]] = []

    def chat_params(call: ChatInput, params: ChatParamsOutput) -> None:
        seen.append((call.purpose, call.agent))
        params.temperature, params.top_p, params.top_k, params.max_output_tokens = 0.1, 0.2, 3, 44
        params.options["reasoningEffort"] = "low"

    async def chat_headers(call: ChatInput, output: ChatHeadersOutput) -> None:
        output.headers["X-Session"] = call.session_id

    plugin = {"chat.params": chat_params, "chat_headers": chat_headers}
    async with open_harness("SAY Hello.\n---\nSAY A summary.", plugins=[plugin], title=None) as harness:
        await harness.ask()
        await harness.until(lambda: harness.model.title_calls)
        await (await harness.engine.compact(harness.session))
        for request in (item.request for item in (*harness.model.calls, *harness.model.title_calls)):
            assert (request.temperature, request.top_p, request.top_k) == (0.1, 0.2, 3)
            assert request.max_output_tokens == 44
            assert request.options["reasoningEffort"] == "low"
            assert request.headers == {"X-Session": harness.session}
    assert set(seen) == {("answer", "build"), ("title", "title"), ("summary", "compaction")}


@pytest.mark.parametrize("rule", ["allow", "ask"])
async def test_a_permission_hook_gets_the_decision_of_the_rules_and_may_forbid_it(rule: str) -> None:
    arguments: list[tuple[str, str, str]] = []

    def permission_ask(asked: PermissionAskInput, answer: PermissionAskOutput) -> None:
        arguments.append((asked.permission, Path(asked.patterns[0]).name, answer.status))
        answer.status, answer.message = "deny", "not on a Friday"

    script = 'CALL write {"filePath": "a.txt", "content": "x"}\n---\nEXPECT last not on a Friday\nSAY Done.'
    async with open_harness(script, plugins=[permission_ask], config={"permission": {"edit": rule}}) as harness:
        await harness.ask()
        harness.model.assert_complete()
        assert arguments == [("edit", "a.txt", rule)]
        assert "The plugin permission_ask denies edit for" in harness.parts("tool")[0]["state"]["error"]
    assert not Path("a.txt").exists()


async def test_a_permission_hook_may_allow_what_would_be_asked_and_have_asked_what_is_allowed() -> None:
    def permission_ask(asked: PermissionAskInput, answer: PermissionAskOutput) -> None:
        answer.status = "allow" if asked.permission == "edit" else "ask"

    script = """CALL write {"filePath": "a.txt", "content": "x"}
---
CALL bash {"command": "touch b.txt"}
---
SAY Done."""
    config = {"permission": {"edit": "ask", "bash": "allow"}}
    async with open_harness(script, plugins=[permission_ask], config=config) as harness:
        outcome = await harness.submit()
        request = await harness.until_published(events.PermissionAsked)
        assert (Path("a.txt").read_text(), Path("b.txt").exists()) == ("x", False)
        while not outcome.done():
            for waiting in harness.engine.permissions():
                harness.engine.reply_permission(waiting["id"], "once")
            await asyncio.sleep(0.01)
        assert request.permission != "edit"
    assert Path("b.txt").exists()


async def test_no_plugin_can_allow_what_a_rule_forbids() -> None:
    def permission_ask(asked: PermissionAskInput, answer: PermissionAskOutput) -> None:
        answer.status = "allow"

    config = {"permission": {"edit": {"*": "allow", "*secret*": "deny"}}}
    script = 'CALL write {"filePath": "secret.txt", "content": "x"}\n---\nSAY Done.'
    async with open_harness(script, plugins=[permission_ask], config=config) as harness:
        await harness.ask()
    assert not Path("secret.txt").exists()


async def test_a_command_hook_changes_the_prompt_that_a_command_becomes() -> None:
    def command_execute_before(call: CommandExecuteInput, output: CommandExecuteOutput) -> None:
        output.parts[0]["text"] = f"{call.command}({call.arguments}) said: {output.parts[0]['text']}"

    config = {"command": {"greet": {"template": "Greet $1."}}}
    async with open_harness("SAY Done.", plugins=[command_execute_before], config=config) as harness:
        await (await harness.engine.command(harness.session, "greet", "you", model="scripted/it"))
        assert harness.parts("text")[0]["text"] == "greet(you) said: Greet you."


async def test_tool_hooks_change_what_goes_in_and_what_comes_out() -> None:
    ran: list[ToolExecuteAfterInput] = []

    async def tool_execute_before(call: ToolExecuteBeforeInput, output: ToolExecuteBeforeOutput) -> None:
        output.args["b"] = call.tool

    def tool_execute_after(arguments: ToolExecuteAfterInput, output: ToolExecuteAfterOutput) -> None:
        ran.append(arguments)
        output.output, output.title = output.output.upper(), "Loud"
        output.metadata["loud"] = True

    plugin = {"tool.execute.before": tool_execute_before, "tool.execute.after": tool_execute_after}
    async with open_harness(ECHO, plugins=[plugin], tools=[echo()]) as harness:
        await harness.ask()
        (part,) = harness.parts("tool")
        assert part["state"]["input"] == {"a": 1, "b": "echo"} == ran[0].args
        assert part["state"]["output"] == 'ECHO {"A": 1, "B": "ECHO"}'
        assert (part["state"]["title"], part["state"]["metadata"]["loud"]) == ("Loud", True)
        assert ran[0].call_id == part["callID"]
        assert 'ECHO {"A": 1' in said(asked(harness))


@pytest.mark.parametrize("refusal", [ToolFailedError("Not that one."), PermissionCorrectedError("Not that one.")])
async def test_a_tool_hook_may_keep_a_tool_from_running(refusal: Exception) -> None:
    def tool_execute_before(call: ToolExecuteBeforeInput, output: ToolExecuteBeforeOutput) -> None:
        raise refusal

    script = 'CALL write {"filePath": "a.txt", "content": "x"}\n---\nEXPECT last Not that one.\nSAY Done.'
    async with open_harness(script, plugins=[tool_execute_before]) as harness:
        await harness.ask()
        harness.model.assert_complete()
        assert harness.published(events.PluginFailed) == []
        assert harness.parts("tool")[0]["state"]["input"] == {"filePath": "a.txt", "content": "x"}
    assert not Path("a.txt").exists()


async def test_tool_hooks_see_calls_inside_of_calls() -> None:
    seen: list[str] = []

    def tool_execute_before(call: ToolExecuteBeforeInput, output: ToolExecuteBeforeOutput) -> None:
        seen.append(call.tool)

    calls = {"tool_calls": [{"tool": "bash", "parameters": {"command": "true"}}]}
    script = f"CALL batch {json.dumps(calls)}\n---\nSAY Done."
    config = {"experimental": {"batch_tool": True}}
    async with open_harness(script, plugins=[tool_execute_before], config=config) as harness:
        await harness.ask()
    assert seen == ["batch", "bash"]


async def test_a_shell_hook_adds_variables_for_the_model_the_user_and_templates() -> None:
    seen: list[ShellEnvInput] = []

    def shell_env(call: ShellEnvInput, output: ShellEnvOutput) -> None:
        seen.append(call)
        output.env["FLAVOUR"] = "mint"

    Path("inner").mkdir()
    config = {"command": {"taste": {"template": "It is !`echo $FLAVOUR`."}}}
    script = 'CALL bash {"command": "echo $FLAVOUR", "workdir": "inner"}\n---\nSAY Done.\n---\nSAY Done.'
    async with open_harness(script, plugins=[shell_env], config=config) as harness:
        await harness.ask()
        await harness.engine.shell(harness.session, "echo user $FLAVOUR", model="scripted/it")
        await (await harness.engine.command(harness.session, "taste", model="scripted/it"))
        outputs = [part["state"]["output"].strip() for part in harness.parts("tool")]
        assert outputs == ["mint", "user mint"]
        assert "It is mint." in [part["text"].replace("\n", "") for part in harness.parts("text")]
        here = harness.engine.location.directory
    assert [item.cwd for item in seen] == [f"{here}/inner", here, here]
    assert seen[0].call_id


async def test_a_prompt_that_stands_for_a_command_of_the_users_is_left_alone() -> None:
    def chat_message(arguments: ChatMessageInput, output: ChatMessageOutput) -> None:
        output.parts.append({"type": "text", "text": "More."})

    async with open_harness("SAY Done.", plugins=[chat_message]) as harness:
        await harness.engine.shell(harness.session, "echo hello", model="scripted/it")
        assert len(harness.messages()[0].parts) == 1
        assert not harness.model.calls


async def test_a_definition_hook_changes_what_the_model_reads_of_a_tool() -> None:
    def tool_definition(shown: ToolDefinitionInput, output: ToolDefinitionOutput) -> None:
        if shown.tool == "bash":
            output.description = "Do not."
            output.parameters["properties"]["why"] = {"type": "string"}

    async with open_harness("SAY Hello.\n---\nSAY Again.", plugins=[tool_definition]) as harness:
        await harness.ask()
        await harness.ask()
        for call in harness.model.calls:
            specs = {spec.name: spec for spec in call.request.tools}
            assert specs["bash"].description == "Do not."
            assert "why" in specs["bash"].parameters["properties"]
            assert specs["read"].description != "Do not."


async def test_a_dispose_hook_is_called_once_when_all_is_over() -> None:
    order: list[str] = []

    class Tidy(Plugin):
        def event(self, received: BusEvent) -> None:
            order.append(received.event.type)

        async def dispose(self, host: Host) -> None:
            order.append(f"dispose {host == self.host}")

    async with open_harness("SAY Hello.", plugins=[Tidy]) as harness:
        await harness.ask()
    assert order[-1] == "dispose True"
    assert order.count("dispose True") == 1
    assert "session.idle" in order


async def test_without_plugins_what_goes_in_comes_out() -> None:
    async with open_harness(ECHO, tools=[echo()]) as harness:
        await harness.ask()
        hooks_of = harness.engine.components.hooks
        info: dict[str, Any] = {"sessionID": harness.session}
        parts: list[dict[str, Any]] = [{"type": "text"}]
        kept = await hooks_of.prompt(info, parts)
        assert kept[0] is info
        assert kept[1] is parts
        request = asked(harness)
        assert await hooks_of.side_request(info, "build", "title", request) is request
        assert await hooks_of.shell_env(".") is harness.engine.config.variables


async def test_a_plugin_that_changes_nothing_changes_nothing() -> None:
    class Watching(Plugin):
        pass

    def watch(*told: object) -> None:
        pass

    for hook in hooks.ALL.values():
        setattr(Watching, hook.method, watch)

    async def run(*plugins: Any) -> tuple[list[Request], list[list[str]]]:
        model = ScriptedModel('CALL bash {"command": "echo one"}\n---\nSAY Done.\n---\nSAY A summary.')
        async with open_harness(model, plugins=plugins) as harness:
            await harness.ask()
            await (await harness.engine.compact(harness.session))
            shapes = [[json.dumps(_shape(part)) for part in message.parts] for message in harness.messages()]
            assert harness.published(events.PluginFailed) == []
        return [call.request for call in model.calls], shapes

    requests, records = await run()
    watched, watched_records = await run(Watching)
    assert [_plain(item) for item in requests] == [_plain(item) for item in watched]
    assert records == watched_records


def _shape(value: Any) -> Any:
    """A record without its identifiers and moments."""
    members = as_object(value)
    if members is not None:
        varying = ("id", "sessionID", "messageID", "time", "hash", "snapshot")
        return {key: _shape(item) for key, item in members.items() if key not in varying}
    return value


def _plain(request: Request) -> str:
    import re

    return re.sub(r"ses_\w+|call_\w+", "", str(request))
