"""Where plugins are looked for, and whose they are. Nothing here runs any of their code.

1. the entry points of installed distributions, group ``opensesh.plugins``, by distribution and name;
2. the entries of ``plugin`` in the configuration that name a Python file (``./it.py``) or a module
   (``package.module``), in the configuration's order;
3. files ``*.py`` in ``plugin/`` and ``plugins/`` of every configuration folder, those of the user before those of the
   project. Names that begin with ``_`` or ``.`` are not plugins.

All other entries of the configuration are OpenCode's own, and left to it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config.layers import plugin_files
from ..config.ownership import is_own, own_folders
from ..config.trust import digest
from ..loading import entry_points
from ..records import as_list, as_object, dumps_compact
from .calling import Skipped, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

    from ..config import Config

GROUP = "opensesh.plugins"
_MODULE = r"(?a)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"


class Candidate(NamedTuple):
    """Something that may be a plugin."""

    name: str
    source: Source
    own: bool
    """Whether the user put it there; else it came with the project, or from an organisation."""
    path: str | None = None
    module: str | None = None
    entry_point: EntryPoint | None = None
    options: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """What trust in it is kept under."""
        return f"{self.source.named_by.rpartition(':')[0] or self.source.named_by}#{self.path or self.module}"

    def digest(self, content: bytes) -> str:
        """What stands for it as it is now, given the text of its file."""
        return digest(content, dumps_compact(self.options))


def find(config: Config) -> tuple[list[Candidate], list[Skipped]]:
    """What there is, in the order in which it is loaded, and what is not for us. Of those that name the same file or
    module, the first place counts, and the options of the last that the user wrote."""
    skipped: list[Skipped] = []
    found: dict[str, Candidate] = {}
    for each in (*_entry_points(), *_configured(config, skipped), *_in_folders(config)):
        target = each.path or each.module or f"entry point {each.source.place} {each.name}"
        if target not in found or each.own >= found[target].own:
            found[target] = each
    return list(found.values()), skipped


def _entry_points() -> Iterator[Candidate]:
    points = [(point.dist.name if point.dist else "", point) for point in entry_points(GROUP)]
    for distribution, point in sorted(points, key=lambda each: (each[0], each[1].name)):
        place = f"{distribution} ({point.value})" if distribution else point.value
        yield Candidate(point.name, Source("entry point", place), own=True, entry_point=point)


def _configured(config: Config, skipped: list[Skipped]) -> Iterator[Candidate]:
    for at, entry in enumerate(config.settings.plugin):
        pair = as_list(entry)
        text = str(pair[0] if pair else entry)
        options = (as_object(pair[1]) or {}) if pair and len(pair) > 1 else {}
        origin = config.origins.get(("plugin", at))
        path = _path(text, config)
        by = str(origin) if origin and origin.source != path else ""
        own = origin is not None and is_own(origin.source, config)
        if path is not None and path.endswith(".py"):
            name = os.path.basename(path).removesuffix(".py")
            yield Candidate(name, Source("config", path, by), own, path=path, options=options)
        elif path is None and re.fullmatch(_MODULE, text):
            yield Candidate(text, Source("config", text, by), own, module=text, options=options)
        else:
            why = "it is an npm package" if path is None else "it is not a Python file"
            reason = f"{why}; OpenCode runs it, opensesh does not"
            name = os.path.basename(path) if path else text
            source = Source("config" if by else "folder", path or text, by)
            skipped.append(Skipped(name, source, "foreign", reason))


def _path(text: str, config: Config) -> str | None:
    """The file that an entry names, if it names one."""
    if text.startswith("file:"):
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        try:
            return os.path.normpath(url2pathname(urlsplit(text).path))
        except ValueError:  # a host that cannot be one
            return None
    expanded = config.folders.expand(text)
    return os.path.normpath(expanded) if os.path.isabs(expanded) else None


def _in_folders(config: Config) -> Iterator[Candidate]:
    for folder in config.directories:
        own = folder in own_folders(config)
        for path in plugin_files(folder, "*.py"):
            name = os.path.basename(path).removesuffix(".py")
            if not name.startswith(("_", ".")):
                yield Candidate(name, Source("folder", path), own, path=path)
