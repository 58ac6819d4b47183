"""The library: queries over the sessions of all stores at a place, each session once."""

from __future__ import annotations

import heapq
import os
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import NotFoundError, RecordError
from ..records import Document, Project, Session, as_amount, as_object, order
from ..storage import families, keys, open_store, unfinished
from ..storage.keys import GLOBAL
from ..storage.protocol import CompositeStore, Damage, Key, SessionQueries, Store, read_or_none
from ..storage.queries import SessionQuery
from ..storage.record_ids import project_at, session_at, views_of
from . import discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cache.derived_cache import DerivedCache
    from .discovery import ProjectFilter, ProjectGroup
    from .search.text_search import Query, Results
    from .stats.counted_calls import CountedCalls
    from .transcript import Transcript, TranscriptOptions


class SessionFilter(NamedTuple):
    """Criteria for sessions. Empty fields have no effect."""

    project: ProjectFilter | None = None
    since: int = 0
    """Updated at this time or later, in milliseconds since 1970."""
    until: int = 0
    """Updated before this time."""
    children: bool = False
    """Include subagents' sessions."""
    archived: bool = False
    """Include archived sessions."""

    def matches(self, session: Session) -> bool:
        """Whether a session is selected."""
        return self._is_shown(session) and (
            self.project is None or self.project.matches(session.project_id, session.directory, session.title)
        )

    def possibly_matches(self, session: Session) -> bool:
        """Whether a session that is not selected may nevertheless belong to the project."""
        return self.project is not None and self._is_shown(session) and self.project.loosely_matches(session)

    def _is_shown(self, session: Session) -> bool:
        return (
            (self.children or session.parent_id is None)
            and (self.archived or not session.archived)
            and session.updated >= self.since
            and (not self.until or session.updated < self.until)
        )


class Overview(NamedTuple):
    """The newest selected sessions, and how many there are."""

    total: int
    sessions: list[Session]
    possible_matches: int
    """How many sessions that are not selected may belong to the project."""
    children: int
    """How many are excluded as sessions of subagents."""
    archived: int
    """How many are excluded as archived."""


class ProjectUse(NamedTuple):
    """A project, or a folder outside of any project, with its sessions."""

    group: ProjectGroup
    sessions: int
    latest: int | None
    """When one of them was last updated."""

    @property
    def last_used(self) -> int:
        """The time of the last update of one of its sessions; without sessions, of its record."""
        return self.latest or self.group.project.time.updated or self.group.project.time.created


class SessionTotals(NamedTuple):
    """Totals over the messages of a session."""

    messages: int
    prompts: int
    cost: Decimal
    """As stored, in US dollars; see :mod:`opensesh.history.stats.counted_calls`."""
    first: str
    """The id of the user's first message; empty if there is none."""
    last: str


class SessionEntry:
    """A session of the library. Its messages are read when they are first needed."""

    def __init__(self, library: Library, key: Key, record: Session) -> None:
        self._library = library
        self._key = key
        self.record = record
        """The record as stored."""
        self.id = record.id
        self.title = record.title
        self.directory = record.directory
        self.project_id = record.project_id
        self.parent_id = record.parent_id
        self.created = record.time.created
        """Milliseconds since 1970."""
        self.updated = record.updated
        self.archived = record.archived
        self.summary = record.summary
        """Lines added and deleted, and files changed."""

    def __repr__(self) -> str:
        return f"<SessionEntry {self.id} {self.title!r}>"

    @property
    def origin(self) -> str:
        """The location of the record: a file, or a row of a database."""
        return self._library.store.locate(self._key)

    @property
    def origins(self) -> list[str]:
        """The places of all stores that have a copy."""
        return [store.place for store in self._library.stores_with(self._key)]

    @cached_property
    def totals(self) -> SessionTotals:
        """Totals over its messages."""
        return self._library.totals(self.id)

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.totals.messages

    @property
    def cost(self) -> Decimal:
        """The stored cost of the session's own calls, removed ones included, without what a fork copied."""
        return self.totals.cost

    @cached_property
    def inclusive_cost(self) -> Decimal:
        """The cost of the session and all its subagents, as stored."""
        below = self._library.descendants(self.id)
        costs = (self._library.totals(name).cost for name in below)
        return sum(costs, self.cost)

    @cached_property
    def first_prompt(self) -> str:
        """The text of the first prompt."""
        return self._library.prompt(self.totals.first)

    @cached_property
    def last_prompt(self) -> str:
        """The text of the last prompt."""
        return self._library.prompt(self.totals.last)

    def children(self) -> Iterator[SessionEntry]:
        """Yield the sessions of its subagents, oldest first."""
        children = [(key, session) for key, session in self._library.records() if session.parent_id == self.id]
        for key, session in sorted(children, key=lambda pair: order.position(pair[1].document)):
            yield SessionEntry(self._library, key, session)

    def transcript(
        self, options: TranscriptOptions | None = None, *, children: bool = False, last: int = 0
    ) -> Transcript:
        """Return its transcript; see :mod:`opensesh.history.transcript`."""
        return self._library.transcript(self.record, options, children=children, last=last)


class Library:
    """The sessions of the stores at a place. It is synchronous and never writes to a store, except that it completes
    or undoes what a process that was killed had begun."""

    def __init__(self, place: str | os.PathLike[str] | None = None, *, store: Store | None = None) -> None:
        self._place = None if place is None else os.fspath(place)
        self._open_store = store
        self.damage: list[Damage] = []
        """Records that could not be read so far."""
        self._keys: dict[str, Key] = {}
        """Keys of sessions, by id."""

    @cached_property
    def store(self) -> Store:
        """All stores at the place, as one."""
        store = self._open_store or open_store(self._place, report=self.report)
        if unfinished.has_notes():
            from ..sessions.settling import settle  # takes long to load, and is hardly ever needed

            settle(store)
        return store

    @cached_property
    def cache(self) -> DerivedCache:
        """The derived cache for search and statistics. Accessing it neither creates nor refreshes it."""
        from .cache.derived_cache import DerivedCache, open_cache

        if unfinished.has_notes():
            _ = self.store  # which is settled when it is opened
        return DerivedCache(store=self._open_store) if self._open_store else open_cache(self._place)

    def report(self, damage: Damage) -> None:
        """Record that something could not be read, once."""
        if damage not in self.damage:
            self.damage.append(damage)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def sessions(
        self, project: str | None = None, *, session_filter: SessionFilter | None = None, limit: int = 0
    ) -> Iterator[SessionEntry]:
        """Yield sessions, newest first; without ``session_filter``, neither subagents' nor archived ones.

        ``project`` is part of a name, folder or remote, and need not be exact. A store with
        :class:`~opensesh.storage.protocol.SessionQueries` reads only the sessions that are returned. Of other stores
        all records are read, but only their keys are kept in memory.
        """
        session_filter = session_filter or SessionFilter()
        if project is not None:
            session_filter = session_filter._replace(project=self.resolve_project(project))
        if isinstance(self.store, SessionQueries) and session_filter.project is None:
            for key, record in self._query(self.store, session_filter, limit):
                yield SessionEntry(self, key, record)
            return
        selected = (
            (-session.updated, session.id, key) for key, session in self.records() if session_filter.matches(session)
        )
        for _, _, key in heapq.nsmallest(limit, selected) if limit else sorted(selected):
            try:
                yield SessionEntry(self, key, session_at(key, self.store.read(key)))
            except (NotFoundError, RecordError):
                continue  # removed or damaged since it was listed

    def descendants(self, session_id: str) -> list[str]:
        """Return the sessions of the subagents that a session started, and of theirs."""
        return families.descendants(session_id, self._children)

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        return families.children_by_parent((session.id, session.parent_id) for _, session in self.records())

    def overview(self, session_filter: SessionFilter, limit: int = 0) -> Overview:
        """Return the newest selected sessions, at most ``limit`` if that is not 0, and how many there are."""
        if isinstance(self.store, SessionQueries) and session_filter.project is None and limit > 0:
            query = _session_query(session_filter, 0)
            total = self.store.count_sessions(query)
            with_archived = self.store.count_sessions(query._replace(archived=True))
            with_all = self.store.count_sessions(query._replace(archived=True, children=True))
            newest = [session for _, session in self._query(self.store, session_filter, limit)]
            return Overview(total, newest, 0, with_all - with_archived, with_archived - total)
        counts = {"total": 0, "possible_matches": 0, "children": 0, "archived": 0}
        everything = session_filter._replace(children=True, archived=True)

        def selected() -> Iterator[tuple[int, str, Key, Session]]:
            for key, session in self.records():
                if session_filter.matches(session):
                    counts["total"] += 1
                    yield -session.updated, session.id, key, session  # keys are unique, so sessions are not compared
                elif session_filter.possibly_matches(session):
                    counts["possible_matches"] += 1
                elif everything.matches(session):
                    counts["archived" if session_filter.children or session.parent_id is None else "children"] += 1

        newest = heapq.nsmallest(limit, selected()) if limit > 0 else sorted(selected())
        return Overview(sessions=[session for *_, session in newest], **counts)

    def _query(self, store: SessionQueries, session_filter: SessionFilter, limit: int) -> Iterator[tuple[Key, Session]]:
        records = store.query_sessions(_session_query(session_filter, limit), report=self.report)
        return views_of(self.store, records, session_at, self.report)

    def session(self, word: str, *, here: str = "") -> SessionEntry:
        """Return the session with this id, slug, or beginning or end of an id, or the ``last`` one.

        ``last`` is the newest of all sessions; with ``here``, of the project of that directory.
        """
        if word.startswith("ses_"):  # a whole id is found without reading the other sessions
            copies: list[SessionEntry] = []
            for key in [key for key in self.store.list(("session",)) if key[-1] == word]:
                with suppress(NotFoundError, RecordError):
                    copies.append(SessionEntry(self, key, session_at(key, self.store.read(key))))
            if copies:
                return max(copies, key=lambda entry: entry.updated)  # an interrupted move leaves two records
        keys: dict[str, Key] = {}

        def sessions() -> Iterator[Session]:
            for key, session in self.records():
                keys[session.id] = key
                yield session

        record = discovery.find_session(sessions(), word, self.store.place, here)
        return SessionEntry(self, keys[record.id], record)

    def message(self, word: str) -> tuple[SessionEntry, str]:
        """Return the session and the id of the message that has this id (``msg_...``), or a part with it
        (``prt_...``)."""
        name = word
        if word.startswith("prt_"):
            name = next((key[1] for key in self.store.list(("part",)) if key[-1] == word), "")
        for key in self.store.list(("message",)) if name else ():
            if key[-1] == name:
                return self.session(key[1]), name
        raise NotFoundError(f"no message or part has the id {word!r} in {self.store.place}", id=word)

    def records(self) -> Iterator[tuple[Key, Session]]:
        """Yield every readable session record once, in no particular order."""
        seen: set[str] = set()
        records = self.store.scan(("session",), report=self.report)
        for key, session in views_of(self.store, records, session_at, self.report):
            if key[-1] not in seen:  # an interrupted move between projects leaves two records
                seen.add(key[-1])
                yield key, session

    def totals(self, session_id: str) -> SessionTotals:
        """Add up a session's messages, without reading their parts."""
        key = self._key(session_id)
        record = as_object(read_or_none(self.store, key)) if key is not None else None
        infos: list[Document] = []
        prompts: list[tuple[Any, str]] = []
        for message_key, value in self.store.scan(("message", session_id), report=self.report):
            info = as_object(value)
            if info is None:
                continue
            infos.append({**info, "id": message_key[-1]})
            if info.get("role") == "user":
                try:
                    prompts.append((order.position(info), message_key[-1]))
                except RecordError:
                    prompts.append(((0, (0, "")), message_key[-1]))
        calls = self.counted_calls.of_session((record or {}) | {"id": session_id}, infos)
        cost = sum((Decimal(str(as_amount(call.get("cost")))) for call in calls), Decimal(0))
        first, last = (min(prompts)[1], max(prompts)[1]) if prompts else ("", "")
        return SessionTotals(len(infos), len(prompts), cost, first, last)

    @cached_property
    def counted_calls(self) -> CountedCalls:
        """The model calls that count for a session."""
        from .stats.counted_calls import CountedCalls

        return CountedCalls(self.store)

    def stores_with(self, key: Key) -> list[Store]:
        """Return the stores that have a copy of a record."""
        return self.store.stores_with(key) if isinstance(self.store, CompositeStore) else [self.store]

    # -- projects ------------------------------------------------------------------------------------------------------

    @cached_property
    def projects(self) -> list[Project]:
        """All readable project records."""
        records = self.store.scan(("project",), report=self.report)
        return [project for _, project in views_of(self.store, records, project_at, self.report)]

    def project_uses(self, name: str = "") -> list[ProjectUse]:
        """Return the projects that ``name`` matches, best first; without a name all, most recently used first."""
        updates: dict[tuple[str, str], list[int]] = {}
        for _, session in self.records():
            folder = (session.directory or "/") if session.project_id == GLOBAL else ""
            updates.setdefault((session.project_id, folder), []).append(session.updated)
        groups = discovery.project_groups(self.projects, [folder for project, folder in updates if project == GLOBAL])
        uses: list[ProjectUse] = []
        for group in discovery.find_project_groups(groups, name) if name else groups:
            is_folder = discovery.is_global(group.project)
            times = updates.get((group.project.id, group.folder if is_folder else ""), [])
            uses.append(ProjectUse(group, len(times), max(times, default=None)))
        if not name:
            uses.sort(key=lambda use: -use.last_used)
        return uses

    def resolve_project(self, name: str) -> ProjectFilter:
        """Return a filter for a project; see :func:`opensesh.history.discovery.resolve_project`."""
        sessions = ((session.directory, session.title) for _, session in self.records())
        return discovery.resolve_project(name, self.projects, sessions)

    # -- what is in them -----------------------------------------------------------------------------------------------

    def prompt(self, message: str) -> str:
        """Return the text of a prompt."""
        if not message:
            return ""
        parts = (as_object(part) or {} for _, part in self.store.scan(("part", message), report=self.report))
        texts = (part.get("text") for part in parts if part.get("type") == "text" and not part.get("synthetic"))
        return "\n".join(text for text in texts if isinstance(text, str))

    def is_shared(self, session: Session) -> bool:
        """Return whether a session is shared from here. An imported copy of another's session has only the link."""
        names = (keys.share(session.id), ("share", session.id))
        has_link = bool(session.share and session.share.url)
        return has_link and any(read_or_none(self.store, key) is not None for key in names)

    def transcript(
        self, session: Session | str, options: TranscriptOptions | None = None, *, children: bool = False, last: int = 0
    ) -> Transcript:
        """Return the transcript of a session, which may be named as for :meth:`session`.

        With ``children``, the transcripts of its subagents are inside the calls that started them.
        """
        record = self.session(session).record if isinstance(session, str) else session
        return self._transcript(record, options, (record.id,) if children else None, last)

    def search(
        self, query: Query | str, *, project: str | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Results:
        """Refresh the cache and search it; with ``project``, only the sessions of that project."""
        from .search.text_layer import TEXT
        from .search.text_search import Query, search

        query = Query(query) if isinstance(query, str) else query
        if project is not None:
            query = query._replace(
                filters=query.filters._replace(session_matches=self.resolve_project(project).matches)
            )
        self.cache.refresh(TEXT, progress=progress)
        for damage in self.cache.damage:
            self.report(damage)
        return search(self.cache, query)

    def _key(self, session_id: str) -> Key | None:
        if session_id not in self._keys:
            self._keys |= {key[-1]: key for key in self.store.list(("session",))}
        return self._keys.get(session_id)

    def _transcript(
        self, session: Session, options: TranscriptOptions | None, above: tuple[str, ...] | None, last: int
    ) -> Transcript:
        from .transcript import transcript

        def child(name: str) -> Transcript | None:
            key = self._key(name)
            if key is None or above is None or name in above:  # damaged records may form a cycle
                return None
            try:
                session = session_at(key, self.store.read(key))
            except (NotFoundError, RecordError):
                return None
            return self._transcript(session, options, (*above, name), 0)

        messages = self.store.messages(session.id, last=last, report=self.report)
        nested = None if above is None else child
        return transcript(session.document, messages, options, children=nested, report=self.report)


def _session_query(session_filter: SessionFilter, limit: int) -> SessionQuery:
    return SessionQuery(
        children=session_filter.children,
        archived=session_filter.archived,
        since=session_filter.since,
        until=session_filter.until,
        limit=limit,
    )
