"""All sessions as a table in memory, with their figures: for lists that are filtered and sorted many times.

The rows come from the usage layer of the derived cache, so that they agree with the statistics. A change of a session
costs the reading of one row.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..storage.families import children_by_parent, descendants
from . import discovery
from .library import Library
from .stats.forks import may_be_fork
from .stats.session_usage import SessionInfo, UsageTotals
from .stats.usage_layer import UsageLayer, UsageTable, damage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from sqlite3 import Connection

    from ..records import Project
    from ..storage.protocol import Damage, Store
    from .cache.derived_cache import DerivedCache, Progress
    from .discovery import ProjectFilter

Sort = Literal["updated", "created", "cost", "messages", "title"]
_ROWS = "SELECT session, generation, info, buckets FROM usage WHERE session IN (SELECT value FROM json_each(?))"
_COPIES = "SELECT c.session, s.store_id FROM copy c JOIN source s ON s.id = c.source WHERE s.layer = 'usage'"


class SessionRow(NamedTuple):
    """A session and its figures."""

    info: SessionInfo
    is_fork: bool
    """Whether it may be a fork; ``info.fork`` names the original only in sessions of 2.x."""
    messages: int
    cost: int
    """What it spent itself, in units of :mod:`opensesh.history.stats.money`; without what a fork copied."""
    inclusive: int
    """The cost with that of its subagents."""
    models: tuple[str, ...]
    """As ``provider/model``, the last used first."""
    agents: tuple[str, ...]
    stores: tuple[str, ...]
    """The ids of the stores that have a copy."""


class RowFilter(NamedTuple):
    """Criteria for rows. Empty fields have no effect."""

    project: ProjectFilter | None = None
    text: str = ""
    """Part of the title, or of the id."""
    since: int = 0
    """Updated at this time or later, in milliseconds."""
    until: int = 0
    model: str = ""
    """Part of ``provider/model``."""
    agent: str = ""
    ids: AbstractSet[str] | None = None
    children: bool = False
    """Include the sessions of subagents."""
    archived: bool = False
    """Include archived sessions."""

    def conditions(self) -> Iterator[Callable[[SessionRow], bool]]:
        """Yield what a selected row fulfils, apart from ``children`` and ``archived``."""
        if self.since:
            yield lambda row: row.info.updated >= self.since
        if self.until:
            yield lambda row: row.info.updated < self.until
        if (ids := self.ids) is not None:
            yield lambda row: row.info.id in ids
        if text := self.text:
            yield lambda row: text in row.info.title.casefold() or text in row.info.id.casefold()
        if self.model:
            yield lambda row: any(self.model in model.casefold() for model in row.models)
        if self.agent:
            yield lambda row: self.agent in row.agents
        if (project := self.project) is not None:
            yield lambda row: project.matches(row.info.project, row.info.directory, row.info.title)


class SelectedRows(NamedTuple):
    """The rows that a filter selects, sorted, and how many others it would."""

    rows: list[SessionRow]
    children: int
    """Excluded as sessions of subagents."""
    archived: int
    """Excluded as archived."""


@dataclass(frozen=True, eq=False)
class SessionTable:
    """One state of the table. What requests ask for again and again is computed once for each state."""

    rows: Sequence[SessionRow] = ()
    """The rows, those with the latest activity first."""
    projects: Mapping[str, Project] = field(default_factory=dict[str, "Project"])
    damage: Sequence[Damage] = ()
    version: int = 0
    """Another number than that of all earlier states."""

    @cached_property
    def by_id(self) -> dict[str, SessionRow]:
        """The rows by session."""
        return {row.info.id: row for row in self.rows}

    @cached_property
    def project_names(self) -> dict[str, int]:
        """The names of all projects that have sessions and the number of those, the latest used first."""
        folders = Counter((row.info.project, row.info.directory) for row in self.rows)
        names: Counter[str] = Counter()
        for (project, directory), count in folders.items():
            names[self.project_name(project, directory)] += count
        return names

    @cached_property
    def models(self) -> list[str]:
        """All models, as ``provider/model``, the most frequent first."""
        counts = Counter(model for row in self.rows for model in row.models)
        return [name for name, _ in counts.most_common()]

    @cached_property
    def agents(self) -> list[str]:
        """All agents, the most frequent first."""
        counts = Counter(agent for row in self.rows for agent in row.agents)
        return [name for name, _ in counts.most_common()]

    @cached_property
    def stores(self) -> set[str]:
        """The ids of all stores that have sessions."""
        return {store for row in self.rows for store in row.stores}

    def select(self, row_filter: RowFilter, sort: Sort = "updated") -> SelectedRows:
        """Return the rows that a filter selects."""
        row_filter = row_filter._replace(text=row_filter.text.casefold(), model=row_filter.model.casefold())
        matching: Iterable[SessionRow] = self.rows
        for condition in row_filter.conditions():
            matching = filter(condition, matching)
        selected: list[SessionRow] = []
        children = archived = 0
        for row in matching:
            if row.info.parent and not row_filter.children:
                children += 1
            elif row.info.archived and not row_filter.archived:
                archived += 1
            else:
                selected.append(row)
        if sort != "updated":
            selected.sort(key=sort_key(sort))
        return SelectedRows(selected, children, archived)

    def project_name(self, project_id: str, directory: str) -> str:
        """Return the name of a session's project; for a session outside of any, that of its folder."""
        return discovery.session_project_name(self.projects.get(project_id), project_id, directory)

    def resolve_project(self, name: str) -> ProjectFilter:
        """Return a filter for a project; see :func:`opensesh.history.discovery.resolve_project`."""
        sessions = ((row.info.directory, row.info.title) for row in self.rows)
        return discovery.resolve_project(name, [*self.projects.values()], sessions)


def sort_key(sort: Sort) -> Callable[[SessionRow], tuple[int | str, str]]:
    """Return the key that sorts rows: the latest, most expensive or largest first, or by title."""
    match sort:
        case "updated":
            return lambda row: (-row.info.updated, row.info.id)
        case "created":
            return lambda row: (-row.info.created, row.info.id)
        case "cost":
            return lambda row: (-row.inclusive, row.info.id)
        case "messages":
            return lambda row: (-row.messages, row.info.id)
        case "title":
            return lambda row: (row.info.title.casefold(), row.info.id)


class _Figures(NamedTuple):
    """The figures of a session that its own row in the cache contains."""

    generation: int
    info: SessionInfo
    first: int
    messages: int
    cost: int
    models: tuple[str, ...]
    agents: tuple[str, ...]


class SessionTableLoader:
    """Keeps a table up to date. For one thread at a time."""

    def __init__(self, cache: DerivedCache, store: Store) -> None:
        self._cache = cache
        self._store = store
        self._layer = UsageLayer()
        self._figures: dict[str, _Figures] = {}
        self._generation: object = None
        self.table = SessionTable()

    def refresh(self, progress: Progress | None = None) -> None:
        """Bring the cache and :attr:`table` up to date."""
        self._cache.refresh(self._layer, progress=progress)
        sql = "SELECT value FROM meta WHERE name = 'generation usage'"
        generation = self._cache.query(self._layer, lambda db: db.execute(sql).fetchone())
        if generation == self._generation:
            return
        stores = self._cache.query(self._layer, self._load)
        table, known = self._table(stores), self.table
        # What changed just now is read again, and is mostly the same.
        if (table.rows, table.projects, table.damage) != (known.rows, known.projects, known.damage):
            self.table = table
        self._generation = generation

    def _load(self, db: Connection) -> dict[str, list[str]]:
        """Read the rows that have changed; return the stores of each session."""
        versions: dict[str, int] = dict(db.execute("SELECT session, generation FROM usage WHERE info IS NOT NULL"))
        for session in self._figures.keys() - versions.keys():
            del self._figures[session]
        changed = [
            session
            for session, version in versions.items()
            if session not in self._figures or self._figures[session].generation != version
        ]
        for session, version, info, buckets in db.execute(_ROWS, [json.dumps(changed)]):
            self._figures[session] = _figures(version, info, json.loads(buckets))
        stores: dict[str, list[str]] = {}
        for session, store_id in db.execute(_COPIES):
            stores.setdefault(session, []).append(store_id)
        return stores

    def _table(self, stores: dict[str, list[str]]) -> SessionTable:
        costs = {session: figures.cost for session, figures in self._figures.items()}
        forks = {one.info.id for one in self._figures.values() if may_be_fork(one.info, one.first)}
        if forks:
            usage = UsageTable(self._cache, self._layer)
            for session, copies in usage.copied.items():
                costs[session] = sum(entry.totals.cost for entry in usage.entries(session) if entry.id not in copies)
        children = children_by_parent((one.info.id, one.info.parent) for one in self._figures.values())
        rows = [
            SessionRow(
                one.info,
                one.info.id in forks,
                one.messages,
                costs[one.info.id],
                costs[one.info.id] + sum(costs.get(name, 0) for name in descendants(one.info.id, children)),
                one.models,
                one.agents,
                tuple(stores.get(one.info.id, ())),
            )
            for one in self._figures.values()
        ]
        rows.sort(key=sort_key("updated"))
        library = Library(store=self._store)
        projects = {project.id: project for project in library.projects}
        damage = damage_of(self._cache, self._layer) + library.damage
        return SessionTable(rows, projects, damage, self.table.version + 1)


def _figures(version: int, info: str, buckets: Sequence[tuple[int, int, str, str, str, list[int]]]) -> _Figures:
    messages = cost = 0
    session = SessionInfo(*json.loads(info))
    first = buckets[0][0] if buckets else session.created
    models: dict[str, None] = {}
    agents: dict[str, None] = {}
    for _, _, provider, model, agent, totals in buckets:
        sums = UsageTotals(*totals)
        messages += sums.messages
        cost += sums.cost
        # The last used one is to be the last: it is removed and added again.
        if model:
            models.pop(f"{provider}/{model}", None)
            models[f"{provider}/{model}"] = None
        if agent:
            agents.pop(agent, None)
            agents[agent] = None
    last_used = (tuple(reversed(models)), tuple(reversed(agents)))
    return _Figures(version, session, first, messages, cost, *last_used)


def store_label(store_id: str) -> str:
    """Return a short name for a store: ``tree``, or the name of its file."""
    return os.path.basename(store_id) if os.path.isfile(store_id) else "tree"
