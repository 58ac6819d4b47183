"""The hooks by name. Each is a decorator that registers a function, with its types checked.

::

    from opensesh.plugins import ChatInput, ChatParamsOutput, hooks


    @hooks.chat_params
    def calm(call: ChatInput, params: ChatParamsOutput) -> None:
        params.temperature = 0.1

Their names are OpenCode's, with ``_`` for the dots. :class:`Plugin` documents each. It is also a base class, of which
hooks can be overridden::

    class Calm(Plugin):
        def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
            params.temperature = 0.1

Every hook may be a plain function, which must not block, or a coroutine function. ``config``, ``provider``, ``tool``,
``auth_methods`` and the constructor must be plain, because they are called while the engine is being opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..text import close_matches

if TYPE_CHECKING:
    from . import hook_types
    from .hook_types import AuthMethodsOutput, HookInput, Host

InputT = TypeVar("InputT", bound="HookInput")
OutputT = TypeVar("OutputT", bound="hook_types.HookOutput")

HookReturn = Awaitable[None] | None
"""What a hook returns: nothing, or an awaitable of nothing."""
_MARK = "__opensesh_hooks__"
ALL: dict[str, HookBase] = {}
"""Every hook, by OpenCode's name."""


class HookBase:
    """A hook of any type."""

    def __init__(self, name: str, *, early: bool = False) -> None:
        self.name = name
        """OpenCode's name."""
        self.method = name.replace(".", "_")
        """The name of the method or function."""
        self.early = early
        """Whether it is called while the engine is being opened, where nothing can be awaited."""
        ALL[name] = self

    def _mark(self, function: Any) -> None:
        setattr(function, _MARK, (*getattr(function, _MARK, ()), self.name))


class Hook(HookBase, Generic[InputT, OutputT]):
    """A hook with an input and an output that it may change."""

    def __call__(self, function: Callable[[InputT, OutputT], HookReturn]) -> Callable[[InputT, OutputT], HookReturn]:
        """Register ``function`` for this hook."""
        self._mark(function)
        return function


class NotificationHook(HookBase, Generic[InputT]):
    """A hook with an input only."""

    def __call__(self, function: Callable[[InputT], HookReturn]) -> Callable[[InputT], HookReturn]:
        """Register ``function`` for this hook."""
        self._mark(function)
        return function


config: Hook[Host, hook_types.ConfigOutput] = Hook("config", early=True)
provider: Hook[Host, hook_types.ProviderOutput] = Hook("provider", early=True)
tool: Hook[Host, hook_types.ToolsOutput] = Hook("tool", early=True)
event: NotificationHook[hook_types.BusEvent] = NotificationHook("event")
auth_methods: Hook[Host, AuthMethodsOutput] = Hook("auth.methods", early=True)
auth: Hook[hook_types.AuthInput, hook_types.AuthOutput] = Hook("auth")
chat_message: Hook[hook_types.ChatMessageInput, hook_types.ChatMessageOutput] = Hook("chat.message")
chat_params: Hook[hook_types.ChatInput, hook_types.ChatParamsOutput] = Hook("chat.params")
chat_headers: Hook[hook_types.ChatInput, hook_types.ChatHeadersOutput] = Hook("chat.headers")
permission_ask: Hook[hook_types.PermissionAskInput, hook_types.PermissionAskOutput] = Hook("permission.ask")
command_execute_before: Hook[hook_types.CommandExecuteInput, hook_types.CommandExecuteOutput] = Hook(
    "command.execute.before"
)
tool_execute_before: Hook[hook_types.ToolExecuteBeforeInput, hook_types.ToolExecuteBeforeOutput] = Hook(
    "tool.execute.before"
)
tool_execute_after: Hook[hook_types.ToolExecuteAfterInput, hook_types.ToolExecuteAfterOutput] = Hook(
    "tool.execute.after"
)
shell_env: Hook[hook_types.ShellEnvInput, hook_types.ShellEnvOutput] = Hook("shell.env")
tool_definition: Hook[hook_types.ToolDefinitionInput, hook_types.ToolDefinitionOutput] = Hook("tool.definition")
experimental_chat_messages_transform: Hook[hook_types.ChatInput, hook_types.MessagesTransformOutput] = Hook(
    "experimental.chat.messages.transform"
)
experimental_chat_system_transform: Hook[hook_types.ChatInput, hook_types.SystemTransformOutput] = Hook(
    "experimental.chat.system.transform"
)
experimental_provider_small_model: Hook[hook_types.SmallModelInput, hook_types.SmallModelOutput] = Hook(
    "experimental.provider.small_model"
)
experimental_session_compacting: Hook[hook_types.CompactingInput, hook_types.CompactingOutput] = Hook(
    "experimental.session.compacting"
)
experimental_compaction_autocontinue: Hook[hook_types.ChatInput, hook_types.AutoContinueOutput] = Hook(
    "experimental.compaction.autocontinue"
)
experimental_text_complete: Hook[hook_types.TextCompleteInput, hook_types.TextCompleteOutput] = Hook(
    "experimental.text.complete"
)
dispose: NotificationHook[Host] = NotificationHook("dispose")


def hooks_of(function: object, name: str) -> tuple[str, ...]:
    """Return the hooks of a function called ``name``: those it is decorated with, or else the one of that name."""
    return getattr(function, _MARK, ()) or tuple(hook.name for hook in ALL.values() if hook.method == name)


def find_hook(name: str) -> HookBase:
    """Return a hook by OpenCode's name or by its method name. Raises ``ValueError`` with a suggestion."""
    hook = ALL.get(name) or next((hook for hook in ALL.values() if hook.method == name), None)
    if hook is None:
        close = close_matches(name, ALL)
        raise ValueError(f"there is no hook {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return hook


class Plugin:
    """All hooks, none of which does anything."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def config(self, host: Host, output: hook_types.ConfigOutput, /) -> HookReturn:
        """Called once, before the configuration is used. Change it; no file is written."""

    def provider(self, host: Host, output: hook_types.ProviderOutput, /) -> HookReturn:
        """Called once, after ``config``. Add or change providers and models."""

    def tool(self, host: Host, output: hook_types.ToolsOutput, /) -> HookReturn:
        """Called once. Add tools."""

    def event(self, event: hook_types.BusEvent, /) -> HookReturn:
        """Called for every event on the bus, in order, concurrently with the run."""

    def auth_methods(self, host: Host, output: AuthMethodsOutput, /) -> HookReturn:
        """Called once. Offer ways to log in to providers."""

    def auth(self, request: hook_types.AuthInput, output: hook_types.AuthOutput, /) -> HookReturn:
        """Called before a request to a provider. Set its key, and renew the login that it belongs to."""

    def chat_message(self, prompt: hook_types.ChatMessageInput, output: hook_types.ChatMessageOutput, /) -> HookReturn:
        """Called before a prompt is stored. Change the message and its parts."""

    def chat_params(self, call: hook_types.ChatInput, output: hook_types.ChatParamsOutput, /) -> HookReturn:
        """Called before each model call. Change sampling, output limit and provider options."""

    def chat_headers(self, call: hook_types.ChatInput, output: hook_types.ChatHeadersOutput, /) -> HookReturn:
        """Called before each model call. Change the request headers."""

    def permission_ask(
        self, request: hook_types.PermissionAskInput, output: hook_types.PermissionAskOutput, /
    ) -> HookReturn:
        """Called when a tool needs a permission that no rule denies. Allow, deny or ask."""

    def command_execute_before(
        self, call: hook_types.CommandExecuteInput, output: hook_types.CommandExecuteOutput, /
    ) -> HookReturn:
        """Called before a command becomes a prompt. Change the parts of that prompt."""

    def tool_execute_before(
        self, call: hook_types.ToolExecuteBeforeInput, output: hook_types.ToolExecuteBeforeOutput, /
    ) -> HookReturn:
        """Called before a tool runs. Change its arguments, or raise :class:`~opensesh.errors.ToolFailedError` with a
        message for the model to prevent it."""

    def tool_execute_after(
        self, call: hook_types.ToolExecuteAfterInput, output: hook_types.ToolExecuteAfterOutput, /
    ) -> HookReturn:
        """Called after a tool succeeded. Change its output, or raise :class:`~opensesh.errors.ToolFailedError`."""

    def shell_env(self, call: hook_types.ShellEnvInput, output: hook_types.ShellEnvOutput, /) -> HookReturn:
        """Called before a shell command runs, the model's or the user's. Add variables."""

    def tool_definition(
        self, tool: hook_types.ToolDefinitionInput, output: hook_types.ToolDefinitionOutput, /
    ) -> HookReturn:
        """Called before each model call, for each tool on offer. Change its description and schema."""

    def experimental_chat_messages_transform(
        self, call: hook_types.ChatInput, output: hook_types.MessagesTransformOutput, /
    ) -> HookReturn:
        """Called before each model call that includes the conversation. Change a copy of the messages."""

    def experimental_chat_system_transform(
        self, call: hook_types.ChatInput, output: hook_types.SystemTransformOutput, /
    ) -> HookReturn:
        """Called before each model call. Change the system prompt."""

    def experimental_provider_small_model(
        self, request: hook_types.SmallModelInput, output: hook_types.SmallModelOutput, /
    ) -> HookReturn:
        """Called before an auxiliary call such as a title. Choose another model."""

    def experimental_session_compacting(
        self, call: hook_types.CompactingInput, output: hook_types.CompactingOutput, /
    ) -> HookReturn:
        """Called before a session is compacted. Extend or replace the prompt."""

    def experimental_compaction_autocontinue(
        self, call: hook_types.ChatInput, output: hook_types.AutoContinueOutput, /
    ) -> HookReturn:
        """Called after an automatic compaction. Decide whether the turn continues."""

    def experimental_text_complete(
        self, text: hook_types.TextCompleteInput, output: hook_types.TextCompleteOutput, /
    ) -> HookReturn:
        """Called when a text part is complete, before it is stored. Change it."""

    def dispose(self, host: Host, /) -> HookReturn:
        """Called once, when the engine closes."""
