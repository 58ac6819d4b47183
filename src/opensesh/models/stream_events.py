"""The one vocabulary every provider's stream is turned into.

The order in one step: ``start``, ``start-step``, then content, then ``finish-step`` and ``finish``. A piece of content
opens with its ``-start``, grows by ``-delta`` and closes with its ``-end``, all under one ``id`` that is unique
within the step; pieces may overlap. A tool call is announced by ``tool-input-start``, may show its arguments as they
arrive, and is complete with ``tool-call``. An adapter reports what went wrong by raising
:class:`~opensesh.errors.ModelError`; ``tool-result`` and ``tool-error`` come from whoever runs the tool: the engine,
or a provider that runs its own.

``metadata`` is what the provider wants back later (signatures, encrypted reasoning), under the provider's key:
``{"anthropic": {"signature": ...}}``. It is stored with the part and returned only to the same model.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

Metadata = dict[str, Any]
FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other", "unknown"]


def _kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


class _Event(Struct, frozen=True, tag_field="type", tag=_kebab, omit_defaults=True):
    """Base of the vocabulary; never sent itself."""


class Usage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Tokens in buckets that do not overlap, whatever the provider's own habit of counting."""

    input: int = 0
    """Fresh input: neither read from nor written to the cache."""
    output: int = 0
    """Output without reasoning."""
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int | None = None
    """As the provider counted it, if it said; for Anthropic, which never does, the sum."""


class Start(_Event, frozen=True):
    """The provider took the request."""


class StartStep(_Event, frozen=True):
    """A model call begins."""


class TextStart(_Event, frozen=True):
    """Words begin."""

    id: str
    metadata: Metadata | None = None


class TextDelta(_Event, frozen=True):
    """More words."""

    id: str
    text: str
    metadata: Metadata | None = None


class TextEnd(_Event, frozen=True):
    """The words are complete."""

    id: str
    metadata: Metadata | None = None


class ReasoningStart(_Event, frozen=True):
    """The model begins to think aloud."""

    id: str
    metadata: Metadata | None = None


class ReasoningDelta(_Event, frozen=True):
    """More thought."""

    id: str
    text: str
    metadata: Metadata | None = None


class ReasoningEnd(_Event, frozen=True):
    """The thought is complete; signatures come here."""

    id: str
    metadata: Metadata | None = None


class ToolInputStart(_Event, frozen=True):
    """A tool call begins; ``id`` is the call's."""

    id: str
    name: str


class ToolInputDelta(_Event, frozen=True):
    """More of the call's arguments, as JSON text."""

    id: str
    text: str


class ToolInputEnd(_Event, frozen=True):
    """The arguments are complete."""

    id: str


class ToolCall(_Event, frozen=True):
    """A complete call. ``problem`` says what is wrong with the arguments if they are not a JSON object."""

    id: str
    name: str
    input: dict[str, Any]
    raw: str = ""
    problem: str | None = None
    metadata: Metadata | None = None
    executed: bool = False
    """The provider runs it itself; a ``tool-result`` of its own follows."""


class ToolResult(_Event, frozen=True):
    """A tool answered."""

    id: str
    output: str
    title: str = ""
    metadata: Metadata | None = None
    attachments: tuple[dict[str, Any], ...] = ()


class ToolError(_Event, frozen=True):
    """A tool failed."""

    id: str
    error: str
    metadata: Metadata | None = None


class FinishStep(_Event, frozen=True):
    """The model call is over: why, and what it used."""

    reason: FinishReason
    usage: Usage = Usage()
    metadata: Metadata | None = None


class Finish(_Event, frozen=True):
    """The stream is over."""

    reason: FinishReason
    usage: Usage = Usage()


class Error(_Event, frozen=True):
    """What went wrong, in a recorded stream; a live one raises instead."""

    message: str
    data: dict[str, Any] = {}


StreamEvent: TypeAlias = (
    Start
    | StartStep
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolInputEnd
    | ToolCall
    | ToolResult
    | ToolError
    | FinishStep
    | Finish
    | Error
)
