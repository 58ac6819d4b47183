"""Several stores as one: the generations of storage that a data folder holds after years of OpenCode.

A record that is in several stores is returned once. The most complete copy wins, record by record: the session updated
last, the message that was finished, the part with more content. A message has the parts of all stores together.
OpenCode 2.x stores a message as one row, from which parts are derived on reading, and for a compaction a second
message; where another store has these under the ids that 1.x gave them, the derived ones are dropped.

A session is written where it is, with everything that belongs to it; if it is in several stores, where it was updated
last. A new session goes to the first store, and so do projects, which new sessions need there.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from heapq import merge
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, RecordError, StoreError
from ..records import as_object, order, plain
from .copies import completeness_key, duplicate_messages, duplicate_parts
from .keys import PER_SESSION, SUMMARY, check_key
from .protocol import (
    Key,
    Lease,
    LeaseProvider,
    SharedSessions,
    Store,
    StoredMessage,
    log_damage,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence

    from ..records import Document
    from .leases import Holder
    from .protocol import Leases, Report

    Copies = list[tuple[Store, Any]]
    """The copies of one record, with the stores that they are in."""
    Operation = tuple[Key, tuple[Any] | None]
    """The value of a record to write, in a tuple; ``None`` to remove it."""


class MergedStore:
    """The stores of one data folder, the one for new sessions first.

    A batch is applied member by member, in the order of its operations: it is atomic if the member that it concerns is.
    A lease is one of every member that provides leases, so that it also excludes users of a single member. Queries and
    live events are not offered: a tree, which every data folder has, cannot offer them.
    """

    def __init__(self, folder: str, members: Sequence[Store]) -> None:
        self.place = folder
        """The data folder."""
        self._folder = os.path.abspath(folder)
        self.members = tuple(members)
        self._owners: dict[str, Store] = {}
        """The members that sessions are written to, by session."""
        # Capabilities are attributes of the object, so that isinstance() finds only what the members offer.
        providers = [member for member in members if isinstance(member, LeaseProvider)]
        if providers:
            self.leases = lambda: MergedLeases([provider.leases() for provider in providers])
        if any(isinstance(member, SharedSessions) for member in members):
            self.foreign_run = self._foreign_run
            self.foreign_messages = self._foreign_messages

    @property
    def id(self) -> str:
        """The real path of the data folder."""
        return os.path.realpath(self._folder)

    @property
    def writable(self) -> bool:
        """Whether a member can be written. Records in a member that cannot be written stay read-only."""
        return any(member.writable for member in self.members)

    def locate(self, key: Key) -> str:
        """Return where the copy is that :meth:`read` returns."""
        copies, damaged = self._copies(key)
        store = _most_complete(key, copies)[0] if copies else (damaged or self.members)[0]
        return store.locate(key)

    def store_for_write(self, key: Key) -> Store:
        """Return the member that a write of this key goes to; the first one for a new record."""
        return self._store_for(key, None)

    def stores_with(self, key: Key) -> list[Store]:
        """Return every member that has a readable copy of the record."""
        return [store for store, _ in self._copies(key)[0]]

    def read(self, key: Key) -> Any:
        """Return the most complete copy of the record, or raise :class:`NotFoundError`."""
        copies, damaged = self._copies(key)
        if copies:
            return _most_complete(key, copies)[1]
        store = (damaged or self.members)[0]
        try:
            return store.read(key)
        except StoreError as error:  # a damaged page costs this record, not the command
            raise RecordError(error.message.removeprefix(f"{store.place}: "), path=store.place) from None

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` where its session is; a new session in the first store."""
        self._apply([(check_key(key), (value,))])

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store, in the member that has the record."""
        return self.store_for_write(key).update(key, edit)

    def remove(self, key: Key) -> None:
        """Remove the record from the member that has it."""
        self._apply([(check_key(key), None)])

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """Return the keys below ``prefix``, of all stores."""
        streams = (_with_store(store, ((key, None) for key in _list(store, prefix))) for store in self.members)
        return [key for key, _ in _grouped(merge(*streams, key=_key))]

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Iterate over every readable record below ``prefix``.

        A session is returned once, even if two stores file it under different projects.
        """
        for _, key, value in self.origins(prefix, report=report):
            yield key, value

    def origins(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Store, Key, Any]]:
        """Scan, and return the store of each record as well."""
        preferred: dict[str, Key] = {}  # of the sessions that are filed under several projects
        if prefix[:1] in ((), ("session",)):
            filed: dict[str, set[Key]] = {}
            for store in self.members:
                for key in _list(store, ("session",)):
                    filed.setdefault(key[-1], set()).add(key)
            preferred = {name: self._newest(keys) for name, keys in filed.items() if len(keys) > 1}
        streams = (_with_store(store, _scan(store, prefix, report)) for store in self.members)
        # Every member yields its records in key order, so the copies of a record arrive one after the other.
        for key, copies in _grouped(merge(*streams, key=_key)):
            if key[0] != "session" or preferred.get(key[-1], key) == key:
                store, value = _most_complete(key, copies)
                yield store, key, value

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """Return a session's messages from all stores together, oldest first."""
        by_store: list[Sequence[StoredMessage]] = []
        for store in self.members:
            try:
                by_store.append(store.messages(session_id, last=last, report=report))
            except StoreError as error:
                report(unreadable(store.place, error))
                by_store.append(())
        if sum(map(bool, by_store)) <= 1:
            return next(filter(None, by_store), ())
        duplicates = duplicate_messages([{str(message.info.get("id")) for message in store} for store in by_store])
        copies: dict[str, list[StoredMessage]] = {}
        for message in chain.from_iterable(by_store):
            copies.setdefault(str(message.info.get("id")), []).append(message)
        merged = (_merge_copies(name, same) for name, same in copies.items() if name not in duplicates)
        return sorted(merged, key=lambda message: order.position(message.info))[-last:]

    @contextmanager
    def batch(self) -> Generator[_MergedBatch]:
        """Collect writes and removals, and apply each in the member that has the record."""
        batch = _MergedBatch()
        yield batch
        self._apply(batch.operations)

    def _apply(self, operations: Sequence[Operation]) -> None:
        new_sessions: set[str] = set()
        for session_id in {key[-1] for key, write in operations if key[0] == "session" and write is not None}:
            self._owners.pop(session_id, None)  # it may be a move
            if self._owner(session_id) is None:
                new_sessions.add(session_id)
                self._owners[session_id] = self._first_writable()
        located = [(self._store_for(key, write), (key, write)) for key, write in operations]
        for store, group in groupby(located, key=lambda operation: operation[0]):
            own = [operation for _, operation in group]
            try:
                _apply_to(store, own)
            except StoreError:
                # Damage of a database may show only when it is written, and nothing was. What is new goes where it
                # would have gone had the damage been known; what belongs to a session of the database cannot.
                is_new = all(
                    key[0] == "project" or _session_of(key, write[0] if write else None) in new_sessions
                    for key, write in own
                )
                if store.writable or not (is_new and self.writable):
                    raise
                other = self._first_writable()
                self._owners.update(dict.fromkeys(new_sessions, other))
                _apply_to(other, own)
        for key, write in operations:
            if key[0] == "session" and write is None:
                self._owners.pop(key[-1], None)

    def close(self) -> None:
        """Close every member."""
        for member in self.members:
            member.close()

    # -- capabilities --------------------------------------------------------------------------------------------------

    def _foreign_run(self, session_id: str) -> str:
        owner = self._owner(session_id)
        return owner.foreign_run(session_id) if isinstance(owner, SharedSessions) else ""

    def _foreign_messages(self, session_id: str, known: Collection[str]) -> Sequence[str]:
        owner = self._owner(session_id)
        return owner.foreign_messages(session_id, known) if isinstance(owner, SharedSessions) else []

    # -- where records are written ------------------------------------------------------------------------------------

    def _store_for(self, key: Key, write: tuple[Any] | None) -> Store:
        """Return the member for an operation: that of the record's session if there is one, else the first."""
        if key[0] == "project":
            return self._first_writable()
        copies, damaged = self._copies(key) if key[0] == "part" and write is None else ([], [])
        session_id = _session_of(key, write[0] if write else copies[0][1] if copies else None)
        owner = self._owner(session_id) if session_id else None
        if owner is not None:
            return owner
        if not copies and not damaged:
            copies, damaged = self._copies(key)
        return copies[0][0] if copies else (damaged or self.members)[0]

    def _first_writable(self) -> Store:
        """Return the member that new records go to."""
        return next((member for member in self.members if member.writable), self.members[0])

    def _owner(self, session_id: str) -> Store | None:
        """Return the member that a session is written to: that with the copy updated last."""
        if session_id not in self._owners:
            keys = {key for store in self.members for key in _list(store, ("session",)) if key[-1] == session_id}
            copies = [copy for key in sorted(keys) for copy in self._copies(key)[0]]
            if not copies:
                damaged = [store for key in keys for store in self._copies(key)[1]]
                return damaged[0] if damaged else None
            copies.sort(key=lambda copy: self.members.index(copy[0]))
            self._owners[session_id] = _most_complete(("session",), copies)[0]
        return self._owners[session_id]

    # -- copies --------------------------------------------------------------------------------------------------------

    def _copies(self, key: Key) -> tuple[Copies, list[Store]]:
        """Return the copies of a record that can be read, and the stores whose copy cannot."""
        readable: Copies = []
        damaged: list[Store] = []
        for store in self.members:
            try:
                readable.append((store, store.read(key)))
            except NotFoundError:
                continue
            except (RecordError, StoreError):
                damaged.append(store)
        return readable, damaged

    def _newest(self, keys: Iterable[Key]) -> Key:
        def rank(key: Key) -> tuple[int, int]:
            # By the last update; of two equal ones the copy in the earlier store, which is where a move is written.
            copies = self._copies(key)[0]
            return max(
                ((completeness_key(key, value)[0], -self.members.index(store)) for store, value in copies),
                default=(-1, 0),
            )

        return max(sorted(keys), key=rank)


def _apply_to(store: Store, operations: Sequence[Operation]) -> None:
    """Apply operations to one member, in one batch."""
    with store.batch() as batch:
        for key, write in operations:
            if write is None:
                batch.remove(key)
            else:
                batch.write(key, write[0])


class _MergedBatch:
    """The operations of a batch."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def write(self, key: Key, value: Any) -> None:
        self.operations.append((check_key(key), (plain(value),)))

    def remove(self, key: Key) -> None:
        self.operations.append((check_key(key), None))


class MergedLeases:
    """The leases of several stores as one: a lease holds one of each."""

    def __init__(self, members: Sequence[Leases]) -> None:
        self._members = members

    def acquire(self, session_id: str, owner: str) -> MergedLease:
        """Become the session's runner in every store, or raise :class:`~opensesh.errors.BusyError`."""
        with ExitStack() as stack:
            lease = MergedLease([stack.enter_context(member.acquire(session_id, owner)) for member in self._members])
            stack.pop_all()  # all of them are held: they stay so
        return lease

    def holder(self, session_id: str) -> Holder | None:
        """Return who runs the session now, or ``None``."""
        return next(filter(None, (member.holder(session_id) for member in self._members)), None)

    def held(self) -> list[tuple[str, Holder]]:
        """Return the sessions that run now, with their runners."""
        return list(dict(entry for member in self._members for entry in member.held()).items())

    def abandoned(self) -> list[tuple[str, Holder]]:
        """Return the sessions whose runner died before it released a lease."""
        return list(dict(entry for member in self._members for entry in member.abandoned()).items())


class MergedLease(Lease):
    """One lease of each store. See :class:`~opensesh.storage.protocol.Lease`."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        self._leases = leases
        self.session_id = leases[0].session_id
        self.holder = leases[0].holder
        self.previous = next(filter(None, (lease.previous for lease in leases)), None)

    def heartbeat(self) -> None:
        """Record that the runner is alive."""
        for lease in self._leases:
            lease.heartbeat()
        self.holder = self._leases[0].holder

    def release(self) -> None:
        """Give the leases up. Releasing twice is not an error."""
        for lease in self._leases:
            lease.release()


def _session_of(key: Key, value: Any) -> str:
    """Return the session that a record belongs to, as far as its key or content tells."""
    if key[0] == "session":
        return key[-1]
    if key[0] == "message" or key[0] in PER_SESSION:
        return key[1]
    return str((as_object(value) or {}).get("sessionID") or "") if key[0] == "part" else ""


def _most_complete(key: Key, copies: Copies) -> tuple[Store, Any]:
    return max(copies, key=lambda copy: completeness_key(key, copy[1])) if len(copies) > 1 else copies[0]


def _merge_copies(message_id: str, copies: Sequence[StoredMessage]) -> StoredMessage:
    if len(copies) == 1:
        return copies[0]
    info = max((message.info for message in copies), key=lambda info: completeness_key(("message",), info))
    parts: dict[str, Document] = {}
    for message in copies:
        for part in message.parts:
            name = str(part.get("id"))
            parts[name] = max(parts.get(name, part), part, key=lambda part: completeness_key(("part",), part))
    for name in duplicate_parts(message_id, parts):
        del parts[name]
    return StoredMessage(info, order.parts_in_order(parts.values(), order.created(info)))


def _list(store: Store, prefix: Key) -> Sequence[Key]:
    """Return a member's keys; none, and a note in the log, if it is damaged: the others are still listed."""
    try:
        return store.list(prefix)
    except StoreError as error:
        log_damage(unreadable(store.place, error))
        return ()


def _scan(store: Store, prefix: Key, report: Report) -> Iterator[tuple[Key, Any]]:
    """Iterate over a member's records as far as it can be read; the damage is reported, and costs no other member."""
    try:
        yield from store.scan(prefix, report=report)
    except StoreError as error:
        report(unreadable(store.place, error))


def _with_store(store: Store, records: Iterator[tuple[Key, Any]]) -> Iterator[tuple[Key, Store, Any]]:
    for key, value in records:
        yield key, store, value


def _key(entry: tuple[Key, Store, Any]) -> Key:
    return entry[0]


def _grouped(entries: Iterable[tuple[Key, Store, Any]]) -> Iterator[tuple[Key, Copies]]:
    """Group records, which come in key order, by key, and drop duplicates under other ids."""

    def neighbourhood(entry: tuple[Key, Store, Any]) -> Key:
        # Records that must be seen together: a message's parts, and the two messages of a compaction, which sort so.
        key = entry[0]
        return key[:2] if key[0] == "part" else (*key[:-1], key[-1].removesuffix(SUMMARY))

    for _, group in groupby(entries, key=neighbourhood):
        records = list(group)
        duplicates = _duplicates(records)
        for key, copies in groupby(records, key=_key):
            if key[-1] not in duplicates:
                yield key, [(store, value) for _, store, value in copies]


def _duplicates(records: Sequence[tuple[Key, Store, Any]]) -> set[str]:
    first = records[0][0]
    if first[0] == "part":
        return duplicate_parts(first[1], {key[-1] for key, _, _ in records})
    if first[0] != "message" or len(records) == 1:
        return set()
    by_store: dict[int, set[str]] = {}
    for key, store, _ in records:
        by_store.setdefault(id(store), set()).add(key[-1])
    return duplicate_messages(list(by_store.values()))
