"""What every session of a store used, kept so that asking again costs next to nothing.

A ledger is derived and disposable: it lies in the cache folder, one file a store, and is brought up to date whenever
it is opened. In a JSON tree a session is read again when its folder of messages has changed; an answer that was not
finished is looked at each time. What nobody does is to change a *finished* answer without touching its folder, so
that is not looked for; ``fresh`` reads everything anyway. A database is read again when its file has changed.

As long as nothing has to be read again, nothing is imported that could.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import StoreError
from ...storage.protocol import Damage, FileTree, log_damage, member_stores, unreadable
from .accounts import SessionUsage, UsageBucket, UsageEntry, in_time
from .cache_files import cache_file, database_marks, load, mark, save, settled
from .packed import Packed, pack, unpack
from .repricing import Prices, Repricer, table_mark
from .tree_folders import folders, session_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...storage.locations import StoreLocations
    from ...storage.protocol import Store
    from .cache_files import Mark
    from .ledger_reading import StoreReading, TreeReading

    Report = Callable[[Damage], None]
    Told = tuple[str, str]

_VERSION = 6


class SessionInfo(NamedTuple):
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


def packed_account(
    account: SessionUsage, folder: int = 0, watched: Sequence[Mark] = (), damage: Sequence[Told] = ()
) -> bytes:
    """An account, and by what it is known to be up to date, packed: ``folder`` is when the folder of messages last
    changed, in nanoseconds, 0 if that was too recent to rely on; ``watched`` are messages that may still change in
    place."""
    entries = None if account.entries is None else [tuple(entry) for entry in account.entries]
    plain = (account.session, [tuple(cell) for cell in account.cells], *account[2:5], entries)
    return pack((folder, [*watched], [*damage], plain))


class CachedLedger(NamedTuple):
    """A ledger as kept in the cache."""

    version: int = 0
    table: Sequence[Mark] = ()
    prices: Prices = Prices("", "")
    store: Sequence[Mark] = ()
    """For a database: its files. Nothing in it changes while they do not."""
    facts: Mapping[str, bytes] = {}
    """By place below ``session/``: the time of change and size of the file, and what it says; packed."""
    accounts: Mapping[str, bytes] = {}
    """By session: what :func:`packed_account` made."""
    damage: Sequence[tuple[str, str]] = ()


class Ledger:
    """The accounts of a store's sessions."""

    def __init__(
        self,
        place: str,
        facts: Mapping[str, SessionInfo],
        accounts: Mapping[str, SessionUsage],
        prices: Prices,
        read: Callable[[str], list[UsageEntry]],
        members: Sequence[Ledger] = (),
        store: Store | None = None,
    ) -> None:
        self.place = place
        self.facts = facts
        """By session; a session whose record is gone or torn has an account but no facts."""
        self.accounts = accounts
        self.prices = prices
        self.members = members
        """For several stores together: the ledger of each."""
        self.store = store
        """For a store that was open already, and is no tree: the store."""
        self.watched: list[Mark] = [each for member in members for each in member.watched]
        """Files that may change without their folders doing so."""
        self._read = read

    def entries(self, session: str) -> list[UsageEntry]:
        """The messages of a session, one by one."""
        held = self.accounts[session].entries
        return in_time(self._read(session)) if held is None else held


def ledger_at(found: StoreLocations, *, fresh: bool = False, report: Report = log_damage) -> Ledger:
    """The ledger of the stores at a place, up to date. Stores that have not changed are not even opened."""
    ledgers = [] if found.tree is None else [_TreeMaker(found.tree, None, fresh=fresh).ledger(report)]
    for path in found.databases:
        try:
            ledgers.append(_StoreMaker(path, None, fresh=fresh).ledger(report))
        except StoreError as error:
            others = (found.tree, *found.databases)
            if not any(each and each != path and os.path.exists(each) for each in others):
                raise
            report(unreadable(path, error))
    return _together(found.place, ledgers)


def open_ledger(
    store: Store, *, repricer: Repricer | None = None, fresh: bool = False, report: Report = log_damage
) -> Ledger:
    """The ledger of ``store``, up to date. With a ``repricer`` of your own, or ``fresh``, the cache is left alone."""
    ledgers = [
        _TreeMaker(member.root, repricer, fresh=fresh).ledger(report)
        if isinstance(member, FileTree)
        else _StoreMaker(member.place, repricer, fresh=fresh, store=member).ledger(report)
        for member in member_stores(store)
    ]
    return _together(store.place, ledgers)


def _together(place: str, ledgers: list[Ledger]) -> Ledger:
    if len(ledgers) == 1:
        return ledgers[0]
    from .ledger_merging import merged

    return merged(place, ledgers)


class _Maker:
    """What the two kinds of ledger have in common: the file in the cache, and the prices."""

    def __init__(self, place: str, repricer: Repricer | None, *, fresh: bool, store: Store | None = None) -> None:
        self.place = place
        self.repricer = repricer or Repricer()
        self.path = "" if repricer or fresh else cache_file("ledger", place)
        self.table = table_mark() if self.path else []
        self.cached = _load(self.path, place, self.table)
        self._store = store

    def prices(self) -> Prices:
        """The table in use: as remembered, if nothing had to be priced anew."""
        return self.cached.prices if self.cached.prices.date else self.repricer.prices


class _TreeMaker(_Maker):
    """The ledger of a JSON tree."""

    @cached_property
    def reading(self) -> TreeReading:
        """Reads what has to be read."""
        from .ledger_reading import TreeReading

        return TreeReading(self.place, self.repricer)

    def entries(self, session: str) -> list[UsageEntry]:
        """The messages of a session, read anew."""
        return self.reading.entries(session)

    def ledger(self, report: Report) -> Ledger:
        """Bring it up to date."""
        known, changed = self._facts(report)
        newest = facts_of(known)
        accounts: dict[str, bytes] = {}
        watched: list[Mark] = []
        for session, moment in folders(os.path.join(self.place, "message")):
            state = self._known(session, moment)
            if state is None:
                state = self.reading.session(session, newest.get(session), settled(moment))
                changed = True
            packed, marks, damage = state
            accounts[session] = packed
            watched += [(os.path.join(self.place, "message", session, name), when, size) for name, when, size in marks]
            for place, reason in damage:
                report(Damage(place, reason))
        prices = self.prices()
        if changed or len(accounts) != len(self.cached.accounts):
            _save(self.path, self.place, CachedLedger(_VERSION, self.table, prices, (), known, accounts))
        self.cached = CachedLedger()
        ledger = Ledger(self.place, newest, accounts_of(accounts), prices, self.entries)
        ledger.watched = watched
        return ledger

    def _facts(self, report: Report) -> tuple[Mapping[str, bytes], bool]:
        """The facts of every session, and whether they are others than those in the cache."""
        found: dict[str, bytes] = {}
        changed = False
        for project, path, moment, size in session_files(os.path.join(self.place, "session")):
            place = f"{project}/{os.path.basename(path)}"
            held = self.cached.facts.get(place)
            if held is None or unpack(held)[:2] != (moment, size):
                facts = self.reading.facts(project, path, report)
                changed = True
                if facts is None:
                    continue
                held = pack((settled(moment), size, tuple(facts)))
            found[place] = held
        if changed or len(found) != len(self.cached.facts):
            return found, True
        return self.cached.facts, False

    def _known(self, session: str, moment: int) -> tuple[bytes, Sequence[Mark], Sequence[Told]] | None:
        """What is known of a session whose folder of messages changed at ``moment``, if that is up to date."""
        packed = self.cached.accounts.get(session)
        if packed is None:
            return None
        folder, marks, damage, _ = unpack(packed)
        place = os.path.join(self.place, "message", session)
        if folder != moment or any(mark(os.path.join(place, name)) != (when, size) for name, when, size in marks):
            return None
        return packed, marks, damage


class _StoreMaker(_Maker):
    """The ledger of any other store: read as a whole, and kept if the store is a file that tells when it changed."""

    @cached_property
    def reading(self) -> StoreReading:
        """Reads what has to be read."""
        from .ledger_reading import StoreReading

        return StoreReading(self._store or self.place, self.repricer)

    def entries(self, session: str) -> list[UsageEntry]:
        """The messages of a session, read anew."""
        return self.reading.entries(session)

    def ledger(self, report: Report) -> Ledger:
        """Bring it up to date."""
        marks = database_marks(self.place)
        if not marks or list(self.cached.store) != marks:
            facts, accounts, damage = self.reading.everything()
            self.cached = CachedLedger(_VERSION, self.table, self.repricer.prices, marks, facts, accounts, damage)
            if marks:
                _save(self.path, self.place, self.cached)
        for place, reason in self.cached.damage:
            report(Damage(place, reason))
        known, sums = facts_of(self.cached.facts), accounts_of(self.cached.accounts)
        return Ledger(self.place, known, sums, self.prices(), self.entries, store=self._store)


def facts_of(packed: Mapping[str, bytes]) -> Mapping[str, SessionInfo]:
    """Facts by session. One that is filed under two projects, as a move leaves it that was cut short, is what its
    newest record says."""
    places: dict[str, str] = {}
    for place, data in packed.items():
        name = os.path.basename(place).removesuffix(".json")
        before = places.get(name)
        if before is None or _updated(data) >= _updated(packed[before]):
            places[name] = place
    return Packed(packed, lambda found: SessionInfo(*found[2]), places)


def accounts_of(packed: Mapping[str, bytes]) -> Mapping[str, SessionUsage]:
    """Accounts by session."""
    return Packed(packed, lambda found: _restored(found[3]))


def _updated(packed: bytes) -> int:
    return SessionInfo(*unpack(packed)[2]).updated


def _save(path: str, place: str, cached: CachedLedger) -> None:
    facts, accounts = dict(cached.facts), dict(cached.accounts)
    save(path, place, (cached.version, cached.table, cached.prices.plain, cached.store, facts, accounts, cached.damage))


def _load(path: str, place: str, table: Sequence[Mark]) -> CachedLedger:
    found = load(path, place)
    if found is None or found[0] != _VERSION or list(found[1]) != list(table):
        return CachedLedger()
    _, _, prices, store, facts, accounts, damage = found
    return CachedLedger(_VERSION, table, Prices(*prices), store, facts, accounts, damage)


def _restored(plain: tuple[Any, ...]) -> SessionUsage:
    session, cells, first, id_hashes, fingerprints, entries = plain
    known = None if entries is None else [UsageEntry(*entry) for entry in entries]
    return SessionUsage(session, [UsageBucket(*cell) for cell in cells], first, id_hashes, fingerprints, known)
