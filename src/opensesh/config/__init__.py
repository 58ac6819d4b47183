"""Layered configuration as OpenCode has it, and what is made of it: agents, commands, skills, instructions.

::

    config = load(directory, worktree)
    config.settings.model  # typed
    config.origin("compaction.auto")  # who said so: file and line, or variable
    agents(config)["plan"].permission  # the rules, in order
"""

from __future__ import annotations

from ..flags import Flags
from .agents import Agent, agents, default_agent, model_ref
from .commands import Command, Expansion, commands, expand, hints, mentions, split_arguments
from .folders import Folders
from .instructions import Instruction, nearby, system_instructions, system_paths
from .rules import Rules, evaluate, matches, rule, rules
from .skills import Skill, skills

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .fetching import Fetch
    from .layers import load
    from .merged import Config, Origin
    from .replacing import replaced
    from .schema import (
        Action,
        AgentConfig,
        CommandConfig,
        CompactionConfig,
        McpConfig,
        ModelConfig,
        Permission,
        ProviderConfig,
        Settings,
    )

__all__ = [
    "Action",
    "Agent",
    "AgentConfig",
    "Command",
    "CommandConfig",
    "CompactionConfig",
    "Config",
    "Expansion",
    "Fetch",
    "Flags",
    "Folders",
    "Instruction",
    "McpConfig",
    "ModelConfig",
    "Origin",
    "Permission",
    "ProviderConfig",
    "Rules",
    "Settings",
    "Skill",
    "agents",
    "commands",
    "default_agent",
    "evaluate",
    "expand",
    "hints",
    "load",
    "matches",
    "mentions",
    "model_ref",
    "nearby",
    "replaced",
    "rule",
    "rules",
    "skills",
    "split_arguments",
    "system_instructions",
    "system_paths",
]

_HOMES = {"Fetch": "fetching", "load": "layers", "Config": "merged", "Origin": "merged", "replaced": "replacing"}
_SCHEMA = frozenset(
    """
    Action AgentConfig CommandConfig CompactionConfig McpConfig ModelConfig Permission ProviderConfig Settings
    """.split()
)


def __getattr__(name: str) -> Any:
    """What it takes to read it, which is loaded when it is asked for: most modules want what was read."""
    home = _HOMES.get(name) or ("schema" if name in _SCHEMA else None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = __import__(f"{__name__}.{home}", fromlist=["__doc__"])
    value = globals()[name] = getattr(module, name)
    return value
