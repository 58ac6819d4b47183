"""One history: every session of every generation of storage, each once."""

from __future__ import annotations

import heapq
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import NotFoundError, RecordError
from ..records import Project, Session, as_object, order, side_calls, view
from ..storage import find_stores, open_store
from ..storage.protocol import CompositeStore, Damage, Key, Store
from . import discovery
from .discovery import ProjectFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from ..records import Document
    from ..storage.locations import StoreLocations
    from .cache.derived_cache import DerivedCache
    from .search.text_search import Query, Results
    from .transcript import Transcript, TranscriptOptions


class SessionFilter(NamedTuple):
    """Which sessions are meant. What is left empty does not narrow."""

    project: ProjectFilter | None = None
    since: int = 0
    """Updated at that moment or later; milliseconds since 1970."""
    until: int = 0
    """Updated before that moment."""
    children: bool = False
    """Subagents' sessions too."""
    archived: bool = False
    """Archived sessions too."""

    def matches(self, session: Session) -> bool:
        """Whether a session is meant."""
        return self._is_shown(session) and (
            self.project is None or self.project.matches(session.project_id, session.directory, session.title)
        )

    def possibly_matches(self, session: Session) -> bool:
        """Whether a session that is not meant may belong to the project that is."""
        return self.project is not None and self._is_shown(session) and self.project.loosely_matches(session)

    def _is_shown(self, session: Session) -> bool:
        return (
            (self.children or session.parent_id is None)
            and (self.archived or not session.archived)
            and session.updated >= self.since
            and (not self.until or session.updated < self.until)
        )


class Overview(NamedTuple):
    """The newest sessions that are meant, and how many there are."""

    total: int
    sessions: list[Session]
    possible_matches: int
    """How many that are not counted may belong to the project."""
    children: int
    """How many are not counted because a subagent led them."""
    archived: int
    """And how many because they are archived."""


class SessionTotals(NamedTuple):
    """What a session's messages say about it."""

    messages: int
    prompts: int
    cost: Decimal
    """As stored, in US dollars; every answer once."""
    first: str
    """The user's first message, by id; empty if there is none."""
    last: str


class SessionEntry:
    """A session, with what an index of sessions tells about it. Nothing is read before it is asked for."""

    def __init__(self, library: Library, key: Key, record: Session) -> None:
        self._library = library
        self._key = key
        self.record = record
        """As stored."""
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
        """Where the record is that counts."""
        return self._library.store.locate(self._key)

    @property
    def origins(self) -> list[str]:
        """Every store that has a copy."""
        return [store.place for store in self._library.stores_with(self._key)]

    @cached_property
    def totals(self) -> SessionTotals:
        """Counts and sums, in one pass over its messages."""
        return session_totals(self._library.store, self.id, self._library.report)

    @property
    def messages(self) -> int:
        """How many messages it has."""
        return self.totals.messages

    @property
    def cost(self) -> Decimal:
        """What it cost, as stored."""
        return self.totals.cost

    @cached_property
    def inclusive_cost(self) -> Decimal:
        """What it and the subagents that it started cost, and theirs, as stored."""
        below = self._library.descendants(self.id)
        return sum((session_totals(self._library.store, each, self._library.report).cost for each in below), self.cost)

    @cached_property
    def first_prompt(self) -> str:
        """What the user asked first."""
        return self._library.prompt(self.totals.first)

    @cached_property
    def last_prompt(self) -> str:
        """What the user asked last."""
        return self._library.prompt(self.totals.last)

    def children(self) -> Iterator[SessionEntry]:
        """The sessions of its subagents, oldest first."""
        found = [(key, each) for key, each in self._library.records() if each.parent_id == self.id]
        for key, each in sorted(found, key=lambda pair: order.position(pair[1].document)):
            yield SessionEntry(self._library, key, each)

    def transcript(
        self, wanted: TranscriptOptions | None = None, *, children: bool = False, last: int = 0
    ) -> Transcript:
        """What there is to read in it; see :mod:`opensesh.history.transcript`."""
        return self._library.transcript(self.record, wanted, children=children, last=last)


class Library:
    """The history at a place. All of it is synchronous; nothing in it is ever written."""

    def __init__(self, place: str | None = None, *, store: Store | None = None) -> None:
        self._place = place
        self._given = store
        self.damage: list[Damage] = []
        """What could not be read so far. It cost itself alone."""
        self._told: set[Damage] = set()
        self._filed: dict[str, Key] = {}

    @cached_property
    def store(self) -> Store:
        """Every store that was found, as one."""
        return self._given or open_store(self._place, report=self.report)

    @cached_property
    def locations(self) -> StoreLocations:
        """Which stores were found, by name."""
        return find_stores(self._given.place if self._given else self._place)

    @cached_property
    def cache(self) -> DerivedCache:
        """The derived cache for search and statistics. Accessing it neither creates nor refreshes it."""
        from .cache.derived_cache import DerivedCache

        return DerivedCache(store=self._given) if self._given else DerivedCache(self.locations)

    def report(self, damage: Damage) -> None:
        """Hear of something that could not be read; once, however often it is tried."""
        if damage not in self._told:
            self._told.add(damage)
            self.damage.append(damage)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def sessions(
        self, project: str | None = None, *, session_filter: SessionFilter | None = None, limit: int = 0
    ) -> Iterator[SessionEntry]:
        """Sessions, newest first; without ``session_filter``, neither subagents' nor archived ones.

        ``project`` is what people call it: part of a name, folder or remote, and need not be exact. Of each session
        only its place is held while others are read, so that any number of them can be gone through.
        """
        session_filter = session_filter or SessionFilter()
        if project is not None:
            session_filter = session_filter._replace(project=self.resolve_project(project))
        found = ((-each.updated, each.id, key) for key, each in self.records() if session_filter.matches(each))
        for _, _, key in heapq.nsmallest(limit, found) if limit else sorted(found):
            try:
                yield SessionEntry(self, key, view(self.store.read(key), Session))
            except (NotFoundError, RecordError):
                continue  # it went, or broke, since it was seen

    def descendants(self, session_id: str) -> list[str]:
        """The sessions of subagents that a session started, and of those that these did."""
        return discovery.descendants(session_id, self._children)

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        below: dict[str, list[str]] = {}
        for _, each in self.records():
            if each.parent_id is not None:
                below.setdefault(each.parent_id, []).append(each.id)
        return below

    def overview(self, session_filter: SessionFilter, limit: int = 0) -> Overview:
        """The newest sessions that are meant, at most ``limit`` if that is not 0, and how many there are."""
        counts = {"total": 0, "possible_matches": 0, "children": 0, "archived": 0}
        everything = session_filter._replace(children=True, archived=True)

        def meant() -> Iterator[tuple[int, str, Key, Session]]:
            for key, each in self.records():
                if session_filter.matches(each):
                    counts["total"] += 1
                    yield -each.updated, each.id, key, each  # no two have one key, whatever else they share
                elif session_filter.possibly_matches(each):
                    counts["possible_matches"] += 1
                elif everything.matches(each):
                    counts["archived" if session_filter.children or each.parent_id is None else "children"] += 1

        newest = heapq.nsmallest(limit, meant()) if limit > 0 else sorted(meant())
        return Overview(sessions=[each for *_, each in newest], **counts)

    def session(self, word: str) -> SessionEntry:
        """The session that ``word`` names: an id, the beginning or end of one, a slug, or ``last``."""
        filed: dict[str, Key] = {}

        def remembered() -> Iterator[Session]:
            for key, each in self.records():
                filed[each.id] = key
                yield each

        record = discovery.find_session(remembered(), word, self.store.place)
        return SessionEntry(self, filed[record.id], record)

    def records(self) -> Iterator[tuple[Key, Session]]:
        """Every session record that can be read, in no particular order, each session once."""
        seen: set[str] = set()
        for key, info in self.store.scan(("session",), report=self.report):
            if key[-1] in seen:  # a move between projects that was cut short leaves it in both
                continue
            try:
                record = view(info, Session)
                seen.add(key[-1])
                yield key, record
            except RecordError as error:
                self.report(Damage(self.store.locate(key), f"{error.place}: {error.reason}"))

    def stores_with(self, key: Key) -> list[Store]:
        """The stores that have a copy of a record."""
        return self.store.stores_with(key) if isinstance(self.store, CompositeStore) else [self.store]

    # -- projects ------------------------------------------------------------------------------------------------------

    @cached_property
    def projects(self) -> list[Project]:
        """Every project record that can be read."""
        found: list[Project] = []
        for key, record in self.store.scan(("project",), report=self.report):
            try:
                found.append(view(record, Project))
            except RecordError as error:
                self.report(Damage(self.store.locate(key), f"{error.place}: {error.reason}"))
        return found

    def resolve_project(self, name: str) -> ProjectFilter:
        """What ``name`` means: the sessions of a project, wherever they are filed; or :class:`NotFoundError`.

        A way from here (``.``, ``../shop``) or from home means the project of the folder it leads to.
        """
        if here := discovery.resolve_path_argument(name):
            return discovery.current_project(here)
        folders: set[str] = set()
        titled = False
        for _, each in self.records():
            folders.add(each.directory.rstrip("/\\"))
            titled = titled or name.casefold() in each.title.casefold()
        chosen = discovery.resolve_project(name, self.projects, folders)
        if chosen is not None:
            return chosen
        if titled:
            return ProjectFilter(frozenset(), frozenset(), name.casefold(), by_title=True)
        raise NotFoundError(f"no project resembles {name!r}. 'opensesh projects' shows them.", name=name)

    # -- what is in them -----------------------------------------------------------------------------------------------

    def prompt(self, message: str) -> str:
        """The words of a prompt."""
        if not message:
            return ""
        parts = (as_object(part) or {} for _, part in self.store.scan(("part", message), report=self.report))
        texts = (part.get("text") for part in parts if part.get("type") == "text" and not part.get("synthetic"))
        return "\n".join(text for text in texts if isinstance(text, str))

    def transcript(
        self, session: Session | str, wanted: TranscriptOptions | None = None, *, children: bool = False, last: int = 0
    ) -> Transcript:
        """What there is to read in a session, which may be named as for :meth:`session`; with ``children``, what its
        subagents did is inside their calls."""
        record = self.session(session).record if isinstance(session, str) else session
        return self._transcript(record, wanted, (record.id,) if children else None, last)

    def search(
        self, query: Query | str, *, project: str | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Results:
        """Bring the index up to date, and ask it; with ``project``, only for what is in the sessions of that one."""
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
        """Where a session is filed, which only reading tells."""
        if session_id not in self._filed:
            self._filed |= {key[-1]: key for key in self.store.list(("session",))}
        return self._filed.get(session_id)

    def _transcript(
        self, session: Session, wanted: TranscriptOptions | None, above: tuple[str, ...] | None, last: int
    ) -> Transcript:
        from .transcript import transcript

        def child(name: str) -> Transcript | None:
            key = self._key(name)
            if key is None or above is None or name in above:  # a damaged tree may run in a circle
                return None
            try:
                found = view(self.store.read(key), Session)
            except (NotFoundError, RecordError):
                return None
            return self._transcript(found, wanted, (*above, name), 0)

        messages = self.store.messages(session.id, last=last, report=self.report)
        nested = None if above is None else child
        return transcript(session.document, messages, wanted, children=nested, report=self.report)


def session_totals(store: Store, session_id: str, report: Callable[[Damage], None]) -> SessionTotals:
    """Go through a session's messages once, without their parts."""
    from decimal import Decimal

    cost = Decimal(0)
    messages = prompts = 0
    first: tuple[Any, str] | None = None
    last: tuple[Any, str] | None = None
    for key, value in store.scan(("message", session_id), report=report):
        info = as_object(value)
        if info is None:
            continue
        messages += 1
        if info.get("role") == "user":
            prompts += 1
            place = (_position(info), key[-1])
            first, last = min(first or place, place), max(last or place, place)
        for paid in (info, *side_calls(info)):
            if isinstance(own := paid.get("cost"), (int, float)) and not isinstance(own, bool):
                cost += Decimal(str(own))
    return SessionTotals(messages, prompts, cost, first[1] if first else "", last[1] if last else "")


def _position(info: Document) -> order.Position:
    try:
        return order.position(info)
    except RecordError:
        return 0, (0, "")
