"""Subagents: child sessions that the task tool and subtask parts start."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ..config import evaluate
from ..config.rules import matches
from ..errors import InvalidIDError, NotFoundError, SubtaskFailedError
from ..records import Rule, document_of
from ..tools.tool import ChildSession
from .cancellation import run_in_thread_uncancellable
from .model_choice import subagents
from .plan_mode import PLAN_MODE_RULE
from .prompt import Prompt, mentioned_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config import Agent
    from ..records import Document, Session
    from ..storage.protocol import StoredMessage
    from ..tools.tool import Subtask
    from .budget import Budgets
    from .components import Environment, RunPrompt
    from .loop import Outcome

MAX_DEPTH = 3
"""How deep subagents may be nested where the configuration (``subagent_depth``) does not say. OpenCode 1.1.65 has no
limit, and later versions one of 1; but only an agent whose rules mention ``task`` can start any."""
USER_REQUESTED = Rule(permission="task", pattern="*", action="allow")
"""The user asked for the subtask, so that no rule of the agent denies it."""
_CLOCK_SECONDS = 1.0
_STATES = {"aborted": "aborted", "blocked": "refused"}
_NOT_INHERITED = ("*", "question", "plan_enter", "plan_exit", "todowrite", "todoread", "task", "doom_loop")


class SubagentServices(NamedTuple):
    """What subagents of all sessions need."""

    environment: Environment
    budgets: Budgets
    run: RunPrompt


class ChildSessions(NamedTuple):
    """Runs subagents for the calls of one step."""

    services: SubagentServices
    parent_id: str
    model: Document
    """The caller's, for agents that have none."""
    rules: tuple[Rule, ...]
    """The caller's."""
    session_rules: tuple[Rule, ...]
    """Those of the session alone."""
    planning: bool
    """Whether the caller is in plan mode; then its children are too."""
    user_requested: bool
    """Whether the user requested it: then any agent can do it, with the files that it mentions."""

    async def open(self, task: Subtask) -> ChildSession:
        """Return the child session: a new one, or the earlier one that ``task_id`` names."""
        environment = self.services.environment
        writer, settings, agents = environment.writer, environment.config.settings, environment.agents.by_name
        agent = agents.get(task.agent)
        if agent is None or (agent.mode == "primary" and not self.user_requested):
            offered = ", ".join(agent.name for agent in subagents(agents.values(), self.rules))
            problem = f"there is no agent {task.agent!r}" if agent is None else f"{task.agent} is not a subagent"
            raise SubtaskFailedError(f"{problem}; the subagents are: {offered or 'none'}", state="no such agent")
        depth = len(await run_in_thread_uncancellable(writer.sessions.ancestors, self.parent_id))
        if depth >= (MAX_DEPTH if settings.subagent_depth is None else settings.subagent_depth):
            raise SubtaskFailedError(
                f"a subagent cannot start subagents here: it is {depth} deep (subagent_depth in the configuration "
                "sets the limit). Do the work yourself.",
                state="too deep",
            )
        session: Session | None = None
        if task.task_id:
            with suppress(NotFoundError, InvalidIDError):
                session = await writer.get(task.task_id)
        rules = self._child_rules(agent)
        if session is None or session.parent_id != self.parent_id:  # a model may not continue any other session
            title = f"{task.description} (@{agent.name} subagent)"
            session = await writer.create(title=title, parent_id=self.parent_id, permission=rules)
        else:  # its rules follow from the present caller
            documents = [document_of(rule) for rule in rules]
            await writer.edit(session.id, lambda info: info.update(permission=documents), touch=False)
        model = self.model
        if agent.model is not None:
            model = {"providerID": agent.model.provider_id, "modelID": agent.model.model_id}
        return ChildSession(session_id=session.id, model=model)

    async def run(self, child: ChildSession, task: Subtask) -> str:
        """Run the child to its outcome, and return the last text of its answer."""
        environment = self.services.environment
        parts: tuple[Document, ...] = ({"type": "text", "text": task.prompt},)
        # Files that a model mentions with @ were not attached by the user. The child can ask to read them.
        if self.user_requested:
            parts = mentioned_parts(task.prompt, environment.writer.location, environment.agents)
        model = f"{child.model['providerID']}/{child.model['modelID']}"
        prompt = Prompt(parts=parts, agent=task.agent, model=model)
        if environment.settings.opencode_events:  # whose prompts name the tools that the rules of their session deny
            disabled_tools = self._disabled_tools(environment.agents.get(task.agent))
            prompt = replace(prompt, tools=dict.fromkeys(disabled_tools, False))
        with self.services.budgets.subagent(child.session_id):
            outcome = await self._run_in_time(child.session_id, prompt)
        answered = outcome.message.parts if outcome.message else []
        text = next((part["text"] for part in reversed(answered) if part.get("type") == "text"), "")
        if outcome.kind == "answered" or (outcome.kind == "blocked" and environment.settings.opencode_events):
            return text or f"The subagent did not finish: {outcome.description}"
        state = _STATES.get(outcome.kind, "failed")
        if (outcome.error or {}).get("name") == "BudgetExceededError":
            state = "over budget"
        so_far = f"\n\nWhat it had said until then:\n{text}" if text else ""
        raise SubtaskFailedError(f"the subagent did not finish: {outcome.description}{so_far}", state=state)

    async def _run_in_time(self, session_id: str, prompt: Prompt) -> Outcome:
        """Run the child for at most the seconds of the settings, without those in which a request waited for the
        user."""
        environment = self.services.environment
        limit = environment.settings.task_seconds
        if limit is None:
            return await self.services.run(session_id, prompt)
        loop, timer, used = asyncio.get_running_loop(), asyncio.timeout(None), 0.0
        interval = min(_CLOCK_SECONDS, limit or _CLOCK_SECONDS)

        def tick() -> None:
            nonlocal used, handle
            is_user_asked = environment.permissions.pending or environment.questions.pending
            used += 0 if is_user_asked else interval
            if used >= limit:
                timer.reschedule(loop.time())
            else:
                handle = loop.call_later(interval, tick)

        handle = loop.call_later(interval, tick)
        try:
            async with timer:
                return await self.services.run(session_id, prompt)
        except TimeoutError:
            if not timer.expired():
                raise
            reason = f"the subagent was stopped: it took longer than {limit:g} s"
            raise SubtaskFailedError(reason, state="timed out") from None
        finally:
            handle.cancel()

    def _child_rules(self, agent: Agent) -> list[Rule]:
        """Return what a child may not do: what its parent is denied and a child could work around, todo lists, starting
        children of its own, and the tools that the configuration reserves for primary agents."""
        denied = [
            rule
            for rule in self.rules
            if rule.action == "deny"
            and rule.permission not in _NOT_INHERITED
            and evaluate(rule.permission, rule.pattern, self.rules) == "deny"  # no later rule allows it
        ]
        tools = self._disabled_tools(agent)
        limits = self._session_limits(agent)
        rules = [*limits, *(rule for rule in denied if rule not in limits)]
        rules += [Rule(permission=tool, pattern="*", action="deny") for tool in tools]
        return [*rules, PLAN_MODE_RULE] if self.planning else rules

    def _session_limits(self, agent: Agent) -> list[Rule]:
        """Return what the rules of the session itself deny or ask about, beside those of its agent, and the exceptions
        that the child's agent allows."""
        limits: list[Rule] = []
        for rule in self.session_rules:
            if rule == PLAN_MODE_RULE or rule.permission in _NOT_INHERITED[1:]:
                continue
            if rule.action != "allow":
                limits.append(rule)
            elif limits and not any(wild in rule.permission for wild in "*?"):
                limits.append(rule)
                limits += [
                    replace(own, permission=rule.permission)
                    for own in agent.permission
                    if own.action != "allow"
                    and matches(rule.permission, own.permission)
                    and evaluate(rule.permission, own.pattern, agent.permission) == own.action
                ]
        return limits

    def _disabled_tools(self, agent: Agent) -> list[str]:
        tools = ["todowrite", "todoread"]
        if not any(rule.permission == "task" for rule in agent.permission):
            tools.append("task")
        return [*tools, *self.services.environment.config.settings.experimental.primary_tools]


def next_requested_subtask(prompt: StoredMessage, answers: Sequence[StoredMessage]) -> Document | None:
    """Return the next subtask part of a prompt that has not been run."""
    done: int | None = None
    for part in prompt.parts:
        if part.get("type") != "subtask":
            continue
        if done is None:
            done = sum(any(call.get("tool") == "task" for call in answer.parts) for answer in answers)
        if done == 0:
            return part
        done -= 1
    return None
