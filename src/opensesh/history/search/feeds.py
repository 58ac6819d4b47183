"""What the index is fed from: a store, seen as marks that tell what has changed, and records to read where it has.

A *mark* is a number that stays the same for as long as what it stands for does. Marks are compared, never understood.
0 is the mark of what was seen at a moment too close to its last change to be sure of: it differs from every other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from ...storage.locations import StoreLocations
    from ...storage.protocol import Damage

Document = dict[str, Any]

UNSURE = 0
JUST_NOW_NS = 3_000_000_000
"""For so long after a change, another one may bear the same time."""


class Survey(NamedTuple):
    """A first look at a whole store, at the price of a look at each session."""

    mark: int
    """Of the store as a whole; with the same one, nothing has changed and nothing else was looked at."""
    changed: Mapping[str, int]
    """Sessions that are new or differ from what was held, with their marks."""
    gone: Sequence[str] = ()
    recent: Sequence[str] = ()
    """Sessions that something may be writing to in ways a first look does not show."""


class Look(NamedTuple):
    """A message, as seen before it is read."""

    name: str
    mark: int
    parts: Mapping[str, int] | None
    """Marks of its parts; ``None`` if they were not looked at, because nothing speaks for a change."""


class Feed(Protocol):
    """A store as the index sees it. Nothing here is ever written.

    Damage is told to ``damage`` and costs the record alone.
    """

    place: str
    """Where it is, :func:`spelled` so that the index can know it by that."""
    damage: list[Damage]

    def survey(self, before: int, held: Mapping[str, int]) -> Survey:
        """What differs from the mark ``before`` and the marks of sessions that were ``held``."""
        ...

    def session(self, name: str) -> Document | None:
        """A session's record; ``None`` if it is gone, or cannot be read."""
        ...

    def look(self, session: str, known: Mapping[str, int], *, closely: bool) -> Iterator[Look]:
        """A session's messages; ``closely``, with the marks of every part."""
        ...

    def look_at(self, session: str, message: str) -> Look | None:
        """One message, closely; ``None`` if there is no such message, or if a survey misses no change of one."""
        ...

    def messages(self, session: str, names: Sequence[str]) -> Iterator[tuple[str, Document]]:
        """Those of the named messages that can be read."""
        ...

    def parts(self, session: str, names: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Document]]:
        """Those of the named parts (message, part) that can be read, one at a time."""
        ...

    def part(self, session: str, message: str, name: str) -> Document | None:
        """One part, read with as little ado as possible."""
        ...

    def close(self) -> None:
        """Let go of whatever is open."""
        ...


def open_feeds(found: StoreLocations) -> list[Feed]:
    """A feed for each store that was found; of what is nowhere yet, none."""
    feeds: list[Feed] = []
    if found.tree is not None:
        from .tree_feed import TreeFeed

        feeds.append(TreeFeed(found.tree))
    if found.databases:
        from .database_feed import DatabaseFeed

        feeds += [DatabaseFeed(path) for path in found.databases]
    return feeds


def holders(db: Connection, feeds: Sequence[Feed], session: str) -> list[Feed]:
    """Those of the stores that hold a session, as the index knows it."""
    # A cross join, for SQLite keeps its order: there are few stores, and each has an index of its sessions.
    sql = "SELECT m.place FROM member m CROSS JOIN held h ON h.member = m.id WHERE h.session = ?"
    places = {place for (place,) in db.execute(sql, [session])}
    return [feed for feed in feeds if feed.place in places]


def spelled(path: str) -> str:
    """A path as text, also where its bytes are none."""
    return path.encode(errors="backslashreplace").decode()


def mark(*numbers: int) -> int:
    """A mark made of several numbers."""
    return hash(numbers) or 1


def as_object(value: object) -> Document:
    """``value`` if it is an object, else an empty one."""
    return cast("Document", value) if isinstance(value, dict) else {}


def fullest(kind: str, copies: Iterable[Document]) -> Document | None:
    """Of several copies of a record, the one that holds most."""
    found = list(copies)
    if len(found) < 2:
        return found[0] if found else None
    from ...storage.merged import completeness_key

    return max(found, key=lambda record: completeness_key((kind,), record))
