"""What is sent to a model, in no provider's dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from .model import Model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .stream_events import StreamEvent


class Text(Struct, frozen=True, kw_only=True, tag="text"):
    """Words."""

    text: str
    metadata: dict[str, Any] | None = None


class File(Struct, frozen=True, kw_only=True, tag="file"):
    """An image, a PDF or the like; ``url`` is ``data:`` with base64, or one the provider fetches itself."""

    mime: str
    url: str
    filename: str | None = None


class Reasoning(Struct, frozen=True, kw_only=True, tag="reasoning"):
    """Earlier thought of this same model, with the metadata that proves it."""

    text: str
    metadata: dict[str, Any] | None = None


class ToolUse(Struct, frozen=True, kw_only=True, tag="tool-call"):
    """A tool call the model made."""

    id: str
    name: str
    input: dict[str, Any]
    metadata: dict[str, Any] | None = None


class ToolUseResult(Struct, frozen=True, kw_only=True, tag="tool-result"):
    """What the tool answered: words, or words and files."""

    id: str
    name: str
    output: tuple[Text | File, ...]
    failed: bool = False
    metadata: dict[str, Any] | None = None


class System(Struct, frozen=True, kw_only=True, tag="system"):
    """One block of the system prompt."""

    text: str
    cache: bool = False
    """A cache point lies after this message, for providers that want to be told."""


class User(Struct, frozen=True, kw_only=True, tag="user"):
    """What the user said."""

    content: tuple[Text | File, ...]
    cache: bool = False


class Assistant(Struct, frozen=True, kw_only=True, tag="assistant"):
    """What the model said."""

    content: tuple[Text | Reasoning | ToolUse, ...]
    cache: bool = False


class ToolResults(Struct, frozen=True, kw_only=True, tag="tool"):
    """What the tools answered; always right after the assistant that called them, one result a call."""

    content: tuple[ToolUseResult, ...]
    cache: bool = False


ModelMessage: TypeAlias = System | User | Assistant | ToolResults


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool on offer; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(Struct, frozen=True, kw_only=True):
    """One model call. System blocks come first in ``messages``."""

    model: Model
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "required", "none"] = "auto"
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    options: dict[str, Any] = {}
    """The provider's own settings (``reasoningEffort``, ``thinking``), under the names OpenCode's config uses."""
    headers: dict[str, str] = {}


class Provider(Protocol):
    """Something that can be asked: an adapter with its key, or the scripted model."""

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Ask once, and yield what comes. No retries here: whoever asks decides.

        Raises :class:`~opensesh.errors.ModelError`, before or between events. Closing the iterator (or cancelling the
        task that reads it) drops the connection at once.
        """
        ...
