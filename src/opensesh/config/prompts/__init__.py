"""Prompts and templates of the built-in agents and commands, one Markdown file each."""

from __future__ import annotations

import os
from functools import cache


@cache
def prompt(name: str) -> str:
    """The text of ``<name>.md`` beside this file."""
    with open(os.path.join(os.path.dirname(__file__), f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()
