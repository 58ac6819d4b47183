"""OpenCode's JSON tree: one file a record, ``<root>/<key>/<key>/<key>.json``."""

from __future__ import annotations

import errno
import heapq
import os
from typing import TYPE_CHECKING, Any, Literal

from ... import ids
from ...errors import NotFoundError, RecordError
from ...records import codec, order
from .. import paths
from ..disk import Disk
from ..keys import check_key, is_plain
from ..locks import Locks
from ..protocol import Damage, Key, StoredMessage, log_damage
from .listings import Listings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...records import Document
    from ..protocol import ChangeFeed

    Report = Callable[[Damage], None]

_SUFFIX = ".json"
_MARGIN = 8
_SLACK_MS = 2_000
_DAY_MS = 86_400_000
_LARGEST = 1 << 29
_ABSENT = object()


class JsonTree:
    """The default store, shared with OpenCode up to 1.1.65. See :class:`~opensesh.storage.protocol.Store` for what it
    promises.

    Readers take no lock: a file is replaced whole. Writers of one key exclude each other through a lock file outside
    of the tree, between threads and between processes. OpenCode itself takes part in none of this; what it writes in
    place may be seen torn while it writes, and is then reported as damage and readable a moment later.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Literal["full", "relaxed"] = "full",
        disk: Disk | None = None,
        locks: Locks | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        self._disk = disk or Disk(durable=durability == "full")
        self._listings = Listings()
        self._given_locks = locks

    @property
    def place(self) -> str:
        """The folder."""
        return self.root

    def change_feed(self) -> ChangeFeed:
        """Return a feed that compares times and sizes of files."""
        from .change_feed import JsonTreeFeed

        return JsonTreeFeed(self.root)

    @property
    def locks(self) -> Locks:
        """The tree's locks, made when first needed: who only reads needs none."""
        if self._given_locks is None:
            self._given_locks = Locks(os.path.join(paths.state(), "locks", tree_name(self.root)))
        return self._given_locks

    def locate(self, key: Key) -> str:
        """The file of a record."""
        return os.path.join(self.root, *check_key(key)) + _SUFFIX

    def read(self, key: Key) -> Any:
        """The record, or :class:`NotFoundError`."""
        return self._read(self.locate(key))

    def write(self, key: Key, value: Any) -> None:
        """Store ``value``, whatever was there before."""
        path, data = self.locate(key), codec.dumps_in_chunks(value)
        with self.locks.anything(), self.locks.exclusive("/".join(key)):
            self._disk.replace(path, data)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Read, edit and store under the key's lock. ``edit`` must not call the store."""
        path = self.locate(key)
        with self.locks.anything(), self.locks.exclusive("/".join(key)):
            value = self._read(path)
            edit(value)
            self._disk.replace(path, codec.dumps_in_chunks(value))
        return value

    def remove(self, key: Key) -> None:
        """Remove the file, and its folder once nothing is left in it."""
        path = self.locate(key)
        with self.locks.anything(), self.locks.exclusive("/".join(key)):
            self._disk.remove(path)
            if len(key) > 2:
                self._disk.remove_empty(os.path.dirname(path))

    def list(self, prefix: Key = ()) -> Sequence[Key]:
        """The keys below ``prefix``, sorted."""
        return sorted(_keys_below(self._folder(prefix), prefix, _overlook))

    def scan(self, prefix: Key, *, report: Report = log_damage) -> Iterator[tuple[Key, Any]]:
        """Every readable record below ``prefix``, in key order."""
        for key in sorted(_keys_below(self._folder(prefix), prefix, report)):
            value = self._try_read(os.path.join(self.root, *key) + _SUFFIX, report)
            if value is not _ABSENT:
                yield key, value

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """A session's messages with their parts, oldest first; with ``last``, only that many of the newest."""
        folder = self._folder(("message", session_id))
        found = self._newest(folder, last) if last else None
        if found is None:
            found = self._infos(folder, _names(folder, report), report)[-last:]
        return [StoredMessage(info, self._parts(name, info, report)) for name, info in found]

    def _infos(self, folder: str, names: Sequence[str], report: Report) -> list[tuple[str, Document]]:
        found: list[tuple[order.Position, str, Document]] = []
        for name in names:
            path = os.path.join(folder, name + _SUFFIX)
            info = self._try_read(path, report, kind=dict)
            if info is not _ABSENT:
                try:
                    found.append((order.position(info, path), name, info))
                except RecordError as error:
                    report(Damage(path, f"{error.place}: {error.reason}"))
        found.sort(key=lambda each: each[0])
        return [(name, info) for _, name, info in found]

    def _newest(self, folder: str, last: int) -> list[tuple[str, Document]] | None:
        """The ``last`` newest by name, without reading the rest; ``None`` where their own times disagree with that, or
        one of them is damaged or none of the session's.

        A few more are looked at, and the very first, because clients name their messages, perhaps by another clock
        than the one that times them.
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
        looked_at = [entry[:-5] for entry in (first, *top) if entry.endswith(_SUFFIX)]
        if not _minted(looked_at):
            return None
        found = self._infos(folder, looked_at, _overlook)
        if [name for name, _ in found] != looked_at or _by_another_clock([info for _, info in found]):
            return None
        return found[-last:]

    def _around(self, folder: str, entries: Sequence[str]) -> int:
        """A moment near which these messages were written: when one of them says it was."""
        for entry in entries:
            try:
                return order.created(self._read(os.path.join(folder, entry)))
            except (RecordError, NotFoundError):
                continue
        return ids.now_ms()

    def _parts(self, message: str, info: Document, report: Report) -> list[Document]:
        folder = os.path.join(self.root, "part", message)
        names = order.names_in_order(_names(folder, report), order.created(info))
        parts = (self._try_read(os.path.join(folder, name + _SUFFIX), report, kind=dict) for name in names)
        return [part for part in parts if part is not _ABSENT]

    def _try_read(self, path: str, report: Report, kind: type | None = None) -> Any:
        try:
            value = self._read(path)
        except NotFoundError:
            return _ABSENT
        except RecordError as error:
            report(Damage(path, f"{error.place}: {error.reason}" if error.place else error.reason))
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


def read_file(path: str) -> bytes:
    """A small file's bytes, in as few calls as it takes."""
    # A pipe that someone gave the name of a record must not keep a listing waiting.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        size = os.fstat(descriptor).st_size
        if size > _LARGEST:
            raise OSError(errno.EFBIG, f"{size:,} bytes are too many for a record", path)
        data = os.read(descriptor, size + 1)
        if len(data) == size:
            return data
        chunks = [data]
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def tree_name(root: str) -> str:
    """A short name for a tree, the same for all who open it, by whatever path."""
    from hashlib import blake2b

    return blake2b(os.path.realpath(root).encode(errors="surrogateescape"), digest_size=8).hexdigest()


def _names(folder: str, report: Report) -> list[str]:
    """The records in a folder, by name; dot-named files are somebody's temporary ones."""
    try:
        entries = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        report(Damage(folder, f"cannot be listed: {error.strerror or error}"))
        return []
    records = [entry for entry in entries if entry.endswith(_SUFFIX) and entry[0] != "."]
    return [entry[:-5] for entry in records if _belongs(entry[:-5], os.path.join(folder, entry), report)]


def _by_another_clock(infos: Sequence[Document]) -> bool:
    """Whether the first of these was named by a clock that runs behind, or all others by one that runs ahead.

    Then messages in between, named by the right clock, may be elsewhere by name. Copies are named later than they were
    made too, but all at one moment: for them the difference does not stay the same.
    """
    ahead = [(minted >> 12) - moment for moment, (minted, _) in map(order.position, infos)]
    if not ahead:
        return False
    least, most = min(ahead[1:], default=0), max(ahead[1:], default=0)
    return -_DAY_MS < ahead[0] < -_SLACK_MS or (_SLACK_MS < least <= most < _DAY_MS and most - least < _SLACK_MS)


def _minted(names: Sequence[str]) -> bool:
    """Whether all of these are names of messages that hold a time; those that clients make up need not."""
    if not all(map(is_plain, names)):
        return False
    stamps = "".join([name[:16] for name in names])
    try:
        return len(stamps) == 16 * len(names) and len(bytes.fromhex(stamps.replace("msg_", ""))) == 6 * len(names)
    except ValueError:
        return False


def _keys_below(folder: str, prefix: Key, report: Report) -> Iterator[Key]:
    try:
        entries = list(os.scandir(folder))
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
                yield from _keys_below(entry.path, (*prefix, entry.name), report)
        elif entry.name.endswith(_SUFFIX) and _belongs(entry.name[:-5], entry.path, report):
            yield (*prefix, entry.name[:-5])


def _belongs(name: str, path: str, report: Report) -> bool:
    """Whether a file or folder has a name that a key can have; copies that people and programs make do not."""
    if is_plain(name):
        return True
    report(Damage(path, "the name is not one of a record"))
    return False


def _overlook(_: Damage) -> None:
    """A list of keys has nobody to tell; whoever looks at a few first hears of it from the look at all."""
