"""Requests to models, independent of the provider.

Every request of a session repeats the messages and tools of the one before, the very same objects. So each of them
keeps the estimate of its tokens.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, assert_never

from msgspec import Struct

from ..records.codec import dumps_compact
from .model import Model
from .token_estimates import estimate, file_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .stream_events import StreamEvent


class Text(Struct, frozen=True, kw_only=True, tag="text"):
    """Text."""

    text: str
    metadata: dict[str, Any] | None = None


class File(Struct, frozen=True, kw_only=True, tag="file"):
    """An image, a PDF or another file; ``url`` is ``data:`` with base64, or one that the provider fetches."""

    mime: str
    url: str
    filename: str | None = None


class Reasoning(Struct, frozen=True, kw_only=True, tag="reasoning"):
    """Earlier reasoning of the same model, with the metadata that proves it."""

    text: str
    metadata: dict[str, Any] | None = None


class ToolUse(Struct, frozen=True, kw_only=True, tag="tool-call"):
    """A tool call the model made."""

    id: str
    name: str
    input: dict[str, Any]
    metadata: dict[str, Any] | None = None


class ToolUseResult(Struct, frozen=True, kw_only=True, tag="tool-result"):
    """The result of a tool call: text and files."""

    id: str
    name: str
    output: tuple[Text | File, ...]
    failed: bool = False
    metadata: dict[str, Any] | None = None


class System(Struct, frozen=True, kw_only=True, tag="system", dict=True):
    """One block of the system prompt."""

    text: str
    cache: bool = False
    """Whether to put a cache point after this message, for providers that need explicit ones."""

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens."""
        return estimate(self.text)


class _Conversation(Struct, frozen=True, kw_only=True, dict=True):
    content: tuple[Text | File | Reasoning | ToolUse | ToolUseResult, ...]
    cache: bool = False

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens."""
        return sum(map(piece_tokens, self.content))


class User(_Conversation, frozen=True, kw_only=True, tag="user"):
    """A message of the user."""

    content: tuple[Text | File, ...]


class Assistant(_Conversation, frozen=True, kw_only=True, tag="assistant"):
    """A message of the model."""

    content: tuple[Text | Reasoning | ToolUse, ...]


class ToolResults(_Conversation, frozen=True, kw_only=True, tag="tool"):
    """Tool results; always right after the assistant message with the calls, one result for each."""

    content: tuple[ToolUseResult, ...]


ModelMessage: TypeAlias = System | User | Assistant | ToolResults


def piece_tokens(piece: Text | File | Reasoning | ToolUse | ToolUseResult) -> int:
    """Estimate the tokens of one piece of a message."""
    match piece:
        case Text(text=text) | Reasoning(text=text):
            return estimate(text)
        case ToolUse(name=name, input=arguments):
            return estimate(name) + estimate(dumps_compact(arguments).decode())
        case ToolUseResult(output=output):
            return sum(map(piece_tokens, output))
        case File():
            return file_tokens(piece.mime, piece.url)
        case _:
            assert_never(piece)


IDLE_TIMEOUT_SECONDS = 300.0
"""How long a provider may be silent by default."""


class ToolSpec(Struct, frozen=True, kw_only=True, dict=True):
    """A tool that the model may call; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of name, description and parameters."""
        return estimate(f"{self.name}{self.description}") + estimate(dumps_compact(self.parameters).decode())


class Request(Struct, frozen=True, kw_only=True):
    """One model call. System messages come first in ``messages``."""

    model: Model
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "required", "none"] = "auto"
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    options: dict[str, Any] = {}
    """Settings of the provider (``reasoningEffort``, ``thinking``), under the names of OpenCode's configuration."""
    headers: dict[str, str] = {}


class Provider(Protocol):
    """Answers model calls: an adapter with its key, or the scripted model."""

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Call the model once and yield the events of its answer. Retries are up to the caller.

        Raises :class:`~opensesh.errors.ModelError`, before or between events. Closing the iterator (or cancelling the
        task that reads it) drops the connection at once.
        """
        ...
