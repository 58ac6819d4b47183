"""OpenCode's layered configuration, and the agents, commands, skills and instructions defined by it.

::

    config = load(directory, worktree)
    config.settings.model  # typed
    config.origin("compaction.auto")  # where it was set: file and line, or variable
    agents(config)["plan"].permission  # the rules, in order
"""

from __future__ import annotations

from ..flags import Flags
from .agents import Agent, agents, default_agent, model_ref
from .commands import Command, Expansion, commands, expand, hints, mentions, split_arguments
from .config import Config, Origin, replace_document
from .instructions import Instruction, nearby, system_instructions, system_paths
from .layers import load, load_and_fetch
from .rules import Rules, evaluate, matches, rule, rules
from .schema import (
    Action,
    AgentConfig,
    CommandConfig,
    CompactionConfig,
    ConfigSettings,
    McpConfig,
    ModelConfig,
    Permission,
    ProviderConfig,
)
from .skills import Skill, skills
from .source import Fetch, Folders

__all__ = [
    "Action",
    "Agent",
    "AgentConfig",
    "Command",
    "CommandConfig",
    "CompactionConfig",
    "Config",
    "ConfigSettings",
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
    "Skill",
    "agents",
    "commands",
    "default_agent",
    "evaluate",
    "expand",
    "hints",
    "load",
    "load_and_fetch",
    "matches",
    "mentions",
    "model_ref",
    "nearby",
    "replace_document",
    "rule",
    "rules",
    "skills",
    "split_arguments",
    "system_instructions",
    "system_paths",
]
