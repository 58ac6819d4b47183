"""Agents, modes and commands that are written as Markdown files in a configuration folder.

The file's path below ``agent/`` (or ``agents/``, ``command/``, ...), without its ending, is the name, unless the
front matter gives another. The front matter holds the settings; the text below it is the prompt or template.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import ConfigError
from . import globs
from .merged import Layer
from .schema import AgentConfig, CommandConfig
from .validation import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from msgspec import Struct

    from .frontmatter import Markdown

    Report = Callable[[ConfigError], None]


def layers(folder: str, report: Report) -> Iterator[Layer]:
    """What the Markdown files in ``folder`` contribute, in order.

    A file that cannot be read as Markdown with front matter is reported and left out. One that can, but says
    something that no agent or command can be, is a :class:`~opensesh.errors.ConfigError`; a mode like that is left
    out, too.
    """
    for kind in ("command", "commands"):
        yield from _read(os.path.join(folder, kind), "**/*.md", "command", report)
    for kind in ("agent", "agents"):
        yield from _read(os.path.join(folder, kind), "**/*.md", "agent", report)
    for kind in ("mode", "modes"):
        yield from _read(os.path.join(folder, kind), "*.md", "mode", report)


def _read(folder: str, pattern: str, kind: str, report: Report) -> Iterator[Layer]:
    for path in globs.find(folder, pattern):
        name = os.path.relpath(path, folder).replace(os.sep, "/").removesuffix(".md")
        from . import frontmatter  # only here: it knows all of YAML

        try:
            markdown = frontmatter.read(path)
        except ConfigError as error:
            report(error)
            continue
        try:
            yield _layer(name, kind, markdown)
        except ConfigError as error:
            if kind != "mode":
                raise
            report(error)


def _layer(name: str, kind: str, markdown: Markdown) -> Layer:
    # A key with nothing behind it says nothing.
    settings = {key: value for key, value in markdown.settings.items() if value is not None}
    text = "template" if kind == "command" else "prompt"
    if markdown.body or kind == "command":
        settings[text] = markdown.body
    schema: type[Struct] = CommandConfig if kind == "command" else AgentConfig
    check(settings, schema, markdown.source)
    if kind == "mode":
        settings["mode"] = "primary"
    name = settings.get("name", name)
    section = "command" if kind == "command" else "agent"
    return Layer(markdown.source, {section: {name: settings}}, (section, name))
