"""Texts that the engine sends to models, each in its own file, and the system prompt that is made of them.

The system prompt must not change while a session lasts, or every provider's prompt cache would miss. So its date is
that of the session's first prompt; a prompt on a later day states the date itself.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ...models.request import System
from ...text import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...config import Agent
    from ...models.model import Model
    from ...project import ProjectLocation

_FAMILIES = (
    ("gpt-5", "codex"),
    ("codex", "codex"),
    ("gpt-", "gpt"),
    ("o1", "gpt"),
    ("o3", "gpt"),
    ("o4", "gpt"),
    ("gemini", "gemini"),
    ("claude", "claude"),
)
"""Parts of a model's name on the wire, and the file with the base prompt for it."""


prompt_text = partial(markdown, os.path.dirname(__file__))
"""Returns the text of ``<name>.md`` beside this file."""


def system_prompt(
    agent: Agent,
    model: Model,
    location: ProjectLocation,
    *,
    started: int,
    instructions: Sequence[str] = (),
    extra: str | None = None,
    structured: bool = False,
) -> System:
    """Return the system prompt: the agent's or the model family's text, the environment, instruction files, and
    ``extra`` from the prompt."""
    wire_id = model.wire_id.lower()
    family = next((name for part, name in _FAMILIES if part in wire_id), "default")
    environment = [
        f"You are running as the model {model.wire_id} ({model.ref}).",
        "<env>",
        f"  Working directory: {location.directory}",
        f"  Is directory a git repo: {'yes' if location.vcs == 'git' else 'no'}",
        f"  Platform: {sys.platform}",
        f"  Today's date: {format_day(started)}",
        "</env>",
    ]
    layers = [
        agent.prompt or prompt_text(family),
        "\n".join(environment),
        *instructions,
        extra or "",
        prompt_text("structured") if structured else "",
    ]
    return System(text="\n\n".join(layer.strip() for layer in layers if layer.strip()))


def format_day(milliseconds: int) -> str:
    """Format a date for models: ``Fri Feb 13 2026``."""
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%a %b %d %Y")
