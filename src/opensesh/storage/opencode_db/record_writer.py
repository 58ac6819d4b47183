"""Writing records into OpenCode's tables, with the totals and the event log that OpenCode keeps beside them.

Everything here happens inside one transaction. OpenCode logs each change as a row of ``event``, numbered within its
session; other machines replay that log, and OpenCode continues the numbers. Text that is still growing is written
without an event, as only its beginning and its end are logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ids
from ...errors import NotFoundError, RecordError, StoreError
from ...records import object_at
from ...records.codec import dumps_compact, loads, loads_object
from ..keys import GLOBAL
from . import rows
from .rows import (
    DERIVED,
    data_of,
    project_columns,
    session_columns,
    step_totals,
    total_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from sqlite3 import Connection, Cursor

    from ...records import Document
    from ..protocol import Key
    from .rows import Columns, Row
    from .table_schema import Schema

_STREAMED = ("text", "reasoning")


class RecordWriter:
    """The writes of one transaction."""

    def __init__(self, connection: Connection, schema: Schema, path: str) -> None:
        self._connection = connection
        self._schema = schema
        self._path = path
        self._now = ids.now_ms()
        self._created: dict[str, bool] = {}
        """The sessions that this transaction creates, and whether their records state totals, which then hold."""
        self.event_ids: list[str] = []
        self.unlogged_sessions: list[str] = []
        """The sessions whose row was changed without an event, or removed."""
        self.bytes = 0
        """How much was written into the columns ``data``."""

    def apply(self, operations: Iterable[tuple[Key, Any]]) -> None:
        """Write canonical records, and remove those whose value is ``None``; of several for one key the last counts."""
        last = dict(operations)
        writers: dict[str, Callable[[Key, Any], None]] = {  # each kind after those that it refers to
            "project": self._write_project,
            "session": self._write_session,
            "message": self._write_message,
            "part": self._write_part,
            "todo": self._write_todo,
            "session_share": self._write_share,
        }
        for kind, write in writers.items():
            for key, record in last.items():
                if key[0] == kind and record is not None:
                    write(key, record)
        self._remove([key for key in last if last[key] is None])

    def has_session(self, session_id: str) -> bool:
        """Return whether there is such a session."""
        return self._row("session", "id = ?", [session_id], ("id",)) is not None

    def log_repair(self, kind: str, record: Document, *, removed: bool) -> None:
        """Log a row that a repair has replaced, inserted or deleted, if its session is there."""
        session_id = record["id" if kind == "session" else "sessionID"]
        if not self.has_session(session_id):
            return
        match kind:
            case "session":
                self._log_session(session_id, "session.updated.1")
            case "message" if removed:
                self._log(session_id, "message.removed.1", {"sessionID": session_id, "messageID": record["id"]})
            case "message":
                self._log(session_id, "message.updated.1", {"sessionID": session_id, "info": record})
            case _ if removed:
                data = {"sessionID": session_id, "messageID": record["messageID"], "partID": record["id"]}
                self._log(session_id, "message.part.removed.1", data)
            case _:
                data = {"sessionID": session_id, "part": record, "time": self._now}
                self._log(session_id, "message.part.updated.1", data)

    # -- sessions and projects -----------------------------------------------------------------------------------------

    def _write_project(self, key: Key, project: Document) -> None:
        columns = project_columns(project, self._schema.columns["project"])
        before = self._row("project", "id = ?", [key[1]], tuple(columns))
        if before is None:
            self._insert("project", columns)
        else:
            self._update("project", "id", key[1], _changed(columns, before))

    def _write_session(self, key: Key, session: Document) -> None:
        session_id = key[2]
        present = self._schema.columns["session"]
        columns = session_columns(session, present)
        self._ensure_project(session)
        before = self._session_row(session_id)
        if before is None:
            totals = {name: value for name, value in total_columns(session).items() if name in present}
            self._insert("session", columns | totals)
            self._created[session_id] = bool(totals)
            self._log_session(session_id, "session.created.1")
            return
        changed = _changed(columns, before)
        if changed:
            self._update("session", "id", session_id, changed)
            self._log_session(session_id, "session.updated.1")

    def _ensure_project(self, session: Document) -> None:
        """Store the project of a session if there is no row of it, with the little that OpenCode needs."""
        project_id = session["projectID"]
        if self._row("project", "id = ?", [project_id], ("id",)) is None:
            is_global = project_id == GLOBAL
            worktree, vcs = ("/", None) if is_global else (session["directory"], "git")
            times = {"time_created": self._now, "time_updated": self._now}
            self._insert("project", {"id": project_id, "worktree": worktree, "vcs": vcs, "sandboxes": "[]"} | times)

    def _log_session(self, session_id: str, event: str) -> None:
        if not self._logs(session_id):
            self.unlogged_sessions.append(session_id)
        elif (row := self._session_row(session_id)) is not None:
            self._log(session_id, event, {"sessionID": session_id, "info": rows.session_document(row)})

    def _session_row(self, session_id: str) -> Row | None:
        return self._row("session", "id = ?", [session_id], rows.SESSION)

    def _add_totals(self, session_id: str, new: Columns, old: Columns) -> None:
        """Count a step that ended, in place of what it was before; a step that is removed has nothing new."""
        if self._created.get(session_id):
            return
        added = {
            name: new.get(name, 0) - old.get(name, 0) for name in DERIVED if name in self._schema.columns["session"]
        }
        added = {name: value for name, value in added.items() if value}
        if added:
            self._execute(
                "UPDATE session SET",
                ", ".join(f"{name} = {name} + ?" for name in added),
                "WHERE id = ?",
                values=[*added.values(), session_id],
            )

    # -- messages and parts --------------------------------------------------------------------------------------------

    def _write_message(self, key: Key, message: Document) -> None:
        _, session_id, message_id = key
        data = data_of(message, "id", "sessionID")
        before = self._row("message", "id = ?", [message_id], ("session_id", "time_created", "time_updated", "data"))
        if before is None:
            self._require_session(session_id)
            if message["role"] == "user":
                self._remember_choice(session_id, message)
            columns: Columns = {"id": message_id, "session_id": session_id, "time_created": message["time"]["created"]}
            self._insert("message", columns | {"time_updated": self._now, "data": data})
        elif before["session_id"] != session_id.encode():
            raise StoreError(f"{message_id} belongs to another session of {self._path}", path=self._path)
        elif _same_json(before["data"], data):
            return
        else:
            columns = {"time_created": message["time"]["created"], "data": data}
            self._update("message", "id", message_id, columns | {"time_updated": self._after(before)})
        self._log(session_id, "message.updated.1", {"sessionID": session_id, "info": message})

    def _remember_choice(self, session_id: str, message: Document) -> None:
        """Note the agent and model of a prompt on its session, as OpenCode does to offer them for the next one."""
        # A session that this transaction creates is a fork or an import: nothing was chosen in it yet.
        if "model" not in self._schema.columns["session"] or session_id in self._created:
            return
        before = self._session_row(session_id)
        model = message["model"]
        choice = {"id": model["modelID"], "providerID": model["providerID"], "variant": model.get("variant", "default")}
        columns: Columns = {"agent": message["agent"], "model": dumps_compact(choice).decode()}
        if before is not None and (changed := _changed(columns, before)):
            self._update("session", "id", session_id, changed)
            self._log_session(session_id, "session.updated.1")

    def _write_part(self, key: Key, part: Document) -> None:
        _, message_id, part_id = key
        session_id = part["sessionID"]
        data = data_of(part, "id", "sessionID", "messageID")
        before = self._row("part", "id = ?", [part_id], ("message_id", "session_id", "time_updated", "data"))
        owner = before or self._row("message", "id = ?", [message_id], ("session_id",))
        if owner is None:
            raise NotFoundError(f"{part_id} has no message: {message_id} is not in {self._path}", key=list(key))
        if owner["session_id"] != session_id.encode():
            raise RecordError(f"{message_id} belongs to another session", path=self._path, place="$.sessionID")
        if before is None:
            columns: Columns = {"id": part_id, "message_id": message_id, "session_id": session_id, "data": data}
            self._insert("part", columns | {"time_created": self._now, "time_updated": self._now})
        elif before["message_id"] != message_id.encode():
            raise StoreError(f"{part_id} belongs to another message of {self._path}", path=self._path)
        elif _same_json(before["data"], data):
            return
        else:
            self._update("part", "id", part_id, {"data": data, "time_updated": self._after(before)})
        self._add_totals(session_id, step_totals(part), step_totals(_decoded(before["data"])) if before else {})
        time = object_at(part, "time")
        is_growing = part.get("type") in _STREAMED and "start" in time and "end" not in time
        if before is None or not is_growing:
            self._log(session_id, "message.part.updated.1", {"sessionID": session_id, "part": part, "time": self._now})

    # -- todos and shares ----------------------------------------------------------------------------------------------

    def _write_todo(self, key: Key, todos: Sequence[Document]) -> None:
        self._require_session(key[1])
        self._connection.execute("DELETE FROM todo WHERE session_id = ?", [key[1]])
        for position, todo in enumerate(todos):
            columns: Columns = {name: todo[name] for name in ("content", "status", "priority")}
            columns |= {"session_id": key[1], "position": position}
            self._insert("todo", columns | {"time_created": self._now, "time_updated": self._now})

    def _write_share(self, key: Key, share: Document) -> None:
        self._require_session(key[1])
        columns: Columns = {name: share[name] for name in ("id", "secret", "url")}
        before = self._row("session_share", "session_id = ?", [key[1]], tuple(columns))
        if before is None:
            times = {"time_created": self._now, "time_updated": self._now}
            self._insert("session_share", {"session_id": key[1]} | columns | times)
        elif changed := _changed(columns, before):
            self._update("session_share", "session_id", key[1], changed | {"time_updated": self._now})

    # -- removals ------------------------------------------------------------------------------------------------------

    def _remove(self, removed: Sequence[Key]) -> None:
        """Remove records; what belongs to a removed session or message goes with it, without events of its own."""
        filed = "id = ? AND project_id = ?"
        sessions = {
            key[2] for key in removed if key[0] == "session" and self._row("session", filed, [key[2], key[1]], ("id",))
        }
        messages = {key[2] for key in removed if key[0] == "message" and key[1] not in sessions}
        for kind, *names in removed:
            match kind:
                case "part" if names[0] not in messages:
                    self._remove_part(names[0], names[1], sessions)
                case "message" if names[1] in messages:
                    self._remove_message(names[0], names[1])
                case "todo" | "session_share":
                    self._execute("DELETE FROM", kind, "WHERE session_id = ?", values=names)
                case "session_diff":
                    self._connection.execute("UPDATE session SET summary_diffs = NULL WHERE id = ?", names)
                case "project":
                    self._connection.execute("DELETE FROM project WHERE id = ?", names)
                case _:
                    pass
        self.unlogged_sessions += sessions
        for session_id in sessions:
            self._connection.execute("DELETE FROM session WHERE id = ?", [session_id])
            if "event" in self._schema.columns:
                self._connection.execute("DELETE FROM event WHERE aggregate_id = ?", [session_id])
                self._connection.execute("DELETE FROM event_sequence WHERE aggregate_id = ?", [session_id])

    def _remove_part(self, message_id: str, part_id: str, sessions: set[str]) -> None:
        before = self._row("part", "id = ? AND message_id = ?", [part_id, message_id], ("session_id", "data"))
        if before is None:
            return
        session_id = before["session_id"].decode()
        if session_id in sessions:
            return
        self._add_totals(session_id, {}, step_totals(_decoded(before["data"])))
        self._connection.execute("DELETE FROM part WHERE id = ?", [part_id])
        data = {"sessionID": session_id, "messageID": message_id, "partID": part_id}
        self._log(session_id, "message.part.removed.1", data)

    def _remove_message(self, session_id: str, message_id: str) -> None:
        if self._row("message", "id = ? AND session_id = ?", [message_id, session_id], ("id",)) is None:
            return
        steps = "SELECT data FROM part WHERE message_id = ? AND data LIKE '%step-finish%'"
        for (data,) in self._connection.execute(steps, [message_id]).fetchall():
            self._add_totals(session_id, {}, step_totals(_decoded(data)))
        self._connection.execute("DELETE FROM message WHERE id = ?", [message_id])
        self._log(session_id, "message.removed.1", {"sessionID": session_id, "messageID": message_id})

    # -- the event log -------------------------------------------------------------------------------------------------

    def _log(self, session_id: str, event: str, data: Document) -> None:
        """Append an event to the log of a session, with the next number."""
        if not self._logs(session_id):
            return
        highest = (
            "SELECT max(ifnull((SELECT seq FROM event_sequence WHERE aggregate_id = ?1), -1), "
            "ifnull((SELECT max(seq) FROM event WHERE aggregate_id = ?1), -1))"
        )
        (last,) = self._connection.execute(highest, [session_id]).fetchone()
        self._connection.execute(
            "INSERT INTO event_sequence (aggregate_id, seq) VALUES (?1, ?2) "
            "ON CONFLICT (aggregate_id) DO UPDATE SET seq = ?2",
            [session_id, last + 1],
        )
        self.event_ids.append(ids.ascending("evt"))
        columns: Columns = {"id": self.event_ids[-1], "aggregate_id": session_id, "seq": last + 1, "type": event}
        self._insert("event", columns | {"data": dumps_compact(data).decode()})

    def _logs(self, session_id: str) -> bool:
        """Return whether the changes of a session are logged: since 1.16 always, before where a log was begun."""
        if self._schema.logs_events:
            return True
        if "event" not in self._schema.columns:
            return False
        return self._row("event_sequence", "aggregate_id = ?", [session_id], ("seq",)) is not None

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _row(self, table: str, condition: str, values: Sequence[Any], names: tuple[str, ...]) -> Row | None:
        present = self._schema.columns[table]
        shown = ", ".join(name if name in present else f"NULL AS {name}" for name in names)
        row = self._execute("SELECT", shown, "FROM", table, "WHERE", condition, values=values).fetchone()
        return None if row is None else dict(zip(names, row, strict=True))

    def _insert(self, table: str, columns: Mapping[str, Any]) -> None:
        holes = ", ".join("?" * len(columns))
        words = ("INSERT INTO", table, f"({', '.join(columns)})", f"VALUES ({holes})")
        self._execute(*words, values=[*columns.values()])
        self.bytes += len(columns.get("data") or "")

    def _update(self, table: str, key: str, name: str, columns: Mapping[str, Any]) -> None:
        if columns:
            assignments = ", ".join(f"{column} = ?" for column in columns)
            words = ("UPDATE", table, "SET", assignments, "WHERE", key, "= ?")
            self._execute(*words, values=[*columns.values(), name])
            self.bytes += len(columns.get("data") or "")

    def _execute(self, *words: str, values: Sequence[Any]) -> Cursor:
        """Execute a statement whose names of tables and columns are constants of this package."""
        return self._connection.execute(" ".join(words), values)

    def _require_session(self, session_id: str) -> None:
        if not self.has_session(session_id):
            raise NotFoundError(f"the session {session_id} is not in {self._path}", session=session_id)

    def _after(self, before: Row) -> int:
        """Return a time after the row's last update, so that no change leaves the same time."""
        last = before["time_updated"]
        return max(self._now, int(last) + 1) if isinstance(last, (int, float)) else self._now


def _changed(columns: Columns, before: Row) -> Columns:
    """Return the columns whose values differ from those of the row. Totals are never among them."""
    changed: Columns = {}
    for name, value in columns.items():
        old = before.get(name)
        text = old.decode("utf-8", "replace") if isinstance(old, bytes) else old
        if name not in DERIVED and text != value and not (name in rows.JSON_COLUMNS and _same_json(old, value)):
            changed[name] = value
    return changed


def _same_json(old: Any, new: str | None) -> bool:
    if not isinstance(old, bytes) or new is None:
        return False
    try:
        return loads(old) == loads(new.encode())
    except RecordError:
        return False


def _decoded(data: Any) -> Document:
    try:
        return loads_object(data) if isinstance(data, bytes) else {}
    except RecordError:
        return {}
