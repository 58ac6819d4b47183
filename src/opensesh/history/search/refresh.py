"""Bringing the index in line with the stores, a session at a time."""

from __future__ import annotations

from itertools import chain
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

from ...errors import InvalidIDError, StoreError
from ...ids import timestamp_of
from ...storage.protocol import unreadable
from . import extract
from .feeds import UNSURE, Document, Feed, Look, fullest, mark
from .rows import Known, Owner, Rows
from .tokenizer import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from .survey import Plan

    Progress = Callable[[int, int], None]
    Wanted = dict[tuple[str, str], tuple[int, Known | None]]

_COMMIT_AFTER = 4_000
_LET_GO = "DELETE FROM held WHERE member IN (SELECT id FROM member) AND session = ?"
_CHECKED = (
    "INSERT INTO session (name, checked) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET checked = excluded.checked"
)


class Refresh:
    """Carries out a plan. One at a time, by whoever holds the index's lock."""

    def __init__(self, db: Connection, feeds: Sequence[Feed]) -> None:
        self._db = db
        self._feeds = {feed.place: feed for feed in feeds}
        self._rows = Rows(db)
        self._shut: set[str] = set()
        """Stores that could not be read."""

    def run(self, plan: Plan, *, closely: bool = False, progress: Progress | None = None) -> None:
        """Do what a plan says. Interrupted, it goes on the next time with what is left; so it does with the sessions of
        a store that cannot be read, which stay as they are."""
        self._rows.begin()
        for place in plan.gone:
            self._db.execute("DELETE FROM held WHERE member = (SELECT id FROM member WHERE place = ?)", [place])
            self._db.execute("DELETE FROM member WHERE place = ?", [place])
        for place in plan.marks:
            self._db.execute("INSERT OR IGNORE INTO member (place) VALUES (?)", [place])
        for done, name in enumerate(self._oldest_first(plan)):
            if progress:
                progress(done, len(plan.held))
            self._session(name, plan.held[name], closely=closely)
            if self._rows.written > _COMMIT_AFTER:
                self._rows.commit()
                self._rows.begin()
        for place, found in plan.marks.items():
            if place in self._shut:
                continue
            self._db.execute("UPDATE member SET mark = ? WHERE place = ?", [found, place])
        if self._db.execute("SELECT 1 FROM meta WHERE name = 'complete'").fetchone() is None:
            self._db.execute("INSERT INTO meta VALUES ('complete', 1)")
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('turn', ?)", [time_ns()])
        self._rows.commit()
        if progress and plan.held:
            progress(len(plan.held), len(plan.held))

    def _oldest_first(self, plan: Plan) -> list[str]:
        """Old sessions first, so that a part's number tells roughly how new it is."""
        if len(plan.held) < 2:
            return list(plan.held)
        times = {name: extract.moment(self._head(name, places), "updated") for name, places in plan.held.items()}
        return sorted(plan.held, key=lambda name: (times[name], name))

    def _head(self, name: str, places: Iterable[str]) -> Document:
        copies = (self._record(place, name) for place in places)
        return fullest("session", (copy for copy in copies if copy is not None)) or {}

    def _record(self, place: str, name: str) -> Document | None:
        if place in self._shut:  # one that is locked would be waited for again
            return None
        try:
            return self._feeds[place].session(name)
        except StoreError as error:
            self._shut.add(place)
            self._feeds[place].damage.append(unreadable(place, error))
            return None

    def _session(self, name: str, places: Mapping[str, int], *, closely: bool) -> None:
        head = self._head(name, places)
        if not self._shut.isdisjoint(places):
            return
        self._db.execute(_LET_GO, [name])
        row = self._db.execute("SELECT id FROM session WHERE name = ?", [name]).fetchone()
        if not places:
            if row is not None:
                self._rows.bury_session(row[0])
            return
        if row is None or closely:
            self._db.execute(_CHECKED, [name, time_ns()])
            row = self._db.execute("SELECT id FROM session WHERE name = ?", [name]).fetchone()
        work = _Session(self._rows, row[0], name, [self._feeds[place] for place in places])
        work.write_head(head)
        work.write_messages(closely=closely)
        members = dict(self._db.execute("SELECT place, id FROM member").fetchall())
        for place, found in places.items():
            # One row by its values: a statement that may write several makes FTS5 write out what it holds.
            self._db.execute("INSERT INTO held VALUES (?, ?, ?)", [members[place], name, found])


class _Message(NamedTuple):
    id: int
    mark: int
    role: str
    time: int


class _Session:
    """One session that is brought in line."""

    def __init__(self, rows: Rows, number: int, name: str, feeds: Sequence[Feed]) -> None:
        self._rows = rows
        self._db = rows.db
        self._number = number
        self._name = name
        self._feeds = feeds
        self._directory = ""
        self._new: set[str] = set()
        """Messages that the index did not have."""
        sql = "SELECT name, id, mark, role, time FROM message WHERE session = ?"
        self._known = {each: _Message(*rest) for each, *rest in self._db.execute(sql, [number])}

    def write_head(self, info: Document) -> None:
        """The session's own record, and its title."""
        names = ("projectID", "directory", "parentID", "title")
        texts = [clean(text) if isinstance(text := info.get(name), str) else "" for name in names]
        times = [extract.moment(info, name) for name in ("created", "updated", "archived")]
        self._directory = texts[1]
        sql = (
            "UPDATE session SET project=?, directory=?, parent=?, title=?, created=?, updated=?, archived=? WHERE id=?"
        )
        self._db.execute(sql, [*texts, *times, self._number])
        old = self._rows.known("session = ? AND message IS NULL", self._number).get("")
        owner = Owner(self._number, None, times[1] or times[0])
        self._rows.write(owner, "", extract.of_title(texts[3]), old=old)

    def write_messages(self, *, closely: bool) -> None:
        """Its messages and parts: those that differ are read, those that are gone are buried."""
        marks = {name: message.mark for name, message in self._known.items()}
        closely = closely or len(self._feeds) > 1
        looks = list(_united([feed.look(self._name, marks, closely=closely) for feed in self._feeds]))
        differing = {look.name: look.mark for look in looks if look.mark == UNSURE or look.mark != marks.get(look.name)}
        self._read_messages(differing)
        for name in marks.keys() - {look.name for look in looks}:
            self._rows.bury_message(self._known.pop(name).id)
        wanted: Wanted = {}
        for look in looks:
            self._compare(look, wanted)
        self._read_parts(wanted)

    def _read_messages(self, marks: Mapping[str, int]) -> None:
        copies: dict[str, list[Document]] = {}
        for feed in self._feeds if marks else ():
            for name, info in feed.messages(self._name, list(marks)):
                copies.setdefault(name, []).append(info)
        for name, found in marks.items():
            info = fullest("message", copies.get(name, ())) or {}
            self._known[name] = self._write_message(name, found, info)

    def _write_message(self, name: str, found: int, info: Document) -> _Message:
        role = role if isinstance(role := info.get("role"), str) else ""
        moment = extract.moment(info, "created") or _minted(name)
        texts = [clean(text) for text in (role, extract.agent_of(info), extract.model_of(info))]
        values = [found, *texts, moment, extract.is_unfinished(info)]
        old = self._known.get(name)
        if old is None:
            number = self._rows.add_message(self._number, name, values)
            self._new.add(name)
            error = None
        else:
            sql = "UPDATE message SET mark = ?, role = ?, agent = ?, model = ?, time = ?, unfinished = ? WHERE id = ?"
            number = old.id
            self._db.execute(sql, [*values, number])
            error = self._rows.known("message = ? AND name = ''", number).get("")
        self._rows.write(Owner(self._number, number, moment), "", extract.of_message(info), old=error)
        return _Message(number, found, texts[0], moment)

    def _compare(self, look: Look, wanted: Wanted) -> None:
        """Add the parts to read again, with their new marks, to ``wanted``; bury those that are gone."""
        if look.parts is None:
            return
        is_new = look.name in self._new
        known = {} if is_new else self._rows.known("message = ? AND name != ''", self._known[look.name].id)
        for name, found in look.parts.items():
            old = known.pop(name, None)
            if old is None or found == UNSURE or old.mark != found:
                wanted[look.name, name] = found, old
        self._rows.bury(old.id for old in known.values())

    def _read_parts(self, wanted: Wanted) -> None:
        for message, name, part in _records(self._feeds, self._name, list(wanted)):
            found, old = wanted.pop((message, name))
            owner = self._known[message]
            text = extract.of_part(part, owner.role)
            self._rows.write(Owner(self._number, owner.id, owner.time, self._directory), name, text, found, old)
        for (message, name), (found, old) in wanted.items():  # unreadable: not tried again until it changes
            self._rows.write(Owner(self._number, self._known[message].id, 0), name, None, found, old)


def _records(
    feeds: Sequence[Feed], session: str, names: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str, Document]]:
    """Parts by name, each once, the fullest copy of it."""
    if len(feeds) == 1:
        yield from feeds[0].parts(session, names) if names else ()
        return
    copies: dict[tuple[str, str], Document] = {}
    for feed in feeds:
        for message, name, part in feed.parts(session, names):
            held = copies.get((message, name), part)
            copies[message, name] = fullest("part", (held, part)) or part
    for (message, name), part in copies.items():
        yield message, name, part


def _united(looks: Sequence[Iterator[Look]]) -> Iterator[Look]:
    """The messages of a session that several stores hold, each once."""
    if len(looks) == 1:
        yield from looks[0]
        return
    from ...storage.merged import duplicate_messages, duplicate_parts

    held = [{look.name: look for look in stream} for stream in looks]
    spare = duplicate_messages([each.keys() for each in held])
    for name in dict.fromkeys(name for name in chain.from_iterable(held) if name not in spare):
        copies = [each[name] for each in held if name in each]
        parts: dict[str, list[int]] = {}
        for look in copies:
            for part, own in (look.parts or {}).items():
                parts.setdefault(part, []).append(own)
        for part in duplicate_parts(name, parts):
            del parts[part]
        yield Look(name, _both([look.mark for look in copies]), {part: _both(own) for part, own in parts.items()})


def _both(marks: Sequence[int]) -> int:
    return UNSURE if UNSURE in marks else mark(*marks)


def _minted(name: str) -> int:
    try:
        return timestamp_of(name)
    except InvalidIDError:
        return 0
