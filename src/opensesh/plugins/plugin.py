"""A plugin as a class: derive from :class:`Plugin`, and write the hooks you want as methods of these names.

::

    from opensesh.plugins import ChatInput, ChatParamsOutput, Plugin


    class Calm(Plugin):
        def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
            params.temperature = 0.1

Every hook may be a plain function, which must not wait for anything, or a coroutine function. Plain ones only are
``config``, ``provider`` and ``tool``, and the constructor: they are called while the engine is being opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import hook_types as v
    from .hook_types import Host
    from .hooks import HookReturn


class Plugin:
    """All hooks, none of which does anything."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def config(self, host: Host, output: v.ConfigOutput, /) -> HookReturn:
        """Once, before anything is made of the configuration. Change it; nothing is written to a file."""

    def provider(self, host: Host, output: v.ProviderOutput, /) -> HookReturn:
        """Once, after ``config``. Add providers and models, or change those there are."""

    def tool(self, host: Host, output: v.ToolsOutput, /) -> HookReturn:
        """Once. Add tools."""

    def event(self, heard: v.BusEvent, /) -> HookReturn:
        """For every event on the bus, in order, beside the work. One that is too slow is told what it missed."""

    def auth(self, needed: v.AuthInput, output: v.AuthOutput, /) -> HookReturn:
        """Before a provider is asked. Give the key for it."""

    def chat_message(self, prompted: v.ChatMessageInput, output: v.ChatMessageOutput, /) -> HookReturn:
        """Before a prompt is stored. Change the message and its parts."""

    def chat_params(self, call: v.ChatInput, output: v.ChatParamsOutput, /) -> HookReturn:
        """Before each model call. Change sampling, length and the provider's own options."""

    def chat_headers(self, call: v.ChatInput, output: v.ChatHeadersOutput, /) -> HookReturn:
        """Before each model call. Change the headers it is sent with."""

    def permission_ask(self, asked: v.PermissionAskInput, output: v.PermissionAskOutput, /) -> HookReturn:
        """When a tool asks for something that no rule forbids. Allow it, forbid it, or have the user asked."""

    def command_execute_before(self, call: v.CommandExecuteInput, output: v.CommandExecuteOutput, /) -> HookReturn:
        """Before a command of the user's is sent. Change the parts of the prompt it became."""

    def tool_execute_before(self, call: v.ToolExecuteBeforeInput, output: v.ToolExecuteBeforeOutput, /) -> HookReturn:
        """Before a tool runs. Change its arguments; raise :class:`~opensesh.errors.ToolFailedError` to keep it from
        running,
        with words for the model."""

    def tool_execute_after(self, ran: v.ToolExecuteAfterInput, output: v.ToolExecuteAfterOutput, /) -> HookReturn:
        """After a tool answered. Change the answer; raise :class:`~opensesh.errors.ToolFailedError` to make it an
        error."""

    def shell_env(self, call: v.ShellEnvInput, output: v.ShellEnvOutput, /) -> HookReturn:
        """Before a command line runs, the model's or the user's. Add variables."""

    def tool_definition(self, shown: v.ToolDefinitionInput, output: v.ToolDefinitionOutput, /) -> HookReturn:
        """Before each model call, for each tool on offer. Change what the model reads of it."""

    def experimental_chat_messages_transform(
        self, call: v.ChatInput, output: v.MessagesTransformOutput, /
    ) -> HookReturn:
        """Before each model call that shows a model the conversation. Change a copy of the messages."""

    def experimental_chat_system_transform(self, call: v.ChatInput, output: v.SystemTransformOutput, /) -> HookReturn:
        """Before each model call. Change the system prompt."""

    def experimental_provider_small_model(self, wanted: v.SmallModelInput, output: v.SmallModelOutput, /) -> HookReturn:
        """Before side work such as a title. Name another model for it."""

    def experimental_session_compacting(self, call: v.CompactingInput, output: v.CompactingOutput, /) -> HookReturn:
        """Before a session is summed up. Add to what the model is told, or replace it."""

    def experimental_compaction_autocontinue(self, call: v.ChatInput, output: v.AutoContinueOutput, /) -> HookReturn:
        """After a session was summed up by itself. Say whether it goes on."""

    def experimental_text_complete(self, done: v.TextCompleteInput, output: v.TextCompleteOutput, /) -> HookReturn:
        """When a model has finished a text, before it is stored. Change it."""

    def dispose(self, host: Host, /) -> HookReturn:
        """Once, when the engine closes."""
