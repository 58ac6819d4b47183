"""Steps before they begin: the agent, the model, the tools on offer, and the request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..config import evaluate, skills, system_instructions
from ..config.source import CachedFetch
from ..models import options
from ..models.request import Assistant, Request, Text, ToolSpec, User
from ..permissions import disabled
from ..records import as_object, merged, object_at
from ..tools.custom import load_installed_tools
from ..tools.structured_output import StructuredOutput
from ..tools.tool_registry import Features, Registry, description_values, to_spec
from .model_choice import subagents
from .plan_mode import SessionModes, plan_file, rules_in_session
from .projection import mark_cache_points
from .prompts import prompt_text, system_prompt
from .subtasks import USER_REQUESTED, ChildSessions
from .tool_context import StepContext, add_recall_hint, has_hidden_messages, output_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..config import Agent, Config
    from ..models.model import Model
    from ..models.request import Provider
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
        return Registry(self._features, self._custom, (*self._installed, *remote))


class Steps:
    """Makes the steps of one run. What stays the same while a run lasts is determined once."""

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
        self._setup: PromptSetup | None = None
        self._skills = tuple(skills(self._config).values())
        fetch = CachedFetch(self._config.folders.cache, only_cached=True)
        self.instructions = system_instructions(self._config, fetch)
        """Those of the system prompt."""
        self._known_instructions = {instruction.source for instruction in self.instructions}
        # Instruction files that earlier reads brought along, and that the model still sees.
        for message in history.messages:
            for part in message.parts:
                if part.get("tool") == "read" and not object_at(part, "state", "time").get("compacted"):
                    loaded = object_at(part, "state", "metadata").get("loaded") or ()
                    self._known_instructions.update(os.path.abspath(str(path)) for path in loaded)

    async def next(self, prompt: Document, number: int) -> Step:
        """Return the next step of a prompt. Raises if its agent, model or key does not exist.

        What the steps of a prompt have in common is determined before the first one, which waits for the MCP servers:
        the beginning of a request must not change. The rules of the session are those that it has then: a subagent that
        still runs may be continued for a session that plans.
        """
        if self._setup is None or self._setup.prompt is not prompt:
            self._session = await self._environment.writer.get(self._session.id)
            registry = self._tools.registry(await self._tools.mcp.tools())
            agent = self._agents.get(prompt.get("agent"))
            self._setup = self._set_up(prompt, agent, self._models.of_prompt(prompt), registry)
        return Step(self._setup, self.history, self._models.connections.provider(self._setup.model), number)

    def preview_request(self, prompt: Document, number: int, agent: Agent, model: Model) -> Request:
        """Return what a step would send. The model need not be available, and MCP servers are not waited for."""
        setup = self._set_up(prompt, agent, model, self._tools.registry())
        return Step(setup, self.history, None, number).request()

    def _set_up(self, prompt: Document, agent: Agent, model: Model, registry: Registry) -> PromptSetup:
        agent_rules, session_rules, guard = rules_in_session(agent, self._session, self._config, self._plan_file)
        rules = (*agent_rules, *session_rules)
        output_format = object_at(prompt, "format")
        schema = as_object(output_format.get("schema")) if output_format.get("type") == "json_schema" else None
        # Not offered: tools that a rule denies entirely or that the prompt disables, and recall with nothing to recall.
        denied = disabled(registry.tools, rules)
        absent = frozenset(name for name, enabled in object_at(prompt, "tools").items() if enabled is False)
        hidden = {*denied, *absent}
        if not has_hidden_messages(self.history.messages):
            hidden.add("recall")
        tools = registry.offered(model.wire_id, model.provider_id, hidden=hidden)
        if schema is not None:
            tools.append(StructuredOutput(schema))
        outputs = output_limits(self._config, delegate="task" not in denied)
        described = description_values(
            self._location.directory,
            agents=subagents(self._agents.by_name.values(), rules),
            skills=[skill for skill in self._skills if evaluate("skill", skill.name, rules) != "deny"],
            max_lines=outputs.max_lines,
            max_bytes=outputs.max_bytes,
        )
        specs = tuple(to_spec(tool, described) for tool in tools)
        return PromptSetup(
            prompt=prompt,
            agent=agent,
            model=model,
            rules=rules,
            session_rules=session_rules,
            guard=guard,
            outputs=outputs,
            schema=schema,
            registry=registry,
            tools=tools,
            absent=absent,
            request=self._common_request(prompt, agent, model, specs, structured=schema is not None),
        )

    def _common_request(
        self, prompt: Document, agent: Agent, model: Model, specs: tuple[ToolSpec, ...], *, structured: bool
    ) -> Request:
        """Return what the requests of a prompt have in common: all but the conversation."""
        system = system_prompt(
            agent,
            model,
            self._location,
            started=self._session.time.created,
            instructions=[instruction.text for instruction in self.instructions],
            extra=prompt.get("system"),
            structured=structured,
        )
        sampling = options.sampling(model)
        temperature = sampling.temperature if agent.temperature is None else agent.temperature
        variant = model.variants.get(prompt.get("variant") or "", {})
        return Request(
            model=model,
            messages=(system,),
            tools=specs,
            max_output_tokens=self._models.max_output_tokens(model),
            temperature=temperature if model.capabilities.temperature else None,
            top_p=sampling.top_p if agent.top_p is None else agent.top_p,
            top_k=sampling.top_k,
            options=merged(self._models.call_options(model, self._session.id), model.options, agent.options, variant),
            headers=model.headers,
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
        setup = step.setup
        children = ChildSessions(
            self._subagents,
            parent_id=self._session.id,
            model={"modelID": answer["modelID"], "providerID": answer["providerID"]},
            rules=setup.rules,
            session_rules=setup.session_rules,
            planning=setup.guard is not None,
            user_requested=user_requested,
        )
        writer = self._environment.writer
        return StepContext(
            environment=self._environment,
            session_id=self._session.id,
            message_id=answer["id"],
            agent=step.agent,
            rules=(*setup.rules, USER_REQUESTED) if user_requested else setup.rules,
            files=self._files,
            outputs=replace(setup.outputs, delegate=True) if user_requested else setup.outputs,
            invalid=setup.registry.tools["invalid"],
            subtasks=children,
            modes=SessionModes(writer, self._config, self._plan_file, step.prompt, self._enqueue),
            skills=self._skills,
            known_instructions=self._known_instructions,
            guard=setup.guard,
            absent=setup.absent,
        )


class PromptSetup(NamedTuple):
    """What all steps of a prompt have in common."""

    prompt: Document
    agent: Agent
    model: Model
    rules: tuple[Rule, ...]
    """The agent's, then the session's."""
    session_rules: tuple[Rule, ...]
    guard: PlanModeGuard | None
    outputs: Outputs
    schema: dict[str, Any] | None
    registry: Registry
    """All tools; ``tools`` are those on offer."""
    tools: Sequence[Tool]
    absent: frozenset[str]
    """Tools that the prompt disables."""
    request: Request
    """What the requests have in common: all but the conversation."""


class Step:
    """One step, ready to run."""

    def __init__(self, setup: PromptSetup, history: History, provider: Provider | None, number: int) -> None:
        """A step without a ``provider`` can be inspected, but not run."""
        self.setup = setup
        self.agent = setup.agent
        self.model = setup.model
        self.provider = provider
        self.prompt = setup.prompt
        self.is_last = setup.agent.steps is not None and number >= setup.agent.steps
        """Whether the agent has no more steps after this one: its tools are disabled."""
        self.structured = StructuredOutput(setup.schema) if setup.schema is not None else None
        self.tools: dict[str, Tool] = {} if self.is_last else {tool.id: tool for tool in setup.tools}
        if self.structured is not None:
            self.tools[self.structured.id] = self.structured
        self._history = history

    def request(self, replacement: Sequence[StoredMessage] | None = None) -> Request:
        """Return the request, of ``replacement`` messages if a plugin gave others. The same history gives the same
        request, byte for byte."""
        conversation = self._history.conversation(self.model, replacement)
        if "recall" in self.tools:
            conversation = add_recall_hint(conversation)
        # Added to this request only. No provider has to continue a message of its own.
        again = "structured_again" if self.structured else "go_on"
        note = "last_step" if self.is_last else again if isinstance(conversation[-1], Assistant) else None
        notes = (User(content=(Text(text=prompt_text(note)),)),) if note is not None else ()
        common = self.setup.request
        return replace(
            common,
            messages=mark_cache_points((*common.messages, *conversation, *notes), self.model),
            # In the last step the tools are disabled by the choice, not left out: providers reject a history with calls
            # where there are no tools, and their cache begins with the tools.
            tool_choice="required" if self.structured else "none" if self.is_last else "auto",
        )
