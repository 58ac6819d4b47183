"""Requests to models, independent of the provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from .model import Model

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


class System(Struct, frozen=True, kw_only=True, tag="system"):
    """One block of the system prompt."""

    text: str
    cache: bool = False
    """Whether to put a cache point after this message, for providers that need explicit ones."""


class User(Struct, frozen=True, kw_only=True, tag="user"):
    """A message of the user."""

    content: tuple[Text | File, ...]
    cache: bool = False


class Assistant(Struct, frozen=True, kw_only=True, tag="assistant"):
    """A message of the model."""

    content: tuple[Text | Reasoning | ToolUse, ...]
    cache: bool = False


class ToolResults(Struct, frozen=True, kw_only=True, tag="tool"):
    """Tool results; always right after the assistant message with the calls, one result for each."""

    content: tuple[ToolUseResult, ...]
    cache: bool = False


ModelMessage: TypeAlias = System | User | Assistant | ToolResults

IDLE_TIMEOUT_SECONDS = 300.0
"""How long a provider may be silent by default."""


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool that the model may call; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


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
