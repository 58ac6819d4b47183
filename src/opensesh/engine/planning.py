"""Plan mode is a lock, not a request: what may be done without the user's word while a session plans.

It holds for the agent ``plan`` and for every subagent that works for it, however deep. Rules of the configuration do
not open it, nor does what the user allowed for good while building; only the section of the agent ``plan`` itself
does. Files are guarded by the agent's rules (all edits are denied but those of the plan). Everything else that is not
known to read only, or cannot be proven to, is put before the user each time, and refused where nobody is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..config import rules as rules_of
from ..config.rules import EDITING, decide
from ..errors import InvalidArgumentsError
from ..records import Rule
from ..tools.arguments import decode
from ..tools.tool import BuiltinTool
from .structured import StructuredOutput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..config import Agent, Config
    from ..tools.tool import Tool

PLAN = "plan"
MARK = Rule(permission="opensesh_plan", pattern="*", action="deny")
"""Among a session's rules: it works for one that plans."""
_GUARDED = EDITING | {"task", "batch", "bash"}
"""Tools that see to it themselves: by rules about files, by what they run, or by asking for each command."""
_READING = frozenset(
    """
    codesearch glob grep invalid list plan_enter plan_exit question read recall skill StructuredOutput todoread
    todowrite webfetch websearch
    """.split()
)


class PlanModeGuard:
    """What a call must have the user's word for."""

    def __init__(self, lifted: Sequence[Rule] = ()) -> None:
        """``lifted`` are the rules of the planning agent's own section."""
        self._lifted = lifted

    def unproven(self, tool: Tool, given: Mapping[str, Any]) -> str | None:
        """The permission that a call must be given anew; ``None`` if it changes nothing, or nothing unguarded."""
        if not _is_ours(tool):
            return tool.id
        if tool.id == "bash":
            return None if _is_harmless(given) else "bash"
        return None if tool.id in _READING or tool.id in _GUARDED else tool.id

    def is_lifted(self, permission: str, patterns: Sequence[str]) -> bool:
        """Whether the user let the planning agent, by name, do this."""
        return bool(patterns) and all(
            decide(permission, pattern, self._lifted).action == "allow" for pattern in patterns
        )


def gate(agent: Agent, rules: Sequence[Rule], config: Config) -> PlanModeGuard | None:
    """The gate before the calls of an agent; ``None`` where nobody plans."""
    if MARK in rules:
        return PlanModeGuard()
    if agent.name != PLAN:
        return None
    section = config.settings.agent.get(PLAN)
    return PlanModeGuard(rules_of(section.permission, config.folders.home) if section is not None else ())


def narrowed(agent: Agent, config: Config, plan: str) -> tuple[Rule, ...]:
    """The agent's rules; where they let it write plans, only the one of this session, at ``plan``."""
    if agent.name != PLAN:
        return agent.permission
    folders = (os.path.join(".opencode", "plans"), os.path.relpath(config.folders.plans, config.worktree))
    every = {os.path.join(folder, "*.md") for folder in folders}
    own = os.path.relpath(plan, config.worktree).replace(os.sep, "/")
    return tuple(
        replace(rule, pattern=own) if rule.permission == "edit" and rule.pattern in every else rule
        for rule in agent.permission
    )


def _is_ours(tool: Tool) -> bool:
    """Whether a tool is one of the built-in ones, and not another under the name of one."""
    if isinstance(tool, StructuredOutput):
        return True
    return isinstance(tool, BuiltinTool) and type(tool).__module__.startswith("opensesh.tools.")


def _is_harmless(given: Mapping[str, Any]) -> bool:
    from ..tools.shell.execution import select_shell

    shell = select_shell(os.environ)
    if shell.language == "other":
        return False
    from ..tools.bash import BashTool
    from ..tools.shell.read_only import is_read_only

    try:
        command = decode(
            BashTool.id, BashTool.parameters, given
        ).command  # as the tool will read it, misspellings and all
    except InvalidArgumentsError:
        return False
    return is_read_only(command, posix=shell.language == "posix")
