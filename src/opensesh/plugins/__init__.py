"""Plugins: the user's own code that changes how sessions run.

A plugin is a module with functions that have the names of hooks or are decorated with them; a class that derives from
:class:`Plugin`; a mapping of hook names to functions; or a function that receives the :class:`Host` and returns one of
those. See ``docs/plugins.md``.
"""

from __future__ import annotations

from ..config.trust import Trust as Trust
from . import hooks as hooks
from .calling import HookResult as HookResult
from .calling import LoadedPlugin as LoadedPlugin
from .calling import Plugins as Plugins
from .calling import PluginSource as PluginSource
from .calling import SkippedPlugin as SkippedPlugin
from .calling import apply_config_hooks as apply_config_hooks
from .calling import plugin_tools as plugin_tools
from .hook_types import AuthCondition as AuthCondition
from .hook_types import AuthInput as AuthInput
from .hook_types import AuthMethod as AuthMethod
from .hook_types import AuthMethodsOutput as AuthMethodsOutput
from .hook_types import AuthOption as AuthOption
from .hook_types import Authorization as Authorization
from .hook_types import AuthOutput as AuthOutput
from .hook_types import AuthPrompt as AuthPrompt
from .hook_types import AutoContinueOutput as AutoContinueOutput
from .hook_types import BusEvent as BusEvent
from .hook_types import ChatHeadersOutput as ChatHeadersOutput
from .hook_types import ChatInput as ChatInput
from .hook_types import ChatMessageInput as ChatMessageInput
from .hook_types import ChatMessageOutput as ChatMessageOutput
from .hook_types import ChatParamsOutput as ChatParamsOutput
from .hook_types import CommandExecuteInput as CommandExecuteInput
from .hook_types import CommandExecuteOutput as CommandExecuteOutput
from .hook_types import CompactingInput as CompactingInput
from .hook_types import CompactingOutput as CompactingOutput
from .hook_types import ConfigOutput as ConfigOutput
from .hook_types import HookInput as HookInput
from .hook_types import HookOutput as HookOutput
from .hook_types import Host as Host
from .hook_types import MessagesTransformOutput as MessagesTransformOutput
from .hook_types import PermissionAskInput as PermissionAskInput
from .hook_types import PermissionAskOutput as PermissionAskOutput
from .hook_types import ProviderOutput as ProviderOutput
from .hook_types import ShellEnvInput as ShellEnvInput
from .hook_types import ShellEnvOutput as ShellEnvOutput
from .hook_types import SmallModelInput as SmallModelInput
from .hook_types import SmallModelOutput as SmallModelOutput
from .hook_types import SystemTransformOutput as SystemTransformOutput
from .hook_types import TextCompleteInput as TextCompleteInput
from .hook_types import TextCompleteOutput as TextCompleteOutput
from .hook_types import ToolDefinitionInput as ToolDefinitionInput
from .hook_types import ToolDefinitionOutput as ToolDefinitionOutput
from .hook_types import ToolExecuteAfterInput as ToolExecuteAfterInput
from .hook_types import ToolExecuteAfterOutput as ToolExecuteAfterOutput
from .hook_types import ToolExecuteBeforeInput as ToolExecuteBeforeInput
from .hook_types import ToolExecuteBeforeOutput as ToolExecuteBeforeOutput
from .hook_types import ToolsOutput as ToolsOutput
from .hooks import HookReturn as HookReturn
from .hooks import Plugin as Plugin
from .loader import Pluggable as Pluggable
from .loader import candidates_needing_trust as candidates_needing_trust
from .loader import load_plugins as load_plugins
