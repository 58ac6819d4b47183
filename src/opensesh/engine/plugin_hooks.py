"""Calls plugin hooks from the engine: converts the engine's values to the inputs of hooks, and their outputs back; and
logs in to providers with the methods that plugins offer.

Where no plugin has a hook, a method returns the very object that it was given, and nothing is copied.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from .. import ids
from ..errors import PermissionDeniedError, PermissionRefusedError, ProviderLoginError, ToolFailedError
from ..models.auth import Credential, KeySource, Secret, store_entry, validate_entry
from ..models.request import System
from ..plugins import hook_types, hooks
from ..plugins.calling import explain
from ..records import UserMessage, object_at, read_message, read_part, without_surrogates
from ..tools.tool import ToolOutput
from .cancellation import run_in_thread_uncancellable
from .projection import Projection, mark_cache_points
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
    from .model_choice import Agents, Models

_REFUSALS = (ToolFailedError, PermissionRefusedError)
_FIXED_FIELDS = ("id", "sessionID", "role", "time")
"""Fields of a message that no plugin may change."""


class PluginHooks:
    """The plugins of one engine."""

    def __init__(self, plugins: Plugins, agents: Agents, models: Models, variables: dict[str, str]) -> None:
        """``variables`` are those that the configuration adds to the environment of commands."""
        self.plugins = plugins
        self._agents = agents
        self._models = models
        self._variables = variables
        self._auth_lock = asyncio.Lock()

    # -- prompts -------------------------------------------------------------------------------------------------------

    async def prompt(self, info: Document, parts: list[Document]) -> tuple[Document, list[Document]]:
        """Return a prompt as it is to be stored."""
        if not self.plugins.has_hook(hooks.chat_message):
            return info, parts
        model = object_at(info, "model")
        hook_input = hook_types.ChatMessageInput(
            session_id=info["sessionID"],
            message_id=info["id"],
            agent=str(info.get("agent")),
            model=f"{model.get('providerID')}/{model.get('modelID')}",
            variant=info.get("variant"),
        )
        output = hook_types.ChatMessageOutput(message=deepcopy(info), parts=deepcopy(parts))

        def check(changed: hook_types.ChatMessageOutput) -> None:
            message = changed.message
            fixed = [name for name in _FIXED_FIELDS if message.get(name) != info.get(name)]
            if fixed:
                raise ValueError(f"{', '.join(fixed)} of a message cannot be changed")
            if not isinstance(read_message(message), UserMessage):
                raise TypeError("a prompt must be a user message")
            self._agents.get(message.get("agent"))
            self._models.of_prompt(message)
            message_ids = {"sessionID": info["sessionID"], "messageID": info["id"]}
            parts_with_ids: list[Document] = []
            for part in changed.parts:  # one that a plugin added may have no ids
                fields = {"id": part.get("id") or ids.ascending("prt"), **message_ids}
                parts_with_ids.append(part | fields if "id" in part else fields | part | fields)
            changed.parts = parts_with_ids
            _check_parts(changed.parts)
            for part in changed.parts:
                read_part(part)
            if len({part["id"] for part in changed.parts}) < len(changed.parts):
                raise ValueError("two parts have the same id")

        applied = await self.plugins.apply(hooks.chat_message, hook_input, output, check=check)
        return (applied.output.message, applied.output.parts) if applied.changed_by else (info, parts)

    async def command(self, session_id: str, command: str, arguments: str, parts: Sequence[Document]) -> list[Document]:
        """Return the parts of the prompt that a command becomes."""
        if not self.plugins.has_hook(hooks.command_execute_before):
            return list(parts)
        hook_input = hook_types.CommandExecuteInput(session_id=session_id, command=command, arguments=arguments)
        output = hook_types.CommandExecuteOutput(parts=deepcopy(list(parts)))
        applied = await self.plugins.apply(
            hooks.command_execute_before, hook_input, output, check=lambda changed: _check_parts(changed.parts)
        )
        return applied.output.parts

    # -- requests ------------------------------------------------------------------------------------------------------

    def chat_call(
        self, prompt: Document, agent: str, model: Model, purpose: hook_types.Purpose = "answer"
    ) -> hook_types.ChatInput:
        """Return the input of the hooks about a model call."""
        return hook_types.ChatInput(
            session_id=prompt["sessionID"], agent=agent, model=model, message=deepcopy(prompt), purpose=purpose
        )

    async def messages(
        self, call: hook_types.ChatInput, messages: Iterable[StoredMessage]
    ) -> list[StoredMessage] | None:
        """Return the messages to show the model in place of ``messages``; ``None`` if no plugin changed them.

        The request is projected from them, so it is valid after any change by a plugin. If they cannot be projected
        at all, the plugin fails.
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
        """Return a request as it is to be sent: system prompt, tools, parameters, headers."""
        request = await self._system(call, request)
        if self.plugins.has_hook(hooks.tool_definition) and request.tools:
            specs: list[ToolSpec] = []
            for spec in request.tools:
                hook_input = hook_types.ToolDefinitionInput(**_fields(call), tool=spec.name)
                output = hook_types.ToolDefinitionOutput(
                    description=spec.description, parameters=deepcopy(spec.parameters)
                )
                applied = await self.plugins.apply(hooks.tool_definition, hook_input, output)
                specs.append(replace(spec, **_fields(applied.output)) if applied.changed_by else spec)
            request = replace(request, tools=tuple(specs))
        if self.plugins.has_hook(hooks.chat_params):
            params = hook_types.ChatParamsOutput(
                temperature=request.temperature,
                top_p=request.top_p,
                top_k=request.top_k,
                max_output_tokens=request.max_output_tokens,
                options=deepcopy(request.options),
            )
            applied = await self.plugins.apply(hooks.chat_params, call, params)
            request = replace(request, **_fields(applied.output)) if applied.changed_by else request
        if self.plugins.has_hook(hooks.chat_headers):
            headers = hook_types.ChatHeadersOutput(headers=dict(request.headers))
            applied = await self.plugins.apply(hooks.chat_headers, call, headers)
            request = replace(request, headers=applied.output.headers) if applied.changed_by else request
        return request

    async def side_request(
        self, prompt: Document, agent: str, purpose: hook_types.Purpose, request: Request
    ) -> Request:
        """Return a request for a summary or a title as it is to be sent, after asking plugins for the key."""
        if not self.plugins.have_hooks:
            return request
        await self.authorise(request.model)
        return await self.request(self.chat_call(prompt, agent, request.model, purpose), request)

    async def _system(self, call: hook_types.ChatInput, request: Request) -> Request:
        if not self.plugins.has_hook(hooks.experimental_chat_system_transform):
            return request
        blocks = [message.text for message in request.messages if isinstance(message, System)]
        applied = await self.plugins.apply(
            hooks.experimental_chat_system_transform, call, hook_types.SystemTransformOutput(system=list(blocks))
        )
        texts = [without_surrogates(text) for text in applied.output.system if text.strip()]
        if not applied.changed_by or not texts:
            return request
        # At most two blocks, since there are two cache points for the system prompt.
        blocks = texts if len(texts) < 3 else [texts[0], "\n".join(texts[1:])]
        system: list[ModelMessage] = [System(text=text) for text in blocks]
        rest = [message for message in request.messages if not isinstance(message, System)]
        cached = any(message.cache for message in request.messages)
        messages = (*system, *rest)
        return replace(request, messages=mark_cache_points(messages, request.model) if cached else messages)

    # -- models --------------------------------------------------------------------------------------------------------

    async def authorise(self, model: Model) -> None:
        """Use the key that a plugin has for the model's provider, if any."""
        if not self.plugins.has_hook(hooks.auth):
            return
        # One at a time: a token must not be renewed twice.
        async with self._auth_lock:
            stored = self._models.keyring.stored_entry(model.provider_id)
            hook_input = hook_types.AuthInput(provider_id=model.provider_id, model=model, stored=stored)
            applied = await self.plugins.apply(
                hooks.auth,
                hook_input,
                hook_types.AuthOutput(),
                check=lambda changed: changed.stored is None or validate_entry(changed.stored),
            )
            login = applied.output
            if login.stored is not None:
                await run_in_thread_uncancellable(store_entry, model.provider_id, validate_entry(login.stored))
        credential = None
        if login.key:
            credential = Credential(
                provider_id=model.provider_id,
                source=KeySource("plugin", f"the plugin {applied.changed_by[-1]}"),
                kind="oauth" if login.bearer else "api",
                secret=Secret(login.key),
            )
        self._models.keyring.grant(model.provider_id, credential)

    async def authorise_prompt(self, prompt: Document) -> None:
        """Use a plugin's key for the model that a prompt asks for."""
        if self.plugins.has_hook(hooks.auth):
            await self.authorise(self._models.of_prompt(prompt))

    async def small_model(self, session_id: str, agent: Agent, main: Model) -> Model:
        """Return a fast, cheap model for side work of the main one."""
        usual = self._models.small(agent, main)
        hook_input = hook_types.SmallModelInput(session_id=session_id, agent=agent.name, model=main)

        def check(chosen: hook_types.SmallModelOutput) -> None:
            if chosen.model is not None:
                self._models.catalogue.find(chosen.model)

        applied = await self.plugins.apply(
            hooks.experimental_provider_small_model,
            hook_input,
            hook_types.SmallModelOutput(model=usual.ref),
            check=check,
        )
        named = applied.output.model
        return self._models.catalogue.find(named) if applied.changed_by and named else usual

    # -- tools ---------------------------------------------------------------------------------------------------------

    async def tool_before(
        self, call: hook_types.ToolExecuteBeforeInput, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the arguments with which a call runs. Any error of a plugin prevents the call, as in OpenCode: it may
        be how the plugin forbids it."""
        output = hook_types.ToolExecuteBeforeOutput(args=deepcopy(dict(arguments)))
        applied = await self.plugins.apply(hooks.tool_execute_before, call, output, passing=_REFUSALS)
        if applied.failures:
            plugin, reason = applied.failures[0]
            raise ToolFailedError(f"The plugin {plugin} prevented the call: {reason}")
        return applied.output.args if applied.changed_by else arguments

    async def tool_after(
        self, call: hook_types.ToolExecuteBeforeInput, arguments: Mapping[str, Any], answer: ToolOutput
    ) -> ToolOutput:
        """Return a tool's output as it is to be stored and shown to the model."""
        if not self.plugins.has_hook(hooks.tool_execute_after):
            return answer
        ran = hook_types.ToolExecuteAfterInput(**_fields(call), args=deepcopy(dict(arguments)))
        output = hook_types.ToolExecuteAfterOutput(
            title=answer.title,
            output=answer.output,
            metadata=msgspec.to_builtins(answer.metadata),
            attachments=[deepcopy(file) for file in answer.attachments],
        )
        applied = await self.plugins.apply(hooks.tool_execute_after, ran, output, passing=_REFUSALS)
        changed = applied.output
        if not applied.changed_by:
            return answer
        return ToolOutput(changed.title, changed.output, changed.metadata, tuple(changed.attachments))

    async def shell_env(self, cwd: str, session_id: str | None = None, call_id: str | None = None) -> dict[str, str]:
        """Return variables to add to the environment of a command."""
        variables = self._variables
        if not self.plugins.has_hook(hooks.shell_env):
            return variables
        hook_input = hook_types.ShellEnvInput(cwd=cwd, session_id=session_id, call_id=call_id)
        applied = await self.plugins.apply(hooks.shell_env, hook_input, hook_types.ShellEnvOutput(env=dict(variables)))
        return applied.output.env

    async def permission(self, asked: PermissionAsked, decision: Verdict) -> Verdict:
        """Return whether to ask the user, given the decision of the rules. Raises if a plugin denies it. If a plugin
        fails, the user is asked: it may have been about to deny."""
        tool = asked.tool or {}
        hook_input = hook_types.PermissionAskInput(
            session_id=asked.session_id,
            permission=asked.permission,
            patterns=tuple(asked.patterns),
            always=tuple(asked.always),
            metadata=deepcopy(asked.metadata),
            message_id=tool.get("messageID"),
            call_id=tool.get("callID"),
        )
        applied = await self.plugins.apply(
            hooks.permission_ask, hook_input, hook_types.PermissionAskOutput(status=decision)
        )
        answer = applied.output
        if answer.status == "deny":
            plugin, reason = applied.changed_by[-1], f": {answer.message}" if answer.message else ""
            shown = ", ".join(asked.patterns)
            raise PermissionDeniedError(
                f"The plugin {plugin} denies {asked.permission} for {shown}{reason}",
                permission=asked.permission,
                plugin=plugin,
            )
        return "ask" if applied.failures else answer.status

    # -- texts ---------------------------------------------------------------------------------------------------------

    async def compaction_prompt(self, session_id: str, model: Model, usual: str, *, auto: bool) -> str:
        """Return the prompt for a summary."""
        hook_input = hook_types.CompactingInput(session_id=session_id, model=model, auto=auto)
        applied = await self.plugins.apply(
            hooks.experimental_session_compacting, hook_input, hook_types.CompactingOutput()
        )
        output = applied.output
        if output.prompt is not None and output.prompt.strip():
            return without_surrogates(output.prompt)
        return without_surrogates("\n\n".join([usual, *(text for text in output.context if text.strip())]))

    async def should_continue(self, prompt: Document, model: Model) -> bool:
        """Whether a session continues after an automatic compaction."""
        if not self.plugins.has_hook(hooks.experimental_compaction_autocontinue):
            return True
        call = self.chat_call(prompt, str(prompt.get("agent")), model, "summary")
        applied = await self.plugins.apply(
            hooks.experimental_compaction_autocontinue, call, hook_types.AutoContinueOutput()
        )
        return applied.output.enabled

    async def text(self, message: Document, part_id: str, text: str) -> str:
        """Return a text of an answer as it is to be stored."""
        hook_input = hook_types.TextCompleteInput(
            session_id=message["sessionID"], message_id=message["id"], part_id=part_id
        )
        applied = await self.plugins.apply(
            hooks.experimental_text_complete, hook_input, hook_types.TextCompleteOutput(text=text)
        )
        return applied.output.text


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


def _check_parts(parts: Sequence[Document]) -> None:
    if not parts:
        raise ValueError("a prompt needs a part")
    for part in parts:
        validate_prompt_part(part)


class ProviderLogins:
    """The methods of the plugins, and the logins that have begun: one for each provider, the last."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._pending: dict[str, hook_types.Authorization] = {}

    @cached_property
    def methods(self) -> dict[str, list[hook_types.AuthMethod]]:
        """The methods of each provider."""
        by_provider: dict[str, list[hook_types.AuthMethod]] = {}
        if self._plugins.has_hook(hooks.auth_methods):
            for method in self._plugins.apply_sync(hooks.auth_methods, hook_types.AuthMethodsOutput()).output.methods:
                by_provider.setdefault(method.provider_id, []).append(method)
        return by_provider

    async def authorize(self, provider_id: str, number: int, inputs: dict[str, str]) -> hook_types.Authorization | None:
        """Begin to log in with the method of that number; ``None`` if it is one where the user enters an API key.

        Raises :class:`ProviderLoginError`.
        """
        methods = self.methods.get(provider_id, [])
        if not 0 <= number < len(methods):
            message = f"no plugin offers method {number} to log in to {provider_id}; use an API key"
            raise ProviderLoginError(message, reason="ProviderAuthError", provider_id=provider_id)
        authorize = methods[number].authorize
        if authorize is None:
            return None
        try:
            authorization = await authorize(inputs)
        except Exception as error:
            raise ProviderLoginError(explain(error), reason="ProviderAuthError", provider_id=provider_id) from error
        self._pending[provider_id] = authorization
        return authorization

    async def finish(self, provider_id: str, code: str | None) -> None:
        """Finish the login that has begun, and store its credentials in ``auth.json``.

        Raises :class:`ProviderLoginError`.
        """
        authorization = self._pending.get(provider_id)
        if authorization is None:
            message = f"no login to {provider_id} has begun"
            raise ProviderLoginError(message, reason="ProviderAuthOauthMissing", provider_id=provider_id)
        if authorization.method == "code" and not code:
            message = f"the login to {provider_id} needs the code that the provider gave"
            raise ProviderLoginError(message, reason="ProviderAuthOauthCodeMissing", provider_id=provider_id)
        try:
            credentials = await authorization.callback(code)
            entry = None if credentials is None else validate_entry(credentials)
        except Exception as error:
            raise _failed(provider_id, explain(error)) from error
        if entry is None:
            raise _failed(provider_id, f"the login to {provider_id} failed")
        self._pending.pop(provider_id, None)
        await run_in_thread_uncancellable(store_entry, provider_id, entry)


def _failed(provider_id: str, why: str) -> ProviderLoginError:
    return ProviderLoginError(why, reason="ProviderAuthOauthCallbackFailed", provider_id=provider_id)
