"""OpenCode's layered configuration, and the agents, commands, skills and instructions defined by it.

::

    config = load(directory, worktree)
    config.settings.model  # typed
    config.origin("compaction.auto")  # where it was set: file and line, or variable
    agents(config)["plan"].permission  # the rules, in order
"""

from __future__ import annotations

from .agents import Agent, agents, default_agent, plan_lifting_rules
from .commands import Command, commands, expand, mentions
from .config import Config, Origin
from .instructions import nearby, system_instructions, system_paths
from .layers import load, load_and_fetch
from .rules import evaluate, rule, rules
from .schema import ConfigSettings, McpConfig
from .skills import Skill, skills

__all__ = [
    "Agent",
    "Command",
    "Config",
    "ConfigSettings",
    "McpConfig",
    "Origin",
    "Skill",
    "agents",
    "commands",
    "default_agent",
    "evaluate",
    "expand",
    "load",
    "load_and_fetch",
    "mentions",
    "nearby",
    "plan_lifting_rules",
    "rule",
    "rules",
    "skills",
    "system_instructions",
    "system_paths",
]
