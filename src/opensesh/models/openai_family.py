"""What OpenAI's own models want that others who speak its dialects do not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Model
    from .request import Request

NPM = frozenset({"@ai-sdk/openai", "@ai-sdk/azure"})
"""The wires on which OpenAI's models are reached without anyone in between."""

_REASONER = re.compile(r"o\d|codex-|computer-use|gpt-(?:[5-9]|\d\d)(?!-chat)")


def reasons(model: Model) -> bool:
    """Whether this model thinks before it speaks: the catalogue says so, or its name does."""
    return model.capabilities.reasoning or _REASONER.match(model.wire_id.rpartition("/")[2]) is not None


def system_role(model: Model) -> str:
    """Who speaks the system prompt; OpenAI's reasoning models know it as the developer."""
    return "developer" if model.npm in NPM and reasons(model) else "system"


def sampling(request: Request) -> dict[str, Any]:
    """Temperature and the like, without what OpenAI's reasoning models refuse."""
    strict = request.model.npm in NPM and reasons(request.model)
    if strict and request.options.get("reasoningEffort") != "none":
        return {}
    settings = {"temperature": request.temperature, "top_p": request.top_p}
    return {name: value for name, value in settings.items() if value is not None}
