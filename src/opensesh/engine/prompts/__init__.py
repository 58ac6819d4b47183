"""The words the engine says to models, each in a file of its own."""

from __future__ import annotations

import os
from functools import cache

_FAMILIES = (("gpt-5", "codex"), ("codex", "codex"), ("gpt-", "gpt"), ("o1", "gpt"), ("o3", "gpt"), ("o4", "gpt"))
_OTHERS = (("gemini", "gemini"), ("claude", "claude"))


@cache
def words(name: str) -> str:
    """The text called ``name``."""
    with open(os.path.join(os.path.dirname(__file__), f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()


def base_prompt(wire_id: str) -> str:
    """The system prompt for a family of models, by the name it has on the wire."""
    name = wire_id.lower()
    return words(next((family for part, family in _FAMILIES + _OTHERS if part in name), "default"))
