"""What a run needs of the house, in one place: the project, its configuration, its models, its tools, its store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from ..config import agents, default_agent
from ..errors import NotFoundError, OpenseshError
from ..models.connect import Connections
from ..models.model import SCRIPTED_PROVIDER
from ..permissions import Permissions
from ..plugins import hooks as plugin_hooks
from ..plugins.calling import apply_config_hooks, plugin_tools
from ..plugins.hook_types import Host
from ..records import as_object
from ..tools.mcp.servers import McpServers
from ..tools.truncation import MAX_BYTES, MAX_LINES, Outputs
from .answering import QuestionCallback
from .budget import Budget, PaidConnections, from_environment
from .cancellation import run_in_thread_uncancellable
from .plugin_hooks import Hooks
from .questions import Questions
from .repetition import LoopLimits
from .retry import RetryPolicy
from .status import Statuses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..bus import Bus
    from ..config import Agent, Config
    from ..events import Event
    from ..models.model import Model
    from ..models.request import Provider
    from ..plugins import Pluggable
    from ..project import ProjectLocation
    from ..records import Document, ModelRef, Session
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage
    from ..tools.custom import InstalledTools
    from ..tools.tool import Tool
    from .loop import Outcome
    from .prompt import Prompt

    RunChild = Callable[[str, Prompt], Awaitable[Outcome]]


class Settings(Struct, frozen=True, kw_only=True):
    """How a Python caller may bend the engine; the configuration says the rest."""

    retry: RetryPolicy = RetryPolicy()
    repetition: LoopLimits = LoopLimits()
    owner: str = "opensesh"
    """What the lease says of who runs a session."""
    interactive: bool = True
    """Whether someone is there to answer questions."""
    question: QuestionCallback | None = None
    """Who answers them; without it they wait until someone calls ``questions.reply``."""
    budget: Budget | None = None
    """What may be spent; without it, what the environment says (``OPENSESH_BUDGET``)."""
    task_seconds: float | None = 3600.0
    """How long a subagent may take over a piece of work, not counting the time that someone is being asked something.
    It can be taken up again."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    """How to wait before a model is asked again, given seconds."""
    find_plugins: bool = True
    """Whether plugins are looked for, besides those that are handed in."""


class Runtime:
    """Everything that is the same for all sessions of one directory."""

    def __init__(
        self,
        sessions: Sessions,
        bus: Bus,
        *,
        settings: Settings | None = None,
        config: Config | None = None,
        scripts: Mapping[str, Provider] | None = None,
        tools: tuple[Tool, ...] = (),
        plugins: Sequence[Pluggable] = (),
    ) -> None:
        from ..config import load
        from ..models.auth import Keyring
        from ..models.catalogue import Catalogue
        from ..plugins.loader import load_plugins
        from ..workspace import Originals, Snapshots, data_folder

        self.sessions = sessions
        self.place: ProjectLocation = sessions.location
        self.bus = bus
        self.settings = settings or Settings()
        config = config or load(self.place.directory, self.place.sandbox)
        host = Host(directory=self.place.directory, worktree=self.place.sandbox, project_id=self.place.id)
        loaded = load_plugins(config, host, plugins, discover=self.settings.find_plugins, publish=self.publish)
        self.hooks = Hooks(loaded, self)
        self.config = apply_config_hooks(loaded, config)
        self.agents: dict[str, Agent] = agents(self.config)
        self.catalogue = Catalogue(self.config.document)
        self.keyring = Keyring(self.config.document)
        self.budget = self.settings.budget or from_environment(self.config.flags.environ)
        connected = PaidConnections if self.budget.is_set else Connections
        self.connections = connected(self.catalogue, self.keyring, scripts=scripts, untrusted_reason=self._doubt)
        judged = loaded.has_hook(plugin_hooks.permission_ask)
        self.permissions = Permissions(self.publish, judge=self.hooks.judge if judged else None)
        self.questions = Questions(self.publish)
        self.statuses = Statuses(self.publish)
        self.snapshots = Snapshots(
            self.place, data=data_folder(sessions.store), enabled=self.config.settings.snapshot is not False
        )
        self.originals = Originals(sessions.store)
        self.custom_tools = (*plugin_tools(loaded), *tools)
        self.mcp = McpServers(self.config, self.publish)
        self.run_child: RunChild = _nobody

    def _doubt(self, model: Model) -> str:
        if model.provider_id not in (SCRIPTED_PROVIDER, *self.config.settings.provider):
            return ""
        from ..models.provider_trust import untrusted_reason

        return untrusted_reason(self.config, model.provider_id, model.id)

    @cached_property
    def installed(self) -> InstalledTools:
        """The tools that installed packages bring along; loaded when a session first runs."""
        from ..tools.custom import load_installed_tools

        return load_installed_tools()

    def publish(self, event: Event) -> None:
        """Tell everyone."""
        self.bus.publish(event, directory=self.place.directory)

    def outputs(self, *, delegate: bool = False) -> Outputs:
        """Where long outputs are kept, and how long is too long here; ``delegate`` if another agent may read them."""
        limits = self.config.settings.tool_output
        return Outputs(
            directory=os.path.dirname(self.config.folders.tool_output),
            max_lines=limits.max_lines or MAX_LINES,
            max_bytes=limits.max_bytes or MAX_BYTES,
            delegate=delegate,
        )

    @property
    def is_asking(self) -> bool:
        """Whether someone is being asked something, and has not answered."""
        return bool(self.permissions.pending or self.questions.pending)

    async def session(self, session_id: str) -> Session:
        """The session's record."""
        return await asyncio.to_thread(self.sessions.get, session_id)

    async def edit(self, session_id: str, edit: Callable[[Document], None], *, touch: bool = True) -> Session:
        """Change a session's record."""
        return await asyncio.to_thread(self.sessions.update, session_id, edit, touch=touch)

    async def add_message(self, message: StoredMessage) -> StoredMessage:
        """Store a new message with its parts; the same message."""
        await asyncio.to_thread(self.sessions.add_message, message)
        return message

    def agent(self, name: str | None) -> Agent:
        """An agent by name, or the default one."""
        if name is None:
            return default_agent(self.config, self.agents)
        if name not in self.agents:
            shown = ", ".join(each.name for each in self.agents.values() if not each.hidden)
            raise NotFoundError(f"there is no agent {name!r}; there are: {shown}", agent=name)
        return self.agents[name]

    def default_model(self) -> Model:
        """The model for who names none."""
        from ..models import choice

        return choice.default_model(self.catalogue, self.keyring, self.config.document, choice.recent_models())

    def small_model(self, agent: Agent, main: Model) -> Model:
        """A quick, cheap model for side work of the main one: the one that the configuration names, or of the same
        provider; the main one itself if there is none."""
        if agent.model is not None:
            return self.model(agent.model.provider_id, agent.model.model_id)
        from ..models import choice

        named = self.config.settings.small_model
        found = choice.small_model(self.catalogue, self.keyring, self.config.document, main.provider_id)
        # What is said to one provider is nothing for another, unless the user wants it so.
        return found if found is not None and (named or found.provider_id == main.provider_id) else main

    def model(self, provider_id: str, model_id: str) -> Model:
        """A model by name."""
        return self.catalogue.model(provider_id, model_id)

    def model_of(self, prompt: Document) -> Model:
        """The model that a prompt asks for."""
        model = as_object(prompt.get("model")) or {}
        return self.model(str(model.get("providerID", "")), str(model.get("modelID", "")))

    def find_model(self, name: str) -> Model:
        """``provider/model``."""
        provider, _, model = name.partition("/")
        return self.model(provider, model)

    def model_named(self, ref: ModelRef) -> Model:
        """The model a record names."""
        return self.model(ref.provider_id, ref.model_id)

    async def aclose(self) -> None:
        """Close connections, and wait for a snapshot under way; whoever still waits to be allowed something is
        refused."""
        self.permissions.close()
        try:
            await self.connections.aclose()
        finally:
            await run_in_thread_uncancellable(self.snapshots.close)


async def _nobody(session_id: str, prompt: Prompt) -> Outcome:
    raise OpenseshError(f"nobody runs sessions here, so {session_id} cannot be run")
