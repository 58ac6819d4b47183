"""The system prompt, in layers: who the agent is, where it works, what the project asks of it.

It must not change while a session lasts, or every provider's prompt cache would miss. So the date in it is that of the
session's first prompt; a prompt on a later day says so itself.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

from ..models.request import System
from .prompts import base_prompt, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config.agents import Agent
    from ..models.model import Model
    from ..project import ProjectLocation


def system_prompt(
    agent: Agent,
    model: Model,
    place: ProjectLocation,
    *,
    started: int,
    instructions: Sequence[str] = (),
    extra: str | None = None,
    structured: bool = False,
) -> System:
    """One block: the agent's or the model family's prompt, the environment, the instruction files, the user's words."""
    layers = [
        agent.prompt or base_prompt(model.wire_id),
        environment(model, place, started),
        *instructions,
        extra or "",
        words("structured") if structured else "",
    ]
    return System(text="\n\n".join(layer.strip() for layer in layers if layer.strip()))


def environment(model: Model, place: ProjectLocation, started: int) -> str:
    """Where the agent works."""
    return "\n".join(
        [
            f"You are running as the model {model.wire_id} ({model.ref}).",
            "<env>",
            f"  Working directory: {place.directory}",
            f"  Is directory a git repo: {'yes' if place.vcs == 'git' else 'no'}",
            f"  Platform: {sys.platform}",
            f"  Today's date: {day(started)}",
            "</env>",
        ]
    )


def day(milliseconds: int) -> str:
    """A date as models read it best: ``Fri Feb 13 2026``."""
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%a %b %d %Y")
