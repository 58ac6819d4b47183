"""Planning of a step, before it begins: the agent, the model, the tools on offer, and the request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..config import evaluate, skills, system_instructions, system_paths
from ..config.source import CachedFetch
from ..models import options
from ..models.request import Assistant, Request, Text, ToolSpec, User
from ..permissions import disabled
from ..records import as_object, merged, object_at
from ..tools.custom import load_installed_tools
from ..tools.structured_output import StructuredOutput
from ..tools.tool_registry import CatalogEntry, DescriptionVariables, Features, Registry, to_spec
from .model_choice import subagents
from .plan_mode import SessionModes, plan_agent_rules, plan_file, plan_mode_guard, plan_session_rules
from .projection import mark_cache_points
from .prompts import prompt_text, system_prompt
from .subtasks import USER_REQUESTED, ChildSessions
from .tool_context import StepContext, add_recall_hint, has_hidden_messages, output_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..config import Agent, Config
    from ..models.model import Model
    from ..models.request import Provider, System
    from ..records import Document, Rule, Session
    from ..storage.protocol import StoredMessage
    from ..tools.filetimes import FileTimes
    from ..tools.mcp.servers import McpServers
    from ..tools.tool import Tool
    from ..tools.truncation import Outputs
    from .components import Environment
    from .plan_mode import PlanModeGuard
    from .session_history import History
    from .subtasks import SubagentServices


def enabled_features(config: Config, *, interactive: bool) -> Features:
    """Return which tools the configuration and the flags enable."""
    flags = config.flags
    return Features(
        question=interactive,
        plan=flags.plan_mode,
        recall=True,
        batch=bool(config.settings.experimental.batch_tool),
        exa=flags.enable_exa,
        bash_timeout_ms=flags.bash_default_timeout_ms,
    )


class ToolSources:
    """Where the tools of one engine come from."""

    def __init__(self, features: Features, custom: tuple[Tool, ...], mcp: McpServers) -> None:
        """``custom`` are those of plugins and of the caller."""
        self.mcp = mcp
        self._features = features
        self._custom = custom
        self._installed: tuple[Tool, ...] | None = None

    def registry(self, remote: Sequence[Tool] = ()) -> Registry:
        """Return all tools, with the ``remote`` ones of MCP servers. Those of installed packages are loaded when a
        session first runs."""
        if self._installed is None:
            self._installed = tuple(installed.tool for installed in load_installed_tools().tools)
        return Registry.standard(self._features, self._custom, (*self._installed, *remote))


class Planner:
    """Plans the steps of one run. What stays the same while a run lasts is determined once."""

    def __init__(
        self,
        environment: Environment,
        tools: ToolSources,
        subagents: SubagentServices,
        session: Session,
        history: History,
        files: FileTimes,
        enqueue: Callable[[StoredMessage], None],
    ) -> None:
        """Reads instruction files and skills, so that it is called in a thread. ``enqueue`` takes a prompt that a tool
        stored."""
        self._session = session
        self.history = history
        self._files = files
        self._enqueue = enqueue
        self._environment = environment
        self._config = environment.config
        self._location = environment.writer.location
        self._agents = environment.agents
        self._models = environment.models
        self._tools = tools
        self._subagents = subagents
        self._plan_file = plan_file(self._config, self._location, session)
        self.registry = Registry()
        """The tools, for the prompt that the planner is prepared for."""
        self._prepared_for: Document | None = None
        self._plan: tuple[Document, Plan] | None = None
        self._skills = tuple(skills(self._config).values())
        fetch = CachedFetch(self._config.folders.cache, only_cached=True)
        self._instructions = [file.text for file in system_instructions(self._config, fetch)]
        self._known_instructions = set(system_paths(self._config))
        # Instruction files that earlier reads brought along, and that the model still sees.
        for message in history.messages:
            for part in message.parts:
                if part.get("tool") == "read" and not object_at(part, "state", "time").get("compacted"):
                    loaded = object_at(part, "state", "metadata").get("loaded") or ()
                    self._known_instructions.update(os.path.abspath(str(path)) for path in loaded)

    async def prepare(self, prompt: Document) -> None:
        """Wait for the MCP servers before the first step of a prompt. Their tools stay the same for all its steps,
        since the beginning of a request must not change. The rules of the session are those that it has then: a
        subagent that still runs may be continued for a session that plans."""
        if self._prepared_for is not prompt:
            self._session = await self._environment.writer.get(self._session.id)
            self.registry = self._tools.registry(await self._tools.mcp.tools())
            self._prepared_for = prompt

    def step(self, prompt: Document, number: int) -> Step:
        """Return the next step of a prompt. Raises if its agent, model or key does not exist."""
        if self._plan is None or self._plan[0] is not prompt:
            agent = self._agents.get(prompt.get("agent"))
            self._plan = prompt, self._new_plan(prompt, agent, self._models.of_prompt(prompt))
        plan = self._plan[1]
        return Step(self, plan, self._models.connections.provider(plan.model), prompt, number)

    def preview_request(self, prompt: Document, number: int, agent: Agent, model: Model) -> Request:
        """Return what a step would send. The model need not be available, and MCP servers are not waited for."""
        self.registry = self._tools.registry()
        return Step(self, self._new_plan(prompt, agent, model), None, prompt, number).request()

    def _new_plan(self, prompt: Document, agent: Agent, model: Model) -> Plan:
        rules = (
            *plan_agent_rules(agent, self._config, self._plan_file),
            *plan_session_rules(agent, self._session),
        )
        output_format = as_object(prompt.get("format")) or {}
        schema = as_object(output_format.get("schema")) if output_format.get("type") == "json_schema" else None
        # Not offered: tools that a rule denies entirely or that the prompt disables, and recall with nothing to recall.
        denied = disabled(self.registry.tools, rules)
        absent = frozenset(name for name, enabled in object_at(prompt, "tools").items() if enabled is False)
        hidden = {*denied, *absent}
        if not has_hidden_messages(self.history.messages):
            hidden.add("recall")
        tools = self.registry.offered(model.wire_id, model.provider_id, hidden=hidden)
        if schema is not None:
            tools.append(StructuredOutput(schema))
        limits = output_limits(self._config, delegate="task" not in denied)
        variables = DescriptionVariables(
            directory=self._location.directory,
            agents=tuple(
                CatalogEntry(subagent.name, subagent.description or "")
                for subagent in subagents(self._agents.by_name.values(), rules)
            ),
            skills=tuple(
                CatalogEntry(skill.name, skill.description, skill.location)
                for skill in self._skills
                if evaluate("skill", skill.name, rules) != "deny"
            ),
            max_lines=limits.max_lines,
            max_bytes=limits.max_bytes,
        )
        return Plan(
            agent=agent,
            model=model,
            rules=rules,
            guard=plan_mode_guard(agent, rules, self._config),
            outputs=limits,
            schema=schema,
            tools=tuple(tools),
            absent=absent,
            specs=tuple(to_spec(tool, variables) for tool in tools),
            system=system_prompt(
                agent,
                model,
                self._location,
                started=self._session.time.created,
                instructions=self._instructions,
                extra=prompt.get("system"),
                structured=schema is not None,
            ),
            max_output_tokens=self._models.max_output_tokens(model),
            options=self._models.call_options(model, self._session.id),
        )

    async def request_after_hooks(self, step: Step) -> Request:
        """Return a step's request as plugins change it."""
        hooks = self._environment.hooks
        if not hooks.plugins.have_hooks:
            return step.request()
        call = hooks.chat_call(step.prompt, step.agent.name, step.model)
        replacement = await hooks.messages(call, self.history.messages)
        return await hooks.request(call, step.request(replacement))

    def call_context(self, step: Step, answer: Document, *, user_requested: bool = False) -> StepContext:
        """Return what the tool calls of an ``answer`` have in common, or for a subtask that the user requested."""
        plan = step.plan
        children = ChildSessions(
            self._subagents,
            parent_id=self._session.id,
            model={"modelID": answer["modelID"], "providerID": answer["providerID"]},
            rules=plan.rules,
            session_rules=plan_session_rules(step.agent, self._session),
            planning=plan.guard is not None,
            user_requested=user_requested,
        )
        writer = self._environment.writer
        return StepContext(
            environment=self._environment,
            session_id=self._session.id,
            message_id=answer["id"],
            agent=step.agent,
            rules=(*plan.rules, USER_REQUESTED) if user_requested else plan.rules,
            files=self._files,
            outputs=replace(plan.outputs, delegate=True) if user_requested else plan.outputs,
            invalid=self.registry.tools["invalid"],
            subtasks=children,
            modes=SessionModes(writer, self._config, self._plan_file, step.prompt, self._enqueue),
            skills=self._skills,
            known_instructions=self._known_instructions,
            guard=plan.guard,
            absent=plan.absent,
        )


class Plan(NamedTuple):
    """What all steps of a prompt have in common."""

    agent: Agent
    model: Model
    rules: tuple[Rule, ...]
    """The agent's, then the session's."""
    guard: PlanModeGuard | None
    outputs: Outputs
    schema: dict[str, Any] | None
    tools: tuple[Tool, ...]
    absent: frozenset[str]
    """Tools that the prompt disables."""
    specs: tuple[ToolSpec, ...]
    system: System
    max_output_tokens: int
    options: Document


class Step:
    """One step, ready to run."""

    def __init__(self, planner: Planner, plan: Plan, provider: Provider | None, prompt: Document, number: int) -> None:
        """A step without a ``provider`` can be inspected, but not run."""
        self.agent = plan.agent
        self.model = plan.model
        self.provider = provider
        self.prompt = prompt
        self.is_last = plan.agent.steps is not None and number >= plan.agent.steps
        """Whether the agent has no more steps after this one: its tools are disabled."""
        self.structured = StructuredOutput(plan.schema) if plan.schema is not None else None
        self.tools: dict[str, Tool] = {} if self.is_last else {tool.id: tool for tool in plan.tools}
        if self.structured is not None:
            self.tools[self.structured.id] = self.structured
        self._planner = planner
        self.plan = plan

    def request(self, replacement: Sequence[StoredMessage] | None = None) -> Request:
        """Return the request, of ``replacement`` messages if a plugin gave others. The same history gives the same
        request, byte for byte."""
        model, agent = self.model, self.agent
        turns = self._planner.history.turns(model, replacement)
        if "recall" in self.tools:
            turns = add_recall_hint(turns)
        # Added to this request only. No provider has to continue a message of its own.
        again = "structured_again" if self.structured else "go_on"
        note = "last_step" if self.is_last else again if isinstance(turns[-1], Assistant) else None
        notes = (User(content=(Text(text=prompt_text(note)),)),) if note is not None else ()
        sampling = options.sampling(model)
        variant = model.variants.get(self.prompt.get("variant") or "", {})
        temperature = sampling.temperature if agent.temperature is None else agent.temperature
        return Request(
            model=model,
            messages=mark_cache_points((self.plan.system, *turns, *notes), model),
            # In the last step the tools are disabled by the choice, not left out: providers reject a history with calls
            # where there are no tools, and their cache begins with the tools.
            tools=self.plan.specs,
            tool_choice="required" if self.structured else "none" if self.is_last else "auto",
            max_output_tokens=self.plan.max_output_tokens,
            temperature=temperature if model.capabilities.temperature else None,
            top_p=sampling.top_p if agent.top_p is None else agent.top_p,
            top_k=sampling.top_k,
            options=merged(self.plan.options, model.options, agent.options, variant),
            headers=model.headers,
        )
