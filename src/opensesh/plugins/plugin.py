"""A plugin as a class: derive from :class:`Plugin`, and write the hooks you want as methods of these names.

::

    from opensesh.plugins import ChatCall, ChatParams, Plugin


    class Calm(Plugin):
        def chat_params(self, call: ChatCall, params: ChatParams) -> None:
            params.temperature = 0.1

Every hook may be a plain function, which must not wait for anything, or a coroutine function. Plain ones only are
``config``, ``provider`` and ``tool``, and the constructor: they are called while the engine is being opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import vocabulary as v
    from .hooks import Done
    from .host import Host


class Plugin:
    """All hooks, none of which does anything."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def config(self, host: Host, output: v.Configuration, /) -> Done:
        """Once, before anything is made of the configuration. Change it; nothing is written to a file."""

    def provider(self, host: Host, output: v.Providers, /) -> Done:
        """Once, after ``config``. Add providers and models, or change those there are."""

    def tool(self, host: Host, output: v.Tools, /) -> Done:
        """Once. Add tools."""

    def event(self, heard: v.Heard, /) -> Done:
        """For every event on the bus, in order, beside the work. One that is too slow is told what it missed."""

    def auth(self, needed: v.AuthNeeded, output: v.Login, /) -> Done:
        """Before a provider is asked. Give the key for it."""

    def chat_message(self, prompted: v.Prompted, output: v.PromptParts, /) -> Done:
        """Before a prompt is stored. Change the message and its parts."""

    def chat_params(self, call: v.ChatCall, output: v.ChatParams, /) -> Done:
        """Before each model call. Change sampling, length and the provider's own options."""

    def chat_headers(self, call: v.ChatCall, output: v.ChatHeaders, /) -> Done:
        """Before each model call. Change the headers it is sent with."""

    def permission_ask(self, asked: v.PermissionAsked, output: v.PermissionAnswer, /) -> Done:
        """When a tool asks for something that no rule forbids. Allow it, forbid it, or have the user asked."""

    def command_execute_before(self, call: v.CommandCall, output: v.CommandParts, /) -> Done:
        """Before a command of the user's is sent. Change the parts of the prompt it became."""

    def tool_execute_before(self, call: v.ToolCall, output: v.ToolArguments, /) -> Done:
        """Before a tool runs. Change its arguments; raise :class:`~opensesh.errors.ToolFailedError` to keep it from
        running,
        with words for the model."""

    def tool_execute_after(self, ran: v.ToolRan, output: v.ToolAnswer, /) -> Done:
        """After a tool answered. Change the answer; raise :class:`~opensesh.errors.ToolFailedError` to make it an
        error."""

    def shell_env(self, call: v.ShellCall, output: v.ShellEnvironment, /) -> Done:
        """Before a command line runs, the model's or the user's. Add variables."""

    def tool_definition(self, shown: v.ToolShown, output: v.ToolDefinition, /) -> Done:
        """Before each model call, for each tool on offer. Change what the model reads of it."""

    def experimental_chat_messages_transform(self, call: v.ChatCall, output: v.Conversation, /) -> Done:
        """Before each model call that shows a model the conversation. Change a copy of the messages."""

    def experimental_chat_system_transform(self, call: v.ChatCall, output: v.SystemPrompt, /) -> Done:
        """Before each model call. Change the system prompt."""

    def experimental_provider_small_model(self, wanted: v.SmallModelWanted, output: v.SmallModel, /) -> Done:
        """Before side work such as a title. Name another model for it."""

    def experimental_session_compacting(self, call: v.CompactionCall, output: v.CompactionPrompt, /) -> Done:
        """Before a session is summed up. Add to what the model is told, or replace it."""

    def experimental_compaction_autocontinue(self, call: v.ChatCall, output: v.AutoContinue, /) -> Done:
        """After a session was summed up by itself. Say whether it goes on."""

    def experimental_text_complete(self, done: v.TextDone, output: v.CompletedText, /) -> Done:
        """When a model has finished a text, before it is stored. Change it."""

    def dispose(self, host: Host, /) -> Done:
        """Once, when the engine closes."""
