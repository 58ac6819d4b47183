"""The services that an engine is made of.

:class:`Components` builds the services of one directory and hands each of them what it needs. Only
:class:`~opensesh.engine.engine.Engine` knows all of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..bus import Bus
from ..config import Config, load_and_fetch
from ..errors import OpenseshError
from ..models.auth import Keyring
from ..models.catalogue import Catalogue
from ..models.connect import Connections
from ..models.provider_trust import untrusted_reason
from ..permissions import Permissions
from ..plugins import hooks
from ..plugins.calling import apply_config_hooks, plugin_tools
from ..plugins.hook_types import Host
from ..plugins.loader import load_plugins
from ..storage.leases import leases_of
from ..storage.protocol import conventions_of
from ..tools.mcp.servers import McpServers
from ..workspace.originals import Originals
from ..workspace.repository import data_folder
from ..workspace.revert import Reverts
from ..workspace.snapshots import Snapshots
from .budget import Budgets, CostReport, MeteredConnections, budget_from_environment
from .cancellation import run_in_thread_uncancellable
from .compaction import Compactions, Compactor
from .inspector import Inspector
from .loop import Loop
from .model_choice import Agents, Models
from .plugin_hooks import PluginHooks, ProviderLogins
from .prompt import PromptComposer
from .runs import Runs, Statuses
from .session_writer import SessionWriter
from .settings import EngineOptions, Settings
from .step import Steps, ToolSources, enabled_features
from .subtasks import SubagentServices
from .titles import TitleWriter
from .user_commands import UserCommands
from .user_requests import Questions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from ..records import Session
    from ..sessions import Sessions
    from ..tools.filetimes import FileTimes
    from .inspector import Inspection
    from .loop import Outcome
    from .prompt import Prompt
    from .session_history import History

    RunPrompt = Callable[[str, Prompt], Awaitable[Outcome]]


class Environment(NamedTuple):
    """The services that the runs of all sessions use, down to their tool calls."""

    writer: SessionWriter
    config: Config
    settings: Settings
    agents: Agents
    models: Models
    hooks: PluginHooks
    permissions: Permissions
    questions: Questions
    snapshots: Snapshots
    originals: Originals


class Components:
    """The services of one directory."""

    def __init__(
        self,
        sessions: Sessions,
        bus: Bus,
        run: RunPrompt,
        options: EngineOptions,
    ) -> None:
        """Reads the configuration and loads plugins, so that it is called in a thread. ``run`` runs a prompt in a child
        session."""
        self.settings = settings = options.settings
        self.writer = writer = SessionWriter(sessions, bus)
        self.location = location = sessions.location
        publish = writer.publish

        config = options.config
        if not isinstance(config, Config):
            config = load_and_fetch(location.directory, location.sandbox, config)
        host = Host(directory=location.directory, worktree=location.sandbox, project_id=location.id)
        loaded = load_plugins(config, host, options.plugins, discover=settings.find_plugins, publish=publish)
        self.config = config = apply_config_hooks(loaded, config)

        budget = settings.budget or budget_from_environment(config.flags.environ)
        catalogue, keyring = Catalogue(config.document), Keyring(config.document)
        connected = MeteredConnections if budget.is_set else Connections
        connections = connected(
            catalogue,
            keyring,
            scripts=options.scripts,
            untrusted_reason=partial(untrusted_reason, config),
        )
        self.agents = Agents(config)
        self.models = Models(config, catalogue, keyring, connections)
        self.hooks = PluginHooks(loaded, self.agents, self.models, config.variables)
        self.provider_logins = ProviderLogins(loaded)
        self.costs = CostReport(sessions, self.models)
        self.budgets = Budgets(budget, self.costs)

        judge = self.hooks.permission if loaded.has_hook(hooks.permission_ask) else None
        self.permissions = Permissions(publish, judge=judge)
        self.questions = Questions(publish, before_start=settings.opencode_events)
        self.statuses = Statuses(publish)
        enabled = config.settings.snapshot is not False
        self.snapshots = Snapshots(
            location,
            data=data_folder(sessions.store),
            enabled=enabled,
            by_worktree=conventions_of(sessions.store).snapshots_by_worktree,
        )
        self.originals = Originals(sessions.store)
        self._reverts = Reverts(sessions, self.snapshots)

        self.mcp = McpServers(config, publish)
        self._environment = environment = Environment(
            writer=writer,
            config=config,
            settings=settings,
            agents=self.agents,
            models=self.models,
            hooks=self.hooks,
            permissions=self.permissions,
            questions=self.questions,
            snapshots=self.snapshots,
            originals=self.originals,
        )
        features = enabled_features(config, interactive=settings.interactive)
        self.tool_sources = ToolSources(features, (*plugin_tools(loaded), *options.tools), self.mcp)
        subagents = SubagentServices(environment, self.budgets, run)
        self._new_steps = partial(Steps, environment, self.tool_sources, subagents)
        self.compactor = Compactor(writer, config, self.agents, self.models, self.hooks, settings, self.snapshots.track)
        self.commands = UserCommands(environment, self.mcp)
        self.inspector = Inspector(sessions, config, self.agents, self.models, self._new_steps)

    def new_runs(self, group: asyncio.TaskGroup) -> Runs:
        """Return the runs of an engine, as tasks of ``group``."""
        titles = TitleWriter(
            self.writer, self.agents, self.models, self.hooks, provisional=not self.settings.opencode_events
        )
        return Runs(group, self._environment, self._reverts, self.statuses, titles, self.budgets, self._new_loop)

    def leased_reverts(self) -> Reverts:
        """Return reverts that take a session's lease, for callers that do not run the session."""
        sessions = self.writer.sessions
        return Reverts(
            sessions,
            self.snapshots,
            publish=self.writer.publish,
            leases=leases_of(sessions.store),
            keeps_totals=self.settings.opencode_events,
        )

    async def aclose(self) -> None:
        """Reject the requests that wait for the user, close connections, and wait for a snapshot in progress."""
        self.permissions.close()
        try:
            await self.models.connections.aclose()
        finally:
            await run_in_thread_uncancellable(self.snapshots.close)

    def _new_loop(self, session: Session, history: History, files: FileTimes) -> tuple[Loop, PromptComposer]:
        loop = Loop(
            session,
            history,
            self._environment,
            new_steps=partial(self._new_steps, session, history, files),
            compactions=Compactions(self.compactor, history),
            set_status=partial(self.statuses.set, session.id),
        )
        return loop, PromptComposer(session, history, files, self._environment, self.mcp)


def inspect_session(sessions: Sessions, session: Session, step: str | None = None) -> Inspection:
    """Inspect a request of a session without opening an engine, so that its directory need not exist. See
    :meth:`Inspector.inspect`."""

    async def cannot_run(session_id: str, prompt: Prompt) -> Outcome:
        raise OpenseshError(f"no engine is open to run {session_id}")

    return Components(sessions, Bus(), cannot_run, EngineOptions()).inspector.inspect(session, step)
