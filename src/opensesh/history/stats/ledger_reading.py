"""Reading what a ledger does not know yet: the messages of a session, or of a whole store."""

from __future__ import annotations

import os
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...records import Document, as_object, as_whole, codec
from ...storage import open_store
from ...storage.disk import read_file
from ...storage.protocol import Damage
from .accounts import UsageEntry, account
from .cache_files import mark
from .forks import is_suspect
from .ledger import SessionInfo, packed_account
from .message_entries import EntryReader
from .packed import pack
from .tree_folders import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...storage.protocol import Store
    from .cache_files import Mark
    from .repricing import Repricer

    Report = Callable[[Damage], None]
    Told = list[tuple[str, str]]

_SMALL = 1 << 16
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class TreeReading:
    """Reads a JSON tree, file by file."""

    def __init__(self, root: str, repricer: Repricer) -> None:
        self._root = root
        self._reader = EntryReader(repricer, self._parts)

    def session(self, session: str, facts: SessionInfo | None, folder: int) -> tuple[bytes, list[Mark], Told]:
        """The account of one session, whose folder changed at ``folder``, packed; what of it may still change, and what
        could not be read."""
        entries, watched, damage = self._read(session)
        made = account(session, entries, keep=partial(is_suspect, facts))
        return packed_account(made, folder, watched, damage), watched, damage

    def entries(self, session: str) -> list[UsageEntry]:
        """The messages of one session."""
        return self._read(session)[0]

    def facts(self, project: str, path: str, report: Report) -> SessionInfo | None:
        """What the record at ``path`` says; ``None``, and told, if it cannot be read."""
        try:
            document = codec.loads_object(read_file(path), path)
        except (OSError, RecordError) as error:
            if os.path.lexists(path):  # and was not removed meanwhile
                report(Damage(path, error.reason if isinstance(error, RecordError) else str(error)))
            return None
        return session_info(document, project, os.path.basename(path)[:-5])

    def _read(self, session: str) -> tuple[list[UsageEntry], list[Mark], Told]:
        folder = os.path.join(self._root, "message", session)
        entries: list[UsageEntry] = []
        watched: list[Mark] = []
        damage: Told = []
        parse = self._reader.parse
        for name in records(folder):
            path = f"{folder}{os.sep}{name}"
            try:
                found = parse(name[:-5], _content(path), path)
                if not found[0].completed and found[0].role == "assistant":
                    watched.append((name, *mark(path)))
                    found = parse(name[:-5], _content(path), path)  # as it was at that mark, or later
            except FileNotFoundError:
                continue
            except (OSError, RecordError) as error:
                damage.append((path, error.reason if isinstance(error, RecordError) else str(error.strerror or error)))
                watched.append((name, *mark(path)))
            else:
                entries += found
        return entries, watched, damage

    def _parts(self, message: str) -> Iterator[Any]:
        folder = os.path.join(self._root, "part", message)
        for name in records(folder):
            try:
                yield codec.loads(read_file(os.path.join(folder, name)))
            except (OSError, RecordError):
                continue


class StoreReading:
    """Reads any store, as a whole."""

    def __init__(self, store: Store | str, repricer: Repricer) -> None:
        self._store: Store = open_store(store) if isinstance(store, str) else store
        self._reader = EntryReader(repricer, self._parts)

    def entries(self, session: str) -> list[UsageEntry]:
        """The messages of one session."""
        found = self._store.scan(("message", session), report=_listener([]))
        return [entry for key, value in found for entry in self._entries(key[-1], value, [])]

    def everything(self) -> tuple[dict[str, bytes], dict[str, bytes], Told]:
        """All sessions, their accounts, both packed, and what could not be read."""
        damage: Told = []
        facts: dict[str, SessionInfo] = {}
        for key, value in self._store.scan(("session",), report=_listener(damage)):
            found = session_info(as_object(value) or {}, key[1], key[-1])
            facts[found.id] = max(facts.get(found.id, found), found, key=lambda each: each.updated)
        accounts: dict[str, bytes] = {}
        messages = self._store.scan(("message",), report=_listener(damage))
        for name, found in groupby(messages, key=lambda message: message[0][1]):
            entries = [entry for key, value in found for entry in self._entries(key[-1], value, damage)]
            if entries:
                accounts[name] = packed_account(account(name, entries, keep=partial(is_suspect, facts.get(name))))
        return {name: pack((0, 0, tuple(found))) for name, found in facts.items()}, accounts, damage

    def _entries(self, name: str, value: Any, damage: Told) -> list[UsageEntry]:
        place = f"{self._store.place}#message/{name}"
        try:
            return self._reader.read(name, as_object(value) or {}, place)
        except RecordError as error:
            damage.append((place, error.reason))
            return []

    def _parts(self, message: str) -> Iterator[Any]:
        for _, part in self._store.scan(("part", message), report=_listener([])):
            yield part


def session_info(document: Document, project: str, name: str) -> SessionInfo:
    """What a session's record says. Its file's place speaks where the record does not, and for its name in any case."""
    stamps = as_object(document.get("time")) or {}
    created, updated = as_whole(stamps.get("created")), as_whole(stamps.get("updated"))
    fork = as_object(document.get("fork")) or {}
    texts = {key: value for key in ("parentID", "title", "directory") if isinstance(value := document.get(key), str)}
    return SessionInfo(
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


def _content(path: str) -> bytes:
    """A file's bytes; messages are small, and there are many."""
    descriptor = os.open(path, _FLAGS)
    try:
        data = os.read(descriptor, _SMALL)
    finally:
        os.close(descriptor)
    return data if len(data) < _SMALL else read_file(path)


def _listener(damage: Told) -> Report:
    return lambda found: damage.append((found.path, found.reason))
