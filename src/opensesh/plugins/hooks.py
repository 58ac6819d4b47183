"""The hooks by name. Each is a decorator that registers a function, with its types checked.

::

    from opensesh.plugins import ChatInput, ChatParamsOutput, hooks


    @hooks.chat_params
    def calm(call: ChatInput, params: ChatParamsOutput) -> None:
        params.temperature = 0.1

Their names are OpenCode's, with ``_`` for the dots. :class:`~opensesh.plugins.plugin.Plugin` documents each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..text import close_matches

if TYPE_CHECKING:
    from . import hook_types
    from .auth_methods import AuthMethodsOutput
    from .hook_types import HookInput, Host

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
