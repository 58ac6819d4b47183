"""The contract of a store, and the protocols of its optional capabilities.

Every store implements :class:`Store`. What only some stores can do is a protocol of its own, asked for with
``isinstance(store, SessionQueries)``, never by the class of the store:

* :class:`LeaseProvider`: who runs a session,
* :class:`SessionQueries`: filter, order and limit sessions without reading every record,
* :class:`~opensesh.storage.change_feeds.ChangeFeedProvider`: which records changed since a cache was written,
* :class:`LiveEvents`: changes made by other users of the store,
* :class:`StreamJournalProvider`: text of parts that are still being streamed,
* :class:`ConventionsProvider`: how the OpenCode that uses the store names projects and snapshots,
* :class:`ConditionallyWritable`: why a store is only read,
* :class:`CanonicalRecords`: the form in which a store keeps records,
* :class:`SharedSessions`: what other programs are doing with its sessions,
* :class:`RawRows`: rows in tables, for repairs that replace any of them,
* :class:`FileTree`: one file a record, for maintenance that works on files,
* :class:`CompositeStore`: several stores as one; :func:`member_stores` returns the stores it consists of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ..errors import NotFoundError, RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from ..errors import StoreError
    from ..records import Document
    from .leases import Holder
    from .locks import Locks
    from .queries import SessionQuery
    from .stream_journal import StreamJournals

    Report = Callable[["Damage"], None]
    """Is called for each record that cannot be read."""
    Subscriber = Callable[[Sequence["RecordChange"]], None]

Key = tuple[str, ...]
"""``("message", sessionID, messageID)`` and the like. See :mod:`opensesh.storage.keys`."""


class Damage(NamedTuple):
    """A record that could not be read. It was left where it is."""

    path: str
    reason: str


def unreadable(path: str, error: StoreError) -> Damage:
    """Return the damage that stands for a whole store that cannot be opened."""
    return Damage(path, error.message.removeprefix(f"{path}: "))


class StoredMessage(NamedTuple):
    """A message and its parts, in order."""

    info: Document
    parts: list[Document]


def log_damage(damage: Damage) -> None:
    """Log a warning: the default for every ``report`` argument."""
    import logging

    logging.getLogger("opensesh.storage").warning("%s: %s", damage.path, damage.reason)


def ignore_damage(_: Damage) -> None:
    """Do nothing: the ``report`` argument of callers that cannot do anything about damage."""


def read_or_none(store: Store, key: Key) -> Any:
    """Return a record; ``None`` if it is missing or cannot be read, for callers to whom both are the same."""
    try:
        return store.read(key)
    except (NotFoundError, RecordError):
        return None


class Batch(Protocol):
    """Writes and removals that are applied together. See :meth:`Store.batch`."""

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` when the batch is applied. It is encoded now; later changes to it have no effect."""
        ...

    def remove(self, key: Key) -> None:
        """Remove the record when the batch is applied. A missing record is not an error."""
        ...


class Store(Protocol):
    """Keeps records by key. All methods are synchronous; the engine calls them from threads.

    **Values** are JSON: usually an object, an array for ``session_diff`` and ``todo``. A store keeps no reference to a
    value that was passed in or returned. Fields, known or unknown, and their order are preserved.

    **Order.** ``list`` and ``scan`` return records in key order (code points). That is *not* chronological order;
    ``messages`` is chronological.

    **Atomicity.** ``write`` and ``update`` replace a whole record. A concurrent reader, in any thread or process, sees
    the old record or the new one, never a mixture. ``update`` excludes every other ``update`` and ``write`` of that
    key, so nothing is lost between its read and its write. Only :meth:`batch` says anything about several keys.

    **Durability.** When a write returns, the record survives the death of the process and, unless the store was opened
    with relaxed durability, a power cut. A write that raises has changed nothing.

    **Cancellation.** No operation waits for anything except a lock, which is held for one operation at a time. An
    exception raised by ``edit`` leaves the record as it was. Threads cannot be cancelled: a caller that stops waiting
    must expect the write to happen.

    **Damage.** ``read`` and ``update`` raise :class:`~opensesh.errors.RecordError` for a record that cannot be read.
    ``scan`` and ``messages`` skip it and pass it to ``report``. No store deletes or rewrites such a record on its own.
    """

    @property
    def id(self) -> str:
        """Text that identifies the store: the same for every object that opens it, in any process and directory.

        State that is kept beside a store (locks, leases, caches, journals) is keyed by it. For a store at a path it is
        the real path.
        """
        ...

    @property
    def place(self) -> str:
        """Where the store is, as a user would pass it to ``--store``."""
        ...

    @property
    def writable(self) -> bool:
        """Whether records can be written. Otherwise every write raises :class:`~opensesh.errors.ReadOnlyStoreError`."""
        ...

    def locate(self, key: Key) -> str:
        """Return where the record is (or would be), for messages to users."""
        ...

    def read(self, key: Key) -> Any:
        """Return the record, or raise :class:`~opensesh.errors.NotFoundError`."""
        ...

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` in place of the current record, if there is one."""
        ...

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read the record, let ``edit`` change it in place, store it and return it.

        ``edit`` runs under the lock of that key and must not call the store. A missing record raises
        :class:`~opensesh.errors.NotFoundError`: nothing is created.
        """
        ...

    def remove(self, key: Key) -> None:
        """Remove the record. A missing record is not an error."""
        ...

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """Return the keys below ``prefix``, sorted; an empty sequence if there are none."""
        ...

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Iterate over every readable record below ``prefix``, in key order, reading lazily."""
        ...

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """Return a session's messages with their parts, oldest first; with ``last``, only that many of the newest.

        Reading the last few does not read the rest. A session that does not exist has no messages.
        """
        ...

    def batch(self) -> AbstractContextManager[Batch]:
        """Collect writes and removals, and apply them together at the end of the ``with`` block.

        Nothing is applied if the block raises, or if a value cannot be encoded or staged. Operations are applied in
        the order of the calls. A store that can (memory, a database) applies all of them atomically. Any other store
        promises that readers, and a store after a crash, see the first operations of the batch without the later
        ones, never the reverse: a caller therefore writes parts before their message, and messages before their
        session. A read inside the block does not see the batch.
        """
        ...

    def close(self) -> None:
        """Release connections and files. Closing twice is not an error; any other use after closing is one."""
        ...


# -- optional capabilities ---------------------------------------------------------------------------------------------


@runtime_checkable
class CompositeStore(Store, Protocol):
    """Several stores as one. A record may be in more than one of them."""

    @property
    def members(self) -> Sequence[Store]:
        """The stores. New records go to the first."""
        ...

    def store_for_write(self, key: Key) -> Store:
        """Return the member that a write of this key goes to."""
        ...

    def stores_with(self, key: Key) -> list[Store]:
        """Return every member that has a readable copy of the record."""
        ...


def member_stores(store: Store) -> list[Store]:
    """Return the stores that a store consists of: its members' members and so on, or only itself."""
    if isinstance(store, CompositeStore):
        return [leaf for member in store.members for leaf in member_stores(member)]
    return [store]


def store_ids(store: Store) -> list[str]:
    """Return the ids that a store is known by: those of its members, then its own. New records go to the first."""
    members = member_stores(store)
    return [member.id for member in members] if members == [store] else [*(member.id for member in members), store.id]


class Lease(Protocol):
    """The right to run one session, until :meth:`release` or the end of the ``with`` block."""

    session_id: str
    holder: Holder
    previous: Holder | None
    """The holder that died without a release, if there was one: its work may need recovery."""

    def heartbeat(self) -> None:
        """Record that the runner is alive. A failure, or a call after the release, is ignored."""
        ...

    def release(self) -> None:
        """Give the lease up. Releasing twice is not an error."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.release()


class Leases(Protocol):
    """The leases of a store's sessions."""

    def acquire(self, session_id: str, owner: str) -> Lease:
        """Become the session's runner, or raise :class:`~opensesh.errors.BusyError` naming the current one.

        The lease of a runner that died is taken over at once; :attr:`Lease.previous` is then that runner.
        """
        ...

    def holder(self, session_id: str) -> Holder | None:
        """Return who runs the session now, or ``None``."""
        ...

    def held(self) -> list[tuple[str, Holder]]:
        """Return the sessions that run now, with their runners."""
        ...

    def abandoned(self) -> list[tuple[str, Holder]]:
        """Return the sessions whose runner died before it released the lease."""
        ...


@runtime_checkable
class LeaseProvider(Protocol):
    """A store that decides who runs a session.

    At most one lease of a session is held at any time, among all users of the store that the store can reach: threads
    of one process for :class:`~opensesh.storage.memory.Memory`, processes of one host for the JSON tree. A lease ends
    with its holder's process. Two objects that open the same store share their leases. For other stores, use
    :func:`opensesh.storage.leases.leases_of`.
    """

    def leases(self) -> Leases:
        """Return the leases of this store."""
        ...


@runtime_checkable
class SessionQueries(Protocol):
    """A store that filters, orders and limits sessions itself.

    Results equal those of a ``scan`` of ``("session",)`` filtered with
    :meth:`SessionQuery.matches() <opensesh.storage.queries.SessionQuery.matches>`: newest update first, then by id.
    Records that cannot be read are reported and do not count towards the limit. The cost depends on the number of
    results, not on the number of sessions, as far as the store has an index for the query.
    """

    def query_sessions(self, query: SessionQuery, *, report: Report = log_damage) -> Sequence[tuple[Key, Document]]:
        """Return the selected sessions, newest first."""
        ...

    def count_sessions(self, query: SessionQuery) -> int:
        """Return how many sessions are selected, ignoring the limit. Unreadable records may be counted."""
        ...


class RecordChange(NamedTuple):
    """A record that was written or removed."""

    key: Key
    removed: bool
    own: bool
    """Whether the change was made through this store object, rather than by another user of the store."""


@runtime_checkable
class LiveEvents(Protocol):
    """A store that reports changes while they happen, including those of other processes.

    Every change that is applied after :meth:`subscribe` returned is reported once, after it can be read. The changes
    of one record are reported in their order, and those of a batch in one call where the store applies it atomically.
    The callback runs in a thread of the store's choice and must return quickly; it may read from the store but not
    write to it. An exception that it raises is logged and does not affect the write. Changes of before the
    subscription, and those missed while no subscription existed, are not reported.
    """

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call ``callback`` for every change from now on, until the returned function is called."""
        ...


@runtime_checkable
class StreamJournalProvider(Protocol):
    """A store whose :meth:`Store.messages` includes text that its runner has not stored yet, but put in a journal."""

    def stream_journals(self) -> StreamJournals:
        """Return the journals beside this store."""
        ...


class Conventions(NamedTuple):
    """How a version of OpenCode names projects and snapshots, and describes sessions. The defaults are those of 1.1."""

    projects_by_head: bool = False
    """Whether HEAD, and not all branches, has the root commit that identifies a project, and whether a link to a
    directory is followed (1.2.27 and later)."""
    projects_by_remote: bool = False
    """Whether a project is identified by its remote, if it has one (1.15.11 and later)."""
    keeps_cached_projects: bool = False
    """Whether a project that is stored under the id in ``.git/opencode`` stays there until OpenCode moves it.

    The tables of 1.15.13 may also be those of a version before 1.15.11, which shows only sessions under that id. The
    later one moves them to the id of the remote when it opens the project.
    """
    snapshots_by_worktree: bool = False
    """Whether each worktree of a project has snapshots of its own (1.3.3 and later)."""
    sessions_have_paths: bool = False
    """Whether a session has its path within the checkout (1.14 and later)."""
    diffs_are_patches: bool = False
    """Whether the changes of a file are stored as a unified diff (1.14 and later), and not as both texts."""


@runtime_checkable
class ConventionsProvider(Protocol):
    """A store that tells which version of OpenCode uses it."""

    @property
    def conventions(self) -> Conventions:
        """The conventions for new sessions."""
        ...


def conventions_of(store: Store) -> Conventions:
    """Return the conventions of the OpenCode that will see the new sessions of a store."""
    first = member_stores(store)[0]
    return first.conventions if isinstance(first, ConventionsProvider) else Conventions()


@runtime_checkable
class ConditionallyWritable(Store, Protocol):
    """A store that is written under conditions, such as a database of a version that is known."""

    @property
    def refusal(self) -> str:
        """Why the store is only read; empty if it is written."""
        ...


@runtime_checkable
class CanonicalRecords(Protocol):
    """A store that keeps records in a form of its own, and refuses those that do not have it."""

    def canonical_record(self, key: Key, value: Any) -> Any:
        """Return a record as it is read after it was written, or raise :class:`~opensesh.errors.RecordError`."""
        ...

    def check_restorable(self, key: Key, stored: Any) -> None:
        """Raise :class:`~opensesh.errors.RecordError` if a stored record would be refused if it were written again."""
        ...


@runtime_checkable
class SharedSessions(Protocol):
    """A store whose sessions another program may run at the same time, without taking a lease."""

    def foreign_run(self, session_id: str) -> str:
        """Return which other program seems to be running a session now, and why; empty if none does."""
        ...

    def foreign_messages(self, session_id: str, known: Collection[str]) -> list[str]:
        """Return the ids of messages of a session that are neither ``known`` nor written through this object."""
        ...


@runtime_checkable
class FileTree(Store, Protocol):
    """A store that keeps each record in the file ``<root>/<key>.json``, so that maintenance can work on files."""

    @property
    def root(self) -> str:
        """The folder, absolute."""
        ...

    @property
    def locks(self) -> Locks:
        """The locks that writers of the tree take."""
        ...

    def keys(self, prefix: Key = ()) -> Iterator[Key]:
        """Iterate over the keys below ``prefix``, a folder at a time: there may be millions."""
        ...


class RawRow(NamedTuple):
    """A row: its path ``<table>/<key>``, its columns, and the record that it holds as far as it can be read."""

    path: str
    columns: dict[str, Any]
    record: Document
    fault: str
    """Why the program that owns the table could not read the row; empty if it could."""


@runtime_checkable
class RawRows(Protocol):
    """A store in tables whose rows can be examined and replaced one by one."""

    def rows(self, table: str) -> Iterator[RawRow]:
        """Iterate over the rows of a table; over none if the store does not have that table."""
        ...

    def row_of(self, table: str, record: Document, columns: dict[str, Any]) -> bytes:
        """Return the row, as JSON, with a record in place of the one it has; raise ``RecordError`` if it is wrong."""
        ...

    def read_row(self, path: str) -> bytes | None:
        """Return a row as JSON; ``None`` if there is none."""
        ...

    def change_rows(self, changes: Sequence[tuple[str, bytes | None]]) -> None:
        """Replace, insert or (``None``) delete rows, all in one transaction, and nothing that belongs to them."""
        ...

    def structural_damage(self) -> list[str]:
        """Return what is wrong with the file itself, which cannot be repaired row by row."""
        ...
