"""Markdown with settings on top, between two lines of ``---``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ConfigError
from ..records import Document, as_object
from . import yaml
from .source import Source, text_of

if TYPE_CHECKING:
    from typing import Any

_OPEN = re.compile(r"\ufeff?---(?!-)[^\n]*\n")
_CLOSE = re.compile(r"^---[ \t\r]*(?:\n|\Z)", re.MULTILINE)


class MarkdownFile(NamedTuple):
    """A Markdown file in its two halves."""

    settings: Document
    body: str
    """Without the space around it."""
    source: Source
    """Where in the file each of the settings stands."""


def read(path: str) -> MarkdownFile:
    """Read a file; a :class:`~opensesh.errors.ConfigError` if that cannot be done."""
    text = text_of(path)
    if text is None:
        raise ConfigError("there is no such file", path=path)
    return parse(text, path)


def parse(text: str, name: str = "") -> MarkdownFile:
    """Take a text apart. One that does not begin with ``---`` has no settings.

    Front matter that is not YAML gets a second chance, because people write ``description: Use this: it helps``:
    there an outermost value that is no YAML is the text it is. If that does not help either, the error is the first
    one.
    """
    source = Source(name, text)
    opening = _OPEN.match(text)
    if not opening:
        return MarkdownFile({}, text.lstrip("\ufeff").strip(), source)
    closing = _CLOSE.search(text, opening.end())
    if not closing:
        raise source.error_at(0, "the front matter that begins here is never closed by a line of ---")
    value = _settings(source, opening.end(), closing.start())
    settings: Document | None = {} if value is None else as_object(value)
    if settings is None:
        raise source.error_at(opening.end(), "front matter is a list of `key: value` lines")
    return MarkdownFile(settings, text[closing.end() :].strip(), source)


def _settings(source: Source, start: int, end: int) -> Any:
    try:
        return yaml.parse(source, start, end)
    except ConfigError as first:
        source.values.clear()
        source.keys.clear()
        try:
            return yaml.parse(source, start, end, loose=True)
        except ConfigError:
            raise first from None
    except RecursionError:
        raise source.error_at(start, "nested too deeply") from None
