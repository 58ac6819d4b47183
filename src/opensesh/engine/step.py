"""What one step needs, worked out before it begins: the agent, the model, the tools on offer, the request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import evaluate, skills, system_instructions, system_paths
from ..errors import OpenseshError
from ..models import options
from ..models.request import Assistant, Request, Text, ToolSpec, User
from ..permissions import disabled
from ..records import as_object, merged
from ..tools.registry import CatalogEntry, DescriptionVariables, Features, Registry, to_spec
from .context import Surroundings as CallSurroundings
from .modes import SessionModes, plan_file
from .planning import gate, narrowed
from .projection import mark_cache_points
from .prompts import words
from .recall import add_recall_hint, has_past
from .structured import StructuredOutput
from .subtasks import ORDERED, ChildSessions, subagents
from .system_prompt import system_prompt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ..config import Agent, Config
    from ..models.model import Model
    from ..models.request import ModelMessage, Provider, System
    from ..models.stream_events import StreamEvent
    from ..records import Document, Rule, Session
    from ..storage.protocol import StoredMessage
    from ..tools.filetimes import FileTimes
    from ..tools.tool import Tool
    from .components import Runtime
    from .session_history import History


class Steps:
    """Plans the steps of one run. What does not change while a run lasts is worked out once."""

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        history: History,
        files: FileTimes,
        queue: Callable[[StoredMessage], None],
    ) -> None:
        self._runtime = runtime
        self._session = session
        self._history = history
        self._files = files
        self._queue = queue
        self._registry = self._tools_with(())
        self._prepared: Document | None = None
        self._plans: tuple[Document, Plan] | None = None
        self._skills = tuple(skills(runtime.config).values())
        self._instructions = [each.text for each in system_instructions(runtime.config)]
        self._known = set(system_paths(runtime.config)) | _loaded(history)

    async def prepare(self, user: Document) -> None:
        """Before the first step of a prompt: have the MCP servers ready. What they offer stays the same for all steps
        of the prompt, as the beginning of a request must."""
        if self._prepared is not user:
            self._registry = self._tools_with(await self._runtime.mcp.tools())
            self._prepared = user

    def _tools_with(self, remote: Sequence[Tool]) -> Registry:
        runtime = self._runtime
        on = features(runtime.config, interactive=runtime.settings.interactive)
        brought = [each.tool for each in runtime.installed.tools]
        return Registry.standard(on, runtime.custom_tools, (*brought, *remote))

    def plan(self, user: Document, step: int) -> Step:
        """The next step. What cannot be had (a model, an agent, a key) raises what says so."""
        plan = self._plan(user)
        return Step(self, plan, self._runtime.connections.provider(plan.model), user, step)

    def sketch(self, user: Document, step: int, agent: Agent, model: Model) -> Request:
        """What a step would send, of an agent and to a model that need not be there to be asked."""
        return Step(self, self._planned(user, agent, model), _Silent(), user, step).request()

    def _plan(self, user: Document) -> Plan:
        """What all steps of a prompt have in common, worked out for the first of them."""
        if self._plans is None or self._plans[0] is not user:
            agent = self._runtime.agent(user.get("agent"))
            self._plans = user, self._planned(user, agent, self._runtime.model_of(user))
        return self._plans[1]

    def _planned(self, user: Document, agent: Agent, model: Model) -> Plan:
        schema = _schema(user)
        tools = [*self._tools(agent, model, user), *([StructuredOutput(schema)] if schema is not None else [])]
        return Plan(
            agent=agent,
            model=model,
            schema=schema,
            tools=tuple(tools),
            specs=self._specs(agent, tools),
            system=self._system(agent, model, user, structured=schema is not None),
            max_output_tokens=options.max_output_tokens(model, self._runtime.config.flags.output_token_max),
        )

    def rules(self, agent: Agent) -> tuple[Rule, ...]:
        """The agent's rules, then the session's."""
        own = narrowed(agent, self._runtime.config, plan_file(self._runtime, self._session))
        return (*own, *(self._session.permission or ()))

    def _tools(self, agent: Agent, model: Model, user: Document) -> list[Tool]:
        """What the model is offered: not what a rule forbids outright, nor what the prompt switched off."""
        off = {name for name, on in (as_object(user.get("tools")) or {}).items() if on is False}
        hidden = disabled(self._registry.names, self.rules(agent)) | off
        if not has_past(self._history):
            hidden |= {"recall"}
        return self._registry.offered(model.wire_id, model.provider_id, hidden=hidden)

    def _specs(self, agent: Agent, tools: list[Tool]) -> tuple[ToolSpec, ...]:
        """The tools as the model reads of them."""
        rules = self.rules(agent)
        limits = self._runtime.outputs()
        around = DescriptionVariables(
            directory=self._runtime.place.directory,
            agents=tuple(
                CatalogEntry(each.name, each.description or "") for each in subagents(self._runtime.agents, rules)
            ),
            skills=tuple(
                CatalogEntry(each.name, each.description, each.location)
                for each in self._skills
                if evaluate("skill", each.name, rules) != "deny"
            ),
            max_lines=limits.max_lines,
            max_bytes=limits.max_bytes,
        )
        return tuple(to_spec(tool, around) for tool in tools)

    def _system(self, agent: Agent, model: Model, user: Document, *, structured: bool) -> System:
        """The system prompt, the same for every step of a session that nothing changes about."""
        return system_prompt(
            agent,
            model,
            self._runtime.place,
            started=self._session.time.created,
            instructions=self._instructions,
            extra=user.get("system"),
            structured=structured,
        )

    def turns(self, model: Model, instead: Sequence[StoredMessage] | None = None) -> tuple[ModelMessage, ...]:
        """The conversation so far, or what is shown in its place."""
        return self._history.turns(model, instead)

    async def shaped(self, step: Step) -> Request:
        """A step's request as the plugins want it."""
        hooks = self._runtime.hooks
        if not hooks.plugins:
            return step.request()
        call = hooks.call(step.user, step.agent.name, step.model)
        instead = await hooks.conversation(call, self._history)
        return await hooks.request(call, step.request(instead))

    def tool(self, name: str) -> Tool:
        """A tool that is always there, offered or not."""
        found = self._registry.get(name)
        assert found is not None, "the registry always has it"  # noqa: S101
        return found

    def surroundings(self, step: Step, answer: Document, *, ordered: bool = False) -> CallSurroundings:
        """What the calls of an ``answer`` see; or the one call of a subtask that the user ordered."""
        runtime, rules = self._runtime, self.rules(step.agent)
        closed = gate(step.agent, rules, runtime.config)
        children = ChildSessions(
            runtime,
            parent_id=self._session.id,
            model={name: answer[name] for name in ("modelID", "providerID")},
            rules=rules,
            planning=closed is not None,
            ordered=ordered,
        )
        return CallSurroundings(
            runtime=runtime,
            session_id=self._session.id,
            message_id=answer["id"],
            agent=step.agent,
            rules=(*rules, ORDERED) if ordered else rules,
            files=self._files,
            invalid=self.tool("invalid"),
            subtasks=children,
            modes=SessionModes(runtime, self._session, step.user, self._queue),
            skills=self._skills,
            known_instructions=self._known,
            gate=closed,
        )


class Plan(NamedTuple):
    """What all steps of a prompt have in common."""

    agent: Agent
    model: Model
    schema: dict[str, Any] | None
    tools: tuple[Tool, ...]
    specs: tuple[ToolSpec, ...]
    system: System
    max_output_tokens: int


class Step:
    """One step, planned."""

    def __init__(self, steps: Steps, plan: Plan, provider: Provider, user: Document, number: int) -> None:
        self.agent = plan.agent
        self.model = plan.model
        self.provider = provider
        self.user = user
        self.is_last = plan.agent.steps is not None and number >= plan.agent.steps
        """Whether the agent has no more steps after this: its tools are switched off."""
        self._steps = steps
        self._plan = plan
        self.structured = StructuredOutput(plan.schema) if plan.schema is not None else None
        self.tools: dict[str, Tool] = {} if self.is_last else {tool.id: tool for tool in plan.tools}
        if self.structured is not None:
            self.tools[self.structured.id] = self.structured

    async def shaped(self) -> Request:
        """What to send, as the plugins want it."""
        return await self._steps.shaped(self)

    def request(self, instead: Sequence[StoredMessage] | None = None) -> Request:
        """What to send. The same history gives the same request, byte for byte."""
        turns = self._steps.turns(self.model, instead)
        if "recall" in self.tools:
            turns = add_recall_hint(turns)
        turns = (self._plan.system, *turns, *self._last_words(turns))
        model, agent = self.model, self.agent
        sampling = options.sampling(model)
        chosen = model.variants.get(self.user.get("variant") or "", {})
        temperature = sampling.temperature if agent.temperature is None else agent.temperature
        return Request(
            model=model,
            messages=mark_cache_points(turns, model),
            # Switched off by the choice rather than left out: providers refuse a history with calls where no tools are,
            # and what they have cached begins with the tools.
            tools=self._plan.specs,
            tool_choice="required" if self.structured else "none" if self.is_last else "auto",
            max_output_tokens=self._plan.max_output_tokens,
            temperature=temperature if model.capabilities.temperature else None,
            top_p=sampling.top_p if agent.top_p is None else agent.top_p,
            top_k=sampling.top_k,
            options=merged(options.options(model, self.user["sessionID"]), model.options, agent.options, chosen),
            headers=model.headers,
        )

    def ordered(self) -> dict[str, Tool]:
        """What runs a subtask that the user ordered, whether or not the model is offered it."""
        return {"task": self._steps.tool("task")}

    def surroundings(self, answer: Document, *, ordered: bool = False) -> CallSurroundings:
        """What the calls of an ``answer`` see; or the one call of a subtask that the user ordered."""
        return self._steps.surroundings(self, answer, ordered=ordered)

    def _last_words(self, turns: Sequence[ModelMessage]) -> tuple[User, ...]:
        """What stands at the end of the request only: no provider has to go on with words of its own."""
        if self.is_last:
            return (User(content=(Text(text=words("last_step")),)),)
        return (User(content=(Text(text=words("go_on")),)),) if isinstance(turns[-1], Assistant) else ()


class _Silent:
    """Nobody to ask."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Not to be called."""
        raise OpenseshError(f"nobody is there to be asked for {request.model.ref}")
        yield


def features(config: Config, *, interactive: bool) -> Features:
    """Which tools the configuration and the flags switch on."""
    flags = config.flags
    return Features(
        question=interactive,
        plan=flags.plan_mode,
        recall=True,
        batch=bool(config.settings.experimental.batch_tool),
        exa=flags.enable_exa,
        bash_timeout_ms=flags.bash_default_timeout_ms,
    )


def _schema(user: Document) -> dict[str, Any] | None:
    wanted = as_object(user.get("format")) or {}
    return as_object(wanted.get("schema")) if wanted.get("type") == "json_schema" else None


def _loaded(history: History) -> set[str]:
    """The instruction files that earlier reads have brought along, and that the model still sees."""
    found: set[str] = set()
    for message in history:
        for part in message.parts:
            state = as_object(part.get("state")) or {}
            if part.get("tool") == "read" and not (as_object(state.get("time")) or {}).get("compacted"):
                found.update(map(str, (as_object(state.get("metadata")) or {}).get("loaded") or ()))
    return {os.path.abspath(path) for path in found}
