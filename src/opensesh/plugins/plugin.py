"""The base class of plugins: derive from :class:`Plugin` and override hooks.

::

    from opensesh.plugins import ChatInput, ChatParamsOutput, Plugin


    class Calm(Plugin):
        def chat_params(self, call: ChatInput, params: ChatParamsOutput) -> None:
            params.temperature = 0.1

Every hook may be a plain function, which must not block, or a coroutine function. ``config``, ``provider``, ``tool``,
``auth_methods`` and the constructor must be plain, because they are called while the engine is being opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import hook_types
    from .auth_methods import AuthMethodsOutput
    from .hook_types import Host
    from .hooks import HookReturn


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
