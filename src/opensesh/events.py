"""What the bus carries: OpenCode's events, by the same names and with the same payloads.

An event is ``{"type": ..., "properties": {...}}`` to the world. Here each type is a class whose fields are the
properties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from .records.codec import Document
from .records.view import js_name

Publish = Callable[["Event"], object]
"""How a part of the house tells of something without knowing who listens."""


class Event(Struct, frozen=True, kw_only=True, rename=js_name):
    """Something that happened."""

    @property
    def type(self) -> str:
        """The event's name to the world."""
        return str(self.__struct_config__.tag)

    @property
    def properties(self) -> Document:
        """The payload; fields that are ``None`` are left out."""
        pairs = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        return {key: value for key, name in pairs if (value := getattr(self, name)) is not None}


class SessionCreated(Event, frozen=True, kw_only=True, tag="session.created"):
    """A session was stored for the first time."""

    info: Document


class SessionUpdated(Event, frozen=True, kw_only=True, tag="session.updated"):
    """A session record changed."""

    info: Document


class SessionDeleted(Event, frozen=True, kw_only=True, tag="session.deleted"):
    """A session and all that belongs to it is gone."""

    info: Document


class SessionDiff(Event, frozen=True, kw_only=True, tag="session.diff"):
    """The list of files a session changed is new."""

    session_id: str
    diff: list[Document]


class SessionError(Event, frozen=True, kw_only=True, tag="session.error"):
    """Something went wrong that a person should see."""

    session_id: str | None = None
    error: Document | None = None


class SessionStatus(Event, frozen=True, kw_only=True, tag="session.status"):
    """``{"type": "idle"}``, ``{"type": "busy"}``, or ``{"type": "retry", "attempt", "message", "next"}``."""

    session_id: str
    status: Document


class SessionIdle(Event, frozen=True, kw_only=True, tag="session.idle"):
    """Follows an idle status; older clients wait for it."""

    session_id: str


class SessionCompacted(Event, frozen=True, kw_only=True, tag="session.compacted"):
    """The history was summarised."""

    session_id: str


class MessageUpdated(Event, frozen=True, kw_only=True, tag="message.updated"):
    """A message was stored."""

    info: Document


class MessageRemoved(Event, frozen=True, kw_only=True, tag="message.removed"):
    """A message is gone."""

    session_id: str
    message_id: str


class PartUpdated(Event, frozen=True, kw_only=True, tag="message.part.updated"):
    """A part was stored; ``delta`` is what was added to its text since the last time."""

    part: Document
    delta: str | None = None


class PartDelta(Event, frozen=True, kw_only=True, tag="message.part.delta"):
    """More of a part's text is here, not stored yet; OpenCode has this since 1.2."""

    session_id: str
    message_id: str
    part_id: str
    field: str = "text"
    delta: str


class PartRemoved(Event, frozen=True, kw_only=True, tag="message.part.removed"):
    """A part is gone."""

    session_id: str
    message_id: str
    part_id: str


class TodoUpdated(Event, frozen=True, kw_only=True, tag="todo.updated"):
    """The agent's list changed."""

    session_id: str
    todos: list[Document]


class PermissionAsked(Event, frozen=True, kw_only=True, tag="permission.asked"):
    """A tool waits to be allowed."""

    id: str
    session_id: str
    permission: str
    patterns: list[str]
    metadata: Document
    always: list[str]
    tool: Document | None = None


class PermissionReplied(Event, frozen=True, kw_only=True, tag="permission.replied"):
    """Someone answered."""

    session_id: str
    request_id: str
    reply: Literal["once", "always", "reject"]


class QuestionAsked(Event, frozen=True, kw_only=True, tag="question.asked"):
    """The model asks the user."""

    id: str
    session_id: str
    questions: list[Document]
    tool: Document | None = None


class QuestionReplied(Event, frozen=True, kw_only=True, tag="question.replied"):
    """The user answered, a list of labels a question."""

    session_id: str
    request_id: str
    answers: list[list[str]]


class QuestionRejected(Event, frozen=True, kw_only=True, tag="question.rejected"):
    """The user would not answer."""

    session_id: str
    request_id: str


class CommandExecuted(Event, frozen=True, kw_only=True, tag="command.executed"):
    """A command of the user's was answered, by this message."""

    name: str
    session_id: str
    arguments: str
    message_id: str


class FileEdited(Event, frozen=True, kw_only=True, tag="file.edited"):
    """A tool wrote a file."""

    file: str


class McpToolsChanged(Event, frozen=True, kw_only=True, tag="mcp.tools.changed"):
    """An MCP server has other tools than it had."""

    server: str


class McpFailed(Event, frozen=True, kw_only=True, tag="opensesh.mcp.failed"):
    """Ours: an MCP server cannot be used, and why; everything else goes on without its tools."""

    server: str
    error: str


class ProjectUpdated(Event, frozen=True, kw_only=True, tag="project.updated"):
    """A project record changed; the payload is the record itself. A word of OpenCode's, for whoever passes its events
    on: nothing here says it."""

    info: Document

    @property
    def properties(self) -> Document:
        """The project record."""
        return self.info


class PluginFailed(Event, frozen=True, kw_only=True, tag="opensesh.plugin.failed"):
    """Ours: a hook of a plugin failed and was passed over."""

    plugin: str
    hook: str
    error: str
    session_id: str | None = None


class Missed(Event, frozen=True, kw_only=True, tag="opensesh.missed"):
    """Ours: a subscriber was too slow, or joined too late, for these; it should read the records again."""

    first: int
    last: int


class Other(Event, frozen=True, kw_only=True, tag="opensesh.other"):
    """An event of a kind that only some clients know, carried as it is."""

    name: str
    payload: dict[str, Any]

    @property
    def type(self) -> str:
        """The name it was given."""
        return self.name

    @property
    def properties(self) -> Document:
        """The payload it was given."""
        return self.payload
