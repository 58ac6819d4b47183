"""Plugins: code of the user's that takes part in how sessions run.

A plugin is a module with functions in it that are named as hooks are, or decorated with them; a class that derives from
:class:`Plugin`; a mapping of hooks' names to functions; or a function that is given the :class:`Host` and makes one of
those. See ``docs/plugins.md``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..config.trust import Trust
    from . import hooks
    from .calling import Applied, Loaded, Plugins, Skipped, Source
    from .configuring import configured, tools
    from .feeding import Feed
    from .hooks import Done
    from .host import Host
    from .loading import Pluggable, load, pending
    from .plugin import Plugin
    from .vocabulary import (
        AuthNeeded,
        AutoContinue,
        ChatCall,
        ChatHeaders,
        ChatParams,
        CommandCall,
        CommandParts,
        CompactionCall,
        CompactionPrompt,
        CompletedText,
        Configuration,
        Conversation,
        Heard,
        Login,
        PermissionAnswer,
        PermissionAsked,
        Prompted,
        PromptParts,
        Providers,
        ShellCall,
        ShellEnvironment,
        SmallModel,
        SmallModelWanted,
        SystemPrompt,
        TextDone,
        ToolAnswer,
        ToolArguments,
        ToolCall,
        ToolDefinition,
        ToolRan,
        Tools,
        ToolShown,
    )

__all__ = [
    "Applied",
    "AuthNeeded",
    "AutoContinue",
    "ChatCall",
    "ChatHeaders",
    "ChatParams",
    "CommandCall",
    "CommandParts",
    "CompactionCall",
    "CompactionPrompt",
    "CompletedText",
    "Configuration",
    "Conversation",
    "Done",
    "Feed",
    "Heard",
    "Host",
    "Loaded",
    "Login",
    "PermissionAnswer",
    "PermissionAsked",
    "Pluggable",
    "Plugin",
    "Plugins",
    "PromptParts",
    "Prompted",
    "Providers",
    "ShellCall",
    "ShellEnvironment",
    "Skipped",
    "SmallModel",
    "SmallModelWanted",
    "Source",
    "SystemPrompt",
    "TextDone",
    "ToolAnswer",
    "ToolArguments",
    "ToolCall",
    "ToolDefinition",
    "ToolRan",
    "ToolShown",
    "Tools",
    "Trust",
    "configured",
    "hooks",
    "load",
    "pending",
    "tools",
]

_HOMES = {
    "Applied": "calling",
    "Loaded": "calling",
    "Plugins": "calling",
    "Skipped": "calling",
    "Source": "calling",
    "configured": "configuring",
    "tools": "configuring",
    "Feed": "feeding",
    "Done": "hooks",
    "hooks": "hooks",
    "Host": "host",
    "Pluggable": "loading",
    "load": "loading",
    "pending": "loading",
    "Plugin": "plugin",
    "Trust": "loading",
}
"""The modules that names live in; the words that hooks are spoken to in are the vocabulary's."""


def __getattr__(name: str) -> Any:
    """Names of other modules, which are loaded when they are asked for: most engines have no plugins."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "vocabulary")
    module = __import__(f"{__name__}.{home}", fromlist=["__doc__"])
    value = globals()[name] = module if name == home else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
