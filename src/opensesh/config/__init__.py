"""OpenCode's layered configuration, and the agents, commands, skills and instructions defined by it.

::

    config = load(directory, worktree)
    config.settings.model  # typed
    config.origin("compaction.auto")  # where it was set: file and line, or variable
    agents(config)["plan"].permission  # the rules, in order
"""

from __future__ import annotations

from .agents import Agent as Agent
from .agents import agents as agents
from .agents import default_agent as default_agent
from .agents import plan_lifting_rules as plan_lifting_rules
from .commands import Command as Command
from .commands import commands as commands
from .commands import expand as expand
from .commands import mentions as mentions
from .config import Config as Config
from .config import Origin as Origin
from .instructions import nearby as nearby
from .instructions import system_instructions as system_instructions
from .instructions import system_paths as system_paths
from .layers import load as load
from .layers import load_and_fetch as load_and_fetch
from .rules import evaluate as evaluate
from .rules import rule as rule
from .rules import rules as rules
from .schema import ConfigSettings as ConfigSettings
from .schema import McpConfig as McpConfig
from .skills import Skill as Skill
from .skills import skills as skills
