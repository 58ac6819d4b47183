"""Bringing sessions in: from OpenCode's export files, or from another store. Running it twice changes nothing.

Lossless sources are OpenCode's export JSON (one document, an array of them, or one a line) and stores. Records are
united by identifier. A session that is not here yet is taken over whole; of one that is here, what is missing or less
complete is filled in. If both sides have gone on separately, or say different things under one name, the one that is
here stays as it is and the other is kept beside it as a fork, always under the same new name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...errors import NotFoundError, OpenseshError, RecordError, WriteError
from ...records import as_object, as_whole
from ...storage import keys
from ...storage.json_tree import JsonTree
from ...storage.keys import GLOBAL
from ...storage.leases import leases_of
from ...storage.protocol import Damage, FileTree, Key, StoredMessage, log_damage
from .import_sources import PathMap, SourceSession
from .merging import Relation, as_fork, compare, normalise_2x_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...records import Document

    Report = Callable[[Damage], None]

ImportAction = Literal["added", "extended", "unchanged", "forked", "skipped"]


class ImportResult(NamedTuple):
    """What became of one session."""

    id: str
    """Under which name it is here."""
    act: ImportAction
    title: str
    records: int
    """How many were written, or would be."""
    reason: str = ""


class Importer:
    """Brings sessions into one tree."""

    def __init__(
        self,
        tree: FileTree,
        *,
        paths: PathMap | None = None,
        dry_run: bool = False,
        report: Report = log_damage,
    ) -> None:
        # One sync at the end costs less than two for each record.
        self.tree = JsonTree(tree.root, durability="relaxed")
        self._paths = paths or PathMap()
        self._dry_run = dry_run
        self._report = report
        self._leases = leases_of(tree)
        self._homes = {key[-1]: key for key in tree.list(("session",))}

    def take(self, sessions: Iterable[SourceSession]) -> list[ImportResult]:
        """Bring them in, one after the other; what became of each, in order."""
        done = [self._take(session) for session in sessions]
        if not self._dry_run and any(each.records for each in done) and hasattr(os, "sync"):
            os.sync()
        return done

    def _take(self, incoming: SourceSession) -> ImportResult:
        title = incoming.title
        try:
            keys.check_key(("session", incoming.id))
            holder = self._leases.holder(incoming.id)
            if holder is not None:
                return ImportResult(incoming.id, "skipped", title, 0, f"being run here by {holder}")
            return self._merge(self._paths.applied(incoming), title)
        except WriteError:
            raise  # which is not about this session: none can be stored
        except (RecordError, NotFoundError) as error:
            return ImportResult(incoming.id, "skipped", title, 0, error.message)
        except OpenseshError as error:
            self._report(Damage(incoming.place, error.message))
            return ImportResult(incoming.id, "skipped", title, 0, error.message)

    def _merge(self, incoming: SourceSession, title: str) -> ImportResult:
        home = self._homes.get(incoming.id)
        theirs = list(incoming.messages())
        if home is None:
            return ImportResult(incoming.id, "added", title, self._write(incoming, theirs))
        ours = self.tree.messages(incoming.id, report=_overlook)
        theirs = normalise_2x_copies(ours, theirs)
        relation = compare(ours, theirs)
        if relation is Relation.DIVERGED:
            fork = as_fork(incoming, ours, theirs)
            if fork.id in self._homes:
                again = self._merge_into_fork(fork)
                return ImportResult(
                    fork.id, "unchanged" if not again else "forked", title, again, "had gone on separately"
                )
            count = self._write(fork, list(fork.messages()))
            return ImportResult(fork.id, "forked", title, count, "had gone on separately")
        if relation in (Relation.SAME, Relation.BEHIND):
            return self._unchanged(incoming, home, title)
        return ImportResult(incoming.id, "extended", title, self._write(incoming, theirs, home=home))

    def _merge_into_fork(self, fork: SourceSession) -> int:
        theirs = list(fork.messages())
        ours = self.tree.messages(fork.id, report=_overlook)
        return self._write(fork, theirs, home=self._homes[fork.id]) if compare(ours, theirs) is Relation.AHEAD else 0

    def _unchanged(self, incoming: SourceSession, home: Key, title: str) -> ImportResult:
        """Nothing new was said; but the record of the session may be newer, and something beside it may be missing."""
        held = as_object(self._held(home)) or {}
        if _updated(incoming.info) > _updated(held):
            return ImportResult(incoming.id, "extended", title, self._write(incoming, [], home=home))
        count = sum(self._put(key, value) for key, value in incoming.beside if self._held(key) is None)
        return ImportResult(incoming.id, "extended" if count else "unchanged", title, count)

    def _write(self, session: SourceSession, messages: list[StoredMessage], *, home: Key | None = None) -> int:
        """Store what is not here yet: parts before their message, and the session itself last, so that it is seen only
        when it is complete."""
        key = keys.check_key(home or keys.session(str(session.info.get("projectID") or GLOBAL), session.id))
        count = sum(self._put(key, value) for key, value in session.beside)
        for message in messages:
            name = message.info["id"]
            count += sum(self._put(keys.part(name, part["id"]), part) for part in message.parts)
            count += self._put(keys.message(session.id, name), message.info)
        if home is None:
            count += self._put_project(session, key[1], messages)
        held = as_object(self._held(key))
        if held is None or _updated(session.info) >= _updated(held):
            filed = {name: held[name] for name in ("projectID", "directory") if held and name in held}
            count += self._put(key, session.info | filed)
        self._homes[session.id] = key
        return count

    def _put_project(self, session: SourceSession, project: str, messages: list[StoredMessage]) -> int:
        """The record of its project, unless there is one; without it, other programs overlook its sessions."""
        key = keys.project(project)
        if os.path.exists(self.tree.locate(key)):
            return 0
        if session.project is not None and session.project.get("id") == project:
            return self._put(key, session.project)
        paths = (as_object(message.info.get("path")) or {} for message in messages)
        root = next((str(path["root"]) for path in paths if path.get("root")), "/")
        created = (as_object(session.info.get("time")) or {}).get("created", 0)
        record: Document = {"id": project, "worktree": "/" if project == GLOBAL else root}
        if project != GLOBAL:
            record["vcs"] = "git"
        return self._put(key, record | {"sandboxes": [], "time": {"created": created, "updated": created}})

    def _put(self, key: Key, value: Document | list[Document]) -> int:
        if self._held(key) == value:
            return 0
        if not self._dry_run:
            self.tree.write(key, value)
        return 1

    def _held(self, key: Key) -> object:
        """What is here under that key; nothing for what cannot be read, which an import may heal."""
        try:
            return self.tree.read(key)
        except (NotFoundError, RecordError):
            return None


def _updated(info: Document) -> int:
    time = as_object(info.get("time")) or {}
    return as_whole(time.get("updated") or time.get("created"))


def _overlook(_: Damage) -> None:
    """What cannot be read here may be healed by what comes in."""
