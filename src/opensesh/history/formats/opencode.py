"""OpenCode's export: ``{"info": ..., "messages": [{"info": ..., "parts": [...]}]}``, indented as OpenCode prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...records import (
    Document,
    as_list,
    as_object,
    as_whole,
    dumps,
    dumps_compact,
    object_at,
    objects_in,
    read_failure,
    write_failure,
)
from ...records.part import PART_TYPES
from ...storage.protocol import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import ExportedSession, FormatOptions


class JsonFormat:
    """Records as they are stored, unchanged and complete."""

    suffix = ".json"
    delimiters: tuple[bytes, bytes, bytes] | None = (b"[\n", b",\n", b"]\n")
    nests = False
    part_types = None

    def __init__(self, options: FormatOptions) -> None:
        pass

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render one document, with a newline at its end."""
        yield b'{\n  "info": ' + _indented(self.info(session), b"  ") + b',\n  "messages": ['
        between = b"\n    "
        for message in session.messages:
            info, parts = self.message(session, message)
            yield between + _indented({"info": info, "parts": parts}, b"    ")
            between = b",\n    "
        yield b"\n  ]" if between[:1] == b"," else b"]"
        if session.related:
            # OpenCode's export has neither todos nor diffs; its import ignores the field.
            yield b',\n  "opensesh": ' + _indented(session.related, b"  ")
        yield b"\n}\n"

    def info(self, session: ExportedSession) -> Document:
        """Return the record of the session."""
        return session.info

    def message(self, session: ExportedSession, message: StoredMessage) -> StoredMessage:
        """Return a message and its parts."""
        return message


class ImportableFormat(JsonFormat):
    """Records completed for ``opencode import``, which rejects records without the fields that older versions omit.

    Existing fields stay as they are. Unlike with :class:`JsonFormat`, a file holds one session, as OpenCode expects.
    """

    delimiters = None
    _last_prompt = ""

    def info(self, session: ExportedSession) -> Document:
        """Return the completed record of the session."""
        self._last_prompt = ""
        return complete_session(session.info, session.id, session.project)

    def message(self, session: ExportedSession, message: StoredMessage) -> StoredMessage:
        """Return a completed message and its parts."""
        if message.info.get("role") == "user":
            self._last_prompt = str(message.info.get("id", ""))
        return complete_message(message, session.info | {"id": session.id}, self._last_prompt)


def _indented(value: object, margin: bytes) -> bytes:
    # JSON strings contain no raw newlines, so every newline is one of the indentation.
    return dumps(value).replace(b"\n", b"\n" + margin)


# -- completing records, for ImportableFormat -------------------------------------------------------------------------

_UNKNOWN = "unknown"
_ACTIONS = ("allow", "deny", "ask")
_ERRORS = (
    "ProviderAuthError", "UnknownError", "MessageOutputLengthError", "MessageAbortedError", "StructuredOutputError",
    "ContextOverflowError", "ContentFilterError", "APIError",
)  # fmt: skip


def complete_session(info: Document, name: str, project: str) -> Document:
    """Return a session record with every field that OpenCode 1.18 requires."""
    info = _without_nulls(info)
    time = _times(info.get("time"))
    created = time.get("created", 0)
    done = info | {
        "id": _prefixed("ses", name),
        "slug": _text(info, "slug", f"session-{name[-6:].lower()}"),
        "version": _text(info, "version", _UNKNOWN),
        "projectID": _text(info, "projectID", project),
        "directory": _text(info, "directory", "/"),
        "title": _text(info, "title", "Untitled"),
        "time": {"created": created, "updated": time.get("updated") or created} | time,
    }
    summary = as_object(info.get("summary"))
    if summary is not None:
        counts = {key: as_whole(summary.get(key)) for key in ("additions", "deletions", "files")}
        done["summary"] = summary | counts
    if "permission" in info:
        rules = [as_object(rule) or {} for rule in as_list(info["permission"]) or []]
        texts = ("permission", "pattern")
        done["permission"] = [
            rule
            for rule in rules
            if all(isinstance(rule.get(name), str) for name in texts) and rule.get("action") in _ACTIONS
        ]
    return done


def complete_message(message: StoredMessage, session: Document, parent: str) -> StoredMessage:
    """Return a message and its parts with every required field; ``parent`` is the id of the prompt before it."""
    info = _without_nulls(message.info)
    time = _times(info.get("time"))
    created = time.setdefault("created", 0)
    name, owner = _prefixed("msg", str(info.get("id", ""))), _prefixed("ses", str(session.get("id", "")))
    done: Document = info | {"id": name, "sessionID": owner, "time": time}
    if info.get("role") == "assistant":
        folder = _text(session, "directory", "/")
        agent = _text(info, "agent", _text(info, "mode", "build"))
        cost = info.get("cost")
        done |= {
            "parentID": _prefixed("msg", _text(info, "parentID", parent or name)),
            "modelID": _text(info, "modelID", _UNKNOWN),
            "providerID": _text(info, "providerID", _UNKNOWN),
            "mode": _text(info, "mode", agent),
            "agent": agent,
            "path": {"cwd": folder, "root": folder} | object_at(info, "path"),
            "cost": cost if isinstance(cost, (int, float)) else 0,
            "tokens": _tokens(info.get("tokens")),
        }
    else:
        model = {"providerID": _UNKNOWN, "modelID": _UNKNOWN} | object_at(info, "model")
        done |= {"role": "user", "agent": _text(info, "agent", "build"), "model": model}
    if "error" in info:
        done["error"] = _error(info["error"])
    return StoredMessage(done, [_part(part, owner, name, created) for part in message.parts])


def _without_nulls(record: Document) -> Document:
    """Return a record without null fields: a field may be missing but not null."""
    return {name: value for name, value in record.items() if value is not None}


def _prefixed(prefix: str, name: str) -> str:
    """Return an id with the prefix that it must have."""
    return name if name.startswith(prefix) else f"{prefix}_{name}"


def _tokens(value: Any) -> Document:
    tokens: Document = {"input": 0, "output": 0, "reasoning": 0} | (as_object(value) or {})
    return tokens | {"cache": {"read": 0, "write": 0} | object_at(tokens, "cache")}


def _error(value: Any) -> Document:
    stored = as_object(value) or {}
    if stored.get("name") in _ERRORS and as_object(stored.get("data")) is not None:
        return stored
    try:
        error = write_failure(read_failure(stored))
    except RecordError:
        error = {"data": stored}
    if error.get("name") in _ERRORS:
        return error
    message = (as_object(error["data"]) or {}).get("message") or dumps_compact(stored).decode(errors="replace")
    return {"name": "UnknownError", "data": {"message": str(message)}}


_FIELDS: dict[str, Document] = {
    "text": {"text": ""},
    "subtask": {"prompt": "", "description": "", "agent": "general"},
    "reasoning": {"text": ""},
    "file": {"mime": "application/octet-stream", "url": ""},
    "tool": {"callID": "", "tool": _UNKNOWN},
    "step-start": {},
    "step-finish": {"reason": _UNKNOWN, "cost": 0},
    "snapshot": {"snapshot": ""},
    "patch": {"hash": "", "files": []},
    "agent": {"name": ""},
    "retry": {"attempt": 0},
    "compaction": {"auto": False},
}


def _part(part: Document, session: str, message: str, created: int) -> Document:
    kind = str(part.get("type"))
    if kind not in PART_TYPES:
        # Newer versions reject unknown types: keep the part as a text that is not sent to models.
        text = f"[{kind}] {dumps_compact(part).decode(errors='replace')}"
        part = {"id": part.get("id"), "type": "text", "text": text, "synthetic": True, "ignored": True}
        kind = "text"
    head = {"id": _prefixed("prt", str(part.get("id", ""))), "sessionID": session, "messageID": message}
    part = _without_nulls(part)
    done: Document = head | _FIELDS[kind] | part | head
    match kind:
        case "reasoning":
            done["time"] = _span(part.get("time"), created, ended=False)
        case "text" if "time" in part:
            done["time"] = _span(part.get("time"), created, ended=False)
        case "tool":
            done["state"] = _state(object_at(part, "state"), head, created)
        case "step-finish":
            done["tokens"] = _tokens(part.get("tokens"))
        case "retry":
            done["error"] = {"name": "APIError", "data": {"message": "", "isRetryable": True}} | (
                object_at(part, "error")
            )
            done["time"] = {"created": created} | object_at(part, "time")
        case _:
            pass
    return done


def _state(state: Document, head: Document, created: int) -> Document:
    base: Document = {"input": object_at(state, "input")}
    match state.get("status"):
        case "pending":
            return state | base | {"raw": _text(state, "raw", "")}
        case "running":
            return state | base | {"time": _span(state.get("time"), created, ended=False)}
        case "completed":
            done = state | base | {
                "output": _text(state, "output", ""),
                "title": _text(state, "title", ""),
                "metadata": object_at(state, "metadata"),
                "time": _span(state.get("time"), created, ended=True),
            }  # fmt: skip
            if as_list(state.get("attachments")):
                files = objects_in(state["attachments"])
                done["attachments"] = [_FIELDS["file"] | head | {"type": "file"} | file for file in files if file]
            return done
        case other:
            error = _text(state, "error", f"in the state {other!r}")
            return (
                state
                | base
                | {"status": "error", "error": error, "time": _span(state.get("time"), created, ended=True)}
            )


def _times(value: Any) -> dict[str, int]:
    times = as_object(value) or {}
    return {name: max(as_whole(time), 0) for name, time in times.items() if isinstance(time, (int, float))}


def _span(value: Any, created: int, *, ended: bool) -> Document:
    time = {"start": created} | _times(value)
    return time if not ended else {"start": time["start"], "end": time["start"]} | time


def _text(record: Document, name: str, default: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) and (value or not default) else default
