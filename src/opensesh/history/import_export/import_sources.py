"""What can be brought in: export files, and stores; a session at a time, with its folders as they are called here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import NotFoundError, RecordError, UsageError
from ...records import Document, as_list, as_object, loads
from ...storage import keys, open_store
from ...storage.keys import GLOBAL
from ...storage.protocol import Damage, Key, StoredMessage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ...storage.protocol import Store

    Report = Callable[[Damage], None]

_BESIDE = (keys.todo, keys.diff, keys.share)
_LOSSLESS = "OpenCode's export JSON (opensesh export --format json), a storage folder or an opencode.db"

_CUT_SHORT = "; export it again, and to a file: OpenCode's export loses its end in a pipe"


class SourceSession(NamedTuple):
    """A session that is to be brought in."""

    id: str
    place: str
    """Where it comes from."""
    info: Document
    messages: Callable[[], Iterable[StoredMessage]]
    """Its messages, oldest first. All of them, and their parts, have names that can be stored."""
    project: Document | None = None
    """The record of its project, where the source has one."""
    beside: Sequence[tuple[Key, Any]] = ()
    """What is kept beside the session: its todos, diffs, share."""

    @property
    def title(self) -> str:
        """What it is called; empty if its record does not say."""
        held = self.info.get("title")
        return held if isinstance(held, str) else ""


class PathMap:
    """Folders that are called otherwise here: ``OLD`` and all below it become ``NEW``."""

    def __init__(self, pairs: Mapping[str, str] | None = None, *, identify: Callable[[str], str] | None = None) -> None:
        """``identify`` gives the project of a folder that is here, for sessions whose folder was mapped to it."""
        ordered = sorted((pairs or {}).items(), key=lambda pair: -len(pair[0]))
        self._pairs = [(old.rstrip("/\\"), new.rstrip("/\\")) for old, new in ordered]
        self._identify = identify
        self._projects: dict[str, str] = {}

    def folder(self, path: str) -> str:
        """Where that is here."""
        for old, new in self._pairs:
            if path == old or path.startswith((old + "/", old + "\\")):
                below = path[len(old) :]
                return new + (below.replace("\\", "/") if below[:1] == "\\" else below) or "/"
        return path

    def applied(self, incoming: SourceSession) -> SourceSession:
        """The session with its folders as they are called here, filed under the project that its folder has here."""
        directory = incoming.info.get("directory")
        if not isinstance(directory, str) or self.folder(directory) == directory:
            return incoming
        new = self.folder(directory)
        project = self._project(new) or str(incoming.info.get("projectID") or GLOBAL)
        return incoming._replace(
            info=incoming.info | {"directory": new, "projectID": project},
            messages=lambda: map(self._message, incoming.messages()),
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


def read_sessions(place: str, *, report: Report = log_damage) -> Iterator[SourceSession]:
    """The sessions at ``place``: an export file, a folder of such, a storage or data folder, or a database.

    What is no lossless source is a :class:`UsageError` that says what is.
    """
    if not os.path.exists(place):
        raise NotFoundError(f"there is nothing at {place}", path=place)
    if os.path.isdir(place) and not _is_store(place):
        yield from _from_folder(place, report)
    elif os.path.isdir(place) or _is_database(place):
        yield from _from_store(open_store(place, report=report), report)
    else:
        yield from _from_file(place, report)


def _from_store(store: Store, report: Report) -> Iterator[SourceSession]:
    for key, value in store.scan(("session",), report=report):
        info = as_object(value)
        if info is None:
            report(Damage(store.locate(key), "expected an object"))
            continue
        name, place = key[-1], store.locate(key)
        project = _maybe(store, keys.project(key[1]))
        beside = [(make(name), held) for make in _BESIDE if (held := _maybe(store, make(name))) is not None]
        yield SourceSession(
            name,
            place,
            info | {"id": name, "projectID": info.get("projectID") or key[1]},
            lambda name=name, place=place: _named(store.messages(name, report=report), place, report),
            as_object(project),
            beside,
        )


def _from_folder(folder: str, report: Report) -> Iterator[SourceSession]:
    """Those in the files of a folder. One that cannot be read, or holds no session, costs itself alone."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json") and name[0] != ".":
            path = os.path.join(folder, name)
            yield from read_until_error(_from_file(path, report), path, report=report)


def read_until_error(sessions: Iterable[SourceSession], place: str, *, report: Report) -> Iterator[SourceSession]:
    """Those that come from a place before something is wrong with it, which is told."""
    try:
        yield from sessions
    except RecordError as error:
        report(Damage(place, error.reason))
    except (NotFoundError, UsageError) as error:
        report(Damage(place, error.message.removeprefix(f"{place}: ")))


def _from_file(path: str, report: Report) -> Iterator[SourceSession]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}", path=path) from None
    yield from sessions_from_bytes(data, path, report=report)


def sessions_from_bytes(data: bytes, place: str, *, report: Report = log_damage) -> Iterator[SourceSession]:
    """The sessions in the bytes of an export, which came from ``place``."""
    for document in _documents(data, place, report):
        incoming = session_from_document(document, place, report=report)
        if incoming is not None:
            yield incoming


def session_from_document(document: Document, place: str, *, report: Report = log_damage) -> SourceSession | None:
    """A session in OpenCode's export shape; ``None`` if it has no name to go by."""
    info, messages = as_object(document.get("info")), as_list(document.get("messages"))
    if info is None or messages is None:
        raise UsageError(f"{place}: {_explain(document)} What can be brought in: {_LOSSLESS}.")
    name = info.get("id")
    if not isinstance(name, str):
        report(Damage(place, "a session without an id"))
        return None
    found = list(_named((_stored(held, name) for held in messages), place, report))
    return SourceSession(name, place, info, lambda: found)


def _documents(data: bytes, place: str, report: Report) -> Iterator[Document]:
    """The documents in an export: one, an array of them, or one a line."""
    data = _without_mark(data)
    try:
        whole = loads(data, place)
    except RecordError as error:
        whole = _one_a_line(data, place, report)
        begun = data.lstrip()[:1] in (b"{", b"[")
        if not any(map(as_object, whole)) and (begun or b"\n" not in data.strip()):
            reason = error.reason + (_CUT_SHORT if begun and error.reason.startswith("torn") else "")
            raise RecordError(reason, path=place, place=error.place) from None
    for each in as_list(whole) or [whole]:
        document = as_object(each)
        if document is None:
            raise UsageError(f"{place}: no session. What can be brought in: {_LOSSLESS}.")
        yield document


def _without_mark(data: bytes) -> bytes:
    """The bytes of a JSON text as they should be: some shells of Windows write UTF-16, or a mark in front."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace").encode()
    return data.removeprefix(b"\xef\xbb\xbf")


def _one_a_line(data: bytes, place: str, report: Report) -> list[Any]:
    damage: list[Damage] = []
    lines = [line for line in data.splitlines() if line.strip()]
    found = [document for line in lines if (document := _line(line, place, damage.append)) is not None]
    if any(map(as_object, found)):
        for each in damage:
            report(each)
    return found


def _line(line: bytes, place: str, report: Report) -> Any:
    try:
        return loads(line, place)
    except RecordError as error:
        report(Damage(place, f"a line that is cut short or damaged: {error.reason}"))
        return None


def _stored(held: Any, session: str) -> StoredMessage:
    """A message of an export, as it is stored: with the names of what it belongs to."""
    message = as_object(held) or {}
    info = (as_object(message.get("info")) or {}) | {"sessionID": session}
    own = {"sessionID": session, "messageID": info.get("id")}
    return StoredMessage(info, [(as_object(part) or {}) | own for part in as_list(message.get("parts")) or []])


def _named(messages: Iterable[StoredMessage], place: str, report: Report) -> Iterator[StoredMessage]:
    """Those that can be stored, with those of their parts that can; the others are told."""
    for info, parts in messages:
        if not _has_name(info):
            report(Damage(place, "a message without a usable id"))
            continue
        named = [part for part in parts if _has_name(part)]
        if len(named) < len(parts):
            report(Damage(place, f"{len(parts) - len(named)} parts without a usable id in {info['id']}"))
        yield StoredMessage(info, named)


def _has_name(record: Document) -> bool:
    name = record.get("id")
    return isinstance(name, str) and keys.is_plain(name)


def _explain(document: Document) -> str:
    if "session_id" in document and "messages" in document:
        return "conversations as JSONL do not hold tools, files or structure, so they cannot be brought back."
    if document.get("type") == "session" and "harness" in document:
        return "a trace does not hold everything, so it cannot be brought back."
    return "no session of OpenCode's."


def _is_database(path: str) -> bool:
    if not os.path.isfile(path):  # a pipe can be read once
        return False
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
    except (NotFoundError, RecordError):
        return None
