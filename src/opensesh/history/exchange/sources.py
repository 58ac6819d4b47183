"""What can be brought in: export files, and stores; a session at a time, with its folders as they are called here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import NotFound, RecordError, UsageError
from ...records import Document, as_list, as_object, loads
from ...storage import keys, open_store
from ...storage.json_tree import read_file
from ...storage.store import Damage, Key, StoredMessage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ...storage.store import Store

    Report = Callable[[Damage], None]

_BESIDE = (keys.todo, keys.diff, keys.share)
_LOSSLESS = "OpenCode's export JSON (opensesh export --format json), a storage folder or an opencode.db"


class Incoming(NamedTuple):
    """A session that is to be brought in."""

    id: str
    place: str
    """Where it comes from."""
    info: Document
    read: Callable[[], Iterable[StoredMessage]]
    project: Document | None = None
    """The record of its project, where the source has one."""
    beside: Sequence[tuple[Key, Any]] = ()
    """What is kept beside the session: its todos, diffs, share."""

    def messages(self) -> Iterable[StoredMessage]:
        """Its messages, oldest first."""
        return self.read()


class _Held:
    """Messages that are in memory already."""

    def __init__(self, messages: list[StoredMessage]) -> None:
        self._messages = messages

    def __call__(self) -> list[StoredMessage]:
        return self._messages


class PathMap:
    """Folders that are called otherwise here: ``OLD`` and all below it become ``NEW``."""

    def __init__(self, pairs: Mapping[str, str] | None = None, *, identify: Callable[[str], str] | None = None) -> None:
        """``identify`` gives the project of a folder that is here, for sessions whose folder was mapped to it."""
        ordered = sorted((pairs or {}).items(), key=lambda pair: -len(pair[0]))
        self.pairs = [(old.rstrip("/\\"), new.rstrip("/\\") or "/") for old, new in ordered]
        self._identify = identify
        self._projects: dict[str, str] = {}

    def folder(self, path: str) -> str:
        """Where that is here."""
        for old, new in self.pairs:
            if path == old or path.startswith((old + "/", old + "\\")):
                return new + path[len(old) :].replace("\\", "/") if "\\" in old else new + path[len(old) :]
        return path

    def applied(self, incoming: Incoming) -> Incoming:
        """The session with its folders as they are called here, filed under the project that its folder has here."""
        if not self.pairs:
            return incoming
        directory = incoming.info.get("directory")
        if not isinstance(directory, str) or self.folder(directory) == directory:
            return incoming
        new = self.folder(directory)
        project = self._project(new) or str(incoming.info.get("projectID") or "global")
        return incoming._replace(
            info=incoming.info | {"directory": new, "projectID": project},
            read=lambda: map(self._message, incoming.messages()),
            project=self._project_record(incoming.project, project),
        )

    def _message(self, message: StoredMessage) -> StoredMessage:
        path = as_object(message.info.get("path"))
        if path is None:
            return message
        mapped = {name: self.folder(value) if isinstance(value, str) else value for name, value in path.items()}
        return StoredMessage(message.info | {"path": mapped}, message.parts)

    def _project(self, folder: str) -> str:
        if self._identify is None or not os.path.isdir(folder):
            return ""
        if folder not in self._projects:
            self._projects[folder] = self._identify(folder)
        return self._projects[folder]

    def _project_record(self, record: Document | None, project: str) -> Document | None:
        if record is None or record.get("id") != project:
            return None
        others = [self.folder(each) for each in as_list(record.get("sandboxes")) or [] if isinstance(each, str)]
        return record | {"worktree": self.folder(str(record.get("worktree", "/"))), "sandboxes": others}


def incoming(place: str, *, report: Report = log_damage) -> Iterator[Incoming]:
    """The sessions at ``place``: an export file, a storage or data folder, or a database.

    What is no lossless source is a :class:`UsageError` that says what is.
    """
    if not os.path.exists(place):
        raise NotFound(f"there is nothing at {place}", path=place)
    if os.path.isdir(place) and not _is_store(place):
        files = sorted(name for name in os.listdir(place) if name.endswith(".json") and name[0] != ".")
        for name in files:
            yield from _from_file(os.path.join(place, name), report)
    elif os.path.isdir(place) or _is_database(place):
        yield from _from_store(open_store(place), report)
    else:
        yield from _from_file(place, report)


def _from_store(store: Store, report: Report) -> Iterator[Incoming]:
    for key, value in store.scan(("session",), report=report):
        info = as_object(value)
        if info is None:
            report(Damage(store.locate(key), "expected an object"))
            continue
        name = key[-1]
        project = _maybe(store, keys.project(key[1]))
        beside = [(make(name), held) for make in _BESIDE if (held := _maybe(store, make(name))) is not None]
        yield Incoming(
            name,
            store.locate(key),
            info | {"id": name, "projectID": info.get("projectID") or key[1]},
            lambda name=name: store.messages(name, report=report),
            as_object(project),
            beside,
        )


def _from_file(path: str, report: Report) -> Iterator[Incoming]:
    for document in _documents(path, report):
        incoming = from_document(document, path, report=report)
        if incoming is not None:
            yield incoming


def from_document(document: Document, place: str, *, report: Report = log_damage) -> Incoming | None:
    """A session in OpenCode's export shape; ``None`` if it has no name to go by."""
    info, messages = as_object(document.get("info")), as_list(document.get("messages"))
    if info is None or messages is None:
        raise UsageError(f"{place}: {_explain(document)} What can be brought in: {_LOSSLESS}.")
    name = info.get("id")
    if not isinstance(name, str):
        report(Damage(place, "a session without an id"))
        return None
    found = [message for held in messages if (message := _stored(held, name, place, report)) is not None]
    return Incoming(name, place, info, _Held(found))


def _documents(path: str, report: Report) -> Iterator[Document]:
    """The documents in a file: one, an array of them, or one a line."""
    try:
        data = read_file(path)
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}", path=path) from None
    try:
        whole = loads(data, path)
    except RecordError:
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        whole = [document for line in lines if (document := _line(line, path, report)) is not None]
    for each in as_list(whole) or [whole]:
        document = as_object(each)
        if document is None:
            raise UsageError(f"{path}: no session. What can be brought in: {_LOSSLESS}.")
        yield document


def _line(line: bytes, path: str, report: Report) -> Any:
    try:
        return loads(line, path)
    except RecordError as error:
        report(Damage(path, f"a line that is cut short or damaged: {error.reason}"))
        return None


def _stored(held: Any, session: str, path: str, report: Report) -> StoredMessage | None:
    message = as_object(held) or {}
    info = as_object(message.get("info"))
    if info is None or not isinstance(info.get("id"), str):
        report(Damage(path, "a message without an id"))
        return None
    parts = [as_object(part) or {} for part in as_list(message.get("parts")) or []]
    own = {"sessionID": session, "messageID": info["id"]}
    named = [part if own.items() <= part.items() else part | own for part in parts if isinstance(part.get("id"), str)]
    if len(named) < len(parts):
        report(Damage(path, f"{len(parts) - len(named)} parts without an id in {info['id']}"))
    return StoredMessage(info if info.get("sessionID") == session else info | {"sessionID": session}, named)


def _explain(document: Document) -> str:
    if "session_id" in document and "messages" in document:
        return "conversations as JSONL do not hold tools, files or structure, so they cannot be brought back."
    if document.get("type") == "session" and "harness" in document:
        return "a trace does not hold everything, so it cannot be brought back."
    return "no session of OpenCode's."


def _is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _is_store(folder: str) -> bool:
    known = ("storage", "session", "message", "part", "project", "migration", "opencode.db")
    return any(os.path.exists(os.path.join(folder, name)) for name in known) or any(
        name.startswith("opencode") and name.endswith(".db") for name in os.listdir(folder)
    )


def _maybe(store: Store, key: Key) -> Any:
    try:
        return store.read(key)
    except (NotFound, RecordError):
        return None
