"""The hooks, by name. Each is a decorator that makes a function one of it, and the type checker see that it fits.

::

    from opensesh.plugins import ChatCall, ChatParams, hooks


    @hooks.chat_params
    def calm(call: ChatCall, params: ChatParams) -> None:
        params.temperature = 0.1

Their names are OpenCode's, with ``_`` for the dots. What each is for is said in
:class:`~opensesh.plugins.plugin.Plugin`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from . import vocabulary as v
    from .host import Given, Host

Told = TypeVar("Told", bound="Given")
Changed = TypeVar("Changed", bound="v.Output")

Done = Awaitable[None] | None
"""What a hook returns: nothing, at once or after a while."""
MARK = "__opensesh_hooks__"
ALL: dict[str, Named] = {}
"""Every hook, by OpenCode's name."""


class Named:
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


class Hook(Named, Generic[Told, Changed]):
    """One that is told something and may change something."""

    def __call__(self, function: Callable[[Told, Changed], Done]) -> Callable[[Told, Changed], Done]:
        """Make ``function`` one of these."""
        self._mark(function)
        return function


class Notice(Named, Generic[Told]):
    """One that is told something."""

    def __call__(self, function: Callable[[Told], Done]) -> Callable[[Told], Done]:
        """Make ``function`` one of these."""
        self._mark(function)
        return function


config: Hook[Host, v.Configuration] = Hook("config", early=True)
provider: Hook[Host, v.Providers] = Hook("provider", early=True)
tool: Hook[Host, v.Tools] = Hook("tool", early=True)
event: Notice[v.Heard] = Notice("event")
auth: Hook[v.AuthNeeded, v.Login] = Hook("auth")
chat_message: Hook[v.Prompted, v.PromptParts] = Hook("chat.message")
chat_params: Hook[v.ChatCall, v.ChatParams] = Hook("chat.params")
chat_headers: Hook[v.ChatCall, v.ChatHeaders] = Hook("chat.headers")
permission_ask: Hook[v.PermissionAsked, v.PermissionAnswer] = Hook("permission.ask")
command_execute_before: Hook[v.CommandCall, v.CommandParts] = Hook("command.execute.before")
tool_execute_before: Hook[v.ToolCall, v.ToolArguments] = Hook("tool.execute.before")
tool_execute_after: Hook[v.ToolRan, v.ToolAnswer] = Hook("tool.execute.after")
shell_env: Hook[v.ShellCall, v.ShellEnvironment] = Hook("shell.env")
tool_definition: Hook[v.ToolShown, v.ToolDefinition] = Hook("tool.definition")
experimental_chat_messages_transform: Hook[v.ChatCall, v.Conversation] = Hook("experimental.chat.messages.transform")
experimental_chat_system_transform: Hook[v.ChatCall, v.SystemPrompt] = Hook("experimental.chat.system.transform")
experimental_provider_small_model: Hook[v.SmallModelWanted, v.SmallModel] = Hook("experimental.provider.small_model")
experimental_session_compacting: Hook[v.CompactionCall, v.CompactionPrompt] = Hook("experimental.session.compacting")
experimental_compaction_autocontinue: Hook[v.ChatCall, v.AutoContinue] = Hook("experimental.compaction.autocontinue")
experimental_text_complete: Hook[v.TextDone, v.CompletedText] = Hook("experimental.text.complete")
dispose: Notice[Host] = Notice("dispose")


def hooks_of(function: object, name: str) -> tuple[str, ...]:
    """The hooks that a function called ``name`` is: those it is decorated with, else the one it is named for."""
    return getattr(function, MARK, ()) or tuple(hook.name for hook in ALL.values() if hook.method == name)


def named(name: str) -> Named:
    """A hook by OpenCode's name or by Python's; a ``ValueError`` says what was probably meant."""
    found = ALL.get(name) or next((each for each in ALL.values() if each.method == name), None)
    if found is None:
        from ..text import close_matches

        close = close_matches(name, ALL)
        raise ValueError(f"there is no hook {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return found
