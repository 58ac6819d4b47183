"""Other agents, in sessions of their own: what the task tool and subtask parts are made of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..config import evaluate
from ..errors import InvalidID, NotFound, ToolFailed
from ..records import Rule
from ..tools.services import Child, Subtask
from .prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config import Agent
    from ..records import Document
    from ..storage.store import StoredMessage
    from .runtime import Runtime


_NOT_INHERITED = ("*", "question", "plan_enter", "plan_exit", "todowrite", "todoread", "task", "doom_loop")


class ChildSessions:
    """Runs subagents for one session."""

    def __init__(self, runtime: Runtime, *, parent_id: str, model: Document, rules: Sequence[Rule]) -> None:
        """``model`` is the caller's, for agents that have none of their own; ``rules`` are the caller's too."""
        self._runtime = runtime
        self._parent_id = parent_id
        self._model = model
        self._rules = rules

    async def open(self, task: Subtask) -> Child:
        """The child session: a new one, or the one that ``task_id`` names."""
        agent = self._agent(task.agent)
        session_id = await self._existing(task.task_id) if task.task_id else None
        if session_id is None:
            title = f"{task.description} (@{agent.name} subagent)"
            rules = self._child_rules(agent)
            child = await asyncio.to_thread(
                self._runtime.sessions.create, title=title, parent_id=self._parent_id, permission=rules
            )
            session_id = child.id
        model = self._model
        if agent.model is not None:
            model = {"providerID": agent.model.provider_id, "modelID": agent.model.model_id}
        return Child(session_id=session_id, model=model)

    async def run(self, child: Child, task: Subtask) -> str:
        """Run the child until it is done, and answer with its last words."""
        # A model wrote this: what it mentions with an @ was not given by the user. The child can ask to read it.
        prompt = Prompt(
            parts=({"type": "text", "text": task.prompt},),
            agent=task.agent,
            model=f"{child.model['providerID']}/{child.model['modelID']}",
        )
        outcome = await self._runtime.run_child(child.session_id, prompt)
        if outcome.kind != "answered":
            raise ToolFailed(f"the subagent did not finish: {outcome.words}")
        return last_words(outcome.message)

    def _agent(self, name: str) -> Agent:
        try:
            agent = self._runtime.agent(name)
        except NotFound as error:
            raise ToolFailed(error.message) from error
        if agent.mode == "primary":
            raise ToolFailed(f"{name} is not a subagent")
        return agent

    def _holds(self, rule: Rule) -> bool:
        """Whether a prohibition of the caller's is in force, and one that a child could get around."""
        if rule.action != "deny" or rule.permission in _NOT_INHERITED:
            return False
        return evaluate(rule.permission, rule.pattern, tuple(self._rules)) == "deny"

    async def _existing(self, session_id: str) -> str | None:
        """An earlier child of this session; no other session is a model's to go on in, least of all its own."""
        try:
            found = await self._runtime.session(session_id)
        except (NotFound, InvalidID):
            return None
        return found.id if found.parent_id == self._parent_id else None

    def _child_rules(self, agent: Agent) -> list[Rule]:
        """What a child may not do: keep a list, start children of its own, and whatever its parent was denied."""
        denied = [rule for rule in self._rules if self._holds(rule)]
        rules = [*denied, _rule("todowrite", "deny"), _rule("todoread", "deny")]
        if not any(rule.permission == "task" for rule in agent.permission):
            rules.append(_rule("task", "deny"))
        allowed = self._runtime.config.settings.experimental.primary_tools or []
        return [*rules, *(_rule(tool, "allow") for tool in allowed)]


def last_words(message: StoredMessage | None) -> str:
    """The last text of an answer."""
    texts = [part["text"] for part in (message.parts if message else []) if part.get("type") == "text"]
    return texts[-1] if texts else ""


def _rule(permission: str, action: str) -> Rule:
    return Rule(permission=permission, pattern="*", action="allow" if action == "allow" else "deny")
