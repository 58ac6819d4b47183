"""Events of a model's answer, the same for every provider.

The order in one step: :class:`StartStep`, then content, then :class:`FinishStep`. A piece of text begins with
:class:`TextStart`, grows by :class:`TextDelta` and ends with :class:`TextEnd`, all under one ``id`` that is unique
within the step among pieces of its kind; pieces may overlap. A tool call begins with :class:`ToolInputStart`, may
stream its arguments, and is complete with :class:`ToolCall`. If the provider runs the tool itself,
:class:`ToolResult` or :class:`ToolError` follows. Adapters report errors by raising
:class:`~opensesh.errors.ModelError`.

``metadata`` is what the provider needs back later (signatures, encrypted reasoning), under the provider's key:
``{"anthropic": {"signature": ...}}``. It is stored with the part and sent only to the same model.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Metadata = dict[str, Any]
TextKind = Literal["text", "reasoning"]
FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other", "unknown"]


class Usage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Token counts in buckets that do not overlap, however the provider counts."""

    input: int = 0
    """Input that was neither read from nor written to the cache."""
    output: int = 0
    """Output without reasoning."""
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int | None = None
    """The provider's own total, if it sends one; for Anthropic, which does not, the sum."""

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of two usages. It has a total if both have one, or if one of them is zero."""
        total = None if self.total is None or other.total is None else self.total + other.total
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            total=other.total if self == Usage() else total,
        )


class StartStep(Struct, frozen=True):
    """A model call begins."""


class TextStart(Struct, frozen=True):
    """A piece of text begins: of the answer, or of the reasoning before it."""

    id: str
    metadata: Metadata | None = None
    kind: TextKind = "text"


class TextDelta(Struct, frozen=True):
    """More text."""

    id: str
    text: str
    kind: TextKind = "text"


class TextEnd(Struct, frozen=True):
    """The piece of text is complete; signatures of reasoning are in its metadata."""

    id: str
    metadata: Metadata | None = None
    kind: TextKind = "text"


class ToolInputStart(Struct, frozen=True):
    """A tool call begins; ``id`` is the id of the call."""

    id: str
    name: str


class ToolInputDelta(Struct, frozen=True):
    """More of the call's arguments, as JSON text."""

    id: str
    text: str


class ToolCall(Struct, frozen=True):
    """A complete tool call. ``problem`` describes arguments that are not a JSON object."""

    id: str
    name: str
    input: dict[str, Any]
    raw: str = ""
    problem: str | None = None
    metadata: Metadata | None = None
    executed: bool = False
    """Whether the provider runs the tool itself; a :class:`ToolResult` follows."""


class ToolResult(Struct, frozen=True):
    """A call that the provider ran itself succeeded."""

    id: str
    output: str


class ToolError(Struct, frozen=True):
    """A call that the provider ran itself failed."""

    id: str
    error: str


class FinishStep(Struct, frozen=True):
    """The model call ended: reason and usage."""

    reason: FinishReason
    usage: Usage = Usage()


TextEvent: TypeAlias = TextStart | TextDelta | TextEnd
ToolEvent: TypeAlias = ToolInputStart | ToolInputDelta | ToolCall | ToolResult | ToolError
StreamEvent: TypeAlias = StartStep | TextEvent | ToolEvent | FinishStep
