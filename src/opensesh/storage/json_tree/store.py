"""OpenCode's JSON tree: one file a record, ``<root>/<key>/<key>/<key>.json``."""

from __future__ import annotations

import heapq
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from ... import ids
from ...errors import NotFoundError, RecordError
from ...records import codec, order
from .. import paths
from ..disk import Disk, read_file
from ..keys import check_key, is_plain
from ..locks import Locks
from ..protocol import Damage, Key, StoredMessage, ignore_damage, log_damage
from ..record_ids import with_ids_of_key
from ..stream_journal import StreamJournals, with_streamed_text
from .journal import journaled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from ...records import Document
    from ..change_feeds import ChangeFeed
    from ..protocol import Leases, Report


_SUFFIX = ".json"
_MARGIN = 8
_SLACK_MS = 2_000
_DAY_MS = 86_400_000
_ABSENT = object()
_LARGE_FOLDER = 1_000
_MAX_CACHED_FOLDERS = 8
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system that is still in use ticks every two seconds


class JsonTree:
    """The default store, shared with OpenCode up to 1.1.65. See :class:`~opensesh.storage.protocol.Store`.

    Readers take no lock: a file is replaced whole. Writers of one key exclude each other through a lock file outside
    of the tree, between threads and between processes. OpenCode does not take these locks; a file that it is writing
    in place may be read half-written, and is then reported as damage and readable a moment later.

    A batch first writes every new record to a temporary file, so that a full disk or a bad value changes nothing, and
    then renames and removes in order. See :meth:`batch`.
    """

    writable = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Literal["full", "relaxed"] = "full",
        disk: Disk | None = None,
        locks: Locks | None = None,
    ) -> None:
        self.root = self.place = os.path.abspath(root)
        self._disk = disk or Disk(durable=durability == "full")
        self._listings = Listings()
        self._locks = locks
        self._prepared = False
        self._when_prepared: list[Callable[[], None]] = []

    def change_feed(self) -> ChangeFeed:
        """Return a feed that compares times and sizes of files."""
        from .change_feed import JsonTreeFeed

        return JsonTreeFeed(self.root)

    @property
    def id(self) -> str:
        """The real path of the folder."""
        return os.path.realpath(self.root)

    @property
    def locks(self) -> Locks:
        """The tree's locks, created when first needed: reading needs none."""
        if self._locks is None:
            self._locks = Locks(os.path.join(paths.state(), "locks", paths.digest(self.id)))
        return self._locks

    def leases(self) -> Leases:
        """Return leases that are held with file locks, by one process of this host at a time."""
        from ..leases import FileLeases

        return FileLeases.of(self)

    def stream_journals(self) -> StreamJournals:
        """Return the journals of text that is being streamed."""
        return StreamJournals(self)

    def close(self) -> None:
        """Do nothing: no file stays open between operations."""

    def locate(self, key: Key) -> str:
        """Return the file of a record."""
        return os.path.join(self.root, *check_key(key)) + _SUFFIX

    def read(self, key: Key) -> Any:
        """Return the record, or raise :class:`NotFoundError`."""
        return self._read(self.locate(key))

    def write(self, key: Key, value: Any) -> None:
        """Store ``value`` in place of the current record, if there is one."""
        path, data = self.locate(key), codec.dumps_in_chunks(value)
        with self._lock(key, creates=True):
            self._disk.replace(path, data)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store under the key's lock. ``edit`` must not call the store."""
        path = self.locate(key)
        with self._lock(key):
            value = self._read(path)
            edit(value)
            self._disk.replace(path, codec.dumps_in_chunks(value))
        return value

    def remove(self, key: Key) -> None:
        """Remove the file, and its folder if that is now empty."""
        self.locate(key)  # checks the key, before the lock is named after it
        with self._lock(key):
            self._remove(key)

    @contextmanager
    def batch(self) -> Generator[_TreeBatch]:
        """Stage writes as temporary files, then apply them and the removals in order. Not atomic for readers.

        If the block raises, or a value cannot be staged, no record changes. After a refused rename, the first
        operations are applied and the later ones are not. What a process that was killed has not applied is applied by
        the next command (see :mod:`.journal`), unless the batch is a single message: its parts come first, and nothing
        refers to them without it. Before the batch moves on to another folder, the names in the last one are synced: a
        message is never on disk without the parts that were written before it.
        """
        batch = _TreeBatch(self, self._disk)
        try:
            yield batch
            self._apply(batch.staged)
        finally:
            batch.discard()

    def _apply(self, staged: list[tuple[Key, str | None]]) -> None:
        # A part belongs to its message; every other record stands for itself.
        owners = {key[1] if key[0] == "part" else key[2] if key[0] == "message" else key for key, _ in staged}
        if len(owners) <= 1:
            self._apply_in_order(staged)
            return
        files = [(self.locate(key), temporary) for key, temporary in staged]
        with journaled(self.root, files, durable=self._disk.durable):
            try:
                self._apply_in_order(staged)
            except Exception:
                raise
            except BaseException:
                staged.clear()  # the journal is kept, and needs the temporary files
                raise

    def _apply_in_order(self, staged: list[tuple[Key, str | None]]) -> None:
        unsynced = ""
        for position, (key, temporary) in enumerate(staged):
            path = self.locate(key)
            if unsynced and os.path.dirname(unsynced) != os.path.dirname(path):
                self._disk.sync_name(unsynced)
                unsynced = ""
            with self._lock(key):
                if temporary is None:
                    self._remove(key)  # which syncs the folder
                else:
                    self._disk.move_into_place(temporary, path)
                    staged[position] = (key, None)
            unsynced = "" if temporary is None else path
        if unsynced:
            self._disk.sync_name(unsynced)

    def _remove(self, key: Key) -> None:
        path = self.locate(key)
        self._disk.remove(path)
        if len(key) > 2:
            self._disk.remove_empty(os.path.dirname(path))

    def prepare(self, *, creates: bool = False) -> None:
        """Migrate an old tree, or refuse a newer one. Called before the first write. With ``creates``, a tree that does
        not exist is created with its counter; an update or a removal must not create it."""
        from .migrations import prepare  # reading needs none of it

        prepare(self, self._disk, creates=creates)
        self._prepared = os.path.isdir(self.root)
        for callback in self._when_prepared:
            callback()
        self._when_prepared.clear()

    def when_prepared(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the tree has been prepared for its first write."""
        self._when_prepared.append(callback)

    @contextmanager
    def _lock(self, key: Key, *, creates: bool = False) -> Generator[None]:
        if not self._prepared:
            self.prepare(creates=creates)
        with self.locks.hold(shared=True), self.locks.hold("/".join(key)):
            yield

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """Return the keys below ``prefix``, sorted."""
        return sorted(self.keys(prefix))

    def keys(self, prefix: Key = (), *, report: Report = ignore_damage) -> Iterator[Key]:
        """Iterate over the keys below ``prefix``, a folder at a time. Names that cannot be in a key are reported."""
        folder = self._folder(prefix)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            report(Damage(folder, f"cannot be listed: {error.strerror or error}"))
            return
        for entry in entries:
            if entry.name[0] == ".":
                continue
            if entry.is_dir(follow_symlinks=False):
                if _belongs(entry.name, entry.path, report):
                    yield from self.keys((*prefix, entry.name), report=report)
            elif entry.name.endswith(_SUFFIX) and _belongs(entry.name.removesuffix(_SUFFIX), entry.path, report):
                yield (*prefix, entry.name.removesuffix(_SUFFIX))

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Every readable record below ``prefix``, in key order."""
        for key in sorted(self.keys(prefix, report=report)):
            value = self._try_read(os.path.join(self.root, *key) + _SUFFIX, report)
            if value is not _ABSENT:
                yield key, value

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """A session's messages with their parts, oldest first; with ``last``, only that many of the newest."""
        folder = self._folder(("message", session_id))
        infos = self._newest(folder, last) if last else None
        if infos is None:
            infos = self._infos(folder, _names(folder, report), report)[-last:]
        messages: list[StoredMessage] = []
        for name, info in infos:
            part_folder = os.path.join(self.root, "part", name)
            part_names = order.names_in_order(_names(part_folder, report), order.created(info))
            parts: list[Document] = []
            for part_name in part_names:
                part = self._try_read(os.path.join(part_folder, part_name + _SUFFIX), report, kind=dict)
                if part is not _ABSENT:
                    parts.append(with_ids_of_key(("part", name, part_name), part))
            messages.append(StoredMessage(info, parts))
        return with_streamed_text(self, session_id, messages)

    def _infos(self, folder: str, names: Sequence[str], report: Report) -> list[tuple[str, Document]]:
        positions: list[tuple[order.Position, str, Document]] = []
        for name in names:
            path = os.path.join(folder, name + _SUFFIX)
            info = self._try_read(path, report, kind=dict)
            if info is not _ABSENT:
                info = with_ids_of_key(("message", os.path.basename(folder), name), info)
                try:
                    positions.append((order.position(info, path), name, info))
                except RecordError as error:
                    report(Damage(path, error.detail))
        positions.sort(key=lambda entry: entry[0])
        return [(name, info) for _, name, info in positions]

    def _newest(self, folder: str, last: int) -> list[tuple[str, Document]] | None:
        """Return the ``last`` newest by name, without reading the rest.

        Return ``None`` if their times contradict their names, or if one of them is damaged. A few more are read, and
        the very first, because clients choose the ids of their messages, perhaps by another clock.
        """
        try:
            entries = self._listings.names(folder)
        except OSError:
            return None
        if len(entries) <= last + _MARGIN + 1:
            return None
        first, top = min(entries), sorted(heapq.nlargest(last + _MARGIN, entries))
        if ids.spans_wraparound([first, top[-1]]):
            first, *by_time = order.names_in_order(entries, self._around(folder, entries))
            top = by_time[-last - _MARGIN :]
        candidates = [entry.removesuffix(_SUFFIX) for entry in (first, *top) if entry.endswith(_SUFFIX)]
        if not _have_timestamps(candidates):
            return None
        infos = self._infos(folder, candidates, ignore_damage)
        if [name for name, _ in infos] != candidates or _clock_differs([info for _, info in infos]):
            return None
        return infos[-last:]

    def _around(self, folder: str, entries: Sequence[str]) -> int:
        """Return a time near which these messages were written: the time of one of them."""
        for entry in entries:
            try:
                return order.created(self._read(os.path.join(folder, entry)))
            except (RecordError, NotFoundError):
                continue
        return ids.now_ms()

    def _try_read(self, path: str, report: Report, kind: type | None = None) -> Any:
        try:
            value = self._read(path)
        except NotFoundError:
            return _ABSENT
        except RecordError as error:
            report(Damage(path, error.detail))
            return _ABSENT
        if kind is not None and not isinstance(value, kind):
            report(Damage(path, "$: expected an object"))
            return _ABSENT
        return value

    def _folder(self, prefix: Key) -> str:
        return os.path.join(self.root, *(check_key(prefix) if prefix else ()))

    def _read(self, path: str) -> Any:
        try:
            return codec.loads(read_file(path), path)
        except FileNotFoundError:
            raise NotFoundError(f"nothing is stored at {path}", path=path) from None
        except OSError as error:
            raise RecordError(f"cannot be read: {error.strerror or error}", path=path) from None


class _TreeBatch:
    """The operations of a batch: the temporary file of each record to write, ``None`` for one to remove."""

    def __init__(self, tree: JsonTree, disk: Disk) -> None:
        self._tree = tree
        self._disk = disk
        self.staged: list[tuple[Key, str | None]] = []

    def write(self, key: Key, value: Any) -> None:
        """Write the record to a temporary file beside its own."""
        path = self._tree.locate(key)
        self.staged.append((key, self._disk.stage(path, codec.dumps_in_chunks(value))))

    def remove(self, key: Key) -> None:
        """Add a removal."""
        self._tree.locate(key)  # checks the key
        self.staged.append((key, None))

    def discard(self) -> None:
        """Remove the temporary files that were not used."""
        for _, temporary in self.staged:
            if temporary is not None:
                self._disk.discard(temporary)


def _names(folder: str, report: Report) -> list[str]:
    """Return the names of the records in a folder. Files whose name begins with a dot are temporary."""
    try:
        entries = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        report(Damage(folder, f"cannot be listed: {error.strerror or error}"))
        return []
    names = [entry.removesuffix(_SUFFIX) for entry in entries if entry.endswith(_SUFFIX) and entry[0] != "."]
    return [name for name in names if _belongs(name, os.path.join(folder, name + _SUFFIX), report)]


def _clock_differs(infos: Sequence[Document]) -> bool:
    """Return whether the id of the first has a clock that is behind, or those of all others one that is ahead.

    Then messages in between, with ids by the right clock, may sort elsewhere. The ids of copies are later than their
    times too, but were all created at one time, so that for them the difference varies.
    """
    ahead = [(minted >> 12) - moment for moment, (minted, _) in map(order.position, infos)]
    if not ahead:
        return False
    least, most = min(ahead[1:], default=0), max(ahead[1:], default=0)
    return -_DAY_MS < ahead[0] < -_SLACK_MS or (_SLACK_MS < least <= most < _DAY_MS and most - least < _SLACK_MS)


def _have_timestamps(names: Sequence[str]) -> bool:
    """Return whether all of these message ids contain a time; those that clients choose need not."""
    if not all(map(is_plain, names)):
        return False
    stamps = "".join([name[:16] for name in names])
    try:
        return len(stamps) == 16 * len(names) and len(bytes.fromhex(stamps.replace("msg_", ""))) == 6 * len(names)
    except ValueError:
        return False


def _belongs(name: str, path: str, report: Report) -> bool:
    """Return whether a name can be in a key; those of copies that users and programs make cannot."""
    if is_plain(name):
        return True
    report(Damage(path, "the name is not one of a record"))
    return False


class Listings:
    """Lists folders, and caches large ones: listing ten thousand messages takes longer than reading fifty of them.

    A folder's times change with every name in it, so equal times mean equal names, except for changes within one tick
    of the file system's clock. Therefore only a folder that has not changed recently is cached.
    """

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._known: dict[str, tuple[tuple[int, int, int], list[str]]] = {}

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in no order. The list is shared and must not be changed."""
        status = os.stat(folder)
        mark = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        known = self._known.get(folder)
        if known is not None and known[0] == mark:
            return known[1]
        names = os.listdir(folder)
        if len(names) >= _LARGE_FOLDER and self._clock() - max(mark[1:]) > _SETTLED_NS:
            while len(self._known) >= _MAX_CACHED_FOLDERS:
                self._known.pop(next(iter(self._known)), None)
            self._known[folder] = (mark, names)
        return names
