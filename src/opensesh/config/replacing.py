"""A configuration with other settings than its files have, for a program that changes them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..records import as_object
from .before_merge import normalise
from .merged import Config, Layer, Origin
from .schema import Settings
from .source import Source
from .validation import check, strangers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..records import Document
    from .source import Path


def replaced(config: Config, document: Document, who: str) -> Config:
    """``config`` with ``document`` in place of its own, where ``who`` is behind every value that is another.

    A :class:`~opensesh.errors.ConfigError` says what does not fit, or is not a setting.
    """
    source = Source(who, "")
    for stranger in strangers(check(document, Settings, source), document):
        if len(stranger.path) == 1:
            raise source.error(stranger.reason)
    document = normalise(Layer(source, deepcopy(document))).value
    before, after = dict(values(config.document, ())), dict(values(document, ()))
    origins = {
        path: config.origins[path] if path in config.origins and before.get(path) == value else Origin(who)
        for path, value in after.items()
    }
    items = {
        path: origin
        for path, origin in config.origins.items()
        if isinstance(path[-1], int) and before.get(path[:-1]) == after.get(path[:-1])
    }
    settings = check(document, Settings, source)
    return replace(config, document=document, settings=settings, origins=origins | items)


def values(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is not an object with something in it, and its path."""
    members = as_object(value)
    if members:
        for name, member in members.items():
            yield from values(member, (*path, name))
    elif path:
        yield path, value
