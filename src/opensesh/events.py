"""The events of the bus: OpenCode's, with the same names and payloads.

Clients receive an event as ``{"type": ..., "properties": {...}}``. Here each type is a class whose fields are the
properties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from .records.codec import Document, object_at
from .records.view import js_name

Publish = Callable[["Event"], object]
"""Callback that publishes an event."""


class Event(Struct, frozen=True, kw_only=True, rename=js_name):
    """Base class of all events."""

    @property
    def type(self) -> str:
        """The event's name for clients."""
        return str(self.__struct_config__.tag)

    @property
    def properties(self) -> Document:
        """The payload, without fields that are ``None``."""
        pairs = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        return {key: value for key, name in pairs if (value := getattr(self, name)) is not None}

    def concerns(self, session_id: str) -> bool:
        """Return whether the event is about this session, one of its messages or parts."""
        properties = self.properties
        records = (properties, object_at(properties, "info"), object_at(properties, "part"))
        return any(session_id in (record.get("sessionID"), record.get("id")) for record in records)


class SessionCreated(Event, frozen=True, kw_only=True, tag="session.created"):
    """A session was created."""

    info: Document


class SessionUpdated(Event, frozen=True, kw_only=True, tag="session.updated"):
    """A session record changed."""

    info: Document


class SessionDeleted(Event, frozen=True, kw_only=True, tag="session.deleted"):
    """A session was removed with all its records."""

    info: Document


class SessionDiff(Event, frozen=True, kw_only=True, tag="session.diff"):
    """The list of files that a session changed was updated."""

    session_id: str
    diff: list[Document]


class SessionError(Event, frozen=True, kw_only=True, tag="session.error"):
    """An error that the user should see."""

    session_id: str | None = None
    error: Document | None = None


class SessionStatus(Event, frozen=True, kw_only=True, tag="session.status"):
    """``{"type": "idle"}``, ``{"type": "busy"}``, or ``{"type": "retry", "attempt", "message", "next"}``."""

    session_id: str
    status: Document


class SessionIdle(Event, frozen=True, kw_only=True, tag="session.idle"):
    """Published after an idle status, for older clients."""

    session_id: str


class SessionCompacted(Event, frozen=True, kw_only=True, tag="session.compacted"):
    """The session was compacted."""

    session_id: str


class MessageUpdated(Event, frozen=True, kw_only=True, tag="message.updated"):
    """A message was stored."""

    info: Document


class MessageRemoved(Event, frozen=True, kw_only=True, tag="message.removed"):
    """A message was removed."""

    session_id: str
    message_id: str


class PartUpdated(Event, frozen=True, kw_only=True, tag="message.part.updated"):
    """A part was stored; ``delta`` is the text added since the last event, empty if the text was interrupted."""

    part: Document
    delta: str | None = None


class PartDelta(Event, frozen=True, kw_only=True, tag="message.part.delta"):
    """Text was added to a part and is not stored yet (OpenCode 1.2 and later)."""

    session_id: str
    message_id: str
    part_id: str
    field: str = "text"
    delta: str


class PartRemoved(Event, frozen=True, kw_only=True, tag="message.part.removed"):
    """A part was removed."""

    session_id: str
    message_id: str
    part_id: str


class TodoUpdated(Event, frozen=True, kw_only=True, tag="todo.updated"):
    """The todo list changed."""

    session_id: str
    todos: list[Document]


class PermissionAsked(Event, frozen=True, kw_only=True, tag="permission.asked"):
    """A tool call needs permission."""

    id: str
    session_id: str
    permission: str
    patterns: list[str]
    metadata: Document
    always: list[str]
    tool: Document | None = None


class PermissionReplied(Event, frozen=True, kw_only=True, tag="permission.replied"):
    """A permission request was answered."""

    session_id: str
    request_id: str
    reply: Literal["once", "always", "reject"]


class QuestionAsked(Event, frozen=True, kw_only=True, tag="question.asked"):
    """The model asks the user questions."""

    id: str
    session_id: str
    questions: list[Document]
    tool: Document | None = None


class QuestionReplied(Event, frozen=True, kw_only=True, tag="question.replied"):
    """Questions were answered: a list of labels for each."""

    session_id: str
    request_id: str
    answers: list[list[str]]


class QuestionRejected(Event, frozen=True, kw_only=True, tag="question.rejected"):
    """The user dismissed the questions."""

    session_id: str
    request_id: str


class CommandExecuted(Event, frozen=True, kw_only=True, tag="command.executed"):
    """A command was answered by this message."""

    name: str
    session_id: str
    arguments: str
    message_id: str


class FileEdited(Event, frozen=True, kw_only=True, tag="file.edited"):
    """A tool wrote a file."""

    file: str


class McpToolsChanged(Event, frozen=True, kw_only=True, tag="mcp.tools.changed"):
    """The tools of an MCP server changed."""

    server: str


class McpBrowserOpenFailed(Event, frozen=True, kw_only=True, tag="mcp.browser.open.failed"):
    """No browser could be opened to log in to an MCP server: the user has to open the address."""

    mcp_name: str
    url: str


class McpFailed(Event, frozen=True, kw_only=True, tag="opensesh.mcp.failed"):
    """An MCP server failed and its tools are not available; an extension of opensesh."""

    server: str
    error: str


class ProjectUpdated(Event, frozen=True, kw_only=True, tag="project.updated"):
    """A project record changed; the payload is the record. Not published by opensesh, only forwarded."""

    info: Document

    @property
    def properties(self) -> Document:
        """The project record."""
        return self.info


class PluginFailed(Event, frozen=True, kw_only=True, tag="opensesh.plugin.failed"):
    """A plugin's hook failed and its changes were dropped; an extension of opensesh."""

    plugin: str
    hook: str
    error: str
    session_id: str | None = None


class Missed(Event, frozen=True, kw_only=True, tag="opensesh.missed"):
    """A subscriber missed these events and should read the records again; an extension of opensesh."""

    first: int
    last: int


class PromptEnded(Event, frozen=True, kw_only=True, tag="opensesh.prompt.ended"):
    """How a prompt ended: the last item of :meth:`opensesh.engine.Engine.prompt`, not published; an extension of
    opensesh."""

    session_id: str
    kind: Literal["answered", "failed", "aborted", "blocked"]
    text: str
    """The text of the last answer."""
    cost: float | None
    """What the answers to the prompt cost, in US dollars; ``None`` if a price is not known."""
    structured: Any = None
    """The structured answer, where the prompt asked for one."""
    error: Document | None = None


class Other(Event, frozen=True, kw_only=True, tag="opensesh.other"):
    """An event of another type, forwarded unchanged."""

    name: str
    payload: dict[str, Any]

    @property
    def type(self) -> str:
        """The name of the forwarded event."""
        return self.name

    @property
    def properties(self) -> Document:
        """The payload of the forwarded event."""
        return self.payload
