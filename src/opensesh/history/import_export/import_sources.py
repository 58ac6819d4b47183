"""Sources of an import: export files and stores, read session by session, with paths mapped to this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import NotFoundError, RecordError, UsageError
from ...records import (
    EXTENSION_KEY,
    AssistantMessage,
    Document,
    Record,
    Session,
    UserMessage,
    as_list,
    as_object,
    loads,
    object_at,
    out_of_bounds,
)
from ...storage import keys, open_store
from ...storage.disk import read_file
from ...storage.keys import GLOBAL
from ...storage.locations import is_users_own
from ...storage.protocol import Damage, Key, Store, StoredMessage, log_damage, read_or_none, store_ids
from ..formatting import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ...storage.protocol import Report

_STORE_NAMES = ("storage", "session", "message", "part", "project", "migration")
_RELATED_KEYS = (keys.todo, keys.diff)
_EXPORTED_KINDS = ("todo", "session_diff")
_LOSSLESS = "OpenCode's export JSON (opensesh export --format json), a storage folder or an opencode.db"
_CUT_OFF = "; export it again, to a file: OpenCode's export is cut off in a pipe"


class SourceSession(NamedTuple):
    """A session to be imported."""

    id: str
    origin: str
    """The file or store that it comes from."""
    info: Document
    messages: Callable[[], Iterable[StoredMessage]]
    """Returns its messages, oldest first. They and their parts have valid ids."""
    project: Document | None = None
    """The record of its project, if the source has one."""
    related: Sequence[tuple[Key, Any]] = ()
    """Other records of the session: todos, diff and, from the user's own data folder, its share."""

    @property
    def title(self) -> str:
        """The title; empty if there is none."""
        return text(self.info, "title")


class PathMap:
    """Maps folders of the source to folders of this machine: ``OLD`` and everything below it becomes ``NEW``."""

    def __init__(
        self,
        pairs: Mapping[str, str] | None = None,
        *,
        identify: Callable[[str], str] | None = None,
        identify_all: bool = False,
    ) -> None:
        """``identify`` returns the project id of an existing folder, for sessions whose folder was mapped to it.

        With ``identify_all`` it is also used for folders that are not mapped, if they belong to a project.
        """
        longest_first = sorted((pairs or {}).items(), key=lambda pair: -len(pair[0]))
        self._pairs = [(old.rstrip("/\\"), new.rstrip("/\\")) for old, new in longest_first]
        self._identify = identify
        self._identify_all = identify_all
        self._project_ids: dict[str, str] = {}

    def folder(self, path: str) -> str:
        """Return the folder on this machine."""
        for old, new in self._pairs:
            if path == old or path.startswith((old + "/", old + "\\")):
                below = path[len(old) :]
                return new + (below.replace("\\", "/") if below[:1] == "\\" else below) or "/"
        return path

    def applied(self, source: SourceSession) -> SourceSession:
        """Return the session with mapped folders, in the project that its folder has on this machine."""
        directory = source.info.get("directory")
        if not isinstance(directory, str) or (self.folder(directory) == directory and not self._identify_all):
            return source
        new = self.folder(directory)
        if new not in self._project_ids:
            self._project_ids[new] = self._identify(new) if self._identify and os.path.isdir(new) else ""
        project_id = self._project_ids[new]
        if not project_id or (new == directory and project_id == GLOBAL):
            project_id = str(source.info.get("projectID") or GLOBAL)
        project = source.project
        if project is not None and project.get("id") == project_id:
            sandboxes = [self.folder(path) for path in as_list(project.get("sandboxes")) or [] if isinstance(path, str)]
            project = project | {"worktree": self.folder(str(project.get("worktree", "/"))), "sandboxes": sandboxes}
        else:
            project = None

        def messages() -> Iterator[StoredMessage]:
            for info, parts in source.messages():
                paths = object_at(info, "path")
                mapped = {name: self.folder(path) for name, path in paths.items() if isinstance(path, str)}
                yield StoredMessage(info | {"path": paths | mapped} if mapped else info, parts)

        return source._replace(
            info=source.info | {"directory": new, "projectID": project_id},
            messages=messages,
            project=project,
        )


def read_sessions(path: str, *, report: Report = log_damage) -> Iterator[SourceSession]:
    """Yield the sessions of an export file, a folder of export files, a storage or data folder, or a database.

    Raises :class:`UsageError` for a source that is not lossless.
    """
    if not os.path.exists(path):
        raise NotFoundError(f"{path} does not exist", path=path)
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    is_store = any(name in _STORE_NAMES or (name.startswith("opencode") and name.endswith(".db")) for name in names)
    if os.path.isdir(path) and not is_store:
        for name in names:
            if name.endswith(".json") and name[0] != ".":
                file = os.path.join(path, name)
                # A file that cannot be read does not keep the others from being imported.
                yield from read_until_error(_sessions_from_file(file, report), file, report=report)
    elif is_store or _is_database(path):
        yield from _sessions_from_store(open_store(path, report=report), report)
    else:
        yield from _sessions_from_file(path, report, pipe=True)


def read_until_error(sessions: Iterable[SourceSession], origin: str, *, report: Report) -> Iterator[SourceSession]:
    """Yield sessions until an error, which is reported as damage of ``origin``."""
    try:
        yield from sessions
    except RecordError as error:
        report(Damage(origin, error.reason))
    except (NotFoundError, UsageError) as error:
        report(Damage(origin, error.message.removeprefix(f"{origin}: ")))


def sessions_from_bytes(data: bytes, origin: str, *, report: Report = log_damage) -> Iterator[SourceSession]:
    """Yield the sessions of an export that was read from ``origin``: one document, an array of them, or one a line."""
    # Windows shells write UTF-16, or a byte order mark.
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", errors="replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        parsed = loads(data, origin)
    except RecordError as error:
        parsed = _parse_lines(data, origin, report)
        is_json = data.lstrip()[:1] in (b"{", b"[")
        if is_json and not any(map(as_object, parsed)):
            reason = error.reason + (_CUT_OFF if error.reason.startswith("torn") else "")
            raise RecordError(reason, path=origin, place=error.place) from None
    for value in as_list(parsed) or [parsed]:
        document = as_object(value)
        if document is None:
            raise UsageError(f"{origin}: not a session. Can be imported: {_LOSSLESS}.")
        session = session_from_document(document, origin, report=report)
        if session is not None:
            yield session


def session_from_document(document: Document, origin: str, *, report: Report = log_damage) -> SourceSession | None:
    """Return the session of a document in OpenCode's export shape; ``None`` if it has no id."""
    info, messages = as_object(document.get("info")), as_list(document.get("messages"))
    if info is None or messages is None:
        if "session_id" in document and "messages" in document:
            problem = "this is a conversation as JSONL, which lacks tools, files and structure."
        elif document.get("type") == "session" and "harness" in document:
            problem = "this is a trace, which does not contain everything."
        else:
            problem = "this is not an OpenCode session."
        raise UsageError(f"{origin}: {problem} Can be imported: {_LOSSLESS}.")
    session_id = info.get("id")
    if not isinstance(session_id, str):
        report(Damage(origin, "a session without an id"))
        return None
    stored: list[StoredMessage] = []
    for message in (as_object(value) or {} for value in messages):
        message_info = object_at(message, "info") | {"sessionID": session_id}
        owner = {"sessionID": session_id, "messageID": message_info.get("id")}
        parts = [(as_object(part) or {}) | owner for part in as_list(message.get("parts")) or []]
        stored.append(StoredMessage(message_info, parts))
    valid = list(_with_valid_ids(stored, origin, report))
    _report_numbers(info | {"id": session_id}, Session, origin, report)
    own = object_at(document, EXTENSION_KEY)
    related = [((kind, session_id), own[kind]) for kind in _EXPORTED_KINDS if as_list(own.get(kind)) is not None]
    return SourceSession(session_id, origin, info, lambda: valid, related=related)


def _sessions_from_store(store: Store, report: Report) -> Iterator[SourceSession]:
    for key, value in store.scan(("session",), report=report):
        info = as_object(value)
        if info is None:
            report(Damage(store.locate(key), "expected an object"))
            continue
        project_id, session_id, origin = key[1], key[-1], store.locate(key)
        # What is shared is sent to the address in the record, so no other person's store may bring one.
        kinds = (*_RELATED_KEYS, keys.share) if is_users_own(store_ids(store)) else _RELATED_KEYS
        related = [
            (key, record)
            for key in (make(session_id) for make in kinds)
            if (record := read_or_none(store, key)) is not None
        ]
        _report_numbers(info | {"id": session_id}, Session, origin, report)
        yield SourceSession(
            session_id,
            origin,
            info | {"id": session_id, "projectID": info.get("projectID") or project_id},
            lambda session_id=session_id, origin=origin: _with_valid_ids(
                store.messages(session_id, report=report), origin, report
            ),
            as_object(read_or_none(store, keys.project(project_id))),
            related,
        )


def _sessions_from_file(path: str, report: Report, *, pipe: bool = False) -> Iterator[SourceSession]:
    try:
        data = read_file(path, pipe=pipe)
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}", path=path) from None
    yield from sessions_from_bytes(data, path, report=report)


def _parse_lines(data: bytes, origin: str, report: Report) -> list[Any]:
    damage: list[Damage] = []
    documents: list[Any] = []
    for line in data.splitlines():
        if line.strip():
            try:
                document = loads(line, origin)
            except RecordError as error:
                damage.append(Damage(origin, f"a line that is cut off or damaged: {error.reason}"))
                continue
            if document is not None:
                documents.append(document)
    if any(map(as_object, documents)):  # otherwise this is not one document a line at all
        for entry in damage:
            report(entry)
    return documents


def _with_valid_ids(messages: Iterable[StoredMessage], origin: str, report: Report) -> Iterator[StoredMessage]:
    """Yield the messages and parts with a valid id; the others are reported."""
    for info, parts in messages:
        if not _has_valid_id(info):
            report(Damage(origin, "a message without a usable id"))
            continue
        valid = [part for part in parts if _has_valid_id(part)]
        if len(valid) < len(parts):
            report(Damage(origin, f"{len(parts) - len(valid)} parts without a usable id in {info['id']}"))
        _report_numbers(info, AssistantMessage if info.get("role") == "assistant" else UserMessage, origin, report)
        yield StoredMessage(info, valid)


def _report_numbers(record: Document, kind: type[Record], origin: str, report: Report) -> None:
    """Report a number that is imported as it is, but read as 0 because it cannot be a time, a count or a cost."""
    error = out_of_bounds(record, kind)
    if error:
        report(Damage(origin, f"{record['id']} {error.detail}; imported, and read as 0"))


def _has_valid_id(record: Document) -> bool:
    id_ = record.get("id")
    return isinstance(id_, str) and keys.is_plain(id_)


def _is_database(path: str) -> bool:
    if not os.path.isfile(path):  # a pipe can only be read once
        return False
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False
