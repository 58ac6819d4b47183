"""Checks of OpenCode's database: rows that OpenCode cannot read, orphans, stale answers, and its event log.

OpenCode checks everything that it reads: one row of another shape and a session, or the list of all of them, cannot be
shown any more. A repair completes such a row, or moves it aside; both are made row by row and can be undone.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import RecordError
from ...ids import now_ms
from ...records import Document, as_whole, object_at
from ...sessions.final_states import close_answer, close_call, is_open_answer, is_open_call
from ...sessions.undo import Change
from ...storage.keys import GLOBAL
from ...storage.leases import FileLeases
from ...storage.protocol import ConditionallyWritable, RawRow, RawRows, SharedSessions, Store, StoredMessage
from ...text import pluralize
from ..formats.opencode import complete_message, complete_session
from .findings import Finding
from .inventory import rebuilt_message, rebuilt_session
from .tree_checks import DAY_MS, check_leases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_RECOVER = "copy the file while OpenCode does not run, and try `.recover` of the sqlite3 shell on the copy"


class _MessageRow(NamedTuple):
    """The fields of a message that the other checks need."""

    session: str
    created: int


def check_database(store: Store, rows: RawRows) -> Iterator[Finding]:
    """Yield everything that is wrong with a database."""
    damage = rows.structural_damage()
    if damage:
        # Nothing can be said about rows, and nothing may be written.
        yield from (Finding("database", store.place, line, "damage", remedy=_RECOVER) for line in damage)
    else:
        yield from _DatabaseCheck(store, rows).findings()


class _DatabaseCheck:
    """The checks of the rows of one database. Every table is read once."""

    def __init__(self, store: Store, rows: RawRows) -> None:
        self._store = store
        self._rows = rows
        self._sessions = {_key(row): row for row in rows.rows("session")}
        self._projects = {_key(row): str(row.record.get("worktree", "")) for row in rows.rows("project")}
        self._messages: dict[str, _MessageRow] = {}
        self._suspects: list[RawRow] = []
        """Messages that are unreadable, unfinished, or of a session that is gone."""
        self._newest: dict[str, tuple[int, set[str]]] = {}
        """The newest time of each session, and the messages of that time."""
        for row in rows.rows("message"):
            session = _text(row, "session_id")
            created = as_whole(row.columns.get("time_created"))
            self._messages[_key(row)] = _MessageRow(session, created)
            newest, names = self._newest.get(session, (-1, set[str]()))
            if created > newest:
                self._newest[session] = created, {_key(row)}
            elif created == newest:
                names.add(_key(row))
            if row.fault or session not in self._sessions or is_open_answer(row.record):
                self._suspects.append(row)
        self._running = dict(FileLeases.of(store).held())

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with the rows."""
        refusal = self._store.refusal if isinstance(self._store, ConditionallyWritable) else ""
        for finding in self._row_findings():
            if refusal:
                yield finding._replace(changes=(), remedy=f"opensesh only reads this database: {refusal}")
            else:
                yield finding
        yield from check_leases(FileLeases.of(self._store))

    def _row_findings(self) -> Iterator[Finding]:
        lost = {message.session for message in self._messages.values()} - self._sessions.keys()
        parts: dict[str, list[Document]] = {
            _key(row): [] for row in self._suspects if row.fault or is_open_answer(row.record)
        }
        yield from self._unreadable_projects()
        yield from self._unreadable_sessions()
        yield from self._lost_sessions(lost)
        yield from self._faulty_parts(parts)
        yield from self._faulty_messages(parts)
        yield from self._event_log()

    # -- sessions and projects -----------------------------------------------------------------------------------------

    def _unreadable_projects(self) -> Iterator[Finding]:
        for row in self._rows.rows("project"):
            if row.fault:
                time = {"created": 0, "updated": 0} | object_at(row.record, "time")
                whole = row.record | {"time": {name: as_whole(value) for name, value in time.items()}}
                yield self._replaced("torn", row, row.fault, "project", whole | {"sandboxes": []})
        used = {_text(row, "project_id") for row in self._sessions.values()}
        for name in sorted(used - self._projects.keys()):
            sessions = [row for row in self._sessions.values() if _text(row, "project_id") == name]
            directory = "/" if name == GLOBAL else _absolute(sessions[0].record.get("directory"))
            time = {"created": now_ms(), "updated": now_ms()}
            project: Document = {"id": name, "worktree": directory, "sandboxes": [], "time": time}
            text = f"the project of {pluralize(len(sessions), 'session')} is gone"
            yield self._inserted("orphan", f"project/{name}", text, "project", project)

    def _unreadable_sessions(self) -> Iterator[Finding]:
        workspaces = {_key(row) for row in self._rows.rows("workspace")}
        for name, row in self._sessions.items():
            workspace = row.record.get("workspaceID")
            texts = [row.fault] if row.fault else []
            if workspace is not None and workspace not in workspaces:
                texts.append(f"its workspace {workspace} is gone, and OpenCode cannot show it")
            if texts:
                record = complete_session(row.record, name, _text(row, "project_id"))
                record["directory"] = _absolute(record["directory"])
                for field in ("workspaceID", "revert", "model", "metadata", "permission", "summary", "parentID"):
                    # The first field that OpenCode cannot read is left out, then the next.
                    if (field == "workspaceID" and workspace not in workspaces) or not self._can_store(
                        "session", record, row
                    ):
                        record.pop(field, None)
                yield self._replaced("torn", row, "; ".join(texts), "session", record)

    def _lost_sessions(self, lost: set[str]) -> Iterator[Finding]:
        for session in sorted(lost):
            infos = [row.record for row in self._suspects if _text(row, "session_id") == session]
            record = rebuilt_session(session, infos, self._projects.items())
            whole = complete_session(record, session, GLOBAL)
            whole["directory"] = _absolute(whole["directory"])
            if whole["projectID"] not in self._projects:
                whole["projectID"] = next(iter(self._projects), GLOBAL)
            text = f"{pluralize(len(infos), 'message')} of a session whose row is lost"
            yield self._inserted("orphan", f"session/{session}", text, "session", whole)

    # -- messages and parts --------------------------------------------------------------------------------------------

    def _faulty_messages(self, parts: dict[str, list[Document]]) -> Iterator[Finding]:
        for row in self._suspects:
            name, session = _key(row), _text(row, "session_id")
            record, texts = row.record, [row.fault] if row.fault else []
            if row.fault:
                if "role" not in record:
                    others = [other.record for other in self._suspects if _text(other, "session_id") == session]
                    record = rebuilt_message(session, name, parts[name], [info for info in others if info != record])
                    if record is None:
                        yield self._aside("torn", row, row.fault)
                        continue
                    texts.append("can be rebuilt from its parts")
                owner = self._sessions[session].record if session in self._sessions else {"id": session}
                record = complete_message(StoredMessage(record, []), owner, "").info
            if is_open_answer(record) and self._is_over(name, row):
                record = record.copy()
                close_answer(record, parts[name], as_whole(row.columns.get("time_updated")))
                texts.append("an answer that was never finished")
            if texts:
                yield self._replaced("torn" if row.fault else "stale", row, "; ".join(texts), "message", record)

    def _faulty_parts(self, parts: dict[str, list[Document]]) -> Iterator[Finding]:
        """Yield what is wrong with parts, and add the readable ones of the messages in ``parts`` to it."""
        for row in self._rows.rows("part"):
            message_id = _text(row, "message_id")
            message = self._messages.get(message_id)
            if message is None:
                yield self._aside("orphan", row, "a part of a message that is gone", "odd")
                continue
            record, texts = row.record, [row.fault] if row.fault else []
            if not row.fault and message_id in parts:
                parts[message_id].append(record)
            if row.fault:
                if "type" not in record:
                    yield self._aside("torn", row, row.fault)
                    continue
                info = {"id": message_id, "time": {"created": message.created}}
                record = complete_message(StoredMessage(info, [record]), {"id": message.session}, "").parts[0]
            if _text(row, "session_id") != message.session:
                record = record | {"sessionID": message.session}
                texts.append(f"filed under {_text(row, 'session_id')}, but its message is of {message.session}")
            if is_open_call(record) and self._is_over(message_id, row):
                texts.append(f"a tool call that stays {object_at(record, 'state')['status']} forever")
                record = record.copy()
                close_call(record, as_whole(row.columns.get("time_updated")))
            if texts:
                yield self._replaced("torn" if row.fault else "stale", row, "; ".join(texts), "part", record)

    def _is_over(self, message_id: str, row: RawRow) -> bool:
        """Return whether nothing will finish a message: there is a later one, or a day has passed."""
        session = self._messages[message_id].session
        is_newest = message_id in self._newest[session][1]
        if is_newest and now_ms() - as_whole(row.columns.get("time_updated")) <= DAY_MS:
            return False
        foreign = isinstance(self._store, SharedSessions) and self._store.foreign_run(session)
        return session not in self._running and not foreign

    # -- the event log -------------------------------------------------------------------------------------------------

    def _event_log(self) -> Iterator[Finding]:
        """Yield counters that are behind the log: OpenCode could not write to such a session any more."""
        counters = {_key(row): row for row in self._rows.rows("event_sequence")}
        highest: dict[str, int] = {}
        for row in self._rows.rows("event"):
            session = _text(row, "aggregate_id")
            highest[session] = max(highest.get(session, 0), as_whole(row.columns.get("seq")))
        for session, number in sorted(highest.items()):
            counter = counters.get(session)
            if counter is None or as_whole(counter.columns.get("seq")) < number:
                path = f"event_sequence/{session}"
                text = "behind the event log: OpenCode cannot write to the session any more"
                before = self._rows.read_row(path)
                columns = json.loads(before) if before else {"aggregate_id": session, "owner_id": None}
                data = json.dumps(columns | {"seq": number}, ensure_ascii=False, separators=(",", ":")).encode()
                yield self._finding("torn", path, text, [Change(path=path, data=data)])

    # -- findings ------------------------------------------------------------------------------------------------------

    def _can_store(self, table: str, record: Document, row: RawRow) -> bool:
        with suppress(RecordError):
            self._rows.row_of(table, record, row.columns)
            return True
        return False

    def _replaced(self, kind: str, row: RawRow, text: str, table: str, record: Document) -> Finding:
        try:
            data = self._rows.row_of(table, record, row.columns)
        except RecordError:
            # A session or project stays where it is: its messages belong to it.
            return self._aside(kind, row, text) if table in ("message", "part") else self._finding(kind, row.path, text)
        return self._finding(kind, row.path, text, [Change(path=row.path, data=data)])

    def _inserted(self, kind: str, path: str, text: str, table: str, record: Document) -> Finding:
        return self._finding(kind, path, text, [Change(path=path, data=self._rows.row_of(table, record, {}))])

    def _aside(self, kind: str, row: RawRow, text: str, level: Any = "damage") -> Finding:
        return self._finding(kind, row.path, text, [Change(path=row.path, aside=True)], level)

    def _finding(
        self, kind: str, path: str, text: str, changes: Sequence[Change] = (), level: Any = "damage"
    ) -> Finding:
        level = "odd" if kind == "stale" else level
        return Finding(kind, path, text, level, changes, rows_of=self._store)


def _key(row: RawRow) -> str:
    return _text(row, "aggregate_id" if row.path.startswith("event_sequence/") else "id")


def _text(row: RawRow, name: str) -> str:
    value = row.columns.get(name)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _absolute(directory: object) -> str:
    text = str(directory or "/")
    is_windows = len(text) > 2 and text[1] == ":"
    return text if text.startswith("/") or is_windows else f"/{text}"
