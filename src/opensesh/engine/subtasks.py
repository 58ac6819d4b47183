"""Other agents, in sessions of their own: what the task tool and subtask parts are made of."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..config import evaluate
from ..errors import InvalidIDError, NotFoundError, SubtaskFailedError
from ..models.stream_events import ToolCall
from ..records import Rule, document_of
from ..tools.services import ChildSession, Subtask
from .budget import accounting_task
from .planning import MARK
from .prompt import Prompt, mentioned_parts

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from ..config import Agent
    from ..records import Document
    from ..storage.protocol import StoredMessage
    from .calls import CallRunner
    from .components import Runtime
    from .loop import Outcome


DEPTH = 3
"""How many subagents may be subagents of each other, where the configuration (``subagent_depth``) does not say.
OpenCode 1.1.65 has no limit, and later versions one of 1; but only an agent whose rules speak of ``task`` can start
any, and who wrote such rules means them."""
ORDERED = Rule(permission="task", pattern="*", action="allow")
"""The user asked for the subtask, so no rule of the agent's stands against it."""
_LOOK = 1.0
"""Seconds between two looks at the clock."""
_STATES = {"aborted": "aborted", "blocked": "refused"}
_NOT_INHERITED = ("*", "question", "plan_enter", "plan_exit", "todowrite", "todoread", "task", "doom_loop")


class ChildSessions:
    """Runs subagents for one session."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        parent_id: str,
        model: Document,
        rules: Sequence[Rule],
        planning: bool = False,
        ordered: bool = False,
    ) -> None:
        """``model`` is the caller's, for agents that have none of their own; ``rules`` are the caller's too. What works
        for a caller that is ``planning`` changes nothing either. What the user ``ordered``, any agent can do, and the
        files that it mentions go along."""
        self._runtime = runtime
        self._parent_id = parent_id
        self._model = model
        self._rules = rules
        self._planning = planning
        self._ordered = ordered

    async def open(self, task: Subtask) -> ChildSession:
        """The child session: a new one, or the one that ``task_id`` names."""
        agent = self._agent(task.agent)
        await asyncio.to_thread(self._mind_depth)
        session_id = await self._existing(task.task_id) if task.task_id else None
        rules = self._child_rules(agent)
        if session_id is None:
            title = f"{task.description} (@{agent.name} subagent)"
            child = await asyncio.to_thread(
                self._runtime.sessions.create, title=title, parent_id=self._parent_id, permission=rules
            )
            session_id = child.id
        else:  # what it may do follows from who calls it now
            documents = [document_of(rule) for rule in rules]
            await self._runtime.edit(session_id, lambda info: info.update(permission=documents), touch=False)
        model = self._model
        if agent.model is not None:
            model = {"providerID": agent.model.provider_id, "modelID": agent.model.model_id}
        return ChildSession(session_id=session_id, model=model)

    async def run(self, child: ChildSession, task: Subtask) -> str:
        """Run the child until it is done, and answer with its last words."""
        # What a model mentions with an @ was not given by the user. The child can ask to read it.
        words = ({"type": "text", "text": task.prompt},)
        prompt = Prompt(
            parts=mentioned_parts(task.prompt, self._runtime) if self._ordered else words,
            agent=task.agent,
            model=f"{child.model['providerID']}/{child.model['modelID']}",
        )
        with accounting_task(self._runtime, child.session_id):
            outcome = await self._in_time(child.session_id, prompt)
        if outcome.kind != "answered":
            state = _STATES.get(outcome.kind, "failed")
            if (outcome.error or {}).get("name") == "BudgetExceededError":
                state = "over budget"
            raise SubtaskFailedError(
                f"the subagent did not finish: {outcome.description}{_so_far(outcome.message)}", state=state
            )
        return last_words(outcome.message)

    async def _in_time(self, session_id: str, prompt: Prompt) -> Outcome:
        """Run the child for as long as it may take; the time in which a person is waited for is not the child's."""
        limit, timer = self._runtime.settings.task_seconds, asyncio.timeout(None)
        try:
            async with timer:
                with self._clock(timer, limit):
                    return await self._runtime.run_child(session_id, prompt)
        except TimeoutError:
            if not timer.expired():
                raise
            why = f"the subagent was stopped: it took longer than {limit:g} s"
            raise SubtaskFailedError(why, state="timed out") from None

    @contextmanager
    def _clock(self, timer: asyncio.Timeout, limit: float | None) -> Generator[None]:
        """Run ``timer`` out after ``limit`` seconds in which nobody was being asked anything."""
        loop, used = asyncio.get_running_loop(), 0.0
        look = min(_LOOK, limit or _LOOK)
        ticking: asyncio.TimerHandle | None = None

        def tick() -> None:
            nonlocal used, ticking
            used += 0 if self._runtime.is_asking else look
            if limit is not None and used >= limit:
                timer.reschedule(loop.time())
            else:
                ticking = loop.call_later(look, tick)

        if limit is not None:
            ticking = loop.call_later(look, tick)
        try:
            yield
        finally:
            if ticking is not None:
                ticking.cancel()

    def _mind_depth(self) -> None:
        limit = self._runtime.config.settings.subagent_depth
        depth = 1 + len(self._runtime.sessions.ancestors(self._parent_id))
        if depth > (DEPTH if limit is None else limit):
            raise SubtaskFailedError(
                f"a subagent cannot hand on its work here: it is {depth - 1} deep (subagent_depth in the configuration "
                "sets how deep it may be). Do it yourself.",
                state="too deep",
            )

    def _agent(self, name: str) -> Agent:
        agent = self._runtime.agents.get(name)
        if agent is None or (agent.mode == "primary" and not self._ordered):
            there = [each.name for each in subagents(self._runtime.agents, tuple(self._rules))]
            what = f"there is no agent {name!r}" if agent is None else f"{name} is not a subagent"
            raise SubtaskFailedError(f"{what}; there are: {', '.join(there) or 'none'}", state="no such agent")
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
        except (NotFoundError, InvalidIDError):
            return None
        return found.id if found.parent_id == self._parent_id else None

    def _child_rules(self, agent: Agent) -> list[Rule]:
        """What a child may not do: keep a list, start children of its own, whatever its parent was denied, and what the
        configuration leaves to primary agents."""
        denied = [rule for rule in self._rules if self._holds(rule)]
        rules = [*denied, _rule("todowrite", "deny"), _rule("todoread", "deny")]
        if not any(rule.permission == "task" for rule in agent.permission):
            rules.append(_rule("task", "deny"))
        rules += [_rule(tool, "deny") for tool in self._runtime.config.settings.experimental.primary_tools]
        return [*rules, MARK] if self._planning else rules


def subagents(agents: Mapping[str, Agent], rules: tuple[Rule, ...] = ()) -> list[Agent]:
    """The agents that work can be given to, under these rules."""
    offered = [each for each in agents.values() if each.mode != "primary" and not each.hidden]
    return [each for each in offered if evaluate("task", each.name, rules) != "deny"]


def ordered_subtask(user: StoredMessage, answers: Sequence[StoredMessage]) -> Document | None:
    """The next subtask that a prompt orders and that has not been done."""
    ordered = [part for part in user.parts if part.get("type") == "subtask"]
    if not ordered:
        return None
    done = sum(any(part.get("tool") == "task" for part in answer.parts) for answer in answers)
    return ordered[done] if done < len(ordered) else None


async def run_subtask(calls: CallRunner, part: Document, new_call: Document) -> None:
    """Run a subtask as a call of the task tool."""
    given = {
        "prompt": part["prompt"],
        "description": part["description"],
        "subagent_type": part["agent"],
        "command": part.get("command"),
    }
    call = ToolCall(new_call["callID"], "task", {key: value for key, value in given.items() if value is not None})
    await calls.run(new_call, call)


def last_words(message: StoredMessage | None) -> str:
    """The last text of an answer."""
    texts = [part["text"] for part in (message.parts if message else []) if part.get("type") == "text"]
    return texts[-1] if texts else ""


def _so_far(message: StoredMessage | None) -> str:
    said = last_words(message)
    return f"\n\nWhat it had said until then:\n{said}" if said else ""


def _rule(permission: str, action: str) -> Rule:
    return Rule(permission=permission, pattern="*", action="allow" if action == "allow" else "deny")
