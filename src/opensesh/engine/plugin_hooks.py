"""Where the engine lets plugins have their say: turns what it has at hand into what hooks are told, and back.

Where no plugin has a hook, what goes in comes out, the very same object, and nothing is copied.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from .. import ids
from ..errors import PermissionDeniedError, PermissionRefusedError, ToolFailedError
from ..models.request import System
from ..plugins import hook_types, hooks
from ..records import UserMessage, as_object, read_message, read_part
from ..tools.tool import ToolOutput
from .projection import Projection, clean, mark_cache_points
from .prompt import validate_prompt_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..config import Agent
    from ..events import PermissionAsked
    from ..models.model import Model
    from ..models.request import ModelMessage, Request, ToolSpec
    from ..permissions import Verdict
    from ..plugins import Plugins
    from ..records import Document
    from ..storage.protocol import StoredMessage
    from .components import Runtime

_REFUSALS = (ToolFailedError, PermissionRefusedError)
_FIXED = ("id", "sessionID", "role", "time")
"""What no plugin changes in a message."""


class Hooks:
    """The plugins of one engine."""

    def __init__(self, plugins: Plugins, runtime: Runtime) -> None:
        self.plugins = plugins
        self._runtime = runtime

    # -- prompts -------------------------------------------------------------------------------------------------------

    async def prompt(self, info: Document, parts: list[Document]) -> tuple[Document, list[Document]]:
        """A prompt as it is to be stored."""
        if not self.plugins.has_hook(hooks.chat_message):
            return info, parts
        model = as_object(info.get("model")) or {}
        given = hook_types.ChatMessageInput(
            session_id=info["sessionID"],
            message_id=info["id"],
            agent=str(info.get("agent")),
            model=f"{model.get('providerID')}/{model.get('modelID')}",
            variant=info.get("variant"),
        )
        output = hook_types.ChatMessageOutput(message=deepcopy(info), parts=deepcopy(parts))

        def check(changed: hook_types.ChatMessageOutput) -> None:
            self._check_message(info, changed.message)
            changed.parts = [_complete(part, info) for part in changed.parts]
            _check_parts(changed.parts)

        applied = await self.plugins.apply(hooks.chat_message, given, output, check=check)
        return (applied.output.message, applied.output.parts) if applied.changed_by else (info, parts)

    def _check_message(self, before: Document, after: Document) -> None:
        changed = [name for name in _FIXED if after.get(name) != before.get(name)]
        if changed:
            raise ValueError(f"{', '.join(changed)} of a message cannot be changed")
        if not isinstance(read_message(after), UserMessage):
            raise TypeError("a prompt is a message of the user's")
        self._runtime.agent(after.get("agent"))
        self._runtime.model_of(after)

    async def command(self, session_id: str, command: str, arguments: str, parts: Sequence[Document]) -> list[Document]:
        """The parts of the prompt that a command becomes."""
        if not self.plugins.has_hook(hooks.command_execute_before):
            return list(parts)
        given = hook_types.CommandExecuteInput(session_id=session_id, command=command, arguments=arguments)
        output = hook_types.CommandExecuteOutput(parts=deepcopy(list(parts)))
        applied = await self.plugins.apply(
            hooks.command_execute_before, given, output, check=lambda changed: _check_handed_in(changed.parts)
        )
        return applied.output.parts

    # -- requests ------------------------------------------------------------------------------------------------------

    def call(
        self, user: Document, agent: str, model: Model, purpose: hook_types.Purpose = "answer"
    ) -> hook_types.ChatInput:
        """What hooks are told of a model call."""
        return hook_types.ChatInput(
            session_id=user["sessionID"], agent=agent, model=model, message=deepcopy(user), purpose=purpose
        )

    async def conversation(
        self, call: hook_types.ChatInput, messages: Iterable[StoredMessage]
    ) -> list[StoredMessage] | None:
        """What to show the model in place of ``messages``; ``None`` if nobody changed them.

        What the model gets is projected from it, so it is valid whatever a plugin did. If it cannot be projected at
        all, the plugin is to blame.
        """
        if not self.plugins.has_hook(hooks.experimental_chat_messages_transform):
            return None
        applied = await self.plugins.apply(
            hooks.experimental_chat_messages_transform,
            call,
            hook_types.MessagesTransformOutput(messages=deepcopy(list(messages))),
            check=lambda changed: Projection(call.model, changed.messages),
        )
        return applied.output.messages if applied.changed_by else None

    async def request(self, call: hook_types.ChatInput, request: Request) -> Request:
        """A request as it is to be sent: system prompt, tools, parameters, headers."""
        request = await self._system(call, request)
        request = await self._tools(call, request)
        if self.plugins.has_hook(hooks.chat_params):
            params = hook_types.ChatParamsOutput(
                temperature=request.temperature,
                top_p=request.top_p,
                top_k=request.top_k,
                max_output_tokens=request.max_output_tokens,
                options=deepcopy(request.options),
            )
            applied = await self.plugins.apply(hooks.chat_params, call, params)
            request = replace(request, **msgspec.structs.asdict(applied.output)) if applied.changed_by else request
        if self.plugins.has_hook(hooks.chat_headers):
            headers = hook_types.ChatHeadersOutput(headers=dict(request.headers))
            applied = await self.plugins.apply(hooks.chat_headers, call, headers)
            request = replace(request, headers=applied.output.headers) if applied.changed_by else request
        return request

    async def side_request(self, user: Document, agent: str, purpose: hook_types.Purpose, request: Request) -> Request:
        """A request for side work as it is to be sent, its provider's key at hand."""
        if not self.plugins:
            return request
        await self.authorise(request.model)
        return await self.request(self.call(user, agent, request.model, purpose), request)

    async def _system(self, call: hook_types.ChatInput, request: Request) -> Request:
        if not self.plugins.has_hook(hooks.experimental_chat_system_transform):
            return request
        blocks = [turn.text for turn in request.messages if isinstance(turn, System)]
        applied = await self.plugins.apply(
            hooks.experimental_chat_system_transform, call, hook_types.SystemTransformOutput(system=list(blocks))
        )
        said = [clean(text) for text in applied.output.system if text.strip()]
        if not applied.changed_by or not said:
            return request
        # At most two blocks, for there are two points after which a system prompt is cached.
        kept = said if len(said) < 3 else [said[0], "\n".join(said[1:])]
        system: list[ModelMessage] = [System(text=text) for text in kept]
        rest = [turn for turn in request.messages if not isinstance(turn, System)]
        cached = any(turn.cache for turn in request.messages)
        turns = (*system, *rest)
        return replace(request, messages=mark_cache_points(turns, request.model) if cached else turns)

    async def _tools(self, call: hook_types.ChatInput, request: Request) -> Request:
        if not self.plugins.has_hook(hooks.tool_definition) or not request.tools:
            return request
        return replace(request, tools=tuple([await self._tool(call, spec) for spec in request.tools]))

    async def _tool(self, call: hook_types.ChatInput, spec: ToolSpec) -> ToolSpec:
        given = hook_types.ToolDefinitionInput(**_fields(call), tool=spec.name)
        output = hook_types.ToolDefinitionOutput(description=spec.description, parameters=deepcopy(spec.parameters))
        applied = await self.plugins.apply(hooks.tool_definition, given, output)
        return replace(spec, **_fields(applied.output)) if applied.changed_by else spec

    # -- models --------------------------------------------------------------------------------------------------------

    async def authorise(self, model: Model) -> None:
        """See that the key which a plugin has for a provider is the one that is used."""
        if not self.plugins.has_hook(hooks.auth):
            return
        given = hook_types.AuthInput(provider_id=model.provider_id, model=model)
        applied = await self.plugins.apply(hooks.auth, given, hook_types.AuthOutput())
        login = applied.output
        credential = None
        if login.key:
            from ..models.auth import Credential, KeySource, Secret

            credential = Credential(
                provider_id=model.provider_id,
                source=KeySource("plugin", f"the plugin {applied.changed_by[-1]}"),
                kind="oauth" if login.bearer else "api",
                secret=Secret(login.key),
            )
        self._runtime.keyring.grant(model.provider_id, credential)

    async def authorise_for(self, user: Document) -> None:
        """The same, for the model that a prompt asks for."""
        if self.plugins.has_hook(hooks.auth):
            await self.authorise(self._runtime.model_of(user))

    async def small_model(self, session_id: str, agent: Agent, main: Model) -> Model:
        """A quick, cheap model for side work of the main one."""
        usual = self._runtime.small_model(agent, main)
        if not self.plugins.has_hook(hooks.experimental_provider_small_model):
            return usual
        given = hook_types.SmallModelInput(session_id=session_id, agent=agent.name, model=main)

        def check(chosen: hook_types.SmallModelOutput) -> None:
            if chosen.model is not None:
                self._runtime.find_model(chosen.model)

        applied = await self.plugins.apply(
            hooks.experimental_provider_small_model, given, hook_types.SmallModelOutput(model=usual.ref), check=check
        )
        named = applied.output.model
        return self._runtime.find_model(named) if applied.changed_by and named else usual

    # -- tools ---------------------------------------------------------------------------------------------------------

    async def before(self, call: hook_types.ToolExecuteBeforeInput, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """A call's arguments as it is to run; what refuses the call comes out of here."""
        output = hook_types.ToolExecuteBeforeOutput(args=deepcopy(dict(given)))
        applied = await self.plugins.apply(hooks.tool_execute_before, call, output, passing=_REFUSALS)
        return applied.output.args if applied.changed_by else given

    async def after(
        self, call: hook_types.ToolExecuteBeforeInput, given: Mapping[str, Any], answer: ToolOutput
    ) -> ToolOutput:
        """A tool's answer as it is to be stored and shown to the model."""
        if not self.plugins.has_hook(hooks.tool_execute_after):
            return answer
        ran = hook_types.ToolExecuteAfterInput(**_fields(call), args=deepcopy(dict(given)))
        output = hook_types.ToolExecuteAfterOutput(
            title=answer.title,
            output=answer.output,
            metadata=msgspec.to_builtins(answer.metadata),
            attachments=[deepcopy(each) for each in answer.attachments],
        )
        applied = await self.plugins.apply(hooks.tool_execute_after, ran, output, passing=_REFUSALS)
        changed = applied.output
        if not applied.changed_by:
            return answer
        return ToolOutput(changed.title, changed.output, changed.metadata, tuple(changed.attachments))

    async def shell_env(self, cwd: str, session_id: str | None = None, call_id: str | None = None) -> dict[str, str]:
        """Variables to add to the environment of a command line."""
        variables = self._runtime.config.variables
        if not self.plugins.has_hook(hooks.shell_env):
            return variables
        given = hook_types.ShellEnvInput(cwd=cwd, session_id=session_id, call_id=call_id)
        applied = await self.plugins.apply(hooks.shell_env, given, hook_types.ShellEnvOutput(env=dict(variables)))
        return applied.output.env

    async def judge(self, asked: PermissionAsked, leave: Verdict) -> Verdict:
        """Whether the user is to be asked, after the rules said ``leave``; a plugin that forbids it is named."""
        if not self.plugins.has_hook(hooks.permission_ask):
            return leave
        tool = asked.tool or {}
        given = hook_types.PermissionAskInput(
            session_id=asked.session_id,
            permission=asked.permission,
            patterns=tuple(asked.patterns),
            always=tuple(asked.always),
            metadata=deepcopy(asked.metadata),
            message_id=tool.get("messageID"),
            call_id=tool.get("callID"),
        )
        applied = await self.plugins.apply(hooks.permission_ask, given, hook_types.PermissionAskOutput(status=leave))
        answer = applied.output
        if answer.status == "deny":
            who, why = applied.changed_by[-1], f": {answer.message}" if answer.message else ""
            shown = ", ".join(asked.patterns)
            raise PermissionDeniedError(
                f"The plugin {who} forbids {asked.permission} for {shown}{why}", permission=asked.permission, plugin=who
            )
        return answer.status

    # -- words ---------------------------------------------------------------------------------------------------------

    async def compaction_words(self, session_id: str, model: Model, usual: str, *, auto: bool) -> str:
        """What a model is told to do when it sums up."""
        if not self.plugins.has_hook(hooks.experimental_session_compacting):
            return usual
        given = hook_types.CompactingInput(session_id=session_id, model=model, auto=auto)
        applied = await self.plugins.apply(hooks.experimental_session_compacting, given, hook_types.CompactingOutput())
        output = applied.output
        if output.prompt is not None and output.prompt.strip():
            return clean(output.prompt)
        return clean("\n\n".join([usual, *(text for text in output.context if text.strip())]))

    async def goes_on(self, user: Document, model: Model) -> bool:
        """Whether a session that was summed up by itself goes on."""
        if not self.plugins.has_hook(hooks.experimental_compaction_autocontinue):
            return True
        call = self.call(user, str(user.get("agent")), model, "summary")
        applied = await self.plugins.apply(
            hooks.experimental_compaction_autocontinue, call, hook_types.AutoContinueOutput()
        )
        return applied.output.enabled

    async def text(self, message: Document, part_id: str, text: str) -> str:
        """A text as it is to be stored."""
        if not self.plugins.has_hook(hooks.experimental_text_complete):
            return text
        given = hook_types.TextCompleteInput(session_id=message["sessionID"], message_id=message["id"], part_id=part_id)
        applied = await self.plugins.apply(
            hooks.experimental_text_complete, given, hook_types.TextCompleteOutput(text=text)
        )
        return applied.output.text


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


def _complete(part: Document, info: Document) -> Document:
    """A part that says where it belongs; one that a plugin added does not know."""
    own = {"id": part.get("id") or ids.ascending("prt"), "sessionID": info["sessionID"], "messageID": info["id"]}
    return part | own if "id" in part else own | part | own


def _check_parts(parts: Sequence[Document]) -> None:
    _check_handed_in(parts)
    for part in parts:
        read_part(part)
    if len({part["id"] for part in parts}) < len(parts):
        raise ValueError("two parts have the same id")


def _check_handed_in(parts: Sequence[Document]) -> None:
    if not parts:
        raise ValueError("a prompt needs a part")
    for part in parts:
        validate_prompt_part(part)
