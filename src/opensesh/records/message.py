"""The two kinds of message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import RecordError
from .codec import object_at, objects_in
from .failure import Failure, read_failure
from .part import EXTENSION_KEY
from .usage import FileDiff, ModelRef, Tokens
from .view import Dollars, Milliseconds, Record, View, view

if TYPE_CHECKING:
    from .codec import Document


class MessageTime(View, frozen=True, kw_only=True):
    """Milliseconds since 1970."""

    created: Milliseconds
    completed: Milliseconds | None = None


class TurnSummary(View, frozen=True, kw_only=True):
    """The result of a prompt: a short title, and the files changed by the turn."""

    title: str | None = None
    body: str | None = None
    diffs: tuple[FileDiff, ...] = ()


class Path(View, frozen=True, kw_only=True):
    """The working directory and worktree of an answer."""

    cwd: str = ""
    root: str = ""


class UserMessage(Record, frozen=True, kw_only=True):
    """A prompt. Its text is in its parts."""

    id: str
    session_id: str = ""
    role: Literal["user"] = "user"
    time: MessageTime
    format: dict[str, Any] | None = None
    """``{"type": "text"}`` or a JSON schema the answer must follow."""
    summary: TurnSummary | None = None
    agent: str | None = None
    model: ModelRef | None = None
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None

    @property
    def effort(self) -> str | None:
        """The requested model variant; OpenCode versions store it in different fields."""
        return self.variant or (self.model.variant if self.model else None)


class AssistantMessage(Record, frozen=True, kw_only=True):
    """One step of an answer: one model call and its tool calls."""

    id: str
    session_id: str = ""
    role: Literal["assistant"] = "assistant"
    time: MessageTime
    error: dict[str, Any] | None = None
    parent_id: str | None = None
    """The user message it answers; absent before 0.15.14."""
    model_id: str = ""
    provider_id: str = ""
    mode: str = ""
    """The agent, under the older name of the field. OpenCode always writes it, equal to ``agent``."""
    agent: str | None = None
    path: Path | None = None
    summary: bool | None = None
    """True for the summary of a compaction."""
    cost: Dollars = 0.0
    tokens: Tokens = Tokens()
    structured: Any = None
    variant: str | None = None
    finish: str | None = None
    """Why the model stopped: stop, length, content-filter, tool-calls, error, other or unknown."""

    @property
    def failure(self) -> Failure | None:
        """The error, if there is one."""
        return read_failure(self.error) if self.error else None

    @property
    def agent_name(self) -> str:
        """The agent, also in records too old to have ``agent``."""
        return self.agent or self.mode


def side_calls(info: Document) -> list[Document]:
    """Return the model calls of a prompt that have no answer of their own, such as the title, with cost and tokens."""
    return objects_in(object_at(info, EXTENSION_KEY).get("calls"))


Message: TypeAlias = UserMessage | AssistantMessage


def read_message(document: Document, path: str = "") -> Message:
    """Return a typed view of a stored message."""
    match document.get("role"):
        case "user":
            return view(document, UserMessage, path)
        case "assistant":
            return view(document, AssistantMessage, path)
        case other:
            raise RecordError(f"a message's role is user or assistant, not {other!r}", path=path, place="$.role")
