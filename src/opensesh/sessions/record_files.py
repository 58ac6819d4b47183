"""The records of a store as files: for changes to many records that can be undone, in every kind of store."""

from __future__ import annotations

import errno
import os
import shutil
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import NotFoundError, RecordError
from ..records import codec
from ..storage.disk import Disk, names_in, read_file
from ..storage.keys import PER_SESSION
from ..storage.protocol import CanonicalRecords, FileTree

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ..storage.protocol import Key, RawRows, Store

_BATCH_OPERATIONS = 1_000


class RecordFiles(Protocol):
    """The records of a store as files. A missing record raises :class:`FileNotFoundError`."""

    root: str

    def lock(self) -> AbstractContextManager[None]: ...
    def locate(self, path: str) -> str: ...
    def exists(self, path: str) -> bool: ...
    def read(self, path: str) -> bytes: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def remove(self, path: str) -> None: ...
    def rename(self, path: str, to: str, data: bytes | None = None) -> None: ...
    def move_out(self, path: str, file: str) -> None: ...
    def move_in(self, file: str, path: str) -> None: ...


def record_files(store: Store) -> TreeFiles | StoreFiles:
    """Return the records of a store as files: the files themselves if it is a tree."""
    return TreeFiles(store) if isinstance(store, FileTree) else StoreFiles(store)


def record_path(key: Key) -> str:
    """Return the path of a record, relative to the root of its store."""
    return os.path.join(*key) + ".json"


class TreeFiles:
    """The files of a JSON tree, including those that are not valid records."""

    def __init__(self, tree: FileTree) -> None:
        self.root = tree.root
        self._tree = tree
        self._disk = Disk()

    def lock(self) -> AbstractContextManager[None]:
        """Exclude every other writer of the tree."""
        return self._tree.locks.hold()

    def locate(self, path: str) -> str:
        """Return the absolute path."""
        return os.path.join(self.root, path)

    def session_paths(self, session_id: str) -> Iterator[str]:
        """Iterate over every file that belongs to a session, except its own record."""
        messages = os.path.join("message", session_id)
        for name in names_in(self.locate(messages)):
            if name.endswith(".json"):
                parts = os.path.join("part", name[:-5])
                yield from (os.path.join(parts, part) for part in names_in(self.locate(parts)))
            yield os.path.join(messages, name)
        for kind in PER_SESSION:
            path = record_path((kind, session_id))
            if self.exists(path):
                yield path

    def exists(self, path: str) -> bool:
        """Return whether there is a file."""
        return os.path.lexists(self.locate(path))

    def size(self, path: str) -> int:
        """Return the size in bytes."""
        return os.lstat(self.locate(path)).st_size

    def read(self, path: str) -> bytes:
        """Return the content."""
        return read_file(self.locate(path))

    def replace(self, path: str, data: bytes) -> None:
        """Replace the content, or create the file."""
        self._disk.replace(self.locate(path), data)

    def remove(self, path: str) -> None:
        """Remove the file."""
        self._disk.remove(self.locate(path))

    def rename(self, path: str, to: str, data: bytes | None = None) -> None:
        """Rename a file within the tree, with new content if it is given."""
        if data is not None:
            self.replace(path, data)
        self._move(self.locate(path), self.locate(to))
        self._remove_empty_folder(path)

    def move_out(self, path: str, file: str) -> None:
        """Move a file of the tree elsewhere."""
        self._move(self.locate(path), file)
        self._remove_empty_folder(path)

    def move_in(self, file: str, path: str) -> None:
        """Move a file into the tree."""
        self._move(file, self.locate(path))

    def _move(self, old: str, new: str) -> None:
        self._disk.make_folder(os.path.dirname(new))
        try:
            os.rename(old, new)
        except OSError as error:
            if error.errno != errno.EXDEV:  # another file system: copy
                raise
            if os.path.islink(old) or os.path.isdir(old):
                shutil.move(old, new)
                return
            self._disk.replace(new, read_file(old))
            shutil.copystat(old, new)
            os.unlink(old)

    def _remove_empty_folder(self, path: str) -> None:
        """Remove the folder of the last record in it, as the tree itself does; but no folder of a kind."""
        if os.path.dirname(os.path.dirname(path)):
            self._disk.remove_empty(os.path.dirname(self.locate(path)))


class _CollectedFiles(RecordFiles, ABC):
    """Records as files, of which the changes are collected while :meth:`lock` is held, and applied at its end."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._changes: list[tuple[Any, Any]] = []
        """What is changed and its new value, ``None`` where it is removed."""
        self._moved_in: list[str] = []

    @contextmanager
    def lock(self) -> Generator[None]:
        """Collect the changes of the block, and apply them: no lock is needed, as they are applied like any write."""
        self._changes, self._moved_in = [], []
        yield
        self._apply(self._changes)
        for file in self._moved_in:
            os.unlink(file)

    @abstractmethod
    def _apply(self, changes: Sequence[tuple[Any, Any]]) -> None: ...

    def rename(self, path: str, to: str, data: bytes | None = None) -> None:
        """Store a record under another key, with new content if it is given."""
        self.replace(to, self.read(path) if data is None else data)
        self.remove(path)

    def move_out(self, path: str, file: str) -> None:
        """Write a record to a file, and remove it from the store."""
        Disk().replace(file, self.read(path))
        self.remove(path)

    def move_in(self, file: str, path: str) -> None:
        """Store the record in a file, and remove the file."""
        self.replace(path, read_file(file))
        self._moved_in.append(file)


class StoreFiles(_CollectedFiles):
    """The records of a store that is not a tree, changed in batches that hold whole sessions."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.id)
        self._store = store

    def locate(self, path: str) -> str:
        """Return where the record is, for messages."""
        return self._store.locate(_key(path))

    def session_paths(self, session_id: str) -> Iterator[str]:
        """Iterate over every record that belongs to a session, except its own."""
        for message in self._store.list(("message", session_id)):
            yield from map(record_path, self._store.list(("part", message[-1])))
            yield record_path(message)
        for kind in PER_SESSION:
            if self.exists(path := record_path((kind, session_id))):
                yield path

    def exists(self, path: str) -> bool:
        """Return whether there is a record."""
        try:
            self._store.read(_key(path))
        except NotFoundError:
            return False
        except RecordError:
            pass  # damaged, but there
        return True

    def size(self, path: str) -> int:
        """Return the size of the record in the tree's encoding."""
        return len(self.read(path))

    def read(self, path: str) -> bytes:
        """Return the record in the tree's encoding."""
        try:
            return codec.dumps(self._store.read(_key(path)))
        except NotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such record", path) from None

    def move_out(self, path: str, file: str) -> None:
        """Write a record to a file, and remove it from the store, unless it could not be moved in again."""
        if isinstance(self._store, CanonicalRecords):
            with suppress(NotFoundError):
                self._store.check_restorable(_key(path), self._store.read(_key(path)))
        super().move_out(path, file)

    def replace(self, path: str, data: bytes) -> None:
        """Replace the record, or create it."""
        self._changes.append((_key(path), codec.loads(data, path)))

    def remove(self, path: str) -> None:
        """Remove the record."""
        self._changes.append((_key(path), None))

    def _apply(self, changes: Sequence[tuple[Key, Any]]) -> None:
        batches: list[list[tuple[Key, Any]]] = [[]]
        for key, value in changes:
            is_full = len(batches[-1]) >= _BATCH_OPERATIONS
            # A session's record is the first to be written, and the last to be removed.
            if is_full and key[0] == "session" and value is not None:
                batches.append([])
            batches[-1].append((key, value))
            if is_full and key[0] == "session" and value is None:
                batches.append([])
        for operations in filter(None, batches):
            with self._store.batch() as batch:
                for key, value in operations:
                    if value is None:
                        batch.remove(key)
                    else:
                        batch.write(key, value)


class RowFiles(_CollectedFiles):
    """The rows of a store in tables, changed in one transaction. A row that is not a record is a file as well."""

    def __init__(self, root: str, rows: RawRows) -> None:
        super().__init__(root)
        self._rows = rows

    def locate(self, path: str) -> str:
        """Return where the row is, for messages."""
        return f"{self.root}#{path}"

    def exists(self, path: str) -> bool:
        """Return whether there is a row."""
        return self._rows.read_row(path) is not None

    def read(self, path: str) -> bytes:
        """Return the row as JSON."""
        row = self._rows.read_row(path)
        if row is None:
            raise FileNotFoundError(errno.ENOENT, "no such row", path)
        return row

    def replace(self, path: str, data: bytes) -> None:
        """Replace the row, or insert it."""
        self._changes.append((path, data))

    def remove(self, path: str) -> None:
        """Delete the row."""
        self._changes.append((path, None))

    def _apply(self, changes: Sequence[tuple[str, bytes | None]]) -> None:
        if changes:
            self._rows.change_rows(changes)


def _key(path: str) -> Key:
    return tuple(path.removesuffix(".json").split(os.sep))
