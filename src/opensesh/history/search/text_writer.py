"""Writing the text layer: the messages and parts of a session, and their words."""

from __future__ import annotations

import time
from contextlib import suppress
from posixpath import join, normpath
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import InvalidIDError, RecordError
from ...ids import timestamp_of
from ...storage.change_feeds import UNSTABLE, ChangeFeed, RawRecord, StoredSession
from ...storage.protocol import Damage
from ..cache.cache_layers import merge_states, most_complete
from . import extract
from .text_layer import has_vocabulary
from .tokenizer import TextPreparer, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from ...records import Document
    from .extract import ExtractedText

    PartsToRead = dict[tuple[str, str], tuple[int, "IndexedPart | None"]]

_FLUSH_ROWS = 500
_FLUSH_CHARACTERS = 4_000_000
_PATH_CACHE = 10_000
_LAST_PART = "SELECT max(ifnull((SELECT max(id) FROM part), 0), ifnull((SELECT max(id) FROM tombstone), 0))"
_ADD_WORDS = "INSERT INTO words (rowid, said, tool, input, output, error, paths) VALUES (?, ?, ?, ?, ?, ?, ?)"
_UPDATE_MESSAGE = (
    "UPDATE message SET fingerprint = ?, role = ?, agent = ?, model = ?, time = ?, unfinished = ? WHERE id = ?"
)
_SET_CHECKED = (
    "INSERT INTO session (name, checked) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET checked = excluded.checked"
)


class IndexedPart(NamedTuple):
    """A part that the cache has."""

    id: int
    fingerprint: int
    digest: int


class IndexedMessage(NamedTuple):
    """A message that the cache has."""

    id: int
    fingerprint: int
    role: str
    time: int


class PartOwner(NamedTuple):
    """The session and message of a part."""

    session: int
    message: int | None
    """``None`` for a session's title."""
    time: int
    """When the part was made, if it does not say so itself."""
    directory: str = ""
    """What its paths are relative to."""


class TextWriter:
    """Writes sessions, messages, parts and their words.

    New rows are collected and written together: FTS5 writes out what it holds in memory whenever some other kinds of
    statements begin. Until :meth:`flush` they cannot be queried.
    """

    def __init__(self, db: Connection) -> None:
        self.db = db
        self.written = 0
        self._preparer = TextPreparer(collect_words=has_vocabulary(db))
        self._messages: list[list[Any]] = []
        self._parts: list[list[Any]] = []
        self._touched: list[tuple[int, int]] = []
        self._words: list[list[Any]] = []
        self._characters = 0
        self._paths: dict[str, int] = {}
        self._last_part: int = db.execute(_LAST_PART).fetchone()[0]
        self._last_message: int = db.execute("SELECT ifnull(max(id), 0) FROM message").fetchone()[0]
        # What was just made has been compared well enough: the first batch comes a minute later.
        sql = "INSERT INTO meta SELECT 'rechecked', ? WHERE NOT EXISTS (SELECT 1 FROM meta WHERE name = 'rechecked')"
        db.execute(sql, [time.time_ns()])

    def write_session(
        self, session: str, head: StoredSession | None, feeds: Sequence[ChangeFeed], *, full: bool
    ) -> None:
        """Bring a session in line: read the messages and parts that differ, remove those that are gone."""
        row = self._session_row(session)
        if row is None or full:
            self.db.execute(_SET_CHECKED, [session, time.time_ns()])
            row = self._session_row(session)
        refresh = _SessionRefresh(self, row or 0, session, feeds)
        refresh.write_head(head.record if head else {})
        refresh.write_messages(full=full)

    def remove_session(self, session: str) -> None:
        """Remove a session and everything in it."""
        row = self._session_row(session)
        if row is not None:
            self.db.execute("INSERT INTO tombstone SELECT id FROM part WHERE session = ?", [row])
            self.db.execute("DELETE FROM part WHERE session = ?", [row])
            self.db.execute("DELETE FROM message WHERE session = ?", [row])
            self.db.execute("DELETE FROM session WHERE id = ?", [row])

    def flush(self) -> None:
        """Write what was collected."""
        self._flush()
        new_words = sorted(self._preparer.new_words())
        self.db.executemany("INSERT OR IGNORE INTO term VALUES (?)", ((word,) for word in new_words))
        self.written = 0

    def indexed_parts(self, condition: str, *values: object) -> dict[str, IndexedPart]:
        """Return parts that the cache has, by name."""
        sql = " ".join(("SELECT name, id, fingerprint, digest FROM part WHERE", condition))
        return {name: IndexedPart(*rest) for name, *rest in self.db.execute(sql, values)}

    def add_message(self, session: int, name: str, values: Iterable[Any]) -> int:
        """Add a message that the cache does not have, and return its number."""
        self._last_message += 1
        self._messages.append([self._last_message, session, name, *values])
        return self._last_message

    def write_part(
        self,
        owner: PartOwner,
        name: str,
        text: ExtractedText | None,
        fingerprint: int = UNSTABLE,
        old: IndexedPart | None = None,
    ) -> None:
        """Write a part in place of ``old``; without ``text``, one that cannot be searched.

        A part without a name is a title or an error. It exists only if it has a text.
        """
        digest = extract.digest_of(text)
        if old is not None:
            if old.digest == digest:
                if text is not None and (old.fingerprint != fingerprint or not name):
                    values = [fingerprint, text.time or owner.time, old.id]
                    self.db.execute("UPDATE part SET fingerprint = ?, time = ? WHERE id = ?", values)
                elif old.fingerprint != fingerprint:
                    self.db.execute("UPDATE part SET fingerprint = ? WHERE id = ?", [fingerprint, old.id])
                return
            self.remove_parts([old.id])
        if text is None and not name:
            return
        self._last_part += 1
        self.written += 1
        row: list[Any] = [self._last_part, owner.session, owner.message, name, fingerprint, digest]
        row += [text.kind, clean(text.tool), text.time or owner.time, text.unfinished] if text else ["", "", 0, 0]
        self._parts.append(row)
        if text is not None:
            fields = [self._preparer.prepare(field) if field else "" for field in text.fields]
            self._words.append([self._last_part, *fields])
            self._characters += sum(map(len, fields))
            for path in text.paths:
                self._touched.append((self._path_number(clean(path), owner.directory), self._last_part))
        if len(self._parts) >= _FLUSH_ROWS or self._characters > _FLUSH_CHARACTERS:
            self._flush()

    def remove_parts(self, parts: Iterable[int]) -> None:
        """Remove parts by number."""
        for part in parts:
            self.db.execute("INSERT INTO tombstone VALUES (?)", [part])
            self.db.execute("DELETE FROM part WHERE id = ?", [part])

    def remove_message(self, message: int) -> None:
        """Remove a message and its parts."""
        self.db.execute("INSERT INTO tombstone SELECT id FROM part WHERE message = ?", [message])
        self.db.execute("DELETE FROM part WHERE message = ?", [message])
        self.db.execute("DELETE FROM message WHERE id = ?", [message])

    def _session_row(self, session: str) -> int | None:
        row = self.db.execute("SELECT id FROM session WHERE name = ?", [session]).fetchone()
        return None if row is None else row[0]

    def _flush(self) -> None:
        for sql, rows in (
            ("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._messages),
            ("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._parts),
            ("INSERT OR IGNORE INTO touched VALUES (?, ?)", self._touched),
            (_ADD_WORDS, self._words),
        ):
            self.db.executemany(sql, rows)
            rows.clear()
        self._characters = 0

    def _path_number(self, path: str, directory: str) -> int:
        """Return the number of a path, which may be relative to the session's directory."""
        if directory and not path.startswith(("/", "\\", "~")) and path[1:2] != ":":
            path = normpath(join(directory, path))
        number = self._paths.get(path)
        if number is None:
            base = path.replace("\\", "/").rstrip("/").rpartition("/")[2].casefold()
            self.db.execute("INSERT OR IGNORE INTO path (name, base) VALUES (?, ?)", [path, base])
            (number,) = self.db.execute("SELECT id FROM path WHERE name = ?", [path]).fetchone()
            if len(self._paths) > _PATH_CACHE:
                self._paths.clear()
            self._paths[path] = number
        return number


class _SessionRefresh:
    """Brings one session in line with the stores that have it."""

    def __init__(self, writer: TextWriter, number: int, session: str, feeds: Sequence[ChangeFeed]) -> None:
        self._writer = writer
        self._number = number
        self._session = session
        self._feeds = feeds
        self._directory = ""
        self._new: set[str] = set()
        """Messages that the cache did not have."""
        sql = "SELECT name, id, fingerprint, role, time FROM message WHERE session = ?"
        self._known = {name: IndexedMessage(*rest) for name, *rest in writer.db.execute(sql, [number])}

    def write_head(self, info: Document) -> None:
        """Write the session's own record and its title."""
        names = ("projectID", "directory", "parentID", "title")
        texts = [clean(text) if isinstance(text := info.get(name), str) else "" for name in names]
        times = [extract.timestamp(info, name) for name in ("created", "updated", "archived")]
        self._directory = texts[1]
        sql = (
            "UPDATE session SET project=?, directory=?, parent=?, title=?, created=?, updated=?, archived=? WHERE id=?"
        )
        self._writer.db.execute(sql, [*texts, *times, self._number])
        old = self._writer.indexed_parts("session = ? AND message IS NULL", self._number).get("")
        owner = PartOwner(self._number, None, times[1] or times[0])
        self._writer.write_part(owner, "", extract.of_title(texts[3]), old=old)

    def write_messages(self, *, full: bool) -> None:
        """Write its messages and parts."""
        known = {name: message.fingerprint for name, message in self._known.items()}
        full = full or len(self._feeds) > 1
        streams = [feed.message_states(self._session, known, full=full) for feed in self._feeds]
        states = list(merge_states(streams))
        self._read_messages(
            {
                state.id: state.fingerprint
                for state in states
                if state.fingerprint == UNSTABLE or state.fingerprint != known.get(state.id)
            }
        )
        for name in known.keys() - {state.id for state in states}:
            self._writer.remove_message(self._known.pop(name).id)
        to_read: PartsToRead = {}
        for state in states:
            if state.parts is None:
                continue
            condition, number = "message = ? AND name != ''", self._known[state.id].id
            old_parts = {} if state.id in self._new else self._writer.indexed_parts(condition, number)
            for name, fingerprint in state.parts.items():
                old = old_parts.pop(name, None)
                if old is None or fingerprint == UNSTABLE or old.fingerprint != fingerprint:
                    to_read[state.id, name] = fingerprint, old
            self._writer.remove_parts(old.id for old in old_parts.values())
        for message, name, part in self._part_records(list(to_read)):
            fingerprint, old = to_read.pop((message, name))
            message_row = self._known[message]
            owner = PartOwner(self._number, message_row.id, message_row.time, self._directory)
            self._writer.write_part(owner, name, extract.of_part(part, message_row.role), fingerprint, old)
        for (message, name), (fingerprint, old) in to_read.items():  # damaged: not read again until it changes
            owner = PartOwner(self._number, self._known[message].id, 0)
            self._writer.write_part(owner, name, None, fingerprint, old)

    def _read_messages(self, fingerprints: Mapping[str, int]) -> None:
        """Read some messages, and write their rows and errors."""
        copies: dict[str, list[Document]] = {}
        for feed in self._feeds if fingerprints else ():
            for record in feed.messages(self._session, list(fingerprints)):
                document = read_document(feed, record)
                if document is not None:
                    copies.setdefault(record.id, []).append(document)
        for name, fingerprint in fingerprints.items():
            info = most_complete("message", copies.get(name, ())) or {}
            created = extract.timestamp(info, "created")
            if not created:
                with suppress(InvalidIDError):
                    created = timestamp_of(name)
            role = role if isinstance(role := info.get("role"), str) else ""
            texts = [clean(text) for text in (role, extract.agent_of(info), extract.model_of(info))]
            values = [fingerprint, *texts, created, extract.is_unfinished(info)]
            old = self._known.get(name)
            if old is None:
                number = self._writer.add_message(self._number, name, values)
                self._new.add(name)
                error = None
            else:
                number = old.id
                self._writer.db.execute(_UPDATE_MESSAGE, [*values, number])
                error = self._writer.indexed_parts("message = ? AND name = ''", number).get("")
            self._writer.write_part(PartOwner(self._number, number, created), "", extract.of_message(info), old=error)
            self._known[name] = IndexedMessage(number, fingerprint, texts[0], created)

    def _part_records(self, ids: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Document]]:
        """Read parts, the most complete copy of each; one at a time if there is one store."""
        copies: dict[tuple[str, str], Document] = {}
        for feed in self._feeds if ids else ():
            for record in feed.parts(self._session, ids):
                document = read_document(feed, record)
                if document is None:
                    continue
                if len(self._feeds) == 1:
                    yield record.message_id, record.id, document
                    continue
                key = record.message_id, record.id
                copies[key] = most_complete("part", (copies.get(key, document), document)) or document
        for (message, name), document in copies.items():
            yield message, name, document


def read_document(feed: ChangeFeed, record: RawRecord) -> Document | None:
    """Decode a record; if it is damaged, report that to the feed."""
    try:
        return record.document()
    except RecordError as error:
        feed.damage.append(Damage(record.path, error.detail))
        return None
