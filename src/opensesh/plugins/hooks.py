"""The hooks, by name. Each is a decorator that makes a function one of it, and the type checker see that it fits.

::

    from opensesh.plugins import ChatInput, ChatParamsOutput, hooks


    @hooks.chat_params
    def calm(call: ChatInput, params: ChatParamsOutput) -> None:
        params.temperature = 0.1

Their names are OpenCode's, with ``_`` for the dots. What each is for is said in
:class:`~opensesh.plugins.plugin.Plugin`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from . import hook_types as v
    from .hook_types import HookInput, Host

InputT = TypeVar("InputT", bound="HookInput")
OutputT = TypeVar("OutputT", bound="v.HookOutput")

HookReturn = Awaitable[None] | None
"""What a hook returns: nothing, at once or after a while."""
MARK = "__opensesh_hooks__"
ALL: dict[str, HookBase] = {}
"""Every hook, by OpenCode's name."""


class HookBase:
    """A hook, whatever it is told."""

    def __init__(self, name: str, *, early: bool = False) -> None:
        self.name = name
        """OpenCode's."""
        self.method = name.replace(".", "_")
        """Python's."""
        self.early = early
        """Whether it is called while the engine is being opened, where nothing can be waited for."""
        ALL[name] = self

    def _mark(self, function: Any) -> None:
        setattr(function, MARK, (*getattr(function, MARK, ()), self.name))


class Hook(HookBase, Generic[InputT, OutputT]):
    """One that is told something and may change something."""

    def __call__(self, function: Callable[[InputT, OutputT], HookReturn]) -> Callable[[InputT, OutputT], HookReturn]:
        """Make ``function`` one of these."""
        self._mark(function)
        return function


class NotificationHook(HookBase, Generic[InputT]):
    """One that is told something."""

    def __call__(self, function: Callable[[InputT], HookReturn]) -> Callable[[InputT], HookReturn]:
        """Make ``function`` one of these."""
        self._mark(function)
        return function


config: Hook[Host, v.ConfigOutput] = Hook("config", early=True)
provider: Hook[Host, v.ProviderOutput] = Hook("provider", early=True)
tool: Hook[Host, v.ToolsOutput] = Hook("tool", early=True)
event: NotificationHook[v.BusEvent] = NotificationHook("event")
auth: Hook[v.AuthInput, v.AuthOutput] = Hook("auth")
chat_message: Hook[v.ChatMessageInput, v.ChatMessageOutput] = Hook("chat.message")
chat_params: Hook[v.ChatInput, v.ChatParamsOutput] = Hook("chat.params")
chat_headers: Hook[v.ChatInput, v.ChatHeadersOutput] = Hook("chat.headers")
permission_ask: Hook[v.PermissionAskInput, v.PermissionAskOutput] = Hook("permission.ask")
command_execute_before: Hook[v.CommandExecuteInput, v.CommandExecuteOutput] = Hook("command.execute.before")
tool_execute_before: Hook[v.ToolExecuteBeforeInput, v.ToolExecuteBeforeOutput] = Hook("tool.execute.before")
tool_execute_after: Hook[v.ToolExecuteAfterInput, v.ToolExecuteAfterOutput] = Hook("tool.execute.after")
shell_env: Hook[v.ShellEnvInput, v.ShellEnvOutput] = Hook("shell.env")
tool_definition: Hook[v.ToolDefinitionInput, v.ToolDefinitionOutput] = Hook("tool.definition")
experimental_chat_messages_transform: Hook[v.ChatInput, v.MessagesTransformOutput] = Hook(
    "experimental.chat.messages.transform"
)
experimental_chat_system_transform: Hook[v.ChatInput, v.SystemTransformOutput] = Hook(
    "experimental.chat.system.transform"
)
experimental_provider_small_model: Hook[v.SmallModelInput, v.SmallModelOutput] = Hook(
    "experimental.provider.small_model"
)
experimental_session_compacting: Hook[v.CompactingInput, v.CompactingOutput] = Hook("experimental.session.compacting")
experimental_compaction_autocontinue: Hook[v.ChatInput, v.AutoContinueOutput] = Hook(
    "experimental.compaction.autocontinue"
)
experimental_text_complete: Hook[v.TextCompleteInput, v.TextCompleteOutput] = Hook("experimental.text.complete")
dispose: NotificationHook[Host] = NotificationHook("dispose")


def hooks_of(function: object, name: str) -> tuple[str, ...]:
    """The hooks that a function called ``name`` is: those it is decorated with, else the one it is named for."""
    return getattr(function, MARK, ()) or tuple(hook.name for hook in ALL.values() if hook.method == name)


def named(name: str) -> HookBase:
    """A hook by OpenCode's name or by Python's; a ``ValueError`` says what was probably meant."""
    found = ALL.get(name) or next((each for each in ALL.values() if each.method == name), None)
    if found is None:
        from ..text import close_matches

        close = close_matches(name, ALL)
        raise ValueError(f"there is no hook {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return found
