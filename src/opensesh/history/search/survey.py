"""What differs between the index and the stores it is made from."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from ...errors import StoreError
from ...storage.protocol import unreadable
from .feeds import UNSURE, Feed, Look, Survey, holders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from sqlite3 import Connection

_WATCH_MS = 30 * 86_400_000
_TURN_NS = 60 * 1_000_000_000
_TURN_BUDGET_NS = 40_000_000
_WATCHED = """
    SELECT s.name, m.name FROM message m JOIN session s ON s.id = m.session WHERE m.time > ? AND m.id IN
    (SELECT id FROM message WHERE unfinished UNION SELECT message FROM part WHERE unfinished)
"""


class Plan(NamedTuple):
    """What is to be brought in line."""

    marks: Mapping[str, int]
    """Of the stores, by place."""
    held: Mapping[str, Mapping[str, int]]
    """For each session that differs, the stores that hold it and its marks there."""
    gone: Sequence[str]
    """Stores that are no longer there."""
    outdated: bool
    """Whether a store is known by another mark, though perhaps no session in it differs."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.held or self.gone or self.outdated)


def survey(db: Connection, feeds: Sequence[Feed], *, also: Iterable[str] = (), closely: bool = False) -> Plan:
    """Which sessions differ from what the index holds, and those named ``also``; ``closely``, all there are."""
    members = {place: (number, mark) for number, place, mark in db.execute("SELECT id, place, mark FROM member")}
    before = dict(members)
    marks: dict[str, int] = {}
    holding: list[tuple[str, Mapping[str, int]]] = []
    differing = set(also)
    recent: list[tuple[Feed, Sequence[str]]] = []
    for feed in feeds:
        number, own = members.pop(feed.place, (0, UNSURE))
        held: dict[str, int] = dict(db.execute("SELECT session, mark FROM held WHERE member = ?", [number]))
        found = _survey(feed, UNSURE if closely else own, held, alone=_is_alone(feed, feeds))
        gone = set(found.gone)
        now: Mapping[str, int] = held
        if gone or found.changed:
            now = {name: mark for name, mark in {**held, **found.changed}.items() if name not in gone}
        marks[feed.place] = found.mark
        holding.append((feed.place, now))
        recent.append((feed, found.recent))
        differing.update(found.changed, gone, now if closely else ())
    for number, _ in members.values():
        differing.update(name for (name,) in db.execute("SELECT session FROM held WHERE member = ?", [number]))
    for feed, names in recent:
        alone = _held_alone(feed.place, holding)
        differing.update([*_restless(db, feed, [name for name in names if name in alone], alone, differing)])
    where = {name: {place: held[name] for place, held in holding if name in held} for name in differing}
    outdated = any(before.get(place, (0, None))[1] != mark for place, mark in marks.items())
    return Plan(marks, where, list(members), outdated)


def take_turn(db: Connection, feeds: Sequence[Feed]) -> list[str]:
    """Compare some sessions record by record, those first that have waited longest; the ones that differ.

    Ends when its time is up, so that no search waits for it. What was compared is noted.
    """
    deadline = time.monotonic_ns() + _TURN_BUDGET_NS
    different: list[str] = []
    now = time.time_ns()
    db.execute("INSERT OR REPLACE INTO meta VALUES ('turn', ?)", [now])
    for (name,) in db.execute("SELECT name FROM session ORDER BY checked").fetchall():
        holding = holders(db, feeds, name)
        if len(holding) == 1 and not _is_same_there(db, holding[0], name):
            different.append(name)
        db.execute("UPDATE session SET checked = ? WHERE name = ?", [now, name])
        if time.monotonic_ns() > deadline:
            break
    return different


def turn_is_due(db: Connection) -> bool:
    """Whether the last turn was a minute ago. What was just made anew has been compared well enough."""
    row = db.execute("SELECT value FROM meta WHERE name = 'turn'").fetchone()
    return row is None or not 0 <= time.time_ns() - row[0] < _TURN_NS


def is_same(db: Connection, session: str, looks: Iterable[Look]) -> bool:
    """Whether a session looks as the index knows it."""
    known = _known(db, session)
    for look in looks:
        if known.pop(look.name, UNSURE) != look.mark or not _is_same_message(db, session, look):
            return False
    return not known


def _is_same_there(db: Connection, feed: Feed, session: str) -> bool:
    try:
        return is_same(db, session, feed.look(session, {}, closely=True))
    except StoreError:  # nobody can tell, and it is told when the store is surveyed
        return True


def _survey(feed: Feed, before: int, held: Mapping[str, int], *, alone: bool) -> Survey:
    """A store that cannot be opened costs itself alone: what is known of it stays as it is."""
    try:
        return feed.survey(before, held)
    except StoreError as error:
        if alone:
            raise
        feed.damage.append(unreadable(feed.place, error))
        return Survey(before, {})


def _is_alone(feed: Feed, feeds: Sequence[Feed]) -> bool:
    """Whether there is no other store: a data folder always has a tree, which need not exist."""
    return not any(os.path.exists(each.place) for each in feeds if each is not feed)


def _held_alone(place: str, holding: Sequence[tuple[str, Mapping[str, int]]]) -> AbstractSet[str]:
    """The sessions that only this store holds. Of one that was brought over to another, the copy left behind rests."""
    own = next(held.keys() for holder, held in holding if holder == place)
    others = [held for holder, held in holding if holder != place]
    return set(own).difference(*others) if others else own


def _restless(
    db: Connection, feed: Feed, recent: Sequence[str], held: AbstractSet[str], differing: AbstractSet[str]
) -> Iterator[str]:
    """Sessions whose marks are as they were, and which differ all the same."""
    for name in recent:
        if not is_same(db, name, feed.look(name, _known(db, name), closely=False)):
            yield name
    since = time.time_ns() // 1_000_000 - _WATCH_MS
    for session, message in db.execute(_WATCHED, [since]).fetchall():
        watched = session in held and session not in recent and session not in differing
        look = feed.look_at(session, message) if watched else None
        if look is not None and not _is_same_message(db, session, look):
            yield session


def _known(db: Connection, session: str) -> dict[str, int]:
    sql = "SELECT m.name, m.mark FROM message m JOIN session s ON s.id = m.session WHERE s.name = ?"
    return dict(db.execute(sql, [session]))


def _is_same_message(db: Connection, session: str, look: Look) -> bool:
    sql = "SELECT m.id, m.mark FROM message m JOIN session s ON s.id = m.session WHERE s.name = ? AND m.name = ?"
    row = db.execute(sql, [session, look.name]).fetchone()
    if row is None or row[1] != look.mark or look.mark == UNSURE:
        return False
    if look.parts is None:
        return True
    parts = dict(db.execute("SELECT name, mark FROM part WHERE message = ? AND name != ''", [row[0]]))
    return UNSURE not in parts.values() and parts == look.parts
