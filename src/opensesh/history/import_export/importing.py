"""Import: sessions from OpenCode's export files or from another store. Importing twice changes nothing.

Lossless sources are OpenCode's export JSON (one document, an array of them, or one a line) and stores. Records are
merged by id. A session that does not exist here is added; an existing one is extended by what is missing or less
complete. If both copies were continued separately, or differ under one id, the existing one stays as it is, and the
other is added as a fork, always under the same new id.
"""

from __future__ import annotations

import os
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ...errors import NotFoundError, OpenseshError, ReadOnlyStoreError, RecordError, WriteError
from ...records import Document, as_list, as_object, as_whole, object_at, objects_in
from ...sessions.forking import copy_messages, fork_title
from ...sessions.trash import writable_store
from ...storage import keys
from ...storage.json_tree.store import JsonTree
from ...storage.keys import GLOBAL
from ...storage.leases import leases_of
from ...storage.protocol import (
    CanonicalRecords,
    Damage,
    FileTree,
    Key,
    SharedSessions,
    Store,
    StoredMessage,
    ignore_damage,
    log_damage,
    member_stores,
    read_or_none,
)
from ...storage.session_state import mark_imported
from ..formats.opencode import complete_message, complete_session
from .import_sources import PathMap, SourceSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ...storage.protocol import Report

T = TypeVar("T")
ImportAction = Literal["added", "extended", "unchanged", "forked", "skipped"]
_ID_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_STATUS_ORDER = {"pending": 0, "running": 1, "completed": 2, "error": 2}
_IGNORED_FIELDS = ("path", "sessionID", "messageID", "tail_start_id")
"""Fields that say where a record was made. The last one names a message, which in the forks that earlier versions of
opensesh made is that of the original."""
_MONOTONIC_FIELDS = ("summary", "metadata", "title", "completed", "end", "compacted", "finish", "error", "attachments")
"""Fields that a record gains over time."""
_NEWER_FIELDS = ("agent", "model", "metadata", "path", "workspaceID")
"""Fields of a session that the tree of an older OpenCode lacks. A newer record without them does not remove them."""
_TODO_DEFAULTS = {"content": "", "status": "pending", "priority": "medium"}


class ImportResult(NamedTuple):
    """The result for one session."""

    id: str
    """Its id in this store."""
    act: ImportAction
    title: str
    records: int
    """How many records were written, or would be."""
    reason: str = ""


class Importer:
    """Imports sessions into the store that new sessions go to. Each session is written as one batch.

    A store that has a form of its own for records, as OpenCode's database has, gets completed ones; a session that
    cannot be completed is skipped.
    """

    def __init__(
        self,
        store: Store,
        *,
        paths: PathMap | None = None,
        dry_run: bool = False,
        report: Report = log_damage,
    ) -> None:
        self._whole_store = store
        self._damaged: set[str] = set()
        """Ids of stores that turned out to be damaged."""
        self._use(writable_store(store))
        self._paths = paths or PathMap()
        self._dry_run = dry_run
        self._report = report
        self._leases = leases_of(store)

    def _use(self, target: Store) -> None:
        # In a tree, one sync at the end costs less than two for each record.
        self.target = JsonTree(target.root, durability="relaxed") if isinstance(target, FileTree) else target
        self._session_keys = {key[-1]: key for key in target.list(("session",))}
        self._projects = {key[-1] for key in target.list(("project",))}

    def take(self, sessions: Iterable[SourceSession]) -> list[ImportResult]:
        """Import sessions one after the other; return the result for each, in order."""
        results = [self._import(session) for session in sessions]
        is_relaxed = isinstance(self.target, JsonTree)
        if is_relaxed and not self._dry_run and any(result.records for result in results) and hasattr(os, "sync"):
            os.sync()
        return results

    def _import(self, original: SourceSession) -> ImportResult:
        source, title = original, original.title
        try:
            keys.check_key(("session", source.id))
            holder = self._leases.holder(source.id)
            if holder is not None:
                return ImportResult(source.id, "skipped", title, 0, f"being run here by {holder}")
            runner = self.target.foreign_run(source.id) if isinstance(self.target, SharedSessions) else ""
            if runner:
                return ImportResult(source.id, "skipped", title, 0, f"being run here by {runner}")
            source = self._without_allowing_rules(_without_foreign_share(self._paths.applied(source)))
            if isinstance(self.target, CanonicalRecords):
                source = _completed(source, self.target.canonical_record, self._report)
            return self._merge(source, title)
        except OpenseshError as error:
            # Damage of a database may show only when it is used, and nothing was written then. As for all that is new,
            # the tree takes its place.
            if not self.target.writable or error.data.get("path") == self.target.place:
                self._damaged.add(self.target.id)
                members = member_stores(self._whole_store)
                others = [member for member in members if member.writable and member.id not in self._damaged]
                if others:
                    self._report(Damage(self.target.place, f"sessions go to {others[0].place}: {error.message}"))
                    self._use(others[0])
                    return self._import(original)
            if isinstance(error, (WriteError, ReadOnlyStoreError)):
                raise  # concerns the store, so no session can be imported
            if isinstance(error, (RecordError, NotFoundError)):
                return ImportResult(source.id, "skipped", title, 0, error.message)
            self._report(Damage(source.origin, error.message))
            return ImportResult(source.id, "skipped", title, 0, error.message)

    def _without_allowing_rules(self, source: SourceSession) -> SourceSession:
        """Return a session without its rules that allow something: another person's file answers no questions here."""
        rules = as_list(source.info.get("permission")) or []
        others = [rule for rule in rules if (as_object(rule) or {}).get("action") != "allow"]
        if len(others) == len(rules):
            return source
        reason = f"{source.id}: rules of the session that allow something without asking are left out"
        self._report(Damage(source.origin, reason))
        return source._replace(info=source.info | {"permission": others})

    def _merge(self, source: SourceSession, title: str) -> ImportResult:
        key = self._session_keys.get(source.id)
        theirs = list(source.messages())
        if key is None:
            return ImportResult(source.id, "added", title, self._write(source, theirs))
        ours = self._messages(source.id)
        theirs = normalise_2x_copies(ours, theirs)
        relation = compare(ours, theirs)
        if relation is Relation.DIVERGED:
            fork = as_fork(source, ours, theirs)
            key, theirs = self._session_keys.get(fork.id), list(fork.messages())
            is_known = key is not None and compare(self._messages(fork.id), theirs) is not Relation.AHEAD
            count = 0 if is_known else self._write(fork, theirs, key=key)
            action = "forked" if count or key is None else "unchanged"
            return ImportResult(fork.id, action, title, count, "was continued separately")
        stored = as_object(read_or_none(self.target, key)) or {}
        if relation is Relation.AHEAD or _updated(source.info) > _updated(stored):
            # Without new messages the session's record may still be newer.
            messages = theirs if relation is Relation.AHEAD else []
            return ImportResult(source.id, "extended", title, self._write(source, messages, key=key))
        count = self._store((key, value) for key, value in source.related if read_or_none(self.target, key) is None)
        return ImportResult(source.id, "extended" if count else "unchanged", title, count)

    def _messages(self, session_id: str) -> Sequence[StoredMessage]:
        # Damaged records are not reported: the import may repair them.
        return self.target.messages(session_id, report=ignore_damage)

    def _write(self, session: SourceSession, messages: list[StoredMessage], *, key: Key | None = None) -> int:
        """Store what does not exist yet; return how many records were written.

        Parts are written before their message, and the session last: in a tree, where a batch is not atomic, it only
        appears when it is complete.
        """
        project_id = str(session.info.get("projectID") or GLOBAL)
        session_key = keys.check_key(key or keys.session(project_id, session.id))
        shares = {key for key, _ in session.related if key == keys.share(session.id) and read_or_none(self.target, key)}
        records: list[tuple[Key, Any]] = [(key, value) for key, value in session.related if key not in shares]
        for message in messages:
            message_id = message.info["id"]
            records += [(keys.part(message_id, part["id"]), part) for part in message.parts]
            records.append((keys.message(session.id, message_id), message.info))
        if key is None and session_key[1] not in self._projects:
            # Without the record of its project OpenCode does not list the session.
            records.append((keys.project(session_key[1]), _project_of(session, session_key[1], messages)))
        stored = as_object(read_or_none(self.target, session_key))
        if stored is None or _updated(session.info) >= _updated(stored):
            own = ("projectID", "directory", "permission", "share")
            kept = {name: stored[name] for name in own if stored and name in stored}
            newer = {name: stored[name] for name in _NEWER_FIELDS if stored and name in stored}
            records.append((session_key, newer | session.info | kept))
        count = self._store(records, mark=session.id)
        self._session_keys[session.id] = session_key
        self._projects.add(session_key[1])
        return count

    def _store(self, records: Iterable[tuple[Key, Any]], *, mark: str = "") -> int:
        """Store, in one batch, the records that are missing or differ; return how many.

        ``mark`` is the session to mark as imported first: without the mark it would be taken for one that ran here.
        """
        # What cannot be read is replaced as well.
        changed = [(key, value) for key, value in records if read_or_none(self.target, key) != value]
        if changed and not self._dry_run:
            if mark:
                mark_imported(self.target, mark)
            with self.target.batch() as batch:
                for key, value in changed:
                    batch.write(key, value)
        return len(changed)


def _without_foreign_share(source: SourceSession) -> SourceSession:
    """Return a session without the link of a share whose record is not imported."""
    if "share" not in source.info or any(key == keys.share(source.id) for key, _ in source.related):
        return source
    return source._replace(info={name: value for name, value in source.info.items() if name != "share"})


def _project_of(session: SourceSession, project_id: str, messages: list[StoredMessage]) -> Document:
    """Return the record of a session's project: that of the source, or one made from what the session tells."""
    if session.project is not None and session.project.get("id") == project_id:
        return session.project
    paths = (object_at(message.info, "path") for message in messages)
    root = next((str(path["root"]) for path in paths if path.get("root")), "/")
    created = object_at(session.info, "time").get("created", 0)
    record: Document = {"id": project_id, "worktree": "/" if project_id == GLOBAL else root}
    if project_id != GLOBAL:
        record["vcs"] = "git"
    return record | {"sandboxes": [], "time": {"created": created, "updated": created}}


def _completed(source: SourceSession, canonical: Callable[[Key, Any], Any], report: Report) -> SourceSession:
    """Return a session with the fields that OpenCode requires; raise :class:`RecordError` if it has unusable ones."""
    info = complete_session(source.info, source.id, GLOBAL)
    session_id = info["id"]
    messages: list[StoredMessage] = []
    prompt_id = ""
    for stored in source.messages():
        message, parts = complete_message(stored, info, prompt_id)
        if message["role"] == "user":
            prompt_id = message["id"]
        parts = [canonical(keys.part(message["id"], part["id"]), part) for part in parts]
        messages.append(StoredMessage(canonical(keys.message(session_id, message["id"]), message), parts))
    related: list[tuple[Key, Any]] = []
    for (kind, _), record in source.related:
        key = (kind, session_id)
        try:
            match kind:
                case "todo":
                    todos = [_TODO_DEFAULTS | todo for todo in objects_in(record) if todo]
                    related += [(key, canonical(key, todos))] if todos else []  # an empty list has no rows
                case "session_diff":
                    related.append((key, record))
                case _:
                    related.append((key, canonical(key, record)))
        except RecordError as error:
            report(Damage(source.origin, f"{kind}: {error.reason}"))
    project = source.project
    if project is not None:
        defaults: Document = {"sandboxes": [], "time": {"created": 0}}
        try:
            project = canonical(keys.project(str(project.get("id"))), defaults | project)
        except RecordError:
            project = None  # it is made from what the session tells
    return source._replace(
        id=session_id,
        info=canonical(keys.session(info["projectID"], session_id), info),
        messages=lambda: messages,
        project=project,
        related=related,
    )


def _updated(info: Document) -> int:
    time = object_at(info, "time")
    return as_whole(time.get("updated") or time.get("created"))


# -- comparing two copies of a session ---------------------------------------------------------------------------------


class Relation(Enum):
    """The relation of the imported copy of a session to the existing one."""

    SAME = "same"
    AHEAD = "ahead"
    """It contains everything of the existing copy, and more."""
    BEHIND = "behind"
    """It contains nothing that the existing copy lacks."""
    DIVERGED = "diverged"
    """Each contains something that the other lacks."""


def compare(ours: Sequence[StoredMessage], theirs: Sequence[StoredMessage]) -> Relation:
    """Compare two copies of a session, message by message and part by part."""
    return _combined(_compare_all(_by_id(ours), _by_id(theirs), _compare_messages))


def normalise_2x_copies(ours: Sequence[StoredMessage], theirs: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return ``theirs`` with our copy of each message that one side stores as OpenCode 1.x and the other as 2.x.

    They have the same content in parts with other ids; of a compaction, the summary message as well.
    """
    here, there = _by_id(ours), _by_id(theirs)
    converted = {id_ for id_ in here.keys() & there.keys() if ("v2" in here[id_].info) != ("v2" in there[id_].info)}
    summaries = {parent: message for message in ours if (parent := _summarised(message)) in converted}
    messages: list[StoredMessage] = []
    for id_, message in there.items():
        if id_ in converted:
            messages.append(here[id_])
        elif (parent := _summarised(message)) in converted:
            messages += [summaries.pop(parent)] if parent in summaries else []
        else:
            messages.append(message)
    return messages


def _summarised(message: StoredMessage) -> str:
    """Return the id of the message that requested this summary; empty if it is not a summary."""
    return str(message.info.get("parentID")) if message.info.get("summary") is True else ""


def _by_id(messages: Iterable[StoredMessage]) -> dict[str, StoredMessage]:
    return {str(message.info.get("id")): message for message in messages}


def _combined(relations: set[Relation]) -> Relation:
    relations = relations - {Relation.SAME}
    if not relations:
        return Relation.SAME
    return relations.pop() if len(relations) == 1 else Relation.DIVERGED


def _compare_all(here: Mapping[str, T], there: Mapping[str, T], compared: Callable[[T, T], Relation]) -> set[Relation]:
    """Compare what both sides have, and take into account what only one has."""
    relations = {compared(here[id_], there[id_]) for id_ in here.keys() & there.keys()}
    if there.keys() - here.keys():
        relations.add(Relation.AHEAD)
    if here.keys() - there.keys():
        relations.add(Relation.BEHIND)
    return relations


def _compare_messages(ours: StoredMessage, theirs: StoredMessage) -> Relation:
    here = {str(part.get("id")): part for part in ours.parts}
    there = {str(part.get("id")): part for part in theirs.parts}
    return _combined({_compare_records(ours.info, theirs.info), *_compare_all(here, there, _compare_records)})


def _compare_records(ours: Document, theirs: Document) -> Relation:
    """Compare two copies of a record. Where it was made, and the summary of a turn, do not count."""
    relations: set[Relation] = set()
    for name in ours.keys() | theirs.keys():
        here, there = ours.get(name), theirs.get(name)
        if here == there or name in _IGNORED_FIELDS or (name == "summary" and None not in (here, there)):
            continue
        relations.add(_compare_fields(name, here, there))
    return _combined(relations)


def _compare_fields(name: str, ours: Any, theirs: Any) -> Relation:
    if ours is None or theirs is None:
        return Relation.AHEAD if ours is None else Relation.BEHIND
    if isinstance(ours, str) and isinstance(theirs, str):
        return _compare_texts(name, ours, theirs)
    here, there = as_object(ours), as_object(theirs)
    if here is not None and there is not None:
        return _compare_states(here, there) if "status" in here and "status" in there else _compare_records(here, there)
    # An answer begins with zeros and gets its usage at the end of each step; two other figures contradict each other.
    if name in ("cost", "total", "input", "output", "reasoning", "read", "write") and not (ours and theirs):
        return Relation.AHEAD if not ours else Relation.BEHIND
    lists = as_list(ours), as_list(theirs)
    if name in _MONOTONIC_FIELDS and None not in lists:
        return Relation.AHEAD if len(lists[1] or ()) > len(lists[0] or ()) else Relation.BEHIND
    return Relation.DIVERGED


def _compare_texts(name: str, ours: str, theirs: str) -> Relation:
    if name in ("text", "output", "raw"):
        if theirs.rstrip() == ours.rstrip():
            return Relation.SAME  # trailing blanks are removed when a text is complete
        if theirs.startswith(ours):
            return Relation.AHEAD
        if ours.startswith(theirs):
            return Relation.BEHIND
    # A title that was set later does not change the conversation; the existing one stays.
    return Relation.BEHIND if name in _MONOTONIC_FIELDS else Relation.DIVERGED


def _compare_states(ours: Document, theirs: Document) -> Relation:
    """Compare two states of a tool call: the later one contains more."""
    here, there = (_STATUS_ORDER.get(str(state["status"]), 0) for state in (ours, theirs))
    if here != there:
        return Relation.AHEAD if there > here else Relation.BEHIND
    return _compare_records(ours, theirs) if ours["status"] == theirs["status"] else Relation.DIVERGED


def as_fork(source: SourceSession, ours: Sequence[StoredMessage], theirs: Sequence[StoredMessage]) -> SourceSession:
    """Return a diverged copy as a session of its own.

    Its id derives from the first message that differs: if it is imported again, perhaps with more messages, it gets the
    same id.
    """
    here = _by_id(ours)
    divergence = next(
        (
            id_
            for id_, message in ((str(message.info.get("id")), message) for message in theirs)
            if id_ not in here or _compare_messages(here[id_], message) is Relation.DIVERGED
        ),
        "end",
    )
    fork_id = _derived_id(source.id, divergence)
    copies = copy_messages(theirs, fork_id, _derived_id)
    time = object_at(source.info, "time")
    times = [object_at(message.info, "time").get("created") for message in theirs]
    # Later than all messages, as with every fork: that marks the messages as copies.
    created = max([as_whole(time.get("created")), *(as_whole(moment) + 1 for moment in times)])
    info = source.info | {
        "id": fork_id,
        "title": fork_title(source.title),
        "time": time | {"created": created, "updated": max(created, as_whole(time.get("updated")))},
    }
    info.pop("share", None)
    return source._replace(id=fork_id, info=info, messages=lambda: copies, related=())


def _derived_id(id_: str, salt: str) -> str:
    """Return a new id that keeps the prefix and time of an id, and so its position in the order."""
    digest = blake2b(f"{id_}\0{salt}".encode(), digest_size=14).digest()
    return id_[:-14] + "".join(_ID_ALPHABET[byte % 62] for byte in digest) if len(id_) > 26 else id_ + digest.hex()
