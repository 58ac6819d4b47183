"""Prompts and templates of the built-in agents and commands, one Markdown file each."""

from __future__ import annotations

import os
from functools import partial

from ...text import markdown

prompt = partial(markdown, os.path.dirname(__file__))
"""Returns the text of ``<name>.md`` beside this file."""
