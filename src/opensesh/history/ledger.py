"""What every session of a store used, kept so that asking again costs next to nothing.

A ledger is derived and disposable: it lies in the cache folder, one file a store, and is brought up to date whenever
it is opened. In a JSON tree a session is read again when its folder of messages has changed; an answer that was not
finished is looked at each time. What nobody does is to change a *finished* answer without touching its folder, so
that is not looked for; ``fresh`` reads everything anyway.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import RecordError
from ..records import as_object, codec
from ..storage.json_tree import JsonTree, read_file
from ..storage.store import Damage, Store, log_damage
from ..storage.union import Union
from .figures import Account, Entry, account, in_time
from .forks import is_suspect
from .ledger_cache import cache_file, database_marks, folders, keep, load, mark, records, session_files, settled
from .repricing import Prices, Repricer, table_mark
from .spending import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Report = Callable[[Damage], None]

_VERSION = 1


class Facts(Struct, array_like=True, gc=False):
    """What a session's record says that the sums depend on."""

    id: str
    project: str = ""
    parent: str = ""
    title: str = ""
    directory: str = ""
    created: int = 0
    updated: int = 0
    fork: str = ""
    """The session it says it was copied from; only 2.x says so."""
    archived: bool = False


class _Held(Struct, array_like=True):
    """An account, and by what it is known to be up to date."""

    account: Account
    folder: int
    """When the folder of messages last changed, in nanoseconds; 0 if that was too recent to rely on."""
    watched: list[tuple[str, int, int]] = []
    """Messages that may still change in place: name, time of change, size."""
    damage: list[tuple[str, str]] = []


class _File(Struct, array_like=True):
    """A ledger as kept in the cache."""

    version: int = 0
    table: list[tuple[str, int, int]] = []
    prices: Prices = Prices("", "")
    store: list[tuple[str, int, int]] = []
    """For a database: its files. Nothing in it changes while they do not."""
    facts: dict[str, tuple[int, int, Facts]] = {}
    """By place below ``session/``, with the time of change and size of the file."""
    accounts: dict[str, _Held] = {}
    damage: list[tuple[str, str]] = []


class Ledger:
    """The accounts of a store's sessions."""

    def __init__(
        self,
        store: Store,
        facts: dict[str, Facts],
        accounts: dict[str, Account],
        prices: Prices,
        read: Callable[[str], list[Entry]],
        members: Sequence[Ledger] = (),
    ) -> None:
        self.store = store
        self.members = members
        """For several stores together: the ledger of each."""
        self.facts = facts
        """By session; a session whose record is gone or torn has an account but no facts."""
        self.accounts = accounts
        self.prices = prices
        self._read = read

    def entries(self, session: str) -> list[Entry]:
        """The messages of a session, one by one."""
        held = self.accounts[session].entries
        return in_time(self._read(session)) if held is None else held


def open_ledger(
    store: Store, *, repricer: Repricer | None = None, fresh: bool = False, report: Report = log_damage
) -> Ledger:
    """The ledger of ``store``, up to date. With a ``repricer`` of your own, or ``fresh``, the cache is left alone."""
    own = repricer is not None
    repricer = repricer or Repricer()
    if isinstance(store, Union):
        from .mergers import merged

        parts = [
            open_ledger(each, repricer=repricer if own else None, fresh=fresh, report=report) for each in store.members
        ]
        return merged(store, parts)
    path = "" if own or fresh else cache_file("ledger", store)
    if isinstance(store, JsonTree):
        return _Tree(store, repricer, path).ledger(report)
    return _Whole(store, repricer, path).ledger(report)


class _Keeper:
    """What the two kinds of ledger have in common: the file in the cache."""

    def __init__(self, store: Store, repricer: Repricer, path: str) -> None:
        self.store = store
        self.repricer = repricer
        self.path = path
        self.table = table_mark() if path else []
        self.held = self._load()
        self.changed = False

    def _load(self) -> _File:
        found = load(self.path, _File)
        return found if found and (found.version, found.table) == (_VERSION, self.table) else _File()

    def prices(self) -> Prices:
        """The table in use: as remembered, if nothing had to be priced anew."""
        return self.held.prices if self.held.prices.date else self.repricer.prices


class _Tree(_Keeper):
    """The ledger of a JSON tree."""

    store: JsonTree

    def ledger(self, report: Report) -> Ledger:
        root = self.store.root
        known = self._facts(report)
        reader = Reader(self.repricer, self._parts)
        newest = {facts.id: facts for _, _, facts in sorted(known.values(), key=lambda found: found[2].updated)}
        accounts: dict[str, _Held] = {}
        for session, changed in folders(os.path.join(root, "message")):
            held = self.held.accounts.get(session)
            if held is None or not self._is_current(held, changed):
                held = self._account(session, changed, reader, newest.get(session))
                self.changed = True
            accounts[session] = held
            for place, reason in held.damage:
                report(Damage(place, reason))
        prices = self.prices()
        if self.changed or len(accounts) != len(self.held.accounts) or len(known) != len(self.held.facts):
            keep(self.path, _File(_VERSION, self.table, prices, [], known, accounts))
        return Ledger(
            self.store,
            newest,
            {session: held.account for session, held in accounts.items()},
            prices,
            lambda session: self._read(session, reader)[0],
        )

    def _facts(self, report: Report) -> dict[str, tuple[int, int, Facts]]:
        found: dict[str, tuple[int, int, Facts]] = {}
        for project, entry in session_files(os.path.join(self.store.root, "session")):
            place = f"{project}/{entry.name}"
            status = entry.stat()
            held = self.held.facts.get(place)
            if held is None or held[:2] != (status.st_mtime_ns, status.st_size):
                try:
                    document = codec.loads_object(read_file(entry.path), entry.path)
                except (OSError, RecordError) as error:
                    report(Damage(entry.path, error.reason if isinstance(error, RecordError) else str(error)))
                    continue
                facts = session_facts(document, project, entry.name[:-5])
                held = (settled(status.st_mtime_ns), status.st_size, facts)
                self.changed = True
            found[place] = held
        return found

    def _is_current(self, held: _Held, changed: int) -> bool:
        if held.folder != changed:
            return False
        folder = os.path.join(self.store.root, "message", held.account.session)
        return all(mark(os.path.join(folder, name)) == (when, size) for name, when, size in held.watched)

    def _account(self, session: str, changed: int, reader: Reader, facts: Facts | None) -> _Held:
        entries, watched, damage = self._read(session, reader)
        return _Held(
            account(session, entries, keep=is_suspect(facts, min((entry.created for entry in entries), default=0))),
            settled(changed),
            watched,
            damage,
        )

    def _read(
        self, session: str, reader: Reader
    ) -> tuple[list[Entry], list[tuple[str, int, int]], list[tuple[str, str]]]:
        folder = os.path.join(self.store.root, "message", session)
        entries: list[Entry] = []
        watched: list[tuple[str, int, int]] = []
        damage: list[tuple[str, str]] = []
        for name in records(folder):
            path = os.path.join(folder, name)
            try:
                entry = reader.parse(name[:-5], read_file(path), path)
                if entry.role == "assistant" and not entry.completed:
                    watched.append((name, *mark(path)))
                    entry = reader.parse(name[:-5], read_file(path), path)  # as it was at that mark, or later
            except FileNotFoundError:
                continue
            except (OSError, RecordError) as error:
                damage.append((path, error.reason if isinstance(error, RecordError) else str(error.strerror or error)))
                watched.append((name, *mark(path)))
            else:
                entries.append(entry)
        return entries, watched, damage

    def _parts(self, message: str) -> Iterator[Any]:
        folder = os.path.join(self.store.root, "part", message)
        for name in records(folder):
            try:
                yield codec.loads(read_file(os.path.join(folder, name)))
            except (OSError, RecordError):
                continue


class _Whole(_Keeper):
    """The ledger of any other store: read as a whole, and kept if the store is a file that tells when it changed."""

    def ledger(self, report: Report) -> Ledger:
        marks = database_marks(self.store.place)
        reader = Reader(self.repricer, self._parts)
        if not marks or self.held.store != marks:
            self.held = self._read_all(reader, marks)
        for place, reason in self.held.damage:
            report(Damage(place, reason))
        return Ledger(
            self.store,
            {facts.id: facts for _, _, facts in self.held.facts.values()},
            {session: held.account for session, held in self.held.accounts.items()},
            self.prices(),
            lambda session: self._entries(session, reader, []),
        )

    def _read_all(self, reader: Reader, marks: list[tuple[str, int, int]]) -> _File:
        damage: list[tuple[str, str]] = []
        heard = _listener(damage)
        facts: dict[str, Facts] = {}
        for key, value in self.store.scan(("session",), report=heard):
            document = as_object(value)
            if document is not None:
                found = session_facts(document, key[1], key[-1])
                facts[found.id] = max(facts.get(found.id, found), found, key=lambda each: each.updated)
        sessions: dict[str, list[Entry]] = {}
        for key, value in self.store.scan(("message",), report=heard):
            entry = self._entry(reader, key[-1], value, damage)
            if entry:
                sessions.setdefault(key[1], []).append(entry)
        held = {name: self._summed(name, entries, facts.get(name)) for name, entries in sessions.items()}
        known = {name: (0, 0, found) for name, found in facts.items()}
        file = _File(_VERSION, self.table, self.repricer.prices, marks, known, held, damage)
        if marks:
            keep(self.path, file)
        return file

    def _summed(self, session: str, entries: list[Entry], facts: Facts | None) -> _Held:
        return _Held(account(session, entries, keep=is_suspect(facts, min(each.created for each in entries))), 0)

    def _entries(self, session: str, reader: Reader, damage: list[tuple[str, str]]) -> list[Entry]:
        found = self.store.scan(("message", session), report=_listener(damage))
        entries = (self._entry(reader, key[-1], value, damage) for key, value in found)
        return [entry for entry in entries if entry]

    def _entry(self, reader: Reader, name: str, value: Any, damage: list[tuple[str, str]]) -> Entry | None:
        place = f"{self.store.place}#message/{name}"
        try:
            return reader.read(name, as_object(value) or {}, place)
        except RecordError as error:
            damage.append((place, error.reason))
            return None

    def _parts(self, message: str) -> Iterator[Any]:
        for _, part in self.store.scan(("part", message), report=_listener([])):
            yield part


def session_facts(document: dict[str, Any], project: str, name: str) -> Facts:
    """What a session's record says. Its file's place speaks where the record does not, and for its name in any case."""
    stamps = as_object(document.get("time")) or {}
    created, updated = _moment(stamps.get("created")), _moment(stamps.get("updated"))
    fork = as_object(document.get("fork")) or {}
    texts = {key: value for key in ("parentID", "title", "directory") if isinstance(value := document.get(key), str)}
    return Facts(
        id=name,
        project=project,
        parent=texts.get("parentID", ""),
        title=texts.get("title", ""),
        directory=texts.get("directory", ""),
        created=created,
        updated=updated or created,
        fork=str(fork.get("sessionID") or ""),
        archived=bool(stamps.get("archived")),
    )


def _moment(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def _listener(damage: list[tuple[str, str]]) -> Report:
    return lambda found: damage.append((found.path, found.reason))
