"""Plan mode: what a planning session may do without the user's permission, where its plan is, and how it is entered.

Plan mode is enforced, not only requested of the model. It holds for the agent ``plan`` and for every subagent that
works for it, at any depth. Neither rules of the configuration nor permissions that the user gave for good while
building open it; only the section of the agent ``plan`` does. Files are guarded by the agent's rules, which deny all
edits but those of the plan. Commands run in the sandbox, and those that are not known to be read-only need the user's
permission each time. Tools of MCP servers, plugins and packages run outside of the sandbox, in processes that began
before the mode: those that are declared read-only need the user's permission each time, all others are refused.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..config import plan_lifting_rules
from ..config.rules import EDITING, decide, matches
from ..errors import InvalidArgumentsError, PermissionDeniedError
from ..records import Rule
from ..tools.arguments import decode
from ..tools.structured_output import StructuredOutput
from ..tools.tool import BuiltinTool
from .cancellation import uncancellable
from .prompts import prompt_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..config import Agent, Config
    from ..project import ProjectLocation
    from ..records import Document, Session
    from ..storage.protocol import StoredMessage
    from ..tools.tool import Tool
    from .session_writer import SessionWriter

PLAN = "plan"
PLAN_MODE_RULE = Rule(permission="opensesh_plan", pattern="*", action="deny")
"""Among a session's rules: the session works for one that plans."""
_SELF_GUARDED = EDITING | {"task", "batch", "bash"}
"""Tools that are guarded otherwise: by rules about files, by the calls they make, or by asking for each command."""
_READ_ONLY = frozenset(
    """
    codesearch glob grep invalid list plan_enter plan_exit question read recall skill StructuredOutput todoread
    todowrite webfetch websearch
    """.split()
)
_NOT_IN_SLUGS = re.compile(r"[^A-Za-z0-9_-]")


class PlanModeGuard:
    """Decides which calls of a planning session need the user's permission."""

    def __init__(self, allowed: Sequence[Rule] = ()) -> None:
        """``allowed`` are the rules in the configuration of the agent ``plan``."""
        self._allowed = allowed

    def permission_needed_for(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Return the permission that a call needs anew each time; ``None`` if it is read-only or guarded otherwise.

        Raises :class:`~opensesh.errors.PermissionDeniedError` for a tool that no permission makes safe.
        """
        is_builtin = isinstance(tool, BuiltinTool) and type(tool).__module__.startswith("opensesh.tools.")
        if not is_builtin and not isinstance(tool, StructuredOutput):
            # Also a custom tool with the name of a built-in one. A declaration is the word of a program that the user
            # has chosen to run, so it decides whether the user is asked, not whether the call is allowed.
            if getattr(tool, "read_only", False) is not True and not self.is_explicitly_allowed(tool.id, ["*"]):
                raise PermissionDeniedError(
                    f"Plan mode refuses {tool.id}: it is not declared read-only, and it runs outside of the sandbox. "
                    f'The user can allow it with "agent": {{"{PLAN}": {{"permission": {{"{tool.id}": "allow"}}}}}}',
                    permission=tool.id,
                    pattern="*",
                    rules=[],
                )
            return tool.id
        if tool.id == "bash":
            return None if _is_read_only_command(arguments) else "bash"
        return None if tool.id in _READ_ONLY or tool.id in _SELF_GUARDED else tool.id

    def is_explicitly_allowed(self, permission: str, patterns: Sequence[str]) -> bool:
        """Whether the configuration of the agent ``plan`` allows this."""
        return bool(patterns) and all(
            decide(permission, pattern, self._allowed).action == "allow" for pattern in patterns
        )


class SessionRules(NamedTuple):
    """What decides about the tool calls of an agent in a session, before the user."""

    agent: tuple[Rule, ...]
    session: tuple[Rule, ...]
    """The session's own, which follow those of the agent."""
    guard: PlanModeGuard | None
    """``None`` outside of plan mode."""


def rules_in_session(agent: Agent, session: Session, config: Config, plan: str) -> SessionRules:
    """Return the rules for an agent in a session. In plan mode, no rule of the session allows edits, and those of the
    agent ``plan`` allow it to write only the plan of this session, at the path ``plan``."""
    own = tuple(session.permission or ())
    is_child = PLAN_MODE_RULE in (*agent.permission, *own)
    if agent.name != PLAN and not is_child:
        return SessionRules(agent.permission, own, None)
    guard = PlanModeGuard(() if is_child else plan_lifting_rules(config))
    own = tuple(rule for rule in own if rule.action != "allow" or not matches("edit", rule.permission))
    if agent.name != PLAN:
        return SessionRules(agent.permission, own, guard)
    folders = (os.path.join(".opencode", "plans"), os.path.relpath(config.folders.plans, config.worktree))
    all_plans = {os.path.join(folder, "*.md") for folder in folders}
    own_plan = os.path.relpath(plan, config.worktree).replace(os.sep, "/")
    agents = tuple(
        replace(rule, pattern=own_plan) if rule.permission == "edit" and rule.pattern in all_plans else rule
        for rule in agent.permission
    )
    return SessionRules(agents, own, guard)


def _is_read_only_command(arguments: Mapping[str, Any]) -> bool:
    from ..tools.bash import BashTool
    from ..tools.shell.execution import select_shell
    from ..tools.shell.read_only import is_read_only
    from ..tools.shell.sandbox import find_lock

    try:
        # Decoded as the tool will do, which accepts misspelt arguments.
        command = decode(BashTool.id, BashTool.parameters, arguments).command
    except InvalidArgumentsError:
        return False
    # Without a lock of the kernel, only what no file of the project can turn into something else.
    return is_read_only(command, select_shell(os.environ).language, literal=find_lock() is None)


class SessionModes(NamedTuple):
    """Lets the tools of one step enter and leave plan mode."""

    writer: SessionWriter
    config: Config
    plan: str
    """Path of the session's plan."""
    prompt: Document
    enqueue: Callable[[StoredMessage], None]

    @uncancellable
    async def switch(self, agent: str, text: str) -> None:
        """Continue the conversation with ``agent``, from a user message with ``text``."""
        before = "build" if agent == PLAN else PLAN
        texts = (text, *plan_reminders(self.config, self.plan, agent, before))
        self.enqueue(await self.writer.add_synthetic_prompt(self.prompt, texts, agent))


def plan_file(config: Config, location: ProjectLocation, session: Session) -> str:
    """Return the path of a session's plan: in the project, or in OpenCode's data folder outside of version control."""
    base = os.path.join(location.sandbox, ".opencode", "plans") if location.vcs else config.folders.plans
    # The slug of a session that was imported may be anything, and the name is also the pattern that allows the edit.
    slug = _NOT_IN_SLUGS.sub("-", session.slug)
    return os.path.join(base, f"{session.time.created}-{slug}.md")


def plan_reminders(config: Config, plan: str, agent: str | None, before: str | None) -> list[str]:
    """Return the texts about plan mode that a prompt for ``agent`` needs; ``before`` is the agent of the last answer.

    With OPENCODE_EXPERIMENTAL_PLAN_MODE there is a plan file, which is named when plan mode is entered and left.
    Without it every prompt for the planning agent states the mode.
    """
    with_file = config.flags.plan_mode
    if agent == PLAN:
        if not with_file:
            return [prompt_text("plan")]
        if before == PLAN:
            return []
        exists = os.path.exists(plan)
        state = "It exists already: read it, and go on from there." if exists else "It does not exist yet."
        return [prompt_text("plan_workflow").replace("{{plan}}", plan).replace("{{state}}", state)]
    if before != PLAN:
        return []
    if with_file and os.path.exists(plan):
        return [prompt_text("plan_done").replace("{{plan}}", plan)]
    return [prompt_text("build")] if agent == "build" else []
