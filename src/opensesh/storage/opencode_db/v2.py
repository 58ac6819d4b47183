"""Sessions and messages of OpenCode 2.x in the shape of 1.x.

2.x keeps a message as one row: a type, a sequence number and an object that holds its content. Here a row becomes a
message and its parts (two messages for a compaction: the request and the summary). What happened between messages (an
agent or model switched, a turn ended) becomes a user message with one part of that type, which no reader of 1.x takes
for words. ``v2`` on each message holds the row's type, its sequence number, and values without a field in 1.x.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import RecordError
from ...records import (
    APIError,
    AssistantMessage,
    ContentFilterError,
    Failure,
    MessageAbortedError,
    ProviderAuthError,
    UnknownError,
    object_at,
    write_failure,
)
from ...records.codec import as_list, as_object
from ..keys import SUMMARY
from ..protocol import StoredMessage
from .rows import SESSION, arrange, content, decoded, identifier, known, native, number, session_document, text
from .v2_parts import During, Parts, add_attachments, add_content, add_shell, moment, take_object

if TYPE_CHECKING:
    from ...records import Document
    from .rows import Row

SESSION_V2 = (
    *SESSION,
    "fork_session_id", "fork_boundary", "fork_message_id",
    "time_idle", "time_viewed", "idle_outcome", "time_suspended", "resume_attempts",
)  # fmt: skip

_ASSISTANT = AssistantMessage.__struct_encode_fields__
_RULE = ("permission", "pattern", "action")


class V2Row(NamedTuple):
    """A decoded row of ``session_message``, with facts from neighbouring rows."""

    id: str
    session_id: str
    type: str
    seq: int | None
    created: int
    updated: int | None
    data: Document
    parent_id: str | None
    """The id of the prompt before it."""
    agent: str | None
    model: Document | None
    """Of the answer that follows, else of the session: ``{id, providerID, variant?}``."""
    directory: str
    worktree: str

    @property
    def during(self) -> During:
        """The times of creation and, if there is one, of completion."""
        return During(self.created, moment(as_object(self.data.get("time")), "completed"))


def session_v2_document(row: Row) -> Document:
    """Return ``session/<projectID>/<id>``: the fields of 1.x, then those of 2.x under their own names."""
    if row["title"] is None:
        row = {**row, "title": _default_title(row).encode()}
    session = session_document(row)
    if not all(_is_rule(rule) for rule in as_list(session.get("permission")) or []):
        session["permissions"] = session.pop("permission")
    session["time"] |= known({name: number(row, f"time_{name}") for name in ("idle", "viewed", "suspended")})
    fork = {
        "sessionID": text(row, "fork_session_id"),
        "boundary": decoded(row, "fork_boundary"),
        "messageID": text(row, "fork_message_id"),
    }
    more = {
        "outcome": text(row, "idle_outcome"),
        "resumeAttempts": number(row, "resume_attempts") or None,
        "fork": known(fork) or None,
    }
    return session | known(more)


def read_row(row: Row) -> V2Row:
    """Decode a row of ``session_message``."""
    data = content(row)
    created = moment(as_object(data.get("time")), "created")
    if created is None:
        created = moment({"row": number(row, "time_created")}, "row")
    if created is None:
        raise RecordError("expected milliseconds, found nothing", place="$.time.created")
    reply = as_list(decoded(row, "reply")) or [None, None]
    directory = native(text(row, "directory")) or ""
    return V2Row(
        id=identifier(row, "id"),
        session_id=identifier(row, "session_id"),
        type=text(row, "type") or "unknown",
        seq=moment(row, "seq"),
        created=created,
        updated=moment(row, "time_updated"),
        data=data,
        parent_id=text(row, "parent_id"),
        agent=reply[0] if isinstance(reply[0], str) else text(row, "session_agent"),
        model=as_object(reply[1]) or as_object(decoded(row, "session_model")),
        directory=directory,
        worktree=native(text(row, "worktree")) or directory,
    )


def messages_of(row: V2Row) -> list[StoredMessage]:
    """Return the message in a row, with its parts; for a compaction, two messages."""
    parts, rest = Parts(row.session_id, row.id), row.data.copy()
    match row.type:
        case "assistant":
            return [_assistant(row, parts, rest)]
        case "shell":
            add_shell(parts, rest, row.during)
            fields = {"agent": row.agent or "", **_model_fields(row.model or {})}
            return [StoredMessage(_assistant_info(row, fields, rest), parts.documents)]
        case "compaction":
            parts.add("compaction", {"auto": row.data.get("reason") == "auto"})
            for name in ("summary", "model", "cost", "tokens", "error"):
                rest.pop(name, None)
            return [StoredMessage(_user_info(row, rest), parts.documents), _summary(row)]
        case "user":
            if isinstance(rest.get("text"), str):
                parts.add("text", {"text": rest.pop("text")})
            add_attachments(parts, rest)
        case "system" | "synthetic" | "skill" if isinstance(rest.get("text"), str):
            parts.add("text", {"text": rest.pop("text"), "synthetic": True})
        case _:
            parts.keep(row.type, row.data)
            rest = {}
    return [StoredMessage(_user_info(row, rest), parts.documents)]


def row_id(message_id: str) -> str:
    """Return the id of the row that a message comes from."""
    return message_id.removesuffix(SUMMARY)


def _assistant(row: V2Row, parts: Parts, rest: Document) -> StoredMessage:
    snapshot = object_at(rest, "snapshot")
    model = take_object(rest, "model") or {}
    agent, items = rest.pop("agent", None), as_list(rest.get("content"))
    fields: Document = {
        "agent": agent if isinstance(agent, str) else "",
        "error": _failure(rest.get("error"), str(model.get("providerID", ""))),
        "finish": rest.pop("finish") if isinstance(rest.get("finish"), str) else None,
    } | _model_fields(model)
    usage = _usage(rest)
    if usage:
        parts.add("step-start", {"snapshot": snapshot.get("start")})
    if items is not None:
        del rest["content"]
        add_content(parts, items, row.during)
    if usage:
        parts.add("step-finish", {"reason": fields["finish"] or "unknown", "snapshot": snapshot.get("end")} | usage)
    return StoredMessage(_assistant_info(row, fields | usage, rest), parts.documents)


def _summary(row: V2Row) -> StoredMessage:
    """Return the answer to a compaction; 1.x cuts the history at one that is finished without an error."""
    identifier = row.id + SUMMARY
    parts = Parts(row.session_id, identifier)
    taken = {name: row.data.get(name) for name in ("model", "cost", "tokens", "error")}
    model, usage = as_object(taken["model"]) or row.model or {}, _usage(taken)
    done = row.data.get("status", "completed") == "completed"
    over = done or row.data.get("status") == "failed"
    if usage:
        parts.add("step-start", {})
    if row.data.get("summary"):
        parts.add("text", {"text": str(row.data["summary"])})
    if usage:
        parts.add("step-finish", {"reason": "stop" if done else "error", **usage})
    fields: Document = {
        "id": identifier,
        "parentID": row.id,
        "time": known({"created": row.created, "completed": (row.updated or row.created) if over else None}),
        "error": _failure(taken["error"], str(model.get("providerID", ""))),
        "agent": "compaction",
        "summary": True,
        "finish": "stop" if done else None,
    }
    rest = known({"error": taken["error"]})
    return StoredMessage(_assistant_info(row, fields | _model_fields(model) | usage, rest), parts.documents)


def _user_info(row: V2Row, rest: Document) -> Document:
    return known(
        {
            "id": row.id,
            "sessionID": row.session_id,
            "role": "user",
            "time": {"created": row.created},
            "agent": row.agent,
            "model": known(_model_fields(row.model)) if row.model else None,
            "v2": _origin(row, rest),
        }
    )


def _assistant_info(row: V2Row, fields: Document, rest: Document) -> Document:
    basis: Document = {
        "id": row.id,
        "sessionID": row.session_id,
        "role": "assistant",
        "time": known({"created": row.created, "completed": row.during.end}),
        "parentID": row.parent_id,
        "mode": fields["agent"],
        "path": {"cwd": row.directory, "root": row.worktree},
        "cost": 0,
        "tokens": _tokens({}),
    }
    return arrange(known(basis | fields | {"v2": _origin(row, rest)}), _ASSISTANT)


def _origin(row: V2Row, rest: Document) -> Document:
    time = as_object(rest.pop("time", None)) or {}
    kept = {name: value for name, value in time.items() if name not in ("created", "completed")}
    return known({"type": row.type, "seq": row.seq, "time": kept or None}) | rest


def _model_fields(model: Document) -> Document:
    """Return a model as 1.x names it; ``default`` of 2.x is a missing variant in 1.x."""
    variant = model.get("variant")
    return {
        "providerID": str(model.get("providerID", "")),
        "modelID": str(model.get("id", "")),
        "variant": variant if isinstance(variant, str) and variant != "default" else None,
    }


def _usage(rest: Document) -> Document:
    """Remove ``cost`` and ``tokens`` from ``rest`` and return them; nothing if it has neither."""
    cost = rest.pop("cost") if isinstance(rest.get("cost"), (int, float)) else None
    tokens = take_object(rest, "tokens")
    if cost is None and tokens is None:
        return {}
    return {"cost": 0 if cost is None else cost, "tokens": _tokens(tokens or {})}


def _tokens(stored: Document) -> Document:
    cache = as_object(stored.get("cache"))
    counts: Document = {name: moment(stored, name) or 0 for name in ("input", "output", "reasoning")}
    return counts | {"cache": {name: moment(cache, name) or 0 for name in ("read", "write")}}


def _failure(stored: Any, provider: str) -> Document | None:
    error = as_object(stored)
    if error is None:
        return None
    message, kind = str(error.get("message", "")), str(error.get("type", ""))
    failure: Failure
    match kind:
        case "aborted":
            failure = MessageAbortedError(message=message)
        case "provider.auth":
            failure = ProviderAuthError(provider_id=provider, message=message)
        case "provider.content-filter":
            failure = ContentFilterError(message=message)
        case _ if kind.startswith("provider."):
            body = object_at(error, "response").get("body")
            failure = APIError(
                message=message,
                status_code=moment(error, "status"),
                response_body=body if isinstance(body, str) else None,
            )
        case _:
            failure = UnknownError(message=message)
    return write_failure(failure)


def _default_title(row: Row) -> str:
    """Return the default title of 1.x for a session without one."""
    try:
        made = datetime.fromtimestamp(row["time_created"] / 1000, UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return f"{'Child' if row['parent_id'] else 'New'} session - {made.replace('+00:00', 'Z')}"


def _is_rule(rule: Any) -> bool:
    record = as_object(rule) or {}
    return all(isinstance(record.get(name), str) for name in _RULE) and record["action"] in ("allow", "deny", "ask")
